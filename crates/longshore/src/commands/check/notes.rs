//! The findings about a database, each with its grade.

use longshore_terminal::failure::Failure;
use serde::Serialize;

/// The outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    Good,
    Look,
    Bad,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub what: &'static str,
    pub grade: Grade,
    pub text: String,
}

/// The findings about one database.
#[derive(Default)]
pub struct Notes(Vec<Finding>);

impl Notes {
    pub fn good(&mut self, what: &'static str, text: impl Into<String>) {
        self.note(what, Grade::Good, text);
    }

    pub fn look(&mut self, what: &'static str, text: impl Into<String>) {
        self.note(what, Grade::Look, text);
    }

    pub fn bad(&mut self, what: &'static str, text: impl Into<String>) {
        self.note(what, Grade::Bad, text);
    }

    pub fn note(&mut self, what: &'static str, grade: Grade, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Finding { what, grade, text });
    }

    pub fn append(&mut self, later: Notes) {
        self.0.extend(later.0);
    }

    /// All of them, and the worst grade.
    pub fn judged(self) -> (Grade, Vec<Finding>) {
        let worst = self.0.iter().map(|finding| finding.grade).max();
        (worst.unwrap_or(Grade::Good), self.0)
    }
}

/// An error with its causes, on one line.
pub fn told(failure: &Failure) -> String {
    let mut text = failure.text.clone();
    for cause in &failure.causes {
        text += &format!(": {cause}");
    }
    text
}
