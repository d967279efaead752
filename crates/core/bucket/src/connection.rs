//! A store that is spoken to, whichever protocol it has, and the ways to it and to the places of credentials.
//!
//! Invariants
//! - Of an answer of such a place, 256 KiB are read at most, whoever asks: this room or `object_store`.
//! - Such a place on this machine is never asked through a proxy.
//!
//! Leaves to others: which place is asked and what it answers (`s3.rs`, `azure.rs`, `google.rs`, `exchanged.rs`), and the network
//! itself (`network.rs`).

use std::sync::Arc;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::multipart::MultipartStore;
use object_store::{ClientOptions, Error as StoreError, ObjectStore, RetryConfig};
use reqwest::Url;

use crate::counted::RequestTally;
use crate::own::Asking;
use crate::patience::Patience;
use crate::watched::{GivenUp, Watched, body_of};

/// More of the answer of a place of credentials is not read.
const ANSWER_MAX: usize = 256 << 10;
/// The hosts of places of credentials that no proxy knows: for it, they would be others.
const OWN_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// The client of a bucket.
pub struct Connection {
    pub endpoint: String,
    pub objects: Arc<dyn ObjectStore>,
    pub parts: Arc<dyn MultipartStore>,
    pub asking: Asking,
}

impl Connection {
    /// One client does both halves of the work: whole objects, and uploads in parts.
    pub fn new<S>(endpoint: String, store: S, asking: Asking) -> Connection
    where
        S: ObjectStore + MultipartStore,
    {
        let store = Arc::new(store);
        Connection {
            endpoint,
            objects: store.clone(),
            parts: store,
            asking,
        }
    }
}

/// How a store and the places of its credentials are reached.
pub struct Ways<'a, C> {
    pub options: ClientOptions,
    pub retry: RetryConfig,
    /// No one waits three minutes to learn that this machine has no metadata service.
    pub soon: RetryConfig,
    pub patience: Patience,
    pub connector: &'a dyn Fn() -> C,
    pub given_up: GivenUp,
    pub tally: RequestTally,
}

impl<C: HttpConnector> Ways<'_, C> {
    /// The way to the store itself.
    pub fn watched(&self) -> Watched<C> {
        self.watching((self.connector)())
    }

    /// The same over another connector.
    pub fn watching<D>(&self, connector: D) -> Watched<D> {
        Watched {
            connector,
            given_up: self.given_up.clone(),
            tally: self.tally.clone(),
        }
    }

    /// A client for requests of our own.
    pub fn client(&self) -> Result<HttpClient, StoreError> {
        self.watched().connect(&self.options)
    }

    /// The way to the places of credentials.
    pub fn to_places(&self) -> Bounded<C> {
        Bounded((self.connector)())
    }

    /// The options of clients of such places.
    pub fn place_options(&self) -> ClientOptions {
        self.options.clone().with_proxy_excludes(OWN_MACHINE)
    }

    /// A client of such a place that is reached over https, or over plain http where that is allowed.
    pub fn place_client(&self) -> Result<HttpClient, StoreError> {
        self.to_places().connect(&self.place_options())
    }

    /// A client of a service on this machine or on its own links, which speaks plain http by nature. The caller has made
    /// sure that it is one.
    pub fn near_client(&self) -> Result<HttpClient, StoreError> {
        let options = self.place_options().with_allow_http(true);
        self.to_places().connect(&options)
    }
}

/// Another connector, whose clients read answers whole before they hand them on, and no long ones.
#[derive(Debug)]
pub struct Bounded<C>(C);

impl<C: HttpConnector> HttpConnector for Bounded<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BoundedClient(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct BoundedClient(HttpClient);

#[async_trait]
impl HttpService for BoundedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = self.0.execute(request).await?.into_parts();
        let read = body_of(body, ANSWER_MAX).await?;
        Ok(HttpResponse::from_parts(parts, read.into()))
    }
}

/// The address that keys are appended to.
pub fn base_of(text: &str) -> Result<Url, StoreError> {
    Url::parse(text).map_err(|e| StoreError::Generic {
        store: "settings",
        source: Box::new(e),
    })
}
