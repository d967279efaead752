//! Goal: a second target has all that a recovery needs, to the same moment as the first; it mixes no two branches, and an
//! expire there takes nothing that a copy needs.
//! Method: a real server archives to a target of directories, backups and WAL are copied by name, the first target is taken
//! away, and a server recovers from the second. The origin is then set back by a copy of its files.
//! Not covered: targets in object stores (`archiving_buckets.rs` has their archives).

use std::path::{Path, PathBuf};
use std::process::Output;

use longshore_kit::program::answer;
use longshore_kit::{Installation, Server, Stop, representatives};

use super::stage::*;

/// A server whose target and copies are configured; it archives to the first.
pub(super) struct Shop {
    pub(super) server: Server,
    pub(super) config: String,
}

impl Shop {
    fn new(installation: &Installation) -> Shop {
        let shop = Shop::configured(installation);
        shop.write("");
        shop.begin();
        shop
    }

    /// A server that does not run yet, and no configuration.
    pub(super) fn configured(installation: &Installation) -> Shop {
        let server = server(
            installation,
            &[("archive_mode", "on"), ("wal_keep_size", "200MB")],
        );
        let config = beside(&server, "longshore.toml");
        for dir in ["near", "far1", "far2"] {
            let dir = PathBuf::from(beside(&server, dir));
            std::fs::create_dir(&dir).unwrap();
            server.user().own(&dir);
        }
        Shop { server, config }
    }

    /// Writes the configuration, with more about the WAL.
    pub(super) fn write(&self, wal: &str) {
        let at = |name: &str| beside(&self.server, name);
        let text = format!(
            "[database.main]\nurl = \"{}\"\ntarget = \"near\"\ncopies = [\"far\"]\nretention = \"two\"\n\
             [database.main.wal]\n{wal}\
             [target.near]\ndirectories = [\"{}\"]\n\
             [target.far]\ndirectories = [\"{}\", \"{}\"]\n\
             [retention.two]\nkeep_full = 2\n",
            self.server.url(),
            at("near"),
            at("far1"),
            at("far2"),
        );
        std::fs::write(&self.config, text).unwrap();
    }

    pub(super) fn begin(&self) {
        self.done("wal create --database main", 0);
        self.server.append_conf(&format!(
            "archive_command = '{SHELL} {BINARY} --config {} wal push %p --database main'",
            self.config
        ));
        self.server.start();
    }

    pub(super) fn near_archive(&self) -> String {
        beside(&self.server, "near/main/wal")
    }

    pub(super) fn far_archive(&self) -> String {
        beside(&self.server, "far1/main/wal")
    }

    pub(super) fn run(&self, line: &str) -> Output {
        let mut args = vec!["--catalog", "none", "--config", &self.config];
        args.extend(line.split(' '));
        run(&self.server, &args)
    }

    pub(super) fn done(&self, line: &str, expected: i32) -> Output {
        let output = self.run(line);
        assert_eq!(code(&output), expected, "{line}: {}", text(&output));
        output
    }

    /// The number of rows that a server has which recovered from the second target.
    fn rows_from_far(&self, name: &str) -> u64 {
        self.rows_of("restore --database main --target far", name, 0)
            .0
    }

    /// The number of rows that a server has which recovered from what this restores, and what was said of the restore.
    fn rows_of(&self, line: &str, name: &str, expected: i32) -> (u64, String) {
        let data = beside(&self.server, name);
        let said = text(&self.done(&format!("{line} --to {data}"), expected));
        let conf = Path::new(&data).join("postgresql.auto.conf");
        let text = std::fs::read_to_string(&conf).unwrap();
        std::fs::write(&conf, format!("{text}\narchive_mode = off\n")).unwrap();
        let restored = Server::adopt(self.server.installation(), Path::new(&data));
        restored.start();
        restored.wait_for("select pg_is_in_recovery()", "f");
        let found = rows(&restored);
        restored.stop(Stop::Fast);
        (found, said)
    }
}

/// Copies are made, and a server recovers from them alone.
fn copied(installation: &Installation) -> Shop {
    let shop = Shop::new(installation);
    let server = &shop.server;
    work(server, 2);
    shop.done("backup main", 0);
    work(server, 2);
    shop.done("backup main --differential", 0);
    work(server, 2);
    archived(server, &shop.near_archive());
    let dry = answer(&shop.done("--json copy --dry-run", 0));
    assert_eq!(dry["databases"][0]["copied"], 2);
    assert!(!Path::new(&shop.far_archive()).exists());
    let first = answer(&shop.done("--json copy", 0));
    assert_eq!(first["databases"][0]["copied"], 2);
    assert_eq!(
        first["databases"][0]["wal_files"],
        dry["databases"][0]["wal_files"]
    );
    let (near, far) = (
        segments(&shop.near_archive()),
        segments(&shop.far_archive()),
    );
    assert!(near.ends_with(&far) && far.len() >= 4, "{near:?} {far:?}");
    for name in &far {
        assert_eq!(
            unpacked(&shop.near_archive(), name),
            unpacked(&shop.far_archive(), name)
        );
    }
    // A second run brings what is new, and that alone.
    work(server, 2);
    archived(server, &shop.near_archive());
    let second = answer(&shop.done("--json copy", 0));
    assert_eq!(second["databases"][0]["copied"], 0);
    let new = second["databases"][0]["wal_files"].as_u64().unwrap();
    assert!((2..=4).contains(&new), "{new}");
    shop.done("wal list --database main --target far --verify", 0);
    // An expire there changes nothing, and what it has removed does not come back.
    shop.done("expire main --target far", 0);
    assert_eq!(
        answer(&shop.done("--json copy", 0))["databases"][0]["wal_files"],
        0
    );
    shop.done("check main", 0);
    let expected = rows(server);
    std::fs::rename(beside(server, "near"), beside(server, "gone")).unwrap();
    assert_eq!(shop.rows_from_far("from-far"), expected);
    std::fs::rename(beside(server, "gone"), beside(server, "near")).unwrap();
    shop
}

/// A chain whose full backup is lost at the first target is read at both.
fn full_is_lost(shop: &Shop) {
    let server = &shop.server;
    let at = PathBuf::from(beside(server, "near/main"));
    let names = std::fs::read_dir(&at).unwrap();
    let mut names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    let full = names.find(|name| name.contains("-full-")).unwrap();
    let kept = beside(server, "kept");
    std::fs::rename(at.join(&full), &kept).unwrap();
    let (found, said) = shop.rows_of("restore --database main", "full-lost", 5);
    assert_eq!(found, rows(server));
    let gives = format!("from its copy at target far, which gives all of {full}: ");
    assert!(said.contains(&gives), "{said}");
    // The same where a moment is asked for, and for a part.
    for options in ["--target-immediate", "--only global/pg_control"] {
        let to = beside(server, "full-lost-again");
        let said = shop.done(&format!("restore --database main {options} --to {to}"), 5);
        assert!(text(&said).contains(&gives), "{}", text(&said));
        std::fs::remove_dir_all(to).unwrap();
    }
    let named = shop.run("restore --database main --target near --dry-run --to nowhere");
    assert_eq!(code(&named), 4, "{}", text(&named));
    std::fs::rename(kept, at.join(&full)).unwrap();
}

/// Backups that are there already get the WAL that they need, whatever kept it away.
fn wal_follows(shop: &Shop) {
    let server = &shop.server;
    let far = shop.far_archive();
    let all = segments(&far);
    // A hole, as an archive has it that got a segment late.
    for hole in [&all[..], &all[1..3]] {
        for name in hole {
            std::fs::remove_file(stored(&far, name)).unwrap();
        }
        shop.done("check main", 1);
        shop.done("--json copy", 0);
        // A check switches to a new segment.
        assert!(segments(&far).starts_with(&all));
        shop.done("check main", 0);
    }
    // An archive that is not mounted is no archive without news.
    let near = shop.near_archive();
    std::fs::rename(&near, beside(server, "unmounted")).unwrap();
    std::fs::create_dir(&near).unwrap();
    let refused = shop.done("copy", 4);
    assert!(
        text(&refused).contains("there is no archive"),
        "{}",
        text(&refused)
    );
    std::fs::remove_dir(&near).unwrap();
    std::fs::rename(beside(server, "unmounted"), &near).unwrap();
    // Without WAL on request; the next run brings it.
    std::fs::remove_dir_all(beside(server, "far1/main")).unwrap();
    std::fs::remove_dir_all(beside(server, "far2/main")).unwrap();
    // Where WAL cannot come, no backup comes that needs it.
    std::fs::create_dir(beside(server, "far1/main")).unwrap();
    server.user().own(Path::new(&beside(server, "far1/main")));
    std::fs::write(beside(server, "far1/main/wal"), b"in the way").unwrap();
    let stopped = answer(&shop.done("--json copy", 4));
    let fates: Vec<&str> = stopped["databases"][0]["backups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|backup| backup["fate"].as_str().unwrap())
        .collect();
    assert_eq!(fates, ["failed", "blocked"]);
    std::fs::remove_file(beside(server, "far1/main/wal")).unwrap();
    shop.done("copy --no-wal", 0);
    shop.done("check main", 1);
    shop.done("copy", 0);
    shop.done("check main", 0);
    assert!(segments(&far).starts_with(&all));
}

/// The server is set back, and its archive is a new one: the copy keeps the branch that it has.
fn set_back(installation: &Installation, shop: &Shop) {
    let server = &shop.server;
    server.stop(Stop::Fast);
    let data = copy(server, "set-back");
    server.start();
    work(server, 2);
    archived(server, &shop.near_archive());
    shop.done("copy", 0);
    let before = longshore_kit::tree::read(Path::new(&shop.far_archive()));
    server.stop(Stop::Fast);
    std::fs::remove_dir_all(beside(server, "near/main")).unwrap();
    shop.done("wal create --database main", 0);
    let other = Server::adopt(installation, &data);
    other.start();
    work(&other, 4);
    archived(&other, &shop.near_archive());
    let refused = shop.run("copy");
    assert_eq!(code(&refused), 7, "{}", text(&refused));
    let after = longshore_kit::tree::read(Path::new(&shop.far_archive()));
    let is_note = |path: &&PathBuf| path.to_string_lossy().contains("refused");
    assert!(
        before
            .iter()
            .all(|(path, bytes)| after.get(path) == Some(bytes)),
        "something of the first branch has changed"
    );
    // A promotion gives it a timeline of its own, which goes on with no WAL that is there.
    other.stop(Stop::Fast);
    recover(
        &other,
        &data,
        "recovery_target_timeline = 'latest'\nrestore_command = 'false'",
        "recovery.signal",
    );
    other.start();
    other.wait_for("select pg_is_in_recovery()", "f");
    work(&other, 2);
    archived(&other, &shop.near_archive());
    let refused = shop.run("copy");
    assert_eq!(code(&refused), 7, "{}", text(&refused));
    let new: Vec<&PathBuf> = after
        .keys()
        .filter(|path| !before.contains_key(*path))
        .filter(|path| !is_note(path))
        .collect();
    assert_eq!(new, Vec::<&PathBuf>::new());
    other.stop(Stop::Fast);
}

#[test]
fn a_copy_recovers_to_the_same_moment_and_never_mixes_two_branches() {
    for installation in representatives() {
        let shop = copied(&installation);
        work(&shop.server, 1);
        archived(&shop.server, &shop.near_archive());
        let lacks = |line: &str| answer(&shop.done(line, 0))["databases"][0]["wal_files"].clone();
        assert_ne!(lacks("--json copy --dry-run"), 0);
        assert_eq!(lacks("--json copy --dry-run --no-wal"), 0);
        shop.done("copy", 0);
        full_is_lost(&shop);
        wal_follows(&shop);
        set_back(&installation, &shop);
    }
}

/// Goal: a copy that has every backup and is days behind with its WAL is not green.
#[test]
fn check_tells_of_a_copy_whose_wal_ends_long_before() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let shop = Shop::new(&installation);
    let server = &shop.server;
    work(server, 2);
    shop.done("backup main", 0);
    work(server, 1);
    archived(server, &shop.near_archive());
    shop.done("copy", 0);
    let copied = segments(&shop.far_archive());
    work(server, 2);
    archived(server, &shop.near_archive());
    // WAL that was archived a moment ago may be on its way.
    shop.done("check main", 0);
    let near = segments(&shop.near_archive());
    let lacking: Vec<&String> = near
        .iter()
        .filter(|name| copied.last() < Some(*name))
        .collect();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 86_400);
    for name in &lacking {
        let path = stored(&shop.near_archive(), name);
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(then).unwrap();
    }
    let said = text(&shop.done("check main", 5));
    let told = format!(
        "far lacks the WAL from {} on, which was archived 3 d",
        lacking[0]
    );
    assert!(said.contains(&told), "{said}");
    assert!(said.contains("longshore copy main --to far"), "{said}");
    shop.done("check main --max-age 100", 0);
    shop.done("copy", 0);
    shop.done("check main", 0);
}

/// Whether the second archive has the end of the first, without a gap and byte for byte.
fn has_all(shop: &Shop, since: usize) -> bool {
    let (near, far) = (
        segments(&shop.near_archive()),
        segments(&shop.far_archive()),
    );
    if far.len() < since || near.last() != far.last() {
        return false;
    }
    assert!(near.ends_with(&far), "{near:?} {far:?}");
    for name in &far {
        assert_eq!(
            unpacked(&shop.near_archive(), name),
            unpacked(&shop.far_archive(), name)
        );
    }
    true
}

#[test]
fn wal_goes_on_to_copies_at_once_and_one_that_is_away_stops_the_server_only_beyond_a_limit() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let shop = Shop::configured(&installation);
    shop.write("copy_at_once = true\n");
    shop.begin();
    let server = &shop.server;
    // No archive there yet: the server goes on, and is told.
    work(server, 2);
    archived(server, &shop.near_archive());
    shop.done("wal create --database main --target far", 0);
    work(server, 1);
    archived(server, &shop.near_archive());
    wait_until("the copy has all", server, || has_all(&shop, 2));
    assert!(
        server.log().contains("target far may lack"),
        "{}",
        server.log()
    );

    let (here, away) = (beside(server, "far1"), beside(server, "away"));
    std::fs::rename(&here, &away).unwrap();
    work(server, 3);
    archived(server, &shop.near_archive());
    let size = server.psql("show wal_segment_size");
    assert_eq!(
        server.psql("select failed_count from pg_stat_archiver"),
        "0"
    );

    shop.write(&format!("copy_at_once = true\ncopy_behind = \"{size}\"\n"));
    server.psql("select pg_switch_wal()");
    work(server, 1);
    server.psql("select pg_switch_wal()");
    server.wait_for("select failed_count > 0 from pg_stat_archiver", "t");
    assert!(
        server.log().contains("copy_behind allows"),
        "{}",
        server.log()
    );

    std::fs::rename(&away, &here).unwrap();
    wait_until("the copy catches up", server, || {
        // The archiver tries again with the next segment, or after a minute.
        work(server, 1);
        server.psql("select pg_switch_wal()");
        std::thread::sleep(std::time::Duration::from_millis(500));
        has_all(&shop, 6)
    });
    shop.done("wal list --database main --target far --verify", 0);

    // A note that cannot be read or written, as where pg_wal is full, keeps no WAL there.
    let note = server.data_dir().join("pg_wal/longshore/behind");
    std::fs::remove_file(&note).unwrap();
    std::fs::create_dir(&note).unwrap();
    work(server, 1);
    archived(server, &shop.near_archive());
    let log = server.log();
    assert!(log.contains("it is not known how much WAL"), "{log}");
}

/// The number of a target's archive's segments, once its directory is looked at.
fn count(archive: &str) -> usize {
    match Path::new(archive).exists() {
        true => segments(archive).len(),
        false => 0,
    }
}

/// The file whose lock the process that brings the archives together holds while it works. Its directory is the list's.
fn follower(list: &Path) -> std::fs::File {
    let beside = std::fs::read_dir(list.parent().unwrap()).unwrap();
    let mut beside = beside.map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let lock = beside.find(|path| name(path).starts_with("follow."));
    std::fs::File::open(lock.expect("a push has started one")).unwrap()
}

/// Goal: the first target's loss keeps no WAL from the copy, and stops the server only beyond the limit; what the first
/// target lacks then comes from the copy, also what the server has removed since.
#[test]
fn the_first_target_that_is_away_keeps_no_wal_from_the_copy_and_gets_it_from_there() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let shop = Shop::configured(&installation);
    shop.write("copy_at_once = true\n");
    shop.begin();
    let server = &shop.server;
    shop.done("wal create --database main --target far", 0);
    work(server, 2);
    archived(server, &shop.near_archive());
    wait_until("the copy has all", server, || has_all(&shop, 2));
    let failed = "select failed_count from pg_stat_archiver";
    let switch = || {
        work(server, 1);
        server.psql("select pg_switch_wal()")
    };

    // Without a limit for the first one the server keeps its WAL, and the copy gets what waits all the same.
    let (here, away) = (beside(server, "near"), beside(server, "away"));
    std::fs::rename(&here, &away).unwrap();
    let before = count(&shop.far_archive());
    for _ in 0..3 {
        switch();
    }
    wait_until("the copy gets what waits", server, || {
        count(&shop.far_archive()) >= before + 3
    });
    assert_ne!(server.psql(failed), "0");
    let note = server.data_dir().join("pg_wal/longshore/owed");
    assert!(!note.exists(), "nothing is owed that the server keeps");

    // Up to the limit the server is told that its WAL is safe.
    let size: u64 = server
        .psql("select setting from pg_settings where name = 'wal_segment_size'")
        .parse()
        .unwrap();
    shop.write(&format!(
        "copy_at_once = true\nhome_behind = \"{}\"\n",
        8 * size
    ));
    let told = || {
        server
            .psql("select archived_count from pg_stat_archiver")
            .parse::<u64>()
            .unwrap()
    };
    let so_far = told();
    switch();
    wait_until("the server goes on", server, || told() >= so_far + 4);
    let owed = std::fs::read_to_string(&note).unwrap();
    assert!(owed.lines().count() >= 4, "{owed}");
    let log = server.log();
    assert!(log.contains("and not in that of target near"), "{log}");
    // Beyond it the server keeps its WAL.
    wait_until("the limit is reached", server, || {
        switch();
        server.log().contains("home_behind allows")
    });

    // The server has removed what it was told of: only the copy can give it.
    std::fs::rename(&away, &here).unwrap();
    wait_until("the first target has all", server, || {
        switch();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let (near, far) = (
            segments(&shop.near_archive()),
            segments(&shop.far_archive()),
        );
        near.len() > 8 && std::fs::read(&note).unwrap().is_empty() && near.last() == far.last()
    });
    shop.done("wal list --database main --verify", 0);
    shop.done("wal list --database main --target far --verify", 0);
    for name in segments(&shop.far_archive()) {
        assert_eq!(
            unpacked(&shop.near_archive(), &name),
            unpacked(&shop.far_archive(), &name)
        );
    }
    // From then on it is the first one again, and a copy that is away does not stop the server.
    let failures = server.psql(failed);
    let (far, gone) = (beside(server, "far1"), beside(server, "gone"));
    std::fs::rename(&far, &gone).unwrap();
    let so_far = told();
    switch();
    wait_until("the server goes on without the copy", server, || {
        told() > so_far
    });
    assert_eq!(server.psql(failed), failures);
    std::fs::rename(&gone, &far).unwrap();

    // A refusal by the first one stops the server, until it has the very file. Nobody pays before the server is told: the
    // process that the last push started is awaited, and none begins.
    let line = owed.lines().next().unwrap();
    let refused = format!("{line}\nrefused\tmain\tit has another one\n");
    let turn = follower(&note);
    turn.lock().unwrap();
    std::fs::write(&note, refused).unwrap();
    switch();
    wait_until("the server is told", server, || {
        let log = server.log();
        log.contains("target near refuses WAL that it is owed")
            && log.contains("it has another one")
    });
    assert_ne!(server.psql(failed), failures);
    drop(turn);
    wait_until("the debt is paid", server, || {
        std::fs::read(&note).unwrap().is_empty()
    });
    let so_far = told();
    switch();
    wait_until("the server goes on", server, || told() > so_far);
}
