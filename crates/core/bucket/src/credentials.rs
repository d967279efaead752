//! Providers of credentials: `credential_process`, and a wrapper that notes why any provider failed.
//!
//! Invariants
//! - One provider runs its program once at a time.
//! - The program is ended after 60 s, or when the request that wants credentials is dropped. More than 64 KiB of its
//!   output is an error.
//! - Credentials that a header cannot carry are refused before a request is signed.
//! - `Debug` shows the profile's name and no more. Of the program's messages only the last line is shown, and in it a
//!   word is replaced by `***` if it was printed, was an argument, follows the name of a secret, or looks like a key.
//!
//! Leaves to others: the choice of the provider (`s3.rs`, `azure.rs`, `google.rs`, `profile.rs`); when a program is asked again
//! (`held.rs`); starting and ending it (`longshore_io::child`); signing (`object_store`).

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore_io::child;
use object_store::CredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use object_store::azure::{AzureCredential, AzureCredentialProvider};
use object_store::gcp::{GcpCredential, GcpCredentialProvider};

use crate::environment::{Form, check};
use crate::held::{Held, Holder};
use crate::watched::{innermost, note};

/// A program that takes longer is ended, with what it started.
const PATIENCE: Duration = Duration::from_secs(60);
const OUTPUT_MAX: usize = 64 << 10;

/// Another provider, whose failures are noted. Only what can be sent in a header is handed on.
#[derive(Debug)]
pub struct Noted<C> {
    provider: Arc<dyn CredentialProvider<Credential = C>>,
    /// Errors: what of the credentials cannot be sent.
    usable: fn(&C) -> Result<(), String>,
}

#[async_trait]
impl<C: std::fmt::Debug + Send + Sync + 'static> CredentialProvider for Noted<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let given = self.provider.get_credential().await;
        let result = given.and_then(|credential| match (self.usable)(&credential) {
            Ok(()) => Ok(credential),
            Err(why) => Err(failed(why)),
        });
        note(|seen| seen.credentials = result.as_ref().err().map(|error| innermost(error)));
        result
    }
}

impl Noted<AwsCredential> {
    pub fn of_aws(provider: AwsCredentialProvider) -> Self {
        Noted {
            provider,
            usable: |credential| {
                let token = credential.token.as_deref().unwrap_or_default();
                check("the key's name", &credential.key_id, Form::Signs)?;
                check("the secret key", &credential.secret_key, Form::Signs)?;
                check("the session token", token, Form::Signs)
            },
        }
    }
}

impl Noted<AzureCredential> {
    pub fn of_azure(provider: AzureCredentialProvider) -> Self {
        Noted {
            provider,
            usable: |credential| match credential {
                AzureCredential::BearerToken(token) => check("the token", token, Form::Signs),
                // They were checked when they were read.
                AzureCredential::AccessKey(_) | AzureCredential::SASToken(_) => Ok(()),
            },
        }
    }
}

impl Noted<GcpCredential> {
    pub fn of_google(provider: GcpCredentialProvider) -> Self {
        Noted {
            provider,
            usable: |credential| check("the token", &credential.bearer, Form::Signs),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

pub(crate) fn failed(why: String) -> object_store::Error {
    object_store::Error::Generic {
        store: "credentials",
        source: Box::new(Failed(why)),
    }
}

/// No credentials, for the reason that the settings found.
#[derive(Debug)]
pub struct Lacking<C> {
    why: String,
    kind: PhantomData<fn() -> C>,
}

impl<C> Lacking<C> {
    pub fn new(why: String) -> Self {
        Lacking {
            why,
            kind: PhantomData,
        }
    }
}

#[async_trait]
impl<C: std::fmt::Debug + Send + Sync + 'static> CredentialProvider for Lacking<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        Err(failed(self.why.clone()))
    }
}

/// Asks a program for credentials, and again before they end.
pub struct Process {
    profile: String,
    command: String,
    patience: Duration,
    held: Holder<AwsCredential>,
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
            patience: PATIENCE,
            held: Holder::empty(),
        }
    }
}

#[async_trait]
impl CredentialProvider for Process {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let whose = format!(
            "the credentials of the credential_process of the profile {:?}",
            self.profile
        );
        let (command, patience) = (self.command.clone(), self.patience);
        let ask = async {
            // A caller that no longer waits drops this future, and the program is ended.
            let unwanted = Unwanted::default();
            let cancel = unwanted.0.clone();
            let asked = tokio::task::spawn_blocking(move || ask(&command, patience, &cancel)).await;
            asked.map_err(|_| "its thread ended".to_owned())?
        };
        self.held.get(&whose, ask).await.map_err(|why| {
            failed(format!(
                "the credential_process of the profile {:?} gave none: {why}",
                self.profile
            ))
        })
    }
}

/// Sets its flag when it is dropped.
#[derive(Default)]
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the program. Errors: why it gave nothing, with the last line that it wrote to standard error as far as that line
/// can have no secret in it.
fn ask(command: &str, limit: Duration, cancel: &AtomicBool) -> Result<Held<AwsCredential>, String> {
    let words = words(command)?;
    let Some((program, arguments)) = words.split_first() else {
        return Err("it is empty".to_owned());
    };
    let mut command = child::program(Path::new(program), &[]).map_err(|e| e.to_string())?;
    command.args(arguments);
    let said = child::ask(&mut command, limit, OUTPUT_MAX, cancel)
        .map_err(|why| format!("{program}: {why}"))?;
    let failed = |what: String| {
        let line = last_line(&said.errors, &said.output, arguments);
        match line.is_empty() {
            true => what,
            false => format!("{what}; it said: {line}"),
        }
    };
    if !said.status.success() {
        return Err(failed(format!("{program} ended with {}", said.status)));
    }
    parse(&said.output)
        .ok_or_else(|| failed(format!("{program} did not print credentials of version 1")))
}

/// More of a line is not shown.
const LINE_MAX: usize = 300;

/// The last line of `errors`. A word is replaced if it was printed or given as an argument, if it follows the name of a
/// secret, or if it looks like a key or a token.
fn last_line(errors: &[u8], output: &[u8], arguments: &[String]) -> String {
    let (errors, output) = (
        String::from_utf8_lossy(errors),
        String::from_utf8_lossy(output),
    );
    let line = errors.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    let is_sign = |c: char| c.is_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '%' | '~');
    let names = ["secret", "token", "password", "passwd", "key", "bearer"];
    let mut shown = String::new();
    let mut rest = line;
    let mut is_named = false;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_sign(c) != is_sign(first));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        if !is_sign(first) {
            // "token: x" and "token=x" name what follows; "token x" is a sentence.
            is_named &= word.contains(['=', ':']);
            shown.extend(word.chars().filter(|c| !c.is_control()));
            continue;
        }
        let is_long = word.len() >= 16
            && word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_alphabetic());
        let was_said = word.len() >= 4
            && (output.contains(word) || arguments.iter().any(|a| a.contains(word)));
        let lower = word.to_lowercase();
        let is_secret = is_named || is_long || was_said;
        is_named = names.iter().any(|name| lower.ends_with(name));
        shown.push_str(if is_secret { "***" } else { word });
    }
    shown.chars().take(LINE_MAX).collect()
}

/// The AWS format: `{"Version": 1, "AccessKeyId": ..., "SecretAccessKey": ..., "SessionToken": ..., "Expiration": ...}`.
fn parse(bytes: &[u8]) -> Option<Held<AwsCredential>> {
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
    use longshore_io::{Clock, HostClock};
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
        let asked = |line: &str| ask(line, PATIENCE, &AtomicBool::new(false));
        let held = asked(&format!("{} X", tool(dir.path(), good))).unwrap();
        assert_eq!(held.credential.key_id, "AKX");
        assert_eq!(held.until_s, Some(1_925_089_445));
        for (text, word) in [
            ("echo verysecret; echo verysecret >&2; exit 3", "status: 3"),
            ("echo no such role >&2; exit 3", "it said: no such role"),
            ("echo verysecret", "version 1"),
            (
                r#"echo '{"Version":2,"AccessKeyId":"a","SecretAccessKey":"verysecret"}'"#,
                "version 1",
            ),
        ] {
            let why = asked(&tool(dir.path(), text)).err().unwrap();
            assert!(why.contains(word) && !why.contains("verysecret"), "{why}");
        }
        for odd in ["", "tool", "./tool", "/none/tool"] {
            assert!(asked(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_program_that_never_ends_or_never_stops_is_an_error_and_its_children_do_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let no = AtomicBool::new(false);
        let tool = |text: &str| tool(dir.path(), text);
        let late = ask(&tool("sleep 3600 & wait"), Duration::from_millis(50), &no);
        let late = late.err().unwrap();
        assert!(late.contains("did not end within"), "{late}");
        let much = ask(&tool("exec yes"), PATIENCE, &no).err().unwrap();
        assert!(much.contains("more than 65536 bytes"), "{much}");
        // The child keeps the output open for an hour.
        let good = r#"sleep 3600 & echo '{"Version":1,"AccessKeyId":"AK","SecretAccessKey":"s"}'"#;
        let held = ask(&tool(good), PATIENCE, &no).unwrap();
        assert_eq!(held.credential.key_id, "AK");
        let unwanted = ask(&tool("sleep 3600"), PATIENCE, &AtomicBool::new(true));
        assert!(unwanted.is_err());
    }

    #[test]
    fn a_program_has_a_minute_and_then_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::new("p".to_owned(), tool(dir.path(), "exec sleep 3600"));
        assert_eq!(process.patience.as_secs(), 60);
        let process = Process {
            patience: Duration::from_millis(50),
            ..process
        };
        let runtime = crate::runtime::handle().unwrap();
        let begun = HostClock.now();
        let asked = runtime.block_on(async { process.get_credential().await });
        assert!(HostClock.now() - begun < PATIENCE / 6);
        let why = format!("{:?}", asked.unwrap_err());
        assert!(why.contains("did not end within"), "{why}");
    }

    /// Method: the caller gives up while the program runs, as one whose run was interrupted does.
    #[test]
    fn a_program_whose_caller_has_gone_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let text = format!(
            "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 3600",
            pid.display()
        );
        let process = Process::new("p".to_owned(), tool(dir.path(), &text));
        let process = Arc::new(process);
        let asked = crate::runtime::handle().unwrap().spawn({
            let process = process.clone();
            async move { process.get_credential().await.is_ok() }
        });
        let pause = || std::thread::sleep(Duration::from_millis(5));
        while !pid.exists() {
            pause();
        }
        let number = std::fs::read_to_string(&pid).unwrap();
        asked.abort();
        let lives = Path::new("/proc").join(number.trim());
        let begun = HostClock.now();
        while lives.exists() {
            assert!(HostClock.now() - begun < PATIENCE / 6, "it still runs");
            pause();
        }
    }

    #[test]
    fn the_last_line_of_a_program_is_shown_without_secrets() {
        let arguments = ["--pin".to_owned(), "hunter2x".to_owned()];
        let shown =
            |errors: &str| last_line(errors.as_bytes(), b"{\"k\": \"printed1\"}", &arguments);
        let plain = "An error occurred (ExpiredToken) when calling the AssumeRole operation: The security token is expired";
        assert_eq!(shown(&format!("first\n{plain}\n\n")), plain);
        for (line, expected) in [
            ("pin hunter2x is wrong", "pin *** is wrong"),
            ("got printed1", "got ***"),
            ("password=abc, user=me", "password=***, user=me"),
            ("AKIAIOSFODNN7EXAMPLE was denied", "*** was denied"),
            ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "***"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0", "***.***"),
            ("a\u{1b}[31mred", "a[31mred"),
            ("", ""),
        ] {
            assert_eq!(shown(line), expected);
        }
        assert!(last_line(&[b'x'; 4000], b"", &[]).len() <= LINE_MAX);
    }

    #[test]
    fn a_program_of_another_user_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = tool(dir.path(), "echo");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ask(&path, PATIENCE, &AtomicBool::new(false)).is_err());
    }
}
