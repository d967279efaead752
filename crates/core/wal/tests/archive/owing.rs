//! Goal: what the first archive lacks because it was away comes to it from the copies that have it, and is owed until then,
//! wherever the process that brings it is killed.
//! Method: simulated disks with hand-made segments; the first archive's disk fails from each of its steps on.
//! Not covered: real servers (`wal/copies.rs` of the program).

use std::path::Path;

use longshore_codec::Algorithm;
use longshore_io::{Fault, SimDisk, Storage};
use longshore_pg::wal::WalName;
use longshore_wal::{Error, PgWal, ToSettle, Unsettled};

use crate::support::*;

/// pg_wal, the first archive, and two copies.
struct Three {
    server: SimDisk,
    home: SimDisk,
    copies: [SimDisk; 2],
}

impl Three {
    /// All have the first two segments.
    fn new() -> Three {
        let server = SimDisk::new(9);
        server
            .write_file(Path::new(WAL).join("archive_status/.keep"), b"")
            .unwrap();
        let three = Three {
            server,
            home: disk(1),
            copies: [disk(2), disk(3)],
        };
        for number in 1..=2 {
            for at in [&three.home, &three.copies[0], &three.copies[1]] {
                push(at, name(1, number), &segment(1, number, number)).unwrap();
            }
        }
        three
    }

    fn pg_wal(&self) -> PgWal {
        PgWal::open(&self.server, Path::new(WAL)).unwrap()
    }

    /// A push that a copy took.
    fn took(&self, copy: usize, number: u64) {
        let name = name(1, number);
        push(&self.copies[copy], name, &segment(1, number, number)).unwrap();
        let owed = self.pg_wal().owe(Path::new(ARCHIVE), name, &*clock());
        owed.unwrap();
    }

    fn owed(&self) -> Vec<WalName> {
        self.pg_wal().owed(Path::new(ARCHIVE)).unwrap().names
    }

    fn settle(&self, is_home_back: bool) -> Result<u64, Unsettled> {
        let pg_wal = self.pg_wal();
        let turn = pg_wal.turn_to_follow().unwrap().unwrap();
        let form = form(Algorithm::Lz4);
        let to_settle = |archive| ToSettle {
            archive,
            form: &form,
        };
        let home = match is_home_back {
            true => Some(archive(&self.home)?),
            false => None,
        };
        let copies = [archive(&self.copies[0])?, archive(&self.copies[1])?];
        let others = [to_settle(&copies[0]), to_settle(&copies[1])];
        let home = (Path::new(ARCHIVE), home.as_ref().map(to_settle));
        pg_wal.settle(&turn, home, &others, &*clock())
    }
}

fn held(disk: &SimDisk) -> Vec<u64> {
    let is_there = |n: &u64| fetch(disk, name(1, *n)).is_ok();
    (1..12).filter(is_there).collect()
}

#[test]
fn what_is_owed_comes_from_whichever_copy_has_it_and_the_copies_share_it_before() {
    let three = Three::new();
    for (copy, number) in [(0, 3), (1, 4), (0, 5), (0, 6)] {
        three.took(copy, number);
    }
    assert_eq!(three.owed().len(), 4);
    // The first one is away: the copies have all, and it is owed all the same.
    assert_eq!(three.settle(false).unwrap(), 4);
    assert_eq!(held(&three.copies[0]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(held(&three.copies[1]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(three.owed().len(), 4);
    assert_eq!(three.settle(true).unwrap(), 4);
    assert_eq!(held(&three.home), [1, 2, 3, 4, 5, 6]);
    assert_eq!(three.owed(), []);
    assert_eq!(three.settle(true).unwrap(), 0);
}

#[test]
fn what_no_copy_in_reach_has_stays_owed() {
    let three = Three::new();
    three.took(0, 3);
    three.took(1, 4);
    let path = stored(&three.copies[0], name(1, 3));
    let dir = path.parent().unwrap();
    let whole = three.copies[0].read_file(&path).unwrap();
    let at = three.copies[0].dir(dir).unwrap();
    at.remove_file(Path::new(path.file_name().unwrap()))
        .unwrap();
    three.settle(true).unwrap();
    assert_eq!(held(&three.home), [1, 2, 4]);
    assert_eq!(three.owed(), [name(1, 3)]);
    three.copies[0].write_file(&path, &whole).unwrap();
    three.settle(true).unwrap();
    assert_eq!(held(&three.home), [1, 2, 3, 4]);
    assert_eq!(three.owed(), []);
}

#[test]
fn another_branch_in_a_copy_is_refused_and_stays_owed() {
    let three = Three::new();
    // The copy's second segment is of another branch.
    let other = disk(5);
    push(&other, name(1, 2), &segment(1, 2, 77)).unwrap();
    push(&other, name(1, 3), &segment(1, 3, 3)).unwrap();
    let three = Three {
        copies: [other, disk(6)],
        ..three
    };
    let owe = three
        .pg_wal()
        .owe(Path::new(ARCHIVE), name(1, 3), &*clock());
    owe.unwrap();
    // The copy's branch is another one.
    let refused = three.settle(true).unwrap_err();
    let is_other = matches!(refused.error, Error::OtherContent { .. });
    assert!(is_other && refused.is_refused, "{refused}");
    assert_eq!(held(&three.home), [1, 2]);
    assert_eq!(three.owed(), [name(1, 3)]);
}

/// Goal: whatever operation on the first archive's disk is the last one, nothing is forgotten, and the next attempt ends it.
#[test]
fn a_debt_is_paid_once_wherever_the_payment_is_cut_off() {
    let mut cut_offs = 0;
    for after in 0..400 {
        let three = Three::new();
        for number in 3..=5 {
            three.took((number % 2) as usize, number);
        }
        let fault = Fault::errno(5).from_step(three.home.steps() + after);
        three.home.inject(fault);
        let first = three.settle(true);
        three.home.heal();
        let there = held(&three.home);
        for number in 3..=5 {
            let is_there = there.contains(&number);
            assert!(
                is_there || three.owed().contains(&name(1, number)),
                "{after}: {number}"
            );
        }
        three.settle(true).unwrap();
        assert_eq!(held(&three.home), [1, 2, 3, 4, 5], "{after}");
        assert_eq!(three.owed(), [], "{after}");
        if first.is_ok() {
            break;
        }
        cut_offs += 1;
    }
    assert!(cut_offs > 10, "{cut_offs}");
}

/// Goal: a name alone pays no debt.
/// Method: the server was set back while the first archive was away, which has another segment of the name that is owed.
#[test]
fn a_file_of_the_same_name_pays_nothing() {
    let three = Three::new();
    push(&three.home, name(1, 3), &segment(1, 3, 77)).unwrap();
    three.took(0, 3);
    let refused = three.settle(true).unwrap_err();
    let is_other = matches!(refused.error, Error::OtherContent { .. });
    assert!(is_other && refused.is_refused, "{refused}");
    let noted = || three.pg_wal().owed(Path::new(ARCHIVE)).unwrap();
    assert!(!noted().is_refused);
    let note = three
        .pg_wal()
        .note_unsettled(Path::new(ARCHIVE), &refused, &*clock());
    note.unwrap();
    assert_eq!(noted().names, [name(1, 3)]);
    assert!(noted().is_refused && noted().why.unwrap().contains("other"));
    // The very file pays it.
    let three = Three::new();
    push(&three.home, name(1, 3), &segment(1, 3, 3)).unwrap();
    three.took(0, 3);
    three.settle(true).unwrap();
    assert_eq!(three.owed(), []);
}
