//! Goal: a connection string without a role takes the passwd name of the effective user, as with libpq, and the
//! commands of the units work as the servers' user.
//! Method: real servers; the program is run as other users, with USER wrong or missing and without a login's
//! environment.
//! Not covered: systemd itself; other users without root, which is skipped.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Options, Server, installations};

use crate::common::{BINARY, Ran, succeed, text};
use crate::stage::Stage;

/// The program where every user may run it, and the connection string of the stage's server without a role.
fn placed(stage: &Stage) -> (PathBuf, String) {
    let program = stage.path("longshore");
    succeed(Command::new("cp").args([Path::new(BINARY), &program]));
    std::fs::set_permissions(stage.dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let url = format!(
        "host={} port={} dbname=postgres",
        stage.server.socket_dir().display(),
        stage.server.port()
    );
    (program, url)
}

/// USER is a lie and is missing: the role is the same one.
#[test]
fn a_connection_string_without_a_role_takes_the_effective_users_name() {
    let installation = installations().pop().unwrap();
    let server = Server::create(&installation, Options::default());
    server.start();
    let stage = Stage::of(server);
    let (program, url) = placed(&stage);
    let user = stage.server.user();
    let name = succeed(user.command(Path::new("id")).arg("-un").current_dir("/"));
    let name = text(&name.stdout).trim_end().to_owned();
    if name != "postgres" {
        stage
            .server
            .psql(&format!("create role \"{name}\" superuser login"));
    }
    for (media, lie) in [("named.bak", Some("somebody")), ("unnamed.bak", None)] {
        let mut backup = user.command(&program);
        backup.args(["--catalog", "none", "--json", "backup", &url, "--to"]);
        backup.arg(stage.path(media)).current_dir("/");
        for variable in ["USER", "LOGNAME"] {
            match lie {
                Some(lie) => backup.env(variable, lie),
                None => backup.env_remove(variable),
            };
        }
        backup.env_remove("PGUSER").env("HOME", "/");
        succeed(&mut backup);
    }
    let refused = user
        .command(&program)
        .args(["--catalog", "none", "backup", &url, "--to", "nul:"])
        .current_dir("/")
        .env("PGUSER", "nobody_of_this_name")
        .env("HOME", "/")
        .output()
        .unwrap();
    Ran::of(&refused)
        .exits(3)
        .says("role \"nobody_of_this_name\" does not exist");
}

/// A user number without a name, as containers have it, needs a role; the error says how to give one.
#[test]
fn a_user_without_a_name_is_asked_for_a_role() {
    // SAFETY: `geteuid` demands nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let installation = installations().pop().unwrap();
    let server = Server::create(&installation, Options::default());
    server.start();
    let stage = Stage::of(server);
    let (program, url) = placed(&stage);
    let by_number = |url: &str| {
        let mut backup = Command::new("setpriv");
        backup.args(["--reuid=23458", "--regid=23458", "--clear-groups"]);
        backup.arg(&program);
        backup.args(["--catalog", "none", "backup", url, "--to"]);
        backup.arg(stage.path("number.bak")).current_dir("/");
        backup
            .env_remove("PGUSER")
            .env("USER", "postgres")
            .env("HOME", "/");
        Ran::of(&backup.output().unwrap())
    };
    by_number(&url)
        .exits(3)
        .says("user number 23458 has no name in the passwd database")
        .says("PGUSER");
    by_number(&format!("{url} user=postgres")).exits(0);
}

/// The command of a unit, for the database `main`.
fn command_of(unit: &str) -> Vec<String> {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    let text = std::fs::read_to_string(units.join(unit)).unwrap();
    assert!(text.contains("\nUser=postgres\n"), "{unit}");
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("ExecStart="));
    let words = lines.next().unwrap().split_whitespace().skip(1);
    words
        .map(|word| word.replace("%i", "main").replace("/var/tmp", "scratch"))
        .collect()
}

/// A week of timers: each unit's command, by the server's user, without a login's environment.
#[test]
fn the_units_commands_work_as_the_servers_user() {
    let drillable = |i: &longshore_kit::Installation| i.bin_dir.join("pg_amcheck").exists();
    let Some(installation) = installations().into_iter().rfind(drillable) else {
        eprintln!("skipped: no PostgreSQL here has pg_amcheck");
        return;
    };
    let server = Server::create(&installation, Options::default());
    server.start();
    let stage = Stage::of(server);
    let (program, url) = placed(&stage);
    let user = stage.server.user();
    let name = succeed(user.command(Path::new("id")).arg("-un").current_dir("/"));
    let name = text(&name.stdout).trim_end().to_owned();
    if name != "postgres" {
        let role = format!("create role \"{name}\" superuser login");
        stage.server.psql(&role);
    }
    for dir in ["disk", "scratch"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
        user.own(&stage.path(dir));
    }
    let config = format!(
        "[database.main]\nurl = \"{url}\"\ntarget = \"disk\"\nretention = \"one\"\n\
         [target.disk]\ndirectories = [\"{}\"]\n[retention.one]\nkeep_full = 1\n",
        stage.path("disk").display()
    );
    std::fs::write(stage.path("longshore.toml"), config).unwrap();
    let run = |unit: &str| {
        let mut command = user.command(&program);
        command.args(command_of(unit)).env_clear();
        if unit.contains("drill") {
            command.arg("--bin-dir").arg(&installation.bin_dir);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", installation.bin_dir.display()));
        command.env("HOME", stage.path("disk"));
        command.env("LONGSHORE_CONFIG", stage.path("longshore.toml"));
        command.env("LONGSHORE_CATALOG", "none");
        command.current_dir(stage.path("."));
        (unit.to_owned(), Ran::of(&command.output().unwrap()))
    };
    // The first night is a full backup, since there is nothing to build on.
    for unit in [
        "longshore-differential@.service",
        "longshore-differential@.service",
        "longshore-backup@.service",
        "longshore-verify@.service",
        "longshore-expire@.service",
        "longshore-drill@.service",
    ] {
        let (unit, ran) = run(unit);
        assert_eq!(ran.code, 0, "{unit}: {}\n{}", ran.out, ran.err);
    }
    // Without a history there is something to look at.
    let (_, ran) = run("longshore-check@.service");
    assert!(matches!(ran.code, 0 | 1 | 5), "{}\n{}", ran.out, ran.err);
    assert!(ran.out.contains("main"), "{}\n{}", ran.out, ran.err);
    let labels: Vec<_> = std::fs::read_dir(stage.path("disk/main"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|label| !label.starts_with('.'))
        .collect();
    assert_eq!(
        labels.len(),
        1,
        "the expire keeps one full backup: {labels:?}"
    );
}
