//! Requests for which `object_store` has no call: its means sign and send them, and they are repeated here.
//!
//! Invariants
//! - A request is repeated only while the store is busy or silent, as long as `object_store` repeats its own.
//! - A refusal ends with an error. The call's record (`watched.rs`) has what the store said.
//!
//! Leaves to others: what is asked (`store.rs`, `unfinished.rs`) and which errors it becomes (`store.rs`).

use http::{Method, StatusCode};
use longshore_io::{Clock, HostClock};
use object_store::Error as StoreError;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse};
use object_store::gcp::GcpCredentialProvider;
use object_store::path::Path;
use reqwest::Url;

use crate::patience::Patience;

/// How a request gets its credentials.
#[derive(Clone)]
pub enum Sign {
    S3 {
        region: String,
        credentials: AwsCredentialProvider,
    },
    /// The client signs whatever it sends.
    Client,
    Bearer(GcpCredentialProvider),
}

/// The parts of a request for which `object_store` has no call.
#[derive(Clone)]
pub struct Asking {
    /// The bucket's own address.
    pub base: Url,
    pub sign: Sign,
    pub client: HttpClient,
    pub patience: Patience,
}

impl Asking {
    /// The object's address.
    pub fn url(&self, key: &Path) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(key.parts());
        }
        url
    }

    /// The answer to a request without a body, if it is a success.
    pub async fn send(&self, method: Method, url: &Url) -> Result<HttpResponse, StoreError> {
        let begun = HostClock.now();
        let mut wait = self.patience.first_wait;
        let mut tries = 0;
        loop {
            tries += 1;
            let is_last =
                tries > self.patience.retries || HostClock.now() - begun > self.patience.total;
            let request = self.signed(&method, url).await?;
            match self.client.execute(request).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if is_last || !is_passing(response.status()) => {
                    return Err(odd("the store refuses the request"));
                }
                // A repeated one would end in the same way, or the store is given up.
                Err(error) if is_last || error.kind() == HttpErrorKind::Unknown => {
                    return Err(failed(error));
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(self.patience.longest_wait);
        }
    }

    async fn signed(&self, method: &Method, url: &Url) -> Result<HttpRequest, StoreError> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.as_str().parse().map_err(failed)?;
        match &self.sign {
            Sign::Client => {}
            Sign::S3 {
                region,
                credentials,
            } => {
                let credential = credentials.get_credential().await?;
                let authorizer = AwsAuthorizer::new(&credential, "s3", region);
                authorizer.try_authorize(&mut request, None)?;
            }
            Sign::Bearer(credentials) => {
                let credential = credentials.get_credential().await?;
                let value = format!("Bearer {}", credential.bearer);
                let mut value = http::HeaderValue::from_str(&value).map_err(failed)?;
                value.set_sensitive(true);
                request
                    .headers_mut()
                    .insert(http::header::AUTHORIZATION, value);
            }
        }
        Ok(request)
    }
}

fn is_passing(status: StatusCode) -> bool {
    let others = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    status.is_server_error() || others.contains(&status)
}

pub fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Generic {
        store: "own",
        source: Box::new(error),
    }
}

pub fn odd(why: &'static str) -> StoreError {
    StoreError::Generic {
        store: "own",
        source: why.into(),
    }
}
