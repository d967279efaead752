//! Manifests: what decodes has one spelling, and no path in it leaves its target.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use longshore_media::{EntryKind, Item, manifest};

fn is_safe(path: &Path) -> bool {
    let mut components = path.components();
    components.all(|c| matches!(c, Component::Normal(_)))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((plain_len, bytes)) = bytes.split_first_chunk() else {
        return;
    };
    let Ok(items) = manifest::decode(bytes, u32::from_le_bytes(*plain_len)) else {
        return;
    };
    let mut again = Vec::new();
    for item in &items {
        item.encode(&mut again);
        match item {
            Item::Entry(entry) => {
                assert!(is_safe(&entry.path));
                if let EntryKind::HardLink { target } = &entry.kind {
                    assert!(is_safe(target));
                }
            }
            Item::Mark(mark) => assert!(is_safe(&mark.path)),
            Item::Sums(sums) => {
                let len = sums.sums.len() as u64 * u64::from(sums.page_bytes);
                assert!(sums.offset.checked_add(len).is_some());
            }
            Item::Extent(_) => {}
        }
    }
    assert_eq!(again, bytes);
});
