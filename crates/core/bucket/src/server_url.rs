//! Addresses that begin with a server, as SQL Server writes them.
//!
//! Invariants
//! - A text that may begin with a bucket is none of them.
//! - One object at one server has one spelling, but for the server's names: host in lower case, no port that is the usual
//!   one, no slash at the end. Bucket and key keep their case.
//! - A prefix is at one server, in one bucket, and ends at a slash.
//! - The server is spoken to over TLS, but where the settings name it with plain http.
//!
//! Leaves to others: the keys for such addresses (`access.rs`), and the objects' requests (`store.rs`).

use crate::environment::server;
use crate::scheme::{Scheme, begins};
use crate::servers::is_plain_http;

/// An address with a server: `s3://HOST:PORT/BUCKET/KEY`, `s3://BUCKET.s3.REGION.amazonaws.com/KEY`, or
/// `https://ACCOUNT.blob.core.windows.net/CONTAINER/KEY`. The key may be empty: then it is a bucket, or a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: Scheme,
    /// Without a slash at its end.
    endpoint: String,
    /// Lower-case, with the port.
    host: String,
    bucket: String,
    key: String,
    /// Whether the text ends at a slash, which the key has not: no object does.
    ends_at_slash: bool,
    /// The address up to the key.
    before: String,
}

impl ServerUrl {
    /// `None` if the text does not begin with a server: a host without a dot and a port looks like a bucket.
    ///
    /// Errors: why it is no address. The text is not repeated.
    pub fn parse(text: &str) -> Option<Result<ServerUrl, String>> {
        if begins(text, "s3://") {
            let rest = &text["s3://".len()..];
            let host = rest.split('/').next().unwrap_or_default();
            let is_host = host.contains(['.', ':', '@']) || host.eq_ignore_ascii_case("localhost");
            return is_host.then(|| ServerUrl::of_s3(rest));
        }
        let rest = text.get("https://".len()..)?;
        let host = rest.split('/').next().unwrap_or_default();
        let is_azure = begins(text, "https://") && host.contains(".blob.");
        is_azure.then(|| ServerUrl::of_azure(rest))
    }

    fn of_s3(rest: &str) -> Result<ServerUrl, String> {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.to_ascii_lowercase();
        let (host, bucket, key) = match of_amazon(&host) {
            Some((bucket, host)) => (host.to_owned(), bucket.to_owned(), path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (host, bucket.to_owned(), key)
            }
        };
        ServerUrl::checked(Scheme::S3, &host, bucket, key)
    }

    fn of_azure(rest: &str) -> Result<ServerUrl, String> {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.to_ascii_lowercase();
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        ServerUrl::checked(Scheme::Azure, &host, bucket.to_owned(), key)
    }

    fn checked(scheme: Scheme, host: &str, bucket: String, key: &str) -> Result<ServerUrl, String> {
        // A signature in the address would be a secret in each message.
        if key.contains(['?', '#']) || bucket.contains(['?', '#']) {
            return Err("an address has neither a query nor a fragment".to_owned());
        }
        scheme.check(&bucket)?;
        let host = one_spelling(host)?;
        let protocol = match is_plain_http(&host) {
            true => "http",
            false => "https",
        };
        let endpoint = format!("{protocol}://{host}");
        let url = server("its server", &endpoint, &["https", "http"])?;
        let beginning = match scheme {
            Scheme::Azure => "https://",
            Scheme::S3 | Scheme::Google => "s3://",
        };
        Ok(ServerUrl {
            scheme,
            endpoint: url.as_str().trim_end_matches('/').to_owned(),
            before: format!("{beginning}{host}/{bucket}/"),
            host,
            bucket,
            ends_at_slash: key.ends_with('/'),
            key: key.trim_end_matches('/').to_owned(),
        })
    }

    /// The host, with the port if the address has one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Server, bucket and key, as [`crate::Bucket::origin`] has them.
    pub fn origin(&self) -> String {
        format!("{} {} {}", self.endpoint, self.bucket, self.key)
    }

    /// The server and the bucket, as the name of a credential for both has them.
    pub fn prefix(&self) -> &str {
        self.before.trim_end_matches('/')
    }

    /// Whether both are at one server.
    pub fn has_server_of(&self, other: &ServerUrl) -> bool {
        self.scheme == other.scheme && self.endpoint == other.endpoint
    }

    pub(crate) fn ends_at_slash(&self) -> bool {
        self.ends_at_slash
    }

    /// Whether this is `prefix` or below it.
    pub fn is_in(&self, prefix: &ServerUrl) -> bool {
        let is_same = self.endpoint == prefix.endpoint && self.bucket == prefix.bucket;
        let rest = self.key.strip_prefix(prefix.key.as_str());
        is_same
            && rest.is_some_and(|rest| {
                prefix.key.is_empty() || rest.is_empty() || rest.starts_with('/')
            })
    }

    /// How long the prefix is: of several that fit, the longest counts.
    pub fn key_len(&self) -> usize {
        self.key.len()
    }

    /// The bucket and the key as a plain address has them.
    pub fn plain(&self) -> String {
        format!("{}{}/{}", self.scheme, self.bucket, self.key)
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The account of Azure: the first part of the host.
    pub(crate) fn account(&self) -> &str {
        self.host.split('.').next().unwrap_or_default()
    }

    /// The region that AWS's hosts name.
    pub(crate) fn region(&self) -> Option<&str> {
        let name = self.host.split(':').next()?;
        let region = name.strip_prefix("s3.")?.strip_suffix(".amazonaws.com")?;
        (!region.is_empty() && !region.contains('.')).then_some(region)
    }

    /// The key; empty for a bucket.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The text up to the key.
    pub(crate) fn before(&self) -> &str {
        &self.before
    }

    /// The address as it is shown and compared.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.before, self.key)
    }
}

/// A host with its port in one spelling: as addresses of the web have it, and without the port that is the usual one. That
/// port stays where the settings name the host without it as a server of plain http: these are two servers.
fn one_spelling(host: &str) -> Result<String, String> {
    let url = server("its server", &format!("https://{host}"), &["https"])?;
    let bare = url.host_str().unwrap_or_default();
    Ok(match url.port() {
        Some(port) => format!("{bare}:{port}"),
        None if host.ends_with(":443") && is_plain_http(bare) => format!("{bare}:443"),
        None => bare.to_owned(),
    })
}

/// The bucket and the rest of a host at AWS: `BUCKET.s3.REGION.amazonaws.com`.
fn of_amazon(host: &str) -> Option<(&str, &str)> {
    let name = host.split(':').next()?;
    let at = name
        .ends_with(".amazonaws.com")
        .then(|| name.find(".s3."))??;
    Some((&host[..at], &host[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap().unwrap()
    }

    #[test]
    fn the_server_is_a_part_of_the_address() {
        for (text, endpoint, bucket, key) in [
            (
                "S3://MinIO.example:9000/nightly/a b.bak",
                "https://minio.example:9000",
                "nightly",
                "a b.bak",
            ),
            (
                "s3://10.0.0.5/nightly/Dir/a.bak",
                "https://10.0.0.5",
                "nightly",
                "Dir/a.bak",
            ),
            ("s3://localhost/nightly", "https://localhost", "nightly", ""),
            (
                "s3://my.bucket.s3.eu-west-1.amazonaws.com/a/b.bak",
                "https://s3.eu-west-1.amazonaws.com",
                "my.bucket",
                "a/b.bak",
            ),
            (
                "s3://s3.eu-west-1.amazonaws.com:443/nightly/",
                "https://s3.eu-west-1.amazonaws.com",
                "nightly",
                "",
            ),
            (
                "https://vault.blob.core.windows.net/nightly/a.bak",
                "https://vault.blob.core.windows.net",
                "nightly",
                "a.bak",
            ),
        ] {
            let found = url(text);
            assert_eq!(
                (
                    found.endpoint.as_str(),
                    found.bucket.as_str(),
                    found.key.as_str()
                ),
                (endpoint, bucket, key),
                "{text}"
            );
        }
        for plain in [
            "s3://nightly/a.bak",
            "az://c.d/a",
            "https://host/c/a",
            "gs://a.b/c",
            "/a",
        ] {
            assert!(ServerUrl::parse(plain).is_none(), "{plain}");
        }
        for wrong in [
            "s3://id:verysecret@host.example/nightly/a",
            "s3://host.example:0/nightly/a",
            "s3://host.example",
            "s3://host.example/Nightly/a",
            "https://a.blob.core.windows.net/c/a?sig=verysecret",
        ] {
            let why = ServerUrl::parse(wrong).unwrap().unwrap_err();
            assert!(!why.contains("secret"), "{wrong}: {why}");
        }
    }

    #[test]
    fn one_object_has_one_spelling_and_no_slash_at_its_end() {
        for (text, spelling) in [
            ("s3://H.example:443/abc/k", "s3://h.example/abc/k"),
            ("s3://h.example/abc/k", "s3://h.example/abc/k"),
            ("s3://h.example:80/abc/k", "s3://h.example:80/abc/k"),
            ("s3://[::1]:9000/abc/k", "s3://[::1]:9000/abc/k"),
            (
                "https://V.blob.core.windows.net:443/abc/k",
                "https://v.blob.core.windows.net/abc/k",
            ),
        ] {
            let found = url(text);
            assert_eq!(found.text(), spelling);
            assert_eq!(url(spelling), found);
        }
        assert_eq!(url("s3://h.example:443/abc/k").host(), "h.example");
        assert_eq!(
            url("s3://h.example:443/abc/k").prefix(),
            "s3://h.example/abc"
        );
        let access = |at: &ServerUrl| {
            let access = crate::Access::new("c", ("S3 Access Key", "a:b"), at, None).unwrap();
            std::sync::Arc::new(access)
        };
        let object = url("s3://h.example/abc/k");
        assert!(crate::Address::given(object.clone(), &access(&object)).is_ok());
        let prefix = url("s3://h.example/abc/k/");
        assert!(object.is_in(&prefix));
        assert!(crate::Address::given(prefix.clone(), &access(&prefix)).is_err());
    }

    #[test]
    fn a_prefix_is_of_one_server_and_ends_at_a_slash() {
        let is_in = |text: &str, prefix: &str| url(text).is_in(&url(prefix));
        assert!(is_in("s3://h.x:1/abc/a/b", "s3://H.x:1/abc"));
        assert!(is_in("s3://h.x:1/abc/a/b", "s3://h.x:1/abc/a/"));
        assert!(!is_in("s3://h.x:1/abc/ab", "s3://h.x:1/abc/a"));
        assert!(!is_in("s3://h.x:1/abcd/a", "s3://h.x:1/abc"));
        assert!(!is_in("s3://h.x:2/abc/a", "s3://h.x:1/abc"));
        assert!(!is_in("s3://h.x:1/abc/A", "s3://h.x:1/abc/a"));
        assert!(!is_in("s3://h.x:1/abc/A/b", "s3://h.x:1/abc/a"));
    }
}
