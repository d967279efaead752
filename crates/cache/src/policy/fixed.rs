//! Filters that know little: one side always, a fixed share, or whichever was quicker lately.

use super::{Ended, Filter, Serve, Side, View};
use crate::model::{Nanos, Op};

/// Always the same side: `Fast` is a classic cache, `Slow` is no cache at all.
#[derive(Debug)]
pub struct Fixed(pub Side);

impl Filter for Fixed {
    fn serve(&mut self, _view: &View, _offset: u64, _len: u64) -> Serve {
        Serve::On(self.0)
    }

    fn admits(&mut self, _view: &View, _len: u64) -> bool {
        self.0 == Side::Fast
    }

    fn looked_up(&mut self, _now: Nanos, _len: u64, _hit: bool) {}

    fn ended(&mut self, _ended: &Ended) {}
}

/// A fixed share of the requests goes to the fast side.
#[derive(Debug)]
pub struct Split {
    share: f64,
    /// What the fast side is owed: Bresenham's way of mixing evenly.
    owed: f64,
}

impl Split {
    /// `share`: 0 to 1.
    pub fn new(share: f64) -> Split {
        Split { share, owed: 0.0 }
    }

    pub fn draw(&mut self) -> Side {
        self.owed += self.share;
        if self.owed < 1.0 {
            return Side::Slow;
        }
        self.owed -= 1.0;
        Side::Fast
    }

    pub fn set_share(&mut self, share: f64) {
        self.share = share.clamp(0.0, 1.0);
    }

    pub fn share(&self) -> f64 {
        self.share
    }
}

impl Filter for Split {
    fn serve(&mut self, _view: &View, _offset: u64, _len: u64) -> Serve {
        Serve::On(self.draw())
    }

    fn admits(&mut self, _view: &View, _len: u64) -> bool {
        true
    }

    fn looked_up(&mut self, _now: Nanos, _len: u64, _hit: bool) {}

    fn ended(&mut self, _ended: &Ended) {}
}

/// Moves the share towards the side whose requests took less time.
#[derive(Debug)]
pub struct Balance {
    split: Split,
    /// Mean latency of reads on each side, fast first; 0: none yet.
    mean_us: [f64; 2],
    seen: u32,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance {
            split: Split::new(0.9),
            mean_us: [0.0; 2],
            seen: 0,
        }
    }
}

impl Balance {
    /// Reads between two steps, and how far a step goes. Some of both sides is always measured.
    const ROUND: u32 = 64;
    const STEP: f64 = 0.02;
    const LEAST: f64 = 0.02;
}

impl Filter for Balance {
    fn serve(&mut self, _view: &View, _offset: u64, _len: u64) -> Serve {
        Serve::On(self.split.draw())
    }

    fn admits(&mut self, _view: &View, _len: u64) -> bool {
        true
    }

    fn looked_up(&mut self, _now: Nanos, _len: u64, _hit: bool) {}

    fn ended(&mut self, ended: &Ended) {
        if ended.op != Op::Read {
            return;
        }
        let mean = &mut self.mean_us[usize::from(ended.side == Side::Slow)];
        *mean = if *mean == 0.0 {
            ended.took_us
        } else {
            *mean + (ended.took_us - *mean) / 16.0
        };
        self.seen += 1;
        let [fast, slow] = self.mean_us;
        if self.seen < Balance::ROUND || fast == 0.0 || slow == 0.0 {
            return;
        }
        self.seen = 0;
        let step = if fast < slow {
            Balance::STEP
        } else {
            -Balance::STEP
        };
        let share = (self.split.share() + step).clamp(Balance::LEAST, 1.0 - Balance::LEAST);
        self.split.set_share(share);
    }
}
