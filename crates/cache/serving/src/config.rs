//! nbdkit's command line for the plugin: `key=value`.
//!
//! Invariants
//! - Each setting is checked by itself when it comes, and their combination once at the end, before nbdkit goes into
//!   the background: after that nobody reads an error.
//! - Paths are made absolute, since nbdkit changes its directory.
//! - Without models of both devices the default policy is one that does not need them.
//!
//! Leaves to others: opening what the settings name (`served.rs`).

use std::path::{Path, PathBuf};

use longshore_blockcache::format::FORM;
use longshore_blockcache::{Backend, Settings};
use longshore_io::{Host, Via};
use longshore_policy::calibrate::model_at;
use longshore_policy::model::Profile;
use longshore_policy::policy::{Choice, Outlook};

pub const HELP: &str = "\
backend=PATH    the backend: a file or block device (required)
cache=PATH      the cache, made by `longshore cache create`; without it the backend is served without a cache
guard=PATH      the guard file [backend's path + .longshore-guard]
policy=NAME     where hits are served and what is kept [balance; with both devices known: aware]
pair=FAST/SLOW  profiles of the cache device and of the backend
fast_model=PATH, slow_model=PATH
                files of `longshore cache calibrate`, in place of the profiles
control=PATH    socket for `longshore cache status` and the like
buffered=BOOL   through the page cache instead of past it [false]
fillers=N       threads that fill the cache [2]
clients=N       requests of one connection served at once [16]
form=NAME       the form of caches that the program knows; refused if this plugin has another one";

/// The settings of the command line, each checked by itself.
#[derive(Debug, Clone, Default)]
pub struct Config {
    backend: Option<PathBuf>,
    pub cache: Option<PathBuf>,
    guard: Option<PathBuf>,
    policy: Option<Choice>,
    pair: Option<(Outlook, Outlook)>,
    fast_model: Option<Outlook>,
    slow_model: Option<Outlook>,
    pub control: Option<PathBuf>,
    buffered: bool,
    fillers: Option<usize>,
    clients: Option<usize>,
}

/// Everything needed for serving.
pub struct ServingPlan {
    pub backend: Backend,
    pub cache: Option<PathBuf>,
    pub control: Option<PathBuf>,
    pub settings: Settings,
}

/// If the devices are unknown, the default is a policy that does not need to know them.
const UNKNOWN: &str = "balance";
const KNOWN: &str = "aware";
/// The devices assumed if none are named: a current NVMe drive in front of an older one. `balance` measures.
const GUESS: (&str, &str) = ("nvme-pcie5", "samsung-970pro");

impl Config {
    /// Takes one setting. The error says what is wrong with it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        // nbdkit changes its directory when it goes into the background.
        let path = || std::path::absolute(value).map_err(|e| format!("{key}: {e}"));
        match key {
            "form" if value == FORM => {}
            "form" => {
                return Err(format!(
                    "this plugin has caches of the form {FORM}, and the program has {value}: install both of one version"
                ));
            }
            "backend" => self.backend = Some(path()?),
            "cache" => self.cache = Some(path()?),
            "guard" => self.guard = Some(path()?),
            "control" => self.control = Some(path()?),
            "policy" => {
                self.policy = Some(value.parse().map_err(|e| format!("policy: {e}"))?);
            }
            "pair" => self.pair = Some(pair(value)?),
            "fast_model" => self.fast_model = Some(model(key, &path()?)?),
            "slow_model" => self.slow_model = Some(model(key, &path()?)?),
            "buffered" => {
                self.buffered = match value {
                    "true" | "yes" | "1" => true,
                    "false" | "no" | "0" => false,
                    _ => return Err(format!("buffered: {value:?} is not true or false")),
                }
            }
            "fillers" => self.fillers = Some(number(key, value, 0, 64)?),
            "clients" => self.clients = Some(number(key, value, 1, 256)?),
            _ => return Err(format!("unknown setting {key:?}")),
        }
        Ok(())
    }

    pub fn plan(&self) -> Result<ServingPlan, String> {
        let path = self.backend.clone().ok_or("backend=PATH is required")?;
        let named = self.pair;
        let fast = self.fast_model.or(named.map(|(fast, _)| fast));
        let slow = self.slow_model.or(named.map(|(_, slow)| slow));
        let known = fast.is_some() && slow.is_some();
        if !known && (fast.is_some() || slow.is_some()) {
            return Err(
                "one model alone is not enough: name the other device's model, too, or a pair"
                    .into(),
            );
        }
        let guess = |outlook: Option<Outlook>, name| outlook.map_or_else(|| profile(name), Ok);
        let (fast, slow) = (guess(fast, GUESS.0)?, guess(slow, GUESS.1)?);
        let choice = match self.policy {
            Some(choice) => choice,
            None if known => KNOWN.parse().map_err(|e| format!("{e}"))?,
            None => UNKNOWN.parse().map_err(|e| format!("{e}"))?,
        };
        let via = if self.buffered {
            Via::Cache
        } else {
            Via::Direct
        };
        Ok(ServingPlan {
            backend: Backend {
                path,
                guard: self.guard.clone(),
            },
            cache: self.cache.clone(),
            control: self.control.clone(),
            settings: Settings {
                choice,
                fast,
                slow,
                fast_via: via,
                slow_via: via,
                fillers: self.fillers.unwrap_or(2),
                clients: self.clients.unwrap_or(16),
            },
        })
    }
}

fn number(key: &str, value: &str, least: usize, most: usize) -> Result<usize, String> {
    let parsed = value.parse().ok().filter(|n| (least..=most).contains(n));
    parsed.ok_or_else(|| format!("{key}: {value:?} is not a number from {least} to {most}"))
}

fn profile(name: &str) -> Result<Outlook, String> {
    let profile = Profile::named(name).ok_or_else(|| format!("pair: unknown profile {name:?}"))?;
    Ok(profile.outlook())
}

fn pair(value: &str) -> Result<(Outlook, Outlook), String> {
    let (fast, slow) = value
        .split_once('/')
        .ok_or_else(|| format!("pair: {value:?} is not FAST/SLOW"))?;
    Ok((profile(fast)?, profile(slow)?))
}

fn model(key: &str, path: &Path) -> Result<Outlook, String> {
    let profile = model_at(path, &Host::new()).map_err(|e| format!("{key}: {e}; {}", e.hint()))?;
    Ok(profile.outlook())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_version_is_refused() {
        let mut config = Config::default();
        config.set("form", FORM).unwrap();
        let refused = config.set("form", "LSCACHE9").unwrap_err();
        assert!(refused.contains("install both of one version"), "{refused}");
    }
}
