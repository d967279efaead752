//! Goal: the text of [`Handed`] holds for each kind of work that a feed hands out, and doubles that break it are
//! noticed.
//! Method: random scripted sources; all work is given back once and done at the second try, and the bytes are compared
//! with a feed that hands out everything at once.
//!
//! Invariants
//! - Work that was given back comes again before any other, unchanged.
//! - Giving back loses and repeats nothing: every byte is handed out once.
//!
//! Leaves to others: what the work is (`tests.rs`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// The volume of a task, and its ranges of files. Every job has an empty range of its own.
type Told = (usize, BTreeSet<(PathBuf, u64, u64)>);

/// How many bytes of each file were handed out, and which jobs.
type Bytes = BTreeMap<PathBuf, u64>;

fn told_of_scan(scan: &Scan) -> Told {
    let path = scan.based.entry.path.clone();
    let range = (path, scan.offset, scan.len_bytes as u64);
    (scan.volume, BTreeSet::from([range]))
}

fn told_of_work(work: &Work) -> Told {
    match work {
        Work::Scan(scan) => told_of_scan(scan),
        Work::Job(job) => {
            let piece = |p: &Piece| (p.file.path.clone(), p.offset, p.len_bytes as u64);
            let itself = (format!("job {}", job.sequence).into(), 0, 0);
            let ranges = job.pieces.iter().map(piece).chain([itself]);
            (job.volume, ranges.collect())
        }
    }
}

fn end(feed: &mut Feed, bytes: &mut Bytes, (volume, ranges): Told) {
    for (path, _, len) in ranges {
        *bytes.entry(path).or_default() += len;
    }
    feed.done(volume);
}

/// Takes work of one kind, gives all of it back, and does it at the second try; where there is none, a task of any kind is
/// done.
///
/// # Panics
/// If this kind breaks a promise.
fn keeps_its_contract<T: Handed>(feed: &mut Feed, told: &dyn Fn(&T) -> Told) -> Bytes {
    let mut bytes = Bytes::new();
    loop {
        let mut hand = Vec::new();
        while hand.len() < 3
            && let Some(one) = T::next_of(feed).unwrap()
        {
            hand.push(one);
        }
        if hand.is_empty() {
            match feed.next().unwrap() {
                Some(work) => end(feed, &mut bytes, told_of_work(&work)),
                None => return bytes,
            }
            continue;
        }
        let given: BTreeSet<Told> = hand.iter().map(told).collect();
        let count = hand.len();
        assert_eq!(given.len(), count, "a task was handed out twice");
        for one in hand {
            assert_eq!(one.is_cached(), one.is_cached());
            one.put_back_to(feed);
        }
        let again: Vec<T> = (0..count)
            .map_while(|_| T::next_of(feed).unwrap())
            .collect();
        let found: BTreeSet<Told> = again.iter().map(told).collect();
        assert_eq!(found, given, "what was given back comes first");
        for one in &again {
            end(feed, &mut bytes, told(one));
        }
    }
}

fn of_a_feed(volumes: &[Vec<Given>], all: &dyn Fn(&mut Feed) -> Bytes) -> Bytes {
    let (source, _, held) = scripted(volumes.to_vec());
    let held: Vec<(&Path, Vec<u64>)> = held.iter().map(|(p, s)| (&**p, s.clone())).collect();
    let base = PageSums::of(&held);
    all(&mut Feed::new(&source, BUFFER, true, Some(&base)))
}

/// All work of a feed, nothing of which is given back.
fn at_once(feed: &mut Feed) -> Bytes {
    let mut bytes = Bytes::new();
    while let Some(work) = feed.next().unwrap() {
        end(feed, &mut bytes, told_of_work(&work));
    }
    bytes
}

proptest! {
    #[test]
    fn both_kinds_of_work_keep_the_contract((volumes, _) in sources()) {
        let wanted = of_a_feed(&volumes, &at_once);
        let any = of_a_feed(&volumes, &|feed| keeps_its_contract(feed, &told_of_work));
        prop_assert_eq!(&any, &wanted);
        let scans = of_a_feed(&volumes, &|feed| keeps_its_contract(feed, &told_of_scan));
        prop_assert_eq!(&scans, &wanted);
    }
}

/// Work of any kind, but for one thing.
struct Lying<const LIE: u8> {
    work: Work,
    is_cached: Cell<bool>,
}

const NOTHING: u8 = 0;
const FORGETS_WHAT_IS_GIVEN_BACK: u8 = 1;
const GIVES_BACK_LESS: u8 = 2;
const SKIPS_A_TASK: u8 = 3;
const CHANGES_ITS_MIND: u8 = 4;

impl<const LIE: u8> Handed for Lying<LIE> {
    fn next_of(feed: &mut Feed) -> Result<Option<Self>, Error> {
        if LIE == SKIPS_A_TASK {
            drop(feed.next()?);
        }
        let lying = |work| Lying {
            work,
            is_cached: Cell::new(true),
        };
        Ok(feed.next()?.map(lying))
    }

    fn put_back_to(mut self, feed: &mut Feed) {
        if LIE == GIVES_BACK_LESS
            && let Work::Scan(scan) = &mut self.work
        {
            scan.len_bytes /= 2;
        }
        if LIE != FORGETS_WHAT_IS_GIVEN_BACK {
            feed.put_back(self.work);
        }
    }

    fn is_cached(&self) -> bool {
        self.is_cached.replace(LIE != CHANGES_ITS_MIND)
    }
}

/// Whether the suite sees nothing wrong.
fn keeps<const LIE: u8>() -> bool {
    let based = Given {
        has_pages: true,
        held: Some(9),
        ..plain(40 * PAGE)
    };
    let volumes = [vec![plain(5), based, plain(3 * BUFFER as u64), plain(7)]];
    let wanted = of_a_feed(&volumes, &at_once);
    let told = |lying: &Lying<LIE>| told_of_work(&lying.work);
    let kept = catch_unwind(AssertUnwindSafe(|| {
        of_a_feed(&volumes, &|feed| keeps_its_contract(feed, &told))
    }));
    kept.is_ok_and(|found| found == wanted)
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_about_work_breaks_the_contract() {
    assert!(keeps::<NOTHING>());
    assert!(!keeps::<FORGETS_WHAT_IS_GIVEN_BACK>());
    assert!(!keeps::<GIVES_BACK_LESS>());
    assert!(!keeps::<SKIPS_A_TASK>());
    assert!(!keeps::<CHANGES_ITS_MIND>());
}
