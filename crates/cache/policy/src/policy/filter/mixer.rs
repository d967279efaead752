//! Two sides mixed by a share.

/// More than the rounding errors of one round of shares.
const ROUNDING: f64 = 1e-9;

/// Mixes two sides evenly by a share, after Bresenham.
#[derive(Debug, Clone, Copy)]
pub struct Mixer {
    share: f64,
    /// The balance in favour of the fast side.
    owed: f64,
}

impl Mixer {
    /// `share`: 0 to 1.
    pub fn new(share: f64) -> Mixer {
        let share = share.clamp(0.0, 1.0);
        Mixer { share, owed: 0.0 }
    }

    /// Whether the next request goes to the fast side.
    pub fn draw(&mut self) -> bool {
        self.owed += self.share;
        // As many shares as make a whole one add up to a little less.
        if self.owed < 1.0 - ROUNDING {
            return false;
        }
        self.owed -= 1.0;
        true
    }

    pub fn set_share(&mut self, share: f64) {
        self.share = share.clamp(0.0, 1.0);
    }

    pub fn share(&self) -> f64 {
        self.share
    }
}
