//! The kernel of AVX2, BMI and LZCNT: plain Rust, compiled for these instructions.
//!
//! Invariants
//! - A function here asks [`is_available`] before it uses an instruction.
//!
//! Leaves to others: what is computed (`decoding.rs`, `loops.rs`).

use super::decoding::{self, Lane};
use super::loops::Loops;

pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("movbe")
}

/// As the scalar kernel's, whose shifts then need no register of their own.
pub(super) fn decode_four(lanes: &mut [Lane<'_, '_, '_>; 4]) {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { decode_four_shifted(lanes) }
}

#[target_feature(enable = "bmi1,bmi2")]
fn decode_four_shifted(lanes: &mut [Lane<'_, '_, '_>; 4]) {
    decoding::decode_four(lanes);
}

/// The same for eight streams.
pub(super) fn decode_eight(lanes: &mut [Lane<'_, '_, '_>; 8]) {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { decode_eight_shifted(lanes) }
}

#[target_feature(enable = "bmi1,bmi2")]
fn decode_eight_shifted(lanes: &mut [Lane<'_, '_, '_>; 8]) {
    decoding::decode_eight(lanes);
}

/// Runs loops, which the compiler may then give wider copies, and instructions that count bits and shift by any number.
pub(super) fn run<L: Loops>(loops: L) -> L::Result {
    assert!(is_available());
    // SAFETY: a caller of a function with target features must have them; that was just asked.
    unsafe { run_wide(loops) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
fn run_wide<L: Loops>(loops: L) -> L::Result {
    loops.run()
}
