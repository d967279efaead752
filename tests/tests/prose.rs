//! Goal: no page, no README, no message and no comment contains words that have misled this project's readers.
//! Method: a list of words that are wrong everywhere, since many readers read English as a second language, at three in
//! the morning. In code, tables' code and headings the beginnings of sentences are not checked.
//!
//! The texts that the programs show are judged, too: string literals of three words and more, and the help of options;
//! and so are the comments of the code, which have the same readers.

use std::path::{Path, PathBuf};

/// The words to avoid, and the words to use instead.
const WRONG: [(&str, &str); 24] = [
    ("anew", "archaic: say \"again\""),
    (
        "beside",
        "read as \"besides\": say \"next to\" or \"compared with\"",
    ),
    (
        "come to stand",
        "no English for starting: say \"start\" or \"succeed\"",
    ),
    (
        "comes to stand",
        "no English for starting: say \"starts\" or \"succeeds\"",
    ),
    (
        "came to stand",
        "no English for starting: say \"started\" or \"succeeded\"",
    ),
    (
        "who waited for",
        "names no actor: say which worker or program waited",
    ),
    ("sign of life", "say \"ping\" or \"keepalive\""),
    (
        "place in the log",
        "PostgreSQL's term is \"LSN\"; a place in a WAL is no file",
    ),
    ("places in the log", "PostgreSQL's term is \"LSN\""),
    (
        "not whole any more",
        "piled negation: say \"damaged\" or \"incomplete\"",
    ),
    (
        "whatever becomes of",
        "headless: say what fails and what stays",
    ),
    (
        "gets beyond it",
        "say what cannot cross it: \"recovery cannot cross this gap\"",
    ),
    (
        "shall",
        "\"must\" for what the caller owes, the present tense for the rest",
    ),
    (
        "it is no path",
        "say \"no such path\": the file does not exist",
    ),
    (
        "is no WAL archive",
        "say \"is not a WAL archive\" and which file is missing",
    ),
    ("half as many again", "say \"half more\" or give the number"),
    (
        "on its way through",
        "the field's term is \"in transit\" or \"in flight\"",
    ),
    (
        "as far as nothing is in them",
        "say \"if they are still empty\"",
    ),
    (
        "whole and clean",
        "two colours of one word: say \"good\" or \"complete and unmarked\"",
    ),
    ("any more", "say \"no longer\""),
    (
        "under way",
        "the field's term is \"in flight\" or \"running\"",
    ),
    ("lets go", "retention \"removes\", a lock is \"released\""),
    ("let go", "retention \"removes\", a lock is \"released\""),
    ("passed over", "say \"skipped\""),
];

/// Words that mislead in a message or in help. Pages use some of them in a sense that a page explains.
const WRONG_IN_MESSAGES: [(&str, &str); 5] = [
    ("lies", "say \"is in\" or \"is below\""),
    ("lie", "say \"are in\" or \"are below\""),
    ("a mistake in this program", "say \"a bug\""),
    ("has not come", "say \"is in the future\""),
    ("not be judged", "say \"its state is unknown\""),
];

/// Words that begin a headless sentence, if it is not a question: "What shrinks by nothing is stored". In bold or
/// italic letters they begin a title.
const HEADLESS: [&str; 4] = ["What ", "Who ", "Whatever ", "Whoever "];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README.md and every page below docs/, by their paths from the root.
fn pages() -> Vec<String> {
    let mut found = vec!["README.md".to_owned()];
    for dir in ["docs", "docs/results"] {
        for entry in std::fs::read_dir(root().join(dir)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                found.push(format!("{dir}/{name}"));
            }
        }
    }
    found.sort();
    found
}

/// A text without the parts in backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("…")
}

/// The paragraphs, list items and rows of a page, each with its first line's number, without code.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    let mut fenced = false;
    for (number, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            fenced = !fenced;
        }
        if fenced || text.is_empty() || text.starts_with("```") {
            open = false;
            continue;
        }
        let item = text.starts_with("- ") || text.starts_with("* ");
        let alone = text.starts_with(['|', '#', '<']);
        match found.last_mut() {
            Some((_, block)) if open && !item && !alone => {
                block.push(' ');
                block.push_str(text);
            }
            _ => found.push((number + 1, text.to_owned())),
        }
        open = !alone;
    }
    found
        .iter()
        .map(|(n, block)| (*n, without_code(block)))
        .collect()
}

/// Whether `text` contains `phrase` as separate words.
fn has(text: &str, phrase: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, _)| {
        !inside(text[..at].chars().next_back()) && !inside(text[at + phrase.len()..].chars().next())
    })
}

/// The sentences of a paragraph or a list item.
fn sentences(block: &str) -> impl Iterator<Item = &str> {
    let marks = |c: char| c.is_ascii_digit() || ['.', '-', ' '].contains(&c);
    let block = block.strip_prefix("* ").unwrap_or(block);
    let block = block.trim_start_matches(marks);
    block
        .split_inclusive([' '])
        .scan((0, 0), move |(from, at), word| {
            *at += word.len();
            let ends = word.trim_end().ends_with(['.', '?', '!', ':']) || *at == block.len();
            let sentence = &block[*from..*at];
            if ends {
                *from = *at;
            }
            Some(ends.then_some(sentence.trim()))
        })
        .flatten()
}

/// The errors of a page.
fn judged(page: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, block) in blocks(page) {
        let lower = block.to_lowercase();
        for (phrase, why) in WRONG {
            if has(&lower, &phrase.to_lowercase()) {
                wrong.push(format!("{line}: \"{phrase}\": {why}"));
            }
        }
        if block.starts_with(['|', '#', '<']) {
            continue;
        }
        for sentence in sentences(&block) {
            let headless = HEADLESS.iter().any(|w| sentence.starts_with(w));
            if headless && !sentence.ends_with(['?', ':']) {
                wrong.push(format!(
                    "{line}: \"{sentence}\": names its subject too late: begin with a noun"
                ));
            }
        }
    }
    wrong
}

#[test]
fn no_page_has_words_that_mislead() {
    let mut wrong = Vec::new();
    let pages = pages();
    for page in &pages {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        wrong.extend(judged(&text).iter().map(|w| format!("{page}:{w}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(pages.len() > 20, "{pages:?}");
}

/// Every Rust file below `dir` that is part of a program, and not a test of one.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 4] = ["tests", "tests.rs", "examples", "benches"];
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if SKIPPED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        match entry.file_type().unwrap().is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            false => (),
        }
    }
}

/// The string literals of three words and more outside of the unit tests, and with `help` the documentation comments,
/// which become the help of options. Each has its line's number.
fn texts(code: &str, help: bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in longshore_tests::shipped(code).lines().enumerate() {
        if open.is_none() && line.trim_start().starts_with("//") {
            let comment = line.trim_start().strip_prefix("/// ");
            found.extend(comment.filter(|_| help).map(|c| (number + 1, c.to_owned())));
            continue;
        }
        let mut rest = line
            .trim_start()
            .replace("'\"'", "' '")
            .replace("'\\\"'", "' '");
        rest.push(' ');
        let mut escaped = false;
        for c in rest.chars() {
            match (&mut open, c) {
                (Some((_, text)), c) if escaped => {
                    text.push(c);
                    escaped = false;
                }
                (Some(_), '\\') => escaped = true,
                (Some(_), '"') => found.extend(open.take()),
                (Some((_, text)), c) => text.push(c),
                (None, '"') => open = Some((number + 1, String::new())),
                (None, _) => (),
            }
        }
    }
    found.retain(|(_, text)| text.split_whitespace().count() >= 3);
    found
}

/// The misleading words of a message.
fn misleading(text: &str) -> Vec<String> {
    let lower = without_code(text).to_lowercase();
    let lower = lower.split_whitespace().collect::<Vec<_>>().join(" ");
    let lists = WRONG.iter().chain(&WRONG_IN_MESSAGES);
    lists
        .filter(|(phrase, _)| has(&lower, &phrase.to_lowercase()))
        .map(|(phrase, why)| format!("\"{phrase}\": {why}"))
        .collect()
}

#[test]
fn no_message_and_no_help_has_words_that_mislead() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for path in &files {
        let help = path.components().any(|part| part.as_os_str() == "options");
        let code = std::fs::read_to_string(path).unwrap();
        for (line, text) in texts(&code, help) {
            judged += 1;
            let found = misleading(&text);
            wrong.extend(
                found
                    .iter()
                    .map(|w| format!("{}:{line}: {w}", path.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(judged > 2000, "{judged} texts in {} files", files.len());
}

#[test]
fn a_misleading_word_is_found_in_a_literal_and_in_help_and_not_in_comments_and_tests() {
    let code = "// it lies behind\nlet a = \"the set is made \\\n    anew\";\n/// It lies here unused.\nfn x() { '\"' }\nmod tests {\n\"it lies there now\"";
    let found = |help| -> Vec<usize> {
        let texts = texts(code, help);
        let wrong = texts
            .iter()
            .filter(|(_, text)| !misleading(text).is_empty());
        wrong.map(|(line, _)| *line).collect()
    };
    assert_eq!(found(false), [2]);
    assert_eq!(found(true), [2, 4]);
    assert!(misleading("use `longshore anew` once").is_empty());
}

#[test]
fn a_misleading_word_and_a_headless_sentence_are_found() {
    for clean in [
        "It is compared again, besides.",
        "`anew` is a name.",
        "```\nanew\n```",
        "# What is promised",
        "| What it costs | beneath |",
        "What does it cost? One call.",
        "What it checks:",
        "**What it checks.** All of it.",
        "It says what it checks. Nobody knows who waits.",
    ] {
        assert!(judged(clean).is_empty(), "{clean}: {:?}", judged(clean));
    }
    for wrong in [
        "It is made anew.",
        "Anew it is made",
        "| a row | beside another |",
        "The server does not come\nto stand.",
        "- What shrinks by nothing is stored.",
        "1. Who misses it waits.",
        "It ends. What is left goes.",
        "It ends.\nWhoever waits, waits.",
    ] {
        assert!(!judged(wrong).is_empty(), "{wrong}");
    }
}

/// The comments of a Rust file as the lines of a page; a line of code ends a paragraph.
fn comments(code: &str) -> String {
    let mut page = String::new();
    for line in code.lines() {
        let line = line.trim_start();
        let text = ["//!", "///", "//"]
            .iter()
            .find_map(|mark| line.strip_prefix(mark));
        page += text.unwrap_or_default().trim();
        page.push('\n');
    }
    page
}

/// Every Rust file below `dir`, tests too.
fn code_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => code_files(&entry.path(), found),
            false if entry.path().extension().is_some_and(|e| e == "rs") => {
                found.push(entry.path())
            }
            false => (),
        }
    }
}

#[test]
fn no_comment_has_words_that_mislead() {
    let (mut files, root) = (Vec::new(), root());
    for dir in ["crates", "tests"] {
        code_files(&root.join(dir), &mut files);
    }
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let found = judged(&comments(&std::fs::read_to_string(path).unwrap()));
        wrong.extend(found.iter().map(|w| format!("{name}:{w}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() > 500, "{}", files.len());
}

#[test]
fn a_misleading_word_is_found_in_a_comment_and_not_in_the_code_around_it() {
    let wrong =
        "let beside = 1;\n    /// It waits\n    /// beside it.\nfn anew() {}\n// It begins anew.";
    let found = judged(&comments(wrong));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("2: ") && found[1].starts_with("5: "),
        "{found:?}"
    );
    assert!(judged(&comments("let under_way = \"under way\";")).is_empty());
    assert_eq!(judged(&comments("/// What is left goes.")).len(), 1);
}
