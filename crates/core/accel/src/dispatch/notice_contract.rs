//! The text of [`DeskNotice`] as a test of any kept part: the dispatcher's, and the ones of the tests of all
//! interleavings, which include this file. When the desk tells it is shown there (`tests/desk_interleavings.rs`).

use super::desk::DeskNotice;

/// Checks whatever the trait promises. `holds` tells whether the part still holds what the device's memory counts for.
///
/// # Panics
/// If the kept part breaks a promise.
pub(crate) fn keeps_its_contract<K: DeskNotice>(mut kept: K, holds: impl Fn(&K) -> bool) -> K {
    assert!(holds(&kept), "nobody has told it yet");
    kept.returned();
    assert!(!holds(&kept), "it was told, and holds on");
    kept
}

#[test]
fn a_kept_part_that_lets_go_too_early_or_never_breaks_the_contract() {
    struct Lying {
        holds: bool,
        lets_go: bool,
    }
    impl DeskNotice for Lying {
        fn returned(&mut self) {
            self.holds &= !self.lets_go;
        }
    }
    let kept = |holds, lets_go| {
        let check = || keeps_its_contract(Lying { holds, lets_go }, |kept| kept.holds);
        std::panic::catch_unwind(check).is_ok()
    };
    assert!(kept(true, true));
    assert!(!kept(true, false), "never");
    assert!(!kept(false, true), "too early");
}
