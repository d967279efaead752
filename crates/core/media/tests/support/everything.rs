//! All operations that listing, verifying and restoring perform on media, for untrusted inputs.

use std::sync::Arc;

use longshore_codec::Decompressor;
use longshore_io::crc32c;
use longshore_media::header::payload_max;
use longshore_media::{BackupDevice, MediaSet, manifest};

/// Performs all of them. Returns the number of decoded blocks.
pub fn read_everything(devices: &[Arc<dyn BackupDevice>]) -> u64 {
    for device in devices {
        let _ = MediaSet::label(&**device);
    }
    let Ok(media) = MediaSet::open(devices) else {
        return 0;
    };
    let _ = media.unreadable();
    let Ok(sets) = media.sets() else { return 0 };
    let mut decompressor = Decompressor::new();
    let mut decoded = 0;
    for set in &sets {
        let position = set.header.position;
        let _ = media.set(position);
        let _ = media.items(position, |_| {});
        let mut payload = vec![0; payload_max(set.header.buffer_bytes as usize)];
        for family in 0..media.family_count() {
            let Ok(mut stream) = media.stream(family, position) else {
                continue;
            };
            while let Ok(Some(block)) = stream.next(&mut payload) {
                let header = &block.header;
                let _ = manifest::decode(&block.manifest, header.plain_len);
                let payload = &payload[..header.stored_len as usize];
                let mut plain = vec![0; header.plain_len as usize];
                if !plain.is_empty()
                    && crc32c(payload) == header.stored_crc
                    && decompressor
                        .decompress(header.algorithm, payload, &mut plain)
                        .is_ok()
                {
                    decoded += 1;
                }
            }
        }
    }
    decoded
}
