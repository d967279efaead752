//! Compares what this machine produces with what the way to an object store bears.
//!
//! Three kinds of backups alternate: to NUL, which shows what the CPUs can compress; to the store; and to the store
//! without compression, which gives the network more than it can take on most machines. The smaller of two rates, of
//! what is produced and of what the way bears, bounds the time of a backup.
//!
//! Invariants
//! - The kinds alternate, the medians count, and all three store their bytes in the same number of stripes.
//! - Only objects of names that this study chose are written, none that exists, and each is removed before the next
//!   backup.
//!
//! Leaves to others: timing one backup (`timing.rs`), and the forms of a report.

use anyhow::{Result, ensure};
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{BackupRequest, DeviceSpec, Request, RunContext, SourceSpec};

use uuid::Uuid;

use crate::platform;
use crate::report::{Axis, Chart, Column, Report, Section, Series, Table, counted};
use crate::spread::{RoundResults, caution, median};
use crate::timing::{Timing, take};

/// The settings of the study.
#[derive(Debug, Clone)]
pub struct NetworkSpec {
    pub name: String,
    pub source: SourceSpec,
    /// Addresses below which objects are written, used in turn; at least one.
    pub prefixes: Vec<String>,
    pub stripes: usize,
    pub algorithm: Algorithm,
    pub level: Level,
    /// Backups of each kind, alternating; at least 1.
    pub rounds: usize,
}

/// The kinds of backups, in the order in which they alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ToNul,
    ToStore,
    Uncompressed,
}

const KINDS: [Kind; 3] = [Kind::ToNul, Kind::ToStore, Kind::Uncompressed];

/// The rates that are compared closely enough that neither bounds the other.
const NEAR: f64 = 0.9;

/// Makes all backups, and removes each before the next. Calls `on_step` with one line for each.
///
/// Errors: also an object of a name that the study would use, and one that cannot be removed.
pub fn network(context: &RunContext, spec: &NetworkSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let _refused_now = objects(spec)?;
    let mut platform = platform::record(context, &platform::places(&[], [&spec.source]));
    let mut rounds: [Vec<Timing>; 3] = Default::default();
    for round in 1..=spec.rounds.max(1) {
        for (kind, taken) in KINDS.into_iter().zip(&mut rounds) {
            let one = one(context, spec, kind, &objects(spec)?)?;
            on_step(&format!(
                "round {round}: {}, {:.2} s, {:.0} MB/s stored",
                name_of(kind, spec),
                one.wall_s,
                stored_mb_per_s(&one)
            ));
            taken.push(one);
        }
    }
    let bytes = rounds[0].first().map_or(0, |taken| taken.plain_bytes);
    let source = platform::name_of(&spec.source);
    let source = format!("{source}, {:.1} MB (10^6)", bytes as f64 / 1e6);
    platform.push((format!("Database {}", spec.name), source));
    platform.push(("Objects below".into(), spec.prefixes.join(", ")));
    Ok(Report {
        title: "The way to an object store".into(),
        summary: verdict(spec, &rounds).unwrap_or_default(),
        platform,
        sections: vec![section(spec, &rounds)],
    })
}

/// The objects of one backup. Their names have a number that nobody else has, and that no other backup has: a store may
/// refuse the name of an object that it keeps as an old version.
fn objects(spec: &NetworkSpec) -> Result<Vec<DeviceSpec>> {
    ensure!(
        !spec.prefixes.is_empty(),
        "the study needs an address below which it writes objects: --to s3://BUCKET/PREFIX"
    );
    let own = format!("longshore-lab-{}", Uuid::new_v4());
    let prefixes = spec.prefixes.iter().cycle();
    let named = prefixes.zip(1..=spec.stripes.max(1)).map(|(prefix, n)| {
        let text = format!("{}/{own}/{n}.bak", prefix.trim_end_matches('/'));
        let device = DeviceSpec::parse(&text);
        ensure!(
            matches!(device, DeviceSpec::Bucket(_)),
            "{prefix} is no address of an object store: write s3://BUCKET/PREFIX, az:// or gs://"
        );
        Ok(device)
    });
    named.collect()
}

fn one(
    context: &RunContext,
    spec: &NetworkSpec,
    kind: Kind,
    objects: &[DeviceSpec],
) -> Result<Timing> {
    let devices = match kind {
        Kind::ToNul => vec![DeviceSpec::Nul; objects.len()],
        Kind::ToStore | Kind::Uncompressed => objects.to_vec(),
    };
    let mut request = BackupRequest::new(spec.source.clone(), devices);
    (request.algorithm, request.level) = match kind {
        Kind::ToNul | Kind::ToStore => (spec.algorithm, spec.level),
        Kind::Uncompressed => (Algorithm::None, Level::Low),
    };
    let taken = take(context, &Request::Backup(request))?;
    if kind != Kind::ToNul {
        remove(context, objects)?;
    }
    Ok(taken)
}

/// Removes the objects of a backup. Errors: those that are left, by name.
fn remove(context: &RunContext, objects: &[DeviceSpec]) -> Result<()> {
    let mut left = Vec::new();
    for object in objects {
        if let Err(error) = object.remove_object(&context.storage, &context.cancel) {
            left.push(format!("{}: {error}", object.open(&context.storage).name()));
        }
    }
    ensure!(
        left.is_empty(),
        "objects of the study are left; remove them by hand: {}",
        left.join("; ")
    );
    Ok(())
}

fn name_of(kind: Kind, spec: &NetworkSpec) -> String {
    let NetworkSpec {
        algorithm, level, ..
    } = spec;
    match kind {
        Kind::ToNul => format!("{algorithm} {level} to NUL"),
        Kind::ToStore => format!("{algorithm} {level} to the store"),
        Kind::Uncompressed => "NONE to the store".into(),
    }
}

fn stored_mb_per_s(taken: &Timing) -> f64 {
    taken.stored_bytes as f64 / 1e6 / taken.wall_s.max(1e-9)
}

fn time(taken: &[Timing]) -> Option<f64> {
    median(taken.iter().map(|t| t.wall_s))
}

fn rate(taken: &[Timing]) -> Option<f64> {
    median(taken.iter().map(stored_mb_per_s))
}

/// The limit of a backup to the store, and what to do about it.
fn verdict(spec: &NetworkSpec, rounds: &[Vec<Timing>; 3]) -> Option<String> {
    let [produced, _, borne] = [rate(&rounds[0])?, rate(&rounds[1])?, rate(&rounds[2])?];
    let share = time(&rounds[0])? / time(&rounds[1])?.max(1e-9);
    let limit = match (produced < borne * NEAR, borne < produced * NEAR) {
        (true, _) => format!(
            "The CPUs are the limit: an algorithm that is quicker, or an accelerator, makes backups with {} quicker",
            spec.algorithm
        ),
        (_, true) => {
            "The way to the store is the limit: an algorithm or a level that stores less makes backups quicker, until \
             what it produces is less than what the way bears"
                .to_owned()
        }
        (false, false) => "CPUs and way are about equally quick".to_owned(),
    };
    let few = caution(spec.rounds).map_or(String::new(), |told| format!(" {told}"));
    Some(format!(
        "{limit}. {} {} makes {produced:.0} MB/s to be stored, and the way takes {borne:.0} MB/s (10^6). A backup to the \
         store runs at {:.0} % of the speed of one to NUL.{few}",
        spec.algorithm,
        spec.level,
        100.0 * share
    ))
}

fn section(spec: &NetworkSpec, rounds: &[Vec<Timing>; 3]) -> Section {
    let cpu_per_gb = |taken: &Timing| taken.cpu_s / (taken.stored_bytes.max(1) as f64 / 1e9);
    let row = |(kind, taken): (Kind, &Vec<Timing>)| {
        vec![
            name_of(kind, spec).into(),
            time(taken).into(),
            RoundResults::of(taken.iter().map(|t| t.wall_s))
                .map(|s| s.range(2))
                .into(),
            median(taken.iter().map(|t| t.stored_bytes as f64 / 1e6)).into(),
            rate(taken).into(),
            median(taken.iter().map(Timing::mb_per_s)).into(),
            median(taken.iter().map(|t| t.cpu_s)).into(),
            median(taken.iter().map(cpu_per_gb)).into(),
        ]
    };
    let rates = |title: &str, value: &dyn Fn(&Vec<Timing>) -> Option<f64>| {
        let names = KINDS.map(|kind| name_of(kind, spec)).to_vec();
        let series = vec![Series::new(title, rounds.iter().map(value).collect())];
        Chart::bars(title, "Backup", names, Axis::new(title, "MB/s"), series)
    };
    Section {
        heading: spec.name.clone(),
        prose: vec![format!(
            "{}, {}, medians of {}, alternating. Stored MB are 10^6 bytes as the store has them; throughput is SQL \
             Server's figure, 2^20 bytes of the database per second. CPU time is this program's. The third row is what \
             the way bears, unless the source cannot be read as quickly.",
            spec.name,
            counted(spec.stripes, "stripe"),
            counted(spec.rounds, "round")
        )],
        table: Some(Table {
            columns: vec![
                Column::text("Backup"),
                Column::number("Elapsed", "s", 2),
                Column::text("min–max"),
                Column::number("Stored", "MB", 1),
                Column::number("Stored rate", "MB/s", 0),
                Column::number("Throughput", "MB/s", 0),
                Column::number("CPU time", "s", 2),
                Column::number("CPU time", "s/GB stored", 2),
            ],
            row_values: KINDS.into_iter().zip(rounds).map(row).collect(),
        }),
        charts: vec![
            rates("Stored rate", &|taken| rate(taken)),
            rates("Throughput", &|taken| {
                median(taken.iter().map(Timing::mb_per_s))
            }),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::tests::made_up;

    fn spec(prefixes: &[&str]) -> NetworkSpec {
        NetworkSpec {
            name: "x".into(),
            source: SourceSpec::Files(Vec::new()),
            prefixes: prefixes.iter().map(ToString::to_string).collect(),
            stripes: 3,
            algorithm: Algorithm::Lz4,
            level: Level::Low,
            rounds: 2,
        }
    }

    fn timed(wall_s: f64, stored_bytes: u64) -> Vec<Timing> {
        let one = Timing {
            cpu_s: 1.0,
            plain_bytes: 400_000_000,
            ..made_up(wall_s, stored_bytes)
        };
        vec![one; 2]
    }

    #[test]
    fn the_smaller_rate_is_the_limit() {
        let quick_way = [
            timed(1.0, 200_000_000),
            timed(1.1, 200_000_000),
            timed(1.0, 400_000_000),
        ];
        let said = verdict(&spec(&["s3://b/p"]), &quick_way).unwrap();
        assert!(said.starts_with("The CPUs are the limit"), "{said}");
        assert!(
            said.contains("200 MB/s to be stored, and the way takes 400 MB/s"),
            "{said}"
        );
        assert!(said.contains("91 % of the speed"), "{said}");
        assert!(
            said.ends_with("Only 2 rounds, so chance may decide."),
            "{said}"
        );
        let slow_way = [
            timed(1.0, 200_000_000),
            timed(4.0, 200_000_000),
            timed(8.0, 400_000_000),
        ];
        let said = verdict(&spec(&["s3://b/p"]), &slow_way).unwrap();
        assert!(
            said.starts_with("The way to the store is the limit"),
            "{said}"
        );
        let alike = [
            timed(1.0, 200_000_000),
            timed(1.0, 200_000_000),
            timed(2.0, 400_000_000),
        ];
        let said = verdict(&spec(&["s3://b/p"]), &alike).unwrap();
        assert!(
            said.starts_with("CPUs and way are about equally quick"),
            "{said}"
        );
    }

    #[test]
    fn objects_lie_below_the_addresses_in_turn_and_a_path_is_refused() {
        let found = objects(&spec(&["s3://b/p/", "az://c/q"])).unwrap();
        let names: Vec<String> = found.iter().map(|d| format!("{d:?}")).collect();
        assert_eq!(found.len(), 3);
        assert!(names[0].contains("s3://b/p/longshore-lab-") && names[0].contains("/1.bak"));
        assert!(names[1].contains("az://c/q/longshore-lab-") && names[2].contains("/3.bak"));
        assert!(objects(&spec(&["/srv/backup"])).is_err());
        assert!(objects(&spec(&[])).is_err());
    }
}
