//! Goal: the host keeps the promises that only the real file system can show: special files, descriptors, the page
//! cache, access times, owners.
//! Method: files in a temporary directory of the build; the kernel's own account in /proc and the metadata are the
//! oracle.
//! Not covered: the page cache on file systems without one of their own, and other users' files without root; both are
//! skipped with a message.

use std::ffi::CString;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_io::{Attributes, FileKind, Host, OpenHow, Pool, Storage, Via};

use crate::{Place, noise, put};

fn place() -> Place {
    Place::on_the_host(Host::new())
}

/// Whether the file system below `path` has a page cache of its own, drops pages on request and reports them by reads
/// that may not wait. File systems in memory, overlays and those with another kind of cache do not.
fn has_a_page_cache(path: &Path) -> bool {
    let probe = path.join("probe");
    std::fs::write(&probe, [1; 8192]).unwrap();
    let at_once = || {
        let file = std::fs::File::open(&probe).unwrap();
        let mut byte = [0];
        let bufs = &mut [IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(&file, bufs, 0, rustix::io::ReadWriteFlags::NOWAIT)
    };
    std::fs::read(&probe).unwrap();
    let cached = at_once();
    longshore_io::drop_from_cache(&probe).unwrap();
    let has = cached == Ok(1) && at_once() == Err(rustix::io::Errno::AGAIN);
    if !has {
        eprintln!(
            "skipped: {} is on a file system without a page cache of its own",
            path.display()
        );
    }
    has
}

/// The descriptors of `path` that this process has open.
fn descriptors(path: &Path) -> Vec<i32> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
        .map(|entry| {
            let number = entry.file_name().into_string().unwrap();
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
            let flags = text
                .lines()
                .find_map(|line| line.strip_prefix("flags:"))
                .unwrap();
            i32::from_str_radix(flags.trim(), 8).unwrap()
        })
        .collect()
}

#[test]
fn a_fifo_is_refused_at_once_without_waiting() {
    let place = place();
    let path = CString::new(place.path.join("fifo").as_os_str().as_bytes()).unwrap();
    // SAFETY: mkfifo demands a C string that lives for the call, as this one does.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let (sender, answered) = std::sync::mpsc::channel();
    let dir = place.dir.clone();
    std::thread::spawn(move || {
        let refused = [OpenHow::Read, OpenHow::ReadWrite]
            .map(|how| dir.open(Path::new("fifo"), how).is_err());
        sender.send(refused).unwrap();
    });
    assert_eq!(
        answered.recv_timeout(Duration::from_secs(60)).unwrap(),
        [true, true]
    );
    assert_eq!(
        place.dir.stat(Path::new("fifo")).unwrap().kind,
        FileKind::Other
    );
}

#[test]
fn a_device_node_is_not_a_file() {
    let dev = Host::new().dir(Path::new("/dev")).unwrap();
    assert!(dev.open(Path::new("null"), OpenHow::Read).is_err());
    assert_eq!(dev.stat(Path::new("null")).unwrap().kind, FileKind::Other);
}

#[test]
fn a_second_descriptor_is_opened_for_the_first_direct_transfer_and_closed_with_the_file() {
    let place = place();
    let path = place.path.join("file");
    let pool = Pool::new(1, 8192).unwrap();
    let mut buf = pool.take().unwrap();
    let file = put(&*place.dir, "file", &noise(1, 8192));
    file.read_exact_at(&mut buf, 0, Via::Cache).unwrap();
    file.read_exact_at(&mut buf, 0, Via::DontCache).unwrap();
    assert_eq!(descriptors(&path).len(), 1);
    file.read_exact_at(&mut buf, 0, Via::Direct).unwrap();
    file.write_all_at(&buf, 0, Via::Direct).unwrap();
    let direct = |flags: &i32| flags & libc::O_DIRECT != 0;
    let open = descriptors(&path);
    assert_eq!(
        (
            open.len(),
            open.iter().filter(|flags| direct(flags)).count()
        ),
        (2, 1)
    );
    drop(file);
    assert_eq!(descriptors(&path).len(), 0);
}

/// The page cache follows memory pressure, which a test does not control. But a page just read is cached, and a page
/// just dropped by this file's only user is not.
#[test]
fn cached_pages_are_distinguished_from_dropped_ones() {
    const LEN: u64 = 1 << 20;
    let place = place();
    if !has_a_page_cache(&place.path) {
        return;
    }
    let file = put(&*place.dir, "file", &noise(5, LEN as usize));
    file.sync().unwrap();
    let mut buf = vec![0; LEN as usize];
    file.read_exact_at(&mut buf, 0, Via::Cache).unwrap();
    assert!(file.is_cached(0..LEN) && file.is_cached(5000..5001));
    assert!(
        file.is_cached(0..2 * LEN),
        "what lies beyond the end costs no I/O"
    );
    assert!(file.is_cached(7..7) && file.is_cached(LEN..LEN + 1));

    file.drop_cached();
    assert!(!file.is_cached(0..LEN) && !file.is_cached(LEN - 1..LEN));
    file.read_exact_at(&mut buf, 0, Via::Cache).unwrap();
    assert!(file.is_cached(0..LEN));
    longshore_io::drop_from_cache(&place.path.join("file")).unwrap();
    assert!(!file.is_cached(0..LEN) && !file.is_cached(LEN - 1..LEN));
    // A transfer without the cache must leave the cache unchanged.
    let pool = Pool::new(1, LEN as usize).unwrap();
    let mut aligned = pool.take().unwrap();
    file.read_exact_at(&mut aligned, 0, Via::Direct).unwrap();
    assert!(!file.is_cached(0..LEN) && !file.is_cached(0..4096));
    assert_eq!(*aligned, *buf);
}

#[test]
fn reading_leaves_no_access_time() {
    let place = place();
    put(&*place.dir, "file", b"x");
    let path = place.path.join("file");
    let old = Attributes {
        mtime_ns: Some(1_000_000_000),
        ..Attributes::default()
    };
    place.dir.set_attributes(Path::new("file"), &old).unwrap();
    let accessed = || std::fs::metadata(&path).unwrap().accessed().unwrap();
    let before = accessed();
    let file = place.dir.open(Path::new("file"), OpenHow::Read).unwrap();
    file.read_exact_at(&mut [0], 0, Via::Cache).unwrap();
    assert_eq!(accessed(), before);
}

/// Goal: the two ways to ask for a file's birth agree.
#[test]
fn a_file_has_one_birth_by_its_directory_and_by_its_path() {
    let place = place();
    put(&*place.dir, "file", b"x");
    let born = place.dir.birth_ns(Path::new("file")).unwrap();
    let path = place.path.join("file");
    assert_eq!(Host::new().birth_ns(&path).unwrap(), born);
    if born.is_none() {
        eprintln!("left out: this file system records no times of birth");
    }
}

#[test]
fn a_name_on_which_something_is_mounted_is_on_another_mount() {
    let root = Host::new().dir(Path::new("/")).unwrap();
    let on = |name: &str| root.mount_id(Path::new(name)).unwrap();
    assert_ne!(on("proc"), on(""));
}

#[test]
fn a_directory_that_moves_away_takes_its_handle_with_it() {
    let place = place();
    place.dir.create_dir(Path::new("a")).unwrap();
    let a = place.dir.dir(Path::new("a")).unwrap();
    place.dir.rename(Path::new("a"), Path::new("b")).unwrap();
    // An attacker puts a link where the directory was.
    place.dir.symlink(Path::new("/"), Path::new("a")).unwrap();
    put(&*a, "file", b"x");
    assert!(place.path.join("b/file").is_file());
}

/// Runs `body` as an unprivileged user, in a separate thread.
fn as_nobody(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let (uid, gid) = (
                    rustix::fs::Uid::from_raw(65_534),
                    rustix::fs::Gid::from_raw(65_534),
                );
                // Changes this thread alone: unlike the C library's functions, the raw calls do not change other
                // threads.
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            body();
        });
    });
}

#[test]
fn an_owner_that_cannot_be_given_is_left_and_the_set_id_bits_with_it() {
    let place = place();
    let open = Attributes {
        mode: Some(0o777),
        ..Attributes::default()
    };
    place.dir.set_attributes(Path::new(""), &open).unwrap();
    as_nobody(|| {
        drop(put(&*place.dir, "file", b"x"));
        let owner = place.dir.stat(Path::new("file")).unwrap().uid;
        let set = Attributes {
            mode: Some(0o6755),
            owner: Some((0, 0)),
            mtime_ns: Some(1),
        };
        place.dir.set_attributes(Path::new("file"), &set).unwrap();
        let stat = place.dir.stat(Path::new("file")).unwrap();
        assert_eq!((stat.mode, stat.uid, stat.mtime_ns), (0o755, owner, 1));
    });
}

/// Goal: root gives away what it made, and nothing else; whoever may not give is told, but in root's directories.
#[test]
fn only_what_this_user_made_is_given_to_the_owner_of_its_directory() {
    const OWNER: u32 = 23_461;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let place = place();
    let own = |name: &str, uid: u32| {
        let attributes = Attributes {
            mode: Some(0o777),
            owner: Some((uid, uid)),
            mtime_ns: None,
        };
        place
            .dir
            .set_attributes(Path::new(name), &attributes)
            .unwrap();
    };
    let sub = |name: &str, uid: u32| {
        place.dir.create_dir(Path::new(name)).unwrap();
        own(name, uid);
        place.dir.dir(Path::new(name)).unwrap()
    };
    let (owners, roots) = (sub("owners", OWNER), sub("roots", 0));
    let uid = |name: &str| place.dir.stat(Path::new(name)).unwrap().uid;
    drop(owners.create_for_its_owner(Path::new("new")).unwrap());
    assert_eq!(uid("owners/new"), OWNER);
    owners.create_dir(Path::new("dir")).unwrap();
    owners.give_dir_to_its_owner(Path::new("dir")).unwrap();
    assert_eq!(uid("owners/dir"), OWNER);
    // By another name, as the owner can make one where the system does not forbid it.
    drop(put(&*roots, "shadow", b""));
    let link = (Path::new("roots/shadow"), Path::new("owners/link"));
    place.dir.hard_link(link.0, link.1).unwrap();
    let file = owners.open(Path::new("link"), OpenHow::ReadWrite).unwrap();
    owners.give_to_its_owner(&*file).unwrap_err();
    owners
        .symlink(Path::new("../roots/shadow"), Path::new("soft"))
        .unwrap();
    owners
        .open(Path::new("soft"), OpenHow::ReadWrite)
        .unwrap_err();
    assert_eq!(uid("roots/shadow"), 0);
    // A third user's, and a directory with content.
    drop(put(&*owners, "third", b""));
    own("owners/third", OWNER + 1);
    let file = owners.open(Path::new("third"), OpenHow::ReadWrite).unwrap();
    owners.give_to_its_owner(&*file).unwrap();
    assert_eq!(uid("owners/third"), OWNER + 1);
    owners.create_dir(Path::new("full")).unwrap();
    drop(put(&*owners, "full/file", b""));
    owners.give_dir_to_its_owner(Path::new("full")).unwrap_err();
    assert_eq!(uid("owners/full"), 0);
    as_nobody(|| {
        let refused = owners.create_for_its_owner(Path::new("none"));
        let kind = refused.map(drop).unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::PermissionDenied);
        assert!(owners.stat(Path::new("none")).is_err());
        drop(roots.create_for_its_owner(Path::new("kept")).unwrap());
        assert_eq!(roots.stat(Path::new("kept")).unwrap().uid, 65_534);
    });
}

#[test]
fn a_file_of_somebody_else_is_readable_and_its_attributes_stay() {
    let place = place();
    put(&*place.dir, "file", &noise(1, 8192));
    for name in ["", "file"] {
        let open = Attributes {
            mode: Some(0o755),
            ..Attributes::default()
        };
        place.dir.set_attributes(Path::new(name), &open).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let tells = has_a_page_cache(&place.path);
    as_nobody(|| {
        let file = place.dir.open(Path::new("file"), OpenHow::Read).unwrap();
        let mut bytes = vec![0; 8192];
        file.read_exact_at(&mut bytes, 0, Via::Direct).unwrap();
        assert_eq!(bytes, noise(1, 8192));
        // `cachestat` requires the owner; the other method must find the page just read.
        file.read_exact_at(&mut bytes, 0, Via::Cache).unwrap();
        assert!(!tells || file.is_cached(0..8192));
        let set = Attributes {
            mode: Some(0o777),
            ..Attributes::default()
        };
        let refused = place
            .dir
            .set_attributes(Path::new("file"), &set)
            .unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn a_relative_path_of_one_component_can_be_made() {
    // Only a fixed name in the current directory can show this; the crate's own files are sure to exist.
    let host = Host::new();
    let made = PathBuf::from(format!("target-of-a-test-{}", std::process::id()));
    let opened = host.create_dir_all(&made);
    let found = host.stat(&made).map(|stat| stat.kind);
    std::fs::remove_dir(&made).unwrap();
    opened.unwrap();
    assert_eq!(found.unwrap(), FileKind::Dir);
    host.create_dir_all(Path::new("")).unwrap();
}
