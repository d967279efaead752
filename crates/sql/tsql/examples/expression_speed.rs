//! The cost of one expression: `cargo run --release -p longshore-tsql --example expression_speed`.
//!
//! Batches of PRINT and SET over a server without databases: texts that come again, and texts of which each has other literals (`#`).
//! CPU time of the one thread, the best of several rounds.

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
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
            catalog: None,
            accelerators: Vec::new(),
            cancel: Arc::default(),
        },
        databases: Arc::new(NoDatabases),
        defaults: Defaults::default(),
        backup_directory: std::env::temp_dir(),
        directories: None,
        reserved: Vec::new(),
        prober: Arc::new(|_| Probe::look()),
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
        let line = text.to_owned() + "\n";
        let statements = (0..STATEMENTS).map(|i| line.replace('#', &i.to_string()));
        let batch = "DECLARE @i int = 0, @t varchar(9) = 'nine'\n".to_owned()
            + &statements.collect::<String>();
        let mut least = u64::MAX;
        for _ in 0..ROUNDS {
            let before = cpu_ns()?;
            session
                .run(&batch, &mut Nobody)
                .map_err(std::io::Error::other)?;
            least = least.min(cpu_ns()? - before);
        }
        let each = least as f64 / 1e3 / STATEMENTS as f64;
        println!("{text}: {each:.1} µs each, {} bytes", batch.len());
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu_ns() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.ok_or_else(|| std::io::Error::other("schedstat is not understood"))
}
