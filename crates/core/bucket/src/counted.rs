//! The requests that this process makes, counted for each bucket by what they do, with the bytes that they move.
//!
//! Invariants
//! - Each request that is sent counts, repeated ones too, and also one that gets no answer.
//! - The totals are the sums of what is told of the buckets. Requests for credentials are not among them.
//! - Segments of WAL are counted once each, however many requests they take. Of a million, 8 MB are held.
//!
//! Leaves to others: sending (`watched.rs`), prices and the text for people (`longshore`).

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use object_store::client::HttpRequest;

/// How the objects of a WAL archive in a bucket end.
const WAL_ENDING: &str = ".wal";

/// The requests to one bucket.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Requests {
    /// The bucket's address.
    pub bucket: String,
    /// Objects, parts, and the beginnings and ends of uploads.
    pub puts: u64,
    /// Ranges of objects, and looks at one.
    pub gets: u64,
    pub lists: u64,
    pub deletes: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Those of them that are about files of WAL archives.
    pub wal: u64,
    /// The files of WAL archives that they are about.
    pub wal_files: u64,
}

impl Requests {
    pub fn total(&self) -> u64 {
        self.puts + self.gets + self.lists + self.deletes
    }
}

#[derive(Debug, Default)]
struct Counts {
    requests: Requests,
    wal_files: HashSet<u64>,
}

/// The counters of one bucket's requests.
#[derive(Debug, Clone, Default)]
pub struct RequestTally(Arc<Mutex<Counts>>);

static TALLIES: Mutex<BTreeMap<String, RequestTally>> = Mutex::new(BTreeMap::new());

impl RequestTally {
    /// That of the bucket with this address.
    pub fn of(bucket: &str) -> RequestTally {
        let mut tallies = TALLIES.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = tallies.entry(bucket.to_owned()).or_default();
        tally.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn sent(&self, request: &HttpRequest) {
        let (uri, method) = (request.uri(), request.method());
        let has = |names: &[&str]| {
            let query = uri.query().unwrap_or_default();
            let mut names_in = query.split('&').map(|pair| pair.split('=').next());
            names_in.any(|name| name.is_some_and(|name| names.contains(&name)))
        };
        let is_list =
            *method == Method::GET && has(&["list-type", "uploads", "versions", "restype"]);
        let bytes = request.body().content_length() as u64;
        let wal = uri.path().ends_with(WAL_ENDING).then(|| {
            let mut hasher = DefaultHasher::new();
            uri.path().hash(&mut hasher);
            hasher.finish()
        });
        self.change(|counts| {
            let requests = &mut counts.requests;
            match *method {
                _ if is_list => requests.lists += 1,
                Method::GET | Method::HEAD => requests.gets += 1,
                Method::DELETE => requests.deletes += 1,
                _ => requests.puts += 1,
            }
            requests.sent_bytes += bytes;
            requests.wal += u64::from(wal.is_some());
            counts.wal_files.extend(wal);
        });
    }

    pub fn received(&self, bytes: u64) {
        self.change(|counts| counts.requests.received_bytes += bytes);
    }
}

/// The requests that this process has sent so far, by bucket.
pub fn requests_by_bucket() -> Vec<Requests> {
    let tallies = TALLIES.lock().unwrap_or_else(PoisonError::into_inner);
    let told = |(bucket, tally): (&String, &RequestTally)| {
        let counts = tally.0.lock().unwrap_or_else(PoisonError::into_inner);
        Requests {
            bucket: bucket.clone(),
            wal_files: counts.wal_files.len() as u64,
            ..counts.requests.clone()
        }
    };
    tallies.iter().map(told).filter(|r| r.total() > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    fn request(method: Method, uri: &str, body: &'static [u8]) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::from(bytes::Bytes::from_static(body)));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        request
    }

    #[test]
    fn requests_are_counted_by_what_they_do_and_segments_once() {
        let tally = RequestTally::of("test://counted");
        let segment = "http://h/b/main/wal/1/000000010000000000000001.wal";
        for (method, uri, body) in [
            (
                Method::PUT,
                "http://h/b/k?partNumber=1&uploadId=x",
                &b"abc"[..],
            ),
            (Method::POST, "http://h/b/k?uploads", b""),
            (Method::PUT, segment, b"12345"),
            (Method::GET, segment, b""),
            (Method::HEAD, segment, b""),
            (Method::GET, "http://h/b/k", b""),
            (Method::GET, "http://h/b?list-type=2&prefix=p", b""),
            (Method::GET, "http://h/c?restype=container&comp=list", b""),
            (Method::GET, "http://h/b?uploads=&prefix=p", b""),
            (Method::DELETE, "http://h/b/k", b""),
        ] {
            tally.sent(&request(method, uri, body));
        }
        tally.received(7);
        let told = requests_by_bucket();
        let told = told.iter().find(|r| r.bucket == "test://counted").unwrap();
        assert_eq!(
            (told.puts, told.gets, told.lists, told.deletes),
            (3, 3, 3, 1)
        );
        assert_eq!((told.sent_bytes, told.received_bytes), (8, 7));
        assert_eq!((told.wal, told.wal_files, told.total()), (3, 1, 10));
    }
}
