//! Goal: docs/errors.md has exactly the numbers and the words of exit codes that errors have.
//! Method: the numbers are read from the code: `number` of each room's error, the command line's constants, and the
//! statements' own messages. A number that is made anywhere else is not seen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longshore_tests::{rooms, root};

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The whole numbers of three to five digits in a text that are words of their own.
fn numbers(text: &str) -> BTreeSet<u32> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| (3..=5).contains(&word.len()))
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The files of errors below a crate's sources.
fn errors_of(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            errors_of(&path, found);
        } else if name.ends_with("error.rs") {
            found.push(path);
        }
    }
}

/// The numbers that `fn number` of the rooms' errors can give.
fn of_rooms() -> BTreeSet<u32> {
    let mut files = Vec::new();
    for room in rooms() {
        errors_of(&room.join("src"), &mut files);
    }
    let mut all = BTreeSet::new();
    let mut bodies = 0;
    for file in files {
        let text = text(&file);
        for after in text.split("pub fn number(&self)").skip(1) {
            let body = after.split("\n    }\n").next().unwrap_or_default();
            all.extend(numbers(body));
            bodies += 1;
        }
    }
    assert!(bodies >= 6, "{bodies}");
    all
}

/// The first cells of a table's rows.
fn column(page: &str, head: &str) -> Vec<String> {
    let table = page.split(head).nth(1).unwrap_or_else(|| panic!("{head}"));
    let rows = table
        .lines()
        .skip(2)
        .map_while(|line| line.strip_prefix("| "));
    rows.map(|row| row.split(" | ").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn the_page_of_errors_has_exactly_the_numbers_of_the_code() {
    let page = text(&root().join("docs/errors.md"));
    let listed = column(&page, "| number | an error with it says |");
    let listed: Vec<u32> = listed.iter().map(|cell| cell.parse().unwrap()).collect();
    assert!(listed.is_sorted_by(|a, b| a < b), "{listed:?}");

    let own = text(&root().join("crates/core/terminal/src/numbers.rs"));
    let constants = own.lines().filter_map(|line| {
        let (_, number) = line.strip_prefix("pub const ")?.split_once(": u32 = ")?;
        number.trim_end_matches(';').parse::<u32>().ok()
    });
    let constants: Vec<u32> = constants.collect();
    let statements = text(&root().join("crates/sql/tsql/src/message/table.rs"));
    let statements = statements.lines().filter_map(|line| {
        let number = line.split_whitespace().next()?.parse::<u32>().ok()?;
        (number >= 50_000).then_some(number)
    });
    let mut wanted = of_rooms();
    wanted.extend(statements);
    let before = wanted.len();
    assert!(before > 40, "{before}");
    let unique: BTreeSet<u32> = constants.iter().copied().collect();
    assert_eq!(unique.len(), constants.len(), "a number has two names");
    wanted.extend(unique);
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), wanted);
}

#[test]
fn the_page_of_errors_has_exactly_the_exit_codes_and_their_words() {
    let page = text(&root().join("docs/errors.md"));
    let code = text(&root().join("crates/core/terminal/src/failure.rs"));
    let body = code.split("pub enum Exit {").nth(1).unwrap();
    let body = body.split("\n}").next().unwrap();
    let exits: Vec<(String, String)> = body
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(',').split_once(" = "))
        .map(|(name, code)| {
            let arm = format!("Exit::{name} => \"");
            let word = page_word(
                &text(&root().join("crates/core/terminal/src/failure.rs")),
                &arm,
            );
            (code.to_owned(), word)
        })
        .collect();
    assert!(exits.len() >= 11, "{exits:?}");
    let rows = page.split("| code | word | meaning |").nth(1).unwrap();
    let rows: Vec<(String, String)> = rows
        .lines()
        .skip(2)
        .map_while(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
        })
        .collect();
    assert_eq!(rows, exits);
}

/// The word after `arm` in the code.
fn page_word(code: &str, arm: &str) -> String {
    let after = code.split(arm).nth(1).unwrap_or_else(|| panic!("{arm}"));
    after.split('"').next().unwrap_or_default().to_owned()
}
