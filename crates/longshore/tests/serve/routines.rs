//! Goal: procedures and tables that one client creates are there for others: called by drivers with outputs and a return
//! status, with the procedure's name at its errors, and within the bounds of what a login may create.
//! Method: bare messages of the protocol against the real program.

use crate::raw::{RPC, Raw, says};
use crate::stage::Stage;

/// A call by name with two whole numbers, the second one an output.
fn call(name: &str, first: i32, second: i32) -> Vec<u8> {
    let wide: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut body = vec![4, 0, 0, 0];
    body.extend((name.len() as u16).to_le_bytes());
    body.extend(wide);
    body.extend([0, 0]);
    for (status, value) in [(0, first), (1, second)] {
        body.extend([0, status, 0x26, 4, 4]);
        body.extend(value.to_le_bytes());
    }
    body
}

#[test]
fn a_driver_calls_a_procedure_that_another_client_has_created() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut one = Raw::login(server.port);
    one.batch("CREATE PROCEDURE dbo.twice @a int, @b int OUTPUT AS SET @b = @a * 2; RETURN -7");
    let mut other = Raw::login(server.port);
    other.send(RPC, 0, &call("dbo.twice", 21, 0));
    let answer = other.message().unwrap();
    // RETURNSTATUS, and RETURNVALUE with 42.
    let status = [&[0x79][..], &(-7_i32).to_le_bytes()].concat();
    assert!(answer.windows(5).any(|bytes| bytes == status), "{answer:?}");
    let value = [&[4][..], &42_i32.to_le_bytes()].concat();
    assert!(answer.windows(5).any(|bytes| bytes == value), "{answer:?}");
    one.batch("CREATE PROC fails AS RAISERROR ('not so', 16, 1)");
    let failed = other.batch("EXEC fails");
    assert!(says(&failed, "not so"));
    // ERROR has the procedure's name, with its schema, after the server's.
    let name = [
        &[9][..],
        &"dbo.fails"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<_>>(),
    ]
    .concat();
    assert!(failed.windows(name.len()).any(|bytes| bytes == name));
}

#[test]
fn tables_and_procedures_outlive_the_server_and_temporary_tables_their_client_only() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut client = Raw::login(server.port);
    client.batch("CREATE TABLE dbo.notes (id int IDENTITY, note nvarchar(40)); INSERT notes (note) VALUES (N'kept note')");
    client.batch("CREATE PROC shows AS SELECT note FROM notes");
    client.batch("CREATE TABLE #mine (a int)");
    let mut other = Raw::login(server.port);
    assert!(says(
        &other.batch("SELECT * FROM #mine"),
        "Invalid object name '#mine'."
    ));
    assert!(says(&other.batch("EXEC shows"), "kept note"));
    // A client that leaves in a transaction has rolled back.
    client.batch("BEGIN TRAN; DELETE notes");
    drop(client);
    let is_back = |other: &mut Raw| says(&other.batch("EXEC shows"), "kept note");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_back(&mut other) {
        assert!(std::time::Instant::now() < until, "it is not rolled back");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop((other, server));
    let server = stage.server(&[]);
    let mut client = Raw::login(server.port);
    assert!(says(&client.batch("EXEC shows"), "kept note"));
    let outside = client.batch("EXEC xp_dirtree '/etc', 1, 1");
    assert!(says(&outside, "Access is denied"));
    let unseen = client
        .batch("SELECT CONCAT(N'found ', file_is_a_directory) FROM sys.dm_os_file_exists('/etc')");
    assert!(says(&unseen, "found 0"));
}
