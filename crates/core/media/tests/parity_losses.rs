//! Goal: a set with parity survives devices that fail while it is written, as many as its caller tolerates: it is read
//! bit for bit without them, and repaired to what it would have been. One failure more ends it, and without tolerance the
//! first one does.
//! Method: on a simulated disk, the file system below each stripe fails for good from each step on, alone and in pairs, with
//! power cuts, and with stripes of an older generation that come back.

mod support;

use std::path::Path;
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_io::{Fault, SimDisk, Storage};
use longshore_media::{
    BackupDevice, DeviceSpec, Disposition, Error, Examined, MediaSet, ParityPlan,
};
use support::*;

const EIO: i32 = 5;
const STRIPES: [&str; 4] = ["/m0/a", "/m1/b", "/m2/c", "/m3/p"];

fn mount(stripe: &str) -> &Path {
    Path::new(stripe).parent().unwrap()
}

fn devices_on(disk: &SimDisk, count: usize) -> Vec<Arc<dyn BackupDevice>> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let device = |path: &&str| DeviceSpec::File(path.into()).open(&storage);
    STRIPES[..count].iter().map(device).collect()
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    for stripe in STRIPES {
        disk.mount(mount(stripe)).unwrap();
    }
    disk
}

fn inputs(text: &str) -> Vec<Input> {
    vec![file("f", text.repeat(30_000 / text.len()).as_bytes())]
}

/// How a set is written: its stripes, those with parity among them, and how many may fail.
#[derive(Debug, Clone, Copy)]
struct How {
    stripes: usize,
    parity: u16,
    tolerated: u16,
}

const ONE: How = How {
    stripes: 4,
    parity: 1,
    tolerated: 1,
};

impl How {
    fn write(self, disk: &SimDisk, disposition: Disposition, text: &str) -> Result<(), Error> {
        let shape = Shape {
            parity: ParityPlan {
                count: self.parity,
                row_bytes: 4096,
                tolerated: self.tolerated,
            },
            ..Shape::new(disposition, Algorithm::None, 700)
        };
        write_set(&devices_on(disk, self.stripes), &shape, &inputs(text)).map(drop)
    }

    /// The set on the media, of which everything is checked.
    fn read(self, disk: &SimDisk) -> Result<Content, String> {
        let mut sets = read_all(&devices_on(disk, self.stripes))?;
        match sets.len() {
            1 => Ok(sets.remove(0)),
            n => Err(format!("{n} sets")),
        }
    }

    fn faults(self, disk: &SimDisk) -> Vec<u16> {
        let media = MediaSet::open(&devices_on(disk, self.stripes)).unwrap();
        media.faults().iter().map(|fault| fault.family).collect()
    }

    fn repair(self, disk: &SimDisk) -> Result<u64, Error> {
        let devices = devices_on(disk, self.stripes);
        Examined::of(&devices, &|_| Ok(()))?.repair(&devices, &|_| Ok(()))
    }

    fn bytes(self, disk: &SimDisk) -> Vec<Vec<u8>> {
        let read = |stripe: &&str| disk.read_file(stripe).unwrap_or_default();
        STRIPES[..self.stripes].iter().map(read).collect()
    }

    /// The file systems of these stripes fail for good, from a step on that only a backup reaches.
    fn kill(disk: &SimDisk, stripes: &[usize], from: u64) {
        for stripe in stripes {
            let fault = Fault::errno(EIO).below(mount(STRIPES[*stripe]));
            disk.inject(fault.from_step(from));
        }
    }
}

fn remove(disk: &SimDisk, path: &str) {
    let dir = disk.dir(mount(path)).unwrap();
    for name in [path.to_owned(), format!("{path}.longshore-new")] {
        let _ = dir.remove_file(Path::new(Path::new(&name).file_name().unwrap()));
    }
}

/// The steps of an undisturbed backup, and what it wrote.
fn undisturbed(how: How) -> (u64, Vec<Vec<u8>>) {
    let disk = disk(1);
    let before = disk.steps();
    how.write(&disk, Disposition::New, "abc").unwrap();
    (disk.steps() - before, how.bytes(&disk))
}

#[test]
fn a_device_that_fails_at_any_step_costs_its_stripe_and_a_repair_writes_it() {
    let expected = expected(&inputs("abc"));
    let (steps, _) = undisturbed(ONE);
    let (mut borne, mut refused) = (0, 0);
    for (stripe, name) in STRIPES.iter().enumerate() {
        for step in 0..=steps {
            let at = format!("{name} from step {step}");
            let disk = disk(step);
            let from = disk.steps() + step;
            How::kill(&disk, &[stripe], from);
            let written = ONE.write(&disk, Disposition::New, "abc");
            let found = ONE.read(&disk);
            if let Err(error) = written {
                assert!(found.is_err(), "{at}: {error}");
                refused += 1;
                continue;
            }
            assert!(found.as_ref() == Ok(&expected), "{at}: {found:?}");
            // The device is back: with what the system still has of it, and with what it kept itself.
            disk.heal();
            let found = ONE.read(&disk);
            assert!(found.as_ref() == Ok(&expected), "{at}, warm: {found:?}");
            let disk = disk.images(2).remove(0);
            let found = ONE.read(&disk);
            assert!(found.as_ref() == Ok(&expected), "{at}, back: {found:?}");
            borne += usize::from(!ONE.faults(&disk).is_empty());
            ONE.repair(&disk).unwrap_or_else(|e| panic!("{at}: {e}"));
            assert!(ONE.faults(&disk).is_empty(), "{at}");
            let faults = Examined::of(&devices_on(&disk, 4), &|_| Ok(())).unwrap();
            assert_eq!(faults.faults(), [], "{at}");
            for lost in STRIPES {
                let without = disk.images(1).remove(0);
                remove(&without, lost);
                let found = ONE.read(&without);
                assert!(
                    found.as_ref() == Ok(&expected),
                    "{at}, without {lost}: {found:?}"
                );
            }
        }
    }
    // A device that is gone before the first byte ends the backup.
    assert!(borne > 60, "{borne} losses, {refused} refusals");
    assert!(refused < borne / 3, "{borne} losses, {refused} refusals");
}

#[test]
fn more_failures_than_are_tolerated_end_the_backup_and_leave_nothing() {
    let two = How { parity: 2, ..ONE };
    let none = How {
        tolerated: 0,
        ..ONE
    };
    for (how, dead) in [(two, &[0, 1][..]), (two, &[1, 3]), (none, &[2])] {
        let (steps, _) = undisturbed(how);
        let mut refused = 0;
        for step in 0..steps {
            let disk = disk(step);
            How::kill(&disk, dead, disk.steps() + step);
            let written = how.write(&disk, Disposition::New, "abc");
            let found = how.read(&disk);
            match written {
                Ok(()) => assert!(found.is_ok(), "{how:?} {dead:?} {step}: {found:?}"),
                Err(_) => {
                    refused += 1;
                    // Trailers may be durable on all stripes that are left: then the set is whole.
                    disk.heal();
                    if let Ok(found) = how.read(&disk) {
                        assert!(found == expected(&inputs("abc")), "{how:?} {dead:?} {step}");
                    }
                }
            }
        }
        assert!(refused > steps / 2, "{how:?}: {refused} of {steps}");
    }
}

#[test]
fn as_many_as_are_tolerated_may_fail_in_any_order_also_all_that_hold_data() {
    let expected = expected(&inputs("abc"));
    let hows = [
        (4, 2, vec![[0, 1], [0, 3], [1, 2], [2, 3]]),
        // All data stripes: parity alone has the set.
        (2, 1, vec![[0, 0], [1, 1]]),
        (3, 2, vec![[0, 1], [0, 2], [1, 2]]),
    ];
    for (stripes, parity, pairs) in hows {
        let how = How {
            stripes,
            parity,
            tolerated: parity,
        };
        let (steps, whole) = undisturbed(how);
        for dead in pairs {
            for (first, second) in [(steps / 4, steps / 2), (steps / 2, steps - 4)] {
                let disk = disk(first);
                let at = format!("{how:?}, {dead:?} from {first} and {second}");
                How::kill(&disk, &dead[..1], disk.steps() + first);
                How::kill(&disk, &dead[1..], disk.steps() + second);
                let written = how.write(&disk, Disposition::New, "abc");
                written.unwrap_or_else(|e| panic!("{at}: {e}"));
                let found = how.read(&disk);
                assert!(found.as_ref() == Ok(&expected), "{at}: {found:?}");
                disk.heal();
                how.repair(&disk).unwrap_or_else(|e| panic!("{at}: {e}"));
                assert!(how.faults(&disk).is_empty(), "{at}");
                // UUIDs apart, a stripe is as long as it would have been.
                let lens = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
                let data = stripes - usize::from(parity);
                assert_eq!(
                    lens(&how.bytes(&disk)[..data]),
                    lens(&whole[..data]),
                    "{at}"
                );
            }
        }
    }
}

/// Goal: no power cut in a backup that goes on without a device makes a set that is read wrongly, or costs one that was
/// reported.
#[test]
fn a_power_cut_after_a_loss_leaves_the_set_or_none() {
    let expected = expected(&inputs("abc"));
    for stripe in [1, 3] {
        for from in [9, 14] {
            let prepare = |seed| {
                let disk = disk(seed);
                How::kill(&disk, &[stripe], disk.steps() + from);
                disk
            };
            let act = |disk: &SimDisk| ONE.write(disk, Disposition::New, "abc");
            SimDisk::cut_everywhere(4, prepare, act, |image, reported, at| {
                image.heal();
                match ONE.read(image) {
                    Ok(found) => assert!(found == expected, "{stripe} {from}, {at}"),
                    Err(e) => assert!(!reported, "{stripe} {from}, {at}: {e}"),
                }
            });
        }
    }
}

/// Goal: a device that failed while INIT replaced the media, and comes back with what it had, never gives that back in
/// silence, though its stripes be as many as a set needs; and a repair replaces it.
#[test]
fn an_older_generation_that_comes_back_is_not_taken_for_the_set() {
    for (stripes, parity, dead) in [
        (4, 1, &[1][..]),
        (4, 1, &[3]),
        (4, 2, &[0, 1]),
        (4, 2, &[2, 3]),
        (2, 1, &[0]),
        (3, 2, &[0, 1]),
        (3, 2, &[1, 2]),
    ] {
        let how = How {
            stripes,
            parity,
            tolerated: parity,
        };
        let at = format!("{how:?}, {dead:?}");
        let disk = disk(stripes as u64);
        how.write(&disk, Disposition::New, "old").unwrap();
        disk.settle();
        let before = disk.steps();
        let image = disk.images(1).remove(0);
        how.write(&image, Disposition::Init { skip: true }, "newer")
            .unwrap();
        let steps = image.steps();
        How::kill(&disk, dead, before + steps / 2);
        let written = how.write(&disk, Disposition::Init { skip: true }, "newer");
        written.unwrap_or_else(|e| panic!("{at}: {e}"));
        let newer = expected(&inputs("newer"));
        let found = how.read(&disk);
        assert!(found.as_ref() == Ok(&newer), "{at}, gone: {found:?}");
        disk.heal();
        let found = how.read(&disk);
        assert!(found.as_ref() == Ok(&newer), "{at}, back: {found:?}");
        how.repair(&disk).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert!(how.faults(&disk).is_empty(), "{at}");
    }
}

#[test]
fn more_is_not_tolerated_than_parity_can_stand_for() {
    let how = How {
        tolerated: 2,
        ..ONE
    };
    let refused = how.write(&disk(1), Disposition::New, "abc").unwrap_err();
    assert!(
        matches!(
            refused,
            Error::TooMuchTolerance {
                asked: 2,
                parity: 1
            }
        ),
        "{refused}"
    );
}
