//! Reads a query's text into a tree, by the parser that T-SQL's grammar is known to.
//!
//! What the parser does not know is written out for it: `$1.50`, `SELECT @x += y`, `SELECT 'name' = y`, WITH ROLLUP, GROUPING
//! SETS, and FOR XML without FROM.
//!
//! Invariants
//! - No text nests deeper than a thread's stack allows: lengths, depths and runs of operators are bounded before and
//!   while the parser reads.
//! - A mistake has the offset in the text as the client wrote it, also where something was written out.
//! - A text is one query, or it is refused.
//!
//! Leaves to others: keeping trees and lines of a batch (`reader.rs`), and what a tree means (`translate`).

use sqlparser::ast::{Expr, Ident, Query, Setting, Statement as Parsed, Value as Literal};
use sqlparser::dialect::MsSqlDialect;
use sqlparser::parser::Parser;

use crate::message::{self, Message};
use crate::syntax::FragmentToken;
use crate::syntax::lexer::continued;

/// The most bytes of one query's text: the tree built from it must not nest deeper than a thread's stack allows.
pub const LEN_MAX: usize = 256 << 10;
const DEPTH_MAX: usize = 50;
/// The most tokens between commas and parentheses.
const RUN_MAX: usize = 2000;

/// A mistake that keeps a text from being read.
#[derive(Debug)]
pub struct ParseError {
    pub message: Message,
    /// The offset of the token in the text; its length at the text's end.
    pub at: usize,
}

impl From<Message> for ParseError {
    /// A mistake of the whole text.
    fn from(message: Message) -> ParseError {
        ParseError { message, at: 0 }
    }
}

/// Parses a query. Errors: 102 for a token that the parser did not expect.
pub fn parse(text: &str) -> Result<Query, ParseError> {
    if text.len() > LEN_MAX {
        return Err(message::NESTED_TOO_DEEPLY.plain().into());
    }
    let mut tokens = crate::syntax::tokens(text)?;
    check_runs(&tokens)?;
    check_known(&tokens)?;
    let (hints, blanked) = hints(&mut tokens, text)?;
    let text = blanked.as_deref().unwrap_or(text);
    let has_money =
        spell_money(&mut tokens) | spell_aliases(&mut tokens) | spell_paths(&mut tokens);
    let has_rollup = spell_rollup(&mut tokens) | spell_sets(&mut tokens);
    let has_names = spell_national(&mut tokens);
    let has_markup = has_names
        | spell_markup(&mut tokens)
        | spell_continued(&mut tokens)
        | spell_fetch(&mut tokens);
    let written_out = compound(&tokens, has_money || has_rollup || has_markup);
    let read = written_out.as_ref().map_or(text, |w| w.text.as_str());
    let dialect = MsSqlDialect {};
    let parsed = Parser::new(&dialect)
        .with_recursion_limit(DEPTH_MAX)
        .try_with_sql(read)
        .and_then(|mut parser| parser.parse_statements());
    let mut statements = parsed.map_err(|error| {
        let (message, at) = wrong(&error.to_string(), read);
        let at = match (at, &written_out) {
            (None, _) => text.len(),
            (Some(at), None) => at,
            (Some(at), Some(written)) => written.origin(at),
        };
        ParseError { message, at }
    })?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Parsed::Query(mut query)), true) => {
            query.settings = hints;
            Ok(*query)
        }
        _ => Err(message::SYNTAX.with(&[&near(text)]).into()),
    }
}

/// The call that GROUPING SETS becomes, and an empty set in it.
pub(super) const GROUPING_SETS: &str = "GROUPING_SETS";
pub(super) const EMPTY_SET: &str = "GROUPING_ALL";

/// The call that OFFSET and FETCH become.
pub(super) const OFFSET_FETCH: &str = "OFFSET_FETCH";

/// The setting of a query that has OPTION (MAXRECURSION n).
pub(super) const MAX_RECURSION: &str = "MAXRECURSION";

/// Takes OPTION (…) from the end of a text, for which the parser has no words. Hints about plans have no effect here; a
/// recursion's limit becomes a setting of the query. Errors: 50002 for another hint.
fn hints(
    tokens: &mut Vec<FragmentToken>,
    text: &str,
) -> Result<(Option<Vec<Setting>>, Option<String>), Message> {
    let mut depth = 0_usize;
    let mut found = None;
    for (i, token) in tokens.iter().enumerate() {
        match token.raw.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            word if depth == 0 && token.is_word && word.eq_ignore_ascii_case("OPTION") => {
                found = Some(i);
            }
            _ => {}
        }
    }
    let is_hint = |i: &usize| tokens.get(i + 1).is_some_and(|t| t.raw == "(");
    let Some(begin) = found.filter(is_hint) else {
        return Ok((None, None));
    };
    let words = tokens.split_off(begin);
    let at = words[0].at;
    let inner = &words[2..words.len().saturating_sub(1).max(2)];
    let mut limit = None;
    for hint in inner.split(|t| t.raw == ",") {
        let all: Vec<_> = hint.iter().map(|t| t.raw.to_ascii_uppercase()).collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        match all.as_slice() {
            [MAX_RECURSION, number] => limit = Some((*number).to_owned()),
            ["RECOMPILE"]
            | ["MAXDOP" | "FAST", _]
            | ["FORCE", "ORDER"]
            | ["KEEP", "PLAN"]
            | ["KEEPFIXED", "PLAN"]
            | ["HASH" | "LOOP" | "MERGE", "JOIN"]
            | ["HASH" | "ORDER", "GROUP"]
            | ["OPTIMIZE", "FOR", ..]
            | ["USE", "HINT", ..] => {}
            other => {
                let what = format!("OPTION ({})", other.join(" "));
                return Err(message::NOT_HERE.with(&[&what]));
            }
        }
    }
    let setting = |number: String| Setting {
        key: Ident::new(MAX_RECURSION),
        value: Expr::Value(Literal::Number(number, false).into()),
    };
    Ok((
        limit.map(|number| vec![setting(number)]),
        Some(text[..at].to_owned()),
    ))
}

/// The tokens between commas and parentheses become a left-leaning tree, as deep as there are operators.
fn check_runs(tokens: &[FragmentToken]) -> Result<(), Message> {
    let mut runs = vec![0];
    for token in tokens {
        match (token.raw.as_str(), runs.last_mut()) {
            ("(", _) => runs.push(0),
            (")", _) => drop(runs.pop()),
            (",", Some(run)) => *run = 0,
            (_, Some(run)) if *run >= RUN_MAX => {
                return Err(message::NESTED_TOO_DEEPLY.plain());
            }
            (_, Some(run)) => *run += 1,
            // More closing than opening ones: the parser reports it.
            (_, None) => return Ok(()),
        }
    }
    Ok(())
}

/// Words that the parser cannot read. Errors: 50002.
fn check_known(tokens: &[FragmentToken]) -> Result<(), Message> {
    let is = |token: &FragmentToken, word: &str| token.raw.eq_ignore_ascii_case(word);
    let has_xml = tokens.iter().any(|token| is(token, "XML"));
    let words = |pair: &[FragmentToken]| {
        let (before, word) = (&pair[0], &pair[1]);
        if is(word, "XSINIL") && is(before, "ELEMENTS") {
            return Some("FOR XML with ELEMENTS XSINIL");
        }
        if is(word, "XMLNAMESPACES") && is(before, "WITH") {
            return Some("WITH XMLNAMESPACES");
        }
        let is_schema = before.raw == "," && (is(word, "XMLSCHEMA") || is(word, "XMLDATA"));
        (is_schema && has_xml).then_some("FOR XML with a schema")
    };
    if let Some(what) = tokens.windows(2).find_map(words) {
        return Err(message::NOT_HERE.with(&[&what]));
    }
    let is_next = |three: &[FragmentToken]| {
        is(&three[0], "NEXT") && is(&three[1], "VALUE") && is(&three[2], "FOR")
    };
    if tokens.windows(3).any(is_next) {
        return Err(message::NOT_HERE.with(&[&"NEXT VALUE FOR"]));
    }
    let named = |pair: &[FragmentToken]| {
        let is_called = pair[0].is_word && pair[1].raw == "(";
        let name = pair[0].raw.to_ascii_uppercase();
        (is_called && matches!(name.as_str(), "PARSE" | "TRY_PARSE")).then_some(name)
    };
    match tokens.windows(2).find_map(named) {
        Some(name) => Err(message::NOT_HERE.with(&[&format!("the function {name}")])),
        None => Ok(()),
    }
}

/// Words that end a select list.
const LIST_ENDS: [&str; 9] = [
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "OPTION",
];

/// Rewrites `$1.50` for the parser. Returns whether there was any.
fn spell_money(tokens: &mut [FragmentToken]) -> bool {
    let mut found = false;
    for token in tokens.iter_mut() {
        if let Some(number) = token.raw.strip_prefix('$').filter(|n| !n.is_empty()) {
            token.raw = format!("CAST ( '{number}' AS money )");
            found = true;
        }
    }
    found
}

/// How the path of OPENJSON is written out if it is a variable.
pub(super) const VARIABLE_PATH: char = '\u{1}';

/// Rewrites the variable in `OPENJSON (text, @path)` as a literal with a mark. Returns whether there was any.
fn spell_paths(tokens: &mut [FragmentToken]) -> bool {
    let mut found = false;
    // For each open parenthesis whether it is one of OPENJSON before its first comma.
    let mut open = Vec::new();
    for i in 0..tokens.len() {
        match tokens[i].raw.as_str() {
            "(" => {
                let before = i.checked_sub(1).map(|before| &tokens[before]);
                let is_call =
                    |t: &FragmentToken| t.is_word && t.raw.eq_ignore_ascii_case("OPENJSON");
                open.push(before.is_some_and(is_call));
            }
            ")" => drop(open.pop()),
            "," if open.last() == Some(&true) => {
                open.pop();
                open.push(false);
                let ends = tokens.get(i + 2).is_some_and(|next| next.raw == ")");
                if let Some(path) = tokens.get_mut(i + 1).filter(|_| ends)
                    && path.raw.starts_with('@')
                {
                    path.raw = format!("'{VARIABLE_PATH}{}'", path.raw);
                    found = true;
                }
            }
            _ => {}
        }
    }
    found
}

/// Rewrites `SELECT 'name' = value` as `SELECT [name] = value`. Returns whether there was any.
fn spell_aliases(tokens: &mut [FragmentToken]) -> bool {
    /// The place in the SELECT that a depth of parentheses is in.
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Elsewhere,
        /// An item begins, or the words before the first one.
        Item,
        /// The number of TOP, in parentheses or not, is next.
        Top,
        InItem,
    }
    let is_named = |pair: &[FragmentToken]| pair[0].raw.ends_with('\'') && pair[1].raw == "=";
    if !tokens.windows(2).any(is_named) {
        return false;
    }
    let mut found = false;
    let mut places = vec![At::Elsewhere];
    for i in 0..tokens.len() {
        let word = match tokens[i].is_word {
            true => tokens[i].raw.to_ascii_uppercase(),
            false => tokens[i].raw.clone(),
        };
        let Some(place) = places.last_mut() else {
            return found;
        };
        let before = i.checked_sub(1).map(|i| tokens[i].raw.as_str());
        let is_within = before.is_some_and(|before| before.eq_ignore_ascii_case("WITHIN"));
        let is_named = tokens.get(i + 1).is_some_and(|next| next.raw == "=");
        let text = word.trim_start_matches(['N', 'n']);
        if *place == At::Item && is_named && text.starts_with('\'') && text.len() > 2 {
            let name = text[1..text.len() - 1]
                .replace("''", "'")
                .replace(']', "]]");
            tokens[i].raw = format!("[{name}]");
            found = true;
        }
        *place = match word.as_str() {
            "SELECT" => At::Item,
            "DISTINCT" | "ALL" | "PERCENT" | "WITH" | "TIES" if *place == At::Item => At::Item,
            "TOP" if *place == At::Item => At::Top,
            "," if matches!(*place, At::InItem | At::Item) => At::Item,
            "(" => *place,
            ")" => *place,
            _ if *place == At::Top => At::Item,
            ends if LIST_ENDS.contains(&ends) && !is_within => At::Elsewhere,
            _ if *place == At::Item => At::InItem,
            _ => *place,
        };
        match word.as_str() {
            "(" => places.push(At::Elsewhere),
            ")" => {
                places.pop();
                // The parentheses were the number of TOP, or part of an item.
                if let Some(outer) = places.last_mut() {
                    *outer = match *outer {
                        At::Top => At::Item,
                        At::Item => At::InItem,
                        other => other,
                    };
                }
            }
            _ => {}
        }
    }
    found
}

/// Rewrites `GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP ( a, b )`. Returns whether there was any.
fn spell_rollup(tokens: &mut Vec<FragmentToken>) -> bool {
    let is =
        |token: &FragmentToken, word: &str| token.is_word && token.raw.eq_ignore_ascii_case(word);
    let mut found = false;
    let mut i = 0;
    while i + 1 < tokens.len() {
        let kind = ["ROLLUP", "CUBE"]
            .into_iter()
            .find(|word| is(&tokens[i + 1], word));
        let Some(kind) = kind.filter(|_| is(&tokens[i], "WITH")) else {
            i += 1;
            continue;
        };
        let mut depth = 0_usize;
        let mut by = None;
        for j in (1..i).rev() {
            match tokens[j].raw.as_str() {
                ")" => depth += 1,
                "(" if depth == 0 => break,
                "(" => depth -= 1,
                _ if depth == 0 && is(&tokens[j], "BY") && is(&tokens[j - 1], "GROUP") => {
                    by = Some(j);
                    break;
                }
                _ => {}
            }
        }
        let Some(by) = by else {
            i += 1;
            continue;
        };
        let at = tokens[i].at;
        let written = |raw: &str, is_word| FragmentToken {
            is_word,
            raw: raw.to_owned(),
            at,
        };
        tokens.splice(i..i + 2, [written(")", false)]);
        tokens.splice(by + 1..by + 1, [written(kind, true), written("(", false)]);
        found = true;
        i += 2;
    }
    found
}

/// Rewrites `GROUPING SETS ((a), ())` as a call, `GROUPING_SETS ((a), GROUPING_ALL ())`, since the parser knows no empty set.
/// Returns whether there was any.
fn spell_sets(tokens: &mut Vec<FragmentToken>) -> bool {
    let is = |token: Option<&FragmentToken>, word: &str| {
        token.is_some_and(|t| t.raw.eq_ignore_ascii_case(word))
    };
    let mut found = false;
    let mut i = 0;
    while i + 2 < tokens.len() {
        let begins = is(tokens.get(i), "GROUPING") && is(tokens.get(i + 1), "SETS");
        if !(begins && is(tokens.get(i + 2), "(")) {
            i += 1;
            continue;
        }
        found = true;
        tokens[i].raw = GROUPING_SETS.to_owned();
        tokens.remove(i + 1);
        let mut depth = 1_usize;
        i += 2;
        while i < tokens.len() && depth > 0 {
            let begins_set = matches!(tokens[i - 1].raw.as_str(), "(" | ",");
            if is(tokens.get(i), "(") && is(tokens.get(i + 1), ")") && begins_set {
                let mark = FragmentToken {
                    is_word: true,
                    raw: EMPTY_SET.to_owned(),
                    at: tokens[i].at,
                };
                tokens.insert(i, mark);
                i += 3;
                continue;
            }
            match tokens[i].raw.as_str() {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            i += 1;
        }
    }
    found
}

/// Rewrites `OFFSET a ROWS FETCH NEXT b ROWS ONLY` as `OFFSET OFFSET_FETCH ( a , b ) ROWS` where `b` is no number: the parser
/// takes nothing else there. Returns whether there was any.
fn spell_fetch(tokens: &mut Vec<FragmentToken>) -> bool {
    let is = |token: &FragmentToken, words: &[&str]| {
        token.is_word
            && words
                .iter()
                .any(|word| token.raw.eq_ignore_ascii_case(word))
    };
    // The first of some words from a place on, at the same depth of parentheses.
    let find = |tokens: &[FragmentToken], from: usize, words: &[&str]| {
        let mut depth = 0_usize;
        for (i, token) in tokens.iter().enumerate().skip(from) {
            match token.raw.as_str() {
                "(" => depth += 1,
                ")" => depth = depth.checked_sub(1)?,
                _ if depth == 0 && is(token, words) => return Some(i),
                _ => {}
            }
        }
        None
    };
    let mut found = false;
    let mut i = 0;
    while i < tokens.len() {
        i += 1;
        if !is(&tokens[i - 1], &["OFFSET"]) {
            continue;
        }
        let Some(skipped) = find(tokens, i, &["ROW", "ROWS"]) else {
            continue;
        };
        let begins = tokens.get(skipped + 1).is_some_and(|t| is(t, &["FETCH"]))
            && tokens
                .get(skipped + 2)
                .is_some_and(|t| is(t, &["NEXT", "FIRST"]));
        let count = skipped + 3;
        let Some(end) = find(tokens, count, &["ROW", "ROWS"]).filter(|_| begins) else {
            continue;
        };
        let is_only = tokens.get(end + 1).is_some_and(|t| is(t, &["ONLY"]));
        let is_number = end == count + 1 && tokens[count].raw.bytes().all(|b| b.is_ascii_digit());
        if !is_only || is_number || end <= count || skipped <= i {
            continue;
        }
        let at = tokens[i].at;
        let written = |raw: &str| FragmentToken {
            is_word: raw == OFFSET_FETCH,
            raw: raw.to_owned(),
            at,
        };
        let counted: Vec<_> = tokens[count..end].to_vec();
        let rows = tokens[skipped].clone();
        let rest = [vec![written(",")], counted, vec![written(")"), rows]].concat();
        tokens.splice(skipped..end + 2, rest);
        tokens.splice(i..i, [written(OFFSET_FETCH), written("(")]);
        found = true;
    }
    found
}

/// Joins the lines of texts that a backslash continues. Returns whether there was any.
fn spell_continued(tokens: &mut [FragmentToken]) -> bool {
    let mut found = false;
    for token in tokens.iter_mut().filter(|t| t.raw.ends_with('\'')) {
        let joined = continued(token.raw.clone());
        found |= joined.len() != token.raw.len();
        token.raw = joined;
    }
    found
}

/// Rewrites `PATH (N'name')` and its like after FOR XML and FOR JSON, and the paths of OPENJSON … WITH, without the N, which the
/// parser does not know there; and leaves out the `::` before a function. Returns whether there was any.
fn spell_national(tokens: &mut Vec<FragmentToken>) -> bool {
    let is = |token: &FragmentToken, word: &str| token.raw.eq_ignore_ascii_case(word);
    let before = tokens.len();
    // The depth of parentheses, and the one within the WITH of OPENJSON.
    let (mut depth, mut of_json, mut columns) = (0_usize, None, None);
    let (mut has_markup, mut found) = (false, false);
    for i in 0..tokens.len() {
        let last = i.checked_sub(1).map(|i| tokens[i].raw.to_ascii_uppercase());
        match tokens[i].raw.as_str() {
            "(" => {
                depth += 1;
                match (last.as_deref(), of_json) {
                    (Some("OPENJSON"), _) => of_json = Some(depth),
                    (Some("WITH"), Some(_)) => (of_json, columns) = (None, Some(depth)),
                    _ => {}
                }
            }
            ")" => {
                if columns == Some(depth) {
                    columns = None;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        has_markup |=
            last.as_deref() == Some("FOR") && (is(&tokens[i], "XML") || is(&tokens[i], "JSON"));
        let named = i.checked_sub(2).map(|i| tokens[i].raw.to_ascii_uppercase());
        let is_name = has_markup
            && last.as_deref() == Some("(")
            && matches!(named.as_deref(), Some("PATH" | "ROOT" | "RAW"));
        let raw = &tokens[i].raw;
        if (is_name || columns.is_some()) && (raw.starts_with("N'") || raw.starts_with("n'")) {
            tokens[i].raw.remove(0);
            found = true;
        }
    }
    // Types have methods after `::`, which stay as they are.
    let begins = |token: &FragmentToken| {
        let words = ["FROM", "JOIN", "APPLY", ","];
        words.iter().any(|word| is(token, word))
    };
    let is_own =
        |three: &[FragmentToken]| begins(&three[0]) && three[1].raw == "::" && three[2].is_word;
    while let Some(at) = tokens.windows(3).position(is_own) {
        tokens.remove(at + 1);
    }
    found || tokens.len() < before
}

/// Rewrites `SELECT 1 FOR XML …` as `SELECT 1 WHERE 1 = 1 FOR XML …`: without a clause between them the parser takes FOR for
/// a name. Returns whether there was any.
fn spell_markup(tokens: &mut Vec<FragmentToken>) -> bool {
    let is_any = |token: &FragmentToken, words: &[&str]| {
        token.is_word && words.iter().any(|w| token.raw.eq_ignore_ascii_case(w))
    };
    let mut found = false;
    let mut i = 0;
    while i + 1 < tokens.len() {
        i += 1;
        if !is_any(&tokens[i - 1], &["FOR"]) || !is_any(&tokens[i], &["XML", "JSON"]) {
            continue;
        }
        let place = i - 1;
        let mut depth = 0_usize;
        let mut is_bare = false;
        for token in tokens[..place].iter().rev() {
            match token.raw.as_str() {
                ")" => depth += 1,
                "(" if depth == 0 => break,
                "(" => depth -= 1,
                _ if depth > 0 => {}
                _ if is_any(token, &["FROM", "WHERE"]) => break,
                _ if is_any(token, &["SELECT"]) => {
                    is_bare = true;
                    break;
                }
                _ => {}
            }
        }
        if is_bare {
            let at = tokens[place].at;
            let written = ["WHERE", "1", "=", "1"].map(|raw| FragmentToken {
                is_word: raw == "WHERE",
                raw: raw.to_owned(),
                at,
            });
            tokens.splice(place..place, written);
            i += 4;
            found = true;
        }
    }
    found
}

/// A text in which constructs that the parser does not know are written out.
#[derive(Default)]
struct WrittenOut {
    text: String,
    /// Offsets of pieces in `text` and of the tokens that they stand for, in ascending order.
    origins: Vec<(usize, usize)>,
}

impl WrittenOut {
    fn push(&mut self, raw: &str, origin: usize) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.origins.push((self.text.len(), origin));
        self.text.push_str(raw);
    }

    /// The offset of the token that the piece at this offset stands for.
    fn origin(&self, at: usize) -> usize {
        let begun = self.origins.partition_point(|(from, _)| *from <= at);
        let piece = begun.checked_sub(1).map(|i| self.origins[i].1);
        piece.unwrap_or_default()
    }
}

/// Rewrites `SELECT @x += y` as `SELECT @x = @x + ( y )`, which the parser knows; `None` if nothing of the kind occurs
/// and no other token was `changed`.
fn compound(tokens: &[FragmentToken], changed: bool) -> Option<WrittenOut> {
    let operator = |raw: &str| {
        ["+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="]
            .iter()
            .find(|o| **o == raw)
            .map(|o| &o[..1])
    };
    if !changed && !tokens.iter().any(|t| operator(&t.raw).is_some()) {
        return None;
    }
    let mut made = WrittenOut::default();
    // The present depth of parentheses, and the depth at which an operand began.
    let mut depth = 0_usize;
    let mut begun = Vec::new();
    for (i, FragmentToken { is_word, raw, at }) in tokens.iter().enumerate() {
        let is_within = i > 0 && tokens[i - 1].raw.eq_ignore_ascii_case("WITHIN");
        let ends_list =
            *is_word && !is_within && LIST_ENDS.iter().any(|w| raw.eq_ignore_ascii_case(w));
        let is_end = raw == "," || ends_list || raw == ")";
        if is_end && begun.last() == Some(&depth) {
            begun.pop();
            made.push(")", *at);
        }
        match raw.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let before = i.checked_sub(1).map(|i| tokens[i].raw.as_str());
        match (operator(raw), before.filter(|b| b.starts_with('@'))) {
            (Some(operator), Some(variable)) => {
                for piece in ["=", variable, operator, "("] {
                    made.push(piece, *at);
                }
                begun.push(depth);
            }
            _ => made.push(raw, *at),
        }
    }
    let end = tokens.last().map_or(0, |t| t.at + t.raw.len());
    for _ in &begun {
        made.push(")", end);
    }
    Some(made)
}

/// The beginning of a text, for messages.
pub fn near(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Words of queries that are no names: a mistake at one has another number.
const KEYWORDS: &[&str] = &[
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CROSS",
    "DESC",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "RIGHT",
    "SELECT",
    "SET",
    "THEN",
    "TOP",
    "UNION",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
];

/// The parser's `… found: X at Line: 1, Column: 5` as a message, and the offset of `X`. `None`: the end of the text.
fn wrong(error: &str, text: &str) -> (Message, Option<usize>) {
    if error.contains("recursion limit") {
        return (message::NESTED_TOO_DEEPLY.plain(), Some(0));
    }
    let (said, place) = error.rsplit_once(" at Line: ").unwrap_or((error, ""));
    let found = said.split_once("found: ").map(|(_, rest)| rest);
    match found {
        Some("EOF") | None => {
            let last = text.rsplit(' ').next().unwrap_or(text);
            (message::SYNTAX.with(&[&near(last)]), None)
        }
        Some(found) => {
            let is_keyword = KEYWORDS.iter().any(|word| found.eq_ignore_ascii_case(word));
            let message = match is_keyword {
                true => message::SYNTAX_KEYWORD,
                false => message::SYNTAX,
            };
            (message.with(&[&near(found)]), offset(place, text))
        }
    }
}

/// The offset that `2, Column: 5` means. The parser counts characters, and the line ends inside of literals.
fn offset(place: &str, text: &str) -> Option<usize> {
    let (line, column) = place.split_once(", Column: ")?;
    let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
    let begin = match line.checked_sub(2) {
        None => 0,
        Some(ends_before) => text.match_indices('\n').nth(ends_before)?.0 + 1,
    };
    let at = text[begin..].char_indices().nth(column.checked_sub(1)?);
    at.map(|(at, _)| begin + at)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn words_that_might_be_of_json_or_xml_are_read_once() {
        for word in ["OPENJSON", "XMLSCHEMA"] {
            let mut tokens = crate::syntax::tokens(&vec![word; 200_000].join(", ")).unwrap();
            let begun = Instant::now();
            check_known(&tokens).unwrap();
            assert!(!spell_paths(&mut tokens));
            assert!(begun.elapsed() < Duration::from_secs(5), "{word}");
        }
    }

    #[test]
    fn the_path_of_each_openjson_is_found() {
        let text = "OPENJSON(OPENJSON(a, @b), @c) OPENJSON(f(a, @x), @d) OPENJSON(a, @e, 1)";
        let mut tokens = crate::syntax::tokens(text).unwrap();
        assert!(spell_paths(&mut tokens));
        let paths = tokens.iter().filter(|t| t.raw.contains(VARIABLE_PATH));
        let paths: Vec<_> = paths.map(|t| t.raw.as_str()).collect();
        assert_eq!(paths, ["'\u{1}@b'", "'\u{1}@c'", "'\u{1}@d'"]);
    }
}
