//! An accelerator in service: its engine, its standing, and what is known of its speed. Outlives a run, so that the
//! next one does not have to learn again and what is off stays off.

use std::sync::{Arc, LazyLock};

use longshore_balance::{Drift, Estimate, Spread};
use parking_lot::{Mutex, MutexGuard};

use super::standing::Standing;
use crate::{Engine, State};

/// Times expected service at which a device counts as another one.
const DRIFT: f64 = 2.0;

pub struct InService {
    engine: Arc<dyn Engine>,
    known: Mutex<Known>,
}

pub(super) struct Known {
    pub standing: Standing,
    pub estimate: Estimate,
    /// Of calls, from start to return.
    pub service: Spread,
    pub drift: Drift,
}

impl InService {
    pub fn new(engine: Arc<dyn Engine>) -> Arc<InService> {
        let known = Known {
            standing: Standing::new(&engine.health()),
            estimate: Estimate::default(),
            service: Spread::default(),
            drift: Drift::new(DRIFT),
        };
        Arc::new(InService {
            engine,
            known: Mutex::new(known),
        })
    }

    /// Those of this host, found and tested at the first call.
    pub fn all() -> Vec<Arc<InService>> {
        static ALL: LazyLock<Vec<Arc<InService>>> = LazyLock::new(|| {
            let engines = crate::accelerators();
            engines.into_iter().map(InService::new).collect()
        });
        ALL.clone()
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Where it is in its life, and why.
    pub fn state(&self) -> (State, String) {
        let known = self.known();
        (known.standing.state(), known.standing.reason().to_owned())
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}
