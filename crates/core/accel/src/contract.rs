//! The contract of every engine, as a suite that all engines and all their doubles run.
//!
//! Invariants
//! - The judge is a decoder that shares no code with the engine.
//! - The suite returns how many jobs were done, and the caller demands all of them from a healthy engine: a suite that
//!   let every engine leave work undone could not fail.
//! - Jobs have the least room that a real caller gives, so an engine that writes too much is found.
//!
//! Leaves to others: speed, hangs and failures of a device (the doubles' own tests), and the text of the promises
//! (`engine.rs`).

use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use longshore_io::Pool;

use crate::{Engine, Job, Outcome, Task};

/// Runs `jobs` as one batch and checks the promises of [`Engine`]: the same jobs come back, in the same order, with
/// their own buffers, none pending, and the results are correct. Returns how many were done; the caller must demand
/// all of them from a healthy engine.
///
/// `decode(payload, plain_len)` is the independent judge; `None` if it refuses the payload.
///
/// # Panics
/// If the engine breaks its promise.
pub fn engine_contract(
    engine: &dyn Engine,
    jobs: Vec<Job>,
    decode: impl Fn(&[u8], usize) -> Option<Vec<u8>>,
) -> usize {
    let facts = |job: &Job| {
        let input = job.input.as_ptr();
        let ranges = (job.input_range.clone(), job.output_range.clone());
        (job.sequence, job.task, input, ranges)
    };
    let before: Vec<_> = jobs.iter().map(facts).collect();
    let inputs: Vec<Vec<u8>> = jobs.iter().map(|job| job.input().to_vec()).collect();
    let name = engine.caps().name;
    let after = engine.run(jobs);
    let handed_back: Vec<_> = after.iter().map(facts).collect();
    assert_eq!(handed_back, before, "{name}: other jobs, or another order");
    let mut done = 0;
    for (job, input) in after.iter().zip(&inputs) {
        let at = format!("{name}, job {}", job.sequence);
        assert_eq!(job.input(), input, "{at}: the input was changed");
        match (&job.outcome, job.task) {
            (Outcome::Pending, _) => panic!("{at}: pending"),
            (Outcome::Recompute(_), _) => continue,
            (Outcome::Done { len }, Task::Compress { .. }) => {
                let plain = decode(&job.output()[..*len], input.len());
                assert!(
                    plain.as_ref() == Some(input),
                    "{at}: does not decode to its input"
                );
            }
            (Outcome::Done { len }, Task::Decompress { plain_len }) => {
                assert_eq!(*len, plain_len, "{at}: another length");
                let plain = decode(input, plain_len);
                assert!(
                    plain.as_deref() == Some(&job.output()[..*len]),
                    "{at}: not the payload's plain bytes"
                );
            }
        }
        done += 1;
    }
    done
}

/// Jobs that compress database-like pages of these lengths, each with the least room that it may be given.
pub fn compression_jobs(algorithm: Algorithm, lens: &[usize]) -> Vec<Job> {
    jobs(lens, |plain, input| {
        input[..plain.len()].copy_from_slice(plain);
        let task = Task::Compress { level: Level::Low };
        (task, plain.len(), payload_bound(algorithm, plain.len()))
    })
}

/// Jobs that restore what software compressed from pages of these lengths.
pub fn decompression_jobs(algorithm: Algorithm, lens: &[usize]) -> Vec<Job> {
    let mut compressor = Compressor::new(algorithm, Level::Low).expect("LOW exists everywhere");
    jobs(lens, |plain, input| {
        let payload = compressor.compress(plain, input);
        let plain_len = plain.len();
        (Task::Decompress { plain_len }, payload.len, plain_len)
    })
}

fn jobs(
    lens: &[usize],
    mut fill: impl FnMut(&[u8], &mut [u8]) -> (Task, usize, usize),
) -> Vec<Job> {
    let longest = lens.iter().copied().max().unwrap_or(1);
    let bytes = 2 * longest + (64 << 10);
    let pool = Pool::new(2 * lens.len().max(1), bytes).expect("a test has so much memory");
    let take = || pool.try_take().expect("two for each job");
    let job = |(i, &len): (usize, &usize)| {
        let (mut input, output) = (take(), take());
        let (task, input_len, output_len) = fill(&pages(i as u64 + 1, len), &mut input);
        Job {
            sequence: i as u64,
            task,
            input: Arc::new(input),
            input_range: 0..input_len,
            output,
            output_range: 0..output_len,
            outcome: Outcome::Pending,
        }
    };
    lens.iter().enumerate().map(job).collect()
}

/// Bytes that compress about threefold, the same for the same seed.
pub fn pages(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(format!("row {:08x} name-{} ", state as u32, state % 97).as_bytes());
    }
    out.truncate(len);
    out
}

/// A judge for each algorithm: for QAT_DEFLATE miniz_oxide with a separate gzip reader, for the others this crate's
/// decoders, which other tests compare with stock tools.
pub fn stock_decode(algorithm: Algorithm, payload: &[u8], plain_len: usize) -> Option<Vec<u8>> {
    if algorithm == Algorithm::QatDeflate {
        return gunzip(payload, plain_len);
    }
    let mut plain = vec![0; plain_len];
    let decoded = Decompressor::new().decompress(algorithm, payload, &mut plain);
    decoded.is_ok().then_some(plain)
}

/// RFC 1952 members without trailing bytes, inflated by miniz_oxide; checks each member's CRC-32 and length.
pub fn gunzip(mut rest: &[u8], plain_len: usize) -> Option<Vec<u8>> {
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
    const EXTRA: u8 = 4;
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut plain = vec![0; plain_len];
    let mut at = 0;
    while !rest.is_empty() {
        let header: &[u8; 10] = rest.first_chunk()?;
        if header[..3] != [0x1f, 0x8b, 8] || header[3] & !EXTRA != 0 {
            return None;
        }
        rest = &rest[10..];
        if header[3] == EXTRA {
            let (len, after) = rest.split_first_chunk::<2>()?;
            rest = after.get(usize::from(u16::from_le_bytes(*len))..)?;
        }
        let mut inflater = DecompressorOxide::new();
        let (status, read, wrote) = decompress(&mut inflater, rest, &mut plain, at, flags);
        if status != miniz_oxide::inflate::TINFLStatus::Done {
            return None;
        }
        let (footer, after) = rest.get(read..)?.split_first_chunk::<8>()?;
        let crc = crc_fast::crc32_iso_hdlc(&plain[at..at + wrote]);
        if footer[..4] != crc.to_le_bytes() || footer[4..] != (wrote as u32).to_le_bytes() {
            return None;
        }
        (rest, at) = (after, at + wrote);
    }
    (at == plain_len).then_some(plain)
}
