//! Pretended machines: the search must end within 5 % of the best of a full sweep.
//!
//! Invariants
//! - A machine's limits are known, so the best of all settings is, too.
//! - Measurements differ by chance, from a seed.
//!
//! Leaves to others: memory and the ends of backups (`measured.rs` has tests of its own), and ceilings of CPU time.

use longshore_codec::{Algorithm, Level};
use longshore_pipeline::OffloadMode;

use super::door::{Cost, Machine, MachineTrial, Most, Objective, Setting, TrialEnd};
use super::search::{Choices, Found, StepVerdict, search};

const BYTES: f64 = 1e9;

/// A machine whose limits are known. Rates are in bytes of its side each second.
#[derive(Debug, Clone, Copy)]
struct Pretended {
    cpus: f64,
    source: f64,
    /// Of one stripe's device, and how many there are.
    device: f64,
    devices: usize,
    /// The rate that all devices share.
    way: f64,
    /// An accelerator's share of the work, 0 if there is none.
    accelerator: f64,
    /// Measurements differ by up to this share.
    noise: f64,
    seed: u64,
    trials_left: usize,
    measured_s: f64,
}

impl Pretended {
    const PLAIN: Pretended = Pretended {
        cpus: 2.0,
        source: 3e9,
        device: 2e9,
        devices: 1,
        way: f64::INFINITY,
        accelerator: 0.0,
        noise: 0.01,
        seed: 1,
        trials_left: 1000,
        measured_s: 0.0,
    };

    /// CPU seconds for each byte, and the stored share.
    fn codec(setting: &Setting) -> (f64, f64) {
        let (cpu_s_per_gb, share) = match (setting.algorithm, setting.level) {
            (Algorithm::None, _) => (0.25, 1.0),
            (Algorithm::Lz4, Level::High) => (5.0, 0.40),
            (Algorithm::Lz4, _) => (0.8, 0.45),
            (Algorithm::QatDeflate, Level::Medium) => (2.6, 0.36),
            (Algorithm::QatDeflate, Level::High) => (6.0, 0.34),
            (Algorithm::QatDeflate, _) => (1.5, 0.37),
            (Algorithm::Zstd, Level::Medium) => (3.0, 0.31),
            (Algorithm::Zstd, Level::High) => (6.5, 0.28),
            (Algorithm::Zstd, _) => (1.7, 0.33),
            _ => (2.0, 0.5),
        };
        (cpu_s_per_gb / 1e9, share)
    }

    fn without_noise(&self, setting: &Setting) -> Cost {
        let (mut cpu_pace, share) = Pretended::codec(setting);
        let mut engine_pace = 0.0_f64;
        if setting.engine != OffloadMode::Software && setting.algorithm == Algorithm::QatDeflate {
            let done = self.accelerator;
            engine_pace = cpu_pace * (1.0 - done) / self.cpus;
            cpu_pace = cpu_pace * (1.0 - done) + 0.1e-9 * done;
        }
        // Larger buffers leave the core's cache.
        if setting.buffer_bytes.is_some_and(|bytes| bytes > 2 << 20) {
            cpu_pace *= 1.04;
        }
        let devices = setting.stripes.min(self.devices) as f64;
        let target = (self.device * devices).min(self.way);
        let pace = [
            1.0 / self.source,
            cpu_pace / self.cpus,
            engine_pace,
            share / target,
        ];
        Cost {
            plain_bytes: BYTES as u64,
            wall_s: BYTES * pace.into_iter().fold(0.0, f64::max),
            cpu_s: BYTES * cpu_pace,
            stored_bytes: (BYTES * share) as u64,
        }
    }

    /// From -1 to 1.
    fn chance(&mut self) -> f64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }
}

impl Machine for Pretended {
    fn measure(&mut self, setting: &Setting, most: &Most) -> anyhow::Result<MachineTrial> {
        self.trials_left = self.trials_left.saturating_sub(1);
        let mut cost = self.without_noise(setting);
        cost.wall_s *= 1.0 + self.noise * self.chance();
        cost.cpu_s *= 1.0 + self.noise * self.chance();
        let part = (most.pace / cost.pace())
            .min(most.cpu_pace / cost.cpu_pace())
            .min(1.0);
        let of = |value: f64| value * part;
        self.measured_s += of(cost.wall_s);
        Ok(MachineTrial {
            cost: Cost {
                plain_bytes: of(BYTES) as u64,
                wall_s: of(cost.wall_s),
                cpu_s: of(cost.cpu_s),
                stored_bytes: of(cost.stored_bytes as f64) as u64,
            },
            end: if part < 1.0 {
                TrialEnd::GivenUp
            } else {
                TrialEnd::Measured
            },
        })
    }

    fn buffers(&self) -> usize {
        10
    }

    fn has_time(&self) -> bool {
        self.trials_left > 0
    }
}

fn choices(objective: Objective, devices: usize, has_accelerator: bool) -> Choices {
    let mut stripes: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|n| *n <= devices).collect();
    if !stripes.contains(&devices) {
        stripes.push(devices);
    }
    Choices {
        objective,
        most_pace: None,
        start: super::defaults(devices),
        codecs: super::codecs_for(objective, &[], &|algorithm| {
            has_accelerator && algorithm == Algorithm::QatDeflate
        }),
        stripes,
        buffer_bytes: vec![512 << 10, 4 << 20],
        buffers: vec![2],
    }
}

/// The least cost of all settings, by measuring all.
fn best_of_all(machine: &Pretended, choices: &Choices) -> f64 {
    let mut best = f64::INFINITY;
    for &(algorithm, level, engine) in &choices.codecs {
        for &stripes in &choices.stripes {
            let cost = machine.without_noise(&Setting {
                algorithm,
                level,
                engine,
                stripes,
                ..choices.start
            });
            if choices.most_pace.is_none_or(|most| cost.pace() <= most) {
                best = best.min(choices.objective.of(&cost));
            }
        }
    }
    best
}

fn found(machine: &Pretended, choices: &Choices) -> (Found, Pretended) {
    let mut at_work = *machine;
    (search(choices, &mut at_work).unwrap(), at_work)
}

#[track_caller]
fn near_the_best(machine: &Pretended, choices: &Choices) -> Setting {
    let best = best_of_all(machine, choices);
    let (found, _) = found(machine, choices);
    let is = choices.objective.of(&machine.without_noise(&found.setting));
    assert!(
        is <= 1.05 * best,
        "{:?}: {} costs {:.3} times the best",
        choices.objective,
        found.setting,
        is / best
    );
    found.setting
}

const SLOW_TARGET: Pretended = Pretended {
    device: 60e6,
    devices: 4,
    ..Pretended::PLAIN
};
const SLOW_WAY: Pretended = Pretended {
    device: 60e6,
    devices: 8,
    way: 110e6,
    ..Pretended::PLAIN
};
const SLOW_SOURCE: Pretended = Pretended {
    source: 150e6,
    ..Pretended::PLAIN
};
const FEW_CPUS: Pretended = Pretended {
    cpus: 1.0,
    ..Pretended::PLAIN
};
const MANY_CPUS: Pretended = Pretended {
    cpus: 64.0,
    devices: 4,
    device: 500e6,
    ..Pretended::PLAIN
};
const WITH_ACCELERATOR: Pretended = Pretended {
    accelerator: 0.98,
    cpus: 4.0,
    ..Pretended::PLAIN
};

#[test]
fn the_search_ends_within_five_percent_of_a_full_sweep_on_every_machine_for_every_objective() {
    let machines = [
        SLOW_TARGET,
        SLOW_WAY,
        SLOW_SOURCE,
        FEW_CPUS,
        MANY_CPUS,
        WITH_ACCELERATOR,
    ];
    let objectives = [
        Objective::Window,
        Objective::Cpu,
        Objective::Workload,
        Objective::Size,
    ];
    for machine in machines {
        for objective in objectives {
            for seed in 1..20 {
                let machine = Pretended { seed, ..machine };
                let has_accelerator = machine.accelerator > 0.0;
                near_the_best(
                    &machine,
                    &choices(objective, machine.devices, has_accelerator),
                );
            }
        }
    }
}

#[test]
fn each_machine_gets_what_its_limit_asks_for() {
    // A slow target: what stores least in the time that the CPUs have anyway, on all devices.
    let slow = near_the_best(&SLOW_TARGET, &choices(Objective::Window, 4, false));
    assert_eq!((slow.algorithm, slow.stripes), (Algorithm::Zstd, 4));
    // Eight places, and a way that two fill: six more would only be files that may be lost.
    let way = near_the_best(&SLOW_WAY, &choices(Objective::Window, 8, false));
    assert_eq!(way.stripes, 2, "{way}");
    // Stripes cost no CPU time and no space: those that make it quick stay.
    for objective in [Objective::Cpu, Objective::Workload, Objective::Size] {
        let slow = near_the_best(&SLOW_TARGET, &choices(objective, 4, false));
        let on_all = Setting { stripes: 4, ..slow };
        let pace = |setting: &Setting| SLOW_TARGET.without_noise(setting).pace();
        assert!(pace(&slow) <= 1.05 * pace(&on_all), "{objective:?}: {slow}");
    }
    let few = near_the_best(&FEW_CPUS, &choices(Objective::Cpu, 1, false));
    assert_eq!(few.algorithm, Algorithm::Lz4);
    let offloaded = near_the_best(&WITH_ACCELERATOR, &choices(Objective::Cpu, 1, true));
    assert_eq!(offloaded.algorithm, Algorithm::QatDeflate);
    assert_ne!(offloaded.engine, OffloadMode::Software);
}

#[test]
fn where_nothing_is_better_than_chance_the_defaults_stay() {
    // Everything waits for the source.
    for seed in 1..200 {
        let machine = Pretended {
            seed,
            ..SLOW_SOURCE
        };
        let (found, _) = found(&machine, &choices(Objective::Window, 1, false));
        assert_eq!(found.setting, super::defaults(1), "seed {seed}");
    }
}

#[test]
fn on_a_noisy_machine_nothing_is_called_better() {
    for seed in 1..200 {
        let machine = Pretended {
            seed,
            noise: 0.3,
            ..FEW_CPUS
        };
        let (found, _) = found(&machine, &choices(Objective::Window, 1, false));
        let gain = machine.without_noise(&super::defaults(1)).pace()
            / machine.without_noise(&found.setting).pace();
        assert!(
            gain > 0.8,
            "seed {seed}: {} is {gain:.2} times as fast",
            found.setting
        );
    }
}

#[test]
fn a_window_comes_before_the_objective() {
    // The smallest takes three times as long as the window has.
    let mut choices = choices(Objective::Size, 1, false);
    choices.most_pace = Some(1.0 / 1.0e9);
    let setting = near_the_best(
        &FEW_CPUS,
        &Choices {
            most_pace: Some(1.0 / 0.5e9),
            ..choices.clone()
        },
    );
    assert_eq!(
        (setting.algorithm, setting.level),
        (Algorithm::Zstd, Level::Low)
    );
    // None keeps a window of a tenth of a second for each GB: the quickest is taken.
    choices.most_pace = Some(0.1 / 1e9);
    let (found, _) = found(&FEW_CPUS, &choices);
    let quickest = FEW_CPUS.without_noise(&found.setting).pace();
    let all = choices.codecs.iter().map(|&(algorithm, level, _)| {
        FEW_CPUS
            .without_noise(&Setting {
                algorithm,
                level,
                ..choices.start
            })
            .pace()
    });
    assert!(quickest <= 1.05 * all.fold(f64::INFINITY, f64::min));
}

#[test]
fn hopeless_measurements_end_early_and_none_is_made_twice() {
    let choices = choices(Objective::Window, 4, false);
    let (found, machine) = found(&SLOW_TARGET, &choices);
    assert!(
        found
            .steps
            .iter()
            .any(|step| step.verdict == StepVerdict::GivenUp)
    );
    let whole: f64 = found
        .steps
        .iter()
        .map(|step| SLOW_TARGET.without_noise(&step.setting).wall_s)
        .sum();
    assert!(
        machine.measured_s < 0.9 * whole,
        "{} of {whole}",
        machine.measured_s
    );
    for (n, step) in found.steps.iter().enumerate() {
        let is_measured_on_purpose =
            matches!(step.verdict, StepVerdict::Start | StepVerdict::Again);
        let earlier = found.steps[..n].iter();
        assert!(is_measured_on_purpose || earlier.clone().all(|s| s.setting != step.setting));
    }
}

#[test]
fn without_time_the_best_so_far_is_confirmed_and_the_end_is_said() {
    let machine = Pretended {
        trials_left: 4,
        ..SLOW_TARGET
    };
    let (found, _) = found(&machine, &choices(Objective::Window, 4, false));
    assert!(found.is_cut);
    assert!(found.cost.pace() <= found.start.pace());
}
