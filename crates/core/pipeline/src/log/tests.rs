//! The WAL of an archive keeps the contract of all sources; the server that closes its segment is another test's
//! (`crates/longshore/tests/wal`).

use longshore_io::{SimDisk, Storage};

use super::*;
use crate::archived::support::{ARCHIVE, SYSTEM, archive, disk, name, push, segment, stored};
use crate::source_suite::{keeps_its_contract, keeps_its_contract_to_one_reader};

/// Segments of the archive on `disk`, as [`LogSource::open`] leaves them to be read.
fn source(disk: &SimDisk, numbers: &[u64]) -> Box<LogSource> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let archive = archive(&*storage).unwrap();
    let description = Description {
        kind: SourceKind::Postgres,
        database: "db".into(),
        log: None,
        lineage: None,
        history: None,
        own_log: None,
        page_bytes: 0,
        expected_bytes: None,
        about_bytes: None,
        memory_bytes: MEMORY_BYTES,
        differing: None,
        layouts: None,
        server_started_us: None,
        trees: Vec::new(),
        volumes: vec![Volume {
            path: ARCHIVE.into(),
        }],
        notices: Vec::new(),
    };
    let files = numbers.iter().map(|n| ArchiveWait::File(name(1, *n)));
    Box::new(LogSource {
        description,
        archive: Arc::new(archive),
        end: LogEnd {
            timeline: Timeline::new(1).unwrap(),
            last: Lsn(SYSTEM),
            included: true,
            is_marked: false,
        },
        begun_us: 0,
        waiting: Mutex::new([ArchiveWait::Dir].into_iter().chain(files).collect()),
    })
}

fn three() -> SimDisk {
    let disk = disk(1);
    for number in 3..6 {
        push(&disk, name(1, number), &segment(1, number, number)).unwrap();
    }
    disk
}

#[test]
fn the_wal_of_an_archive_keeps_the_contract_of_all_sources() {
    let disk = three();
    let kept = keeps_its_contract(source(&disk, &[3, 4, 5]));
    let wal = Path::new(WAL_DIR);
    assert_eq!(kept.kinds[wal], EntryKind::Dir);
    assert_eq!((kept.kinds.len(), kept.files.len()), (4, 3));
    for number in 3..6 {
        let path = wal.join(name(1, number).to_string());
        assert!(kept.files[&path] == segment(1, number, number), "{number}");
    }
    assert_eq!(kept.changes, []);
    let once = keeps_its_contract_to_one_reader(source(&disk, &[3, 4, 5]));
    assert!(once.files == kept.files);
    assert_eq!(kept.summary.log.map(|end| end.last), Some(Lsn(SYSTEM)));
}

/// Goal: a segment that the archive lost after the source was opened is an error, never a shorter log.
#[test]
fn a_segment_that_is_lost_meanwhile_is_an_error_that_names_the_archive() {
    let disk = three();
    let source = source(&disk, &[3, 4, 5]);
    assert!(source.next(0).unwrap().is_some(), "the directory");
    let first = source.next(0).unwrap().unwrap();
    for number in [3, 4] {
        let path = stored(&disk, name(1, number));
        let dir = disk.dir(path.parent().unwrap()).unwrap();
        let file = Path::new(path.file_name().unwrap());
        dir.remove_file(file).unwrap();
    }
    let content = first.content.unwrap();
    let read = content.read_at(&mut [0; 10], 0, Via::Cache);
    for lost in [read.err(), source.next(0).err()] {
        let text = lost.unwrap().to_string();
        assert!(text.contains(ARCHIVE), "{text}");
    }
    // The last segment is still given.
    assert!(source.next(0).unwrap().is_some());
    assert!(source.next(0).unwrap().is_none());
}
