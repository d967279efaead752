//! Chains of sets with any names, extents and parents; every byte of the input is a choice.
#![no_main]

#[path = "../../crates/core/pipeline/tests/common/forge.rs"]
mod forge;
#[path = "../../crates/core/pipeline/tests/common/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.iter();
    let mut choose = |below: usize| usize::from(*bytes.next().unwrap_or(&0)) % below;
    // Most are refused; what must hold is asserted inside.
    let _refused = hostile::restore_nonsense(&mut choose);
});
