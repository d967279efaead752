//! ODBC's procedure calls, `{? = CALL name (?, 'text')}`, as a batch that is prepared like any other.
//!
//! Invariants
//! - Question marks become parameters of the batch, in their order; those inside quoted texts do not count.
//! - A form that is not understood is refused with a message.
//!
//! Leaves to others: whether the procedure exists, and running the batch (`work.rs`).

use longshore_tsql::{Message, Type, message};

/// The meaning of a question mark.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    pub kind: Type,
    pub output: bool,
}

/// A call as T-SQL statements.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// `@p1 int, @p2 nvarchar(9)`
    pub parameters: String,
    pub statement: String,
}

/// Errors: 102 where the text is no call.
pub fn call(text: &str, marks: &[Mark]) -> Result<Call, Message> {
    let wrong = || message::SYNTAX.with(&[&text.chars().take(60).collect::<String>()]);
    let inner = text.trim();
    let inner = match inner.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(wrong)?.trim(),
        None => inner,
    };
    let (status, inner) = match inner.strip_prefix('?') {
        Some(rest) => (
            true,
            rest.trim_start()
                .strip_prefix('=')
                .ok_or_else(wrong)?
                .trim(),
        ),
        None => (false, inner),
    };
    let word = inner.get(..4).filter(|w| w.eq_ignore_ascii_case("call"));
    let inner = match word {
        Some(_) if inner[4..].starts_with(char::is_whitespace) => inner[4..].trim(),
        // Some clients send only the name.
        _ => inner,
    };
    let (name, arguments) = match inner.split_once('(') {
        Some((name, rest)) => (
            name.trim(),
            rest.trim_end().strip_suffix(')').ok_or_else(wrong)?,
        ),
        None => (inner, ""),
    };
    if name.is_empty() {
        return Err(wrong());
    }
    let mut next = 0;
    let mut mark = || -> Result<String, Message> {
        let found = marks.get(next).ok_or_else(wrong)?;
        next += 1;
        let output = if found.output { " OUTPUT" } else { "" };
        Ok(format!("@p{next}{output}"))
    };
    let mut statement = String::from("EXEC ");
    if status {
        // Its position already makes it an output.
        statement += mark()?.trim_end_matches(" OUTPUT");
        statement += " = ";
    }
    statement += name;
    statement.push(' ');
    // Question marks inside quoted texts do not count.
    let mut quoted = false;
    for c in arguments.chars() {
        quoted ^= c == '\'';
        match c {
            '?' if !quoted => statement += &mark()?,
            c => statement.push(c),
        }
    }
    let declared = marks.iter().enumerate().map(|(i, mark)| {
        let output = if mark.output { " OUTPUT" } else { "" };
        format!("@p{} {}{output}", i + 1, mark.kind)
    });
    Ok(Call {
        parameters: declared.collect::<Vec<_>>().join(", "),
        statement: statement.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_become_statements() {
        let int = Mark {
            kind: Type::Int,
            output: false,
        };
        let out = Mark {
            output: true,
            ..int
        };
        let of = |text, marks: &[Mark]| call(text, marks).map(|c| (c.statement, c.parameters));
        let both =
            |statement: &str, parameters: &str| Ok((statement.to_owned(), parameters.to_owned()));
        assert_eq!(
            of("{CALL sp_configure}", &[]),
            both("EXEC sp_configure", "")
        );
        assert_eq!(
            of("{call sp_configure ('a?''b', ?)}", &[int]),
            both("EXEC sp_configure 'a?''b', @p1", "@p1 int")
        );
        assert_eq!(
            of("{ ? = call [dbo].x(?,?) }", &[out, int, out]),
            both(
                "EXEC @p1 = [dbo].x @p2,@p3 OUTPUT",
                "@p1 int OUTPUT, @p2 int, @p3 int OUTPUT"
            )
        );
        assert_eq!(of("sp_configure", &[]), both("EXEC sp_configure", ""));
        for text in [
            "",
            "{call x",
            "{? call x}",
            "{call x(?)}",
            "{call x(",
            "{call (1)}",
        ] {
            assert!(call(text, &[]).is_err(), "{text}");
        }
    }
}
