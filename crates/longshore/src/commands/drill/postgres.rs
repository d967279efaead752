//! Runs a private server over a restored cluster: it recovers the cluster, PostgreSQL's own tools check it, and it
//! stops.
//!
//! Event triggers and settings of roles and databases are deleted from the copy before the check (`disarm`). The check
//! itself calls the functions of indexes. Therefore the kernel confines the server and its children to the scratch
//! directory; on a kernel that cannot, such indexes are skipped.
//!
//! Invariants
//! - The server listens on a Unix socket in a directory of its own and runs nothing that production's configuration
//!   names.
//! - The server reads none of the cluster's configuration files; settings that could run code, connect out or write
//!   elsewhere are also overridden on the command line (`settings`).
//! - The server ends with this process, however this process ends.
//!
//! Leaves to others: restoring the cluster (`../drill.rs`), and confining a process (`longshore-io`).

mod disarm;
mod settings;
#[cfg(test)]
mod tests;

use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use longshore_io::{Attributes, Confinement, Distrust, OpenHow, Stat, Via, child, trusted};

use longshore_pg::Timeline;

use super::proof::Proof;
use super::scratch::Scratch;
use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;

/// Ends the server when our end of the pipe closes. Repeats the signal: a server that has just started ignores
/// signals.
const WATCH: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
{ read -r _ <&3; while kill -QUIT $server 2>/dev/null; do sleep 0.2; done; } &
watch=$!
trap '' INT TERM HUP
wait $server
status=$?
kill $watch 2>/dev/null
exit $status
"#;

/// The server's log, new or empty. Its texts quote rows, and others may enter the directory.
#[expect(
    clippy::disallowed_methods,
    reason = "a child writes it, in a directory of ours"
)]
fn log_file(dir: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(dir.join(LOG))
}

/// The file that says the major version of a cluster.
pub const VERSION: &str = "PG_VERSION";

const LOG: &str = "server.log";

/// The server's words, in the locale C, when replay has reached the backup's end.
const CONSISTENT: &str = "consistent recovery state reached";

/// The interval between checks whether the server is ready.
const LOOK: Duration = Duration::from_millis(100);

/// Settings of the primary that recovery must not fall below, as pg_controldata names them.
const FLOORS: [(&str, &str); 5] = [
    ("max_connections setting", "max_connections"),
    ("max_worker_processes setting", "max_worker_processes"),
    ("max_wal_senders setting", "max_wal_senders"),
    ("max_prepared_xacts setting", "max_prepared_transactions"),
    ("max_locks_per_xact setting", "max_locks_per_transaction"),
];

/// The settings made by `ALTER SYSTEM`: production's.
const AUTO_CONF: &str = "postgresql.auto.conf";

/// The restored cluster and what runs it.
struct Cluster<'a> {
    context: &'a Context,
    major: u32,
    bin_dir: PathBuf,
    data: PathBuf,
    run_dir: PathBuf,
    /// The owner of the data directory if we run as root: PostgreSQL refuses to run as root.
    user: Option<(u32, u32)>,
}

/// A running server; dropping it ends the server at once.
struct ServerProcess {
    child: Child,
    confinement: &'static str,
}

/// The report's text on how the server was confined.
const CONFINED: &str =
    "the server can write only in the scratch directory, and cannot connect (Landlock, seccomp)";
const NO_LANDLOCK: &str = "the server cannot connect (seccomp), but this kernel cannot confine all its writes to the \
    scratch directory (Landlock of Linux 6.2)";
const NO_SECCOMP: &str = "the server can write only in the scratch directory (Landlock), but this kernel cannot keep it \
    from connecting (seccomp)";
const UNCONFINED: &str = "none: this kernel has neither Landlock (Linux 6.2) nor seccomp";

impl ServerProcess {
    fn is_confined(&self) -> bool {
        self.confinement == CONFINED
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended_already = self.child.wait();
    }
}

/// Looks for the programs of the cluster whose [`VERSION`] was restored to `dir`.
pub fn look_for_programs(
    context: &Context,
    dir: &Path,
    bin_dir: Option<&Path>,
) -> Result<(), Failure> {
    let major = read_text(context, dir, VERSION)?.trim().to_owned();
    let cannot = |e| failed("cannot examine the scratch directory", &e);
    let dir = context.storage.dir(dir).map_err(cannot)?;
    let (made, restored) = (dir.stat(Path::new("")), dir.stat(Path::new(VERSION)));
    let (made, restored) = (made.map_err(cannot)?, restored.map_err(cannot)?);
    find(&major, bin_dir, server_user(&made, &restored)?).map(drop)
}

/// The user that the server runs as if we are root; in that case a directory that we made belongs to root.
fn server_user(made: &Stat, restored: &Stat) -> Result<Option<(u32, u32)>, Failure> {
    match (made.uid, restored.uid) {
        (0, 0) => Err(refused(
            "the restored data directory belongs to root, and PostgreSQL refuses to run as root",
            "run the drill as the user that the server runs as",
        )),
        (0, _) => Ok(Some((restored.uid, restored.gid))),
        _ => Ok(None),
    }
}

/// A restored cluster, and what is to prove it.
pub struct Trial<'a> {
    pub context: &'a Context,
    pub scratch: &'a Scratch<'a>,
    pub data: &'a Path,
    pub bin_dir: Option<&'a Path>,
    /// Roles that may be its superuser, likeliest first.
    pub users: &'a [String],
    /// The timeline that recovery follows; `None`: the latest.
    pub timeline: Option<Timeline>,
    /// Whether the server has WAL after the backup.
    pub has_later: bool,
    pub cancel: &'a AtomicBool,
}

/// The item about the server's recovery. Full disks and killed servers end one, too.
const RECOVERED: &str = "recovered";

/// Returns why recovery failed in WAL after the backup, if it did: then nothing of the backup was checked but that replay got to
/// its end.
pub fn prove(trial: &Trial, proofs: &mut Vec<Proof>) -> Result<Option<String>, Failure> {
    let Trial {
        context,
        scratch,
        data,
        bin_dir,
        users,
        timeline,
        has_later,
        cancel,
    } = *trial;
    let major = read_text(context, data, VERSION)?.trim().to_owned();
    let cluster = Cluster::new(context, scratch, data, &major, bin_dir)?;
    let mut running = cluster.start(scratch, timeline)?;
    proofs.push(Proof::of("confinement", true, running.confinement));
    let ready = cluster.wait(&mut running, cancel)?;
    let reached = format!("PostgreSQL {major} reached consistency");
    if !ready {
        let log = read_text(context, &scratch.path, LOG).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(8).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let text = format!("the server's recovery failed: {}", last.join(" | "));
        let is_after = has_later && log.contains(CONSISTENT);
        proofs.push(match is_after {
            true => Proof::of_place(RECOVERED, true, reached),
            false => Proof::of_place(RECOVERED, false, &text[..]),
        });
        return Ok(is_after.then_some(text));
    }
    proofs.push(Proof::of_place(RECOVERED, true, reached));
    proofs.push(cluster.amcheck(users, running.is_confined(), cancel)?);
    let mut stop = cluster.command("pg_ctl")?;
    stop.args(["stop", "--mode=fast", "--wait", "--timeout=600", "-D"])
        .arg(data);
    let stopped = cluster.run(&mut stop, cancel)?;
    let clean = stopped.status.success();
    proofs.push(Proof::of_place("stopped", clean, said(&stopped)));
    drop(running);
    if clean {
        let mut checksums = cluster.command("pg_checksums")?;
        checksums.args(["--check", "-D"]).arg(data);
        let output = cluster.run(&mut checksums, cancel)?;
        let text = said(&output);
        let off = text.contains("data checksums are not enabled");
        proofs.push(Proof::of(
            "page checksums",
            off || output.status.success(),
            match off {
                true => "the cluster's pages have none".to_owned(),
                false => text,
            },
        ));
    }
    Ok(None)
}

/// Whether `pg_amcheck` found corruption, rather than trouble of its own, or indexes in the order of another system's
/// collations, of which the server warns. Source of the codes: `main` of PostgreSQL's pg_amcheck.c.
fn is_corruption(output: &Output) -> bool {
    const FOUND: i32 = 2;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.code() == Some(FOUND) && !said.contains("version mismatch")
}

/// The output of a program, on one line.
fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let shown = lines.len().min(12);
    let more = match lines.len() - shown {
        0 => String::new(),
        n => format!("; and {n} more lines"),
    };
    lines[..shown].join("; ") + &more
}

fn refused(text: impl Into<String>, hint: &str) -> Failure {
    Failure::new(Exit::Target, numbers::RESTORE_TARGET, text, hint)
}

fn failed(what: &str, error: &std::io::Error) -> Failure {
    let mut failure = refused(
        what,
        "check the scratch directory and PostgreSQL's programs",
    );
    failure.causes.push(error.to_string());
    failure
}

fn read_text(context: &Context, dir: &Path, name: &str) -> Result<String, Failure> {
    let read = || -> std::io::Result<String> {
        let file = context
            .storage
            .dir(dir)?
            .open(Path::new(name), OpenHow::Read)?;
        // The end of a long log matters most.
        let len = file.stat()?.len;
        let from = len.saturating_sub(64 << 10);
        let mut bytes = vec![0; (len - from) as usize];
        let got = file.read_full_at(&mut bytes, from, Via::Cache)?;
        Ok(String::from_utf8_lossy(&bytes[..got]).into_owned())
    };
    read().map_err(|e| failed(&format!("cannot read {name} of the restored cluster"), &e))
}

/// The directory with the programs of this major version. A candidate is asked for its version only if nobody but root,
/// us and `owner` can change it, and as the user that the server runs as: nothing of another user's is run.
fn find(major: &str, given: Option<&Path>, user: Option<(u32, u32)>) -> Result<PathBuf, Failure> {
    let usual = [
        format!("/usr/lib/postgresql/{major}/bin"),
        format!("/usr/pgsql-{major}/bin"),
        format!("/usr/local/pgsql-{major}/bin"),
        "/usr/local/pgsql/bin".to_owned(),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = match given {
        // Meant from here, and said so: --bin-dir may be relative.
        Some(dir) => vec![std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())],
        None => usual
            .iter()
            .map(PathBuf::from)
            .chain(std::env::split_paths(&path))
            .collect(),
    };
    let mut passed_over = Vec::new();
    for dir in candidates {
        let mut version = match as_user(&dir.join("postgres"), user) {
            Ok(version) => version,
            Err(distrust) => {
                if !distrust.is_missing() {
                    passed_over.push(distrust.to_string());
                }
                continue;
            }
        };
        let Ok(said) = version.arg("--version").output() else {
            continue;
        };
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let number = text.split_whitespace().nth(2).unwrap_or("");
        if number.split(|c: char| !c.is_ascii_digit()).next() == Some(major) {
            return Ok(dir);
        }
    }
    let mut failure = refused(
        format!("no programs of PostgreSQL {major} were found"),
        "install that major version, or name its directory with --bin-dir",
    );
    failure.causes = passed_over;
    Err(failure)
}

/// A program run as `user` without our environment. Errors: other users could change the program.
fn as_user(program: &Path, user: Option<(u32, u32)>) -> Result<Command, Distrust> {
    let owners = user.map_or(Vec::new(), |(uid, _)| vec![uid]);
    let mut command = child::program(program, &owners)?;
    command
        .env_clear()
        .env("PATH", child::PATH)
        .env("LC_ALL", "C")
        .env("PGTZ", "UTC")
        .current_dir("/")
        .stdin(Stdio::null())
        // Ctrl-C must reach only us; we stop the server.
        .process_group(0);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    Ok(command)
}

fn distrusted(distrust: &Distrust) -> Failure {
    refused(
        distrust.to_string(),
        "install PostgreSQL where only root can write, or name another directory with --bin-dir",
    )
}

impl<'a> Cluster<'a> {
    fn new(
        context: &'a Context,
        scratch: &Scratch,
        data: &Path,
        major: &str,
        bin_dir: Option<&Path>,
    ) -> Result<Cluster<'a>, Failure> {
        let cannot = |e| failed("cannot prepare the scratch directory", &e);
        let stat = context.storage.stat(data).map_err(cannot)?;
        let dir = context.storage.dir(&scratch.path).map_err(cannot)?;
        let own = dir.stat(Path::new("")).map_err(cannot)?;
        let user = server_user(&own, &stat)?;
        let bin_dir = find(major, bin_dir, user)?;
        // The server reads settings from only this file of the cluster, wherever its own configuration files are.
        let cluster_dir = context.storage.dir(data).map_err(cannot)?;
        match cluster_dir.remove_file(Path::new(AUTO_CONF)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(e)),
            _ => {}
        }
        let run_dir = Path::new("run");
        dir.create_dir(run_dir).map_err(cannot)?;
        let all = Attributes {
            mode: Some(0o700),
            owner: user,
            mtime_ns: None,
        };
        dir.set_attributes(run_dir, &all).map_err(cannot)?;
        let through = Attributes {
            mode: Some(0o711),
            ..Attributes::default()
        };
        let name = scratch.path.file_name().unwrap_or_default();
        scratch
            .parent
            .set_attributes(Path::new(name), &through)
            .map_err(cannot)?;
        let cluster = Cluster {
            context,
            major: major.parse().unwrap_or(0),
            bin_dir,
            data: data.to_owned(),
            run_dir: scratch.path.join(run_dir),
            user,
        };
        for (name, text) in [
            ("postgresql.conf", cluster.settings()?),
            ("pg_hba.conf", "local all all trust\n".to_owned()),
            ("pg_ident.conf", String::new()),
        ] {
            let file = dir
                .open(Path::new(name), OpenHow::CreateNew)
                .map_err(cannot)?;
            file.write_all_at(text.as_bytes(), 0, Via::Cache)
                .map_err(cannot)?;
            let readable = Attributes {
                mode: Some(0o644),
                ..Attributes::default()
            };
            dir.set_attributes(Path::new(name), &readable)
                .map_err(cannot)?;
        }
        Ok(cluster)
    }

    /// A program of this version, run as the cluster's user without our environment.
    fn command(&self, program: &str) -> Result<Command, Failure> {
        as_user(&self.bin_dir.join(program), self.user).map_err(|e| distrusted(&e))
    }

    /// Recovery needs as much room as the primary had.
    fn settings(&self) -> Result<String, Failure> {
        let output = self
            .command("pg_controldata")?
            .arg(&self.data)
            .output()
            .map_err(|e| failed("cannot run pg_controldata", &e))?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut text = String::new();
        for (key, setting) in FLOORS {
            let line = told
                .lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
            if let Some(value) = line.map(str::trim).filter(|v| v.parse::<u32>().is_ok()) {
                text += &format!("{setting} = {value}\n");
            }
        }
        Ok(text)
    }

    fn start(
        &self,
        scratch: &Scratch,
        timeline: Option<Timeline>,
    ) -> Result<ServerProcess, Failure> {
        let cannot = |e| failed("cannot start the server", &e);
        let log = log_file(&scratch.path).map_err(cannot)?;
        let owners = self.user.map_or(Vec::new(), |(uid, _)| vec![uid]);
        let server = trusted(&self.bin_dir.join("postgres"), &owners);
        let server = server.map_err(|e| distrusted(&e))?;
        let mut command = as_user(Path::new("/bin/sh"), self.user).map_err(|e| distrusted(&e))?;
        command
            .args(["-c", WATCH, "sh"])
            .arg(server)
            .arg("-D")
            .arg(&self.data);
        let own = |name: &str| scratch.path.join(name);
        for (setting, path) in [
            ("config_file", own("postgresql.conf")),
            ("hba_file", own("pg_hba.conf")),
            ("ident_file", own("pg_ident.conf")),
            ("data_directory", self.data.clone()),
            ("unix_socket_directories", self.run_dir.clone()),
        ] {
            command
                .arg("-c")
                .arg(format!("{setting}={}", path.display()));
        }
        for setting in settings::of_server(self.major) {
            command.arg("-c").arg(setting);
        }
        // Later settings win.
        if let Some(timeline) = timeline {
            let setting = format!("recovery_target_timeline={timeline}");
            command.arg("-c").arg(setting);
        }
        let confinement = Confinement::within(&[&scratch.path]).map_err(cannot)?;
        let told = match (
            confinement.keeps_writes_in(),
            confinement.keeps_connections_in(),
        ) {
            (true, true) => CONFINED,
            (false, true) => NO_LANDLOCK,
            (true, false) => NO_SECCOMP,
            (false, false) => UNCONFINED,
        };
        confinement.apply(&mut command);
        let child = command
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(cannot)?)
            .stderr(log)
            .spawn()
            .map_err(cannot)?;
        Ok(ServerProcess {
            child,
            confinement: told,
        })
    }

    /// Returns true when recovery is complete, false if the server has ended.
    fn wait(&self, running: &mut ServerProcess, cancel: &AtomicBool) -> Result<bool, Failure> {
        loop {
            check(cancel)?;
            let ended = running.child.try_wait();
            if ended
                .map_err(|e| failed("cannot watch the server", &e))?
                .is_some()
            {
                return Ok(false);
            }
            let mut ask = self.command("pg_isready")?;
            self.connect(&mut ask).arg("--quiet");
            let ready = ask.status();
            if ready
                .map_err(|e| failed("cannot run pg_isready", &e))?
                .success()
            {
                return Ok(true);
            }
            self.context.clock.sleep(LOOK);
        }
    }

    fn running(&self) -> disarm::RunningCopy<'_> {
        disarm::RunningCopy {
            storage: &*self.context.storage,
            run_dir: &self.run_dir,
            major: self.major,
        }
    }

    fn connect<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .arg("-h")
            .arg(&self.run_dir)
            .args(["-p", settings::PORT])
    }

    /// Checks every table and index of every database.
    fn amcheck(
        &self,
        users: &[String],
        is_confined: bool,
        cancel: &AtomicBool,
    ) -> Result<Proof, Failure> {
        let what = "pg_amcheck";
        let disarmed = match disarm::disarm(&self.running(), users) {
            Ok(disarmed) => disarmed,
            Err(e) => {
                let text = format!(
                    "cannot remove event triggers and settings of roles from the copy: {e}"
                );
                return Ok(Proof::of_place(what, false, text));
            }
        };
        check(cancel)?;
        let left_out: &[String] = match is_confined {
            true => &[],
            false => &disarmed.indexes,
        };
        let mut command = self.command("pg_amcheck")?;
        self.connect(&mut command)
            .env("PGOPTIONS", settings::of_session(self.major))
            .args(["-U", &disarmed.user, "--no-password"])
            .args([
                "--all",
                "--install-missing",
                "--heapallindexed",
                "--parent-check",
            ]);
        for index in left_out {
            command.arg("--exclude-index").arg(index);
        }
        let output = self.run(&mut command, cancel)?;
        let mut text = match output.status.success() {
            true => "every table and index of every database".to_owned(),
            false => said(&output),
        };
        if !left_out.is_empty() {
            let count = left_out.len();
            text += &format!(
                "; {count} indexes were not checked: that would call the database's own functions, and the server is not \
                 confined"
            );
        }
        let is_sound = output.status.success();
        Ok(match is_sound || is_corruption(&output) {
            true => Proof::of(what, is_sound, text),
            false => Proof::of_place(what, false, text),
        })
    }

    /// Runs a program to its end, or until Ctrl-C.
    fn run(&self, command: &mut Command, cancel: &AtomicBool) -> Result<Output, Failure> {
        let cannot = |e| failed("cannot run a program of PostgreSQL", &e);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr, status) = std::thread::scope(|scope| {
            let out = Builder::new().spawn_scoped(scope, || drain(out));
            let err = Builder::new().spawn_scoped(scope, || drain(err));
            let (out, err) = match (out, err) {
                (Ok(out), Ok(err)) => (out, err),
                (Err(e), _) | (_, Err(e)) => {
                    let _ended_already = child.kill().and_then(|()| child.wait());
                    return Err(e);
                }
            };
            let status = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break Ok(status),
                    Ok(None) if cancel.load(Ordering::Relaxed) => {
                        let _ended_already = child.kill();
                        break child.wait();
                    }
                    Ok(None) => self.context.clock.sleep(LOOK),
                    Err(e) => break Err(e),
                }
            };
            let text = |t: std::thread::ScopedJoinHandle<Vec<u8>>| t.join().unwrap_or_default();
            Ok((text(out), text(err), status?))
        })
        .map_err(cannot)?;
        check(cancel)?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

/// The first part of a program's output; the rest is read and dropped.
fn drain(pipe: Option<impl std::io::Read>) -> Vec<u8> {
    const MAX: usize = 64 << 10;
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    let Some(mut pipe) = pipe else {
        return kept;
    };
    while let Ok(n @ 1..) = pipe.read(&mut buffer) {
        let room = MAX - kept.len().min(MAX);
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    kept
}

fn check(cancel: &AtomicBool) -> Result<(), Failure> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(longshore_pipeline::Error::Cancelled.into()),
        false => Ok(()),
    }
}
