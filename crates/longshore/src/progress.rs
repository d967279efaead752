//! Progress for people: a bar on terminals, plain lines elsewhere.
//!
//! Invariants
//! - It always goes to standard error, because a backup may go to standard output; with --json and --quiet nothing is
//!   shown.
//! - Plain lines are few: every ten percent, or every ten seconds without one.
//! - While stripes are completed, a second Ctrl-C says what it may have left.
//!
//! Leaves to others: counting (`pipeline`), and warnings and results (`terminal`).

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longshore_io::Clock;
use longshore_pipeline::{LeftStripe, Observer, Plan, Progress, Standing, ratio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::verbose;
use longshore_terminal::interrupt;
use longshore_terminal::output::{Output, bytes};
use longshore_terminal::text::plain;

/// A plain line is printed every so many percent, or after this time without one.
const STEP_PERCENT: u64 = 10;
const STEP_TIME: Duration = Duration::from_secs(10);

/// Shows a run in the requested form.
pub struct ProgressView {
    output: Output,
    clock: Arc<dyn Clock>,
    bar: Option<ProgressBar>,
    lines: Mutex<Lines>,
}

/// When the next plain line is due.
#[derive(Debug, Default)]
struct Lines {
    started: Option<Duration>,
    last_at: Duration,
    last_step: u64,
}

impl ProgressView {
    pub fn new(output: Output, clock: Arc<dyn Clock>) -> ProgressView {
        let shown = !output.quiet && !output.json;
        let bar = (shown && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(style(false));
            bar
        });
        ProgressView {
            output,
            clock,
            bar,
            lines: Mutex::default(),
        }
    }

    /// Bytes of stripes have been copied. May be called by several threads at once.
    pub fn copied(&self, moved: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(total) {
                bar.set_length(total);
                bar.set_style(style(true));
            }
            bar.set_position(moved);
            return;
        }
        let now = self.clock.now();
        let due = self.lines().due_of(now, (moved, Some(total)), None);
        if let Some(line) = due {
            self.output.remark(&line);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the bar from the screen; the answer follows.
    pub fn end(&self) {
        interrupt::set_last_words(None);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn aside(&self, show: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }
}

fn style(known_length: bool) -> ProgressStyle {
    let template = if known_length {
        "{percent:>3} % [{bar:30}] {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {msg}  {eta} left"
    } else {
        "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {msg}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl Observer for ProgressView {
    fn planned(&self, plan: &Plan) {
        self.aside(|| {
            if self.output.verbose {
                self.output.remark(&verbose::plan(plan));
            }
            for notice in plan.notices.iter().chain(&plan.without_effect) {
                self.output.remark(&format!("longshore: note: {notice}\n"));
            }
        });
        if let (Some(bar), Some(total)) = (&self.bar, plan.expected_bytes.filter(|t| *t > 0)) {
            bar.set_length(total);
            bar.set_style(style(true));
        }
    }

    fn progress(&self, progress: &Progress) {
        let so_far = ratio(progress.plain_bytes, progress.stored_bytes);
        if let Some(bar) = &self.bar {
            if let Some(total) = progress.expected_bytes
                && bar.length() != Some(total)
            {
                bar.set_length(total);
                bar.set_style(style(true));
            }
            bar.set_position(progress.done_bytes);
            bar.set_message(format!("ratio {so_far:.2}"));
            return;
        }
        let due = self.lines().due(self.clock.now(), progress);
        if let Some(line) = due {
            self.output.remark(&line);
        }
    }

    fn warning(&self, text: &str) {
        self.aside(|| self.output.warn(text));
    }

    fn note(&self, text: &str) {
        self.aside(|| self.output.note(text));
    }

    fn completing(&self, stripes: &[LeftStripe]) {
        interrupt::set_last_words(Some(ended_while_completing(stripes)));
    }
}

/// The text that a second Ctrl-C prints. A stripe that was not complete when the text was made may be so since.
fn ended_while_completing(stripes: &[LeftStripe]) -> String {
    let (complete, open): (Vec<_>, Vec<_>) =
        stripes.iter().partition(|s| s.standing == Standing::Yes);
    let names = |stripes: Vec<&LeftStripe>| match stripes.is_empty() {
        true => "none".to_owned(),
        false => {
            let names: Vec<_> = stripes.iter().map(|s| s.device.as_str()).collect();
            plain(&names.join(" "))
        }
    };
    format!(
        "longshore: ended while the stripes of a backup were being completed\n  complete: {}\n  \
         perhaps complete, else with an upload that is left: {}\n\
         hint: `longshore verify` with all stripes says whether they are a whole set; if not, run the backup again with \
         --format, or to other names\n",
        names(complete),
        names(open)
    )
}

impl Lines {
    fn due(&mut self, now: Duration, progress: &Progress) -> Option<String> {
        let so_far = ratio(progress.plain_bytes, progress.stored_bytes);
        let moved = (progress.done_bytes, progress.expected_bytes);
        self.due_of(now, moved, Some(so_far))
    }

    /// The next line, if it is due. The words of message 3211 come first, for scripts that search for them. `expected`: the
    /// value of `moved` at the end; `so_far`: the compression ratio.
    fn due_of(
        &mut self,
        now: Duration,
        (moved, expected): (u64, Option<u64>),
        so_far: Option<f64>,
    ) -> Option<String> {
        let started = *self.started.get_or_insert_with(|| {
            self.last_at = now;
            now
        });
        let percent = expected.map(|total| (moved.saturating_mul(100) / total.max(1)).min(100));
        let step = percent.unwrap_or(0) / STEP_PERCENT;
        // Of two threads the later one may come first.
        if step <= self.last_step && now.saturating_sub(self.last_at) < STEP_TIME {
            return None;
        }
        self.last_step = self.last_step.max(step);
        self.last_at = now;
        let elapsed = now.saturating_sub(started).as_secs_f64();
        let head = match percent {
            Some(percent) => format!("{percent} percent processed."),
            None => format!("{} processed.", bytes(moved)),
        };
        let mut line = format!("{head} {}", bytes(moved));
        if let Some(total) = expected {
            line += &format!(" of {}", bytes(total.max(moved)));
        }
        if let Some(so_far) = so_far {
            line += &format!(", ratio {so_far:.2}");
        }
        if elapsed > 0.2 {
            let rate = moved as f64 / elapsed;
            line += &format!(", {}/s", bytes(rate as u64));
            if let Some(left) = expected.map(|total| total.saturating_sub(moved))
                && rate > 0.0
            {
                line += &format!(", {} left", duration(left as f64 / rate));
            }
        }
        Some(line + "\n")
    }
}

/// For people: `40 s`, `3 min`, `2 h 05 min`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round().min(1e9) as u64;
    match whole {
        0..90 => format!("{whole} s"),
        90..5400 => format!("{} min", whole.div_ceil(60)),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
#[path = "../../core/pipeline/tests/observer/suite.rs"]
mod observer_suite;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_keeps_the_contract_of_all_observers() {
        for quiet in [false, true] {
            let view = || {
                let output = Output {
                    json: false,
                    quiet,
                    verbose: true,
                    stdout_taken: false,
                };
                ProgressView::new(output, Arc::new(longshore_io::HostClock))
            };
            super::observer_suite::keeps_its_contract(&|| Arc::new(view()));
            view().end();
        }
    }

    fn at(plain_bytes: u64, expected_bytes: Option<u64>) -> Progress {
        Progress {
            plain_bytes,
            done_bytes: plain_bytes,
            stored_bytes: plain_bytes / 4,
            expected_bytes,
            entries: 1,
        }
    }

    #[test]
    fn plain_lines_come_at_every_tenth_and_not_between() {
        let mut lines = Lines::default();
        let now = |ms| Duration::from_millis(ms);
        assert_eq!(lines.due(now(0), &at(0, Some(1000))), None);
        assert_eq!(lines.due(now(100), &at(99, Some(1000))), None);
        let line = lines.due(now(1000), &at(250, Some(1000))).unwrap();
        assert!(
            line.starts_with("25 percent processed. 250 B of 1000 B, ratio 4.0"),
            "{line}"
        );
        assert!(line.ends_with(", 3 s left\n"), "{line}");
        assert_eq!(lines.due(now(1100), &at(299, Some(1000))), None);
        assert!(lines.due(now(1200), &at(300, Some(1000))).is_some());
    }

    /// Threads read the clock before they wait for their turn to tell.
    #[test]
    fn a_thread_that_comes_late_with_an_earlier_time_is_no_error() {
        let mut lines = Lines::default();
        lines.due(Duration::from_secs(5), &at(1, Some(1000)));
        assert!(
            lines
                .due(Duration::from_secs(6), &at(200, Some(1000)))
                .is_some()
        );
        lines.due(Duration::from_secs(4), &at(100, Some(1000)));
        assert!(
            lines
                .due(Duration::from_secs(4), &at(300, Some(1000)))
                .is_some()
        );
    }

    #[test]
    fn a_slow_run_of_unknown_length_is_heard_from_every_ten_seconds() {
        let mut lines = Lines::default();
        let count = (0..=60u64)
            .filter_map(|s| lines.due(Duration::from_secs(s), &at(s * 10, None)))
            .count();
        assert_eq!(count, 6);
    }
}
