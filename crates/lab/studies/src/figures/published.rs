//! A publication as data: its figures and tables, each with its values and claims.
//!
//! Invariants
//! - A value is written as the publication has it, with how sure it is. A picture whose numbers are in no text has no
//!   number here, and nothing that was derived from others is shown as published.
//! - A row says which of our own quantities stands next to it, and on which side of which value the publication is, so that
//!   a contradiction is found by a rule and not by hand.
//!
//! Leaves to others: the content (`papers`), our own values (`measured.rs`), and the comparison (`comparison.rs`).

use anyhow::Result;

use super::measured::{OurValues, Ours};
use super::workbench::Workbench;

/// A publication.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    pub name: &'static str,
    /// The machine that it measured, in one line.
    pub machine: &'static str,
    pub figures: &'static [Figure],
}

/// A figure or table of a publication, with the way in which it is made again.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Such as `S0.F3`.
    pub id: &'static str,
    pub title: &'static str,
    /// The axes, or the rows and columns of a table.
    pub shows: &'static str,
    pub rows: &'static [Published],
    /// The publication's own conclusion, in our words.
    pub claim: &'static str,
    /// Where the publication contradicts itself, or leaves open what would be needed.
    pub doubts: &'static [&'static str],
    /// The study and its parameters.
    pub made_by: &'static str,
    /// The part that needs other hardware or data.
    pub not_shown: &'static str,
    pub make: fn(&Workbench) -> Result<OurValues>,
}

impl Figure {
    /// How sure its values are: each kind once, in the order of certainty.
    pub fn kinds(&self) -> String {
        use Sureness::{Approximate, Exact, Order, Picture, Prose};
        let all = [Exact, Prose, Approximate, Order, Picture];
        let has = |kind: &Sureness| self.rows.iter().any(|row| row.sureness == *kind);
        let words: Vec<&str> = all.into_iter().filter(has).map(Sureness::word).collect();
        words.join(", ")
    }
}

/// How sure a published value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sureness {
    /// From a table, the output of a console or a list of parts.
    Exact,
    /// A number that stands only in the text.
    Prose,
    /// In the text, approximate or "up to".
    Approximate,
    /// No number, only an order.
    Order,
    /// In a picture only.
    Picture,
}

impl Sureness {
    pub fn word(self) -> &'static str {
        match self {
            Sureness::Exact => "exact",
            Sureness::Prose => "in prose",
            Sureness::Approximate => "approximate",
            Sureness::Order => "order only",
            Sureness::Picture => "picture only",
        }
    }
}

/// A published value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stated {
    Number(f64),
    UpTo(f64),
    About(f64),
    MoreThan(f64),
    Words(&'static str),
    /// The publication has a picture, of which no number is known.
    Picture,
}

impl Stated {
    pub fn number(self) -> Option<f64> {
        match self {
            Stated::Number(n) | Stated::UpTo(n) | Stated::About(n) | Stated::MoreThan(n) => Some(n),
            Stated::Words(_) | Stated::Picture => None,
        }
    }

    pub fn shown(self, decimals: u8) -> String {
        let number = |n: f64| format!("{n:.*}", usize::from(decimals));
        match self {
            Stated::Number(n) => number(n),
            Stated::UpTo(n) => format!("up to {}", number(n)),
            Stated::About(n) => format!("about {}", number(n)),
            Stated::MoreThan(n) => format!("more than {}", number(n)),
            Stated::Words(words) => words.to_owned(),
            Stated::Picture => "n/a (picture only)".to_owned(),
        }
    }
}

/// Up to so many times as much is "almost equal" or "slightly" more.
pub const SLIGHTLY: f64 = 1.25;

/// The side on which a publication is: what ours must be for both to agree.
#[derive(Debug, Clone, Copy)]
pub enum Stance {
    Above(f64),
    Below(f64),
    /// No further from 1 than this: "equal", "almost".
    NearOne(f64),
    /// Above the first and below the second: "very slightly better".
    Between(f64, f64),
    /// The sample or the model makes it so on every machine: a verdict that cannot fail is none.
    Implied,
    /// A value of another machine, which agrees with nothing and contradicts nothing.
    Open,
}

impl Stance {
    /// Between which values ours agrees; `None`: nothing is judged.
    pub fn limits(self) -> Option<(f64, f64)> {
        match self {
            Stance::Above(bound) => Some((bound, f64::INFINITY)),
            Stance::Below(bound) => Some((f64::NEG_INFINITY, bound)),
            Stance::NearOne(most) => Some((1.0 - most, 1.0 + most)),
            Stance::Between(low, high) => Some((low, high)),
            Stance::Implied | Stance::Open => None,
        }
    }
}

/// One published value or statement.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    pub what: &'static str,
    pub unit: &'static str,
    pub decimals: u8,
    pub stated: Stated,
    pub sureness: Sureness,
    pub ours: Ours,
    pub side: Stance,
}

impl Published {
    /// A row with a number.
    pub const fn number(
        what: &'static str,
        (unit, decimals): (&'static str, u8),
        (stated, sureness): (Stated, Sureness),
        ours: Ours,
        side: Stance,
    ) -> Published {
        Published {
            what,
            unit,
            decimals,
            stated,
            sureness,
            ours,
            side,
        }
    }

    /// A row with an order and no number.
    pub const fn order(
        what: &'static str,
        (unit, decimals): (&'static str, u8),
        words: &'static str,
        ours: Ours,
        side: Stance,
    ) -> Published {
        let stated = (Stated::Words(words), Sureness::Order);
        Published::number(what, (unit, decimals), stated, ours, side)
    }

    /// A row whose value is only in a picture.
    pub const fn picture(
        what: &'static str,
        (unit, decimals): (&'static str, u8),
        ours: Ours,
    ) -> Published {
        let stated = (Stated::Picture, Sureness::Picture);
        Published::number(what, (unit, decimals), stated, ours, Stance::Open)
    }

    /// A row of a table of words.
    pub const fn fact(what: &'static str, words: &'static str, key: &'static str) -> Published {
        let stated = (Stated::Words(words), Sureness::Exact);
        Published::number(what, ("", 0), stated, Ours::Fact(key), Stance::Open)
    }
}
