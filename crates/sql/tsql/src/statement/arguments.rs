//! The arguments of a procedure call, and the parameters that a text declares.

use super::type_of;
use crate::kinds::TypePlace;
use crate::message::{self, Message};
use crate::query;
use crate::syntax::{Fragment, Statement, parse};
use crate::value::{Type, Value};

/// One argument.
pub struct ArgumentValue {
    /// With its @, in lower case; `None`: by position.
    pub(super) name: Option<String>,
    /// `None`: DEFAULT.
    pub(super) value: Option<Value>,
    /// The type of the variable that has it; `None`: a literal.
    pub(super) kind: Option<Type>,
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
        let mut values = self.values(&parameters)?.into_iter();
        Ok(std::array::from_fn(|_| values.next().flatten()))
    }

    /// The same for parameters that are listed.
    pub fn values(&self, parameters: &[&str]) -> Result<Vec<Option<Value>>, Message> {
        let mut values = vec![None; parameters.len()];
        for (i, passed) in self.passed.iter().enumerate() {
            let at = match &passed.name {
                None if i < parameters.len() => i,
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

/// A parameter that a text declares, by its name in lower case.
pub(super) struct DeclaredParameter {
    pub name: String,
    /// As it was written.
    pub shown: String,
    pub kind: Type,
    pub default: Option<Fragment>,
}

/// The parameters that a text declares (`@a int, @b nvarchar(9) OUTPUT`), by their names in lower case.
pub(super) fn parameters_of(declared: &str) -> Result<Vec<(String, Type)>, Message> {
    let all = declared_parameters(declared)?.into_iter();
    Ok(all.map(|one| (one.name, one.kind)).collect())
}

/// The same with their defaults (`@a int = 5`).
pub(super) fn declared_parameters(declared: &str) -> Result<Vec<DeclaredParameter>, Message> {
    if declared.trim().is_empty() {
        return Ok(Vec::new());
    }
    // The marks of outputs follow the types; the arguments repeat them.
    let plain = query::without_words(declared, &["OUTPUT", "OUT"])?;
    let mut found = Vec::new();
    for located in &parse(&format!("DECLARE {plain}"))?.statements {
        let Statement::Declare(all) = &located.statement else {
            return Err(message::SYNTAX.with(&[&declared]));
        };
        for declaration in all {
            let place = TypePlace::Variable(&declaration.variable, found.len() + 1);
            let kind = type_of(&declaration.kind, place)?;
            found.push(DeclaredParameter {
                name: declaration.variable.to_lowercase(),
                shown: declaration.variable.clone(),
                kind,
                default: declaration.value.clone(),
            });
        }
    }
    Ok(found)
}
