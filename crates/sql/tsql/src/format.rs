//! The texts of RAISERROR and FORMATMESSAGE: `printf`'s conversions over T-SQL's values.
//!
//! ```text
//! % [flags] [width] [. precision] [h | l | I64] type      flags: - + 0 # blank      type: d i o u x X s
//! ```
//!
//! Invariants
//! - A text of any length and with any width takes bounded memory: what no client would see is not made.
//! - A value is never read as another type than its own: a conversion for another type is refused (2786).
//!
//! Leaves to others: which number and severity the message has (`statement/raise.rs`).

use crate::flow::Variable;
use crate::message::{self, Message};
use crate::value::{Type, Value};

/// The most characters of a message.
const TEXT_MAX: usize = 2047;
/// The characters of a longer one that stay, before the ellipsis.
const TEXT_CUT: usize = 2044;
/// A wider field shows the same.
const FIELD_MAX: usize = TEXT_MAX + 1;
/// The place of the first value among the arguments of RAISERROR.
pub(crate) const OF_RAISERROR: usize = 4;
/// The place of the first value among the arguments of FORMATMESSAGE.
pub(crate) const OF_FORMATMESSAGE: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Short,
    Whole,
    Long,
}

/// The flags of one conversion.
#[derive(Default)]
struct Flags {
    left: bool,
    plus: bool,
    zero: bool,
    other_form: bool,
    blank: bool,
}

/// The message's text, cut to what SQL Server sends. `first`: the place of the first of these arguments in the call.
///
/// Errors: 2748, 2786, 2787.
pub(crate) fn formatted(
    format: &str,
    arguments: &[Variable],
    first: usize,
) -> Result<String, Message> {
    check_types(arguments, first)?;
    let mut made = Made {
        arguments,
        first,
        used: 0,
        text: String::new(),
        len: 0,
    };
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        made.push(&rest[..at]);
        if made.len > TEXT_MAX {
            break;
        }
        rest = match rest[at + 1..].strip_prefix('%') {
            Some(after) => {
                made.push("%");
                after
            }
            None => made.conversion(&rest[at..])?,
        };
    }
    made.push(rest);
    Ok(cut(made.text))
}

/// A text as SQL Server sends it.
pub(crate) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CUT)
        && text[end..].chars().nth(TEXT_MAX - TEXT_CUT).is_some()
    {
        text.truncate(end);
        text += "...";
    }
    text
}

/// Values of some types are no arguments, also where nothing reads them. A number with a fraction is one only there.
fn check_types(arguments: &[Variable], first: usize) -> Result<(), Message> {
    for (i, argument) in arguments.iter().enumerate() {
        let kind = argument.kind;
        let fits = is_whole(kind)
            || kind == Type::BigInt
            || kind.is_text()
            || matches!(
                kind,
                Type::Binary(_) | Type::VarBinary(_) | Type::Numeric { .. }
            );
        if !fits {
            return Err(message::RAISE_TYPE.with(&[&kind, &(i + first)]));
        }
    }
    Ok(())
}

fn is_whole(kind: Type) -> bool {
    matches!(kind, Type::TinyInt | Type::SmallInt | Type::Int)
}

struct Made<'a> {
    arguments: &'a [Variable],
    first: usize,
    used: usize,
    text: String,
    /// Characters of the text.
    len: usize,
}

impl<'a> Made<'a> {
    /// Adds a text; of a long one no more than is shown.
    fn push(&mut self, text: &str) {
        let room = (FIELD_MAX + 1).saturating_sub(self.len);
        let end = text
            .char_indices()
            .nth(room)
            .map_or(text.len(), |(at, _)| at);
        self.len += text[..end].chars().count();
        self.text += &text[..end];
    }

    fn take(&mut self) -> Option<&'a Variable> {
        let next = self.arguments.get(self.used);
        self.used += 1;
        next
    }

    fn mismatch(&self) -> Message {
        message::RAISE_MISMATCH.with(&[&self.used])
    }

    /// One conversion at the beginning of `spec`; returns what follows it.
    fn conversion<'t>(&mut self, spec: &'t str) -> Result<&'t str, Message> {
        let wrong =
            || message::RAISE_FORMAT.with(&[&spec.chars().take(TEXT_MAX).collect::<String>()]);
        let (flags, rest) = flags(&spec[1..]).ok_or_else(wrong)?;
        let (width, rest) = self.count(rest)?;
        let (precision, rest) = match rest.strip_prefix('.') {
            None => (None, rest),
            Some(rest) => match self.count(rest)? {
                // A point without a number.
                (None, _) if !rest.starts_with('*') => return Err(wrong()),
                counted => counted,
            },
        };
        let width = width.unwrap_or(0);
        let (size, rest) = match rest.as_bytes() {
            [b'h', ..] => (Size::Short, &rest[1..]),
            [b'l' | b'L', ..] => (Size::Whole, &rest[1..]),
            _ => match rest.strip_prefix("I64") {
                Some(after) => (Size::Long, after),
                None => (Size::Whole, rest),
            },
        };
        let kind = rest.chars().next().ok_or_else(wrong)?;
        let field = match kind {
            's' if size == Size::Whole => self.text(precision)?,
            'd' | 'i' | 'u' | 'o' | 'x' | 'X' => {
                let number = self.number(size)?;
                number.map(|n| digits(n, kind, size, &flags, width, precision))
            }
            _ => return Err(wrong()),
        };
        let field = field.unwrap_or_else(|| "(null)".to_owned());
        let blanks = " ".repeat(width.saturating_sub(field.chars().count()));
        match flags.left {
            true => self.push(&(field + &blanks)),
            false => self.push(&(blanks + &field)),
        }
        Ok(&rest[kind.len_utf8()..])
    }

    /// A width or a precision: digits, or `*` for an argument. A negative argument is none.
    fn count<'t>(&mut self, text: &'t str) -> Result<(Option<usize>, &'t str), Message> {
        if let Some(rest) = text.strip_prefix('*') {
            let given = self.take();
            let number = match given {
                Some(Variable {
                    kind,
                    value: Value::Int(n),
                }) if is_whole(*kind) => *n,
                _ => return Err(self.mismatch()),
            };
            let count = usize::try_from(number).ok();
            return Ok((count.map(|n| n.min(FIELD_MAX)), rest));
        }
        let end = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(end);
        let count = match number.is_empty() {
            true => None,
            false => Some(number.parse().unwrap_or(FIELD_MAX).min(FIELD_MAX)),
        };
        Ok((count, rest))
    }

    fn text(&mut self, precision: Option<usize>) -> Result<Option<String>, Message> {
        match self.take() {
            None => Ok(None),
            Some(Variable { kind, .. }) if matches!(kind, Type::Numeric { .. }) => {
                Err(message::RAISE_TYPE.with(&[kind, &(self.used - 1 + self.first)]))
            }
            Some(given) if given.value.is_null() => Ok(None),
            Some(Variable {
                value: Value::Text(text),
                ..
            }) => Ok(Some(
                text.chars().take(precision.unwrap_or(FIELD_MAX)).collect(),
            )),
            Some(_) => Err(self.mismatch()),
        }
    }

    fn number(&mut self, size: Size) -> Result<Option<i64>, Message> {
        let Some(given) = self.take() else {
            return Ok(None);
        };
        if matches!(given.kind, Type::Numeric { .. }) {
            return Err(message::RAISE_TYPE.with(&[&given.kind, &(self.used - 1 + self.first)]));
        }
        let fits = match size {
            Size::Long => given.kind == Type::BigInt,
            Size::Short => matches!(given.kind, Type::TinyInt | Type::SmallInt),
            Size::Whole => {
                is_whole(given.kind) || matches!(given.kind, Type::Binary(_) | Type::VarBinary(_))
            }
        };
        match &given.value {
            Value::Null => Ok(None),
            Value::Int(n) if fits => Ok(Some(*n)),
            Value::Binary(bytes) if fits => {
                let last = &bytes[bytes.len().saturating_sub(4)..];
                let number = last.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b));
                Ok(Some(i64::from(number as i32)))
            }
            _ => Err(self.mismatch()),
        }
    }
}

/// Each flag at most once.
fn flags(text: &str) -> Option<(Flags, &str)> {
    let mut flags = Flags::default();
    let mut rest = text;
    loop {
        let flag = match rest.as_bytes().first() {
            Some(b'-') => &mut flags.left,
            Some(b'+') => &mut flags.plus,
            Some(b'0') => &mut flags.zero,
            Some(b'#') => &mut flags.other_form,
            Some(b' ') => &mut flags.blank,
            _ => return Some((flags, rest)),
        };
        if std::mem::replace(flag, true) {
            return None;
        }
        rest = &rest[1..];
    }
}

/// A number with its sign or prefix and the zeros that it needs.
fn digits(
    number: i64,
    kind: char,
    size: Size,
    flags: &Flags,
    width: usize,
    precision: Option<usize>,
) -> String {
    let unsigned = match size {
        Size::Short => (number as u16).into(),
        Size::Whole => (number as u32).into(),
        Size::Long => number as u64,
    };
    let (mut sign, digits) = match kind {
        'd' | 'i' => {
            let sign = match number {
                n if n < 0 => "-",
                _ if flags.plus => "+",
                _ if flags.blank => " ",
                _ => "",
            };
            (sign, number.unsigned_abs().to_string())
        }
        'u' => ("", unsigned.to_string()),
        'o' => ("", format!("{unsigned:o}")),
        'x' => ("0x", format!("{unsigned:x}")),
        _ => ("0X", format!("{unsigned:X}")),
    };
    if matches!(kind, 'x' | 'X') && (!flags.other_form || number == 0) {
        sign = "";
    }
    let mut least = precision.unwrap_or(1);
    if kind == 'o' && flags.other_form && number != 0 {
        least = least.max(digits.len() + 1);
    }
    if precision.is_none() && flags.zero && !flags.left {
        least = least.max(width.saturating_sub(sign.len()));
    }
    let digits = match precision == Some(0) && number == 0 {
        true => String::new(),
        false => digits,
    };
    let zeros = "0".repeat(least.saturating_sub(digits.len()));
    format!("{sign}{zeros}{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Type, value: Value) -> Variable {
        Variable { kind, value }
    }

    fn int(n: i64) -> Variable {
        of(Type::Int, Value::Int(n))
    }

    fn text(text: &str) -> Variable {
        of(Type::nvarchar(100), Value::text(text))
    }

    #[test]
    fn conversions_make_what_sql_server_makes() {
        let big = || of(Type::BigInt, Value::Int(5_000_000_000));
        let small = || of(Type::SmallInt, Value::Int(-1));
        for (format, arguments, expected) in [
            (
                "This is message %s %d.",
                vec![text("number"), int(5)],
                "This is message number 5.",
            ),
            (
                "<<%*.*s>>",
                vec![int(7), int(3), text("abcde")],
                "<<    abc>>",
            ),
            ("<<%7.3s>>", vec![text("abcde")], "<<    abc>>"),
            ("[%-10s]", vec![text("hi")], "[hi        ]"),
            ("[%10d]", vec![int(42)], "[        42]"),
            ("[%05d]", vec![int(42)], "[00042]"),
            ("[%05d]", vec![int(-42)], "[-0042]"),
            ("[%-05d]", vec![int(42)], "[42   ]"),
            ("[%+d % d %+d]", vec![int(1), int(2), int(-3)], "[+1  2 -3]"),
            ("[%u %i]", vec![int(-1), int(-7)], "[4294967295 -7]"),
            ("[%o %#o %#o]", vec![int(8), int(8), int(0)], "[10 010 0]"),
            (
                "[%x %X %#x %#X %#x]",
                vec![int(255); 5],
                "[ff FF 0xff 0XFF 0xff]",
            ),
            ("[%08.3d]", vec![int(42)], "[     042]"),
            ("[%.0d]", vec![int(0)], "[]"),
            ("[%.3x]", vec![int(10)], "[00a]"),
            ("[%0*d]", vec![int(6), int(42)], "[000042]"),
            ("[%*s]", vec![int(-8), text("abc")], "[abc]"),
            (
                "[%ld %hd %I64d]",
                vec![int(1), small(), big()],
                "[1 -1 5000000000]",
            ),
            ("[%hu]", vec![small()], "[65535]"),
            ("50%% of %s", vec![text("x%d")], "50% of x%d"),
            ("%s and %s", vec![text("only")], "only and (null)"),
            ("[%8d]", vec![of(Type::Int, Value::Null)], "[  (null)]"),
            ("plain", vec![text("extra")], "plain"),
            (
                "%d",
                vec![of(Type::VarBinary(Some(2)), Value::Binary(vec![1, 0]))],
                "256",
            ),
            ("x", vec![of(Type::numeric(5, 2), Value::Null)], "x"),
        ] {
            assert_eq!(
                formatted(format, &arguments, OF_RAISERROR).unwrap(),
                expected,
                "{format}"
            );
        }
    }

    #[test]
    fn other_conversions_and_values_are_refused() {
        let moment = || of(Type::DateTime, Value::Null);
        for (format, arguments, number, expected) in [
            ("[%c|] tail", vec![int(42)], 2787, "'%c|] tail'"),
            ("[%**d]", vec![int(6), int(42)], 2787, "'%**d]'"),
            ("[%.s]", vec![text("abc")], 2787, "'%.s]'"),
            ("end%", vec![], 2787, "'%'"),
            ("%--d", vec![int(1)], 2787, "'%--d'"),
            ("%hs", vec![text("a")], 2787, "'%hs'"),
            ("%p", vec![], 2787, "'%p'"),
            ("%é", vec![], 2787, "'%é'"),
            ("%d", vec![text("hello")], 2786, "parameter 1 "),
            ("%d %s", vec![int(1), int(42)], 2786, "parameter 2 "),
            (
                "%d",
                vec![of(Type::BigInt, Value::Int(5))],
                2786,
                "parameter 1 ",
            ),
            ("%I64d", vec![int(42)], 2786, "parameter 1 "),
            ("%*s", vec![text("x"), text("abc")], 2786, "parameter 1 "),
            ("%*s", vec![], 2786, "parameter 1 "),
            (
                "x",
                vec![moment()],
                2748,
                "datetime data type (parameter 4)",
            ),
            (
                "%d",
                vec![int(5), of(Type::Bit, Value::Int(1))],
                2748,
                "bit data type (parameter 5)",
            ),
            (
                "%d",
                vec![of(Type::numeric(9, 0), Value::Null)],
                2748,
                "(parameter 4)",
            ),
        ] {
            let refused = formatted(format, &arguments, OF_RAISERROR).unwrap_err();
            assert_eq!(refused.number, number, "{format}");
            assert!(
                refused.text.contains(expected),
                "{format}: {}",
                refused.text
            );
        }
    }

    #[test]
    fn a_place_is_that_in_the_call() {
        let moment = [of(Type::DateTime, Value::Null)];
        let refused = formatted("%d", &moment, OF_FORMATMESSAGE).unwrap_err();
        assert!(refused.text.contains("(parameter 2)"), "{}", refused.text);
    }

    #[test]
    fn a_long_text_is_cut_and_a_wide_field_takes_no_memory() {
        let long = "é".repeat(2047);
        assert_eq!(formatted(&long, &[], OF_RAISERROR).unwrap(), long);
        let expected = format!("{}...", "é".repeat(2044));
        for longer in [format!("{long}é"), long.repeat(3)] {
            assert_eq!(formatted(&longer, &[], OF_RAISERROR).unwrap(), expected);
            assert_eq!(
                formatted("%s", &[text(&longer)], OF_RAISERROR).unwrap(),
                expected
            );
        }
        let wide = formatted("%99999999999999999999d%999999999s", &[int(1)], OF_RAISERROR).unwrap();
        assert_eq!(wide, format!("{}...", " ".repeat(2044)));
    }

    proptest::proptest! {
        /// Goal: no format makes a panic or a text longer than clients get.
        #[test]
        fn every_format_is_a_text_or_a_refusal(format in "[%dsxX#0*.hlI6 +-]{0,12}|\\PC{0,8}") {
            let arguments = [int(7), text("été"), int(-7), text("x")];
            if let Ok(made) = formatted(&format, &arguments, OF_RAISERROR) {
                proptest::prop_assert!(made.chars().count() <= TEXT_MAX);
            }
        }
    }
}
