//! One bucket: its connections, and requests for whole objects, ranges, lists and removals.
//!
//! Invariants
//! - Opening makes no request. In one process all openings of a name at one server share one client. Two buckets of one
//!   name at two servers share nothing.
//! - `fetch` and `read` return all bytes of the range or an error. With a tag they return only bytes of the content
//!   with that tag, even if the store ignores If-Match. The two ends that `ends` returns are of one content.
//! - `create` sends If-None-Match: a store that heeds it replaces nothing.
//! - Removing an object that is missing succeeds.
//! - If a request was repeated and the last try got no answer, other requests are not repeated until one is answered or
//!   the same time has passed.
//!
//! Leaves to others: settings and the client of one kind of store (`s3.rs`, `azure.rs`, `google.rs`); requests of our
//! own (`own.rs`); uploads in parts (`upload.rs`); lists with the store's times (`objects.rs`, `unfinished.rs`);
//! recording answers (`watched.rs`); proxies and redirects (`network.rs`); the meaning of the bytes (`longshore-media`,
//! `longshore-repository`, `longshore-wal`).

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use longshore_io::Storage;
use object_store::client::HttpConnector;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientOptions, Error as StoreError, GetOptions, GetRange, GetResult,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};

use crate::access::Access;
use crate::address::{Given, beginning};
use crate::connection::{Connection, Ways};
use crate::counted::RequestTally;
use crate::error::BY;
use crate::flow::{Flow, Running};
use crate::network::{Direct, Proxies};
use crate::own::{Asking, odd};
use crate::past::{Past, past_ns};
use crate::scheme::Scheme;
use crate::settings::{Origin, Provider, Settings};
use crate::then::Then;
use crate::watched::{GivenUp, SEEN, Seen, innermost};
use crate::{Address, Error, ServerUrl, Ticket, runtime, servers};

/// The name of the label among an object's own metadata: `x-amz-meta-longshore`, `x-ms-meta-longshore` in Azure,
/// `x-goog-meta-longshore` at Google.
const LABEL: &str = "longshore";
/// A request with its body. The largest part takes so long at 16 MB/s.
const REQUEST_MAX: Duration = Duration::from_secs(280);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Once a run is interrupted, the store is waited for so much longer where the answer says what it has.
const GRACE: Duration = Duration::from_secs(10);

/// A store's answer about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub len_bytes: u64,
    /// The ETag: another content has another one.
    pub tag: Option<String>,
    /// The version, where the store names it: at Google the number that conditions name.
    pub version: Option<String>,
    /// The label that the upload was given.
    pub label: Option<String>,
    /// The time of its last change by the store's clock, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
}

impl Head {
    fn of(meta: &ObjectMeta, attributes: &Attributes) -> Head {
        Head {
            len_bytes: meta.size,
            tag: meta.e_tag.clone(),
            version: meta.version.clone(),
            label: attributes
                .get(&Attribute::Metadata(LABEL.into()))
                .map(|value| value.to_string()),
            modified_ns: meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX),
        }
    }
}

/// The findings of one look at an object's two ends.
#[derive(Debug, Clone)]
pub struct Ends {
    pub head: Head,
    /// The first bytes.
    pub first: Bytes,
    /// The last bytes; empty if `first` is the whole object.
    pub last: Bytes,
}

/// The result of a conditional creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Created,
    There,
}

/// A bucket. Clones share their connections.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    scheme: Scheme,
    origin: Origin,
    name: String,
    connection: Connection,
    /// An abort was not answered: the next ones are not waited for as long.
    is_silent: AtomicBool,
    /// Parts in flight were cut before an abort: those of the next uploads are not waited for as long.
    is_slow: AtomicBool,
    given_up: GivenUp,
    /// How long one request is repeated, and how long a store that did not answer all that time is given up.
    patience: Duration,
    /// How much longer the store is waited for once a run is interrupted.
    grace: Duration,
    past: Option<Past>,
    sending: Arc<Flow>,
    reading: Arc<Flow>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Inner {
            scheme,
            name,
            connection,
            ..
        } = &*self.0;
        write!(f, "Bucket({scheme}{name} at {})", connection.endpoint)
    }
}

/// A bucket among those of all servers: the kind of the store, the server's name in the configuration, and its own.
type At = (Scheme, Option<String>, String);

/// The buckets that this process has opened: stripes of one bucket share connections and credentials.
static OPEN: Mutex<Option<HashMap<At, Bucket>>> = Mutex::new(None);

fn settings(at: &At, storage: &dyn Storage) -> Result<Settings, Error> {
    let (scheme, server, name) = at;
    match server {
        None => Settings::of_environment(*scheme, name, storage),
        Some(server) => servers::settings(*scheme, server, name, storage),
    }
}

fn origin(server: &str, bucket: &str, key: &Path) -> String {
    format!("{} {bucket} {key}", server.trim_end_matches('/'))
}

/// A bucket that was opened with a key that a caller brought along, and its server.
type OfKey = (Weak<Access>, String, Bucket);

/// The buckets of such keys that are in use. Another key, or the same name with another secret, has connections of its own.
static OF_KEYS: Mutex<Vec<OfKey>> = Mutex::new(Vec::new());

fn of_key(given: &Given, storage: &dyn Storage) -> Result<Bucket, Error> {
    let (url, access) = (&given.url, &given.access);
    let mut open = OF_KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(access, _, _)| access.strong_count() > 0);
    let is_it = |(of, server, bucket): &&OfKey| {
        std::ptr::eq(of.as_ptr(), Arc::as_ptr(access))
            && server == url.endpoint()
            && bucket.name() == url.bucket()
    };
    if let Some((_, _, bucket)) = open.iter().find(is_it) {
        return Ok(bucket.clone());
    }
    let bucket = Bucket::over_network(url.bucket(), access.settings(url, storage)?)?;
    let server = url.endpoint().to_owned();
    open.push((Arc::downgrade(access), server, bucket.clone()));
    Ok(bucket)
}

impl Address {
    fn at(&self) -> Result<(At, Path), Error> {
        let (scheme, name, key) = self.parts()?;
        let server = self.server().map(str::to_owned);
        Ok(((scheme, server, name.to_owned()), key))
    }

    /// [`Bucket::origin`] of this address, in its server's settings. Connects to nothing.
    ///
    /// Errors: `Address`, `NoServer`, `Settings`.
    pub fn origin(&self, storage: &dyn Storage) -> Result<String, Error> {
        if let Some(given) = self.of_server() {
            return Ok(given.url.origin());
        }
        let (at, key) = self.at()?;
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = open.as_ref().and_then(|open| open.get(&at)) {
            return Ok(bucket.origin(&key));
        }
        let settings = settings(&at, storage)?;
        Ok(origin(&settings.server(), &at.2, &key))
    }

    /// [`Address::origin`], also where the server's credentials cannot be read, if the configuration alone says where it is.
    fn known_origin(&self, storage: &dyn Storage) -> Result<String, Error> {
        let named = self.server().map(|name| (name, self.at()));
        if let Some((name, Ok((at, key)))) = named
            && let Some(server) = servers::place(at.0, name)
        {
            return Ok(origin(&server, &at.2, &key));
        }
        self.origin(storage)
    }

    /// Whether this object is below `prefix`, such as `s3://BUCKET` or `az://CONTAINER/PREFIX`: in the same bucket of the
    /// same server, and not only with a name that begins the same.
    ///
    /// Errors: those of [`Address::origin`].
    pub fn is_below(&self, prefix: &Address, storage: &dyn Storage) -> Result<bool, Error> {
        // A prefix may be empty, an object's name may not.
        let any = Address::of(&format!("{prefix}/x")).unwrap_or_else(|| prefix.clone());
        let any = any.known_origin(storage)?;
        let own = self.known_origin(storage)?;
        let rest = own.strip_prefix(any.strip_suffix('x').unwrap_or(&any));
        Ok(rest.is_some_and(|rest| !rest.is_empty()))
    }

    /// The same for a prefix that names its server itself.
    pub fn is_below_server(
        &self,
        prefix: &ServerUrl,
        storage: &dyn Storage,
    ) -> Result<bool, Error> {
        let (any, own) = (prefix.origin(), self.origin(storage)?);
        let is_below = |rest: &str| match prefix.key() {
            "" => !rest.is_empty(),
            _ => rest.len() > 1 && rest.starts_with('/'),
        };
        Ok(own.strip_prefix(&any).is_some_and(is_below))
    }

    /// The bucket and the key of this address, in its server's settings.
    ///
    /// Errors: `Address`, `NoServer`, `Settings`.
    pub fn place(&self, storage: &dyn Storage) -> Result<(Bucket, Path), Error> {
        if let Some(given) = self.of_server() {
            return Ok((of_key(given, storage)?, given.key.clone()));
        }
        let (at, key) = self.at()?;
        Ok((Bucket::open(at, storage)?, key))
    }
}

impl Bucket {
    /// Makes no request. Errors: [`Error::NoServer`], [`Error::Settings`].
    fn open(at: At, storage: &dyn Storage) -> Result<Bucket, Error> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        if let Some(bucket) = open.get(&at) {
            return Ok(bucket.clone());
        }
        let bucket = Bucket::over_network(&at.2, settings(&at, storage)?)?;
        open.insert(at, bucket.clone());
        Ok(bucket)
    }

    /// Makes no request. Errors: [`Error::Settings`].
    fn over_network(name: &str, settings: Settings) -> Result<Bucket, Error> {
        let wrong = |why| Error::Settings {
            bucket: name.to_owned(),
            why,
        };
        let scheme = settings.scheme();
        if past_ns().is_some() && scheme == Scheme::Azure {
            return Err(wrong(format!(
                "--as-of cannot be answered for {scheme}{name}: Azure keeps versions of a blob, and not the time at which it was \
                 removed"
            )));
        }
        let proxies = Proxies::read(&|name| std::env::var_os(name)).map_err(wrong)?;
        let ca = settings.ca.as_deref();
        let direct = Direct::new(ca, proxies, settings.region()).map_err(wrong)?;
        Bucket::connect(name, settings, || direct.clone())
    }

    /// A bucket that is spoken to through what `connector` makes. It is asked several times: the provider of
    /// credentials has a client of its own.
    pub(crate) fn connect<C: HttpConnector>(
        name: &str,
        settings: Settings,
        connector: impl Fn() -> C,
    ) -> Result<Bucket, Error> {
        // The runtime also brings the process's cryptography, which the client asks for.
        let handle = runtime::handle()?;
        let _entered = handle.enter();
        let patience = settings.patience;
        let given_up = GivenUp::default();
        let of_bucket = match &settings.origin {
            Origin::Given { before, .. } => before.trim_end_matches('/').to_owned(),
            Origin::Named(server) => {
                format!("{}{name}", beginning(settings.scheme(), Some(server)))
            }
            Origin::Environment => format!("{}{name}", beginning(settings.scheme(), None)),
        };
        let ways = Ways {
            tally: RequestTally::of(&of_bucket),
            options: ClientOptions::new()
                .with_allow_http(settings.allow_http)
                .with_http1_only()
                .with_timeout(REQUEST_MAX)
                .with_connect_timeout(CONNECT_MAX),
            retry: patience.retries(),
            soon: RetryConfig {
                max_retries: 2,
                retry_timeout: Duration::from_secs(10),
                ..RetryConfig::default()
            },
            patience,
            connector: &connector,
            given_up: given_up.clone(),
        };
        let (scheme, connected) = match &settings.provider {
            Provider::S3(s3) => (Scheme::S3, s3.connect(name, &ways)),
            Provider::Azure(azure) => (Scheme::Azure, azure.connect(name, &ways)),
            Provider::Google(google) => (Scheme::Google, google.connect(name, &ways)),
        };
        let connection = connected.map_err(|error| Error::Settings {
            bucket: name.to_owned(),
            why: innermost(&error),
        })?;
        Ok(Bucket(Arc::new(Inner {
            scheme,
            origin: settings.origin,
            name: name.to_owned(),
            connection,
            is_silent: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            given_up,
            patience: patience.total,
            grace: patience.longest_wait.min(GRACE),
            // Not shared: another bucket may have the same keys.
            past: past_ns().map(Past::at),
            sending: Arc::default(),
            reading: Arc::default(),
        })))
    }

    /// From now on [`Bucket::open`] finds this one.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn install(self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (self.0.scheme, None, self.0.name.clone());
        open.get_or_insert_default().insert(at, self);
    }

    /// Whether the configuration or the address names the server; otherwise the environment does.
    pub fn is_at_named_server(&self) -> bool {
        self.0.origin != Origin::Environment
    }

    pub fn scheme(&self) -> Scheme {
        self.0.scheme
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The server as the settings name it. A copy of a bucket at another server may have the bucket's name, too.
    pub fn server(&self) -> &str {
        self.0.connection.endpoint.trim_end_matches('/')
    }

    /// What distinguishes an object or a prefix from those of other stores: server, bucket and key.
    pub fn origin(&self, key: &Path) -> String {
        origin(self.server(), &self.0.name, key)
    }

    /// The object's address. Another process takes it if its configuration has the same target at the same server; an
    /// address that a credential opened is known to T-SQL alone.
    pub fn address(&self, key: &(impl AsRef<str> + ?Sized)) -> String {
        let key = key.as_ref();
        let name = match &self.0.origin {
            Origin::Given { before, .. } => return format!("{before}{key}"),
            Origin::Named(name) => Some(name.as_str()),
            Origin::Environment => None,
        };
        let beginning = beginning(self.0.scheme, name);
        format!("{beginning}{}/{key}", self.0.name)
    }

    /// The object in messages about requests.
    fn told(&self, key: &(impl AsRef<str> + ?Sized)) -> String {
        match &self.0.origin {
            Origin::Given { credential, .. } => {
                format!("{}{BY}{credential}'", self.address(key))
            }
            Origin::Named(_) | Origin::Environment => self.address(key),
        }
    }

    /// In one spelling, with the server: neither a copy in another bucket nor one at another server has it, and each host
    /// has the same, whatever its configuration calls the server.
    pub fn identity(&self, key: &Path) -> String {
        let (scheme, name) = (self.0.scheme, &self.0.name);
        format!("{scheme}{name}/{key} at {}", self.server())
    }

    pub(crate) fn grace(&self) -> Duration {
        self.0.grace
    }

    pub(crate) fn is_silent(&self) -> &AtomicBool {
        &self.0.is_silent
    }

    pub(crate) fn is_slow(&self) -> &AtomicBool {
        &self.0.is_slow
    }

    pub(crate) fn asking(&self) -> Asking {
        self.0.connection.asking.clone()
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        self.0.connection.objects.clone()
    }

    pub(crate) fn parts(&self) -> Arc<dyn MultipartStore> {
        self.0.connection.parts.clone()
    }

    /// Whether the bucket is read as it was at an earlier moment: then nothing that is found there changes.
    pub fn is_past(&self) -> bool {
        self.0.past.is_some()
    }

    /// Errors: [`Error::Past`].
    pub(crate) fn may_write(
        &self,
        action: &'static str,
        key: &(impl AsRef<str> + ?Sized),
    ) -> Result<(), Error> {
        match self.is_past() {
            true => Err(Error::Past {
                action,
                at: self.address(key),
            }),
            false => Ok(()),
        }
    }

    /// The request for an object, as it is or as it was.
    pub(crate) async fn get(
        &self,
        key: &Path,
        options: GetOptions,
    ) -> Result<GetResult, StoreError> {
        let options = match &self.0.past {
            Some(past) => past.of(&self.0.connection.asking, key, options).await?,
            None => options,
        };
        self.0.connection.objects.get_opts(key, options).await
    }

    /// The objects below `prefix` as they were; `None`: as they are.
    pub(crate) async fn then(&self, prefix: &Path) -> Result<Option<Vec<Then>>, StoreError> {
        let Some(past) = &self.0.past else {
            return Ok(None);
        };
        let below = match prefix.as_ref() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        past.objects(&self.0.connection.asking, &below)
            .await
            .map(Some)
    }

    /// Starts a request to do `action` with the object.
    pub(crate) fn ask<T, F>(
        &self,
        action: &'static str,
        key: &(impl AsRef<str> + ?Sized),
        request: F,
    ) -> Result<Ticket<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let at = self.told(key);
        let (bucket, place) = (self.clone(), at.clone());
        Ticket::start((action, at), async move {
            let seen = Arc::new(Mutex::new(Seen::default()));
            let result = SEEN.scope(seen.clone(), request).await;
            result.map_err(|error| {
                let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.status.is_none() && seen.tries > 1 {
                    bucket.give_up();
                }
                bucket.explain(action, place, &error, &seen)
            })
        })
    }

    /// The store answered none of a request's repetitions: for as long as these took, other requests are made once.
    fn give_up(&self) {
        if !self.0.given_up.swap(true, Ordering::Relaxed) {
            let (given_up, patience) = (self.0.given_up.clone(), self.0.patience);
            tokio::spawn(async move {
                tokio::time::sleep(patience).await;
                given_up.store(false, Ordering::Relaxed);
            });
        }
    }

    fn explain(&self, action: &'static str, at: String, error: &StoreError, seen: &Seen) -> Error {
        let endpoint = self.0.connection.endpoint.clone();
        let Seen { tries, code, .. } = seen.clone();
        if seen.lacks_versions {
            return Error::NoVersions { at };
        }
        if let Some(why) = seen.credentials.clone() {
            return Error::Credentials { action, at, why };
        }
        if let (Some(status), Some(right)) = (seen.status, seen.elsewhere.clone()) {
            return Error::Redirected {
                action,
                at,
                endpoint,
                status,
                region: right.region,
                host: right.host,
            };
        }
        match seen.status {
            Some(404) if ["NoSuchBucket", "ContainerNotFound"].contains(&code.as_str()) => {
                Error::NoBucket { action, at }
            }
            Some(404) if ["", "NoSuchKey", "NotFound", "BlobNotFound"].contains(&code.as_str()) => {
                Error::Missing { action, at }
            }
            Some(412) => Error::Changed { at },
            // Azure says so of a condition that nothing is there.
            Some(409) if code == "BlobAlreadyExists" => Error::Changed { at },
            Some(status) if !(200..300).contains(&status) => Error::Refused {
                action,
                at,
                endpoint,
                status,
                code,
                message: seen.message.clone(),
                tries,
            },
            // The store took the request, and its answer is not what it should be; or there was no answer.
            answered => {
                let why = match answered {
                    None if !seen.silence.is_empty() => seen.silence.clone(),
                    _ => innermost(error),
                };
                Error::Silent {
                    action,
                    at,
                    endpoint,
                    why,
                    tries,
                }
            }
        }
    }

    /// The store's answer about the object; `None` if there is none. A missing bucket is an error.
    pub fn head(&self, key: &Path, cancel: &AtomicBool) -> Result<Option<Head>, Error> {
        self.head_within(key, cancel, Duration::ZERO)
    }

    /// [`Bucket::head`]; once `cancel` is set, the answer is waited for `grace` more.
    pub fn head_within(
        &self,
        key: &Path,
        cancel: &AtomicBool,
        grace: Duration,
    ) -> Result<Option<Head>, Error> {
        let whole = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let looked = self.look(key, whole)?.wait_within(cancel, grace);
        let looked = match looked {
            // The answer to a HEAD has no body, so it does not say why. That to a GET does.
            Err(Error::Refused { status, code, .. })
                if code.is_empty() && (300..500).contains(&status) && status != 429 =>
            {
                let first_byte = GetOptions {
                    range: Some(GetRange::Bounded(0..1)),
                    ..GetOptions::default()
                };
                self.look(key, first_byte)?.wait_within(cancel, grace)
            }
            other => other,
        };
        match looked {
            Ok(head) => Ok(Some(head)),
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn look(&self, key: &Path, options: GetOptions) -> Result<Ticket<Head>, Error> {
        let (bucket, at) = (self.clone(), key.clone());
        self.ask("look at", key, async move {
            let found = bucket.get(&at, options).await?;
            Ok(Head::of(&found.meta, &found.attributes))
        })
    }

    /// The object's first bytes, `at_most` so many, or all of them; `None` if there is none.
    pub fn beginning(
        &self,
        key: &Path,
        at_most: Option<u64>,
        cancel: &AtomicBool,
    ) -> Result<Option<(Head, Bytes)>, Error> {
        let (bucket, at) = (self.clone(), key.clone());
        let options = GetOptions {
            range: at_most.map(|len| GetRange::Bounded(0..len)),
            ..GetOptions::default()
        };
        let asked = self.ask("read", key, async move {
            let found = bucket.get(&at, options).await?;
            let head = Head::of(&found.meta, &found.attributes);
            Ok((head, found.bytes().await?))
        })?;
        match asked.wait(cancel) {
            Err(Error::Missing { .. }) => Ok(None),
            // An empty object has no range.
            Err(Error::Refused { status: 416, .. }) if at_most.is_some() => {
                self.beginning(key, None, cancel)
            }
            answered => answered.map(Some),
        }
    }

    /// Starts to read the first `first_len` and the last `last_len` bytes of an object: two requests, or one if the first
    /// bytes are all. Both ends are of one content.
    ///
    /// Errors, when waited for: `Missing`; `Refused` with the status 416 for an empty object.
    pub fn ends(&self, key: &Path, first_len: u64, last_len: u64) -> Result<Ticket<Ends>, Error> {
        let (bucket, at) = (self.clone(), key.clone());
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..first_len)),
            ..GetOptions::default()
        };
        self.ask("look at", key, async move {
            let found = bucket.get(&at, options).await?;
            let head = Head::of(&found.meta, &found.attributes);
            let first = found.bytes().await?;
            let rest = head.len_bytes.saturating_sub(first.len() as u64);
            let last = match rest.min(last_len) {
                0 => Bytes::new(),
                len => {
                    let range = head.len_bytes - len..head.len_bytes;
                    let pieces = bucket.ranged(&at, range, head.tag.clone()).await?;
                    Bytes::from(pieces.concat())
                }
            };
            Ok(Ends { head, first, last })
        })
    }

    /// How many parts of each stripe are worth having in flight now: see `flow.rs`.
    pub fn parts_in_flight(&self) -> usize {
        self.0.sending.steps() as usize
    }

    /// How many ranges of each stripe are worth having in flight now, for a reader that reads in order.
    pub fn ranges_in_flight(&self) -> usize {
        self.0.reading.steps() as usize
    }

    pub(crate) fn sending(&self) -> &Arc<Flow> {
        &self.0.sending
    }

    /// [`Bucket::fetch`] for a reader that reads in order: the request counts for [`Bucket::ranges_in_flight`].
    pub fn fetch_ahead(
        &self,
        key: &Path,
        range: Range<u64>,
        tag: Option<String>,
    ) -> Result<Ticket<Vec<Bytes>>, Error> {
        self.fetch_counted(key, range, tag, Some(self.0.reading.begin()))
    }

    /// Starts to read a range, which must lie in the object. Only the content that `tag` stands for is read.
    pub fn fetch(
        &self,
        key: &Path,
        range: Range<u64>,
        tag: Option<String>,
    ) -> Result<Ticket<Vec<Bytes>>, Error> {
        self.fetch_counted(key, range, tag, None)
    }

    fn fetch_counted(
        &self,
        key: &Path,
        range: Range<u64>,
        tag: Option<String>,
        running: Option<Running>,
    ) -> Result<Ticket<Vec<Bytes>>, Error> {
        let (bucket, at) = (self.clone(), key.clone());
        self.ask("read", key, async move {
            let bytes = range.end - range.start;
            let pieces = bucket.ranged(&at, range, tag).await?;
            if let Some(running) = running {
                running.done(bytes);
            }
            Ok(pieces)
        })
    }

    async fn ranged(
        &self,
        key: &Path,
        range: Range<u64>,
        tag: Option<String>,
    ) -> Result<Vec<Bytes>, StoreError> {
        let options = GetOptions {
            if_match: tag.clone(),
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let found = self.get(key, options).await?;
        // A store that does not know If-Match sends what it has.
        if tag.is_some() && found.meta.e_tag != tag {
            crate::watched::note(|seen| seen.status = Some(412));
            return Err(odd("the content is another"));
        }
        let mut stream = found.into_stream();
        let mut pieces = Vec::new();
        let mut len = 0;
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            len += piece.len() as u64;
            pieces.push(piece);
        }
        match len == range.end - range.start {
            true => Ok(pieces),
            false => Err(odd("the answer has another length than was asked for")),
        }
    }

    /// Reads a range, which must lie in the object, into `buf`.
    pub fn read(
        &self,
        key: &Path,
        offset: u64,
        tag: Option<String>,
        buf: &mut [u8],
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let range = offset..offset + buf.len() as u64;
        let mut rest = buf;
        for piece in self.fetch(key, range, tag)?.wait(cancel)? {
            // The length was checked.
            let n = piece.len().min(rest.len());
            let (here, after) = rest.split_at_mut(n);
            here.copy_from_slice(&piece[..n]);
            rest = after;
        }
        Ok(())
    }

    /// Creates a small object unless one of that name is there.
    pub fn create(&self, key: &Path, bytes: Bytes, cancel: &AtomicBool) -> Result<Created, Error> {
        self.may_write("create", key)?;
        let (store, at) = (self.store(), key.clone());
        let options = PutOptions::from(PutMode::Create);
        let asked = self.ask("create", key, async move {
            let put = store.put_opts(&at, PutPayload::from_bytes(bytes), options);
            match put.await {
                Ok(_) => Ok(Created::Created),
                // A conflict with another writer reads like one with an object.
                Err(StoreError::AlreadyExists { .. }) => {
                    store.head(&at).await.map(|_| Created::There)
                }
                Err(error) => Err(error),
            }
        })?;
        asked.wait(cancel)
    }

    /// The keys below `prefix`, and their lengths.
    pub fn list(&self, prefix: &Path, cancel: &AtomicBool) -> Result<Vec<(Path, u64)>, Error> {
        let (bucket, at) = (self.clone(), prefix.clone());
        let asked = self.ask("list", prefix, async move {
            if let Some(then) = bucket.then(&at).await? {
                let object = |then: Then| (Path::parse(&then.key), then.len_bytes);
                let objects = then.into_iter().map(object);
                return Ok(objects
                    .filter_map(|(key, len)| Some((key.ok()?, len)))
                    .collect());
            }
            let mut found = bucket.0.connection.objects.list(Some(&at));
            let mut all = Vec::new();
            while let Some(object) = found.next().await {
                let object = object?;
                all.push((object.location, object.size));
            }
            Ok(all)
        })?;
        asked.wait(cancel)
    }

    /// Removes an object; one that is not there is removed already.
    pub fn remove(&self, key: &Path, cancel: &AtomicBool) -> Result<(), Error> {
        self.may_write("remove", key)?;
        let (store, at) = (self.store(), key.clone());
        let asking = self.asking();
        // Azure's client removes by a request for many, which has a signature for each; Google's does not repeat one.
        let is_own = self.scheme() != Scheme::S3;
        let asked = self.ask("remove", key, async move {
            if is_own {
                let url = asking.url(at.as_ref())?;
                return asking.send(Method::DELETE, &url).await.map(drop);
            }
            let location = futures_util::stream::once(async move { Ok(at) }).boxed();
            let mut gone = store.delete_stream(location);
            while let Some(one) = gone.next().await {
                one?;
            }
            Ok(())
        })?;
        match asked.wait(cancel) {
            Err(Error::Missing { .. }) => Ok(()),
            other => other,
        }
    }
}

pub(crate) fn labelled(label: String) -> object_store::Attributes {
    [(Attribute::Metadata(LABEL.into()), label)]
        .into_iter()
        .collect()
}
