//! Goal: requests go where the settings say, with credentials from each place that gives them.
//! Method: the shipped network code, over small servers on this machine that stand for the store and for the places.
//! Not covered: real stores, which `longshore/tests/bucket/main.rs` uses.

mod exchanges;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};

use crate::network::{Direct, Proxies};
use crate::patience::Patience;
use crate::settings::Settings;
use crate::{Address, Bucket, Error, Scheme};

static NO: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Clone)]
struct Asked {
    /// Method and target.
    line: String,
    /// In lower case up to the colon.
    headers: Vec<(String, String)>,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map_or("", |(_, value)| value)
    }
}

type Answer = (u16, Vec<(&'static str, String)>, String);

/// A server of one answer to each request.
struct Local {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Local {
    fn start(answer: impl Fn(&Asked) -> Answer + Send + 'static) -> Local {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = heard(&stream) else {
                    continue;
                };
                seen.lock().unwrap().push(request.clone());
                let (status, headers, body) = answer(&request);
                let mut text = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
                for (name, value) in headers {
                    text += &format!("{name}: {value}\r\n");
                }
                text += &format!("Content-Length: {}\r\n\r\n", body.len());
                if !request.line.starts_with("HEAD") {
                    text += &body;
                }
                // The client may be gone.
                let _ = (&stream).write_all(text.as_bytes());
            }
        });
        Local { address, asked }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn heard(stream: &TcpStream) -> Option<Asked> {
    let mut stream = stream;
    heard_in(&mut stream)
}

fn heard_in(stream: &mut impl Read) -> Option<Asked> {
    let mut lines = BufReader::new(stream);
    let mut next = || {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    let line = next()?;
    let mut headers = Vec::new();
    while let Some((name, value)) = next()?.split_once(": ") {
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let mut asked = Asked {
        line,
        headers,
        body: String::new(),
    };
    let mut body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
    lines.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8_lossy(&body).into_owned();
    Some(asked)
}

fn settings(variables: &[(&str, &str)]) -> Settings {
    settings_of(Scheme::S3, variables)
}

fn settings_of(scheme: Scheme, variables: &[(&str, &str)]) -> Settings {
    let get = |name: &str| {
        let found = variables.iter().find(|v| v.0 == name);
        found.map(|v| v.1.into())
    };
    Settings::read(scheme, "abc", &longshore_io::Host::default(), &get).unwrap()
}

fn direct() -> Direct {
    Direct::new(None, Proxies::default(), "us-east-1").unwrap()
}

fn looked_at(bucket: &Bucket) -> Result<Option<crate::Head>, Error> {
    let address = Address::of("s3://abc/k").unwrap();
    bucket.head(&address.parts().unwrap().2, &NO)
}

const KEYS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "AK"),
    ("AWS_SECRET_ACCESS_KEY", "verysecret"),
    ("AWS_SESSION_TOKEN", "verysecret-token"),
    ("LONGSHORE_ALLOW_HTTP", "1"),
];

/// An object of one byte.
fn object() -> Answer {
    let headers = vec![
        ("ETag", "\"1\"".to_owned()),
        ("Last-Modified", "Tue, 02 Jan 2024 03:04:05 GMT".to_owned()),
    ];
    (200, headers, "x".to_owned())
}

#[test]
fn a_redirect_is_not_followed_and_the_error_names_the_region() {
    for status in [301, 302, 303, 307, 308] {
        let other = Local::start(|_| object());
        let location = format!("{}/abc/k", other.url());
        let store = Local::start(move |_| {
            let headers = vec![
                ("Location", location.clone()),
                ("x-amz-bucket-region", "eu-west-3".to_owned()),
            ];
            let body = "<Error><Code>PermanentRedirect</Code></Error>".to_owned();
            (status, headers, body)
        });
        let url = store.url();
        let all = [&KEYS[..], &[("AWS_ENDPOINT_URL", &url)]].concat();
        let bucket = Bucket::connect("abc", settings(&all), direct).unwrap();
        let error = looked_at(&bucket).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Redirected { .. }), "{text}");
        assert!(
            text.contains("region eu-west-3") && text.contains(&status.to_string()),
            "{text}"
        );
        assert!(error.hint().contains("AWS_REGION"), "{}", error.hint());
        assert_eq!(store.asked().len(), 1, "it is not repeated");
        assert!(other.asked().is_empty(), "{:?}", other.asked());
    }
}

#[test]
fn a_redirect_without_a_region_names_the_host_without_its_password() {
    let store = Local::start(|_| {
        let to = "https://user:verysecret@other.example:8443/abc?verysecret".to_owned();
        (307, vec![("Location", to)], String::new())
    });
    let url = store.url();
    let all = [&KEYS[..], &[("AWS_ENDPOINT_URL", &url)]].concat();
    let bucket = Bucket::connect("abc", settings(&all), direct).unwrap();
    let text = looked_at(&bucket).unwrap_err().to_string();
    assert!(
        text.contains("other.example:8443") && !text.contains("verysecret"),
        "{text}"
    );
}

#[test]
fn a_signature_for_another_region_is_explained() {
    let answer = |region: &str| {
        let region = region.to_owned();
        move |_: &Asked| {
            let headers = vec![("x-amz-bucket-region", region.clone())];
            (400, headers, String::new())
        }
    };
    for (region, expected) in [("eu-west-3", true), ("us-east-1", false)] {
        let store = Local::start(answer(region));
        let url = store.url();
        let all = [&KEYS[..], &[("AWS_ENDPOINT_URL", &url)]].concat();
        let bucket = Bucket::connect("abc", settings(&all), direct).unwrap();
        let error = looked_at(&bucket).unwrap_err();
        assert_eq!(
            matches!(error, Error::Redirected { .. }),
            expected,
            "{error}"
        );
    }
}

/// The shipped network, where other hosts than this machine are the server at `to`. Plain http is refused where the shipped
/// network refuses it.
#[derive(Debug, Clone)]
struct Bent {
    direct: Direct,
    to: SocketAddr,
}

impl HttpConnector for Bent {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let bent = options.clone().with_allow_http(true);
        Ok(HttpClient::new(BentClient {
            shipped: self.direct.connect(options)?,
            bent: self.direct.connect(&bent)?,
            to: self.to,
        }))
    }
}

#[derive(Debug)]
struct BentClient {
    shipped: HttpClient,
    bent: HttpClient,
    to: SocketAddr,
}

#[async_trait]
impl HttpService for BentClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().clone();
        let host = uri.host().unwrap_or_default().to_owned();
        if host == "127.0.0.1" {
            return self.shipped.execute(request).await;
        }
        let target = uri.path_and_query().unwrap();
        let scheme = uri.scheme_str().unwrap();
        let meant = format!("{scheme}://{host}").parse().unwrap();
        request.headers_mut().insert("x-meant", meant);
        *request.uri_mut() = format!("http://{}{target}", self.to).parse().unwrap();
        match scheme {
            "http" => self.shipped.execute(request).await,
            _ => self.bent.execute(request).await,
        }
    }
}

/// A moment so soon that credentials which end then are replaced before each use, or one far away.
fn until(is_soon: bool) -> String {
    match is_soon {
        true => (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30)).to_string(),
        false => "2099-01-02T03:04:05Z".to_owned(),
    }
}

/// Looks at an object twice, with credentials from a place; `giver` gives the next ones at each request that it answers
/// with `true`. Returns what `giver` was asked, and the keys that the store saw.
fn with_place(
    variables: &[(&str, &str)],
    giver: impl Fn(&Asked, &str, &str) -> (bool, Answer) + Send + 'static,
    is_soon: bool,
) -> (Vec<Asked>, Vec<String>) {
    let given = Mutex::new(0);
    let giving = Local::start(move |asked| {
        let mut given = given.lock().unwrap();
        let next = format!("AK{given}");
        let (is_given, answer) = giver(asked, &next, &until(is_soon));
        *given += usize::from(is_given);
        answer
    });
    let store = Local::start(|_| object());
    let (place, url) = (giving.url(), store.url());
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.replace("HERE", &place)))
        .collect();
    let mut all: Vec<_> = variables.iter().map(|(n, v)| (*n, v.as_str())).collect();
    all.extend([
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("LONGSHORE_ALLOW_HTTP", "1"),
    ]);
    let bent = Bent {
        direct: direct(),
        to: giving.address,
    };
    let bucket = Bucket::connect("abc", settings(&all), || bent.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(looked_at(&bucket).unwrap().unwrap().len_bytes, 1);
        // A refused or failed refresh is not repeated within a tenth of a second, and the old credentials serve.
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let key = |asked: &Asked| {
        let rest = asked
            .header("authorization")
            .split_once("Credential=")
            .unwrap()
            .1;
        assert_eq!(asked.header("x-amz-security-token"), "given-token");
        rest.split('/').next().unwrap().to_owned()
    };
    (giving.asked(), store.asked().iter().map(key).collect())
}

fn json(key: &str, until: &str) -> Answer {
    let text = format!(
        r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{key}","SecretAccessKey":"s","Token":"given-token","Expiration":"{until}"}}"#
    );
    (200, Vec::new(), text)
}

/// Credentials that end soon are replaced in the middle of a run, others are asked for once.
fn each_place(
    variables: &[(&str, &str)],
    giver: impl Fn(&Asked, &str, &str) -> (bool, Answer) + Send + Clone + 'static,
) -> Vec<Asked> {
    let (_, keys) = with_place(variables, giver.clone(), false);
    assert_eq!(keys, ["AK0", "AK0"]);
    let (asked, keys) = with_place(variables, giver, true);
    assert_eq!(keys, ["AK0", "AK1"]);
    asked
}

#[test]
fn an_instance_gives_credentials_by_its_second_protocol_and_again_before_they_end() {
    let metadata = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "HERE")];
    let asked = each_place(&metadata, |asked, key, until| {
        let text = |text: &str| (false, (200, Vec::new(), text.to_owned()));
        let has_token = asked.header("x-aws-ec2-metadata-token") == "session";
        match asked.line.split(' ').collect::<Vec<_>>()[..2] {
            ["PUT", "/latest/api/token"] => text("session"),
            _ if !has_token => (false, (401, Vec::new(), String::new())),
            ["GET", "/latest/meta-data/iam/security-credentials/"] => text("role"),
            ["GET", "/latest/meta-data/iam/security-credentials/role"] => (true, json(key, until)),
            _ => (false, (404, Vec::new(), String::new())),
        }
    });
    assert_eq!(asked.len(), 6);
    // Without the variable, the address is the instance's own.
    let (asked, _) = with_place(
        &[],
        |asked, key, until| match asked.line.starts_with("PUT") {
            true => (false, (200, Vec::new(), "session".to_owned())),
            false if asked.line.contains("/role ") => (true, json(key, until)),
            false => (false, (200, Vec::new(), "role".to_owned())),
        },
        false,
    );
    assert_eq!(asked[0].header("x-meant"), "http://169.254.169.254");
}

#[test]
fn a_container_gives_credentials_and_again_before_they_end() {
    let relative = [(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "/v2/credentials/1",
    )];
    let asked = each_place(&relative, |_, key, until| (true, json(key, until)));
    assert_eq!(asked[0].header("x-meant"), "http://169.254.170.2");
    assert!(asked[0].line.starts_with("GET /v2/credentials/1 "));
}

#[test]
fn a_pod_gives_credentials_for_its_token_and_again_before_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "pod-token").unwrap();
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "HERE/v1/credentials"),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.to_str().unwrap(),
        ),
    ];
    let asked = each_place(&variables, |asked, key, until| {
        assert_eq!(asked.header("authorization"), "pod-token");
        (true, json(key, until))
    });
    assert_eq!(asked.len(), 2);
}

#[test]
fn a_web_identity_gives_credentials_and_again_before_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "web-token").unwrap();
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/backup"),
        ("AWS_ROLE_SESSION_NAME", "night"),
    ];
    let asked = each_place(&variables, |_, key, until| {
        let text = format!(
            "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
             <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
             <SessionToken>given-token</SessionToken><Expiration>{until}</Expiration>\
             </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        );
        (true, (200, Vec::new(), text))
    });
    assert_eq!(
        asked[0].header("x-meant"),
        "https://sts.us-east-1.amazonaws.com"
    );
    for word in [
        "WebIdentityToken=web-token",
        "RoleSessionName=night",
        "role%2Fbackup",
    ] {
        assert!(asked[0].line.contains(word), "{}", asked[0].line);
    }
}

/// Looks at an object twice, with tokens that end soon or late. Returns what the giver of tokens was asked, and the
/// `Authorization` that the store saw.
fn with_tokens(
    scheme: Scheme,
    variables: &[(&str, &str)],
    is_soon: bool,
) -> (Vec<Asked>, Vec<String>) {
    let given = AtomicUsize::new(0);
    let giving = Local::start(move |_| {
        let number = given.fetch_add(1, Ordering::Relaxed);
        let (seconds, now) = (
            if is_soon { 30 } else { 36_000 },
            jiff::Timestamp::now().as_second(),
        );
        let text = format!(
            r#"{{"access_token":"verysecret{number}","expires_in":{seconds},"expires_on":"{}"}}"#,
            now + seconds
        );
        (200, Vec::new(), text)
    });
    let store = Local::start(|_| object());
    let url = store.url();
    let endpoint = match scheme {
        Scheme::Azure => "AZURE_STORAGE_ENDPOINT",
        Scheme::S3 | Scheme::Google => "GOOGLE_BASE_URL",
    };
    let own = [
        (endpoint, url.as_str()),
        ("AZURE_STORAGE_ACCOUNT_NAME", "acc"),
        ("LONGSHORE_ALLOW_HTTP", "1"),
    ];
    let all = [&own[..], variables].concat();
    let bent = Bent {
        direct: direct(),
        to: giving.address,
    };
    let bucket = Bucket::connect("abc", settings_of(scheme, &all), || bent.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(looked_at(&bucket).unwrap().unwrap().len_bytes, 1);
        // A failed refresh is not repeated within a tenth of a second.
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let seen = store.asked();
    let seen = seen.iter().map(|a| a.header("authorization").to_owned());
    (giving.asked(), seen.collect())
}

/// Tokens that end soon are replaced in the middle of a run, others are asked for once.
fn each_token(scheme: Scheme, variables: &[(&str, &str)]) -> Asked {
    let (asked, seen) = with_tokens(scheme, variables, false);
    assert_eq!(seen, ["Bearer verysecret0", "Bearer verysecret0"]);
    assert_eq!(asked.len(), 1);
    let (asked, seen) = with_tokens(scheme, variables, true);
    assert_eq!(seen, ["Bearer verysecret0", "Bearer verysecret1"]);
    asked[0].clone()
}

#[test]
fn an_application_of_azure_gives_tokens_for_its_secret_or_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "federated-token").unwrap();
    let own = [("AZURE_TENANT_ID", "t-1"), ("AZURE_CLIENT_ID", "c-1")];
    let secret = ("AZURE_CLIENT_SECRET", "s-1");
    let asked = each_token(Scheme::Azure, &[own[0], own[1], secret]);
    assert!(
        asked.line.starts_with("POST /t-1/oauth2/v2.0/token "),
        "{}",
        asked.line
    );
    assert_eq!(asked.header("x-meant"), "https://login.microsoftonline.com");
    assert!(asked.body.contains("client_secret=s-1"), "{}", asked.body);
    let file = ("AZURE_FEDERATED_TOKEN_FILE", token.to_str().unwrap());
    let host = ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/");
    let asked = each_token(Scheme::Azure, &[own[0], own[1], file, host]);
    assert_eq!(asked.header("x-meant"), "https://login.microsoftonline.us");
    assert!(
        asked.body.contains("client_assertion=federated-token"),
        "{}",
        asked.body
    );
}

#[test]
fn a_machine_of_azure_or_google_gives_tokens() {
    let asked = each_token(Scheme::Azure, &[("AZURE_CLIENT_ID", "c-1")]);
    assert_eq!(asked.header("x-meant"), "http://169.254.169.254");
    assert_eq!(asked.header("metadata"), "true");
    assert!(asked.line.contains("client_id=c-1"), "{}", asked.line);
    let asked = each_token(Scheme::Google, &[]);
    assert_eq!(asked.header("x-meant"), "http://metadata.google.internal");
    assert_eq!(asked.header("metadata-flavor"), "Google");
}

#[test]
fn a_user_of_google_gives_tokens_and_a_service_account_signs_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.json");
    let user = r#"{"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r-1"}"#;
    std::fs::write(&file, user).unwrap();
    let variable = [("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap())];
    let asked = each_token(Scheme::Google, &variable);
    assert_eq!(asked.header("x-meant"), "https://accounts.google.com");
    assert!(asked.body.contains("refresh_token=r-1"), "{}", asked.body);
    // The key of a service account, which no one is asked about.
    let made = std::process::Command::new("openssl")
        .args([
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ])
        .output()
        .unwrap();
    let key = serde_json::json!({
        "type": "service_account",
        "private_key": String::from_utf8(made.stdout).unwrap(),
        "private_key_id": "k-1",
        "client_email": "backup@example.iam.gserviceaccount.com",
        // No server is taken from the file.
        "gcs_base_url": "http://127.0.0.1:1",
    });
    std::fs::write(&file, key.to_string()).unwrap();
    let (asked, seen) = with_tokens(Scheme::Google, &variable, false);
    assert!(asked.is_empty());
    let token = seen[0].strip_prefix("Bearer ").unwrap();
    assert_eq!(
        token.split('.').filter(|part| part.len() > 20).count(),
        3,
        "{token}"
    );
    // One that is no key is refused without a word of it.
    let bad = key.to_string().replace("BEGIN PRIVATE", "BEGIN verysecret");
    std::fs::write(&file, bad).unwrap();
    let bucket = Bucket::connect("abc", settings_of(Scheme::Google, &variable), direct).unwrap();
    let error = looked_at(&bucket).unwrap_err();
    assert!(matches!(error, Error::Credentials { .. }), "{error}");
    assert!(error.to_string().contains("private key"), "{error}");
    assert!(!error.to_string().contains("verysecret"), "{error}");
    assert!(error.hint().contains("GOOGLE_APPLICATION_CREDENTIALS"));
}

#[test]
fn what_gives_credentials_is_not_followed_elsewhere_and_says_no_secret() {
    let other = Local::start(|_| json("AK", "2099-01-02T03:04:05Z"));
    let location = other.url();
    let giving = Local::start(move |_| {
        (
            302,
            vec![("Location", location.clone())],
            "verysecret".to_owned(),
        )
    });
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "verysecret").unwrap();
    let uri = giving.url() + "/c";
    let all = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.to_str().unwrap(),
        ),
    ];
    let bucket = Bucket::connect("abc", settings(&all), direct).unwrap();
    let error = looked_at(&bucket).unwrap_err();
    assert!(matches!(error, Error::Credentials { .. }), "{error}");
    assert!(!error.to_string().contains("verysecret"), "{error}");
    assert!(other.asked().is_empty());
}

#[test]
fn given_credentials_that_cannot_be_sent_are_refused() {
    let giving = Local::start(|_| json("A\\nK", "2099-01-02T03:04:05Z"));
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let uri = giving.url() + "/c";
    let all = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.to_str().unwrap(),
        ),
    ];
    let bucket = Bucket::connect("abc", settings(&all), direct).unwrap();
    let error = looked_at(&bucket).unwrap_err();
    assert!(
        error.to_string().contains("the key's name has a line end"),
        "{error}"
    );
}

/// A network without a server until `lives` is set; counts the requests.
#[derive(Debug, Clone, Default)]
struct Dead {
    lives: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    /// The server's name has no address.
    is_nowhere: bool,
}

impl HttpConnector for Dead {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Dead {
    async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.lives.load(Ordering::Relaxed) {
            let answer = http::Response::builder().status(404);
            return Ok(answer.body(String::new().into()).unwrap());
        }
        if self.is_nowhere {
            let unresolved = std::io::Error::other("dns error");
            return Err(HttpError::new(HttpErrorKind::Connect, unresolved));
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        Err(HttpError::new(HttpErrorKind::Connect, refused))
    }
}

/// The time itself is not waited for here: `a_store_that_is_away_is_waited_for_by_time_and_not_by_number` shows that it
/// counts.
#[test]
fn requests_are_repeated_for_three_minutes() {
    let patience = settings(&KEYS).patience;
    assert_eq!(patience.total, Duration::from_secs(180));
    assert_eq!(patience.retries, usize::MAX);
}

#[test]
fn a_store_that_answered_no_repetition_is_asked_once_until_it_answers() {
    let mut settings = settings(&KEYS);
    settings.patience = Patience {
        retries: 3,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_millis(2),
        ..Patience::USUAL
    };
    let dead = Dead::default();
    let bucket = Bucket::connect("abc", settings, || dead.clone()).unwrap();
    let asked = || dead.asked.swap(0, Ordering::Relaxed);
    for expected in [4, 1, 1] {
        let error = looked_at(&bucket).unwrap_err();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
        assert_eq!(asked(), expected);
    }
    dead.lives.store(true, Ordering::Relaxed);
    assert!(looked_at(&bucket).unwrap().is_none());
    dead.lives.store(false, Ordering::Relaxed);
    asked();
    looked_at(&bucket).unwrap_err();
    assert_eq!(asked(), 4, "it is repeated again");
}

#[test]
fn a_server_whose_name_has_no_address_is_not_waited_for_unless_it_was_there() {
    let mut settings = settings(&KEYS);
    settings.patience = Patience {
        retries: 8,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_millis(2),
        ..Patience::USUAL
    };
    let dead = Dead {
        is_nowhere: true,
        ..Dead::default()
    };
    let bucket = Bucket::connect("abc", settings, || dead.clone()).unwrap();
    let asked = || dead.asked.swap(0, Ordering::Relaxed);
    let error = looked_at(&bucket).unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    assert_eq!(asked(), 5);
    dead.lives.store(true, Ordering::Relaxed);
    assert!(looked_at(&bucket).unwrap().is_none());
    dead.lives.store(false, Ordering::Relaxed);
    asked();
    looked_at(&bucket).unwrap_err();
    assert_eq!(asked(), 9, "a name that was there may come back");
}

#[test]
fn a_certificate_of_an_authority_itself_has_a_hint_of_its_own() {
    let error = |why: &str| Error::Silent {
        action: "look at",
        at: "s3://abc/k".to_owned(),
        endpoint: "https://store".to_owned(),
        why: why.to_owned(),
        tries: 1,
    };
    let own = rustls::OtherError(Arc::new(std::io::Error::other("CaUsedAsEndEntity")));
    let own = rustls::Error::InvalidCertificate(rustls::CertificateError::Other(own));
    assert!(error(&own.to_string()).hint().contains("CA:FALSE"), "{own}");
    let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    let hint = error(&unknown.to_string()).hint();
    assert!(hint.contains("LONGSHORE_CA_FILE"), "{unknown}");
}

/// A server over TLS that answers each request with an empty success, and its authority's file.
fn tls_server() -> (tempfile::TempDir, String, Arc<Mutex<Vec<Asked>>>) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let dir = tempfile::tempdir().unwrap();
    let openssl = |line: &str| {
        let done = std::process::Command::new("openssl")
            .args(line.split_whitespace())
            .current_dir(dir.path())
            .output()
            .expect("openssl is needed");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {key} -subj /CN=test-authority -days 2 -keyout ca.key -out ca.pem"
    ));
    openssl(&format!(
        "req {key} -subj /CN=server -keyout s.key -out s.csr"
    ));
    let names = "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
    std::fs::write(dir.path().join("names"), names).unwrap();
    openssl(
        "x509 -req -in s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out s.pem",
    );
    let chain = CertificateDer::from_pem_file(dir.path().join("s.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.path().join("s.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let seen = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut tls = rustls::StreamOwned::new(session, stream);
            let Some(request) = heard_in(&mut tls) else {
                continue;
            };
            seen.lock().unwrap().push(request);
            let answer =
                "HTTP/1.1 200 X\r\nConnection: close\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n";
            // The client may be gone.
            let _ = tls.write_all(answer.as_bytes());
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    (dir, url, asked)
}

/// Goal: over TLS the requests are signed and the bodies are not hashed; over plain http the bodies are signed, too.
#[test]
fn bodies_are_unsigned_over_tls_alone() {
    const BODY: &[u8] = b"the body of an object";
    /// `sha256sum` of it.
    const SUM: &str = "0fc93090d47ade25878179a43c9d225a45421dc76d388581af80ecb05fbdc2e4";
    let (dir, url, asked) = tls_server();
    let plain = Local::start(|_| (200, vec![("ETag", "\"e\"".to_owned())], String::new()));
    let ca = dir.path().join("ca.pem");
    let at = plain.url();
    for (server, ca_file) in [(url.as_str(), ca.to_str()), (at.as_str(), None)] {
        let mut all = KEYS.to_vec();
        all.extend([("AWS_ENDPOINT_URL", server), ("LONGSHORE_ALLOW_HTTP", "1")]);
        all.extend(ca_file.map(|file| (crate::CA_FILE, file)));
        let settings = settings(&all);
        let proxies = Proxies::default();
        let direct = Direct::new(settings.ca.as_deref(), proxies, "us-east-1").unwrap();
        let bucket = Bucket::connect("abc", settings, || direct.clone()).unwrap();
        let key = Address::of("s3://abc/k").unwrap().parts().unwrap().2;
        bucket
            .put(&key, bytes::Bytes::from_static(BODY), &NO)
            .unwrap();
    }
    let over_tls = asked.lock().unwrap().remove(0);
    let over_http = plain.asked().remove(0);
    for (request, digest) in [(&over_tls, "UNSIGNED-PAYLOAD"), (&over_http, SUM)] {
        assert!(request.line.starts_with("PUT /abc/k "), "{}", request.line);
        assert_eq!(request.header("x-amz-content-sha256"), digest);
        let signed = request.header("authorization");
        assert!(
            signed.contains("Signature=") && signed.contains("x-amz-content-sha256"),
            "{signed}"
        );
        assert_eq!(request.body.as_bytes(), BODY);
    }
}
