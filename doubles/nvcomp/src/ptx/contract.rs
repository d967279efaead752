//! The text of [`Memory`] as a test of any memory: of the double's device, of the words that the tests of kernels use, and
//! of memories that break it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Memory;

/// Stores and loads `words` words from `start` on; the addresses `outside` are not allocated.
///
/// # Panics
/// If the memory breaks a promise.
pub fn keeps_its_contract(memory: &mut dyn Memory, start: u64, words: u64, outside: &[u64]) {
    let place = |word: u64| start + 4 * word;
    let value = |word: u64, round: u32| word as u32 * 0x0101_0101 + round;
    for word in 0..words {
        assert_eq!(memory.store(place(word), value(word, 0)), Some(()));
    }
    for word in (0..words).rev() {
        assert_eq!(memory.store(place(word), value(word, 1)), Some(()));
        for other in 0..words {
            let expected = value(other, u32::from(other >= word));
            assert_eq!(memory.load(place(other)), Some(expected), "word {other}");
        }
    }
    for at in outside {
        assert_eq!(memory.load(*at), None, "{at}");
        assert_eq!(memory.store(*at, 7), None, "{at}");
    }
    for word in 0..words {
        assert_eq!(memory.load(place(word)), Some(value(word, 1)));
    }
}

/// Sixteen words from 64 on, but for one thing.
struct Lying {
    words: [u32; 16],
    lie: Lie,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    LosesTheLastWord,
    StoresTwice,
    LoadsWhatIsNotAllocated,
    StoresWhatIsNotAllocated,
}

impl Lying {
    fn word(at: u64) -> Option<usize> {
        let word = usize::try_from(at.checked_sub(64)? / 4).ok()?;
        (word < 16).then_some(word)
    }
}

impl Memory for Lying {
    fn load(&self, at: u64) -> Option<u32> {
        match Lying::word(at) {
            None if self.lie == Lie::LoadsWhatIsNotAllocated => Some(0),
            word => Some(self.words[word?]),
        }
    }

    fn store(&mut self, at: u64, value: u32) -> Option<()> {
        let word = match Lying::word(at) {
            None if self.lie == Lie::StoresWhatIsNotAllocated => return Some(()),
            word => word?,
        };
        match self.lie {
            Lie::LosesTheLastWord if word == 15 => {}
            Lie::StoresTwice => self.words[word..(word + 2).min(16)].fill(value),
            _ => self.words[word] = value,
        }
        Some(())
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_memory_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::LosesTheLastWord,
        Lie::StoresTwice,
        Lie::LoadsWhatIsNotAllocated,
        Lie::StoresWhatIsNotAllocated,
    ] {
        let mut memory = Lying {
            words: [0; 16],
            lie,
        };
        let checked = catch_unwind(AssertUnwindSafe(|| {
            keeps_its_contract(&mut memory, 64, 16, &[0, 60, 128, 1 << 40]);
        }));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}
