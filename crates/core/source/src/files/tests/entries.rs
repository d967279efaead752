//! Goal: the entries found in a tree, their names and attributes are those that the standard library sees; special
//! files and databases in use are told.
//! Method: real trees with links, holes, sockets and names that are not UTF-8.
//! Not covered: files that change meanwhile (`change.rs`).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use longshore_io::Host;

use super::{files, finish, opened, read, stream};
use crate::{EntryKind, Error, SourceOptions, SourceSummary, open};

fn odd_names() -> [OsString; 4] {
    [
        b"with space".to_vec(),
        b"new\nline".to_vec(),
        b"\xff\xfe not UTF-8".to_vec(),
        b"-x*'\"\\".to_vec(),
    ]
    .map(OsString::from_vec)
}

#[test]
fn a_tree_is_read_as_std_sees_it() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    fs::write(top.join("a/one"), vec![7; 100_001]).unwrap();
    fs::write(top.join("a/b/empty"), b"").unwrap();
    for name in odd_names() {
        fs::create_dir(top.join("a/b/c").join(&name)).unwrap();
        fs::write(top.join("a/b/c").join(&name).join(&name), name.as_bytes()).unwrap();
    }
    fs::set_permissions(top.join("a/one"), fs::Permissions::from_mode(0o4640)).unwrap();
    fs::set_permissions(top.join("a/b"), fs::Permissions::from_mode(0o1711)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(top.join("a/one"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    symlink("/nowhere/\n", top.join("a/link")).unwrap();
    symlink("b", top.join("a/dirlink")).unwrap();

    let source = opened(&[top]);
    let entries = stream(&*source, 0);
    let mut expected = Vec::new();
    let mut left = vec![top.to_path_buf()];
    while let Some(at) = left.pop() {
        for found in fs::read_dir(at).unwrap() {
            let path = found.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                left.push(path.clone());
            }
            expected.push(path.strip_prefix(top).unwrap().to_path_buf());
        }
    }
    expected.sort();
    assert_eq!(entries.keys().cloned().collect::<Vec<_>>(), expected);
    for (path, entry) in &entries {
        let real = top.join(path);
        let meta = fs::symlink_metadata(&real).unwrap();
        assert_eq!(
            (entry.mode, entry.uid, entry.gid),
            (meta.mode() & 0o7777, meta.uid(), meta.gid())
        );
        assert_eq!(
            entry.mtime_ns,
            meta.mtime() * 1_000_000_000 + meta.mtime_nsec()
        );
        match &entry.kind {
            EntryKind::File => assert_eq!(read(entry), (fs::read(&real).unwrap(), None)),
            EntryKind::Dir => assert!(meta.is_dir()),
            EntryKind::Symlink { target } => assert_eq!(*target, fs::read_link(&real).unwrap()),
            EntryKind::HardLink { .. } => panic!("no file here has two names"),
        }
    }
    assert_eq!(finish(source), Vec::<String>::new());
}

#[test]
fn a_second_name_of_a_file_is_a_link_to_the_first() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("x"), b"shared").unwrap();
    fs::hard_link(dir.path().join("x"), dir.path().join("y")).unwrap();
    fs::hard_link(dir.path().join("x"), dir.path().join("d/z")).unwrap();
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    let (links, plain): (Vec<_>, Vec<_>) = entries
        .values()
        .filter(|entry| entry.kind != EntryKind::Dir)
        .partition(|entry| matches!(entry.kind, EntryKind::HardLink { .. }));
    assert_eq!((links.len(), plain.len()), (2, 1));
    assert_eq!(read(plain[0]).0, b"shared");
    for link in links {
        assert_eq!(
            link.kind,
            EntryKind::HardLink {
                target: plain[0].path.clone()
            }
        );
    }
}

#[test]
fn holes_are_known_and_read_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.set_len(10 << 20).unwrap();
    file.write_all_at(b"x", 4 << 20).unwrap();
    drop(file);
    let source = opened(&[dir.path()]);
    let entry = source.next(0).unwrap().unwrap();
    let content = entry.content.as_ref().unwrap();
    let data = content.next_data(0).unwrap().unwrap();
    assert!(
        data.contains(&(4 << 20)) && data.end - data.start <= 64 << 10,
        "{data:?}"
    );
    assert_eq!(content.next_data(data.end).unwrap(), None);
    let (bytes, change) = read(&entry);
    assert_eq!(
        (bytes.iter().filter(|&&b| b != 0).count(), change),
        (1, None)
    );
}

#[test]
fn special_files_are_left_out_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let source = opened(&[dir.path()]);
    assert!(stream(&*source, 0).is_empty());
    let SourceSummary {
        warnings, notes, ..
    } = source.finish().unwrap();
    assert_eq!((warnings, notes.len()), (Vec::new(), 1));
    assert!(
        notes[0].starts_with("2 sockets, FIFOs or devices were left out: "),
        "{notes:?}"
    );
    assert!(notes[0].contains("fifo") && notes[0].contains("socket"));

    let fifo = dir.path().join("fifo");
    let refused = open(
        Arc::new(Host::new()),
        &files(&[&fifo]),
        &SourceOptions::default(),
    );
    assert!(matches!(refused.err(), Some(Error::NotAFile { path }) if path == fifo));
}

/// Goal: no backup has a name that none of its restores could write.
#[test]
fn a_restores_own_directory_is_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    for place in ["", "below"] {
        let own = dir.path().join(place).join(".longshore-restoring/old");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("app.db"), b"displaced").unwrap();
    }
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    let names: Vec<_> = entries
        .keys()
        .map(|path| path.display().to_string())
        .collect();
    // Only the target of a restore has such a name at its top.
    let below = "below/.longshore-restoring";
    assert_eq!(
        names,
        [
            "below".to_owned(),
            below.to_owned(),
            format!("{below}/old"),
            format!("{below}/old/app.db")
        ]
    );
    let SourceSummary {
        warnings,
        notes,
        damaged,
        ..
    } = source.finish().unwrap();
    // Names that were displaced are nowhere else.
    assert!(damaged);
    assert_eq!((warnings.len(), notes.len()), (1, 1), "{warnings:?}");
    assert!(
        warnings[0].starts_with("2 directories are as a killed restore left them"),
        "{warnings:?}"
    );
    assert!(
        notes[0].starts_with("1 directories of a restore that runs or was killed were left out"),
        "{notes:?}"
    );
    // As one of several roots it would be such a name, too.
    let own = dir.path().join(".longshore-restoring");
    let both = [&*own, &dir.path().join("below")];
    let refused = open(
        Arc::new(Host::new()),
        &files(&both),
        &SourceOptions::default(),
    );
    assert!(matches!(refused.err(), Some(Error::Spec { .. })));
}

/// Goal: a file whose number a removed file of the same tree had is stored with its own bytes.
/// Method: while a tree is walked, files are made until one of two names has the number of a removed file. A file system
/// that gives no number again soon shows nothing.
#[test]
fn a_file_that_got_the_number_of_a_removed_one_keeps_its_own_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, aside) = (dir.path().join("tree"), dir.path().join("aside"));
    fs::create_dir_all(&aside).unwrap();
    for name in ["a", "b"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("f"), b"before").unwrap();
        fs::hard_link(tree.join(name).join("f"), aside.join(name)).unwrap();
    }
    let source = opened(&[&tree]);
    let first = loop {
        let entry = source.next(0).unwrap().unwrap();
        if entry.kind == EntryKind::File {
            break entry.path;
        }
    };
    let other = if first.starts_with("a") { "b" } else { "a" };
    let number = fs::metadata(tree.join(&first)).unwrap().ino();
    for name in ["a", "b"] {
        fs::remove_file(tree.join(name).join("f")).unwrap();
        fs::remove_file(aside.join(name)).unwrap();
    }
    let got = (0..1000).find(|i| {
        let made = aside.join(i.to_string());
        fs::write(&made, b"after!").unwrap();
        fs::metadata(&made).unwrap().ino() == number
    });
    let Some(got) = got else {
        eprintln!("left out: this file system gives no number again");
        return;
    };
    let path = tree.join(other).join("f");
    fs::hard_link(aside.join(got.to_string()), &path).unwrap();
    let entries = stream(&*source, 0);
    let entry = &entries[&Path::new(other).join("f")];
    assert_eq!(entry.kind, EntryKind::File);
    assert_eq!(read(entry).0, b"after!");
}

#[test]
fn logs_of_databases_in_use_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("a-wal", "1"),
        ("b-journal", "1"),
        ("c-wal", ""),
        ("d", "1"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let source = opened(&[dir.path()]);
    assert_eq!(stream(&*source, 0).len(), 4);
    let warnings = finish(source);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("2 SQLite logs"), "{warnings:?}");
}

#[test]
fn sqlite_databases_are_recognised_and_a_single_one_takes_its_logs_along() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    let database = [&b"SQLite format 3\0"[..], &[0; 5000]].concat();
    fs::create_dir(top.join("d")).unwrap();
    for name in ["d/app.db", "other.db"] {
        fs::write(top.join(name), &database).unwrap();
    }
    fs::write(top.join("d/app.db-wal"), b"log").unwrap();
    fs::write(top.join("d/app.db-shm"), b"").unwrap();
    fs::write(top.join("not.db"), b"SQLite format 2").unwrap();

    let source = opened(&[top]);
    for entry in stream(&*source, 0).values() {
        if entry.content.is_some() {
            read(entry);
        }
    }
    let SourceSummary {
        warnings,
        notes: told,
        ..
    } = source.finish().unwrap();
    // The log says that the database may be in use.
    assert!(warnings.len() == 1 && warnings[0].starts_with("1 SQLite logs"));
    let databases = told
        .iter()
        .find(|text| text.contains("plain files"))
        .unwrap();
    assert!(databases.starts_with("2 SQLite databases"), "{databases}");
    assert!(
        databases.contains("d/app.db") && databases.contains("sqlite:FILE"),
        "{databases}"
    );

    // A database given as a single file still comes with its log.
    let source = opened(&[&top.join("d/app.db")]);
    let entries = stream(&*source, 0);
    let names: Vec<_> = entries.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["app.db", "app.db-shm", "app.db-wal"]);
    assert_eq!(read(&entries[std::path::Path::new("app.db-wal")]).0, b"log");
    drop(source);
    // Each file once, even if it is given twice.
    let source = opened(&[
        &top.join("d/app.db"),
        &top.join("d/app.db-wal"),
        &top.join("not.db"),
    ]);
    assert_eq!(stream(&*source, 0).len(), 4);
}

/// Goal: whoever backs up a stopped cluster by its path learns that its tablespaces and its linked pg_wal are not in the backup.
#[test]
fn links_of_a_data_directory_to_its_parts_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let told = |tree: &Path| {
        let source = opened(&[tree]);
        stream(&*source, 0);
        let warnings = source.finish().unwrap().warnings;
        let mut about = warnings.into_iter();
        about.find(|text| text.contains("links lead from PostgreSQL data directories"))
    };
    for (name, version) in [("cluster", true), ("no-cluster", false)] {
        let tree = dir.path().join(name);
        std::fs::create_dir_all(tree.join("pg_tblspc")).unwrap();
        if version {
            std::fs::write(tree.join("PG_VERSION"), "17\n").unwrap();
        }
        for link in ["pg_wal", "pg_tblspc/16385"] {
            std::os::unix::fs::symlink("/elsewhere", tree.join(link)).unwrap();
        }
        let text = told(&tree);
        assert_eq!(text.is_some(), version, "{text:?}");
        if let Some(text) = text {
            assert!(text.starts_with("2 links"), "{text}");
        }
    }
    // A set of several trees, of which one is a cluster.
    assert!(told(dir.path()).is_some());
}

/// Goal: a part of a running server's data directory is told as the whole one is.
#[test]
fn a_directory_below_a_running_servers_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join("data/base/5");
    std::fs::create_dir_all(&part).unwrap();
    std::fs::write(part.join("1259"), "x").unwrap();
    let told = || {
        let source = opened(&[&part]);
        stream(&*source, 0);
        let warnings = source.finish().unwrap().warnings;
        warnings
            .iter()
            .any(|text| text.contains("PostgreSQL servers run there"))
    };
    std::fs::write(dir.path().join("data/PG_VERSION"), "17\n").unwrap();
    assert!(!told());
    std::fs::write(dir.path().join("data/postmaster.pid"), "1\n").unwrap();
    assert!(told());
}

/// Goal: a database that is encrypted, so that its first bytes tell nothing, is not stored without its log.
#[test]
fn the_logs_of_a_single_file_come_along_whatever_its_first_bytes_are() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["enc.db", "enc.db-wal", "enc.db-journal", "other"] {
        fs::write(dir.path().join(name), b"no magic").unwrap();
    }
    fs::create_dir(dir.path().join("enc.db-shm")).unwrap();
    let source = opened(&[&dir.path().join("enc.db")]);
    let entries = stream(&*source, 0);
    let names: Vec<_> = entries.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["enc.db", "enc.db-journal", "enc.db-wal"]);
}
