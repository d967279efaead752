//! Goal: backups that are there are opened by a further identity once the old one wrapped their keys again; no byte of them changes,
//! copies and expiry take the key objects along, and what was put there by others opens nothing.
//! Method: the program runs over a configured database with a target and a target of copies, and over named devices; the independent
//! reader restores with the further identity.
//! Not covered: buckets (`place/tests.rs` of the repository, `folder.rs` of media), and WAL (`wal/encrypted.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::stage::{Ran, Stage};

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

/// A database that is encrypted for the identity `old`, with a target and copies; and an identity `new`.
fn stage() -> (Stage, String) {
    let stage = Stage::new();
    stage.database("app.db", 2);
    for dir in ["disk1", "disk2", "away"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let made = |file: &str| {
        let ran = stage.line(&format!("key new {file}")).exits(0);
        ran.out.trim().to_owned()
    };
    let (old, new) = (made("old"), made("new"));
    let path = |name: &str| stage.path(name).display().to_string();
    let text = format!(
        "[database.sales]\nurl = \"sqlite:{}\"\ncopies = [\"offsite\"]\n\
         [target.nightly]\ndirectories = [\"{}\", \"{}\"]\n\
         [target.offsite]\ndirectories = [\"{}\"]\n\
         [retention.one]\nkeep_full = 1\n\
         [defaults]\ntarget = \"nightly\"\nretention = \"one\"\n\
         [encryption]\nrecipients = [\"{old}\"]\n",
        path("app.db"),
        path("disk1"),
        path("disk2"),
        path("away"),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    (stage, new)
}

/// The files below a directory, with their bytes.
fn files(stage: &Stage, dir: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(stage.path(dir)) else {
        return found;
    };
    for entry in entries.map(Result::unwrap) {
        let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true => found.extend(files(stage, &name)),
            false => drop(found.insert(name, std::fs::read(entry.path()).unwrap())),
        }
    }
    found
}

fn objects(stage: &Stage, dir: &str) -> Vec<String> {
    let all = files(stage, dir).into_keys();
    all.filter(|name| name.ends_with(".lsk")).collect()
}

#[test]
fn a_further_identity_opens_every_backup_and_copy_once_the_old_one_let_it() {
    let (stage, new) = stage();
    stage.line("backup sales").exits(0);
    stage.line("backup sales --differential").exits(0);
    stage.line("copy sales").exits(0);
    let before = (files(&stage, "disk1"), files(&stage, "disk2"));
    let restore =
        |how: &str, to: &str| stage.line(&format!("restore --database sales --to {to} {how}"));
    restore("--identity new", "none").exits(4).says("50123");
    let wrap = format!("key rewrap --database sales --encrypt-to {new} --json");
    stage.line(&wrap).exits(2).says("no identity is given");
    // An identity that opens nothing.
    let failed = stage.line(&format!("{wrap} --identity new")).exits(4);
    assert_eq!(json(&failed)["failed"], 2);
    let dry = stage
        .line(&format!("{wrap} --identity old --dry-run"))
        .exits(0);
    assert_eq!(json(&dry)["backups"][0]["fate"], "would_be_written");
    assert!(objects(&stage, "disk1").is_empty());

    let done = json(
        &stage
            .line(&format!("{wrap} --identity old --identity new"))
            .exits(0),
    );
    assert_eq!((&done["written"], &done["there"]), (&2.into(), &0.into()));
    assert_eq!(done["wal_unchanged"], false);
    assert_eq!(
        done["backups"][0]["opened"], 1,
        "the new identity was at hand"
    );
    let said = done["notes"].to_string() + &done["warnings"].to_string();
    assert!(said.contains("not when it was stolen"), "{done}");
    // In each directory that has a stripe, and nothing else changed.
    assert_eq!(
        (
            objects(&stage, "disk1").len(),
            objects(&stage, "disk2").len()
        ),
        (2, 2)
    );
    let stripes = before.0.iter().chain(&before.1);
    for (name, bytes) in stripes.filter(|(name, _)| name.ends_with(".bak")) {
        assert_eq!(&std::fs::read(stage.path(name)).unwrap(), bytes, "{name}");
    }
    // A second run has nothing to do; a place that lost its object gets it again.
    let again = json(&stage.line(&format!("{wrap} --identity old")).exits(0));
    assert_eq!((&again["written"], &again["there"]), (&0.into(), &2.into()));
    let lost = &objects(&stage, "disk2")[0];
    std::fs::remove_file(stage.path(lost)).unwrap();
    let mended = json(&stage.line(&format!("{wrap} --identity old")).exits(0));
    assert_eq!(
        (&mended["written"], &mended["there"]),
        (&1.into(), &1.into())
    );
    assert!(stage.path(lost).exists());
    // One that rots is written again, too.
    let good = std::fs::read(stage.path(lost)).unwrap();
    std::fs::write(stage.path(lost), &good[1..]).unwrap();
    let mended = json(&stage.line(&format!("{wrap} --identity old")).exits(0));
    assert_eq!(mended["written"], 1);
    assert_eq!(std::fs::read(stage.path(lost)).unwrap(), good);

    for (i, how) in ["", "--target offsite"].into_iter().enumerate() {
        if i == 1 {
            restore(&format!("--identity new {how}"), "early").exits(4);
            let copied = json(&stage.line("copy sales --json").exits(0));
            assert_eq!(copied["databases"][0]["key_object_count"], 2, "{copied}");
            let again = json(&stage.line("copy sales --json").exits(0));
            assert_eq!(again["databases"][0]["key_object_count"], 0);
            // One that was not written whole there is written again.
            let torn = stage.path(&objects(&stage, "away")[0]);
            let whole = std::fs::read(&torn).unwrap();
            std::fs::write(&torn, b"").unwrap();
            let mended = json(&stage.line("copy sales --json").exits(0));
            assert_eq!(mended["databases"][0]["key_object_count"], 1);
            assert_eq!(std::fs::read(&torn).unwrap(), whole);
        }
        restore(&format!("--identity new {how}"), &format!("out{i}")).exits(0);
        assert_eq!(
            std::fs::read(stage.path(format!("out{i}/app.db"))).unwrap(),
            std::fs::read(stage.path("app.db")).unwrap()
        );
        stage
            .line(&format!("verify --database sales --identity new {how}"))
            .exits(0);
        let line = format!("list --database sales --files --identity new {how}");
        stage.line(&line).exits(0).says("app.db");
    }
    stage.line("verify --all --again --identity new").exits(0);
    stage.line("drill sales --identity new").exits(0);
    restore("--identity old", "still").exits(0);
    let info = json(&stage.line("info sales --json").exits(0));
    let row = &info["databases"][0]["backups"][0];
    assert_eq!(
        (&row["recipient_count"], &row["key_object_count"]),
        (&1.into(), &1.into())
    );
    assert_eq!(info["databases"][0]["strays"], Value::Array(Vec::new()));

    go_with_their_backups(&stage);
}

/// The objects go with their backups, and no earlier; the copies are another target's.
fn go_with_their_backups(stage: &Stage) {
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage.line("expire sales").exits(0);
    assert!(objects(stage, "disk1").is_empty() && objects(stage, "disk2").is_empty());
    assert_eq!(
        stage
            .names("disk1/sales")
            .iter()
            .filter(|n| n.contains("-full-"))
            .count(),
        1
    );
    assert_eq!(
        objects(stage, "away").len(),
        2,
        "the copies are another target's"
    );
}

/// Names that anybody may have put next to a set, more than are looked at, are told.
fn other_names_hide_none_in_silence(stage: &Stage, object: &str) {
    let of_set = &object[.."keys-".len() + 32];
    let names = (0..300).map(|n| format!("disk1/{of_set}-{n:016x}.lsk"));
    let names: Vec<String> = names.collect();
    for name in &names {
        stage.write(name, b"x");
    }
    let line = "list disk1/a.bak disk2/b.bak";
    stage.line(line).exits(5).says("are not all shown");
    for name in &names {
        std::fs::remove_file(stage.path(name)).unwrap();
    }
    stage.line(line).exits(0);
}

#[test]
fn devices_get_an_object_next_to_each_and_only_the_right_one_opens_them() {
    let (stage, new) = stage();
    let backup = |to: &str| {
        let line = format!("backup app.db {to} --encrypt-to @old.txt");
        stage.line(&line).exits(0);
    };
    stage
        .shell("longshore key recipient old > old.txt; chmod 644 old.txt")
        .exits(0);
    backup("--to disk1/a.bak --to disk2/b.bak");
    backup("--to disk1/other.bak");
    let wrap = |devices: &str, to: &str| {
        stage.line(&format!(
            "key rewrap {devices} --identity old --encrypt-to {to} --json"
        ))
    };
    wrap("disk1/other.bak", &new).exits(0);
    let restore = |how: &str, to: &str| {
        stage.line(&format!(
            "restore disk1/a.bak disk2/b.bak --to {to} --identity new {how}"
        ))
    };
    // The other set's object is in the same directory, and says nothing of this one.
    restore("", "none").exits(4).says("50123");
    let other = objects(&stage, "disk1").remove(0);
    restore(&format!("--key-object {other}"), "none").exits(4);
    let done = json(&wrap("disk1/a.bak disk2/b.bak", &new).exits(0));
    let name = done["backups"][0]["object"].as_str().unwrap().to_owned();
    restore("", "out").exits(0);
    let listed = json(&stage.line("list disk1/a.bak disk2/b.bak --json").exits(0));
    let found = &listed["sets"][0]["key_objects"][0];
    assert_eq!(found["name"], name.as_str());
    assert_eq!(found["recipients"][0], "age (mlkem768x25519)");
    assert_eq!(found["places"].as_array().unwrap().len(), 2);
    other_names_hide_none_in_silence(&stage, &name);

    // The independent reader finds it, too.
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let reader = reader.display();
    if stage.shell("python3 -c 'import cryptography'").code == 0 {
        let line =
            format!("python3 {reader} restore --identity new --to python disk1/a.bak disk2/b.bak");
        stage.shell(&line).exits(0);
        let both = ["python/app.db", "out/app.db"].map(|f| std::fs::read(stage.path(f)).unwrap());
        assert_eq!(both[0], both[1]);
    } else {
        assert!(std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none());
    }

    // Changed in one place, it is taken from the other; changed in both, it is none, and is named.
    let (one, two) = (format!("disk1/{name}"), format!("disk2/{name}"));
    let good = std::fs::read(stage.path(&one)).unwrap();
    let mut bad = good.clone();
    bad[100] ^= 1;
    std::fs::write(stage.path(&one), &bad).unwrap();
    restore("", "second").exits(0);
    std::fs::write(stage.path(&two), &bad).unwrap();
    restore("", "third")
        .exits(4)
        .says("its bytes are not those of its name");
    // Links are not followed, wherever they lead.
    std::fs::write(stage.path("elsewhere"), &good).unwrap();
    for file in [&one, &two] {
        std::fs::remove_file(stage.path(file)).unwrap();
        std::os::unix::fs::symlink(stage.path("elsewhere"), stage.path(file)).unwrap();
    }
    restore("", "fourth").exits(4);
    restore("--key-object elsewhere", "fifth").exits(0);
    for line in [
        "verify disk1/a.bak disk2/b.bak",
        "list disk1/a.bak disk2/b.bak --files",
    ] {
        stage.line(&format!("{line} --identity new")).exits(4);
        let named = format!("{line} --identity new --key-object elsewhere");
        stage.line(&named).exits(0);
    }
    let line = "list disk1/a.bak disk2/b.bak --key-object elsewhere";
    stage.line(line).exits(2).says("needs --files");
    restore("--key-object app.db", "sixth")
        .exits(2)
        .says("key object");
    // A weaker recipient than the backup's, and none at all.
    let classic = stage.line("key new classic --classic").exits(0);
    wrap("disk1/a.bak disk2/b.bak", classic.out.trim())
        .exits(4)
        .says("weakest");
    let line = "key rewrap disk1/a.bak disk2/b.bak --identity old --encrypt-to @/dev/null";
    stage.line(line).exits(2);
    // A passphrase, which opens what was just written.
    stage
        .shell("(umask 077; echo six words of some length > phrase)")
        .exits(0);
    let done = json(&wrap("disk1/other.bak", "passphrase:phrase").exits(0));
    assert_eq!(done["backups"][0]["opened"], 1);
    let again = json(&wrap("disk1/other.bak", "passphrase:phrase").exits(0));
    assert_eq!((&again["written"], &again["there"]), (&0.into(), &1.into()));
    let line = "restore disk1/other.bak --to seventh --identity passphrase:phrase";
    stage.line(line).exits(0);
    // A backup that is not encrypted has no key.
    stage.write("empty.toml", b"");
    stage
        .line("--config empty.toml backup app.db --to plain.bak")
        .exits(0);
    let plain = json(&wrap("plain.bak", &new).exits(0));
    assert_eq!(plain["backups"][0]["fate"], "not_encrypted");
}

#[test]
fn a_key_object_that_is_of_no_backup_is_told_and_goes_with_its_label() {
    let (stage, new) = stage();
    stage.line("backup sales").exits(0);
    let wrap = format!("key rewrap --database sales --identity old --encrypt-to {new}");
    stage.line(&wrap).exits(0);
    let own = objects(&stage, "disk1").remove(0);
    let (folder, name) = own.rsplit_once('/').unwrap();
    let strange = format!("{folder}/keys-{}{}", "ab".repeat(16), &name[37..]);
    std::fs::copy(stage.path(&own), stage.path(&strange)).unwrap();
    stage
        .line("check sales")
        .says("1 key objects are of no backup there");
    let info = json(&stage.line("info sales --json").exits(0));
    assert_eq!(info["databases"][0]["backups"][0]["key_object_count"], 1);
    // Names without their bytes hide nothing.
    for n in 0..80 {
        let more = format!("{folder}/{}{n:016x}.lsk", &name[..38]);
        std::fs::copy(stage.path(&own), stage.path(more)).unwrap();
    }
    let restore = |to: &str| {
        let line = format!("restore --database sales --to {to} --identity new");
        stage.line(&line)
    };
    restore("early").exits(0);
    // More than anybody looks at, which is said.
    let fill = format!(
        "cd {folder} && for n in $(seq 300); do echo $n > it; \
         mv it {}$(sha256sum < it | cut -c1-16).lsk; done",
        &name[..38]
    );
    stage.shell(&fill).exits(0);
    std::fs::remove_file(stage.path(&own)).unwrap();
    std::fs::remove_file(stage.path(own.replace("disk1", "disk2"))).unwrap();
    restore("out").exits(4).says("there are more than 64");
    // Whether the new one is among those that are looked at is chance; that it is told rightly is none.
    let wrapped = stage.line(&wrap);
    let opened = restore("late");
    assert_eq!(
        (wrapped.code == 0, wrapped.code == 4),
        (opened.code == 0, opened.code != 0)
    );
    // A directory of such a name is no object, and keeps nothing but itself.
    let strange = format!("{folder}/{}{:016x}.lsk", &name[..38], 99);
    std::fs::create_dir(stage.path(&strange)).unwrap();
    stage.line("check sales").says("unknown names");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage.line("expire sales").exits(0);
    assert!(objects(&stage, "disk1").is_empty() && objects(&stage, "disk2").is_empty());
    let left = strange.replace(folder, &format!("{folder}.removing"));
    assert!(stage.path(&left).exists());
    let full = stage.names("disk2/sales").into_iter();
    assert_eq!(full.filter(|name| name.contains("-full-")).count(), 1);
}

#[test]
fn places_that_are_away_are_told_and_a_repair_brings_the_objects_there() {
    let (stage, new) = stage();
    let at = "disk1/p.bak disk2/p.bak away/p.bak";
    let to: String = at.split(' ').map(|at| format!(" --to {at}")).collect();
    let old = stage.line("key recipient old").exits(0);
    let line = format!(
        "backup app.db{to} --parity 1 --encrypt-to {}",
        old.out.trim()
    );
    stage.line(&line).exits(0);
    let wrap = |devices: &str| {
        let line = format!("key rewrap {devices} --identity old --encrypt-to {new} --json");
        stage.line(&line)
    };
    let done = json(&wrap("disk1/p.bak disk2/p.bak").exits(5));
    assert_eq!(
        (&done["written"], &done["backups"][0]["lost_count"]),
        (&1.into(), &1.into())
    );
    assert!(objects(&stage, "away").is_empty());
    let repaired = json(&stage.line(&format!("repair {at} --json")).exits(0));
    assert_eq!(
        (&repaired["written_bytes"], &repaired["key_object_count"]),
        (&0.into(), &1.into())
    );
    assert_eq!(objects(&stage, "away").len(), 1);
    assert_eq!(json(&wrap(at).exits(0))["there"], 1);
    // A place that was lost altogether.
    std::fs::remove_dir_all(stage.path("away")).unwrap();
    std::fs::create_dir(stage.path("away")).unwrap();
    stage
        .line(&format!("repair {at}"))
        .exits(0)
        .says("1 key objects");
    std::fs::remove_dir_all(stage.path("disk1")).unwrap();
    stage
        .line("restore disk2/p.bak away/p.bak --to out --identity new")
        .exits(5)
        .says("DEGRADED");
}

#[test]
fn what_is_asked_of_a_rewrap_is_what_it_does() {
    let (stage, new) = stage();
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales --differential").exits(0);
    let labels = stage.names("disk1/sales");
    let wrap = |more: &str| {
        stage.line(&format!(
            "key rewrap --database sales --identity old --encrypt-to {new} --json {more}"
        ))
    };
    // At the copy's target alone.
    let done = json(&wrap("--target offsite").exits(0));
    assert_eq!(
        (&done["written"], objects(&stage, "away").len()),
        (&1.into(), 1)
    );
    assert!(objects(&stage, "disk1").is_empty());
    // The newest one with what it needs, and not the older full one.
    let done = json(&wrap("--label latest").exits(0));
    let served: Vec<&str> = done["backups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["label"].as_str().unwrap())
        .collect();
    assert_eq!(served, [&labels[1], &labels[2]]);
    stage
        .line("restore --database sales --to out --identity new")
        .exits(0);
    let older = format!(
        "restore --database sales --label {} --to old-out --identity new",
        labels[0]
    );
    stage.line(&older).exits(4);
    wrap("--label nonsense").exits(4);
    // An object that is elsewhere, for a drill and for the next rotation.
    let objects = objects(&stage, "disk1");
    for (n, object) in objects.iter().enumerate() {
        std::fs::rename(stage.path(object), stage.path(format!("kept{n}"))).unwrap();
        std::fs::remove_file(stage.path(object.replace("disk1", "disk2"))).unwrap();
    }
    stage.line("drill sales --identity new").exits(4);
    let kept = "--key-object kept0 --key-object kept1";
    stage
        .line(&format!("drill sales --identity new {kept}"))
        .exits(0);
    let third = stage.line("key new third").exits(0);
    let again = format!(
        "key rewrap --database sales --label latest --identity new --encrypt-to {} {kept}",
        third.out.trim()
    );
    stage.line(&again).exits(0);
    stage
        .line("verify --database sales --identity third")
        .exits(0);
    // A backup that readers refuse is not wrapped again.
    stage.line("key new --signing key").exits(0);
    let signer = stage.line("key recipient key").exits(0);
    let signer = signer.out.trim();
    let refused = wrap(&format!("--require-signature --signer {signer}"));
    let refused = json(&refused.exits(4));
    assert_eq!(
        (&refused["written"], &refused["failed"]),
        (&0.into(), &3.into())
    );
    // A disk that is not mounted: nothing is served, and that is no success.
    std::fs::rename(stage.path("disk2/sales"), stage.path("unmounted")).unwrap();
    let away = json(&wrap("").exits(5));
    assert_eq!(
        (&away["written"], &away["not_whole"]),
        (&0.into(), &3.into())
    );
    std::fs::rename(stage.path("unmounted"), stage.path("disk2/sales")).unwrap();
    stage.write("empty.toml", b"");
    stage
        .line("--config empty.toml backup app.db --to plain.bak")
        .exits(0);
    let plain = format!("key rewrap plain.bak --identity old --encrypt-to {new}");
    stage.line(&plain).exits(0).says("not encrypted");
    stage
        .line(&format!("{plain} --require-encryption"))
        .exits(4);
    let unsigned = format!(
        "key rewrap away/sales/{}/family-1.bak away/sales/{0}/family-2.bak --identity old --encrypt-to {new}",
        labels[0]
    );
    stage.line(&unsigned).exits(0);
    stage
        .line(&format!("{unsigned} --require-signature --signer {signer}"))
        .exits(4);
}
