//! Backups of the study's cluster by other programs: pgBackRest, WAL-G and pg_basebackup.
//!
//! Each has the settings that its documentation has for speed, the checks that it makes by default, and no archive: a full
//! backup to a new repository in the first directory of stripes.
//!
//! Invariants
//! - A program runs as the server's user, with no configuration but these settings; its repository is removed afterwards.
//! - The preparation of a repository is not counted.
//! - CPU time is that of the program and its children. pg_basebackup has its server do the work, so it has none.
//!
//! Leaves to others: the phases (`mod.rs`), and which programs are installed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use longshore_facts as facts;
use longshore_io::{Attributes, Dir, FileKind, Storage, child};
use longshore_pipeline::RunContext;

use super::cluster::LoadCluster;
use super::phase::Taken;
use super::watched::{Ids, as_user};

/// A program that has not ended after so long never will.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The most that a program may print.
const OUTPUT_MAX: usize = 1 << 20;

/// The server that is backed up, as far as command lines name it.
#[derive(Debug, Clone)]
struct PeerServer {
    data: PathBuf,
    socket_dir: PathBuf,
    user: Option<Ids>,
    /// A program that works in parallel has so many processes.
    cpus: usize,
}

/// Another program that makes backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadedPeer {
    PgBackRest,
    WalG,
    PgBasebackup,
}

impl LoadedPeer {
    /// In the names of values.
    pub fn key(self) -> &'static str {
        match self {
            LoadedPeer::PgBackRest => "pgbackrest",
            LoadedPeer::WalG => "wal_g",
            LoadedPeer::PgBasebackup => "pg_basebackup",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            LoadedPeer::PgBackRest => "pgBackRest zst 1",
            LoadedPeer::WalG => "WAL-G lz4",
            LoadedPeer::PgBasebackup => "pg_basebackup server-lz4:1",
        }
    }

    /// For the report.
    pub fn settings(self) -> &'static str {
        match self {
            LoadedPeer::PgBackRest => {
                "pgBackRest: `process-max` is the number of CPUs, `repo1-bundle`, `start-fast`; it checks every page \
                 and has SHA-1 of each file; without an archive its backup has no WAL and cannot be restored alone"
            }
            LoadedPeer::WalG => {
                "WAL-G: as many readers as CPUs; it checks no pages (its default); without an archive its backup has no WAL and cannot be \
                 restored alone"
            }
            LoadedPeer::PgBasebackup => {
                "pg_basebackup: tar, `-X stream`, `--checkpoint=fast`; its server does the work in one process, so its CPU time is \
                 not known; it checks every page; its WAL is not compressed"
            }
        }
    }

    /// The program, which must be installed.
    pub fn program(self, cluster: &LoadCluster) -> Result<PathBuf> {
        let installed = |name: &str| -> Result<PathBuf> {
            let found = child::installed(name);
            let found =
                found.with_context(|| format!("install {name}, or leave out its --peer"))?;
            Ok(found.get_program().into())
        };
        match self {
            LoadedPeer::PgBackRest => installed("pgbackrest"),
            LoadedPeer::WalG => installed("wal-g"),
            LoadedPeer::PgBasebackup => Ok(cluster.programs().join("pg_basebackup")),
        }
    }

    /// Commands to be run one after the other; the last one is the backup.
    fn commands(self, program: &Path, server: &PeerServer, place: &Path) -> Result<Vec<Command>> {
        let command = || as_user(program, server.user);
        let of = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let cpus = server.cpus.to_string();
        match self {
            LoadedPeer::PgBackRest => {
                let all = |command: &mut Command| {
                    command.args([
                        "--no-config",
                        "--stanza=lab",
                        "--log-level-file=off",
                        "--log-level-console=off",
                        "--log-level-stderr=error",
                        "--pg1-user=postgres",
                        &of("repo1-path", &place.join("repository")),
                        &of("lock-path", &place.join("lock")),
                        &of("pg1-path", &server.data),
                        &of("pg1-socket-path", &server.socket_dir),
                    ]);
                };
                let (mut create, mut backup) = (command()?, command()?);
                all(&mut create);
                create.arg("stanza-create");
                all(&mut backup);
                backup.args([
                    "--compress-type=zst",
                    "--compress-level=1",
                    &format!("--process-max={cpus}"),
                    "--repo1-bundle",
                    "--repo1-retention-full=9",
                    "--type=full",
                    "--start-fast",
                    "--no-archive-check",
                    "backup",
                ]);
                Ok(vec![create, backup])
            }
            LoadedPeer::WalG => {
                let mut backup = command()?;
                // No file of the user's home has a say.
                backup
                    .env("HOME", place)
                    .env("WALG_FILE_PREFIX", place)
                    .env("WALG_COMPRESSION_METHOD", "lz4")
                    .env("WALG_UPLOAD_DISK_CONCURRENCY", cpus)
                    .env("PGHOST", &server.socket_dir)
                    .env("PGUSER", "postgres")
                    .env("PGDATABASE", "postgres")
                    .arg("backup-push")
                    .arg(&server.data);
                Ok(vec![backup])
            }
            LoadedPeer::PgBasebackup => {
                let mut backup = command()?;
                backup
                    .args(["-Ft", "-X", "stream", "-c", "fast", "-U", "postgres"])
                    .args(["--compress=server-lz4:1", "-h"])
                    .arg(&server.socket_dir)
                    .arg("-D")
                    .arg(place.join("backup"));
                Ok(vec![backup])
            }
        }
    }
}

/// One full backup of the cluster, into the new directory `place`. Its source has `plain_bytes`.
///
/// Errors: a program that is not installed, or fails; with the end of what it said.
pub fn take(
    context: &RunContext,
    cluster: &LoadCluster,
    peer: LoadedPeer,
    (place, plain_bytes): (&Path, u64),
) -> Result<Taken> {
    let storage = &*context.storage;
    make(storage, cluster, place)?;
    let server = PeerServer {
        data: cluster.data(),
        socket_dir: cluster.socket_dir().to_owned(),
        user: cluster.user(),
        cpus: facts::cores(),
    };
    let mut commands = peer.commands(&peer.program(cluster)?, &server, place)?;
    let mut backup = commands.pop().context("no command")?;
    for mut command in commands {
        end(context, peer, &mut command)?;
    }
    let cpu = facts::children_cpu()?;
    let start = context.clock.now();
    end(context, peer, &mut backup)?;
    let wall_s = (context.clock.now() - start).as_secs_f64();
    let cpu_s = facts::children_cpu()?.saturating_sub(cpu).as_secs_f64();
    Ok(Taken {
        wall_s,
        cpu_s: (peer != LoadedPeer::PgBasebackup).then_some(cpu_s),
        plain_bytes,
        stored_bytes: bytes_below(&*storage.dir(place)?)?,
        accelerator_share: 0.0,
    })
}

/// Makes the directory, which the server's user owns and can reach.
fn make(storage: &dyn Storage, cluster: &LoadCluster, place: &Path) -> Result<()> {
    let (above, name) = (place.parent(), place.file_name());
    let (above, name) = above.zip(name).context("no place for a repository")?;
    let (top, own) = above
        .parent()
        .zip(above.file_name())
        .context("no directory for it")?;
    let through = Attributes {
        mode: Some(0o711),
        ..Attributes::default()
    };
    storage.dir(top)?.set_attributes(Path::new(own), &through)?;
    let dir = storage.dir(above)?;
    dir.create_dir(Path::new(name))?;
    let private = Attributes {
        mode: Some(0o700),
        owner: cluster.user(),
        mtime_ns: None,
    };
    dir.set_attributes(Path::new(name), &private)?;
    Ok(())
}

fn end(context: &RunContext, peer: LoadedPeer, command: &mut Command) -> Result<()> {
    let said = child::ask(command, PATIENCE, OUTPUT_MAX, &context.cancel);
    let said = said.with_context(|| format!("{} failed", peer.name()))?;
    ensure!(
        said.status.success(),
        "{} failed: {}; its user must be able to enter --dir and --work",
        peer.name(),
        String::from_utf8_lossy(&said.errors).trim()
    );
    Ok(())
}

fn bytes_below(dir: &dyn Dir) -> io::Result<u64> {
    let mut sum = 0;
    for name in dir.list()? {
        let name = name?;
        let name = Path::new(&name);
        let stat = dir.stat(name)?;
        sum += match stat.kind {
            FileKind::Dir => bytes_below(&*dir.dir(name)?)?,
            FileKind::File => stat.len,
            _ => 0,
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Writes its name, its arguments and what it was told by its environment to a file, and makes no backup.
    const DOUBLE: &str = "#!/bin/sh\n{ for word; do echo \"$word\"; done; env | grep -E '^(HOME|PG|WALG)' | sort; echo; } >>\"${0%/*}/told\"\n";

    /// Goal: the programs get the settings that the report names, and nothing of ours but these.
    /// Method: a double in place of each, which records what it is told.
    /// Not covered: what the real programs make of it; `other_programs_that_are_installed_back_up_the_same_cluster` has them
    /// where they are.
    fn told(peer: LoadedPeer) -> String {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("double");
        fs::write(&program, DOUBLE).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let server = PeerServer {
            data: "/srv/data".into(),
            socket_dir: "/srv/run".into(),
            user: None,
            cpus: 3,
        };
        let commands = peer
            .commands(&program, &server, Path::new("/to/peer"))
            .unwrap();
        for mut command in commands {
            assert!(command.status().unwrap().success());
        }
        fs::read_to_string(dir.path().join("told")).unwrap()
    }

    fn lines(all: &[&str]) -> String {
        all.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn pgbackrest_is_told_to_be_quick_and_to_do_without_an_archive() {
        let all = [
            "--no-config",
            "--stanza=lab",
            "--log-level-file=off",
            "--log-level-console=off",
            "--log-level-stderr=error",
            "--pg1-user=postgres",
            "--repo1-path=/to/peer/repository",
            "--lock-path=/to/peer/lock",
            "--pg1-path=/srv/data",
            "--pg1-socket-path=/srv/run",
        ];
        let backup = [
            "--compress-type=zst",
            "--compress-level=1",
            "--process-max=3",
            "--repo1-bundle",
            "--repo1-retention-full=9",
            "--type=full",
            "--start-fast",
            "--no-archive-check",
            "backup",
        ];
        let own = |told: &str| {
            let is_own = |line: &&str| !line.starts_with("HOME=") && !line.starts_with("PGTZ=");
            told.lines()
                .filter(is_own)
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        let expected = lines(&all) + "stanza-create\n\n" + &lines(&all) + &lines(&backup) + "\n";
        assert_eq!(own(&told(LoadedPeer::PgBackRest)), expected);
    }

    #[test]
    fn wal_g_is_told_by_its_environment_and_finds_no_file_of_the_users() {
        let expected = lines(&[
            "backup-push",
            "/srv/data",
            "HOME=/to/peer",
            "PGDATABASE=postgres",
            "PGHOST=/srv/run",
            "PGTZ=UTC",
            "PGUSER=postgres",
            "WALG_COMPRESSION_METHOD=lz4",
            "WALG_FILE_PREFIX=/to/peer",
            "WALG_UPLOAD_DISK_CONCURRENCY=3",
            "",
        ]);
        assert_eq!(told(LoadedPeer::WalG), expected);
    }

    #[test]
    fn pg_basebackup_is_told_to_begin_at_once_and_to_take_its_wal_along() {
        let told = told(LoadedPeer::PgBasebackup);
        let expected = "-Ft -X stream -c fast -U postgres --compress=server-lz4:1 -h /srv/run -D /to/peer/backup";
        let words: Vec<&str> = told
            .lines()
            .take_while(|line| !line.contains("=") || line.starts_with("--"))
            .collect();
        assert_eq!(words.join(" "), expected);
    }
}
