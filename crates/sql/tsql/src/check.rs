//! Finds mistakes in a batch before any of it runs: undeclared variables, queries that do not parse, BREAK and CONTINUE
//! outside a loop.
//!
//! Invariants
//! - A mistake at the end of a batch keeps the first statement from running, as in SQL Server, which compiles a batch
//!   before it runs it.
//! - The first mistake is reported, with its own line where that is known, else with its statement's.
//! - Nothing is run and nothing is changed.
//!
//! Leaves to others: grammar (`syntax`), running (`run.rs`), and mistakes that depend on data or on earlier statements
//! of the batch.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::TypePlace;
use crate::message::{self, Message};
use crate::query::{self, QuerySource, Reader};
use crate::statement;
use crate::syntax::*;
use crate::variables::lower_case;

/// Errors: the first mistake, with its line. `declared`: variables that already exist, in lower case.
///
/// Returns the declarations of the batch, wherever they stand in it.
pub fn check<'a>(
    batch: &'a Batch,
    declared: impl IntoIterator<Item = String>,
    reader: &Reader,
) -> Result<Vec<Declared<'a>>, Message> {
    let mut check = Check {
        reader,
        declared: declared.into_iter().collect(),
        cursors: BTreeSet::new(),
        tables: BTreeSet::new(),
        declarations: Vec::new(),
        labels: Labels::default(),
        loops: 0,
        catches: 0,
        returns: false,
        is_located: false,
    };
    check.all(&batch.statements)?;
    check.labels.check()?;
    Ok(check.declarations)
}

/// A variable or a table variable, as a batch declares it.
#[derive(Debug, Clone, Copy)]
pub enum Declared<'a> {
    Variable(&'a Declaration),
    Table(&'a str, &'a TableSpec),
}

/// The declarations of statements that were checked before.
pub fn declarations(all: &[LocatedStatement]) -> Vec<Declared<'_>> {
    let mut found = Vec::new();
    let mut rest: Vec<&LocatedStatement> = all.iter().rev().collect();
    while let Some(located) = rest.pop() {
        match &located.statement {
            Statement::Declare(all) => found.extend(all.iter().map(Declared::Variable)),
            Statement::DeclareTable { variable, table } => {
                found.push(Declared::Table(variable, table));
            }
            Statement::If {
                then, otherwise, ..
            } => {
                rest.extend(otherwise.iter().map(|o| &**o));
                rest.push(then);
            }
            Statement::While { body, .. } => rest.push(body),
            Statement::Block(all) => rest.extend(all.iter().rev()),
            Statement::Try { body, catch } => {
                rest.extend(catch.iter().rev());
                rest.extend(body.iter().rev());
            }
            _ => {}
        }
    }
    found
}

/// Whether a declared type is that of a cursor variable.
pub(crate) fn is_cursor(kind: &TypeName) -> bool {
    kind.name == "cursor" && kind.sizes.is_empty()
}

/// The labels of a batch, and the statements that name them.
#[derive(Default)]
struct Labels {
    /// By their name in lower case, with the TRY and CATCH blocks around each.
    known: BTreeMap<String, Vec<u32>>,
    /// With the blocks around each, and its line.
    jumps: Vec<(String, Vec<u32>, u32)>,
    /// The blocks around the current statement; each has a number of its own.
    around: Vec<u32>,
    next: u32,
}

impl Labels {
    /// Errors: 133, 1026.
    fn check(&self) -> Result<(), Message> {
        for (label, around, line) in &self.jumps {
            let wrong = match self.known.get(&label.to_lowercase()) {
                None => message::LABEL_UNKNOWN.with(&[label]),
                Some(of_label) if !around.starts_with(of_label) => message::GOTO_INTO_TRY.plain(),
                Some(_) => continue,
            };
            return Err(wrong.at_line(*line));
        }
        Ok(())
    }

    fn enter(&mut self) {
        self.next += 1;
        self.around.push(self.next);
    }
}

/// Whether a table's name follows this text.
fn is_table(before: &str) -> bool {
    let word = before.trim_end().rsplit(' ').next().unwrap_or_default();
    ["FROM", "JOIN"]
        .iter()
        .any(|w| word.eq_ignore_ascii_case(w))
}

struct Check<'a, 'b> {
    reader: &'b Reader,
    declared: BTreeSet<String>,
    /// The variables of these that are cursors.
    cursors: BTreeSet<String>,
    /// Table variables.
    tables: BTreeSet<String>,
    declarations: Vec<Declared<'a>>,
    labels: Labels,
    /// CATCH blocks around the current statement.
    catches: usize,
    /// WHILE statements around the current one. Loops of an outer batch do not count.
    loops: usize,
    /// Whether RETURN may have a value.
    returns: bool,
    /// Whether the mistake that was found has its line; otherwise its statement's counts.
    is_located: bool,
}

impl<'a> Check<'a, '_> {
    fn all(&mut self, all: &'a [LocatedStatement]) -> Result<(), Message> {
        all.iter().try_for_each(|located| self.one(located))
    }

    fn one(&mut self, located: &'a LocatedStatement) -> Result<(), Message> {
        let checked = self.statement(&located.statement, located.line);
        checked.map_err(|m| self.locate(m, located.line))
    }

    /// The mistake with this line, unless it is known better.
    fn locate(&mut self, mistake: Message, line: u32) -> Message {
        match std::mem::replace(&mut self.is_located, true) {
            true => mistake,
            false => mistake.at_line(line),
        }
    }

    fn statement(&mut self, statement: &'a Statement, line: u32) -> Result<(), Message> {
        match statement {
            Statement::Backup(backup) => self.backup(backup),
            Statement::Restore(restore) => self.restore(restore),
            Statement::Declare(all) => all.iter().try_for_each(|d| self.declare(d)),
            Statement::Assign {
                variable,
                operator,
                value,
            } => {
                if self.cursors.contains(lower_case(variable).as_ref()) {
                    return self.cursor_value(variable, operator, value);
                }
                self.variable(variable)?;
                self.expression(value)
            }
            Statement::Print(value) | Statement::ExecuteText(value) => self.expression(value),
            Statement::Query(query) => self.read(QuerySource::Query(query)),
            Statement::Execute(execute) => {
                let names = execute.code.iter().chain(&execute.name_in);
                names.into_iter().try_for_each(|c| self.variable(c))?;
                let values = execute.arguments.iter().filter_map(|a| a.value.as_ref());
                values.into_iter().try_for_each(|v| self.operand(v))
            }
            Statement::Dbcc(dbcc) => dbcc.arguments.iter().try_for_each(|a| self.operand(a)),
            Statement::If {
                condition,
                then,
                otherwise,
            } => {
                self.read(QuerySource::Condition(condition))?;
                self.one(then)?;
                otherwise.iter().try_for_each(|o| self.one(o))
            }
            Statement::While { condition, body } => {
                self.read(QuerySource::Condition(condition))?;
                self.loops += 1;
                let checked = self.one(body);
                self.loops -= 1;
                checked
            }
            Statement::Break if self.loops == 0 => Err(message::BREAK_OUTSIDE.plain()),
            Statement::Continue if self.loops == 0 => Err(message::CONTINUE_OUTSIDE.plain()),
            Statement::Block(all) => self.all(all),
            Statement::Try { body, catch } => {
                self.labels.enter();
                self.all(body)?;
                self.labels.around.pop();
                self.labels.enter();
                self.catches += 1;
                self.all(catch)?;
                self.catches -= 1;
                self.labels.around.pop();
                Ok(())
            }
            Statement::NamedTransaction(_, name) => self.name(name),
            Statement::SetOption(words) => {
                let mut named = words.iter().filter(|word| word.starts_with('@'));
                named.try_for_each(|name| self.variable(name))
            }
            Statement::HardwareOffload(_)
            | Statement::Reconfigure { .. }
            | Statement::Use(_)
            | Statement::Refused { .. }
            | Statement::Kill { .. }
            | Statement::AlterAccess { .. }
            | Statement::DropDatabase { .. }
            | Statement::Transaction(_)
            | Statement::Break
            | Statement::Continue
            | Statement::Return => Ok(()),
            procedural => self.procedural(procedural, line),
        }
    }

    /// The same for labels, messages of the script's own, waits and cursors.
    fn procedural(&mut self, statement: &'a Statement, line: u32) -> Result<(), Message> {
        match statement {
            Statement::Goto(label) => {
                let around = self.labels.around.clone();
                self.labels.jumps.push((label.clone(), around, line));
                Ok(())
            }
            Statement::Label(label) => {
                let around = self.labels.around.clone();
                match self.labels.known.insert(label.to_lowercase(), around) {
                    None => Ok(()),
                    Some(_) => Err(message::LABEL_TWICE.with(&[label])),
                }
            }
            Statement::ReturnValue(_) if !self.returns => Err(message::RETURN_VALUE.plain()),
            Statement::ReturnValue(value) => self.expression(value),
            Statement::Raise(raise) => {
                let first = [&raise.message, &raise.severity, &raise.state];
                let mut all = first.into_iter().chain(&raise.arguments);
                all.try_for_each(|operand| self.operand(operand))
            }
            Statement::Throw(None) if self.catches == 0 => Err(message::RETHROW_OUTSIDE.plain()),
            Statement::Throw(throw) => throw.iter().try_for_each(|throw| {
                let all = [&throw.number, &throw.message, &throw.state];
                all.into_iter().try_for_each(|o| self.operand(o))
            }),
            Statement::Wait { time, .. } => self.operand(time),
            Statement::DeclareCursor(declared) => {
                self.read(QuerySource::Query(&declared.cursor.query))
            }
            Statement::SetCursor { variable, cursor } => {
                self.cursor_variable(variable)?;
                self.read(QuerySource::Query(&cursor.query))
            }
            Statement::OpenCursor(name)
            | Statement::CloseCursor(name)
            | Statement::DeallocateCursor(name) => self.cursor(name),
            Statement::Fetch(fetch) => {
                self.cursor(&fetch.cursor)?;
                if let FetchRow::Absolute(row) | FetchRow::Relative(row) = &fetch.which {
                    self.operand(row)?;
                }
                fetch.into.iter().try_for_each(|name| self.variable(name))
            }
            data => self.data(data),
        }
    }

    /// The same for tables, changes of rows and procedures.
    fn data(&mut self, statement: &'a Statement) -> Result<(), Message> {
        match statement {
            Statement::DeclareTable { variable, table } => {
                let name = variable.to_lowercase();
                if self.declared.contains(&name) || !self.tables.insert(name) {
                    return Err(message::DECLARED_TWICE.with(&[variable]));
                }
                self.declarations.push(Declared::Table(variable, table));
                self.defaults(table)
            }
            Statement::CreateTable { table, .. } => self.defaults(table),
            Statement::AlterTable {
                change: TableChange::Add(table),
                ..
            } => self.defaults(table),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => {
                self.target(&update.table)?;
                for set in &update.sets {
                    set.variable.iter().try_for_each(|v| self.variable(v))?;
                    set.value.iter().try_for_each(|v| self.named(v))?;
                }
                let top = update.top.as_ref().map(|top| &top.count);
                let rest = [update.with.as_ref(), top, update.rest.as_ref()];
                rest.into_iter().flatten().try_for_each(|f| self.named(f))
            }
            Statement::Delete(delete) => {
                self.target(&delete.table)?;
                let top = delete.top.as_ref().map(|top| &top.count);
                let rest = [delete.with.as_ref(), top, delete.rest.as_ref()];
                rest.into_iter().flatten().try_for_each(|f| self.named(f))
            }
            Statement::Merge(merge) => {
                self.target(&merge.table)?;
                let top = merge.top.iter().map(|top| &top.count);
                let parts = merge.with.iter().chain(top);
                let parts = parts.chain([&merge.source, &merge.on]);
                parts.into_iter().try_for_each(|part| self.named(part))?;
                for clause in &merge.clauses {
                    clause.condition.iter().try_for_each(|c| self.named(c))?;
                    match &clause.action {
                        MergeAction::Update(sets) => {
                            let mut values = sets.iter().filter_map(|s| s.value.as_ref());
                            values.try_for_each(|v| self.named(v))?;
                        }
                        MergeAction::Insert { values, .. } => {
                            let mut values = values.iter().flatten();
                            values.try_for_each(|v| self.named(v))?;
                        }
                        MergeAction::Delete | MergeAction::InsertDefaults => {}
                    }
                }
                Ok(())
            }
            Statement::Routine(routine) => {
                let mut declared = BTreeSet::new();
                for (parameter, number) in routine.parameters.iter().zip(1..) {
                    let place = TypePlace::Variable(&parameter.name, number);
                    statement::type_of(&parameter.kind, place)?;
                    if !declared.insert(parameter.name.to_lowercase()) {
                        return Err(message::DECLARED_TWICE.with(&[&parameter.name]));
                    }
                }
                let rows = match &routine.kind {
                    RoutineKind::Rows { variable, .. } => Some(variable.to_lowercase()),
                    _ => None,
                };
                let mut inner = Check {
                    reader: self.reader,
                    declared,
                    cursors: BTreeSet::new(),
                    tables: rows.into_iter().collect(),
                    declarations: Vec::new(),
                    labels: Labels::default(),
                    loops: 0,
                    catches: 0,
                    returns: true,
                    is_located: false,
                };
                let checked = match &routine.kind {
                    RoutineKind::View { query, .. } | RoutineKind::Inline(query) => {
                        inner.read(QuerySource::Query(query))
                    }
                    _ => inner.all(&routine.body).and_then(|()| inner.labels.check()),
                };
                checked.inspect_err(|_| self.is_located = true)
            }
            _ => Ok(()),
        }
    }

    fn defaults(&mut self, table: &'a TableSpec) -> Result<(), Message> {
        let computed = table.columns.iter().filter_map(|c| c.computed.as_ref());
        let mut defaults = table
            .columns
            .iter()
            .filter_map(|c| c.default.as_ref())
            .chain(computed);
        defaults.try_for_each(|default| self.expression(default))?;
        table.constraints.iter().try_for_each(|c| match &c.kind {
            ConstraintKind::Check(condition) => self.read(QuerySource::Condition(condition)),
            _ => Ok(()),
        })
    }

    fn insert(&mut self, insert: &'a Insert) -> Result<(), Message> {
        self.target(&insert.table)?;
        insert.with.iter().try_for_each(|with| self.named(with))?;
        match &insert.source {
            InsertSource::Values(rows) => {
                let mut values = rows.iter().flatten().flatten();
                values.try_for_each(|value| self.expression(value))
            }
            InsertSource::Query(query) if insert.with.is_some() => self.named(query),
            InsertSource::Query(query) => self.read(QuerySource::Query(query)),
            InsertSource::Execute(executed) => self.one(executed),
            InsertSource::DefaultValues => Ok(()),
        }
    }

    /// A table that is changed. Errors: 1087.
    fn target(&self, name: &[String]) -> Result<(), Message> {
        match name {
            [name] if name.starts_with('@') && !self.tables.contains(lower_case(name).as_ref()) => {
                Err(message::TABLE_NOT_DECLARED.with(&[name]))
            }
            _ => Ok(()),
        }
    }

    /// The variables that a part of a statement names.
    fn named(&mut self, part: &Fragment) -> Result<(), Message> {
        let found = variables(&part.text, |name, at| {
            let declared = self.any_variable(name);
            declared.map_err(|m| m.at_line(part.line_at(at)))
        });
        found.inspect_err(|_| self.is_located = true)
    }

    /// A variable of any kind.
    fn any_variable(&self, name: &str) -> Result<(), Message> {
        match self.tables.contains(lower_case(name).as_ref()) {
            true => Ok(()),
            false => self.variable(name),
        }
    }

    fn backup(&mut self, backup: &Backup) -> Result<(), Message> {
        match &backup.what {
            BackupWhat::Database { name, parts } => {
                self.name(name)?;
                self.parts(parts)?;
            }
            BackupWhat::Log { name } => self.name(name)?,
            BackupWhat::Group(_) | BackupWhat::Server => {}
        }
        let devices = backup.to.iter().chain(backup.mirrors.iter().flatten());
        devices.into_iter().try_for_each(|d| self.device(d))?;
        self.settings(&backup.options)
    }

    fn restore(&mut self, restore: &Restore) -> Result<(), Message> {
        match &restore.what {
            RestoreWhat::Database { name, parts } | RestoreWhat::Log { name, parts } => {
                self.name(name)?;
                self.parts(parts)?;
            }
            RestoreWhat::Snapshot { name, snapshot } => {
                self.name(name)?;
                self.operand(snapshot)?;
            }
            RestoreWhat::HeaderOnly
            | RestoreWhat::FileListOnly
            | RestoreWhat::LabelOnly
            | RestoreWhat::VerifyOnly
            | RestoreWhat::RewindOnly => {}
        }
        restore.from.iter().try_for_each(|d| self.device(d))?;
        self.settings(&restore.options)
    }

    /// `SET @c = @d`, `SET @c = name`: a cursor variable takes a cursor and nothing else.
    fn cursor_value(
        &self,
        variable: &str,
        operator: &str,
        value: &Fragment,
    ) -> Result<(), Message> {
        let names_cursor = match single(&value.text) {
            Some(Operand::Variable(other)) => {
                return self.cursor_variable(&other);
            }
            Some(_) => false,
            None => tokens(&value.text)?.len() == 1,
        };
        match names_cursor && operator.is_empty() {
            true => Ok(()),
            false => Err(message::IS_A_CURSOR.with(&[&variable])),
        }
    }

    fn cursor(&self, name: &CursorName) -> Result<(), Message> {
        match name {
            CursorName::Variable(name) => self.cursor_variable(name),
            CursorName::Named { .. } => Ok(()),
        }
    }

    /// Errors: 137, 16948.
    fn cursor_variable(&self, name: &str) -> Result<(), Message> {
        if self.cursors.contains(lower_case(name).as_ref()) {
            return Ok(());
        }
        self.variable(name)?;
        Err(message::NOT_A_CURSOR.with(&[&name]))
    }

    fn declare(&mut self, declaration: &'a Declaration) -> Result<(), Message> {
        let is_cursor = is_cursor(&declaration.kind);
        match (is_cursor, &declaration.value) {
            (true, Some(_)) => return Err(message::IS_A_CURSOR.with(&[&declaration.variable])),
            (true, None) => {}
            (false, _) => {
                let number = self.declared.len() + 1;
                let place = TypePlace::Variable(&declaration.variable, number);
                statement::type_of(&declaration.kind, place)?;
            }
        }
        self.declarations.push(Declared::Variable(declaration));
        if let Some(value) = &declaration.value {
            self.expression(value)?;
        }
        let variable = &declaration.variable;
        if is_cursor {
            self.cursors.insert(variable.to_lowercase());
        }
        match self.declared.insert(variable.to_lowercase()) {
            true => Ok(()),
            false => Err(message::DECLARED_TWICE.with(&[variable])),
        }
    }

    fn variable(&self, name: &str) -> Result<(), Message> {
        if !self.cursors.is_empty() && self.cursors.contains(lower_case(name).as_ref()) {
            return Err(message::IS_A_CURSOR.with(&[&name]));
        }
        match name.starts_with("@@") || self.declared.contains(lower_case(name).as_ref()) {
            true => Ok(()),
            false => Err(message::NOT_DECLARED.with(&[&name])),
        }
    }

    fn operand(&self, operand: &Operand) -> Result<(), Message> {
        match operand {
            Operand::Variable(name) => self.variable(name),
            Operand::Integer(_) | Operand::Number(_) | Operand::Text(_) | Operand::Null => Ok(()),
        }
    }

    fn name(&self, name: &Name) -> Result<(), Message> {
        match name {
            Name::Variable(name) => self.variable(name),
            Name::Literal(_) => Ok(()),
        }
    }

    fn device(&self, device: &Device) -> Result<(), Message> {
        match device {
            Device::Logical(name) => self.name(name),
            Device::Physical { name, .. } => self.operand(name),
        }
    }

    fn parts(&self, parts: &[Part]) -> Result<(), Message> {
        parts.iter().try_for_each(|part| match part {
            Part::File(all) | Part::FileGroup(all) => all.iter().try_for_each(|o| self.operand(o)),
            Part::Page(page) => self.operand(page),
            Part::ReadWriteFileGroups => Ok(()),
        })
    }

    fn settings(&self, settings: &[Setting]) -> Result<(), Message> {
        settings.iter().try_for_each(|s| match &s.value {
            SettingValue::Operand(operand) => self.operand(operand),
            SettingValue::Move { from, to } => {
                self.operand(from)?;
                self.operand(to)
            }
            SettingValue::Mark { mark, after } => {
                self.operand(mark)?;
                after.iter().try_for_each(|a| self.operand(a))
            }
            SettingValue::None
            | SettingValue::Compression(_)
            | SettingValue::Encryption { .. }
            | SettingValue::DirectoryName(_) => Ok(()),
        })
    }

    fn expression(&mut self, fragment: &Fragment) -> Result<(), Message> {
        if let Some(operand) = single(&fragment.text) {
            let checked = self.operand(&operand);
            return checked.map_err(|m| self.locate(m, fragment.line_at(0)));
        }
        self.read(QuerySource::Expression(fragment))
    }

    fn read(&mut self, asked: QuerySource) -> Result<(), Message> {
        let named = variables(asked.written(), |name, at| {
            // `FROM @x.nodes(…)`: rows of a value.
            let after = asked.written()[at + name.len()..].trim_start();
            let is_value = after.starts_with('.');
            let declared = match is_table(&asked.written()[..at]) && !is_value {
                true => self.target(std::slice::from_ref(&name.to_owned())),
                false => self.any_variable(name),
            };
            declared.map_err(|m| m.at_line(asked.line_at(at)))
        });
        let checked = named.and_then(|()| match query::check(self.reader, asked) {
            // It is refused when it is reached: SQL Server runs what stands before it.
            Err(refused) if refused.number == message::NOT_HERE.number => Ok(()),
            checked => checked,
        });
        // Both know the line.
        checked.inspect_err(|_| self.is_located = true)
    }
}
