//! Values that are known without a query: literals, variables and `@@NAME`.
//!
//! Invariants
//! - The server's version is that of the SQL Server whose language this is, everywhere the same; its name is its own.
//!
//! Leaves to others: values of expressions (`direct`, `translate`).

use super::context::QueryContext;
use crate::convert::{convert, narrow, parse_decimal};
use crate::message::{self, Message};
use crate::syntax::Operand;
use crate::value::{Decimal, LENGTH_MAX, Type, Value};

/// The type of a literal: a character outside Windows-1252 needs two bytes per character, even without the prefix N.
pub fn text_kind(text: &str, is_national: bool) -> Type {
    let length = text.chars().count().max(1);
    let of = |max: u16| u16::try_from(length).ok().filter(|n| *n <= max);
    match is_national || text.chars().any(|c| narrow(c).is_none()) {
        true => Type::NVarChar(of(LENGTH_MAX / 2)),
        false => Type::VarChar(of(LENGTH_MAX)),
    }
}

/// The value of a number literal.
pub fn literal(text: &str) -> Value {
    if let Some(money) = text.strip_prefix('$') {
        let made = convert(&Value::text(money), Type::Money);
        return made.unwrap_or_else(|_| literal(money));
    }
    if let Ok(n) = text.parse() {
        return Value::Int(n);
    }
    let scale = text
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let scale = u8::try_from(scale).unwrap_or(u8::MAX);
    match parse_decimal(text, scale) {
        Some(Some(unscaled)) => Value::Decimal(Decimal { unscaled, scale }),
        _ => text.parse().map_or(Value::Null, Value::Float),
    }
}

/// `@@NAME`. Errors: 137 for an unknown one; 50002 for one of SQL Server's that is not here.
pub fn global(context: &QueryContext, name: &str) -> Result<(Type, Value), Message> {
    let whole = |n: i64| (Type::Int, Value::Int(n));
    let text = |text: String| (Type::nvarchar(300), Value::Text(text));
    Ok(match name.to_ascii_uppercase().as_str() {
        "@@ERROR" => whole(context.error.into()),
        "@@ROWCOUNT" => whole(i64::try_from(context.row_count).unwrap_or(i64::MAX)),
        "@@TRANCOUNT" => whole(context.transactions.into()),
        "@@NESTLEVEL" => whole(context.place.level),
        "@@PROCID" => whole(context.place.procedure),
        "@@IDENTITY" => {
            let value = context.place.identity.map_or(Value::Null, Value::Int);
            (Type::numeric(38, 0), value)
        }
        "@@DATEFIRST" => whole(context.date_first),
        "@@DBTS" => (Type::VarBinary(Some(8)), Value::Binary(vec![0; 8])),
        "@@LANGID" => whole(context.language.number()),
        "@@LOCK_TIMEOUT" => whole(context.lock_timeout),
        "@@MAX_CONNECTIONS" => whole(32_767),
        "@@MICROSOFTVERSION" => whole(0x1000_108C),
        "@@OPTIONS" => whole(context.options),
        "@@REMSERVER" => (Type::nvarchar(128), Value::Null),
        "@@TEXTSIZE" => whole(-1),
        "@@SPID" => whole(context.id.into()),
        "@@SERVERNAME" => text(context.server.setup.name.clone()),
        "@@SERVICENAME" => text("LONGSHORE".to_owned()),
        "@@VERSION" => text(version_of_language()),
        "@@LANGUAGE" => text(context.language.name().to_owned()),
        "@@MAX_PRECISION" => whole(38),
        "@@FETCH_STATUS" => whole(context.cursors.fetch_status),
        "@@CURSOR_ROWS" => whole(i64::try_from(context.cursors.row_count()).unwrap_or(i64::MAX)),
        // This server counts none of these.
        "@@CONNECTIONS" | "@@CPU_BUSY" | "@@IDLE" | "@@IO_BUSY" | "@@PACKET_ERRORS"
        | "@@PACK_RECEIVED" | "@@PACK_SENT" | "@@TIMETICKS" | "@@TOTAL_ERRORS" | "@@TOTAL_READ"
        | "@@TOTAL_WRITE" => return Err(message::NOT_HERE.with(&[&name])),
        _ => return Err(message::NOT_DECLARED.with(&[&name])),
    })
}

/// The text of `@@VERSION`: drivers and tools read its beginning and the numbers after ` - `.
fn version_of_language() -> String {
    format!(
        "Microsoft SQL Server 2022, as it is spoken by Longshore {} - {PRODUCT_VERSION} ({})",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

/// The version of SQL Server whose language this is.
pub const PRODUCT_VERSION: &str = "16.0.4236.2";

/// The program's own version.
pub fn version() -> String {
    format!(
        "Longshore {} ({}); speaks the backup language of Microsoft SQL Server 2022",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

/// The value of a literal, a variable or an `@@NAME`.
pub fn value_of(context: &QueryContext, operand: &Operand) -> Result<Value, Message> {
    Ok(match operand {
        Operand::Integer(n) => Value::Int(*n),
        Operand::Number(text) => literal(text),
        Operand::Text(text) => Value::text(text.as_str()),
        Operand::Variable(name) if name.starts_with("@@") => global(context, name)?.1,
        Operand::Variable(name) => context.variable(name)?.value.clone(),
        Operand::Null => Value::Null,
    })
}
