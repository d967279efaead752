//! Index chunks: as raw records, and with the checksums of their records right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_media::index;
use longshore_media::record::{BODY_MAX, Container, RecordKind};

fuzz_target!(|bytes: &[u8]| {
    let container = Container::Zstd;
    let _ = index::stored_chunk(container, bytes).and_then(|chunk| chunk.rows());
    let _ = index::part_count(bytes);
    let mut framed = Vec::new();
    for body in bytes.chunks(BODY_MAX) {
        container.append(RecordKind::Index, body, &mut framed);
    }
    let _ = index::stored_chunk(container, &framed).and_then(|chunk| chunk.rows());
});
