//! How near Longshore comes to the machine's limits: the measurements that `make bench` records.
//!
//! The yardstick is measured, not assumed: codec, page-cache read and checksums, each by itself on one core ([`bare`]),
//! or all cores and the device at once ([`beside`]), in the same interleaved rounds as the pipeline ([`rounds`]), over
//! the same files. Memory and ceilings are measured from outside ([`outside`]).
//!
//! Invariants
//! - Medians are compared, and shown with their spread.
//! - Absolute figures belong to the machine, which the report describes; shares of the limit can be compared between
//!   machines.
//!
//! Leaves to others: the pipeline that is measured, and the form of the report (`report`).

mod bare;
mod beside;
mod corpus;
mod findings;
mod goals;
mod outside;
mod part;
mod rounds;

use std::path::PathBuf;

use anyhow::Result;
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{BackupRequest, DeviceSpec, Request, RunContext, SourceSpec};

use crate::platform;
use crate::report::{Report, counted};
use crate::scratch::Scratch;
use crate::timing::{Timing, take};
use corpus::Corpus;
use findings::Findings;
use outside::Outside;
use rounds::{Bench, Round};

/// The settings of the bench.
#[derive(Debug, Clone)]
pub struct BenchSpec {
    pub source: SourceSpec,
    /// For stripes and restored files: twice the source's size must be free.
    pub dir: PathBuf,
    /// Interleaved rounds; 5 or more for a record.
    pub rounds: usize,
    /// Stripe counts at which QAT_DEFLATE and MS_XPRESS are compared.
    pub stripes: Vec<usize>,
    /// Names and sources whose backups and restores are measured for memory only.
    pub large: Vec<(String, SourceSpec)>,
    /// The program whose memory and ceilings are measured from outside.
    pub program: PathBuf,
}

/// Runs everything. Calls `on_step` with one line for each step.
pub fn bench(context: &RunContext, spec: &BenchSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let scratch = Scratch::new(&*context.storage, std::slice::from_ref(&spec.dir))?;
    let mut platform = platform::record(
        context,
        &platform::places(std::slice::from_ref(&spec.dir), [&spec.source]),
    );
    let corpus = Corpus::open(&*context.storage, &spec.source)?;
    platform.push((
        "Source".into(),
        format!(
            "{}, {:.1} MB (10^6) in {}",
            platform::name_of(&spec.source),
            corpus.bytes as f64 / 1e6,
            counted(corpus.files(), "file")
        ),
    ));
    let clock = &*context.clock;
    let outside = Outside {
        clock,
        program: &spec.program,
        scratch: &scratch,
    };
    corpus.warm(clock)?;
    let mut peaks = outside.peaks(&spec.source, on_step)?;
    for (name, source) in &spec.large {
        on_step(&format!("memory: {name}"));
        peaks.extend(outside.peak(source, name, "QAT_DEFLATE", 1)?);
    }
    let ceilings = outside.ceilings(&spec.source, corpus.bytes, on_step)?;
    let bench = Bench {
        context,
        source: &spec.source,
        corpus: &corpus,
        scratch: &scratch,
    };
    let count = spec.rounds.max(1);
    let rounds: Result<Vec<Round>> = (1..=count)
        .map(|n| bench.round(&|step| on_step(&format!("round {n} of {count}: {step}"))))
        .collect();
    let rounds = rounds?;
    let mut against = Vec::new();
    for &stripes in &spec.stripes {
        on_step(&format!(
            "MS_XPRESS and QAT_DEFLATE with {}",
            counted(stripes, "stripe")
        ));
        let one = |algorithm| {
            let taken = bench.backup_warm(algorithm, scratch.stripes(stripes))?;
            scratch.clear()?;
            anyhow::Ok(taken)
        };
        let xpress = one(Algorithm::MsXpress)?;
        against.push((stripes, xpress, one(Algorithm::QatDeflate)?));
    }
    let levels = levels(context, spec, on_step)?;
    let findings = Findings {
        cores: longshore_facts::cores(),
        bytes: corpus.bytes,
        files: corpus.files(),
        peaks,
        ceilings,
        rounds,
        against,
        levels,
        peers: outside::peers(clock, &corpus, on_step),
    };
    Ok(goals::report(platform, &findings))
}

/// Measures whether some level of DEFLATE is both faster and smaller than MS_XPRESS.
fn levels(
    context: &RunContext,
    spec: &BenchSpec,
    on_step: &dyn Fn(&str),
) -> Result<Vec<(String, Timing)>> {
    let deflate = [1, 2, 3, 4, 6].map(|n| (Algorithm::QatDeflate, Level::Number(n)));
    let candidates = std::iter::once((Algorithm::MsXpress, Level::Low)).chain(deflate);
    let mut levels = Vec::new();
    for (algorithm, level) in candidates {
        on_step(&format!("{algorithm} {level} to NUL"));
        let mut request = BackupRequest::new(spec.source.clone(), vec![DeviceSpec::Nul]);
        (request.algorithm, request.level) = (algorithm, level);
        let taken = take(context, &Request::Backup(request))?;
        levels.push((format!("{algorithm} {level}"), taken));
    }
    Ok(levels)
}
