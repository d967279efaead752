//! The tools with which figures are made: samples, directories, rounds, and what was measured before.
//!
//! Invariants
//! - A study that several figures show runs once for all of them.
//! - Samples are kept in the working directory; stripes are removed after each backup.
//! - A doubt about emulated devices belongs to the study whose backups they had, and to no other.
//!
//! Leaves to others: which figure needs what (`papers`).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use longshore_codec::Algorithm;
use longshore_pipeline::{RunContext, SourceSpec};

use super::measured::OurValues;
use crate::paced::{EmulatedVolumes, PacedStorage};
use crate::sample::SampleKind;
use crate::stock;
use crate::volumes::TargetVolumes;

/// The settings of all figures.
#[derive(Debug, Clone)]
pub struct FiguresMade {
    /// Keeps samples.
    pub work: PathBuf,
    /// For stripes, in turn; at least one. One for each disk.
    pub dirs: Vec<PathBuf>,
    /// Of each sample.
    pub sample_bytes: u64,
    /// Of each backup, alternating; at least 1.
    pub rounds: usize,
    /// Fewer points: for tests and trials.
    pub quick: bool,
    /// This program, which puts load on databases as a process of its own.
    pub program: PathBuf,
    /// Of a load, each phase.
    pub phase: Duration,
    /// The devices of the figures that [`emulates`] names; `None`: the real ones.
    pub emulated: Option<EmulatedVolumes>,
}

/// A figure can be made on emulated devices: those of the note about layouts.
pub fn emulates(id: &str) -> bool {
    id.starts_with("S3.")
}

/// The settings that have an effect on a figure, besides `work` and `quick`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureTakes {
    pub size: bool,
    pub rounds: bool,
    pub phase: bool,
    pub dirs: bool,
}

/// The settings of the figure of this name: models and facts of the machine need no sample, and only loads have phases.
pub fn takes(id: &str) -> FigureTakes {
    let is_modelled = id.starts_with("S4.");
    let is_of_facts = matches!(id, "S0.T2" | "S0.T3");
    FigureTakes {
        size: !is_modelled && id != "S0.T2",
        rounds: !is_modelled && !is_of_facts,
        phase: matches!(id, "S0.F6" | "S0.F7"),
        dirs: !is_modelled,
    }
}

/// The tools of every figure.
pub struct Workbench<'a> {
    pub context: &'a RunContext,
    pub spec: &'a FiguresMade,
    pub on_step: &'a dyn Fn(&str),
    kept: Rc<RefCell<BTreeMap<&'static str, OurValues>>>,
    /// The storage of `context`, if it has devices.
    paced: Option<PacedStorage>,
    devices: OnceCell<(RunContext, PacedStorage)>,
}

impl<'a> Workbench<'a> {
    pub fn new(
        context: &'a RunContext,
        spec: &'a FiguresMade,
        on_step: &'a dyn Fn(&str),
    ) -> Workbench<'a> {
        Workbench {
            context,
            spec,
            on_step,
            kept: Rc::default(),
            paced: None,
            devices: OnceCell::new(),
        }
    }

    /// A context with the devices that the settings state, and its storage; `None`: they state none. The devices are the
    /// same for all figures.
    pub fn with_devices(&self) -> Result<Option<&(RunContext, PacedStorage)>> {
        let Some(rates) = &self.spec.emulated else {
            return Ok(None);
        };
        if let Some(made) = self.devices.get() {
            return Ok(Some(made));
        }
        let SourceSpec::Sqlite(source) = self.sample(SampleKind::Stae)? else {
            return Ok(None);
        };
        let (storage, clock) = (self.context.storage.clone(), &self.context.clock);
        let dirs = &self.spec.dirs;
        let paced = PacedStorage::new(storage, clock, rates, dirs, &[source])?;
        let context = RunContext {
            storage: Arc::new(paced.clone()),
            ..self.context.clone()
        };
        Ok(Some(self.devices.get_or_init(|| (context, paced))))
    }

    /// The same tools over a context with emulated devices, those of its storage.
    pub fn over<'b>(&'b self, (context, paced): &'b (RunContext, PacedStorage)) -> Workbench<'b> {
        Workbench {
            context,
            spec: self.spec,
            on_step: self.on_step,
            kept: self.kept.clone(),
            paced: Some(paced.clone()),
            devices: OnceCell::new(),
        }
    }

    /// The findings of a study that several figures show.
    pub fn once(
        &self,
        name: &'static str,
        measure: impl FnOnce() -> Result<OurValues>,
    ) -> Result<OurValues> {
        if let Some(kept) = self.kept.borrow().get(name) {
            return Ok(kept.clone());
        }
        let found = measure()?;
        self.kept.borrow_mut().insert(name, found.clone());
        Ok(found)
    }

    pub fn sample(&self, kind: SampleKind) -> Result<SourceSpec> {
        let storage = &*self.context.storage;
        let spec = self.spec;
        let path = stock::sample_in(storage, &spec.work, kind, spec.sample_bytes, &|_| {})?;
        Ok(SourceSpec::Sqlite(path))
    }

    /// The volumes that the directories for stripes stand for.
    pub fn volumes(&self) -> Result<TargetVolumes> {
        let emulated = self.spec.emulated.filter(|_| self.paced.is_some());
        TargetVolumes::of(&*self.context.storage, &self.spec.dirs, emulated)
    }

    /// A sentence for the headline if the real storage was slower than emulated devices since the last call.
    pub fn doubt(&self) -> Option<String> {
        self.paced.as_ref().and_then(PacedStorage::take_doubt)
    }

    /// Whether an accelerator can compress QAT_DEFLATE.
    pub fn has_hardware(&self) -> bool {
        let mut accelerators = self.context.accelerators.iter();
        accelerators.any(|a| a.serves(Algorithm::QatDeflate))
    }
}
