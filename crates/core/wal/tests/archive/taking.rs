//! Goal: the archive returns what it accepted, byte by byte; it accepts nothing else, and replaces nothing.
//! Method: segments made for the test go in and come back, on simulated disks also with power cuts and with another
//! host whose locks are not seen; stock tools unpack them, too.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longshore_codec::Algorithm;
use longshore_io::{
    Fault, File, FileAttributes, FileLock, FileRead, FileWrite, Host, Op, OpenHow, SimDisk, Stat,
    Storage, Via,
};
use longshore_pg::wal::{NotWal, WalName, restored_from};
use longshore_pg::{Lsn, Timeline};
use longshore_wal::{Error, Identity, Outgoing, PushResult, WalArchive};

use super::support::*;

const HISTORY: &[u8] = b"1\t0/5000110\tno recovery target specified\n";

fn history_name() -> WalName {
    "00000002.history".parse().unwrap()
}

/// Goal: a file of several blocks is compared to its end.
#[test]
fn other_bytes_are_refused_in_every_block() {
    let disk = disk(1);
    let len = 2 << 20;
    let mut bytes = segment(1, 4, 4);
    bytes[32..36].copy_from_slice(&(len as u32).to_le_bytes());
    bytes.resize(len, 0);
    let pushed = push(&disk, name(1, 2), &bytes).unwrap();
    assert!(matches!(pushed, PushResult::Stored { .. }), "{pushed:?}");
    assert_eq!(
        push(&disk, name(1, 2), &bytes).unwrap(),
        PushResult::Already
    );
    for at in [100_000, 1 << 20, len - 1] {
        let mut other = bytes.clone();
        other[at] ^= 1;
        let refused = push(&disk, name(1, 2), &other).unwrap_err();
        assert!(
            matches!(refused, Error::OtherContent { .. }),
            "{at}: {refused}"
        );
    }
}

/// A server's file that was recycled for a later segment after its first bytes were read.
#[derive(Debug)]
struct RecycledFile {
    before: Arc<dyn File>,
    after: Arc<dyn File>,
    is_read: AtomicBool,
}

impl RecycledFile {
    fn now(&self) -> &Arc<dyn File> {
        match self.is_read.load(Ordering::Relaxed) {
            true => &self.after,
            false => &self.before,
        }
    }
}

impl FileRead for RecycledFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        let read = self.now().read_at(buf, offset, via);
        self.is_read.store(true, Ordering::Relaxed);
        read
    }

    fn stat(&self) -> io::Result<Stat> {
        self.now().stat()
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.now().is_cached(range)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.now().next_data(offset)
    }
}

impl FileWrite for RecycledFile {
    fn write_at(&self, _buf: &[u8], _offset: u64, _via: Via) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _range: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn free_unwritten(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl FileAttributes for RecycledFile {}

impl FileLock for RecycledFile {
    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A push outlives the archiver that started it.
#[test]
fn a_file_that_was_recycled_during_its_push_accuses_no_branch() {
    let disk = disk(1);
    push(&disk, name(1, 2), &segment(1, 2, 2)).unwrap();
    let own = outgoing(&disk, name(1, 2), &segment(1, 2, 2));
    let later = outgoing(&disk, name(1, 9), &segment(1, 9, 9));
    let out = Outgoing {
        file: Arc::new(RecycledFile {
            before: own.file.clone(),
            after: later.file,
            is_read: AtomicBool::new(false),
        }),
        ..own
    };
    let archive = archive(&disk).unwrap();
    let gone = archive.push(&out, &form(Algorithm::QatDeflate), &*clock());
    let gone = gone.unwrap_err();
    assert!(matches!(gone, Error::OtherSegment { .. }), "{gone}");
    assert_eq!(archive.refused_now().map(|refused| refused.name), None);
    // Another content of the segment itself is another branch's.
    let refused = push(&disk, name(1, 2), &segment(1, 2, 3)).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
    assert!(archive.refused_now().is_some());
}

#[test]
fn every_algorithm_gives_back_what_it_took() {
    for algorithm in Algorithm::ALL {
        let disk = disk(1);
        let partial = "000000010000000000000004.partial".parse().unwrap();
        let mark = "000000010000000000000003.00000028.backup".parse().unwrap();
        let files: Vec<(WalName, Vec<u8>)> = vec![
            (name(1, 3), segment(1, 3, 3)),
            (name(1, 4), segment_of(SYSTEM, 1, 4, SEGMENT / PAGE, 4)),
            (partial, segment(1, 4, 5)),
            (mark, b"START WAL LOCATION: 0/300028\n".to_vec()),
            (history_name(), HISTORY.to_vec()),
        ];
        for (name, bytes) in &files {
            let out = outgoing(&disk, *name, bytes);
            let mut form = form(algorithm);
            form.verify = true;
            let archive = archive(&disk).unwrap();
            let pushed = archive.push(&out, &form, &*clock()).unwrap();
            assert!(matches!(
                pushed,
                PushResult::Stored {
                    unfinished: false,
                    ..
                }
            ));
        }
        for (name, bytes) in &files {
            assert_eq!(&fetch(&disk, *name).unwrap(), bytes, "{name} {algorithm}");
        }
        let identity = archive(&disk).unwrap().identity().unwrap();
        assert_eq!(
            (identity.system, identity.segment_size.bytes()),
            (SYSTEM, SEGMENT as u64)
        );
        assert_eq!(leftovers(&disk), [] as [&Path; 0]);
    }
}

/// Runs a stock tool. A missing one is a failure if `LONGSHORE_REQUIRE_TOOLS` is set, and skipped otherwise.
fn unpacked(tool: &str, path: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new(tool);
    let command = command.arg("-dc").arg(path).stdin(Stdio::null());
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool}: {text}");
            Some(output.stdout)
        }
        Err(e) if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() => {
            eprintln!("left out: {tool}: {e}");
            None
        }
        Err(e) => panic!("{tool}: {e}"),
    }
}

#[test]
fn stock_tools_unpack_what_is_archived() {
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("source");
    let bytes = segment(1, 7, 9);
    std::fs::write(&source, &bytes).unwrap();
    for (algorithm, tool, ending) in [
        (Algorithm::QatDeflate, "gzip", "gz"),
        (Algorithm::Zstd, "zstd", "zst"),
        (Algorithm::Lz4, "lz4", "lz4"),
        (Algorithm::None, "lz4", "lz4"),
    ] {
        let path = root.path().join(algorithm.name());
        let dir = Host::new().create_dir_all(root.path()).unwrap();
        let out = Outgoing {
            name: name(1, 7),
            path: source.clone(),
            file: dir.open(Path::new("source"), OpenHow::Read).unwrap(),
            system: None,
            history: None,
            beside: None,
        };
        let below = Path::new(algorithm.name());
        let archive = WalArchive::create(&Host::new(), root.path(), below, &host_clock());
        let archive = archive.unwrap();
        archive.push(&out, &form(algorithm), &host_clock()).unwrap();
        let stored = path
            .join("0000000100000000")
            .join(format!("{}.{ending}", name(1, 7)));
        if let Some(out) = unpacked(tool, &stored) {
            assert_eq!(out, bytes, "{tool}");
        }
    }
}

#[test]
fn zeros_after_a_switch_cost_next_to_nothing() {
    let (short, long) = (disk(1), disk(1));
    let size = |disk, pages| {
        let bytes = segment_of(SYSTEM, 1, 3, pages, 3);
        match push(disk, name(1, 3), &bytes).unwrap() {
            PushResult::Stored { stored_bytes, .. } => stored_bytes,
            PushResult::Already | PushResult::LeftAt(_) => panic!("it was not there"),
        }
    };
    let (short, long) = (size(&short, 1), size(&long, SEGMENT / PAGE));
    assert!(short < 8192 && long > 100_000, "{short} {long}");
}

#[test]
fn the_same_again_is_success_and_other_bytes_are_refused() {
    let disk = disk(1);
    let bytes = segment(1, 3, 3);
    let stored = push(&disk, name(1, 3), &bytes).unwrap();
    assert!(matches!(stored, PushResult::Stored { .. }));
    assert_eq!(
        push(&disk, name(1, 3), &bytes).unwrap(),
        PushResult::Already
    );
    // With another algorithm it is still the same file.
    let out = outgoing(&disk, name(1, 3), &bytes);
    let again = archive(&disk)
        .unwrap()
        .push(&out, &form(Algorithm::Zstd), &*clock());
    assert_eq!(again.unwrap(), PushResult::Already);
    let mut other = bytes.clone();
    other[100_000] ^= 1;
    let refused = push(&disk, name(1, 3), &other).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
    assert_eq!(fetch(&disk, name(1, 3)).unwrap(), bytes);

    push(&disk, history_name(), HISTORY).unwrap();
    assert_eq!(
        push(&disk, history_name(), HISTORY).unwrap(),
        PushResult::Already
    );
    let other = [b"# another\n", HISTORY].concat();
    let refused = push(&disk, history_name(), &other).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
    assert_eq!(fetch(&disk, history_name()).unwrap(), HISTORY);
    // Remarks about later timelines do not change a history's identity.
    let remark = restored_from(history_name(), "x");
    let restored = [HISTORY, b"\n", remark.as_bytes(), b"\n"].concat();
    assert_eq!(
        push(&disk, history_name(), &restored).unwrap(),
        PushResult::Already
    );
}

#[test]
fn a_file_whose_timeline_the_archive_knows_otherwise_does_not_get_in() {
    let disk = disk(1);
    let add = |n, history: &[u8]| {
        let mut out = outgoing(&disk, name(2, n), &segment(2, n, 3));
        out.history = Some(Box::new(outgoing(&disk, history_name(), history)));
        archive(&disk)
            .unwrap()
            .push(&out, &form(Algorithm::Zstd), &*clock())
    };
    add(3, HISTORY).unwrap();
    // It was archived with the segment: no call had archived it.
    assert_eq!(fetch(&disk, history_name()).unwrap(), HISTORY);
    let remark = b"# longshore restore x goes on from 00000001.history\n";
    let other = [&remark[..], HISTORY].concat();
    let refused = add(4, &other).unwrap_err();
    let named = matches!(&refused, Error::OtherContent { name, .. } if *name == history_name());
    assert!(named, "{refused}");
    // Not even a file that already exists.
    assert!(add(3, &other).is_err());
    assert!(fetch(&disk, name(2, 4)).is_err());
    add(4, HISTORY).unwrap();
}

#[test]
fn another_clusters_files_do_not_get_in() {
    let disk = disk(1);
    push(&disk, name(1, 3), &segment(1, 3, 3)).unwrap();
    let before = disk.paths();
    let strange = segment_of(SYSTEM + 1, 1, 4, 9, 1);
    let refused = push(&disk, name(1, 4), &strange).unwrap_err();
    assert!(matches!(refused, Error::OtherCluster { found, .. } if found == SYSTEM + 1));
    let mut larger = segment(1, 4, 1);
    larger[32..36].copy_from_slice(&(2 * SEGMENT as u32).to_le_bytes());
    larger.resize(2 * SEGMENT, 0);
    let refused = push(&disk, name(1, 4), &larger).unwrap_err();
    assert!(
        matches!(refused, Error::OtherSegmentSize { .. }),
        "{refused}"
    );
    // A history does not contain its cluster; the caller provides it.
    let mut out = outgoing(&disk, history_name(), HISTORY);
    out.system = Some(SYSTEM + 1);
    let archive = archive(&disk).unwrap();
    let refused = archive
        .push(&out, &form(Algorithm::Zstd), &*clock())
        .unwrap_err();
    assert!(matches!(refused, Error::OtherCluster { .. }), "{refused}");
    out.system = Some(SYSTEM);
    archive
        .push(&out, &form(Algorithm::Zstd), &*clock())
        .unwrap();
    let mut paths = disk.paths();
    paths.retain(|p| p.starts_with(ARCHIVE) && !before.contains(p));
    assert_eq!(paths.len(), 1, "only the history came: {paths:?}");
}

#[test]
fn a_segment_that_does_not_match_its_name_is_refused() {
    let refuse = |name: WalName, bytes: &[u8]| {
        let disk = disk(1);
        let refused = push(&disk, name, bytes).unwrap_err();
        let paths = disk.paths();
        let made = paths.iter().filter(|p| p.starts_with(ARCHIVE));
        // Only what existed before, and the archive still belongs to no cluster.
        assert_eq!(made.count(), 2, "{paths:?}");
        assert_eq!(archive(&disk).unwrap().identity(), None);
        refused
    };
    let good = segment(1, 3, 3);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let not_wal = |e: Error, expected: NotWal| match e {
        Error::NotWal { source, .. } => assert_eq!(source, expected),
        e => panic!("{e}"),
    };
    not_wal(refuse(name(1, 3), &changed(0, 0x99)), NotWal::Magic(0xd199));
    not_wal(refuse(name(1, 3), &vec![0; SEGMENT]), NotWal::Magic(0));
    not_wal(refuse(name(1, 3), b""), NotWal::Short);
    let other = |e: Error, expected: &str| match e {
        Error::OtherSegment { what, .. } => assert_eq!(what, expected),
        e => panic!("{e}"),
    };
    other(refuse(name(1, 3), &good[..SEGMENT - 1]), "length");
    other(refuse(name(1, 4), &good), "LSN");
    other(refuse(name(1, 3), &changed(4, 2)), "timeline");
    let e = refuse(history_name(), b"1\n");
    assert!(matches!(e, Error::NotHistory { .. }), "{e}");
}

#[test]
fn the_segment_a_promotion_fell_into_and_one_handed_over_too_early_are_taken_for_what_they_are() {
    let disk = disk(1);
    // Its first pages are still those of timeline 1.
    assert!(push(&disk, name(2, 3), &segment(1, 3, 3)).is_ok());
    let mut early = segment(1, 4, 4);
    early[SEGMENT - PAGE..].copy_from_slice(&segment(1, 1, 1)[..PAGE]);
    let pushed = push(&disk, name(1, 4), &early).unwrap();
    assert!(matches!(
        pushed,
        PushResult::Stored {
            unfinished: true,
            ..
        }
    ));
    assert_eq!(fetch(&disk, name(1, 4)).unwrap(), early);
}

#[test]
fn of_several_that_push_one_name_one_stores_and_the_bytes_decide_over_the_others() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("archive");
    WalArchive::create(
        &Host::new(),
        root.path(),
        Path::new("archive"),
        &host_clock(),
    )
    .unwrap();
    let sources = Host::new().dir(root.path()).unwrap();
    for seed in 0..4u64 {
        std::fs::write(root.path().join(format!("{seed}")), segment(1, 3, seed / 2)).unwrap();
    }
    for round in 0..20u64 {
        let name = name(1, 3);
        let results: Vec<(u64, Result<PushResult, Error>)> = std::thread::scope(|scope| {
            let pushes: Vec<_> = (0..4u64)
                .map(|seed| {
                    let (sources, path) = (Arc::clone(&sources), &path);
                    scope.spawn(move || {
                        let file = format!("{seed}");
                        let out = Outgoing {
                            name,
                            path: file.clone().into(),
                            file: sources.open(Path::new(&file), OpenHow::Read).unwrap(),
                            system: None,
                            history: None,
                            beside: None,
                        };
                        let archive = WalArchive::open(&Host::new(), path).unwrap();
                        (
                            seed,
                            archive.push(&out, &form(Algorithm::Lz4), &host_clock()),
                        )
                    })
                })
                .collect();
            pushes.into_iter().map(|p| p.join().unwrap()).collect()
        });
        let stored: Vec<u64> = results
            .iter()
            .filter(|(_, r)| matches!(r, Ok(PushResult::Stored { .. })))
            .map(|(seed, _)| *seed)
            .collect();
        assert_eq!(stored.len(), 1, "round {round}: {results:?}");
        for (seed, result) in &results {
            let same = seed / 2 == stored[0] / 2;
            match result {
                Ok(_) => assert!(same, "round {round}: {results:?}"),
                Err(Error::OtherContent { .. }) => assert!(!same, "round {round}: {results:?}"),
                Err(e) => panic!("round {round}: {e}"),
            }
        }
        std::fs::remove_dir_all(path.join("0000000100000000")).unwrap();
    }
}

/// Goal: a mount point whose file system is not mounted accepts no WAL.
#[test]
fn only_a_directory_that_was_made_an_archive_is_one() {
    let disk = SimDisk::new(1);
    disk.write_file(Path::new(ARCHIVE).join("lost+found/.keep"), b"")
        .unwrap();
    for path in [ARCHIVE, "/archive/none", "/none/archive"] {
        let refused = WalArchive::open(&disk, Path::new(path)).unwrap_err();
        assert!(matches!(refused, Error::NotAnArchive { .. }), "{refused}");
        let refused = WalArchive::existing(&disk, Path::new(path)).unwrap_err();
        assert!(matches!(refused, Error::NotAnArchive { .. }), "{refused}");
    }
    let bytes = segment(1, 3, 3);
    let before = disk.paths();
    let refused = push(&disk, name(1, 3), &bytes).unwrap_err();
    assert!(matches!(refused, Error::NotAnArchive { .. }), "{refused}");
    let mut after = disk.paths();
    after.retain(|path| !path.starts_with("/data") && !before.contains(path));
    assert_eq!(after, [] as [&Path; 0], "nothing was made");

    let create = |base: &str, below: &str| {
        WalArchive::create(&disk, Path::new(base), Path::new(below), &*clock())
    };
    assert!(matches!(create("/none", "archive"), Err(Error::Io { .. })));
    assert_eq!(create("/", "archive").unwrap().identity(), None);
    let refused = WalArchive::existing(&disk, Path::new(ARCHIVE)).unwrap_err();
    assert!(matches!(refused, Error::NothingYet { .. }), "{refused}");
    push(&disk, name(1, 3), &bytes).unwrap();
    // Again: it stays what it is.
    for archive in [
        create("/", "archive").unwrap(),
        WalArchive::existing(&disk, Path::new(ARCHIVE)).unwrap(),
    ] {
        assert_eq!(archive.identity().map(|i: Identity| i.system), Some(SYSTEM));
    }
    assert_eq!(fetch(&disk, name(1, 3)).unwrap(), bytes);
    disk.write_file(Path::new(ARCHIVE).join("longshore-wal"), b"x")
        .unwrap();
    for refused in [
        create("/", "archive").unwrap_err(),
        WalArchive::existing(&disk, Path::new(ARCHIVE)).unwrap_err(),
    ] {
        assert!(
            matches!(refused, Error::IdentityDamaged { .. }),
            "{refused}"
        );
    }
}

#[test]
fn an_archive_that_was_made_is_there_after_a_power_cut_even_when_its_maker_was_killed() {
    let create = |disk: &SimDisk| {
        WalArchive::create(disk, Path::new("/base"), Path::new("db/wal"), &*clock())
    };
    let prepared = |seed| {
        let disk = SimDisk::new(seed);
        disk.write_file("/base/.keep", b"").unwrap();
        disk
    };
    let whole = prepared(0);
    create(&whole).unwrap();
    for step in 0..whole.steps() {
        let disk = prepared(step);
        disk.inject(Fault::errno(5).from_step(step));
        create(&disk).unwrap_err();
        disk.heal();
        create(&disk).unwrap();
        for image in disk.images(6) {
            let archive = WalArchive::open(&image, Path::new("/base/db/wal"));
            assert_eq!(archive.unwrap().identity(), None, "step {step}");
        }
    }
}

#[test]
fn histories_come_back_as_lines_of_timelines() {
    let disk = disk(1);
    push(&disk, name(1, 3), &segment(1, 3, 3)).unwrap();
    push(&disk, history_name(), HISTORY).unwrap();
    let archive = archive(&disk).unwrap();
    let timeline = |n| Timeline::new(n).unwrap();
    let history = archive.history(timeline(2)).unwrap();
    assert_eq!(history.end_of(timeline(1)), Some(Lsn(0x500_0110)));
    assert!(archive.history(timeline(1)).unwrap().forks().is_empty());
    let missing = archive.history(timeline(3)).unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
}

/// Goal: the same holds where locks may not reach every host, and nothing is left.
#[test]
fn without_shared_locks_the_same_bytes_again_succeed_and_other_bytes_are_refused() {
    let disk = disk(1).set_keeps_locks(false);
    let bytes = segment(1, 3, 3);
    let stored = push(&disk, name(1, 3), &bytes).unwrap();
    assert!(matches!(stored, PushResult::Stored { .. }));
    assert_eq!(
        push(&disk, name(1, 3), &bytes).unwrap(),
        PushResult::Already
    );
    let other = push(&disk, name(1, 3), &segment(1, 3, 4)).unwrap_err();
    assert!(matches!(other, Error::OtherContent { .. }), "{other}");
    assert!(fetch(&disk, name(1, 3)).unwrap() == bytes);
    assert_eq!(leftovers(&disk), [] as [&Path; 0]);
}

/// The result of another host's push, once it was made.
type Told = Option<Result<PushResult, Error>>;

/// A disk whose locks reach no other host. Another host pushes `theirs` with ZSTD during the first call of `op` at or
/// below a path of the archive; also returns the result of that push.
fn with_another_host(op: Op, below: &str, theirs: Vec<u8>) -> (SimDisk, Arc<Mutex<Told>>) {
    let disk = disk(1).set_keeps_locks(false);
    disk.write_file("/other/segment", &theirs).unwrap();
    let told = Arc::new(Mutex::new(None));
    let (host, tell) = (disk.clone(), told.clone());
    let deed = move || {
        let file = host.dir(Path::new("/other")).unwrap();
        let out = Outgoing {
            name: name(1, 3),
            path: "/other/segment".into(),
            file: file.open(Path::new("segment"), OpenHow::Read).unwrap(),
            system: None,
            history: None,
            beside: None,
        };
        let pushed = archive(&host)
            .unwrap()
            .push(&out, &form(Algorithm::Zstd), &*clock());
        *tell.lock().unwrap() = Some(pushed);
    };
    let place = Path::new(ARCHIVE).join(below);
    let fault = Fault::meanwhile(deed).on(op).below(place).times(1);
    (disk.inject(fault), told)
}

/// Goal: two contents under two endings are never both acknowledged, and no reader picks one of them.
#[test]
fn without_locks_two_contents_under_two_endings_are_not_both_taken() {
    let (ours, theirs) = (segment(1, 3, 3), segment(1, 3, 4));
    // The push comes between the last check and the name.
    let (disk, told) = with_another_host(Op::Link, "0000000100000000", theirs.clone());
    let refused = push(&disk, name(1, 3), &ours).unwrap_err();
    assert!(matches!(refused, Error::TwoContents { .. }), "{refused}");
    let told = told.lock().unwrap().take();
    assert!(
        matches!(told, Some(Ok(PushResult::Stored { .. }))),
        "{told:?}"
    );
    for refused in [
        fetch(&disk, name(1, 3)).unwrap_err(),
        push(&disk, name(1, 3), &ours).unwrap_err(),
        push(&disk, name(1, 3), &theirs).unwrap_err(),
    ] {
        assert!(matches!(refused, Error::TwoContents { .. }), "{refused}");
    }
    assert!(archive(&disk).unwrap().refused().is_some());
    // If one of them is moved away, the other is read.
    let place = disk.dir(&Path::new(ARCHIVE).join("0000000100000000"));
    let file = format!("{}.gz", name(1, 3));
    place.unwrap().remove_file(Path::new(&file)).unwrap();
    assert!(fetch(&disk, name(1, 3)).unwrap() == theirs);

    // The push comes while this one is being written: it was first.
    let (disk, _) = with_another_host(Op::Sync, "0000000100000000", theirs.clone());
    let refused = push(&disk, name(1, 3), &ours).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
    assert!(fetch(&disk, name(1, 3)).unwrap() == theirs);
    // The same bytes are one file, under any endings.
    for op in [Op::Link, Op::Sync] {
        let (disk, _) = with_another_host(op, "0000000100000000", ours.clone());
        push(&disk, name(1, 3), &ours).unwrap();
        assert!(fetch(&disk, name(1, 3)).unwrap() == ours);
        assert_eq!(leftovers(&disk), [] as [&Path; 0]);
    }
}

/// Goal: of two clusters whose first segments come at the same time only one gets the archive, even if it is killed
/// meanwhile.
#[test]
fn without_locks_a_new_archive_becomes_one_clusters() {
    let ours = segment(1, 3, 3);
    let theirs = segment_of(SYSTEM + 1, 1, 3, 20, 4);
    for (op, at, we_win) in [
        (Op::Rename, "longshore-wal", true),
        (Op::Link, "longshore-wal.claim", false),
    ] {
        let (disk, told) = with_another_host(op, at, theirs.clone());
        let pushed = push(&disk, name(1, 3), &ours);
        let told = told.lock().unwrap().take().unwrap();
        let (won, lost) = if we_win {
            (pushed, told)
        } else {
            (told, pushed)
        };
        assert!(matches!(won, Ok(PushResult::Stored { .. })), "{won:?}");
        assert!(matches!(lost, Err(Error::OtherCluster { .. })), "{lost:?}");
        let winner = if we_win { &ours } else { &theirs };
        assert!(fetch(&disk, name(1, 3)).unwrap() == *winner);
        assert!(
            !disk
                .paths()
                .iter()
                .any(|p| p.ends_with("longshore-wal.claim"))
        );
        assert_eq!(leftovers(&disk), [] as [&Path; 0]);
    }
    let mark = Path::new(ARCHIVE).join("longshore-wal");
    let disk = disk(1).set_keeps_locks(false);
    disk.inject(Fault::errno(5).on(Op::Rename).below(mark).times(1));
    assert!(push(&disk, name(1, 3), &ours).is_err());
    let refused = push(&disk, name(1, 3), &theirs).unwrap_err();
    assert!(matches!(refused, Error::OtherCluster { .. }), "{refused}");
    push(&disk, name(1, 3), &ours).unwrap();
}
