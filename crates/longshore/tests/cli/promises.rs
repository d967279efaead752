//! docs/promises.md names tests and recorded measurements that exist.
//!
//! A row's last cell says in backticks where a promise is shown: `longshore/tests/golden.rs: function` (from
//! `crates/` or from the repository's root, several functions divided by commas) or `docs/benchmarks.md: heading`.
//! Other backticks mean nothing here. A row that names nothing says `not shown` or `missed`.

use std::path::{Path, PathBuf};

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file that a row names, wherever its path begins.
fn text_of(path: &str) -> Option<String> {
    let tried = ["crates", "", "docs"].map(|base| root().join(base).join(path));
    tried.iter().find_map(|p| std::fs::read_to_string(p).ok())
}

/// Whether `code` has a test called `name` that runs unasked.
fn has_test(code: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<_> = code.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(i, line)| {
        let attributes = || {
            let above = lines[..i].iter().rev();
            above.take_while(|l| l.starts_with("#[") || l.starts_with("//"))
        };
        line.starts_with(&head)
            && attributes().any(|l| *l == "#[test]")
            && !attributes().any(|l| l.starts_with("#[ignore"))
    })
}

/// Whether a page has this heading, whatever its level and its marks.
fn has_heading(page: &str, name: &str) -> bool {
    let plain = |text: &str| text.replace(['`', '*', '\\'], "").trim().to_owned();
    page.lines()
        .filter(|l| l.starts_with('#'))
        .any(|l| plain(l.trim_start_matches('#')) == plain(name))
}

/// What is wrong with one reference; nothing if the words between the backticks are none.
fn wrong_with(reference: &str) -> Option<String> {
    let (path, names) = reference.split_once(": ").unwrap_or((reference, ""));
    let kind = Path::new(path).extension()?.to_str()?;
    let found = match kind {
        "rs" | "md" | "py" | "sh" if !path.contains(char::is_whitespace) => text_of(path),
        _ => return None,
    };
    let Some(text) = found else {
        return Some(format!("{path} does not exist"));
    };
    match kind {
        "rs" if names.is_empty() => Some(format!("{path}: which of its tests?")),
        "rs" => names
            .split(", ")
            .find(|name| !has_test(&text, name))
            .map(|name| format!("{path} has no test {name} that runs unasked")),
        "md" if !has_heading(&text, names) => Some(format!("{path} has no heading `{names}`")),
        _ => None,
    }
}

/// What is wrong with one row of a table.
fn wrong_in_row(row: &str) -> Vec<String> {
    let Some(cells) = row.strip_prefix('|').and_then(|r| r.strip_suffix('|')) else {
        return vec!["is not a whole row".into()];
    };
    let Some((promise, shown)) = cells.split_once(" | ") else {
        return vec!["has no two cells".into()];
    };
    if promise.trim().is_empty() || shown.contains(" | ") {
        return vec!["has not two cells".into()];
    }
    let ticked: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
    let named = ticked.iter().any(|t| t.contains(": "));
    let lacking = ["not shown", "missed"].iter().any(|w| shown.contains(w));
    let mut wrong: Vec<_> = ticked.into_iter().filter_map(wrong_with).collect();
    if !named && !lacking {
        wrong.push("names neither a test nor a measurement, and does not say so".into());
    }
    wrong
}

#[test]
fn every_test_and_heading_that_the_page_of_promises_names_exists() {
    let page = std::fs::read_to_string(root().join("docs/promises.md")).unwrap();
    let mut wrong = Vec::new();
    let mut rows = 0;
    for (number, line) in page.lines().enumerate() {
        let head = line.starts_with("|---") || line.starts_with("| promise |");
        if line.starts_with('|') && !head {
            rows += 1;
            let found = wrong_in_row(line).into_iter();
            wrong.extend(found.map(|w| format!("docs/promises.md:{}: {w}", number + 1)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(page.lines().filter(|l| l.starts_with("|---")).count(), 5);
    println!("{rows} promises");
}

#[test]
fn a_row_that_names_what_does_not_exist_is_found() {
    let shown = |by: &str| wrong_in_row(&format!("| it works | {by} |")).join("; ");
    let here = "longshore/tests/cli/promises.rs";
    let own = "a_row_that_names_what_does_not_exist_is_found";
    assert_eq!(shown(&format!("`{here}: {own}`")), "");
    assert_eq!(shown(&format!("as `crates/{here}: {own}` shows")), "");
    assert_eq!(
        shown("`docs/promises.md: What is promised, and how it is shown`"),
        ""
    );
    assert_eq!(shown("**missed**: 79 of 85 %"), "");
    for wrong in [
        format!("`{here}: {own}, root`"),
        format!("`{here}: {own}_too`"),
        format!("`{here}`"),
        format!("`longshore/tests/cli/promise.rs: {own}`"),
        "`docs/promises.md: What is promised`".into(),
        "believe us".into(),
        String::new(),
    ] {
        assert_ne!(shown(&wrong), "", "{wrong}");
    }
}
