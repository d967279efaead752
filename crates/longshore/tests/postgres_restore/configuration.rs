//! Goal: configuration outside the data directory, as Debian has it, is in the backup and starts the restored server; it
//! disturbs neither later backups nor deltas nor drills, and no file comes along that the server's user may not read.
//! Method: real servers whose three files, and what these include, are in a directory of their own.
//! Not covered: access control lists that let the server's user read a file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Installation, Options, Server, Stop, installations, representatives};

use crate::common::{answer, longshore, succeed, text};
use crate::stage::{Stage, end, judged};

/// A running server whose configuration is outside its data directory.
struct Outside {
    /// Owns the data directory.
    made: Server,
    server: Server,
    stage: tempfile::TempDir,
    conf: PathBuf,
}

impl Outside {
    fn new(installation: &Installation) -> Outside {
        let outside = Outside::stopped(installation);
        outside.server.start();
        outside
            .server
            .psql("create table t as select generate_series(1, 1000) i");
        outside
    }

    fn stopped(installation: &Installation) -> Outside {
        let made = Server::create(installation, Options::default());
        let stage = longshore_kit::place::of(made.user(), "lsconf");
        let conf = stage.path().join("etc/my cluster");
        fs::create_dir_all(conf.join("conf.d")).unwrap();
        for name in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
            let from = made.data_dir().join(name);
            fs::copy(&from, conf.join(name)).unwrap();
            fs::remove_file(&from).unwrap();
        }
        let server = Server::adopt(installation, &conf);
        server.append_conf(&format!(
            "data_directory = '{}'\ninclude_dir = 'conf.d'\ninclude 'more.conf'\ninclude_if_exists = 'none.conf'",
            made.data_dir().display()
        ));
        fs::write(conf.join("more.conf"), "include_dir 'empty'\n").unwrap();
        fs::create_dir(conf.join("empty")).unwrap();
        fs::write(conf.join("conf.d/10-mem.conf"), "work_mem = '5MB'\n").unwrap();
        fs::write(conf.join("conf.d/.hidden.conf"), "nonsense\n").unwrap();
        fs::write(conf.join("start.conf"), "auto\n").unwrap();
        let real = stage.path().join("etc/shared.conf");
        fs::write(&real, "application_name = 'shared'\n").unwrap();
        symlink("../../shared.conf", conf.join("conf.d/20-link.conf")).unwrap();
        fs::hard_link(
            conf.join("conf.d/10-mem.conf"),
            stage.path().join("etc/other name"),
        )
        .unwrap();
        fs::set_permissions(conf.join("pg_hba.conf"), fs::Permissions::from_mode(0o640)).unwrap();
        made.user().own(&stage.path().join("etc"));
        // The kit looks for it where the server was told to look for its configuration.
        symlink(
            made.data_dir().join("postmaster.pid"),
            conf.join("postmaster.pid"),
        )
        .unwrap();
        Outside {
            made,
            server,
            stage,
            conf,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.path().join(name)
    }

    fn backup(&self, more: &[&str]) -> Command {
        let mut command = longshore(["backup", &self.server.url(), "--to"]);
        command
            .arg(self.path("set.bak"))
            .args(["--format", "--algorithm", "LZ4"]);
        command.args(more);
        command
    }

    /// Where the copy of this file of the configuration is in a data directory.
    fn copy(&self, data: &Path, name: &str) -> PathBuf {
        let below = self.conf.strip_prefix("/").unwrap();
        data.join("longshore-config/files").join(below).join(name)
    }

    fn restore(&self, name: &str, more: &[&str]) -> (PathBuf, serde_json::Value) {
        let data = self.path(name);
        let mut command = longshore(["restore", "--json", "--to"]);
        command.arg(&data).arg(self.path("set.bak")).args(more);
        (data, answer(&judged(&mut command)))
    }

    /// Runs what the restore's answer says, as the servers' user; the server listens in a directory of the test.
    fn start(&self, told: &serde_json::Value, data: &Path) -> Server {
        let command = told["configuration"]["start"].as_str().unwrap();
        let log = self.path("start.log");
        let options = format!(
            " -c unix_socket_directories={} -c listen_addresses= -c fsync=off",
            self.stage.path().display()
        );
        // The command of the answer, with a place for the log, and for the socket of a test.
        let end = command.rfind(" start").unwrap();
        let (head, quote) = command[..end].split_at(end - 1);
        assert_eq!(quote, "'");
        let line = format!("{head}{options}' -w -l {} start", log.display());
        let mut shell = self.server.command_at(Path::new("/bin/sh"));
        let bin_dir = &self.server.installation().bin_dir;
        let path = format!("{}:/usr/bin:/bin", bin_dir.display());
        shell.args(["-c", &line]).env("PATH", path).current_dir("/");
        succeed(&mut shell);
        Server::adopt(self.server.installation(), data)
    }
}

fn listed(path: &Path) -> Vec<String> {
    let output = succeed(longshore(["list", "--files", "--json"]).arg(path));
    let files = answer(&output)["files"].clone();
    let files = files.as_array().unwrap().iter();
    files
        .map(|f| f["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn configuration_outside_the_data_directory_is_in_the_set_and_starts_the_copy() {
    for installation in representatives() {
        let outside = Outside::new(&installation);
        let said = succeed(&mut outside.backup(&[]));
        let said = text(&said.stderr);
        assert!(
            said.contains("note: the server's configuration is outside its data directory"),
            "{said}"
        );
        let (data, told) = outside.restore("data", &[]);
        for name in [
            "postgresql.conf",
            "pg_hba.conf",
            "pg_ident.conf",
            "more.conf",
            "start.conf",
            "conf.d/10-mem.conf",
            "conf.d/20-link.conf",
        ] {
            let (copy, original) = (outside.copy(&data, name), outside.conf.join(name));
            assert_eq!(
                fs::read(&copy).unwrap(),
                fs::read(&original).unwrap(),
                "{name}"
            );
            assert!(
                copy.symlink_metadata().unwrap().is_file(),
                "{name} is a link"
            );
            assert_eq!(
                copy.metadata().unwrap().mode(),
                original.metadata().unwrap().mode(),
                "{name}"
            );
        }
        assert!(outside.copy(&data, "empty").is_dir());
        assert!(!outside.copy(&data, "conf.d/.hidden.conf").exists());
        assert!(!data.join("longshore-databases").exists());
        let verify = installation.program("pg_verifybackup").unwrap();
        succeed(
            outside
                .server
                .command_at(&verify)
                .arg("--no-parse-wal")
                .arg(&data),
        );
        let found = &told["configuration"];
        let conf = outside.conf.join("postgresql.conf");
        assert_eq!(found["config_file"], conf.to_str().unwrap());
        let notes = told["run"]["notes"].to_string();
        assert!(
            notes.contains("To start the server with them: pg_ctl"),
            "{notes}"
        );

        // The command of the answer, as it stands.
        outside.server.stop(Stop::Fast);
        let _copy = outside.start(&told, &data);
        let ask = |sql: &str| {
            let mut psql = outside.server.command("psql");
            psql.args(["-XAtq", "-h"]).arg(outside.stage.path());
            text(&succeed(psql.args(["-d", "postgres", "-c", sql])).stdout)
                .trim()
                .to_owned()
        };
        assert_eq!(ask("select count(*) from t"), "1000");
        assert_eq!(ask("show work_mem"), "5MB");
        assert_eq!(
            ask("show config_file"),
            outside.copy(&data, "postgresql.conf").to_str().unwrap()
        );
        assert_eq!(ask("show data_directory"), data.to_str().unwrap());

        // A later backup of the copy has no copies of copies, and a delta makes the set of it again.
        let mut again = longshore(["backup", "--to"]);
        again.arg(outside.path("again.bak"));
        again.arg(format!(
            "postgres:///postgres?host={}&user=postgres&port={}",
            outside.stage.path().display(),
            outside.server.port()
        ));
        let output = again.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("names of an earlier restore"), "{said}");
        assert!(said.contains("the server runs on"), "{said}");
        let names = listed(&outside.path("again.bak"));
        // Its own configuration is in its data directory, below longshore-config.
        assert!(
            names
                .iter()
                .all(|name| !name.contains("longshore-config/files")),
            "{names:?}"
        );
        let mut stop = outside.server.command("pg_ctl");
        succeed(stop.args(["stop", "-w", "-D"]).arg(&data));
        fs::write(outside.copy(&data, "pg_hba.conf"), "changed").unwrap();
        outside.restore("data", &["--delta"]);
        assert_eq!(
            fs::read(outside.copy(&data, "pg_hba.conf")).unwrap(),
            fs::read(outside.conf.join("pg_hba.conf")).unwrap()
        );
    }
}

/// The server's user writes the includes, and Longshore may run as root.
#[test]
fn what_cannot_or_must_not_be_taken_along_is_named_and_fails_nothing() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let outside = Outside::stopped(&installation);
    let secret = outside.path("roots.conf");
    fs::write(&secret, "work_mem = '6MB'\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let hidden = outside.path("closed/in.conf");
    fs::create_dir(outside.path("closed")).unwrap();
    fs::write(&hidden, "").unwrap();
    fs::set_permissions(outside.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let link = outside.conf.join("conf.d/30-secret.conf");
    let large = outside.conf.join("large.conf");
    fs::write(&large, "# comment\n".repeat(200_000)).unwrap();
    let pipe = outside.conf.join("pipe.conf");
    outside.server.append_conf(&format!(
        "include_if_exists '{}'\ninclude_if_exists '{}'\ninclude 'large.conf'\ninclude_if_exists '../../etc/my cluster/more.conf'",
        secret.display(),
        hidden.display(),
    ));
    outside.made.user().own(&outside.conf);
    outside.server.start();
    // No server could be started with these.
    symlink(&secret, &link).unwrap();
    succeed(Command::new("mkfifo").arg(&pipe));
    let conf = fs::read_to_string(outside.conf.join("postgresql.conf")).unwrap();
    fs::write(
        outside.conf.join("postgresql.conf"),
        format!("{conf}include 'pipe.conf'\ninclude 'gone.conf'\ninclude 'postgresql.conf'\ninclude_dir '/nowhere'\n"),
    )
    .unwrap();
    let output = end(&mut outside.backup(&[]), 5);
    let said = text(&output.stderr);
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut named = vec!["large.conf", "pipe.conf", "gone.conf", "/nowhere"];
    if is_root {
        named.extend(["roots.conf", "closed/in.conf", "30-secret.conf"]);
    }
    for name in named {
        let found = said.lines().any(|line| {
            line.contains("warning: the configuration file")
                && line.contains(name)
                && line.contains("is not in the backup")
        });
        assert!(found, "{name}: {said}");
    }
    assert!(!said.contains("none.conf"), "{said}");
    let names = listed(&outside.path("set.bak"));
    for name in [
        "roots.conf",
        "in.conf",
        "30-secret",
        "large.conf",
        "pipe.conf",
        "..",
    ] {
        let is_there = names.iter().any(|path| path.contains(name));
        assert!(
            !is_there || !is_root && !name.starts_with("large"),
            "{name}: {names:?}"
        );
    }
    // The rest is whole.
    let (data, told) = outside.restore("data", &[]);
    assert!(outside.copy(&data, "conf.d/10-mem.conf").exists());
    assert!(told["configuration"]["hba_file"].is_string());
}

#[test]
fn configuration_is_left_out_on_request_and_what_a_server_sends_does_not_have_it() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let outside = Outside::new(&installation);
    let is_there = |path: &Path| {
        listed(path)
            .iter()
            .any(|name| name.starts_with("longshore-config"))
    };
    let set = outside.path("set.bak");
    let said = text(&succeed(&mut outside.backup(&["--no-server-config"])).stderr);
    assert!(
        said.contains("is left out of the backup as asked"),
        "{said}"
    );
    assert!(!is_there(&set));
    // A restored cluster without any configuration says so.
    let (_, told) = outside.restore("bare", &[]);
    assert_eq!(told["configuration"], serde_json::Value::Null);
    assert!(
        told["run"]["notes"]
            .to_string()
            .contains("has no postgresql.conf")
    );
    succeed(&mut outside.backup(&[]));
    assert!(is_there(&set));
    let said = text(&succeed(&mut outside.backup(&["--remote"])).stderr);
    assert!(
        said.contains("is not in the backup, because the server sends"),
        "{said}"
    );
    assert!(said.contains("postgresql.conf"), "{said}");
    assert!(!is_there(&set));

    let config = outside.path("longshore.toml");
    let key = |line: &str| {
        let url = outside.server.url();
        let text = format!("[database.main]\nurl = \"{url}\"\n{line}\n");
        fs::write(&config, text).unwrap();
        let mut command = longshore(["--config"]);
        command
            .arg(&config)
            .args(["backup", "main", "--format", "--to"])
            .arg(&set);
        command
    };
    succeed(&mut key("server_config = false"));
    assert!(!is_there(&set));
    succeed(&mut key("server_config = true"));
    assert!(is_there(&set));
    fs::write(
        &config,
        "[database.tree]\nurl = \"files:/srv\"\nserver_config = false\n",
    )
    .unwrap();
    let mut check = longshore(["--config"]);
    let refused = end(check.arg(&config).args(["config", "check"]), 2);
    assert!(text(&refused.stderr).contains("`server_config` is for"));
    let other = succeed(
        longshore(["backup", "--no-server-config", "--to"])
            .arg(outside.path("x.bak"))
            .arg(&config),
    );
    assert!(text(&other.stderr).contains("--no-server-config has no effect here"));
}

/// Goal: a copy whose own postgresql.conf names the original's directory, which a server would use instead, is told of.
#[test]
fn a_configuration_that_names_the_originals_directory_is_told() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let own = stage.server.data_dir().to_owned();
    stage
        .server
        .append_conf(&format!("data_directory = '{}'", own.display()));
    let media = stage.back_up("full", &[]);
    let copy = stage.path("copy");
    let output = judged(&mut stage.restore(&media, &copy));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("sets data_directory = "), "{said}");
    assert!(
        said.contains(&format!("-c data_directory={}", copy.display())),
        "{said}"
    );
    // Where it is the right one, there is nothing to tell.
    stage.server.stop(Stop::Fast);
    let output = judged(stage.restore(&media, &own).arg("--replace"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
