//! Goal: no malicious or broken client of the status page stops it, learns what it should not, stays for ever or makes it
//! take memory without a bound.
//! Method: raw connections send what no browser sends, and curl logs in over TLS; the page must still be served.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{Random, text};
use crate::http::{Answer, connect, curl, exchange, get, page, read, settled};
use crate::page::{backup, targeted};
use crate::served::Server;
use crate::stage::{PASSWORD, Stage, USER};

/// The page is still served.
fn serves(port: u16, after: &str) {
    assert_eq!(get(port, "/").status, 200, "after {after}");
}

#[test]
fn only_four_names_are_read_and_nothing_else_is_served() {
    let stage = Stage::new();
    let server = page(&stage, &[]);
    let port = server.port;
    for (path, status) in [
        ("/", 200),
        ("/?a=../../etc/passwd", 200),
        ("/status.json", 200),
        ("/status.txt", 200),
        ("/metrics", 200),
        ("/metrics/", 404),
        ("/../etc/passwd", 404),
        ("/%2e%2e/etc/passwd", 404),
        ("//etc/passwd", 404),
        ("/status.json%00", 404),
        ("/page.html", 404),
        ("/state/logins", 404),
        ("/favicon.ico", 404),
    ] {
        let answer = get(port, path);
        assert_eq!(answer.status, status, "{path}");
        assert!(!answer.body.contains("root:"), "{path}");
    }
    let say = |request: &str| {
        let request = request.replace("{}", "HTTP/1.1\r\nHost: localhost\r\n");
        exchange(port, request.as_bytes())
    };
    for (request, status) in [
        ("POST / {}Content-Length: 3\r\n\r\na=b", 405),
        ("DELETE /status.json {}\r\n", 405),
        ("CONNECT localhost:1 {}\r\n", 405),
        ("GET / {}Content-Length: 3\r\n\r\na=b", 413),
        ("GET / {}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / {}Host: localhost\r\n\r\n", 400),
        ("GET http://localhost/ {}\r\n", 400),
        ("GET / HTTP/3.7\r\n\r\n", 505),
        ("\r\n\r\nnonsense\r\n\r\n", 400),
    ] {
        assert_eq!(say(request).map(|a| a.status), Some(status), "{request}");
    }
    // Two requests in one: the second is not served.
    let twice = say("GET / {}\r\nGET /metrics {}\r\n").unwrap();
    assert_eq!(twice.body.matches("HTTP/1.1").count(), 0);
    let head = say("HEAD /status.json {}\r\n").unwrap();
    assert!(head.status == 200 && head.body.is_empty(), "{head:?}");
    assert_ne!(head.header("content-length"), Some("0"));
    serves(port, "all of these");
}

#[test]
fn every_answer_keeps_browsers_from_doing_anything_else_with_it() {
    let stage = Stage::new();
    let server = page(&stage, &[]);
    for path in ["/", "/status.json", "/status.txt", "/metrics", "/nothing"] {
        let answer = get(server.port, path);
        let header = |name: &str| answer.header(name).unwrap_or("").to_owned();
        assert_eq!(header("X-Content-Type-Options"), "nosniff", "{path}");
        assert_eq!(header("X-Frame-Options"), "DENY");
        assert_eq!(header("Referrer-Policy"), "no-referrer");
        assert_eq!(header("Cache-Control"), "no-store");
        assert_eq!(header("Cross-Origin-Resource-Policy"), "same-origin");
        assert_eq!(header("Access-Control-Allow-Origin"), "");
        let policy = header("Content-Security-Policy");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        assert_eq!(policy.contains("script-src 'sha256-"), path == "/");
    }
}

/// Goal: a page of another site cannot read this one, though its name is made to point here (DNS rebinding).
#[test]
fn a_name_that_is_not_this_machines_is_refused() {
    let stage = targeted();
    let server = page(&stage, &[]);
    let port = server.port;
    let ask = |host: &str| {
        let request = format!("GET /status.json HTTP/1.1\r\nHost: {host}\r\n\r\n");
        exchange(port, request.as_bytes()).unwrap()
    };
    for host in [
        "evil.example",
        "evil.example:7433",
        "localhost.evil.example",
        "10.0.0.1",
        "[::]",
        "0.0.0.0",
    ] {
        let answer = ask(host);
        assert_eq!(answer.status, 421, "{host}");
        assert!(!answer.body.contains("shop"), "{host}");
    }
    for host in ["localhost", "127.0.0.1:9", "[::1]:7433", "LOCALHOST:1"] {
        assert_eq!(ask(host).status, 200, "{host}");
    }
}

#[test]
fn noise_and_requests_beyond_the_limits_end_their_connection_alone() {
    let stage = Stage::new();
    let server = page(&stage, &[]);
    let port = server.port;
    let status = |bytes: &[u8]| exchange(port, bytes).map(|answer| answer.status);
    let host = "Host: localhost\r\n";
    let long = format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(9000));
    assert_eq!(status(long.as_bytes()), Some(431));
    let many = format!("GET / HTTP/1.1\r\n{host}{}\r\n", "a: b\r\n".repeat(70));
    assert_eq!(status(many.as_bytes()), Some(431));
    // The answer arrives although the client had not finished.
    let endless = format!("GET / HTTP/1.1\r\n{host}x: {}", "y".repeat(60_000));
    assert_eq!(status(endless.as_bytes()), Some(431));
    assert_eq!(
        status(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        Some(400),
        "TLS"
    );
    let mut random = Random(11);
    for _ in 0..50 {
        let len = random.below(400) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        bytes.extend(b"\r\n\r\n");
        assert_ne!(status(&bytes), Some(200));
    }
    serves(port, "noise");
}

/// Goal: a client that is slow to ask or to read takes nobody's place, and is ended.
#[test]
fn slow_and_silent_clients_are_ended_and_many_keep_nobody_out() {
    let stage = Stage::new();
    let server = page(&stage, &[]);
    let port = server.port;
    let begun = Instant::now();
    let silent = connect(port);
    let mut drops = connect(port);
    let dripping = std::thread::spawn(move || {
        let _sent = drops.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nx: ");
        while begun.elapsed() < Duration::from_secs(60) {
            if drops.write_all(b"y").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        begun.elapsed()
    });
    assert!(read(silent).is_none());
    let waited = begun.elapsed();
    assert!(
        waited >= Duration::from_secs(9) && waited < Duration::from_secs(40),
        "{waited:?}"
    );
    assert!(dripping.join().unwrap() < Duration::from_secs(40));
    // More than have room, all silent.
    let crowd: Vec<TcpStream> = (0..200).map(|_| connect(port)).collect();
    for _ in 0..5 {
        serves(port, "a crowd");
    }
    let threads = server.threads();
    let held = threads.iter().filter(|name| *name == "page").count();
    assert!(held <= 2 * 64 + 1, "{held} connections");
    drop(crowd);
    serves(port, "the crowd");
}

#[test]
fn many_pollers_cost_little_memory() {
    let stage = targeted();
    backup(&stage, "shop");
    let server = page(&stage, &["--refresh", "3600"]);
    let port = server.port;
    settled(port);
    let highest = || status_line(&server, "VmHWM:");
    let before = highest();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(get(port, "/status.json").status, 200);
                }
            });
        }
    });
    let grown = highest().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more for 1000 answers");
}

/// A value of the server's /proc/PID/status, in KiB.
fn status_line(server: &Server, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn other_machines_reach_the_page_only_with_a_certificate_and_a_login() {
    let stage = Stage::new();
    let refused = |args: &[&str]| {
        let mut all = vec!["serve", "--http"];
        all.extend(args);
        let output = stage.command(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        text(&output.stderr)
    };
    let open = refused(&["0.0.0.0:0"]);
    assert!(open.contains("there is no certificate"), "{open}");
    let open = refused(&["[::]:0"]);
    assert!(open.contains("there is no certificate"), "{open}");
    // A pair, as `serve` makes one; any server of this stage does.
    drop(stage.server(&[]));
    let pair = stage.path("state/serve.pem").display().to_string();
    let with = ["--certificate", &pair, "--key", &pair];
    let nobody = refused(&[&["0.0.0.0:0", "--logins", "no-logins"][..], &with].concat());
    assert!(nobody.contains("no client could log in"), "{nobody}");
    let half = refused(&["0.0.0.0:0", "--certificate", &pair]);
    assert!(half.contains("--key"), "{half}");
}

/// Goal: with encryption every answer needs a login, and guesses are slow, logged and reveal nothing.
#[test]
fn an_encrypted_page_is_for_those_who_log_in() {
    let stage = targeted();
    let server = page(&stage, &["--encrypt"]);
    let port = server.port;
    let certificate = stage.path("state/serve.crt");
    let url = |path: &str| format!("https://localhost:{port}{path}");
    let ask = |path: &str, login: &str| curl(&certificate, &["--user", login, &url(path)]);
    for path in ["/", "/status.json", "/status.txt", "/metrics", "/nothing"] {
        let (code, body) = curl(&certificate, &[&url(path)]);
        assert_eq!(code, "401", "{body}");
        assert!(
            !body.contains("shop") && !body.contains("<script"),
            "{body}"
        );
    }
    let right = format!("{USER}:{PASSWORD}");
    let (code, body) = ask("/status.json", &right);
    assert_eq!(code, "200", "{body}");
    assert!(body.contains("\"database\":\"shop\""));
    // A browser's page of another name has no login; this one asks by address.
    let (code, _) = curl(
        &certificate,
        &["--user", &right, &format!("https://127.0.0.1:{port}/")],
    );
    assert_eq!(code, "200");
    for (name, delay_s) in [(USER, 1), ("nobody", 2)] {
        let begun = Instant::now();
        let (code, body) = ask("/", &format!("{name}:wrong-secret"));
        assert_eq!(code, "401");
        assert!(!body.contains(name));
        assert!(begun.elapsed() >= Duration::from_secs(delay_s), "at once");
    }
    let begun = Instant::now();
    assert_eq!(ask("/", &right).0, "200");
    assert!(
        begun.elapsed() < Duration::from_millis(3500),
        "a right password waits for nobody"
    );
    // TLS 1.3, as browsers want it, and no plain text.
    let (code, _) = curl(&certificate, &["--tlsv1.3", "--user", &right, &url("/")]);
    assert_eq!(code, "200");
    let plain = exchange(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(plain.is_none(), "{plain:?}");
    let remove = stage.command(&["serve", "--remove-login", USER]).output();
    assert!(remove.unwrap().status.success());
    assert_eq!(ask("/", &right).0, "401", "a login that was removed");
    let (_, said) = server.stop();
    let said = said.join("\n");
    assert!(
        said.contains("Login failed for user 'nobody'. [CLIENT: 127.0.0.1]"),
        "{said}"
    );
    assert!(
        !said.contains("secret") && !said.contains("Harbour"),
        "{said}"
    );
}

/// Goal: both doors count the same failures, and the log of the server has them.
#[test]
fn both_doors_share_logins_and_their_failures() {
    let stage = Stage::new();
    let server = stage.server(&["--http", "127.0.0.1:0", "--encrypt"]);
    let port = server.page.unwrap();
    let certificate = stage.path("state/serve.crt");
    let ask = |login: &str| {
        curl(
            &certificate,
            &["--user", login, &format!("https://localhost:{port}/")],
        )
        .0
    };
    assert_eq!(ask(&format!("{USER}:wrong-secret")), "401");
    let begun = Instant::now();
    assert_eq!(ask(&format!("{USER}:wrong-secret")), "401");
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(ask(&format!("{USER}:{PASSWORD}")), "200");
    let log = std::fs::read_to_string(stage.path("state/errorlog")).unwrap();
    assert_eq!(
        log.matches("Login failed for user 'ada'. [CLIENT: 127.0.0.1]")
            .count(),
        2,
        "{log}"
    );
}

/// Goal: a page that stands alone serves no statement, and says of options that have no effect that they have none.
#[test]
fn a_page_that_is_served_alone_needs_no_login_and_takes_no_statement() {
    let stage = Stage::new();
    std::fs::remove_file(stage.path("state/logins")).unwrap();
    let mut command = stage.command(&["serve", "--http", "127.0.0.1:0", "--backup-directory", "."]);
    command
        .env_remove("LONGSHORE_CATALOG")
        .args(["--catalog", "none"]);
    let server = Server::start_page(&mut command);
    let answer: Answer = get(server.port, "/");
    assert_eq!(answer.status, 200);
    let mut raw = connect(server.port);
    raw.write_all(&[0x12, 1, 0, 47, 0, 0, 1, 0]).unwrap();
    raw.shutdown(Shutdown::Write).unwrap();
    let refused = read(raw);
    assert!(refused.is_none_or(|answer| answer.status == 400));
    let (code, _) = server.stop();
    assert_eq!(code, Some(130));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut noted = stage.command(&["serve", "--http", &address, "--directory", "."]);
    let said = text(&noted.output().unwrap().stderr);
    assert!(said.contains("--directory has no effect here"), "{said}");
    assert!(said.contains("name another with --http"), "{said}");
}
