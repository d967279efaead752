//! Credentials that a service gives in exchange for others: a role of AWS's for an identity's keys, and a token of Google's for
//! a token of somebody else's (workload identity federation).
//!
//! `object_store` has neither exchange. So the requests are made here, over its client.
//!
//! Invariants
//! - The identity's own credentials and tokens are read again for each exchange.
//! - A request is made three times at most. A refusal is told with the service's code and message, and without what was sent.
//! - `Debug` shows no secret.
//!
//! Leaves to others: which exchange a file or profile means (`role.rs`, `external.rs`); when one is made (`held.rs`); what can
//! be sent in a header (`credentials.rs`); the length of an answer (`connection.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderValue, Method, StatusCode};
use longshore_io::{Clock, Host, HostClock};
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpErrorKind, HttpRequest, HttpRequestBody};
use object_store::gcp::GcpCredential;
use serde::Deserialize;

use crate::credentials::failed;
use crate::environment::read_file;
use crate::external::{External, Subject};
use crate::held::{Held, Holder};
use crate::source::Role;
use crate::watched::{element, innermost, line};

const TRIES: u32 = 3;
const WAIT: Duration = Duration::from_millis(200);
/// How long a token of Google's is asked for, in seconds.
const LIFETIME_S: u64 = 3600;
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Sends a request, again where the service is busy or silent. Errors: what it said, without what was asked.
async fn answered(
    client: &HttpClient,
    make: impl Fn() -> Result<HttpRequest, String>,
) -> Result<Vec<u8>, String> {
    let mut tries = 0;
    loop {
        tries += 1;
        let why = match client.execute(make()?).await {
            // Such an answer would come again.
            Err(error) if error.kind() == HttpErrorKind::Decode => return Err(innermost(&error)),
            Err(error) => innermost(&error),
            Ok(response) => {
                let status = response.status();
                let body = response.into_body().bytes().await;
                let body = body.map_err(|error| innermost(&error))?;
                if status.is_success() {
                    return Ok(body.to_vec());
                }
                let why = refusal(status, &String::from_utf8_lossy(&body));
                if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
                    return Err(why);
                }
                why
            }
        };
        if tries == TRIES {
            return Err(why);
        }
        tokio::time::sleep(WAIT * tries).await;
    }
}

/// The code and the message of a refusal, as XML or JSON has them.
fn refusal(status: StatusCode, text: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let of = |key: &str| json[key].as_str().map(line).unwrap_or_default();
    let (code, message) = match json.is_object() {
        true => match json["error"]["message"].as_str() {
            Some(message) => (String::new(), line(message)),
            None => (of("error"), of("error_description")),
        },
        false => (element(text, "Code"), element(text, "Message")),
    };
    let parts = [format!("HTTP {}", status.as_u16()), code, message];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|p| !p.is_empty())
        .collect();
    parts.join(": ")
}

fn posted(url: &str, form: &str, body: String) -> Result<HttpRequest, String> {
    let mut request = HttpRequest::new(HttpRequestBody::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url
        .parse()
        .map_err(|_| "its address cannot be used".to_owned())?;
    let form = HeaderValue::from_str(form).map_err(|e| e.to_string())?;
    request
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, form);
    Ok(request)
}

/// Gives the credentials of a role to an identity.
pub struct AssumedRole {
    role: Role,
    region: String,
    base: AwsCredentialProvider,
    client: HttpClient,
    held: Holder<AwsCredential>,
}

impl fmt::Debug for AssumedRole {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AssumedRole({:?})", self.role.arn)
    }
}

/// `AssumeRoleResponse`, as the API reference of STS has it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleAnswer {
    assume_role_result: RoleResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleResult {
    credentials: RoleCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

impl AssumedRole {
    pub fn new(
        role: Role,
        region: String,
        base: AwsCredentialProvider,
        client: HttpClient,
    ) -> AssumedRole {
        AssumedRole {
            role,
            region,
            base,
            client,
            held: Holder::empty(),
        }
    }

    async fn exchange(&self) -> Result<Held<AwsCredential>, String> {
        let base = self.base.get_credential().await;
        let base = base.map_err(|error| innermost(&error))?;
        let role = &self.role;
        let mut form = reqwest::Url::parse("x:").map_err(|e| e.to_string())?;
        {
            let mut pairs = form.query_pairs_mut();
            pairs
                .append_pair("Action", "AssumeRole")
                .append_pair("Version", "2011-06-15")
                .append_pair("RoleArn", &role.arn)
                .append_pair("RoleSessionName", &role.session)
                .append_pair("DurationSeconds", &role.seconds.to_string());
            if let Some(id) = &role.external_id {
                pairs.append_pair("ExternalId", id);
            }
        }
        let body = form.query().unwrap_or_default().to_owned();
        let url = role.service(&self.region);
        let answer = answered(&self.client, || {
            let form = "application/x-www-form-urlencoded; charset=utf-8";
            let mut request = posted(&url, form, body.clone())?;
            let authorizer = AwsAuthorizer::new(&base, "sts", &self.region);
            let signed = authorizer.try_authorize(&mut request, None);
            signed.map_err(|error| innermost(&error))?;
            Ok(request)
        });
        let answer = answer.await?;
        let odd = || "its answer has no credentials".to_owned();
        let read: Result<RoleAnswer, _> =
            quick_xml::de::from_str(&String::from_utf8_lossy(&answer));
        let given = read.map_err(|_| odd())?.assume_role_result.credentials;
        let until: jiff::Timestamp = given.expiration.parse().map_err(|_| odd())?;
        Ok(Held {
            credential: Arc::new(AwsCredential {
                key_id: given.access_key_id,
                secret_key: given.secret_access_key,
                token: Some(given.session_token),
            }),
            until_s: Some(until.as_second()),
        })
    }
}

#[async_trait]
impl CredentialProvider for AssumedRole {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let Role { profile, arn, .. } = &self.role;
        let whose = format!("the credentials of the role {arn} of the profile {profile:?}");
        let given = self.held.get(&whose, self.exchange()).await;
        given.map_err(|why| {
            failed(format!(
                "the role {arn} of the profile {profile:?} was not given: {why}"
            ))
        })
    }
}

/// Gives Google's token for a token of another service.
pub struct Federated {
    external: External,
    client: HttpClient,
    /// For the other service's address, which may be plain http on this machine.
    near: HttpClient,
    held: Holder<GcpCredential>,
}

impl fmt::Debug for Federated {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Federated({:?})", self.external.audience)
    }
}

impl Federated {
    /// `clients`: of Google's services, and of services on this machine.
    pub fn new(external: External, (client, near): (HttpClient, HttpClient)) -> Federated {
        Federated {
            external,
            client,
            near,
            held: Holder::empty(),
        }
    }

    /// The other service's token, as it is now.
    async fn subject(&self) -> Result<String, String> {
        let (bytes, field) = match &self.external.subject {
            Subject::File { path, field } => {
                let path = path.clone();
                let read = move || read_file(&Host::new(), &path);
                let read = tokio::task::spawn_blocking(read).await;
                let read = read.map_err(|_| "its thread ended".to_owned())??;
                let bytes = read.ok_or("the file with the token is missing")?;
                (bytes, field)
            }
            Subject::Url {
                url,
                headers,
                field,
            } => {
                let answer = answered(&self.near, || {
                    let mut request = HttpRequest::new(HttpRequestBody::empty());
                    let uri = url
                        .parse()
                        .map_err(|_| "its address cannot be used".to_owned())?;
                    *request.uri_mut() = uri;
                    request.headers_mut().extend(headers.iter().cloned());
                    Ok(request)
                });
                (answer.await?, field)
            }
        };
        let text = String::from_utf8(bytes).map_err(|_| "the token is no text".to_owned())?;
        let token = match field {
            None => text.trim().to_owned(),
            Some(field) => {
                let json: serde_json::Value =
                    serde_json::from_str(&text).map_err(|_| "the token is not in JSON")?;
                let token = json[field].as_str().map(str::to_owned);
                token.ok_or_else(|| format!("the JSON with the token has no {field:?}"))?
            }
        };
        match token.is_empty() {
            true => Err("the token is empty".to_owned()),
            false => Ok(token),
        }
    }

    async fn exchange(&self) -> Result<Held<GcpCredential>, String> {
        let external = &self.external;
        let subject = self.subject().await?;
        let mut form = reqwest::Url::parse("x:").map_err(|e| e.to_string())?;
        form.query_pairs_mut()
            .append_pair(
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            )
            .append_pair("audience", &external.audience)
            .append_pair("scope", SCOPE)
            .append_pair(
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            )
            .append_pair("subject_token_type", &external.subject_type)
            .append_pair("subject_token", &subject);
        let body = form.query().unwrap_or_default().to_owned();
        let kind = "application/x-www-form-urlencoded";
        let answer = answered(&self.client, || {
            posted(&external.token_url, kind, body.clone())
        });
        let answer = answer.await.map_err(|why| format!("the exchange: {why}"))?;
        let json: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        let odd = || "the answer to the exchange has no token".to_owned();
        let bearer = json["access_token"].as_str().ok_or_else(odd)?.to_owned();
        let now_s = HostClock.wall_ns() / 1_000_000_000;
        let until_s = now_s + json["expires_in"].as_i64().unwrap_or(LIFETIME_S as i64);
        match &external.impersonated {
            None => Ok(Held {
                credential: Arc::new(GcpCredential { bearer }),
                until_s: Some(until_s),
            }),
            Some(url) => self.impersonate(url, &bearer).await,
        }
    }

    /// A service account's token for that of the federated identity.
    async fn impersonate(&self, url: &str, bearer: &str) -> Result<Held<GcpCredential>, String> {
        let seconds = self.external.seconds.unwrap_or(LIFETIME_S);
        let body = serde_json::json!({ "scope": [SCOPE], "lifetime": format!("{seconds}s") });
        let answer = answered(&self.client, || {
            let mut request = posted(url, "application/json", body.to_string())?;
            let mut value = HeaderValue::from_str(&format!("Bearer {bearer}"))
                .map_err(|_| "the token cannot be sent in a header".to_owned())?;
            value.set_sensitive(true);
            let name = http::header::AUTHORIZATION;
            request.headers_mut().insert(name, value);
            Ok(request)
        });
        let answer = answer
            .await
            .map_err(|why| format!("the service account: {why}"))?;
        let json: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        let odd = || "the answer about the service account has no token".to_owned();
        let bearer = json["accessToken"].as_str().ok_or_else(odd)?.to_owned();
        let until = json["expireTime"].as_str().ok_or_else(odd)?;
        let until: jiff::Timestamp = until.parse().map_err(|_| odd())?;
        Ok(Held {
            credential: Arc::new(GcpCredential { bearer }),
            until_s: Some(until.as_second()),
        })
    }
}

#[async_trait]
impl CredentialProvider for Federated {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        let whose = "Google's credentials for another service's token";
        let given = self.held.get(whose, self.exchange()).await;
        given.map_err(|why| failed(format!("Google gave no token for another's: {why}")))
    }
}
