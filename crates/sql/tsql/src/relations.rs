//! The tables that a query's text names, without a tree of it.
//!
//! Invariants
//! - A name that may be a table's is among them. Some that are no tables' may be, too: whoever asks takes them for tables that
//!   are missing.
//!
//! Leaves to others: whether there is such a table (`compile.rs`), and the meaning of the text (`query`).

use crate::syntax::{FragmentToken, tokens};

/// A name of FROM, JOIN, APPLY or INTO.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    /// Its parts, decoded; omitted ones are empty.
    pub parts: Vec<String>,
    /// Parentheses follow: a function, or hints.
    pub is_called: bool,
    /// Behind INTO: the table that the query makes.
    pub is_made: bool,
}

/// Words that end a FROM clause.
const ENDS: [&str; 9] = [
    "SELECT",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "OPTION",
];

/// The names in a text, but for those of its common table expressions.
pub(crate) fn relations(text: &str) -> Vec<Relation> {
    let Ok(all) = tokens(text) else {
        return Vec::new();
    };
    let commons = commons(&all);
    let mut found = Vec::new();
    // Whether a FROM clause is open, for each parenthesis.
    let mut open = vec![false];
    for (i, token) in all.iter().enumerate() {
        let is = |words: &[&str]| {
            token.is_word && words.iter().any(|w| token.raw.eq_ignore_ascii_case(w))
        };
        let depth = open.len() - 1;
        let is_made = is(&["INTO"]);
        let begins = match token.raw.as_str() {
            "(" => {
                open.push(false);
                false
            }
            ")" if depth > 0 => {
                open.pop();
                false
            }
            "," => open[depth],
            _ if is(&["FROM"]) => {
                open[depth] = true;
                true
            }
            _ if is(&["JOIN", "APPLY"]) => true,
            _ if is(&ENDS) => {
                open[depth] = false;
                false
            }
            _ => is_made,
        };
        if !begins {
            continue;
        }
        let Some((parts, end)) = name(&all, i + 1) else {
            continue;
        };
        let is_common = |known: &String| parts.len() == 1 && known.eq_ignore_ascii_case(&parts[0]);
        if !commons.iter().any(is_common) {
            found.push(Relation {
                parts,
                is_called: all.get(end).is_some_and(|t| t.raw == "("),
                is_made,
            });
        }
    }
    found
}

/// Names that stand before `AS (`, also with columns between.
fn commons(all: &[FragmentToken]) -> Vec<String> {
    let mut found = Vec::new();
    for (i, pair) in all.windows(2).enumerate() {
        if !(pair[0].raw.eq_ignore_ascii_case("AS") && pair[1].raw == "(") || i == 0 {
            continue;
        }
        let mut at = i - 1;
        if all[at].raw == ")" {
            let opening = all[..at].iter().rposition(|t| t.raw == "(");
            match opening.and_then(|opening| opening.checked_sub(1)) {
                Some(before) => at = before,
                None => continue,
            }
        }
        found.push(decoded(&all[at].raw));
    }
    found
}

/// The name that begins at a token, and the place behind it.
fn name(all: &[FragmentToken], mut at: usize) -> Option<(Vec<String>, usize)> {
    let mut parts = Vec::new();
    loop {
        let token = all.get(at)?;
        if token.raw == "." {
            parts.push(String::new());
            at += 1;
            continue;
        }
        let begins = |c: char| c.is_alphabetic() || "_#@[\"".contains(c);
        if !token.raw.starts_with(begins) {
            return None;
        }
        parts.push(decoded(&token.raw));
        at += 1;
        match all.get(at) {
            Some(dot) if dot.raw == "." => at += 1,
            _ => return Some((parts, at)),
        }
    }
}

fn decoded(raw: &str) -> String {
    let inner = |text: &str, close: &str| {
        let doubled = format!("{close}{close}");
        text.strip_suffix(close).map(|t| t.replace(&doubled, close))
    };
    let known = match raw.chars().next() {
        Some('[') => inner(&raw[1..], "]"),
        Some('"') => inner(&raw[1..], "\""),
        _ => None,
    };
    known.unwrap_or_else(|| raw.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let all = relations(text);
        all.iter().map(|r| r.parts.join(".")).collect()
    }

    #[test]
    fn names_of_tables_are_found_wherever_a_query_has_them() {
        let text = "SELECT a, (SELECT MAX(b) FROM [dbo].[x y] WHERE c IN (1, 2)) INTO #n FROM msdb..t AS t, u \
                    JOIN @v v ON v.a = t.a, w CROSS APPLY f.g(1, 2) WHERE EXISTS (SELECT 1 FROM z, y ORDER BY p, q)";
        assert_eq!(
            names(text),
            ["dbo.x y", "#n", "msdb..t", "u", "@v", "w", "f.g", "z", "y"]
        );
    }

    #[test]
    fn common_table_expressions_are_no_tables() {
        let text = "WITH a AS (SELECT 1 AS x FROM t), [b](x, y) AS (SELECT 1, 2 FROM a) SELECT x FROM b, c";
        assert_eq!(names(text), ["t", "c"]);
    }
}
