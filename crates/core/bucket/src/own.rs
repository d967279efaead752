//! Requests for which `object_store` has no call: its means sign and send them, and they are repeated here.
//!
//! Invariants
//! - A request is repeated only while the store is busy or silent, as long as `object_store` repeats its own.
//! - A key becomes an address as it is, whatever characters it has; one that cannot is an error.
//! - A refusal ends with an error. The call's record (`watched.rs`) has what the store said.
//!
//! Leaves to others: what is asked (`store.rs`, `unfinished.rs`) and which errors it becomes (`store.rs`).

use http::{Method, StatusCode};
use longshore_io::{Clock, HostClock};
use object_store::Error as StoreError;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse};
use object_store::gcp::GcpCredentialProvider;
use reqwest::Url;

use crate::patience::Patience;
use crate::watched::{PAGE_MAX, body_of, last_status};

const REFUSED: &str = "the store refuses the request";

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
    /// The object's address. Errors: see [`has_address`].
    pub fn url(&self, key: &str) -> Result<Url, StoreError> {
        if !has_address(key) {
            return Err(odd("a key with . or .. as a part has no address"));
        }
        let mut url = self.base.clone();
        let before = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{before}/{}", encoded(key)));
        Ok(url)
    }

    /// The text that answers a request of [`Asking::send`].
    pub async fn text(&self, url: &Url) -> Result<String, StoreError> {
        text_in(self.send(Method::GET, url).await?).await
    }

    /// [`Asking::text`]; `None` if the store refuses the request with one of these statuses, which are no error then.
    pub async fn text_unless(
        &self,
        url: &Url,
        refusals: &[u16],
    ) -> Result<Option<String>, StoreError> {
        let response = self.answered(Method::GET, url).await?;
        if response.status().is_success() {
            return text_in(response).await.map(Some);
        }
        // A 501 is handed on as another one, so that nobody repeats the request.
        let status = last_status().unwrap_or(response.status().as_u16());
        match refusals.contains(&status) {
            true => Ok(None),
            false => Err(odd(REFUSED)),
        }
    }

    /// The answer to a request without a body, if it is a success.
    pub async fn send(&self, method: Method, url: &Url) -> Result<HttpResponse, StoreError> {
        let response = self.answered(method, url).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(odd(REFUSED)),
        }
    }

    /// The last answer to a request without a body, also a refusal.
    async fn answered(&self, method: Method, url: &Url) -> Result<HttpResponse, StoreError> {
        let begun = HostClock.now();
        let mut wait = self.patience.first_wait;
        let mut tries = 0;
        loop {
            tries += 1;
            let is_last =
                tries > self.patience.retries || HostClock.now() - begun > self.patience.total;
            let request = self.signed(&method, url).await?;
            match self.client.execute(request).await {
                Ok(response) if is_last || !is_passing(response.status()) => return Ok(response),
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

/// Whether an object of this key can be asked for: clients drop the parts . and .. from an address.
pub fn has_address(key: &str) -> bool {
    !key.split('/').any(|part| matches!(part, "." | ".."))
}

/// A key as a signature of S3's has it. Clients and stores do not agree on other forms: a + that is sent as it is has the
/// signature of one that is not.
fn encoded(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        match is_plain {
            true => text.push(byte.into()),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn is_passing(status: StatusCode) -> bool {
    let others = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    status.is_server_error() || others.contains(&status)
}

async fn text_in(response: HttpResponse) -> Result<String, StoreError> {
    let bytes = body_of(response.into_body(), PAGE_MAX).await;
    Ok(String::from_utf8_lossy(&bytes.map_err(failed)?).into_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the address that is sent is the one that the signature has, which a store computes from the key.
    #[test]
    fn a_key_is_sent_as_its_signature_has_it() {
        for (key, sent) in [
            ("a/b-c_d.e~f", "a/b-c_d.e~f"),
            ("a+b (1)*'!=;@", "a%2Bb%20%281%29%2A%27%21%3D%3B%40"),
            ("100%/%41?#", "100%25/%2541%3F%23"),
            ("b\u{fc}ro\\[x]|", "b%C3%BCro%5C%5Bx%5D%7C"),
            ("/a//b/", "/a//b/"),
            (".../..a", ".../..a"),
        ] {
            assert!(has_address(key), "{key}");
            assert_eq!(encoded(key), sent);
        }
        for key in ["..", "a/../b", "./a", "a/."] {
            assert!(!has_address(key), "{key}");
        }
    }
}
