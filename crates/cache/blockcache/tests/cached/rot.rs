//! Goal: nothing stale is served when the medium of the table corrupts pages, or loses a write that it confirmed.
//! Method: the metadata of a cache that was in use on a simulated disk is spoiled page by page: zeros, a flipped bit,
//! or the page's earlier content. Each start is compared with the backend.
//! Not covered: forged metadata with right checksums (`hostile.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use longshore_blockcache::format::Superblock;
use longshore_blockcache::{CachedBackend, Error, Start, Verification};
use longshore_io::{Fault, Op, SimDisk, Storage, Via};

use crate::faults::serves_rightly;
use crate::{CACHE, Image, LINE, Random, differing, disk, settings, start};

/// A disk that was in use for a while, and the previous content of every page of its metadata.
struct Lived {
    disk: SimDisk,
    end: Image,
    older: BTreeMap<u64, Vec<Vec<u8>>>,
    /// All metadata as it was before the last events.
    early: Vec<u8>,
}

const LINES: usize = 480;
const SLOTS: u64 = 120;

/// Two sessions, in which the log is rewritten several times. At the end one cached line of each block is written and
/// not kept: the log forgets slot after slot, while their old bytes stay in place. So any table that is older than the
/// end is stale. Ends with a stop or a crash.
fn lived(seed: u64, clean: bool) -> Lived {
    let disk = disk(seed, LINES, SLOTS, 16 << 10);
    let mut versions: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let mut look = || {
        let bytes = disk.read_file(CACHE).unwrap();
        let metadata = bytes.len() - SLOTS as usize * (16 << 10);
        for (number, page) in (0..).zip(bytes[..metadata].chunks(LINE)) {
            let known = versions.entry(number).or_default();
            if known.last().is_none_or(|last| last != page) {
                known.push(page.to_vec());
            }
        }
        bytes[..metadata].to_vec()
    };
    let mut live = |cached: &CachedBackend, rounds: u64| {
        for round in 0..rounds {
            serves_rightly(&disk, cached, seed * 1000 + round, 6);
            look();
        }
    };
    let (cached, _) = start(&disk, settings("none")).unwrap();
    live(&cached, 60);
    cached.stop().unwrap();
    drop(cached);
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(how, Start::Warm);
    live(&cached, 60);
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    cached.checkpoint(true).unwrap();
    let early = look();
    cached.set_policy("slow".parse().unwrap());
    for page in 0..(LINES / 4) as u64 {
        let offset = page * 4 * LINE as u64;
        cached.write(&[0xf5; LINE], offset, false).unwrap();
        look();
    }
    if clean {
        cached.stop().unwrap();
    }
    drop(cached);
    look();
    let superblocks = versions[&0].len();
    assert!(
        superblocks > 4,
        "{superblocks}: the log was not written anew"
    );
    for known in versions.values_mut() {
        known.pop();
    }
    Lived {
        end: Image::of(&disk),
        older: versions,
        disk,
        early,
    }
}

/// Whether all cached data equals the backend's.
fn right(cached: &CachedBackend, truth: &[u8]) -> bool {
    let mut line = [0; LINE];
    cached
        .held()
        .into_iter()
        .flat_map(|range| range.step_by(LINE))
        .all(|at| {
            cached.read(&mut line, at).unwrap();
            line == truth[at as usize..][..LINE]
        })
}

impl Lived {
    /// A start with these bytes as the cache: everything read equals the backend's content.
    fn starts_right(&self, cache: &[u8], what: &str) -> Option<Start> {
        self.put(cache);
        match start(&self.disk, settings("none")) {
            Ok((cached, how)) => {
                assert_eq!(
                    differing(&cached, &self.disk),
                    Vec::<usize>::new(),
                    "{what}, {how:?}"
                );
                Some(how)
            }
            Err(longshore_blockcache::Error::NoCache { .. }) => None,
            Err(other) => panic!("{what}: {other}"),
        }
    }

    /// Only the cache's bytes change between starts, so that a clean stop is still recognised.
    fn put(&self, cache: &[u8]) {
        self.disk.write_file(CACHE, cache).unwrap();
        self.disk.write_file(Image::GUARD, &self.end.guard).unwrap();
    }

    fn with(&self, page: u64, new: &[u8]) -> Vec<u8> {
        let mut cache = self.end.cache.clone();
        cache[page as usize * LINE..][..LINE].copy_from_slice(new);
        cache
    }

    fn page(&self, number: u64) -> &[u8] {
        &self.end.cache[number as usize * LINE..][..LINE]
    }

    /// One page, corrupted without forgery: zeros, one flipped bit, its content before its last change.
    fn spoiled(&self, number: u64, random: &mut Random) -> Vec<(String, Vec<u8>)> {
        let page = self.page(number);
        let mut all = vec![("zeros".to_owned(), vec![0; LINE])];
        // A superblock is short, and the rest of its page is unused.
        let end = if number < 2 { 120 } else { LINE };
        let (at, bit) = (random.below(end as u64) as usize, random.below(8));
        let mut other = page.to_vec();
        other[at] ^= 1 << bit;
        all.push((format!("bit {bit} of byte {at}"), other));
        let older = self.older[&number].last();
        all.extend(older.map(|old| ("as it was before its last change".to_owned(), old.clone())));
        all
    }
}

fn any_one_page(seed: u64, clean: bool) {
    let lived = lived(seed, clean);
    let mut random = Random(seed);
    let believed = if clean {
        Start::Warm
    } else {
        Start::AfterCrash
    };
    assert_eq!(
        lived.starts_right(&lived.end.cache, "whole"),
        Some(believed)
    );
    let (mut whole, mut damaged) = (0, 0);
    for (number, older) in &lived.older {
        // Pages that were never written are unused.
        if older.is_empty() {
            continue;
        }
        for (how, new) in lived.spoiled(*number, &mut random) {
            let what = format!("page {number}: {how}");
            let how = lived.starts_right(&lived.with(*number, &new), &what);
            match how {
                Some(Start::Damaged) => damaged += 1,
                Some(how) if how == believed || how == Start::AfterCrash => whole += 1,
                other => panic!("{what}: {other:?}"),
            }
            // The log is stored twice.
            assert!(*number < 2 || how == Some(believed), "{what}: {how:?}");
        }
    }
    assert!(
        whole > 400 && damaged >= 4,
        "{whole} whole, {damaged} damaged"
    );
}

#[test]
fn any_one_spoiled_or_lost_page_of_metadata_serves_nothing_stale_after_a_clean_stop() {
    any_one_page(1, true);
}

#[test]
fn any_one_spoiled_or_lost_page_of_metadata_serves_nothing_stale_after_a_crash() {
    any_one_page(2, false);
}

/// Both copies of a page of the log: a clean stop records how long the log was, and after a crash later commits
/// reveal the gap.
#[test]
fn a_gap_in_the_log_is_not_taken_for_its_end() {
    for (seed, clean) in [(3, true), (4, false)] {
        let lived = lived(seed, clean);
        let mut random = Random(seed);
        let superblock = Superblock::decode(lived.page(0)).unwrap();
        let log_pages = u64::from(superblock.geometry.log_pages);
        let (mut damaged, mut believed) = (Vec::new(), Vec::new());
        for at in 2..2 + 2 * log_pages {
            if lived.older[&at].is_empty() {
                continue;
            }
            let copies = [at, at + 2 * log_pages];
            let ways = copies.map(|number| lived.spoiled(number, &mut random));
            let [first, second] = ways;
            for ((how, new), (and_how, other)) in first.into_iter().zip(second) {
                let mut cache = lived.with(at, &new);
                cache[copies[1] as usize * LINE..][..LINE].copy_from_slice(&other);
                lived.put(&cache);
                let (cached, start) = start(&lived.disk, settings("none")).unwrap();
                let what = format!("page {at}: {how}, {and_how}: {start:?}");
                // If only the sample at the start noticed it, the log did not.
                let right = right(&cached, &lived.end.backend) && start != Start::LinesDiffer;
                match start {
                    Start::Damaged => damaged.push(at),
                    _ => believed.push((at, right)),
                }
                // After a crash the last commit cannot be distinguished from an interrupted one.
                assert!(right || !clean, "{what}");
            }
        }
        damaged.dedup();
        believed.dedup();
        let stale: Vec<u64> = believed
            .iter()
            .filter(|(_, right)| !right)
            .map(|(at, _)| *at)
            .collect();
        assert!(damaged.len() > 5, "{damaged:?}");
        assert!(
            stale.iter().all(|at| damaged.iter().all(|d| d <= at)) && stale.len() <= 1,
            "{stale:?} of {damaged:?}"
        );
    }
}

/// Torn writes and a power cut, and then a corrupted page.
#[test]
fn a_spoiled_page_after_a_power_cut_serves_nothing_stale() {
    let lived = lived(5, false);
    let steps = lived.disk.steps();
    let mut random = Random(5);
    let (cached, _) = {
        lived.put(&lived.end.cache);
        start(&lived.disk, settings("none")).unwrap()
    };
    serves_rightly(&lived.disk, &cached, 6, 60);
    drop(cached);
    assert!(lived.disk.steps() > steps);
    let mut starts = 0;
    for image in lived.disk.images(40) {
        let end = Image::of(&image);
        for _ in 0..12 {
            let number = random.below(end.metadata_pages());
            let mut cache = end.cache.clone();
            let place = &mut cache[number as usize * LINE..][..LINE];
            match random.below(3) {
                0 => place.fill(0),
                1 => place[random.below(96) as usize] ^= 1 << random.below(8),
                _ => match lived.older.get(&number).and_then(|old| old.last()) {
                    Some(old) => place.copy_from_slice(old),
                    None => continue,
                },
            }
            image.write_file(CACHE, &cache).unwrap();
            image.write_file(Image::GUARD, &end.guard).unwrap();
            if let Ok((cached, how)) = start(&image, settings("none")) {
                assert_eq!(
                    differing(&cached, &image),
                    Vec::<usize>::new(),
                    "page {number}, {how:?}"
                );
                starts += 1;
            }
        }
    }
    assert!(starts > 300, "{starts}");
}

/// All metadata of an earlier moment of the session is sound and stale: only the comparison with the backend reveals
/// it.
#[test]
fn an_older_table_is_noticed_by_the_backends_content() {
    let lived = lived(2, false);
    let mut cache = lived.end.cache.clone();
    cache[..lived.early.len()].copy_from_slice(&lived.early);
    lived.put(&cache);
    let (cached, how) = start(&lived.disk, settings("none")).unwrap();
    assert!(
        matches!(how, Start::LinesDiffer | Start::ContentChanged),
        "{how:?}"
    );
    assert_eq!(cached.status().held_bytes, 0);
    assert!(right(&cached, &lived.end.backend));
}

/// Goal: a verification tells lines that the cache device does not return as they were written, and changes nothing unless it
/// repairs; a repair is durable.
#[test]
fn a_verification_tells_rotten_lines_and_only_a_repair_drops_them() {
    let disk = disk(1, LINES, SLOTS, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    cached.checkpoint(true).unwrap();
    let lines = cached.status().held_bytes / LINE as u64;
    let capacity = cached.status().capacity_bytes as usize;
    let first = (disk.read_file(CACHE).unwrap().len() - capacity) >> 20 << 20;
    let medium = disk.disk(Path::new(CACHE)).unwrap();
    for slot in 0..20 {
        let place = (first + ((slot * 5 + 1) * 4 + 1) * LINE) as u64;
        medium
            .write_all_at(&[0x77; LINE], place, Via::Cache)
            .unwrap();
    }
    let found = |unreadable| Verification {
        compared: lines - unreadable,
        unreadable,
        ..Verification::default()
    };
    let figures = || {
        let status = cached.status();
        let errors = cached.counters().cache_errors + cached.counters().damaged_reads;
        let slots = (status.held_slots, status.retired_slots);
        (
            status.cache,
            status.held_bytes,
            status.durable_bytes,
            slots,
            errors + status.device_faults,
        )
    };
    let before = figures();
    for _ in 0..2 {
        assert_eq!(cached.verify(false).unwrap(), found(20));
        assert_eq!(figures(), before);
    }
    disk.inject(Fault::errno(libc::EIO).on(Op::Read).below("/fast"));
    assert_eq!(cached.verify(false).unwrap(), found(lines));
    disk.heal();
    assert_eq!(figures(), before);
    assert_eq!(cached.verify(true).unwrap(), found(20));
    let left = lines - 20 * 4;
    let sound = Verification {
        compared: left,
        ..Verification::default()
    };
    assert_eq!(cached.verify(false).unwrap(), sound);
    assert_eq!(
        (cached.status().cache, cached.status().retired_slots),
        ("attached", 20)
    );
    // No checkpoint comes in between.
    drop(cached);
    let (cached, how) = start(&disk, settings("none")).unwrap();
    assert_eq!(
        (how, cached.status().held_bytes),
        (Start::AfterCrash, left * LINE as u64)
    );
}

/// Goal: nobody takes a cache that was given up for one without differences.
#[test]
fn a_verification_of_a_cache_that_was_given_up_is_refused() {
    let disk = disk(1, LINES, SLOTS, 16 << 10);
    let (cached, _) = start(&disk, settings("none")).unwrap();
    assert_eq!(differing(&cached, &disk), Vec::<usize>::new());
    cached.checkpoint(true).unwrap();
    disk.inject(Fault::errno(libc::EIO).on(Op::Write).below("/fast"));
    cached.write(&[1; LINE], 0, false).unwrap();
    assert_eq!(cached.status().cache, "failed");
    for repair in [false, true] {
        let refused = cached.verify(repair);
        assert!(matches!(refused, Err(Error::GivenUp)), "{refused:?}");
    }
}
