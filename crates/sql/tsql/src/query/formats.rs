//! FORMAT: numbers, moments and spans of time in the formats of .NET, as those of the culture en-US.
//!
//! Invariants
//! - A format that .NET refuses gives NULL, as in SQL Server.
//! - A format that .NET knows and this file does not is refused by name (50002): no other text stands for it.
//! - A number is rounded by its decimal digits, and halves away from zero.
//!
//! Leaves to others: which cultures count (`translate/call.rs`).

use super::cell::{as_kind, kind};
use crate::convert::convert;
use crate::message::{self, Message};
use crate::value::{DateTime, Temporal, Type, Value, offset_text};
use crate::variables::{VALUE_MAX, too_much};

/// The text that a format makes.
#[derive(Debug, PartialEq, Eq)]
enum Made {
    Text(String),
    /// .NET refuses the format.
    Null,
    /// It is not known here.
    Unknown,
}

use Made::{Null, Text, Unknown};

/// FORMAT. Arguments: value, its type, format.
pub(super) fn format(arguments: &[Value]) -> Result<Value, Message> {
    let [value, of, Value::Text(pattern)] = arguments else {
        return Ok(Value::Null);
    };
    let of = kind(of);
    let made = match (of, as_kind(value, of)?) {
        (_, Value::Null) => Null,
        (Type::Time(_), value) => match convert(&value, Type::Time(7))? {
            Value::Temporal(at) => span(at.wall(), pattern).map_or(Null, Text),
            _ => Null,
        },
        (of, value) if of.is_moment() => match convert(&value, Type::DateTimeOffset(7))? {
            Value::Temporal(Temporal::DateTimeOffset(at, minutes, _)) => {
                let offset = matches!(of, Type::DateTimeOffset(_)).then_some(minutes);
                moment(Moment { at, offset }, pattern)
            }
            _ => Null,
        },
        (of, value) => number(&value, of, pattern),
    };
    match made {
        Null => Ok(Value::Null),
        Text(text) if text.len() > VALUE_MAX => Err(too_much()),
        Text(text) => Ok(Value::Text(text)),
        Unknown => {
            let shown: String = pattern.chars().take(60).collect();
            Err(message::NOT_HERE.with(&[&format!("the format '{shown}'")]))
        }
    }
}

/// A format of .NET's for spans of time, which is how FORMAT shows a `time`. `None`: a single character that names no format,
/// or what may not stand without a backslash or quotes; the result is NULL.
fn span(at: DateTime, pattern: &str) -> Option<String> {
    let mut chars = pattern.chars();
    let single = chars.next().filter(|_| chars.next().is_none());
    let hundred_nanoseconds = at.subsec_nanosecond() / 100;
    let (pattern, has_fraction) = match single {
        None if pattern.is_empty() => ("hh\\:mm\\:ss", hundred_nanoseconds > 0),
        None => (pattern, false),
        Some('c' | 't' | 'T') => ("hh\\:mm\\:ss", hundred_nanoseconds > 0),
        Some('g') => ("h\\:mm\\:ss", hundred_nanoseconds > 0),
        Some('G') => ("d\\:hh\\:mm\\:ss", true),
        Some(_) => return None,
    };
    let end = match (has_fraction, single) {
        (false, _) => "",
        (true, Some('g')) => "\\.FFFFFFF",
        (true, _) => "\\.fffffff",
    };
    custom_span(at, &format!("{pattern}{end}"))
}

/// A format that says each part of the span. A percent sign stands before a single letter.
fn custom_span(at: DateTime, pattern: &str) -> Option<String> {
    let mut chars = pattern.chars().peekable();
    let mut out = String::new();
    while let Some(mut c) = chars.next() {
        let mut len = 1;
        if c == '%' {
            c = chars.next().filter(|c| *c != '%')?;
        } else {
            while c.is_ascii_alphabetic() && chars.next_if_eq(&c).is_some() {
                len += 1;
            }
        }
        let padded = |n: i8| match len {
            1 => Some(n.to_string()),
            2 => Some(format!("{n:02}")),
            _ => None,
        };
        let fraction = || format!("{:09}", at.subsec_nanosecond())[..len].to_owned();
        match c {
            '\\' => out.push(chars.next()?),
            '\'' | '"' => loop {
                match chars.next()? {
                    end if end == c => break,
                    '\\' => out.push(chars.next()?),
                    literal => out.push(literal),
                }
            },
            'h' => out += &padded(at.hour())?,
            'm' => out += &padded(at.minute())?,
            's' => out += &padded(at.second())?,
            'f' if len <= 7 => out += &fraction(),
            'F' if len <= 7 => out += fraction().trim_end_matches('0'),
            'd' if len <= 8 => out += &"0".repeat(len),
            _ => return None,
        }
    }
    Some(out)
}

/// A moment, and its offset in minutes if it has one.
#[derive(Clone, Copy)]
struct Moment {
    at: DateTime,
    offset: Option<i16>,
}

/// A format for moments: one letter that names a format, or the parts.
fn moment(of: Moment, pattern: &str) -> Made {
    let mut chars = pattern.chars();
    let single = chars.next().filter(|_| chars.next().is_none());
    let custom = match single {
        None if pattern.is_empty() => "M/d/yyyy h:mm:ss tt",
        None => pattern,
        Some('d') => "M/d/yyyy",
        Some('D') => "dddd, MMMM d, yyyy",
        Some('f') => "dddd, MMMM d, yyyy h:mm tt",
        Some('F') => "dddd, MMMM d, yyyy h:mm:ss tt",
        Some('g') => "M/d/yyyy h:mm tt",
        Some('G') => "M/d/yyyy h:mm:ss tt",
        Some('m' | 'M') => "MMMM d",
        Some('o' | 'O') => "yyyy-MM-ddTHH:mm:ss.fffffffK",
        Some('r' | 'R') => "ddd, dd MMM yyyy HH:mm:ss 'GMT'",
        Some('s') => "yyyy-MM-ddTHH:mm:ss",
        Some('t') => "h:mm tt",
        Some('T') => "h:mm:ss tt",
        Some('u') => "yyyy-MM-dd HH:mm:ss'Z'",
        Some('y' | 'Y') => "MMMM yyyy",
        // The time zone of the server counts.
        Some('U') => return Unknown,
        Some(_) => return Null,
    };
    match (single, of.offset) {
        // These show universal time.
        (Some('r' | 'R' | 'u'), Some(minutes)) => {
            let back = jiff::SignedDuration::from_mins(i64::from(-minutes));
            let at = of.at.checked_add(back).unwrap_or(of.at);
            custom_moment(Moment { at, ..of }, custom)
        }
        _ => custom_moment(of, custom),
    }
}

/// A format that says each part of the moment.
fn custom_moment(of: Moment, pattern: &str) -> Made {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut i = 0;
    while let Some(&c) = chars.get(i) {
        match c {
            '\'' | '"' => {
                i += 1;
                loop {
                    match chars.get(i) {
                        None => return Null,
                        Some('\\') => {
                            i += 1;
                            out.extend(chars.get(i));
                        }
                        Some(end) if *end == c => break,
                        Some(literal) => out.push(*literal),
                    }
                    i += 1;
                }
                i += 1;
            }
            '\\' => {
                let Some(literal) = chars.get(i + 1) else {
                    return Null;
                };
                out.push(*literal);
                i += 2;
            }
            '%' => match chars.get(i + 1) {
                None | Some('%') => return Null,
                Some(one) => {
                    match part(of, *one, 1, &mut out) {
                        Text(_) => {}
                        other => return other,
                    }
                    i += 2;
                }
            },
            c => {
                let len = chars[i..].iter().take_while(|d| **d == c).count();
                match part(of, c, len, &mut out) {
                    Text(_) => {}
                    other => return other,
                }
                i += len;
            }
        }
    }
    Text(out)
}

/// One letter, so often; the text goes to `out`.
fn part(of: Moment, c: char, len: usize, out: &mut String) -> Made {
    let at = of.at;
    let hour12 = (at.hour() + 11) % 12 + 1;
    let half = if at.hour() < 12 { "AM" } else { "PM" };
    let two = |n: i8| match len {
        1 => n.to_string(),
        _ => format!("{n:02}"),
    };
    let fraction = || format!("{:09}", at.subsec_nanosecond())[..len].to_owned();
    let made = match (c, len) {
        ('y', 1) => (at.year() % 100).to_string(),
        ('y', 2) => format!("{:02}", at.year() % 100),
        ('y', _) => format!("{:0len$}", at.year()),
        ('M', 4..) => at.strftime("%B").to_string(),
        ('M', 3) => at.strftime("%b").to_string(),
        ('M', _) => two(at.month()),
        ('d', 4..) => at.strftime("%A").to_string(),
        ('d', 3) => at.strftime("%a").to_string(),
        ('d', _) => two(at.day()),
        ('H', _) => two(at.hour()),
        ('h', _) => two(hour12),
        ('m', _) => two(at.minute()),
        ('s', _) => two(at.second()),
        ('f', 1..=7) => fraction(),
        ('F', 1..=7) => {
            let kept = fraction().trim_end_matches('0').to_owned();
            // The point goes with the digits.
            if kept.is_empty() && out.ends_with('.') {
                out.pop();
            }
            kept
        }
        ('f' | 'F', _) => return Null,
        ('t', 1) => half[..1].to_owned(),
        ('t', _) => half.to_owned(),
        ('g', _) => "A.D.".to_owned(),
        ('K', _) => of.offset.map_or_else(String::new, offset_text).repeat(len),
        ('z', _) => {
            // Without one it is the server's.
            let Some(minutes) = of.offset else {
                return Unknown;
            };
            let sign = if minutes < 0 { '-' } else { '+' };
            let hours = minutes.unsigned_abs() / 60;
            match len {
                1 => format!("{sign}{hours}"),
                2 => format!("{sign}{hours:02}"),
                _ => offset_text(minutes),
            }
        }
        (c, len) => std::iter::repeat_n(c, len).collect(),
    };
    *out += &made;
    Text(String::new())
}

/// A number by its decimal digits.
#[derive(Clone)]
struct Digits {
    is_negative: bool,
    /// Without zeros at the start; empty for none.
    whole: String,
    fraction: String,
}

impl Digits {
    fn of(text: &str) -> Digits {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        Digits {
            is_negative,
            whole: whole.trim_start_matches('0').to_owned(),
            fraction: fraction.to_owned(),
        }
    }

    /// Multiplied by a power of ten.
    fn shifted(mut self, places: i32) -> Digits {
        for _ in 0..places {
            match self.fraction.is_empty() {
                true => self.whole.push('0'),
                false => self.whole.push(self.fraction.remove(0)),
            }
        }
        for _ in places..0 {
            let last = self.whole.pop().unwrap_or('0');
            self.fraction.insert(0, last);
        }
        self.whole = self.whole.trim_start_matches('0').to_owned();
        self
    }

    fn rounded(mut self, places: usize) -> Digits {
        let up = self
            .fraction
            .as_bytes()
            .get(places)
            .is_some_and(|d| *d >= b'5');
        self.fraction.truncate(places);
        while self.fraction.len() < places {
            self.fraction.push('0');
        }
        if up {
            let mut all: Vec<u8> = [b"0", self.whole.as_bytes(), self.fraction.as_bytes()].concat();
            for digit in all.iter_mut().rev() {
                match *digit {
                    b'9' => *digit = b'0',
                    _ => {
                        *digit += 1;
                        break;
                    }
                }
            }
            let text = String::from_utf8_lossy(&all).into_owned();
            let (whole, fraction) = text.split_at(text.len() - places);
            self.whole = whole.trim_start_matches('0').to_owned();
            self.fraction = fraction.to_owned();
        }
        self
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.bytes().all(|d| d == b'0')
    }

    fn sign(&self) -> &'static str {
        match self.is_negative && !self.is_zero() {
            true => "-",
            false => "",
        }
    }

    /// The digits without a sign.
    fn plain(&self, commas: bool) -> String {
        let whole = if self.whole.is_empty() {
            "0"
        } else {
            &self.whole
        };
        let whole = match commas {
            true => with_commas(whole),
            false => whole.to_owned(),
        };
        let point = if self.fraction.is_empty() { "" } else { "." };
        format!("{whole}{point}{}", self.fraction)
    }
}

/// A number with commas between thousands.
fn with_commas(digits: &str) -> String {
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// The digits of a `float` that count: .NET shows 15 of them.
fn of_float(n: f64) -> Option<Digits> {
    let text = format!("{:.14e}", n.is_finite().then_some(n)?);
    let (digits, exponent) = text.split_once('e')?;
    let mut digits = Digits::of(digits).shifted(exponent.parse().ok()?);
    digits.fraction = digits.fraction.trim_end_matches('0').to_owned();
    Some(digits)
}

/// A format for numbers: a letter with up to two digits, or a picture of the digits.
fn number(value: &Value, of: Type, pattern: &str) -> Made {
    let digits = match value {
        Value::Float(n) => of_float(*n),
        value => Some(Digits::of(&value.to_string())),
    };
    let Some(digits) = digits else {
        return Unknown;
    };
    let mut chars = pattern.chars();
    let letter = chars.next().filter(char::is_ascii_alphabetic);
    let rest = chars.as_str();
    let places: Option<usize> = rest.parse().ok();
    let is_standard =
        rest.is_empty() || (rest.len() <= 2 && rest.bytes().all(|b| b.is_ascii_digit()));
    match letter.filter(|_| is_standard) {
        Some(letter) => standard_number(digits, (value, of), letter, places),
        None if pattern.is_empty() => standard_number(digits, (value, of), 'G', None),
        None => picture(digits, pattern),
    }
}

fn standard_number(
    digits: Digits,
    (value, of): (&Value, Type),
    letter: char,
    places: Option<usize>,
) -> Made {
    let signed = |digits: Digits, commas| format!("{}{}", digits.sign(), digits.plain(commas));
    match (letter.to_ascii_uppercase(), value) {
        ('N', _) => Text(signed(digits.rounded(places.unwrap_or(2)), true)),
        ('F', _) => Text(signed(digits.rounded(places.unwrap_or(2)), false)),
        ('P', _) => {
            let digits = digits.shifted(2).rounded(places.unwrap_or(2));
            Text(format!("{} %", signed(digits, true)))
        }
        ('C', _) => {
            let digits = digits.rounded(places.unwrap_or(2));
            match digits.sign() {
                "" => Text(format!("${}", digits.plain(true))),
                _ => Unknown,
            }
        }
        ('D', Value::Int(_)) => {
            let width = places.unwrap_or(1).max(1);
            let sign = digits.sign();
            Text(format!("{sign}{:0>width$}", digits.whole))
        }
        ('X', Value::Int(n)) => {
            let bits = match of {
                Type::TinyInt => *n & 0xff,
                Type::SmallInt => *n & 0xffff,
                Type::Int => *n & 0xffff_ffff,
                _ => *n,
            };
            let width = places.unwrap_or(1);
            Text(match letter {
                'X' => format!("{bits:0width$X}"),
                _ => format!("{bits:0width$x}"),
            })
        }
        ('E', _) => Text(scientific(digits, places.unwrap_or(6), letter)),
        ('G', Value::Int(_) | Value::Decimal(_)) if places.is_none() => Text(signed(digits, false)),
        ('G', Value::Float(n))
            if places.is_none() && (*n == 0.0 || (1e-5..1e15).contains(&n.abs())) =>
        {
            Text(signed(digits, false))
        }
        ('G' | 'R', _) if letter.eq_ignore_ascii_case(&'G') || matches!(value, Value::Float(_)) => {
            Unknown
        }
        _ => Null,
    }
}

/// One digit, a point, so many digits, and an exponent of three.
fn scientific(digits: Digits, places: usize, letter: char) -> String {
    let exponent = match digits.whole.len() {
        0 => {
            let zeros = digits.fraction.len() - digits.fraction.trim_start_matches('0').len();
            match zeros == digits.fraction.len() {
                true => 0,
                false => -(zeros as i32) - 1,
            }
        }
        len => len as i32 - 1,
    };
    let one = digits.shifted(-exponent).rounded(places);
    // 9.99 becomes 10.
    let (one, exponent) = match one.whole.len() > 1 {
        true => (one.shifted(-1).rounded(places), exponent + 1),
        false => (one, exponent),
    };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}{}{letter}{sign}{:03}",
        one.sign(),
        one.plain(false),
        exponent.abs()
    )
}

/// A part of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Zero,
    Digit,
    Point,
    Comma,
    Percent,
    PerMille,
    Literal(char),
}

/// The parts of a picture between its semicolons. `None`: an exponent, which is not known here.
fn sections(pattern: &str) -> Option<Vec<Vec<Token>>> {
    let mut all = vec![Vec::new()];
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        let token = match c {
            ';' => {
                all.push(Vec::new());
                continue;
            }
            '0' => Token::Zero,
            '#' => Token::Digit,
            '.' => Token::Point,
            ',' => Token::Comma,
            '%' => Token::Percent,
            '‰' => Token::PerMille,
            'E' | 'e' if matches!(chars.peek(), Some('0' | '+' | '-')) => return None,
            '\'' | '"' => {
                let literals = chars.by_ref().take_while(|d| *d != c).map(Token::Literal);
                let literals: Vec<_> = literals.collect();
                all.last_mut()?.extend(literals);
                continue;
            }
            '\\' => match chars.next() {
                Some(literal) => Token::Literal(literal),
                None => continue,
            },
            literal => Token::Literal(literal),
        };
        all.last_mut()?.push(token);
    }
    Some(all)
}

fn is_place(token: &Token) -> bool {
    matches!(token, Token::Zero | Token::Digit)
}

/// A section of a picture, as its tokens say.
struct Picture<'a> {
    tokens: &'a [Token],
    /// The places before the point, and after it.
    before: usize,
    after: usize,
    /// The fewest digits before the point, and after it.
    least_before: usize,
    least_after: usize,
    has_commas: bool,
    shift: i32,
}

impl Picture<'_> {
    fn of(tokens: &[Token]) -> Picture<'_> {
        let point = tokens.iter().position(|t| *t == Token::Point);
        let (front, back) = tokens.split_at(point.unwrap_or(tokens.len()));
        let places: Vec<&Token> = front.iter().filter(|t| is_place(t)).collect();
        let after: Vec<&Token> = back.iter().filter(|t| is_place(t)).collect();
        let first_zero = places.iter().position(|t| **t == Token::Zero);
        let last_zero = after.iter().rposition(|t| **t == Token::Zero);
        let last_place = front.iter().rposition(is_place);
        let commas = |range: &[Token]| range.iter().filter(|t| **t == Token::Comma).count();
        let first_place = front.iter().position(is_place);
        let between = first_place
            .zip(last_place)
            .map_or(0, |(a, b)| commas(&front[a..b]));
        // Commas after the last place divide by a thousand each.
        let behind = last_place.map_or(0, |last| commas(&front[last..]));
        let count = |of: Token| tokens.iter().filter(|t| **t == of).count() as i32;
        Picture {
            tokens,
            before: places.len(),
            after: after.len(),
            least_before: first_zero.map_or(0, |at| places.len() - at),
            least_after: last_zero.map_or(0, |at| at + 1),
            has_commas: between > 0,
            shift: 2 * count(Token::Percent) + 3 * count(Token::PerMille) - 3 * behind as i32,
        }
    }
}

/// A picture of the digits: `#,##0.00;(#,##0.00);none`.
fn picture(digits: Digits, pattern: &str) -> Made {
    let Some(all) = sections(pattern) else {
        return Unknown;
    };
    let rounded = |section: usize| {
        let picture = Picture::of(&all[section]);
        let rounded = digits.clone().shifted(picture.shift).rounded(picture.after);
        (picture, rounded)
    };
    let has = |section: usize| all.get(section).is_some_and(|tokens| !tokens.is_empty());
    let chosen = match digits.is_negative && !digits.is_zero() && has(1) {
        true => 1,
        false => 0,
    };
    let (picture, made) = rounded(chosen);
    if made.is_zero() && has(2) {
        let (zero, made) = rounded(2);
        return Text(drawn(&zero, &made));
    }
    match chosen {
        0 => Text(format!("{}{}", made.sign(), drawn(&picture, &made))),
        // A number that is rounded to zero has no sign.
        _ if made.is_zero() => {
            let (first, made) = rounded(0);
            Text(drawn(&first, &made))
        }
        _ => Text(drawn(&picture, &made)),
    }
}

/// The digits in their places, without a sign.
fn drawn(picture: &Picture, digits: &Digits) -> String {
    let whole = format!("{:0>width$}", digits.whole, width = picture.least_before);
    let kept = digits.fraction.trim_end_matches('0').len();
    let fraction = &digits.fraction[..kept.max(picture.least_after).min(digits.fraction.len())];
    let mut out = String::new();
    let mut left = picture.before;
    let mut after = fraction.chars();
    let mut is_after = false;
    let put = |out: &mut String, from: usize, to: usize| {
        for (i, digit) in whole.chars().enumerate().take(to).skip(from) {
            out.push(digit);
            let rest = whole.len() - i - 1;
            if picture.has_commas && rest > 0 && rest.is_multiple_of(3) {
                out.push(',');
            }
        }
    };
    for token in picture.tokens {
        match token {
            Token::Zero | Token::Digit if is_after => out.extend(after.next()),
            Token::Zero | Token::Digit => {
                let to = (whole.len() + 1).saturating_sub(left);
                // The first place takes all digits before it.
                let from = if left == picture.before {
                    0
                } else {
                    to.saturating_sub(1)
                };
                put(&mut out, from, to);
                left -= 1;
            }
            Token::Point if !is_after => {
                if picture.before == 0 {
                    put(&mut out, 0, whole.len());
                }
                is_after = true;
                if !fraction.is_empty() {
                    out.push('.');
                }
            }
            Token::Percent => out.push('%'),
            Token::PerMille => out.push('‰'),
            Token::Literal(literal) => out.push(*literal),
            Token::Point | Token::Comma => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment_text(of: Moment, pattern: &str) -> Option<String> {
        match moment(of, pattern) {
            Text(text) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn moments_are_those_of_the_documentation() {
        let at = jiff::civil::date(2026, 3, 1).at(22, 5, 4, 120_000_000);
        let of = Moment { at, offset: None };
        for (pattern, expected) in [
            ("yyyyMMdd_HHmmss", "20260301_220504"),
            ("MM/dd/yyyy hh:mm tt", "03/01/2026 10:05 PM"),
            ("yyyy-MM-dd HH:mm:ss.fff", "2026-03-01 22:05:04.120"),
            ("ss.FFF", "04.12"),
            ("%M", "3"),
            ("M", "March 1"),
            ("y", "March 2026"),
            ("d", "3/1/2026"),
            ("f", "Sunday, March 1, 2026 10:05 PM"),
            ("o", "2026-03-01T22:05:04.1200000"),
            ("r", "Sun, 01 Mar 2026 22:05:04 GMT"),
            ("d 'of' MMMM, h\\h t", "1 of March, 10h P"),
            ("yyy y", "2026 26"),
            ("qq", "qq"),
            ("K.", "."),
        ] {
            assert_eq!(
                moment_text(of, pattern).as_deref(),
                Some(expected),
                "{pattern}"
            );
        }
        for refused in ["h", "x", "ffffffff", "'open", "%"] {
            assert_eq!(moment(of, refused), Null, "{refused}");
        }
        assert_eq!(moment(of, "yyyy zzz"), Unknown);
        let of = Moment {
            at,
            offset: Some(-150),
        };
        assert_eq!(
            moment_text(of, "HH zzz z K").as_deref(),
            Some("22 -02:30 -2 -02:30")
        );
        assert_eq!(
            moment_text(of, "u").as_deref(),
            Some("2026-03-02 00:35:04Z")
        );
    }

    #[test]
    fn spans_are_those_of_the_documentation() {
        let at = jiff::civil::date(1900, 1, 1).at(7, 35, 10, 500_000_000);
        for (pattern, expected) in [
            ("c", Some("07:35:10.5000000")),
            ("t", Some("07:35:10.5000000")),
            ("T", Some("07:35:10.5000000")),
            ("", Some("07:35:10.5000000")),
            ("g", Some("7:35:10.5")),
            ("G", Some("0:07:35:10.5000000")),
            ("h", None),
            ("f", None),
            ("%", None),
            ("%%", None),
            ("%h", Some("7")),
            ("%hm", Some("735")),
            ("h'h 'm\"m\"", Some("7h 35m")),
            ("'h", None),
            ("hh:mm", None),
            ("hh mm", None),
            (r"ss\.FFF", Some("10.5")),
            (r"ss\.fff", Some("10.500")),
            ("hhh", None),
            ("ffffffff", None),
            ("é", None),
        ] {
            assert_eq!(span(at, pattern).as_deref(), expected, "{pattern}");
        }
        let whole = jiff::civil::date(1900, 1, 1).at(7, 35, 0, 0);
        let time = |pattern| span(whole, pattern).unwrap();
        assert_eq!(
            (time("c"), time("g")),
            ("07:35:00".into(), "7:35:00".into())
        );
        assert_eq!(time("G"), "0:07:35:00.0000000");
    }

    #[test]
    fn numbers_are_those_of_the_documentation() {
        let said = |value: Value, of: Type, pattern: &str| match number(&value, of, pattern) {
            Text(text) => text,
            Null => "NULL".to_owned(),
            Unknown => "refused".to_owned(),
        };
        let exact = |text: &str, pattern: &str| {
            let value = convert(&Value::text(text), Type::numeric(18, 4)).unwrap();
            said(value, Type::numeric(18, 4), pattern)
        };
        let real = |n: f64, pattern: &str| said(Value::Float(n), Type::Float, pattern);
        let whole = |n: i64, pattern: &str| said(Value::Int(n), Type::Int, pattern);
        assert_eq!(exact("1234567.891", "N2"), "1,234,567.89");
        assert_eq!(exact("2.5", "N0"), "3");
        assert_eq!(exact("-2.5", "F0"), "-3");
        assert_eq!(real(0.125, "F2"), "0.13");
        assert_eq!(real(37.0 / 38.0, "P"), "97.37 %");
        assert_eq!(real(-0.25, "P0"), "-25 %");
        assert_eq!(exact("1234.5", "C"), "$1,234.50");
        assert_eq!(exact("-1", "C"), "refused");
        assert_eq!(whole(7, "D3"), "007");
        assert_eq!(exact("7", "D3"), "NULL");
        assert_eq!(whole(255, "X"), "FF");
        assert_eq!(whole(-1, "x"), "ffffffff");
        assert_eq!(whole(255, "X4"), "00FF");
        assert_eq!(exact("1234.5", "E2"), "1.23E+003");
        assert_eq!(real(9.999, "e1"), "1.0e+001");
        assert_eq!(real(0.000_12, "E3"), "1.200E-004");
        assert_eq!(exact("1.5", "G"), "1.5000");
        assert_eq!(real(1e20, "G"), "refused");
        assert_eq!(exact("1", "z"), "NULL");
        for (value, pattern, expected) in [
            ("1234567.891", "#,##0.00", "1,234,567.89"),
            ("7.5", "00.##", "07.5"),
            ("0", "#,##0.00;(#,##0.00);none", "none"),
            ("-1234.5", "#,##0.00;(#,##0.00);none", "(1,234.50)"),
            ("-1234.5", "#,##0.00", "-1,234.50"),
            ("0.001", "0.00;-0.00;zero", "zero"),
            ("1234567", "#,##0,,.0 M", "1.2 M"),
            ("5551234", "###-####", "555-1234"),
            ("0.45", "0%", "45%"),
            ("12", "'#'0", "#12"),
            ("0.5", ".00", ".50"),
            ("0", "#", ""),
            ("12.3", "0.00 kg", "12.30 kg"),
            ("12.3", "0.0E+0", "refused"),
        ] {
            assert_eq!(exact(value, pattern), expected, "{value} {pattern}");
        }
    }
}
