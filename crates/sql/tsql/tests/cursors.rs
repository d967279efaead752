//! Goal: cursors do what SQL Server's documentation says, with its errors, and within bounds.
//! Method: scripts run in a session; messages and rows are compared.

mod common;

use common::{Stage, numbers, rows, run, said, value};
use longshore_tsql::{Memory, Session};

/// Four rows.
const T: &str = "(SELECT 1 AS n, 'a' AS name UNION ALL SELECT 2, 'b' UNION ALL SELECT 3, 'c' UNION ALL SELECT 4, 'd') t";

fn lines(session: &mut Session, script: &str) -> Vec<String> {
    said(&run(
        session,
        &script.replace("FROM T", &format!("FROM {T}")),
    ))
}

#[test]
fn a_loop_over_a_cursor_backs_up_every_database() {
    let mut stage = Stage::new();
    for name in ["one", "two"] {
        let path = stage.path(&format!("{name}.db"));
        common::fill(&path, 10);
        let source = longshore_pipeline::SourceSpec::Sqlite(path);
        stage.more.push((name, source));
    }
    let mut session = stage.session();
    for form in [
        "CURSOR FOR",
        "CURSOR LOCAL FAST_FORWARD FOR",
        "CURSOR READ_ONLY FOR",
        "CURSOR LOCAL STATIC FORWARD_ONLY READ_ONLY FOR",
        "INSENSITIVE CURSOR FOR",
    ] {
        let script = format!(
            "DECLARE @name VARCHAR(50), @fileName VARCHAR(256)
             DECLARE db_cursor {form}
             SELECT name FROM master.sys.databases WHERE name NOT IN ('master','model','msdb','tempdb')
             OPEN db_cursor
             FETCH NEXT FROM db_cursor INTO @name
             WHILE @@FETCH_STATUS = 0
             BEGIN
               SET @fileName = @name + '.bak'
               BACKUP DATABASE @name TO DISK = @fileName WITH INIT
               FETCH NEXT FROM db_cursor INTO @name
             END
             CLOSE db_cursor
             DEALLOCATE db_cursor"
        );
        let record = run(&mut session, &script);
        assert!(
            !record.messages().any(|m| m.is_error()),
            "{form}: {:?}",
            said(&record)
        );
        let done = numbers(&record).iter().filter(|n| **n == 3014).count();
        assert_eq!(done, 3, "{form}");
    }
    let count = "SELECT COUNT(*) FROM msdb.dbo.backupset";
    assert_eq!(value(&mut session, count), "15");
}

#[test]
fn fetch_takes_every_row_that_it_can_name() {
    let stage = Stage::new();
    let mut session = stage.session();
    for declared in [
        "c SCROLL CURSOR",
        "c CURSOR STATIC",
        "c CURSOR KEYSET",
        "c CURSOR SCROLL",
    ] {
        let script = format!(
            "DECLARE @n int, @name char(1), @k smallint = -2
             DECLARE {declared} FOR SELECT n, name FROM T ORDER BY n
             OPEN c
             FETCH LAST FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH PRIOR FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH ABSOLUTE 2 FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH RELATIVE 2 FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH RELATIVE @k FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH ABSOLUTE -1 FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH FIRST FROM c INTO @n, @name PRINT CONCAT(@n, @name)
             FETCH FROM c INTO @n, @name PRINT CONCAT(@n, @name, @@FETCH_STATUS, @@ROWCOUNT)
             FETCH ABSOLUTE 9 FROM c INTO @n, @name PRINT CONCAT(@n, @name, @@FETCH_STATUS, @@ROWCOUNT)
             FETCH PRIOR FROM c INTO @n, @name PRINT CONCAT(@n, @name, @@FETCH_STATUS)
             FETCH ABSOLUTE 0 FROM c INTO @n, @name PRINT @@FETCH_STATUS
             FETCH c INTO @n, @name PRINT CONCAT(@n, @name)
             PRINT @@CURSOR_ROWS
             CLOSE c PRINT @@CURSOR_ROWS
             DEALLOCATE c"
        );
        let expected = [
            "4d", "3c", "2b", "4d", "2b", "4d", "1a", "2b01", "2b-10", "4d0", "-1", "1a", "4", "0",
        ];
        let expected = expected.map(|line| format!("0 {line}"));
        assert_eq!(lines(&mut session, &script), expected, "{declared}");
    }
}

#[test]
fn a_fetch_without_into_is_a_result_of_its_own() {
    let stage = Stage::new();
    let mut session = stage.session();
    let script = "DECLARE c CURSOR FOR SELECT n, name AS who FROM T WHERE n < 3
        OPEN c
        FETCH NEXT FROM c
        WHILE @@FETCH_STATUS = 0 FETCH NEXT FROM c
        DEALLOCATE c";
    let record = run(
        &mut session,
        &script.replace("FROM T", &format!("FROM {T}")),
    );
    assert_eq!(rows(&record), [["1", "a"], ["2", "b"]]);
    assert_eq!(record.columns()[1].name, "who");
}

#[test]
fn a_cursors_query_is_read_when_it_opens_with_the_variables_of_its_declaration() {
    let stage = Stage::new();
    let mut session = stage.session();
    let script = "DECLARE @from int = 3, @n int
        DECLARE c CURSOR FOR SELECT n FROM T WHERE n >= @from ORDER BY n FOR READ ONLY
        SET @from = 1
        OPEN c FETCH c INTO @n PRINT @n CLOSE c
        OPEN c FETCH c INTO @n PRINT @n CLOSE c DEALLOCATE c";
    assert_eq!(lines(&mut session, script), ["0 3", "0 3"]);
    let status = "DECLARE @v CURSOR
        PRINT CONCAT(CURSOR_STATUS('global', 'c'), CURSOR_STATUS('variable', '@v'))
        DECLARE c CURSOR FOR SELECT 1 WHERE 1 = 0
        PRINT CURSOR_STATUS('global', 'c') OPEN c PRINT CURSOR_STATUS('global', 'c') CLOSE c
        SET @v = CURSOR FOR SELECT 1 OPEN @v PRINT CURSOR_STATUS('variable', '@v')
        DEALLOCATE c";
    assert_eq!(
        lines(&mut session, status),
        ["0 -3-2", "0 -1", "0 0", "0 1"]
    );
}

#[test]
fn names_are_global_and_local_and_variables_share_a_cursor() {
    let stage = Stage::new();
    let mut session = stage.session();
    let mut lines = |script: &str| lines(&mut session, script);
    // A global name is seen by later batches and by inner ones, a local one by its own alone.
    assert_eq!(
        lines("DECLARE g CURSOR GLOBAL FOR SELECT n FROM T; OPEN g"),
        [""; 0]
    );
    assert_eq!(
        lines(
            "DECLARE @n int FETCH g INTO @n PRINT @n EXEC ('DECLARE @n int FETCH NEXT FROM GLOBAL g INTO @n PRINT @n')"
        ),
        ["0 1", "0 2"]
    );
    assert_eq!(
        lines("DECLARE l CURSOR LOCAL FOR SELECT 1 OPEN l EXEC ('OPEN l') PRINT 'on'"),
        ["16916 A cursor with the name 'l' does not exist.", "0 on"]
    );
    assert_eq!(
        lines("CLOSE l"),
        ["16916 A cursor with the name 'l' does not exist."]
    );
    // Both scopes may have a name; the local one is meant.
    assert_eq!(
        lines(
            "DECLARE g CURSOR LOCAL FOR SELECT 7 DECLARE @n int OPEN g FETCH g INTO @n PRINT @n DEALLOCATE g FETCH g INTO @n PRINT @n"
        ),
        ["0 7", "0 3"]
    );
    assert_eq!(lines("DEALLOCATE GLOBAL g"), [""; 0]);
    let shared = "DECLARE @a CURSOR, @b CURSOR, @n int
        SET @a = CURSOR SCROLL FOR SELECT n FROM T ORDER BY n
        OPEN @a SET @b = @a
        FETCH NEXT FROM @a INTO @n FETCH NEXT FROM @b INTO @n PRINT @n
        DEALLOCATE @a FETCH NEXT FROM @b INTO @n PRINT @n
        DEALLOCATE @b FETCH NEXT FROM @b INTO @n";
    assert_eq!(
        lines(shared),
        [
            "0 2",
            "0 3",
            "16950 The variable '@b' does not currently have a cursor allocated to it."
        ]
    );
    let named = "DECLARE @v CURSOR, @n int DECLARE c CURSOR LOCAL FOR SELECT n FROM T SET @v = c OPEN @v FETCH c INTO @n PRINT @n";
    assert_eq!(lines(named), ["0 1"]);
}

#[test]
fn mistakes_have_sql_servers_numbers() {
    let stage = Stage::new();
    let mut session = stage.session();
    let c = "DECLARE c CURSOR LOCAL FOR SELECT n, name FROM T; OPEN c;";
    for (script, number) in [
        ("OPEN nothing", 16916),
        ("FETCH NEXT FROM nothing", 16916),
        ("DEALLOCATE nothing", 16916),
        (
            "DECLARE c CURSOR LOCAL FOR SELECT 1 DECLARE c CURSOR LOCAL FOR SELECT 2",
            16915,
        ),
        ("DECLARE c CURSOR LOCAL FOR SELECT 1 CLOSE c", 16917),
        ("DECLARE c CURSOR LOCAL FOR SELECT 1 FETCH c", 16917),
        ("C OPEN c", 16905),
        ("C DECLARE @n int FETCH c INTO @n", 16924),
        ("C FETCH PRIOR FROM c", 16911),
        ("C FETCH ABSOLUTE 1 FROM c", 16911),
        (
            "DECLARE c CURSOR LOCAL DYNAMIC FOR SELECT 1 OPEN c FETCH ABSOLUTE 1 FROM c",
            16925,
        ),
        (
            "DECLARE c CURSOR LOCAL FAST_FORWARD FOR SELECT 1 OPEN c FETCH LAST FROM c",
            16911,
        ),
        ("C DECLARE @n int, @d datetime FETCH c INTO @n, @d", 241),
        ("DECLARE c CURSOR FAST_FORWARD SCROLL FOR SELECT 1", 1048),
        ("DECLARE c CURSOR GLOBAL LOCAL FOR SELECT 1", 1048),
        ("DECLARE c SCROLL CURSOR LOCAL FOR SELECT 1", 1049),
        (
            "DECLARE c CURSOR READ_ONLY FOR SELECT 1 FOR READ ONLY",
            1058,
        ),
        ("DECLARE c CURSOR FOR SELECT 1 FOR UPDATE OF n", 50002),
        ("DECLARE c CURSOR FOR UPDATE t SET n = 1", 156),
        ("DECLARE c CURSOR NONSENSE FOR SELECT 1", 102),
        (
            "DECLARE @n int DECLARE c CURSOR LOCAL FOR SELECT @n = 1",
            154,
        ),
        (
            "DECLARE c CURSOR LOCAL FOR SELECT no_such_column FROM sys.databases",
            207,
        ),
        ("DECLARE @c CURSOR OPEN @c", 16950),
        ("DECLARE @c int OPEN @c", 16948),
        ("DECLARE @c CURSOR PRINT @c", 16949),
        ("DECLARE @c CURSOR SET @c = 1", 16949),
        ("OPEN @c", 137),
        ("DECLARE @c CURSOR = 1", 16949),
        ("DECLARE @a int, @c CURSOR, @c CURSOR", 134),
        ("FETCH NEXT c", 102),
        ("OPEN MASTER KEY", 102),
        ("DECLARE c int", 102),
    ] {
        let script = match script.strip_prefix("C ") {
            Some(rest) => format!("{c} {rest}"),
            None => script.to_owned(),
        };
        let script = script.replace("FROM T", &format!("FROM {T}"));
        let said = said(&run(&mut session, &script));
        assert_eq!(said.len(), 1, "{script}: {said:?}");
        assert!(
            said[0].starts_with(&format!("{number} ")),
            "{script}: {said:?}"
        );
    }
    let named = lines(
        &mut session,
        "DECLARE c CURSOR SCROLL FAST_FORWARD FOR SELECT 1",
    );
    assert_eq!(
        named,
        ["1048 Conflicting cursor options SCROLL and FAST_FORWARD."]
    );
    let prior = lines(&mut session, &format!("{c} FETCH PRIOR FROM c"));
    assert_eq!(
        prior,
        ["16911 fetch: The fetch type prior cannot be used with forward only cursors."]
    );
}

#[test]
fn cursors_have_a_bound_in_number_and_memory_and_give_it_back() {
    let mut stage = Stage::new();
    stage.memory = Memory::new(64 << 20);
    let mut session = stage.session();
    let many = "DECLARE @i int = 0 WHILE @i < 300 BEGIN
        DECLARE @sql nvarchar(200) = CONCAT(N'DECLARE c', @i, N' CURSOR FOR SELECT 1')
        EXEC (@sql) SET @i += 1 END";
    let record = run(&mut session, many);
    assert_eq!(numbers(&record), [16960; 44]);
    session.reset(false);
    assert_eq!(stage.memory.held(), 0);
    // 4^9 rows of 200 bytes are more than a session can hold.
    let product = [T.trim_end_matches(" t"); 9];
    let product: Vec<_> = product
        .iter()
        .enumerate()
        .map(|(i, t)| format!("{t} t{i}"))
        .collect();
    let product = product.join(" CROSS JOIN ");
    let wide =
        format!("DECLARE c CURSOR FOR SELECT REPLICATE('x', 200) AS x FROM {product}; OPEN c");
    let record = run(&mut session, &wide);
    assert_eq!(numbers(&record), [50000], "{:?}", said(&record));
    assert!(stage.memory.held() < 1 << 20, "{}", stage.memory.held());
    // It is closed, and others can be opened.
    assert_eq!(
        lines(&mut session, "CLOSE c"),
        ["16917 Cursor is not open."]
    );
    assert_eq!(
        lines(
            &mut session,
            "DEALLOCATE c; DECLARE c CURSOR FOR SELECT 1; OPEN c; PRINT @@CURSOR_ROWS"
        ),
        ["0 1"]
    );
    drop(session);
    assert_eq!(stage.memory.held(), 0);
}

/// Goal: SET ROWCOUNT limits the cursors whose rows are those at OPEN, as in SQL Server.
#[test]
fn a_limit_of_rows_holds_for_cursors_with_fixed_rows() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (form, count) in [
        ("CURSOR STATIC", "2"),
        ("CURSOR KEYSET", "2"),
        ("INSENSITIVE CURSOR", "2"),
        ("CURSOR DYNAMIC", "4"),
    ] {
        let script = format!(
            "SET ROWCOUNT 2; DECLARE c {form} FOR SELECT n FROM {T}; OPEN c; DECLARE @n int, @i int = 0; FETCH c INTO @n
             WHILE @@FETCH_STATUS = 0 BEGIN SET @i += 1; FETCH c INTO @n END DEALLOCATE c; SET ROWCOUNT 0; SELECT @i"
        );
        assert_eq!(value(&mut session, &script), count, "{form}");
    }
    let open = format!("SET ROWCOUNT 2; DECLARE c CURSOR LOCAL FOR SELECT n FROM {T}; OPEN c");
    assert_eq!(numbers(&run(&mut session, &open)), [50002]);
}

/// Goal: a cursor never takes one column's values for another's after ALTER TABLE.
#[test]
fn a_cursor_whose_table_has_another_definition_does_not_open() {
    let stage = Stage::new();
    let mut session = stage.session();
    for table in ["dbo.kept", "#own"] {
        let script = format!(
            "CREATE TABLE {table} (a int, b int, c int); INSERT {table} VALUES (1, 2, 3);
             DECLARE c CURSOR FOR SELECT b FROM {table}"
        );
        assert_eq!(said(&run(&mut session, &script)), [""; 0]);
        let moved =
            format!("ALTER TABLE {table} DROP COLUMN a; ALTER TABLE {table} ADD d int NULL");
        assert_eq!(said(&run(&mut session, &moved)), [""; 0]);
        assert_eq!(numbers(&run(&mut session, "OPEN c")), [16943], "{table}");
        let again = format!(
            "DEALLOCATE c; DECLARE c CURSOR FOR SELECT b FROM {table}; OPEN c; DECLARE @b int; FETCH c INTO @b; DEALLOCATE c; SELECT @b"
        );
        assert_eq!(value(&mut session, &again), "2", "{table}");
    }
}
