//! A PostgreSQL cluster of a study's own: made, filled from a sample, run and removed.
//!
//! Invariants
//! - The server listens at a socket in a directory that only its user enters, and at no network address.
//! - It syncs as a server in production does; it ends with the study, however the study ends.
//! - As root everything runs as `postgres` or `nobody`, because PostgreSQL refuses root.
//!
//! Leaves to others: the tables' content (the sample), and the load.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use longshore_io::{Attributes, Clock, OpenHow, Storage, Via};
use longshore_pg::client::{Connection as Client, Mode, Options, Reply};
use longshore_pipeline::SourceSpec;
use rusqlite::{Connection, OpenFlags};

use super::session::shown;
use super::watched::{Ids, Watched, as_user};
use crate::sample::{SampleKind, for_postgres};

/// Newest first; of each major the directory of Debian's packages, then that of Red Hat's.
const MAJORS: std::ops::RangeInclusive<u32> = 14..=18;
/// The lab installs nothing: packages are the administrator's, and some need decisions. So the command is the error's last word.
const NOT_INSTALLED: &str = "PostgreSQL is not installed; give --database sqlite, or install it with the command of your system, \
                             on Debian and Ubuntu: apt-get install postgresql";
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest path of a socket.
const SOCKET_LEN_MAX: usize = 90;
const COPIED_AT_ONCE: usize = 256 << 10;

/// The directory with the programs of the newest major version that is installed.
pub fn programs(storage: &dyn Storage) -> Option<PathBuf> {
    let places = MAJORS.rev().flat_map(|major| {
        [
            format!("/usr/lib/postgresql/{major}/bin"),
            format!("/usr/pgsql-{major}/bin"),
        ]
    });
    let mut places = places.map(PathBuf::from);
    places.find(|dir| storage.stat(&dir.join("initdb")).is_ok())
}

fn needed(programs: Option<PathBuf>) -> Result<PathBuf> {
    programs.context(NOT_INSTALLED)
}

/// A running cluster, ended and left to its scratch directory when dropped.
pub struct LoadCluster {
    server: Watched,
    options: Options,
    programs: PathBuf,
    user: Option<Ids>,
    place: PathBuf,
    socket_dir: PathBuf,
}

/// The words by which a program connects to the server with this socket.
fn address(socket_dir: &Path) -> String {
    let dir = socket_dir.display().to_string();
    let dir = dir.replace('\\', "\\\\").replace('\'', "\\'");
    format!("host='{dir}' port=5432 user=postgres dbname=postgres sslmode=disable")
}

/// The user that servers run as, where we are root.
fn server_user() -> Result<Option<Ids>> {
    if longshore_facts::own_ids().0 != 0 {
        return Ok(None);
    }
    let passwd = longshore_facts::small_text(Path::new("/etc/passwd"))?;
    let of = |name: &str| {
        let mut lines = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>());
        let fields = lines.find(|fields| fields.first() == Some(&name))?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    let found = of("postgres").or_else(|| of("nobody"));
    found
        .map(Some)
        .context("root cannot run a PostgreSQL server, and there is no user postgres or nobody")
}

impl LoadCluster {
    /// Makes and starts a cluster in the existing directory `place`.
    pub fn start(storage: &dyn Storage, clock: &dyn Clock, place: &Path) -> Result<LoadCluster> {
        let programs = needed(programs(storage))?;
        let place = storage.canonical(place)?;
        let socket_dir = place.join("run");
        ensure!(
            socket_dir.as_os_str().len() < SOCKET_LEN_MAX,
            "{} is too long for a socket: give a shorter --work",
            socket_dir.display()
        );
        let user = server_user()?;
        let dir = storage.dir(&place)?;
        let through = Attributes {
            mode: Some(0o711),
            ..Attributes::default()
        };
        let parent = place
            .parent()
            .context("the scratch directory has no parent")?;
        storage
            .dir(parent)?
            .set_attributes(Path::new(place.file_name().unwrap_or_default()), &through)?;
        for name in ["data", "run"] {
            dir.create_dir(Path::new(name))?;
            let own = Attributes {
                mode: Some(0o700),
                owner: user,
                mtime_ns: None,
            };
            dir.set_attributes(Path::new(name), &own)?;
        }
        let data = place.join("data");
        let mut initdb = as_user(&programs.join("initdb"), user)?;
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--data-checksums",
        ]);
        let made = initdb
            .arg("--pgdata")
            .arg(&data)
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            made.status.success(),
            "initdb failed in {}: {}; give a --work that user postgres can enter",
            data.display(),
            String::from_utf8_lossy(&made.stderr).trim()
        );
        let words: Vec<String> = [
            "-D".to_owned(),
            data.display().to_string(),
            "-k".into(),
            socket_dir.display().to_string(),
            "-c".into(),
            "listen_addresses=".into(),
            "-c".into(),
            "shared_buffers=64MB".into(),
            "-c".into(),
            "max_wal_size=256MB".into(),
        ]
        .into();
        let server = Watched::start(
            &programs.join("postgres"),
            &words,
            "INT",
            user,
            Stdio::null(),
        )?;
        let text = address(&socket_dir);
        let options = Options::parse(&text, &|_| None, &longshore_facts::login_name)?;
        let mut cluster = LoadCluster {
            server,
            options,
            programs,
            user,
            place,
            socket_dir,
        };
        cluster.wait(storage, clock)?;
        Ok(cluster)
    }

    /// Until the server takes connections.
    fn wait(&mut self, storage: &dyn Storage, clock: &dyn Clock) -> Result<()> {
        let begun = clock.now();
        loop {
            match Client::open(storage, &self.options, Mode::Sql) {
                Ok(_) => return Ok(()),
                Err(error) if clock.now() - begun > PATIENCE || self.server.has_ended() => {
                    return Err(error).context("the study's PostgreSQL server does not answer");
                }
                Err(_) => clock.sleep(Duration::from_millis(50)),
            }
        }
    }

    pub fn source(&self) -> SourceSpec {
        SourceSpec::Postgres(Box::new(self.options.clone()))
    }

    pub fn address(&self) -> String {
        address(&self.socket_dir)
    }

    pub fn programs(&self) -> &Path {
        &self.programs
    }

    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub fn data(&self) -> PathBuf {
        self.place.join("data")
    }

    pub fn user(&self) -> Option<Ids> {
        self.user
    }

    fn client(&self, storage: &dyn Storage) -> Result<Client> {
        Ok(Client::open(storage, &self.options, Mode::Sql)?)
    }

    /// Fills the database with the tables of a sample.
    pub fn fill(&self, storage: &dyn Storage, sample: &Path, kind: SampleKind) -> Result<()> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a sample that nobody writes, opened to read"
        )]
        let sample = Connection::open_with_flags(sample, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut client = self.client(storage)?;
        let (tables, indexes) = for_postgres(kind);
        for (table, create) in tables {
            client.query(&create)?;
            copy(&sample, &mut client, table)?;
        }
        for index in indexes {
            client.query(index)?;
        }
        client.query("VACUUM (ANALYZE)")?;
        client.query("CHECKPOINT")?;
        Ok(())
    }

    /// Makes pgbench's own tables, about 15 MB for each unit of scale.
    pub fn fill_for_pgbench(&self, scale: u64) -> Result<()> {
        let mut command = as_user(&self.programs.join("pgbench"), self.user)?;
        command.args(["-i", "-q", "-s", &scale.to_string(), "-U", "postgres", "-h"]);
        let made = command
            .arg(&self.socket_dir)
            .arg("postgres")
            .stdin(Stdio::null())
            .output();
        let made = made.context("cannot run pgbench, which Red Hat's packages have apart: dnf install postgresql-contrib")?;
        ensure!(
            made.status.success(),
            "pgbench failed: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        );
        Ok(())
    }
}

/// Copies a table's rows.
fn copy(sample: &Connection, client: &mut Client, table: &str) -> Result<()> {
    let mut select = sample.prepare(&format!("SELECT * FROM {table}"))?;
    let width = select.column_count();
    let mut rows = select.query([])?;
    client.start(&format!("COPY {table} FROM STDIN"))?;
    match client.reply()? {
        Some(Reply::CopyIn) => {}
        other => bail!("the server answered {other:?} to COPY"),
    }
    let mut text = String::new();
    while let Some(row) = rows.next()? {
        for n in 0..width {
            text.push_str(if n > 0 { "\t" } else { "" });
            match shown(row.get_ref(n)?) {
                Some(word) => text.push_str(
                    &word
                        .replace('\\', "\\\\")
                        .replace('\t', "\\t")
                        .replace('\n', "\\n"),
                ),
                None => text.push_str("\\N"),
            }
        }
        text.push('\n');
        if text.len() > COPIED_AT_ONCE {
            client.put_copy_data(text.as_bytes())?;
            text.clear();
        }
    }
    client.put_copy_data(text.as_bytes())?;
    client.put_copy_done()?;
    while client.reply()?.is_some() {}
    Ok(())
}

/// The text of all files in a directory whose names begin so; none if the directory is missing.
pub fn texts(storage: &dyn Storage, dir: &Path, beginning: &str) -> Result<Vec<String>> {
    let opened = match storage.dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut found = Vec::new();
    for name in opened.list()? {
        let name = name?;
        if !name.to_string_lossy().starts_with(beginning) {
            continue;
        }
        let file = opened.open(Path::new(&name), OpenHow::Read)?;
        let mut bytes = vec![0; file.stat()?.len as usize];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        found.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_postgresql_is_missing_the_error_ends_in_the_command_that_installs_it() {
        let told = format!("{:#}", needed(None).unwrap_err());
        assert!(told.ends_with(": apt-get install postgresql"), "{told}");
        assert!(told.contains("--database sqlite"), "{told}");
        assert_eq!(needed(Some("/bin".into())).unwrap(), Path::new("/bin"));
    }
}
