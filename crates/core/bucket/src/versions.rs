//! The versions of a bucket of S3's: of each name, the one that it had at a moment.
//!
//! `object_store` does not list versions, so that request is made here, and signed by its means.
//!
//! Invariants
//! - Times are the store's own, and AWS dates an upload in parts by its beginning. An object is there if its newest
//!   version up to the moment is no mark of a removal.
//! - Of several versions of one time, the newest by the store's own word counts; else one that has content.
//!
//! Leaves to others: keeping what was found (`past.rs`).

use std::collections::HashMap;

use object_store::Error as StoreError;
use serde::Deserialize;

use crate::own::{Asking, failed, odd};
use crate::then::Then;
use crate::watched;

/// `ListVersionsResult`, as the API reference of S3 has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    version: Vec<Row>,
    #[serde(default)]
    delete_marker: Vec<Row>,
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_version_id_marker: Option<String>,
}

/// A version, or the mark of a removal: that has no size.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    key: String,
    version_id: String,
    #[serde(default)]
    is_latest: bool,
    last_modified: String,
    size: Option<u64>,
}

/// `VersioningConfiguration`; a bucket that never kept versions has no status.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Versioning {
    status: Option<String>,
}

/// The newest row of each key up to a moment.
#[derive(Debug, Default)]
struct Newest(HashMap<String, (i64, Row)>);

/// The objects whose keys began with `prefix` at this moment, in the order of their keys.
pub async fn objects(asking: &Asking, prefix: &str, at_ns: i64) -> Result<Vec<Then>, StoreError> {
    let mut newest = Newest::default();
    let mut after = None;
    loop {
        let page = page(asking, prefix, after.as_ref()).await?;
        let next = (page.next_key_marker, page.next_version_id_marker);
        for row in page.version.into_iter().chain(page.delete_marker) {
            newest.add(row, at_ns)?;
        }
        let (true, (Some(key), id)) = (page.is_truncated, next) else {
            break;
        };
        let next = (key, id.unwrap_or_default());
        if after.as_ref() == Some(&next) {
            return Err(odd("the next page of its listing is the same one"));
        }
        after = Some(next);
    }
    Ok(newest.objects())
}

impl Newest {
    fn add(&mut self, row: Row, at_ns: i64) -> Result<(), StoreError> {
        let modified: jiff::Timestamp = row.last_modified.parse().map_err(failed)?;
        let modified_ns = i64::try_from(modified.as_nanosecond()).unwrap_or(i64::MAX);
        if modified_ns > at_ns {
            return Ok(());
        }
        let rank = |ns: i64, row: &Row| (ns, row.is_latest, row.size.is_some());
        let is_newer = |(ns, other): &(i64, Row)| rank(modified_ns, &row) > rank(*ns, other);
        // Of equals the first one stays: stores list the newest first.
        if self.0.get(&row.key).is_none_or(is_newer) {
            self.0.insert(row.key.clone(), (modified_ns, row));
        }
        Ok(())
    }

    fn objects(self) -> Vec<Then> {
        let there = |(key, (modified_ns, row)): (String, (i64, Row))| {
            Some(Then {
                key,
                len_bytes: row.size?,
                modified_ns,
                version: row.version_id,
            })
        };
        let mut objects: Vec<Then> = self.0.into_iter().filter_map(there).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects
    }
}

/// The statuses of a store that does not say whether it keeps versions: these credentials may not ask, or it does not know the
/// question.
const UNTOLD: [u16; 4] = [403, 404, 405, 501];

/// Errors: the bucket says that it keeps no versions, or nothing was learnt. One that does not say it may keep them.
pub async fn is_kept(asking: &Asking) -> Result<(), StoreError> {
    let mut url = asking.base.clone();
    url.query_pairs_mut().append_pair("versioning", "");
    let Some(text) = asking.text_unless(&url, &UNTOLD).await? else {
        return Ok(());
    };
    let versioning: Versioning = quick_xml::de::from_str(&text).map_err(failed)?;
    match versioning.status.as_deref() {
        None | Some("") => {
            watched::note(|seen| seen.lacks_versions = true);
            Err(odd("the bucket keeps no versions"))
        }
        Some("Suspended") => {
            static TOLD: std::sync::Once = std::sync::Once::new();
            TOLD.call_once(|| {
                tracing::warn!(
                    "the bucket's versioning is suspended: what was replaced or removed since then is not kept, so an older \
                     backup may look like the newest of that time"
                );
            });
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

async fn page(
    asking: &Asking,
    prefix: &str,
    after: Option<&(String, String)>,
) -> Result<Page, StoreError> {
    let mut url = asking.base.clone();
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("versions", "")
            .append_pair("prefix", prefix);
        if let Some((key, id)) = after {
            query.append_pair("key-marker", key);
            if !id.is_empty() {
                query.append_pair("version-id-marker", id);
            }
        }
    }
    let text = asking.text(&url).await?;
    quick_xml::de::from_str(&text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use object_store::ClientOptions;
    use object_store::client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    };
    use reqwest::Url;

    use super::*;
    use crate::own::Sign;
    use crate::patience::Patience;
    use crate::watched::{SEEN, Watched};

    /// A store with this one answer; without a status none arrives.
    #[derive(Debug, Clone)]
    struct Answers(Option<u16>, &'static str);

    #[async_trait]
    impl HttpService for Answers {
        async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
            assert_eq!(request.uri().query(), Some("versioning="));
            let Some(status) = self.0 else {
                let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                return Err(HttpError::new(HttpErrorKind::Connect, lost));
            };
            let (mut parts, ()) = http::Response::new(()).into_parts();
            parts.status = http::StatusCode::from_u16(status).unwrap();
            Ok(HttpResponse::from_parts(parts, self.1.to_owned().into()))
        }
    }

    impl HttpConnector for Answers {
        fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
            Ok(HttpClient::new(self.clone()))
        }
    }

    fn is_kept_by(store: Answers) -> Result<(), StoreError> {
        let watched = Watched {
            connector: store,
            given_up: Arc::default(),
            tally: Default::default(),
        };
        let asking = Asking {
            base: Url::parse("http://sim/b").unwrap(),
            sign: Sign::Client,
            client: watched.connect(&ClientOptions::new()).unwrap(),
            patience: Patience {
                retries: 1,
                first_wait: Duration::ZERO,
                ..Patience::USUAL
            },
        };
        let handle = crate::runtime::handle().unwrap();
        handle.block_on(SEEN.scope(Arc::default(), async move { is_kept(&asking).await }))
    }

    /// Goal: only a store that does not know the question, or may not answer it, is read without its word: after any other
    /// failure an older state could look like that of the moment.
    #[test]
    fn a_failure_to_ask_for_versioning_is_no_word_that_versions_are_kept() {
        for status in UNTOLD {
            is_kept_by(Answers(Some(status), "")).unwrap();
        }
        for status in [301, 400, 401, 409, 429, 500, 503] {
            is_kept_by(Answers(Some(status), "")).expect_err(&status.to_string());
        }
        is_kept_by(Answers(None, "")).unwrap_err();
        let told = |status: &str| {
            let xml = format!("<VersioningConfiguration>{status}</VersioningConfiguration>");
            is_kept_by(Answers(Some(200), xml.leak()))
        };
        told("<Status>Enabled</Status>").unwrap();
        told("<Status>Suspended</Status>").unwrap();
        told("").unwrap_err();
        is_kept_by(Answers(Some(200), "<VersioningConfiguration><Status>")).unwrap_err();
    }

    fn newest(text: &str, at: &str) -> Vec<(String, String)> {
        let page: Page = quick_xml::de::from_str(text).unwrap();
        let at: jiff::Timestamp = at.parse().unwrap();
        let at_ns = i64::try_from(at.as_nanosecond()).unwrap();
        let mut newest = Newest::default();
        for row in page.version.into_iter().chain(page.delete_marker) {
            newest.add(row, at_ns).unwrap();
        }
        let objects = newest.objects().into_iter();
        objects.map(|then| (then.key, then.version)).collect()
    }

    fn version(key: &str, id: &str, time: &str, is_latest: bool) -> String {
        format!(
            "<Version><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>{is_latest}</IsLatest>\
             <LastModified>{time}</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size>\
             <StorageClass>STANDARD</StorageClass><Owner><ID>i</ID></Owner></Version>"
        )
    }

    fn removal(key: &str, id: &str, time: &str, is_latest: bool) -> String {
        format!(
            "<DeleteMarker><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>{is_latest}</IsLatest>\
             <LastModified>{time}</LastModified><Owner><ID>i</ID></Owner></DeleteMarker>"
        )
    }

    fn listing(rows: &[String]) -> String {
        format!(
            "<?xml version=\"1.0\"?><ListVersionsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Name>b</Name><Prefix/><IsTruncated>false</IsTruncated>{}</ListVersionsResult>",
            rows.concat()
        )
    }

    #[test]
    fn each_name_has_the_version_of_the_moment() {
        let text = listing(&[
            removal("p/a", "3", "2026-01-03T00:00:00.000Z", true),
            version("p/a", "2", "2026-01-02T00:00:00.000Z", false),
            version("p/a", "1", "2026-01-01T00:00:00.000Z", false),
            version("p/b &amp; c", "9", "2026-01-02T12:00:00Z", true),
            removal("p/d", "5", "2026-01-01T06:00:00Z", true),
        ]);
        let at = |time: &str| newest(&text, time);
        let pair = |key: &str, id: &str| (key.to_owned(), id.to_owned());
        assert_eq!(at("2025-12-31T23:59:59Z"), []);
        assert_eq!(at("2026-01-01T00:00:00Z"), [pair("p/a", "1")]);
        assert_eq!(at("2026-01-02T00:00:00Z"), [pair("p/a", "2")]);
        assert_eq!(
            at("2026-01-02T23:00:00Z"),
            [pair("p/a", "2"), pair("p/b & c", "9")]
        );
        assert_eq!(at("2026-01-03T00:00:00Z"), [pair("p/b & c", "9")]);
    }

    #[test]
    fn of_one_time_the_latest_counts_then_one_with_content_then_the_first() {
        let same = "2026-01-01T00:00:00Z";
        let pick = |rows: &[String]| newest(&listing(rows), same);
        let pair = |id: &str| vec![("k".to_owned(), id.to_owned())];
        let latest = [
            version("k", "1", same, false),
            version("k", "2", same, true),
        ];
        assert_eq!(pick(&latest), pair("2"));
        let removed = [
            version("k", "1", same, false),
            removal("k", "2", same, true),
        ];
        assert_eq!(pick(&removed), []);
        let before = [
            removal("k", "2", same, false),
            version("k", "1", same, false),
        ];
        assert_eq!(pick(&before), pair("1"));
        let first = [
            version("k", "2", same, false),
            version("k", "1", same, false),
        ];
        assert_eq!(pick(&first), pair("2"));
    }

    #[test]
    fn a_time_that_cannot_be_read_is_an_error() {
        let text = listing(&[version("k", "1", "yesterday", true)]);
        let mut page: Page = quick_xml::de::from_str(&text).unwrap();
        let row = page.version.pop().unwrap();
        assert!(Newest::default().add(row, i64::MAX).is_err());
    }

    #[test]
    fn a_bucket_that_never_kept_versions_has_no_status() {
        let status = |text: &str| {
            let read: Versioning = quick_xml::de::from_str(text).unwrap();
            read.status
        };
        let open = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        assert_eq!(status(&format!("{open}/>")), None);
        let enabled = format!("{open}><Status>Enabled</Status></VersioningConfiguration>");
        assert_eq!(status(&enabled).as_deref(), Some("Enabled"));
    }
}
