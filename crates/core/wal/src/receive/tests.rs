//! Goal: what a receiver reports as flushed survives, and only one receiver works on an archive.
//! Method: simulated disks, with a power cut after a receiver was killed at each step, and with locks that do not reach
//! other hosts. Settings and names are read as the server writes them.
//! Not covered: the server's stream, which the tests of the program receive.

use longshore_io::{Fault, SimClock, SimDisk, Via};
use longshore_pg::wal::WalName;

use super::workplace::{RECEIVING, RESERVED};
use super::*;

/// Goal: a second receiver on another host, whose locks do not reach the first, is refused.
#[test]
fn receivers_whose_locks_do_not_meet_keep_out_of_each_others_archive() {
    let disk = SimDisk::new(1).set_keeps_locks(false);
    disk.write_file("/base/other", b"").unwrap();
    let (base, below) = (Path::new("/base"), Path::new("wal"));
    let archive = WalArchive::create(&disk, base, below, &SimClock::new(0)).unwrap();
    let reserved = Path::new("/base/wal/receiving").join(RESERVED);
    let ours = Workplace::open(&archive).unwrap();
    assert!(disk.read_file(&reserved).is_ok());
    drop(ours);
    assert!(disk.read_file(&reserved).is_err());
    // From another host, touched just now.
    disk.write_file(&reserved, b"another-boot.1 7 0\n").unwrap();
    let refused = Workplace::open(&archive).err().unwrap();
    assert!(matches!(refused, ReceiveError::Taken { .. }), "{refused}");
}

/// Goal: what the server is told is durable: the bytes, and each name on the way to them, whoever made the directory.
#[test]
fn flushed_wal_survives_a_power_cut_after_a_receiver_was_killed() {
    let name = SegmentName {
        timeline: Timeline::new(1).unwrap(),
        high: 0,
        low: 7,
    };
    let path = format!("/base/wal/{RECEIVING}/{}", WalName::Partial(name));
    let prepared = |seed| {
        let disk = SimDisk::new(seed);
        disk.write_file("/base/other", b"").unwrap();
        let (base, below) = (Path::new("/base"), Path::new("wal"));
        WalArchive::create(&disk, base, below, &SimClock::new(0)).unwrap();
        disk.settle();
        disk
    };
    let receive = |disk: &SimDisk| -> Result<(), ReceiveError> {
        let archive = WalArchive::open(disk, Path::new("/base/wal"))?;
        let workplace = Workplace::open(&archive)?;
        let size = SegmentSize::new(1 << 20).unwrap();
        let filling = workplace.fill(name, size)?;
        let written = filling.file.write_all_at(b"log", 0, Via::Cache);
        let synced = written.and_then(|()| filling.file.sync());
        Ok(synced.map_err(Error::io("sync", &filling.path))?)
    };
    let is_lost = |disk: &SimDisk| {
        let images = disk.images(9);
        images.iter().any(|image| match image.read_file(&path) {
            Ok(bytes) => !bytes.starts_with(b"log"),
            Err(_) => true,
        })
    };
    let whole = prepared(0);
    let before = whole.steps();
    receive(&whole).unwrap();
    for step in before..=whole.steps() {
        let disk = prepared(step).inject(Fault::errno(5).from_step(step));
        let _killed = receive(&disk);
        disk.heal();
        receive(&disk).unwrap();
        assert!(!is_lost(&disk), "killed at step {step}");
    }
    for (path, forgotten) in whole.forgetting(before) {
        let disk = prepared(0).inject(forgotten);
        receive(&disk).unwrap();
        assert!(is_lost(&disk), "{}", path.display());
    }
}

/// Goal: what the server is told of as flushed survives a power cut: its slot keeps no more than the rest.
#[test]
fn wal_reported_as_flushed_survives_a_power_cut() {
    let disk = SimDisk::new(1);
    disk.write_file("/base/other", b"").unwrap();
    let (base, below, clock) = (Path::new("/base"), Path::new("wal"), SimClock::new(0));
    let archive = WalArchive::create(&disk, base, below, &clock).unwrap();
    let size = SegmentSize::new(1 << 20).unwrap();
    let start = Lsn(size.bytes());
    let mut receiver = Receiver {
        archive: &archive,
        workplace: Workplace::open(&archive).unwrap(),
        size,
        timeline: Timeline::new(1).unwrap(),
        filling: None,
        received: start,
        flushed: start,
        kept_from: start,
        holds: true,
        server: start,
        segments: 0,
        told: Duration::ZERO,
    };
    let plan = ReceivePlan {
        slot: String::new(),
        create_slot: false,
        form: StorageForm {
            algorithm: longshore_codec::Algorithm::Lz4,
            level: longshore_codec::Level::Low,
            verify: false,
            recipients: None,
        },
        until: None,
        status_every: Duration::ZERO,
    };
    let partial = "/base/wal/receiving/000000010000000000000001.partial";
    for (number, part) in (1..).zip([b"one", b"two"]) {
        receiver.write(part, &plan, &clock, &mut |_| {}).unwrap();
        assert!(receiver.flushed < receiver.received);
        receiver.flush().unwrap();
        assert_eq!(receiver.flushed, receiver.received);
        for image in disk.images(8) {
            let found = image.read_file(partial).unwrap();
            let told = &b"onetwo"[..3 * number];
            assert!(found.starts_with(told), "{:?}", &found[..6]);
        }
    }
}

#[test]
fn settings_and_names_are_read_and_written_as_the_server_does() {
    assert_eq!(segment_size("16MB").unwrap().bytes(), 16 << 20);
    assert_eq!(segment_size("1GB").unwrap().bytes(), 1 << 30);
    assert!(segment_size("16").is_err() && segment_size("3MB").is_err());
    assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
}
