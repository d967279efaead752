//! The cursors of a session: their names, their queries, and the rows of those that are open.
//!
//! A cursor is a snapshot: OPEN reads all rows, and FETCH takes one of them. Queries here read views, whose rows belong to
//! one moment, so every cursor is what SQL Server calls static.
//!
//! Invariants
//! - A global name lives as long as the session; a local one and a variable as long as the batch that declared them, and
//!   batches inside that batch do not see it.
//! - A cursor lives as long as a name or a variable refers to it.
//! - The number of cursors, and the memory of their rows, are bounded; the memory is claimed from the server's.
//!
//! Leaves to others: the statements (`statement/cursor.rs`), and reading rows (`query`).

use std::collections::BTreeMap;

use crate::memory::Claim;
use crate::message::{self, Message};
use crate::query::QueryPlan;
use crate::syntax::CursorName;
use crate::value::Value;
use crate::variables::{VALUES_MAX, bytes, too_much};

/// The most cursors of a session.
const CURSORS_MAX: usize = 256;

/// A cursor's number.
type Id = u32;

/// The rows that a cursor was declared to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    /// STATIC, INSENSITIVE or KEYSET: those at OPEN.
    Fixed,
    /// DYNAMIC
    Dynamic,
    /// Without a word about it: SQL Server chooses by the query's plan.
    Open,
}

/// One cursor.
pub(crate) struct Cursor {
    pub plan: QueryPlan,
    /// Whether only the next row can be fetched.
    pub forward_only: bool,
    pub membership: Membership,
    pub rows: Option<Rows>,
    /// For the query's values and the rows.
    claim: Claim,
    /// Bytes of the query's values.
    own: usize,
}

/// The rows of an open cursor.
pub(crate) struct Rows {
    pub all: Vec<Vec<Value>>,
    /// The current row, from 1; 0 is before the first, one more than there are is after the last.
    pub at: usize,
}

/// The names of one batch.
#[derive(Default)]
struct Frame {
    local: BTreeMap<String, Id>,
    /// With their @; `None`: no cursor is allocated.
    variables: BTreeMap<String, Option<Id>>,
}

#[derive(Default)]
pub(crate) struct Cursors {
    all: BTreeMap<Id, Cursor>,
    next: Id,
    global: BTreeMap<String, Id>,
    frames: Vec<Frame>,
    /// The cursor that was opened last, while it is open.
    last_opened: Option<Id>,
    /// `@@FETCH_STATUS`
    pub fetch_status: i64,
    /// Bytes of all cursors.
    held: usize,
}

/// Bytes of a row.
fn row_bytes(row: &[Value]) -> usize {
    let fixed = size_of::<Vec<Value>>() + size_of_val(row);
    fixed + row.iter().map(bytes).sum::<usize>()
}

impl Cursors {
    pub fn new() -> Cursors {
        Cursors {
            fetch_status: NO_FETCH,
            ..Cursors::default()
        }
    }

    /// A batch begins.
    pub fn begin(&mut self) {
        self.frames.push(Frame::default());
    }

    /// A batch ends: its names are gone.
    pub fn end(&mut self) {
        self.frames.pop();
        self.drop_unused();
    }

    /// All names are gone.
    pub fn clear(&mut self) {
        *self = Cursors::new();
    }

    /// `@@CURSOR_ROWS`
    pub fn row_count(&self) -> usize {
        let opened = self.last_opened.and_then(|id| self.all.get(&id));
        opened
            .and_then(|cursor| cursor.rows.as_ref())
            .map_or(0, |rows| rows.all.len())
    }

    pub fn declare_variable(&mut self, name: &str) {
        if let Some(frame) = self.frames.last_mut() {
            frame.variables.entry(name.to_lowercase()).or_default();
        }
    }

    pub fn is_variable(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }

    fn variable(&self, name: &str) -> Option<Option<Id>> {
        let frame = self.frames.last()?;
        frame.variables.get(&name.to_lowercase()).copied()
    }

    /// Makes a cursor without a name. Errors: 16960, 701, too many bytes.
    pub fn make(
        &mut self,
        plan: QueryPlan,
        (forward_only, membership): (bool, Membership),
        mut claim: Claim,
    ) -> Result<u32, Message> {
        if self.all.len() >= CURSORS_MAX {
            return Err(message::TOO_MANY_CURSORS.plain());
        }
        let own = plan.sql.len() + row_bytes(&plan.values);
        self.hold(own)?;
        if let Err(refused) = claim.resize(own) {
            self.held -= own;
            return Err(refused);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let cursor = Cursor {
            plan,
            forward_only,
            membership,
            rows: None,
            claim,
            own,
        };
        self.all.insert(id, cursor);
        Ok(id)
    }

    /// Gives a new cursor its name. Errors: 16915.
    pub fn name(&mut self, id: Id, name: &str, local: bool) -> Result<(), Message> {
        let key = name.to_lowercase();
        let names = match (local, self.frames.last_mut()) {
            (true, Some(frame)) => &mut frame.local,
            _ => &mut self.global,
        };
        if names.contains_key(&key) {
            self.drop_unused();
            return Err(message::CURSOR_EXISTS.with(&[&name]));
        }
        names.insert(key, id);
        Ok(())
    }

    /// Lets a variable refer to a cursor.
    pub fn point(&mut self, variable: &str, id: Id) {
        if let Some(frame) = self.frames.last_mut() {
            frame.variables.insert(variable.to_lowercase(), Some(id));
        }
        self.drop_unused();
    }

    /// Errors: 16916, 16948, 16950.
    pub fn find(&self, name: &CursorName) -> Result<u32, Message> {
        match name {
            CursorName::Variable(name) => match self.variable(name) {
                None => Err(message::NOT_A_CURSOR.with(&[name])),
                Some(None) => Err(message::CURSOR_UNALLOCATED.with(&[name])),
                Some(Some(id)) => Ok(id),
            },
            CursorName::Named { global, name } => {
                let key = name.to_lowercase();
                let local = self.frames.last().filter(|_| !global);
                let local = local.and_then(|frame| frame.local.get(&key));
                let found = local.or_else(|| self.global.get(&key)).copied();
                found.ok_or_else(|| message::CURSOR_UNKNOWN.with(&[name]))
            }
        }
    }

    pub fn get(&mut self, id: Id) -> Option<&mut Cursor> {
        self.all.get_mut(&id)
    }

    /// Takes the name or the variable's reference away.
    pub fn release(&mut self, name: &CursorName) {
        match (name, self.frames.last_mut()) {
            (CursorName::Variable(name), Some(frame)) => {
                frame.variables.insert(name.to_lowercase(), None);
            }
            (CursorName::Variable(_), None) => {}
            (CursorName::Named { global, name }, frame) => {
                let key = name.to_lowercase();
                let local = frame.filter(|_| !global);
                if local.and_then(|frame| frame.local.remove(&key)).is_none() {
                    self.global.remove(&key);
                }
            }
        }
        self.drop_unused();
    }

    /// Counts more bytes for a cursor that is being opened. Errors: 701, too many bytes; the caller then closes it.
    pub fn grow(&mut self, id: Id, row: &[Value]) -> Result<(), Message> {
        let more = row_bytes(row);
        self.hold(more)?;
        let Some(cursor) = self.all.get_mut(&id) else {
            return Ok(());
        };
        cursor.own += more;
        let own = cursor.own;
        cursor.claim.resize(own)
    }

    /// Opens a cursor with its rows, which [`Cursors::grow`] has counted.
    pub fn open(&mut self, id: Id, all: Vec<Vec<Value>>) {
        if let Some(cursor) = self.all.get_mut(&id) {
            cursor.rows = Some(Rows { all, at: 0 });
            self.last_opened = Some(id);
        }
    }

    /// Drops the rows.
    pub fn close(&mut self, id: Id) {
        if let Some(cursor) = self.all.get_mut(&id) {
            cursor.rows = None;
            let own = cursor.plan.sql.len() + row_bytes(&cursor.plan.values);
            self.held -= cursor.own - own;
            cursor.own = own;
            // Shrinking always succeeds.
            let _fits = cursor.claim.resize(own);
        }
        if self.last_opened == Some(id) {
            self.last_opened = None;
        }
    }

    fn hold(&mut self, more: usize) -> Result<(), Message> {
        if self.held + more > VALUES_MAX {
            return Err(too_much());
        }
        self.held += more;
        Ok(())
    }

    fn drop_unused(&mut self) {
        let frames = self.frames.iter().flat_map(|frame| {
            let variables = frame.variables.values().flatten();
            frame.local.values().chain(variables)
        });
        let used: Vec<Id> = self.global.values().chain(frames).copied().collect();
        let held = &mut self.held;
        self.all.retain(|id, cursor| {
            let keeps = used.contains(id);
            if !keeps {
                *held -= cursor.own;
            }
            keeps
        });
        if self
            .last_opened
            .is_some_and(|id| !self.all.contains_key(&id))
        {
            self.last_opened = None;
        }
    }

    /// `CURSOR_STATUS`: 1 with rows, 0 without, -1 closed, -2 without a cursor, -3 unknown. `None`: no such scope.
    pub fn status(&self, scope: &str, name: &str) -> Option<i64> {
        let key = name.to_lowercase();
        let frame = self.frames.last();
        let id = match scope.to_ascii_lowercase().as_str() {
            "local" => frame.and_then(|frame| frame.local.get(&key).copied()),
            "global" => self.global.get(&key).copied(),
            "variable" => match self.variable(name) {
                Some(None) => return Some(-2),
                found => found.flatten(),
            },
            _ => return None,
        };
        let Some(cursor) = id.and_then(|id| self.all.get(&id)) else {
            return Some(-3);
        };
        Some(match &cursor.rows {
            None => -1,
            Some(rows) => (!rows.all.is_empty()).into(),
        })
    }
}

/// `@@FETCH_STATUS` before any FETCH, and after one without a row.
pub(crate) const NO_FETCH: i64 = -1;
