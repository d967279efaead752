//! Sees each answer of the store, so that an error can name the HTTP code and what the store said.
//!
//! `object_store` repeats requests by itself and hands on the last error as text. One record for each call, kept by the
//! task that makes it, has what that text lacks. A completion also gets its condition here, and in Azure its object's
//! label, since `object_store` has no option for them; an error that the store hides in the body of a 200 is handed on under the status that it stands for.
//!
//! Invariants
//! - A call's record describes its last request, and counts all of them.
//! - A completion counts as done only when its whole body was read and has no error in it.
//! - A listing counts as answered only when its whole body was read and is one.
//! - Of a refusal's body 16 KiB are read, of a completion's 1 MiB, of a listing's page 32 MiB. Texts from them have no control
//!   characters and at most 200 characters.
//! - A request is repeated a few times only if the server's name has no address and the store has never answered.
//! - A request is not repeated if the server's certificate is not trusted, if the store answers 501, or, without an
//!   answer, while the store is given up.
//!
//! Leaves to others: the number and pauses of repetitions (`settings.rs`, `object_store`); turning a record into an
//! error (`store.rs`); noting where a redirect leads (`network.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::counted::RequestTally;
use crate::listing::{Fault, Listing};

/// More of a refusal's body is not read.
const BODY_MAX: usize = 16 << 10;
/// The answer to a completion: S3 sends spaces while it works.
const COMPLETED_MAX: usize = 1 << 20;

/// The unanswered request of one call at which the user is told: after two seconds or so.
const TOLD_AT: u32 = 5;

/// More of a listing's page is not read: up to 5,000 names of 1,024 bytes, each byte written as an entity.
pub const PAGE_MAX: usize = 32 << 20;
/// The request of one call from which on a name that has no address ends it, if this store has never answered: some seconds
/// after the first.
const UNRESOLVED_MAX: u32 = 5;

/// A header that a completion gets.
pub type Header = (HeaderName, HeaderValue);

/// A header's date, as HTTP writes it.
fn date_ns(text: &str) -> Option<i64> {
    let zoned = jiff::fmt::rfc2822::parse(text).ok()?;
    i64::try_from(zoned.timestamp().as_nanosecond()).ok()
}

/// The answers that one call has seen.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub tries: u32,
    /// The last answer's status; `None` if the last request got no answer.
    pub status: Option<u16>,
    pub code: String,
    pub message: String,
    /// Why the last request got no answer.
    pub silence: String,
    /// Why there were no credentials.
    pub credentials: Option<String>,
    /// When the store answered, by its own clock.
    pub date_ns: Option<i64>,
    /// The bucket says that it keeps no versions.
    pub lacks_versions: bool,
    /// Where the last answer sent the request, which does not go there.
    pub elsewhere: Option<Elsewhere>,
}

/// The right place, as far as an answer names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    pub region: Option<String>,
    pub host: Option<String>,
}

impl Seen {
    /// Forgets the answer to the request before: a record describes the last one. Credentials are asked for before a
    /// request is sent, so what is known of them stays.
    fn begin_try(&mut self) {
        *self = Seen {
            tries: self.tries + 1,
            credentials: self.credentials.take(),
            ..Seen::default()
        };
    }
}

tokio::task_local! {
    pub static SEEN: Arc<Mutex<Seen>>;
    /// What the present call's completion gets: its condition, and in Azure its label. Headers that the signature does
    /// not name may be added after it; Azure's client signs afterwards.
    pub static COMPLETION: Vec<Header>;
}

/// Writes into the present call's record.
pub fn note(change: impl FnOnce(&mut Seen)) {
    // Outside a call nobody asks.
    let _ = SEEN.try_with(|seen| change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Whether the present call's last request got an answer.
pub fn is_answered() -> bool {
    last_status().is_some()
}

/// The status of the answer to the present call's last request, as the store gave it; `None` also outside a call.
pub fn last_status() -> Option<u16> {
    let status = |seen: &Arc<Mutex<Seen>>| {
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.status
    };
    SEEN.try_with(status).ok().flatten()
}

/// Whether a request to this store was repeated as long as requests are, and none of them was answered. Until it answers
/// again, others are not repeated, so that a run that needs several answers does not wait for each of them.
pub type GivenUp = Arc<AtomicBool>;

/// Another connector, watched.
#[derive(Debug)]
pub struct Watched<C> {
    pub connector: C,
    pub given_up: GivenUp,
    pub tally: RequestTally,
}

impl<C: HttpConnector> HttpConnector for Watched<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client {
            inner: self.connector.connect(options)?,
            given_up: self.given_up.clone(),
            tally: self.tally.clone(),
            has_answered: AtomicBool::new(false),
        }))
    }
}

#[derive(Debug)]
struct Client {
    inner: HttpClient,
    given_up: GivenUp,
    tally: RequestTally,
    /// It was there once, so its name is right.
    has_answered: AtomicBool,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        note(Seen::begin_try);
        self.tally.sent(&request);
        let method = request.method().clone();
        let is_completion = is_completion(&request);
        if is_completion && let Ok(headers) = COMPLETION.try_with(Clone::clone) {
            request.headers_mut().extend(headers);
        }
        let listing = Listing::of(&request);
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answered = match self.inner.execute(request).await {
            Ok(response) if is_completion && response.status().is_success() => {
                completed(response).await
            }
            Ok(response) if response.status().is_success() => match listing {
                Some(listing) => listed(listing, response).await,
                None => Ok(response),
            },
            other => other,
        };
        let response = answered.map_err(|error| self.unanswered(error, &host))?;
        self.given_up.store(false, Ordering::Relaxed);
        self.has_answered.store(true, Ordering::Relaxed);
        let is_head = method == Method::HEAD;
        self.tally
            .received(len_of(&response).filter(|_| !is_head).unwrap_or(0));
        note_answer(&response);
        let status = response.status();
        match status.is_success() || status == StatusCode::NOT_MODIFIED {
            true => Ok(response),
            false => Ok(refused(response).await),
        }
    }
}

impl Client {
    /// Notes why a request got no answer. The returned error is one that is repeated only if that may help.
    fn unanswered(&self, error: HttpError, host: &str) -> HttpError {
        let is_new = !self.has_answered.load(Ordering::Relaxed);
        let mut is_nowhere = false;
        note(|seen| {
            seen.silence = innermost(&error);
            is_nowhere = is_new && seen.tries >= UNRESOLVED_MAX && is_unresolved(&error);
            if seen.tries == TOLD_AT && !is_nowhere {
                let why = &seen.silence;
                tracing::warn!(
                    host,
                    why,
                    "the store does not answer, and is asked again (docs/buckets.md#a-store-that-is-away says for how long)"
                );
            }
        });
        // Repeated requests find the same certificate.
        let is_last = is_nowhere || is_distrust(&error) || self.given_up.load(Ordering::Relaxed);
        match is_last {
            true => HttpError::new(HttpErrorKind::Unknown, error),
            false => error,
        }
    }
}

/// The length of an answer's body, where the store says it.
fn len_of(response: &HttpResponse) -> Option<u64> {
    let len = response.headers().get("content-length")?;
    len.to_str().ok()?.parse().ok()
}

/// Notes an answer's status and date.
fn note_answer(response: &HttpResponse) {
    let date = response.headers().get("date");
    let date_ns = date.and_then(|date| date_ns(date.to_str().ok()?));
    note(|seen| {
        seen.status = Some(response.status().as_u16());
        seen.date_ns = date_ns;
    });
}

/// Reads the body of a refusal and notes what it says.
async fn refused(response: HttpResponse) -> HttpResponse {
    let (mut parts, body) = response.into_parts();
    // Azure says it also where an answer has no body.
    let code = parts.headers.get("x-ms-error-code");
    let code = code.and_then(|code| Some(line(code.to_str().ok()?)));
    let mut text = Vec::new();
    let mut stream = body.bytes_stream();
    while let Some(Ok(bytes)) = stream.next().await {
        let room = BODY_MAX - text.len();
        text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if text.len() == BODY_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let told = told_in_json(&text);
    note(|seen| {
        let (reason, message) =
            told.unwrap_or_else(|| (element(&text, "Code"), element(&text, "Message")));
        seen.code = code.unwrap_or(reason);
        seen.message = message;
    });
    // Every 5xx is repeated, but a store that cannot do this now cannot do it later either.
    if parts.status == StatusCode::NOT_IMPLEMENTED {
        parts.status = StatusCode::BAD_REQUEST;
    }
    HttpResponse::from_parts(parts, text.into())
}

fn is_completion(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let has = |start: &str| query.split('&').any(|pair| pair.starts_with(start));
    match *request.method() {
        Method::POST => has("uploadId="),
        Method::PUT => has("comp=blocklist"),
        _ => false,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the answer has more than {0} bytes")]
struct Endless(usize);

/// Reads the body of an answer. Errors: also one of more than `max` bytes, of which no more are read.
pub async fn body_of(body: HttpResponseBody, max: usize) -> Result<Vec<u8>, HttpError> {
    let mut read = Vec::new();
    let mut stream = body.bytes_stream();
    while let Some(bytes) = stream.next().await {
        read.extend_from_slice(&bytes?);
        if read.len() > max {
            // Asked again, it would be as long.
            return Err(HttpError::new(HttpErrorKind::Decode, Endless(max)));
        }
    }
    Ok(read)
}

/// Reads the answer to a completion to its end. S3 sends the status 200 before it knows how the completion ends.
async fn completed(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = response.into_parts();
    let text = body_of(body, COMPLETED_MAX).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if text.contains("<Error>") {
        parts.status = status_of(&element(&text, "Code"));
    }
    Ok(HttpResponse::from_parts(parts, text.into()))
}

/// Reads the answer to a listing to its end. One that is no listing is asked for once: the next answer would be like it.
async fn listed(listing: Listing, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = response.into_parts();
    let bytes = body_of(body, PAGE_MAX).await?;
    let text = String::from_utf8_lossy(&bytes);
    match listing.check(&text) {
        Ok(()) => {}
        Err(Fault::Refusal) => parts.status = status_of(&element(&text, "Code")),
        Err(other) => return Err(HttpError::new(HttpErrorKind::Unknown, other)),
    }
    Ok(HttpResponse::from_parts(parts, bytes.into()))
}

/// The status with which S3 sends an error that is not in the body of a 200.
fn status_of(code: &str) -> StatusCode {
    match code {
        "InternalError" => StatusCode::INTERNAL_SERVER_ERROR,
        "SlowDown" | "ServiceUnavailable" => StatusCode::SERVICE_UNAVAILABLE,
        "RequestTimeout" => StatusCode::REQUEST_TIMEOUT,
        "PreconditionFailed" => StatusCode::PRECONDITION_FAILED,
        "ConditionalRequestConflict" | "OperationAborted" => StatusCode::CONFLICT,
        "NoSuchUpload" | "NoSuchKey" | "NoSuchBucket" => StatusCode::NOT_FOUND,
        "AccessDenied" => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The reason and the message of a refusal by Google's JSON protocol.
fn told_in_json(text: &str) -> Option<(String, String)> {
    let answer: serde_json::Value = serde_json::from_str(text).ok()?;
    let error = answer.get("error")?;
    let reason = error["errors"][0]["reason"].as_str();
    Some((
        line(reason.unwrap_or_default()),
        line(error["message"].as_str().unwrap_or_default()),
    ))
}

/// The text of an XML element, without control characters and not longer than a line.
pub fn element(text: &str, name: &str) -> String {
    let inner = || {
        let rest = text.split_once(&format!("<{name}>"))?.1;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    line(inner().unwrap_or_default())
}

/// A text of the store's as a message can show it.
pub fn line(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control()).take(200);
    plain.collect::<String>().trim().to_owned()
}

/// The cause that an operator can use: the last of the chain.
pub fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

/// An error of a server whose name has no address: only the text of the client's error says it.
fn is_unresolved(error: &(dyn std::error::Error + 'static)) -> bool {
    error.to_string().contains("dns error") || error.source().is_some_and(is_unresolved)
}

/// Whether the server's certificate was not accepted.
fn is_distrust(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return matches!(tls, rustls::Error::InvalidCertificate(_));
    }
    // An `io::Error` hides the error it was made of from its chain of sources, and may be made of another one.
    let made_of = error.downcast_ref::<std::io::Error>();
    if let Some(made_of) = made_of.and_then(std::io::Error::get_ref) {
        return is_distrust(made_of);
    }
    error.source().is_some_and(is_distrust)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_accepted_is_found_inside_an_error_of_a_connection() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let connection = std::io::Error::other(std::io::Error::other(tls));
        let error = HttpError::new(HttpErrorKind::Connect, connection);
        assert!(is_distrust(&error));
        let other = std::io::Error::other(rustls::Error::DecryptError);
        assert!(!is_distrust(&HttpError::new(HttpErrorKind::Connect, other)));
    }

    #[test]
    fn a_refusal_is_read_from_its_xml() {
        let text = "<?xml?><Error><Code>NoSuchKey</Code><Message>not\n there</Message></Error>";
        assert_eq!(element(text, "Code"), "NoSuchKey");
        assert_eq!(element(text, "Message"), "not there");
        for odd in ["", "<Code>", "</Code><Code>", "<Code></Code>", "plain text"] {
            assert_eq!(element(odd, "Code"), "", "{odd}");
        }
    }

    #[test]
    fn a_date_of_http_is_read_and_anything_else_is_none() {
        let ns = date_ns("Tue, 02 Jan 2024 03:04:05 GMT").unwrap();
        assert_eq!(ns, 1_704_164_645_000_000_000);
        for odd in [
            "",
            "now",
            "2024-01-02T03:04:05Z",
            "Tue, 99 Jan 2024 03:04:05 GMT",
        ] {
            assert_eq!(date_ns(odd), None, "{odd}");
        }
    }
}
