//! Goal: a server is believed by its certificate alone, is reached through a proxy, and is told the bucket in the path or in
//! the host, as the settings say.
//! Method: versitygw over TLS, with an authority of the test's, behind a proxy of the test's that notes the hosts.
//! Not covered: other proxies, and stores that know one of both places alone.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::common::{self, content, text};
use crate::{BUCKET, Kind, Server, ended};

/// The server's name, which the proxy alone knows.
pub const DOMAIN: &str = "store.test";

fn openssl(dir: &Path, line: &str) {
    let output = Command::new("openssl")
        .args(line.split_whitespace())
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A directory with an authority, `ca.pem`, and a certificate of it for 127.0.0.1 and [`DOMAIN`], `s.pem`.
pub fn certificates() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(
        dir,
        &format!("req -x509 {key} -subj /CN=test-authority -days 2 -keyout ca.key -out ca.pem"),
    );
    openssl(
        dir,
        &format!("req {key} -subj /CN=server -keyout s.key -out s.csr"),
    );
    let names = format!("subjectAltName=IP:127.0.0.1,DNS:*.{DOMAIN}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(dir.join("names"), names).unwrap();
    openssl(
        dir,
        "x509 -req -in s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out s.pem",
    );
    root
}

/// A proxy that tunnels, and knows every name as this machine's: what it was asked to connect to.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || tunnel(client, &seen));
        }
    });
    (address, asked)
}

fn tunnel(client: TcpStream, seen: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(client.try_clone().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    let mut line = first.clone();
    while line.trim() != "" {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    seen.lock().unwrap().push(first.trim().to_owned());
    let (host, port) = target.rsplit_once(':').unwrap();
    let host = match host.ends_with(DOMAIN) {
        true => "127.0.0.1",
        false => host,
    };
    let server = TcpStream::connect((host, port.parse().unwrap())).unwrap();
    (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let back = std::thread::spawn(move || {
        // Either side may close first.
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut lines, &mut &server);
    let _ = server.shutdown(std::net::Shutdown::Write);
    back.join().unwrap();
}

#[test]
fn a_server_is_believed_by_its_certificate_alone_and_reached_through_the_proxy() {
    let root = certificates();
    let Some(server) = Server::start_in(root, Kind::Versitygw, Some(["s.pem", "s.key"])) else {
        return;
    };
    let tree = server.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), content(1, 3_000_000)).unwrap();
    let program = |line: &str| {
        let args: Vec<_> = line.split_whitespace().collect();
        let mut command = server.program(&args);
        command.env_remove("LONGSHORE_ALLOW_HTTP");
        command
    };
    let backup = format!("backup tree --to s3://{BUCKET}/a.bak --format");
    let said = text(&ended(4, &mut program(&backup)).stderr);
    assert!(
        said.contains("certificate") && said.contains("LONGSHORE_CA_FILE"),
        "{said}"
    );
    for variable in ["LONGSHORE_CA_FILE", "AWS_CA_BUNDLE"] {
        ended(0, program(&backup).env(variable, server.path("ca.pem")));
    }
    let ca = server.path("ca.pem");
    let mut command = program(&backup);
    command.env("AWS_CA_BUNDLE", server.path("s.key"));
    ended(0, command.env("LONGSHORE_CA_FILE", &ca));
    let other = server.endpoint.replace("127.0.0.1", "localhost");
    let mut command = program(&backup);
    command
        .env("LONGSHORE_CA_FILE", &ca)
        .env("AWS_ENDPOINT_URL", other);
    let said = text(&ended(4, &mut command).stderr);
    assert!(
        said.contains("certificate") && said.contains("localhost"),
        "{said}"
    );

    let (address, asked) = proxy();
    let restore = format!("restore s3://{BUCKET}/a.bak --to restored");
    let mut command = program(&restore);
    command
        .env("LONGSHORE_CA_FILE", &ca)
        .env("HTTPS_PROXY", &address);
    ended(0, &mut command);
    assert!(common::read(&server.path("restored")) == common::read(&tree));
    let host = server.endpoint.trim_start_matches("https://");
    let expected = format!("CONNECT {host} HTTP/1.1");
    let through = asked.lock().unwrap().clone();
    assert!(
        !through.is_empty() && through.iter().all(|line| *line == expected),
        "{through:?}"
    );
    let mut command = program(&format!("verify s3://{BUCKET}/a.bak"));
    command
        .env("LONGSHORE_CA_FILE", &ca)
        .env("HTTPS_PROXY", &address);
    ended(0, command.env("NO_PROXY", "127.0.0.1"));
    assert_eq!(asked.lock().unwrap().len(), through.len());
}

#[test]
fn a_bucket_is_named_in_the_host_where_the_settings_say_so() {
    let root = certificates();
    let Some(server) = Server::start_in(root, Kind::Versitygw, Some(["s.pem", "s.key"])) else {
        return;
    };
    let tree = server.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), content(1, 3_000_000)).unwrap();
    let (address, asked) = proxy();
    let endpoint = format!("https://{DOMAIN}:{}", server.port);
    let config = server.path("config.toml");
    let target = format!(
        "[target.vault]\nbuckets = ['s3://{BUCKET}/t']\nendpoint = '{endpoint}'\naddressing_style = 'virtual'\n\
         [database.tree]\nurl = 'files:{}'\ntarget = 'vault'\n[retention.one]\nkeep_full = 1\n\
         [defaults]\nretention = 'one'\n",
        tree.display()
    );
    std::fs::write(&config, target).unwrap();
    let run = |line: &str, variables: &[(&str, &str)]| {
        let args: Vec<_> = line.split_whitespace().collect();
        let mut command = server.program(&args);
        command
            .env_remove("LONGSHORE_ALLOW_HTTP")
            .env("LONGSHORE_CA_FILE", server.path("ca.pem"))
            .env("HTTPS_PROXY", &address)
            .envs(variables.iter().copied());
        command
    };
    let hosts = || {
        let mut hosts = std::mem::take(&mut *asked.lock().unwrap());
        hosts.sort();
        hosts.dedup();
        hosts
    };
    let in_host = [format!(
        "CONNECT {BUCKET}.{DOMAIN}:{} HTTP/1.1",
        server.port
    )];
    let style = "LONGSHORE_S3_ADDRESSING_STYLE";
    let by_variable = [("AWS_ENDPOINT_URL", endpoint.as_str()), (style, "virtual")];
    let backup = format!("backup tree --to s3://{BUCKET}/v.bak");
    ended(0, &mut run(&backup, &by_variable));
    assert_eq!(hosts(), in_host);
    assert!(server.has("v.bak"));
    // The same object by its path, and by the certificate's address.
    ended(0, &mut run(&format!("verify s3://{BUCKET}/v.bak"), &[]));
    assert_eq!(
        hosts(),
        [format!("CONNECT 127.0.0.1:{} HTTP/1.1", server.port)]
    );
    let restore = format!("restore s3://{BUCKET}/v.bak --to restored");
    ended(0, &mut run(&restore, &by_variable));
    assert!(common::read(&server.path("restored")) == common::read(&tree));

    // A target's own, with everything that lists, writes small objects and removes.
    let config = config.to_str().unwrap();
    hosts();
    for line in ["backup tree", "backup tree", "info", "check", "expire tree"] {
        ended(0, &mut run(&format!("{line} --config {config}"), &[]));
    }
    assert_eq!(hosts(), in_host);
    let refused = run(&backup, &[(style, "virtual")]).output().unwrap();
    let refused = text(&refused.stderr);
    assert!(
        refused.contains(style) && refused.contains("path"),
        "{refused}"
    );
}
