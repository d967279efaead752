//! Texts of others on the terminal, and lines for people to type.
//!
//! Invariants
//! - No control character of others reaches a terminal.
//! - No line has a password in it.
//!
//! Leaves to others: tables and streams (`output.rs`).

use std::ffi::OsString;

/// Free text of media on one line: control characters could move a terminal's cursor.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// A number of things: `1 name`, `2 names`. `one`: the word for a single one, whose plural ends in `s`.
pub fn counted(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// The line that a person types to run the program with these arguments. `***` stands for a password in a connection string.
pub fn command_line(args: impl IntoIterator<Item = OsString>) -> String {
    format!("longshore {}", shell_words(args))
}

/// Words as a shell takes them apart again. Passwords in them are hidden.
pub fn shell_words(args: impl IntoIterator<Item = OsString>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = |arg: OsString| match without_password(&arg.to_string_lossy()) {
        plain if !plain.is_empty() && plain.chars().all(is_plain) => plain,
        other => format!("'{}'", other.replace('\'', "'\\''")),
    };
    let args: Vec<_> = args.into_iter().map(quoted).collect();
    args.join(" ")
}

/// A word in which `***` stands for the password of a URL's user, and for that of a parameter `password`.
fn without_password(word: &str) -> String {
    const HIDDEN: &str = "***";
    let mut shown = word.to_owned();
    if let Some(at) = shown.find("://") {
        let from = at + 3;
        let len = shown[from..].find(['/', '?']).unwrap_or(shown.len() - from);
        let user = shown[from..from + len].rfind('@');
        if let Some((user, colon)) = user.and_then(|user| {
            let colon = shown[from..from + user].find(':')?;
            Some((user, colon))
        }) {
            shown.replace_range(from + colon + 1..from + user, HIDDEN);
        }
    }
    let mut from = 0;
    while let Some(at) = shown[from..].find("password=") {
        let value = from + at + "password=".len();
        let len = length_of_value(&shown[value..]);
        shown.replace_range(value..value + len, HIDDEN);
        from = value + HIDDEN.len();
    }
    shown
}

/// The length of the value with which a text begins: quoted as in a connection string, or up to a space or `&`.
fn length_of_value(text: &str) -> usize {
    let Some(quoted) = text.strip_prefix('\'') else {
        return text.find([' ', '&', '\t', '\n']).unwrap_or(text.len());
    };
    let mut is_escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' => return at + 2,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_told_as_several() {
        let told = [0, 1, 2].map(|count| counted(count, "WAL file"));
        assert_eq!(told, ["0 WAL files", "1 WAL file", "2 WAL files"]);
    }

    #[test]
    fn no_line_shows_a_password() {
        let line = |word: &str| command_line([OsString::from(word)]);
        assert_eq!(
            line("postgres://me:s3cret@host:1/db?a=b"),
            "longshore 'postgres://me:***@host:1/db?a=b'"
        );
        assert_eq!(
            line("postgres://me:a@b:c@host/db"),
            "longshore 'postgres://me:***@host/db'"
        );
        assert_eq!(
            line("postgres:///db?password=x%20y&host=/tmp"),
            "longshore 'postgres:///db?password=***&host=/tmp'"
        );
        for text in [
            "host=h password='a \\' b' user=u",
            "password=secret host=h user=u",
        ] {
            let shown = line(text);
            assert!(
                !shown.contains("secret") && !shown.contains("a \\"),
                "{shown}"
            );
            assert!(
                shown.contains("password=***") && shown.contains("user=u"),
                "{shown}"
            );
        }
        // Nothing else is taken for a password.
        assert_eq!(line("s3://bucket/a:b@c"), "longshore s3://bucket/a:b@c");
        assert_eq!(line("/srv/a.db"), "longshore /srv/a.db");
    }

    #[test]
    fn control_characters_of_hostile_media_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
