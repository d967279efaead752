//! ROLLBACK: rows of tables become what they were before the open transaction, or at one of its savepoints.
//!
//! ```text
//! former rows ──▶ those that are still the transaction's own ──keys──▶ change of rows ──version──▶ table
//! ```
//!
//! Invariants
//! - A row that another session has changed since stays, and so does one whose former key another row has now; the rows that
//!   are not what they were are counted in a message.
//! - Rows of a definition that is gone are never put back.
//! - After a failure the transaction still knows what its rows were.
//!
//! Leaves to others: former rows (`tables.rs`), and which rows are whose (`server/open.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_catalog::RowChanges;

use crate::message::{self, Message};
use crate::server::objects::{StoredObject, digest, encoded, row_digest};
use crate::session::Session;
use crate::tables::{
    Change, Changes, FormerRow, RowBefore, TableId, TableRow, TableRows, TableShape,
};

/// How often ROLLBACK reads tables again that other sessions change meanwhile.
const TRIES_MAX: usize = 1000;

impl Session {
    /// Changes rows of a table that stays, if it has the change's version. `before`: those rows, as they were in it.
    ///
    /// Errors: the catalog cannot be written. `false`: the table has another version.
    pub(crate) fn write_rows(
        &mut self,
        object: &StoredObject,
        before: &[RowBefore],
        kept: &RowChanges,
    ) -> Result<bool, Message> {
        let (id, key) = (object.object.id, self.key);
        let server = self.server.clone();
        let mut open = server.open.lock();
        if !server.kept.put_rows(id, kept)? {
            return Ok(false);
        }
        let put = kept.put.iter().map(|(number, _)| *number);
        open.written(id, key, kept.removed.iter().copied().chain(put));
        let known = open.table(id, key);
        let Some(shape) = object.table.as_ref() else {
            return Ok(true);
        };
        if self.transactions == 0 && known.is_none() {
            return Ok(true);
        }
        for (number, row) in before {
            let left = known.and_then(|table| table.rows.get(number));
            let now = row.as_ref().map(|row| row_digest(shape, row));
            if left.is_some_and(|left| !left.is_own(now)) {
                let table = TableId::Stored(id);
                self.tables.rebase(table, *number, row.as_ref());
            }
        }
        let put = kept.put.iter();
        let put = put.map(|(number, row)| (*number, Some(digest(shape, row))));
        let removed = kept.removed.iter().map(|number| (*number, None));
        open.leave(object, key, removed.chain(put));
        Ok(true)
    }

    /// Gives a table's rows the values that they had, if it has this version; `None`: any one. `false`: it has another one.
    ///
    /// Errors: the catalog cannot be written.
    pub(crate) fn put_back(
        &mut self,
        table: TableId,
        before: Vec<RowBefore>,
        version: Option<i64>,
    ) -> Result<bool, Message> {
        let id = match table {
            TableId::Variable(id) | TableId::Temporary(id) => {
                let applied = self.tables.apply(id, Change::back_to(before));
                return applied.map(|_| true);
            }
            TableId::Stored(id) => id,
        };
        let Some(object) = self.server.kept.object_of(id) else {
            return Ok(true);
        };
        let change = Change::back_to(before);
        let put = change.put.iter();
        let kept = RowChanges {
            version,
            put: put.map(|(number, row)| (*number, encoded(row))).collect(),
            removed: change.removed,
            ..RowChanges::default()
        };
        self.write_rows(&object, &[], &kept)
    }

    /// Takes back what the open transaction has kept of rows last: they were not changed after all.
    pub(crate) fn forget_rows(&mut self, table: TableId, new: &[i64]) {
        self.tables.forget_rows(table, new);
        self.keep_open_rows();
    }

    /// The transaction is over.
    pub(crate) fn forget_changes(&mut self) {
        self.tables.forget_changes();
        self.keep_open_rows();
    }

    /// The server knows only the rows of which the open transaction keeps what they were.
    fn keep_open_rows(&self) {
        let is_kept = |id, number| self.tables.has_former(TableId::Stored(id), number);
        self.server.open.lock().retain(self.key, is_kept);
    }

    /// Puts the rows back that the open transaction has changed, and says which others have changed since. After a failure the
    /// transaction still knows what they were.
    ///
    /// Errors: the catalog cannot be read or written.
    pub(crate) fn undo(&mut self) -> Result<Vec<Message>, Message> {
        let said = self.undo_since(None)?;
        self.forget_changes();
        Ok(said)
    }

    /// The same for the end of a session or of what it was: the transaction is over, whether its rows are back or not.
    pub(crate) fn undo_at_end(&mut self) {
        // The log has the error.
        let _told = self.undo();
        self.forget_changes();
    }

    /// Puts the rows back that were changed after a savepoint. After a failure the transaction still knows what they were.
    ///
    /// Errors: 6401; the catalog cannot be read or written.
    pub(crate) fn undo_to(&mut self, savepoint: &str) -> Result<Vec<Message>, Message> {
        let place = self.tables.savepoint(savepoint);
        let place = place.ok_or_else(|| message::NO_SAVEPOINT.with(&[&savepoint]))?;
        let said = self.undo_since(Some(place))?;
        self.tables.forget_changes_since(place);
        self.keep_open_rows();
        Ok(said)
    }

    fn undo_since(&mut self, savepoint: Option<usize>) -> Result<Vec<Message>, Message> {
        let (changes, bytes) = self.tables.changes_since(savepoint);
        let done = undone(self, changes);
        let said = done.map_err(|refused| {
            self.tables.keep_changes(bytes);
            let text = format!("rows of tables were not rolled back: {}", refused.text);
            self.server.write_log("Server", &text);
            let text = format!("{text}: the transaction is still open, roll back again");
            message::OWN.with(&[&text])
        })?;
        for message in &said {
            self.server.write_log("Server", &message.text);
        }
        Ok(said)
    }
}

/// Puts rows back, and says which stay. Errors: the catalog cannot be read or written.
fn undone(session: &mut Session, changes: Changes) -> Result<Vec<Message>, Message> {
    let mut own: BTreeMap<TableId, Vec<RowBefore>> = BTreeMap::new();
    let mut stored: BTreeMap<i64, Vec<(i64, FormerRow)>> = BTreeMap::new();
    for ((table, number), former) in changes {
        match table {
            TableId::Stored(id) => stored.entry(id).or_default().push((number, former)),
            table => own.entry(table).or_default().push((number, former.row)),
        }
    }
    let mut all = Ok(());
    for (table, before) in own {
        let done = session.put_back(table, before, None);
        all = all.and(done.map(drop));
    }
    let said = stored_undone(session, &stored);
    all.and(said)
}

/// A table whose rows become what they were.
struct UndoneTable {
    object: Arc<StoredObject>,
    shape: Arc<TableShape>,
    version: i64,
    now: TableRows,
    /// The rows that are put back.
    own: BTreeMap<i64, Option<TableRow>>,
    /// Its definition is the one of the rows that are kept.
    is_same: bool,
}

impl UndoneTable {
    /// `None`: the table is gone.
    fn read(
        session: &Session,
        id: i64,
        former: &[(i64, FormerRow)],
    ) -> Result<Option<UndoneTable>, Message> {
        let server = &session.server;
        let Some(object) = server.kept.object_of(id) else {
            return Ok(None);
        };
        let Some(shape) = object.table.clone() else {
            return Ok(None);
        };
        let loaded = server.kept.rows(&object)?;
        let (version, now) = (loaded.version, loaded.rows);
        // Another session's change of the rows above is known here by now.
        let open = server.open.lock();
        let known = open.table(id, session.key);
        let same = known.filter(|known| known.definition == object.object.definition);
        let is_own = |(number, _): &&(i64, FormerRow)| {
            let left = same.and_then(|same| same.rows.get(number));
            let now = now.get(*number).map(|row| row_digest(&shape, row));
            left.is_some_and(|left| left.is_own(now))
        };
        let own = former.iter().filter(is_own);
        let own = own.map(|(number, former)| (*number, former.row.clone()));
        Ok(Some(UndoneTable {
            own: own.collect(),
            is_same: same.is_some(),
            object: object.clone(),
            shape,
            version,
            now,
        }))
    }

    /// How many rows do not become what they were.
    fn staying(&self, former: &[(i64, FormerRow)]) -> usize {
        let is_back = |number: i64, row: &Option<TableRow>| {
            let now = self.now.get(number);
            self.own.contains_key(&number)
                || (self.is_same && now.map(encoded) == row.as_ref().map(encoded))
        };
        let stays = |(number, former): &&(i64, FormerRow)| {
            former.is_others || !is_back(*number, &former.row)
        };
        former.iter().filter(stays).count()
    }

    /// `false`: another session has changed the table meanwhile.
    fn write(&self, session: &mut Session) -> Result<bool, Message> {
        let is_other = |(number, row): &(&i64, &Option<TableRow>)| {
            self.now.get(**number).map(encoded) != row.as_ref().map(encoded)
        };
        let changed = self.own.iter().filter(is_other);
        let changed: Vec<_> = changed.map(|(n, row)| (*n, row.clone())).collect();
        let id = TableId::Stored(self.object.object.id);
        Ok(changed.is_empty() || session.put_back(id, changed, Some(self.version))?)
    }

    fn said(&self, former: &[(i64, FormerRow)]) -> Option<Message> {
        let count = self.staying(former);
        let object = &self.object.object;
        let text = format!(
            "another session has changed {count} of the rows of {}.dbo.{} that this transaction had changed, or what they depend on: they are not rolled back to what they were",
            object.database, object.name
        );
        (count > 0).then(|| message::DETAIL.with(&[&text]))
    }
}

fn stored_undone(
    session: &mut Session,
    all: &BTreeMap<i64, Vec<(i64, FormerRow)>>,
) -> Result<Vec<Message>, Message> {
    for _ in 0..TRIES_MAX {
        let mut tables = Vec::new();
        for (id, former) in all {
            if let Some(mut table) = UndoneTable::read(session, *id, former)? {
                table.now.leave_out_taken(&table.shape, &mut table.own);
                tables.push((table, former));
            }
        }
        let (mut is_done, mut written) = (true, Ok(()));
        for (table, _) in &tables {
            // A table that refuses its rows keeps no other one from having them.
            match table.write(session) {
                Ok(done) => is_done &= done,
                Err(refused) => written = written.and(Err(refused)),
            }
        }
        written?;
        if is_done {
            let said = tables
                .iter()
                .filter_map(|(table, former)| table.said(former));
            return Ok(said.collect());
        }
    }
    let text = "other sessions change a table so often that its rows cannot be rolled back";
    Err(message::OWN.with(&[&text]))
}
