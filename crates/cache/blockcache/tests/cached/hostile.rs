//! Goal: metadata that this program did not write, damaged, forged or newer, serves nothing wrong and fails no request.
//! Method: bytes of caches and guards are exchanged, at random and field by field.

use longshore_blockcache::format::{LogPosition, Superblock, decode_log_page};
use longshore_blockcache::guard::Word;
use longshore_blockcache::{Error, LINE};
use proptest::prelude::*;

use crate::{CACHE, Image, Random, differing, disk, settings, start};

/// Random damage anywhere, with the checksums corrected after it: the start is refused, or serves. The content served
/// then is the forger's; `rot` tests damage without forgery.
#[test]
fn forged_metadata_is_refused_or_fails_no_request() {
    let whole = disk(1, 64, 8, 16 << 10);
    let (cached, _) = start(&whole, settings("none")).unwrap();
    assert_eq!(differing(&cached, &whole), Vec::<usize>::new());
    // As after a crash of a session that wrote: then no time of the backend keeps the cache from being believed.
    let same = whole.read_file(crate::BACKEND).unwrap()[8192..][..512].to_vec();
    cached.write(&same, 8192, true).unwrap();
    cached.checkpoint(true).unwrap();
    drop(cached);
    let image = Image::of(&whole);
    let metadata = image.metadata_pages();
    let (mut refused, mut empty, mut held) = (0, 0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut bytes = image.cache.clone();
        for _ in 0..1 + random.below(3) {
            // Both superblocks, or any other page.
            let pages = match random.below(3) {
                0 => vec![0, 1],
                _ => vec![random.below(metadata)],
            };
            let (at, len) = (random.below(100) as usize, 1 + random.below(12) as usize);
            let new = random.below(256) as u8;
            for page in pages {
                let page = &mut bytes[(page * LINE) as usize..][..LINE as usize];
                page[at..at + len].fill(new);
                resum(page);
            }
        }
        image.put(&whole, &bytes);
        match start(&whole, settings("none")) {
            Err(Error::NoCache { .. }) => refused += 1,
            Err(other) => panic!("seed {seed}: {other}"),
            Ok((cached, _)) => {
                match cached.status().held_bytes {
                    0 => empty += 1,
                    _ => held += 1,
                }
                let mut out = vec![0; cached.len() as usize];
                cached.read(&mut out, 0).unwrap();
                cached.checkpoint(true).unwrap();
            }
        }
    }
    let told = format!("{refused} refused, {empty} empty, {held} with content");
    assert!(refused > 0 && empty > 0 && held > 0, "{told}");
}

/// Corrects the checksums of a superblock or a log page.
fn resum(page: &mut [u8]) {
    if page.starts_with(b"LSCACHE3") {
        let sum = longshore_io::crc32c(&page[..96]);
        page[96..100].copy_from_slice(&sum.to_le_bytes());
    } else if page.starts_with(b"LSCACHE5") {
        let sum = longshore_io::crc32c(&page[..140]);
        page[140..144].copy_from_slice(&sum.to_le_bytes());
    } else if page.starts_with(b"LSCACHE4") {
        let sum = longshore_io::crc32c(&page[..116]);
        page[116..120].copy_from_slice(&sum.to_le_bytes());
    } else {
        let sum = longshore_io::crc32c(&page[8..]);
        page[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000), index in any::<u32>()) {
        let mut page = bytes.clone();
        page.resize(4096, 0);
        for magic in [b"LSCACHE3".as_slice(), b"LSCACHE4", b"LSCACHE5", b"LSLB"] {
            page[..magic.len()].copy_from_slice(magic);
            resum(&mut page);
            Superblock::decode(&page);
            let tie = { let mut tie = [0; 16]; tie[..8].copy_from_slice(&page[8..16]); tie };
            let generation = u64::from_le_bytes(page[16..24].try_into().unwrap());
            let session = u64::from_le_bytes(page[24..32].try_into().unwrap());
            let here = u32::from_le_bytes(page[32..36].try_into().unwrap());
            decode_log_page(&LogPosition { tie, generation, session, index: here }, &page);
            decode_log_page(&LogPosition { tie, generation, session, index }, &page);
        }
        Superblock::decode(&bytes);
        Word::decode(&bytes);
    }
}

/// Goal: a cache of a newer version is told from a file that is no cache, which somebody might overwrite.
#[test]
fn a_cache_of_a_newer_version_is_named() {
    for (form, is_newer) in [("LSCACHE6", true), ("LSCACHE2", false), ("LSBLOCK6", false)] {
        let disk = disk(1, 64, 8, 16 << 10);
        let mut cache = disk.read_file(CACHE).unwrap();
        // Both copies of the superblock are of a form that this version cannot read.
        cache[..2 * LINE as usize].fill(0);
        cache[..8].copy_from_slice(form.as_bytes());
        disk.write_file(CACHE, &cache).unwrap();
        match start(&disk, settings("none")) {
            Err(Error::NewerCache { form, .. }) => assert!(is_newer, "{form}"),
            Err(Error::NoCache { .. }) => assert!(!is_newer, "{form}"),
            other => panic!("{form}: {other:?}"),
        }
    }
}
