//! Goal: no power cut during a backup to a target, or during an expire, leaves something that looks like a backup and
//! is not, or removes a backup that was to be kept.
//! Method: count the steps of one run on a simulated disk, then run once per step with the power cut there, and check
//! every image the cut can leave. Backups that are encrypted, and have key objects next to them, are cut like others.

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use common::*;
use longshore_crypt::{Identities, Identity};
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_media::{Keyring, MediaSet, Recipients};
use longshore_repository::retention::Policy;
use longshore_repository::{BackupKind, BackupState, Shelf};

const IMAGES: usize = 6;
const EIO: i32 = 5;
const DIRECTORIES: [&str; 2] = ["/m0/t", "/m1/t"];

/// An identity that encrypted backups are for.
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::new_x25519().unwrap());
/// An identity that key objects are for, and no slot on media.
static SECOND: LazyLock<Identity> = LazyLock::new(|| Identity::new_x25519().unwrap());

fn recipients_of(identity: &Identity) -> Recipients {
    Recipients::new(vec![identity.recipient()], false).unwrap()
}

fn recipients() -> Recipients {
    recipients_of(&IDENTITY)
}

fn keyring_of(identity: &Identity) -> Arc<Keyring> {
    let identities = Identities::new(vec![identity.clone()]);
    Arc::new(Keyring::new(identities, false))
}

fn keyring() -> Arc<Keyring> {
    keyring_of(&IDENTITY)
}

/// The key objects below a path that has this part.
fn key_objects(disk: &SimDisk, part: &str) -> usize {
    let is_one = |path: &&std::path::PathBuf| {
        let is_object = path.extension().is_some_and(|end| end == "lsk");
        is_object && path.iter().any(|of| of.to_string_lossy() == part)
    };
    disk.paths().iter().filter(is_one).count()
}

/// [`disk`], with encrypted backups, which have a key object in each directory.
fn sealed_disk(seed: u64, backups: i64) -> SimDisk {
    let disk = disk(seed, 0);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    for day in 1..=backups {
        let begun = on(&disk).begin(BackupKind::Full, day * 86_400_000_000);
        let begun = Arc::new(begun.unwrap());
        let how = ("db", Some(recipients()));
        back_up_for(&storage, Path::new("/source"), &begun, how).unwrap();
        let devices: Vec<_> = begun.devices.iter().map(|d| d.open(&storage)).collect();
        let media = MediaSet::open(&devices).unwrap().with_keyring(&keyring());
        let opened = media.opened(1).unwrap().unwrap();
        let object = opened.object(&recipients_of(&SECOND), 1).unwrap();
        for folder in media.folders() {
            let (name, bytes) = (object.name().unwrap(), object.encode().unwrap());
            folder.write(&name, &bytes).unwrap();
        }
    }
    disk.settle();
    disk
}

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
        .expire(&policy, &|| i64::MAX / 2, false, &never)
        .is_ok()
}

/// Every backup that looks complete is complete.
fn check_complete(image: &SimDisk, at: &str) -> usize {
    check_complete_for(image, at, &keyring())
}

/// The same of [`sealed_disk`], where each backup also has its key objects, and opens by them.
fn check_sealed(image: &SimDisk, at: &str) -> usize {
    for set in on(image).list().unwrap().sets {
        if set.complete().is_some() {
            let objects = key_objects(image, set.label.as_str());
            assert_eq!(objects, 2, "{at}: {}", set.label.as_str());
        }
    }
    check_complete_for(image, at, &keyring_of(&SECOND))
}

fn check_complete_for(image: &SimDisk, at: &str, keyring: &Arc<Keyring>) -> usize {
    let shelf = on(image);
    let storage: Arc<dyn Storage> = Arc::new(image.clone());
    let listing = shelf.list().unwrap_or_else(|e| panic!("{at}: {e}"));
    let whole = listing
        .sets
        .iter()
        .filter(|s| matches!(s.state, BackupState::Complete(_)));
    whole
        .map(|set| {
            let to = Path::new("/out").join(set.label.as_str());
            let restored = restore_with(&storage, &set.devices, &to, keyring);
            restored.unwrap_or_else(|e| panic!("{at}: {e}"));
            assert_eq!(
                image.read_file(to.join("file")).unwrap(),
                [5; 70_000],
                "{at}"
            );
        })
        .count()
}

/// Whole backups or none, the newest among them; the next expire leaves nothing else. Gives how many were half removed.
fn check_expired(image: &SimDisk, reported: bool, at: &str) -> usize {
    check_expired_by(&check_complete, image, reported, at)
}

/// Counts the backups that look complete, each of which is, or fails.
type Complete<'a> = &'a dyn Fn(&SimDisk, &str) -> usize;

fn check_expired_by(complete: Complete<'_>, image: &SimDisk, reported: bool, at: &str) -> usize {
    let standing = complete(image, at);
    assert!((2..=4).contains(&standing), "{at}: {standing} are left");
    assert!(!reported || standing == 2, "{at}");
    let listing = on(image).list().unwrap();
    let words: Vec<_> = listing.sets.iter().map(|set| set.state.word()).collect();
    // Nothing between whole and gone is taken for anything but a removal.
    let known = |word: &&str| matches!(*word, "complete" | "removing");
    assert!(words.iter().all(known), "{at}: {words:?}");
    // The kept ones are the newest.
    let newest: Vec<_> = listing.sets.iter().rev().take(2).collect();
    assert!(newest.iter().all(|s| s.complete().is_some()), "{at}");
    assert!(expire(image), "{at}: the next expire");
    assert_eq!(complete(image, at), 2, "{at}");
    // Those of the two, or of backups that have none.
    let objects = key_objects(image, "db");
    assert!(matches!(objects, 0 | 4), "{at}: {objects} key objects");
    let left = image.paths();
    let rubbish = |p: &&std::path::PathBuf| {
        let text = p.to_string_lossy();
        text.contains(".removing") || text.contains("family-3")
    };
    assert_eq!(left.iter().find(rubbish), None, "{at}");
    assert!(image.read_file("/m1/t/other/keep").is_ok(), "{at}");
    words.iter().filter(|word| **word == "removing").count()
}

#[test]
fn a_power_cut_at_any_step_of_an_expire_leaves_whole_backups_or_none() {
    cut_expires(&disk, &check_complete);
}

/// Goal: key objects go with their backup, and after its stripes: none is left, and none is missing at a backup that stands.
#[test]
fn a_power_cut_at_any_step_of_an_expire_leaves_no_key_object_behind() {
    cut_expires(&sealed_disk, &check_sealed);
    let disk = sealed_disk(3, 4);
    assert_eq!((check_sealed(&disk, ""), key_objects(&disk, "db")), (4, 8));
    assert!(expire(&disk));
    assert_eq!((check_sealed(&disk, ""), key_objects(&disk, "db")), (2, 4));
    // Without its object in one directory, a backup is seen to lack it; without both it does not open.
    let objects = || {
        disk.paths()
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "lsk"))
    };
    let dir = disk.dir(Path::new("/")).unwrap();
    for object in objects().collect::<Vec<_>>() {
        dir.remove_file(object.strip_prefix("/").unwrap()).unwrap();
        let check = || assert_eq!(check_sealed(&disk, "without"), 2);
        assert!(fails(check));
    }
    let second = keyring_of(&SECOND);
    assert!(fails(|| assert_eq!(
        check_complete_for(&disk, "none", &second),
        2
    )));
    assert_eq!(check_complete(&disk, "by the media"), 2);
}

fn cut_expires(prepare: &dyn Fn(u64, i64) -> SimDisk, complete: Complete<'_>) {
    let whole = prepare(3, 4);
    let before = whole.steps();
    assert!(expire(&whole));
    let steps = whole.steps() - before;
    let mut halves = 0;
    for step in 0..=steps {
        let disk = prepare(step, 4);
        let at = disk.steps() + step;
        let reported = expire(&disk.cut_power_at(at));
        for (i, image) in disk.images(IMAGES).iter().enumerate() {
            let at = format!("cut at step {step} of {steps}, image {i}");
            halves += check_expired_by(complete, image, reported, &at);
        }
    }
    assert!(
        steps >= 20 && halves > 20,
        "{steps} steps, {halves} half removals"
    );
}

/// Goal: a rename that nobody made durable is none. Every backup is renamed in both directories, durably, before its
/// stripes go, also where a killed expire had renamed it.
#[test]
fn a_removal_that_a_killed_expire_began_is_durable_before_stripes_are_removed() {
    let whole = disk(3, 4);
    let before = whole.steps();
    assert!(expire(&whole));
    let history = whole.history().split_off(before as usize);
    let renames = (1..).zip(&history).filter(|(_, (op, _))| *op == Op::Rename);
    let renames: Vec<u64> = renames.map(|(step, _)| step).collect();
    assert_eq!(renames.len(), 4, "two backups in two directories");
    let prepared = |seed, killed: u64| {
        let disk = disk(seed, 4);
        disk.inject(Fault::errno(EIO).from_step(before + killed));
        assert!(!expire(&disk));
        disk.heal()
    };
    let steps = |killed| {
        let whole = prepared(3, killed);
        let before = whole.steps();
        assert!(expire(&whole));
        whole.steps() - before
    };
    for &killed in &renames {
        for step in 0..=steps(killed) {
            let disk = prepared(step, killed);
            let at = disk.steps() + step;
            let reported = expire(&disk.cut_power_at(at));
            for (i, image) in disk.images(IMAGES).iter().enumerate() {
                let at = format!("killed at {killed}, cut at {step}, image {i}");
                check_expired(image, reported, &at);
            }
        }
    }
    // Of the first backup's second rename, the sync that the next expire owes is forgotten.
    let forgotten = Fault::forgotten_sync().on(Op::SyncDir).below("/m1/t/db");
    let found = (0..=steps(renames[1])).any(|step| {
        let disk = prepared(step, renames[1]).inject(forgotten.clone().times(1));
        let at = disk.steps() + step;
        let reported = expire(&disk.cut_power_at(at));
        let images = disk.images(IMAGES);
        let fails = |image| fails(|| assert!(check_expired(image, reported, "forgotten") < 9));
        images.iter().any(fails)
    });
    assert!(found);
}

/// Goal: the test of power cuts sees it where the rename in the last directory is not made durable before stripes go.
#[test]
fn a_forgotten_sync_of_the_last_rename_of_an_expire_is_found() {
    let whole = disk(3, 4);
    let before = whole.steps();
    assert!(expire(&whole));
    let steps = whole.steps() - before;
    let last = |path: &Path| path.components().eq(Path::new("/m1/t/db").components());
    let mut forgotten = whole.forgetting(before);
    forgotten.retain(|(path, _)| last(path));
    // Of each backup, the first is of the rename and the second of the removal.
    assert_eq!(forgotten.len(), 4);
    for (_, fault) in forgotten.into_iter().step_by(2) {
        let found = (0..=steps).any(|step| {
            let disk = disk(step, 4).inject(fault.clone());
            let at = disk.steps() + step;
            let reported = expire(&disk.cut_power_at(at));
            let images = disk.images(IMAGES);
            let fails = |image| fails(|| assert!(check_expired(image, reported, "forgotten") < 9));
            images.iter().any(fails)
        });
        assert!(found);
    }
}

/// Whether a check fails.
fn fails(check: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err()
}

fn back_up_one(disk: &SimDisk) -> bool {
    back_up_one_for(disk, None)
}

fn back_up_one_for(disk: &SimDisk, recipients: Option<Recipients>) -> bool {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let begun = on(disk).begin(BackupKind::Full, 2 * 86_400_000_000);
    begun.is_ok_and(|begun| {
        let how = ("db", recipients);
        back_up_for(&storage, Path::new("/source"), &Arc::new(begun), how).is_ok()
    })
}

/// Goal: a backup that was told of is there, whoever made its target's directories and was killed before their names
/// were durable.
#[test]
fn a_backup_after_a_killed_one_outlives_a_power_cut() {
    let whole = disk(3, 0);
    let before = whole.steps();
    assert!(on(&whole).begin(BackupKind::Full, 1).is_ok());
    let killed = |step| {
        let disk = disk(step, 0);
        disk.inject(Fault::errno(EIO).from_step(step));
        let _killed = on(&disk).begin(BackupKind::Full, 1).map(drop);
        disk.heal()
    };
    for step in before..whole.steps() {
        let disk = killed(step);
        assert!(back_up_one(&disk), "step {step}");
        for (i, image) in disk.images(IMAGES).iter().enumerate() {
            let at = format!("killed at {step}, image {i}");
            assert_eq!(check_complete(image, &at), 1, "{at}");
        }
    }
    // The first one made the directory; the sync that the second one owes is forgotten.
    let forgotten = Fault::forgotten_sync().on(Op::SyncDir).below("/m0/t");
    let disk = killed(before + 1).inject(forgotten.times(1));
    assert!(disk.dir(Path::new("/m0/t/db")).is_ok() && back_up_one(&disk));
    let images = disk.images(IMAGES);
    let fails = |image| fails(|| assert_eq!(check_complete(image, "forgotten"), 1));
    assert!(images.iter().any(fails));
}

/// Goal: each name above a backup's stripes is durable before success is told.
#[test]
fn a_forgotten_sync_of_a_directory_on_the_way_to_a_backup_is_found() {
    let whole = disk(3, 0);
    let before = whole.steps();
    assert!(back_up_one(&whole));
    let forgotten = whole.forgetting(before);
    let above = |path: &Path| path.components().count() < 5;
    let unseen = forgotten.iter().filter(|(path, fault)| {
        let disk = disk(3, 0).inject(fault.clone());
        assert!(back_up_one(&disk));
        let images = disk.images(IMAGES);
        let fails = |image| fails(|| assert_eq!(check_complete(image, "forgotten"), 1));
        above(path) && !images.iter().any(fails)
    });
    let unseen: Vec<_> = unseen.map(|(path, _)| path).collect();
    assert_eq!(unseen, [] as [&std::path::PathBuf; 0]);
    assert_eq!(forgotten.iter().filter(|(path, _)| above(path)).count(), 4);
}

#[test]
fn a_power_cut_at_any_step_of_a_backup_leaves_only_files_that_an_expire_removes() {
    cut_backups(None);
}

#[test]
fn a_power_cut_at_any_step_of_an_encrypted_backup_leaves_only_files_that_an_expire_removes() {
    cut_backups(Some(&recipients()));
}

fn cut_backups(encrypt_to: Option<&Recipients>) {
    let whole = disk(3, 1);
    let before = whole.steps();
    assert!(back_up_one_for(&whole, encrypt_to.cloned()));
    let steps = whole.steps() - before;
    for step in 0..=steps {
        let disk = disk(step, 1);
        let at = disk.steps() + step;
        let reported = back_up_one_for(&disk.cut_power_at(at), encrypt_to.cloned());
        for (i, image) in disk.images(IMAGES).iter().enumerate() {
            let at = format!("cut at step {step} of {steps}, image {i}");
            let standing = check_complete(image, &at);
            assert!(standing > usize::from(reported), "{at}");
            for set in on(image).list().unwrap().sets {
                let word = set.state.word();
                // A lease that lost its content counts until it is old.
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
