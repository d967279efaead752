//! Surroundings that give less than is wanted: what cannot be done is refused, soon and in words.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::wait;
use crate::stage::{BINARY, Ran, Stage};

/// Nobody's: limits on a user count what all its processes have.
const USER: u32 = 23_457;
/// How `setpriv` is asked for it.
const OTHER: [&str; 3] = ["--clear-groups", "--regid=23457", "--reuid=23457"];

/// A stage whose commands another user runs, who owns what is in it.
struct Guest {
    stage: Stage,
    program: PathBuf,
}

impl Guest {
    /// `None`: only root can become somebody else.
    fn new() -> Option<Guest> {
        // SAFETY: `geteuid` has no preconditions and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: only root can become somebody else");
            return None;
        }
        // A container may know no such user.
        let tried = Command::new("setpriv").args(OTHER).arg("true").status();
        if !tried.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nobody can become user {USER} here");
            return None;
        }
        let stage = Stage::beside_servers();
        let program = stage.path("longshore");
        std::fs::copy(BINARY, &program).unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(stage.path("."), open).unwrap();
        Some(Guest { stage, program })
    }

    /// Runs a line as that user, through another program with its options: `prlimit`, `setpriv`.
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

/// Where a thread that others count on was missing, they once waited for ever.
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
            let expected = ["a.bak", "app.db", "b.bak", "longshore", "out"];
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

#[test]
fn what_a_user_may_not_do_is_named_with_the_place_and_its_own_exit_code() {
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
