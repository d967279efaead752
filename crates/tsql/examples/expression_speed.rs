//! What one expression costs: `cargo run --release -p longshore-tsql --example expression_speed`.
//!
//! Batches of PRINT and SET over a server without databases: texts that come again, and texts of which each is another.
//! CPU time of the one thread, the best of several rounds.

use std::sync::Arc;

use longshore_io::{Host, HostClock};
use longshore_pipeline::{House, Probe};
use longshore_tsql::{
    Closed, Column, Database, Databases, Defaults, Done, Login, Memory, Message, Server, Session,
    Setup, Sink, Unusable, Value,
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
    fn columns(&mut self, _columns: &[Column]) -> Result<(), Closed> {
        Ok(())
    }

    fn row(&mut self, _row: &[Value]) -> Result<(), Closed> {
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), Closed> {
        assert_eq!(message.number, 0, "{}", message.text);
        Ok(())
    }

    fn done(&mut self, _done: Done) -> Result<(), Closed> {
        Ok(())
    }
}

fn main() -> std::io::Result<()> {
    let setup = Setup {
        memory: Memory::unbounded(),
        name: "HARBOUR".into(),
        house: House {
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
    for (name, text) in [
        ("SET @i = @i + 1", "SET @i = @i + 1\n"),
        ("SET @i = @i + N", "SET @i = @i + #\n"),
        (
            "PRINT of a cast",
            "PRINT 'a' + CAST(@i + 1 AS varchar(9))\n",
        ),
        (
            "PRINT of another cast each time",
            "PRINT 'a' + CAST(@i + # AS varchar(9))\n",
        ),
        (
            "PRINT of another text each time",
            "PRINT 'set # of ' + @t + ': ' + CONVERT(varchar(20), @i)\n",
        ),
        (
            "PRINT of a literal",
            "PRINT 'all the same # is said of the day and of the night'\n",
        ),
    ] {
        let statements = (0..STATEMENTS).map(|i| text.replace('#', &i.to_string()));
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
        println!("{name}: {each:.1} µs each, {} bytes", batch.len());
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu_ns() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.ok_or_else(|| std::io::Error::other("schedstat is not understood"))
}
