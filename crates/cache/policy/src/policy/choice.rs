//! The choice of a policy: a filter, a base list, and whether replacement considers the devices.
//!
//! Invariants
//! - A name has one meaning in the daemon, the simulator and all messages, and a choice is printed by the name from
//!   which it is read.
//! - Only policies that a cache at work may have are here; rivals to compare with are in the lab.
//!
//! Leaves to others: making the policy (`decide.rs`, `filter`, `replace`).

use std::fmt;
use std::str::FromStr;

use super::BaseKind;

/// Where hits are served and which misses are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterChoice {
    /// A classic cache: every hit from the fast side, every miss filled.
    None,
    /// No cache.
    Slow,
    /// Equal loaded latencies.
    Balance,
    /// By size and by the bytes in flight.
    Aware,
}

/// The rules by which blocks stay in the cache, and whether a miss waits for another client's read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub base: BaseKind,
    /// Device-valued replacement; the default with `aware` alone.
    pub valued: bool,
    /// Only slots used clearly more often than their victims are admitted; the default with `aware` alone.
    pub frequent: bool,
    /// A miss waits for another client's read of the same bytes; the default with `aware` alone.
    pub shares: bool,
}

impl Retention {
    /// The least recently used goes, and nobody waits for another.
    pub const LRU: Retention = Retention {
        base: BaseKind::Lru,
        valued: false,
        frequent: false,
        shares: false,
    };
}

/// A policy by its parts: `FILTER[+BASE]`, such as `aware`, `none+arc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub filter: FilterChoice,
    pub keeping: Retention,
}

/// There is no policy of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy {name:?}")]
pub struct UnknownPolicy {
    pub name: String,
}

impl FilterChoice {
    /// All there are.
    pub const ALL: [FilterChoice; 4] = [
        FilterChoice::None,
        FilterChoice::Slow,
        FilterChoice::Balance,
        FilterChoice::Aware,
    ];

    pub fn name(self) -> &'static str {
        match self {
            FilterChoice::None => "none",
            FilterChoice::Slow => "slow",
            FilterChoice::Balance => "balance",
            FilterChoice::Aware => "aware",
        }
    }
}

impl Choice {
    pub fn of(filter: FilterChoice) -> Choice {
        let aware = filter == FilterChoice::Aware;
        Choice {
            filter,
            keeping: Retention {
                valued: aware,
                frequent: aware,
                shares: aware,
                ..Retention::LRU
            },
        }
    }
}

impl fmt::Display for Choice {
    /// In the syntax of [`Choice::from_str`], unless a field was changed by hand.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.filter.name(), self.keeping.base.name())
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
        let named = |choice: &FilterChoice| choice.name() == filter;
        let filter = FilterChoice::ALL.into_iter().find(named);
        let mut choice = Choice::of(filter.ok_or_else(unknown)?);
        if let Some(base) = base {
            choice.keeping.base = BaseKind::named(base).ok_or_else(unknown)?;
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BASES;
    use super::*;

    /// The names that a cache at work accepts. Policies to compare with are the lab's.
    #[test]
    fn a_cache_at_work_knows_four_filters_by_name_and_no_rival() {
        let names = FilterChoice::ALL.map(FilterChoice::name);
        assert_eq!(names, ["none", "slow", "balance", "aware"]);
        for filter in names {
            for base in BASES {
                let name = format!("{filter}+{}", base.name());
                let choice: Choice = name.parse().unwrap();
                assert_eq!(choice.keeping.base, *base, "{name}");
                assert_eq!(choice.to_string(), name);
                assert_eq!(choice.keeping.shares, filter == "aware");
            }
        }
        let choice: Choice = "aware+arc".parse().unwrap();
        assert!(choice.keeping.valued && choice.keeping.frequent);
        for text in [
            "",
            "x",
            "none+x",
            "aware=1",
            "+lru",
            "orthus",
            "split=60",
            "bcache",
            "throttle=1000/50",
            "profile",
            "none-waits",
        ] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
