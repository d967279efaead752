//! Uploads that were begun and neither completed nor aborted: a process that is killed leaves them, and a store charges
//! for their parts.
//!
//! `object_store` does not list them. So the one request that does is made here. Azure has no such uploads: it drops
//! blocks that belong to no blob a week after the last one of that name was sent.
//!
//! Invariants
//! - A listing that succeeds is complete, whatever characters the keys have: other programs begin uploads of keys that no
//!   address of ours has. A page that comes twice, or that cannot be read, is an error.
//! - An upload that ended meanwhile counts as aborted.
//!
//! Leaves to others: which uploads may be aborted (`longshore-repository`, which knows what they were for).

use std::sync::atomic::AtomicBool;

use http::Method;
use object_store::Error as StoreError;
use object_store::path::Path;
use serde::Deserialize;

use crate::objects::answered_ns;
use crate::own::{Asking, failed, odd};
use crate::store::Bucket;
use crate::{Error, Scheme, Ticket};

/// An upload that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The name that its object would have, after the prefix that was listed.
    pub name: String,
    pub id: String,
    /// When it was begun by the store's clock, in nanoseconds since the Unix epoch; `None` if the store does not tell that in
    /// a form that can be read.
    pub begun_ns: Option<i64>,
}

/// The uploads below a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnfinishedBelow {
    pub uploads: Vec<Unfinished>,
    /// The store's own time of its answer; 0 if it does not tell that.
    pub now_ns: i64,
}

/// `ListMultipartUploadsResult`, as the API reference of S3 has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    upload: Vec<Row>,
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    key: String,
    upload_id: String,
    initiated: Option<String>,
}

impl Bucket {
    /// The uploads below `prefix` that have not ended.
    ///
    /// Errors: [`Error::Refused`] where the store or these credentials do not list them.
    pub fn unfinished(&self, prefix: &Path, cancel: &AtomicBool) -> Result<UnfinishedBelow, Error> {
        match prefix.as_ref() {
            "" => self.unfinished_from("", cancel),
            prefix => self.unfinished_from(&format!("{prefix}/"), cancel),
        }
    }

    /// The uploads that have not ended, of all keys that begin so. Errors: as [`Bucket::unfinished`].
    pub fn unfinished_from(
        &self,
        beginning: &str,
        cancel: &AtomicBool,
    ) -> Result<UnfinishedBelow, Error> {
        if self.scheme() == Scheme::Azure {
            return Ok(UnfinishedBelow::default());
        }
        let (asking, from) = (self.asking(), beginning.to_owned());
        let asked = self.ask("list the unfinished uploads below", beginning, async move {
            let mut found = UnfinishedBelow::default();
            let mut after = None;
            loop {
                let page = page(&asking, &from, after.as_ref()).await?;
                // The first answer is the oldest.
                if found.now_ns == 0 {
                    found.now_ns = answered_ns().unwrap_or(0);
                }
                let rows = page.upload.into_iter();
                found.uploads.extend(rows.filter_map(|row| row.read(&from)));
                if !page.is_truncated {
                    return Ok(found);
                }
                let next = page.next_key_marker.map(|key| {
                    let id = page.next_upload_id_marker.unwrap_or_default();
                    (key, id)
                });
                // Uploads of one key are in the order of their beginnings, and not of their identifiers.
                let is_next = next.as_ref().is_some_and(|(key, id)| {
                    after
                        .as_ref()
                        .is_none_or(|(before, last)| key > before || (key == before && id != last))
                });
                let (Some(next), true) = (next, is_next) else {
                    return Err(odd(
                        "it does not say where the next page of its listing begins",
                    ));
                };
                after = Some(next);
            }
        })?;
        asked.wait(cancel)
    }

    /// Aborts an upload; one that has ended meanwhile is none. Of the key, see
    /// [`has_address`](crate::has_address).
    pub fn abort(
        &self,
        key: &(impl AsRef<str> + ?Sized),
        id: &str,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        self.may_write("abort the upload to", key)?;
        let (asking, at, id) = (self.asking(), key.as_ref().to_owned(), id.to_owned());
        let asked: Ticket<()> = self.ask("abort the upload to", key, async move {
            let mut url = asking.url(&at)?;
            url.query_pairs_mut().append_pair("uploadId", &id);
            asking.send(Method::DELETE, &url).await.map(drop)
        })?;
        match asked.wait(cancel) {
            Err(Error::Missing { .. }) => Ok(()),
            Err(Error::Refused { code, .. }) if code == "NoSuchUpload" => Ok(()),
            other => other,
        }
    }
}

impl Row {
    /// `None`: its key begins in another way.
    fn read(self, beginning: &str) -> Option<Unfinished> {
        let begun_ns = || {
            let begun: jiff::Timestamp = self.initiated.as_ref()?.parse().ok()?;
            i64::try_from(begun.as_nanosecond()).ok()
        };
        Some(Unfinished {
            begun_ns: begun_ns(),
            name: self.key.strip_prefix(beginning)?.to_owned(),
            id: self.upload_id,
        })
    }
}

async fn page(
    asking: &Asking,
    beginning: &str,
    after: Option<&(String, String)>,
) -> Result<Page, StoreError> {
    let mut url = asking.base.clone();
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("uploads", "")
            .append_pair("prefix", beginning);
        if let Some((key, id)) = after {
            query.append_pair("key-marker", key);
            query.append_pair("upload-id-marker", id);
        }
    }
    quick_xml::de::from_str(&asking.text(&url).await?).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Act, Habits, Store};

    static NO: AtomicBool = AtomicBool::new(false);

    fn key(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn uploads_below_a_prefix_are_listed_page_by_page_and_aborted() {
        let store = Store::default();
        store.habits(Habits {
            portion: 2,
            ..Habits::default()
        });
        let bucket = store.bucket().unwrap();
        let names = ["p/a & b", "p/c+d", "p/e/f", "p/g", "p/h", "p2/i", "q"];
        let uploads = names.map(|name| bucket.begin(&key(name), String::new(), &NO).unwrap());
        let found = bucket.unfinished(&key("p"), &NO).unwrap();
        let mut listed: Vec<_> = found.uploads.iter().map(|u| u.name.as_str()).collect();
        listed.sort_unstable();
        assert_eq!(listed, ["a & b", "c+d", "e/f", "g", "h"]);
        assert!(
            found
                .uploads
                .iter()
                .all(|u| u.begun_ns == Some(found.now_ns))
        );
        for upload in &found.uploads {
            bucket
                .abort(&key(&format!("p/{}", upload.name)), &upload.id, &NO)
                .unwrap();
        }
        assert!(
            bucket
                .unfinished(&key("p"), &NO)
                .unwrap()
                .uploads
                .is_empty()
        );
        assert_eq!(store.uploads().len(), 2);
        // One that has ended meanwhile needs no abort.
        let gone = &found.uploads[0];
        bucket.abort(&key("p/g"), &gone.id, &NO).unwrap();
        assert_eq!(bucket.unfinished(&key(""), &NO).unwrap().uploads.len(), 2);
        drop(uploads);
    }

    /// Goal: what other programs left is found whatever characters its key has, and can be asked for and aborted.
    #[test]
    fn uploads_of_any_key_are_listed_asked_for_and_aborted() {
        const ODD: [&str; 14] = [
            "p/a b ",
            "p/100%",
            "p/%41",
            "p/a?b=c&d",
            "p/#1",
            "p/a+b",
            "p/b\u{fc}ro/\u{1f600}",
            "p/~[x]{y}|^`<z>\"'",
            "p/a\\b",
            "p//two",
            "p/slash/",
            "/p",
            "p/a\tb\u{1}",
            "p/.../x",
        ];
        for scheme in [Scheme::S3, Scheme::Google] {
            let store = crate::sim::Store::speaking(scheme);
            let bucket = store.bucket().unwrap();
            for key in ODD {
                store.leave_upload(key, b"part");
            }
            let found = bucket.unfinished_from("", &NO).unwrap().uploads;
            let mut listed: Vec<_> = found.iter().map(|u| u.name.as_str()).collect();
            let mut all = ODD.to_vec();
            listed.sort_unstable();
            all.sort_unstable();
            assert_eq!(listed, all);
            for upload in &found {
                let key = upload.name.as_str();
                let from = bucket.unfinished_from(key, &NO).unwrap();
                assert!(from.uploads.iter().any(|u| u.name.is_empty()), "{key}");
                let state = bucket.upload_state(key, &upload.id, &NO).unwrap().unwrap();
                assert_eq!((state.parts, state.bytes), (1, 4), "{key}");
                bucket.abort(key, &upload.id, &NO).unwrap();
                let asked = store.asked().pop().unwrap();
                assert_eq!((asked.key.as_str(), asked.is_abort()), (key, true));
            }
            assert_eq!(store.uploads(), [], "{scheme}");
        }
    }

    #[test]
    fn a_key_that_no_address_has_is_listed_and_asked_for_nowhere() {
        let store = Store::default();
        let bucket = store.bucket().unwrap();
        for key in ["p/../x", "./x", "p/."] {
            store.leave_upload(key, b"part");
            let found = bucket.unfinished_from(key, &NO).unwrap().uploads;
            let before = store.asked().len();
            let error = bucket.abort(key, &found[0].id, &NO).unwrap_err();
            assert!(error.to_string().contains("no address"), "{error}");
            assert_eq!(store.asked().len(), before);
        }
    }

    #[test]
    fn a_listing_is_repeated_while_the_store_is_busy_and_not_when_it_refuses() {
        let store = Store::default();
        let bucket = store.bucket().unwrap();
        let mut left = 2;
        store.script(move |_| match left {
            0 => Act::Pass,
            _ => {
                left -= 1;
                [Act::LoseAnswer, Act::Refuse(503, "SlowDown")][left].clone()
            }
        });
        assert!(
            bucket
                .unfinished(&key("p"), &NO)
                .unwrap()
                .uploads
                .is_empty()
        );
        for (status, code) in [(403, "AccessDenied"), (501, "NotImplemented")] {
            let before = store.asked().len();
            store.script(move |_| Act::Refuse(status, code));
            let error = bucket.unfinished(&key("p"), &NO).unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error}");
            assert_eq!(store.asked().len() - before, 1, "{code}");
        }
    }

    #[test]
    fn an_answer_of_s3_is_read_and_anything_else_is_an_error() {
        let text = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Bucket>b</Bucket><KeyMarker/><MaxUploads>1000</MaxUploads><IsTruncated>false</IsTruncated>\
            <Upload><Key>p/x &amp; y</Key><UploadId>abc</UploadId><Initiator><ID>i</ID></Initiator>\
            <StorageClass>STANDARD</StorageClass><Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload>\
            <CommonPrefixes><Prefix>z/</Prefix></CommonPrefixes></ListMultipartUploadsResult>";
        let mut page: Page = quick_xml::de::from_str(text).unwrap();
        assert!(!page.is_truncated);
        let read = page.upload.pop().unwrap().read("p/").unwrap();
        assert_eq!((read.name.as_str(), read.id.as_str()), ("x & y", "abc"));
        assert_eq!(read.begun_ns, Some(1_289_422_113_000_000_000));
        let timeless = "<x><Upload><Key>k</Key><UploadId>i</UploadId><Initiated>today</Initiated></Upload></x>";
        let mut page: Page = quick_xml::de::from_str(timeless).unwrap();
        assert_eq!(page.upload.pop().unwrap().read("").unwrap().begun_ns, None);
        for odd in ["", "<a>", "<x><Upload><Key>k</Key></Upload></x>", "plain"] {
            assert!(quick_xml::de::from_str::<Page>(odd).is_err(), "{odd}");
        }
    }
}
