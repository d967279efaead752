//! Goal: a target has a server and credentials of its own. Two buckets of one name at two servers are two buckets
//! everywhere, and no address of one server ever means the other.
//! Method: two versitygw with different keys and a bucket of the same name, and Azurite. The environment names a third
//! server, which does not exist.
//! Not covered: AWS, Azure and Google themselves.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::store::{ACCOUNT, ACCOUNT_KEY, Store};
use crate::common::{answer, longshore_in, text};
use crate::ended;

const FAR_ID: &str = "far-id";
const FAR_SECRET: &str = "far-verysecret";

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
            near: Store::new()?,
            far: Store::with_keys(FAR_ID, FAR_SECRET)?,
        };
        let connection = rusqlite::Connection::open(stage.path("app.db")).unwrap();
        connection
            .execute_batch("create table t(a); insert into t values (randomblob(300000))")
            .unwrap();
        let keys = |id: &str, secret: &str| {
            format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n")
        };
        std::fs::create_dir(stage.path(".aws")).unwrap();
        let profile = format!("[near]\n{}", keys("test-id", "test-verysecret"));
        private(&stage.path(".aws/credentials"), &profile);
        private(
            &stage.path("far.keys"),
            &format!("[default]\n{}", keys(FAR_ID, FAR_SECRET)),
        );
        stage.configure("");
        Some(stage)
    }

    fn configure(&self, more: &str) {
        let config = format!(
            "[database.app]\nurl = \"sqlite:{app}\"\ntarget = \"near\"\ncopies = [\"far\"]\nretention = \"r\"\n\
             [target.near]\nbuckets = [\"s3://nightly/b\", \"s3://nightly/b\"]\nendpoint = \"{near}\"\n\
             profile = \"near\"\nallow_http = true\n\
             [target.far]\nbuckets = [\"s3://nightly/b\"]\nendpoint = \"{far}\"\n\
             credentials_file = \"{keys}\"\nallow_http = true\n\
             [retention.r]\nkeep_full = 2\n{more}",
            app = self.path("app.db").display(),
            near = self.near.endpoint(),
            far = self.far.endpoint(),
            keys = self.path("far.keys").display(),
        );
        std::fs::write(self.path("longshore.toml"), config).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program; its environment names a server where nothing listens, with keys that neither server takes.
    fn command(&self, line: &str) -> Command {
        let args: Vec<&str> = line.split_whitespace().collect();
        let mut command = longshore_in(self.dir.path(), &args);
        command
            .env("HOME", self.dir.path())
            .env("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
            .env("AWS_REGION", "eu-none-1")
            .env("AWS_ACCESS_KEY_ID", "none")
            .env("AWS_SECRET_ACCESS_KEY", "none-verysecret")
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn run(&self, expected: i32, line: &str) -> Output {
        let output = ended(expected, &mut self.command(line));
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("verysecret"), "{said}");
        output
    }

    fn label(&self) -> String {
        let info = answer(&self.run(0, "info app --json"));
        let label = info["databases"][0]["backups"][0]["label"].as_str();
        label.unwrap().to_owned()
    }

    fn restores(&self, target: &str, to: &str) {
        self.run(
            0,
            &format!("restore --database app --target {target} --to {to}"),
        );
        let back = std::fs::read(self.path(to).join("app.db")).unwrap();
        assert!(back == std::fs::read(self.path("app.db")).unwrap());
    }
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn copies_go_between_two_servers_with_a_bucket_of_the_same_name() {
    let Some(stage) = Stage::new() else { return };
    let meant = text(&stage.run(0, "config check").stdout);
    assert!(meant.contains("s3+far://nightly/b"), "{meant}");
    stage.run(0, "backup app --verify");
    let label = stage.label();
    let stripe = format!("b/app/{label}/family-1.bak");
    assert!(stage.near.object(&stripe).exists());
    assert!(!stage.far.object(&stripe).exists());
    stage.run(0, "copy app");
    assert!(stage.far.object(&stripe).exists());
    for target in ["near", "far"] {
        stage.run(0, &format!("verify --database app --target {target}"));
        std::fs::create_dir(stage.path(&format!("{target}-work"))).unwrap();
        stage.run(
            0,
            &format!("drill app --target {target} --work {target}-work"),
        );
        stage.restores(target, &format!("of-{target}"));
    }
    // Of both targets.
    stage.run(0, "check app");
    // Its address says which server.
    let named = |target: &str, n: u8| format!("s3+{target}://nightly/b/app/{label}/family-{n}.bak");
    let shown = answer(&stage.run(0, "info app --json")).to_string();
    assert!(shown.contains("s3+near://nightly/b"), "{shown}");
    let both = format!("{} {}", named("near", 1), named("near", 2));
    stage.run(0, &format!("list {both}"));
    let one = format!("{} {}", named("far", 1), named("far", 2));
    stage.run(0, &format!("list {one}"));
    // The same bucket and key at another server is another place, also for a set's own stripes.
    let damaged = std::fs::read(stage.far.object(&stripe)).unwrap();
    let mut other = damaged.clone();
    let middle = other.len() / 2;
    other[middle] ^= 1;
    std::fs::write(stage.far.object(&stripe), &other).unwrap();
    stage.run(0, &format!("verify {both}"));
    stage.run(1, &format!("verify {one}"));
    stage.run(0, "verify --database app --target near");
    stage.run(1, "verify --database app --target far");
    // A backup that is removed at one server stays at the other. The store tells times in seconds: in the same one, what was found
    // of the damaged stripe would count for this one.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    std::fs::write(stage.far.object(&stripe), &damaged).unwrap();
    stage.run(0, "backup app");
    stage.run(0, "expire app --keep-full 1");
    assert!(!stage.near.object(&stripe).exists());
    assert!(stage.far.object(&stripe).exists());
    stage.restores("far", "again");
}

/// Goal: a place of copies that is the database's own under another name of its server is no copy and removes nothing.
#[test]
fn a_second_name_of_the_same_server_is_no_other_place() {
    let Some(stage) = Stage::new() else { return };
    stage.run(0, "backup app");
    stage.run(0, "backup app");
    stage.run(0, "copy app");
    stage.run(0, "check app");
    // The copies are at the same server now, which has two names.
    let alias = stage.near.endpoint().replace("127.0.0.1", "localhost");
    let file = stage.path("longshore.toml");
    let text_of = std::fs::read_to_string(&file).unwrap();
    let (before, _) = text_of.split_once("[target.far]").unwrap();
    let aliased = format!(
        "{before}[target.far]\nbuckets = [\"s3://nightly/b\", \"s3://nightly/b\"]\nendpoint = \"{alias}\"\nprofile = \"near\"\n\
         allow_http = true\nretention = \"one\"\n[retention.r]\nkeep_full = 2\n[retention.one]\nkeep_full = 1\n"
    );
    std::fs::write(&file, aliased).unwrap();
    for line in ["copy app", "expire app", "expire app --target far"] {
        let said = text(&stage.run(2, line).stderr);
        assert!(said.contains("have a place in common"), "{line}: {said}");
    }
    let said = text(&stage.run(1, "check app").stdout);
    assert!(said.contains("have a place in common"), "{said}");
    assert!(!said.contains("far: 2 of 2 backups"), "{said}");
    let info = answer(&stage.run(0, "info app --target near --json"));
    assert_eq!(
        info["databases"][0]["backups"].as_array().unwrap().len(),
        2,
        "{info}"
    );
}

#[test]
fn an_address_means_its_own_server_or_nothing() {
    let Some(stage) = Stage::new() else { return };
    stage.run(0, "backup app");
    let label = stage.label();
    let stripes = |server: &str| {
        let one = |n: u8| format!("s3+{server}://nightly/b/app/{label}/family-{n}.bak");
        format!("{} {}", one(1), one(2))
    };
    stage.run(0, &format!("list {}", stripes("near")));
    let said = text(&stage.run(4, &format!("list {}", stripes("nobody"))).stderr);
    assert!(
        said.contains("[target.nobody]") && said.contains("--config"),
        "{said}"
    );
    // Without the configuration.
    let empty = stage.path("empty.toml");
    std::fs::write(&empty, "").unwrap();
    let mut list = stage.command(&format!("list {}", stripes("near")));
    let said = text(&ended(4, list.env("LONGSHORE_CONFIG", &empty)).stderr);
    assert!(said.contains("[target.near]"), "{said}");
    // Plain addresses are the environment's.
    let plain = stripes("near").replace("+near", "");
    let mut list = stage.command(&format!("list {plain}"));
    list.env("AWS_ENDPOINT_URL", stage.near.endpoint())
        .env("LONGSHORE_ALLOW_HTTP", "1")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test-id")
        .env("AWS_SECRET_ACCESS_KEY", "test-verysecret");
    ended(0, &mut list);
    list.env("AWS_ENDPOINT_URL", stage.far.endpoint());
    ended(4, &mut list);
    // No statement writes to a target's place, whatever it calls the server.
    let here = stage.near.endpoint().replace("http://", "");
    for url in [
        "s3://nightly/b/x.bak".to_owned(),
        "s3+near://nightly/b/x.bak".to_owned(),
        format!("s3://{here}/nightly/b/x.bak"),
    ] {
        let mut sql = stage.command("sql -b -Q");
        sql.arg(format!(
            "CREATE CREDENTIAL [s3://{here}/nightly] WITH IDENTITY = 'S3 Access Key', SECRET = 'a:b'; \
             BACKUP DATABASE app TO URL = '{url}'; DROP CREDENTIAL [s3://{here}/nightly]"
        ));
        sql.env("AWS_ENDPOINT_URL", stage.near.endpoint())
            .env("LONGSHORE_ALLOW_HTTP", "1");
        let said = text(&ended(1, &mut sql).stdout);
        assert!(said.contains("Msg 3201") && said.contains(&url), "{said}");
    }
    // Two targets that name one place are refused, whatever they call it.
    stage.configure(&format!(
        "[target.same]\nbuckets = [\"s3://nightly/b/\"]\nendpoint = \"{}/\"\nprofile = \"near\"\nallow_http = true\n",
        stage.near.endpoint()
    ));
    let said = text(&stage.run(2, "copy app --from near --to same").stderr);
    assert!(
        said.contains("s3+same://nightly/b") || said.contains("s3+near://nightly/b"),
        "{said}"
    );
    // The same name at the other server is another place.
    stage.run(0, "copy app --from near --to far");
}

#[test]
fn a_targets_credentials_are_private_and_its_alone() {
    let Some(stage) = Stage::new() else { return };
    let keys = stage.path("far.keys");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o640)).unwrap();
    let found = text(&stage.run(1, "config check").stdout);
    assert!(
        found.contains("FAIL") && found.contains("chmod 600"),
        "{found}"
    );
    let said = text(&stage.run(4, "backup app --target far").stderr);
    assert!(
        said.contains("chmod 600") && said.contains("target far"),
        "{said}"
    );
    private(
        &keys,
        "[default]\naws_access_key_id = far-id\naws_secret_access_key = wrong-verysecret\n",
    );
    let said = text(&stage.run(4, "backup app --target far").stderr);
    assert!(
        said.contains("`credentials_file`") && said.contains("s3+far://"),
        "{said}"
    );
    std::fs::remove_file(&keys).unwrap();
    let said = text(&stage.run(4, "backup app --target far").stderr);
    assert!(said.contains("missing"), "{said}");
    // The others' commands need none of it.
    stage.run(0, "backup app");
}

#[test]
fn a_target_in_another_account_of_azure_has_a_file_of_credentials() {
    let Some(azure) = Store::azure() else { return };
    let Some(stage) = Stage::new() else { return };
    private(
        &stage.path("azure.keys"),
        &format!("# the vault's\nAZURE_STORAGE_ACCOUNT_KEY={ACCOUNT_KEY}\n"),
    );
    stage.configure(&format!(
        "[target.azure]\nbuckets = [\"az://nightly/b\"]\naccount = \"{ACCOUNT}\"\nendpoint = \"{}\"\n\
         credentials_file = \"{}\"\nallow_http = true\n",
        azure.endpoint(),
        stage.path("azure.keys").display(),
    ));
    let run = |expected: i32, line: &str| {
        let mut command = stage.command(line);
        command
            .env("AZURE_STORAGE_ACCOUNT_NAME", "another")
            .env("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=another");
        ended(expected, &mut command)
    };
    run(0, "backup app");
    run(0, "copy app --to azure");
    run(0, "verify --database app --target azure");
    run(0, "restore --database app --target azure --to of-azure");
    let back = std::fs::read(stage.path("of-azure/app.db")).unwrap();
    assert!(back == std::fs::read(stage.path("app.db")).unwrap());
}
