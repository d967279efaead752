//! Goal: `restore --dry-run` says what the restore then does, refuses what the restore refuses, and writes nothing.
//! Method: the real program on sets of a small tree; refusals of the dry run are compared with those of the restore,
//! and a fingerprint of the directory before with the one after.
//! Not covered: restores of clusters.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{
    Tree, answer, content, expect, fingerprint, longshore, longshore_in, put, text,
};

fn set(dir: &Path) {
    let tree: Tree = [
        ("one".into(), content(1, 3000)),
        ("sub/two".into(), content(2, 900_000)),
    ]
    .into();
    put(&dir.join("source"), &tree);
    let (source, set) = (dir.join("source"), dir.join("set.bak"));
    let args = [
        "backup".as_ref(),
        source.as_os_str(),
        "--to".as_ref(),
        set.as_os_str(),
    ];
    expect(0, args);
}

#[test]
fn a_dry_run_names_what_would_be_replaced_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    set(dir.path());
    std::fs::create_dir(dir.path().join("target")).unwrap();
    std::fs::write(dir.path().join("target/one"), "old").unwrap();
    std::fs::write(dir.path().join("target/other"), "of others").unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    std::fs::write(dir.path().join("longshore.toml"), "").unwrap();
    let before = fingerprint(dir.path());
    let args = ["restore", "set.bak", "--to", "target", "--dry-run"];
    let refused = longshore_in(dir.path(), &args).output().unwrap();
    assert_eq!(refused.status.code(), Some(6), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("target/one"));

    let replacing = [&args[..], &["--replace", "--json"]].concat();
    let run = longshore_in(dir.path(), &replacing).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let preview = answer(&run);
    assert_eq!(preview["action"], "restore_dry_run");
    assert_eq!(preview["replaced_names"], 1);
    assert!(
        preview["replaced"][0]
            .as_str()
            .unwrap()
            .ends_with("target/one")
    );
    assert_eq!(preview["removed_names"], 0);
    assert_eq!(preview["plain_bytes"], 903_000);
    assert!(preview["expected_s"].is_null(), "{preview}");
    assert!(fingerprint(dir.path()) == before, "something was written");

    // The time is known after one restore.
    let real = ["restore", "set.bak", "--to", "target", "--replace"];
    let run = longshore_in(dir.path(), &real).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let again = [&args[..], &["--replace"]].concat();
    let run = longshore_in(dir.path(), &again).output().unwrap();
    let said = text(&run.stdout);
    assert!(said.contains("Time: about"), "{said}");
    assert!(said.contains("Nothing was written."), "{said}");
    assert!(said.contains("position 1, 881.8 KiB, from"), "{said}");
}

/// Goal: a target that does not exist yet is not made, damage is found as far as the index shows it, and a pipe is refused.
#[test]
fn a_dry_run_makes_no_directory_and_refuses_pipes_and_damaged_sets() {
    let dir = tempfile::tempdir().unwrap();
    set(dir.path());
    let run = |args: &[&str]| {
        let mut command = longshore(args);
        command.current_dir(dir.path());
        command.stdin(std::fs::File::open(dir.path().join("set.bak")).unwrap());
        command.output().unwrap()
    };
    let good = run(&["restore", "set.bak", "--to", "new/target", "--dry-run"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert!(!dir.path().join("new").exists());
    for asked in [["--only", "nosuch"], ["--move", "nosuch=new"]] {
        let args = [&["restore", "set.bak", "--to", "new"][..], &asked].concat();
        let dry = run(&[&args[..], &["--dry-run"]].concat());
        let real = run(&args);
        assert_eq!(dry.status.code(), real.status.code(), "{asked:?}");
        assert!(
            text(&real.stderr).ends_with(&text(&dry.stderr)),
            "{asked:?}"
        );
    }
    let piped = run(&["restore", "-", "--to", "new", "--dry-run"]);
    assert_ne!(piped.status.code(), Some(0));
    assert!(
        text(&piped.stderr).contains("a dry run"),
        "{}",
        text(&piped.stderr)
    );
    let bytes = std::fs::read(dir.path().join("set.bak")).unwrap();
    std::fs::write(dir.path().join("set.bak"), &bytes[..bytes.len() - 9]).unwrap();
    let damaged = run(&["restore", "set.bak", "--to", "new", "--dry-run"]);
    assert_eq!(damaged.status.code(), Some(4), "{}", text(&damaged.stderr));
    assert!(!dir.path().join("new").exists());
}

/// Goal: a name of a file with several comes back with the bytes, whichever of them was asked for, of a chain and after a move,
/// too; the dry run agrees. Of a pipe it is refused with its own reason.
#[test]
fn any_name_of_a_file_with_several_brings_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("source");
    let bytes = content(7, 100_000);
    std::fs::create_dir_all(tree.join("d")).unwrap();
    std::fs::write(dir.path().join("longshore.toml"), "").unwrap();
    std::fs::write(tree.join("one"), &bytes).unwrap();
    std::fs::write(tree.join("d/other"), "other").unwrap();
    for name in ["two", "d/three", "d/four"] {
        std::fs::hard_link(tree.join("one"), tree.join(name)).unwrap();
    }
    let run = |args: &[&str]| longshore_in(dir.path(), args).output().unwrap();
    let done = |args: &[&str]| {
        let run = run(args);
        assert_eq!(run.status.code(), Some(0), "{args:?} {}", text(&run.stderr));
    };
    let file = tree.join("one");
    done(&["backup", "source", "--to", "set.bak", "--page-sums"]);
    let mut changed = bytes.clone();
    changed[50_000..50_010].fill(7);
    std::fs::write(&file, &changed).unwrap();
    done(&[
        "backup",
        "source",
        "--to",
        "set.bak",
        "--append",
        "--differential",
    ]);
    let asked: [(&[&str], &[&str]); 6] = [
        (&["one"], &["one"]),
        (&["two"], &["two"]),
        (&["d"], &["d/three", "d/four"]),
        (&["d/four"], &["d/four"]),
        (&["d/three", "two"], &["d/three", "two"]),
        (&["one", "d"], &["one", "d/three", "d/four"]),
    ];
    for (position, expected) in [("1", &bytes), ("2", &changed)] {
        for (only, names) in asked {
            let what = format!("{position} {only:?}");
            let target = dir.path().join("to");
            let mut args = vec!["restore", "set.bak", "--position", position, "--to", "to"];
            for only in only {
                args.extend(["--only", only]);
            }
            done(&[&args[..], &["--dry-run"]].concat());
            done(&args);
            let inode = |name: &str| std::fs::metadata(target.join(name)).unwrap().ino();
            for name in names {
                assert!(
                    std::fs::read(target.join(name)).unwrap() == *expected,
                    "{what}"
                );
                assert_eq!(inode(name), inode(names[0]), "{what}");
            }
            let restored = std::fs::metadata(target.join(names[0])).unwrap();
            assert_eq!(restored.nlink(), names.len() as u64, "{what}");
            assert_eq!(
                target.join("d/other").exists(),
                only.contains(&"d"),
                "{what}"
            );
            std::fs::remove_dir_all(&target).unwrap();
        }
        let moving = ["restore", "set.bak", "--position", position, "--to", "to"];
        let moving = [&moving[..], &["--only", "two", "--move", "two=new/name"]].concat();
        done(&moving);
        assert!(std::fs::read(dir.path().join("to/new/name")).unwrap() == *expected);
        std::fs::remove_dir_all(dir.path().join("to")).unwrap();
    }
    let mut refused = 0;
    for name in ["one", "two", "d/three", "d/four"] {
        let mut command = longshore_in(dir.path(), &["restore", "-", "--to", "to", "--only", name]);
        command.stdin(std::fs::File::open(dir.path().join("set.bak")).unwrap());
        let run = command.output().unwrap();
        let said = text(&run.stderr);
        if run.status.code() != Some(0) {
            refused += 1;
            assert_eq!(run.status.code(), Some(2), "{said}");
            assert!(said.contains("is a further name of"), "{said}");
            assert!(said.contains("add that name with --only"), "{said}");
        }
    }
    assert_eq!(refused, 3);
}

/// Goal: moves after which two entries would be in each other's way are refused before anything is written, by the dry run
/// and the restore alike, and two directories become one.
#[test]
fn moves_that_bring_two_entries_to_one_name_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    set(dir.path());
    std::fs::write(dir.path().join("longshore.toml"), "").unwrap();
    let long = format!("one={}", "n".repeat(256));
    let below_itself = ["one=new", "sub/two=new/two"];
    let refused: [&[&str]; 7] = [
        &["one=sub/two"],
        &["sub/two=one"],
        &["one=sub"],
        &["one=sub/two/three"],
        &below_itself,
        &["one=a", "one=b"],
        &[&long],
    ];
    for moves in refused {
        let moves = moves.iter().flat_map(|asked| ["--move", asked]);
        let args: Vec<&str> = ["restore", "set.bak", "--to", "new"]
            .into_iter()
            .chain(moves)
            .collect();
        let dry = [&args[..], &["--dry-run"]].concat();
        for args in [&dry, &args] {
            let run = longshore_in(dir.path(), args).output().unwrap();
            let said = text(&run.stderr);
            assert_eq!(run.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains("cannot move"), "{args:?}: {said}");
            assert!(!dir.path().join("new").exists(), "{args:?}");
        }
    }
    // With --only, the other entry is not restored and so not in the way.
    let fitting: [&[&str]; 2] = [
        &["--move", "one=sub/one"],
        &["--move", "one=sub/two", "--only", "one"],
    ];
    for (i, asked) in fitting.into_iter().enumerate() {
        let target = format!("new{i}");
        let args = [&["restore", "set.bak", "--to", &target][..], asked].concat();
        for args in [[&args[..], &["--dry-run"]].concat(), args] {
            let run = longshore_in(dir.path(), &args).output().unwrap();
            let said = text(&run.stderr);
            assert_eq!(run.status.code(), Some(0), "{args:?}: {said}");
        }
    }
    assert!(dir.path().join("new0/sub/one").exists());
    assert!(dir.path().join("new0/sub/two").exists());
}

#[test]
fn a_target_behind_a_link_that_leads_nowhere_is_refused_in_advance() {
    let dir = tempfile::tempdir().unwrap();
    set(dir.path());
    std::fs::write(dir.path().join("longshore.toml"), "").unwrap();
    std::os::unix::fs::symlink("gone/elsewhere", dir.path().join("link")).unwrap();
    for target in ["link", "link/below"] {
        let args = ["restore", "set.bak", "--to", target];
        let dry = [&args[..], &["--dry-run"]].concat();
        for args in [&dry[..], &args[..]] {
            let run = longshore_in(dir.path(), args).output().unwrap();
            let said = text(&run.stderr);
            assert_eq!(run.status.code(), Some(6), "{args:?}: {said}");
            assert!(said.contains("link is a symbolic link"), "{said}");
        }
    }
    std::fs::create_dir_all(dir.path().join("gone/elsewhere")).unwrap();
    let mut run = longshore_in(dir.path(), &["restore", "set.bak", "--to", "link/below"]);
    assert_eq!(run.output().unwrap().status.code(), Some(0));
    assert!(dir.path().join("gone/elsewhere/below/one").exists());
}
