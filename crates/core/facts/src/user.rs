//! The user of this process, by name.
//!
//! Invariants
//! - Names come from the passwd database through the C library, so a directory service counts too. The environment
//!   names the user that logged in, which after `su`, in a unit or in a container is another user or nobody: it is
//!   asked only for records, and last.
//! - Records always have a text for the user; a role to log in with has a name or an error.
//!
//! Leaves to others: which role connects to a server (`longshore-pg`), and what a record shows.

use std::ffi::CStr;
use std::io;

/// Enough for entries of a directory service; most systems suggest 1 KiB to begin with.
const BUFFER_MAX: usize = 1 << 20;

/// The passwd name of the effective user: the role that libpq takes if none is named.
///
/// # Errors
/// The user has no entry ([`io::ErrorKind::NotFound`]), as with an arbitrary user number in a container, or the
/// database cannot be asked.
pub fn login_name() -> io::Result<String> {
    name_of(rustix::process::geteuid().as_raw())
}

/// The user this process runs as, for records: the passwd name, else what the environment says, else the number.
pub fn user_name() -> String {
    let named = || {
        ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|n| !n.is_empty()))
    };
    login_name().ok().or_else(named).unwrap_or_else(number)
}

/// The numbers of the effective user and group.
pub fn own_ids() -> (u32, u32) {
    use rustix::process::{getegid, geteuid};
    (geteuid().as_raw(), getegid().as_raw())
}

fn number() -> String {
    format!("uid {}", rustix::process::geteuid().as_raw())
}

/// The passwd name of a user.
///
/// # Errors
/// As those of [`login_name`].
pub fn name_of(uid: u32) -> io::Result<String> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        // SAFETY: `zeroed` demands a type for which zeros are valid: `passwd` is plain data of pointers and integers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        // SAFETY: getpwuid_r demands room for an entry, for its texts and for a pointer: all are live locals, and the
        // length is that of `buffer`.
        let code = unsafe {
            libc::getpwuid_r(
                uid,
                &raw mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match code {
            libc::ERANGE if buffer.len() < BUFFER_MAX => buffer.resize(buffer.len() * 4, 0),
            libc::EINTR => {}
            // The call's manual lists these for "no such user", next to 0.
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM if found.is_null() => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("user number {uid} has no name in the passwd database"),
                ));
            }
            0 => {
                // SAFETY: `from_ptr` demands a C string that lives: after success the name ends with a zero byte, in
                // `buffer`.
                let name = unsafe { CStr::from_ptr(entry.pw_name) };
                return name.to_str().map(str::to_owned).map_err(|_| {
                    let text = format!("the name of user number {uid} is not UTF-8");
                    io::Error::new(io::ErrorKind::InvalidData, text)
                });
            }
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_are_those_of_the_passwd_database() {
        let id = Command::new("id").arg("-un").output().unwrap();
        let own = String::from_utf8(id.stdout).unwrap();
        assert_eq!(login_name().unwrap(), own.trim_end());
        assert_eq!(user_name(), own.trim_end());
        assert_eq!(name_of(0).unwrap(), "root");
    }

    #[test]
    fn a_user_without_an_entry_is_named_by_number_in_the_error() {
        let error = name_of(3_999_999_999).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("3999999999"), "{error}");
    }
}
