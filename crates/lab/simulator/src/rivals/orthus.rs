//! Orthus (FAST 2021, "The Storage Hierarchy is Not a Hierarchy"): it fills until the miss ratio is steady, then stops
//! admitting and climbs along one serving ratio. The paper probes for 25 ms, its kernel version for 5 ms.
//!
//! Invariants
//! - Only virtual time passes: the same seed gives the same run.
//! - While it climbs, reads admit nothing to the cache; while it fills, the cache serves every hit.
//!
//! Leaves to others: the world and its measurement (`sim`), and the share's draws (`Mixer` of `longshore-policy`).

use longshore_policy::model::Nanos;
use longshore_policy::policy::filter::{Filter, Mixer, ReadRequest, Sides, plan};
use longshore_policy::policy::{EndedRequest, Gauges, Purpose, ReadPlan, Reason, View};

/// How fast Orthus climbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrthusPace {
    /// Probes of 25 ms, as in the paper; it fills again when the climb ended at the top twice in a row.
    Paper,
    /// Probes of 5 ms, the interval of its kernel version; it fills again after ten times at the top.
    Kernel,
}

const MS: Nanos = 1_000_000;
const SETTLE: Nanos = 100 * MS;
const STEP: f64 = 0.01;
/// The miss ratio is steady if it changes by less than this in one period.
const STEADY: f64 = 0.0015;
/// If the miss ratio rises by this much, it starts again.
const RELAPSE: f64 = 0.20;

#[derive(Debug)]
enum Phase {
    /// Classic caching while the cache fills; the last period's miss ratio.
    Filling { last: Option<f64> },
    /// Measures at the ratio, above it and below it, one after another.
    Climbing { probe: usize, rates: [f64; 3] },
}

pub struct Orthus {
    /// How long each of the three rates is measured.
    probe_time: Nanos,
    /// The climb may end at 1 this often in a row before it fills again.
    chances: u32,
    /// It has climbed before.
    climbed: bool,
    phase: Phase,
    mixer: Mixer,
    sides: Sides,
    ratio: f64,
    /// The miss ratio when climbing began.
    settled: f64,
    /// How often in a row the climb has ended at 1.
    at_top: u32,
    period_began: Nanos,
    bytes: u64,
    lookups: u64,
    misses: u64,
}

impl Orthus {
    const OFFSETS: [f64; 3] = [0.0, STEP, -STEP];

    pub fn new(pace: OrthusPace, sides: Sides) -> Orthus {
        let (probe_time, chances) = match pace {
            OrthusPace::Paper => (25 * MS, 2),
            OrthusPace::Kernel => (5 * MS, 10),
        };
        Orthus {
            probe_time,
            chances,
            climbed: false,
            phase: Phase::Filling { last: None },
            mixer: Mixer::new(1.0),
            sides,
            ratio: 1.0,
            settled: 0.0,
            at_top: 0,
            period_began: 0,
            bytes: 0,
            lookups: 0,
            misses: 0,
        }
    }

    fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.lookups.max(1) as f64
    }

    fn begin(&mut self, now: Nanos, phase: Phase) {
        if let Phase::Climbing { probe, .. } = phase {
            self.mixer.set_share(self.ratio + Orthus::OFFSETS[probe]);
        } else {
            self.mixer.set_share(1.0);
        }
        self.phase = phase;
        self.period_began = now;
        (self.bytes, self.lookups, self.misses) = (0, 0, 0);
    }

    /// Ends the period when its time is over.
    fn tick(&mut self, now: Nanos) {
        let passed = now - self.period_began;
        let miss = self.miss_ratio();
        match self.phase {
            Phase::Filling { last } if passed >= SETTLE => {
                if last.is_some_and(|last| (miss - last).abs() < STEADY) {
                    (self.ratio, self.settled, self.at_top) = (1.0, miss, 0);
                    self.climbed = true;
                    let rates = [0.0; 3];
                    self.begin(now, Phase::Climbing { probe: 0, rates });
                } else {
                    self.begin(now, Phase::Filling { last: Some(miss) });
                }
            }
            Phase::Climbing { probe, mut rates } if passed >= self.probe_time => {
                rates[probe] = self.bytes as f64 / passed as f64;
                if self.lookups > 0 && miss > self.settled + RELAPSE {
                    return self.begin(now, Phase::Filling { last: None });
                }
                if probe < 2 {
                    let probe = probe + 1;
                    return self.begin(now, Phase::Climbing { probe, rates });
                }
                let best = (0..3)
                    .max_by(|a, b| rates[*a].total_cmp(&rates[*b]))
                    .unwrap_or(0);
                self.ratio = (self.ratio + Orthus::OFFSETS[best]).clamp(0.0, 1.0);
                self.at_top = if self.ratio == 1.0 {
                    self.at_top + 1
                } else {
                    0
                };
                let rates = [0.0; 3];
                if self.at_top >= self.chances {
                    self.begin(now, Phase::Filling { last: None });
                } else {
                    self.begin(now, Phase::Climbing { probe: 0, rates });
                }
            }
            _ => {}
        }
    }
}

impl Filter for Orthus {
    fn read(&mut self, view: &View, asked: &ReadRequest) -> ReadPlan {
        self.tick(view.now);
        self.lookups += 1;
        self.misses += u64::from(asked.held_bytes < asked.len_bytes);
        match self.phase {
            Phase::Filling { .. } => plan(asked, true, true, Reason::Always),
            Phase::Climbing { .. } => {
                let fast = asked.held_bytes > 0 && self.mixer.draw();
                plan(asked, fast, false, Reason::Share)
            }
        }
    }

    fn ended(&mut self, ended: &EndedRequest) {
        if ended.purpose != Purpose::Fill {
            self.bytes += ended.len_bytes;
        }
        self.tick(ended.now);
    }

    fn sides(&self) -> &Sides {
        &self.sides
    }

    fn pace(&self) -> Nanos {
        // Forty of the paper's steps, of three probes each: steps follow measured rates, so many lead nowhere. The
        // kernel version measures its steps over a fifth of the time, so as many more of them lead nowhere.
        40 * 3 * 25 * MS
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            share: Some(self.mixer.share()),
            settling: !self.climbed,
            ..Gauges::default()
        }
    }
}
