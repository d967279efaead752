//! Goal: trees of unusual shapes are restored, without an unusual number of steps.
//! Method: real or simulated trees whose manifests end at every position of an entry, whose paths are as long as the
//! system allows and longer, or whose directories their owner may not write to.

mod common;

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::*;
use longshore_codec::Algorithm;
use longshore_io::{Op, SimDisk};
use longshore_media::DeviceSpec;
use longshore_pipeline::{Error, OnChange, SourceSpec};

#[test]
fn blocks_whose_manifests_are_full_restore() {
    // Names of many lengths, so that manifests end everywhere within an entry; two buffers and more.
    let disk = SimDisk::new(1);
    disk.write_file("/m/neighbour", b"").unwrap();
    let mut files = HashMap::new();
    for i in 0..6000usize {
        let name = format!("d{}/{}{i}", i % 5, "n".repeat(i % 90));
        files.insert(PathBuf::from(&name), content(i as u64, i % 7));
    }
    files.insert("d0/large".into(), content(9, 3_000_000));
    for (name, bytes) in &files {
        disk.write_file(Path::new("/src").join(name), bytes)
            .unwrap();
    }
    let context = context_on(Arc::new(disk.clone()));
    let devices: Vec<_> = ["/m/a.bak", "/m/b.bak"]
        .map(|p| DeviceSpec::File(p.into()))
        .into();
    let spec = SourceSpec::Files(vec!["/src".into()]);
    backup(
        &context,
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let before = disk.steps();
    restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
    for (name, bytes) in &files {
        let got = disk.read_file(Path::new("/out").join(name)).unwrap();
        assert!(got == *bytes, "{}", name.display());
    }
    let syncs = disk.history()[before as usize..]
        .iter()
        .filter(|(op, _)| format!("{op:?}").starts_with("Sync"))
        .count();
    assert!(syncs < 20, "{syncs} syncs");
}

#[test]
fn several_directories_come_back_side_by_side() {
    let disk = SimDisk::new(1);
    let names = ["one/a", "two/b", "two/below/c"];
    for name in names {
        let path = Path::new("/src").join(name);
        disk.write_file(path, name.as_bytes()).unwrap();
    }
    disk.write_file("/m/neighbour", b"").unwrap();
    let context = context_on(Arc::new(disk.clone()));
    let devices = vec![DeviceSpec::File("/m/a.bak".into())];
    let spec = SourceSpec::Files(vec!["/src/one".into(), "/src/two".into()]);
    let request = backup_request(spec, devices.clone(), Algorithm::Lz4);
    backup(&context, request).unwrap();
    restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
    for name in names {
        let got = disk.read_file(Path::new("/out").join(name)).unwrap();
        assert_eq!(got, name.as_bytes());
    }
}

/// Goal: a few files are synced individually, once each; many are synced together, and moving them needs no further
/// syncs.
#[test]
fn a_restore_syncs_a_file_at_most_once_and_many_together() {
    for (files, replace) in [(500, false), (500, true), (4200, false)] {
        let disk = SimDisk::new(1);
        disk.write_file("/m/neighbour", b"").unwrap();
        for i in 0..files {
            let bytes = content(i, 10);
            disk.write_file(format!("/src/f{i}"), &bytes).unwrap();
        }
        let context = context_on(Arc::new(disk.clone()));
        let devices = vec![DeviceSpec::File("/m/a.bak".into())];
        let spec = SourceSpec::Files(vec!["/src".into()]);
        backup(
            &context,
            backup_request(spec, devices.clone(), Algorithm::Lz4),
        )
        .unwrap();
        let mut request = restore_request(devices, Path::new("/out"));
        if replace {
            restore(&context, request.clone()).unwrap();
            request.replace = true;
        }
        let before = disk.steps();
        restore(&context, request).unwrap();
        let history = &disk.history()[before as usize..];
        // The journal of the names that are moved is no file of the tree.
        let is_journal = |path: &Path| path.to_string_lossy().contains("-restoring/moving");
        let of_tree = |(_, path): &&(Op, PathBuf)| !is_journal(path);
        let syncs = |op| {
            history
                .iter()
                .filter(of_tree)
                .filter(|(o, _)| *o == op)
                .count() as u64
        };
        let found = [syncs(Op::Sync), syncs(Op::SyncAll)];
        let expected = if files == 500 { [500, 0] } else { [0, 1] };
        assert_eq!(found, expected, "{files} files, replace {replace}");
        let dirs = syncs(Op::SyncDir);
        assert!(dirs < 10, "{files} files, replace {replace}: {dirs}");
    }
}

#[test]
fn the_longest_path_restores_and_a_longer_one_is_left_out_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Renaming a tree into another one makes a path longer than the system accepts.
    let source = dir.path().join("source");
    let deep = |below: &Path, levels: usize| {
        let mut path = below.to_path_buf();
        for _ in 0..levels {
            path.push("x".repeat(250));
        }
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let bottom = deep(&source, 15);
    std::fs::write(bottom.join("file"), b"down here").unwrap();
    let media = stripes(dir.path(), 1);
    let spec = SourceSpec::Files(vec![source.clone()]);
    let request = backup_request(spec, media.clone(), Algorithm::Lz4);
    backup(&context(), request.clone()).unwrap();
    // Restored below a short name: the target's own path and the staging directory are added.
    let target = dir.path().join("out");
    restore(&context(), restore_request(media, &target)).unwrap();
    assert_eq!(describe(&target), describe(&source));

    let second = dir.path().join("second");
    let inner = deep(&second, 3);
    std::fs::write(inner.join("file"), b"deeper").unwrap();
    std::fs::rename(second, bottom.join("second")).unwrap();
    let mut longer = request;
    longer.devices = vec![DeviceSpec::File(dir.path().join("longer.bak"))];
    longer.on_change = OnChange::Fail;
    let refused = backup(&context(), longer.clone()).unwrap_err();
    assert!(matches!(refused, Error::LeftOut { .. }), "{refused:?}");
    assert!(refused.to_string().len() < 2000, "{refused}");
    assert!(!dir.path().join("longer.bak").exists());
    // Everything else is included, and the set says that something is missing.
    longer.on_change = OnChange::Mark;
    let report = backup(&context(), longer.clone()).unwrap();
    assert!(report.damaged, "{:?}", report.run.warnings);
    assert!(report.run.warnings[0].contains("not in the backup"));
    let target = dir.path().join("out2");
    let restored = restore(&context(), restore_request(longer.devices, &target)).unwrap();
    assert!(restored.damaged);
    let file = bottom.strip_prefix(&source).unwrap().join("file");
    assert_eq!(std::fs::read(target.join(file)).unwrap(), b"down here");
}

/// Runs this test binary's `name` again as a user without privileges, if this user has them.
fn as_nobody(name: &str) -> bool {
    const NOBODY: u32 = 65_534;
    // SAFETY: `geteuid` demands nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return false;
    }
    let copy = tempfile::tempdir().unwrap();
    std::fs::set_permissions(copy.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = copy.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    use std::os::unix::process::CommandExt;
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env("TMPDIR", "/tmp")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

#[test]
fn directories_their_owner_may_not_write_to_come_back_without_privileges() {
    if as_nobody("directories_their_owner_may_not_write_to_come_back_without_privileges") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("closed/inner")).unwrap();
    std::fs::write(source.join("closed/inner/file"), b"bytes").unwrap();
    let close = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o555)).unwrap();
    };
    close(&source.join("closed/inner"));
    close(&source.join("closed"));
    let media = stripes(dir.path(), 1);
    let spec = SourceSpec::Files(vec![source.clone()]);
    backup(
        &context(),
        backup_request(spec, media.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let target = dir.path().join("out");
    restore(&context(), restore_request(media.clone(), &target)).unwrap();
    assert_eq!(describe(&target), describe(&source));
    assert!(!target.join(".longshore-restoring").exists());
    for root in [&source, &target] {
        for name in ["closed", "closed/inner"] {
            let path = root.join(name);
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o555);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// Reserving space ahead must not fill holes permanently.
#[test]
fn holes_of_large_files_come_back_as_holes() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    std::fs::create_dir(&source).unwrap();
    let file = std::fs::File::create(source.join("disk.img")).unwrap();
    file.set_len(200 << 20).unwrap();
    let islands = [(0, 3 << 20), (70 << 20, 5000), ((199 << 20) + 77, 900_000)];
    for (at, len) in islands {
        std::os::unix::fs::FileExt::write_all_at(&file, &content(at, len), at).unwrap();
    }
    let devices = stripes(dir.path(), 2);
    let spec = SourceSpec::Files(vec![source.clone()]);
    backup(
        &context(),
        backup_request(spec, devices.clone(), Algorithm::Lz4),
    )
    .unwrap();
    let target = dir.path().join("out");
    restore(&context(), restore_request(devices, &target)).unwrap();
    let (before, after) = (source.join("disk.img"), target.join("disk.img"));
    let used = |path: &Path| path.metadata().unwrap().blocks() * 512;
    assert!(
        used(&after) <= used(&before) + (1 << 20),
        "{} bytes of disk became {}",
        used(&before),
        used(&after)
    );
    assert!(std::fs::read(before).unwrap() == std::fs::read(after).unwrap());
}
