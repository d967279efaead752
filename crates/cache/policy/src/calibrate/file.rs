//! A device model in a file: a first line that names the format, then one `name = value` on each line.
//!
//! Invariants
//! - Reading is strict: a name that is missing, unknown or given twice, or a value outside of its range, is refused,
//!   because a policy would act on it for as long as the cache runs.
//! - A model that was written is read as the same one, except that writes take as long as reads.
//! - A model that was read can be computed with: no count is zero, and no unit's time or rate too small for a clock.
//!
//! Leaves to others: measuring and fitting (`measure.rs`, `fit.rs`), and the parameters' meaning (`model`).

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{OpenHow, Storage, Via};

use crate::model::{Profile, ProfileTrust};
use crate::policy::LINE_BYTES;

/// The largest value of any parameter, of the units, and of a chunk's bytes.
const VALUE_MAX: f64 = 1e12;
const UNITS_MAX: f64 = 4096.0;
const CHUNK_BYTES_MAX: f64 = 1e9;
/// Smaller times and rates would make times that a clock cannot count.
const VALUE_MIN: f64 = 1e-6;

const HEAD: &str = "longshore device model 1";

/// Why a file is not a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    #[error("the first line is not {HEAD:?}")]
    NoModel,
    #[error("line {line} is not a parameter of a model, or is out of range")]
    Line { line: usize },
    #[error("{name:?} is missing or repeated")]
    Missing { name: &'static str },
}

impl BadModel {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            BadModel::NoModel => "`longshore cache calibrate` writes such files",
            BadModel::Line { .. } | BadModel::Missing { .. } => "calibrate again",
        }
    }
}

/// The fields of a fitted profile, in the order of the file.
const NAMES: [&str; 8] = [
    "units",
    "chunk_bytes",
    "read_us",
    "fixed_us",
    "read_mb_s",
    "command_bytes",
    "command_us",
    "near_percent",
];

/// The file's text. `about` is one line for people; `near` is the share of the measured cells that were within 15 %.
pub fn write_model(profile: &Profile, near: f64, about: &str) -> String {
    let values = [
        f64::from(profile.units),
        f64::from(profile.chunk_bytes),
        profile.read_us,
        profile.fixed_us,
        profile.read_link,
        f64::from(profile.command_bytes),
        profile.command_us,
        near * 100.0,
    ];
    let about = about.replace(['\n', '\r'], " ");
    let mut text = format!("{HEAD}\n# {about}\n");
    for (name, value) in NAMES.iter().zip(values) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}

/// The profile in a file's text. Writes take as long as reads.
pub fn read_model(text: &str) -> Result<Profile, BadModel> {
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some(HEAD) {
        return Err(BadModel::NoModel);
    }
    let mut values = [None; NAMES.len()];
    for (line, content) in (2..).zip(lines) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let bad = BadModel::Line { line };
        let (name, value) = content.split_once('=').ok_or_else(|| bad.clone())?;
        let at = NAMES.iter().position(|known| *known == name.trim());
        let value: f64 = value.trim().parse().map_err(|_| bad.clone())?;
        let at = at
            .filter(|_| (0.0..=VALUE_MAX).contains(&value))
            .ok_or(bad)?;
        if values[at].replace(value).is_some() {
            return Err(BadModel::Missing { name: NAMES[at] });
        }
    }
    let value = |at: usize| values[at].ok_or(BadModel::Missing { name: NAMES[at] });
    // Zero counts, or counts too large for their field, would make a device that cannot run.
    let whole = |at: usize, most: f64| {
        let found = value(at)?;
        match (1.0..=most).contains(&found) {
            true => Ok(found as u32),
            false => Err(BadModel::Missing { name: NAMES[at] }),
        }
    };
    let positive = |at: usize| match value(at)? {
        found if found >= VALUE_MIN => Ok(found),
        _ => Err(BadModel::Missing { name: NAMES[at] }),
    };
    value(7)?;
    Ok(Profile {
        name: "calibrated",
        standing: ProfileTrust::Calibrated,
        units: whole(0, UNITS_MAX)?,
        chunk_bytes: whole(1, CHUNK_BYTES_MAX)?,
        read_us: positive(2)?,
        write_us: positive(2)?,
        fixed_us: value(3)?,
        read_link: positive(4)?,
        write_link: positive(4)?,
        shared_link: true,
        command_bytes: whole(5, f64::from(u32::MAX))?.max(LINE_BYTES as u32),
        command_us: value(6)?,
        jitter: 0.0,
        tail: None,
        write_buffer: None,
    })
}

/// A model file is some hundred bytes.
const MODEL_BYTES_MAX: u64 = 64 << 10;

/// Why a path leads to no model.
#[derive(Debug, thiserror::Error)]
pub enum NoModelAt {
    #[error("{} cannot be read: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a model: {why}", path.display())]
    Bad { path: PathBuf, why: BadModel },
}

impl NoModelAt {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            NoModelAt::Io { .. } => BadModel::NoModel.hint(),
            NoModelAt::Bad { why, .. } => why.hint(),
        }
    }
}

/// The profile in the model file at `path`.
pub fn model_at(path: &Path, storage: &dyn Storage) -> Result<Profile, NoModelAt> {
    let text = text_at(path, storage).map_err(|source| NoModelAt::Io {
        path: path.to_owned(),
        source,
    })?;
    read_model(&text).map_err(|why| NoModelAt::Bad {
        path: path.to_owned(),
        why,
    })
}

fn text_at(path: &Path, storage: &dyn Storage) -> io::Result<String> {
    let path = storage.canonical(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let file = storage.dir(parent)?.open(Path::new(name), OpenHow::Read)?;
    let mut bytes = vec![0; file.stat()?.len.min(MODEL_BYTES_MAX) as usize];
    let read = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
}
