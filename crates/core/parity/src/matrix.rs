//! The matrix of the code, and how to get a lost member back.
//!
//! Invariants
//! - A recipe takes exactly as many sources as there are data members, data members before parity members.
//!
//! Leaves to others: the arithmetic over bytes (`kernel.rs`).

use crate::field::{inverse, product};
use crate::{DATA_MAX, PARITY_MAX};

/// The factor of data member `data` in parity member `parity`.
///
/// # Panics
/// If there are no such members.
pub fn coefficient(parity: usize, data: usize) -> u8 {
    assert!(parity < PARITY_MAX && data < DATA_MAX);
    MATRIX[parity][data]
}

/// All coefficients. Each column is divided by its first element, so the first row is all ones.
static MATRIX: [[u8; DATA_MAX]; PARITY_MAX] = {
    let mut matrix = [[0; DATA_MAX]; PARITY_MAX];
    let mut parity = 0;
    while parity < PARITY_MAX {
        let mut data = 0;
        while data < DATA_MAX {
            let first = inverse(data as u8 ^ 255);
            let cauchy = inverse(data as u8 ^ (255 - parity as u8));
            matrix[parity][data] = product(cauchy, inverse(first));
            data += 1;
        }
        parity += 1;
    }
    matrix
};

/// How to compute one member from others: the sum of the sources, each times its factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Members: data members are counted from 0, parity members follow them.
    pub sources: Vec<usize>,
    pub factors: Vec<u8>,
}

impl Recipe {
    /// How to compute `wanted` of `data` data members and the parity members after them from members that are `usable`.
    /// `None` if there are fewer usable members than data members.
    ///
    /// # Panics
    /// If `data` is 0, or there are more members than the code has.
    pub fn of(data: usize, wanted: usize, usable: impl Fn(usize) -> bool) -> Option<Recipe> {
        Recipe::among(data, PARITY_MAX, wanted, usable)
    }

    /// [`Recipe::of`] with `parity` parity members.
    pub fn among(
        data: usize,
        parity: usize,
        wanted: usize,
        usable: impl Fn(usize) -> bool,
    ) -> Option<Recipe> {
        assert!((1..=DATA_MAX).contains(&data) && parity <= PARITY_MAX && wanted < data + parity);
        let others = (0..data + parity).filter(|m| *m != wanted && usable(*m));
        let sources: Vec<usize> = others.take(data).collect();
        if sources.len() < data {
            return None;
        }
        let row_of = |member: usize| -> Vec<u8> {
            match member.checked_sub(data) {
                None => (0..data).map(|i| u8::from(i == member)).collect(),
                Some(parity) => (0..data).map(|i| coefficient(parity, i)).collect(),
            }
        };
        let rows = sources.iter().map(|source| row_of(*source)).collect();
        let factors = solve(rows, row_of(wanted));
        Some(Recipe { sources, factors })
    }
}

/// The factors with which the rows add up to `sum`.
fn solve(rows: Vec<Vec<u8>>, sum: Vec<u8>) -> Vec<u8> {
    let n = sum.len();
    // One equation for each column: the unknown factors of the rows, and the column of `sum`.
    let mut equations: Vec<Vec<u8>> = (0..n)
        .map(|column| {
            let coefficients = rows.iter().map(|row| row[column]);
            coefficients.chain([sum[column]]).collect()
        })
        .collect();
    for pivot in 0..n {
        // There is one, because the rows are independent.
        let Some(found) = (pivot..n).find(|e| equations[*e][pivot] != 0) else {
            continue;
        };
        equations.swap(pivot, found);
        let scale = inverse(equations[pivot][pivot]);
        let scaled: Vec<u8> = equations[pivot]
            .iter()
            .map(|c| product(*c, scale))
            .collect();
        for (e, equation) in equations.iter_mut().enumerate() {
            let times = equation[pivot];
            if e != pivot && times != 0 {
                for (left, right) in equation.iter_mut().zip(&scaled) {
                    *left ^= product(*right, times);
                }
            }
        }
        equations[pivot] = scaled;
    }
    equations.iter().map(|equation| equation[n]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_parity_is_the_exclusive_or_of_the_data() {
        assert!((0..DATA_MAX).all(|data| coefficient(0, data) == 1));
    }

    #[test]
    fn every_square_of_two_and_three_rows_can_be_inverted() {
        // Of two rows: a d != b c.
        for j in 0..PARITY_MAX {
            for k in 0..j {
                for a in 0..DATA_MAX {
                    for b in 0..a {
                        let left = product(coefficient(j, a), coefficient(k, b));
                        let right = product(coefficient(j, b), coefficient(k, a));
                        assert_ne!(left, right, "{j} {k} {a} {b}");
                    }
                }
            }
        }
    }
}
