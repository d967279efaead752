//! Uploads that an interrupted writer left, and that another one of the same bytes goes on with.
//!
//! A store shows nobody the bytes of a part before its upload is complete. It tells each part's length and ETag, which is the
//! MD5 of the part's bytes in most stores. So the writer makes all parts once more, and does not send those of which the
//! store has the sum.
//!
//! Invariants
//! - A part is left out only if its length is the store's, and the MD5 of the bytes at hand its ETag. Where an ETag is something
//!   else, as with keys of a customer's, each part is sent again and replaces the one that is there.
//! - Of several uploads of a name, the one that was begun last is gone on with. The others stay.
//! - An upload of parts of another size is left alone.
//! - Where the store or the credentials do not list uploads or parts, nothing is resumed, which is no error.
//!
//! Leaves to others: whose upload it may be (`longshore-repository`, whose lease keeps other writers away), and aborting what
//! nobody goes on with (`unfinished.rs`).

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use md5::{Digest, Md5};
use object_store::Error as StoreError;
use object_store::path::Path;
use serde::Deserialize;

use crate::own::{Asking, failed, odd};
use crate::store::Bucket;
use crate::{Error, Scheme};

/// The parts that an upload has already, by their index.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownParts(HashMap<usize, KnownPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownPart {
    len: u64,
    tag: String,
    /// When the store got it, in nanoseconds since the Unix epoch; `None` if it does not tell that.
    at_ns: Option<i64>,
}

/// The parts of an upload that has not ended, in sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadState {
    pub parts: u64,
    pub bytes: u64,
    /// When the last part came, by the store's clock; 0 if none did. `None`: the store does not tell of some part, and that one may
    /// be the last.
    pub last_ns: Option<i64>,
}

impl KnownParts {
    /// The ETag of the part at `index`, if the store has these very bytes there.
    pub fn has(&self, index: usize, bytes: &Bytes) -> Option<String> {
        let known = self.0.get(&index)?;
        if known.len != bytes.len() as u64 {
            return None;
        }
        let sum = Md5::digest(bytes);
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        let is_it = known.tag.trim_matches('"').eq_ignore_ascii_case(&sum);
        is_it.then(|| known.tag.clone())
    }

    /// Whether all parts can be parts of `part_bytes`: a larger one could not be replaced by several smaller ones.
    fn fit(&self, part_bytes: u64) -> bool {
        let last = self.0.keys().copied().max().unwrap_or_default();
        let fits = |(index, part): (&usize, &KnownPart)| match *index == last {
            true => part.len <= part_bytes,
            false => part.len == part_bytes,
        };
        self.0.iter().all(fits)
    }
}

/// `ListPartsResult`, as the API reference of S3 has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    part: Vec<Row>,
    #[serde(default)]
    is_truncated: bool,
    next_part_number_marker: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    part_number: usize,
    #[serde(rename = "ETag")]
    e_tag: String,
    size: u64,
    last_modified: Option<String>,
}

impl Row {
    fn at_ns(&self) -> Option<i64> {
        let at: jiff::Timestamp = self.last_modified.as_ref()?.parse().ok()?;
        i64::try_from(at.as_nanosecond()).ok()
    }
}

impl Bucket {
    /// What the store has of an upload; `None`: it has ended. Of the key, see [`has_address`](crate::has_address).
    pub fn upload_state(
        &self,
        key: &(impl AsRef<str> + ?Sized),
        id: &str,
        cancel: &AtomicBool,
    ) -> Result<Option<UploadState>, Error> {
        let (asking, at, id) = (self.asking(), key.as_ref().to_owned(), id.to_owned());
        let asked = self.ask("list the parts of the upload to", key, async move {
            parts(&asking, &at, &id).await
        })?;
        let known = match asked.wait(cancel) {
            Err(Error::Missing { .. }) => return Ok(None),
            Err(Error::Refused { code, .. }) if code == "NoSuchUpload" => return Ok(None),
            known => known?,
        };
        let parts = known.0.values();
        Ok(Some(UploadState {
            parts: known.0.len() as u64,
            bytes: parts.clone().map(|part| part.len).sum(),
            last_ns: last(parts.map(|part| part.at_ns)),
        }))
    }

    /// The identifier and the parts of the upload of `key` that a writer of parts of `part_bytes` can go on with; `None`: there
    /// is none, or the store does not tell. Azure has no uploads.
    ///
    /// Errors: [`Error::Cancelled`]; the store is away.
    pub(crate) fn left_upload(
        &self,
        key: &Path,
        part_bytes: u64,
        cancel: &AtomicBool,
    ) -> Result<Option<(String, KnownParts)>, Error> {
        if self.scheme() == Scheme::Azure {
            return Ok(None);
        }
        let found = match self.unfinished_from(key.as_ref(), cancel) {
            Err(Error::Refused { .. }) => return Ok(None),
            found => found?,
        };
        let of_name = found
            .uploads
            .into_iter()
            .filter(|left| left.name.is_empty());
        let Some(left) = of_name.max_by_key(|left| left.begun_ns) else {
            return Ok(None);
        };
        let (asking, at, id) = (self.asking(), key.to_string(), left.id.clone());
        let asked = self.ask("list the parts of the upload to", key, async move {
            parts(&asking, &at, &id).await
        })?;
        match asked.wait(cancel) {
            Ok(known) => Ok(known.fit(part_bytes).then_some((left.id, known))),
            Err(Error::Refused { .. } | Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The last of these times; `None` if one is not known.
fn last(mut times: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    times.try_fold(0, |last, at| Some(at?.max(last)))
}

async fn parts(asking: &Asking, key: &str, id: &str) -> Result<KnownParts, StoreError> {
    let mut known = KnownParts::default();
    let mut after = None;
    loop {
        let mut url = asking.url(key)?;
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("uploadId", id);
            if let Some(after) = after {
                query.append_pair("part-number-marker", &format!("{after}"));
            }
        }
        let page: Page = quick_xml::de::from_str(&asking.text(&url).await?).map_err(failed)?;
        for row in page.part {
            let part = KnownPart {
                len: row.size,
                at_ns: row.at_ns(),
                tag: row.e_tag,
            };
            if let Some(index) = row.part_number.checked_sub(1) {
                known.0.insert(index, part);
            }
        }
        if !page.is_truncated {
            return Ok(known);
        }
        let next = page.next_part_number_marker;
        if next <= after {
            return Err(odd(
                "it does not say where the next page of its parts begins",
            ));
        }
        after = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_an_upload_has_a_time_only_if_all_have_one() {
        assert_eq!(last([Some(3), Some(7), Some(5)].into_iter()), Some(7));
        assert_eq!(last([Some(3), None].into_iter()), None);
        assert_eq!(last(std::iter::empty()), Some(0));
    }

    #[test]
    fn a_part_is_there_only_with_the_same_length_and_the_same_sum() {
        let part = |len, tag: &str| KnownPart {
            len,
            tag: tag.to_owned(),
            at_ns: None,
        };
        let sum = "\"900150983cd24fb0d6963f7d28e17f72\"";
        let known = KnownParts(HashMap::from([
            (0, part(3, sum)),
            (1, part(4, sum)),
            (2, part(3, "\"900150983cd24fb0d6963f7d28e17f72-2\"")),
            (3, part(3, "900150983CD24FB0D6963F7D28E17F72")),
        ]));
        let bytes = Bytes::from_static(b"abc");
        assert_eq!(known.has(0, &bytes).as_deref(), Some(sum));
        assert!(known.has(0, &Bytes::from_static(b"abd")).is_none());
        assert!(known.has(1, &bytes).is_none());
        assert!(known.has(2, &bytes).is_none());
        assert!(known.has(3, &bytes).is_some());
        assert!(known.has(4, &bytes).is_none());
        assert!(!known.fit(3) && !known.fit(4), "their lengths differ");
        let known = KnownParts((0..3).map(|i| (i, part(3 - i as u64 / 2, sum))).collect());
        assert!(known.fit(3) && !known.fit(4) && !known.fit(2));
    }

    #[test]
    fn an_answer_of_s3_is_read() {
        let text = "<?xml version=\"1.0\"?><ListPartsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Bucket>b</Bucket><Key>k</Key><UploadId>i</UploadId><PartNumberMarker>1</PartNumberMarker>\
            <NextPartNumberMarker>3</NextPartNumberMarker><MaxParts>2</MaxParts><IsTruncated>true</IsTruncated>\
            <Part><PartNumber>2</PartNumber><LastModified>2010-11-10T20:48:34.000Z</LastModified>\
            <ETag>&quot;7778aef83f66abc1fa1e8477f296d394&quot;</ETag><Size>10485760</Size></Part>\
            <Part><PartNumber>3</PartNumber><ETag>\"x\"</ETag><Size>7</Size></Part></ListPartsResult>";
        let page: Page = quick_xml::de::from_str(text).unwrap();
        assert_eq!((page.part.len(), page.part[0].size), (2, 10_485_760));
        assert_eq!(page.part[0].at_ns(), Some(1_289_422_114_000_000_000));
        assert_eq!(page.part[1].at_ns(), None);
        assert_eq!(page.part[0].e_tag, "\"7778aef83f66abc1fa1e8477f296d394\"");
        assert_eq!(
            (page.is_truncated, page.next_part_number_marker),
            (true, Some(3))
        );
    }
}
