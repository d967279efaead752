//! Goal: the pipeline's tests share ways to run a backup, a restore and a verification, a tree with every kind of
//! entry, and a comparison of trees.
//! Method: the real file system, if a test gives no other; equal seeds give equal bytes.
//! Not covered: this file has no tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod forge;
pub mod hostile;
pub mod pieces;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use longshore_codec::Algorithm;
use longshore_io::{Host, HostClock, Storage};
use longshore_kit::Random;
use longshore_media::DeviceSpec;
use longshore_pipeline::{
    BackupReport, BackupRequest, Error, Limits, NullObserver, Report, Request, RestoreReport,
    RestoreRequest, RunContext, SourceSpec, Tuning, VerifyDepth, VerifyReport, VerifyRequest, run,
};

pub fn context() -> RunContext {
    context_on(Arc::new(Host::new()))
}

pub fn context_on(storage: Arc<dyn Storage>) -> RunContext {
    RunContext {
        keyring: Default::default(),
        storage,
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

pub fn stripes(dir: &Path, count: usize) -> Vec<DeviceSpec> {
    (0..count)
        .map(|i| DeviceSpec::File(dir.join(format!("s{i}.bak"))))
        .collect()
}

pub fn backup_request(
    source: SourceSpec,
    devices: Vec<DeviceSpec>,
    algorithm: Algorithm,
) -> BackupRequest {
    BackupRequest {
        algorithm,
        ..BackupRequest::new(source, devices)
    }
}

pub fn restore_request(devices: Vec<DeviceSpec>, target: &Path) -> RestoreRequest {
    RestoreRequest::new(devices, target.into())
}

pub fn backup(context: &RunContext, request: BackupRequest) -> Result<BackupReport, Error> {
    match run(context, &Request::Backup(request), &NullObserver)? {
        Report::Backup(report) => Ok(report),
        other => panic!("a backup reported {other:?}"),
    }
}

pub fn restore(context: &RunContext, request: RestoreRequest) -> Result<RestoreReport, Error> {
    match run(context, &Request::Restore(request), &NullObserver)? {
        Report::Restore(report) => Ok(report),
        other => panic!("a restore reported {other:?}"),
    }
}

pub fn verify(context: &RunContext, devices: Vec<DeviceSpec>) -> Result<VerifyReport, Error> {
    verify_with(context, devices, Vec::new())
}

pub fn verify_with(
    context: &RunContext,
    devices: Vec<DeviceSpec>,
    bases: Vec<DeviceSpec>,
) -> Result<VerifyReport, Error> {
    let (tuning, limits) = (Tuning::default(), Limits::default());
    match run(
        context,
        &Request::Verify(VerifyRequest {
            devices,
            bases,
            position: None,
            known: Vec::new(),
            depth: VerifyDepth::Chains,
            tuning,
            limits,
        }),
        &NullObserver,
    )? {
        Report::Verify(report) => Ok(report),
        other => panic!("a verification reported {other:?}"),
    }
}

/// Bytes that compress about threefold; the same seed gives the same bytes.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        let n = random.next();
        out.extend_from_slice(format!("row {:08x} name-{} ", n as u32, n % 97).as_bytes());
    }
    out.truncate(len);
    out
}

/// Regular files by their names.
pub type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Files for a simulated disk, made once for each seed: thousands of disks have the same ones.
pub fn tree(seed: u64) -> Tree {
    static MADE: Mutex<BTreeMap<u64, Tree>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(|held| held.into_inner());
    let files = made.entry(seed).or_insert_with(|| {
        let file = |name: &str, len| (PathBuf::from(name), content(seed + len as u64, len));
        BTreeMap::from([
            file("big", 700_000),
            file("mid", 70_001),
            file("sub/one", 900),
            file("sub/two", 5),
        ])
    });
    files.clone()
}

/// A tree with every kind of entry that a backup must restore.
pub fn odd_tree(root: &Path) {
    let write = |name: &Path, bytes: &[u8]| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write(Path::new("big.dat"), &content(1, 5 * 1024 * 1024 + 12_345));
    write(Path::new("exact.dat"), &content(2, 2 << 20));
    write(Path::new("zeros.dat"), &vec![0; 3 << 20]);
    write(Path::new("empty"), b"");
    for i in 0..300 {
        write(
            Path::new(&format!("many/d{}/f{i}", i % 7)),
            &content(i, (i * 37) as usize),
        );
    }
    write(
        Path::new(OsStr::from_bytes(b"odd/sp ace\nnew line \xff\xfe")),
        b"odd name",
    );
    write(Path::new("odd/\u{1f6a2} ship"), b"unicode");
    std::fs::create_dir_all(root.join("empty dir/inner")).unwrap();
    symlink("../big.dat", root.join("odd/link")).unwrap();
    symlink("/nowhere/at all", root.join("odd/dangling")).unwrap();
    std::fs::hard_link(root.join("exact.dat"), root.join("odd/hard")).unwrap();
    let sparse = std::fs::File::create(root.join("sparse.dat")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"island", 33 << 20).unwrap();
    std::fs::set_permissions(root.join("empty"), std::fs::Permissions::from_mode(0o4640)).unwrap();
    std::fs::set_permissions(
        root.join("empty dir"),
        std::fs::Permissions::from_mode(0o500),
    )
    .unwrap();
}

/// All observable properties of a tree, for comparison.
pub fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(path) = stack.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        let what = if meta.is_symlink() {
            format!("-> {:?}", std::fs::read_link(&path).unwrap())
        } else if meta.is_dir() {
            stack.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            format!("dir {:o} {}", meta.mode(), meta.mtime())
        } else {
            let hash = longshore_io::crc32c(&std::fs::read(&path).unwrap());
            format!(
                "{:o} {} {}.{} {hash:08x} x{}",
                meta.mode(),
                meta.len(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.nlink()
            )
        };
        // The root's own times are not restored.
        if !name.as_os_str().is_empty() {
            all.insert(name, what);
        }
    }
    all
}
