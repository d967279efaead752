//! Whole backups, as users make them, with the GPU, without it, and with one that returns wrong results.
//!
//! Invariants
//! - A backup that the GPU made is restored by software alone and compared with its source.
//! - Only the stripe that the user asked for stays; everything else is in the scratch directory.
//!
//! Leaves to others: batches without a pipeline (`speed.rs`), the engine's own correctness (`trust.rs`), and the
//! verdict (`mod.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use longshore_accel::dispatch::{InService, Verify};
use longshore_accel::nvcomp::Options;
use longshore_accel::{Caps, Engine, Health, Job, Outcome};
use longshore_io::{OpenHow, Via};
use longshore_pipeline::{
    BackupRequest, DeviceSpec, Offload, OffloadMode, Request, RestoreRequest, RunContext,
    SourceSpec,
};

use super::content::SampleContent;
use super::trust;
use crate::scratch::Scratch;
use crate::timing::{Timing, take};

/// Files to back up, all with the same content, and a place for stripes and restored files.
pub struct Yard {
    context: RunContext,
    scratch: Scratch,
    content: SampleContent,
    source: PathBuf,
    files: usize,
}

impl Yard {
    /// Writes `files` files into a new directory in `work`. The page cache holds them afterwards.
    pub fn new(
        context: RunContext,
        work: &Path,
        content: SampleContent,
        files: usize,
    ) -> Result<Yard> {
        let scratch = Scratch::new(&*context.storage, &[work.to_owned()])?;
        let source = scratch.path("source");
        let dir = context.storage.create_dir_all(&source)?;
        for n in 0..files {
            let file = dir.open(&name(n), OpenHow::CreateNew)?;
            let mut offset = 0;
            for buffer in &content.buffers {
                file.write_all_at(buffer, offset, Via::Cache)?;
                offset += buffer.len() as u64;
            }
        }
        Ok(Yard {
            context,
            scratch,
            content,
            source,
            files,
        })
    }

    fn backup(
        &self,
        engine: Option<Arc<dyn Engine>>,
        mode: OffloadMode,
        verify: Verify,
        devices: Vec<DeviceSpec>,
    ) -> Result<Timing> {
        self.backup_of(&self.source, engine, mode, verify, devices)
    }

    fn backup_of(
        &self,
        source: &Path,
        engine: Option<Arc<dyn Engine>>,
        mode: OffloadMode,
        verify: Verify,
        devices: Vec<DeviceSpec>,
    ) -> Result<Timing> {
        let context = RunContext {
            keyring: Default::default(),
            accelerators: engine.into_iter().map(InService::new).collect(),
            ..self.context.clone()
        };
        let source = SourceSpec::Files(vec![source.to_owned()]);
        let mut request = BackupRequest::new(source, devices);
        request.offload = Offload {
            mode,
            verify,
            ..Offload::default()
        };
        take(&context, &Request::Backup(request))
    }

    /// A backup to NUL, with that many stripes.
    pub fn to_nul(&self, options: Options, mode: OffloadMode, stripes: usize) -> Result<Timing> {
        let engine: Option<Arc<dyn Engine>> = match mode {
            OffloadMode::Software => None,
            _ => Some(trust::ready(options)?),
        };
        self.backup(engine, mode, Verify::Sample, vec![DeviceSpec::Nul; stripes])
    }

    /// A backup to files with the GPU only, a restore with software only, and a comparison. Returns the findings in
    /// words.
    pub fn there_and_back(&self, options: Options) -> Result<String> {
        let engine = trust::ready(options)?;
        let taken = self.round_trip(engine, Verify::Sample)?;
        let share = taken.accelerator_share();
        ensure!(
            share > 0.5,
            "the GPU made only {:.0} % of it",
            100.0 * share
        );
        Ok(format!(
            "{:.0} % by the GPU, restored in software bit for bit",
            100.0 * share
        ))
    }

    /// A backup of one file to one stripe, which stays: `gzip -dc` of it must give the file.
    pub fn stripe(&self, options: Options, path: &Path) -> Result<String> {
        let engine = trust::ready(options)?;
        // The parent of a bare name is empty: the working directory.
        let dir = path.parent().map(|dir| Path::new(".").join(dir));
        if let (Some(dir), Some(last)) = (dir, path.file_name())
            && self.context.storage.stat(path).is_ok()
        {
            self.context
                .storage
                .dir(&dir)?
                .remove_file(Path::new(last))?;
        }
        let devices = vec![DeviceSpec::File(path.to_owned())];
        let source = self.source.join(name(0));
        let hardware = OffloadMode::Hardware;
        let taken = self.backup_of(&source, Some(engine), hardware, Verify::Sample, devices)?;
        let share = 100.0 * taken.accelerator_share();
        Ok(format!(
            "{} bytes, {share:.0} % by the GPU",
            taken.stored_bytes
        ))
    }

    /// The same with an engine that damages its results now and then.
    pub fn with_a_liar(&self, options: Options) -> Result<String> {
        let liar = Liar {
            honest: trust::ready(options)?,
            jobs: AtomicU64::new(0),
        };
        let taken = self.round_trip(Arc::new(liar), Verify::Full)?;
        let used = taken.engines.iter().find(|e| e.is_accelerator);
        let used = used.context("the engine was not used")?;
        ensure!(used.verify_failures > 0, "no damage was detected");
        Ok(format!(
            "{} damaged blocks noticed and done again; the engine ended {}; restored bit for bit",
            used.verify_failures, used.state
        ))
    }

    fn round_trip(&self, engine: Arc<dyn Engine>, verify: Verify) -> Result<Timing> {
        let devices: Vec<DeviceSpec> = (1..=2)
            .map(|n| DeviceSpec::File(self.scratch.path(&format!("{n}.bak"))))
            .collect();
        let taken = self.backup(Some(engine), OffloadMode::Hardware, verify, devices.clone())?;
        let target = self.scratch.path("restored");
        let restore = RestoreRequest::new(devices, target.clone());
        take(&self.context, &Request::Restore(restore))?;
        self.compare(&target)?;
        let work = self.context.storage.dir(&self.scratch.path(""))?;
        for name in ["1.bak", "2.bak", "restored"] {
            crate::scratch::remove_all(&*work, Path::new(name))?;
        }
        Ok(taken)
    }

    /// Compares every byte of every restored file.
    fn compare(&self, target: &Path) -> Result<()> {
        let dir = find_dir(&self.context, target, &self.source)?;
        let dir = self.context.storage.dir(&dir)?;
        for n in 0..self.files {
            let file = dir.open(&name(n), OpenHow::Read)?;
            let mut offset = 0;
            for expected in &self.content.buffers {
                let mut found = vec![0; expected.len()];
                file.read_full_at(&mut found, offset, Via::Cache)?;
                ensure!(
                    found[..] == expected[..],
                    "file {n} differs near byte {offset}"
                );
                offset += found.len() as u64;
            }
        }
        Ok(())
    }
}

fn name(n: usize) -> PathBuf {
    format!("{n}.db").into()
}

/// The directory below `target` into which a restore puts the files of `source`: below its last name, or directly.
fn find_dir(context: &RunContext, target: &Path, source: &Path) -> Result<PathBuf> {
    let last = source.file_name().context("the source has a name")?;
    let below = target.join(last);
    match context.storage.stat(&below) {
        Ok(_) => Ok(below),
        Err(_) => Ok(target.to_owned()),
    }
}

/// Flips a bit in one result of seven.
struct Liar {
    honest: Arc<dyn Engine>,
    jobs: AtomicU64,
}

impl Engine for Liar {
    fn caps(&self) -> &Caps {
        self.honest.caps()
    }

    fn health(&self) -> Health {
        self.honest.health()
    }

    fn run(&self, batch: Vec<Job>) -> Vec<Job> {
        let mut done = self.honest.run(batch);
        for job in &mut done {
            let lies = self.jobs.fetch_add(1, Ordering::Relaxed) % 7 == 3;
            if let (true, Outcome::Done { len }) = (lies, &job.outcome) {
                let middle = len / 2;
                job.output_mut()[middle] ^= 0x10;
            }
        }
        done
    }

    fn self_test(&self) -> Health {
        self.honest.self_test()
    }
}
