//! Goal: in a unit of systemd, each long run has a line at its begin and its end, and an entry of the journal says in
//! fields what it is about.
//! Method: the program runs as in a unit, without a journal that answers or with one of the test (`common/journal.rs`).
//! Not covered: systemd's own journal.

use crate::common::journal::{Entry, UnitRun, Units, field};
use crate::repository::configured;
use crate::stage::Stage;

/// A stage whose database `sales` has a copy's target, too, and its units.
fn stage() -> (Stage, Units) {
    let stage = configured();
    let file = "no-config/longshore/longshore.toml";
    let other = stage.path("other").display().to_string();
    let text = std::fs::read_to_string(stage.path(file)).unwrap();
    let text = format!("{text}[target.other]\ndirectories = [\"{other}\"]\n");
    stage.write(file, text.as_bytes());
    std::fs::create_dir(stage.path("other")).unwrap();
    let units = Units::new(stage.path("journal"));
    (stage, units)
}

/// Runs a line with --quiet as a unit does.
fn line(stage: &Stage, units: &Units, line: &str) -> Option<UnitRun> {
    let words: Vec<_> = ["--quiet"].into_iter().chain(line.split(' ')).collect();
    units.run(&stage.command(&words), &stage.path(""))
}

/// Lines but for notes, which are printed in any case: on a busy machine commits may have waited.
fn lines(err: &str) -> Vec<&str> {
    let lines = err.lines();
    lines.filter(|line| !line.contains(": note: ")).collect()
}

#[test]
fn a_quiet_run_has_a_line_at_its_begin_and_its_end_in_the_journal_alone() {
    let (stage, mut units) = stage();
    units.listens = false;
    stage.database("p.db", 1);
    let stripes = "a.bak b.bak p.bak";
    let parity = "backup p.db --to a.bak --to b.bak --to p.bak --parity 1";
    stage.line(parity).exits(0);
    for (command, what, did) in [
        ("backup sales", "full backup 20", " MiB/s), "),
        (
            "verify --database sales",
            "verify of sales at target nightly",
            " MiB in ",
        ),
        (
            "verify --all --database sales",
            "verify all of sales at target nightly",
            "backups ",
        ),
        (
            "copy sales --to other",
            "copy of sales from target nightly to target other",
            "1 backups (",
        ),
        (
            "expire sales",
            "expire of sales at target nightly",
            "0 backups (",
        ),
        (
            "drill sales --work .",
            "drill of sales at target nightly",
            " is good (",
        ),
        (
            "restore --database sales --to out",
            "restore of sales at target nightly",
            ", to out",
        ),
        (
            &format!("repair {stripes}"),
            "repair of a.bak and 2 more",
            "All stripes are whole.",
        ),
    ] {
        let Some(told) = line(&stage, &units, command) else {
            return;
        };
        assert_eq!(told.code, 0, "{command}: {}", told.err);
        let found = lines(&told.err);
        let [first, last] = found[..] else {
            panic!("{command}: {}", told.err);
        };
        let head = format!("longshore: {what}");
        assert!(
            first.starts_with(&head) && first.ends_with(" begins"),
            "{first}"
        );
        let (subject, end) = last.split_once(" finished: ").unwrap();
        assert_eq!(first, format!("{subject} begins"));
        assert!(end.contains(did), "{last}");
    }
    let told = line(&stage, &units, "backup sales").unwrap();
    let last = lines(&told.err)[1];
    assert!(
        last.contains(" UTC, in ") && last.contains("disk1"),
        "{last}"
    );
    units.is_journal = false;
    for command in [
        "backup sales",
        "verify --all --database sales",
        "expire sales",
    ] {
        let silent = line(&stage, &units, command).unwrap();
        assert_eq!(lines(&silent.err), [""; 0], "{command}");
    }
}

#[test]
fn a_database_after_another_has_lines_of_its_own() {
    let (stage, mut units) = stage();
    units.listens = false;
    for name in ["sales", "docs"] {
        stage.line(&format!("backup {name}")).exits(0);
    }
    let Some(told) = line(&stage, &units, "verify --all") else {
        return;
    };
    let found = lines(&told.err);
    let begun = |name: &str| format!("longshore: verify all of {name} at target nightly begins");
    assert_eq!(found.len(), 4, "{}", told.err);
    assert_eq!((found[0], found[2]), (&*begun("docs"), &*begun("sales")));
}

#[test]
fn an_entry_of_the_journal_says_in_fields_what_it_is_about() {
    let (stage, units) = stage();
    let Some(told) = line(&stage, &units, "backup sales --verify") else {
        return;
    };
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    let runs: Vec<_> = told
        .entries
        .iter()
        .filter(|e| e["PRIORITY"] == "6")
        .collect();
    let [first, last] = runs[..] else {
        panic!("{:#?}", told.entries);
    };
    let label = &stage.names("disk1/sales")[0];
    for entry in [first, last] {
        for (name, value) in [
            ("SYSLOG_IDENTIFIER", "longshore"),
            ("LONGSHORE_TASK", "backup"),
            ("LONGSHORE_DATABASE", "sales"),
            ("LONGSHORE_TARGET", "nightly"),
            ("LONGSHORE_LABEL", label),
            ("LONGSHORE_TYPE", "full"),
        ] {
            assert_eq!(field(entry, name), value, "{name}: {entry:?}");
        }
    }
    let what = format!("full backup {label} of sales at target nightly");
    assert_eq!(first["MESSAGE"], format!("{what} begins"));
    assert!(last["MESSAGE"].starts_with(&format!("{what} finished: ")));
    assert_eq!(
        (
            field(first, "LONGSHORE_OUTCOME"),
            field(last, "LONGSHORE_OUTCOME")
        ),
        ("", "done")
    );
    // A SQLite database has no WAL positions.
    assert!(!last.contains_key("LONGSHORE_LAST_LSN"));
}

#[test]
fn warnings_and_errors_are_entries_of_their_priority_and_end_a_run_in_its_outcome() {
    let (stage, units) = stage();
    stage.line("backup sales").exits(0);
    stage.line("restore --database sales --to out").exits(0);
    let Some(told) = line(&stage, &units, "restore --database sales --to out") else {
        return;
    };
    assert_eq!((told.code, told.err.as_str()), (6, ""));
    let failed = told.entries.last().unwrap();
    assert_eq!(failed["PRIORITY"], "3", "{failed:?}");
    assert_eq!(failed["LONGSHORE_OUTCOME"], "target");
    assert_eq!(failed["LONGSHORE_DATABASE"], "sales");
    assert!(failed["MESSAGE"].starts_with("error "), "{failed:?}");
    assert!(failed["MESSAGE"].contains("\nhint: "), "{failed:?}");
    // A backup that fails before it has a label is of a database, too.
    std::fs::rename(stage.path("disk1"), stage.path("away")).unwrap();
    let told = line(&stage, &units, "backup sales").unwrap();
    let failed = told.entries.last().unwrap();
    assert_eq!(
        (told.code, field(failed, "LONGSHORE_OUTCOME")),
        (4, "media")
    );
    assert_eq!(field(failed, "LONGSHORE_DATABASE"), "sales");
    assert_eq!(field(failed, "LONGSHORE_TASK"), "backup");
    std::fs::rename(stage.path("away"), stage.path("disk1")).unwrap();
    let parity = "backup app.db --to a.bak --to b.bak --to p.bak --parity 1";
    stage.line(parity).exits(0);
    std::fs::remove_file(stage.path("b.bak")).unwrap();
    let told = line(&stage, &units, "verify a.bak p.bak").unwrap();
    assert_eq!((told.code, told.err.as_str()), (5, ""));
    let messages: Vec<_> = told
        .entries
        .iter()
        .map(|e| {
            (
                &*e["PRIORITY"],
                field(e, "LONGSHORE_OUTCOME"),
                &*e["MESSAGE"],
            )
        })
        .collect();
    let warned = |(priority, outcome, text): &(&str, &str, &str)| {
        (*priority, *outcome) == ("4", "") && text.starts_with("warning: ")
    };
    assert!(messages.iter().any(warned), "{messages:#?}");
    let last = messages.last().unwrap();
    assert_eq!((last.0, last.1), ("4", "warnings"), "{messages:#?}");
    assert!(
        last.2
            .starts_with("verify of a.bak and 1 more finished with warnings: ")
    );
    assert_eq!(told.entries.last().unwrap()["LONGSHORE_DATABASE"], "app");
}

#[test]
fn messages_of_the_log_are_entries_of_their_level() {
    let (stage, units) = stage();
    let mut run = stage.command(&[
        "--quiet",
        "backup",
        "app.db",
        "--to",
        "nul:",
        "-a",
        "QAT_DEFLATE",
    ]);
    run.env("LONGSHORE_LOG", "longshore_codec=debug");
    let Some(told) = units.run(&run, &stage.path("")) else {
        return;
    };
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    let logged = |e: &&Entry| e["MESSAGE"].contains(": ISA-L ");
    let logged = told.entries.iter().find(logged).unwrap();
    assert_eq!(logged["PRIORITY"], "7", "{logged:?}");
    assert!(logged["MESSAGE"].contains(" DEBUG "), "{logged:?}");
}

#[test]
fn no_entry_holds_a_password() {
    let (stage, units) = stage();
    let server = "backup postgres://ada:secret@127.0.0.1:1/shop --to nul:";
    let Some(told) = line(&stage, &units, server) else {
        return;
    };
    assert_eq!(told.code, 3, "{:?}", told.entries);
    assert_eq!(told.entries.len(), 2, "{:?}", told.entries);
    let text = format!("{:?}", told.entries);
    assert!(!text.contains("secret"), "{text}");
}
