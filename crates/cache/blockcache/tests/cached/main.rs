//! Goal: the cached backend never returns a stale byte and loses no write that a flush confirmed, whatever happens to
//! either device: power cuts, faults, hostile metadata, concurrency. The modules show one of these each; this file has
//! their common stage.
//! Method: simulated disks. The oracle is the backend itself and a model of the writes.
//! Not covered: real devices, and the server in front of the cache.

#[path = "../../../../core/io/tests/contract/clock.rs"]
mod clock_contract;
mod concurrent;
mod device;
mod faults;
mod hostile;
mod making;
mod power;
mod resize;
mod restart;
mod rot;
mod scan;
mod shadow;
mod storm;
mod told;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_blockcache::format::Superblock;
use longshore_blockcache::{Backend, CachedBackend, Error, Settings, Start, create, open};
use longshore_io::{HostClock, SimDisk, Storage, Via};
use longshore_kit::Random;
use longshore_policy::model::PROFILES;

const BACKEND: &str = "/slow/backend";
const CACHE: &str = "/fast/cache";
const LINE: usize = 4096;

fn backend() -> Backend {
    Backend {
        path: PathBuf::from(BACKEND),
        guard: None,
    }
}

fn settings(policy: &str) -> Settings {
    let outlook = |name| PROFILES.iter().find(|p| p.name == name).unwrap().outlook();
    Settings {
        choice: policy.parse().unwrap(),
        fast: outlook("optane-905p"),
        slow: outlook("samsung-970pro"),
        fast_via: Via::Cache,
        slow_via: Via::Cache,
        fillers: 0,
        clients: 4,
    }
}

/// A backend of `lines` numbered lines and an odd end, and an empty cache of `slots` of `slot_bytes`.
fn disk(seed: u64, lines: usize, slots: u64, slot_bytes: u32) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.mount("/slow").unwrap();
    disk.mount("/fast").unwrap();
    let bytes: Vec<u8> = (0..lines * LINE + 700)
        .map(|at| (at / LINE * 7 + at % 251) as u8)
        .collect();
    disk.write_file(BACKEND, &bytes).unwrap();
    let mut len = slots * u64::from(slot_bytes) + (1 << 20);
    let shape = loop {
        // The log's share depends on the number of slots.
        let disk = SimDisk::new(0);
        disk.create_dir_all(Path::new("/fast")).unwrap();
        let shape = create(&disk, Path::new(CACHE), Some(len), slot_bytes, false);
        match shape {
            Ok(shape) if u64::from(shape.slots) >= slots => break shape,
            _ => len += u64::from(slot_bytes),
        }
    };
    assert_eq!(u64::from(shape.slots), slots);
    create(&disk, Path::new(CACHE), Some(len), slot_bytes, false).unwrap();
    disk.settle();
    disk
}

fn start(disk: &dyn Storage, settings: Settings) -> Result<(CachedBackend, Start), Error> {
    let cache = Some(Path::new(CACHE));
    let opened = open(disk, &backend(), cache, settings, Arc::new(HostClock))?;
    Ok((opened.cached, opened.cache.unwrap()?))
}

/// Reads everything through the cache, first the cached data, then line by line, and returns the lines that differ
/// from the backend's bytes.
fn differing(cached: &CachedBackend, disk: &SimDisk) -> Vec<usize> {
    let truth = disk.read_file(BACKEND).unwrap();
    let mut line = vec![0; LINE];
    for range in cached.held() {
        for start in range.step_by(LINE) {
            cached.read(&mut line, start).unwrap();
            if line != truth[start as usize..][..LINE] {
                return vec![start as usize / LINE];
            }
        }
    }
    let differs = |(number, chunk): (usize, &[u8])| {
        let out = &mut line[..chunk.len()];
        cached.read(out, (number * LINE) as u64).unwrap();
        (out != chunk).then_some(number)
    };
    truth.chunks(LINE).enumerate().filter_map(differs).collect()
}

/// The content of both disks at one moment.
struct Image {
    cache: Vec<u8>,
    backend: Vec<u8>,
    guard: Vec<u8>,
}

impl Image {
    const GUARD: &str = "/slow/backend.longshore-guard";

    fn of(disk: &SimDisk) -> Image {
        Image {
            cache: disk.read_file(CACHE).unwrap(),
            backend: disk.read_file(BACKEND).unwrap(),
            guard: disk.read_file(Self::GUARD).unwrap(),
        }
    }

    /// Puts it on a disk, with these bytes for the cache; the times of the backend are the present ones.
    fn put(&self, disk: &SimDisk, cache: &[u8]) {
        disk.write_file(CACHE, cache).unwrap();
        disk.write_file(BACKEND, &self.backend).unwrap();
        disk.write_file(Self::GUARD, &self.guard).unwrap();
    }

    /// Pages of 4 KiB before the first slot.
    fn metadata_pages(&self) -> u64 {
        let shape = Superblock::decode(&self.cache).unwrap().geometry;
        (self.cache.len() as u64 - shape.capacity_bytes()) / LINE as u64
    }
}
