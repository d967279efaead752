//! Names that a restore changes (MOVE), and the places that it takes in its target.
//!
//! Invariants
//! - No two moves have one source or one target, and no place is outside of the target.
//! - A log goes with its database, unless it is moved by itself. Only a regular file is a log: a directory of such a name keeps
//!   it, with what is below.
//!
//! Leaves to others: making way for what comes (`place/`), and which file is a log of which (`sides.rs`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_media::EntryKind;

use crate::error::Error;
use crate::sides::is_side_of;

/// Linux's limit on one name, in bytes (NAME_MAX of `limits.h`).
const NAME_MAX: usize = 255;

/// Refuses moves that leave the target or contradict each other. Errors: [`Error::BadMove`].
pub fn check_moves(moves: &[(PathBuf, PathBuf)]) -> Result<(), Error> {
    let safe = |p: &Path| longshore_media::manifest::safe_path(p.as_os_str().as_bytes()).is_ok();
    let (mut sources, mut targets) = (HashSet::new(), HashSet::new());
    for (from, to) in moves {
        let bad = |what| Error::BadMove {
            from: from.clone(),
            to: to.clone(),
            what,
        };
        if !safe(from) || !safe(to) {
            return Err(bad("a path is absolute, empty or contains `.` or `..`"));
        }
        if to.iter().any(|name| name.len() > NAME_MAX) {
            return Err(bad("a name is longer than 255 bytes"));
        }
        if !targets.insert(to) || !sources.insert(from) {
            return Err(bad("a path is named twice"));
        }
    }
    Ok(())
}

/// Whether a restore of only these paths takes `path` of the set: all if none is named, else what is at or below one of
/// them, and the log of a database that is named.
pub fn chosen(only: &[PathBuf], path: &Path) -> bool {
    let takes = |only: &PathBuf| path.starts_with(only) || is_side_of(path, only);
    only.is_empty() || only.iter().any(takes)
}

/// Whether an entry of this kind can be the log of a database.
pub fn may_be_log(kind: &EntryKind) -> bool {
    matches!(kind, EntryKind::File | EntryKind::HardLink { .. })
}

/// As [`chosen`], for an entry of which it is known whether it may be a log ([`may_be_log`]).
pub fn chosen_entry(only: &[PathBuf], path: &Path, may_be_log: bool) -> bool {
    match may_be_log {
        true => chosen(only, path),
        false => only.is_empty() || only.iter().any(|only| path.starts_with(only)),
    }
}

/// The path of an entry of the set after the moves: the longest moved ancestor decides. The log of a moved database goes with
/// it, if the entry may be one ([`may_be_log`]).
pub fn moved(moves: &[(PathBuf, PathBuf)], path: &Path, may_be_log: bool) -> PathBuf {
    let Some((from, to)) = deciding(moves, path, may_be_log) else {
        return path.into();
    };
    match path.strip_prefix(from) {
        Ok(rest) if !rest.as_os_str().is_empty() => to.join(rest),
        Ok(_) => to.clone(),
        Err(_) => {
            let suffix = &path.as_os_str().as_bytes()[from.as_os_str().len()..];
            let mut side = to.as_os_str().to_owned();
            side.push(OsStr::from_bytes(suffix));
            side.into()
        }
    }
}

/// The name in the target that an entry of the set takes as a whole, with everything below it: its topmost name, or what was
/// asked for by itself. A name that stands there is replaced; directories above it stay.
pub fn place_of(
    only: &[PathBuf],
    moves: &[(PathBuf, PathBuf)],
    path: &Path,
    may_be_log: bool,
) -> PathBuf {
    let len = |path: &Path| path.as_os_str().len();
    let named = only.iter().filter(|only| path.starts_with(only));
    let named = named.min_by_key(|only| len(only)).map(PathBuf::as_path);
    let top = path.iter().next().map_or(path, Path::new);
    let asked = match named {
        Some(named) => named,
        None if only.is_empty() => top,
        // The log of a database that was named.
        None => path,
    };
    match deciding(moves, path, may_be_log) {
        Some((from, to)) if len(from) > len(asked) => match path.starts_with(from) {
            true => to.clone(),
            false => moved(moves, path, may_be_log),
        },
        // A name with others below it is a directory.
        _ => moved(moves, asked, may_be_log && asked == path),
    }
}

fn deciding<'a>(
    moves: &'a [(PathBuf, PathBuf)],
    path: &Path,
    may_be_log: bool,
) -> Option<&'a (PathBuf, PathBuf)> {
    let decides = |from: &Path| path.starts_with(from) || may_be_log && is_side_of(path, from);
    moves
        .iter()
        .filter(|(from, _)| decides(from))
        .max_by_key(|(from, _)| from.as_os_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(list: &[(&str, &str)]) -> Vec<(PathBuf, PathBuf)> {
        let pair = |(from, to): &(&str, &str)| (from.into(), to.into());
        list.iter().map(pair).collect()
    }

    #[test]
    fn the_log_of_a_database_goes_with_it_and_no_other_file_does() {
        let moves = moves(&[("app.db", "new/copy.db"), ("d", "e"), ("d/x.db", "y.db")]);
        for (path, to) in [
            ("app.db", "new/copy.db"),
            ("app.db-wal", "new/copy.db-wal"),
            ("app.db-journal", "new/copy.db-journal"),
            ("app.db-shm", "new/copy.db-shm"),
            ("app.db-wal2", "app.db-wal2"),
            ("app.db2", "app.db2"),
            ("d/x.db", "y.db"),
            ("d/x.db-wal", "y.db-wal"),
            ("d/z.db-wal", "e/z.db-wal"),
        ] {
            assert_eq!(
                moved(&moves, Path::new(path), true),
                Path::new(to),
                "{path}"
            );
        }
        // A name that is moved by itself goes where it was sent.
        let moves = [moves, self::moves(&[("app.db-wal", "log")])].concat();
        assert_eq!(
            moved(&moves, Path::new("app.db-wal"), true),
            Path::new("log")
        );
        let only = [PathBuf::from("app.db")];
        for (path, is_taken) in [
            ("app.db", true),
            ("app.db-wal", true),
            ("app.db-journal", true),
            ("app.db.old", false),
            ("other-wal", false),
        ] {
            assert_eq!(chosen(&only, Path::new(path)), is_taken, "{path}");
            assert_eq!(chosen_entry(&only, Path::new(path), true), is_taken);
        }
        // A directory of a log's name is somebody's, and would come without what is below it.
        for (path, is_taken) in [
            ("app.db", true),
            ("app.db/x", true),
            ("app.db-journal", false),
        ] {
            assert_eq!(
                chosen_entry(&only, Path::new(path), false),
                is_taken,
                "{path}"
            );
        }
    }

    #[test]
    fn only_what_was_asked_for_takes_a_place_in_the_target() {
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str, &'a str);
        let cases: [Case<'_>; 11] = [
            (&[], &[], "etc/one", "etc"),
            (&["etc/one"], &[], "etc/one", "etc/one"),
            (&["etc"], &[], "etc/one", "etc"),
            (&["etc/one", "etc"], &[], "etc/one", "etc"),
            (&["d/app.db"], &[], "d/app.db-wal", "d/app.db-wal"),
            (&[], &[("etc", "a/b")], "etc/one", "a/b"),
            (&[], &[("etc/one", "a/b")], "etc/one", "a/b"),
            (&[], &[("etc/one", "a/b")], "etc/two", "etc"),
            (&[], &[("d/app.db", "x/y.db")], "d/app.db-wal", "x/y.db-wal"),
            (&["etc/sub"], &[("etc", "a")], "etc/sub/one", "a/sub"),
            (&["etc"], &[("etc/sub", "a/b")], "etc/sub/one", "a/b"),
        ];
        for (only, list, path, place) in cases {
            let only: Vec<PathBuf> = only.iter().map(PathBuf::from).collect();
            let found = place_of(&only, &moves(list), Path::new(path), true);
            assert_eq!(found, Path::new(place), "{only:?} {list:?} {path}");
        }
    }

    /// Goal: what only has the name of a log stays where it is when the database of that name is moved, and all of it.
    #[test]
    fn a_directory_with_the_name_of_a_log_stays_together_when_the_database_is_moved() {
        let moves = moves(&[("app.db", "x"), ("d/app.db", "d/x")]);
        for only in [&[][..], &[PathBuf::from("app.db-journal")]] {
            for (path, may_be_log) in [
                ("app.db-journal", false),
                ("app.db-journal/one", true),
                ("app.db-journal/sub", false),
            ] {
                let path = Path::new(path);
                assert_eq!(moved(&moves, path, may_be_log), path);
                let place = place_of(only, &moves, path, may_be_log);
                assert_eq!(place, Path::new("app.db-journal"), "{path:?} {only:?}");
            }
        }
        let (below, link) = (Path::new("d/app.db-wal/one"), Path::new("d/app.db-wal"));
        assert_eq!(moved(&moves, below, true), below);
        assert_eq!(place_of(&[], &moves, below, true), Path::new("d"));
        assert_eq!(moved(&moves, link, false), link);
        let link = EntryKind::Symlink { target: "y".into() };
        assert!(!may_be_log(&link) && !may_be_log(&EntryKind::Dir));
        let name = EntryKind::HardLink { target: "y".into() };
        assert!(may_be_log(&name) && may_be_log(&EntryKind::File));
    }
}
