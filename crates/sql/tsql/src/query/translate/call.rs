//! Translates calls of functions: aggregates and scalar functions.
//!
//! A function that SQLite computes alike keeps its name; the others become functions of ours. Functions of the server,
//! such as SERVERPROPERTY and OBJECT_ID, are evaluated before the query runs where their arguments name no column; else
//! they are looked up for each row (`lookup.rs`). An unknown function is refused with SQL Server's message; none is guessed.
//!
//! Invariants
//! - The name of a called function comes from a table of this file or from a fixed list, never from the query.
//! - Values that the server gives (names, times, properties) are bound, never written into the SQL.
//! - A function with the wrong number of arguments is refused, as is an argument that is not a plain expression.
//!
//! Leaves to others: functions with OVER (`windowed.rs`), the functions' own code, and all other expressions
//! (`expression.rs`).

use sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectNamePart,
};

use super::expression::scale_of;
use super::instant::is_offset;
use super::lookup::{DBO, server_property};
use super::state::{Markup, Translator, TypedSql, direction, folded, not_here};
use super::tables;
use crate::convert::{PRECISION_MAX, convert};
use crate::message::{self, Message};
use crate::query::collation::{Collation, Label};
use crate::query::moment::DatePart;
use crate::query::number::{average, sum, wider};
use crate::query::objects::{constraint_id, temporary_id};
use crate::query::schema::database_id;
use crate::query::sql::Sql;
use crate::query::texts;
use crate::query::views::number_of;
use crate::query::zones::windows;
use crate::server::is_shared;
use crate::syntax::Language;
use crate::value::{LENGTH_MAX, SCALE_MAX, Temporal, Type, Value};

/// The type of texts that functions make: of one or two bytes per character, bounded or not, like their arguments.
const TEXT: Type = Type::VarChar(Some(LENGTH_MAX));
const NAME: Type = Type::nvarchar(128);

/// The kind of name in the message for an unknown function.
pub(super) const FUNCTION: &str = "built-in function name";

/// Functions whose arguments are passed on unchanged: name, least and most arguments, which of them are passed as
/// texts (`t`; the last letter applies to all later ones), our function, type.
const SIMPLE: &[(&str, usize, usize, &str, &str, Type)] = &[
    ("ABS", 1, 1, "v", "abs", Type::SqlVariant),
    ("ASCII", 1, 1, "t", "ts_ascii", Type::Int),
    ("CHAR", 1, 1, "v", "ts_char", Type::Char(1)),
    ("CHARINDEX", 2, 3, "ttv", "ts_charindex", Type::Int),
    ("CONCAT", 2, 254, "t", "ts_concat", TEXT),
    ("DAY", 1, 1, "v", "day", Type::Int),
    ("EOMONTH", 1, 2, "v", "ts_eomonth", Type::Date),
    ("ISDATE", 1, 1, "v", "ts_isdate", Type::Int),
    ("ISNUMERIC", 1, 1, "v", "ts_isnumeric", Type::Int),
    ("LEFT", 2, 2, "tv", "ts_left", TEXT),
    ("LEN", 1, 1, "t", "ts_len", Type::Int),
    ("LOWER", 1, 1, "t", "ts_lower", TEXT),
    ("LTRIM", 1, 2, "t", "ltrim", TEXT),
    ("MONTH", 1, 1, "v", "month", Type::Int),
    ("NCHAR", 1, 1, "v", "ts_nchar", Type::NChar(1)),
    ("QUOTENAME", 1, 2, "t", "ts_quotename", Type::nvarchar(258)),
    ("REPLACE", 3, 3, "t", "ts_replace", TEXT),
    ("REPLICATE", 2, 2, "tv", "ts_replicate", TEXT),
    ("REVERSE", 1, 1, "t", "ts_reverse", TEXT),
    ("RIGHT", 2, 2, "tv", "ts_right", TEXT),
    ("ROUND", 2, 3, "v", "ts_round", Type::SqlVariant),
    ("RTRIM", 1, 2, "t", "rtrim", TEXT),
    ("SIGN", 1, 1, "v", "sign", Type::SqlVariant),
    ("SPACE", 1, 1, "v", "space", TEXT),
    ("SQRT", 1, 1, "v", "ts_sqrt", Type::Float),
    ("STR", 1, 3, "v", "ts_str", TEXT),
    ("STUFF", 4, 4, "tvvt", "ts_stuff", TEXT),
    ("SUBSTRING", 3, 3, "tv", "ts_substring", TEXT),
    ("TRIM", 1, 2, "t", "trim", TEXT),
    ("UPPER", 1, 1, "t", "ts_upper", TEXT),
    ("YEAR", 1, 1, "v", "year", Type::Int),
    ("CONCAT_WS", 3, 254, "t", "ts_concat_ws", TEXT),
    ("DATEFROMPARTS", 3, 3, "v", "ts_datefromparts", Type::Date),
    ("PARSENAME", 2, 2, "tv", "ts_parsename", NAME),
    ("PATINDEX", 2, 2, "t", "ts_patindex", Type::Int),
    ("TRANSLATE", 3, 3, "t", "ts_translate", TEXT),
    ("SOUNDEX", 1, 1, "t", "ts_soundex", Type::VarChar(Some(4))),
    ("DIFFERENCE", 2, 2, "t", "ts_difference", Type::Int),
    ("ISJSON", 1, 1, "t", "ts_isjson", Type::Int),
    ("UNICODE", 1, 1, "t", "ts_unicode", Type::Int),
    ("SQUARE", 1, 1, "v", "ts_square", Type::Float),
    ("EXP", 1, 1, "v", "ts_exp", Type::Float),
    ("DEGREES", 1, 1, "v", "ts_degrees", Type::Float),
    ("RADIANS", 1, 1, "v", "ts_radians", Type::Float),
    ("LOG", 1, 2, "v", "ts_log", Type::Float),
    ("LOG10", 1, 1, "v", "ts_log10", Type::Float),
    (
        "STRING_ESCAPE",
        2,
        2,
        "t",
        "ts_string_escape",
        Type::NVarChar(None),
    ),
    (
        "JSON_VALUE",
        2,
        2,
        "t",
        "ts_json_value",
        Type::NVarChar(Some(4000)),
    ),
    (
        "JSON_QUERY",
        1,
        2,
        "t",
        "ts_json_query",
        Type::NVarChar(None),
    ),
];

/// Whether a function takes so many arguments, as far as this table knows it.
pub(in crate::query) fn takes(name: &str, count: usize) -> bool {
    let mut all = SIMPLE.iter();
    let found = all.find(|(known, ..)| known.eq_ignore_ascii_case(name));
    found.is_none_or(|(_, least, most, ..)| (*least..=*most).contains(&count))
}

/// Functions of SQL Server that are refused by name.
pub(super) const ELSEWHERE: &[&str] = &[
    "ACOS",
    "APPROX_COUNT_DISTINCT",
    "APPROX_PERCENTILE_CONT",
    "APPROX_PERCENTILE_DISC",
    "ASIN",
    "ASSEMBLYPROPERTY",
    "ASYMKEYPROPERTY",
    "ASYMKEY_ID",
    "ATAN",
    "ATN2",
    "BASE64_DECODE",
    "BASE64_ENCODE",
    "BINARY_CHECKSUM",
    "BIT_COUNT",
    "CERTENCODED",
    "CERTPRIVATEKEY",
    "CERTPROPERTY",
    "CERT_ID",
    "CHECKSUM",
    "CHECKSUM_AGG",
    "COLLATIONPROPERTY",
    "COLUMNPROPERTY",
    "COLUMNS_UPDATED",
    "COL_NAME",
    "COMPRESS",
    "CONNECTIONPROPERTY",
    "CONTEXT_INFO",
    "COS",
    "COT",
    "CRYPT_GEN_RANDOM",
    "CURRENT_REQUEST_ID",
    "CURRENT_TRANSACTION_ID",
    "DATABASE_PRINCIPAL_ID",
    "DECOMPRESS",
    "DECRYPTBYASYMKEY",
    "DECRYPTBYCERT",
    "DECRYPTBYKEY",
    "DECRYPTBYKEYAUTOASYMKEY",
    "DECRYPTBYKEYAUTOCERT",
    "DECRYPTBYPASSPHRASE",
    "EDGE_ID_FROM_PARTS",
    "EDIT_DISTANCE",
    "EDIT_DISTANCE_SIMILARITY",
    "ENCRYPTBYASYMKEY",
    "ENCRYPTBYCERT",
    "ENCRYPTBYKEY",
    "ENCRYPTBYPASSPHRASE",
    "EVENTDATA",
    "FILEGROUPPROPERTY",
    "FILEGROUP_ID",
    "FILEGROUP_NAME",
    "FILE_ID",
    "FILE_IDEX",
    "FILE_NAME",
    "FULLTEXTCATALOGPROPERTY",
    "FULLTEXTSERVICEPROPERTY",
    "GETANSINULL",
    "GET_BIT",
    "GET_FILESTREAM_TRANSACTION_CONTEXT",
    "GRAPH_ID_FROM_EDGE_ID",
    "GRAPH_ID_FROM_NODE_ID",
    "HOST_ID",
    "IDENT_CURRENT",
    "IDENT_INCR",
    "IDENT_SEED",
    "INDEXKEY_PROPERTY",
    "INDEXPROPERTY",
    "INDEX_COL",
    "IS_OBJECTSIGNED",
    "JARO_WINKLER_DISTANCE",
    "JARO_WINKLER_SIMILARITY",
    "JSON_ARRAY",
    "JSON_ARRAYAGG",
    "JSON_CONTAINS",
    "JSON_OBJECT",
    "JSON_OBJECTAGG",
    "JSON_PATH_EXISTS",
    "KEY_GUID",
    "KEY_ID",
    "KEY_NAME",
    "LEFT_SHIFT",
    "LOGINPROPERTY",
    "MIN_ACTIVE_ROWVERSION",
    "NEWSEQUENTIALID",
    "NEXT_VALUE_FOR",
    "NODE_ID_FROM_PARTS",
    "OBJECTPROPERTYEX",
    "OBJECT_ID_FROM_EDGE_ID",
    "OBJECT_ID_FROM_NODE_ID",
    "ORIGINAL_DB_NAME",
    "PARSE",
    "PERMISSIONS",
    "PRODUCT",
    "PUBLISHINGSERVERNAME",
    "PWDCOMPARE",
    "PWDENCRYPT",
    "RAND",
    "REGEXP_COUNT",
    "REGEXP_INSTR",
    "REGEXP_LIKE",
    "REGEXP_REPLACE",
    "REGEXP_SUBSTR",
    "RIGHT_SHIFT",
    "SESSIONPROPERTY",
    "SESSION_CONTEXT",
    "SET_BIT",
    "SIGNBYASYMKEY",
    "SIGNBYCERT",
    "SIN",
    "SQL_VARIANT_PROPERTY",
    "STATS_DATE",
    "SUSER_ID",
    "SUSER_SID",
    "SYMKEYPROPERTY",
    "TAN",
    "TERTIARY_WEIGHTS",
    "TEXTPTR",
    "TEXTVALID",
    "TRIGGER_NESTLEVEL",
    "TRY_PARSE",
    "TYPEPROPERTY",
    "UNISTR",
    "USER_ID",
    "VECTOR_DISTANCE",
    "VECTOR_NORM",
    "VECTOR_NORMALIZE",
    "VERIFYSIGNEDBYASYMKEY",
    "VERIFYSIGNEDBYCERT",
];

/// The function for a collation in which upper case and lower case differ; `None`: it does not compare texts.
fn exact(ours: &str) -> Option<&'static str> {
    Some(match ours {
        "ts_charindex" => "ts_charindex_exact",
        "ts_replace" => "ts_replace_exact",
        "ts_patindex" => "ts_patindex_exact",
        "ts_translate" => "ts_translate_exact",
        _ => return None,
    })
}

/// The type of a text made of these: two bytes per character if one of them has that, `max` if the first is.
fn text_of_texts(all: &[TypedSql]) -> Type {
    let kinds = || all.iter().filter_map(|t| t.kind);
    let is_max = matches!(
        kinds().next(),
        Some(Type::VarChar(None) | Type::NVarChar(None))
    );
    match kinds().any(Type::is_national) {
        true => Type::NVarChar((!is_max).then_some(LENGTH_MAX / 2)),
        false => Type::VarChar((!is_max).then_some(LENGTH_MAX)),
    }
}

impl Translator<'_> {
    pub(super) fn call(&mut self, function: &Function) -> Result<TypedSql, Message> {
        let name = match function.name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => name.value.to_ascii_uppercase(),
            _ => match tables::parts(&function.name).as_slice() {
                [name] => name.to_ascii_uppercase(),
                [.., schema, name] if schema.eq_ignore_ascii_case("sys") => {
                    name.to_ascii_uppercase()
                }
                names if self.is_own_function(names) => {
                    return self.own_function(names, function);
                }
                [root @ .., method] if is_xml_method(method) && !root.is_empty() => {
                    let names: Vec<_> = root.iter().map(|n| Ident::new(n.as_str())).collect();
                    let root = match names.as_slice() {
                        [name] => Expr::Identifier(name.clone()),
                        _ => Expr::CompoundIdentifier(names),
                    };
                    let xml = self.expression(&root)?;
                    return self.xml_method(xml, method, function);
                }
                [database, schema, name]
                    if database.eq_ignore_ascii_case("msdb")
                        && schema.eq_ignore_ascii_case("dbo")
                        && name.eq_ignore_ascii_case("agent_datetime") =>
                {
                    let mut given = Vec::new();
                    for argument in plain_arguments(function)? {
                        given.push(self.expression(argument)?.sql);
                    }
                    if given.len() != 2 {
                        return Err(message::ARGUMENTS_FEWER.with(&[&"msdb.dbo.agent_datetime"]));
                    }
                    return Ok(TypedSql::of(
                        Sql::call("ts_agent_datetime", given),
                        Type::DateTime,
                    ));
                }
                names => return self.own_function(names, function),
            },
        };
        let orders = matches!(
            name.as_str(),
            "STRING_AGG" | "PERCENTILE_CONT" | "PERCENTILE_DISC"
        );
        if function.filter.is_some() || !(function.within_group.is_empty() || orders) {
            return Err(not_here(&format!("{name} with WITHIN GROUP")));
        }
        if matches!(name.as_str(), "GROUPING" | "GROUPING_ID") {
            return self.grouping_of(&name, function);
        }
        if let Some(over) = &function.over {
            return self.windowed(&name, function, over);
        }
        if name.starts_with("PERCENTILE_") {
            return Err(match function.within_group.is_empty() {
                true => message::WITHIN_GROUP_MISSING.with(&[&name.to_lowercase()]),
                false => message::OVER_MISSING.with(&[&name.to_lowercase()]),
            });
        }
        if let Some(aggregate) = self.aggregate(&name, function, false)? {
            return Ok(averaged(&name, aggregate));
        }
        let arguments = plain_arguments(function)?;
        if let Some(typed) = self.of_dates(&name, &arguments)? {
            return Ok(typed);
        }
        if let Some(typed) = self.of_choice(&name, &arguments)? {
            return Ok(typed);
        }
        if let Some(typed) = self.of_instants(&name, &arguments)? {
            return Ok(typed);
        }
        if let Some(typed) = self.of_several_kinds(&name, &arguments)? {
            return Ok(typed);
        }
        if let Some(typed) = self.of_rights(&name, &arguments)? {
            return Ok(typed);
        }
        if let Some(values) = self.known_arguments(&name, &arguments)?
            && let Some((kind, value)) = self.of_server(&name, &values)?
        {
            return Ok(TypedSql::of(self.bind_long(value)?, kind));
        }
        if name == "NEWID" && arguments.is_empty() {
            let none: [Sql; 0] = [];
            return Ok(TypedSql::of(
                Sql::call("ts_newid", none),
                Type::UniqueIdentifier,
            ));
        }
        if let Some(typed) = self.of_object(&name, &arguments)? {
            return Ok(typed);
        }
        self.simple(&name, &arguments)
    }

    pub(super) fn simple(&mut self, name: &str, arguments: &[&Expr]) -> Result<TypedSql, Message> {
        let found = SIMPLE.iter().find(|(known, ..)| *known == name);
        let Some((_, least, most, texts, ours, kind)) = found else {
            return Err(match ELSEWHERE.contains(&name) {
                true => not_here(&format!("the function {name}")),
                false => message::NOT_RECOGNIZED.with(&[&name, &FUNCTION]),
            });
        };
        if !(*least..=*most).contains(&arguments.len()) {
            let name = name.to_lowercase();
            return Err(match least == most {
                true => message::ARGUMENT_COUNT.with(&[&name, least]),
                false => message::ARGUMENT_RANGE.with(&[&name, least, most]),
            });
        }
        let read = match *ours {
            "ts_isdate" => Type::DateTime,
            "ts_eomonth" => Type::Date,
            "year" | "month" | "day" => Type::DateTime2(SCALE_MAX),
            _ => Type::SqlVariant,
        };
        let mut typed = Vec::new();
        for argument in arguments {
            let argument = self.expression(argument)?;
            let is_count = *ours == "ts_eomonth" && !typed.is_empty();
            typed.push(match is_count {
                true => argument,
                false => self.dated(argument, read),
            });
        }
        // For these the result has the type of the argument.
        let kind = match (*kind, typed.first()) {
            (Type::SqlVariant, Some(first)) if first.kind().is_text() => Type::Float,
            (Type::SqlVariant, Some(first)) => first.kind(),
            (TEXT, Some(first)) if *ours == "ts_substring" && is_binary(first.kind()) => {
                Type::VarBinary(Some(LENGTH_MAX))
            }
            (TEXT, _) => text_of_texts(&typed),
            (kind, _) => kind,
        };
        let operation = ours.strip_prefix("ts_").unwrap_or(ours);
        let label = Label::of_all(typed.iter().map(TypedSql::text_label), operation)?;
        let trims = ["ltrim", "rtrim", "trim"].contains(ours) && typed.len() > 1;
        let exact = exact(ours);
        // A code of DIFFERENCE is letters of one case and digits: it is the same in all collations.
        let compares = trims || exact.is_some() || *ours == "ts_difference";
        let is_exact = compares && label.resolved(operation)? != Collation::CaseInsensitive;
        // The result of a function of texts has their collation.
        let label = match kind.is_text() {
            true => label,
            false => Label::Default,
        };
        let last = texts.bytes().last();
        // The characters of all arguments together; REPLACE may make any number of them.
        let widths = typed.iter().map(|t| self.longest(&t.sql, t.kind()));
        let given = widths
            .sum::<Option<usize>>()
            .filter(|_| *ours == "ts_concat");
        let mut sql: Vec<_> = typed
            .into_iter()
            .enumerate()
            .map(|(i, t)| {
                let is_text = texts.as_bytes().get(i).copied().or(last) == Some(b't');
                match is_text && !t.kind().is_integer() && !is_binary(kind) {
                    // In the default style of a conversion.
                    true => self.text_of(t),
                    false => t.sql,
                }
            })
            .collect();
        let length = i64::try_from(kind.display_width().unwrap_or(0)).unwrap_or(0);
        let sql = match *ours {
            "year" | "month" | "day" => {
                sql.insert(0, self.bind(Value::text(*ours)));
                Sql::call("ts_datepart", sql)
            }
            "space" => {
                sql.insert(0, self.bind(Value::text(" ")));
                sql.push(self.bind(Value::Int(length)));
                Sql::call("ts_replicate", sql)
            }
            "ts_replicate" => {
                sql.push(self.bind(Value::Int(length)));
                Sql::call("ts_replicate", sql)
            }
            ours => Sql::call(exact.filter(|_| is_exact).unwrap_or(ours), sql),
        };
        let grows = ["ts_concat", "ts_concat_ws", "ts_replace"].contains(ours);
        let sql = match grows && given.is_none_or(|given| Some(given) > kind.display_width()) {
            true => self.shortened(sql, kind),
            false => sql,
        };
        let markup = (name == "JSON_QUERY").then_some(Markup::Json);
        Ok(TypedSql::of(sql, kind).marked(markup).labelled(label))
    }

    /// POWER: the type is the base's, at its greatest width.
    fn power(&mut self, base: &Expr, exponent: &Expr) -> Result<TypedSql, Message> {
        let (base, exponent) = (self.expression(base)?, self.expression(exponent)?);
        let kind = match base.kind() {
            Type::TinyInt | Type::SmallInt | Type::Int => Type::Int,
            Type::SmallMoney => Type::Money,
            kind @ (Type::BigInt | Type::Money) => kind,
            Type::Numeric { scale, .. } => Type::numeric(PRECISION_MAX, scale),
            _ => Type::Float,
        };
        let of = self.bind_type(kind);
        let sql = Sql::call("ts_power", [base.sql, exponent.sql, of]);
        Ok(TypedSql::of(sql, kind))
    }

    pub(super) fn aggregate(
        &mut self,
        name: &str,
        function: &Function,
        is_over: bool,
    ) -> Result<Option<TypedSql>, Message> {
        if !matches!(
            name,
            "COUNT"
                | "COUNT_BIG"
                | "SUM"
                | "AVG"
                | "MIN"
                | "MAX"
                | "STRING_AGG"
                | "STDEV"
                | "STDEVP"
                | "VAR"
                | "VARP"
        ) {
            return Ok(None);
        }
        self.seen.aggregate = true;
        let aggregate = self.held(|t| {
            t.inside("an aggregate", |t| match is_over {
                // Its argument may be an aggregate of the groups.
                true => t.aggregate_of(name, function),
                false => t.in_aggregate(|t| t.aggregate_of(name, function)),
            })
        });
        aggregate.map(Some)
    }

    fn aggregate_of(&mut self, name: &str, function: &Function) -> Result<TypedSql, Message> {
        let FunctionArguments::List(list) = &function.args else {
            return Err(message::ARGUMENT_COUNT.with(&[&name, &1]));
        };
        let distinct = match list.duplicate_treatment {
            Some(DuplicateTreatment::Distinct) => "DISTINCT ",
            _ => "",
        };
        let count = match name {
            "COUNT_BIG" => Type::BigInt,
            _ => Type::Int,
        };
        if let ("COUNT" | "COUNT_BIG", [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]) =
            (name, list.args.as_slice())
        {
            return Ok(TypedSql::of("count(*)", count));
        }
        let arguments = plain_arguments(function)?;
        if name == "STRING_AGG" {
            let [value, between] = arguments.as_slice() else {
                return Err(message::ARGUMENT_COUNT.with(&[&"string_agg", &2]));
            };
            let (value, between) = (self.expression(value)?, self.expression(between)?);
            let label = value.text_label();
            let label = label.with(between.text_label(), "string_agg")?;
            label.resolved("string_agg")?;
            let most = match value.kind() {
                Type::VarChar(None) | Type::NVarChar(None) => None,
                kind if kind.is_text() && !kind.is_national() => Some(LENGTH_MAX),
                _ => Some(LENGTH_MAX / 2),
            };
            let (value, between) = (self.text_of(value), self.text_of(between));
            let mut orders = Vec::new();
            for order in &function.within_group {
                let typed = self.expression(&order.expr)?;
                typed.text_label().resolved("string_agg")?;
                orders.push(folded(&typed) + direction(order));
            }
            let order = match orders.is_empty() {
                true => String::new(),
                false => format!(" ORDER BY {}", orders.join(", ")),
            };
            let mut sql = format!("group_concat({value}, {between}{order})");
            if let Some(most) = most {
                sql = format!("ts_aggregated({sql}, {most})");
            }
            return Ok(TypedSql::of(sql, Type::NVarChar(None)).labelled(label));
        }
        let [argument] = arguments.as_slice() else {
            return Err(message::ARGUMENT_COUNT.with(&[&name.to_lowercase(), &1]));
        };
        let argument = self.expression(argument)?;
        let label = argument.text_label();
        if matches!(name, "MIN" | "MAX") || !distinct.is_empty() {
            label.resolved(&name.to_lowercase())?;
        }
        let kind = argument.kind();
        let argument = match self.pivots {
            true => argument,
            false => TypedSql {
                sql: Sql::call("ts_heed", [argument.sql]),
                ..argument
            },
        };
        let sql = folded(&argument);
        let is_counted = matches!(name, "COUNT" | "COUNT_BIG");
        let takes = match name {
            "MIN" | "MAX" => kind != Type::Bit,
            _ => is_counted || kind.is_number() && kind != Type::Bit,
        };
        if !takes || argument.kind.is_none() && !is_counted {
            let shown = match argument.kind {
                Some(kind) => kind.bare_name().to_owned(),
                None => "NULL".to_owned(),
            };
            return Err(message::OPERAND_TYPE.with(&[&shown, &name.to_lowercase()]));
        }
        Ok(match name {
            "STDEV" | "STDEVP" | "VAR" | "VARP" => {
                let function = name.to_lowercase();
                let sql = format!("ts_{function}({distinct}CAST({sql} AS REAL))");
                TypedSql::of(sql, Type::Float)
            }
            "COUNT" | "COUNT_BIG" => TypedSql::of(format!("count({distinct}{sql})"), count),
            "SUM" => TypedSql::of(format!("sum({distinct}{sql})"), sum(kind)),
            "AVG" => TypedSql::of(format!("avg({distinct}{sql})"), average(kind)),
            "MIN" => TypedSql::of(format!("min({sql})"), kind).labelled(label),
            _ => TypedSql::of(format!("max({sql})"), kind).labelled(label),
        })
    }

    fn of_dates(&mut self, name: &str, arguments: &[&Expr]) -> Result<Option<TypedSql>, Message> {
        let now = |t: &mut Self, kind| {
            let now = Value::DateTime(t.moment().0);
            Ok(Some(TypedSql::of(t.bind(now), kind)))
        };
        match (name, arguments) {
            ("GETDATE" | "CURRENT_TIMESTAMP", []) => now(self, Type::DateTime),
            ("GETUTCDATE", []) => self.clock(Type::DateTime, true).map(Some),
            ("SYSDATETIME", []) => self.clock(Type::DateTime2(SCALE_MAX), false).map(Some),
            ("SYSUTCDATETIME", []) => self.clock(Type::DateTime2(SCALE_MAX), true).map(Some),
            ("SYSDATETIMEOFFSET", []) => {
                self.clock(Type::DateTimeOffset(SCALE_MAX), false).map(Some)
            }
            ("DATEADD", [part, first, second]) => {
                let part = self.counted_part(part, "dateadd")?;
                let (first, second) = (self.expression(first)?, self.expression(second)?);
                let kind = match second.kind() {
                    kind if kind.is_moment() => kind,
                    _ => Type::DateTime,
                };
                let second = self.dated(second, kind);
                let of = self.bind_type(kind);
                let sql = Sql::call("ts_dateadd", [part, first.sql, second.sql, of]);
                Ok(Some(TypedSql::of(sql, kind)))
            }
            ("DATEDIFF" | "DATEDIFF_BIG", [part, first, second]) => {
                let part = self.counted_part(part, "datediff")?;
                let (first, second) = (self.dated_moment(first)?, self.dated_moment(second)?);
                let kind = match name {
                    "DATEDIFF" => Type::Int,
                    _ => Type::BigInt,
                };
                let is_big = self.bind(Value::bit(kind == Type::BigInt));
                let sql = Sql::call("ts_datediff", [part, first, second, is_big]);
                Ok(Some(TypedSql::of(sql, kind)))
            }
            ("DATEPART" | "DATENAME", [Expr::Identifier(part), at]) if is_offset(&part.value) => {
                let at = self.moment_with(name, &part.value, at)?;
                Ok(Some(match name {
                    "DATEPART" => TypedSql::of(Sql::call("ts_offset", [at]), Type::Int),
                    _ => TypedSql::of(Sql::call("ts_offset_name", [at]), Type::nvarchar(30)),
                }))
            }
            ("DATEPART", [Expr::Identifier(part), at])
                if self.context.date_first != 7
                    && matches!(
                        DatePart::of(&part.value),
                        Some(DatePart::Week | DatePart::WeekDay)
                    ) =>
            {
                let at = self.moment_with(name, &part.value, at)?;
                let part = self.bind(Value::text(part.value.as_str()));
                let first = self.bind(Value::Int(self.context.date_first));
                let sql = Sql::call("ts_datepart_first", [part, at, first]);
                Ok(Some(TypedSql::of(sql, Type::Int)))
            }
            ("DATENAME", [Expr::Identifier(part), _])
                if self.context.date_first != 7
                    && DatePart::of(&part.value) == Some(DatePart::Week) =>
            {
                Err(not_here("DATENAME of a week under SET DATEFIRST"))
            }
            ("DATEPART" | "DATENAME", [part, at]) => {
                let word = part.to_string();
                let part = self.date_part(part)?;
                let at = self.moment_with(name, &word, at)?;
                Ok(Some(match name {
                    "DATEPART" => TypedSql::of(Sql::call("ts_datepart", [part, at]), Type::Int),
                    _ => TypedSql::of(Sql::call("ts_datename", [part, at]), Type::nvarchar(30)),
                }))
            }
            ("YEAR" | "MONTH" | "DAY", [at]) => {
                self.moment_with("DATEPART", name, at)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The time of day, with all the digits of the type.
    fn clock(&mut self, kind: Type, utc: bool) -> Result<TypedSql, Message> {
        let ns = self.moment().1;
        let now = jiff::Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
        let zone = match utc {
            true => jiff::tz::TimeZone::UTC,
            false => jiff::tz::TimeZone::system(),
        };
        let now = now.to_zoned(zone);
        let minutes = now.offset().seconds() / 60;
        let minutes = i16::try_from(minutes).unwrap_or(0);
        let at = Temporal::DateTimeOffset(now.datetime(), minutes, SCALE_MAX);
        let value = convert(&Value::Temporal(at), kind)?;
        Ok(TypedSql::of(self.bind(value), kind))
    }

    /// The same for functions that count in parts. Errors: 9806 for a part that is no span.
    fn counted_part(&mut self, expr: &Expr, function: &str) -> Result<Sql, Message> {
        if let Expr::Identifier(name) = expr
            && DatePart::of(&name.value) == Some(DatePart::IsoWeek)
        {
            return Err(message::PART_NOT_FOR.with(&[&"iso_week", &function]));
        }
        self.date_part(expr)
    }

    /// The first argument of the date functions is a word, not a value.
    fn date_part(&mut self, expr: &Expr) -> Result<Sql, Message> {
        match expr {
            Expr::Identifier(name) if DatePart::of(&name.value).is_some() => {
                Ok(self.bind(Value::text(name.value.as_str())))
            }
            other => Err(message::OPTION_UNKNOWN.with(&[other, &"datepart"])),
        }
    }

    fn of_choice(&mut self, name: &str, arguments: &[&Expr]) -> Result<Option<TypedSql>, Message> {
        match (name, arguments) {
            ("FLOOR", [value]) => self.whole("ts_floor", value).map(Some),
            ("CEILING", [value]) => self.whole("ts_ceiling", value).map(Some),
            ("POWER", [base, exponent]) => self.power(base, exponent).map(Some),
            ("DATALENGTH", [value]) => {
                let value = self.expression(value)?;
                let of = self.bind_type(value.kind());
                let kind = match value.kind() {
                    Type::VarChar(None) | Type::NVarChar(None) | Type::VarBinary(None) => {
                        Type::BigInt
                    }
                    _ => Type::Int,
                };
                let sql = Sql::call("ts_datalength", [value.sql, of]);
                Ok(Some(TypedSql::of(sql, kind)))
            }
            // The second is converted to the type of the first, and cut to its length.
            ("ISNULL", [value, otherwise]) => {
                let (value, otherwise) = (self.expression(value)?, self.expression(otherwise)?);
                let kind = value.kind.or(otherwise.kind);
                // The first argument's collation counts, also against one that the second names.
                let label = match value.kind {
                    Some(_) => value.text_label(),
                    None => otherwise.text_label(),
                };
                let otherwise = match kind.filter(|k| otherwise.kind != Some(*k)) {
                    Some(kind) => self.cast("ts_cast", otherwise, kind).sql,
                    None => otherwise.sql,
                };
                let sql = Sql::call("ifnull", [value.sql, otherwise]);
                Ok(Some(TypedSql::new(sql, kind).labelled(label)))
            }
            ("COALESCE", [_, _, ..]) => {
                let mut all = Vec::new();
                for argument in arguments {
                    all.push(self.expression(argument)?);
                }
                let kind = all.iter().filter_map(|t| t.kind).reduce(wider);
                let label = Label::of_all(all.iter().map(TypedSql::text_label), "CASE")?;
                let all = all.into_iter().map(|t| self.widened(t, kind));
                let sql = Sql::call("coalesce", all.collect::<Vec<_>>());
                let label = label.of_text(kind.unwrap_or(Type::Int))?;
                Ok(Some(TypedSql::new(sql, kind).labelled(label)))
            }
            ("NULLIF", [value, other]) => {
                let (value, other) = (self.expression(value)?, self.expression(other)?);
                let own = value.text_label();
                let both = own.clone().with(other.text_label(), "equal to")?;
                let collation = match value.kind().is_text() {
                    true => Some(both.resolved("equal to")?),
                    false => None,
                };
                let other = self.widened(other, value.kind).collated(collation);
                let sql = Sql::call("nullif", [value.sql, other]);
                Ok(Some(TypedSql::new(sql, value.kind).labelled(own)))
            }
            ("IIF", [condition, yes, no]) => {
                let condition = self.expression(condition)?.sql;
                let (yes, no) = (self.expression(yes)?, self.expression(no)?);
                let kind = [yes.kind, no.kind].into_iter().flatten().reduce(wider);
                let label = yes.text_label().with(no.text_label(), "CASE")?;
                let (yes, no) = (self.widened(yes, kind), self.widened(no, kind));
                let sql = Sql::call("iif", [condition, yes, no]);
                let label = label.of_text(kind.unwrap_or(Type::Int))?;
                Ok(Some(TypedSql::new(sql, kind).labelled(label)))
            }
            ("CHOOSE", [index, _, ..]) => {
                let index = self.expression(index)?.sql;
                let mut all = Vec::new();
                for argument in &arguments[1..] {
                    all.push(self.expression(argument)?);
                }
                let kind = all.iter().filter_map(|t| t.kind).reduce(wider);
                let label = Label::of_all(all.iter().map(TypedSql::text_label), "CASE")?;
                let mut branches = Vec::new();
                for (value, number) in all.into_iter().zip(1..) {
                    let number = self.bind(Value::Int(number));
                    let is = index.clone().binary("=", number);
                    branches.push((is, self.widened(value, kind)));
                }
                let made = TypedSql::new(Sql::case(branches, None), kind);
                Ok(Some(
                    made.labelled(label.of_text(kind.unwrap_or(Type::Int))?),
                ))
            }
            ("FORMAT", [value, pattern, culture @ ..]) if culture.len() <= 1 => {
                self.formatted(value, pattern, culture.first()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// FORMAT of a number or a moment.
    fn formatted(
        &mut self,
        value: &Expr,
        pattern: &Expr,
        culture: Option<&&Expr>,
    ) -> Result<TypedSql, Message> {
        match culture {
            Some(culture) => self.check_culture(culture)?,
            None if self.context.language == Language::default() => {}
            None => return Err(not_here("FORMAT without a culture in this SET LANGUAGE")),
        }
        let value = self.expression(value)?;
        let pattern = self.as_text(pattern)?;
        if !value.kind().is_moment() && !value.kind().is_number() {
            let kind = value.kind();
            return Err(message::ARGUMENT_TYPE.with(&[
                &kind as &dyn std::fmt::Display,
                &1,
                &"format",
            ]));
        }
        let kind = self.bind_type(value.kind());
        let sql = Sql::call("ts_format", [value.sql, kind, pattern]);
        Ok(TypedSql::of(sql, Type::NVarChar(Some(4000))))
    }

    /// Functions whose arguments have types of their own. Errors: 50002 for a form that is not known here.
    fn of_several_kinds(
        &mut self,
        name: &str,
        arguments: &[&Expr],
    ) -> Result<Option<TypedSql>, Message> {
        match (name, arguments) {
            ("GREATEST" | "LEAST", [_, ..]) => {
                let mut all = Vec::new();
                for argument in arguments {
                    all.push(self.expression(argument)?);
                }
                let kind = all.iter().filter_map(|t| t.kind).reduce(wider);
                let is_least = name == "LEAST";
                let operation = if is_least { "least" } else { "greatest" };
                let label = Label::of_all(all.iter().map(TypedSql::text_label), operation)?;
                let all: Vec<_> = all.into_iter().map(|t| self.widened(t, kind)).collect();
                let ours = match (is_least, label.resolved(operation)?) {
                    (true, Collation::CaseInsensitive) => "ts_least",
                    (true, Collation::CaseSensitive) => "ts_least_cs",
                    (true, Collation::Binary) => "ts_least_bin",
                    (false, Collation::CaseInsensitive) => "ts_greatest",
                    (false, Collation::CaseSensitive) => "ts_greatest_cs",
                    (false, Collation::Binary) => "ts_greatest_bin",
                };
                Ok(Some(
                    TypedSql::new(Sql::call(ours, all), kind).labelled(label),
                ))
            }
            ("FORMATMESSAGE", [format, given @ ..]) => {
                let format = self.expression(format)?;
                if !format.kind().is_text() {
                    return Err(not_here("FORMATMESSAGE of a number"));
                }
                let mut all = vec![format.sql];
                for argument in given {
                    let argument = self.expression(argument)?;
                    let kind = self.bind_type(argument.kind());
                    all.extend([argument.sql, kind]);
                }
                let sql = Sql::call("ts_formatmessage", all);
                Ok(Some(TypedSql::of(sql, Type::NVarChar(Some(2047)))))
            }
            ("HASHBYTES", [algorithm, value]) => {
                let algorithm = self.as_text(algorithm)?;
                let value = self.expression(value)?;
                if !value.kind().is_text() && !is_binary(value.kind()) {
                    let kind = value.kind();
                    return Err(message::ARGUMENT_TYPE.with(&[
                        &kind as &dyn std::fmt::Display,
                        &2,
                        &"hashbytes",
                    ]));
                }
                let kind = self.bind_type(value.kind());
                let sql = Sql::call("ts_hashbytes", [algorithm, value.sql, kind]);
                Ok(Some(TypedSql::of(sql, Type::VarBinary(Some(LENGTH_MAX)))))
            }
            ("JSON_MODIFY", [json, path, value]) => {
                let (json, path) = (self.as_text(json)?, self.as_text(path)?);
                let value = self.expression(value)?;
                let word = match value.kind() {
                    _ if value.markup == Some(Markup::Json) => "json",
                    Type::Bit => "bit",
                    kind if kind.is_number() => "number",
                    _ => "text",
                };
                let word = self.bind(Value::text(word));
                let value = match value.kind() {
                    Type::Float => value.sql,
                    kind if kind.is_integer() => value.sql,
                    _ => self.text_of(value),
                };
                let sql = Sql::call("ts_json_modify", [json, path, value, word]);
                let made = TypedSql::of(sql, Type::NVarChar(None));
                Ok(Some(made.marked(Some(Markup::Json))))
            }
            _ => Ok(None),
        }
    }

    /// Functions whose value is known before the query runs.
    fn of_server(
        &mut self,
        name: &str,
        arguments: &[Value],
    ) -> Result<Option<(Type, Value)>, Message> {
        let context = self.context;
        let text = |text: &str| Ok(Some((NAME, Value::text(text))));
        match (name, arguments) {
            ("DB_NAME", []) => text(context.database),
            ("DB_ID", []) => {
                let id = database_id(context.server, context.database);
                Ok(Some((Type::SmallInt, id.map_or(Value::Null, Value::Int))))
            }
            ("DB_ID", [name]) => {
                let id = database_id(context.server, &name.to_string());
                Ok(Some((Type::SmallInt, id.map_or(Value::Null, Value::Int))))
            }
            ("SERVERPROPERTY", [property]) => {
                Ok(Some(server_property(context.server, &property.to_string())))
            }
            ("SUSER_NAME" | "SUSER_SNAME" | "ORIGINAL_LOGIN", []) => text(&context.login.user),
            ("USER_NAME" | "SCHEMA_NAME", []) => text(DBO),
            ("SCHEMA_ID", []) => Ok(Some((Type::Int, Value::Int(1)))),
            ("HOST_NAME", []) => text(&context.login.host),
            ("APP_NAME", []) => text(&context.login.program),
            // One value for a whole query, as in SQL Server; with a seed its numbers would be SQL Server's own.
            ("RAND", []) => {
                let bits = uuid::Uuid::new_v4().as_u64_pair().1 & ((1 << 53) - 1);
                let value = bits as f64 / (1_u64 << 53) as f64;
                Ok(Some((Type::Float, Value::Float(value))))
            }
            ("OBJECT_ID", [name]) => Ok(Some(self.object_id(name, None))),
            ("OBJECT_ID", [name, kind]) => Ok(Some(self.object_id(name, Some(kind)))),
            ("IDENT_CURRENT" | "IDENT_INCR" | "IDENT_SEED", [table]) => {
                let found = self.identity_of(&table.to_string());
                let value = found.map_or(Value::Null, |(last, seed, step)| {
                    Value::Int(match name {
                        // A table that had no row since its beginning, or since TRUNCATE, has the number of the first.
                        "IDENT_CURRENT" => {
                            let last = last.filter(|last| *last != seed.wrapping_sub(step));
                            last.unwrap_or(seed)
                        }
                        "IDENT_SEED" => seed,
                        _ => step,
                    })
                });
                Ok(Some((Type::numeric(38, 0), value)))
            }
            ("CONNECTIONPROPERTY", [property]) => {
                Ok(Some(self.connection_property(&property.to_string())))
            }
            ("CURRENT_TIMEZONE" | "CURRENT_TIMEZONE_ID", []) => {
                let own = jiff::tz::TimeZone::system();
                let own = own.iana_name().unwrap_or("UTC");
                let id = windows(own).ok_or_else(|| not_here("the name of this time zone"))?;
                match (name, id) {
                    ("CURRENT_TIMEZONE_ID", id) => text(id),
                    (_, "UTC") => text("(UTC) Coordinated Universal Time"),
                    _ => Err(not_here("CURRENT_TIMEZONE of this time zone")),
                }
            }
            ("PI", []) => Ok(Some((Type::Float, Value::Float(std::f64::consts::PI)))),
            ("ROWCOUNT_BIG", []) => {
                let rows = i64::try_from(context.row_count).unwrap_or(i64::MAX);
                Ok(Some((Type::BigInt, Value::Int(rows))))
            }
            ("COL_LENGTH", [table, column]) => {
                let length = self.column_length(&table.to_string(), &column.to_string());
                Ok(Some((Type::SmallInt, length)))
            }
            ("SCOPE_IDENTITY", []) => {
                let value = context.place.scope_identity;
                let value = value.map_or(Value::Null, Value::Int);
                Ok(Some((Type::numeric(38, 0), value)))
            }
            ("ERROR_PROCEDURE", []) => {
                let name = context.caught.and_then(|m| m.procedure.clone());
                Ok(Some((NAME, name.map_or(Value::Null, Value::Text))))
            }
            ("XACT_STATE", []) => {
                let state = match (context.transactions, context.doomed) {
                    (0, _) => 0,
                    (_, true) => -1,
                    (_, false) => 1,
                };
                Ok(Some((Type::SmallInt, Value::Int(state))))
            }
            ("CURSOR_STATUS", [scope, name]) => {
                let status = context
                    .cursors
                    .status(&scope.to_string(), &name.to_string());
                Ok(Some((
                    Type::SmallInt,
                    status.map_or(Value::Null, Value::Int),
                )))
            }
            (name, []) => Ok(of_caught(context.caught, name)),
            (name, arguments) => self.of_lock(name, arguments),
        }
    }

    /// `OBJECT_ID('[dbo].[CommandLog]', 'U')`
    fn object_id(&self, name: &Value, kind: Option<&Value>) -> (Type, Value) {
        let context = self.context;
        let name = name.to_string();
        let kind = kind.map(|kind| kind.to_string().trim().to_ascii_uppercase());
        let fits = |found: &str| kind.as_deref().is_none_or(|kind| kind == found.trim());
        let mut parts = texts::parts(&name).unwrap_or_default();
        parts.reverse();
        let last = parts.last().cloned().unwrap_or_default();
        let id = if last.starts_with('#') && !is_shared(&last) {
            let is_there =
                parts.len() == 1 || parts[0].is_empty() || parts[0].eq_ignore_ascii_case("tempdb");
            let found = context
                .tables
                .temporary(&last)
                .filter(|_| is_there && fits("U"));
            let procedure = context.tables.procedure(&last);
            let procedure = procedure.filter(|_| fits("P")).map(|object| object.id);
            found.map(temporary_id).or(procedure)
        } else if let Some(found) = context.server.kept.named(&parts, context.database) {
            fits(&found.object.kind).then_some(found.object.id)
        } else if let Some((view, _)) = crate::query::View::find(&parts, context.database) {
            fits("V").then(|| number_of(view))
        } else {
            let found = constraint_id(context.server, context.database, &last);
            found.filter(|_| kind.is_none() || fits("F") || fits("PK") || fits("UQ"))
        };
        (Type::Int, id.map_or(Value::Null, Value::Int))
    }
}

/// An average of exact numbers has no digits after those of its type: they are not rounded.
pub(super) fn averaged(name: &str, typed: TypedSql) -> TypedSql {
    let kind = typed.kind();
    match name == "AVG" && kind.is_exact() {
        true if kind.is_integer() => {
            let sql = format!("CAST({} AS INTEGER)", typed.sql).into();
            TypedSql { sql, ..typed }
        }
        true => {
            let sql = format!("ts_cut({}, {})", typed.sql, scale_of(kind)).into();
            TypedSql { sql, ..typed }
        }
        false => typed,
    }
}

/// Whether it is a method of XML values, and no function of a schema.
fn is_xml_method(name: &str) -> bool {
    let known = ["value", "query", "exist", "modify"];
    known.contains(&name.to_ascii_lowercase().as_str())
}

pub(super) fn plain_arguments(function: &Function) -> Result<Vec<&Expr>, Message> {
    match &function.args {
        FunctionArguments::None => Ok(Vec::new()),
        FunctionArguments::List(list) if list.clauses.is_empty() => list
            .args
            .iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
                _ => Err(not_here("this kind of argument")),
            })
            .collect(),
        _ => Err(not_here("this kind of argument")),
    }
}

/// The answers about the message that a CATCH block handles; NULL outside of one.
fn of_caught(caught: Option<&Message>, name: &str) -> Option<(Type, Value)> {
    let number = |of: fn(&Message) -> u32| caught.map(|m| Value::Int(of(m).into()));
    let (kind, value) = match name {
        "ERROR_NUMBER" => (Type::Int, number(|m| m.number)),
        "ERROR_SEVERITY" => (Type::Int, number(|m| m.severity.into())),
        "ERROR_STATE" => (Type::Int, number(|m| m.state.into())),
        "ERROR_LINE" => (Type::Int, number(|m| m.line)),
        "ERROR_MESSAGE" => {
            let text = caught.map(|m| Value::text(m.text.as_str()));
            (Type::NVarChar(Some(4000)), text)
        }
        _ => return None,
    };
    Some((kind, value.unwrap_or(Value::Null)))
}

fn is_binary(kind: Type) -> bool {
    matches!(kind, Type::Binary(_) | Type::VarBinary(_))
}
