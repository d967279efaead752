//! Backups under load: how long each takes, and how many transactions it costs.
//!
//! A database of its own gets a load from another process. The phases are quiet, a phase for each algorithm in which
//! backups run one after another, and quiet again; transactions and their latencies are counted in each second.
//!
//! Invariants
//! - The load is a process of its own: the backup's CPU time is this process's alone.
//! - The load and the server end with the study, however it ends; the database is removed.
//! - A phase counts as hardware only if an accelerator compressed nine tenths of it; else its row says how much it was.
//! - Transactions lost are those of the quiet phases without those of the phase, for the time of one backup.
//!
//! Leaves to others: transactions (`workload.rs`), clients (`load.rs`), PostgreSQL (`cluster.rs`), and the report
//! (`findings.rs`).

mod cluster;
mod findings;
mod load;
mod session;
mod spec;
mod transactions;
mod watched;
mod workload;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use longshore_codec::Algorithm;
use longshore_pipeline::{BackupRequest, OffloadMode, Request, RunContext, SourceSpec};

use crate::platform;
use crate::sample::{SampleKind, SampleSpec, sample};
use crate::scratch::Scratch;
use crate::stock;
use crate::timing::{Timing, pause, take};
use cluster::LoadCluster;
use findings::HARD;
pub use findings::{OltpFound, Phase};
pub use load::{LoadDone, LoadSpec, load};
pub use spec::{LoadKind, OltpSpec};
use transactions::Transactions;
use watched::Watched;

/// The load begins so long before the first phase: sessions open, caches fill.
const LEAD: Duration = Duration::from_secs(1);
/// pgbench writes its log in pieces: the last phase is followed by so much that is not counted.
const TAIL: Duration = Duration::from_secs(1);
/// A load that the study does not end ends itself.
const LOAD_MAX: Duration = Duration::from_secs(24 * 3600);
/// pgbench's accounts take so many bytes for each unit of scale.
const PGBENCH_UNIT_BYTES: u64 = 16_000_000;

/// A kind of backup in its phase.
#[derive(Debug, Clone)]
struct Kind {
    /// In [`OltpFound::values`].
    key: &'static str,
    name: String,
    algorithm: Algorithm,
    mode: OffloadMode,
    max_cpu: Option<f64>,
}

/// The phases between the quiet ones, and what is missing for others.
fn kinds(context: &RunContext, spec: &OltpSpec) -> (Vec<Kind>, Vec<String>) {
    let software = |key, name: &str, algorithm| Kind {
        key,
        name: name.into(),
        algorithm,
        mode: OffloadMode::Software,
        max_cpu: None,
    };
    let mut missing = Vec::new();
    let mut kinds = vec![
        software("none", "NONE", Algorithm::None),
        software("xpress", "MS_XPRESS", Algorithm::MsXpress),
        software("qat", "QAT_DEFLATE software", Algorithm::QatDeflate),
    ];
    let hardware = software(HARD, "QAT_DEFLATE hardware", Algorithm::QatDeflate);
    match context
        .accelerators
        .iter()
        .any(|a| a.serves(Algorithm::QatDeflate))
    {
        true => kinds.push(Kind {
            mode: OffloadMode::Hardware,
            ..hardware
        }),
        false => missing.push(
            "QAT_DEFLATE in hardware (no QAT accelerator can be used on this machine)".to_owned(),
        ),
    }
    if !spec.quick {
        kinds.push(software("zstd", "ZSTD", Algorithm::Zstd));
        kinds.push(software("lz4", "LZ4", Algorithm::Lz4));
    }
    if let Some(percent) = spec.max_cpu {
        for (key, name, algorithm) in [
            ("xpress_held", "MS_XPRESS", Algorithm::MsXpress),
            ("qat_held", "QAT_DEFLATE software", Algorithm::QatDeflate),
        ] {
            kinds.push(Kind {
                max_cpu: Some(percent),
                ..software(key, &format!("{name}, CPU at most {percent} %"), algorithm)
            });
        }
    }
    (kinds, missing)
}

/// The database under load; what it holds ends in the order of its fields.
struct Loaded {
    load: Watched,
    source: SourceSpec,
    /// Of logs, with the beginning of their names.
    logs: (PathBuf, &'static str),
    _cluster: Option<LoadCluster>,
}

/// Makes the database, puts load on it, makes all backups, and removes everything.
pub fn oltp(context: &RunContext, spec: &OltpSpec, on_step: &dyn Fn(&str)) -> Result<OltpFound> {
    let storage = &*context.storage;
    let dirs = match spec.dirs.as_slice() {
        [] => std::slice::from_ref(&spec.work),
        dirs => dirs,
    };
    let mut machine = platform::record(context, dirs);
    let base = Scratch::named(storage, std::slice::from_ref(&spec.work), "load")?;
    let (kinds, mut missing) = kinds(context, spec);
    let (kind, mut loaded) = begin_any(context, spec, &base, &mut missing, on_step)?;
    pause(context, LEAD);
    ensure!(
        !loaded.load.has_ended(),
        "the load ended at once; `longshore lab load` shows why"
    );
    let stripes = Scratch::new(storage, dirs)?;
    let mut phases = vec![Phase::quiet("quiet, before")];
    phases.extend(kinds.iter().map(|kind| Phase::of(kind.key, &kind.name)));
    phases.push(Phase::quiet("quiet, after"));
    let begun = wall_s(context);
    for (n, phase) in phases.iter_mut().enumerate() {
        phase.from_s = wall_s(context);
        let kind = n.checked_sub(1).and_then(|n| kinds.get(n));
        match kind {
            None => pause(context, spec.phase),
            Some(kind) => {
                while phase.backups.is_empty()
                    || wall_s(context) - phase.from_s < spec.phase.as_secs_f64()
                {
                    phase
                        .backups
                        .push(backup(context, spec, &loaded.source, kind, &stripes)?);
                    stripes.clear()?;
                }
            }
        }
        phase.to_s = wall_s(context);
        on_step(&format!(
            "{}: {:.1} s, {} backups",
            phase.name,
            phase.to_s - phase.from_s,
            phase.backups.len()
        ));
        ensure!(
            !context.cancel.load(Ordering::Relaxed),
            "the study was cancelled"
        );
        ensure!(
            !loaded.load.has_ended(),
            "the load ended early; `longshore lab load` shows why"
        );
    }
    if kind == LoadKind::Pgbench {
        pause(context, TAIL);
    }
    let Loaded { load, logs, .. } = loaded;
    drop(load);
    let mut all = Transactions::default();
    for text in cluster::texts(storage, &logs.0, logs.1)? {
        all = all.join(Transactions::read(&text));
    }
    ensure!(!all.is_empty(), "the load left no transactions in its log");
    machine.push((
        "Load".into(),
        format!("{}, {} clients", kind.text(), spec.clients),
    ));
    Ok(findings::found(
        spec, kind, machine, phases, &all, begun, missing,
    ))
}

fn wall_s(context: &RunContext) -> f64 {
    context.clock.wall_ns() as f64 / 1e9
}

fn backup(
    context: &RunContext,
    spec: &OltpSpec,
    source: &SourceSpec,
    kind: &Kind,
    stripes: &Scratch,
) -> Result<Timing> {
    let mut request = BackupRequest::new(source.clone(), stripes.stripes(spec.stripes));
    request.algorithm = kind.algorithm;
    request.offload.mode = kind.mode;
    request.limits.cpu_percent = kind.max_cpu;
    take(context, &Request::Backup(request))
}

/// Begins with the kind that was asked for; else with PostgreSQL, and with SQLite where it cannot run.
fn begin_any(
    context: &RunContext,
    spec: &OltpSpec,
    base: &Scratch,
    missing: &mut Vec<String>,
    on_step: &dyn Fn(&str),
) -> Result<(LoadKind, Loaded)> {
    let begin = |kind: LoadKind| {
        on_step(&format!("the database: {}", kind.text()));
        begin(context, spec, kind, base).map(|loaded| (kind, loaded))
    };
    match spec.kind {
        Some(kind) => begin(kind),
        None => begin(LoadKind::Postgres).or_else(|why| {
            missing.push(format!("a PostgreSQL cluster ({why:#})"));
            base.clear()?;
            begin(LoadKind::Sqlite)
        }),
    }
}

/// Makes the database and starts the load.
fn begin(context: &RunContext, spec: &OltpSpec, kind: LoadKind, base: &Scratch) -> Result<Loaded> {
    let storage = &*context.storage;
    // The directory of the study itself, below which everything is.
    let place = storage.canonical(base.path("x").parent().unwrap_or(Path::new(".")))?;
    let clients = spec.clients.to_string();
    let log = place.join("load.log");
    let own = |database: String| {
        [
            "lab".to_owned(),
            "load".into(),
            database,
            "--clients".into(),
            clients.clone(),
            "--seconds".into(),
            LOAD_MAX.as_secs().to_string(),
            "--think".into(),
            spec.think.as_millis().to_string(),
            "--log".into(),
            log.display().to_string(),
            "--quiet".into(),
        ]
        .to_vec()
    };
    if kind == LoadKind::Sqlite {
        let path = place.join("load.db");
        let made = SampleSpec {
            kind: SampleKind::Tprocc,
            size_bytes: spec.bytes,
            seed: 1,
            files: 1,
            dirs: Vec::new(),
            path: Some(path.clone()),
            wal: true,
            replace: false,
        };
        sample(&made, &|_| {})?;
        let words = own(format!("sqlite:{}", path.display()));
        return Ok(Loaded {
            load: Watched::start(&spec.program, &words, "TERM", None, Stdio::null())?,
            source: SourceSpec::Sqlite(path),
            logs: (place, "load.log"),
            _cluster: None,
        });
    }
    let cluster = LoadCluster::start(storage, &*context.clock, &place)?;
    let (load, logs) = match kind {
        LoadKind::Pgbench => {
            cluster.fill_for_pgbench((spec.bytes / PGBENCH_UNIT_BYTES).max(1))?;
            let prefix = cluster.socket_dir().join("pgbench");
            let words = [
                "-n".to_owned(),
                "-c".into(),
                clients.clone(),
                "-T".into(),
                LOAD_MAX.as_secs().to_string(),
                "--log".into(),
                format!("--log-prefix={}", prefix.display()),
                "-U".into(),
                "postgres".into(),
                "-h".into(),
                cluster.socket_dir().display().to_string(),
                "postgres".into(),
            ];
            let pgbench = cluster.programs().join("pgbench");
            let load = Watched::start(&pgbench, &words, "TERM", cluster.user(), Stdio::null())?;
            (load, (cluster.socket_dir().to_owned(), "pgbench"))
        }
        _ => {
            let sample =
                stock::sample_in(storage, &spec.work, SampleKind::Tprocc, spec.bytes, &|_| {})?;
            cluster
                .fill(storage, &sample)
                .context("cannot fill the study's cluster")?;
            let words = own(cluster.address());
            let load = Watched::start(&spec.program, &words, "TERM", None, Stdio::null())?;
            (load, (place, "load.log"))
        }
    };
    Ok(Loaded {
        load,
        source: cluster.source(),
        logs,
        _cluster: Some(cluster),
    })
}
