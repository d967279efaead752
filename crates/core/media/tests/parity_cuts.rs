//! Goal: a power cut during a backup with parity stripes, or during a repair, costs nothing that was there: the set is
//! read bit for bit or refused, and after a reported success it is read even if any one stripe is lost.
//! Method: a backup and a repair run on a simulated disk once for each of their steps, with the power cut there; each
//! image that the cut may leave is read, whole and without each of its stripes.

mod support;

use std::path::Path;
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_media::{
    BackupDevice, DeviceSpec, Disposition, Error, Examined, MediaSet, ParityPlan,
};
use support::*;

const IMAGES: usize = 5;
const STRIPES: [&str; 4] = ["/m0/a", "/m1/b", "/m1/c", "/m2/p"];

fn devices_on(disk: &SimDisk) -> Vec<Arc<dyn BackupDevice>> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let device = |path: &&str| DeviceSpec::File(path.into()).open(&storage);
    STRIPES.iter().map(device).collect()
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    for mount in ["/m0", "/m1", "/m2"] {
        disk.mount(mount).unwrap();
    }
    disk
}

fn inputs(text: &str) -> Vec<Input> {
    vec![file("f", text.repeat(9000 / text.len()).as_bytes())]
}

fn write(disk: &SimDisk, disposition: Disposition, text: &str) -> Result<(), Error> {
    let shape = Shape {
        parity: ParityPlan {
            count: 1,
            row_bytes: 4096,
            ..ParityPlan::default()
        },
        ..Shape::new(disposition, Algorithm::None, 700)
    };
    write_set(&devices_on(disk), &shape, &inputs(text)).map(drop)
}

/// The set on the media, of which everything is checked.
fn read(disk: &SimDisk) -> Result<Content, String> {
    let mut sets = read_all(&devices_on(disk))?;
    match sets.len() {
        1 => Ok(sets.remove(0)),
        n => Err(format!("{n} sets")),
    }
}

/// Judges the media as they are, and without each of their stripes.
fn judge_all(image: &SimDisk, judge: impl Fn(Result<Content, String>, &str)) {
    judge(read(image), "whole");
    for stripe in STRIPES {
        let lost = image.images(2).remove(0);
        remove(&lost, stripe);
        judge(read(&lost), stripe);
    }
}

fn remove(disk: &SimDisk, path: &str) {
    let path = Path::new(path);
    let dir = disk.dir(path.parent().unwrap()).unwrap();
    let name = Path::new(path.file_name().unwrap());
    let _ = dir.remove_file(name);
    let mut pending = name.as_os_str().to_owned();
    pending.push(".longshore-new");
    let _ = dir.remove_file(Path::new(&pending));
}

#[test]
fn a_cut_at_any_step_of_a_new_backup_leaves_no_false_backup() {
    let new = |disk: &SimDisk| write(disk, Disposition::New, "abc");
    let expected = expected(&inputs("abc"));
    let steps = SimDisk::cut_everywhere(IMAGES, disk, new, |image, reported, at| {
        judge_all(image, |found, lost| match found {
            Ok(found) => assert!(found == expected, "{at}, {lost}"),
            Err(e) => assert!(!reported, "{at}, {lost}: lost a finished backup: {e}"),
        });
        write(image, Disposition::Format, "next").unwrap_or_else(|e| panic!("{at}: {e}"));
        assert!(read(image).is_ok(), "{at}");
    });
    assert!(steps >= 30, "only {steps} steps were cut");
}

#[test]
fn a_cut_at_any_step_of_a_replacing_backup_leaves_the_old_set_or_the_new_one() {
    let with_a_set = |seed| {
        let disk = disk(seed);
        write(&disk, Disposition::New, "old").unwrap();
        disk.settle();
        disk
    };
    let init = |disk: &SimDisk| write(disk, Disposition::Init { skip: true }, "newer");
    let (old, new) = (expected(&inputs("old")), expected(&inputs("newer")));
    SimDisk::cut_everywhere(IMAGES, with_a_set, init, |image, reported, at| {
        judge_all(image, |found, lost| match found {
            Ok(found) if reported => assert!(found == new, "{at}, {lost}"),
            Ok(found) => assert!(found == old || found == new, "{at}, {lost}"),
            // With a stripe lost in the middle of the renames, neither set need be there.
            Err(e) => assert!(!reported && lost != "whole", "{at}, {lost}: {e}"),
        });
    });
}

fn repair(disk: &SimDisk) -> Result<(), Error> {
    let devices = devices_on(disk);
    Examined::of(&devices, &|_| Ok(()))?.repair(&devices, &|_| Ok(()))?;
    Ok(())
}

/// Goal: what a killed repair began is never taken for better than the stripe that it was to replace, which still has the
/// rows that another stripe lacks; nor is it renamed over that stripe by the next repair.
#[test]
fn a_stripe_that_a_killed_repair_began_stands_in_nobodys_way() {
    let text = "harbour crane ship 17 ".repeat(2000);
    let inputs = vec![file("f", text.as_bytes())];
    let shape = Shape {
        parity: ParityPlan {
            count: 1,
            row_bytes: 4096,
            ..ParityPlan::default()
        },
        ..Shape::new(Disposition::New, Algorithm::None, 700)
    };
    let expected = expected(&inputs);
    for (begun, other) in [(1, 0), (0, 2), (3, 1)] {
        let damaged = |cut: usize| {
            let disk = disk(cut as u64);
            write_set(&devices_on(&disk), &shape, &inputs).unwrap();
            let whole = disk.read_file(STRIPES[begun]).unwrap();
            // No header here, and a row behind the first there.
            let spoil = |stripe, at: fn(usize) -> usize, len| {
                let mut bytes = disk.read_file(stripe).unwrap();
                let at = at(bytes.len());
                bytes[at..at + len].fill(0);
                disk.write_file(stripe, &bytes).unwrap();
            };
            spoil(STRIPES[begun], |_| 0, 64);
            spoil(STRIPES[other], |len| len / 8 * 7, 100);
            if cut > whole.len() {
                return None;
            }
            let new = format!("{}.longshore-new", STRIPES[begun]);
            disk.write_file(new, &whole[..cut]).unwrap();
            disk.settle();
            Some(disk)
        };
        let mut tried = 0;
        for cut in (0..).step_by(509) {
            let Some(disk) = damaged(cut) else { break };
            let at = format!("{begun}, {cut} bytes");
            assert!(read(&disk).as_ref() == Ok(&expected), "{at}");
            repair(&disk).unwrap_or_else(|e| panic!("{at}: {e}"));
            for stripe in STRIPES {
                let lost = disk.images(2).remove(0);
                remove(&lost, stripe);
                assert!(read(&lost).as_ref() == Ok(&expected), "{at}, {stripe}");
            }
            tried += 1;
        }
        assert!(tried > 20, "{tried}");
    }
}

#[test]
fn a_cut_at_any_step_of_a_repair_costs_nothing_and_the_next_repair_ends_it() {
    for stripe in [STRIPES[1], STRIPES[3]] {
        let degraded = |seed| {
            let disk = disk(seed);
            write(&disk, Disposition::New, "abc").unwrap();
            let mut bytes = disk.read_file(stripe).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 600].fill(0);
            disk.write_file(stripe, &bytes).unwrap();
            disk.settle();
            disk
        };
        let expected = expected(&inputs("abc"));
        SimDisk::cut_everywhere(IMAGES, degraded, repair, |image, reported, at| {
            let found = read(image);
            assert!(found.as_ref() == Ok(&expected), "{at}: {found:?}");
            if reported {
                let faults = MediaSet::open(&devices_on(image)).unwrap().faults();
                assert_eq!(faults, [], "{at}");
            }
            repair(image).unwrap_or_else(|e| panic!("{at}: {e}"));
            let faults = Examined::of(&devices_on(image), &|_| Ok(())).unwrap();
            assert_eq!(faults.faults(), [], "{at}");
            for stripe in STRIPES {
                let lost = image.images(2).remove(0);
                remove(&lost, stripe);
                assert!(read(&lost).as_ref() == Ok(&expected), "{at}, {stripe}");
            }
        });
    }
}

/// Goal: a device that refuses ends the backup with its name, whichever stripe is on it, and leaves nothing.
#[test]
fn a_device_that_is_full_ends_the_backup_and_is_named() {
    const ENOSPC: i32 = 28;
    for stripe in STRIPES {
        for nth in [1, 2] {
            let disk = disk(nth);
            let full = Fault::errno(ENOSPC)
                .on(Op::Write)
                .below(format!("{stripe}.longshore-new"))
                .nth(nth)
                .times(1);
            let refused = write(&disk.inject(full), Disposition::New, "abc").unwrap_err();
            let text = refused.to_string();
            assert!(text.contains(stripe), "{stripe} {nth}: {text}");
            let is_stripe = |path: &std::path::PathBuf| {
                let path = path.display().to_string();
                STRIPES.iter().any(|stripe| path.starts_with(stripe))
            };
            assert!(!disk.paths().iter().any(is_stripe), "{stripe} {nth}");
        }
    }
}
