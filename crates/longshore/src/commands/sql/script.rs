//! sqlcmd's part of a script: batches and GO, `$(variables)`, and the commands that begin with a colon.
//!
//! Invariants
//! - The parser works line by line and knows no statements.
//! - Of a batch that may have a secret in it, the echo has no line.
//! - GO and commands count only outside quotation marks and comments, so a text of several lines may contain any line.
//!
//! Leaves to others: running a batch and reading files (`mod.rs`).

use std::collections::BTreeMap;

use longshore_tsql::syntax::may_have_secret;

/// Runs batches and reads files for a script, which calls from one thread and nothing after a `ScriptEnd`. The tests in
/// `client_contract.rs` check this text for every client.
pub trait Client {
    /// Runs a batch once and shows what it prints. An error of a statement is in the outcome, and the next batch runs.
    /// `Err`: the reader is gone, or the run was interrupted.
    ///
    /// `begun`: the line of the text on which it begins, from 1; 0 for lines that are no text of their own.
    fn batch(&mut self, text: &str, begun: usize) -> Result<Ran, ScriptEnd>;

    /// The same, and the number in the first column of its last row; `None`: there is none.
    fn value(&mut self, text: &str, begun: usize) -> Result<Option<i64>, ScriptEnd>;

    /// The text of a file that the script names (`:r`), whole. `Err`: the reason, which the script tells.
    fn read(&mut self, name: &str) -> Result<String, String>;

    /// Sends what follows to a file, to `stdout` or to `stderr` (words of any case). `Err`: the reason, which the script tells.
    fn redirect(&mut self, what: Redirected, to: &str) -> Result<(), String>;

    /// A line for the user, in the order of the calls and of what batches print.
    fn tell(&mut self, text: &str);
}

/// The lines that `:out` and `:error` redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirected {
    Results,
    Errors,
}

/// sqlcmd's commands that are refused, with what to do instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("!!", "a script runs no programs; run them around longshore"),
    (
        "connect",
        "this program is its own server; for another server use sqlcmd",
    ),
    ("ed", "edit a file and run it with -i or :r"),
    ("perftrace", "the statistics of -p go where results go"),
    ("serverlist", "there is no list of servers"),
    (
        "xml",
        "results in XML look as others do; leave :XML ON out, and use -y 0 -h -1",
    ),
];

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    Well,
    WithErrors,
}

/// Why a script ended before its last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptEnd {
    /// The script said EXIT or QUIT.
    Asked,
    /// An error, if errors end the script; or an invalid line.
    Failed,
    /// The reader of the output is gone.
    Closed,
}

/// The maximum depth of nested files.
const DEPTH_MAX: usize = 16;
/// The maximum of `GO n`: SQL Server's int.
const TIMES_MAX: u32 = i32::MAX as u32;
/// The echo of a batch that may have a secret in it.
const HIDDEN: &str = "-- a batch that may have a secret in it is not shown";

/// The construct that is open at the end of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum OpenConstruct {
    #[default]
    Nothing,
    /// A text until this character.
    Quote(char),
    /// This number of nested comments.
    Comment(usize),
}

impl OpenConstruct {
    fn after(mut self, line: &str) -> OpenConstruct {
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            let next = chars.peek().copied();
            match self {
                OpenConstruct::Nothing => match (c, next) {
                    ('-', Some('-')) => return OpenConstruct::Nothing,
                    ('/', Some('*')) => {
                        chars.next();
                        self = OpenConstruct::Comment(1);
                    }
                    ('\'' | '"', _) => self = OpenConstruct::Quote(c),
                    ('[', _) => self = OpenConstruct::Quote(']'),
                    _ => {}
                },
                // A doubled quotation mark closes and opens again.
                OpenConstruct::Quote(mark) if c == mark => self = OpenConstruct::Nothing,
                OpenConstruct::Quote(_) => {}
                OpenConstruct::Comment(n) => match (c, next) {
                    ('*', Some('/')) => {
                        chars.next();
                        self = match n {
                            1 => OpenConstruct::Nothing,
                            n => OpenConstruct::Comment(n - 1),
                        };
                    }
                    ('/', Some('*')) => {
                        chars.next();
                        self = OpenConstruct::Comment(n + 1);
                    }
                    _ => {}
                },
            }
        }
        self
    }
}

/// A script that is being read.
pub struct Script {
    /// `None`: `$(…)` is left alone.
    variables: Option<BTreeMap<String, String>>,
    exit_on_error: bool,
    echo: bool,
    /// The lines that the echo has not shown: those of a batch are shown together, when it is known what they are about.
    unshown: Vec<String>,
    batch: String,
    open: OpenConstruct,
    depth: usize,
    /// The line of the outermost text, from 1; 0 without one.
    at: usize,
    /// The same, of the current batch's first line.
    begun: usize,
}

impl Script {
    pub fn new(
        variables: Option<BTreeMap<String, String>>,
        exit_on_error: bool,
        echo: bool,
    ) -> Script {
        // Variable names are case-insensitive.
        let folded = variables.map(|all| {
            let fold = |(name, value): (String, String)| (name.to_lowercase(), value);
            all.into_iter().map(fold).collect()
        });
        Script {
            variables: folded,
            exit_on_error,
            echo,
            unshown: Vec::new(),
            batch: String::new(),
            open: OpenConstruct::Nothing,
            depth: 0,
            at: 0,
            begun: 0,
        }
    }

    /// Runs a whole text; the lines after its last GO are a batch too.
    pub fn text(&mut self, text: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        self.lines(text, client)?;
        self.go(1, client)
    }

    fn lines(&mut self, text: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (i, line) in text.lines().enumerate() {
            if self.depth == 0 {
                self.at = i + 1;
            }
            self.line(line, client)?;
        }
        Ok(())
    }

    /// The number of lines in the current batch; 0 at its start.
    pub fn batch_lines(&self) -> usize {
        self.batch.lines().count()
    }

    /// Drops the current batch.
    pub fn drop_batch(&mut self) {
        self.unshown.clear();
        self.batch.clear();
        self.open = OpenConstruct::Nothing;
    }

    /// Takes one line; runs the batch if the line ends it.
    pub fn line(&mut self, line: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        if self.echo {
            self.unshown.push(line.to_owned());
        }
        let line = match self.substituted(line) {
            Ok(line) => line,
            Err(name) => {
                self.show(client);
                client.tell(&format!("'{name}' scripting variable not defined."));
                return Err(ScriptEnd::Failed);
            }
        };
        if self.open == OpenConstruct::Nothing {
            if let Some(times) = go_times(&line) {
                return self.go(times, client);
            }
            let words = line.trim();
            if let Some(query) = exit_query(words) {
                self.show(client);
                return self.exit_with(query, client);
            }
            if let Some(command) = words.strip_prefix(':') {
                self.show(client);
                return self.command(command, client);
            }
            if words.starts_with("!!") {
                self.show(client);
                return Err(refused("!!", client));
            }
            let word = words.trim_end_matches(';');
            if word.eq_ignore_ascii_case("reset") {
                self.show(client);
                self.drop_batch();
                return Ok(());
            }
            if word.eq_ignore_ascii_case("ed") {
                self.show(client);
                return Err(refused("ed", client));
            }
            if word.eq_ignore_ascii_case("exit") || word.eq_ignore_ascii_case("quit") {
                self.show(client);
                return Err(ScriptEnd::Asked);
            }
        }
        self.open = self.open.after(&line);
        if self.batch.is_empty() {
            self.begun = self.at;
        }
        self.batch += &line;
        self.batch.push('\n');
        Ok(())
    }

    /// Shows the lines that the echo owes.
    fn show(&mut self, client: &mut dyn Client) {
        let lines = std::mem::take(&mut self.unshown);
        let hides = may_have_secret(&self.batch) || lines.iter().any(|l| may_have_secret(l));
        match lines.is_empty() {
            false if hides => client.tell(HIDDEN),
            _ => lines.iter().for_each(|line| client.tell(line)),
        }
    }

    /// `EXIT(query)`: the batch and the query run, and the query's value says how the script ended. `EXIT()` runs the
    /// batch alone.
    fn exit_with(&mut self, query: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        let batch = std::mem::take(&mut self.batch) + query;
        if batch.trim().is_empty() {
            return Err(ScriptEnd::Asked);
        }
        let begun = if self.begun == 0 { self.at } else { self.begun };
        match (query.trim().is_empty(), client.value(&batch, begun)?) {
            (true, _) | (false, Some(0)) => Err(ScriptEnd::Asked),
            (false, _) => Err(ScriptEnd::Failed),
        }
    }

    /// Runs the current batch.
    pub fn go(&mut self, times: u32, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        self.show(client);
        let batch = std::mem::take(&mut self.batch);
        self.open = OpenConstruct::Nothing;
        if batch.trim().is_empty() {
            return Ok(());
        }
        for _ in 0..times {
            if client.batch(&batch, self.begun)? == Ran::WithErrors && self.exit_on_error {
                return Err(ScriptEnd::Failed);
            }
        }
        Ok(())
    }

    fn command(&mut self, command: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        let (word, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = rest.trim();
        match word.to_ascii_lowercase().as_str() {
            "r" => self.include(unquoted(rest), client),
            "setvar" => self.set_variable(rest, client),
            "on" => self.on_error(rest, client),
            "exit" | "quit" => Err(ScriptEnd::Asked),
            "out" => redirect(Redirected::Results, rest, client),
            "error" => redirect(Redirected::Errors, rest, client),
            // Results in XML are as others from here on, which they are anyway.
            "xml" if rest.eq_ignore_ascii_case("off") => Ok(()),
            word if word.starts_with("!!") => Err(refused("!!", client)),
            word if ELSEWHERE.iter().any(|(known, _)| *known == word) => Err(refused(word, client)),
            "reset" => {
                self.drop_batch();
                Ok(())
            }
            "list" => {
                client.tell(match may_have_secret(&self.batch) {
                    true => HIDDEN,
                    false => self.batch.trim_end(),
                });
                Ok(())
            }
            "listvar" => {
                for (name, value) in self.variables.iter().flatten() {
                    client.tell(&format!("{name} = \"{value}\""));
                }
                Ok(())
            }
            "help" => {
                client.tell(
                    ":r FILE · :setvar NAME VALUE · :listvar · :on error exit|ignore · :out FILE · :error FILE · :list · :reset · :quit · EXIT(QUERY)",
                );
                Ok(())
            }
            _ => {
                client.tell(&format!(
                    "unknown command :{word}; `:help` lists the commands"
                ));
                Err(ScriptEnd::Failed)
            }
        }
    }

    fn include(&mut self, name: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        if self.depth >= DEPTH_MAX {
            client.tell(&format!(":r {name}: files are nested too deeply"));
            return Err(ScriptEnd::Failed);
        }
        let text = client.read(name).map_err(|why| {
            client.tell(&format!(
                ":r {name}: {why}\nhint: correct the path; relative paths begin in the working directory"
            ));
            ScriptEnd::Failed
        })?;
        self.depth += 1;
        let read = self.lines(&text, client);
        self.depth -= 1;
        read
    }

    /// `:setvar name value` and `:setvar name "a value"` set a variable; without a value the variable is removed.
    fn set_variable(&mut self, rest: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if name.is_empty() || !name.chars().all(is_name) {
            client.tell(":setvar needs a name and a value");
            return Err(ScriptEnd::Failed);
        }
        let Some(variables) = &mut self.variables else {
            return Ok(());
        };
        let value = value.trim();
        match value.is_empty() {
            true => variables.remove(&name.to_lowercase()),
            false => variables.insert(name.to_lowercase(), unquoted(value).to_owned()),
        };
        Ok(())
    }

    fn on_error(&mut self, rest: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
        let words: Vec<_> = rest
            .split_whitespace()
            .map(str::to_ascii_lowercase)
            .collect();
        match words
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["error", "exit"] => self.exit_on_error = true,
            ["error", "ignore"] => self.exit_on_error = false,
            _ => {
                client.tell("write `:on error exit` or `:on error ignore`");
                return Err(ScriptEnd::Failed);
            }
        }
        Ok(())
    }

    /// The line with its variables replaced by their values. Errors: the name of one that has none.
    fn substituted(&self, line: &str) -> Result<String, String> {
        let Some(variables) = &self.variables else {
            return Ok(line.to_owned());
        };
        let mut made = String::new();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("$(") {
            made += before;
            let Some((name, later)) = after
                .split_once(')')
                .filter(|(n, _)| n.chars().all(is_name))
            else {
                made += "$(";
                rest = after;
                continue;
            };
            let value = variables
                .get(&name.to_lowercase())
                .cloned()
                .or_else(|| std::env::var(name).ok());
            let Some(value) = value else {
                return Err(name.to_owned());
            };
            made += &value;
            rest = later;
        }
        Ok(made + rest)
    }
}

/// Says that a command is not there, and what to do instead.
fn refused(command: &str, client: &mut dyn Client) -> ScriptEnd {
    let found = ELSEWHERE.iter().find(|(known, _)| *known == command);
    let hint = found.map_or("", |(_, hint)| hint);
    let colon = if command == "!!" { "" } else { ":" };
    client.tell(&format!("{colon}{command} is not here: {hint}"));
    ScriptEnd::Failed
}

/// `:out FILE`, `:error FILE`
fn redirect(what: Redirected, to: &str, client: &mut dyn Client) -> Result<(), ScriptEnd> {
    let word = match what {
        Redirected::Results => "out",
        Redirected::Errors => "error",
    };
    let to = unquoted(to);
    if to.is_empty() {
        client.tell(&format!(
            "write `:{word} FILE`, `:{word} stdout` or `:{word} stderr`"
        ));
        return Err(ScriptEnd::Failed);
    }
    client.redirect(what, to).map_err(|why| {
        client.tell(&format!(":{word} {to}: {why}"));
        ScriptEnd::Failed
    })
}

/// The query of `EXIT(query)`, on one line; `None`: it is another line.
fn exit_query(line: &str) -> Option<&str> {
    let line = line.trim_end_matches(';').trim_end();
    let line = line.strip_prefix(':').unwrap_or(line);
    let (word, rest) = line.split_at_checked("exit".len())?;
    let inner = rest.trim_start().strip_prefix('(')?.strip_suffix(')')?;
    word.eq_ignore_ascii_case("exit").then_some(inner)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '#')
}

fn unquoted(text: &str) -> &str {
    let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    inner.unwrap_or(text)
}

/// `GO` or `GO n` alone on its line; a comment may follow.
fn go_times(line: &str) -> Option<u32> {
    let line = line.split("--").next().unwrap_or(line);
    let mut words = line.split_whitespace();
    if !words.next()?.eq_ignore_ascii_case("go") {
        return None;
    }
    match (words.next(), words.next()) {
        (None, _) => Some(1),
        (Some(times), None) => times.parse().ok().filter(|n| *n <= TIMES_MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::client_contract::{Files, keeps_its_contract};
    use super::*;

    #[derive(Default)]
    struct Heard {
        batches: Vec<String>,
        begun: Vec<usize>,
        told: Vec<String>,
        redirected: Vec<String>,
        /// Batches and lines in their order.
        all: String,
        files: BTreeMap<String, String>,
    }

    impl Client for Heard {
        fn batch(&mut self, text: &str, begun: usize) -> Result<Ran, ScriptEnd> {
            self.batches.push(text.trim().to_owned());
            self.all += text;
            self.begun.push(begun);
            Ok(match text.contains("FAIL") {
                true => Ran::WithErrors,
                false => Ran::Well,
            })
        }

        fn value(&mut self, text: &str, begun: usize) -> Result<Option<i64>, ScriptEnd> {
            self.batch(text, begun)?;
            Ok(text.trim().rsplit(' ').next().and_then(|n| n.parse().ok()))
        }

        fn read(&mut self, name: &str) -> Result<String, String> {
            self.files
                .get(name)
                .cloned()
                .ok_or_else(|| "not there".to_owned())
        }

        fn redirect(&mut self, what: Redirected, to: &str) -> Result<(), String> {
            match to {
                "nowhere" => Err("not there".to_owned()),
                to => {
                    self.redirected.push(format!("{what:?} {to}"));
                    Ok(())
                }
            }
        }

        fn tell(&mut self, text: &str) {
            self.told.push(text.to_owned());
            self.all += &format!("{text}\n");
        }
    }

    #[test]
    fn the_record_of_these_tests_keeps_the_contract_of_all_clients() {
        let mut heard = Heard::default();
        heard.files.insert("there.sql".into(), "SELECT 1\n".into());
        let files = Files {
            there: "there.sql",
            text: "SELECT 1\n",
            missing: "missing.sql",
        };
        keeps_its_contract(&mut heard, &files, |heard| heard.all.clone());
        // Three batches, and two queries that end a script.
        assert_eq!(heard.begun, [1, 3, 5, 7, 9]);
    }

    fn run(text: &str) -> (Heard, Result<(), ScriptEnd>) {
        let mut heard = Heard::default();
        heard
            .files
            .insert("other.sql".into(), "PRINT 'o'\nGO\n:r other.sql".into());
        heard.files.insert("one.sql".into(), "PRINT '$(x)'".into());
        let variables = BTreeMap::from([("X".to_owned(), "7".to_owned())]);
        let mut script = Script::new(Some(variables), false, false);
        let ended = script.text(text, &mut heard);
        (heard, ended)
    }

    #[test]
    fn batches_end_at_go_and_are_repeated_as_often_as_it_says() {
        let (heard, _) = run("a\nGO\nb\n  go 2 -- twice\nc");
        assert_eq!(heard.batches, ["a", "b", "b", "c"]);
        assert_eq!(heard.begun, [1, 3, 3, 5]);
    }

    #[test]
    fn a_go_inside_of_quotes_or_comments_is_a_part_of_them() {
        let (heard, _) = run("a '\nGO\n' b\nGO\n/* x /* y */\nGO\n*/ c\nGO\n[d\nGO\n]");
        assert_eq!(heard.batches.len(), 3, "{:?}", heard.batches);
        let (heard, _) = run("it''s -- a ' comment\nGO\nb");
        assert_eq!(heard.batches.len(), 2, "{:?}", heard.batches);
    }

    #[test]
    fn variables_are_put_in_everywhere_and_missing_ones_end_the_script() {
        let (heard, ended) = run(":setvar where \"/mnt/a b\"\nTO '$(WHERE)/$(x).bak' $( $(\nGO");
        assert_eq!(ended, Ok(()));
        assert_eq!(heard.batches, ["TO '/mnt/a b/7.bak' $( $("]);
        let (heard, ended) = run("a\nGO\n$(nowhere_to_be_found)");
        assert_eq!(ended, Err(ScriptEnd::Failed));
        assert_eq!(
            heard.told,
            ["'nowhere_to_be_found' scripting variable not defined."]
        );
        assert_eq!(heard.batches, ["a"]);
    }

    #[test]
    fn files_are_included_and_not_for_ever() {
        let (heard, _) = run("a\n:r one.sql\nb");
        assert_eq!(heard.batches, ["a\nPRINT '7'\nb"]);
        // A line of an included file is where the outer one names it.
        assert_eq!(run("a\nGO\n:r one.sql\nb").0.begun, [1, 3]);
        let (heard, ended) = run(":r other.sql");
        assert_eq!(ended, Err(ScriptEnd::Failed));
        assert_eq!(heard.batches.len(), DEPTH_MAX);
        assert_eq!(run(":r missing.sql").1, Err(ScriptEnd::Failed));
    }

    #[test]
    fn the_echo_has_every_line_but_those_of_a_batch_about_a_credential() {
        let mut heard = Heard::default();
        let mut script = Script::new(None, false, true);
        let text =
            "a\nGO\nb 'x'\n:help\nCREATE Credential c\n:list\nSECRET = 'verysecret'\nGO\nc\nd";
        script.text(text, &mut heard).unwrap();
        assert_eq!(heard.batches.len(), 3);
        let told: Vec<&str> = heard.told.iter().map(String::as_str).collect();
        assert_eq!(told[..4], ["a", "GO", "b 'x'", ":help"]);
        assert_eq!(told[5..], [HIDDEN, HIDDEN, HIDDEN, "c", "d"]);
        // Lines stand before what their batch prints.
        assert!(heard.all.starts_with("a\nGO\na\n"), "{}", heard.all);
        let mut heard = Heard::default();
        let mut script = Script::new(None, false, true);
        let text = "PRINT 'verysecret'\nDROP CREDENTIAL c\nGO\nexit";
        let ended = script.text(text, &mut heard);
        assert_eq!(ended, Err(ScriptEnd::Asked));
        assert_eq!(heard.told, [HIDDEN, "exit"]);
    }

    #[test]
    fn a_query_of_exit_runs_with_its_batch_and_says_how_the_script_ended() {
        for (text, batches, ended) in [
            (
                "a\nEXIT(SELECT 0)\nb",
                vec!["a\nSELECT 0"],
                ScriptEnd::Asked,
            ),
            ("exit (SELECT 3);", vec!["SELECT 3"], ScriptEnd::Failed),
            ("EXIT(SELECT x)", vec!["SELECT x"], ScriptEnd::Failed),
            ("a\nEXIT()", vec!["a"], ScriptEnd::Asked),
            ("EXIT()", vec![], ScriptEnd::Asked),
            (":EXIT(SELECT 3)\nb", vec!["SELECT 3"], ScriptEnd::Failed),
        ] {
            let (heard, end) = run(text);
            assert_eq!(heard.batches, batches, "{text}");
            assert_eq!(end, Err(ended), "{text}");
        }
        assert_eq!(run("EXIT(SELECT 1").0.batches, ["EXIT(SELECT 1"]);
        assert_eq!(run("a '\nEXIT(SELECT 1)\n'").0.batches.len(), 1);
    }

    #[test]
    fn commands_of_sqlcmd_are_done_or_refused_with_what_to_do() {
        let (heard, ended) = run(":out \"a b.txt\"\n:Error stderr\n:xml off\na\nRESET\nb");
        assert_eq!(ended, Ok(()));
        assert_eq!(heard.redirected, ["Results a b.txt", "Errors stderr"]);
        assert_eq!(heard.batches, ["b"]);
        let refused = [
            ":!! dir",
            "!!dir",
            ":connect other",
            ":xml on",
            ":ed",
            "ed",
            ":serverlist",
            ":perftrace stdout",
            ":out",
            ":error nowhere",
            ":nonsense",
        ];
        for line in refused {
            let (heard, ended) = run(&format!("{line}\na"));
            assert_eq!(ended, Err(ScriptEnd::Failed), "{line}");
            assert!(heard.batches.is_empty(), "{line}");
            assert_eq!(heard.told.len(), 1, "{line}");
        }
        let told = run(":connect other -U sa -P verysecret").0.told;
        assert!(!told[0].contains("verysecret"), "{told:?}");
    }

    #[test]
    fn errors_end_a_script_that_says_so() {
        let (heard, ended) = run("FAIL\nGO\nb\nGO\n:on error exit\nFAIL\nGO\nc");
        assert_eq!(heard.batches, ["FAIL", "b", "FAIL"]);
        assert_eq!(ended, Err(ScriptEnd::Failed));
        assert_eq!(run("a\nGO\nexit\nb").1, Err(ScriptEnd::Asked));
        assert_eq!(run(":ed").1, Err(ScriptEnd::Failed));
    }
}
