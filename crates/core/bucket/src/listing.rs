//! Whether the answer to a listing is one.
//!
//! Leases, gaps of WAL, retention, and that a segment is missing rest on listings. A reader that takes any XML, or any text, for a
//! listing finds nothing in it: an error that the store hides in the body of a 200, the page of a proxy that wants a login, and the
//! first page of many would all be an empty bucket or a whole one.
//!
//! Invariants
//! - A listing has the root of its kind, is closed, and tells the next page if it says that there is one.
//!
//! Leaves to others: what is listed (`object_store`, `versions.rs`, `unfinished.rs`, `resumed.rs`), and Google's listings in JSON.

use http::Method;
use object_store::client::HttpRequest;
use quick_xml::Reader;
use quick_xml::events::Event;

/// The most of an answer that a message shows.
const SHOWN_CHARS: usize = 60;

/// The kinds of listings, by their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// Of S3 and Google.
    Objects,
    Versions,
    Uploads,
    Parts,
    /// Of Azure.
    Blobs,
}

/// An answer in place of a listing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An error of the store's.
    #[error("the store answered with an error")]
    Refusal,
    /// Something else.
    #[error("the answer to a listing is none: it begins with {0:?}")]
    Other(String),
    #[error("the listing breaks off")]
    BrokenOff,
    #[error("the listing has a next page and does not say how it is asked for")]
    NoNext,
}

impl Listing {
    /// Which listing this request asks for; `None`: none that is answered in XML.
    pub fn of(request: &HttpRequest) -> Option<Listing> {
        if request.method() != Method::GET {
            return None;
        }
        let query = request.uri().query().unwrap_or_default();
        let parts = || {
            query
                .split('&')
                .map(|part| part.split_once('=').unwrap_or((part, "")))
        };
        let has = |name: &str| parts().any(|(key, _)| key == name);
        let is = |name: &str, value: &str| parts().any(|part| part == (name, value));
        match () {
            () if has("list-type") => Some(Listing::Objects),
            // Google's JSON has `versions=true`.
            () if is("versions", "") => Some(Listing::Versions),
            () if is("uploads", "") => Some(Listing::Uploads),
            () if has("uploadId") => Some(Listing::Parts),
            () if is("comp", "list") => Some(Listing::Blobs),
            () => None,
        }
    }

    fn root(self) -> &'static str {
        match self {
            Listing::Objects => "ListBucketResult",
            Listing::Versions => "ListVersionsResult",
            Listing::Uploads => "ListMultipartUploadsResult",
            Listing::Parts => "ListPartsResult",
            Listing::Blobs => "EnumerationResults",
        }
    }

    /// The element that tells the next page, where another one says that there is one. Azure has one element for both.
    fn next(self) -> Option<&'static str> {
        match self {
            Listing::Objects => Some("NextContinuationToken"),
            Listing::Versions | Listing::Uploads => Some("NextKeyMarker"),
            Listing::Parts => Some("NextPartNumberMarker"),
            Listing::Blobs => None,
        }
    }

    /// Errors: `text` is no listing of this kind, or not a whole one.
    pub fn check(self, text: &str) -> Result<(), Fault> {
        let other = || {
            let plain = text.chars().filter(|c| !c.is_control());
            Fault::Other(plain.take(SHOWN_CHARS).collect())
        };
        let mut reader = Reader::from_str(text);
        let (mut depth, mut inside) = (0_usize, String::new());
        let (mut has_root, mut is_truncated, mut has_next) = (false, false, false);
        loop {
            let event = match reader.read_event() {
                Ok(event) => event,
                Err(_) if has_root => return Err(Fault::BrokenOff),
                Err(_) => return Err(other()),
            };
            match event {
                Event::Start(start) => {
                    let name =
                        String::from_utf8_lossy(start.local_name().into_inner()).into_owned();
                    if depth == 0 {
                        self.is_root(&name).ok_or_else(other)??;
                        has_root = true;
                    }
                    depth += 1;
                    inside = name;
                }
                Event::Empty(empty) if depth == 0 => {
                    let name =
                        String::from_utf8_lossy(empty.local_name().into_inner()).into_owned();
                    self.is_root(&name).ok_or_else(other)??;
                    has_root = true;
                }
                Event::Text(value) if depth == 2 => {
                    let value = String::from_utf8_lossy(&value);
                    let value = value.trim();
                    is_truncated |= inside == "IsTruncated" && value == "true";
                    has_next |= Some(inside.as_str()) == self.next() && !value.is_empty();
                }
                Event::Text(value) if depth == 0 && !value.iter().all(u8::is_ascii_whitespace) => {
                    return Err(other());
                }
                Event::End(_) => {
                    depth = depth.saturating_sub(1);
                    inside.clear();
                }
                Event::Eof if !has_root => return Err(other()),
                Event::Eof if depth > 0 => return Err(Fault::BrokenOff),
                Event::Eof if is_truncated && !has_next => return Err(Fault::NoNext),
                Event::Eof => return Ok(()),
                _ => {}
            }
        }
    }

    /// `None`: neither this listing's root nor an error's.
    fn is_root(self, name: &str) -> Option<Result<(), Fault>> {
        match name {
            "Error" => Some(Err(Fault::Refusal)),
            name if name == self.root() => Some(Ok(())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    #[test]
    fn a_listing_is_known_by_its_request() {
        let of = |method: Method, uri: &str| {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = method;
            *request.uri_mut() = uri.parse().unwrap();
            Listing::of(&request)
        };
        for (uri, listing) in [
            (
                "http://h/b?list-type=2&prefix=versions",
                Some(Listing::Objects),
            ),
            ("http://h/b?versions=&prefix=p", Some(Listing::Versions)),
            ("http://h/b?versions&prefix=p", Some(Listing::Versions)),
            ("http://h/b?uploads=&prefix=p", Some(Listing::Uploads)),
            ("http://h/b/k?uploadId=x", Some(Listing::Parts)),
            (
                "http://h/c?restype=container&comp=list",
                Some(Listing::Blobs),
            ),
            ("http://h/storage/v1/b/b/o?versions=true", None),
            ("http://h/b?versioning=", None),
            ("http://h/b/list-type", None),
        ] {
            assert_eq!(of(Method::GET, uri), listing, "{uri}");
            assert_eq!(of(Method::POST, uri), None, "{uri}");
        }
    }

    #[test]
    fn nothing_but_a_whole_listing_is_one() {
        let objects = |text: &str| Listing::Objects.check(text);
        let whole = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3/\"><IsTruncated>false</IsTruncated>\
                     <Contents><Key>IsTruncated</Key></Contents></ListBucketResult>\n";
        assert_eq!(objects(whole), Ok(()));
        assert_eq!(objects("<ListBucketResult/>"), Ok(()));
        let more = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>";
        assert_eq!(objects(more), Ok(()));
        for other in [
            "",
            " ",
            "login please",
            "<html>login please</html>",
            "<ListVersionsResult></ListVersionsResult>",
            "x<ListBucketResult/>",
        ] {
            assert!(matches!(objects(other), Err(Fault::Other(_))), "{other}");
        }
        let error = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>";
        assert_eq!(objects(error), Err(Fault::Refusal));
        assert_eq!(Listing::Blobs.check(error), Err(Fault::Refusal));
        for len in [60, 90, whole.len() - 3] {
            assert_eq!(objects(&whole[..len]), Err(Fault::BrokenOff), "{len}");
        }
        for no_next in [
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>x</NextMarker></ListBucketResult>",
            "<ListBucketResult><NextContinuationToken></NextContinuationToken><IsTruncated> true </IsTruncated></ListBucketResult>",
        ] {
            assert_eq!(objects(no_next), Err(Fault::NoNext), "{no_next}");
        }
    }
}
