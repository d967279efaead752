//! Goal: `longshore uploads` finds what other programs left, whatever characters its key has, and tells a script all that it
//! aborted, also where another address fails.
//! Method: versitygw, which checks signatures; curl begins the uploads, and their directories get an old time.
//! Not covered: ages and leases, which are simulated (`repository/tests/uploads.rs`).

use super::locked::curl;
use super::*;

/// Parts of an address, and how a key shows them.
const KEYS: [(&str, &str); 5] = [
    ("a%20b.bak", "a b.bak"),
    ("100%25%2B%28x%29.bak", "100%+(x).bak"),
    ("%23q%3Fa%3Db%26c.bak", "#q?a=b&c.bak"),
    ("b%C3%BCro/%2A%27%21.bak", "b\u{fc}ro/*'!.bak"),
    ("plain.bak", "plain.bak"),
];

fn begin(server: &Server, place: &str) {
    let begun = curl(
        server.port,
        &["-X", "POST"],
        &format!("{BUCKET}/{place}?uploads="),
    );
    assert!(begun.starts_with("HTTP/1.1 200"), "{begun}");
}

/// Makes all uploads three days old: the server takes their time from their directories.
fn grow_old(server: &Server) {
    let at = server.path("store").join(BUCKET).join(".sgwtmp/multipart");
    let then = std::time::SystemTime::now() - Duration::from_secs(3 * 86_400);
    for object in std::fs::read_dir(at).unwrap() {
        for upload in std::fs::read_dir(object.unwrap().path()).unwrap() {
            let dir = std::fs::File::open(upload.unwrap().path()).unwrap();
            dir.set_modified(then).unwrap();
        }
    }
}

#[test]
fn a_script_learns_all_that_was_aborted_although_another_address_fails() {
    let Some(server) = Server::start(Kind::Versitygw) else {
        return;
    };
    for (place, _) in KEYS {
        begin(&server, &format!("dir/{place}"));
    }
    begin(&server, "dir2/other.bak");
    let shown = answer(&server.run(0, "uploads s3://nightly/dir --json"));
    assert_eq!(shown["uploads"].as_array().unwrap().len(), KEYS.len());
    assert_eq!(shown["failures"], serde_json::json!([]));
    grow_old(&server);
    let line = "uploads s3://no-such-bucket s3://nightly/dir --abort --json";
    let told = answer(&server.run(4, line));
    assert_eq!(told["status"], "error");
    let rows = told["uploads"].as_array().unwrap();
    let mut keys: Vec<_> = rows
        .iter()
        .map(|row| {
            assert_eq!(row["fate"], "aborted", "{row}");
            let address = row["address"].as_str().unwrap();
            address.strip_prefix("s3://nightly/dir/").unwrap()
        })
        .collect();
    let mut all = KEYS.map(|(_, key)| key);
    keys.sort_unstable();
    all.sort_unstable();
    assert_eq!(keys, all);
    let failures = told["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{told}");
    assert_eq!(failures[0]["address"], "s3://no-such-bucket");
    let why = failures[0]["error"]["text"].as_str().unwrap();
    assert!(why.contains("does not exist"), "{told}");
    let rest = answer(&server.run(0, "uploads s3://nightly --json"));
    let rest = rest["uploads"].as_array().unwrap();
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0]["address"], "s3://nightly/dir2/other.bak");
    // For people, the failure is told, and the table has the others.
    let said = server.run(4, "uploads s3://no-such-bucket s3://nightly");
    assert!(text(&said.stderr).contains("at: s3://no-such-bucket"));
    assert!(text(&said.stdout).contains("dir2/other.bak"));
    // An argument that is no address is refused before anything is aborted.
    let refused = server.run(2, "uploads s3://nightly plain.bak --abort");
    assert!(text(&refused.stderr).contains("is no address in an object store"));
    let rest = answer(&server.run(0, "uploads s3://nightly --json"));
    assert_eq!(rest["uploads"].as_array().unwrap().len(), 1);
}
