//! Goal: a backup leaves the page cache as it found it.
//! Method: one of two files is cached and one is not; after a backup and its verification the kernel reports the same
//! for both, and for each stripe.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use common::*;
use longshore_codec::Algorithm;
use longshore_io::{Host, OpenHow, Storage};
use longshore_media::DeviceSpec;
use longshore_pipeline::SourceSpec;

const LEN: usize = 8 << 20;

fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: the call demands an open descriptor: it lives until the end of this function.
    let rc = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(rc, 0);
}

fn is_cached(path: &Path) -> bool {
    let dir = Host::new().dir(path.parent().unwrap()).unwrap();
    let file = dir
        .open(Path::new(path.file_name().unwrap()), OpenHow::Read)
        .unwrap();
    file.is_cached(0..file.stat().unwrap().len)
}

#[test]
fn a_backup_evicts_nothing_that_was_cached_and_leaves_nothing_new() {
    // Not in the system's temporary directory, which may be a file system that is its own cache.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let (warm, cold) = (source.join("warm"), source.join("cold"));
    // This file is not backed up: if it is evicted from the cache, memory is short, and the kernel decided.
    let beside = dir.path().join("beside");
    for (path, seed) in [(&warm, 1), (&cold, 2), (&beside, 3)] {
        std::fs::write(path, content(seed, LEN)).unwrap();
        evict(path);
    }
    std::fs::read(&beside).unwrap();
    std::fs::read(&warm).unwrap();
    if !is_cached(&warm) || is_cached(&cold) {
        eprintln!("skipped: this file system does not tell what is cached");
        return;
    }
    for algorithm in [Algorithm::None, Algorithm::Lz4] {
        let devices = stripes(dir.path(), 2);
        let spec = SourceSpec::Files(vec![source.clone()]);
        let mut request = backup_request(spec, devices.clone(), algorithm);
        request.disposition = longshore_pipeline::Disposition::Format;
        let report = backup(&context(), request).unwrap();
        let media = devices.iter().map(|device| match device {
            DeviceSpec::File(path) => path.as_path(),
            other => panic!("{other:?}"),
        });
        let media: Vec<&Path> = media.collect();
        // The one is read from the cache, the other past it.
        media.iter().for_each(|path| evict(path));
        std::fs::read(media[0]).unwrap();
        assert!(verify(&context(), devices.clone()).unwrap().is_valid());
        if !is_cached(&beside) {
            eprintln!("skipped: this machine is short of memory");
            return;
        }
        assert_eq!(
            report.run.waits.cold_bytes, LEN as u64,
            "{algorithm}: only one file was cold"
        );
        assert!(
            is_cached(&warm),
            "{algorithm}: what was cached is not any more"
        );
        assert!(
            !is_cached(&cold),
            "{algorithm}: the backup filled the cache"
        );
        let are_cached: Vec<bool> = media.iter().map(|path| is_cached(path)).collect();
        assert_eq!(are_cached, [true, false], "{algorithm}: stripes");
    }
}
