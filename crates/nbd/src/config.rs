//! What nbdkit is told on its command line: `key=value`.

use std::io;
use std::path::{Path, PathBuf};

use longshore_blockcache::{Backend, Settings};
use longshore_cache::calibrate::read_model;
use longshore_cache::model::Profile;
use longshore_cache::policy::{Choice, Outlook};
use longshore_io::{Host, OpenHow, Storage, Via};

use crate::emulated::Emulation;

pub const HELP: &str = "\
backend=PATH    what is served: a file or block device (required)
cache=PATH      the cache, made by `longshore cache create`; without it the backend is served as it is
guard=PATH      where the word about the cache is kept [backend's path + .longshore-guard]
policy=NAME     where hits are served and what is kept [balance; with both devices known: aware]
pair=FAST/SLOW  profiles of the cache device and of the backend
fast_model=PATH, slow_model=PATH
                files of `longshore cache calibrate`, in place of the profiles
control=PATH    socket for `longshore cache status` and the like
buffered=BOOL   through the page cache instead of past it [false]
fillers=N       threads that fill the cache [2]
clients=N       requests served at once [16]
emulate=F/S@N   for measurements: answer as late as these profiles would, N times slower; - is the host";

/// As the command line gives it, checked one by one.
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
    emulation: Option<Emulation>,
}

/// Everything that serving needs.
pub struct Plan {
    pub backend: Backend,
    pub cache: Option<PathBuf>,
    pub control: Option<PathBuf>,
    pub settings: Settings,
    pub emulation: Option<Emulation>,
}

/// With nothing known of the devices, policies that need to know are not the default.
const UNKNOWN: &str = "balance";
const KNOWN: &str = "aware";
/// What a policy is told of devices that nobody named: a current NVMe drive before an older one. `balance` measures.
const GUESS: (&str, &str) = ("nvme-pcie5", "samsung-970pro");

impl Config {
    /// Takes one setting. The error says what is wrong with it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        // nbdkit changes its directory when it goes into the background.
        let path = || std::path::absolute(value).map_err(|e| format!("{key}: {e}"));
        match key {
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
                    _ => return Err(format!("buffered: {value:?} is neither true nor false")),
                }
            }
            "fillers" => self.fillers = Some(number(key, value, 0, 64)?),
            "clients" => self.clients = Some(number(key, value, 1, 256)?),
            "emulate" => self.emulation = Some(Emulation::parse(value)?),
            _ => return Err(format!("there is no setting {key:?}")),
        }
        Ok(())
    }

    pub fn plan(&self) -> Result<Plan, String> {
        let path = self.backend.clone().ok_or("backend=PATH is required")?;
        let named = self.pair;
        let fast = self.fast_model.or(named.map(|(fast, _)| fast));
        let slow = self.slow_model.or(named.map(|(_, slow)| slow));
        let known = fast.is_some() && slow.is_some();
        if !known && (fast.is_some() || slow.is_some()) {
            return Err("one model alone: name the other device's, too, or a pair".into());
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
        Ok(Plan {
            backend: Backend {
                path,
                guard: self.guard.clone(),
            },
            cache: self.cache.clone(),
            control: self.control.clone(),
            emulation: self.emulation.clone(),
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
    parsed.ok_or_else(|| format!("{key}: {value:?} is no number from {least} to {most}"))
}

fn profile(name: &str) -> Result<Outlook, String> {
    let profile =
        Profile::named(name).ok_or_else(|| format!("pair: there is no profile {name:?}"))?;
    Ok(Outlook::of(profile))
}

fn pair(value: &str) -> Result<(Outlook, Outlook), String> {
    let (fast, slow) = value
        .split_once('/')
        .ok_or_else(|| format!("pair: {value:?} is not FAST/SLOW"))?;
    Ok((profile(fast)?, profile(slow)?))
}

/// Longer files are none of ours.
const MODEL_BYTES_MAX: u64 = 64 << 10;

fn read(path: &Path) -> io::Result<String> {
    let storage = Host::new();
    let path = storage.canonical(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let file = storage.dir(parent)?.open(Path::new(name), OpenHow::Read)?;
    let len = file.stat()?.len.min(MODEL_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(read);
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn model(key: &str, path: &Path) -> Result<Outlook, String> {
    let shown = path.display();
    let text = read(path).map_err(|e| format!("{key}: {shown} cannot be read: {e}"))?;
    let profile =
        read_model(&text).map_err(|e| format!("{key}: {shown} is no model: {e}; {}", e.hint()))?;
    Ok(Outlook::of(&profile))
}
