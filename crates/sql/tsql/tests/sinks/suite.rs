//! Goal: the text of [`Sink`] as a test of any sink: it takes everything that a session may send, in an order in which
//! a session may send it.
//! Method: made-up events with every type of column, told twice. `main.rs` checks that they are legal.
//! Not covered: what a sink makes of the events; the other side, what a session owes its sink, which `main.rs` checks.

use longshore_tsql::{
    Column, Command, DateTime, Decimal, DoneEvent, Message, ReceiverGone, Sink, SinkEvent,
    Temporal, Type, Value,
};

/// Every type with a value that fits it.
fn every_type() -> Vec<(Type, Value)> {
    let moment: DateTime = "2027-01-31T02:03:04.567".parse().unwrap();
    let number = |scale| {
        Value::Decimal(Decimal {
            unscaled: -1_234_500,
            scale,
        })
    };
    let temporal = |at: Temporal| (at.kind(), Value::Temporal(at));
    let kinds = [
        (Type::Bit, Value::Int(1)),
        (Type::TinyInt, Value::Int(255)),
        (Type::SmallInt, Value::Int(-32_768)),
        (Type::Int, Value::Int(-1)),
        (Type::BigInt, Value::Int(i64::MIN)),
        (Type::numeric(38, 2), number(2)),
        (Type::Money, number(4)),
        (Type::SmallMoney, number(4)),
        (Type::Float, Value::Float(-0.5)),
        temporal(Temporal::Date(moment.date())),
        temporal(Temporal::Time(moment.time(), 3)),
        temporal(Temporal::SmallDateTime("2027-01-31T02:03".parse().unwrap())),
        (Type::DateTime, Value::DateTime(moment)),
        temporal(Temporal::DateTime2(moment, 7)),
        temporal(Temporal::DateTimeOffset(moment, -330, 3)),
        (Type::Char(4), Value::text("char")),
        (Type::NChar(4), Value::text("n\u{e4}\u{f6}\u{fc}")),
        (Type::VarChar(Some(8000)), Value::text("v".repeat(8000))),
        (Type::VarChar(None), Value::text("long ".repeat(3000))),
        (Type::NVarChar(Some(10)), Value::text("")),
        (Type::NVarChar(None), Value::text("two\nlines, \u{1b}[31m")),
        (Type::Binary(3), Value::Binary(vec![0, 255, 7])),
        (Type::VarBinary(None), Value::Binary(vec![1; 9000])),
        (Type::UniqueIdentifier, Value::Guid(Default::default())),
        (Type::SqlVariant, Value::Int(42)),
    ];
    kinds.into()
}

fn message(severity: u8, text: &str) -> SinkEvent {
    SinkEvent::Message(Message {
        number: 50_000,
        severity,
        state: 1,
        text: text.into(),
        line: 3,
        procedure: None,
    })
}

fn done(command: Command, rows: Option<u64>, error: bool) -> SinkEvent {
    SinkEvent::Done(DoneEvent {
        command,
        rows,
        error,
    })
}

fn row(values: &[&str]) -> SinkEvent {
    SinkEvent::Row(values.iter().map(|text| Value::text(*text)).collect())
}

fn columns(names: &[&str]) -> SinkEvent {
    let column = |name: &&str| Column::new(*name, Type::NVarChar(Some(40)));
    SinkEvent::Columns(names.iter().map(column).collect())
}

/// What sessions may send: no two of them in this order, but each of these orders.
pub fn legal() -> Vec<SinkEvent> {
    let (kinds, values): (Vec<_>, Vec<_>) = every_type().into_iter().unzip();
    let every: Vec<Column> = kinds
        .iter()
        .enumerate()
        .map(|(i, kind)| Column {
            name: if i == 0 {
                String::new()
            } else {
                format!("c{i}")
            },
            kind: *kind,
            nullable: true,
        })
        .collect();
    let nulls = vec![Value::Null; every.len()];
    vec![
        // Messages of every kind, outside of results.
        message(0, "begin"),
        message(10, "two\nlines"),
        message(16, ""),
        done(Command::Other, None, true),
        SinkEvent::Database("shop".into()),
        done(Command::Other, None, false),
        // Every type, and a result without rows.
        SinkEvent::Columns(every),
        SinkEvent::Row(values),
        SinkEvent::Row(nulls),
        done(Command::Select, Some(2), false),
        columns(&["empty"]),
        done(Command::Select, Some(0), false),
        // Messages between rows; one result set ends with the next one's columns.
        columns(&["one", "two"]),
        row(&["row 1", "a"]),
        message(10, "between rows"),
        row(&["row 2", "b"]),
        message(16, "an error between rows"),
        row(&["row 3", "c"]),
        columns(&["next"]),
        message(10, "before the first row"),
        row(&["row 4"]),
        done(Command::Execute, Some(4), true),
        done(Command::BackupDatabase, None, false),
        // SET NOCOUNT ON.
        columns(&["uncounted"]),
        row(&["row 5"]),
        done(Command::MediaRows, None, false),
    ]
}

pub fn told(sink: &mut dyn Sink, event: &SinkEvent) -> Result<(), ReceiverGone> {
    match event {
        SinkEvent::Columns(columns) => sink.columns(columns),
        SinkEvent::Row(row) => sink.row(row),
        SinkEvent::Message(message) => sink.message(message),
        SinkEvent::Done(done) => sink.done(*done),
        SinkEvent::Database(to) => sink.database_changed("master", to),
    }
}

/// Tells all of it twice, as in two batches of one session; returns how many events were taken before the receiver was
/// gone, and none after that. A sink that is not gone must take them all.
///
/// # Panics
/// If the sink does.
pub fn keeps_its_contract(sink: &mut dyn Sink) -> usize {
    let twice = || legal().into_iter().chain(legal());
    twice()
        .take_while(|event| told(sink, event).is_ok())
        .count()
}
