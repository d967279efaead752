//! The study of 37 backups: algorithms and stripe counts of the published study, on this machine.
//!
//! Invariants
//! - Backups are made in the published order, all of them in each round.
//! - The source leaves the page cache before each, and nothing that was written or removed before is unsettled.
//! - A row is named after the engine that really compressed, and a backup counts as hardware only if an accelerator
//!   compressed nine tenths of it.
//!
//! Leaves to others: the grid of buffers (`--buffers`), the sample, the report (`shown.rs`), and its forms.

use anyhow::{Result, bail};
use longshore_facts::Sensors;
use longshore_pipeline::{BackupRequest, DeviceSpec, Request, RunContext};

use super::backup::{HARDWARE, MS_XPRESS, NONE, SOFTWARE, StripedBackup, StripedKind, StripesSpec};
use super::shown::{Swept, report};
use crate::cold::ColdSource;
use crate::heat::{Cooling, sensors_of};
use crate::platform;
use crate::report::{Report, counted};
use crate::scratch::Scratch;
use crate::timing::{Timing, pause, take};

/// The published study's stripe counts.
pub const STRIPES: [usize; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

/// The common parts of all backups.
struct Sweep<'a> {
    context: &'a RunContext,
    spec: &'a StripesSpec,
    on_step: &'a dyn Fn(&str),
    scratch: Scratch,
    source: ColdSource,
    sensors: Sensors,
    cooling: Option<Cooling>,
    made: usize,
}

impl Sweep<'_> {
    fn request(&self, kind: StripedKind, devices: Vec<DeviceSpec>) -> Request {
        let mut request = BackupRequest::new(self.spec.source.clone(), devices);
        request.algorithm = kind.algorithm;
        request.offload.mode = kind.mode;
        request.tuning.buffer_bytes = Some(self.spec.buffer_bytes);
        Request::Backup(request)
    }

    /// Makes a backup with so many stripes, 0 to NUL, after pause and cooling, and removes it.
    fn backup(&mut self, kind: StripedKind, stripes: usize, count: usize) -> Result<Timing> {
        if self.made > 0 {
            pause(self.context, self.spec.pause);
        }
        self.made += 1;
        let (devices, target) = match stripes {
            0 => (vec![DeviceSpec::Nul], "to NUL".to_owned()),
            n => (
                self.scratch.stripes(n),
                format!("to {}", counted(n, "stripe")),
            ),
        };
        self.scratch.settle()?;
        self.source.drop_cached()?;
        if let Some(cooling) = &mut self.cooling {
            let sensors = &self.sensors;
            let cooled = cooling.wait(self.context, &|| sensors.read());
            if let Some(told) = cooled.text() {
                (self.on_step)(&told);
            }
        }
        let taken = take(self.context, &self.request(kind, devices))?;
        (self.on_step)(&format!(
            "{} of {count}: {} {target}: {:.2} s, {:.0} MB/s, ratio {:.2}",
            self.made,
            kind.name,
            taken.wall_s,
            taken.mb_per_s(),
            taken.ratio()
        ));
        self.scratch.clear()?;
        Ok(taken)
    }

    /// Sentences about cache, sensors and cooling.
    fn conditions(&self, taken: &[&Timing]) -> Vec<String> {
        let mut told = vec![self.source.told(taken.iter().copied())];
        told.push(match (self.sensors.has_cpu(), self.sensors.has_drives()) {
            (true, true) => {
                "Temperatures are the highest during each backup, by a reading in each second: of the hottest sensor of \
                 the CPU, and of the hottest target drive."
                    .into()
            }
            (true, false) => {
                "The CPU's temperature is its highest during each backup, by a reading in each second; the target drives \
                 show no sensor here."
                    .into()
            }
            (false, true) => {
                "The drives' temperature is the highest of the target drives during each backup, by a reading in each \
                 second; the CPU shows no sensor here."
                    .into()
            }
            (false, false) => {
                "Neither the CPU nor the target drives show a temperature sensor here.".into()
            }
        });
        told.extend(unknown_heat(taken));
        told.extend(self.cooling.iter().map(|c| c.told(&self.sensors)));
        told
    }
}

/// The sentence about sensors that did not answer; `None`: all did.
fn unknown_heat(taken: &[&Timing]) -> Option<String> {
    let silent = taken.iter().filter(|t| t.silent_sensors > 0).count();
    (silent > 0).then(|| {
        format!(
            "In {silent} of {} a sensor did not answer every reading: a temperature is not known there, and the peaks are those \
             of the readings that were answered.",
            counted(taken.len(), "backup")
        )
    })
}

/// Makes all backups, and removes each before the next. The kinds in hardware are only measured if `context` has
/// accelerators ([`RunContext::equipped`]). Calls `on_step` with one line for each backup.
///
/// # Errors
/// A backup that fails, a directory that cannot be used, and cooling without any sensor that answers.
pub fn stripes(context: &RunContext, spec: &StripesSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let scratch = Scratch::new(&*context.storage, &spec.dirs)?;
    let sensors = sensors_of(spec.dirs.iter().map(std::path::PathBuf::as_path));
    if spec.cool_c.is_some() && !sensors.has_cpu() && !sensors.has_drives() {
        bail!(
            "--cool needs a temperature sensor, and neither the CPU nor the drives below --dir show one here; use --pause"
        );
    }
    let now = sensors.read();
    if spec.cool_c.is_some() && now.cpu_c.is_none() && now.drive_c.is_none() {
        // Each backup would wait as long as it may, for nothing.
        bail!(
            "--cool needs a temperature, and no sensor of the CPU or of the drives below --dir answers here; use --pause"
        );
    }
    let mut sweep = Sweep {
        context,
        spec,
        on_step,
        scratch,
        source: ColdSource::find(&*context.storage, &spec.source)?,
        sensors,
        cooling: spec.cool_c.map(Cooling::to),
        made: 0,
    };
    let served = || {
        let mut accelerators = context.accelerators.iter();
        accelerators.any(|a| a.serves(HARDWARE.algorithm))
    };
    let mut kinds = vec![NONE, MS_XPRESS, SOFTWARE];
    if served() {
        // Not counted: the accelerator is tested meanwhile, and may turn out not to serve.
        take(context, &sweep.request(HARDWARE, vec![DeviceSpec::Nul]))?;
        kinds.extend(served().then_some(HARDWARE));
    }
    // After the test, because only then an accelerator's library tells its version.
    let platform = platform::record(context, &platform::places(&spec.dirs, [&spec.source]));
    let empty = |(kind, stripes)| StripedBackup {
        kind,
        stripes,
        taken: Vec::new(),
    };
    let cells = kinds
        .iter()
        .flat_map(|kind| spec.stripes.iter().map(move |n| (*kind, *n)));
    let mut backups: Vec<StripedBackup> = [(NONE, 0)].into_iter().chain(cells).map(empty).collect();
    let count = backups.len() * spec.rounds.max(1);
    for _ in 0..spec.rounds.max(1) {
        for backup in &mut backups {
            let taken = sweep.backup(backup.kind, backup.stripes, count)?;
            backup.taken.push(taken);
        }
    }
    let taken: Vec<&Timing> = backups.iter().flat_map(|b| &b.taken).collect();
    let conditions = sweep.conditions(&taken);
    let nul = backups.remove(0);
    let swept = Swept {
        kinds,
        nul,
        backups,
        conditions,
    };
    Ok(report(spec, platform, &swept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::tests::made_up;

    #[test]
    fn backups_with_a_temperature_that_is_not_known_are_counted() {
        let of = |silent_sensors| Timing {
            silent_sensors,
            ..made_up(1.0, 100)
        };
        let (known, unknown) = (of(0), of(2));
        assert_eq!(unknown_heat(&[&known, &known]), None);
        let told = unknown_heat(&[&known, &unknown, &known]).unwrap();
        assert!(
            told.starts_with("In 1 of 3 backups a sensor did not answer"),
            "{told}"
        );
        assert!(told.contains("a temperature is not known"), "{told}");
    }
}
