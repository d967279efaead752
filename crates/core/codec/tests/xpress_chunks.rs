//! Goal: MS_XPRESS chunks agree with the text of [MS-XCA], good and damaged ones alike.
//! Method: the specification's own examples, and a decoder that follows its pseudocode line by line and does nothing
//! else.
//! Not covered: the payload around the chunks (`payloads.rs`).

use longshore_codec::xpress::{CHUNK_BYTES_MAX, ChunkError, Encoder, decompress};
use longshore_kit::random::noise;
use proptest::prelude::*;

const LEVELS: [u8; 3] = [1, 2, 3];
const END_OF_STREAM: usize = 256;

/// Room for any chunk: at most 15 bits for a byte, and the table.
fn compress(encoder: &mut Encoder, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0xAA; 2 * plain.len() + 300];
    let len = encoder.compress(plain, &mut out).expect("there is room");
    out.truncate(len);
    out
}

fn restore(stored: &[u8], len: usize) -> Result<Vec<u8>, ChunkError> {
    let mut plain = vec![0xAA; len];
    decompress(stored, &mut plain).map(|()| plain)
}

/// [MS-XCA] 2.2.4, with every read checked. Returns the plain bytes and how often symbol 256 stood for a match; or
/// `None` if a reader by the specification would fail, or would not end at the end of `stored`.
fn by_the_book(stored: &[u8], plain_len: usize) -> Option<(Vec<u8>, usize)> {
    let mut lengths = Vec::new();
    for byte in stored.get(..256)? {
        lengths.extend([byte & 15, byte >> 4]);
    }
    let mut table = Vec::new();
    for length in 1..=15u8 {
        for (symbol, _) in lengths.iter().enumerate().filter(|(_, l)| **l == length) {
            table.extend(std::iter::repeat_n(
                (symbol, u32::from(length)),
                1 << (15 - length),
            ));
        }
    }
    if table.len() != 1 << 15 {
        return None;
    }
    let mut at = 256;
    let mut take = |count: usize| {
        let bytes = stored.get(at..at + count)?;
        at += count;
        Some((
            bytes.iter().rev().fold(0usize, |n, b| n << 8 | *b as usize),
            at,
        ))
    };
    let mut bits = (take(2)?.0 as u32) << 16;
    let mut end = take(2)?;
    bits |= end.0 as u32;
    let mut extra = 16i32;
    let mut plain = Vec::new();
    let mut matches_256 = 0;
    loop {
        if plain.len() == plain_len && end.1 == stored.len() {
            return Some((plain, matches_256));
        }
        let (symbol, length) = table[(bits >> 17) as usize];
        bits <<= length;
        extra -= length as i32;
        if extra < 0 {
            end = take(2)?;
            bits |= (end.0 as u32) << -extra;
            extra += 16;
        }
        if symbol == END_OF_STREAM && plain.len() == plain_len && end.1 == stored.len() {
            return Some((plain, matches_256));
        } else if plain.len() == plain_len {
            return None;
        } else if symbol < 256 {
            plain.push(symbol as u8);
            continue;
        }
        matches_256 += usize::from(symbol == END_OF_STREAM);
        let (mut len, offset_bits) = ((symbol - 256) % 16, (symbol as u32 - 256) / 16);
        if len == 15 {
            end = take(1)?;
            len = end.0;
            if len == 255 {
                end = take(2)?;
                len = end.0;
                if len < 15 {
                    return None;
                }
                len -= 15;
            }
            len += 15;
        }
        len += 3;
        let offset = (u64::from(bits) >> (32 - offset_bits)) as usize + (1 << offset_bits);
        bits <<= offset_bits;
        extra -= offset_bits as i32;
        if extra < 0 {
            end = take(2)?;
            bits |= (end.0 as u32) << -extra;
            extra += 16;
        }
        if offset > plain.len() || plain.len() + len > plain_len {
            return None;
        }
        for _ in 0..len {
            plain.push(plain[plain.len() - offset]);
        }
    }
}

/// Compresses at every level and decodes by the specification and by our decoder.
fn check(plain: &[u8]) {
    for level in LEVELS {
        let stored = compress(&mut Encoder::new(level), plain);
        let (read, matches_256) = by_the_book(&stored, plain.len()).expect("well formed");
        assert!(read == plain, "level {level}, {} bytes", plain.len());
        assert_eq!(matches_256, 0, "symbol 256 stands only for the end");
        assert!(restore(&stored, plain.len()).is_ok_and(|read| read == plain));
    }
}

/// Rows as in a database page: counters, few distinct words, padding.
fn rows(len: usize) -> Vec<u8> {
    let words = ["shipped", "returned", "pending", "north-east", "x"];
    let random = noise(11, len + 16);
    let mut plain = Vec::new();
    for (row, pick) in random.chunks(2).enumerate() {
        plain.extend((row as u32).to_be_bytes());
        plain.extend([0, 0, pick[0], 0, 17, 23]);
        plain.extend(words[pick[1] as usize % words.len()].as_bytes());
        if row % 40 == 0 {
            plain.extend([0; 300]);
        }
        if plain.len() >= len {
            break;
        }
    }
    plain.truncate(len);
    plain
}

/// The chunk whose code lengths are given by symbol, with this bit stream.
fn chunk(lengths: &[(usize, u8)], stream: &[u8]) -> Vec<u8> {
    let mut stored = vec![0; 256];
    for &(symbol, length) in lengths {
        stored[symbol / 2] |= length << (symbol % 2 * 4);
    }
    stored.extend(stream);
    stored
}

#[test]
fn the_specification_s_examples_are_read_and_written() {
    // [MS-XCA] 3.2: the alphabet, all literals; then "abc" a hundred times, one match.
    let mut lengths: Vec<_> = (b'a'..=b'v').map(|c| (c as usize, 5)).collect();
    lengths.extend((b'w'..=b'z').map(|c| (c as usize, 4)));
    lengths.push((END_OF_STREAM, 4));
    let alphabet = chunk(
        &lengths,
        &[
            0xd8, 0x52, 0x3e, 0xd7, 0x94, 0x11, 0x5b, 0xe9, 0x19, 0x5f, 0xf9, 0xd6, 0x7c, 0xdf,
            0x8d, 0x04, 0, 0, 0, 0,
        ],
    );
    let abc = chunk(
        &[
            (b'a' as usize, 3),
            (b'b' as usize, 3),
            (b'c' as usize, 2),
            (256, 2),
            (0x11f, 2),
        ],
        &[0xa8, 0xdc, 0, 0, 0xff, 0x26, 0x01],
    );
    let (alphabet_plain, abc_plain) = (b"abcdefghijklmnopqrstuvwxyz".to_vec(), b"abc".repeat(100));
    assert_eq!(restore(&alphabet, 26), Ok(alphabet_plain.clone()));
    assert_eq!(restore(&abc, 300), Ok(abc_plain.clone()));
    for level in LEVELS {
        // Which of two equally frequent symbols gets the shorter code is free; everything else is fixed.
        assert_eq!(
            compress(&mut Encoder::new(level), &abc_plain).len(),
            abc.len()
        );
        assert_eq!(
            compress(&mut Encoder::new(level), &alphabet_plain).len(),
            alphabet.len()
        );
    }
}

#[test]
fn every_short_length_and_every_length_of_match_is_read_by_the_book() {
    for len in 1..=40 {
        check(&noise(len as u64, len));
        check(&vec![7; len]);
        check(&b"ab".repeat(len));
    }
    // Match lengths up to 17 are in the symbol, up to 272 in one byte, longer ones in two.
    for len in [17, 18, 19, 271, 272, 273, 274, 1000, 65_300] {
        let phrase = noise(3, 200);
        let mut plain = vec![b'.'; len];
        plain.extend(&phrase);
        check(&plain);
        check(&[phrase.as_slice(), b"..", &phrase, &plain[..len.min(9_000)]].concat());
    }
    for len in [65_534, 65_535, 65_536] {
        check(&vec![0; len]);
        check(&rows(len));
        check(&noise(5, len));
        check(&[noise(8, 32_768), noise(8, 32_768)].concat()[..len]);
    }
}

#[test]
fn zeros_cost_next_to_nothing_and_rows_shrink_more_at_each_level() {
    let mut out = vec![0; CHUNK_BYTES_MAX];
    let mut last = CHUNK_BYTES_MAX / 2;
    for level in LEVELS {
        let mut encoder = Encoder::new(level);
        assert_eq!(
            encoder.compress(&[0; CHUNK_BYTES_MAX], &mut out),
            Some(256 + 7)
        );
        let len = encoder
            .compress(&rows(CHUNK_BYTES_MAX), &mut out)
            .expect("rows shrink");
        assert!(len < last, "level {level}: {len}");
        last = len;
    }
}

#[test]
fn output_that_would_not_fit_is_refused() {
    for level in LEVELS {
        let mut encoder = Encoder::new(level);
        let plain = noise(1, CHUNK_BYTES_MAX);
        assert_eq!(
            encoder.compress(&plain, &mut vec![0; CHUNK_BYTES_MAX]),
            None
        );
        let plain = rows(10_000);
        let len = compress(&mut encoder, &plain).len();
        assert_eq!(encoder.compress(&plain, &mut vec![0; len]), None);
        assert_eq!(encoder.compress(&plain, &mut vec![0; len + 1]), Some(len));
        assert_eq!(encoder.compress(&plain, &mut []), None);
        assert_eq!(encoder.compress(&[], &mut [0; 999]), None);
        let too_long = vec![0; CHUNK_BYTES_MAX + 1];
        assert_eq!(encoder.compress(&too_long, &mut vec![0; 99_999]), None);
    }
}

#[test]
fn a_chunk_does_not_depend_on_the_chunks_before_it() {
    for level in LEVELS {
        let mut encoder = Encoder::new(level);
        let plain = rows(50_000);
        let first = compress(&mut encoder, &plain);
        encoder.compress(&noise(9, 60_000), &mut [0; 100]);
        compress(&mut encoder, &rows(CHUNK_BYTES_MAX)[3..]);
        assert!(compress(&mut encoder, &plain) == first, "level {level}");
    }
}

#[test]
fn each_kind_of_damage_is_named() {
    let a = (b'a' as usize, 1);
    let zeros = [0; 4];
    let damage = |stored: &[u8], len| restore(stored, len).expect_err("damaged");
    // 'a' is 0, a match of 3 from 1 back (or the end) is 1.
    let good = chunk(&[a, (256, 1)], &[0, 0x40, 0, 0]);
    assert_eq!(restore(&good, 4), Ok(b"aaaa".to_vec()));
    assert_eq!(restore(&good, 1), Ok(b"a".to_vec()), "as the end");
    assert_eq!(damage(&good, 0), ChunkError::Size);
    assert_eq!(
        damage(&vec![0; 70_000], CHUNK_BYTES_MAX + 1),
        ChunkError::Size
    );
    assert_eq!(damage(&good[..255], 4), ChunkError::Truncated);
    assert_eq!(damage(&good[..256], 4), ChunkError::Truncated);
    assert_eq!(damage(&good[..258], 4), ChunkError::Truncated);
    assert_eq!(damage(&good, 40), ChunkError::Truncated);
    assert_eq!(damage(&chunk(&[a], &zeros), 4), ChunkError::Code);
    assert_eq!(damage(&chunk(&[], &zeros), 4), ChunkError::Code);
    assert_eq!(
        damage(&chunk(&[a, (256, 1), (257, 15)], &zeros), 4),
        ChunkError::Code
    );
    assert_eq!(
        damage(&chunk(&[a, (256, 1)], &[0, 0x80, 0, 0]), 4),
        ChunkError::Offset
    );
    assert_eq!(damage(&good, 3), ChunkError::Overlong);
    assert_eq!(
        damage(&[good.as_slice(), &[0, 0]].concat(), 4),
        ChunkError::Trailing
    );
    assert_eq!(
        damage(&[good.as_slice(), &[0, 0]].concat(), 1),
        ChunkError::Trailing
    );
    // The same with a long match: its length in one byte, then in two, of which it must need both.
    let long = |bytes: &[u8]| chunk(&[a, (0x10f, 1)], &[&[0, 0x40, 0, 0], bytes].concat());
    assert_eq!(restore(&long(&[1]), 20), Ok(vec![b'a'; 20]));
    assert_eq!(restore(&long(&[255, 15, 0]), 19), Ok(vec![b'a'; 19]));
    assert_eq!(damage(&long(&[255, 14, 0]), 18), ChunkError::Length);
    assert_eq!(damage(&long(&[255, 15]), 19), ChunkError::Truncated);
    assert_eq!(damage(&long(&[]), 19), ChunkError::Truncated);
}

#[test]
fn a_chunk_cut_anywhere_is_refused() {
    for level in LEVELS {
        let plain = rows(20_000);
        let stored = compress(&mut Encoder::new(level), &plain);
        // The last word may belong only to the end symbol, which chunks may lack.
        for len in 0..stored.len() - 2 {
            let result = restore(&stored[..len], plain.len());
            assert_eq!(
                result,
                Err(ChunkError::Truncated),
                "level {level}, cut at {len}"
            );
        }
    }
}

#[test]
fn a_chunk_with_a_flipped_bit_is_judged_as_by_the_book() {
    let plain = rows(3_000);
    let stored = compress(&mut Encoder::new(2), &plain);
    let mut refused = 0;
    for bit in 0..stored.len() * 8 {
        let mut flipped = stored.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let expected = by_the_book(&flipped, plain.len()).map(|(plain, _)| plain);
        refused += usize::from(expected.is_none());
        assert!(restore(&flipped, plain.len()).ok() == expected, "bit {bit}");
    }
    // Every bit of the table makes the code incomplete; some of the other bits change only content.
    assert!(refused > 256 * 8);
}

/// Data-like content: pieces that repeat earlier ones near and far, runs, text and noise.
fn structured() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..400usize).prop_map(|(byte, len)| vec![byte; len]),
        prop::collection::vec(any::<u8>(), 1..60),
        "[a-z ]{1,40}".prop_map(String::into_bytes),
        (prop::collection::vec(any::<u8>(), 1..9), 1..200usize).prop_map(|(p, n)| p.repeat(n)),
    ];
    let copy = (any::<prop::sample::Index>(), 1..3_000usize);
    prop::collection::vec((piece, prop::option::of(copy)), 1..60).prop_map(|pieces| {
        let mut plain: Vec<u8> = Vec::new();
        for (piece, copy) in pieces {
            plain.extend(piece);
            if let Some((from, len)) = copy {
                let from = from.index(plain.len());
                plain.extend_from_within(from..(from + len).min(plain.len()));
            }
        }
        plain.truncate(CHUNK_BYTES_MAX);
        plain
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn structured_data_is_read_by_the_book(plain in structured()) {
        check(&plain);
    }

    #[test]
    fn bytes_without_meaning_are_judged_as_by_the_book(
        counts in prop::collection::vec(0..1_000u32, 4..40),
        stream in prop::collection::vec(any::<u8>(), 0..2_000),
        len in 1..5_000usize,
    ) {
        // Random code lengths are hardly ever a valid code; those of a real chunk are, and let the random bits
        // through.
        let plain: Vec<u8> =
            counts.iter().enumerate().flat_map(|(i, n)| vec![i as u8; *n as usize]).collect();
        let mut stored = compress(&mut Encoder::new(1), &[plain, noise(2, 100)].concat()[..]);
        stored.truncate(256);
        stored.extend(&stream);
        // Long enough that either the content is complete or the stream ends first.
        let expected = by_the_book(&stored, len).map(|(plain, _)| plain);
        prop_assert!(restore(&stored, len).ok() == expected);
        prop_assert!(restore(&stream, len).is_err() || by_the_book(&stream, len).is_some());
    }
}
