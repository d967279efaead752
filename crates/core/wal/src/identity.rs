//! The file that makes a directory a WAL archive, and names the cluster of its WAL.
//!
//! Four lines of text: a title, `system` and its identifier, `segment_bytes` and their number, `crc32c` and the
//! checksum of the lines before in eight hexadecimal digits. In an empty archive a single line in the middle says so.
//!
//! Invariants
//! - A mark is read only if it is, byte for byte, what [`Mark::encode`] writes: there is one text for each identity.
//! - The text is at most `Mark::LEN_MAX` bytes, so a reader's memory is bounded.
//!
//! Leaves to others: writing the file safely, and which of two first writers decides (`place/directories.rs`,
//! `place/buckets.rs`).

use longshore_io::crc32c;
use longshore_pg::SegmentSize;

const TITLE: &str = "longshore wal archive 1";
const UNCLAIMED: &str = "of no cluster yet";

/// The cluster whose WAL an archive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's system identifier.
    pub system: u64,
    pub segment_size: SegmentSize,
}

/// The contents of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The archive will belong to the cluster of its first segment.
    Unclaimed,
    Of(Identity),
}

impl Mark {
    /// Longest file that is read, in bytes.
    pub(super) const LEN_MAX: usize = 256;

    pub(super) fn encode(self) -> String {
        let lines = match self {
            Mark::Unclaimed => UNCLAIMED.to_owned(),
            Mark::Of(Identity {
                system,
                segment_size,
            }) => format!("system {system}\nsegment_bytes {}", segment_size.bytes()),
        };
        let text = format!("{TITLE}\n{lines}\n");
        let crc = crc32c(text.as_bytes());
        text + &format!("crc32c {crc:08x}\n")
    }

    /// `None` for anything except the output of [`Mark::encode`].
    pub(super) fn decode(bytes: &[u8]) -> Option<Mark> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines().skip(1);
        let mark = match lines.next()? {
            UNCLAIMED => Mark::Unclaimed,
            line => {
                let system = line.strip_prefix("system ")?.parse().ok()?;
                let bytes = lines.next()?.strip_prefix("segment_bytes ")?.parse().ok()?;
                let segment_size = SegmentSize::new(bytes)?;
                Mark::Of(Identity {
                    system,
                    segment_size,
                })
            }
        };
        (mark.encode() == text).then_some(mark)
    }

    pub(super) fn identity(self) -> Option<Identity> {
        match self {
            Mark::Unclaimed => None,
            Mark::Of(identity) => Some(identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_page_are_some() {
        let page = include_str!("../../../../docs/postgres-wal.md");
        let examples = page.match_indices(TITLE).map(|(at, _)| {
            let example = page[at..].split("```").next().unwrap();
            Mark::decode(example.as_bytes()).unwrap_or_else(|| panic!("{example}"))
        });
        let examples: Vec<Mark> = examples.collect();
        let systems: Vec<_> = examples
            .iter()
            .map(|mark| mark.identity().map(|i| i.system))
            .collect();
        assert_eq!(systems, [Some(7_575_086_021_411_873_849), None]);
    }

    #[test]
    fn only_what_was_written_is_read() {
        let identity = Identity {
            system: u64::MAX,
            segment_size: SegmentSize::new(1 << 20).unwrap(),
        };
        for mark in [Mark::Of(identity), Mark::Unclaimed] {
            let text = mark.encode();
            assert!(text.len() <= Mark::LEN_MAX);
            assert_eq!(Mark::decode(text.as_bytes()), Some(mark));
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1;
                assert_eq!(Mark::decode(&bytes), None, "byte {at}");
                assert_eq!(Mark::decode(&text.as_bytes()[..at]), None, "cut at {at}");
            }
        }
    }
}
