//! The ratio of the levels of DEFLATE on the samples' pages. `make bench` measures their times.

use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_studies::sample::{SampleKind, SampleSpec, sample};

const BLOCK: usize = 1 << 20;

/// Bytes of `pages` after compression, in blocks as a backup makes them.
fn stored(pages: &[u8], algorithm: Algorithm, level: Level) -> usize {
    let mut compressor = Compressor::new(algorithm, level).unwrap();
    let mut out = vec![0; payload_bound(algorithm, BLOCK)];
    pages
        .chunks(BLOCK)
        .map(|block| compressor.compress(block, &mut out).len)
        .sum()
}

#[test]
fn deflate_4_is_smaller_than_deflate_3_and_than_ms_xpress_on_both_samples() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [SampleKind::Stae, SampleKind::Tprocc] {
        let path = dir.path().join("sample.db");
        let spec = SampleSpec {
            kind,
            size_bytes: 32 << 20,
            seed: 1,
            files: 1,
            dirs: Vec::new(),
            path: Some(path.clone()),
            wal: false,
            replace: true,
        };
        sample(&spec, &|_| {}).unwrap();
        let pages = std::fs::read(path).unwrap();
        let deflate = |level| stored(&pages, Algorithm::QatDeflate, Level::Number(level));
        let (third, fourth) = (deflate(3), deflate(4));
        let xpress = stored(&pages, Algorithm::MsXpress, Level::Low);
        assert!(
            fourth < third && fourth < xpress,
            "{kind:?}: {fourth} bytes, level 3 {third}, MS_XPRESS {xpress}"
        );
    }
}
