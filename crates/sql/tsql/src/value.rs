//! Types, columns and values of this crate's results.
//!
//! Invariants
//! - The types are those of T-SQL in the views, the result sets and the variables; a network protocol can write each of
//!   them without knowing its meaning.
//!
//! Leaves to others: conversions between types (`convert.rs`), and the bytes on the wire (`longshore-tds`).

use std::fmt;

use uuid::Uuid;

/// Wall time without a zone. A `datetime` has milliseconds here.
pub type DateTime = jiff::civil::DateTime;

/// The default number of digits after the second in the newer date and time types.
pub const SCALE_MAX: u8 = 7;

/// A moment, or a part of one, of the types other than `datetime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporal {
    Date(jiff::civil::Date),
    /// With its scale.
    Time(jiff::civil::Time, u8),
    /// Whole minutes.
    SmallDateTime(DateTime),
    DateTime2(DateTime, u8),
    /// Wall time, the minutes by which it is ahead of UTC, and the scale.
    DateTimeOffset(DateTime, i16, u8),
}

impl Temporal {
    pub fn kind(self) -> Type {
        match self {
            Temporal::Date(_) => Type::Date,
            Temporal::Time(_, scale) => Type::Time(scale),
            Temporal::SmallDateTime(_) => Type::SmallDateTime,
            Temporal::DateTime2(_, scale) => Type::DateTime2(scale),
            Temporal::DateTimeOffset(_, _, scale) => Type::DateTimeOffset(scale),
        }
    }

    /// The wall time; a time alone is on the first of January 1900.
    pub fn wall(self) -> DateTime {
        match self {
            Temporal::Date(date) => date.at(0, 0, 0, 0),
            Temporal::Time(time, _) => jiff::civil::date(1900, 1, 1).to_datetime(time),
            Temporal::SmallDateTime(at)
            | Temporal::DateTime2(at, _)
            | Temporal::DateTimeOffset(at, ..) => at,
        }
    }

    /// The same moment in UTC if it has an offset; otherwise the wall time.
    pub fn utc(self) -> DateTime {
        match self {
            Temporal::DateTimeOffset(at, minutes, _) => earlier(at, minutes),
            other => other.wall(),
        }
    }

    /// A text whose order is that of the moments.
    pub fn sortable(self) -> String {
        match self {
            Temporal::Date(_) | Temporal::SmallDateTime(_) => self.to_string(),
            Temporal::Time(time, _) => Temporal::Time(time, SCALE_MAX).to_string(),
            Temporal::DateTime2(at, _) => Temporal::DateTime2(at, SCALE_MAX).to_string(),
            Temporal::DateTimeOffset(at, minutes, _) => {
                let utc = Temporal::DateTime2(earlier(at, minutes), SCALE_MAX);
                format!("{utc}Z{}", offset_text(minutes))
            }
        }
    }
}

fn earlier(at: DateTime, minutes: i16) -> DateTime {
    at.saturating_sub(jiff::SignedDuration::from_mins(minutes.into()))
}

/// `+02:00`
pub fn offset_text(minutes: i16) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `.123` of a second, with as many digits as the scale.
pub fn fraction_text(nanoseconds: i32, scale: u8) -> String {
    match scale {
        0 => String::new(),
        scale => format!(".{nanoseconds:09}")[..=usize::from(scale.min(9))].to_owned(),
    }
}

impl fmt::Display for Temporal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, scale) = match *self {
            Temporal::Date(date) => return write!(f, "{}", date.strftime("%Y-%m-%d")),
            Temporal::Time(time, scale) => {
                let fraction = fraction_text(time.subsec_nanosecond(), scale);
                return write!(f, "{}{fraction}", time.strftime("%H:%M:%S"));
            }
            Temporal::SmallDateTime(at) => (at, 0),
            Temporal::DateTime2(at, scale) | Temporal::DateTimeOffset(at, _, scale) => (at, scale),
        };
        let fraction = fraction_text(at.subsec_nanosecond(), scale);
        write!(f, "{}{fraction}", at.strftime("%Y-%m-%d %H:%M:%S"))?;
        match *self {
            Temporal::DateTimeOffset(_, minutes, _) => write!(f, " {}", offset_text(minutes)),
            _ => Ok(()),
        }
    }
}

/// The longest text or binary that is not `max`, in characters or bytes.
pub const LENGTH_MAX: u16 = 8000;

/// A T-SQL type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    Bit,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    /// Precision 1 to 38, scale 0 to precision.
    Numeric {
        precision: u8,
        scale: u8,
    },
    /// Four digits after the point.
    Money,
    SmallMoney,
    Float,
    Date,
    /// Digits after the second, here and below: 0 to 7.
    Time(u8),
    SmallDateTime,
    DateTime,
    DateTime2(u8),
    DateTimeOffset(u8),
    Char(u16),
    NChar(u16),
    /// `None`: `max`.
    VarChar(Option<u16>),
    NVarChar(Option<u16>),
    Binary(u16),
    VarBinary(Option<u16>),
    UniqueIdentifier,
    /// Contains an integer wherever this server sends it.
    SqlVariant,
}

impl Type {
    /// The type of a variable or a column that is declared so: what a `sql_variant` has is kept as a text.
    pub fn declared(self) -> Type {
        match self {
            Type::SqlVariant => Type::NVarChar(Some(LENGTH_MAX / 2)),
            kind => kind,
        }
    }

    /// Its name without lengths.
    pub fn bare_name(self) -> String {
        let shown = self.to_string();
        shown.split('(').next().unwrap_or_default().to_owned()
    }

    pub const fn numeric(precision: u8, scale: u8) -> Type {
        Type::Numeric { precision, scale }
    }

    pub const fn nvarchar(length: u16) -> Type {
        Type::NVarChar(Some(length))
    }

    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Type::Bit | Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt
        )
    }

    pub fn is_number(self) -> bool {
        self.is_exact() || self == Type::Float
    }

    /// Numbers other than floating-point ones.
    pub fn is_exact(self) -> bool {
        self.is_integer() || self.is_money() || matches!(self, Type::Numeric { .. })
    }

    pub fn is_money(self) -> bool {
        matches!(self, Type::Money | Type::SmallMoney)
    }

    /// Texts of two bytes per character.
    pub fn is_national(self) -> bool {
        matches!(self, Type::NChar(_) | Type::NVarChar(_))
    }

    pub fn is_text(self) -> bool {
        matches!(
            self,
            Type::Char(_) | Type::NChar(_) | Type::VarChar(_) | Type::NVarChar(_)
        )
    }

    pub fn is_moment(self) -> bool {
        matches!(
            self,
            Type::Date
                | Type::Time(_)
                | Type::SmallDateTime
                | Type::DateTime
                | Type::DateTime2(_)
                | Type::DateTimeOffset(_)
        )
    }

    /// The columns that a client such as sqlcmd reserves for a value of this type; `None`: any number.
    pub fn display_width(self) -> Option<usize> {
        Some(match self {
            Type::Bit => 3,
            Type::TinyInt => 3,
            Type::SmallInt => 6,
            Type::Int => 11,
            Type::BigInt => 20,
            Type::Numeric { precision, .. } => usize::from(precision) + 2,
            Type::Money => 21,
            Type::SmallMoney => 12,
            Type::Float => 24,
            Type::Date => 16,
            Type::Time(_) => 22,
            Type::SmallDateTime => 19,
            Type::DateTime => 23,
            Type::DateTime2(_) => 38,
            Type::DateTimeOffset(_) => 45,
            Type::Char(n) | Type::NChar(n) => n.into(),
            Type::VarChar(n) | Type::NVarChar(n) => n?.into(),
            Type::Binary(n) => 2 + 2 * usize::from(n),
            Type::VarBinary(n) => 2 + 2 * usize::from(n?),
            Type::UniqueIdentifier => 36,
            Type::SqlVariant => 11,
        })
    }
}

impl fmt::Display for Type {
    /// In the form of a declaration: `nvarchar(128)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sized = |f: &mut fmt::Formatter<'_>, name: &str, n: Option<u16>| match n {
            Some(n) => write!(f, "{name}({n})"),
            None => write!(f, "{name}(max)"),
        };
        match *self {
            Type::Bit => f.write_str("bit"),
            Type::TinyInt => f.write_str("tinyint"),
            Type::SmallInt => f.write_str("smallint"),
            Type::Int => f.write_str("int"),
            Type::BigInt => f.write_str("bigint"),
            Type::Numeric { precision, scale } => write!(f, "numeric({precision},{scale})"),
            Type::Money => f.write_str("money"),
            Type::SmallMoney => f.write_str("smallmoney"),
            Type::Float => f.write_str("float"),
            Type::Date => f.write_str("date"),
            Type::Time(scale) => write!(f, "time({scale})"),
            Type::SmallDateTime => f.write_str("smalldatetime"),
            Type::DateTime => f.write_str("datetime"),
            Type::DateTime2(scale) => write!(f, "datetime2({scale})"),
            Type::DateTimeOffset(scale) => write!(f, "datetimeoffset({scale})"),
            Type::Char(n) => sized(f, "char", Some(n)),
            Type::NChar(n) => sized(f, "nchar", Some(n)),
            Type::VarChar(n) => sized(f, "varchar", n),
            Type::NVarChar(n) => sized(f, "nvarchar", n),
            Type::Binary(n) => sized(f, "binary", Some(n)),
            Type::VarBinary(n) => sized(f, "varbinary", n),
            Type::UniqueIdentifier => f.write_str("uniqueidentifier"),
            Type::SqlVariant => f.write_str("sql_variant"),
        }
    }
}

/// A column of a result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Empty if the query gave none.
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
}

impl Column {
    pub fn new(name: impl Into<String>, kind: Type) -> Column {
        Column {
            name: name.into(),
            kind,
            nullable: true,
        }
    }
}

/// A decimal number: `unscaled` / 10^`scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// At most 38 digits.
    pub unscaled: i128,
    /// 0 to 38; in a row, that of the column.
    pub scale: u8,
}

impl Decimal {
    /// The digits before the point, if there are none after it.
    pub fn whole(self) -> Option<i128> {
        let unit = 10_i128.checked_pow(self.scale.into())?;
        (self.unscaled % unit == 0).then_some(self.unscaled / unit)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.unsigned_abs().to_string();
        let scale = usize::from(self.scale);
        if self.unscaled < 0 {
            f.write_str("-")?;
        }
        if scale == 0 {
            return f.write_str(&digits);
        }
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        write!(f, "{whole}.{fraction}")
    }
}

/// A value of a row or a variable.
///
/// | type | value |
/// |---|---|
/// | `bit` … `bigint` | [`Value::Int`] within the type's range, `bit` 0 or 1 |
/// | `numeric`, `money`, `smallmoney` | [`Value::Decimal`] of the column's scale; of money it is 4 |
/// | `sql_variant` | [`Value::Int`] |
/// | `date`, `time`, `smalldatetime`, `datetime2`, `datetimeoffset` | [`Value::Temporal`] of the type |
/// | all others | the value of the same name |
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Decimal(Decimal),
    Float(f64),
    DateTime(DateTime),
    Temporal(Temporal),
    Text(String),
    Binary(Vec<u8>),
    Guid(Uuid),
}

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// Empty text becomes NULL: msdb stores missing names that way.
    pub fn text_or_null(text: &str) -> Value {
        match text {
            "" => Value::Null,
            text => Value::text(text),
        }
    }

    pub fn bit(on: bool) -> Value {
        Value::Int(on.into())
    }

    pub fn decimal(n: impl Into<i128>) -> Value {
        Value::Decimal(Decimal {
            unscaled: n.into(),
            scale: 0,
        })
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

/// `2026-03-01 22:15:04.120`.
pub fn date_time_text(at: &DateTime) -> String {
    let ms = at.subsec_nanosecond() / 1_000_000;
    format!("{}.{ms:03}", at.strftime("%Y-%m-%d %H:%M:%S"))
}

impl fmt::Display for Value {
    /// In sqlcmd's format; `NULL` for a missing value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Decimal(n) => write!(f, "{n}"),
            Value::Float(n) => write!(f, "{n}"),
            Value::DateTime(at) => f.write_str(&date_time_text(at)),
            Value::Temporal(at) => write!(f, "{at}"),
            Value::Text(text) => f.write_str(text),
            Value::Binary(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02X}"))
            }
            Value::Guid(id) => write!(f, "{}", id.to_string().to_uppercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_their_scale_and_their_sign() {
        let text = |unscaled, scale| Decimal { unscaled, scale }.to_string();
        assert_eq!(text(305, 2), "3.05");
        assert_eq!(text(-5, 2), "-0.05");
        assert_eq!(text(0, 3), "0.000");
        assert_eq!(text(42, 0), "42");
        assert_eq!(text(i128::MIN, 0).len(), 40);
    }

    #[test]
    fn values_read_as_sqlcmd_prints_them() {
        let at = jiff::civil::date(2026, 3, 1).at(22, 15, 4, 120_000_000);
        assert_eq!(Value::DateTime(at).to_string(), "2026-03-01 22:15:04.120");
        let text = |at: Temporal| Value::Temporal(at).to_string();
        assert_eq!(text(Temporal::Date(at.date())), "2026-03-01");
        assert_eq!(text(Temporal::Time(at.time(), 0)), "22:15:04");
        assert_eq!(text(Temporal::DateTime2(at, 2)), "2026-03-01 22:15:04.12");
        let there = Temporal::DateTimeOffset(at, -90, 7);
        assert_eq!(text(there), "2026-03-01 22:15:04.1200000 -01:30");
        assert_eq!(there.sortable(), "2026-03-01 23:45:04.1200000Z-01:30");
        assert_eq!(Value::Binary(vec![0, 255]).to_string(), "0x00FF");
        assert_eq!(Value::Null.to_string(), "NULL");
        let id = Uuid::from_u128(0xab);
        assert!(Value::Guid(id).to_string().ends_with("00AB"));
    }
}
