//! Tables that scripts make: their columns and constraints, their rows, and the ones that belong to a session.
//!
//! Invariants
//! - A row has a value for each column, of the column's type; no two rows have the same key.
//! - A change that a constraint refuses changes nothing.
//! - The bytes and the number of a session's tables are bounded; the bytes are claimed from the memory of all sessions.
//! - A table variable is seen by its own batch only; a temporary table also by the batches inside of the one that made it.
//!
//! Leaves to others: evaluating statements (`statement`), tables that outlive the session (`server/objects.rs`), and
//! reading rows in queries (`query`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longshore_catalog::CatalogObject;

use crate::kinds::{self, TypePlace};
use crate::memory::Claim;
use crate::message::{self, Message};
use crate::syntax::{ColumnSpec, ConstraintKind, ConstraintSpec, Fragment, IndexSpec, TableSpec};
use crate::value::{Column, Type, Value};
use crate::variables::{VALUES_MAX, bytes, too_much};

pub type TableRow = Vec<Value>;

/// The number of a row, and what it was; `None`: it was not there.
pub type RowBefore = (i64, Option<TableRow>);

/// The most columns of a table.
const COLUMNS_MAX: usize = 1024;
/// The most tables of a session.
const TABLES_MAX: usize = 1000;
/// A row before the open transaction changed it.
#[derive(Debug, Clone, Default)]
pub struct FormerRow {
    /// `None`: there was no such row.
    pub row: Option<TableRow>,
    /// Another session has changed it meanwhile: this is what it made of it.
    pub is_others: bool,
}

/// Rows as they were before a change.
pub type Changes = BTreeMap<(TableId, i64), FormerRow>;

/// The most savepoints of a transaction.
const SAVEPOINTS_MAX: usize = 1000;
/// The memory of a row that a transaction has changed, without its values, with what the server knows of it.
const CHANGED_BYTES: usize = 128;

/// A column as a statement declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableColumn {
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
    /// Its seed and its increment.
    pub identity: Option<(i64, i64)>,
    pub default: Option<Fragment>,
    /// The expression that computes its values.
    pub computed: Option<Fragment>,
}

/// Columns whose values are different in each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKey {
    pub name: String,
    pub kind: KeyKind,
    /// Their places.
    pub columns: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Primary,
    Unique,
    /// CREATE UNIQUE INDEX
    Index,
}

/// Values that another table has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    pub name: String,
    pub columns: Vec<usize>,
    pub table: Vec<String>,
    /// Empty: the primary key.
    pub references: Vec<String>,
}

/// A condition that no row may make false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCheck {
    pub name: String,
    pub condition: Fragment,
    /// The column that it is about, if it names only one.
    pub column: Option<String>,
}

/// The meaning of a table's declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct TableShape {
    /// As it is declared.
    pub spec: TableSpec,
    pub indexes: Vec<IndexSpec>,
    pub columns: Vec<TableColumn>,
    pub keys: Vec<TableKey>,
    pub foreign: Vec<ForeignKey>,
    pub checks: Vec<TableCheck>,
}

/// A table's name as constraints without a name have it in theirs.
fn short(table: &str) -> String {
    table.chars().take(9).collect()
}

impl TableShape {
    /// Errors: 243, 1779, 1911, 2705, 2744, 2749, what a table cannot have.
    pub fn of(
        spec: TableSpec,
        indexes: Vec<IndexSpec>,
        table: &str,
    ) -> Result<TableShape, Message> {
        let mut columns: Vec<TableColumn> = Vec::new();
        if spec.columns.len() > COLUMNS_MAX {
            let text = format!("a table has at most {COLUMNS_MAX} columns");
            return Err(message::OWN.with(&[&text]));
        }
        for column in &spec.columns {
            if columns
                .iter()
                .any(|c| c.name.eq_ignore_ascii_case(&column.name))
            {
                return Err(message::TABLE_COLUMN_TWICE.with(&[&column.name, &table]));
            }
            columns.push(column_of(column, columns.len() + 1)?);
        }
        if columns.iter().filter(|c| c.identity.is_some()).count() > 1 {
            return Err(message::IDENTITY_TWICE.with(&[&table]));
        }
        let mut shape = TableShape {
            spec: TableSpec::default(),
            indexes: Vec::new(),
            columns,
            keys: Vec::new(),
            foreign: Vec::new(),
            checks: Vec::new(),
        };
        for (i, constraint) in spec.constraints.iter().enumerate() {
            shape.constrain(constraint, i, table)?;
        }
        for index in &indexes {
            let places = shape.places(&index.columns)?;
            if index.unique {
                shape.keys.push(TableKey {
                    name: index.name.clone(),
                    kind: KeyKind::Index,
                    columns: places,
                });
            }
        }
        Ok(TableShape {
            spec,
            indexes,
            ..shape
        })
    }

    fn constrain(
        &mut self,
        constraint: &ConstraintSpec,
        number: usize,
        table: &str,
    ) -> Result<(), Message> {
        let columns = self.places(&constraint.columns)?;
        let name = |prefix: &str| {
            let given = constraint.name.clone();
            given.unwrap_or_else(|| format!("{prefix}__{}__{:08X}", short(table), number + 1))
        };
        let (kind, prefix) = match &constraint.kind {
            ConstraintKind::Check(condition) => {
                self.checks.push(TableCheck {
                    name: name("CK"),
                    condition: condition.clone(),
                    column: self.only_column(condition),
                });
                return Ok(());
            }
            ConstraintKind::Primary => (KeyKind::Primary, "PK"),
            ConstraintKind::Unique => (KeyKind::Unique, "UQ"),
            ConstraintKind::Foreign {
                table,
                columns: references,
            } => {
                self.foreign.push(ForeignKey {
                    name: name("FK"),
                    columns,
                    table: table.clone(),
                    references: references.clone(),
                });
                return Ok(());
            }
        };
        if kind == KeyKind::Primary {
            if self.keys.iter().any(|k| k.kind == KeyKind::Primary) {
                return Err(message::PRIMARY_TWICE.with(&[&table]));
            }
            for place in &columns {
                self.columns[*place].nullable = false;
            }
        }
        self.keys.push(TableKey {
            name: name(prefix),
            kind,
            columns,
        });
        Ok(())
    }

    /// The column that a condition names, if it is one.
    fn only_column(&self, condition: &Fragment) -> Option<String> {
        let tokens = crate::syntax::tokens(&condition.text).ok()?;
        let named = |column: &&TableColumn| {
            tokens.iter().any(|token| {
                let raw = token.raw.trim_start_matches(['[', '"']);
                let name = raw.trim_end_matches([']', '"']);
                name.eq_ignore_ascii_case(&column.name)
            })
        };
        let mut found = self.columns.iter().filter(named);
        let first = found.next()?;
        found.next().is_none().then(|| first.name.clone())
    }

    /// The places of columns. Errors: 1911.
    pub fn places(&self, names: &[String]) -> Result<Vec<usize>, Message> {
        let place = |name: &String| {
            let found = self.place(name);
            found.ok_or_else(|| message::KEY_COLUMN_UNKNOWN.with(&[name]))
        };
        names.iter().map(place).collect()
    }

    pub fn place(&self, name: &str) -> Option<usize> {
        self.columns
            .iter()
            .position(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// The place of the column that numbers rows.
    pub fn identity(&self) -> Option<(usize, i64, i64)> {
        let mut all = self.columns.iter().enumerate();
        all.find_map(|(i, c)| c.identity.map(|(seed, step)| (i, seed, step)))
    }

    /// The columns as a query sees them.
    pub fn result_columns(&self) -> Vec<Column> {
        let column = |c: &TableColumn| Column {
            nullable: c.nullable,
            ..Column::new(c.name.as_str(), c.kind)
        };
        self.columns.iter().map(column).collect()
    }
}

fn column_of(spec: &ColumnSpec, number: usize) -> Result<TableColumn, Message> {
    if spec.computed.is_some() && spec.kind.name.is_empty() {
        return Err(message::NOT_HERE.with(&[&"a computed column of a function's table"]));
    }
    let place = TypePlace::Column(&spec.name, number);
    let kind = kinds::named(&spec.kind.name, &spec.kind.sizes, place)?.declared();
    let numbers = kind.is_integer() && kind != Type::Bit;
    let whole = matches!(kind, Type::Numeric { scale: 0, .. });
    if spec.identity.is_some() && (!(numbers || whole) || spec.nullable == Some(true)) {
        return Err(message::IDENTITY_TYPE.with(&[&spec.name]));
    }
    Ok(TableColumn {
        name: spec.name.clone(),
        kind,
        // SQL Server's drivers set ANSI_NULL_DFLT_ON: a column may be NULL unless it says otherwise.
        nullable: spec.nullable.unwrap_or(true) && spec.identity.is_none(),
        identity: spec.identity,
        default: spec.default.clone(),
        computed: spec.computed.clone(),
    })
}

/// A value as keys compare it: texts without case and trailing blanks.
fn key_part(value: &Value) -> String {
    match value {
        Value::Null => "n".to_owned(),
        Value::Text(text) => format!("t{}", text.trim_end_matches(' ').to_lowercase()),
        Value::Int(n) => format!("d{n}"),
        Value::Decimal(n) => match n.whole() {
            Some(whole) => format!("d{whole}"),
            None => format!("d{}", n.to_string().trim_end_matches('0')),
        },
        other => format!("v{other}"),
    }
}

fn key_of(key: &TableKey, row: &TableRow) -> String {
    let parts: Vec<_> = key.columns.iter().map(|i| key_part(&row[*i])).collect();
    parts.join("\0")
}

/// The key of some of a row's values; `None`: one is NULL.
pub fn values_key(row: &TableRow, places: &[usize]) -> Option<String> {
    let is_whole = places.iter().all(|i| !row[*i].is_null());
    let parts: Vec<_> = places.iter().map(|i| key_part(&row[*i])).collect();
    is_whole.then(|| parts.join("\0"))
}

/// The memory of a row.
pub fn row_bytes(row: &TableRow) -> usize {
    let fixed = size_of::<TableRow>() + size_of_val(row.as_slice());
    fixed + row.iter().map(bytes).sum::<usize>()
}

/// A change of rows: those that go, and those with new values, by number.
#[derive(Debug, Default)]
pub struct Change {
    pub removed: Vec<i64>,
    pub put: Vec<(i64, TableRow)>,
}

impl Change {
    /// The change that takes another one back: `before` are its rows, `None` for those that were not there.
    pub fn back_to(before: Vec<(i64, Option<TableRow>)>) -> Change {
        let mut change = Change::default();
        for (number, row) in before {
            match row {
                Some(row) => change.put.push((number, row)),
                None => change.removed.push(number),
            }
        }
        change
    }
}

/// A table's rows.
#[derive(Debug, Default)]
pub struct TableRows {
    rows: BTreeMap<i64, TableRow>,
    /// For each key of the table the keys of its rows.
    keys: Vec<BTreeSet<String>>,
    pub last_row: i64,
    pub last_identity: Option<i64>,
    bytes: usize,
}

impl TableRows {
    /// Rows as they were kept, which no constraint refuses.
    pub fn of(shape: &TableShape, rows: BTreeMap<i64, TableRow>) -> TableRows {
        let keys = shape.keys.iter();
        let keys = keys.map(|key| rows.values().map(|row| key_of(key, row)).collect());
        TableRows {
            keys: keys.collect(),
            last_row: rows.keys().next_back().copied().unwrap_or(0),
            last_identity: None,
            bytes: rows.values().map(row_bytes).sum(),
            rows,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (i64, &TableRow)> {
        self.rows.iter().map(|(number, row)| (*number, row))
    }

    pub fn get(&self, number: i64) -> Option<&TableRow> {
        self.rows.get(&number)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a change and returns what its rows were before; `None`: there was no such row.
    ///
    /// Errors: 2601, 2627; nothing is changed.
    pub fn apply(
        &mut self,
        shape: &TableShape,
        change: Change,
        table: &str,
    ) -> Result<Vec<(i64, Option<TableRow>)>, Message> {
        let numbers = change.put.iter().map(|(number, _)| number);
        let gone: Vec<i64> = change.removed.iter().chain(numbers).copied().collect();
        self.keys.resize_with(shape.keys.len(), BTreeSet::new);
        let mut out = Vec::new();
        for (i, key) in shape.keys.iter().enumerate() {
            let before = gone.iter().filter_map(|number| self.rows.get(number));
            let before: Vec<_> = before.map(|row| key_of(key, row)).collect();
            for old in &before {
                self.keys[i].remove(old);
            }
            let mut added = Vec::new();
            for (_, row) in &change.put {
                let new = key_of(key, row);
                if !self.keys[i].insert(new.clone()) {
                    let refused = duplicate(key, row, table);
                    out.push((i, before, added));
                    self.take_back(out);
                    return Err(refused);
                }
                added.push(new);
            }
            out.push((i, before, added));
        }
        let mut undone = Vec::with_capacity(gone.len());
        for number in change.removed {
            let before = self.rows.remove(&number);
            self.bytes -= before.as_ref().map_or(0, row_bytes);
            undone.push((number, before));
        }
        for (number, row) in change.put {
            self.last_row = self.last_row.max(number);
            self.bytes += row_bytes(&row);
            let before = self.rows.insert(number, row);
            self.bytes -= before.as_ref().map_or(0, row_bytes);
            undone.push((number, before));
        }
        Ok(undone)
    }

    /// Leaves out of the rows that are to be what they were (`None`: not there) those whose key then is another row's now.
    pub fn leave_out_taken(&self, shape: &TableShape, own: &mut BTreeMap<i64, Option<TableRow>>) {
        let others = self
            .rows
            .iter()
            .filter(|(number, _)| !own.contains_key(number));
        let mut taken = Vec::new();
        for key in &shape.keys {
            let keys = others.clone().map(|(_, row)| key_of(key, row));
            taken.push(keys.collect::<BTreeSet<_>>());
        }
        let mut wanted = vec![BTreeMap::new(); shape.keys.len()];
        let mut left_out = Vec::new();
        for (number, row) in own.iter() {
            let keys = row
                .iter()
                .flat_map(|row| shape.keys.iter().map(|key| key_of(key, row)));
            for (i, key) in keys.enumerate() {
                // A row that another session has changed meanwhile may want the key of another one.
                let is_taken = taken[i].contains(&key) || wanted[i].contains_key(&key);
                match is_taken {
                    true => left_out.push(*number),
                    false => drop(wanted[i].insert(key, *number)),
                }
            }
        }
        while let Some(number) = left_out.pop() {
            let (Some(_), Some(now)) = (own.remove(&number), self.rows.get(&number)) else {
                continue;
            };
            // It keeps its present key, which another one may have had.
            let keys = shape.keys.iter().map(|key| key_of(key, now));
            left_out.extend(keys.enumerate().filter_map(|(i, key)| wanted[i].get(&key)));
        }
    }

    /// The keys as they were before a change that was refused.
    fn take_back(&mut self, changed: Vec<(usize, Vec<String>, Vec<String>)>) {
        for (i, before, added) in changed {
            for new in &added {
                self.keys[i].remove(new);
            }
            self.keys[i].extend(before);
        }
    }
}

/// 2601 or 2627.
fn duplicate(key: &TableKey, row: &TableRow, table: &str) -> Message {
    let text = |value: &Value| match value {
        Value::Null => "<NULL>".to_owned(),
        value => value.to_string(),
    };
    let values: Vec<_> = key.columns.iter().map(|i| text(&row[*i])).collect();
    let values = format!("({})", values.join(", "));
    let word = match key.kind {
        KeyKind::Index => return message::INDEX_DUPLICATE.with(&[&table, &key.name, &values]),
        KeyKind::Primary => "PRIMARY KEY",
        KeyKind::Unique => "UNIQUE KEY",
    };
    message::KEY_DUPLICATE.with(&[&word, &key.name, &table, &values])
}

fn changes_bytes(changes: &Changes) -> usize {
    changes
        .values()
        .map(|former| changed_bytes(former.row.as_ref()))
        .sum()
}

fn changed_bytes(row: Option<&TableRow>) -> usize {
    CHANGED_BYTES + row.map_or(0, row_bytes)
}

/// A table as statements name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableId {
    /// A table variable.
    Variable(u32),
    Temporary(u32),
    /// It outlives the session.
    Stored(i64),
}

/// A table of a session.
#[derive(Debug)]
pub struct SessionTable {
    /// As it was written.
    pub name: String,
    pub shape: Arc<TableShape>,
    pub rows: TableRows,
}

/// The tables of one batch.
#[derive(Debug, Default)]
struct Frame {
    variables: BTreeMap<String, u32>,
    temporary: BTreeMap<String, u32>,
}

/// The most temporary procedures of a session, and the most bytes of their texts.
const PROCEDURES_MAX: usize = 100;
const PROCEDURE_BYTES_MAX: usize = 1 << 20;

/// Numbers of temporary procedures are below this one, and those of temporary tables above.
const PROCEDURE_IDS: i64 = -(1 << 33);

/// The tables of a session.
#[derive(Debug, Default)]
pub struct SessionTables {
    all: BTreeMap<u32, SessionTable>,
    next: u32,
    /// The first one's temporary tables live as long as the session.
    frames: Vec<Frame>,
    bytes: usize,
    claim: Claim,
    /// What rows were before the open transaction changed them; `None`: they were not there.
    undo: Changes,
    undo_bytes: usize,
    /// The savepoints of the open transaction, each with what rows were when it was set.
    saved: Vec<(String, Changes)>,
    /// Temporary procedures by their names in lower case; they live as long as the session.
    procedures: BTreeMap<String, CatalogObject>,
    next_procedure: i64,
}

impl SessionTables {
    /// `claim`: a claim on the memory of all sessions.
    pub fn new(claim: Claim) -> SessionTables {
        SessionTables {
            frames: vec![Frame::default()],
            claim,
            ..SessionTables::default()
        }
    }

    /// A batch begins.
    pub fn begin(&mut self) {
        self.frames.push(Frame::default());
    }

    /// A batch ends. The outermost one leaves its temporary tables to the session.
    pub fn end(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        for id in frame.variables.into_values() {
            self.forget(id);
        }
        let is_outermost = self.frames.len() <= 1;
        match self.frames.first_mut().filter(|_| is_outermost) {
            Some(session) => session.temporary.extend(frame.temporary),
            None => frame.temporary.into_values().for_each(|id| self.forget(id)),
        }
    }

    /// All tables go. The open transaction, if there is one, still knows its changes of tables that stay.
    pub fn clear(&mut self) {
        self.all.clear();
        self.procedures.clear();
        self.frames = vec![Frame::default()];
        let saved = self.saved.iter_mut().map(|(_, changes)| changes);
        self.undo_bytes = 0;
        for changes in saved.chain([&mut self.undo]) {
            changes.retain(|(table, _), _| matches!(table, TableId::Stored(_)));
            self.undo_bytes += changes_bytes(changes);
        }
        self.bytes = 0;
        // Shrinking always succeeds.
        let _fits = self.claim.resize(self.held());
    }

    pub fn variable(&self, name: &str) -> Option<u32> {
        let frame = self.frames.last()?;
        frame.variables.get(&name.to_lowercase()).copied()
    }

    /// A temporary procedure.
    pub fn procedure(&self, name: &str) -> Option<&CatalogObject> {
        self.procedures
            .get(&name.trim_end_matches(' ').to_lowercase())
    }

    /// Keeps a temporary procedure, in place of one of its name. Errors: too many of them, or too long ones.
    pub fn keep_procedure(&mut self, mut object: CatalogObject) -> Result<(), Message> {
        let name = object.name.trim_end_matches(' ').to_lowercase();
        let others = self.procedures.iter().filter(|(known, _)| **known != name);
        let bytes: usize = others.map(|(_, other)| other.definition.len()).sum();
        let is_new = !self.procedures.contains_key(&name);
        if is_new && self.procedures.len() >= PROCEDURES_MAX
            || bytes + object.definition.len() > PROCEDURE_BYTES_MAX
        {
            let text = format!(
                "a session has at most {PROCEDURES_MAX} temporary procedures, of up to {} KiB together",
                PROCEDURE_BYTES_MAX >> 10
            );
            return Err(message::OWN.with(&[&text]));
        }
        // No object that stays has such a number.
        self.next_procedure += 1;
        object.id = PROCEDURE_IDS - self.next_procedure;
        self.procedures.insert(name, object);
        Ok(())
    }

    /// False: there was none of this name.
    pub fn drop_procedure(&mut self, name: &str) -> bool {
        let name = name.trim_end_matches(' ').to_lowercase();
        self.procedures.remove(&name).is_some()
    }

    pub fn temporary(&self, name: &str) -> Option<u32> {
        let name = name.trim_end_matches(' ').to_lowercase();
        let mut frames = self.frames.iter().rev();
        frames.find_map(|frame| frame.temporary.get(&name).copied())
    }

    /// All that have a name now, by their numbers.
    pub fn all_temporary(&self) -> impl Iterator<Item = (u32, &SessionTable)> {
        let named = self
            .all
            .values()
            .filter_map(|table| self.temporary(&table.name));
        let mut ids: Vec<u32> = named.collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter()
            .filter_map(|id| Some((id, self.all.get(&id)?)))
    }

    pub fn get(&self, id: u32) -> Option<&SessionTable> {
        self.all.get(&id)
    }

    fn make(&mut self, name: &str, shape: TableShape) -> Result<u32, Message> {
        if self.all.len() >= TABLES_MAX {
            let text = format!("a session has at most {TABLES_MAX} tables");
            return Err(message::OWN.with(&[&text]));
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let table = SessionTable {
            name: name.to_owned(),
            rows: TableRows::of(&shape, BTreeMap::new()),
            shape: Arc::new(shape),
        };
        self.all.insert(id, table);
        Ok(id)
    }

    /// Declares a table variable of the running batch.
    pub fn declare(&mut self, name: &str, shape: TableShape) -> Result<(), Message> {
        if let Some(old) = self.variable(name) {
            self.forget(old);
        }
        let id = self.make(name, shape)?;
        if let Some(frame) = self.frames.last_mut() {
            frame.variables.insert(name.to_lowercase(), id);
        }
        Ok(())
    }

    /// Errors: 2714.
    pub fn create(&mut self, name: &str, shape: TableShape) -> Result<u32, Message> {
        let key = name.trim_end_matches(' ').to_lowercase();
        // The outermost batch sees the session's.
        let first = match self.frames.len() {
            0..=2 => 0,
            n => n - 1,
        };
        let known = self.frames[first..].iter();
        if known.into_iter().any(|f| f.temporary.contains_key(&key)) {
            return Err(message::OBJECT_EXISTS.with(&[&name]));
        }
        let id = self.make(name, shape)?;
        if let Some(frame) = self.frames.last_mut() {
            frame.temporary.insert(key, id);
        }
        Ok(id)
    }

    /// Drops a temporary table.
    pub fn drop_temporary(&mut self, id: u32) {
        for frame in &mut self.frames {
            frame.temporary.retain(|_, known| *known != id);
        }
        self.forget(id);
    }

    fn forget(&mut self, id: u32) {
        if let Some(table) = self.all.remove(&id) {
            self.bytes -= table.rows.bytes();
            let _fits = self.claim.resize(self.held());
        }
    }

    fn held(&self) -> usize {
        self.bytes + self.undo_bytes
    }

    /// Changes the shape of a temporary table, and its rows with it.
    pub fn reshape(&mut self, id: u32, shape: TableShape, rows: TableRows) -> Result<(), Message> {
        let Some(table) = self.all.get_mut(&id) else {
            return Ok(());
        };
        let bytes = self.bytes - table.rows.bytes() + rows.bytes();
        if bytes + self.undo_bytes > VALUES_MAX {
            return Err(too_much());
        }
        self.claim.resize(bytes + self.undo_bytes)?;
        self.bytes = bytes;
        table.shape = Arc::new(shape);
        table.rows = rows;
        Ok(())
    }

    /// Changes rows and returns what they were before. Errors: those of [`TableRows::apply`]; 701; too many bytes.
    pub fn apply(
        &mut self,
        id: u32,
        change: Change,
    ) -> Result<Vec<(i64, Option<TableRow>)>, Message> {
        let more: usize = change.put.iter().map(|(_, row)| row_bytes(row)).sum();
        if self.held() + more > VALUES_MAX {
            return Err(too_much());
        }
        self.claim.resize(self.held() + more)?;
        let Some(table) = self.all.get_mut(&id) else {
            return Ok(Vec::new());
        };
        let before = table.rows.bytes();
        let shape = table.shape.clone();
        let name = match table.name.starts_with('#') {
            true => format!("dbo.{}", table.name),
            false => table.name.clone(),
        };
        let applied = table.rows.apply(&shape, change, &name);
        self.bytes = self.bytes - before + table.rows.bytes();
        let _fits = self.claim.resize(self.held());
        applied
    }

    pub fn number(&mut self, id: u32, last_identity: Option<i64>) {
        if let Some(table) = self.all.get_mut(&id) {
            table.rows.last_identity = last_identity;
        }
    }

    /// Keeps what rows were before the open transaction changed them, and returns the numbers of those that it did not know.
    ///
    /// Errors: too many of them; none of these is kept then.
    pub fn remember(
        &mut self,
        table: TableId,
        before: Vec<(i64, Option<TableRow>)>,
    ) -> Result<Vec<i64>, Message> {
        let changes = self.saved.last_mut().map_or(&mut self.undo, |(_, c)| c);
        let mut new = Vec::new();
        for (number, row) in before {
            if changes.contains_key(&(table, number)) {
                continue;
            }
            let bytes = changed_bytes(row.as_ref());
            if self.bytes + self.undo_bytes + bytes > VALUES_MAX {
                self.forget_rows(table, &new);
                return Err(too_much());
            }
            self.undo_bytes += bytes;
            let is_others = false;
            changes.insert((table, number), FormerRow { row, is_others });
            new.push(number);
        }
        if let Err(refused) = self.claim.resize(self.held()) {
            self.forget_rows(table, &new);
            return Err(refused);
        }
        Ok(new)
    }

    /// Takes back what [`SessionTables::remember`] kept last: the rows were not changed after all.
    pub fn forget_rows(&mut self, table: TableId, new: &[i64]) {
        let changes = self.saved.last_mut().map_or(&mut self.undo, |(_, c)| c);
        for number in new {
            if let Some(former) = changes.remove(&(table, *number)) {
                self.undo_bytes -= changed_bytes(former.row.as_ref());
            }
        }
        // Shrinking always succeeds.
        let _fits = self.claim.resize(self.held());
    }

    /// Whether the open transaction keeps what a row was.
    pub fn has_former(&self, table: TableId, number: i64) -> bool {
        let saved = self.saved.iter().map(|(_, changes)| changes);
        let mut all = saved.chain([&self.undo]);
        all.any(|changes| changes.contains_key(&(table, number)))
    }

    /// The open transaction brings a row back to this at most: another session has changed it meanwhile.
    pub fn rebase(&mut self, table: TableId, number: i64, row: Option<&TableRow>) {
        let saved = self.saved.iter_mut().map(|(_, changes)| changes);
        for changes in saved.chain([&mut self.undo]) {
            if let Some(former) = changes.get_mut(&(table, number)) {
                self.undo_bytes += changed_bytes(row);
                self.undo_bytes -= changed_bytes(former.row.as_ref());
                former.is_others |= former.row.as_ref() != row;
                former.row = row.cloned();
            }
        }
    }

    /// Sets a savepoint. Errors: too many of them.
    pub fn save(&mut self, name: &str) -> Result<(), Message> {
        if self.saved.len() >= SAVEPOINTS_MAX {
            let text = format!("a transaction has at most {SAVEPOINTS_MAX} savepoints here");
            return Err(message::OWN.with(&[&text]));
        }
        self.saved.push((name.to_owned(), Changes::new()));
        Ok(())
    }

    /// The place of the last savepoint of this name.
    pub fn savepoint(&self, name: &str) -> Option<usize> {
        self.saved.iter().rposition(|(known, _)| known == name)
    }

    /// The rows as they were at a savepoint, or before the open transaction, and their bytes, which do not count while they are
    /// put back.
    pub fn changes_since(&mut self, savepoint: Option<usize>) -> (Changes, usize) {
        let levels = self.saved[savepoint.unwrap_or(0)..].iter();
        let levels = levels.map(|(_, changes)| changes).rev();
        let first = savepoint.is_none().then_some(&self.undo);
        let mut all = Changes::new();
        let mut bytes = 0;
        for changes in levels.chain(first) {
            bytes += changes_bytes(changes);
            // The oldest state of a row counts.
            all.extend(
                changes
                    .iter()
                    .map(|(place, former)| (*place, former.clone())),
            );
        }
        self.undo_bytes = self.undo_bytes.saturating_sub(bytes);
        (all, bytes)
    }

    /// The bytes of changes count again: their rows could not be put back.
    pub fn keep_changes(&mut self, bytes: usize) {
        self.undo_bytes += bytes;
        let _fits = self.claim.resize(self.held());
    }

    /// The rows are what they were at a savepoint, which stays; later ones are gone.
    pub fn forget_changes_since(&mut self, savepoint: usize) {
        self.saved.truncate(savepoint + 1);
        if let Some((_, changes)) = self.saved.last_mut() {
            changes.clear();
        }
        let _fits = self.claim.resize(self.held());
    }

    /// The transaction is over.
    pub fn forget_changes(&mut self) {
        self.undo.clear();
        self.saved.clear();
        self.undo_bytes = 0;
        let _fits = self.claim.resize(self.held());
    }
}
