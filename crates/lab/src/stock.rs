//! Samples kept between studies: built once, found again.

use std::path::{Path, PathBuf};

use anyhow::Result;
use longshore_io::Storage;

use crate::sample::{Progress, SampleKind, SampleSpec, sample};

/// The seed of stocked samples.
const SEED: u64 = 1;

/// The sample of this kind and size (met within 2 %) in `dir`, built if it is not there.
pub fn sample_in(
    storage: &dyn Storage,
    dir: &Path,
    kind: SampleKind,
    size_bytes: u64,
    on_progress: &dyn Fn(Progress),
) -> Result<PathBuf> {
    let path = dir.join(format!("{kind}-{size_bytes}.db"));
    // Only a complete sample ever has this name.
    if storage.stat(&path).is_ok() {
        return Ok(path);
    }
    let spec = SampleSpec {
        kind,
        size_bytes,
        seed: SEED,
        files: 1,
        dirs: Vec::new(),
        path: Some(path.clone()),
        wal: false,
        replace: false,
    };
    sample(&spec, on_progress)?;
    Ok(path)
}
