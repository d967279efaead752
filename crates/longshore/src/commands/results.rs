//! What is known of a database's backups from earlier runs on any host: verified, drilled, failed.
//!
//! Invariants
//! - Only results for backups that are still there, as they were then, are shown; a backup without one was never verified
//!   as it stands.
//! - A failed run counts until one of its kind read the same and did not fail, or what it failed at is gone; a failed
//!   backup also only until a newer one is whole, for whoever may only write has nothing recorded.
//! - While a record cannot be read, nobody knows how many backups are unverified, or that none is damaged: monitors get no
//!   number. Damage that another record has is still told.
//!
//! Leaves to others: reading records and deciding what a result is about (`longshore_repository::status`), and what is
//! worth an alarm (`check.rs`).

use std::collections::BTreeSet;

use longshore_repository::chain::SetFacts;
use longshore_repository::status::{FailedRun, SetResult, Status, Task};
use longshore_repository::{Error, Listing};
use serde::Serialize;

use longshore_terminal::text::plain;

/// The widest line.
const COLUMNS: usize = 80;
/// Where the values of lines begin.
const INDENT: usize = 18;

/// The results for one database at one target.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// The last verification of a backup that is still there and was found good.
    pub last_verified: Option<ResultRow>,
    /// The same of drills.
    pub last_drilled: Option<ResultRow>,
    /// Backups that can be restored and that no verification has found good as they are.
    pub unverified: u64,
    /// The last verification and the last drill of each backup.
    pub all: Vec<ResultRow>,
    /// The last failed run of each kind.
    pub last_failed: Vec<FailedRow>,
    /// Records that are not understood, and why.
    pub unreadable: Vec<String>,
}

/// The result of one run for one backup.
#[derive(Debug, Clone, Serialize)]
pub struct ResultRow {
    pub task: &'static str,
    pub label: String,
    pub good: bool,
    pub at_us: i64,
    pub age_s: i64,
    pub host: String,
    pub elapsed_s: Option<f64>,
    /// The damage.
    pub text: Option<String>,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize)]
pub struct FailedRow {
    pub task: &'static str,
    pub label: Option<String>,
    pub at_us: i64,
    pub age_s: i64,
    pub host: String,
    pub exit_code: u8,
    pub number: u32,
    pub text: String,
    /// Whether a later run of its kind did not fail.
    pub mended: bool,
}

impl ResultRow {
    fn of(task: Task, label: &str, result: &SetResult, now_us: i64) -> ResultRow {
        ResultRow {
            task: task.word(),
            label: label.to_owned(),
            good: result.good,
            at_us: result.by.at_us,
            age_s: age_s(result.by.at_us, now_us),
            host: result.by.host.clone(),
            elapsed_s: result.seconds,
            text: (!result.good).then(|| result.text.clone()),
        }
    }

    /// `20270131T020000Z-full-1a2b3c4d, 3 d 4 h ago`
    fn told(&self) -> String {
        format!("{}, {} ago", self.label, age_text(self.age_s))
    }
}

impl FailedRow {
    fn of(task: Task, (failed, mended): (&FailedRun, bool), now_us: i64) -> FailedRow {
        FailedRow {
            task: task.word(),
            label: failed.label.clone(),
            at_us: failed.by.at_us,
            age_s: age_s(failed.by.at_us, now_us),
            host: failed.by.host.clone(),
            exit_code: failed.exit_code,
            number: failed.number,
            text: failed.text.clone(),
            mended,
        }
    }

    /// `verify, 3 h ago on host db1: it is damaged`
    pub fn told(&self) -> String {
        format!(
            "{}, {} ago on host {}: {}",
            self.task,
            age_text(self.age_s),
            plain(&self.host),
            plain(&self.text)
        )
    }
}

fn age_s(at_us: i64, now_us: i64) -> i64 {
    now_us.saturating_sub(at_us) / 1_000_000
}

impl Results {
    /// The results in the records of a shelf. A place that refuses them has none: the backups count, and the reason is told.
    pub fn read(status: &Result<Status, Error>, listing: &Listing, now_us: i64) -> Results {
        match status {
            Ok(status) => Results::of(status, listing, now_us),
            Err(error) => Results {
                unverified: restorable(listing).count() as u64,
                unreadable: vec![error.to_string()],
                ..Results::default()
            },
        }
    }

    fn of(status: &Status, listing: &Listing, now_us: i64) -> Results {
        let row = |task| {
            move |set: &longshore_repository::BackupEntry| {
                let result = status.of_set(task, set, now_us)?;
                Some(ResultRow::of(task, set.label.as_str(), result, now_us))
            }
        };
        let rows = |task| listing.sets.iter().filter_map(row(task));
        let verified: Vec<ResultRow> = rows(Task::Verify).collect();
        let drilled: Vec<ResultRow> = rows(Task::Drill).collect();
        let is_good = |label: &str| verified.iter().any(|r| r.good && r.label == label);
        let unverified = restorable(listing).filter(|set| !is_good(set.label.as_str()));
        let unverified = unverified.count() as u64;
        let facts = listing.facts();
        let failed = Task::ALL.into_iter().filter_map(|task| {
            let (failed, mended) = status.failed(task)?;
            let mended = mended
                || match task {
                    Task::Backup => is_followed(failed.by.at_us, &facts, now_us),
                    Task::Verify | Task::Drill => is_of_one_gone(failed, listing),
                    Task::Expire | Task::Copy => false,
                };
            Some(FailedRow::of(task, (failed, mended), now_us))
        });
        Results {
            last_verified: newest_good(&verified),
            last_drilled: newest_good(&drilled),
            unverified,
            last_failed: failed.collect(),
            unreadable: status.unreadable.clone(),
            all: verified.into_iter().chain(drilled).collect(),
        }
    }

    /// The labels of backups whose last verification or drill found something wrong.
    pub fn damaged(&self) -> BTreeSet<&str> {
        let bad = self.all.iter().filter(|row| !row.good);
        bad.map(|row| row.label.as_str()).collect()
    }

    /// Backups without a good result; `None`: some records cannot be read.
    pub fn counted_unverified(&self) -> Option<f64> {
        self.unreadable.is_empty().then_some(self.unverified as f64)
    }

    /// How often records say that something is wrong, at least; `None`: none that can be read does, and some cannot.
    pub fn counted(&self, count: impl FnOnce(&Results) -> u64) -> Option<f64> {
        let count = count(self);
        (count > 0 || self.unreadable.is_empty()).then_some(count as f64)
    }

    /// When a run of this kind failed last.
    pub fn failed_us(&self, task: Task) -> Option<i64> {
        let of_it = |row: &&FailedRow| row.task == task.word();
        self.last_failed.iter().find(of_it).map(|row| row.at_us)
    }

    /// The lines for people.
    pub fn text(&self, backups: usize) -> String {
        let never = |what: &str| format!("no backup that is here was {what}");
        let verified = self.last_verified.as_ref();
        let verified = verified.map_or_else(|| never("verified"), ResultRow::told);
        let mut text = line("last verified", &verified);
        if self.last_verified.is_some() && self.unverified > 0 {
            let rest = format!("{} of {backups} backups were not verified", self.unverified);
            text += &line("", &rest);
        }
        let drilled = self.last_drilled.as_ref().map(|row| match row.elapsed_s {
            Some(elapsed_s) => format!("{}, took {elapsed_s:.1} s", row.told()),
            None => row.told(),
        });
        text += &line("last drilled", &drilled.unwrap_or_else(|| never("drilled")));
        for bad in self.all.iter().filter(|row| !row.good) {
            let why = plain(bad.text.as_deref().unwrap_or_default());
            text += &line(
                "NOT GOOD",
                &format!("{}: {} found: {why}", bad.told(), bad.task),
            );
        }
        let failed = self.last_failed.iter().filter(|row| !row.mended);
        for failed in failed {
            text += &line("last run FAILED", &failed.told());
        }
        for unreadable in &self.unreadable {
            text += &line("unreadable record", &plain(unreadable));
        }
        text
    }
}

/// Backups that can be restored.
fn restorable(listing: &Listing) -> impl Iterator<Item = &longshore_repository::BackupEntry> {
    listing.sets.iter().filter(|set| set.complete().is_some())
}

fn newest_good(rows: &[ResultRow]) -> Option<ResultRow> {
    let good = rows.iter().filter(|row| row.good);
    good.max_by_key(|row| row.at_us).cloned()
}

/// Whether a backup that is whole began after a run failed. One that is dated later than now says nothing.
fn is_followed(failed_us: i64, facts: &[SetFacts], now_us: i64) -> bool {
    let whole = facts.iter().filter(|set| set.is_whole());
    let mut begun_us = whole.map(|set| set.start_us);
    begun_us.any(|begun_us| failed_us < begun_us && begun_us <= now_us)
}

/// Whether a run failed at one backup alone, and that is gone.
fn is_of_one_gone(failed: &FailedRun, listing: &Listing) -> bool {
    let is_at_one = !failed.more && !failed.wal;
    let is_there = |label: &String| listing.sets.iter().any(|set| set.label.as_str() == label);
    is_at_one && failed.label.as_ref().is_some_and(|label| !is_there(label))
}

/// The two largest units of a time: `3 d 4 h`.
pub fn age_text(seconds: i64) -> String {
    let parts = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let mut rest = seconds.max(0);
    let mut text = Vec::new();
    for (unit, name) in parts {
        if rest >= unit || (unit == 1 && text.is_empty()) {
            text.push(format!("{} {name}", rest / unit));
            rest %= unit;
        } else if !text.is_empty() {
            break;
        }
    }
    text.truncate(2);
    text.join(" ")
}

/// A line of a name and a value, broken where it is too wide for a screen.
pub fn line(name: &str, value: &str) -> String {
    broken(&format!("{name:<INDENT$}"), value)
}

/// A text after a head, broken at blanks where it is too wide for a screen. The lines below begin where it does.
pub fn broken(head: &str, value: &str) -> String {
    let mut text = String::new();
    let mut current = head.to_owned();
    let indent = head.chars().count();
    let mut is_empty = true;
    for word in value.split(' ') {
        let len = current.chars().count() + word.chars().count() + usize::from(!is_empty);
        if len > COLUMNS && !is_empty {
            text += current.trim_end();
            text.push('\n');
            current = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            current.push(' ');
        }
        current += word;
        is_empty = false;
    }
    text + current.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units() {
        assert_eq!(age_text(0), "0 s");
        assert_eq!(age_text(61), "1 min 1 s");
        assert_eq!(age_text(3600), "1 h");
        assert_eq!(age_text(90_061), "1 d 1 h");
        assert_eq!(age_text(-5), "0 s");
    }

    #[test]
    fn a_long_value_is_broken_at_blanks_and_a_long_word_is_not() {
        assert_eq!(line("name", "value"), "name              value\n");
        let long = "x".repeat(100);
        let text = line("name", &format!("one {long} {} end", "y".repeat(60)));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "name              one");
        assert_eq!(lines[1].trim(), long);
        assert!(lines[2..].iter().all(|l| l.chars().count() <= COLUMNS));
        assert!(text.ends_with(" end\n"), "{text}");
    }
}
