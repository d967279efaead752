//! Translates expressions to SQL of SQLite: operators, comparisons, CASE, CAST, subqueries.
//!
//! Every translated expression carries its T-SQL type, because SQLite's values have none: comparisons convert both
//! sides to the wider type first, and casts go through our own functions, so that results and errors are those of SQL
//! Server. Literals and variables become bound parameters; no text of a user gets into the SQL.
//!
//! Invariants
//! - A computed number is rounded to its type or refused (`ts_fit`), unless the caller checks it (`unheld`).
//! - Each expression counts against the limits of nesting, of steps and of the SQL's length.
//! - A column is that of the innermost scope that has one of its name; two of them in one scope are an error.
//!
//! Leaves to others: calls of functions (`call.rs`), the names and rows of views (`schema.rs`), and running the SQL.

use sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, CharacterLength, DataType, Expr, GroupByExpr, Ident, Query,
    SetExpr, TrimWhereField, UnaryOperator, Value as Literal,
};

use super::comparison::{Side, Sides, comparison, operation};
use super::grouped::{aggregate, is_one};
use super::lookup::DBO;
use super::state::{
    SQL_LEN_MAX, SelectPurpose, Translator, TypedSql, column_alias, folded, not_here, position,
};
use super::tables;
use crate::convert::{MONEY_SCALE, PRECISION_MAX, type_of};
use crate::kinds::{self, TypePlace};
use crate::message::{self, Message};
use crate::pairs::{check_explicit, check_implicit};
use crate::query::collation::{Collation, Label, NamedCollation};
use crate::query::known::{global, literal, text_kind};
use crate::query::number::{result, wider};
use crate::query::sql::{Node, Parameter, Sql};
use crate::syntax::{Literal as Given, marked};
use crate::value::{LENGTH_MAX, Type, Value};

fn condition(sql: impl Into<Sql>) -> TypedSql {
    TypedSql::of(sql, Type::Int)
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

/// Two sides of a comparison, and the label of both if they are texts.
type Pair = (Side<Sql>, Side<Sql>, Option<Label>);

impl Translator<'_> {
    pub(super) fn expression(&mut self, expr: &Expr) -> Result<TypedSql, Message> {
        let typed = self.unheld(expr)?;
        Ok(match typed.is_computed {
            true => {
                let kind = self.bind_type(typed.kind());
                TypedSql {
                    sql: Sql::call("ts_fit", [typed.sql, kind]),
                    is_computed: false,
                    ..typed
                }
            }
            false => typed,
        })
    }

    /// The same, for callers that check the value against its type themselves.
    pub(super) fn unheld(&mut self, expr: &Expr) -> Result<TypedSql, Message> {
        if let Some(typed) = self.descend(|t| t.of_set(expr))? {
            return Ok(typed);
        }
        let typed = self.as_group(expr, |t| t.descend(|t| t.expression_of(expr)))?;
        match typed.sql.len() > SQL_LEN_MAX {
            true => Err(message::NO_PLAN.plain()),
            false => Ok(typed),
        }
    }

    fn expression_of(&mut self, expr: &Expr) -> Result<TypedSql, Message> {
        match expr {
            Expr::Identifier(name) => self.identifier(name),
            Expr::CompoundIdentifier(names) => self.column(names),
            Expr::Value(value) => self.literal(&value.value),
            Expr::Prefixed { prefix, value } if prefix.value.eq_ignore_ascii_case("N") => {
                self.expression(value)
            }
            Expr::Nested(inner) => {
                let inner = self.unheld(inner)?;
                Ok(TypedSql {
                    sql: inner.sql.nested(),
                    ..inner
                })
            }
            Expr::UnaryOp { op, expr } => self.unary(*op, expr),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::Subquery(query) => {
                let made = self.subquery(query)?;
                let sql = match is_single(query) {
                    true => format!("({})", made.sql),
                    false => format!(
                        "(SELECT ts_single({}) FROM ({}))",
                        column_alias(0),
                        made.sql
                    ),
                };
                Ok(TypedSql {
                    sql: sql.into(),
                    ..made
                })
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                self.field_access(root, access_chain)
            }
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand.as_deref(), conditions, else_result.as_deref()),
            Expr::Cast {
                kind,
                expr,
                data_type,
                format: None,
            } => self.cast_as(kind, expr, data_type),
            Expr::Convert {
                is_try,
                expr,
                data_type: Some(data_type),
                styles,
                ..
            } => self.convert(*is_try, expr, data_type, styles),
            Expr::Collate { expr, collation } => {
                let name = tables::parts(collation).join(".");
                let label = Label::Explicit(NamedCollation::of(&name)?);
                let inner = self.expression(expr)?;
                match (&inner.label, inner.kind) {
                    (Label::Explicit(_), _) => Err(message::COLLATED_TWICE.plain()),
                    (_, Some(kind)) if !kind.is_text() => Err(message::COLLATE_TYPE.with(&[&kind])),
                    _ => Ok(inner.labelled(label)),
                }
            }
            Expr::Function(function) => self.call(function),
            Expr::Substring {
                expr,
                substring_from: Some(from),
                substring_for: Some(length),
                ..
            } => self.simple("SUBSTRING", &[expr, from, length]),
            Expr::Trim {
                trim_where: None,
                trim_what: None,
                expr,
                trim_characters: None,
            } => self.simple("TRIM", &[expr]),
            Expr::Trim {
                trim_where,
                trim_what: Some(what),
                expr,
                trim_characters: None,
            } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "LTRIM",
                    Some(TrimWhereField::Trailing) => "RTRIM",
                    None | Some(TrimWhereField::Both) => "TRIM",
                };
                self.simple(name, &[expr, what])
            }
            Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => self.at_time_zone(timestamp, time_zone),
            Expr::Floor { expr, .. } => self.whole("ts_floor", expr),
            Expr::Ceil { expr, .. } => self.whole("ts_ceiling", expr),
            other => self.predicate(other),
        }
    }

    /// An expression that has no value but is true or not.
    fn predicate(&mut self, expr: &Expr) -> Result<TypedSql, Message> {
        match expr {
            Expr::IsNull(inner) => {
                let inner = self.expression(inner)?.sql;
                Ok(condition(inner.null_test(true)))
            }
            Expr::IsNotNull(inner) => {
                let inner = self.expression(inner)?.sql;
                Ok(condition(inner.null_test(false)))
            }
            Expr::IsDistinctFrom(left, right) => self.distinct(left, right, true),
            Expr::IsNotDistinctFrom(left, right) => self.distinct(left, right, false),
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let pairs = [(">=", &**low), ("<=", &**high)];
                let all = self.compare_all(expr, &pairs)?;
                let within = all.into_iter().reduce(|a, b| a.binary("AND", b));
                let within = within.unwrap_or_else(Sql::null);
                Ok(condition(within.negated_if(*negated)))
            }
            Expr::InList {
                expr,
                list,
                negated,
            } => self.in_list(expr, list, *negated),
            Expr::InSubquery {
                expr,
                subquery,
                negated,
            } => self.in_query(expr, subquery, *negated),
            Expr::Exists { subquery, negated } => {
                let selected = self.query_for(subquery, SelectPurpose::Existence)?.sql;
                let not = not(*negated);
                Ok(condition(format!("({not}EXISTS ({selected}))")))
            }
            Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            } => self.like(expr, pattern, escape_char.as_deref(), *negated),
            Expr::AllOp {
                left,
                compare_op,
                right,
            } => self.of_each(left, compare_op, right, true),
            Expr::AnyOp {
                left,
                compare_op,
                right,
                ..
            } => self.of_each(left, compare_op, right, false),
            other => Err(not_here(&shown(other))),
        }
    }

    /// `a IS [NOT] DISTINCT FROM b`: NULL is the same as NULL, so it is never unknown.
    fn distinct(&mut self, left: &Expr, right: &Expr, is: bool) -> Result<TypedSql, Message> {
        let equal = self.compare(left, "=", right)?;
        let mut known = Vec::new();
        let mut unknown = Vec::new();
        for side in [left, right] {
            let side = self.expression(side)?.sql;
            known.push(side.clone().null_test(false).nested());
            unknown.push(side.null_test(true).nested());
        }
        let all = |tests: Vec<Sql>| tests.into_iter().reduce(|a, b| a.binary("AND", b));
        let (Some(known), Some(unknown)) = (all(known), all(unknown)) else {
            return Err(not_here("IS DISTINCT FROM"));
        };
        let same = known.binary("AND", equal.nested()).nested();
        let same = same.binary("OR", unknown.nested()).nested();
        Ok(condition(same.negated_if(is)))
    }

    /// `x >= ALL (SELECT …)`, `x = ANY (SELECT …)`
    fn of_each(
        &mut self,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
        all: bool,
    ) -> Result<TypedSql, Message> {
        let (Some(word), Expr::Subquery(query)) = (comparison(op), right) else {
            return Err(not_here("ALL or ANY of something else than a query"));
        };
        let left = self.expression(left)?;
        let made = self.subquery(query)?;
        let operation = operation(word);
        let label = left.text_label().with(made.text_label(), operation)?;
        let (sql, alias) = (made.sql, self.new_alias());
        let right = TypedSql::new(format!("{alias}.{}", column_alias(0)), made.kind);
        let (left, right) = self.alike(left, right);
        let collation = match left.kind().is_text() {
            true => Some(label.resolved(operation)?),
            false => None,
        };
        let holds = left.sql.binary(word, right.sql.collated(collation));
        let rows = format!("EXISTS (SELECT 1 FROM ({sql}) AS {alias} WHERE");
        // One row decides; without such a row an unknown comparison makes the whole unknown.
        let (decides, then, otherwise) = match all {
            true => ("NOT ", 0, 1),
            false => ("", 1, 0),
        };
        Ok(condition(format!(
            "(CASE WHEN {rows} {decides}{holds}) THEN {then} WHEN {rows} {holds} IS NULL) THEN NULL ELSE {otherwise} END)"
        )))
    }

    fn like(
        &mut self,
        expr: &Expr,
        pattern: &Expr,
        escape: Option<&Expr>,
        negated: bool,
    ) -> Result<TypedSql, Message> {
        let (text, pattern) = (self.expression(expr)?, self.expression(pattern)?);
        // Blanks at the end of a text do not count where neither side has two bytes per character.
        let is_narrow = !text.kind().is_national() && !pattern.kind().is_national();
        let label = text.text_label().with(pattern.text_label(), "like")?;
        let (text, pattern) = (self.text_of(text), self.text_of(pattern));
        let escape = match escape {
            Some(escape) => self.as_text(escape)?,
            None => Sql::null(),
        };
        let collation = label.resolved("like")?;
        let folds = i64::from(collation == Collation::CaseInsensitive);
        let how = self.bind(Value::Int(folds + 2 * i64::from(is_narrow)));
        let fits = Sql::call("ts_like", [text, pattern, escape, how]);
        Ok(condition(fits.negated_if(negated)))
    }

    fn cast_as(
        &mut self,
        kind: &CastKind,
        expr: &Expr,
        to: &DataType,
    ) -> Result<TypedSql, Message> {
        let function = match kind {
            CastKind::TryCast | CastKind::SafeCast => "ts_try_cast",
            CastKind::Cast => "ts_cast",
            CastKind::DoubleColon => return Err(not_here("::")),
        };
        // A conversion holds it against its type.
        let inner = self.unheld(expr)?;
        let to = type_named(to)?;
        inner.kind.map_or(Ok(()), |from| check_explicit(from, to))?;
        Ok(self.cast(function, inner, to))
    }

    fn convert(
        &mut self,
        is_try: bool,
        expr: &Expr,
        to: &DataType,
        styles: &[Expr],
    ) -> Result<TypedSql, Message> {
        let inner = self.unheld(expr)?;
        let to = type_named(to)?;
        inner.kind.map_or(Ok(()), |from| check_explicit(from, to))?;
        let ([style], Some(from)) = (styles, inner.kind) else {
            let function = if is_try { "ts_try_cast" } else { "ts_cast" };
            return Ok(self.cast(function, inner, to));
        };
        let function = match is_try {
            true => "ts_try_convert",
            false => "ts_convert",
        };
        let style = self.expression(style)?.sql;
        let label = match to.is_text() {
            true => inner.text_label(),
            false => Label::Default,
        };
        let inner = self.dated_in_style(inner, to, Some(style.clone()));
        let (from, name) = (self.bind_type(from), self.bind_type(to));
        let sql = Sql::call(function, [inner.sql, from, name, style]);
        Ok(TypedSql::of(sql, to).labelled(label))
    }

    /// FLOOR and CEILING.
    pub(super) fn whole(
        &mut self,
        function: &'static str,
        expr: &Expr,
    ) -> Result<TypedSql, Message> {
        let inner = self.expression(expr)?;
        let kind = match inner.kind() {
            Type::Numeric { precision, .. } => Type::numeric(precision, 0),
            kind if kind.is_integer() => kind,
            _ => Type::Float,
        };
        Ok(TypedSql::of(Sql::call(function, [inner.sql]), kind))
    }

    fn identifier(&mut self, name: &Ident) -> Result<TypedSql, Message> {
        let word = &name.value;
        if word.starts_with("@@") {
            let (kind, value) = global(&self.context, word)?;
            return Ok(TypedSql::of(self.bind(value), kind));
        }
        if word.starts_with('@') {
            return self.bind_variable(word);
        }
        if name.quote_style.is_none() && word.eq_ignore_ascii_case("CURRENT_TIMESTAMP") {
            let now = Value::DateTime(self.context.server.now());
            return Ok(TypedSql::of(self.bind(now), Type::DateTime));
        }
        if name.quote_style.is_none()
            && let Some(user) = self.user_by_word(word)
        {
            let user = Value::text(user);
            return Ok(TypedSql::of(self.bind(user), Type::nvarchar(128)));
        }
        self.column(std::slice::from_ref(name))
    }

    /// The login, or the user that it is in a database: whoever logs in here administrates the server, and is `dbo`
    /// everywhere.
    fn user_by_word(&self, word: &str) -> Option<&str> {
        let is_any = |words: &[&str]| words.iter().any(|w| word.eq_ignore_ascii_case(w));
        if is_any(&["SYSTEM_USER"]) {
            return Some(self.context.login.user.as_str());
        }
        is_any(&["CURRENT_USER", "SESSION_USER", "USER"]).then_some(DBO)
    }

    /// A column by this name, from the innermost scope that has one.
    fn column(&mut self, names: &[Ident]) -> Result<TypedSql, Message> {
        let spelled = || {
            let names: Vec<_> = names.iter().map(|n| n.value.as_str()).collect();
            names.join(".")
        };
        let Some((column, before)) = names.split_last() else {
            return Err(message::COLUMN_UNKNOWN.with(&[&""]));
        };
        let table_name = before.last().map(|t| t.value.as_str());
        let mut known_table = false;
        for (at, scope) in self.scopes.iter().enumerate().rev() {
            let mut found = None;
            for table in scope {
                if table_name.is_some_and(|n| !table.name.eq_ignore_ascii_case(n)) {
                    continue;
                }
                known_table = true;
                let Some(i) = position(&table.columns, &column.value) else {
                    continue;
                };
                if found.is_some() {
                    return Err(message::COLUMN_AMBIGUOUS.with(&[&column.value]));
                }
                found = Some((table.clone(), i));
            }
            if let Some((table, i)) = found {
                self.reach.add(at);
                let typed = table.typed(i);
                self.meets_column(&table, &table.columns[i].name, &typed);
                return Ok(typed);
            }
        }
        Err(match known_table || table_name.is_none() {
            true => message::COLUMN_UNKNOWN.with(&[&column.value]),
            false => message::IDENTIFIER_UNBOUND.with(&[&spelled()]),
        })
    }

    fn literal(&mut self, value: &Literal) -> Result<TypedSql, Message> {
        if let Some(given) = given(value, self.literals) {
            return Ok(match given {
                Given::Text { value, is_national } => self.text(value, *is_national),
                Given::Number(text) => self.number(text),
            });
        }
        match value {
            Literal::Number(text, _) => Ok(self.number(text)),
            Literal::SingleQuotedString(text) => Ok(self.text(text, false)),
            Literal::NationalStringLiteral(text) => Ok(self.text(text, true)),
            Literal::HexStringLiteral(digits) => {
                let padded = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
                let byte = |i: usize| {
                    let pair = padded.get(i..i + 2)?;
                    u8::from_str_radix(pair, 16).ok()
                };
                let bytes: Option<Vec<u8>> = (0..padded.len()).step_by(2).map(byte).collect();
                let bytes = bytes.ok_or_else(|| message::SYNTAX.with(&[digits]))?;
                let kind = Type::VarBinary(u16::try_from(bytes.len().max(1)).ok());
                Ok(TypedSql::of(self.bind(Value::Binary(bytes)), kind))
            }
            Literal::Null => Ok(TypedSql::new(Sql::null(), None)),
            Literal::Placeholder(name) if name.starts_with('@') => {
                self.identifier(&Ident::new(name.as_str()))
            }
            other => Err(not_here(&other.to_string())),
        }
    }

    fn text(&mut self, text: &str, is_national: bool) -> TypedSql {
        let bound = self.bind(Value::text(text));
        TypedSql::of(bound, text_kind(text, is_national))
    }

    fn number(&mut self, text: &str) -> TypedSql {
        let value = literal(text);
        let kind = match &value {
            Value::Int(n) if i32::try_from(*n).is_ok() => Type::Int,
            Value::Int(n) => Type::numeric(n.unsigned_abs().to_string().len() as u8, 0),
            Value::Decimal(d) => {
                let digits = d.unscaled.unsigned_abs().to_string().len();
                let precision = digits.max(d.scale.into()).clamp(1, 38) as u8;
                Type::numeric(precision, d.scale.min(precision))
            }
            _ => Type::Float,
        };
        TypedSql::of(self.bind(value), kind)
    }

    fn unary(&mut self, op: UnaryOperator, expr: &Expr) -> Result<TypedSql, Message> {
        // The smallest bigint has no opposite.
        if let (UnaryOperator::Minus, Expr::Value(value)) = (op, expr) {
            match (&value.value, given(&value.value, self.literals)) {
                (_, Some(Given::Number(text))) | (Literal::Number(text, _), None) => {
                    return Ok(self.number(&format!("-{text}")));
                }
                _ => {}
            }
        }
        let inner = self.expression(expr)?;
        match op {
            UnaryOperator::Minus if inner.kind().is_text() => {
                let kind = inner.kind();
                Err(message::OPERAND_TYPE.with(&[&kind.bare_name(), &"minus"]))
            }
            UnaryOperator::Minus => {
                let kind = inner.kind();
                Ok(TypedSql::of(Sql::unary("-", inner.sql), kind))
            }
            UnaryOperator::Plus => Ok(inner),
            UnaryOperator::Not => Ok(TypedSql::of(Sql::unary("NOT", inner.sql), Type::Int)),
            UnaryOperator::BitwiseNot => {
                let kind = inner.kind();
                Ok(TypedSql::of(Sql::unary("~", inner.sql), kind))
            }
            _ => Err(not_here("this operator")),
        }
    }

    fn binary(
        &mut self,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
    ) -> Result<TypedSql, Message> {
        if let Some(word) = comparison(op) {
            return Ok(condition(self.compare(left, word, right)?));
        }
        let word = match op {
            BinaryOperator::And => "AND",
            BinaryOperator::Or => "OR",
            _ => return self.arithmetic(left, op, right),
        };
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        Ok(condition(left.sql.binary(word, right.sql)))
    }

    /// Compares both sides in the wider of their types.
    fn compare(&mut self, left: &Expr, word: &'static str, right: &Expr) -> Result<Sql, Message> {
        let Sides {
            left,
            right,
            collation,
        } = self.sides(left, word, right)?;
        Ok(left.sql.binary(word, right.sql.collated(collation)))
    }

    /// Compares a value with several others. All of them are operands of one operator, so one COLLATE counts for all.
    fn compare_all(
        &mut self,
        left: &Expr,
        others: &[(&'static str, &Expr)],
    ) -> Result<Vec<Sql>, Message> {
        let mut label = Label::Default;
        let mut pairs = Vec::with_capacity(others.len());
        for (word, right) in others {
            let (left, right, own) = self.pair(left, word, right)?;
            let is_text = own.is_some();
            label = label.with(own.unwrap_or_default(), operation(word))?;
            pairs.push((left.sql, *word, right.sql, is_text));
        }
        let mut all = Vec::with_capacity(pairs.len());
        for (left, word, right, is_text) in pairs {
            let collation = match is_text {
                true => Some(label.resolved(operation(word))?),
                false => None,
            };
            all.push(left.binary(word, right.collated(collation)));
        }
        Ok(all)
    }

    /// The two sides of a comparison in the wider of their types, and how they are compared.
    pub(super) fn sides(
        &mut self,
        left: &Expr,
        word: &'static str,
        right: &Expr,
    ) -> Result<Sides, Message> {
        let (left, right, label) = self.pair(left, word, right)?;
        let collation = label.map(|label| label.resolved(operation(word)));
        Ok(Sides {
            left,
            right,
            collation: collation.transpose()?,
        })
    }

    /// The same with the label of both, if they are compared as texts.
    fn pair(&mut self, left: &Expr, word: &'static str, right: &Expr) -> Result<Pair, Message> {
        let (left, left_reach) = self.watched(|t| t.expression(left))?;
        let (right, right_reach) = self.watched(|t| t.expression(right))?;
        let label = left
            .text_label()
            .with(right.text_label(), operation(word))?;
        let (left, right) = self.alike(left, right);
        let kind = left.kind();
        // Moments with offsets are stored in UTC followed by the offset, which does not count.
        let compared = |sql: Sql| match kind {
            Type::DateTimeOffset(_) => format!("substr({sql}, 1, 27)").into(),
            _ => sql,
        };
        let side = |side: TypedSql, reach| Side {
            sql: compared(side.sql),
            reach,
        };
        Ok((
            side(left, left_reach),
            side(right, right_reach),
            kind.is_text().then_some(label),
        ))
    }

    /// Converts the side of the narrower type, if SQLite would otherwise compare them differently.
    fn alike(&mut self, left: TypedSql, right: TypedSql) -> (TypedSql, TypedSql) {
        let (Some(a), Some(b)) = (left.kind, right.kind) else {
            return (left, right);
        };
        let common = wider(a, b);
        let mut one = |side: TypedSql| match side.kind {
            Some(kind) if needs_cast(kind, common) => self.cast("ts_cast", side, common),
            _ => side,
        };
        (one(left), one(right))
    }

    pub(super) fn bind_type(&mut self, kind: Type) -> Sql {
        self.parameter(Parameter::Type(kind))
    }

    pub(super) fn cast(&mut self, function: &'static str, from: TypedSql, to: Type) -> TypedSql {
        let Some(kind) = from.kind else {
            return TypedSql::of(Sql::null(), to);
        };
        let label = match to.is_text() {
            true => from.text_label(),
            false => Label::Default,
        };
        let from = self.dated(from, to);
        let (kind, name) = (self.bind_type(kind), self.bind_type(to));
        TypedSql::of(Sql::call(function, [from.sql, kind, name]), to).labelled(label)
    }

    /// The expression as a text.
    pub(super) fn as_text(&mut self, expr: &Expr) -> Result<Sql, Message> {
        let inner = self.expression(expr)?;
        Ok(self.text_of(inner))
    }

    /// The same for a translated expression.
    pub(super) fn text_of(&mut self, inner: TypedSql) -> Sql {
        match inner.kind {
            Some(kind) if !kind.is_text() => {
                self.cast("ts_cast", inner, Type::VarChar(Some(LENGTH_MAX)))
                    .sql
            }
            _ => inner.sql,
        }
    }

    fn in_list(&mut self, expr: &Expr, list: &[Expr], negated: bool) -> Result<TypedSql, Message> {
        let pairs: Vec<_> = list.iter().map(|item| ("=", item)).collect();
        let any = Sql::any(self.compare_all(expr, &pairs)?);
        Ok(condition(any.nested().negated_if(negated)))
    }

    /// `x IN (SELECT …)`: both sides have the wider of their types, as in every other comparison.
    fn in_query(&mut self, expr: &Expr, query: &Query, negated: bool) -> Result<TypedSql, Message> {
        let left = self.expression(expr)?;
        let made = self.subquery(query)?;
        let label = left.text_label().with(made.text_label(), operation("="))?;
        let (sql, alias) = (made.sql, self.new_alias());
        let right = TypedSql::new(format!("{alias}.{}", column_alias(0)), made.kind);
        let (left, right) = self.alike(left, right);
        if left.kind().is_text() {
            label.resolved(operation("="))?;
        }
        let left = left.labelled(label);
        let not = not(negated);
        if let Type::DateTimeOffset(_) = left.kind() {
            // As in `sides`: the offset does not count.
            return Ok(condition(format!(
                "(substr({}, 1, 27) {not}IN (SELECT substr({}, 1, 27) FROM ({sql}) AS {alias}))",
                left.sql, right.sql
            )));
        }
        let left = folded(&left);
        Ok(condition(format!(
            "({left} {not}IN (SELECT {} FROM ({sql}) AS {alias}))",
            right.sql
        )))
    }

    /// A query with one column.
    fn subquery(&mut self, query: &Query) -> Result<TypedSql, Message> {
        let selected = self.query(query)?;
        let markup = selected.marks.first().copied().flatten();
        let label = selected.label(0);
        match selected.columns.as_slice() {
            [column] => {
                let made = TypedSql::of(selected.sql, column.kind);
                Ok(made.marked(markup).labelled(label))
            }
            _ => Err(message::SUBQUERY_COLUMNS.plain()),
        }
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
    ) -> Result<TypedSql, Message> {
        let mut branches = Vec::new();
        for when in conditions {
            let condition = match operand {
                Some(operand) => self.compare(operand, "=", &when.condition)?,
                None => self.expression(&when.condition)?.sql,
            };
            branches.push((condition, self.expression(&when.result)?));
        }
        let otherwise = otherwise.map(|e| self.expression(e)).transpose()?;
        let labels = branches.iter().map(|(_, t)| t).chain(&otherwise);
        let label = Label::of_all(labels.map(TypedSql::text_label), "CASE")?;
        let kinds = branches.iter().map(|(_, t)| t).chain(&otherwise);
        let kind = kinds.filter_map(|t| t.kind).reduce(wider);
        let branches = branches.into_iter();
        let branches = branches.map(|(condition, value)| (condition, self.widened(value, kind)));
        let branches = branches.collect();
        let otherwise = otherwise.map(|value| self.widened(value, kind));
        let label = label.of_text(kind.unwrap_or(Type::Int))?;
        Ok(TypedSql::new(Sql::case(branches, otherwise), kind).labelled(label))
    }

    pub(super) fn widened(&mut self, value: TypedSql, kind: Option<Type>) -> Sql {
        match (value.kind, kind) {
            (Some(own), Some(kind)) if needs_cast(own, kind) => {
                self.cast("ts_cast", value, kind).sql
            }
            _ => value.sql,
        }
    }

    /// Two moments of the older types, or such a moment and a text: each counts as days since 1900.
    fn of_two_moments(&mut self, symbol: char, left: TypedSql, right: TypedSql) -> TypedSql {
        let kind = match (left.kind(), right.kind()) {
            (Type::SmallDateTime, Type::SmallDateTime) => Type::SmallDateTime,
            _ => Type::DateTime,
        };
        let mut one = |side: TypedSql| match side.kind() == kind {
            true => side.sql,
            false => self.cast("ts_cast", side, kind).sql,
        };
        let (left, right) = (one(left), one(right));
        let of = self.bind_type(kind);
        let days = Sql::call("ts_days", [right, of.clone()]);
        let days = match symbol {
            '-' => Sql::unary("-", days),
            _ => days,
        };
        TypedSql::of(Sql::call("ts_adddays", [days, left, of]), kind)
    }

    /// Two binaries, one after the other: up to 8,000 bytes, if neither is `max`.
    fn joined_binaries(&mut self, left: TypedSql, right: TypedSql) -> TypedSql {
        let length = |kind: Type| match kind {
            Type::Binary(n) | Type::VarBinary(Some(n)) => Some(usize::from(n)),
            _ => None,
        };
        let both = length(left.kind()).zip(length(right.kind()));
        let both = both.map(|(a, b)| (a + b).min(LENGTH_MAX.into()) as u16);
        let most = self.bind(both.map_or(Value::Null, |most| Value::Int(most.into())));
        let sql = Sql::call("ts_joined_binary", [left.sql, right.sql, most]);
        TypedSql::of(sql, Type::VarBinary(both))
    }

    /// The most characters that a text can have, as far as its values tell it; `None`: any number.
    pub(super) fn longest(&self, text: &Sql, kind: Type) -> Option<usize> {
        match &text.node {
            Node::Null => Some(0),
            Node::Bound(number) => {
                let at = number.checked_sub(1);
                match at.and_then(|at| self.values.get(at)) {
                    Some(Parameter::Value(Value::Text(text))) => Some(text.len()),
                    Some(Parameter::Value(Value::Null)) => Some(0),
                    _ => kind.display_width(),
                }
            }
            Node::Nested(inner) => self.longest(inner, kind),
            Node::Binary(left, "||", right) => {
                Some(self.longest(left, kind)? + self.longest(right, kind)?)
            }
            // A letter may become two.
            Node::Call("ts_lower" | "ts_upper", all) if all.len() == 1 => {
                Some(2 * self.longest(&all[0], kind)?)
            }
            _ => kind.display_width(),
        }
    }

    /// A text without what its type has no room for.
    pub(super) fn shortened(&mut self, text: Sql, kind: Type) -> Sql {
        match kind.display_width() {
            Some(most) => {
                let most = self.bind(Value::Int(i64::try_from(most).unwrap_or(i64::MAX)));
                Sql::call("ts_left", [text, most])
            }
            None => text,
        }
    }

    fn arithmetic(
        &mut self,
        left_expr: &Expr,
        op: &BinaryOperator,
        right_expr: &Expr,
    ) -> Result<TypedSql, Message> {
        let (mut left, mut right) = (self.expression(left_expr)?, self.expression(right_expr)?);
        // A bare NULL takes the type of the other side.
        left.kind = left.kind.or(right.kind);
        right.kind = right.kind.or(left.kind);
        let (a, b) = (left.kind(), right.kind());
        let symbol = match op {
            BinaryOperator::Plus => '+',
            BinaryOperator::Minus => '-',
            BinaryOperator::Multiply => '*',
            BinaryOperator::Divide => '/',
            BinaryOperator::Modulo => '%',
            BinaryOperator::BitwiseAnd => '&',
            BinaryOperator::BitwiseOr => '|',
            BinaryOperator::BitwiseXor => '^',
            _ => return Err(not_here(&op.to_string())),
        };
        if symbol == '+' && a.is_text() && b.is_text() {
            let label = left.text_label().with(right.text_label(), "add")?;
            let kind = joined_kind(a, b);
            let given = self.longest(&left.sql, a).zip(self.longest(&right.sql, b));
            let given = given.map(|(left, right)| left + right);
            let joined = left.sql.binary("||", right.sql);
            let joined = match given.is_none_or(|given| Some(given) > kind.display_width()) {
                // More than a type has room for is cut off.
                true => self.shortened(joined, kind),
                false => joined,
            };
            return Ok(TypedSql::of(joined, kind).labelled(label.of_text(kind)?));
        }
        let is_day = |kind: Type| matches!(kind, Type::DateTime | Type::SmallDateTime);
        let is_day_or_text = |kind: Type| is_day(kind) || kind.is_text();
        if matches!(symbol, '+' | '-')
            && (is_day(a) || is_day(b))
            && is_day_or_text(a)
            && is_day_or_text(b)
        {
            return Ok(self.of_two_moments(symbol, left, right));
        }
        // Days are added to and subtracted from moments.
        if matches!(symbol, '+' | '-')
            && matches!(a, Type::DateTime | Type::SmallDateTime)
            && b.is_number()
        {
            let kind = self.bind_type(a);
            let days = match symbol {
                '-' => Sql::unary("-", right.sql),
                _ => right.sql,
            };
            let sql = Sql::call("ts_adddays", [days, left.sql, kind]);
            return Ok(TypedSql::of(sql, a));
        }
        if symbol == '+' && is_binary(a) && is_binary(b) {
            return Ok(self.joined_binaries(left, right));
        }
        check_implicit(a, b)?;
        if symbol == '+' && a.is_number() && is_day(b) {
            let kind = self.bind_type(b);
            let sql = Sql::call("ts_adddays", [left.sql, right.sql, kind]);
            return Ok(TypedSql::of(sql, b));
        }
        // A text combined with a number is converted to a number.
        let kind = wider(a, b);
        let mut one = |side: TypedSql| match side.kind {
            Some(own) if (own.is_text() || is_binary(own)) && kind.is_number() => {
                self.cast("ts_cast", side, kind)
            }
            _ => side,
        };
        let (left, right) = (one(left), one(right));
        let (a, b) = (left.kind(), right.kind());
        // Bits are combined by `&`, `|` and `^` alone.
        if (a, b) == (Type::Bit, Type::Bit) && matches!(symbol, '+' | '-' | '*' | '/' | '%') {
            return Err(message::OPERANDS.with(&[&a, &b, &symbol_name(symbol)]));
        }
        if !a.is_number() && a == b {
            return Err(message::OPERAND_TYPE.with(&[&a.bare_name(), &symbol_name(symbol)]));
        }
        if !a.is_number() || !b.is_number() {
            return Err(message::OPERANDS.with(&[&a, &b, &symbol_name(symbol)]));
        }
        // Whole digits next to a `numeric` are one of as few digits as they need.
        let is_numeric = |kind| matches!(kind, Type::Numeric { .. });
        let narrowest = |own: Type, expr: &Expr, other: Type| match is_numeric(other) {
            true if own.is_integer() => digits_of(expr, self.literals).unwrap_or(own),
            _ => own,
        };
        let kind = result(
            symbol,
            narrowest(a, left_expr, b),
            narrowest(b, right_expr, a),
        );
        let scale = match symbol {
            '/' => self.bind(Value::Int(scale_of(kind))),
            _ => Sql::null(),
        };
        let sql = computed(symbol, kind, left.sql, right.sql, scale);
        Ok(TypedSql {
            is_computed: kind.is_exact(),
            ..TypedSql::of(sql, kind)
        })
    }
}

fn is_binary(kind: Type) -> bool {
    matches!(kind, Type::Binary(_) | Type::VarBinary(_))
}

/// Whether a query has one row at most, whatever its tables have.
fn is_single(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else {
        return query.for_clause.is_some();
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(by, modifiers) => !by.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    query.for_clause.is_some()
        || is_one(select.top.as_ref())
        || !is_grouped && (select.from.is_empty() || aggregate(select).is_some())
}

/// The type that a number written as digits has in arithmetic with a `numeric`: as many digits as it needs.
fn digits_of(expr: &Expr, literals: &[Given]) -> Option<Type> {
    match expr {
        Expr::Nested(inner)
        | Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr: inner,
        } => digits_of(inner, literals),
        Expr::Value(value) => {
            let text = match (&value.value, given(&value.value, literals)) {
                (_, Some(Given::Number(text))) | (Literal::Number(text, _), None) => text,
                _ => return None,
            };
            let digits = text.trim_start_matches('0').len().max(1);
            let is_whole = text.bytes().all(|b| b.is_ascii_digit());
            let precision = u8::try_from(digits).ok().filter(|n| *n <= PRECISION_MAX);
            Some(Type::numeric(precision.filter(|_| is_whole)?, 0))
        }
        _ => None,
    }
}

/// The literal that a mark stands for.
fn given<'a>(value: &Literal, literals: &'a [Given]) -> Option<&'a Given> {
    match value {
        Literal::Placeholder(mark) => marked(mark, literals),
        _ => None,
    }
}

/// The type of two texts that are joined.
fn joined_kind(a: Type, b: Type) -> Type {
    let both = a.display_width().zip(b.display_width());
    let both = |max: u16| both.map(|(x, y)| (x + y).min(max.into()) as u16);
    match a.is_national() || b.is_national() {
        true => Type::NVarChar(both(LENGTH_MAX / 2)),
        false => Type::VarChar(both(LENGTH_MAX)),
    }
}

/// Two numbers, combined to one of this type.
fn computed(symbol: char, kind: Type, left: Sql, right: Sql, scale: Sql) -> Sql {
    match symbol {
        '/' if kind.is_integer() => Sql::call("ts_divide_whole", [left, right]),
        '/' if kind.is_exact() => Sql::call("ts_divide_exact", [left, right, scale]),
        '/' => Sql::call("ts_divide", [left, right]),
        '%' => Sql::call("ts_modulo", [left, right]),
        '^' => {
            let all = left.clone().binary("|", right.clone());
            all.binary("-", left.binary("&", right))
        }
        '+' => left.binary("+", right),
        '-' => left.binary("-", right),
        '*' => left.binary("*", right),
        '&' => left.binary("&", right),
        _ => left.binary("|", right),
    }
}

/// The digits after the point of an exact type.
pub(super) fn scale_of(kind: Type) -> i64 {
    match kind {
        Type::Numeric { scale, .. } => scale.into(),
        kind if kind.is_money() => MONEY_SCALE.into(),
        _ => 0,
    }
}

fn symbol_name(symbol: char) -> &'static str {
    match symbol {
        '+' => "add",
        '-' => "subtract",
        '*' => "multiply",
        '/' => "divide",
        '%' => "modulo",
        _ => "bitwise",
    }
}

/// Whether SQLite stores values of the two types so differently that they cannot be mixed.
fn needs_cast(from: Type, to: Type) -> bool {
    let class = |kind: Type| match kind {
        kind if kind.is_number() || kind == Type::SqlVariant => 0,
        kind if kind.is_text() => 1,
        Type::DateTime => 2,
        Type::UniqueIdentifier => 3,
        Type::Date => 5,
        Type::Time(_) => 6,
        Type::SmallDateTime => 7,
        Type::DateTime2(_) => 8,
        Type::DateTimeOffset(_) => 9,
        _ => 4,
    };
    class(from) != class(to)
}

/// The type of a name in the query.
pub(super) fn type_named(data_type: &DataType) -> Result<Type, Message> {
    if let Some(usual) = usual_type(data_type) {
        return Ok(usual);
    }
    let text = data_type.to_string();
    let (name, sizes) = text.split_once('(').unwrap_or((&text, ""));
    let sizes: Vec<Option<u32>> = sizes
        .trim_end_matches(')')
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().ok())
        .collect();
    let name = name.trim().trim_start_matches('[').trim_end_matches(']');
    let usual = match sizes.is_empty() && is_sized(name) {
        true => vec![Some(USUAL_LENGTH)],
        false => sizes,
    };
    kinds::named(name, &usual, TypePlace::Cast)
}

/// The types of nearly all conversions, without their text.
fn usual_type(data_type: &DataType) -> Option<Type> {
    let sized = |name, length: &Option<CharacterLength>| match length {
        None => type_of(name, &[Some(USUAL_LENGTH)]),
        Some(CharacterLength::Max) => type_of(name, &[None]),
        Some(CharacterLength::IntegerLength { length, unit: None }) => {
            type_of(name, &[Some(u32::try_from(*length).ok()?)])
        }
        Some(CharacterLength::IntegerLength { .. }) => None,
    };
    match data_type {
        DataType::Int(None) => Some(Type::Int),
        DataType::BigInt(None) => Some(Type::BigInt),
        DataType::Date => Some(Type::Date),
        DataType::Varchar(length) => sized("varchar", length),
        DataType::Nvarchar(length) => sized("nvarchar", length),
        _ => None,
    }
}

/// Characters of a conversion without a length.
const USUAL_LENGTH: u32 = 30;

fn is_sized(name: &str) -> bool {
    [
        "CHAR",
        "NCHAR",
        "VARCHAR",
        "NVARCHAR",
        "VARBINARY",
        "BINARY",
    ]
    .iter()
    .any(|n| name.eq_ignore_ascii_case(n))
}

/// The beginning of an expression, for a message.
fn shown(expr: &Expr) -> String {
    let text = expr.to_string();
    text.chars().take(60).collect()
}
