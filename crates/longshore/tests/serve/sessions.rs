//! Goal: drivers that ask for metadata, fetch in pieces, set savepoints and reflect tables do so as with SQL Server.
//! Method: each client runs one session of its own (`tests/clients`); the steps that say something about the server are
//! compared with what SQL Server's documentation describes.

use serde_json::{Value, json};

use crate::client::Client;
use crate::stage::Stage;

/// The value that a client wrote for a step.
fn of<'a>(lines: &'a [Value], step: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["step"] == step);
    found.map_or_else(|| panic!("no {step} in {lines:#?}"), |line| &line["value"])
}

fn compare(who: &str, lines: &[Value], expected: &[(&str, Value)]) {
    for (step, value) in expected {
        assert_eq!(of(lines, step), value, "{who}: {step}");
    }
}

/// A client's lines, run in a directory of its own with a server of its own.
fn session(client: &Client, env: &[(&str, &str)]) -> Vec<Value> {
    let stage = Stage::new();
    let server = stage.server(&[]);
    client.run(&server, env, "")
}

/// By each driver for ODBC that is there.
fn over_odbc(client: &Client) -> Vec<(&'static str, Vec<Value>)> {
    let drivers = [
        ("FreeTDS", Client::freetds_driver()),
        ("Microsoft", Client::microsoft_driver()),
    ];
    let known = drivers
        .into_iter()
        .filter_map(|(who, path)| Some((who, path?)));
    known
        .map(|(who, path)| (who, session(client, &[("DRIVER", path.to_str().unwrap())])))
        .collect()
}

#[test]
fn odbc_has_its_catalogs_transactions_progress_and_cancel() {
    let Some(client) = Client::odbc() else {
        return;
    };
    for (who, lines) in over_odbc(&client) {
        let called = of(&lines, "call").as_array().unwrap();
        assert!(called.contains(&json!("show advanced options")), "{who}");
        compare(
            who,
            &lines,
            &[
                ("tables", json!([["shop", "dbo", "ledger", "TABLE"]])),
                ("primary", json!([["id", 1]])),
                ("foreign", json!([["id", "ledger"]])),
                ("types", json!(true)),
                ("procedures", json!(["doubled;1"])),
                (
                    "row",
                    json!(["Ωmega", "1.50", "2026-03-01 22:15:04", "abc"]),
                ),
                ("pieces", json!([4, 5])),
                ("transaction", json!([5, 10])),
                ("cancelled", json!(true)),
                ("after", json!(7)),
                ("error", json!(true)),
            ],
        );
        // pyodbc gives Microsoft's driver a name that is none, and FreeTDS's leaves out empty names.
        match who {
            "FreeTDS" => assert_eq!(of(&lines, "best"), &json!(["id"])),
            _ => {
                let kinds = json!(["SYSTEM TABLE", "TABLE", "VIEW"]);
                assert_eq!(of(&lines, "kinds"), &kinds);
            }
        }
        let columns = of(&lines, "columns");
        assert_eq!(columns[0], json!(["id", 4, "int identity", 10, 0]), "{who}");
        assert_eq!(columns[1], json!(["name", -9, "nvarchar", 40, 0]), "{who}");
        assert_eq!(columns[2], json!(["amount", 2, "numeric", 10, 1]), "{who}");
        let databases = of(&lines, "databases").as_array().unwrap();
        assert!(databases.contains(&json!("shop")), "{who}");
        let said = of(&lines, "backup").as_str().unwrap();
        assert!(
            said.contains("BACKUP DATABASE successfully processed"),
            "{who}: {said}"
        );
    }
}

#[test]
fn sqlalchemy_makes_inspects_changes_and_reflects_tables() {
    let Some(client) = Client::sqlalchemy() else {
        return;
    };
    let mut all = over_odbc(&client);
    all.push(("pymssql", session(&client, &[])));
    for (who, lines) in all {
        compare(
            who,
            &lines,
            &[
                ("schema", json!("dbo")),
                ("tables", json!(["entry", "ledger"])),
                ("primary", json!(["id"])),
                ("foreign", json!([["of_ledger", "ledger", ["ledger"]]])),
                ("indexes", json!([])),
                ("has", json!([true, false])),
                ("page", json!(["Ω1", "Ω2"])),
                ("first", json!("changed")),
                ("savepoint", json!([0, 5])),
                ("rollback", json!(5)),
                ("reflected", json!(["entry", "ledger"])),
                ("dropped", json!([])),
            ],
        );
        let columns = of(&lines, "columns");
        assert_eq!(columns[0], json!(["id", "INTEGER", false]), "{who}");
        assert_eq!(columns[1], json!(["name", "NVARCHAR(40)", false]), "{who}");
        assert_eq!(columns[2], json!(["amount", "NUMERIC(10,", true]), "{who}");
    }
}

#[test]
fn jdbc_has_its_metadata_keys_limits_and_savepoints() {
    let Some(client) = Client::jdbc_session() else {
        return;
    };
    let stage = Stage::new();
    let server = stage.server(&[]);
    let url = format!(
        "jdbc:sqlserver://127.0.0.1:{};databaseName=shop;trustServerCertificate=true",
        server.port
    );
    let lines = client.run(&server, &[("JDBC_URL", &url)], "");
    let text = |value: &str| Value::from(value);
    compare(
        "mssql-jdbc",
        &lines,
        &[
            ("tables", text("[shop/dbo/ledger/TABLE]")),
            ("kinds", text("[SYSTEM TABLE, TABLE, VIEW]")),
            (
                "columns",
                text(
                    "[id/int identity/10/0, name/nvarchar/40/0, amount/numeric/10/1, at/datetime2/27/1]",
                ),
            ),
            ("primary", text("[id/1]")),
            ("imported", text("[ledger/id/entry/ledger]")),
            ("exported", text("[ledger/id/entry/ledger]")),
            ("best", text("[id]")),
            ("types", text("true")),
            ("procedures", text("[doubled;1]")),
            ("parameters", text("[@RETURN_VALUE/5, @a/1, @b/2]")),
            ("privileges", text("5")),
            ("keys", text("[1, 2, 3, 4, 5, 6, 7, 8, 9]")),
            ("described", text("int nvarchar numeric")),
            ("limited", text("3 9")),
            ("called", text("7 42")),
            ("savepoints", text("5 9")),
        ],
    );
    // A cursor of the driver is refused by its name.
    let scrolled = of(&lines, "scrolled").as_str().unwrap();
    assert!(scrolled.contains("sp_cursoropen"), "{scrolled}");
}

#[test]
fn a_driver_that_is_too_old_is_told_so() {
    let Some(client) = Client::jtds() else {
        return;
    };
    let stage = Stage::new();
    let server = stage.server(&[]);
    let url = format!("jdbc:jtds:sqlserver://127.0.0.1:{}/shop", server.port);
    let output = client
        .command(&server, &[("JDBC_URL", &url)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("TDS 7.1 is not spoken here"), "{said}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn knex_builds_what_this_server_runs() {
    let Some(client) = Client::knex() else {
        return;
    };
    let lines = session(&client, &[]);
    compare(
        "knex",
        &lines,
        &[
            ("has", json!([true, false])),
            ("ids", json!([1, 2, 3])),
            ("page", json!(["Ω2"])),
            ("rollback", json!(3)),
            ("savepoint", json!(5)),
            ("columns", json!(["amount", "id", "name"])),
            ("backup", json!(true)),
        ],
    );
}
