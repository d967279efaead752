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

use std::collections::BTreeSet;

use crate::message::{self, Message};
use crate::query::{self, QuerySource, Reader};
use crate::statement;
use crate::syntax::*;
use crate::variables::lower_case;

/// Errors: the first mistake, with its line. `declared`: variables that already exist, in lower case.
pub fn check(
    batch: &Batch,
    declared: impl IntoIterator<Item = String>,
    reader: &Reader,
) -> Result<(), Message> {
    let mut check = Check {
        reader,
        declared: declared.into_iter().collect(),
        loops: 0,
        is_located: false,
    };
    check.all(&batch.statements)
}

struct Check<'a> {
    reader: &'a Reader,
    declared: BTreeSet<String>,
    /// WHILE statements around the current one. Loops of an outer batch do not count.
    loops: usize,
    /// Whether the mistake that was found has its line; otherwise its statement's counts.
    is_located: bool,
}

impl Check<'_> {
    fn all(&mut self, all: &[LocatedStatement]) -> Result<(), Message> {
        all.iter().try_for_each(|located| self.one(located))
    }

    fn one(&mut self, located: &LocatedStatement) -> Result<(), Message> {
        let checked = self.statement(&located.statement);
        checked.map_err(|m| self.locate(m, located.line))
    }

    /// The mistake with this line, unless it is known better.
    fn locate(&mut self, mistake: Message, line: u32) -> Message {
        match std::mem::replace(&mut self.is_located, true) {
            true => mistake,
            false => mistake.at_line(line),
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), Message> {
        match statement {
            Statement::Backup(backup) => self.backup(backup),
            Statement::Restore(restore) => self.restore(restore),
            Statement::Declare(all) => all.iter().try_for_each(|d| self.declare(d)),
            Statement::Assign {
                variable, value, ..
            } => {
                self.variable(variable)?;
                self.expression(value)
            }
            Statement::Print(value) | Statement::ExecuteText(value) => self.expression(value),
            Statement::Query(query) => self.read(QuerySource::Query(query)),
            Statement::Execute(execute) => {
                execute.code.iter().try_for_each(|c| self.variable(c))?;
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
                self.all(body)?;
                self.all(catch)
            }
            Statement::HardwareOffload(_)
            | Statement::Reconfigure { .. }
            | Statement::Use(_)
            | Statement::AlterAccess { .. }
            | Statement::DropDatabase { .. }
            | Statement::SetOption(_)
            | Statement::Transaction(_)
            | Statement::Break
            | Statement::Continue
            | Statement::Return => Ok(()),
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

    fn declare(&mut self, declaration: &Declaration) -> Result<(), Message> {
        statement::type_of(&declaration.kind)?;
        if let Some(value) = &declaration.value {
            self.expression(value)?;
        }
        let variable = &declaration.variable;
        match self.declared.insert(variable.to_lowercase()) {
            true => Ok(()),
            false => Err(message::DECLARED_TWICE.with(&[variable])),
        }
    }

    fn variable(&self, name: &str) -> Result<(), Message> {
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
            let declared = self.variable(name);
            declared.map_err(|m| m.at_line(asked.line_at(at)))
        });
        let checked = named.and_then(|()| query::check(self.reader, asked));
        // Both know the line.
        checked.inspect_err(|_| self.is_located = true)
    }
}
