//! The transactions of a load, of either kind, each from its beginning to its end.
//!
//! Invariants
//! - The tables of the database say which kind of transactions it gets.
//! - A transaction that failed was rolled back, and counts as none. One that only reads takes no writer's lock.
//!
//! Leaves to others: what a transaction does (`workload.rs`, `brokerage.rs`), and clients and their times (`load.rs`).

use anyhow::{Context, Result};
use longshore_pipeline::SourceSpec;

use super::brokerage::{Brokerage, TradeTerminal};
use super::session::ClientSession;
use super::workload::{OrderTerminal, Scale};

/// The database, as far as its transactions need it.
#[derive(Debug, Clone, Copy)]
pub enum LoadTables {
    Orders(Scale),
    Trades(Brokerage),
}

impl LoadTables {
    /// Errors: a database of neither sample.
    pub fn of(source: &SourceSpec) -> Result<LoadTables> {
        // A question that fails may end a session.
        let orders = Scale::of(&mut ClientSession::open(source)?);
        if let Ok(scale) = orders {
            return Ok(LoadTables::Orders(scale));
        }
        let trades = Brokerage::of(&mut ClientSession::open(source)?);
        trades
            .map(LoadTables::Trades)
            .context("not the database of a sample `tprocc` or `stae`")
    }

    /// The client with this number, from 0, of so many.
    pub fn terminal(&self, seed: u64, (number, clients): (usize, usize)) -> Terminal {
        match *self {
            LoadTables::Orders(scale) => {
                Terminal::Orders(OrderTerminal::new(seed + number as u64, scale))
            }
            LoadTables::Trades(house) => {
                Terminal::Trades(TradeTerminal::new(seed, house, (number, clients)))
            }
        }
    }
}

/// One client's stream of transactions.
pub enum Terminal {
    Orders(OrderTerminal),
    Trades(TradeTerminal),
}

impl Terminal {
    /// Runs the next transaction; the number of its kind.
    pub fn next(&mut self, session: &mut ClientSession) -> Result<usize> {
        let (kind, writes) = match self {
            Terminal::Orders(own) => (own.draw(), true),
            Terminal::Trades(own) => {
                let kind = own.draw();
                (kind, TradeTerminal::writes(kind))
            }
        };
        match writes {
            true => session.begin()?,
            false => session.run("BEGIN")?,
        }
        let done = match self {
            Terminal::Orders(own) => own.transact(kind, session),
            Terminal::Trades(own) => own.transact(kind, session),
        };
        match done {
            Ok(true) => session.run("COMMIT")?,
            Ok(false) => session.run("ROLLBACK")?,
            Err(error) => {
                // The server may have rolled back already.
                let _ended = session.run("ROLLBACK");
                return Err(error);
            }
        }
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use longshore_pipeline::SourceSpec;

    use super::*;
    use crate::sample::{SampleKind, SampleSpec, sample};

    /// Goal: trades of two clients leave books that balance, and most of their transactions only read.
    /// Method: a small sample in SQLite, transactions in turns, and questions about the tables afterwards.
    /// Not covered: two at a time; PostgreSQL has a test with the program.
    #[test]
    fn trades_balance_and_most_transactions_only_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trades.db");
        let spec = SampleSpec {
            kind: SampleKind::Stae,
            size_bytes: 3 << 20,
            seed: 1,
            files: 1,
            dirs: Vec::new(),
            path: Some(path.clone()),
            wal: true,
            replace: false,
        };
        sample(&spec, &|_| {}).unwrap();
        let source = SourceSpec::Sqlite(path);
        let mut database = ClientSession::open(&source).unwrap();
        let mut number = |sql: &str| -> f64 { database.number(sql).unwrap().unwrap() };
        let shares = "SELECT coalesce(sum(CASE WHEN tt_is_sell THEN -t_qty ELSE t_qty END), 0) FROM trade, trade_type \
                      WHERE tt_id = t_tt_id AND t_st_id = 'CMPT'";
        let held = "SELECT sum(h_qty) FROM holding";
        assert_eq!(number(shares), number(held), "of the sample");
        let (trades, done) = (
            number("SELECT count(*) FROM trade"),
            number("SELECT sum(b_num_trades) FROM broker"),
        );

        let tables = LoadTables::of(&source).unwrap();
        assert!(matches!(tables, LoadTables::Trades(_)));
        let mut clients: Vec<_> = (0..2)
            .map(|n| {
                (
                    tables.terminal(7, (n, 2)),
                    ClientSession::open(&source).unwrap(),
                )
            })
            .collect();
        let mut kinds = [0_u32; 6];
        for n in 0..2000 {
            let (terminal, session) = &mut clients[n % 2];
            kinds[terminal.next(session).unwrap()] += 1;
        }
        drop(clients);
        assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
        let reading: u32 = kinds[..3].iter().sum();
        assert!((1300..1580).contains(&reading), "{kinds:?}");

        assert_eq!(number(shares), number(held));
        assert_eq!(number("SELECT count(*) FROM holding WHERE h_qty <= 0"), 0.0);
        let more = number("SELECT count(*) FROM trade") - trades;
        assert!(more > 100.0, "{more}");
        let completed = number("SELECT sum(b_num_trades) FROM broker") - done;
        assert!(completed > 50.0, "{completed}");
        for (what, sql) in [
            ("settlements", "SELECT count(*) FROM settlement"),
            (
                "histories",
                "SELECT count(*) FROM trade_history WHERE th_st_id = 'CMPT'",
            ),
        ] {
            let all = number("SELECT count(*) FROM trade WHERE t_st_id = 'CMPT'");
            assert_eq!(number(sql), all, "{what}");
        }
    }
}
