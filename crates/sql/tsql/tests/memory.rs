//! Goal: sessions claim memory before they use it: parsing a text never takes more than was claimed for it.
//! Method: texts of which a little parses to much; the program's peak is measured, so these tests have a program of their
//! own.

mod common;

use common::{Stage, numbers, run, value};
use longshore_tsql::syntax::parse;
use longshore_tsql::{Memory, Session};

const TEXT_LEN: usize = 512 << 10;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(name)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// The most additional memory of the program while `run` runs.
fn peak(run: impl FnOnce()) -> usize {
    // Resets the peak. Some kernels cannot, and then the peak shows nothing.
    if std::fs::write("/proc/self/clear_refs", "5").is_err() {
        println!("skipped: this kernel does not forget peaks");
        run();
        return 0;
    }
    let before = status("VmRSS:");
    run();
    status("VmHWM:").saturating_sub(before)
}

#[test]
fn memory_of_statements_is_claimed_and_kept_memory_is_shared() {
    let mut stage = Stage::new();
    let session = stage.session();
    // Texts of which a little parses to much.
    for (first, piece) in [
        ("", "BREAK "),
        ("", "PRINT 1 "),
        ("", "EXEC a "),
        ("", "SET @a=1 "),
        ("EXEC p 1", ",1"),
        ("EXEC p @a=1", ",@a=1"),
        ("DECLARE @a int", ",@a int"),
        ("DROP DATABASE a", ",a"),
        ("DBCC a(1", ",1"),
        ("SET a", " b"),
        ("BACKUP DATABASE a TO b", ",b"),
        ("BACKUP DATABASE a FILE='a'", ",FILE='a'"),
        ("BACKUP DATABASE a TO b WITH INIT", ",INIT"),
        (
            "RESTORE DATABASE a FROM b WITH MOVE '' TO ''",
            ",MOVE '' TO ''",
        ),
        ("SELECT 1", ",1"),
        ("SELECT 1", "+a"),
        ("", "IF 1=1 BREAK ELSE BREAK "),
        ("", "BEGIN BREAK END "),
        ("", "a:"),
        ("", "GOTO a "),
        ("", "THROW "),
        ("", "OPEN a "),
        ("", "FETCH a "),
        ("", "RETURN 1 "),
        ("RAISERROR('',1,1", ",1"),
        ("FETCH a INTO @a", ",@a"),
    ] {
        let text = first.to_owned() + &piece.repeat(TEXT_LEN / piece.len());
        let claimed = session.claim_for(&text).unwrap().bytes();
        let took = peak(|| drop(std::hint::black_box(parse(&text))));
        let each = took as f64 / text.len() as f64;
        println!("{piece:?}: {each:.0} bytes for each byte of the text");
        assert!(took <= claimed, "{piece:?}: {took} of {claimed}");
    }
    drop(session);

    stage.memory = Memory::new(6 << 20);
    let server = stage.server();
    let mut first = Session::new(server.clone(), common::login());
    let mut second = Session::new(server, common::login());
    let hold = "DECLARE @s nvarchar(max) = 'xxxxxxxx', @i int = 0; \
        WHILE @i < 19 BEGIN SET @s = @s + @s; SET @i = @i + 1 END; PRINT LEN(@s)";
    assert_eq!(numbers(&run(&mut first, hold)), [0]);
    assert_eq!(stage.memory.held(), 4 << 20);
    // Held until the next batch, or until it is no longer needed. The text takes part of the last 2 MiB, so that two
    // doublings are refused.
    assert_eq!(numbers(&run(&mut second, hold)), [701, 701, 0]);
    first.rest();
    assert_eq!(numbers(&run(&mut second, hold)), [0]);
    second.rest();
    assert_eq!(stage.memory.held(), 0);
    // Around a nested batch, and while a procedure has it.
    let inner =
        format!("{hold}; EXEC (N'DECLARE @t nvarchar(max) = REPLICATE(''x'', 8000); PRINT 1')");
    assert_eq!(numbers(&run(&mut first, &inner)), [0, 0]);
    let passed = format!("{hold}; EXEC sp_executesql N'PRINT 1', N'@p nvarchar(max)', @s");
    assert_eq!(numbers(&run(&mut first, &passed)), [0, 701]);
    let long = format!("PRINT 1 -- {}", "x".repeat(60_000));
    assert_eq!(numbers(&run(&mut first, &long)), [701]);
    assert_eq!(value(&mut first, "SELECT 1"), "1");
    first.rest();
    assert_eq!(stage.memory.held(), 0);
}
