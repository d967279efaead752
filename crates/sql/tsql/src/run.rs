//! Runs batches: statement by statement, through blocks, loops and texts.
//!
//! Invariants
//! - A batch is parsed whole before any of it runs.
//! - A statement that fails reports it, and the next one runs, as in SQL Server; a few mistakes end the batch
//!   ([`after::ends_own_batch`]), and so does the refusal of a statement on which others depend ([`decides`]).
//!
//! Leaves to others: parsing (`syntax`), and what a statement does (`statement`, `query`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use longshore_catalog::CatalogObject;

use crate::after;
use crate::check::{Declared, check, declarations, is_cursor};
use crate::compile;
use crate::convert::convert_from;
use crate::flow::{Argument, Flow, Out, Outcome, SYSTEM_DATABASES, Stop, Variable};
use crate::kinds::TypePlace;
use crate::message::{self, Message};
use crate::query::{self, BatchPlace, FunctionCall};
use crate::server::objects::shown_name;
use crate::server::{SESSION_FIRST, SESSION_LAST};
use crate::session::Session;
use crate::sink::{Command, DoneEvent, ReceiverGone, Sink};
use crate::statement;
use crate::syntax::{
    Declaration, Fragment, InsertSource, LocatedStatement, Operand, Routine, RoutineKind,
    Statement, Top, Transaction, parse, unheard_of, with_texts,
};
use crate::tables::TableShape;
use crate::value::{Type, Value};
use crate::variables::Variables;

/// The most nested batches (`EXEC ('…')`).
const NESTING_MAX: usize = 32;

/// The option under which queries have columns and no rows.
const FORMAT_ONLY: &str = "FMTONLY";

/// Options under which SQL Server runs nothing. The output that the last ones would produce instead is not produced
/// here.
const HOLDING: [&str; 6] = [
    PARSE_ONLY,
    "NOEXEC",
    FORMAT_ONLY,
    "SHOWPLAN_ALL",
    "SHOWPLAN_TEXT",
    "SHOWPLAN_XML",
];
/// It applies to the whole batch that contains it.
const PARSE_ONLY: &str = "PARSEONLY";

/// From this severity on a message ends its batch and all around it, whoever raises it.
const SEVERITY_ENDS_BATCH: u8 = 19;

/// The kind of statement that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Usual,
    /// RAISERROR, which XACT_ABORT does not concern.
    Raised,
    /// THROW, which ends all batches.
    Thrown,
}

impl Session {
    /// Runs one batch: the text between two GOs. Blocks until it has ended.
    ///
    /// Errors of the batch are messages to the sink; the only error here is a client that is gone.
    pub fn run(&mut self, batch: &str, sink: &mut dyn Sink) -> Result<Outcome, ReceiverGone> {
        self.run_with(batch, BTreeMap::new(), sink)
    }

    /// The same, with variables that are already declared: a protocol's parameters. Names begin with @ and are in
    /// lower case.
    pub fn run_with(
        &mut self,
        batch: &str,
        variables: BTreeMap<String, Variable>,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, ReceiverGone> {
        self.outermost(variables, sink, |session, out| session.batch(batch, out))
    }

    /// Calls a procedure by name, for a protocol; otherwise the same as EXEC in a batch. Output values are returned in
    /// the arguments, the return status in the outcome.
    pub fn call(
        &mut self,
        procedure: &str,
        arguments: &mut [Argument],
        sink: &mut dyn Sink,
    ) -> Result<Outcome, ReceiverGone> {
        let place = |i: usize| format!("@{i}");
        let variables = arguments.iter().enumerate();
        let variables = variables.map(|(i, a)| (place(i), a.variable.clone()));
        let outcome = self.outermost(variables.collect(), sink, |session, out| {
            statement::call(session, procedure, arguments, place, out)
        })?;
        let (mut after, claim) = std::mem::take(&mut self.variables).into_all();
        self.given = claim;
        for (i, argument) in arguments.iter_mut().enumerate() {
            if let Some(variable) = after.remove(&place(i)) {
                argument.variable = variable;
            }
        }
        Ok(outcome)
    }

    fn outermost(
        &mut self,
        variables: BTreeMap<String, Variable>,
        sink: &mut dyn Sink,
        run: impl FnOnce(&mut Session, &mut Out) -> Flow,
    ) -> Result<Outcome, ReceiverGone> {
        let mut out = Out {
            sink,
            line: 1,
            nocount: self.nocount,
            outcome: Outcome::default(),
            last_error: 0,
            returned: None,
            procedure: None,
            notices: self.sqlite.notices().clone(),
        };
        self.place.level = 0;
        self.place.procedure = 0;
        self.function_code = statement::run_function;
        self.say(true);
        self.in_procedure = false;
        self.tries.clear();
        self.caught.clear();
        self.cursors.begin();
        self.tables.begin();
        self.rest();
        self.server.kept.refresh();
        let claimed = self.server.setup.memory.claim(0);
        let variables = claimed.and_then(|claim| Variables::new(variables, 0, claim));
        let flow = match variables {
            // KILL came while the client had no answer to wait for.
            Ok(_) if self.is_killed() => Ok(()),
            Ok(variables) => {
                self.variables = variables;
                run(self, &mut out)
            }
            Err(message) => Err(message.into()),
        };
        self.leave();
        self.tries.clear();
        self.cursors.end();
        self.tables.end();
        self.compiled.clear();
        self.looked_through.clear();
        // A session that waits for its client keeps no database in memory.
        self.sqlite.drop_it();
        self.reader.forget();
        let mut flow = match flow {
            Err(Stop::Failed(messages) | Stop::Unresolved(messages)) => {
                let last = messages.iter().rev().find(|m| m.is_error());
                self.error = last.map_or(self.error, |m| m.number);
                self.fail(messages, Failure::Usual, &mut out)
            }
            other => other,
        };
        if self.doomed && !matches!(flow, Err(Stop::Closed(_))) {
            flow = self.roll_back_doomed(&mut out);
        }
        self.say(false);
        if self.is_killed() && !matches!(flow, Err(Stop::Closed(_))) {
            out.outcome.ended = true;
            flow = self.fail(
                vec![message::SESSION_KILLED.plain()],
                Failure::Usual,
                &mut out,
            );
        }
        match flow {
            Err(Stop::Closed(closed)) => Err(closed),
            _ => Ok(out.outcome),
        }
    }

    fn batch(&mut self, text: &str, out: &mut Out) -> Flow {
        let _claim = self.claim_for(text)?;
        let batch = parse(&with_texts(text, self.told.quotes_names()))?;
        for declared in check(&batch, self.variables.names(), &self.reader)? {
            self.hoist(declared)?;
        }
        for located in &batch.statements {
            if let Statement::SetOption(words) = &located.statement
                && words.iter().any(|w| w == PARSE_ONLY)
            {
                self.hold(words);
            }
        }
        let nested = (self.nesting > 0).then_some(text);
        compile::look_through(self, &batch.statements, nested)?;
        self.statements(&batch.statements, out)
    }

    /// A nested batch: a text in a variable. `levels`: how many it adds to `@@NESTLEVEL`.
    pub(crate) fn nested(
        &mut self,
        text: &str,
        variables: BTreeMap<String, Variable>,
        levels: i64,
        out: &mut Out,
    ) -> Result<BTreeMap<String, Variable>, Stop> {
        let place = BatchPlace {
            level: self.place.level + levels,
            scope_identity: None,
            ..self.place
        };
        let database = self.database.clone();
        // A text is no part of the procedure that runs it.
        let procedure = out.procedure.take();
        let is_inner = std::mem::replace(&mut self.in_procedure, false);
        let done = self.inside((text.len(), variables), place, &database, out, |s, out| {
            s.batch(text, out)
        });
        self.in_procedure = is_inner;
        out.procedure = procedure;
        done
    }

    /// A procedure that a script has created; returns its variables and the value of its RETURN.
    pub(crate) fn routine(
        &mut self,
        object: &CatalogObject,
        routine: &Routine,
        variables: BTreeMap<String, Variable>,
        database: &str,
        out: &mut Out,
    ) -> Result<(BTreeMap<String, Variable>, Option<i32>), Stop> {
        let place = BatchPlace {
            level: self.place.level + 1,
            procedure: object.id,
            scope_identity: None,
            ..self.place
        };
        let outer = out.procedure.replace(shown_name(object));
        let is_inner = std::mem::replace(&mut self.in_procedure, true);
        let before = self.returned.take();
        let done = self.inside((0, variables), place, database, out, |s, out| {
            for declared in declarations(&routine.body) {
                s.hoist(declared)?;
            }
            s.statements(&routine.body, out)
        });
        let returned = std::mem::replace(&mut self.returned, before);
        self.in_procedure = is_inner;
        out.procedure = outer;
        Ok((done?, returned))
    }

    /// A function that a script has created; `rows` is asked at its end, while its variables are there. The value of RETURN
    /// is left in [`Session::function`].
    pub(crate) fn function_body<T>(
        &mut self,
        call: &FunctionCall,
        variables: BTreeMap<String, Variable>,
        out: &mut Out,
        rows: impl FnOnce(&mut Session) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let place = BatchPlace {
            procedure: call.object.object.id,
            ..self.place
        };
        out.procedure = Some(shown_name(&call.object.object));
        self.in_procedure = true;
        // An error in a function is one of the statement that calls it.
        self.tries.push(usize::MAX);
        let mut made = None;
        let database = self.database.clone();
        let body = &call.routine.body;
        let done = self.inside((0, variables), place, &database, out, |s, out| {
            if let RoutineKind::Rows { variable, table } = &call.routine.kind {
                let shape = TableShape::of(table.clone(), Vec::new(), variable)?;
                s.tables.declare(variable, shape)?;
            }
            for declared in declarations(body) {
                s.hoist(declared)?;
            }
            match s.statements(body, out) {
                Ok(()) | Err(Stop::Return) => {}
                other => return other,
            }
            made = Some(rows(s)?);
            Ok(())
        });
        self.tries.pop();
        done?;
        made.ok_or_else(|| message::ABORTED.plain().into())
    }

    /// Runs a batch inside of the running one: with variables, cursors and tables of its own, in a database. Options
    /// that it sets end with it.
    fn inside(
        &mut self,
        (len, variables): (usize, BTreeMap<String, Variable>),
        place: BatchPlace,
        database: &str,
        out: &mut Out,
        run: impl FnOnce(&mut Session, &mut Out) -> Flow,
    ) -> Result<BTreeMap<String, Variable>, Stop> {
        if self.nesting >= NESTING_MAX {
            return Err(message::CALLS_TOO_DEEP.with(&[&NESTING_MAX]).into());
        }
        let claim = self.server.setup.memory.claim(0)?;
        let outside = self.variables.bytes() + len;
        let variables = Variables::new(variables, outside, claim)?;
        let outer = std::mem::replace(&mut self.variables, variables);
        let outer_place = std::mem::replace(&mut self.place, place);
        let outer_database = std::mem::replace(&mut self.database, database.to_owned());
        let options = (self.nocount, self.aborts, self.implicit, self.row_limit);
        let told = self.told;
        let held = self.held.clone();
        let line = out.line;
        self.nesting += 1;
        // The state after its last statement is the state after the calling statement.
        self.error = 0;
        self.cursors.begin();
        self.tables.begin();
        let flow = run(self, out);
        self.tables.end();
        self.cursors.end();
        self.nesting -= 1;
        (self.nocount, self.aborts, self.implicit, self.row_limit) = options;
        (self.held, self.told) = (held, told);
        out.nocount = self.nocount;
        self.place = BatchPlace {
            identity: self.place.identity,
            ..outer_place
        };
        let inner_database = std::mem::replace(&mut self.database, outer_database);
        self.say(true);
        if inner_database != *database {
            let (from, to) = (&inner_database, &self.database);
            out.sink.database_changed(from, to)?;
        }
        // A failure has its line in the nested text.
        let failed = match &flow {
            Err(Stop::Failed(messages) | Stop::Unresolved(messages)) => {
                messages.last().map(|m| m.line)
            }
            _ => None,
        };
        out.line = failed.unwrap_or(line);
        let inner = std::mem::replace(&mut self.variables, outer);
        match flow {
            Ok(()) | Err(Stop::Return | Stop::EndOwnBatch) => Ok(inner.into_all().0),
            Err(Stop::Unresolved(messages)) => Err(Stop::Failed(messages)),
            Err(stop) => Err(stop),
        }
    }

    pub(crate) fn statements(&mut self, all: &[LocatedStatement], out: &mut Out) -> Flow {
        self.statements_from(all, None, out)
    }

    /// Runs statements; the first ones only up to a label, if one is given. A GOTO to a label among them, or inside of
    /// one, goes on there.
    fn statements_from(
        &mut self,
        all: &[LocatedStatement],
        label: Option<&str>,
        out: &mut Out,
    ) -> Flow {
        let mut target = label.map(str::to_owned);
        let mut next = 0;
        loop {
            if let Some(label) = &target {
                match all.iter().position(|s| has_label(&s.statement, label)) {
                    Some(found) => next = found,
                    None => return Err(Stop::Goto(label.clone())),
                }
            }
            let Some(located) = all.get(next) else {
                return Ok(());
            };
            next += 1;
            let flow = match target.take() {
                Some(label) => self.resume_at(located, &label, out),
                None => self.statement(located, out),
            };
            match flow {
                Err(Stop::Goto(label)) => target = Some(label),
                other => other?,
            }
        }
    }

    /// Goes on at a label that is this statement, or inside of it.
    fn resume_at(&mut self, located: &LocatedStatement, label: &str, out: &mut Out) -> Flow {
        match &located.statement {
            Statement::Block(all) => self.statements_from(all, Some(label), out),
            Statement::If {
                then, otherwise, ..
            } => {
                let branches = std::iter::once(then).chain(otherwise);
                let mut found = branches.filter(|branch| has_label(&branch.statement, label));
                found
                    .next()
                    .map_or(Ok(()), |branch| self.resume_at(branch, label, out))
            }
            Statement::While { condition, body } => {
                out.line = located.line;
                match self.resume_at(body, label, out) {
                    Ok(()) | Err(Stop::Continue) => {
                        out.line = located.line;
                        self.repeat(condition, body, out)
                    }
                    Err(Stop::Break) => Ok(()),
                    other => other,
                }
            }
            // No other statement has a label inside that a GOTO may name.
            _ => Ok(()),
        }
    }

    /// Runs one statement; in a TRY block its failure goes to the block, otherwise it is sent.
    fn statement(&mut self, located: &LocatedStatement, out: &mut Out) -> Flow {
        if self.cancel.load(Ordering::Relaxed) {
            return self
                .fail(vec![message::ABORTED.plain()], Failure::Usual, out)
                .and(Err(Stop::EndBatch));
        }
        if !self.held.is_empty() && !matches!(located.statement, Statement::SetOption(_)) {
            return self.held_back(located, out);
        }
        out.line = located.line;
        match self.execute(&located.statement, out) {
            Err(Stop::Failed(messages)) => {
                // A statement that failed has nothing more to tell.
                out.notices.take();
                self.failed(located, messages, out)
            }
            Ok(()) => {
                out.say_notices()?;
                if !after::keeps_error(&located.statement) {
                    self.error = 0;
                }
                if let Some(rows) = after::rows(&located.statement) {
                    self.row_count = rows;
                }
                Ok(())
            }
            other => other,
        }
    }

    /// A statement that an option keeps from running: with FMTONLY alone a query has its columns, also in branches, whatever
    /// their conditions are.
    fn held_back(&mut self, located: &LocatedStatement, out: &mut Out) -> Flow {
        if self.held.iter().any(|option| *option != FORMAT_ONLY) {
            return Ok(());
        }
        out.line = located.line;
        let described = match &located.statement {
            Statement::Query(query) => statement::describe(self, query, out),
            Statement::Execute(_) | Statement::ExecuteText(_) => {
                let what = "EXECUTE under SET FMTONLY ON";
                Err(message::NOT_HERE.with(&[&what]).into())
            }
            Statement::Block(all) | Statement::Try { body: all, .. } => {
                return self.statements(all, out);
            }
            Statement::While { body, .. } => return self.statement(body, out),
            Statement::If {
                then, otherwise, ..
            } => {
                self.statement(then, out)?;
                // A branch that ends FMTONLY does not let the other one run.
                return match otherwise {
                    Some(other) if !self.held.is_empty() => self.statement(other, out),
                    _ => Ok(()),
                };
            }
            _ => return Ok(()),
        };
        match described {
            Err(Stop::Failed(messages)) => self.failed(located, messages, out),
            other => other,
        }
    }

    fn failed(
        &mut self,
        located: &LocatedStatement,
        messages: Vec<Message>,
        out: &mut Out,
    ) -> Flow {
        let statement = &located.statement;
        let is_call = matches!(statement, Statement::Execute(_) | Statement::ExecuteText(_));
        let how = match statement {
            Statement::Raise(_) => Failure::Raised,
            Statement::Throw(_) => Failure::Thrown,
            _ => Failure::Usual,
        };
        let is_refused = messages
            .iter()
            .any(|m| m.number == message::NOT_HERE.number);
        let line = out.line;
        let said: Vec<_> = match statement {
            // The lines are those of the error that is raised again.
            Statement::Throw(None) => messages,
            _ => {
                let procedure = out.procedure.as_deref();
                // A message of a procedure that this statement calls has its line, or none where it had not begun.
                let is_inner = |m: &Message| {
                    is_call && m.procedure.is_some() && m.procedure.as_deref() != procedure
                };
                let located = messages.into_iter().map(|m| match is_inner(&m) {
                    true => m,
                    false => m.at_line(line).in_procedure(procedure),
                });
                located.collect()
            }
        };
        let last = said.iter().rev().find(|m| m.is_error());
        self.error = last.map_or(0, |m| m.number);
        if !is_call {
            self.row_count = 0;
        }
        // A cancel is caught by nobody.
        let Some(level) = self.tries.last().filter(|_| !self.is_cancelled()) else {
            let is_told = said.iter().any(|m| m.number == message::ABORTED.number);
            let said = match self.tries() && !is_told {
                // The block would have caught what the client is not told.
                true => vec![message::ABORTED.plain().at_line(line)],
                false => said,
            };
            return match self.fail(said, how, out) {
                // A nested batch that does not parse does not end the outer one.
                Err(Stop::EndOwnBatch) if is_call => Ok(()),
                // The rest was to depend on something that is not known.
                Ok(()) if is_refused && decides(statement) => Err(Stop::EndBatch),
                // The statements that follow are for another database.
                Ok(()) if matches!(statement, Statement::Use(_)) => Err(Stop::EndOwnBatch),
                other => other,
            };
        };
        if *level == self.nesting && !is_call && said.iter().any(after::is_unresolved) {
            return Err(Stop::Unresolved(said));
        }
        let dooms =
            said.iter().any(after::ends_all_batches) || (self.aborts && how != Failure::Raised);
        self.doomed |= dooms && self.transactions > 0;
        // CATCH handles errors; informational messages are sent at once.
        let (errors, rest): (Vec<_>, Vec<_>) = said.into_iter().partition(Message::is_error);
        // A block that catches the error ends the statement; nobody is told so.
        let is_told = |m: &Message| m.number != message::TERMINATED.number;
        for message in rest.into_iter().filter(is_told) {
            out.sink.message(&message)?;
        }
        Err(Stop::Failed(errors))
    }

    /// Sends the messages, and decides whether the batch continues.
    fn fail(&mut self, messages: Vec<Message>, how: Failure, out: &mut Out) -> Flow {
        let is_error = messages.iter().any(Message::is_error);
        // A failed conversion takes its transaction back, whatever XACT_ABORT says.
        let converts = how == Failure::Usual && messages.iter().any(after::ends_all_batches);
        let aborts = is_error && (converts || self.aborts && how != Failure::Raised);
        let messages = match aborts {
            true => messages.into_iter().chain(self.roll_back()).collect(),
            false => messages,
        };
        let (ends_all, ends_own) = match how {
            Failure::Thrown => (true, false),
            // Other messages of RAISERROR, whatever their severity, end nothing.
            Failure::Raised => {
                let severity = messages.iter().map(|m| m.severity).max();
                (severity >= Some(SEVERITY_ENDS_BATCH), false)
            }
            Failure::Usual => (
                aborts || messages.iter().any(after::ends_all_batches),
                messages.iter().any(after::ends_own_batch),
            ),
        };
        for message in messages {
            out.count(&message);
            out.sink.message(&message)?;
        }
        out.sink.done(DoneEvent {
            command: Command::Other,
            rows: None,
            error: true,
        })?;
        match (ends_all || self.is_cancelled(), ends_own) {
            (true, _) => Err(Stop::EndBatch),
            (false, true) => Err(Stop::EndOwnBatch),
            (false, false) => Ok(()),
        }
    }

    /// 3998: a batch does not leave a transaction that can only be rolled back.
    fn roll_back_doomed(&mut self, out: &mut Out) -> Flow {
        let mut said = self.roll_back();
        if self.doomed {
            return self.fail(said, Failure::Raised, out);
        }
        said.insert(0, message::UNCOMMITTABLE_AT_END.plain());
        self.fail(said, Failure::Usual, out)
    }

    /// The open transaction ends, and rows of tables are what they were before it, apart from those that the messages tell of.
    /// Where that fails, it can only be rolled back.
    fn roll_back(&mut self) -> Vec<Message> {
        if self.transactions == 0 {
            return Vec::new();
        }
        match self.undo() {
            Ok(said) => {
                self.end_transaction();
                self.say(true);
                said
            }
            Err(refused) => {
                self.doomed = true;
                vec![refused]
            }
        }
    }

    pub(crate) fn execute(&mut self, statement: &Statement, out: &mut Out) -> Flow {
        match statement {
            Statement::Backup(backup) => {
                self.running = backup.to_string();
                let done = statement::backup(self, backup, out);
                self.running.clear();
                done
            }
            Statement::Restore(restore) => {
                self.running = restore.to_string();
                let done = statement::restore(self, restore, out);
                self.running.clear();
                done
            }
            Statement::HardwareOffload(offload) => statement::hardware_offload(self, offload, out),
            Statement::Reconfigure { .. } => statement::reconfigure(self, out),
            Statement::Use(name) => self.use_database(name, out),
            Statement::Refused { what, .. } => Err(message::NOT_HERE.with(&[what]).into()),
            Statement::Kill { session, status } => self.kill(*session, *status, out),
            Statement::AlterAccess { database, access } => {
                statement::alter_database(self, (database, access), out)
            }
            Statement::DropDatabase { .. } if self.transactions > 0 => {
                Err(message::NOT_IN_TRANSACTION.with(&[&"DROP DATABASE"]).into())
            }
            Statement::DropDatabase { if_exists, names } => {
                statement::drop_databases(self, names, *if_exists, out)
            }
            Statement::Credential(credential) => statement::credential(self, credential, out),
            Statement::Key(key) => statement::key(self, key, out),
            Statement::Declare(all) => all.iter().try_for_each(|d| self.declare(d)),
            Statement::Assign {
                variable,
                operator,
                value,
            } => self.assign(variable, operator, value),
            Statement::SetOption(words) => {
                self.set_option(&self.option_words(words)?)?;
                self.say(true);
                out.nocount = self.nocount;
                Ok(out.done(Command::Other, None)?)
            }
            Statement::Print(value) => self.print(value, out),
            Statement::Execute(execute) => statement::execute(self, execute, out),
            Statement::ExecuteText(text) => {
                let text = match query::scalar(&self.query_context(), text)?.value {
                    Value::Null => String::new(),
                    value => value.to_string(),
                };
                self.nested(&text, BTreeMap::new(), 1, out)?;
                Ok(())
            }
            Statement::Dbcc(dbcc) => statement::dbcc(self, dbcc, out),
            Statement::Query(query) => statement::select(self, query, out),
            Statement::If {
                condition,
                then,
                otherwise,
            } => {
                let branch = match query::holds(&self.query_context(), condition)? {
                    true => Some(then),
                    false => otherwise.as_ref(),
                };
                self.row_count = 0;
                branch.map_or(Ok(()), |branch| self.statement(branch, out))
            }
            Statement::While { condition, body } => self.repeat(condition, body, out),
            Statement::Block(all) => self.statements(all, out),
            Statement::Try { body, catch } => self.try_catch(body, catch, out),
            Statement::Transaction(what) => {
                let said = self.transaction(*what)?;
                self.say(true);
                told_and_done(said, out)
            }
            Statement::NamedTransaction(what, name) => {
                let name = self.name_of(name)?;
                let said = self.named_transaction(*what, &name)?;
                self.say(true);
                told_and_done(said, out)
            }
            Statement::Break => Err(Stop::Break),
            Statement::Continue => Err(Stop::Continue),
            Statement::Return => Err(Stop::Return),
            Statement::ReturnValue(value) => self.return_value(value, out),
            Statement::Goto(label) => Err(Stop::Goto(label.clone())),
            Statement::Label(_) => Ok(()),
            Statement::Raise(raise) => statement::raise(self, raise, out),
            Statement::Throw(Some(throw)) => statement::throw(self, throw),
            Statement::Throw(None) => statement::rethrow(self),
            Statement::Wait { until, time } => statement::wait(self, *until, time),
            cursor => self.cursor_statement(cursor, out),
        }
    }

    /// PRINT: a text that is too long is cut.
    fn print(&mut self, value: &Fragment, out: &mut Out) -> Flow {
        let Variable { kind, value } = query::scalar(&self.query_context(), value)?;
        let to = match kind.is_national() {
            true => Type::NVarChar(Some(4000)),
            false => Type::VarChar(Some(8000)),
        };
        let text = match convert_from(&value, kind, to)? {
            Value::Null => String::new(),
            value => value.to_string(),
        };
        Ok(out.say(message::PRINTED.with(&[&text]))?)
    }

    /// RETURN with a value: NULL is 0, and a warning in SQL Server.
    fn return_value(&mut self, value: &Fragment, out: &mut Out) -> Flow {
        if !self.in_procedure {
            return Err(message::RETURN_VALUE.plain().into());
        }
        if let Some((kind, _)) = self.function {
            let value = self.value_as(value, kind)?;
            self.function = Some((kind, value));
            return Err(Stop::Return);
        }
        let status = match self.value_as(value, Type::Int)? {
            Value::Int(n) => i32::try_from(n).unwrap_or(i32::MAX),
            _ => {
                let name = out.procedure.as_deref().unwrap_or_default();
                out.say(message::RETURN_NULL.with(&[&name]))?;
                0
            }
        };
        self.returned = Some(status);
        Err(Stop::Return)
    }

    fn data_statement(&mut self, statement: &Statement, out: &mut Out) -> Flow {
        let changes = match statement {
            Statement::Insert(_) => Some("INSERT"),
            Statement::Update(_) => Some("UPDATE"),
            Statement::Delete(_) => Some("DELETE"),
            Statement::Merge(_) => Some("MERGE"),
            _ => None,
        };
        if self.row_limit > 0
            && let Some(limited) = limited(statement, self.row_limit)
        {
            let limit = std::mem::take(&mut self.row_limit);
            let done = self.data_statement(&limited, out);
            self.row_limit = limit;
            return done;
        }
        if let Some(word) = changes.filter(|_| self.row_limit > 0) {
            let what = format!("{word} under SET ROWCOUNT {}", self.row_limit);
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        if self.doomed && after::is_logged(statement) {
            return Err(message::UNCOMMITTABLE.plain().into());
        }
        match statement {
            // Its table was made before the batch ran.
            Statement::DeclareTable { .. } => Ok(()),
            Statement::Insert(insert) => statement::insert(self, insert, out),
            Statement::Update(update) => statement::update(self, update, out),
            Statement::Delete(delete) => statement::delete(self, delete, out),
            Statement::Merge(merge) => statement::merge(self, merge, out),
            Statement::Truncate(name) => statement::truncate(self, name, out),
            Statement::IdentityInsert { table, on } => {
                statement::identity_insert(self, table, *on, out)
            }
            Statement::CreateTable { name, table } => {
                statement::create_table(self, name, table, out)
            }
            Statement::AlterTable { name, change } => {
                statement::alter_table(self, name, change, out)
            }
            Statement::DropObjects {
                kind,
                if_exists,
                names,
            } => statement::drop_objects(self, *kind, names, *if_exists, out),
            Statement::CreateIndex(index) => statement::create_index(self, index, out),
            Statement::DropIndex {
                if_exists,
                name,
                table,
            } => statement::drop_index(self, (name, table), *if_exists, out),
            Statement::Routine(routine) => statement::create_routine(self, routine, out),
            _ => Ok(()),
        }
    }

    fn cursor_statement(&mut self, statement: &Statement, out: &mut Out) -> Flow {
        use statement::cursor;
        match statement {
            Statement::DeclareCursor(declared) => cursor::declare(self, declared),
            Statement::SetCursor {
                variable,
                cursor: query,
            } => cursor::set(self, variable, query),
            Statement::OpenCursor(name) => cursor::open(self, name),
            Statement::CloseCursor(name) => cursor::close(self, name),
            Statement::DeallocateCursor(name) => cursor::deallocate(self, name),
            Statement::Fetch(fetch) => cursor::fetch(self, fetch, out),
            data => self.data_statement(data, out),
        }
    }

    fn repeat(&mut self, condition: &Fragment, body: &LocatedStatement, out: &mut Out) -> Flow {
        let line = out.line;
        loop {
            let holds = query::holds(&self.query_context(), condition)?;
            self.row_count = 0;
            if !holds {
                return Ok(());
            }
            match self.statement(body, out) {
                Ok(()) | Err(Stop::Continue) => {}
                Err(Stop::Break) => return Ok(()),
                other => return other,
            }
            out.line = line;
            if self.cancel.load(Ordering::Relaxed) {
                return Err(message::ABORTED.plain().into());
            }
        }
    }

    fn try_catch(
        &mut self,
        body: &[LocatedStatement],
        catch: &[LocatedStatement],
        out: &mut Out,
    ) -> Flow {
        self.tries.push(self.nesting);
        let flow = self.statements(body, out);
        self.tries.pop();
        let Err(Stop::Failed(messages)) = flow else {
            return flow;
        };
        let outer = std::mem::replace(&mut self.caught, messages);
        let flow = self.statements(catch, out);
        self.caught = outer;
        flow
    }

    fn use_database(&mut self, name: &str, out: &mut Out) -> Flow {
        let system = SYSTEM_DATABASES
            .iter()
            .find(|s| s.eq_ignore_ascii_case(name));
        let known = match system {
            Some(system) => (*system).to_owned(),
            None => {
                let names = self.server.database_names();
                let found = names.into_iter().find(|n| n.eq_ignore_ascii_case(name));
                found.ok_or_else(|| message::database_missing(name))?
            }
        };
        let waits = self.server.kept.sequence(&known).is_some();
        if waits && !self.server.is_configured(&known) {
            return Err(message::IN_RESTORE.with(&[&known]).into());
        }
        let from = std::mem::replace(&mut self.database, known.clone());
        self.say(true);
        out.sink.database_changed(&from, &known)?;
        out.say(message::DATABASE_CHANGED.with(&[&known]))?;
        Ok(out.done(Command::Other, None)?)
    }

    /// KILL: another session's statement ends as by a cancel, a backup leaves nothing half-valid, and then the session ends.
    ///
    /// Errors: 6101, 6104, 6106, 6107, 6115, 6120.
    fn kill(&mut self, session: i64, status: bool, out: &mut Out) -> Flow {
        if self.transactions > 0 {
            return Err(message::KILL_IN_TRANSACTION.plain().into());
        }
        if session == i64::from(self.id()) {
            return Err(message::KILL_OWN.plain().into());
        }
        let number = u32::try_from(session).ok();
        let number = number.filter(|n| (1..=SESSION_LAST).contains(n));
        let Some(number) = number else {
            return Err(message::KILL_INVALID
                .with(&[&session, &SESSION_LAST])
                .into());
        };
        if number < SESSION_FIRST {
            return Err(message::KILL_SYSTEM.plain().into());
        }
        if status {
            // A session that was killed is gone, or goes at once.
            return Err(match self.server.sessions.all().contains_key(&number) {
                true => message::KILL_NO_STATUS.with(&[&session]).into(),
                false => message::KILL_UNKNOWN.with(&[&session]).into(),
            });
        }
        match self.server.sessions.kill(number) {
            true => Ok(out.done(Command::Other, None)?),
            false => Err(message::KILL_UNKNOWN.with(&[&session]).into()),
        }
    }

    /// Declares a variable before its batch runs: a declaration is one for the whole batch, wherever it stands.
    fn hoist(&mut self, declared: Declared) -> Flow {
        let declaration = match declared {
            Declared::Table(name, spec) => {
                let spec = statement::typed(self, spec)?;
                let shape = TableShape::of(spec, Vec::new(), name)?;
                if !shape.foreign.is_empty() {
                    let what = "FOREIGN KEY of a table variable";
                    return Err(message::NOT_HERE.with(&[&what]).into());
                }
                return Ok(self.tables.declare(name, shape)?);
            }
            Declared::Variable(declaration) => declaration,
        };
        let name = &declaration.variable;
        if is_cursor(&declaration.kind) {
            self.cursors.declare_variable(name);
            return Ok(());
        }
        let kind = statement::type_of(&declaration.kind, TypePlace::Variable(name, 1))?;
        let value = Value::Null;
        Ok(self.variables.declare(name, Variable { kind, value })?)
    }

    /// The value of a declaration; without one the variable keeps what it has.
    fn declare(&mut self, declaration: &Declaration) -> Flow {
        let Some(value) = &declaration.value else {
            return Ok(());
        };
        let place = TypePlace::Variable(&declaration.variable, 1);
        let kind = statement::type_of(&declaration.kind, place)?;
        let value = self.value_as(value, kind)?;
        Ok(self.set_variable(&declaration.variable, value)?)
    }

    fn assign(&mut self, variable: &str, operator: &str, value: &Fragment) -> Flow {
        if self.cursors.is_variable(variable) {
            return statement::cursor::assign(self, variable, value);
        }
        let kind = self.variable(variable)?.kind;
        let value = match operator {
            "" => value.clone(),
            operator => Fragment::new(format!("{variable} {operator} ( {value} )")),
        };
        let value = self.value_as(&value, kind)?;
        Ok(self.set_variable(variable, value)?)
    }

    /// The value of an expression in another type.
    pub(crate) fn value_as(&self, expression: &Fragment, to: Type) -> Result<Value, Message> {
        let found = query::scalar(&self.query_context(), expression)?;
        self.converted(&found.value, found.kind, to)
    }

    /// Begins or ends a transaction, and says which rows ROLLBACK has not brought back.
    ///
    /// Errors: 3902, 3903; the catalog cannot be read or written: the transaction stays open.
    fn transaction(&mut self, what: Transaction) -> Result<Vec<Message>, Message> {
        let mut said = Vec::new();
        self.transactions = match (what, self.transactions) {
            (Transaction::Begin, open) => open.saturating_add(1),
            (Transaction::Commit, 1..) if self.doomed => {
                return Err(message::UNCOMMITTABLE.plain());
            }
            (Transaction::Commit, 0) => return Err(message::NOTHING_TO_COMMIT.plain()),
            (Transaction::Rollback, 0) => return Err(message::NOTHING_TO_ROLL_BACK.plain()),
            (Transaction::Commit, open) => open - 1,
            (Transaction::Rollback, _) => {
                said = self.undo()?;
                0
            }
            (Transaction::Save, open) => open,
        };
        if self.transactions == 0 {
            self.forget_changes();
            self.end_transaction();
        }
        Ok(said)
    }

    /// The same with a name, whose case counts: ROLLBACK names the outermost transaction or a savepoint.
    ///
    /// Errors: 628, 3903, 3931, 6401, and those of the catalog.
    fn named_transaction(
        &mut self,
        what: Transaction,
        name: &str,
    ) -> Result<Vec<Message>, Message> {
        match (what, self.transactions) {
            (Transaction::Begin, open) => {
                self.transaction(what)?;
                if open == 0 {
                    self.transaction_name = Some(name.to_owned());
                }
                Ok(Vec::new())
            }
            (Transaction::Save, 0) => Err(message::NOTHING_TO_SAVE.plain()),
            (Transaction::Save, _) => self.tables.save(name).map(|()| Vec::new()),
            (Transaction::Rollback, 0) => Err(message::NOTHING_TO_ROLL_BACK.plain()),
            (Transaction::Rollback, _) if self.transaction_name.as_deref() == Some(name) => {
                self.transaction(what)
            }
            (Transaction::Rollback, _) if self.doomed => Err(message::UNCOMMITTABLE_TO.plain()),
            (Transaction::Rollback, _) => self.undo_to(name),
            (Transaction::Commit, _) => self.transaction(what),
        }
    }

    /// Options under which nothing runs: ON or OFF.
    fn hold(&mut self, words: &[String]) {
        let on = words.last().is_some_and(|w| w == "ON");
        for option in HOLDING.iter().filter(|o| words.iter().any(|w| w == *o)) {
            match on {
                true => self.held.insert(option),
                false => self.held.remove(option),
            };
        }
    }

    /// The words of SET with the values of variables.
    fn option_words(&self, words: &[String]) -> Result<Vec<String>, Message> {
        let word = |word: &String| match word.starts_with('@') {
            true => Ok(self.variable(word)?.value.to_string().to_ascii_uppercase()),
            false => Ok(word.clone()),
        };
        words.iter().map(word).collect()
    }

    /// Options that clients set for a session: row counts, implicit transactions, whether an error ends its batch, and
    /// which statements run at all. Errors: 50002 for options that would change answers, but do not here.
    fn set_option(&mut self, words: &[String]) -> Flow {
        let on = words.last().is_some_and(|w| w == "ON");
        self.hold(words);
        let shows = |w: &&String| w.starts_with("SHOWPLAN_");
        if let Some(word) = words.iter().find(shows).filter(|_| on) {
            let what = format!("SET {word} ON (nothing runs until it is OFF)");
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        if let Some(what) = unheard_of(words) {
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        if let [option, day] = words
            && option == "DATEFIRST"
            && !day.parse().is_ok_and(|day| (1..=7_u8).contains(&day))
        {
            let what = format!("SET DATEFIRST {day}");
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        if let [option, count] = words
            && option == "ROWCOUNT"
        {
            let found = count.parse().ok();
            let what = || format!("SET ROWCOUNT {count}");
            self.row_limit = found.ok_or_else(|| message::NOT_HERE.with(&[&what()]))?;
        }
        if words.iter().any(|w| w == "XACT_ABORT") {
            self.aborts = on;
        }
        if words.iter().any(|w| w == "NOCOUNT") {
            self.nocount = on;
        }
        let is_implicit = |w: &String| w == "IMPLICIT_TRANSACTIONS" || w == "ANSI_DEFAULTS";
        if words.iter().any(is_implicit) {
            self.implicit = on;
        }
        self.told.set(words);
        Ok(())
    }

    /// The value of an option or an argument.
    pub(crate) fn value_of(&self, operand: &Operand) -> Result<Value, Message> {
        query::value_of(&self.query_context(), operand)
    }
}

/// A change of rows as SET ROWCOUNT limits it: UPDATE and DELETE as with TOP, and rows of VALUES that are no more. `None`: another
/// statement, or one whose rows another clause chooses.
fn limited(statement: &Statement, limit: u64) -> Option<Statement> {
    let top = || {
        Some(Top {
            count: Fragment::new(limit.to_string()),
            percent: false,
        })
    };
    match statement {
        Statement::Insert(insert) => match &insert.source {
            _ if insert.top.is_some() => None,
            InsertSource::Values(rows) if rows.len() as u64 <= limit => Some(statement.clone()),
            InsertSource::DefaultValues => Some(statement.clone()),
            _ => None,
        },
        Statement::Update(update) if update.top.is_none() => {
            let mut update = update.clone();
            update.top = top();
            Some(Statement::Update(update))
        }
        Statement::Delete(delete) if delete.top.is_none() => {
            let mut delete = delete.clone();
            delete.top = top();
            Some(Statement::Delete(delete))
        }
        _ => None,
    }
}

/// The end of a statement that has something to say.
fn told_and_done(said: Vec<Message>, out: &mut Out) -> Flow {
    for message in said {
        out.say(message)?;
    }
    Ok(out.done(Command::Other, None)?)
}

/// Whether other statements may depend on what this one finds or changes: then nothing after its refusal is as it was meant.
fn decides(statement: &Statement) -> bool {
    match statement {
        Statement::Refused { what, text } => {
            let changes = [
                "EXECUTE AS",
                "BEGIN DISTRIBUTED",
                "ALTER DATABASE",
                "SETUSER",
            ];
            let queries = ["SET @", "DECLARE ", "INSERT ", "DELETE ", "UPDATE "];
            let text = text.to_ascii_uppercase();
            let begins = |word: &&str| text.starts_with(word);
            changes.iter().any(|words| what.starts_with(words))
                || (queries.iter().any(begins) && !text.starts_with("UPDATE STATISTICS"))
        }
        Statement::AlterAccess { .. } => true,
        Statement::Execute(call) => {
            call.code.is_some() || call.arguments.iter().any(|argument| argument.output)
        }
        // A branch or a body that fails has said so itself. An option that cannot be set would change what follows.
        Statement::If { .. }
        | Statement::SetOption(_)
        | Statement::While { .. }
        | Statement::Assign { .. }
        | Statement::Declare(_)
        | Statement::Query(_)
        | Statement::ReturnValue(_)
        | Statement::DeclareCursor(_)
        | Statement::SetCursor { .. }
        | Statement::OpenCursor(_)
        | Statement::Fetch(_)
        | Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_) => true,
        _ => false,
    }
}

/// Whether the statement is this label, or has it inside where a GOTO from outside may name it.
fn has_label(statement: &Statement, label: &str) -> bool {
    match statement {
        Statement::Label(name) => name.eq_ignore_ascii_case(label),
        Statement::Block(all) => all.iter().any(|s| has_label(&s.statement, label)),
        Statement::If {
            then, otherwise, ..
        } => {
            let mut branches = std::iter::once(then).chain(otherwise);
            branches.any(|branch| has_label(&branch.statement, label))
        }
        Statement::While { body, .. } => has_label(&body.statement, label),
        _ => false,
    }
}
