//! Goal: where the WAL archive is at a server that the configuration names, a restored server fetches its WAL from that
//! server, by the configuration that its own command names, and from no other.
//! Method: PostgreSQL, and two versitygw with different keys and a bucket of the same name. Nothing of the environment
//! names either.
//! Not covered: a configuration of variables alone, of which a restore warns.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use longshore_kit::{Server, representatives};

use crate::common::store::Store;
use crate::common::{BINARY, longshore, text};
use crate::named::{archived, markers};
use crate::stage::{Stage, end, succeed};

struct Main {
    near: Store,
    stage: Stage,
}

impl Main {
    fn command(&self, line: &str) -> Command {
        let mut command = longshore(["--config"]);
        command.arg(self.stage.path("longshore.toml"));
        command.args(line.split_whitespace());
        command
            .env_remove("AWS_ENDPOINT_URL")
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn private(&self, name: &str, text: &str) {
        let path = self.stage.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        self.stage.server.user().own(&path);
    }

    fn server(&self) -> &Server {
        &self.stage.server
    }
}

#[test]
fn a_restored_server_fetches_its_wal_from_the_server_that_its_configuration_names() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let (Some(near), Some(far)) = (Store::new(), Store::with_keys("far-id", "far-verysecret"))
    else {
        return;
    };
    let conf = [("archive_mode", "on"), ("archive_command", "false")];
    let stage = Stage::new(&installation, &conf);
    let main = Main { near, stage };
    for (name, id, secret) in [
        ("near.keys", "test-id", "test-verysecret"),
        ("far.keys", "far-id", "far-verysecret"),
    ] {
        let keys =
            format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        main.private(name, &keys);
    }
    let target = |name: &str, endpoint: &str| {
        format!(
            "[target.{name}]\nbuckets = [\"s3://nightly/backups\"]\nendpoint = \"{endpoint}\"\n\
             credentials_file = \"{}\"\nallow_http = true\n",
            main.stage.path(&format!("{name}.keys")).display()
        )
    };
    let config = main.stage.path("longshore.toml");
    let tables = format!(
        "[database.main]\nurl = \"{url}\"\ntarget = \"near\"\ncopies = [\"far\"]\n[database.main.wal]\n{}{}",
        target("near", &main.near.endpoint()),
        target("far", &far.endpoint()),
        url = main.server().url(),
    );
    std::fs::write(&config, tables).unwrap();
    main.server().user().own(main.stage.dir.path());
    succeed(&mut main.command("wal create --database main"));
    main.server().psql(&format!(
        "alter system set archive_command = '{BINARY} --catalog none --config {} wal push %p --database main'; \
         select pg_reload_conf()",
        config.display()
    ));
    succeed(&mut main.command("backup main"));
    main.server().psql("insert into marker values (1)");
    archived(main.server());
    succeed(&mut main.command("copy main"));
    main.server().psql("insert into marker values (2)");
    archived(main.server());

    let restored = |target: &str, markers_there: &str| {
        let data = main.stage.path(&format!("of-{target}"));
        let line = format!("restore --database main --target {target} --no-archiving --to");
        let said = succeed(main.command(&line).arg(&data));
        let said = text(&said.stdout) + &text(&said.stderr);
        assert!(said.contains("must be able to read that file"), "{said}");
        let conf = std::fs::read_to_string(data.join("postgresql.auto.conf")).unwrap();
        let archive = format!("--archive ''s3+{target}://nightly/backups/main/wal''");
        assert!(conf.contains(&archive), "{conf}");
        let named = format!("--config ''{}''", config.display());
        assert!(conf.contains(&named), "{conf}");
        assert!(!conf.contains("verysecret"), "{conf}");
        let server = main.stage.adopt(&data);
        server.start();
        server.wait_for("select pg_is_in_recovery()", "f");
        assert_eq!(markers(&server), markers_there);
    };
    restored("near", "1 2");
    // The copy lacks what was archived after it: its own server was asked.
    restored("far", "1");
    // Without the configuration, the address means nothing, and the recovery stops.
    let empty = main.stage.path("empty.toml");
    std::fs::write(&empty, "").unwrap();
    let mut get = longshore(["--config"]);
    get.arg(&empty)
        .args(["wal", "get", "000000010000000000000001", "got"])
        .args(["--archive", "s3+near://nightly/backups/main/wal"])
        .current_dir(main.stage.dir.path());
    let said = text(&end(&mut get, 200).stderr);
    assert!(
        said.contains("[target.near]") && said.contains("--config"),
        "{said}"
    );
}
