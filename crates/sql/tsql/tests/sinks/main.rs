//! Goal: the contract of [`Sink`] holds from both sides: what a sink owes a session (`suite.rs`, which sinks of other
//! tests and rooms include), and what a session owes its sink.
//! Method: a sink that notes every breach of the grammar gets the suite's events, and those of real sessions with a
//! client that leaves after each event.

#[path = "../common/mod.rs"]
mod common;
mod suite;

use common::Stage;
use longshore_tsql::{
    Column, DoneEvent, Message, ReceiverGone, Recorder, Sink, SinkEvent, Type, Value,
};
use suite::{keeps_its_contract, legal};

#[test]
fn a_recorder_takes_and_keeps_everything_in_order() {
    let mut recorder = Recorder::default();
    assert_eq!(keeps_its_contract(&mut recorder), 2 * legal().len());
    assert!(recorder.events == [legal(), legal()].concat());
}

/// Goal: the suite's events are themselves such as a session may send.
#[test]
fn the_suite_keeps_to_the_grammar() {
    let mut grammar = Grammar::default();
    assert_eq!(keeps_its_contract(&mut grammar), 2 * legal().len());
    grammar.end();
}

/// Notes whatever a sink need not expect.
#[derive(Default)]
struct Grammar {
    open: Option<Vec<Column>>,
    /// Since the last `done`.
    said: usize,
    done: usize,
    leave_after: Option<usize>,
    events: usize,
    gone: bool,
    broken: Vec<String>,
}

impl Grammar {
    fn note(&mut self, what: impl Into<String>) {
        self.broken.push(what.into());
    }

    fn event(&mut self) -> Result<(), ReceiverGone> {
        if self.gone {
            self.note("an event for a receiver that was gone");
        }
        self.events += 1;
        self.gone = self.leave_after.is_some_and(|n| self.events > n);
        match self.gone {
            true => Err(ReceiverGone),
            false => Ok(()),
        }
    }

    #[track_caller]
    fn end(&self) {
        assert_eq!(self.broken, [""; 0]);
        if !self.gone {
            assert_eq!((self.said, self.open.is_some()), (0, false), "no end");
        }
    }
}

/// Whether a column of this type may have this value.
fn fits(kind: Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Int(n) => match kind {
            Type::Bit => (0..2).contains(n),
            Type::TinyInt => (0..256).contains(n),
            Type::SmallInt => i16::try_from(*n).is_ok(),
            Type::Int => i32::try_from(*n).is_ok(),
            kind => matches!(kind, Type::BigInt | Type::SqlVariant),
        },
        Value::Decimal(decimal) => match kind {
            Type::Numeric { scale, .. } => decimal.scale == scale,
            kind => matches!(kind, Type::Money | Type::SmallMoney) && decimal.scale == 4,
        },
        Value::Float(_) => kind == Type::Float,
        Value::DateTime(_) => kind == Type::DateTime,
        Value::Temporal(at) => at.kind() == kind,
        Value::Text(_) => matches!(
            kind,
            Type::Char(_) | Type::NChar(_) | Type::VarChar(_) | Type::NVarChar(_)
        ),
        Value::Binary(_) => matches!(kind, Type::Binary(_) | Type::VarBinary(_)),
        Value::Guid(_) => kind == Type::UniqueIdentifier,
    }
}

impl Sink for Grammar {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        if columns.is_empty() {
            self.note("a result set without columns");
        }
        self.open = Some(columns.to_vec());
        self.said += 1;
        self.event()
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        match self.open.clone() {
            None => self.note("a row without columns"),
            Some(columns) if columns.len() != row.len() => self.note("a row of another length"),
            Some(columns) => {
                for (column, value) in columns.iter().zip(row) {
                    if !fits(column.kind, value) {
                        self.note(format!("{value:?} in {column:?}"));
                    }
                }
            }
        }
        self.said += 1;
        self.event()
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        if message.severity > 25 || message.line == 0 {
            self.note(format!("{message:?}"));
        }
        self.said += 1;
        self.event()
    }

    fn done(&mut self, _done: DoneEvent) -> Result<(), ReceiverGone> {
        (self.open, self.said) = (None, 0);
        self.done += 1;
        self.event()
    }

    fn database_changed(&mut self, from: &str, to: &str) -> Result<(), ReceiverGone> {
        if from.is_empty() || to.is_empty() {
            self.note("a database without a name");
        }
        self.said += 1;
        self.event()
    }
}

const BATCHES: &[&str] = &[
    "PRINT 'a'; SELECT 1 AS n, NULL AS x, 'text' AS t, GETDATE() AS d",
    "SELECT name, database_id FROM sys.databases; SELECT TOP 0 name FROM sys.databases",
    "USE shop; SELECT DB_NAME(); USE master",
    "BACKUP DATABASE shop TO DISK = 'a.bak' WITH STATS = 10",
    "RESTORE HEADERONLY FROM DISK = 'a.bak'; RESTORE FILELISTONLY FROM DISK = 'a.bak'",
    "RESTORE LABELONLY FROM DISK = 'a.bak'; RESTORE VERIFYONLY FROM DISK = 'a.bak'",
    "RESTORE DATABASE copy FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO 'copy.db'",
    "SELECT * FROM msdb.dbo.backupset; SELECT * FROM msdb.dbo.backupmediafamily",
    "SET NOCOUNT ON; SELECT 1; SET NOCOUNT OFF",
    "BACKUP DATABASE nothing TO DISK = 'b.bak'; SELECT 1",
    "SELEKT 1",
    "SELECT 1; SELECT no_such_column FROM sys.databases; PRINT 'later'",
    "BEGIN TRY RAISERROR('x', 16, 1) END TRY BEGIN CATCH SELECT ERROR_MESSAGE() END CATCH",
    "DECLARE @i int = 0; WHILE @i < 3 BEGIN SELECT @i AS i; SET @i += 1 END",
    "EXEC sp_who",
    "",
];

/// Goal: whatever a batch does, its sink gets rows that fit their columns, and an end to each statement.
#[test]
fn a_session_keeps_to_the_grammar_that_sinks_rely_on() {
    let stage = Stage::new();
    let mut session = stage.session();
    for batch in BATCHES {
        let mut grammar = Grammar::default();
        session.run(batch, &mut grammar).unwrap();
        grammar.end();
        assert!(grammar.done > 0 || grammar.events == 0, "{batch}");
    }
}

/// Goal: after a client has left, at whatever event, its sink is told nothing more.
#[test]
fn a_session_sends_nothing_to_a_client_that_is_gone() {
    let stage = Stage::new();
    for batch in &BATCHES[..6] {
        for leave_after in 0.. {
            let mut grammar = Grammar {
                leave_after: Some(leave_after),
                ..Grammar::default()
            };
            let ended = stage.session().run(batch, &mut grammar);
            grammar.end();
            assert_eq!(ended.is_err(), grammar.gone, "{batch}");
            if !grammar.gone {
                break;
            }
        }
        // The next client's batch runs as ever.
        let mut recorder = Recorder::default();
        stage.session().run(batch, &mut recorder).unwrap();
        assert!(
            recorder
                .events
                .iter()
                .any(|e| matches!(e, SinkEvent::Done(_)))
        );
    }
}
