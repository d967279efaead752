//! A stripe of any bytes, alone.
#![no_main]

#[path = "../../crates/core/media/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use support::everything::read_everything;

fuzz_target!(|bytes: &[u8]| {
    read_everything(&support::devices(&[bytes.to_vec()]));
});
