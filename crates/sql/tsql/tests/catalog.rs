//! Goal: drivers and tools that ask for metadata get what SQL Server's documentation describes: the catalog procedures of
//! ODBC, sys.columns and its kin, INFORMATION_SCHEMA, and what a batch will send; names of callers are never a part of a query.
//! Method: sessions with tables of every kind of column and key; columns, rows and messages are compared with the
//! documentation, and what tools ask while they open is asked in the same way.
//! Not covered: drivers themselves (`serve`).

mod common;

use common::{Stage, numbers, rows, run, said, value};
use longshore_tsql::{Session, SinkEvent};

/// A session in the database `shop`, with a table of many types, one that refers to it, a view and a procedure.
fn stocked(stage: &Stage) -> Session {
    let mut session = stage.session();
    for batch in [
        "USE shop",
        "CREATE TABLE dbo.ledger (id int IDENTITY(5, 2) PRIMARY KEY, name nvarchar(40) NOT NULL DEFAULT N'none', \
         amount decimal(10, 2) NULL, at datetime2(3), long nvarchar(max), ratio float, twice AS (amount * 2), \
         CONSTRAINT few CHECK (amount < 1000), CONSTRAINT one UNIQUE (name, at))",
        "CREATE TABLE dbo.[od]]d ' table] ([a]]b] int, ledger int CONSTRAINT of_ledger REFERENCES dbo.ledger (id))",
        "CREATE INDEX by_amount ON dbo.ledger (amount)",
        "INSERT dbo.ledger (amount) VALUES (1)",
        "CREATE VIEW dbo.shown AS SELECT id FROM dbo.ledger",
        "CREATE PROCEDURE dbo.doubled @a int, @b datetime OUTPUT AS RETURN 1",
    ] {
        let record = run(&mut session, batch);
        let failed: Vec<_> = numbers(&record)
            .into_iter()
            .filter(|n| *n != 5701)
            .collect();
        assert_eq!(failed, [0_u32; 0], "{batch}: {:?}", said(&record));
    }
    session
}

/// Some columns of an answer's rows.
fn columns(session: &mut Session, batch: &str, wanted: &[&str]) -> Vec<String> {
    let record = run(session, batch);
    assert_eq!(numbers(&record), [0_u32; 0], "{batch}: {:?}", said(&record));
    let names: Vec<_> = record.columns().iter().map(|c| c.name.clone()).collect();
    let places: Vec<_> = wanted
        .iter()
        .map(|name| {
            let found = names.iter().position(|n| n.eq_ignore_ascii_case(name));
            found.unwrap_or_else(|| panic!("{batch}: no {name} in {names:?}"))
        })
        .collect();
    let row = |row: Vec<String>| {
        let cells: Vec<_> = places.iter().map(|i| row[*i].clone()).collect();
        cells.join(" ")
    };
    rows(&record).into_iter().map(row).collect()
}

#[test]
fn tables_and_columns_are_told_as_odbc_numbers_them() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let tables = ["TABLE_QUALIFIER", "TABLE_OWNER", "TABLE_NAME", "TABLE_TYPE"];
    assert_eq!(
        columns(&mut session, "EXEC sp_tables 'l%', 'dbo'", &tables),
        ["shop dbo ledger TABLE"]
    );
    let views = columns(
        &mut session,
        "EXEC sp_tables @table_type = '''VIEW'''",
        &["TABLE_NAME"],
    );
    assert!(views.contains(&"shown".to_owned()) && views.contains(&"databases".to_owned()));
    assert!(!views.contains(&"ledger".to_owned()) && !views.iter().any(|v| v.starts_with("spt_")));
    let all = columns(
        &mut session,
        "EXEC sp_tables '', '', '%'",
        &["TABLE_QUALIFIER"],
    );
    assert!(all.contains(&"shop".to_owned()), "{all:?}");
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_tables '', '', '', '%'",
            &["TABLE_TYPE"]
        ),
        ["SYSTEM TABLE", "TABLE", "VIEW"]
    );
    let wanted = [
        "COLUMN_NAME",
        "DATA_TYPE",
        "TYPE_NAME",
        "PRECISION",
        "LENGTH",
        "SCALE",
        "RADIX",
        "NULLABLE",
    ];
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_columns_100 'ledger', @ODBCVer = 3",
            &wanted
        ),
        [
            "id 4 int identity 10 4 0 10 0",
            "name -9 nvarchar 40 80 NULL NULL 0",
            "amount 2 numeric 10 12 2 10 1",
            "at 93 datetime2 23 16 3 NULL 1",
            "long -9 nvarchar 0 0 NULL NULL 1",
            "ratio 6 float 53 8 NULL 2 1",
            "twice 2 numeric 12 14 2 10 1",
        ]
    );
    // Older clients know neither the newer types of moments nor `max`.
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_columns 'ledger', @column_name = '[al]%'",
            &wanted
        ),
        [
            "amount 2 numeric 10 12 2 10 1",
            "at -9 datetime2 23 46 NULL NULL 1",
            "long -10 ntext 1073741823 2147483646 NULL NULL 1",
        ]
    );
    let record = run(&mut session, "EXEC sp_columns_100 'ledger'");
    assert_eq!(record.columns().len(), 29, "what mssql-jdbc stores");
}

#[test]
fn keys_and_indexes_are_the_same_in_every_catalog() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let keys = columns(
        &mut session,
        "EXEC sp_pkeys 'ledger'",
        &["COLUMN_NAME", "KEY_SEQ", "PK_NAME"],
    );
    let name = "SELECT name FROM sys.key_constraints WHERE parent_object_id = OBJECT_ID('ledger') AND type = 'PK'";
    let name = value(&mut session, name);
    assert_eq!(keys, [format!("id 1 {name}")]);
    let wanted = [
        "PKTABLE_NAME",
        "PKCOLUMN_NAME",
        "FKTABLE_NAME",
        "FKCOLUMN_NAME",
        "FK_NAME",
        "DEFERRABILITY",
    ];
    let foreign = ["ledger id od]d ' table ledger of_ledger 7"];
    assert_eq!(
        columns(&mut session, "EXEC sp_fkeys 'ledger'", &wanted),
        foreign
    );
    let by_table = "EXEC sp_fkeys @fktable_name = 'od]d '' table'";
    assert_eq!(columns(&mut session, by_table, &wanted), foreign);
    let statistics = columns(
        &mut session,
        "EXEC sp_statistics 'ledger'",
        &[
            "TYPE",
            "NON_UNIQUE",
            "SEQ_IN_INDEX",
            "COLUMN_NAME",
            "CARDINALITY",
        ],
    );
    assert_eq!(
        statistics,
        [
            "0 NULL NULL NULL 1",
            "1 0 1 id 1",
            "3 0 1 name 1",
            "3 0 2 at 1",
            "3 1 1 amount 1"
        ]
    );
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_special_columns 'ledger'",
            &["SCOPE", "COLUMN_NAME"]
        ),
        ["1 id"]
    );
    for (query, expected) in [
        (
            "SELECT seed_value, increment_value FROM sys.identity_columns",
            "5|2",
        ),
        (
            "SELECT d.definition FROM sys.default_constraints d JOIN sys.columns c ON c.default_object_id = d.object_id",
            "(N'none')",
        ),
        (
            "SELECT COUNT(*) FROM sys.index_columns ic JOIN sys.indexes i ON i.object_id = ic.object_id AND i.index_id = ic.index_id",
            "4",
        ),
        (
            "SELECT CONSTRAINT_TYPE FROM INFORMATION_SCHEMA.TABLE_CONSTRAINTS WHERE CONSTRAINT_NAME = 'one'",
            "UNIQUE",
        ),
        (
            "SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE WHERE CONSTRAINT_NAME = 'of_ledger'",
            "ledger",
        ),
        (
            "SELECT DELETE_RULE FROM INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_NAME = 'of_ledger'",
            "NO ACTION",
        ),
        (
            "SELECT TYPE_NAME(user_type_id) FROM sys.columns WHERE name = 'at'",
            "datetime2",
        ),
        (
            "SELECT SCHEMA_NAME() + SCHEMA_NAME(SCHEMA_ID('sys'))",
            "dbosys",
        ),
        (
            "SELECT COUNT(*) FROM sys.types WHERE system_type_id = TYPE_ID('nvarchar')",
            "2",
        ),
    ] {
        assert_eq!(value(&mut session, query), expected, "{query}");
    }
}

#[test]
fn routines_types_and_the_server_describe_themselves() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_stored_procedures 'd%'",
            &["PROCEDURE_NAME", "PROCEDURE_TYPE"]
        ),
        ["doubled;1 2"]
    );
    let wanted = [
        "COLUMN_NAME",
        "COLUMN_TYPE",
        "DATA_TYPE",
        "TYPE_NAME",
        "ORDINAL_POSITION",
    ];
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_sproc_columns 'doubled', @ODBCVer = 3",
            &wanted
        ),
        [
            "@RETURN_VALUE 5 4 int 0",
            "@a 1 4 int 1",
            "@b 2 93 datetime 2"
        ]
    );
    let types = columns(
        &mut session,
        "EXEC sp_datatype_info_100 0, 3",
        &["TYPE_NAME", "DATA_TYPE"],
    );
    assert!(
        types.contains(&"datetimeoffset -155".to_owned()) && types.contains(&"date 91".to_owned())
    );
    let older = columns(&mut session, "EXEC sp_datatype_info -9", &["TYPE_NAME"]);
    assert!(older.contains(&"nvarchar".to_owned()), "{older:?}");
    assert_eq!(
        columns(
            &mut session,
            "EXEC sp_server_info 19",
            &["attribute_name", "attribute_value"]
        ),
        ["SAVEPOINT_SUPPORT Y"]
    );
}

#[test]
fn names_of_callers_are_values_and_other_databases_are_refused() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let hostile = [
        "'' OR 1 = 1 --",
        "x''); DROP TABLE dbo.ledger; --",
        "]",
        "[",
        "%_[^a]",
        "''''",
        "\u{0}",
        "𝔘𝔫",
    ];
    for name in hostile {
        for procedure in [
            "sp_columns",
            "sp_pkeys",
            "sp_statistics",
            "sp_special_columns",
            "sp_column_privileges",
        ] {
            let record = run(&mut session, &format!("EXEC {procedure} N'{name}'"));
            assert_eq!(numbers(&record), [0_u32; 0], "{procedure} {name}");
            assert!(
                name.contains("%_[^a]") || rows(&record).is_empty(),
                "{procedure} {name}"
            );
        }
    }
    assert_eq!(value(&mut session, "SELECT COUNT(*) FROM dbo.ledger"), "1");
    let odd = "EXEC sp_columns_100 'od]d '' table', @fUsePattern = 0";
    assert_eq!(
        columns(&mut session, odd, &["COLUMN_NAME"]),
        ["a]b", "ledger"]
    );
    for call in [
        "EXEC sp_columns 'ledger', NULL, 'stock'",
        "EXEC sp_pkeys 'ledger', @table_qualifier = 'nowhere'",
        "EXEC sp_tables 'ledger', 'dbo', 'stock'",
    ] {
        assert_eq!(numbers(&run(&mut session, call)), [15250], "{call}");
    }
    // The name of the procedure may name the database.
    let there = "EXEC [shop].sys.sp_pkeys 'ledger', 'dbo', 'shop'";
    run(&mut session, "USE master");
    assert_eq!(columns(&mut session, there, &["COLUMN_NAME"]), ["id"]);
    assert_eq!(numbers(&run(&mut session, "EXEC sp_columns")), [201]);
    run(&mut session, "USE shop");
    // The fifth parameter is the client's version; that of the newer procedures is another one.
    for (call, radix) in [
        ("EXEC sp_columns 'ledger', NULL, NULL, 'ratio', 3", "2"),
        ("EXEC sp_columns 'ledger', NULL, NULL, 'ratio', 2", "10"),
        (
            "EXEC sp_columns_100 'ledger', NULL, NULL, 'ratio', 0, 3",
            "2",
        ),
    ] {
        assert_eq!(columns(&mut session, call, &["RADIX"]), [radix], "{call}");
    }
    assert_eq!(
        numbers(&run(&mut session, "EXEC sp_columns 'a', @fusepattern = 1")),
        [8145]
    );
    assert_eq!(
        numbers(&run(&mut session, "EXEC sp_columns 'a', @nonsense = 1")),
        [8145]
    );
    // A temporary table is nobody's but its session's.
    run(&mut session, "CREATE TABLE #mine (secret int)");
    let mut other = stage.session();
    run(&mut other, "USE tempdb");
    let seen = columns(&mut other, "EXEC sp_columns '%'", &["COLUMN_NAME"]);
    assert!(!seen.contains(&"secret".to_owned()), "{seen:?}");
}

/// Goal: sp_spaceused has SQL Server's columns, and in them what is known: the size of files, and the rows of tables.
#[test]
fn space_is_told_as_far_as_it_is_known() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let bytes = std::fs::metadata(stage.path("shop.db")).unwrap().len();
    let pages = bytes.div_ceil(8192);
    let size = format!("{:.2} MB", pages as f64 * 8.0 / 1024.0);
    let record = run(&mut session, "EXEC sp_spaceused");
    assert_eq!(
        rows(&record),
        [
            vec!["shop".to_owned(), size.clone(), "NULL".to_owned()],
            vec![
                format!("{} KB", pages * 8),
                "NULL".to_owned(),
                "NULL".to_owned(),
                "NULL".to_owned()
            ]
        ]
    );
    let one = "EXEC sp_spaceused @updateusage = 'FALSE', @mode = 'all', @oneresultset = 1";
    let wanted = ["database_name", "database_size", "reserved", "unused"];
    let row = format!("shop {size} {} KB NULL", pages * 8);
    assert_eq!(columns(&mut session, one, &wanted), [row]);
    let wanted = ["name", "rows", "reserved", "data", "index_size", "unused"];
    let told = columns(&mut session, "EXEC sp_spaceused N'dbo.[ledger]'", &wanted);
    assert_eq!(told, [format!("ledger {:<20} 8 KB 8 KB 0 KB 0 KB", 1)]);
    for (call, number) in [
        ("EXEC sp_spaceused 'nothing'", 15009),
        ("EXEC sp_spaceused 'dbo.shown'", 15234),
        ("EXEC sp_spaceused 'master.dbo.ledger'", 15250),
        ("EXEC sp_spaceused @updateusage = 'maybe'", 15143),
        ("EXEC sp_spaceused @mode = 'REMOTE_ONLY'", 50002),
    ] {
        assert_eq!(numbers(&run(&mut session, call)), [number], "{call}");
    }
}

/// Goal: what tells columns tells those of views, too, as their queries are now.
#[test]
fn columns_of_views_are_told() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    for batch in [
        "CREATE VIEW dbo.wide (first, second, third) AS SELECT name, amount * 2, CAST(id AS bigint) FROM dbo.ledger",
        "CREATE VIEW dbo.meta AS SELECT name, object_id FROM sys.columns",
        "CREATE TABLE dbo.gone (n int)",
        "CREATE VIEW dbo.lost AS SELECT n FROM dbo.gone",
        "DROP TABLE dbo.gone",
        "CREATE VIEW dbo.deep AS SELECT first FROM dbo.wide",
    ] {
        assert_eq!(said(&run(&mut session, batch)), [""; 0], "{batch}");
    }
    let told = [
        "first nvarchar 40 YES 1",
        "second numeric NULL YES 2",
        "third bigint NULL YES 3",
    ];
    let asked = "SELECT * FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'wide' ORDER BY ORDINAL_POSITION";
    let wanted = [
        "COLUMN_NAME",
        "DATA_TYPE",
        "CHARACTER_MAXIMUM_LENGTH",
        "IS_NULLABLE",
        "ORDINAL_POSITION",
    ];
    assert_eq!(columns(&mut session, asked, &wanted), told);
    let asked = "SELECT c.name, TYPE_NAME(c.system_type_id) AS kind, c.is_nullable, c.is_identity, c.column_id FROM sys.columns c \
                 JOIN sys.views v ON v.object_id = c.object_id WHERE v.name IN ('wide', 'deep') ORDER BY v.name, c.column_id";
    let wanted = ["name", "kind", "is_nullable", "is_identity", "column_id"];
    assert_eq!(
        columns(&mut session, asked, &wanted),
        [
            "first nvarchar 1 0 1",
            "first nvarchar 1 0 1",
            "second numeric 1 0 2",
            "third bigint 1 0 3"
        ]
    );
    let wanted = ["COLUMN_NAME", "TYPE_NAME", "NULLABLE"];
    assert_eq!(
        columns(&mut session, "EXEC sp_columns 'wide'", &wanted),
        ["first nvarchar 1", "second numeric 1", "third bigint 1"]
    );
    // A view about columns sees those of views, and has columns itself.
    let count = "SELECT COUNT(*) FROM dbo.meta WHERE object_id = OBJECT_ID('dbo.wide')";
    assert_eq!(value(&mut session, count), "3");
    for (view, count) in [("meta", "2"), ("lost", "0"), ("shown", "1")] {
        let asked = format!(
            "SELECT COUNT(*) FROM sys.all_columns WHERE object_id = OBJECT_ID('dbo.{view}')"
        );
        assert_eq!(value(&mut session, &asked), count, "{view}");
    }
    // One of another database.
    run(&mut session, "USE master");
    let there = "SELECT COUNT(*) FROM shop.INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'wide'";
    assert_eq!(value(&mut session, there), "3");
    let here = "SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'wide'";
    assert_eq!(value(&mut session, here), "0");
}

#[test]
fn a_batch_is_described_and_does_not_run() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let wanted = [
        "column_ordinal",
        "name",
        "system_type_name",
        "tds_type_id",
        "tds_length",
    ];
    let described = "EXEC sp_describe_first_result_set N'DELETE dbo.ledger; SELECT id, name, amount AS a FROM dbo.ledger \
                     WHERE id = @p', N'@p int'";
    assert_eq!(
        columns(&mut session, described, &wanted),
        [
            "1 id int 38 4",
            "2 name nvarchar(40) 231 80",
            "3 a numeric(10,2) 108 17"
        ]
    );
    assert_eq!(value(&mut session, "SELECT COUNT(*) FROM dbo.ledger"), "1");
    let refused = "EXEC sp_describe_first_result_set N'RESTORE HEADERONLY FROM DISK = ''x'''";
    assert_eq!(numbers(&run(&mut session, refused)), [50002]);
    for batch in [
        "DELETE dbo.ledger OUTPUT deleted.id",
        "FETCH NEXT FROM c",
        "IF 1 = 1 SELECT id FROM dbo.ledger ELSE SELECT name FROM dbo.ledger",
        "WHILE 1 = 0 SELECT id FROM dbo.ledger; SELECT name FROM dbo.ledger",
        "GOTO later; SELECT id FROM dbo.ledger; later: SELECT name FROM dbo.ledger",
        "DBCC TRACESTATUS; SELECT id FROM dbo.ledger",
        "BEGIN TRY PRINT 1 / 0; SELECT id FROM dbo.ledger END TRY BEGIN CATCH SELECT name FROM dbo.ledger END CATCH",
    ] {
        let call = format!("EXEC sp_describe_first_result_set N'{batch}'");
        assert_eq!(numbers(&run(&mut session, &call)), [50002], "{batch}");
    }
    let inner = "EXEC sp_describe_first_result_set N'IF 1 = 0 DECLARE @a int ELSE BEGIN TRY DECLARE @b bigint END TRY BEGIN CATCH \
                 WHILE 1 = 0 DECLARE @c float END CATCH; SELECT @a AS a, @b AS b, @c AS c'";
    assert_eq!(
        columns(&mut session, inner, &["name", "system_type_name"]),
        ["a int", "b bigint", "c float"]
    );
    let first = "EXEC sp_describe_first_result_set N'DECLARE @n int; SELECT @n = 1; IF @n = 1 SELECT id FROM dbo.ledger ELSE \
                 SELECT id FROM dbo.ledger WHERE 1 = 0; SELECT name FROM dbo.ledger'";
    let untold = [
        "name",
        "is_identity_column",
        "is_computed_column",
        "is_updateable",
    ];
    assert_eq!(columns(&mut session, first, &untold), ["id NULL NULL NULL"]);
}

#[test]
fn a_parameter_has_the_type_of_the_column_that_it_meets_and_no_guess() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let wanted = ["name", "suggested_system_type_name"];
    for (batch, expected) in [
        (
            "SELECT 1 FROM dbo.ledger l WHERE l.amount >= @a AND @b LIKE l.[name]",
            ["@a numeric(10,2)", "@b nvarchar(40)"],
        ),
        (
            "INSERT INTO dbo.ledger (name, at) VALUES (@n, @t)",
            ["@n nvarchar(40)", "@t datetime2(3)"],
        ),
        (
            "UPDATE dbo.ledger SET amount = @a WHERE id = @id",
            ["@a numeric(10,2)", "@id int"],
        ),
    ] {
        let call = format!("EXEC sp_describe_undeclared_parameters N'{batch}'");
        assert_eq!(columns(&mut session, &call, &wanted), expected, "{batch}");
    }
    let unknown = "EXEC sp_describe_undeclared_parameters N'SELECT @x'";
    assert_eq!(numbers(&run(&mut session, unknown)), [50002]);
    for batch in [
        "INSERT dbo.ledger VALUES (@n, 1, NULL, NULL, NULL); INSERT dbo.ledger (ratio) VALUES (@r)",
        "INSERT dbo.ledger (amount) VALUES (@n + 1)",
        "SELECT 1 FROM dbo.ledger WHERE ratio + id = @p",
        "SELECT 1 FROM dbo.ledger WHERE ratio + ledger.id = @p",
        "SELECT 1 FROM dbo.ledger WHERE @p = id * 1.5",
        "SELECT 1 FROM dbo.ledger WHERE @p = id(7)",
        "UPDATE dbo.ledger SET amount = @p + ratio",
        "SELECT 1 FROM dbo.ledger WHERE 2 * @p = id",
        "SELECT 1 FROM dbo.ledger l, dbo.twins t WHERE t.name = @p",
        "SELECT id = @p FROM dbo.ledger",
        "SELECT 1 AS one, id = @p FROM dbo.ledger WHERE id = 1",
        "SELECT @p = id FROM dbo.ledger",
        "DELETE dbo.ledger OUTPUT id = @p WHERE id = 1",
        "WITH x AS (SELECT ''a'' AS id) SELECT 1 FROM dbo.ledger, x WHERE x.id = @p",
        "SELECT 1 FROM dbo.ledger WHERE @p = name COLLATE Latin1_General_BIN",
        "SELECT 1 FROM dbo.ledger WHERE @p = at AT TIME ZONE ''UTC''",
        "SELECT CASE WHEN id = 1 THEN 2 END, id = @p FROM dbo.ledger",
        "SELECT 1 FROM dbo.ledger l WITH (NOLOCK), dbo.twins t WHERE t.name = @p",
        "SELECT 1 FROM dbo.ledger (NOLOCK), (SELECT ''x'' AS id) d WHERE d.id = @p",
        "DELETE dbo.twins WHERE name = @p AND EXISTS (SELECT 1 FROM dbo.ledger)",
        "DELETE TOP (1) dbo.twins WHERE name = @p AND EXISTS (SELECT 1 FROM dbo.ledger)",
        "MERGE dbo.twins t USING (SELECT * FROM dbo.ledger) l ON t.name = @p WHEN MATCHED THEN DELETE;",
        "SELECT 1 FROM dbo.ledger l JOIN (SELECT ''x'' AS id) d ON 1 = 1 WHERE d.id = @p",
    ] {
        run(&mut session, "CREATE TABLE dbo.twins (name int)");
        let call = format!("EXEC sp_describe_undeclared_parameters N'{batch}'");
        assert_eq!(
            numbers(&run(&mut session, &call)).last(),
            Some(&50002),
            "{batch}"
        );
    }
    let twice = "EXEC sp_describe_undeclared_parameters N'SELECT 1 FROM dbo.ledger WHERE name = @p AND id = @p'";
    assert_eq!(numbers(&run(&mut session, twice)), [11508]);
    // Conditions elsewhere.
    for batch in [
        "SELECT 1 FROM dbo.ledger WITH (NOLOCK) WHERE NOT (ratio = 1 OR (id = @p))",
        "SELECT CASE WHEN id = @p THEN 1 END FROM dbo.ledger",
        "UPDATE dbo.ledger SET name = CASE WHEN id = 1 THEN ''a'' END, id = @p",
        "DELETE l FROM dbo.ledger AS l WITH (NOLOCK), dbo.ledger m WHERE l.id = @p",
        "DELETE dbo.ledger WHERE id = @p",
        "UPDATE dbo.ledger SET name = name, id = @p",
        "SELECT 1 FROM dbo.ledger l JOIN dbo.ledger m ON (SELECT 1) = 1 AND @p = m.id",
    ] {
        let call = format!("EXEC sp_describe_undeclared_parameters N'{batch}'");
        assert_eq!(columns(&mut session, &call, &wanted), ["@p int"], "{batch}");
    }
    // Without names of columns the first value is for the first column that takes one.
    let all =
        "EXEC sp_describe_undeclared_parameters N'INSERT dbo.ledger VALUES (@n, @a, @t, @l, @r)'";
    let expected = [
        "@n nvarchar(40)",
        "@a numeric(10,2)",
        "@t datetime2(3)",
        "@l nvarchar(max)",
        "@r float",
    ];
    assert_eq!(columns(&mut session, all, &wanted), expected);
}

#[test]
fn under_fmtonly_queries_have_columns_and_nothing_runs() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    // The older way: the columns, and no rows.
    let record = run(
        &mut session,
        "SET FMTONLY ON SELECT id, name FROM dbo.ledger; DELETE dbo.ledger SET FMTONLY OFF",
    );
    assert_eq!((record.columns().len(), rows(&record).len()), (2, 0));
    let branches = run(
        &mut session,
        "SET FMTONLY ON; IF 1 = 0 SELECT id FROM dbo.ledger ELSE BEGIN DELETE dbo.ledger; SELECT name FROM dbo.ledger END;
         WHILE 1 = 0 SELECT ratio FROM dbo.ledger; BEGIN TRY SELECT at FROM dbo.ledger END TRY BEGIN CATCH END CATCH;
         IF 1 = 0 SET FMTONLY OFF ELSE DELETE dbo.ledger; SELECT COUNT(*) FROM dbo.ledger",
    );
    let sent = branches.events.iter().filter_map(|event| match event {
        SinkEvent::Columns(columns) => Some(columns[0].name.clone()),
        _ => None,
    });
    let names: Vec<_> = sent.collect();
    assert_eq!(names, ["id", "name", "ratio", "at", ""]);
    assert_eq!(rows(&branches), [["1"]]);
    let called = "SET FMTONLY ON EXEC sp_tables SET FMTONLY OFF";
    assert_eq!(numbers(&run(&mut session, called)), [50002]);
    // A text sets it for itself alone: what follows runs.
    for option in ["FMTONLY", "NOEXEC"] {
        let leaks = format!(
            "EXEC('SET {option} ON SELECT 1 AS a'); EXEC sp_executesql N'SET {option} ON'; UPDATE dbo.ledger SET name = '{option}'"
        );
        run(&mut session, &leaks);
        let name = value(&mut session, "SELECT name FROM dbo.ledger");
        assert_eq!(name, option);
    }
    assert_eq!(value(&mut session, "SELECT COUNT(*) FROM dbo.ledger"), "1");
}

#[test]
fn a_limit_of_rows_holds_until_it_is_taken_back() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    run(
        &mut session,
        "INSERT dbo.ledger (name) VALUES ('a'), ('b'), ('c')",
    );
    let limited = run(
        &mut session,
        "SET ROWCOUNT 2; SELECT name FROM dbo.ledger ORDER BY id DESC; SELECT 1 WHERE @@ROWCOUNT = 2;
         DECLARE @last nvarchar(40); SELECT @last = name FROM dbo.ledger ORDER BY id DESC; SELECT @last, @@ROWCOUNT",
    );
    assert_eq!(said(&limited), [""; 0]);
    assert_eq!(
        rows(&limited),
        [vec!["c"], vec!["b"], vec!["1"], vec!["b", "2"]]
    );
    // Nothing is computed for the rows after the last one.
    for script in [
        "SELECT 1 / (3 - n) FROM (VALUES (2), (2), (3)) v (n)",
        "DECLARE @x int; SELECT @x = 1 / (3 - n) FROM (VALUES (2), (2), (3)) v (n)",
        "DECLARE c CURSOR STATIC FOR SELECT 1 / (3 - n) FROM (VALUES (2), (2), (3)) v (n); OPEN c; DEALLOCATE c",
    ] {
        assert_eq!(said(&run(&mut session, script)), [""; 0], "{script}");
    }
    let tables = run(&mut session, "EXEC sp_datatype_info");
    assert_eq!(rows(&tables).len(), 2);
    // Changes are limited, too, as by TOP.
    assert_eq!(said(&run(&mut session, "DELETE dbo.ledger")), [""; 0]);
    run(&mut session, "SET ROWCOUNT 0");
    assert_eq!(
        rows(&run(&mut session, "SELECT id FROM dbo.ledger")).len(),
        2
    );
    assert_eq!(numbers(&run(&mut session, "SET ROWCOUNT -1")), [50002]);
}

#[test]
fn a_savepoint_is_where_a_transaction_returns_to() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let count = |session: &mut Session| value(session, "SELECT COUNT(*) FROM dbo.ledger");
    assert_eq!(numbers(&run(&mut session, "SAVE TRANSACTION a")), [628]);
    run(
        &mut session,
        "BEGIN TRANSACTION whole; INSERT dbo.ledger (name) VALUES ('a'); SAVE TRAN a",
    );
    run(
        &mut session,
        "INSERT dbo.ledger (name) VALUES ('b'); SAVE TRANSACTION [b]; DELETE dbo.ledger",
    );
    assert_eq!(count(&mut session), "0");
    assert_eq!(
        numbers(&run(
            &mut session,
            "ROLLBACK TRANSACTION b; ROLLBACK TRAN b"
        )),
        [0_u32; 0]
    );
    assert_eq!(count(&mut session), "3");
    assert_eq!(
        numbers(&run(&mut session, "ROLLBACK TRANSACTION B")),
        [6401],
        "its case counts"
    );
    let variable = "DECLARE @name varchar(32) = 'a'; ROLLBACK TRAN @name; SELECT @@TRANCOUNT";
    assert_eq!(value(&mut session, variable), "1");
    assert_eq!(count(&mut session), "2");
    assert_eq!(
        numbers(&run(&mut session, "ROLLBACK TRANSACTION b")),
        [6401],
        "a later one is gone"
    );
    run(
        &mut session,
        "UPDATE dbo.ledger SET name = 'changed'; SAVE TRAN c; UPDATE dbo.ledger SET name = 'again'",
    );
    assert_eq!(
        numbers(&run(&mut session, "ROLLBACK TRANSACTION whole")),
        [0_u32; 0]
    );
    assert_eq!(value(&mut session, "SELECT @@TRANCOUNT"), "0");
    assert_eq!(value(&mut session, "SELECT name FROM dbo.ledger"), "none");
    // Savepoints in number are bounded.
    run(&mut session, "BEGIN TRAN");
    let many =
        "DECLARE @i int = 0; WHILE @i < 1000 BEGIN SAVE TRAN s; SET @i = @i + 1 END; SAVE TRAN s";
    assert_eq!(numbers(&run(&mut session, many)), [50000]);
    run(&mut session, "ROLLBACK");
}

/// Goal: a name of a transaction that has ended is a savepoint's in the next one.
#[test]
fn the_name_of_a_transaction_ends_with_it() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    let again = "SET XACT_ABORT OFF; BEGIN TRAN; INSERT dbo.ledger (name, at) VALUES ('kept', SYSDATETIME()); SAVE TRAN t;
                 INSERT dbo.ledger (name) VALUES ('not'); ROLLBACK TRAN t; SELECT @@TRANCOUNT; COMMIT";
    run(
        &mut session,
        "SET XACT_ABORT ON; BEGIN TRAN t; SELECT 1 / 0",
    );
    assert_eq!(value(&mut session, again), "1");
    run(&mut session, "BEGIN TRAN t");
    session.reset(false);
    run(&mut session, "USE shop");
    assert_eq!(value(&mut session, again), "1");
    let kept = "SELECT COUNT(*), COUNT(DISTINCT name) FROM dbo.ledger WHERE name <> 'none'";
    assert_eq!(value(&mut session, kept), "2|1");
}

/// Goal: a pool that resets a connection and keeps its transaction can still roll it back.
#[test]
fn a_reset_that_keeps_the_transaction_keeps_what_it_changed() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    session.settle();
    run(
        &mut session,
        "CREATE TABLE #own (a int); BEGIN TRAN; INSERT #own VALUES (1); INSERT dbo.ledger (name) VALUES ('a'); SAVE TRAN s;
         DELETE dbo.ledger",
    );
    session.reset(true);
    let count = "SELECT @@TRANCOUNT, COUNT(*) FROM dbo.ledger";
    assert_eq!(value(&mut session, count), "1|0");
    run(
        &mut session,
        "CREATE TABLE #own (a int); INSERT #own VALUES (2)",
    );
    let back = run(&mut session, "ROLLBACK TRAN s");
    assert_eq!(numbers(&back), [0_u32; 0], "{:?}", said(&back));
    assert_eq!(value(&mut session, count), "1|2");
    run(&mut session, "ROLLBACK");
    assert_eq!(value(&mut session, count), "0|1");
}

/// Goal: a ROLLBACK to a savepoint that the catalog refuses says so, and the transaction can still be rolled back.
#[test]
fn a_savepoint_that_cannot_be_returned_to_is_told() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    run(
        &mut session,
        "CREATE TABLE dbo.other (a int); INSERT dbo.other VALUES (1); BEGIN TRAN; SAVE TRAN s; DELETE dbo.ledger;
         DELETE dbo.other",
    );
    let catalog = rusqlite::Connection::open(stage.path("state/catalog.db")).unwrap();
    let first = "SELECT MIN(object_id) FROM longshore_object WHERE name = 'ledger'";
    let id: i64 = catalog.query_row(first, [], |row| row.get(0)).unwrap();
    let refuses = format!(
        "CREATE TRIGGER refuses BEFORE INSERT ON longshore_row WHEN new.object_id = {id}
         BEGIN SELECT RAISE(ABORT, 'no room'); END"
    );
    catalog.execute_batch(&refuses).unwrap();
    let refused = run(&mut session, "ROLLBACK TRAN s");
    assert!(refused.messages().any(|m| m.is_error()), "{refused:?}");
    let counts =
        "SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM dbo.ledger), (SELECT COUNT(*) FROM dbo.other)";
    assert_eq!(value(&mut session, counts), "1|0|1");
    catalog.execute_batch("DROP TRIGGER refuses").unwrap();
    run(&mut session, "ROLLBACK TRAN s");
    assert_eq!(value(&mut session, counts), "1|1|1");
    run(&mut session, "ROLLBACK");
    assert_eq!(value(&mut session, counts), "0|1|1");
}

/// The views, columns and functions are those that DBeaver and Azure Data Studio ask while they open a server, a database and a
/// table.
#[test]
fn tools_find_what_they_ask_for_while_they_open() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    for query in [
        "SELECT db_name(), schema_name(), original_login()",
        "SELECT db.* FROM sys.databases db",
        "SELECT * FROM sys.types WHERE is_user_defined = 0 ORDER BY name",
        "SELECT database_id, SUM(size) FROM sys.master_files WITH(NOWAIT) GROUP BY database_id",
        "SELECT DISTINCT s.*, ep.value AS description FROM [shop].sys.schemas s LEFT OUTER JOIN [shop].sys.extended_properties ep \
         ON ep.class = 3 AND ep.major_id = s.schema_id AND ep.minor_id = 0 INNER JOIN [shop].sys.all_objects o ON s.schema_id = o.schema_id",
        "SELECT o.*, t.is_external FROM [shop].sys.all_objects o LEFT OUTER JOIN [shop].sys.tables t ON t.object_id = o.object_id \
         WHERE o.type IN ('U', 'S', 'V', 'TT') AND o.schema_id = 1",
        "SELECT c.*, t.name AS table_name, cc.is_persisted, dc.definition FROM [shop].sys.all_columns c \
         JOIN [shop].sys.all_objects t ON t.object_id = c.object_id \
         LEFT OUTER JOIN [shop].sys.default_constraints dc ON dc.parent_object_id = t.object_id AND dc.parent_column_id = c.column_id \
         LEFT OUTER JOIN [shop].sys.computed_columns cc ON cc.object_id = t.object_id AND cc.column_id = c.column_id \
         WHERE t.schema_id = 1 ORDER BY c.object_id, c.column_id",
        "SELECT i.*, ic.key_ordinal, ic.is_descending_key, ic.is_included_column FROM [shop].sys.indexes i, [shop].sys.index_columns ic, \
         [shop].sys.all_objects t WHERE t.object_id = i.object_id AND ic.object_id = i.object_id AND ic.index_id = i.index_id \
         AND t.schema_id = 1 ORDER BY i.object_id, i.index_id, ic.key_ordinal",
        "SELECT kc.*, t.name AS table_name FROM [shop].sys.key_constraints kc, [shop].sys.all_objects t \
         WHERE kc.parent_object_id = t.object_id AND kc.schema_id = 1 ORDER BY kc.name",
        "SELECT fk.key_index_id, fk.delete_referential_action, fkc.* FROM [shop].sys.foreign_keys fk, \
         [shop].sys.foreign_key_columns fkc, [shop].sys.tables tr WHERE fk.object_id = fkc.constraint_object_id \
         AND tr.object_id = fk.referenced_object_id",
        "SELECT SERVERPROPERTY('EngineEdition'), SERVERPROPERTY('productversion'), SERVERPROPERTY('productlevel'), \
         SERVERPROPERTY('edition'), SERVERPROPERTY('MachineName'), (SELECT CASE WHEN EXISTS (SELECT TOP 1 1 FROM \
         [sys].[all_columns] WITH (NOLOCK) WHERE name = N'xml_index_type' AND OBJECT_ID(N'sys.xml_indexes') = object_id) \
         THEN 1 ELSE 0 END AS SXI_PRESENT)",
        "SELECT name FROM sys.databases WHERE state_desc = 'ONLINE' ORDER BY name ASC",
        "WITH f AS (SELECT name, object_id FROM sys.foreign_keys) SELECT f.name, f.object_id FROM f UNION \
         SELECT f.name, 0 FROM f ORDER BY f.object_id, F.name",
    ] {
        let record = run(&mut session, query);
        assert_eq!(numbers(&record), [0_u32; 0], "{query}: {:?}", said(&record));
        assert!(!rows(&record).is_empty(), "{query}");
    }
    for query in [
        "SELECT s.* FROM [shop].sys.sequences s WHERE s.schema_id = 1",
        "SELECT s.* FROM [shop].sys.synonyms s WHERE s.schema_id = 1",
        "SELECT ss.*, tt.type_table_object_id FROM sys.types ss LEFT JOIN sys.table_types tt ON ss.name = tt.name WHERE ss.is_user_defined = 1",
    ] {
        let record = run(&mut session, query);
        assert_eq!(
            (numbers(&record).len(), rows(&record).len()),
            (0, 0),
            "{query}: {:?}",
            said(&record)
        );
    }
}

#[test]
fn keys_are_told_of_tables_without_a_primary_key_and_of_wide_ones() {
    let stage = Stage::new();
    let mut session = stocked(&stage);
    assert_eq!(numbers(&run(&mut session, "EXEC sp_fkeys")), [15252]);
    run(
        &mut session,
        "CREATE TABLE dbo.loose (a int NULL UNIQUE, b int NOT NULL UNIQUE, c int)",
    );
    for (call, expected) in [
        ("EXEC sp_special_columns 'loose'", "a"),
        ("EXEC sp_special_columns 'loose', @nullable = 'O'", "b"),
        ("EXEC sp_special_columns 'ledger'", "id"),
    ] {
        assert_eq!(
            columns(&mut session, call, &["COLUMN_NAME"]),
            [expected],
            "{call}"
        );
    }
    // The most columns, each with a default: the numbers of these are those of no other table.
    let wide: Vec<_> = (0..1024).map(|i| format!("c{i} int DEFAULT {i}")).collect();
    for name in ["wide", "wider"] {
        let made = format!("CREATE TABLE dbo.{name} ({})", wide.join(", "));
        assert_eq!(numbers(&run(&mut session, &made)), [0_u32; 0]);
    }
    let twice = "SELECT COUNT(*) - COUNT(DISTINCT object_id) FROM sys.default_constraints";
    assert_eq!(value(&mut session, twice), "0");
}
