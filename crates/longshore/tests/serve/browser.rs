//! Goal: tests see a page as a browser shows it, press its keys, and know what it asked for.
//! Method: Chromium without a window, over its own protocol (`--remote-debugging-pipe`) through two FIFOs.
//! Not covered: this file has no tests.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::succeed;

pub struct Browser {
    child: Child,
    into: File,
    out: BufReader<File>,
    last: u64,
    session: Option<String>,
    /// The addresses that the page asked for.
    pub asked: Vec<String>,
    /// Its failures and complaints.
    pub said: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Browser {
    /// A browser of this size; `None` if there is none and none is demanded.
    pub fn new(width: u32, height: u32) -> Option<Browser> {
        let dir = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = dir.path().join(name);
            succeed(Command::new("mkfifo").arg(&path));
            path
        };
        let (into, out) = (pipe("in"), pipe("out"));
        let known = Command::new("chromium").arg("--version").output();
        if let Err(e) = known {
            assert!(
                std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none(),
                "chromium: {e}"
            );
            eprintln!("skipped: chromium does not run: {e}");
            return None;
        }
        let child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<\"$IN\" 4>\"$OUT\"", "sh"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-sync",
            ])
            .args(["--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .envs([("IN", &into), ("OUT", &out)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser {
            child,
            into: File::options().write(true).open(into).unwrap(),
            out: BufReader::new(File::open(out).unwrap()),
            last: 0,
            session: None,
            asked: Vec::new(),
            said: Vec::new(),
            _dir: dir,
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.size(width, height);
        Some(browser)
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.into.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.out.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.asked.push(url.to_owned());
            }
            Some("Runtime.exceptionThrown") => self.said.push(parameters.to_string()),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.said.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }

    pub fn size(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    pub fn is_dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": value});
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({"features": [feature]}),
        );
    }

    /// The page gets this data in place of the server's.
    pub fn answer_with(&mut self, status: &Value) {
        let source = format!(
            "window.fetch = async () => new Response({});",
            json!(status.to_string())
        );
        self.call(
            "Page.addScriptToEvaluateOnNewDocument",
            &json!({"source": source}),
        );
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({"url": url}));
    }

    /// The value of an expression of the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let found = self.call("Runtime.evaluate", &asked);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    pub fn wait_for(&mut self, expression: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.value(expression) != true {
            assert!(Instant::now() < until, "{expression}: {:?}", self.said);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key, such as `Tab`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            "ArrowRight" => (39, ""),
            "ArrowLeft" => (37, ""),
            _ => panic!("{key} is not known here"),
        };
        let name = if key == " " { "Space" } else { key };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": name, "windowsVirtualKeyCode": code,
                "text": if kind == "keyDown" { text } else { "" },
            });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
