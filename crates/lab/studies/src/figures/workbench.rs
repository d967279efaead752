//! The tools with which figures are made: samples, directories, rounds, and what was measured before.
//!
//! Invariants
//! - A study that several figures show runs once for all of them.
//! - Samples are kept in the working directory; stripes are removed after each backup.
//!
//! Leaves to others: which figure needs what (`papers`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use longshore_codec::Algorithm;
use longshore_pipeline::{RunContext, SourceSpec};

use super::measured::OurValues;
use crate::sample::SampleKind;
use crate::scratch::Scratch;
use crate::stock;

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
}

/// The tools of every figure.
pub struct Workbench<'a> {
    pub context: &'a RunContext,
    pub spec: &'a FiguresMade,
    pub on_step: &'a dyn Fn(&str),
    kept: RefCell<BTreeMap<&'static str, OurValues>>,
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
            kept: RefCell::default(),
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

    /// How many different directories there are for stripes.
    pub fn volumes(&self) -> Result<usize> {
        let (storage, dirs) = (&*self.context.storage, &self.spec.dirs);
        // Directories that do not exist yet are made here, as they are for each backup.
        let _made = Scratch::new(storage, dirs)?;
        let places: BTreeSet<PathBuf> = dirs
            .iter()
            .map(|dir| storage.canonical(dir))
            .collect::<Result<_, _>>()?;
        Ok(places.len())
    }

    /// Whether an accelerator can compress QAT_DEFLATE.
    pub fn has_hardware(&self) -> bool {
        let mut accelerators = self.context.accelerators.iter();
        accelerators.any(|a| a.serves(Algorithm::QatDeflate))
    }
}
