//! The field of 256 elements: bytes as polynomials over bits, modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D).
//!
//! Invariants
//! - The tables are made by the compiler from [`product`], which is the definition.
//!
//! Leaves to others: which elements are multiplied (`matrix.rs`), and over which bytes (`kernel.rs`).

/// The polynomial without its highest bit.
const POLYNOMIAL: u8 = 0x1d;

const fn doubled(a: u8) -> u8 {
    let carry = if a & 0x80 == 0 { 0 } else { POLYNOMIAL };
    (a << 1) ^ carry
}

/// The product of two elements.
pub const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = doubled(a);
        b >>= 1;
    }
    sum
}

/// The inverse of an element; 0 for 0, which has none.
pub const fn inverse(a: u8) -> u8 {
    // a^254, since a^255 is 1 for every other element.
    let (mut power, mut left, mut result) = (a, 254u8, 1);
    while left != 0 {
        if left & 1 != 0 {
            result = product(result, power);
        }
        power = product(power, power);
        left >>= 1;
    }
    result
}

/// Multiplication by one element, as the kernels use it.
#[derive(Clone, Copy)]
pub struct Factor {
    /// Products with 0 to 15 and with 0x00, 0x10, … 0xf0.
    pub low: [u8; 16],
    pub high: [u8; 16],
    /// The 8 × 8 matrix of bits that GFNI takes: byte 7 - i has the bits of the input that bit i of the product adds.
    pub bits: u64,
}

const fn factor(a: u8) -> Factor {
    let mut factor = Factor {
        low: [0; 16],
        high: [0; 16],
        bits: 0,
    };
    let mut n = 0;
    while n < 16 {
        factor.low[n] = product(a, n as u8);
        factor.high[n] = product(a, (n as u8) << 4);
        n += 1;
    }
    let mut input = 0;
    while input < 8 {
        let column = product(a, 1 << input);
        let mut output = 0;
        while output < 8 {
            if column >> output & 1 != 0 {
                factor.bits |= 1 << (8 * (7 - output) + input);
            }
            output += 1;
        }
        input += 1;
    }
    factor
}

const fn factors() -> [Factor; 256] {
    let mut all = [factor(0); 256];
    let mut a = 0;
    while a < 256 {
        all[a] = factor(a as u8);
        a += 1;
    }
    all
}

pub static FACTORS: [Factor; 256] = factors();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse_and_2_generates_the_field() {
        assert_eq!(inverse(0), 0);
        for a in 1..=255 {
            assert_eq!(product(a, inverse(a)), 1, "{a}");
        }
        let mut seen = [false; 256];
        let mut power = 1;
        for _ in 0..255 {
            assert!(!std::mem::replace(&mut seen[usize::from(power)], true));
            power = product(power, 2);
        }
        assert_eq!(power, 1);
    }
}
