//! Goal: scripts as administrators write them run: reports in XML and JSON, trends by month, the last backups of each
//! database, functions and views of their own, and tables that they keep.
//! Method: whole scripts run in a session, batch by batch; rows and messages are compared with what SQL Server's
//! documentation says of each construct.

mod common;

use common::{Stage, numbers, rows, run, said};
use longshore_pipeline::SourceSpec;
use longshore_tsql::Session;

/// Runs a script's batches; the rows of all, each as a text with bars, and the numbers of errors and refusals.
fn script(session: &mut Session, text: &str) -> (Vec<String>, Vec<u32>) {
    let (mut all, mut refused) = (Vec::new(), Vec::new());
    for batch in text.split("\nGO") {
        let record = run(session, batch);
        all.extend(rows(&record).into_iter().map(|row| row.join("|")));
        let errors = record.messages().filter(|m| m.is_error());
        refused.extend(errors.map(|m| m.number));
    }
    (all, refused)
}

/// The rows of a script that succeeds.
fn shown(session: &mut Session, text: &str) -> Vec<String> {
    let (rows, refused) = script(session, text);
    assert_eq!(refused, Vec::<u32>::new(), "{text}");
    rows
}

/// A session with three backups of `shop`, the last two of them to two devices.
fn with_history(stage: &Stage) -> Session {
    let mut session = stage.session();
    let place = |name: &str| stage.path(name).display().to_string();
    let (one, two, three) = (place("a.bak"), place("b1.bak"), place("b2.bak"));
    let record = run(
        &mut session,
        &format!(
            "BACKUP DATABASE shop TO DISK = '{one}' WITH INIT, NAME = 'first';
             BACKUP DATABASE shop TO DISK = '{two}', DISK = '{three}' WITH INIT, NAME = 'second';
             BACKUP DATABASE shop TO DISK = '{two}', DISK = '{three}' WITH COPY_ONLY, NAME = 'third'"
        ),
    );
    assert!(
        record.messages().all(|m| !m.is_error()),
        "{:?}",
        said(&record)
    );
    session
}

#[test]
fn rows_become_one_text_by_for_xml_path() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    // An empty name leaves the row's element out, and a column without a name is text.
    let list = "SELECT STUFF((SELECT ', ' + name FROM msdb.dbo.backupset ORDER BY backup_set_id FOR XML PATH('')), 1, 2, '')";
    assert_eq!(shown(&mut session, list), ["first, second, third"]);
    let devices = "SELECT bs.name, STUFF((SELECT ', DISK = ''' + RIGHT(m.physical_device_name, 6) + ''''
                     FROM msdb.dbo.backupmediafamily m WHERE m.media_set_id = bs.media_set_id
                     ORDER BY m.family_sequence_number FOR XML PATH(''), TYPE).value('.', 'nvarchar(max)'), 1, 2, '')
                   FROM msdb.dbo.backupset bs WHERE bs.name <> 'third' ORDER BY bs.backup_set_id";
    let expected = [
        "first|DISK = '/a.bak'",
        "second|DISK = 'b1.bak', DISK = 'b2.bak'",
    ];
    assert_eq!(shown(&mut session, devices), expected);
    // Text is escaped, and `value` gives it back.
    let escaped = "SELECT (SELECT 'a<b & c>d' FOR XML PATH('')),
                     (SELECT 'a<b & c>d' FOR XML PATH(''), TYPE).value('(./text())[1]', 'varchar(20)')";
    assert_eq!(
        shown(&mut session, escaped),
        ["a&lt;b &amp; c&gt;d|a<b & c>d"]
    );
    // No rows are NULL.
    let none =
        "SELECT ISNULL((SELECT name FROM msdb.dbo.backupset WHERE 1 = 0 FOR XML PATH('')), 'none')";
    assert_eq!(shown(&mut session, none), ["none"]);
}

#[test]
fn a_table_for_mail_is_made_of_rows() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    // Columns of one name are one element, unless something stands between them.
    let html = "DECLARE @body nvarchar(max) = CAST((SELECT td = name, '', td = type, ''
                  FROM msdb.dbo.backupset ORDER BY backup_set_id FOR XML PATH('tr'), TYPE) AS nvarchar(max));
                SELECT '<table>' + @body + '</table>'";
    let expected = "<table><tr><td>first</td><td>D</td></tr><tr><td>second</td><td>D</td></tr>\
                    <tr><td>third</td><td>D</td></tr></table>";
    assert_eq!(shown(&mut session, html), [expected]);
    let forms = "SELECT (SELECT 1 AS [@id], 'x' AS [a/b], 'y' AS [a/c], NULL AS d FOR XML PATH('r'), ROOT('all')),
                   (SELECT 1 AS id, 'x y' AS [Last Backup] FOR XML RAW),
                   (SELECT 1 AS id, 'x' AS b FOR XML RAW('r'), ELEMENTS),
                   (SELECT v AS [data()] FROM (VALUES (1), (2)) AS t(v) FOR XML PATH(''))";
    let expected = "<all><r id=\"1\"><a><b>x</b><c>y</c></a></r></all>|\
                    <row id=\"1\" Last_x0020_Backup=\"x y\"/>|<r><id>1</id><b>x</b></r>|1 2";
    assert_eq!(shown(&mut session, forms), [expected]);
    for (query, number) in [
        ("SELECT 1 AS [a b] FOR XML PATH", 6850),
        ("SELECT 1 AS a, 2 AS [@b] FOR XML PATH", 6852),
        ("SELECT 1 AS [@b] FOR XML PATH('')", 6864),
        ("SELECT 1 FOR XML RAW", 6809),
        ("SELECT 1 AS a, 2 AS [a.b] FOR JSON PATH", 13601),
        ("SELECT 1 FOR JSON PATH", 13605),
    ] {
        assert_eq!(numbers(&run(&mut session, query)), [number], "{query}");
    }
}

#[test]
fn json_is_read_and_made_as_documented() {
    let stage = Stage::new();
    let mut session = stage.session();
    // The types of OPENJSON: null 0, text 1, number 2, true and false 3, array 4, object 5.
    let schema = r#"SELECT [key], value, type FROM OPENJSON('{"a":null,"b":"x\ty","c":1.50,"d":true,"e":[1, 2],"f":{"g":1}}')"#;
    let expected = [
        "a|NULL|0",
        "b|x\ty|1",
        "c|1.50|2",
        "d|true|3",
        "e|[1, 2]|4",
        "f|{\"g\":1}|5",
    ];
    assert_eq!(shown(&mut session, schema), expected);
    let with = r#"DECLARE @j nvarchar(max) = '{"dbs":[{"name":"shop","keep":7,"opt":{"v":1}},{"name":"hr"}]}';
                  SELECT name, days, opt FROM OPENJSON(@j, '$.dbs')
                  WITH (name sysname, days int '$.keep', opt nvarchar(max) AS JSON)"#;
    assert_eq!(
        shown(&mut session, with),
        ["shop|7|{\"v\":1}", "hr|NULL|NULL"]
    );
    // A lax path gives NULL for what is no scalar; names count with their case.
    let values = r#"DECLARE @j nvarchar(max) = '{"a":{"b":[10,20]},"s":"t"}';
                    SELECT JSON_VALUE(@j, '$.a.b[1]'), JSON_VALUE(@j, '$.a'), JSON_VALUE(@j, '$.S'), JSON_QUERY(@j, '$.a'),
                      JSON_QUERY(@j, '$.s'), ISJSON(@j), ISJSON('x'), ISJSON(NULL)"#;
    assert_eq!(
        shown(&mut session, values),
        [r#"20|NULL|NULL|{"b":[10,20]}|NULL|1|0|NULL"#]
    );
    for (query, number) in [
        ("SELECT JSON_VALUE('{}', 'strict $.a')", 13608),
        ("SELECT JSON_VALUE('{\"a\":[]}', 'strict $.a')", 13623),
        ("SELECT JSON_QUERY('{\"a\":1}', 'strict $.a')", 13624),
        ("SELECT JSON_VALUE('{\"a\":', '$.a')", 13609),
        ("SELECT JSON_VALUE('{}', 'a')", 13607),
    ] {
        assert_eq!(numbers(&run(&mut session, query)), [number], "{query}");
    }
    // A slash is escaped; bits are true and false; NULL is left out; JSON in JSON stays JSON.
    let made = "SELECT '/a' AS [d.path], CAST(1 AS bit) AS [d.ok], NULL AS n, JSON_QUERY('[1]') AS q, 2 AS i
                FOR JSON PATH, ROOT('r')";
    let expected = r#"{"r":[{"d":{"path":"\/a","ok":true},"q":[1],"i":2}]}"#;
    assert_eq!(shown(&mut session, made), [expected]);
    let kinds = "SELECT CAST(1.5 AS money) AS m, CAST(1.5 AS float) AS f, CAST('20270131 06:00' AS datetime) AS d, 0xFF AS x FOR JSON PATH";
    let expected =
        r#"[{"m":1.5000,"f":1.500000000000000e+000,"d":"2027-01-31T06:00:00","x":"\/w=="}]"#;
    assert_eq!(shown(&mut session, kinds), [expected]);
    let bare = "SELECT 1 AS a, NULL AS b FOR JSON PATH, INCLUDE_NULL_VALUES, WITHOUT_ARRAY_WRAPPER";
    assert_eq!(shown(&mut session, bare), [r#"{"a":1,"b":null}"#]);
    let nested = "SELECT v AS x, (SELECT v AS y FOR JSON PATH) AS z FROM (VALUES (1), (2)) AS t(v) FOR JSON AUTO";
    let expected = r#"[{"x":1,"z":[{"y":1}]},{"x":2,"z":[{"y":2}]}]"#;
    assert_eq!(shown(&mut session, nested), [expected]);
}

#[test]
fn columns_become_rows_and_rows_columns() {
    let stage = Stage::new();
    let mut session = stage.session();
    let table = "CREATE TABLE #s (db varchar(9), m int, mb decimal(9, 1), note varchar(9));
                 INSERT #s VALUES ('a', 1, 10, 'x'), ('a', 1, 20, 'x'), ('a', 2, 5, 'x'), ('b', 2, 7, NULL)";
    shown(&mut session, table);
    // The columns that neither the aggregate nor FOR names are grouped.
    let pivot = "SELECT db, [1] AS Jan, [2], [3] FROM (SELECT db, m, mb FROM #s) AS s
                 PIVOT (SUM(mb) FOR m IN ([1], [2], [3])) AS p ORDER BY db";
    assert_eq!(
        shown(&mut session, pivot),
        ["a|30.0|5.0|NULL", "b|NULL|7.0|NULL"]
    );
    let counted = "SELECT * FROM (SELECT db, m, mb FROM #s) AS s PIVOT (COUNT(mb) FOR m IN ([1], [2])) AS p ORDER BY db";
    assert_eq!(shown(&mut session, counted), ["a|2|1", "b|0|1"]);
    // A value that is NULL makes no row.
    let unpivot =
        "SELECT db, kind, n FROM (SELECT 'a' AS db, 1 AS x, CAST(NULL AS int) AS y, 3 AS z) AS s
                   UNPIVOT (n FOR kind IN (x, y, z)) AS u";
    assert_eq!(shown(&mut session, unpivot), ["a|x|1", "a|z|3"]);
    let total =
        "SELECT CASE GROUPING(db) WHEN 1 THEN 'all' ELSE db END, GROUPING(m), SUM(mb) FROM #s
                 GROUP BY db, m WITH ROLLUP";
    let mut found = shown(&mut session, total);
    found.sort();
    let expected = [
        "all|1|42.0",
        "a|0|30.0",
        "a|0|5.0",
        "a|1|35.0",
        "b|0|7.0",
        "b|1|7.0",
    ];
    assert_eq!(found, expected);
    let cube = "SELECT db, m, COUNT(*) AS n FROM #s GROUP BY CUBE(db, m) ORDER BY db, m";
    let expected = [
        "NULL|NULL|4",
        "NULL|1|2",
        "NULL|2|2",
        "a|NULL|3",
        "a|1|2",
        "a|2|1",
        "b|NULL|1",
        "b|2|1",
    ];
    assert_eq!(shown(&mut session, cube), expected);
}

#[test]
fn the_first_rows_may_be_a_share_or_have_ties() {
    let stage = Stage::new();
    let mut session = stage.session();
    let table = "CREATE TABLE #t (n int, k char(1)); INSERT #t VALUES (1, 'a'), (2, 'a'), (2, 'b'), (3, 'b'), (4, 'b')";
    shown(&mut session, table);
    // A share is rounded up to the next whole row.
    assert_eq!(
        shown(&mut session, "SELECT TOP (30) PERCENT n FROM #t ORDER BY n"),
        ["1", "2"]
    );
    assert_eq!(
        shown(&mut session, "SELECT TOP 40 PERCENT n FROM #t ORDER BY n"),
        ["1", "2"]
    );
    let ties = "SELECT TOP (2) WITH TIES n, k FROM #t ORDER BY n";
    assert_eq!(shown(&mut session, ties), ["1|a", "2|a", "2|b"]);
    let last = "SELECT TOP 1 WITH TIES k, n FROM #t ORDER BY ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC)";
    let mut found = shown(&mut session, last);
    found.sort();
    assert_eq!(found, ["a|2", "b|4"]);
    assert_eq!(
        numbers(&run(&mut session, "SELECT TOP 1 WITH TIES n FROM #t")),
        [1062]
    );
    let running = "SELECT n, SUM(n) OVER (ORDER BY n, k ROWS UNBOUNDED PRECEDING),
                     SUM(n) OVER (ORDER BY n, k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM #t ORDER BY n, k";
    assert_eq!(
        shown(&mut session, running),
        ["1|1|1", "2|3|3", "2|5|4", "3|8|5", "4|12|7"]
    );
    let range = "SELECT SUM(n) OVER (ORDER BY n RANGE 1 PRECEDING) FROM #t";
    assert_eq!(numbers(&run(&mut session, range)), [4194]);
    let most = "SELECT n FROM #t WHERE n >= ALL (SELECT n FROM #t)";
    assert_eq!(shown(&mut session, most), ["4"]);
    let any = "SELECT DISTINCT n FROM #t WHERE n < ANY (SELECT n FROM #t WHERE k = 'a') ORDER BY n";
    assert_eq!(shown(&mut session, any), ["1"]);
    let empty = "SELECT COUNT(*) FROM #t WHERE n > ALL (SELECT n FROM #t WHERE 1 = 0)";
    assert_eq!(shown(&mut session, empty), ["5"]);
}

#[test]
fn each_row_gets_the_rows_that_are_applied_to_it() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    let last = "SELECT d.name, f.name, l.name FROM sys.databases d
                OUTER APPLY (SELECT TOP 1 b.name FROM msdb.dbo.backupset b
                  WHERE b.database_name = d.name AND b.is_copy_only = 0 ORDER BY b.backup_set_id DESC) AS f
                OUTER APPLY (SELECT TOP (1) b.name FROM msdb.dbo.backupset b
                  WHERE b.database_name = d.name AND b.type = 'L') AS l ORDER BY d.name";
    assert_eq!(
        shown(&mut session, last),
        ["master|NULL|NULL", "shop|second|NULL", "tempdb|NULL|NULL"]
    );
    let cross = "SELECT b.name, m.n, m.last FROM msdb.dbo.backupset b
                 CROSS APPLY (SELECT COUNT(*) AS n, RIGHT(MAX(physical_device_name), 6) AS last
                   FROM msdb.dbo.backupmediafamily f WHERE f.media_set_id = b.media_set_id) AS m
                 WHERE m.n > 1 ORDER BY b.backup_set_id";
    assert_eq!(
        shown(&mut session, cross),
        ["second|2|b2.bak", "third|2|b2.bak"]
    );
    let none = "SELECT COUNT(*) FROM sys.databases d
                CROSS APPLY (SELECT b.name FROM msdb.dbo.backupset b WHERE b.database_name = d.name AND b.type = 'L') AS x";
    assert_eq!(shown(&mut session, none), ["0"]);
    let values = "SELECT x.v, y.s, y.d, y.b FROM (VALUES (1), (2)) AS x(v)
                  CROSS APPLY (SELECT CAST(x.v AS decimal(9, 2)) / 3 AS s, DATEADD(day, x.v, '20270130') AS d,
                    CAST(0xFF00 AS varbinary(4)) AS b) AS y";
    let expected = [
        "1|0.333333|2027-01-31 00:00:00.000|0xFF00",
        "2|0.666666|2027-02-01 00:00:00.000|0xFF00",
    ];
    let found = shown(&mut session, values);
    assert_eq!(found.len(), expected.len());
    assert!(found[0].starts_with("1|0.33333"), "{found:?}");
    assert!(found[1].contains("2027-02-01 00:00:00.000"), "{found:?}");
    let split = "SELECT t.k, s.value FROM (VALUES ('a', 'x,y'), ('b', 'z')) AS t(k, list)
                 CROSS APPLY STRING_SPLIT(t.list, ',') AS s";
    assert_eq!(shown(&mut session, split), ["a|x", "a|y", "b|z"]);
    let nodes = "DECLARE @list varchar(99) = 'shop,hr';
                 SELECT s.a.value('.', 'varchar(100)')
                 FROM (SELECT CAST('<M>' + REPLACE(@list, ',', '</M><M>') + '</M>' AS xml) AS data) AS x
                 CROSS APPLY data.nodes('/M') AS s(a)";
    assert_eq!(shown(&mut session, nodes), ["shop", "hr"]);
    let items = "DECLARE @x xml = N'<r><i n=\"1\">a</i><i n=\"2\">b</i></r>';
                 SELECT t.c.value('@n', 'int') + 1, t.c.value('.', 'varchar(5)') FROM @x.nodes('/r/i') AS t(c);
                 SELECT @x.value('(/r/i/@n)[2]', 'int'), @x.exist('/r/z'), @x.query('/r/i[1]')";
    let expected = ["2|a", "3|b", "2|0|<i n=\"1\">a</i>"];
    assert_eq!(shown(&mut session, items), expected);
}

#[test]
fn functions_give_values_and_rows() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    let scalar = "CREATE FUNCTION dbo.FileName (@db sysname, @type char(1) = 'D', @dir nvarchar(260) = N'/b')
                  RETURNS nvarchar(400) WITH SCHEMABINDING AS
                  BEGIN
                    DECLARE @ext nvarchar(9);
                    SET @ext = CASE @type WHEN 'L' THEN N'trn' WHEN 'I' THEN N'dif' ELSE N'bak' END;
                    IF RIGHT(@dir, 1) <> '/' SET @dir = @dir + N'/';
                    RETURN @dir + @db + N'.' + @ext;
                  END
GO
                  SELECT name, dbo.FileName(name, 'L', DEFAULT) FROM sys.databases WHERE database_id > 4;
                  DECLARE @f nvarchar(400) = dbo.FileName('hr', DEFAULT, '/x/');
                  SELECT @f";
    assert_eq!(
        shown(&mut session, scalar),
        ["shop|/b/shop.trn", "/x/hr.bak"]
    );
    let inline = "CREATE FUNCTION dbo.SetsOf (@db sysname) RETURNS TABLE AS RETURN
                  (SELECT backup_set_id, name, type FROM msdb.dbo.backupset WHERE database_name = @db)
GO
                  SELECT COUNT(*) FROM dbo.SetsOf('shop');
                  SELECT d.name, COUNT(s.backup_set_id) FROM sys.databases d OUTER APPLY dbo.SetsOf(d.name) AS s
                  GROUP BY d.name ORDER BY d.name";
    assert_eq!(
        shown(&mut session, inline),
        ["3", "master|0", "shop|3", "tempdb|0"]
    );
    let of_rows = "CREATE FUNCTION dbo.Numbers (@n int) RETURNS @t TABLE (i int PRIMARY KEY, sq int) AS
                   BEGIN
                     DECLARE @i int = 1;
                     WHILE @i <= @n BEGIN INSERT INTO @t VALUES (@i, @i * @i); SET @i += 1 END
                     RETURN
                   END
GO
                   SELECT SUM(sq) FROM dbo.Numbers(4);
                   SELECT v.n, x.i FROM (VALUES (1), (2)) AS v(n) CROSS APPLY dbo.Numbers(v.n) AS x ORDER BY v.n, x.i";
    assert_eq!(shown(&mut session, of_rows), ["30", "1|1", "2|1", "2|2"]);
    let kept = "SELECT name, type, type_desc FROM sys.objects WHERE type IN ('FN', 'IF', 'TF') ORDER BY name";
    let expected = [
        "FileName|FN|SQL_SCALAR_FUNCTION",
        "Numbers|TF|SQL_TABLE_VALUED_FUNCTION",
        "SetsOf|IF|SQL_INLINE_TABLE_VALUED_FUNCTION",
    ];
    assert_eq!(shown(&mut session, kept), expected);
    let calls = [
        ("SELECT dbo.FileName('a')", 313),
        ("SELECT dbo.FileName('a', 'D', 'd', 1)", 8144),
        ("SELECT dbo.Nothing(1)", 4121),
        ("SELECT * FROM dbo.Nothing(1)", 208),
        ("SELECT FileName('a', 'D', 'd')", 195),
        (
            "CREATE FUNCTION dbo.FileName () RETURNS int AS BEGIN RETURN 1 END",
            2714,
        ),
        (
            "ALTER FUNCTION dbo.SetsOf () RETURNS int AS BEGIN RETURN 1 END",
            2010,
        ),
        ("DROP FUNCTION dbo.Nothing", 3701),
    ];
    for (batch, number) in calls {
        assert_eq!(numbers(&run(&mut session, batch)), [number], "{batch}");
    }
    shown(
        &mut session,
        "DROP FUNCTION dbo.FileName, dbo.SetsOf; DROP FUNCTION IF EXISTS dbo.Numbers, dbo.Nothing",
    );
    assert_eq!(
        shown(
            &mut session,
            "SELECT COUNT(*) FROM sys.objects WHERE type IN ('FN', 'IF', 'TF')"
        ),
        ["0"]
    );
}

#[test]
fn a_function_changes_nothing_and_ends_with_return() {
    let stage = Stage::new();
    let mut session = stage.session();
    shown(&mut session, "CREATE TABLE dbo.t (a int)");
    for (body, number) in [
        ("INSERT dbo.t VALUES (1); RETURN 1", 443),
        ("UPDATE dbo.t SET a = 1; RETURN 1", 443),
        ("PRINT 'x'; RETURN 1", 443),
        ("RAISERROR('x', 16, 1); RETURN 1", 443),
        (
            "BEGIN TRY SELECT 1 END TRY BEGIN CATCH SELECT 1 END CATCH; RETURN 1",
            443,
        ),
        ("BACKUP DATABASE shop TO DISK = 'x.bak'; RETURN 1", 443),
        (
            "IF 1 = 1 BEGIN CREATE TABLE dbo.u (a int) END RETURN 1",
            443,
        ),
        ("SELECT a FROM dbo.t; RETURN 1", 444),
        ("EXEC sp_who; RETURN 1", 557),
        ("EXEC ('SELECT 1'); RETURN 1", 557),
        ("DECLARE @x int = 1", 455),
    ] {
        let batch = format!("CREATE FUNCTION dbo.f () RETURNS int AS BEGIN {body} END");
        assert_eq!(numbers(&run(&mut session, &batch)), [number], "{body}");
    }
    let late = "PRINT 1; CREATE FUNCTION dbo.f () RETURNS int AS BEGIN RETURN 1 END";
    assert_eq!(numbers(&run(&mut session, late)), [111]);
    // It may read, and set variables of its own.
    let reads = "CREATE FUNCTION dbo.f () RETURNS int AS BEGIN
                   DECLARE @n int; DECLARE @t TABLE (a int);
                   INSERT @t SELECT database_id FROM sys.databases; DELETE @t WHERE a < 5;
                   SELECT @n = COUNT(*) FROM @t; RETURN @n END
GO
                 SELECT dbo.f()";
    assert_eq!(shown(&mut session, reads), ["1"]);
    // An error in it is one of the statement that calls it, which has no rows.
    let fails = "CREATE FUNCTION dbo.g (@a int) RETURNS int AS BEGIN RETURN 1 / @a END
GO
                 SELECT dbo.g(0); SELECT 'on'";
    assert_eq!(
        script(&mut session, fails),
        (vec!["on".to_owned()], vec![8134])
    );
    let caught = "BEGIN TRY SELECT dbo.g(0) END TRY BEGIN CATCH SELECT ERROR_NUMBER() END CATCH";
    assert_eq!(shown(&mut session, caught), ["8134"]);
    let nulls = "CREATE FUNCTION dbo.h (@a int) RETURNS int WITH RETURNS NULL ON NULL INPUT AS BEGIN RETURN 5 END
GO
                 SELECT dbo.h(NULL), dbo.h(1)";
    assert_eq!(shown(&mut session, nulls), ["NULL|5"]);
}

#[test]
fn functions_and_views_are_nested_thirty_two_deep() {
    let stage = Stage::new();
    let mut session = stage.session();
    let recursive = "CREATE FUNCTION dbo.down (@n int) RETURNS int AS BEGIN
                       IF @n <= 1 RETURN 1
                       RETURN 1 + dbo.down(@n - 1) END
GO
                     SELECT dbo.down(20)";
    assert_eq!(shown(&mut session, recursive), ["20"]);
    assert_eq!(numbers(&run(&mut session, "SELECT dbo.down(40)")), [217]);
    assert_eq!(
        numbers(&run(&mut session, "SELECT dbo.down(2000000)")),
        [217]
    );
    // Views that double with each level are no plan.
    shown(
        &mut session,
        "CREATE VIEW dbo.d0 AS SELECT name FROM sys.databases",
    );
    for level in 1..25 {
        let before = level - 1;
        let text = format!(
            "CREATE VIEW dbo.d{level} AS SELECT name FROM dbo.d{before} UNION ALL SELECT name FROM dbo.d{before}"
        );
        let found = numbers(&run(&mut session, &text));
        assert!(
            found.is_empty() || found == [8623] || found == [208],
            "{level}: {found:?}"
        );
    }
    // A view that names itself is found when it is read.
    shown(&mut session, "CREATE VIEW dbo.v AS SELECT 1 AS a");
    shown(&mut session, "CREATE VIEW dbo.w AS SELECT a FROM dbo.v");
    let circle = run(&mut session, "ALTER VIEW dbo.v AS SELECT a FROM dbo.w");
    assert!(numbers(&circle).is_empty(), "{:?}", said(&circle));
    assert_eq!(numbers(&run(&mut session, "SELECT * FROM dbo.v")), [217]);
}

#[test]
fn views_are_queries_with_names() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    let made = "CREATE VIEW dbo.LastBackups (db, kind, n) AS
                SELECT database_name, type, COUNT(*) FROM msdb.dbo.backupset GROUP BY database_name, type
GO
                SELECT d.name, v.kind, v.n FROM sys.databases d LEFT JOIN dbo.LastBackups v ON v.db = d.name ORDER BY d.name
GO
                ALTER VIEW LastBackups AS SELECT DISTINCT database_name AS db FROM msdb.dbo.backupset
GO
                SELECT * FROM LastBackups
GO
                CREATE OR ALTER VIEW dbo.LastBackups AS WITH x AS (SELECT MAX(name) AS m FROM msdb.dbo.backupset) SELECT m FROM x
GO
                SELECT m FROM master.dbo.LastBackups;
                SELECT TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES;
                SELECT name FROM sys.views";
    let expected = [
        "master|NULL|NULL",
        "shop|D|3",
        "tempdb|NULL|NULL",
        "shop",
        "third",
        "LastBackups|VIEW",
        "LastBackups",
    ];
    assert_eq!(shown(&mut session, made), expected);
    for (batch, number) in [
        (
            "CREATE VIEW dbo.x AS SELECT COUNT(*) FROM sys.databases",
            4511,
        ),
        ("CREATE VIEW dbo.x AS SELECT 1 AS a, 2 AS A", 4506),
        ("CREATE VIEW dbo.x (a) AS SELECT 1, 2", 8158),
        ("CREATE VIEW dbo.x (a, b) AS SELECT 1", 4502),
        ("CREATE VIEW dbo.x AS SELECT a FROM dbo.nothing", 208),
        ("DROP VIEW dbo.nothing", 3701),
        ("DROP TABLE dbo.LastBackups", 3701),
        ("PRINT 1 CREATE VIEW dbo.x AS SELECT 1 AS a", 111),
        ("DELETE dbo.LastBackups", 50002),
    ] {
        let found = numbers(&run(&mut session, batch));
        assert_eq!(found.last(), Some(&number), "{batch}: {found:?}");
    }
    shown(&mut session, "DROP VIEW dbo.LastBackups");
}

#[test]
fn merge_changes_adds_and_removes_rows() {
    let stage = Stage::new();
    let mut session = stage.session();
    let tables = "CREATE TABLE dbo.state (db varchar(9) PRIMARY KEY, n int NOT NULL DEFAULT 1);
                  INSERT dbo.state (db, n) VALUES ('a', 1), ('b', 2), ('gone', 3)";
    shown(&mut session, tables);
    let merged = "MERGE INTO dbo.state WITH (HOLDLOCK) AS t USING (VALUES ('a', 10), ('b', 20), ('c', 30)) AS s (db, n) ON t.db = s.db
                  WHEN MATCHED AND s.n > 15 THEN UPDATE SET t.n = t.n + s.n
                  WHEN MATCHED THEN DELETE
                  WHEN NOT MATCHED BY TARGET THEN INSERT (db) VALUES (s.db)
                  WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = 0
                  OUTPUT $action, ISNULL(inserted.db, deleted.db), deleted.n, inserted.n;
                  SELECT @@ROWCOUNT; SELECT db, n FROM dbo.state ORDER BY db";
    let mut found = shown(&mut session, merged);
    let rest = found.split_off(4);
    found.sort();
    let expected = [
        "DELETE|a|1|NULL",
        "INSERT|c|NULL|1",
        "UPDATE|b|2|22",
        "UPDATE|gone|3|0",
    ];
    assert_eq!(found, expected);
    assert_eq!(rest, ["4", "b|22", "c|1", "gone|0"]);
    let twice = "MERGE dbo.state AS t USING (VALUES ('b', 1), ('b', 2)) AS s (db, n) ON t.db = s.db
                 WHEN MATCHED THEN UPDATE SET n = s.n;";
    assert_eq!(script(&mut session, twice).1, [8672]);
    // All of it, or nothing.
    let refused = "MERGE dbo.state AS t USING (VALUES ('b', 5), ('x', NULL)) AS s (db, n) ON t.db = s.db
                   WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT VALUES (s.db, s.n);";
    assert_eq!(script(&mut session, refused).1, [515]);
    assert_eq!(
        shown(&mut session, "SELECT n FROM dbo.state WHERE db = 'b'"),
        ["22"]
    );
    let own = "DECLARE @t TABLE (id int IDENTITY, k int, v int); INSERT @t VALUES (1, 1);
               WITH src AS (SELECT 1 AS k UNION ALL SELECT 2)
               MERGE @t AS t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET v = 9
               WHEN NOT MATCHED THEN INSERT (k, v) VALUES (src.k, 0);
               SELECT id, k, v FROM @t ORDER BY id; SELECT SCOPE_IDENTITY()";
    assert_eq!(shown(&mut session, own), ["1|1|9", "2|2|0", "2"]);
    // A name that both have, and two ways to add a row.
    let both = "MERGE dbo.state AS t USING (VALUES ('b', 1)) AS s (db, n) ON db = s.db
                WHEN NOT MATCHED THEN INSERT (db) VALUES (s.db);";
    assert_eq!(script(&mut session, both).1, [209]);
    let ways = "MERGE dbo.state AS t USING (VALUES ('z', 1)) AS s (db, n) ON t.db = s.db
                WHEN NOT MATCHED AND s.n = 2 THEN INSERT (db) VALUES (s.db)
                WHEN NOT MATCHED THEN INSERT (db) VALUES (s.db);";
    assert_eq!(script(&mut session, ways).1, [10714]);
    assert_eq!(shown(&mut session, "SELECT COUNT(*) FROM dbo.state"), ["3"]);
}

#[test]
fn merge_shows_its_source_and_takes_no_more_rows_than_top_allows() {
    let stage = Stage::new();
    let mut session = stage.session();
    let merged = "CREATE TABLE #seen (name varchar(9) PRIMARY KEY, mb int); INSERT #seen VALUES ('a', 1), ('gone', 3);
                  CREATE TABLE #log (act nvarchar(10), name varchar(9), was int, mb int, src varchar(9), twice int);
                  MERGE #seen AS t USING (VALUES ('a', 5, 'scan'), ('b', 7, 'list')) AS s (name, mb, src) ON t.name = s.name
                  WHEN MATCHED THEN UPDATE SET mb = s.mb WHEN NOT MATCHED THEN INSERT VALUES (s.name, s.mb)
                  WHEN NOT MATCHED BY SOURCE THEN DELETE
                  OUTPUT $action, COALESCE(inserted.name, deleted.name), deleted.mb, inserted.mb, s.src, s.mb * 2
                  INTO #log (act, name, was, mb, src, twice);
                  SELECT @@ROWCOUNT; SELECT * FROM #log ORDER BY act";
    let expected = [
        "3",
        "DELETE|gone|3|NULL|NULL|NULL",
        "INSERT|b|NULL|7|list|14",
        "UPDATE|a|1|5|scan|10",
    ];
    assert_eq!(shown(&mut session, merged), expected);
    // A table without another name, and a name that is no column of the source.
    let named = "CREATE TABLE #src (name varchar(9), mb int); INSERT #src VALUES ('c', 9);
                 MERGE #seen USING #src ON #seen.name = #src.name
                 WHEN NOT MATCHED THEN INSERT (name, mb) VALUES (#src.name, #src.mb) OUTPUT #src.*, inserted.name;";
    assert_eq!(shown(&mut session, named), ["c|9|c"]);
    let unknown = "MERGE #seen AS t USING #src AS s ON t.name = s.name WHEN MATCHED THEN DELETE OUTPUT s.nothing;";
    let count = "SELECT COUNT(*) FROM #seen";
    let before = shown(&mut session, count);
    assert_eq!(script(&mut session, unknown).1, [207]);
    assert_eq!(shown(&mut session, count), before);
    // Without a row of the source its columns are NULL.
    let gone = "MERGE #seen AS t USING #src AS s ON t.name = s.name
                WHEN NOT MATCHED BY SOURCE AND t.name = 'a' THEN DELETE OUTPUT deleted.name, s.mb, $action;";
    assert_eq!(shown(&mut session, gone), ["a|NULL|DELETE"]);
    let merge = |top: &str| {
        format!(
            "DECLARE @t TABLE (k int); MERGE {top} INTO @t AS t USING (VALUES (1), (2), (3)) AS s (k) ON t.k = s.k
             WHEN NOT MATCHED THEN INSERT VALUES (s.k); SELECT @@ROWCOUNT, COUNT(*) FROM @t"
        )
    };
    for (top, count) in [
        ("TOP (2)", "2"),
        ("TOP (50) PERCENT", "2"),
        ("TOP (0)", "0"),
        ("TOP (9)", "3"),
    ] {
        assert_eq!(
            shown(&mut session, &merge(top)),
            [format!("{count}|{count}")],
            "{top}"
        );
    }
    for (top, number) in [
        ("TOP (-1)", 127),
        ("TOP (NULL)", 1060),
        ("TOP (101) PERCENT", 1031),
    ] {
        assert_eq!(
            script(&mut session, &merge(top)).1.first(),
            Some(&number),
            "{top}"
        );
    }
    let update = "DECLARE @t TABLE (k int); INSERT @t VALUES (1), (2), (3); UPDATE TOP (34) PERCENT @t SET k = 0;
                  DELETE TOP (10) PERCENT FROM @t; SELECT COUNT(*) FROM @t";
    assert_eq!(shown(&mut session, update), ["2"]);
}

/// Goal: a statement changes all its rows or none, whatever its OUTPUT is.
#[test]
fn an_output_that_fails_leaves_the_rows_as_they_were() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (kept, log) in [("dbo.kept", "dbo.log"), ("#kept", "#log")] {
        let made = format!(
            "CREATE TABLE {kept} (id int PRIMARY KEY, n int); INSERT {kept} VALUES (1, 0), (2, 5);
             CREATE TABLE {log} (a int CHECK (a > 1))"
        );
        shown(&mut session, &made);
        for (statement, number) in [
            ("DELETE KEPT OUTPUT deleted.typo", 207),
            ("DELETE KEPT OUTPUT deleted.id INTO dbo.nowhere", 208),
            ("DELETE KEPT OUTPUT deleted.id, deleted.n INTO LOG", 213),
            ("DELETE KEPT OUTPUT deleted.id INTO LOG", 547),
            ("DELETE KEPT OUTPUT 1 / deleted.n", 8134),
            ("UPDATE KEPT SET n = n + 1 OUTPUT inserted.nothing", 207),
            ("UPDATE KEPT SET n = 7 OUTPUT inserted.id INTO LOG", 547),
            ("UPDATE KEPT SET n = 7 OUTPUT 1 / deleted.n", 8134),
            ("INSERT KEPT OUTPUT inserted.nothing VALUES (3, 3)", 207),
            ("INSERT KEPT OUTPUT 1 / inserted.n VALUES (3, 3), (4, 0)", 8134),
            ("INSERT KEPT OUTPUT 1 INTO LOG VALUES (3, 3)", 547),
            ("MERGE KEPT AS t USING (VALUES (1, 9), (5, 1)) AS s (id, n) ON s.id = t.id WHEN MATCHED THEN UPDATE SET n = s.n
              WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.n) WHEN NOT MATCHED BY SOURCE THEN DELETE
              OUTPUT 1 / (s.id - 5);", 8134),
        ] {
            let statement = statement.replace("KEPT", kept).replace("LOG", log);
            for (begin, end) in [("", ""), ("BEGIN TRAN;", "; COMMIT")] {
                let whole = format!("{begin} {statement} {end}");
                assert_eq!(script(&mut session, &whole).1.first(), Some(&number), "{whole}");
                let rows = format!("IF @@TRANCOUNT > 0 COMMIT; SELECT * FROM {kept} ORDER BY id; SELECT * FROM {log}");
                assert_eq!(shown(&mut session, &rows), ["1|0", "2|5"], "{whole}");
            }
        }
    }
}

#[test]
fn a_pivot_of_a_join_is_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    let joined = "SELECT * FROM (VALUES (1), (2)) s(x) CROSS JOIN (VALUES ('a', 5)) b(m, v) PIVOT (SUM(v) FOR m IN ([a])) AS p";
    assert_eq!(script(&mut session, joined).1, [50002]);
    let derived = "SELECT a FROM (SELECT m, v FROM (VALUES (1), (2)) s(x) CROSS JOIN (VALUES ('a', 5)) b(m, v)) j
                   PIVOT (SUM(v) FOR m IN ([a])) AS p";
    assert_eq!(shown(&mut session, derived), ["10"]);
}

/// Goal: a condition is the table's, and not of who made it or who changes a row; and no table is left that takes no row.
#[test]
fn a_check_that_cannot_be_asked_is_refused_when_it_is_made() {
    let stage = Stage::new();
    let mut session = stage.session();
    let variable = "DECLARE @lim int = 5; CREATE TABLE dbo.capped (a int CHECK (a > @lim))";
    assert_eq!(script(&mut session, variable).1, [137]);
    let unknown = "CREATE TABLE #t (a int CHECK (b > 1))";
    assert_eq!(script(&mut session, unknown).1, [207]);
    for table in ["#e", "dbo.e"] {
        let made = format!(
            "CREATE TABLE {table} (a int CONSTRAINT CK_a CHECK (a > 0), b int, c int);
             ALTER TABLE {table} ADD CONSTRAINT CK_b CHECK (b > 0); ALTER TABLE {table} DROP COLUMN c"
        );
        shown(&mut session, &made);
        let dropped = run(&mut session, &format!("ALTER TABLE {table} DROP COLUMN b"));
        let expected = "5074 The object 'CK_b' is dependent on column 'b'.";
        assert_eq!(said(&dropped)[0], expected);
        let rows = format!("INSERT {table} (a, b) VALUES (1, 1); SELECT COUNT(*) FROM {table}");
        assert_eq!(shown(&mut session, &rows), ["1"]);
    }
}

#[test]
fn a_check_refuses_rows_that_make_it_false() {
    let stage = Stage::new();
    let mut session = stage.session();
    let table = "CREATE TABLE dbo.log (id int IDENTITY PRIMARY KEY,
                   kind char(1) CONSTRAINT CK_kind CHECK (kind IN ('D', 'I', 'L')), a int, b int, CONSTRAINT CK_ab CHECK (a < b))";
    shown(&mut session, table);
    shown(
        &mut session,
        "INSERT dbo.log (kind, a, b) VALUES ('D', 1, 2), (NULL, NULL, 1)",
    );
    let refused = run(&mut session, "INSERT dbo.log (kind) VALUES ('L'), ('X')");
    let expected = "547 The INSERT statement conflicted with the CHECK constraint \"CK_kind\". The conflict occurred in \
                    database \"master\", table \"dbo.log\", column 'kind'.";
    assert_eq!(said(&refused)[0], expected);
    let refused = run(&mut session, "UPDATE dbo.log SET a = 2");
    let expected = "547 The UPDATE statement conflicted with the CHECK constraint \"CK_ab\". The conflict occurred in \
                    database \"master\", table \"dbo.log\".";
    assert_eq!(said(&refused)[0], expected);
    assert_eq!(shown(&mut session, "SELECT COUNT(*) FROM dbo.log"), ["2"]);
    let late = "ALTER TABLE dbo.log ADD CONSTRAINT CK_late CHECK (b > 1)";
    assert_eq!(numbers(&run(&mut session, late)), [547]);
    shown(
        &mut session,
        "ALTER TABLE dbo.log DROP CONSTRAINT CK_ab; UPDATE dbo.log SET a = 2",
    );
    // It outlives the session.
    let mut other = stage.session();
    assert_eq!(
        script(&mut other, "INSERT dbo.log (kind) VALUES ('X')").1,
        [547]
    );
}

#[test]
fn tables_of_all_sessions_end_with_the_one_that_made_them() {
    let stage = Stage::new();
    let server = stage.server();
    let session = || Session::new(server.clone(), common::login());
    let mut first = session();
    let mut second = session();
    shown(
        &mut first,
        "CREATE TABLE ##files (name varchar(20), n int); INSERT ##files VALUES ('a', 1)",
    );
    assert_eq!(
        shown(
            &mut second,
            "INSERT ##files VALUES ('b', 2); SELECT SUM(n) FROM tempdb..##files"
        ),
        ["3"]
    );
    assert_eq!(
        shown(
            &mut second,
            "SELECT ISNULL(OBJECT_ID('tempdb..##files'), 0) / 1000000000"
        ),
        ["1"]
    );
    assert_eq!(
        numbers(&run(&mut second, "CREATE TABLE ##files (a int)")),
        [2714]
    );
    shown(
        &mut second,
        "SELECT name INTO ##copy FROM ##files; DROP TABLE ##copy",
    );
    drop(first);
    assert_eq!(numbers(&run(&mut second, "SELECT * FROM ##files")), [208]);
    // They are in no catalog.
    shown(&mut second, "CREATE TABLE ##kept (a int)");
    let mut restarted = stage.session();
    assert_eq!(numbers(&run(&mut restarted, "SELECT * FROM ##kept")), [208]);
}

#[test]
fn older_forms_still_work() {
    let stage = Stage::new();
    let mut session = stage.session();
    let numbered =
        "SELECT IDENTITY(int, 10, 5) AS id, name INTO #n FROM sys.databases ORDER BY name;
                    SELECT id, name FROM #n ORDER BY id; SELECT @@IDENTITY";
    assert_eq!(
        shown(&mut session, numbered),
        ["10|master", "15|shop", "20|tempdb", "20"]
    );
    let variant = "DECLARE @v sql_variant = SERVERPROPERTY('ProductVersion'); SELECT PARSENAME(CAST(@v AS varchar(20)), 4)";
    assert_eq!(shown(&mut session, variant), ["16"]);
    let week = "SELECT DATEPART(ISO_WEEK, '20270131'), DATEPART(isowk, '20270103')";
    assert_eq!(shown(&mut session, week), ["4|53"]);
    assert_eq!(
        numbers(&run(&mut session, "SELECT DATEADD(isowk, 1, '20270131')")),
        [9806]
    );
    let log = "EXEC xp_logevent 60000, 'a line of a script', 'informational';
               CREATE TABLE #log (at datetime, who nvarchar(50), line nvarchar(max));
               INSERT #log EXEC xp_readerrorlog 0, 1, N'line of a script', NULL, '20200101', '99991231', N'desc';
               SELECT line FROM #log";
    assert_eq!(
        shown(&mut session, log),
        ["Error: 60000, Severity: INFORMATIONAL. a line of a script"]
    );
    let statistics = "SELECT STDEV(v), VARP(v), STDEV(DISTINCT v), VAR(w) FROM (VALUES (2.0, 1), (4.0, NULL), (4.0, NULL), (6.0, NULL)) AS t(v, w)";
    let found = shown(&mut session, statistics);
    assert!(
        found[0].starts_with("1.632993161855") && found[0].ends_with("|2|2|NULL"),
        "{found:?}"
    );
}

#[test]
fn percentiles_are_between_the_values_or_among_them() {
    let stage = Stage::new();
    let mut session = stage.session();
    let of = |what: &str| {
        format!(
            "SELECT DISTINCT g, {what} OVER (PARTITION BY g) FROM (VALUES ('a', 10), ('a', 20), ('a', NULL), ('a', 40),
               ('b', 7), ('c', NULL)) AS v(g, n) ORDER BY g"
        )
    };
    for (what, expected) in [
        (
            "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n)",
            ["a|20", "b|7", "c|NULL"],
        ),
        (
            "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY n DESC)",
            ["a|30", "b|7", "c|NULL"],
        ),
        (
            "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY n)",
            ["a|20", "b|7", "c|NULL"],
        ),
        (
            "PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY n DESC)",
            ["a|40", "b|7", "c|NULL"],
        ),
        (
            "PERCENTILE_DISC(1.0) WITHIN GROUP (ORDER BY CAST(n AS money) / 8)",
            ["a|5.0000", "b|0.8750", "c|NULL"],
        ),
    ] {
        assert_eq!(shown(&mut session, &of(what)), expected, "{what}");
    }
    let count = "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY COUNT(*)) OVER () FROM (VALUES (1), (1), (2)) AS v(n) GROUP BY n";
    assert_eq!(shown(&mut session, count), ["1.5", "1.5"]);
    for (query, number) in [
        (
            "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n) FROM (VALUES (1)) AS v(n)",
            10_753,
        ),
        (
            "SELECT PERCENTILE_DISC(0.5) OVER () FROM (VALUES (1)) AS v(n)",
            10_754,
        ),
    ] {
        assert_eq!(numbers(&run(&mut session, query)), [number], "{query}");
    }
}

#[test]
fn what_there_is_not_is_refused_by_name() {
    let stage = Stage::new();
    let mut session = stage.session();
    for batch in [
        "EXEC master..xp_cmdshell 'dir'",
        "EXEC msdb.dbo.sp_start_job @job_name = N'Nightly'",
        "EXEC msdb.dbo.sp_send_dbmail @profile_name = 'p', @recipients = 'a@b', @subject = 's', @body = 'b'",
        "EXEC sp_addlinkedserver 'x'",
        "SELECT HASHBYTES('MD4', 'x')",
        "SELECT TRY_PARSE('1' AS int)",
        "SELECT APPROX_PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n) FROM (VALUES (1)) AS v(n)",
        "SELECT PERCENTILE_CONT(1.5) WITHIN GROUP (ORDER BY n) OVER () FROM (VALUES (1)) AS v(n)",
        "SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY n) OVER () FROM (VALUES ('a')) AS v(n)",
        "SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY n) OVER (ORDER BY n) FROM (VALUES (1)) AS v(n)",
        "SELECT * FROM sys.dm_xe_sessions",
        "SELECT * FROM msdb.dbo.sysalerts",
        "SELECT * FROM OPENROWSET('SQLNCLI', 'x', 'y')",
        "EXEC sp_configure 'xp_cmdshell', 1",
        "SELECT 1 AS a FOR XML EXPLICIT",
        "SELECT CAST('<a/>' AS xml).value('sum(/a)', 'int')",
        "CREATE TRIGGER dbo.t ON dbo.x AFTER INSERT AS PRINT 1",
    ] {
        let record = run(&mut session, batch);
        assert_eq!(numbers(&record), [50002], "{batch}: {:?}", said(&record));
    }
    // A procedure that nobody knows is another matter.
    assert_eq!(numbers(&run(&mut session, "EXEC sp_there_is_none")), [2812]);
}

#[test]
fn the_server_tells_what_maintenance_scripts_ask() {
    let stage = Stage::new();
    let mut session = stage.session();
    let tables = "CREATE TABLE dbo.big (id int PRIMARY KEY, name varchar(20)); CREATE TABLE dbo.heap (a int);
                  INSERT dbo.big VALUES (1, 'a'), (2, 'b')";
    shown(&mut session, tables);
    let sizes =
        "SELECT t.name, i.index_id, i.type_desc, p.rows, SUM(a.total_pages) * 8 FROM sys.tables t
                 JOIN sys.indexes i ON t.object_id = i.object_id
                 JOIN sys.partitions p ON i.object_id = p.object_id AND i.index_id = p.index_id
                 JOIN sys.allocation_units a ON p.partition_id = a.container_id
                 GROUP BY t.name, i.index_id, i.type_desc, p.rows ORDER BY t.name";
    assert_eq!(
        shown(&mut session, sizes),
        ["big|1|CLUSTERED|2|8", "heap|0|HEAP|0|0"]
    );
    let exist = "SELECT COL_LENGTH('dbo.big', 'name'), COL_LENGTH('dbo.big', 'none'), OBJECTPROPERTY(OBJECT_ID('dbo.big'), 'IsTable'),
                   (SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'big')";
    assert_eq!(shown(&mut session, exist), ["20|NULL|1|2"]);
    let volume = "SELECT COUNT(*) FROM sys.master_files f
                  CROSS APPLY sys.dm_os_volume_stats(f.database_id, f.file_id) v WHERE v.available_bytes <= v.total_bytes";
    assert_eq!(shown(&mut session, volume), ["1"]);
    let of_files = "SELECT DB_NAME(s.database_id), s.file_id, s.size_on_disk_bytes / 8192 - f.size, COALESCE(s.num_of_reads, -1),
                      CASE WHEN ABS(s.sample_ms - (SELECT ms_ticks FROM sys.dm_os_sys_info)) < 60000 THEN 'now' END
                    FROM (SELECT * FROM sys.master_files WHERE type_desc = 'ROWS') f";
    let stats = "sys.dm_io_virtual_file_stats";
    for from in [
        format!("CROSS APPLY {stats}(f.database_id, f.file_id) s"),
        format!("CROSS APPLY {stats}(f.database_id, NULL) AS s"),
        format!("JOIN {stats}(NULL, NULL) s ON s.database_id = f.database_id"),
        format!("CROSS JOIN {stats}(DB_ID('shop'), DEFAULT) s"),
    ] {
        let counted = shown(&mut session, &format!("{of_files} {from}"));
        assert_eq!(counted, ["shop|1|0|-1|now"], "{from}");
    }
    let none = format!("SELECT COUNT(*) FROM {stats}(DB_ID('shop'), 2)");
    assert_eq!(shown(&mut session, &none), ["0"]);
    let named = "SELECT database_id - DB_ID('shop'), is_read_only FROM sys.dm_os_volume_stats(DB_ID('shop'), 1)";
    assert_eq!(shown(&mut session, named), ["0|0"]);
    let counted = "SELECT cntr_value FROM sys.dm_os_performance_counters
                   WHERE counter_name = 'Backup/Restore Throughput/sec' AND instance_name = 'shop' AND cntr_type = 272696576";
    assert_eq!(shown(&mut session, counted), ["0"]);
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'counted.bak'");
    let size = "SELECT backup_size FROM msdb.dbo.backupset WHERE database_name = 'shop'";
    let moved: u64 = shown(&mut session, counted)[0].parse().unwrap();
    let stored: u64 = shown(&mut session, size)[0].parse().unwrap();
    assert!(moved > 0 && moved <= stored, "{moved} of {stored}");
    run(&mut session, "RESTORE VERIFYONLY FROM DISK = 'counted.bak'");
    assert_eq!(shown(&mut session, counted), [moved.to_string()]);
    let who = run(&mut session, "EXEC sp_who2");
    assert_eq!(rows(&who).len(), 1);
    assert_eq!(rows(&who)[0].len(), 13);
    let directory = "DECLARE @d nvarchar(4000);
                     EXEC master.dbo.xp_instance_regread N'HKEY_LOCAL_MACHINE', N'Software\\Microsoft\\MSSQLServer\\MSSQLServer',
                       N'BackupDirectory', @d OUTPUT;
                     SELECT CASE WHEN @d = SERVERPROPERTY('InstanceDefaultBackupPath') THEN 'same' ELSE @d END";
    assert_eq!(shown(&mut session, directory), ["same"]);
    let at = "SELECT CONVERT(varchar(19), msdb.dbo.agent_datetime(20270131, 63005), 126)";
    assert_eq!(shown(&mut session, at), ["2027-01-31T06:30:05"]);
}

/// Goal: principals, file groups and databases that scripts look for before they act are there; a name that is not is told.
#[test]
fn what_every_server_has_is_found() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (query, rows) in [
        (
            "SELECT name, principal_id FROM sys.server_principals WHERE name IN ('sa', 'sysadmin') ORDER BY 2",
            vec!["sa|1", "sysadmin|3"],
        ),
        (
            "SELECT name FROM sys.database_principals WHERE name IN ('dbo', 'db_owner', 'nobody') ORDER BY principal_id",
            vec!["dbo", "db_owner"],
        ),
        (
            "SELECT name FROM sys.filegroups WHERE is_default = 1",
            vec!["PRIMARY"],
        ),
        (
            "SELECT IIF(create_date = (SELECT sqlserver_start_time FROM sys.dm_os_sys_info), 'same', 'other') FROM sys.databases WHERE name = 'tempdb'",
            vec!["same"],
        ),
        // Users without a login, which restores leave: none.
        (
            "SELECT p.name FROM sys.database_principals p LEFT JOIN sys.server_principals l ON l.sid = p.sid WHERE p.type = 'S' AND p.principal_id > 4 AND l.sid IS NULL",
            vec![],
        ),
    ] {
        assert_eq!(shown(&mut session, query), rows, "{query}");
    }
    for (batch, number) in [
        (
            "SELECT * FROM fn_listextendedproperty(NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
            50002,
        ),
        ("SELECT master.dbo.fn_varbintohexstr(0x01)", 50002),
        ("SELECT dbo.fn_mine(1)", 4121),
        ("EXEC sp_helpsrvrolemember", 50002),
        ("EXEC sp_mine", 2812),
        (
            "CREATE TABLE #n (a int); ALTER TABLE #n WITH NOCHECK ADD CONSTRAINT c CHECK (a < 5)",
            50002,
        ),
        (
            "CREATE TABLE #i (id int IDENTITY, a int); INSERT #i VALUES (1, 2)",
            8101,
        ),
        (
            "CREATE TABLE #j (id int IDENTITY, a int); SET IDENTITY_INSERT #j ON; INSERT #j SELECT 1, 2",
            8101,
        ),
        (
            "CREATE TABLE #k (id int IDENTITY, a int); INSERT #k VALUES (1, 2, 3)",
            213,
        ),
    ] {
        assert_eq!(script(&mut session, batch).1, [number], "{batch}");
    }
}

/// Goal: arguments for a procedure without parameters end every batch, as SQL Server's compiler does.
#[test]
fn arguments_for_a_procedure_without_parameters_end_all_batches() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "CREATE PROCEDURE #none AS PRINT 'none'");
    run(
        &mut session,
        "CREATE PROCEDURE #outer AS EXEC #none 1; PRINT 'inner'",
    );
    for batch in ["EXEC #none 1; PRINT 'after'", "EXEC #outer; PRINT 'after'"] {
        assert_eq!(numbers(&run(&mut session, batch)), [8146], "{batch}");
    }
}

/// Goal: each database has a log among its files, and history has the place of a database's file.
#[test]
fn databases_have_a_log_and_a_place() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    let files = "SELECT type_desc, COUNT(*) FROM sys.master_files WHERE database_id = DB_ID('shop') GROUP BY type_desc ORDER BY 1";
    assert_eq!(shown(&mut session, files), ["LOG|1", "ROWS|1"]);
    let joined = "SELECT COUNT(*) FROM msdb.dbo.backupset s
         JOIN sys.master_files d ON d.database_id = DB_ID(s.database_name) AND d.type_desc = 'ROWS'
         JOIN sys.master_files l ON l.database_id = d.database_id AND l.type_desc = 'LOG'";
    assert_eq!(shown(&mut session, joined), ["3"]);
    let place = stage.path("shop.db").display().to_string();
    let known = "SELECT DISTINCT physical_name FROM msdb.dbo.backupfile";
    assert_eq!(shown(&mut session, known), [place]);
    let names = "CREATE TABLE #f (name sysname, id smallint, path nvarchar(260), fg sysname NULL, size nvarchar(18), most nvarchar(18), growth nvarchar(18), usage varchar(9))
         USE shop
         INSERT #f EXEC sp_helpfile
         SELECT usage FROM #f ORDER BY id";
    assert_eq!(shown(&mut session, names), ["data only", "log only"]);
}

/// Goal: forms of ordinary scripts that kept a whole batch from running.
#[test]
fn ordinary_forms_are_taken() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (batch, rows) in [
        (
            "SELECT STUFF((SELECT N',' + v FROM (VALUES (N'a'), (N'b')) t(v) FOR XML PATH(N''), TYPE).value(N'.[1]', N'nvarchar(max)'), 1, 1, N'')",
            vec!["a,b"],
        ),
        (
            "SELECT 1 AS a FOR JSON PATH, ROOT(N'r')",
            vec![r#"{"r":[{"a":1}]}"#],
        ),
        (
            "SELECT a FROM OPENJSON(N'{\"a\": 5}') WITH (a int N'$.a')",
            vec!["5"],
        ),
        (
            "IF 1 = 1 WITH c AS (SELECT 1 AS a) SELECT a FROM c ELSE WITH c AS (SELECT 2 AS a) SELECT a FROM c",
            vec!["1"],
        ),
        (
            "DECLARE @i int = 0; WHILE @i < 1 WITH c AS (SELECT 7 AS a) SELECT @i = a FROM c; SELECT @i",
            vec!["7"],
        ),
        (
            "DECLARE @q nvarchar(50) = N'SELECT @n'; EXEC sp_executesql @sql = @q, @Parameters = N'@n int', @n = 3",
            vec!["3"],
        ),
        (
            "DECLARE @t TABLE (a int INDEX ia, b int, INDEX ib NONCLUSTERED (b DESC)); INSERT @t VALUES (1, 2); SELECT a, b FROM @t",
            vec!["1|2"],
        ),
        (
            "SELECT CAST('-' AS int), TRY_CAST('+' AS bigint)",
            vec!["0|0"],
        ),
    ] {
        assert_eq!(shown(&mut session, batch), rows, "{batch}");
    }
    for (batch, number) in [
        (
            "CREATE TABLE #u (a int, INDEX iu UNIQUE (a)); INSERT #u VALUES (1), (1)",
            2627,
        ),
        ("SELECT * FROM ::fn_trace_gettable('x', 1)", 50002),
        ("CREATE TABLE #w (a int, INDEX iw (a) WHERE a > 1)", 50002),
    ] {
        assert_eq!(script(&mut session, batch).1, [number], "{batch}");
    }
}

/// Goal: options and permissions that scripts ask for are known, and others are not.
#[test]
fn options_and_permissions_have_their_names() {
    let stage = Stage::new();
    let mut session = stage.session();
    let options = "SELECT name, CAST(value_in_use AS int) FROM sys.configurations
         WHERE name IN ('max server memory (MB)', 'xp_cmdshell', 'nothing of the kind') ORDER BY name";
    assert_eq!(
        shown(&mut session, options),
        ["max server memory (MB)|2147483647", "xp_cmdshell|0"]
    );
    let refused = "EXEC sp_configure 'max server memory (MB)', 4096";
    assert_eq!(script(&mut session, refused).1, [50002]);
    let rights = "SELECT HAS_PERMS_BY_NAME(NULL, NULL, 'view server state'), HAS_PERMS_BY_NAME('shop', 'DATABASE', 'BACKUP DATABASE'),
         HAS_PERMS_BY_NAME('shop', 'DATABASE', 'ALTER ANY USER'), HAS_PERMS_BY_NAME('shop', 'DATABASE', 'NOSUCH')";
    assert_eq!(shown(&mut session, rights), ["1|1|1|NULL"]);
}

/// Goal: a restore made from the files that `sys.master_files` names, log included, goes to the place of the data.
#[test]
fn moves_of_all_files_that_are_listed_are_taken() {
    let stage = Stage::new();
    let mut session = with_history(&stage);
    let (media, to) = (stage.path("a.bak"), stage.path("moved"));
    std::fs::create_dir(&to).unwrap();
    let moves = format!(
        "SELECT STRING_AGG('MOVE ''' + name + ''' TO ''{}/' + name + '''', ', ') WITHIN GROUP (ORDER BY file_id)
         FROM sys.master_files WHERE database_id = DB_ID('shop')",
        to.display()
    );
    let moves = shown(&mut session, &moves).remove(0);
    assert!(moves.contains("shop.db_log"), "{moves}");
    let restore = format!(
        "RESTORE DATABASE moved FROM DISK = '{}' WITH {moves}",
        media.display()
    );
    assert_eq!(script(&mut session, &restore).1, Vec::<u32>::new());
    assert!(to.join("shop.db").exists() && !to.join("shop.db_log").exists());
}

/// Goal: a database whose own file is called like a log goes to the place that MOVE names.
#[test]
fn a_file_that_is_called_like_a_log_is_moved() {
    let mut stage = Stage::new();
    let audit = stage.path("audit_log");
    std::fs::copy(stage.path("shop.db"), &audit).unwrap();
    stage.more = vec![("audit", SourceSpec::Sqlite(audit.clone()))];
    let mut session = stage.session();
    let (media, to) = (stage.path("audit.bak"), stage.path("elsewhere"));
    let batch = format!(
        "BACKUP DATABASE audit TO DISK = '{0}' WITH INIT; RESTORE DATABASE audit FROM DISK = '{0}' WITH MOVE 'audit_log' TO '{1}', REPLACE",
        media.display(),
        to.display()
    );
    let before = std::fs::metadata(&audit).unwrap().modified().unwrap();
    assert_eq!(script(&mut session, &batch).1, Vec::<u32>::new());
    assert!(to.exists());
    assert_eq!(
        std::fs::metadata(&audit).unwrap().modified().unwrap(),
        before
    );
}
