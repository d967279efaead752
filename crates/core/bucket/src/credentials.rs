//! Providers of credentials: `credential_process`, and a wrapper that notes why any provider failed.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore_io::{Clock, HostClock, child};
use object_store::CredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use tokio::sync::Mutex;

use crate::watched::{innermost, note};

/// Credentials are replaced so long before they end. A request may be repeated for three minutes.
const MARGIN_S: i64 = 300;
/// A program that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(60);
const OUTPUT_MAX: u64 = 64 << 10;

/// Another provider, whose failures are noted.
#[derive(Debug)]
pub struct Noted(pub AwsCredentialProvider);

#[async_trait]
impl CredentialProvider for Noted {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let result = self.0.get_credential().await;
        note(|seen| seen.credentials = result.as_ref().err().map(|error| innermost(error)));
        result
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

fn failed(why: String) -> object_store::Error {
    object_store::Error::Generic {
        store: "credentials",
        source: Box::new(Failed(why)),
    }
}

/// No credentials, for the reason that the settings found.
#[derive(Debug)]
pub struct Lacking(pub String);

#[async_trait]
impl CredentialProvider for Lacking {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        Err(failed(self.0.clone()))
    }
}

/// What a program printed, until it ends.
struct Held {
    credential: Arc<AwsCredential>,
    until_s: Option<i64>,
}

/// Asks a program for credentials, and again before they end.
pub struct Process {
    profile: String,
    command: String,
    held: Mutex<Option<Held>>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        // An argument may be a secret.
        f.debug_struct("Process")
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

impl Process {
    pub fn new(profile: String, command: String) -> Process {
        Process {
            profile,
            command,
            held: Mutex::new(None),
        }
    }
}

#[async_trait]
impl CredentialProvider for Process {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut held = self.held.lock().await;
        let now_s = HostClock.wall_ns() / 1_000_000_000;
        if let Some(held) = &*held
            && held.until_s.is_none_or(|until| until - MARGIN_S > now_s)
        {
            return Ok(held.credential.clone());
        }
        let command = self.command.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&command)).await;
        let asked = asked.map_err(|_| "its thread ended".to_owned());
        let fresh = asked.and_then(|answer| answer).map_err(|why| {
            failed(format!(
                "the credential_process of the profile {:?} gave none: {why}",
                self.profile
            ))
        })?;
        let credential = fresh.credential.clone();
        *held = Some(fresh);
        Ok(credential)
    }
}

/// Runs the program. Errors: why it gave nothing, in words that hold nothing of what it printed.
fn ask(command: &str) -> Result<Held, String> {
    let words = words(command)?;
    let Some((program, arguments)) = words.split_first() else {
        return Err("it is empty".to_owned());
    };
    let mut command = child::program(Path::new(program), &[]).map_err(|e| e.to_string())?;
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may say a secret there as well.
        .stderr(Stdio::null());
    let mut running = command
        .spawn()
        .map_err(|e| format!("{program} cannot be started: {e}"))?;
    let Some(output) = running.stdout.take() else {
        return Err(format!("{program} has no output"));
    };
    let reader = std::thread::Builder::new()
        .name("credentials".into())
        .spawn(move || {
            let mut bytes = Vec::new();
            let read = output.take(OUTPUT_MAX).read_to_end(&mut bytes);
            read.map(|_| bytes)
        });
    let started = HostClock.now();
    let status = loop {
        match running.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if HostClock.now() - started < PATIENCE => {
                HostClock.sleep(Duration::from_millis(20));
            }
            _ => {
                // It may have ended meanwhile.
                let _ = running.kill();
                let _ = running.wait();
                return Err(format!(
                    "{program} did not end within {} seconds",
                    PATIENCE.as_secs()
                ));
            }
        }
    };
    if !status.success() {
        return Err(format!("{program} ended with {status}"));
    }
    let bytes = reader.map_err(|e| e.to_string())?.join();
    let bytes = bytes.map_err(|_| "its reader ended".to_owned())?;
    let bytes = bytes.map_err(|e| format!("its output cannot be read: {e}"))?;
    parse(&bytes).ok_or_else(|| format!("{program} did not print credentials of version 1"))
}

/// The AWS format: `{"Version": 1, "AccessKeyId": ..., "SecretAccessKey": ..., "SessionToken": ..., "Expiration": ...}`.
fn parse(bytes: &[u8]) -> Option<Held> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    if value["Version"].as_u64() != Some(1) {
        return None;
    }
    let until_s = match text("Expiration") {
        None => None,
        Some(until) => Some(until.parse::<jiff::Timestamp>().ok()?.as_second()),
    };
    let credential = AwsCredential {
        key_id: text("AccessKeyId")?,
        secret_key: text("SecretAccessKey")?,
        token: text("SessionToken"),
    };
    Some(Held {
        credential: Arc::new(credential),
        until_s,
    })
}

/// A command line in words, with quotes and backslashes as a shell has them, and nothing else of a shell.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '"' | '\'') => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            (Some(open), _) if sign == open => quote = None,
            (None | Some('"'), '\\') => word
                .get_or_insert_default()
                .push(signs.next().ok_or("it ends with a backslash")?),
            _ => word.get_or_insert_default().push(sign),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let line = r#"/a/b  --x 'c d' "e \"f\"" g\ h """#;
        let expected = ["/a/b", "--x", "c d", "e \"f\"", "g h", ""];
        assert_eq!(words(line).unwrap(), expected);
        for odd in ["'", "a \"b", "a\\"] {
            assert!(words(odd).is_err(), "{odd}");
        }
    }

    fn tool(dir: &Path, text: &str) -> String {
        let path = dir.join("tool");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_program_gives_credentials_or_a_reason_without_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let good = r#"echo '{"Version":1,"AccessKeyId":"AK'$1'","SecretAccessKey":"s","Expiration":"2031-01-02T03:04:05Z"}'"#;
        let held = ask(&format!("{} X", tool(dir.path(), good))).unwrap();
        assert_eq!(held.credential.key_id, "AKX");
        assert_eq!(held.until_s, Some(1_925_089_445));
        for (text, word) in [
            ("echo verysecret; echo verysecret >&2; exit 3", "status: 3"),
            ("echo verysecret", "version 1"),
            (
                r#"echo '{"Version":2,"AccessKeyId":"a","SecretAccessKey":"verysecret"}'"#,
                "version 1",
            ),
        ] {
            let why = ask(&tool(dir.path(), text)).err().unwrap();
            assert!(why.contains(word) && !why.contains("verysecret"), "{why}");
        }
        for odd in ["", "tool", "./tool", "/none/tool"] {
            assert!(ask(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_program_of_another_user_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = tool(dir.path(), "echo");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ask(&path).is_err());
    }
}
