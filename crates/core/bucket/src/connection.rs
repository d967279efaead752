//! A store that is spoken to, whichever protocol it has, and the ways to it.

use std::sync::Arc;

use object_store::client::{HttpClient, HttpConnector};
use object_store::multipart::MultipartStore;
use object_store::{ClientOptions, Error as StoreError, ObjectStore, RetryConfig};
use reqwest::Url;

use crate::counted::RequestTally;
use crate::own::Asking;
use crate::patience::Patience;
use crate::watched::{GivenUp, Watched};

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
}

/// The address that keys are appended to.
pub fn base_of(text: &str) -> Result<Url, StoreError> {
    Url::parse(text).map_err(|e| StoreError::Generic {
        store: "settings",
        source: Box::new(e),
    })
}
