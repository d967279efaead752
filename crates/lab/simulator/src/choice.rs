//! Which policy is simulated: one of the daemon's, or a rival.
//!
//! Invariants
//! - Names are those of `--policy`: FILTER or FILTER+BASE. A name of the daemon means the daemon's own code.
//! - Rivals exist here only, to be compared with; the daemon cannot be given one.
//!
//! Leaves to others: the daemon's own choices (`longshore-policy`), and the rivals' code (`rivals`).

use std::fmt;
use std::str::FromStr;

use longshore_policy::policy::filter::{Filter, Sides};
use longshore_policy::policy::{self, BaseKind, Outlook, Policy, Retention, UnknownPolicy};

use crate::rivals::{self, OrthusPace};

/// Where hits are served and what is admitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FilterChoice {
    /// As in the daemon.
    Own(policy::FilterChoice),
    /// A fixed share of the hits from the fast side, 0 to 1.
    Split(f64),
    /// Long streams bypass the cache, and some requests while it is congested, as in bcache.
    Bcache,
    /// Caps on what the fast side serves.
    Throttle { requests_per_s: f64, mb_per_s: f64 },
    /// The share of the bandwidths in a profile.
    Profile,
    /// Hill climbing along one share.
    Orthus(OrthusPace),
}

/// A policy by its parts: `FILTER[+BASE]`, such as `aware`, `none+arc`, `split=60+s3-fifo`.
///
/// `none-waits` is `none` whose misses wait for another client's read of the same bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub filter: FilterChoice,
    pub keeping: Retention,
}

/// Whose readers wait for each other's reads, in a study: so that policies can be compared without that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedReads {
    /// As each policy does.
    Own,
    All,
    Nobody,
}

impl SharedReads {
    pub fn under(self, choice: Choice) -> Choice {
        let shares = match self {
            SharedReads::Own => choice.keeping.shares,
            SharedReads::All => true,
            SharedReads::Nobody => false,
        };
        Choice {
            keeping: Retention {
                shares,
                ..choice.keeping
            },
            ..choice
        }
    }
}

impl From<policy::Choice> for Choice {
    fn from(own: policy::Choice) -> Choice {
        Choice {
            filter: FilterChoice::Own(own.filter),
            keeping: own.keeping,
        }
    }
}

impl From<policy::FilterChoice> for Choice {
    fn from(own: policy::FilterChoice) -> Choice {
        policy::Choice::of(own).into()
    }
}

impl Choice {
    pub fn of(filter: FilterChoice) -> Choice {
        match filter {
            FilterChoice::Own(own) => own.into(),
            _ => Choice {
                filter,
                keeping: Retention::LRU,
            },
        }
    }

    /// As [`Policy::new`].
    pub fn build(self, fast: Outlook, slow: Outlook, slots: usize, slot_bytes: u64) -> Policy {
        let filter = self.filter.build(Sides { fast, slow });
        Policy::with(filter, self.keeping, slots, slot_bytes)
    }
}

impl FilterChoice {
    pub(crate) fn build(self, sides: Sides) -> Box<dyn Filter> {
        match self {
            FilterChoice::Own(own) => own.build(sides),
            FilterChoice::Split(share) => Box::new(rivals::split(share, sides)),
            FilterChoice::Bcache => Box::new(rivals::Bcache::new(sides)),
            FilterChoice::Throttle {
                requests_per_s,
                mb_per_s,
            } => Box::new(rivals::Throttle::new(requests_per_s, mb_per_s * 1e6, sides)),
            FilterChoice::Profile => Box::new(rivals::profiled(sides)),
            FilterChoice::Orthus(pace) => Box::new(rivals::Orthus::new(pace, sides)),
        }
    }
}

impl fmt::Display for Choice {
    /// As [`Choice::from_str`] takes it, where nothing was changed by hand.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.filter {
            FilterChoice::Own(policy::FilterChoice::None) if self.keeping.shares => {
                write!(f, "{WAITS}")?;
            }
            FilterChoice::Own(own) => write!(f, "{}", own.name())?,
            FilterChoice::Split(share) => write!(f, "split={}", 100.0 * share)?,
            FilterChoice::Bcache => write!(f, "bcache")?,
            FilterChoice::Throttle {
                requests_per_s,
                mb_per_s,
            } => write!(f, "throttle={requests_per_s}/{mb_per_s}")?,
            FilterChoice::Profile => write!(f, "profile")?,
            FilterChoice::Orthus(OrthusPace::Paper) => write!(f, "orthus")?,
            FilterChoice::Orthus(OrthusPace::Kernel) => write!(f, "orthus-kernel")?,
        }
        write!(f, "+{}", self.keeping.base.name())
    }
}

/// A classic cache that waits.
const WAITS: &str = "none-waits";

impl FromStr for Choice {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Choice, UnknownPolicy> {
        if let Ok(own) = text.parse::<policy::Choice>() {
            return Ok(own.into());
        }
        let unknown = || UnknownPolicy { name: text.into() };
        let (filter, base) = match text.split_once('+') {
            Some((filter, base)) => (filter, Some(base)),
            None => (text, None),
        };
        let mut choice = match filter.split_once('=') {
            None if filter == WAITS => SharedReads::All.under(policy::FilterChoice::None.into()),
            None => Choice::of(match filter {
                "bcache" => FilterChoice::Bcache,
                "profile" => FilterChoice::Profile,
                "orthus" => FilterChoice::Orthus(OrthusPace::Paper),
                "orthus-kernel" => FilterChoice::Orthus(OrthusPace::Kernel),
                _ => return Err(unknown()),
            }),
            Some(("split", percent)) => {
                let percent: f64 = percent.parse().map_err(|_| unknown())?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(unknown());
                }
                Choice::of(FilterChoice::Split(percent / 100.0))
            }
            Some(("throttle", caps)) => {
                let (requests, mb) = caps.split_once('/').ok_or_else(unknown)?;
                let cap = |text: &str| {
                    let cap = text.parse().ok();
                    cap.filter(|cap| (1.0..1e9).contains(cap))
                        .ok_or_else(unknown)
                };
                Choice::of(FilterChoice::Throttle {
                    requests_per_s: cap(requests)?,
                    mb_per_s: cap(mb)?,
                })
            }
            Some(_) => return Err(unknown()),
        };
        if let Some(base) = base {
            choice.keeping.base = BaseKind::named(base).ok_or_else(unknown)?;
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_policy::policy::BASES;

    #[test]
    fn policies_are_named_by_filter_and_base_and_others_refused() {
        for filter in [
            "none",
            "none-waits",
            "slow",
            "bcache",
            "throttle=1000/50",
            "split=60",
            "orthus",
            "orthus-kernel",
            "profile",
            "balance",
            "aware",
        ] {
            for base in BASES {
                let name = format!("{filter}+{}", base.name());
                let choice: Choice = name.parse().unwrap();
                assert_eq!(choice.keeping.base, *base, "{name}");
                assert_eq!(choice.to_string(), name);
                assert_eq!(
                    choice.keeping.shares,
                    matches!(filter, "none-waits" | "aware")
                );
            }
        }
        let choice: Choice = "split=60+s3-fifo".parse().unwrap();
        assert_eq!(
            (choice.filter, choice.keeping.base),
            (FilterChoice::Split(0.6), BaseKind::S3Fifo)
        );
        assert!(!choice.keeping.valued && "aware+arc".parse::<Choice>().unwrap().keeping.valued);
        for text in [
            "",
            "x",
            "none+x",
            "split",
            "split=101",
            "split=nan",
            "aware=1",
            "throttle=1",
            "throttle=0/1",
            "throttle=1/inf",
            "+lru",
        ] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
