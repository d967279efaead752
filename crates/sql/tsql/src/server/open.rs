//! Rows of tables that stay, as open transactions have left them.
//!
//! Invariants
//! - A change of rows is known here before another one is made: a row that another session has written since is never taken for
//!   the transaction's own, even where both have written the same values.
//! - The definition of a table that an open transaction has changed stays, as far as this server goes. Another program's ALTER
//!   TABLE is known by the definition that is kept here.
//! - Each row here is one whose former values the transaction keeps, and is claimed with them.
//!
//! Leaves to others: the former values (`tables.rs`), and putting them back (`statement/undo.rs`).

use std::collections::BTreeMap;

use super::objects::StoredObject;
use crate::message::{self, Message};

/// A session, by a number that no other one ever has.
pub(crate) type SessionKey = u64;

/// A row as a transaction has left it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftRow {
    /// `None`: it has removed it.
    digest: Option<u64>,
    /// Another session of this server has written it since.
    is_others: bool,
}

impl LeftRow {
    /// Whether the row is as the transaction has left it, or another program has written the same. `now`: its digest.
    pub fn is_own(&self, now: Option<u64>) -> bool {
        !self.is_others && self.digest == now
    }
}

/// A table that an open transaction has changed.
#[derive(Debug)]
pub(crate) struct OpenTable {
    /// The definition that it had at the first change.
    pub definition: String,
    pub rows: BTreeMap<i64, LeftRow>,
}

/// The tables that open transactions have changed, by number and session.
#[derive(Debug, Default)]
pub(crate) struct OpenTables(BTreeMap<i64, BTreeMap<SessionKey, OpenTable>>);

impl OpenTables {
    pub fn table(&self, id: i64, session: SessionKey) -> Option<&OpenTable> {
        self.0.get(&id)?.get(&session)
    }

    /// A session has written rows: for all others they are another session's.
    pub fn written(&mut self, id: i64, session: SessionKey, rows: impl Iterator<Item = i64>) {
        let Some(open) = self.0.get_mut(&id) else {
            return;
        };
        for row in rows {
            for (_, table) in open.iter_mut().filter(|(other, _)| **other != session) {
                if let Some(left) = table.rows.get_mut(&row) {
                    left.is_others = true;
                }
            }
        }
    }

    /// A session's open transaction has left rows so.
    pub fn leave(
        &mut self,
        object: &StoredObject,
        session: SessionKey,
        rows: impl Iterator<Item = (i64, Option<u64>)>,
    ) {
        let open = self.0.entry(object.object.id).or_default();
        let table = open.entry(session).or_insert_with(|| OpenTable {
            definition: object.object.definition.clone(),
            rows: BTreeMap::new(),
        });
        let left = |(row, digest)| {
            let is_others = false;
            (row, LeftRow { digest, is_others })
        };
        table.rows.extend(rows.map(left));
    }

    /// A session's open transaction keeps only these rows, and none of other tables.
    pub fn retain(&mut self, session: SessionKey, is_kept: impl Fn(i64, i64) -> bool) {
        self.0.retain(|id, open| {
            if let Some(table) = open.get_mut(&session) {
                table.rows.retain(|row, _| is_kept(*id, *row));
                if table.rows.is_empty() {
                    open.remove(&session);
                }
            }
            !open.is_empty()
        });
    }

    /// Errors: the open transaction of another session has changed the table.
    pub fn check_free(&self, object: &StoredObject, session: SessionKey) -> Result<(), Message> {
        let open = self.0.get(&object.object.id);
        let mut others = open.into_iter().flat_map(|open| open.keys());
        match others.any(|other| *other != session) {
            true => {
                let text = format!(
                    "an open transaction of another session has changed {}.dbo.{}: its definition stays until that one ends, try again then",
                    object.object.database, object.object.name
                );
                Err(message::OWN.with(&[&text]))
            }
            false => Ok(()),
        }
    }
}
