//! The value of an operand as a text.

use crate::message::Message;
use crate::session::Session;
use crate::syntax::Operand;
use crate::value::Value;

/// NULL is empty.
pub fn operand_text(session: &Session, operand: &Operand) -> Result<String, Message> {
    Ok(match session.value_of(operand)? {
        Value::Null => String::new(),
        value => value.to_string(),
    })
}
