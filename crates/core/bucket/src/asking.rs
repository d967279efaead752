//! Signed requests that `object_store` does not make: listings of uploads and of versions.
//!
//! A request is repeated only while the store is busy or silent, and a bounded number of times.

use std::time::Duration;

use http::{Method, StatusCode};
use object_store::Error as StoreError;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use reqwest::Url;

/// A page of a listing is asked for so often.
const TRIES: u32 = 5;
/// The wait before the second request; each further one is twice as long.
const WAIT: Duration = Duration::from_millis(200);

/// The parts of a request for which `object_store` has no call.
#[derive(Clone)]
pub(crate) struct Asking {
    /// The bucket's own address.
    pub base: Url,
    pub region: String,
    pub client: HttpClient,
    pub credentials: AwsCredentialProvider,
}

/// The body of the answer to a signed GET.
pub(crate) async fn answer(asking: &Asking, url: &reqwest::Url) -> Result<String, StoreError> {
    let mut wait = WAIT;
    let mut tries = 0;
    loop {
        tries += 1;
        let credential = asking.credentials.get_credential().await?;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = url.as_str().parse().map_err(failed)?;
        AwsAuthorizer::new(&credential, "s3", &asking.region).try_authorize(&mut request, None)?;
        match asking.client.execute(request).await {
            Ok(response) if response.status().is_success() => {
                let bytes = response.into_body().bytes().await.map_err(failed)?;
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            Ok(response) if tries >= TRIES || !is_passing(response.status()) => {
                return Err(odd("the store refuses to answer"));
            }
            Err(error) if tries >= TRIES => return Err(failed(error)),
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Generic {
        store: "S3",
        source: Box::new(error),
    }
}

pub(crate) fn odd(why: &'static str) -> StoreError {
    StoreError::Generic {
        store: "S3",
        source: why.into(),
    }
}
