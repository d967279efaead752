//! Goal: an expire removes only WAL that no backup needs, neither at this target nor at another one that relies on the
//! archive.
//! Method: sets made by hand with LSNs, and segments with headers as PostgreSQL writes them; a clock acts during a
//! sleep where two programs overlap.
//! Not covered: real servers.

#[path = "../../io/tests/contract/clock.rs"]
mod clock_contract;
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::*;
use longshore_bucket::sim::{Act, Store};
use longshore_codec::{Algorithm, Level};
use longshore_io::{Clock, HostClock, OpenHow, Via};
use longshore_media::{
    BackupDevice, BackupType, DeviceSpec, Disposition, LogEnd, LogStart, SetHeader, SetPlan,
    SetWriter, Totals,
};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};
use longshore_repository::copying;
use longshore_repository::lease::{Lease, Use};
use longshore_repository::retention::Policy;
use longshore_repository::{
    BackupKind, ExpireReport, Fate, LogFate, Places, Reliance, Shelf, Target,
};
use longshore_wal::{Error, Need, Outgoing, StorageForm, WalArchive, is_in_bucket};
use std::sync::Arc;
use uuid::Uuid;

const MIB: u64 = 1 << 20;

/// A sealed set without content, of this cluster, that needs the WAL from `first` to `last` (in MiB).
fn shelve_logged(shelf: &Shelf, day: i64, system: u64, first: u64, last: u64) -> Uuid {
    shelve_above(shelf, day, None, (system, first, last))
}

/// The same; differential if it needs another set.
fn shelve_above(
    shelf: &Shelf,
    day: i64,
    parent: Option<Uuid>,
    (system, first, last): (u64, u64, u64),
) -> Uuid {
    let (kind, backup_type) = match parent {
        None => (BackupKind::Full, BackupType::Database),
        Some(_) => (BackupKind::Differential, BackupType::Differential),
    };
    let begun = shelf.begin(kind, day * 86_400_000_000).unwrap();
    let storage = shelf.storage();
    let devices: Vec<Arc<dyn BackupDevice>> =
        begun.devices.iter().map(|d| d.open(&storage)).collect();
    let set = Uuid::new_v4();
    let header = SetHeader {
        set,
        position: 0,
        start_us: day * 86_400_000_000,
        source_kind: 3,
        backup_type,
        algorithm: Algorithm::Lz4,
        level: Level::Low,
        buffer_bytes: 65_536,
        page_bytes: 8192,
        copy_only: false,
        attributes: false,
        encrypted: false,
        keys_detached: false,
        parent,
        log: LogStart {
            system,
            timeline: 1,
            first_lsn: first * MIB,
        },
        expires_us: None,
        time_zone: 0,
        database: "db".into(),
        name: String::new(),
        description: String::new(),
        machine: String::new(),
        user: String::new(),
        origin: String::new(),
        lineage: Vec::new(),
        identity: longshore_media::SourceIdentity::default(),
        tree_root: Default::default(),
        sum_key: None,
        server_started_us: None,
    };
    let plan = SetPlan {
        disposition: Disposition::New,
        media_name: String::new(),
        media_description: String::new(),
        header,
        via: Via::Cache,
        expected_bytes: None,
        encryption: None,
        parity: Default::default(),
    };
    let mut writer = SetWriter::begin(&devices, plan, 0).unwrap();
    for family in &mut writer.families {
        family.finish_data().unwrap();
    }
    let log = LogEnd {
        timeline: 1,
        last_lsn: last * MIB,
        included: false,
    };
    writer
        .seal(&Totals {
            log,
            ..Totals::default()
        })
        .unwrap();
    set
}

/// Archives a segment of 1 MiB that begins at this MiB of the WAL.
fn archive(shelf: &Shelf, system: u64, timeline: u32, at: u64) {
    let size = SegmentSize::new(MIB).unwrap();
    let timeline = Timeline::new(timeline).unwrap();
    let name = SegmentName::holding(timeline, Lsn(at * MIB), size);
    let mut bytes = vec![0; MIB as usize];
    bytes[..2].copy_from_slice(&0xD110u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&2u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&timeline.number().to_le_bytes());
    bytes[8..16].copy_from_slice(&(at * MIB).to_le_bytes());
    bytes[24..32].copy_from_slice(&system.to_le_bytes());
    bytes[32..36].copy_from_slice(&(MIB as u32).to_le_bytes());
    bytes[36..40].copy_from_slice(&8192u32.to_le_bytes());
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join(name.to_string());
    fs::write(&path, bytes).unwrap();
    let storage = shelf.storage();
    let path = shelf.wal_path().unwrap();
    let (above, last) = (path.parent().unwrap(), path.file_name().unwrap());
    if !is_in_bucket(&path) {
        fs::create_dir_all(above).unwrap();
    }
    let wal = WalArchive::create(&*storage, above, Path::new(last), &HostClock).unwrap();
    let file = storage
        .dir(temp.path())
        .unwrap()
        .open(Path::new(&name.to_string()), OpenHow::Read)
        .unwrap();
    let out = Outgoing {
        name: WalName::Segment(name),
        path,
        file,
        system: Some(system),
        history: None,
        beside: None,
    };
    let form = StorageForm {
        algorithm: Algorithm::Lz4,
        level: Level::Low,
        verify: false,
        recipients: None,
    };
    wal.push(&out, &form, &HostClock).unwrap();
}

fn expire(shelf: &Shelf, policy: Policy, dry: bool) -> ExpireReport {
    let never = AtomicBool::new(false);
    shelf
        .expire(&policy, &|| i64::MAX / 2, dry, &never)
        .unwrap()
}

fn keep(full: u32, wal: Option<u32>) -> Policy {
    Policy {
        keep_full: Some(full),
        keep_days: None,
        keep_wal: wal,
        counts_emptied: false,
    }
}

/// The MiB at which each archived segment begins.
fn segments(shelf: &Shelf) -> BTreeSet<u64> {
    let size = SegmentSize::new(MIB).unwrap();
    paths(&shelf.wal_path().unwrap())
        .iter()
        .filter_map(|p: &PathBuf| p.file_stem()?.to_str()?.parse::<SegmentName>().ok())
        .map(|n| n.start(size).0 / MIB)
        .collect()
}

fn stage(archived: std::ops::Range<u64>) -> (tempfile::TempDir, Shelf) {
    let temp = tempfile::tempdir().unwrap();
    let shelf = shelf(&host(), &[temp.path()]);
    for at in archived {
        archive(&shelf, 7, 1, at);
    }
    (temp, shelf)
}

#[test]
fn wal_before_the_oldest_kept_backup_is_removed_with_the_backups_that_needed_it() {
    let (_temp, shelf) = stage(1..12);
    for (day, first, last) in [(1, 2, 3), (2, 5, 6), (3, 8, 9)] {
        shelve_logged(&shelf, day, 7, first, last);
    }
    let removed = |e: &ExpireReport| match e.log {
        LogFate::Removed { files, .. } => files,
        ref other => panic!("{other:?}"),
    };
    let dry = expire(&shelf, keep(2, None), true);
    assert_eq!(removed(&dry), 4);
    assert_eq!(segments(&shelf), (1..12).collect());
    let done = expire(&shelf, keep(2, None), false);
    assert_eq!(removed(&done), 4);
    assert_eq!(segments(&shelf), (5..12).collect());
    // Only the WAL that makes the older one consistent, and everything since the newest.
    expire(&shelf, keep(2, Some(1)), false);
    assert_eq!(segments(&shelf), BTreeSet::from([5, 6, 8, 9, 10, 11]));
}

#[test]
fn log_of_another_cluster_or_of_one_without_backups_stays() {
    let (_temp, shelf) = stage(1..4);
    shelve_logged(&shelf, 1, 8, 2, 3);
    shelve_logged(&shelf, 2, 8, 5, 6);
    let done = expire(&shelf, keep(1, None), false);
    assert_eq!(done.log, LogFate::OtherCluster { system: 7 });
    assert_eq!(segments(&shelf), (1..4).collect());
    assert_eq!(shelf.list().unwrap().sets.len(), 1);
}

#[test]
fn no_wal_is_removed_while_a_backup_is_being_written_or_a_spared_one_needs_it() {
    let (_temp, shelf) = stage(1..8);
    shelve_logged(&shelf, 1, 7, 2, 3);
    shelve_logged(&shelf, 2, 7, 5, 6);
    let begun = shelf.begin(BackupKind::Full, 3 * 86_400_000_000).unwrap();
    assert_eq!(expire(&shelf, keep(1, None), false).log, LogFate::Unsure);
    assert_eq!(segments(&shelf), (1..8).collect());
    drop(begun);
    shelve_logged(&shelf, 4, 7, 7, 7);
    let listing = shelf.list().unwrap();
    let lease = shelf.lease(Some(listing.sets[0].label.as_str())).unwrap();
    expire(&shelf, keep(1, None), false);
    assert_eq!(segments(&shelf), (5..8).collect());
    drop(lease);
    expire(&shelf, keep(1, None), false);
    assert_eq!(segments(&shelf), BTreeSet::from([7]));
}

/// Goal: a backup that became foreign by a stripe that somebody put under its label loses no WAL, and counts again when the
/// stripe is gone. A copy of its own stripe makes nothing foreign.
#[test]
fn a_stripe_too_many_costs_no_wal() {
    let temp = tempfile::tempdir().unwrap();
    let dirs = [temp.path().join("d1"), temp.path().join("d2")];
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let shelf = shelf(&host(), &[&dirs[0], &dirs[1]]);
    (1..12).for_each(|at| archive(&shelf, 7, 1, at));
    for (day, first, last) in [(1, 2, 3), (2, 5, 6), (3, 8, 9)] {
        shelve_logged(&shelf, day, 7, first, last);
    }
    let labels = shelf.list().unwrap().facts();
    let labels: Vec<String> = labels.iter().map(|set| set.label.to_string()).collect();
    let stripe = |dir: usize, label: &str, family: u32| {
        dirs[dir].join(format!("db/{label}/family-{family}.bak"))
    };
    let intruder = stripe(1, &labels[0], 1);
    fs::copy(stripe(0, &labels[1], 1), &intruder).unwrap();
    assert_eq!(words(&shelf), ["foreign", "complete", "complete"]);
    assert_eq!(expire(&shelf, keep(2, None), false).log, LogFate::Unsure);
    assert_eq!(segments(&shelf), (1..12).collect());
    // As `cp -a` of one directory of a target into another leaves it, in both directions.
    fs::copy(stripe(0, &labels[0], 1), &intruder).unwrap();
    fs::copy(stripe(1, &labels[1], 2), stripe(0, &labels[1], 2)).unwrap();
    assert_eq!(words(&shelf), ["complete"; 3]);
    let listing = shelf.list().unwrap();
    let doubles: Vec<usize> = listing.sets.iter().map(|set| set.doubles.len()).collect();
    assert_eq!(doubles, [1, 1, 0]);
    let own = [stripe(0, &labels[1], 1), stripe(1, &labels[1], 2)];
    assert_eq!(listing.sets[1].devices, own.map(DeviceSpec::File));
    expire(&shelf, keep(2, None), false);
    assert_eq!(segments(&shelf), (5..12).collect());
    let left = paths(&dirs[1].join("db"));
    let is_gone = |path: &PathBuf| !path.to_string_lossy().contains(&labels[0]);
    assert!(left.iter().all(is_gone), "{left:?}");
}

#[test]
fn a_shelf_without_backups_keeps_its_log() {
    let (_temp, shelf) = stage(1..4);
    let done = expire(&shelf, keep(1, None), false);
    assert_eq!(done.log, LogFate::OtherCluster { system: 7 });
    assert_eq!(segments(&shelf), (1..4).collect());
}

/// The shelves of `count` targets whose backups rely on one archive with these segments.
fn sharing(count: usize, archived: std::ops::Range<u64>) -> (tempfile::TempDir, Vec<Shelf>) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("wal");
    let shelves = (0..count).map(|n| {
        let directory = temp.path().join(format!("target-{n}"));
        fs::create_dir(&directory).unwrap();
        let mut shelf = shelf(&host(), &[&directory]);
        shelf.archive = Some(path.clone());
        shelf
    });
    let shelves: Vec<Shelf> = shelves.collect();
    for at in archived {
        archive(&shelves[0], 7, 1, at);
    }
    (temp, shelves)
}

/// A backup as the program makes it: the archive gets its record before the WAL is proved.
fn rely(shelf: &Shelf, day: i64, first: u64, last: u64) {
    let begun = shelf
        .begin(BackupKind::Full, day * 86_400_000_000 + 1)
        .unwrap();
    let reliance = Reliance::new(shelf, &begun.label);
    let archive = shelf.wal().unwrap().unwrap();
    reliance.announce(&archive, 7, Lsn(first * MIB)).unwrap();
    reliance
        .settle(&archive, 7, Lsn(first * MIB), Duration::ZERO)
        .unwrap();
    drop(begun);
    shelve_logged(shelf, day, 7, first, last);
}

fn removed(expired: &ExpireReport) -> (u64, &[Need]) {
    match &expired.log {
        LogFate::Removed {
            files, kept_for, ..
        } => (*files, kept_for),
        other => panic!("{other:?}"),
    }
}

fn undecided(expired: &ExpireReport) -> &str {
    match &expired.log {
        LogFate::Undecided(why) => why,
        other => panic!("{other:?}"),
    }
}

fn needs(shelf: &Shelf) -> Vec<Need> {
    shelf.wal().unwrap().unwrap().needs().unwrap()
}

/// Goal: an expire at one target keeps the WAL that another target's backups need, names that target, and reduces its
/// own record in the archive.
#[test]
fn an_expire_keeps_what_the_backups_at_another_target_need() {
    let (_temp, shelves) = sharing(2, 1..12);
    let [one, other] = &shelves[..] else { panic!() };
    rely(one, 1, 5, 6);
    rely(other, 1, 2, 3);
    rely(one, 2, 9, 10);
    let dry = expire(one, keep(1, None), true);
    assert_eq!(removed(&dry).0, 1);
    let done = expire(one, keep(1, None), false);
    let (files, kept_for) = removed(&done);
    assert_eq!((files, segments(one)), (1, (2..12).collect()));
    assert_eq!(kept_for.len(), 1);
    assert_eq!(kept_for[0].from(), Some(Lsn(2 * MIB)));
    assert!(kept_for[0].directory.ends_with("target-1/db"));
    // The other target removes its old backup.
    rely(other, 3, 7, 8);
    assert_eq!(removed(&expire(other, keep(1, None), false)).0, 5);
    assert_eq!(segments(one), (7..12).collect());
    // The other target is gone: an operator says so.
    let id = kept_for[0].id;
    assert_eq!(needs(one).len(), 2);
    let archive = one.wal().unwrap().unwrap();
    assert_eq!(archive.forget_need(id).unwrap(), 1);
    assert_eq!(removed(&expire(one, keep(1, None), false)), (2, &[][..]));
    assert_eq!(segments(one), (9..12).collect());
    // A copy of it that is still used writes a new record with all its needs.
    rely(other, 4, 11, 11);
    assert_eq!(
        needs(one).iter().filter_map(Need::from).min(),
        Some(Lsn(7 * MIB))
    );
}

/// Goal: a copy of a target, a target with the same names elsewhere, and a renamed target are distinguished by
/// content.
#[test]
fn a_copy_of_a_target_gets_a_record_of_its_own_and_a_renamed_target_keeps_its() {
    let (temp, shelves) = sharing(1, 1..12);
    let one = &shelves[0];
    rely(one, 1, 2, 3);
    rely(one, 2, 5, 6);
    let copy = temp.path().join("copy");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(temp.path().join("target-0"))
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let mut copy = shelf(&host(), &[&copy]);
    copy.archive = one.archive.clone();
    let done = expire(&copy, keep(1, None), false);
    assert_eq!(removed(&done).1.len(), 1, "the original's");
    assert_eq!(segments(one), (2..12).collect());
    assert_eq!(needs(one).len(), 2);
    expire(&copy, keep(1, None), false);
    assert_eq!(needs(one).len(), 2, "each its own, again and again");

    let renamed = temp.path().join("renamed");
    fs::rename(temp.path().join("target-0"), &renamed).unwrap();
    let mut renamed = shelf(&host(), &[&renamed]);
    renamed.archive = one.archive.clone();
    assert_eq!(
        removed(&expire(&renamed, keep(1, None), false)),
        (3, &[][..])
    );
    assert_eq!(needs(&renamed).len(), 2);
    // The mark of a target is neither a backup nor a stray.
    assert!(renamed.list().unwrap().strays.is_empty());
}

/// Goal: a copy of a target in a bucket, times and all, takes no record from its original: not in another bucket, and not at
/// another server in a bucket of the same name. Method: a replica of a simulated store.
#[test]
fn a_replica_of_a_target_in_a_bucket_gets_a_record_of_its_own() {
    for elsewhere in ["another bucket", "another server"] {
        let (_temp, shelves) = sharing(1, 1..12);
        let store = Store::default();
        let name = store.install().unwrap();
        let of = |bucket: &str| {
            let target = Target {
                name: "t".into(),
                places: Places::buckets(&[format!("s3://{bucket}/p")]).unwrap(),
            };
            let mut shelf = Shelf::new(host(), Arc::new(HostClock), &target, "db").unwrap();
            shelf.archive = shelves[0].archive.clone();
            shelf
        };
        let original = of(&name);
        rely(&original, 1, 2, 3);
        rely(&original, 2, 5, 6);
        let replica = store.replica();
        let copy = match elsewhere {
            "another bucket" => of(&replica.install().unwrap()),
            _ => {
                replica.install_at(&name, "http://replica").unwrap();
                of(&name)
            }
        };
        for _ in 0..2 {
            let done = expire(&copy, keep(1, None), false);
            let (_, kept_for) = removed(&done);
            assert_eq!(kept_for.len(), 1, "{elsewhere}: the original's");
            assert_eq!(segments(&original), (2..12).collect(), "{elsewhere}");
            assert_eq!(needs(&original).len(), 2, "{elsewhere}");
        }
        // In its own place the original is known again.
        store.install_at(&name, "http://sim/").unwrap();
        rely(&original, 3, 9, 10);
        assert_eq!(needs(&original).len(), 2, "{elsewhere}");
        expire(&original, keep(1, None), false);
        let froms: BTreeSet<_> = needs(&original).iter().filter_map(Need::from).collect();
        assert_eq!(froms, BTreeSet::from([Lsn(5 * MIB), Lsn(9 * MIB)]));
        assert_eq!(segments(&original), (5..12).collect(), "{elsewhere}");
    }
}

/// Goal: WAL is removed only if all who rely on the archive are known, and no other program removes WAL there.
#[test]
fn an_expire_that_cannot_know_who_relies_on_the_archive_removes_no_log() {
    let (_temp, shelves) = sharing(2, 1..8);
    let [one, other] = &shelves[..] else { panic!() };
    rely(one, 1, 5, 6);
    rely(other, 1, 2, 3);
    let archive = one.wal_path().unwrap();
    let try_it = || expire(one, keep(1, None), false);

    // A record that cannot be read.
    let id = needs(one)
        .iter()
        .find(|n| n.from() == Some(Lsn(2 * MIB)))
        .unwrap()
        .id;
    let records = paths(&archive.join("needs"));
    let is_its = |p: &&PathBuf| p.to_string_lossy().starts_with(&id.simple().to_string());
    let record = archive
        .join("needs")
        .join(records.iter().find(is_its).unwrap());
    let whole = fs::read(&record).unwrap();
    for bad in [&whole[..whole.len() - 1], b"", &[0; 300]] {
        fs::write(&record, bad).unwrap();
        assert!(undecided(&try_it()).contains("cannot read the record"));
    }
    fs::write(archive.join("needs").join(format!("{id}.x")), &whole).unwrap();
    assert!(
        undecided(&try_it()).contains("cannot read the record"),
        "another's name"
    );
    fs::remove_file(archive.join("needs").join(format!("{id}.x"))).unwrap();
    fs::write(&record, &whole).unwrap();

    // An archive of a version that wrote no records.
    let known = archive.join("needs/known");
    fs::remove_file(&known).unwrap();
    assert!(undecided(&try_it()).contains("wal needs --archive"));
    // Creating it again does not make it new.
    WalArchive::create(
        &*one.storage(),
        archive.parent().unwrap(),
        Path::new("wal"),
        &HostClock,
    )
    .unwrap();
    fs::remove_file(archive.join("longshore-wal")).unwrap();
    WalArchive::create(
        &*one.storage(),
        archive.parent().unwrap(),
        Path::new("wal"),
        &HostClock,
    )
    .unwrap();
    assert!(!known.exists());
    archive_again(one);
    assert!(undecided(&try_it()).contains("wal needs --archive"));
    one.wal().unwrap().unwrap().know_all().unwrap();

    // Another expire at work.
    let dir = one.storage().dir(&archive).unwrap();
    let lease = Lease::take(dir, Use::Expire, &HostClock).unwrap();
    assert!(undecided(&try_it()).contains("another expire"));
    assert_eq!(segments(one), (1..8).collect());
    drop(lease);
    assert_eq!(removed(&try_it()).0, 1);
}

/// The archive's identity comes back with its next segment.
fn archive_again(shelf: &Shelf) {
    archive(shelf, 7, 1, 7);
}

/// Goal: a backup whose record came after an expire had read the records proves its WAL only after that expire has
/// ended.
#[test]
fn a_backup_waits_for_an_expire_that_may_not_have_seen_its_record() {
    let (_temp, shelves) = sharing(1, 1..8);
    let one = &shelves[0];
    let begun = one.begin(BackupKind::Full, 86_400_000_000).unwrap();
    let archive = one.wal().unwrap().unwrap();
    let dir = one.storage().dir(archive.path()).unwrap();
    let lease = Lease::take(dir, Use::Expire, &HostClock).unwrap();
    let reliance = Reliance::new(one, &begun.label);
    reliance.announce(&archive, 7, Lsn(2 * MIB)).unwrap();
    let settle = || reliance.settle(&archive, 7, Lsn(2 * MIB), Duration::ZERO);
    let refused = settle();
    let expired = |e: &_| {
        matches!(
            e,
            longshore_repository::Error::Wal(Error::BeingExpired { .. })
        )
    };
    assert!(refused.as_ref().is_err_and(expired), "{refused:?}");
    drop(lease);
    settle().unwrap();
    // Its own start, and the needs of the target's other backups; then nothing has to be written.
    assert_eq!(needs(one).len(), 1);
    reliance.announce(&archive, 7, Lsn(3 * MIB)).unwrap();
    assert_eq!(needs(one).len(), 1);
    // A backup of a lagging standby begins before all others.
    reliance.announce(&archive, 7, Lsn(MIB)).unwrap();
    assert_eq!(needs(one).len(), 2);
    assert!(
        paths(archive.path())
            .iter()
            .all(|p| !p.to_string_lossy().ends_with(".tmp"))
    );
}

/// A clock that runs an action at its first sleep.
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Clock for Meanwhile {
    fn now(&self) -> Duration {
        HostClock.now()
    }

    fn wall_ns(&self) -> i64 {
        HostClock.wall_ns()
    }

    fn thread_cpu(&self) -> Duration {
        HostClock.thread_cpu()
    }

    fn sleep(&self, how_long: Duration) {
        let act = self.0.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        HostClock.sleep(how_long);
    }
}

#[test]
fn a_clock_that_acts_during_a_sleep_keeps_the_contract_of_all_clocks() {
    clock_contract::keeps_its_contract(&Meanwhile(Mutex::new(Some(Box::new(|| {})))));
}

/// Goal: while a backup waits, an expire of the same target that listed before the backup existed may replace the
/// record that covers it. The backup writes another record before its WAL is proved.
#[test]
fn a_backup_whose_record_an_expire_of_its_own_target_replaced_leaves_another() {
    let (temp, shelves) = sharing(2, 1..12);
    let [one, other] = &shelves[..] else { panic!() };
    rely(one, 1, 2, 3);
    rely(one, 2, 9, 10);
    rely(other, 1, 2, 3);
    let begun = one.begin(BackupKind::Full, 3 * 86_400_000_000).unwrap();
    let archive = one.wal().unwrap().unwrap();
    let dir = one.storage().dir(archive.path()).unwrap();
    let lease = Lease::take(dir, Use::Expire, &HostClock).unwrap();
    let label = begun.label.as_str();
    let place = temp.path().join("target-0/db").join(label);
    let away = temp.path().join(label);
    let expiring = one.clone();
    // An expire that does not see the begun ends during the wait.
    let act = move || {
        drop(lease);
        fs::rename(&place, &away).unwrap();
        removed(&expire(&expiring, keep(1, None), false));
        fs::rename(&away, &place).unwrap();
        let from: Vec<_> = needs(&expiring).iter().filter_map(Need::from).collect();
        assert!(from.contains(&Lsn(9 * MIB)), "{from:?}");
    };
    let clock = Arc::new(Meanwhile(Mutex::new(Some(Box::new(act)))));
    let at = target(&[&temp.path().join("target-0")]);
    let mut waiting = Shelf::new(host(), clock.clone(), &at, "db").unwrap();
    waiting.archive = one.archive.clone();
    let reliance = Reliance::new(&waiting, &begun.label);
    // A backup of a lagging standby: its WAL begins before that of the newest backup.
    reliance.announce(&archive, 7, Lsn(5 * MIB)).unwrap();
    assert_eq!(needs(one).len(), 2, "the old record covers it");
    reliance
        .settle(&archive, 7, Lsn(5 * MIB), Duration::from_secs(60))
        .unwrap();
    assert!(clock.0.lock().unwrap().is_none(), "it waited");
    drop(begun);
    shelve_logged(one, 3, 7, 5, 6);
    // The other target's record no longer keeps the WAL.
    rely(other, 2, 11, 11);
    assert_eq!(removed(&expire(other, keep(1, None), false)).0, 3);
    assert_eq!(segments(one), (5..12).collect());
}

/// Goal: an expire that began before the need of a copy was recorded may still remove WAL at the second target; the copy
/// looks what is lacking only after that expire has ended.
#[test]
fn a_copy_brings_wal_again_that_an_expire_removed_while_it_waited() {
    let (_first, from) = stage(10..16);
    shelve_logged(&from, 1, 7, 10, 12);
    let (second, to) = stage(10..16);
    let archive = to.wal().unwrap().unwrap();
    let dir = to.storage().dir(archive.path()).unwrap();
    let lease = Lease::take(dir, Use::Expire, &HostClock).unwrap();
    let expired = paths(archive.path())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("00000000000A"))
        .map(|path| archive.path().join(path))
        .collect::<Vec<_>>();
    assert_eq!(expired.len(), 1);
    let act = move || {
        expired
            .iter()
            .for_each(|path| fs::remove_file(path).unwrap());
        drop(lease);
    };
    let clock = Arc::new(Meanwhile(Mutex::new(Some(Box::new(act)))));
    let at = target(&[second.path()]);
    let waiting = Shelf::new(host(), clock.clone(), &at, "db").unwrap();
    let listing = from.list().unwrap();
    let plan = copying::plan(
        &listing,
        &waiting.list().unwrap(),
        &[],
        &Policy::default(),
        i64::MAX / 2,
    );
    let begun = from.begin_copy((&listing, 0), &waiting, false).unwrap();
    let form = StorageForm {
        algorithm: Algorithm::Lz4,
        level: Level::Low,
        verify: false,
        recipients: None,
    };
    let first = Some((&begun, &listing.facts()[..]));
    let done = from
        .copy_wal(&waiting, &plan, first, &form, &|| true)
        .unwrap();
    assert!(clock.0.lock().unwrap().is_none(), "it waited");
    assert_eq!(done.files, 1);
    assert_eq!(segments(&to), (10..16).collect());
}

/// Goal: a record that an expire writes while a directory of its target is not mounted holds until the directory is
/// back, not for ever.
#[test]
fn an_expire_without_the_first_directory_leaves_no_record_for_ever() {
    let temp = tempfile::tempdir().unwrap();
    let directories = ["first", "second"].map(|name| temp.path().join(name));
    directories.iter().for_each(|d| fs::create_dir(d).unwrap());
    let mut one = shelf(&host(), &[&directories[0], &directories[1]]);
    one.archive = Some(temp.path().join("wal"));
    for at in 1..8 {
        archive(&one, 7, 1, at);
    }
    rely(&one, 1, 2, 3);
    rely(&one, 2, 5, 6);
    assert_eq!(needs(&one).len(), 1);
    let (place, away) = (directories[0].join("db"), temp.path().join("away"));
    fs::rename(&place, &away).unwrap();
    assert_eq!(expire(&one, keep(1, None), false).log, LogFate::Unsure);
    fs::rename(&away, &place).unwrap();
    assert_eq!(needs(&one).len(), 2);
    assert_eq!(removed(&expire(&one, keep(1, None), false)), (4, &[][..]));
    let left = needs(&one);
    assert_eq!(left.len(), 1);
    assert!(left[0].directory.ends_with("first/db"));
}

/// Goal: a copy made of hard links has the mark and its time; it must not remove the original's record.
#[test]
fn a_copy_by_hard_links_shares_no_record_with_its_original() {
    let (temp, shelves) = sharing(1, 1..12);
    let one = &shelves[0];
    rely(one, 1, 2, 3);
    rely(one, 2, 5, 6);
    // A mark without a record, as after a change of the archive.
    let wal = one.wal().unwrap().unwrap();
    wal.forget_need(needs(one)[0].id).unwrap();
    let copy = temp.path().join("copy");
    let copied = std::process::Command::new("cp")
        .arg("-al")
        .arg(temp.path().join("target-0"))
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let mut copy = shelf(&host(), &[&copy]);
    copy.archive = one.archive.clone();
    assert_eq!(removed(&expire(one, keep(2, None), false)).0, 1);
    assert_eq!(removed(&expire(&copy, keep(1, None), false)).1.len(), 1);
    assert_eq!(segments(one), (2..12).collect());
    assert_eq!(needs(one).len(), 2);
}

#[test]
fn gaps_between_a_backup_and_the_end_of_the_log_are_found() {
    use longshore_wal::LogRange;
    let (_temp, shelf) = stage(2..5);
    for at in [7, 8] {
        archive(&shelf, 7, 1, at);
    }
    let range = |first: u64, last: u64| LogRange {
        system: 7,
        first_timeline: 1,
        first_lsn: first * MIB,
        last_timeline: 1,
        last_lsn: last * MIB,
    };
    let wal = shelf.wal().unwrap().unwrap();
    let replay = wal.replay(&range(2, 4), false).unwrap().unwrap();
    assert!(replay.missing_to_consistency.is_empty());
    assert_eq!(replay.end, Lsn(9 * MIB));
    assert_eq!(replay.missing_to_end.len(), 1);
    assert_eq!(replay.missing_to_end[0].segments, 2);
    let replay = wal.replay(&range(4, 6), false).unwrap().unwrap();
    assert_eq!(replay.missing_to_consistency[0].segments, 1);
    // Its own WAL reaches to 6, and 7 exists.
    let replay = wal.replay(&range(4, 7), true).unwrap().unwrap();
    assert!(replay.missing_to_consistency.is_empty() && replay.missing_to_end.is_empty());
    let replay = wal.replay(&range(7, 8), false).unwrap().unwrap();
    assert!(replay.missing_to_end.is_empty());
}

/// Shelves of targets in directories whose backups rely on one archive in a bucket, with these segments.
fn sharing_a_bucket(
    count: usize,
    archived: std::ops::Range<u64>,
) -> (tempfile::TempDir, Store, Vec<Shelf>) {
    let store = Store::default();
    let (temp, mut shelves) = sharing(count, 0..0);
    let path = PathBuf::from(format!("s3://{}/db/wal", store.install().unwrap()));
    for shelf in &mut shelves {
        shelf.archive = Some(path.clone());
    }
    for at in archived {
        archive(&shelves[0], 7, 1, at);
    }
    (temp, store, shelves)
}

/// The MiB at which each segment of an archive anywhere begins.
fn listed(shelf: &Shelf) -> BTreeSet<u64> {
    let size = SegmentSize::new(MIB).unwrap();
    let runs = shelf.wal().unwrap().unwrap().runs().unwrap();
    let start = |name: SegmentName| name.start(size).0 / MIB;
    let of = |run: &longshore_wal::Run| start(run.span.first)..=start(run.span.last);
    runs.iter().flat_map(of).collect()
}

/// A shelf in a bucket: a full backup, a differential one that needs it, and a full one that alone is to stay.
fn chain_in_a_bucket() -> (Store, Shelf) {
    let store = Store::default();
    let prefix = format!("s3://{}/p", store.install().unwrap());
    let target = Target {
        name: "t".into(),
        places: Places::buckets(&[prefix]).unwrap(),
    };
    let shelf = Shelf::new(host(), Arc::new(HostClock), &target, "db").unwrap();
    let full = shelve_logged(&shelf, 1, 7, 10, 20);
    shelve_above(&shelf, 2, Some(full), (7, 30, 40));
    shelve_logged(&shelf, 3, 7, 50, 60);
    (store, shelf)
}

/// Goal: what a backup needs stays with it, if its removal is refused.
#[test]
fn a_differential_backup_that_a_store_retains_keeps_its_full_one() {
    let (store, shelf) = chain_in_a_bucket();
    let label = &shelf.list().unwrap().sets[1].label;
    let locked = format!("{label}/family");
    store.script(
        move |asked| match asked.method == "DELETE" && asked.key.contains(&locked) {
            true => Act::Refuse(403, "AccessDenied"),
            false => Act::Pass,
        },
    );
    let fates = expire(&shelf, keep(1, None), false).fates;
    let is_kept = |fate: &Fate| matches!(fate, Fate::Retained { .. });
    assert!(is_kept(&fates[0]) && is_kept(&fates[1]), "{fates:?}");
    assert_eq!(words(&shelf), ["complete"; 3]);
}

#[test]
fn an_expire_of_wal_in_a_bucket_keeps_what_other_targets_need() {
    let (_temp, store, shelves) = sharing_a_bucket(2, 1..12);
    let [one, other] = &shelves[..] else { panic!() };
    rely(one, 1, 5, 6);
    rely(other, 1, 2, 3);
    rely(one, 2, 9, 10);
    assert_eq!(removed(&expire(one, keep(1, None), true)).0, 1);
    let done = expire(one, keep(1, None), false);
    let (files, kept_for) = removed(&done);
    assert_eq!((files, listed(one)), (1, (2..12).collect()));
    assert_eq!(kept_for[0].from(), Some(Lsn(2 * MIB)));
    rely(other, 3, 7, 8);
    assert_eq!(removed(&expire(other, keep(1, None), false)).0, 5);
    assert_eq!(listed(one), (7..12).collect());
    let left = |key: &String| key.contains("lease") || key.contains("probe");
    assert!(!store.keys().iter().any(left), "{:?}", store.keys());
}

/// Goal: WAL that a backup has found after its wait is not removed by an expire that did not see its record.
/// Method: the one acts as a whole before each request of the other.
#[test]
fn of_a_backup_and_an_expire_at_one_bucket_one_sees_the_other() {
    /// Whether the backup may rely on the WAL from 4 MiB on.
    fn relied(shelf: &Shelf) -> bool {
        let begun = shelf.begin(BackupKind::Full, 9 * 86_400_000_000).unwrap();
        let reliance = Reliance::new(shelf, &begun.label);
        let archive = shelf.wal().unwrap().unwrap();
        let (system, first) = (7, Lsn(4 * MIB));
        reliance.announce(&archive, system, first).unwrap();
        let settled = reliance.settle(&archive, system, first, Duration::ZERO);
        settled.is_ok() && listed(shelf).contains(&4)
    }
    for backup_first in [true, false] {
        let mut both = 0;
        for number in 0.. {
            let (_temp, store, shelves) = sharing_a_bucket(2, 3..9);
            let (one, other) = (shelves[0].clone(), shelves[1].clone());
            rely(&one, 1, 3, 3);
            rely(&one, 2, 7, 7);
            let begun = store.asked().len();
            let found = Arc::new(Mutex::new(None));
            let result = found.clone();
            let (expiring, relying) = (one.clone(), other.clone());
            store.meanwhile(begun + number, move || {
                let relied = match backup_first {
                    true => {
                        expire(&expiring, keep(1, None), false);
                        None
                    }
                    false => Some(relied(&relying)),
                };
                *result.lock().unwrap() = Some(relied);
            });
            let own = match backup_first {
                true => Some(relied(&other)),
                false => {
                    expire(&one, keep(1, None), false);
                    None
                }
            };
            let Some(theirs) = *found.lock().unwrap() else {
                assert!(number > 4, "{number}");
                break;
            };
            if own.or(theirs).unwrap() {
                both += 1;
                let there = listed(&one);
                assert!((4..9).all(|at| there.contains(&at)), "{number}: {there:?}");
            }
        }
        assert!(both > 0);
    }
}

#[test]
fn an_expire_whose_lease_on_a_bucket_was_lost_removes_no_wal() {
    let mut lost = 0;
    for number in 0.. {
        let (_temp, store, shelves) = sharing_a_bucket(1, 3..9);
        let one = &shelves[0];
        rely(one, 1, 3, 3);
        rely(one, 2, 7, 7);
        let passing = store.clone();
        let begun = store.asked().len();
        store.meanwhile(begun + number, move || passing.pass(16 * 60));
        let never = AtomicBool::new(false);
        let expired = one.expire(&keep(1, None), &|| i64::MAX / 2, false, &never);
        if store.asked().len() <= begun + number {
            break;
        }
        match expired {
            Ok(_) => {}
            Err(error) => {
                lost += 1;
                assert!(error.to_string().contains("lease"), "{error}");
                assert_eq!(listed(one), (3..9).collect(), "{number}");
            }
        }
    }
    assert!(lost > 0);
}

/// Goal: WAL that a store does not remove is told and is no failure: the backups have their results, and no run leaves more
/// records behind than the one before.
#[test]
fn wal_that_a_store_retains_is_told_and_leaves_no_record_with_each_run() {
    let (_temp, store, shelves) = sharing_a_bucket(1, 1..12);
    let one = &shelves[0];
    rely(one, 1, 5, 6);
    rely(one, 2, 9, 10);
    store.script(|asked| match asked.method == "DELETE" {
        true => Act::Refuse(403, "AccessDenied"),
        false => Act::Pass,
    });
    let mut records = Vec::new();
    for round in 0..3 {
        let expired = expire(one, keep(1, None), false);
        match &expired.log {
            LogFate::Removed {
                files: 0,
                retained: Some(why),
                ..
            } => assert!(why.contains("AccessDenied"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(listed(one), (1..12).collect());
        if round == 0 {
            assert!(
                expired.fates.contains(&Fate::Removed),
                "{:?}",
                expired.fates
            );
        }
        records.push(needs(one).len());
    }
    assert_eq!(records[1], records[2], "{records:?}");
    // An operator who forgets a target is not told that it is done.
    let archive = one.wal().unwrap().unwrap();
    assert!(archive.forget_need(needs(one)[0].id).is_err());
    assert_eq!(needs(one).len(), records[2]);
    // The retention has ended.
    store.heal();
    assert_eq!(removed(&expire(one, keep(1, None), false)).0, 8);
    assert_eq!(listed(one), (9..12).collect());
    assert_eq!(needs(one).len(), 1);
}

/// Goal: whatever request an expire of WAL is killed before, nothing that is needed is gone, and the next one ends its work.
#[test]
fn an_expire_of_wal_in_a_bucket_that_is_killed_anywhere_is_ended_by_the_next_one() {
    let staged = || {
        let (temp, store, shelves) = sharing_a_bucket(1, 1..8);
        rely(&shelves[0], 1, 3, 4);
        rely(&shelves[0], 2, 5, 6);
        (temp, store, shelves.into_iter().next().unwrap())
    };
    let requests = {
        let (_temp, store, shelf) = staged();
        let begun = store.asked().len();
        expire(&shelf, keep(1, None), false);
        store.asked().len() - begun
    };
    assert!(requests > 10, "{requests}");
    let mut unfinished = 0;
    for kill in 0..requests {
        let what = format!("killed before request {kill} of {requests}");
        let (_temp, store, shelf) = staged();
        let mut left = kill;
        store.script(move |_| match left.checked_sub(1) {
            None => Act::LoseRequest,
            Some(rest) => {
                left = rest;
                Act::Pass
            }
        });
        let never = AtomicBool::new(false);
        let _ = shelf.expire(&keep(1, None), &|| i64::MAX / 2, false, &never);
        store.heal();
        let there = listed(&shelf);
        assert!((5..8).all(|at| there.contains(&at)), "{what}: {there:?}");
        unfinished += usize::from(there.len() > 3);
        // The dead process's lease ends by the store's clock.
        store.pass(15 * 60 + 1);
        expire(&shelf, keep(1, None), false);
        assert_eq!(listed(&shelf), (5..8).collect(), "{what}");
        assert_eq!(needs(&shelf).len(), 1, "{what}");
        store.pass(15 * 60 + 1);
        expire(&shelf, keep(1, None), false);
        let left = |key: &String| key.contains("lease") || key.contains("probe");
        assert!(!store.keys().iter().any(left), "{what}: {:?}", store.keys());
    }
    assert!(unfinished > 5, "{unfinished}");
}
