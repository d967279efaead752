//! Options of sqlcmd's that exclude one another, and the words that -N knows.
//!
//! Invariants
//! - The first line of a refusal is sqlcmd's; the hint says which option to leave out.
//!
//! Leaves to others: values that an option alone refuses (`options/sql.rs`).

use crate::options::Sql;
use longshore_terminal::failure::Failure;

/// The words of -N, in sqlcmd's order: for each its short form, if it has one, and the rest of it.
const ENCRYPTION: &[(&str, &str)] = &[
    ("m", "andatory"),
    ("yes", ""),
    ("1", ""),
    ("t", "rue"),
    ("disable", ""),
    ("o", "ptional"),
    ("no", ""),
    ("0", ""),
    ("f", "alse"),
    ("s", "trict"),
];

fn exclude(first: &str, second: &str, hint: &str) -> Failure {
    let text = format!("The {first} and the {second} options are mutually exclusive.");
    Failure::usage(text, hint)
}

/// Errors: two options that exclude each other, or a word after -N that means nothing.
pub(super) fn check(options: &Sql) -> Result<(), Failure> {
    if !options.input.is_empty() && (options.query.is_some() || options.initial_query.is_some()) {
        let hint = "leave out -Q and -q, or put their statements into a file and name it with -i";
        return Err(exclude("-i", "-Q/-q", hint));
    }
    if options.trusted && (options.user.is_some() || options.password.is_some()) {
        let hint = "leave out -U and -P: `longshore sql` has no logins";
        return Err(exclude("-E", "-U/-P", hint));
    }
    if options.trim && (options.variable_width.is_some() || options.fixed_width.is_some()) {
        let hint = "leave out -W for columns of these widths, or -y and -Y for values as they are";
        return Err(exclude("-W", "-y/-Y", hint));
    }
    let names_output = |codepage: &String| {
        let mut pieces = codepage.split(',').map(str::trim_start);
        pieces.any(|piece| piece.get(..2).is_some_and(|p| p.eq_ignore_ascii_case("o:")))
    };
    if options.unicode_output && options.codepage.as_ref().is_some_and(names_output) {
        let hint = "leave out -u for a file in that encoding, or o: for one in UTF-16";
        return Err(exclude("-u", "-f o:", hint));
    }
    match &options.encrypt_connection {
        Some(word) if !is_encryption(word) => Err(Failure::usage(
            format!(
                "'-N {word}': Unexpected argument. Argument value has to be one of [{}].",
                words()
            ),
            "write -N alone, -Ns, -Nm or -No: nothing is encrypted here, so none changes anything",
        )),
        _ => Ok(()),
    }
}

fn is_encryption(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let fits = |(short, rest): &(&str, &str)| word == *short || word == format!("{short}{rest}");
    ENCRYPTION.iter().any(fits)
}

fn words() -> String {
    let shown = |(short, rest): &(&str, &str)| match rest.is_empty() {
        true => (*short).to_owned(),
        false => format!("{short}[{rest}]"),
    };
    ENCRYPTION.iter().map(shown).collect::<Vec<_>>().join(" ")
}
