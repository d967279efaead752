//! The content to compress: three kinds, in memory, the same bytes on every run.
//!
//! Invariants
//! - Every run has the same bytes, from fixed seeds.
//! - Content is cut to whole blocks of 1 MiB, so that no result depends on where a sample ends.
//!
//! Leaves to others: building the sample database (`stock.rs`), and measuring (`speed.rs`).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use longshore_io::{Buffer, OpenHow, Pool, Via};
use longshore_pipeline::RunContext;

use crate::sample::SampleKind;
use crate::stock;

/// The pipeline's default buffer size.
const BLOCK_BYTES: usize = 1 << 20;

/// One kind of content in buffers of 1 MiB, as a backup would read it.
#[derive(Clone)]
pub struct SampleContent {
    pub name: &'static str,
    pub buffers: Vec<Arc<Buffer>>,
}

impl SampleContent {
    fn new(
        name: &'static str,
        bytes: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<SampleContent> {
        let count = bytes.div_ceil(BLOCK_BYTES).max(1);
        let pool = Pool::new(count, BLOCK_BYTES)?;
        let buffers = (0..count).map(|_| {
            let mut buffer = pool.try_take().context("a pool has as many as were made")?;
            fill(&mut buffer)?;
            Ok(Arc::new(buffer))
        });
        let buffers = buffers.collect::<Result<_>>()?;
        Ok(SampleContent { name, buffers })
    }
}

/// `bytes` of each: pages of a stock-trading database, built in `work` and kept there; text; noise.
pub fn contents(context: &RunContext, work: &Path, bytes: usize) -> Result<Vec<SampleContent>> {
    Ok(vec![
        pages(context, work, bytes)?,
        SampleContent::new("text", bytes, text())?,
        SampleContent::new("noise", bytes, noise())?,
    ])
}

fn pages(context: &RunContext, work: &Path, bytes: usize) -> Result<SampleContent> {
    let path = stock::sample_in(
        &*context.storage,
        work,
        SampleKind::Stae,
        bytes as u64,
        &|_| {},
    )?;
    let name = path.file_name().context("a sample has a name")?;
    let file = context
        .storage
        .dir(work)?
        .open(Path::new(name), OpenHow::Read)?;
    let len = context.storage.stat(&path)?.len as usize;
    let mut offset = 0;
    // Whole blocks only: the measurement must not depend on where a sample happens to end.
    SampleContent::new(
        "pages",
        len.min(bytes) / BLOCK_BYTES * BLOCK_BYTES,
        |buffer| {
            file.read_full_at(buffer, offset, Via::Cache)?;
            offset += buffer.len() as u64;
            Ok(())
        },
    )
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Words of a small vocabulary, as in a log.
fn text() -> impl FnMut(&mut [u8]) -> Result<()> {
    const WORDS: [&str; 24] = [
        "the", "order", "of", "customer", "was", "accepted", "and", "sent", "to", "harbour",
        "with", "number", "at", "price", "by", "agent", "in", "lot", "cargo", "ship", "crane",
        "delayed", "until", "morning",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move |buffer| {
        let mut line = Vec::with_capacity(buffer.len() + 64);
        while line.len() < buffer.len() {
            let number = next(&mut state);
            line.extend_from_slice(WORDS[(number % 24) as usize].as_bytes());
            match number >> 61 {
                0 => line.extend_from_slice(format!(" {}.\n", number as u16).as_bytes()),
                _ => line.push(b' '),
            }
        }
        let len = buffer.len();
        buffer.copy_from_slice(&line[..len]);
        Ok(())
    }
}

fn noise() -> impl FnMut(&mut [u8]) -> Result<()> {
    let mut state = 1u64;
    move |buffer| {
        for word in buffer.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        Ok(())
    }
}
