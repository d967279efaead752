//! CPU seconds for each GB of data: `cargo run --release -p longshore-parity --example speed [DATA PARITY]`.
//!
//! Data is streamed from memory (256 MiB), as a row is encoded. "folded" adds one member after the other to sums of 64 KiB,
//! "by fours" four members at a time, as a backup does where it can. In a backup the data is in the cache, and the sums are not.

use std::time::Instant;

use longshore_parity::{Kernel, Outputs, coefficient, combine_with};

const TOTAL: usize = 256 << 20;
const ROUNDS: usize = 5;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).flat_map(|a| a.parse()).collect();
    let codes = match asked[..] {
        [data, parity] => vec![(data, parity)],
        _ => vec![(4, 1), (4, 2), (8, 1), (8, 2), (8, 4), (16, 2)],
    };
    println!(
        "code  kernel  encoded  folded  by fours  decoded   (CPU s/GB of data; best of {ROUNDS})"
    );
    for (data, parity) in codes {
        let len = (TOTAL / data).next_multiple_of(4096);
        let bytes: Vec<Vec<u8>> = (0..data).map(|i| vec![i as u8 + 1; len]).collect();
        let factors: Vec<u8> = (0..parity)
            .flat_map(|j| (0..data).map(move |i| coefficient(j, i)))
            .collect();
        for kernel in Kernel::ALL.into_iter().filter(|k| k.is_available()) {
            let sources: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let mut outs = vec![vec![0; len]; parity];
            let encoded = best(|| {
                let mut places: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
                combine_with(kernel, &mut places, &factors, &sources, Outputs::Zeros);
            });
            let folded = best(|| fold(kernel, parity, &bytes, 1));
            let by_fours = best(|| fold(kernel, parity, &bytes, 4));
            let decoded = best(|| {
                let mut places: Vec<&mut [u8]> =
                    outs.iter_mut().take(1).map(Vec::as_mut_slice).collect();
                let factors = &factors[factors.len() - data..];
                combine_with(kernel, &mut places, factors, &sources, Outputs::Zeros);
            });
            let each = |s: f64| s / (len * data) as f64 * 1e9;
            println!(
                "{data}+{parity}  {kernel:?}  {:.3}  {:.3}  {:.3}  {:.3}",
                each(encoded),
                each(folded),
                each(by_fours),
                each(decoded)
            );
        }
    }
}

fn best(mut work: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Pieces of 64 KiB of so many members at a time.
fn fold(kernel: Kernel, parity: usize, data: &[Vec<u8>], at_once: usize) {
    const PIECE: usize = 64 << 10;
    let mut sums = vec![vec![0; PIECE]; parity];
    for at in (0..data[0].len()).step_by(PIECE) {
        let end = data[0].len().min(at + PIECE);
        for (n, members) in data.chunks(at_once).enumerate() {
            let first = n * at_once;
            let factors: Vec<u8> = (0..parity)
                .flat_map(|j| (first..first + members.len()).map(move |i| coefficient(j, i)))
                .collect();
            let start = match n {
                0 => Outputs::Zeros,
                _ => Outputs::Present,
            };
            let sources: Vec<&[u8]> = members.iter().map(|member| &member[at..end]).collect();
            let mut places: Vec<&mut [u8]> = sums.iter_mut().map(|s| &mut s[..end - at]).collect();
            combine_with(kernel, &mut places, &factors, &sources, start);
        }
    }
}
