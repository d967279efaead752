//! An object store of this machine, for programs that back up to it.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore_kit::PATIENCE;
use longshore_kit::program::Guarded;

const ID: &str = "test-id";
pub const SECRET: &str = "test-verysecret";

/// versitygw with an empty bucket `nightly`.
pub struct Store {
    root: tempfile::TempDir,
    port: u16,
    _process: Guarded,
}

impl Store {
    /// Starts it. `None` if it is not installed.
    pub fn new() -> Option<Store> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("store/nightly")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.work/buckets/versitygw");
        if !program.exists() {
            let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
            assert!(!required, "versitygw is missing: run scripts/setup.sh");
            eprintln!("skipped: versitygw is missing: run scripts/setup.sh");
            return None;
        }
        let child = Command::new(program)
            .env("ROOT_ACCESS_KEY", ID)
            .env("ROOT_SECRET_KEY", SECRET)
            .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
            .arg(root.path().join("store"))
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
            assert!(Instant::now() < deadline, "versitygw does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(store)
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
