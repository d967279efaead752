//! Goal: a program under test has an object store of this machine, with or without versions.
//! Method: real servers, each with a bucket of its own. Not covered: this file has no tests.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore_kit::PATIENCE;
use longshore_kit::program::Guarded;

const ID: &str = "test-id";
pub const SECRET: &str = "test-verysecret";

/// A store with an empty bucket `nightly`.
pub struct Store {
    root: tempfile::TempDir,
    port: u16,
    _process: Guarded,
}

impl Store {
    /// Starts versitygw. `None` if it is not installed.
    pub fn new() -> Option<Store> {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("store");
        std::fs::create_dir_all(directory.join("nightly")).unwrap();
        Store::start(root, "buckets/versitygw", |command, port| {
            command
                .env("ROOT_ACCESS_KEY", ID)
                .env("ROOT_SECRET_KEY", SECRET)
                .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
                .arg(directory);
        })
    }

    /// Starts moto, whose bucket keeps versions. It gives each version the time at which it was written, and each mark of a
    /// removal the time of the removal; versitygw gives them others. `None` if it is not installed.
    pub fn with_versions() -> Option<Store> {
        let root = tempfile::tempdir().unwrap();
        let store = Store::start(root, "venv/bin/moto_server", |command, port| {
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        })?;
        store.send("PUT", "", "");
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        store.send("PUT", "?versioning", enabled);
        Some(store)
    }

    fn start(
        root: tempfile::TempDir,
        program: &str,
        arguments: impl FnOnce(&mut Command, u16),
    ) -> Option<Store> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let work = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.work");
        let path = work.join(program);
        if !path.exists() {
            let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
            assert!(!required, "{program} is missing: run scripts/setup.sh");
            eprintln!("skipped: {program} is missing: run scripts/setup.sh");
            return None;
        }
        let mut command = Command::new(path);
        arguments(&mut command, port);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Store {
            root,
            port,
            _process: Guarded(child),
        };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{program} does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(store)
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

    /// The environment of a program that reaches it.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("LONGSHORE_ALLOW_HTTP", "1".to_owned()),
            ("HOME", "/nonexistent".to_owned()),
        ]
    }

    /// The settings, as they go before a program in a command of the shell.
    pub fn shell(&self) -> String {
        let one = |(name, value): (&str, String)| format!("{name}={value} ");
        self.settings().into_iter().map(one).collect()
    }

    /// The file in which the store keeps an object of the bucket, or the directory of the objects below a prefix.
    pub fn object(&self, key: &str) -> PathBuf {
        self.root.path().join("store/nightly").join(key)
    }

    /// A directory next to the store's own.
    pub fn root(&self) -> &Path {
        self.root.path()
    }
}
