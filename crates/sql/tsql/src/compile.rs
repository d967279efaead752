//! Finds mistakes of names and types in the statements of a batch before any of it runs.
//!
//! SQL Server compiles a batch before it runs it, and leaves only what names a missing table, view or function for later.
//! Here the queries and the expressions are translated once more, with variables that have no value yet, and nothing is run.
//!
//! Invariants
//! - A statement that names a table which is missing, or which the batch makes or drops, is left for later.
//! - A mistake that another version of this server, or a wider knowledge of SQL Server, might not find counts only in a
//!   statement that is reached for certain: it would have ended the batch there.
//! - What stands at the beginning, before anything has an effect, is not looked at: it says its mistake itself.
//! - A text that is run again and again in one batch is looked through once.
//!
//! Leaves to others: mistakes that need no table (`check.rs`); the bodies of procedures and functions, which say their
//! mistakes when they are reached; MERGE, and expressions that need no SQLite.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::message::Message;
use crate::query::{self, Compiling, QuerySource, View};
use crate::relations::{Relation, relations};
use crate::server::is_shared;
use crate::session::Session;
use crate::statement;
use crate::syntax::{Fragment, LocatedStatement, ObjectKind, Statement};

/// Numbers of mistakes that a statement has wherever it stands: of names, numbers of items and places of words.
const ANYWHERE: [u32; 24] = [
    107, 108, 109, 110, 116, 120, 121, 130, 141, 144, 145, 147, 155, 164, 205, 207, 209, 213, 264,
    1013, 4104, 8120, 8121, 8127,
];

/// Those of functions and types, of which SQL Server may know more than this server.
const REACHED: [u32; 11] = [174, 189, 195, 206, 402, 447, 451, 457, 468, 8116, 8117];

/// The most nested texts of a batch that are remembered.
const TEXTS_MAX: usize = 1000;

/// Functions of rows that stand without a schema.
const OF_ROWS: [&str; 4] = ["generate_series", "nodes", "openjson", "string_split"];

/// Looks through a batch. `nested`: the text of a batch inside of another one, which may come again.
///
/// Errors: the first mistake, with its line.
pub(crate) fn look_through(
    session: &mut Session,
    batch: &[LocatedStatement],
    nested: Option<&str>,
) -> Result<(), Message> {
    // Alone it says its mistake itself.
    let is_alone = matches!(batch, [only] if !has_others(&only.statement));
    if is_alone || batch.is_empty() || !session.held.is_empty() {
        return Ok(());
    }
    let mut hasher = DefaultHasher::new();
    nested.hash(&mut hasher);
    let hash = nested.map(|_| hasher.finish());
    if hash.is_some_and(|hash| session.looked_through.contains(&hash)) {
        return Ok(());
    }
    let mut made = Made::default();
    made.all(batch);
    if made.is_unknown {
        return Ok(());
    }
    let database = session.database.clone();
    let mut pass = Pass {
        session,
        made: made.names,
        has_effect: false,
        is_reached: true,
        is_over: false,
    };
    let found = pass.all(batch);
    session.database = database;
    session.compiling = None;
    found?;
    if let Some(hash) = hash.filter(|_| session.looked_through.len() < TEXTS_MAX) {
        session.looked_through.insert(hash);
    }
    Ok(())
}

/// Whether a statement consists of others.
fn has_others(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::If { .. }
            | Statement::While { .. }
            | Statement::Block(_)
            | Statement::Try { .. }
    )
}

/// The statements directly inside of one. They are in no list: most statements of a batch ask for none.
fn inner(statement: &Statement) -> impl Iterator<Item = &LocatedStatement> {
    type Inside<'a> = (
        Option<&'a LocatedStatement>,
        Option<&'a LocatedStatement>,
        &'a [LocatedStatement],
        &'a [LocatedStatement],
    );
    let (one, other, first, second): Inside = match statement {
        Statement::If {
            then, otherwise, ..
        } => (Some(&**then), otherwise.as_deref(), &[], &[]),
        Statement::While { body, .. } => (Some(&**body), None, &[], &[]),
        Statement::Block(all) => (None, None, all, &[]),
        Statement::Try { body, catch } => (None, None, body, catch),
        _ => (None, None, &[], &[]),
    };
    one.into_iter().chain(other).chain(first).chain(second)
}

/// The tables that a batch makes or drops, by the last parts of their names in lower case.
#[derive(Default)]
struct Made {
    names: BTreeSet<String>,
    /// It may make or drop tables of any name, or runs nothing.
    is_unknown: bool,
}

impl Made {
    fn all(&mut self, all: &[LocatedStatement]) {
        for located in all {
            self.one(&located.statement);
        }
    }

    fn add(&mut self, name: &[String]) {
        self.names
            .extend(name.last().map(|last| last.to_lowercase()));
    }

    fn one(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateTable { name, .. } => self.add(name),
            Statement::DropObjects {
                kind: ObjectKind::Table | ObjectKind::View,
                names,
                ..
            } => names.iter().for_each(|name| self.add(name)),
            Statement::Query(query) if has_word(&query.text, "INTO") => {
                let all = relations(&query.text);
                let into = all.iter().filter(|relation| relation.is_made);
                into.for_each(|relation| self.add(&relation.parts));
            }
            Statement::Execute(call) => {
                let last = call.procedure.last().map_or("", String::as_str);
                self.is_unknown |= last.eq_ignore_ascii_case("sp_rename");
            }
            Statement::SetOption(words) => {
                let holds = ["NOEXEC", "PARSEONLY", "FMTONLY"];
                let is = |w: &String| holds.contains(&w.as_str()) || w.starts_with("SHOWPLAN");
                self.is_unknown |= words.iter().any(is);
            }
            other => inner(other).for_each(|located| self.one(&located.statement)),
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|found| found.eq_ignore_ascii_case(word))
}

/// Whether a statement may keep those behind it from being reached.
fn leaves(statement: &Statement) -> bool {
    match statement {
        Statement::Return
        | Statement::ReturnValue(_)
        | Statement::Goto(_)
        | Statement::Throw(_)
        | Statement::Break
        | Statement::Continue => true,
        other => inner(other).any(|located| leaves(&located.statement)),
    }
}

struct Pass<'a> {
    session: &'a mut Session,
    made: BTreeSet<String>,
    /// Something stands before that has an effect.
    has_effect: bool,
    /// The present statement is reached whatever the values are.
    is_reached: bool,
    /// The database of what follows is not known.
    is_over: bool,
}

impl Pass<'_> {
    fn all(&mut self, all: &[LocatedStatement]) -> Result<(), Message> {
        all.iter().try_for_each(|located| self.one(located))
    }

    fn one(&mut self, located: &LocatedStatement) -> Result<(), Message> {
        // The first statement that runs tells of a cancel.
        if self.is_over || self.session.is_cancelled() {
            return Ok(());
        }
        let statement = &located.statement;
        if self.has_effect {
            self.parts(statement, located.line)?;
        }
        let is_plain = matches!(
            statement,
            Statement::Declare(_)
                | Statement::DeclareTable { .. }
                | Statement::SetOption(_)
                | Statement::Assign { .. }
                | Statement::Block(_)
        );
        self.has_effect |= !is_plain;
        match statement {
            Statement::Block(all) => self.all(all)?,
            Statement::Use(name) => self.use_database(name),
            other => {
                let outer = self.is_reached;
                self.is_reached &= !has_others(other);
                for located in inner(other) {
                    self.one(located)?;
                }
                self.is_reached = outer && !leaves(other);
            }
        }
        Ok(())
    }

    /// USE counts for the statements behind it, as SQL Server compiles them.
    fn use_database(&mut self, name: &str) {
        let names = query::database_names(&self.session.server);
        let known = names.into_iter().find(|n| n.eq_ignore_ascii_case(name));
        match known.filter(|_| self.is_reached) {
            Some(known) => self.session.database = known,
            None => self.is_over = true,
        }
    }

    /// The queries and expressions of a statement itself.
    fn parts(&mut self, statement: &Statement, line: u32) -> Result<(), Message> {
        match statement {
            Statement::Declare(all) => {
                let mut values = all.iter().filter_map(|d| d.value.as_ref());
                values.try_for_each(|value| self.expression(value, line))
            }
            Statement::Assign {
                variable, value, ..
            } if !self.session.cursors.is_variable(variable) => self.expression(value, line),
            Statement::Print(value)
            | Statement::ExecuteText(value)
            | Statement::ReturnValue(value) => self.expression(value, line),
            Statement::If { condition, .. } | Statement::While { condition, .. } => {
                self.weighed(&[condition], None, line, |s| {
                    query::look_through(&s.query_context(), QuerySource::Condition(condition))
                })
            }
            Statement::Query(query) => self.weighed(&[query], None, line, |s| {
                statement::look_through_query(s, query)
            }),
            Statement::DeclareCursor(declared) => self.query(&declared.cursor.query, line),
            Statement::SetCursor { cursor, .. } => self.query(&cursor.query, line),
            Statement::Insert(insert) => {
                for value in statement::values_of(insert) {
                    self.expression(value, line)?;
                }
                let mut texts: Vec<&Fragment> = insert.with.iter().collect();
                texts.extend(statement::query_of(insert));
                self.weighed(&texts, Some(&insert.table), line, |s| {
                    statement::look_through_insert(s, insert, line)
                })
            }
            Statement::Update(update) => {
                let values = update.sets.iter().filter_map(|set| set.value.as_ref());
                let texts = update.with.iter().chain(values).chain(&update.rest);
                let texts: Vec<&Fragment> = texts.collect();
                let target = own_target(&update.table, update.rest.as_ref());
                self.weighed(&texts, target, line, |s| {
                    statement::look_through_update(s, update, line)
                })
            }
            Statement::Delete(delete) => {
                let texts: Vec<&Fragment> = delete.with.iter().chain(&delete.rest).collect();
                let target = own_target(&delete.table, delete.rest.as_ref());
                self.weighed(&texts, target, line, |s| {
                    statement::look_through_delete(s, delete, line)
                })
            }
            _ => Ok(()),
        }
    }

    fn query(&mut self, text: &Fragment, line: u32) -> Result<(), Message> {
        self.weighed(&[text], None, line, |s| {
            query::prepare(&s.query_context(), text).map(drop)
        })
    }

    fn expression(&mut self, value: &Fragment, line: u32) -> Result<(), Message> {
        self.weighed(&[value], None, line, |s| {
            query::look_through(&s.query_context(), QuerySource::Expression(value))
        })
    }

    /// The mistake that a look finds, if it counts. `texts`: those whose tables must be there, with the table that is changed.
    fn weighed(
        &mut self,
        texts: &[&Fragment],
        target: Option<&[String]>,
        line: u32,
        look: impl FnOnce(&mut Session) -> Result<(), Message>,
    ) -> Result<(), Message> {
        let found = Compiling::default();
        self.session.compiling = Some(found);
        let looked = look(self.session);
        let found = self.session.compiling.take().unwrap_or_default();
        let Err(mistake) = looked else {
            return Ok(());
        };
        let counts = match self.is_reached {
            true => {
                let of_types = REACHED.contains(&mistake.number) && !found.is_unsure.get();
                of_types || ANYWHERE.contains(&mistake.number)
            }
            false => ANYWHERE.contains(&mistake.number) && !found.names_own.get(),
        };
        if !counts {
            return Ok(());
        }
        let all = texts.iter().flat_map(|text| relations(&text.text));
        let target = target.map(|parts| Relation {
            parts: parts.to_vec(),
            is_called: false,
            is_made: false,
        });
        for relation in all.chain(target) {
            if !relation.is_made && !self.is_there(&relation) {
                return Ok(());
            }
        }
        Err(mistake.at_line(line))
    }

    /// Whether a table, a view or a function is there before the batch runs, and the batch leaves it there.
    fn is_there(&self, relation: &Relation) -> bool {
        let parts = &relation.parts;
        let last = parts.last().map_or("", String::as_str);
        if last.starts_with('@') && parts.len() == 1 {
            return true;
        }
        if self.made.contains(&last.to_lowercase()) {
            return false;
        }
        if relation.is_called && OF_ROWS.iter().any(|known| last.eq_ignore_ascii_case(known)) {
            return true;
        }
        let session = &*self.session;
        if last.starts_with('#') && !is_shared(last) {
            return session.tables.temporary(last).is_some();
        }
        let is_stored = || {
            session
                .server
                .kept
                .named(parts, &session.database)
                .is_some()
        };
        is_stored() || View::find(parts, &session.database).is_some()
    }
}

/// The table that a change names itself, where no FROM may have it under another name.
fn own_target<'a>(table: &'a [String], rest: Option<&Fragment>) -> Option<&'a [String]> {
    let is_from = |rest: &Fragment| {
        let word = rest.text.split(' ').next().unwrap_or_default();
        word.eq_ignore_ascii_case("FROM")
    };
    (!rest.is_some_and(is_from)).then_some(table)
}
