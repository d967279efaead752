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
    let kind = options.database.map(|database| match database {
        LoadDatabase::Postgres => LoadKind::Postgres,
        LoadDatabase::Pgbench => LoadKind::Pgbench,
        LoadDatabase::Sqlite => LoadKind::Sqlite,
    });
    if options.think > 0 && kind == Some(LoadKind::Pgbench) {
        let hint = "leave out --think, or use --database postgres";
        return Err(Failure::usage("pgbench's load has no pauses", hint));
    }
    let is_pgbench = kind == Some(LoadKind::Pgbench);
    if is_pgbench && options.load == LoadName::Stae {
        let hint = "leave out --load, or use --database postgres";
        return Err(Failure::usage("pgbench has a load of its own", hint));
    }
    if options.warehouses.is_some() && (is_pgbench || options.load == LoadName::Stae) {
        let hint = "give --size, or use --database postgres --load tprocc";
        return Err(Failure::usage("this load has no warehouses", hint));
    }
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
            LoadName::Tprocc => LoadMix::Orders,
            LoadName::Stae => LoadMix::Trades,
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
