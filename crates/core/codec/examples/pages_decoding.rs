//! Compares how fast PAGES and ZSTD decode the same blocks.
//!
//! Goal: decoding speed of PAGES relative to zstd's, for docs/decisions/pages.md.
//! Method: each MiB is compressed by both once. Then the two decode it in turn, block by block and round by round, on one
//! thread, and the thread's CPU time is taken. Each round gives one ratio. Every block is compared with its plain bytes.
//!
//! ```text
//! cargo run --release -p longshore-codec --example pages_decoding -- ROUNDS LAYOUTS FILE[:STEP]…
//! ```
//!
//! Files, steps and layouts are those of the example `pages`. Shown for each file: its bytes, zstd-1's speed and that of PAGES
//! LOW in MB/s of CPU time (median), and the ratio: median, and the quartiles of the rounds. ONLY in the environment names
//! one of `zstd` and `pages`, which then runs alone: good for a profile.

use longshore_codec::pages::{Column, Layout, Part};
use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};

const BLOCK: usize = 1 << 20;

const CODECS: [(&str, Algorithm, Level); 2] = [
    ("zstd", Algorithm::Zstd, Level::Number(1)),
    ("pages", Algorithm::Pages, Level::Low),
];

fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call demands a place for the time, which `time` is.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn layouts(path: &str) -> Vec<Layout> {
    let text = std::fs::read_to_string(path).expect("a file of layouts");
    let layout = |line: &str| {
        let columns = line.split_whitespace().skip(2).map(|column| {
            let (len, align) = column.split_once(':').expect("LEN:ALIGN");
            Column {
                len: len.parse().expect("a length"),
                align: align.parse().expect("an alignment"),
            }
        });
        Layout::new(columns.collect::<Vec<_>>()).expect("a layout has columns")
    };
    text.lines().map(layout).collect()
}

/// One block: its plain bytes, and its payload by each codec.
struct Block {
    plain: Vec<u8>,
    payloads: [Vec<u8>; 2],
}

fn blocks(path: &str, step: usize, layouts: &[Layout]) -> Vec<Block> {
    let bytes = std::fs::read(path).expect("FILE");
    let numbers = std::fs::read_to_string(format!("{path}.idx")).unwrap_or_default();
    let numbers: Vec<usize> = numbers
        .lines()
        .map(|n| n.parse().expect("a number"))
        .collect();
    let mut engines =
        CODECS.map(|(_, algorithm, level)| Compressor::new(algorithm, level).expect("a level"));
    let mut out = vec![0; BLOCK + 65536];
    let chunks = bytes.chunks(BLOCK).enumerate().step_by(step);
    let block = |(i, plain): (usize, &[u8])| {
        let number = numbers.get(i).copied().unwrap_or(0);
        let layout = number.checked_sub(1).map(|n| &layouts[n]);
        let parts = [Part {
            len: plain.len(),
            layout,
        }];
        let payloads = [0, 1].map(|codec| {
            let out = &mut out[..payload_bound(CODECS[codec].1, plain.len())];
            let len = engines[codec].compress_parts(plain, &parts, out).len;
            out[..len].to_vec()
        });
        Block {
            plain: plain.to_vec(),
            payloads,
        }
    };
    chunks.map(block).collect()
}

/// The value below which `share` of the sorted values are.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn main() {
    let only = std::env::var("ONLY").ok();
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().and_then(|n| n.parse().ok());
    let rounds: usize = rounds.expect("ROUNDS");
    let layouts = layouts(&arguments.next().expect("LAYOUTS"));
    println!(
        "{:<24} {:>6} {:>7} {:>7}  ratio [quartiles]",
        "file", "MB", "zstd-1", "PAGES"
    );
    for argument in arguments {
        let (path, step) = match argument.rsplit_once(':') {
            Some((path, step)) => (path, step.parse().expect("STEP")),
            None => (&argument[..], 1),
        };
        let blocks = blocks(path, step, &layouts);
        let mut decoder = Decompressor::new();
        let mut back = vec![0; BLOCK];
        let mut times = vec![[0.0; 2]; rounds];
        for times in &mut times {
            for block in &blocks {
                let back = &mut back[..block.plain.len()];
                for (i, (name, algorithm, _)) in CODECS.iter().enumerate() {
                    if only.as_ref().is_some_and(|only| only != name) {
                        continue;
                    }
                    let began = cpu_seconds();
                    let result = decoder.decompress(*algorithm, &block.payloads[i], back);
                    times[i] += cpu_seconds() - began;
                    result.unwrap_or_else(|e| panic!("{path} {name}: {e}"));
                    assert!(back == block.plain, "{path} {name} differs");
                }
            }
        }
        let bytes: usize = blocks.iter().map(|block| block.plain.len()).sum();
        let megabytes = bytes as f64 / 1e6;
        let name = path.rsplit('/').next().unwrap_or(path);
        let speeds = [0, 1].map(|i| megabytes / quantile(&sorted(times.iter().map(|t| t[i])), 0.5));
        let ratios = sorted(times.iter().map(|[zstd, pages]| zstd / pages));
        println!(
            "{name:<24} {megabytes:>6.1} {:>7.0} {:>7.0}  {:.2} [{:.2}-{:.2}]",
            speeds[0],
            speeds[1],
            quantile(&ratios, 0.5),
            quantile(&ratios, 0.25),
            quantile(&ratios, 0.75)
        );
    }
}
