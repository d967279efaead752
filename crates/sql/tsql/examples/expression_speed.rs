//! The cost of one expression: `cargo run --release -p longshore-tsql --example expression_speed`.
//!
//! Batches of PRINT and SET over a server without databases: texts that come again, texts of which each has other
//! literals (`#`), and texts of which no two are alike. CPU time of the one thread, the best of several rounds.
//!
//! Goal: a developer sees the CPU time of one expression, for texts that come again and for new ones.
//! Not covered: it is no test: it compares its figures with nothing.

use std::sync::Arc;

use longshore_accelerators::Probe;
use longshore_io::{Host, HostClock};
use longshore_pipeline::RunContext;
use longshore_tsql::{
    Column, Database, Databases, Defaults, DoneEvent, Login, Memory, Message, ReceiverGone, Server,
    Session, Setup, Sink, Unusable, Value,
};

const STATEMENTS: usize = 20_000;
const ROUNDS: usize = 5;

struct NoDatabases;

impl Databases for NoDatabases {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn find(&self, _name: &str) -> Result<Option<Database>, Unusable> {
        Ok(None)
    }
}

struct Nobody;

impl Sink for Nobody {
    fn columns(&mut self, _columns: &[Column]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn row(&mut self, _row: &[Value]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        assert_eq!(message.number, 0, "{}", message.text);
        Ok(())
    }

    fn done(&mut self, _done: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

fn main() -> std::io::Result<()> {
    let setup = Setup {
        memory: Memory::unbounded(),
        name: "HARBOUR".into(),
        context: RunContext {
            keyring: Default::default(),
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
            catalog: None,
            accelerators: Vec::new(),
            cancel: Arc::default(),
        },
        databases: Arc::new(NoDatabases),
        encrypt_to: Ok(None),
        defaults: Defaults::default(),
        backup_directory: std::env::temp_dir(),
        directories: None,
        buckets: None,
        kept_buckets: Vec::new(),
        reserved: Vec::new(),
        prober: Arc::new(|_| Probe::look()),
        logins: Arc::new(Vec::new),
    };
    let login = Login {
        user: "ada".into(),
        host: "desk".into(),
        program: "example".into(),
    };
    let mut session = Session::new(Server::start(setup), login);
    for text in [
        "SET @i = @i + 1",
        "SET @i = @i + #",
        "IF @i < # SET @i = 0",
        "PRINT 'a' + CAST(@i + 1 AS varchar(9))",
        "PRINT 'a' + CAST(@i + # AS varchar(9))",
        "PRINT 'x#' + CAST(# AS varchar(10))",
        "PRINT 'set # of ' + @t + ': ' + CONVERT(varchar(20), @i)",
        "PRINT 'all the same # is said of the day and of the night'",
    ] {
        let line = |i: usize| text.replace('#', &i.to_string());
        measure(&mut session, text, (0..STATEMENTS).map(line).collect())?;
    }
    for text in [
        "SET @i = abs(@i) + len(isnull(@t, 'abc'))",
        "PRINT 'a' + cast(@i + 1 as varchar(9)) + upper(@t)",
        "IF @i < 0 or isnull(@t, upper(lower(@t))) = '' SET @i = 0",
        "PRINT 'set 1 of ' + lower(@t) + ': ' + convert(varchar(20), @i)",
    ] {
        let name = format!("no two alike: {text}");
        let line = |i: usize| in_other_capitals(text, i);
        measure(&mut session, &name, (0..STATEMENTS).map(line).collect())?;
    }
    let (mut made, mut bytes, mut state) = (Vec::new(), 0, 1);
    while bytes < WHOLE_BATCH {
        let line = composed(&mut state);
        bytes += line.len() + 1;
        made.push(line);
    }
    measure(&mut session, "a batch of 3.9 MB, composed", made)
}

/// The batch with which the time was first noticed.
const WHOLE_BATCH: usize = 3_900_000;

fn measure(session: &mut Session, name: &str, statements: Vec<String>) -> std::io::Result<()> {
    let batch = "DECLARE @i int = 0, @t varchar(9) = 'nine'\n".to_owned() + &statements.join("\n");
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let before = cpu_ns()?;
        session
            .run(&batch, &mut Nobody)
            .map_err(std::io::Error::other)?;
        least = least.min(cpu_ns()? - before);
    }
    let (count, bytes) = (statements.len(), batch.len());
    let each = least as f64 / 1e3 / count as f64;
    println!("{name}: {each:.1} µs each of {count}, {bytes} bytes");
    Ok(())
}

/// The same expression in a text of its own: the bits of the number make letters capitals.
fn in_other_capitals(text: &str, number: usize) -> String {
    let (mut rest, mut is_quoted) = (number, false);
    let mut one = |c: char| {
        is_quoted ^= c == '\'';
        if is_quoted || !c.is_ascii_lowercase() {
            return c;
        }
        let is_capital = rest & 1 == 1;
        rest >>= 1;
        if is_capital {
            c.to_ascii_uppercase()
        } else {
            c
        }
    };
    text.chars().map(&mut one).collect()
}

/// A PRINT of two to five of these, in any order.
fn composed(state: &mut u64) -> String {
    const PIECES: [&str; 10] = [
        "'some words of # and then some'",
        "@t",
        "CAST(@i + # AS varchar(12))",
        "CONVERT(varchar(20), @i)",
        "UPPER(LEFT(@t, 2))",
        "REPLACE(@t, 'n', '#')",
        "CASE WHEN @i > # THEN 'more' ELSE @t END",
        "ISNULL(@t, 'nothing')",
        "RIGHT('00' + CAST(@i % 60 AS varchar(2)), 2)",
        "N'é#'",
    ];
    let mut draw = |below: u64| {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) % below
    };
    let count = 2 + draw(4);
    let pieces = (0..count).map(|_| {
        let piece = PIECES[draw(10) as usize];
        piece.replace('#', &draw(100_000).to_string())
    });
    let pieces: Vec<_> = pieces.collect();
    format!("PRINT {}", pieces.join(" + "))
}

/// CPU time of this thread.
fn cpu_ns() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.ok_or_else(|| std::io::Error::other("schedstat is not understood"))
}
