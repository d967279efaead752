//! The head of an HTTP request: parsed, and judged.
//!
//! Invariants
//! - A head is at most [`HEAD_LEN_MAX`] bytes with [`HEADERS_MAX`] headers, in HTTP/1.0 or 1.1. Only GET and HEAD, without
//!   a body, are let in; whatever is malformed or could be read in two ways is refused.
//! - The name that a browser used is known: without exactly one `Host` there is no request.
//! - A password is kept in a [`Secret`] only.
//!
//! Leaves to others: reading the bytes (`wire.rs`), which paths there are, and who may log in (`mod.rs`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longshore_tds::Secret;

/// The maximum bytes of a request's first line and headers.
pub const HEAD_LEN_MAX: usize = 8 << 10;
/// The maximum number of headers.
const HEADERS_MAX: usize = 64;

/// A request that can be answered.
#[derive(Debug)]
pub struct PageRequest {
    /// Whether only the head of the answer is wanted.
    pub is_head: bool,
    /// Without the query; as sent, so that an encoded name is another one.
    pub path: String,
    /// The name and the port under which the client found the server.
    pub host: String,
    /// The name and the password of a login.
    pub login: Option<(String, Secret)>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadRefusal {
    Malformed,
    TooLong,
    Method,
    Body,
    Version,
}

impl HeadRefusal {
    /// The status code and its name.
    pub fn status(self) -> (u16, &'static str) {
        match self {
            HeadRefusal::Malformed => (400, "Bad Request"),
            HeadRefusal::Body => (413, "Content Too Large"),
            HeadRefusal::TooLong => (431, "Request Header Fields Too Large"),
            HeadRefusal::Method => (405, "Method Not Allowed"),
            HeadRefusal::Version => (505, "HTTP Version Not Supported"),
        }
    }
}

/// The request at the start of `bytes`; `Ok(None)`: its head has not ended yet.
pub fn parse(bytes: &[u8]) -> Result<Option<PageRequest>, HeadRefusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_LEN_MAX => {
            return Err(HeadRefusal::TooLong);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadRefusal::TooLong),
        Err(httparse::Error::Version) => return Err(HeadRefusal::Version),
        Err(_) => return Err(HeadRefusal::Malformed),
    }
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(HeadRefusal::Method),
    };
    let target = parsed.path.filter(|path| path.starts_with('/'));
    let target = target.ok_or(HeadRefusal::Malformed)?;
    let path = target.split(['?', '#']).next().unwrap_or(target);
    let mut host = None;
    let mut login = None;
    for header in parsed.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let value = || str::from_utf8(header.value).map_err(|_| HeadRefusal::Malformed);
        if is("host") {
            if host.replace(value()?).is_some() {
                return Err(HeadRefusal::Malformed);
            }
        } else if is("authorization") {
            if login.is_some() {
                return Err(HeadRefusal::Malformed);
            }
            login = basic(value()?);
        } else if is("transfer-encoding") || (is("content-length") && value()?.trim() != "0") {
            return Err(HeadRefusal::Body);
        }
    }
    let host = host.filter(|host| !host.is_empty());
    Ok(Some(PageRequest {
        is_head,
        path: path.to_owned(),
        host: host.ok_or(HeadRefusal::Malformed)?.to_owned(),
        login,
    }))
}

/// RFC 7617; `None`: another scheme, or not as it says.
fn basic(value: &str) -> Option<(String, Secret)> {
    let (scheme, encoded) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let both = Secret::new(String::from_utf8(decoded).ok()?);
    let (name, password) = both.reveal().split_once(':')?;
    Some((name.to_owned(), Secret::new(password.to_owned())))
}

/// Whether a `Host` names the machine itself: a loopback address, or `localhost`. Any other name may be one that its owner
/// lets point here (DNS rebinding).
pub fn is_of_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if is_port(port) => name,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if is_port(&format!(":{port}")) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// Whether this is nothing, or a colon and a number.
fn is_port(text: &str) -> bool {
    let number = text.strip_prefix(':').map(|port| {
        !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit())
    });
    number.unwrap_or(text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<HeadRefusal> {
        parse(text.as_bytes()).err()
    }

    #[test]
    fn a_request_is_read_when_its_head_has_ended_and_not_before() {
        let text = "GET /metrics?a=b HTTP/1.1\r\nHost: localhost:7433\r\nAccept: */*\r\n\r\n";
        for len in 0..text.len() {
            assert!(parse(&text.as_bytes()[..len]).unwrap().is_none(), "{len}");
        }
        let request = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (request.path.as_str(), request.is_head),
            ("/metrics", false)
        );
        assert_eq!(request.host, "localhost:7433");
        assert!(request.login.is_none());
        let head = parse(b"HEAD / HTTP/1.0\r\nhost: [::1]\r\n\r\n")
            .unwrap()
            .unwrap();
        assert!(head.is_head);
    }

    #[test]
    fn what_is_malformed_or_could_be_read_in_two_ways_is_refused() {
        use HeadRefusal::*;
        let ended = "HTTP/1.1\r\nHost: localhost\r\n";
        for (text, expected) in [
            ("POST / {}\r\n", Method),
            ("OPTIONS * {}\r\n", Method),
            ("GET http://localhost/ {}\r\n", Malformed),
            ("GET * {}\r\n", Malformed),
            ("GET / {}Host: evil\r\n\r\n", Malformed),
            ("GET / {}Content-Length: 5\r\n\r\n", Body),
            ("GET / {}Transfer-Encoding: chunked\r\n\r\n", Body),
            ("GET / {}Content-Length: 0, 5\r\n\r\n", Body),
            (
                "GET / {}Authorization: Basic YTpi\r\nAuthorization: Basic YTpi\r\n\r\n",
                Malformed,
            ),
            ("GET / {} folded: x\r\n\r\n", Malformed),
            ("GET / {}a b: c\r\n\r\n", Malformed),
            ("GET / {}a: b\x01\r\n\r\n", Malformed),
        ] {
            let text = text.replace("{}", ended);
            assert_eq!(refusal(&text), Some(expected), "{text}");
        }
        assert_eq!(
            refusal("GET / HTTP/1.1\r\n\r\n"),
            Some(Malformed),
            "no host"
        );
        assert_eq!(refusal("GET / HTTP/1.1\r\nHost:\r\n\r\n"), Some(Malformed));
        assert_eq!(refusal("GET / HTTP/2.0\r\n\r\n"), Some(Version));
        assert_eq!(refusal("\x16\x03\x01\x02"), Some(Malformed), "TLS");
        let many = "a: b\r\n".repeat(HEADERS_MAX);
        assert_eq!(refusal(&format!("GET / {ended}{many}\r\n")), Some(TooLong));
        let long = format!("GET /{} ", "x".repeat(HEAD_LEN_MAX));
        assert_eq!(refusal(&long), Some(TooLong));
    }

    #[test]
    fn basic_logins_are_read_and_anything_else_is_no_login() {
        let login =
            |value| basic(value).map(|(name, password)| (name, password.reveal().to_owned()));
        let of = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(login("Basic YWRhOmE6Yg=="), of("ada", "a:b"));
        assert_eq!(login("bASIC   YWRhOg=="), of("ada", ""));
        for none in [
            "Bearer YWRhOmE6Yg==",
            "Basic",
            "Basic YWRh",
            "Basic ****",
            "Basic /w==",
            "",
        ] {
            assert_eq!(login(none), None, "{none}");
        }
    }

    #[test]
    fn only_names_that_nobody_else_can_let_point_here_are_of_this_machine() {
        for own in [
            "localhost",
            "LocalHost:7433",
            "127.0.0.1",
            "127.0.0.2:1",
            "[::1]",
            "[::1]:65535",
        ] {
            assert!(is_of_this_machine(own), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "::1",
            "[::1",
            "[::1]x",
            "localhost:",
            "localhost:x",
            "localhost:7433:7433",
            "localhost@evil.example",
            "127.1",
            "2130706433",
            " localhost",
        ] {
            assert!(!is_of_this_machine(other), "{other}");
        }
    }
}
