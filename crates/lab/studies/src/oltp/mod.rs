//! Backups under load: how long each takes, and how many transactions it costs.
//!
//! A database of its own gets a load from another process. The phases are quiet, a phase for each algorithm in which
//! backups run one after another, and quiet again, in each round; transactions and their latencies are counted in each
//! second.
//!
//! Invariants
//! - The load is a process of its own: the backup's CPU time is this process's alone.
//! - The load and the server end with the study, however it ends; the database is removed.
//! - A phase counts as hardware only if an accelerator compressed nine tenths of it; else its row says how much it was.
//! - Transactions lost are those of the quiet phases before and after the round without those of the phase, shared by its
//!   backups.
//! - Every other round has the phases in the opposite order, because each finds a database that the ones before it changed.
//!
//! Leaves to others: transactions (`workload.rs`, `brokerage.rs`), clients (`load.rs`), PostgreSQL (`cluster.rs`), other programs
//! (`peers.rs`), CPU use (`meter.rs`), and the report (`findings.rs`).

mod brokerage;
mod cluster;
mod findings;
mod load;
mod meter;
mod peers;
mod phase;
mod session;
mod spec;
mod terminals;
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
use crate::sample::{SampleSpec, sample};
use crate::scratch::Scratch;
use crate::stock;
use crate::timing::{pause, take};
pub(crate) use cluster::LoadCluster;
use findings::ObservedLoad;
pub use findings::OltpFound;
pub use load::{LoadDone, LoadSpec, load};
use meter::CpuMeter;
pub use peers::LoadedPeer;
use phase::{HARD, HARD_HELD, Phase, Taken};
pub use spec::{LoadKind, LoadMix, OltpSpec};
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

const NO_CLUSTER: &str =
    "other programs back up PostgreSQL: use --database postgres or pgbench, or leave out --peer";

/// A kind of backup in its phase.
#[derive(Debug, Clone)]
struct Kind {
    /// In [`OltpFound::values`].
    key: &'static str,
    name: String,
    made: Made,
}

/// The way in which a backup is made.
#[derive(Debug, Clone, Copy)]
enum Made {
    Here {
        algorithm: Algorithm,
        mode: OffloadMode,
        max_cpu: Option<f64>,
    },
    By(LoadedPeer),
}

/// A phase without and one with a limit of CPU time: their keys, the name, and how it is made.
type PhaseCandidate = ([&'static str; 2], &'static str, Algorithm, OffloadMode);

/// The phases between the quiet ones, and what is missing for others.
fn kinds(context: &RunContext, spec: &OltpSpec) -> (Vec<Kind>, Vec<String>) {
    use OffloadMode::{Hardware, Software};
    let mut missing = Vec::new();
    let mut candidates: Vec<PhaseCandidate> = vec![
        (["none", "none_held"], "NONE", Algorithm::None, Software),
        (
            ["xpress", "xpress_held"],
            "MS_XPRESS",
            Algorithm::MsXpress,
            Software,
        ),
        (
            ["qat", "qat_held"],
            "QAT_DEFLATE software",
            Algorithm::QatDeflate,
            Software,
        ),
    ];
    let mut accelerators = context.accelerators.iter();
    match accelerators.any(|a| a.serves(Algorithm::QatDeflate)) {
        true => candidates.push((
            [HARD, HARD_HELD],
            "QAT_DEFLATE hardware",
            Algorithm::QatDeflate,
            Hardware,
        )),
        false => missing.push(
            "QAT_DEFLATE in hardware (no QAT accelerator can be used on this machine)".to_owned(),
        ),
    }
    if !spec.quick {
        candidates.push((["zstd", "zstd_held"], "ZSTD", Algorithm::Zstd, Software));
        candidates.push((["lz4", "lz4_held"], "LZ4", Algorithm::Lz4, Software));
    }
    let made = |max_cpu: Option<f64>| {
        let kind = move |(keys, name, algorithm, mode): &PhaseCandidate| Kind {
            key: keys[usize::from(max_cpu.is_some())],
            name: match max_cpu {
                None => (*name).to_owned(),
                Some(percent) => format!("{name} (CPU at most {percent} %)"),
            },
            made: Made::Here {
                algorithm: *algorithm,
                mode: *mode,
                max_cpu,
            },
        };
        candidates.iter().map(kind)
    };
    let mut kinds: Vec<Kind> = made(None).collect();
    if spec.max_cpu.is_some() {
        kinds.extend(made(spec.max_cpu));
    }
    kinds.extend(spec.peers.iter().map(|peer| Kind {
        key: peer.key(),
        name: peer.name().into(),
        made: Made::By(*peer),
    }));
    (kinds, missing)
}

/// The database under load; what it holds ends in the order of its fields.
struct Loaded {
    load: Watched,
    source: SourceSpec,
    /// Of logs, with the beginning of their names.
    logs: (PathBuf, &'static str),
    cluster: Option<LoadCluster>,
}

/// Makes the database, puts load on it, makes all backups, and removes everything.
pub fn oltp(context: &RunContext, spec: &OltpSpec, on_step: &dyn Fn(&str)) -> Result<OltpFound> {
    let storage = &*context.storage;
    let dirs = match spec.dirs.as_slice() {
        [] => std::slice::from_ref(&spec.work),
        dirs => dirs,
    };
    let base = Scratch::named(storage, std::slice::from_ref(&spec.work), "load")?;
    let stripes = Scratch::new(storage, dirs)?;
    // The directories exist from here on: before, their file systems would not be known.
    let places = [dirs, std::slice::from_ref(&spec.work)].concat();
    let mut machine = platform::record(context, &platform::places(&places, []));
    let (kinds, mut missing) = kinds(context, spec);
    let (kind, mut loaded) = begin_any(context, spec, &base, &mut missing, on_step)?;
    for peer in &spec.peers {
        // Before the phases, of which those of other programs are the last.
        let cluster = loaded.cluster.as_ref().context(NO_CLUSTER)?;
        peer.program(cluster)?;
    }
    pause(context, LEAD);
    ensure!(
        !loaded.load.has_ended(),
        "the load ended at once; `longshore lab load` shows why"
    );
    for peer in &spec.peers {
        // One that cannot back up this server says so before the phases.
        on_step(&format!("a trial of {}", peer.name()));
        backup(context, spec, &loaded, Made::By(*peer), (&stripes, 0))?;
        stripes.clear()?;
    }
    let ((begun_s, phases), cpu) = CpuMeter::during(&*context.clock, || {
        let begun_s = wall_s(context);
        let phases = run_phases(context, spec, &mut loaded, (&kinds, &stripes), on_step)?;
        Ok((begun_s, phases))
    })?;
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
        format!("{}, {} clients", spec.load_text(kind), spec.clients),
    ));
    let observed = ObservedLoad {
        phases,
        all,
        cpu,
        begun_s,
    };
    Ok(findings::found(spec, kind, machine, observed, missing))
}

/// All phases of all rounds, one after the other.
fn run_phases(
    context: &RunContext,
    spec: &OltpSpec,
    loaded: &mut Loaded,
    (kinds, stripes): (&[Kind], &Scratch),
    on_step: &dyn Fn(&str),
) -> Result<Vec<Phase>> {
    let mut phases = Vec::new();
    // Of the last backup of ours; in every other round those of others come before.
    let mut plain_bytes = 0;
    for (mut phase, made) in all_phases(kinds, spec.rounds.max(1)) {
        phase.from_s = wall_s(context);
        match made {
            None => pause(context, spec.phase),
            Some(made) => {
                while phase.backups.is_empty()
                    || wall_s(context) - phase.from_s < spec.phase.as_secs_f64()
                {
                    let taken = backup(context, spec, loaded, made, (stripes, plain_bytes))?;
                    plain_bytes = taken.plain_bytes;
                    phase.backups.push(taken);
                    stripes.clear()?;
                }
            }
        }
        phase.to_s = wall_s(context);
        on_step(&format!(
            "{}: {:.1} s, {} backups",
            phase.name(),
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
        phases.push(phase);
    }
    Ok(phases)
}

fn wall_s(context: &RunContext) -> f64 {
    context.clock.wall_ns() as f64 / 1e9
}

/// The phases in their order, and what is made in each; nothing in a quiet one.
fn all_phases(kinds: &[Kind], rounds: usize) -> Vec<(Phase, Option<Made>)> {
    let mut all = Vec::new();
    for round in 0..rounds {
        let quiet = match rounds {
            1 => "quiet, before".to_owned(),
            _ => format!("quiet, before round {}", round + 1),
        };
        all.push((Phase::quiet(quiet, round), None));
        let of = |kind: &Kind| {
            let phase = Phase::of(kind.key, &kind.name, (round, rounds));
            (phase, Some(kind.made))
        };
        match round % 2 {
            0 => all.extend(kinds.iter().map(of)),
            _ => all.extend(kinds.iter().rev().map(of)),
        }
    }
    all.push((Phase::quiet("quiet, after".into(), rounds), None));
    all
}

/// One backup. The database has so many `plain_bytes`, as far as another program is asked.
fn backup(
    context: &RunContext,
    spec: &OltpSpec,
    loaded: &Loaded,
    made: Made,
    (stripes, plain_bytes): (&Scratch, u64),
) -> Result<Taken> {
    let (algorithm, mode, max_cpu) = match made {
        Made::Here {
            algorithm,
            mode,
            max_cpu,
        } => (algorithm, mode, max_cpu),
        Made::By(peer) => {
            let cluster = loaded.cluster.as_ref().context(NO_CLUSTER)?;
            let place = stripes.path(peer.key());
            let above = place.parent().unwrap_or(Path::new("."));
            let place = context.storage.canonical(above)?.join(peer.key());
            return peers::take(context, cluster, peer, (&place, plain_bytes));
        }
    };
    let stripes = stripes.stripes(spec.stripes);
    let mut request = BackupRequest::new(loaded.source.clone(), stripes);
    request.algorithm = algorithm;
    request.offload.mode = mode;
    request.limits.cpu_percent = max_cpu;
    take(context, &Request::Backup(request)).map(Taken::from)
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
        on_step(&format!("the database: {}", spec.load_text(kind)));
        begin(context, spec, kind, base).map(|loaded| (kind, loaded))
    };
    match spec.kind {
        Some(kind) => begin(kind),
        // Other programs are not left out silently.
        None if !spec.peers.is_empty() => begin(LoadKind::Postgres),
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
            kind: spec.mix.sample(),
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
            cluster: None,
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
            let kind = spec.mix.sample();
            let sample = stock::sample_in(storage, &spec.work, kind, spec.bytes, &|_| {})?;
            cluster
                .fill(storage, &sample, kind)
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
        cluster: Some(cluster),
    })
}
