//! Foreign keys: a row's values are those of a row of another table.
//!
//! Invariants
//! - A change that would break a key is refused (547) and changes nothing.
//! - NULL refers to nothing.
//!
//! Leaves to others: other constraints (`tables.rs`). Two sessions that change both tables of a key at the same moment are
//! not kept apart.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::message::{self, Message};
use crate::server::Server;
use crate::server::objects::StoredObject;
use crate::tables::{Change, ForeignKey, KeyKind, TableRow, TableRows, TableShape, values_key};

/// The places that a key refers to.
fn references(key: &ForeignKey, parent: &TableShape) -> Option<Vec<usize>> {
    if !key.references.is_empty() {
        return parent.places(&key.references).ok();
    }
    let mut keys = parent.keys.iter();
    let primary = keys.find(|k| k.kind == KeyKind::Primary)?;
    Some(primary.columns.clone())
}

fn keys<'a>(rows: impl Iterator<Item = &'a TableRow>, places: &[usize]) -> BTreeSet<String> {
    rows.filter_map(|row| values_key(row, places)).collect()
}

fn conflict(
    verb: &str,
    word: &str,
    key: &ForeignKey,
    other: &StoredObject,
    column: Option<&str>,
) -> Message {
    let object = &other.object;
    let table = format!("dbo.{}", object.name);
    message::KEY_CONFLICT.with(&[
        &verb,
        &word,
        &key.name,
        &object.database,
        &table,
        &column.map_or(String::new(), |c| format!(", column '{c}'")),
    ])
}

/// The tables that refer to one, with their keys.
fn children(server: &Server, parent: &StoredObject) -> Vec<(Arc<StoredObject>, ForeignKey)> {
    let mut found = Vec::new();
    for child in server.kept.objects() {
        let keys = child.table.iter().flat_map(|t| &t.foreign);
        for key in keys {
            let named = server.kept.named(&key.table, &child.object.database);
            if named.is_some_and(|o| o.object.id == parent.object.id) {
                found.push((child.clone(), key.clone()));
            }
        }
    }
    found
}

/// Whether another table refers to this one.
pub(super) fn is_referenced(server: &Server, parent: &StoredObject) -> bool {
    let children = children(server, parent);
    children
        .iter()
        .any(|(child, _)| child.object.id != parent.object.id)
}

/// Whether all rows of a table have their values in another one.
pub(super) fn check_rows(
    server: &Server,
    child: &StoredObject,
    key: &ForeignKey,
    rows: &[TableRow],
    verb: &str,
) -> Result<(), Message> {
    let parent = server.kept.named(&key.table, &child.object.database);
    let parent = parent.ok_or_else(|| message::OBJECT_UNKNOWN.with(&[&key.table.join(".")]))?;
    let shape = parent.table.clone();
    let places = shape.as_ref().and_then(|shape| references(key, shape));
    let places = places.ok_or_else(|| message::KEY_COLUMN_UNKNOWN.with(&[&key.name]))?;
    if rows.is_empty() {
        return Ok(());
    }
    let loaded = server.kept.rows(&parent)?;
    let mut known = keys(loaded.rows.iter().map(|(_, row)| row), &places);
    if parent.object.id == child.object.id {
        known.extend(keys(rows.iter(), &places));
    }
    for row in rows {
        if values_key(row, &key.columns).is_some_and(|key| !known.contains(&key)) {
            let column = match places.as_slice() {
                [one] => shape.as_ref().map(|s| s.columns[*one].name.clone()),
                _ => None,
            };
            return Err(conflict(
                verb,
                "FOREIGN KEY",
                key,
                &parent,
                column.as_deref(),
            ));
        }
    }
    Ok(())
}

/// Errors: 547 for a change that breaks a key of this table or one that refers to it.
pub(super) fn check(
    server: &Server,
    object: &StoredObject,
    current: &TableRows,
    change: &Change,
    verb: &str,
) -> Result<(), Message> {
    let Some(shape) = &object.table else {
        return Ok(());
    };
    if !shape.foreign.is_empty() {
        let rows: Vec<TableRow> = change.put.iter().map(|(_, row)| row.clone()).collect();
        for key in &shape.foreign {
            check_rows(server, object, key, &rows, verb)?;
        }
    }
    let put = change.put.iter().map(|(number, _)| *number);
    let gone: BTreeSet<i64> = change.removed.iter().copied().chain(put).collect();
    if gone.is_empty() {
        return Ok(());
    }
    for (child, key) in children(server, object) {
        let Some(places) = references(&key, shape) else {
            continue;
        };
        let before = gone.iter().filter_map(|number| current.get(*number));
        let mut lost = keys(before, &places);
        for kept in keys(change.put.iter().map(|(_, row)| row), &places) {
            lost.remove(&kept);
        }
        if lost.is_empty() {
            continue;
        }
        let is_own = child.object.id == object.object.id;
        let rows = server.kept.rows(&child)?;
        let remain = rows
            .rows
            .iter()
            .filter(|(n, _)| !(is_own && gone.contains(n)));
        let used = keys(remain.map(|(_, row)| row), &key.columns);
        if lost.iter().any(|key| used.contains(key)) {
            let column = match key.columns.as_slice() {
                [one] => child.table.as_ref().map(|t| t.columns[*one].name.clone()),
                _ => None,
            };
            return Err(conflict(verb, "REFERENCE", &key, &child, column.as_deref()));
        }
    }
    Ok(())
}
