//! The order in which files that are pushed at the same time get their names.
//!
//! A server that was set back to an older copy of its files pushes segments that differ from the archive's, and goes on
//! with segments that the archive does not have. So a file gets its name after all before it: the first that is refused
//! ends the order. In a bucket each name is a request, so one after the other takes the time of as many requests. There
//! the order is *opened* behind a segment that this look-ahead was the first to store, if the archive lists nothing
//! after it: then every later segment of the same unbroken run is new, and the store itself lets only the first writer
//! create a name.
//!
//! Invariants
//! - Before the order is opened, a file gets its name only when all before it are archived.
//! - It is open for files of one run only: consecutive segments of one timeline, in one directory.
//! - Once a file was not archived, no other file gets a name, except those that are asking for it at that moment.
//!
//! Leaves to others: what is pushed (`ahead.rs`), and what is checked before a name is given (`archive.rs`).

use std::ops::Range;

use longshore_pg::SegmentSize;
use longshore_pg::wal::WalName;
use parking_lot::{Condvar, Mutex};

use super::place::directory_of;

/// Whether a file that was written may get its name now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// All files before it are archived.
    InOrder,
    /// The files before it, back to one that is archived, are this process's own and are on their way.
    AmongOwn,
    /// A file before it was not archived.
    Never,
}

pub(super) struct Order {
    state: Mutex<State>,
    moved: Condvar,
    /// For each file, the number behind the last file of its run.
    run_ends: Vec<usize>,
}

struct State {
    archived: Vec<bool>,
    /// Files that may get their names in any order.
    open: Range<usize>,
    /// The archive was looked at for the runs of the files before this one.
    looked: usize,
    /// A file was not archived: none after it will be.
    is_over: bool,
}

/// One file's place in the order. Dropping it before the file is archived ends the order: no later file may follow.
pub(super) struct PlaceIn<'a> {
    order: &'a Order,
    number: usize,
}

impl Order {
    /// An order of these files. `size`: that of the archive's segments; without it, no file is in a run with another.
    pub fn of(names: &[WalName], size: Option<SegmentSize>) -> Order {
        let mut run_ends: Vec<usize> = (1..=names.len()).collect();
        for number in (1..names.len()).rev() {
            if size.is_some_and(|size| continues(names[number - 1], names[number], size)) {
                run_ends[number - 1] = run_ends[number];
            }
        }
        Order {
            state: Mutex::new(State {
                archived: vec![false; names.len()],
                open: 0..0,
                looked: 0,
                is_over: false,
            }),
            moved: Condvar::new(),
            run_ends,
        }
    }

    pub fn place(&self, number: usize) -> PlaceIn<'_> {
        PlaceIn {
            order: self,
            number,
        }
    }

    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }
}

/// Whether the second is the segment after the first, in the same directory.
fn continues(first: WalName, second: WalName, size: SegmentSize) -> bool {
    match (first, second) {
        (WalName::Segment(before), WalName::Segment(after)) => {
            before.next(size) == after && directory_of(first) == directory_of(second)
        }
        _ => false,
    }
}

impl PlaceIn<'_> {
    /// Waits until the file may get its name, or certainly never may.
    ///
    /// No worker waits for ever: work begins in order, so another worker is working on the first file that is not
    /// archived yet.
    pub fn wait(&self) -> Naming {
        let mut state = self.order.state.lock();
        loop {
            if state.is_over {
                return Naming::Never;
            }
            if state.archived[..self.number].iter().all(|done| *done) {
                return Naming::InOrder;
            }
            if state.open.contains(&self.number) {
                return Naming::AmongOwn;
            }
            self.order.moved.wait(&mut state);
        }
    }

    pub fn is_archived(&self) {
        self.order.state.lock().archived[self.number] = true;
        self.order.moved.notify_all();
    }

    /// Opens the order for the rest of the run of this file, which this look-ahead has just stored in its turn. `is_last`
    /// looks whether the archive has nothing after it; it is asked once for each run.
    pub fn open_behind<E>(&self, is_last: impl FnOnce() -> Result<bool, E>) -> Result<(), E> {
        let end = self.order.run_ends[self.number];
        {
            let mut state = self.order.state.lock();
            if self.number + 1 >= end || self.number < state.looked {
                return Ok(());
            }
            state.looked = end;
        }
        if is_last()? {
            self.order.state.lock().open = self.number + 1..end;
            self.order.moved.notify_all();
        }
        Ok(())
    }
}

impl Drop for PlaceIn<'_> {
    fn drop(&mut self) {
        let mut state = self.order.state.lock();
        if !state.archived[self.number] {
            state.is_over = true;
            self.order.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const THREE: [&str; 3] = [
        "000000010000000000000001",
        "000000010000000000000002",
        "000000010000000000000003",
    ];

    fn names(texts: &[&str]) -> Vec<WalName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn size() -> Option<SegmentSize> {
        SegmentSize::new(16 << 20)
    }

    /// Goal: a file gets its name after all before it, and none does behind one that was not archived.
    #[test]
    fn files_get_their_names_in_order() {
        let names = names(&THREE);
        let order = Order::of(&names, size());
        let (first, second, third) = (order.place(0), order.place(1), order.place(2));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| second.wait());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            first.is_archived();
            assert_eq!(waiting.join().unwrap(), Naming::InOrder);
        });
        drop(second);
        assert_eq!(third.wait(), Naming::Never);
    }

    /// Goal: an opened order is open for the run of one file and no further, and only if the archive has nothing after
    /// that file; the archive is looked at once for each run.
    #[test]
    fn an_opened_order_is_open_for_one_run() {
        let names = names(&[
            "000000010000000000000001",
            "000000010000000000000002",
            "000000010000000000000003",
            // A gap.
            "000000010000000000000005",
            "000000010000000000000006",
            // Another directory.
            "000000010000000100000000",
            "00000002.history",
        ]);
        let order = Order::of(&names, size());
        assert_eq!(order.run_ends, [3, 3, 3, 5, 5, 6, 7]);
        let places: Vec<PlaceIn> = (0..names.len()).map(|n| order.place(n)).collect();
        let opened = |number: usize, is_last| {
            let mut asked = false;
            let look = || {
                asked = true;
                Ok::<bool, ()>(is_last)
            };
            places[number].open_behind(look).unwrap();
            asked
        };
        places[0].is_archived();
        assert!(opened(0, true));
        assert_eq!(places[2].wait(), Naming::AmongOwn);
        assert_eq!(places[1].wait(), Naming::InOrder);
        assert!(!opened(1, true), "this run was looked at");
        places[1].is_archived();
        places[2].is_archived();
        places[3].is_archived();
        assert!(opened(3, false));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| places[5].wait());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            places[4].is_archived();
            assert_eq!(waiting.join().unwrap(), Naming::InOrder);
        });
        assert!(!opened(5, true), "nothing follows in its run");
        // Without a size of segments nothing is known to be a run.
        assert_eq!(Order::of(&names, None).run_ends, [1, 2, 3, 4, 5, 6, 7]);
    }

    /// Goal: a file that was not archived ends an opened order, too.
    #[test]
    fn a_refusal_ends_an_opened_order() {
        let names = names(&THREE);
        let order = Order::of(&names, size());
        let (first, second, third) = (order.place(0), order.place(1), order.place(2));
        first.is_archived();
        first.open_behind(|| Ok::<bool, ()>(true)).unwrap();
        assert_eq!(third.wait(), Naming::AmongOwn);
        drop(second);
        assert_eq!(third.wait(), Naming::Never);
    }
}
