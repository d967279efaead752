//! The types as catalogs tell them: `sys.types`, and the numbers of ODBC.
//!
//! Invariants
//! - Numbers are those of SQL Server's documentation: `sys.types`, ODBC's catalog metadata, and the tokens of MS-TDS.
//!
//! Leaves to others: which columns have which types (`metadata.rs`).

use super::objects::facts;
use crate::value::{Type, Value};

/// A row of `sys.types`.
pub(super) struct SystemType {
    pub name: &'static str,
    /// `system_type_id` and `user_type_id`.
    pub system: i64,
    pub user: i64,
    pub length: i64,
    pub precision: i64,
    pub scale: i64,
}

impl SystemType {
    pub fn is_text(&self) -> bool {
        matches!(self.system, 35 | 99 | 167 | 175 | 231 | 239)
    }
}

const fn of(name: &'static str, ids: (i64, i64), sizes: (i64, i64, i64)) -> SystemType {
    SystemType {
        name,
        system: ids.0,
        user: ids.1,
        length: sizes.0,
        precision: sizes.1,
        scale: sizes.2,
    }
}

pub(super) const SYSTEM_TYPES: &[SystemType] = &[
    of("image", (34, 34), (16, 0, 0)),
    of("text", (35, 35), (16, 0, 0)),
    of("uniqueidentifier", (36, 36), (16, 0, 0)),
    of("date", (40, 40), (3, 10, 0)),
    of("time", (41, 41), (5, 16, 7)),
    of("datetime2", (42, 42), (8, 27, 7)),
    of("datetimeoffset", (43, 43), (10, 34, 7)),
    of("tinyint", (48, 48), (1, 3, 0)),
    of("smallint", (52, 52), (2, 5, 0)),
    of("int", (56, 56), (4, 10, 0)),
    of("smalldatetime", (58, 58), (4, 16, 0)),
    of("real", (59, 59), (4, 24, 0)),
    of("money", (60, 60), (8, 19, 4)),
    of("datetime", (61, 61), (8, 23, 3)),
    of("float", (62, 62), (8, 53, 0)),
    of("sql_variant", (98, 98), (8016, 0, 0)),
    of("ntext", (99, 99), (16, 0, 0)),
    of("bit", (104, 104), (1, 1, 0)),
    of("decimal", (106, 106), (17, 38, 38)),
    of("numeric", (108, 108), (17, 38, 38)),
    of("smallmoney", (122, 122), (4, 10, 4)),
    of("bigint", (127, 127), (8, 19, 0)),
    of("hierarchyid", (240, 128), (892, 0, 0)),
    of("geometry", (240, 129), (-1, 0, 0)),
    of("geography", (240, 130), (-1, 0, 0)),
    of("varbinary", (165, 165), (8000, 0, 0)),
    of("varchar", (167, 167), (8000, 0, 0)),
    of("binary", (173, 173), (8000, 0, 0)),
    of("char", (175, 175), (8000, 0, 0)),
    of("timestamp", (189, 189), (8, 0, 0)),
    of("nvarchar", (231, 231), (8000, 0, 0)),
    of("nchar", (239, 239), (8000, 0, 0)),
    of("xml", (241, 241), (-1, 0, 0)),
    of("sysname", (231, 256), (256, 0, 0)),
];

/// ODBC's numbers of a type: of the value, and of its kind among the moments.
fn odbc_numbers(kind: Type) -> (i64, i64, Option<i64>) {
    /// `SQL_DATETIME` with the codes of dates and of moments.
    const DATETIME: i64 = 9;
    let same = |n: i64| (n, n, None);
    match kind {
        Type::Bit => same(-7),
        Type::TinyInt => same(-6),
        Type::SmallInt => same(5),
        Type::Int => same(4),
        Type::BigInt => same(-5),
        Type::Numeric { .. } => same(2),
        Type::Money | Type::SmallMoney => same(3),
        Type::Float => same(6),
        Type::Date => (91, DATETIME, Some(1)),
        Type::Time(_) => same(-154),
        Type::DateTimeOffset(_) => same(-155),
        Type::SmallDateTime | Type::DateTime | Type::DateTime2(_) => (93, DATETIME, Some(3)),
        Type::Char(_) => same(1),
        Type::NChar(_) => same(-8),
        Type::VarChar(_) => same(12),
        Type::NVarChar(_) => same(-9),
        Type::Binary(_) => same(-2),
        Type::VarBinary(_) => same(-3),
        Type::UniqueIdentifier => same(-11),
        Type::SqlVariant => same(-150),
    }
}

/// The characters of a moment with so many digits of a second.
fn shown(whole: i64, scale: u8) -> i64 {
    match scale {
        0 => whole,
        scale => whole + 1 + i64::from(scale),
    }
}

/// The token of a type in SQL Server's protocol; those that may be NULL have their own.
fn token(kind: Type, nullable: bool) -> i64 {
    let of = |fixed: i64, variable: i64| if nullable { variable } else { fixed };
    match kind {
        Type::Bit => 50,
        Type::TinyInt => of(48, 38),
        Type::SmallInt => of(52, 38),
        Type::Int => of(56, 38),
        Type::BigInt => of(63, 108),
        Type::Numeric { .. } => of(63, 108),
        Type::Money => of(60, 110),
        Type::SmallMoney => of(122, 110),
        Type::Float => of(62, 109),
        Type::SmallDateTime => of(58, 111),
        Type::DateTime => of(61, 111),
        Type::Date | Type::Time(_) | Type::DateTime2(_) | Type::DateTimeOffset(_) => 0,
        Type::Binary(_) | Type::VarBinary(_) | Type::UniqueIdentifier => 37,
        Type::Char(_) | Type::NChar(_) | Type::VarChar(_) | Type::NVarChar(_) => 39,
        Type::SqlVariant => 39,
    }
}

/// DATA_TYPE, TYPE_NAME, PRECISION, LENGTH, SCALE, RADIX, SQL_DATA_TYPE, SQL_DATETIME_SUB, CHAR_OCTET_LENGTH and
/// SS_DATA_TYPE of a column. A length of 0 is that of `max`.
pub(super) fn odbc(kind: Type, identity: bool, nullable: bool) -> [Value; 10] {
    let (data_type, sql_type, sub) = odbc_numbers(kind);
    let name = kind.bare_name();
    let name = match (kind, identity) {
        (_, false) => name,
        (Type::Numeric { .. }, true) => format!("{name}() identity"),
        (_, true) => format!("{name} identity"),
    };
    let [_, bytes, own_precision, own_scale] = facts(kind);
    let wide = |n: Option<u16>| n.map_or(0, i64::from);
    let (precision, length) = match kind {
        Type::Char(n) => (n.into(), n.into()),
        Type::Binary(n) => (n.into(), n.into()),
        Type::NChar(n) => (n.into(), i64::from(n) * 2),
        Type::VarChar(n) | Type::VarBinary(n) => (wide(n), wide(n)),
        Type::NVarChar(n) => (wide(n), wide(n) * 2),
        Type::Numeric { precision, .. } => (precision.into(), i64::from(precision) + 2),
        Type::Money => (19, 21),
        Type::SmallMoney => (10, 12),
        Type::Date => (10, 6),
        Type::Time(scale) => (shown(8, scale), 10),
        Type::SmallDateTime => (16, 16),
        Type::DateTime => (23, 16),
        Type::DateTime2(scale) => (shown(19, scale), 16),
        Type::DateTimeOffset(scale) => (shown(26, scale), 20),
        Type::UniqueIdentifier => (36, 16),
        Type::SqlVariant => (8000, 8000),
        _ => (own_precision, bytes),
    };
    let is_sized = kind.is_text() || matches!(kind, Type::Binary(_) | Type::VarBinary(_));
    let scale = match kind {
        Type::Bit | Type::Float | Type::UniqueIdentifier | Type::SqlVariant => Value::Null,
        _ if is_sized => Value::Null,
        _ => Value::Int(own_scale),
    };
    let radix = match kind {
        Type::Bit => Value::Null,
        Type::Float => Value::Int(2),
        kind if kind.is_number() => Value::Int(10),
        _ => Value::Null,
    };
    [
        Value::Int(data_type),
        Value::Text(name),
        Value::Int(precision),
        Value::Int(length),
        scale,
        radix,
        Value::Int(sql_type),
        sub.map_or(Value::Null, Value::Int),
        if is_sized {
            Value::Int(length)
        } else {
            Value::Null
        },
        Value::Int(token(kind, nullable)),
    ]
}
