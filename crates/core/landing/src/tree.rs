//! Removes trees without following links and without recursion.

use std::path::Path;

use longshore_io::{Attributes, Dir, FileKind};

/// Attributes with which we may list and empty a directory.
pub const OPEN_TO_US: Attributes = Attributes {
    mode: Some(0o700),
    owner: None,
    mtime_ns: None,
};

/// Removes a name and everything below it; no error if it does not exist. Follows no links. Memory: only directories.
pub fn remove_tree(dir: &dyn Dir, name: &Path) -> std::io::Result<()> {
    // A stack instead of recursion: the media decide the depth.
    let mut stack = vec![name.to_path_buf()];
    while let Some(name) = stack.pop() {
        if remove_unless_dir(dir, &name)? {
            continue;
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
