//! Goal: no batch makes the server panic, keep the machine busy after it was cancelled, or take memory without a bound.
//! Method: batches are made at random by the language's own grammar, over tables, variables, functions and cursors that
//! exist, some of them with words exchanged or lost; each runs in a session, and is cancelled after a while. The answers
//! are not looked at. `LONGSHORE_SQL_ROUNDS` and `LONGSHORE_SEED` ask for more.
//! Not covered: the answers' correctness, and statements that read or write media.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Stage;
use longshore_kit::random::{Random, from_env};
use longshore_tsql::{Recorder, Session};

/// A batch runs for so long before it is cancelled.
const PATIENCE: Duration = Duration::from_millis(400);
/// A cancelled batch ends within this time. The machine may be busy with other tests: a third of a second is what a user
/// is promised, and the rest is theirs.
const ENDS_WITHIN: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(2700);
/// The most memory that all batches together may keep.
const MEMORY_MAX: u64 = 1 << 30;

const TYPES: &[&str] = &[
    "bit",
    "tinyint",
    "int",
    "bigint",
    "decimal(9,2)",
    "numeric(38,10)",
    "money",
    "float",
    "date",
    "time(3)",
    "datetime",
    "smalldatetime",
    "datetime2(0)",
    "datetimeoffset(7)",
    "char(3)",
    "varchar(5)",
    "nvarchar(20)",
    "varchar(max)",
    "varbinary(8)",
    "uniqueidentifier",
    "sql_variant",
    "xml",
    "sysname",
];

const LITERALS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "1.5",
    "-0.001",
    "1e308",
    "1e-308",
    "$12.34",
    "0x",
    "0xFF00",
    "NULL",
    "''",
    "'a'",
    "N'é'",
    "'2027-01-31'",
    "'2027-02-31 25:00'",
    "'10:11:12.1234567'",
    "'abc%[_]'",
    "'$.a[0]'",
    "'{\"a\":[1,{\"b\":null}]}'",
    "'<a k=\"1\"><b>x</b></a>'",
    "'/a/b[@k=\"1\"]'",
    "'-05:00'",
    "'UTC'",
    "'SHA2_256'",
    "'%s %d'",
    "'9999-12-31'",
    "'0001-01-01'",
    "' '",
    "'x' + 'y'",
    "99999999999999999999999999999999999999",
    "@n",
    "@s",
    "@d",
    "@f",
    "@@ROWCOUNT",
    "@@ERROR",
    "@nowhere",
];

/// Functions with the numbers of their arguments.
const FUNCTIONS: &[(&str, u64, u64)] = &[
    ("ABS", 1, 1),
    ("ASCII", 1, 1),
    ("CEILING", 1, 1),
    ("CHAR", 1, 1),
    ("CHARINDEX", 2, 3),
    ("CHOOSE", 2, 4),
    ("COALESCE", 2, 4),
    ("CONCAT", 2, 5),
    ("CONCAT_WS", 3, 5),
    ("DATALENGTH", 1, 1),
    ("DATEFROMPARTS", 3, 3),
    ("DATETIMEFROMPARTS", 7, 7),
    ("DATETIME2FROMPARTS", 8, 8),
    ("DATETIMEOFFSETFROMPARTS", 10, 10),
    ("DEGREES", 1, 1),
    ("DIFFERENCE", 2, 2),
    ("EOMONTH", 1, 2),
    ("EXP", 1, 1),
    ("FLOOR", 1, 1),
    ("FORMAT", 2, 2),
    ("FORMATMESSAGE", 1, 4),
    ("GREATEST", 1, 4),
    ("HASHBYTES", 2, 2),
    ("IIF", 3, 3),
    ("ISDATE", 1, 1),
    ("ISJSON", 1, 1),
    ("ISNULL", 2, 2),
    ("ISNUMERIC", 1, 1),
    ("JSON_MODIFY", 3, 3),
    ("JSON_QUERY", 1, 2),
    ("JSON_VALUE", 2, 2),
    ("LEAST", 1, 4),
    ("LEFT", 2, 2),
    ("LEN", 1, 1),
    ("LOG", 1, 2),
    ("LOWER", 1, 1),
    ("LTRIM", 1, 2),
    ("NCHAR", 1, 1),
    ("NULLIF", 2, 2),
    ("PARSENAME", 2, 2),
    ("PATINDEX", 2, 2),
    ("POWER", 2, 2),
    ("QUOTENAME", 1, 2),
    ("REPLACE", 3, 3),
    ("REPLICATE", 2, 2),
    ("REVERSE", 1, 1),
    ("RIGHT", 2, 2),
    ("ROUND", 2, 3),
    ("RTRIM", 1, 1),
    ("SIGN", 1, 1),
    ("SMALLDATETIMEFROMPARTS", 5, 5),
    ("SOUNDEX", 1, 1),
    ("SPACE", 1, 1),
    ("SQRT", 1, 1),
    ("SQUARE", 1, 1),
    ("STR", 1, 3),
    ("STRING_ESCAPE", 2, 2),
    ("STUFF", 4, 4),
    ("SUBSTRING", 3, 3),
    ("SWITCHOFFSET", 2, 2),
    ("TIMEFROMPARTS", 5, 5),
    ("TODATETIMEOFFSET", 2, 2),
    ("TRANSLATE", 3, 3),
    ("TRIM", 1, 2),
    ("UNICODE", 1, 1),
    ("UPPER", 1, 1),
    ("YEAR", 1, 1),
    ("DB_ID", 0, 1),
    ("DB_NAME", 0, 1),
    ("GETDATE", 0, 0),
    ("NEWID", 0, 0),
    ("ERROR_MESSAGE", 0, 0),
    ("OBJECT_ID", 1, 2),
    ("SERVERPROPERTY", 1, 1),
    ("NOT_THERE", 1, 2),
];

const PARTS: &[&str] = &[
    "year", "qq", "month", "dy", "day", "week", "iso_week", "hour", "mi", "s", "ms", "mcs", "ns",
    "tz",
];
const COLUMNS: &[&str] = &[
    "id", "name", "amount", "at", "doubled", "nowhere", "t.id", "u.name",
];
const AGGREGATES: &[&str] = &[
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "STDEV",
    "VAR",
    "STRING_AGG",
    "COUNT_BIG",
];
const RANKS: &[&str] = &[
    "ROW_NUMBER()",
    "RANK()",
    "DENSE_RANK()",
    "NTILE(2)",
    "PERCENT_RANK()",
    "CUME_DIST()",
    "LAG(id)",
    "SUM(id)",
];

/// Makes texts of the grammar. `budget` bounds their depth.
struct Maker {
    random: Random,
    budget: u32,
}

impl Maker {
    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.random.below(all.len())]
    }

    fn some(
        &mut self,
        most: u64,
        mut one: impl FnMut(&mut Self) -> String,
        between: &str,
    ) -> String {
        let count = 1 + self.random.below(most);
        let all: Vec<_> = (0..count).map(|_| one(self)).collect();
        all.join(between)
    }

    fn expression(&mut self) -> String {
        if self.budget == 0 || self.random.one_in(3) {
            return match self.random.one_in(3) {
                true => self.pick(COLUMNS).to_owned(),
                false => self.pick(LITERALS).to_owned(),
            };
        }
        self.budget -= 1;
        match self.random.below(16_u64) {
            0..=3 => {
                let (left, right) = (self.expression(), self.expression());
                let op = self.pick(&["+", "-", "*", "/", "%", "&", "|", "^"]);
                format!("({left} {op} {right})")
            }
            4..=7 => {
                let (name, least, most) = FUNCTIONS[self.random.below(FUNCTIONS.len())];
                let count = least + self.random.below(most - least + 1);
                let all: Vec<_> = (0..count).map(|_| self.expression()).collect();
                format!("{name}({})", all.join(", "))
            }
            8 => format!("CAST({} AS {})", self.expression(), self.pick(TYPES)),
            9 => {
                let style = self.random.below(131_u64);
                format!(
                    "TRY_CONVERT({}, {}, {style})",
                    self.pick(TYPES),
                    self.expression()
                )
            }
            10 => format!(
                "CASE WHEN {} THEN {} ELSE {} END",
                self.condition(),
                self.expression(),
                self.expression()
            ),
            11 => format!("({})", self.query(true)),
            12 => format!(
                "DATEADD({}, {}, {})",
                self.pick(PARTS),
                self.expression(),
                self.expression()
            ),
            13 => {
                let name = self.pick(&["DATEDIFF", "DATEDIFF_BIG"]);
                format!(
                    "{name}({}, {}, {})",
                    self.pick(PARTS),
                    self.expression(),
                    self.expression()
                )
            }
            14 => format!("{} AT TIME ZONE {}", self.expression(), self.expression()),
            _ => format!("{} COLLATE Latin1_General_BIN", self.expression()),
        }
    }

    fn condition(&mut self) -> String {
        if self.budget == 0 {
            return "1 = 1".to_owned();
        }
        self.budget -= 1;
        match self.random.below(10_u64) {
            0..=2 => {
                let op = self.pick(&["=", "<>", "<", ">=", "!>"]);
                format!("{} {op} {}", self.expression(), self.expression())
            }
            3 => format!("{} LIKE {}", self.expression(), self.expression()),
            4 => format!(
                "{} IN ({})",
                self.expression(),
                self.some(3, Self::expression, ", ")
            ),
            5 => format!("EXISTS ({})", self.query(false)),
            6 => format!("{} IS NOT NULL", self.expression()),
            7 => format!("NOT ({}) OR {}", self.condition(), self.condition()),
            8 => format!(
                "{} IS NOT DISTINCT FROM {}",
                self.expression(),
                self.expression()
            ),
            _ => format!(
                "{} BETWEEN {} AND {}",
                self.expression(),
                self.expression(),
                self.expression()
            ),
        }
    }

    fn table(&mut self) -> String {
        match self.random.below(11_u64) {
            0..=2 => "#t AS t".to_owned(),
            3 => "@v AS t".to_owned(),
            4 => "sys.databases AS t".to_owned(),
            5 => "msdb.dbo.backupset AS t".to_owned(),
            6 => format!(
                "(VALUES ({}), ({})) AS t(id)",
                self.expression(),
                self.expression()
            ),
            7 => format!("OPENJSON({}) AS t", self.expression()),
            8 => format!("STRING_SPLIT({}, ',') AS t", self.expression()),
            9 => format!(
                "GENERATE_SERIES({}, {}) AS t(id)",
                self.expression(),
                self.expression()
            ),
            _ => "#t AS t CROSS JOIN #t AS u".to_owned(),
        }
    }

    fn item(&mut self) -> String {
        match self.random.below(6_u64) {
            0 => {
                let name = self.pick(AGGREGATES);
                match name {
                    "STRING_AGG" => format!("STRING_AGG({}, ',')", self.expression()),
                    name => format!("{name}({})", self.expression()),
                }
            }
            1 => format!("{} OVER (ORDER BY {})", self.pick(RANKS), self.expression()),
            2 => "*".to_owned(),
            _ => self.expression(),
        }
    }

    fn query(&mut self, single: bool) -> String {
        let most = if single { 1 } else { 3 };
        let top = self.pick(&[
            "",
            "",
            "TOP (2) ",
            "TOP 50 PERCENT ",
            "DISTINCT ",
            "TOP (1) WITH TIES ",
        ]);
        let items = self.some(most, Self::item, ", ");
        let mut text = format!("SELECT {top}{items} FROM {}", self.table());
        if self.random.one_in(2) {
            text += &format!(" WHERE {}", self.condition());
        }
        match self.random.below(8_u64) {
            0 => text += &format!(" GROUP BY {}", self.pick(COLUMNS)),
            1 => text += " GROUP BY GROUPING SETS ((id), (name, id), ())",
            2 => text += " GROUP BY CUBE (id, name) HAVING COUNT(*) > 0",
            _ => {}
        }
        match self.random.below(8_u64) {
            0 => text += &format!(" UNION ALL SELECT {}", self.expression()),
            1 => text += &format!(" ORDER BY {} DESC", self.pick(COLUMNS)),
            2 => {
                text += &format!(
                    " ORDER BY 1 OFFSET {} ROWS FETCH NEXT {} ROWS ONLY",
                    self.expression(),
                    self.expression()
                )
            }
            3 => {
                text += self.pick(&[
                    " FOR XML PATH('r'), ROOT('a')",
                    " FOR JSON PATH",
                    " FOR XML RAW",
                ])
            }
            _ => {}
        }
        text
    }

    fn statement(&mut self) -> String {
        self.budget = 12;
        match self.random.below(24_u64) {
            0..=3 => self.query(false),
            4 => format!(
                "SET @{} = {}",
                self.pick(&["n", "s", "d", "f"]),
                self.expression()
            ),
            5 => format!(
                "SELECT @n = @n + 1, @s += {} FROM {}",
                self.expression(),
                self.table()
            ),
            6 => format!(
                "IF {} {} ELSE {}",
                self.condition(),
                self.simple(),
                self.simple()
            ),
            7 => format!(
                "WHILE {} BEGIN {}; IF @n > 50 BREAK; SET @n += 1 END",
                self.condition(),
                self.simple()
            ),
            8 => format!(
                "BEGIN TRY {}; {} END TRY BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH",
                self.simple(),
                self.simple()
            ),
            9 => format!(
                "INSERT #t (id, name, amount) VALUES ({}, {}, {})",
                self.expression(),
                self.expression(),
                self.expression()
            ),
            10 => format!("INSERT #t (id, name) {}", self.query(false)),
            11 => format!(
                "UPDATE t SET amount = {} FROM #t AS t WHERE {}",
                self.expression(),
                self.condition()
            ),
            12 => format!("DELETE TOP (3) FROM #t WHERE {}", self.condition()),
            13 => format!(
                "MERGE {} #t AS t USING ({}) AS s ON t.id = {} WHEN MATCHED THEN UPDATE SET name = {} \
                 WHEN NOT MATCHED THEN INSERT (id) VALUES ({}) OUTPUT $action, s.*, inserted.id;",
                self.pick(&["", "TOP (2)", "TOP (50) PERCENT", "TOP (@n)"]),
                self.query(false),
                self.expression(),
                self.expression(),
                self.expression()
            ),
            14 => format!("EXEC ('PRINT 1; {}')", self.simple().replace('\'', "''")),
            15 => format!(
                "EXEC sp_executesql N'SELECT @a', N'@a nvarchar(20)', @a = {}",
                self.pick(LITERALS)
            ),
            16 => format!(
                "DECLARE c CURSOR LOCAL FOR {}; OPEN c; FETCH NEXT FROM c; CLOSE c; DEALLOCATE c",
                self.query(false)
            ),
            17 => format!(
                "RAISERROR({}, {}, 1, {}, {})",
                self.pick(LITERALS),
                self.random.below(19_u64),
                self.pick(LITERALS),
                self.pick(LITERALS)
            ),
            18 => self
                .pick(&[
                    "BEGIN TRAN",
                    "COMMIT",
                    "ROLLBACK",
                    "SET XACT_ABORT ON",
                    "SET NOCOUNT OFF",
                    "RETURN",
                    "again: SET @n += 1; IF @n < 9 GOTO again",
                    "DBCC CHECKDB (shop) WITH PHYSICAL_ONLY",
                    "SELECT 'a b' = SUM(id) OVER w FROM #t WINDOW w AS (PARTITION BY name)",
                    "SELECT @s += CAST(ROW_NUMBER() OVER (ORDER BY id) AS varchar(9)) FROM #t",
                    "SELECT id AS [@a], id AS [@a], name FROM #t FOR XML PATH('r')",
                ])
                .to_owned(),
            19 => format!("PRINT {}", self.expression()),
            20 => format!("WITH x AS ({}) SELECT * FROM x", self.query(false)),
            21 => format!(
                "SELECT CAST({} AS xml).value({}, 'int')",
                self.expression(),
                self.pick(LITERALS)
            ),
            22 => "WHILE 1 = 1 SET @n = @n + 0".to_owned(),
            _ => format!(
                "CREATE TABLE #u{} (a {} DEFAULT {}, b AS {})",
                self.random.below(3_u64),
                self.pick(TYPES),
                self.expression(),
                self.expression()
            ),
        }
    }

    fn simple(&mut self) -> String {
        match self.random.below(4_u64) {
            0 => format!("PRINT {}", self.expression()),
            1 => format!("SET @s = {}", self.expression()),
            2 => format!("UPDATE #t SET name = {}", self.expression()),
            _ => self.query(false),
        }
    }

    /// Exchanges or leaves out a word of a text, now and then.
    fn mangled(&mut self, text: String) -> String {
        if !self.random.one_in(6) {
            return text;
        }
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let (a, b) = (
            self.random.below(words.len()),
            self.random.below(words.len()),
        );
        match self.random.below(3_u64) {
            0 => words.swap(a, b),
            1 => drop(words.remove(a)),
            _ => words[a] = words[b].clone(),
        }
        words.join(" ")
    }

    fn batch(&mut self) -> String {
        let mut text = String::from(
            "DECLARE @n int = 1, @s nvarchar(max) = N'a', @d datetime = '20270131', @f float = 0.5; DECLARE @v TABLE (id int, name nvarchar(9)); INSERT @v VALUES (1, 'a');\n",
        );
        let count = 1 + self.random.below(4_u64);
        for _ in 0..count {
            let statement = self.statement();
            text += &self.mangled(statement);
            text += ";\n";
        }
        text
    }
}

/// The most memory that this program has had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

/// Cancels a session whose batch runs for too long. `begun`: when it began, in milliseconds after the watch; 0: none runs.
struct Watch {
    since: Instant,
    begun: AtomicU64,
    ends: AtomicBool,
}

impl Watch {
    fn now(&self) -> u64 {
        self.since.elapsed().as_millis() as u64 + 1
    }

    fn keep(&self, cancel: &AtomicBool) {
        while !self.ends.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            let begun = self.begun.load(Ordering::Relaxed);
            if begun > 0 && self.now().saturating_sub(begun) > PATIENCE.as_millis() as u64 {
                cancel.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn prepare(session: &mut Session) {
    let mut heard = Recorder::default();
    let text = "SET NOCOUNT ON; CREATE TABLE #t (id int, name nvarchar(40), amount decimal(9, 2), at datetime, doubled AS id * 2);
        INSERT #t (id, name, amount, at) VALUES (1, 'one', 1.5, '20270131'), (2, NULL, NULL, NULL), (NULL, 'x', -3, '19000101')";
    session.run(text, &mut heard).unwrap();
}

#[test]
fn no_batch_panics_or_outlives_its_cancel() {
    let rounds: u64 = from_env("LONGSHORE_SQL_ROUNDS", 150);
    let seed: u64 = from_env("LONGSHORE_SEED", 20);
    let stage = Stage::new();
    let mut maker = Maker {
        random: Random(seed),
        budget: 0,
    };
    let (mut slowest, mut cancelled) = (Duration::ZERO, 0);
    let mut session = stage.session();
    prepare(&mut session);
    for round in 0..rounds {
        let batch = maker.batch();
        // A session lives for some batches: what one leaves behind meets the next.
        if round % 40 == 39 {
            session = stage.session();
            prepare(&mut session);
        }
        let watch = Arc::new(Watch {
            since: Instant::now(),
            begun: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let cancel = session.cancel_flag();
        let keeper = {
            let (watch, cancel) = (watch.clone(), cancel.clone());
            std::thread::spawn(move || watch.keep(&cancel))
        };
        watch.begun.store(watch.now(), Ordering::Relaxed);
        let began = Instant::now();
        let mut heard = Recorder::default();
        let shown = std::panic::AssertUnwindSafe(|| session.run(&batch, &mut heard));
        let ran = std::panic::catch_unwind(shown);
        let took = began.elapsed();
        watch.ends.store(true, Ordering::Relaxed);
        keeper.join().unwrap();
        assert!(
            ran.is_ok(),
            "round {round} of seed {seed} panicked:\n{batch}"
        );
        cancelled += u64::from(cancel.swap(false, Ordering::Relaxed));
        slowest = slowest.max(took);
        assert!(
            took < PATIENCE + ENDS_WITHIN + SLACK,
            "round {round} of seed {seed} took {took:?}:\n{batch}"
        );
        assert!(
            peak() < MEMORY_MAX,
            "round {round} of seed {seed} took {} bytes:\n{batch}",
            peak()
        );
    }
    println!(
        "{rounds} batches, {cancelled} cancelled, the slowest took {slowest:?}, {} MiB",
        peak() >> 20
    );
}
