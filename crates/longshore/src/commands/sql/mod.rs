//! `sql`: runs statements from the command line, from files or from standard input, in one session.
//!
//! Invariants
//! - Options, output and exit codes are sqlcmd's: without -b the exit code does not show failed statements.
//! - Output that cannot be written ends the command with an error, since a caller would take a cut answer for a whole
//!   one.
//!
//! Leaves to others: the script's own commands (`script.rs`), the form of results (`show.rs`), and the language
//! (`tsql`).

mod advice;
#[cfg(test)]
mod client_contract;
pub(super) mod configured;
mod encoding;
mod excluded;
mod limit;
mod prompt;
mod record;
mod script;
mod show;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_facts as facts;
use longshore_io::{FileKind, OpenHow, Storage, Via};
use longshore_tsql::{Login, Server, Session, Sink, Value};
use serde::Serialize;

use self::advice::{Advised, BatchOrigin};
use self::encoding::{Encoding, Lines};
use self::limit::TimeLimit;
use self::prompt::{Prompt, UserInput};
use self::record::{Keep, OutputPiece};
use self::script::{Client, Ran, Redirected, Script, ScriptEnd};
use self::show::{ErrorsTo, OutputFile, Show, Style, WIDTH_MAX};
use crate::context::Context;
use crate::options::Sql;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output;

/// The maximum length of a statement file.
const LEN_MAX: u64 = 64 << 20;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    said: Vec<OutputPiece>,
    /// Why the rest of the files did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

/// The session, and the format of its results.
struct Terminal<'a> {
    context: &'a Context,
    session: Session,
    style: Style,
    /// Set with `--json`.
    keep: Option<Keep>,
    /// The file of `-i` that runs.
    file: Option<String>,
    failed: bool,
    /// From this severity on a statement counts as failed: that of -V where -b is there, too.
    counted_from: u8,
    /// Why a file of `-i` could not be read.
    unread: Option<Failure>,
    /// The highest severity of all messages.
    severity_max: u8,
    /// The names of the databases.
    names: Vec<String>,
    /// The files that results went to.
    opened: Vec<Opened>,
    /// The encoding of scripts without a byte order mark.
    script_encoding: Encoding,
    /// The encoding of files with results.
    file_encoding: Encoding,
    /// The most time of a batch.
    limit: Option<Duration>,
    /// Set by Ctrl-C; under a limit it is another flag than the session's.
    interrupt: Arc<AtomicBool>,
    /// How long each batch took is told: 0 in words, 1 in numbers.
    statistics: Option<u8>,
    packet_len: u16,
}

/// A file that results went to.
struct Opened {
    /// As the script or an option names it first.
    named: String,
    /// The file system and the number of the file: two names may be those of one file.
    id: (u64, u64),
    file: Arc<OutputFile>,
}

pub fn run(options: &Sql, context: &Context) -> Result<Exit, Failure> {
    excluded::check(options)?;
    check_server(options)?;
    check_login(options)?;
    if options.output_file.is_some() && context.output.json {
        return Err(Failure::usage(
            "-o and --json exclude each other",
            "leave one out; redirect the JSON to a file with the shell",
        ));
    }
    let mut terminal = open(options, context)?;
    let mut script = Script::new(variables(options)?, options.exit_on_error, options.echo);
    let ended = match first_batch(options) {
        // If the first batch (USE) fails, the script must not run in another database.
        Some(first) => match terminal.batch(&first, 0) {
            Ok(Ran::WithErrors) => Err(ScriptEnd::Failed),
            Ok(Ran::Well) => Ok(()),
            Err(ended) => Err(ended),
        },
        None => Ok(()),
    };
    let ended = ended.and_then(|()| statements(options, &mut script, &mut terminal));
    for Opened { named, file, .. } in &terminal.opened {
        if let Some(why) = file.lost() {
            let text = format!("{named}: the results are incomplete");
            return Err(Failure::unwritten(text, why));
        }
    }
    let exit = exit_of(options, &terminal, ended);
    match (terminal.keep, terminal.unread) {
        (Some(keep), error) => {
            // A script that ended early failed, whatever its statements said.
            let has_failed = keep.errors || exit != Exit::Done;
            let status = if has_failed { "error" } else { "ok" };
            let answer = Answer {
                action: "sql",
                said: keep.said,
                error,
            };
            context.output.json_as(status, exit, answer);
        }
        (None, Some(failure)) => context.output.fail(&failure),
        (None, None) => {}
    }
    Ok(exit)
}

/// A session on a server of its own, and the style of its results.
fn open<'a>(options: &Sql, context: &'a Context) -> Result<Terminal<'a>, Failure> {
    let backups = options.backup_directory.as_deref();
    let setup = configured::setup(&options.database, backups, context)?;
    let interrupt = setup.context.cancel.clone();
    let limit = options.query_timeout.map(|s| Duration::from_secs(s.into()));
    let cancel = match limit {
        Some(_) => Arc::default(),
        None => interrupt.clone(),
    };
    let (script_encoding, encoding) = encodings(options)?;
    let file_encoding = match options.unicode_output {
        true => Encoding::Utf16,
        false => encoding,
    };
    let mut opened = Vec::new();
    let file = options.output_file.as_deref();
    let file = file.map(|path| output_file(context, path, file_encoding, &mut opened));
    let style = Style {
        encoding,
        fixed_width: options.fixed_width.map_or(0, usize::from),
        control_characters: options.control_characters,
        errors: None,
        headers: options.headers,
        separator: options.separator.clone(),
        trim: options.trim,
        width: options.width.map(usize::from),
        variable_width: options.variable_width.map_or(WIDTH_MAX, usize::from),
        message_level: options.message_level,
        file: file.transpose()?,
        results_to_stderr: false,
        to_stderr: options.to_stderr,
        server: setup.name.clone(),
    };
    let login = Login {
        user: facts::user_name(),
        host: options.workstation.clone().unwrap_or_else(facts::host_name),
        program: "longshore sql".to_owned(),
    };
    let names = setup.databases.names();
    Ok(Terminal {
        context,
        names,
        session: Session::with_cancel(Server::start(setup), login, cancel),
        style,
        keep: context.output.json.then(Keep::default),
        file: None,
        failed: false,
        counted_from: options
            .severity_level
            .filter(|_| options.exit_on_error)
            .unwrap_or(0),
        unread: None,
        severity_max: 0,
        opened,
        script_encoding,
        file_encoding,
        limit,
        interrupt,
        statistics: options.statistics,
        packet_len: packet_len(options),
    })
}

/// Those of scripts and of results.
fn encodings(options: &Sql) -> Result<(Encoding, Encoding), Failure> {
    let named = options.codepage.as_deref().map(Encoding::of_both);
    named.unwrap_or_else(|| Ok(Default::default())).map_err(|piece| {
        Failure::usage(
            format!("-f {piece}: this encoding is not known here"),
            "use 65001 (UTF-8), 1252 or 1200 (UTF-16), or convert the file, for example with iconv",
        )
    })
}

fn packet_len(options: &Sql) -> u16 {
    options.packet_size.unwrap_or(4096)
}

/// There are no logins. The password is nowhere in the message, nor anywhere else.
fn check_login(options: &Sql) -> Result<(), Failure> {
    if options.user.is_none() && options.password.is_none() {
        return Ok(());
    }
    let given = match (&options.user, &options.password) {
        (Some(_), Some(_)) => "-U and -P",
        (Some(_), None) => "-U",
        _ => "-P",
    };
    Err(Failure::usage(
        format!("{given}: `longshore sql` has no logins, it runs as the operating system's user"),
        "leave -U and -P out; for a server with logins run `longshore serve`, and use sqlcmd with it",
    ))
}

/// As sqlcmd ends: failed statements count only if the options say so.
fn exit_of(options: &Sql, terminal: &Terminal, ended: Result<(), ScriptEnd>) -> Exit {
    match ended {
        // The batch was not done to its end, whatever the options count as a failure. An answer that could not be
        // written has a failure of its own. A reader that goes away interrupts the batch, too.
        Err(ScriptEnd::Closed) if output::lost().is_none() => {
            output::to_stderr(
                "longshore: whoever read the answer has gone, and the batch was ended; what had not finished is undone\n",
            );
            Exit::No
        }
        _ if terminal.interrupt.load(Ordering::Relaxed) => Exit::Interrupted,
        Err(ScriptEnd::Failed) => Exit::No,
        _ if options.exit_on_error && terminal.failed => Exit::No,
        _ if options
            .severity_level
            .is_some_and(|least| terminal.severity_max >= least) =>
        {
            Exit::No
        }
        Ok(()) => {
            let silent = terminal.context.output.json || !terminal.failed;
            note_unnoticed(options, silent);
            Exit::Done
        }
        Err(ScriptEnd::Asked | ScriptEnd::Closed) => Exit::Done,
    }
}

/// sqlcmd's exit code is 0 after failed statements, and a scheduled job takes that for success. Statements that a person
/// types, and scripts that chose their exit code with `-V`, need no note.
fn note_unnoticed(options: &Sql, silent: bool) {
    let is_script = options.query.is_some() || !options.input.is_empty();
    if !silent && is_script && options.severity_level.is_none() {
        output::to_stderr(
            "longshore: a statement failed; the exit code is 0, as with sqlcmd. Run with -b to end with 1\n",
        );
    }
}

/// The client can only name this server.
fn check_server(options: &Sql) -> Result<(), Failure> {
    let Some(name) = &options.server else {
        return Ok(());
    };
    let host = facts::host_name();
    let own = [".", "localhost", "(local)", host.as_str()];
    if own.iter().any(|n| n.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(Failure::usage(
        format!("-S {name}: `longshore sql` is its own server"),
        "leave out -S; for another machine's server use sqlcmd",
    ))
}

fn output_file(
    context: &Context,
    path: &Path,
    encoding: Encoding,
    opened: &mut Vec<Opened>,
) -> Result<Arc<OutputFile>, Failure> {
    let named = format!("-o {}", path.display());
    open_output(context, path, encoding, (named, opened)).map_err(|error| {
        let failure = Failure::usage(
            format!("-o {}: the file cannot be written", path.display()),
            "name a file in a directory that exists, then run the command again",
        );
        failure.numbered(numbers::FILE_UNUSABLE).because(error)
    })
}

/// A file for results, which is empty but for its mark; one that is open already goes on. `opened`: its name for messages, and the
/// files that are open.
fn open_output(
    context: &Context,
    path: &Path,
    encoding: Encoding,
    (named, opened): (String, &mut Vec<Opened>),
) -> std::io::Result<Arc<OutputFile>> {
    let absolute = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(std::io::ErrorKind::IsADirectory.into());
    };
    let dir = context.storage.dir(parent)?;
    let name = Path::new(name);
    let (found, is_new) = match dir.open_own(name, 0) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            (dir.open(name, OpenHow::CreateNew)?, true)
        }
        found => (found?, false),
    };
    let stat = found.stat()?;
    let id = (stat.dev, stat.ino);
    // A file that is open is not cut: what was written stays, and what follows is behind it.
    if let Some(known) = opened.iter().find(|known| known.id == id) {
        return Ok(known.file.clone());
    }
    // Devices have no length.
    if !is_new && stat.kind == FileKind::File {
        found.set_len(0)?;
    }
    let file = Arc::new(OutputFile::new(found, encoding));
    if encoding == Encoding::Utf16 {
        // The reason of a failed write is kept.
        let _lost = file.put("\u{feff}");
    }
    opened.push(Opened {
        named,
        id,
        file: file.clone(),
    });
    Ok(file)
}

/// The batch that options request before the first statement.
fn first_batch(options: &Sql) -> Option<String> {
    let mut first = String::new();
    if let Some(name) = &options.use_database {
        first += &format!("USE [{}];", name.replace(']', "]]"));
    }
    if options.verbose {
        first += "DBCC TRACEON (3604, 3213) WITH NO_INFOMSGS;";
    }
    (!first.is_empty()).then_some(first)
}

fn variables(options: &Sql) -> Result<Option<BTreeMap<String, String>>, Failure> {
    if options.no_variables {
        return Ok(None);
    }
    let mut variables = BTreeMap::new();
    for given in &options.variable {
        let Some((name, value)) = given.split_once('=') else {
            return Err(Failure::usage(
                format!("-v {given}: write a name and a value"),
                "for example -v directory=/mnt/a",
            ));
        };
        let value = value
            .strip_prefix('"')
            .and_then(|v| v.strip_suffix('"'))
            .unwrap_or(value);
        variables.insert(name.to_owned(), value.to_owned());
    }
    for (name, value) in own_variables(options) {
        let is_set = variables
            .keys()
            .any(|known| known.eq_ignore_ascii_case(name));
        if !is_set && std::env::var_os(name).is_none() {
            variables.insert(name.to_owned(), value);
        }
    }
    Ok(Some(variables))
}

/// sqlcmd's own variables, unless they are set.
fn own_variables(options: &Sql) -> [(&'static str, String); 12] {
    let server = options.server.clone().unwrap_or_else(facts::host_name);
    let number = |n: i64| n.to_string();
    [
        ("SQLCMDSERVER", server),
        (
            "SQLCMDWORKSTATION",
            options.workstation.clone().unwrap_or_else(facts::host_name),
        ),
        ("SQLCMDUSER", String::new()),
        (
            "SQLCMDDBNAME",
            options.use_database.clone().unwrap_or_default(),
        ),
        (
            "SQLCMDLOGINTIMEOUT",
            number(options.login_timeout.unwrap_or(8).into()),
        ),
        (
            "SQLCMDSTATTIMEOUT",
            number(options.query_timeout.unwrap_or(0).into()),
        ),
        ("SQLCMDPACKETSIZE", number(packet_len(options).into())),
        (
            "SQLCMDMAXVARTYPEWIDTH",
            number(options.variable_width.map_or(256, i64::from)),
        ),
        (
            "SQLCMDMAXFIXEDTYPEWIDTH",
            number(options.fixed_width.map_or(0, i64::from)),
        ),
        ("SQLCMDHEADERS", number(options.headers)),
        ("SQLCMDCOLSEP", options.separator.clone()),
        ("SQLCMDERRORLEVEL", number(options.message_level.into())),
    ]
}

fn statements(
    options: &Sql,
    script: &mut Script,
    terminal: &mut Terminal,
) -> Result<(), ScriptEnd> {
    if let Some(query) = &options.query {
        return script.text(query, terminal);
    }
    if let Some(query) = &options.initial_query {
        script.text(query, terminal)?;
    }
    if options.input.is_empty() {
        return from_stdin(script, terminal);
    }
    for path in &options.input {
        let text = match read(&*terminal.context.storage, path, terminal.script_encoding) {
            Ok(text) => text,
            Err(error) => {
                let what = format!("cannot read {}", path.display());
                let hint = "correct the path after -i, then run the command again; relative paths begin in the working directory";
                // As sqlcmd ends, which has this code for a file that it cannot read, too.
                let failure = Failure::new(Exit::No, numbers::FILE_UNUSABLE, what, hint);
                terminal.unread = Some(failure.because(error));
                return Err(ScriptEnd::Failed);
            }
        };
        let shown = path.display().to_string();
        if let Some(keep) = &mut terminal.keep {
            keep.file = Some(shown.clone());
        }
        terminal.file = Some(shown);
        script.text(&text, terminal)?;
    }
    Ok(())
}

/// Takes lines as they arrive; a terminal gets a prompt.
fn from_stdin(script: &mut Script, terminal: &mut Terminal) -> Result<(), ScriptEnd> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() && std::io::stdout().is_terminal() {
        return from_person(script, terminal);
    }
    let encoding = terminal.script_encoding;
    for line in Lines::new(stdin.lock(), encoding) {
        match line {
            Ok(line) => script.line(&line, terminal)?,
            Err(error) => {
                terminal.tell(&format!("standard input: {error}"));
                return Err(ScriptEnd::Failed);
            }
        }
    }
    script.go(1, terminal)
}

fn from_person(script: &mut Script, terminal: &mut Terminal) -> Result<(), ScriptEnd> {
    let context = terminal.context;
    let names = terminal.names.clone();
    let opened = Prompt::open(context.storage.clone(), context.catalog.as_deref(), names);
    let wrong = |terminal: &mut Terminal, error: rustyline::error::ReadlineError| {
        terminal.tell(&format!("the terminal cannot be read: {error}"));
        ScriptEnd::Failed
    };
    let mut prompt = opened.map_err(|e| wrong(terminal, e))?;
    let ended = loop {
        let text = format!("{}> ", script.batch_lines() + 1);
        let had = script.batch_lines();
        match prompt.line(&text).map_err(|e| wrong(terminal, e))? {
            UserInput::Line(line) => match script.line(&line, terminal) {
                // An error at the prompt does not end the session.
                Ok(()) | Err(ScriptEnd::Failed) => {}
                ended => break ended,
            },
            UserInput::Dropped => script.drop_batch(),
            UserInput::End => break script.go(1, terminal),
        }
        if had > 0 && script.batch_lines() == 0 {
            prompt.end_batch();
        }
    };
    prompt.save();
    ended
}

fn read(storage: &dyn Storage, path: &Path, encoding: Encoding) -> std::io::Result<String> {
    let real = storage.canonical(path)?;
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(std::io::ErrorKind::IsADirectory.into());
    };
    let file = storage.dir(parent)?.open(Path::new(name), OpenHow::Read)?;
    let len = file.stat()?.len;
    if len > LEN_MAX {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; len as usize];
    let got = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(got);
    decoded(bytes, encoding)
}

/// Decodes a script: by its byte order mark, which SQL Server's tools write, else in the encoding that it is said to have.
fn decoded(bytes: Vec<u8>, encoding: Encoding) -> std::io::Result<String> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.chunks_exact(2).map(|p| unit([p[0], p[1]])).collect();
        String::from_utf16(&units).map_err(std::io::Error::other)
    };
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, ..] => Encoding::Utf8.decoded(bytes),
        _ => encoding.decoded(bytes),
    }
}

/// The number of a text, without its fraction; `None`: it is no number.
fn whole(text: &str) -> Option<i64> {
    let text = text.trim();
    let fraction = || {
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite())?;
        Some(number.trunc() as i64)
    };
    text.parse().ok().or_else(fraction)
}

/// The lines of sqlcmd's -p. There is no network: the size of a packet is what -a says.
fn statistics(how: u8, packet_len: u16, took: Duration) -> String {
    // As sqlcmd, which shows at least one millisecond.
    let ms = took.as_millis().max(1);
    let average = ms as f64;
    let rate = 1000.0 / average;
    match how {
        0 => format!(
            "\nNetwork packet size (bytes): {packet_len}\n1 xact[s]:\n\
             Clock Time (ms.): total   {ms:>7}  avg   {average:.2} ({rate:.2} xacts per sec.)"
        ),
        // The blank at its end is sqlcmd's.
        _ => format!("\n{packet_len}:1:{ms}:{average:.2}:{rate:.2} "),
    }
}

impl Terminal<'_> {
    /// Runs a batch; also gives the first value of its last row.
    fn run(&mut self, text: &str, line: usize) -> Result<(Ran, Option<Value>), ScriptEnd> {
        let mut show = Show::new(&self.style);
        let sink: &mut dyn Sink = match &mut self.keep {
            Some(keep) => keep,
            None => &mut show,
        };
        let mut advised = Advised {
            inner: sink,
            message_level: self.style.message_level,
            error: None,
            quits: false,
            last: None,
        };
        let (interrupt, cancel) = (self.interrupt.clone(), self.session.cancel_flag());
        let limit = match self.limit {
            None => None,
            Some(limit) => {
                let begun = TimeLimit::begin(limit, interrupt, cancel);
                if begun.is_none() {
                    self.tell("-t: there is no thread for the limit");
                    self.failed = true;
                    return Err(ScriptEnd::Failed);
                }
                begun
            }
        };
        let begun = self.context.clock.now();
        let ran = self
            .session
            .run(text, &mut advised)
            .map_err(|_| ScriptEnd::Closed)?;
        let took = self.context.clock.now().saturating_sub(begun);
        let is_late = limit.is_some_and(TimeLimit::end);
        let quits = advised.quits || ran.ended;
        let last = advised.last;
        if let Some(error) = advised.error.filter(|_| !self.context.output.json) {
            let file = self.file.as_deref();
            output::to_stderr(&advice::lines(&error, BatchOrigin { file, line }));
        }
        if is_late {
            self.tell("Timeout expired");
        }
        if let Some(how) = self.statistics {
            self.tell(&statistics(how, self.packet_len, took));
        }
        let has_failed = ran.failed() && ran.severity_max >= self.counted_from || is_late;
        self.failed |= has_failed;
        self.severity_max = self.severity_max.max(ran.severity_max);
        if quits {
            return Err(ScriptEnd::Failed);
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(ScriptEnd::Failed);
        }
        let outcome = match has_failed {
            true => Ran::WithErrors,
            false => Ran::Well,
        };
        Ok((outcome, last))
    }
}

impl Client for Terminal<'_> {
    fn batch(&mut self, text: &str, begun: usize) -> Result<Ran, ScriptEnd> {
        Ok(self.run(text, begun)?.0)
    }

    fn value(&mut self, text: &str, begun: usize) -> Result<Option<i64>, ScriptEnd> {
        let (ran, last) = self.run(text, begun)?;
        let number = last.and_then(|value| whole(&value.to_string()));
        Ok(number.filter(|_| ran == Ran::Well))
    }

    fn read(&mut self, name: &str) -> Result<String, String> {
        read(
            &*self.context.storage,
            Path::new(name),
            self.script_encoding,
        )
        .map_err(|e| e.to_string())
    }

    fn redirect(&mut self, what: Redirected, to: &str) -> Result<(), String> {
        if self.keep.is_some() {
            return Err("--json has everything that is said".to_owned());
        }
        let is = |word: &str| to.eq_ignore_ascii_case(word);
        let file = match is("stdout") || is("stderr") {
            true => None,
            false => {
                let opened = (to.to_owned(), &mut self.opened);
                let file = open_output(self.context, Path::new(to), self.file_encoding, opened);
                Some(file.map_err(|e| e.to_string())?)
            }
        };
        match (what, file) {
            (Redirected::Results, file) => {
                self.style.results_to_stderr = file.is_none() && is("stderr");
                self.style.file = file;
            }
            (Redirected::Errors, Some(file)) => self.style.errors = Some(ErrorsTo::File(file)),
            (Redirected::Errors, None) if is("stderr") => {
                self.style.errors = Some(ErrorsTo::StandardError);
            }
            (Redirected::Errors, None) => self.style.errors = Some(ErrorsTo::StandardOutput),
        }
        Ok(())
    }

    fn tell(&mut self, text: &str) {
        let output = &self.context.output;
        match &self.style.file {
            Some(file) => {
                // The file keeps the reason of a failed write.
                let _lost = file.put(&format!("{text}\n"));
            }
            None if output.json => output.warn(text),
            None if self.style.results_to_stderr => {
                show::aside(&self.style.encoding.encoded(&format!("{text}\n")));
            }
            None => output.raw(&self.style.encoding.encoded(&format!("{text}\n"))),
        }
    }
}

#[cfg(test)]
#[path = "../../../../sql/tsql/tests/sinks/suite.rs"]
pub(crate) mod sink_suite;

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet_context() -> Context {
        Context {
            output: output::Output {
                json: false,
                quiet: true,
                verbose: false,
                stdout_taken: false,
            },
            config: crate::config::Config::default(),
            storage: Arc::new(longshore_io::Host::new()),
            clock: Arc::new(longshore_io::HostClock),
            catalog: None,
        }
    }

    /// Everything that a user of `-o` is shown is in that file.
    #[test]
    fn a_terminal_keeps_the_contract_of_all_clients_of_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (results, there, missing) = (path("results"), path("there.sql"), path("missing.sql"));
        std::fs::write(&there, "SELECT 1\n").unwrap();
        let cli = ["longshore", "--catalog", "none", "sql", "-o", &results];
        let cli = <crate::options::Cli as clap::Parser>::try_parse_from(cli).unwrap();
        let crate::options::Command::Sql(options) = &cli.command else {
            panic!("{cli:?}");
        };
        let context = quiet_context();
        let mut terminal = open(options, &context).unwrap();
        let files = client_contract::Files {
            there: &there,
            text: "SELECT 1\n",
            missing: &missing,
        };
        let heard = |_: &Terminal| std::fs::read_to_string(&results).unwrap();
        client_contract::keeps_its_contract(&mut terminal, &files, heard);
        assert_eq!((terminal.failed, terminal.severity_max), (true, 16));
    }

    /// Goal: `-V` says which errors `-b` counts, as with sqlcmd.
    #[test]
    fn an_error_below_the_severity_of_v_ends_no_script() {
        let context = quiet_context();
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("results");
        let results = results.to_str().unwrap();
        for (level, exit) in [("17", Exit::Done), ("16", Exit::No)] {
            let cli = [
                "longshore",
                "--catalog",
                "none",
                "sql",
                "-o",
                results,
                "-b",
                "-V",
                level,
            ];
            let cli = <crate::options::Cli as clap::Parser>::try_parse_from(cli).unwrap();
            let crate::options::Command::Sql(options) = &cli.command else {
                panic!("{cli:?}");
            };
            let mut terminal = open(options, &context).unwrap();
            let ran = terminal.batch("RAISERROR ('x', 16, 1)", 1);
            let ended = ran.and_then(|ran| match ran {
                Ran::Well => Ok(()),
                Ran::WithErrors => Err(ScriptEnd::Failed),
            });
            assert_eq!(exit_of(options, &terminal, ended), exit, "{level}");
        }
    }

    /// The texts are those of sqlcmd, blank by blank.
    #[test]
    fn the_time_of_a_batch_is_told_as_sqlcmd_does() {
        let of = |how, ms| statistics(how, 4096, Duration::from_millis(ms));
        let begin = "\nNetwork packet size (bytes): 4096\n1 xact[s]:\nClock Time (ms.): total   ";
        let quick = format!("{begin}      1  avg   1.00 (1000.00 xacts per sec.)");
        assert_eq!(of(0, 0), quick);
        let slow = format!("{begin}   2500  avg   2500.00 (0.40 xacts per sec.)");
        assert_eq!(of(0, 2500), slow);
        assert_eq!(of(1, 8), "\n4096:1:8:8.00:125.00 ");
    }

    #[test]
    fn the_number_of_exit_has_no_fraction() {
        let all = [
            "0", "0.0", "-0.00", "0.9", "3.5", "-1", "", "x", "NaN", "inf",
        ];
        let expected = [Some(0), Some(0), Some(0), Some(0), Some(3), Some(-1)];
        let found = all.map(whole);
        assert_eq!(found[..6], expected);
        assert_eq!(found[6..], [None; 4]);
    }

    #[test]
    fn scripts_are_read_in_the_encodings_that_tools_write() {
        let text = |bytes: &[u8]| decoded(bytes.to_vec(), Encoding::Utf8).unwrap();
        assert_eq!(text("é".as_bytes()), "é");
        assert_eq!(text(&[0xff, 0xfe, 0xe9, 0]), "é");
        assert_eq!(text(&[0xfe, 0xff, 0, 0xe9]), "é");
        assert!(decoded(vec![0xe9], Encoding::Utf8).is_err());
        assert_eq!(decoded(vec![0xe9], Encoding::Windows1252).unwrap(), "é");
    }
}
