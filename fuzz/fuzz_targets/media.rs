//! Media of up to three stripes, made of records whose checksums are right; `support::seeds` has the form of an input.
#![no_main]

#[path = "../../crates/core/media/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use support::everything::read_everything;
use support::seeds::stripes_of;

fuzz_target!(|bytes: &[u8]| {
    if let Some(stripes) = stripes_of(bytes) {
        read_everything(&support::devices(&stripes));
    }
});
