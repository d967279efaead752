//! Goal: what a database's own archive is owed is told wherever an operator looks, goes to the archive that is the database's own
//! now, and to no other database's; what is lost is named until it is given up.
//! Method: a real server archives to a target of directories that is taken away, renamed and brought back.
//! Not covered: targets in object stores (`archiving_buckets.rs`); other majors than the newest.

use std::path::{Path, PathBuf};

use longshore_kit::program::answer;
use longshore_kit::{Server, representatives};
use serde_json::Value;

use super::copies::Shop;
use super::stage::*;

pub(super) const AT_ONCE: &str = "copy_at_once = true\nhome_behind = \"64M\"\n";

/// A server whose WAL goes to both targets, with a backup at the first.
pub(super) fn begun() -> Option<Shop> {
    let shop = Shop::configured(&representatives().pop()?);
    shop.write(AT_ONCE);
    begun_with(&shop);
    Some(shop)
}

pub(super) fn begun_with(shop: &Shop) {
    shop.begin();
    shop.done("wal create --database main --target far", 0);
    work(&shop.server, 2);
    archived(&shop.server, &shop.near_archive());
    shop.done("backup main", 0);
    // The backup's own label comes to the archive last; later it would be the first file that is owed.
    archived(&shop.server, &shop.near_archive());
}

fn note(server: &Server) -> PathBuf {
    server.data_dir().join("pg_wal/longshore/owed")
}

/// The files that the list owes to a database.
pub(super) fn owed(server: &Server, database: &str) -> Vec<String> {
    let list = std::fs::read_to_string(note(server)).unwrap_or_default();
    let fields = list
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let of_it = fields.filter(|fields| fields.len() == 4 && fields[1] == database);
    of_it.map(|fields| fields[0].to_owned()).collect()
}

pub(super) fn switch(server: &Server) {
    work(server, 1);
    server.psql("select pg_switch_wal()");
}

/// Works until the list owes so many files to a database.
pub(super) fn owe(shop: &Shop, database: &str, count: usize) {
    wait_until("files are owed", &shop.server, || {
        switch(&shop.server);
        owed(&shop.server, database).len() >= count
    });
    // All that was switched is pushed, so the list stands still.
    shop.server.wait_for(READY, "0");
}

/// Works until the list owes nothing more to a database.
pub(super) fn paid(shop: &Shop, database: &str) {
    wait_until("the debt is paid", &shop.server, || {
        switch(&shop.server);
        std::thread::sleep(std::time::Duration::from_millis(300));
        owed(&shop.server, database).is_empty()
    });
}

pub(super) fn rename(server: &Server, from: &str, to: &str) {
    std::fs::rename(beside(server, from), beside(server, to)).unwrap();
}

pub(super) fn change_config(shop: &Shop, from: &str, to: &str) {
    let text = std::fs::read_to_string(&shop.config).unwrap();
    let changed = text.replace(from, to);
    assert_ne!(text, changed, "{from}");
    std::fs::write(&shop.config, changed).unwrap();
}

/// The findings of `check` on debts, each with its grade.
fn findings(checked: &Value) -> Vec<(String, String)> {
    let all = checked["databases"][0]["findings"].as_array().unwrap();
    let of_it = all.iter().filter(|finding| finding["what"] == "owed");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_it
        .map(|finding| (text(&finding["grade"]), text(&finding["text"])))
        .collect()
}

fn ask(shop: &Shop, line: &str) -> Value {
    answer(&shop.run(line))
}

/// The checks of `doctor` on debts.
fn told_by_doctor(shop: &Shop) -> String {
    let told = ask(shop, "--json doctor");
    let all = told["checkups"].as_array().unwrap();
    let of_wal: Vec<&Value> = all.iter().filter(|found| found["about"] == "wal").collect();
    serde_json::to_string(&of_wal).unwrap()
}

#[test]
fn debts_follow_the_archive_and_are_told_until_they_are_paid() {
    let Some(shop) = begun() else {
        return;
    };
    let server = &shop.server;
    rename(server, "near", "moved");
    owe(&shop, "main", 3);
    let first = owed(server, "main")[0].clone();
    let list = shop.done("--json wal owed --database main", 5);
    let list = answer(&list);
    assert_eq!(list["owed"]["debts"][0]["since"], first.as_str());
    assert_eq!(list["owed"]["debts"][0]["is_brought"], true, "{list}");
    assert_eq!(list["owed_files"][0]["is_lost"], false);
    let checked = ask(&shop, "--json check main --archive-wait 0");
    let debt = &checked["databases"][0]["owed"]["debts"][0];
    assert!(
        debt["file_count"].as_u64().unwrap() >= 3 && debt["lost_count"] == 0,
        "{checked}"
    );
    let (grade, told) = findings(&checked).remove(0);
    assert_eq!(grade, "look");
    for part in [
        &first,
        "target near",
        &shop.near_archive(),
        "wal owed --database main",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let away = text(&shop.run("info main"));
    assert!(away.contains(&first), "{away}");
    let (told, count) = (text(&shop.run("metrics main")), owed(server, "main").len());
    for line in [
        format!("longshore_wal_owed_files{{database=\"main\"}} {count}\n"),
        "longshore_wal_lost_files{database=\"main\"} 0\n".to_owned(),
        "longshore_wal_owed_unreadable{database=\"main\"} 0\n".to_owned(),
    ] {
        assert!(told.contains(&line), "{line}: {told}");
    }
    assert!(told_by_doctor(&shop).contains(&first));

    // The disk is mounted elsewhere.
    change_config(&shop, "/near\"", "/moved\"");
    let seen = ask(&shop, "--json info main");
    assert_eq!(
        seen["databases"][0]["owed"]["debts"][0]["since"],
        first.as_str()
    );
    assert!(text(&shop.run("info main")).contains("OWED"));
    paid(&shop, "main");
    let log = server.log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("in its place"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&shop.near_archive()) && told[0].contains(&beside(server, "moved")));
    shop.done("wal list --database main --verify", 0);
    shop.done("wal owed --database main", 0);
    assert_eq!(
        findings(&ask(&shop, "--json check main --archive-wait 0")),
        []
    );
    assert_eq!(told_by_doctor(&shop), "[]");

    // The target is another one for good, whose archive gets what the old one is owed. When the old one comes back, it shows
    // its gap, and nothing is owed for it.
    let newest = segments(&beside(server, "moved/main/wal")).pop().unwrap();
    rename(server, "moved", "old");
    owe(&shop, "main", 2);
    let first = owed(server, "main")[0].clone();
    std::fs::create_dir(beside(server, "new")).unwrap();
    server.user().own(&PathBuf::from(beside(server, "new")));
    change_config(&shop, "/moved\"", "/new\"");
    shop.done("wal create --database main", 0);
    paid(&shop, "main");
    assert!(segments(&beside(server, "new/main/wal")).contains(&first));
    change_config(&shop, "/new\"", "/old\"");
    wait_until("the old archive goes on", server, || {
        switch(server);
        segments(&beside(server, "old/main/wal")).pop().unwrap() > newest
    });
    let seen = ask(&shop, "--json info main");
    let gaps = seen["databases"][0]["wal"]["gaps"]
        .as_array()
        .unwrap()
        .clone();
    assert!(gaps[0].as_str().unwrap().contains(&first), "{gaps:?}");
    let checked = text(&shop.run("check main --archive-wait 0"));
    assert!(checked.contains("is missing"), "{checked}");
}

#[test]
fn a_file_that_is_lost_is_named_and_stops_nothing_until_it_is_given_up() {
    let Some(shop) = begun() else {
        return;
    };
    let server = &shop.server;
    rename(server, "near", "away");
    owe(&shop, "main", 4);
    let names = owed(server, "main");
    let (lost, kept) = (&names[0], &names[1]);
    // The copy has neither any longer, and the server one of them.
    for name in [lost, kept] {
        std::fs::remove_file(stored(&shop.far_archive(), name)).unwrap();
    }
    std::fs::remove_file(server.data_dir().join("pg_wal").join(lost)).unwrap();
    rename(server, "away", "near");
    wait_until("all that can come has come", server, || {
        switch(server);
        std::thread::sleep(std::time::Duration::from_millis(300));
        let list = std::fs::read_to_string(note(server)).unwrap();
        owed(server, "main") == [lost.clone()] && list.contains("\nlost\tmain\t")
    });
    assert!(
        segments(&shop.near_archive()).contains(kept),
        "it came from pg_wal"
    );
    let checked = ask(&shop, "--json check main --archive-wait 0");
    let (grade, told) = findings(&checked).remove(0);
    assert_eq!(grade, "bad", "{told}");
    assert!(told.contains(lost) && told.contains("--give-up"), "{told}");
    assert_eq!(checked["databases"][0]["owed"]["debts"][0]["lost_count"], 1);
    let metrics = text(&shop.run("metrics main"));
    assert!(
        metrics.contains("longshore_wal_lost_files{database=\"main\"} 1\n"),
        "{metrics}"
    );
    // The first archive is the first again, and the server is told.
    let so_far = segments(&shop.near_archive()).len();
    wait_until("WAL goes on", server, || {
        switch(server);
        segments(&shop.near_archive()).len() > so_far + 2
    });
    assert_eq!(owed(server, "main"), std::slice::from_ref(lost));
    assert!(server.log().contains("--give-up"));
    let shown = text(&shop.done("wal owed --database main", 5));
    assert!(shown.contains(lost) && shown.contains("lost"), "{shown}");
    shop.done("backup main", 0);
    let given_up = answer(&shop.done("--json wal owed --database main --give-up", 0));
    assert_eq!(given_up["given_up"], serde_json::json!([lost]));
    let needs = answer(&shop.done("--json wal needs --database main --target far", 0));
    assert_eq!(needs["needs"], serde_json::json!([]));
    assert_eq!(
        findings(&ask(&shop, "--json check main --archive-wait 0")),
        []
    );
}

#[test]
fn a_list_that_cannot_be_read_is_told_everywhere() {
    let Some(shop) = begun() else {
        return;
    };
    let server = &shop.server;
    let note = note(server);
    let limited = format!("{AT_ONCE}copy_behind = \"64G\"\n");
    for is_torn in [true, false] {
        match is_torn {
            true => std::fs::write(&note, "a line of a later version\n").unwrap(),
            false => {
                std::fs::remove_file(&note).unwrap();
                std::fs::create_dir(&note).unwrap();
            }
        }
        let before = server.log().len();
        switch(server);
        wait_until("the server is told", server, || {
            server.log()[before..]
                .contains("it is not known what the database's own archive is owed")
        });
        archived(server, &shop.near_archive());
        let checked = ask(&shop, "--json check main --archive-wait 0");
        let (grade, told) = findings(&checked).remove(0);
        assert_eq!(grade, "look", "{told}");
        assert!(
            checked["databases"][0]["owed"]["unknown"].is_string(),
            "{checked}"
        );
        // A limit makes pushes fail in the end.
        change_config(&shop, AT_ONCE, &limited);
        let checked = ask(&shop, "--json check main --archive-wait 0");
        assert_eq!(findings(&checked).remove(0).0, "bad", "{checked}");
        change_config(&shop, &limited, AT_ONCE);
        let told = text(&shop.run("metrics main"));
        assert!(
            told.contains("longshore_wal_owed_unreadable{database=\"main\"} 1\n"),
            "{told}"
        );
        assert!(!told.contains("longshore_wal_owed_files"), "{told}");
        let seen = ask(&shop, "--json info main");
        assert!(
            seen["databases"][0]["owed"]["unknown"].is_string(),
            "{seen}"
        );
        assert!(told_by_doctor(&shop).contains("it is not known"));
    }
}

/// Goal: one database's debts are paid to its own archive alone, also after the section was renamed.
/// Method: the archive_command pushes for two databases; both targets are taken away.
#[test]
fn two_databases_over_one_cluster_keep_their_debts_apart() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let shop = Shop::configured(&installation);
    shop.write(AT_ONCE);
    let server = &shop.server;
    let other = PathBuf::from(beside(server, "other"));
    std::fs::create_dir(&other).unwrap();
    server.user().own(&other);
    let more = format!(
        "\n[database.second]\nurl = \"{}\"\ntarget = \"other\"\ncopies = [\"far\"]\n[database.second.wal]\n{AT_ONCE}\
         [target.other]\ndirectories = [\"{}\"]\n",
        server.url(),
        other.display()
    );
    let text_before = std::fs::read_to_string(&shop.config).unwrap();
    std::fs::write(&shop.config, text_before + &more).unwrap();
    for line in ["main --target far", "second", "second --target far"] {
        shop.done(&format!("wal create --database {line}"), 0);
    }
    shop.begin();
    let push = |database: &str| {
        format!(
            "{SHELL} {BINARY} --config {} wal push %p --database {database}",
            shop.config
        )
    };
    let both = |second: &str| {
        server.append_conf(&format!(
            "archive_command = '{} && {}'",
            push("main"),
            push(second)
        ));
        server.psql("select pg_reload_conf()");
    };
    both("second");
    work(server, 2);
    archived(server, &shop.near_archive());
    rename(server, "near", "near-away");
    rename(server, "other", "other-away");
    owe(&shop, "main", 2);
    owe(&shop, "second", 2);

    // The second database is called otherwise now; its target is there, and pays nothing of the first one's.
    let (main, second) = (owed(server, "main"), owed(server, "second"));
    rename(server, "other-away", "other");
    std::fs::rename(other.join("second"), other.join("third")).unwrap();
    let far = Path::new(&beside(server, "far1")).to_owned();
    std::fs::rename(far.join("second"), far.join("third")).unwrap();
    change_config(&shop, "database.second", "database.third");
    both("third");
    switch(server);
    wait_until("the server is told", server, || {
        server
            .log()
            .contains("the configuration has no database second")
    });
    let told = findings(&ask(&shop, "--json check third --archive-wait 0"));
    assert!(
        told.iter()
            .any(|(grade, text)| grade == "bad" && text.contains("--take second")),
        "{told:?}"
    );
    for name in &main {
        assert!(owed(server, "main").contains(name), "{name}");
    }
    for name in &second {
        assert!(owed(server, "second").contains(name), "{name}");
    }
    shop.done("wal owed --database third --take main", 2);
    shop.done("wal owed --database third --take nobody", 2);
    let taken = ask(&shop, "--json wal owed --database third --take second");
    assert!(
        taken["taken"].as_u64().unwrap() >= second.len() as u64,
        "{taken}"
    );
    wait_until("the third has all", server, || {
        // A process of a push may have the turn.
        code(&shop.run("wal owed --database third --settle")) == 0
    });
    let archive = segments(&other.join("third/wal").display().to_string());
    for name in &second {
        assert!(archive.contains(name), "{name}");
    }
    assert_eq!(owed(server, "third"), [] as [&str; 0]);
    for name in &main {
        assert!(owed(server, "main").contains(name), "{name}");
    }
    rename(server, "near-away", "near");
    paid(&shop, "main");
    shop.done("wal list --database main --verify", 0);
}

/// Goal: a damaged file of the own archive keeps no other from coming, is not written over, and is told of wherever an operator
/// looks until it is moved away.
#[test]
fn a_damaged_file_of_the_own_archive_is_told_and_keeps_no_other_from_coming() {
    let Some(shop) = begun() else {
        return;
    };
    let server = &shop.server;
    rename(server, "near", "away");
    owe(&shop, "main", 4);
    let torn = owed(server, "main")[1].clone();
    let whole = std::fs::read(stored(&shop.far_archive(), &torn)).unwrap();
    let (at, bytes) = (
        stored(&beside(server, "away/main/wal"), &torn),
        &whole[..whole.len() / 2],
    );
    std::fs::write(&at, bytes).unwrap();
    server.user().own(&at);
    rename(server, "away", "near");
    let at = stored(&shop.near_archive(), &torn);
    wait_until("all others have come", server, || {
        switch(server);
        std::thread::sleep(std::time::Duration::from_millis(300));
        owed(server, "main") == [torn.clone()]
    });
    assert_eq!(std::fs::read(&at).unwrap(), bytes);
    let path = at.display().to_string();
    let shown = text(&shop.done("wal owed --database main", 5));
    assert!(
        shown.contains(&path) && shown.contains("move it out of the archive"),
        "{shown}"
    );
    let (grade, told) = findings(&ask(&shop, "--json check main --archive-wait 0")).remove(0);
    assert!(grade == "bad" && told.contains(&path), "{grade}: {told}");
    assert!(told_by_doctor(&shop).contains(&path));
    // Pushes go on, and say so.
    let (before, so_far) = (server.log().len(), segments(&shop.near_archive()).len());
    wait_until("WAL goes on", server, || {
        switch(server);
        segments(&shop.near_archive()).len() > so_far + 2
    });
    assert!(server.log()[before..].contains("move it out of the archive"));
    std::fs::remove_file(&at).unwrap();
    paid(&shop, "main");
    shop.done("wal list --database main --verify", 0);
}

/// Goal: what root's push makes and changes in pg_wal stays the server's, which owes more and pays afterwards.
#[test]
fn the_list_stays_the_servers_when_root_pushes() {
    let Some(shop) = begun() else {
        return;
    };
    let server = &shop.server;
    let Some((user, _)) = server.user().ids() else {
        eprintln!("skipped: only root can push for another user's server");
        return;
    };
    // A directory that only root can make: the server's own pushes wait.
    server.psql("alter system set archive_command = 'false'");
    server.psql("select pg_reload_conf()");
    let place = note(server).parent().unwrap().to_owned();
    std::fs::remove_dir_all(&place).unwrap();
    rename(server, "near", "moved");
    let name = server.psql("select pg_walfile_name(pg_current_wal_lsn())");
    switch(server);
    let segment = server.data_dir().join("pg_wal").join(&name);
    let mut push = std::process::Command::new(crate::common::BINARY);
    push.args(["--catalog", "none", "--config", &shop.config]);
    push.args(["wal", "push", "--database", "main"])
        .arg(segment);
    let pushed = push.output().unwrap();
    assert_eq!(code(&pushed), 0, "{}", text(&pushed));
    assert_eq!(owed(server, "main"), [name]);
    assert_eq!(owner(&place), Some(user));
    // The look-ahead may be at work yet: a file is given away while it is empty, just after it is made.
    wait_until("all that root made is the server's", server, || {
        let there = std::fs::read_dir(&place).unwrap();
        let owners = there.map(|entry| owner(&entry.unwrap().path()));
        // A file that is gone by now is nobody's.
        let owners: Vec<_> = owners.flatten().collect();
        owners.len() > 1 && owners.iter().all(|owner| *owner == user)
    });
    // A file that root has stored in an archive is root's.
    server.user().own(Path::new(&shop.far_archive()));
    server.psql("alter system reset archive_command");
    server.psql("select pg_reload_conf()");
    owe(&shop, "main", 3);
    rename(server, "moved", "near");
    paid(&shop, "main");
}

fn owner(path: &Path) -> Option<u32> {
    let found = std::fs::metadata(path).ok()?;
    Some(std::os::unix::fs::MetadataExt::uid(&found))
}
