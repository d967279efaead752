//! The table of options: its page says the same as the code, and what it promises is kept.

mod common;

use common::{Stage, numbers, run, said};
use longshore_tsql::syntax::{Applies, Fate, OPTIONS, SET_OPTIONS, SetFate, Shape, Spec};

const PAGE: &str = include_str!("../../../docs/tsql.md");
const MARK: &str = "<!-- options -->";

fn fate(fate: Fate) -> String {
    match fate {
        Fate::Honoured => "honoured".to_owned(),
        Fate::Accepted(why) => format!("accepted: {why}"),
        Fate::Refused(why) => format!("refused: {why}"),
    }
}

fn table() -> String {
    let mut text = String::from("| option | in BACKUP | in RESTORE |\n|---|---|---|\n");
    for spec in OPTIONS {
        let cell = |of: Applies, value: Fate| match spec.applies.has(of) {
            true => fate(value),
            false => "–".to_owned(),
        };
        let ours = if spec.extension { " (ours)" } else { "" };
        text += &format!(
            "| `{}`{ours} | {} | {} |\n",
            spec.word,
            cell(Applies::BACKUP, spec.in_backup),
            cell(Applies::READ, spec.in_restore)
        );
    }
    text
}

#[test]
fn the_page_shows_the_table() {
    let shown = PAGE.split(MARK).nth(1).unwrap();
    let shown: String = shown
        .lines()
        .skip_while(|l| !l.starts_with('|'))
        .take_while(|l| l.starts_with('|'))
        .map(|l| format!("{l}\n"))
        .collect();
    assert!(shown == table(), "docs/tsql.md should have:\n{}", table());
}

/// The option with a value that is in order.
fn written(spec: &Spec) -> String {
    let word = spec.word;
    match (spec.shape, word) {
        (Shape::Flag, _) => word.to_owned(),
        (Shape::Text, "EXPIREDATE") => format!("{word} = '2099-12-31'"),
        (Shape::Text, "STOPAT") => format!("{word} = '2026-01-01'"),
        (Shape::Text, _) => format!("{word} = 'harbour'"),
        (Shape::Number, "MAXTRANSFERSIZE") => format!("{word} = 131072"),
        (Shape::Number, "BLOCKSIZE") => format!("{word} = 4096"),
        (Shape::Number, "MAX_RATE") => format!("{word} = 1000000000"),
        (Shape::Number, _) => format!("{word} = 20"),
        (Shape::Integer, _) => format!("{word} = 1"),
        (Shape::OptionalNumber, _) => format!("{word} = 50"),
        (Shape::Compression, _) => "COMPRESSION (ALGORITHM = ZSTD)".to_owned(),
        (Shape::Encryption, _) => {
            "ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)".to_owned()
        }
        (Shape::Move, _) => "MOVE 'shop.db' TO 'moved.db'".to_owned(),
        (Shape::Mark, _) => format!("{word} = 'mark'"),
        (Shape::DirectoryName, _) => "FILESTREAM (DIRECTORY_NAME = 'd')".to_owned(),
    }
}

#[test]
fn every_option_of_backup_has_the_fate_that_the_table_gives_it() {
    for spec in OPTIONS
        .iter()
        .filter(|s| s.applies.has(Applies::BACKUP_DATABASE))
    {
        let stage = Stage::new();
        let mut session = stage.session();
        let text = format!(
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH {}",
            written(spec)
        );
        let record = run(&mut session, &text);
        let last = numbers(&record).last().copied();
        if spec.word == "DIFFERENTIAL" {
            // Honoured where there is a base; a database that was never backed up has none.
            assert_eq!(numbers(&record), [3035, 3013], "{:?}", said(&record));
            continue;
        }
        let expected = match spec.in_backup {
            Fate::Refused(_) => 3013,
            _ => 3014,
        };
        assert_eq!(last, Some(expected), "{text}: {:?}", said(&record));
        assert_eq!(stage.path("a.bak").exists(), expected == 3014, "{text}");
    }
}

#[test]
fn every_option_of_restore_has_the_fate_that_the_table_gives_it() {
    let stage = Stage::new();
    let mut session = stage.session();
    // With the name that MEDIANAME asks for.
    let made = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH MEDIANAME = 'harbour'",
    );
    assert_eq!(numbers(&made).last(), Some(&3014), "{:?}", said(&made));
    for spec in OPTIONS {
        let (statement, end) = match spec.applies {
            a if a.has(Applies::RESTORE_DATABASE) => ("RESTORE DATABASE shop", 3014),
            a if a.has(Applies::VERIFY_ONLY) => ("RESTORE VERIFYONLY", 3262),
            a if a.has(Applies::READ) => ("RESTORE LABELONLY", 0),
            _ => continue,
        };
        let text = format!("{statement} FROM DISK = 'a.bak' WITH {}", written(spec));
        let record = run(&mut session, &text);
        let last = numbers(&record).last().copied().unwrap_or(0);
        let expected = match spec.in_restore {
            Fate::Refused(_) => 3013,
            // Honoured for PostgreSQL clusters; this database has no log.
            _ if ["NORECOVERY", "STOPAT"].contains(&spec.word) => 3013,
            _ => end,
        };
        assert_eq!(last, expected, "{text}: {:?}", said(&record));
    }
}

#[test]
fn an_option_outside_of_its_statement_is_refused_when_it_runs() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    for spec in OPTIONS
        .iter()
        .filter(|s| s.applies.has(Applies::READ) && !s.applies.has(Applies::HEADER_ONLY))
    {
        let text = format!(
            "RESTORE HEADERONLY FROM DISK = 'a.bak' WITH {}",
            written(spec)
        );
        let record = run(&mut session, &text);
        assert_eq!(numbers(&record), [3032, 3013], "{text}");
    }
}

#[test]
fn what_is_honoured_can_be_seen() {
    let stage = Stage::new();
    let mut session = stage.session();
    let made = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH NAME = 'n', DESCRIPTION = 'd', MEDIANAME = 'm', \
         MEDIADESCRIPTION = 'md', COPY_ONLY, EXPIREDATE = '2099-12-31', COMPRESSION (ALGORITHM = LZ4, LEVEL = 3)",
    );
    assert_eq!(numbers(&made).last(), Some(&3014), "{:?}", said(&made));
    let row = common::value(
        &mut session,
        "SELECT s.name, s.description, m.name, m.description, s.is_copy_only, s.expiration_date, \
         s.compression_algorithm FROM msdb.dbo.backupset s JOIN msdb.dbo.backupmediaset m ON m.media_set_id = s.media_set_id",
    );
    assert_eq!(row, "n|d|m|md|1|2099-12-31 00:00:00.000|LZ4");
    let refused = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT",
    );
    assert_eq!(numbers(&refused), [4030, 3013]);
    let days = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'b.bak' WITH RETAINDAYS = 0, EXPIREDATE = '2099-12-31'",
    );
    assert_eq!(numbers(&days).last(), Some(&3014));
    let again = run(
        &mut session,
        "BACKUP DATABASE shop TO DISK = 'b.bak' WITH INIT",
    );
    assert_eq!(
        numbers(&again).last(),
        Some(&3014),
        "RETAINDAYS wins: {:?}",
        said(&again)
    );
}

#[test]
fn the_documentation_says_of_every_option_of_set_what_becomes_of_it() {
    let listed = PAGE.split("<!-- set -->").nth(1).unwrap();
    let mut documented = Vec::new();
    for item in listed.split("\n- ").skip(1) {
        let kind = item.split([':', ',']).next().unwrap();
        for word in item.split('`').skip(1).step_by(2) {
            let (name, value) = word.split_once(' ').unwrap_or((word, ""));
            documented.push(format!("{kind} {name} {}", value.to_uppercase()));
        }
    }
    let known = SET_OPTIONS.iter().map(|(name, fate)| match fate {
        SetFate::Honoured => format!("Honoured {name} "),
        SetFate::Only(values) => format!("What happens anyway {name} {}", values[0]),
        SetFate::Accepted | SetFate::Phrase => format!("Accepted {name} "),
    });
    let mut known: Vec<_> = known.collect();
    known.sort();
    documented.sort();
    assert_eq!(documented, known);
    assert!(SET_OPTIONS.is_sorted_by_key(|(name, _)| *name));
}
