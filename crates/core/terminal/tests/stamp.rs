//! `--version` names the commit that was built, or says that the commit is unknown.

#[path = "../build/stamp.rs"]
mod stamp;

use std::path::Path;
use std::process::Command;

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(dir)
        .args(["-c", "user.name=n", "-c", "user.email=e"]);
    command
        .args(args)
        .env("GIT_COMMITTER_DATE", "2027-01-31T12:00:00Z");
    let output = command
        .output()
        .expect("git is not here; run scripts/setup.sh");
    assert!(output.status.success(), "{args:?}: {output:?}");
}

#[test]
fn a_checkout_is_named_by_commit_and_date_and_whether_files_differ() {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q"]);
    std::fs::write(dir.path().join("a"), "1").unwrap();
    git(dir.path(), &["add", "a"]);
    git(dir.path(), &["commit", "-q", "-m", "first"]);
    let clean = stamp::of_checkout(dir.path());
    let (commit, date) = clean.split_once(", ").unwrap();
    assert_eq!(date, "2027-01-31");
    let hash = commit.strip_prefix("commit ").unwrap();
    assert!(
        hash.len() == 12 && hash.chars().all(|c| c.is_ascii_hexdigit()),
        "{hash}"
    );
    std::fs::write(dir.path().join("untracked"), "").unwrap();
    assert_eq!(stamp::of_checkout(dir.path()), clean);
    std::fs::write(dir.path().join("a"), "2").unwrap();
    assert_eq!(
        stamp::of_checkout(dir.path()),
        format!("{clean}, with changes")
    );
    let watched = stamp::watched(dir.path());
    assert!(
        watched.iter().any(|path| path.ends_with("HEAD")),
        "{watched:?}"
    );
    assert!(
        watched
            .iter()
            .any(|path| path.starts_with(dir.path().join(".git/refs/heads")))
    );
    // Sources that were unpacked inside another checkout.
    std::fs::create_dir(dir.path().join("inner")).unwrap();
    assert_eq!(
        stamp::of_checkout(&dir.path().join("inner")),
        stamp::UNKNOWN
    );
    assert!(stamp::watched(&dir.path().join("inner")).is_empty());
}

#[test]
fn without_a_checkout_the_packagers_words_count() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(stamp::of_checkout(dir.path()), stamp::UNKNOWN);
    assert_eq!(
        stamp::given("0123456789ab 2027-01-31"),
        "commit 0123456789ab, 2027-01-31"
    );
    assert_eq!(stamp::given(" "), stamp::UNKNOWN);
}
