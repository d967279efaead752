//! Goal: no power cut leaves a backup set that looks valid and is not, or half a restore that can start.
//! Method: count the steps (writes, syncs, renames, ...) of one run of the shipped pipeline on a simulated disk, then
//! run once per step with the power cut there. Each image the cut can leave (unsynced writes kept, lost or torn) must
//! restore bit for bit or be refused; after reported success it must restore. Backups are cut as they are, and encrypted and signed: those
//! have records and syncs of their own before the trailers.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use common::forge::{Claims, write};
use common::pieces::differing;
use common::*;
use longshore_codec::Algorithm;
use longshore_crypt::{Identities, Identity, Keyring, Recipients, Signers, SigningKey};
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_media::DeviceSpec;
use longshore_pipeline::{BackupRequest, Disposition, Error, RunContext, SourceSpec, Tuning};

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

/// The kind of the backups.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    /// Encrypted and signed; readers demand both.
    Sealed,
}

/// For whom backups are encrypted, and the keys of those who write them and of those who read them.
struct Keys {
    recipients: Recipients,
    writing: Arc<Keyring>,
    reading: Arc<Keyring>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let (identity, sign) = (Identity::new_hybrid().unwrap(), SigningKey::new().unwrap());
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let signers = Arc::new(Signers::new(vec![sign.signer()], true).unwrap());
    let reading = Keyring::new(Identities::new(vec![identity]), true);
    let writing = Keyring::default().with_signers(signers.clone());
    Keys {
        recipients,
        writing: Arc::new(writing.signing_with(Some(Arc::new(sign)))),
        reading: Arc::new(reading.with_signers(signers)),
    }
});

fn run_backup(disk: &SimDisk, source: &str, disposition: Disposition) -> Result<u32, Error> {
    run_backup_as(Form::Plain, disk, source, disposition)
}

fn run_backup_as(
    form: Form,
    disk: &SimDisk,
    source: &str,
    disposition: Disposition,
) -> Result<u32, Error> {
    let mut context = context_on(Arc::new(disk.clone()));
    let mut request = request(source, disposition);
    if let Form::Sealed = form {
        context.keyring = KEYS.writing.clone();
        request.encrypt_to = Some(KEYS.recipients.clone());
    }
    backup(&context, request).map(|r| r.position)
}

/// Restores a position to a new directory on the same disk.
fn run_restore_as(form: Form, disk: &SimDisk, position: u32, target: &str) -> Result<Tree, Error> {
    let keyring = match form {
        Form::Plain => Arc::default(),
        Form::Sealed => KEYS.reading.clone(),
    };
    let context = RunContext {
        keyring,
        ..context_on(Arc::new(disk.clone()))
    };
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
    new_as(Form::Plain, disk)
}

fn new_as(form: Form, disk: &SimDisk) -> Result<(), Error> {
    run_backup_as(form, disk, "/a", Disposition::New).map(drop)
}

fn check_new(image: &SimDisk, reported: bool, at: &str) {
    check_new_as(Form::Plain, image, reported, at);
}

fn check_new_as(form: Form, image: &SimDisk, reported: bool, at: &str) {
    // Stock tools know nothing of stripes that wait under a temporary name.
    for name in ["/m0/a.bak", "/m1/b.bak", "/m1/c.bak"] {
        let named = image.read_file(Path::new(name)).is_ok();
        assert!(named || !reported, "{at}: {name} is not there");
    }
    match run_restore_as(form, image, 0, "/out/x") {
        Ok(got) => assert_eq!(got, tree(1), "{at}"),
        Err(e) => assert!(!reported, "{at}: lost a finished backup: {e}"),
    }
    // The next backup succeeds with any remains, and so does its restore.
    let next = run_backup_as(form, image, "/b", Disposition::Format);
    next.unwrap_or_else(|e| panic!("{at}: {e}"));
    let restored = run_restore_as(form, image, 0, "/out/y").unwrap();
    assert_eq!(restored, tree(1000), "{at}");
}

#[test]
fn a_power_cut_at_any_step_of_a_new_backup_leaves_no_false_backup() {
    let steps = SimDisk::cut_everywhere(IMAGES, disk, new, check_new);
    assert!(steps >= 25, "only {steps} steps were cut");
}

#[test]
fn a_power_cut_at_any_step_of_a_new_encrypted_backup_leaves_no_false_backup() {
    let (act, judge) = (
        |disk: &SimDisk| new_as(Form::Sealed, disk),
        |image: &SimDisk, reported, at: &str| check_new_as(Form::Sealed, image, reported, at),
    );
    let steps = SimDisk::cut_everywhere(IMAGES, disk, act, judge);
    assert!(steps >= 28, "only {steps} steps were cut");
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

fn append_as(form: Form, disk: &SimDisk) -> Result<(), Error> {
    run_backup_as(form, disk, "/b", Disposition::Append).map(drop)
}

fn check_append_as(form: Form, image: &SimDisk, reported: bool, at: &str) {
    let restored = |position, target: &str| run_restore_as(form, image, position, target);
    assert_eq!(restored(1, "/out/old").unwrap(), tree(1), "{at}");
    match restored(2, "/out/new") {
        Ok(got) => assert_eq!(got, tree(1000), "{at}"),
        Err(e) => assert!(!reported && is_unfinished(&e), "{at}: {e}"),
    }
    let position = run_backup_as(form, image, "/b", Disposition::Append);
    let position = position.unwrap_or_else(|e| panic!("{at}: append after the cut: {e}"));
    let again = restored(position, "/out/again").unwrap();
    assert_eq!(again, tree(1000), "{at}");
    assert_eq!(restored(1, "/out/older").unwrap(), tree(1), "{at}");
}

#[test]
fn a_power_cut_at_any_step_of_an_append_keeps_the_older_set() {
    for form in [Form::Plain, Form::Sealed] {
        let steps = SimDisk::cut_everywhere(
            IMAGES,
            |seed| with_a_set_as(form, seed),
            |d| append_as(form, d),
            |image, reported, at| check_append_as(form, image, reported, at),
        );
        assert!(steps >= 12, "only {steps} steps were cut");
    }
}

/// Goal: the trailers of an encrypted set are durable before success is told. A forgotten sync of the roots alone is not seen: the syncs of
/// data and trailers make them durable, too.
#[test]
fn a_forgotten_sync_of_the_trailers_of_an_encrypted_append_is_found() {
    let prepare = |seed| with_a_set_as(Form::Sealed, seed);
    let whole = prepare(7);
    let from = whole.steps();
    append_as(Form::Sealed, &whole).unwrap();
    let history = whole.history().split_off(from as usize);
    let syncs = history.iter().filter(|(op, _)| *op == Op::Sync).count() as u64;
    // Data, roots and trailer of each of three stripes.
    assert!(syncs >= 9, "{syncs} syncs");
    let forgotten = Fault::forgotten_sync();
    let forgotten = forgotten.on(Op::Sync).nth(syncs - 2).times(3);
    let act = |disk: &SimDisk| append_as(Form::Sealed, disk);
    let judge = |image: &SimDisk, reported, at: &str| {
        check_append_as(Form::Sealed, image, reported, at);
    };
    assert!(is_found(prepare, act, judge, &forgotten));
}

fn with_a_set(seed: u64) -> SimDisk {
    with_a_set_as(Form::Plain, seed)
}

fn with_a_set_as(form: Form, seed: u64) -> SimDisk {
    let disk = disk(seed);
    new_as(form, &disk).unwrap();
    disk.settle();
    disk
}

fn init(disk: &SimDisk) -> Result<(), Error> {
    init_as(Form::Plain, disk)
}

fn init_as(form: Form, disk: &SimDisk) -> Result<(), Error> {
    run_backup_as(form, disk, "/b", Disposition::Init { skip: false }).map(drop)
}

fn check_init(image: &SimDisk, reported: bool, at: &str) {
    check_init_as(Form::Plain, image, reported, at);
}

fn check_init_as(form: Form, image: &SimDisk, reported: bool, at: &str) {
    let restored = |target: &str| run_restore_as(form, image, 0, target);
    let got = restored("/out/x").unwrap_or_else(|e| panic!("{at}: both are lost: {e}"));
    assert!(
        got == tree(1000) || (!reported && got == tree(1)),
        "{at}: neither old nor new"
    );
    init_as(form, image).unwrap_or_else(|e| panic!("{at}: init after the cut: {e}"));
    assert_eq!(restored("/out/y").unwrap(), tree(1000), "{at}");
}

#[test]
fn a_power_cut_at_any_step_of_init_leaves_the_old_set_or_the_new_one() {
    for form in [Form::Plain, Form::Sealed] {
        let steps = SimDisk::cut_everywhere(
            IMAGES,
            |seed| with_a_set_as(form, seed),
            |disk| init_as(form, disk),
            |image, reported, at| check_init_as(form, image, reported, at),
        );
        assert!(steps >= 25, "only {steps} steps were cut");
    }
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
