//! Pretended machines: the search must end within 5 % of the best of a full sweep, and within three minutes of their time.
//!
//! Invariants
//! - A machine's limits are known, so the best of all settings is, too: of algorithms, levels, engines, stripes, and both kinds of
//!   buffers. The choices are those of every machine.
//! - Measurements differ by chance, from a seed, and take the time that the machine needs, by its own clock.
//!
//! Leaves to others: the ends of backups (`measured.rs` has tests of its own), and ceilings of CPU time.

use std::time::Duration;

use longshore_codec::{Algorithm, Level};
use longshore_pipeline::OffloadMode;

use super::door::{Cost, Machine, MachineTrial, Most, Objective, Setting, TrialEnd};
use super::search::{Choices, Found, StepVerdict, search};
use super::time::TimePlan;

/// The time that `--time` gives by default.
const TIME: Duration = Duration::from_secs(150);
/// MAXTRANSFERSIZE by default.
const BUFFER_BYTES: usize = 1 << 20;
/// Of what the first measurement reached.
const REACHED: f64 = 0.75;
/// The first goes on until memory was stored so often.
const MEMORIES: f64 = 3.0;
/// CPU time where the buffers have left the processor's cache.
const OUT_OF_CACHE: f64 = 1.3;

/// A machine whose limits are known. Rates are in bytes of its side each second.
#[derive(Debug, Clone, Copy)]
struct Pretended {
    cpus: f64,
    source: f64,
    /// Seconds that each request to the source takes in addition.
    request_s: f64,
    /// Of one stripe's device, and how many there are.
    device: f64,
    devices: usize,
    /// The rate that all devices share.
    way: f64,
    /// An accelerator's share of the work, 0 if there is none.
    accelerator: f64,
    /// With fewer buffers, workers wait for one.
    buffers_wanted: usize,
    /// All buffers together fit into the processor's cache.
    cache_bytes: f64,
    /// A backup holds so much for each stripe before it waits for its places.
    memory_bytes: f64,
    /// Seconds that the beginning and the end of each backup take.
    around_s: f64,
    /// Measurements differ by up to this share.
    noise: f64,
    seed: u64,
    /// Its clock, and the bytes that all measure but the first.
    now_s: f64,
    bytes: Option<f64>,
    /// Of the last measurement.
    buffers: usize,
}

impl Pretended {
    const PLAIN: Pretended = Pretended {
        cpus: 2.0,
        source: 3e9,
        request_s: 0.0,
        device: 2e9,
        devices: 1,
        way: f64::INFINITY,
        accelerator: 0.0,
        buffers_wanted: 0,
        cache_bytes: f64::INFINITY,
        memory_bytes: 16e6,
        around_s: 0.3,
        noise: 0.01,
        seed: 1,
        now_s: 0.0,
        bytes: None,
        buffers: 1,
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

    /// BUFFERCOUNT; by itself a backup takes more for more stripes.
    fn buffers_of(setting: &Setting) -> usize {
        setting.buffer_count.unwrap_or(8 + 2 * setting.stripes)
    }

    /// Of 10^9 bytes.
    fn without_noise(&self, setting: &Setting) -> Cost {
        let (mut cpu_pace, share) = Pretended::codec(setting);
        let buffers = Pretended::buffers_of(setting) as f64;
        let buffer_bytes = setting.buffer_bytes.unwrap_or(BUFFER_BYTES) as f64;
        if buffers * buffer_bytes > self.cache_bytes {
            cpu_pace *= OUT_OF_CACHE;
        }
        let at_work = (buffers / self.buffers_wanted.max(1) as f64).min(1.0);
        let mut engine_pace = 0.0_f64;
        if setting.engine != OffloadMode::Software && setting.algorithm == Algorithm::QatDeflate {
            let done = self.accelerator;
            engine_pace = cpu_pace * (1.0 - done) / self.cpus;
            cpu_pace = cpu_pace * (1.0 - done) + 0.1e-9 * done;
        }
        let devices = setting.stripes.min(self.devices) as f64;
        let target = (self.device * devices).min(self.way);
        let pace = [
            1.0 / self.source + self.request_s / buffer_bytes,
            cpu_pace / (self.cpus * at_work),
            engine_pace,
            share / target,
        ];
        const BYTES: f64 = 1e9;
        Cost {
            plain_bytes: BYTES as u64,
            wall_s: BYTES * pace.into_iter().fold(0.0, f64::max),
            cpu_s: BYTES * cpu_pace,
            stored_bytes: (BYTES * share) as u64,
        }
    }

    /// The bytes that a measurement goes for; the first finds out how many there are in the time.
    fn goal(&mut self, cost: &Cost, memory_bytes: f64) -> f64 {
        if let Some(bytes) = self.bytes {
            return bytes;
        }
        let plan = TimePlan::of(TIME);
        let until_stored_s = MEMORIES * memory_bytes * cost.pace() / cost.share();
        let first_s = until_stored_s.max(plan.each.as_secs_f64());
        let reached = first_s.min(plan.first_most.as_secs_f64()) / cost.pace();
        self.bytes = Some(REACHED * reached);
        reached
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
    fn measure(
        &mut self,
        setting: &Setting,
        most: &Most,
        limit_s: f64,
    ) -> anyhow::Result<MachineTrial> {
        self.buffers = Pretended::buffers_of(setting);
        let mut cost = self.without_noise(setting);
        cost.wall_s *= 1.0 + self.noise * self.chance();
        cost.cpu_s *= 1.0 + self.noise * self.chance();
        let memory_bytes = self.memory_bytes * setting.stripes as f64;
        let bytes = self.goal(&cost, memory_bytes);
        let hopeless = (most.pace / cost.pace()).min(most.cpu_pace / cost.cpu_pace());
        let in_time = (limit_s - self.around_s).max(0.0) / (bytes * cost.pace());
        let part = hopeless.min(in_time).min(1.0);
        let took_s = self.around_s + part * bytes * cost.pace();
        self.now_s += took_s;
        let of = |each: f64| part * bytes * each;
        Ok(MachineTrial {
            cost: Cost {
                plain_bytes: of(1.0) as u64,
                wall_s: of(cost.pace()),
                cpu_s: of(cost.cpu_pace()),
                stored_bytes: of(cost.share()) as u64,
            },
            end: match part {
                1.0 if bytes * cost.share() <= memory_bytes => TrialEnd::InMemory,
                1.0 => TrialEnd::Measured,
                _ if in_time < hopeless => TrialEnd::OutOfTime,
                _ => TrialEnd::GivenUp,
            },
            took_s,
        })
    }

    fn buffers(&self) -> usize {
        self.buffers
    }

    fn left_s(&self) -> f64 {
        TIME.as_secs_f64() - self.now_s
    }
}

fn choices(objective: Objective, devices: usize, has_accelerator: bool) -> Choices {
    let mut stripes: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|n| *n <= devices).collect();
    if !stripes.contains(&devices) {
        stripes.push(devices);
    }
    let codecs = super::codecs_for(objective, &[], &|algorithm| {
        has_accelerator && algorithm == Algorithm::QatDeflate
    });
    super::choices_from(objective, super::defaults(devices), codecs, stripes)
}

/// All settings that the choices have.
fn sweep(choices: &Choices) -> Vec<Setting> {
    let mut all = Vec::new();
    for &(algorithm, level, engine) in &choices.codecs {
        for &stripes in &choices.stripes {
            let bytes = choices.buffer_bytes.iter().copied().map(Some);
            for buffer_bytes in bytes.chain([None]) {
                let by_itself = Setting {
                    algorithm,
                    level,
                    engine,
                    stripes,
                    buffer_bytes,
                    buffer_count: None,
                };
                all.push(by_itself);
                all.extend(choices.buffers.iter().map(|factor| Setting {
                    buffer_count: Some(factor * Pretended::buffers_of(&by_itself)),
                    ..by_itself
                }));
            }
        }
    }
    all
}

/// The least cost of all settings, by measuring all.
fn best_of_all(machine: &Pretended, choices: &Choices) -> f64 {
    let costs = sweep(choices)
        .into_iter()
        .map(|setting| machine.without_noise(&setting));
    let keeps = |cost: &Cost| choices.most_pace.is_none_or(|most| cost.pace() <= most);
    let costs = costs.filter(keeps).map(|cost| choices.objective.of(&cost));
    costs.fold(f64::INFINITY, f64::min)
}

fn found(machine: &Pretended, choices: &Choices) -> (Found, Pretended) {
    let mut at_work = *machine;
    (search(choices, &mut at_work).unwrap(), at_work)
}

/// Within 5 % of the best, and within the promised time.
#[track_caller]
fn near_the_best(machine: &Pretended, choices: &Choices) -> Setting {
    let best = best_of_all(machine, choices);
    let (found, after) = found(machine, choices);
    assert!(
        after.now_s <= TIME.as_secs_f64() + 1.0,
        "{:?}: {} s",
        choices.objective,
        after.now_s
    );
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
/// Ten buffers, which a backup takes by itself, are too few for its workers.
const STARVED: Pretended = Pretended {
    buffers_wanted: 18,
    ..Pretended::PLAIN
};
/// Ten buffers of 256 KiB are in the cache, and neither ten of 1 MiB nor twenty small ones.
const SMALL_CACHE: Pretended = Pretended {
    cache_bytes: 4e6,
    ..Pretended::PLAIN
};
/// Large requests to a source that is far away.
const FAR_SOURCE: Pretended = Pretended {
    source: 1e9,
    request_s: 4e-3,
    ..Pretended::PLAIN
};
/// Both: workers starve, and what feeds them leaves the cache unless it is small.
const STARVED_WITH_SMALL_CACHE: Pretended = Pretended {
    buffers_wanted: 18,
    cache_bytes: 6e6,
    ..Pretended::PLAIN
};
const ALL: [Pretended; 10] = [
    SLOW_TARGET,
    SLOW_WAY,
    SLOW_SOURCE,
    FEW_CPUS,
    MANY_CPUS,
    WITH_ACCELERATOR,
    STARVED,
    SMALL_CACHE,
    FAR_SOURCE,
    STARVED_WITH_SMALL_CACHE,
];
const OBJECTIVES: [Objective; 4] = [
    Objective::Window,
    Objective::Cpu,
    Objective::Workload,
    Objective::Size,
];
/// An object store: each stripe holds 144 MB in memory, so that few measurements have time.
const FAR_STORE: Pretended = Pretended {
    device: 20e6,
    devices: 8,
    way: 60e6,
    memory_bytes: 144e6,
    ..Pretended::PLAIN
};

#[test]
fn the_search_ends_within_five_percent_of_a_full_sweep_on_every_machine_for_every_objective() {
    for machine in ALL {
        for objective in OBJECTIVES {
            for seed in 1..100 {
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

/// Also where there is no time to compare much, and where equal measurements differ by half.
#[test]
fn every_search_ends_within_three_minutes() {
    for machine in ALL.into_iter().chain([FAR_STORE]) {
        for (objective, noise) in OBJECTIVES.into_iter().flat_map(|o| [(o, 0.01), (o, 0.3)]) {
            for seed in 1..20 {
                let machine = Pretended {
                    seed,
                    noise,
                    ..machine
                };
                let mut choices = choices(objective, machine.devices, machine.accelerator > 0.0);
                if machine.memory_bytes > Pretended::PLAIN.memory_bytes {
                    // A store has one address, and begins with one stripe.
                    choices.start = super::defaults(1);
                }
                let (_, after) = found(&machine, &choices);
                assert!(
                    after.now_s <= TIME.as_secs_f64() + 1.0,
                    "{machine:?}, {objective:?}: {} s",
                    after.now_s
                );
            }
        }
    }
}

/// A sweep without buffers could not tell the search for them from none.
#[test]
fn buffers_are_found_where_they_matter() {
    let one = |machine: &Pretended| near_the_best(machine, &choices(Objective::Window, 1, false));
    let starved = one(&STARVED);
    assert_eq!(starved.buffer_count, Some(20), "{starved}");
    let small = near_the_best(&SMALL_CACHE, &choices(Objective::Cpu, 1, false));
    assert_eq!(
        (small.buffer_bytes, small.buffer_count),
        (Some(256 << 10), None),
        "{small}"
    );
    let far = one(&FAR_SOURCE);
    assert_eq!(far.buffer_bytes, Some(4 << 20), "{far}");
    let both = one(&STARVED_WITH_SMALL_CACHE);
    assert_eq!(
        (both.buffer_bytes, both.buffer_count),
        (Some(256 << 10), Some(20)),
        "{both}"
    );
    // Without them the best of the sweep is further away than the search may end.
    for machine in [STARVED, SMALL_CACHE, FAR_SOURCE, STARVED_WITH_SMALL_CACHE] {
        let all = choices(Objective::Window, 1, false);
        let without = Choices {
            buffer_bytes: Vec::new(),
            buffers: Vec::new(),
            ..all.clone()
        };
        assert!(best_of_all(&machine, &without) > 1.05 * best_of_all(&machine, &all));
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

/// Equal measurements differ by up to 86 %, and every setting waits for the source: on one place, and on four, where fewer
/// stripes might be called as good.
#[test]
fn on_a_noisy_machine_nothing_is_called_better_where_nothing_is_but_for_two_in_a_hundred() {
    for devices in [1, 4] {
        let called_better = (1..=1000).filter(|seed| {
            let machine = Pretended {
                seed: *seed,
                noise: 0.3,
                devices,
                ..SLOW_SOURCE
            };
            let (found, _) = found(&machine, &choices(Objective::Window, devices, false));
            found.setting != super::defaults(devices)
        });
        // Two of the best and three of the start may be on the right sides by chance.
        let count = called_better.count();
        assert!(count <= 20, "{count} of 1000 on {devices}");
    }
}

#[test]
fn on_a_noisy_machine_nothing_worse_is_taken() {
    for seed in 1..=1000 {
        let machine = Pretended {
            seed,
            noise: 0.3,
            ..FEW_CPUS
        };
        let (found, _) = found(&machine, &choices(Objective::Window, 1, false));
        let pace = |setting: &Setting| machine.without_noise(setting).pace();
        let gain = pace(&super::defaults(1)) / pace(&found.setting);
        assert!(
            gain >= 1.0,
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
    // If all had gone on to their end.
    let bytes = machine.bytes.unwrap();
    let whole = found.steps.iter().map(|step| {
        let pace = SLOW_TARGET.without_noise(&step.setting).pace();
        SLOW_TARGET.around_s + bytes * pace
    });
    let whole: f64 = whole.sum();
    assert!(machine.now_s < 0.9 * whole, "{} of {whole}", machine.now_s);
    for (n, step) in found.steps.iter().enumerate() {
        let is_measured_on_purpose =
            matches!(step.verdict, StepVerdict::Start | StepVerdict::Again);
        let earlier = found.steps[..n].iter();
        assert!(is_measured_on_purpose || earlier.clone().all(|s| s.setting != step.setting));
    }
}

#[test]
fn without_time_the_best_so_far_is_confirmed_and_the_end_is_said() {
    // A minute and a half is gone before.
    let machine = Pretended {
        now_s: 105.0,
        ..SLOW_TARGET
    };
    let (found, after) = found(&machine, &choices(Objective::Window, 4, false));
    assert!(found.is_cut);
    assert!(found.cost.pace() <= found.start.pace());
    assert!(after.now_s <= TIME.as_secs_f64() + 1.0, "{}", after.now_s);
    let last: Vec<_> = found
        .steps
        .iter()
        .rev()
        .take(2)
        .map(|step| step.verdict)
        .collect();
    assert_eq!(last, [StepVerdict::Again; 2]);
}
