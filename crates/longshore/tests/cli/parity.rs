//! Goal: parity stripes do for a user what their help says: a backup is restored without a stripe, every command says so,
//! and `repair` writes the stripe once more.
//! Method: the program backs up a small database to files and to a target; stripes are removed, damaged and exchanged.

use std::path::Path;

use serde_json::Value;

use crate::stage::{Ran, Stage, damage, rows};

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn backed_up() -> Stage {
    let stage = Stage::new();
    stage.database("app.db", 3);
    let ran = stage.line(
        "--json backup app.db --to a.bak --to b.bak --to c.bak --to p.bak --parity 1 --verify",
    );
    let answer = json(&ran.exits(0));
    assert_eq!(answer["run"]["plan"]["parity_stripes"], 1);
    assert_eq!(answer["verified"], true);
    stage
}

const ALL: &str = "a.bak b.bak c.bak p.bak";

#[test]
fn a_backup_with_parity_is_restored_without_a_stripe_and_repaired() {
    let stage = backed_up();
    let before = rows(&stage.path("app.db"));
    stage.line(&format!("verify {ALL}")).exits(0);
    stage.line(&format!("list {ALL}")).exits(0).says("complete");
    let whole = stage.line(&format!("--json repair {ALL}")).exits(0);
    assert_eq!(json(&whole)["written_bytes"], 0);
    let bytes = std::fs::read(stage.path("b.bak")).unwrap();
    std::fs::remove_file(stage.path("b.bak")).unwrap();
    for line in [
        "verify a.bak c.bak p.bak",
        "verify a.bak b.bak c.bak p.bak",
        "list a.bak c.bak p.bak",
        "restore a.bak c.bak p.bak --to out",
        "restore p.bak a.bak c.bak --to only --only app.db",
    ] {
        stage.line(line).exits(5).says("DEGRADED");
    }
    assert_eq!(rows(&stage.path("out/app.db")), before);
    assert_eq!(rows(&stage.path("only/app.db")), before);
    let names = stage.names(".");
    let dry = stage
        .line(&format!("--json repair {ALL} --dry-run"))
        .exits(5);
    assert_eq!(stage.names("."), names, "a dry run writes nothing");
    let stripes = json(&dry)["stripes"].clone();
    assert_eq!(
        (&stripes[1]["state"], &stripes[0]["state"]),
        (&"lost".into(), &"whole".into())
    );
    stage
        .line(&format!("repair {ALL}"))
        .exits(0)
        .says("repaired");
    assert!(std::fs::read(stage.path("b.bak")).unwrap() == bytes);
    stage.line(&format!("verify {ALL}")).exits(0);
}

#[test]
fn damage_is_read_around_and_named_and_what_parity_cannot_stand_for_is_refused() {
    let stage = backed_up();
    let before = rows(&stage.path("app.db"));
    let bytes = std::fs::read(stage.path("a.bak")).unwrap();
    damage(&stage.path("a.bak"));
    stage
        .line(&format!("restore {ALL} --to out"))
        .exits(5)
        .says("stripe a.bak (family 1) is damaged");
    assert_eq!(rows(&stage.path("out/app.db")), before);
    stage
        .line(&format!("verify {ALL}"))
        .exits(5)
        .says("DEGRADED");
    stage.line(&format!("repair {ALL}")).exits(0);
    assert!(std::fs::read(stage.path("a.bak")).unwrap() == bytes);
    damage(&stage.path("p.bak"));
    stage
        .line(&format!("verify {ALL}"))
        .exits(5)
        .says("parity stripe p.bak (family 4) is damaged");
    stage.line(&format!("restore {ALL} --to whole")).exits(0);
    stage.line(&format!("repair {ALL}")).exits(0);
    std::fs::remove_file(stage.path("a.bak")).unwrap();
    std::fs::remove_file(stage.path("c.bak")).unwrap();
    for line in [
        "restore b.bak p.bak --to no",
        "repair a.bak b.bak c.bak p.bak",
    ] {
        stage.line(line).exits(4).says("missing");
    }
    assert!(!stage.path("no/app.db").exists());
}

#[test]
fn what_parity_does_not_go_with_is_refused_by_name() {
    let stage = backed_up();
    let to = "--to a.bak --to b.bak --to c.bak --to p.bak";
    stage
        .line(&format!("backup app.db {to} --parity 1 --append"))
        .exits(4)
        .says("holds one backup set")
        .says("--init");
    stage
        .line(&format!("backup app.db {to} --init --parity 2"))
        .exits(4)
        .says("formatted for 1 parity stripes");
    stage
        .line("backup app.db --to one.bak --parity 1")
        .exits(4)
        .says("1 parity stripes are asked for, of 1 devices");
    stage.database("plain.db", 1);
    stage.line("backup plain.db --to x.bak --to y.bak").exits(0);
    stage
        .line("repair x.bak y.bak")
        .exits(4)
        .says("its media set has no parity stripes");
    std::fs::copy(stage.path("x.bak"), stage.path("b.bak")).unwrap();
    stage
        .line(&format!("repair {ALL}"))
        .exits(4)
        .says("device b.bak is not overwritten");
    std::fs::remove_file(stage.path("b.bak")).unwrap();
    stage
        .line("repair a.bak c.bak p.bak")
        .exits(4)
        .says("no device was given for family 2 of 4");
}

#[test]
fn a_target_with_parity_tells_a_degraded_backup() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    for dir in ["disk1", "disk2", "disk3", "away"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let path = |name: &str| stage.path(name).display().to_string();
    let text = format!(
        "[database.sales]\nurl = \"sqlite:{}\"\ncopies = [\"offsite\"]\n\
         [target.nightly]\ndirectories = [\"{}\", \"{}\", \"{}\"]\nparity = 1\n\
         [target.offsite]\ndirectories = [\"{}\"]\n[defaults]\ntarget = \"nightly\"\n",
        path("app.db"),
        path("disk1"),
        path("disk2"),
        path("disk3"),
        path("away"),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    stage.line("config check").exits(0).says("with parity");
    stage.line("backup sales").exits(0);
    stage.line("info sales").exits(0).says("complete");
    let label = stage.names("disk2/sales")[0].clone();
    let stripe = stage.path(format!("disk2/sales/{label}/family-2.bak"));
    let bytes = std::fs::read(&stripe).unwrap();
    std::fs::remove_file(&stripe).unwrap();
    stage.line("info sales").exits(5).says("DEGRADED");
    stage
        .line("list --database sales")
        .exits(5)
        .says("DEGRADED");
    stage.line("check sales").exits(5).says("DEGRADED");
    // A number tells it, so that a file of metrics is no warning.
    let told = stage.line("metrics sales --target nightly").exits(0).out;
    let of = "{database=\"sales\",target=\"nightly\"";
    assert!(told.contains(&format!("longshore_families_lost{of}}} 1\n")));
    let line = format!("longshore_backup_state{of},state=\"DEGRADED\"}} 1\n");
    assert!(told.contains(&line), "{told}");
    stage.line("restore --database sales --to out").exits(5);
    assert_eq!(rows(&stage.path("out/app.db")), rows(&stage.path("app.db")));
    // A copy has all stripes.
    stage.line("copy sales").exits(5).says("the copy is whole");
    let copy = stage.path(format!("away/sales/{label}/family-2.bak"));
    assert!(std::fs::read(copy).unwrap() == bytes);
    stage
        .line("verify --database sales")
        .exits(5)
        .says("DEGRADED");
    // Its disk was replaced by an empty one.
    std::fs::remove_dir_all(stage.path("disk2/sales")).unwrap();
    stage
        .line("repair --database sales --dry-run")
        .exits(5)
        .says("LOST");
    assert!(stage.names("disk2").is_empty(), "a dry run writes nothing");
    stage
        .line("repair --database sales")
        .exits(0)
        .says("repaired");
    assert!(std::fs::read(&stripe).unwrap() == bytes);
    stage.line("info sales").exits(0);
    let line = format!("repair --database sales --target nightly --label {label}");
    stage.line(&line).exits(0).says("whole");
    stage.line("verify --database sales").exits(0);
    let all: Vec<String> = (1..=3)
        .map(|n| path(&format!("disk{n}/sales/{label}/family-{n}.bak")))
        .collect();
    std::fs::remove_file(&stripe).unwrap();
    stage.line(&format!("repair {}", all.join(" "))).exits(0);
    assert!(std::fs::read(&stripe).unwrap() == bytes);
    stage
        .line("repair --database sales --target offsite")
        .exits(0)
        .says("whole");
    // A result that parity stood for is not kept: it is read again until it is repaired.
    damage(&stripe);
    for _ in 0..2 {
        let all = stage.line("--json verify --database sales --all").exits(5);
        assert_eq!(json(&all)["valid"], true);
        all.says("DEGRADED");
    }
    stage.line("repair --database sales").exits(0);
    for _ in 0..2 {
        stage.line("verify --database sales --all").exits(0);
    }
}

#[test]
fn a_verification_repairs_what_parity_stood_for_if_it_is_told_to() {
    let stage = backed_up();
    let bytes = std::fs::read(stage.path("b.bak")).unwrap();
    damage(&stage.path("b.bak"));
    let ran = stage
        .line(&format!("--json verify {ALL} --repair"))
        .exits(5);
    let answer = json(&ran);
    assert_eq!(answer["sets"][0]["degraded"], true);
    assert_eq!(answer["repaired"][1]["state"], "damaged");
    assert_eq!(answer["repaired"][1]["was_repaired"], true);
    assert!(std::fs::read(stage.path("b.bak")).unwrap() == bytes);
    let ran = stage
        .line(&format!("--json verify {ALL} --repair"))
        .exits(0);
    assert_eq!(json(&ran)["repaired"], Value::Null);
    std::fs::remove_file(stage.path("b.bak")).unwrap();
    stage
        .line(&format!("verify {ALL} --repair"))
        .exits(5)
        .says("repaired");
    assert!(std::fs::read(stage.path("b.bak")).unwrap() == bytes);
}

#[test]
fn statements_write_and_read_parity_stripes() {
    let stage = Stage::new();
    stage.database("app.db", 3);
    let before = rows(&stage.path("app.db"));
    let path = |name: &str| stage.path(name).display().to_string();
    let text = format!("[database.app]\nurl = \"sqlite:{}\"\n", path("app.db"));
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    let disks = |names: &[&str]| {
        let disks: Vec<String> = names
            .iter()
            .map(|n| format!("DISK = '{}'", path(n)))
            .collect();
        disks.join(", ")
    };
    let all = disks(&["a.bak", "b.bak", "c.bak", "p.bak"]);
    let sql = |text: &str| stage.run(&["sql", "-b", "-Q", text]);
    sql(&format!(
        "BACKUP DATABASE app TO {all} WITH PARITY = 1, FORMAT"
    ))
    .exits(0);
    stage.line(&format!("verify {ALL}")).exits(0);
    sql(&format!("BACKUP DATABASE app TO {all} WITH PARITY = 1"))
        .says("holds one backup set")
        .says("WITH INIT");
    sql(&format!("BACKUP DATABASE app TO {all} WITH INIT")).says("WITH PARITY = 1");
    sql(&format!(
        "BACKUP DATABASE app TO {all} WITH INIT, PARITY = 1"
    ))
    .exits(0);
    std::fs::remove_file(stage.path("a.bak")).unwrap();
    let left = disks(&["b.bak", "c.bak", "p.bak"]);
    let to = path("restored.db");
    let restore = format!("RESTORE DATABASE app FROM {left} WITH MOVE 'app' TO '{to}'");
    sql(&restore).says("DEGRADED");
    assert_eq!(rows(&stage.path("restored.db")), before);
}

/// Goal: what an operator without a key does for an encrypted backup, and what its owner gets of it.
#[test]
fn an_encrypted_backup_is_repaired_without_an_identity() {
    let stage = Stage::new();
    stage.database("app.db", 3);
    let made = stage.line("key new id").exits(0);
    let to = "--to a.bak --to b.bak --to c.bak --to p.bak --parity 1";
    let line = format!("backup app.db {to} --encrypt-to {}", made.out.trim());
    stage.line(&line).exits(0);
    let before = rows(&stage.path("app.db"));
    let bytes = std::fs::read(stage.path("b.bak")).unwrap();
    std::fs::remove_file(stage.path("b.bak")).unwrap();
    stage
        .line("restore a.bak c.bak p.bak --to out --identity id")
        .exits(5)
        .says("DEGRADED");
    assert_eq!(rows(&stage.path("out/app.db")), before);
    stage
        .line("restore c.bak p.bak a.bak --to only --only app.db --identity id")
        .exits(5);
    assert_eq!(rows(&stage.path("only/app.db")), before);
    stage
        .line("list a.bak c.bak p.bak")
        .exits(5)
        .says("encrypted, DEGRADED");
    stage
        .line(&format!("repair {ALL}"))
        .exits(0)
        .says("repaired");
    assert!(std::fs::read(stage.path("b.bak")).unwrap() == bytes);
    stage
        .line(&format!("verify {ALL} --identity id --require-encryption"))
        .exits(0);
    damage(&stage.path("c.bak"));
    stage
        .line(&format!("verify {ALL} --identity id"))
        .exits(5)
        .says("stripe c.bak (family 3) is damaged");
    stage.line(&format!("repair {ALL}")).exits(0);
    stage.line(&format!("verify {ALL} --identity id")).exits(0);
    reads_alone(&stage, &before);
}

/// The reader that knows only the format's page restores the backup without one stripe, too.
fn reads_alone(stage: &Stage, before: &[String]) {
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let reader = reader.display();
    let line = format!("python3 -B {reader} restore --identity id --to alone b.bak c.bak p.bak");
    stage.shell(&line).exits(0);
    assert_eq!(rows(&stage.path("alone/app.db")), before);
}

/// Runs a line where `small` is a disk of one MiB, which is gone afterwards; `None`: this user cannot mount.
fn on_a_small_disk(stage: &Stage, line: &str) -> Option<Ran> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let command = stage.command(&words);
    let script = "mount -t tmpfs -o size=1m tmpfs small || exit 111; exec \"$0\" \"$@\"";
    let mut inside = std::process::Command::new("unshare");
    inside
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(stage.path("."));
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(key, value),
            None => inside.env_remove(key),
        };
    }
    let ran = Ran::of(&inside.output().unwrap());
    match ran.code == 111 || ran.err.starts_with("unshare:") {
        true => {
            eprintln!("left out: this user cannot mount");
            None
        }
        false => Some(ran),
    }
}

#[test]
fn a_disk_that_fails_during_the_backup_costs_its_stripe_where_that_is_tolerated() {
    let stage = Stage::new();
    // On a busy machine a writer may begin when others have written some blocks.
    stage.database("app.db", 32);
    std::fs::create_dir(stage.path("small")).unwrap();
    let before = rows(&stage.path("app.db"));
    let line = "backup app.db --to a.bak --to small/b.bak --to p.bak --parity 1 --algorithm NONE";
    let Some(refused) = on_a_small_disk(&stage, line) else {
        return;
    };
    refused.exits(4).says("small/b.bak");
    assert!(!stage.path("a.bak").exists() && !stage.path("p.bak").exists());
    let ran = on_a_small_disk(&stage, &format!("--json {line} --tolerate 1 --verify")).unwrap();
    let answer = json(&ran.exits(5));
    assert_eq!(
        (&answer["degraded"], &answer["verified"]),
        (&true.into(), &true.into())
    );
    let told = answer["warnings"].to_string();
    assert!(
        told.contains("DEGRADED: stripe small/b.bak (family 2) is lost"),
        "{told}"
    );
    assert!(told.contains("longshore repair"), "{told}");
    let all = "a.bak small/b.bak p.bak";
    for line in [format!("list {all}"), format!("restore {all} --to out")] {
        stage.line(&line).exits(5).says("DEGRADED");
    }
    assert_eq!(rows(&stage.path("out/app.db")), before);
    stage
        .line(&format!("repair {all}"))
        .exits(0)
        .says("repaired");
    stage.line(&format!("verify {all}")).exits(0);
    std::fs::remove_file(stage.path("a.bak")).unwrap();
    stage.line("restore small/b.bak p.bak --to again").exits(5);
    assert_eq!(rows(&stage.path("again/app.db")), before);
    for (line, why) in [
        (
            "--parity 1 --tolerate 2",
            "2 stripes are to be borne without",
        ),
        ("--tolerate 1", "0 parity stripes can stand"),
    ] {
        let line = format!("backup app.db --to x.bak --to y.bak --to z.bak {line}");
        stage.line(&line).exits(4).says(why).says("--tolerate");
    }
}

#[test]
fn a_target_that_tolerates_a_lost_disk_tells_a_degraded_backup() {
    let stage = Stage::new();
    // On a busy machine a writer may begin when others have written some blocks.
    stage.database("app.db", 32);
    for dir in ["disk1", "small", "disk3"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let path = |name: &str| stage.path(name).display().to_string();
    let text = |tolerate: u16| {
        format!(
            "[database.sales]\nurl = \"sqlite:{}\"\nalgorithm = \"NONE\"\ntarget = \"nightly\"\n\
             [target.nightly]\ndirectories = [\"{}\", \"{}\", \"{}\"]\nparity = 1\ntolerate = {tolerate}\n",
            path("app.db"),
            path("disk1"),
            path("small"),
            path("disk3"),
        )
    };
    let file = "no-config/longshore/longshore.toml";
    stage.write(file, text(2).as_bytes());
    stage
        .line("config check")
        .exits(2)
        .says("no more places may fail");
    stage.write(file, text(1).as_bytes());
    stage
        .line("config check")
        .exits(0)
        .says("1 may fail meanwhile");
    let Some(ran) = on_a_small_disk(&stage, "backup sales") else {
        return;
    };
    ran.exits(5).says("DEGRADED");
    stage.line("info sales").exits(5).says("DEGRADED");
    stage.line("check sales").exits(5).says("DEGRADED");
    stage.line("restore --database sales --to out").exits(5);
    assert_eq!(rows(&stage.path("out/app.db")), rows(&stage.path("app.db")));
    stage
        .line("repair --database sales")
        .exits(0)
        .says("repaired");
    stage.line("info sales").exits(0);
    stage.line("verify --database sales").exits(0);
    // An option goes before the configuration.
    let ran = on_a_small_disk(&stage, "backup sales --tolerate 0").unwrap();
    ran.exits(4).says("small");
}

/// Goal: while a directory of a target is not mounted, its newest backup is read by parity, and an older one never in its place.
#[test]
fn a_target_is_read_without_a_directory_that_is_away() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    let disks = ["disk1", "disk2", "disk3"];
    for dir in disks {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let configure = |count: usize, more: &str| {
        let all = disks[..count].iter();
        let all: Vec<_> = all
            .map(|dir| format!("\"{}\"", stage.path(dir).display()))
            .collect();
        let text = format!(
            "[database.sales]\nurl = \"sqlite:{}\"\n[target.nightly]\ndirectories = [{}]\n{more}\n[defaults]\ntarget = \"nightly\"\n",
            stage.path("app.db").display(),
            all.join(", ")
        );
        stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    };
    configure(1, "");
    stage.line("backup sales").exits(0);
    // Labels are in the order of their seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let connection = rusqlite::Connection::open(stage.path("app.db")).unwrap();
    connection.execute_batch("create table newer (a)").unwrap();
    drop(connection);
    configure(3, "parity = 1");
    stage.line("backup sales").exits(0);
    let away = |dir: &str| {
        let to = stage.path(format!("{dir}-away"));
        std::fs::rename(stage.path(dir), to).unwrap();
    };
    away("disk3");
    stage
        .line("restore --database sales --to out")
        .exits(5)
        .says("disk3 cannot be reached");
    assert!(
        std::fs::read(stage.path("out/app.db")).unwrap()
            == std::fs::read(stage.path("app.db")).unwrap()
    );
    stage.line("verify --database sales").exits(5);
    stage.line("info sales").exits(5).says("DEGRADED");
    assert_ne!(stage.line("backup sales").code, 0);
    assert_ne!(stage.line("expire sales --keep-full 1").code, 0);
    away("disk2");
    for line in [
        "restore --database sales --to none",
        "verify --database sales",
    ] {
        assert_eq!(stage.line(line).code, 4, "{line}");
    }
    assert!(!stage.path("none").exists());
}
