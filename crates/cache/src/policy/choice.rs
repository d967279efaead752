//! Which policy: a filter, a base list, and whether replacement looks at the devices.

use std::fmt;
use std::str::FromStr;

use super::BaseKind;

/// Where hits are served and what is admitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FilterChoice {
    /// A classic cache: every hit from the fast side, every miss filled.
    None,
    /// No cache.
    Slow,
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
    /// Equal loaded latencies.
    Balance,
    /// By size and by what is in flight.
    Aware,
}

/// How fast Orthus climbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrthusPace {
    /// Probes of 25 ms, as in the paper; it fills again when the climb ended at the top twice in a row.
    Paper,
    /// Probes of 5 ms, the interval of its kernel version; it fills again after ten times at the top.
    Kernel,
}

/// A policy by its parts: `FILTER[+BASE]`, such as `aware`, `none+arc`, `split=60+s3-fifo`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub filter: FilterChoice,
    pub base: BaseKind,
    /// Device-valued replacement; the default with `aware` alone.
    pub valued: bool,
    /// Only what is used clearly more often than its victim comes in; the default with `aware` alone.
    pub frequent: bool,
    /// A miss waits for another client's read of the same bytes; the default with `aware`, and the one thing that
    /// `none-waits` adds to `none`.
    pub shares: bool,
}

/// Whose readers wait for each other's reads, in a study: so that policies can be compared without that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// As each policy does.
    Own,
    All,
    Nobody,
}

impl Sharing {
    pub fn under(self, choice: Choice) -> Choice {
        let shares = match self {
            Sharing::Own => choice.shares,
            Sharing::All => true,
            Sharing::Nobody => false,
        };
        Choice { shares, ..choice }
    }
}

/// There is no policy of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}")]
pub struct UnknownPolicy {
    pub name: String,
}

impl Choice {
    pub fn of(filter: FilterChoice) -> Choice {
        Choice {
            filter,
            base: BaseKind::Lru,
            valued: filter == FilterChoice::Aware,
            frequent: filter == FilterChoice::Aware,
            shares: filter == FilterChoice::Aware,
        }
    }
}

impl fmt::Display for Choice {
    /// As [`Choice::from_str`] takes it, where nothing was changed by hand.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.filter {
            FilterChoice::None if self.shares => write!(f, "none-waits")?,
            FilterChoice::None => write!(f, "none")?,
            FilterChoice::Slow => write!(f, "slow")?,
            FilterChoice::Split(share) => write!(f, "split={}", 100.0 * share)?,
            FilterChoice::Bcache => write!(f, "bcache")?,
            FilterChoice::Throttle {
                requests_per_s,
                mb_per_s,
            } => write!(f, "throttle={requests_per_s}/{mb_per_s}")?,
            FilterChoice::Profile => write!(f, "profile")?,
            FilterChoice::Orthus(OrthusPace::Paper) => write!(f, "orthus")?,
            FilterChoice::Orthus(OrthusPace::Kernel) => write!(f, "orthus-kernel")?,
            FilterChoice::Balance => write!(f, "balance")?,
            FilterChoice::Aware => write!(f, "aware")?,
        }
        write!(f, "+{}", self.base.name())
    }
}

impl FromStr for Choice {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Choice, UnknownPolicy> {
        let unknown = || UnknownPolicy { name: text.into() };
        let (filter, base) = match text.split_once('+') {
            Some((filter, base)) => (filter, Some(base)),
            None => (text, None),
        };
        let waits = filter == "none-waits";
        let filter = match filter.split_once('=') {
            None => match filter {
                "none" | "none-waits" => FilterChoice::None,
                "slow" => FilterChoice::Slow,
                "bcache" => FilterChoice::Bcache,
                "profile" => FilterChoice::Profile,
                "orthus" => FilterChoice::Orthus(OrthusPace::Paper),
                "orthus-kernel" => FilterChoice::Orthus(OrthusPace::Kernel),
                "balance" => FilterChoice::Balance,
                "aware" => FilterChoice::Aware,
                _ => return Err(unknown()),
            },
            Some(("split", percent)) => {
                let percent: f64 = percent.parse().map_err(|_| unknown())?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(unknown());
                }
                FilterChoice::Split(percent / 100.0)
            }
            Some(("throttle", caps)) => {
                let (requests, mb) = caps.split_once('/').ok_or_else(unknown)?;
                let cap = |text: &str| {
                    let cap = text.parse().ok();
                    cap.filter(|cap| (1.0..1e9).contains(cap))
                        .ok_or_else(unknown)
                };
                FilterChoice::Throttle {
                    requests_per_s: cap(requests)?,
                    mb_per_s: cap(mb)?,
                }
            }
            Some(_) => return Err(unknown()),
        };
        let mut choice = Choice::of(filter);
        choice.shares |= waits;
        if let Some(base) = base {
            choice.base = BaseKind::named(base).ok_or_else(unknown)?;
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BASES;
    use super::*;

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
                assert_eq!(choice.base, *base, "{name}");
                assert_eq!(choice.to_string(), name);
                assert_eq!(choice.shares, matches!(filter, "none-waits" | "aware"));
            }
        }
        let choice: Choice = "split=60+s3-fifo".parse().unwrap();
        assert_eq!(
            (choice.filter, choice.base),
            (FilterChoice::Split(0.6), BaseKind::S3Fifo)
        );
        assert!(!choice.valued && "aware+arc".parse::<Choice>().unwrap().valued);
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
