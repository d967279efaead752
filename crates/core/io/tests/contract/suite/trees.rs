//! Goal: every storage agrees on directories, names, links and attributes.
//! Method: each function is one promise over a [`Place`]; the suite runs it on real and simulated disks.
//! Not covered: the bytes of files, and power cuts.

use std::io::ErrorKind;
use std::path::Path;

use longshore_io::{Attributes, Dir, FileKind, OpenHow, Via};

use super::{Place, all, put};

fn names(dir: &dyn Dir) -> Vec<String> {
    let mut names: Vec<String> = dir
        .list()
        .unwrap()
        .map(|name| name.unwrap().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn directories_are_made_opened_listed_and_removed(place: &Place) {
    let dir = &*place.dir;
    for name in ["a", "a/b", "a/c"] {
        dir.create_dir(Path::new(name)).unwrap();
        assert_eq!(
            dir.create_dir(Path::new(name)).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
    }
    put(dir, "a/b/file", b"x");
    assert_eq!(names(dir), ["a"]);
    assert_eq!(names(&*dir.dir(Path::new("a")).unwrap()), ["b", "c"]);
    assert_eq!(all(&*dir.dir(Path::new("a/b")).unwrap(), "file"), b"x");
    let stat = dir.stat(Path::new("a")).unwrap();
    assert_eq!((stat.kind, stat.mode), (FileKind::Dir, 0o700));

    let full = dir.remove_dir(Path::new("a/b")).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(
        dir.remove_file(Path::new("a")).unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        dir.remove_dir(Path::new("a/b/file")).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    let b = dir.dir(Path::new("a/b")).unwrap();
    b.remove_file(Path::new("file")).unwrap();
    dir.remove_dir(Path::new("a/b")).unwrap();
    assert_eq!(
        dir.stat(Path::new("a/b")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    // Nothing can be created in a removed directory, even if it is still open.
    assert_eq!(
        b.open(Path::new("n"), OpenHow::CreateNew)
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        b.create_dir(Path::new("n")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(names(&*b), [""; 0]);
}

pub fn a_rename_replaces_a_file_and_moves_between_directories(place: &Place) {
    let dir = &*place.dir;
    for name in ["a", "b", "full"] {
        dir.create_dir(Path::new(name)).unwrap();
    }
    put(dir, "a/new", b"new");
    put(dir, "b/old", b"old");
    dir.rename(Path::new("a/new"), Path::new("b/old")).unwrap();
    assert_eq!(all(dir, "b/old"), b"new");
    assert_eq!(names(&*dir.dir(Path::new("a")).unwrap()), [""; 0]);
    dir.rename(Path::new("b"), Path::new("a")).unwrap();
    assert_eq!(all(dir, "a/old"), b"new");
    assert_eq!(names(dir), ["a", "full"]);
}

pub fn renames_that_make_no_sense_are_refused(place: &Place) {
    let dir = &*place.dir;
    for name in ["a", "a/b", "a/b/c"] {
        dir.create_dir(Path::new(name)).unwrap();
    }
    put(dir, "file", b"x");
    for (from, to, errno) in [
        ("none", "new", libc::ENOENT),
        ("file", "none/new", libc::ENOENT),
        ("file", "a", libc::EISDIR),
        ("a", "file", libc::ENOTDIR),
        ("a/b/c", "a/b", libc::ENOTEMPTY),
        ("a", "a/b/c/d", libc::EINVAL),
        ("a", "a/b", libc::EINVAL),
    ] {
        let refused = dir.rename(Path::new(from), Path::new(to)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(errno), "{from} to {to}");
    }
    dir.rename(Path::new("a"), Path::new("a")).unwrap();
    assert_eq!(names(dir), ["a", "file"]);
}

pub fn a_hard_link_is_one_more_name_of_the_same_file(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("sub")).unwrap();
    let file = put(dir, "one", b"x");
    dir.hard_link(Path::new("one"), Path::new("sub/two"))
        .unwrap();
    file.write_all_at(b"changed", 0, Via::Cache).unwrap();
    assert_eq!(all(dir, "sub/two"), b"changed");
    let (one, two) = (
        dir.stat(Path::new("one")).unwrap(),
        dir.stat(Path::new("sub/two")).unwrap(),
    );
    assert_eq!((one.ino, one.dev, one.links), (two.ino, two.dev, 2));
    for (from, to) in [("one", "sub/two"), ("sub", "new"), ("none", "new")] {
        assert!(
            dir.hard_link(Path::new(from), Path::new(to)).is_err(),
            "{from} to {to}"
        );
    }
    dir.rename(Path::new("one"), Path::new("sub/two")).unwrap();
    assert_eq!(
        file.stat().unwrap().links,
        2,
        "both names are the same file and stay"
    );
    dir.remove_file(Path::new("one")).unwrap();
    assert_eq!(
        (file.stat().unwrap().links, all(dir, "sub/two")),
        (1, b"changed".to_vec())
    );
    // A hard link to a symbolic link is a name of the link itself, not of its target.
    dir.symlink(Path::new("sub/two"), Path::new("soft"))
        .unwrap();
    dir.hard_link(Path::new("soft"), Path::new("soft2"))
        .unwrap();
    assert_eq!(
        dir.stat(Path::new("soft2")).unwrap().kind,
        FileKind::Symlink
    );
}

pub fn a_symbolic_link_keeps_its_target_as_it_is(place: &Place) {
    let dir = &*place.dir;
    for target in ["/", "../..", "nothing", "a//b/./..", "new\nline"] {
        dir.symlink(Path::new(target), Path::new("link")).unwrap();
        assert_eq!(
            dir.read_link(Path::new("link")).unwrap().as_os_str(),
            target
        );
        let stat = dir.stat(Path::new("link")).unwrap();
        assert_eq!(
            (stat.kind, stat.len),
            (FileKind::Symlink, target.len() as u64)
        );
        let taken = dir.symlink(Path::new("x"), Path::new("link")).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        dir.remove_file(Path::new("link")).unwrap();
    }
    put(dir, "file", b"");
    assert_eq!(
        dir.read_link(Path::new("file")).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

pub fn attributes_are_set_and_links_are_not_followed(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("sub")).unwrap();
    put(dir, "sub/file", b"x");
    let before = dir.stat(Path::new("sub/file")).unwrap();
    let set = Attributes {
        mode: Some(0o4750),
        owner: Some((before.uid, before.gid)),
        mtime_ns: Some(-1_500_000_001),
    };
    dir.set_attributes(Path::new("sub/file"), &set).unwrap();
    let after = dir.stat(Path::new("sub/file")).unwrap();
    assert_eq!((after.mode, after.mtime_ns), (0o4750, -1_500_000_001));
    assert_eq!((after.uid, after.gid), (before.uid, before.gid));

    dir.set_attributes(
        Path::new("sub"),
        &Attributes {
            mode: Some(0o755),
            ..set
        },
    )
    .unwrap();
    assert_eq!(dir.stat(Path::new("sub")).unwrap().mode, 0o755);

    dir.symlink(Path::new("sub/file"), Path::new("link"))
        .unwrap();
    let other = Attributes {
        mode: Some(0o777),
        mtime_ns: Some(5_000),
        ..set
    };
    dir.set_attributes(Path::new("link"), &other).unwrap();
    assert_eq!(dir.stat(Path::new("link")).unwrap().mtime_ns, 5_000);
    let untouched = dir.stat(Path::new("sub/file")).unwrap();
    assert_eq!(
        (untouched.mode, untouched.mtime_ns),
        (0o4750, -1_500_000_001)
    );

    dir.set_attributes(Path::new("sub/file"), &Attributes::default())
        .unwrap();
    assert_eq!(dir.stat(Path::new("sub/file")).unwrap().mode, 0o4750);
    let missing = dir.set_attributes(Path::new("none"), &set).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

pub fn an_open_file_is_changed_and_given_whatever_has_its_name(place: &Place) {
    let dir = &*place.dir;
    let file = put(dir, "file", b"x");
    dir.rename(Path::new("file"), Path::new("moved")).unwrap();
    put(dir, "file", b"another");
    file.set_mode(0o641).unwrap();
    let modes = ["moved", "file"].map(|name| dir.stat(Path::new(name)).unwrap().mode);
    assert_eq!(modes, [0o641, 0o600]);
    // To this user itself: only root could give it to others.
    let own = file.stat().unwrap();
    assert!(file.give((own.uid, own.gid)).unwrap());
    dir.hard_link(Path::new("moved"), Path::new("other"))
        .unwrap();
    let refused = file.give((own.uid, own.gid)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    dir.remove_file(Path::new("other")).unwrap();
    assert!(file.give((own.uid, own.gid)).unwrap());
}

pub fn a_directory_is_given_while_it_is_empty(place: &Place) {
    place.dir.create_dir(Path::new("sub")).unwrap();
    let sub = place.dir.dir(Path::new("sub")).unwrap();
    let own = sub.stat(Path::new("")).unwrap();
    assert!(sub.give((own.uid, own.gid)).unwrap());
    put(&*sub, "file", b"");
    let refused = sub.give((own.uid, own.gid)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
}

pub fn missing_parents_are_made_and_existing_ones_left_alone(place: &Place) {
    let deep = place.path.join("x/y/z");
    put(&*place.storage.create_dir_all(&deep).unwrap(), "file", b"x");
    let again = place.storage.create_dir_all(&deep).unwrap();
    assert_eq!(all(&*again, "file"), b"x");
    assert_eq!(all(&*place.dir, "x/y/z/file"), b"x");
    put(&*place.dir, "file", b"");
    let blocked = place
        .storage
        .create_dir_all(&place.path.join("file/sub"))
        .unwrap_err();
    assert_eq!(blocked.kind(), ErrorKind::NotADirectory);
    assert!(
        place
            .storage
            .create_dir_all(&place.path.join("file"))
            .is_err()
    );
}

pub fn a_directory_named_by_a_person_may_be_reached_through_links(place: &Place) {
    place.dir.create_dir(Path::new("real")).unwrap();
    put(&*place.dir, "real/file", b"x");
    place
        .dir
        .symlink(&place.path.join("real"), Path::new("absolute"))
        .unwrap();
    place
        .dir
        .symlink(Path::new("absolute"), Path::new("relative"))
        .unwrap();
    place
        .dir
        .symlink(Path::new("round"), Path::new("round"))
        .unwrap();
    for name in ["absolute", "relative", "relative/../relative"] {
        let path = place.path.join(name);
        assert_eq!(
            all(&*place.storage.dir(&path).unwrap(), "file"),
            b"x",
            "{name}"
        );
        assert_eq!(
            place.storage.canonical(&path).unwrap(),
            place.path.join("real"),
            "{name}"
        );
    }
    let file = place.path.join("relative/file");
    assert_eq!(place.storage.stat(&file).unwrap().kind, FileKind::File);
    assert_eq!(
        place.storage.canonical(&file).unwrap(),
        place.path.join("real/file")
    );
    let missing = place.storage.stat(&place.path.join("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let round = place.storage.dir(&place.path.join("round")).unwrap_err();
    assert_eq!(round.raw_os_error(), Some(libc::ELOOP));
}

pub fn a_removed_file_stays_readable_for_those_who_have_it_open(place: &Place) {
    let file = put(&*place.dir, "file", b"still here");
    place.dir.remove_file(Path::new("file")).unwrap();
    assert_eq!(
        place.dir.stat(Path::new("file")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 0, Via::Direct).unwrap();
    assert_eq!((&bytes, file.stat().unwrap().links), (b"still here", 0));
}

pub fn every_change_moves_the_time_of_change(place: &Place) {
    let file = put(&*place.dir, "file", b"x");
    let mut last = file.stat().unwrap().ctime_ns;
    let dir = &*place.dir;
    dir.hard_link(Path::new("file"), Path::new("other"))
        .unwrap();
    let changes: [&dyn Fn(); 4] = [
        &|| file.write_all_at(b"y", 0, Via::Cache).unwrap(),
        &|| file.set_len(0).unwrap(),
        &|| {
            let back = Attributes {
                mtime_ns: Some(0),
                ..Attributes::default()
            };
            dir.set_attributes(Path::new("file"), &back).unwrap();
        },
        // The open file has this change, too, which came by another of its names.
        &|| dir.rename(Path::new("other"), Path::new("moved")).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        // A file system's clock may tick only every few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        change();
        let now = file.stat().unwrap().ctime_ns;
        assert!(now > last, "change {number} went unseen");
        last = now;
    }
}

/// A file system need not record births; one that does tells a file that got another one's inode number from it.
pub fn a_new_file_is_born_later_and_a_renamed_one_keeps_its_birth(place: &Place) {
    let born = |name: &str| place.dir.birth_ns(Path::new(name)).unwrap();
    put(&*place.dir, "old", b"x");
    let first = born("old");
    std::thread::sleep(std::time::Duration::from_millis(25));
    put(&*place.dir, "new", b"x");
    assert_eq!(born("new").is_some(), first.is_some());
    assert!(first.is_none() || born("new") > first);
    let moved = Path::new("moved");
    place.dir.rename(Path::new("old"), moved).unwrap();
    assert_eq!(born("moved"), first);
}

pub fn every_name_is_on_the_mount_of_its_directory(place: &Place) {
    put(&*place.dir, "file", b"x");
    place.dir.create_dir(Path::new("sub")).unwrap();
    let here = place.dir.mount_id(Path::new("")).unwrap();
    for name in ["file", "sub"] {
        let on = place.dir.mount_id(Path::new(name)).unwrap();
        assert_eq!(on, here, "{name}");
    }
    let missing = place.dir.mount_id(Path::new("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

pub fn thousands_of_names_are_listed_once_each(place: &Place) {
    let dir = &*place.dir;
    let mut made: Vec<String> = (0..3000)
        .map(|i| format!("a rather long name, number {i}"))
        .collect();
    for name in &made {
        dir.create_dir(Path::new(name)).unwrap();
    }
    made.sort();
    assert_eq!(names(dir), made);
    assert_eq!(names(dir), made, "a second listing begins anew");
}

pub fn syncing_and_free_space_are_answered(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("sub")).unwrap();
    let file = put(dir, "sub/file", b"x");
    file.sync().unwrap();
    dir.sync(Path::new("sub")).unwrap();
    dir.sync(Path::new("")).unwrap();
    assert!(dir.sync(Path::new("none")).is_err() && dir.sync(Path::new("sub/file")).is_err());
    dir.sync_all().unwrap();
    assert!(dir.free_bytes().unwrap() > 0);
}

pub fn a_disk_named_by_a_person_is_written_and_a_directory_is_none(place: &Place) {
    put(&*place.dir, "disk", &[1; 5000]);
    place
        .dir
        .symlink(Path::new("disk"), Path::new("link"))
        .unwrap();
    for name in ["disk", "link"] {
        let disk = place.storage.disk(&place.path.join(name)).unwrap();
        assert_eq!(disk.stat().unwrap().len, 5000);
        disk.write_all_at(&[2], 9, Via::Cache).unwrap();
    }
    assert_eq!(all(&*place.dir, "disk")[9], 2);
    assert!(place.storage.disk(&place.path).is_err());
    assert!(place.storage.disk(&place.path.join("none")).is_err());
}

pub fn a_file_with_other_names_is_opened_as_one_of_its_own(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("d")).unwrap();
    put(dir, "d/file", b"content");
    let name = Path::new("d/file");
    let before = dir.stat(name).unwrap();
    // A file with one name is opened as it is.
    let alone = dir.open_own(name, 0).unwrap();
    assert_eq!(alone.stat().unwrap().ino, before.ino);
    dir.hard_link(name, Path::new("copy")).unwrap();
    let attributes = Attributes {
        mode: Some(0o640),
        mtime_ns: Some(1_000_000_000),
        ..Attributes::default()
    };
    dir.set_attributes(name, &attributes).unwrap();
    // A temporary file that a crash left.
    put(dir, "d/file.longshore-own", b"rubbish");
    let own = dir.open_own(name, 4).unwrap();
    own.write_all_at(b"!", 4, Via::Cache).unwrap();
    assert_eq!(all(dir, "d/file"), b"cont!");
    assert_eq!(all(dir, "copy"), b"content");
    let stat = dir.stat(name).unwrap();
    assert_eq!((stat.mode, stat.links), (0o640, 1));
    assert_eq!(dir.stat(Path::new("copy")).unwrap().ino, before.ino);
    assert_eq!(names(&*dir.dir(Path::new("d")).unwrap()), ["file"]);
    let missing = dir.open_own(Path::new("nothing"), 0).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
