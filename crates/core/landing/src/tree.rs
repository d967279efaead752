//! Removes trees without following links and without recursion.
//!
//! Invariants
//! - What is mounted in a tree is not entered: the removal ends with an error, and the mounted file system keeps its files.
//!
//! Leaves to others: refusing such a tree before anything is changed (`mounts.rs`).

use std::io::ErrorKind;
use std::path::Path;

use longshore_io::{Attributes, Dir, FileKind};

/// Attributes with which we may list and empty a directory.
pub const OPEN_TO_US: Attributes = Attributes {
    mode: Some(0o700),
    owner: None,
    mtime_ns: None,
};

/// Linux's errno for a name that is longer than the file system allows.
const ENAMETOOLONG: i32 = 36;

/// Whether the error says that nothing has the name. No file has one that is too long, such as that of a long name's log.
pub fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(ENAMETOOLONG)
}

/// Removes a name and everything below it; no error if it does not exist. Follows no links. Memory: only directories.
///
/// Errors: `ResourceBusy` at a directory on which something is mounted; what was removed before it is gone.
pub fn remove_tree(dir: &dyn Dir, name: &Path) -> std::io::Result<()> {
    let mut here = None;
    // A stack instead of recursion: the media decide the depth.
    let mut stack = vec![name.to_path_buf()];
    while let Some(name) = stack.pop() {
        if remove_unless_dir(dir, &name)? {
            continue;
        }
        let own = match here {
            Some(own) => own,
            None => *here.insert(dir.mount_id(Path::new(""))?),
        };
        if dir.mount_id(&name)? != own {
            let what = format!("a file system is mounted on {}", name.display());
            return Err(std::io::Error::new(ErrorKind::ResourceBusy, what));
        }
        // Its mode may prevent us from listing or emptying it.
        dir.set_attributes(&name, &OPEN_TO_US)?;
        let (mut is_empty, mut inside) = (true, Vec::new());
        for child in dir.dir(&name)?.list()? {
            is_empty = false;
            let child = name.join(child?);
            if !remove_unless_dir(dir, &child)? {
                inside.push(child);
            }
        }
        // A listing may miss names while others are removed, so it is repeated until it is empty.
        if is_empty {
            dir.remove_dir(&name)?;
        } else {
            stack.push(name);
            stack.append(&mut inside);
        }
    }
    Ok(())
}

/// Whether the name no longer exists: removes everything except directories.
fn remove_unless_dir(dir: &dyn Dir, name: &Path) -> std::io::Result<bool> {
    let found = match dir.stat(name) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    match found.kind {
        FileKind::Dir => Ok(false),
        _ => dir.remove_file(name).map(|()| true),
    }
}
