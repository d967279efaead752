//! Longshore's side of `xpress_vs.py`: compresses a file in chunks of 64 KiB, on one thread, once for each level read
//! from standard input, and answers each level with one line of JSON.
//!
//! Times are the thread's CPU times: what a core can do, on a machine that also does other work.

use longshore_codec::xpress::{CHUNK_BYTES_MAX, Encoder, decompress};
use std::collections::HashMap;
use std::io::BufRead;

fn main() -> std::io::Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: xpress_vs FILE, levels on standard input; run xpress_vs.py instead");
        std::process::exit(2);
    };
    let plain = std::fs::read(path)?;
    let mut encoders = HashMap::new();
    let mut chunks = vec![Vec::with_capacity(CHUNK_BYTES_MAX); plain.len() / CHUNK_BYTES_MAX + 1];
    let mut out = vec![0; CHUNK_BYTES_MAX];
    for line in std::io::stdin().lock().lines() {
        let level: u8 = line?.trim().parse().map_err(std::io::Error::other)?;
        let encoder = encoders.entry(level).or_insert_with(|| Encoder::new(level));

        let start = thread_seconds();
        for (chunk, kept) in plain.chunks(CHUNK_BYTES_MAX).zip(&mut chunks) {
            kept.clear();
            match encoder.compress(chunk, &mut out[..chunk.len()]) {
                Some(len) => kept.extend_from_slice(&out[..len]),
                None => kept.extend_from_slice(chunk),
            }
        }
        let compress_s = thread_seconds() - start;

        // The timed loop only decodes; the result is checked after it.
        let start = thread_seconds();
        let restore = |stored: &[u8], out: &mut [u8]| {
            if stored.len() < out.len() {
                decompress(stored, out).map_err(std::io::Error::other)
            } else {
                out.copy_from_slice(stored);
                Ok(())
            }
        };
        for (chunk, stored) in plain.chunks(CHUNK_BYTES_MAX).zip(&chunks) {
            restore(stored, &mut out[..chunk.len()])?;
        }
        let decompress_s = thread_seconds() - start;
        let mut stored_bytes = 0;
        for (chunk, stored) in plain.chunks(CHUNK_BYTES_MAX).zip(&chunks) {
            restore(stored, &mut out[..chunk.len()])?;
            assert!(
                out[..chunk.len()] == *chunk,
                "what was compressed does not come back"
            );
            stored_bytes += stored.len();
        }
        println!(
            "{{\"stored_bytes\": {stored_bytes}, \"compress_s\": {compress_s}, \
             \"decompress_s\": {decompress_s}}}"
        );
    }
    Ok(())
}

fn thread_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `clock_gettime` demands room for one `timespec`: `time` outlives the call. The clock exists on every
    // Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
