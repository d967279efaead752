//! Which names below a [`crate::Dir`] are valid; the rule is the same for every implementation.
//!
//! A name is any number of plain components: bytes other than `/` and NUL. Only its text is judged, before any system
//! call, so a hostile name never reaches a file system. Whether a component *is* a symbolic link only the file system
//! knows; each implementation refuses links itself.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// `name` without superfluous `.` and `/`; empty for the directory itself.
///
/// An absolute name, a `..` component or a NUL byte is `InvalidInput`.
pub(crate) fn normal(name: &Path) -> io::Result<Cow<'_, Path>> {
    let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if name.as_os_str().as_bytes().contains(&0) {
        return refuse("a name must not contain a NUL byte");
    }
    let mut len_bytes = 0;
    for component in name.components() {
        match component {
            Component::Normal(part) => len_bytes += part.len() + 1,
            Component::CurDir => {}
            _ => return refuse("a name must not leave its directory"),
        }
    }
    // If the joined components are as long as the name, the name needs no change.
    Ok(
        match len_bytes.saturating_sub(1) == name.as_os_str().len() {
            true => Cow::Borrowed(name),
            false => Cow::Owned(
                name.components()
                    .filter(|c| *c != Component::CurDir)
                    .collect(),
            ),
        },
    )
}

/// The directory part and the last component of a normal name; `None` for the directory itself.
pub(crate) fn split(normal: &Path) -> Option<(&Path, &OsStr)> {
    Some((normal.parent()?, normal.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass_unchanged() {
        for name in ["", "a", "a/b/c", "..a", "a..", "...", "a\nb", " "] {
            assert!(
                matches!(normal(Path::new(name)).unwrap(), Cow::Borrowed(n) if n == Path::new(name))
            );
        }
        let odd = Path::new(OsStr::from_bytes(b"\xff\xfe/\x01"));
        assert_eq!(normal(odd).unwrap(), odd);
    }

    #[test]
    fn dots_and_doubled_slashes_are_dropped() {
        for (name, plain) in [
            ("./a", "a"),
            ("a/./b", "a/b"),
            ("a//b", "a/b"),
            ("a/", "a"),
            (".", ""),
        ] {
            assert_eq!(normal(Path::new(name)).unwrap().as_os_str(), plain);
        }
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["..", "../a", "a/..", "a/../b", "/", "/a", "//a", "a\0b"] {
            assert_eq!(
                normal(Path::new(name)).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{name:?}"
            );
        }
    }
}
