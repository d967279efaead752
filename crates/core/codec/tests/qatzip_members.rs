//! Goal: QAT_DEFLATE is QATzip's format: we read QATzip's output, its reader's rules accept ours, and stock tools read
//! QATzip's.
//! Method: golden members of QATzip 1.3.1, its double for other sizes and hints, and gzip and Python for the golden
//! members.
//! Not covered: the library itself and its hardware.

mod common;

use common::{Random, decode, encode, pages, stock};
use longshore_codec::{Algorithm, Level};
use qatzip::members;

const HARDWARE: &[u8] = include_bytes!("golden/qatzip-1.3.1-hardware.gz");
const SOFTWARE: &[u8] = include_bytes!("golden/qatzip-1.3.1-software.gz");

/// The source of the golden members.
fn text() -> Vec<u8> {
    let rows = (0_u32..).flat_map(|i| format!("row {} of {}; ", i % 977, i / 3).into_bytes());
    rows.take(150_000).collect()
}

fn read(payload: &[u8], plain_len: usize) -> Option<Vec<u8>> {
    decode(Algorithm::QatDeflate, payload, plain_len).ok()
}

#[test]
fn members_of_qatzip_are_read_by_us_and_by_stock_tools() {
    for (name, payload) in [("hardware", HARDWARE), ("software", SOFTWARE)] {
        assert!(read(payload, 150_000) == Some(text()), "{name}");
        let python = [
            "python3",
            "-c",
            "import gzip,sys; sys.stdout.buffer.write(gzip.decompress(sys.stdin.buffer.read()))",
        ];
        for command in [&["gzip", "-dc"][..], &python[..]] {
            if let Some((plain, well)) = stock(command, payload) {
                assert!(well && plain == text(), "{name} by {}", command[0]);
            }
        }
    }
}

#[test]
fn the_double_frames_as_qatzip_does() {
    let shape = |payload: &[u8]| {
        let (mut at, mut shape) = (0, Vec::new());
        while at < payload.len() {
            let member = members::Member::read(&payload[at..]).unwrap();
            shape.push((
                payload[at..at + 16].to_vec(),
                member.plain_len,
                member.crc32,
            ));
            at += member.len();
        }
        shape
    };
    let text = text();
    let hardware: Vec<u8> = text
        .chunks(65_536)
        .flat_map(|c| members::hardware(c, 1))
        .collect();
    assert_eq!(shape(&hardware), shape(HARDWARE));
    assert_eq!(shape(&members::software(&text, 65_536, 1)), shape(SOFTWARE));
}

#[test]
fn members_of_any_size_and_any_of_qatzips_hints_are_read() {
    let mut random = Random(7);
    for _ in 0..12 {
        let plain = pages(1 + random.below(600_000));
        let chunk_len = 1024 << random.below(9);
        let level = 1 + random.below(9) as u32;
        let software = members::software(&plain, chunk_len, level);
        let hardware: Vec<u8> = plain
            .chunks(chunk_len)
            .flat_map(|c| members::hardware(c, level))
            .collect();
        for mut payload in [software, hardware] {
            for hint in [0, 2, 4] {
                payload[8] = hint;
                assert!(
                    read(&payload, plain.len()).as_ref() == Some(&plain),
                    "{} {chunk_len} {hint}",
                    plain.len()
                );
            }
            for foreign in [1, 3, 5, 255] {
                payload[8] = foreign;
                assert_eq!(read(&payload, plain.len()), None, "hint {foreign}");
            }
        }
    }
}

#[test]
fn our_members_pass_the_rules_of_qatzips_reader() {
    let mut random = Random(11);
    let noise = random.bytes(300_000);
    for level in [Level::Low, Level::Medium, Level::High, Level::Number(12)] {
        for plain in [
            pages(1),
            pages(65_536),
            pages(700_001),
            noise.clone(),
            vec![0; 1 << 20],
        ] {
            let (payload, _) = encode(Algorithm::QatDeflate, level, &plain);
            assert!(
                members::read_all(&payload).as_ref() == Some(&plain),
                "{level} {}",
                plain.len()
            );
        }
    }
}
