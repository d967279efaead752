//! Goal: tests have real object stores of this machine for programs that back up to them, and can look at what these keep
//! by another way than Longshore's.
//! Method: versitygw, which speaks S3's protocol, keeps objects as files; Azurite, which is Microsoft's own double of
//! Azure, is asked over HTTP with a shared access signature; moto keeps versions, and fake-gcs-server generations.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore_kit::PATIENCE;
pub use longshore_kit::port::free_port;
use longshore_kit::program::Guarded;

const ID: &str = "test-id";
pub const SECRET: &str = "test-verysecret";

/// The account that Azurite is started with, and its key.
pub const ACCOUNT: &str = "testaccount";
pub const ACCOUNT_KEY: &str =
    "bG9uZ3Nob3JlIHRlc3Qga2V5LCBub3QgYSBzZWNyZXQsIDY0IGJ5dGVzIGxvbmcsIGZvciB0ZXN0cyBvbmx5ISE=";
/// A shared access signature of that key for everything in the account, until 2099.
pub const SIGNATURE: &str = "sv=2021-12-02&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&\
     sig=dUwIDFIR3ibg5KuzD50FGexVd3dQOY5rms9ef5KJIqw%3D";

/// A tool that `scripts/setup.sh` puts below .work; `None` if it is not installed.
pub fn tool(path: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../.work")
        .join(path);
    if found.exists() {
        return Some(found);
    }
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(!required, "{path} is missing: run scripts/setup.sh");
    eprintln!("skipped: {path} is missing: run scripts/setup.sh");
    None
}

pub fn wait_for_port(port: u16, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "{what} does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The command of an Azurite that keeps everything in memory.
pub fn azurite(port: u16) -> Option<Command> {
    let main = tool("buckets/azurite/node_modules/azurite/dist/src/blob/main.js")?;
    let mut command = Command::new("node");
    command
        .arg(main)
        .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
        .args(["--inMemoryPersistence", "--silent", "--disableTelemetry"])
        .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{ACCOUNT_KEY}"))
        .stdin(Stdio::null());
    Some(command)
}

/// Requests to Azurite that Longshore has no part in.
#[derive(Clone, Copy)]
pub struct Blobs {
    pub port: u16,
}

impl Blobs {
    pub fn endpoint(self) -> String {
        format!("http://127.0.0.1:{}/{ACCOUNT}", self.port)
    }

    /// Status and body of the answer. The path begins with the container.
    fn ask(self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let path = path.replace(' ', "%20");
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "{method} /{ACCOUNT}/{path}{joint}{SIGNATURE} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             {headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.expect("an answer has a head");
        let status = String::from_utf8_lossy(&answer[..end]);
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    pub fn make_container(self, name: &str) {
        let path = format!("{name}?restype=container");
        assert_eq!(self.ask("PUT", &path, "", b"").0, 201);
    }

    pub fn exists(self, path: &str) -> bool {
        self.ask("HEAD", path, "", b"").0 == 200
    }

    pub fn read(self, path: &str) -> Vec<u8> {
        let (status, bytes) = self.ask("GET", path, "", b"");
        assert_eq!(status, 200, "{path}");
        bytes
    }

    pub fn write(self, path: &str, bytes: &[u8]) {
        let kind = "x-ms-blob-type: BlockBlob\r\n";
        assert_eq!(self.ask("PUT", path, kind, bytes).0, 201, "{path}");
    }

    pub fn remove(self, path: &str) {
        assert_eq!(self.ask("DELETE", path, "", b"").0, 202, "{path}");
    }
}

/// A store with an empty bucket `nightly`.
pub struct Store {
    root: tempfile::TempDir,
    port: u16,
    is_azure: bool,
    _process: Guarded,
}

impl Store {
    /// Starts versitygw. `None` if it is not installed.
    pub fn new() -> Option<Store> {
        Store::with_keys(ID, SECRET)
    }

    /// The same with other credentials.
    pub fn with_keys(id: &str, secret: &str) -> Option<Store> {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("store");
        std::fs::create_dir_all(directory.join("nightly")).unwrap();
        let port = free_port();
        let mut command = Command::new(tool("buckets/versitygw")?);
        command
            .env("ROOT_ACCESS_KEY", id)
            .env("ROOT_SECRET_KEY", secret)
            .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
            .arg(directory);
        Some(Store::start(root, command, port))
    }

    /// Starts moto, whose bucket keeps versions. It gives each version the time at which it was written, and each mark of a
    /// removal the time of the removal; versitygw gives them others. `None` if it is not installed.
    pub fn with_versions() -> Option<Store> {
        let root = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new(tool("venv/bin/moto_server")?);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let store = Store::start(root, command, port);
        store.send("PUT", "", "");
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        store.send("PUT", "?versioning", enabled);
        Some(store)
    }

    fn start(root: tempfile::TempDir, mut command: Command, port: u16) -> Store {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Store {
            root,
            port,
            is_azure: false,
            _process: Guarded(child),
        };
        wait_for_port(port, &format!("{command:?}"));
        store
    }

    /// Another program's request about the bucket, or about an object in it. Only for a store that checks no signature.
    pub fn send(&self, method: &str, what: &str, body: &str) -> String {
        let at = format!("http://127.0.0.1:{}/nightly{what}", self.port);
        let sent = Command::new("curl")
            .args(["-sS", "--fail-with-body", "-X", method, &at])
            .args(["-H", "Content-Type: application/xml"])
            .args(["-H", &format!("Authorization: AWS4-HMAC-SHA256 Credential={ID}/20260101/us-east-1/s3/aws4_request")])
            .args(["--data-binary", body])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&sent.stdout).into_owned();
        let why = String::from_utf8_lossy(&sent.stderr).into_owned();
        assert!(sent.status.success(), "{method} {what}: {said}{why}");
        said
    }

    /// The names of the objects below a prefix.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let listing = self.send("GET", &format!("?list-type=2&prefix={prefix}/"), "");
        let keys = listing.split("<Key>").skip(1);
        keys.filter_map(|rest| rest.split("</Key>").next())
            .map(str::to_owned)
            .collect()
    }

    /// Starts Azurite. `None` if it is not installed.
    pub fn azure() -> Option<Store> {
        let root = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = azurite(port)?
            .current_dir(root.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Store {
            root,
            port,
            is_azure: true,
            _process: Guarded(child),
        };
        wait_for_port(port, "Azurite");
        Blobs { port }.make_container("nightly");
        Some(store)
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        match self.is_azure {
            true => Blobs { port: self.port }.endpoint(),
            false => format!("http://127.0.0.1:{}", self.port),
        }
    }

    /// How the addresses of its objects begin.
    pub fn bucket(&self) -> &'static str {
        match self.is_azure {
            true => "az://nightly",
            false => "s3://nightly",
        }
    }

    /// The variable with the secret, and the secret.
    pub fn secret(&self) -> (&'static str, &'static str) {
        match self.is_azure {
            true => ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY),
            false => ("AWS_SECRET_ACCESS_KEY", SECRET),
        }
    }

    /// The environment of a program that reaches it.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = match self.is_azure {
            true => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
                (
                    "AZURE_STORAGE_ENDPOINT",
                    Blobs { port: self.port }.endpoint(),
                ),
            ],
            false => vec![
                (
                    "AWS_ENDPOINT_URL",
                    format!("http://127.0.0.1:{}", self.port),
                ),
                ("AWS_REGION", "us-east-1".to_owned()),
                ("AWS_ACCESS_KEY_ID", ID.to_owned()),
                ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ],
        };
        let (name, secret) = self.secret();
        settings.push((name, secret.to_owned()));
        settings.push(("LONGSHORE_ALLOW_HTTP", "1".to_owned()));
        settings.push(("HOME", "/nonexistent".to_owned()));
        settings
    }

    /// The same, through a cache that keeps for ever that there was no object of such a name; lists it passes on.
    pub fn settings_past_a_cache_without(&self, name: &str) -> Vec<(&'static str, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let cache = listener.local_addr().unwrap().port();
        let (store, without) = (self.port, format!("/{name} "));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let without = without.clone();
                std::thread::spawn(move || answer_past_a_cache(client, store, &without));
            }
        });
        let (from, to) = (format!(":{store}"), format!(":{cache}"));
        let moved = |(name, value): (_, String)| (name, value.replace(&from, &to));
        self.settings().into_iter().map(moved).collect()
    }

    /// The settings, as they go before a program in a command of the shell.
    pub fn shell(&self) -> String {
        let one = |(name, value): (&str, String)| format!("{name}={value} ");
        self.settings().into_iter().map(one).collect()
    }

    /// The file in which versitygw keeps an object of the bucket, or the directory of the objects below a prefix.
    pub fn object(&self, key: &str) -> PathBuf {
        assert!(!self.is_azure, "Azurite keeps no files");
        self.root.path().join("store/nightly").join(key)
    }

    /// Takes an object away, and gives back what puts it there again.
    pub fn hidden(&self, key: &str) -> Hidden<'_> {
        let path = format!("nightly/{key}");
        let kept = self.root.path().join("kept");
        match self.is_azure {
            true => {
                let blobs = Blobs { port: self.port };
                std::fs::write(&kept, blobs.read(&path)).unwrap();
                blobs.remove(&path);
            }
            false => std::fs::rename(self.object(key), &kept).unwrap(),
        }
        Hidden {
            store: self,
            key: key.to_owned(),
        }
    }

    /// A directory next to the store's own.
    pub fn root(&self) -> &Path {
        self.root.path()
    }
}

/// Answers one request: of an object of such a name with 404, of anything else with what the store says.
fn answer_past_a_cache(mut client: TcpStream, store: u16, without: &str) {
    let mut lines = BufReader::new(client.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let (first, rest) = head.split_once("\r\n").unwrap();
    if first.starts_with("GET ") && first.contains(without) {
        let none = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        client.write_all(none.as_bytes()).unwrap();
        return;
    }
    let mut server = TcpStream::connect(("127.0.0.1", store)).unwrap();
    write!(server, "{first}\r\nConnection: close\r\n{rest}").unwrap();
    std::io::copy(&mut server, &mut client).unwrap();
}

/// An object that was taken away.
pub struct Hidden<'a> {
    store: &'a Store,
    key: String,
}

impl Hidden<'_> {
    pub fn shown(self) {
        let kept = self.store.root.path().join("kept");
        match self.store.is_azure {
            true => {
                let port = self.store.port;
                let bytes = std::fs::read(&kept).unwrap();
                Blobs { port }.write(&format!("nightly/{}", self.key), &bytes);
            }
            false => std::fs::rename(kept, self.store.object(&self.key)).unwrap(),
        }
    }
}

/// fake-gcs-server with an empty bucket `nightly`, which keeps generations, and `plain`, which does not. It takes no uploads in
/// parts, so objects come by another program's requests.
pub struct Generations {
    port: u16,
    tokens: u16,
    _process: Guarded,
}

impl Generations {
    /// `None` if it is not installed.
    pub fn new() -> Option<Generations> {
        let port = free_port();
        let child = Command::new(tool("buckets/fake-gcs-server")?)
            .args([
                "-backend",
                "memory",
                "-scheme",
                "http",
                "-host",
                "127.0.0.1",
            ])
            .args(["-port", &port.to_string(), "-log-level", "error"])
            .args(["-public-host", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Generations {
            port,
            tokens: tokens(),
            _process: Guarded(child),
        };
        wait_for_port(port, "fake-gcs-server");
        for (name, is_kept) in [("nightly", true), ("plain", false)] {
            let about = format!("{{\"name\":\"{name}\",\"versioning\":{{\"enabled\":{is_kept}}}}}");
            store.send("POST", "storage/v1/b?project=p", about.as_bytes());
        }
        Some(store)
    }

    /// Puts an object there; one of the name that is there becomes an older generation.
    pub fn put(&self, bucket: &str, key: &str, bytes: &[u8]) {
        let key = key.replace('/', "%2F");
        let at = format!("upload/storage/v1/b/{bucket}/o?uploadType=media&name={key}");
        self.send("POST", &at, bytes);
    }

    pub fn remove(&self, bucket: &str, key: &str) {
        let key = key.replace('/', "%2F");
        self.send("DELETE", &format!("storage/v1/b/{bucket}/o/{key}"), b"");
    }

    /// All generations of all objects, as the server lists them.
    pub fn listed(&self, bucket: &str) -> String {
        self.send(
            "GET",
            &format!("storage/v1/b/{bucket}/o?versions=true"),
            b"",
        )
    }

    fn send(&self, method: &str, what: &str, body: &[u8]) -> String {
        let at = format!("http://127.0.0.1:{}/{what}", self.port);
        let mut curl = Command::new("curl")
            .args(["-sS", "--fail-with-body", "-X", method, &at])
            .args([
                "-H",
                "Content-Type: application/json",
                "--data-binary",
                "@-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        curl.stdin.take().unwrap().write_all(body).unwrap();
        let sent = curl.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&sent.stdout).into_owned();
        assert!(sent.status.success(), "{method} {what}: {said}");
        said
    }

    /// The environment of a program that reaches it, with the token of a machine's metadata service.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let here = |port: u16| format!("127.0.0.1:{port}");
        vec![
            ("GOOGLE_BASE_URL", format!("http://{}", here(self.port))),
            ("GCE_METADATA_HOST", here(self.tokens)),
            ("LONGSHORE_ALLOW_HTTP", "1".to_owned()),
            ("HOME", "/nonexistent".to_owned()),
        ]
    }
}

/// A service that gives every caller a token, for as long as the process lives; returns its port.
fn tokens() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut head = [0; 4096];
            if stream.read(&mut head).is_err() {
                continue;
            }
            let body = r#"{"access_token":"t","expires_in":3600,"token_type":"Bearer"}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
            // A caller that has gone needs none.
            let _gone = stream.write_all(answer.as_bytes());
        }
    });
    port
}
