//! Goal: the parser accepts and refuses the texts that SQL Server does, with its errors, prints what it accepted
//! without loss, and bounds the nesting.
//! Method: fixed texts with the expected error, line or print; random statements of every option; random words.
//! Not covered: SQL Server itself is not asked.

use longshore_tsql::syntax::{Applies, Key, OPTIONS, Shape, Spec, parse};
use proptest::prelude::*;

/// The number and text of the mistake.
fn mistake(text: &str) -> (u32, String) {
    match parse(text) {
        Ok(batch) => panic!("this should be refused: {text}\n{batch}"),
        Err(message) => (message.number, message.text),
    }
}

fn printed_again(text: &str) {
    let batch = parse(text).unwrap_or_else(|e| panic!("{}: {text}", e.text));
    let printed = batch.to_string();
    let again = parse(&printed).unwrap_or_else(|e| panic!("{}: {printed}", e.text));
    assert_eq!(batch, again, "{text}\n{printed}");
    assert_eq!(printed, again.to_string());
}

#[test]
fn statements_that_the_real_server_rejects_are_rejected() {
    for text in [
        "BACKUP DATABASE a TO DISK = 'x' WITH COMPRESSION (LEVEL = HIGH)",
        "BACKUP DATABASE a TO DISK = 'x' WITH COMPRESSION (ALGORITHM = FOO)",
        "BACKUP DATABASE a TO DISK = 'x' WITH ENCRYPTION",
        "WITH l: PRINT 1",
        "BACKUP DATABASE a TO DISK = 'x' WITH ENCRYPTION (SERVER CERTIFICATE = c, ALGORITHM = AES_256)",
        "BACKUP DATABASE a TO DISK = 'x' WITH CREDENTIAL",
        "BACKUP DATABASE a TO DISK = 'x' WITH NAME = n",
        "RESTORE DATABASE a FROM DISK = 'x' WITH MOVE a TO b",
        "RESTORE DATABASE a FROM DISK = 'x' WITH FILE = 'x'",
        "BACKUP DATABASE a",
        "BACKUP DATABASE a TO",
        "BACKUP DATABASE a TO DISK = x",
        "BACKUP DATABASE a TO DISK = 'x' WITH",
        "BACKUP DATABASE a TO DISK = 'x' WITH STATS = ",
        "RESTORE HEADERONLY",
        "RESTORE a FROM DISK = 'x'",
        "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD = ON",
        "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD = MAYBE (ACCELERATOR = QAT)",
        "IF 1 = 1",
        "BEGIN END",
        "DECLARE @a",
        "SET @a = ",
        "EXEC p @a = 1, 2",
        "DROP DATABASE",
        "DROP DATABASE IF a",
        "DROP DATABASE a,",
    ] {
        let (number, said) = mistake(text);
        assert!(matches!(number, 102 | 119 | 156), "{number} {said}: {text}");
    }
}

#[test]
fn an_option_of_the_other_verb_is_not_recognized() {
    for (text, said) in [
        (
            "BACKUP DATABASE a TO DISK = 'x' WITH REPLACE",
            "'REPLACE' is not a recognized BACKUP option.",
        ),
        (
            "RESTORE DATABASE a FROM DISK = 'x' WITH DIFFERENTIAL",
            "'DIFFERENTIAL' is not a recognized RESTORE option.",
        ),
        (
            "BACKUP LOG a TO DISK = 'x' WITH TRUNCATE_ONLY",
            "'TRUNCATE_ONLY' is not a recognized BACKUP option.",
        ),
    ] {
        assert_eq!(mistake(text), (155, said.to_owned()));
    }
}

#[test]
fn statements_that_the_real_server_accepts_are_accepted_and_printed_without_loss() {
    for text in [
        "RESTORE HEADERONLY FROM DISK = 'x' WITH RECOVERY, MOVE 'a' TO 'b'",
        "BACKUP DATABASE [a]]b] TO DISK = N'it''s', DISK = @d WITH RETAINDAYS = '5', INIT",
        "backup log \"x y\" to dev1 mirror to dev2 with norecovery, standby = 'u'",
        "BACKUP DATABASE @db FILE = ('a', @b), FILEGROUP = 'g', READ_WRITE_FILEGROUPS TO DISK = 'x'",
        "RESTORE DATABASE a PAGE = '1:57' FROM DISK = 'x'",
        "RESTORE DATABASE a FROM DATABASE_SNAPSHOT = 'b'",
        "RESTORE DATABASE a WITH RECOVERY",
        // A name has what a text would leave out.
        "p [a\\\nb], [c\\\r\nd]",
        "RESTORE LOG a FROM DISK = 'x' WITH STOPBEFOREMARK = 'lsn:1' AFTER '2026-01-01'",
        "RESTORE DATABASE a FROM DISK = 'x' WITH FILESTREAM (DIRECTORY_NAME = NULL)",
        "BACKUP DATABASE a TO DISK = 'x' WITH COMPRESSION (ALGORITHM = LZ4, LEVEL = -3), PARITY = 2, MAX_RATE = 5",
        "BACKUP DATABASE a TO DISK = 'x' WITH ENCRYPTION (ALGORITHM = AES_256, SERVER ASYMMETRIC KEY = k)",
        "BACKUP GROUP a, b TO DISK = 'x' WITH METADATA_ONLY; BACKUP SERVER TO DISK = 'x'",
        "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD ON (ACCELERATOR = QAT)",
        "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD = OFF (ACCELERATOR = QAT, MODE = SOFTWARE)",
        "sp_configure 'show advanced options', 1",
        "EXEC @rc = master..sp_addumpdevice disk, [d], @p = -1, @q = DEFAULT, @r = @s OUTPUT",
        "DBCC TRACEON (3604, -1) WITH NO_INFOMSGS DBCC TRACEOFF(3213)",
        "DECLARE @a int = 1, @b nvarchar(max), @c AS numeric(20, 2) SET @a += 1 PRINT @a + 'x'",
        "IF @@ERROR <> 0 PRINT 'a' ELSE BEGIN PRINT 'b'; PRINT 'c' END",
        "IF EXISTS (SELECT 1) IF 1 = 1 PRINT 'a'; ELSE PRINT 'b'",
        "WHILE @i < 3 BEGIN SET @i = CASE WHEN 1 = 1 THEN @i + 1 ELSE 0 END; IF @i = 2 BREAK ELSE CONTINUE END",
        "BEGIN TRY BACKUP DATABASE a TO DISK = 'x' END TRY BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH",
        "WITH a AS (SELECT 1 AS n) SELECT n FROM a UNION ALL SELECT 2 SELECT 3 RETURN",
        "SET NOCOUNT ON SET XACT_ABORT, ANSI_NULLS OFF SET LOCK_TIMEOUT 100 USE [master] RECONFIGURE WITH OVERRIDE",
        "EXEC (N'PRINT 1' + @x) EXECUTE sp_executesql N'PRINT @n', N'@n int', @n = 1",
        "ALTER DATABASE [a b] SET SINGLE_USER WITH ROLLBACK IMMEDIATE ALTER DATABASE a SET MULTI_USER WITH NO_WAIT",
        "ALTER DATABASE CURRENT SET RESTRICTED_USER WITH ROLLBACK AFTER 5 SECONDS; PRINT 1",
        "DROP DATABASE a DROP DATABASE IF EXISTS [b]]c], \"d e\"; PRINT 1",
        "RAISERROR (N'a %s', 16, -1, @a, -5, 0x1F, NULL, 1.5, 'it''s') WITH LOG, NOWAIT, SETERROR RAISERROR(15600,-1,-1)",
        "PRINT 1; THROW 51000, N'x', @s; BEGIN TRY PRINT 1 END TRY BEGIN CATCH THROW END CATCH",
        "WAITFOR DELAY '00:00:05' WAITFOR TIME @t PRINT 1 WAITFOR DELAY ''",
        "GOTO a_1 a_1: PRINT 1 b: IF 1 = 1 c: ELSE GOTO B SELECT 1 AS x d: EXEC p e: COMMIT TRAN f: RETURN",
        "RETURN 1 RETURN (-1) RETURN @rc",
        "DECLARE c CURSOR FOR SELECT name FROM sys.databases OPEN c FETCH c CLOSE c DEALLOCATE c",
        "DECLARE [c]]d] INSENSITIVE SCROLL CURSOR FOR WITH a AS (SELECT 1 AS n) SELECT n FROM a FOR READ ONLY PRINT 1",
        "DECLARE c CURSOR LOCAL FORWARD_ONLY STATIC READ_ONLY TYPE_WARNING FOR (SELECT 1) UNION SELECT 2 ORDER BY 1 OPEN GLOBAL c",
        "DECLARE @c CURSOR, @n int SET @c = CURSOR LOCAL FAST_FORWARD FOR SELECT 1 SET @c = @d SET @c = c OPEN @c",
        "FETCH NEXT FROM GLOBAL [c] INTO @a, @b FETCH ABSOLUTE -1 FROM @c FETCH RELATIVE @n FROM c INTO @a FETCH FROM global",
        "",
        " ;; -- nothing\n/* at all */",
    ] {
        printed_again(text);
    }
}

#[test]
fn mistakes_are_reported_with_their_line_and_the_word_before_them() {
    let text = "PRINT 'a';\n\nBACKUP DATABASE shop TO DISK = 'x'\n  WITH FOO";
    let message = parse(text).unwrap_err();
    assert_eq!(
        (message.number, message.severity, message.line),
        (155, 15, 4)
    );
    let message = parse("BACKUP DATABASE shop\nDISK = 'x'").unwrap_err();
    assert_eq!((message.number, message.line), (156, 2));
    assert_eq!(message.text, "Incorrect syntax near the keyword 'DISK'.");
    assert_eq!(mistake("PRINT 'abc").0, 105);
    assert_eq!(mistake("/* PRINT").0, 113);
    assert_eq!(mistake(&format!("USE [{}]", "x".repeat(129))).0, 103);
    assert_eq!(mistake("USE []").0, 1038);
}

#[test]
fn nesting_has_a_bound_and_exceeding_it_is_no_crash() {
    let deep = |n: usize| format!("{}PRINT 1{}", "BEGIN ".repeat(n), " END".repeat(n));
    assert!(parse(&deep(60)).is_ok());
    assert_eq!(mistake(&deep(100_000)).0, 191);
    assert_eq!(mistake(&format!("SELECT {}", "(".repeat(100_000))).0, 191);
    assert_eq!(
        mistake(&format!("SELECT {}", "CASE ".repeat(100_000))).0,
        191
    );
    assert_eq!(mistake(&"IF 1=1 ".repeat(100_000)).0, 191);
}

fn text_literal() -> impl Strategy<Value = String> {
    "[a-z' \\]\\[\"é%]{0,12}".prop_map(|s| format!("N'{}'", s.replace('\'', "''")))
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9_]{0,8}x".prop_map(|s| s),
        "[a-z \\]'é]{1,12}".prop_map(|s| format!("[{}]", s.replace(']', "]]"))),
        "@[a-z]{1,8}",
    ]
}

fn operand() -> impl Strategy<Value = String> {
    prop_oneof![text_literal(), "@[a-z]{1,8}"]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9]{1,9}", "@[a-z]{1,8}"]
}

fn option(spec: &'static Spec) -> BoxedStrategy<String> {
    let word = spec.word;
    match spec.shape {
        Shape::Flag => Just(word.to_owned()).boxed(),
        Shape::Text => operand().prop_map(move |v| format!("{word} = {v}")).boxed(),
        Shape::Number => prop_oneof![number(), text_literal()]
            .prop_map(move |v| format!("{word} = {v}"))
            .boxed(),
        Shape::Integer => number().prop_map(move |v| format!("{word}={v}")).boxed(),
        Shape::OptionalNumber => {
            prop_oneof![Just(String::new()), number().prop_map(|n| format!("= {n}"))]
                .prop_map(move |v| format!("{word} {v}"))
                .boxed()
        }
        Shape::Compression => prop_oneof![
            Just("COMPRESSION".to_owned()),
            Just("compression (algorithm = zstd, level = high)".to_owned()),
            (-9..22i32).prop_map(|n| format!("COMPRESSION (ALGORITHM = ZSTD, LEVEL = {n})")),
        ]
        .boxed(),
        Shape::Encryption => name()
            .prop_filter("a name", |n| !n.starts_with('@'))
            .prop_map(|n| format!("ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = {n})"))
            .boxed(),
        Shape::Move => (operand(), operand())
            .prop_map(|(a, b)| format!("MOVE {a} TO {b}"))
            .boxed(),
        Shape::Mark => (operand(), operand())
            .prop_map(move |(a, b)| format!("{word} = {a} AFTER {b}"))
            .boxed(),
        Shape::DirectoryName => text_literal()
            .prop_map(|t| format!("FILESTREAM (DIRECTORY_NAME = {t})"))
            .boxed(),
    }
}

fn options(of: Applies) -> BoxedStrategy<String> {
    let fitting: Vec<_> = OPTIONS
        .iter()
        .filter(|s| s.applies.has(of))
        .map(|s| option(s).boxed())
        .collect();
    proptest::collection::vec(proptest::strategy::Union::new(fitting), 0..6)
        .prop_map(|all| match all.is_empty() {
            true => String::new(),
            false => format!(" WITH {}", all.join(", ")),
        })
        .boxed()
}

fn devices() -> impl Strategy<Value = String> {
    let device = prop_oneof![
        name(),
        operand().prop_map(|o| format!("DISK = {o}")),
        operand().prop_map(|o| format!("url={o}")),
    ];
    proptest::collection::vec(device, 1..5).prop_map(|all| all.join(", "))
}

/// A cursor as statements name it.
fn cursor() -> impl Strategy<Value = String> {
    prop_oneof![
        name(),
        name()
            .prop_filter("a name", |n| !n.starts_with('@'))
            .prop_map(|n| format!("GLOBAL {n}")),
    ]
}

fn procedural() -> impl Strategy<Value = String> {
    let message = prop_oneof![operand(), number()];
    let argument = prop_oneof![operand(), number(), Just("NULL".to_owned()), "-[0-9]{1,9}"];
    let arguments = proptest::collection::vec(argument, 0..4);
    let options = "( WITH (LOG|NOWAIT|SETERROR)(, (LOG|NOWAIT))?)?";
    let named = || name().prop_filter("a name", |n| !n.starts_with('@'));
    let query = || text_literal().prop_map(|t| format!("SELECT {t} AS a, 1 FROM sys.databases"));
    let which = "(NEXT FROM |PRIOR FROM |LAST FROM |FIRST FROM |ABSOLUTE -?[0-9]{1,9} FROM |RELATIVE @[a-z]{1,8} FROM |FROM )?";
    let words = "( LOCAL| GLOBAL)?( FORWARD_ONLY)?( STATIC| KEYSET| DYNAMIC)?( READ_ONLY| OPTIMISTIC)?( TYPE_WARNING)?";
    prop_oneof![
        (message, number(), number(), arguments, options).prop_map(|(m, a, b, all, with)| {
            let all: String = all.iter().map(|one| format!(", {one}")).collect();
            format!("RAISERROR ({m}, {a}, {b}{all}){with}")
        }),
        (number(), operand(), number()).prop_map(|(n, t, s)| format!("; THROW {n}, {t}, {s}")),
        "WAITFOR (DELAY|TIME) ('([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?'|@[a-z]{1,8})",
        "[a-z][a-z0-9_]{0,8}x: GOTO [a-z][a-z0-9_]{0,8}x",
        "RETURN ([0-9]{1,9}|\\(@[a-z]{1,8}\\))",
        (named(), words, query())
            .prop_map(|(n, words, q)| { format!("DECLARE {n} CURSOR{words} FOR {q}") }),
        (named(), "(INSENSITIVE )?SCROLL CURSOR", query())
            .prop_map(|(n, form, q)| { format!("DECLARE {n} {form} FOR {q} FOR READ ONLY") }),
        query().prop_map(|q| format!("SET @c = CURSOR FOR {q}")),
        ("OPEN|CLOSE|DEALLOCATE", cursor()).prop_map(|(verb, c)| format!("{verb} {c}")),
        (which, cursor()).prop_map(|(which, c)| format!("FETCH {which}{c} INTO @a, @b")),
    ]
}

fn statement() -> impl Strategy<Value = String> {
    prop_oneof![
        (name(), devices(), options(Applies::BACKUP))
            .prop_map(|(n, d, o)| format!("BACKUP DATABASE {n} TO {d}{o}")),
        (name(), devices(), options(Applies::BACKUP))
            .prop_map(|(n, d, o)| format!("BACKUP LOG {n} TO {d}{o}")),
        (name(), devices(), options(Applies::READ))
            .prop_map(|(n, d, o)| format!("RESTORE DATABASE {n} FROM {d}{o}")),
        (name(), devices(), options(Applies::RESTORE_LOG))
            .prop_map(|(n, d, o)| format!("RESTORE LOG {n} FROM {d}{o}")),
        (name(), options(Applies::RESTORE_DATABASE))
            .prop_map(|(n, o)| format!("RESTORE DATABASE {n}{o}")),
        (
            devices(),
            options(Applies::READ),
            "VERIFY|HEADER|FILELIST|LABEL|REWIND"
        )
            .prop_map(|(d, o, what)| format!("RESTORE {what}ONLY FROM {d}{o}")),
        (text_literal(), text_literal())
            .prop_map(|(a, b)| format!("EXEC sp_addumpdevice 'disk', {a}, @physicalname = {b}")),
        (number(), text_literal())
            .prop_map(|(n, t)| format!("DECLARE @v int = {n}; SET @v += {n}; PRINT {t} + @v")),
        "DBCC TRACE(ON|OFF) \\([0-9]{1,4}(, -1)?\\)( WITH NO_INFOMSGS)?",
        "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD (= )?(ON|OFF) \\(ACCELERATOR = QAT(, MODE = HYBRID)?\\)",
        (text_literal(), number()).prop_map(|(t, n)| format!("EXEC sp_configure {t}, {n}")),
        (text_literal(), text_literal())
            .prop_map(|(a, b)| format!("IF {a} = {b} PRINT {a} ELSE PRINT {b}")),
        procedural(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn statements_of_every_option_come_back_from_their_print(all in proptest::collection::vec(statement(), 1..4)) {
        printed_again(&all.join("\n"));
    }

    #[test]
    fn no_text_makes_the_parser_panic_and_what_it_takes_is_printed_without_loss(
        words in proptest::collection::vec(
            prop_oneof![
                "[A-Z]{1,8}", "[ -~]{0,6}", Just("BACKUP".to_owned()), Just("DATABASE".to_owned()),
                Just("TO DISK = 'x'".to_owned()), Just("WITH".to_owned()), Just("RESTORE".to_owned()),
                Just("BEGIN".to_owned()), Just("END".to_owned()), Just("IF".to_owned()), Just("SELECT".to_owned()),
                Just("DECLARE @a int".to_owned()), Just("'".to_owned()), Just("/*".to_owned()), Just("é".to_owned()),
                Just("l:".to_owned()), Just("GOTO l".to_owned()), Just("RAISERROR (".to_owned()), Just("THROW".to_owned()),
                Just("WAITFOR DELAY '1:1'".to_owned()), Just("CURSOR FOR".to_owned()), Just("FETCH".to_owned()),
                Just("GLOBAL".to_owned()), Just("FROM c".to_owned()), Just("RETURN".to_owned()), Just("OPEN".to_owned()),
                Just("SET @a = 1".to_owned()), Just("CASE".to_owned()), Just(",".to_owned()), Just("(".to_owned()),
            ],
            0..12,
        )
    ) {
        let text = words.join(" ");
        if parse(&text).is_ok() {
            printed_again(&text);
        }
    }
}

#[test]
fn keys_are_found_by_their_words_and_nothing_else() {
    use longshore_tsql::syntax::Verb;
    assert_eq!(
        Key::find(Verb::Backup, "stats").map(|s| s.key),
        Some(Key::Stats)
    );
    assert!(Key::find(Verb::Backup, "STAT").is_none());
    assert!(Key::find(Verb::Restore, "COPY_ONLY").is_none());
}

#[test]
fn a_word_that_begins_the_next_statement_is_not_what_this_one_changes() {
    for text in ["DROP\nDROP PROCEDURE x", "CREATE\nPRINT 1"] {
        assert_eq!(mistake(text).0, 156, "{text}");
    }
    assert_eq!(mistake("KILL\nlabel:").0, 102);
}
