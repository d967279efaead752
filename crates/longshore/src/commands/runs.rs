//! Remembers in the history of this machine how a run of a command ended.
//!
//! Invariants
//! - No exit code depends on whether the run could be recorded. A run that gave an answer has a note; one that failed says
//!   only why it failed.
//! - A mistake in a command line is no run.
//! - A message is what people were told, without its causes: no password is part of it.
//!
//! Leaves to others: the table (`longshore-catalog`), showing it (`catalog.rs`), and records at targets (`recording.rs`).

use longshore_catalog::{Catalog, FamilyRecord, RunOutcome, RunRecord, RunTask};
use longshore_media::DeviceSpec;
use longshore_pipeline::time_zone_quarters;

use super::recording::now_us;
use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};

/// A run that has not ended. Its record is filled in as facts become known.
pub struct PendingRun<'a> {
    pub context: &'a Context,
    pub record: RunRecord,
}

impl<'a> PendingRun<'a> {
    /// A run that begins now.
    pub fn begin(context: &'a Context, task: RunTask) -> PendingRun<'a> {
        let start_us = now_us(context);
        let record = RunRecord {
            task,
            database: None,
            target: None,
            label: None,
            set: None,
            devices: Vec::new(),
            start_us,
            finish_us: start_us,
            time_zone: time_zone_quarters(start_us),
            outcome: RunOutcome::Good,
            exit_code: 0,
            number: None,
            bytes: None,
            message: None,
        };
        PendingRun { context, record }
    }

    /// The same, about a database at a target.
    pub fn at(mut self, database: &str, target: &str) -> PendingRun<'a> {
        self.record.database = Some(database.to_owned());
        self.record.target = Some(target.to_owned());
        self
    }

    /// The run is about these devices and no target.
    pub fn on(&mut self, devices: &[DeviceSpec]) {
        let storage = &self.context.storage;
        let name = |spec: &DeviceSpec| FamilyRecord::new(&*spec.open(storage), None).device;
        self.record.devices = devices.iter().map(name).collect();
    }

    /// Records the end of a run that gave an answer; `message`: what it did, or what is wrong.
    pub fn ended(&mut self, exit: Exit, message: Option<&str>) {
        if let Err(failure) = self.write(exit, message) {
            let why = [&failure.text].into_iter().chain(&failure.causes);
            let why: Vec<&str> = why.map(String::as_str).collect();
            self.context.output.note(&format!(
                "this run is not in the history (3009), so `longshore history --runs` does not show it: {}",
                why.join(": ")
            ));
        }
    }

    /// Records a run that failed, unless it never began.
    pub fn failed(&mut self, failure: &Failure) {
        if failure.exit == Exit::Usage {
            return;
        }
        self.record.number = Some(failure.number);
        if let Err(failure) = self.write(failure.exit, Some(&failure.text)) {
            tracing::debug!(error = failure.text, "a run is not in the history");
        }
    }

    fn write(&mut self, exit: Exit, message: Option<&str>) -> Result<(), Failure> {
        self.record.message = message.map(str::to_owned);
        let Some(path) = &self.context.catalog else {
            return Ok(());
        };
        self.record.finish_us = now_us(self.context);
        self.record.time_zone = time_zone_quarters(self.record.finish_us);
        self.record.exit_code = exit.code();
        self.record.outcome = match exit {
            Exit::Done => RunOutcome::Good,
            Exit::Warnings => RunOutcome::Warnings,
            Exit::No => RunOutcome::Damaged,
            Exit::Interrupted => RunOutcome::Interrupted,
            _ => RunOutcome::Failed,
        };
        Catalog::open(path)?.record_run(&self.record)?;
        Ok(())
    }
}
