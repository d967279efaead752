//! The way of a request to a server: through the proxy that the environment names, and never to a place that a server
//! names.
//!
//! Invariants
//! - A redirect is an answer like any other, and not followed: the request has a signature, and often a session's
//!   token, that no other host may see. The right place that the answer names is noted for the message.
//! - Proxies never see requests to link-local addresses, where machines and containers ask for their credentials.
//! - No message has the address of a proxy: it may hold a password.
//!
//! Leaves to others: what is asked, its signature and its repetition (`object_store`), and which host is the store's
//! (`settings.rs`).

use std::ffi::OsString;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::{Certificate, NoProxy, Proxy};

use crate::environment::{Environment, Form, check, server};
use crate::watched::{Elsewhere, note};

/// Hosts that are always asked without a proxy.
const LINK_LOCAL: &str = "169.254.0.0/16,fd00:ec2::/32,metadata.google.internal";

/// The proxies that the environment names.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<String>,
    https: Option<String>,
    except: String,
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        // An address of a proxy may hold a password.
        f.debug_struct("Proxies").finish_non_exhaustive()
    }
}

impl Proxies {
    /// Errors: which variable cannot be meant, and why.
    pub fn read(get: &dyn Fn(&str) -> Option<OsString>) -> Result<Proxies, String> {
        let env = Environment(get);
        // Such a process gets HTTP_PROXY from a client's header.
        if env.is_set("REQUEST_METHOD") {
            return Ok(Proxies::default());
        }
        let of = |names: &[&str]| match env.first(names, Form::Signs)? {
            Some((name, value)) => proxy(&name, &value).map(Some),
            None => Ok::<_, String>(None),
        };
        let all = of(&["ALL_PROXY", "all_proxy"])?;
        let except = env.first(&["NO_PROXY", "no_proxy"], Form::Text)?;
        if let Some((name, list)) = &except {
            for one in list.split(',') {
                check(name, one.trim(), Form::Signs)?;
            }
        }
        Ok(Proxies {
            http: of(&["HTTP_PROXY", "http_proxy"])?.or_else(|| all.clone()),
            https: of(&["HTTPS_PROXY", "https_proxy"])?.or(all),
            except: except.map(|(_, list)| list).unwrap_or_default(),
        })
    }
}

/// A proxy may have a password, which is not part of what is checked. One without a scheme is spoken to in plain http,
/// as other programs do.
fn proxy(name: &str, value: &str) -> Result<String, String> {
    let whole = match value.contains("://") {
        true => value.to_owned(),
        false => format!("http://{value}"),
    };
    let (scheme, rest) = whole.split_once("://").unwrap_or_default();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let url = server(name, &format!("{scheme}://{place}"), &["http", "https"])?;
    if url.path() != "/" {
        return Err(format!("{name} must be http://HOST:PORT, without a path"));
    }
    match Proxy::all(&whole) {
        Ok(_) => Ok(whole),
        Err(_) => Err(format!(
            "{name} is not the address of a proxy: http://HOST:PORT is one"
        )),
    }
}

/// Makes clients that go where the settings say, and nowhere else.
#[derive(Debug, Clone)]
pub struct Direct {
    certificates: Vec<Certificate>,
    proxies: Proxies,
    region: String,
}

impl Direct {
    /// `ca`: certificates to trust besides the system's, as PEM. Errors: why they cannot be read.
    pub fn new(ca: Option<&[u8]>, proxies: Proxies, region: &str) -> Result<Direct, String> {
        let certificates = match ca {
            None => Vec::new(),
            Some(pem) => Certificate::from_pem_bundle(pem)
                .map_err(|_| "the certificates' file is not PEM".to_owned())?,
        };
        if ca.is_some() && certificates.is_empty() {
            return Err("the certificates' file holds none".to_owned());
        }
        Ok(Direct {
            certificates,
            proxies,
            region: region.to_owned(),
        })
    }

    fn client(&self, options: &ClientOptions) -> reqwest::Result<reqwest::Client> {
        let asked = |key| options.get_config_value(&key);
        let limit = |key| asked(key).as_deref().and_then(duration);
        let is_https_only = asked(ClientConfigKey::AllowHttp).as_deref() != Some("true");
        let own = asked(ClientConfigKey::ProxyExcludes).unwrap_or_default();
        let except = format!("{LINK_LOCAL},{},{own}", self.proxies.except);
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .tls_certs_merge(self.certificates.clone())
            .https_only(is_https_only)
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .http1_only()
            // The environment was read already, and checked.
            .no_proxy();
        for (proxy, make) in [
            (
                &self.proxies.http,
                Proxy::http as fn(String) -> reqwest::Result<Proxy>,
            ),
            (&self.proxies.https, Proxy::https),
        ] {
            if let Some(proxy) = proxy {
                let proxy = make(proxy.clone())?.no_proxy(NoProxy::from_string(&except));
                builder = builder.proxy(proxy);
            }
        }
        if let Some(limit) = limit(ClientConfigKey::Timeout) {
            builder = builder.timeout(limit);
        }
        if let Some(limit) = limit(ClientConfigKey::ReadTimeout) {
            builder = builder.read_timeout(limit);
        }
        if let Some(limit) = limit(ClientConfigKey::ConnectTimeout) {
            builder = builder.connect_timeout(limit);
        }
        builder.build()
    }
}

/// A duration as `object_store` prints its options, such as `4m 40s`.
fn duration(text: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for word in text.split_whitespace() {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let count: u32 = word[..word.len() - unit.len()].parse().ok()?;
        let one = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return None,
        };
        sum += one.checked_mul(count)?;
    }
    Some(sum)
}

impl HttpConnector for Direct {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self
            .client(options)
            .map_err(|e| object_store::Error::Generic {
                store: "network",
                source: Box::new(e.without_url()),
            })?;
        Ok(HttpClient::new(Staying {
            client: HttpClient::new(client),
            region: self.region.clone(),
        }))
    }
}

#[derive(Debug)]
struct Staying {
    client: HttpClient,
    region: String,
}

#[async_trait]
impl HttpService for Staying {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.client.execute(request).await?;
        let found = elsewhere(response.status(), response.headers(), &self.region);
        note(|seen| seen.elsewhere = found);
        Ok(response)
    }
}

/// The right place that an answer names, if it says that this is not it.
fn elsewhere(status: StatusCode, headers: &HeaderMap, own: &str) -> Option<Elsewhere> {
    let header = |name: &str| {
        let text = headers.get(name)?.to_str().ok()?;
        Some(text.to_owned())
    };
    let region = header("x-amz-bucket-region").filter(|r| check("", r, Form::Word).is_ok());
    let is_redirect = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
    // S3 answers so to a signature for another region.
    let is_signed_wrong =
        status == StatusCode::BAD_REQUEST && region.as_ref().is_some_and(|region| region != own);
    if !is_redirect && !is_signed_wrong {
        return None;
    }
    let place = header("location").and_then(|to| reqwest::Url::parse(&to).ok());
    let host = place.and_then(|url| {
        let host = url.host_str()?.to_owned();
        Some(
            url.port()
                .map_or(host.clone(), |port| format!("{host}:{port}")),
        )
    });
    Some(Elsewhere { region, host })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Proxies, String> {
        Proxies::read(&|name| {
            let found = variables.iter().find(|v| v.0 == name);
            found.map(|v| v.1.into())
        })
    }

    #[test]
    fn a_proxy_that_cannot_be_meant_is_refused_by_name() {
        for odd in [
            "socks5://h:1",
            "http://",
            "h:99999",
            "http://h:1/path",
            "http://h:1?q",
            "http://u:verysecret@",
            "http://u:verysecret@h h:1",
            "verysecret\n",
        ] {
            for name in ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"] {
                let why = read(&[(name, odd)]).unwrap_err();
                assert!(why.contains(name) && !why.contains("verysecret"), "{why}");
            }
        }
        assert!(
            read(&[("NO_PROXY", "a b")])
                .unwrap_err()
                .contains("NO_PROXY")
        );
        for good in ["proxy:3128", "http://proxy:3128/", "https://u:p%40x@proxy"] {
            let proxies = read(&[("ALL_PROXY", good), ("NO_PROXY", ".a, 10.0.0.0/8,*")]).unwrap();
            assert!(proxies.http.is_some() && proxies.http == proxies.https);
            assert!(!format!("{proxies:?}").contains("p%40x"));
        }
        let cgi = read(&[("HTTP_PROXY", "h:1"), ("REQUEST_METHOD", "GET")]).unwrap();
        assert!(cgi.http.is_none());
    }

    #[test]
    fn limits_are_read_as_the_options_print_them() {
        for (millis, key) in [
            (280_000, ClientConfigKey::Timeout),
            (1_500, ClientConfigKey::Timeout),
        ] {
            let limit = Duration::from_millis(millis);
            let options = ClientOptions::new().with_timeout(limit);
            let text = options.get_config_value(&key).unwrap();
            assert_eq!(duration(&text), Some(limit), "{text}");
        }
        assert_eq!(duration("never"), None);
    }
}
