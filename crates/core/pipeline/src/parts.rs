//! Whose bytes a block's plain bytes are: what the codec is told of a block, besides the block.
//!
//! Invariants
//! - The parts cover the plain bytes exactly and in order.
//! - A file's bytes in a block are one part, and begin one where pages matter: where a layout is known, and in every file
//!   that is not small. Small files without a layout share a part, so that thousands of them are not thousands of parts.
//!
//! Leaves to others: finding layouts (`longshore-source`), and what a layout is good for (`longshore-codec`).

use std::sync::Arc;

use longshore_codec::{Layout, Part};

/// Shorter files are small.
const SMALL: u64 = 64 << 10;

/// The parts of one block.
#[derive(Default)]
pub struct Parts {
    parts: Vec<(usize, Option<Arc<Layout>>)>,
    /// That of the file whose bytes come next.
    layout: Option<Arc<Layout>>,
    /// Whether the next bytes belong to the last part.
    joins: bool,
}

impl Parts {
    /// The next bytes are of another file, which is `len` bytes long.
    pub fn begin(&mut self, layout: Option<Arc<Layout>>, len: u64) {
        let follows_unknown = matches!(self.parts.last(), Some((_, None)));
        self.joins = layout.is_none() && len < SMALL && follows_unknown;
        self.layout = layout;
    }

    /// The next `len` bytes are of the file that began last.
    pub fn add(&mut self, len: usize) {
        match self.parts.last_mut() {
            Some((last, _)) if self.joins => *last += len,
            _ => self.parts.push((len, self.layout.clone())),
        }
        self.joins = true;
    }

    /// The bytes that they cover.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(len, _)| len).sum()
    }

    /// As the codec takes them.
    pub fn for_codec(&self) -> Vec<Part<'_>> {
        let parts = self.parts.iter();
        parts
            .map(|(len, layout)| Part {
                len: *len,
                layout: layout.as_deref(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use longshore_codec::Column;

    use super::*;

    fn layout() -> Arc<Layout> {
        Arc::new(Layout::new([Column { len: 4, align: 4 }]).unwrap())
    }

    #[test]
    fn a_file_is_one_part_and_small_unknown_files_share_one() {
        let (one, other) = (layout(), layout());
        let mut parts = Parts::default();
        for (layout, len, runs) in [
            (None, 100, [100, 0]),
            (None, SMALL, [40_000, 20_000]),
            (None, 7, [7, 0]),
            (Some(&one), 16_384, [8192, 8192]),
            (Some(&one), 8192, [8192, 0]),
            (Some(&other), 8192, [8192, 0]),
            (None, 5, [5, 0]),
            (None, 6, [6, 0]),
        ] {
            parts.begin(layout.cloned(), len);
            runs.iter()
                .filter(|run| **run > 0)
                .for_each(|run| parts.add(*run));
        }
        let found: Vec<_> = parts
            .for_codec()
            .iter()
            .map(|part| (part.len, part.layout.is_some()))
            .collect();
        let expected = [
            (100, false),
            (60_007, false),
            (16_384, true),
            (8192, true),
            (8192, true),
            (11, false),
        ];
        assert_eq!(found, expected);
    }

    /// A differential's block names files whose pages it does not store.
    #[test]
    fn a_file_without_bytes_is_no_part_and_parts_nothing() {
        let mut parts = Parts::default();
        parts.begin(None, SMALL);
        parts.add(8192);
        parts.begin(Some(layout()), SMALL);
        parts.begin(None, 9);
        parts.add(9);
        assert_eq!(parts.for_codec().len(), 1);
        parts.begin(Some(layout()), SMALL);
        parts.begin(None, SMALL);
        parts.add(8192);
        assert_eq!(parts.for_codec().len(), 2);
    }
}
