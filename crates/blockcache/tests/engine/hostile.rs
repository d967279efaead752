//! Metadata that nobody of us wrote.

use longshore_blockcache::format::{Place, Superblock, decode_block};
use longshore_blockcache::guard::Word;
use longshore_blockcache::{Error, LINE};
use proptest::prelude::*;

use crate::{BACKEND, CACHE, Random, differing, disk, settings, start};

/// Random damage anywhere, and sums made right again over it: the start is refused, empty, or right.
#[test]
fn damaged_and_forged_metadata_is_refused_or_ignored() {
    let whole = disk(1, 64, 8, 16 << 10);
    let (engine, _) = start(&whole, settings("none")).unwrap();
    assert_eq!(differing(&engine, &whole), Vec::<usize>::new());
    engine.stop().unwrap();
    drop(engine);
    let cache = whole.read_file(CACHE).unwrap();
    let guard = whole
        .read_file(format!("{BACKEND}.longshore-guard"))
        .unwrap();
    let backend = whole.read_file(BACKEND).unwrap();
    let (mut refused, mut started) = (0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut bytes = cache.clone();
        let metadata = 2 + 2 * 66;
        for _ in 0..1 + random.below(3) {
            // Both superblocks, or any other block.
            let blocks = match random.below(3) {
                0 => vec![0, 1],
                _ => vec![random.below(metadata)],
            };
            let (at, len) = (random.below(100) as usize, 1 + random.below(12) as usize);
            let (new, forged) = (random.below(256) as u8, random.below(3) > 0);
            for block in blocks {
                let block = &mut bytes[(block * LINE) as usize..][..LINE as usize];
                block[at..at + len].fill(new);
                if forged {
                    resum(block);
                }
            }
        }
        // What a rolled-back guard would do is tried elsewhere; here it vouches for all.
        whole.write_file(CACHE, &bytes).unwrap();
        whole.write_file(BACKEND, &backend).unwrap();
        whole
            .write_file(format!("{BACKEND}.longshore-guard"), &guard)
            .unwrap();
        match start(&whole, settings("none")) {
            Err(Error::NoCache { .. }) => refused += 1,
            Err(other) => panic!("seed {seed}: {other}"),
            Ok((engine, _)) => {
                started += 1;
                let len = engine.len() as usize;
                let mut out = vec![0; len];
                engine.read(&mut out, 0).unwrap();
                engine.checkpoint(true).unwrap();
            }
        }
    }
    assert!(
        refused > 0 && started > 0,
        "{refused} refused, {started} started"
    );
}

/// Makes the sums of a superblock or a log block right.
fn resum(block: &mut [u8]) {
    if block.starts_with(b"LSCACHE2") {
        let sum = longshore_io::crc32c(&block[..92]);
        block[92..96].copy_from_slice(&sum.to_le_bytes());
    } else {
        let sum = longshore_io::crc32c(&block[8..]);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000), index in any::<u32>()) {
        let mut block = bytes.clone();
        block.resize(4096, 0);
        for magic in [b"LSCACHE2".as_slice(), b"LSLB"] {
            block[..magic.len()].copy_from_slice(magic);
            resum(&mut block);
            Superblock::decode(&block);
            let tie = { let mut tie = [0; 16]; tie[..8].copy_from_slice(&block[8..16]); tie };
            let generation = u64::from_le_bytes(block[16..24].try_into().unwrap());
            let session = u64::from_le_bytes(block[24..32].try_into().unwrap());
            let here = u32::from_le_bytes(block[32..36].try_into().unwrap());
            decode_block(&Place { tie, generation, session, index: here }, &block);
            decode_block(&Place { tie, generation, session, index }, &block);
        }
        Superblock::decode(&bytes);
        Word::decode(&bytes);
    }
}
