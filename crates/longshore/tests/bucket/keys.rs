//! Goal: detached keys lie in buckets as they lie in directories: a backup opens by those in a bucket alone, an expire takes them with it,
//! and a shredded one opens for nobody.
//! Method: two places of keys, a prefix in a bucket and a directory; objects are looked for, and removed, by another way than the program's.
//! Not covered: versions that a bucket keeps of removed objects, which no command reaches.

use std::path::Path;

use super::*;

/// The objects of keys in the directory; those in the bucket have the same names.
fn objects(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".lsk")).collect()
}

fn keys(server: &Server) {
    let connection = rusqlite::Connection::open(server.path("app.db")).unwrap();
    connection.execute_batch("create table t(a)").unwrap();
    drop(connection);
    let dir = server.path("keys");
    std::fs::create_dir(&dir).unwrap();
    let recipient = server.run(0, "key new id");
    let config = format!(
        "[database.app]\nurl = \"sqlite:{}\"\ntarget = \"t\"\n\
         [target.t]\nbuckets = [\"{bucket}/b\"]\nkeys = [\"{bucket}/keys\", \"{}\"]\n\
         [encryption]\nrecipients = [\"{}\"]\n",
        server.path("app.db").display(),
        dir.display(),
        text(&recipient.stdout).trim(),
        bucket = server.bucket(),
    );
    std::fs::write(server.path("longshore.toml"), config).unwrap();
    let run = |expected: i32, line: &str| {
        let line = format!("--config longshore.toml --catalog none {line}");
        server.run(expected, &line)
    };
    let made = |name: &str| format!("keys/{name}");

    run(0, "backup app --verify");
    let [first] = &objects(&dir)[..] else {
        panic!("{:?}", objects(&dir));
    };
    assert!(server.has(&made(first)));
    // The bucket alone is enough, and so is the directory.
    std::fs::rename(&dir, server.path("safe")).unwrap();
    run(0, "restore --database app --identity id --to one");
    let read = |name: &str| std::fs::read(server.path(name)).unwrap();
    assert!(read("one/app.db") == read("app.db"));
    std::fs::rename(server.path("safe"), &dir).unwrap();
    server.remove(&made(first));
    run(0, "restore --database app --identity id --to two");
    let missing = run(1, "check app");
    assert!(
        text(&missing.stdout).contains(&format!("{}/keys", server.bucket())),
        "{missing:?}"
    );

    // An expire takes the keys of the backup that it removes, and no others.
    std::thread::sleep(Duration::from_millis(1100));
    run(0, "backup app");
    let second = objects(&dir).into_iter().find(|name| name != first);
    let second = second.unwrap();
    assert!(server.has(&made(&second)));
    run(0, "expire app --keep-full 1");
    assert_eq!(objects(&dir), [second.as_str()]);
    assert!(server.has(&made(&second)));

    let info = answer(&run(0, "info app --json"));
    let label = info["databases"][0]["backups"][0]["label"].as_str();
    let shred = format!("key shred {}", label.unwrap());
    run(2, &shred);
    assert!(server.has(&made(&second)));
    run(0, &format!("{shred} --yes"));
    assert!(!server.has(&made(&second)) && objects(&dir).is_empty());
    run(4, "restore --database app --identity id --to three");
    assert!(!server.path("three/app.db").exists());
}

#[test]
fn keys_in_a_bucket_open_are_missed_expire_and_are_shredded() {
    on_servers(&[Kind::Versitygw, Kind::Azurite], keys);
}
