//! Goal: extended attributes, access control lists and capabilities are restored; where that is impossible, it is
//! reported, and no name grants more rights than before.
//! Method: real trees, whose attributes are set and read by the system's own calls; restores to the simulated disk,
//! which has no attributes.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::*;
use longshore_codec::Algorithm;
use longshore_io::SimDisk;
use longshore_media::DeviceSpec;
use longshore_pipeline::{RestoreReport, SourceSpec};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// For an entry without a user or group.
const NOBODY: u32 = u32::MAX;

/// An access control list in the kernel's format: tag, rights, user or group.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, who) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&who.to_le_bytes());
    }
    bytes
}

/// User 4242 may read and write, the owning group only read, others nothing: mode 0660.
fn writer() -> Vec<u8> {
    list(&[
        (1, 6, NOBODY),
        (2, 6, 4242),
        (4, 4, NOBODY),
        (16, 6, NOBODY),
        (32, 0, NOBODY),
    ])
}

/// The same without the right to write for the owner, who may enter: mode 0560.
fn closed() -> Vec<u8> {
    list(&[
        (1, 5, NOBODY),
        (2, 6, 4242),
        (4, 4, NOBODY),
        (16, 6, NOBODY),
        (32, 0, NOBODY),
    ])
}

/// User 4242 may not read what others may: mode 0644.
fn outsider() -> Vec<u8> {
    list(&[
        (1, 6, NOBODY),
        (2, 0, 4242),
        (4, 4, NOBODY),
        (16, 4, NOBODY),
        (32, 4, NOBODY),
    ])
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|e| panic!("{name}: {e}"));
}

type Found = BTreeMap<Vec<u8>, Vec<u8>>;

fn attributes(path: &Path) -> Found {
    let mut names = vec![0; 64 << 10];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty());
    let mut found = Found::new();
    for name in names {
        let mut value = vec![0; 64 << 10];
        let len = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    found
}

/// Modes and attributes of everything below a directory.
fn all(root: &Path) -> BTreeMap<PathBuf, (u32, Found)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let name = path.strip_prefix(root).unwrap().to_owned();
        if !name.as_os_str().is_empty() {
            found.insert(name, (meta.mode(), attributes(&path)));
        }
    }
    found
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn tree(source: &Path) {
    std::fs::create_dir_all(source.join("dir/below")).unwrap();
    std::fs::write(source.join("dir/list"), b"with a list").unwrap();
    std::fs::write(source.join("dir/empty"), b"").unwrap();
    std::fs::write(source.join("plain"), b"no attributes").unwrap();
    std::fs::write(source.join("outsider"), b"kept out").unwrap();
    std::fs::write(source.join("large"), content(7, 9 << 20)).unwrap();
    std::fs::hard_link(source.join("large"), source.join("dir/again")).unwrap();
    symlink("plain", source.join("link")).unwrap();
    for name in ["plain", "dir/empty", "dir/list", "outsider"] {
        let mode = PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(source.join(name), mode).unwrap();
    }
    set(&source.join("dir/list"), ACCESS, &writer());
    set(&source.join("outsider"), ACCESS, &outsider());
    set(&source.join("dir"), DEFAULT, &writer());
    std::fs::create_dir(source.join("closed")).unwrap();
    set(&source.join("closed"), ACCESS, &closed());
    set(&source.join("dir/below"), "user.odd\nname", b"\0value");
    set(&source.join("dir/empty"), "user.empty", b"");
    for name in ["user.a", "user.b"] {
        set(&source.join("large"), name, &content(3, 1000));
    }
    // The file cannot be written again by its owner.
    set(&source.join("plain"), "user.readonly", b"x");
    std::fs::set_permissions(source.join("plain"), PermissionsExt::from_mode(0o440)).unwrap();
    if is_root() {
        let capability = [
            0x01, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        set(&source.join("large"), "security.capability", &capability);
        set(&source.join("link"), "trusted.of.a.link", b"yes");
    }
}

fn back_up(dir: &Path) -> Vec<DeviceSpec> {
    let devices = stripes(dir, 2);
    let spec = SourceSpec::Files(vec![dir.join("source")]);
    let report = backup(
        &context(),
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    assert!(report.run.warnings.is_empty(), "{:?}", report.run.warnings);
    devices
}

#[test]
fn attributes_lists_and_capabilities_come_back_and_none_is_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    tree(&source);
    let devices = back_up(dir.path());
    // New files here would be accessible to a user whom no file of the set mentions.
    std::fs::create_dir(&target).unwrap();
    let open = list(&[
        (1, 7, NOBODY),
        (2, 7, 4343),
        (4, 7, NOBODY),
        (16, 7, NOBODY),
        (32, 5, NOBODY),
    ]);
    set(&target, DEFAULT, &open);
    let report = restore(&context(), restore_request(devices.clone(), &target)).unwrap();
    assert!(report.run.warnings.is_empty(), "{:?}", report.run.warnings);
    let (before, after) = (all(&source), all(&target));
    for (path, of) in &before {
        assert_eq!(after.get(path), Some(of), "{}", path.display());
    }
    assert_eq!(before.len(), after.len());
    verify(&context(), devices).unwrap();
}

/// Of several directories that are backed up together, each is an entry of the set; so is a SQLite database.
#[test]
fn directories_that_are_named_and_databases_keep_their_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    for root in ["one", "two"] {
        std::fs::create_dir(place(root)).unwrap();
        std::fs::write(place(root).join("file"), root).unwrap();
        set(&place(root), "user.root", root.as_bytes());
    }
    let db = rusqlite::Connection::open(place("app.db")).unwrap();
    db.execute_batch("CREATE TABLE note (text)").unwrap();
    drop(db);
    set(&place("app.db"), "user.database", b"yes");
    let both = SourceSpec::Files(vec![place("one"), place("two")]);
    let database = SourceSpec::Sqlite(place("app.db"));
    for (spec, names) in [(both, &["one", "two"][..]), (database, &["app.db"])] {
        let media = tempfile::tempdir().unwrap();
        let devices = stripes(media.path(), 1);
        let request = backup_request(spec, devices.clone(), Algorithm::Lz4);
        backup(&context(), request).unwrap();
        let target = media.path().join("target");
        restore(&context(), restore_request(devices, &target)).unwrap();
        for name in names {
            let (before, after) = (attributes(&place(name)), attributes(&target.join(name)));
            assert!(!before.is_empty());
            assert_eq!(before, after, "{name}");
        }
    }
}

/// A tree whose own directory is closed to others by its mode, its list or both.
fn closed_tree(source: &Path, mode: u32) {
    std::fs::create_dir(source).unwrap();
    std::fs::write(source.join("file"), "secret").unwrap();
    set(source, "user.root", b"kept");
    set(
        source,
        DEFAULT,
        &list(&[(1, 7, NOBODY), (4, 5, NOBODY), (32, 0, NOBODY)]),
    );
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(source, mode).unwrap();
    if is_root() {
        std::os::unix::fs::chown(source, Some(1234), Some(5678)).unwrap();
    }
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let source = std::fs::File::open(source).unwrap();
    source.set_modified(at).unwrap();
}

/// Mode, owner, time and attributes of a directory.
fn own(path: &Path) -> (u32, u32, u32, i64, Found) {
    let found = std::fs::metadata(path).unwrap();
    let mode = found.mode() & 0o7777;
    (
        mode,
        found.uid(),
        found.gid(),
        found.mtime(),
        attributes(path),
    )
}

/// Goal: a tree that nobody but its owner can enter comes back so, whole, in part and as a differential; a directory that
/// was there keeps what it has, and that is told.
#[test]
fn the_directory_of_a_tree_comes_back_with_its_mode_owner_time_and_attributes() {
    for mode in [0o700, 0o2750, 0o500] {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        closed_tree(&source, mode);
        let devices = stripes(dir.path(), 1);
        let spec = || SourceSpec::Files(vec![source.clone()]);
        backup(
            &context(),
            backup_request(spec(), devices.clone(), Algorithm::Lz4),
        )
        .unwrap();
        let wanted = own(&source);
        for only in [&[][..], &[PathBuf::from("file")]] {
            let target = dir.path().join("new/target");
            let mut request = restore_request(devices.clone(), &target);
            request.only = only.into();
            let report = restore(&context(), request).unwrap();
            assert_eq!(own(&target), wanted, "{mode:o} {only:?}");
            assert!(report.run.warnings.is_empty(), "{:?}", report.run.warnings);
            assert!(report.run.notes.is_empty(), "{:?}", report.run.notes);
            let left: Vec<_> = std::fs::read_dir(&target).unwrap().collect();
            assert_eq!(left.len(), 1);
            let open = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&target, open).unwrap();
            std::fs::remove_dir_all(&target).unwrap();
        }
        let there = dir.path().join("there");
        std::fs::create_dir(&there).unwrap();
        let open = std::fs::Permissions::from_mode(0o751);
        std::fs::set_permissions(&there, open).unwrap();
        let report = restore(&context(), restore_request(devices, &there)).unwrap();
        assert_eq!(own(&there).0, 0o751);
        let told = &report.run.notes;
        assert!(
            told.iter()
                .any(|n| n.contains("keeps mode 0751") && n.contains(&format!("had {mode:04o}"))),
            "{told:?}"
        );
        assert!(report.run.warnings.is_empty());
    }
}

/// Goal: of several paths there is no directory, and what a set does not tell opens nothing.
#[test]
fn a_directory_of_which_nothing_is_known_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let usual = dir.path().join("usual");
    std::fs::create_dir(&usual).unwrap();
    std::fs::write(usual.join("file"), "file").unwrap();
    let devices = stripes(dir.path(), 1);
    let spec = SourceSpec::Files(vec![usual.join("file")]);
    backup(
        &context(),
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let target = dir.path().join("target");
    let report = restore(&context(), restore_request(devices.clone(), &target)).unwrap();
    // The directory that it was in may have kept others out.
    assert_eq!(own(&target).0 & 0o777, 0o700);
    let of_file = "the directory that its paths were in";
    let told = |report: &longshore_pipeline::RestoreReport| {
        report.run.notes.iter().any(|note| note.contains(of_file))
    };
    assert!(told(&report), "{:?}", report.run.notes);
    let database = usual.join("app.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("create table t (a)").unwrap();
    let stripe = vec![DeviceSpec::File(dir.path().join("database"))];
    let spec = SourceSpec::Sqlite(database);
    backup(
        &context(),
        backup_request(spec, stripe.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let of_database = dir.path().join("of-database");
    restore(&context(), restore_request(stripe, &of_database)).unwrap();
    assert_eq!(own(&of_database).0 & 0o777, 0o700);
    // One that was there keeps its mode, and nothing is told of it.
    let standing = dir.path().join("standing");
    std::fs::create_dir(&standing).unwrap();
    let report = restore(&context(), restore_request(devices, &standing)).unwrap();
    assert_eq!(own(&standing).0, own(&usual).0);
    assert!(!told(&report), "{:?}", report.run.notes);

    // A set of an earlier version.
    let disk = SimDisk::new(1);
    disk.write_file("/m/neighbour", b"").unwrap();
    let device = DeviceSpec::File("/m/0".into());
    let block = common::pieces::file("f", 100, false, true, &[(0, vec![1; 100])]);
    let storage: Arc<dyn longshore_io::Storage> = Arc::new(disk.clone());
    let claims = common::forge::Claims::new(None);
    common::forge::write(
        &storage,
        std::slice::from_ref(&device),
        &claims,
        &[block],
        |_| 0,
    );
    let context = context_on(storage.clone());
    let report = restore(&context, restore_request(vec![device], Path::new("/out"))).unwrap();
    let out = storage.stat(Path::new("/out")).unwrap();
    assert_eq!(out.mode, 0o700);
    let told = &report.run.notes;
    assert!(
        told.iter().any(|n| n.contains("open to its owner alone")),
        "{told:?}"
    );
}

#[test]
fn without_its_list_no_name_gives_anybody_more() {
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("source"));
    let devices = back_up(dir.path());
    let disk = SimDisk::new(1);
    let names = ["/m/0", "/m/1"];
    for (device, name) in devices.iter().zip(names) {
        let DeviceSpec::File(path) = device else {
            panic!("no file");
        };
        disk.write_file(name, &std::fs::read(path).unwrap())
            .unwrap();
    }
    let context = context_on(Arc::new(disk.clone()));
    let devices = names.map(|name| DeviceSpec::File(name.into())).into();
    let report: RestoreReport =
        restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
    let out = context.storage.dir(Path::new("/out")).unwrap();
    let mode = |name: &str| out.stat(Path::new(name)).unwrap().mode;
    // The owning group could only read; a user who was excluded now counts as group or other.
    assert_eq!(mode("dir/list"), 0o640);
    assert_eq!(mode("outsider"), 0o600);
    assert_eq!(mode("plain"), 0o440);
    // Its mode is narrowed when it has its place, because it could not be moved there before.
    assert_eq!(mode("closed"), 0o540);
    let warnings = &report.run.warnings;
    let lists = warnings.iter().find(|w| w.contains("access control lists"));
    // Two access lists of files, one of a directory, and the default list of another.
    assert!(
        lists.is_some_and(|w| w.starts_with("4 access")),
        "{warnings:?}"
    );
    let others = warnings.iter().find(|w| w.contains("extended attributes"));
    let expected = if is_root() { 7 } else { 5 };
    assert!(
        others.is_some_and(|w| w.starts_with(&format!("{expected} "))),
        "{warnings:?}"
    );
    // A restore that lost one does not end with exit code 0.
    assert_eq!(report.attributes_lost, 4 + expected);
}

/// Goal: more attributes than a block's manifest can hold together with other names, and more than are kept.
#[test]
fn names_with_very_many_attributes_share_no_manifest_and_lose_only_the_largest() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for i in 0..40 {
        std::fs::write(source.join(format!("f{i:02}")), [b'x'; 10]).unwrap();
    }
    let probe = lsetxattr(
        source.join("f00"),
        "user.a",
        &[1; 20_000],
        XattrFlags::empty(),
    );
    if probe.is_err() {
        println!("no file system here takes long attributes");
        return;
    }
    for i in 0..40 {
        let path = source.join(format!("f{i:02}"));
        for name in ["user.a", "user.b"] {
            set(&path, name, &content(i, 20_000));
        }
    }
    set(&source.join("f39"), "user.large", &content(1, 45_000));
    let devices = stripes(dir.path(), 2);
    let spec = SourceSpec::Files(vec![source.clone()]);
    let report = backup(
        &context(),
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let warnings = &report.run.warnings;
    let large = warnings
        .iter()
        .find(|w| w.contains("more extended attributes"));
    assert!(large.is_some_and(|w| w.contains("f39")), "{warnings:?}");
    let target = dir.path().join("target");
    restore(&context(), restore_request(devices, &target)).unwrap();
    let mut before = all(&source);
    let f39 = before.get_mut(Path::new("f39")).unwrap();
    f39.1.remove(&b"user.large"[..]).unwrap();
    assert_eq!(all(&target), before);
}

/// Goal: root learns that a restore made programs that run with the rights of others, which anybody may have put on the media.
#[test]
fn root_is_told_of_files_with_set_id_bits_and_capabilities() {
    if !is_root() {
        eprintln!("skipped: only root gives files such rights");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    tree(&source);
    let notes = |to: &str, devices: &[DeviceSpec]| {
        let target = dir.path().join(to);
        let report = restore(&context(), restore_request(devices.to_vec(), &target)).unwrap();
        report.run.notes
    };
    let told = notes("one", &back_up(dir.path()));
    assert!(
        told.iter()
            .any(|note| note.starts_with("1 file runs with the rights")
                && note.contains("a capability")),
        "{told:?}"
    );
    std::fs::set_permissions(source.join("outsider"), PermissionsExt::from_mode(0o4755)).unwrap();
    // A group's bit on a directory gives nobody a right.
    std::fs::set_permissions(source.join("dir"), PermissionsExt::from_mode(0o2755)).unwrap();
    let other = tempfile::tempdir().unwrap();
    let devices = stripes(other.path(), 2);
    let spec = SourceSpec::Files(vec![source.clone()]);
    backup(
        &context(),
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let told = notes("two", &devices);
    assert!(
        told.iter()
            .any(|note| note.starts_with("2 files run with the rights")),
        "{told:?}"
    );
    let none = tempfile::tempdir().unwrap();
    let devices = stripes(none.path(), 2);
    let spec = SourceSpec::Files(vec![source.join("plain")]);
    backup(
        &context(),
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let told = notes("three", &devices);
    assert!(!told.iter().any(|note| note.contains("rights")), "{told:?}");
}

/// Goal: what programs keep about a file's security comes back with it: a share without Samba's lists is open to the wrong users.
#[test]
fn attributes_of_security_come_back_but_for_signatures() {
    if !is_root() {
        println!("skipped: only root sets attributes of security");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "file").unwrap();
    for name in ["security.NTACL", "security.SMACK64", "security.other"] {
        set(&source.join("file"), name, &[7; 40]);
    }
    let devices = back_up(dir.path());
    let report = restore(&context(), restore_request(devices, &target)).unwrap();
    assert!(report.run.warnings.is_empty(), "{:?}", report.run.warnings);
    let found = attributes(&target.join("file"));
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found, attributes(&source.join("file")));
}
