//! Goal: a bucket with an object lock and versions takes backups, and an expire there works again and again.
//! Method: versitygw with versions; the bucket and its default retention are made by curl, which signs its requests.
//! Not covered: a store that refuses a removal, which is simulated (`repository/tests/buckets.rs`): versitygw hides what
//! is removed, as AWS does.

use super::*;

/// A request of another program; the answer with its headers.
pub fn curl(port: u16, args: &[&str], path: &str) -> String {
    let output = Command::new("curl")
        .args(["-sS", "-i", "--aws-sigv4", "aws:amz:us-east-1:s3"])
        .args(["--user", &format!("{ID}:{SECRET}")])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(args)
        .arg(format!("http://127.0.0.1:{port}/{path}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_bucket_with_an_object_lock_takes_backups_and_expires_them() {
    let Some(server) = Server::start(Kind::Versitygw) else {
        return;
    };
    let port = server.port;
    let lock = ["-X", "PUT", "-H", "x-amz-bucket-object-lock-enabled: true"];
    let made = curl(port, &lock, "locked");
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    let body = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                <Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    let sum = Command::new("sh")
        .args([
            "-c",
            "printf %s \"$1\" | openssl md5 -binary | base64",
            "sh",
            body,
        ])
        .output()
        .unwrap();
    let sum = format!("Content-MD5: {}", text(&sum.stdout).trim());
    let given = curl(
        port,
        &["-X", "PUT", "-H", &sum, "-d", body],
        "locked?object-lock=",
    );
    assert!(given.starts_with("HTTP/1.1 200"), "{given}");

    std::fs::create_dir(server.path("tree")).unwrap();
    std::fs::write(server.path("tree/file"), content(1, 100_000)).unwrap();
    let config = format!(
        "[database.app]\nurl = \"files:{}\"\ntarget = \"t\"\n[target.t]\nbuckets = [\"s3://locked/p\"]\n",
        server.path("tree").display()
    );
    std::fs::write(server.path("longshore.toml"), config).unwrap();
    let run = |expected: i32, checksum: &str, line: &str| {
        let line = format!("--config longshore.toml --catalog none {line} --json");
        let args: Vec<_> = line.split_whitespace().collect();
        let mut program = server.program(&args);
        answer(&ended(
            expected,
            program.env("LONGSHORE_S3_CHECKSUM", checksum),
        ))
    };
    for (checksum, header) in [
        ("crc64nvme", "x-amz-checksum-crc64nvme"),
        ("sha256", "x-amz-checksum-sha256"),
        ("none", "x-amz-checksum-crc64nvme"),
    ] {
        let made = run(0, checksum, "backup app --verify");
        let device = made["run"]["plan"]["devices"][0]
            .as_str()
            .unwrap()
            .to_owned();
        let key = device.strip_prefix("s3://").unwrap();
        let asked = ["-I", "-H", "x-amz-checksum-mode: ENABLED"];
        let told = curl(port, &asked, key).to_lowercase();
        // Without one of ours, this store makes one of its own: so only SHA-256 shows that ours was sent.
        assert!(told.contains(header), "{checksum}: {told}");
        // Each run probes the store once more, under a name that was removed before.
        let expired = run(0, checksum, "expire app --keep-full 1");
        let fates = expired["databases"][0]["backups"]
            .as_array()
            .unwrap()
            .clone();
        let kept = fates.iter().filter(|row| row["fate"] == "kept").count();
        assert_eq!(kept, 1, "{expired}");
        assert!(
            fates
                .iter()
                .all(|row| row["fate"] == "kept" || row["fate"] == "removed")
        );
    }
    let told = run(0, "none", "info app");
    assert_eq!(
        told["databases"][0]["backups"].as_array().unwrap().len(),
        1,
        "{told}"
    );
    let refused = run(4, "md5", "info app");
    assert!(
        refused.to_string().contains("LONGSHORE_S3_CHECKSUM"),
        "{refused}"
    );
}
