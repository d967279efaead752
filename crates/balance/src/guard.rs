//! The no-regret guard: using two devices together must not be slower than the better one alone.
//!
//! It can be: feeding the faster one costs the time of the slower one, a shared memory bus, a shared power limit. No
//! model knows all of that, so the guard measures progress, whoever made it, in short epochs under three choices,
//! *both*, *first* alone and *second* alone, and keeps to the best. It tries the others for a bounded share of
//! the time, so that trying never costs more than it can find; what has just been tried and lost is tried again
//! twice as late.
//!
//! Invariants
//! - Epochs spent on other choices than the best known take at most [`SHARE`] of the time, plus one epoch.
//! - A choice replaces the present one only if its progress was better by [`MARGIN`] in two trials.

/// Share of the time that may be spent on trying.
pub const SHARE: f64 = 1.0 / 64.0;
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
    /// The first part of an epoch still sees the work of the choice before; it is not counted.
    settling: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    rate: Option<f64>,
    trials: u32,
    better: u32,
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
            settling: true,
        }
    }

    /// Who should serve now. `done_bytes` is the progress of everybody together so far.
    pub fn judge(&mut self, now_us: u64, done_bytes: u64) -> Serve {
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
                self.decide(now_us.saturating_sub(started_us));
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
            Some(old) if self.trial.is_none() => old + (rate - old) * ALPHA,
            _ => rate,
        });
    }

    fn decide(&mut self, passed_us: u64) {
        if let Some(trial) = self.trial.take() {
            self.settling = true;
            let best = self.rates[self.best].rate.unwrap_or(0.0);
            let known = &mut self.rates[trial];
            known.trials += 1;
            // Both need not be better to come back: they can only win when conditions change.
            let margin = if trial == 0 { 1.0 } else { MARGIN };
            let wins = known.rate.is_some_and(|rate| rate > best * margin);
            known.better = if wins { known.better + 1 } else { 0 };
            if known.better >= 2 {
                known.better = 0;
                self.best = trial;
            } else if wins {
                // Once more, at once: it may have been luck.
                self.next_trial = trial;
                return;
            }
            self.next_trial = (trial + 1) % CHOICES.len();
        }
        if self.next_trial == self.best {
            self.next_trial = (self.best + 1) % CHOICES.len();
        }
        let spent = (self.tried_us + 2 * self.epoch_us) as f64;
        let suspicious = self.rates[self.next_trial].better > 0;
        if suspicious || spent <= passed_us as f64 * SHARE {
            self.trial = Some(self.next_trial);
            self.settling = true;
        }
    }
}
