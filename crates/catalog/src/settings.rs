//! Server settings: what `sp_configure` shows.
//!
//! `value` is what was asked for, `value_in_use` what counts. They differ until the change takes effect:
//! RECONFIGURE for most settings, a restart for hardware offload. A setting nobody has touched has no row; its
//! default is here.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use rusqlite::{OptionalExtension, params};
use serde::Serialize;

use crate::{Catalog, Error};

/// A server setting. Names are SQL Server's; the mode has none there, `ALTER SERVER CONFIGURATION` sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// 1: backups that do not say otherwise are compressed.
    BackupCompressionDefault,
    /// The algorithm of a compressed backup that names none: 0 nothing chosen (MS_XPRESS), 1 MS_XPRESS,
    /// 2 QAT_DEFLATE, 3 ZSTD, and 4, our extension, LZ4.
    BackupCompressionAlgorithm,
    /// 1: backups that do not say otherwise verify page checksums.
    BackupChecksumDefault,
    /// 0 turns every accelerator off, whatever its mode.
    HardwareOffloadEnabled,
    /// 0 off, 1 hardware with software behind it, 2 software only, 3 (ours) both at once.
    HardwareOffloadMode,
    /// Days for which a backup without a date of its own is kept from being overwritten.
    MediaRetention,
    /// 1: `sp_configure` and `sys.configurations` show the advanced ones, too.
    ShowAdvancedOptions,
}

/// When a change counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At the next [`Catalog::reconfigure`] or [`Catalog::restart`].
    Later,
    /// At once, whatever the setting: for callers without a running server.
    Now,
}

/// A setting as the catalog has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    pub name: &'static str,
    pub minimum: i64,
    pub maximum: i64,
    pub value: i64,
    pub value_in_use: i64,
    /// Whether RECONFIGURE is enough; a restart otherwise.
    pub is_dynamic: bool,
    /// Whether it is shown only with `show advanced options`.
    pub is_advanced: bool,
}

impl Setting {
    /// What every setting is until somebody sets it.
    pub const DEFAULT: i64 = 0;

    /// In the order of their names.
    pub const ALL: [Setting; 7] = [
        Setting::BackupChecksumDefault,
        Setting::BackupCompressionAlgorithm,
        Setting::BackupCompressionDefault,
        Setting::HardwareOffloadEnabled,
        Setting::HardwareOffloadMode,
        Setting::MediaRetention,
        Setting::ShowAdvancedOptions,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Setting::BackupCompressionDefault => "backup compression default",
            Setting::BackupCompressionAlgorithm => "backup compression algorithm",
            Setting::BackupChecksumDefault => "backup checksum default",
            Setting::HardwareOffloadEnabled => "hardware offload enabled",
            Setting::HardwareOffloadMode => "hardware offload mode",
            Setting::MediaRetention => "media retention",
            Setting::ShowAdvancedOptions => "show advanced options",
        }
    }

    pub fn range(self) -> RangeInclusive<i64> {
        match self {
            Setting::BackupCompressionDefault
            | Setting::BackupChecksumDefault
            | Setting::HardwareOffloadEnabled
            | Setting::ShowAdvancedOptions => 0..=1,
            Setting::BackupCompressionAlgorithm => 0..=4,
            Setting::HardwareOffloadMode => 0..=3,
            Setting::MediaRetention => 0..=365,
        }
    }

    fn is_dynamic(self) -> bool {
        !matches!(
            self,
            Setting::HardwareOffloadEnabled | Setting::HardwareOffloadMode
        )
    }

    fn is_advanced(self) -> bool {
        matches!(
            self,
            Setting::HardwareOffloadEnabled | Setting::MediaRetention
        )
    }

    /// Its row until somebody sets it.
    pub fn untouched(self) -> SettingRow {
        self.row(Setting::DEFAULT, Setting::DEFAULT)
    }

    fn row(self, value: i64, value_in_use: i64) -> SettingRow {
        SettingRow {
            name: self.name(),
            minimum: *self.range().start(),
            maximum: *self.range().end(),
            value,
            value_in_use,
            is_dynamic: self.is_dynamic(),
            is_advanced: self.is_advanced(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Setting {
    type Err = Error;

    /// The full name, in any case.
    fn from_str(s: &str) -> Result<Setting, Error> {
        let named = |x: &Setting| x.name().eq_ignore_ascii_case(s);
        let found = Setting::ALL.into_iter().find(named);
        found.ok_or_else(|| Error::UnknownSetting { name: s.to_owned() })
    }
}

impl Catalog {
    pub fn setting(&self, setting: Setting) -> Result<SettingRow, Error> {
        let found = self.read(|db| {
            db.prepare_cached("SELECT value, value_in_use FROM settings WHERE name = ?1")?
                .query_row([setting.name()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })?;
        let (value, in_use) = found.unwrap_or((Setting::DEFAULT, Setting::DEFAULT));
        Ok(setting.row(value, in_use))
    }

    /// All settings, in the order of their names.
    pub fn settings(&self) -> Result<Vec<SettingRow>, Error> {
        Setting::ALL.into_iter().map(|s| self.setting(s)).collect()
    }

    /// Changes a setting. Errors: [`Error::SettingRange`].
    pub fn set_setting(&self, setting: Setting, value: i64, effect: Effect) -> Result<(), Error> {
        let range = setting.range();
        if !range.contains(&value) {
            return Err(Error::SettingRange {
                name: setting.name(),
                value,
                min: *range.start(),
                max: *range.end(),
            });
        }
        let in_use = match effect {
            Effect::Later => Setting::DEFAULT,
            Effect::Now => value,
        };
        self.write(|tx| {
            tx.execute(
                "INSERT INTO settings (name, value, value_in_use) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET value = ?2,
                    value_in_use = CASE WHEN ?4 THEN ?2 ELSE value_in_use END",
                params![setting.name(), value, in_use, effect == Effect::Now],
            )
        })?;
        Ok(())
    }

    /// RECONFIGURE: what was set counts from now on, but for settings that wait for a restart.
    pub fn reconfigure(&self) -> Result<(), Error> {
        self.install(Setting::is_dynamic)
    }

    /// What a server does when it starts: everything that was set counts.
    pub fn restart(&self) -> Result<(), Error> {
        self.install(|_| true)
    }

    fn install(&self, which: impl Fn(Setting) -> bool) -> Result<(), Error> {
        self.write(|tx| {
            for setting in Setting::ALL.into_iter().filter(|s| which(*s)) {
                tx.execute(
                    "UPDATE settings SET value_in_use = value WHERE name = ?1",
                    [setting.name()],
                )?;
            }
            Ok(())
        })
    }
}
