//! An observer that also says to other processes how far the run is.

use parking_lot::Mutex;

use longshore_accelerators::ProgressFile;

use crate::observer::{Observer, Progress};
use crate::plan::Plan;
use crate::{LeftStripe, RunContext};

/// Hands everything on to another observer.
pub struct PublishedRun<'a> {
    context: &'a RunContext,
    observer: &'a dyn Observer,
    file: Mutex<Option<ProgressFile>>,
}

impl<'a> PublishedRun<'a> {
    pub fn new(context: &'a RunContext, observer: &'a dyn Observer) -> PublishedRun<'a> {
        PublishedRun {
            context,
            observer,
            file: Mutex::new(None),
        }
    }
}

impl Observer for PublishedRun<'_> {
    fn planned(&self, plan: &Plan) {
        let (machine, catalog) = (self.context.machine(), self.context.catalog.as_deref());
        *self.file.lock() = ProgressFile::begin(machine, catalog, plan.action, &plan.database);
        self.observer.planned(plan);
    }

    fn progress(&self, progress: &Progress) {
        if let Some(file) = &*self.file.lock() {
            file.update(progress.plain_bytes, progress.expected_bytes);
        }
        self.observer.progress(progress);
    }

    fn warning(&self, text: &str) {
        self.observer.warning(text);
    }

    fn note(&self, text: &str) {
        self.observer.note(text);
    }

    fn completing(&self, stripes: &[LeftStripe]) {
        self.observer.completing(stripes);
    }
}

#[cfg(test)]
#[path = "../tests/observer/suite.rs"]
mod observer_suite;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::NullObserver;
    use longshore_io::{Host, HostClock};

    #[test]
    fn a_run_that_is_published_keeps_the_contract_of_all_observers() {
        let dir = tempfile::tempdir().unwrap();
        let context: &RunContext = Box::leak(Box::new(RunContext {
            keyring: Default::default(),
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
            catalog: Some(dir.path().join("catalog.db")),
            accelerators: Vec::new(),
            cancel: Arc::default(),
        }));
        observer_suite::keeps_its_contract(&|| Arc::new(PublishedRun::new(context, &NullObserver)));
    }
}
