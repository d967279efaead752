//! Types as scripts name them, and the refusal of a name or a size that means none.
//!
//! Invariants
//! - A refusal has the number and the text that SQL Server has for the place of the name: a CAST, a column, a variable.
//! - A type of SQL Server's that does not exist here is refused by name (50002).
//!
//! Leaves to others: the types (`value.rs`), their names, and conversions (`convert.rs`).

use crate::convert::{PRECISION_MAX, type_of};
use crate::message::{self, Message};
use crate::value::{LENGTH_MAX, Type};

/// The place at which a script names a type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TypePlace<'a> {
    /// The type that an expression is converted to.
    Cast,
    /// A variable or a parameter, and its number among them.
    Variable(&'a str, usize),
    /// A column, and its number in the table.
    Column(&'a str, usize),
}

/// Types of SQL Server's that do not exist here.
const ELSEWHERE: &[&str] = &[
    "geography",
    "geometry",
    "hierarchyid",
    "image",
    "json",
    "rowversion",
    "timestamp",
    "vector",
];

/// The most digits of a `float`'s mantissa, in bits.
const FLOAT_MAX: u32 = 53;

/// The type of a name with its sizes; a size of `max` is `None`.
///
/// Errors: 131, 183, 192, 243, 291, 2715, 2716, 2717, 2750, and 50002.
pub(crate) fn named(name: &str, sizes: &[Option<u32>], place: TypePlace) -> Result<Type, Message> {
    type_of(name, sizes).ok_or_else(|| refused(name, sizes, place))
}

fn refused(name: &str, sizes: &[Option<u32>], place: TypePlace) -> Message {
    let lower = name.to_ascii_lowercase();
    if ELSEWHERE.contains(&lower.as_str()) {
        return message::NOT_HERE.with(&[&format!("the type {lower}")]);
    }
    if type_of(&lower, &[]).is_none() {
        return match place {
            TypePlace::Cast => message::TYPE_UNKNOWN.with(&[&name]),
            TypePlace::Variable(_, number) | TypePlace::Column(_, number) => {
                message::TYPE_NOT_FOUND.with(&[&number, &name])
            }
        };
    }
    let shown = || {
        let size = |size: &Option<u32>| size.map_or("max".to_owned(), |n| n.to_string());
        let sizes: Vec<_> = sizes.iter().map(size).collect();
        message::NOT_HERE.with(&[&format!("the type {lower}({})", sizes.join(", "))])
    };
    let known = match (lower.as_str(), sizes) {
        ("numeric" | "decimal" | "dec", [Some(precision), rest @ ..]) => {
            digits(&lower, *precision, rest, place)
        }
        ("float", [Some(bits)]) if *bits > FLOAT_MAX => match place {
            TypePlace::Cast => None,
            place => Some(too_precise(*bits, FLOAT_MAX, place)),
        },
        (
            "char" | "character" | "varchar" | "binary" | "varbinary" | "nchar" | "nvarchar",
            [Some(n)],
        ) => too_long(&lower, *n, place),
        ("time" | "datetime2" | "datetimeoffset" | "float", _) => None,
        (_, [_, ..]) => Some(match place {
            TypePlace::Cast => message::NO_ATTRIBUTES.with(&[&lower]),
            TypePlace::Variable(_, number) | TypePlace::Column(_, number) => {
                message::NO_WIDTH.with(&[&number, &lower])
            }
        }),
        _ => None,
    };
    known.unwrap_or_else(shown)
}

fn number_of(place: TypePlace) -> usize {
    match place {
        TypePlace::Cast => 0,
        TypePlace::Variable(_, number) | TypePlace::Column(_, number) => number,
    }
}

fn too_precise(given: u32, most: u32, place: TypePlace) -> Message {
    message::PRECISION_MAX.with(&[&number_of(place), &given, &most])
}

fn digits(name: &str, precision: u32, rest: &[Option<u32>], place: TypePlace) -> Option<Message> {
    let most = u32::from(PRECISION_MAX);
    match (place, rest) {
        (TypePlace::Column(..), _) | (TypePlace::Variable(..), []) if precision > most => {
            Some(too_precise(precision, most, place))
        }
        (_, [Some(_)]) if precision > most => {
            Some(message::SIZE_MAX.with(&[&precision, &"type", &name, &most]))
        }
        (TypePlace::Column(column, _), [Some(scale)]) if *scale > precision => {
            Some(message::SCALE_RANGE.with(&[scale, &column, &0, &precision]))
        }
        (_, [Some(scale)]) if *scale > precision => Some(message::SCALE_OVER_PRECISION.plain()),
        _ => None,
    }
}

/// A text or a binary that is longer than its type, or any type, can be.
fn too_long(name: &str, given: u32, place: TypePlace) -> Option<Message> {
    let any = u32::from(LENGTH_MAX);
    let is_national = name.starts_with('n');
    let most = if is_national { any / 2 } else { any };
    if given <= most {
        return None;
    }
    Some(match place {
        TypePlace::Cast if is_national => {
            let mut refused =
                message::SIZE_OVER_ALL.with(&[&given, &"convert specification", &name, &most]);
            (refused.severity, refused.state) = (16, 1);
            refused
        }
        TypePlace::Variable(own, _) | TypePlace::Column(own, _) if is_national && given <= any => {
            let mut refused = message::SIZE_MAX.with(&[&given, &"parameter", &own, &most]);
            (refused.severity, refused.state) = (16, 2);
            refused
        }
        TypePlace::Column(column, _) => {
            message::SIZE_OVER_ALL.with(&[&given, &"column", &column, &any])
        }
        _ => {
            let mut refused = message::SIZE_OVER_ALL.with(&[&given, &"type", &name, &any]);
            refused.state = 3;
            refused
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_means_no_type_is_refused_as_its_place_says() {
        let said = |name: &str, sizes: &[u32], place| {
            let sizes: Vec<_> = sizes.iter().map(|n| Some(*n)).collect();
            let refused = named(name, &sizes, place).unwrap_err();
            (refused.number, refused.text)
        };
        let variable = TypePlace::Variable("@a", 2);
        let column = TypePlace::Column("c", 3);
        let (number, text) = said("foo", &[], variable);
        assert_eq!(number, 2715);
        assert_eq!(
            text,
            "Column, parameter, or variable #2: Cannot find data type foo."
        );
        assert_eq!(said("foo", &[], TypePlace::Cast).0, 243);
        let (number, text) = said("varchar", &[9000], column);
        assert_eq!(number, 131);
        assert_eq!(
            text,
            "The size (9000) given to the column 'c' exceeds the maximum allowed for any data type (8000)."
        );
        let (number, text) = said("varchar", &[9000], variable);
        assert_eq!(number, 131);
        assert!(text.contains("given to the type 'varchar'"), "{text}");
        assert_eq!(said("nvarchar", &[4001], variable).0, 2717);
        assert_eq!(said("nvarchar", &[4001], TypePlace::Cast).0, 131);
        assert_eq!(said("decimal", &[5, 9], variable).0, 192);
        assert_eq!(said("decimal", &[5, 9], TypePlace::Cast).0, 192);
        let (number, text) = said("decimal", &[5, 9], column);
        assert_eq!(number, 183);
        assert_eq!(
            text,
            "The scale (9) for column 'c' must be within the range 0 to 5."
        );
        assert_eq!(said("decimal", &[39], variable).0, 2750);
        assert_eq!(said("decimal", &[39, 0], TypePlace::Cast).0, 2717);
        assert_eq!(said("int", &[4], TypePlace::Cast).0, 291);
        assert_eq!(said("int", &[4], column).0, 2716);
        assert_eq!(said("geography", &[], column).0, 50002);
    }
}
