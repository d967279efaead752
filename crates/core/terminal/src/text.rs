//! Texts of others on the terminal, and lines for people to type.

use std::ffi::OsString;

/// Free text of media on one line: control characters could move a terminal's cursor.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// The line that a person types to run the program with these arguments.
pub fn command_line(args: impl IntoIterator<Item = OsString>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = |arg: OsString| match arg.to_string_lossy() {
        plain if !plain.is_empty() && plain.chars().all(is_plain) => plain.into_owned(),
        other => format!("'{}'", other.replace('\'', "'\\''")),
    };
    let args: Vec<_> = args.into_iter().map(quoted).collect();
    format!("longshore {}", args.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_hostile_media_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
