//! Goal: the program backs up to object stores and restores from them.
//! Method: real servers, s3proxy, versitygw and Azurite, which `scripts/setup.sh` puts into .work/buckets. Each test
//! runs against all servers that have what it needs.
//! Not covered: AWS, Azure and Google themselves; no server of this machine speaks Google's protocol.

mod between;
#[path = "../common/mod.rs"]
mod common;
mod costs;
mod credentials;
mod keys;
mod left;
mod locked;
mod servers;
mod three;
mod ways;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use between::{Between, Control};
use common::store::{ACCOUNT, ACCOUNT_KEY, Blobs, SIGNATURE, azurite, free_port, tool};
use common::{Guarded, answer, content, longshore, text, wait, wait_for_handler};

const BUCKET: &str = "nightly";
const ID: &str = "test-id";
const SECRET: &str = "test-verysecret";
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with an empty bucket.
struct Server {
    kind: Kind,
    endpoint: String,
    port: u16,
    /// Buckets are directories in it, with each object as a file.
    root: tempfile::TempDir,
    _process: Guarded,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    S3proxy,
    Versitygw,
    Azurite,
}

impl Server {
    fn start(kind: Kind) -> Option<Server> {
        Server::start_in(tempfile::tempdir().unwrap(), kind, None)
    }

    /// `tls`: the files of a certificate and its key.
    fn start_in(root: tempfile::TempDir, kind: Kind, tls: Option<[&str; 2]>) -> Option<Server> {
        let store = root.path().join("store");
        std::fs::create_dir_all(store.join(BUCKET)).unwrap();
        let port = free_port();
        let mut command = match kind {
            Kind::S3proxy => {
                let jar = tool("buckets/s3proxy-4.1.0-jar-with-dependencies.jar")?;
                let properties = root.path().join("properties");
                let lines = format!(
                    "s3proxy.endpoint=http://127.0.0.1:{port}\ns3proxy.authorization=aws-v2-or-v4\n\
                     s3proxy.identity={ID}\ns3proxy.credential={SECRET}\njclouds.provider=filesystem-nio2\n\
                     jclouds.identity=x\njclouds.credential=x\njclouds.filesystem.basedir={}\n",
                    store.display()
                );
                std::fs::write(&properties, lines).unwrap();
                let mut command = Command::new("java");
                // A server that lives for seconds never gets back what Java's second compiler costs.
                command
                    .args([
                        "-Xmx512m",
                        "-XX:TieredStopAtLevel=1",
                        "-XX:+UseSerialGC",
                        "-jar",
                    ])
                    .arg(jar)
                    .arg("--properties")
                    .arg(properties);
                command
            }
            Kind::Versitygw => {
                let mut command = Command::new(tool("buckets/versitygw")?);
                command
                    .env("ROOT_ACCESS_KEY", ID)
                    .env("ROOT_SECRET_KEY", SECRET)
                    .args(["--port", &format!("127.0.0.1:{port}")]);
                if let Some([certificate, key]) = tls {
                    let path = |name| root.path().join(name);
                    command.arg("--cert").arg(path(certificate));
                    command.arg("--key").arg(path(key));
                    // Requests to this name have the bucket before it, those to an address in the path.
                    command.args(["--virtual-domain", ways::DOMAIN]);
                }
                let versions = root.path().join("versions");
                std::fs::create_dir_all(&versions).unwrap();
                command.args(["posix", "--versioning-dir"]).arg(versions);
                command.arg(&store);
                command
            }
            Kind::Azurite => {
                let mut command = azurite(port)?;
                command.current_dir(root.path());
                command
            }
        };
        let log = std::fs::File::create(root.path().join("log")).unwrap();
        let process = command
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server {
            kind,
            endpoint: match (tls, kind) {
                (Some(_), _) => format!("https://127.0.0.1:{port}"),
                (None, Kind::Azurite) => Blobs { port }.endpoint(),
                (None, _) => format!("http://127.0.0.1:{port}"),
            },
            port,
            root,
            _process: Guarded(process),
        };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = std::fs::read_to_string(server.root.path().join("log")).unwrap();
            assert!(Instant::now() < deadline, "{kind:?} does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        if kind == Kind::Azurite {
            Blobs { port }.make_container(BUCKET);
        }
        Some(server)
    }

    /// The program as an operator has it, with this server's settings.
    fn program(&self, args: &[&str]) -> Command {
        let mut command = longshore(args);
        for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"] {
            command.env_remove(name);
        }
        for name in ["AWS_CA_BUNDLE", "LONGSHORE_CA_FILE"] {
            command.env_remove(name);
        }
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command
            .current_dir(self.root.path())
            .env("HOME", self.root.path())
            .env(self.endpoint_variable(), &self.endpoint)
            .env("LONGSHORE_ALLOW_HTTP", "1");
        match self.kind {
            Kind::S3proxy | Kind::Versitygw => command
                .env("AWS_EC2_METADATA_DISABLED", "true")
                .env("AWS_REGION", "us-east-1")
                .env("AWS_ACCESS_KEY_ID", ID)
                .env("AWS_SECRET_ACCESS_KEY", SECRET),
            Kind::Azurite => command
                .env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
                .env("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY),
        };
        command
    }

    fn endpoint_variable(&self) -> &'static str {
        match self.kind {
            Kind::S3proxy | Kind::Versitygw => "AWS_ENDPOINT_URL",
            Kind::Azurite => "AZURE_STORAGE_ENDPOINT",
        }
    }

    /// How the addresses of its objects begin.
    fn bucket(&self) -> String {
        match self.kind {
            Kind::S3proxy | Kind::Versitygw => format!("s3://{BUCKET}"),
            Kind::Azurite => format!("az://{BUCKET}"),
        }
    }

    /// Its host, as SQL Server's addresses begin with it; `None` if it does not speak S3.
    fn s3_host(&self) -> Option<String> {
        let is_s3 = matches!(self.kind, Kind::S3proxy | Kind::Versitygw);
        is_s3.then(|| format!("127.0.0.1:{}", self.port))
    }

    /// `--to` or nothing before each of three objects.
    fn stripes(&self, name: &str, option: &str) -> String {
        let bucket = self.bucket();
        let one = |i| format!(" {option} {bucket}/dir/{name}-{i}.bak");
        (1..=3).map(one).collect()
    }

    fn run(&self, expected: i32, line: &str) -> Output {
        let args: Vec<_> = line.split_whitespace().collect();
        ended(expected, &mut self.program(&args))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Whether an object is there, by another way than Longshore's.
    fn has(&self, key: &str) -> bool {
        match self.kind {
            Kind::S3proxy | Kind::Versitygw => self.path("store").join(BUCKET).join(key).exists(),
            Kind::Azurite => Blobs { port: self.port }.exists(&format!("{BUCKET}/{key}")),
        }
    }

    fn remove(&self, key: &str) {
        match self.kind {
            Kind::S3proxy | Kind::Versitygw => {
                std::fs::remove_file(self.path("store").join(BUCKET).join(key)).unwrap();
            }
            Kind::Azurite => Blobs { port: self.port }.remove(&format!("{BUCKET}/{key}")),
        }
    }
}

fn ended(expected: i32, command: &mut Command) -> Output {
    let output = command.output().unwrap();
    longshore_kit::schema::check_if_answer(&output.stdout);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{command:?}\n{out}{err}"
    );
    let said = out + &err;
    assert!(!said.contains(SECRET) && !said.contains(ACCOUNT_KEY));
    assert!(!said.contains("sig="), "{said}");
    output
}

fn on_each_server(test: fn(&Server)) {
    on_servers(&[Kind::S3proxy, Kind::Versitygw, Kind::Azurite], test);
}

fn on_servers(kinds: &[Kind], test: fn(&Server)) {
    for kind in kinds {
        if let Some(server) = Server::start(*kind) {
            test(&server);
        }
    }
}

#[test]
fn of_two_backups_to_the_same_objects_at_one_time_one_succeeds() {
    on_each_server(races);
}

#[test]
fn an_interrupt_while_the_store_is_silent_says_which_stripes_are_complete() {
    if let Some(server) = Server::start(Kind::Versitygw) {
        silence(&server);
    }
}

#[test]
fn connections_that_break_while_parts_are_sent_are_survived() {
    on_each_server(breaks);
}

#[test]
fn a_database_goes_to_three_objects_and_comes_back() {
    on_each_server(database);
}

#[test]
fn a_tree_comes_back_whole_and_in_part() {
    on_each_server(tree);
}

#[test]
fn a_refusal_names_the_object_and_the_next_step() {
    on_servers(&[Kind::S3proxy, Kind::Versitygw], refusals);
}

#[test]
fn a_refusal_of_azure_names_the_object_and_the_next_step() {
    on_servers(&[Kind::Azurite], azure_refusals);
}

#[test]
fn a_shared_access_signature_does_what_the_accounts_key_does() {
    on_servers(&[Kind::Azurite], signature);
}

#[test]
fn the_history_is_copied_between_directories_and_stores() {
    copies();
}

#[test]
fn a_backup_that_is_interrupted_leaves_nothing() {
    on_each_server(interruptions);
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_an_error() {
    on_each_server(replacement);
}

fn database(server: &Server) {
    let database = server.path("app.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute_batch("create table t(a, b); begin")
        .unwrap();
    for i in 0..2000 {
        connection
            .execute(
                "insert into t values (?, ?)",
                (i as i64, content(i, 20_000)),
            )
            .unwrap();
    }
    connection.execute_batch("commit").unwrap();
    drop(connection);
    let to = server.stripes("app", "--to");
    let from = server.stripes("app", "");
    let made = server.run(0, &format!("backup app.db{to} --json --algorithm none"));
    assert!(answer(&made)["stored_bytes"].as_u64().unwrap() > 40_000_000);
    for i in 1..=3 {
        assert!(server.has(&format!("dir/app-{i}.bak")));
    }
    let listed = server.run(0, &format!("list{from}"));
    assert!(text(&listed.stdout).contains("app"));
    server.run(0, &format!("verify{from}"));
    server.run(0, &format!("restore{from} --to restored"));
    assert!(
        std::fs::read(server.path("restored/app.db")).unwrap() == std::fs::read(&database).unwrap()
    );
    // Completed stripes are kept, and two of three stripes are no set.
    let refused = server.run(4, &format!("backup app.db{to}"));
    assert!(text(&refused.stderr).contains("already holds a media set"));
    let two = from.rsplit_once(' ').unwrap().0;
    let refused = server.run(4, &format!("verify {two}"));
    assert!(text(&refused.stderr).contains("family"));
    let refused = server.run(4, &format!("backup app.db{to} --append --algorithm none"));
    assert!(text(&refused.stderr).contains("cannot be appended to"));
    server.run(0, &format!("backup app.db{to} --format --verify"));
    let sets = answer(&server.run(0, &format!("list{from} --json")));
    assert!(sets.to_string().len() > 100);
}

fn tree(server: &Server) {
    let tree = server.path("tree");
    for i in 0..40u64 {
        let path = tree.join(format!("d{}", i % 4)).join(format!("f{i}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(i, 1_000_000 + i as usize * 1000)).unwrap();
    }
    let (to, from) = (server.stripes("tree", "--to"), server.stripes("tree", ""));
    server.run(0, &format!("backup tree{to}"));
    server.run(0, &format!("restore{from} --to whole"));
    assert!(common::read(&server.path("whole")) == common::read(&tree));
    server.run(
        0,
        &format!("restore{from} --to part --only d2/f6 --only d3"),
    );
    let part = common::read(&server.path("part"));
    assert_eq!(part.len(), 11);
    for (name, bytes) in part {
        assert!(
            bytes == std::fs::read(tree.join(&name)).unwrap(),
            "{}",
            name.display()
        );
    }
}

fn refusals(server: &Server) {
    std::fs::create_dir(server.path("tree")).unwrap();
    let line = format!("backup tree --to s3://{BUCKET}/a.bak");
    let args: Vec<_> = line.split(' ').collect();
    let refused = |change: &dyn Fn(&mut Command), words: &[&str]| {
        let mut command = server.program(&args);
        change(&mut command);
        let said = text(&ended(4, &mut command).stderr);
        for word in words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
    };
    refused(
        &|c| {
            c.env("AWS_SECRET_ACCESS_KEY", "wrong");
        },
        &["s3://nightly/a.bak", "HTTP 403"],
    );
    refused(
        &|c| {
            c.env_remove("AWS_ACCESS_KEY_ID")
                .env_remove("AWS_SECRET_ACCESS_KEY");
        },
        &[
            "s3://nightly/a.bak",
            "no usable credentials",
            "AWS_ACCESS_KEY_ID",
        ],
    );
    refused(
        &|c| {
            c.env_remove("LONGSHORE_ALLOW_HTTP");
        },
        &["plain http", "LONGSHORE_ALLOW_HTTP"],
    );
    refused(
        &|c| {
            c.env("AWS_PROFILE", "nobody");
        },
        &["profile", "nobody"],
    );
    let said = server.run(4, "backup tree --to s3://no-such-bucket/a.bak");
    let said = text(&said.stderr);
    assert!(said.contains("s3://no-such-bucket/a.bak"), "{said}");
    assert!(said.contains("404"), "{said}");
    let said = server.run(4, &format!("verify s3://{BUCKET}/none.bak"));
    assert!(text(&said.stderr).contains("it does not exist"));
    for (name, value) in [
        ("AWS_REGION", "us east"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1?verysecret"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1\n"),
        ("AWS_SECRET_ACCESS_KEY", "very secret"),
        ("HTTP_PROXY", "socks://u:verysecret@h"),
        ("NO_PROXY", "a b"),
        ("LONGSHORE_PART_MIB", "16\n"),
    ] {
        let mut command = server.program(&args);
        let said = text(&ended(4, command.env(name, value)).stderr);
        assert!(said.contains(name) && !said.contains("secret@"), "{said}");
        let is_odd = said.contains("verysecret") || said.contains("panicked");
        assert!(!is_odd, "{said}");
    }
    let said = server.run(4, "backup tree --to https://abc/a.bak");
    assert!(text(&said.stderr).contains("only s3://, az:// and gs:// addresses"));
    // Credentials of a program, which a profile names.
    let script = server.path("give");
    let json = format!(r#"{{"Version":1,"AccessKeyId":"{ID}","SecretAccessKey":"{SECRET}"}}"#);
    std::fs::write(&script, format!("#!/bin/sh\necho '{json}'\n")).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(server.path(".aws")).unwrap();
    let config = format!(
        "[profile tool]\ncredential_process = {}\n",
        script.display()
    );
    std::fs::write(server.path(".aws/config"), config).unwrap();
    ended(0, server.program(&args).env("AWS_PROFILE", "tool"));
}

fn azure_refusals(server: &Server) {
    std::fs::create_dir(server.path("tree")).unwrap();
    let object = format!("az://{BUCKET}/a.bak");
    let args = ["backup", "tree", "--to", &object];
    for (changes, words) in [
        (
            &[("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")][..],
            &[object.as_str(), "HTTP 403", "AuthorizationFailure"][..],
        ),
        (
            &[("AZURE_STORAGE_ACCOUNT_KEY", "verysecret!")],
            &[
                &object,
                "no usable credentials",
                "AZURE_STORAGE_ACCOUNT_KEY",
            ],
        ),
        (
            &[("AZURE_STORAGE_ACCOUNT_NAME", "")],
            &["AZURE_STORAGE_ACCOUNT_NAME names no storage account"],
        ),
        (
            &[("LONGSHORE_ALLOW_HTTP", "0")],
            &[
                "AZURE_STORAGE_ENDPOINT is plain http",
                "LONGSHORE_ALLOW_HTTP",
            ],
        ),
        (
            &[
                ("AZURE_STORAGE_ACCOUNT_KEY", ""),
                ("AZURE_CLIENT_ID", "c"),
                ("AZURE_CLIENT_SECRET", "verysecret"),
            ],
            &["AZURE_TENANT_ID is not"],
        ),
    ] {
        let mut command = server.program(&args);
        let said = text(&ended(4, command.envs(changes.iter().copied())).stderr);
        for word in words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        assert!(!said.contains("verysecret"), "{said}");
    }
    let said = text(
        &server
            .run(4, "backup tree --to az://no-such-container/a.bak")
            .stderr,
    );
    assert!(
        said.contains("does not exist") && said.contains("az storage container"),
        "{said}"
    );
    let said = text(
        &server
            .run(4, &format!("verify az://{BUCKET}/none.bak"))
            .stderr,
    );
    assert!(said.contains("it does not exist"), "{said}");
}

/// A signature is part of each address that is asked for; `ended` looks for it in all that is said.
fn signature(server: &Server) {
    std::fs::create_dir(server.path("tree")).unwrap();
    std::fs::write(server.path("tree/file"), content(1, 300_000)).unwrap();
    let run = |expected: i32, line: &str, signature: &str| {
        let args: Vec<_> = line.split_whitespace().collect();
        let mut command = server.program(&args);
        command
            .env_remove("AZURE_STORAGE_ACCOUNT_KEY")
            .env("AZURE_STORAGE_SAS_TOKEN", signature)
            .env("RUST_LOG", "debug");
        text(&ended(expected, &mut command).stderr)
    };
    let object = format!("az://{BUCKET}/dir/s.bak");
    run(0, &format!("backup tree --to {object} --verify"), SIGNATURE);
    run(0, &format!("restore {object} --to back"), SIGNATURE);
    assert!(common::read(&server.path("back")) == common::read(&server.path("tree")));
    let wrong = SIGNATURE.replace("sp=rwdlac", "sp=rwdlacup");
    let said = run(4, &format!("verify {object}"), &wrong);
    assert!(
        said.contains("HTTP 403") && said.contains(&object),
        "{said}"
    );
    // A server that is away is told of without it.
    let mut command = server.program(&["verify", &object]);
    command
        .env_remove("AZURE_STORAGE_ACCOUNT_KEY")
        .env("AZURE_STORAGE_SAS_TOKEN", SIGNATURE)
        .env("AZURE_STORAGE_ENDPOINT", "https://127.0.0.1:1");
    let child = command
        .env("RUST_LOG", "debug")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(5));
    // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let said = text(&child.wait_with_output().unwrap().stderr);
    assert!(
        said.contains("does not answer") && !said.contains("sig="),
        "{said}"
    );
}

fn interruptions(server: &Server) {
    let tree = server.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for i in 0..6 {
        std::fs::write(tree.join(i.to_string()), content(i, 10 << 20)).unwrap();
    }
    let to = server.stripes("cut", "--to");
    let line = format!("backup tree{to} --algorithm none --max-rate 8M");
    let args: Vec<_> = line.split_whitespace().collect();
    for (signal, code) in [(libc::SIGINT, Some(130)), (libc::SIGKILL, None)] {
        let mut command = server.program(&args);
        command.env("LONGSHORE_PART_MIB", "5");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        if code.is_some() {
            wait_for_handler(&child, signal);
        }
        std::thread::sleep(Duration::from_secs(3));
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(wait(&mut child, PATIENCE, &line).code(), code);
        for i in 1..=3 {
            assert!(!server.has(&format!("dir/cut-{i}.bak")));
        }
        let said = server.run(4, &format!("verify{}", server.stripes("cut", "")));
        assert!(text(&said.stderr).contains("it does not exist"));
        left_at_an_address(server, signal == libc::SIGKILL);
    }
    // An interrupted one is no obstacle.
    server.run(0, &format!("backup tree{to}"));
    server.run(0, &format!("verify{}", server.stripes("cut", "")));
}

/// What `longshore uploads` finds of a killed backup that no target has, which is young: it is shown, and not aborted.
fn left_at_an_address(server: &Server, was_killed: bool) {
    let line = |key: &str| format!("uploads {}/{key} --abort --idle 24 --json", server.bucket());
    if server.kind == Kind::Azurite {
        let said = server.run(4, &line("dir"));
        let told = [text(&said.stderr), text(&said.stdout)].concat();
        assert!(told.contains("Azure has no uploads"), "{told}");
        return;
    }
    for _ in 0..2 {
        let found = answer(&server.run(0, &line("dir")));
        let found = found["uploads"].as_array().unwrap();
        assert_eq!(found.len(), if was_killed { 3 } else { 0 }, "{found:?}");
        for upload in found {
            assert_eq!(upload["fate"], "protected", "{upload}");
            assert!(upload["bytes"].as_u64() >= Some(5 << 20), "{upload}");
        }
    }
    let one = answer(&server.run(0, &line("dir/cut-2.bak")));
    let one = one["uploads"].as_array().unwrap();
    assert_eq!(one.len(), usize::from(was_killed));
    let none = answer(&server.run(0, &line("dir/cut")));
    assert_eq!(none["uploads"], serde_json::json!([]));
}

fn replacement(server: &Server) {
    let tree = server.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for i in 0..6 {
        std::fs::write(tree.join(i.to_string()), content(i, 10 << 20)).unwrap();
    }
    let bucket = server.bucket();
    let line = format!("backup tree --to {bucket}/r.bak --algorithm none --format");
    server.run(0, &line);
    let verify = format!("verify {bucket}/r.bak --max-rate 2M");
    let args: Vec<_> = verify.split(' ').collect();
    let mut command = server.program(&args);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    server.run(0, &line);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    // Some of the set was verified, so it is a finding.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("was replaced while it was in use"), "{said}");
}

/// Two sources to the same three objects. Each backup waits for the other before its first completion; in every other
/// round, the completion that came second waits until the other backup has ended. s3proxy looks at
/// the condition and replaces the object in two steps, so both can pass: then the last looks notice it, and none succeeds.
fn races(server: &Server) {
    for (i, len) in [(0u64, 3 << 20), (1, 4 << 20)] {
        let tree = server.path(&format!("tree-{i}"));
        std::fs::create_dir(&tree).unwrap();
        for j in 0..3 {
            std::fs::write(tree.join(j.to_string()), content(10 * i + j, len)).unwrap();
        }
    }
    let between = Between::start(server);
    let mut wins = [0, 0];
    for round in 0..6 {
        // The first finds nothing, the others what stands.
        let option = if round == 0 { "" } else { " --format" };
        between.control.change(|p| {
            (p.completions, p.firsts, p.meet) = (0, 0, 2);
            p.holds_second = round % 2 == 1;
        });
        let start = |i: usize| -> Child {
            let line = format!(
                "backup tree-{i}{}{option} --algorithm none --json",
                server.stripes("race", "--to")
            );
            let args: Vec<_> = line.split_whitespace().collect();
            let mut command = server.program(&args);
            command
                .env(server.endpoint_variable(), &between.endpoint)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let mut started = [start(0), start(1)];
        let deadline = Instant::now() + PATIENCE;
        while !started.iter_mut().any(|c| c.try_wait().unwrap().is_some()) {
            assert!(Instant::now() < deadline, "both hang");
            std::thread::sleep(Duration::from_millis(5));
        }
        between.control.change(|p| p.holds_second = false);
        let ended = started.map(|child| child.wait_with_output().unwrap());
        let said = ended.each_ref().map(|o| text(&o.stdout));
        let won: Vec<_> = (0..2)
            .filter(|i| ended[*i].status.code() == Some(0))
            .collect();
        assert!(won.len() < 2, "round {round}: {said:?}");
        for loser in (0..2).filter(|i| !won.contains(i)) {
            assert_eq!(ended[loser].status.code(), Some(4), "{}", said[loser]);
            assert!(said[loser].contains("another writer"), "{}", said[loser]);
        }
        let Some(&winner) = won.first() else {
            let is_allowed = server.kind == Kind::S3proxy && round % 2 == 0;
            assert!(is_allowed, "round {round}: {said:?}");
            continue;
        };
        wins[winner] += 1;
        server.run(0, &format!("verify{}", server.stripes("race", "")));
        let to = format!("back-{round}");
        server.run(
            0,
            &format!("restore{} --to {to}", server.stripes("race", "")),
        );
        assert!(
            common::read(&server.path(&to))
                == common::read(&server.path(&format!("tree-{winner}")))
        );
    }
    eprintln!("{:?}: {wins:?} of 6 rounds were won", server.kind);
}

fn silence(server: &Server) {
    let tree = server.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("a"), content(1, 3 << 20)).unwrap();
    for signals in [1, 2] {
        let between = Between::start(server);
        between.control.change(|p| p.silent_from = Some(2));
        let name = format!("silent-{signals}");
        let line = format!("backup tree{} --json", server.stripes(&name, "--to"));
        let args: Vec<_> = line.split_whitespace().collect();
        let mut command = server.program(&args);
        command
            .env(server.endpoint_variable(), &between.endpoint)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        between.control.wait_until(Control::is_silent);
        for _ in 0..signals {
            // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still
            // its own.
            assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
            // Two signals at once may arrive as one.
            std::thread::sleep(Duration::from_millis(500));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let one = |i: usize| format!("s3://{BUCKET}/dir/{name}-{i}.bak");
        if signals == 2 {
            let said = text(&output.stderr);
            assert!(said.contains(&format!("complete: {}\n", one(1))), "{said}");
            assert!(
                said.contains(&format!("left: {} {}", one(2), one(3))),
                "{said}"
            );
            assert!(said.contains("longshore verify"), "{said}");
        } else {
            let said = answer(&output)["error"].clone();
            let left = said["left"].as_array().unwrap();
            for (i, state) in [(1, "complete"), (2, "unknown"), (3, "absent")] {
                assert_eq!(left[i - 1]["stripe"], one(i), "{said}");
                assert_eq!(left[i - 1]["state"], state, "{said}");
                assert_eq!(left[i - 1]["upload_id"].is_string(), i > 1, "{said}");
            }
            let abort = left[2]["abort"].as_str().unwrap();
            assert!(
                abort.starts_with("aws s3api abort-multipart-upload"),
                "{abort}"
            );
            assert!(said["hint"].as_str().unwrap().contains("longshore verify"));
        }
        assert!(server.has(&format!("dir/{name}-1.bak")));
        assert!(!server.has(&format!("dir/{name}-3.bak")));
    }
}

fn breaks(server: &Server) {
    let tree = server.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for i in 0..4 {
        std::fs::write(tree.join(i.to_string()), content(i, 8 << 20)).unwrap();
    }
    let between = Between::start(server);
    between.control.change(|p| p.cuts = 6);
    let line = format!(
        "backup tree{} --algorithm none",
        server.stripes("broken", "--to")
    );
    let args: Vec<_> = line.split_whitespace().collect();
    ended(
        0,
        server
            .program(&args)
            .env(server.endpoint_variable(), &between.endpoint)
            .env("LONGSHORE_PART_MIB", "5"),
    );
    between.control.wait_until(|p| p.cuts == 0);
    server.run(0, &format!("verify{}", server.stripes("broken", "")));
}

/// A database with a target in the bucket: every command that works on directories.
fn target(server: &Server) {
    let database = server.path("app.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute_batch("create table t(a, b); insert into t values (1, 'first')")
        .unwrap();
    let configuration = format!(
        "[database.app]\nurl = \"sqlite:{path}\"\ntarget = \"off\"\nretention = \"few\"\n\
         [retention.few]\nkeep_full = 2\n\
         [target.off]\nbuckets = [\"{0}/site one\", \"{0}/site one\", \"{0}/two\"]\n",
        server.bucket(),
        path = database.display()
    );
    std::fs::write(server.path("longshore.toml"), configuration).unwrap();
    let run = |code, line: &str| server.run(code, &format!("{line} --config longshore.toml"));
    let said = text(&run(0, "config check").stdout);
    assert!(said.contains("3 stripes"), "{said}");
    // Nothing is there yet.
    run(1, "check app");
    run(0, "info app");
    let mut labels = Vec::new();
    for n in 2..=4 {
        run(0, "backup app --verify");
        // A set that cannot be read has only its label to be ordered by, which counts seconds.
        std::thread::sleep(Duration::from_millis(1100));
        let info = answer(&run(0, "info app --json"));
        let backups = info["databases"][0]["backups"].as_array().unwrap().clone();
        let newest = backups.last().unwrap();
        assert_eq!(newest["state"], "complete");
        assert_eq!(newest["restorable"], true);
        labels.push(newest["label"].as_str().unwrap().to_owned());
        connection
            .execute("insert into t values (?, 'more')", [n])
            .unwrap();
    }
    labels.dedup();
    assert_eq!(labels.len(), 3);
    let object = |label: &str, n: u16| {
        let prefix = if n == 3 { "two" } else { "site one" };
        format!("{prefix}/app/{label}/family-{n}.bak")
    };
    for n in 1..=3 {
        assert!(server.has(&object(&labels[0], n)));
    }
    let said = text(&run(0, "check app").stdout);
    assert!(said.contains("does not replace what it has"), "{said}");
    assert!(said.contains("3 prefixes in buckets"), "{said}");
    let said = text(&run(0, "list --target off").stdout);
    assert!(labels.iter().all(|label| said.contains(label)), "{said}");
    let known = "--catalog known.db";
    let said = text(&run(0, &format!("catalog rebuild --target off {known}")).stdout);
    assert!(said.contains("3 backup sets added"), "{said}");
    let history = answer(&run(0, &format!("history --json {known}")));
    let newest = &history["rows"][0];
    assert_eq!(newest["file_count"], 1);
    let devices = newest["devices"].to_string();
    assert!(devices.contains(&labels[2]), "{devices}");
    run(0, "verify --database app");
    std::fs::create_dir(server.path("scratch")).unwrap();
    run(0, "drill app --work scratch");
    remembered(server, &labels);
    run(
        0,
        &format!("restore --database app --label {} --to first", labels[0]),
    );
    let restored = rusqlite::Connection::open(server.path("first/app.db")).unwrap();
    let rows = |c: &rusqlite::Connection| -> i64 {
        c.query_row("select count(*) from t", [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(rows(&restored), 1);
    run(0, "restore --database app --to last");
    let restored = rusqlite::Connection::open(server.path("last/app.db")).unwrap();
    assert_eq!(rows(&restored), 3);
    let dry = answer(&run(0, "expire app --dry-run --json"));
    assert_eq!(dry["databases"][0]["removed_count"], 1);
    assert!(server.has(&object(&labels[0], 3)));
    let expired = answer(&run(0, "expire app --json"));
    assert_eq!(expired["databases"][0]["removed_count"], 1);
    // The store answered what was asked of it.
    assert_eq!(expired["databases"][0]["uploads_aborted"], 0);
    let kept = &expired["databases"][0]["uploads_kept_because"];
    assert!(kept.is_null(), "{kept}");
    let metrics = text(&run(0, "metrics app").stdout);
    let left =
        metrics.contains("longshore_uploads_unfinished{database=\"app\",target=\"off\"} 0\n");
    assert!(left, "{metrics}");
    for n in 1..=3 {
        assert!(!server.has(&object(&labels[0], n)));
        assert!(server.has(&object(&labels[1], n)));
    }
    assert_eq!(
        answer(&run(0, "expire app --json"))["databases"][0]["removed_count"],
        0
    );
    // A set that lost a stripe is told by name, and the one before it is named.
    server.remove(&object(&labels[2], 3));
    let said = text(&run(4, "restore --database app --to none").stderr);
    let lost = format!("{}/two/app/{}/family-3.bak", server.bucket(), labels[2]);
    assert!(said.contains(&lost) && said.contains(&labels[1]), "{said}");
    run(1, "check app");
    let said = text(&run(0, "info app --verbose").stderr);
    assert!(said.contains("requests to object stores"), "{said}");
}

/// Results are objects next to the backups: each backup is read once, and what was written again is another backup.
fn remembered(server: &Server, labels: &[String]) {
    let run = |code, line: &str| server.run(code, &format!("{line} --config longshore.toml"));
    let results = || answer(&run(0, "info app --json"))["databases"][0]["results"].clone();
    let told = results();
    assert_eq!(told["unverified"], 0, "each was made with --verify: {told}");
    assert_eq!(told["last_drilled"]["label"], labels[2].as_str(), "{told}");
    for task in ["verify", "drill"] {
        assert!(server.has(&format!("site one/app/.longshore-status-{task}")));
    }
    let counts = |more: &str| {
        let all = answer(&run(
            0,
            &format!("verify --all --database app --json{more}"),
        ));
        let number = |name: &str| all["databases"][0][name].as_u64().unwrap();
        (number("verified_count"), number("known_count"))
    };
    assert_eq!(counts(""), (0, 3));
    assert_eq!(counts(" --again"), (3, 0));
    assert_eq!(counts(""), (0, 3));
    let said = text(&run(0, "check app --max-verify-age 1 --max-drill-age 1").stdout);
    assert!(said.contains("was drilled"), "{said}");
    let listed = text(&run(0, "info app").stdout);
    assert!(!listed.contains("unknown here"), "{listed}");
}

/// A directory, a bucket of S3's protocol and a container of Azure have the same backups, whichever was first.
fn copies() {
    let (Some(s3), Some(azure)) = (Server::start(Kind::Versitygw), Server::start(Kind::Azurite))
    else {
        return;
    };
    let database = s3.path("app.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("create table t(a)").unwrap();
    let configuration = format!(
        "[database.app]\nurl = \"sqlite:{path}\"\ntarget = \"mixed\"\n\
         [target.mixed]\nbuckets = [\"{0}/mixed\", \"{1}/mixed\"]\n\
         [target.azure]\nbuckets = [\"{1}/copy\", \"{1}/other\"]\n\
         [target.s3]\nbuckets = [\"{0}/copy\", \"{0}/other\"]\n\
         [target.disk]\ndirectories = [\"{dir}/one\", \"{dir}/two\"]\n",
        s3.bucket(),
        azure.bucket(),
        path = database.display(),
        dir = s3.root.path().display(),
    );
    std::fs::write(s3.path("longshore.toml"), configuration).unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir(s3.path(name)).unwrap();
    }
    let run = |line: &str| {
        let line = format!("{line} --config longshore.toml");
        let args: Vec<_> = line.split_whitespace().collect();
        let mut command = s3.program(&args);
        command
            .env("AZURE_STORAGE_ENDPOINT", &azure.endpoint)
            .env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
            .env("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY);
        ended(0, &mut command)
    };
    // One stripe in each of two kinds of stores.
    run("backup app --verify");
    let info = answer(&run("info app --json"));
    let label = info["databases"][0]["backups"][0]["label"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(s3.has(&format!("mixed/app/{label}/family-1.bak")));
    assert!(azure.has(&format!("mixed/app/{label}/family-2.bak")));
    for (from, to) in [("mixed", "azure"), ("azure", "disk"), ("disk", "s3")] {
        run(&format!("copy app --from {from} --to {to}"));
        run(&format!("verify --database app --target {to}"));
    }
    assert!(azure.has(&format!("copy/app/{label}/family-1.bak")));
    assert!(s3.has(&format!("other/app/{label}/family-2.bak")));
    run("restore --database app --target azure --to back");
    let (back, was) = (s3.path("back/app.db"), std::fs::read(&database).unwrap());
    assert!(std::fs::read(back).unwrap() == was);
}

/// Goal: a restore does not end at a target whose bucket is gone while a copy has the backup.
#[test]
fn while_a_bucket_is_away_the_copy_is_restored_and_named() {
    let Some(server) = Server::start(Kind::Versitygw) else {
        return;
    };
    let database = server.path("app.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("create table t(a)").unwrap();
    let configuration = format!(
        "[database.app]\nurl = \"sqlite:{path}\"\ntarget = \"off\"\ncopies = [\"near\"]\n\
         [target.off]\nbuckets = [\"{bucket}/t\"]\n[target.near]\ndirectories = [\"{near}\"]\n",
        path = database.display(),
        bucket = server.bucket(),
        near = server.path("near").display(),
    );
    std::fs::write(server.path("longshore.toml"), configuration).unwrap();
    std::fs::create_dir(server.path("near")).unwrap();
    let run = |code, line: &str| server.run(code, &format!("{line} --config longshore.toml"));
    run(0, "backup app");
    run(0, "copy app --to near");
    let (here, away) = (
        server.root.path().join("store").join(BUCKET),
        server.path("away"),
    );
    std::fs::rename(here, away).unwrap();
    let restored = run(5, "restore --database app --to back");
    let said = text(&restored.stderr);
    assert!(
        said.contains("target off is away") && said.contains("its copy at target near"),
        "{said}"
    );
    let (back, was) = (
        server.path("back/app.db"),
        std::fs::read(&database).unwrap(),
    );
    assert!(std::fs::read(back).unwrap() == was);
}

#[test]
fn a_target_of_buckets_does_what_one_of_directories_does() {
    on_each_server(target);
}

/// Goal: a limit on the rate holds for objects as for files, whatever is sent or fetched ahead.
#[test]
fn the_limit_on_the_rate_holds_for_objects() {
    const MIB: usize = 8;
    const RATE: f64 = 2.0;
    on_servers(&[Kind::Versitygw], |server| {
        let tree = server.path("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), content(1, MIB << 20)).unwrap();
        let stripes = |option| server.stripes("rate", option);
        for line in [
            format!("backup tree{} --algorithm none", stripes("--to")),
            format!("verify{}", stripes("")),
            format!("restore{} --to restored", stripes("")),
        ] {
            let line = format!("{line} --max-rate {RATE}M --max-transfer-size 1M --json");
            let began = Instant::now();
            let output = server.run(0, &line);
            let took = began.elapsed().as_secs_f64();
            let answer = answer(&output);
            // The first buffer is free.
            let rate = (MIB as f64 - 1.0) / took;
            assert!(rate <= RATE * 1.1, "{line}: {rate} MiB/s");
            assert_eq!(answer["run"]["limit"], "rate", "{line}: {answer}");
        }
        assert!(common::read(&server.path("restored")) == common::read(&tree));
    });
}

/// T-SQL over objects: a backup to three of them is listed, verified and restored, and shown by the history.
#[test]
fn statements_back_up_to_urls_and_restore_from_them() {
    on_each_server(|server| {
        let db = rusqlite::Connection::open(server.path("shop.db")).unwrap();
        db.execute_batch("CREATE TABLE ware (name TEXT); INSERT INTO ware VALUES ('rope')")
            .unwrap();
        drop(db);
        let sql = |expected: i32, query: &str| {
            let args = [
                "sql",
                "-b",
                "-W",
                "--database",
                "shop=sqlite:shop.db",
                "-Q",
                query,
            ];
            let mut command = server.program(&args);
            command.env("LONGSHORE_CATALOG", server.path("catalog.db"));
            let output = ended(expected, &mut command);
            text(&output.stdout) + &text(&output.stderr)
        };
        let bucket = server.bucket();
        let url = |n: u32| format!("URL = '{bucket}/dir/shop-{n}.bak'");
        let all = [url(1), url(2), url(3)].join(", ");
        let with = "COMPRESSION, CHECKSUM, STATS = 50, BUFFERCOUNT = 8, MAXTRANSFERSIZE = 5242880";
        sql(0, &format!("BACKUP DATABASE shop TO {all} WITH {with}"));
        assert!(server.has("dir/shop-3.bak"));
        sql(0, &format!("RESTORE VERIFYONLY FROM {all}"));
        for (what, expected) in [
            ("HEADERONLY", "BackupType"),
            ("FILELISTONLY", "shop.db"),
            ("LABELONLY", "FamilyCount"),
        ] {
            let said = sql(0, &format!("RESTORE {what} FROM {all}"));
            assert!(said.contains(expected), "{said}");
        }
        let query = "SELECT device_type, physical_device_name FROM msdb.dbo.backupmediafamily";
        let said = sql(0, query);
        assert!(
            said.contains(&format!("9 {bucket}/dir/shop-2.bak")),
            "{said}"
        );
        let copy = "MOVE 'shop.db' TO 'copy.db'";
        sql(0, &format!("RESTORE DATABASE copy FROM {all} WITH {copy}"));
        let copy = rusqlite::Connection::open(server.path("copy.db")).unwrap();
        let name: String = copy
            .query_row("SELECT name FROM ware", [], |r| r.get(0))
            .unwrap();
        assert_eq!(name, "rope");
        // An object is written once.
        let said = sql(1, &format!("BACKUP DATABASE shop TO {all}"));
        assert!(said.contains("WITH FORMAT"), "{said}");
        sql(0, &format!("BACKUP DATABASE shop TO {all} WITH FORMAT"));
        // As SQL Server's scripts name the object and the region.
        if let Some(host) = server.s3_host() {
            let theirs = |host: &str| bucket.replace("s3://", &format!("s3://{host}/"));
            let all = |host: &str| format!("URL = '{}/dir/theirs.bak'", theirs(host));
            let region = r#"BACKUP_OPTIONS = '{"s3": {"region":"us-east-1"}}'"#;
            sql(
                0,
                &format!("BACKUP DATABASE shop TO {} WITH {region}", all(&host)),
            );
            assert!(server.has("dir/theirs.bak"));
            let region = region.replace("BACKUP", "RESTORE");
            sql(
                0,
                &format!("RESTORE VERIFYONLY FROM {} WITH {region}", all(&host)),
            );
            let elsewhere = region.replace("us-east-1", "eu-central-1");
            let said = sql(
                1,
                &format!("RESTORE VERIFYONLY FROM {} WITH {elsewhere}", all(&host)),
            );
            assert!(said.contains("another region"), "{said}");
            let said = sql(
                1,
                &format!("RESTORE VERIFYONLY FROM {}", all("other.example:9000")),
            );
            assert!(said.contains("begins with a host"), "{said}");
        }
        let credential = format!("BACKUP DATABASE shop TO {all} WITH FORMAT, CREDENTIAL = 'c'");
        assert!(sql(1, &credential).contains("leave the option out"));
        let mixed = format!("BACKUP DATABASE shop TO {all}, DISK = 'a.bak'");
        assert!(sql(1, &mixed).contains("general class"));
    });
}
