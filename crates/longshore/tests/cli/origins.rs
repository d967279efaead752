//! Goal: with one name at one target and several sources without WAL (of two paths or machines, or of two files of one
//! path), no source replaces another's backups, and a command for the newest backup asks which source is meant.
//! Method: the program runs with several configurations over one target, also on a machine of another name; the
//! commands that a refusal prints are run.

use std::path::Path;

use serde_json::Value;

use crate::stage::{BINARY, Ran, Stage};

/// Two trees, `one` and `two`, configured under one name with one target.
fn shared() -> Stage {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("disk")).unwrap();
    for name in ["one", "two"] {
        stage.write(format!("{name}/who"), name.as_bytes());
        configure(&stage, name, name, "");
    }
    stage
}

/// A configuration `NAME.toml` of the database `app` at this path.
fn configure(stage: &Stage, name: &str, path: &str, more: &str) {
    let text = format!(
        "[database.app]\nurl = \"files:{}\"\ntarget = \"t\"\n{more}\n[target.t]\ndirectories = [\"{}\"]\n",
        stage.path(path).display(),
        stage.path("disk").display(),
    );
    stage.write(format!("{name}.toml"), text.as_bytes());
}

fn by(stage: &Stage, who: &str, line: &str) -> Ran {
    stage.line(&format!("--config {who}.toml {line}"))
}

fn labels(stage: &Stage) -> Vec<String> {
    stage.names("disk/app")
}

/// The content of the backup with this label.
fn who(stage: &Stage, to: &str) -> String {
    let path = stage.path(to);
    let found = std::fs::read_dir(path).unwrap().next().unwrap().unwrap();
    let file = match found.path().is_dir() {
        true => found.path().join("who"),
        false => found.path(),
    };
    std::fs::read_to_string(file).unwrap()
}

/// The commands that a refusal prints, without the program's name.
fn commands(ran: &Ran) -> Vec<String> {
    let hint = ran.err.split("name one of them: ").nth(1);
    let hint = hint.unwrap_or_else(|| panic!("no commands: {}", ran.err));
    let hint = hint.lines().next().unwrap();
    let command = |text: &str| text.trim().strip_prefix("longshore ").unwrap().to_owned();
    hint.split(" or ").map(command).collect()
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn graded(stage: &Stage, by_whom: &str, what: &str) -> Vec<(String, String)> {
    let checked = json(&by(stage, by_whom, "check app --json"));
    let findings = checked["databases"][0]["findings"].as_array().unwrap();
    let of = findings.iter().filter(|f| f["what"] == what);
    let text = |f: &Value, key: &str| f[key].as_str().unwrap().to_owned();
    of.map(|f| (text(f, "grade"), text(f, "text"))).collect()
}

/// Goal: sharing a name gives nobody another database's backup, and loses nobody a backup.
#[test]
fn two_paths_of_one_name_are_kept_apart_and_each_can_be_restored() {
    let stage = shared();
    by(&stage, "one", "backup app").exits(0);
    let begins = by(&stage, "two", "backup app").exits(5);
    begins.says("begins a new branch").says("identity = ");
    let both = labels(&stage);

    for line in [
        "restore --database app --to x",
        "verify --database app",
        "drill app",
    ] {
        let refused = by(&stage, "one", line);
        assert_ne!(refused.code, 0, "{line}");
        assert_eq!(commands(&refused).len(), 2, "{line}: {}", refused.err);
    }
    let refused = by(&stage, "one", "restore --database app --to out");
    let mut found = Vec::new();
    for (n, command) in commands(&refused).into_iter().enumerate() {
        let to = format!("out{n}");
        stage
            .line(&command.replace("--to out", &format!("--to {to}")))
            .exits(0);
        found.push(who(&stage, &to));
    }
    assert_eq!(found, ["one", "two"]);

    by(&stage, "one", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage), both, "neither takes the other's place");

    // One branch has ended, as far as anyone can tell; the other branch's age is not checked.
    let told = graded(&stage, "one", "branches");
    assert!(told.iter().all(|(grade, _)| grade == "look"), "{told:?}");
    let info = json(&by(&stage, "one", "info app --json").exits(0));
    let branches = info["databases"][0]["branches"].as_array().unwrap().clone();
    let identity = |n: usize| branches[n]["identity"].as_str().unwrap().to_owned();
    assert!(identity(0).ends_with("/one") && identity(1).ends_with("/two"));
    let ages = graded(&stage, "one", "age");
    let own = branches[0]["newest"].as_str().unwrap();
    assert!(ages[0].1.contains(own), "{ages:?}");
    for command in ["info app", "list --target t", "expire app --keep-full 1"] {
        by(&stage, "one", command)
            .says(&identity(0))
            .says(&identity(1))
            .says("directories of its backups by hand");
    }
    let metrics = by(&stage, "one", "info app --prometheus").exits(0);
    let metrics = metrics.says("longshore_branches{database=\"app\",target=\"t\"} 2");
    metrics.says(&format!("branch=\"2\",identity=\"{}\"", identity(1)));

    // Both branches are active.
    by(&stage, "one", "backup app").exits(5).says("/two");
    let told = graded(&stage, "one", "branches");
    assert!(told.iter().all(|(grade, _)| grade == "bad"), "{told:?}");
    by(&stage, "two", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage).len(), 2);
}

/// Runs the program on a machine of this name; `None` if no such machine can be made.
fn on_machine(stage: &Stage, name: &str, line: &str) -> Option<Ran> {
    let named = "echo \"$0\" > /proc/sys/kernel/hostname || exit 111; exec \"$@\"";
    let mut words = vec![
        "--uts", "sh", "-c", named, name, BINARY, "--config", "one.toml",
    ];
    words.extend(line.split(' '));
    let mut command = std::process::Command::new("unshare");
    for (key, value) in stage.command::<&str>(&[]).get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    let output = command
        .args(words)
        .current_dir(stage.path(""))
        .output()
        .ok()?;
    let ran = Ran::of(&output);
    let is_refused = ran.code == 111 || ran.err.starts_with("unshare:");
    (!is_refused).then_some(ran)
}

/// Goal: the same configuration on two hosts, one target.
#[test]
fn two_machines_of_one_configuration_are_kept_apart() {
    let stage = shared();
    let Some(first) = on_machine(&stage, "web1", "backup app") else {
        eprintln!("left out: this user cannot make a machine of another name");
        return;
    };
    first.exits(0);
    let on = |name: &str, line: &str| on_machine(&stage, name, line).unwrap();
    on("web1", "backup app").exits(0);
    on("web2", "backup app")
        .exits(5)
        .says("are of web1 files:/");
    on("web2", "backup app").exits(0);
    on("web2", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage).len(), 2);
    let refused = on("web1", "restore --database app --to out");
    refused.says("web1 files:/").says("web2 files:/");
    on("web1", "backup app")
        .exits(5)
        .says("are of web2 files:/");
    on("web1", "check app").exits(1);
}

/// Goal: there is one obvious way to declare that a moved database is the same one.
#[test]
fn a_moved_database_continues_its_branch_with_the_printed_identity() {
    let stage = shared();
    by(&stage, "one", "backup app").exits(0);
    let first = labels(&stage);
    let moved = by(&stage, "two", "backup app").exits(5);
    let key = moved.err.split('`').nth(1).unwrap().to_owned();
    assert!(
        key.starts_with("identity = ") && key.contains("/one"),
        "{key}"
    );
    for label in labels(&stage).iter().filter(|label| !first.contains(label)) {
        std::fs::remove_dir_all(stage.path(format!("disk/app/{label}"))).unwrap();
    }

    configure(&stage, "two", "two", &key);
    by(&stage, "two", "config check")
        .exits(0)
        .says("its name at the target is");
    by(&stage, "two", "backup app").exits(0);
    by(&stage, "two", "restore --database app --to out").exits(0);
    assert_eq!(who(&stage, "out"), "two");
    by(&stage, "two", "check app")
        .exits(5)
        .says("WARN  retention");
    by(&stage, "two", "backup app").exits(0);
    by(&stage, "two", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage).len(), 1);
    // The old place would begin a branch only with a path that nobody took over.
    by(&stage, "one", "backup app")
        .exits(5)
        .says("are two branches");
}

#[test]
fn one_identity_joins_containers_whatever_their_paths() {
    let stage = shared();
    let variable = ("LONGSHORE_DATABASE_APP_IDENTITY", "the shop");
    for name in ["one", "two"] {
        let line = format!("--config {name}.toml backup app");
        let mut command = stage.command(&line.split(' ').collect::<Vec<_>>());
        let ran = Ran::of(&command.env(variable.0, variable.1).output().unwrap());
        ran.exits(0);
    }
    by(&stage, "one", "restore --database app --to out").exits(0);
    assert_eq!(who(&stage, "out"), "two");
    let info = json(&by(&stage, "one", "info app --json"));
    assert_eq!(info["databases"][0]["branches"][0]["identity"], "the shop");
}

/// Goal: a source that is backed up under another source's name is not mistaken for it.
#[test]
fn an_identity_belongs_to_the_url_of_its_table_and_not_to_a_name() {
    let stage = shared();
    configure(&stage, "one", "one", "identity = \"the shop\"\n");
    by(&stage, "one", "backup app").exits(0);
    let other = format!(
        "backup files:{} --database app --target t",
        stage.path("two").display()
    );
    by(&stage, "one", &other)
        .exits(5)
        .says("of the shop")
        .says("into a [database.NAME] with its url");
    by(&stage, "one", &other).exits(0);
    by(&stage, "one", "restore --database app --to out").says("it is unknown which one is meant");
    by(&stage, "one", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage).len(), 2, "the newest of each");

    // Its own url brings the identity along, under whatever name and in whatever spelling.
    by(&stage, "one", "backup app --database weekly").exits(0);
    let same = format!(
        "backup files:{}/./ --database weekly --target t",
        stage.path("one").display()
    );
    by(&stage, "one", &same).exits(0);
    let info = by(&stage, "one", "info weekly --target t --json");
    let branches = &json(&info)["databases"][0]["branches"];
    assert_eq!(branches.as_array().unwrap().len(), 1, "{branches}");
    assert_eq!(branches[0]["identity"], "the shop");
}

#[test]
fn the_order_in_which_roots_are_named_makes_no_other_tree() {
    let stage = shared();
    let (one, two) = (stage.path("one"), stage.path("two"));
    let (one, two) = (one.display(), two.display());
    for roots in [
        format!("{one} {two}"),
        format!("{two}/ {one}"),
        format!("{one}/ {two}/"),
    ] {
        let line = format!("backup files:{roots} --database app --target t");
        by(&stage, "one", &line).exits(0);
    }
    let info = json(&by(&stage, "one", "info app --json"));
    let branches = info["databases"][0]["branches"].as_array().unwrap();
    assert_eq!(branches.len(), 1);
}

fn made(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path).ok()?.created().ok()
}

/// Goal: a machine's name and a path are only names: two machines may share both.
#[test]
fn a_file_that_comes_back_after_another_is_another_database() {
    let stage = shared();
    if made(&stage.path("one")).is_none() {
        eprintln!("left out: this file system does not keep when a file was made");
        return;
    }
    let swap = |from: &str, to: &str| std::fs::rename(stage.path(from), stage.path(to)).unwrap();
    by(&stage, "one", "backup app").exits(0);
    swap("one", "first");
    swap("two", "one");
    // The file may have been replaced for good.
    by(&stage, "one", "backup app").exits(0);
    by(&stage, "one", "restore --database app --to out").exits(0);
    assert_eq!(who(&stage, "out"), "two");
    by(&stage, "one", "expire app --keep-full 1")
        .exits(0)
        .says("the last of the previous file");
    assert_eq!(labels(&stage).len(), 2);

    swap("one", "second");
    swap("first", "one");
    by(&stage, "one", "backup app")
        .exits(5)
        .says("are two branches");
    by(&stage, "one", "check app")
        .exits(1)
        .says("its own `identity`");
    let refused = by(&stage, "one", "restore --database app --to out2");
    assert_eq!(commands(&refused).len(), 2);
    by(&stage, "one", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage).len(), 2, "the newest of each");
    let mut found = Vec::new();
    for (n, command) in commands(&refused).into_iter().enumerate() {
        let to = format!("back{n}");
        let ran = stage.line(&command.replace("--to out2", &format!("--to {to}")));
        if ran.code == 0 {
            found.push(who(&stage, &to));
        }
    }
    found.sort();
    assert_eq!(found, ["one", "two"]);
}

/// Goal: a file that each restore or VACUUM INTO replaces is one database, and its old backups expire.
#[test]
fn a_database_whose_file_is_replaced_continues_its_branch() {
    let stage = shared();
    for n in 0..4 {
        std::fs::rename(stage.path("one"), stage.path(format!("old{n}"))).unwrap();
        stage.write("one/who", format!("{n}").as_bytes());
        by(&stage, "one", "backup app").exits(0);
    }
    by(&stage, "one", "backup app").exits(0);
    by(&stage, "one", "expire app --keep-full 1").exits(0);
    assert_eq!(labels(&stage).len(), 1);
    by(&stage, "one", "restore --database app --to out").exits(0);
    assert_eq!(who(&stage, "out"), "3");
}

/// Goal: no backup lies in a WAL archive, where nothing lists it.
#[test]
fn a_database_called_wal_is_refused_where_it_would_lie_in_an_archive() {
    let stage = Stage::new();
    stage.write("file", b"x");
    stage.write("disk/main/.keep", b"");
    let at = |name: &str| stage.path(name).display().to_string();
    let text = format!(
        "[database.main]\nurl = \"postgres:///postgres\"\ntarget = \"t\"\n\
         [database.wal]\nurl = \"files:{}\"\ntarget = \"inner\"\n\
         [target.t]\ndirectories = [\"{}\"]\n[target.inner]\ndirectories = [\"{}/\"]\n",
        at("file"),
        at("disk"),
        at("disk/main"),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    stage
        .line("backup wal")
        .exits(2)
        .says("a database called wal at target inner would be in the WAL archive of main");
    stage.line("backup wal --target t").exits(0);
    stage.line("backup wal --database other").exits(0);
}
