//! Goal: PAGES payloads are as docs/format.md says, and payloads that were made once stay readable.
//! Method: `tests/reader/check_pages.py` decodes with the independent reader, which was written from the page alone: payloads
//! made now from seeds, and the golden ones, which the codec decodes, too. PAGES_KEEP names a directory for the former.
//! Not covered: payloads in sets (crates/longshore/tests).

mod common;

use std::path::Path;

use common::stock;
use longshore_codec::{
    Algorithm, Column, Compressor, Decompressor, Layout, Level, Part, payload_bound,
};
use longshore_kit::pages::{Buffer, Table};
use longshore_kit::{Random, cells};

fn payload(level: Level, buffer: &Buffer) -> Vec<u8> {
    let layouts: Vec<Option<Layout>> = buffer
        .parts
        .iter()
        .map(|(_, attributes)| {
            let columns = attributes.as_ref()?.iter().map(|(len, align)| Column {
                len: *len,
                align: *align,
            });
            Layout::new(columns.collect::<Vec<_>>())
        })
        .collect();
    let parts: Vec<_> = buffer
        .parts
        .iter()
        .zip(&layouts)
        .map(|((len, _), layout)| Part {
            len: *len,
            layout: layout.as_ref(),
        })
        .collect();
    let mut out = vec![0; payload_bound(Algorithm::Pages, buffer.bytes.len())];
    let mut compressor = Compressor::new(Algorithm::Pages, level).unwrap();
    let encoded = compressor.compress_parts(&buffer.bytes, &parts, &mut out);
    out.truncate(encoded.len);
    out
}

fn read_by_others(directory: &Path, options: &[&str]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests");
    let script = tests.join("reader/check_pages.py");
    let mut command = vec!["python3", "-B", script.to_str().unwrap()];
    command.extend(options);
    command.push(directory.to_str().unwrap());
    let Some((said, ok)) = stock(&command, &[]) else {
        return;
    };
    assert!(ok, "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_independent_reader_decodes_every_form_by_the_page_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PAGES_KEEP");
    let directory = kept.as_ref().map_or(temporary.path(), Path::new);
    for seed in 0..240_u64 {
        let mut random = Random(seed);
        let buffer = match seed {
            0..100 => Buffer::new(&mut random, 20_000),
            100..120 => Buffer::new(&mut random, 150_000),
            140..220 => cells::buffer(&mut random, 20_000),
            220.. => cells::buffer(&mut random, 200_000),
            // Many rows of few columns: only long streams are coded in every mode.
            _ => {
                let attributes = vec![[(4, 4), (-1, 4)][seed as usize % 2]];
                let mut table = Table::with(&mut random, attributes.clone());
                let bytes: Vec<u8> = (0..20)
                    .flat_map(|_| table.page(&mut random, 8192))
                    .collect();
                let parts = vec![(bytes.len(), Some(attributes))];
                Buffer { bytes, parts }
            }
        };
        let level = [Level::Low, Level::Low, Level::High][seed as usize % 3];
        let write = |extension, bytes: &[u8]| {
            std::fs::write(directory.join(format!("{seed:03}.{extension}")), bytes).unwrap()
        };
        write("payload", &payload(level, &buffer));
        write("plain", &buffer.bytes);
    }
    read_by_others(directory, &["--all-forms", "--large-forms"]);
}

#[test]
fn golden_payloads_are_decoded() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pages");
    let sums = std::fs::read_to_string(golden.join("crc")).unwrap();
    for line in sums.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [len, crc, name] = fields[..] else {
            panic!("{line}")
        };
        let payload = std::fs::read(golden.join(format!("{name}.payload"))).unwrap();
        let mut plain = vec![0; len.parse().unwrap()];
        let result = Decompressor::new().decompress(Algorithm::Pages, &payload, &mut plain);
        assert_eq!(result, Ok(()), "{name}");
        assert_eq!(
            format!("{:08x}", longshore_io::crc32c(&plain)),
            crc,
            "{name}"
        );
    }
    read_by_others(&golden, &["--all-forms"]);
}
