//! Keys that a program keeps: `wrap_command` and `unwrap_command` of `[encryption]`, for key services, hardware modules and
//! chips.
//!
//! Invariants
//! - A program is started directly, without a shell, and only if no other user can change it or a directory above it. The same
//!   holds for each file that its arguments name by a whole path: it may be the script that a shell runs.
//! - A key goes through pipes alone: it is in no argument and in no variable.
//! - What becomes an argument or a variable is the configuration's: its own words, the id of a key that it or an option names,
//!   and a set's identifier.
//! - A program has a limit of time and of output, and ends with all that it has started. One that gave no answer in its time is not
//!   asked again for a while: a set has several slots, and a chain many sets.
//! - The file that names a program is one that only its user, or root, can change.
//! - Neither this process nor a program leaves its memory in a file when it crashes, as far as limits decide that (`core_dumps.rs`).
//!
//! Leaves to others: which keys there are (`keys.rs`), and what is made of the answers (`longshore-crypt`).

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_crypt::{Ask, CommandKey, Errand, Error, WRAPPED_MAX};
use longshore_io::child::{self, Unanswered};
use longshore_io::{Clock, Distrust, HostClock, trusted};
use longshore_terminal::interrupt;
use zeroize::Zeroizing;

use crate::config::{Config, Encryption};
use crate::core_dumps;

/// The word before the id of a key.
pub const COMMAND: &str = "command:";
/// The time that a program has for one key: a token that must be touched may take a while.
const LIMIT: Duration = Duration::from_secs(60);

/// The time for which a program that gave no answer is not asked again.
const SILENCE: Duration = Duration::from_secs(300);

/// What was asked: the errand, the id of the key, and the program with its words.
type Asked = (&'static str, String, Vec<String>);

/// The errands that got no answer, with the time, by this process's clock, at which it may be asked again.
static SILENT: Mutex<Vec<(Asked, Duration)>> = Mutex::new(Vec::new());

/// Errors: the program gave no answer to this a while ago.
fn check_silent(asked: &Asked, now: Duration) -> Result<(), String> {
    let mut silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    silent.retain(|(_, until)| now < *until);
    match silent.iter().find(|(one, _)| one == asked) {
        None => Ok(()),
        Some((_, until)) => Err(format!(
            "{} gave no answer before, and is not asked again for {} s",
            asked.2.first().map_or("", String::as_str),
            until.saturating_sub(now).as_secs().max(1)
        )),
    }
}

fn note_silent(asked: &Asked, now: Duration) {
    let mut silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    silent.push((asked.clone(), now + SILENCE));
}

/// Whether the value of an option names such a key, and no file.
pub fn is_key_of_command(value: &Path) -> bool {
    value
        .to_str()
        .is_some_and(|value| value.starts_with(COMMAND))
}

/// The key with this id, which the programs of the configuration keep. `errand`: what it will be asked for first.
///
/// Errors: the id is none; the configuration has no program for the errand.
pub fn key(config: &Encryption, id: &str, errand: Errand) -> Result<CommandKey, Error> {
    if command_of(config, errand).is_empty() {
        return Err(Error::Command {
            id: id.to_owned(),
            what: missing(errand),
        });
    }
    let config = config.clone();
    let run = move |ask: &Ask| run(command_of(&config, ask.errand), ask);
    CommandKey::new(id, Arc::new(run))
}

fn command_of(config: &Encryption, errand: Errand) -> &[String] {
    match errand {
        Errand::Wrap => &config.wrap_command,
        Errand::Unwrap => &config.unwrap_command,
    }
}

/// The name of the key in the configuration.
fn named(errand: Errand) -> &'static str {
    match errand {
        Errand::Wrap => "wrap_command",
        Errand::Unwrap => "unwrap_command",
    }
}

fn missing(errand: Errand) -> String {
    format!("[encryption] has no `{}`", named(errand))
}

/// Errors: why a program will not be started with these arguments.
pub fn check(program: &str, words: &[String]) -> Result<(), String> {
    let not_run = |why: &dyn std::fmt::Display| format!("{program} is not run: {why}");
    child::named(Path::new(program)).map_err(|why| not_run(&why))?;
    for word in words {
        let path = Path::new(word);
        if path.is_absolute() && path.is_file() {
            trusted(path, &[]).map_err(|why| not_run(&why))?;
        }
    }
    Ok(())
}

/// Errors: why the programs that this configuration names are not run: others can change the file.
pub fn check_file(configuration: Option<&Path>) -> Result<(), String> {
    let Some(file) = configuration else {
        return Ok(());
    };
    let told = |why| {
        format!(
            "the programs that {} names are not run: {why}",
            file.display()
        )
    };
    own(file).map_err(told)
}

/// Errors: others can change this file.
fn own(file: &Path) -> Result<(), Distrust> {
    let named = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    trusted(&named, &[]).map(drop)
}

/// The sentence for a configuration that others can change and that says who can read what is written, or whose backups count.
/// `None`: it is its owner's alone, or says nothing of that.
pub fn changeable(config: &Config) -> Option<String> {
    let encryption = &config.encryption;
    let lists = [
        &encryption.recipients,
        &encryption.identities,
        &encryption.signers,
        &encryption.require_recipients,
    ];
    let says = lists.iter().any(|list| !list.is_empty())
        || encryption.require
        || encryption.require_signature
        || encryption.sign.is_some()
        || config.target.values().any(|t| t.recipients.is_some());
    let file = config.path.as_deref().filter(|_| says)?;
    let why = own(file).err()?;
    Some(format!(
        "{} says for whom backups are encrypted or whose backups count, and others can change it: {why}. Make it its owner's alone to \
         change (chmod go-w), as the directories above it",
        file.display()
    ))
}

fn run(words: &[String], ask: &Ask) -> Result<Zeroizing<Vec<u8>>, String> {
    // As the configuration has the words: a set's identifier in them makes no other question.
    let asked = (named(ask.errand), ask.key_id.to_owned(), words.to_vec());
    let filled = |word: &String| word.replace("{key}", ask.key_id).replace("{set}", ask.set);
    let [program, words @ ..] = words else {
        return Err(missing(ask.errand));
    };
    let words: Vec<String> = words.iter().map(filled).collect();
    check_silent(&asked, HostClock.now())?;
    // A file may be named by what was filled in.
    check(program, &words)?;
    let command = child::named(Path::new(program)).map_err(|why| why.to_string());
    let mut command = command
        .and_then(|path| child::program(&path, &[]).map_err(|why| why.to_string()))
        .map_err(|why| format!("{program} is not run: {why}"))?;
    command
        .args(words)
        .env("LONGSHORE_KEY_ID", ask.key_id)
        .env("LONGSHORE_SET", ask.set);
    let cancel = interrupt::cancel_flag();
    // Keys are here, and in the program, from now on.
    core_dumps::forbid();
    let said = child::tell(&mut command, ask.input, (LIMIT, WRAPPED_MAX), &cancel);
    let said = said.map_err(|error| match error {
        Unanswered::Cancelled => "it was interrupted".to_owned(),
        Unanswered::TooLong(_) => {
            note_silent(&asked, HostClock.now());
            format!("{program}: {error}")
        }
        error => format!("{program}: {error}"),
    })?;
    let (output, errors) = (Zeroizing::new(said.output), Zeroizing::new(said.errors));
    match said.status.success() {
        true => Ok(output),
        false => {
            let errors = String::from_utf8_lossy(&errors);
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            let last = last.map_or(String::new(), |line| format!(", and said: {}", line.trim()));
            Err(format!("{program} ended with {}{last}", said.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_gave_no_answer_is_asked_again_after_a_while_alone() {
        let at = |s: u64| Duration::from_secs(1_000_000 + s);
        let asked = |errand, key: &str| (errand, key.to_owned(), vec!["/of/a/test".to_owned()]);
        let one = asked("wrap_command", "a");
        assert!(check_silent(&one, at(0)).is_ok());
        note_silent(&one, at(0));
        let refused = check_silent(&one, at(290)).unwrap_err();
        assert!(refused.contains("not asked again for 10 s"), "{refused}");
        // The same program for another key, and for the other errand.
        assert!(check_silent(&asked("wrap_command", "b"), at(290)).is_ok());
        assert!(check_silent(&asked("unwrap_command", "a"), at(290)).is_ok());
        assert!(check_silent(&one, at(300)).is_ok());
    }
}
