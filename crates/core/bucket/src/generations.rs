//! The generations of a bucket of Google's: of each name, the one that it had at a moment.
//!
//! The XML protocol's listing does not tell when a generation ceased to be the live one. The JSON protocol's does, so that is
//! asked here, with the same token. A generation is read by the XML protocol, as all else is.
//!
//! Invariants
//! - Times are the store's own. An object was there from the moment on at which its generation was made, and until it was
//!   replaced or removed: at that moment it was gone.
//! - Of several generations of a moment, the one counts that ceased first to be the live one, then the newest.
//! - A bucket of which it is not known whether it keeps generations is refused: one that keeps none looks like one from which
//!   nothing was ever removed.
//!
//! Leaves to others: keeping what was found (`past.rs`). Objects in the store's soft delete are not looked for: it lets nobody
//! read them before they are restored.
//!
//! Source: "Objects: list" and "Buckets: get" of Google's JSON API reference.

use std::cmp::Reverse;
use std::collections::HashMap;

use object_store::Error as StoreError;
use reqwest::Url;
use serde::Deserialize;

use crate::own::{Asking, failed, odd};
use crate::then::Then;
use crate::watched;

/// The fields of a listing that are read; others are not sent.
const FIELDS: &str = "nextPageToken,items(name,generation,size,timeCreated,timeDeleted)";

/// The rows of a page: more are not given.
const PAGE_ROWS: &str = "1000";

/// A page of a listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    items: Vec<Generation>,
    next_page_token: Option<String>,
}

/// The protocol writes numbers of 64 bits as texts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generation {
    name: String,
    generation: String,
    size: String,
    time_created: String,
    /// The moment at which it ceased to be the live one; `None`: it is.
    time_deleted: Option<String>,
}

/// The answer about a bucket; one that does not keep generations has no such member, or one that says so.
#[derive(Debug, Deserialize)]
struct Answer {
    versioning: Option<Versioning>,
}

#[derive(Debug, Deserialize)]
struct Versioning {
    #[serde(default)]
    enabled: bool,
}

/// Errors: the bucket keeps no generations, or does not say that it does.
pub async fn is_kept(asking: &Asking) -> Result<(), StoreError> {
    let mut url = bucket_url(&asking.base)?;
    url.query_pairs_mut().append_pair("fields", "versioning");
    let text = text_of(asking, &url).await?;
    let answer: Answer = serde_json::from_str(&text).map_err(failed)?;
    match answer.versioning {
        Some(versioning) if versioning.enabled => Ok(()),
        // Nothing tells whether it kept them before.
        _ => {
            watched::note(|seen| seen.lacks_versions = true);
            Err(odd("the bucket keeps no generations"))
        }
    }
}

/// The objects whose keys began with `prefix` at this moment, in nanoseconds since the Unix epoch, in the order of their keys.
pub async fn objects(asking: &Asking, prefix: &str, at_ns: i64) -> Result<Vec<Then>, StoreError> {
    let mut found = Found::new();
    let mut after: Option<String> = None;
    loop {
        let mut url = bucket_url(&asking.base)?;
        url.path_segments_mut()
            .map_err(|()| odd("its server has no address"))?
            .push("o");
        url.query_pairs_mut()
            .append_pair("versions", "true")
            .append_pair("prefix", prefix)
            .append_pair("maxResults", PAGE_ROWS)
            .append_pair("fields", FIELDS);
        if let Some(token) = &after {
            url.query_pairs_mut().append_pair("pageToken", token);
        }
        let text = text_of(asking, &url).await?;
        let page: Page = serde_json::from_str(&text).map_err(failed)?;
        for generation in page.items {
            add(&mut found, generation, at_ns)?;
        }
        match page.next_page_token {
            None => break,
            same if same == after => {
                return Err(odd("the next page of its listing is the same one"));
            }
            next => after = next,
        }
    }
    let mut objects: Vec<Then> = found.into_values().map(|(_, then)| then).collect();
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(objects)
}

/// The answer about the bucket, or about a page of its listing: what is not there then is the bucket.
async fn text_of(asking: &Asking, url: &Url) -> Result<String, StoreError> {
    let asked = asking.text(url).await;
    asked.inspect_err(|_| {
        watched::note(|seen| {
            if seen.status == Some(404) {
                seen.code = "NoSuchBucket".to_owned();
            }
        });
    })
}

/// The generation of each name so far, and by what another one of the moment has to come before it.
type Found = HashMap<String, ((i64, Reverse<u64>), Then)>;

/// Adds a generation that was the live one at this moment.
fn add(found: &mut Found, generation: Generation, at_ns: i64) -> Result<(), StoreError> {
    let made_ns = nanoseconds(&generation.time_created)?;
    let gone_ns = generation.time_deleted.as_deref().map(nanoseconds);
    let gone_ns = gone_ns.transpose()?;
    if made_ns > at_ns || gone_ns.is_some_and(|gone_ns| gone_ns <= at_ns) {
        return Ok(());
    }
    let rank = (
        gone_ns.unwrap_or(i64::MAX),
        Reverse(generation.generation.parse().map_err(failed)?),
    );
    if found
        .get(&generation.name)
        .is_some_and(|(other, _)| *other < rank)
    {
        return Ok(());
    }
    let then = Then {
        key: generation.name.clone(),
        len_bytes: generation.size.parse().map_err(failed)?,
        modified_ns: made_ns,
        version: generation.generation,
    };
    found.insert(generation.name, (rank, then));
    Ok(())
}

fn nanoseconds(time: &str) -> Result<i64, StoreError> {
    let time: jiff::Timestamp = time.parse().map_err(failed)?;
    Ok(i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX))
}

/// The bucket's address in the JSON protocol; `base` is that in the XML protocol.
fn bucket_url(base: &Url) -> Result<Url, StoreError> {
    let mut segments = base
        .path_segments()
        .ok_or_else(|| odd("its server has no address"))?;
    let name = segments.rfind(|segment| !segment.is_empty());
    let name = name.ok_or_else(|| odd("its address names no bucket"))?;
    let mut url = base.clone();
    let before = base.path().trim_end_matches('/');
    let before = before.strip_suffix(name).unwrap_or(before);
    url.set_path(&format!("{before}storage/v1/b/{name}"));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService};

    use super::*;
    use crate::own::Sign;
    use crate::patience::Patience;

    /// A store whose listing has four pages: one object each, but for the second, which is empty.
    #[derive(Debug)]
    struct Pages;

    #[async_trait]
    impl HttpService for Pages {
        async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let uri = request.uri();
            assert_eq!(uri.path(), "/storage/v1/b/b/o");
            let query: HashMap<String, String> = Url::parse(&uri.to_string())
                .unwrap()
                .query_pairs()
                .into_owned()
                .collect();
            assert_eq!((&*query["versions"], &*query["prefix"]), ("true", "p +%/"));
            let page = query.get("pageToken").map_or("1", String::as_str);
            let next = match page {
                "4" => String::new(),
                page => format!(r#""nextPageToken":"{}","#, page.parse::<u32>().unwrap() + 1),
            };
            let row = format!(
                r#"{{"name":"p +%/{page}","generation":"1","size":"1","timeCreated":"2026-01-01T00:00:00Z"}}"#
            );
            let items = if page == "2" { "" } else { &row };
            let (parts, ()) = http::Response::new(()).into_parts();
            Ok(HttpResponse::from_parts(
                parts,
                format!("{{{next}\"items\":[{items}]}}").into(),
            ))
        }
    }

    #[test]
    fn all_pages_of_a_listing_are_read_and_keys_are_asked_for_as_they_are() {
        let asking = Asking {
            base: Url::parse("http://sim/b").unwrap(),
            sign: Sign::Client,
            client: HttpClient::new(Pages),
            patience: Patience::USUAL,
        };
        let handle = crate::runtime::handle().unwrap();
        let found = handle.block_on(objects(&asking, "p +%/", i64::MAX));
        let keys: Vec<String> = found.unwrap().into_iter().map(|then| then.key).collect();
        assert_eq!(keys, ["p +%/1", "p +%/3", "p +%/4"]);
    }

    fn at(rows: &[&str], time: &str) -> Vec<(String, String)> {
        let at_ns = nanoseconds(time).unwrap();
        let mut found = Found::new();
        for row in rows {
            add(&mut found, serde_json::from_str(row).unwrap(), at_ns).unwrap();
        }
        let mut there: Vec<(String, String)> = found
            .into_values()
            .map(|(_, then)| (then.key, then.version))
            .collect();
        there.sort();
        there
    }

    /// A page as the reference of Google's JSON API has it.
    #[test]
    fn each_name_has_the_generation_of_the_moment() {
        let rows = [
            r#"{"name":"p/a","generation":"11","size":"7","timeCreated":"2026-01-01T00:00:00.000Z","timeDeleted":"2026-01-02T00:00:00.000Z"}"#,
            r#"{"name":"p/a","generation":"12","size":"8","timeCreated":"2026-01-02T00:00:00.000Z","timeDeleted":"2026-01-03T00:00:00.000Z"}"#,
            r#"{"name":"p/b & c","generation":"9","size":"0","timeCreated":"2026-01-02T12:00:00.500Z"}"#,
        ];
        let pair = |key: &str, id: &str| (key.to_owned(), id.to_owned());
        assert_eq!(at(&rows, "2025-12-31T23:59:59.999Z"), []);
        assert_eq!(at(&rows, "2026-01-01T00:00:00Z"), [pair("p/a", "11")]);
        assert_eq!(at(&rows, "2026-01-02T00:00:00Z"), [pair("p/a", "12")]);
        assert_eq!(
            at(&rows, "2026-01-02T12:00:00.500Z"),
            [pair("p/a", "12"), pair("p/b & c", "9")]
        );
        assert_eq!(at(&rows, "2026-01-03T00:00:00Z"), [pair("p/b & c", "9")]);
    }

    /// An upload in parts may be dated by its beginning: until it was complete, the older one was the live one.
    #[test]
    fn of_generations_that_overlap_the_one_counts_that_ceased_first() {
        let old = r#"{"name":"k","generation":"9","size":"1","timeCreated":"2026-01-01T00:00:00Z","timeDeleted":"2026-01-03T00:00:00Z"}"#;
        let new =
            r#"{"name":"k","generation":"10","size":"1","timeCreated":"2026-01-02T00:00:00Z"}"#;
        for rows in [[old, new], [new, old]] {
            let number = |time: &str| at(&rows, time).pop().unwrap().1;
            assert_eq!(number("2026-01-02T12:00:00Z"), "9");
            assert_eq!(number("2026-01-03T00:00:00Z"), "10");
        }
    }

    #[test]
    fn of_generations_of_one_time_the_newest_counts_in_any_order() {
        let time = r#""size":"1","timeCreated":"2026-01-01T00:00:00Z"}"#;
        let old = format!(r#"{{"name":"k","generation":"9",{time}"#);
        let new = format!(r#"{{"name":"k","generation":"10",{time}"#);
        let expected = [("k".to_owned(), "10".to_owned())];
        assert_eq!(at(&[&old, &new], "2026-01-01T00:00:00Z"), expected);
        assert_eq!(at(&[&new, &old], "2026-01-01T00:00:00Z"), expected);
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_an_error() {
        for row in [
            r#"{"name":"k","generation":"x","size":"1","timeCreated":"2026-01-01T00:00:00Z"}"#,
            r#"{"name":"k","generation":"1","size":"-1","timeCreated":"2026-01-01T00:00:00Z"}"#,
            r#"{"name":"k","generation":"1","size":"1","timeCreated":"yesterday"}"#,
            r#"{"name":"k","generation":"1","size":"1","timeCreated":"2026-01-01T00:00:00Z","timeDeleted":""}"#,
        ] {
            let generation = serde_json::from_str(row).unwrap();
            let added = add(&mut Found::new(), generation, i64::MAX);
            assert!(added.is_err(), "{row}");
        }
        assert!(serde_json::from_str::<Page>("{}").unwrap().items.is_empty());
    }

    #[test]
    fn a_bucket_has_its_address_in_the_other_protocol() {
        for (base, url) in [
            (
                "https://storage.googleapis.com/b",
                "https://storage.googleapis.com/storage/v1/b/b",
            ),
            (
                "http://h:1/before/b.c/",
                "http://h:1/before/storage/v1/b/b.c",
            ),
        ] {
            let base = Url::parse(base).unwrap();
            assert_eq!(bucket_url(&base).unwrap().as_str(), url);
        }
        assert!(bucket_url(&Url::parse("http://h/").unwrap()).is_err());
    }
}
