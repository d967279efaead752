//! Goal: names never leave their directory: not by `..`, by an absolute path or by a symbolic link, in any call that
//! takes a name. Odd names are names like any other.
//! Method: promises about an empty directory, which `main.rs` makes tests of each implementation; a file outside must
//! stay untouched.
//! Not covered: links that somebody exchanges during a call.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longshore_io::{Attributes, Dir, FileKind, OpenHow};

use super::{Place, all, put};

/// Every call that takes a name, applied to `name`, with its success or error.
fn every_call(dir: &dyn Dir, name: &Path) -> Vec<(&'static str, io::Result<()>)> {
    let times = Attributes {
        mtime_ns: Some(0),
        mode: Some(0o700),
        owner: None,
    };
    vec![
        ("open", dir.open(name, OpenHow::Read).map(drop)),
        (
            "open for writing",
            dir.open(name, OpenHow::ReadWrite).map(drop),
        ),
        ("create", dir.open(name, OpenHow::CreateNew).map(drop)),
        ("dir", dir.dir(name).map(drop)),
        ("stat", dir.stat(name).map(drop)),
        ("read_link", dir.read_link(name).map(drop)),
        ("create_dir", dir.create_dir(name)),
        ("symlink", dir.symlink(Path::new("t"), name)),
        ("hard_link from", dir.hard_link(name, Path::new("new"))),
        ("hard_link to", dir.hard_link(Path::new("old"), name)),
        ("rename from", dir.rename(name, Path::new("new"))),
        ("rename to", dir.rename(Path::new("old"), name)),
        ("remove_file", dir.remove_file(name)),
        ("remove_dir", dir.remove_dir(name)),
        ("set_attributes", dir.set_attributes(name, &times)),
        ("sync", dir.sync(name)),
    ]
}

pub fn names_that_leave_the_directory_are_refused_by_every_call(place: &Place) {
    place.dir.create_dir(Path::new("inner")).unwrap();
    put(&*place.dir, "outside", b"untouched");
    let inner = place.dir.dir(Path::new("inner")).unwrap();
    put(&*inner, "old", b"");
    inner.create_dir(Path::new("sub")).unwrap();
    let absolute = place.path.join("outside");
    let names = [
        "..",
        "../outside",
        "sub/../../outside",
        "sub/..",
        "/",
        "../inner/old",
        "a\0b",
    ];
    for name in names.into_iter().map(Path::new).chain([absolute.as_path()]) {
        for (call, went) in every_call(&*inner, name) {
            assert_eq!(
                went.unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{call} {name:?}"
            );
        }
    }
    assert_eq!(all(&*place.dir, "outside"), b"untouched");
}

pub fn a_symbolic_link_in_the_middle_leads_nowhere(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("real")).unwrap();
    put(dir, "real/file", b"untouched");
    put(dir, "old", b"");
    // A link to a path outside, to one inside by an absolute path, to a sibling, to itself, and the links that the
    // system itself provides.
    let targets = [
        Path::new("/"),
        Path::new(".."),
        &place.path.join("real"),
        Path::new("real"),
        Path::new("link"),
        Path::new("/proc/self/cwd"),
    ];
    for target in targets {
        dir.symlink(target, Path::new("link")).unwrap();
        for name in ["link/file", "link/real/file", "link/./file"] {
            for (call, went) in every_call(dir, Path::new(name)) {
                let refused = went.unwrap_err().raw_os_error();
                assert!(
                    matches!(refused, Some(libc::ELOOP | libc::ENOTDIR)),
                    "{call} {name} by way of {target:?}: {refused:?}"
                );
            }
        }
        assert!(dir.dir(Path::new("link")).is_err() && dir.sync(Path::new("link")).is_err());
        dir.remove_file(Path::new("link")).unwrap();
    }
    assert_eq!(all(dir, "real/file"), b"untouched");
}

pub fn a_symbolic_link_at_the_end_is_not_opened(place: &Place) {
    let dir = &*place.dir;
    put(dir, "file", b"untouched");
    dir.create_dir(Path::new("sub")).unwrap();
    for name in ["link", "sub/link"] {
        for target in [
            "file",
            "../file",
            "/etc/passwd",
            "/proc/self/exe",
            "nothing",
            "/proc/self/fd/0",
        ] {
            dir.symlink(Path::new(target), Path::new(name)).unwrap();
            for how in [OpenHow::Read, OpenHow::ReadWrite] {
                let refused = dir.open(Path::new(name), how).unwrap_err();
                assert_eq!(
                    refused.raw_os_error(),
                    Some(libc::ELOOP),
                    "{target} {how:?}"
                );
            }
            let refused = dir.open(Path::new(name), OpenHow::CreateNew).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{target}");
            assert_eq!(dir.stat(Path::new(name)).unwrap().kind, FileKind::Symlink);
            dir.remove_file(Path::new(name)).unwrap();
        }
    }
    assert_eq!(all(dir, "file"), b"untouched");
}

pub fn a_directory_is_not_opened_as_a_file_nor_a_file_as_a_directory(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("sub")).unwrap();
    put(dir, "file", b"");
    for how in [OpenHow::Read, OpenHow::ReadWrite] {
        assert_eq!(
            dir.open(Path::new("sub"), how).unwrap_err().kind(),
            ErrorKind::IsADirectory
        );
        assert_eq!(
            dir.open(Path::new(""), how).unwrap_err().kind(),
            ErrorKind::IsADirectory
        );
        assert_eq!(
            dir.open(Path::new("file/x"), how).unwrap_err().kind(),
            ErrorKind::NotADirectory
        );
    }
    assert_eq!(
        dir.dir(Path::new("file")).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    assert_eq!(
        dir.dir(Path::new("nothing")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(place.storage.dir(&place.path.join("file")).is_err());
}

pub fn odd_names_are_names_like_any_other(place: &Place) {
    let dir = &*place.dir;
    let mut odd: Vec<Vec<u8>> = [
        &b"\xff\xfe not UTF-8 \x80"[..],
        b"new\nline",
        b"-rf",
        b" ",
        b"...",
        b"..a",
        b"\\",
        b"*?[",
        b"\x01\x1b[31m",
        "\u{1F40B} \u{202E}".as_bytes(),
        b"~",
        b"$HOME",
        b"'\"`",
    ]
    .map(<[u8]>::to_vec)
    .into();
    for name in &odd {
        let name = Path::new(OsStr::from_bytes(name));
        put(dir, name, name.as_os_str().as_bytes());
    }
    let mut listed: Vec<Vec<u8>> = dir
        .list()
        .unwrap()
        .map(|name| name.unwrap().as_bytes().to_vec())
        .collect();
    listed.sort();
    odd.sort();
    assert_eq!(listed, odd);
    for name in &odd {
        assert_eq!(all(dir, OsStr::from_bytes(name)), *name);
    }
}

pub fn superfluous_dots_and_slashes_change_nothing(place: &Place) {
    let dir = &*place.dir;
    dir.create_dir(Path::new("./a/")).unwrap();
    put(dir, "a//b", b"x");
    for name in ["a/b", "./a/b", "a/./b", "a//b", "a/b/", "a/b/."] {
        assert_eq!(all(dir, name), b"x", "{name}");
    }
    dir.rename(Path::new("./a//b"), Path::new("a/./c")).unwrap();
    assert_eq!(all(dir, "a/c"), b"x");
}

pub fn a_name_of_255_bytes_is_possible_and_one_more_is_refused(place: &Place) {
    let dir = &*place.dir;
    put(dir, "n".repeat(255), b"long");
    assert_eq!(all(dir, "n".repeat(255)), b"long");
    let refused = dir
        .open(Path::new(&"n".repeat(256)), OpenHow::CreateNew)
        .unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENAMETOOLONG));
}

pub fn the_empty_name_is_the_directory_itself(place: &Place) {
    let (dir, itself) = (&*place.dir, Path::new(""));
    put(dir, "file", b"x");
    assert_eq!(dir.stat(itself).unwrap().kind, FileKind::Dir);
    assert_eq!(
        dir.stat(itself).unwrap().ino,
        dir.dir(Path::new(".")).unwrap().stat(itself).unwrap().ino
    );
    assert_eq!(all(&*dir.dir(itself).unwrap(), "file"), b"x");
    dir.sync(itself).unwrap();
    dir.set_attributes(
        itself,
        &Attributes {
            mtime_ns: Some(1_000_000_007),
            ..Attributes::default()
        },
    )
    .unwrap();
    assert_eq!(dir.stat(itself).unwrap().mtime_ns, 1_000_000_007);
    // Calls that would change or replace the directory itself are refused.
    let file = Path::new("file");
    assert!(dir.open(itself, OpenHow::CreateNew).is_err() && dir.create_dir(itself).is_err());
    assert!(dir.symlink(file, itself).is_err() && dir.read_link(itself).is_err());
    assert!(dir.hard_link(itself, Path::new("n")).is_err() && dir.hard_link(file, itself).is_err());
    assert!(dir.rename(itself, Path::new("n")).is_err() && dir.rename(file, itself).is_err());
    assert!(dir.remove_file(itself).is_err() && dir.remove_dir(itself).is_err());
}
