//! Goal: a server that left a timeline inside a segment may archive its part of that segment if the archive has the old
//! primary's complete one; a segment of another branch is still refused.
//! Method: hand-made segments and history files on a simulated disk: the same bytes up to the fork, and others before
//! or after it.
//! Not covered: real failovers (`wal/failover.rs`).

use std::path::Path;

use longshore_codec::Algorithm;
use longshore_io::{SimDisk, Storage};
use longshore_pg::Lsn;
use longshore_wal::{Error, Outgoing, PushResult};

use crate::support::*;

const NUMBER: u64 = 5;

/// The LSN after this many pages of the segment.
fn behind(pages: usize) -> Lsn {
    Lsn(NUMBER * SEGMENT as u64 + (pages * PAGE) as u64)
}

fn history(disk: &SimDisk, timeline: u32, left: u32, fork: Lsn) {
    let text = format!("{left}\t{fork}\tno recovery target specified\n");
    let name = format!("{timeline:08X}.history");
    disk.write_file(Path::new(WAL).join(name), text.as_bytes())
        .unwrap();
}

/// The file of a standby that followed the timeline for `pages` pages; the rest is from an earlier use of the file.
fn early(whole: &[u8], pages: usize) -> Vec<u8> {
    let mut bytes = segment_of(SYSTEM, 1, NUMBER - 2, 20, 77);
    bytes[..pages * PAGE].copy_from_slice(&whole[..pages * PAGE]);
    bytes
}

fn attempt(disk: &SimDisk, bytes: &[u8]) -> Result<PushResult, Error> {
    let out = Outgoing {
        beside: Some(disk.dir(Path::new(WAL)).unwrap()),
        ..outgoing(disk, name(1, NUMBER), bytes)
    };
    archive(disk)?.push(&out, &form(Algorithm::Lz4), &*clock())
}

/// An archive with the old primary's segment.
fn stage() -> (SimDisk, Vec<u8>) {
    let disk = disk(1);
    let whole = segment(1, NUMBER, 5);
    push(&disk, name(1, NUMBER), &whole).unwrap();
    (disk, whole)
}

#[track_caller]
fn refused(pushed: Result<PushResult, Error>) {
    let error = pushed.unwrap_err();
    assert!(matches!(error, Error::OtherContent { .. }), "{error}");
    assert!(
        error.hint().contains("archive_mode = always"),
        "{}",
        error.hint()
    );
}

/// Goal: the segment that a standby archives at a change of timeline is accepted if the archive has all of it, however
/// much the old primary wrote after that; the archive keeps its own.
#[test]
fn a_segment_that_was_left_at_a_fork_is_the_archives_up_to_there() {
    for pages in [1, 4, 19] {
        let (disk, whole) = stage();
        refused(attempt(&disk, &early(&whole, pages)));
        history(&disk, 2, 1, behind(pages));
        let pushed = attempt(&disk, &early(&whole, pages)).unwrap();
        assert_eq!(pushed, PushResult::LeftAt(behind(pages)));
        // Zeros after it, as in a new file.
        let mut zeros = early(&whole, pages);
        zeros[pages * PAGE..].fill(0);
        assert_eq!(
            attempt(&disk, &zeros).unwrap(),
            PushResult::LeftAt(behind(pages))
        );
        assert!(fetch(&disk, name(1, NUMBER)).unwrap() == whole);
        assert_eq!(attempt(&disk, &whole).unwrap(), PushResult::Already);
        // A later timeline's history also contains the fork.
        let text = format!("1\t{}\tx\n2\t{}\ty\n", behind(pages), behind(400));
        disk.write_file(Path::new(WAL).join("00000003.history"), text.as_bytes())
            .unwrap();
        disk.dir(Path::new(WAL))
            .unwrap()
            .remove_file(Path::new("00000002.history"))
            .unwrap();
        assert_eq!(
            attempt(&disk, &zeros).unwrap(),
            PushResult::LeftAt(behind(pages))
        );
    }
}

/// Goal: a segment that differs before the fork, or continues after it, is another branch's, whatever histories exist.
#[test]
fn another_branch_is_refused_where_a_history_forks_in_the_segment() {
    let (disk, whole) = stage();
    history(&disk, 2, 1, behind(4));
    // A clone that was promoted at the same LSN, with other content before.
    refused(attempt(&disk, &early(&segment(1, NUMBER, 6), 4)));
    for at in [100, 3 * PAGE + 100, 4 * PAGE - 1] {
        let mut other = early(&whole, 4);
        other[at] ^= 1;
        refused(attempt(&disk, &other));
    }
    // A server that was set back to older files and continued on the timeline, for one record or to the segment's end.
    let other = segment(1, NUMBER, 6);
    for pages in [5, 20] {
        let mut on = early(&whole, 4);
        on[4 * PAGE..pages * PAGE].copy_from_slice(&other[4 * PAGE..pages * PAGE]);
        refused(attempt(&disk, &on));
    }
    // It continued with the archive's bytes, although the history says that it did not.
    refused(attempt(&disk, &early(&whole, 5)));
    let mut all = whole.clone();
    *all.last_mut().unwrap() = 1;
    refused(attempt(&disk, &all));
    assert!(fetch(&disk, name(1, NUMBER)).unwrap() == whole);
}

/// Goal: a history that does not describe the server's fork in this segment proves nothing.
#[test]
fn a_history_of_another_server_or_of_another_fork_proves_nothing() {
    let (disk, whole) = stage();
    for (timeline, left, fork) in [
        (2, 1, behind(0)),
        (2, 1, behind(SEGMENT / PAGE)),
        (3, 2, behind(4)),
        (2, 1, behind(3)),
    ] {
        history(&disk, timeline, left, fork);
        refused(attempt(&disk, &early(&whole, 4)));
        let name = format!("{timeline:08X}.history");
        disk.dir(Path::new(WAL))
            .unwrap()
            .remove_file(Path::new(&name))
            .unwrap();
    }
    // Damaged, or a directory.
    disk.write_file(Path::new(WAL).join("00000002.history"), b"no history")
        .unwrap();
    disk.write_file(Path::new(WAL).join("00000003.history/x"), b"")
        .unwrap();
    refused(attempt(&disk, &early(&whole, 4)));
    // The archive's own history of the timeline is another one.
    history(&disk, 2, 1, behind(4));
    attempt(&disk, &early(&whole, 4)).unwrap();
    let text = format!("1\t{}\tanother reason\n", behind(4));
    let history_name = "00000002.history".parse().unwrap();
    let at = Path::new("/other/pg_wal");
    disk.write_file(at.join("00000002.history"), text.as_bytes())
        .unwrap();
    let theirs = Outgoing {
        name: history_name,
        path: at.join("00000002.history"),
        file: disk
            .dir(at)
            .unwrap()
            .open(Path::new("00000002.history"), longshore_io::OpenHow::Read)
            .unwrap(),
        system: None,
        history: None,
        beside: None,
    };
    archive(&disk)
        .unwrap()
        .push(&theirs, &form(Algorithm::Lz4), &*clock())
        .unwrap();
    refused(attempt(&disk, &early(&whole, 4)));
}
