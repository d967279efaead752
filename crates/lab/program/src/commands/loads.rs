//! `lab oltp` and `load`: backups of a database under load, and the load by itself.
//!
//! Invariants
//! - A program is asked for once, however often it is named.
//!
//! Leaves to others: transactions, phases and the report (`longshore-studies`).

use std::path::PathBuf;
use std::time::Duration;

use longshore_pipeline::SourceSpec;
use longshore_studies::oltp::{self, LoadKind, LoadMix, LoadSpec, LoadedPeer, OltpSpec};
use longshore_studies::report::Report;
use longshore_studies::sample::warehouse_bytes;
use longshore_terminal::failure::{Exit, Failure};

use super::answers::{
    SAMPLE_BYTES, SAMPLE_BYTES_QUICK, answer, context_with_accelerators, failure, run_context,
};
use super::refusals;
use crate::context::Context;
use crate::options::{Load, LoadDatabase, LoadName, LoadPeer, Oltp, OutputOptions};

const PHASE: Duration = Duration::from_secs(20);
const PHASE_QUICK: Duration = Duration::from_secs(1);

/// The least time of a phase.
pub fn phase(asked: Option<u16>, quick: bool) -> Duration {
    let seconds = asked.map(|seconds| Duration::from_secs(seconds.into()));
    seconds.unwrap_or(if quick { PHASE_QUICK } else { PHASE })
}

/// This program, which is the load on a database, too.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| failure(e.into()))
}

pub fn oltp(options: &Oltp, context: &Context) -> Result<Exit, Failure> {
    refusals::oltp(options)?;
    let kind = options.database.map(|database| match database {
        LoadDatabase::Postgres => LoadKind::Postgres,
        LoadDatabase::Pgbench => LoadKind::Pgbench,
        LoadDatabase::Sqlite => LoadKind::Sqlite,
    });
    let mut peers = Vec::new();
    for asked in &options.peer {
        let peer = match asked {
            LoadPeer::Pgbackrest => LoadedPeer::PgBackRest,
            LoadPeer::WalG => LoadedPeer::WalG,
            LoadPeer::PgBasebackup => LoadedPeer::PgBasebackup,
        };
        if !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    let spec = OltpSpec {
        kind,
        mix: match options.load {
            None | Some(LoadName::Tprocc) => LoadMix::Orders,
            Some(LoadName::Stae) => LoadMix::Trades,
        },
        bytes: size(options),
        clients: options.clients.into(),
        think: Duration::from_millis(options.think.into()),
        phase: phase(options.phase, options.quick),
        work: options.work.clone(),
        dirs: options.dir.clone(),
        stripes: options.stripes.into(),
        max_cpu: options.max_cpu,
        rounds: options.rounds.into(),
        peers,
        quick: options.quick,
        program: own_program()?,
    };
    let run_context = context_with_accelerators(context);
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let found = oltp::oltp(&run_context, &spec, &step).map_err(failure)?;
    answer(
        Exit::Done,
        found.report,
        spec.quick,
        &options.written,
        context,
    )
}

/// Of the database.
fn size(options: &Oltp) -> u64 {
    let asked = options.warehouses.map(warehouse_bytes).or(options.size);
    asked.unwrap_or(match options.quick {
        true => SAMPLE_BYTES_QUICK,
        false => SAMPLE_BYTES,
    })
}

pub fn load(options: &Load, context: &Context) -> Result<Exit, Failure> {
    let spec = LoadSpec {
        source: SourceSpec::parse(&*context.storage, std::slice::from_ref(&options.database))?,
        clients: options.clients.into(),
        time: Duration::from_secs(options.seconds.into()),
        think: Duration::from_millis(options.think.into()),
        seed: 1,
        log: options.log.clone(),
    };
    let done = oltp::load(&run_context(context), &spec).map_err(failure)?;
    let rate = done.transactions as f64 / done.elapsed_s.max(1e-9);
    let report = Report {
        title: "A load".into(),
        summary: format!(
            "{} transactions in {:.1} s, {rate:.0} per second; {} failed and were rolled back.",
            done.transactions, done.elapsed_s, done.failed
        ),
        platform: Vec::new(),
        sections: Vec::new(),
    };
    let written = OutputOptions {
        html: None,
        markdown: None,
    };
    answer(Exit::Done, report, false, &written, context)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::{Cli, Command, Lab, Study};

    #[test]
    fn warehouses_decide_the_size_and_each_has_about_82_megabytes() {
        let size_of = |words: &str| {
            let line = ["longshore-lab", "lab", "oltp"].into_iter();
            let cli = Cli::try_parse_from(line.chain(words.split_whitespace())).unwrap();
            match cli.command {
                Command::Lab(Lab {
                    study: Study::Oltp(options),
                }) => size(&options),
                other => panic!("{other:?}"),
            }
        };
        let [one, two, ten] = [1, 2, 10].map(|n| {
            let line = format!("--warehouses {n}");
            assert_eq!(size_of(&line), size_of(&format!("{line} --quick")));
            size_of(&line) as f64 / 1e6
        });
        assert!((89.0..91.0).contains(&one), "with the items: {one}");
        for each in [two - one, (ten - one) / 9.0] {
            assert!((81.0..83.0).contains(&each), "{each}");
        }
        assert_eq!(
            (size_of(""), size_of("--quick")),
            (SAMPLE_BYTES, SAMPLE_BYTES_QUICK)
        );
        assert_eq!(size_of("--size 7M --quick"), 7 << 20);
    }
}
