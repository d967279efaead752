//! Goal: scripts give the texts that administrators expect, through the real program.
//! Method: the output is compared line by line with the text kept next to each script. The scripts are ours, modelled
//! on what administrators use. Times, rates and the machine's name are masked; `LONGSHORE_WRITE_ANSWERS=1` rewrites the
//! kept texts, to be read before they are committed.

#[path = "../common/mod.rs"]
mod common;

mod answers;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use answers::{is_some_percent, mask, scripts, shop};
use common::{longshore, longshore_in, text};

/// A directory with the databases `shop` and `stock`, and the configuration that names them.
struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        Stage { dir: shop() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = longshore_in(self.dir.path(), &["sql"]);
        command.args(args);
        command
    }

    fn sql(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The masked answer to a script.
    fn answer(&self, script: &str) -> String {
        let script = scripts().join(script);
        let output = self.sql(&["-W", "-s", "|", "-i", script.to_str().unwrap()]);
        let said = text(&output.stdout);
        let aside = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}{aside}");
        self.masked(&said)
    }

    fn masked(&self, said: &str) -> String {
        let host = longshore_facts::host_name();
        let here = self.dir.path().display().to_string();
        said.lines()
            .filter(|line| !is_some_percent(line))
            .map(|line| {
                mask(line)
                    .replace(&format!("Server {host},"), "Server S,")
                    .replace(&here, "HERE")
            })
            .collect::<Vec<_>>()
            .join("\n")
            + "\n"
    }

    fn check(&self, name: &str) {
        let answer = self.answer(&format!("{name}.sql"));
        let kept = scripts().join(format!("{name}.out"));
        if std::env::var_os("LONGSHORE_WRITE_ANSWERS").is_some() {
            std::fs::write(&kept, &answer).unwrap();
        }
        let expected = std::fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            answer == expected,
            "{name}:\n{answer}\n--- kept:\n{expected}"
        );
    }
}

#[test]
fn a_tour_of_an_accelerated_backup() {
    let stage = Stage::new();
    stage.check("tour-1-enable");
    stage.check("tour-2-alter");
    stage.check("tour-3-backup");
    let copy = rusqlite::Connection::open(stage.path("copy.db")).unwrap();
    let rows: i64 = copy
        .query_row("SELECT count(*) FROM ware", [], |r| r.get(0))
        .unwrap();
    assert_eq!(rows, 500);
}

#[test]
fn tuning_with_nul_and_the_trace_of_buffers() {
    Stage::new().check("tuning");
}

#[test]
fn thirty_seven_backups_of_a_sweep() {
    Stage::new().check("sweep");
}

#[test]
fn the_statements_of_maintenance_procedures() {
    Stage::new().check("maintenance");
}

#[test]
fn a_maintenance_solution_installs_once_and_runs() {
    let stage = Stage::new();
    stage.check("solution");
    // The next program finds its procedures and its table.
    let again = stage.sql(&[
        "-W",
        "-h",
        "-1",
        "-Q",
        "EXEC dbo.BackupAll 'shop'; SELECT COUNT(*) FROM WorkLog",
    ]);
    assert!(
        text(&again.stdout).contains("Outcome: Succeeded"),
        "{}",
        text(&again.stdout)
    );
    assert!(text(&again.stdout).lines().any(|line| line == "4"));
}

#[test]
fn everyday_reports_and_procedures() {
    Stage::new().check("everyday");
}

#[test]
fn diagnostics_and_maintenance_plans() {
    Stage::new().check("diagnostics");
}

/// Goal: the exit code of a job's step is what its last query says, and sqlcmd's own variables are there.
#[test]
fn a_query_of_exit_decides_the_exit_code() {
    let stage = Stage::new();
    for (script, code, said) in [
        ("PRINT 'before'\nEXIT(SELECT 0)\nPRINT 'after'", 0, "before"),
        (
            "EXIT(SELECT COUNT(*) FROM sys.databases WHERE name = 'shop')",
            1,
            "1",
        ),
        (
            "EXIT(SELECT n FROM nowhere)",
            1,
            "Invalid object name 'nowhere'.",
        ),
        ("PRINT '$(SQLCMDDBNAME)'\nGO\nEXIT()", 0, "shop"),
    ] {
        std::fs::write(stage.path("exit.sql"), script).unwrap();
        let output = stage.sql(&["-d", "shop", "-h", "-1", "-W", "-i", "exit.sql"]);
        let heard = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{script}: {heard}");
        assert!(
            heard.contains(said) && !heard.contains("after"),
            "{script}: {heard}"
        );
    }
    // Tabs and lines of a value are printed as they are, other control characters are not.
    let output = stage.sql(&[
        "-h",
        "-1",
        "-W",
        "-Q",
        "SELECT 'a' + CHAR(9) + 'b' + CHAR(13) + CHAR(10) + 'c' + CHAR(27)",
    ]);
    let heard = text(&output.stdout);
    assert!(heard.contains("a\tb\nc\u{fffd}\n"), "{heard:?}");
}

#[test]
fn refusals_are_those_of_the_real_server() {
    let stage = Stage::new();
    stage.check("negative");
    for name in ["n.bak", "m.bak", "o.bak", "ok2.bak", "x.db"] {
        assert!(!stage.path(name).exists(), "{name}");
    }
    let shop = rusqlite::Connection::open(stage.path("shop.db")).unwrap();
    let rows: i64 = shop
        .query_row("SELECT count(*) FROM ware", [], |r| r.get(0))
        .unwrap();
    assert_eq!(rows, 500);
}

/// Goal: errors of the script's own end it as they end a script of sqlcmd.
#[test]
fn raised_errors_end_a_script_as_sqlcmd_does() {
    let stage = Stage::new();
    for (args, script, code, last) in [
        (&[][..], "RAISERROR ('bad', 16, 1)\nGO\nPRINT 'on'", 0, "on"),
        (
            &["-b"][..],
            "RAISERROR ('bad', 16, 1)\nGO\nPRINT 'on'",
            1,
            "bad",
        ),
        (
            &["-b"][..],
            "RAISERROR ('good', 10, 1)\nGO\nPRINT 'on'",
            0,
            "on",
        ),
        (
            &["-b"][..],
            "THROW 50001, 'bad', 1\nGO\nPRINT 'on'",
            1,
            "bad",
        ),
        // The state 127 ends a script whatever its severity, and so does a fatal message.
        (
            &[][..],
            "RAISERROR ('enough', 10, 127)\nGO\nPRINT 'on'",
            1,
            "enough",
        ),
        (
            &[][..],
            "RAISERROR ('fatal', 20, 1) WITH LOG\nGO\nPRINT 'on'",
            1,
            "Cannot continue the execution because the session is in the kill state.",
        ),
    ] {
        let file = stage.path("script.sql");
        std::fs::write(&file, script).unwrap();
        let file = file.to_str().unwrap();
        let output = stage.sql(&[args, &["-i", file]].concat());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{script}: {said}");
        assert_eq!(said.lines().last(), Some(last), "{script}");
    }
}

/// Goal: a pipe to `head` cuts a batch, and nobody takes that for a finished backup, with whichever options.
#[test]
fn a_reader_that_goes_away_ends_the_batch_with_a_failure() {
    use std::io::{BufRead, BufReader};
    let stage = Stage::new();
    let db = rusqlite::Connection::open(stage.path("shop.db")).unwrap();
    db.execute_batch("CREATE TABLE large (x); INSERT INTO large VALUES (randomblob(3000000))")
        .unwrap();
    for options in [&["-b"][..], &["-b", "-t", "600"], &[]] {
        let batch = "BACKUP DATABASE shop TO DISK = 'cut.bak' \
            WITH STATS = 1, MAXTRANSFERSIZE = 65536, MAX_RATE = 500000";
        let mut command = stage.command(&["-Q", batch]);
        command.args(options);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut first = String::new();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut first).unwrap();
        assert!(first.contains("percent processed"), "{first}");
        drop(reader);
        let ended = child.wait_with_output().unwrap();
        let aside = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{options:?}: {aside}");
        assert!(aside.contains("the batch was ended"), "{aside}");
        let names = std::fs::read_dir(stage.dir.path()).unwrap();
        let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.contains("cut.bak")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn exit_codes_and_streams_are_those_that_scripts_expect() {
    let stage = Stage::new();
    let bad = "BACKUP DATABASE nowhere TO DISK = 'x.bak'";
    let unnoticed = stage.sql(&["-Q", bad]);
    assert_eq!(unnoticed.status.code(), Some(0));
    assert!(text(&unnoticed.stderr).contains("Run with -b"));
    let noticed = stage.sql(&["-b", "-Q", bad]);
    assert_eq!(noticed.status.code(), Some(1));
    let hint = text(&noticed.stderr);
    assert!(
        hint.starts_with("hint: ") && hint.lines().count() == 1,
        "{hint}"
    );
    assert_eq!(text(&stage.sql(&["-Q", "PRINT 1"]).stderr), "");
    assert_eq!(stage.sql(&["-b", "-Q", "PRINT 1"]).status.code(), Some(0));
    let output = stage.sql(&["-r", "0", "-Q", &format!("PRINT 'here' {bad}")]);
    assert_eq!(text(&output.stdout), "here\n");
    assert!(text(&output.stderr).starts_with("Msg 911, Level 16, State 11, Server "));
    let lost = stage.sql(&[
        "-d",
        "nowhere",
        "-Q",
        "BACKUP DATABASE shop TO DISK = 'd.bak'",
    ]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(!stage.path("d.bak").exists());
    let long = format!("SELECT 1 AS [{}]", "n".repeat(70_000));
    assert_eq!(stage.sql(&["-Q", &long]).status.code(), Some(0));
    assert_eq!(stage.sql(&["-i", "missing.sql"]).status.code(), Some(1));
    assert_eq!(
        stage.sql(&["-v", "novalue", "-Q", "PRINT 1"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_misspelt_option_is_refused_with_the_one_that_was_meant() {
    let query = "BACKUP DATABASE shop TO DISK = 'x.bak' WITH COMPRESION";
    let said = text(&Stage::new().sql(&["-Q", query]).stdout);
    let expected =
        "'COMPRESION' is not a recognized BACKUP option. Write COMPRESSION, if that was meant.";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_lone_h_is_refused_with_the_option_that_prints_the_help() {
    let output = Stage::new().sql(&["-h"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("`longshore sql -?` prints the help"),
        "{said}"
    );
}

/// `/dev/full` refuses every byte as a full disk does.
#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let stage = Stage::new();
    let full = || std::fs::File::options().write(true).open("/dev/full");
    let told = |output: &Output, what: &str| {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{what}: {said}");
        assert!(said.contains("because: "), "{said}");
    };
    // Files of this shell's programs may not grow by a byte.
    let without_room = |args: &[&str]| {
        let script = "ulimit -f 0; exec \"$0\" \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, common::BINARY, "--catalog", "none", "sql"]);
        shell.args(args).current_dir(stage.dir.path());
        shell.output().unwrap()
    };
    let print = ["-Q", "PRINT 'here'"];
    let into_file = without_room(&["-o", "said.txt", print[0], print[1]]);
    told(&into_file, "-o");
    assert_eq!(text(&into_file.stdout), "");
    let json = ["--json", print[0], print[1]];
    for args in [&print[..], &json[..]] {
        let mut command = stage.command(args);
        let output = command.stdout(full().unwrap()).output().unwrap();
        told(&output, &format!("{args:?}"));
    }
    // A line of the program's own is an answer, too.
    std::fs::write(stage.dir.path().join("help.sql"), ":help\n").unwrap();
    let help = without_room(&["-o", "said.txt", "-i", "help.sql"]);
    told(&help, "a line of the program's own");
    // Every command's.
    let mut script = longshore(["completions", "bash"]);
    let output = script.stdout(full().unwrap()).output().unwrap();
    told(&output, "completions");
    // There is no reader who could be told, and the exit code says that the answer was cut.
    let mut command = stage.command(&print);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn results_are_laid_out_as_sqlcmd_lays_them_out() {
    let stage = Stage::new();
    let query = "SELECT 'ab' AS t, 7 AS n, CAST(NULL AS int) AS nothing";
    let output = text(&stage.sql(&["-Q", query]).stdout);
    let expected = "t  n           nothing    \n-- ----------- -----------\nab           7        NULL\n\n(1 rows affected)\n";
    assert_eq!(output, expected);
    let bare = stage.sql(&[
        "-h",
        "-1",
        "-W",
        "-s",
        ",",
        "-Q",
        &format!("SET NOCOUNT ON {query}"),
    ]);
    assert_eq!(text(&bare.stdout), "ab,7,NULL\n\n");
}

#[test]
fn statements_come_from_standard_input_too_and_answers_as_json() {
    use std::io::Write;
    let stage = Stage::new();
    let mut child = stage
        .command(&["--json", "-v", "what=shop"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let script = "USE [$(what)]\nGO\nSELECT DB_NAME() AS d, 1 AS n\nGO 2\nexit\nPRINT 'never'\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let answer = common::answer(&output);
    assert_eq!(answer["status"], "ok");
    let said = answer["said"].as_array().unwrap();
    assert_eq!(said.len(), 3, "{answer}");
    assert_eq!(said[0]["number"], 5701);
    assert_eq!(said[1]["row_values"], serde_json::json!([["shop", 1]]));
}

#[test]
fn a_setting_changed_by_sql_counts_for_the_command_line() {
    let stage = Stage::new();
    let set = "EXEC sp_configure 'backup compression algorithm', 3; RECONFIGURE";
    assert_eq!(stage.sql(&["-b", "-Q", set]).status.code(), Some(0));
    let mut backup = longshore(["backup", "shop", "--to", "cli.bak", "--json"]);
    let output = backup
        .current_dir(stage.dir.path())
        .env("LONGSHORE_CONFIG", stage.path("longshore.toml"))
        .env("LONGSHORE_CATALOG", stage.path("state/catalog.db"))
        .output()
        .unwrap();
    assert_eq!(common::answer(&output)["run"]["plan"]["algorithm"], "ZSTD");
    let count = "SET NOCOUNT ON; SELECT COUNT(*) FROM msdb.dbo.backupset WHERE compression_algorithm = 'ZSTD'";
    let output = stage.sql(&["-h", "-1", "-W", "-Q", count]);
    assert_eq!(text(&output.stdout).trim(), "1");
}

#[test]
fn an_error_of_a_file_is_named_on_standard_error_with_the_next_step() {
    let stage = Stage::new();
    let script = "SELECT 1 AS n\nGO\nSELECT name\nFROM sys.databases\nWHERE = 1\nGO\n";
    std::fs::write(stage.path("q.sql"), script).unwrap();
    let file = stage.path("q.sql").display().to_string();
    let output = stage.sql(&["-i", &file, "-b"]);
    assert_eq!(output.status.code(), Some(1));
    // Standard output is sqlcmd's.
    let shown = text(&output.stdout);
    assert!(
        shown.contains(", Line 3\n") && !shown.contains("q.sql"),
        "{shown}"
    );
    let expected =
        format!("longshore: {file}: Msg 102, Line 3 of the batch that begins on line 3\nhint: ");
    let said = text(&output.stderr);
    assert!(said.starts_with(&expected), "{said}");
    let answer = common::answer(&stage.sql(&["-i", &file, "--json"]));
    let error = answer["said"].as_array().unwrap().last().unwrap();
    assert_eq!((&error["number"], &error["line"]), (&102.into(), &3.into()));
    assert_eq!(error["file"], file);
    assert!(error["hint"].is_string(), "{error}");
}

/// Goal: a step of a job with any of sqlcmd's options runs as without it, where the option has nothing to change here.
#[test]
fn options_of_sqlcmd_that_change_nothing_are_taken() {
    let stage = Stage::new();
    let plain = text(&stage.sql(&["-Q", "PRINT 1"]).stdout);
    for options in [
        &["-I"][..],
        &["-C"],
        &["-N"],
        &["-Ns"],
        &["-N", "o"],
        &["-N", "Mandatory"],
        &["-N", "true"],
        &["-Ndisable"],
        &["-R"],
        &["-t600", "-l5", "-a", "4096", "-I", "-C", "-b"],
        &["--quoted-identifiers", "--trust-server-certificate"],
        &["--regional-settings", "--encrypt-connection"],
    ] {
        let ran = stage.sql(&[options, &["-Q", "PRINT 1"]].concat());
        assert_eq!(ran.status.code(), Some(0), "{options:?}");
        assert_eq!(text(&ran.stdout), plain, "{options:?}");
    }
}

/// Goal: what sqlcmd refuses together is refused in its words, with the option to leave out.
#[test]
fn options_that_exclude_one_another_are_refused_in_sqlcmd_s_words() {
    let stage = Stage::new();
    std::fs::write(stage.path("one.sql"), "PRINT 'ran'\n").unwrap();
    let query = ["-Q", "PRINT 'ran'"];
    let words = "m[andatory] yes 1 t[rue] disable o[ptional] no 0 f[alse] s[trict]";
    for (args, expected) in [
        (
            &["-i", "one.sql"][..],
            "The -i and the -Q/-q options are mutually exclusive.",
        ),
        (
            &["-E", "-U", "sa"],
            "The -E and the -U/-P options are mutually exclusive.",
        ),
        (
            &["-W", "-Y", "9"],
            "The -W and the -y/-Y options are mutually exclusive.",
        ),
        (
            &["-W", "-y0"],
            "The -W and the -y/-Y options are mutually exclusive.",
        ),
        (
            &["-u", "-f", "i:1252,o:1252"],
            "The -u and the -f o: options are mutually exclusive.",
        ),
        (
            &["-N", "x"],
            &format!("'-N x': Unexpected argument. Argument value has to be one of [{words}]."),
        ),
    ] {
        let ran = stage.sql(&[args, &query].concat());
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(expected) && said.contains("hint: "), "{said}");
        assert_eq!(text(&ran.stdout), "", "{args:?}");
    }
    let ran = stage.sql(&["-i", "one.sql", "-q", "PRINT 'ran'"]);
    assert_eq!(ran.status.code(), Some(2));
}

/// Goal: a login is refused with what to do instead, and a password is shown nowhere.
#[test]
fn a_login_is_refused_and_its_password_is_not_shown() {
    let stage = Stage::new();
    for options in [
        &["-U", "sa", "-P", "verysecret"][..],
        &["-Usa"],
        &["-Pverysecret"],
        &["-U", "sa", "-P", "-verysecret"],
        &["-U", "sa", "-P--verysecret"],
        &["-P", "--verysecret"],
        &["--password=-verysecret"],
    ] {
        let ran = stage.sql(&[options, &["-Q", "PRINT 'ran'"]].concat());
        let said = text(&ran.stdout) + &text(&ran.stderr);
        assert_ne!(ran.status.code(), Some(0), "{said}");
        assert!(said.contains("has no logins"), "{said}");
        assert!(
            !said.contains("verysecret") && !said.contains("ran\n"),
            "{said}"
        );
    }
}

/// Goal: Ctrl-C ends the command also under a limit that has passed meanwhile or not.
#[test]
fn ctrl_c_ends_a_script_under_a_limit() {
    let stage = Stage::new();
    let script = stage.path("long.sql");
    let lines = "PRINT 'begun'\nGO\nWAITFOR DELAY '10:00:00'\nGO\nPRINT 'on'\nGO\n";
    std::fs::write(&script, lines).unwrap();
    let mut command = stage.command(&["-t", "3600", "-i", script.to_str().unwrap()]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    assert_eq!(first, "begun\n");
    let sent = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut lines, &mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(!rest.contains("on\n"), "{rest}");
}

/// Goal: files that two commands name by different ways are one, and nothing in them is lost.
#[test]
fn results_and_errors_go_to_one_file_that_both_name() {
    let stage = Stage::new();
    let file = stage.path("all.txt");
    let (script, shown) = (stage.path("one.sql"), file.to_str().unwrap());
    let indirect = format!("{}/./all.txt", stage.path("").to_str().unwrap());
    let lines = format!(
        ":out {shown}\n:error {indirect}\nPRINT 'one'\nGO\nSELECT * FROM nothing\nGO\nPRINT 'two'\nGO\n\
         :out stdout\nPRINT 'apart'\nGO\n:out {shown}\nPRINT 'three'\nGO\n:out STDERR\nPRINT 'aside'\nGO\n"
    );
    std::fs::write(&script, lines).unwrap();
    for options in [&[][..], &["-o", shown]] {
        let ran = stage.sql(&[options, &["-i", script.to_str().unwrap()]].concat());
        assert_eq!(text(&ran.stdout), "apart\n", "{}", text(&ran.stderr));
        assert!(text(&ran.stderr).contains("aside\n"));
        let all = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = all.lines().collect();
        assert!(
            lines[0] == "one" && lines[1].starts_with("Msg 208"),
            "{all}"
        );
        assert!(lines.contains(&"two") && lines.contains(&"three"), "{all}");
    }
}

/// Goal: a batch that takes too long ends, and the script goes on; with -b it ends, too.
#[test]
fn a_batch_that_takes_too_long_ends() {
    let stage = Stage::new();
    let script = stage.path("long.sql");
    std::fs::write(&script, "WAITFOR DELAY '10:00:00'\nGO\nPRINT 'on'\n").unwrap();
    let script = script.to_str().unwrap();
    let ran = stage.sql(&["-t", "1", "-i", script]);
    let said = text(&ran.stdout);
    assert!(said.contains("Timeout expired"), "{said}");
    assert!(said.ends_with("on\n"), "{said}");
    assert_eq!(ran.status.code(), Some(0));
    let ran = stage.sql(&["-t", "1", "-b", "-i", script]);
    assert!(!text(&ran.stdout).contains("on\n"));
    assert_eq!(ran.status.code(), Some(1));
}

/// Goal: results go where `-o`, `:out` and `:error` say, in the encoding that `-u` and `-f` say.
#[test]
fn results_go_to_files_in_their_encodings() {
    let stage = Stage::new();
    let file = |name: &str| stage.path(name).to_str().unwrap().to_owned();
    let (results, errors, wide) = (file("results.txt"), file("errors.txt"), file("wide.txt"));
    let script = stage.path("out.sql");
    let lines = format!(
        ":out {results}\n:error \"{errors}\"\nPRINT 'to a file'\nGO\nSELECT * FROM nothing\nGO\n\
         :out stdout\n:error stderr\nPRINT 'back'\nGO\n"
    );
    std::fs::write(&script, lines).unwrap();
    let ran = stage.sql(&["-i", script.to_str().unwrap()]);
    assert_eq!(text(&ran.stdout), "back\n", "{}", text(&ran.stderr));
    assert_eq!(std::fs::read_to_string(&results).unwrap(), "to a file\n");
    assert!(
        std::fs::read_to_string(&errors)
            .unwrap()
            .contains("Msg 208")
    );
    let ran = stage.sql(&["--unicode-output", "-o", &wide, "-Q", "PRINT NCHAR(233)"]);
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(
        std::fs::read(&wide).unwrap(),
        [0xff, 0xfe, 0xe9, 0, b'\n', 0]
    );
    let narrow = stage.path("narrow.sql");
    std::fs::write(&narrow, b"PRINT '\xe9'\n").unwrap();
    // -u says what the file of results is, and -f what the script is.
    for codepage in ["i:1252", "1252"] {
        let script = narrow.to_str().unwrap();
        let ran = stage.sql(&["-u", "-f", codepage, "-o", &wide, "-i", script]);
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        let bytes = std::fs::read(&wide).unwrap();
        assert_eq!(bytes, [0xff, 0xfe, 0xe9, 0, b'\n', 0], "{codepage}");
    }
    let ran = stage.sql(&["-f", "1252", "-i", narrow.to_str().unwrap()]);
    assert_eq!(ran.stdout, b"\xe9\n");
    let ran = stage.sql(&["-f", "437", "-Q", "PRINT 1"]);
    assert_ne!(ran.status.code(), Some(0));
    assert!(text(&ran.stderr).contains("-f 437"));
}
