//! Removes from the restored copy what would run during the drill's own statements.
//!
//! Event triggers would fire at `CREATE EXTENSION amcheck`; settings of roles and databases would apply to the
//! sessions that check. Both are rows of the copy's catalogs, which the drill may change.

use std::path::Path;

use longshore_io::Storage;
use longshore_pg::client::{Connection, Error, Mode, Options};

use super::settings::{self, PORT};

/// Databases that nearly every cluster has.
const FIRST: [&str; 2] = ["postgres", "template1"];

/// An index uses one of the database's own functions through an expression, a predicate, or an operator class. Objects
/// from this OID on were made after initdb (`FirstNormalObjectId`, `src/include/access/transam.h`).
const OWN_CODE: &str = "select '\"' || replace(current_database(), '\"', '\"\"') || '\".\"' \
    || replace(n.nspname, '\"', '\"\"') || '\".\"' || replace(c.relname, '\"', '\"\"') || '\"' \
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    where c.relkind = 'i' and exists (select from pg_catalog.pg_depend d \
    where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid and d.refobjid >= 16384 \
    and d.refclassid in ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass, \
    'pg_catalog.pg_type'::regclass, 'pg_catalog.pg_opclass'::regclass)) order by 1";

/// The running copy, as a client reaches it.
pub struct RunningCopy<'a> {
    pub storage: &'a dyn Storage,
    /// The directory of its socket.
    pub run_dir: &'a Path,
    pub major: u32,
}

/// The state of the disarmed copy.
pub struct DisarmReport {
    /// Its superuser.
    pub user: String,
    /// Indexes whose check would call the database's own functions, as pg_amcheck's patterns.
    pub indexes: Vec<String>,
}

/// Disarms every database that accepts connections. The first of `users` that exists is the superuser.
pub fn disarm(copy: &RunningCopy, users: &[String]) -> Result<DisarmReport, Error> {
    let mut last = None;
    for user in users {
        for database in FIRST {
            match connect(copy, user, database) {
                Ok(first) => return disarm_all(copy, first, user),
                // The role does not exist, or the database does not exist or refuses connections.
                Err(e) if matches!(e.sqlstate(), Some("28000" | "3D000" | "55000")) => {
                    last = Some(e);
                }
                Err(e) => return Err(e),
            }
        }
    }
    Err(last.unwrap_or(Error::Options {
        reason: "no superuser was found".into(),
    }))
}

fn disarm_all(
    copy: &RunningCopy,
    mut first: Connection,
    user: &str,
) -> Result<DisarmReport, Error> {
    first.query("delete from pg_catalog.pg_db_role_setting")?;
    let rows = first.query(
        "select datname from pg_catalog.pg_database where datallowconn and datconnlimit <> -2 order by oid",
    )?;
    let mut indexes = Vec::new();
    for row in 0..rows.len() {
        let mut database = connect(copy, user, rows.text(row, 0)?)?;
        database.query("update pg_catalog.pg_event_trigger set evtenabled = 'D'")?;
        let found = database.query(OWN_CODE)?;
        for row in 0..found.len() {
            indexes.push(found.text(row, 0)?.to_owned());
        }
    }
    Ok(DisarmReport {
        user: user.to_owned(),
        indexes,
    })
}

fn connect(copy: &RunningCopy, user: &str, database: &str) -> Result<Connection, Error> {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let text = format!(
        "host={} port={PORT} user={} dbname={} options={} application_name=longshore sslmode=disable",
        quoted(&copy.run_dir.to_string_lossy()),
        quoted(user),
        quoted(database),
        quoted(&settings::of_session(copy.major)),
    );
    // Our environment is not used: PGOPTIONS and PGPASSFILE are for other servers.
    let options = Options::parse(&text, &|_| None, &|| Ok(user.to_owned()))?;
    Connection::open(copy.storage, &options, Mode::Sql)
}
