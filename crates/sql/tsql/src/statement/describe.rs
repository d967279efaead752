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
use crate::flow::{Flow, Out, Variable};
use crate::kinds::TypePlace;
use crate::message::{self, Message};
use crate::query::{self, QueryContext};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{
    FragmentToken, Insert, InsertSource, LocatedStatement, Statement, parse, tokens,
};
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
fn send(declared: &str, rows: Vec<Vec<(&'static str, Value)>>, out: &mut Out) -> Flow {
    let columns = query::declared_columns(declared);
    out.sink.columns(&columns)?;
    let count = rows.len() as u64;
    for row in rows {
        out.sink.row(&query::filled(&columns, row))?;
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

/// The columns of each statement that may be the first one to send rows. Whether a batch may go on without it.
///
/// Errors: 50002 where only running a statement tells its columns; those of the queries.
fn first_results(
    context: &QueryContext,
    all: &[LocatedStatement],
    found: &mut Vec<Vec<Column>>,
) -> Result<bool, Message> {
    let one = std::slice::from_ref;
    for located in all {
        let goes_on = match &located.statement {
            Statement::Query(query) => {
                let plan = query::prepare(context, query)?;
                let assigns = !plan.assigns.is_empty();
                if !assigns {
                    found.push(plan.columns);
                }
                assigns
            }
            Statement::Restore(_) | Statement::Execute(_) | Statement::ExecuteText(_) => {
                return Err(untold(
                    "RESTORE or EXECUTE, whose columns only running them tells,",
                ));
            }
            Statement::Fetch(fetch) if fetch.into.is_empty() => {
                return Err(untold("FETCH without INTO"));
            }
            Statement::Dbcc(dbcc) if dbcc.command == "TRACESTATUS" => {
                return Err(untold("DBCC TRACESTATUS"));
            }
            Statement::Goto(_) => return Err(untold("GOTO")),
            statement if shows_changes(statement) => {
                return Err(untold("OUTPUT without INTO"));
            }
            Statement::Block(inner) => first_results(context, inner, found)?,
            // An error in the body goes on there, wherever it was.
            Statement::Try { body, catch } => {
                let goes_on = first_results(context, body, found)?;
                first_results(context, catch, found)? || goes_on
            }
            Statement::If {
                then, otherwise, ..
            } => {
                let then = first_results(context, one(then), found)?;
                let otherwise = otherwise.as_ref();
                let other = otherwise.map(|o| first_results(context, one(o), found));
                other.transpose()?.unwrap_or(true) || then
            }
            Statement::While { body, .. } => {
                first_results(context, one(body), found)?;
                true
            }
            Statement::Return | Statement::ReturnValue(_) => false,
            _ => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

fn untold(what: &str) -> Message {
    message::NOT_HERE.with(&[&format!("sp_describe_first_result_set of {what}")])
}

/// Whether the rows that a statement changes are sent.
fn shows_changes(statement: &Statement) -> bool {
    let output = match statement {
        Statement::Insert(insert) => &insert.output,
        Statement::Update(update) => &update.output,
        Statement::Delete(delete) => &delete.output,
        Statement::Merge(merge) => &merge.output,
        _ => return false,
    };
    output.as_ref().is_some_and(|output| output.into.is_none())
}

/// The columns that all of several results have. Errors: 50002 where they are not the same.
fn common_columns(all: Vec<Vec<Column>>) -> Result<Vec<Column>, Message> {
    let mut all = all.into_iter();
    let mut first = all.next().unwrap_or_default();
    for other in all {
        let is_same = |(a, b): (&Column, &Column)| a.name == b.name && a.kind == b.kind;
        if first.len() != other.len() || !first.iter().zip(&other).all(is_same) {
            return Err(untold("branches whose queries have different columns"));
        }
        for (column, other) in first.iter_mut().zip(other) {
            column.nullable |= other.nullable;
        }
    }
    Ok(first)
}

/// The columns of the first result of a batch. Errors: 50002 for one that only running it can tell.
pub(super) fn first_result_set(
    session: &mut Session,
    arguments: &Arguments,
    out: &mut Out,
) -> Flow {
    let parameters = ["@tsql", "@params", "@browse_information_mode"];
    let (batch, mut variables) = texts(arguments, &parameters)?;
    let _claim = session.claim_for(&batch)?;
    let parsed = parse(&batch)?;
    let claim = session.server.setup.memory.claim(0)?;
    hoisted(&parsed.statements, &mut variables)?;
    let variables = Variables::new(variables, session.variables.bytes(), claim)?;
    let context = QueryContext {
        variables: &variables,
        ..session.query_context()
    };
    let mut found = Vec::new();
    first_results(&context, &parsed.statements, &mut found)?;
    let columns = common_columns(found)?;
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
    let one = std::slice::from_ref;
    for located in all {
        match &located.statement {
            Statement::Declare(declared) => {
                for one in declared {
                    let kind = super::type_of(&one.kind, TypePlace::Variable(&one.variable, 1))?;
                    let value = Value::Null;
                    variables.insert(one.variable.to_lowercase(), Variable { kind, value });
                }
            }
            Statement::Block(inner) => hoisted(inner, variables)?,
            Statement::Try { body, catch } => {
                hoisted(body, variables)?;
                hoisted(catch, variables)?;
            }
            Statement::While { body, .. } => hoisted(one(body), variables)?,
            Statement::If {
                then, otherwise, ..
            } => {
                hoisted(one(then), variables)?;
                let otherwise = otherwise.iter();
                otherwise
                    .map(|o| &**o)
                    .try_for_each(|o| hoisted(one(o), variables))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn collation(kind: Type) -> Value {
    match kind.is_text() {
        true => Value::text(query::SERVER_COLLATION),
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

/// Whether a token makes another value of the one next to it.
fn computes(token: Option<&FragmentToken>) -> bool {
    let of_sign = |t: &FragmentToken| t.raw.chars().all(|c| "+-*/%&|^~".contains(c));
    // COLLATE, and AT TIME ZONE.
    let of_word = |t: &FragmentToken| ["COLLATE", "AT"].iter().any(|word| is_word(t, word));
    token.is_some_and(|t| !t.raw.is_empty() && (of_sign(t) || of_word(t)))
}

fn is_word(token: &FragmentToken, word: &str) -> bool {
    token.is_word && token.raw.eq_ignore_ascii_case(word)
}

/// Whether what follows these tokens is compared or stored: elsewhere `=` gives a column its name.
fn is_condition(before: &[FragmentToken]) -> bool {
    const CONDITIONS: [&str; 10] = [
        "WHERE", "ON", "HAVING", "AND", "OR", "NOT", "WHEN", "IF", "WHILE", "SET",
    ];
    const OTHERS: [&str; 6] = ["SELECT", "OUTPUT", "EXEC", "EXECUTE", "DECLARE", "VALUES"];
    let mut depth = 0_usize;
    for token in before.iter().rev() {
        let is_one_of = |words: &[&str]| words.iter().any(|word| is_word(token, word));
        match token.raw.as_str() {
            ")" => depth += 1,
            "(" => depth = depth.saturating_sub(1),
            // A whole CASE has a WHEN of its own.
            _ if is_word(token, "END") => depth += 1,
            _ if is_one_of(&["CASE", "BEGIN"]) => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ if is_one_of(&CONDITIONS) => return true,
            _ if is_one_of(&OTHERS) => return false,
            _ => {}
        }
    }
    false
}

/// The column before a parameter, and the one after it, if it is compared with that column alone.
fn compared(all: &[FragmentToken], place: usize) -> Option<String> {
    let is_dot = |i: usize| all.get(i).is_some_and(|t| t.raw == ".");
    let before = &all[..place];
    let signs = before.iter().rev().take_while(|t| compares(t)).count();
    if signs > 0 {
        let last = (place - signs).checked_sub(1)?;
        let mut first = last;
        while first >= 2 && is_dot(first - 1) && name_in(&all[first - 2]).is_some() {
            first -= 2;
        }
        let outside = first.checked_sub(1).and_then(|i| all.get(i));
        let is_other = computes(outside) || computes(all.get(place + 1));
        return match is_other || !is_condition(&all[..first]) {
            true => None,
            false => name_in(&all[last]),
        };
    }
    let after = &all[place + 1..];
    let signs = after.iter().take_while(|t| compares(t)).count();
    if signs == 0 || computes(before.last()) || !is_condition(before) {
        return None;
    }
    let mut at = place + 1 + signs;
    while name_in(all.get(at)?).is_some() && is_dot(at + 1) {
        at += 2;
    }
    let next = all.get(at + 1);
    match computes(next) || next.is_some_and(|t| t.raw == "(") {
        true => None,
        false => name_in(&all[at]),
    }
}

/// The names of tables behind a word such as FROM, each as SQL. `None`: one is no table.
fn tables_behind(all: &[FragmentToken]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let mut parts = Vec::new();
        while let Some(name) = all.get(at).and_then(name_in) {
            parts.push(format!("[{}]", name.replace(']', "]]")));
            at += 1;
            if all.get(at).is_none_or(|t| t.raw != ".") {
                break;
            }
            at += 1;
        }
        if parts.is_empty() {
            return None;
        }
        found.push(parts.join("."));
        let is =
            |i: usize, text: &str| all.get(i).is_some_and(|t| t.raw.eq_ignore_ascii_case(text));
        at += usize::from(is(at, "AS"));
        // Another name, and hints.
        let is_name = all.get(at).and_then(name_in).is_some() && !is(at, "WITH");
        at += usize::from(is_name && [",", "(", "WITH"].iter().any(|text| is(at + 1, text)));
        at += usize::from(is(at, "WITH"));
        if is(at, "(") {
            let mut depth = 0_usize;
            for token in &all[at..] {
                at += 1;
                match token.raw.as_str() {
                    "(" => depth += 1,
                    ")" if depth == 1 => break,
                    ")" => depth -= 1,
                    _ => {}
                }
            }
        }
        if all.get(at).is_none_or(|t| t.raw != ",") {
            return Some(found);
        }
        at += 1;
    }
}

/// The columns of all tables that a batch names. `None`: it names something else, such as a query, whose columns are not known.
fn columns_of(session: &Session, all: &[FragmentToken]) -> Option<Vec<(String, Type)>> {
    let context = session.query_context();
    let is = |token: &FragmentToken, word: &str| token.raw.eq_ignore_ascii_case(word);
    let has_from = all.iter().any(|token| is(token, "FROM"));
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, token) in all.iter().enumerate() {
        let next = all.get(i + 1);
        // A common table expression: hints are in parentheses.
        let is_named = is(token, "WITH") && next.and_then(name_in).is_some();
        let is_other = ["MERGE", "PIVOT", "UNPIVOT"].iter().any(|w| is(token, w));
        if is_named || is_other {
            return None;
        }
        let begins = ["FROM", "JOIN", "APPLY", "INTO", "UPDATE", "DELETE"];
        if is(token, "DELETE") && next.is_some_and(|t| is(t, "FROM")) {
            continue;
        }
        if !begins.iter().any(|word| is(token, word)) {
            continue;
        }
        let is_changed = is(token, "UPDATE") || is(token, "DELETE");
        for table in tables_behind(&all[i + 1..])? {
            if seen.len() >= TABLES_MAX || session.is_cancelled() {
                return None;
            }
            let text = format!("SELECT * FROM {table}");
            if !seen.insert(text.clone()) {
                continue;
            }
            match query::prepare(&context, &crate::syntax::Fragment::new(text)) {
                Ok(plan) => found.extend(plan.columns.into_iter().map(|c| (c.name, c.kind))),
                // An alias of FROM.
                Err(_) if has_from && is_changed && next.is_some_and(|t| !is(t, "TOP")) => {}
                Err(_) => return None,
            }
        }
    }
    Some(found)
}

/// The INSERT of a batch that has only one.
fn only_insert(all: &[LocatedStatement]) -> Option<&Insert> {
    all.iter().find_map(|located| match &located.statement {
        Statement::Insert(insert) => Some(&**insert),
        Statement::Block(inner) => only_insert(inner),
        _ => None,
    })
}

/// For each parameter in `VALUES (…)` of an INSERT the type of the column that it is for. Errors: 50002 for several of them.
fn inserted(
    session: &Session,
    parsed: &[LocatedStatement],
    all: &[FragmentToken],
) -> Result<BTreeMap<usize, Type>, Message> {
    let mut found = BTreeMap::new();
    let count = |word: &str| {
        let is = |t: &&FragmentToken| t.is_word && t.raw.eq_ignore_ascii_case(word);
        all.iter().filter(is).count()
    };
    let Some(insert) = only_insert(parsed) else {
        return Ok(found);
    };
    if count("INSERT") > 1 || count("VALUES") > 1 {
        let what = "sp_describe_undeclared_parameters of several INSERT or VALUES";
        return Err(message::NOT_HERE.with(&[&what]));
    }
    if !matches!(insert.source, InsertSource::Values(_)) {
        return Ok(found);
    }
    let target = super::target::find(session, &insert.table)?;
    let places = super::change::places(session, &target, &insert.columns)?;
    let kinds: Vec<_> = places
        .iter()
        .map(|i| target.shape.columns[*i].kind)
        .collect();
    let values = all
        .iter()
        .position(|t| t.is_word && t.raw.eq_ignore_ascii_case("VALUES"));
    let mut depth = 0_usize;
    let mut place = 0;
    for (i, token) in all
        .iter()
        .enumerate()
        .skip(values.map_or(all.len(), |v| v + 1))
    {
        let ends = |i: Option<&FragmentToken>| i.is_some_and(|t| "(,)".contains(t.raw.as_str()));
        match token.raw.as_str() {
            "(" => {
                place = if depth == 0 { 0 } else { place };
                depth += 1;
            }
            ")" => depth = depth.saturating_sub(1),
            "," if depth == 1 => place += 1,
            // A value that is a parameter alone.
            raw if depth == 1
                && raw.starts_with('@')
                && ends(all.get(i - 1))
                && ends(all.get(i + 1)) =>
            {
                if let Some(kind) = kinds.get(place) {
                    found.insert(i, *kind);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The type of all columns of a name. `None`: there is none, or they have different ones.
fn only_kind(columns: &[(String, Type)], name: &str) -> Option<Type> {
    let mut kinds = columns
        .iter()
        .filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let (_, first) = kinds.next()?;
    kinds.all(|(_, kind)| kind == first).then_some(*first)
}

/// The parameters of a batch that nothing declares, with the types of the columns that they meet. Errors: 11508, 50002.
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
    let columns = columns_of(session, &all).unwrap_or_default();
    let stored = inserted(session, &parsed.statements, &all)?;
    let mut found: Vec<(String, Type)> = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, token) in all.iter().enumerate() {
        let name = &token.raw;
        let is_new = name.starts_with('@') && !name.starts_with("@@");
        let lower = name.to_lowercase();
        if !is_new || own.contains_key(&lower) {
            continue;
        }
        if !seen.insert(lower) {
            return Err(message::PARAMETER_TWICE.with(&[name]).into());
        }
        let kind = stored.get(&i).copied().or_else(|| {
            let column = compared(&all, i)?;
            only_kind(&columns, &column)
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
