//! Which blocks of a set are wanted, by the names in them.

use std::path::Path;

use longshore_media::Item;

/// Whether a block contains anything wanted.
pub fn wants(items: &[Item], is_wanted: impl Fn(&Path) -> bool) -> bool {
    items.iter().any(|item| match item {
        Item::Entry(entry) => is_wanted(&entry.path),
        Item::Mark(mark) => is_wanted(&mark.path),
        Item::Extent(_) | Item::Sums(_) => false,
    })
}
