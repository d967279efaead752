//! What `--version` says about the sources: commit and date.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Without a checkout, as in an unpacked archive of the sources.
pub const UNKNOWN: &str = "commit unknown";

/// The packager's own words, such as `0123456789ab 2027-01-31`.
pub fn given(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [] => UNKNOWN.to_owned(),
        words => format!("commit {}", words.join(", ")),
    }
}

/// The commit of the checkout at `root`, its date, and whether files differ from it.
pub fn of_checkout(root: &Path) -> String {
    let Some(found) = is_checkout(root)
        .then(|| {
            git(
                root,
                &["show", "-s", "--abbrev=12", "--format=%h, %cs", "HEAD"],
            )
        })
        .flatten()
    else {
        return UNKNOWN.to_owned();
    };
    // A failure here means that nothing is known about changes.
    let changed = git(root, &["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|text| !text.is_empty());
    match changed {
        true => format!("commit {found}, with changes"),
        false => format!("commit {found}"),
    }
}

/// Files that change with the commit.
pub fn watched(root: &Path) -> Vec<PathBuf> {
    if !is_checkout(root) {
        return Vec::new();
    }
    let path = |name: &str| git(root, &["rev-parse", "--git-path", name]).map(|p| root.join(p));
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]).and_then(|branch| path(&branch));
    [path("HEAD"), branch, path("packed-refs")]
        .into_iter()
        .flatten()
        .filter(|path| path.exists())
        .collect()
}

/// Sources that were unpacked inside another project's checkout are not that project's commit.
fn is_checkout(root: &Path) -> bool {
    let top = git(root, &["rev-parse", "--show-toplevel"]);
    let real = |path: &Path| path.canonicalize().ok();
    top.is_some_and(|top| real(Path::new(&top)) == real(root))
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
