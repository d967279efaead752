//! Goal: the tests of this crate share their inputs and judges: page-like bytes, a decoder that checks the bytes around
//! its buffer, and stock tools.
//! Not covered: this file has no tests. A stock tool that is missing is skipped with a message, unless
//! `LONGSHORE_REQUIRE_TOOLS` is set.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::io::Write;
use std::process::{Command, Stdio};

pub use longshore_kit::Random;

use longshore_codec::{Algorithm, Compressor, Decompressor, Encoded, Level, payload_bound};

/// Bytes like those of database pages: headers, ascending keys, recurring names, free space, some noise.
pub fn pages(len: usize) -> Vec<u8> {
    const WORDS: [&str; 6] = [
        "paid",
        "shipped",
        "returned",
        "account",
        "order item",
        "branch",
    ];
    let mut random = Random(len as u64);
    let names: Vec<Vec<u8>> = (0..2000).map(|i| random.bytes(6 + i % 30)).collect();
    let mut bytes = Vec::with_capacity(len + 8192);
    let mut key = 1_000_u32;
    while bytes.len() < len {
        let end = bytes.len() + 8192;
        bytes.extend([
            0, 0, 0, 0, 0x18, 0x2e, 0x4d, 0xb3, 0, 0, 4, 0, 0xe0, 0x1f, 4, 0x20,
        ]);
        bytes.resize(bytes.len() + random.below(1500), 0);
        while bytes.len() + 128 < end {
            key += 1 + random.below(3_u32);
            bytes.extend(key.to_le_bytes());
            for _ in 0..random.below(3) {
                bytes.extend(WORDS[random.below(WORDS.len())].bytes());
                bytes.extend(&names[random.below(names.len())]);
            }
            bytes.extend(&random.next().to_le_bytes()[..3]);
        }
        bytes.resize(end, 0);
    }
    bytes.truncate(len);
    bytes
}

/// The payload of `plain`, and the compressor's result.
pub fn encode(algorithm: Algorithm, level: Level, plain: &[u8]) -> (Vec<u8>, Encoded) {
    let mut out = vec![0xee; payload_bound(algorithm, plain.len())];
    let encoded = Compressor::new(algorithm, level)
        .unwrap()
        .compress(plain, &mut out);
    out.truncate(encoded.len);
    (out, encoded)
}

/// Decodes into the middle of a larger buffer and checks that nothing outside was touched.
pub fn decode(
    algorithm: Algorithm,
    payload: &[u8],
    plain_len: usize,
) -> Result<Vec<u8>, longshore_codec::PayloadError> {
    const MARGIN: usize = 512;
    let mut around = vec![0x5a; plain_len + 2 * MARGIN];
    let place = &mut around[MARGIN..MARGIN + plain_len];
    let result = Decompressor::new().decompress(algorithm, payload, place);
    assert!(
        around[..MARGIN].iter().all(|b| *b == 0x5a),
        "wrote before the buffer"
    );
    assert!(
        around[MARGIN + plain_len..].iter().all(|b| *b == 0x5a),
        "wrote behind the buffer"
    );
    result.map(|()| around[MARGIN..MARGIN + plain_len].to_vec())
}

/// A stock tool's output for `input`, and whether it succeeded. `None`, with a message, if the tool is not installed;
/// with `LONGSHORE_REQUIRE_TOOLS` set that is a failure.
pub fn stock(command: &[&str], input: &[u8]) -> Option<(Vec<u8>, bool)> {
    let spawned = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() => {
            eprintln!("skipped: {} does not run: {e}", command[0]);
            return None;
        }
        Err(e) => panic!("{} does not run: {e}", command[0]),
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A tool that refuses closes its input early; that is not a failure of the test.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    Some((output.stdout, output.status.success()))
}

/// Runs every other test of this binary in a process with ISA-L disabled.
pub fn again_without_isal(this_test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", this_test])
        .env("LONGSHORE_ISAL", "off")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("running 0 tests"), "{said}");
}
