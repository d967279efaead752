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
//! Each MiB of a file is one buffer; with STEP every STEPth is taken. FILE.idx has the number of each buffer's layout,
//! from 1, a line each; 0 is none. LAYOUTS has a line for each layout: its name, how many columns, and LEN:ALIGN of each.
//! Shown: times the speed of ZSTD level 1 (median, lowest, highest of the rounds), and the size compared with its size. ONLY
//! in the environment names one of the algorithms, which then runs alone. TIMES in the environment is how often each buffer is
//! coded in a row, of which the fastest counts: good for comparing two programs on a busy machine, and too good for anything
//! else, as the processor then knows the buffer.

use longshore_codec::pages::{Column, Layout, Part};
use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};

fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call demands a place for the time, which `time` is.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

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
        let (path, step) = match argument.rsplit_once(':') {
            Some((path, step)) => (path, step.parse().expect("STEP")),
            None => (&argument[..], 1),
        };
        let bytes = std::fs::read(path).expect("FILE");
        let numbers = std::fs::read_to_string(format!("{path}.idx")).unwrap_or_default();
        let numbers: Vec<usize> = numbers
            .lines()
            .map(|n| n.parse().expect("a number"))
            .collect();
        let mut runs = vec![vec![Tally::default(); CANDIDATES.len()]; rounds];
        let mut engines: Vec<_> = CANDIDATES
            .map(|(_, algorithm, level)| Compressor::new(algorithm, level).expect("a level"))
            .into();
        let mut decoder = Decompressor::new();
        let (mut out, mut back) = (vec![0; (1 << 20) + 65536], vec![0; 1 << 20]);
        let mut hot = Vec::new();
        let mut total = 0;
        for tallies in &mut runs {
            total = 0;
            for (i, plain) in bytes.chunks(1 << 20).enumerate().step_by(step) {
                total += plain.len();
                let number = numbers.get(i).copied().unwrap_or(0);
                let layout = number.checked_sub(1).map(|n| &layouts[n]);
                let parts = [Part {
                    len: plain.len(),
                    layout,
                }];
                let back = &mut back[..plain.len()];
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
                        len = engine.compress_parts(&hot, &parts, out).len;
                    });
                    tally.bytes += len;
                    tally.decode += fastest(times, || {
                        decoder
                            .decompress(candidate.1, &out[..len], back)
                            .unwrap_or_else(|e| panic!("{path} MiB {i} {}: {e}", candidate.0));
                    });
                    assert!(back == plain, "{path} MiB {i} {} differs", candidate.0);
                    back.fill(1);
                }
            }
        }
        let mb = total as f64 / 1e6;
        let name = path.rsplit('/').next().unwrap_or(path);
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
