//! Goal: of all that records say, the newest counts, damage is never forgotten for something good, and no bytes are a panic.
//! Method: records are made, added to, merged, written and read back, cut and changed.
//! Not covered: places, and what a result counts for (`tests/status.rs`).

use super::*;
use proptest::prelude::*;

const DAY_US: i64 = 86_400_000_000;

fn by(at_us: i64) -> Witnessed {
    Witnessed {
        at_us,
        host: "h".into(),
    }
}

fn result(set: u128, at_us: i64, good: bool) -> SetResult {
    let identity = SetIdentity {
        label: format!("20270131T020000Z-full-{set:08x}").parse().unwrap(),
        set: Uuid::from_u128(set),
        imprint: "aa".into(),
    };
    SetResult::new(&identity, &by(at_us), (!good).then_some("a block"))
}

fn failed(at_us: i64) -> Option<FailedRun> {
    Some(FailedRun::new(by(at_us), None, (3, 3201, "no\u{1b}[2J")))
}

fn full() -> Record {
    Record {
        version: VERSION,
        sets: vec![result(1, 3 * DAY_US, true), result(2, 2 * DAY_US, false)],
        wal: vec![range(1, 9, DAY_US)],
        unsound: vec![unsound(10, 12, DAY_US)],
        failed: failed(5),
        mended: Some(by(6)),
    }
}

fn segment(n: u32) -> SegmentName {
    format!("0000000100000000{n:08X}").parse().unwrap()
}

fn range(first: u32, last: u32, at_us: i64) -> WalResult {
    WalResult {
        first: segment(first),
        last: segment(last),
        imprints: (first..=last).collect(),
        by: by(at_us),
    }
}

fn unsound(first: u32, last: u32, at_us: i64) -> UnsoundWal {
    UnsoundWal {
        first: segment(first),
        last: segment(last),
        by: by(at_us),
    }
}

fn good(began_us: i64, backups: Option<&[u128]>, wal: bool) -> Option<GoodRun> {
    let label = |set: &u128| result(*set, 0, true).label;
    Some(GoodRun {
        by: by(began_us + 1),
        began_us,
        backups: backups.map(|sets| sets.iter().map(label).collect()),
        wal,
        to: None,
    })
}

fn found(task: Task, bytes: &[u8], changed_us: i64) -> FoundRecord {
    FoundRecord {
        name: task.file(),
        at: "/t/db/record".into(),
        changed_ns: changed_us * 1000,
        bytes: Some(bytes.to_vec()),
    }
}

#[test]
fn a_record_is_read_back_as_it_was_and_names_its_times_with_their_zone() {
    let bytes = full().encode();
    assert_eq!(Record::parse(Some(&bytes)), Ok(full()));
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("\"at\":\"1970-01-04T00:00:00Z\""), "{text}");
    // A later version of this form may say more.
    let more = text.replacen('{', "{\"more\":[1],", 1);
    assert_eq!(Record::parse(Some(more.as_bytes())), Ok(full()));
}

#[test]
fn the_newest_results_stay_where_there_are_too_many() {
    let record = Record {
        sets: (0..9000).map(|n| result(n, n as i64, true)).collect(),
        ..full()
    };
    let bytes = record.encode();
    assert!(bytes.len() <= LEN_MAX, "{}", bytes.len());
    let read = Record::parse(Some(&bytes)).unwrap();
    assert_eq!(read.sets.len(), RESULTS_MAX);
    let much = WalResult {
        imprints: vec![7; SEGMENTS_MAX],
        ..range(1, 2, 1)
    };
    let record = Record {
        wal: vec![much.clone(), range(20, 30, 0)],
        ..record
    };
    let bytes = record.encode();
    assert!(bytes.len() <= LEN_MAX, "{}", bytes.len());
    assert_eq!(Record::parse(Some(&bytes)).unwrap().wal, [much]);
    assert_eq!(read.sets[0].by.at_us, 8999);
}

/// Goal: a good result that is left out costs a verification; a bad one that is left out is an alarm that ends.
#[test]
fn bad_results_stay_where_there_are_too_many_or_they_are_too_long() {
    let bad = |record: &Record| {
        let read = Record::parse(Some(&record.encode())).unwrap();
        read.sets.iter().filter(|result| !result.good).count()
    };
    let old = (0..9).map(|n| result(n, 0, false));
    let many = (10..9000).map(|n| result(n, 2, true));
    let record = Record {
        sets: old.chain(many).collect(),
        ..full()
    };
    assert_eq!(bad(&record), 9);
    // Each character of three bytes.
    let long = |mut result: SetResult| {
        result.text = "\u{2014}".repeat(TEXT_MAX);
        result
    };
    let record = Record {
        sets: record.sets.into_iter().map(long).collect(),
        ..full()
    };
    assert!(record.encode().len() <= LEN_MAX);
    assert_eq!(bad(&record), 9);
}

#[test]
fn a_damaged_result_counts_until_the_same_set_is_found_good_again() {
    let mut record = full();
    let news = |good, at_us| News {
        sets: vec![result(2, at_us, good)],
        ..News::default()
    };
    let good = |record: &Record| {
        let found = record.sets.iter().find(|r| r.set == Uuid::from_u128(2));
        found.unwrap().good
    };
    record.add(&news(true, 9));
    assert!(
        good(&record),
        "by order of writing, whatever the clock says"
    );
    record.add(&news(false, 1));
    assert!(!good(&record));
    // Another place of the target is older, or as old.
    for (at_us, is_good) in [(0, false), (1, false), (2, true)] {
        let mut both = record.clone();
        let sets = vec![result(2, at_us, true)];
        both.merge(
            Task::Verify,
            Record {
                sets,
                ..Record::default()
            },
        );
        assert_eq!(good(&both), is_good, "{at_us}");
    }
}

#[test]
fn wal_that_is_found_damaged_has_no_earlier_result() {
    let mut record = Record {
        wal: vec![range(1, 4, 1), range(5, 9, 1), range(10, 12, 1)],
        ..Record::default()
    };
    record.add(&News {
        wal: vec![range(10, 14, 2)],
        unsound: vec![unsound(8, 9, 2)],
        ..News::default()
    });
    assert_eq!(record.wal, [range(1, 4, 1), range(10, 14, 2)]);
}

/// Goal: damaged WAL is told until all of it was read again or is gone, and no longer.
#[test]
fn unsound_wal_is_told_until_all_that_is_left_of_it_was_read_again() {
    let size = SegmentSize::new(16 << 20).unwrap();
    let told = |wal: &[WalResult], first: u32, last: u32| {
        let mut record = Record {
            unsound: vec![unsound(8, 9, 2), unsound(20, 21, 2)],
            ..Record::default()
        };
        record.merge(
            Task::Verify,
            Record {
                wal: wal.to_vec(),
                ..Record::default()
            },
        );
        let status = Status {
            records: [(Task::Verify, record)].into(),
            unreadable: Vec::new(),
        };
        let found = status.unsound_wal((segment(first), segment(last)), size);
        found.into_iter().map(|lost| lost.first).collect::<Vec<_>>()
    };
    let (one, other) = (segment(8), segment(20));
    assert_eq!(told(&[], 1, 30), [one, other]);
    assert_eq!(told(&[range(1, 9, 1)], 1, 19), [one]);
    assert_eq!(told(&[range(1, 8, 3)], 1, 30), [one, other]);
    assert_eq!(told(&[range(1, 8, 3), range(9, 9, 3)], 1, 30), [other]);
    // An expire has removed the first.
    assert_eq!(told(&[], 10, 30), [other]);
    assert_eq!(told(&[range(9, 20, 3)], 9, 20), []);
}

/// Goal: damage counts by order of writing; the clock of the host that found it may be behind.
#[test]
fn wal_that_a_host_with_a_slow_clock_finds_damaged_is_not_known() {
    let older = Record {
        wal: vec![range(1, 9, 50), range(20, 29, 50)],
        ..Record::default()
    };
    let mut record = older.clone();
    record.add(&News {
        unsound: vec![unsound(8, 9, 2)],
        ..News::default()
    });
    assert_eq!(record.wal, [range(20, 29, 50)]);
    // Nor does an older record at another directory make it good.
    record.merge(Task::Verify, older);
    assert_eq!(record.wal, [range(20, 29, 50)]);
}

/// Goal: a record at another directory of the target, that was written before the damage was found, does not make the
/// WAL good again; a run that reads it later does.
#[test]
fn no_older_record_makes_unsound_wal_good_again() {
    let older = || Record {
        wal: vec![range(1, 9, 1), range(20, 29, 1)],
        ..Record::default()
    };
    let mut record = older();
    record.add(&News {
        unsound: vec![unsound(8, 9, 2)],
        ..News::default()
    });
    for _ in 0..2 {
        record = Record::parse(Some(&record.encode())).unwrap();
        record.merge(Task::Verify, older());
        assert!(!record.wal.contains(&range(1, 9, 1)), "{record:?}");
        assert!(record.wal.contains(&range(20, 29, 1)));
    }
    record.add(&News {
        wal: vec![range(1, 9, 3)],
        ..News::default()
    });
    record.merge(Task::Verify, older());
    let of_it = record.wal.iter().filter(|own| own.first == segment(1));
    assert_eq!(of_it.collect::<Vec<_>>(), [&range(1, 9, 3)]);
    // In the other order it is the same.
    let mut other = older();
    other.merge(Task::Verify, record);
    assert!(!other.wal.contains(&range(1, 9, 1)), "{other:?}");
}

/// Goal: damage of stripes is nothing to other stripes, and damage of what the set holds is the same in all of them, until a drill
/// of any of them finds it good.
#[test]
fn a_drills_finding_in_the_content_counts_for_all_copies_of_the_set() {
    let of = |drills: &[SetResult]| {
        let mut status = Status::default();
        status.heed(drills);
        let found = status.condemned(Uuid::from_u128(1));
        found.map(|result| result.stripes.clone())
    };
    let elsewhere = |content, at_us, good| SetResult {
        stripes: "cc".into(),
        content,
        ..result(1, at_us, good)
    };
    assert_eq!(of(&[elsewhere(true, 5, false)]).as_deref(), Some("cc"));
    assert_eq!(of(&[elsewhere(false, 5, false)]), None, "stripes alone");
    let both = |at_us| of(&[elsewhere(true, 5, false), result(1, at_us, true)]);
    assert_eq!(both(6), None, "found good since");
    assert!(both(5).is_some() && both(4).is_some());
    // The member is in the record that others read, and only where it says something.
    let written = |result: SetResult| {
        let record = Record {
            sets: vec![result],
            ..Record::default()
        };
        String::from_utf8(record.encode()).unwrap()
    };
    assert!(written(elsewhere(true, 5, false)).contains("\"content\":true"));
    assert!(!written(result(1, 5, false)).contains("content"));
}

/// Goal: neither a finding in the content nor one about a place's own stripes is forgotten for the other, and only a good drill of
/// the set lifts the first, a good one of these stripes the second.
#[test]
fn findings_about_stripes_and_about_content_do_not_replace_each_other() {
    let of = |stripes: &str, at_us, good, content| SetResult {
        stripes: stripes.into(),
        content,
        ..result(1, at_us, good)
    };
    let added = |results: &[SetResult]| {
        let mut record = Record::default();
        for result in results {
            let sets = vec![result.clone()];
            record.add(&News {
                sets,
                ..News::default()
            });
            record = Record::parse(Some(&record.encode())).unwrap();
        }
        record
    };
    let counts = |results: &[SetResult]| {
        let record = added(results);
        let own = |own: &SetResult| own.stripes == "aa" && !own.good && !own.content;
        let is_own_bad = record.sets.iter().any(own);
        let records = [(Task::Drill, record)].into();
        let status = Status {
            records,
            unreadable: Vec::new(),
        };
        (is_own_bad, status.condemned(Uuid::from_u128(1)).is_some())
    };
    let (content, told) = (of("aa", 1, false, true), of("cc", 1, false, true));
    let stripes = of("aa", 2, false, false);
    assert_eq!(counts(&[content.clone(), stripes.clone()]), (true, true));
    assert_eq!(counts(&[stripes.clone(), told.clone()]), (true, true));
    // The stripe was mended, or a drill of another copy found the content good.
    let (mended, elsewhere) = (of("bb", 3, false, true), of("cc", 4, true, false));
    assert_eq!(
        counts(&[content.clone(), stripes.clone(), mended]),
        (true, true)
    );
    let lifted = [content.clone(), stripes.clone(), elsewhere];
    assert_eq!(counts(&lifted), (true, false));
    assert_eq!(
        counts(&[content, stripes, of("aa", 0, true, false)]),
        (false, false)
    );
    // Each kind is there once, and what is written is known to be there.
    let again = of("dd", 9, false, true);
    let both = [told.clone(), of("aa", 2, false, false), again.clone()];
    assert_eq!(added(&both).sets.len(), 2);
    let of_news = |bad: &SetResult| News {
        sets: vec![bad.clone()],
        ..News::default()
    };
    assert!(added(&both).has_damage(&of_news(&again)));
    assert!(!added(&[of("dd", 9, false, false)]).has_damage(&of_news(&of("dd", 9, false, true))));
}

/// Goal: a newer result for stripes that are there no longer hides none for those that are.
#[test]
fn of_two_stripes_of_one_set_each_has_its_result() {
    let mut record = Record {
        sets: vec![result(1, 5, false)],
        ..Record::default()
    };
    let gone = SetResult {
        stripes: "cc".into(),
        ..result(1, 9, true)
    };
    record.merge(
        Task::Verify,
        Record {
            sets: vec![gone.clone()],
            ..Record::default()
        },
    );
    let read = Record::parse(Some(&record.encode())).unwrap();
    assert_eq!(read.sets, [gone, result(1, 5, false)]);
}

#[test]
fn the_last_failed_run_stays_until_a_run_mends_it() {
    let mut record = Record::default();
    let ran = |good| News {
        good,
        ..News::default()
    };
    record.add(&ran(good(1, None, true)));
    assert_eq!(record, Record::default(), "there is nothing to mend");
    record.add(&News {
        failed: failed(2),
        ..News::default()
    });
    record.add(&ran(good(1, None, true)));
    assert_eq!(record.mended, None, "that one had begun before");
    record.add(&ran(good(3, Some(&[]), false)));
    record.add(&ran(good(5, None, true)));
    assert_eq!(record.mended, Some(by(4)));
    // It was mended at one of the target's places.
    let mut other = Record {
        failed: failed(2),
        ..Record::default()
    };
    other.merge(Task::Verify, record.clone());
    assert_eq!(other.mended, Some(by(4)));
    record.add(&News {
        failed: failed(5),
        ..ran(good(5, None, true))
    });
    assert_eq!((record.failed, record.mended), (failed(5), None));
}

/// Goal: damage that nobody mended is not forgotten because a later run failed at something else.
#[test]
fn a_later_failure_keeps_an_earlier_one_open() {
    let label = |set| result(set, 0, true).label;
    let failed = |set, at_us| FailedRun::new(by(at_us), Some(label(set).as_str()), (1, 1, ""));
    let wal = FailedRun::new(by(1), None, (1, 1, "a segment")).of_wal();
    let target = FailedRun::new(by(2), None, (4, 1, "away"));
    let after = |runs: &[FailedRun]| {
        let mut record = Record::default();
        for failed in runs {
            let before = record.clone();
            record.add(&News {
                failed: Some(failed.clone()),
                ..News::default()
            });
            record.keep_open(&before);
        }
        let run = record.failed.unwrap();
        (run.label, run.more, run.wal)
    };
    let named = |set| Some(label(set).to_string());
    assert_eq!(after(&[wal.clone(), failed(1, 2)]), (named(1), false, true));
    assert_eq!(
        after(&[failed(1, 1), failed(1, 2)]),
        (named(1), false, false)
    );
    assert_eq!(
        after(&[failed(1, 1), failed(2, 2)]),
        (named(2), true, false)
    );
    // That one may have failed at any backup: the label of another is not all of it.
    for runs in [
        [failed(1, 1), target.clone()],
        [target.clone(), failed(1, 2)],
    ] {
        assert_eq!(after(&runs), (named(1), true, false));
    }
    assert_eq!(
        after(&[target.clone(), target.clone()]),
        (None, false, false)
    );
    assert_eq!(after(&[target, wal]), (None, true, true));
    let mut record = Record {
        failed: Some(failed(1, 1)),
        mended: Some(by(2)),
        ..Record::default()
    };
    let before = record.clone();
    record.add(&News {
        failed: Some(failed(2, 3)),
        ..News::default()
    });
    record.keep_open(&before);
    assert!(!record.failed.unwrap().more, "the first was mended");
}

/// Goal: a result from before a failure does not answer what the failed run could not read.
#[test]
fn a_run_without_an_answer_doubts_earlier_results_for_what_it_failed_at() {
    let label = |set| result(set, 0, true).label;
    let ended = FailedRun::new(by(5), Some(label(1).as_str()), (4, 3201, "away"));
    let doubted = |run: &FailedRun, set, at_us| run.doubts(&label(set), &by(at_us));
    assert!(doubted(&ended, 1, 4) && doubted(&ended, 1, 5));
    assert!(!doubted(&ended, 1, 6) && !doubted(&ended, 2, 4));
    assert!(!ended.doubts_wal(&by(4)));
    let of_wal = FailedRun::new(by(5), None, (4, 3201, "away")).of_wal();
    assert!(of_wal.doubts_wal(&by(5)) && !of_wal.doubts_wal(&by(6)));
    assert!(!doubted(&of_wal, 1, 4));
    // Damage was read, and has a result of its own.
    let mut damage = FailedRun::new(by(5), Some(label(2).as_str()), (1, 3189, "a block"));
    assert!(!doubted(&damage, 2, 4));
    damage.also(&ended);
    assert!(doubted(&damage, 1, 4) && doubted(&damage, 3, 4));
    // One that names nothing has begun to read nothing.
    let mut target = FailedRun::new(by(6), None, (4, 3201, "away"));
    target.also(&FailedRun::new(by(5), Some("x"), (1, 3189, "a block")));
    assert!(target.more && !doubted(&target, 1, 4));
}

/// Goal: a failure that one of the target's places knows of is not hidden by another place's.
#[test]
fn a_failure_that_is_open_at_one_place_is_open() {
    let label = |set| result(set, 0, true).label;
    let failed = |set, at_us| FailedRun::new(by(at_us), Some(label(set).as_str()), (1, 1, ""));
    let record = |failed: &FailedRun, mended: Option<i64>| Record {
        failed: Some(failed.clone()),
        mended: mended.map(by),
        ..Record::default()
    };
    let both = |task, one: &Record, other: &Record| {
        let mut merged = one.clone();
        merged.merge(task, other.clone());
        let mut turned = other.clone();
        turned.merge(task, one.clone());
        assert_eq!(merged, turned);
        (merged.failed.unwrap(), merged.mended)
    };
    let open = record(&failed(1, 1), None);
    // A newer one of another backup was mended: the older one is open.
    for task in [Task::Verify, Task::Drill] {
        let found = both(task, &open, &record(&failed(2, 2), Some(3)));
        assert_eq!(found, (failed(1, 1), None));
        let found = both(task, &open, &record(&failed(1, 2), Some(3)));
        assert_eq!(found, (failed(1, 2), Some(by(3))));
    }
    let all = FailedRun {
        more: true,
        ..failed(2, 2)
    };
    let found = both(Task::Verify, &open, &record(&all, Some(3)));
    assert_eq!(found.1, Some(by(3)), "that run has read all");
    let of_wal = record(&failed(1, 1).of_wal(), None);
    assert_eq!(both(Task::Verify, &of_wal, &record(&all, Some(3))).1, None);
    let found = both(Task::Verify, &open, &record(&failed(2, 2), None));
    assert_eq!(found, (all, None));
    let found = both(Task::Drill, &open, &record(&failed(2, 2), None));
    assert_eq!(found, (failed(2, 2), None), "no drill could mend both");
}

/// Goal: what two places both know takes the room of one.
#[test]
fn what_two_places_know_is_kept_once() {
    let record = |at_us| Record {
        wal: vec![range(1, 4, at_us), range(5, 9, 5)],
        unsound: vec![unsound(10, 12, at_us)],
        ..Record::default()
    };
    for (one, other) in [(1, 2), (2, 1)] {
        let mut both = record(one);
        both.merge(Task::Verify, record(other));
        assert_eq!(both, record(2));
    }
}

/// Goal: a run says nothing about a backup, or about WAL, that it did not read.
#[test]
fn a_failed_run_is_mended_by_one_that_read_the_same() {
    let mends = |failed: &FailedRun, good| {
        let mut record = Record {
            failed: Some(failed.clone()),
            ..Record::default()
        };
        record.add(&News {
            good,
            ..News::default()
        });
        record.mended.is_some()
    };
    let label = result(1, 0, true).label;
    let of_backup = FailedRun::new(by(2), Some(label.as_str()), (1, 3189, "a block"));
    assert!(!mends(&of_backup, good(3, Some(&[2]), true)));
    assert!(mends(&of_backup, good(3, Some(&[2, 1]), false)));
    assert!(mends(&of_backup, good(3, None, false)));
    let of_wal = FailedRun::new(by(2), None, (1, 3189, "a segment")).of_wal();
    assert!(!mends(&of_wal, good(3, Some(&[1]), false)));
    assert!(!mends(&of_wal, good(3, None, false)));
    assert!(mends(&of_wal, good(3, None, true)));
    assert!(!mends(&of_wal, good(1, None, true)));
    // Of several only the first is named.
    let mut several = of_backup.clone();
    several.also(&of_backup);
    assert!(mends(&several, good(3, Some(&[1]), false)));
    let other = result(2, 0, true).label;
    several.also(&FailedRun::new(by(2), Some(other.as_str()), (1, 3189, "")));
    assert!(!mends(&several, good(3, Some(&[1, 2]), false)));
    assert!(mends(&several, good(3, None, false)));
    several.also(&of_wal);
    assert!(!mends(&several, good(3, None, false)));
    let of_copy = FailedRun {
        to: Some("far".to_owned()),
        ..FailedRun::new(by(2), None, (4, 3201, "away"))
    };
    for (to, is_mended) in [(None, true), (Some("far"), true), (Some("near"), false)] {
        let to = to.map(|to| BTreeSet::from([to.to_owned()]));
        let copied = good(3, None, true).map(|run| GoodRun { to, ..run });
        assert_eq!(mends(&of_copy, copied), is_mended);
    }
}

#[test]
fn what_is_no_record_is_named_and_counts_for_nothing() {
    let newer = b"{\"version\":2,\"sets\":7}";
    let deep = "[".repeat(200_000);
    let text = String::from_utf8(full().encode()).unwrap();
    let wrong = |from: &str, to: &str| text.replace(from, to);
    for (bytes, why) in [
        (&b""[..], "damaged"),
        (b"\0\0\0", "damaged"),
        (b"null", "damaged"),
        (b"{}", "damaged"),
        (b"{\"version\":-1}", "damaged"),
        (newer, "newer version"),
        (deep.as_bytes(), "damaged"),
        (&text.as_bytes()[..text.len() / 2], "damaged"),
        (wrong("-full-", "-half-").as_bytes(), "damaged"),
        (wrong("1970-01-04T", "19970-01-04T").as_bytes(), "damaged"),
        (wrong("1970-01-04T", "9970-01-04T").as_bytes(), "damaged"),
        (wrong("1970-01-04T", "x").as_bytes(), "damaged"),
        (wrong("\"good\":true", "\"good\":1").as_bytes(), "damaged"),
        (wrong("00000003", "+0000003").as_bytes(), "damaged"),
        (wrong("00000003", "0000003").as_bytes(), "damaged"),
    ] {
        let status = Status::of(vec![found(Task::Verify, bytes, DAY_US)]);
        assert!(status.records.is_empty());
        assert_eq!(status.unreadable.len(), 1, "{why}");
        let told = &status.unreadable[0];
        assert!(told.starts_with("/t/db/record: "), "{told}");
        assert!(told.contains(why), "{told}");
    }
    let mut long = found(Task::Drill, b"", 0);
    long.bytes = None;
    let status = Status::of(vec![long]);
    assert!(status.unreadable[0].contains("regular file"));
}

#[test]
fn a_fast_clock_makes_nothing_look_newer_than_the_place_says_or_than_now() {
    let record = Record {
        sets: vec![result(1, 900 * DAY_US, true)],
        ..full()
    };
    let bytes = record.encode();
    let read = |changed_us| {
        let status = Status::of(vec![found(Task::Verify, &bytes, changed_us)]);
        status.records[&Task::Verify].sets[0].by.clone()
    };
    assert_eq!(read(10 * DAY_US).at_us, 10 * DAY_US);
    let far = read(1000 * DAY_US);
    assert_eq!(far.at_us, 900 * DAY_US);
    assert!(!is_past(&far, 800 * DAY_US));
    assert!(is_past(&far, 900 * DAY_US - CLOCKS_DIFFER_US));
    assert!(is_past(&by(i64::MIN), i64::MAX) && !is_past(&by(i64::MAX), i64::MIN));
}

proptest! {
    /// Goal: a record is anybody's bytes. None of them is a panic, and what is read fits into a record again.
    #[test]
    fn no_bytes_are_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0_usize..700,
        cut in 0_usize..900,
    ) {
        let whole = full().encode();
        let mut changed = whole.clone();
        let at = at.min(changed.len());
        changed.splice(at..at, bytes.iter().copied());
        let mut flipped = whole.clone();
        for (i, byte) in bytes.iter().take(3).enumerate() {
            let place = (at + i * 31) % flipped.len();
            flipped[place] ^= byte;
        }
        let short = &whole[..cut.min(whole.len())];
        for bytes in [&bytes[..], &changed, &flipped, short] {
            if let Ok(read) = Record::parse(Some(bytes)) {
                let again = read.encode();
                prop_assert!(again.len() <= LEN_MAX);
                prop_assert_eq!(Record::parse(Some(&again)), Ok(read));
            }
            let status = Status::of(vec![found(Task::Verify, bytes, DAY_US)]);
            prop_assert_eq!(status.unreadable.len() + status.records.len(), 1);
            let told = status.unreadable.concat();
            prop_assert!(!told.contains(char::is_control));
        }
    }
}
