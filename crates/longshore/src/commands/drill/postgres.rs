//! A private server over a restored cluster: recovers it, lets PostgreSQL's own tools look at it, and goes.
//!
//! The server listens on a Unix socket in a directory of its own, archives nothing, waits for no standby and loads no
//! library that the cluster's settings name; the cluster's own configuration files are not read, for they may name other
//! places. What `ALTER SYSTEM`, `ALTER DATABASE` and `ALTER ROLE` set is in the cluster, and is overruled where it would
//! stop a check. The server dies with this process, however that ends.

#[cfg(test)]
mod tests;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use longshore_io::{Attributes, OpenHow, Via};

use super::Proof;
use super::scratch::Scratch;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Ends the server when our end of the pipe closes. Again and again: one that has only begun ignores signals.
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

const PORT: &str = "5432";
const LOG: &str = "server.log";

/// How often is looked whether the server is ready.
const LOOK: Duration = Duration::from_millis(100);

/// Settings of the primary that recovery must not fall below, as pg_controldata names them.
const FLOORS: [(&str, &str); 5] = [
    ("max_connections setting", "max_connections"),
    ("max_worker_processes setting", "max_worker_processes"),
    ("max_wal_senders setting", "max_wal_senders"),
    ("max_prepared_xacts setting", "max_prepared_transactions"),
    ("max_locks_per_xact setting", "max_locks_per_transaction"),
];

/// Settings of a session that looks at the cluster: roles and databases may have others, which would end it, keep the
/// extension that it needs from being made, or run code of their own.
const SESSION: [&str; 7] = [
    "statement_timeout=0",
    "lock_timeout=0",
    "idle_session_timeout=0",
    "default_transaction_read_only=off",
    "synchronous_commit=local",
    "session_preload_libraries=",
    "local_preload_libraries=",
];
/// Those that older majors do not know.
const SESSION_SINCE_17: [&str; 2] = ["transaction_timeout=0", "event_triggers=off"];

/// The restored cluster and what runs it.
struct Cluster<'a> {
    context: &'a Context,
    major: u32,
    bin_dir: PathBuf,
    data: PathBuf,
    run_dir: PathBuf,
    /// Whose the data directory is, when we are root: PostgreSQL refuses root.
    user: Option<(u32, u32)>,
}

/// A server that runs; dropping it ends it at once.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended_already = self.child.wait();
    }
}

pub fn prove(
    context: &Context,
    scratch: &Scratch,
    data: &Path,
    bin_dir: Option<&Path>,
    users: &[String],
    cancel: &AtomicBool,
    proofs: &mut Vec<Proof>,
) -> Result<(), Failure> {
    let major = read_text(context, data, "PG_VERSION")?.trim().to_owned();
    let cluster = Cluster::new(context, scratch, data, &major, find(&major, bin_dir)?)?;
    let mut running = cluster.start(scratch)?;
    let ready = cluster.wait(&mut running, cancel)?;
    if !ready {
        let log = read_text(context, &scratch.path, LOG).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(8).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let text = format!(
            "the server did not get through recovery: {}",
            last.join(" | ")
        );
        proofs.push(Proof::of("recovered", false, text));
        return Ok(());
    }
    proofs.push(Proof::of(
        "recovered",
        true,
        format!("PostgreSQL {major} reached consistency"),
    ));
    proofs.push(cluster.amcheck(users, cancel)?);
    let mut stop = cluster.command("pg_ctl");
    stop.args(["stop", "--mode=fast", "--wait", "--timeout=600", "-D"])
        .arg(data);
    let stopped = cluster.run(&mut stop, cancel)?;
    let clean = stopped.status.success();
    proofs.push(Proof::of("stopped", clean, said(&stopped)));
    drop(running);
    if clean {
        let mut checksums = cluster.command("pg_checksums");
        checksums.args(["--check", "-D"]).arg(data);
        let output = cluster.run(&mut checksums, cancel)?;
        let text = said(&output);
        let off = text.contains("data checksums are not enabled");
        proofs.push(Proof::of(
            "page checksums",
            off || output.status.success(),
            text,
        ));
    }
    Ok(())
}

/// What a program said, on one line.
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
        n => format!("; and {n} lines more"),
    };
    lines[..shown].join("; ") + &more
}

fn refused(text: impl Into<String>, hint: &str) -> Failure {
    Failure {
        exit: Exit::Target,
        number: None,
        text: text.into(),
        causes: Vec::new(),
        hint: Some(hint.to_owned()),
    }
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
        // The end is what matters of a long log.
        let len = file.stat()?.len;
        let from = len.saturating_sub(64 << 10);
        let mut bytes = vec![0; (len - from) as usize];
        let got = file.read_full_at(&mut bytes, from, Via::Cache)?;
        Ok(String::from_utf8_lossy(&bytes[..got]).into_owned())
    };
    read().map_err(|e| failed(&format!("cannot read {name} of the restored cluster"), &e))
}

/// The directory with the programs of this major version.
fn find(major: &str, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let usual = [
        format!("/usr/lib/postgresql/{major}/bin"),
        format!("/usr/pgsql-{major}/bin"),
        format!("/usr/local/pgsql-{major}/bin"),
        "/usr/local/pgsql/bin".to_owned(),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates: Vec<PathBuf> = match given {
        Some(dir) => vec![dir.to_owned()],
        None => usual
            .iter()
            .map(PathBuf::from)
            .chain(std::env::split_paths(&path))
            .collect(),
    };
    candidates.retain(|dir| {
        let version = Command::new(dir.join("postgres")).arg("--version").output();
        version.is_ok_and(|v| {
            let text = String::from_utf8_lossy(&v.stdout).into_owned();
            let number = text.split_whitespace().nth(2).unwrap_or("");
            number.split(|c: char| !c.is_ascii_digit()).next() == Some(major)
        })
    });
    candidates.into_iter().next().ok_or_else(|| {
        refused(
            format!("no programs of PostgreSQL {major} were found"),
            "install that major version, or name its directory with --bin-dir",
        )
    })
}

impl<'a> Cluster<'a> {
    fn new(
        context: &'a Context,
        scratch: &Scratch,
        data: &Path,
        major: &str,
        bin_dir: PathBuf,
    ) -> Result<Cluster<'a>, Failure> {
        let cannot = |e| failed("cannot prepare the scratch directory", &e);
        let stat = context.storage.stat(data).map_err(cannot)?;
        let dir = context.storage.dir(&scratch.path).map_err(cannot)?;
        let own = dir.stat(Path::new("")).map_err(cannot)?;
        // We are root when the scratch directory we made is root's.
        let user = (own.uid == 0).then_some((stat.uid, stat.gid));
        if user.is_some_and(|(uid, _)| uid == 0) {
            return Err(refused(
                "the restored data directory belongs to root, and PostgreSQL refuses root",
                "run the drill as the user that the server runs as",
            ));
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

    /// A program of this version, run as the cluster's user, with nothing of our environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin_dir.join(program));
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .env("LC_ALL", "C")
            .env("PGTZ", "UTC")
            .current_dir("/")
            .stdin(Stdio::null())
            // Ctrl-C is for us; the server is stopped by us.
            .process_group(0);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
    }

    /// Recovery needs as much room as the primary had.
    fn settings(&self) -> Result<String, Failure> {
        let output = self
            .command("pg_controldata")
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

    fn start(&self, scratch: &Scratch) -> Result<Running, Failure> {
        let cannot = |e| failed("cannot start the server", &e);
        let log = std::fs::File::create(scratch.path.join(LOG)).map_err(cannot)?;
        let mut command = Command::new("/bin/sh");
        self.prepare(&mut command);
        command
            .args(["-c", WATCH, "sh"])
            .arg(self.bin_dir.join("postgres"))
            .arg("-D")
            .arg(&self.data);
        for (setting, file) in [
            ("config_file", "postgresql.conf"),
            ("hba_file", "pg_hba.conf"),
            ("ident_file", "pg_ident.conf"),
        ] {
            let path = scratch.path.join(file);
            command
                .arg("-c")
                .arg(format!("{setting}={}", path.display()));
        }
        command.arg("-c").arg(format!(
            "unix_socket_directories={}",
            self.run_dir.display()
        ));
        // The command line goes before postgresql.auto.conf, which may name the cluster's own places.
        for setting in [
            "listen_addresses=",
            "port=5432",
            "archive_mode=off",
            "ssl=off",
            "logging_collector=off",
            "log_destination=stderr",
            "shared_preload_libraries=",
            "session_preload_libraries=",
            "local_preload_libraries=",
            "hot_standby=off",
            "primary_conninfo=",
            "synchronous_standby_names=",
            // A subscriber's workers would take the original's place at its publisher.
            "max_logical_replication_workers=0",
            "max_sync_workers_per_subscription=0",
            "huge_pages=off",
            "shared_buffers=64MB",
            "external_pid_file=",
            "unix_socket_group=",
            "unix_socket_permissions=0700",
        ] {
            command.args(["-c", setting]);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(cannot)?)
            .stderr(log)
            .spawn()
            .map_err(cannot)?;
        Ok(Running { child })
    }

    /// Whether the server is through recovery; it has ended otherwise.
    fn wait(&self, running: &mut Running, cancel: &AtomicBool) -> Result<bool, Failure> {
        loop {
            check(cancel)?;
            let ended = running.child.try_wait();
            if ended
                .map_err(|e| failed("cannot watch the server", &e))?
                .is_some()
            {
                return Ok(false);
            }
            let mut ask = self.command("pg_isready");
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

    fn connect<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.arg("-h").arg(&self.run_dir).args(["-p", PORT])
    }

    /// Every table and index of every database.
    fn amcheck(&self, users: &[String], cancel: &AtomicBool) -> Result<Proof, Failure> {
        let what = "pg_amcheck";
        let since_17: &[&str] = match self.major {
            17.. => &SESSION_SINCE_17,
            _ => &[],
        };
        let settings = SESSION.iter().chain(since_17);
        let settings: String = settings.map(|setting| format!("-c {setting} ")).collect();
        let mut last = None;
        for user in users {
            let mut command = self.command("pg_amcheck");
            self.connect(&mut command)
                .env("PGOPTIONS", &settings)
                .args(["-U", user, "--no-password"])
                .args([
                    "--all",
                    "--install-missing",
                    "--heapallindexed",
                    "--parent-check",
                ]);
            let output = self.run(&mut command, cancel)?;
            let text = said(&output);
            if output.status.success() {
                let text = "every table and index of every database";
                return Ok(Proof::of(what, true, text));
            }
            let unknown = text.contains("does not exist") && text.contains("role");
            last = Some(text);
            if !unknown {
                break;
            }
        }
        Ok(Proof::of(what, false, last.unwrap_or_default()))
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

/// The first part of what a program says; the rest is read and let go.
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
