//! docs/promises.md and docs/promises.proofs match, and every proof exists.
//!
//! A row of the page has a name, a promise and a state: `shown`, `measured`, `missed` or `not shown`. Below each name,
//! the file of proofs lists the tests (`longshore/tests/golden.rs: function`) and the headings of pages
//! (`docs/benchmarks.md: heading`) that show it, one per line.
//! Goal: the page and the file of proofs name the same promises, and no promise is called shown or measured without a
//! test or a heading.
//! Method: both files and the named tests and pages are read as text; made-up rows and proofs with each mistake must be
//! refused.
//! Not covered: whether a test shows what its promise says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A longer row is not readable in a table.
const LONGEST_ROW: usize = 200;

/// The lines that may begin a table of promises.
const HEADS: [&str; 2] = ["| promise | what it says | state |", "|---|---|---|"];

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file that a proof names, whatever its path is relative to.
fn text_of(path: &str) -> Option<String> {
    let tried = ["crates", "", "docs"].map(|base| root().join(base).join(path));
    tried.iter().find_map(|p| std::fs::read_to_string(p).ok())
}

/// Whether `code` makes tests of the function `name`, one for each kind of object store.
fn is_over_each_store(code: &str, name: &str) -> bool {
    let lists = code.split("over_each_store! {").skip(1);
    let mut names = lists.flat_map(|rest| rest.split('}').next().unwrap_or_default().lines());
    names.any(|line| line.trim() == name)
}

/// Whether `code` has a test called `name` that is not ignored.
fn has_test(code: &str, name: &str) -> bool {
    if is_over_each_store(code, name) {
        return true;
    }
    let head = format!("fn {name}(");
    let lines: Vec<_> = code.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(i, line)| {
        let attributes = || {
            let above = lines[..i].iter().rev();
            above.take_while(|l| l.starts_with("#[") || l.starts_with("//"))
        };
        // A test that runs only on request proves nothing, so an ignored one does not count.
        let is_ignored = attributes().any(|l| l.starts_with("#[ignore"));
        line.starts_with(&head) && attributes().any(|l| *l == "#[test]") && !is_ignored
    })
}

/// Whether a page has this heading, at any level and with any markup.
fn has_heading(page: &str, name: &str) -> bool {
    let plain = |text: &str| text.replace(['`', '*', '\\'], "").trim().to_owned();
    page.lines()
        .filter(|l| l.starts_with('#'))
        .any(|l| plain(l.trim_start_matches('#')) == plain(name))
}

/// The kind of a proof.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Test,
    Heading,
}

/// The kind of a proof, or its fault.
fn checked(proof: &str) -> Result<Kind, String> {
    let (path, name) = proof
        .split_once(": ")
        .ok_or_else(|| format!("`{proof}` does not name a test or a heading after its file"))?;
    let kind = match Path::new(path).extension().and_then(|e| e.to_str()) {
        Some("rs") => Kind::Test,
        Some("md") => Kind::Heading,
        _ => return Err(format!("{path} is neither a Rust file nor a page")),
    };
    let text = text_of(path).ok_or_else(|| format!("{path} does not exist"))?;
    match kind {
        Kind::Test if !has_test(&text, name) => {
            Err(format!("{path} has no test {name} that runs unasked"))
        }
        Kind::Heading if !has_heading(&text, name) => {
            Err(format!("{path} has no heading `{name}`"))
        }
        found => Ok(found),
    }
}

/// A promise's name and state.
fn row(line: &str) -> Result<(&str, &str), String> {
    let cells = line.strip_prefix("| ").and_then(|l| l.strip_suffix(" |"));
    let cells: Vec<_> = cells
        .ok_or("is not a whole row")?
        .split(" | ")
        .map(str::trim)
        .collect();
    let [name, promise, state] = cells[..] else {
        return Err("has not three cells".into());
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("`{name}` is no name of a promise"));
    }
    if promise.is_empty() {
        return Err("promises nothing".into());
    }
    if line.chars().count() > LONGEST_ROW {
        return Err(format!("is longer than {LONGEST_ROW} characters"));
    }
    Ok((name, state))
}

/// The text of a state after its `word`, if it is that state.
fn after<'a>(state: &'a str, word: &str) -> Option<&'a str> {
    let rest = state.strip_prefix(word)?;
    (rest.is_empty() || rest.starts_with([' ', ';', ':', ','])).then_some(rest)
}

/// The proof that a state lacks to be credible.
fn wrong_with(state: &str, proofs: &[Kind]) -> Option<String> {
    let has = |kind| proofs.contains(&kind);
    if after(state, "shown").is_some() {
        return (!has(Kind::Test)).then(|| "is called shown, and no test is named".into());
    }
    if after(state, "measured").is_some() || after(state, "missed").is_some() {
        return (!has(Kind::Heading)).then(|| "has no heading of a measurement".into());
    }
    match after(state, "not shown") {
        Some(reason) if reason.len() > 2 => None,
        Some(_) => Some("does not say why it is not shown".into()),
        None => {
            Some("says neither `shown`, `measured`, `missed` nor `not shown` in its state".into())
        }
    }
}

/// The kinds of the proofs of each promise in a file of proofs; its faults go to `wrong`.
fn read_proofs(proofs: &str, wrong: &mut Vec<String>) -> BTreeMap<String, Vec<Kind>> {
    let mut found = BTreeMap::<String, Vec<Kind>>::new();
    let mut name: Option<String> = None;
    let mut seen = BTreeSet::new();
    for (number, line) in proofs.lines().enumerate() {
        let mut tell = |what: String| {
            wrong.push(format!("docs/promises.proofs:{}: {what}", number + 1));
        };
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if text == line {
            if found.insert(text.into(), Vec::new()).is_some() {
                tell(format!("{text} is here twice"));
            }
            name = Some(text.into());
            seen.clear();
            continue;
        }
        let Some(kinds) = name.as_ref().and_then(|n| found.get_mut(n)) else {
            tell("a proof of no promise".into());
            continue;
        };
        if !seen.insert(text) {
            tell(format!("`{text}` is here twice"));
        }
        match checked(text) {
            Ok(kind) => kinds.push(kind),
            Err(what) => tell(what),
        }
    }
    found
}

/// The number of promises, and the faults of a page and its file of proofs.
fn judged(page: &str, proofs: &str) -> (usize, Vec<String>) {
    let mut wrong = Vec::new();
    let mut found = read_proofs(proofs, &mut wrong);
    let mut names = BTreeSet::new();
    for (number, line) in page.lines().enumerate() {
        let mut tell =
            |what: String| wrong.push(format!("docs/promises.md:{}: {what}", number + 1));
        if HEADS.contains(&line) {
            continue;
        }
        if !line.starts_with('|') {
            if line.contains(" | ") || line.trim_start().starts_with('|') {
                tell("is a row that does not begin with its bar".into());
            }
            continue;
        }
        let (name, state) = match row(line) {
            Ok(cells) => cells,
            Err(what) => {
                tell(what);
                continue;
            }
        };
        if !names.insert(name) {
            tell(format!("{name} is here twice"));
            continue;
        }
        let kinds = found.remove(name);
        if let Some(what) = wrong_with(state, kinds.as_deref().unwrap_or_default()) {
            tell(format!("{name} {what}"));
        }
        if kinds.is_some_and(|k| k.is_empty()) {
            tell(format!("{name} is in docs/promises.proofs without a proof"));
        }
    }
    wrong.extend(
        found
            .keys()
            .map(|n| format!("docs/promises.proofs: {n} is no promise of the page")),
    );
    (names.len(), wrong)
}

#[test]
fn every_promise_has_proofs_that_exist_and_every_proof_a_promise() {
    let read = |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let (promises, wrong) = judged(&read("promises.md"), &read("promises.proofs"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A page without a recognised row would have no faults either.
    assert!(promises > 250, "{promises} promises");
}

#[test]
fn a_proof_that_names_what_does_not_exist_is_found() {
    let shown = |proof: &str| {
        judged(
            "| it-works | It works. | shown |",
            &format!("it-works\n  # a note\n  longshore/tests/cli/promises.rs: {OWN}\n{proof}"),
        )
        .1
        .join("; ")
    };
    const OWN: &str = "a_proof_that_names_what_does_not_exist_is_found";
    let here = "longshore/tests/cli/promises.rs";
    assert_eq!(shown(""), "");
    assert_eq!(shown(&format!("  crates/{here}: {OWN}")), "");
    assert_eq!(
        shown("  docs/promises.md: What is promised, and how it is shown"),
        ""
    );
    for wrong in [
        format!("  {here}: root"),
        format!("  {here}: {OWN}, root"),
        format!("  {here}: {OWN}_too"),
        format!("  {here}: {OWN}"),
        format!("  {here}"),
        format!("  longshore/tests/cli/promise.rs: {OWN}"),
        "  docs/promises.md: What is promised".into(),
        "  docs/promises.proofs: it-works".into(),
        "  believe us".into(),
        format!("it-works\n  {here}: {OWN}"),
        format!("it-sleeps\n  {here}: {OWN}"),
        format!("{here}: {OWN}"),
    ] {
        assert_ne!(shown(&wrong), "", "{wrong}");
    }
}

#[test]
fn a_row_that_is_too_long_or_without_a_proof_is_found() {
    let test =
        "  longshore/tests/cli/promises.rs: a_row_that_is_too_long_or_without_a_proof_is_found";
    let heading = "  docs/promises.md: What is promised, and how it is shown";
    let with = |row: &str, proofs: &str| judged(row, &format!("it-works\n{proofs}\n")).1.join("; ");
    let without = |row: &str| judged(row, "").1.join("; ");
    let state = |state: &str| format!("| it-works | It works. | {state} |");

    assert_eq!(with(&state("shown; not at night"), test), "");
    assert_eq!(with(&state("measured: 3 of 4"), heading), "");
    assert_eq!(with(&state("missed in 3 of 4 cells"), heading), "");
    assert_eq!(without(&state("not shown: nobody tried")), "");

    assert_ne!(with(&state("shown"), heading), "");
    assert_ne!(with(&state("measured"), test), "");
    assert_ne!(with(&state("missed"), test), "");
    assert_ne!(with(&state("believe us"), test), "");
    assert_ne!(with(&state("showning"), test), "");
    assert_ne!(with(&state("not shown: nobody tried"), ""), "");
    assert_ne!(without(&state("not shown")), "");
    assert_ne!(without(&state("not shown: ")), "");
    for bare in ["shown", "measured", "missed"] {
        assert_ne!(without(&state(bare)), "", "{bare}");
    }

    let row = state("shown");
    assert_eq!(with(&row, test), "");
    assert_ne!(with(&format!("{row}\n{row}"), test), "", "one name twice");
    let long = "It works. ".repeat(20);
    for wrong in [
        format!("| it-works | {} | shown |", long.trim()),
        "| it-works | shown |".into(),
        "| it-works | It works. | shown | too |".into(),
        "| it works | It works. | shown |".into(),
        "| it-works |  | shown |".into(),
        "| it-works | It works. | shown".into(),
        "it-works | It works. | shown |".into(),
        " | it-works | It works. | shown |".into(),
    ] {
        assert_ne!(with(&wrong, test), "", "{wrong}");
        // Also if the row does not have to account for a proof.
        assert_ne!(without(&wrong), "", "{wrong}");
    }
}

/// Goal: each row of docs/security.md names promises that are shown: also what nothing stands against is known by a test, and no row is left to
/// belief.
#[test]
fn the_security_page_names_promises_that_are_shown() {
    let read = |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let (promises, page) = (read("promises.md"), read("security.md"));
    let is_shown = |name: &str| {
        let head = format!("| {name} | ");
        let row = promises.lines().find(|line| line.starts_with(&head));
        row.and_then(|row| row.rsplit(" | ").next())
            .is_some_and(|state| state.starts_with("shown"))
    };
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| what |"))
        .collect();
    assert!(rows.len() > 50, "the page lost its rows");
    assert!(!is_shown("nothing"));
    // In the text, a name in brackets is one of a row, too.
    let named = page
        .split("(`")
        .skip(1)
        .filter_map(|rest| rest.split_once("`)"));
    let is_name = |name: &&str| {
        name.contains('-') && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    };
    for name in named.map(|(name, _)| name).filter(is_name) {
        assert!(
            is_shown(name),
            "{name} is no row of promises.md that is shown"
        );
    }
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for name in last.split(", ") {
            assert!(is_shown(name.trim_matches('`')), "{row}");
        }
    }
    // Behind each name that begins with `open-` is a test, and the page has the name.
    let proofs = read("promises.proofs");
    let open = promises.lines().filter_map(|row| row.strip_prefix("| "));
    let open = open.filter_map(|row| row.split(" | ").next());
    let open: Vec<&str> = open.filter(|name| name.starts_with("open-")).collect();
    assert!(open.len() > 10, "{open:?}");
    for name in open {
        assert!(page.contains(&format!("`{name}`")), "{name} is on no page");
        let below = proofs.lines().skip_while(|line| *line != name).skip(1);
        let mut below = below.take_while(|line| line.starts_with(' '));
        let is_test = |line: &str| line.contains(".rs: ");
        assert!(below.any(is_test), "no test plays the attacker of {name}");
    }
}
