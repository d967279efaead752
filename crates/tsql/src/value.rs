//! Types, columns and values as they leave the room.
//!
//! The types are those of T-SQL that the views, the result sets and the variables have; a network protocol can write
//! each of them without knowing what it means.

use std::fmt;

use uuid::Uuid;

/// Wall time without a zone, as `datetime` has it; counted in milliseconds here.
pub type DateTime = jiff::civil::DateTime;

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
    Float,
    DateTime,
    Char(u16),
    NChar(u16),
    /// `None`: `max`.
    VarChar(Option<u16>),
    NVarChar(Option<u16>),
    VarBinary(Option<u16>),
    UniqueIdentifier,
    /// Holds an integer wherever this server sends it.
    SqlVariant,
}

impl Type {
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
        self.is_integer() || matches!(self, Type::Numeric { .. } | Type::Float)
    }

    pub fn is_text(self) -> bool {
        matches!(
            self,
            Type::Char(_) | Type::NChar(_) | Type::VarChar(_) | Type::NVarChar(_)
        )
    }

    /// Characters that a client keeps for a value of this type, as sqlcmd does; `None`: any number.
    pub fn display_width(self) -> Option<usize> {
        Some(match self {
            Type::Bit => 3,
            Type::TinyInt => 3,
            Type::SmallInt => 6,
            Type::Int => 11,
            Type::BigInt => 20,
            Type::Numeric { precision, .. } => usize::from(precision) + 2,
            Type::Float => 24,
            Type::DateTime => 23,
            Type::Char(n) | Type::NChar(n) => n.into(),
            Type::VarChar(n) | Type::NVarChar(n) => n?.into(),
            Type::VarBinary(n) => 2 + 2 * usize::from(n?),
            Type::UniqueIdentifier => 36,
            Type::SqlVariant => 11,
        })
    }
}

impl fmt::Display for Type {
    /// As a declaration has it: `nvarchar(128)`.
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
            Type::Float => f.write_str("float"),
            Type::DateTime => f.write_str("datetime"),
            Type::Char(n) => sized(f, "char", Some(n)),
            Type::NChar(n) => sized(f, "nchar", Some(n)),
            Type::VarChar(n) => sized(f, "varchar", n),
            Type::NVarChar(n) => sized(f, "nvarchar", n),
            Type::VarBinary(n) => sized(f, "varbinary", n),
            Type::UniqueIdentifier => f.write_str("uniqueidentifier"),
            Type::SqlVariant => f.write_str("sql_variant"),
        }
    }
}

/// A column of a result set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Empty where the query gave none.
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
    /// 0 to 38; that of the column where it stands in a row.
    pub scale: u8,
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

/// What stands in a row or a variable.
///
/// | type | value |
/// |---|---|
/// | `bit` … `bigint` | [`Value::Int`] within the type's range, `bit` 0 or 1 |
/// | `numeric` | [`Value::Decimal`] of the column's scale |
/// | `sql_variant` | [`Value::Int`] |
/// | all others | the value of the same name |
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Decimal(Decimal),
    Float(f64),
    DateTime(DateTime),
    Text(String),
    Binary(Vec<u8>),
    Guid(Uuid),
}

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// Empty text is no text: as msdb keeps names nobody gave.
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
    /// As sqlcmd prints it; `NULL` for what is not there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Decimal(n) => write!(f, "{n}"),
            Value::Float(n) => write!(f, "{n}"),
            Value::DateTime(at) => f.write_str(&date_time_text(at)),
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
        assert_eq!(Value::Binary(vec![0, 255]).to_string(), "0x00FF");
        assert_eq!(Value::Null.to_string(), "NULL");
        let id = Uuid::from_u128(0xab);
        assert!(Value::Guid(id).to_string().ends_with("00AB"));
    }
}
