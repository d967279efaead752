//! What a procedure is called with.

use crate::message::{self, Message};
use crate::value::Value;

/// One argument as it is passed.
pub struct Passed {
    /// With its @, in lower case; `None`: by its place.
    pub(super) name: Option<String>,
    /// `None`: DEFAULT.
    pub(super) value: Option<Value>,
    /// The variable that an output goes back to.
    pub(super) output: Option<String>,
}

/// What a procedure was called with.
pub struct Arguments {
    pub(super) procedure: String,
    pub(super) passed: Vec<Passed>,
}

impl Arguments {
    /// The values of the procedure's parameters, in its order; `None` where nothing was passed.
    /// Errors: 8144, 8145.
    pub fn of<const N: usize>(&self, parameters: [&str; N]) -> Result<[Option<Value>; N], Message> {
        let mut values: [Option<Value>; N] = std::array::from_fn(|_| None);
        for (i, passed) in self.passed.iter().enumerate() {
            let at = match &passed.name {
                None if i < N => i,
                None => return Err(message::TOO_MANY_ARGUMENTS.with(&[&self.procedure])),
                Some(name) => {
                    let found = parameters.iter().position(|p| p == name);
                    let unknown = message::NOT_A_PARAMETER;
                    found.ok_or_else(|| unknown.with(&[name, &self.procedure]))?
                }
            };
            values[at] = passed.value.clone();
        }
        Ok(values)
    }

    pub(super) fn missing(&self, parameter: &str) -> Message {
        message::PARAMETER_MISSING.with(&[&self.procedure, &parameter])
    }
}
