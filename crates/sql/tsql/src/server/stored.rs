//! Keeps procedures, functions, views and tables: in the catalog; those of tempdb, and all without a catalog, as long as the
//! program.
//!
//! Invariants
//! - A database has each name once, whatever its case and its trailing blanks.
//! - The number of objects, and the bytes of their definitions and rows, are bounded: whoever may log in may create some.
//! - A table's rows are read and changed by version: a change that was computed from older rows is not made.
//! - Rows are read as their table's definition says that belongs to them, or not at all (2801).
//!
//! Leaves to others: the catalog's tables (`longshore-catalog`), and what statements do with objects (`statement`).

use std::sync::Arc;

use longshore_catalog::{CatalogObject, RowChanges, StoredRows};

use super::objects::{
    DEFINITION_MAX, FIRST_ID, LoadedRows, OBJECTS_BYTES_MAX, OBJECTS_MAX, StoredObject, VOLATILE,
    VOLATILE_FIRST, decoded, is_shared, is_volatile,
};
use super::persistent::PersistentState;
use crate::message::{self, Message};
use crate::tables::TableRows;

fn too_many(what: &str) -> Message {
    message::OWN.with(&[&what])
}

impl PersistentState {
    pub(crate) fn objects(&self) -> Vec<Arc<StoredObject>> {
        self.kept.lock().objects.clone()
    }

    pub(crate) fn object(&self, database: &str, name: &str) -> Option<Arc<StoredObject>> {
        let kept = self.kept.lock();
        kept.objects.iter().find(|o| o.is(database, name)).cloned()
    }

    /// The object of a name of up to three parts, in a database; the schema is `dbo`.
    pub(crate) fn named(&self, parts: &[String], database: &str) -> Option<Arc<StoredObject>> {
        let (name, before) = parts.split_last()?;
        let mut before = before.iter().rev().map(String::as_str);
        let schema = before.next().unwrap_or("");
        let place = before.next().filter(|d| !d.is_empty()).unwrap_or(database);
        let is_dbo = schema.is_empty() || schema.trim_end().eq_ignore_ascii_case("dbo");
        match before.next() {
            None if is_shared(name) => self.object(VOLATILE, name),
            None if is_dbo => self.object(place, name),
            _ => None,
        }
    }

    pub(crate) fn object_of(&self, id: i64) -> Option<Arc<StoredObject>> {
        let kept = self.kept.lock();
        kept.objects.iter().find(|o| o.object.id == id).cloned()
    }

    /// Errors: 2714; too many objects, or too long ones.
    pub(crate) fn add_object(&self, mut object: CatalogObject) -> Result<i64, Message> {
        let in_memory = self.path.is_none() || is_volatile(&object);
        self.check_room(&object.definition, in_memory)?;
        let count = self.kept.lock().objects.len();
        if count >= OBJECTS_MAX {
            let text = format!(
                "this server keeps at most {OBJECTS_MAX} procedures and tables: drop some first"
            );
            return Err(too_many(&text));
        }
        let exists = || message::OBJECT_EXISTS.with(&[&object.name]);
        if self.object(&object.database, &object.name).is_some() {
            return Err(exists());
        }
        let first = match self.path {
            Some(_) => VOLATILE_FIRST,
            None => FIRST_ID,
        };
        let id = match in_memory {
            false => self.change(None, |catalog| catalog.add_object(&object))?,
            true => {
                let mut kept = self.kept.lock();
                let id = first + kept.memory.next;
                kept.memory.next += 1;
                kept.memory.rows.insert(id, StoredRows::default());
                Some(id)
            }
        };
        object.id = id.ok_or_else(exists)?;
        let id = object.id;
        self.kept
            .lock()
            .objects
            .push(Arc::new(StoredObject::of(object)));
        Ok(id)
    }

    /// Gives an object another definition, and a table's rows other values. Errors: the same, and 208 where the object is
    /// gone. `false`: the rows are not those of this version any longer.
    pub(crate) fn change_object(
        &self,
        object: CatalogObject,
        rows: Option<&RowChanges>,
    ) -> Result<bool, Message> {
        let in_memory = self.path.is_none() || is_volatile(&object);
        self.check_room(&object.definition, in_memory)?;
        let _alone = self.definitions.write();
        let changed = match in_memory {
            false => self.change(true, |catalog| catalog.change_object(&object, rows))?,
            true => match rows {
                Some(rows) => self.kept.lock().memory.change(object.id, rows),
                None => true,
            },
        };
        if changed {
            let mut kept = self.kept.lock();
            let new = Arc::new(StoredObject::of(object));
            for known in &mut kept.objects {
                if known.object.id == new.object.id {
                    *known = new.clone();
                }
            }
        }
        Ok(changed)
    }

    pub(crate) fn drop_object(&self, id: i64) -> Result<bool, Message> {
        let dropped = match self.is_in_memory(id) {
            true => true,
            false => self.change(true, |catalog| catalog.drop_object(id))?,
        };
        let mut kept = self.kept.lock();
        kept.objects.retain(|o| o.object.id != id);
        kept.memory.rows.remove(&id);
        Ok(dropped)
    }

    /// Errors: too long, or too much of everything.
    fn check_room(&self, definition: &str, in_memory: bool) -> Result<(), Message> {
        if definition.len() > DEFINITION_MAX {
            let text = format!("a definition has at most {} MiB", DEFINITION_MAX >> 20);
            return Err(too_many(&text));
        }
        self.check_bytes(definition.len() as i64, in_memory)
    }

    /// Whether an object is in no catalog.
    fn is_in_memory(&self, id: i64) -> bool {
        self.path.is_none() || id >= VOLATILE_FIRST
    }

    fn check_bytes(&self, more: i64, in_memory: bool) -> Result<(), Message> {
        let held = match in_memory {
            false => self.change(0, |catalog| catalog.object_bytes())?,
            true => self.kept.lock().memory.bytes(),
        };
        match held + more > OBJECTS_BYTES_MAX {
            true => {
                let text = format!(
                    "the tables and procedures of this server have at most {} MiB: delete rows first",
                    OBJECTS_BYTES_MAX >> 20
                );
                Err(too_many(&text))
            }
            false => Ok(()),
        }
    }

    /// The rows of a table. Errors: 208 where it is gone; 2801 where it has another definition now.
    pub(crate) fn rows(&self, table: &StoredObject) -> Result<LoadedRows, Message> {
        let id = table.object.id;
        let stays = self.definitions.read();
        let stored = match self.is_in_memory(id) {
            false => self.change(None, |catalog| catalog.object_rows(id))?,
            true => self.kept.lock().memory.rows.get(&id).cloned(),
        };
        let (Some(stored), Some(shape)) = (stored, &table.table) else {
            return Err(message::OBJECT_UNKNOWN.with(&[&table.object.name]));
        };
        self.check_definition(table)?;
        drop(stays);
        let rows = stored
            .rows
            .iter()
            .map(|(number, text)| (*number, decoded(shape, text)));
        let mut rows = TableRows::of(shape, rows.collect());
        rows.last_row = rows.last_row.max(stored.last_row);
        rows.last_identity = stored.last_identity;
        Ok(LoadedRows {
            version: stored.version,
            rows,
        })
    }

    /// Errors: 2801 where an object has another definition now.
    pub(crate) fn check_definition(&self, known: &StoredObject) -> Result<(), Message> {
        let known = &known.object;
        match self.object_of(known.id) {
            Some(now) if now.object.definition != known.definition => {
                Err(message::DEFINITION_CHANGED.with(&[&known.name]))
            }
            _ => Ok(()),
        }
    }

    /// Errors: there is no room for the rows of a change.
    pub(crate) fn check_rows_fit(&self, id: i64, changes: &RowChanges) -> Result<(), Message> {
        let more: usize = changes.put.iter().map(|(_, text)| text.len()).sum();
        match more {
            0 => Ok(()),
            more => self.check_bytes(more as i64, self.is_in_memory(id)),
        }
    }

    /// Changes rows; `false`: the table has other rows now than those of the version, or is gone.
    pub(crate) fn put_rows(&self, id: i64, changes: &RowChanges) -> Result<bool, Message> {
        match self.is_in_memory(id) {
            false => self.change(true, |catalog| catalog.change_rows(id, changes)),
            true => Ok(self.kept.lock().memory.change(id, changes)),
        }
    }
}
