//! Goal: a file that changes, shrinks, grows or vanishes while it is read is named and the set marked, or the backup
//! fails, as requested.
//! Method: a simulated disk on which that file is changed while it is opened or read.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use longshore_codec::Algorithm;
use longshore_io::{Attributes, Dir, Fault, Op, OpenHow, SimDisk, Storage, Via};
use longshore_media::DeviceSpec;
use longshore_pipeline::{Disposition, Error, OnChange, SourceSpec, Tuning};

const NAME: &str = "sub/busy";

type Deed = fn(&dyn Dir, &Path);

/// How the file is changed, during which of our calls, and what is reported.
const DEEDS: [(&str, Op, Deed, &str); 6] = [
    (
        "modified in place",
        Op::Read,
        |dir, name| {
            let file = dir.open(name, OpenHow::ReadWrite).unwrap();
            file.write_all_at(b"changed", 10, Via::Cache).unwrap();
        },
        "changed",
    ),
    (
        "modified, and its time set back",
        Op::Read,
        |dir, name| {
            let file = dir.open(name, OpenHow::ReadWrite).unwrap();
            let before = Attributes {
                mtime_ns: Some(file.stat().unwrap().mtime_ns),
                ..Attributes::default()
            };
            file.write_all_at(b"changed", 10, Via::Cache).unwrap();
            dir.set_attributes(name, &before).unwrap();
        },
        "changed",
    ),
    (
        "grown",
        Op::Read,
        |dir, name| {
            let file = dir.open(name, OpenHow::ReadWrite).unwrap();
            let end = file.stat().unwrap().len;
            file.write_all_at(b"more", end, Via::Cache).unwrap();
        },
        "changed",
    ),
    (
        "shrunk",
        Op::Read,
        |dir, name| {
            let file = dir.open(name, OpenHow::ReadWrite).unwrap();
            file.set_len(100).unwrap();
        },
        "became shorter",
    ),
    (
        "vanished",
        Op::Open,
        |dir, name| dir.remove_file(name).unwrap(),
        "vanished",
    ),
    (
        "became a directory",
        Op::Open,
        |dir, name| {
            dir.remove_file(name).unwrap();
            dir.create_dir(name).unwrap();
        },
        "vanished",
    ),
];

#[test]
fn a_file_that_does_not_keep_still_is_named_and_marked_or_fails_the_backup() {
    for (what, during, deed, told) in DEEDS {
        for len in [5_000, 200_000] {
            for (stripes, policy) in [
                (1, OnChange::Mark),
                (3, OnChange::Mark),
                (3, OnChange::Fail),
            ] {
                let at = format!("{what}, {len} bytes, {stripes} stripes, {policy:?}");
                let disk = SimDisk::new(1);
                disk.write_file("/m/neighbour", b"").unwrap();
                for (name, len) in [("after", 70_000), ("before", 3_000), (NAME, len)] {
                    let bytes = content(len as u64, len);
                    disk.write_file(Path::new("/a").join(name), &bytes).unwrap();
                }
                let busy = Path::new("/a").join(NAME);
                let others = disk.clone();
                let meanwhile = Fault::meanwhile(move || {
                    deed(&*others.dir(Path::new("/a")).unwrap(), Path::new(NAME))
                });
                disk.inject(meanwhile.on(during).below(&busy).times(1));
                let devices: Vec<_> = (0..stripes)
                    .map(|i| DeviceSpec::File(format!("/m/{i}").into()))
                    .collect();
                let mut request = backup_request(
                    SourceSpec::Files(vec!["/a".into()]),
                    devices.clone(),
                    Algorithm::Lz4,
                );
                request.on_change = policy;
                request.tuning = Tuning {
                    buffer_count: None,
                    buffer_bytes: Some(64 << 10),
                };
                let before = disk.paths();
                let context = context_on(Arc::new(disk.clone()));
                let result = backup(&context, request.clone());
                if policy == OnChange::Fail {
                    let Err(Error::Changed { path, what }) = &result else {
                        panic!("{at}: {result:?}")
                    };
                    assert!(path.ends_with(NAME), "{at}: {}", path.display());
                    assert!(what.contains(told), "{at}: {what}");
                    let left = |p: &std::path::PathBuf| p.starts_with("/m") && !before.contains(p);
                    assert_eq!(disk.paths().iter().find(|p| left(p)), None, "{at}");
                    continue;
                }
                let report = result.unwrap();
                assert!(report.damaged, "{at}");
                assert_eq!(report.changed.len(), 1, "{at}: {:?}", report.changed);
                assert_eq!(report.changed[0].path, NAME, "{at}");
                assert!(
                    report.changed[0].what.contains(told),
                    "{at}: {:?}",
                    report.changed
                );
                assert!(!report.run.warnings.is_empty(), "{at}");
                // The set is valid, and says that its files are not.
                let verified = verify(&context, devices.clone()).unwrap();
                assert!(verified.is_valid(), "{at}: {:?}", verified.findings);
                assert!(verified.sets[0].made_damaged, "{at}");
                let restored =
                    restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
                assert!(restored.damaged, "{at}");
                let told = restored.run.warnings.iter().any(|w| w.contains("3188"));
                let named = restored.run.warnings.iter().any(|w| w.contains(NAME));
                assert!(told && named, "{at}: {:?}", restored.run.warnings);
                assert_eq!(
                    disk.read_file(Path::new("/out").join(NAME)).unwrap().len(),
                    len,
                    "{at}"
                );
                for (name, len) in [("after", 70_000), ("before", 3_000)] {
                    let bytes = disk.read_file(Path::new("/out").join(name)).unwrap();
                    assert!(bytes == content(len as u64, len), "{at}: {name}");
                }
                // Nothing changes now: the next set is clean.
                request.disposition = Disposition::Append;
                assert!(!backup(&context, request).unwrap().damaged, "{at}");
            }
        }
    }
}

/// Goal: a name that is gone when the walk comes to it is told as a file is that is gone when it is opened.
/// Not covered: its new name, since the simulated disk's directories keep their times.
#[test]
fn a_name_that_is_gone_before_it_is_looked_at_marks_the_set_or_fails_the_backup() {
    for policy in [OnChange::Mark, OnChange::Fail] {
        for becomes in [None, Some("sub/new")] {
            let disk = SimDisk::new(1);
            disk.write_file("/m/neighbour", b"").unwrap();
            disk.write_file("/a/other", &content(1, 3_000)).unwrap();
            disk.write_file(Path::new("/a").join(NAME), &content(2, 5_000))
                .unwrap();
            let others = disk.clone();
            let meanwhile = Fault::meanwhile(move || {
                let dir = others.dir(Path::new("/a")).unwrap();
                match becomes {
                    None => dir.remove_file(Path::new(NAME)).unwrap(),
                    Some(new) => dir.rename(Path::new(NAME), Path::new(new)).unwrap(),
                }
            });
            let busy = Path::new("/a").join(NAME);
            disk.inject(meanwhile.on(Op::Stat).below(&busy).times(1));
            let devices = vec![DeviceSpec::File("/m/0".into())];
            let source = SourceSpec::Files(vec!["/a".into()]);
            let mut request = backup_request(source, devices.clone(), Algorithm::Lz4);
            request.on_change = policy;
            let result = backup(&context_on(Arc::new(disk.clone())), request);
            let at = format!("{policy:?}, {becomes:?}");
            if policy == OnChange::Fail {
                let Err(Error::Changed { path, what }) = &result else {
                    panic!("{at}: {result:?}")
                };
                assert!(path.ends_with(NAME), "{at}: {}", path.display());
                assert_eq!(*what, "vanished", "{at}");
                continue;
            }
            let report = result.unwrap();
            assert!(report.damaged, "{at}");
            let told = &report.run.warnings;
            assert!(told.iter().any(|w| w.contains(NAME)), "{at}: {told:?}");
            let context = context_on(Arc::new(disk.clone()));
            let restored = restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
            assert!(restored.damaged, "{at}");
            let old = Path::new("/out").join(NAME);
            assert!(disk.read_file(old).is_err(), "{at}");
        }
    }
}

#[test]
fn three_thousand_changed_files_are_all_marked() {
    // More marks than one block holds, and more than a report names.
    let disk = SimDisk::new(1);
    disk.write_file("/m/neighbour", b"").unwrap();
    for i in 0..3_000 {
        disk.write_file(
            format!("/a/a file that is about to be removed {i}"),
            b"bytes",
        )
        .unwrap();
    }
    disk.write_file("/a/one more", b"bytes").unwrap();
    // The directory is opened to be marked, for the lock of a restore in it, and to be listed.
    let gone = Fault::errno(libc::ENOENT).on(Op::Open).below("/a").nth(4);
    let context = context_on(Arc::new(disk.clone()));
    let devices = vec![DeviceSpec::File("/m/a.bak".into())];
    let request = backup_request(
        SourceSpec::Files(vec!["/a".into()]),
        devices.clone(),
        Algorithm::Lz4,
    );
    disk.inject(gone);
    let report = backup(&context, request).unwrap();
    disk.heal();
    assert!(
        report.damaged && report.changed.len() == 100,
        "{}",
        report.changed.len()
    );
    assert!(
        report
            .run
            .warnings
            .iter()
            .any(|w| w.contains("3001 files changed")),
        "{:?}",
        report.run.warnings
    );
    let verified = verify(&context, devices.clone()).unwrap();
    assert!(verified.is_valid() && verified.sets[0].made_damaged);
    assert!(
        restore(&context, restore_request(devices, Path::new("/out")))
            .unwrap()
            .damaged
    );
}
