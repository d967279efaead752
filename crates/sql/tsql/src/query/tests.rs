//! Goal: short ways give the same as long ones: expressions by their form and by their text, with and without
//! SQLite, and subqueries that are grouped and not grouped.
//! Method: generated expressions and queries go both ways, and the results are compared.
//! Not covered: whether a result is SQL Server's (`tests/queries.rs`).
//!
//! The contract of the nodes ([`Nodes`], which is [`Leaves`], [`Operators`] and [`Calls`]) is `compare_ways`: for texts
//! made at random, the tree is the parser's, and a reader that makes no tree takes exactly the texts of which there is one.
//! `direct/lies.rs` makes each kind of node wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_accelerators::Probe;
use longshore_catalog::Catalog;
use longshore_io::{Host, HostClock};
use longshore_pipeline::RunContext;
use proptest::prelude::*;
use sqlparser::ast::{Expr, SelectItem, SetExpr};

use super::reader::QuerySource;
use super::{QueryPlan, direct, translate};
use crate::memory::Memory;
use crate::message::{self, Message};
use crate::server::{Database, Databases, Defaults, Server, Setup, Unusable};
use crate::session::Session;
use crate::syntax::{Fragment, Statement};
use crate::value::{Type, Value};
use crate::variables::Variables;
use crate::{Login, Variable};

#[path = "../../tests/databases/suite.rs"]
mod databases_suite;

#[test]
fn a_server_without_databases_keeps_the_contract_of_their_list() {
    assert!(databases_suite::keeps_its_contract(&NoDatabases).is_empty());
}

struct NoDatabases;

impl Databases for NoDatabases {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn find(&self, _name: &str) -> Result<Option<Database>, Unusable> {
        Ok(None)
    }
}

pub(crate) fn session(dir: &tempfile::TempDir) -> Session {
    let setup = Setup {
        memory: Memory::unbounded(),
        name: "HARBOUR".into(),
        context: RunContext {
            keyring: Default::default(),
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
            catalog: Some(dir.path().join("catalog.db")),
            accelerators: Vec::new(),
            cancel: Arc::default(),
        },
        databases: Arc::new(NoDatabases),
        encrypt_to: Ok(None),
        defaults: Defaults::default(),
        backup_directory: dir.path().to_path_buf(),
        directories: None,
        buckets: None,
        kept_buckets: Vec::new(),
        reserved: Vec::new(),
        prober: Arc::new(|_| Probe::look()),
        logins: Arc::new(Vec::new),
    };
    Session::new(Server::start(setup), Login::default())
}

// Expressions.

fn with_variables(mut session: Session) -> Session {
    let of = |kind: Type, value: Value| Variable { kind, value };
    let all = [
        ("@i", of(Type::Int, Value::Int(7))),
        ("@t", of(Type::VarChar(Some(9)), Value::text("nine"))),
        ("@n", of(Type::NVarChar(None), Value::text("ж"))),
        ("@m", of(Type::Money, Value::Null)),
    ];
    let all: BTreeMap<String, Variable> = all
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let claim = session.server.setup.memory.claim(0).unwrap();
    session.variables = Variables::new(all, 0, claim).unwrap();
    session
}

const LITERALS: &[&str] = &[
    "0",
    "1",
    "10",
    "2147483647",
    "2147483648",
    "9223372036854775808",
    "12345678901234567890123456789012345678901",
    "1.50",
    ".5",
    "1.",
    "0.00001",
    "1e3",
    "1.5E-2",
    "''",
    "'a'",
    "'it''s'",
    "'?0'",
    "'12'",
    "'2027-01-31'",
    "N'é'",
    "N''",
    "'ж'",
    "0xFF",
    "0x",
    "$1.50",
    "NULL",
    "@i",
    "@t",
    "@n",
    "@m",
    "@@MAX_PRECISION",
];

const TYPES: &[&str] = &[
    "int",
    "tinyint",
    "varchar ( 9 )",
    "char(3)",
    "nvarchar(max)",
    "varchar",
    "numeric(9,2)",
    "decimal",
    "float ( 20 )",
    "datetime2(3)",
    "time ( 0 )",
    "date",
    "varbinary(8)",
    "money",
    "[int]",
];

fn conditions(value: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let v = || value.clone();
    prop_oneof![
        (v(), "=|<>|<|>=", v()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        (v(), v(), v()).prop_map(|(a, b, c)| format!("{a} BETWEEN {b} AND {c}")),
        (v(), v(), v()).prop_map(|(a, b, c)| format!("{a} NOT IN ({b}, {c})")),
        (v(), v()).prop_map(|(a, b)| format!("{a} LIKE {b} ESCAPE '!'")),
        v().prop_map(|a| format!("NOT ({a} IS NULL)")),
        (v(), v()).prop_map(|(a, b)| format!("({a} > 1 OR {b} < 'b' COLLATE Latin1_General_BIN2)")),
    ]
    .boxed()
}

fn expressions() -> BoxedStrategy<String> {
    let leaf = prop::sample::select(LITERALS).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let v = || inner.clone();
        let kind = || prop::sample::select(TYPES);
        let condition = conditions(inner.clone().boxed());
        prop_oneof![
            (v(), "[-+*/%&|^]", v()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
            (v(), v()).prop_map(|(a, b)| format!("({a}+{b})")),
            v().prop_map(|a| format!("-{a}")),
            (v(), kind()).prop_map(|(a, k)| format!("CAST({a} AS {k})")),
            (v(), kind()).prop_map(|(a, k)| format!("TRY_CONVERT ({k}, {a})")),
            (v(), kind(), v()).prop_map(|(a, k, s)| format!("CONVERT({k}, {a}, {s})")),
            (v(), v()).prop_map(|(a, b)| format!("LEFT({a}, {b})")),
            (v(), v(), v()).prop_map(|(a, b, c)| format!("SUBSTRING({a}, {b}, {c})")),
            (v(), v()).prop_map(|(a, b)| format!("ISNULL({a}, {b})")),
            (v(), v()).prop_map(|(a, b)| format!("COALESCE({a}, {b}, 'x')")),
            (v(), v()).prop_map(|(a, b)| format!("DATEADD(day, {a}, {b})")),
            (v(), v()).prop_map(|(a, b)| format!("CHAR({a}) + UPPER({b})")),
            v().prop_map(|a| format!("SERVERPROPERTY({a})")),
            (condition, v(), v())
                .prop_map(|(c, a, b)| format!("CASE WHEN {c} THEN {a} ELSE {b} END")),
        ]
    })
    .boxed()
}

/// What the parser makes of an expression; `None`: it is none.
fn fragment(text: &str) -> Option<Fragment> {
    let batch = crate::syntax::parse(&format!("PRINT {text}")).ok()?;
    match batch.statements.as_slice() {
        [one] => match &one.statement {
            Statement::Print(fragment) => Some(fragment.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn by_text(session: &Session, asked: QuerySource) -> Result<QueryPlan, Message> {
    translate::query(
        &session.query_context(),
        &*session.reader.by_text(asked)?,
        &[],
    )
}

/// Holds the plan by the form against that by the text. Whether the form served.
fn compare(session: &Session, asked: QuerySource) -> Result<bool, TestCaseError> {
    let Some((tree, literals)) = session.reader.by_form(asked) else {
        return Ok(false);
    };
    // Before anything runs, the form alone is read.
    let read = session.reader.by_text(asked);
    prop_assert!(read.is_ok(), "{asked:?}: only its form can be read");
    let Ok(formed) = translate::query(&session.query_context(), &tree, &literals) else {
        return Ok(false);
    };
    let whole = by_text(session, asked);
    prop_assert!(whole.is_ok(), "{asked:?}: only its form has a meaning");
    let whole = whole.unwrap();
    prop_assert_eq!(&formed.sql, &whole.sql);
    prop_assert_eq!(&formed.values, &whole.values);
    prop_assert_eq!(&formed.columns, &whole.columns);
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn an_expression_means_by_its_form_what_it_means_by_its_text(text in expressions()) {
        let dir = tempfile::tempdir().unwrap();
        let session = with_variables(session(&dir));
        let Some(fragment) = fragment(&text) else {
            return Ok(());
        };
        compare(&session, QuerySource::Expression(&fragment))?;
        compare(&session, QuerySource::Condition(&fragment))?;
    }

    #[test]
    fn no_row_of_tokens_is_read_by_its_form_alone(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(LITERALS),
                prop::sample::select(&[
                    "(", ")", ",", ".", "+", "-", "=", "*", "AND", "AS", "CAST", "IN", "LIKE", "ESCAPE", "CASE", "WHEN",
                    "THEN", "END", "IS", "NOT", "int", "varchar", "DATE", "TIMESTAMP", "INTERVAL", "DAY", "N", "x", "[x]",
                    "CONVERT", "COLLATE", "BETWEEN", "AT", "TIME", "ZONE", "EXISTS", "OVER", "~", "::",
                ][..]),
            ],
            1..8,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let session = with_variables(session(&dir));
        if let Some(fragment) = fragment(&words.join(" ")) {
            compare(&session, QuerySource::Expression(&fragment))?;
        }
    }
}

// Expressions without SQLite.

/// Whether the short way gave a value; it is SQLite's, and the tree is the parser's.
fn compare_ways(session: &Session, asked: QuerySource) -> Result<bool, TestCaseError> {
    let tree = direct::read(asked.written());
    prop_assert_eq!(direct::reads(asked), tree.is_some(), "{:?}", asked);
    let Some(tree) = tree else {
        return Ok(false);
    };
    is_the_parsers(session, asked, &tree)?;
    let Some(found) = direct::value(&session.query_context(), asked) else {
        return Ok(false);
    };
    let wanted = super::one(&session.query_context(), asked);
    // The clock goes on between the two.
    if CLOCKS.iter().any(|clock| asked.written().contains(clock)) {
        let kinds = (Ok(found.kind), wanted.map(|v| v.kind));
        prop_assert_eq!(&kinds.0, &kinds.1, "{:?}", asked);
        return Ok(true);
    }
    prop_assert_eq!(Ok(&found), wanted.as_ref(), "{:?}", asked);
    // NULL and -0.0 are equal to others, so compare what is shown as well.
    prop_assert_eq!(format!("{found:?}"), format!("{:?}", wanted.unwrap()));
    Ok(true)
}

/// Whether the parser makes this tree of the same text.
fn is_the_parsers(session: &Session, asked: QuerySource, tree: &Expr) -> Result<(), TestCaseError> {
    let whole = session.reader.by_text(asked);
    prop_assert!(whole.is_ok(), "{asked:?}: the parser refuses it");
    let whole = whole.unwrap();
    let SetExpr::Select(select) = whole.body.as_ref() else {
        panic!("{whole:?}");
    };
    let item = match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(item)] => item,
        other => panic!("{other:?}"),
    };
    let read = match item {
        Expr::Nested(inner) => inner,
        Expr::Case { conditions, .. } => match &conditions[0].condition {
            Expr::Nested(inner) => inner,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    prop_assert_eq!(tree, &**read, "{:?}", asked);
    Ok(())
}

/// Goal: the suite sees a wrong node of every kind.
#[test]
fn every_node_that_is_made_wrong_differs_from_the_parsers() {
    let dir = tempfile::tempdir().unwrap();
    let session = with_variables(session(&dir));
    for (lying, text) in direct::LIES {
        let fragment = fragment(text).unwrap();
        let asked = QuerySource::Expression(&fragment);
        let right = direct::HARMLESS(text).unwrap();
        is_the_parsers(&session, asked, &right).unwrap();
        let wrong = lying(text).unwrap();
        assert!(is_the_parsers(&session, asked, &wrong).is_err(), "{text}");
    }
}

const CLOCKS: &[&str] = &["GETDATE", "GETUTCDATE", "SYSDATETIME"];

/// Every construct that is read here, of any arguments.
fn of_all_functions() -> BoxedStrategy<String> {
    const PARTS: &[&str] = &["day", "yy", "Hour", "week", "ms", "quarter", "n"];
    let leaf = prop::sample::select(LITERALS).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let v = || inner.clone();
        let all = || prop::collection::vec(inner.clone(), 0..4);
        let part = || prop::sample::select(PARTS);
        let condition = conditions(inner.clone().boxed());
        let sum = (v(), "[-+*/%&|^]", v()).prop_map(|(a, o, b)| format!("{a} {o} {b}"));
        let called = (prop::sample::select(direct::FUNCTIONS), all())
            .prop_map(|(f, all)| format!("{f}({})", all.join(", ")));
        let fitting = (prop::sample::select(FITTING), v(), v(), v())
            .prop_map(|(f, a, b, c)| f.replace('1', &a).replace('2', &b).replace('3', &c));
        prop_oneof![
            4 => sum,
            2 => (v(), v()).prop_map(|(a, b)| format!("({a}+{b})")),
            1 => v().prop_map(|a| format!("-({a})")),
            1 => v().prop_map(|a| format!("NOT {a}")),
            3 => called,
            6 => fitting,
            2 => (prop::sample::select(direct::OF_PARTS), part(), v(), v())
                .prop_map(|(f, p, a, b)| match f.ends_with('D') || f.ends_with('F') {
                    true => format!("{f}({p}, {a}, {b})"),
                    false => format!("{f}({p}, {a})"),
                }),
            2 => (v(), prop::sample::select(TYPES)).prop_map(|(a, k)| format!("CAST({a} AS {k})")),
            2 => (v(), prop::sample::select(TYPES), v())
                .prop_map(|(a, k, s)| format!("TRY_CONVERT({k}, {a}, {s})")),
            2 => (condition.clone(), v(), v())
                .prop_map(|(c, a, b)| format!("CASE WHEN {c} THEN {a} ELSE {b} END")),
            1 => (v(), v(), v()).prop_map(|(a, b, c)| format!("CASE {a} WHEN {b} THEN {c} END")),
            2 => (condition.clone(), condition).prop_map(|(a, b)| format!("({a} AND NOT {b})")),
        ]
    })
    .boxed()
}

/// Calls whose arguments may well have a value.
const FITTING: &[&str] = &[
    "ABS(1)",
    "CHARINDEX('a', 1)",
    "COALESCE(1, 2, 3)",
    "CONCAT(1, 2, 3)",
    "FLOOR(1)",
    "IIF(1 > 2, 3, 1)",
    "ISNULL(1, 2)",
    "LEFT('' + CAST(1 AS varchar(20)), 2)",
    "LEN(1)",
    "LTRIM('  ' + 1)",
    "NULLIF(1, 2)",
    "REPLACE(1, 2, 3)",
    "REPLICATE(1, LEN(2))",
    "RIGHT('00' + CAST(1 AS varchar(9)), 2)",
    "ROUND(1, 2)",
    "SIGN(1)",
    "SUBSTRING(1, LEN(2), 3)",
    "TRIM(1)",
    "UPPER(1)",
    "(1 IS NOT NULL OR 2 IN (1, 3))",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_short_way_gives_what_sqlite_gives(
        texts in prop::collection::vec(prop_oneof![expressions(), of_all_functions()], 8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let session = with_variables(session(&dir));
        for fragment in texts.iter().filter_map(|text| fragment(text)) {
            compare_ways(&session, QuerySource::Expression(&fragment))?;
            compare_ways(&session, QuerySource::Condition(&fragment))?;
        }
    }

    #[test]
    fn the_short_way_reads_no_row_of_tokens_otherwise_than_the_parser(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(LITERALS),
                prop::sample::select(direct::FUNCTIONS),
                prop::sample::select(&[
                    "(", "(", ")", ")", ",", ".", "+", "-", "=", "<>", "*", "%", "&", "AND", "OR", "AS", "CAST", "IN",
                    "LIKE", "ESCAPE", "CASE", "WHEN", "THEN", "ELSE", "END", "IS", "NOT", "NULL", "int", "varchar",
                    "max", "DATE", "TIMESTAMP", "INTERVAL", "DAY", "N", "x", "[x]", "CONVERT", "COLLATE", "BETWEEN",
                    "AT", "TIME", "ZONE", "EXISTS", "OVER", "~", "::", "ANY", "TRIM", "SUBSTRING", "FLOOR", "FROM",
                    "DATEADD", "year", "SELECT", "WITH", "FILTER", "WITHIN",
                ][..]),
            ],
            1..9,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let session = with_variables(session(&dir));
        if let Some(fragment) = fragment(&words.join(" ")) {
            compare_ways(&session, QuerySource::Expression(&fragment))?;
            compare_ways(&session, QuerySource::Condition(&fragment))?;
        }
    }
}

#[test]
fn depths_and_lengths_are_left_to_the_parser() {
    // The parser of such a build takes more than a test's stack.
    let deep = std::thread::Builder::new().stack_size(256 << 20);
    deep.spawn(all_depths).unwrap().join().unwrap();
}

fn all_depths() {
    let dir = tempfile::tempdir().unwrap();
    let session = with_variables(session(&dir));
    let nested = [
        ("(", ")"),
        ("-", ""),
        ("NOT ", ""),
        ("LEN(", ")"),
        ("CASE WHEN ", " THEN 1 END"),
        ("CAST(", " AS int)"),
        ("1 IN (", ")"),
        ("1 + 2 * (", ")"),
        ("1 = 1 OR 2 = 3 AND 4 & 5 | 6 ^ 7 + 8 * (", ")"),
        ("SUBSTRING('a', 1, ", ")"),
        ("TRIM(", ")"),
        ("DATEADD(day, 1, ", ")"),
        ("CONVERT(int, ", ")"),
    ];
    for (before, after) in nested {
        for depth in 1..60 {
            let text = before.repeat(depth) + "1" + &after.repeat(depth);
            let Some(fragment) = fragment(&text) else {
                continue;
            };
            let asked = QuerySource::Expression(&fragment);
            let read = compare_ways(&session, asked);
            assert!(read.is_ok(), "{text}: {read:?}");
            if depth > 30 {
                assert_eq!(direct::read(&fragment.text), None, "{text}");
            }
        }
    }
    let long = fragment(&("1".to_owned() + &" + 1".repeat(500))).unwrap();
    assert_eq!(direct::read(&long.text), None);
}

#[test]
fn usual_expressions_need_no_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let session = with_variables(session(&dir));
    for text in [
        "'x' + CAST ( 123 AS varchar ( 10 ) )",
        "'set 1 of ' + @t + ': ' + CONVERT(varchar(20), @i, 120)",
        "-1.5 * @i",
        "CASE WHEN @t LIKE 'a%' THEN N'é' ELSE 'e' END",
        "CASE @i WHEN 1 THEN 'one' WHEN 7 THEN 'seven' END",
        "DATEADD(day, -7, '2027-01-31')",
        "CONVERT(varchar(8), GETDATE(), 112)",
        "CHARINDEX('n', @t, 2) + LEN('abc')",
        "REPLACE(CONVERT(nvarchar(19), '2027-01-31', 126), ':', '')",
        "N'/backup/' + QUOTENAME(@t) + '_' + RIGHT('00' + CAST(@i AS varchar(2)), 2) + '.bak'",
        "ISNULL(@m, 0) + 1.50",
        "@i % 2",
        "@@ERROR",
        "ERROR_MESSAGE()",
        "SUBSTRING(@t, 1, 2) + UPPER(LTRIM(@n))",
    ] {
        let fragment = fragment(text).unwrap();
        let asked = QuerySource::Expression(&fragment);
        assert!(compare_ways(&session, asked).unwrap(), "{text}");
    }
    // SQLite refuses such a number, though nothing needs it.
    let large = fragment("SERVERPROPERTY(9223372036854775808)").unwrap();
    let large = QuerySource::Expression(&large);
    assert_eq!(direct::value(&session.query_context(), large), None);
    for text in [
        "@i BETWEEN 1 AND 5",
        "@t IN ('a', 'b')",
        "@t NOT LIKE 'n%' AND @i > 5",
        "@i IS NULL OR NOT @i = 7",
        "@@ERROR <> 0",
        "DATEDIFF(hour, '2027-01-31', '2027-02-01') >= 24",
    ] {
        let fragment = fragment(text).unwrap();
        let asked = QuerySource::Condition(&fragment);
        assert!(compare_ways(&session, asked).unwrap(), "{text}");
    }
}

#[test]
fn usual_expressions_are_read_by_their_form() {
    let dir = tempfile::tempdir().unwrap();
    let session = with_variables(session(&dir));
    for text in [
        "'x' + CAST ( 123 AS varchar ( 10 ) )",
        "'set 1 of ' + @t + ': ' + CONVERT(varchar(20), @i, 120)",
        "-1.5 * @i",
        "CASE WHEN @t LIKE 'a!%%' ESCAPE '!' THEN N'é' ELSE 'e' END",
        "DATEADD(day, -7, '2027-01-31')",
        "@i BETWEEN 1 AND 5",
        "@t IN ('a', 'b')",
        "CHARINDEX('n', @t, 2) + LEN('abc')",
    ] {
        let fragment = fragment(text).unwrap();
        let ours = match text.contains("BETWEEN") || text.contains(" IN ") {
            true => compare(&session, QuerySource::Condition(&fragment)),
            false => compare(&session, QuerySource::Expression(&fragment)),
        };
        assert!(ours.unwrap(), "{text}");
    }
}

#[test]
fn a_mistake_is_shown_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let session = with_variables(session(&dir));
    let wrong = fragment("DATEADD('day', 1, 2)").unwrap();
    let said = super::scalar(&session.query_context(), &wrong).unwrap_err();
    assert!(said.text.contains("'day'"), "{}", said.text);
}

// Subqueries that name the row outside.

const NAMES: &[Option<&str>] = &[
    Some("shop"),
    Some("SHOP "),
    Some("Shop"),
    Some("main"),
    Some("Ünit"),
    Some("ünit"),
    Some(""),
    None,
];

/// Sets as they would have been made: database, type, finish, size.
type Set = (Option<String>, &'static str, Option<u32>, Option<i64>);

fn fill(dir: &tempfile::TempDir, sets: impl Iterator<Item = Set>) {
    let path = dir.path().join("catalog.db");
    drop(Catalog::open(&path).unwrap());
    let mut db = rusqlite::Connection::open(&path).unwrap();
    let tx = db.transaction().unwrap();
    let media =
        "INSERT INTO backupmediaset (media_set_id, media_uuid) VALUES (?1, hex(randomblob(16)))";
    let set = "INSERT INTO backupset (backup_set_uuid, media_set_id, database_name, type, backup_finish_date, \
               backup_size, position) VALUES (hex(randomblob(16)), ?1, ?2, ?3, ?4, ?5, ?1)";
    for (i, (name, kind, finish, size)) in sets.enumerate() {
        let (i, finish) = (i as i64 + 1, finish.map(moment));
        tx.execute(media, [i]).unwrap();
        tx.execute(set, (i, name, kind, finish, size)).unwrap();
    }
    tx.commit().unwrap();
}

/// As the catalog writes it.
fn moment(second: u32) -> String {
    let (day, second) = (second / 86_400, second % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "2026-01-{:02}T{hour:02}:{minute:02}:{second:02}.000",
        day + 1
    )
}

/// The rows of a query and what they took, and whether its subqueries were grouped.
fn ask(session: &Session, text: &str) -> (Vec<Vec<Value>>, i32, bool) {
    let text = text.to_owned();
    let plan = by_text(session, QuerySource::Query(&Fragment::new(text))).unwrap();
    let sqlite = session.query_context().sqlite(&plan).unwrap();
    let mut rows = Vec::new();
    let ran = sqlite.run(&plan, &mut |row| {
        rows.push(row);
        Ok(())
    });
    ran.map_err(|stop| stop.message()).unwrap();
    let is_grouped = plan.sql.contains("MATERIALIZED");
    (rows, sqlite.instructions(&plan), is_grouped)
}

/// Where a `#` stands, a condition of `c` may be added, and of `d` where a `~` stands.
const CORRELATED: &[&str] = &[
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE b.backup_finish_date = (SELECT MAX(c.backup_finish_date) \
     FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name AND c.type = 'D' #) ORDER BY 1",
    "SELECT b.backup_set_id, (SELECT COUNT(*) FROM msdb.dbo.backupset AS c WHERE (b.database_name = c.database_name AND \
     c.type = b.type) #) FROM msdb.dbo.backupset AS b ORDER BY 1",
    "SELECT b.backup_set_id, (SELECT SUM(c.backup_size) FROM msdb.dbo.backupset c WHERE c.database_name = \
     b.database_name COLLATE Latin1_General_BIN2 #), (SELECT MIN(c.backup_size) FROM msdb.dbo.backupset c WHERE \
     c.type = b.type #) FROM msdb.dbo.backupset b ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE b.type = 'D' AND NOT EXISTS (SELECT * FROM \
     msdb.dbo.backupset c WHERE c.database_name = b.database_name AND c.type = 'D' AND c.backup_finish_date > \
     b.backup_finish_date #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     b.database_name = c.database_name AND b.backup_size > c.backup_size #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE NOT EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     c.database_name = b.database_name AND c.type = 'L' AND b.type = 'D' #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     c.database_name = b.database_name AND c.database_name >= b.type #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE b.backup_finish_date NOT IN (SELECT \
     MAX(c.backup_finish_date) FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name #) ORDER BY 1",
    "SELECT b.backup_set_id, (SELECT TOP 1 c.backup_set_id FROM msdb.dbo.backupset c WHERE c.database_name = \
     b.database_name #  ORDER BY c.backup_finish_date DESC, c.backup_set_id) FROM msdb.dbo.backupset b ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE b.backup_set_id NOT IN (SELECT TOP (1) c.backup_set_id \
     FROM msdb.dbo.backupset c WHERE c.type = b.type AND c.database_name = b.database_name # ORDER BY backup_set_id \
     DESC) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE b.backup_set_id = (SELECT MAX(c.backup_set_id) FROM \
     msdb.dbo.backupset c WHERE c.database_name = b.database_name AND EXISTS (SELECT 1 FROM msdb.dbo.backupset d \
     WHERE d.database_name = c.database_name AND d.backup_set_id < c.backup_set_id ~) #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     c.database_name = b.database_name AND c.type <> b.type #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE NOT EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     b.database_name <> c.database_name AND c.type = 'L' #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     c.backup_size > b.backup_size #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     (c.database_name = b.database_name OR c.database_name IS NULL AND b.database_name IS NULL) AND \
     c.backup_finish_date > b.backup_finish_date #) ORDER BY 1",
    "SELECT b.backup_set_id FROM msdb.dbo.backupset b WHERE NOT EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE \
     ((c.database_name = b.database_name AND c.type <> b.type) OR c.type = 'I' OR b.backup_size < c.backup_size) AND \
     c.database_name LIKE 's%' #) ORDER BY 1",
    "WITH w AS (SELECT * FROM msdb.dbo.backupset WHERE type <> 'I') SELECT b.backup_set_id FROM w AS b WHERE \
     b.backup_set_id = (SELECT MAX(c.backup_set_id) FROM w AS c JOIN msdb.dbo.backupmediaset m ON m.media_set_id = \
     c.media_set_id WHERE c.database_name = b.database_name #) ORDER BY 1",
];

/// No function of ours is grouped.
fn ungrouped(query: &str) -> String {
    let query = query.replace('#', "AND LEN(c.type) > 0");
    query.replace('~', "AND LEN(d.type) > 0")
}

fn grouped(query: &str) -> String {
    query.replace(['#', '~'], "")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn grouped_subqueries_give_the_same_rows(
        sets in prop::collection::vec(
            (
                prop::sample::select(NAMES).prop_map(|n| n.map(str::to_owned)),
                prop::sample::select(&["D", "I", "L", "d"][..]),
                prop::option::weighted(0.9, 0_u32..12),
                prop::option::weighted(0.9, 0_i64..5),
            ),
            0..25,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir, sets.into_iter());
        let session = session(&dir);
        for query in CORRELATED {
            let (rows, _, is_grouped) = ask(&session, &grouped(query));
            prop_assert!(is_grouped, "{query}");
            let (wanted, _, is_grouped) = ask(&session, &ungrouped(query));
            prop_assert!(!is_grouped, "{query}");
            prop_assert_eq!(rows, wanted, "{}", query);
        }
    }
}

/// Such a subquery makes one row of all, reads a value of the query outside for each of its groups, or does not look at
/// the row outside if no row is left inside.
#[test]
fn aggregates_in_clauses_and_outer_values_that_may_fail_are_not_grouped() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir, std::iter::empty());
    let session = session(&dir);
    for query in [
        "SELECT (SELECT TOP 1 5 FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name ORDER BY \
         MAX(c.position)) FROM msdb.dbo.backupset b",
        "SELECT (SELECT TOP 1 c.backup_set_id FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name ORDER BY \
         ROW_NUMBER() OVER (ORDER BY c.backup_finish_date)) FROM msdb.dbo.backupset b",
        "SELECT (SELECT MAX(c.backup_set_id) FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name AND \
         c.backup_finish_date = MAX(b.backup_finish_date)) FROM msdb.dbo.backupset b GROUP BY b.database_name",
        "SELECT (SELECT MAX(c.backup_set_id) FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name AND \
         MAX(b.position) > 1) FROM msdb.dbo.backupset b GROUP BY b.database_name",
        "SELECT (SELECT COUNT(*) FROM msdb.dbo.backupset c WHERE c.type = 'L' AND c.database_name = b.database_name AND \
         c.position = CAST(b.name AS int)) FROM msdb.dbo.backupset b",
        "SELECT 1 FROM msdb.dbo.backupset b WHERE NOT EXISTS (SELECT 1 FROM msdb.dbo.backupset c WHERE c.type = 'L' AND \
         c.database_name = b.database_name AND c.position = 10 / (b.position - 1))",
    ] {
        let text = query.to_owned();
        let plan = by_text(&session, QuerySource::Query(&Fragment::new(text))).unwrap();
        assert!(!plan.sql.contains("MATERIALIZED"), "{query}");
    }
}

#[test]
fn indexed_and_failing_subqueries_are_not_grouped() {
    let dir = tempfile::tempdir().unwrap();
    let sets = (0..50).map(|i| (Some(format!("db{}", i % 5)), "D", Some(i), None));
    fill(&dir, sets);
    let session = session(&dir);
    for condition in [
        "c.media_set_id = b.media_set_id",
        "c.database_name = b.database_name AND LEN(c.type) > 1",
        "c.database_name <> b.database_name",
        "c.database_name = b.database_name OR c.type = b.type",
        "c.database_name + b.database_name = 'db1db1'",
    ] {
        let (rows, _, is_grouped) = ask(
            &session,
            &format!(
                "SELECT (SELECT COUNT(*) FROM msdb.dbo.backupset c WHERE {condition}) FROM msdb.dbo.backupset b"
            ),
        );
        assert_eq!((rows.len(), is_grouped), (50, false), "{condition}");
    }
}

#[test]
fn no_row_is_looked_at_that_the_subquery_would_not_have_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let kind = |i| if i % 5 == 0 { "1" } else { "D" };
    let sets = (0..50).map(|i| (Some(format!("db{}", i % 5)), kind(i), Some(i), None));
    fill(&dir, sets);
    let session = session(&dir);
    for count in [
        "SELECT COUNT(*) FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name AND CAST(c.type AS int) = 1",
        "SELECT COUNT(*) FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name AND c.type = 1",
        "SELECT SUM(CAST(c.type AS int)) FROM msdb.dbo.backupset c WHERE c.database_name = b.database_name",
    ] {
        let (rows, ..) = ask(
            &session,
            &format!("SELECT ({count}) FROM msdb.dbo.backupset b WHERE b.database_name = 'db0'"),
        );
        // Letters of the other databases are no numbers.
        assert_eq!(rows, vec![vec![Value::Int(10)]; 10], "{count}");
    }
}

/// Goal: a query that reads the table for each row outside ends soon after a cancel (an attention, a signal, a client
/// that left), and keeps nobody from writing to the catalog meanwhile. Steps are counted, so a slow machine changes
/// nothing.
#[test]
fn a_cancel_ends_a_query_after_a_few_thousand_steps_and_writers_never_wait_for_it() {
    const STEPS_MAX: i32 = 2 * crate::query::sqlite::STEPS;
    let dir = tempfile::tempdir().unwrap();
    let sets = 400;
    let all = (0..sets).map(|i| (Some(format!("database {i}")), "D", Some(i), None));
    fill(&dir, all);
    let session = session(&dir);
    for condition in [
        "c.name LIKE b.database_name + '%'",
        "c.database_name + b.database_name = 'x'",
        "c.database_name LIKE '%' + b.database_name + '_'",
    ] {
        let text = format!(
            "SELECT 0 UNION ALL SELECT COUNT(*) FROM msdb.dbo.backupset b WHERE EXISTS (SELECT 1 FROM msdb.dbo.backupset c \
             WHERE {condition})"
        );
        let (rows, whole, is_grouped) = ask(&session, &text);
        assert!(!is_grouped && rows.len() == 2, "{condition}");
        assert!(whole > 20 * STEPS_MAX, "{whole}: {condition}");

        let plan = by_text(&session, QuerySource::Query(&Fragment::new(text))).unwrap();
        let sqlite = session.query_context().sqlite(&plan).unwrap();
        let catalog = dir.path().join("catalog.db");
        let ran = sqlite.run(&plan, &mut |_| {
            // The first row has come, and the rest is still to be found.
            let catalog = Catalog::open(&catalog).unwrap();
            assert!(catalog.add_device(condition, "/b").unwrap());
            session.cancel_flag().store(true, Ordering::Relaxed);
            Ok(())
        });
        let message = ran.map(drop).unwrap_err().message();
        assert_eq!(
            message.number,
            message::ABORTED.plain().number,
            "{condition}"
        );
        let steps = sqlite.instructions(&plan);
        assert!(steps <= STEPS_MAX, "{steps}: {condition}");
        session.cancel_flag().store(false, Ordering::Relaxed);
    }
}

/// Not grouped, the first of these took 20,000 instructions for each of 5,000 sets, and four times as many sets would
/// have taken four times as many for each.
#[test]
fn a_subquery_over_a_long_history_takes_a_few_steps_for_each_set() {
    const STEPS_MAX: i32 = 200;
    for (sets, databases) in [(20_000, 50), (20_000, 20_000)] {
        let dir = tempfile::tempdir().unwrap();
        let all = (0..sets).map(|i| {
            let name = format!("database {}", i % databases);
            (
                Some(name),
                ["D", "L", "L"][i as usize / databases as usize % 3],
                Some(i),
                Some(1),
            )
        });
        fill(&dir, all);
        let session = session(&dir);
        for query in CORRELATED {
            let (_, instructions, _) = ask(&session, &grouped(query));
            let each = instructions / sets as i32;
            println!("{each} for each of {sets} sets of {databases} databases: {query}");
            assert!((1..STEPS_MAX).contains(&each), "{each}: {query}");
        }
    }
}
