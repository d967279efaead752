//! Translates a statement's devices to those of the media.
//!
//! Invariants
//! - Relative paths are below the backup directory.
//! - With a server only paths that statements may reach are accepted, with links followed, whether a statement, the
//!   catalog or a set names them. The refusal does not tell whether the path exists.
//! - A device of a kind that does not exist here is refused; none is replaced by another.
//!
//! Leaves to others: objects (`object.rs`), logical devices (`longshore-catalog`), and opening devices
//! (`longshore-media`).

use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use longshore_media::{DeviceSpec, ServerUrl, only_path};

use super::object::UrlOptions;
use super::operand::operand_text;
use super::{ground, object};
use crate::message::{self, Message};
use crate::session::Session;
use crate::syntax::{Device, DeviceKind, Setting};

/// SQL Server's limit on devices and their mirrors.
pub const DEVICES_MAX: usize = 64;

/// The devices, in order. Errors: an unknown logical device (3206), too many (3205), unsupported kinds.
pub fn devices(
    session: &Session,
    named: &[Device],
    settings: &[Setting],
) -> Result<Vec<DeviceSpec>, Message> {
    if named.len() > DEVICES_MAX {
        return Err(message::TOO_MANY_DEVICES.with(&[&DEVICES_MAX]));
    }
    let kind = |device: &Device| match device {
        Device::Physical { kind, .. } => *kind,
        Device::Logical(_) => DeviceKind::Disk,
    };
    if named
        .windows(2)
        .any(|pair| kind(&pair[0]) != kind(&pair[1]))
    {
        return Err(message::DEVICE_CLASSES.plain());
    }
    let urls = UrlOptions::of(session, settings)?;
    if !named.iter().any(|device| kind(device) == DeviceKind::Url) {
        urls.check_without_key(session, None)?;
    }
    let mut devices = Vec::new();
    for device in named {
        devices.push(one(session, device, &urls)?);
    }
    Ok(devices)
}

fn one(session: &Session, device: &Device, urls: &UrlOptions) -> Result<DeviceSpec, Message> {
    match device {
        Device::Logical(name) => {
            let name = session.name_of(name)?;
            match session.server.kept.device(&name) {
                // Another program may have added it, or before the allowed directories were changed.
                Some(path) => {
                    let device = spec(&path);
                    reach_device(session, &device)?;
                    Ok(device)
                }
                None => Err(message::DEVICE_UNKNOWN.with(&[&name])),
            }
        }
        Device::Physical { kind, name } => {
            let name = operand_text(session, name)?;
            let missing = match kind {
                DeviceKind::Disk => {
                    return Ok(spec(&device_path(session, &name)?));
                }
                DeviceKind::Tape => "TAPE",
                DeviceKind::Url => return object::named(session, &name, urls),
                DeviceKind::Virtual => "VIRTUAL_DEVICE",
            };
            let text = format!("this version has no {missing} devices; write to DISK");
            Err(message::OWN.with(&[&text]))
        }
    }
}

const BAD_NAME: &str = "123(The filename, directory name, or volume label syntax is incorrect.)";

/// The name of the device that discards everything.
const NUL: &str = "NUL";

fn spec(path: &Path) -> DeviceSpec {
    match path == Path::new(NUL) {
        true => DeviceSpec::Nul,
        false => DeviceSpec::File(path.to_path_buf()),
    }
}

/// [`recorded`] devices that this statement may reach, too. Errors: also 3201.
pub fn reachable<'a>(
    session: &Session,
    names: impl IntoIterator<Item = &'a str>,
    given: &[DeviceSpec],
) -> Result<Vec<DeviceSpec>, Message> {
    let found = recorded(session, names, given)?;
    found
        .iter()
        .try_for_each(|device| reach_device(session, device))?;
    Ok(found)
}

/// The devices that the catalog names, but for those that cannot be read back. `given`: the statement's own, whose options
/// count for objects at the same server.
///
/// Errors: an object's credential is missing; an object that a credential opens and no statement may reach (3201).
pub fn recorded<'a>(
    session: &Session,
    names: impl IntoIterator<Item = &'a str>,
    given: &[DeviceSpec],
) -> Result<Vec<DeviceSpec>, Message> {
    let mut found: Vec<DeviceSpec> = Vec::new();
    for name in names.into_iter().filter(|name| is_readable(name)) {
        // Objects at one server share a key with those before them.
        let device = object::recorded(session, name, given.iter().chain(&found))?;
        if let Some(object) = &device {
            object::reach(session, object)?;
        }
        found.push(device.unwrap_or_else(|| DeviceSpec::parse(name)));
    }
    Ok(found)
}

/// Whether a device that the catalog names can be read back: it is an object, or a file by its absolute path.
pub fn is_readable(name: &str) -> bool {
    if ServerUrl::parse(name).is_some() {
        return true;
    }
    match DeviceSpec::parse(name) {
        DeviceSpec::File(path) => path.is_absolute(),
        DeviceSpec::Bucket(_) => true,
        DeviceSpec::Nul | DeviceSpec::Pipe => false,
    }
}

/// Refuses devices that no statement of this server may reach (3201).
pub fn reach_device(session: &Session, device: &DeviceSpec) -> Result<(), Message> {
    match device {
        DeviceSpec::File(path) => reach(session, path, &path.display()),
        DeviceSpec::Bucket(_) => object::reach(session, device),
        DeviceSpec::Nul | DeviceSpec::Pipe => Ok(()),
    }
}

/// The path of a device that a statement names; `NUL` is in no directory. Errors: those of [`named_path`].
pub fn device_path(session: &Session, name: &str) -> Result<PathBuf, Message> {
    let path = disk_path(&session.server.setup.backup_directory, name)?;
    if path != Path::new(NUL) {
        reach(session, &path, &name)?;
    }
    Ok(path)
}

/// The path of a file or directory that a statement names. Errors: 3201 for a path that no statement of this server
/// may reach, whether or not it exists, and for `NUL`, which is a device and not a file.
pub fn named_path(session: &Session, name: &str) -> Result<PathBuf, Message> {
    let path = disk_path(&session.server.setup.backup_directory, name)?;
    if path == Path::new(NUL) {
        return Err(message::CANNOT_OPEN.with(&[&name, &BAD_NAME]));
    }
    reach(session, &path, &name)?;
    Ok(path)
}

/// Refuses paths that no statement of this server may reach (3201), from a statement, the catalog or a set. `shown`:
/// the path's name in the message.
pub fn reach(session: &Session, path: &Path, shown: &dyn Display) -> Result<(), Message> {
    match ground::is_reachable(&session.server, path) {
        true => Ok(()),
        false => Err(message::CANNOT_OPEN.with(&[&shown, &"5(Access is denied.)"])),
    }
}

/// The path of a DISK device. `NUL` in any case stays that word. As in SQL Server on Linux, backslashes separate names
/// and drive C: is the root; other drives do not exist.
pub fn disk_path(directory: &Path, name: &str) -> Result<PathBuf, Message> {
    if name.trim_end_matches(':').eq_ignore_ascii_case(NUL) {
        return Ok(NUL.into());
    }
    let refused = |error: &str| message::CANNOT_OPEN.with(&[&name, &error]);
    if name.is_empty() || name.contains('\0') {
        return Err(refused(BAD_NAME));
    }
    let Ok(name) = only_path(OsStr::new(name)) else {
        return Err(message::OWN.with(&[&object::NO_PATH]));
    };
    let found = ground::path_of(directory, &name.to_string_lossy());
    found.ok_or_else(|| refused("3(The system cannot find the path specified.)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_history_is_an_absolute_path_or_an_object() {
        for readable in [
            "/a",
            "s3://nightly/a",
            "s3://minio:9000/nightly/a",
            "s3://h.x/Wrong/a",
        ] {
            assert!(is_readable(readable), "{readable}");
        }
        for other in ["NUL", "a.bak", "-"] {
            assert!(!is_readable(other), "{other}");
        }
    }

    #[test]
    fn names_of_windows_and_of_linux_are_understood() {
        let path = |name| disk_path(Path::new("/backup"), name).map(|p| p.display().to_string());
        assert_eq!(path("a.bak").unwrap(), "/backup/a.bak");
        assert_eq!(path("/mnt/a.bak").unwrap(), "/mnt/a.bak");
        assert_eq!(path(r"C:\srv\a.bak").unwrap(), "/srv/a.bak");
        assert_eq!(path(r"full\a.bak").unwrap(), "/backup/full/a.bak");
        assert_eq!(path("nul").unwrap(), "NUL");
        assert_eq!(path("NUL:").unwrap(), "NUL");
        assert_eq!(path(r"D:\a.bak").unwrap_err().number, 3201);
        assert_eq!(path("").unwrap_err().number, 3201);
        for address in [
            "s3://b/k",
            "S3://b",
            "az://c/k",
            "gs://b/k",
            "https://h/c/k",
            "http://h",
        ] {
            let refused = path(address).unwrap_err();
            assert!(refused.text.contains("URL = 's3://"), "{}", refused.text);
        }
        assert_eq!(path("file:s3://b/k").unwrap(), "/backup/s3://b/k");
        assert_eq!(path("é:").unwrap(), "/backup/é:");
    }
}
