//! A session: runs batches one after another and keeps what lasts between them.
//!
//! A batch is read whole before any of it runs. A statement that fails says so, and the next one runs, as SQL Server does
//! it; a few mistakes end the batch ([`ends_batch`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_pipeline::House;

use crate::check::check;
use crate::convert::convert_from;
use crate::memory::Claim;
use crate::message::{self, Message};
use crate::query;
use crate::server::{Activity, Server, SessionNumber};
use crate::sink::{Closed, Command, Done, Sink};
use crate::statement;
use crate::syntax::{
    Declaration, Fragment, Located, Name, Operand, Statement, Transaction, parse, unheard_of,
};
use crate::value::{Type, Value};
use crate::variables::Variables;

/// Who the session is for; shown in views and histories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub host: String,
    pub program: String,
}

/// How a batch went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The highest severity of a message that was sent.
    pub severity_max: u8,
    /// The return status of the procedure that was called last: 0 if it succeeded; else of `sp_executesql` the number
    /// of the last error of its batch, of every other procedure 1.
    pub status: u32,
}

impl Outcome {
    pub fn failed(self) -> bool {
        self.severity_max > message::SEVERITY_INFO_MAX
    }
}

/// A variable's type and value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub kind: Type,
    pub value: Value,
}

/// What is passed to a procedure from outside a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// With its @; `None`: by its place.
    pub name: Option<String>,
    pub variable: Variable,
    /// The procedure's own value instead.
    pub default: bool,
    /// The procedure may change it.
    pub output: bool,
}

/// Bytes that statements take when they were read, for each byte of their text, at most: the shortest are the worst
/// (`tests/memory.rs` measures it).
const READ_FACTOR: usize = 128;

/// Batches inside batches (`EXEC ('…')`), at most.
const NESTING_MAX: usize = 32;

/// Why a statement did not end as usual.
#[derive(Debug)]
pub(crate) enum Stop {
    Closed(Closed),
    /// The statement failed; these were not sent yet.
    Failed(Vec<Message>),
    /// The batch ends here, and every batch that it is in; everything was said.
    EndBatch,
    /// The batch ends here, and the one that it is in goes on; everything was said.
    EndOwnBatch,
    /// RETURN: the batch ends, but not the one that it is in.
    Return,
    Break,
    Continue,
}

impl Stop {
    /// The last word of what failed; for callers that have no sink.
    pub fn message(self) -> Message {
        match self {
            Stop::Failed(mut messages) => {
                messages.pop().unwrap_or_else(|| message::ABORTED.plain())
            }
            Stop::Closed(_)
            | Stop::EndBatch
            | Stop::EndOwnBatch
            | Stop::Return
            | Stop::Break
            | Stop::Continue => message::ABORTED.plain(),
        }
    }
}

impl From<Closed> for Stop {
    fn from(closed: Closed) -> Stop {
        Stop::Closed(closed)
    }
}

impl From<Message> for Stop {
    fn from(message: Message) -> Stop {
        Stop::Failed(vec![message])
    }
}

impl From<Vec<Message>> for Stop {
    fn from(messages: Vec<Message>) -> Stop {
        Stop::Failed(messages)
    }
}

pub(crate) type Flow = Result<(), Stop>;

/// Where a statement's answers go.
pub(crate) struct Out<'a> {
    pub sink: &'a mut dyn Sink,
    /// Of the statement.
    pub line: u32,
    /// Rows are not counted (`SET NOCOUNT ON`).
    nocount: bool,
    outcome: Outcome,
    /// The error that was said last, since the procedure that runs was called.
    last_error: u32,
}

impl Out<'_> {
    /// Counts what is said.
    fn count(&mut self, message: &Message) {
        self.outcome.severity_max = self.outcome.severity_max.max(message.severity);
        if message.is_error() {
            self.last_error = message.number;
        }
    }

    pub fn say(&mut self, message: Message) -> Result<(), Closed> {
        self.count(&message);
        self.sink.message(&message.at_line(self.line))
    }

    /// Runs a procedure and keeps its return status. `is_batch`: the status is an error's number.
    pub fn procedure(&mut self, is_batch: bool, run: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let before = std::mem::take(&mut self.last_error);
        let flow = run(self);
        let unsaid = match &flow {
            Err(Stop::Failed(messages)) => messages.iter().rev().find(|m| m.is_error()),
            _ => None,
        };
        let error = unsaid.map_or(self.last_error, |m| m.number);
        self.outcome.status = match is_batch {
            true => error,
            false => (error != 0).into(),
        };
        if self.last_error == 0 {
            self.last_error = before;
        }
        flow
    }

    /// The return status of the procedure that ran last.
    pub fn status(&self) -> u32 {
        self.outcome.status
    }

    pub fn done(&mut self, command: Command, rows: Option<u64>) -> Result<(), Closed> {
        self.sink.done(Done {
            command,
            rows: rows.filter(|_| !self.nocount),
            error: false,
        })
    }

    /// A message with a `done` of its own, as BACKUP and RESTORE send them.
    pub fn say_done(&mut self, message: Message, command: Command) -> Result<(), Closed> {
        self.say(message)?;
        self.done(command, None)
    }
}

/// One client's connection. Not shared between threads; its [`Session::cancel_flag`] is.
pub struct Session {
    pub(crate) server: Arc<Server>,
    number: SessionNumber,
    pub(crate) login: Login,
    pub(crate) database: String,
    /// The database that the session begins anew in: its login's.
    home: String,
    pub(crate) trace_flags: BTreeSet<i64>,
    /// Of the batch that runs.
    pub(crate) variables: Variables,
    /// `@@ERROR`
    pub(crate) error: u32,
    /// `@@ROWCOUNT`
    pub(crate) row_count: u64,
    /// What a CATCH block handles.
    pub(crate) caught: Option<Message>,
    /// `@@TRANCOUNT`
    pub(crate) transactions: u32,
    /// `SET IMPLICIT_TRANSACTIONS ON`, as drivers without autocommit say it.
    implicit: bool,
    /// `SET XACT_ABORT ON`: an error ends its batch.
    aborts: bool,
    /// `SET NOCOUNT ON`: clients show no row counts.
    pub(crate) nocount: bool,
    /// Those of [`HOLDING`] that are ON: nothing but SET runs.
    held: BTreeSet<&'static str>,
    cancel: Arc<AtomicBool>,
    /// For what a call has given back to its caller, until the next one.
    given: Claim,
    nesting: usize,
    tries: usize,
    /// While a batch runs.
    pub(crate) engine: query::Kept,
    /// The same.
    pub(crate) reader: query::Reader,
}

/// Options under which SQL Server runs nothing. What the last ones would show instead is not shown here.
const HOLDING: [&str; 6] = [
    PARSE_ONLY,
    "NOEXEC",
    "FMTONLY",
    "SHOWPLAN_ALL",
    "SHOWPLAN_TEXT",
    "SHOWPLAN_XML",
];
/// It counts for the whole batch that it stands in.
const PARSE_ONLY: &str = "PARSEONLY";

/// The database of a session that has not chosen one.
pub const FIRST_DATABASE: &str = "master";

/// Databases of SQL Server's own that sessions may use; nothing of them is backed up.
pub(crate) const SYSTEM_DATABASES: [&str; 4] = ["master", "tempdb", "model", "msdb"];

impl Session {
    pub fn new(server: Arc<Server>, login: Login) -> Session {
        Session {
            number: SessionNumber::take(&server),
            server,
            login,
            database: FIRST_DATABASE.to_owned(),
            home: FIRST_DATABASE.to_owned(),
            trace_flags: BTreeSet::new(),
            variables: Variables::default(),
            error: 0,
            row_count: 0,
            caught: None,
            transactions: 0,
            implicit: false,
            aborts: false,
            nocount: false,
            held: BTreeSet::new(),
            cancel: Arc::new(AtomicBool::new(false)),
            given: Claim::default(),
            nesting: 0,
            tries: 0,
            engine: query::Kept::default(),
            reader: query::Reader::default(),
        }
    }

    /// The same, ended by a flag that somebody else owns, such as Ctrl-C's.
    pub fn with_cancel(server: Arc<Server>, login: Login, cancel: Arc<AtomicBool>) -> Session {
        Session {
            cancel,
            ..Session::new(server, login)
        }
    }

    /// The database in use is the login's: where [`Session::reset`] goes back to.
    pub fn settle(&mut self) {
        self.home = self.database.clone();
    }

    /// Forgets what the session was told, as if it had just begun; `@@SPID` stays, and open transactions if asked to.
    /// For pools that hand a connection on.
    pub fn reset(&mut self, keep_transactions: bool) {
        self.database = self.home.clone();
        self.trace_flags.clear();
        self.variables = Variables::default();
        self.error = 0;
        self.row_count = 0;
        if !keep_transactions {
            self.transactions = 0;
        }
        self.implicit = false;
        self.aborts = false;
        self.nocount = false;
        self.held.clear();
    }

    /// Set it from any thread to end the statement that runs: a backup leaves nothing behind and says 3204, the batch
    /// ends. It stays set until its owner clears it, before the next batch.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }

    /// `@@SPID`
    pub fn id(&self) -> u32 {
        self.number.get()
    }

    /// The database in use.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Runs one batch: what stands between two GOs. Blocks until it has ended.
    ///
    /// Errors of the batch are messages to the sink; only a client that is gone is an error here.
    pub fn run(&mut self, batch: &str, sink: &mut dyn Sink) -> Result<Outcome, Closed> {
        self.run_with(batch, BTreeMap::new(), sink)
    }

    /// The same, with variables that are declared already: a protocol's parameters. Names begin with @ and are in
    /// lower case.
    pub fn run_with(
        &mut self,
        batch: &str,
        variables: BTreeMap<String, Variable>,
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Closed> {
        self.outermost(variables, sink, |session, out| session.batch(batch, out))
    }

    /// Calls a procedure by its name, as a protocol does; else the same as EXEC in a batch. Outputs come back in the
    /// arguments, its return status in the outcome.
    pub fn call(
        &mut self,
        procedure: &str,
        arguments: &mut [Argument],
        sink: &mut dyn Sink,
    ) -> Result<Outcome, Closed> {
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
    ) -> Result<Outcome, Closed> {
        let mut out = Out {
            sink,
            line: 1,
            nocount: self.nocount,
            outcome: Outcome::default(),
            last_error: 0,
        };
        self.tries = 0;
        self.rest();
        self.server.refresh();
        let claimed = self.server.setup.memory.claim(0);
        let variables = claimed.and_then(|claim| Variables::new(variables, 0, claim));
        let flow = match variables {
            Ok(variables) => {
                self.variables = variables;
                run(self, &mut out)
            }
            Err(message) => Err(message.into()),
        };
        self.leave();
        // A session that waits for its client keeps no engine.
        self.engine.drop_it();
        self.reader.forget();
        let flow = match flow {
            Err(Stop::Failed(messages)) => self.fail(messages, &mut out),
            other => other,
        };
        match flow {
            Err(Stop::Closed(closed)) => Err(closed),
            _ => Ok(out.outcome),
        }
    }

    /// What the last call gave back was sent: its memory is free for others.
    pub fn rest(&mut self) {
        self.engine.drop_it();
        self.variables = Variables::default();
        self.given = Claim::default();
    }

    /// Memory for what reading a text of statements makes of it. Errors: 701.
    pub fn claim_for(&self, text: &str) -> Result<Claim, Message> {
        let bytes = text.len().saturating_mul(READ_FACTOR);
        self.server.setup.memory.claim(bytes)
    }

    fn batch(&mut self, text: &str, out: &mut Out) -> Flow {
        let _claim = self.claim_for(text)?;
        let batch = parse(text)?;
        check(&batch, self.variables.names(), &self.reader)?;
        for located in &batch.statements {
            if let Statement::SetOption(words) = &located.statement
                && words.iter().any(|w| w == PARSE_ONLY)
            {
                self.hold(words);
            }
        }
        self.statements(&batch.statements, out)
    }

    /// A batch inside a batch: a text that a variable holds.
    pub(crate) fn nested(
        &mut self,
        text: &str,
        variables: BTreeMap<String, Variable>,
        out: &mut Out,
    ) -> Result<BTreeMap<String, Variable>, Stop> {
        if self.nesting >= NESTING_MAX {
            return Err(message::NESTED_TOO_DEEPLY.plain().into());
        }
        let claim = self.server.setup.memory.claim(0)?;
        let outside = self.variables.bytes() + text.len();
        let variables = Variables::new(variables, outside, claim)?;
        let outer = std::mem::replace(&mut self.variables, variables);
        let line = out.line;
        self.nesting += 1;
        // What its last statement leaves is what the statement that called it leaves.
        self.error = 0;
        let flow = self.batch(text, out);
        self.nesting -= 1;
        out.line = line;
        let inner = std::mem::replace(&mut self.variables, outer);
        match flow {
            Ok(()) | Err(Stop::Return | Stop::EndOwnBatch) => Ok(inner.into_all().0),
            Err(stop) => Err(stop),
        }
    }

    pub(crate) fn statements(&mut self, all: &[Located], out: &mut Out) -> Flow {
        all.iter()
            .try_for_each(|located| self.statement(located, out))
    }

    /// One statement; in a TRY block its failure is the block's, elsewhere it is said.
    fn statement(&mut self, located: &Located, out: &mut Out) -> Flow {
        if self.cancel.load(Ordering::Relaxed) {
            return self
                .fail(vec![message::ABORTED.plain()], out)
                .and(Err(Stop::EndBatch));
        }
        if !self.held.is_empty() && !matches!(located.statement, Statement::SetOption(_)) {
            return Ok(());
        }
        out.line = located.line;
        let is_call = matches!(
            located.statement,
            Statement::Execute(_) | Statement::ExecuteText(_)
        );
        let flow = self.execute(&located.statement, out);
        match flow {
            Err(Stop::Failed(messages)) => {
                let line = out.line;
                let said: Vec<_> = messages.into_iter().map(|m| m.at_line(line)).collect();
                let last = said.iter().rev().find(|m| m.is_error());
                self.error = last.map_or(0, |m| m.number);
                match self.tries {
                    // A batch inside a batch that cannot be read does not end the one around it.
                    0 if is_call => match self.fail(said, out) {
                        Err(Stop::EndOwnBatch) => Ok(()),
                        other => other,
                    },
                    0 => self.fail(said, out),
                    // CATCH handles errors; what only informs is said at once.
                    _ => {
                        let (errors, rest): (Vec<_>, Vec<_>) =
                            said.into_iter().partition(Message::is_error);
                        for message in rest {
                            out.sink.message(&message)?;
                        }
                        Err(Stop::Failed(errors))
                    }
                }
            }
            Ok(()) => {
                if !keeps_error(&located.statement) {
                    self.error = 0;
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Says why, and whether the batch goes on.
    fn fail(&mut self, messages: Vec<Message>, out: &mut Out) -> Flow {
        let aborts = self.aborts && messages.iter().any(Message::is_error);
        let ends_all = aborts || messages.iter().any(ends_all_batches);
        let ends_own = messages.iter().any(ends_own_batch);
        for message in messages {
            out.count(&message);
            out.sink.message(&message)?;
        }
        out.sink.done(Done {
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

    fn execute(&mut self, statement: &Statement, out: &mut Out) -> Flow {
        match statement {
            Statement::Backup(backup) => statement::backup(self, backup, out),
            Statement::Restore(restore) => statement::restore(self, restore, out),
            Statement::HardwareOffload(offload) => statement::hardware_offload(self, offload, out),
            Statement::Reconfigure { .. } => statement::reconfigure(self, out),
            Statement::Use(name) => self.use_database(name, out),
            Statement::AlterAccess { database, .. } => self.alter_access(database, out),
            Statement::DropDatabase { .. } if self.transactions > 0 => {
                Err(message::NOT_IN_TRANSACTION.with(&[&"DROP DATABASE"]).into())
            }
            Statement::DropDatabase { if_exists, names } => {
                statement::drop_databases(self, names, *if_exists, out)
            }
            Statement::Declare(all) => all.iter().try_for_each(|d| self.declare(d)),
            Statement::Assign {
                variable,
                operator,
                value,
            } => self.assign(variable, operator, value),
            Statement::SetOption(words) => {
                self.set_option(words)?;
                out.nocount = self.nocount;
                Ok(out.done(Command::Other, None)?)
            }
            Statement::Print(value) => {
                let Variable { kind, value } = query::scalar(self, value)?;
                let text = match convert_from(&value, kind, Type::NVarChar(Some(4000)))? {
                    Value::Null => String::new(),
                    value => value.to_string(),
                };
                Ok(out.say(message::PRINTED.with(&[&text]))?)
            }
            Statement::Execute(execute) => statement::execute(self, execute, out),
            Statement::ExecuteText(text) => {
                let text = match query::scalar(self, text)?.value {
                    Value::Null => String::new(),
                    value => value.to_string(),
                };
                self.nested(&text, BTreeMap::new(), out)?;
                Ok(())
            }
            Statement::Dbcc(dbcc) => statement::dbcc(self, dbcc, out),
            Statement::Query(query) => query::select(self, query, out),
            Statement::If {
                condition,
                then,
                otherwise,
            } => {
                let branch = match query::holds(self, condition)? {
                    true => Some(then),
                    false => otherwise.as_ref(),
                };
                branch.map_or(Ok(()), |branch| self.statement(branch, out))
            }
            Statement::While { condition, body } => self.repeat(condition, body, out),
            Statement::Block(all) => self.statements(all, out),
            Statement::Try { body, catch } => self.try_catch(body, catch, out),
            Statement::Transaction(what) => {
                self.transaction(*what)?;
                Ok(out.done(Command::Other, None)?)
            }
            Statement::Break => Err(Stop::Break),
            Statement::Continue => Err(Stop::Continue),
            Statement::Return => Err(Stop::Return),
        }
    }

    fn repeat(&mut self, condition: &Fragment, body: &Located, out: &mut Out) -> Flow {
        let line = out.line;
        while query::holds(self, condition)? {
            match self.statement(body, out) {
                Ok(()) | Err(Stop::Continue) => {}
                Err(Stop::Break) => break,
                other => return other,
            }
            out.line = line;
            if self.cancel.load(Ordering::Relaxed) {
                return Err(message::ABORTED.plain().into());
            }
        }
        Ok(())
    }

    fn try_catch(&mut self, body: &[Located], catch: &[Located], out: &mut Out) -> Flow {
        self.tries += 1;
        let flow = self.statements(body, out);
        self.tries -= 1;
        let Err(Stop::Failed(messages)) = flow else {
            return flow;
        };
        let last = messages.into_iter().rev().find(Message::is_error);
        let outer = std::mem::replace(&mut self.caught, last);
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
                found.ok_or_else(|| message::DATABASE_MISSING.with(&[&name]))?
            }
        };
        let from = std::mem::replace(&mut self.database, known.clone());
        out.sink.database_changed(&from, &known)?;
        out.say(message::DATABASE_CHANGED.with(&[&known]))?;
        Ok(out.done(Command::Other, None)?)
    }

    /// Nobody is kept out: sessions here hold no database, and other programs have it from its own server. A restore
    /// looks for itself whether it may go on. Errors: 5011, 5069.
    fn alter_access(&self, name: &str, out: &mut Out) -> Flow {
        let mut known = self.server.database_names().into_iter();
        let is_current = name.eq_ignore_ascii_case("CURRENT");
        if !is_current && !known.any(|known| known.eq_ignore_ascii_case(name)) {
            let missing = message::ALTER_MISSING.with(&[&name]);
            return Err(vec![missing, message::ALTER_FAILED.plain()].into());
        }
        let text = "who may use the database is its own server's to say: nothing was changed";
        out.say(message::DETAIL.with(&[&text]))?;
        Ok(out.done(Command::Other, None)?)
    }

    fn declare(&mut self, declaration: &Declaration) -> Flow {
        let kind = statement::type_of(&declaration.kind)?;
        let value = match &declaration.value {
            Some(value) => self.value_as(value, kind)?,
            None => Value::Null,
        };
        let variable = Variable { kind, value };
        Ok(self.variables.declare(&declaration.variable, variable)?)
    }

    fn assign(&mut self, variable: &str, operator: &str, value: &Fragment) -> Flow {
        let kind = self.variable(variable)?.kind;
        let value = match operator {
            "" => value.clone(),
            operator => Fragment {
                text: format!("{variable} {operator} ( {value} )"),
            },
        };
        let value = self.value_as(&value, kind)?;
        Ok(self.set_variable(variable, value)?)
    }

    /// The value of an expression in another type.
    fn value_as(&self, expression: &Fragment, to: Type) -> Result<Value, Message> {
        let found = query::scalar(self, expression)?;
        convert_from(&found.value, found.kind, to)
    }

    /// Errors: 3902, 3903.
    fn transaction(&mut self, what: Transaction) -> Result<(), Message> {
        self.transactions = match (what, self.transactions) {
            (Transaction::Begin, open) => open.saturating_add(1),
            (Transaction::Commit, 0) => return Err(message::NOTHING_TO_COMMIT.plain()),
            (Transaction::Rollback, 0) => return Err(message::NOTHING_TO_ROLL_BACK.plain()),
            (Transaction::Commit, open) => open - 1,
            (Transaction::Rollback, _) => 0,
        };
        Ok(())
    }

    /// Options under which nothing runs, ON or OFF.
    fn hold(&mut self, words: &[String]) {
        let on = words.last().is_some_and(|w| w == "ON");
        for option in HOLDING.iter().filter(|o| words.iter().any(|w| w == *o)) {
            match on {
                true => self.held.insert(option),
                false => self.held.remove(option),
            };
        }
    }

    /// What clients set for a session: row counts, transactions that begin unasked, whether an error ends its batch, and
    /// what runs at all. Errors: 50002 for what would change answers, and does not here.
    fn set_option(&mut self, words: &[String]) -> Flow {
        let on = words.last().is_some_and(|w| w == "ON");
        self.hold(words);
        let shows = |w: &&String| *w == "FMTONLY" || w.starts_with("SHOWPLAN_");
        if let Some(word) = words.iter().find(shows).filter(|_| on) {
            let what = format!("SET {word} ON (nothing runs until it is OFF)");
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        if let Some(what) = unheard_of(words) {
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        if words.iter().any(|w| w == "XACT_ABORT") {
            self.aborts = on;
        }
        if words.iter().any(|w| w == "NOCOUNT") {
            self.nocount = on;
        }
        if words.iter().any(|w| w == "IMPLICIT_TRANSACTIONS") {
            self.implicit = on;
        }
        Ok(())
    }

    /// Errors: 3021.
    pub(crate) fn check_no_transaction(&self) -> Result<(), Message> {
        match self.transactions {
            0 => Ok(()),
            _ => Err(message::IN_TRANSACTION.plain()),
        }
    }

    /// A query that reads tables begins a transaction where its client's driver has said so.
    pub(crate) fn begin_implicitly(&mut self) {
        if self.implicit && self.transactions == 0 {
            self.transactions = 1;
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Result<&Variable, Message> {
        let found = self.variables.get(name);
        found.ok_or_else(|| message::NOT_DECLARED.with(&[&name]))
    }

    /// Only what was declared is set; what was not has been refused before. Errors: more than a session can hold.
    pub(crate) fn set_variable(&mut self, name: &str, value: Value) -> Result<(), Message> {
        self.variables.set(name, value)
    }

    /// The value of an option or an argument.
    pub(crate) fn value_of(&self, operand: &Operand) -> Result<Value, Message> {
        Ok(match operand {
            Operand::Integer(n) => Value::Int(*n),
            Operand::Number(text) => query::literal(text),
            Operand::Text(text) => Value::text(text.as_str()),
            Operand::Variable(name) if name.starts_with("@@") => query::global(self, name)?.1,
            Operand::Variable(name) => self.variable(name)?.value.clone(),
            Operand::Null => Value::Null,
        })
    }

    pub(crate) fn name_of(&self, name: &Name) -> Result<String, Message> {
        match name {
            Name::Literal(name) => Ok(name.clone()),
            Name::Variable(name) => Ok(match &self.variable(name)?.value {
                Value::Null => String::new(),
                value => value.to_string(),
            }),
        }
    }

    /// The house, ended by this session's flag.
    pub(crate) fn house(&self) -> House {
        House {
            cancel: self.cancel.clone(),
            ..self.server.setup.house.clone()
        }
    }

    /// Whether a TRY block is around what runs.
    pub(crate) fn tries(&self) -> bool {
        self.tries > 0
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    pub(crate) fn traces(&self, flag: i64) -> bool {
        self.trace_flags.contains(&flag) || self.server.trace_flags.lock().contains(&flag)
    }

    /// Shows in `sys.dm_exec_requests` what the session does now.
    pub(crate) fn enter(&self, command: &'static str, database: &str) {
        let activity = Activity {
            command,
            database: database.to_owned(),
            start: self.server.now(),
            percent: None,
        };
        self.server.activities.lock().insert(self.id(), activity);
    }

    pub(crate) fn progress(&self, percent: u8) {
        if let Some(activity) = self.server.activities.lock().get_mut(&self.id()) {
            activity.percent = Some(percent);
        }
    }

    pub(crate) fn leave(&self) {
        self.server.activities.lock().remove(&self.id());
    }
}

/// Statements after which `@@ERROR` is what it was: IF, loops, blocks and calls leave what the last statement inside left,
/// and a declaration without a value does nothing.
fn keeps_error(statement: &Statement) -> bool {
    match statement {
        Statement::If { .. }
        | Statement::While { .. }
        | Statement::Block(_)
        | Statement::Try { .. }
        | Statement::Execute(_)
        | Statement::ExecuteText(_) => true,
        Statement::Declare(all) => all.iter().all(|d| d.value.is_none()),
        _ => false,
    }
}

/// Mistakes of grammar and of names that a statement is compiled with: SQL Server gives up the batch that they are in.
fn ends_own_batch(message: &Message) -> bool {
    message.severity == 15 || matches!(message.number, 207..=209)
}

/// Conversions that fail: SQL Server gives up every batch.
fn ends_all_batches(message: &Message) -> bool {
    matches!(message.number, 241 | 245 | 8114)
}
