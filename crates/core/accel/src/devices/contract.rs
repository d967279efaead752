//! The text of [`Accelerator`] as a test of any accelerator: those that this program knows, in every state that their
//! doubles bring them into, and doubles that lie.
//!
//! Invariants
//! - Nothing is asked of the accelerator that a program would not ask of it while others use it.
//! - A broken promise panics; a refusal is no broken promise.
//!
//! Leaves to others: the work of an engine (`crate::contract`), and which state a fault leads to (each device's tests).

use super::door::{Accelerator, Refusal};
use super::messages::messages;
use crate::EngineState;

/// Checks whatever the trait promises in the accelerator's present state; returns why it is not in service.
///
/// # Panics
/// If the accelerator breaks a promise.
pub(crate) fn keeps_its_contract(accelerator: &dyn Accelerator) -> Option<Refusal> {
    let (found, health) = (accelerator.found(), accelerator.health());
    let names = [found.accelerator, found.description, found.library];
    for name in names {
        assert!(!name.is_empty() && name.trim() == name, "{names:?}");
    }
    let again = accelerator.found();
    let names_again = [again.accelerator, again.description, again.library];
    assert_eq!(names, names_again, "the names are constant");
    assert_eq!(found.refusal, again.refusal, "asking changes nothing");
    match &found.refusal {
        None => {
            assert_eq!(health.state, EngineState::Ready, "in service, so ready");
            assert_eq!(health.reason, "", "in service, so there is no reason");
            assert!(found.hardware_detected, "in service without hardware");
        }
        Some(refusal) => {
            let state = refusal.trouble.state();
            assert_eq!(
                health.state, state,
                "the refusal is the state's: {refusal:?}"
            );
            assert_eq!(health.reason, refusal.text, "one reason");
            let text = &refusal.text;
            assert!(
                !text.is_empty() && !text.contains('\n'),
                "no sentence: {text:?}"
            );
        }
    }
    // A log of a server's start says of each whether it will be used.
    let lines = messages(&found, &health);
    let mode = |number| lines.iter().filter(|line| line.number == number).count();
    let is_refused = usize::from(found.refusal.is_some());
    assert_eq!(
        (mode(17435), mode(17437)),
        (1 - is_refused, is_refused),
        "{lines:?}"
    );
    found.refusal
}

/// A device in service that breaks one promise.
struct Lying {
    lie: Lie,
    caps: crate::Caps,
    asked: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    NamelessLibrary,
    OtherNameEachTime,
    RefusedAndReady,
    InServiceWithoutHardware,
    InServiceAndSuspended,
    OtherReason,
    NoReason,
    LongReason,
    GivesUpWhenAsked,
}

impl crate::Engine for Lying {
    fn caps(&self) -> &crate::Caps {
        &self.caps
    }

    fn health(&self) -> crate::Health {
        let mut health = crate::Health::of(match (self.lie, self.refusal()) {
            (Lie::InServiceAndSuspended, _) => EngineState::Suspended,
            (Lie::RefusedAndReady, _) | (_, None) => EngineState::Ready,
            (_, Some(refusal)) => refusal.trouble.state(),
        });
        health.reason = match (self.lie, self.refusal()) {
            (Lie::OtherReason, _) => "it is asleep".to_owned(),
            (_, refusal) => refusal.map(|r| r.text).unwrap_or_default(),
        };
        health
    }

    fn run(&self, batch: Vec<crate::Job>) -> Vec<crate::Job> {
        batch
    }

    fn self_test(&self) -> crate::Health {
        self.health()
    }
}

impl Lying {
    fn refusal(&self) -> Option<Refusal> {
        let text = match self.lie {
            Lie::NoReason => "",
            Lie::LongReason => "it is down\nand nobody knows why",
            _ => "load its driver",
        };
        let is_refused = match self.lie {
            Lie::RefusedAndReady | Lie::OtherReason | Lie::NoReason | Lie::LongReason => true,
            Lie::GivesUpWhenAsked => self.asked.load(std::sync::atomic::Ordering::Relaxed) > 1,
            _ => false,
        };
        is_refused.then(|| Refusal::new(super::Trouble::HardwareNotServing, text))
    }
}

impl Accelerator for Lying {
    fn found(&self) -> super::AcceleratorFacts {
        let asked = self
            .asked
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        super::AcceleratorFacts {
            accelerator: match (self.lie, asked) {
                (Lie::OtherNameEachTime, 1..) => "GPU",
                _ => "QAT",
            },
            description: "a double",
            library: match self.lie {
                Lie::NamelessLibrary => "",
                _ => "libdouble",
            },
            hardware_detected: self.lie != Lie::InServiceWithoutHardware,
            refusal: self.refusal(),
        }
    }
}

#[test]
fn every_lie_of_an_accelerator_breaks_the_contract() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let kept = |lie| {
        let software = crate::Software::new(
            longshore_codec::Algorithm::QatDeflate,
            longshore_codec::Level::Low,
        );
        let lying = Lying {
            lie,
            caps: crate::Engine::caps(&software.unwrap()).clone(),
            asked: Default::default(),
        };
        catch_unwind(AssertUnwindSafe(|| keeps_its_contract(&lying))).is_ok()
    };
    assert!(kept(Lie::None));
    for lie in [
        Lie::NamelessLibrary,
        Lie::OtherNameEachTime,
        Lie::RefusedAndReady,
        Lie::InServiceWithoutHardware,
        Lie::InServiceAndSuspended,
        Lie::OtherReason,
        Lie::NoReason,
        Lie::LongReason,
        Lie::GivesUpWhenAsked,
    ] {
        assert!(!kept(lie), "{lie:?} passed");
    }
}
