//! The stock-trading sample: a brokerage house in the manner of TPC-E.
//!
//! Customers are the unit of size. There is one company for every two customers; each security has two years of daily
//! prices; a customer trades about 200 times in the last quarter, and each trade leaves its history, settlement, cash
//! movement and a quote of the market. Trades come in order of time and are written to their tables as they happen, so
//! pages of several tables interleave in the file, as in a database in use.
//!
//! The books balance: holdings equal purchases less sales, and brokers' totals and accounts' balances follow from the
//! trades. Names, addresses and texts are combined from lists, so the file compresses about as real data do (3 : 1
//! with gzip).

mod ground;
mod kinds;
mod market;
mod names;
mod people;
mod schema;
mod trades;

use anyhow::Result;

use super::part::SamplePart;
use super::store::{LoadResult, Loader, SampleLocation};
use market::Market;
pub use names::symbol;
use people::People;
pub use schema::{INDEXES, TABLES};

/// Bytes by which the file grows for each further customer.
const CUSTOMER_BYTES: f64 = 138e3;
/// The trades' part of these bytes.
pub const TRADES_BYTES: f64 = 110e3;
const TRADES_PER_CUSTOMER: f64 = 200.0;
/// Bytes of an empty database: the schema and one page for each table and index.
const EMPTY_BYTES: f64 = 90e3;

/// Customers that fill about `bytes`.
pub fn units(bytes: f64) -> f64 {
    (bytes - EMPTY_BYTES) / CUSTOMER_BYTES
}

/// Loads the customers of `part` and returns how many ids they used.
pub fn load(
    place: &SampleLocation,
    part: &SamplePart,
    on_progress: &dyn Fn(&'static str, u64),
) -> Result<(LoadResult, i64)> {
    let loader = Loader::create(place, TABLES, on_progress)?;
    // Whole customers and their securities are coarse in a small file, so their numbers follow from the requested
    // size, and corrections change the number of trades.
    let customers = (units(part.want_bytes as f64).round() as i64).max(1);
    let trades = (part.units * TRADES_PER_CUSTOMER).round() as i64;
    schema::load_reference(&loader)?;
    let market = Market::load(&loader, part, customers)?;
    let mut people = People::load_customers(&loader, part, customers)?;
    trades::load(&loader, part, trades, &market, &mut people)?;
    people.load_accounts(&loader)?;
    let ids = customers.max(market.securities.len() as i64);
    Ok((loader.finish(&INDEXES, part.wal)?, ids))
}
