//! The file that says whose log an archive holds.
//!
//! Four lines of text: a title, `system` and its identifier, `segment_bytes` and their number, `crc32c` and the
//! checksum of the lines before in eight hexadecimal digits.

use longshore_io::crc32c;
use longshore_pg::SegmentSize;

const TITLE: &str = "longshore wal archive 1";

/// Whose log an archive holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's system identifier.
    pub system: u64,
    pub segment_size: SegmentSize,
}

impl Identity {
    /// Longest file that is read.
    pub(super) const LEN_MAX: usize = 256;

    pub(super) fn encode(self) -> String {
        let (system, bytes) = (self.system, self.segment_size.bytes());
        let text = format!("{TITLE}\nsystem {system}\nsegment_bytes {bytes}\n");
        let crc = crc32c(text.as_bytes());
        text + &format!("crc32c {crc:08x}\n")
    }

    /// `None` for anything but what [`Identity::encode`] writes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Identity> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines().skip(1);
        let system = lines.next()?.strip_prefix("system ")?.parse().ok()?;
        let bytes = lines.next()?.strip_prefix("segment_bytes ")?.parse().ok()?;
        let identity = Identity {
            system,
            segment_size: SegmentSize::new(bytes)?,
        };
        (identity.encode() == text).then_some(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_page_is_one() {
        let page = include_str!("../../../../docs/postgres-wal.md");
        let at = page.find(TITLE).unwrap();
        let example = page[at..].split("```").next().unwrap();
        let identity = Identity::decode(example.as_bytes()).unwrap();
        assert_eq!(identity.system, 7_575_086_021_411_873_849);
    }

    #[test]
    fn only_what_was_written_is_read() {
        let identity = Identity {
            system: u64::MAX,
            segment_size: SegmentSize::new(1 << 20).unwrap(),
        };
        let text = identity.encode();
        assert!(text.len() <= Identity::LEN_MAX);
        assert_eq!(Identity::decode(text.as_bytes()), Some(identity));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(Identity::decode(&bytes), None, "byte {at}");
            assert_eq!(
                Identity::decode(&text.as_bytes()[..at]),
                None,
                "cut at {at}"
            );
        }
    }
}
