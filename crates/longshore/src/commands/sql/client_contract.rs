//! The text of [`Client`] as a test of any client of a script: the terminal, the record of the script's own tests, and
//! doubles that lie.
//!
//! Invariants
//! - Only what the user was shown counts, not how the client keeps it.
//! - A broken promise panics.
//!
//! Leaves to others: the script's part (`script.rs`), and the form of results (`show.rs`).

use super::script::{Client, Ran, Redirected, ScriptEnd};

/// A file that the client can read, one that it cannot, and the text of the first.
pub struct Files<'a> {
    pub there: &'a str,
    pub text: &'a str,
    pub missing: &'a str,
}

/// Checks whatever the trait promises. `heard` is everything that the user was shown so far: lines, and what batches
/// printed.
///
/// # Panics
/// If the client breaks a promise.
pub fn keeps_its_contract<C: Client>(client: &mut C, files: &Files, heard: impl Fn(&C) -> String) {
    let before = heard(client);
    client.tell("first line");
    client.tell("second line");
    let told = heard(client);
    let told = told.strip_prefix(&before).expect("nothing is unsaid");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines,
        ["first line", "second line"],
        "each line once, in order"
    );

    // An error is in the outcome, is shown, and does not stay.
    assert_eq!(client.batch("PRINT 'begins'\n", 1), Ok(Ran::Well));
    let failed = client.batch("SELECT * FROM FAIL\n", 3);
    assert_eq!(failed, Ok(Ran::WithErrors), "the batch had an error");
    assert_eq!(client.batch("PRINT 'goes on'\n", 5), Ok(Ran::Well));
    let all = heard(client);
    let at = |words: &str| {
        assert_eq!(all.matches(words).count(), 1, "{words:?} in {all:?}");
        all.find(words)
    };
    assert!(at("second line") < at("begins"), "{all:?}");
    assert!(
        at("begins") < at("FAIL") && at("FAIL") < at("goes on"),
        "{all:?}"
    );

    assert_eq!(client.value("SELECT 7\n", 7), Ok(Some(7)));
    assert_eq!(client.value("PRINT 'no row'\n", 9), Ok(None));
    let all = heard(client);
    for _ in 0..2 {
        assert_eq!(client.read(files.there).as_deref(), Ok(files.text));
    }
    let why = client.read(files.missing).expect_err("it is not there");
    assert!(!why.is_empty(), "a refusal has a reason");
    assert_eq!(heard(client), all, "the script tells why, not the client");
}

/// Breaks one promise; otherwise it shows each batch as it is.
struct Lying {
    lie: Lie,
    shown: String,
    has_failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    SwallowsLines,
    RepeatsLines,
    ForgetsLines,
    CallsErrorsWell,
    CallsAllErrors,
    StaysFailed,
    RunsTwice,
    RunsNothing,
    Ends,
    HasNoValue,
    InventsValues,
    CutsFiles,
    InventsFiles,
    HasNoReason,
    TellsReasons,
}

impl Client for Lying {
    fn batch(&mut self, text: &str, _begun: usize) -> Result<Ran, ScriptEnd> {
        let times = match self.lie {
            Lie::RunsTwice => 2,
            Lie::RunsNothing => 0,
            _ => 1,
        };
        self.shown += &text.repeat(times);
        self.has_failed |= text.contains("FAIL");
        match self.lie {
            Lie::Ends if self.has_failed => Err(ScriptEnd::Closed),
            Lie::CallsErrorsWell => Ok(Ran::Well),
            Lie::CallsAllErrors => Ok(Ran::WithErrors),
            Lie::StaysFailed if self.has_failed => Ok(Ran::WithErrors),
            _ if text.contains("FAIL") => Ok(Ran::WithErrors),
            _ => Ok(Ran::Well),
        }
    }

    fn value(&mut self, text: &str, begun: usize) -> Result<Option<i64>, ScriptEnd> {
        self.batch(text, begun)?;
        Ok(match self.lie {
            Lie::HasNoValue => None,
            Lie::InventsValues => Some(7),
            _ => text.contains("SELECT 7").then_some(7),
        })
    }

    fn read(&mut self, name: &str) -> Result<String, String> {
        match (self.lie, name) {
            (Lie::CutsFiles, "there") => Ok("SELECT".to_owned()),
            (_, "there") => Ok("SELECT 1".to_owned()),
            (Lie::InventsFiles, _) => Ok(String::new()),
            (Lie::HasNoReason, _) => Err(String::new()),
            (Lie::TellsReasons, _) => {
                self.tell("it is not there");
                Err("not there".to_owned())
            }
            _ => Err("not there".to_owned()),
        }
    }

    fn redirect(&mut self, _: Redirected, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn tell(&mut self, text: &str) {
        let times = match self.lie {
            Lie::SwallowsLines => 0,
            Lie::RepeatsLines => 2,
            _ => 1,
        };
        if self.lie == Lie::ForgetsLines {
            self.shown.clear();
        }
        self.shown += &format!("{text}\n").repeat(times);
    }
}

#[test]
fn every_lie_of_a_client_breaks_the_contract() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let files = Files {
        there: "there",
        text: "SELECT 1",
        missing: "missing",
    };
    let kept = |lie| {
        let mut lying = Lying {
            lie,
            shown: "before\n".to_owned(),
            has_failed: false,
        };
        let check = || keeps_its_contract(&mut lying, &files, |client| client.shown.clone());
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    };
    assert!(kept(Lie::None));
    for lie in [
        Lie::SwallowsLines,
        Lie::RepeatsLines,
        Lie::ForgetsLines,
        Lie::CallsErrorsWell,
        Lie::CallsAllErrors,
        Lie::StaysFailed,
        Lie::RunsTwice,
        Lie::RunsNothing,
        Lie::Ends,
        Lie::HasNoValue,
        Lie::InventsValues,
        Lie::CutsFiles,
        Lie::InventsFiles,
        Lie::HasNoReason,
        Lie::TellsReasons,
    ] {
        assert!(!kept(lie), "{lie:?} passed");
    }
}
