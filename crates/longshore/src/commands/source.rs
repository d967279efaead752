//! The source that a configured database names, with the secrets that its connection needs.

use std::path::Path;

use longshore_io::{OpenHow, Via};
use longshore_pg::client::Secret;
use longshore_pipeline::SourceSpec;

use crate::config::Database;
use crate::context::Context;
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;

/// The maximum length of a password file.
const PASSWORD_MAX: usize = 4096;

/// Errors: an invalid URL; a password that cannot be obtained. No message shows a password.
pub fn configured(
    context: &Context,
    name: &str,
    database: &Database,
) -> Result<SourceSpec, Failure> {
    let mut spec = SourceSpec::parse(&*context.storage, &[database.url.clone().into()])?;
    let Some(password) = password(context, name, database)? else {
        return Ok(spec);
    };
    match &mut spec {
        SourceSpec::Postgres(options) => options.password = Some(Secret(password)),
        SourceSpec::Sqlite(_) | SourceSpec::Files(_) => {
            return Err(Failure::usage(
                format!("[database.{name}] has a password, but its source takes none"),
                "leave password_file and password_env out",
            ));
        }
    }
    Ok(spec)
}

fn password(context: &Context, name: &str, database: &Database) -> Result<Option<String>, Failure> {
    if let Some(variable) = &database.password_env {
        return match std::env::var(variable) {
            Ok(value) if !value.is_empty() => Ok(Some(value)),
            Err(std::env::VarError::NotUnicode(_)) => Err(Failure::usage(
                format!("[database.{name}]: the variable {variable} is not UTF-8"),
                "write the password in UTF-8, as PostgreSQL's programs do, or use password_file",
            )),
            _ => Err(Failure::usage(
                format!("[database.{name}]: the variable {variable} is not set"),
                "set it in longshore's environment, or use password_file",
            )),
        };
    }
    let Some(path) = &database.password_file else {
        return Ok(None);
    };
    let read = || -> std::io::Result<(String, u32)> {
        let (Some(parent), Some(file)) = (path.parent(), path.file_name()) else {
            return Err(std::io::ErrorKind::InvalidFilename.into());
        };
        let dir = context.storage.dir(parent)?;
        let file = dir.open(Path::new(file), OpenHow::Read)?;
        let mut bytes = vec![0; PASSWORD_MAX];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        let text = String::from_utf8(bytes).map_err(std::io::Error::other)?;
        let line = text.lines().next().unwrap_or("").to_owned();
        Ok((line, file.stat()?.mode))
    };
    let (line, mode) = read().map_err(|e| {
        Failure::usage(
            format!("[database.{name}]: cannot read {}", path.display()),
            "write the password as the first line of password_file, then run `longshore config check`",
        )
        .numbered(numbers::FILE_UNUSABLE)
        .because(e)
    })?;
    if mode & 0o077 != 0 {
        context.output.warn(&format!(
            "other users can read {}: mode {:04o}, not 0600",
            path.display(),
            mode & 0o777
        ));
    }
    Ok(Some(line))
}
