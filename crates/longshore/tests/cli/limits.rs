//! Surroundings that give less than is wanted: what cannot be done is refused, soon and in words.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::wait;
use crate::stage::{BINARY, Ran, Stage};

/// Nobody's: limits on a user count what all its processes have.
const USER: u32 = 23_457;

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
            .args(["--clear-groups", &format!("--regid={USER}")])
            .arg(format!("--reuid={USER}"))
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
