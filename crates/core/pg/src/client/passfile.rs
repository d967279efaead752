//! The password file: lines `host:port:database:user:password`; the first matching line counts.
//!
//! Source: PostgreSQL 18 documentation, libpq, "The Password File".

use std::path::Path;

use longshore_io::Storage;

use super::options::{Host, Secret};
use super::{Error, files};

/// The host name in the file for a server reached by a socket in its default directory.
const LOCAL: &str = "localhost";
const USUAL_SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The password for a session. A file that other users can read is ignored with a warning.
pub(super) fn find(
    storage: &dyn Storage,
    path: &Path,
    host: &Host,
    database: &str,
    user: &str,
) -> Result<Option<Secret>, Error> {
    let Some((bytes, stat)) = files::read(storage, path)? else {
        return Ok(None);
    };
    if stat.mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the password file is not used: other users may read it (chmod 600)");
        return Ok(None);
    }
    let (name, port) = match host {
        Host::Tcp { name, port, .. } => (name.clone(), port),
        Host::Socket { dir, port } => {
            let is_usual = USUAL_SOCKET_DIRS
                .iter()
                .any(|usual| dir == Path::new(usual));
            let dir = dir.display().to_string();
            (if is_usual { LOCAL.to_owned() } else { dir }, port)
        }
    };
    let wanted = [name, port.to_string(), database.to_owned(), user.to_owned()];
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let (fields, password) = take_apart(line)?;
            let fits = |(field, wanted): (&String, &String)| field == "*" || field == wanted;
            fields.iter().zip(&wanted).all(fits).then_some(password)
        })
        .map(Secret))
}

/// Four fields and the rest of the line. A backslash escapes the next character.
fn take_apart(line: &str) -> Option<([String; 4], String)> {
    let mut fields: [String; 4] = Default::default();
    let mut password = String::new();
    let mut at = 0;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let field = fields.get_mut(at).unwrap_or(&mut password);
        match c {
            '\\' => field.extend(chars.next()),
            ':' if at < 4 => at += 1,
            c => field.push(c),
        }
    }
    (at == 4).then_some((fields, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_four_fields_and_a_password_with_escapes() {
        let (fields, password) = take_apart(r"h\:1:5432:*:u\\:a:b\:c").unwrap();
        assert_eq!(fields, ["h:1", "5432", "*", r"u\"].map(String::from));
        assert_eq!(password, "a:b:c");
        assert_eq!(take_apart("a:b:c:d"), None);
        assert_eq!(take_apart(""), None);
    }
}
