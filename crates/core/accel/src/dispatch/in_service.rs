//! An accelerator in service: its engine, its standing and its measured speed. It outlives a run, so that the next run
//! need not measure again, and an accelerator that is off stays off.

use std::sync::{Arc, LazyLock};

use longshore_balance::constants::{accelerator, fit};
use longshore_balance::{Band, Estimate, Spread};
use parking_lot::{Mutex, MutexGuard};

use super::standing::EngineStanding;
use crate::{Engine, EngineState};

pub struct InService {
    engine: Arc<dyn Engine>,
    known: Mutex<EngineRecord>,
}

pub(super) struct EngineRecord {
    pub standing: EngineStanding,
    pub estimate: Estimate,
    /// The time of calls, from start to return.
    pub service: Spread,
    /// All bytes of calls that succeeded: a call notes this number when it begins.
    pub delivered_bytes: u64,
}

impl InService {
    pub fn new(engine: Arc<dyn Engine>) -> Arc<InService> {
        let band = Band {
            factor: accelerator::DRIFT,
            weight: accelerator::DRIFT_WEIGHT,
            // Until a window is full, the best times are still being found.
            settled: fit::WINDOW,
            lasting_us: 0,
        };
        let calls = u32::try_from(engine.caps().calls_max).unwrap_or(u32::MAX);
        let known = EngineRecord {
            standing: EngineStanding::new(&engine.health()),
            estimate: Estimate::fitted(calls, band),
            service: Spread::default(),
            delivered_bytes: 0,
        };
        Arc::new(InService {
            engine,
            known: Mutex::new(known),
        })
    }

    /// The accelerators of this host, found and tested at the first call.
    pub fn all() -> Vec<Arc<InService>> {
        static ALL: LazyLock<Vec<Arc<InService>>> = LazyLock::new(|| {
            let engines = crate::devices::accelerators();
            engines.into_iter().map(InService::new).collect()
        });
        ALL.clone()
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The state and its reason.
    pub fn state(&self) -> (EngineState, String) {
        let known = self.known();
        (known.standing.state(), known.standing.reason().to_owned())
    }

    pub(super) fn known(&self) -> MutexGuard<'_, EngineRecord> {
        self.known.lock()
    }
}
