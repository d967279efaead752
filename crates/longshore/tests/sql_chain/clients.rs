//! Goal: third-party clients run a chain of a real database through the server, with the statements of maintenance
//! procedures, to a moment.
//! Method: each installed driver makes the backups and restores; the history and the restored server's rows are
//! compared.
//! Not covered: drivers that are not installed; major versions other than the newest one here.

use longshore_kit::{Stop, installations};
use serde_json::Value;

use crate::client::Client;
use crate::served::Server;
use crate::stage::{Stage, markers};

/// The messages of batches that must all succeed.
fn done(client: &Client, server: &Server, batches: &[String]) -> Vec<String> {
    let input = serde_json::to_string(batches).unwrap();
    let lines = client.run(server, &[("TDS_ENCRYPT", "on")], &input);
    let ended = lines.iter().filter(|l| l.get("ended").is_some()).count();
    assert_eq!(ended, batches.len(), "{lines:#?}");
    let failed = |l: &&Value| l["class"].as_u64() > Some(10) || l.get("failed").is_some();
    assert!(!lines.iter().any(|l| failed(&l)), "{batches:?}: {lines:#?}");
    assert!(lines.iter().all(|l| l.get("lost").is_none()), "{lines:#?}");
    let rows = lines.iter().filter_map(|l| l["row"].as_array());
    let rows = rows.map(|row| {
        row.iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("|")
    });
    let texts = lines.iter().filter_map(|l| l["message"].as_str());
    texts.map(str::to_owned).chain(rows).collect()
}

#[test]
fn clients_run_a_chain_of_a_database_to_a_moment() {
    let all = installations();
    let Some(installation) = all.last() else {
        return;
    };
    let clients = [
        ("tedious", Client::tedious()),
        ("go", Client::go()),
        ("pymssql", Client::pymssql()),
        ("jdbc", Client::jdbc()),
        ("tiberius", Client::tiberius()),
    ];
    let stage = Stage::new(installation);
    let served = stage.serve();
    for (name, client) in clients {
        let Some(client) = client else {
            continue;
        };
        let says = |text: &str| done(&client, &served, &[text.replace("N_", &format!("{name}_"))]);
        stage.server.psql("truncate marker");
        let said = says(
            "BACKUP DATABASE [main] TO DISK = N'N_full.bak' WITH CHECKSUM, COMPRESSION, INIT, FORMAT, STATS = 50,
               NAME = N'main-Full'",
        );
        // This driver does not show information messages.
        let hears = name != "tiberius";
        let processed = |said: &[String], what: &str| {
            let told = |l: &String| l.starts_with(&format!("{what} successfully processed"));
            assert!(!hears || said.iter().any(told), "{name}: {said:#?}");
        };
        processed(&said, "BACKUP DATABASE");
        stage.mark(1);
        processed(
            &says("BACKUP LOG [main] TO DISK = N'N_log.trn' WITH CHECKSUM, INIT"),
            "BACKUP LOG",
        );
        stage.mark(2);
        let said = says(
            "BACKUP DATABASE [main] TO DISK = N'N_diff.bak' WITH DIFFERENTIAL, CHECKSUM, INIT",
        );
        processed(&said, "BACKUP DATABASE WITH DIFFERENTIAL");
        stage.mark(3);
        let stop_at = stage.now();
        stage.mark(4);
        processed(
            &says("BACKUP LOG [main] TO DISK = N'N_log.trn' WITH CHECKSUM"),
            "BACKUP LOG",
        );
        says(
            "RESTORE VERIFYONLY FROM DISK = N'N_full.bak' WITH CHECKSUM;
             RESTORE VERIFYONLY FROM DISK = N'N_log.trn' WITH FILE = 2",
        );
        let rows = says(
            "SET NOCOUNT ON; SELECT type FROM msdb.dbo.backupset AS s
               JOIN msdb.dbo.backupmediafamily AS f ON f.media_set_id = s.media_set_id
               WHERE f.physical_device_name LIKE '%N_%' ORDER BY s.backup_set_id",
        );
        let kinds: Vec<_> = rows.iter().filter(|l| l.len() == 1).collect();
        assert_eq!(kinds, ["D", "L", "I", "L"], "{name}");

        let place = stage.path(name).display().to_string();
        let copy = format!("copy_{name}");
        let restore = [
            format!(
                "RESTORE DATABASE {copy} FROM DISK = N'{name}_full.bak'
                   WITH MOVE N'main' TO N'{place}', NORECOVERY, STATS = 50"
            ),
            format!("RESTORE DATABASE {copy} FROM DISK = N'{name}_diff.bak' WITH NORECOVERY"),
        ];
        processed(&done(&client, &served, &restore), "RESTORE DATABASE");
        let state = format!("SELECT state_desc FROM sys.databases WHERE name = '{copy}'");
        assert_eq!(says(&state).last().unwrap(), "RESTORING", "{name}");
        let last = format!(
            "RESTORE LOG {copy} FROM DISK = N'{name}_log.trn' WITH FILE = 2, STOPAT = N'{stop_at}', RECOVERY"
        );
        processed(&says(&last), "RESTORE LOG");
        assert_eq!(says(&state).last().unwrap(), "ONLINE", "{name}");
        let restored = stage.recovered(name);
        assert_eq!(markers(&restored), "1 2 3", "{name}");
        restored.stop(Stop::Fast);
    }
}
