//! Goal: no power cut during a backup to a target, or during an expire, leaves something that looks like a backup and
//! is none, or takes a backup that was to be kept.
//! Method: count the steps of one run on a simulated disk, then run once per step with the power cut there, and look
//! at every image the cut can leave.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::*;
use longshore_io::{SimDisk, Storage};
use longshore_repository::retention::Policy;
use longshore_repository::{Kind, Shelf, State};

const IMAGES: usize = 6;
const DIRECTORIES: [&str; 2] = ["/m0/t", "/m1/t"];

fn disk(seed: u64, backups: i64) -> SimDisk {
    let disk = SimDisk::new(seed);
    for mount in ["/m0", "/m1", "/out"] {
        disk.mount(mount).unwrap();
    }
    for dir in DIRECTORIES {
        disk.write_file(Path::new(dir).join("other/keep"), b"x")
            .unwrap();
    }
    disk.write_file("/source/file", &[5; 70_000]).unwrap();
    for day in 1..=backups {
        shelve(&on(&disk), Path::new("/source"), day);
    }
    disk.settle();
    disk
}

fn on(disk: &SimDisk) -> Shelf {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    shelf(&storage, &DIRECTORIES.map(Path::new))
}

fn expire(disk: &SimDisk) -> bool {
    let policy = Policy {
        keep_full: Some(2),
        ..Policy::default()
    };
    let never = AtomicBool::new(false);
    on(disk)
        .expire(&policy, i64::MAX / 2, false, &never)
        .is_ok()
}

/// Every backup that looks complete is.
fn check_complete(image: &SimDisk, at: &str) -> usize {
    let shelf = on(image);
    let storage: Arc<dyn Storage> = Arc::new(image.clone());
    let listing = shelf.list().unwrap_or_else(|e| panic!("{at}: {e}"));
    let whole = listing
        .sets
        .iter()
        .filter(|s| matches!(s.state, State::Complete(_)));
    whole
        .map(|set| {
            let to = Path::new("/out").join(set.label.as_str());
            restore(&storage, &set.devices, &to).unwrap_or_else(|e| panic!("{at}: {e}"));
            assert_eq!(
                image.read_file(to.join("file")).unwrap(),
                [5; 70_000],
                "{at}"
            );
        })
        .count()
}

#[test]
fn a_power_cut_at_any_step_of_an_expire_leaves_whole_backups_or_none() {
    let whole = disk(3, 4);
    let before = whole.steps();
    assert!(expire(&whole));
    let steps = whole.steps() - before;
    let mut halves = 0;
    for step in 0..=steps {
        let disk = disk(step, 4);
        let at = disk.steps() + step;
        let reported = expire(&disk.cut_power_at(at));
        for (i, image) in disk.images(IMAGES).iter().enumerate() {
            let at = format!("cut at step {step} of {steps}, image {i}");
            let standing = check_complete(image, &at);
            assert!((2..=4).contains(&standing), "{at}: {standing} are left");
            assert!(!reported || standing == 2, "{at}");
            let listing = on(image).list().unwrap();
            // Nothing between whole and gone is taken for anything but a removal.
            for set in &listing.sets {
                let word = set.state.word();
                assert!(matches!(word, "complete" | "removing"), "{at}: {word}");
                halves += usize::from(word == "removing");
            }
            // The kept ones are the newest.
            let newest: Vec<_> = listing.sets.iter().rev().take(2).collect();
            assert!(newest.iter().all(|s| s.complete().is_some()), "{at}");
            assert!(expire(image), "{at}: the next expire");
            assert_eq!(check_complete(image, &at), 2, "{at}");
            let left = image.paths();
            let rubbish = |p: &&std::path::PathBuf| {
                let text = p.to_string_lossy();
                text.contains(".removing") || p.to_string_lossy().contains("family-3")
            };
            assert_eq!(left.iter().find(rubbish), None, "{at}");
            assert!(image.read_file("/m1/t/other/keep").is_ok(), "{at}");
        }
    }
    assert!(
        steps >= 20 && halves > 20,
        "{steps} steps, {halves} half removals"
    );
}

#[test]
fn a_power_cut_at_any_step_of_a_backup_leaves_what_an_expire_can_tell_and_clear() {
    let back_up_one = |disk: &SimDisk| {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let berth = on(disk).begin(Kind::Full, 2 * 86_400_000_000);
        berth.is_ok_and(|berth| {
            back_up(&storage, Path::new("/source"), &berth.devices, "db").is_ok()
        })
    };
    let whole = disk(3, 1);
    let before = whole.steps();
    assert!(back_up_one(&whole));
    let steps = whole.steps() - before;
    for step in 0..=steps {
        let disk = disk(step, 1);
        let at = disk.steps() + step;
        let reported = back_up_one(&disk.cut_power_at(at));
        for (i, image) in disk.images(IMAGES).iter().enumerate() {
            let at = format!("cut at step {step} of {steps}, image {i}");
            let standing = check_complete(image, &at);
            assert!(standing > usize::from(reported), "{at}");
            for set in on(image).list().unwrap().sets {
                let word = set.state.word();
                // A lease that lost its content is somebody's until it is old.
                let known = matches!(word, "complete" | "INCOMPLETE" | "writing");
                assert!(known, "{at}: {}", set.state.text());
            }
            shelve(&on(image), Path::new("/source"), 3);
            assert!(expire(image), "{at}");
            assert!(check_complete(image, &at) >= 2, "{at}");
        }
    }
    assert!(steps >= 20, "{steps} steps");
}
