//! What a batch will send or take, before it runs: sp_describe_first_result_set and sp_describe_undeclared_parameters.
//!
//! Invariants
//! - Nothing of the described batch runs.
//! - A type is told where the batch fixes it: a parameter that is compared with a column, or stored in one. Others are refused
//!   (50002), never guessed.
//!
//! Leaves to others: the meaning of queries (`query`), and reading batches (`syntax`).

use std::collections::{BTreeMap, BTreeSet};

use super::arguments::{Arguments, parameters_of};
use crate::convert::type_of;
use crate::flow::{Flow, Out, Variable};
use crate::message::{self, Message};
use crate::query::{self, QueryContext};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{FragmentToken, LocatedStatement, Statement, parse, tokens};
use crate::value::{Column, Type, Value};
use crate::variables::Variables;

/// The most tables of a batch whose columns are looked up.
const TABLES_MAX: usize = 256;
/// The most parameters of a batch, as in SQL Server.
const PARAMETERS_MAX: usize = 2100;

/// As `name type, …`: the columns of the first procedure's answer.
const RESULT: &str = "is_hidden bit, column_ordinal int, name nvarchar(128), is_nullable bit, system_type_id int, \
    system_type_name nvarchar(256), max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), \
    user_type_id int, user_type_database nvarchar(128), user_type_schema nvarchar(128), user_type_name nvarchar(128), \
    assembly_qualified_type_name nvarchar(4000), xml_collection_id int, xml_collection_database nvarchar(128), \
    xml_collection_schema nvarchar(128), xml_collection_name nvarchar(128), is_xml_document bit, is_case_sensitive bit, \
    is_fixed_length_clr_type bit, source_server nvarchar(128), source_database nvarchar(128), source_schema nvarchar(128), \
    source_table nvarchar(128), source_column nvarchar(128), is_identity_column bit, is_part_of_unique_key bit, \
    is_updateable bit, is_computed_column bit, is_sparse_column_set bit, ordinal_in_order_by_list smallint, \
    order_by_list_length smallint, order_by_is_descending smallint, tds_type_id int, tds_length int, tds_collation_id int, \
    tds_collation_sort_id tinyint";

/// The same of the second one's.
const PARAMETERS: &str = "parameter_ordinal int, name nvarchar(128), suggested_system_type_id int, \
    suggested_system_type_name nvarchar(256), suggested_max_length smallint, suggested_precision tinyint, \
    suggested_scale tinyint, suggested_user_type_id int, suggested_user_type_database nvarchar(128), \
    suggested_user_type_schema nvarchar(128), suggested_user_type_name nvarchar(128), \
    suggested_assembly_qualified_type_name nvarchar(4000), suggested_xml_collection_id int, \
    suggested_xml_collection_database nvarchar(128), suggested_xml_collection_schema nvarchar(128), \
    suggested_xml_collection_name nvarchar(128), suggested_is_xml_document bit, suggested_is_case_sensitive bit, \
    suggested_is_fixed_length_clr_type bit, suggested_is_input bit, suggested_is_output bit, \
    formal_parameter_name nvarchar(128), suggested_tds_type_id int, suggested_tds_length int";

/// Sends rows of which some columns are known; the others are NULL.
fn send(columns: &str, rows: Vec<Vec<(&str, Value)>>, out: &mut Out) -> Flow {
    let mut all = Vec::new();
    for one in columns.split(", ") {
        let (name, kind) = one.split_once(' ').unwrap_or((one, "int"));
        let (word, size) = kind.split_once('(').unwrap_or((kind, ""));
        let sizes: Vec<Option<u32>> = match size.trim_end_matches(')') {
            "" => Vec::new(),
            size => vec![size.parse().ok()],
        };
        all.push(Column::new(
            name,
            type_of(word, &sizes).unwrap_or(Type::Int),
        ));
    }
    out.sink.columns(&all)?;
    let count = rows.len() as u64;
    for row in rows {
        let value = |column: &Column| {
            let found = row.iter().find(|(name, _)| *name == column.name);
            found.map_or(Value::Null, |(_, value)| value.clone())
        };
        out.sink.row(&all.iter().map(value).collect::<Vec<_>>())?;
    }
    Ok(out.done(Command::Execute, Some(count))?)
}

/// The texts of the batch and of its declared parameters.
fn texts(
    arguments: &Arguments,
    parameters: &[&str],
) -> Result<(String, BTreeMap<String, Variable>), Message> {
    let values = arguments.values(parameters)?;
    let text = |i: usize| match values.get(i) {
        Some(Some(value)) if !value.is_null() => Some(value.to_string()),
        _ => None,
    };
    let batch = text(0).ok_or_else(|| arguments.missing("@tsql"))?;
    let mut variables = BTreeMap::new();
    for (name, kind) in parameters_of(&text(1).unwrap_or_default())? {
        let value = Value::Null;
        variables.insert(name, Variable { kind, value });
    }
    Ok((batch, variables))
}

/// The first statement of a batch that sends rows.
fn first_query(all: &[LocatedStatement]) -> Option<&Statement> {
    all.iter().find_map(|located| match &located.statement {
        Statement::Query(_)
        | Statement::Restore(_)
        | Statement::Execute(_)
        | Statement::ExecuteText(_) => Some(&located.statement),
        Statement::Block(inner) => first_query(inner),
        Statement::Try { body, .. } => first_query(body),
        Statement::If {
            then, otherwise, ..
        } => {
            let found = first_query(std::slice::from_ref(&**then));
            let other = otherwise.as_ref();
            found.or_else(|| other.and_then(|o| first_query(std::slice::from_ref(&**o))))
        }
        Statement::While { body, .. } => first_query(std::slice::from_ref(&**body)),
        _ => None,
    })
}

/// The columns of the first result of a batch. Errors: 50002 for one that only running it can tell.
pub(super) fn first_result_set(
    session: &mut Session,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let parameters = ["@tsql", "@params", "@browse_information_mode"];
    let (batch, variables) = texts(arguments, &parameters)?;
    let _claim = session.claim_for(&batch)?;
    let parsed = parse(&batch)?;
    let columns = match first_query(&parsed.statements) {
        None => Vec::new(),
        Some(Statement::Query(query)) => {
            let claim = session.server.setup.memory.claim(0)?;
            let mut variables = variables;
            hoisted(&parsed.statements, &mut variables)?;
            let variables = Variables::new(variables, session.variables.bytes(), claim)?;
            let context = QueryContext {
                variables: &variables,
                ..session.query_context()
            };
            let plan = query::prepare(&context, query)?;
            match plan.assigns.is_empty() {
                true => plan.columns,
                false => Vec::new(),
            }
        }
        Some(_) => {
            let what = "sp_describe_first_result_set of RESTORE or EXECUTE, whose columns only running them tells,";
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
    };
    let rows = columns.iter().zip(1..).map(|(column, number)| {
        let kind = column.kind;
        let [type_id, length, precision, scale] = query::type_facts(kind);
        let (token, bytes) = wire(kind, column.nullable);
        let name = match column.name.as_str() {
            "" => Value::Null,
            name => Value::text(name),
        };
        let no = Value::bit(false);
        vec![
            ("is_hidden", no.clone()),
            ("column_ordinal", Value::Int(number)),
            ("name", name),
            ("is_nullable", Value::bit(column.nullable)),
            ("system_type_id", Value::Int(type_id)),
            ("system_type_name", Value::text(kind.to_string())),
            ("max_length", Value::Int(length)),
            ("precision", Value::Int(precision)),
            ("scale", Value::Int(scale)),
            ("collation_name", collation(kind)),
            ("is_xml_document", no.clone()),
            ("is_case_sensitive", no.clone()),
            ("is_fixed_length_clr_type", no.clone()),
            ("is_identity_column", no.clone()),
            ("is_updateable", no.clone()),
            ("is_computed_column", no.clone()),
            ("is_sparse_column_set", no),
            ("tds_type_id", Value::Int(token)),
            ("tds_length", Value::Int(bytes)),
        ]
    });
    send(RESULT, rows.collect(), out)
}

/// Declarations of the batch itself.
fn hoisted(
    all: &[LocatedStatement],
    variables: &mut BTreeMap<String, Variable>,
) -> Result<(), Message> {
    for located in all {
        match &located.statement {
            Statement::Declare(declared) => {
                for one in declared {
                    let kind = super::type_of(&one.kind)?;
                    let value = Value::Null;
                    variables.insert(one.variable.to_lowercase(), Variable { kind, value });
                }
            }
            Statement::Block(inner) => hoisted(inner, variables)?,
            _ => {}
        }
    }
    Ok(())
}

fn collation(kind: Type) -> Value {
    match kind.is_text() {
        true => Value::text("SQL_Latin1_General_CP1_CI_AS"),
        false => Value::Null,
    }
}

/// The token of a type in the protocol, and the length that stands there (MS-TDS 2.2.5.4).
fn wire(kind: Type, nullable: bool) -> (i64, i64) {
    let [_, length, ..] = query::type_facts(kind);
    let of = |fixed: i64, variable: i64| if nullable { variable } else { fixed };
    let long = |length: i64| if length < 0 { 65_535 } else { length };
    match kind {
        Type::Bit => (of(0x32, 0x68), 1),
        Type::TinyInt => (of(0x30, 0x26), 1),
        Type::SmallInt => (of(0x34, 0x26), 2),
        Type::Int => (of(0x38, 0x26), 4),
        Type::BigInt => (of(0x7f, 0x26), 8),
        Type::Numeric { .. } => (0x6c, 17),
        Type::Money => (of(0x3c, 0x6e), 8),
        Type::SmallMoney => (of(0x7a, 0x6e), 4),
        Type::Float => (of(0x3e, 0x6d), 8),
        Type::Date => (0x28, 3),
        Type::Time(_) => (0x29, 5),
        Type::DateTime2(_) => (0x2a, 8),
        Type::DateTimeOffset(_) => (0x2b, 10),
        Type::SmallDateTime => (of(0x3a, 0x6f), 4),
        Type::DateTime => (of(0x3d, 0x6f), 8),
        Type::Char(_) => (0xaf, length),
        Type::NChar(_) => (0xef, length),
        Type::VarChar(_) => (0xa7, long(length)),
        Type::NVarChar(_) => (0xe7, long(length)),
        Type::Binary(_) => (0xad, length),
        Type::VarBinary(_) => (0xa5, long(length)),
        Type::UniqueIdentifier => (0x24, 16),
        Type::SqlVariant => (0x62, 8009),
    }
}

/// The name in a token, without its quotes; `None`: it is no name.
fn name_in(token: &FragmentToken) -> Option<String> {
    let raw = token.raw.as_str();
    if let Some(inner) = raw.strip_prefix('[').and_then(|r| r.strip_suffix(']')) {
        return Some(inner.replace("]]", "]"));
    }
    if let Some(inner) = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')) {
        return Some(inner.replace("\"\"", "\""));
    }
    let begins = raw.chars().next()?;
    (begins.is_alphabetic() || begins == '_' || begins == '#').then(|| raw.to_owned())
}

/// Whether a token compares, or is a part of what does: `>=` is two tokens.
fn compares(token: &FragmentToken) -> bool {
    let is_symbol = !token.raw.is_empty() && token.raw.chars().all(|c| "=<>!".contains(c));
    is_symbol || token.raw.eq_ignore_ascii_case("LIKE")
}

/// The column before a parameter, and the one after it, if it is compared with them.
fn compared(all: &[FragmentToken], place: usize) -> Option<String> {
    let before = &all[..place];
    let signs = before.iter().rev().take_while(|t| compares(t)).count();
    if signs > 0 {
        return before[..place - signs].last().and_then(name_in);
    }
    let after = &all[place + 1..];
    let signs = after.iter().take_while(|t| compares(t)).count();
    if signs == 0 {
        return None;
    }
    let mut rest = after[signs..].iter();
    let mut last = rest.next().and_then(name_in);
    while rest.next().is_some_and(|t| t.raw == ".") {
        last = rest.next().and_then(name_in);
    }
    last
}

/// The columns of all tables that a batch names.
fn columns_of(session: &Session, all: &[FragmentToken]) -> Vec<(String, Type)> {
    let context = session.query_context();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, token) in all.iter().enumerate() {
        let begins = ["FROM", "JOIN", "INTO", "UPDATE"];
        if !begins
            .iter()
            .any(|word| token.raw.eq_ignore_ascii_case(word))
        {
            continue;
        }
        let mut parts = Vec::new();
        let mut rest = all[i + 1..].iter();
        while let Some(name) = rest.next().and_then(name_in) {
            parts.push(format!("[{}]", name.replace(']', "]]")));
            if rest.next().is_none_or(|t| t.raw != ".") {
                break;
            }
        }
        let text = format!("SELECT * FROM {}", parts.join("."));
        if seen.len() >= TABLES_MAX || session.is_cancelled() {
            break;
        }
        if !seen.insert(text.clone()) {
            continue;
        }
        let query = crate::syntax::Fragment::new(text);
        if let Ok(plan) = query::prepare(&context, &query) {
            found.extend(plan.columns.into_iter().map(|c| (c.name, c.kind)));
        }
    }
    found
}

/// For each parameter in `VALUES (…)` of an INSERT the column that it is for.
fn inserted(session: &Session, all: &[FragmentToken]) -> BTreeMap<usize, String> {
    let place = |word: &str| all.iter().position(|t| t.raw.eq_ignore_ascii_case(word));
    let (Some(_), Some(values)) = (place("INSERT"), place("VALUES")) else {
        return BTreeMap::new();
    };
    let head = &all[..values];
    let names: Vec<String> = match head.iter().position(|t| t.raw == "(") {
        Some(open) => head[open..].iter().filter_map(name_in).collect(),
        None => {
            let all = columns_of(session, head).into_iter();
            all.map(|(name, _)| name).collect()
        }
    };
    let mut found = BTreeMap::new();
    let mut depth = 0_usize;
    let mut place = 0;
    for (i, token) in all.iter().enumerate().skip(values + 1) {
        match token.raw.as_str() {
            "(" => {
                place = if depth == 0 { 0 } else { place };
                depth += 1;
            }
            ")" => depth = depth.saturating_sub(1),
            "," if depth == 1 => place += 1,
            // A value that is a parameter alone.
            raw if depth == 1 && raw.starts_with('@') => {
                if let Some(name) = names.get(place) {
                    found.insert(i, name.clone());
                }
            }
            _ => {}
        }
    }
    found
}

/// The parameters of a batch that nothing declares, with the types of the columns that they meet. Errors: 50002.
pub(super) fn undeclared_parameters(
    session: &mut Session,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let (batch, known) = texts(arguments, &["@tsql", "@params"])?;
    let _claim = session.claim_for(&batch)?;
    let parsed = parse(&batch)?;
    let mut own = known;
    hoisted(&parsed.statements, &mut own)?;
    let all = tokens(&batch)?;
    let columns = columns_of(session, &all);
    let stored = inserted(session, &all);
    let mut found: Vec<(String, Type)> = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, token) in all.iter().enumerate() {
        let name = &token.raw;
        let is_new = name.starts_with('@') && !name.starts_with("@@");
        let lower = name.to_lowercase();
        if !is_new || own.contains_key(&lower) || !seen.insert(lower) {
            continue;
        }
        let column = stored.get(&i).cloned();
        let column = column.or_else(|| compared(&all, i));
        let kind = column.and_then(|column| {
            let found = columns
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(&column));
            found.map(|(_, kind)| *kind)
        });
        if found.len() >= PARAMETERS_MAX {
            let text = format!("a batch has at most {PARAMETERS_MAX} parameters");
            return Err(message::OWN.with(&[&text]).into());
        }
        let unknown = || format!("the type of {name} in sp_describe_undeclared_parameters");
        let kind = kind.ok_or_else(|| message::NOT_HERE.with(&[&unknown()]))?;
        found.push((name.clone(), kind));
    }
    let rows = found.into_iter().zip(1..).map(|((name, kind), number)| {
        let [type_id, length, precision, scale] = query::type_facts(kind);
        let (token, bytes) = wire(kind, true);
        let no = Value::bit(false);
        vec![
            ("parameter_ordinal", Value::Int(number)),
            ("name", Value::Text(name)),
            ("suggested_system_type_id", Value::Int(type_id)),
            ("suggested_system_type_name", Value::text(kind.to_string())),
            ("suggested_max_length", Value::Int(length)),
            ("suggested_precision", Value::Int(precision)),
            ("suggested_scale", Value::Int(scale)),
            ("suggested_is_xml_document", no.clone()),
            ("suggested_is_case_sensitive", no.clone()),
            ("suggested_is_fixed_length_clr_type", no.clone()),
            ("suggested_is_input", Value::bit(true)),
            ("suggested_is_output", no),
            ("suggested_tds_type_id", Value::Int(token)),
            ("suggested_tds_length", Value::Int(bytes)),
        ]
    });
    send(PARAMETERS, rows.collect(), out)
}
