//! The first and the last line of a long run.
//!
//! Invariants
//! - In the journal of a unit, a run has one line when it begins and one when it has ended; a failure is its own last
//!   line. A command over several databases has a run for each of them at each target.
//! - The last line has the outcome that the exit code has, or would have if the command had only this run.
//!
//! Leaves to others: how a line gets into the journal (`terminal`), and what a command does.

use longshore_media::DeviceSpec;
use longshore_pipeline::NeededWal;

use crate::context::Context;
use longshore_terminal::failure::Exit;
use longshore_terminal::journal::{self, RunFields};
use longshore_terminal::output::{Output, bytes};
use longshore_terminal::text::plain;

/// A run that has begun.
pub struct RunLines {
    output: Output,
    /// "verify of sales at target nightly".
    what: String,
    warned_before: u64,
}

impl RunLines {
    /// Says that a run begins. `what` names it, in plain text.
    pub fn begin(output: Output, what: String, run: RunFields) -> RunLines {
        journal::begin(run);
        output.journal(&format!("longshore: {what} begins\n"), None);
        RunLines {
            output,
            what,
            warned_before: output.warnings(),
        }
    }

    /// The same for a run over a database, at its own target if none is named. Without a database it is over `media`.
    pub fn of(
        context: &Context,
        task: &'static str,
        (database, target): (Option<&str>, Option<&str>),
        media: &str,
    ) -> RunLines {
        let own = || context.config.target_of(database?);
        let target = target.or_else(own);
        let subject = plain(database.unwrap_or(media));
        let mut what = format!("{} of {subject}", task.replace('_', " "));
        if let Some(target) = target {
            what += &format!(" at target {}", plain(target));
        }
        let run = RunFields {
            task,
            database: database.map(str::to_owned),
            target: target.map(str::to_owned),
            ..RunFields::default()
        };
        RunLines::begin(context.output, what, run)
    }

    /// The end of a run that did its work, by the warnings since its begin: a command has other runs, too.
    pub fn done(&self) -> Exit {
        match self.output.warnings() > self.warned_before {
            true => Exit::Warnings,
            false => Exit::Done,
        }
    }

    /// Says how the run ended and what it did.
    pub fn end(self, exit: Exit, did: &str) {
        let (what, ended) = (self.what, ended(exit));
        let text = format!("longshore: {what} {ended}: {did}\n");
        self.output.journal(&text, Some(exit));
    }
}

/// The first stripe, and how many more there are.
pub fn stripes(devices: &[DeviceSpec]) -> String {
    match devices {
        [] => "media".to_owned(),
        [one] => name_of(one),
        [first, rest @ ..] => format!("{} and {} more", name_of(first), rest.len()),
    }
}

/// Names the database of media, and the WAL that its set needs, which only they know.
pub fn is_of(database: &str, wal: &NeededWal) {
    journal::learn(|run| {
        run.database.get_or_insert_with(|| database.to_owned());
        run.first_lsn.clone_from(&wal.first_lsn);
        run.last_lsn.clone_from(&wal.last_lsn);
        run.timeline = wal.timeline;
    });
}

/// "WAL 0/2000028 to 0/20001B8 on timeline 1"; `None` for a source without WAL.
pub fn wal_of(wal: &NeededWal) -> Option<String> {
    let (first, last) = (wal.first_lsn.as_ref()?, wal.last_lsn.as_ref()?);
    Some(format!(
        "WAL {first} to {last} on timeline {}",
        wal.timeline?
    ))
}

/// Names the backup that was chosen.
pub fn chose(label: Option<&str>) {
    journal::learn(|run| run.label = label.map(str::to_owned));
}

fn name_of(device: &DeviceSpec) -> String {
    match device {
        DeviceSpec::File(path) => path.display().to_string(),
        DeviceSpec::Nul => "nul:".to_owned(),
        DeviceSpec::Pipe => "-".to_owned(),
        DeviceSpec::Bucket(address) => address.to_string(),
    }
}

fn ended(exit: Exit) -> &'static str {
    match exit {
        Exit::Done => "finished",
        Exit::Warnings => "finished with warnings",
        Exit::No => "finished, and something is wrong",
        Exit::Interrupted => "was interrupted",
        _ => "failed",
    }
}

/// The last line of an answer: what was done, how much that was and how long it took. `what`: "Backup of sales".
pub fn closing_line(
    what: &str,
    exit: Exit,
    (plain_bytes, stored_bytes): (u64, u64),
    elapsed_s: f64,
) -> String {
    format!(
        "{what} {}: {}",
        ended(exit),
        figures((plain_bytes, stored_bytes), elapsed_s)
    )
}

/// "814.0 MiB in 2.5 s (326 MiB/s), 203.1 MiB on media".
pub fn figures((plain_bytes, stored_bytes): (u64, u64), elapsed_s: f64) -> String {
    // A run takes some time, even if its clock saw none. So little that the rate says nothing has none.
    let mib_per_s = plain_bytes as f64 / f64::from(1 << 20) / elapsed_s.max(0.001);
    let rate = match plain_bytes < 1 << 20 {
        true => String::new(),
        false => format!(" ({mib_per_s:.0} MiB/s)"),
    };
    let time = match elapsed_s < 1.0 {
        true => format!("{elapsed_s:.3} s"),
        false => format!("{elapsed_s:.1} s"),
    };
    format!(
        "{} in {time}{rate}, {} on media",
        bytes(plain_bytes),
        bytes(stored_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_line_says_what_how_much_and_how_fast() {
        let sizes = (814 << 20, 203 << 20);
        assert_eq!(
            closing_line("Backup of main", Exit::Done, sizes, 2.5),
            "Backup of main finished: 814.0 MiB in 2.5 s (326 MiB/s), 203.0 MiB on media"
        );
        let line = closing_line("Restore of main", Exit::Warnings, (1 << 20, 9), 0.0005);
        assert_eq!(
            line,
            "Restore of main finished with warnings: 1.0 MiB in 0.001 s (1000 MiB/s), 9 B on media"
        );
    }

    #[test]
    fn a_rate_is_told_of_a_mebibyte_and_more() {
        assert_eq!(figures((7, 528), 0.04), "7 B in 0.040 s, 528 B on media");
    }

    #[test]
    fn media_are_named_by_their_first_stripe() {
        let stripes = |names: &[&str]| {
            let devices: Vec<_> = names.iter().map(|name| DeviceSpec::parse(name)).collect();
            stripes(&devices)
        };
        assert_eq!(stripes(&["x"]), "x");
        assert_eq!(stripes(&["s3://b/x", "-", "nul:"]), "s3://b/x and 2 more");
    }
}
