//! The source's files, read without the pipeline, for comparison with it.
//!
//! Invariants
//! - Files are read in the order of their names, small ones packed into one block, as the pipeline does.
//! - Only the reading is charged to the measured part, not the caller's work on a block.
//!
//! Leaves to others: the bare parts that are timed on these bytes (`bare.rs`), and the rounds (`rounds.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use longshore_io::{
    Clock, Dir, File, FileKind, HUGE_BYTES, OpenHow, Pool, Storage, Via, drop_from_cache,
    side_by_side,
};
use longshore_pipeline::SourceSpec;

use super::part::Part;

/// The pipeline's default buffer size.
pub const BLOCK_BYTES: usize = 1 << 20;

struct Member {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    path: PathBuf,
    len: u64,
}

/// All regular files of a source, in name order.
pub struct Corpus {
    members: Vec<Member>,
    pub bytes: u64,
}

impl Corpus {
    pub fn open(storage: &dyn Storage, source: &SourceSpec) -> Result<Corpus> {
        let paths: Vec<&PathBuf> = match source {
            SourceSpec::Sqlite(path) => vec![path],
            SourceSpec::Files(paths) => paths.iter().collect(),
            SourceSpec::Postgres(_) => bail!("a server has no files to compare with"),
        };
        let mut members = Vec::new();
        for path in paths {
            let walked = match storage.stat(path)?.kind {
                FileKind::Dir => storage
                    .dir(path)
                    .map_err(anyhow::Error::from)
                    .and_then(|dir| walk(&dir, path, &mut members)),
                _ => add_file(storage, path, &mut members),
            };
            walked.with_context(|| format!("cannot read {}", path.display()))?;
        }
        members.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = members.iter().map(|m| m.len).sum();
        ensure!(bytes > 0, "the source has no bytes to measure");
        Ok(Corpus { members, bytes })
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.members.iter().map(|m| m.path.as_path())
    }

    pub fn files(&self) -> usize {
        self.members.len()
    }

    fn file(&self, member: &Member) -> Result<Arc<dyn File>> {
        let opened = member.dir.open(&member.name, OpenHow::Read);
        opened.with_context(|| format!("cannot open {}", member.path.display()))
    }

    /// Fills `buffer` repeatedly, across files as the pipeline packs small ones, and passes each fill to `each`. Only
    /// the reading is charged to `read`.
    pub fn each_block(
        &self,
        clock: &dyn Clock,
        buffer: &mut [u8],
        read: &mut Part,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut filled = 0;
        for member in &self.members {
            let file = self.file(member)?;
            let mut offset = 0;
            while offset < member.len {
                let room = &mut buffer[filled..];
                let done = read.time(clock, || file.read_full_at(room, offset, Via::Cache))?;
                ensure!(done > 0, "{} became shorter", member.path.display());
                read.bytes += done as u64;
                offset += done as u64;
                filled += done;
                if filled == buffer.len() {
                    each(buffer)?;
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            each(&buffer[..filled])?;
        }
        Ok(())
    }

    /// Brings everything into the page cache.
    pub fn warm(&self, clock: &dyn Clock) -> Result<()> {
        let mut buffer = vec![0; BLOCK_BYTES];
        self.each_block(clock, &mut buffer, &mut Part::default(), |_| Ok(()))
    }

    /// Makes the files durable and drops them from the page cache.
    pub fn chill(&self) -> Result<()> {
        for member in &self.members {
            drop_from_cache(&member.path)
                .with_context(|| format!("cannot drop {}", member.path.display()))?;
        }
        Ok(())
    }

    /// The share of the bytes that is in the page cache, 0 to 1; only entirely cached blocks count.
    pub fn cached_share(&self) -> Result<f64> {
        let mut cached = 0;
        for member in &self.members {
            let file = self.file(member)?;
            for offset in (0..member.len).step_by(BLOCK_BYTES) {
                let end = (offset + BLOCK_BYTES as u64).min(member.len);
                cached += if file.is_cached(offset..end) {
                    end - offset
                } else {
                    0
                };
            }
        }
        Ok(cached as f64 / self.bytes as f64)
    }

    /// Reads everything past the page cache with that many threads; bytes and wall time.
    pub fn read_direct(&self, clock: &dyn Clock, threads: usize) -> Result<Part> {
        // In large pages, like the pipeline's buffers.
        let pool = Pool::new(threads.max(HUGE_BYTES / BLOCK_BYTES), BLOCK_BYTES)?;
        let blocks: Vec<(&Member, u64)> = self
            .members
            .iter()
            .flat_map(|m| {
                (0..m.len)
                    .step_by(BLOCK_BYTES)
                    .map(move |offset| (m, offset))
            })
            .collect();
        let next = AtomicUsize::new(0);
        let work = || -> Result<u64> {
            let mut buffer = pool.take().context("no buffer")?;
            let mut bytes = 0;
            let mut open: Option<(&Path, Arc<dyn File>)> = None;
            while let Some((member, offset)) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
                let file = match &open {
                    Some((path, file)) if *path == member.path => file.clone(),
                    _ => self.file(member)?,
                };
                bytes += file.read_full_at(&mut buffer, *offset, Via::Direct)? as u64;
                open = Some((&member.path, file));
            }
            Ok(bytes)
        };
        let start = clock.now();
        let read = side_by_side(threads, |_| work())?;
        let read: Result<Vec<u64>> = read.into_iter().collect();
        Ok(Part {
            bytes: read?.iter().sum(),
            wall_s: (clock.now() - start).as_secs_f64(),
            cpu_s: 0.0,
        })
    }
}

fn add_file(storage: &dyn Storage, path: &Path, members: &mut Vec<Member>) -> Result<()> {
    let real = storage.canonical(path)?;
    let parent = real.parent().context("it has no directory")?;
    let name = PathBuf::from(real.file_name().context("it has no name")?);
    let dir = storage.dir(parent)?;
    let len = dir.stat(&name)?.len;
    members.push(Member {
        dir,
        name,
        path: real,
        len,
    });
    Ok(())
}

fn walk(dir: &Arc<dyn Dir>, path: &Path, members: &mut Vec<Member>) -> Result<()> {
    let mut stack = vec![PathBuf::new()];
    while let Some(below) = stack.pop() {
        let inside = match below.as_os_str().is_empty() {
            true => dir.clone(),
            false => dir.dir(&below)?,
        };
        for name in inside.list()? {
            let name = PathBuf::from(name?);
            let stat = inside.stat(&name)?;
            match stat.kind {
                FileKind::Dir => stack.push(below.join(name)),
                FileKind::File if stat.len > 0 => members.push(Member {
                    dir: inside.clone(),
                    path: path.join(&below).join(&name),
                    name,
                    len: stat.len,
                }),
                _ => {}
            }
        }
    }
    Ok(())
}
