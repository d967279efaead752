//! Goal: no power cut leaves a backup set that looks valid and is not, or half a restore that can start.
//! Method: count the steps (writes, syncs, renames, ...) of one run of the shipped pipeline on a simulated disk, then
//! run once per step with the power cut there. Each image the cut can leave (unsynced writes kept, lost or torn) must
//! restore bit for bit or be refused; after reported success it must restore.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::forge::{Claims, write};
use common::pieces::differing;
use common::*;
use longshore_codec::Algorithm;
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_media::DeviceSpec;
use longshore_pipeline::{BackupRequest, Disposition, Error, SourceSpec, Tuning};

const IMAGES: usize = 5;

fn put(disk: &SimDisk, root: &str, tree: &Tree) {
    for (name, bytes) in tree {
        disk.write_file(Path::new(root).join(name), bytes).unwrap();
    }
}

/// The files below `root`, without staging.
fn read(disk: &SimDisk, root: &str) -> Tree {
    let staging = Path::new(root).join(".longshore-restoring");
    let below = |p: &PathBuf| p.starts_with(root) && !p.starts_with(&staging);
    let files = disk.paths().into_iter().filter(below);
    files
        .filter_map(|p| {
            let bytes = disk.read_file(&p).ok()?;
            Some((p.strip_prefix(root).ok()?.to_path_buf(), bytes))
        })
        .collect()
}

fn devices() -> Vec<DeviceSpec> {
    ["/m0/a.bak", "/m1/b.bak", "/m1/c.bak"]
        .iter()
        .map(|p| DeviceSpec::File(p.into()))
        .collect()
}

fn request(source: &str, disposition: Disposition) -> BackupRequest {
    let spec = SourceSpec::Files(vec![source.into()]);
    let mut request = backup_request(spec, devices(), Algorithm::Lz4);
    request.disposition = disposition;
    request.tuning = Tuning {
        buffer_count: None,
        buffer_bytes: Some(64 << 10),
    };
    request
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.mount("/m0").unwrap();
    disk.mount("/m1").unwrap();
    disk.mount("/out").unwrap();
    put(&disk, "/a", &tree(1));
    put(&disk, "/b", &tree(1000));
    disk
}

fn run_backup(disk: &SimDisk, source: &str, disposition: Disposition) -> Result<u32, Error> {
    let context = context_on(Arc::new(disk.clone()));
    backup(&context, request(source, disposition)).map(|r| r.position)
}

/// Restores a position to a new directory on the same disk.
fn run_restore(disk: &SimDisk, position: u32, target: &str) -> Result<Tree, Error> {
    let context = context_on(Arc::new(disk.clone()));
    let mut request = restore_request(devices(), Path::new(target));
    request.position = position;
    restore(&context, request)?;
    Ok(read(disk, target))
}

/// Whether a cut in or after the syncs that `forgotten` forgets leaves an image of which `judge` panics.
fn is_found(
    prepare: impl Fn(u64) -> SimDisk,
    act: impl Fn(&SimDisk) -> Result<(), Error>,
    judge: impl Fn(&SimDisk, bool, &str),
    forgotten: &Fault,
) -> bool {
    let whole = prepare(7);
    let before = whole.steps();
    act(&whole).expect("without a cut it succeeds");
    // Threads decide how many steps a run takes. The last cut comes after any run's end.
    let after_any_end = u64::MAX / 2;
    let mut steps = (0..=whole.steps() - before).chain([after_any_end]);
    steps.any(|step| {
        let disk = prepare(step).inject(forgotten.clone());
        let at = disk.steps() + step;
        let reported = act(&disk.cut_power_at(at)).is_ok();
        disk.images(IMAGES).iter().any(|image| {
            let judge = || judge(image, reported, "forgotten");
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge)).is_err()
        })
    })
}

/// How many directories a run syncs before its first rename, and from there on.
fn syncs_around_renames(disk: &SimDisk, from: u64) -> (usize, usize) {
    let history = disk.history().split_off(from as usize);
    let first = history.iter().position(|(op, _)| *op == Op::Rename);
    let (before, after) = history.split_at(first.unwrap());
    let syncs = |part: &[(Op, PathBuf)]| part.iter().filter(|(op, _)| *op == Op::SyncDir).count();
    (syncs(before), syncs(after))
}

fn new(disk: &SimDisk) -> Result<(), Error> {
    run_backup(disk, "/a", Disposition::New).map(drop)
}

fn check_new(image: &SimDisk, reported: bool, at: &str) {
    // Stock tools know nothing of stripes that wait under a temporary name.
    for name in ["/m0/a.bak", "/m1/b.bak", "/m1/c.bak"] {
        let named = image.read_file(Path::new(name)).is_ok();
        assert!(named || !reported, "{at}: {name} is not there");
    }
    match run_restore(image, 0, "/out/x") {
        Ok(got) => assert_eq!(got, tree(1), "{at}"),
        Err(e) => assert!(!reported, "{at}: lost a finished backup: {e}"),
    }
    // The next backup succeeds with any remains, and so does its restore.
    run_backup(image, "/b", Disposition::Format).unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_eq!(run_restore(image, 0, "/out/y").unwrap(), tree(1000), "{at}");
}

#[test]
fn a_power_cut_at_any_step_of_a_new_backup_leaves_no_false_backup() {
    let steps = SimDisk::cut_everywhere(IMAGES, disk, new, check_new);
    assert!(steps >= 25, "only {steps} steps were cut");
}

/// Goal: each stripe has its name for good before success is told. The test above sees it if not.
#[test]
fn a_forgotten_sync_of_a_stripes_name_is_found() {
    let whole = disk(7);
    let from = whole.steps();
    new(&whole).unwrap();
    let (before, after) = syncs_around_renames(&whole, from);
    let found: Vec<bool> = (1..=after)
        .map(|n| {
            let nth = (before + n) as u64;
            let forgotten = Fault::forgotten_sync().on(Op::SyncDir).nth(nth).times(1);
            is_found(disk, new, check_new, &forgotten)
        })
        .collect();
    // The third lies in the second's directory.
    assert_eq!(found, [true, false, true]);
}

#[test]
fn a_power_cut_at_any_step_of_an_append_keeps_the_older_set() {
    let steps = SimDisk::cut_everywhere(
        IMAGES,
        with_a_set,
        |d| run_backup(d, "/b", Disposition::Append).map(drop),
        |image, reported, at| {
            assert_eq!(run_restore(image, 1, "/out/old").unwrap(), tree(1), "{at}");
            match run_restore(image, 2, "/out/new") {
                Ok(got) => assert_eq!(got, tree(1000), "{at}"),
                Err(e) => assert!(!reported && is_unfinished(&e), "{at}: {e}"),
            }
            let position = run_backup(image, "/b", Disposition::Append);
            let position = position.unwrap_or_else(|e| panic!("{at}: append after the cut: {e}"));
            assert_eq!(
                run_restore(image, position, "/out/again").unwrap(),
                tree(1000),
                "{at}"
            );
            assert_eq!(
                run_restore(image, 1, "/out/older").unwrap(),
                tree(1),
                "{at}"
            );
        },
    );
    assert!(steps >= 12, "only {steps} steps were cut");
}

fn with_a_set(seed: u64) -> SimDisk {
    let disk = disk(seed);
    new(&disk).unwrap();
    disk.settle();
    disk
}

fn init(disk: &SimDisk) -> Result<(), Error> {
    run_backup(disk, "/b", Disposition::Init { skip: false }).map(drop)
}

fn check_init(image: &SimDisk, reported: bool, at: &str) {
    let got =
        run_restore(image, 0, "/out/x").unwrap_or_else(|e| panic!("{at}: both are lost: {e}"));
    assert!(
        got == tree(1000) || (!reported && got == tree(1)),
        "{at}: neither old nor new"
    );
    init(image).unwrap_or_else(|e| panic!("{at}: init after the cut: {e}"));
    assert_eq!(run_restore(image, 0, "/out/y").unwrap(), tree(1000), "{at}");
}

#[test]
fn a_power_cut_at_any_step_of_init_leaves_the_old_set_or_the_new_one() {
    let steps = SimDisk::cut_everywhere(IMAGES, with_a_set, init, check_init);
    assert!(steps >= 25, "only {steps} steps were cut");
}

/// Goal: all stripes have their temporary names for good before the first one replaces an old one.
#[test]
fn forgotten_syncs_of_the_temporary_names_are_found() {
    let whole = with_a_set(7);
    let from = whole.steps();
    init(&whole).unwrap();
    let (before, _) = syncs_around_renames(&whole, from);
    let forgotten = Fault::forgotten_sync().on(Op::SyncDir).times(before as u64);
    assert!(is_found(with_a_set, init, check_init, &forgotten));
}

#[test]
fn a_power_cut_at_any_step_of_a_restore_leaves_whole_files_or_none() {
    for replace in [false, true] {
        let steps = SimDisk::cut_everywhere(
            IMAGES,
            |seed| {
                let disk = disk(seed);
                run_backup(&disk, "/b", Disposition::New).unwrap();
                if replace {
                    put(&disk, "/out/db", &tree(1));
                }
                disk.settle();
                disk
            },
            |d| {
                let mut request = restore_request(devices(), Path::new("/out/db"));
                request.replace = replace;
                restore(&context_on(Arc::new(d.clone())), request).map(drop)
            },
            |image, reported, at| {
                let (old, new) = (tree(1), tree(1000));
                let got = read(image, "/out/db");
                for (name, bytes) in &got {
                    let whole =
                        *bytes == new[name] || (replace && !reported && *bytes == old[name]);
                    assert!(whole, "{at}: {} is a mixture", name.display());
                }
                assert!(
                    !reported || got == new,
                    "{at}: a finished restore lost files"
                );
                let mut request = restore_request(devices(), Path::new("/out/db"));
                request.replace = true;
                restore(&context_on(Arc::new(image.clone())), request)
                    .unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(
                    read(image, "/out/db"),
                    new,
                    "{at}: the restore after the cut"
                );
            },
        );
        assert!(steps >= 20, "only {steps} steps were cut");
    }
}

/// A full set of `tree(1)` on one media set, and on another one the changes to `later()`.
fn chain(disk: &SimDisk) {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let full = Claims::new(None);
    let differential = Claims::new(Some(full.set));
    let (old, new) = (tree(1), later());
    let blocks = differing(&old, &Tree::new());
    write(&storage, &full_devices(), &full, &blocks, |i| i);
    let blocks = differing(&new, &old);
    write(&storage, &devices(), &differential, &blocks, |i| i);
}

fn full_devices() -> Vec<DeviceSpec> {
    ["/m0/full-a.bak", "/m1/full-b.bak"]
        .iter()
        .map(|p| DeviceSpec::File(p.into()))
        .collect()
}

/// `tree(1)` with a part of its largest file changed, one file removed and another one added.
fn later() -> Tree {
    let mut tree = tree(1);
    let big = tree.get_mut(Path::new("big")).unwrap();
    big[310_000..420_000].fill(9);
    big.extend(content(5, 33_000));
    tree.remove(Path::new("sub/two"));
    tree.insert("sub/three".into(), content(6, 60_000));
    tree
}

#[test]
fn a_power_cut_at_any_step_of_a_chains_restore_leaves_whole_files_or_none() {
    let new = later();
    // The files before the restore: neither the chain's base nor its result.
    let before = tree(1000);
    for replace in [false, true] {
        let restore_chain = |disk: &SimDisk, replace: bool| {
            let mut request = restore_request(devices(), Path::new("/out/db"));
            request.bases = full_devices();
            request.replace = replace;
            restore(&context_on(Arc::new(disk.clone())), request).map(drop)
        };
        let steps = SimDisk::cut_everywhere(
            IMAGES,
            |seed| {
                let disk = disk(seed);
                chain(&disk);
                if replace {
                    put(&disk, "/out/db", &before);
                }
                disk.settle();
                disk
            },
            |d| restore_chain(d, replace),
            |image, reported, at| {
                let got = read(image, "/out/db");
                for (name, bytes) in &got {
                    let old = before.get(name).filter(|_| replace);
                    let whole = new.get(name) == Some(bytes) || old == Some(bytes);
                    assert!(whole, "{at}: {} is a mixture", name.display());
                }
                if reported {
                    let lost = new
                        .iter()
                        .find(|(name, bytes)| got.get(*name) != Some(bytes));
                    assert!(lost.is_none(), "{at}: a finished restore lost {lost:?}");
                }
                restore_chain(image, true).unwrap_or_else(|e| panic!("{at}: {e}"));
                let again = read(image, "/out/db");
                let lost = new
                    .iter()
                    .find(|(name, bytes)| again.get(*name) != Some(bytes));
                assert!(lost.is_none(), "{at}: the restore after the cut");
            },
        );
        assert!(steps >= 20, "only {steps} steps were cut");
    }
}

fn is_unfinished(e: &Error) -> bool {
    use longshore_media::Error::{Empty, Incomplete, Missing, NoSuchSet};
    matches!(
        e,
        Error::Media(Incomplete { .. } | Missing { .. } | Empty { .. } | NoSuchSet { .. })
    )
}
