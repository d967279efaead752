//! Records at a database's target what a command found out, so that `info` and monitors on any host see it.
//!
//! Invariants
//! - No command fails because a record could not be written: a note says so. A run that fails says only why it
//!   failed; a backup also says if its target took no record of that.
//! - A mistake in a command line and an interruption by the operator are no failed runs.
//! - A run that did not fail mends no failure that was recorded after it began.
//! - Nothing is recorded of a bucket as it was.
//!
//! Leaves to others: the form of records and what they count for (`longshore_repository::status`), and the local history
//! (`pipeline`).

use longshore_io::Clock;
use longshore_pipeline::VerifyReport;
use longshore_repository::status::{FailedRun, GoodRun, News, SetResult, Task, Witnessed};
use longshore_repository::{Error, SetIdentity, Shelf, past_ns};

use super::devices;
use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};

/// Records the results of one task for one database at its target.
pub struct Recorder<'a> {
    context: &'a Context,
    shelf: &'a Shelf,
    task: Task,
    /// When the run began.
    began_us: i64,
}

impl<'a> Recorder<'a> {
    /// Of a run that begins now; `None` for a bucket as it was.
    pub fn new(context: &'a Context, shelf: &'a Shelf, task: Task) -> Option<Recorder<'a>> {
        let recorder = Recorder {
            context,
            shelf,
            task,
            began_us: now_us(context),
        };
        past_ns().is_none().then_some(recorder)
    }

    /// Of a run that began before.
    pub fn since(self, began_us: i64) -> Recorder<'a> {
        Recorder { began_us, ..self }
    }

    /// This host, now.
    pub fn now(&self) -> Witnessed {
        Witnessed::now(now_us(self.context))
    }

    /// A run that found these backups good; `None`: whatever a run of its kind can fail at.
    pub fn good_run(&self, backups: Option<&[SetIdentity]>) -> GoodRun {
        let labels = |found: &[SetIdentity]| found.iter().map(|own| own.label.clone()).collect();
        GoodRun {
            by: self.now(),
            began_us: self.began_us,
            wal: backups.is_none(),
            backups: backups.map(labels),
            to: None,
        }
    }

    /// A run that failed.
    pub fn failed_run(&self, failure: &Failure, label: Option<&str>) -> FailedRun {
        let told = (failure.exit.code(), failure.number, failure.text.as_str());
        FailedRun::new(self.now(), label, told)
    }

    /// Records a failed run as [`Recorder::failed`], and tells of a record that could not be written for lack of space or
    /// rights: monitors of other machines then see the last run that succeeded.
    pub fn failed_or_told(&self, failure: &Failure) {
        if matches!(failure.exit, Exit::Usage | Exit::Interrupted) {
            return;
        }
        let news = News {
            failed: Some(self.failed_run(failure, None)),
            ..News::default()
        };
        if let Err(error @ Error::Io { .. }) = self.shelf.record(self.task, &news) {
            self.context.output.note(&format!(
                "the failure is not recorded at target {}, so `longshore info` on other machines does not know of it: {error}",
                self.shelf.target.name
            ));
        }
    }

    /// Records a run that failed, unless that was not the run's fault. Trouble with the record is not told next to the
    /// failure.
    pub fn failed(&self, failure: &Failure, label: Option<&str>) {
        self.failed_as(failure, self.failed_run(failure, label));
    }

    /// [`Recorder::failed`], in the words of `run`.
    pub fn failed_as(&self, failure: &Failure, run: FailedRun) {
        if matches!(failure.exit, Exit::Usage | Exit::Interrupted) {
            return;
        }
        self.record_silently(&News {
            failed: Some(run),
            ..News::default()
        });
    }

    /// Records a run that failed because this backup is damaged, as [`Recorder::failed`].
    pub fn damaged(&self, failure: &Failure, identity: &SetIdentity) {
        let label = Some(identity.label.as_str());
        self.record_silently(&News {
            sets: vec![SetResult::new(identity, &self.now(), Some(&failure.text))],
            failed: Some(self.failed_run(failure, label)),
            ..News::default()
        });
    }

    fn record_silently(&self, news: &News) {
        if let Err(error) = self.shelf.record(self.task, news) {
            tracing::debug!(%error, "a run was not recorded at the target");
        }
    }

    /// Records what a run found out; whether that is done, or there is nowhere to record it.
    pub fn record(&self, news: &News) -> bool {
        match self.shelf.record(self.task, news) {
            Ok(()) | Err(Error::Nothing { .. }) => true,
            Err(error) => {
                let failure = Failure::from(error);
                let why = [&failure.text].into_iter().chain(&failure.causes);
                let why: Vec<&str> = why.map(String::as_str).collect();
                self.context.output.note(&format!(
                    "the result is not recorded at target {}, so `longshore info` and monitors do not know of it: {}",
                    self.shelf.target.name,
                    why.join(": ")
                ));
                false
            }
        }
    }

    /// Records a run that did not fail, if an earlier one did.
    pub fn mended(&self) {
        self.mended_by(self.good_run(None));
    }

    /// [`Recorder::mended`], by a run that did not do everything.
    pub fn mended_by(&self, run: GoodRun) {
        self.record_silently(&News {
            good: Some(run),
            ..News::default()
        });
    }
}

/// The time by this host's clock.
pub fn now_us(context: &Context) -> i64 {
    Clock::wall_ns(&*context.clock) / 1000
}

/// The results of a verification for the sets of a chain. `leased`: the sets as they were before they were read, the chosen
/// one first. A set that the verification says nothing about has no result.
pub fn verified(report: &VerifyReport, leased: &[SetIdentity], by: &Witnessed) -> Vec<SetResult> {
    let first = report.findings.first().map(|finding| finding.text.as_str());
    let damaged = first.unwrap_or("it is damaged");
    let chain_is_sound = report.sets.iter().any(|set| set.chain_sets.is_some());
    let mut results = Vec::new();
    for identity in leased {
        let Some(set) = report.sets.iter().find(|set| set.set == identity.set) else {
            continue;
        };
        let wrong = match (set.valid, set.parent) {
            (false, _) => Some(damaged),
            // It is good, and will be repaired or be worse: it is read again.
            (true, _) if set.degraded => continue,
            (true, None) => None,
            (true, Some(_)) if chain_is_sound => None,
            (true, Some(_)) if first.is_some() => Some(damaged),
            (true, Some(_)) => continue,
        };
        results.push(SetResult::new(identity, by, wrong));
    }
    results
}

/// The run that failed because it found damage.
pub fn damage(report: &VerifyReport, by: Witnessed, label: Option<&str>) -> Option<FailedRun> {
    if report.is_valid() {
        return None;
    }
    let first = report.findings.first();
    let text = first.map_or("a set is damaged", |finding| finding.text.as_str());
    let number = first.and_then(|finding| finding.number).unwrap_or(0);
    Some(FailedRun::new(by, label, (Exit::No.code(), number, text)))
}

/// The shelf that a command's `--database` and `--target` mean, as far as that is known.
pub fn shelf_of(context: &Context, database: Option<&str>, target: Option<&str>) -> Option<Shelf> {
    let database = database?;
    let target = devices::target_of(context, target, database).ok()?;
    devices::shelf(context, &target, database).ok()
}
