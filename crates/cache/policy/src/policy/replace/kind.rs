//! The base lists by name, and the choice among them.

use super::base::Base;
use super::{arc, clock, larc, lru, s3_fifo, sieve, two_q};

/// Which base list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseKind {
    Lru,
    Clock,
    TwoQ,
    Arc,
    Larc,
    S3Fifo,
    Sieve,
}

/// All of them.
pub static BASES: &[BaseKind] = &[
    BaseKind::Lru,
    BaseKind::Clock,
    BaseKind::TwoQ,
    BaseKind::Arc,
    BaseKind::Larc,
    BaseKind::S3Fifo,
    BaseKind::Sieve,
];

impl BaseKind {
    pub fn name(self) -> &'static str {
        match self {
            BaseKind::Lru => "lru",
            BaseKind::Clock => "clock",
            BaseKind::TwoQ => "2q",
            BaseKind::Arc => "arc",
            BaseKind::Larc => "larc",
            BaseKind::S3Fifo => "s3-fifo",
            BaseKind::Sieve => "sieve",
        }
    }

    pub fn named(name: &str) -> Option<BaseKind> {
        BASES.iter().copied().find(|kind| kind.name() == name)
    }

    /// An empty list with room for `slots`, 1 or more.
    pub fn build(self, slots: usize) -> Box<dyn Base> {
        let slots = slots.max(1);
        match self {
            BaseKind::Lru => Box::new(lru::Lru::default()),
            BaseKind::Clock => Box::new(clock::Clock::default()),
            BaseKind::TwoQ => Box::new(two_q::TwoQ::new(slots)),
            BaseKind::Arc => Box::new(arc::Arc::new(slots)),
            BaseKind::Larc => Box::new(larc::Larc::new(slots)),
            BaseKind::S3Fifo => Box::new(s3_fifo::S3Fifo::new(slots)),
            BaseKind::Sieve => Box::new(sieve::Sieve::default()),
        }
    }
}
