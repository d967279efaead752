//! Translates functions that make moments of parts, and AT TIME ZONE.
//!
//! Invariants
//! - The digits after the second are those of the argument's type, or those that a literal says.
//!
//! Leaves to others: the functions' own code (`query/instants.rs`), and other functions of dates (`call.rs`).

use sqlparser::ast::Expr;

use super::state::{Translator, TypedSql, not_here};
use crate::dates::DateOrder;
use crate::message::{self, Message};
use crate::query::moment::DatePart;
use crate::query::sql::Sql;
use crate::value::{SCALE_MAX, Type, Value};

/// The functions that make a moment of parts, with how many arguments each has.
const OF_PARTS: &[(&str, usize)] = &[
    ("DATETIMEFROMPARTS", 7),
    ("DATETIME2FROMPARTS", 8),
    ("DATETIMEOFFSETFROMPARTS", 10),
    ("SMALLDATETIMEFROMPARTS", 5),
    ("TIMEFROMPARTS", 5),
];

/// The type of a moment with an offset, of one that may have none.
fn with_offset(kind: Type) -> Type {
    Type::DateTimeOffset(match kind {
        Type::DateTime => 3,
        Type::SmallDateTime | Type::Date => 0,
        Type::DateTime2(scale) | Type::DateTimeOffset(scale) => scale,
        _ => SCALE_MAX,
    })
}

/// Whether this is the part of a moment that tells its offset from UTC.
pub(super) fn is_offset(part: &str) -> bool {
    ["TZ", "TZOFFSET"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(part))
}

impl Translator<'_> {
    /// A text as it reads in the session's order of day, month and year, for a conversion to this type, or a function that
    /// takes it as one.
    pub(super) fn dated(&mut self, from: TypedSql, to: Type) -> TypedSql {
        self.dated_in_style(from, to, None)
    }

    /// The same for CONVERT with a style.
    pub(super) fn dated_in_style(
        &mut self,
        from: TypedSql,
        to: Type,
        style: Option<Sql>,
    ) -> TypedSql {
        let order = self.context.date_order;
        let is_read = to.is_moment() && from.kind.is_some_and(Type::is_text);
        if order == DateOrder::default() || !is_read {
            return from;
        }
        let to = self.bind_type(to);
        let order = self.bind(Value::text(order.name()));
        let mut all = vec![from.sql, to, order];
        all.extend(style);
        TypedSql {
            sql: Sql::call("ts_dated", all),
            ..from
        }
    }

    /// The same of an expression that a function of dates takes as `datetime2`.
    pub(super) fn dated_moment(&mut self, at: &Expr) -> Result<Sql, Message> {
        let at = self.expression(at)?;
        Ok(self.dated(at, Type::DateTime2(SCALE_MAX)).sql)
    }

    /// The same for a function of one part, which the type of the moment must have. Texts, which are literals for the most
    /// part, have all.
    ///
    /// Errors: 9810.
    pub(super) fn moment_with(
        &mut self,
        function: &str,
        part: &str,
        at: &Expr,
    ) -> Result<Sql, Message> {
        let at = self.expression(at)?;
        let lacks = match (at.kind, DatePart::of(part)) {
            (Some(Type::Date), Some(of)) => of.is_of_time(),
            (Some(Type::Time(_)), Some(of)) => !of.is_of_time(),
            (Some(Type::Date | Type::Time(_) | Type::DateTime | Type::SmallDateTime), None) => {
                is_offset(part)
            }
            _ => false,
        };
        match (lacks, at.kind) {
            (true, Some(kind)) => {
                let (part, function) = (part.to_lowercase(), function.to_lowercase());
                Err(message::PART_UNKNOWN.with(&[&part, &function, &kind.bare_name()]))
            }
            _ => Ok(self.dated(at, Type::DateTime2(SCALE_MAX)).sql),
        }
    }

    /// `None`: it is none of these functions. Errors: 174, 9810.
    pub(super) fn of_instants(
        &mut self,
        name: &str,
        arguments: &[&Expr],
    ) -> Result<Option<TypedSql>, Message> {
        if let Some((_, count)) = OF_PARTS.iter().find(|(known, _)| *known == name) {
            if arguments.len() != *count {
                return Err(message::ARGUMENT_COUNT.with(&[&name.to_lowercase(), count]));
            }
            return self.of_moment_parts(name, arguments).map(Some);
        }
        match (name, arguments) {
            ("SWITCHOFFSET" | "TODATETIMEOFFSET", [at, offset]) => {
                let at = self.expression(at)?;
                let at = self.dated(at, Type::DateTimeOffset(SCALE_MAX));
                let offset = self.expression(offset)?;
                let kind = with_offset(at.kind());
                let own = self.bind_type(at.kind());
                let switches = self.bind(Value::bit(name == "SWITCHOFFSET"));
                let sql = Sql::call("ts_with_offset", [at.sql, own, offset.sql, switches]);
                Ok(Some(TypedSql::of(sql, kind)))
            }
            ("DATETRUNC", [part, at]) => {
                let part = match part {
                    Expr::Identifier(name) if DatePart::of(&name.value).is_some() => {
                        self.bind(Value::text(name.value.as_str()))
                    }
                    other => return Err(message::OPTION_UNKNOWN.with(&[other, &"datetrunc"])),
                };
                let at = self.expression(at)?;
                let at = self.dated(at, Type::DateTime2(SCALE_MAX));
                let kind = match at.kind() {
                    kind if kind.is_moment() => kind,
                    _ => Type::DateTime2(SCALE_MAX),
                };
                let at = self.widened(at, Some(kind));
                let own = self.bind_type(kind);
                let first = self.bind(Value::Int(self.context.date_first));
                let sql = Sql::call("ts_datetrunc", [part, at, own, first]);
                Ok(Some(TypedSql::of(sql, kind)))
            }
            ("DATE_BUCKET", [part, width, at, origin @ ..]) if origin.len() <= 1 => {
                let part = match part {
                    Expr::Identifier(name) if DatePart::of(&name.value).is_some() => {
                        self.bind(Value::text(name.value.as_str()))
                    }
                    other => return Err(message::OPTION_UNKNOWN.with(&[other, &"date_bucket"])),
                };
                let width = self.expression(width)?.sql;
                let at = self.expression(at)?;
                let kind = match at.kind() {
                    kind if kind.is_moment() => kind,
                    _ => Type::DateTime2(SCALE_MAX),
                };
                let at = self.dated(at, kind);
                let at = self.widened(at, Some(kind));
                let own = self.bind_type(kind);
                let mut all = vec![part, width, at, own];
                all.push(match origin.first() {
                    Some(origin) => self.dated_moment(origin)?,
                    None => self.bind(Value::text("1900-01-01")),
                });
                Ok(Some(TypedSql::of(Sql::call("ts_date_bucket", all), kind)))
            }
            _ => Ok(None),
        }
    }

    fn of_moment_parts(&mut self, name: &str, arguments: &[&Expr]) -> Result<TypedSql, Message> {
        let last = arguments.len().saturating_sub(1);
        // The scale is a literal, or a variable.
        let scaled = matches!(
            name,
            "DATETIME2FROMPARTS" | "DATETIMEOFFSETFROMPARTS" | "TIMEFROMPARTS"
        );
        let scale = match scaled {
            true => match self.constant(arguments[last])? {
                Value::Int(n) => u8::try_from(n).ok().filter(|n| *n <= SCALE_MAX),
                _ => None,
            }
            .ok_or_else(|| not_here(&format!("this scale of {name}")))?,
            false => SCALE_MAX,
        };
        let mut given = Vec::new();
        for argument in &arguments[..if scaled { last } else { last + 1 }] {
            given.push(self.expression(argument)?.sql);
        }
        let mut number = |n: i64| self.bind(Value::Int(n));
        let (kind, parts) = match name {
            "TIMEFROMPARTS" => {
                let mut parts = vec![number(1900), number(1), number(1)];
                parts.append(&mut given);
                parts.push(number(scale.into()));
                (Type::Time(scale), parts)
            }
            "SMALLDATETIMEFROMPARTS" => {
                given.extend([number(0), number(0), number(0)]);
                (Type::SmallDateTime, given)
            }
            "DATETIMEFROMPARTS" => {
                given.push(number(3));
                (Type::DateTime, given)
            }
            "DATETIME2FROMPARTS" => {
                given.push(number(scale.into()));
                (Type::DateTime2(scale), given)
            }
            _ => {
                given.insert(7, number(scale.into()));
                (Type::DateTimeOffset(scale), given)
            }
        };
        let mut all = vec![self.bind_type(kind)];
        all.extend(parts);
        Ok(TypedSql::of(Sql::call("ts_fromparts", all), kind))
    }

    /// `moment AT TIME ZONE 'UTC'`
    pub(super) fn at_time_zone(&mut self, at: &Expr, zone: &Expr) -> Result<TypedSql, Message> {
        let at = self.expression(at)?;
        let kind = at.kind();
        let is_whole = kind.is_moment() && !matches!(kind, Type::Date | Type::Time(_));
        if !is_whole {
            return Err(message::ARGUMENT_TYPE.with(&[
                &kind.bare_name() as &dyn std::fmt::Display,
                &1,
                &"AT TIME ZONE",
            ]));
        }
        let zone = self.as_text(zone)?;
        let own = self.bind_type(kind);
        let sql = Sql::call("ts_at_time_zone", [at.sql, own, zone]);
        Ok(TypedSql::of(sql, with_offset(kind)))
    }
}
