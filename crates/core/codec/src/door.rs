//! The names people use: algorithms and levels.
//!
//! Invariants
//! - A printed value is read back as the same value.
//! - The number of an algorithm on media belongs to it for ever.
//!
//! Leaves to others: what a level means to an engine.

use std::fmt;
use std::str::FromStr;

/// A compression algorithm, by SQL Server's name; `LZ4` and `PAGES` are our extensions. The number is written to media and never
/// reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    None = 1,
    MsXpress = 2,
    QatDeflate = 3,
    Zstd = 4,
    Lz4 = 5,
    Pages = 6,
}

impl Algorithm {
    pub const ALL: [Algorithm; 6] = [
        Algorithm::None,
        Algorithm::MsXpress,
        Algorithm::QatDeflate,
        Algorithm::Zstd,
        Algorithm::Lz4,
        Algorithm::Pages,
    ];

    /// SQL Server's spelling.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::None => "NONE",
            Algorithm::MsXpress => "MS_XPRESS",
            Algorithm::QatDeflate => "QAT_DEFLATE",
            Algorithm::Zstd => "ZSTD",
            Algorithm::Lz4 => "LZ4",
            Algorithm::Pages => "PAGES",
        }
    }

    /// The algorithm with this number on media.
    pub fn from_number(number: u8) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| *a as u8 == number)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        // The words of other backup tools, and of their files' names.
        let name = match s.to_ascii_lowercase().as_str() {
            "gzip" | "gz" => "QAT_DEFLATE",
            "zst" => "ZSTD",
            _ => s,
        };
        Algorithm::ALL
            .into_iter()
            .find(|a| a.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| {
                let names: Vec<_> = Algorithm::ALL.iter().map(|a| a.name()).collect();
                format!("unknown algorithm {s:?}; use {}", names.join(", "))
            })
    }
}

/// How hard to try.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Level {
    #[default]
    Low,
    Medium,
    High,
    /// The algorithm's own scale: QAT_DEFLATE 1 to 12, ZSTD -7 to 22, LZ4 1 to 12, MS_XPRESS and PAGES 1 to 3.
    Number(i32),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Low => f.write_str("LOW"),
            Level::Medium => f.write_str("MEDIUM"),
            Level::High => f.write_str("HIGH"),
            Level::Number(n) => write!(f, "{n}"),
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.to_ascii_uppercase().as_str() {
            "LOW" => Ok(Level::Low),
            "MEDIUM" => Ok(Level::Medium),
            "HIGH" => Ok(Level::High),
            other => other
                .parse()
                .map(Level::Number)
                .map_err(|_| format!("unknown level {s:?}; use LOW, MEDIUM, HIGH or a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_other_tools_are_understood() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().to_lowercase().parse(), Ok(algorithm));
        }
        let words = [
            ("gzip", Algorithm::QatDeflate),
            ("gz", Algorithm::QatDeflate),
            ("zst", Algorithm::Zstd),
            ("LZ4", Algorithm::Lz4),
            ("pages", Algorithm::Pages),
        ];
        for (word, algorithm) in words {
            assert_eq!(word.parse(), Ok(algorithm));
        }
        assert!("bz2".parse::<Algorithm>().is_err());
    }
}
