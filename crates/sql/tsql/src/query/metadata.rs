//! Views about tables, their columns, keys and indexes, as drivers and tools read them: `sys.columns` and its kin, and
//! INFORMATION_SCHEMA.
//!
//! Columns, their types and their order are those of SQL Server's documentation. Sequences,
//! synonyms, types of users and extended properties do not exist here: their views have no rows.
//!
//! Invariants
//! - An index has the same number in every view: 1 is the primary key, 0 a table without one, the others follow from 2.
//! - A constraint has the same number in every view, and in `OBJECT_ID`.
//!
//! Leaves to others: objects and routines (`objects.rs`), what types are to ODBC (`datatypes.rs`).

use std::sync::Arc;

use super::collation;
use super::datatypes;
use super::objects::{
    DBO, SCHEMAS, facts, full_name, key_id, nothing, of, schema_parameters, tables_of,
};
use super::view::{Facts, Made, RowOrigin, View, ViewColumns};
use crate::message::Message;
use crate::server::Server;
use crate::server::objects::StoredObject;
use crate::tables::{ForeignKey, KeyKind, TableColumn, TableShape};
use crate::value::{Type, Value};

type Rows = Result<Vec<Facts>, Message>;

const fn sys(name: &'static str, rows: fn(&Server, &str) -> Rows, declared: &'static str) -> View {
    View {
        database: None,
        schema: "sys",
        name,
        declared,
        rows: RowOrigin::Facts(rows),
    }
}

const fn empty(name: &'static str, declared: &'static str) -> View {
    View {
        database: None,
        schema: "sys",
        name,
        declared,
        rows: RowOrigin::OfDatabase(nothing),
    }
}

const fn schema(
    name: &'static str,
    rows: fn(&Server, &str) -> Rows,
    declared: &'static str,
) -> View {
    View {
        schema: "INFORMATION_SCHEMA",
        ..sys(name, rows, declared)
    }
}

/// A view about columns, also about those of a database's own views.
pub(super) const fn of_columns(
    schema: &'static str,
    name: &'static str,
    rows: fn(&Server, &str, &ViewColumns) -> Rows,
    declared: &'static str,
) -> View {
    View {
        database: None,
        schema,
        name,
        declared,
        rows: RowOrigin::OfColumns(rows),
    }
}

/// The columns of `sys.columns`, which `sys.all_columns` has, too.
pub(super) const COLUMNS: &str = "object_id int, name nvarchar(128), column_id int, system_type_id tinyint, \
     user_type_id int, max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), \
     is_nullable bit, is_ansi_padded bit, is_rowguidcol bit, is_identity bit, is_computed bit, is_filestream bit, \
     is_replicated bit, is_non_sql_subscribed bit, is_merge_published bit, is_dts_replicated bit, is_xml_document bit, \
     xml_collection_id int, default_object_id int, rule_object_id int, is_sparse bit, is_column_set bit, \
     generated_always_type tinyint, generated_always_type_desc nvarchar(60), encryption_type int, \
     encryption_type_desc nvarchar(64), encryption_algorithm_name nvarchar(128), column_encryption_key_id int, \
     column_encryption_key_database_name nvarchar(128), is_hidden bit, is_masked bit, graph_type int, \
     graph_type_desc nvarchar(60)";

/// The views of this file.
pub(super) static VIEWS: &[View] = &[
    of_columns("sys", "columns", columns, COLUMNS),
    sys(
        "indexes",
        indexes,
        "object_id int, name nvarchar(128), index_id int, type tinyint, type_desc nvarchar(60), is_unique bit, \
         data_space_id int, ignore_dup_key bit, is_primary_key bit, is_unique_constraint bit, fill_factor tinyint, \
         is_padded bit, is_disabled bit, is_hypothetical bit, is_ignored_in_optimization bit, allow_row_locks bit, \
         allow_page_locks bit, has_filter bit, filter_definition nvarchar(4000), compression_delay int, \
         suppress_dup_key_messages bit, auto_created bit, optimize_for_sequential_key bit",
    ),
    sys(
        "index_columns",
        index_columns,
        "object_id int, index_id int, index_column_id int, column_id int, key_ordinal tinyint, \
         partition_ordinal tinyint, is_descending_key bit, is_included_column bit, column_store_order_ordinal tinyint",
    ),
    sys(
        "key_constraints",
        key_constraints,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, unique_index_id int, is_system_named bit, is_enforced bit",
    ),
    sys(
        "foreign_keys",
        foreign_keys,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, referenced_object_id int, key_index_id int, is_disabled bit, \
         is_not_for_replication bit, is_not_trusted bit, delete_referential_action tinyint, \
         delete_referential_action_desc nvarchar(60), update_referential_action tinyint, \
         update_referential_action_desc nvarchar(60), is_system_named bit",
    ),
    sys(
        "foreign_key_columns",
        foreign_key_columns,
        "constraint_object_id int, constraint_column_id int, parent_object_id int, parent_column_id int, \
         referenced_object_id int, referenced_column_id int",
    ),
    sys(
        "check_constraints",
        check_constraints,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, is_disabled bit, is_not_for_replication bit, is_not_trusted bit, \
         parent_column_id int, definition nvarchar(4000), uses_database_collation bit, is_system_named bit",
    ),
    sys(
        "default_constraints",
        default_constraints,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, parent_column_id int, definition nvarchar(4000), is_system_named bit",
    ),
    sys(
        "identity_columns",
        identity_columns,
        "object_id int, name nvarchar(128), column_id int, system_type_id tinyint, user_type_id int, \
         max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), is_nullable bit, \
         is_ansi_padded bit, is_rowguidcol bit, is_identity bit, is_computed bit, seed_value sql_variant, \
         increment_value sql_variant, last_value sql_variant, is_not_for_replication bit",
    ),
    sys(
        "computed_columns",
        computed_columns,
        "object_id int, name nvarchar(128), column_id int, system_type_id tinyint, user_type_id int, \
         max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), is_nullable bit, \
         is_ansi_padded bit, is_rowguidcol bit, is_identity bit, is_computed bit, definition nvarchar(4000), \
         uses_database_collation bit, is_persisted bit",
    ),
    sys(
        "types",
        types,
        "name nvarchar(128), system_type_id tinyint, user_type_id int, schema_id int, principal_id int, \
         max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), is_nullable bit, \
         is_user_defined bit, is_assembly_type bit, default_object_id int, rule_object_id int, is_table_type bit",
    ),
    empty(
        "table_types",
        "name nvarchar(128), system_type_id tinyint, user_type_id int, schema_id int, principal_id int, \
         max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), is_nullable bit, \
         is_user_defined bit, is_assembly_type bit, default_object_id int, rule_object_id int, is_table_type bit, \
         type_table_object_id int, is_memory_optimized bit",
    ),
    empty(
        "extended_properties",
        "class tinyint, class_desc nvarchar(60), major_id int, minor_id int, name nvarchar(128), value sql_variant",
    ),
    empty(
        "sequences",
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, start_value sql_variant, increment sql_variant, minimum_value sql_variant, \
         maximum_value sql_variant, is_cycling bit, is_cached bit, cache_size int, system_type_id tinyint, \
         user_type_id int, precision tinyint, scale tinyint, current_value sql_variant, is_exhausted bit, \
         last_used_value sql_variant",
    ),
    empty(
        "synonyms",
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, base_object_name nvarchar(1035)",
    ),
    empty(
        "trigger_events",
        "object_id int, type int, type_desc nvarchar(60), is_first bit, is_last bit, event_group_type int, \
         event_group_type_desc nvarchar(60), is_trigger_event bit",
    ),
    empty(
        "assembly_types",
        "name nvarchar(128), system_type_id tinyint, user_type_id int, schema_id int, principal_id int, \
         max_length smallint, precision tinyint, scale tinyint, collation_name nvarchar(128), is_nullable bit, \
         is_user_defined bit, is_assembly_type bit, default_object_id int, rule_object_id int, assembly_id int, \
         assembly_class nvarchar(128), is_binary_ordered bit, is_fixed_length bit, prog_id nvarchar(40), \
         assembly_qualified_name nvarchar(4000), is_table_type bit",
    ),
    of_columns(
        "INFORMATION_SCHEMA",
        "COLUMNS",
        schema_columns,
        "TABLE_CATALOG nvarchar(128), TABLE_SCHEMA nvarchar(128), TABLE_NAME nvarchar(128), \
         COLUMN_NAME nvarchar(128), ORDINAL_POSITION int, COLUMN_DEFAULT nvarchar(4000), IS_NULLABLE varchar(3), \
         DATA_TYPE nvarchar(128), CHARACTER_MAXIMUM_LENGTH int, CHARACTER_OCTET_LENGTH int, NUMERIC_PRECISION tinyint, \
         NUMERIC_PRECISION_RADIX smallint, NUMERIC_SCALE int, DATETIME_PRECISION smallint, \
         CHARACTER_SET_CATALOG nvarchar(128), CHARACTER_SET_SCHEMA nvarchar(128), CHARACTER_SET_NAME nvarchar(128), \
         COLLATION_CATALOG nvarchar(128), COLLATION_SCHEMA nvarchar(128), COLLATION_NAME nvarchar(128), \
         DOMAIN_CATALOG nvarchar(128), DOMAIN_SCHEMA nvarchar(128), DOMAIN_NAME nvarchar(128)",
    ),
    schema(
        "SCHEMATA",
        schemata,
        "CATALOG_NAME nvarchar(128), SCHEMA_NAME nvarchar(128), SCHEMA_OWNER nvarchar(128), \
         DEFAULT_CHARACTER_SET_CATALOG varchar(6), DEFAULT_CHARACTER_SET_SCHEMA varchar(3), \
         DEFAULT_CHARACTER_SET_NAME nvarchar(128)",
    ),
    schema(
        "TABLE_CONSTRAINTS",
        table_constraints,
        "CONSTRAINT_CATALOG nvarchar(128), CONSTRAINT_SCHEMA nvarchar(128), CONSTRAINT_NAME nvarchar(128), \
         TABLE_CATALOG nvarchar(128), TABLE_SCHEMA nvarchar(128), TABLE_NAME nvarchar(128), \
         CONSTRAINT_TYPE varchar(11), IS_DEFERRABLE varchar(2), INITIALLY_DEFERRED varchar(2)",
    ),
    schema(
        "KEY_COLUMN_USAGE",
        key_column_usage,
        "CONSTRAINT_CATALOG nvarchar(128), CONSTRAINT_SCHEMA nvarchar(128), CONSTRAINT_NAME nvarchar(128), \
         TABLE_CATALOG nvarchar(128), TABLE_SCHEMA nvarchar(128), TABLE_NAME nvarchar(128), \
         COLUMN_NAME nvarchar(128), ORDINAL_POSITION int",
    ),
    schema(
        "CONSTRAINT_COLUMN_USAGE",
        constraint_column_usage,
        "TABLE_CATALOG nvarchar(128), TABLE_SCHEMA nvarchar(128), TABLE_NAME nvarchar(128), \
         COLUMN_NAME nvarchar(128), CONSTRAINT_CATALOG nvarchar(128), CONSTRAINT_SCHEMA nvarchar(128), \
         CONSTRAINT_NAME nvarchar(128)",
    ),
    schema(
        "REFERENTIAL_CONSTRAINTS",
        referential_constraints,
        "CONSTRAINT_CATALOG nvarchar(128), CONSTRAINT_SCHEMA nvarchar(128), CONSTRAINT_NAME nvarchar(128), \
         UNIQUE_CONSTRAINT_CATALOG nvarchar(128), UNIQUE_CONSTRAINT_SCHEMA nvarchar(128), \
         UNIQUE_CONSTRAINT_NAME nvarchar(128), MATCH_OPTION varchar(7), UPDATE_RULE varchar(11), DELETE_RULE varchar(11)",
    ),
    schema(
        "CHECK_CONSTRAINTS",
        schema_checks,
        "CONSTRAINT_CATALOG nvarchar(128), CONSTRAINT_SCHEMA nvarchar(128), CONSTRAINT_NAME nvarchar(128), \
         CHECK_CLAUSE nvarchar(4000)",
    ),
    View {
        database: None,
        schema: "INFORMATION_SCHEMA",
        name: "SEQUENCES",
        declared: "SEQUENCE_CATALOG nvarchar(128), SEQUENCE_SCHEMA nvarchar(128), SEQUENCE_NAME nvarchar(128), \
                   DATA_TYPE nvarchar(128), NUMERIC_PRECISION tinyint, NUMERIC_PRECISION_RADIX smallint, \
                   NUMERIC_SCALE int, START_VALUE sql_variant, MINIMUM_VALUE sql_variant, MAXIMUM_VALUE sql_variant, \
                   INCREMENT sql_variant, CYCLE_OPTION bit",
        rows: RowOrigin::OfDatabase(nothing),
    },
    schema(
        "PARAMETERS",
        schema_parameters_facts,
        "SPECIFIC_CATALOG nvarchar(128), SPECIFIC_SCHEMA nvarchar(128), SPECIFIC_NAME nvarchar(128), \
         ORDINAL_POSITION int, PARAMETER_MODE nvarchar(10), IS_RESULT nvarchar(10), AS_LOCATOR nvarchar(10), \
         PARAMETER_NAME nvarchar(128), DATA_TYPE nvarchar(128), CHARACTER_MAXIMUM_LENGTH int, \
         NUMERIC_PRECISION tinyint, NUMERIC_SCALE int",
    ),
];

/// A constraint or an index of a table: the number in `sys.indexes`, and the places of its columns.
struct Index<'a> {
    number: i64,
    /// `None`: a table without a primary key has no name for itself.
    name: Option<&'a str>,
    /// `None`: it allows equal keys.
    kind: Option<KeyKind>,
    columns: Vec<usize>,
}

/// A table's indexes in the order of their numbers.
fn indexes_of(shape: &TableShape) -> Vec<Index<'_>> {
    let is_primary = |kind: KeyKind| kind == KeyKind::Primary;
    let mut all = vec![match shape.keys.iter().find(|k| is_primary(k.kind)) {
        Some(key) => Index {
            number: 1,
            name: Some(&key.name),
            kind: Some(key.kind),
            columns: key.columns.clone(),
        },
        None => Index {
            number: 0,
            name: None,
            kind: None,
            columns: Vec::new(),
        },
    }];
    let keys = shape.keys.iter().filter(|k| !is_primary(k.kind));
    let keys = keys.map(|k| (&*k.name, Some(k.kind), k.columns.clone()));
    let plain = shape.indexes.iter().filter(|i| !i.unique);
    let plain = plain.map(|i| (&*i.name, None, shape.places(&i.columns).unwrap_or_default()));
    for ((name, kind, columns), number) in keys.chain(plain).zip(2..) {
        all.push(Index {
            number,
            name: Some(name),
            kind,
            columns,
        });
    }
    all
}

/// The number of a key's index.
fn number_of(shape: &TableShape, name: &str) -> Value {
    let found = indexes_of(shape);
    let found = found.iter().find(|i| i.name == Some(name));
    found.map_or(Value::Null, |i| Value::Int(i.number))
}

fn text(text: &str) -> Value {
    Value::text(text)
}

fn whole(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// The facts of a column that `sys.columns` and its kin share.
pub(super) fn column_facts(
    object: i64,
    number: i64,
    name: &str,
    kind: Type,
    nullable: bool,
) -> Facts {
    let [type_id, length, precision, scale] = facts(kind);
    let no = || Value::bit(false);
    vec![
        ("object_id", Value::Int(object)),
        ("name", text(name)),
        ("column_id", Value::Int(number)),
        ("system_type_id", Value::Int(type_id)),
        ("user_type_id", Value::Int(type_id)),
        ("max_length", Value::Int(length)),
        ("precision", Value::Int(precision)),
        ("scale", Value::Int(scale)),
        (
            "collation_name",
            if kind.is_text() {
                text(collation::SERVER)
            } else {
                Value::Null
            },
        ),
        ("is_nullable", Value::bit(nullable)),
        ("is_ansi_padded", Value::bit(true)),
        ("is_rowguidcol", no()),
        ("is_identity", no()),
        ("is_computed", no()),
    ]
}

/// The facts that only `sys.columns` and `sys.all_columns` have.
pub(super) fn rest_of_column() -> Facts {
    let no = || Value::bit(false);
    let none = || Value::Int(0);
    vec![
        ("is_filestream", no()),
        ("is_replicated", no()),
        ("is_non_sql_subscribed", no()),
        ("is_merge_published", no()),
        ("is_dts_replicated", no()),
        ("is_xml_document", no()),
        ("xml_collection_id", none()),
        ("default_object_id", none()),
        ("rule_object_id", none()),
        ("is_sparse", no()),
        ("is_column_set", no()),
        ("generated_always_type", none()),
        ("generated_always_type_desc", text("NOT_APPLICABLE")),
        ("is_hidden", no()),
        ("is_masked", no()),
    ]
}

fn set(facts: &mut Facts, name: &str, value: Value) {
    if let Some((_, place)) = facts.iter_mut().find(|(known, _)| *known == name) {
        *place = value;
    }
}

/// A column of a table: the table and its number, the column and its number, and its facts.
struct OneColumn {
    table: (Arc<TableShape>, i64),
    column: TableColumn,
    number: i64,
    facts: Facts,
}

/// The number of the type `decimal`, which is `numeric` by another name.
const DECIMAL: i64 = 106;

/// Whether a column, by its number from 1, was declared so.
fn is_decimal(shape: &TableShape, number: i64) -> bool {
    let place = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    let column = place.and_then(|place| shape.spec.columns.get(place));
    column.is_some_and(|column| {
        let name = column.kind.name.as_str();
        name.eq_ignore_ascii_case("decimal") || name.eq_ignore_ascii_case("dec")
    })
}

/// Each column of each table.
fn all_columns(server: &Server, database: &str) -> Vec<OneColumn> {
    let mut all = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (column, number) in shape.columns.iter().zip(1..) {
            let id = o.object.id;
            let mut row = column_facts(id, number, &column.name, column.kind, column.nullable);
            set(
                &mut row,
                "is_identity",
                Value::bit(column.identity.is_some()),
            );
            set(
                &mut row,
                "is_computed",
                Value::bit(column.computed.is_some()),
            );
            if is_decimal(&shape, number) {
                set(&mut row, "system_type_id", Value::Int(DECIMAL));
                set(&mut row, "user_type_id", Value::Int(DECIMAL));
            }
            all.push(OneColumn {
                table: (shape.clone(), id),
                column: column.clone(),
                number,
                facts: row,
            });
        }
    }
    all
}

pub(super) fn columns(server: &Server, database: &str, views: &ViewColumns) -> Rows {
    let row = |one: OneColumn| {
        let mut facts = one.facts;
        facts.extend(rest_of_column());
        if one.column.default.is_some() {
            let (shape, id) = one.table;
            let default = default_id(&shape, id, one.number);
            set(&mut facts, "default_object_id", Value::Int(default));
        }
        facts
    };
    let mut rows: Vec<_> = all_columns(server, database).into_iter().map(row).collect();
    for (view, columns) in views {
        for (column, number) in columns.iter().zip(1..) {
            let id = view.object.id;
            let mut facts = column_facts(id, number, &column.name, column.kind, column.nullable);
            facts.extend(rest_of_column());
            // A temporary table of the session.
            let shape = view.table.as_ref();
            if let Some(own) = shape.and_then(|shape| shape.columns.get(number as usize - 1)) {
                let is = |is: bool| Value::bit(is);
                set(&mut facts, "is_identity", is(own.identity.is_some()));
                set(&mut facts, "is_computed", is(own.computed.is_some()));
                if shape.is_some_and(|shape| is_decimal(shape, number)) {
                    set(&mut facts, "system_type_id", Value::Int(DECIMAL));
                    set(&mut facts, "user_type_id", Value::Int(DECIMAL));
                }
            }
            rows.push(facts);
        }
    }
    Ok(rows)
}

fn identity_columns(server: &Server, database: &str) -> Rows {
    let row = |OneColumn {
                   column, mut facts, ..
               }| {
        let (seed, step) = column.identity?;
        facts.push(("seed_value", Value::Int(seed)));
        facts.push(("increment_value", Value::Int(step)));
        facts.push(("is_not_for_replication", Value::bit(false)));
        Some(facts)
    };
    Ok(all_columns(server, database)
        .into_iter()
        .filter_map(row)
        .collect())
}

fn computed_columns(server: &Server, database: &str) -> Rows {
    let row = |OneColumn {
                   column, mut facts, ..
               }| {
        let expression = column.computed?;
        facts.push(("definition", Value::text(format!("({expression})"))));
        facts.push(("uses_database_collation", Value::bit(true)));
        facts.push(("is_persisted", Value::bit(false)));
        Some(facts)
    };
    Ok(all_columns(server, database)
        .into_iter()
        .filter_map(row)
        .collect())
}

fn indexes(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for index in indexes_of(&shape) {
            let (code, words) = match index.number {
                0 => (0, "HEAP"),
                1 => (1, "CLUSTERED"),
                _ => (2, "NONCLUSTERED"),
            };
            let is = |wanted| Value::bit(index.kind == Some(wanted));
            let mut row = vec![
                ("object_id", Value::Int(o.object.id)),
                ("name", index.name.map_or(Value::Null, text)),
                ("index_id", Value::Int(index.number)),
                ("type", Value::Int(code)),
                ("type_desc", text(words)),
                ("is_unique", Value::bit(index.kind.is_some())),
                ("data_space_id", Value::Int(1)),
                ("is_primary_key", is(KeyKind::Primary)),
                ("is_unique_constraint", is(KeyKind::Unique)),
                ("fill_factor", Value::Int(0)),
                ("allow_row_locks", Value::bit(true)),
                ("allow_page_locks", Value::bit(true)),
            ];
            for name in [
                "ignore_dup_key",
                "is_padded",
                "is_disabled",
                "is_hypothetical",
            ] {
                row.push((name, Value::bit(false)));
            }
            row.push(("has_filter", Value::bit(false)));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn index_columns(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for index in indexes_of(&shape) {
            for (place, number) in index.columns.iter().zip(1..) {
                rows.push(vec![
                    ("object_id", Value::Int(o.object.id)),
                    ("index_id", Value::Int(index.number)),
                    ("index_column_id", Value::Int(number)),
                    ("column_id", whole(place + 1)),
                    ("key_ordinal", Value::Int(number)),
                    ("partition_ordinal", Value::Int(0)),
                    ("is_descending_key", Value::bit(false)),
                    ("is_included_column", Value::bit(false)),
                    ("column_store_order_ordinal", Value::Int(0)),
                ]);
            }
        }
    }
    Ok(rows)
}

/// The facts with which the views about constraints begin. `place`: of the constraint among its table's.
fn constraint(o: &StoredObject, place: usize, name: &str, code: &str, words: &str) -> Facts {
    vec![
        ("name", text(name)),
        ("object_id", Value::Int(key_id(o.object.id, place))),
        ("schema_id", Value::Int(DBO)),
        ("parent_object_id", Value::Int(o.object.id)),
        ("type", text(code)),
        ("type_desc", text(words)),
        ("create_date", super::objects::date(&o.object.created)),
        ("modify_date", super::objects::date(&o.object.changed)),
        ("is_ms_shipped", Value::bit(false)),
        ("is_published", Value::bit(false)),
        ("is_schema_published", Value::bit(false)),
        ("is_system_named", Value::bit(is_system_named(name))),
    ]
}

/// Names that are made here have two underscores after their prefix.
fn is_system_named(name: &str) -> bool {
    name.get(2..4) == Some("__")
}

fn key_constraints(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (i, key) in shape.keys.iter().enumerate() {
            let (code, words) = match key.kind {
                KeyKind::Primary => ("PK", "PRIMARY_KEY_CONSTRAINT"),
                KeyKind::Unique => ("UQ", "UNIQUE_CONSTRAINT"),
                KeyKind::Index => continue,
            };
            let mut row = constraint(&o, i, &key.name, code, words);
            row.push(("unique_index_id", number_of(&shape, &key.name)));
            row.push(("is_enforced", Value::bit(true)));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The table that a foreign key names, with the places of the columns there.
type Referenced = (Arc<StoredObject>, Arc<TableShape>, Vec<usize>);

fn referenced(server: &Server, database: &str, key: &ForeignKey) -> Option<Referenced> {
    let other = server.kept.named(&key.table, database)?;
    let shape = other.table.clone()?;
    let places = match key.references.is_empty() {
        false => shape.places(&key.references).ok()?,
        true => {
            let primary = shape.keys.iter().find(|k| k.kind == KeyKind::Primary)?;
            primary.columns.clone()
        }
    };
    Some((other, shape, places))
}

/// The key that has these columns.
fn key_over<'a>(shape: &'a TableShape, places: &[usize]) -> Option<&'a str> {
    let same = |columns: &[usize]| {
        columns.len() == places.len() && columns.iter().all(|c| places.contains(c))
    };
    let found = shape.keys.iter().find(|k| same(&k.columns));
    found.map(|k| &*k.name)
}

fn foreign_keys(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (i, key) in shape.foreign.iter().enumerate() {
            let place = shape.keys.len() + i;
            let mut row = constraint(&o, place, &key.name, "F ", "FOREIGN_KEY_CONSTRAINT");
            let other = referenced(server, database, key);
            let index = other.as_ref().and_then(|(_, shape, places)| {
                let name = key_over(shape, places)?;
                Some(number_of(shape, name))
            });
            let id = other.map_or(Value::Null, |(o, ..)| Value::Int(o.object.id));
            row.extend([
                ("referenced_object_id", id),
                ("key_index_id", index.unwrap_or(Value::Null)),
                ("is_disabled", Value::bit(false)),
                ("is_not_for_replication", Value::bit(false)),
                ("is_not_trusted", Value::bit(false)),
                ("delete_referential_action", Value::Int(0)),
                ("delete_referential_action_desc", text("NO_ACTION")),
                ("update_referential_action", Value::Int(0)),
                ("update_referential_action_desc", text("NO_ACTION")),
            ]);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn foreign_key_columns(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (i, key) in shape.foreign.iter().enumerate() {
            let Some((other, _, places)) = referenced(server, database, key) else {
                continue;
            };
            let id = key_id(o.object.id, shape.keys.len() + i);
            for ((own, theirs), number) in key.columns.iter().zip(places).zip(1..) {
                rows.push(vec![
                    ("constraint_object_id", Value::Int(id)),
                    ("constraint_column_id", Value::Int(number)),
                    ("parent_object_id", Value::Int(o.object.id)),
                    ("parent_column_id", whole(own + 1)),
                    ("referenced_object_id", Value::Int(other.object.id)),
                    ("referenced_column_id", whole(theirs + 1)),
                ]);
            }
        }
    }
    Ok(rows)
}

fn check_constraints(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        let before = shape.keys.len() + shape.foreign.len();
        for (i, check) in shape.checks.iter().enumerate() {
            let mut row = constraint(&o, before + i, &check.name, "C ", "CHECK_CONSTRAINT");
            let column = check.column.as_ref().and_then(|name| shape.place(name));
            row.extend([
                ("is_disabled", Value::bit(false)),
                ("is_not_for_replication", Value::bit(false)),
                ("is_not_trusted", Value::bit(false)),
                (
                    "parent_column_id",
                    column.map_or(Value::Int(0), |c| whole(c + 1)),
                ),
                ("definition", Value::text(format!("({})", check.condition))),
                ("uses_database_collation", Value::bit(true)),
            ]);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The place of a default among its table's constraints, by its column's number.
fn default_place(shape: &TableShape, column: i64) -> usize {
    let before = shape.keys.len() + shape.foreign.len() + shape.checks.len();
    before + usize::try_from(column).unwrap_or_default()
}

fn default_id(shape: &TableShape, table: i64, column: i64) -> i64 {
    key_id(table, default_place(shape, column))
}

fn default_constraints(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (column, number) in shape.columns.iter().zip(1..) {
            let Some(default) = &column.default else {
                continue;
            };
            let table: String = o.object.name.chars().take(9).collect();
            let own: String = column.name.chars().take(5).collect();
            let place = default_place(&shape, number);
            let name = format!("DF__{table}__{own}__{:08X}", place + 1);
            let mut row = constraint(&o, place, &name, "D ", "DEFAULT_CONSTRAINT");
            row.push(("parent_column_id", Value::Int(number)));
            row.push(("definition", Value::text(format!("({default})"))));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn types(_: &Server, _: &str) -> Rows {
    let row = |kind: &datatypes::SystemType| {
        let no = || Value::bit(false);
        vec![
            ("name", text(kind.name)),
            ("system_type_id", Value::Int(kind.system)),
            ("user_type_id", Value::Int(kind.user)),
            ("schema_id", Value::Int(4)),
            ("max_length", Value::Int(kind.length)),
            ("precision", Value::Int(kind.precision)),
            ("scale", Value::Int(kind.scale)),
            (
                "collation_name",
                if kind.is_text() {
                    text(collation::SERVER)
                } else {
                    Value::Null
                },
            ),
            (
                "is_nullable",
                Value::bit(kind.name != "sysname" && kind.name != "timestamp"),
            ),
            ("is_user_defined", no()),
            ("is_assembly_type", Value::bit(kind.system == 240)),
            ("default_object_id", Value::Int(0)),
            ("rule_object_id", Value::Int(0)),
            ("is_table_type", no()),
        ]
    };
    Ok(datatypes::SYSTEM_TYPES.iter().map(row).collect())
}

/// The facts of a type in INFORMATION_SCHEMA.
fn type_facts(kind: Type) -> Facts {
    let [_, bytes, precision, scale] = facts(kind);
    let length = match kind {
        Type::VarChar(n) | Type::NVarChar(n) | Type::VarBinary(n) => {
            Value::Int(n.map_or(-1, i64::from))
        }
        Type::Char(n) | Type::NChar(n) | Type::Binary(n) => Value::Int(n.into()),
        _ => Value::Null,
    };
    let octets = if length.is_null() {
        Value::Null
    } else {
        Value::Int(bytes)
    };
    let of_number = |n: i64| {
        if kind.is_number() {
            Value::Int(n)
        } else {
            Value::Null
        }
    };
    let radix = if kind == Type::Float { 2 } else { 10 };
    let fraction = match kind {
        Type::Time(n) | Type::DateTime2(n) | Type::DateTimeOffset(n) => Value::Int(n.into()),
        Type::DateTime => Value::Int(3),
        Type::Date | Type::SmallDateTime => Value::Int(0),
        _ => Value::Null,
    };
    vec![
        ("DATA_TYPE", Value::Text(kind.bare_name())),
        ("CHARACTER_MAXIMUM_LENGTH", length),
        ("CHARACTER_OCTET_LENGTH", octets),
        ("NUMERIC_PRECISION", of_number(precision)),
        ("NUMERIC_PRECISION_RADIX", of_number(radix)),
        (
            "NUMERIC_SCALE",
            if kind == Type::Float {
                Value::Null
            } else {
                of_number(scale)
            },
        ),
        ("DATETIME_PRECISION", fraction),
    ]
}

fn named<const N: usize>(names: [&'static str; N], values: Vec<Value>) -> Facts {
    names.into_iter().zip(values).collect()
}

const TABLE: [&str; 3] = ["TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME"];
const CONSTRAINT: [&str; 2] = ["CONSTRAINT_CATALOG", "CONSTRAINT_SCHEMA"];

fn schema_columns(server: &Server, database: &str, views: &ViewColumns) -> Rows {
    let one = |o: &StoredObject, number: i64, (name, kind, nullable): (&str, Type, bool)| {
        let mut row = named(TABLE, full_name(o));
        row.extend([
            ("COLUMN_NAME", text(name)),
            ("ORDINAL_POSITION", Value::Int(number)),
            ("IS_NULLABLE", text(if nullable { "YES" } else { "NO" })),
        ]);
        row.extend(type_facts(kind));
        if kind.is_text() {
            let is_wide = matches!(kind, Type::NChar(_) | Type::NVarChar(_));
            let set = if is_wide { "UNICODE" } else { "iso_1" };
            row.push(("CHARACTER_SET_NAME", text(set)));
            row.push(("COLLATION_NAME", text(collation::SERVER)));
        }
        row
    };
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (column, number) in shape.columns.iter().zip(1..) {
            let mut row = one(&o, number, (&column.name, column.kind, column.nullable));
            if is_decimal(&shape, number) {
                set(&mut row, "DATA_TYPE", text("decimal"));
            }
            if let Some(default) = &column.default {
                row.push(("COLUMN_DEFAULT", Value::text(format!("({default})"))));
            }
            rows.push(row);
        }
    }
    for (view, columns) in views {
        for (column, number) in columns.iter().zip(1..) {
            let mut row = one(view, number, (&column.name, column.kind, column.nullable));
            if view
                .table
                .as_ref()
                .is_some_and(|shape| is_decimal(shape, number))
            {
                set(&mut row, "DATA_TYPE", text("decimal"));
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn schemata(_: &Server, database: &str) -> Rows {
    let row = |(_, name): (i64, &str)| {
        vec![
            ("CATALOG_NAME", text(database)),
            ("SCHEMA_NAME", text(name)),
            ("SCHEMA_OWNER", text(name)),
            ("DEFAULT_CHARACTER_SET_NAME", text("iso_1")),
        ]
    };
    Ok(SCHEMAS.map(row).into())
}

/// A constraint: its name, its type in words, and the places of its columns.
type Constraint<'a> = (&'a str, &'static str, Vec<usize>);

fn constraints_of(shape: &TableShape) -> Vec<Constraint<'_>> {
    let keys = shape.keys.iter().filter_map(|key| {
        let words = match key.kind {
            KeyKind::Primary => "PRIMARY KEY",
            KeyKind::Unique => "UNIQUE",
            KeyKind::Index => return None,
        };
        Some((&*key.name, words, key.columns.clone()))
    });
    let foreign = shape.foreign.iter();
    let foreign = foreign.map(|key| (&*key.name, "FOREIGN KEY", key.columns.clone()));
    let checks = shape.checks.iter().map(|check| {
        let column = check.column.as_ref().and_then(|name| shape.place(name));
        (&*check.name, "CHECK", column.into_iter().collect())
    });
    keys.chain(foreign).chain(checks).collect()
}

/// The names that a row about a constraint of a table begins with.
fn constraint_names(o: &StoredObject, name: &str) -> Facts {
    let place = vec![text(&o.object.database), text("dbo")];
    let mut row = named(CONSTRAINT, place);
    row.push(("CONSTRAINT_NAME", text(name)));
    row
}

fn table_constraints(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (name, words, _) in constraints_of(&shape) {
            let mut row = constraint_names(&o, name);
            row.extend(named(TABLE, full_name(&o)));
            row.push(("CONSTRAINT_TYPE", text(words)));
            row.push(("IS_DEFERRABLE", text("NO")));
            row.push(("INITIALLY_DEFERRED", text("NO")));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn key_column_usage(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        let keys = constraints_of(&shape).into_iter();
        for (name, _, columns) in keys.filter(|(_, words, _)| *words != "CHECK") {
            for (place, number) in columns.iter().zip(1..) {
                let mut row = constraint_names(&o, name);
                row.extend(named(TABLE, full_name(&o)));
                row.push(("COLUMN_NAME", text(&shape.columns[*place].name)));
                row.push(("ORDINAL_POSITION", Value::Int(number)));
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn constraint_column_usage(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (name, _, columns) in constraints_of(&shape) {
            for place in columns {
                let mut row = named(TABLE, full_name(&o));
                row.push(("COLUMN_NAME", text(&shape.columns[place].name)));
                row.extend(constraint_names(&o, name));
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn referential_constraints(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for key in &shape.foreign {
            let mut row = constraint_names(&o, &key.name);
            if let Some((other, shape, places)) = referenced(server, database, key)
                && let Some(name) = key_over(&shape, &places)
            {
                row.extend([
                    ("UNIQUE_CONSTRAINT_CATALOG", text(&other.object.database)),
                    ("UNIQUE_CONSTRAINT_SCHEMA", text("dbo")),
                    ("UNIQUE_CONSTRAINT_NAME", text(name)),
                ]);
            }
            row.push(("MATCH_OPTION", text("SIMPLE")));
            row.push(("UPDATE_RULE", text("NO ACTION")));
            row.push(("DELETE_RULE", text("NO ACTION")));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn schema_checks(server: &Server, database: &str) -> Rows {
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for check in &shape.checks {
            let mut row = constraint_names(&o, &check.name);
            row.push((
                "CHECK_CLAUSE",
                Value::text(format!("({})", check.condition)),
            ));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The parameters of procedures and functions.
fn schema_parameters_facts(server: &Server, database: &str) -> Rows {
    const NAMES: [&str; 3] = ["SPECIFIC_CATALOG", "SPECIFIC_SCHEMA", "SPECIFIC_NAME"];
    const HERE: [&str; 4] = [
        "DATA_TYPE",
        "CHARACTER_MAXIMUM_LENGTH",
        "NUMERIC_PRECISION",
        "NUMERIC_SCALE",
    ];
    let mut rows = Vec::new();
    for o in of(server, database) {
        for (parameter, number) in schema_parameters(&o).into_iter().zip(1..) {
            let mut row = named(NAMES, full_name(&o));
            row.extend([
                ("ORDINAL_POSITION", Value::Int(number)),
                (
                    "PARAMETER_MODE",
                    text(if parameter.output { "INOUT" } else { "IN" }),
                ),
                ("IS_RESULT", text("NO")),
                ("AS_LOCATOR", text("NO")),
                ("PARAMETER_NAME", text(&parameter.name)),
            ]);
            let known = type_facts(parameter.kind).into_iter();
            row.extend(known.filter(|(name, _)| HERE.contains(name)));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// For ODBC's catalog procedures: the columns of all tables and views, as they tell them.
pub(super) fn odbc_columns(server: &Server, database: &str, views: &ViewColumns) -> Rows {
    const NAMES: [&str; 18] = [
        "TABLE_OWNER",
        "TABLE_NAME",
        "COLUMN_NAME",
        "DATA_TYPE",
        "TYPE_NAME",
        "PRECISION",
        "LENGTH",
        "SCALE",
        "RADIX",
        "SQL_DATA_TYPE",
        "SQL_DATETIME_SUB",
        "CHAR_OCTET_LENGTH",
        "SS_DATA_TYPE",
        "NULLABLE",
        "COLUMN_DEF",
        "ORDINAL_POSITION",
        "IS_COMPUTED",
        "IS_IDENTITY",
    ];
    let mut rows = Vec::new();
    for (o, shape) in tables_of(server, database) {
        for (column, number) in shape.columns.iter().zip(1..) {
            let default = column.default.as_ref();
            let mut row = vec![text("dbo"), text(&o.object.name), text(&column.name)];
            let is_identity = column.identity.is_some();
            row.extend(datatypes::odbc(column.kind, is_identity, column.nullable));
            row.push(Value::bit(column.nullable));
            row.push(default.map_or(Value::Null, |d| Value::text(format!("({d})"))));
            row.push(Value::Int(number));
            row.push(Value::bit(column.computed.is_some()));
            row.push(Value::bit(is_identity));
            rows.push(named(NAMES, row));
        }
    }
    for (view, columns) in views {
        for (column, number) in columns.iter().zip(1..) {
            let mut row = vec![text("dbo"), text(&view.object.name), text(&column.name)];
            row.extend(datatypes::odbc(column.kind, false, column.nullable));
            let no = Value::bit(false);
            row.extend([Value::bit(column.nullable), Value::Null, Value::Int(number)]);
            row.extend([no.clone(), no]);
            rows.push(named(NAMES, row));
        }
    }
    Ok(rows)
}

/// The same for the parameters of routines: first what a procedure returns.
pub(super) fn odbc_parameters(server: &Server, database: &str) -> Made {
    let mut rows = Vec::new();
    for o in of(server, database)
        .into_iter()
        .filter(|o| o.table.is_none())
    {
        let mut push = |name: &str, kind: Type, column_type: i64, number: i64| {
            let mut row = vec![text("dbo"), text(&o.object.name), text(name)];
            row.extend(datatypes::odbc(kind, false, column_type != 5));
            row.push(Value::Int(column_type));
            row.push(Value::Int(number));
            row.push(text(o.object.kind.trim()));
            rows.push(row);
        };
        if o.object.kind.trim() == "P" {
            push("@RETURN_VALUE", Type::Int, 5, 0);
        }
        for (parameter, number) in schema_parameters(&o).iter().zip(1..) {
            let column_type = if parameter.output { 2 } else { 1 };
            push(&parameter.name, parameter.kind, column_type, number);
        }
    }
    Ok(rows)
}
