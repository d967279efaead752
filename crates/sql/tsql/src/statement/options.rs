//! The options of BACKUP and RESTORE as values, checked.
//!
//! Invariants
//! - The match over [`Key`] has no default arm: an option added to the table must get a meaning here.
//! - The table decides earlier which options are refused.
//!
//! Leaves to others: the table of options (`syntax/option.rs`), and parsing.

use longshore_codec::{Algorithm, Level};
use longshore_media::header::PARITY_MAX;
use longshore_media::{DeviceSpec, Scheme};
use longshore_pipeline::{Limits, Tuning};

use super::operand::operand_text;
use crate::convert::convert;
use crate::dates::{DateOrder, reordered};
use crate::message::{self, Message};
use crate::server::moment_us;
use crate::session::Session;
use crate::syntax::{
    Applies, Compression, Fate, Key, LevelWord, Operand, Setting, SettingValue, Spec,
};
use crate::value::{Type, Value};

/// The kind of devices that a statement names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Destination {
    #[default]
    Files,
    /// Objects of S3.
    S3,
    /// Objects of other stores.
    Objects,
}

impl Destination {
    pub fn of(devices: &[DeviceSpec]) -> Destination {
        match devices.first() {
            Some(DeviceSpec::Bucket(address)) => match address.parts() {
                Ok((Scheme::S3, _, _)) => Destination::S3,
                _ => Destination::Objects,
            },
            _ => Destination::Files,
        }
    }
}

/// The options of one statement; `None` and `false` if not given.
#[derive(Debug, Default)]
pub struct Options {
    /// The devices decide what sizes there are.
    to: Destination,
    pub block_size: Option<i64>,
    pub buffer_count: Option<usize>,
    pub buffer_bytes: Option<usize>,
    /// MAXTRANSFERSIZE where the devices are objects: the size of a part.
    pub part_bytes: Option<u64>,
    pub compression: Option<CompressionChoice>,
    pub continue_after_error: bool,
    pub copy_only: bool,
    /// How many of the devices, the last ones, get parity of the others.
    pub parity: u16,
    /// How many of them may fail meanwhile.
    pub tolerated: u16,
    pub description: Option<String>,
    pub differential: bool,
    /// Microseconds since 1970, like the next one.
    pub expires: Option<i64>,
    pub position: Option<u32>,
    pub format: bool,
    pub init: bool,
    pub skip: bool,
    pub load_history: bool,
    pub max_cpu_percent: Option<f64>,
    pub max_rate: Option<u64>,
    pub media_description: Option<String>,
    pub media_name: Option<String>,
    pub moves: Vec<(String, String)>,
    pub name: Option<String>,
    pub encryption: Option<EncryptionChoice>,
    pub no_recovery: bool,
    pub replace: bool,
    pub retain_days: Option<u32>,
    /// Percent.
    pub stats: Option<u8>,
    pub stop_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionChoice {
    Off,
    /// The server chooses the algorithm.
    On,
    Named {
        algorithm: Algorithm,
        level: Option<Level>,
    },
}

/// WITH ENCRYPTION
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionChoice {
    /// The cipher that the statement names.
    pub algorithm: String,
    /// The name of the certificate.
    pub certificate: String,
}

/// SQL Server's limits for a part of an object, in bytes.
const S3_PART_MIN: i64 = 5 << 20;
const PART_MAX: i64 = 20 << 20;
/// SQL Server's limits, in characters.
const NAME_MAX: usize = 128;
const DESCRIPTION_MAX: usize = 255;
const STATS_USUAL: u8 = 10;
/// The most MOVE options of one statement.
const MOVES_MAX: usize = 1024;
/// The highest RETAINDAYS.
const DAYS_MAX: i64 = 99_999;

/// Options of which a statement may have only one.
const EITHER: &[&[Key]] = &[
    &[Key::Checksum, Key::NoChecksum],
    &[Key::Compression, Key::NoCompression],
    &[Key::Format, Key::NoFormat],
    &[Key::Format, Key::NoSkip],
    &[Key::Init, Key::NoInit],
    &[Key::Rewind, Key::NoRewind],
    &[Key::Skip, Key::NoSkip],
    &[Key::StopOnError, Key::ContinueAfterError],
    &[Key::Unload, Key::NoUnload],
    &[Key::Recovery, Key::NoRecovery, Key::Standby],
    &[Key::StopAt, Key::StopAtMark, Key::StopBeforeMark],
    &[Key::EnableBroker, Key::ErrorBroker, Key::NewBroker],
];

impl Options {
    /// Reads the options of a statement. Errors: 3031, 3032 and those for invalid values; after 3032 the reason.
    pub fn of(
        session: &Session,
        settings: &[Setting],
        statement: Applies,
        devices: &[DeviceSpec],
    ) -> Result<Options, Vec<Message>> {
        check_conflicts(settings).map_err(|conflict| vec![conflict])?;
        let mut options = Options {
            to: Destination::of(devices),
            ..Options::default()
        };
        for setting in settings {
            let spec = setting.key.spec();
            if !spec.applies.has(statement) {
                return Err(vec![unsupported(spec)]);
            }
            let fate = match statement.has(Applies::BACKUP) {
                true => spec.in_backup,
                false => spec.in_restore,
            };
            if let Fate::Refused(reason) = fate {
                return Err(refused(spec.word, reason));
            }
            let taken = options.take(&OptionUse { session, setting });
            taken.map_err(|wrong| vec![wrong])?;
        }
        Ok(options)
    }

    fn take(&mut self, given: &OptionUse) -> Result<(), Message> {
        let key = given.setting.key;
        match key {
            Key::BlockSize => self.block_size = Some(given.block_size()?),
            Key::BufferCount => {
                self.buffer_count = Some(given.within(1, i64::from(i32::MAX))? as usize);
            }
            Key::MaxTransferSize => match given.transfer_size(self.to)? {
                size if size > Tuning::BUFFER_MAX => self.part_bytes = Some(size as u64),
                size => self.buffer_bytes = Some(size),
            },
            Key::Compression => self.compression = Some(given.compression()?),
            Key::NoCompression => self.compression = Some(CompressionChoice::Off),
            Key::ContinueAfterError => self.continue_after_error = true,
            Key::CopyOnly => self.copy_only = true,
            Key::Parity => self.parity = given.within(0, i64::from(PARITY_MAX))? as u16,
            Key::Tolerate => self.tolerated = given.within(0, i64::from(PARITY_MAX))? as u16,
            Key::Differential => self.differential = true,
            Key::Description => self.description = Some(given.text(DESCRIPTION_MAX)?),
            Key::ExpireDate => self.expires = Some(given.moment()?),
            Key::File => self.position = Some(given.within(1, i64::from(i32::MAX))? as u32),
            Key::Format => self.format = true,
            Key::Init => self.init = true,
            Key::Skip => self.skip = true,
            Key::LoadHistory => self.load_history = true,
            Key::MaxCpuPercent => self.max_cpu_percent = Some(given.within(1, 100)? as f64),
            Key::MaxRate => self.max_rate = Some(given.within(1, i64::MAX)? as u64),
            Key::MediaDescription => self.media_description = Some(given.text(DESCRIPTION_MAX)?),
            Key::MediaName => self.media_name = Some(given.text(NAME_MAX)?),
            Key::Move => self.take_move(given)?,
            Key::Name => self.name = Some(given.text(NAME_MAX)?),
            Key::Encryption => self.encryption = Some(given.encryption()?),
            Key::NoRecovery => self.no_recovery = true,
            Key::Replace => self.replace = true,
            Key::RetainDays => self.retain_days = Some(given.within(0, DAYS_MAX)? as u32),
            Key::Stats => self.stats = Some(given.stats()?),
            Key::StopAt => self.stop_at = Some(given.moment()?),
            // The opposites of the above are the defaults.
            Key::NoFormat | Key::NoInit | Key::NoSkip | Key::Recovery | Key::StopOnError => {}
            // Accepted; the table says why they change nothing.
            Key::Checksum
            | Key::NoChecksum
            | Key::EnableBroker
            | Key::ErrorBroker
            | Key::NewBroker
            | Key::KeepCdc
            | Key::KeepReplication
            | Key::KeepTemporalRetention
            | Key::Rewind
            | Key::NoRewind
            | Key::Unload
            | Key::NoUnload
            | Key::Restart => {}
            // The devices were found by them.
            Key::BackupOptions | Key::RestoreOptions | Key::Credential => {}
            // Refused by the table before this.
            Key::DbName
            | Key::FileSnapshot
            | Key::FileStream
            | Key::MediaPassword
            | Key::MetadataOnly
            | Key::NoTruncate
            | Key::Partial
            | Key::Password
            | Key::RestrictedUser
            | Key::Snapshot
            | Key::Standby
            | Key::StopAtMark
            | Key::StopBeforeMark => return Err(unsupported(key.spec())),
        }
        Ok(())
    }

    fn take_move(&mut self, given: &OptionUse) -> Result<(), Message> {
        let SettingValue::Move { from, to } = &given.setting.value else {
            return Ok(());
        };
        let from = operand_text(given.session, from)?;
        if self.moves.iter().any(|(known, _)| *known == from) {
            return Err(message::MOVED_TWICE.with(&[&from]));
        }
        if self.moves.len() >= MOVES_MAX {
            let text = format!("a statement has at most {MOVES_MAX} MOVE options");
            return Err(message::OWN.with(&[&text]));
        }
        self.moves.push((from, operand_text(given.session, to)?));
        Ok(())
    }

    /// The requested sizes, over the configuration's.
    pub fn tuning(&self, defaults: &Tuning) -> Tuning {
        Tuning {
            buffer_count: self.buffer_count.or(defaults.buffer_count),
            buffer_bytes: self.buffer_bytes.or(defaults.buffer_bytes),
        }
    }

    /// The same for reading sets, which have their own sizes.
    pub fn reading_tuning(&self, defaults: &Tuning) -> Tuning {
        Tuning {
            // The size of a part has no effect either, and the answer says so of any size.
            buffer_bytes: self
                .buffer_bytes
                .or(self.part_bytes.map(|_| Tuning::BUFFER_MAX)),
            ..self.tuning(defaults)
        }
    }

    /// The requested ceilings, over the configuration's.
    pub fn limits(&self, defaults: &Limits) -> Limits {
        Limits {
            rate_bytes_per_s: self.max_rate.or(defaults.rate_bytes_per_s),
            cpu_percent: self.max_cpu_percent.or(defaults.cpu_percent),
            low_io_priority: defaults.low_io_priority,
        }
    }
}

/// Refuses one option twice, or two that exclude each other.
fn check_conflicts(settings: &[Setting]) -> Result<(), Message> {
    let word = |key: Key| key.word().to_lowercase();
    // It contains no key twice, so it is never longer than the table.
    let mut seen: Vec<Key> = Vec::new();
    for b in settings.iter().map(|s| s.key).filter(|k| *k != Key::Move) {
        let excluded = |a: Key| {
            let both = |keys: &&[Key]| keys.contains(&a) && keys.contains(&b);
            a == b || EITHER.iter().any(both)
        };
        if let Some(a) = seen.iter().copied().find(|a| excluded(*a)) {
            return Err(message::OPTION_CONFLICT.with(&[&word(b), &word(a)]));
        }
        seen.push(b);
    }
    Ok(())
}

/// The words of 3032 for a part of a database.
pub(super) const FILES_AND_GROUPS: &str = "files and filegroups";

/// 3032 for an option or a part that is refused, and the reason after it.
pub(super) fn refused(what: &str, reason: &str) -> Vec<Message> {
    let named = match what.contains(char::is_lowercase) {
        true => what.to_owned(),
        false => what.to_lowercase(),
    };
    vec![
        message::OPTION_UNSUPPORTED.with(&[&named]),
        message::DETAIL.with(&[&format!("{what}: {reason}")]),
    ]
}

fn unsupported(spec: &Spec) -> Message {
    message::OPTION_UNSUPPORTED.with(&[&spec.word.to_lowercase()])
}

/// An option as it was given, and the session whose variables it may name.
struct OptionUse<'a> {
    session: &'a Session,
    setting: &'a Setting,
}

impl OptionUse<'_> {
    fn invalid(&self) -> Message {
        message::INVALID_VALUE.with(&[&self.setting.key])
    }

    fn operand(&self) -> Result<&Operand, Message> {
        match &self.setting.value {
            SettingValue::Operand(operand) => Ok(operand),
            _ => Err(self.invalid()),
        }
    }

    /// At most `max` characters.
    fn text(&self, max: usize) -> Result<String, Message> {
        let text = operand_text(self.session, self.operand()?)?;
        match text.chars().nth(max) {
            Some(_) => Err(self.invalid()),
            None => Ok(text),
        }
    }

    /// Microseconds since 1970. A text without anything in it is no moment: converted, it would be the year 1900, and a set that
    /// expired then is not protected.
    fn moment(&self) -> Result<i64, Message> {
        let text = self.text(NAME_MAX)?;
        if text.trim().is_empty() {
            return Err(self.invalid());
        }
        // A variable of another type than a text has said which number is the day.
        let order = match self.operand()? {
            Operand::Variable(name) if !self.session.typed_variable(name)?.kind.is_text() => {
                DateOrder::default()
            }
            _ => self.session.told.date_order,
        };
        moment_us(&reordered(&text, Type::DateTime, order)).map_err(|why| match why {
            Some(why) => message::OWN.with(&[&why]),
            None => self.invalid(),
        })
    }

    fn within(&self, min: i64, max: i64) -> Result<i64, Message> {
        let value = self.session.value_of(self.operand()?)?;
        match convert(&value, Type::BigInt) {
            Ok(Value::Int(n)) if (min..=max).contains(&n) => Ok(n),
            Ok(Value::Int(n)) => Err(self.not_within(n)),
            _ => Err(self.invalid()),
        }
    }

    fn not_within(&self, value: i64) -> Message {
        message::NOT_WITHIN_RANGE.with(&[&value, &self.setting.key])
    }

    fn block_size(&self) -> Result<i64, Message> {
        let size = self.within(512, 65_536)?;
        match size & (size - 1) {
            0 => Ok(size),
            _ => Err(message::NOT_A_POWER.plain()),
        }
    }

    /// Of a file's buffer up to 4 MiB; of a part of an object up to 20 MiB, in S3 from 5 MiB on.
    fn transfer_size(&self, to: Destination) -> Result<usize, Message> {
        let unit = Tuning::BUFFER_UNIT as i64;
        let (min, max) = match to {
            Destination::Files => (unit, Tuning::BUFFER_MAX as i64),
            Destination::S3 => (S3_PART_MIN, PART_MAX),
            Destination::Objects => (unit, PART_MAX),
        };
        let size = self.within(min, max)?;
        match size % unit {
            0 => Ok(size as usize),
            _ => Err(self.not_within(size)),
        }
    }

    fn compression(&self) -> Result<CompressionChoice, Message> {
        match &self.setting.value {
            SettingValue::Compression(named) => compression(named),
            _ => Ok(CompressionChoice::On),
        }
    }

    fn encryption(&self) -> Result<EncryptionChoice, Message> {
        let SettingValue::Encryption {
            algorithm,
            certificate,
            encryptor,
        } = &self.setting.value
        else {
            return Err(self.invalid());
        };
        let refused = |text: &str| Err(message::OWN.with(&[&text]));
        if algorithm == "TRIPLE_DES_3KEY" {
            return refused(
                "TRIPLE_DES_3KEY is refused: 3DES protects no backup for years; write AES_256",
            );
        }
        match certificate {
            true => Ok(EncryptionChoice {
                algorithm: algorithm.clone(),
                certificate: encryptor.clone(),
            }),
            false => refused(
                "SERVER ASYMMETRIC KEY is refused: there are no providers of keys here; write SERVER CERTIFICATE",
            ),
        }
    }

    fn stats(&self) -> Result<u8, Message> {
        match self.setting.value {
            SettingValue::None => Ok(STATS_USUAL),
            _ => Ok(self.within(1, 100)? as u8),
        }
    }
}

fn compression(named: &Compression) -> Result<CompressionChoice, Message> {
    let wrong = || message::INVALID_VALUE.with(&[&"COMPRESSION"]);
    let algorithm: Algorithm = named.algorithm.parse().map_err(|_| wrong())?;
    let level = match &named.level {
        None => None,
        Some(LevelWord::Word(word)) => Some(word.parse().map_err(|_| wrong())?),
        Some(LevelWord::Number(n)) => {
            let number = i32::try_from(*n).map_err(|_| wrong())?;
            Some(Level::Number(number))
        }
    };
    Ok(CompressionChoice::Named { algorithm, level })
}
