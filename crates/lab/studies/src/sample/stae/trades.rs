//! The trades of a quarter, in order of time, and the rows that each leaves.
//!
//! An account deals in a few securities of its own.
//!
//! Invariants
//! - An account's holdings are kept here, so that nothing is sold that was not bought before: a sale takes at most the
//!   present holding, and becomes a purchase if there is none.
//!
//! Leaves to others: the people and the securities (`people.rs`, `market.rs`).

use std::fmt::Write;

use anyhow::Result;

use super::super::calendar::{self, MS_PER_DAY};
use super::super::part::SamplePart;
use super::super::random::{Rng, mix};
use super::super::store::{Loader, Table};
use super::ground::{CLOSE_MS, DAYS, OPEN_MS, TRADE_DAYS, money};
use super::kinds::{TRADE_TYPES, TradeType};
use super::market::{MOMENTS, Market};
use super::people::{People, TaxStatus};

/// The first trade id of a file is this many times its first customer id.
const ID_FACTOR: i64 = 1_000;
/// Securities that one account deals in.
const SECURITIES_PER_ACCOUNT: usize = 10;
/// Percentage of limit orders that are cancelled.
const CANCELLED_PERCENT: u64 = 3;
/// Percentage of trades paid in cash rather than on margin.
const CASH_PERCENT: u64 = 84;
/// Tax withheld on a gain.
const TAX_PERCENT: i64 = 20;
/// The house's charge by the customer's tier, in cents.
const CHARGE_CENTS: [i64; 3] = [995, 695, 395];
/// The broker's commission by the customer's tier, in hundredths of a percent.
const COMMISSION_BASIS_POINTS: [i64; 3] = [30, 20, 12];

/// An account's holding of one security.
#[derive(Debug, Clone, Copy, Default)]
struct Holding {
    quantity: i64,
    /// The price paid for it.
    cost_cents: i64,
    bought_ms: i64,
}

/// One order of an account.
struct Order {
    id: i64,
    kind: &'static TradeType,
    account: usize,
    /// Index into the holdings.
    holding: usize,
    security: usize,
    quantity: i64,
    price_cents: i64,
    is_cash: bool,
    submitted_ms: i64,
}

/// The costs of an order in addition to its price.
struct Fees {
    charge_cents: i64,
    commission_cents: i64,
    tax_cents: i64,
}

/// Loads `count` trades and the holdings, and books them in `people`.
pub fn load(
    loader: &Loader,
    part: &SamplePart,
    count: i64,
    market: &Market,
    people: &mut People,
) -> Result<()> {
    let slots = SECURITIES_PER_ACCOUNT.min(market.securities.len());
    let mut floor = Floor {
        rng: Rng::stream(part.seed, "trade", part.first_id as u64),
        market,
        holdings: vec![Holding::default(); people.accounts.len() * slots],
        people,
        slots,
    };
    let mut pens = Pens::new(loader)?;
    for n in 0..count {
        let day = n * TRADE_DAYS / count;
        let moment = n * TRADE_DAYS % count * MOMENTS / count;
        let order = floor.order(part.first_id * ID_FACTOR + n, day, moment);
        floor.quote(&mut pens, &order, day, moment)?;
        if !order.kind.is_market && floor.rng.chance(CANCELLED_PERCENT) {
            floor.cancel(&mut pens, &order)?;
        } else {
            floor.execute(&mut pens, &order, day, moment)?;
        }
    }
    floor.load_holdings(loader)
}

/// The tables that trades write to, and the text buffers for them.
struct Pens<'c> {
    trade: Table<'c>,
    history: Table<'c>,
    settlement: Table<'c>,
    cash: Table<'c>,
    quote: Table<'c>,
    time: String,
    text: String,
}

impl<'c> Pens<'c> {
    fn new(loader: &'c Loader) -> Result<Pens<'c>> {
        Ok(Pens {
            history: loader.table("trade_history", 3)?,
            settlement: loader.table("settlement", 4)?,
            cash: loader.table("cash_transaction", 4)?,
            quote: loader.table("quote", 6)?,
            // Last, so that progress shows it.
            trade: loader.table("trade", 14)?,
            time: String::new(),
            text: String::new(),
        })
    }

    fn history(&mut self, trade: i64, ms: i64, status: &str) -> Result<()> {
        calendar::milliseconds(&mut self.time, ms);
        self.history.row(&[&trade, &self.time, &status])
    }
}

struct Floor<'a> {
    rng: Rng,
    market: &'a Market,
    people: &'a mut People,
    /// `slots` holdings of each account, one account after another.
    holdings: Vec<Holding>,
    slots: usize,
}

impl Floor<'_> {
    fn order(&mut self, id: i64, day: i64, moment: i64) -> Order {
        let customers = self.people.customers.len() as u64;
        // Half of the trades come from the busiest fifth.
        let busy = if self.rng.chance(50) {
            customers
        } else {
            customers.div_ceil(5)
        };
        let customer = &self.people.customers[self.rng.below(busy) as usize];
        let accounts = customer.accounts.len() as u64;
        let account = customer.accounts.start + self.rng.below(accounts) as usize;
        let slot = self.rng.below(self.slots as u64) as usize;
        let (holding, security) = (account * self.slots + slot, self.security(account, slot));
        let mut quantity = self.rng.pick(&[100, 100, 200, 200, 400, 800]);
        let mut kind = trade_type(self.rng.below(100));
        if kind.is_sell {
            match self.holdings[holding].quantity {
                0 if kind.is_market => kind = &TRADE_TYPES[0],
                0 => kind = &TRADE_TYPES[2],
                held => quantity = quantity.min(held),
            }
        }
        let day_ms = calendar::trading_day(DAYS - TRADE_DAYS + day) * MS_PER_DAY;
        Order {
            id,
            kind,
            account,
            holding,
            security,
            quantity,
            price_cents: self.market.securities[security].window[day as usize]
                .price_at(moment, &mut self.rng),
            is_cash: self.rng.chance(CASH_PERCENT),
            submitted_ms: day_ms
                + OPEN_MS
                + (CLOSE_MS - OPEN_MS) * moment / MOMENTS
                + self.rng.between(0, 900),
        }
    }

    /// The security that an account keeps in one of its slots; its slots all differ.
    fn security(&self, account: usize, slot: usize) -> usize {
        let count = self.market.securities.len() as u64;
        ((mix(self.people.accounts[account].id as u64) % count + slot as u64) % count) as usize
    }

    /// A quote of the market for some security when the order arrives.
    fn quote(&mut self, pens: &mut Pens, order: &Order, day: i64, moment: i64) -> Result<()> {
        let rng = &mut self.rng;
        let security =
            &self.market.securities[rng.below(self.market.securities.len() as u64) as usize];
        let middle = security.window[day as usize].price_at(moment, rng);
        let half_spread = 1 + middle * rng.between(1, 12) / 20_000;
        let (bid, ask) = (money(middle - half_spread), money(middle + half_spread));
        let (bid_size, ask_size) = (rng.between(1, 60) * 100, rng.between(1, 60) * 100);
        calendar::milliseconds(&mut pens.time, order.submitted_ms);
        pens.quote.row(&[
            &security.symbol,
            &pens.time,
            &bid,
            &ask,
            &bid_size,
            &ask_size,
        ])
    }

    fn cancel(&mut self, pens: &mut Pens, order: &Order) -> Result<()> {
        let ended_ms = order.submitted_ms + self.rng.between(60_000, 3_600_000);
        let fees = Fees {
            charge_cents: 0,
            commission_cents: 0,
            tax_cents: 0,
        };
        self.write_trade(pens, order, ended_ms, "CNCL", None, &fees)?;
        pens.history(order.id, order.submitted_ms, "PNDG")?;
        pens.history(order.id, ended_ms, "CNCL")
    }

    fn execute(&mut self, pens: &mut Pens, order: &Order, day: i64, moment: i64) -> Result<()> {
        let mut submitted_ms = order.submitted_ms;
        let mut price_cents = order.price_cents;
        if !order.kind.is_market {
            pens.history(order.id, order.submitted_ms, "PNDG")?;
            submitted_ms += self.rng.between(1_000, 1_800_000);
            let window = &self.market.securities[order.security].window;
            price_cents = window[day as usize].price_at(moment, &mut self.rng);
        }
        pens.history(order.id, submitted_ms, "SBMT")?;
        let done_ms = submitted_ms + self.rng.between(200, 5_000);
        let value_cents = order.quantity * price_cents;
        let fees = self.book(order, value_cents, done_ms);
        self.write_trade(pens, order, done_ms, "CMPT", Some(price_cents), &fees)?;
        pens.history(order.id, done_ms, "CMPT")?;

        let sign = if order.kind.is_sell { 1 } else { -1 };
        let amount_cents =
            sign * value_cents - fees.charge_cents - fees.commission_cents - fees.tax_cents;
        pens.text.clear();
        calendar::push_date(&mut pens.text, due_day(day));
        let means = if order.is_cash {
            "Cash Account"
        } else {
            "Margin"
        };
        pens.settlement
            .row(&[&order.id, &means, &pens.text, &money(amount_cents)])?;
        if order.is_cash {
            self.people.accounts[order.account].balance_cents += amount_cents;
            let security = &self.market.securities[order.security];
            pens.text.clear();
            write!(
                pens.text,
                "{} {} shares of {}",
                order.kind.name, order.quantity, security.name
            )?;
            calendar::milliseconds(&mut pens.time, done_ms);
            pens.cash
                .row(&[&order.id, &pens.time, &money(amount_cents), &pens.text])?;
        }
        Ok(())
    }

    /// Moves the shares, pays the broker, and returns the costs of the order.
    fn book(&mut self, order: &Order, value_cents: i64, done_ms: i64) -> Fees {
        let account = &self.people.accounts[order.account];
        let tier = (self.people.customers[account.customer].tier - 1) as usize;
        let commission_cents = (value_cents * COMMISSION_BASIS_POINTS[tier] / 10_000).max(100);
        let holding = &mut self.holdings[order.holding];
        let mut gain_cents = 0;
        if order.kind.is_sell {
            let cost_cents = holding.cost_cents * order.quantity / holding.quantity;
            gain_cents = value_cents - cost_cents;
            holding.quantity -= order.quantity;
            holding.cost_cents -= cost_cents;
        } else {
            holding.quantity += order.quantity;
            holding.cost_cents += value_cents;
            holding.bought_ms = done_ms;
        }
        let taxed = account.tax_status == TaxStatus::Withheld;
        let broker = &mut self.people.brokers[account.broker];
        broker.trades += 1;
        broker.commission_cents += commission_cents;
        Fees {
            charge_cents: CHARGE_CENTS[tier],
            commission_cents,
            tax_cents: if taxed {
                gain_cents.max(0) * TAX_PERCENT / 100
            } else {
                0
            },
        }
    }

    fn write_trade(
        &mut self,
        pens: &mut Pens,
        order: &Order,
        ms: i64,
        status: &str,
        price_cents: Option<i64>,
        fees: &Fees,
    ) -> Result<()> {
        let account = &self.people.accounts[order.account];
        let by_broker = self.rng.chance(10);
        let executor = if by_broker {
            &self.people.brokers[account.broker].name
        } else {
            &self.people.customers[account.customer].name
        };
        calendar::milliseconds(&mut pens.time, ms);
        pens.trade.row(&[
            &order.id,
            &pens.time,
            &status,
            &order.kind.id,
            &order.is_cash,
            &self.market.securities[order.security].symbol,
            &order.quantity,
            &money(order.price_cents),
            &account.id,
            executor,
            &price_cents.map(money),
            &money(fees.charge_cents),
            &money(fees.commission_cents),
            &money(fees.tax_cents),
        ])
    }

    fn load_holdings(&self, loader: &Loader) -> Result<()> {
        let mut table = loader.table("holding", 5)?;
        let mut time = String::new();
        for (n, holding) in self.holdings.iter().enumerate() {
            if holding.quantity > 0 {
                let (account, slot) = (n / self.slots, n % self.slots);
                let security = &self.market.securities[self.security(account, slot)];
                calendar::milliseconds(&mut time, holding.bought_ms);
                let price = money(holding.cost_cents / holding.quantity);
                let id = self.people.accounts[account].id;
                table.row(&[&id, &security.symbol, &time, &price, &holding.quantity])?;
            }
        }
        Ok(())
    }
}

/// The kind that draw `n` of 0 to 99 picks.
fn trade_type(mut n: u64) -> &'static TradeType {
    for kind in &TRADE_TYPES {
        if n < kind.percent {
            return kind;
        }
        n -= kind.percent;
    }
    &TRADE_TYPES[0]
}

/// Two trading days after trading day `day` of the window.
fn due_day(day: i64) -> i64 {
    calendar::trading_day(DAYS - TRADE_DAYS + day + 2)
}
