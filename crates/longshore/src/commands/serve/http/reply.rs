//! An answer to a request, with the headers that keep browsers from doing anything else with it.
//!
//! Invariants
//! - No answer is kept by a cache, shown in a frame, guessed to be of another type, or read by another site's page.
//! - The connection ends with the answer.
//!
//! Leaves to others: the policy of the page itself (`page.rs`), and sending (`wire.rs`).

use std::sync::Arc;

/// The policy of everything but the page: it may do nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// The body of an answer: shared, so that many clients cost no more memory than one.
pub type Body = Arc<[u8]>;

/// An answer.
pub struct Reply {
    pub status: (u16, &'static str),
    pub kind: &'static str,
    pub policy: Option<Arc<str>>,
    pub header: Option<&'static str>,
    pub body: Body,
}

impl Reply {
    pub fn good(kind: &'static str, body: Body) -> Reply {
        Reply {
            status: (200, "OK"),
            kind,
            policy: None,
            header: None,
            body,
        }
    }

    /// A refusal with a sentence about it.
    pub fn refused(status: (u16, &'static str), text: &str) -> Reply {
        let allow = "Allow: GET, HEAD";
        Reply {
            status,
            kind: "text/plain; charset=utf-8",
            policy: None,
            header: (status.0 == 405).then_some(allow),
            body: Body::from(format!("{text}\n").into_bytes()),
        }
    }

    /// The first line and the headers.
    pub fn head(&self) -> String {
        let (code, name) = self.status;
        let policy = self.policy.as_deref().unwrap_or(NOTHING);
        let mut head = format!(
            "HTTP/1.1 {code} {name}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nContent-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n\
             X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Cross-Origin-Opener-Policy: same-origin\r\n",
            self.kind,
            self.body.len()
        );
        if let Some(header) = self.header {
            head += header;
            head += "\r\n";
        }
        head + "\r\n"
    }
}
