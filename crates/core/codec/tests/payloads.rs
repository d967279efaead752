//! Goal: payloads are as documented, for every algorithm and level.
//! Method: stock tools judge first, our own decoders second; sizes at borders are listed, and other buffers are
//! generated.
//! Not covered: speed, and damaged payloads (`hostile.rs`).

mod common;

use common::{Random, decode, encode, pages, stock};
use longshore_codec::{
    Algorithm, Compressor, Error, Level, PLAIN_LEN_MAX, engines, none_frame, payload_bound,
};
use proptest::prelude::*;

const NAMED: [Level; 3] = [Level::Low, Level::Medium, Level::High];

/// Sizes at borders: chunks, members, stored blocks, the largest buffer.
const SIZES: [usize; 16] = [
    1,
    2,
    3,
    31,
    4_096,
    65_535,
    65_536,
    65_537,
    131_070,
    131_073,
    (256 << 10) - 1,
    256 << 10,
    (256 << 10) + 1,
    1 << 20,
    (1 << 20) + 12_345,
    PLAIN_LEN_MAX,
];

/// Independent readers of each payload; for MS_XPRESS and PAGES none reads a whole payload.
fn readers(algorithm: Algorithm) -> &'static [&'static [&'static str]] {
    const GUNZIP: &str =
        "import gzip, sys; sys.stdout.buffer.write(gzip.decompress(sys.stdin.buffer.read()))";
    match algorithm {
        Algorithm::QatDeflate => &[
            &["gzip", "-dc"],
            &["igzip", "-dc"],
            &["python3", "-c", GUNZIP],
            &["busybox", "gunzip", "-c"],
            &["7z", "e", "-tgzip", "-si", "-so"],
        ],
        Algorithm::Zstd => &[&["zstd", "-dc"]],
        Algorithm::Lz4 | Algorithm::None => &[&["lz4", "-dc"]],
        Algorithm::MsXpress | Algorithm::Pages => &[],
    }
}

#[test]
fn stock_tools_read_every_payload_and_two_of_them_in_a_row() {
    let plain = pages(700_001);
    let noise = Random(5).bytes(300_000);
    for algorithm in Algorithm::ALL {
        for level in NAMED {
            let mut stream = encode(algorithm, level, &plain).0;
            stream.extend(encode(algorithm, level, &noise).0);
            stream.extend(encode(algorithm, level, &[0; 300_000]).0);
            let expected = [plain.as_slice(), &noise, &[0; 300_000]].concat();
            for tool in readers(algorithm) {
                let Some((found, ok)) = stock(tool, &stream) else {
                    continue;
                };
                assert!(ok && found == expected, "{algorithm} {level} by {tool:?}");
            }
        }
    }
}

#[test]
fn stock_tools_skip_ms_xpress_and_pages_payloads_and_find_no_damage() {
    for algorithm in [Algorithm::MsXpress, Algorithm::Pages] {
        let (payload, _) = encode(algorithm, Level::Low, &pages(200_000));
        for tool in [["lz4", "-dc"], ["zstd", "-dc"]] {
            let Some((found, ok)) = stock(&tool, &payload) else {
                continue;
            };
            assert!(ok && found.is_empty(), "{algorithm} {tool:?}");
        }
    }
}

#[test]
fn every_size_comes_back_at_every_named_level() {
    for algorithm in Algorithm::ALL {
        for level in NAMED {
            for size in SIZES {
                // For the slow levels 1 MiB is enough.
                if size == PLAIN_LEN_MAX && level == Level::High {
                    continue;
                }
                let plain = pages(size);
                let (payload, encoded) = encode(algorithm, level, &plain);
                assert!(payload.len() <= payload_bound(algorithm, size));
                let stored = encoded.stored;
                assert!(decode(algorithm, &payload, size).is_ok_and(|found| found == plain));
                if size >= 4096 && algorithm != Algorithm::None {
                    assert!(
                        !stored && payload.len() * 10 < size * 9,
                        "{algorithm} {level} {size}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_numbered_level_comes_back_and_numbers_outside_are_refused_with_the_range() {
    let plain = pages(150_000);
    for (algorithm, lowest, highest) in [
        (Algorithm::QatDeflate, 1, 12),
        (Algorithm::Zstd, -7, 22),
        (Algorithm::Lz4, 1, 12),
        (Algorithm::MsXpress, 1, 3),
        (Algorithm::Pages, 1, 3),
    ] {
        for number in lowest..=highest {
            let (payload, _) = encode(algorithm, Level::Number(number), &plain);
            assert_eq!(
                decode(algorithm, &payload, plain.len()),
                Ok(plain.clone()),
                "{algorithm} {number}"
            );
        }
        for level in [lowest - 1, highest + 1, i32::MIN, i32::MAX] {
            let refusal = Compressor::new(algorithm, Level::Number(level)).err();
            assert_eq!(
                refusal,
                Some(Error::LevelOutOfRange {
                    algorithm,
                    level,
                    lowest,
                    highest
                })
            );
        }
    }
    let refusal = Compressor::new(Algorithm::None, Level::Number(1))
        .err()
        .unwrap();
    assert_eq!(
        refusal.to_string(),
        "NONE has no numbered levels, but level 1 was given"
    );
    assert_eq!(refusal.hint(), "leave the level out");
}

#[test]
fn a_higher_named_level_gives_a_smaller_payload() {
    let plain = pages(1 << 20);
    for algorithm in Algorithm::ALL.into_iter().filter(|a| *a != Algorithm::None) {
        let lens = NAMED.map(|level| encode(algorithm, level, &plain).0.len());
        assert!(lens.is_sorted_by(|a, b| a > b), "{algorithm}: {lens:?}");
    }
}

#[test]
fn noise_is_stored_and_grows_by_less_than_a_thousandth() {
    for algorithm in Algorithm::ALL {
        for level in NAMED {
            for size in [
                1,
                63,
                64,
                65_536,
                100_000,
                256 << 10,
                1 << 20,
                PLAIN_LEN_MAX,
            ] {
                if size > 100_000 && level == Level::High {
                    continue;
                }
                let plain = Random(size as u64).bytes(size);
                let (payload, encoded) = encode(algorithm, level, &plain);
                assert!(encoded.stored, "{algorithm} {level} {size}");
                assert!(payload.len() <= payload_bound(algorithm, size));
                assert_eq!(decode(algorithm, &payload, size), Ok(plain));
            }
        }
        for size in (65_536..=PLAIN_LEN_MAX).step_by(4099) {
            assert!(
                payload_bound(algorithm, size) * 1000 < size * 1001,
                "{algorithm} {size}"
            );
        }
    }
}

#[test]
fn only_the_incompressible_member_among_pages_is_stored() {
    let mut plain = pages(1 << 20);
    plain[256 << 10..512 << 10].copy_from_slice(&Random(1).bytes(256 << 10));
    let (payload, encoded) = encode(Algorithm::QatDeflate, Level::Low, &plain);
    assert!(
        !encoded.stored && payload.len() < 800_000,
        "{}",
        payload.len()
    );
    assert_eq!(
        decode(Algorithm::QatDeflate, &payload, plain.len()),
        Ok(plain)
    );
}

#[test]
fn a_compressors_earlier_work_does_not_matter_or_hardly_at_zstd_s_lowest_level() {
    let (data, noise) = (pages(90_000), Random(4).bytes(80_000));
    let (zeros, fewer_zeros) = (vec![0; 90_000], vec![0; 65_536]);
    let inputs = [
        &data,
        &zeros,
        &zeros,
        &fewer_zeros,
        &noise,
        &noise,
        &data,
        &noise,
        &zeros,
    ];
    for (algorithm, level) in Algorithm::ALL
        .into_iter()
        .flat_map(|a| NAMED.map(|l| (a, l)))
    {
        let mut compressor = Compressor::new(algorithm, level).unwrap();
        let mut out = vec![0; payload_bound(algorithm, 90_000)];
        for plain in inputs {
            let encoded = compressor.compress(plain, &mut out);
            let (fresh, fresh_encoded) = encode(algorithm, level, plain);
            let same = encoded == fresh_encoded && out[..encoded.len] == fresh;
            let measures = level == Level::Low
                && [Algorithm::QatDeflate, Algorithm::Zstd].contains(&algorithm);
            assert!(
                same || measures && encoded.len * 100 <= fresh.len() * 104,
                "{algorithm} {level}: {encoded:?} instead of {fresh_encoded:?}"
            );
            for payload in [&out[..encoded.len], &fresh] {
                let found = decode(algorithm, payload, plain.len());
                assert!(found.is_ok_and(|found| found == *plain));
            }
        }
    }
}

#[test]
fn qat_deflate_members_have_the_layout_of_qatzip() {
    let plain = pages((256 << 10) + 2);
    let (payload, _) = encode(Algorithm::QatDeflate, Level::Low, &plain);
    let u32_at = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut done) = (0, 0);
    for _ in 0..2 {
        assert_eq!(
            payload[at..at + 16],
            *b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x0c\0QZ\x08\0"
        );
        let (plain_len, deflate_len) = (u32_at(at + 16), u32_at(at + 20));
        assert_eq!(plain_len, (128 << 10) + 1, "members are even");
        assert_eq!(u32_at(at + 28 + deflate_len), plain_len);
        let crc32 = crc_fast::crc32_iso_hdlc(&plain[done..done + plain_len]);
        assert_eq!(u32_at(at + 24 + deflate_len), crc32 as usize);
        (at, done) = (at + deflate_len + 32, done + plain_len);
    }
    assert_eq!((at, done), (payload.len(), plain.len()));
}

#[test]
fn a_member_of_a_whole_buffer_decodes_as_well() {
    let plain = pages(1 << 20);
    let Some((zipped, true)) = stock(&["gzip", "-nc"], &plain) else {
        return;
    };
    // gzip's own header is 10 bytes; what follows is deflate data and the same footer.
    let deflate_len = zipped.len() - 18;
    let mut payload = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x0c\0QZ\x08\0".to_vec();
    payload.extend((plain.len() as u32).to_le_bytes());
    payload.extend((deflate_len as u32).to_le_bytes());
    payload.extend(&zipped[10..]);
    assert_eq!(
        decode(Algorithm::QatDeflate, &payload, plain.len()),
        Ok(plain)
    );
}

#[test]
fn foreign_frames_decode_and_what_is_not_supported_is_named() {
    let plain = pages(300_000);
    let foreign = |tool: &[&str]| Some(stock(tool, &plain)?.0);
    for tool in [
        ["lz4", "-c", "-B4", "--no-frame-crc"],
        ["lz4", "-c", "-B7", "--no-frame-crc"],
    ] {
        let Some(payload) = foreign(&tool) else {
            continue;
        };
        assert_eq!(
            decode(Algorithm::Lz4, &payload, plain.len()).as_deref(),
            Ok(&*plain),
            "{tool:?}"
        );
    }
    for (tool, what) in [
        (["lz4", "-c", "-B4D", "--no-frame-crc"], "linked blocks"),
        (["lz4", "-c", "-B4X", "--no-frame-crc"], "its own checksums"),
        (["lz4", "-c", "-B4", "--content-size"], "its own checksums"),
    ] {
        let Some(payload) = foreign(&tool) else {
            continue;
        };
        let refusal = decode(Algorithm::Lz4, &payload, plain.len()).unwrap_err();
        assert!(refusal.to_string().contains(what), "{refusal}");
    }
    if let Some(payload) = foreign(&["zstd", "-c", "-19"]) {
        assert_eq!(
            decode(Algorithm::Zstd, &payload, plain.len()).as_deref(),
            Ok(&*plain)
        );
    }
}

#[test]
fn a_none_payload_is_the_frame_around_the_bytes() {
    for size in SIZES {
        let plain = pages(size);
        let frame = none_frame(size);
        let (payload, encoded) = encode(Algorithm::None, Level::Low, &plain);
        assert_eq!(payload, [&frame.prefix[..], &plain, &frame.suffix].concat());
        assert!(encoded.stored);
    }
}

#[test]
fn zeros_take_next_to_no_space() {
    for (algorithm, limit) in [
        (Algorithm::QatDeflate, 6_000),
        (Algorithm::Zstd, 200),
        (Algorithm::Lz4, 6_000),
        (Algorithm::MsXpress, 6_000),
        (Algorithm::Pages, 6_000),
    ] {
        let (payload, encoded) = encode(algorithm, Level::Low, &vec![0; 1 << 20]);
        assert!(
            !encoded.stored && payload.len() < limit,
            "{algorithm}: {}",
            payload.len()
        );
    }
}

#[test]
fn the_engine_that_works_is_among_those_found() {
    let facts = engines();
    for algorithm in Algorithm::ALL.into_iter().filter(|a| *a != Algorithm::None) {
        for level in NAMED {
            let name = Compressor::new(algorithm, level).unwrap().engine();
            let fact = facts.iter().find(|fact| fact.name == name);
            assert!(
                fact.is_some_and(|fact| fact.absent.is_none()),
                "{algorithm} {level}: {name}"
            );
        }
    }
}

#[test]
fn all_of_this_holds_without_isa_l_too() {
    common::again_without_isal("all_of_this_holds_without_isa_l_too");
}

/// Buffers made of runs, copies of earlier bytes, and noise.
fn buffers() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..3000_usize).prop_map(|(byte, len)| (0, vec![byte; len])),
        prop::collection::vec(any::<u8>(), 1..400).prop_map(|bytes| (0, bytes)),
        (1..40_000_usize, 1..600_usize).prop_map(|(back, len)| (back, vec![0; len])),
    ];
    prop::collection::vec(piece, 1..60).prop_map(|pieces| {
        let mut plain: Vec<u8> = Vec::new();
        for (back, bytes) in pieces {
            match back {
                1.. if back <= plain.len() => {
                    for _ in 0..bytes.len() {
                        plain.push(plain[plain.len() - back]);
                    }
                }
                _ => plain.extend(bytes),
            }
        }
        plain
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_buffer_comes_back(plain in buffers(), level in 0..3_usize) {
        for algorithm in Algorithm::ALL {
            let (payload, _) = encode(algorithm, NAMED[level], &plain);
            prop_assert!(payload.len() <= payload_bound(algorithm, plain.len()));
            let found = decode(algorithm, &payload, plain.len());
            prop_assert_eq!(found.as_ref(), Ok(&plain));
        }
    }
}
