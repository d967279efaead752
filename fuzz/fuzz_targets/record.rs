//! Framing and records of every container: what parses must be what is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_media::Container;

fuzz_target!(|bytes: &[u8]| {
    let _ = Container::detect(bytes);
    for container in [Container::Gzip, Container::Zstd, Container::Lz4] {
        let _ = container.framed_len_at(bytes);
        if let Ok((kind, body)) = container.parse(bytes) {
            let mut again = Vec::new();
            container.append(kind, body, &mut again);
            assert_eq!(again, bytes);
        }
    }
});
