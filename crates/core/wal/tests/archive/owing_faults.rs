//! Goal: a fault of one file, at home or in a copy, pays no debt and keeps no other file from coming; nothing of the server comes
//! behind another branch's file.
//! Method: simulated disks with hand-made segments, of which single files are damaged, unreadable or another branch's.
//! Not covered: real servers (`wal/owed.rs` of the program).

use std::path::Path;

use longshore_codec::Algorithm;
use longshore_io::{Fault, Op, SimDisk};
use longshore_pg::wal::WalName;
use longshore_wal::{Debtor, Error};

use crate::owing::{MAIN, Three, control, creditor, damaged, held, remove, sealing};
use crate::support::*;

/// Goal: an encrypted file that nobody can open, because the slots of its key are damaged, pays nothing, and a copy gives none.
/// Method: no identity is here, so the file is recognized by tags alone; the slots lie before the first block.
#[test]
fn a_file_whose_slots_are_damaged_pays_nothing_and_does_not_come() {
    let (sealed, keyring) = sealing();
    for (is_home, has_copy, has_file) in [
        (true, true, false),
        (true, false, false),
        (true, false, true),
        (false, true, false),
        (false, true, true),
    ] {
        let case = format!("{is_home} {has_copy} {has_file}");
        let three = Three::new();
        let data = Path::new(WAL).parent().unwrap();
        let path = data.join("global/pg_control");
        three.server.write_file(path, &control()).unwrap();
        let tags = three.pg_wal().tag_key();
        let at = |disk: &SimDisk| archive(disk).unwrap().with_tags(tags.clone());
        three.took(0, 3);
        three.lost(0, 3);
        let out = outgoing(&three.copies[1], name(1, 3), &segment(1, 3, 3));
        if has_copy {
            let copy = at(&three.copies[0]);
            copy.push(&out, &sealed, &*clock()).unwrap();
        }
        let disk = match is_home {
            true => &three.home,
            false => &three.copies[0],
        };
        at(disk).push(&out, &sealed, &*clock()).unwrap();
        let path = stored(disk, name(1, 3));
        let whole = disk.read_file(&path).unwrap();
        let mut bytes = whole.clone();
        bytes[600] ^= 1;
        disk.write_file(&path, &bytes).unwrap();
        if has_file {
            outgoing(&three.server, name(1, 3), &segment(1, 3, 3));
        }
        let settled = three.settle_with(Some(at(&three.home)), &sealed, true);
        if (is_home, has_file) == (false, true) {
            assert!(settled.unsettled.is_none(), "{case}: {settled:?}");
            assert_eq!(three.owed(), [], "{case}");
        } else {
            assert!(
                matches!(
                    settled.unsettled,
                    Some(Error::Damaged { .. } | Error::Lost { .. })
                ),
                "{case}: {settled:?}"
            );
            assert_eq!(three.owed(), [name(1, 3)], "{case}");
            let is_in_the_way = is_home && (has_copy || has_file);
            assert_eq!(three.owed_of(MAIN).is_in_the_way, is_in_the_way, "{case}");
            disk.write_file(&path, &whole).unwrap();
            three.settle_with(Some(at(&three.home)), &sealed, true);
            assert_eq!(three.owed(), [], "{case}");
        }
        let reader = at(&three.home).with_keyring(&keyring);
        reader.verify(name(1, 3)).unwrap();
        assert_eq!(held(&three.home), [1, 2], "{case}: encrypted");
    }
}

/// Goal: where another server archived a segment of a name that is owed, nothing of this server comes after it, whichever copy
/// has the rest and whatever pg_wal still has. A new archive gets all of it.
#[test]
fn nothing_comes_behind_another_branchs_file() {
    for refused in 3..=6 {
        for copies in [[0, 0], [0, 1], [1, 0]] {
            let case = format!("{refused} {copies:?}");
            let three = Three::new();
            for number in 3..=7 {
                let copy = copies[usize::from(number != refused)];
                match number {
                    7 => three.keeps(copy, number),
                    _ => three.took(copy, number),
                }
            }
            let names: Vec<WalName> = (3..=7).map(|n| name(1, n)).collect();
            push(&three.home, name(1, refused), &segment(1, refused, 77)).unwrap();
            for _ in 0..2 {
                let settled = three.settle(true);
                assert!(settled.is_refused, "{case}: {settled:?}");
                assert_eq!(held(&three.home), [1, 2, refused], "{case}");
                let owed = three.owed_of(MAIN);
                assert_eq!(owed.names, names, "{case}");
                assert_eq!((owed.lost.len(), owed.is_refused), (0, true), "{case}");
            }
            let new = disk(8);
            let place = creditor(MAIN, "/new/main/wal");
            three.pg_wal().move_debts(MAIN, place, &*clock()).unwrap();
            three.recycled(7);
            let at = ("/new/main/wal", Some(archive(&new).unwrap()));
            three.settle_at(at, &form(Algorithm::Lz4), true);
            assert_eq!(
                (held(&new), three.owed()),
                (vec![3, 4, 5, 6, 7], vec![]),
                "{case}"
            );
        }
    }
}

/// Goal: a copy of another branch, which the own archive refuses, keeps nothing from it that pg_wal and another copy have.
#[test]
fn a_copy_of_another_branch_keeps_nothing_else_from_coming() {
    let three = Three::new();
    three.took(1, 3);
    three.keeps(1, 4);
    three.lost(1, 4);
    let other = disk(5);
    push(&other, name(1, 2), &segment(1, 2, 77)).unwrap();
    for number in 3..=4 {
        push(&other, name(1, number), &segment(1, number, number)).unwrap();
    }
    let [_, second] = three.copies.clone();
    let three = Three {
        copies: [other, second],
        ..three
    };
    let settled = three.settle(true);
    assert!(settled.unsettled.is_none(), "{settled:?}");
    assert_eq!(
        (held(&three.home), three.owed()),
        (vec![1, 2, 3, 4], vec![])
    );
}

/// Goal: files of a copy that cannot be read, or are damaged, keep no other from coming, are not lost while they may be whole, and
/// come once they can be read.
/// Method: the copy's store refuses some of them; in the other half they are cut off.
#[test]
fn files_of_a_copy_that_cannot_be_read_keep_no_other_from_coming() {
    for bad in [vec![3], vec![4, 5], vec![6], vec![3, 4, 6]] {
        for is_damaged in [false, true] {
            let case = format!("{bad:?} {is_damaged}");
            let three = Three::new();
            for number in 3..=6 {
                three.took(0, number);
            }
            let copy = &three.copies[0];
            let mut whole = Vec::new();
            for number in &bad {
                let path = stored(copy, name(1, *number));
                if is_damaged {
                    let bytes = copy.read_file(&path).unwrap();
                    copy.write_file(&path, &bytes[..bytes.len() / 2]).unwrap();
                    whole.push((path, bytes));
                } else {
                    copy.inject(Fault::errno(5).on(Op::Read).below(path));
                }
            }
            let others: Vec<u64> = (1..=6).filter(|n| !bad.contains(n)).collect();
            let left: Vec<WalName> = bad.iter().map(|n| name(1, *n)).collect();
            for _ in 0..2 {
                let settled = three.settle(true);
                assert_eq!(held(&three.home), others, "{case}: {settled:?}");
                let owed = three.owed_of(MAIN);
                assert_eq!(owed.names, left, "{case}");
                let lost = if is_damaged { left.len() } else { 0 };
                assert_eq!(owed.lost.len(), lost, "{case}");
                assert!(owed.is_there && !owed.is_refused, "{case}");
                let path = stored(copy, left[0]);
                let why = owed.why.unwrap();
                assert!(why.contains(&*path.to_string_lossy()), "{case}: {why}");
            }
            copy.heal();
            for (path, bytes) in whole {
                copy.write_file(&path, &bytes).unwrap();
            }
            three.settle(true);
            assert_eq!(held(&three.home), [1, 2, 3, 4, 5, 6], "{case}");
            assert_eq!(three.owed(), [], "{case}");
        }
    }
}

/// Goal: a copy's store that fails for one file after another is not asked for all of them, and none is lost.
#[test]
fn a_copy_that_fails_for_many_files_in_a_row_is_left_for_the_next_time() {
    let three = Three::new();
    let copy = &three.copies[0];
    for number in 3..=22 {
        three.took(0, number);
    }
    for number in 3..=21 {
        let path = stored(copy, name(1, number));
        copy.inject(Fault::errno(5).on(Op::Read).below(path));
    }
    let settled = three.settle(true);
    assert!(
        matches!(settled.unsettled, Some(Error::Io { .. })),
        "{settled:?}"
    );
    let owed = three.owed_of(MAIN);
    assert_eq!((owed.names.len(), owed.lost.len()), (20, 0));
    copy.heal();
    three.settle(true);
    assert_eq!(three.owed(), []);
}

/// Goal: where a copy's file by which the two archives would be compared is damaged or cannot be read, an earlier one is compared.
#[test]
fn a_damaged_file_of_a_copy_is_not_needed_to_compare_the_archives() {
    for kind in 0..5 {
        for is_other in [false, true] {
            let three = Three::new();
            let copy = &three.copies[0];
            for number in 3..=6 {
                three.took(0, number);
            }
            if is_other {
                // The two have nothing else in common, so they are of different branches.
                let path = stored(&three.home, name(1, 1));
                remove(&three.home, &path);
                push(&three.home, name(1, 1), &segment(1, 1, 77)).unwrap();
            }
            let path = stored(copy, name(1, 2));
            match kind {
                4 => drop(copy.inject(Fault::errno(5).on(Op::Read).below(path))),
                kind => {
                    let bytes = copy.read_file(&path).unwrap();
                    let bytes = &damaged(&bytes)[kind];
                    copy.write_file(&path, bytes).unwrap();
                }
            }
            let settled = three.settle(true);
            if is_other {
                assert!(settled.is_refused, "{kind}: {settled:?}");
                assert_eq!(held(&three.home), [1, 2], "{kind}");
                continue;
            }
            assert!(settled.unsettled.is_none(), "{kind}: {settled:?}");
            assert_eq!(held(&three.home), [1, 2, 3, 4, 5, 6], "{kind}");
            assert_eq!(three.owed(), [], "{kind}");
        }
    }
}

/// Goal: the copy keeps the segment by which it is compared with the own archive, also where the follower had not brought the one
/// before the first that is owed.
#[test]
fn a_copy_that_was_behind_keeps_what_it_is_compared_by() {
    let three = Three::new();
    push(&three.home, name(1, 3), &segment(1, 3, 3)).unwrap();
    for number in 4..=5 {
        three.took(0, number);
    }
    let pg_wal = three.pg_wal();
    let debtor = Debtor {
        database: MAIN,
        target: "near",
        pg_wal: pg_wal.path(),
    };
    let copy = archive(&three.copies[0]).unwrap();
    let all = (&[&copy][..], true);
    pg_wal.renew_kept(&debtor, all, &*clock()).unwrap();
    let from = copy.needs().unwrap()[0].from().unwrap();
    copy.remove_unneeded(from, false, |_, _, _| false).unwrap();
    assert_eq!(held(&three.copies[0]), [2, 4, 5]);
    three.settle(true);
    assert_eq!(
        (held(&three.home), three.owed()),
        (vec![1, 2, 3, 4, 5], vec![])
    );
}
