//! The no-regret guard: using two devices together must not be slower than the better one alone.
//!
//! It can be: feeding the faster one costs the time of the slower one, a shared memory bus, a shared power limit. No
//! model knows all of that, so the guard measures progress, whoever made it, in short epochs under three choices,
//! *both*, *first* alone and *second* alone, and keeps to the best. It tries the others for a bounded share of
//! the time, and only those that could come near the best by what the caller knows of their speed, so that trying
//! costs little even where it finds nothing. What was tried and lost is tried again later, twice as late each time.
//! Where one epoch is unlike the next whoever serves, a trial says little: it must be better by what epochs differ, too.
//!
//! Invariants
//! - Epochs spent on other choices than the best known take at most [`SHARE`] of the time, plus [`CREDIT`] epochs.
//! - A choice replaces the present one only if its progress was better by [`MARGIN`], and by the usual difference of
//!   epochs under one choice, in two trials; but for *both*, which need only be better.

/// Share of the time that may be spent on trying.
pub const SHARE: f64 = 1.0 / 32.0;
/// Epochs that may be spent early, when a wrong choice still has the whole run before it.
pub const CREDIT: u64 = 6;
/// Epochs before anything is tried.
const QUIET: u64 = 5;
/// Epochs that a choice rests after it lost for the first time.
const REST: u64 = 16;
/// What a choice must be thought to reach of the best to be tried.
const NEAR: f64 = 0.9;
/// What another choice must be better by. Below that, both stay: they can only win when conditions change.
pub const MARGIN: f64 = 1.03;

/// Weight of a new epoch in a choice's average.
const ALPHA: f64 = 0.25;

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serve {
    Both,
    First,
    Second,
}

const CHOICES: [Serve; 3] = [Serve::Both, Serve::First, Serve::Second];

/// Compares choices by progress.
#[derive(Debug, Clone)]
pub struct Guard {
    epoch_us: u64,
    best: usize,
    /// What is being tried, if not the best.
    trial: Option<usize>,
    next_trial: usize,
    rates: [Known; 3],
    started_us: Option<u64>,
    epoch_began: (u64, u64),
    tried_us: u64,
    /// By what share an epoch under the best choice differs from those before it, lately.
    unrest: f64,
    /// The first part of an epoch still sees the work of the choice before; it is not counted.
    settling: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    rate: Option<f64>,
    better: u32,
    /// Not tried again before, since the start; and how long it rests when it loses next.
    not_before_us: u64,
    rest_us: u64,
}

impl Guard {
    /// Epochs of `epoch_us`: long against one request, short against the whole run.
    pub fn new(epoch_us: u64) -> Guard {
        Guard {
            epoch_us: epoch_us.max(1),
            best: 0,
            trial: None,
            next_trial: 1,
            rates: [Known::default(); 3],
            started_us: None,
            epoch_began: (0, 0),
            tried_us: 0,
            unrest: 0.0,
            settling: true,
        }
    }

    /// Who should serve now. `done_bytes` is the progress of everybody together so far; `could` is what the first and
    /// the second alone are thought to do, in bytes per second.
    pub fn judge(&mut self, now_us: u64, done_bytes: u64, could: [f64; 2]) -> Serve {
        let Some(started_us) = self.started_us else {
            self.started_us = Some(now_us);
            self.epoch_began = (now_us, done_bytes);
            return Serve::Both;
        };
        let elapsed_us = now_us.saturating_sub(self.epoch_began.0);
        if elapsed_us >= self.epoch_us {
            if self.settling {
                self.settling = false;
                self.epoch_began = (now_us, done_bytes);
            } else {
                let bytes = done_bytes.saturating_sub(self.epoch_began.1);
                self.learn(bytes as f64 / elapsed_us as f64);
                self.epoch_began = (now_us, done_bytes);
                self.decide(now_us.saturating_sub(started_us), could);
            }
            if self.trial.is_some() {
                self.tried_us += elapsed_us;
            }
        }
        CHOICES[self.trial.unwrap_or(self.best)]
    }

    fn learn(&mut self, rate: f64) {
        let known = &mut self.rates[self.trial.unwrap_or(self.best)];
        known.rate = Some(match known.rate {
            // What is tried seldom is judged by its last epoch.
            Some(old) if self.trial.is_none() => {
                let differs = (rate - old).abs() / old.max(f64::MIN_POSITIVE);
                self.unrest += (differs.min(1.0) - self.unrest) * ALPHA;
                old + (rate - old) * ALPHA
            }
            _ => rate,
        });
    }

    fn decide(&mut self, passed_us: u64, could: [f64; 2]) {
        if let Some(trial) = self.trial.take() {
            self.settling = true;
            let best = self.rates[self.best].rate.unwrap_or(0.0);
            let known = &mut self.rates[trial];
            // Both need not be better to come back: they can only win when conditions change.
            let margin = match trial {
                0 => 1.0,
                _ => MARGIN + self.unrest,
            };
            let wins = known.rate.is_some_and(|rate| rate > best * margin);
            known.better = if wins { known.better + 1 } else { 0 };
            known.rest_us = match wins {
                true => 0,
                false => (known.rest_us * 2).max(REST * self.epoch_us),
            };
            known.not_before_us = passed_us + known.rest_us;
            if known.better >= 2 {
                known.better = 0;
                self.best = trial;
            } else if wins {
                // Once more, at once: it may have been luck.
                self.trial = Some(trial);
                self.settling = false;
                return;
            }
            self.next_trial = (trial + 1) % CHOICES.len();
        }
        let best = self.rates[self.best].rate.unwrap_or(0.0);
        // Rates in here are bytes in a microsecond.
        let near = |choice: usize| choice == 0 || could[choice - 1] / 1e6 >= best * NEAR;
        let choices = (0..CHOICES.len()).map(|i| (self.next_trial + i) % CHOICES.len());
        let others: Vec<usize> = choices
            .filter(|c| *c != self.best && near(*c) && passed_us >= self.rates[*c].not_before_us)
            .collect();
        let thought = |choice: &usize| match choice {
            0 => 0.0,
            alone => could[alone - 1],
        };
        // What was never tried comes first, the most promising before the other; then one after the other.
        let new = others
            .iter()
            .copied()
            .filter(|c| self.rates[*c].rate.is_none());
        let new = new.max_by(|a, b| thought(a).total_cmp(&thought(b)));
        let Some(next) = new.or(others.first().copied()) else {
            return;
        };
        let spent_us = self.tried_us + 2 * self.epoch_us;
        let may_us = (passed_us as f64 * SHARE) as u64 + CREDIT * self.epoch_us;
        if passed_us >= QUIET * self.epoch_us && spent_us <= may_us {
            self.next_trial = next;
            self.trial = Some(self.next_trial);
            self.settling = true;
        }
    }
}
