//! The values that options take: sizes, rates, dates, devices, pairs.
//!
//! Invariants
//! - Every value is parsed here, once, into a type that cannot hold an invalid one; commands see no text.
//! - Units are powers of 1024. A time for a recovery has its zone; other dates are local.
//! - An option for a path refuses the address of an object store, which would otherwise become a directory of that
//!   name.
//!
//! Leaves to others: whether a value suits the others of its command, and whether what it names exists.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Command;
use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser, ValueParser};
use longshore_codec::{Algorithm, Level};
use longshore_media::{DeviceSpec, only_path};

/// Longest name and description, in characters (SQL Server's limits).
const NAME_MAX: usize = 128;
const DESCRIPTION_MAX: usize = 255;

/// A number of bytes: `65536`, `64K`, `4M`, `4MB`, `4MiB`, `1.5G`; units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(format!("unknown unit {unit:?}; use K, M, G or T")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(1 << shift)
            .ok_or_else(|| "this is more than the maximum size of a file".to_owned());
    }
    let bytes = number
        .parse::<f64>()
        .map_err(|_| "write a number with an optional unit, such as 4M".to_owned())?
        * (1u64 << shift) as f64;
    if bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err("this is more than the maximum size of a file".to_owned())
    }
}

/// A size above 0.
pub fn positive_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("must be more than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A rate in bytes per second: a size, with or without `/s`.
pub fn rate(text: &str) -> Result<u64, String> {
    positive_size(text.trim().trim_end_matches("/s"))
}

/// Seconds above 0 up to a minute, such as `0.5`.
pub fn seconds(text: &str) -> Result<f64, String> {
    seconds_up_to(60.0, text)
}

/// Seconds, above 0 and up to a day.
pub fn long_seconds(text: &str) -> Result<f64, String> {
    seconds_up_to(86_400.0, text)
}

/// Seconds of a course of values, of which there must be some: 0 for none, or 2 and up to a day.
pub fn course_seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(s) if s == 0.0 || (2.0..=86_400.0).contains(&s) => Ok(s),
        _ => Err("write 0, or seconds from 2 to 86400".to_owned()),
    }
}

fn seconds_up_to(most: f64, text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(s) if s > 0.0 && s <= most => Ok(s),
        _ => Err(format!("write seconds, above 0 and up to {most}")),
    }
}

/// Percent of the machine, above 0 up to 100; a `%` may follow.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 100.0 => Ok(p),
        _ => Err("write a percentage above 0 and up to 100".to_owned()),
    }
}

pub fn algorithm(text: &str) -> Result<Algorithm, String> {
    Algorithm::from_str(text)
}

pub fn level(text: &str) -> Result<Level, String> {
    Level::from_str(text)
}

fn text_of(text: &str, max: usize) -> Result<String, String> {
    match text.chars().count() {
        n if n > max => Err(format!("{n} characters are too many; the limit is {max}")),
        _ => Ok(text.to_owned()),
    }
}

pub fn name(text: &str) -> Result<String, String> {
    text_of(text, NAME_MAX)
}

pub fn description(text: &str) -> Result<String, String> {
    text_of(text, DESCRIPTION_MAX)
}

/// A date (midnight, local time), or a moment with or without offset; microseconds since the Unix epoch.
pub fn moment(text: &str) -> Result<i64, String> {
    let local = || {
        let time: jiff::civil::DateTime = text.parse().ok()?;
        Some(
            time.to_zoned(jiff::tz::TimeZone::system())
                .ok()?
                .timestamp(),
        )
    };
    text.parse::<jiff::Timestamp>()
        .ok()
        .or_else(local)
        .map(|t| t.as_microsecond())
        .ok_or_else(|| "write a date such as 2027-01-31 or 2027-01-31T06:00:00+01:00".to_owned())
}

/// A moment whose zone is given; microseconds since the Unix epoch. Recovery to the wrong hour loses data, so no zone
/// is assumed.
pub fn zoned_time(text: &str) -> Result<i64, String> {
    // As `longshore info` prints it.
    let utc = text.strip_suffix("UTC").map(str::trim_end);
    let text = utc.map_or_else(|| text.to_owned(), |moment| format!("{moment}Z"));
    text.parse::<jiff::Timestamp>()
        .map(|time| time.as_microsecond())
        .map_err(|_| "write a time with its zone, such as 2027-01-31 06:00:00+01".to_owned())
}

/// What a remark in a history may say of a restore: two UUIDs, and one line of few bytes in any case.
pub fn restore_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=80).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("a restore's name has 1 to 80 letters, digits, `-`, `_` and `.`".to_owned()),
    }
}

/// The name of a restore point: PostgreSQL keeps 63 bytes.
pub fn restore_point(text: &str) -> Result<String, String> {
    match text.len() {
        1..=63 => Ok(text.to_owned()),
        _ => Err("a restore point's name has 1 to 63 bytes".to_owned()),
    }
}

/// A backup device in any spelling a file system knows.
pub fn device_of(text: &OsStr) -> DeviceSpec {
    match text.to_str() {
        Some(text) => DeviceSpec::parse(text),
        None => {
            let bytes = text.as_bytes();
            let path = bytes.strip_prefix(b"file:").unwrap_or(bytes);
            DeviceSpec::File(OsStr::from_bytes(path).into())
        }
    }
}

pub fn device() -> ValueParser {
    ValueParser::new(OsStringValueParser::new().try_map(|text| {
        if text.is_empty() {
            return Err("a device needs a name".to_owned());
        }
        Ok(device_of(&text))
    }))
}

/// A program's options, where each that takes a path refuses the address of an object store.
pub fn with_paths_only(command: Command) -> Command {
    let path = || {
        let parser = PathBufValueParser::new().try_map(|path| only_path(path.as_os_str()));
        ValueParser::new(parser)
    };
    command
        .mut_args(
            |arg| match arg.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
                true => arg.value_parser(path()),
                false => arg,
            },
        )
        .mut_subcommands(with_paths_only)
}

/// The place of a WAL archive: a directory, or a prefix in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivePath(PathBuf);

impl Deref for ArchivePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

pub fn archive() -> ValueParser {
    let parser = OsStringValueParser::new();
    ValueParser::new(parser.try_map(|text| longshore_wal::location(&text).map(ArchivePath)))
}

/// A source: what is not a server is a path.
pub fn source() -> ValueParser {
    let parser = OsStringValueParser::new();
    ValueParser::new(parser.try_map(|text| only_path(&text).map(OsString::from)))
}

/// Two paths with `=` between them. The first `=` divides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair(pub PathBuf, pub OsString);

pub fn pair() -> ValueParser {
    ValueParser::new(OsStringValueParser::new().try_map(|text| pair_of(&text)))
}

fn pair_of(text: &OsStr) -> Result<Pair, String> {
    let bytes = text.as_bytes();
    let Some(at) = bytes.iter().position(|b| *b == b'=') else {
        return Err("write both sides with = between them".to_owned());
    };
    let (left, right) = (&bytes[..at], &bytes[at + 1..]);
    if left.is_empty() || right.is_empty() {
        return Err("one side of = is empty".to_owned());
    }
    Ok(Pair(
        only_path(OsStr::from_bytes(left))?,
        only_path(OsStr::from_bytes(right))?.into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_and_fractions_are_allowed() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64K", 65_536),
            ("4MB", 4 << 20),
            ("4 mib", 4 << 20),
            ("1.5G", 3 << 29),
            ("0", 0),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "4X", "-1", "1e3", "99999999999T", "9.9.9"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(positive_size("0").is_err());
        assert_eq!(rate("100M/s"), Ok(100 << 20));
    }

    #[test]
    fn a_zone_is_given_as_an_offset_or_as_utc() {
        let us = 1_796_014_478_000_000;
        for text in [
            "2026-11-30 04:54:38 UTC",
            "2026-11-30 04:54:38+00",
            "2026-11-30T04:54:38Z",
            "2026-11-30 05:54:38+01",
        ] {
            assert_eq!(zoned_time(text), Ok(us), "{text}");
        }
        for text in [
            "2026-11-30 04:54:38",
            "UTC",
            "",
            "2026-11-30 04:54:38+01 UTC",
        ] {
            assert!(zoned_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_of_the_machine_is_more_than_nothing_and_at_most_all() {
        assert_eq!(percent("12.5%"), Ok(12.5));
        assert_eq!(percent("100"), Ok(100.0));
        for text in ["0", "-1", "100.1", "nan", "inf", "half"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_counted_in_characters_not_bytes() {
        assert!(name(&"ä".repeat(128)).is_ok());
        assert!(name(&"ä".repeat(129)).is_err());
        assert!(description(&"ä".repeat(256)).is_err());
    }

    #[test]
    fn moments_with_an_offset_do_not_depend_on_this_machine() {
        assert_eq!(moment("1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(moment("1970-01-02T00:00:00Z"), Ok(86_400_000_000));
        assert!(moment("2027-01-31").is_ok());
        assert!(moment("tomorrow").is_err());
    }

    #[test]
    fn devices_and_pairs_take_any_bytes_a_file_system_takes() {
        let odd = OsStr::from_bytes(b"file:/mnt/\xff.bak");
        let path = PathBuf::from(OsStr::from_bytes(b"/mnt/\xff.bak"));
        assert_eq!(device_of(odd), DeviceSpec::File(path));
        assert_eq!(device_of(OsStr::new("NUL")), DeviceSpec::Nul);
        let pair = pair_of(OsStr::from_bytes(b"a/\xfe=b=c")).unwrap();
        assert_eq!(pair.0, PathBuf::from(OsStr::from_bytes(b"a/\xfe")));
        assert_eq!(pair.1, OsStr::new("b=c"));
        assert!(pair_of(OsStr::new("a=s3://b/k")).is_err());
        assert!(pair_of(OsStr::new("az://b/k=a")).is_err());
        assert!(pair_of(OsStr::new("a=")).is_err());
        assert!(pair_of(OsStr::new("a")).is_err());
    }
}
