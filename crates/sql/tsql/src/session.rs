//! A session: the state that lasts between its batches.
//!
//! Invariants
//! - A session belongs to one client and one thread; only its cancel flag is shared.
//! - Its memory is claimed from the server's before it is used: variables, and parsed statements by the length of their
//!   text.
//! - A reset returns it to the state after login; only its number stays, and open transactions if requested.
//!
//! Leaves to others: running batches (`run.rs`), and what all sessions share (`server`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_crypt::KeyId;
use longshore_pipeline::RunContext;

use crate::convert::{convert_given, convert_in};
use crate::cursors::Cursors;
use crate::flow::{FIRST_DATABASE, Login, Variable};
use crate::memory::Claim;
use crate::message::{self, Message};
use crate::pairs::check_implicit;
use crate::query::{
    self, BatchPlace, Compiling, FunctionCall, FunctionCode, QueryContext, Reader, SqliteCache,
};
use crate::server::{
    Activity, ClientLink, OpenMaster, Server, SessionKey, SessionNumber, SessionState,
};
use crate::syntax::{Fragment, Name, Routine, ToldOptions};
use crate::tables::SessionTables;
use crate::value::{Type, Value};
use crate::variables::Variables;

/// The most bytes that parsed statements take, for each byte of their text: the shortest statements are the worst
/// (`tests/memory.rs` measures it).
const READ_FACTOR: usize = 128;

/// A procedure that has been read.
pub(crate) struct Compiled {
    pub definition: String,
    pub routine: Arc<Routine>,
    /// For the tree.
    pub _claim: Claim,
}

/// One client's connection. Not shared between threads; its [`Session::cancel_flag`] is.
pub struct Session {
    pub(crate) server: Arc<Server>,
    /// `None`: a function's, which nobody sees.
    number: Option<SessionNumber>,
    pub(crate) login: Login,
    pub(crate) database: String,
    /// The database to which a reset returns: its login's.
    home: String,
    pub(crate) trace_flags: BTreeSet<i64>,
    /// The variables of the running batch.
    pub(crate) variables: Variables,
    /// `@@ERROR`
    pub(crate) error: u32,
    /// `@@ROWCOUNT`
    pub(crate) row_count: u64,
    /// The messages of the error that a CATCH block handles.
    /// The last of them is the one that ERROR_NUMBER and its kin show; THROW raises all of them again.
    pub(crate) caught: Vec<Message>,
    /// `@@TRANCOUNT`
    pub(crate) transactions: u32,
    /// The name of the outermost open transaction.
    pub(crate) transaction_name: Option<String>,
    /// The open transaction can only be rolled back (`XACT_STATE()` is -1).
    pub(crate) doomed: bool,
    /// `SET IMPLICIT_TRANSACTIONS ON`, as drivers without autocommit send it.
    pub(crate) implicit: bool,
    /// `SET XACT_ABORT ON`: an error ends its batch.
    pub(crate) aborts: bool,
    /// `SET ROWCOUNT n`: the most rows of a SELECT; 0: all.
    pub(crate) row_limit: u64,
    /// `SET NOCOUNT ON`: clients show no row counts.
    pub(crate) nocount: bool,
    /// Options most of which change nothing here, as they were set.
    pub(crate) told: ToldOptions,
    /// The options of `HOLDING` in `run.rs` that are ON: only SET runs.
    pub(crate) held: BTreeSet<&'static str>,
    pub(crate) cancel: Arc<AtomicBool>,
    /// For the values that a call has returned to its caller, until the next call.
    pub(crate) given: Claim,
    pub(crate) nesting: usize,
    /// The TRY blocks around the running statement, each by the nesting of its batch.
    pub(crate) tries: Vec<usize>,
    pub(crate) cursors: Cursors,
    pub(crate) tables: SessionTables,
    pub(crate) place: BatchPlace,
    /// The value of RETURN.
    pub(crate) returned: Option<i32>,
    /// Whether the running batch is that of a procedure: then RETURN may have a value.
    pub(crate) in_procedure: bool,
    /// The procedures that have run, while the outermost batch runs.
    pub(crate) compiled: BTreeMap<i64, Compiled>,
    /// The table that takes values for the column that numbers rows (`SET IDENTITY_INSERT`).
    pub(crate) identity_insert: Option<String>,
    /// The statement that runs, without its secrets, for views.
    pub(crate) running: String,
    /// The key that OPEN MASTER KEY has opened.
    pub(crate) master_key: Option<OpenMaster>,
    /// While a batch is looked through before it runs.
    pub(crate) compiling: Option<Compiling>,
    /// Hashes of the nested texts that were looked through, while the outermost batch runs.
    pub(crate) looked_through: BTreeSet<u64>,
    /// Kept while a batch runs.
    pub(crate) sqlite: SqliteCache,
    /// Kept while a batch runs.
    pub(crate) reader: Reader,
    /// Runs functions that scripts have created; set while a batch runs.
    pub(crate) function_code: FunctionCode,
    /// The type of the function that runs, and its value.
    pub(crate) function: Option<(Type, Value)>,
    /// The session that called the function that runs.
    asker: Option<u32>,
    /// The temporary tables of all sessions that this one has made.
    pub(crate) shared_tables: Vec<i64>,
    pub(crate) key: SessionKey,
}

/// The code of functions while no batch runs.
fn no_function(call: &FunctionCall, _: &[Value]) -> Result<Value, Message> {
    Err(message::OBJECT_UNKNOWN.with(&[&call.object.object.name]))
}

impl Session {
    pub fn new(server: Arc<Server>, login: Login) -> Session {
        Session::with_cancel(server, login, Arc::new(AtomicBool::new(false)))
    }

    /// `number`: `None` for one that nobody sees.
    fn made(
        server: Arc<Server>,
        login: Login,
        cancel: Arc<AtomicBool>,
        number: Option<SessionNumber>,
    ) -> Session {
        // A claim of nothing always fits.
        let claim = server.setup.memory.claim(0).unwrap_or_default();
        Session {
            tables: SessionTables::new(claim),
            place: BatchPlace::default(),
            returned: None,
            in_procedure: false,
            compiled: BTreeMap::new(),
            compiling: None,
            looked_through: BTreeSet::new(),
            identity_insert: None,
            running: String::new(),
            number,
            key: server.session_key(),
            server,
            login,
            database: FIRST_DATABASE.to_owned(),
            home: FIRST_DATABASE.to_owned(),
            trace_flags: BTreeSet::new(),
            variables: Variables::default(),
            error: 0,
            row_count: 0,
            caught: Vec::new(),
            transactions: 0,
            transaction_name: None,
            doomed: false,
            implicit: false,
            aborts: false,
            row_limit: 0,
            nocount: false,
            told: ToldOptions::default(),
            held: BTreeSet::new(),
            cancel,
            given: Claim::default(),
            nesting: 0,
            tries: Vec::new(),
            cursors: Cursors::new(),
            master_key: None,
            sqlite: SqliteCache::default(),
            reader: Reader::default(),
            function_code: no_function,
            function: None,
            asker: None,
            shared_tables: Vec::new(),
        }
    }

    /// A session in which a function runs for a query of another one.
    pub(crate) fn for_function(call: &FunctionCall) -> Session {
        let (server, login) = (call.server.clone(), call.login.clone());
        let mut session = Session::made(server, login, call.cancel.clone(), None);
        session.database = call.object.object.database.clone();
        session.nesting = call.level;
        session.place.level = i64::try_from(call.level).unwrap_or(i64::MAX);
        session.function_code = call.code;
        session.asker = Some(call.session);
        session.told.date_first = call.date_first;
        session.told.date_order = call.date_order;
        session.told.language = call.language;
        session
    }

    /// The same, ended by a flag of another owner, such as Ctrl-C's.
    pub fn with_cancel(server: Arc<Server>, login: Login, cancel: Arc<AtomicBool>) -> Session {
        let number = server.sessions.take(&login, &cancel, server.now());
        Session::made(server, login, cancel, Some(number))
    }

    /// Says how the session's client is connected. `hang` ends the connection while no batch runs: KILL calls it from another
    /// session's thread.
    pub fn connect(&self, connection: ClientLink, hang: Arc<dyn Fn() + Send + Sync>) {
        if let Some(number) = &self.number {
            number.connect(connection, hang);
        }
    }

    /// Whether KILL has ended the session.
    pub(crate) fn is_killed(&self) -> bool {
        self.number.as_ref().is_some_and(SessionNumber::is_killed)
    }

    /// Says to others what this session is now.
    pub(crate) fn say(&self, is_running: bool) {
        if let Some(number) = &self.number {
            let state = SessionState {
                database: self.database.clone(),
                is_running,
                transactions: self.transactions,
                lock_timeout: self.told.lock_timeout,
                isolation: self.told.isolation,
                date_first: self.told.date_first,
                date_order: self.told.date_order.name(),
                language: self.told.language.name(),
            };
            number.say(state, self.server.now());
        }
    }

    /// Makes the database in use the login's, to which [`Session::reset`] returns.
    pub fn settle(&mut self) {
        self.home = self.database.clone();
        self.say(false);
    }

    /// Resets the session to its initial state; `@@SPID` stays, and open transactions if requested. For pools that
    /// hand a connection on.
    pub fn reset(&mut self, keep_transactions: bool) {
        self.database = self.home.clone();
        self.trace_flags.clear();
        self.variables = Variables::default();
        self.error = 0;
        self.row_count = 0;
        if !keep_transactions {
            self.undo_at_end();
            self.end_transaction();
        }
        self.cursors.clear();
        self.tables.clear();
        self.drop_shared();
        self.server.locks.end_own(self.key);
        self.place = BatchPlace::default();
        self.identity_insert = None;
        self.master_key = None;
        self.implicit = false;
        self.aborts = false;
        self.nocount = false;
        self.row_limit = 0;
        self.told = ToldOptions::default();
        self.held.clear();
        self.say(false);
    }

    /// Setting it from any thread ends the running statement: a backup leaves nothing behind and reports 3204, and the
    /// batch ends. The flag stays set until its owner clears it, before the next batch.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }

    /// `@@SPID`
    pub fn id(&self) -> u32 {
        let own = self.number.as_ref().map(SessionNumber::get);
        self.asker.or(own).unwrap_or_default()
    }

    /// The database in use.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Declares that the values returned by the last call were sent: their memory is released.
    pub fn rest(&mut self) {
        self.sqlite.drop_it();
        self.variables = Variables::default();
        self.given = Claim::default();
    }

    /// Claims memory for parsing a text of statements. Errors: 701.
    pub fn claim_for(&self, text: &str) -> Result<Claim, Message> {
        let bytes = text.len().saturating_mul(READ_FACTOR);
        self.server.setup.memory.claim(bytes)
    }

    /// Errors: 3021.
    pub(crate) fn check_no_transaction(&self) -> Result<(), Message> {
        match self.transactions {
            0 => Ok(()),
            _ => Err(message::IN_TRANSACTION.plain()),
        }
    }

    /// The most rows that a query sends or keeps under SET ROWCOUNT.
    pub(crate) fn rows_max(&self) -> u64 {
        match self.row_limit {
            0 => u64::MAX,
            limit => limit,
        }
    }

    /// No transaction is open from now on, and the locks of the last one are free. Its rows are done with before.
    pub(crate) fn end_transaction(&mut self) {
        self.transactions = 0;
        self.transaction_name = None;
        self.doomed = false;
        self.server.locks.end_transaction(self.key);
    }

    /// A query that reads tables begins a transaction if the client's driver asked for that.
    pub(crate) fn begin_implicitly(&mut self) {
        if self.implicit && self.transactions == 0 {
            self.transactions = 1;
            self.say(true);
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Result<&Variable, Message> {
        self.variables.declared(name)
    }

    /// A variable or an `@@NAME`, with its type. Errors: 137.
    pub(crate) fn typed_variable(&self, name: &str) -> Result<Variable, Message> {
        let named = Fragment::new(name.to_owned());
        query::scalar(&self.query_context(), &named)
    }

    /// A value in another type: a text that is a date is read in the session's order. Errors: those of a conversion.
    pub(crate) fn converted(&self, value: &Value, from: Type, to: Type) -> Result<Value, Message> {
        if !value.is_null() {
            check_implicit(from, to)?;
        }
        convert_in(value, from, to, self.told.date_order)
    }

    /// The same for a value that a call gives, without its type.
    pub(crate) fn read_as(&self, value: &Value, to: Type) -> Result<Value, Message> {
        convert_given(value, to, self.told.date_order)
    }

    /// Sets a declared variable; undeclared ones were refused before. Errors: more bytes than a session can hold.
    pub(crate) fn set_variable(&mut self, name: &str, value: Value) -> Result<(), Message> {
        self.variables.set(name, value)
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

    /// The part of this session that a query may read.
    pub(crate) fn query_context(&self) -> QueryContext<'_> {
        QueryContext {
            server: &self.server,
            login: &self.login,
            database: &self.database,
            variables: &self.variables,
            id: self.id(),
            key: self.key,
            error: self.error,
            row_count: self.row_count,
            options: self.options(),
            lock_timeout: self.told.lock_timeout,
            date_first: self.told.date_first,
            date_order: self.told.date_order,
            language: self.told.language,
            transactions: self.transactions,
            doomed: self.doomed,
            caught: self.caught.last(),
            cursors: &self.cursors,
            tables: &self.tables,
            made: &[],
            tracks_rows: false,
            describes: false,
            compiling: self.compiling.as_ref(),
            place: self.place,
            cancel: &self.cancel,
            sqlite_cache: &self.sqlite,
            reader: &self.reader,
            function_code: self.function_code,
        }
    }

    /// `@@OPTIONS`
    fn options(&self) -> i64 {
        let on = [
            (self.implicit, 2),
            (self.nocount, 512),
            (self.aborts, 16_384),
        ];
        let own: i64 = on.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum();
        self.told.bits | own
    }

    /// The context with this session's cancel flag.
    pub(crate) fn context(&self) -> RunContext {
        let setup = &self.server.setup;
        let (keys, opened) = (self.server.keys.clone(), self.master_key.clone());
        let finder = move |id: &KeyId| keys.private_key(id, opened.as_ref());
        RunContext {
            // Keys of sets that this server wrote are for the statement that wrote them. Certificates are looked up when a set
            // asks for one.
            keyring: Arc::new(setup.context.keyring.with_finder(Arc::new(finder))),
            cancel: self.cancel.clone(),
            ..setup.context.clone()
        }
    }

    /// Whether a transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.transactions > 0
    }

    /// Whether a TRY block surrounds the running statement.
    pub(crate) fn tries(&self) -> bool {
        !self.tries.is_empty()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    pub(crate) fn traces(&self, flag: i64) -> bool {
        self.trace_flags.contains(&flag) || self.server.trace_flags.lock().contains(&flag)
    }

    /// Shows the session's present activity in `sys.dm_exec_requests`.
    pub(crate) fn enter(&self, command: &'static str, database: &str) {
        let activity = Activity {
            command,
            database: database.to_owned(),
            start: self.server.now(),
            percent: None,
            text: self.running.clone(),
        };
        self.server.activities.lock().insert(self.id(), activity);
    }

    /// Drops the tables of all sessions (`##`) that this one has made.
    fn drop_shared(&mut self) {
        for id in std::mem::take(&mut self.shared_tables) {
            if let Err(refused) = self.server.kept.drop_object(id) {
                let text = format!("a temporary table was not dropped: {}", refused.text);
                self.server.write_log("Server", &text);
            }
        }
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

impl Drop for Session {
    /// A client that leaves has rolled back.
    fn drop(&mut self) {
        self.undo_at_end();
        self.drop_shared();
        self.server.locks.end_session(self.key);
    }
}
