//! The contenders of a comparison: algorithms and levels, in software and with each accelerator that is here.
//!
//! Invariants
//! - A contender is named after the engine that really compressed; less than nine tenths by an accelerator is no hardware.
//! - A contender in software has no accelerator, one in hardware or hybrid has exactly one.
//!
//! Leaves to others: making the backups (`mod.rs`), and showing them (`shown.rs`).

use std::sync::Arc;

use anyhow::Result;
use longshore_accel::EngineState;
use longshore_accel::dispatch::InService;
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{BackupRequest, DeviceSpec, OffloadMode, Request, RunContext, SourceSpec};

use crate::labels::{by_engine, counts_as};
use crate::spread::{RoundResults, median};
use crate::timing::{Timing, take};

/// The compared algorithms and levels; MS_XPRESS is the baseline.
const SOFTWARE: [(Algorithm, Level); 10] = [
    (Algorithm::None, Level::Low),
    BASELINE,
    (Algorithm::QatDeflate, Level::Low),
    (Algorithm::QatDeflate, Level::Medium),
    // The level designed to be both faster and smaller than the baseline.
    (Algorithm::QatDeflate, Level::Number(4)),
    (Algorithm::QatDeflate, Level::High),
    (Algorithm::Zstd, Level::Low),
    (Algorithm::Zstd, Level::Medium),
    (Algorithm::Lz4, Level::Low),
    (Algorithm::Pages, Level::Low),
];

const BASELINE: (Algorithm, Level) = (Algorithm::MsXpress, Level::Low);

/// A contender with its backups of one database.
#[derive(Clone)]
pub struct Contender {
    pub algorithm: Algorithm,
    level: Level,
    mode: OffloadMode,
    accelerator: Option<Arc<InService>>,
    /// Another accelerator has the same algorithm, so the name needs its own.
    is_one_of_several: bool,
    /// One for each round.
    pub taken: Vec<Timing>,
}

impl Contender {
    fn software(&(algorithm, level): &(Algorithm, Level)) -> Contender {
        Contender {
            algorithm,
            level,
            mode: OffloadMode::Software,
            accelerator: None,
            is_one_of_several: false,
            taken: Vec::new(),
        }
    }

    /// All of them: those in software, then hardware and hybrid for each accelerator that serves.
    pub fn all(context: &RunContext) -> Vec<Contender> {
        let mut all: Vec<Contender> = SOFTWARE.iter().map(Contender::software).collect();
        let serving: Vec<_> = context.accelerators.iter().filter(|a| serves(a)).collect();
        for one in &serving {
            let algorithm = one.engine().caps().algorithm;
            let alike = serving.iter().filter(|a| a.serves(algorithm));
            let is_one_of_several = alike.count() > 1;
            for mode in [OffloadMode::Hardware, OffloadMode::Hybrid] {
                all.push(Contender {
                    mode,
                    accelerator: Some((*one).clone()),
                    is_one_of_several,
                    ..Contender::software(&(algorithm, Level::Low))
                });
            }
        }
        all
    }

    /// Whether each backup was compressed by the engine that was asked for.
    pub fn counts(&self) -> bool {
        self.taken.iter().all(|taken| counts_as(self.mode, taken))
    }

    /// Named after the engine that compressed.
    pub fn name(&self) -> String {
        let software = match self.algorithm {
            Algorithm::None => self.algorithm.to_string(),
            algorithm => format!("{algorithm} {}", self.level),
        };
        let name = by_engine(&software, self.mode, &self.taken);
        match &self.accelerator {
            Some(one) if self.is_one_of_several => {
                format!("{name} ({})", one.engine().caps().name)
            }
            _ => name,
        }
    }

    /// Makes one backup and keeps its figures.
    pub fn make(
        &mut self,
        context: &RunContext,
        source: &SourceSpec,
        devices: Vec<DeviceSpec>,
    ) -> Result<&Timing> {
        let mut request = BackupRequest::new(source.clone(), devices);
        (request.algorithm, request.level) = (self.algorithm, self.level);
        request.offload.mode = self.mode;
        let own = RunContext {
            accelerators: self.accelerator.iter().cloned().collect(),
            ..context.clone()
        };
        let taken = take(&own, &Request::Backup(request))?;
        let n = self.taken.len();
        self.taken.push(taken);
        Ok(&self.taken[n])
    }

    pub fn median(&self, value: impl Fn(&Timing) -> f64) -> Option<f64> {
        median(self.taken.iter().map(value))
    }

    pub fn time(&self) -> Option<f64> {
        self.median(|t| t.wall_s)
    }

    pub fn elapsed(&self) -> Option<RoundResults> {
        RoundResults::of(self.taken.iter().map(|t| t.wall_s))
    }

    /// Of the first backup; with one engine all are alike.
    pub fn stored_bytes(&self) -> Option<u64> {
        Some(self.taken.first()?.stored_bytes)
    }

    /// Whether it asks for an accelerator.
    pub fn is_accelerated(&self) -> bool {
        self.accelerator.is_some()
    }

    fn is_baseline(&self) -> bool {
        (self.algorithm, self.level) == BASELINE && self.mode == OffloadMode::Software
    }
}

/// The baseline's backups.
pub fn baseline(all: &[Contender]) -> Option<&Contender> {
    all.iter().find(|one| one.is_baseline())
}

/// How many times faster than the baseline.
pub fn speed_up(one: &Contender, all: &[Contender]) -> Option<f64> {
    Some(baseline(all)?.time()? / one.time()?.max(1e-9))
}

fn serves(one: &InService) -> bool {
    !matches!(one.state().0, EngineState::Absent | EngineState::Off)
}

/// Makes a backup to NUL with each accelerator, which is not counted: it is tested meanwhile, and may turn out not to serve.
pub fn try_accelerators(context: &RunContext, source: &SourceSpec) -> Result<()> {
    for one in context.accelerators.iter().filter(|one| serves(one)) {
        let mut trial = Contender {
            mode: OffloadMode::Hardware,
            accelerator: Some(one.clone()),
            ..Contender::software(&(one.engine().caps().algorithm, Level::Low))
        };
        trial.make(context, source, vec![DeviceSpec::Nul])?;
    }
    Ok(())
}
