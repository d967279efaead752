//! Days and hours of trading, and money, for market, people and trades alike.

/// Trading days with prices: two years.
pub const DAYS: i64 = 520;
/// The last of them, in which the trades fall: a quarter.
pub const TRADE_DAYS: i64 = 64;
/// Times of the first and last trade of a day, in milliseconds after midnight: 9:30 and 16:00.
pub const OPEN_MS: i64 = 34_200_000;
pub const CLOSE_MS: i64 = 57_600_000;

/// Dollars.
pub fn money(cents: i64) -> f64 {
    cents as f64 / 100.0
}
