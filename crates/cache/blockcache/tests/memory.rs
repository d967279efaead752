//! The memory of a cache, as docs/cache-daemon.md states it. Alone in its program: it counts all allocations.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use longshore_blockcache::{Backend, CachedBackend, Settings, create, open};
use longshore_io::{Host, HostClock, Via};
use longshore_kit::alloc::{self, Counting};
use longshore_policy::model::Profile;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: u64 = 1 << 20;

fn settings(policy: &str) -> Settings {
    let outlook = |name| Profile::named(name).unwrap().outlook();
    Settings {
        choice: policy.parse().unwrap(),
        fast: outlook("optane-905p"),
        slow: outlook("samsung-970pro"),
        fast_via: Via::Cache,
        slow_via: Via::Cache,
        fillers: 0,
        clients: 1,
    }
}

/// Bytes allocated while a cache of about `capacity` bytes is at work, with all its slots in use, and again after ten
/// times as many requests; and its capacity.
fn taken(dir: &Path, policy: &str, capacity: u64, slot_bytes: u32) -> ([usize; 2], u64) {
    let (backend, cache) = (dir.join("backend"), dir.join("cache"));
    let len = 3 * capacity;
    File::create(&backend).unwrap().set_len(len).unwrap();
    let before = alloc::live();
    let room = capacity + capacity / 16 + 2 * MIB;
    create(&Host::new(), &cache, Some(room), slot_bytes, true).unwrap();
    let named = Backend {
        path: backend,
        guard: None,
    };
    let clock = Arc::new(HostClock);
    let opened = open(&Host::new(), &named, Some(&cache), settings("none"), clock).unwrap();
    opened.cache.unwrap().unwrap();
    let cached = opened.cached;
    let capacity = cached.status().capacity_bytes;
    // One line of each slot is enough for the table, and keeps the disk out of it.
    let pass = |cached: &CachedBackend, from: u64, to: u64| {
        for offset in (from..to).step_by(slot_bytes as usize) {
            // Twice, for policies that admit nothing the first time.
            for _ in 0..2 {
                cached.read(&mut [0; 4096], offset).unwrap();
            }
        }
    };
    pass(&cached, 0, capacity);
    let status = cached.status();
    assert!(status.free_slots * 20 <= status.held_slots, "{status:?}");
    cached.set_policy(policy.parse().unwrap());
    let full = alloc::live() - before;
    for _ in 0..4 {
        pass(&cached, 0, len);
    }
    let later = alloc::live() - before;
    drop(cached);
    ([full, later], capacity)
}

#[test]
fn a_gib_of_cache_takes_what_the_page_says_however_much_it_is_used() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (slot_bytes, capacity, stated_mib) in [(65536, 256 * MIB, 9.0), (4096, 32 * MIB, 100.0)] {
        // Just above a power of two, where tables that double take most; the policies that remember most are among
        // them.
        for policy in ["none", "none+s3-fifo", "none+arc", "aware"] {
            // Memory that a small one takes is taken by others, too, independent of size.
            let ([small, _], least) = taken(dir.path(), policy, capacity / 16, slot_bytes);
            let (large, most) = taken(dir.path(), policy, capacity, slot_bytes);
            let mib = large.map(|bytes| {
                let more = bytes.saturating_sub(small) as f64;
                more / (most - least) as f64 * 1024.0
            });
            println!("{policy}, slots of {slot_bytes}: {mib:.1?} MiB for each GiB");
            assert!(
                mib.iter().all(|mib| *mib <= stated_mib),
                "{policy}, slots of {slot_bytes}: {mib:?} MiB for each GiB, not {stated_mib}"
            );
        }
    }
}
