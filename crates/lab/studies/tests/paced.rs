//! Goal: backups over emulated devices are backups like any other, and each device is at work for its own bytes alone.
//! Method: the suite of file systems; real backups to one device and to four, verified without emulation, and the
//! devices' own accounts.
//! Not covered: whether a real device of the same rate would take as long.

#[path = "../../../core/io/tests/contract/suite/mod.rs"]
mod storage_suite;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longshore_codec::Algorithm;
use longshore_io::{Clock, Host, HostClock, OpenHow, SimClock, Storage, Via};
use longshore_pipeline::{
    BackupRequest, DeviceSpec, Limits, NullObserver, Report, Request, RunContext, SourceSpec,
    Tuning, VerifyDepth, VerifyRequest, run,
};
use longshore_studies::paced::{DeviceRate, EmulatedVolumes, PaceAccount, PacedStorage};
use longshore_studies::sample::SampleKind;
use longshore_studies::stock::sample_in;

fn rate(bytes_per_s: u64) -> DeviceRate {
    DeviceRate {
        bytes_per_s: NonZeroU64::new(bytes_per_s).unwrap(),
        latency: Duration::ZERO,
    }
}

fn rates(target: u64, source: Option<u64>) -> EmulatedVolumes {
    EmulatedVolumes {
        target: rate(target),
        source: source.map(rate),
    }
}

fn context(storage: Arc<dyn Storage>) -> RunContext {
    RunContext {
        keyring: Default::default(),
        storage,
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// A storage whose directory is a device, and a storage in which it is none.
#[test]
fn a_storage_with_emulated_devices_is_a_storage_like_any_other() {
    for is_device in [true, false] {
        storage_suite::keeps_its_contract(&|| {
            let temporary = tempfile::tempdir().unwrap();
            let dirs: Vec<PathBuf> = is_device
                .then(|| temporary.path().to_owned())
                .into_iter()
                .collect();
            // A clock that waits for nobody.
            let clock: Arc<dyn Clock> = Arc::new(SimClock::new(0));
            let rates = rates(1 << 20, None);
            let storage = PacedStorage::new(Arc::new(Host::new()), &clock, &rates, &dirs, &[]);
            storage_suite::Place::in_a(temporary, Arc::new(storage.unwrap()))
        });
    }
}

/// A backup of the source to these stripes, one for each device; verified from the real files. Answers with the stored
/// bytes and each device's account.
fn backed_up(source: &Path, dirs: &[PathBuf], rates: EmulatedVolumes) -> (u64, Vec<PaceAccount>) {
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let host = Arc::new(Host::new());
    let paced =
        PacedStorage::new(host.clone(), &clock, &rates, dirs, &[source.to_owned()]).unwrap();
    let stripe = |dir: &PathBuf| DeviceSpec::File(dir.join("stripe.bak"));
    let devices: Vec<DeviceSpec> = dirs.iter().map(stripe).collect();
    let mut request = BackupRequest::new(SourceSpec::Sqlite(source.to_owned()), devices.clone());
    request.algorithm = Algorithm::None;
    let emulated = context(Arc::new(paced.clone()));
    let report = match run(&emulated, &Request::Backup(request), &NullObserver) {
        Ok(Report::Backup(report)) => report,
        other => panic!("{other:?}"),
    };
    let accounts = paced.devices().map(|device| device.account()).collect();
    let verify = VerifyRequest {
        devices,
        bases: Vec::new(),
        position: None,
        known: Vec::new(),
        depth: VerifyDepth::default(),
        tuning: Tuning::default(),
        limits: Limits::default(),
    };
    match run(&context(host), &Request::Verify(verify), &NullObserver) {
        Ok(Report::Verify(verified)) => assert!(verified.is_valid(), "{:?}", verified.findings),
        other => panic!("{other:?}"),
    }
    (report.stored_bytes, accounts)
}

#[test]
fn four_devices_have_four_times_the_budget_of_one_and_both_backups_are_good() {
    let root = tempfile::tempdir().unwrap();
    let source = sample_in(
        &Host::new(),
        root.path(),
        SampleKind::Stae,
        6_000_000,
        &|_| {},
    )
    .unwrap();
    let dirs: Vec<PathBuf> = (0..4).map(|n| root.path().join(n.to_string())).collect();
    let slow = rates(4 << 20, None);
    let (stored, one) = backed_up(&source, &[root.path().join("one")], slow);
    let (also_stored, four) = backed_up(&source, &dirs, slow);
    assert_eq!((one.len(), four.len()), (1, 4));
    // By the account, not by a watch: each device was at work for its own bytes at its own rate.
    for account in one.iter().chain(&four) {
        let by_rate = account.bytes as f64 / f64::from(4 << 20);
        assert!(
            (account.busy.as_secs_f64() - by_rate).abs() < 1e-3,
            "{account:?}"
        );
    }
    assert!(one[0].bytes >= stored, "{one:?} {stored}");
    let all: u64 = four.iter().map(|account| account.bytes).sum();
    assert!(all >= also_stored, "{four:?} {also_stored}");
    // In the time in which one device took all, each of the four took about a quarter: their budget is four times as large.
    let longest = four.iter().map(|account| account.busy).max().unwrap();
    assert!(longest * 2 < one[0].busy, "{four:?} {one:?}");
    let busy: Duration = four.iter().map(|account| account.busy).sum();
    assert!(busy < one[0].busy * 3 / 2, "{four:?} {one:?}");
}

#[test]
fn a_directory_named_twice_is_one_device_and_a_source_has_its_own() {
    let root = tempfile::tempdir().unwrap();
    let source = sample_in(
        &Host::new(),
        root.path(),
        SampleKind::Stae,
        3_000_000,
        &|_| {},
    )
    .unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new(0));
    let dir = root.path().join("a");
    let twice = [dir.clone(), root.path().join("./a")];
    let both = rates(1 << 20, Some(2 << 20));
    let paced = PacedStorage::new(
        Arc::new(Host::new()),
        &clock,
        &both,
        &twice,
        std::slice::from_ref(&source),
    );
    let found: Vec<DeviceRate> = paced.unwrap().devices().map(|d| d.rate()).collect();
    assert_eq!(found, [both.target, both.source.unwrap()]);
    let fast = rates(1 << 40, Some(1 << 40));
    let (_, accounts) = backed_up(&source, &[dir], fast);
    let read = std::fs::metadata(&source).unwrap().len();
    assert!(accounts[1].bytes >= read, "{accounts:?} {read}");
}

/// Goal: nobody takes a device for as fast as stated if the disk below it was slower.
/// Method: a device faster than any memory, and one slower than any disk.
#[test]
fn a_device_that_the_storage_below_cannot_keep_up_with_is_told() {
    let root = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    for (rate, is_doubted) in [(1 << 50, true), (1 << 22, false)] {
        let dirs = [root.path().join(rate.to_string())];
        let host = Arc::new(Host::new());
        let paced = PacedStorage::new(host, &clock, &rates(rate, None), &dirs, &[]).unwrap();
        let dir = paced.dir(&dirs[0]).unwrap();
        let file = dir.open(Path::new("file"), OpenHow::CreateNew).unwrap();
        file.write_all_at(&vec![1; 4 << 20], 0, Via::Cache).unwrap();
        let doubt = paced.take_doubt();
        assert_eq!(doubt.is_some(), is_doubted, "{doubt:?}");
        // The next figure begins without the doubts of this one.
        assert_eq!(paced.take_doubt(), None);
    }
}

/// Goal: a file on a device is a file like any other, only later.
#[test]
fn a_file_on_an_emulated_device_keeps_the_contract_of_files() {
    let root = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new(0));
    let dirs = [root.path().to_owned()];
    let host = Arc::new(Host::new());
    let paced = PacedStorage::new(host, &clock, &rates(1 << 20, None), &dirs, &[]).unwrap();
    let dir = paced.dir(&dirs[0]).unwrap();
    storage_suite::alone::keeps_its_contract(&|name| storage_suite::alone::Lone {
        file: storage_suite::put(&*dir, name, b""),
        synced: Ok(()),
    });
}
