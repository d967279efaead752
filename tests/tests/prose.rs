//! No page and no README has words that this project has found to mislead its readers.
//!
//! Many readers read English as a second language, at three in the morning. The list has only what is wrong wherever it
//! stands; code, tables' code and headings are not looked at for the beginnings of sentences.

use std::path::{Path, PathBuf};

/// What is not written, and what is written instead.
const WRONG: [(&str, &str); 18] = [
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
];

/// Words with which a sentence that is no question has no head: "What shrinks by nothing is stored". In bold or italic
/// letters they begin a title.
const HEADLESS: [&str; 4] = ["What ", "Who ", "Whatever ", "Whoever "];

/// Pages that nobody has rewritten yet. The list only gets shorter: a page on it that is clean fails the test, too.
const NOT_YET: [&str; 0] = [];

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

/// A text without what stands in backticks.
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

/// Whether `text` has `phrase` as words of its own.
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

/// What is wrong with a page.
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
fn no_page_has_words_that_mislead_and_the_list_of_those_not_rewritten_gets_shorter() {
    let mut wrong = Vec::new();
    let pages = pages();
    for page in &pages {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let found = judged(&text);
        match NOT_YET.contains(&page.as_str()) {
            true if found.is_empty() => wrong.push(format!("{page} is clean: take it off NOT_YET")),
            true => (),
            false => wrong.extend(found.iter().map(|w| format!("{page}:{w}"))),
        }
    }
    for page in NOT_YET {
        assert!(
            pages.iter().any(|p| p == page),
            "{page} is not there any longer"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(pages.len() > 20, "{pages:?}");
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
