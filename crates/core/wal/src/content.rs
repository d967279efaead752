//! Digests of a file's content: by them a file is recognized in an archive after its bytes were lost everywhere else.
//!
//! Invariants
//! - A digest is of the plain bytes, so it is the same whatever an archive compresses with, and on each machine.
//! - An encrypted file is recognized by the cluster's tags without an identity. Where neither tags nor an identity tell, the
//!   answer is that nobody knows.
//! - Histories are compared without the remarks that differ from copy to copy.
//!
//! Leaves to others: which files are noted, and where (`debts.rs`).

use std::fmt;
use std::str::FromStr;

use longshore_crypt::{Root, TAGS_ID_LEN, TagKey, digest_of};
use longshore_io::Via;
use longshore_pg::wal::WalName;

use super::archive::Outgoing;
use super::object::PlainMark;
use super::press::block_bytes;
use super::sealed::history_digest;
use super::stored::Object;
use super::{Error, WalArchive};

/// Bytes of each block of which a digest is taken. Lists of earlier versions rest on it.
const BLOCK_BYTES: usize = 1 << 20;

/// The digest of a file's content, and where the cluster's key is known, that of its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentSum {
    plain: Root,
    tags: Option<TagsSum>,
}

/// The digest of the tags that an encrypted file with this content has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TagsSum {
    key: [u8; TAGS_ID_LEN],
    block_bytes: u32,
    all: Root,
}

impl ContentSum {
    /// Reads the file.
    ///
    /// Errors: `Io`.
    pub(super) fn of(out: &Outgoing, key: Option<&TagKey>) -> Result<ContentSum, Error> {
        let len = out
            .file
            .stat()
            .map_err(Error::io("look at", &out.path))?
            .len;
        if let WalName::History(timeline) = out.name {
            let mut text = Vec::new();
            each_block(out, len, BLOCK_BYTES, |_, block| {
                text.extend_from_slice(block)
            })?;
            return Ok(ContentSum {
                plain: history_digest(timeline, &text),
                tags: None,
            });
        }
        let mut digests = Vec::new();
        each_block(out, len, BLOCK_BYTES, |_, block| {
            digests.extend_from_slice(&digest_of(block));
        })?;
        let tags = key.map(|key| {
            let block_bytes = block_bytes(u32::try_from(len).unwrap_or(u32::MAX));
            let name = out.name.to_string();
            let mut tags = Vec::new();
            each_block(out, len, block_bytes as usize, |number, block| {
                tags.extend_from_slice(&key.tag(&name, number, block));
            })?;
            Ok::<_, Error>(TagsSum {
                key: key.id(),
                block_bytes,
                all: digest_of(&tags),
            })
        });
        Ok(ContentSum {
            plain: digest_of(&digests),
            tags: tags.transpose()?,
        })
    }

    /// Whether both are of the same bytes.
    pub(super) fn is_same(&self, other: &ContentSum) -> bool {
        self.plain == other.plain
    }
}

fn each_block(
    out: &Outgoing,
    len: u64,
    block_bytes: usize,
    mut take: impl FnMut(u32, &[u8]),
) -> Result<(), Error> {
    let mut block = vec![0; block_bytes.min(usize::try_from(len).unwrap_or(usize::MAX))];
    let (mut at, mut number) = (0, 0);
    while at < len {
        let now = (len - at).min(block.len() as u64) as usize;
        let read = out.file.read_exact_at(&mut block[..now], at, Via::Cache);
        read.map_err(Error::io_at("read", &out.path, at))?;
        take(number, &block[..now]);
        at += now as u64;
        number += 1;
    }
    Ok(())
}

impl WalArchive {
    /// Whether an archived file has this content; `None` if it is encrypted, and neither tags nor an identity tell.
    ///
    /// Errors: `Damaged`, `Newer`, `Unopened`, `Store`, `Io`.
    pub(super) fn is_of_sum(
        &self,
        object: &Object,
        sum: &ContentSum,
    ) -> Result<Option<bool>, Error> {
        let (name, ends) = (object.head().name, &object.ends);
        if let WalName::History(timeline) = name {
            return Ok(Some(history_digest(timeline, &object.text()?) == sum.plain));
        }
        if let Some(tags) = &sum.tags
            && ends.has_tags_of_id(&tags.key)
            && ends.head.block_bytes == tags.block_bytes
        {
            let mut all = Vec::new();
            for row in &ends.end.rows {
                if let PlainMark::Tag(tag) = row.plain {
                    all.extend_from_slice(&tag);
                }
            }
            return Ok(Some(digest_of(&all) == tags.all));
        }
        if !object.opens()? {
            return Ok(None);
        }
        let out = self.decoded(name, object)?;
        Ok(Some(ContentSum::of(&out, None)?.is_same(sum)))
    }
}

impl fmt::Display for ContentSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.plain))?;
        match &self.tags {
            None => Ok(()),
            Some(tags) => {
                let (key, all) = (hex(&tags.key), hex(&tags.all));
                write!(f, ":{key}:{}:{all}", tags.block_bytes)
            }
        }
    }
}

impl FromStr for ContentSum {
    type Err = ();

    fn from_str(text: &str) -> Result<ContentSum, ()> {
        let fields: Vec<&str> = text.split(':').collect();
        let (plain, tags) = match fields[..] {
            [plain] => (plain, None),
            [plain, key, block_bytes, all] => {
                let tags = TagsSum {
                    key: array_of_hex(key)?,
                    block_bytes: block_bytes.parse().map_err(drop)?,
                    all: array_of_hex(all)?,
                };
                (plain, Some(tags))
            }
            _ => return Err(()),
        };
        Ok(ContentSum {
            plain: array_of_hex(plain)?,
            tags,
        })
    }
}

/// Two hexadecimal digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a hexadecimal text.
pub(super) fn of_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    text.chunks(2).map(byte).collect()
}

/// As many bytes as are expected.
fn array_of_hex<const N: usize>(text: &str) -> Result<[u8; N], ()> {
    let bytes = of_hex(text.as_bytes()).ok_or(())?;
    bytes.try_into().map_err(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::MemoryFile;

    fn file(name: &str, bytes: &[u8]) -> Outgoing {
        Outgoing {
            name: name.parse().unwrap(),
            path: name.into(),
            file: Arc::new(MemoryFile::of(bytes)),
            system: None,
            history: None,
            beside: None,
        }
    }

    #[test]
    fn a_sum_is_of_the_content_and_comes_back_as_it_was_written() {
        let segment = "000000010000000000000003";
        let key = TagKey::of_cluster(&[7; 32], 1);
        let long: Vec<u8> = (0..5 << 18).map(|n: u32| n as u8).collect();
        let of = |bytes: &[u8]| ContentSum::of(&file(segment, bytes), None).unwrap();
        let tagged = ContentSum::of(&file(segment, &long), Some(&key)).unwrap();
        for sum in [of(b""), of(b"a"), of(&long), tagged] {
            assert_eq!(sum.to_string().parse(), Ok(sum));
        }
        assert!(tagged.is_same(&of(&long)) && !tagged.is_same(&of(&long[1..])));
        let mut other = long.clone();
        *other.last_mut().unwrap() ^= 1;
        assert!(!of(&other).is_same(&of(&long)));
        for torn in ["", "00", &tagged.to_string()[1..], "é", "a:b:c:d"] {
            assert!(torn.parse::<ContentSum>().is_err(), "{torn}");
        }
    }

    #[test]
    fn histories_are_compared_without_remarks() {
        let of = |text: &str| ContentSum::of(&file("00000002.history", text.as_bytes()), None);
        let line = "1\t0/5000000\tno recovery target specified\n";
        let name: WalName = "00000002.history".parse().unwrap();
        let restored = longshore_pg::wal::restored_from(name, "x");
        let remark = format!("{line}\n{restored}\n");
        assert!(of(line).unwrap().is_same(&of(&remark).unwrap()));
        let other = line.replace('5', "6");
        assert!(!of(line).unwrap().is_same(&of(&other).unwrap()));
    }
}
