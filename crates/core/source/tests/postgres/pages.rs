//! Goal: a page that is torn for a moment is read again, one that was changed during the backup is left to the WAL, and
//! one that is damaged is named.
//! Method: pages with wrong checksums and LSNs around the backup's start and end, in a data directory made by hand; a
//! hook heals them at a given read.
//! Not covered: real servers, which the tests of the program use.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_io::{Host, Storage};
use longshore_source::{Error, SourceOptions};

use crate::cluster::{BASE, Cluster, Copy, END, PAGE, SEGMENT_PAGES, START, connect, page, read};
use crate::hooked::{Step, hooked};

fn host() -> Arc<dyn Storage> {
    Arc::new(Host::new())
}

fn put(path: &Path, block: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, block * PAGE as u64).unwrap();
}

/// A page with a wrong checksum, last changed at `lsn`.
fn wrong(block: u32, lsn: u64) -> Vec<u8> {
    let mut bytes = page(block, lsn);
    bytes[5_000] ^= 1;
    bytes
}

fn damaged_blocks(copy: &Copy) -> Vec<String> {
    assert_eq!(copy.summary.damaged, !copy.summary.warnings.is_empty());
    let of = |warning: &String| {
        let end = warning.find(" is damaged")?;
        Some(warning[..end].rsplit('/').next()?.to_owned())
    };
    copy.summary.warnings.iter().filter_map(of).collect()
}

/// Block numbers count through all files of a relation; otherwise no page of a later file would be right.
#[test]
fn a_page_is_verified_as_what_it_is_in_its_relation() {
    let cluster = Cluster::new();
    cluster.relation("16384", 0, SEGMENT_PAGES);
    cluster.relation("16384.1", SEGMENT_PAGES, SEGMENT_PAGES);
    cluster.relation("16384.12", 12 * SEGMENT_PAGES, 1);
    cluster.relation("16384_fsm", 0, 2);
    cluster.relation("16384_vm.1", SEGMENT_PAGES, 1);
    // As if a file had the name of another of its relation.
    cluster.relation("16385.2", SEGMENT_PAGES, 1);
    // Not relation files: nothing to verify.
    cluster.relation("pg_filenode.map", 99, 1);
    fs::write(
        cluster.path("pg_xact/0000"),
        [wrong(0, 0), wrong(1, 0)].concat(),
    )
    .unwrap();
    let copy = cluster.back_up(&host()).unwrap();
    assert_eq!(damaged_blocks(&copy), ["16385.2: block 0"]);
}

/// Goal: pages changed since the backup began are left to the WAL; all others must match their checksum.
/// Method: LSNs exactly at, before and after both ends.
#[test]
fn only_a_place_between_start_and_end_of_the_log_excuses_a_page() {
    for (lsn, excused) in [
        (0, false),
        (START - 1, false),
        (START, true),
        (START + 1, true),
        (END, true),
        (END + 1, false),
        (u64::MAX, false),
    ] {
        let cluster = Cluster::new();
        let path = cluster.relation("16384", 0, 3);
        put(&path, 1, &wrong(1, lsn));
        let copy = cluster.back_up(&host()).unwrap();
        let expected: &[&str] = if excused { &[] } else { &["16384: block 1"] };
        assert_eq!(damaged_blocks(&copy), expected, "{lsn:#x}");
        // Either way the page is stored as it was found.
        let stored = &copy.file("base/5/16384").unwrap()[PAGE..2 * PAGE];
        assert!(stored == wrong(1, lsn));
    }
}

/// The page becomes right before read number `healed_at`.
fn healing(healed_at: usize, heal: fn(&Path)) -> Arc<dyn Storage> {
    let readings = AtomicUsize::new(0);
    hooked(move |step, path| {
        let is_it = matches!(step, Step::Read(_)) && path.ends_with(format!("{BASE}/16384"));
        if is_it && readings.fetch_add(1, Ordering::SeqCst) + 1 == healed_at {
            heal(path);
        }
        Ok(())
    })
}

#[test]
fn a_torn_page_is_read_again_and_what_stays_wrong_is_damaged() {
    type Heal = fn(&Path);
    let whole: Heal = |path| put(path, 1, &page(1, 0x100));
    let changed: Heal = |path| put(path, 1, &wrong(1, START + 8));
    let gone: Heal = |path| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(PAGE as u64).unwrap();
    };
    for (heal, healed_at, is_damaged) in [
        (whole, 2, false),
        (whole, 4, false),
        // There is no fifth read.
        (whole, 5, true),
        (changed, 3, false),
        (gone, 2, false),
    ] {
        let cluster = Cluster::new();
        let path = cluster.relation("16384", 0, 3);
        put(&path, 1, &wrong(1, 0x100));
        let copy = cluster.back_up(&healing(healed_at, heal)).unwrap();
        assert_eq!(copy.summary.damaged, is_damaged, "at reading {healed_at}");
    }
}

/// A page that was never written is all zeros.
#[test]
fn an_empty_page_is_fine_and_a_half_empty_one_is_not() {
    let cluster = Cluster::new();
    let path = cluster.relation("16384", 0, 4);
    put(&path, 1, &[0; PAGE]);
    let mut half = vec![0; PAGE];
    half[PAGE - 1] = 1;
    // Its LSN says that it was changed meanwhile, but it is still no page.
    half[4..8].copy_from_slice(&(START as u32 + 8).to_le_bytes());
    put(&path, 2, &half);
    let copy = cluster.back_up(&host()).unwrap();
    assert_eq!(damaged_blocks(&copy), ["16384: block 2"]);
}

#[test]
fn a_bad_page_ends_the_backup_only_where_that_is_wanted() {
    let cluster = Cluster::new();
    let path = cluster.relation("16384.1", SEGMENT_PAGES, 3);
    put(&path, 2, &wrong(SEGMENT_PAGES + 2, 0x100));
    let mut options = SourceOptions::default();
    (options.postgres.with_wal, options.postgres.fail_on_bad_page) = (false, true);
    let source = connect(&cluster.double, &host(), &options).unwrap();
    match read(source).err() {
        Some(Error::BadPage {
            path: found, block, ..
        }) => {
            assert_eq!((found.file_name(), block), (path.file_name(), 2));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn very_many_bad_pages_are_counted_and_some_are_named() {
    let cluster = Cluster::new();
    for number in 0..60 {
        let path = cluster.relation(&(16384 + number).to_string(), 0, 2);
        put(&path, 0, &wrong(0, 0x100));
        put(&path, 1, &wrong(1, 0x100));
    }
    let copy = cluster.back_up(&host()).unwrap();
    assert_eq!(damaged_blocks(&copy).len(), 100);
    let last = copy.summary.warnings.last().unwrap();
    assert!(last.contains("20 more pages"), "{last}");
}

#[test]
fn a_file_that_ends_within_a_page_is_named_and_its_whole_pages_are_verified() {
    let cluster = Cluster::new();
    let path = cluster.path(&format!("{BASE}/16384"));
    fs::write(
        &path,
        [page(0, 1), wrong(1, 1), page(2, 1)[..100].to_vec()].concat(),
    )
    .unwrap();
    let copy = cluster.back_up(&host()).unwrap();
    assert_eq!(damaged_blocks(&copy), ["16384: block 1"]);
    let warnings = copy.summary.warnings.join("\n");
    assert!(warnings.contains("end within a page"), "{warnings}");
    assert_eq!(copy.file("base/5/16384").unwrap().len(), 2 * PAGE + 100);
}
