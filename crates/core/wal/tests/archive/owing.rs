//! Goal: what a database's own archive lacks because it was away comes to it, whatever it is called now, from the copies that
//! have it or from pg_wal, and is owed until it has the very content; what nothing has is named.
//! Method: simulated disks with hand-made segments; the own archive's disk fails from each of its steps on.
//! Not covered: real servers (`wal/copies.rs` of the program).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_crypt::{Identities, Identity, Keyring, Recipients};
use longshore_io::{Clock, Fault, OpenHow, SimClock, SimDisk, Storage};
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};
use longshore_wal::{
    Creditor, Error, Givers, OWED_LIST, Owed, PgWal, Settled, StorageForm, ToSettle, WalArchive,
};

use crate::support::*;

pub const MAIN: &str = "main";
pub const NEAR: &str = "/near/main/wal";

/// pg_wal, the own archive, and two copies.
pub struct Three {
    pub server: SimDisk,
    pub home: SimDisk,
    pub copies: [SimDisk; 2],
}

pub fn creditor<'a>(database: &'a str, location: &'a str) -> Creditor<'a> {
    Creditor {
        database,
        location: Path::new(location),
    }
}

pub fn remove(disk: &SimDisk, path: &Path) {
    let dir = disk.dir(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap();
    dir.remove_file(Path::new(name)).unwrap();
}

impl Three {
    /// All have the first two segments.
    pub fn new() -> Three {
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

    pub fn pg_wal(&self) -> PgWal {
        PgWal::open(&self.server, Path::new(WAL)).unwrap()
    }

    /// A push that a copy took; the server still has the file.
    pub fn keeps(&self, copy: usize, number: u64) {
        let name = name(1, number);
        let bytes = segment(1, number, number);
        push(&self.copies[copy], name, &bytes).unwrap();
        let out = outgoing(&self.server, name, &bytes);
        let owed = self
            .pg_wal()
            .owe(creditor(MAIN, NEAR), (&out, &[]), &*clock());
        owed.unwrap();
    }

    /// A push that a copy took, and whose file the server has removed since.
    pub fn took(&self, copy: usize, number: u64) {
        self.keeps(copy, number);
        self.recycled(number);
    }

    pub fn recycled(&self, number: u64) {
        let file = Path::new(WAL).join(name(1, number).to_string());
        remove(&self.server, &file);
    }

    /// A copy that lost a file.
    pub fn lost(&self, copy: usize, number: u64) {
        let path = stored(&self.copies[copy], name(1, number));
        remove(&self.copies[copy], &path);
    }

    /// Gives up what is lost, after a look at these copies.
    pub fn give_up(&self, copies: &[&WalArchive]) -> Vec<WalName> {
        let pg_wal = self.pg_wal();
        let turn = pg_wal.turn_to_follow(MAIN).unwrap().unwrap();
        pg_wal.give_up(&turn, MAIN, copies, &*clock()).unwrap()
    }

    pub fn owed_of(&self, database: &str) -> Owed {
        self.pg_wal().owed_list().unwrap().of(database)
    }

    pub fn owed(&self) -> Vec<WalName> {
        self.owed_of(MAIN).names
    }

    pub fn settle(&self, is_home_back: bool) -> Settled {
        let home = is_home_back.then(|| archive(&self.home).unwrap());
        self.settle_with(home, &form(Algorithm::Lz4), true)
    }

    pub fn settle_with(
        &self,
        home: Option<WalArchive>,
        form: &StorageForm,
        are_all: bool,
    ) -> Settled {
        self.settle_at((NEAR, home), form, are_all)
    }

    /// With a home that is at this location now.
    pub fn settle_at(
        &self,
        (at, home): (&str, Option<WalArchive>),
        form: &StorageForm,
        are_all: bool,
    ) -> Settled {
        self.settle_by((at, home), form, are_all, &*clock())
    }

    pub fn settle_by(
        &self,
        (at, home): (&str, Option<WalArchive>),
        form: &StorageForm,
        are_all: bool,
        clock: &dyn Clock,
    ) -> Settled {
        let pg_wal = self.pg_wal();
        let turn = pg_wal.turn_to_follow(MAIN).unwrap().unwrap();
        let to_settle = |archive| ToSettle { archive, form };
        let copies = [0, 1].map(|i| archive(&self.copies[i]).unwrap());
        let givers = Givers {
            copies: &[to_settle(&copies[0]), to_settle(&copies[1])],
            are_all,
        };
        let home = (creditor(MAIN, at), home.as_ref().map(to_settle));
        pg_wal.settle(&turn, home, givers, clock).unwrap()
    }

    /// Each of these segments is in the own archive or owed to it, and none is lost.
    fn forgot_none(&self, numbers: std::ops::RangeInclusive<u64>, after: u64) {
        let there = held(&self.home);
        for number in numbers {
            let is_owed = self.owed().contains(&name(1, number));
            assert!(there.contains(&number) || is_owed, "{after}: {number}");
        }
        assert_eq!(self.owed_of(MAIN).lost.len(), 0, "{after}");
    }
}

pub fn held(disk: &SimDisk) -> Vec<u64> {
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
    // The own one is away: the copies have all, and it is owed all the same.
    assert_eq!(three.settle(false).files, 4);
    assert_eq!(held(&three.copies[0]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(held(&three.copies[1]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(three.owed().len(), 4);
    assert_eq!(three.settle(true).files, 4);
    assert_eq!(held(&three.home), [1, 2, 3, 4, 5, 6]);
    assert_eq!(three.owed(), []);
    assert_eq!(three.settle(true).files, 0);
}

/// Goal: a file is lost only after every copy was looked at, is named until the user gives it up, and comes all the same if a
/// copy has it again.
#[test]
fn what_nothing_in_reach_has_is_lost_until_a_copy_has_it_again() {
    let three = Three::new();
    three.took(0, 3);
    three.took(1, 4);
    let path = stored(&three.copies[0], name(1, 3));
    let whole = three.copies[0].read_file(&path).unwrap();
    remove(&three.copies[0], &path);
    // A copy that is away may have it.
    let home = || Some(archive(&three.home).unwrap());
    three.settle_with(home(), &form(Algorithm::Lz4), false);
    assert_eq!(held(&three.home), [1, 2, 4]);
    assert_eq!(three.owed(), [name(1, 3)]);
    assert_eq!(three.owed_of(MAIN).waits_since(), name(1, 3).segment());
    let settled = three.settle(true);
    let is_told = matches!(settled.unsettled, Some(Error::Lost { name: first, count: 1 }) if first == name(1, 3));
    assert!(is_told && !settled.is_refused, "{settled:?}");
    let owed = three.owed_of(MAIN);
    assert_eq!(
        (owed.names.len(), owed.lost.len(), owed.waits_since()),
        (1, 1, None)
    );
    assert!(owed.why.unwrap().contains(&name(1, 3).to_string()));
    // A copy that is away now says nothing of what was found before.
    three.settle_with(home(), &form(Algorithm::Lz4), false);
    assert_eq!(three.owed_of(MAIN).lost.len(), 1);
    three.copies[0].write_file(&path, &whole).unwrap();
    three.settle(true);
    assert_eq!(held(&three.home), [1, 2, 3, 4]);
    assert_eq!(three.owed_of(MAIN), Owed::default());
    // Lost files can be given up, and no others.
    for number in [5, 6] {
        three.took(0, number);
    }
    assert_eq!(three.give_up(&[]), []);
    three.lost(0, 5);
    three.settle(false);
    assert_eq!(three.give_up(&[]), []);
    assert_eq!(three.owed(), [name(1, 5), name(1, 6)]);
    three.settle(true);
    // A copy has it again, and nobody has looked since.
    let whole = segment(1, 5, 5);
    push(&three.copies[1], name(1, 5), &whole).unwrap();
    let copies = three.copies.each_ref().map(|disk| archive(disk).unwrap());
    assert_eq!(three.give_up(&copies.each_ref()), []);
    assert_eq!(three.owed_of(MAIN).waits_since(), name(1, 5).segment());
    three.lost(1, 5);
    three.settle(true);
    let given_up = three.give_up(&copies.each_ref());
    assert_eq!(
        (given_up, three.owed_of(MAIN)),
        (vec![name(1, 5)], Owed::default())
    );
}

#[test]
fn another_branch_in_a_copy_is_refused_and_stays_owed() {
    let three = Three::new();
    three.took(0, 3);
    // The copy's second segment is of another branch.
    let other = disk(5);
    push(&other, name(1, 2), &segment(1, 2, 77)).unwrap();
    push(&other, name(1, 3), &segment(1, 3, 3)).unwrap();
    let three = Three {
        copies: [other, disk(6)],
        ..three
    };
    let settled = three.settle(true);
    let is_other = matches!(settled.unsettled, Some(Error::OtherContent { .. }));
    assert!(is_other && settled.is_refused, "{settled:?}");
    assert_eq!(held(&three.home), [1, 2]);
    assert_eq!(three.owed(), [name(1, 3)]);
    assert!(three.owed_of(MAIN).is_refused);
}

/// Goal: whatever operation on the own archive's disk is the last one, nothing is forgotten, and the next attempt ends it.
#[test]
fn a_debt_is_paid_once_wherever_the_payment_is_cut_off() {
    let mut cut_offs = 0;
    for after in 0..400 {
        let three = Three::new();
        for number in 3..=5 {
            three.took((number % 2) as usize, number);
        }
        let home = archive(&three.home).unwrap();
        let fault = Fault::errno(5).from_step(three.home.steps() + after);
        three.home.inject(fault);
        let cut_off = three.settle_with(Some(home), &form(Algorithm::Lz4), true);
        three.home.heal();
        three.forgot_none(3..=5, after);
        three.settle(true);
        assert_eq!(held(&three.home), [1, 2, 3, 4, 5], "{after}");
        assert_eq!(three.owed(), [], "{after}");
        if cut_off.unsettled.is_none() {
            break;
        }
        cut_offs += 1;
    }
    assert!(cut_offs > 10, "{cut_offs}");
}

/// A file of an archive in each state of damage: of no length, cut off, and with a byte that changed.
pub fn damaged(whole: &[u8]) -> [Vec<u8>; 4] {
    let mut changed = whole.to_vec();
    changed[whole.len() / 2] ^= 1;
    [
        Vec::new(),
        whole[..20].to_vec(),
        whole[..whole.len() / 2].to_vec(),
        changed,
    ]
}

impl Three {
    /// Has the own archive's file damaged; returns its path.
    pub fn damage(&self, number: u64, kind: usize) -> PathBuf {
        if number > 2 {
            let bytes = segment(1, number, number);
            push(&self.home, name(1, number), &bytes).unwrap();
        }
        let path = stored(&self.home, name(1, number));
        let whole = self.home.read_file(&path).unwrap();
        let bytes = &damaged(&whole)[kind];
        self.home.write_file(&path, bytes).unwrap();
        path
    }
}

/// Goal: one file of the own archive that is damaged keeps no other from coming, is neither replaced nor taken for the one that
/// is owed, and is told of until somebody moves it away.
/// Method: the file is the last one that both have, one between others, the last one that is owed, and one that was archived
/// before.
#[test]
fn a_damaged_file_of_the_own_archive_keeps_no_other_from_coming() {
    for (number, has_file) in [(3, false), (4, false), (6, false), (2, false), (4, true)] {
        for kind in 0..4 {
            let case = format!("{number} {has_file} {kind}");
            let three = Three::new();
            let path = three.damage(number, kind);
            let bytes = three.home.read_file(&path).unwrap();
            for owed in 3..=6 {
                three.took((owed % 2) as usize, owed);
            }
            if has_file {
                three.lost((number % 2) as usize, number);
                outgoing(&three.server, name(1, number), &segment(1, number, number));
            }
            let left: Vec<WalName> = (3..=6)
                .filter(|n| *n == number)
                .map(|n| name(1, n))
                .collect();
            let others: Vec<u64> = (1..=6).filter(|n| *n != number).collect();
            for _ in 0..2 {
                let settled = three.settle(true);
                assert_eq!(held(&three.home), others, "{case}: {settled:?}");
                assert_eq!(three.home.read_file(&path).unwrap(), bytes, "{case}");
                assert_eq!(three.owed(), left, "{case}");
                let owed = three.owed_of(MAIN);
                if left.is_empty() {
                    assert_eq!(owed, Owed::default(), "{case}");
                    continue;
                }
                assert!(
                    matches!(settled.unsettled, Some(Error::Damaged { .. })),
                    "{case}: {settled:?}"
                );
                assert!(
                    owed.is_in_the_way && !owed.is_refused && owed.is_there,
                    "{case}: {owed:?}"
                );
                assert_eq!(owed.lost.len(), 0, "{case}: a copy or pg_wal has it");
                assert!(
                    owed.why.unwrap().contains(&*path.to_string_lossy()),
                    "{case}"
                );
                // It is away for a while, which says nothing of the file.
                let main = creditor(MAIN, NEAR);
                three
                    .pg_wal()
                    .note_unsettled(main, "away", &*clock())
                    .unwrap();
                assert!(three.owed_of(MAIN).is_in_the_way, "{case}");
            }
            if number == 2 {
                continue;
            }
            remove(&three.home, &path);
            three.settle(true);
            assert_eq!(
                (held(&three.home), three.owed()),
                (vec![1, 2, 3, 4, 5, 6], vec![]),
                "{case}"
            );
            assert_eq!(list(&three.server), "", "{case}");
        }
    }
}

/// Goal: the same at whatever step the payment is cut off: nothing is forgotten, and the damaged file stays as it is.
#[test]
fn a_damaged_file_stays_as_it_is_wherever_a_payment_is_cut_off() {
    let begun = || {
        let three = Three::new();
        let path = three.damage(4, 2);
        for number in 3..=5 {
            three.took((number % 2) as usize, number);
        }
        (three, path)
    };
    let (whole, _) = begun();
    let home = archive(&whole.home).unwrap();
    let before = whole.home.steps();
    whole.settle_with(Some(home), &form(Algorithm::Lz4), true);
    let steps = whole.home.steps() - before;
    assert!(steps > 10, "{steps}");
    for after in 0..steps {
        let (three, path) = begun();
        let bytes = three.home.read_file(&path).unwrap();
        let home = archive(&three.home).unwrap();
        let fault = Fault::errno(5).from_step(three.home.steps() + after);
        three.home.inject(fault);
        three.settle_with(Some(home), &form(Algorithm::Lz4), true);
        three.home.heal();
        three.forgot_none(3..=5, after);
        three.settle(true);
        assert_eq!(held(&three.home), [1, 2, 3, 5], "{after}");
        assert_eq!(three.owed(), [name(1, 4)], "{after}");
        assert_eq!(three.home.read_file(&path).unwrap(), bytes, "{after}");
    }
}

/// Goal: a name alone pays no debt.
/// Method: the server was set back while the own archive was away, which has another segment of the name that is owed.
#[test]
fn a_file_of_the_same_name_pays_nothing() {
    for is_lost in [false, true] {
        let three = Three::new();
        push(&three.home, name(1, 3), &segment(1, 3, 77)).unwrap();
        three.took(0, 3);
        if is_lost {
            three.lost(0, 3);
        }
        let settled = three.settle(true);
        let is_other = matches!(settled.unsettled, Some(Error::OtherContent { .. }));
        assert!(is_other && settled.is_refused, "{is_lost}: {settled:?}");
        let owed = three.owed_of(MAIN);
        assert_eq!((&owed.names[..], owed.lost.len()), (&[name(1, 3)][..], 0));
        assert!(owed.is_refused && owed.why.unwrap().contains("other"));
        // While it is away it says nothing else.
        let pg_wal = three.pg_wal();
        let main = creditor(MAIN, NEAR);
        pg_wal.note_unsettled(main, "away", &*clock()).unwrap();
        let home = archive(&three.home).unwrap();
        three
            .home
            .inject(Fault::errno(5).from_step(three.home.steps()));
        three.settle_with(Some(home), &form(Algorithm::Lz4), true);
        three.home.heal();
        let owed = three.owed_of(MAIN);
        assert!(owed.is_refused && owed.why.unwrap().contains("other"));
    }
    // The very file pays it.
    let three = Three::new();
    push(&three.home, name(1, 3), &segment(1, 3, 3)).unwrap();
    three.took(0, 3);
    three.settle(true);
    assert_eq!(three.owed(), []);
}

/// Goal: a debt whose content the own archive has is paid where no copy has the file, and so is one whose file pg_wal has.
#[test]
fn the_very_content_pays_a_debt_where_no_copy_has_it() {
    let three = Three::new();
    push(&three.home, name(1, 3), &segment(1, 3, 3)).unwrap();
    three.took(0, 3);
    three.lost(0, 3);
    let settled = three.settle(true);
    assert!(settled.unsettled.is_none(), "{settled:?}");
    assert_eq!(three.owed(), []);

    // The server has it still, and the archive does not.
    three.keeps(0, 4);
    three.lost(0, 4);
    assert_eq!(three.settle(true).files, 1);
    assert_eq!(three.owed(), []);
    assert_eq!(fetch(&three.home, name(1, 4)).unwrap(), segment(1, 4, 4));
}

/// Goal: a clone that carries the list brings the own archive nothing of its own in place of what is owed.
/// Method: its pg_wal has another segment of the name; a copy has another one, too.
#[test]
fn another_content_of_the_name_is_brought_from_nowhere() {
    let three = Three::new();
    three.keeps(0, 3);
    three.lost(0, 3);
    outgoing(&three.server, name(1, 3), &segment(1, 3, 77));
    push(&three.copies[1], name(1, 3), &segment(1, 3, 88)).unwrap();
    let settled = three.settle(true);
    let is_told = matches!(settled.unsettled, Some(Error::NotOwed { name: first, .. }) if first == name(1, 3));
    assert!(is_told && !settled.is_refused, "{settled:?}");
    assert_eq!(held(&three.home), [1, 2]);
    let owed = three.owed_of(MAIN);
    assert_eq!((owed.names.len(), owed.lost.len()), (1, 1));
    // Nor does it keep anybody from giving up the file.
    let copies = three.copies.each_ref().map(|disk| archive(disk).unwrap());
    assert_eq!(three.give_up(&copies.each_ref()), [name(1, 3)]);
}

/// Goal: a debt is to the database's own archive, whatever that is called now and wherever it is; it is told once, and another
/// database's debts stay its own.
#[test]
fn a_debt_goes_on_where_the_archive_is_called_otherwise() {
    let three = Three::new();
    three.took(0, 3);
    let pg_wal = three.pg_wal();
    for (database, number) in [("other", 3), ("other", 4), (MAIN, 3)] {
        let out = outgoing(&three.server, name(1, number), &segment(1, number, number));
        let owe = pg_wal.owe(creditor(database, NEAR), (&out, &[]), &*clock());
        owe.unwrap();
        three.recycled(number);
    }
    assert_eq!(three.owed().len(), 1, "it is noted once");
    push(&three.home, name(1, 3), &segment(1, 3, 77)).unwrap();
    three.settle(true);
    assert!(three.owed_of(MAIN).is_refused);

    // The archive that refused it is another one's now: a new one is the database's own.
    assert!(!three.owed_of(MAIN).is_elsewhere(Path::new(NEAR)));
    let new = creditor(MAIN, "/new/main/wal");
    let (names, places) = pg_wal.move_debts(MAIN, new, &*clock()).unwrap();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [name(1, 3)]);
    assert_eq!(places.into_iter().collect::<Vec<_>>(), [NEAR]);
    let (names, _) = pg_wal.move_debts(MAIN, new, &*clock()).unwrap();
    assert!(names.is_empty(), "it is told once");
    let owed = three.owed_of(MAIN);
    assert!(
        !owed.is_refused && !owed.is_elsewhere(new.location),
        "{owed:?}"
    );
    let three = Three {
        home: disk(7),
        ..three
    };
    // A process that began before brings the old archive nothing, and forgets nothing.
    three.settle(true);
    assert_eq!(
        (held(&three.home), three.owed()),
        (vec![], vec![name(1, 3)])
    );
    let home = archive(&three.home).unwrap();
    let at_new = ("/new/main/wal", Some(home));
    three.settle_at(at_new, &form(Algorithm::Lz4), true);
    assert_eq!((held(&three.home), three.owed()), (vec![3], vec![]));
    let others = three.owed_of("other");
    assert_eq!(others.names, [name(1, 3), name(1, 4)]);

    // A database that was renamed takes them over.
    let moved = pg_wal.move_debts("other", new, &*clock()).unwrap();
    assert_eq!(moved.0.len(), 2);
    assert_eq!(three.owed(), others.names);
    assert_eq!(three.owed_of("other"), Owed::default());
}

/// Goal: two contents of one name are no debt of one archive: the second push fails, and the server keeps its file.
#[test]
fn another_content_is_not_owed_under_a_name_that_is_owed() {
    let three = Three::new();
    three.took(0, 3);
    let other = outgoing(&three.server, name(1, 3), &segment(1, 3, 77));
    let pg_wal = three.pg_wal();
    let owe = |out| pg_wal.owe(creditor(MAIN, NEAR), (out, &[]), &*clock());
    let refused = owe(&other).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
    let same = outgoing(&three.server, name(1, 3), &segment(1, 3, 3));
    owe(&same).unwrap();
    assert_eq!(three.owed().len(), 1);
}

/// Goal: a refusal goes with the debt that was refused, so that the next outage is none.
/// Method: one copy's last segment is another branch's, so the archive refuses what comes from there; the other copy pays.
#[test]
fn a_refusal_ends_with_the_debt_whoever_pays_it() {
    let three = Three::new();
    three.took(1, 3);
    let other = disk(5);
    push(&other, name(1, 2), &segment(1, 2, 77)).unwrap();
    push(&other, name(1, 3), &segment(1, 3, 3)).unwrap();
    let [_, second] = three.copies.clone();
    let three = Three {
        copies: [other, second],
        ..three
    };
    let settled = three.settle(true);
    assert!(settled.unsettled.is_none(), "{settled:?}");
    assert_eq!(three.owed(), []);
    assert_eq!(list(&three.server), "");
    three.took(1, 4);
    assert!(!three.owed_of(MAIN).is_refused);
    // Also that of a list that was written before.
    write_list(&three.server, "refused\tmain\tother bytes\n");
    three.took(1, 5);
    assert!(!three.owed_of(MAIN).is_refused);
}

/// Goal: a payment to an archive that is no longer the own one pays nothing: the debt was moved while it was made.
#[test]
fn a_debt_that_was_moved_meanwhile_is_not_struck_off() {
    let three = Three::new();
    three.took(0, 3);
    let pg_wal = three.pg_wal();
    let new = creditor(MAIN, "/new/main/wal");
    pg_wal.move_debts(MAIN, new, &*clock()).unwrap();
    let settled = three.settle(true);
    assert_eq!((settled.files, three.owed()), (0, vec![name(1, 3)]));
    assert_eq!(held(&three.home), [1, 2]);
    let near = creditor(MAIN, NEAR);
    pg_wal.note_unsettled(near, "away", &*clock()).unwrap();
    assert_eq!(three.owed_of(MAIN).why, None, "of another archive");
}

/// Goal: a busy server's pushes know that its archive is back while older files are still on their way, and that it went away.
#[test]
fn an_archive_that_answered_is_known_to_be_there_until_it_fails() {
    let three = Three::new();
    three.took(0, 3);
    assert!(!three.owed_of(MAIN).is_there);
    // A file that nobody can give now; another one comes while the archive is asked.
    three.took(1, 4);
    three.lost(1, 4);
    let home = || Some(archive(&three.home).unwrap());
    three.settle_with(home(), &form(Algorithm::Lz4), false);
    assert_eq!(three.owed(), [name(1, 4)]);
    assert!(three.owed_of(MAIN).is_there);
    three.took(0, 5);
    assert!(
        three.owed_of(MAIN).is_there,
        "a new debt says nothing of it"
    );
    // It fails.
    let main = creditor(MAIN, NEAR);
    let pg_wal = three.pg_wal();
    pg_wal.note_unsettled(main, "away", &*clock()).unwrap();
    let owed = three.owed_of(MAIN);
    assert_eq!((owed.is_there, owed.why.as_deref()), (false, Some("away")));
    three.settle(false);
    assert!(!three.owed_of(MAIN).is_there);
    three
        .home
        .inject(Fault::errno(5).from_step(three.home.steps() + 1));
    three.settle_with(home(), &form(Algorithm::Lz4), false);
    assert!(!three.owed_of(MAIN).is_there);
}

/// Goal: nobody is called for a cause that goes by itself, and somebody is for each other one.
#[test]
fn what_another_process_is_at_work_on_passes_by_itself_and_what_nobody_has_does_not() {
    let three = Three::new();
    three.keeps(0, 3);
    let at = Path::new(ARCHIVE).join(format!("0000000100000000/{}.tmp", name(1, 3)));
    three.home.write_file(&at, b"half").unwrap();
    let dir = three.home.dir(at.parent().unwrap()).unwrap();
    let file = Path::new(at.file_name().unwrap());
    let lock = dir.open(file, OpenHow::ReadWrite).unwrap();
    assert!(lock.try_lock().unwrap());
    let settled = three.settle(true).unsettled.unwrap();
    assert!(matches!(settled, Error::Busy { .. }), "{settled}");
    let owed = three.owed_of(MAIN);
    assert!(
        owed.is_there && owed.why.is_some() && owed.passes_since_us.is_some(),
        "{owed:?}"
    );
    // An older version's line has no such word.
    let text = list(&three.server).replace("\tpasses", "\t");
    write_list(&three.server, &text);
    let owed = three.owed_of(MAIN);
    assert!(owed.is_there && owed.passes_since_us.is_none(), "{owed:?}");
    // Another one that nothing in reach has, as a look shows that nobody cuts off.
    three.took(1, 4);
    three.lost(1, 4);
    three.settle(true);
    assert!(three.owed_of(MAIN).passes_since_us.is_some());
    drop(lock);
    three.settle(true);
    assert_eq!(
        (three.owed(), held(&three.home)),
        (vec![name(1, 4)], vec![1, 2, 3])
    );
    let owed = three.owed_of(MAIN);
    assert!(owed.is_there && owed.passes_since_us.is_none(), "{owed:?}");
}

/// Goal: what should go by itself, and does not, is known by its age.
#[test]
fn a_cause_that_goes_by_itself_is_as_old_as_the_first_attempt_of_a_row() {
    let three = Three::new();
    three.keeps(0, 3);
    let at = Path::new(ARCHIVE).join(format!("0000000100000000/{}.tmp", name(1, 3)));
    three.home.write_file(&at, b"half").unwrap();
    let dir = three.home.dir(at.parent().unwrap()).unwrap();
    let file = Path::new(at.file_name().unwrap());
    let hold = || {
        let lock = dir.open(file, OpenHow::ReadWrite).unwrap();
        assert!(lock.try_lock().unwrap());
        lock
    };
    let since_at = |hours: i64| {
        let clock = SimClock::new(hours * 3_600_000_000_000);
        let home = Some(archive(&three.home).unwrap());
        three.settle_by((NEAR, home), &form(Algorithm::Lz4), true, &clock);
        let since = three.owed_of(MAIN).passes_since_us;
        since.map(|us| us / 3_600_000_000)
    };
    let lock = hold();
    assert_eq!([5, 30].map(since_at), [Some(5), Some(5)]);
    // A clock that was set back makes no age of centuries.
    assert_eq!([3, 40].map(since_at), [Some(3), Some(3)]);
    // A file that nobody has is another cause: after it, the age begins again.
    three.took(1, 4);
    three.lost(1, 4);
    drop(lock);
    assert_eq!(since_at(50), None);
}

/// Goal: without any copy nothing is lost: one that is gone from the configuration may have it.
#[test]
fn where_no_copy_is_configured_nothing_is_lost() {
    let three = Three::new();
    three.took(0, 3);
    let pg_wal = three.pg_wal();
    let turn = pg_wal.turn_to_follow(MAIN).unwrap().unwrap();
    let (home, form) = (archive(&three.home).unwrap(), form(Algorithm::Lz4));
    let home = ToSettle {
        archive: &home,
        form: &form,
    };
    let none = Givers {
        copies: &[],
        are_all: true,
    };
    let main = (creditor(MAIN, NEAR), Some(home));
    let settled = pg_wal.settle(&turn, main, none, &*clock()).unwrap();
    assert!(settled.unsettled.is_none(), "{settled:?}");
    let owed = three.owed_of(MAIN);
    assert_eq!((owed.names.len(), owed.lost.len()), (1, 0));
    assert_eq!(pg_wal.give_up(&turn, MAIN, &[], &*clock()).unwrap(), []);
}

/// Goal: a copy that cannot be read says nothing of the own archive, which gets what pg_wal has.
#[test]
fn a_copy_that_cannot_be_read_keeps_nothing_else_from_the_own_archive() {
    for after in 0..20 {
        let three = Three::new();
        three.keeps(0, 3);
        let copy = three.copies[0].clone();
        let pg_wal = three.pg_wal();
        let turn = pg_wal.turn_to_follow(MAIN).unwrap().unwrap();
        let archives = [&three.home, &copy].map(|disk| archive(disk).unwrap());
        let form = form(Algorithm::Lz4);
        let [home, from] = archives.each_ref().map(|archive| ToSettle {
            archive,
            form: &form,
        });
        copy.inject(Fault::errno(5).from_step(copy.steps() + after));
        let givers = Givers {
            copies: &[from],
            are_all: true,
        };
        let main = (creditor(MAIN, NEAR), Some(home));
        pg_wal.settle(&turn, main, givers, &*clock()).unwrap();
        assert_eq!(
            (held(&three.home), three.owed()),
            (vec![1, 2, 3], vec![]),
            "{after}"
        );
    }
}

/// Goal: one database is owed one content of a name, and takes over no other.
#[test]
fn a_debt_of_another_content_is_not_taken_over() {
    let three = Three::new();
    three.took(0, 3);
    let pg_wal = three.pg_wal();
    for (number, seed) in [(3, 77), (4, 4)] {
        let out = outgoing(&three.server, name(1, number), &segment(1, number, seed));
        let owe = pg_wal.owe(creditor("other", NEAR), (&out, &[]), &*clock());
        owe.unwrap();
    }
    let before = list(&three.server);
    let taken = pg_wal.move_debts("other", creditor(MAIN, NEAR), &*clock());
    let refused = taken.unwrap_err();
    assert!(matches!(refused, Error::OwedTwice { .. }), "{refused}");
    assert_eq!(list(&three.server), before);
    // Of two contents that a list has all the same, only the one that came is paid.
    write_list(&three.server, &before.replace("other", MAIN));
    three.settle(true);
    assert_eq!(three.owed(), [name(1, 3)]);
}

fn list(server: &SimDisk) -> String {
    let path = Path::new(WAL).parent().unwrap().join(OWED_LIST.0);
    String::from_utf8(server.read_file(path).unwrap()).unwrap()
}

fn write_list(server: &SimDisk, text: &str) {
    let path = Path::new(WAL).parent().unwrap().join(OWED_LIST.0);
    server.write_file(path, text.as_bytes()).unwrap();
}

/// Goal: while it is not known what is owed, nothing counts as reached in a copy, and the copy gets the WAL all the same.
#[test]
fn nothing_counts_as_reached_while_the_list_cannot_be_read() {
    let lag = |text: &str| {
        let three = Three::new();
        let pg_wal = three.pg_wal();
        write_list(&three.server, text);
        let size = SegmentSize::new(SEGMENT as u64).unwrap();
        let own = |number| name(1, number).segment().unwrap();
        let at = |number| pg_wal.lag("far", own(number), size, &*clock()).unwrap();
        at(1);
        push(&three.home, name(1, 3), &segment(1, 3, 3)).unwrap();
        let turn = pg_wal.turn_to_follow(MAIN).unwrap().unwrap();
        let (from, to) = (
            archive(&three.home).unwrap(),
            archive(&three.copies[0]).unwrap(),
        );
        let form = form(Algorithm::Lz4);
        let followed = pg_wal.follow(&turn, (MAIN, &from), ("far", &to), &form, &*clock());
        assert_eq!(
            (followed.unwrap(), held(&three.copies[0])),
            (1, vec![1, 2, 3])
        );
        at(4).since
    };
    let segment_of = |number| -> SegmentName { name(1, number).segment().unwrap() };
    assert_eq!(lag(""), segment_of(4));
    assert_eq!(lag("a line of a later version\n"), segment_of(1));
    let too_long = "x".repeat(OWED_LIST.1 + 1);
    assert_eq!(lag(&too_long), segment_of(1));
    // Another database's debt is none of this one's.
    let sum = "0".repeat(64);
    let line = |database: &str| format!("{}\t{database}\t{sum}\t/x\n", name(1, 2));
    assert_eq!(lag(&line("other")), segment_of(4));
    assert_eq!(lag(&line(MAIN)), segment_of(2));
    // Lost files come to neither archive.
    let lost = format!("{}lost\t{MAIN}\t{}\n", line(MAIN), name(1, 2));
    assert_eq!(lag(&lost), segment_of(4));
}

/// A control file with a secret, from which the server's tags are.
pub fn control() -> Vec<u8> {
    let mut bytes = vec![0; longshore_pg::CONTROL_FILE_LEN];
    bytes[..8].copy_from_slice(&SYSTEM.to_le_bytes());
    for (at, value) in [
        (8, 1300u32),
        (48, 1),
        (216, 8192),
        (220, 131_072),
        (228, 1 << 20),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes[256..288].fill(7);
    let crc = longshore_io::crc32c(&bytes[..288]);
    bytes[288..292].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A form that encrypts, and who can read it.
pub fn sealing() -> (StorageForm, Arc<Keyring>) {
    let identity = Identity::new_hybrid().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let sealed = StorageForm {
        recipients: Some(Arc::new(recipients)),
        ..form(Algorithm::Zstd)
    };
    let keyring = Keyring::new(Identities::new(vec![identity]), false);
    (sealed, Arc::new(keyring))
}

/// Goal: an encrypted file in the own archive is recognized by the cluster's tags, or by an identity; where neither tells, it
/// stays owed and is not lost.
#[test]
fn an_encrypted_file_pays_a_debt_by_tags_or_to_who_can_read_it() {
    let (form, keyring) = sealing();
    for (has_tags, reads) in [(true, false), (false, true), (false, false)] {
        for seed in [3, 77] {
            let three = Three::new();
            let data = Path::new(WAL).parent().unwrap();
            if has_tags {
                let path = data.join("global/pg_control");
                three.server.write_file(path, &control()).unwrap();
            }
            let tags = three.pg_wal().tag_key();
            assert_eq!(tags.is_some(), has_tags);
            let home = || archive(&three.home).unwrap().with_tags(tags.clone());
            let out = outgoing(&three.home, name(1, 3), &segment(1, 3, seed));
            let pushed = home().with_keyring(&keyring).push(&out, &form, &*clock());
            pushed.unwrap();
            three.took(0, 3);
            three.lost(0, 3);
            let home = match reads {
                true => home().with_keyring(&keyring),
                false => home(),
            };
            let settled = three.settle_with(Some(home), &form, true);
            let owed = three.owed_of(MAIN);
            assert_eq!(owed.lost.len(), 0);
            match (has_tags || reads, seed) {
                (true, 3) => assert_eq!(owed, Owed::default()),
                (true, _) => assert!(settled.is_refused, "{settled:?}"),
                (false, _) => {
                    let why = settled.unsettled.unwrap();
                    assert!(matches!(why, Error::Uncompared { .. }), "{why}");
                    assert_eq!((owed.names.len(), settled.is_refused), (1, false));
                }
            }
        }
    }
}

/// Goal: an encrypted file of the own archive that nobody here can compare keeps no other from coming.
#[test]
fn an_encrypted_file_that_nobody_can_compare_keeps_no_other_from_coming() {
    let (sealed, keyring) = sealing();
    let three = Three::new();
    let out = outgoing(&three.home, name(1, 4), &segment(1, 4, 4));
    let home = || archive(&three.home).unwrap();
    let pushed = home().with_keyring(&keyring).push(&out, &sealed, &*clock());
    pushed.unwrap();
    for number in 3..=6 {
        three.took((number % 2) as usize, number);
    }
    let settled = three.settle(true);
    assert!(!settled.is_refused, "{settled:?}");
    assert_eq!(held(&three.home), [1, 2, 3, 5, 6]);
    let owed = three.owed_of(MAIN);
    assert_eq!((&owed.names[..], owed.lost.len()), (&[name(1, 4)][..], 0));
    assert!(owed.is_uncompared, "{owed:?}");
    // An identity shows that it is the very file.
    let reading = home().with_keyring(&keyring);
    three.settle_with(Some(reading), &sealed, true);
    assert_eq!(three.owed(), []);
}

/// Goal: an encrypted file that nobody here can compare pays nothing, is not lost, and somebody is told to act.
/// Method: a copy has it without tags, as who reads it wrote it there; the list has the digest of tags.
#[test]
fn an_encrypted_file_that_nobody_can_compare_is_not_brought() {
    let (form, keyring) = sealing();
    for seed in [3, 77] {
        let three = Three::new();
        let data = Path::new(WAL).parent().unwrap();
        let path = data.join("global/pg_control");
        three.server.write_file(path, &control()).unwrap();
        let tags = three.pg_wal().tag_key();
        three.took(1, 3);
        three.lost(1, 3);
        let copy = archive(&three.copies[0]).unwrap().with_keyring(&keyring);
        let out = outgoing(&three.home, name(1, 3), &segment(1, 3, seed));
        copy.push(&out, &form, &*clock()).unwrap();
        let home = archive(&three.home).unwrap().with_tags(tags);
        let settled = three.settle_with(Some(home), &form, true);
        assert!(
            matches!(settled.unsettled, Some(Error::Uncompared { .. })),
            "{settled:?}"
        );
        assert_eq!(held(&three.home), [1, 2]);
        let owed = three.owed_of(MAIN);
        assert_eq!((owed.names.len(), owed.lost.len()), (1, 0));
        assert!(owed.is_uncompared && !owed.is_refused);
    }
}
