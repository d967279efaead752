//! LIKE's patterns: `%`, `_`, `[a-z]`, `[^a-z]`, and an escape character.
//!
//! Invariants
//! - The number of comparisons is bounded, so no pattern holds a server up: an answer that would take longer is none.
//! - A set without its end matches nothing.
//!
//! Leaves to others: the message for an answer that takes too long, collations (`folds` is an argument), and NULL.

/// The most comparisons of characters for one answer: some tenths of a second.
const STEPS_MAX: usize = 200_000_000;

/// Whether the text matches; `folds`: ignoring case, as SQL Server's default collations do. `None`: the answer takes
/// more than [`STEPS_MAX`] steps; up to the product of both lengths are needed.
pub fn like(text: &str, pattern: &str, escape: Option<char>, folds: bool) -> Option<bool> {
    let fold = |s: &str| -> Vec<char> {
        match folds {
            true => s.chars().flat_map(char::to_lowercase).collect(),
            false => s.chars().collect(),
        }
    };
    let (text, pattern) = (fold(text), fold(pattern));
    let escape = escape.map(|c| match folds {
        true => c.to_lowercase().next().unwrap_or(c),
        false => c,
    });
    let (mut t, mut p) = (0, 0);
    // Where to continue after the last `%` if the rest does not match.
    let mut retry: Option<(usize, usize)> = None;
    let mut steps = 0;
    loop {
        steps += 1;
        if steps > STEPS_MAX {
            return None;
        }
        if p < pattern.len() && pattern[p] == '%' && Some('%') != escape {
            retry = Some((p + 1, t));
            p += 1;
            continue;
        }
        let fitted = match (text.get(t), p < pattern.len()) {
            (Some(c), true) => one(*c, &pattern, p, escape, &mut steps),
            (None, false) => return Some(true),
            _ => None,
        };
        match (fitted, retry) {
            (Some(next), _) => {
                t += 1;
                p = next;
            }
            (None, Some((after, from))) if from < text.len() => {
                retry = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            (None, _) => return Some(false),
        }
    }
}

/// Where the pattern continues if the character matches its element at `p`.
fn one(
    c: char,
    pattern: &[char],
    p: usize,
    escape: Option<char>,
    steps: &mut usize,
) -> Option<usize> {
    match pattern[p] {
        e if Some(e) == escape => (pattern.get(p + 1) == Some(&c)).then_some(p + 2),
        '_' => Some(p + 1),
        '[' => {
            let close = pattern[p + 1..].iter().position(|x| *x == ']');
            *steps += close.unwrap_or(pattern.len() - p);
            let close = p + 1 + close?;
            let (inverted, set) = match pattern.get(p + 1) {
                Some('^') => (true, &pattern[p + 2..close.max(p + 2)]),
                _ => (false, &pattern[p + 1..close]),
            };
            (is_in(c, set) != inverted).then_some(close + 1)
        }
        x => (x == c).then_some(p + 1),
    }
}

fn is_in(c: char, set: &[char]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if at + 2 < set.len() && set[at + 1] == '-' {
            if (set[at]..=set[at + 2]).contains(&c) {
                return true;
            }
            at += 3;
        } else {
            if set[at] == c {
                return true;
            }
            at += 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_what_they_say() {
        for (text, pattern, fits) in [
            ("backup", "back%", true),
            ("Backup", "bACK__", true),
            ("backup", "back_", false),
            ("abcabc", "%abc", true),
            ("50%", "50[%]", true),
            ("50x", "50[%]", false),
            ("d", "[a-f]", true),
            ("d", "[^a-f]", false),
            ("", "%", true),
            ("", "_", false),
            ("x", "[", false),
            ("x", "[^", false),
            ("", "", true),
        ] {
            assert_eq!(
                like(text, pattern, None, true),
                Some(fits),
                "{text} like {pattern}"
            );
        }
        assert_eq!(like("a_b", "a!_b", Some('!'), true), Some(true));
        assert_eq!(like("axb", "a!_b", Some('!'), true), Some(false));
        assert_eq!(like("Axb", "a%", None, false), Some(false));
        assert_eq!(like("axb", "a%", None, false), Some(true));
    }

    #[test]
    fn many_percents_do_not_take_for_ever() {
        let text = "a".repeat(2000);
        assert_eq!(
            like(&text, &("%a".repeat(50) + "b"), None, true),
            Some(false)
        );
    }
}
