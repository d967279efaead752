//! Goal: with limited resources, what cannot be done is refused, soon and with a reason.
//! Method: the program runs under limits on threads, files, memory and rights, some of them as another user, which
//! needs root.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Random, wait};
use crate::stage::{BINARY, Ran, Stage};

/// An unused user: limits on a user count all its processes.
const USER: u32 = 23_457;
/// The arguments of `setpriv` for this user.
const OTHER: [&str; 3] = ["--clear-groups", "--regid=23457", "--reuid=23457"];

/// A stage whose commands run as another user, who owns its files.
struct Guest {
    stage: Stage,
    program: PathBuf,
}

impl Guest {
    /// `None`: only root can switch to another user.
    fn new() -> Option<Guest> {
        // SAFETY: `geteuid` demands nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root can become somebody else");
            return None;
        }
        // A container may not know this user.
        let tried = Command::new("setpriv").args(OTHER).arg("true").status();
        if !tried.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nobody can become user {USER} here");
            return None;
        }
        let stage = Stage::beside_servers();
        // `longshore-lab` is started only from where nobody but root and the user may change it.
        let set = |name: &str, mode| {
            std::fs::set_permissions(stage.path(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(stage.path("bin")).unwrap();
        for name in ["longshore", "longshore-lab"] {
            let built = Path::new(BINARY).with_file_name(name);
            std::fs::copy(built, stage.path("bin").join(name)).unwrap();
        }
        set("bin", 0o755);
        set(".", 0o1777);
        let program = stage.path("bin/longshore");
        Some(Guest { stage, program })
    }

    /// Runs a line as that user, through another program (`prlimit`, `setpriv`) with its options.
    fn line_by(&self, by: &[&str], line: &str) -> Ran {
        let own = self.stage.command::<&str>(&[]);
        let mut command = Command::new("setpriv");
        command
            .args(OTHER)
            .args(by)
            .arg(&self.program)
            .args(["--catalog", "none"])
            .args(line.split_whitespace())
            .current_dir(self.stage.path("."))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (key, value) in own.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        let mut child = command.spawn().unwrap();
        wait(&mut child, Duration::from_secs(300), line);
        Ran::of(&child.wait_with_output().unwrap())
    }
}

/// Goal: a limit on the growth of a write-ahead log ends the backup that keeps the log from being reset.
#[test]
fn a_backup_ends_if_the_log_grows_beyond_its_limit() {
    let stage = Stage::new();
    let source = stage.database("app.db", 4);
    let writer = rusqlite::Connection::open(&source).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    for (limit, is_kept) in [("100K", false), ("10G", true)] {
        let line =
            format!("backup app.db --to {limit}.bak --max-rate 2M --wal-growth-limit {limit}");
        let words: Vec<_> = line.split(' ').collect();
        let mut command = stage.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            let sql = "INSERT INTO item (payload) VALUES (randomblob(50000))";
            writer.execute(sql, []).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let ran = Ran::of(&child.wait_with_output().unwrap());
        match is_kept {
            true => ran.exits(0),
            false => ran.exits(3).says("the limit is 102400"),
        };
        assert_eq!(stage.path(format!("{limit}.bak")).exists(), is_kept);
    }
    // The limit says nothing about other sources, and neither do options for PostgreSQL; a backup says so.
    stage.write("tree/file", b"x");
    let ran = stage
        .line("backup tree --to n.bak --wal-growth-limit 1M --remote --fail-on-bad-page")
        .exits(0);
    for option in ["--wal-growth-limit", "--remote", "--fail-on-bad-page"] {
        let told = format!("{option} has no effect here");
        assert!(ran.err.contains(&told), "{}", ran.err);
    }
    let ran = stage
        .line("backup app.db --to m.bak --wal-growth-limit 1G")
        .exits(0);
    assert!(!ran.err.contains("no effect"), "{}", ran.err);
}

/// If a thread that others needed could not start, they used to wait for ever.
#[test]
fn a_limit_on_threads_ends_a_run_in_words_or_not_at_all() {
    let Some(guest) = Guest::new() else {
        return;
    };
    let stage = &guest.stage;
    stage.database("app.db", 3);
    std::fs::set_permissions(stage.path("app.db"), PermissionsExt::from_mode(0o666)).unwrap();
    let whole = guest.line_by(&[], "backup app.db --to a.bak --to b.bak");
    whole.exits(0);
    for line in [
        "backup app.db --to x.bak --to y.bak",
        "verify a.bak b.bak",
        "restore a.bak b.bak --to out",
    ] {
        let (mut refused, mut threads) = (0, 0);
        loop {
            threads += 1;
            assert!(threads < 1000, "{line}");
            let limit = format!("--nproc={threads}");
            let ran = guest.line_by(&["prlimit", &limit], line);
            if ran.code == 0 {
                break;
            }
            refused += 1;
            let ran = ran.exits(2).says("cannot start a thread").says("hint: ");
            assert!(!ran.err.contains("panicked"), "{}", ran.err);
            let left = stage.names(".");
            let expected = ["a.bak", "app.db", "b.bak", "bin", "out"];
            let known = |name: &String| expected.contains(&name.as_str());
            assert!(left.iter().all(known), "{line}: {left:?}");
            assert!(!stage.path("out/app.db").exists());
        }
        assert!(refused > 1, "{line}: no limit was too low");
        for made in ["x.bak", "y.bak"] {
            let _not_made_by_all = std::fs::remove_file(stage.path(made));
        }
    }
    assert_eq!(stage.names("out"), ["app.db"]);
}

/// Goal: a run works with few open files, or says how many it needs; it never fails at some file in the middle.
#[test]
fn a_limit_on_open_files_is_kept_to_or_told() {
    let Some(guest) = Guest::new() else {
        return;
    };
    let stage = &guest.stage;
    for n in 0..400 {
        stage.write(format!("tree/{}/{n}", n % 7), &[n as u8; 3000]);
    }
    stage.write("tree/large", &vec![7; 5 << 20]);
    let whole = guest.line_by(&[], "backup files:tree --to a.bak --to b.bak");
    whole.exits(0);
    for (line, made) in [
        ("backup files:tree --to x.bak --to y.bak", "x.bak"),
        ("verify a.bak b.bak", "a.bak"),
        ("restore a.bak b.bak --to out", "out"),
    ] {
        let mut refused = 0;
        for files in (8..40).chain([64]) {
            let limit = format!("--nofile={files}");
            let ran = guest.line_by(&["prlimit", &limit], line);
            assert!(!ran.err.contains("panicked"), "{files}: {}", ran.err);
            if ran.code == 0 {
                assert!(stage.path(made).exists(), "{line}, {files}");
            } else {
                refused += 1;
                let ran = ran.says("open files").says("hint: ");
                assert!(files < 24 + 8, "{line}, {files} open files: {}", ran.err);
                assert!(
                    made == "a.bak" || !stage.path(made).exists(),
                    "{line}, {files}"
                );
            }
            for gone in ["x.bak", "y.bak"] {
                let _not_made_by_all = std::fs::remove_file(stage.path(gone));
            }
            let _not_made_by_all = std::fs::remove_dir_all(stage.path("out"));
        }
        assert!(refused > 0, "{line}: no limit was too low");
    }
}

/// Goal: under a limit on address space a run takes sizes that fit, at every limit above the lowest one that does: what the
/// allocator reserves for itself does not take what the sizes were fitted to.
#[test]
fn a_limit_on_address_space_leaves_no_hole_above_the_lowest_that_is_enough() {
    let Some(guest) = Guest::new() else {
        return;
    };
    let stage = &guest.stage;
    let mut random = Random(1);
    let noise: Vec<u8> = (0..1 << 20)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    stage.write("large", &noise);
    guest.line_by(&[], "backup files:large --to a.bak").exits(0);
    for mib in (140..=360).step_by(4) {
        let limit = format!("--as={}", mib << 20);
        let ran = guest.line_by(&["prlimit", &limit], "verify a.bak");
        assert_eq!(ran.code, 0, "{mib} MiB: {}", ran.err);
    }
}

#[test]
fn studies_end_in_words_where_no_thread_can_be_started() {
    let Some(guest) = Guest::new() else {
        return;
    };
    std::fs::File::create(guest.stage.path("device"))
        .and_then(|file| file.set_len(129 << 20))
        .unwrap();
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(guest.stage.path("device"), open).unwrap();
    for (line, code) in [
        ("lab bench --quick --size 4M --work kept", 2..=6),
        ("lab sweep --quick --size 4M --dir out", 2..=2),
        ("cache calibrate device --model m --seconds 1", 3..=3),
    ] {
        for threads in 1..4 {
            let limit = format!("--nproc={threads}");
            let ran = guest.line_by(&["prlimit", &limit], line);
            assert!(code.contains(&ran.code), "{threads}: {ran:?}");
            assert!(!ran.err.contains("panicked"), "{}", ran.err);
            ran.says("os error 11").says("hint: ");
        }
    }
}

#[test]
fn missing_permissions_are_named_with_the_path_and_have_their_own_exit_code() {
    let Some(guest) = Guest::new() else {
        return;
    };
    let stage = &guest.stage;
    stage.database("app.db", 1);
    stage.write("tree/closed", b"root's");
    stage.line("backup app.db --to a.bak").exits(0);
    std::fs::create_dir(stage.path("roots")).unwrap();
    let set = |name: &str, mode| {
        std::fs::set_permissions(stage.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    for (name, mode) in [("app.db", 0o644), ("a.bak", 0o644), ("tree/closed", 0o600)] {
        set(name, mode);
    }
    for (name, mode) in [("tree", 0o755), ("roots", 0o755)] {
        set(name, mode);
    }
    for (line, code, place) in [
        ("backup tree --to x.bak", 3, "tree/closed"),
        ("backup app.db --to roots/x.bak", 4, "roots/x.bak"),
        ("restore a.bak --to roots", 6, "roots"),
        ("restore a.bak --to roots/out", 6, "roots/out"),
    ] {
        let ran = guest.line_by(&[], line).exits(code);
        let first = ran.err.lines().find(|l| l.contains("error")).unwrap();
        assert!(first.contains(place), "{line}: {}", ran.err);
        ran.says("Permission denied").says("hint: ");
    }
    assert!(stage.names("roots").is_empty() && !stage.path("x.bak").exists());
    set("a.bak", 0o600);
    for line in ["verify a.bak", "list a.bak", "restore a.bak --to out"] {
        guest
            .line_by(&[], line)
            .exits(4)
            .says("error 3201")
            .says("a.bak");
    }
    set("app.db", 0o600);
    let ran = guest.line_by(&[], "backup app.db --to x.bak").exits(3);
    ran.says("app.db").says("Permission denied");
}

/// The I/O priorities of a program's threads, as the kernel has them.
fn priorities(child: &Child) -> Vec<i64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let ids = tasks.filter_map(|t| t.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // SAFETY: the call demands integers only; 1 says that the number is a thread's.
    let asked = ids.map(|id| unsafe { libc::syscall(libc::SYS_ioprio_get, 1, id) });
    asked.filter(|value| *value >= 0).collect()
}

#[test]
fn all_threads_that_move_bytes_get_low_io_priority_on_request() {
    /// Best effort, the last of eight levels.
    const LOW: i64 = 2 << 13 | 7;
    let stage = Stage::new();
    stage.write("tree/file", &vec![3; 30 << 20]);
    stage
        .line("backup tree --to a.bak --buffer-count 2")
        .exits(0);
    let at = |name: &str| stage.path(name).display().to_string();
    let (target, tree) = (at("target"), at("tree"));
    let config = format!(
        "[target.t]\ndirectories = [\"{target}\"]\n[database.docs]\nurl = \"files:{tree}\"\ntarget = \"t\"\n"
    );
    stage.write("no-config/longshore/longshore.toml", config.as_bytes());
    std::fs::create_dir(stage.path("target")).unwrap();
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("backup docs --buffer-count 2").exits(0);
    // All of them run until they are killed: half a minute.
    for line in [
        "drill docs --work work --max-rate 1M",
        "backup tree --to b.bak --max-rate 1M",
        "verify a.bak --max-rate 1M",
        "restore a.bak --to out --max-rate 1M",
    ] {
        for asked in [true, false] {
            let mut words: Vec<_> = line.split(' ').collect();
            words.extend(asked.then_some("--low-io-priority"));
            let mut child = stage
                .command(&words)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // A reader or worker, a sampler, and the thread that started them.
            let deadline = Instant::now() + Duration::from_secs(60);
            let found = loop {
                let found = priorities(&child);
                let low = found.iter().filter(|p| **p == LOW).count();
                let ended = child.try_wait().unwrap().is_some();
                if low >= 3 || (!asked && found.len() >= 4) || ended || Instant::now() > deadline {
                    break found;
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            child.kill().unwrap();
            child.wait().unwrap();
            let low = found.iter().filter(|p| **p == LOW).count();
            assert_eq!(low >= 3, asked, "{line}: {found:?}");
        }
    }
}
