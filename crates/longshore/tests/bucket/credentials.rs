//! Goal: statements reach the server that an address names with a credential of CREATE CREDENTIAL, and with nothing else.
//! Its secret is nowhere but sealed in the catalog.
//! Method: two versitygw over TLS with different keys and a bucket of the same name, through `longshore sql`. The environment
//! names a third server, which does not exist. The files next to the catalog are searched for the secrets.
//! Not covered: SQL Server itself; Azure, whose addresses no server of this machine has (`access.rs` tests the settings).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::store::{free_port, tool, wait_for_port};
use crate::common::{Guarded, longshore_in, text};
use crate::ended;
use crate::ways::certificates;

const NEAR: &str = "near-verysecret";
const FAR: &str = "far-verysecret";

struct Store {
    dir: tempfile::TempDir,
    port: u16,
    _process: Guarded,
}

impl Store {
    fn new(id: &str, secret: &str) -> Option<Store> {
        let dir = certificates();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("store/nightly")).unwrap();
        let port = free_port();
        let process = Command::new(tool("buckets/versitygw")?)
            .env("ROOT_ACCESS_KEY", id)
            .env("ROOT_SECRET_KEY", secret)
            .args(["--port", &format!("127.0.0.1:{port}")])
            .arg("--cert")
            .arg(path("s.pem"))
            .arg("--key")
            .arg(path("s.key"))
            .arg("posix")
            .arg(path("store"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_port(port, "versitygw");
        Some(Store {
            dir,
            port,
            _process: Guarded(process),
        })
    }

    /// Its bucket, as SQL Server writes it.
    fn bucket(&self) -> String {
        format!("s3://127.0.0.1:{}/nightly", self.port)
    }

    fn object(&self, key: &str) -> PathBuf {
        self.dir.path().join("store/nightly").join(key)
    }
}

struct Stage {
    dir: tempfile::TempDir,
    near: Store,
    far: Store,
}

impl Stage {
    /// `None` if the servers are not installed.
    fn new() -> Option<Stage> {
        let stage = Stage {
            dir: tempfile::tempdir().unwrap(),
            near: Store::new("near", NEAR)?,
            far: Store::new("far", FAR)?,
        };
        let db = rusqlite::Connection::open(stage.path("shop.db")).unwrap();
        db.execute_batch("CREATE TABLE ware (name TEXT); INSERT INTO ware VALUES ('rope')")
            .unwrap();
        std::fs::write(stage.path("longshore.toml"), "").unwrap();
        let ca = [&stage.near, &stage.far]
            .map(|store| std::fs::read_to_string(store.dir.path().join("ca.pem")).unwrap());
        std::fs::write(stage.path("ca.pem"), ca.concat()).unwrap();
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, more: &[&str], query: &str) -> Command {
        let args = [
            "sql",
            "-b",
            "-W",
            "--database",
            "shop=sqlite:shop.db",
            "-Q",
            query,
        ];
        let mut command = longshore_in(self.dir.path(), &[&args, more].concat());
        command
            .env("HOME", self.dir.path())
            .env("LONGSHORE_CA_FILE", self.path("ca.pem"))
            .env("LONGSHORE_LOG", "trace")
            .env("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
            .env("AWS_REGION", "eu-none-1")
            .env("AWS_ACCESS_KEY_ID", "none")
            .env("AWS_SECRET_ACCESS_KEY", "none-verysecret")
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    /// Everything that the program said.
    fn sql(&self, expected: i32, query: &str) -> String {
        let output = ended(expected, &mut self.command(&[], query));
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("verysecret"), "{said}");
        said
    }

    fn credential(&self, name: &str, id: &str, secret: &str) {
        self.sql(
            0,
            &format!(
                "CREATE CREDENTIAL [{name}] WITH IDENTITY = 'S3 Access Key', SECRET = '{id}:{secret}'"
            ),
        );
    }

    fn both(&self) {
        self.credential(&self.near.bucket(), "near", NEAR);
        self.credential(&self.far.bucket(), "far", FAR);
    }
}

#[test]
fn two_servers_with_a_bucket_of_the_same_name_have_a_credential_each() {
    let Some(stage) = Stage::new() else { return };
    stage.both();
    let said = stage.sql(
        0,
        "SELECT credential_id, name, credential_identity, target_id FROM sys.credentials",
    );
    assert!(
        said.contains(&format!("65536 {} S3 Access Key 0", stage.near.bucket())),
        "{said}"
    );
    let url = |store: &Store, key: &str| format!("URL = '{}/{key}'", store.bucket());
    let near = url(&stage.near, "dir/a.bak");
    let far = url(&stage.far, "dir/a.bak");
    stage.sql(
        0,
        &format!("BACKUP DATABASE shop TO {near} WITH COMPRESSION"),
    );
    assert!(stage.near.object("dir/a.bak").exists());
    assert!(!stage.far.object("dir/a.bak").exists());
    let db = rusqlite::Connection::open(stage.path("shop.db")).unwrap();
    db.execute_batch("UPDATE ware SET name = 'anchor'").unwrap();
    drop(db);
    let more = url(&stage.far, "dir/b.bak");
    let region = r#"BACKUP_OPTIONS = '{"s3": {"region":"us-east-1"}}'"#;
    stage.sql(
        0,
        &format!("BACKUP DATABASE shop TO {far}, {more} WITH {region}"),
    );
    assert!(stage.far.object("dir/a.bak").exists() && stage.far.object("dir/b.bak").exists());
    stage.sql(0, &format!("RESTORE VERIFYONLY FROM {near}"));
    // The server knows one region only.
    let elsewhere = region.replace("us-east-1", "eu-west-1");
    let said = stage.sql(
        1,
        &format!("BACKUP DATABASE shop TO {near} WITH FORMAT, {elsewhere}"),
    );
    assert!(said.contains("BACKUP_OPTIONS or RESTORE_OPTIONS"), "{said}");
    let elsewhere = elsewhere.replace("BACKUP", "RESTORE");
    stage.sql(
        1,
        &format!("RESTORE VERIFYONLY FROM {near} WITH {elsewhere}"),
    );
    for (what, name) in [(near.clone(), "rope"), (format!("{far}, {more}"), "anchor")] {
        let to = format!("{name}.db");
        stage.sql(
            0,
            &format!("RESTORE DATABASE copy FROM {what} WITH MOVE 'shop.db' TO '{to}', REPLACE"),
        );
        let copy = rusqlite::Connection::open(stage.path(&to)).unwrap();
        let found: String = copy
            .query_row("SELECT name FROM ware", [], |r| r.get(0))
            .unwrap();
        assert_eq!(found, name);
    }
    // The history says which server.
    let said = stage.sql(
        0,
        "SELECT physical_device_name FROM msdb.dbo.backupmediafamily",
    );
    for store in [&stage.near, &stage.far] {
        assert!(
            said.contains(&format!("{}/dir/a.bak", store.bucket())),
            "{said}"
        );
    }
    // In one batch, without a catalog.
    let one = format!(
        "CREATE CREDENTIAL [{}] WITH IDENTITY = 'S3 Access Key', SECRET = 'near:{NEAR}'; \
         BACKUP DATABASE shop TO {}",
        stage.near.bucket(),
        url(&stage.near, "none.bak")
    );
    ended(0, &mut stage.command(&["--catalog", "none"], &one));
    assert!(stage.near.object("none.bak").exists());
}

#[test]
fn the_longest_prefix_that_ends_at_a_slash_decides() {
    let Some(stage) = Stage::new() else { return };
    let bucket = stage.near.bucket();
    stage.credential(&bucket, "near", NEAR);
    stage.credential(&format!("{bucket}/inner/"), "near", "wrong-verysecret");
    let backup = |key: &str| format!("BACKUP DATABASE shop TO URL = '{bucket}/{key}'");
    stage.sql(0, &backup("innermost.bak"));
    stage.sql(0, &backup("Inner/a.bak"));
    let said = stage.sql(1, &backup("inner/a.bak"));
    assert!(
        said.contains(&format!("by the credential '{bucket}/inner/'")),
        "{said}"
    );
    // Another one by its name.
    let named = format!(
        "{} WITH CREDENTIAL = '{}'",
        backup("inner/a.bak"),
        bucket.to_uppercase()
    );
    stage.sql(0, &named);
    let said = stage.sql(
        1,
        &format!("{} WITH CREDENTIAL = 'nobody'", backup("b.bak")),
    );
    assert!(
        said.contains("15151") && said.contains("Cannot find the credential 'nobody'"),
        "{said}"
    );
    let plain = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH CREDENTIAL = 'c'";
    assert!(stage.sql(1, plain).contains("leave the option out"));
    // Neither another server nor another bucket has it.
    for other in [stage.far.bucket(), format!("{bucket}-2")] {
        let said = stage.sql(1, &format!("BACKUP DATABASE shop TO URL = '{other}/a.bak'"));
        assert!(said.contains("CREATE CREDENTIAL"), "{said}");
    }
}

#[test]
fn changes_have_sql_servers_errors_and_count_at_once() {
    let Some(stage) = Stage::new() else { return };
    let bucket = stage.near.bucket();
    stage.credential(&bucket, "near", NEAR);
    let statement = |verb: &str, secret: &str| {
        format!("{verb} CREDENTIAL [{bucket}] WITH IDENTITY = 'S3 Access Key'{secret}")
    };
    let said = stage.sql(1, &statement("CREATE", ", SECRET = 'a:verysecret'"));
    let expected = format!("The credential with name \"{bucket}\" already exists.");
    assert!(
        said.contains("Msg 15530") && said.contains(&expected),
        "{said}"
    );
    let backup = |key: &str| format!("BACKUP DATABASE shop TO URL = '{bucket}/{key}'");
    stage.sql(0, &statement("ALTER", ", SECRET = 'near:wrong-verysecret'"));
    let said = stage.sql(1, &backup("a.bak"));
    assert!(
        said.contains(&format!("by the credential '{bucket}'")),
        "{said}"
    );
    assert!(said.contains("ALTER CREDENTIAL"), "{said}");
    // Without a secret there is none.
    stage.sql(0, &statement("ALTER", ""));
    assert!(stage.sql(1, &backup("a.bak")).contains("it has no SECRET"));
    stage.sql(0, &statement("ALTER", ", SECRET = 'verysecret'"));
    assert!(stage.sql(1, &backup("a.bak")).contains("'KEYID:SECRETKEY'"));
    stage.sql(0, &statement("ALTER", &format!(", SECRET = 'near:{NEAR}'")));
    stage.sql(0, &backup("a.bak"));
    stage.sql(0, &format!("DROP CREDENTIAL [{bucket}]"));
    assert!(stage.sql(1, &backup("b.bak")).contains("CREATE CREDENTIAL"));
    for verb in ["ALTER", "DROP"] {
        let said = match verb {
            "DROP" => stage.sql(1, &format!("DROP CREDENTIAL [{bucket}]")),
            _ => stage.sql(1, &statement(verb, "")),
        };
        let expected = format!(
            "Cannot {} the credential '{bucket}', because it does not exist or you do not have permission.",
            verb.to_lowercase()
        );
        assert!(
            said.contains("Msg 15151") && said.contains(&expected),
            "{said}"
        );
    }
    let said = stage.sql(1, "BEGIN TRAN; DROP CREDENTIAL x; ROLLBACK");
    assert!(said.contains("inside a transaction"), "{said}");
}

/// The history's names of objects are never those of buckets of these names at the environment's server.
#[test]
fn an_object_of_the_history_needs_its_credential() {
    let Some(stage) = Stage::new() else { return };
    let bucket = stage.near.bucket();
    stage.credential("by-name", "near", NEAR);
    let url = |key: &str| format!("URL = '{bucket}/{key}' WITH CREDENTIAL = 'by-name'");
    stage.sql(0, &format!("BACKUP DATABASE shop TO {}", url("a.bak")));
    // The base is looked for before the kind of the source is.
    let to_disk = "BACKUP DATABASE shop TO DISK = 'd.bak' WITH DIFFERENTIAL";
    let said = stage.sql(1, to_disk);
    let create = format!("CREATE CREDENTIAL [{bucket}]");
    assert!(said.contains(&create), "{said}");
    // The credential that the statement names counts for objects at the same server.
    let differential = format!("BACKUP DATABASE shop TO {}, DIFFERENTIAL", url("d.bak"));
    let said = stage.sql(1, &differential);
    assert!(
        !said.contains(&create) && said.contains("differential"),
        "{said}"
    );
    stage.credential(&bucket, "near", NEAR);
    let said = stage.sql(1, to_disk);
    assert!(
        !said.contains(&create) && said.contains("differential"),
        "{said}"
    );
    stage.sql(0, &format!("DROP CREDENTIAL [{bucket}]"));
    assert!(stage.sql(1, to_disk).contains(&create));
    // One object has one name.
    let slash = format!("BACKUP DATABASE shop TO {}", url("a.bak/"));
    assert!(stage.sql(1, &slash).contains("no object"));
}

/// The echo of a script is often kept in a file.
#[test]
fn the_echo_shows_no_batch_about_a_credential() {
    let dir = tempfile::tempdir().unwrap();
    let script = "PRINT 'before'\nGO\nCREATE CREDENTIAL c WITH IDENTITY = 'x',\nSECRET = 'verysecret'\nGO\nPRINT 'after'\n";
    std::fs::write(dir.path().join("a.sql"), script).unwrap();
    std::fs::write(dir.path().join("longshore.toml"), "").unwrap();
    let args = [
        "--catalog",
        "none",
        "sql",
        "-e",
        "-i",
        "a.sql",
        "-o",
        "said",
    ];
    ended(0, &mut longshore_in(dir.path(), &args));
    let said = std::fs::read_to_string(dir.path().join("said")).unwrap();
    assert!(!said.contains("verysecret"), "{said}");
    for line in [
        "PRINT 'before'",
        "before",
        "may have a secret in it is not shown",
        "PRINT 'after'",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn a_secret_is_nowhere_but_sealed_and_opens_with_the_servers_key_alone() {
    let Some(stage) = Stage::new() else { return };
    stage.both();
    let bucket = stage.near.bucket();
    let backup = |key: &str| format!("BACKUP DATABASE shop TO URL = '{bucket}/{key}'");
    stage.sql(0, &backup("a.bak"));
    // Mistakes in such statements, at run time and before.
    for mistake in [
        format!("CREATE CREDENTIAL [{bucket}] WITH IDENTITY = 'x', SECRET 'verysecret'"),
        format!("CREATE CREDENTIAL [{bucket}] WITH IDENTITY = 'x', SECRET = 'verysecret"),
        format!("CREATE CREDENTIAL [{bucket}] WITH IDENTITY = 'x', 'verysecret'"),
        "EXEC ('CREATE CREDENTIAL c WITH IDENTITY = ''x'', SECRET = verysecret')".to_owned(),
    ] {
        stage.sql(1, &mistake);
    }
    let views = "SELECT * FROM sys.credentials; EXEC sp_readerrorlog; SELECT * FROM sys.dm_exec_requests; \
                 SELECT * FROM msdb.dbo.backupmediafamily";
    stage.sql(0, views);
    let state = stage.path("state");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for secret in [NEAR, FAR, "verysecret"] {
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{} has {secret}", path.display());
        }
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    assert!(names.contains(&"errorlog".to_owned()), "{names:?}");
    let key = state.join("catalog.db.key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // No statement writes there.
    let onto = format!(
        "BACKUP DATABASE shop TO DISK = '{}' WITH FORMAT",
        key.display()
    );
    assert!(stage.sql(1, &onto).contains("3201"));
    let set_mode = |mode| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o640);
    let said = stage.sql(1, &backup("b.bak"));
    assert!(
        said.contains("others may read it") && said.contains("chmod 600"),
        "{said}"
    );
    set_mode(0o600);
    // A catalog without its key, and with another one.
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    assert!(stage.sql(1, &backup("b.bak")).contains("it is missing"));
    let more = "CREATE CREDENTIAL another WITH IDENTITY = 'x', SECRET = 'verysecret'";
    assert!(stage.sql(1, more).contains("secrets are sealed under it"));
    assert!(!key.exists());
    let line = String::from_utf8(kept.clone()).unwrap();
    let (word, digits) = line.trim_end().split_once(' ').unwrap();
    let turned: String = digits.chars().rev().collect();
    std::fs::write(&key, format!("{word} {turned}\n")).unwrap();
    set_mode(0o600);
    assert!(
        stage
            .sql(1, &backup("b.bak"))
            .contains("not the key that sealed")
    );
    // No credential is sealed under another key than those that are there.
    let said = stage.sql(1, more);
    assert!(
        said.contains("not the key that sealed") && said.contains("remove the file"),
        "{said}"
    );
    std::fs::write(&key, kept).unwrap();
    stage.sql(0, &backup("b.bak"));
}

#[test]
fn the_transfer_size_of_objects_is_the_size_of_a_part() {
    let Some(stage) = Stage::new() else { return };
    stage.credential(&stage.near.bucket(), "near", NEAR);
    let db = rusqlite::Connection::open(stage.path("shop.db")).unwrap();
    db.execute_batch(
        "CREATE TABLE noise (bytes BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12)
         INSERT INTO noise SELECT randomblob(1048576) FROM n",
    )
    .unwrap();
    drop(db);
    let backup = |key: &str, bytes: u32| {
        format!(
            "BACKUP DATABASE shop TO URL = '{}/{key}' WITH COMPRESSION, FORMAT, MAXTRANSFERSIZE = {bytes}",
            stage.near.bucket()
        )
    };
    // All other requests are the same.
    let requests = |key: &str, bytes: u32| {
        let output = ended(0, &mut stage.command(&["--verbose"], &backup(key, bytes)));
        let said = text(&output.stderr);
        let line = said
            .lines()
            .find(|line| line.ends_with("requests to object stores"));
        let number = line.and_then(|line| line.split(' ').nth(1)?.parse::<i64>().ok());
        number.unwrap_or_else(|| panic!("{said}"))
    };
    // Of some 12.6 MB, three parts and one.
    let (small, large) = (
        requests("small.bak", 5_242_880),
        requests("large.bak", 20_971_520),
    );
    assert_eq!(small - large, 2, "{small} {large}");
    for wrong in [4_194_304, 5_242_881, 21_037_056] {
        let said = stage.sql(1, &backup("wrong.bak", wrong));
        assert!(said.contains("3250"), "{said}");
    }
    let said = stage.sql(
        1,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH MAXTRANSFERSIZE = 5242880",
    );
    assert!(said.contains("3250"), "{said}");
    let read = format!(
        "RESTORE VERIFYONLY FROM URL = '{}/small.bak' WITH MAXTRANSFERSIZE = 20971520",
        stage.near.bucket()
    );
    let said = stage.sql(0, &read);
    assert!(said.contains("MAXTRANSFERSIZE has no effect"), "{said}");
}

/// Goal: a backup has up to 64 URLs, and no more.
#[test]
fn a_backup_goes_to_64_urls_and_no_more() {
    let Some(stage) = Stage::new() else { return };
    stage.both();
    let urls = |count: usize| {
        let url = |n: usize| format!("URL = '{}/many/{n}.bak'", stage.near.bucket());
        (1..=count).map(url).collect::<Vec<_>>().join(", ")
    };
    let said = stage.sql(1, &format!("BACKUP DATABASE shop TO {}", urls(65)));
    assert!(
        said.contains("Msg 3205") && said.contains("only 64"),
        "{said}"
    );
    assert!(!stage.near.object("many").exists());
    stage.sql(0, &format!("BACKUP DATABASE shop TO {}", urls(64)));
    assert!(stage.near.object("many/64.bak").exists());
    stage.sql(0, &format!("RESTORE VERIFYONLY FROM {}", urls(64)));
    let said = stage.sql(1, &format!("RESTORE VERIFYONLY FROM {}", urls(63)));
    assert!(said.contains("Msg 3132"), "{said}");
}
