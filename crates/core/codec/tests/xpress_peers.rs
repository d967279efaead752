//! Goal: MS_XPRESS is what other implementations read and write: wimlib and dissect.util read our chunks, and we read
//! wimlib's.
//! Method: `xpress_peers.py` drives them, run by `python3` or the program in `LONGSHORE_PYTHON`. If they are not
//! installed, the test fails, or with `LONGSHORE_SKIP_PEERS=1` reports it and passes.

use longshore_codec::xpress::{CHUNK_BYTES_MAX, Encoder, decompress};
use longshore_kit::Random;
use std::path::Path;
use std::process::Command;

const MISSING: i32 = 3;

/// Content of several kinds, and of the sizes at which a chunk is full or nearly empty.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    let mut numbers = Random(1);
    let mut random = || (numbers.next() >> 40) as usize;
    let words = [
        "stock",
        "order",
        "line",
        "customer",
        "BARBARBAR",
        "PRICALLY",
        "a",
        ", ",
    ];
    let mut text = Vec::new();
    while text.len() < CHUNK_BYTES_MAX {
        text.extend(words[random() % words.len()].as_bytes());
    }
    let mut page = Vec::new();
    while page.len() < CHUNK_BYTES_MAX {
        page.extend((page.len() as u32).to_le_bytes());
        page.extend([0; 11]);
        page.extend(&text[random() % 60_000..][..random() % 90]);
        page.extend(vec![b' '; random() % 60]);
    }
    // Skewed, so that codes of 15 bits are needed.
    let skewed = (0..CHUNK_BYTES_MAX)
        .map(|_| (random() as u32).leading_zeros() as u8)
        .collect();
    let noise: Vec<u8> = (0..CHUNK_BYTES_MAX / 2).map(|_| random() as u8).collect();
    let far = [noise.as_slice(), &noise].concat();
    let mut contents = vec![
        ("zeros", vec![0; CHUNK_BYTES_MAX]),
        ("text", text),
        ("page", page),
        ("skewed", skewed),
        ("far", far),
    ];
    for (_, content) in &mut contents {
        content.truncate(CHUNK_BYTES_MAX);
    }
    let page = contents[2].1.clone();
    contents.push(("odd", page[7..65_000].to_vec()));
    contents.push(("short", page[..1_000].to_vec()));
    contents.push(("run", vec![9; 300]));
    contents
}

#[test]
fn wimlib_and_dissect_read_our_chunks_and_we_read_wimlib_s() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let contents = contents();
    let mut written = 0;
    for (name, plain) in &contents {
        std::fs::write(at(&format!("{name}.plain")), plain).expect("room on disk");
        for level in 1..=3 {
            let mut out = vec![0; plain.len()];
            let len = Encoder::new(level)
                .compress(plain, &mut out)
                .expect("content shrinks");
            let chunk = at(&format!("{name}.{level}.chunk"));
            std::fs::write(chunk, &out[..len]).expect("room on disk");
            written += 1;
        }
    }

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xpress_peers.py");
    let python = std::env::var_os("LONGSHORE_PYTHON").unwrap_or("python3".into());
    let output = Command::new(&python)
        .arg(script)
        .arg(directory.path())
        .output();
    let said = match &output {
        Ok(output) => [output.stdout.as_slice(), &output.stderr]
            .map(String::from_utf8_lossy)
            .concat(),
        Err(error) => format!("missing: {} ({error})", python.to_string_lossy()),
    };
    let status = output.map_or(Some(MISSING), |output| output.status.code());
    if status == Some(MISSING) && std::env::var_os("LONGSHORE_SKIP_PEERS").is_some_and(|v| v == "1")
    {
        eprintln!("skipped: {}", said.trim());
        return;
    }
    assert!(status == Some(0), "{}", said.trim());
    let full = 3 * contents
        .iter()
        .filter(|(_, plain)| plain.len() == CHUNK_BYTES_MAX)
        .count();
    let expected = format!("read {written} by wimlib, {full} by dissect.util, wrote ");
    assert!(said.starts_with(&expected), "{said}");

    let mut read = 0;
    for (name, plain) in &contents {
        for level in [10, 20, 50, 80] {
            let chunk = at(&format!("{name}.{level}.wimlib"));
            let stored = std::fs::read(&chunk).expect("wimlib shrinks all contents");
            let mut restored = vec![0; plain.len()];
            assert_eq!(
                decompress(&stored, &mut restored),
                Ok(()),
                "{}",
                chunk.display()
            );
            assert!(&restored == plain, "{}", chunk.display());
            read += 1;
        }
    }
    assert_eq!(said.trim(), format!("{expected}{read}"));
}
