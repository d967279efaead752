//! Parses tokens to statements, by recursive descent. The grammar is in `docs/tsql.md`.
//!
//! Invariants
//! - A batch is parsed whole: with one mistake, none of it runs.
//! - The error is SQL Server's message for the first mistake, with its line.
//! - Depth and length are bounded, so no input overflows the stack.
//! - T-SQL that is not supported here is named as such, which is more help than a syntax error; such a statement is refused
//!   when it is reached (`refused.rs`).
//!
//! Leaves to others: dividing text into tokens (`lexer`), and whether names and options make sense (`statement`,
//! `query`).

mod backup;
mod change;
mod control;
mod credential;
mod cursor;
mod elsewhere;
mod key;
mod merge;
mod option;
mod procedure;
mod raise;
mod refused;
mod restore;
mod routine;
mod server;
mod table;

pub(super) use cursor::word_of;

use crate::message::{Message, NESTED_TOO_DEEPLY, NOT_HERE, SYNTAX, SYNTAX_KEYWORD, TOO_LONG};
use crate::syntax::ast::{
    Batch, Device, DeviceKind, Fragment, LocatedStatement, Name, Operand, Statement, Transaction,
};
use crate::syntax::lexer::{Lexer, NEAR_MAX, Token, TokenKind};
use crate::syntax::{DEPTH_MAX, LEN_MAX, NAME_MAX};

/// Parses one whole batch. Errors: the message of the first mistake, with its line. It may show any part of the text.
pub fn parse_batch(text: &str) -> Result<Batch, Message> {
    if text.len() > LEN_MAX {
        let shown: String = text.chars().take(NEAR_MAX).collect();
        return Err(TOO_LONG.with(&[&"batch", &shown, &LEN_MAX]));
    }
    let mut parser = Parser::new(text)?;
    let statements = parser.statements(|p| p.token.kind == TokenKind::End, 0)?;
    Ok(Batch { statements })
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    text: &'a str,
    token: Token<'a>,
    next: Token<'a>,
    /// The last consumed token, for messages at the end.
    last: Token<'a>,
    /// The line of `line_at`: lines are counted only forwards.
    line: u32,
    line_at: usize,
    /// Whether a statement was read before the current one.
    has_statements: bool,
}

/// Words that begin T-SQL statements that are not supported here; T-SQL does not allow them as names either.
const ELSEWHERE: &[&str] = &[
    "BULK",
    "CHECKPOINT",
    "DENY",
    "GRANT",
    "LINENO",
    "READTEXT",
    "REVERT",
    "REVOKE",
    "SETUSER",
    "SHUTDOWN",
    "UPDATETEXT",
    "WRITETEXT",
];

/// Words that begin a statement and so end an expression before them.
const STATEMENTS: &[&str] = &[
    "ALTER",
    "BACKUP",
    "BEGIN",
    "BREAK",
    "BULK",
    "CHECKPOINT",
    "CLOSE",
    "COMMIT",
    "CONTINUE",
    "CREATE",
    "DBCC",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DENY",
    "DROP",
    "ELSE",
    "END",
    "EXEC",
    "EXECUTE",
    "FETCH",
    "GOTO",
    "GRANT",
    "IF",
    "INSERT",
    "KILL",
    "MERGE",
    "OPEN",
    "PRINT",
    "RAISERROR",
    "RECONFIGURE",
    "RESTORE",
    "RETURN",
    "REVERT",
    "REVOKE",
    "ROLLBACK",
    "SAVE",
    "SELECT",
    "SET",
    "SHUTDOWN",
    "THROW",
    "TRUNCATE",
    "UPDATE",
    "USE",
    "WAITFOR",
    "WHILE",
];

/// Words that cannot be names, for the message that says so.
const RESERVED: &[&str] = &[
    "AND", "AS", "BY", "CASE", "DATABASE", "DEFAULT", "DISK", "FILE", "FROM", "GROUP", "INTO",
    "NOT", "NULL", "OFF", "ON", "OR", "ORDER", "THEN", "TO", "TOP", "UNION", "VALUES", "WHERE",
    "WITH",
];

fn is_any(token: &Token, words: &[&str]) -> bool {
    token.kind == TokenKind::Word && words.iter().any(|w| token.raw.eq_ignore_ascii_case(w))
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, Message> {
        let mut lexer = Lexer::new(text);
        let first = Token {
            kind: TokenKind::End,
            raw: "",
            at: 0,
        };
        let located = |e: Message, at: usize| e.at_line(line_of(text, at));
        let token = lexer.token().map_err(|e| located(e, lexer.at()))?;
        let next = lexer.token().map_err(|e| located(e, lexer.at()))?;
        Ok(Parser {
            lexer,
            text,
            token,
            next,
            last: first,
            line: 1,
            line_at: 0,
            has_statements: false,
        })
    }

    fn advance(&mut self) -> Result<Token<'a>, Message> {
        let new = match self.next.kind {
            TokenKind::End => self.next,
            _ => {
                let token = self.lexer.token();
                token.map_err(|e| e.at_line(line_of(self.text, self.lexer.at())))?
            }
        };
        self.last = self.token;
        self.token = std::mem::replace(&mut self.next, new);
        Ok(self.last)
    }

    /// The mistake is the current token, or at the end the one before it.
    fn syntax(&self) -> Message {
        let near = match self.token.kind {
            TokenKind::End => &self.last,
            _ => &self.token,
        };
        let shown = near.value().chars().take(NEAR_MAX).collect::<String>();
        let keyword = is_any(near, STATEMENTS) || is_any(near, RESERVED);
        let message = match keyword && self.token.kind != TokenKind::End {
            true => SYNTAX_KEYWORD.with(&[&shown]),
            false => SYNTAX.with(&[&shown]),
        };
        message.at_line(line_of(self.text, near.at))
    }

    /// Another message about the current token.
    fn wrong(&self, message: Message) -> Message {
        message.at_line(line_of(self.text, self.token.at))
    }

    fn is_word(&self, word: &str) -> bool {
        self.token.is_word(word)
    }

    fn is(&self, symbol: &str) -> bool {
        self.token.is(symbol)
    }

    fn take_word(&mut self, word: &str) -> Result<bool, Message> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take(&mut self, symbol: &str) -> Result<bool, Message> {
        let found = self.is(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Message> {
        match self.take_word(word)? {
            true => Ok(()),
            false => Err(self.syntax()),
        }
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Message> {
        match self.take(symbol)? {
            true => Ok(()),
            false => Err(self.syntax()),
        }
    }

    /// `one { "," one }`
    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Message>,
    ) -> Result<Vec<T>, Message> {
        let mut all = vec![one(self)?];
        while self.take(",")? {
            all.push(one(self)?);
        }
        Ok(all)
    }

    fn identifier(&mut self) -> Result<String, Message> {
        let plain = match self.token.kind {
            TokenKind::Word => !is_any(&self.token, RESERVED) && !is_any(&self.token, STATEMENTS),
            kind => matches!(kind, TokenKind::Bracketed | TokenKind::Quoted),
        };
        if !plain {
            return Err(self.syntax());
        }
        let name = self.token.value();
        if name.is_empty() {
            return Err(self.wrong(crate::message::NAME_EMPTY.plain()));
        }
        if name.chars().nth(NAME_MAX).is_some() {
            let shown: String = name.chars().take(NAME_MAX).collect();
            return Err(self.wrong(TOO_LONG.with(&[&"identifier", &shown, &NAME_MAX])));
        }
        self.advance()?;
        Ok(name)
    }

    fn variable(&mut self) -> Result<String, Message> {
        if self.token.kind != TokenKind::Variable || self.token.raw.len() < 2 {
            return Err(self.syntax());
        }
        if self.token.raw.chars().nth(NAME_MAX).is_some() {
            let shown: String = self.token.raw.chars().take(NAME_MAX).collect();
            return Err(self.wrong(TOO_LONG.with(&[&"identifier", &shown, &NAME_MAX])));
        }
        Ok(self.advance()?.raw.to_owned())
    }

    fn name(&mut self) -> Result<Name, Message> {
        match self.token.kind {
            TokenKind::Variable => Ok(Name::Variable(self.variable()?)),
            _ => Ok(Name::Literal(self.identifier()?)),
        }
    }

    fn text_operand(&mut self) -> Result<Operand, Message> {
        match self.token.kind {
            TokenKind::Text => Ok(Operand::Text(self.advance()?.value())),
            TokenKind::Variable => Ok(Operand::Variable(self.variable()?)),
            _ => Err(self.syntax()),
        }
    }

    fn integer(&mut self) -> Result<i64, Message> {
        let whole = match self.token.kind {
            TokenKind::Number => self.token.raw.parse().ok(),
            _ => None,
        };
        let number = whole.ok_or_else(|| self.syntax())?;
        self.advance()?;
        Ok(number)
    }

    fn integer_operand(&mut self) -> Result<Operand, Message> {
        match self.token.kind {
            TokenKind::Variable => Ok(Operand::Variable(self.variable()?)),
            _ => Ok(Operand::Integer(self.integer()?)),
        }
    }

    fn devices(&mut self) -> Result<Vec<Device>, Message> {
        self.list(Self::device)
    }

    fn device(&mut self) -> Result<Device, Message> {
        let kind = match self.token.kind == TokenKind::Word && self.next.is("=") {
            false => return Ok(Device::Logical(self.name()?)),
            true if self.is_word("DISK") => DeviceKind::Disk,
            true if self.is_word("TAPE") => DeviceKind::Tape,
            true if self.is_word("URL") => DeviceKind::Url,
            true if self.is_word("VIRTUAL_DEVICE") => DeviceKind::Virtual,
            true => return Err(self.syntax()),
        };
        self.advance()?;
        self.advance()?;
        let name = self.text_operand()?;
        Ok(Device::Physical { kind, name })
    }

    /// The line of the current token.
    fn line(&mut self) -> u32 {
        let new = &self.text.as_bytes()[self.line_at..self.token.at];
        self.line += new.iter().filter(|b| **b == b'\n').count() as u32;
        self.line_at = self.token.at;
        self.line
    }

    fn statements(
        &mut self,
        ends: impl Fn(&Self) -> bool,
        depth: usize,
    ) -> Result<Vec<LocatedStatement>, Message> {
        let mut all = Vec::new();
        loop {
            while self.take(";")? {}
            // `END CONVERSATION` ends no block.
            if ends(self) && !(self.is_word("END") && self.next.is_word("CONVERSATION")) {
                return Ok(all);
            }
            let first = all.is_empty() && depth == 0;
            all.push(self.statement(first, depth)?);
            self.has_statements = true;
        }
    }

    /// `first`: a name at the beginning of a batch is a procedure's.
    fn statement(&mut self, first: bool, depth: usize) -> Result<LocatedStatement, Message> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(NESTED_TOO_DEEPLY.plain()));
        }
        let line = self.line();
        let begun = self.mark();
        let statement = match self.statement_of(first, depth) {
            Err(refusal) if refusal.number == NOT_HERE.number => {
                self.refused(&begun, refusal, depth)?
            }
            read => read?,
        };
        Ok(LocatedStatement { line, statement })
    }

    fn statement_of(&mut self, first: bool, depth: usize) -> Result<Statement, Message> {
        let token = self.token;
        if token.is_word("WITH") && self.begins_name() {
            return self.query_or_change();
        }
        if self.is("(") {
            return Ok(Statement::Query(self.fragment(false)?));
        }
        if token.kind == TokenKind::Word {
            if self.is_label() {
                return self.label();
            }
            if let Some(refused) = self.elsewhere()? {
                return Err(refused);
            }
            if let Some(statement) = self.statement_by_word(depth)? {
                return Ok(statement);
            }
        }
        let is_name = matches!(
            token.kind,
            TokenKind::Word | TokenKind::Bracketed | TokenKind::Quoted
        );
        let is_taken = is_any(&token, RESERVED) || is_any(&token, STATEMENTS);
        match first && is_name && !is_taken {
            true => self.procedure(None),
            false => Err(self.syntax()),
        }
    }

    /// The statement that the current word begins; `None` if it begins none.
    fn statement_by_word(&mut self, depth: usize) -> Result<Option<Statement>, Message> {
        let word = self.token.raw.to_ascii_uppercase();
        let statement = match word.as_str() {
            "ALTER" | "CREATE" | "DROP" if self.is_about_credential() => self.credential()?,
            "ALTER" | "BACKUP" | "CREATE" | "DROP" | "RESTORE" if self.is_about_key() => {
                self.key_statement()?
            }
            "ALTER" | "CREATE" if self.is_about_routine() => self.routine(depth)?,
            "ALTER" => self.alter()?,
            "BACKUP" => self.backup()?,
            "BEGIN" => self.begin(depth)?,
            "BREAK" => self.bare(Statement::Break)?,
            "COMMIT" => self.transaction(Transaction::Commit)?,
            "CONTINUE" => self.bare(Statement::Continue)?,
            "CREATE" => self.create()?,
            "DBCC" => self.dbcc()?,
            "DECLARE" => self.declare()?,
            "DELETE" => self.delete(None)?,
            "DROP" => self.drop()?,
            "EXEC" | "EXECUTE" => self.execute()?,
            "IF" => self.if_else(depth)?,
            "KILL" => self.kill()?,
            "INSERT" => self.insert(None)?,
            "MERGE" => self.merge(None)?,
            "PRINT" => {
                self.advance()?;
                Statement::Print(self.fragment(false)?)
            }
            "RECONFIGURE" => self.reconfigure()?,
            "RESTORE" => self.restore()?,
            "RETURN" => self.returning()?,
            "ROLLBACK" => self.transaction(Transaction::Rollback)?,
            "SAVE" => self.transaction(Transaction::Save)?,
            "SELECT" => Statement::Query(self.fragment(false)?),
            "SET" => self.set()?,
            "TRUNCATE" => self.truncate()?,
            "UPDATE" => self.update(None)?,
            "USE" => {
                self.advance()?;
                Statement::Use(self.identifier()?)
            }
            "WHILE" => self.while_loop(depth)?,
            elsewhere if ELSEWHERE.contains(&elsewhere) => {
                return Err(self.wrong(NOT_HERE.with(&[&elsewhere])));
            }
            word => match self.raising(word)? {
                None => return self.cursor_statement(word),
                raising => return Ok(raising),
            },
        };
        Ok(Some(statement))
    }

    fn bare(&mut self, statement: Statement) -> Result<Statement, Message> {
        self.advance()?;
        Ok(statement)
    }

    /// Tokens up to the end of a query or an expression: a `;`, a statement's first word, an unmatched closing
    /// parenthesis, or a comma if `commas_end`.
    fn fragment(&mut self, commas_end: bool) -> Result<Fragment, Message> {
        self.fragment_to(commas_end, &[])
    }

    /// The same, also ended by one of these words outside of parentheses.
    fn fragment_to(
        &mut self,
        commas_end: bool,
        stops: &'static [&'static str],
    ) -> Result<Fragment, Message> {
        let mut text = String::new();
        let mut lines: Vec<(u32, u32)> = Vec::new();
        let mut open = Open {
            parens: 0,
            cases: 0,
            awaits_select: self.is_word("WITH"),
            stops,
        };
        while !open.ends(self, text.is_empty(), commas_end)? {
            if !text.is_empty() {
                text.push(' ');
            }
            let line = self.line();
            if lines.last().is_none_or(|(_, last)| *last < line) {
                lines.push((text.len() as u32, line));
            }
            text.push_str(self.token.raw);
            self.advance()?;
        }
        // A label may follow: `WITH l:`.
        let is_nothing = text.is_empty() || text.eq_ignore_ascii_case("WITH");
        match is_nothing || open.parens > 0 {
            true => Err(self.syntax()),
            false => Ok(Fragment::at_lines(text, lines)),
        }
    }

    /// Whether the next token is a name, as after the WITH of a query.
    fn begins_name(&self) -> bool {
        match self.next.kind {
            TokenKind::Word => !is_any(&self.next, STATEMENTS),
            kind => matches!(kind, TokenKind::Bracketed | TokenKind::Quoted),
        }
    }

    /// Whether the current word continues a query, although it also begins statements: `OFFSET 5 ROWS FETCH …`, `INNER
    /// MERGE JOIN`.
    fn is_of_query(&self) -> bool {
        (self.is_word("FETCH") && is_any(&self.last, &["ROW", "ROWS"]))
            || (self.is_word("MERGE") && self.next.is_word("JOIN"))
    }

    /// Whether the current token is combined with a query before it.
    fn is_combined(&self) -> bool {
        is_any(&self.last, &["UNION", "ALL", "EXCEPT", "INTERSECT"])
    }
}

/// The parentheses and CASEs that are open before a token of a fragment.
struct Open {
    parens: usize,
    cases: usize,
    /// The query of a WITH clause follows its parentheses.
    awaits_select: bool,
    /// Words that end the fragment.
    stops: &'static [&'static str],
}

impl Open {
    /// Whether the fragment ends before the parser's token; if not, the token is counted. `is_first`: nothing of the
    /// fragment was read yet. `commas_end`: a comma ends it, too.
    fn ends(&mut self, parser: &Parser, is_first: bool, commas_end: bool) -> Result<bool, Message> {
        match parser.token.kind {
            TokenKind::End => Ok(true),
            TokenKind::Strange => Err(parser.syntax()),
            TokenKind::Symbol => self.ends_at_symbol(parser, commas_end),
            TokenKind::Word => self.ends_at_word(parser, is_first),
            _ => Ok(false),
        }
    }

    fn ends_at_symbol(&mut self, parser: &Parser, commas_end: bool) -> Result<bool, Message> {
        match parser.token.raw {
            "(" => deeper(&mut self.parens, parser)?,
            ")" if self.parens == 0 => return Ok(true),
            ")" => self.parens -= 1,
            ";" if self.parens > 0 => return Err(parser.syntax()),
            ";" => return Ok(true),
            "," => return Ok(commas_end && self.parens == 0),
            _ => {}
        }
        Ok(false)
    }

    fn ends_at_word(&mut self, parser: &Parser, is_first: bool) -> Result<bool, Message> {
        let token = parser.token;
        if token.is_word("CASE") {
            deeper(&mut self.cases, parser)?;
            return Ok(false);
        }
        if self.cases > 0 && (token.is_word("END") || token.is_word("ELSE")) {
            self.cases -= usize::from(token.is_word("END"));
            return Ok(false);
        }
        if self.parens > 0 {
            return Ok(false);
        }
        if self.cases == 0 && !is_first && is_any(&token, self.stops) {
            return Ok(true);
        }
        // A label, and the end of a cursor's query.
        if parser.is_label() || parser.is_for_cursor() {
            return Ok(true);
        }
        if token.is_word("SELECT") {
            let continues = is_first || self.awaits_select || parser.is_combined();
            self.awaits_select = false;
            return Ok(!continues);
        }
        Ok(is_any(&token, STATEMENTS) && !parser.is_of_query())
    }
}

/// Counts one more that is open.
fn deeper(open: &mut usize, parser: &Parser) -> Result<(), Message> {
    *open += 1;
    match *open > DEPTH_MAX {
        true => Err(parser.wrong(NESTED_TOO_DEEPLY.plain())),
        false => Ok(()),
    }
}

fn line_of(text: &str, at: usize) -> u32 {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.iter().filter(|b| **b == b'\n').count() as u32 + 1
}
