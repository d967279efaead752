//! Companies, their securities, and prices as random walks.
//!
//! Invariants
//! - All prices are whole cents, so that no rounding depends on the platform, and stay between a lowest and a highest
//!   price.
//! - A day's low is at most its open and its close, and its high at least; a day opens near the close of the day
//!   before.
//! - A security's walk depends on the seed and its number alone.
//!
//! Leaves to others: trades at these prices (the other modules of `stae`), and names (`names.rs`).

use anyhow::Result;

use super::super::calendar;
use super::super::part::SamplePart;
use super::super::random::Rng;
use super::super::store::Loader;
use super::ground::{CLOSE_MS, DAYS, TRADE_DAYS, money};
use super::names::{self, Home, Person};
use super::schema;

const PRICE_CENTS_MIN: i64 = 100;
const PRICE_CENTS_MAX: i64 = 200_000;

/// Parts of a trading day that [`Day::price_at`] distinguishes.
pub const MOMENTS: i64 = 10_000;

/// Every company has common stock; this percentage also has preferred stock.
const PREFERRED_PERCENT: i64 = 37;

const RATINGS: [&str; 10] = [
    "AAA", "AA+", "AA", "A+", "A", "BBB+", "BBB", "BB", "B+", "CCC",
];

/// The securities that are traded.
pub struct Market {
    /// At least five.
    pub securities: Vec<Security>,
}

pub struct Security {
    pub symbol: String,
    pub name: String,
    /// The days in which trades fall.
    pub window: Vec<Day>,
}

impl Market {
    /// Loads companies, securities and their daily prices.
    pub fn load(loader: &Loader, part: &SamplePart, customers: i64) -> Result<Market> {
        let mut rng = Rng::stream(part.seed, "company", part.first_id as u64);
        let companies = companies(loader, &mut rng, part, (customers / 2).max(4))?;
        let mut market = Market {
            securities: Vec::new(),
        };
        market.load_securities(loader, &mut rng, part, &companies)?;
        market.load_days(loader, part)?;
        Ok(market)
    }

    fn load_securities(
        &mut self,
        loader: &Loader,
        rng: &mut Rng,
        part: &SamplePart,
        companies: &[String],
    ) -> Result<()> {
        let preferred = (companies.len() as i64 * PREFERRED_PERCENT / 100) as usize;
        let issues = [("COMMON", companies.len()), ("PREF_A", preferred)];
        let listed = issues.into_iter().flat_map(|(issue, count)| {
            (part.first_id..)
                .zip(companies)
                .take(count)
                .map(move |c| (issue, c))
        });
        let mut table = loader.table("security", 11)?;
        let mut date = String::new();
        for (number, (issue, (company, company_name))) in (part.first_id..).zip(listed) {
            let symbol = names::symbol(number as u64);
            let name = format!("{issue} of {company_name}");
            let (exchange, ..) = rng.pick(&schema::EXCHANGES);
            let shares = rng.between(4_000, 950_000) * 1_000;
            date.clear();
            calendar::push_date(&mut date, rng.between(3_000, 18_000));
            let days: Vec<Day> = Walk::new(part.seed, number).take(DAYS as usize).collect();
            let year = &days[days.len() / 2..];
            let high = year.iter().map(|day| day.high).max().map(money);
            let low = year.iter().map(|day| day.low).min().map(money);
            let dividend = money(if rng.chance(40) {
                0
            } else {
                rng.between(5, 400)
            });
            table.row(&[
                &symbol, &issue, &"ACTV", &name, &exchange, &company, &shares, &date, &high, &low,
                &dividend,
            ])?;
            let window = days[(DAYS - TRADE_DAYS) as usize..].to_vec();
            self.securities.push(Security {
                symbol,
                name,
                window,
            });
        }
        Ok(())
    }

    /// Daily prices, and the market's state at the end.
    fn load_days(&self, loader: &Loader, part: &SamplePart) -> Result<()> {
        let mut date = String::new();
        let mut table = loader.table("daily_market", 6)?;
        for (number, security) in (part.first_id..).zip(&self.securities) {
            for (n, day) in (0..DAYS).zip(Walk::new(part.seed, number)) {
                date.clear();
                calendar::push_date(&mut date, calendar::trading_day(n));
                let (close, high, low) = (money(day.close), money(day.high), money(day.low));
                table.row(&[&date, &security.symbol, &close, &high, &low, &day.volume])?;
            }
        }
        let last_day = calendar::trading_day(DAYS - 1) * calendar::MS_PER_DAY;
        calendar::milliseconds(&mut date, last_day + CLOSE_MS);
        let mut table = loader.table("last_trade", 5)?;
        for security in &self.securities {
            if let Some(day) = security.window.last() {
                let (close, open) = (money(day.close), money(day.open));
                table.row(&[&security.symbol, &date, &close, &open, &day.volume])?;
            }
        }
        Ok(())
    }
}

/// Loads `count` companies and returns their names.
fn companies(loader: &Loader, rng: &mut Rng, part: &SamplePart, count: i64) -> Result<Vec<String>> {
    let mut table = loader.table("company", 9)?;
    let mut founded = String::new();
    let mut companies = Vec::new();
    for id in part.first_id..part.first_id + count {
        let name = names::company(rng);
        let (industry, ..) = rng.pick(&schema::INDUSTRIES);
        let rating = rng.pick(&RATINGS);
        let (ceo, home) = (Person::draw(rng).full_name(), Home::draw(rng));
        founded.clear();
        calendar::push_date(&mut founded, rng.between(-25_000, 15_000));
        let text = names::description(rng, &name);
        table.row(&[
            &id,
            &name,
            &industry,
            &rating,
            &ceo,
            &home.city,
            &home.state,
            &founded,
            &text,
        ])?;
        companies.push(name);
    }
    Ok(companies)
}

/// One day's trading in one security. Prices in cents; `low <= open, close <= high`.
#[derive(Debug, Clone, Copy)]
pub struct Day {
    pub open: i64,
    pub high: i64,
    pub low: i64,
    pub close: i64,
    pub volume: i64,
}

impl Day {
    /// A price at `moment` (0 to [`MOMENTS`]) of the day: on the way from open to close, with
    /// noise, between low and high.
    pub fn price_at(&self, moment: i64, rng: &mut Rng) -> i64 {
        let trend = self.open + (self.close - self.open) * moment / MOMENTS;
        let noise = rng.bell((self.high - self.low) / 6);
        (trend + noise).clamp(self.low, self.high)
    }
}

/// The days of one security, without end.
struct Walk {
    rng: Rng,
    close: i64,
    volume: i64,
}

impl Walk {
    /// The walk of security `number`.
    fn new(seed: u64, number: i64) -> Walk {
        let mut rng = Rng::stream(seed, "market", number as u64);
        let close = rng.between(500, 15_000);
        let volume = rng.between(20_000, 4_000_000);
        Walk { rng, close, volume }
    }
}

impl Iterator for Walk {
    type Item = Day;

    fn next(&mut self) -> Option<Day> {
        let moved = |price: i64, basis_points: i64| {
            (price + price * basis_points / 10_000).clamp(PRICE_CENTS_MIN, PRICE_CENTS_MAX)
        };
        let rng = &mut self.rng;
        let open = moved(self.close, rng.bell(25));
        // About 1.5 % a day, and a little upwards in the long run.
        let close = moved(open, 2 + rng.bell(130));
        let high = moved(open.max(close), rng.between(0, 110));
        let low = moved(open.min(close), -rng.between(0, 110));
        // In round lots of 100.
        let volume = self.volume * rng.between(40, 220) / 10_000 * 100;
        self.close = close;
        Some(Day {
            open,
            high,
            low,
            close,
            volume,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_stays_between_its_low_and_its_high_and_days_join() {
        let mut rng = Rng::stream(1, "test", 0);
        for security in 0..50 {
            let mut before: Option<Day> = None;
            for day in Walk::new(1, security).take(500) {
                assert!(PRICE_CENTS_MIN <= day.low && day.high <= PRICE_CENTS_MAX);
                assert!(day.low <= day.open.min(day.close) && day.open.max(day.close) <= day.high);
                let price = day.price_at(rng.between(0, MOMENTS), &mut rng);
                assert!((day.low..=day.high).contains(&price));
                if let Some(before) = before {
                    // The gap over night is at most 1 %.
                    assert!((day.open - before.close).abs() * 100 <= before.close);
                }
                before = Some(day);
            }
        }
    }
}
