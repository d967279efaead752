//! The arguments of a procedure call.

use crate::message::{self, Message};
use crate::value::Value;

/// One argument.
pub struct ArgumentValue {
    /// With its @, in lower case; `None`: by position.
    pub(super) name: Option<String>,
    /// `None`: DEFAULT.
    pub(super) value: Option<Value>,
    /// The variable that receives an output.
    pub(super) output: Option<String>,
}

/// All arguments of a call.
pub struct Arguments {
    pub(super) procedure: String,
    pub(super) passed: Vec<ArgumentValue>,
}

impl Arguments {
    /// The values of the procedure's parameters, in its order; `None` for those not passed. Errors: 8144, 8145.
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
