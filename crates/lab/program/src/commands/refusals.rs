//! Options that have no effect together, or none on what is asked for: each pair is refused by name.
//!
//! Invariants
//! - Nothing is built or measured before all pairs of a command were looked at.
//! - A refusal names the option that would do nothing, why, and what to run instead.
//!
//! Leaves to others: pairs that the parser refuses (`options`), and single values (`values.rs` of `longshore-terminal`).

use longshore_codec::Algorithm;
use longshore_studies::figures;
use longshore_terminal::failure::Failure;

use crate::options::{
    Bench, Compare, FigureOptions, LoadDatabase, LoadName, Network, OffloadStudy, Oltp,
    PUBLISHED_PAIR, SampleOptions, Sweep,
};

type Refused = Result<(), Failure>;

fn refuse_if(is_so: bool, what: &str, next: &str) -> Refused {
    match is_so {
        true => Err(Failure::usage(what, next)),
        false => Ok(()),
    }
}

/// A sample that nobody makes needs no place. The study may use the place for something else.
fn place(stocked: &SampleOptions, is_used: bool) -> Refused {
    refuse_if(
        !stocked.source.is_empty() && stocked.work.is_some() && !is_used,
        "--work keeps samples, and with --source none is made",
        "leave --work out, or leave --source out for a sample",
    )
}

pub fn sweep(options: &Sweep) -> Refused {
    refuse_if(
        options.devices.emulate.is_some() && !options.layouts,
        "--emulate is for the sweep of layouts",
        "add --layouts, or leave --emulate out",
    )?;
    refuse_if(
        options.algorithm.is_some() && !options.layouts && !options.buffers,
        "the study of stripes has its own algorithms, so --algorithm has no effect",
        "leave --algorithm out, or add --buffers or --layouts",
    )?;
    refuse_if(
        options.buffers && options.dir.len() > 1,
        "--buffers writes one file, so a second --dir has no effect",
        "give one --dir, or add --layouts in place of --buffers for several",
    )?;
    place(&options.stocked, options.buffers && options.dir.is_empty())
}

pub fn compare(options: &Compare) -> Refused {
    place(&options.stocked, false)
}

pub fn network(options: &Network) -> Refused {
    refuse_if(
        options.algorithm == Algorithm::None,
        "--algorithm is compared with NONE, so NONE itself would be compared with nothing",
        "give --algorithm QAT_DEFLATE, ZSTD or LZ4, or leave it out",
    )?;
    place(&options.stocked, false)
}

pub fn offload(options: &OffloadStudy) -> Refused {
    place(&options.stocked, false)
}

pub fn bench(options: &Bench) -> Refused {
    place(&options.stocked, options.dir.is_none() || options.large)
}

pub fn oltp(options: &Oltp) -> Refused {
    let is_pgbench = matches!(options.database, Some(LoadDatabase::Pgbench));
    refuse_if(
        options.think > 0 && is_pgbench,
        "pgbench's load has no pauses, so --think has no effect",
        "leave out --think, or use --database postgres",
    )?;
    refuse_if(
        options.load.is_some() && is_pgbench,
        "pgbench has a load of its own, so --load has no effect",
        "leave out --load, or use --database postgres",
    )?;
    let has_warehouses = !is_pgbench && !matches!(options.load, Some(LoadName::Stae));
    refuse_if(
        options.warehouses.is_some() && !has_warehouses,
        "this load has no warehouses, so --warehouses has no effect",
        "give --size, or use --database postgres --load tprocc",
    )?;
    refuse_if(
        !options.peer.is_empty() && matches!(options.database, Some(LoadDatabase::Sqlite)),
        "other programs back up PostgreSQL, so --peer has no effect on --database sqlite",
        "use --database postgres or pgbench, or leave out --peer",
    )
}

/// Of the figure of this name.
pub fn figure(id: &str, options: &FigureOptions) -> Refused {
    refuse_if(
        options.devices.emulate.is_some() && !figures::emulates(id),
        &format!("{id} is not made on emulated devices"),
        "leave out --emulate, which is for the figures of S3",
    )?;
    let takes = figures::takes(id);
    for (option, is_given, is_taken, why) in [
        (
            "--size",
            options.size.is_some(),
            takes.size,
            "it has no sample",
        ),
        (
            "--rounds",
            options.rounds.is_some(),
            takes.rounds,
            "it has no rounds",
        ),
        (
            "--phase",
            options.phase.is_some(),
            takes.phase,
            "only S0.F6 and S0.F7 have phases under load",
        ),
        (
            "--work",
            options.work.is_some(),
            takes.size || takes.dirs,
            "it is modelled, and keeps nothing",
        ),
        (
            "--dir",
            !options.dir.is_empty(),
            takes.dirs,
            "it has no stripes",
        ),
    ] {
        refuse_if(
            is_given && !is_taken,
            &format!("{option} has no effect on {id}: {why}"),
            &format!("leave out {option}: `longshore lab figure {id}`"),
        )?;
    }
    Ok(())
}

/// Of a pair of devices for which models may stand.
pub fn pair(pair: Option<&str>, has_models: [bool; 2]) -> Refused {
    refuse_if(
        pair.is_some_and(|pair| pair != PUBLISHED_PAIR) && has_models == [true, true],
        "both devices have a model, so --pair has no effect",
        "leave out --pair, or one of --fast-model and --slow-model",
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::{Cli, Command, Lab, Study};

    /// The refusal of a command line, as far as options are looked at: by the parser, or here.
    fn refused(line: &str) -> Option<String> {
        let words = ["longshore-lab", "lab"].into_iter().chain(line.split(' '));
        let cli = match Cli::try_parse_from(words) {
            Ok(cli) => cli,
            Err(error) => return Some(error.to_string()),
        };
        let Command::Lab(Lab { study }) = cli.command else {
            panic!("{line}");
        };
        let looked_at = match &study {
            Study::Sweep(options) => sweep(options),
            Study::Compare(options) => compare(options),
            Study::Network(options) => network(options),
            Study::Offload(options) => offload(options),
            Study::Bench(options) => bench(options),
            Study::Oltp(options) => oltp(options),
            Study::Figure(options) => figure(&options.id, &options.made),
            Study::CacheFigures(options) => {
                let has_models = options.models.paths().map(|path| path.is_some());
                pair(options.pair.as_deref(), has_models)
            }
            _ => Ok(()),
        };
        looked_at.err().map(|failure| failure.lines())
    }

    /// A command line, the option that would do nothing, and a part of the next step.
    const REFUSED: &[(&str, &str, &str)] = &[
        (
            "oltp --database pgbench --load tprocc",
            "--load",
            "leave out --load",
        ),
        (
            "oltp --database pgbench --load stae",
            "--load",
            "leave out --load",
        ),
        (
            "oltp --database pgbench --think 1",
            "--think",
            "leave out --think",
        ),
        (
            "oltp --database pgbench --warehouses 2",
            "--warehouses",
            "give --size",
        ),
        (
            "oltp --load stae --warehouses 2",
            "--warehouses",
            "--load tprocc",
        ),
        (
            "oltp --database sqlite --peer wal-g",
            "--peer",
            "use --database postgres",
        ),
        (
            "oltp --warehouses 2 --size 4M",
            "--size",
            "cannot be used with",
        ),
        ("sweep --buffers --dir a --dir b", "--dir", "give one --dir"),
        ("sweep --dir a --emulate 200M", "--emulate", "add --layouts"),
        ("sweep --dir a --algorithm ZSTD", "--algorithm", "--buffers"),
        (
            "sweep --dir a --source x --size 1G",
            "--size",
            "cannot be used with",
        ),
        (
            "sweep --dir a --source x --work w",
            "--work",
            "leave --work out",
        ),
        (
            "sweep --buffers --dir a --source x --work w",
            "--work",
            "leave --work out",
        ),
        (
            "compare --source x --size 1G",
            "--size",
            "cannot be used with",
        ),
        ("compare --source x --work w", "--work", "leave --work out"),
        (
            "network --to s3://b/p --algorithm NONE",
            "--algorithm",
            "ZSTD",
        ),
        (
            "network --to s3://b/p --source x --work w",
            "--work",
            "leave --work out",
        ),
        ("offload --source x --work w", "--work", "leave --work out"),
        (
            "bench --source x --dir d --work w",
            "--work",
            "leave --work out",
        ),
        (
            "figure S0.F5 --phase 9",
            "--phase",
            "`longshore lab figure S0.F5`",
        ),
        (
            "figure S4.F1 --size 1G",
            "--size",
            "`longshore lab figure S4.F1`",
        ),
        (
            "figure S0.T3 --rounds 2",
            "--rounds",
            "`longshore lab figure S0.T3`",
        ),
        (
            "figure S4.F2 --dir a",
            "--dir",
            "`longshore lab figure S4.F2`",
        ),
        (
            "figure S4.F2 --work w",
            "--work",
            "`longshore lab figure S4.F2`",
        ),
        (
            "figure S0.F5 --emulate 200M",
            "emulated",
            "leave out --emulate",
        ),
        ("figures --list --size 1G", "--list", "cannot be used with"),
        ("figures --list --out o", "--list", "cannot be used with"),
        (
            "cache-figures --pair dram/sata-ssd --fast-model a --slow-model b",
            "--pair",
            "leave out --pair",
        ),
    ];

    #[test]
    fn options_without_an_effect_are_refused_by_name_with_what_to_run_instead() {
        for (line, option, next) in REFUSED {
            let told = refused(line).unwrap_or_else(|| panic!("{line} is taken"));
            assert!(
                told.contains(option) && told.contains(next),
                "{line}: {told}"
            );
        }
    }

    #[test]
    fn options_with_an_effect_are_taken() {
        for line in [
            "oltp --load tprocc --warehouses 2",
            "oltp --database postgres --load stae --think 5 --peer wal-g",
            "oltp --database pgbench --size 1G --peer pgbackrest",
            "sweep --buffers --source x --work w",
            "sweep --buffers --dir a --algorithm ZSTD --size 1G --work w",
            "sweep --layouts --dir a --dir b --emulate 200M",
            "sweep --dir a --source x --quick",
            "compare --size 1G --work w",
            "bench --source x --work w",
            "bench --source x --dir d --work w --large",
            "figure S0.F6 --phase 9 --size 1G --rounds 2 --dir a",
            "figure S0.T2 --dir a",
            "figures --list",
            "cache-figures --pair dram/sata-ssd --fast-model a",
            "cache-figures --fast-model a --slow-model b",
        ] {
            assert_eq!(refused(line), None, "{line}");
        }
    }
}
