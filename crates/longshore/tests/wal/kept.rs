//! Goal: while a database's own archive is owed WAL, the copies that have it keep it from every expire, also from one of a
//! machine that knows only the copy; once it is paid, nothing keeps it.
//! Method: a real server whose target is taken away, with backups and expires at a copy's target.
//! Not covered: expires of copies in object stores (`archiving_buckets.rs` has their records); steps at which a process dies
//! (`archive/keeping.rs` of `longshore-wal`).

use std::path::{Path, PathBuf};
use std::process::Output;

use longshore_kit::program::answer;
use longshore_kit::{Server, representatives};
use serde_json::Value;

use super::copies::Shop;
use super::owed::{AT_ONCE, begun_with, change_config, owe, owed, paid, rename, switch};
use super::stage::*;

/// The debts that an archive keeps WAL for.
fn debts(shop: &Shop, target: &str) -> Vec<Value> {
    debts_of(shop, "main", target)
}

fn debts_of(shop: &Shop, database: &str, target: &str) -> Vec<Value> {
    let line = format!("--json wal needs --database {database} --target {target}");
    let shown = shop.done(&line, 0);
    let needs = answer(&shown)["needs"].as_array().unwrap().clone();
    let is_debt = |need: &Value| need["purpose"] == "debt";
    needs.into_iter().filter(is_debt).collect()
}

/// The files by which this server's pg_wal is known to archives.
fn marks(server: &Server) -> Vec<PathBuf> {
    let place = server.data_dir().join("pg_wal/longshore");
    let paths = std::fs::read_dir(place).unwrap().map(|e| e.unwrap().path());
    let is_mark = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("relies-") && !name.ends_with(".lock")
    };
    paths.filter(is_mark).collect()
}

/// A machine that has the copy's target and no other.
struct Offsite<'a> {
    server: &'a Server,
    config: String,
}

impl Offsite<'_> {
    fn new(server: &Server) -> Offsite<'_> {
        let config = beside(server, "offsite.toml");
        let at = |name: &str| beside(server, name);
        let text = format!(
            "[database.main]\nurl = \"{}\"\ntarget = \"far\"\n[target.far]\ndirectories = [\"{}\", \"{}\"]\n",
            server.url(),
            at("far1"),
            at("far2")
        );
        std::fs::write(&config, text).unwrap();
        Offsite { server, config }
    }

    fn run(&self, line: &str) -> Output {
        let mut args = vec!["--catalog", "none", "--config", &self.config];
        args.extend(line.split(' '));
        let output = run(self.server, &args);
        assert_eq!(code(&output), 0, "{line}: {}", text(&output));
        output
    }

    fn expire(&self) -> Value {
        let expired = answer(&self.run("--json expire main --keep-full 1"));
        expired["databases"][0].clone()
    }
}

/// A server whose WAL goes to its own target and to two copies, `far` and `third`.
pub(super) fn with_two_copies(more: &str) -> Option<Shop> {
    let shop = Shop::configured(&representatives().pop()?);
    shop.write(&format!("{AT_ONCE}{more}"));
    let server = &shop.server;
    let third = PathBuf::from(beside(server, "third"));
    std::fs::create_dir(&third).unwrap();
    server.user().own(&third);
    change_config(&shop, "[\"far\"]", "[\"far\", \"third\"]");
    let config = std::fs::read_to_string(&shop.config).unwrap();
    let third = format!("[target.third]\ndirectories = [\"{}\"]\n", third.display());
    std::fs::write(&shop.config, config + &third).unwrap();
    begun_with(&shop);
    shop.done("wal create --database main --target third", 0);
    Some(shop)
}

#[test]
fn an_expire_at_a_copy_keeps_what_is_owed_until_it_is_paid() {
    let Some(shop) = with_two_copies("") else {
        return;
    };
    let server = &shop.server;
    let offsite = Offsite::new(server);

    rename(server, "near", "away");
    owe(&shop, "main", 3);
    let names = owed(server, "main");
    for target in ["far", "third"] {
        let debts = debts(&shop, target);
        assert_eq!(debts.len(), 1, "one for all files: {debts:?}");
        assert_eq!(debts[0]["target"], "near");
    }
    let records = std::fs::read_dir(Path::new(&shop.far_archive()).join("needs")).unwrap();
    assert_eq!(records.count(), 2, "with the file `known`");
    // Later pushes read in the list that the records are there.
    let list = std::fs::read_to_string(server.data_dir().join("pg_wal/longshore/owed")).unwrap();
    for archive in [shop.far_archive(), beside(server, "third/main/wal")] {
        let is_kept = |line: &&str| line.starts_with("kept\tmain\t") && line.ends_with(&archive);
        assert_eq!(list.lines().filter(is_kept).count(), 1, "{archive}: {list}");
    }
    // A newer backup there needs none of it.
    offsite.run("backup main --wal-wait 60");
    let before = segments(&shop.far_archive());
    let expired = offsite.expire();
    let after = segments(&shop.far_archive());
    assert!(after.len() < before.len(), "{before:?} {after:?}");
    for name in &names {
        assert!(after.contains(name), "{name}: {after:?}");
    }
    let keeper = &expired["wal_kept_for"][0];
    assert_eq!(keeper["purpose"], "debt", "{expired}");
    let told = text(&offsite.run("expire main --keep-full 1"));
    for part in ["is owed to main at target near", "--forget", "pg_wal"] {
        assert!(told.contains(part), "{part}: {told}");
    }

    // One of the copies is away when the debt is paid.
    rename(server, "third", "third-away");
    rename(server, "away", "near");
    paid(&shop, "main");
    for name in &names {
        assert!(segments(&shop.near_archive()).contains(name), "{name}");
    }
    wait_until("the record is gone", server, || {
        switch(server);
        debts(&shop, "far").is_empty()
    });
    assert_eq!(marks(server).len(), 1);
    let expired = offsite.expire();
    assert_eq!(expired["wal_kept_for"], serde_json::json!([]));
    assert!(!segments(&shop.far_archive()).contains(&names[0]));
    rename(server, "third-away", "third");
    wait_until("the other record is gone", server, || {
        switch(server);
        debts(&shop, "third").is_empty() && marks(server).is_empty()
    });
    shop.done("wal list --database main --verify", 0);
}

/// Goal: a copy whose archive can have no record is none that stands in.
#[test]
fn a_copy_that_cannot_keep_a_file_does_not_stand_in() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let shop = Shop::configured(&installation);
    shop.write(AT_ONCE);
    begun_with(&shop);
    let server = &shop.server;
    let needs = format!("{}/needs", shop.far_archive());
    let rights = |mode: &str| {
        let mut chmod = server.command_at(Path::new("/bin/chmod"));
        assert!(chmod.args([mode, &needs]).status().unwrap().success());
    };
    rights("0500");
    rename(server, "near", "away");
    switch(server);
    wait_until("the server is told", server, || {
        server
            .log()
            .contains("the archive of target far did not take")
    });
    assert_eq!(owed(server, "main"), [] as [&str; 0]);
    let waiting =
        "select count(*) > 0 from pg_ls_dir('pg_wal/archive_status') n where n like '%.ready'";
    assert_eq!(server.psql(waiting), "t");
    rights("0700");
    owe(&shop, "main", 1);
    assert_eq!(debts(&shop, "far").len(), 1);
    // The debt of a server that is gone is forgotten by hand.
    let id = debts(&shop, "far")[0]["id"].as_str().unwrap().to_owned();
    shop.done(
        &format!("wal needs --database main --target far --forget {id}"),
        0,
    );
}

/// Goal: a copy does not stand in while an expire is at work there that may not have seen the record.
/// Method: the lease of an expire on another machine, as it is in the archive's directory.
#[test]
fn a_copy_that_is_being_expired_does_not_stand_in() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let shop = Shop::configured(&installation);
    shop.write(AT_ONCE);
    begun_with(&shop);
    let server = &shop.server;
    let lease = Path::new(&shop.far_archive()).join(".longshore-lease-expire.elsewhere.1.0");
    std::fs::write(&lease, "host elsewhere\n").unwrap();
    server.user().own(&lease);
    rename(server, "near", "away");
    switch(server);
    wait_until("the server is told", server, || {
        let log = server.log();
        log.contains("the archive of target far did not take")
            && log.contains("WAL is being removed from the archive")
    });
    assert_eq!(owed(server, "main"), [] as [&str; 0]);
    std::fs::remove_file(&lease).unwrap();
    owe(&shop, "main", 1);
    rename(server, "away", "near");
    paid(&shop, "main");
}

/// Goal: a database with a new name takes over the records, too: none of the old name keeps WAL for ever.
/// Method: one of two copies is away when the debt is taken over.
#[test]
fn a_debt_that_is_taken_over_leaves_no_record_of_the_old_name() {
    let Some(shop) = with_two_copies("") else {
        return;
    };
    let server = &shop.server;
    rename(server, "near", "away");
    owe(&shop, "main", 2);
    server.append_conf("archive_command = 'false'");
    server.psql("select pg_reload_conf()");
    wait_until("no push is made", server, || {
        server.psql("select pg_switch_wal()");
        server.log().contains("archive command was: false")
    });
    wait_until("nothing else brings WAL", server, || {
        !text(&shop.run("wal owed --database main --settle")).contains("wait until it has ended")
    });
    for target in ["away", "far1", "far2", "third"] {
        let at = |name: &str| PathBuf::from(beside(server, target)).join(name);
        if at("main").exists() {
            std::fs::rename(at("main"), at("prime")).unwrap();
        }
    }
    change_config(&shop, "database.main", "database.prime");
    rename(server, "third", "third-away");
    let of = |target: &str| {
        let debts = debts_of(&shop, "prime", target).into_iter();
        let names = debts.map(|debt| debt["database"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(of("far"), ["main"]);
    let take = "wal owed --database prime --take main";
    let said = text(&shop.done(take, 5));
    assert!(
        said.contains("may keep WAL for database main still"),
        "{said}"
    );
    assert_eq!(of("far"), ["prime"]);
    rename(server, "third-away", "third");
    assert_eq!(of("third"), ["main"]);
    let said = text(&shop.done(take, 5));
    assert!(!said.contains("may keep WAL"), "{said}");
    assert_eq!(
        (of("far"), of("third")),
        (vec!["prime".to_owned()], vec!["prime".to_owned()])
    );
    assert_eq!(marks(server).len(), 1);
    let refused = text(&shop.done(take, 2));
    assert!(
        refused.contains("nothing is owed to a database main"),
        "{refused}"
    );
    // It keeps WAL until it is paid.
    rename(server, "away", "near");
    shop.done("wal owed --database prime --settle", 0);
    assert_eq!((of("far"), of("third")), (vec![], vec![]));
    assert_eq!(marks(server), [] as [PathBuf; 0]);
}
