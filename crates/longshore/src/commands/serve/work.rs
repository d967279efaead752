//! Runs requests: batches, calls, prepared statements; and formats their answers for the wire.
//!
//! Invariants
//! - One worker has one session and runs one request at a time.
//! - The number and the length of a client's prepared statements are bounded, and their memory is claimed from that of
//!   all sessions.
//! - A request that cannot be decoded is answered with an error, and later ones are served.
//!
//! Leaves to others: bytes on the wire (`tds`, `wire.rs`), logins (`logins.rs`), and the language (`tsql`).

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_tds::{Call, Notice, Parameter, Procedure, Reset, Transaction};
use longshore_tsql::syntax::parse;
use longshore_tsql::{
    Argument, Claim, Column, Command, DoneEvent, Message, ReceiverGone, Recorder, Session, Sink,
    Type, Value, Variable, message,
};

use super::wire::Wire;
use super::{convert, odbc};

/// One request.
pub enum Work {
    Batch(String),
    Calls(Vec<Call>),
    Transaction(Transaction),
    /// The client cancelled the request before it was complete.
    Ignored,
    /// There was no memory for the request.
    NoRoom,
    /// The request cannot be decoded, but later ones can.
    Refused(longshore_tds::Error),
}

/// The maximum number of statements that a client keeps prepared, and bytes of their texts.
const PREPARED_MAX: usize = 1000;
const PREPARED_LEN_MAX: usize = 16 << 20;

/// Texts, or NULL: exactly the measured bytes are kept.
#[derive(Clone)]
struct PreparedText {
    parameters: Option<String>,
    statement: Option<String>,
}

impl PreparedText {
    fn len(&self) -> usize {
        let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        len(&self.parameters) + len(&self.statement)
    }
}

/// A session and its client's prepared statements.
pub struct Worker {
    session: Session,
    server: Arc<str>,
    prepared: BTreeMap<i32, PreparedText>,
    /// The memory of the prepared statements.
    claim: Claim,
    next_handle: i32,
    /// A message ended the session.
    ended: bool,
    /// Whether the procedure that was just called has failed; `None`: none was.
    has_failed: Option<bool>,
}

impl Worker {
    /// `server`: its name in messages. `claim`: taken from the memory of all sessions.
    pub fn new(session: Session, server: Arc<str>, claim: Claim) -> Worker {
        Worker {
            session,
            server,
            prepared: BTreeMap::new(),
            claim,
            next_handle: 1,
            ended: false,
            has_failed: None,
        }
    }

    /// Runs a request and sends its answer except for the end. `reset`: as if the session had just begun. Returns whether
    /// the session goes on; otherwise the connection is to be closed after the answer.
    pub fn run(&mut self, work: Work, reset: Option<Reset>, wire: &Wire) -> bool {
        // A client that is gone gets nothing more; its request has been ended by then.
        let _gone = self.answer(work, reset, wire);
        self.session.rest();
        !self.ended
    }

    fn answer(
        &mut self,
        work: Work,
        reset: Option<Reset>,
        wire: &Wire,
    ) -> Result<(), ReceiverGone> {
        let server = self.server.clone();
        if let Some(reset) = reset {
            let from = self.session.database().to_owned();
            self.session.reset(reset == Reset::KeepTransaction);
            self.prepared.clear();
            self.claim_prepared();
            let to = self.session.database();
            wire.say(|reply| {
                reply.reset_done();
                if from != to {
                    reply.database_changed(&from, to);
                }
            })?;
        }
        let mut sink = Answer::new(wire, &server);
        match work {
            Work::Batch(text) => {
                self.ended |= self.session.run(&text, &mut sink)?.ended;
                Ok(())
            }
            Work::Calls(calls) => calls
                .into_iter()
                .try_for_each(|call| self.call(call, wire, &server)),
            Work::Transaction(what) => self.transaction(what, wire, &mut sink),
            Work::Ignored => sink.failed(),
            Work::NoRoom => {
                sink.message(&message::NO_MEMORY.plain())?;
                sink.failed()
            }
            Work::Refused(error) => {
                sink.message(&message::OWN.with(&[&format!("the request was refused: {error}")]))?;
                sink.failed()
            }
        }
    }

    fn transaction(
        &mut self,
        what: Transaction,
        wire: &Wire,
        sink: &mut Answer,
    ) -> Result<(), ReceiverGone> {
        let named = |verb: &str, name: &str| match name {
            "" => format!("{verb} TRANSACTION"),
            name => format!("{verb} TRANSACTION [{}]", name.replace(']', "]]")),
        };
        let (text, begins) = match &what {
            Transaction::Begin { name } => (named("BEGIN", name), false),
            Transaction::Commit { begins } => (named("COMMIT", ""), *begins),
            Transaction::Rollback { name, begins } => (named("ROLLBACK", name), *begins),
            Transaction::Save { name } => (named("SAVE", name), false),
            Transaction::Other => {
                sink.message(&message::NOT_HERE.with(&[&"this kind of transaction"]))?;
                return sink.failed();
            }
        };
        let mut steps = vec![(text, what)];
        if begins {
            let name = String::new();
            steps.push((named("BEGIN", ""), Transaction::Begin { name }));
        }
        for (text, what) in steps {
            let mut record = Recorder::default();
            let outcome = self.session.run(&text, &mut record)?;
            record.messages().try_for_each(|m| sink.message(m))?;
            if outcome.failed() {
                return sink.failed();
            }
            // A transaction that returned to a savepoint goes on.
            if matches!(what, Transaction::Rollback { .. }) && self.session.is_in_transaction() {
                return Ok(());
            }
            // There is only one transaction at a time, so its number is constant.
            wire.say(|reply| reply.transaction(&what, 1))?;
        }
        Ok(())
    }

    fn call(&mut self, call: Call, wire: &Wire, server: &str) -> Result<(), ReceiverGone> {
        wire.say(|reply| reply.procedure_began())?;
        let mut sink = Answer {
            in_call: true,
            ..Answer::new(wire, server)
        };
        let mut arguments: Vec<_> = call.parameters.into_iter().map(argument).collect();
        let status = match call.procedure {
            Procedure::ExecuteSql => self.execute("sp_executesql", &mut arguments, &mut sink)?,
            Procedure::Named(name) => self.execute(&name, &mut arguments, &mut sink)?,
            Procedure::Prepare => self.prepare(&mut arguments, &mut sink)?,
            Procedure::PrepExec => match self.prepare(&mut arguments, &mut sink)? {
                0 => self.execute_first(&mut arguments, &mut sink)?,
                failed => failed,
            },
            Procedure::PrepExecCall => self.execute_call(&mut arguments, &mut sink)?,
            Procedure::Execute => self.execute_prepared(&mut arguments, &mut sink)?,
            Procedure::Unprepare => {
                let handle = handle_of(&arguments);
                match self.prepared.remove(&handle) {
                    Some(_) => {
                        self.claim_prepared();
                        0
                    }
                    None => sink.refuse(message::NOT_PREPARED.with(&[&handle]))?,
                }
            }
            Procedure::Numbered(number) => sink.refuse(unserved(number))?,
        };
        // A procedure's own status does not say that it failed.
        let error = self.has_failed.take().unwrap_or(status != 0);
        wire.say(|reply| {
            reply.return_status(status);
            for (i, argument) in arguments.iter().enumerate().filter(|(_, a)| a.output) {
                let name = argument.name.as_deref().unwrap_or_default();
                let Variable { kind, value } = &argument.variable;
                let place = u16::try_from(i).unwrap_or(u16::MAX);
                let newer = reply.has_newer_moments();
                let (kind, value) = (convert::kind(*kind, newer), convert::value(value, newer));
                reply.return_value(name, place, kind, &value);
            }
            reply.procedure_ended(longshore_tds::DoneToken {
                command: Command::Execute as u16,
                rows: None,
                error,
            });
        })
    }

    /// Arguments: handle, parameters, statement, then the statement's own arguments. Executes what was just prepared.
    fn execute_first(
        &mut self,
        arguments: &mut Vec<Argument>,
        sink: &mut Answer,
    ) -> Result<i32, ReceiverGone> {
        let passed = arguments.split_off(3);
        // `sp_executesql` takes the statement first.
        let mut all: Vec<_> = arguments.iter().skip(1).rev().map(unnamed).collect();
        all.extend(passed);
        let status = self.execute("sp_executesql", &mut all, sink)?;
        arguments.extend(all.split_off(2));
        Ok(status)
    }

    /// Arguments: handle, the text of the call, then the values for its question marks.
    fn execute_call(
        &mut self,
        arguments: &mut Vec<Argument>,
        sink: &mut Answer,
    ) -> Result<i32, ReceiverGone> {
        let told = arguments.get(1).and_then(|call| text(call).ok().flatten());
        let Some(told) = told else {
            let missing = message::PARAMETER_MISSING.with(&[&"sp_prepexecrpc", &"@rpccall"]);
            return sink.refuse(missing);
        };
        let marks: Vec<_> = arguments[2..].iter().map(mark).collect();
        let made = match odbc::call(&told, &marks) {
            Ok(made) => made,
            Err(wrong) => {
                sink.message(&wrong)?;
                return sink.refuse(message::CANNOT_PREPARE.plain());
            }
        };
        let texts = [made.parameters, made.statement].map(|text| Argument {
            name: None,
            variable: Variable {
                kind: Type::NVarChar(None),
                value: Value::Text(text),
            },
            default: false,
            output: false,
        });
        arguments.splice(1..2, texts);
        match self.prepare(arguments, sink)? {
            0 => self.execute_first(arguments, sink),
            failed => Ok(failed),
        }
    }

    /// Returns the return status; 0 on success.
    fn execute(
        &mut self,
        procedure: &str,
        arguments: &mut [Argument],
        sink: &mut Answer,
    ) -> Result<i32, ReceiverGone> {
        let outcome = self.session.call(procedure, arguments, sink)?;
        self.ended |= outcome.ended;
        self.has_failed = Some(outcome.failed());
        Ok(match outcome.status {
            0 => outcome.failed().into(),
            status => status,
        })
    }

    fn prepared_len(&self) -> usize {
        self.prepared.values().map(PreparedText::len).sum()
    }

    /// Shrinks the claim after a prepared statement was dropped.
    fn claim_prepared(&mut self) {
        // A smaller claim always fits.
        let _fits = self.claim.resize(self.prepared_len());
    }

    /// Arguments: handle (out), parameters, statement. Keeps the statement under a new handle.
    fn prepare(
        &mut self,
        arguments: &mut [Argument],
        sink: &mut Answer,
    ) -> Result<i32, ReceiverGone> {
        let [handle, parameters, statement, ..] = arguments else {
            let missing = message::PARAMETER_MISSING.with(&[&"sp_prepare", &"@stmt"]);
            return sink.refuse(missing);
        };
        let (Ok(parameters), Ok(statement)) = (text(parameters), text(statement)) else {
            let text = "a statement is prepared from texts: its parameters and itself";
            return sink.refuse(message::OWN.with(&[&text]));
        };
        let read = statement.as_deref().unwrap_or_default();
        let read = self.session.claim_for(read).and_then(|claim| {
            parse(read)?;
            Ok(claim)
        });
        if let Err(wrong) = read {
            sink.message(&wrong)?;
            return sink.refuse(message::CANNOT_PREPARE.plain());
        }
        let prepared = PreparedText {
            parameters,
            statement,
        };
        let held = self.prepared_len();
        if self.prepared.len() >= PREPARED_MAX || held + prepared.len() > PREPARED_LEN_MAX {
            let text = "too many statements are prepared; unprepare some, or reconnect";
            return sink.refuse(message::OWN.with(&[&text]));
        }
        if let Err(full) = self.claim.resize(held + prepared.len()) {
            sink.message(&full)?;
            return sink.refuse(message::CANNOT_PREPARE.plain());
        }
        self.prepared.insert(self.next_handle, prepared);
        handle.variable = Variable {
            kind: Type::Int,
            value: Value::Int(self.next_handle.into()),
        };
        handle.output = true;
        self.next_handle = self.next_handle.checked_add(1).unwrap_or(1);
        Ok(0)
    }

    /// Arguments: handle, then the statement's own arguments.
    fn execute_prepared(
        &mut self,
        arguments: &mut Vec<Argument>,
        sink: &mut Answer,
    ) -> Result<i32, ReceiverGone> {
        let handle = handle_of(arguments);
        let Some(prepared) = self.prepared.get(&handle).cloned() else {
            return sink.refuse(message::NOT_PREPARED.with(&[&handle]));
        };
        let given = |text: Option<String>| Argument {
            name: None,
            variable: Variable {
                kind: Type::NVarChar(None),
                value: text.map_or(Value::Null, Value::Text),
            },
            default: false,
            output: false,
        };
        let mut all = vec![given(prepared.statement), given(prepared.parameters)];
        all.extend(arguments.drain(1..));
        let status = self.execute("sp_executesql", &mut all, sink)?;
        arguments.extend(all.split_off(2));
        Ok(status)
    }
}

fn argument(parameter: Parameter) -> Argument {
    Argument {
        // Some drivers omit the @.
        name: match parameter.name.as_str() {
            "" => None,
            name if name.starts_with('@') => Some(name.to_owned()),
            name => Some(format!("@{name}")),
        },
        variable: Variable {
            kind: convert::kind_back(parameter.kind),
            value: convert::value_back(parameter.value, parameter.kind),
        },
        default: parameter.default,
        output: parameter.output,
    }
}

/// Why a procedure that drivers call by its number is not here (MS-TDS 2.2.6.6).
fn unserved(number: u16) -> Message {
    let name = match number {
        1 => "sp_cursor",
        2 => "sp_cursoropen",
        3 => "sp_cursorprepare",
        4 => "sp_cursorexecute",
        5 => "sp_cursorprepexec",
        6 => "sp_cursorunprepare",
        7 => "sp_cursorfetch",
        8 => "sp_cursoroption",
        9 => "sp_cursorclose",
        other => {
            let name = format!("number {other}");
            return message::PROCEDURE_UNKNOWN.with(&[&name]);
        }
    };
    let what = format!("{name} (a cursor of a driver; ask for a forward-only, read-only result)");
    message::NOT_HERE.with(&[&what])
}

/// The text to prepare. Anything but a text or NULL is returned as the error.
fn text(argument: &Argument) -> Result<Option<String>, &Value> {
    match &argument.variable.value {
        Value::Null => Ok(None),
        Value::Text(text) => Ok(Some(text.clone())),
        other => Err(other),
    }
}

/// The value for a question mark of a call.
fn mark(argument: &Argument) -> odbc::Mark {
    odbc::Mark {
        kind: argument.variable.kind,
        output: argument.output,
    }
}

fn unnamed(argument: &Argument) -> Argument {
    Argument {
        name: None,
        ..argument.clone()
    }
}

/// 0 means no handle.
fn handle_of(arguments: &[Argument]) -> i32 {
    match arguments.first().map(|a| &a.variable.value) {
        Some(Value::Int(n)) => i32::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

/// A message in its wire form.
pub fn notice<'a>(message: &'a Message, server: &'a str) -> Notice<'a> {
    Notice {
        number: message.number,
        state: message.state,
        class: message.class(),
        text: &message.text,
        server,
        procedure: message.procedure.as_deref().unwrap_or_default(),
        line: message.line,
        is_error: message.is_error(),
    }
}

/// The sink that sends a session's answers to the client.
struct Answer<'a> {
    wire: &'a Wire,
    server: &'a str,
    /// Whether statements run inside a call.
    in_call: bool,
    /// Whether a result set has begun and not ended.
    open: bool,
}

impl<'a> Answer<'a> {
    fn new(wire: &'a Wire, server: &'a str) -> Answer<'a> {
        Answer {
            wire,
            server,
            in_call: false,
            open: false,
        }
    }

    fn failed(&mut self) -> Result<(), ReceiverGone> {
        self.done(DoneEvent {
            command: Command::Other,
            rows: None,
            error: true,
        })
    }

    /// Reports why a call fails; returns its return status.
    fn refuse(&mut self, why: Message) -> Result<i32, ReceiverGone> {
        self.message(&why)?;
        self.failed()?;
        Ok(1)
    }
}

impl Sink for Answer<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        self.open = true;
        self.wire.say(|reply| {
            let newer = reply.has_newer_moments();
            reply.columns(columns.iter().map(|c| convert::column(c, newer)));
        })
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        self.wire.say(|reply| {
            let newer = reply.has_newer_moments();
            reply.row(row.iter().map(|v| convert::value(v, newer)));
        })
    }

    /// Messages of a running backup are urgent, so each one is sent at once.
    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.wire
            .say_now(|reply| reply.notice(notice(message, self.server)))
    }

    fn done(&mut self, done: DoneEvent) -> Result<(), ReceiverGone> {
        let open = std::mem::take(&mut self.open);
        let ended = longshore_tds::DoneToken {
            command: done.command as u16,
            rows: done.rows,
            error: done.error,
        };
        self.wire.say(|reply| {
            if done.command != Command::Execute || self.in_call {
                return reply.done(ended);
            }
            // A procedure in a batch ends as a call does.
            if open {
                reply.procedure_began();
                reply.done(longshore_tds::DoneToken {
                    command: Command::Select as u16,
                    ..ended
                });
            }
            reply.return_status(0);
            reply.procedure_ended(longshore_tds::DoneToken {
                rows: None,
                ..ended
            });
        })
    }

    fn database_changed(&mut self, from: &str, to: &str) -> Result<(), ReceiverGone> {
        self.wire.say(|reply| reply.database_changed(from, to))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use longshore_io::HostClock;

    use super::*;
    use crate::commands::sql::sink_suite::{keeps_its_contract, legal};

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    /// The bodies of the packets, of which each has a head of 8 bytes.
    fn bodies(mut packets: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let [_, _, high, low, ..] = packets {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            bytes.extend_from_slice(&packets[8..len]);
            packets = &packets[len..];
        }
        bytes
    }

    /// Goal: a client gets everything that a session sends, in a batch and in a call.
    #[test]
    fn an_answer_takes_everything_and_sends_it() {
        for in_call in [false, true] {
            let (server, mut client) = connected();
            let reader = std::thread::spawn(move || {
                let mut bytes = Vec::new();
                client.read_to_end(&mut bytes).map(|_| bytes)
            });
            let wire = Wire::new(Arc::new(server), Arc::new(HostClock));
            wire.begin();
            let mut answer = Answer::new(&wire, "server");
            answer.in_call = in_call;
            assert_eq!(keeps_its_contract(&mut answer), 2 * legal().len());
            wire.finish().unwrap();
            wire.close();
            let bytes = bodies(&reader.join().unwrap().unwrap());
            for said in ["row 1", "row 5", "between rows", "before the first row"] {
                let wide: Vec<u8> = said.encode_utf16().flat_map(u16::to_le_bytes).collect();
                let count = bytes.windows(wide.len()).filter(|at| *at == wide).count();
                assert!(count >= 2, "{said}: {count}");
            }
        }
    }

    /// Goal: once a client is gone it stays so, whatever is sent.
    #[test]
    fn an_answer_to_a_client_that_is_gone_says_so() {
        let (server, client) = connected();
        drop(client);
        let wire = Wire::new(Arc::new(server), Arc::new(HostClock));
        wire.begin();
        let mut answer = Answer::new(&wire, "server");
        let all = 2 * legal().len();
        let mut taken = (0..100).map(|_| keeps_its_contract(&mut answer));
        assert!(
            taken.any(|taken| taken < all),
            "a client that left is missed"
        );
        let text = message::NO_MEMORY.plain();
        assert_eq!(answer.message(&text), Err(ReceiverGone));
    }
}
