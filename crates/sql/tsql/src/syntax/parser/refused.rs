//! Statements that are refused by name when they are reached, and not before: SQL Server runs what stands around them.
//!
//! Invariants
//! - The text is skipped up to the statement's end, so no part of it is taken for a statement of its own.
//! - A text that is kept shows no literal of a statement about a password or a secret.
//!
//! Leaves to others: which statements are refused (`elsewhere.rs`, `server.rs` and others of this directory), and the refusal
//! (`run.rs`).

use super::{Parser, STATEMENTS, is_any};
use crate::message::{Message, NOT_HERE};
use crate::syntax::ast::Statement;
use crate::syntax::lexer::{Token, TokenKind};
use crate::syntax::{may_have_secret, tokens};

/// A place in the text to which the parser can return.
pub(super) struct ParsePoint<'a> {
    at: usize,
    token: Token<'a>,
    next: Token<'a>,
    last: Token<'a>,
    line: u32,
    line_at: usize,
}

/// Objects whose statement takes all of its batch.
const WHOLE: &[&str] = &[
    "DEFAULT",
    "FUNCTION",
    "OR",
    "PROC",
    "PROCEDURE",
    "RULE",
    "SCHEMA",
    "TRIGGER",
    "VIEW",
];

/// Words after which others begin no statement, if the text goes on with any of the words at the end (none: whatever follows).
const CONTINUED: &[(&str, &[&str], &[&str])] = &[
    ("WITH", &["ROLLBACK"], &["AFTER", "IMMEDIATE"]),
    ("WITH", &["GRANT"], &["OPTION"]),
    ("NO", &["REVERT"], &[]),
];

/// The same of statements that begin with these words.
const CONTINUED_OF: &[(&str, &str, &str, &str)] = &[
    ("BULK", "INSERT", "BULK", "INSERT"),
    ("ALTER", "RESOURCE", "GOVERNOR", "RECONFIGURE"),
    ("ALTER", "FULLTEXT", "START", "UPDATE"),
];

/// Actions of a foreign key: they go on with one of these words.
const ACTIONS: &[&str] = &["CASCADE", "NO", "SET"];

/// Pairs of words of ALTER, the first of which begins no statement where the other one follows.
const PAIRS: &[(&str, &str)] = &[
    ("ALTER", "COLUMN"),
    ("DROP", "COLUMN"),
    ("DROP", "CONSTRAINT"),
    ("DROP", "ENCRYPTION"),
    ("DROP", "MEMBER"),
    ("DROP", "PERIOD"),
    ("DROP", "TARGET"),
];

/// The same of ALTER with its second word.
const PAIRS_OF: &[(&str, &str, &str)] = &[
    ("EVENT", "DROP", "EVENT"),
    ("FULLTEXT", "SET", "CHANGE_TRACKING"),
    ("FULLTEXT", "SET", "SEARCH"),
    ("FULLTEXT", "SET", "STOPLIST"),
    ("PARTITION", "MERGE", "RANGE"),
];

/// The beginning of a statement that is skipped, and what was seen of it outside of parentheses.
struct Skipped<'a> {
    first: Token<'a>,
    second: Token<'a>,
    /// The tokens before the current one.
    count: usize,
    /// The queries and calls that belong to it, and the next one, which does not.
    selects: usize,
    sets: usize,
    /// The CASE expressions that are open.
    cases: usize,
    has_cursor: bool,
    has_values: bool,
    /// Whether a GRANT has come to the names of users.
    is_granted: bool,
}

/// The place of a literal that is not shown.
const HIDDEN: &str = "'***'";

impl<'a> Parser<'a> {
    pub(super) fn mark(&self) -> ParsePoint<'a> {
        ParsePoint {
            at: self.lexer.at(),
            token: self.token,
            next: self.next,
            last: self.last,
            line: self.line,
            line_at: self.line_at,
        }
    }

    /// The statement that begins at the mark, which was refused. Errors: the refusal, where the statement's end cannot be told.
    pub(super) fn refused(
        &mut self,
        begun: &ParsePoint<'a>,
        refusal: Message,
        depth: usize,
    ) -> Result<Statement, Message> {
        self.lexer.return_to(begun.at);
        (self.token, self.next, self.last) = (begun.token, begun.next, begun.last);
        (self.line, self.line_at) = (begun.line, begun.line_at);
        // A block's refusal is that of a statement in it whose end cannot be told: to parse what is in it again, once for each
        // block around it, would take time that doubles with each.
        let is_block = self.is_word("BEGIN")
            && !is_any(&self.next, &["CONVERSATION", "DIALOG", "DISTRIBUTED"]);
        // Clauses of MERGE and WITH begin with words of statements.
        if is_block || is_any(&self.token, &["IF", "MERGE", "WHILE", "WITH"]) {
            return Err(refusal);
        }
        let from = self.token.at;
        let rest = NOT_HERE.pattern.trim_start_matches("{}");
        let what = refusal.text.strip_suffix(rest).unwrap_or_default();
        let what = what.to_owned();
        self.skip(refusal, depth == 0)?;
        let text = &self.text[from..self.last.at + self.last.raw.len()];
        let hides = may_have_secret(text) || text.to_ascii_lowercase().contains("secret");
        let mut shown: Vec<String> = Vec::new();
        for token in tokens(text)? {
            let is_literal = token.raw.ends_with(['\'', '"']) || token.raw.starts_with("0x");
            let is_literal = is_literal || token.raw.starts_with("0X");
            shown.push(match hides && is_literal {
                true => HIDDEN.to_owned(),
                false => token.raw,
            });
        }
        while shown.last().is_some_and(|last| last == ";") {
            shown.pop();
        }
        // The word that was refused is the next statement's: there is nothing that this one is about.
        if let [only] = shown.as_slice()
            && !only.eq_ignore_ascii_case(&what)
        {
            return Err(self.syntax());
        }
        let text = shown.join(" ");
        Ok(Statement::Refused { what, text })
    }

    /// Skips a statement. `is_outermost`: no block is around it.
    fn skip(&mut self, refusal: Message, is_outermost: bool) -> Result<(), Message> {
        let mut skipped = Skipped {
            first: self.token,
            second: self.next,
            count: 0,
            selects: 0,
            sets: 0,
            cases: 0,
            has_cursor: false,
            has_values: false,
            is_granted: false,
        };
        let is_defining = is_any(&skipped.first, &["ALTER", "CREATE"]);
        let whole = is_outermost
            && is_defining
            && is_any(&skipped.second, WHOLE)
            && !skipped.is("ALTER", "SCHEMA");
        let mut depth = 0_usize;
        loop {
            match self.token.kind {
                TokenKind::End => break,
                TokenKind::Strange => return Err(refusal),
                TokenKind::Symbol => match self.token.raw {
                    "(" => depth += 1,
                    ")" if depth == 0 => break,
                    ")" => depth -= 1,
                    ";" if depth == 0 && !whole => break,
                    _ => {}
                },
                TokenKind::Word
                    if depth == 0 && skipped.count > 0 && !whole && self.ends(&mut skipped) =>
                {
                    break;
                }
                _ => {}
            }
            self.advance()?;
            skipped.count += 1;
        }
        Ok(())
    }

    /// Whether the current word, which is not the first one, is no part of the statement that is skipped.
    fn ends(&self, skipped: &mut Skipped) -> bool {
        skipped.has_cursor |= self.is_word("CURSOR");
        skipped.has_values |= self.is_word("VALUES");
        skipped.is_granted |= is_any(&self.token, &["FROM", "TO"]);
        skipped.cases += usize::from(self.is_word("CASE"));
        // Outside of CASE they are never a part: what they belong to is around the statement.
        if is_any(&self.token, &["ELSE", "END"]) {
            let is_of_case = skipped.cases > 0;
            skipped.cases -= usize::from(is_of_case && self.is_word("END"));
            return !is_of_case;
        }
        let is_new = is_any(&self.token, STATEMENTS)
            || is_any(
                &self.token,
                &["LINENO", "READTEXT", "SETUSER", "UPDATETEXT", "WRITETEXT"],
            )
            || self.is_label();
        let grants = is_any(&skipped.first, &["DENY", "GRANT", "REVOKE"]);
        let continues = (grants && !skipped.is_granted)
            || self.is_continued(skipped)
            || self.is_pair(skipped)
            || self.selects(skipped)
            || self.sets(skipped);
        is_new && !continues
    }

    /// Whether the word belongs to the one before it.
    fn is_continued(&self, skipped: &Skipped) -> bool {
        let follows = |(before, words, after): &(&str, &[&str], &[&str])| {
            self.last.is_word(before)
                && is_any(&self.token, words)
                && (after.is_empty() || is_any(&self.next, after))
        };
        let follows_of = |(first, second, before, word): &(&str, &str, &str, &str)| {
            skipped.is(first, second) && self.last.is_word(before) && self.is_word(word)
        };
        let of_table = skipped.is("ALTER", "TABLE") || skipped.is("CREATE", "TABLE");
        CONTINUED.iter().any(follows)
            || CONTINUED_OF.iter().any(follows_of)
            || (of_table
                && self.last.is_word("ON")
                && is_any(&self.token, &["DELETE", "UPDATE"])
                && is_any(&self.next, ACTIONS))
            || (of_table
                && is_any(&self.last, &["DELETE", "UPDATE"])
                && self.is_word("SET")
                && is_any(&self.next, &["DEFAULT", "NULL"]))
            || (skipped.declares_cursor() && self.last.is_word("FOR") && self.is_word("UPDATE"))
            || (skipped.first.is_word("DROP") && skipped.count == 2 && self.next.is_word("EXISTS"))
    }

    fn is_pair(&self, skipped: &Skipped) -> bool {
        let is = |one: &str, other: &str| self.is_word(one) && self.next.is_word(other);
        let of_second = |(second, one, other): &(&str, &str, &str)| {
            skipped.second.is_word(second) && is(one, other)
        };
        skipped.first.is_word("ALTER")
            && (PAIRS.iter().any(|(one, other)| is(one, other))
                || PAIRS_OF.iter().any(of_second)
                // A login has no other clause before it.
                || (skipped.second.is_word("LOGIN")
                    && skipped.count == 3
                    && is("DROP", "CREDENTIAL"))
                || (self.is_word("DROP") && self.next.is("(")))
    }

    /// Whether a query, or a call, belongs to a statement: one does to INSERT without VALUES and one to a cursor, and what is
    /// combined with it.
    fn selects(&self, skipped: &mut Skipped) -> bool {
        let takes = match self.token.raw.to_ascii_uppercase().as_str() {
            "EXEC" | "EXECUTE" => skipped.inserts(),
            "SELECT" => skipped.inserts() || skipped.declares_cursor(),
            _ => false,
        };
        skipped.selects += usize::from(takes && !self.is_combined());
        takes && skipped.selects <= 1
    }

    /// Whether SET belongs to a statement: to UPDATE, to ALTER DATABASE after the name, and before parentheses.
    fn sets(&self, skipped: &mut Skipped) -> bool {
        if !self.is_word("SET") {
            return false;
        }
        skipped.sets += 1;
        let of_database = skipped.is("ALTER", "DATABASE")
            && (skipped.count == 3 || is_any(&self.last, &["CONFIGURATION", "SECONDARY"]));
        let of_alter = skipped.first.is_word("ALTER")
            && (self.next.is("(") || self.last.is_word("CONFIGURATION") || of_database);
        let of_update = skipped.first.is_word("UPDATE") && !skipped.second.is_word("STATISTICS");
        skipped.sets <= 1 && (of_update || of_alter)
    }
}

impl Skipped<'_> {
    fn is(&self, first: &str, second: &str) -> bool {
        self.first.is_word(first) && self.second.is_word(second)
    }

    fn inserts(&self) -> bool {
        self.first.is_word("INSERT") && !self.second.is_word("BULK") && !self.has_values
    }

    fn declares_cursor(&self) -> bool {
        is_any(&self.first, &["DECLARE", "SET"]) && self.has_cursor
    }
}

#[cfg(test)]
mod tests {
    use crate::syntax::{Statement, parse};

    /// Statements that are refused, in all forms that go on with a word of a statement, or end with one that others go on from.
    const REFUSED: &[&str] = &[
        "ALTER DATABASE d SET ENCRYPTION ON",
        "ALTER DATABASE d SET AUTO_CLOSE ON",
        "ALTER DATABASE d SET OFFLINE WITH ROLLBACK IMMEDIATE",
        "ALTER DATABASE d COLLATE x",
        "ALTER DATABASE SCOPED CONFIGURATION SET MAXDOP = 4",
        "ALTER DATABASE SCOPED CONFIGURATION FOR SECONDARY SET MAXDOP = 4",
        "ALTER AUTHORIZATION ON DATABASE::shop TO sa",
        "ALTER EVENT SESSION s ON SERVER STATE = START",
        "ALTER EVENT SESSION s ON SERVER DROP EVENT x, DROP TARGET y",
        "ALTER FULLTEXT INDEX ON t START UPDATE POPULATION",
        "ALTER FULLTEXT INDEX ON t SET CHANGE_TRACKING AUTO",
        "ALTER INDEX ALL ON t REBUILD",
        "ALTER INDEX i ON t SET (IGNORE_DUP_KEY = ON)",
        "ALTER LOGIN x DISABLE",
        "ALTER LOGIN x DROP CREDENTIAL c",
        "ALTER PARTITION FUNCTION f () MERGE RANGE (1)",
        "ALTER RESOURCE GOVERNOR RECONFIGURE",
        "ALTER ROLE db_owner DROP MEMBER x",
        "ALTER SERVER CONFIGURATION SET PROCESS AFFINITY CPU = AUTO",
        "BACKUP SERVICE MASTER KEY TO FILE = 'f' ENCRYPTION BY PASSWORD = 'p'",
        "BEGIN DISTRIBUTED TRAN",
        "BULK INSERT t FROM 'f'",
        "CHECKPOINT",
        "CLOSE ALL SYMMETRIC KEYS",
        "CREATE DATABASE d",
        "CREATE LOGIN x WITH PASSWORD = 'p', CHECK_POLICY = ON",
        "CREATE QUEUE q WITH STATUS = ON",
        "DECLARE c CURSOR FOR SELECT a FROM t FOR UPDATE OF a",
        "DECLARE c CURSOR FOR SELECT a FROM t FOR UPDATE",
        "DELETE FROM t WHERE CURRENT OF c",
        "DENY SELECT, UPDATE ON t TO x",
        "DROP USER IF EXISTS x",
        "ENABLE TRIGGER ALL ON t",
        "EXEC ('SELECT 1') AT other",
        "EXECUTE AS LOGIN = 'x' WITH NO REVERT",
        "GRANT EXECUTE ON p TO x WITH GRANT OPTION",
        "OPEN SYMMETRIC KEY k DECRYPTION BY CERTIFICATE c",
        "REVERT",
        "REVOKE GRANT OPTION FOR SELECT ON t FROM x CASCADE",
        "SHUTDOWN WITH NOWAIT",
        "UPDATE STATISTICS t WITH FULLSCAN",
        "UPDATE t SET a = 1 WHERE CURRENT OF c",
    ];

    #[test]
    fn what_follows_a_refused_statement_is_one_of_its_own() {
        for refused in REFUSED {
            for follower in [
                "BACKUP DATABASE d TO DISK = 'f'",
                "EXEC p",
                "SELECT 1",
                "SET @v += 1",
                "DROP CREDENTIAL c",
                "UPDATE t SET a = 1",
                "RECONFIGURE",
            ] {
                let batch = format!("{refused}\n{follower}");
                let parsed = parse(&batch).unwrap_or_else(|e| panic!("{batch}: {e:?}"));
                let [first, second] = parsed.statements.as_slice() else {
                    panic!("{batch}: {parsed:?}");
                };
                let is_refused = matches!(first.statement, Statement::Refused { .. });
                assert!(is_refused, "{batch}: {first:?}");
                let alone = parse(follower).unwrap();
                assert_eq!(second.statement, alone.statements[0].statement, "{batch}");
                assert_eq!(second.line, 2, "{batch}");
            }
        }
    }

    #[test]
    fn a_branch_and_a_block_around_a_refused_statement_end_where_they_end() {
        // A condition does not end before a word that may be a name: such a batch does not run at all.
        for refused in REFUSED.iter().filter(|r| !r.starts_with("ENABLE")) {
            let batch = format!("IF @a = 1 {refused}\nELSE PRINT 'no'");
            let parsed = parse(&batch).unwrap_or_else(|e| panic!("{batch}: {e:?}"));
            let Statement::If {
                then, otherwise, ..
            } = &parsed.statements[0].statement
            else {
                panic!("{batch}: {parsed:?}");
            };
            assert!(matches!(then.statement, Statement::Refused { .. }));
            let otherwise = otherwise.as_ref().map(|other| &other.statement);
            assert!(matches!(otherwise, Some(Statement::Print(_))), "{batch}");
            let batch = format!("BEGIN {refused}\nEND PRINT 'on'");
            let parsed = parse(&batch).unwrap_or_else(|e| panic!("{batch}: {e:?}"));
            let [first, second] = parsed.statements.as_slice() else {
                panic!("{batch}: {parsed:?}");
            };
            let Statement::Block(inner) = &first.statement else {
                panic!("{batch}: {first:?}");
            };
            assert_eq!(inner.len(), 1, "{batch}");
            assert!(matches!(second.statement, Statement::Print(_)), "{batch}");
        }
    }
}
