//! The devices and the settings of the figures.
//!
//! Leaves to others: the parameters of the devices (`longshore-policy`).

use anyhow::{Context, Result};
use longshore_policy::model::Profile;

/// The settings of the figures.
#[derive(Debug, Clone)]
pub struct FiguresSpec {
    pub seed: u64,
    /// Shorter runs: for tests.
    pub quick: bool,
}

/// The published pair, and the one of the last figure, whose devices take fewer steps to simulate.
pub(super) const PAPER: (&str, &str) = ("optane-905p", "samsung-970pro");
pub(super) const REVERSED: (&str, &str) = ("ec2-local-nvme", "ebs-gp3-max");

/// Two devices, and their names in texts.
#[derive(Debug, Clone)]
pub(crate) struct Devices<'a> {
    pub fast: &'a Profile,
    pub slow: &'a Profile,
    pub fast_name: &'a str,
    pub slow_name: &'a str,
}

pub(super) fn devices(
    (fast_name, slow_name): (&'static str, &'static str),
) -> Result<Devices<'static>> {
    let named = |name: &str| Profile::named(name).with_context(|| format!("no profile {name}"));
    Ok(Devices {
        fast: named(fast_name)?,
        slow: named(slow_name)?,
        fast_name,
        slow_name,
    })
}

/// The published pair, by the names that the study has for it.
pub(super) fn published() -> Result<Devices<'static>> {
    Ok(Devices {
        fast_name: "Optane",
        slow_name: "flash",
        ..devices(PAPER)?
    })
}
