//! Server settings, as `sp_configure` shows them.
//!
//! `value` is the requested value, `value_in_use` the effective one. They differ until the change takes effect:
//! RECONFIGURE for most settings, a restart for hardware offload.
//!
//! Invariants
//! - A value outside of a setting's range is never stored.
//! - A setting that was never changed has no row; its default is here, and is 0 for all of them.
//! - A change takes effect at once only for callers without a running server ([`Effect::Now`]).
//!
//! Leaves to others: what a setting does, and rights to change it (`tsql`, and the programs).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use rusqlite::{OptionalExtension, params};
use serde::Serialize;

use crate::{Catalog, Error};

/// A server setting, with SQL Server's name; the mode has none there, since `ALTER SERVER CONFIGURATION` sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// 1: backups are compressed unless they say otherwise.
    BackupCompressionDefault,
    /// The algorithm of a compressed backup that names none: 0 not chosen (MS_XPRESS), 1 MS_XPRESS, 2 QAT_DEFLATE, 3
    /// ZSTD, 4 LZ4 and 5 PAGES (our extensions).
    BackupCompressionAlgorithm,
    /// 1: backups verify page checksums unless they say otherwise.
    BackupChecksumDefault,
    /// 0 disables every accelerator, whatever its mode.
    HardwareOffloadEnabled,
    /// 0 off, 1 hardware with software as fallback, 2 software only, 3 (our extension) both at once.
    HardwareOffloadMode,
    /// Days for which a backup without its own expiry date is protected from being overwritten.
    MediaRetention,
    /// 1: `sp_configure` and `sys.configurations` also show advanced settings.
    ShowAdvancedOptions,
}

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At the next [`Catalog::reconfigure`] or [`Catalog::restart`].
    Later,
    /// At once, for any setting: for callers without a running server.
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
    /// Whether RECONFIGURE is enough; otherwise a restart is needed.
    pub is_dynamic: bool,
    /// Whether it is shown only with `show advanced options`.
    pub is_advanced: bool,
}

impl Setting {
    /// The value of every setting until it is changed.
    pub const DEFAULT: i64 = 0;

    /// Sorted by name.
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
            Setting::BackupCompressionAlgorithm => 0..=5,
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

    /// The row of a setting that was never changed.
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

    /// The full name, ignoring case.
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

    /// All settings, sorted by name.
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

    /// RECONFIGURE: changed values take effect, except those that wait for a restart.
    pub fn reconfigure(&self) -> Result<(), Error> {
        self.install(Setting::is_dynamic)
    }

    /// The start of a server: all changed values take effect.
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
