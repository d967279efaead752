//! Every decoder on any payload, for any plain length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_codec::{Algorithm, Decompressor};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, payload)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let algorithm = Algorithm::ALL[usize::from(head[0]) % Algorithm::ALL.len()];
    // Up to 1 MiB: several XPRESS chunks and gzip members, little time.
    let plain_len = u32::from_le_bytes([head[1], head[2], head[3], 0]) as usize % (1 << 20);
    let mut plain = vec![0; plain_len];
    let _ = Decompressor::new().decompress(algorithm, payload, &mut plain);
});
