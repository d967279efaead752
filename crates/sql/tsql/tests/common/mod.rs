//! Goal: tests have a server in a scratch directory: one SQLite database, with the catalog next to it, and what its
//! sessions say as texts and numbers.
//! Not covered: this file has no tests, and the network is not used.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod cluster;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_accelerators::Probe;
use longshore_catalog::{Catalog, RestoreSequence};
use longshore_io::{Host, HostClock};
use longshore_pipeline::{RunContext, SourceSpec};
use longshore_tsql::{
    Database, Databases, Defaults, Login, Memory, Recorder, Server, Session, Setup, Unusable,
};

pub struct Configured {
    pub databases: Vec<Database>,
    /// Name and path of a database whose file is lost.
    pub lost: Option<(String, PathBuf)>,
}

impl Databases for Configured {
    fn names(&self) -> Vec<String> {
        let lost = self.lost.iter().map(|(name, _)| name.clone());
        let names = self.databases.iter().map(|d| d.name.clone());
        names.chain(lost).collect()
    }

    fn find(&self, name: &str) -> Result<Option<Database>, Unusable> {
        match &self.lost {
            Some((lost, place)) if lost == name => Err(Unusable {
                text: "there is no such file".into(),
                hint: String::new(),
                place: Some(place.clone()),
            }),
            _ => Ok(self.databases.iter().find(|d| d.name == name).cloned()),
        }
    }
}

pub struct Stage {
    pub dir: tempfile::TempDir,
    /// Configured next to `shop`.
    pub more: Vec<(&'static str, SourceSpec)>,
    pub lost: Option<(String, PathBuf)>,
    /// The directories that statements may name.
    pub directories: Option<Vec<PathBuf>>,
    /// The prefixes of buckets that statements may name.
    pub buckets: Option<Vec<String>>,
    /// Of all sessions.
    pub memory: Memory,
}

impl Stage {
    /// With a database `shop` of some hundred rows.
    pub fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("shop.db"), 500);
        Stage {
            dir,
            more: Vec::new(),
            lost: None,
            directories: None,
            buckets: None,
            memory: Memory::unbounded(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn setup(&self) -> Setup {
        let database = |name: &str, source: &SourceSpec| Database {
            name: name.into(),
            source: source.clone(),
            algorithm: None,
            level: None,
            wal: None,
            trust_locks: false,
            server_config: true,
        };
        let shop = database("shop", &SourceSpec::Sqlite(self.path("shop.db")));
        let more = self
            .more
            .iter()
            .map(|(name, source)| database(name, source));
        Setup {
            memory: self.memory.clone(),
            name: "HARBOUR".into(),
            context: RunContext {
                keyring: Default::default(),
                storage: Arc::new(Host::new()),
                clock: Arc::new(HostClock),
                catalog: Some(self.path("state/catalog.db")),
                accelerators: Vec::new(),
                cancel: Arc::default(),
            },
            databases: Arc::new(Configured {
                databases: std::iter::once(shop).chain(more).collect(),
                lost: self.lost.clone(),
            }),
            encrypt_to: Ok(None),
            defaults: Defaults::default(),
            backup_directory: self.dir.path().to_path_buf(),
            directories: self.directories.clone(),
            buckets: self.buckets.clone(),
            kept_buckets: vec!["s3://kept/target".into()],
            reserved: vec![self.path("state/logins")],
            prober: Arc::new(|_| Probe::look()),
            logins: Arc::new(|| vec!["grace".into()]),
        }
    }

    /// Each call is a restart.
    pub fn server(&self) -> Arc<Server> {
        Server::start(self.setup())
    }

    pub fn session(&self) -> Session {
        Session::new(self.server(), login())
    }
}

pub fn login() -> Login {
    Login {
        user: "ada".into(),
        host: "desk".into(),
        program: "test".into(),
    }
}

pub fn fill(path: &Path, rows: u64) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS ware (id INTEGER PRIMARY KEY, name TEXT, price REAL)",
    )
    .unwrap();
    let tx = db.unchecked_transaction().unwrap();
    for i in 0..rows {
        let name = format!("ware number {i} with a name that compresses");
        tx.execute(
            "INSERT INTO ware (name, price) VALUES (?1, ?2)",
            (name, i as f64 / 7.0),
        )
        .unwrap();
    }
    tx.commit().unwrap();
}

/// Runs a batch and records everything.
pub fn run(session: &mut Session, batch: &str) -> Recorder {
    let mut record = Recorder::default();
    session.run(batch, &mut record).unwrap();
    record
}

/// The messages as lines: `number text`.
pub fn said(record: &Recorder) -> Vec<String> {
    record
        .messages()
        .map(|m| format!("{} {}", m.number, m.text))
        .collect()
}

pub fn numbers(record: &Recorder) -> Vec<u32> {
    record.messages().map(|m| m.number).collect()
}

/// The rows as texts.
pub fn rows(record: &Recorder) -> Vec<Vec<String>> {
    record
        .rows()
        .map(|row| row.iter().map(ToString::to_string).collect())
        .collect()
}

/// The only value of a query.
pub fn value(session: &mut Session, query: &str) -> String {
    let record = run(session, query);
    let rows = rows(&record);
    assert_eq!(rows.len(), 1, "{query}: {:?}", said(&record));
    rows[0].join("|")
}

/// Stores a restore that waits for more, as another program would have left it.
pub fn wait_for_more(stage: &Stage, database: &str, target: &str) {
    let catalog = Catalog::open(&stage.path("state/catalog.db")).unwrap();
    let sequence = RestoreSequence {
        database: database.to_owned(),
        target: stage.path(target),
        is_ready: true,
        system: 7,
        timeline: 1,
        consistent_lsn: 0,
        next_lsn: 0,
        reached_us: 0,
        stop_at_us: None,
        log_count: 0,
        sets: Vec::new(),
        devices: Vec::new(),
    };
    catalog.keep_sequence(&sequence).unwrap();
}
