//! How the rows of a cluster's tables are laid out: hints for the algorithm PAGES.
//!
//! The server is asked once in each database that can be connected to, before any file is read. A layout is what
//! `pg_attribute` says of a relation's attributes, dropped ones too; the file is the one that the relation had then. Both
//! may change while files are read, so a hint may be wrong or missing: the codec tries it and takes another way.
//!
//! Invariants
//! - Nothing here fails a backup. A database that refuses, is slow or answers with nonsense gives no hints and is counted.
//! - No function, operator or type of a user is called, whatever the settings of role and database are: the search path is
//!   empty and names are qualified. The transaction is read-only and takes the locks of any reader of the catalogs.
//! - The largest relations come first where there are more than [`RELATIONS_MAX`]; hints take at most [`MEMORY_BYTES`].
//!
//! Leaves to others: which files are relations' (`rules.rs`, `tree.rs`), and what is done with a hint (the codec).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longshore_codec::{Column, Layout};
use longshore_io::{Clock, Storage};
use longshore_pg::client::{self, Connection, Mode, Options};

use super::base::RelationSegment;
use super::rules::SPACE_GLOBAL;
use super::session::{ConnectableDatabase, Session};
use crate::LayoutCount;

/// Relations of which a layout is kept, in all databases together.
const RELATIONS_MAX: usize = 100_000;
/// Columns of different layouts that are kept, four bytes each.
const COLUMNS_MAX: usize = 1 << 20;
/// Memory of the hints: 16 bytes for a relation, 4 for a column of a layout, and about 64 for each layout.
pub(super) const MEMORY_BYTES: u64 = 12 << 20;
/// How long one database may take for its answer, and how long all of them may.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// The layouts of relations, by their files.
#[derive(Default)]
pub(super) struct Layouts {
    /// Sorted.
    files: Vec<(FileKey, u32)>,
    layouts: Vec<Arc<Layout>>,
    pub(super) count: LayoutCount,
}

/// A relation's files: tablespace, database, file number.
type FileKey = (u32, u32, u32);

impl Layouts {
    /// Asks the server in each of its databases.
    pub(super) fn ask(
        storage: &dyn Storage,
        server: &Options,
        session: &Session,
        clock: &dyn Clock,
    ) -> Layouts {
        let databases = match session.connectable() {
            Ok(databases) => databases,
            Err(error) => {
                let error = crate::error::with_cause(&error);
                tracing::info!(error, "the server does not list its databases for layouts");
                return Layouts::default();
            }
        };
        let began = clock.now();
        let mut found = Collected::default();
        for database in databases {
            let is_late = clock.now().saturating_sub(began) > PATIENCE_WITH_ALL;
            let asked = match &database.name {
                Some(name) if !is_late && database.may_connect => {
                    let options = Options {
                        database: name.clone(),
                        connect_timeout: server.connect_timeout.min(CONNECT_PATIENCE),
                        ..server.clone()
                    };
                    ask_one(storage, &options, found.room())
                }
                _ => Err("nobody may connect to it, or too little time is left".into()),
            };
            match asked.and_then(|rows| found.add(&rows, &database)) {
                Ok(()) => found.layouts.count.databases += 1,
                Err(reason) => {
                    found.layouts.count.databases_not_asked += 1;
                    tracing::info!(
                        database = database.oid,
                        reason,
                        "no layouts of tables of this database"
                    );
                }
            }
        }
        found.into_layouts()
    }

    /// The layout of a relation that has this file.
    pub(super) fn of(&self, file: &RelationSegment) -> Option<Arc<Layout>> {
        let key = (file.space, file.database, file.filenode);
        let at = self
            .files
            .binary_search_by_key(&key, |(key, _)| *key)
            .ok()?;
        self.layouts.get(self.files[at].1 as usize).cloned()
    }
}

/// The answers so far.
#[derive(Default)]
struct Collected {
    layouts: Layouts,
    /// The numbers of layouts, by their text.
    known: HashMap<Box<str>, u32>,
    columns: usize,
}

impl Collected {
    /// How many more relations are kept.
    fn room(&self) -> usize {
        RELATIONS_MAX.saturating_sub(self.layouts.files.len())
    }

    /// Takes a database's answer: rows of a layout and the files that have it. Those that do not fit are left out.
    fn add(&mut self, rows: &client::Rows, database: &ConnectableDatabase) -> Result<(), String> {
        for row in 0..rows.len() {
            let text = rows.text(row, 0).map_err(|e| e.to_string())?;
            let files = rows.text(row, 1).map_err(|e| e.to_string())?;
            let Some(number) = self.number_of(text)? else {
                continue;
            };
            for file in files.split(' ').take(self.room()) {
                let key = file_key(file, database).ok_or_else(|| format!("it says {file:?}"))?;
                self.layouts.files.push((key, number));
            }
        }
        Ok(())
    }

    /// The number of a layout; `None` if there is no more room for it.
    fn number_of(&mut self, text: &str) -> Result<Option<u32>, String> {
        if let Some(number) = self.known.get(text) {
            return Ok(Some(*number));
        }
        let layout = layout(text).ok_or_else(|| format!("it says {text:?}"))?;
        if self.columns + layout.columns().len() > COLUMNS_MAX {
            return Ok(None);
        }
        self.columns += layout.columns().len();
        let number = self.layouts.layouts.len() as u32;
        self.layouts.layouts.push(Arc::new(layout));
        self.known.insert(text.into(), number);
        Ok(Some(number))
    }

    fn into_layouts(self) -> Layouts {
        let mut layouts = self.layouts;
        layouts.files.sort_unstable();
        // Each database lists the shared relations.
        layouts.files.dedup_by_key(|(key, _)| *key);
        layouts.files.shrink_to_fit();
        layouts.count.relations = layouts.files.len() as u64;
        layouts
    }
}

/// The layouts of a database's relations, the largest `relations_max` of them.
fn ask_one(
    storage: &dyn Storage,
    options: &Options,
    relations_max: usize,
) -> Result<client::Rows, String> {
    let ask = || {
        let mut connection = Connection::open(storage, options, Mode::Sql)?;
        connection.query_within(&settings(), PATIENCE)?;
        connection.query_within(&question(relations_max), PATIENCE)
    };
    ask().map_err(|e: client::Error| crate::error::with_cause(&e))
}

/// The search path first: no later name then means an object of a user.
fn settings() -> String {
    let limit_ms = PATIENCE.as_millis();
    format!(
        "set search_path = ''; set default_transaction_read_only = on; \
         set statement_timeout = {limit_ms}; set lock_timeout = {limit_ms}"
    )
}

/// A row for each layout: lengths and alignments of its attributes, and tablespaces and file numbers of the relations
/// that have it. Access method 2 is heap; sequences have the form of a heap's page, and no access method.
fn question(relations_max: usize) -> String {
    format!(
        "select l.layout, pg_catalog.string_agg(l.file, ' ') from ( \
           select pg_catalog.string_agg(a.attlen::pg_catalog.text OPERATOR(pg_catalog.||) \
                    a.attalign::pg_catalog.text, '' order by a.attnum) as layout, \
                  r.space::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) \
                    r.file::pg_catalog.text as file \
           from ( \
             select c.oid, c.reltablespace as space, pg_catalog.pg_relation_filenode(c.oid) as file \
             from pg_catalog.pg_class c \
             where c.relpersistence OPERATOR(pg_catalog.=) 'p' \
               and (c.relkind OPERATOR(pg_catalog.=) 'S' or c.relam OPERATOR(pg_catalog.=) 2::pg_catalog.oid \
                    and c.relkind OPERATOR(pg_catalog.=) any ('{{r,m,t}}'::pg_catalog.\"char\"[])) \
             order by c.relpages desc, c.oid limit {relations_max} \
           ) r join pg_catalog.pg_attribute a on a.attrelid OPERATOR(pg_catalog.=) r.oid \
           where a.attnum OPERATOR(pg_catalog.>) 0 and r.file is not null \
           group by r.oid, r.space, r.file \
         ) l group by l.layout"
    )
}

/// `4i8d-1i`: the length of each attribute, and the letter of its alignment.
fn layout(text: &str) -> Option<Layout> {
    let mut columns = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_lowercase())?;
        let (len, letter) = rest.split_at(end);
        let len: i16 = len.parse().ok()?;
        let align = match letter.as_bytes().first()? {
            b'c' => 1,
            b's' => 2,
            b'i' => 4,
            b'd' => 8,
            _ => return None,
        };
        if len == 0 || len < -2 {
            return None;
        }
        columns.push(Column { len, align });
        rest = &letter[1..];
    }
    Layout::new(columns)
}

/// `0:16384`: the tablespace, 0 for that of the database, and the file number.
fn file_key(text: &str, database: &ConnectableDatabase) -> Option<FileKey> {
    let (space, file) = text.split_once(':')?;
    let file = file.parse().ok()?;
    Some(match space.parse().ok()? {
        0 => (database.tablespace, database.oid, file),
        SPACE_GLOBAL => (SPACE_GLOBAL, 0, file),
        space => (space, database.oid, file),
    })
}

#[cfg(test)]
mod tests {
    use super::super::rules::SPACE_DEFAULT;
    use super::*;

    fn database(oid: u32) -> ConnectableDatabase {
        ConnectableDatabase {
            oid,
            name: Some("d".into()),
            tablespace: SPACE_DEFAULT,
            may_connect: true,
        }
    }

    #[test]
    fn a_layout_is_lengths_and_letters_and_nothing_else_is_one() {
        let column = |len, align| Column { len, align };
        let found = layout("4i8d-1i64c-2c2s").unwrap();
        let expected = [
            column(4, 4),
            column(8, 8),
            column(-1, 4),
            column(64, 1),
            column(-2, 1),
            column(2, 2),
        ];
        assert_eq!(found.columns(), expected);
        for text in [
            "", "4", "i", "4x", "0i", "-3i", "4ii", "40000i", "4i ", "4I", "é",
        ] {
            assert_eq!(layout(text), None, "{text:?}");
        }
        assert!(layout(&"4i".repeat(1600)).is_some());
        assert_eq!(layout(&"4i".repeat(1601)), None);
    }

    #[test]
    fn a_file_is_found_in_its_tablespace_and_shared_ones_in_no_database() {
        assert_eq!(file_key("0:7", &database(5)), Some((SPACE_DEFAULT, 5, 7)));
        assert_eq!(file_key("77:7", &database(5)), Some((77, 5, 7)));
        assert_eq!(file_key("1664:7", &database(5)), Some((SPACE_GLOBAL, 0, 7)));
        for text in ["", "7", ":", "0:", "0:x", "-1:7", "0:7:8"] {
            assert_eq!(file_key(text, &database(5)), None, "{text:?}");
        }
    }

    #[test]
    fn relations_of_one_layout_share_it_and_other_files_have_none() {
        let mut found = Collected::default();
        let number = found.number_of("4i").unwrap().unwrap();
        assert_eq!(found.number_of("4i"), Ok(Some(number)));
        let other = found.number_of("4i-1i").unwrap().unwrap();
        assert_ne!(number, other);
        assert!(found.number_of("4q").is_err());
        let key = |file| (SPACE_DEFAULT, 5, file);
        found.layouts.files = vec![(key(9), number), (key(7), other), (key(8), number)];
        found.layouts.files.push((key(9), number));
        let layouts = found.into_layouts();
        assert_eq!(layouts.count.relations, 3);
        let of = |filenode, number| {
            layouts.of(&RelationSegment {
                space: SPACE_DEFAULT,
                database: 5,
                filenode,
                number,
            })
        };
        let nine = of(9, 3).unwrap();
        assert!(Arc::ptr_eq(&nine, &of(8, 0).unwrap()));
        assert_eq!(of(7, 0).unwrap().columns().len(), 2);
        assert_eq!(of(6, 0), None);
    }

    #[test]
    fn layouts_take_no_more_memory_than_is_said() {
        let mut found = Collected::default();
        let mut kept = 0;
        for i in 0..2000 {
            let text = format!("{}i", i + 1).repeat(1600);
            kept += usize::from(found.number_of(&text).unwrap().is_some());
        }
        assert_eq!(kept, COLUMNS_MAX / 1600);
        let bytes = RELATIONS_MAX * 16 + COLUMNS_MAX * 4 + RELATIONS_MAX * 64;
        assert!(bytes as u64 <= MEMORY_BYTES, "{bytes}");
    }
}
