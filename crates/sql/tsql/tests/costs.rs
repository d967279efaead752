//! Goal: an expression costs the same wherever it stands in a batch, whether its text or its literals repeat or not.
//! Method: allocations are counted. They are the same on every machine, and whatever reads an expression again, keeps
//! its tree or asks SQLite makes many. The example `expression_speed` measures times (docs/scale.md).

mod common;
#[path = "sinks/suite.rs"]
mod sink_suite;

use common::Stage;
use longshore_kit::alloc::{self, Counting};
use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Session, Sink, Value};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Statements of a short batch.
const FEW: usize = 500;

/// Messages that came, and the text of the first error among them.
#[derive(Default)]
struct Count(usize, Option<String>);

impl Sink for Count {
    fn columns(&mut self, _: &[Column]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn row(&mut self, _: &[Value]) -> Result<(), ReceiverGone> {
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.0 += 1;
        if message.number != 0 {
            self.1.get_or_insert_with(|| message.text.clone());
        }
        Ok(())
    }

    fn done(&mut self, _: DoneEvent) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

/// Allocations of a batch of so many statements.
fn allocations(session: &mut Session, statement: &dyn Fn(usize) -> String, times: usize) -> usize {
    let statements: Vec<String> = (0..times).map(statement).collect();
    let declared = "DECLARE @i int = 7, @t varchar(9) = 'nine', @d datetime = '1900-01-01'";
    let batch = format!("{declared}\n{}", statements.join("\n"));
    let before = alloc::calls();
    let mut count = Count::default();
    session.run(&batch, &mut count).unwrap();
    assert_eq!(count.1, None);
    alloc::calls() - before
}

/// Allocations for each statement of a batch. The costs of a batch itself are not counted, nor is anything that is made
/// once.
fn each(session: &mut Session, statement: &dyn Fn(usize) -> String) -> f64 {
    allocations(session, statement, 9);
    let few = allocations(session, statement, FEW);
    let many = allocations(session, statement, 4 * FEW);
    (many - few) as f64 / (3 * FEW) as f64
}

#[test]
fn a_sink_that_counts_keeps_the_contract_of_all_sinks() {
    let mut count = Count::default();
    let taken = sink_suite::keeps_its_contract(&mut count);
    assert_eq!((taken, count.0), (2 * sink_suite::legal().len(), 12));
}

#[test]
fn a_statement_takes_few_allocations_and_as_many_in_a_long_batch_as_in_a_short_one() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, most) in [
        ("PRINT 'xxxxxxxxxxx'", 9.0),
        ("SET @i = @i + 1", 17.0),
        ("SET @d = DATEADD(day, 1, @d)", 44.0),
        ("IF @i < 0 PRINT 'less'", 19.0),
        ("PRINT 'a' + CAST(@i + 1 AS varchar(9))", 37.0),
        (
            "PRINT 'set 1 of ' + lower(@t) + ': ' + convert(varchar(20), @i)",
            65.0,
        ),
    ] {
        let repeated = |_: usize| statement.to_owned();
        let each = each(&mut session, &repeated);
        println!("{statement}: {each:.1} allocations");
        // Lists and maps that grow with the batch add a few, not always as many.
        assert!(each < most + 0.05, "{statement}: {each}");
        let four = allocations(&mut session, &repeated, 4 * FEW);
        let sixteen = allocations(&mut session, &repeated, 16 * FEW);
        let later = (sixteen - four) as f64 / (12 * FEW) as f64;
        assert!(
            (later / each - 1.0).abs() < 0.02,
            "{statement}: {each} and {later}"
        );
    }
    // As many statements as a request may have.
    let mut count = Count::default();
    let batch = "PRINT 'xxxxxxxxxxx';\n".repeat(190_000);
    session.run(&batch, &mut count).unwrap();
    assert_eq!(count.0, 190_000);
    // In a loop, too.
    let looped = |times: usize| format!("SET @i = 0; WHILE @i < {times} SET @i = @i + 1");
    let mut of = |times: usize| allocations(&mut session, &|_| looped(times), 1);
    of(9);
    let each = (of(4 * FEW) - of(FEW)) as f64 / (3 * FEW) as f64;
    println!("in a loop: {each:.1} allocations");
    assert!(each <= 40.0, "{each}");
}

/// SQLite is asked for what is unusual, and costs more: if it were asked for the others, these tests would fail.
#[test]
fn a_statement_that_needs_sqlite_takes_more_allocations() {
    let stage = Stage::new();
    let mut session = stage.session();
    let asked = each(&mut session, &|_| "SET @i = (SELECT @i + 1)".to_owned());
    let usual = each(&mut session, &|_| "SET @i = @i + 1".to_owned());
    println!("{asked:.1} with SQLite, {usual:.1} without");
    assert!(asked > 2.0 * usual, "{asked} and {usual}");
}

#[test]
fn other_literals_take_no_more_allocations_than_the_same_text() {
    let stage = Stage::new();
    let mut session = stage.session();
    for statement in [
        "SET @i = # + @i * 0;",
        "IF @i = # PRINT 'so';",
        "DECLARE @d% int = 1 + #;",
        "PRINT 'x#' + CAST(# AS varchar(10));",
        "WHILE @i > 5# SET @i = 0;",
    ] {
        // Names of variables are no literals.
        let named = |i: usize| statement.replace('%', &i.to_string());
        let same = each(&mut session, &|i| named(i).replace('#', "1"));
        let other = each(&mut session, &|i| named(i).replace('#', &i.to_string()));
        println!("{statement} {same:.1}, with other literals {other:.1}");
        assert!(other < 1.1 * same + 1.0, "{statement}: {same} and {other}");
    }
}

/// Nothing is kept of usual expressions: when each was read twice by the parser of queries and prepared, a text of its
/// own took several times as much as one that came again.
#[test]
fn texts_that_do_not_repeat_take_no_more_allocations_than_the_same_text() {
    let stage = Stage::new();
    let mut session = stage.session();
    for statement in [
        "SET @i = abs(@i) + len(isnull(@t, 'abc'));",
        "PRINT 'a' + cast(@i + 1 as varchar(9)) + upper(@t);",
        "IF @i < 0 or isnull(@t, upper(lower(@t))) = '' SET @i = 0;",
        "IF case when @t like 'x%' then len(@t) end in (1, 2) SET @i = 0;",
    ] {
        let same = each(&mut session, &|_| statement.to_owned());
        let other = each(&mut session, &|i| in_other_capitals(statement, i));
        println!("{statement} {same:.1}, in texts of their own {other:.1}");
        // A variable's name with a capital is made one without.
        assert!(other < 1.2 * same, "{statement}: {same} and {other}");
    }
}

/// The same statement in a text of its own: the bits of the number make letters capitals.
fn in_other_capitals(text: &str, number: usize) -> String {
    let (mut rest, mut is_quoted) = (number, false);
    let one = |c: char| {
        is_quoted ^= c == '\'';
        if is_quoted || !c.is_ascii_lowercase() {
            return c;
        }
        let is_capital = rest & 1 == 1;
        rest >>= 1;
        match is_capital {
            true => c.to_ascii_uppercase(),
            false => c,
        }
    };
    text.chars().map(one).collect()
}
