//! The documentation holds together: links lead somewhere, the index is whole, the pictures are what is drawn.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Files directly in `dir`, by their ending.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect()
}

/// The pages that people read, without those of crates' assets.
fn pages() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut found = files(&root(), "md");
    found.extend(files(&docs, "md"));
    found.extend(files(&docs.join("decisions"), "md"));
    for page in ["contrib/systemd", "tests/golden", "tests/clients"] {
        found.push(root().join(page).join("README.md"));
    }
    found
}

/// The lines of a page that are not inside a fence.
fn prose(page: &str) -> Vec<&str> {
    let mut inside = false;
    page.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .collect()
}

/// The targets of a page's links and pictures, as they are written.
fn links(page: &str) -> Vec<String> {
    let joined = prose(page).join("\n");
    let after = joined.split("](").skip(1);
    after
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(&line.trim_start_matches('#').replace(['`', '\\'], "")))
        .collect()
}

/// What is wrong with a link of `page`; nothing where it leads to the web.
fn wrong_with(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        _ => page.parent().unwrap().join(path),
    };
    if !target.exists() {
        return Some(format!("{link}: no such file"));
    }
    let known = heading.is_empty() || anchors(&text(&target)).contains(heading);
    (!known).then(|| format!("{link}: no such heading"))
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading_that_exist() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for link in links(&text(&page)) {
            count += 1;
            let found = wrong_with(&page, &link);
            wrong.extend(found.map(|w| format!("{}: {w}", page.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "only {count} links were found");
}

#[test]
fn a_link_to_nowhere_is_found() {
    let page = root().join("docs/README.md");
    for good in [
        "format.md",
        "../README.md",
        "format.md#blocks",
        "#documentation",
        "https://x.y/",
    ] {
        assert_eq!(wrong_with(&page, good), None);
    }
    for bad in [
        "formats.md",
        "format.md#block",
        "#index",
        "README.md/format.md",
    ] {
        assert!(wrong_with(&page, bad).is_some(), "{bad}");
    }
    assert_eq!(
        links("a [b](c.md) and ![d](e.svg)\n```\n[f](g)\n```\n"),
        ["c.md", "e.svg"]
    );
}

#[test]
fn the_indexes_name_every_page() {
    for (index, dir) in [
        ("docs/README.md", "docs"),
        ("docs/decisions/README.md", "docs/decisions"),
    ] {
        let linked: BTreeSet<String> = links(&text(&root().join(index))).into_iter().collect();
        for page in files(&root().join(dir), "md") {
            let name = page.file_name().unwrap().to_str().unwrap();
            assert!(
                name == "README.md" || linked.contains(name),
                "{index} does not name {name}"
            );
        }
    }
}

#[test]
fn every_picture_is_what_the_script_draws_and_is_shown_on_a_page() {
    let script = root().join("docs/pictures/draw.py");
    let drawn = Command::new("python3")
        .arg(&script)
        .arg("--check")
        .output()
        .unwrap();
    assert!(
        drawn.status.success(),
        "{}",
        String::from_utf8_lossy(&drawn.stderr)
    );
    let shown: String = pages().iter().map(|page| text(page)).collect();
    for picture in files(&root().join("docs/pictures"), "svg") {
        let name = picture.file_name().unwrap().to_str().unwrap();
        assert!(
            shown.contains(&format!("pictures/{name})")),
            "no page shows {name}"
        );
    }
}
