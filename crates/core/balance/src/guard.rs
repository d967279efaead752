//! The no-regret guard: using two devices together must not be slower than the better one alone.
//!
//! Using both can be slower: feeding the faster device costs the slower one's time, they may share a memory bus or a
//! power limit. No model knows all of that. So the guard measures total progress in short epochs under three choices,
//! *both*, *first* alone and *second* alone, and keeps the best one. It tries the other choices for a bounded share of
//! the time, and only those that could come near the best according to the caller's knowledge of their speed, so that
//! trials cost little even if they find nothing. A choice that lost is tried again later, and the wait doubles with
//! each loss. If epochs under one choice differ from each other, a trial says little: a new choice must then be better
//! by that difference, too.
//!
//! Invariants
//! - Epochs spent on other choices than the best known take at most [`SHARE`] of the time, plus [`CREDIT`] epochs.
//! - A choice replaces the present one only if its progress was better by [`MARGIN`], and by the usual difference of
//!   epochs under one choice, in [`WINS`] trials. *Both* is the exception: it need only be better.
//!
//! Leaves to others: measuring progress and the devices' own speeds, and obeying the choice (the callers).

use crate::constants::guard::{CREDIT, MARGIN, NEAR, QUIET, REST, SHARE, WEIGHT, WINS};

/// Which devices serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serve {
    Both,
    First,
    Second,
}

const CHOICES: [Serve; 3] = [Serve::Both, Serve::First, Serve::Second];

/// Compares choices by their progress.
#[derive(Debug, Clone)]
pub struct Guard {
    epoch_us: u64,
    best: usize,
    /// The choice on trial, if it is not the best one.
    trial: Option<usize>,
    next_trial: usize,
    rates: [ArmHistory; 3],
    started_us: Option<u64>,
    epoch_began: (u64, u64),
    tried_us: u64,
    /// The share by which an epoch under the best choice lately differs from the epochs before it.
    unrest: f64,
    /// The first part of an epoch still contains work of the previous choice; it is not counted.
    settling: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct ArmHistory {
    bytes_per_us: Option<f64>,
    better: u32,
    /// The time before which the choice is not tried again, and the rest after its next loss.
    not_before_us: u64,
    rest_us: u64,
}

impl Guard {
    /// A guard with epochs of `epoch_us`: long compared with one request, short compared with the whole run.
    pub fn new(epoch_us: u64) -> Guard {
        Guard {
            epoch_us: epoch_us.max(1),
            best: 0,
            trial: None,
            next_trial: 1,
            rates: [ArmHistory::default(); 3],
            started_us: None,
            epoch_began: (0, 0),
            tried_us: 0,
            unrest: 0.0,
            settling: true,
        }
    }

    /// Which devices must serve now. `done_bytes` is the total progress so far; `could` is the expected rate of the
    /// first and of the second device alone, in bytes per second.
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

    fn learn(&mut self, bytes_per_us: f64) {
        let known = &mut self.rates[self.trial.unwrap_or(self.best)];
        known.bytes_per_us = Some(match known.bytes_per_us {
            // A choice that is seldom tried is judged by its last epoch.
            Some(old) if self.trial.is_none() => {
                let differs = (bytes_per_us - old).abs() / old.max(f64::MIN_POSITIVE);
                self.unrest += (differs.min(1.0) - self.unrest) * WEIGHT;
                old + (bytes_per_us - old) * WEIGHT
            }
            _ => bytes_per_us,
        });
    }

    fn decide(&mut self, passed_us: u64, could: [f64; 2]) {
        if let Some(trial) = self.trial.take() {
            self.settling = true;
            let best = self.rates[self.best].bytes_per_us.unwrap_or(0.0);
            let known = &mut self.rates[trial];
            // *Both* need not be better by the margin to return: it can only win when conditions change.
            let margin = match trial {
                0 => 1.0,
                _ => MARGIN + self.unrest,
            };
            let wins = known.bytes_per_us.is_some_and(|rate| rate > best * margin);
            known.better = if wins { known.better + 1 } else { 0 };
            known.rest_us = match wins {
                true => 0,
                false => (known.rest_us * 2).max(REST * self.epoch_us),
            };
            known.not_before_us = passed_us + known.rest_us;
            if known.better >= WINS {
                known.better = 0;
                self.best = trial;
            } else if wins {
                // One more trial at once: the result may have been luck.
                self.trial = Some(trial);
                self.settling = false;
                return;
            }
            self.next_trial = (trial + 1) % CHOICES.len();
        }
        let best = self.rates[self.best].bytes_per_us.unwrap_or(0.0);
        // Rates in this file are bytes per microsecond.
        let near = |choice: usize| choice == 0 || could[choice - 1] / 1e6 >= best * NEAR;
        let choices = (0..CHOICES.len()).map(|i| (self.next_trial + i) % CHOICES.len());
        let others: Vec<usize> = choices
            .filter(|c| *c != self.best && near(*c) && passed_us >= self.rates[*c].not_before_us)
            .collect();
        let thought = |choice: &usize| match choice {
            0 => 0.0,
            alone => could[alone - 1],
        };
        // Choices never tried come first, the most promising before the other; then each in turn.
        let new = others
            .iter()
            .copied()
            .filter(|c| self.rates[*c].bytes_per_us.is_none());
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
