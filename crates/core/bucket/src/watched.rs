//! Sees each answer of the store, so that an error can name the HTTP code and what the store said.
//!
//! `object_store` repeats requests by itself and hands on the last error as text. One record for each call, kept by the
//! task that makes it, has what that text lacks.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt;
use http::StatusCode;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};

/// More of a refusal's body is not read.
const BODY_MAX: usize = 16 << 10;

/// What one call has seen.
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
}

tokio::task_local! {
    pub static SEEN: Arc<Mutex<Seen>>;
}

/// Writes into the present call's record.
pub fn note(change: impl FnOnce(&mut Seen)) {
    // Outside a call nobody asks.
    let _ = SEEN.try_with(|seen| change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Another connector, watched.
#[derive(Debug)]
pub struct Watched<C>(pub C);

impl<C: HttpConnector> HttpConnector for Watched<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Client(HttpClient);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        note(|seen| {
            let credentials = seen.credentials.take();
            *seen = Seen {
                tries: seen.tries + 1,
                credentials,
                ..Seen::default()
            };
        });
        let response = match self.0.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                note(|seen| seen.silence = innermost(&error));
                return Err(error);
            }
        };
        let status = response.status();
        note(|seen| seen.status = Some(status.as_u16()));
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
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
        note(|seen| {
            seen.code = element(&text, "Code");
            seen.message = element(&text, "Message");
        });
        Ok(HttpResponse::from_parts(parts, text.into()))
    }
}

/// The text of an XML element, without control characters and not longer than a line.
fn element(text: &str, name: &str) -> String {
    let inner = || {
        let rest = text.split_once(&format!("<{name}>"))?.1;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let inner = inner().unwrap_or_default();
    let plain = inner.chars().filter(|c| !c.is_control()).take(200);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_from_its_xml() {
        let text = "<?xml?><Error><Code>NoSuchKey</Code><Message>not\n there</Message></Error>";
        assert_eq!(element(text, "Code"), "NoSuchKey");
        assert_eq!(element(text, "Message"), "not there");
        for odd in ["", "<Code>", "</Code><Code>", "<Code></Code>", "plain text"] {
            assert_eq!(element(odd, "Code"), "", "{odd}");
        }
    }
}
