//! Goal: a power cut during a backup with parity stripes, or during a repair, costs nothing that was there: the set is
//! read bit for bit or refused, and after a reported success it is read even if any one stripe is lost. Encrypted sets
//! are cut, too, and the writing of a key object.
//! Method: a backup and a repair run on a simulated disk once for each of their steps, with the power cut there; each
//! image that the cut may leave is read, whole and without each of its stripes.

mod support;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use longshore_codec::Algorithm;
use longshore_crypt::{Identities, Identity, Keyring, NewKey, Recipients, Signers, SigningKey};
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_media::{
    BackupDevice, DeviceSpec, Disposition, EncryptTo, Error, Examined, Folder, MediaSet,
    ParityPlan, have_all,
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

/// The kind of the sets.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    /// Encrypted and signed; readers demand both.
    Sealed,
    /// The same, with detached keys at two of the three file systems.
    Detached,
}

/// An identity that sets are for, another one, and the key that signs them.
static KEYS: LazyLock<(Identity, Identity, Arc<SigningKey>)> = LazyLock::new(|| {
    let identity = || Identity::new_x25519().unwrap();
    (identity(), identity(), Arc::new(SigningKey::new().unwrap()))
});

fn recipients(identity: &Identity) -> Recipients {
    Recipients::new(vec![identity.recipient()], false).unwrap()
}

/// The keys of a reader who has this identity, and demands encryption and the signature.
fn keyring(identity: &Identity) -> Arc<Keyring> {
    let signers = Signers::new(vec![KEYS.2.signer()], true).unwrap();
    let keyring = Keyring::new(Identities::new(vec![identity.clone()]), true);
    Arc::new(keyring.with_signers(Arc::new(signers)))
}

fn write(disk: &SimDisk, disposition: Disposition, text: &str) -> Result<(), Error> {
    write_as(Form::Plain, disk, disposition, text)
}

fn write_as(form: Form, disk: &SimDisk, disposition: Disposition, text: &str) -> Result<(), Error> {
    let sealed = |key: NewKey, places: Vec<Folder>| {
        Some(EncryptTo {
            key: Arc::new(key),
            parent_root: [0; 32],
            sign: Some(KEYS.2.clone()),
            places,
        })
    };
    let to = recipients(&KEYS.0);
    let encryption = match form {
        Form::Plain => None,
        Form::Sealed => sealed(NewKey::wrapped(&to).unwrap(), Vec::new()),
        Form::Detached => sealed(NewKey::detached(&to).unwrap(), key_places(disk)),
    };
    let shape = Shape {
        parity: ParityPlan {
            count: 1,
            row_bytes: 4096,
            ..ParityPlan::default()
        },
        encryption,
        ..Shape::new(disposition, Algorithm::None, 700)
    };
    write_set(&devices_on(disk), &shape, &inputs(text)).map(drop)
}

fn key_places(disk: &SimDisk) -> Vec<Folder> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let place = |path: &str| DeviceSpec::File(path.into()).as_folder(&storage, &Arc::default());
    ["/m0", "/m2"].into_iter().filter_map(place).collect()
}

/// The set on the media, of which everything is checked.
fn read(disk: &SimDisk) -> Result<Content, String> {
    read_as(Form::Plain, disk)
}

fn read_as(form: Form, disk: &SimDisk) -> Result<Content, String> {
    let keyring = match form {
        Form::Plain => Arc::default(),
        Form::Sealed | Form::Detached => keyring(&KEYS.0),
    };
    read_with(&keyring, disk)
}

fn read_with(keyring: &Arc<Keyring>, disk: &SimDisk) -> Result<Content, String> {
    let mut sets = read_all_with(&devices_on(disk), keyring)?;
    match sets.len() {
        1 => Ok(sets.remove(0)),
        n => Err(format!("{n} sets")),
    }
}

/// Judges the media as they are, and without each of their stripes.
fn judge_all(form: Form, image: &SimDisk, judge: impl Fn(Result<Content, String>, &str)) {
    judge(read_as(form, image), "whole");
    for stripe in STRIPES {
        let lost = image.images(2).remove(0);
        remove(&lost, stripe);
        judge(read_as(form, &lost), stripe);
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
    for form in [Form::Plain, Form::Sealed] {
        let new = |disk: &SimDisk| write_as(form, disk, Disposition::New, "abc");
        let expected = expected(&inputs("abc"));
        let steps = SimDisk::cut_everywhere(IMAGES, disk, new, |image, reported, at| {
            judge_all(form, image, |found, lost| match found {
                Ok(found) => assert!(found == expected, "{at}, {lost}"),
                Err(e) => assert!(!reported, "{at}, {lost}: lost a finished backup: {e}"),
            });
            let next = write_as(form, image, Disposition::Format, "next");
            next.unwrap_or_else(|e| panic!("{at}: {e}"));
            assert!(read_as(form, image).is_ok(), "{at}");
        });
        assert!(steps >= 30, "only {steps} steps were cut");
    }
}

#[test]
fn a_cut_at_any_step_of_a_replacing_backup_leaves_the_old_set_or_the_new_one() {
    for form in [Form::Plain, Form::Sealed] {
        let init = |disk: &SimDisk| write_as(form, disk, Disposition::Init { skip: true }, "newer");
        let (old, new) = (expected(&inputs("old")), expected(&inputs("newer")));
        let before = |seed| with_a_set(form, seed, "old");
        SimDisk::cut_everywhere(IMAGES, before, init, |image, reported, at| {
            judge_all(form, image, |found, lost| match found {
                Ok(found) if reported => assert!(found == new, "{at}, {lost}"),
                Ok(found) => assert!(found == old || found == new, "{at}, {lost}"),
                // With a stripe lost in the middle of the renames, neither set need be there.
                Err(e) => assert!(!reported && lost != "whole", "{at}, {lost}: {e}"),
            });
        });
    }
}

/// Goal: no set is whole whose keys are not, at each of their places, and a run that fails before leaves none behind.
#[test]
fn a_cut_at_any_step_of_a_backup_with_detached_keys_leaves_no_whole_set_without_them() {
    let new = |disk: &SimDisk| write_as(Form::Detached, disk, Disposition::New, "abc");
    let expected = expected(&inputs("abc"));
    let steps = SimDisk::cut_everywhere(IMAGES, disk, new, |image, reported, at| {
        let is_whole = |media: MediaSet| media.set(1).is_ok_and(|set| set.trailer.is_some());
        if MediaSet::open(&devices_on(image)).is_ok_and(is_whole) {
            let media = MediaSet::open(&devices_on(image)).unwrap();
            let set = media.set(1).unwrap().header.set;
            for place in key_places(image) {
                let names = place.objects(set.as_bytes()).unwrap();
                assert_eq!(names.len(), 1, "{at}: {}", place.name());
                assert!(have_all(&[place], &names[0]), "{at}");
            }
            assert!(
                read_as(Form::Detached, image).as_ref() == Ok(&expected),
                "{at}"
            );
        } else {
            assert!(!reported, "{at}");
        }
        let next = write_as(Form::Detached, image, Disposition::Format, "next");
        next.unwrap_or_else(|e| panic!("{at}: {e}"));
        assert!(read_as(Form::Detached, image).is_ok(), "{at}");
    });
    assert!(steps >= 30, "only {steps} steps were cut");
    // A device that fails, and no cut: the objects are taken away again.
    let full = Fault::errno(28).on(Op::Write).below("/m1/b.longshore-new");
    let broken = disk(7).inject(full);
    write_as(Form::Detached, &broken, Disposition::New, "abc").unwrap_err();
    let is_object = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "lsk");
    let paths = broken.paths();
    assert_eq!(paths.iter().find(is_object), None);
}

fn with_a_set(form: Form, seed: u64, text: &str) -> SimDisk {
    let disk = disk(seed);
    write_as(form, &disk, Disposition::New, text).unwrap();
    disk.settle();
    disk
}

/// Writes an object for the other identity to each place of the stripes.
fn rewrap(disk: &SimDisk) -> Result<(), Error> {
    let media = MediaSet::open(&devices_on(disk))?.with_keyring(&keyring(&KEYS.0));
    let opened = media.opened(1)?.unwrap();
    let object = opened.object(&recipients(&KEYS.1), 1).unwrap();
    let (name, bytes) = (object.name().unwrap(), object.encode().unwrap());
    for folder in media.folders() {
        folder.write(&name, &bytes)?;
    }
    Ok(())
}

/// Goal: a key object is there whole or not at all, costs the set nothing, and opens it once it was told as written.
#[test]
fn a_cut_at_any_step_of_writing_key_objects_leaves_whole_ones_or_none() {
    let expected = expected(&inputs("abc"));
    let before = |seed| with_a_set(Form::Sealed, seed, "abc");
    let steps = SimDisk::cut_everywhere(IMAGES, before, rewrap, |image, reported, at| {
        judge_all(Form::Sealed, image, |found, lost| {
            assert!(found.as_ref() == Ok(&expected), "{at}, {lost}: {found:?}");
        });
        let media = MediaSet::open(&devices_on(image)).unwrap();
        let (seen, more) = media.key_objects(1).unwrap();
        assert!(!more && seen.len() <= 1, "{at}: {seen:?}");
        for one in &seen {
            assert!(one.object.is_ok(), "{at}: {one:?}");
        }
        let other = read_with(&keyring(&KEYS.1), image);
        match seen.is_empty() {
            true => assert!(!reported && other.is_err(), "{at}"),
            false => assert!(other.as_ref() == Ok(&expected), "{at}: {other:?}"),
        }
        assert!(
            !reported || have_all(media.folders(), &seen[0].name),
            "{at}"
        );
        rewrap(image).unwrap_or_else(|e| panic!("{at}: {e}"));
        let other = read_with(&keyring(&KEYS.1), image);
        assert!(other.as_ref() == Ok(&expected), "{at}: {other:?}");
    });
    assert!(steps >= 12, "only {steps} steps were cut");
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
    let both = [(Form::Plain, STRIPES[1]), (Form::Plain, STRIPES[3])];
    let sealed = both.map(|(_, stripe)| (Form::Sealed, stripe));
    for (form, stripe) in both.into_iter().chain(sealed) {
        let degraded = |seed| {
            let disk = disk(seed);
            write_as(form, &disk, Disposition::New, "abc").unwrap();
            let mut bytes = disk.read_file(stripe).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 600].fill(0);
            disk.write_file(stripe, &bytes).unwrap();
            disk.settle();
            disk
        };
        let expected = expected(&inputs("abc"));
        SimDisk::cut_everywhere(IMAGES, degraded, repair, |image, reported, at| {
            let found = read_as(form, image);
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
                let found = read_as(form, &lost);
                assert!(found.as_ref() == Ok(&expected), "{at}, {stripe}");
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
