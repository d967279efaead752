//! Superblocks, log blocks and guards of a cache: refused or read, never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_blockcache::format::{LogPosition, Superblock, decode_log_page};
use longshore_blockcache::guard::Word;

fuzz_target!(|bytes: &[u8]| {
    Superblock::decode(bytes);
    Word::decode(bytes);
    let mut block = bytes.to_vec();
    block.resize(4096, 0);
    let sum = longshore_io::crc32c(&block[8..]);
    block[..4].copy_from_slice(b"LSLB");
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    let mut tie = [0; 16];
    tie[..8].copy_from_slice(&block[8..16]);
    let number = |at: usize| u64::from(u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]));
    let place = LogPosition {
        tie,
        generation: number(16) | number(20) << 32,
        session: number(24) | number(28) << 32,
        index: number(32) as u32,
    };
    decode_log_page(&place, &block);
});
