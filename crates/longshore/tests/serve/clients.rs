//! Goal: third-party clients receive what `longshore sql` prints.
//! Method: each client runs the scripts of the SQL tests. The clients are small programs over drivers
//! (`tests/clients`), installed by `scripts/setup.sh`.

use serde_json::Value;

use crate::answers::{is_some_percent, mask, scripts};
use crate::client::Client;
use crate::stage::{PASSWORD, Stage, USER};

/// The results of one of a script's statements.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    Message {
        /// `None`: the driver does not report it.
        number: Option<u64>,
        is_error: bool,
        state: u64,
        line: u64,
        text: String,
    },
    Rows {
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

/// Parts of a script run one after another, with a restart between them.
const SCRIPTS: &[&[&str]] = &[
    &["tour-1-enable", "tour-2-alter", "tour-3-backup"],
    &["tuning"],
    &["sweep"],
    &["maintenance"],
    &["negative"],
];

/// The batches of a script, with the variables that it sets.
fn batches(script: &str) -> Vec<String> {
    let mut batches = vec![String::new()];
    let mut variables = Vec::new();
    for line in script.lines() {
        if let Some(set) = line.strip_prefix(":setvar ") {
            let (name, value) = set.split_once(' ').unwrap();
            variables.push((format!("$({name})"), value.trim_matches('"').to_owned()));
            continue;
        }
        if line.trim().eq_ignore_ascii_case("GO") {
            batches.push(String::new());
            continue;
        }
        let mut line = line.to_owned();
        for (name, value) in &variables {
            line = line.replace(name, value);
        }
        let batch = batches.last_mut().unwrap();
        *batch += &line;
        *batch += "\n";
    }
    batches.retain(|b| !b.trim().is_empty());
    batches
}

/// Masks what depends on the moment, the stage and the login.
fn cleaned(stage: &Stage, cell: &str) -> String {
    let here = stage.dir.path().display().to_string();
    let cell = mask(cell).replace(&here, "HERE");
    let is_id = cell.len() == 36 && cell.bytes().filter(|b| *b == b'-').count() == 4;
    match is_id {
        true => "ID".to_owned(),
        false => cell,
    }
}

fn message(stage: &Stage, json: &Value, class: &str) -> Option<Item> {
    let text = json["text"].as_str().or(json["message"].as_str())?;
    // How often progress is reported depends on the machine.
    (!is_some_percent(text)).then(|| Item::Message {
        number: json["number"].as_u64(),
        is_error: json[class].as_u64() > Some(10),
        state: json["message_state"]
            .as_u64()
            .or(json["state"].as_u64())
            .unwrap_or(0),
        line: json["line"].as_u64().unwrap_or(0),
        text: cleaned(stage, text),
    })
}

fn cells(stage: &Stage, row: &Value) -> Vec<String> {
    let cell = |cell: &Value| match cell {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => cleaned(stage, text),
        other => cleaned(stage, &other.to_string()),
    };
    row.as_array().unwrap().iter().map(cell).collect()
}

/// The output of `longshore sql` for a script.
fn expected(stage: &Stage, script: &str) -> Vec<Item> {
    let path = scripts().join(format!("{script}.sql"));
    let output = stage
        .command(&["--json", "sql", "-i", path.to_str().unwrap()])
        .output()
        .unwrap();
    let answer = longshore_kit::program::answer(&output);
    let said = answer["said"].as_array().unwrap();
    said.iter()
        .filter_map(|said| match said.get("row_values") {
            None => message(stage, said, "severity"),
            Some(rows) => Some(Item::Rows {
                columns: said["columns"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|c| c["name"].as_str().unwrap().to_owned())
                    .collect(),
                rows: rows
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|row| cells(stage, row))
                    .collect(),
            }),
        })
        .collect()
}

/// The results that a client received.
fn heard(stage: &Stage, lines: &[Value]) -> Vec<Item> {
    let mut items = Vec::new();
    for line in lines {
        assert!(line.get("lost").is_none(), "{line}");
        if let Some(columns) = line.get("columns") {
            let columns = columns.as_array().unwrap().iter();
            items.push(Item::Rows {
                columns: columns.map(|c| c.as_str().unwrap().to_owned()).collect(),
                rows: Vec::new(),
            });
        } else if let Some(row) = line.get("row") {
            let Some(Item::Rows { rows, .. }) = items.last_mut() else {
                panic!("a row without columns: {line}");
            };
            rows.push(cells(stage, row));
        } else if line.get("message").is_some() {
            items.extend(message(stage, line, "class"));
        }
    }
    items
}

/// Runs all scripts and compares the results with the expected ones, as far as `seen` says the driver shows them.
fn scripts_through(client: &Client, encrypt: &str, compare: impl Fn(&str, Vec<Item>, Vec<Item>)) {
    for parts in SCRIPTS {
        let (ours, theirs) = (Stage::new(), Stage::new());
        for script in *parts {
            let expected = expected(&ours, script);
            let server = theirs.server(&[]);
            let path = scripts().join(format!("{script}.sql"));
            let batches = batches(&std::fs::read_to_string(path).unwrap());
            let input = serde_json::to_string(&batches).unwrap();
            let lines = client.run(&server, &[("TDS_ENCRYPT", encrypt)], &input);
            let ended = lines.iter().filter(|l| l.get("ended").is_some()).count();
            assert_eq!(ended, batches.len(), "{script}");
            compare(script, expected, heard(&theirs, &lines));
        }
    }
}

fn same(script: &str, expected: &[Item], heard: &[Item]) {
    for (i, (expected, heard)) in expected.iter().zip(heard).enumerate() {
        assert_eq!(heard, expected, "{script}, answer {i}");
    }
    assert_eq!(heard.len(), expected.len(), "{script}");
}

/// A line of sqlcmd's and the same one of `longshore sql`: they count one row differently, and sqlcmd truncates long
/// cells.
fn is_same_line(sqlcmd: &str, ours: &str) -> bool {
    let cell = |line: &str| line.rsplit('|').next().unwrap_or_default().chars().count();
    match ours == "(1 rows affected)" {
        true => sqlcmd == "(1 row affected)",
        false => sqlcmd == ours || (ours.starts_with(sqlcmd) && cell(ours) > CELL_MAX),
    }
}

/// Characters of a cell that sqlcmd shows of texts without a length.
const CELL_MAX: usize = 256;

#[test]
fn sqlcmd_shows_what_the_other_door_shows() {
    let Some(sqlcmd) = Client::sqlcmd() else {
        return;
    };
    for parts in SCRIPTS {
        let stage = Stage::new();
        let here = stage.dir.path().display().to_string();
        let host = longshore_facts::host_name();
        for script in *parts {
            let server = stage.server(&[]);
            let output = std::process::Command::new(&sqlcmd)
                .args(["-S", &format!("127.0.0.1,{}", server.port)])
                .args(["-U", USER, "-P", PASSWORD, "-C", "-W", "-s", "|", "-i"])
                .arg(scripts().join(format!("{script}.sql")))
                .current_dir(stage.dir.path())
                .env("HOME", stage.dir.path())
                .output()
                .unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let said = said + &String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{script}: {said}");
            // Blank lines differ around results that an error ends.
            let lines = |text: &str| -> Vec<String> {
                let lines = text.lines().map(str::trim_end);
                lines
                    .filter(|line| !line.is_empty() && !is_some_percent(line))
                    .map(|line| {
                        let line = line.replace(&format!("Server {host},"), "Server S,");
                        mask(&line.replace(&here, "HERE"))
                    })
                    .collect()
            };
            let kept = std::fs::read_to_string(scripts().join(format!("{script}.out"))).unwrap();
            let (kept, said) = (lines(&kept), lines(&said));
            for (said, kept) in said.iter().zip(&kept) {
                assert!(is_same_line(said, kept), "{script}:\n{said}\n{kept}");
            }
            assert_eq!(said.len(), kept.len(), "{script}: {said:#?}");
        }
    }
}

#[test]
fn tedious_hears_what_the_other_door_says() {
    let Some(client) = Client::tedious() else {
        return;
    };
    scripts_through(&client, "on", |script, expected, heard| {
        same(script, &expected, &heard);
    });
}

#[test]
fn go_mssqldb_hears_what_the_other_door_says() {
    let Some(client) = Client::go() else {
        return;
    };
    scripts_through(&client, "off", |script, expected, heard| {
        same(script, &expected, &heard);
    });
}

#[test]
fn pymssql_hears_what_the_other_door_says() {
    let Some(client) = Client::pymssql() else {
        return;
    };
    scripts_through(&client, "on", |script, expected, heard| {
        let mut next = expected.iter().skip(1);
        let mut seen = Vec::new();
        for mut item in expected.clone() {
            // An error comes before a result set that it ended without a row.
            let failed = matches!(next.next(), Some(Item::Message { is_error: true, .. }));
            match &mut item {
                Item::Rows { rows, .. } if failed && rows.is_empty() => continue,
                // DB-Library's handler of messages is not told their numbers.
                Item::Message { number, .. } => *number = None,
                Item::Rows { .. } => {}
            }
            seen.push(item);
        }
        let expected = seen;
        same(script, &expected, &heard);
    });
}

#[test]
fn mssql_jdbc_hears_what_the_other_door_says() {
    let Some(client) = Client::jdbc() else {
        return;
    };
    scripts_through(&client, "on", |script, expected, heard| {
        same(script, &expected, &heard);
    });
}

/// The driver does not show information messages, and leaves a batch at its first error.
#[test]
fn tiberius_hears_what_the_other_door_says() {
    let Some(client) = Client::tiberius() else {
        return;
    };
    scripts_through(&client, "on", |script, expected, heard| {
        let shown = |item: &&Item| match item {
            Item::Message { is_error, .. } => *is_error,
            Item::Rows { .. } => true,
        };
        let mut rest = expected.iter().filter(shown);
        for item in &heard {
            assert!(rest.any(|e| e == item), "{script}: {item:?}\n{expected:#?}");
        }
        let results = |items: &[Item]| {
            let rows = items.iter().filter(|i| matches!(i, Item::Rows { .. }));
            rows.count()
        };
        assert_eq!(results(&heard), results(&expected), "{script}");
    });
}

/// `output` of a line, or its row's first cell.
fn has(lines: &[Value], wanted: &Value) {
    assert!(
        lines.iter().any(|line| line == wanted),
        "{wanted} is not in {lines:#?}"
    );
}

#[test]
fn parameters_become_variables_of_the_batch() {
    use serde_json::json;
    let clients = [
        ("tedious", Client::tedious()),
        ("go", Client::go()),
        ("pymssql", Client::pymssql()),
        ("tiberius", Client::tiberius()),
        ("jdbc", Client::jdbc()),
    ];
    for (name, client) in clients {
        let Some(client) = client else {
            continue;
        };
        let stage = Stage::new();
        let server = stage.server(&[]);
        let setting = "EXEC sp_configure 'show advanced options', 1; RECONFIGURE";
        let set = stage
            .command(&["sql", "-b", "-Q", setting])
            .output()
            .unwrap();
        assert!(set.status.success());
        let lines = client.run(&server, &[("MODE", "parameters")], "[]");
        assert!(
            lines
                .iter()
                .all(|l| l["class"].as_u64() <= Some(10) && l.get("lost").is_none()),
            "{name}: {lines:#?}"
        );
        match name {
            "tedious" => {
                let id = "0E984725-C51C-4BF4-9960-E1C80E27ABA0";
                has(
                    &lines,
                    &json!({"row": ["Ωmega", "42", "2026-03-01 22:15:04.120", id]}),
                );
                has(&lines, &json!({"output": "n", "value": "42"}));
                has(
                    &lines,
                    &json!({"row": ["media retention", "0", "365", "0", "0"]}),
                );
            }
            "go" => {
                has(
                    &lines,
                    &json!({"row": ["Ωmega", "42", "2026-03-01 22:15:04.120"]}),
                );
                has(&lines, &json!({"row": ["1"]}));
            }
            "jdbc" => {
                let row = json!({"row": ["Ωmega", "42", "2026-03-01 22:15:04.120"]});
                let prepared = lines.iter().filter(|l| **l == row).count();
                assert_eq!(prepared, 3, "{lines:#?}");
                has(
                    &lines,
                    &json!({"row": ["media retention", "0", "365", "0", "0"]}),
                );
                has(&lines, &json!({"row": ["1"]}));
            }
            "pymssql" => {
                has(&lines, &json!({"row": ["Ωmega", "42", "1", "shop"]}));
                has(
                    &lines,
                    &json!({"row": ["media retention", "0", "365", "0", "0"]}),
                );
            }
            _ => has(&lines, &json!({"row": ["Ωmega", "42"]})),
        }
        // Of the prepared statements, one wrote a set.
        assert_eq!(
            stage.path("prepared.bak").exists(),
            name != "pymssql",
            "{name}"
        );
    }
}

#[test]
fn clients_cancel_a_backup_and_continue() {
    let clients = [Client::tedious(), Client::go(), Client::jdbc()];
    for client in clients.into_iter().flatten() {
        let stage = Stage::new();
        stage.grow();
        let server = stage.server(&[]);
        let slow = "BACKUP DATABASE shop TO DISK = 'slow.bak' WITH STATS = 1, MAX_RATE = 1000000";
        let input = serde_json::to_string(&[slow, "SELECT 7 AS seven"]).unwrap();
        let lines = client.run(&server, &[("MODE", "cancel")], &input);
        has(&lines, &serde_json::json!({"row": ["7"]}));
        let finished = |l: &Value| {
            let said = l["message"].as_str().unwrap_or_default();
            said.contains("successfully processed")
        };
        assert!(!lines.iter().any(finished), "{lines:#?}");
        assert!(stage.leftovers("slow").is_empty());
    }
}

#[test]
fn clients_with_a_wrong_password_get_the_login_error() {
    let clients = [
        Client::tedious(),
        Client::go(),
        Client::pymssql(),
        Client::tiberius(),
        Client::jdbc(),
    ];
    let stage = Stage::new();
    for client in clients.into_iter().flatten() {
        // Each further failure from one address waits longer, so each client has its own server.
        let server = stage.server(&[]);
        let lines = client.run(&server, &[("TDS_PASSWORD", "wrong")], "[]");
        let refused = lines[0]["refused"].as_str().unwrap();
        assert!(refused.contains("Login failed for user 'ada'"), "{refused}");
    }
}

/// The five types as each driver shows them; tiberius shows days and units.
const MOMENTS: [&[&str]; 5] = [
    &["2026-11-22", "739941"],
    &["13:45:07.123", "495071234567"],
    &["2026-11-22 13:45:07.123", "739941"],
    &["13:45:07", "08:15:07", "739941"],
    &["2026-11-22 13:45:00", "46346"],
];

#[test]
fn clients_read_the_types_of_moments_as_what_they_are() {
    let clients = [
        ("tedious", Client::tedious()),
        ("go", Client::go()),
        ("pymssql", Client::pymssql()),
        ("tiberius", Client::tiberius()),
        ("jdbc", Client::jdbc()),
    ];
    let query = "SELECT CAST('2026-11-22 13:45' AS date) AS d, CAST('13:45:07.1234567' AS time) AS t, \
        CAST('2026-11-22 13:45:07.123' AS datetime2(3)) AS at, \
        CAST('2026-11-22 13:45:07 +05:30' AS datetimeoffset(0)) AS o, \
        CAST('2026-11-22 13:45:07' AS smalldatetime) AS s";
    let nulls = "SELECT CAST(NULL AS date) AS d, CAST(NULL AS time) AS t, CAST(NULL AS datetime2) AS at, \
        CAST(NULL AS datetimeoffset) AS o, 7 AS n";
    let stage = Stage::new();
    let server = stage.server(&[]);
    let input = serde_json::to_string(&[query, nulls]).unwrap();
    for (name, client) in clients {
        let Some(client) = client else {
            continue;
        };
        let lines = client.run(&server, &[], &input);
        let rows: Vec<_> = lines.iter().filter_map(|l| l["row"].as_array()).collect();
        assert_eq!(rows.len(), 2, "{name}: {lines:#?}");
        for (cell, shown) in rows[0].iter().zip(MOMENTS) {
            let cell = cell.as_str().unwrap();
            assert!(shown.iter().any(|s| cell.contains(s)), "{name}: {cell}");
        }
        assert_eq!(rows[1][4], "7", "{name}: {lines:#?}");
    }
}
