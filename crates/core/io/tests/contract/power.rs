//! Goal: the simulated disk loses at a power cut what a real one may lose, so that it finds programs that do not guard
//! against one.
//! Method: programs with and without each sync are cut at every step, and all images that may be left are compared with
//! those expected.
//! Not covered: whether a real file system keeps more or less than the model.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use longshore_io::{Fault, Op, OpenHow, SimDisk, Storage, Via};

use crate::{all, errno, noise, put};

const OLD: &[u8] = &[1; 3000];
const NEW: &[u8] = &[2; 3000];

/// Replaces the file `f` correctly, or omits one of the syncs.
fn replace(disk: &SimDisk, sync_file: bool, sync_dir: bool) -> io::Result<()> {
    let dir = disk.dir(Path::new("/d"))?;
    let new = dir.open(Path::new("new"), OpenHow::CreateNew)?;
    for (block, bytes) in NEW.chunks(1000).enumerate() {
        new.write_all_at(bytes, block as u64 * 1000, Via::Direct)?;
    }
    if sync_file {
        new.sync()?;
    }
    dir.rename(Path::new("new"), Path::new("f"))?;
    if sync_dir {
        dir.sync(Path::new(""))?;
    }
    Ok(())
}

/// What `f` can be after a power cut at any step: "old", "new" or "broken", and "old" after success.
fn outcomes_of_replacing(sync_file: bool, sync_dir: bool) -> BTreeSet<&'static str> {
    let fresh = |seed| {
        let disk = SimDisk::new(seed);
        disk.write_file("/d/f", OLD).unwrap();
        disk
    };
    let whole = fresh(0);
    replace(&whole, sync_file, sync_dir).unwrap();
    let mut outcomes = BTreeSet::new();
    for step in 0..=whole.steps() {
        for seed in 0..8 {
            let disk = fresh(seed).cut_power_at(step);
            let success = replace(&disk, sync_file, sync_dir).is_ok();
            assert_eq!(
                success,
                step == whole.steps(),
                "the cut at step {step} went unseen"
            );
            for image in disk.images(8) {
                outcomes.insert(match image.read_file("/d/f").unwrap().as_slice() {
                    OLD if success => "old after success",
                    OLD => "old",
                    NEW => "new",
                    _ => "broken",
                });
            }
        }
    }
    outcomes
}

#[test]
fn a_file_replaced_with_both_syncs_is_old_or_new_and_new_after_success() {
    assert_eq!(
        outcomes_of_replacing(true, true),
        BTreeSet::from(["new", "old"])
    );
}

#[test]
fn a_forgotten_sync_of_the_file_is_found() {
    assert!(outcomes_of_replacing(false, true).contains("broken"));
}

#[test]
fn a_forgotten_sync_of_the_directory_is_found() {
    assert!(outcomes_of_replacing(true, false).contains("old after success"));
}

#[test]
fn every_step_can_be_the_one_that_is_cut_and_nothing_works_after_it() {
    let whole = SimDisk::new(0);
    whole.write_file("/d/f", OLD).unwrap();
    replace(&whole, true, true).unwrap();
    let ops: Vec<Op> = whole.history().into_iter().map(|(op, _)| op).collect();
    assert_eq!(
        ops,
        [
            Op::Create,
            Op::Write,
            Op::Write,
            Op::Write,
            Op::Sync,
            Op::Rename,
            Op::SyncDir
        ]
    );
    assert_eq!(whole.history()[5].1, Path::new("/d/f"));
    assert!(!whole.power_is_off());

    let disk = SimDisk::new(0).cut_power_at(2);
    let dir = disk.dir(Path::new("/")).unwrap();
    let file = put(&*dir, "f", b"x");
    assert_eq!(errno(file.sync()), Some(libc::EIO));
    assert!(disk.power_is_off());
    assert_eq!(
        errno(file.read_at(&mut [0], 0, Via::Cache)),
        Some(libc::EIO)
    );
    assert_eq!(errno(file.stat()), Some(libc::EIO));
    assert_eq!(errno(dir.stat(Path::new("f"))), Some(libc::EIO));
    assert_eq!(errno(dir.list().map(drop)), Some(libc::EIO));
    assert_eq!(errno(disk.dir(Path::new("/"))), Some(libc::EIO));
    assert_eq!(
        errno(dir.open(Path::new("g"), OpenHow::CreateNew)),
        Some(libc::EIO)
    );
    assert_eq!(disk.steps(), 2);
}

#[test]
fn the_step_in_which_the_power_goes_has_had_its_effect_or_not() {
    let disk = SimDisk::new(0);
    disk.write_file("/f", OLD).unwrap();
    disk.cut_power_at(0);
    let file = disk
        .dir(Path::new("/"))
        .unwrap()
        .open(Path::new("f"), OpenHow::ReadWrite)
        .unwrap();
    assert_eq!(
        errno(file.write_at(&NEW[..512], 0, Via::Cache)),
        Some(libc::EIO)
    );
    let images: Vec<_> = disk
        .images(9)
        .iter()
        .map(|image| image.read_file("/f").unwrap()[0])
        .collect();
    assert_eq!(images, [1, 2], "one sector: nothing between lost and kept");
}

#[test]
fn synced_data_is_in_every_image_and_other_data_is_kept_lost_or_torn_at_sectors() {
    let disk = SimDisk::new(5);
    let dir = disk.dir(Path::new("/")).unwrap();
    let file = put(&*dir, "f", &noise(1, 8192));
    file.sync().unwrap();
    dir.sync(Path::new("")).unwrap();
    file.write_all_at(&noise(2, 3000), 4196, Via::Cache)
        .unwrap();
    let (before, after) = (noise(1, 8192), all(&*dir, "f"));
    let mut seen = [0; 4];
    let images = disk.images(100);
    for image in &images {
        let found = image.read_file("/f").unwrap();
        assert_eq!(
            (found.len(), &found[..4196], &found[7196..]),
            (8192, &before[..4196], &before[7196..])
        );
        let mut kept = Vec::new();
        for start in (4096..7680).step_by(512) {
            let sector = start..start + 512;
            let is_new = found[sector.clone()] == after[sector.clone()];
            assert!(
                is_new || found[sector.clone()] == before[sector],
                "sector at {start} is mixed"
            );
            kept.push(is_new);
        }
        let what = match (kept.contains(&true), kept.contains(&false)) {
            (false, _) => 0,
            (_, false) => 1,
            // A prefix survived, or any subset.
            _ if kept.is_sorted_by(|a, b| a >= b) => 2,
            _ => 3,
        };
        seen[what] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    assert_eq!(images[0].read_file("/f").unwrap(), before);
    assert_eq!(images[1].read_file("/f").unwrap(), after);
}

#[test]
fn changes_of_one_file_are_lost_independently_and_lengths_with_them() {
    let disk = SimDisk::new(5);
    disk.write_file("/f", &[1; 1000]).unwrap();
    let file = disk
        .dir(Path::new("/"))
        .unwrap()
        .open(Path::new("f"), OpenHow::ReadWrite)
        .unwrap();
    file.set_len(500).unwrap();
    file.write_all_at(&[2; 512], 1024, Via::Cache).unwrap();
    let found: BTreeSet<(usize, u8, u8)> = disk
        .images(50)
        .iter()
        .map(|image| {
            let bytes = image.read_file("/f").unwrap();
            (
                bytes.len(),
                bytes.get(700).copied().unwrap_or(9),
                bytes.get(1024).copied().unwrap_or(9),
            )
        })
        .collect();
    // Neither, the cut alone, the write alone, both.
    let expected = [(1000, 1, 9), (500, 9, 9), (1536, 1, 2), (1536, 0, 2)];
    assert_eq!(found, BTreeSet::from(expected));
}

/// The names in the images of a disk, each image one line.
fn names_in_images(disk: &SimDisk) -> BTreeSet<String> {
    disk.images(200)
        .iter()
        .map(|image| {
            let paths = image.paths();
            let names: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
            names.join(" ")
        })
        .collect()
}

fn lines<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

#[test]
fn names_that_no_sync_confirmed_survive_in_any_combination_but_those_of_one_name_in_order() {
    let disk = SimDisk::new(3);
    let dir = disk.dir(Path::new("/")).unwrap();
    dir.create_dir(Path::new("a")).unwrap();
    put(&*dir, "b", b"");
    dir.rename(Path::new("b"), Path::new("c")).unwrap();
    assert_eq!(
        names_in_images(&disk),
        lines(["", "/a", "/b", "/c", "/a /b", "/a /c"])
    );
    dir.remove_file(Path::new("c")).unwrap();
    dir.sync_all().unwrap();
    assert_eq!(names_in_images(&disk), lines(["/a"]));
}

#[test]
fn a_directory_that_lost_its_name_takes_along_what_is_in_it() {
    let disk = SimDisk::new(3);
    let dir = disk.dir(Path::new("/")).unwrap();
    dir.create_dir(Path::new("a")).unwrap();
    put(&*dir, "a/b", b"");
    dir.rename(Path::new("a/b"), Path::new("c")).unwrap();
    dir.remove_dir(Path::new("a")).unwrap();
    assert_eq!(
        names_in_images(&disk),
        lines(["", "/a", "/a /a/b", "/a /c", "/c"])
    );
}

#[test]
fn syncing_a_directory_keeps_its_names_but_neither_its_own_nor_those_of_others() {
    let disk = SimDisk::new(3);
    let dir = disk.dir(Path::new("/")).unwrap();
    dir.create_dir(Path::new("a")).unwrap();
    dir.create_dir(Path::new("a/b")).unwrap();
    dir.create_dir(Path::new("c")).unwrap();
    dir.sync(Path::new("a")).unwrap();
    assert_eq!(
        names_in_images(&disk),
        lines(["", "/a /a/b", "/c", "/a /a/b /c"])
    );
    dir.sync(Path::new("")).unwrap();
    assert_eq!(names_in_images(&disk), lines(["/a /a/b /c"]));
    assert_eq!(disk.images(9).len(), 1, "nothing is in doubt");
}

#[test]
fn a_rename_between_directories_survives_whole_or_not_at_all() {
    for synced in ["a", "b"] {
        let disk = SimDisk::new(3);
        disk.write_file("/a/f", OLD).unwrap();
        let dir = disk.dir(Path::new("/")).unwrap();
        dir.create_dir(Path::new("b")).unwrap();
        dir.sync(Path::new("")).unwrap();
        dir.rename(Path::new("a/f"), Path::new("b/f")).unwrap();
        assert_eq!(names_in_images(&disk), lines(["/a /a/f /b", "/a /b /b/f"]));
        dir.sync(Path::new(synced)).unwrap();
        assert_eq!(names_in_images(&disk), lines(["/a /b /b/f"]));
    }
}

#[test]
fn a_forgotten_sync_says_that_it_is_done_and_makes_nothing_durable() {
    for (op, left) in [(Op::SyncDir, OLD), (Op::Sync, &[][..])] {
        let disk = SimDisk::new(3).inject(Fault::forgotten_sync().on(op).times(1));
        disk.write_file("/d/f", OLD).unwrap();
        replace(&disk, true, true).unwrap();
        assert_eq!(disk.images(9)[0].read_file("/d/f").unwrap(), left);
        assert_eq!(disk.images(9)[1].read_file("/d/f").unwrap(), NEW);
        // The next one is not forgotten.
        let dir = disk.dir(Path::new("/d")).unwrap();
        dir.open(Path::new("f"), OpenHow::Read)
            .unwrap()
            .sync()
            .unwrap();
        dir.sync(Path::new("")).unwrap();
        assert_eq!(disk.images(9).len(), 1);
    }
}

#[test]
fn syncing_a_file_does_not_keep_its_name() {
    let disk = SimDisk::new(3);
    let dir = disk.dir(Path::new("/")).unwrap();
    put(&*dir, "f", OLD).sync().unwrap();
    assert_eq!(names_in_images(&disk), lines(["", "/f"]));
    assert_eq!(disk.images(9)[1].read_file("/f").unwrap(), OLD);
    dir.sync_all().unwrap();
    assert_eq!(names_in_images(&disk), lines(["/f"]));
}

#[test]
fn file_systems_lose_names_independently_and_sync_alone() {
    let disk = SimDisk::new(3);
    disk.mount("/m").unwrap();
    let (root, m) = (
        disk.dir(Path::new("/")).unwrap(),
        disk.dir(Path::new("/m")).unwrap(),
    );
    assert_ne!(
        root.stat(Path::new("")).unwrap().dev,
        m.stat(Path::new("")).unwrap().dev
    );
    root.create_dir(Path::new("a")).unwrap();
    put(&*m, "b", b"x");
    assert_eq!(
        names_in_images(&disk),
        lines(["/m", "/a /m", "/m /m/b", "/a /m /m/b"])
    );
    m.sync_all().unwrap();
    assert_eq!(names_in_images(&disk), lines(["/m /m/b", "/a /m /m/b"]));
    assert_eq!(
        errno(root.rename(Path::new("m/b"), Path::new("a/b"))),
        Some(libc::EXDEV)
    );
    assert_eq!(
        errno(root.hard_link(Path::new("m/b"), Path::new("a/b"))),
        Some(libc::EXDEV)
    );
    assert_eq!(
        errno(root.rename(Path::new("m"), Path::new("n"))),
        Some(libc::EBUSY)
    );
    assert_eq!(all(&*root.dir(Path::new("m")).unwrap(), "b"), b"x");
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let disk = SimDisk::new(seed).inject(Fault::short_write().sometimes());
        let dir = disk.dir(Path::new("/")).unwrap();
        for name in ["a", "b", "c"] {
            put(&*dir, name, &noise(7, 5000));
        }
        let images = disk.images(20);
        let read = |image: &SimDisk| {
            let paths = image.paths();
            paths
                .iter()
                .map(|path| image.read_file(path).unwrap())
                .collect::<Vec<_>>()
        };
        (disk.steps(), images.iter().map(read).collect::<Vec<_>>())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn an_image_is_a_healthy_disk_that_can_be_cut_again() {
    let disk = SimDisk::new(1)
        .inject(Fault::errno(libc::EIO).on(Op::Read))
        .cut_power_at(3);
    disk.write_file("/d/f", OLD).unwrap();
    assert!(replace(&disk, true, true).is_err());
    for image in disk.images(4) {
        let dir = image.dir(Path::new("/d")).unwrap();
        assert_eq!(all(&*dir, "f"), OLD);
        let _ = dir.remove_file(Path::new("new"));
        let image = image.cut_power_at(image.steps() + 3);
        assert!(replace(&image, true, true).is_err());
        assert!(image.images(9).len() > 1);
    }
}

#[test]
fn directories_that_a_killed_process_made_are_durable_once_they_are_made_again() {
    for (made, wanted) in [
        ("/a", "/a"),
        ("/a/b/c", "/a/b/c"),
        ("/a/b", "/a/b/c/d"),
        ("/", "/a"),
    ] {
        let disk = SimDisk::new(1);
        // A process that was killed before it synced anything.
        let mut at = disk.dir(Path::new("/")).unwrap();
        for part in Path::new(made).components().skip(1) {
            let name = Path::new(part.as_os_str());
            at.create_shared_dir(name).unwrap();
            at = at.dir(name).unwrap();
        }
        let dir = disk.create_dir_all(Path::new(wanted)).unwrap();
        put(&*dir, "f", OLD).sync().unwrap();
        dir.sync(Path::new("")).unwrap();
        let file = format!("{wanted}/f");
        for image in disk.images(16) {
            let kept = image.read_file(&file);
            assert_eq!(kept.ok().as_deref(), Some(OLD), "{made} {wanted}");
        }
    }
}
