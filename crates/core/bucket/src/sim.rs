//! A store in memory behind `object_store`'s own client, which loses, repeats, cuts and refuses as a script says.
//!
//! The code that is tested is the shipped one, retries included; only the network is not there. The store speaks the
//! requests of S3, of Azure or of Google that this room makes, and checks no signature. Several writers can be
//! told apart, and their requests for shared names let through one by one, in any order that a test wants.
//!
//! Invariants
//! - Clones share one state, and each answer is made under its lock.
//! - Each request is recorded before the script decides about it. Without a script all requests pass.
//! - The store's clock moves only when a test calls `pass`.
//! - Unless the script says otherwise, a completion succeeds only if it names exactly the parts that the store has,
//!   numbered from 1, all of one size except a shorter last one.
//! - Azure's blocks belong to a name and not to an upload: a completion finds those of all writers, and drops all that
//!   it does not name.
//! - A part's bytes are copied, so a sender that reuses its buffer too early cannot change them.
//!
//! Leaves to others: repetition, conditions and errors, which are the shipped code (`store.rs`, `upload.rs`,
//! `watched.rs`, `object_store`); TLS, proxies and redirects, which no test reaches through it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use longshore_io::crc32c;
use md5::{Digest, Md5};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use tokio::sync::oneshot;

mod lists;

use crate::azure::{Azure, AzureSource};
use crate::google::{Google, GoogleSource};
use crate::patience::Patience;
use crate::s3::{S3, Style};
use crate::settings::{Provider, Settings};
use crate::source::Source;
use crate::{Bucket, Error, Scheme};

/// Makes a test of each of these functions over a store of each kind: `s3::NAME`, `azure::NAME`, `google::NAME`.
#[macro_export]
macro_rules! over_each_store {
    ($($test:ident)*) => {
        mod s3 {
            $(#[test] fn $test() { super::$test($crate::Scheme::S3); })*
        }
        mod azure {
            $(#[test] fn $test() { super::$test($crate::Scheme::Azure); })*
        }
        mod google {
            $(#[test] fn $test() { super::$test($crate::Scheme::Google); })*
        }
    };
}

/// The fate of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Pass,
    /// It never arrives.
    LoseRequest,
    /// It is done, and its answer never arrives.
    LoseAnswer,
    /// Its answer never arrives, and it is done so many requests later, or when [`Store::arrive`] says.
    Late(usize),
    /// It is done twice, as when a network repeats it; the second answer arrives.
    Twice,
    /// It is not done; the store answers this status and code.
    Refuse(u16, &'static str),
    /// The answer's body breaks off after so many bytes.
    Cut(usize),
    /// The first byte of the answer's body is another.
    WrongByte,
    /// Another writer puts these bytes there first.
    Overtake(&'static [u8]),
    /// It is not done; the answer is 200 with this error in its body.
    Hide(&'static str),
    /// It is not done; the answer is 200 with this body.
    Answer(&'static str),
    /// It is not done; the answer is that of a completion that is.
    Lie,
    Delay(Duration),
}

/// A request, as a script sees it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// 0 for the store's first request.
    pub number: usize,
    /// Of which writer it is.
    pub who: usize,
    pub method: String,
    pub key: String,
    pub query: String,
}

impl Asked {
    pub fn is_part(&self) -> bool {
        self.query.contains("partNumber=") || self.query.contains("comp=block&")
    }

    pub fn is_completion(&self) -> bool {
        (self.method == "POST" && self.query.contains("uploadId="))
            || self.query.contains("comp=blocklist")
    }

    pub fn is_abort(&self) -> bool {
        self.method == "DELETE" && self.query.contains("uploadId=")
    }
}

type Script = Box<dyn FnMut(&Asked) -> Act + Send>;
type Meanwhile = Box<dyn FnOnce() + Send>;
/// Requests of one writer, and what lets each through.
type Waiting = VecDeque<(Asked, oneshot::Sender<()>)>;

#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    tag: String,
    /// Google's name of the content.
    number: u64,
    label: Option<String>,
    who: usize,
    modified_s: i64,
}

#[derive(Debug, Default)]
struct Pending {
    key: String,
    label: Option<String>,
    parts: BTreeMap<u32, (Bytes, String)>,
    begun_s: i64,
    /// When its last part came.
    last_s: i64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Pending>,
    /// Azure's blocks that belong to no blob yet, by the blob's key and their own names.
    blocks: BTreeMap<String, BTreeMap<String, Bytes>>,
    asked: Vec<Asked>,
    script: Option<Script>,
    meanwhile: Option<(usize, Meanwhile)>,
    next: u64,
    ignores_conditions: bool,
    /// The requests that wait to be let through, by writer, in their order; `None` if nobody waits.
    gate: Option<BTreeMap<usize, Waiting>>,
    /// The objects that its listings show; `None`: those that are there.
    listed: Option<BTreeMap<String, Object>>,
    /// The time until which it says that it keeps each object.
    keeps_until: Option<&'static str>,
    /// How far its clock is past [`BEGIN_S`].
    passed_s: i64,
    habits: Habits,
    /// Requests on their way, and the number of the request before which each is done.
    late: Vec<(usize, Late)>,
}

/// A request that takes effect after its sender gave it up.
type Late = Box<dyn FnOnce(&mut State) + Send>;

/// The faults of a store that keeps fewer promises than the best ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    /// It does not heed If-None-Match.
    pub overwrites: bool,
    /// Its answers have no date.
    pub tells_no_time: bool,
    /// Keys in one portion of a listing; 0: 1,000.
    pub portion: usize,
}

/// A client that repeats a request three times.
const SHORT: Patience = Patience {
    retries: 3,
    total: Duration::from_secs(10),
    first_wait: Duration::from_millis(1),
    longest_wait: Duration::from_millis(2),
};

const SERVER: &str = "http://sim";

/// The key file of a service account that is asked for no token.
const GOOGLE_KEY: &str = "{\"private_key\": \"secret\", \"private_key_id\": \"id\", \
     \"client_email\": \"e\", \"disable_oauth\": true}";

/// When a store's clock begins: 2024-01-02 03:04:05 UTC.
const BEGIN_S: i64 = 1_704_164_645;

fn time_text(passed_s: i64, form: &str) -> String {
    let time = jiff::Timestamp::from_second(BEGIN_S + passed_s);
    time.unwrap_or_default().strftime(form).to_string()
}

const HTTP_TIME: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// A store with one bucket, `sim`. Clones are the same store. The usual one speaks S3's protocol.
#[derive(Clone)]
pub struct Store {
    state: Arc<Mutex<State>>,
    who: usize,
    scheme: Scheme,
}

impl Default for Store {
    fn default() -> Self {
        Store::speaking(Scheme::S3)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A store that is spoken to as these are.
    pub fn speaking(scheme: Scheme) -> Store {
        Store {
            state: Arc::default(),
            who: 0,
            scheme,
        }
    }

    /// How the addresses of its objects begin.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The number of blocks that belong to no blob, and the key of each.
    pub fn blocks(&self, key: &str) -> usize {
        self.state(|s| s.blocks.get(key).map_or(0, BTreeMap::len))
    }

    /// The same store, as writer `who` reaches it.
    pub fn of(&self, who: usize) -> Store {
        Store {
            who,
            ..self.clone()
        }
    }

    /// From now on the store ignores If-Match and If-None-Match of completions, as some do.
    pub fn ignore_conditions(&self) {
        self.state(|s| s.ignores_conditions = true);
    }

    /// From now on each request that shows or changes what stands under a name waits until it is let through. Those of
    /// one writer pass in their order.
    pub fn close_gate(&self) {
        self.state(|s| s.gate = Some(BTreeMap::new()));
    }

    /// Lets everything through, from now on.
    pub fn open_gate(&self) {
        self.state(|s| s.gate = None);
    }

    /// The first request of writer `who` that waits.
    pub fn waiting(&self, who: usize) -> Option<Asked> {
        self.state(|s| Some(s.gate.as_ref()?.get(&who)?.front()?.0.clone()))
    }

    pub fn let_through(&self, who: usize) {
        let waiting = self.state(|s| s.gate.as_mut()?.get_mut(&who)?.pop_front());
        if let Some((_, go)) = waiting {
            // A request that was dropped needs no leave.
            let _ = go.send(());
        }
    }

    async fn wait_at_gate(&self, asked: &Asked) {
        let is_private = asked.is_part() || asked.is_abort() || asked.query.contains("uploads");
        let leave = self.state(|s| {
            let gate = s.gate.as_mut().filter(|_| !is_private)?;
            let (go, leave) = oneshot::channel();
            let waiting = gate.entry(self.who).or_default();
            waiting.push_back((asked.clone(), go));
            Some(leave)
        });
        if let Some(leave) = leave {
            // A gate that is gone lets everything through.
            let _ = leave.await;
        }
    }

    /// From now on each request is given to `script`.
    pub fn script(&self, script: impl FnMut(&Asked) -> Act + Send + 'static) {
        self.state(|s| s.script = Some(Box::new(script)));
    }

    /// Before the store does its request of this number, `what` is done, whose requests pass it.
    pub fn meanwhile(&self, number: usize, what: impl FnOnce() + Send + 'static) {
        self.state(|s| s.meanwhile = Some((number, Box::new(what))));
    }

    /// From now on everything passes.
    pub fn heal(&self) {
        self.state(|s| s.script = None);
    }

    /// Lets time pass for the store, and for nobody else.
    pub fn pass(&self, seconds: i64) {
        self.state(|s| s.passed_s += seconds);
    }

    /// From now on a look at an object says that it is kept until then. Only the script refuses removals.
    pub fn keep_until(&self, time: &'static str) {
        self.state(|s| s.keeps_until = Some(time));
    }

    /// From now on listings show the objects that are there now, also those that are removed or replaced later.
    pub fn freeze_listings(&self) {
        self.state(|s| s.listed = Some(s.objects.clone()));
    }

    /// From now on listings show what is there.
    pub fn thaw_listings(&self) {
        self.state(|s| s.listed = None);
    }

    pub fn habits(&self, habits: Habits) {
        self.state(|s| s.habits = habits);
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<String> {
        self.state(|s| s.objects.keys().cloned().collect())
    }

    /// Removes an object, as another program would.
    pub fn lose(&self, key: &str) {
        self.state(|s| drop(s.objects.remove(key)));
    }

    /// A bucket of a name of its own, which [`Bucket::open`] finds from now on, as if the environment had its settings.
    pub fn install(&self) -> Result<String, Error> {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("sim-{number}");
        self.named(&name, SHORT, SERVER)?.install();
        Ok(name)
    }

    /// [`Store::install`] under this name, in place of a bucket that has it, at this server.
    pub fn install_at(&self, name: &str, server: &str) -> Result<(), Error> {
        self.named(name, SHORT, server)?.install();
        Ok(())
    }

    /// Another store with the same objects, as replication makes one: the times are the same, too.
    pub fn replica(&self) -> Store {
        let replica = Store::speaking(self.scheme);
        let (objects, passed_s) = self.state(|s| (s.objects.clone(), s.passed_s));
        replica.state(|s| (s.objects, s.passed_s) = (objects, passed_s));
        replica
    }

    /// The bucket, with a client of its own that repeats a request three times.
    pub fn bucket(&self) -> Result<Bucket, Error> {
        self.named("sim", SHORT, SERVER)
    }

    /// The bucket with the shipped client, which repeats a request for `total` instead of minutes, and waits less.
    pub fn patient_bucket(&self, total: Duration) -> Result<Bucket, Error> {
        let patience = Patience {
            total,
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_millis(2),
            ..Patience::USUAL
        };
        self.named("sim", patience, SERVER)
    }

    fn named(&self, name: &str, patience: Patience, server: &str) -> Result<Bucket, Error> {
        let endpoint = Some(server.to_owned());
        let provider = match self.scheme {
            Scheme::S3 => Provider::S3(S3 {
                checksum: None,
                style: Style::Auto,
                endpoint,
                region: None,
                source: Ok(Source::Keys {
                    id: "id".to_owned(),
                    secret: "secret".to_owned(),
                    token: None,
                }),
            }),
            Scheme::Azure => Provider::Azure(Azure {
                account: "account".to_owned(),
                endpoint,
                source: Ok(AzureSource::AccountKey("c2VjcmV0".to_owned())),
            }),
            Scheme::Google => Provider::Google(Google {
                endpoint,
                source: Ok(GoogleSource::ServiceAccount(GOOGLE_KEY.to_owned())),
            }),
        };
        let settings = Settings {
            provider,
            allow_http: true,
            origin: crate::settings::Origin::Environment,
            ca: None,
            patience,
        };
        Bucket::connect(name, settings, || self.clone())
    }

    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.state(|s| s.objects.get(key).map(|o| o.bytes.to_vec()))
    }

    /// The number of the writer of the object.
    pub fn writer(&self, key: &str) -> Option<usize> {
        self.state(|s| Some(s.objects.get(key)?.who))
    }

    /// The keys of open uploads, and the lengths of their parts; a completed object no longer shows its parts.
    pub fn uploads(&self) -> Vec<(String, Vec<usize>)> {
        self.state(|s| {
            let parts = |p: &Pending| p.parts.values().map(|(b, _)| b.len()).collect();
            s.uploads
                .values()
                .map(|p| (p.key.clone(), parts(p)))
                .collect()
        })
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state(|s| s.asked.clone())
    }

    /// Leaves an upload of one part to any key, as another program would that was killed.
    pub fn leave_upload(&self, key: &str, part: &[u8]) {
        self.state(|s| {
            s.begin(key, None);
            let id = format!("u{}", s.next);
            s.part(&id, "partNumber=1", &Bytes::copy_from_slice(part));
        });
    }

    /// Puts an object there, as another program would.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.state(|s| {
            s.keep(key, bytes, None, self.who);
        });
    }
}

impl HttpConnector for Store {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the simulated network lost it")]
struct Lost;

fn lost() -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, Lost)
}

#[async_trait]
impl HttpService for Store {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = match body.as_bytes() {
            Some(bytes) => bytes.clone(),
            None => collected(body).await,
        };
        // The bucket's name comes first.
        let path = parts.uri.path().trim_start_matches('/');
        let key = decoded(path.split_once('/').map_or("", |(_, key)| key));
        let meanwhile = self.state(|s| {
            let number = s.asked.len();
            s.meanwhile.take_if(|(at, _)| *at == number)
        });
        if let Some((_, what)) = meanwhile {
            // It waits for requests of its own.
            tokio::task::block_in_place(what);
        }
        let (asked, act) = self.state(|s| {
            let asked = Asked {
                number: s.asked.len(),
                who: self.who,
                method: parts.method.to_string(),
                key: key.clone(),
                query: query_of(&parts),
            };
            s.asked.push(asked.clone());
            let act = s.script.as_mut().map_or(Act::Pass, |script| script(&asked));
            (asked, act)
        });
        self.arrive_before(asked.number);
        self.wait_at_gate(&asked).await;
        if let Act::Delay(how_long) = &act {
            tokio::time::sleep(*how_long).await;
        }
        match act {
            Act::LoseRequest => return Err(lost()),
            Act::Late(requests) => {
                let at = asked.number.saturating_add(requests);
                self.send_late(at, &key, parts, body);
                return Err(lost());
            }
            Act::Overtake(bytes) => self.put(&key, bytes),
            Act::Refuse(status, code) => {
                let mut answer = self.in_its_manner(refusal(status, code));
                // The answer to a HEAD has no body.
                if parts.method == Method::HEAD {
                    *answer.body_mut() = Bytes::new().into();
                }
                return Ok(answer);
            }
            Act::Hide(code) => return Ok(refusal(200, code)),
            Act::Answer(body) => return Ok(answered(StatusCode::OK, &[], body.into())),
            Act::Lie => return Ok(completion(self.scheme, "\"lie\"")),
            Act::Twice => drop(self.answer(&parts.method, &key, &parts, &body)),
            _ => {}
        }
        let mut answer = self.answer(&parts.method, &key, &parts, &body);
        let now = self.state(|s| (!s.habits.tells_no_time).then_some(s.passed_s));
        let now = now.and_then(|passed_s| time_text(passed_s, HTTP_TIME).parse().ok());
        if let Some(now) = now {
            answer.headers_mut().insert("date", now);
        }
        match act {
            Act::LoseAnswer => Err(lost()),
            Act::Cut(after) => Ok(answer.map(|body| cut(body, after))),
            Act::WrongByte => {
                let (parts, body) = answer.into_parts();
                let mut bytes = body.bytes().await?.to_vec();
                if let Some(first) = bytes.first_mut() {
                    *first ^= 1;
                }
                Ok(HttpResponse::from_parts(parts, bytes.into()))
            }
            _ => Ok(answer),
        }
    }
}

async fn collected(body: object_store::client::HttpRequestBody) -> Bytes {
    let body = HttpResponseBody::new(body);
    body.bytes().await.unwrap_or_default()
}

fn cut(body: HttpResponseBody, after: usize) -> HttpResponseBody {
    let mut left = after;
    let pieces = body.bytes_stream().flat_map(move |bytes| {
        let Ok(bytes) = bytes else {
            return futures_util::stream::iter(vec![Err(lost())]);
        };
        let n = bytes.len().min(left);
        left -= n;
        let whole = n == bytes.len();
        let mut pieces = vec![Ok(Frame::data(bytes.slice(..n)))];
        if !whole {
            pieces.push(Err(lost()));
        }
        futures_util::stream::iter(pieces)
    });
    HttpResponseBody::new(StreamBody::new(SyncStream(Mutex::new(Box::pin(pieces)))))
}

/// A stream that may be shared between threads, as a body must be, although only one polls it.
struct SyncStream<S>(Mutex<std::pin::Pin<Box<S>>>);

impl<S: futures_util::Stream> futures_util::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.as_mut().poll_next(context)
    }
}

fn refusal(status: u16, code: &str) -> HttpResponse {
    let reason = Code(code.to_owned());
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = format!("<Error><Code>{code}</Code><Message>as the script says</Message></Error>");
    let mut answer = answered(status, &[], text.into_bytes().into());
    answer.extensions_mut().insert(reason);
    answer
}

fn completion(scheme: Scheme, tag: &str) -> HttpResponse {
    if scheme == Scheme::Azure {
        return answered(StatusCode::CREATED, &[("etag", tag)], Bytes::new());
    }
    let text = format!(
        "<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
    );
    answered(StatusCode::OK, &[], text.into_bytes().into())
}

fn answered(status: StatusCode, headers: &[(&str, &str)], body: Bytes) -> HttpResponse {
    let mut response = HttpResponse::new(body.into());
    *response.status_mut() = status;
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A query has a plus for a space.
fn query_of(parts: &http::request::Parts) -> String {
    decoded(&parts.uri.query().unwrap_or_default().replace('+', "%20"))
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3);
        match (bytes[at], hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(byte)) => {
                plain.push(byte);
                at += 3;
            }
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The value of a parameter of a query as it was sent.
fn parameter(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then(|| decoded(&value.replace('+', "%20")))
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A key in XML.
fn escaped(key: &str) -> String {
    let mut text = String::new();
    for c in key.chars() {
        match c {
            '&' | '<' | '>' => text.push_str(&format!("&#{};", u32::from(c))),
            c if c.is_control() => text.push_str(&format!("&#{};", u32::from(c))),
            c => text.push(c),
        }
    }
    text
}

fn label_of(headers: &HeaderMap) -> Option<String> {
    let names = LABELS.map(|(_, name)| header(headers, name));
    names.into_iter().flatten().next().map(str::to_owned)
}

/// The header of an object's label.
const LABELS: [(Scheme, &str); 3] = [
    (Scheme::S3, "x-amz-meta-longshore"),
    (Scheme::Azure, "x-ms-meta-longshore"),
    (Scheme::Google, "x-goog-meta-longshore"),
];

/// A listing's page.
struct Page<'a> {
    rows: Vec<Row<'a>>,
    /// After which key the next one begins.
    next: Option<&'a str>,
}

enum Row<'a> {
    Folder(String),
    Object(&'a str, &'a Object),
}

/// `bytes=FIRST-LAST`.
fn range(headers: &HeaderMap, len: u64) -> Option<Range<u64>> {
    let (first, last) = header(headers, "range")?
        .strip_prefix("bytes=")?
        .split_once('-')?;
    let range = first.parse().ok()?..(last.parse::<u64>().ok()? + 1).min(len);
    (range.start < range.end).then_some(range)
}

impl Store {
    fn answer(
        &self,
        method: &Method,
        key: &str,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> HttpResponse {
        let query = parts.uri.query().unwrap_or_default();
        let scheme = self.scheme;
        let answer = self.state(|s| match scheme {
            Scheme::Azure => s.azure(method, key, parts, body, self.who),
            Scheme::S3 | Scheme::Google => {
                s.s3((method, query), key, parts, body, (scheme, self.who))
            }
        });
        self.in_its_manner(answer)
    }

    /// Does a request before the request `number`.
    fn send_late(&self, number: usize, key: &str, parts: http::request::Parts, body: Bytes) {
        let (store, key) = (self.clone(), key.to_owned());
        let done: Late = Box::new(move |s| {
            let query = parts.uri.query().unwrap_or_default();
            let _unheard = match store.scheme {
                Scheme::Azure => s.azure(&parts.method, &key, &parts, &body, store.who),
                Scheme::S3 | Scheme::Google => {
                    let who = (store.scheme, store.who);
                    s.s3((&parts.method, query), &key, &parts, &body, who)
                }
            };
        });
        self.state(|s| s.late.push((number, done)));
    }

    fn arrive_before(&self, number: usize) {
        self.state(|s| {
            let (due, rest) = std::mem::take(&mut s.late)
                .into_iter()
                .partition(|(at, _)| *at <= number);
            s.late = rest;
            let due: Vec<(usize, Late)> = due;
            due.into_iter().for_each(|(_, done)| done(s));
        });
    }

    /// All requests that are on their way are done now. Returns their number.
    pub fn arrive(&self) -> usize {
        let count = self.state(|s| s.late.len());
        self.arrive_before(usize::MAX);
        count
    }

    /// Azure names the reason of a refusal in a header, too.
    fn in_its_manner(&self, mut answer: HttpResponse) -> HttpResponse {
        let code = answer.extensions_mut().remove::<Code>();
        if let (Scheme::Azure, Some(Code(code))) = (self.scheme, code)
            && let Ok(value) = code.parse()
        {
            answer.headers_mut().insert("x-ms-error-code", value);
        }
        answer
    }
}

/// The reason of a refusal.
#[derive(Clone)]
struct Code(String);

impl State {
    fn s3(
        &mut self,
        (method, query): (&Method, &str),
        key: &str,
        parts: &http::request::Parts,
        body: &Bytes,
        (scheme, who): (Scheme, usize),
    ) -> HttpResponse {
        let (s, headers) = (self, &parts.headers);
        let upload = parameter(query, "uploadId");
        let of = upload.as_ref().and_then(|id| s.uploads.get(id));
        if of.is_some_and(|upload| upload.key != key) {
            return refusal(404, "NoSuchUpload");
        }
        match (method.as_str(), upload.as_deref()) {
            ("GET" | "HEAD", _) if parameter(query, "list-type").is_some() => s.list(query),
            ("GET", None) if parameter(query, "uploads").is_some() => s.list_uploads(query),
            ("GET", Some(id)) => s.list_parts(id, query),
            ("GET" | "HEAD", _) => s.get(scheme, key, headers, method == Method::HEAD),
            ("POST", None) if parameter(query, "uploads").is_some() => {
                s.begin(key, label_of(headers))
            }
            ("DELETE", None) => {
                s.objects.remove(key);
                answered(StatusCode::NO_CONTENT, &[], Bytes::new())
            }
            ("PUT", Some(id)) => s.part(id, query, body),
            ("POST", Some(id)) => s.complete(id, headers, body, (scheme, who)),
            ("DELETE", Some(id)) => match s.uploads.remove(id) {
                Some(_) => answered(StatusCode::NO_CONTENT, &[], Bytes::new()),
                None => refusal(404, "NoSuchUpload"),
            },
            ("PUT", None) => s.put(scheme, key, headers, body, who),
            _ => refusal(501, "NotImplemented"),
        }
    }

    fn azure(
        &mut self,
        method: &Method,
        key: &str,
        parts: &http::request::Parts,
        body: &Bytes,
        who: usize,
    ) -> HttpResponse {
        let (query, headers) = (parts.uri.query().unwrap_or_default(), &parts.headers);
        let scheme = Scheme::Azure;
        let comp = parameter(query, "comp").unwrap_or_default();
        match (method.as_str(), comp.as_str()) {
            ("GET", "list") => self.list_blobs(query),
            ("GET" | "HEAD", "") => self.get(scheme, key, headers, method == Method::HEAD),
            ("DELETE", "") => match self.objects.remove(key) {
                Some(_) => answered(StatusCode::ACCEPTED, &[], Bytes::new()),
                None => refusal(404, "BlobNotFound"),
            },
            ("PUT", "block") => {
                let id = parameter(query, "blockid").unwrap_or_default();
                let blocks = self.blocks.entry(key.to_owned()).or_default();
                blocks.insert(id, Bytes::copy_from_slice(body));
                answered(StatusCode::CREATED, &[], Bytes::new())
            }
            ("PUT", "blocklist") => self.commit(key, headers, body, who),
            ("PUT", "") if header(headers, "x-ms-blob-type") == Some("BlockBlob") => {
                let answer = self.put(scheme, key, headers, body, who);
                if answer.status().is_success() {
                    self.blocks.remove(key);
                }
                answer
            }
            _ => refusal(400, "UnsupportedHeader"),
        }
    }

    /// Makes a blob of blocks, if they are there and the condition holds.
    fn commit(&mut self, key: &str, headers: &HeaderMap, body: &Bytes, who: usize) -> HttpResponse {
        if let Some(refused) = self.condition(Scheme::Azure, key, headers)
            && !self.ignores_conditions
            && !self.habits.overwrites
        {
            return refused;
        }
        let text = String::from_utf8_lossy(body);
        let named = text.split("<Uncommitted>").skip(1);
        let named = named.filter_map(|rest| Some(rest.split_once("</Uncommitted>")?.0));
        let have = self.blocks.get(key);
        let found: Option<Vec<_>> = named.map(|id| have?.get(id)).collect();
        let Some(bytes) = found.map(|blocks| {
            let pieces = blocks.into_iter().flat_map(|block| block.iter().copied());
            pieces.collect::<Vec<u8>>()
        }) else {
            return refusal(400, "InvalidBlockList");
        };
        self.blocks.remove(key);
        let tag = self.keep(key, bytes.into(), label_of(headers), who);
        completion(Scheme::Azure, &tag)
    }

    fn list_blobs(&self, query: &str) -> HttpResponse {
        let prefix = parameter(query, "prefix").unwrap_or_default();
        let after = parameter(query, "marker").unwrap_or_default();
        let by_level = parameter(query, "delimiter").is_some();
        let page = self.page_of(&prefix, &after, by_level);
        let mut rows = String::new();
        for row in &page.rows {
            rows += &match row {
                Row::Folder(name) => {
                    format!("<BlobPrefix><Name>{}</Name></BlobPrefix>", escaped(name))
                }
                Row::Object(key, object) => format!(
                    "<Blob><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified>\
                     <Content-Length>{}</Content-Length><Content-Type>x</Content-Type><Etag>x</Etag></Properties></Blob>",
                    escaped(key),
                    time_text(object.modified_s, HTTP_TIME),
                    object.bytes.len()
                ),
            };
        }
        let next = page.next.map(escaped).unwrap_or_default();
        let text = format!(
            "<EnumerationResults><Blobs>{rows}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
        );
        answered(StatusCode::OK, &[], text.into_bytes().into())
    }

    /// Puts an object there.
    fn keep(&mut self, key: &str, bytes: Bytes, label: Option<String>, who: usize) -> String {
        let tag = self.tag(&bytes);
        let object = Object {
            bytes,
            tag: tag.clone(),
            number: self.next,
            label,
            who,
            modified_s: self.passed_s,
        };
        self.objects.insert(key.to_owned(), object);
        tag
    }

    fn tag(&mut self, bytes: &[u8]) -> String {
        self.next += 1;
        format!("\"{}-{:x}\"", self.next, crc32c(bytes))
    }

    fn get(&self, scheme: Scheme, key: &str, headers: &HeaderMap, is_head: bool) -> HttpResponse {
        let Some(object) = self.objects.get(key) else {
            let code = match scheme {
                Scheme::Azure => "BlobNotFound",
                Scheme::S3 | Scheme::Google => "NoSuchKey",
            };
            return refusal(404, code);
        };
        if header(headers, "if-match").is_some_and(|wanted| wanted != object.tag) {
            return refusal(412, "PreconditionFailed");
        }
        let len = object.bytes.len() as u64;
        let all = len.to_string();
        let modified = time_text(object.modified_s, HTTP_TIME);
        let mut said = vec![("etag", object.tag.as_str()), ("last-modified", &modified)];
        if let Some(label) = &object.label {
            said.extend(
                LABELS
                    .iter()
                    .filter(|l| l.0 == scheme)
                    .map(|l| (l.1, label.as_str())),
            );
        }
        let number = object.number.to_string();
        if scheme == Scheme::Google {
            said.push(("x-goog-generation", &number));
        }
        if is_head {
            said.push(("content-length", &all));
            let kept = self.keeps_until.map(|until| match scheme {
                Scheme::Azure => ("x-ms-immutability-policy-until-date", until),
                Scheme::S3 | Scheme::Google => ("x-amz-object-lock-retain-until-date", until),
            });
            said.extend(kept);
            return answered(StatusCode::OK, &said, Bytes::new());
        }
        if header(headers, "range").is_none() {
            said.push(("content-length", &all));
            return answered(StatusCode::OK, &said, object.bytes.clone());
        }
        let Some(range) = range(headers, len) else {
            return refusal(416, "InvalidRange");
        };
        let here = format!("bytes {}-{}/{len}", range.start, range.end - 1);
        let count = (range.end - range.start).to_string();
        said.extend([("content-range", here.as_str()), ("content-length", &count)]);
        let bytes = object.bytes.slice(range.start as usize..range.end as usize);
        answered(StatusCode::PARTIAL_CONTENT, &said, bytes)
    }

    /// The objects and folders after a key.
    fn page_of<'a>(&'a self, prefix: &str, after: &str, by_level: bool) -> Page<'a> {
        let page = match self.habits.portion {
            0 => 1000,
            page => page,
        };
        let (mut rows, mut last, mut folder) = (Vec::new(), "", String::new());
        let listed = self.listed.as_ref().unwrap_or(&self.objects);
        let below = listed.iter().filter(|(key, _)| key.starts_with(prefix));
        let mut below = below.filter(|(key, _)| key.as_str() > after).peekable();
        while let Some((key, object)) = below.next_if(|_| rows.len() < page) {
            last = key;
            let rest = &key[prefix.len()..];
            if by_level && let Some((first, _)) = rest.split_once('/') {
                let this = format!("{prefix}{first}/");
                if this != folder {
                    rows.push(Row::Folder(this.clone()));
                    folder = this;
                }
                continue;
            }
            rows.push(Row::Object(key, object));
        }
        Page {
            next: below.peek().map(|_| last),
            rows,
        }
    }

    fn list(&self, query: &str) -> HttpResponse {
        let prefix = parameter(query, "prefix").unwrap_or_default();
        let after = parameter(query, "continuation-token").unwrap_or_default();
        let by_level = parameter(query, "delimiter").is_some();
        let page = self.page_of(&prefix, &after, by_level);
        let mut rows = String::new();
        for row in &page.rows {
            rows += &match row {
                Row::Folder(name) => {
                    let name = escaped(name);
                    format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>")
                }
                Row::Object(key, object) => format!(
                    "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>x</ETag><Size>{}</Size></Contents>",
                    escaped(key),
                    time_text(object.modified_s, "%Y-%m-%dT%H:%M:%S.000Z"),
                    object.bytes.len()
                ),
            };
        }
        let more = match page.next {
            Some(last) => format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>",
                escaped(last)
            ),
            None => "<IsTruncated>false</IsTruncated>".to_owned(),
        };
        let text = format!("<ListBucketResult>{more}{rows}</ListBucketResult>");
        answered(StatusCode::OK, &[], text.into_bytes().into())
    }

    fn begin(&mut self, key: &str, label: Option<String>) -> HttpResponse {
        self.next += 1;
        let id = format!("u{}", self.next);
        let text = format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        );
        let pending = Pending {
            key: key.to_owned(),
            label,
            parts: BTreeMap::new(),
            begun_s: self.passed_s,
            last_s: self.passed_s,
        };
        self.uploads.insert(id, pending);
        answered(StatusCode::OK, &[], text.into_bytes().into())
    }

    fn part(&mut self, id: &str, query: &str, body: &Bytes) -> HttpResponse {
        // As most stores have it.
        let sum: String = Md5::digest(body)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let tag = format!("\"{sum}\"");
        let number = parameter(query, "partNumber").and_then(|n| n.parse().ok());
        let now_s = self.passed_s;
        match (self.uploads.get_mut(id), number) {
            (Some(upload), Some(number)) => {
                upload.last_s = now_s;
                // A copy, as a store makes one: the sender's buffer is used again.
                let bytes = Bytes::copy_from_slice(body);
                upload.parts.insert(number, (bytes, tag.clone()));
                answered(StatusCode::OK, &[("etag", &tag)], Bytes::new())
            }
            _ => refusal(404, "NoSuchUpload"),
        }
    }

    /// Refuses parts that are not those it has, and parts of different sizes, as the strictest stores do.
    fn complete(
        &mut self,
        id: &str,
        headers: &HeaderMap,
        body: &Bytes,
        (scheme, who): (Scheme, usize),
    ) -> HttpResponse {
        let Some(upload) = self.uploads.get(id) else {
            return refusal(404, "NoSuchUpload");
        };
        if let Some(refused) = self.condition(scheme, &upload.key, headers)
            && !self.ignores_conditions
            && !self.habits.overwrites
        {
            return refused;
        }
        let text = String::from_utf8_lossy(body).replace("&quot;", "\"");
        let named: Vec<_> = text
            .split("<ETag>")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once("</ETag>")?.0.to_owned()))
            .collect();
        let have: Vec<_> = upload.parts.values().map(|(_, tag)| tag.clone()).collect();
        let numbers = upload.parts.keys().copied().eq(1..=have.len() as u32);
        if named != have || !numbers {
            return refusal(400, "InvalidPart");
        }
        let lens: Vec<_> = upload.parts.values().map(|(b, _)| b.len()).collect();
        let first = lens.first().copied().unwrap_or_default();
        let equal = lens
            .split_last()
            .is_none_or(|(last, others)| *last <= first && others.iter().all(|len| *len == first));
        if !equal {
            return refusal(400, "InvalidPart");
        }
        let Some(upload) = self.uploads.remove(id) else {
            return refusal(404, "NoSuchUpload");
        };
        let mut bytes = Vec::new();
        for (part, _) in upload.parts.values() {
            bytes.extend_from_slice(part);
        }
        let tag = self.keep(&upload.key, bytes.into(), upload.label, who);
        completion(scheme, &tag)
    }

    /// The refusal of a request whose condition does not hold.
    fn condition(&self, scheme: Scheme, key: &str, headers: &HeaderMap) -> Option<HttpResponse> {
        let there = self.objects.get(key);
        let failed = || Some(refusal(412, "PreconditionFailed"));
        if scheme == Scheme::Google {
            let wanted = header(headers, "x-goog-if-generation-match")?;
            let number = there.map_or(0, |object| object.number);
            return (number.to_string() != wanted).then(failed)?;
        }
        if header(headers, "if-none-match").is_some() && there.is_some() {
            return match scheme {
                Scheme::Azure => Some(refusal(409, "BlobAlreadyExists")),
                Scheme::S3 | Scheme::Google => failed(),
            };
        }
        match (header(headers, "if-match"), there) {
            (Some(_), None) if scheme == Scheme::Azure => failed(),
            (Some(_), None) => Some(refusal(404, "NoSuchKey")),
            (Some(tag), Some(object)) if object.tag != tag => failed(),
            _ => None,
        }
    }

    fn put(
        &mut self,
        scheme: Scheme,
        key: &str,
        headers: &HeaderMap,
        body: &Bytes,
        who: usize,
    ) -> HttpResponse {
        if let Some(refused) = self.condition(scheme, key, headers)
            && !self.habits.overwrites
        {
            return refused;
        }
        let tag = self.keep(key, Bytes::copy_from_slice(body), label_of(headers), who);
        let status = match scheme {
            Scheme::Azure => StatusCode::CREATED,
            Scheme::S3 | Scheme::Google => StatusCode::OK,
        };
        answered(status, &[("etag", &tag)], Bytes::new())
    }
}
