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

mod samples;

use longshore_codec::pages::Layout;
use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use samples::{BLOCK, Sample, cpu_seconds, layouts};

const CODECS: [(&str, Algorithm, Level); 2] = [
    ("zstd", Algorithm::Zstd, Level::Number(1)),
    ("pages", Algorithm::Pages, Level::Low),
];

/// One block: its plain bytes, and its payload by each codec.
struct Coded<'a> {
    number: usize,
    plain: &'a [u8],
    payloads: [Vec<u8>; 2],
}

fn coded<'a>(sample: &'a Sample, layouts: &'a [Layout]) -> Vec<Coded<'a>> {
    let mut engines =
        CODECS.map(|(_, algorithm, level)| Compressor::new(algorithm, level).expect("a level"));
    let mut out = vec![0; BLOCK + 65536];
    let coded = |block: samples::Block<'a>| Coded {
        number: block.number,
        plain: block.plain,
        payloads: [0, 1].map(|codec| {
            let out = &mut out[..payload_bound(CODECS[codec].1, block.plain.len())];
            let engine = &mut engines[codec];
            let len = engine.compress_parts(block.plain, &block.parts, out).len;
            out[..len].to_vec()
        }),
    };
    sample.blocks(layouts).map(coded).collect()
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
        let sample = Sample::read(&argument);
        let (name, blocks) = (sample.name(), coded(&sample, &layouts));
        let mut decoder = Decompressor::new();
        let mut back = vec![0; BLOCK];
        let mut times = vec![[0.0; 2]; rounds];
        for times in &mut times {
            for block in &blocks {
                let back = &mut back[..block.plain.len()];
                for (i, (codec, algorithm, _)) in CODECS.iter().enumerate() {
                    if only.as_ref().is_some_and(|only| only != codec) {
                        continue;
                    }
                    let began = cpu_seconds();
                    let result = decoder.decompress(*algorithm, &block.payloads[i], back);
                    times[i] += cpu_seconds() - began;
                    let place = || format!("{name} MiB {} {codec}", block.number);
                    result.unwrap_or_else(|e| panic!("{}: {e}", place()));
                    assert!(back == block.plain, "{} differs", place());
                }
            }
        }
        let bytes: usize = blocks.iter().map(|block| block.plain.len()).sum();
        let megabytes = bytes as f64 / 1e6;
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
