//! Has a server check the tables and indexes of all its databases, as `pg_amcheck --all` does, with the extension amcheck.
//!
//! Invariants
//! - Nothing is written, and nothing is installed. If a database lacks the extension, nothing is checked.
//! - No function, operator or type of a user is called: the search path is empty, amcheck's functions are called by their
//!   whole signatures, and an index that would call one is left out and counted.
//! - Memory does not grow with the number of relations: [`RELATIONS_AT_ONCE`] are held.
//!
//! Leaves to others: words for what is found (`longshore-tsql`).
//!
//! Source: PostgreSQL 18 documentation, "amcheck" and "pg_amcheck".

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::Storage;
use longshore_pg::client::{self, Connection, Mode, Options, Reply, Rows};

use super::session::misread;
use crate::{CheckDepth, ClusterCheck, Error};

const RELATIONS_AT_ONCE: usize = 1000;
/// A cancel is seen after so much of a check.
const TURN: Duration = Duration::from_millis(100);
/// How long the catalogs, and a relation that somebody has locked, are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest text of a finding, in characters.
const FINDING_CHARS: usize = 1000;

/// Ends a check early: it was cancelled, or it failed.
type Ended = ControlFlow<Option<Error>>;

/// A table or an index of a database.
struct Relation {
    oid: u32,
    is_index: bool,
    name: String,
    /// Whether its check would call functions of a user.
    has_own_code: bool,
}

struct Check<'a> {
    depth: CheckDepth,
    findings_max: usize,
    cancel: &'a AtomicBool,
    found: ClusterCheck,
}

fn failed(source: client::Error) -> Error {
    Error::Server {
        action: "check",
        source: Box::new(source),
    }
}

/// Checks all databases that accept connections. `None`: `cancel` was set.
pub(crate) fn check(
    storage: &dyn Storage,
    server: &Options,
    (depth, findings_max): (CheckDepth, u32),
    cancel: &AtomicBool,
) -> Result<Option<ClusterCheck>, Error> {
    let names = databases(&mut connect(storage, server)?)?;
    let mut ready = Vec::new();
    let mut check = Check {
        depth,
        findings_max: findings_max as usize,
        cancel,
        found: ClusterCheck::default(),
    };
    for name in names {
        let options = Options {
            database: name.clone(),
            ..server.clone()
        };
        match schema_of_amcheck(&mut connect(storage, &options)?)? {
            Some(schema) => ready.push((options, schema)),
            None => check.found.without_extension.push(name),
        }
    }
    if !check.found.without_extension.is_empty() {
        return Ok(Some(check.found));
    }
    for (at, (options, schema)) in ready.iter().enumerate() {
        let mut connection = connect(storage, options)?;
        // A shared catalog is in every database, and is checked in the first.
        let place = (options.database.as_str(), schema.as_str(), at == 0);
        match check.database(&mut connection, place) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(None) => return Ok(None),
            ControlFlow::Break(Some(error)) => return Err(error),
        }
        if check.room() == 0 {
            break;
        }
    }
    Ok(Some(check.found))
}

/// A session in which no name means an object of a user, and which writes nothing.
fn connect(storage: &dyn Storage, options: &Options) -> Result<Connection, Error> {
    let mut connection =
        Connection::open(storage, options, Mode::Sql).map_err(|e| Error::Server {
            action: "connect to",
            source: Box::new(e),
        })?;
    let prepared = |e| Error::Server {
        action: "prepare the session with",
        source: Box::new(e),
    };
    let major = connection.major().map_err(misread)?;
    let since_17 = match major {
        ..=16 => "",
        _ => "; set transaction_timeout = 0",
    };
    let lock_ms = PATIENCE.as_millis();
    let settings = format!(
        "set search_path = ''; set default_transaction_read_only = on; set statement_timeout = 0; \
         set lock_timeout = {lock_ms}{since_17}"
    );
    connection
        .query_within(&settings, PATIENCE)
        .map_err(prepared)?;
    // A check that nobody waits for ends; some systems cannot see that.
    let watch = connection.query_within("set client_connection_check_interval = 1000", PATIENCE);
    match watch {
        Err(e) if e.sqlstate().is_none() => Err(prepared(e)),
        _ => Ok(connection),
    }
}

/// Those that `pg_amcheck --all` checks.
fn databases(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let sql =
        "select datname from pg_database where datallowconn and datconnlimit <> -2 order by oid";
    let rows = connection.query_within(sql, PATIENCE).map_err(failed)?;
    let name = |row| rows.text(row, 0).map(str::to_owned).map_err(misread);
    (0..rows.len()).map(name).collect()
}

/// The quoted name of the schema that has the extension; `None`: it is not there, or too old to check tables.
fn schema_of_amcheck(connection: &mut Connection) -> Result<Option<String>, Error> {
    let sql = "select quote_ident(n.nspname) from pg_extension e join pg_namespace n on n.oid = e.extnamespace \
               where e.extname = 'amcheck' and exists (select from pg_depend d \
               where d.classid = 'pg_proc'::regclass and d.deptype = 'e' \
               and d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid \
               and d.objid = to_regprocedure(format( \
                 '%I.verify_heapam(regclass, boolean, boolean, text, bigint, bigint)', n.nspname))::oid)";
    let rows = connection.query_within(sql, PATIENCE).map_err(failed)?;
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(rows.text(0, 0).map_err(misread)?.to_owned()))
}

/// Access method 2 is heap, 403 is btree; objects of users have OIDs from 16384 on.
fn relations_after(last: u32, with_shared: bool) -> String {
    format!(
        "select c.oid, c.relkind = 'i', format('%I.%I', n.nspname, c.relname), exists (select from pg_depend d \
           where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.refobjid >= 16384 \
           and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, \
             'pg_opclass'::regclass)) \
         from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where c.oid > {last}::oid and c.relpersistence <> 't' and ({with_shared} or not c.relisshared) \
           and (c.relkind in ('r', 'm', 't') and c.relam = 2 or c.relkind = 'i' and c.relam = 403 \
             and exists (select from pg_index i where i.indexrelid = c.oid \
               and i.indisready and i.indisvalid and i.indislive)) \
         order by c.oid limit {RELATIONS_AT_ONCE}"
    )
}

fn relation(rows: &Rows, row: usize) -> Result<Relation, client::Error> {
    Ok(Relation {
        oid: rows.value(row, 0)?,
        is_index: rows.is_true(row, 1)?,
        name: String::from_utf8_lossy(rows.bytes(row, 2).unwrap_or_default()).into_owned(),
        has_own_code: rows.is_true(row, 3)?,
    })
}

/// Whether an error may be damage: of the server's own classes, and those of its system.
fn is_damage(error: &client::Error) -> bool {
    let class = error.sqlstate().map(|code| code.get(..2).unwrap_or(""));
    matches!(class, Some("XX" | "58"))
}

impl Check<'_> {
    /// How many more findings are told.
    fn room(&self) -> usize {
        self.findings_max.saturating_sub(self.found.findings.len())
    }

    fn database(
        &mut self,
        connection: &mut Connection,
        (database, schema, with_shared): (&str, &str, bool),
    ) -> Ended {
        let mut last = 0;
        loop {
            let sql = relations_after(last, with_shared);
            let rows = match connection.query_within(&sql, PATIENCE) {
                Ok(rows) => rows,
                Err(e) => return Ended::Break(Some(failed(e))),
            };
            if rows.is_empty() {
                return Ended::Continue(());
            }
            for row in 0..rows.len() {
                let relation = match relation(&rows, row) {
                    Ok(relation) => relation,
                    Err(e) => return Ended::Break(Some(misread(e))),
                };
                last = relation.oid;
                self.relation(connection, (database, schema), &relation)?;
                if self.room() == 0 {
                    return Ended::Continue(());
                }
            }
        }
    }

    fn relation(
        &mut self,
        connection: &mut Connection,
        (database, schema): (&str, &str),
        relation: &Relation,
    ) -> Ended {
        let oid = relation.oid;
        let select = match (relation.is_index, self.depth) {
            (true, CheckDepth::Physical) => return Ended::Continue(()),
            (true, CheckDepth::Full) if relation.has_own_code => {
                self.found.indexes_left_out += 1;
                return Ended::Continue(());
            }
            // Whether every row of the table is in the index, too.
            (true, CheckDepth::Full) => {
                format!("select {schema}.bt_index_check({oid}::oid::regclass, true)")
            }
            (false, _) => format!(
                "select concat_ws(', ', 'block ' || v.blkno, 'item ' || v.offnum, 'attribute ' || v.attnum) \
                 || ': ' || v.msg \
                 from {schema}.verify_heapam({oid}::oid::regclass, false, true, 'none'::text, null::bigint, \
                 null::bigint) v limit {}",
                self.room()
            ),
        };
        let mut texts = Vec::new();
        let checked = self.copied(connection, &select, &mut |line| {
            if !relation.is_index {
                texts.push(String::from_utf8_lossy(line).trim_end().to_owned());
            }
        });
        match checked {
            Ok(true) => {}
            Ok(false) => return Ended::Break(None),
            Err(e) if is_damage(&e) || e.sqlstate() == Some("42P01") => {
                match self.is_there(connection, oid) {
                    // It was dropped meanwhile.
                    Ok(false) => return Ended::Continue(()),
                    Ok(true) if is_damage(&e) => texts.push(e.to_string()),
                    Ok(true) => return Ended::Break(Some(failed(e))),
                    Err(e) => return Ended::Break(Some(failed(e))),
                }
            }
            Err(e) => return Ended::Break(Some(failed(e))),
        }
        for text in texts {
            let text = format!("{database}: {}: {text}", relation.name);
            let text = text.chars().take(FINDING_CHARS).collect();
            self.found.findings.push(text);
        }
        Ended::Continue(())
    }

    fn is_there(&self, connection: &mut Connection, oid: u32) -> Result<bool, client::Error> {
        let sql = format!("select from pg_class where oid = {oid}::oid");
        Ok(!connection.query_within(&sql, PATIENCE)?.is_empty())
    }

    /// Passes on each line of what a query gives. Returns false if the check was cancelled; the session cannot be used
    /// afterwards. As a copy, an answer survives the pauses in which a cancel is looked for.
    fn copied(
        &self,
        connection: &mut Connection,
        select: &str,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, client::Error> {
        connection.start(&format!("copy ({select}) to stdout"))?;
        loop {
            let reply = connection.reply_within(TURN);
            if self.cancel.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match reply {
                Err(client::Error::Timeout { .. }) => {}
                Err(e) => return Err(e),
                Ok(Some(Reply::Data(line))) => take(&line),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(true),
            }
        }
    }
}
