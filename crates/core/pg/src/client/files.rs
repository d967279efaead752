//! Small files that a connection needs: certificates, keys, passwords.

use std::io;
use std::path::Path;

use longshore_io::{OpenHow, Stat, Storage, Via};

use super::Error;

/// A bundle of all the roots that a machine trusts has about 220 KB.
const FILE_MAX: usize = 4 << 20;

/// The file's bytes and attributes; `None` if it does not exist. Links are followed, because these files are often
/// links.
pub(super) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<(Vec<u8>, Stat)>, Error> {
    let refuse = |reason: String| Error::File {
        path: path.into(),
        reason,
    };
    let path = match storage.canonical(path) {
        Ok(path) => path,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refuse(e.to_string())),
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refuse("it is a directory".into()));
    };
    let read = || -> io::Result<(Vec<u8>, Stat)> {
        let file = storage.dir(parent)?.open(Path::new(name), OpenHow::Read)?;
        let stat = file.stat()?;
        if stat.len > FILE_MAX as u64 {
            return Err(io::Error::other("it is too long for its kind"));
        }
        let mut bytes = vec![0; stat.len as usize];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        Ok((bytes, stat))
    };
    read().map(Some).map_err(|e| refuse(e.to_string()))
}
