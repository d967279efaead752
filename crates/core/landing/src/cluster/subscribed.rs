//! Subscriptions that a restored server would continue.
//!
//! A subscriber's workers use their replication slots at the publishers. A copy that opens while its original runs uses
//! the same slots: each gets a part of the changes, or the original is shut out. The catalog `pg_subscription` says
//! which are enabled.
//!
//! Invariants
//! - The catalog is read as backed up, before replay, so one that was recently dropped or disabled may still be named.
//! - Nothing is changed, and nothing fails: a catalog that cannot be read names none.
//! - No bytes panic, and memory is bounded.
//!
//! Leaves to others: preventing them (`--no-subscriptions`, in `longshore-pg`'s `recovery.rs`), and showing the notice.
//!
//! Source: PostgreSQL 14 to 18, `catalog/pg_subscription.h`, `utils/cache/relmapper.c`, `storage/bufpage.h`,
//! `access/htup_details.h`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, OpenHow, Storage, Via};

const MAP: &str = "global/pg_filenode.map";
const MAP_LEN: usize = 512;
/// `RELMAPPER_FILEMAGIC`.
const MAP_MAGIC: u32 = 0x0059_2717;
/// `SubscriptionRelationId`.
const SUBSCRIPTIONS: u32 = 6100;

const PAGE: usize = 8192;
/// Some thousand subscriptions; later pages are not read.
const LEN_MAX: u64 = 16 << 20;
/// `SizeOfPageHeaderData`.
const HEADER: usize = 24;
/// `LP_NORMAL`.
const NORMAL: u32 = 1;
/// Bits of `t_infomask`.
const XMAX_COMMITTED: u16 = 0x0400;
const XMAX_LOCK_ONLY: u16 = 0x0080;

/// The names of enabled subscriptions in the cluster at `data`, which was restored and never started. One that was
/// recently dropped or disabled may still be included. Empty if the catalog cannot be read.
pub fn enabled_subscriptions(storage: &dyn Storage, data: &Path) -> Vec<String> {
    let read = || -> io::Result<BTreeSet<String>> {
        let dir = storage.dir(data)?;
        let version = text(&*dir, Path::new("PG_VERSION"), 64)?;
        let version = String::from_utf8_lossy(&version).trim().parse::<u32>();
        let major = version.map_err(io::Error::other)?;
        let map = text(&*dir, Path::new(MAP), MAP_LEN as u64)?;
        let Some(number) = mapped(&map) else {
            return Ok(BTreeSet::new());
        };
        let path = PathBuf::from("global").join(number.to_string());
        let heap = text(&*dir, &path, LEN_MAX)?;
        Ok(heap
            .chunks_exact(PAGE)
            .flat_map(|page| enabled(page, major))
            .collect())
    };
    read().unwrap_or_default().into_iter().collect()
}

/// The notice about them.
pub fn told_of_subscriptions(names: &[String]) -> String {
    format!(
        "its subscriptions are enabled ({}): when the server opens, their workers take over the slots at the publishers; \
         if the original still runs, set max_logical_replication_workers = 0 before you start the copy, or restore it with \
         --no-subscriptions",
        names.join(", ")
    )
}

pub(super) fn text(dir: &dyn Dir, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = dir.open(path, OpenHow::Read)?;
    let len = file.stat()?.len.min(max);
    let mut bytes = vec![0; len as usize];
    let got = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The file number of the catalog.
fn mapped(map: &[u8]) -> Option<u32> {
    if u32_at(map, 0)? != MAP_MAGIC {
        return None;
    }
    let count = u32_at(map, 4)? as usize;
    let pairs = (0..count).map_while(|n| Some((u32_at(map, 8 + 8 * n)?, u32_at(map, 12 + 8 * n)?)));
    pairs
        .take_while(|(relation, _)| *relation != 0)
        .find(|(relation, _)| *relation == SUBSCRIPTIONS)
        .map(|(_, number)| number)
}

/// The names in a page's rows with `subenabled` set.
fn enabled(page: &[u8], major: u32) -> Vec<String> {
    // The name follows oid and subdbid; since version 15 subskiplsn precedes it.
    let name = match major {
        ..15 => 8,
        15.. => 16,
    };
    const NAME: usize = 64;
    let lower = usize::from(u16_at(page, 12).unwrap_or(0)).min(PAGE);
    let row = |pointer: usize| -> Option<String> {
        let item = u32_at(page, pointer)?;
        let (at, state, len) = (item & 0x7fff, (item >> 15) & 3, item >> 17);
        if state != NORMAL {
            return None;
        }
        let tuple = page.get(at as usize..(at + len) as usize)?;
        let (xmax, mask) = (u32_at(tuple, 4)?, u16_at(tuple, 20)?);
        if xmax != 0 && mask & XMAX_COMMITTED != 0 && mask & XMAX_LOCK_ONLY == 0 {
            return None;
        }
        let data = tuple.get(usize::from(*tuple.get(22)?)..)?;
        let told = data.get(name..name + NAME)?;
        let told = told.split(|byte| *byte == 0).next()?;
        let is_enabled = *data.get(name + NAME + 4)? == 1;
        is_enabled.then(|| String::from_utf8_lossy(told).into_owned())
    };
    (HEADER..lower).step_by(4).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_map_or_page_names_nothing() {
        let mut map = vec![0; MAP_LEN];
        assert_eq!(mapped(&map), None);
        map[..4].copy_from_slice(&MAP_MAGIC.to_le_bytes());
        map[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(mapped(&map), None);
        map[4..8].copy_from_slice(&2u32.to_le_bytes());
        for (at, number) in [(8, 1262u32), (12, 5), (16, SUBSCRIPTIONS), (20, 77)] {
            map[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        assert_eq!(mapped(&map), Some(77));
        for fill in [0u8, 0x5a, 0xff] {
            for major in [14, 18] {
                assert_eq!(enabled(&[fill; PAGE], major), [""; 0]);
            }
        }
        assert_eq!(enabled(&[0; 10], 18), [""; 0]);
    }
}
