//! Goal: the table of options agrees with its page, and its promises are kept.
//! Method: the page is made again from the table; each option runs in a statement, and an honoured one must change
//! something visible.

mod common;

use common::{Stage, numbers, run, said};
use longshore_io::Host;
use longshore_media::S3Server;
use longshore_tsql::syntax::{Applies, Fate, OPTIONS, SET_OPTIONS, SetFate, Shape, Spec};

const PAGE: &str = include_str!("../../../../docs/tsql.md");
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

/// The option with a valid value.
fn written(spec: &Spec) -> String {
    let word = spec.word;
    match (spec.shape, word) {
        (Shape::Flag, _) => word.to_owned(),
        (Shape::Text, "EXPIREDATE") => format!("{word} = '2099-12-31'"),
        (Shape::Text, "STOPAT") => format!("{word} = '2026-01-01'"),
        (Shape::Text, "BACKUP_OPTIONS" | "RESTORE_OPTIONS") => {
            let own = S3Server::of_environment(&Host::new()).unwrap();
            format!(r#"{word} = '{{"s3": {{"region": "{}"}}}}'"#, own.region)
        }
        (Shape::Text, _) => format!("{word} = 'harbour'"),
        (Shape::Number, "MAXTRANSFERSIZE") => format!("{word} = 131072"),
        (Shape::Number, "BLOCKSIZE") => format!("{word} = 4096"),
        (Shape::Number, "MAX_RATE") => format!("{word} = 1000000000"),
        // One device holds data.
        (Shape::Number, "PARITY" | "TOLERATE") => format!("{word} = 0"),
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
        if spec.word == "ENCRYPTION" {
            let keys = "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'a password'; CREATE CERTIFICATE c WITH SUBJECT = 's'";
            run(&mut session, keys);
        }
        let record = run(&mut session, &text);
        let last = numbers(&record).last().copied();
        if spec.word == "DIFFERENTIAL" {
            // Honoured if there is a base; a database that was never backed up has none.
            assert_eq!(numbers(&record), [3035, 3013], "{:?}", said(&record));
            continue;
        }
        let expected = match spec.in_backup {
            Fate::Refused(_) => 3013,
            // For objects at a server that their address names.
            _ if spec.word == "CREDENTIAL" => 3013,
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
    // With the name that MEDIANAME requires.
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
            // For objects at a server that their address names.
            _ if spec.word == "CREDENTIAL" => 3013,
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
fn honoured_options_have_a_visible_effect() {
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
fn moments_of_options_are_taken_as_they_are_meant_or_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    // Past the last moment in UTC: never.
    for (device, never) in [("a.bak", "99991231"), ("b.bak", "9999-12-31 23:59:59")] {
        let backup = format!("BACKUP DATABASE shop TO DISK = '{device}' WITH");
        let made = run(&mut session, &format!("{backup} EXPIREDATE = '{never}'"));
        assert_eq!(numbers(&made).last(), Some(&3014), "{:?}", said(&made));
        let again = run(&mut session, &format!("{backup} INIT"));
        assert_eq!(numbers(&again), [4030, 3013], "{never}");
    }
    // A zone that is not understood must not be ignored.
    for at in ["2026-01-31T09:00:00+02", "2026-01-31T09:00:00[UTC]"] {
        for statement in [
            format!("BACKUP DATABASE shop TO DISK = 'c.bak' WITH EXPIREDATE = '{at}'"),
            format!("RESTORE DATABASE shop FROM DISK = 'a.bak' WITH STOPAT = '{at}'"),
        ] {
            let refused = numbers(&run(&mut session, &statement));
            assert_eq!(refused, [3217, 3013], "{statement}");
        }
    }
}

#[test]
fn a_moment_to_stop_at_is_refused_for_a_database_without_a_log() {
    let stage = Stage::new();
    let mut session = stage.session();
    let made = run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    assert_eq!(numbers(&made).last(), Some(&3014), "{:?}", said(&made));
    let restore = "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE";
    let refused = run(&mut session, &format!("{restore}, STOPAT = '2026-01-01'"));
    assert_eq!(numbers(&refused), [3145, 3013], "{:?}", said(&refused));
    let restored = run(&mut session, restore);
    assert_eq!(
        numbers(&restored).last(),
        Some(&3014),
        "{:?}",
        said(&restored)
    );
}

/// Goal: of two options that exclude each other, none wins silently.
#[test]
fn options_that_exclude_each_other_are_refused_together() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, pairs) in [
        (
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH",
            &[
                "CHECKSUM, NO_CHECKSUM",
                "COMPRESSION, NO_COMPRESSION",
                "FORMAT, NOFORMAT",
                "FORMAT, NOSKIP",
                "NOINIT, INIT",
                "SKIP, NOSKIP",
                "STOP_ON_ERROR, CONTINUE_AFTER_ERROR",
                "STATS = 10, STATS = 20",
            ][..],
        ),
        (
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH",
            &["RECOVERY, NORECOVERY", "NORECOVERY, STANDBY = 'x'"],
        ),
    ] {
        for pair in pairs {
            let refused = run(&mut session, &format!("{statement} {pair}"));
            assert_eq!(numbers(&refused), [3031, 3013], "{pair}");
        }
    }
    assert!(!stage.path("a.bak").exists());
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
        SetFate::Honoured | SetFate::OneOf(_) => format!("Honoured {name} "),
        SetFate::Only(values) => format!("One value only {name} {}", values[0]),
        SetFate::Accepted | SetFate::Phrase => format!("Accepted {name} "),
    });
    let mut known: Vec<_> = known.collect();
    known.sort();
    documented.sort();
    assert_eq!(documented, known);
    assert!(SET_OPTIONS.is_sorted_by_key(|(name, _)| *name));
}

/// How a test shows that an honoured option has an effect.
enum Shown {
    /// Statements before, then the statement without the option (or with its opposite), and with it.
    Here(&'static [&'static str], &'static str, &'static str),
    /// A test that fails if the option is ignored: it needs more than a SQLite database.
    By(&'static str, &'static str),
}

const MADE: &str = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH MEDIANAME = 'harbour'";
const KEPT: &str = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH EXPIREDATE = '2099-12-31'";
const CHAIN: Shown = Shown::By(
    "../../longshore/tests/sql_chain/restored.rs",
    "a_full_a_differential_and_log_sets_come_back_to_a_moment",
);
const CREDENTIAL: Shown = Shown::By(
    "../../longshore/tests/bucket/credentials.rs",
    "the_longest_prefix_that_ends_at_a_slash_decides",
);
const REGION: Shown = Shown::By(
    "../../longshore/tests/bucket/credentials.rs",
    "two_servers_with_a_bucket_of_the_same_name_have_a_credential_each",
);
const ERRORS: Shown = Shown::By(
    "tests/options.rs",
    "a_file_that_changes_ends_a_backup_or_marks_it_as_the_option_says",
);

const DAMAGE: Shown = Shown::By(
    "tests/options.rs",
    "a_set_of_damaged_data_comes_back_only_when_the_statement_goes_on_after_errors",
);

fn shown_in_backup(word: &str) -> Option<Shown> {
    const PLAIN: &str = "BACKUP DATABASE shop TO DISK = 'a.bak'";
    let here = |with| Some(Shown::Here(&[], PLAIN, with));
    match word {
        "BACKUP_OPTIONS" => Some(REGION),
        "BUFFERCOUNT" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH BUFFERCOUNT = 3"),
        "CREDENTIAL" => Some(CREDENTIAL),
        "COMPRESSION" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH COMPRESSION"),
        "CONTINUE_AFTER_ERROR" | "STOP_ON_ERROR" => Some(ERRORS),
        "COPY_ONLY" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH COPY_ONLY"),
        "DESCRIPTION" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH DESCRIPTION = 'x'"),
        "DIFFERENTIAL" => Some(CHAIN),
        "ENCRYPTION" => Some(Shown::Here(
            &[
                "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'a password'",
                "CREATE CERTIFICATE c WITH SUBJECT = 's'",
            ],
            PLAIN,
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)",
        )),
        "EXPIREDATE" => {
            here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH EXPIREDATE = '2099-12-31'")
        }
        "FORMAT" => Some(Shown::Here(
            &[MADE],
            PLAIN,
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH FORMAT",
        )),
        "NOFORMAT" => Some(Shown::Here(
            &[MADE],
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH FORMAT",
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH NOFORMAT",
        )),
        "INIT" => Some(Shown::Here(
            &[MADE],
            PLAIN,
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT",
        )),
        "NOINIT" => Some(Shown::Here(
            &[MADE],
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT",
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH NOINIT",
        )),
        "MAX_CPU_PERCENT" => {
            here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH MAX_CPU_PERCENT = 1")
        }
        "MAX_RATE" => Some(Shown::Here(
            &[],
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH MAXTRANSFERSIZE = 65536",
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH MAXTRANSFERSIZE = 65536, MAX_RATE = 100000",
        )),
        "MAXTRANSFERSIZE" => {
            here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH MAXTRANSFERSIZE = 65536")
        }
        "MEDIADESCRIPTION" => {
            here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH MEDIADESCRIPTION = 'x'")
        }
        "MEDIANAME" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH MEDIANAME = 'x'"),
        "NAME" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH NAME = 'x'"),
        "NO_COMPRESSION" => Some(Shown::Here(
            &["EXEC sp_configure 'backup compression default', 1; RECONFIGURE"],
            PLAIN,
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH NO_COMPRESSION",
        )),
        "RETAINDAYS" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH RETAINDAYS = 9"),
        "SKIP" => Some(Shown::Here(
            &[KEPT],
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT",
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT, SKIP",
        )),
        "NOSKIP" => Some(Shown::Here(
            &[KEPT],
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT, SKIP",
            "BACKUP DATABASE shop TO DISK = 'a.bak' WITH INIT, NOSKIP",
        )),
        "PARITY" => Some(Shown::Here(
            &[],
            "BACKUP DATABASE shop TO DISK = 'a.bak', DISK = 'b.bak'",
            "BACKUP DATABASE shop TO DISK = 'a.bak', DISK = 'b.bak' WITH PARITY = 1",
        )),
        "STATS" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH STATS = 1"),
        // More than parity can stand for is refused.
        "TOLERATE" => here("BACKUP DATABASE shop TO DISK = 'a.bak' WITH TOLERATE = 1"),
        _ => None,
    }
}

fn shown_in_restore(word: &str) -> Option<Shown> {
    const PLAIN: &str = "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE";
    let here = |with| Some(Shown::Here(&[MADE], PLAIN, with));
    match word {
        "CONTINUE_AFTER_ERROR" => Some(DAMAGE),
        "BUFFERCOUNT" => {
            here("RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, BUFFERCOUNT = 3")
        }
        "FILE" => Some(Shown::Here(
            &[MADE, "BACKUP DATABASE shop TO DISK = 'a.bak'"],
            PLAIN,
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, FILE = 2",
        )),
        "LOADHISTORY" => Some(Shown::Here(
            &[
                MADE,
                "EXEC msdb.dbo.sp_delete_database_backuphistory 'shop'",
            ],
            "RESTORE VERIFYONLY FROM DISK = 'a.bak'",
            "RESTORE VERIFYONLY FROM DISK = 'a.bak' WITH LOADHISTORY",
        )),
        "MAX_CPU_PERCENT" => {
            here("RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, MAX_CPU_PERCENT = 1")
        }
        "MAX_RATE" => Some(Shown::Here(
            &["BACKUP DATABASE shop TO DISK = 'a.bak' WITH MAXTRANSFERSIZE = 65536"],
            PLAIN,
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, MAX_RATE = 100000",
        )),
        "MEDIANAME" => {
            here("RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, MEDIANAME = 'other'")
        }
        "MOVE" => here(
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, MOVE 'shop.db' TO 'moved.db'",
        ),
        "CREDENTIAL" => Some(CREDENTIAL),
        "NORECOVERY" | "RECOVERY" | "STOPAT" => Some(CHAIN),
        "RESTORE_OPTIONS" => Some(REGION),
        "REPLACE" => Some(Shown::Here(
            &[MADE],
            "RESTORE DATABASE other FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO 'shop.note'",
            "RESTORE DATABASE other FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO 'shop.note', REPLACE",
        )),
        "STATS" => here("RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, STATS = 1"),
        _ => None,
    }
}

/// Everything visible of a statement: its messages, with the plan of its buffers, the disk and the history afterwards,
/// and whether it took its time.
fn effects(before: &[&str], statement: &str) -> Vec<String> {
    let stage = Stage::new();
    std::fs::write(stage.path("shop.note"), "stands there").unwrap();
    // More than a rate limit lets pass at once.
    common::fill(&stage.path("shop.db"), 5000);
    let mut session = stage.session();
    for batch in before {
        let made = run(&mut session, batch);
        assert!(
            !numbers(&made).contains(&3013),
            "{batch}: {:?}",
            said(&made)
        );
    }
    run(&mut session, "DBCC TRACEON (3213, 3604)");
    let began = std::time::Instant::now();
    let record = run(&mut session, statement);
    let slow = began.elapsed().as_secs_f64() > 2.0;
    let mut seen = vec![format!("slow: {slow}")];
    for line in said(&record) {
        // Times and rates depend on the machine.
        seen.push(
            line.split(" pages in ")
                .next()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    let mut names: Vec<_> = std::fs::read_dir(stage.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    seen.extend(names);
    for query in [
        "SELECT s.name, s.description, s.position, s.is_copy_only, s.expiration_date, s.compression_algorithm, \
         s.compressed_backup_size, m.name, m.description FROM msdb.dbo.backupset s \
         JOIN msdb.dbo.backupmediaset m ON m.media_set_id = s.media_set_id ORDER BY s.backup_set_id",
        "SELECT destination_database_name FROM msdb.dbo.restorehistory",
    ] {
        let rows = common::rows(&run(&mut session, query));
        seen.extend(rows.iter().map(|row| row.join("|")));
    }
    let listed = run(&mut session, "RESTORE HEADERONLY FROM DISK = 'a.bak'");
    seen.push(format!("{} sets", common::rows(&listed).len()));
    seen
}

/// An option without a row here fails; so does a row that shows no effect.
#[test]
fn every_option_that_is_honoured_changes_something() {
    let same = || effects(&[MADE], MADE);
    assert_eq!(same(), same(), "what differs by itself shows nothing");
    for spec in OPTIONS {
        let verbs = [
            (
                spec.applies.has(Applies::BACKUP),
                spec.in_backup,
                shown_in_backup(spec.word),
                "BACKUP",
            ),
            (
                spec.applies.has(Applies::READ),
                spec.in_restore,
                shown_in_restore(spec.word),
                "RESTORE",
            ),
        ];
        for (applies, fate, shown, verb) in verbs {
            let is_honoured = applies && matches!(fate, Fate::Honoured);
            let word = spec.word;
            assert_eq!(
                is_honoured,
                shown.is_some(),
                "{word} in {verb}: honoured, and shown"
            );
            match shown {
                Some(Shown::Here(before, without, with)) => {
                    let (without, with) = (effects(before, without), effects(before, with));
                    assert_ne!(without, with, "{word} in {verb} changes nothing");
                }
                Some(Shown::By(file, test)) => {
                    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
                    let text = std::fs::read_to_string(path).unwrap();
                    assert!(text.contains(&format!("fn {test}()")), "{word}: {test}");
                }
                None => {}
            }
        }
    }
}

/// The records of statements run one after the other while `path` grows.
fn grown(stage: &Stage, path: &std::path::Path, text: String) -> longshore_tsql::Recorder {
    std::fs::write(path, vec![7; 3 << 20]).unwrap();
    let mut session = stage.session();
    let running = std::thread::spawn(move || run(&mut session, &text));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mut file = std::fs::File::options().append(true).open(path).unwrap();
    std::io::Write::write_all(&mut file, b"more").unwrap();
    drop(file);
    running.join().unwrap()
}

/// Goal: a set that was made from damaged data is restored only on demand, and the answer says so.
#[test]
fn a_set_of_damaged_data_comes_back_only_when_the_statement_goes_on_after_errors() {
    use longshore_pipeline::SourceSpec;
    let mut stage = Stage::new();
    let path = stage.path("growing");
    stage.more = vec![("growing", SourceSpec::Files(vec![path.clone()]))];
    let backup = "BACKUP DATABASE growing TO DISK = 'marked.bak' WITH MAX_RATE = 1500000, CONTINUE_AFTER_ERROR";
    let record = grown(&stage, &path, backup.into());
    assert_eq!(numbers(&record).last(), Some(&3014), "{:?}", said(&record));
    std::fs::write(&path, "newer").unwrap();
    let mut session = stage.session();
    let plain = "RESTORE DATABASE growing FROM DISK = 'marked.bak' WITH REPLACE";
    let refused = run(&mut session, plain);
    assert_eq!(numbers(&refused), [3182, 3013], "{:?}", said(&refused));
    assert_eq!(std::fs::read(&path).unwrap(), b"newer");
    let back = run(&mut session, &format!("{plain}, CONTINUE_AFTER_ERROR"));
    assert_eq!(numbers(&back).last(), Some(&3014), "{:?}", said(&back));
    assert!(numbers(&back).contains(&3188) && numbers(&back).contains(&3184));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 << 20);
}

/// A file that grows while a slow backup reads it.
#[test]
fn a_file_that_changes_ends_a_backup_or_marks_it_as_the_option_says() {
    use longshore_pipeline::SourceSpec;
    let mut stage = Stage::new();
    let path = stage.path("growing");
    stage.more = vec![("growing", SourceSpec::Files(vec![path.clone()]))];
    for (with, end) in [
        ("", 3013),
        (", STOP_ON_ERROR", 3013),
        (", CONTINUE_AFTER_ERROR", 3014),
    ] {
        let text = format!("BACKUP DATABASE growing TO DISK = 'NUL' WITH MAX_RATE = 1500000{with}");
        let record = grown(&stage, &path, text);
        assert_eq!(
            numbers(&record).last(),
            Some(&end),
            "{with}: {:?}",
            said(&record)
        );
    }
}

/// Goal: no statement writes into a target's prefix, log sets stay on disks, and an address after DISK is told to be a URL.
#[test]
fn urls_that_no_backup_may_write_to_are_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, expected) in [
        (
            "BACKUP DATABASE shop TO URL = 's3://kept/target/shop/1.bak'",
            "3201",
        ),
        (
            "BACKUP DATABASE shop TO URL = 's3://other/p/db/20270131T020000Z-full-1a2b3c4d/family-1.bak' WITH FORMAT",
            "3201",
        ),
        (
            "BACKUP DATABASE shop TO URL = 's3://other/p/db/20270131T020000Z-full-1a2b3c4d/family-2.bak' WITH INIT, SKIP",
            "3201",
        ),
        (
            "BACKUP DATABASE shop TO URL = 's3://other/p/wal/longshore-wal' WITH FORMAT",
            "3201",
        ),
        ("BACKUP DATABASE shop TO URL = '/a.bak'", "write DISK"),
        (
            "BACKUP DATABASE shop TO URL = 's3://h:1/nightly/d/a'",
            "'s3://nightly/d/a'",
        ),
        (
            "BACKUP DATABASE shop TO DISK = 's3://nightly/a'",
            "write URL",
        ),
        (
            "RESTORE LABELONLY FROM URL = 'https://a/b'",
            "s3://BUCKET/KEY",
        ),
    ] {
        let lines = said(&run(&mut session, statement)).join("\n");
        assert!(lines.contains(expected), "{statement}: {lines}");
    }
}
