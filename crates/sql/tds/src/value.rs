//! Types and values on the wire (MS-TDS 2.2.5.4 to 2.2.5.5).
//!
//! Invariants
//! - A server sends few types: those of [`Type`].
//! - Clients' values of all types in use are read, into the same types.
//!
//! Leaves to others: the meaning of a value (the caller).

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::error::Error;
use crate::text;

/// A type of a column or a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    Date,
    /// Digits after the second, here and below: 0 to 7.
    Time(u8),
    SmallDateTime,
    DateTime,
    DateTime2(u8),
    DateTimeOffset(u8),
    /// The number of characters, of code page 1252.
    Char(u16),
    /// The number of UTF-16 units.
    NChar(u16),
    /// `None`: `max`.
    VarChar(Option<u16>),
    NVarChar(Option<u16>),
    VarBinary(Option<u16>),
    UniqueIdentifier,
    /// Contains integers.
    Variant,
}

/// A moment in the form of `datetime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    /// Since 1900-01-01; negative before.
    pub days: i32,
    /// Milliseconds of the day.
    pub ms: u32,
}

/// A moment, or a part of one, in the form of the types newer than `datetime`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Since 0001-01-01; in UTC if there is an offset. 0 for a time.
    pub days: i32,
    /// Nanoseconds of the day. 0 for a date.
    pub ns: u64,
    /// The minutes by which wall time is ahead of UTC.
    pub offset_minutes: i16,
}

/// A value of a row or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    /// `unscaled` / 10^`scale`
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    Float(f64),
    DateTime(DateTime),
    /// A value of one of the newer types.
    Moment(Moment),
    Text(Cow<'a, str>),
    Binary(Cow<'a, [u8]>),
    /// In the order in which it is printed.
    Guid([u8; 16]),
}

/// A column of a result set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultColumn<'a> {
    pub name: &'a str,
    pub kind: Type,
    pub nullable: bool,
}

const TYPE_NULL: u8 = 0x1f;
const INT1: u8 = 0x30;
const BIT: u8 = 0x32;
const INT2: u8 = 0x34;
const INT4: u8 = 0x38;
const DATETIM4: u8 = 0x3a;
const FLT4: u8 = 0x3b;
const MONEY: u8 = 0x3c;
const DATETIME: u8 = 0x3d;
const FLT8: u8 = 0x3e;
const MONEY4: u8 = 0x7a;
const INT8: u8 = 0x7f;
const GUID: u8 = 0x24;
const INTN: u8 = 0x26;
const DATEN: u8 = 0x28;
const TIMEN: u8 = 0x29;
const DATETIME2N: u8 = 0x2a;
const DATETIMEOFFSETN: u8 = 0x2b;
const DECIMAL: u8 = 0x37;
const NUMERIC: u8 = 0x3f;
const BITN: u8 = 0x68;
const DECIMALN: u8 = 0x6a;
const NUMERICN: u8 = 0x6c;
const FLTN: u8 = 0x6d;
const MONEYN: u8 = 0x6e;
const DATETIMN: u8 = 0x6f;
const VARIANT: u8 = 0x62;
const TEXT: u8 = 0x23;
const IMAGE: u8 = 0x22;
const NTEXT: u8 = 0x63;
const BIGVARBIN: u8 = 0xa5;
const BIGVARCHAR: u8 = 0xa7;
const BIGBINARY: u8 = 0xad;
const BIGCHAR: u8 = 0xaf;
const NVARCHAR: u8 = 0xe7;
const NCHAR: u8 = 0xef;

/// The most bytes of a value that is not `max`.
const SHORT_MAX: u16 = 8000;
/// As a type's length it means `max`, as a value's length NULL.
const LEN_OPEN: u16 = 0xffff;
const LEN_OPEN_NULL: u64 = u64::MAX;
const LEN_OPEN_UNKNOWN: u64 = u64::MAX - 1;

/// SQL_Latin1_General_CP1_CI_AS: code page 1252.
pub const COLLATION: [u8; 5] = [0x09, 0x04, 0xd0, 0x00, 0x34];
const COLLATION_LEN: usize = 5;
/// In the collation's first four bytes: texts are UTF-8.
const COLLATION_UTF8: u32 = 1 << 26;

const TICKS_PER_DAY: u32 = 300 * 86_400;
const MS_PER_DAY: u32 = 86_400_000;
const NS_PER_DAY: u64 = 86_400_000_000_000;
/// The most digits after the second.
const SCALE_MAX: u8 = 7;
/// From 0001-01-01 to 9999-12-31.
const DAYS_MAX: u32 = 3_652_058;

impl Type {
    /// The same type within the limits of the wire.
    fn clamped(self) -> Type {
        let characters = |n: u16| n.clamp(1, SHORT_MAX);
        let units = |n: u16| n.clamp(1, SHORT_MAX / 2);
        match self {
            Type::Char(n) => Type::Char(characters(n)),
            Type::NChar(n) => Type::NChar(units(n)),
            Type::VarChar(n) => Type::VarChar(n.filter(|n| *n <= SHORT_MAX).map(characters)),
            Type::NVarChar(n) => Type::NVarChar(n.filter(|n| *n <= SHORT_MAX / 2).map(units)),
            Type::VarBinary(n) => Type::VarBinary(n.filter(|n| *n <= SHORT_MAX).map(characters)),
            Type::Numeric { precision, scale } => {
                let precision = precision.clamp(1, 38);
                let scale = scale.min(precision);
                Type::Numeric { precision, scale }
            }
            Type::Bit
            | Type::TinyInt
            | Type::SmallInt
            | Type::Int
            | Type::BigInt
            | Type::Float
            | Type::Date
            | Type::SmallDateTime
            | Type::DateTime
            | Type::UniqueIdentifier
            | Type::Variant => self,
            Type::Time(scale) => Type::Time(scale.min(SCALE_MAX)),
            Type::DateTime2(scale) => Type::DateTime2(scale.min(SCALE_MAX)),
            Type::DateTimeOffset(scale) => Type::DateTimeOffset(scale.min(SCALE_MAX)),
        }
    }

    /// TYPE_INFO.
    pub(crate) fn put_info(self, out: &mut Vec<u8>) {
        let sized = |out: &mut Vec<u8>, token: u8, len: Option<u16>| {
            out.push(token);
            out.extend(len.unwrap_or(LEN_OPEN).to_le_bytes());
        };
        let texts = |out: &mut Vec<u8>, token: u8, len: Option<u16>| {
            sized(out, token, len);
            out.extend(COLLATION);
        };
        match self.clamped() {
            Type::Bit => out.extend([BITN, 1]),
            Type::TinyInt => out.extend([INTN, 1]),
            Type::SmallInt => out.extend([INTN, 2]),
            Type::Int => out.extend([INTN, 4]),
            Type::BigInt => out.extend([INTN, 8]),
            Type::Numeric { precision, scale } => {
                out.extend([NUMERICN, numeric_len(precision), precision, scale]);
            }
            Type::Float => out.extend([FLTN, 8]),
            Type::Date => out.push(DATEN),
            Type::Time(scale) => out.extend([TIMEN, scale]),
            Type::SmallDateTime => out.extend([DATETIMN, 4]),
            Type::DateTime => out.extend([DATETIMN, 8]),
            Type::DateTime2(scale) => out.extend([DATETIME2N, scale]),
            Type::DateTimeOffset(scale) => out.extend([DATETIMEOFFSETN, scale]),
            Type::Char(n) => texts(out, BIGCHAR, Some(n)),
            Type::NChar(n) => texts(out, NCHAR, Some(n * 2)),
            Type::VarChar(n) => texts(out, BIGVARCHAR, n),
            Type::NVarChar(n) => texts(out, NVARCHAR, n.map(|n| n * 2)),
            Type::VarBinary(n) => sized(out, BIGVARBIN, n),
            Type::UniqueIdentifier => out.extend([GUID, 16]),
            Type::Variant => {
                out.push(VARIANT);
                out.extend(8009_u32.to_le_bytes());
            }
        }
    }

    /// A value of this type, cut to fit; a value of another kind is NULL.
    pub(crate) fn put_value(self, out: &mut Vec<u8>, value: &Value) {
        let kind = self.clamped();
        let written = match (kind, value) {
            (_, Value::Null) => None,
            (Type::Bit, Value::Int(n)) => counted(out, &[u8::from(*n != 0)]),
            (Type::TinyInt, Value::Int(n)) => u8::try_from(*n)
                .ok()
                .and_then(|n| counted(out, &n.to_le_bytes())),
            (Type::SmallInt, Value::Int(n)) => i16::try_from(*n)
                .ok()
                .and_then(|n| counted(out, &n.to_le_bytes())),
            (Type::Int, Value::Int(n)) => i32::try_from(*n)
                .ok()
                .and_then(|n| counted(out, &n.to_le_bytes())),
            (Type::BigInt, Value::Int(n)) => counted(out, &n.to_le_bytes()),
            (Type::Numeric { precision, scale }, value) => {
                decimal(value, scale).and_then(|n| put_decimal(out, n, precision))
            }
            (Type::Float, Value::Float(n)) => counted(out, &n.to_le_bytes()),
            (Type::Float, Value::Int(n)) => counted(out, &(*n as f64).to_le_bytes()),
            (Type::DateTime, Value::DateTime(at)) => counted(out, &at.ticks()),
            (Type::SmallDateTime, Value::DateTime(at)) => {
                at.minutes().and_then(|bytes| counted(out, &bytes))
            }
            (Type::Date, Value::Moment(at)) => at.date().and_then(|days| counted(out, &days)),
            (Type::Time(scale), Value::Moment(at)) => counted(out, &at.time(scale)),
            (Type::DateTime2(scale), Value::Moment(at)) => at
                .date()
                .and_then(|days| counted(out, &[at.time(scale), days.to_vec()].concat())),
            (Type::DateTimeOffset(scale), Value::Moment(at)) => at.date().and_then(|days| {
                let offset = at.offset_minutes.to_le_bytes();
                counted(
                    out,
                    &[at.time(scale), days.to_vec(), offset.to_vec()].concat(),
                )
            }),
            (Type::UniqueIdentifier, Value::Guid(id)) => counted(out, &swapped(*id)),
            (Type::Variant, Value::Int(n)) => {
                put_variant(out, *n);
                Some(())
            }
            (Type::Char(n), Value::Text(text)) => {
                let mut bytes = text::to_1252(text);
                bytes.resize(n.into(), b' ');
                sized(out, &bytes)
            }
            (Type::NChar(n), Value::Text(text)) => {
                let mut bytes = Vec::new();
                text::put_utf16(&mut bytes, text::cut(text, n.into()));
                let blanks = usize::from(n) - bytes.len() / 2;
                text::put_utf16(&mut bytes, &" ".repeat(blanks));
                sized(out, &bytes)
            }
            (Type::VarChar(n), Value::Text(text)) => put_run(out, &text::to_1252(text), n),
            (Type::NVarChar(n), Value::Text(text)) => {
                let mut bytes = Vec::new();
                let units = n.map_or(usize::MAX, usize::from);
                text::put_utf16(&mut bytes, text::cut(text, units));
                put_run(out, &bytes, n.map(|n| n * 2))
            }
            (Type::VarBinary(n), Value::Binary(bytes)) => put_run(out, bytes, n),
            _ => None,
        };
        if written.is_none() {
            self.put_null(out);
        }
    }

    fn put_null(self, out: &mut Vec<u8>) {
        match self.clamped() {
            Type::Char(_)
            | Type::NChar(_)
            | Type::VarChar(Some(_))
            | Type::NVarChar(Some(_))
            | Type::VarBinary(Some(_)) => out.extend(LEN_OPEN.to_le_bytes()),
            Type::VarChar(None) | Type::NVarChar(None) | Type::VarBinary(None) => {
                out.extend(LEN_OPEN_NULL.to_le_bytes());
            }
            Type::Variant => out.extend(0_u32.to_le_bytes()),
            Type::Bit
            | Type::TinyInt
            | Type::SmallInt
            | Type::Int
            | Type::BigInt
            | Type::Numeric { .. }
            | Type::Float
            | Type::Date
            | Type::Time(_)
            | Type::SmallDateTime
            | Type::DateTime
            | Type::DateTime2(_)
            | Type::DateTimeOffset(_)
            | Type::UniqueIdentifier => out.push(0),
        }
    }
}

/// These functions return `Some` once they have written.
fn counted(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.push(bytes.len() as u8);
    out.extend(bytes);
    Some(())
}

fn sized(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
    Some(())
}

/// `len_max` in bytes; `None`: in chunks, as `max` is sent.
fn put_run(out: &mut Vec<u8>, bytes: &[u8], len_max: Option<u16>) -> Option<()> {
    if let Some(max) = len_max {
        return sized(out, &bytes[..bytes.len().min(max.into())]);
    }
    out.extend((bytes.len() as u64).to_le_bytes());
    if !bytes.is_empty() {
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
    out.extend(0_u32.to_le_bytes());
    Some(())
}

fn put_variant(out: &mut Vec<u8>, n: i64) {
    let (token, bytes) = match i32::try_from(n) {
        Ok(n) => (INT4, n.to_le_bytes().to_vec()),
        Err(_) => (INT8, n.to_le_bytes().to_vec()),
    };
    out.extend((bytes.len() as u32 + 2).to_le_bytes());
    out.extend([token, 0]);
    out.extend(bytes);
}

/// Bytes of a number with its sign.
fn numeric_len(precision: u8) -> u8 {
    match precision {
        0..=9 => 5,
        10..=19 => 9,
        20..=28 => 13,
        _ => 17,
    }
}

/// The number at a scale; further digits are dropped.
fn decimal(value: &Value, to: u8) -> Option<i128> {
    let (unscaled, from) = match value {
        Value::Decimal { unscaled, scale } => (*unscaled, *scale),
        Value::Int(n) => (i128::from(*n), 0),
        _ => return None,
    };
    let shift = 10_i128.checked_pow(u32::from(to.abs_diff(from)))?;
    match to >= from {
        true => unscaled.checked_mul(shift),
        false => Some(unscaled / shift),
    }
}

fn put_decimal(out: &mut Vec<u8>, unscaled: i128, precision: u8) -> Option<()> {
    let len = usize::from(numeric_len(precision)) - 1;
    let bytes = unscaled.unsigned_abs().to_le_bytes();
    if bytes[len..].iter().any(|b| *b != 0) {
        return None;
    }
    out.push(len as u8 + 1);
    out.push(u8::from(unscaled >= 0));
    out.extend(&bytes[..len]);
    Some(())
}

/// The first three groups are sent with their lowest byte first.
fn swapped(id: [u8; 16]) -> [u8; 16] {
    let mut id = id;
    id[..4].reverse();
    id[4..6].reverse();
    id[6..8].reverse();
    id
}

impl Moment {
    /// Three bytes of days; `None` if the date needs more.
    fn date(self) -> Option<[u8; 3]> {
        let days = u32::try_from(self.days).ok().filter(|d| *d <= DAYS_MAX)?;
        let [a, b, c, _] = days.to_le_bytes();
        Some([a, b, c])
    }

    /// Units of the scale since midnight.
    fn time(self, scale: u8) -> Vec<u8> {
        let unit = 10_u64.pow(9 - u32::from(scale.min(SCALE_MAX)));
        let units = self.ns.min(NS_PER_DAY - 1) / unit;
        units.to_le_bytes()[..time_len(scale)].to_vec()
    }
}

fn time_len(scale: u8) -> usize {
    match scale {
        0..=2 => 3,
        3 | 4 => 4,
        _ => 5,
    }
}

impl DateTime {
    /// Days and minutes; `None` outside the range of `smalldatetime`.
    fn minutes(self) -> Option<[u8; 4]> {
        let days = u16::try_from(self.days).ok()?.to_le_bytes();
        let minutes = u16::try_from(self.ms / 60_000).ok()?.to_le_bytes();
        Some([days[0], days[1], minutes[0], minutes[1]])
    }

    /// Days, then ticks of 1/300 s, rounded to the nearest.
    fn ticks(self) -> [u8; 8] {
        let mut days = self.days;
        let mut ticks = (self.ms.min(MS_PER_DAY - 1) * 3 + 5) / 10;
        if ticks == TICKS_PER_DAY {
            (days, ticks) = (days.saturating_add(1), 0);
        }
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&days.to_le_bytes());
        bytes[4..].copy_from_slice(&ticks.to_le_bytes());
        bytes
    }

    fn from_ticks(days: i32, ticks: u32) -> Option<DateTime> {
        let ms = (ticks < TICKS_PER_DAY).then(|| ((u64::from(ticks) * 10 + 1) / 3) as u32)?;
        Some(DateTime { days, ms })
    }
}

/// How a parameter's value is encoded, as its TYPE_INFO says.
#[derive(Debug, Clone, Copy)]
enum Form {
    Null,
    /// Always this many bytes.
    Fixed(Simple, usize),
    /// A length of one byte, 0 for NULL.
    Counted(Simple),
    /// A length of two bytes.
    Sized(Run),
    /// In chunks.
    Chunked(Run),
    /// A length of four bytes.
    Long(Run),
    Variant,
}

#[derive(Debug, Clone, Copy)]
enum Simple {
    Int,
    /// The only unsigned one.
    Byte,
    Bit,
    Float,
    Money,
    DateTime,
    Guid,
    Decimal {
        scale: u8,
    },
    Date,
    Time {
        scale: u8,
    },
    DateTime2 {
        scale: u8,
    },
    DateTimeOffset {
        scale: u8,
    },
}

#[derive(Debug, Clone, Copy)]
enum Run {
    Wide,
    Page1252,
    Utf8,
    Binary,
}

/// A parameter's type and value (TYPE_INFO, TYPE_VARBYTE).
pub fn parameter(cursor: &mut Cursor) -> Result<(Type, Value<'static>), Error> {
    let token = cursor.u8()?;
    let (kind, form) = form(token, cursor)?;
    let value = match form {
        Form::Null => Value::Null,
        Form::Fixed(simple, len) => simple.value(len, cursor)?,
        Form::Counted(simple) => match usize::from(cursor.u8()?) {
            0 => Value::Null,
            len => simple.value(len, cursor)?,
        },
        Form::Sized(run) => match cursor.u16()? {
            LEN_OPEN => Value::Null,
            len => run.value(cursor.take(len.into())?),
        },
        Form::Long(run) => match cursor.u32()? {
            u32::MAX => Value::Null,
            len => run.value(cursor.take(len as usize)?),
        },
        Form::Chunked(run) => match chunks(cursor)? {
            None => Value::Null,
            Some(bytes) => run.value(&bytes),
        },
        Form::Variant => variant(cursor)?,
    };
    Ok((kind, value))
}

fn form(token: u8, cursor: &mut Cursor) -> Result<(Type, Form), Error> {
    if let Some((kind, simple, len)) = fixed(token) {
        return Ok((kind, Form::Fixed(simple, len)));
    }
    match token {
        TYPE_NULL => Ok((Type::NVarChar(Some(1)), Form::Null)),
        INTN | BITN | FLTN | MONEYN | DATETIMN | GUID => {
            let (kind, simple) =
                of_length(token, cursor.u8()?).ok_or_else(|| cursor.malformed())?;
            Ok((kind, Form::Counted(simple)))
        }
        DECIMAL | NUMERIC | DECIMALN | NUMERICN => {
            let _len = cursor.u8()?;
            let (precision, scale) = (cursor.u8()?, cursor.u8()?);
            if !(1..=38).contains(&precision) || scale > precision {
                return Err(cursor.malformed());
            }
            let kind = Type::Numeric { precision, scale };
            Ok((kind, Form::Counted(Simple::Decimal { scale })))
        }
        DATEN => Ok((Type::Date, Form::Counted(Simple::Date))),
        TIMEN | DATETIME2N | DATETIMEOFFSETN => {
            let scale = cursor.u8()?;
            if scale > SCALE_MAX {
                return Err(cursor.malformed());
            }
            let (kind, simple) = of_scale(token, scale);
            Ok((kind, Form::Counted(simple)))
        }
        BIGVARBIN | BIGBINARY | BIGVARCHAR | BIGCHAR | NVARCHAR | NCHAR => {
            sized_form(token, cursor)
        }
        TEXT | NTEXT | IMAGE => long_form(token, cursor),
        VARIANT => {
            cursor.len32()?;
            Ok((Type::Variant, Form::Variant))
        }
        other => Err(Error::TypeUnsupported(other)),
    }
}

const fn money(precision: u8) -> Type {
    Type::Numeric {
        precision,
        scale: 4,
    }
}

/// A type whose token says its length, too.
fn fixed(token: u8) -> Option<(Type, Simple, usize)> {
    Some(match token {
        INT1 => (Type::TinyInt, Simple::Byte, 1),
        BIT => (Type::Bit, Simple::Bit, 1),
        INT2 => (Type::SmallInt, Simple::Int, 2),
        INT4 => (Type::Int, Simple::Int, 4),
        INT8 => (Type::BigInt, Simple::Int, 8),
        FLT4 => (Type::Float, Simple::Float, 4),
        FLT8 => (Type::Float, Simple::Float, 8),
        MONEY => (money(19), Simple::Money, 8),
        MONEY4 => (money(10), Simple::Money, 4),
        DATETIM4 => (Type::SmallDateTime, Simple::DateTime, 4),
        DATETIME => (Type::DateTime, Simple::DateTime, 8),
        _ => return None,
    })
}

/// A type that is told by its token and its length; `None`: there is none of this length.
fn of_length(token: u8, len: u8) -> Option<(Type, Simple)> {
    Some(match (token, len) {
        (INTN, 1) => (Type::TinyInt, Simple::Byte),
        (INTN, 2) => (Type::SmallInt, Simple::Int),
        (INTN, 4) => (Type::Int, Simple::Int),
        (INTN, 8) => (Type::BigInt, Simple::Int),
        (INTN, _) => return None,
        (BITN, _) => (Type::Bit, Simple::Bit),
        (FLTN, _) => (Type::Float, Simple::Float),
        (MONEYN, 4) => (money(10), Simple::Money),
        (MONEYN, _) => (money(19), Simple::Money),
        (DATETIMN, 4) => (Type::SmallDateTime, Simple::DateTime),
        (DATETIMN, _) => (Type::DateTime, Simple::DateTime),
        _ => (Type::UniqueIdentifier, Simple::Guid),
    })
}

fn of_scale(token: u8, scale: u8) -> (Type, Simple) {
    match token {
        TIMEN => (Type::Time(scale), Simple::Time { scale }),
        DATETIME2N => (Type::DateTime2(scale), Simple::DateTime2 { scale }),
        _ => (
            Type::DateTimeOffset(scale),
            Simple::DateTimeOffset { scale },
        ),
    }
}

/// Text and bytes whose length has two bytes, or which come in chunks.
fn sized_form(token: u8, cursor: &mut Cursor) -> Result<(Type, Form), Error> {
    let len = cursor.u16()?;
    let bounded = (len != LEN_OPEN).then_some(len);
    let (kind, run) = match token {
        BIGVARBIN | BIGBINARY => (Type::VarBinary(bounded), Run::Binary),
        BIGCHAR => (Type::Char(len.min(SHORT_MAX)), page(cursor)?),
        BIGVARCHAR => (Type::VarChar(bounded), page(cursor)?),
        _ => {
            cursor.take(COLLATION_LEN)?;
            let kind = match token {
                NCHAR => Type::NChar(len.min(SHORT_MAX) / 2),
                _ => Type::NVarChar(bounded.map(|len| len / 2)),
            };
            (kind, Run::Wide)
        }
    };
    Ok((kind, run_form(len, run)))
}

/// The old types of text and bytes, whose length has four bytes.
fn long_form(token: u8, cursor: &mut Cursor) -> Result<(Type, Form), Error> {
    cursor.len32()?;
    let (kind, run) = match token {
        TEXT => (Type::VarChar(None), page(cursor)?),
        NTEXT => {
            cursor.take(COLLATION_LEN)?;
            (Type::NVarChar(None), Run::Wide)
        }
        _ => (Type::VarBinary(None), Run::Binary),
    };
    Ok((kind, Form::Long(run)))
}

fn run_form(len: u16, run: Run) -> Form {
    match len {
        LEN_OPEN => Form::Chunked(run),
        _ => Form::Sized(run),
    }
}

fn page(cursor: &mut Cursor) -> Result<Run, Error> {
    let flags = cursor.u32()?;
    let _sort = cursor.u8()?;
    Ok(match flags & COLLATION_UTF8 {
        0 => Run::Page1252,
        _ => Run::Utf8,
    })
}

/// `None`: NULL.
fn chunks(cursor: &mut Cursor) -> Result<Option<Vec<u8>>, Error> {
    let total = cursor.u64()?;
    if total == LEN_OPEN_NULL {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    loop {
        let len = cursor.len32()?;
        if len == 0 {
            break;
        }
        bytes.extend_from_slice(cursor.take(len)?);
    }
    match total == LEN_OPEN_UNKNOWN || total == bytes.len() as u64 {
        true => Ok(Some(bytes)),
        false => Err(cursor.malformed()),
    }
}

/// A value preceded by its type, with its own length.
fn variant(cursor: &mut Cursor) -> Result<Value<'static>, Error> {
    let len = cursor.len32()?;
    if len == 0 {
        return Ok(Value::Null);
    }
    let mut inner = Cursor::new(cursor.take(len)?, "a variant");
    let token = inner.u8()?;
    let properties = inner.u8()?;
    let mut properties = Cursor::new(inner.take(properties.into())?, "a variant");
    let whole = inner.rest().len();
    let simple = match token {
        INT1 => Simple::Byte,
        BIT => Simple::Bit,
        INT2 | INT4 | INT8 => Simple::Int,
        FLT4 | FLT8 => Simple::Float,
        MONEY | MONEY4 => Simple::Money,
        DATETIM4 | DATETIME => Simple::DateTime,
        GUID => Simple::Guid,
        DATEN => Simple::Date,
        DECIMALN | NUMERICN => {
            let _precision = properties.u8()?;
            let scale = properties.u8()?;
            Simple::Decimal { scale }
        }
        NVARCHAR | NCHAR => return Ok(Run::Wide.value(inner.rest())),
        BIGVARCHAR | BIGCHAR => return Ok(page(&mut properties)?.value(inner.rest())),
        BIGVARBIN | BIGBINARY => return Ok(Run::Binary.value(inner.rest())),
        other => return Err(Error::TypeUnsupported(other)),
    };
    simple.value(whole, &mut inner)
}

impl Run {
    fn value(self, bytes: &[u8]) -> Value<'static> {
        match self {
            Run::Wide => Value::Text(text::from_utf16(bytes).into()),
            Run::Page1252 => Value::Text(text::from_1252(bytes).into()),
            Run::Utf8 => Value::Text(String::from_utf8_lossy(bytes).into_owned().into()),
            Run::Binary => Value::Binary(bytes.to_vec().into()),
        }
    }
}

impl Simple {
    fn value(self, len: usize, cursor: &mut Cursor) -> Result<Value<'static>, Error> {
        let malformed = cursor.malformed();
        let at = |moment: Option<DateTime>| moment.map(Value::DateTime).ok_or(malformed);
        let newer = |moment: Option<Moment>| moment.map(Value::Moment).ok_or(malformed);
        match (self, len) {
            (Simple::Byte, 1) => Ok(Value::Int(cursor.u8()?.into())),
            (Simple::Bit, 1) => Ok(Value::Int(i64::from(cursor.u8()? != 0))),
            (Simple::Int, 1) => Ok(Value::Int(cursor.u8()?.into())),
            (Simple::Int, 2 | 4 | 8) => Ok(Value::Int(cursor.signed(len)?)),
            (Simple::Float, 4) => {
                let n = f32::from_bits(cursor.u32()?);
                finite(n.into(), malformed)
            }
            (Simple::Float, 8) => finite(f64::from_bits(cursor.u64()?), malformed),
            (Simple::Money, 4) => Ok(Value::Decimal {
                unscaled: cursor.signed(4)?.into(),
                scale: 4,
            }),
            (Simple::Money, 8) => {
                // The more significant half comes first.
                let (high, low) = (cursor.u32()?, cursor.u32()?);
                let unscaled = (u64::from(high) << 32 | u64::from(low)) as i64;
                Ok(Value::Decimal {
                    unscaled: unscaled.into(),
                    scale: 4,
                })
            }
            (Simple::DateTime, 4) => {
                let (days, minutes) = (cursor.u16()?, cursor.u16()?);
                let ms = u32::from(minutes) * 60_000;
                at((ms < MS_PER_DAY).then_some(DateTime {
                    days: days.into(),
                    ms,
                }))
            }
            (Simple::DateTime, 8) => {
                let (days, ticks) = (cursor.u32()? as i32, cursor.u32()?);
                at(DateTime::from_ticks(days, ticks))
            }
            (Simple::Guid, 16) => {
                let mut id = [0; 16];
                id.copy_from_slice(cursor.take(16)?);
                Ok(Value::Guid(swapped(id)))
            }
            (Simple::Decimal { scale }, 2..=17) => {
                let positive = cursor.u8()? != 0;
                let magnitude = cursor.unsigned(len - 1)?;
                // 38 digits; longer numbers do not exist in this type.
                let magnitude = i128::try_from(magnitude).map_err(|_| malformed)?;
                if magnitude >= 10_i128.pow(38) {
                    return Err(malformed);
                }
                let unscaled = if positive { magnitude } else { -magnitude };
                Ok(Value::Decimal { unscaled, scale })
            }
            (Simple::Date, 3) => newer(moment(0, 0, cursor.unsigned(3)?, 0)),
            (Simple::Time { scale }, 3..=5) => newer(moment(cursor.unsigned(len)?, scale, 0, 0)),
            (Simple::DateTime2 { scale }, 6..=8) => {
                let time = cursor.unsigned(len - 3)?;
                newer(moment(time, scale, cursor.unsigned(3)?, 0))
            }
            (Simple::DateTimeOffset { scale }, 8..=10) => {
                let time = cursor.unsigned(len - 5)?;
                let days = cursor.unsigned(3)?;
                newer(moment(time, scale, days, cursor.signed(2)?))
            }
            _ => Err(malformed),
        }
    }
}

fn finite(n: f64, otherwise: Error) -> Result<Value<'static>, Error> {
    match n.is_finite() {
        true => Ok(Value::Float(n)),
        false => Err(otherwise),
    }
}

/// `time`: counts of 10^-`scale` s of the day; `None`: no such time or date exists.
fn moment(time: u128, scale: u8, days: u128, offset_minutes: i64) -> Option<Moment> {
    let unit = 10_u128.pow(9 - u32::from(scale.min(SCALE_MAX)));
    let ns = u64::try_from(time.checked_mul(unit)?).ok()?;
    let offset_minutes = i16::try_from(offset_minutes).ok()?;
    let is_known = ns < NS_PER_DAY && days <= DAYS_MAX.into() && offset_minutes.abs() <= 14 * 60;
    is_known.then_some(Moment {
        days: days as i32,
        ns,
        offset_minutes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(kind: Type, value: Value<'static>) -> Value<'static> {
        let mut bytes = Vec::new();
        kind.put_info(&mut bytes);
        kind.put_value(&mut bytes, &value);
        let mut cursor = Cursor::new(&bytes, "a test");
        let (found, value) = parameter(&mut cursor).unwrap();
        assert!(cursor.is_empty(), "{kind:?}");
        assert_eq!(found, kind.clamped());
        value
    }

    #[test]
    fn values_are_written_as_a_client_writes_them() {
        let at = DateTime {
            days: 46_080,
            ms: 79_504_120,
        };
        let text = |s: &str| Value::Text(s.to_owned().into());
        let decimal = |unscaled, scale| Value::Decimal { unscaled, scale };
        let cases = [
            (Type::Bit, Value::Int(1)),
            (Type::TinyInt, Value::Int(255)),
            (Type::SmallInt, Value::Int(-2)),
            (Type::Int, Value::Int(i32::MIN.into())),
            (Type::BigInt, Value::Int(i64::MIN)),
            (Type::Float, Value::Float(-0.5)),
            (Type::DateTime, Value::DateTime(at)),
            (
                Type::SmallDateTime,
                Value::DateTime(DateTime {
                    days: 46_080,
                    ms: 79_500_000,
                }),
            ),
            (
                Type::Date,
                Value::Moment(Moment {
                    days: 739_675,
                    ns: 0,
                    offset_minutes: 0,
                }),
            ),
            (
                Type::Time(7),
                Value::Moment(Moment {
                    days: 0,
                    ns: 123_456_700,
                    offset_minutes: 0,
                }),
            ),
            (
                Type::Time(0),
                Value::Moment(Moment {
                    days: 0,
                    ns: 86_399_000_000_000,
                    offset_minutes: 0,
                }),
            ),
            (
                Type::DateTime2(3),
                Value::Moment(Moment {
                    days: 3_652_058,
                    ns: 1_000_000,
                    offset_minutes: 0,
                }),
            ),
            (
                Type::DateTimeOffset(5),
                Value::Moment(Moment {
                    days: 1,
                    ns: 10_000,
                    offset_minutes: -720,
                }),
            ),
            (Type::Char(3), text("ab€")),
            (Type::NChar(2), text("\u{1f6a2}")),
            (Type::VarChar(Some(9)), text("")),
            (Type::VarChar(None), text("maximal")),
            (Type::NVarChar(Some(4)), text("Ωé")),
            (Type::NVarChar(None), text("")),
            (Type::VarBinary(Some(2)), Value::Binary(vec![0, 255].into())),
            (Type::VarBinary(None), Value::Binary(vec![1; 9000].into())),
            (Type::UniqueIdentifier, Value::Guid(*b"0123456789abcdef")),
            (Type::Variant, Value::Int(2)),
            (Type::Variant, Value::Int(i64::MAX)),
            (
                Type::Numeric {
                    precision: 25,
                    scale: 0,
                },
                decimal(10_i128.pow(24), 0),
            ),
            (
                Type::Numeric {
                    precision: 5,
                    scale: 2,
                },
                decimal(-305, 2),
            ),
        ];
        for (kind, value) in cases {
            assert_eq!(there_and_back(kind, value.clone()), value, "{kind:?}");
            assert_eq!(there_and_back(kind, Value::Null), Value::Null, "{kind:?}");
        }
    }

    #[test]
    fn values_are_cut_to_their_columns() {
        let text = |s: &str| Value::Text(s.to_owned().into());
        let cut = |kind, value| there_and_back(kind, value);
        assert_eq!(cut(Type::NVarChar(Some(3)), text("abcd")), text("abc"));
        assert_eq!(cut(Type::NVarChar(Some(2)), text("a\u{1f6a2}")), text("a"));
        assert_eq!(cut(Type::VarChar(Some(2)), text("Ωé!")), text("?é"));
        assert_eq!(cut(Type::Char(4), text("ab")), text("ab  "));
        assert_eq!(cut(Type::NChar(2), text("abc")), text("ab"));
        assert_eq!(
            cut(Type::VarBinary(Some(1)), Value::Binary(vec![1, 2].into())),
            Value::Binary(vec![1].into())
        );
        // A value that does not fit at all is NULL, never another value.
        assert_eq!(cut(Type::TinyInt, Value::Int(256)), Value::Null);
        assert_eq!(cut(Type::Int, text("7")), Value::Null);
        let narrow = Type::Numeric {
            precision: 9,
            scale: 0,
        };
        assert_eq!(cut(narrow, Value::Int(1 << 40)), Value::Null);
        let wide = Type::NVarChar(Some(5000));
        assert_eq!(wide.clamped(), Type::NVarChar(None));
    }

    #[test]
    fn moments_are_the_nearest_tick_and_a_day_never_has_one_too_many() {
        let ticks = |ms| {
            let bytes = DateTime { days: 1, ms }.ticks();
            let part = |at: usize| {
                u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            };
            (part(0), part(4))
        };
        assert_eq!(ticks(0), (1, 0));
        assert_eq!(ticks(1000), (1, 300));
        assert_eq!(ticks(4), (1, 1));
        assert_eq!(ticks(MS_PER_DAY - 1), (2, 0));
        assert_eq!(DateTime::from_ticks(0, 1).unwrap().ms, 3);
        assert_eq!(DateTime::from_ticks(0, 2).unwrap().ms, 7);
        assert_eq!(DateTime::from_ticks(0, TICKS_PER_DAY), None);
    }

    #[test]
    fn newer_moments_and_money_are_read() {
        let read = |bytes: &[u8]| parameter(&mut Cursor::new(bytes, "a test"));
        // 2026-03-01: 739675 days since 0001-01-01.
        let days = 739_675_u32.to_le_bytes();
        let date = [DATEN, 3, days[0], days[1], days[2]];
        let at = |ns, offset_minutes| {
            Value::Moment(Moment {
                days: 739_675,
                ns,
                offset_minutes,
            })
        };
        assert_eq!(read(&date).unwrap(), (Type::Date, at(0, 0)));
        // 23:00 UTC, two hours east of it.
        let hours = (23_u32 * 3600).to_le_bytes();
        let mut offset = vec![DATETIMEOFFSETN, 0, 8, hours[0], hours[1], hours[2]];
        offset.extend(&days[..3]);
        offset.extend(120_i16.to_le_bytes());
        let found = read(&offset).unwrap();
        let expected = at(23 * 3_600_000_000_000, 120);
        assert_eq!(found, (Type::DateTimeOffset(0), expected));
        let late = [TIMEN, 0, 3, 0x80, 0x51, 0x01];
        assert!(read(&late).is_err(), "a day has no second 86400");
        let money = [MONEYN, 8, 8, 0xff, 0xff, 0xff, 0xff, 0xf0, 0xd8, 0xff, 0xff];
        let minus_one = Value::Decimal {
            unscaled: -10_000,
            scale: 4,
        };
        assert_eq!(read(&money).unwrap().1, minus_one);
        assert_eq!(read(&[0xf1]), Err(Error::TypeUnsupported(0xf1)));
        assert!(read(&[FLTN, 8, 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f]).is_err());
        assert!(read(&[NUMERICN, 17, 38, 0, 17, 1]).is_err());
    }
}
