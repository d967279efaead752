//! A device model in a file: a first line that names the format, then one `name = value` on each line.
//!
//! The lines of every model come first. Groups of lines follow for what some devices have: measured writes, and limits.
//!
//! Invariants
//! - Reading is strict: a name that is missing, also one of a group of which others are there, unknown or given twice, or a value
//!   outside of its range, is refused, because a policy would act on it for as long as the cache runs.
//! - A model that was written is read as the same one. Without measured writes they take as long as reads.
//! - A model that was read can be computed with: no count is zero, and no unit's time or rate too small for a clock.
//!
//! Leaves to others: measuring and fitting (`measure.rs`, `fit.rs`), and the parameters' meaning (`model`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{OpenHow, Storage, Via};

use super::fit::AcceptedProfile;
use crate::model::{Credit, Op, Profile, ProfileTrust, WriteBuffer};
use crate::policy::LINE_BYTES;

/// The largest value of any parameter, of the units, and of a chunk's bytes.
const VALUE_MAX: f64 = 1e12;
const UNITS_MAX: f64 = 4096.0;
const CHUNK_BYTES_MAX: f64 = 1e9;
/// A time below a clock's nanosecond would never pass, and a lower rate would make times that the clock cannot count.
const VALUE_MIN: f64 = 1e-3;
/// The longest time, in µs: thousands of such requests one behind the other are still counted by the clock.
const TIME_MAX: f64 = 1e7;
/// Smaller chunks would make a request of millions of steps.
const CHUNK_BYTES_MIN: f64 = 512.0;
/// The lowest limit, of commands in a second.
const COMMANDS_MIN: f64 = 1.0;

const HEAD: &str = "longshore device model 1";

/// Why a file is not a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    #[error("the first line is not {HEAD:?}")]
    NoModel,
    #[error("line {line} is not a parameter of a model, or is out of range")]
    Line { line: usize },
    #[error("{name:?} is missing or repeated, or is out of range")]
    Missing { name: &'static str },
    #[error("a device has a buffer of writes or limits, not both")]
    BufferAndLimits,
}

impl BadModel {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            BadModel::NoModel => "`longshore cache calibrate` writes such files",
            BadModel::Line { .. } | BadModel::Missing { .. } | BadModel::BufferAndLimits => {
                "calibrate again"
            }
        }
    }
}

/// The lines of every model, in the order of the file.
const READS: [&str; 8] = [
    "units",
    "chunk_bytes",
    "read_us",
    "fixed_us",
    "read_mb_s",
    "command_bytes",
    "command_us",
    "near_percent",
];
/// The lines of measured writes. A device without a buffer has 0 for both of its lines.
const WRITES: [&str; 5] = [
    "write_us",
    "write_mb_s",
    "own_write_link",
    "buffer_bytes",
    "buffer_ack_us",
];
/// The lines of a limit of bytes, and of one of commands.
const BYTE_CREDIT: [&str; 2] = ["limit_mb_s", "limit_burst_bytes"];
const COMMAND_CREDIT: [&str; 2] = ["limit_commands_s", "limit_burst_commands"];

/// The file's text. `about` is one line for people.
pub fn write_model(accepted: &AcceptedProfile, about: &str) -> String {
    let profile = &accepted.profile;
    let about = about.replace(['\n', '\r'], " ");
    let mut text = format!("{HEAD}\n# {about}\n");
    let mut group = |names: &[&str], values: &[f64]| {
        for (name, value) in names.iter().zip(values) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = {value}");
        }
    };
    let reads = [
        f64::from(profile.units),
        f64::from(profile.chunk_bytes),
        profile.read_us,
        profile.fixed_us,
        profile.read_link,
        f64::from(profile.command_bytes),
        profile.command_us,
        accepted.near * 100.0,
    ];
    group(&READS, &reads);
    let mut cells = accepted.residuals.iter();
    if cells.any(|cell| cell.point.op == Op::Write) {
        let buffer = profile.write_buffer;
        let writes = [
            profile.write_us,
            profile.write_link,
            f64::from(u8::from(!profile.shared_link)),
            buffer.map_or(0.0, |buffer| buffer.bytes),
            buffer.map_or(0.0, |buffer| buffer.ack_us),
        ];
        group(&WRITES, &writes);
    }
    if let Some(credit) = profile.byte_credit {
        group(&BYTE_CREDIT, &[credit.per_us, credit.most]);
    }
    if let Some(credit) = profile.command_credit {
        group(&COMMAND_CREDIT, &[credit.per_us * 1e6, credit.most]);
    }
    text
}

/// The values of a file's lines.
struct Lines(BTreeMap<&'static str, f64>);

impl Lines {
    fn of(text: &str) -> Result<Lines, BadModel> {
        let mut lines = text.lines();
        if lines.next().map(str::trim) != Some(HEAD) {
            return Err(BadModel::NoModel);
        }
        let mut values = BTreeMap::new();
        for (line, content) in (2..).zip(lines) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let bad = BadModel::Line { line };
            let (name, value) = content.split_once('=').ok_or_else(|| bad.clone())?;
            let mut names = [&READS[..], &WRITES, &BYTE_CREDIT, &COMMAND_CREDIT]
                .into_iter()
                .flatten();
            let name = names.find(|known| **known == name.trim());
            let value: f64 = value.trim().parse().map_err(|_| bad.clone())?;
            let name = name.filter(|_| (0.0..=VALUE_MAX).contains(&value));
            let name = name.ok_or(bad)?;
            if values.insert(*name, value).is_some() {
                return Err(BadModel::Missing { name });
            }
        }
        Ok(Lines(values))
    }

    /// Whether any line of a group is there.
    fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(name))
    }

    fn any(&self, name: &'static str) -> Result<f64, BadModel> {
        self.0.get(name).copied().ok_or(BadModel::Missing { name })
    }

    fn within(&self, name: &'static str, least: f64, most: f64) -> Result<f64, BadModel> {
        let found = self.any(name)?;
        match (least..=most).contains(&found) {
            true => Ok(found),
            false => Err(BadModel::Missing { name }),
        }
    }

    /// A rate, with which one can divide.
    fn rate(&self, name: &'static str) -> Result<f64, BadModel> {
        self.within(name, VALUE_MIN, VALUE_MAX)
    }

    /// A time that passes.
    fn time(&self, name: &'static str) -> Result<f64, BadModel> {
        self.within(name, VALUE_MIN, TIME_MAX)
    }

    /// A count. Zero, or more than its field has room for, would make a device that cannot run.
    fn whole(&self, name: &'static str, least: f64, most: f64) -> Result<u32, BadModel> {
        self.within(name, least, most).map(|found| found as u32)
    }

    fn credit(
        &self,
        names: [&'static str; 2],
        (least, unit): (f64, f64),
    ) -> Result<Option<Credit>, BadModel> {
        let credit = || {
            Ok(Credit {
                per_us: self.within(names[0], least, VALUE_MAX)? / unit,
                most: self.any(names[1])?,
            })
        };
        self.has(&names).then(credit).transpose()
    }
}

/// The profile in a file's text. Without measured writes they take as long as reads.
pub fn read_model(text: &str) -> Result<Profile, BadModel> {
    let lines = Lines::of(text)?;
    lines.any("near_percent")?;
    let read_us = lines.time("read_us")?;
    let read_link = lines.rate("read_mb_s")?;
    let mut profile = Profile {
        name: "calibrated",
        standing: ProfileTrust::Calibrated,
        units: lines.whole("units", 1.0, UNITS_MAX)?,
        chunk_bytes: lines.whole("chunk_bytes", CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)?,
        read_us,
        write_us: read_us,
        fixed_us: lines.within("fixed_us", 0.0, TIME_MAX)?,
        read_link,
        write_link: read_link,
        shared_link: true,
        command_bytes: lines
            .whole("command_bytes", 1.0, f64::from(u32::MAX))?
            .max(LINE_BYTES as u32),
        command_us: lines.within("command_us", 0.0, TIME_MAX)?,
        jitter: 0.0,
        tail: None,
        write_buffer: None,
        byte_credit: lines.credit(BYTE_CREDIT, (VALUE_MIN, 1.0))?,
        command_credit: lines.credit(COMMAND_CREDIT, (COMMANDS_MIN, 1e6))?,
    };
    if lines.has(&WRITES) {
        let bytes = lines.any("buffer_bytes")?;
        let ack_us = lines.within("buffer_ack_us", 0.0, TIME_MAX)?.max(VALUE_MIN);
        profile.write_us = lines.time("write_us")?;
        profile.write_link = lines.rate("write_mb_s")?;
        profile.shared_link = lines.any("own_write_link")? == 0.0;
        profile.write_buffer = (bytes >= 1.0).then_some(WriteBuffer { bytes, ack_us });
    }
    let is_limited = profile.byte_credit.or(profile.command_credit).is_some();
    match profile.write_buffer.is_some() && is_limited {
        true => Err(BadModel::BufferAndLimits),
        false => Ok(profile),
    }
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
