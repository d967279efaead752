//! Goal: restoring some files of a set reads their blocks and no others.
//! Method: a set of many files on several stripes, some of them restored; all other bytes in the stripes are destroyed
//! first, so that reading them fails. Contents are compared with the files that were backed up.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::*;
use longshore_codec::Algorithm;
use longshore_media::DeviceSpec;
use longshore_pipeline::{BackupReport, Error, RestoreReport, SourceSpec, Tuning};

const FILES: usize = 24;
const LEN: usize = 500_000;

fn name(i: usize) -> PathBuf {
    format!("d{}/f{i}", i % 3).into()
}

fn back_up(dir: &Path, stripes: usize) -> (Vec<DeviceSpec>, BackupReport) {
    for i in 0..FILES {
        let path = dir.join("src").join(name(i));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(i as u64, LEN)).unwrap();
    }
    let devices = common::stripes(dir, stripes);
    let spec = SourceSpec::Files(vec![dir.join("src")]);
    let mut request = backup_request(spec, devices.clone(), Algorithm::QatDeflate);
    request.tuning = Tuning {
        buffer_count: None,
        buffer_bytes: Some(64 << 10),
    };
    let report = backup(&context(), request).unwrap();
    (devices, report)
}

fn restore_only(
    devices: &[DeviceSpec],
    target: &Path,
    only: &[&Path],
) -> Result<RestoreReport, Error> {
    let mut request = restore_request(devices.to_vec(), target);
    request.only = only.iter().map(|p| p.to_path_buf()).collect();
    restore(&context(), request)
}

/// All files below, by their names.
fn found(target: &Path) -> Vec<PathBuf> {
    let is_file = |p: &Path| std::fs::symlink_metadata(target.join(p)).unwrap().is_file();
    let names = describe(target).into_keys();
    names.filter(|p| is_file(p)).collect()
}

#[test]
fn only_the_blocks_of_what_is_wanted_are_read() {
    for stripes in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let (devices, report) = back_up(dir.path(), stripes);
        let target = dir.path().join("one");
        let restored = restore_only(&devices, &target, &[&name(7)]).unwrap();
        assert_eq!(found(&target), [name(7)]);
        assert!(std::fs::read(target.join(name(7))).unwrap() == content(7, LEN));
        let share = report.stored_bytes / FILES as u64;
        assert!(
            (share / 2..2 * share).contains(&restored.stored_bytes),
            "{} of {} stored bytes were read",
            restored.stored_bytes,
            report.stored_bytes
        );
        let target = dir.path().join("some");
        restore_only(&devices, &target, &[Path::new("d1"), &name(0)]).unwrap();
        let wanted = |i: &usize| *i == 0 || i % 3 == 1;
        let mut all: Vec<_> = (0..FILES).filter(wanted).map(name).collect();
        all.sort();
        assert_eq!(found(&target), all);
        for i in (0..FILES).filter(wanted) {
            assert!(std::fs::read(target.join(name(i))).unwrap() == content(i as u64, LEN));
        }
    }
}

#[test]
fn damage_elsewhere_in_the_stripe_does_not_matter_and_damage_in_its_blocks_does() {
    let dir = tempfile::tempdir().unwrap();
    let (devices, report) = back_up(dir.path(), 1);
    let DeviceSpec::File(stripe) = &devices[0] else {
        panic!("not a file")
    };
    // Damage at one position breaks the restore of files that have blocks there, and of no others.
    let at = report.stored_bytes * 3 / 4;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(stripe)
        .unwrap();
    file.write_all_at(&[0xAA; 100], at).unwrap();
    assert!(restore_only(&devices, &dir.path().join("all"), &[]).is_err());
    let (mut whole, mut broken) = (0, 0);
    for i in 0..FILES {
        let target = dir.path().join(format!("t{i}"));
        match restore_only(&devices, &target, &[&name(i)]) {
            Ok(_) => {
                assert!(std::fs::read(target.join(name(i))).unwrap() == content(i as u64, LEN));
                whole += 1;
            }
            Err(Error::Media(_)) => broken += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(
        (1..=2).contains(&broken),
        "{broken} of {FILES} broken, {whole} whole"
    );
}

#[test]
fn with_a_damaged_index_the_stripes_are_what_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (devices, _) = back_up(dir.path(), 1);
    let DeviceSpec::File(stripe) = &devices[0] else {
        panic!("not a file")
    };
    let whole = std::fs::read(stripe).unwrap();
    // The index precedes the trailer, at the end.
    for back in [200, 400, 600] {
        let mut bytes = whole.clone();
        let at = bytes.len() - back;
        bytes[at] ^= 0x10;
        std::fs::write(stripe, &bytes).unwrap();
        let all = restore_only(&devices, &dir.path().join("all"), &[]);
        let one = restore_only(&devices, &dir.path().join("one"), &[&name(3)]);
        let text = |r: &Result<RestoreReport, Error>| r.as_ref().err().map(|e| e.to_string());
        assert_eq!(text(&all), text(&one), "{back}");
        assert!(text(&one).is_some(), "{back}");
    }
}
