//! Compares PAGES with ZSTD on samples of a cluster.
//!
//! Goal: speed and size of each level of PAGES, for docs/decisions/pages.md.
//! Method: the algorithms take turns buffer by buffer on one thread; each is given a copy that was just made, as a buffer is
//! that was just read and summed; times are the thread's CPU time; every buffer is decoded and compared.
//!
//! ```text
//! cargo run --release -p longshore-codec --example pages -- ROUNDS LAYOUTS FILE[:STEP]…
//! ```
//!
//! Each MiB of a file is one buffer; what the files hold and what STEP is stands in `samples/mod.rs`.
//! Shown: times the speed of ZSTD level 1 (median, lowest, highest of the rounds), and the size compared with its size. ONLY
//! in the environment names one of the algorithms, which then runs alone. TIMES in the environment is how often each buffer is
//! coded in a row, of which the fastest counts: good for comparing two programs on a busy machine, and too good for anything
//! else, as the processor then knows the buffer.

mod samples;

use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use samples::{BLOCK, Sample, cpu_seconds, layouts};

/// CPU seconds of the fastest of `times` runs.
fn fastest(times: usize, mut run: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..times {
        let began = cpu_seconds();
        run();
        least = least.min(cpu_seconds() - began);
    }
    least
}

const CANDIDATES: [(&str, Algorithm, Level); 4] = [
    ("zstd-1", Algorithm::Zstd, Level::Number(1)),
    ("ZSTD LOW", Algorithm::Zstd, Level::Low),
    ("PAGES LOW", Algorithm::Pages, Level::Low),
    ("PAGES MEDIUM", Algorithm::Pages, Level::Medium),
];

#[derive(Default, Clone)]
struct Tally {
    encode: f64,
    decode: f64,
    bytes: usize,
}

fn main() {
    let only = std::env::var("ONLY").ok();
    let times = std::env::var("TIMES").map_or(1, |times| times.parse().expect("TIMES"));
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments
        .next()
        .and_then(|n| n.parse().ok())
        .expect("ROUNDS");
    let layouts = layouts(&arguments.next().expect("LAYOUTS"));
    println!(
        "{:<24} {:>8}  x [lowest-highest] size, x of decoding",
        "file", "zstd-1"
    );
    for argument in arguments {
        let sample = Sample::read(&argument);
        let mut runs = vec![vec![Tally::default(); CANDIDATES.len()]; rounds];
        let mut engines: Vec<_> = CANDIDATES
            .map(|(_, algorithm, level)| Compressor::new(algorithm, level).expect("a level"))
            .into();
        let mut decoder = Decompressor::new();
        let (mut out, mut back) = (vec![0; BLOCK + 65536], vec![0; BLOCK]);
        let mut hot = Vec::new();
        let mut total = 0;
        for tallies in &mut runs {
            total = 0;
            for block in sample.blocks(&layouts) {
                let plain = block.plain;
                total += plain.len();
                let back = &mut back[..plain.len()];
                let place = |codec| format!("{} MiB {} {codec}", sample.name(), block.number);
                for ((candidate, engine), tally) in
                    CANDIDATES.iter().zip(&mut engines).zip(tallies.iter_mut())
                {
                    if only.as_ref().is_some_and(|only| only != candidate.0) {
                        continue;
                    }
                    let out = &mut out[..payload_bound(candidate.1, plain.len())];
                    hot.clear();
                    hot.extend_from_slice(plain);
                    let mut len = 0;
                    tally.encode += fastest(times, || {
                        len = engine.compress_parts(&hot, &block.parts, out).len;
                    });
                    tally.bytes += len;
                    tally.decode += fastest(times, || {
                        decoder
                            .decompress(candidate.1, &out[..len], back)
                            .unwrap_or_else(|e| panic!("{}: {e}", place(candidate.0)));
                    });
                    assert!(back == plain, "{} differs", place(candidate.0));
                    back.fill(1);
                }
            }
        }
        let mb = total as f64 / 1e6;
        let name = sample.name();
        print!("{name:<24} {:>8.0}", mb / runs[rounds / 2][0].encode);
        for (i, (label, ..)) in CANDIDATES.iter().enumerate().skip(1) {
            let ratios = |what: fn(&Tally) -> f64| {
                let mut ratios: Vec<f64> = runs
                    .iter()
                    .map(|run| what(&run[0]) / what(&run[i]))
                    .collect();
                ratios.sort_by(f64::total_cmp);
                ratios
            };
            let (encode, decode) = (ratios(|t| t.encode), ratios(|t| t.decode));
            print!(
                "  {label} {:.2} [{:.2}-{:.2}] {:.0} %, {:.2};",
                encode[rounds / 2],
                encode[0],
                encode[rounds - 1],
                100.0 * runs[0][i].bytes as f64 / runs[0][0].bytes as f64,
                decode[rounds / 2]
            );
            if only.is_some() {
                print!(" {:.0} MB/s", mb / runs[rounds / 2][i].encode);
            }
        }
        println!();
    }
}
