//! Which policy: a filter, a base list, and whether replacement looks at the devices.

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
    /// Hill climbing along one share.
    Orthus,
    /// Equal loaded latencies.
    Balance,
    /// By size and by what is in flight.
    Aware,
}

/// Names and meanings of the filters.
pub static FILTERS: &[(&str, &str)] = &[
    ("none", "a classic cache: every hit from the cache device"),
    ("slow", "no cache"),
    ("split=P", "P percent of the hits from the cache device"),
    (
        "orthus",
        "one serving share by hill climbing, with the constants of its code",
    ),
    (
        "balance",
        "the share at which both devices answer equally fast",
    ),
    ("aware", "by size and by what is in flight on both devices"),
];

/// A policy by its parts: `FILTER[+BASE]`, such as `aware`, `none+arc`, `split=60+s3-fifo`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub filter: FilterChoice,
    pub base: BaseKind,
    /// Device-valued replacement; the default with `aware` alone.
    pub valued: bool,
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
        }
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
        let filter = match filter.split_once('=') {
            None => match filter {
                "none" => FilterChoice::None,
                "slow" => FilterChoice::Slow,
                "orthus" => FilterChoice::Orthus,
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
            Some(_) => return Err(unknown()),
        };
        let mut choice = Choice::of(filter);
        if let Some(base) = base {
            choice.base = BaseKind::named(base).ok_or_else(unknown)?;
        }
        Ok(choice)
    }
}
