//! Runs the pipeline and passes its news to the sink.
//!
//! The pipeline works in its own thread and reports from others; the sink belongs to the caller's thread alone. So news
//! passes through a bounded channel.
//!
//! Invariants
//! - Nobody who moves bytes waits for a client: progress is dropped if the channel is full (the next report says more).
//! - A client that is gone ends the run as a cancel does, and the run's end is awaited.
//! - A percent is told once, and percents only grow.
//!
//! Leaves to others: the pipeline, and what news becomes which message (the statements).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use longshore_pipeline::{Error, Observer, Plan, Progress, Report, Request, RunContext, run};

use crate::sink::ReceiverGone;

/// A report during a run.
#[derive(Debug)]
pub enum News {
    Planned(Box<Plan>),
    /// 1 to 100, each step once, ascending.
    Percent(u8),
}

const QUEUE: usize = 128;

struct Reporter {
    news: SyncSender<News>,
    last: AtomicU8,
    /// The bytes of all runs, and those of this one that are among them.
    moved: Arc<AtomicU64>,
    counted: AtomicU64,
}

impl Reporter {
    fn new(news: SyncSender<News>, moved: Arc<AtomicU64>) -> Reporter {
        Reporter {
            news,
            last: AtomicU8::new(0),
            moved,
            counted: AtomicU64::new(0),
        }
    }

    /// Adds what this run has moved beyond what was added before.
    fn reached(&self, bytes: u64) {
        let before = self.counted.fetch_max(bytes, Ordering::Relaxed);
        let more = bytes.saturating_sub(before);
        self.moved.fetch_add(more, Ordering::Relaxed);
    }
}

impl Observer for Reporter {
    fn planned(&self, plan: &Plan) {
        // The receiver is gone only if the run is being ended anyway.
        let _closed = self.news.send(News::Planned(Box::new(plan.clone())));
    }

    fn progress(&self, progress: &Progress) {
        self.reached(progress.done_bytes);
        let Some(total) = progress.expected_bytes.filter(|t| *t > 0) else {
            return;
        };
        let percent = (progress.done_bytes.saturating_mul(100) / total).min(100) as u8;
        if percent > self.last.fetch_max(percent, Ordering::Relaxed) {
            let _full = self.news.try_send(News::Percent(percent));
        }
    }

    /// The reports contain the warnings.
    fn warning(&self, _text: &str) {}

    /// And the notes.
    fn note(&self, _text: &str) {}
}

/// Runs to the end and adds its bytes to `moved`; `hear` is called on this thread. If it reports that the client is gone,
/// the run is cancelled, and its end awaited.
pub fn watched(
    context: &RunContext,
    request: &Request,
    moved: &Arc<AtomicU64>,
    mut hear: impl FnMut(News) -> Result<(), ReceiverGone>,
) -> Result<Result<Report, Error>, ReceiverGone> {
    let (sender, receiver) = sync_channel(QUEUE);
    let reporter = Reporter::new(sender, moved.clone());
    thread::scope(|scope| {
        let runner = thread::Builder::new()
            .name("statement".into())
            .spawn_scoped(scope, move || {
                let result = run(context, request, &reporter);
                match &result {
                    Ok(Report::Backup(report)) => reporter.reached(report.plain_bytes),
                    Ok(Report::Restore(report)) => reporter.reached(report.plain_bytes),
                    Ok(Report::Verify(_)) | Err(_) => {}
                }
                result
            });
        let runner = match runner {
            Ok(runner) => runner,
            Err(source) => return Ok(Err(Error::Thread { source })),
        };
        let mut closed = None;
        for news in receiver {
            if closed.is_none()
                && let Err(gone) = hear(news)
            {
                context.cancel.store(true, Ordering::Relaxed);
                closed = Some(gone);
            }
        }
        let result = runner.join().unwrap_or(Err(Error::Panicked {
            thread: "statement",
        }));
        match closed {
            Some(gone) => Err(gone),
            None => Ok(result),
        }
    })
}

/// The percents that STATS = `step` shows, in order.
#[derive(Debug)]
pub struct Steps {
    step: u8,
    shown: u8,
}

impl Steps {
    /// `step`: 1 to 100.
    pub fn of(step: u8) -> Steps {
        Steps {
            step: step.clamp(1, 100),
            shown: 0,
        }
    }

    /// Whether this percent is shown: the first at or above each step. The last is 100.
    pub fn shows(&mut self, percent: u8) -> bool {
        let due =
            percent / self.step > self.shown / self.step || (percent == 100 && self.shown < 100);
        if due {
            self.shown = percent;
        }
        due
    }
}

#[cfg(test)]
#[path = "../../../core/pipeline/tests/observer/suite.rs"]
mod observer_suite;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// With a session that hears nothing, and with one whose client is gone.
    #[test]
    fn a_statements_reporter_keeps_the_contract_of_all_observers() {
        for is_gone in [false, true] {
            let sessions = Mutex::new(Vec::new());
            super::observer_suite::keeps_its_contract(&|| {
                let (news, session) = sync_channel(QUEUE);
                if !is_gone {
                    sessions.lock().unwrap().push(session);
                }
                Arc::new(Reporter::new(news, Arc::default()))
            });
        }
    }

    #[test]
    fn bytes_of_a_run_are_added_once() {
        let (news, _session) = sync_channel(QUEUE);
        let moved = Arc::new(AtomicU64::new(100));
        let reporter = Reporter::new(news, moved.clone());
        for bytes in [5, 5, 3, 8] {
            reporter.reached(bytes);
        }
        assert_eq!(moved.load(Ordering::Relaxed), 108);
    }

    fn shown(step: u8, percents: &[u8]) -> Vec<u8> {
        let mut steps = Steps::of(step);
        percents
            .iter()
            .copied()
            .filter(|p| steps.shows(*p))
            .collect()
    }

    #[test]
    fn steps_are_shown_once_and_the_end_always() {
        assert_eq!(
            shown(10, &[3, 9, 10, 11, 43, 45, 50, 100, 100]),
            [10, 43, 50, 100]
        );
        assert_eq!(shown(30, &[29, 31, 59, 61, 95, 100]), [31, 61, 95, 100]);
        assert_eq!(shown(100, &[99, 100]), [100]);
        assert_eq!(shown(1, &[1, 2, 2, 100]), [1, 2, 100]);
    }
}
