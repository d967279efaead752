//! Goal: a restore of a chain of sets that no backup would make ends, and touches nothing except its target.
//! Method: the caller's choices, random or fuzzed, decide names, kinds, lengths and parents. The chain is restored and
//! verified on a simulated disk next to a canary, whose bytes are compared then.
//! Not covered: bytes that are no sets (the tests of media).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_io::{HostClock, SimDisk, Storage};
use longshore_media::{DeviceSpec, Entry, EntryKind, Extent, Item};
use longshore_pipeline::{
    Error, Limits, NullObserver, Report, Request, RestoreRequest, RunContext, Tuning, VerifyDepth,
    VerifyRequest, run,
};
use uuid::Uuid;

use super::forge::{Block, Claims, write};

/// Names that lead elsewhere, and ordinary ones that several sets use.
const PATHS: [&str; 12] = [
    "f",
    "f/g",
    "d",
    "d/f",
    "l",
    "l/secret",
    "../canary/secret",
    "/canary/secret",
    "d/../../canary/secret",
    ".longshore-restoring/new/f",
    ".longshore-restoring",
    "global/pg_control",
];

const LENS: [u64; 6] = [0, 1, 1000, 60_000, 1 << 40, i64::MAX as u64];

fn item(choose: &mut dyn FnMut(usize) -> usize) -> (Item, u64) {
    let kind = match choose(8) {
        0 => EntryKind::Dir,
        1 => EntryKind::Symlink {
            target: ["../canary", "/canary", "d", "../../../canary/secret"][choose(4)].into(),
        },
        2 => EntryKind::HardLink {
            target: PATHS[choose(PATHS.len())].into(),
        },
        _ => EntryKind::File,
    };
    // Mostly allowed names: others end a restore at once.
    let path = match choose(30) {
        0 => PATHS[choose(PATHS.len())],
        _ => PATHS[choose(6)],
    };
    let entry = Entry {
        path: path.into(),
        based: kind == EntryKind::File && choose(3) > 0,
        xattrs: Vec::new(),
        kind,
        first: choose(4) > 0,
        mode: 0o777,
        uid: 0,
        gid: 0,
        mtime_ns: 0,
        len: LENS[if choose(5) == 0 { choose(6) } else { choose(4) }],
    };
    let len = entry.len;
    (Item::Entry(entry), len)
}

fn block(choose: &mut dyn FnMut(usize) -> usize) -> Block {
    let mut block = Block::default();
    for _ in 0..choose(5) {
        let (item, file_len) = item(choose);
        let is_file = matches!(&item, Item::Entry(entry) if entry.kind == EntryKind::File);
        block.0.push(item);
        for _ in 0..if is_file { choose(3) } else { 0 } {
            let len = file_len.min(1 + choose(900) as u64);
            if len == 0 {
                continue;
            }
            let offset = match choose(3) {
                0 => file_len - len,
                _ => (choose(60) as u64 * 500).min(file_len - len),
            };
            block.0.push(Item::Extent(Extent {
                offset,
                len: len as u32,
            }));
            block.1.resize(block.1.len() + len as usize, 0xee);
        }
    }
    block
}

/// Makes up to four sets, makes some of them parents of others, restores and verifies the last one, and checks that
/// nothing except the target was touched. `choose` returns a number below its argument.
pub fn restore_nonsense(choose: &mut dyn FnMut(usize) -> usize) -> Result<(), Error> {
    let disk = SimDisk::new(1);
    let canary = [("/canary/secret", b"song"), ("/canary/deep", b"tune")];
    for (path, bytes) in canary {
        disk.write_file(path, bytes).unwrap();
    }
    disk.write_file("/out/neighbour", b"stays").unwrap();
    disk.write_file("/m/neighbour", b"stays").unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let count = 1 + choose(4);
    let kind = [1, 1, 2, 3][choose(4)];
    let device = |i: usize| DeviceSpec::File(format!("/m/{i}.bak").into());
    for i in 0..count {
        // Mostly the previous set; sometimes any set, including itself and later ones.
        let parent = match choose(12) {
            0 => Some(choose(count)),
            1 => None,
            _ => i.checked_sub(1),
        };
        let claims = Claims {
            set: Uuid::from_u128(1 + i as u128),
            source_kind: kind,
            ..Claims::new(parent.map(|parent| Uuid::from_u128(1 + parent as u128)))
        };
        let blocks: Vec<_> = (0..choose(5)).map(|_| block(choose)).collect();
        write(&storage, &[device(i)], &claims, &blocks, |_| 0);
    }
    let media: BTreeMap<PathBuf, Vec<u8>> = files(&disk, "/m");
    let context = RunContext {
        keyring: Default::default(),
        storage,
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::new(AtomicBool::new(false)),
    };
    let devices = vec![device(count - 1)];
    let bases: Vec<_> = (0..count - 1).map(device).collect();
    let request = RestoreRequest {
        bases: bases.clone(),
        replace: choose(2) == 0,
        ..RestoreRequest::new(devices.clone(), "/out".into())
    };
    let restored = run(&context, &Request::Restore(request), &NullObserver).map(drop);
    let verify = VerifyRequest {
        devices,
        bases,
        position: None,
        known: Vec::new(),
        depth: VerifyDepth::Chains,
        tuning: Tuning::default(),
        limits: Limits::default(),
    };
    let verified = run(&context, &Request::Verify(verify), &NullObserver);
    // A set that restores also verifies: the only findings are damage.
    if let (Ok(()), Ok(Report::Verify(report))) = (&restored, &verified) {
        assert!(report.is_valid(), "{:?}", report.findings);
    }
    for (path, bytes) in canary {
        assert_eq!(
            disk.read_file(path).unwrap(),
            bytes,
            "the canary was touched"
        );
    }
    assert_eq!(files(&disk, "/canary").len(), canary.len());
    assert_eq!(files(&disk, "/m"), media, "the media were touched");
    if let Err(error) = &restored {
        assert!(!matches!(error, Error::Panicked { .. }), "{error}");
        assert!(!error.to_string().is_empty() && !error.hint().is_empty());
        let left: Vec<_> = files(&disk, "/out").into_keys().collect();
        assert_eq!(left, [PathBuf::from("/out/neighbour")], "{error}");
    }
    restored
}

fn files(disk: &SimDisk, below: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let all = disk.paths().into_iter();
    let below = all.filter(|path| path.starts_with(below) && path != Path::new(below));
    below
        .filter_map(|path| Some((path.clone(), disk.read_file(&path).ok()?)))
        .collect()
}
