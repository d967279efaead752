//! STAE-like transactions: six kinds of a brokerage house in their mix, on the database of the sample `stae`.
//!
//! Our own, in the manner of TPC-E's, and no run of that benchmark nor of Microsoft's program STAE: no keying times, no brokers'
//! volumes, and results are not checked. Figures made with it are no tpsE.
//!
//! Of a hundred: 22 positions of a customer, 25 states of an account's trades, 25 look-ups of trades, all three of which only read;
//! 12 orders, 12 results of orders, 4 feeds of the market. So 72 of a hundred read alone.
//!
//! Invariants
//! - Rows are locked in one order: a trade, its holding, its account, its broker; and securities by their symbols.
//! - The books balance: nothing is sold that an account does not hold, and a result writes settlement, cash and broker with it.
//! - A number of a trade is one client's alone, so no two clients meet in a result.
//!
//! Leaves to others: sessions (`session.rs`), and when a transaction begins and ends (`terminals.rs`).

use std::collections::VecDeque;

use anyhow::{Context, Result};

use super::session::ClientSession;
use crate::sample::random::Rng;
use crate::sample::stae_symbol;

/// Kinds, and how many of a hundred each has.
const POSITION: usize = 0;
const STATUS: usize = 1;
const LOOKUP: usize = 2;
const ORDER: usize = 3;
const RESULT: usize = 4;
const FEED: usize = 5;
const MIX: [u64; 6] = [22, 25, 25, 12, 12, 4];
/// Accounts of one customer are numbered from ten times its number.
const ACCOUNTS: i64 = 10;
const ACCOUNTS_MAX: u64 = 4;
/// Securities of a feed.
const FED: u64 = 5;
/// The most limit orders that a feed submits.
const SUBMITTED: usize = 5;
/// Dollars of the house's charge.
const CHARGE: f64 = 6.95;
const COMMISSION: f64 = 0.002;

/// The size of the database, as far as transactions need it.
#[derive(Debug, Clone, Copy)]
pub struct Brokerage {
    customers: (i64, i64),
    /// The number of the first security, and how many there are.
    securities: (i64, i64),
    trades: (i64, i64),
}

impl Brokerage {
    pub fn of(session: &mut ClientSession) -> Result<Brokerage> {
        let mut number = |sql: &str| -> Result<i64> {
            let found = session.number(sql)?;
            Ok(found.context("a table of the sample `stae` is empty")? as i64)
        };
        Ok(Brokerage {
            customers: (
                number("SELECT min(c_id) FROM customer")?,
                number("SELECT max(c_id) FROM customer")?,
            ),
            securities: (
                number("SELECT min(co_id) FROM company")?,
                number("SELECT count(*) FROM security")?,
            ),
            trades: (
                number("SELECT min(t_id) FROM trade")?,
                number("SELECT max(t_id) FROM trade")?,
            ),
        })
    }
}

/// An order that was placed and has no result yet.
#[derive(Debug, Clone)]
struct PlacedOrder {
    id: i64,
    account: i64,
    symbol: String,
    quantity: i64,
    is_sell: bool,
    is_cash: bool,
}

/// One client's stream of transactions.
pub struct TradeTerminal {
    rng: Rng,
    house: Brokerage,
    /// The number of the next trade, and how many clients take turns with numbers.
    next_id: i64,
    clients: i64,
    /// Of this client: limit orders, and those that wait for their result.
    pending: VecDeque<PlacedOrder>,
    submitted: VecDeque<PlacedOrder>,
}

impl TradeTerminal {
    /// The client with this number, from 0, of so many.
    pub fn new(seed: u64, house: Brokerage, (number, clients): (usize, usize)) -> TradeTerminal {
        TradeTerminal {
            rng: Rng::stream(seed, "floor", number as u64),
            house,
            next_id: house.trades.1 + 1 + number as i64,
            clients: clients.max(1) as i64,
            pending: VecDeque::new(),
            submitted: VecDeque::new(),
        }
    }

    /// The kind of the next transaction.
    pub fn draw(&mut self) -> usize {
        let mut rest = self.rng.below(MIX.iter().sum());
        let mut kind = 0;
        while rest >= MIX[kind] {
            rest -= MIX[kind];
            kind += 1;
        }
        match kind {
            // Nothing waits for a result yet.
            RESULT if self.submitted.is_empty() => ORDER,
            kind => kind,
        }
    }

    pub fn writes(kind: usize) -> bool {
        matches!(kind, ORDER | RESULT | FEED)
    }

    /// Runs a transaction of this kind, which has begun. Returns whether it is to be committed.
    pub fn transact(&mut self, kind: usize, s: &mut ClientSession) -> Result<bool> {
        match kind {
            POSITION => self.position(s),
            STATUS => self.status(s),
            LOOKUP => self.lookup(s),
            ORDER => self.order(s),
            RESULT => self.result(s),
            _ => self.feed(s),
        }
    }

    /// Half of the requests come from the busiest fifth, as the trades do that are there.
    fn customer(&mut self) -> i64 {
        let (first, last) = self.house.customers;
        let busy = match self.rng.chance(50) {
            true => (last - first) / 5,
            false => last - first,
        };
        self.rng.between(first, first + busy)
    }

    fn account(&mut self, s: &mut ClientSession) -> Result<i64> {
        let customer = self.customer();
        let most = customer * ACCOUNTS + self.rng.below(ACCOUNTS_MAX) as i64;
        let found = s.number(&format!(
            "SELECT max(ca_id) FROM customer_account WHERE ca_c_id = {customer} AND ca_id <= {most}"
        ))?;
        Ok(found.map_or(customer * ACCOUNTS, |id| id as i64))
    }

    fn symbol(&mut self) -> String {
        let (first, count) = self.house.securities;
        stae_symbol((first + self.rng.below(count.max(1) as u64) as i64) as u64)
    }

    /// The worth of all accounts of a customer; for half of them their last trades, too.
    fn position(&mut self, s: &mut ClientSession) -> Result<bool> {
        let customer = self.customer();
        s.word(&format!(
            "SELECT ca_id, ca_bal, coalesce(sum(h_qty * lt_price), 0) FROM customer_account LEFT JOIN holding ON h_ca_id = ca_id \
             LEFT JOIN last_trade ON lt_s_symb = h_s_symb WHERE ca_c_id = {customer} GROUP BY ca_id, ca_bal ORDER BY 3 DESC"
        ))?;
        if self.rng.chance(50) {
            let account = self.account(s)?;
            s.word(&format!(
                "SELECT t_id, t_s_symb, t_qty, st_name, th_dts FROM (SELECT t_id, t_s_symb, t_qty FROM trade WHERE t_ca_id = {account} \
                 ORDER BY t_dts DESC LIMIT 10) AS t, trade_history, status_type WHERE th_t_id = t_id AND st_id = th_st_id \
                 ORDER BY th_dts DESC LIMIT 30"
            ))?;
        }
        Ok(true)
    }

    /// The last fifty trades of an account.
    fn status(&mut self, s: &mut ClientSession) -> Result<bool> {
        let account = self.account(s)?;
        s.word(&format!(
            "SELECT t_id, t_dts, st_name, tt_name, t_s_symb, t_qty, t_exec_name, t_chrg, s_name, ex_name FROM trade, status_type, \
             trade_type, security, exchange WHERE t_ca_id = {account} AND st_id = t_st_id AND tt_id = t_tt_id AND s_symb = t_s_symb \
             AND ex_id = s_ex_id ORDER BY t_dts DESC LIMIT 50"
        ))?;
        s.word(&format!(
            "SELECT c_l_name, c_f_name, b_name FROM customer_account, customer, broker WHERE ca_id = {account} AND c_id = ca_c_id \
             AND b_id = ca_b_id"
        ))?;
        Ok(true)
    }

    /// Twenty trades by their numbers, of an account, or of a security, with what was paid.
    fn lookup(&mut self, s: &mut ClientSession) -> Result<bool> {
        let which = match self.rng.below(3) {
            0 => {
                let (first, last) = self.house.trades;
                let id = self.rng.between(first, last);
                format!("t_id BETWEEN {id} AND {}", id + 19)
            }
            1 => format!("t_ca_id = {}", self.account(s)?),
            _ => format!("t_s_symb = '{}'", self.symbol()),
        };
        let first = s.number(&format!(
            "SELECT t_id, t_bid_price, t_trade_price, t_exec_name, se_amt, se_cash_due_date, ct_amt, ct_name FROM (SELECT * FROM trade \
             WHERE {which} ORDER BY t_dts LIMIT 20) AS t LEFT JOIN settlement ON se_t_id = t_id LEFT JOIN cash_transaction \
             ON ct_t_id = t_id"
        ))?;
        if let Some(first) = first {
            s.word(&format!(
                "SELECT th_dts, th_st_id FROM trade_history WHERE th_t_id = {first} ORDER BY th_dts"
            ))?;
        }
        Ok(true)
    }

    /// An account buys, or sells what it holds; three of ten orders have a limit and wait for a feed. One in a hundred is rolled
    /// back.
    fn order(&mut self, s: &mut ClientSession) -> Result<bool> {
        let account = self.account(s)?;
        let customer = format!(
            "SELECT c_l_name, c_tier, ca_bal, b_name FROM customer_account, customer, broker WHERE ca_id = {account} \
             AND c_id = ca_c_id AND b_id = ca_b_id"
        );
        let name = s.word(&customer)?.unwrap_or_default();
        let held = match self.rng.chance(40) {
            true => s.word(&format!(
                "SELECT h_s_symb FROM holding WHERE h_ca_id = {account} ORDER BY h_s_symb LIMIT 1 OFFSET {}",
                self.rng.below(4)
            ))?,
            false => None,
        };
        let is_sell = held.is_some();
        let symbol = held.unwrap_or_else(|| self.symbol());
        let mut quantity = self.rng.pick(&[100, 100, 200, 200, 400, 800]);
        if is_sell {
            let all = s.number(&format!(
                "SELECT h_qty FROM holding WHERE h_ca_id = {account} AND h_s_symb = '{symbol}'"
            ))?;
            quantity = quantity.min(all.unwrap_or(1.0) as i64);
        }
        let price = price_of(s, &symbol)?;
        let is_limit = self.rng.chance(30);
        let (status, id) = (if is_limit { "PNDG" } else { "SBMT" }, self.next_id);
        self.next_id += self.clients;
        let kind = match (is_limit, is_sell) {
            (false, false) => "TMB",
            (false, true) => "TMS",
            (true, false) => "TLB",
            (true, true) => "TLS",
        };
        let is_cash = self.rng.chance(84);
        let commission = (price * quantity as f64 * COMMISSION).max(1.0);
        s.run(&format!(
            "INSERT INTO trade VALUES ({id}, CURRENT_TIMESTAMP, '{status}', '{kind}', {is_cash}, '{symbol}', {quantity}, {price:.2}, \
             {account}, '{}', NULL, {CHARGE}, {commission:.2}, 0)",
            name.replace('\'', "''")
        ))?;
        write_history(s, id, status)?;
        if self.rng.chance(1) {
            return Ok(false);
        }
        let order = PlacedOrder {
            id,
            account,
            symbol,
            quantity,
            is_sell,
            is_cash,
        };
        match is_limit {
            true => self.pending.push_back(order),
            false => self.submitted.push_back(order),
        }
        Ok(true)
    }

    /// The oldest order that waits: at the price of now, or cancelled where the account holds too little by now.
    fn result(&mut self, s: &mut ClientSession) -> Result<bool> {
        let Some(order) = self.submitted.pop_front() else {
            return Ok(false);
        };
        let (id, account, quantity) = (order.id, order.account, order.quantity);
        let price = price_of(s, &order.symbol)?;
        let value = price * quantity as f64;
        let done = s.number(&format!(
            "UPDATE trade SET t_st_id = 'CMPT', t_dts = CURRENT_TIMESTAMP, t_trade_price = {price:.2} WHERE t_id = {id} RETURNING t_id"
        ))?;
        if done.is_none() {
            return Ok(false);
        }
        if !hold(s, &order, price)? {
            s.run(&format!(
                "UPDATE trade SET t_st_id = 'CNCL', t_trade_price = NULL WHERE t_id = {id}"
            ))?;
            write_history(s, id, "CNCL")?;
            return Ok(true);
        }
        write_history(s, id, "CMPT")?;
        let commission = (value * COMMISSION).max(1.0);
        let sign = if order.is_sell { 1.0 } else { -1.0 };
        let amount = sign * value - CHARGE - commission;
        let means = if order.is_cash {
            "Cash Account"
        } else {
            "Margin"
        };
        s.run(&format!(
            "INSERT INTO settlement VALUES ({id}, '{means}', CURRENT_DATE, {amount:.2})"
        ))?;
        if order.is_cash {
            s.run(&format!(
                "UPDATE customer_account SET ca_bal = ca_bal + {amount:.2} WHERE ca_id = {account}"
            ))?;
            s.run(&format!(
                "INSERT INTO cash_transaction VALUES ({id}, CURRENT_TIMESTAMP, {amount:.2}, '{quantity} shares of {}')",
                order.symbol
            ))?;
        }
        s.run(&format!(
            "UPDATE broker SET b_num_trades = b_num_trades + 1, b_comm_total = b_comm_total + {commission:.2} \
             WHERE b_id = (SELECT ca_b_id FROM customer_account WHERE ca_id = {account})"
        ))?;
        Ok(true)
    }

    /// New prices and quotes of some securities, which submit limit orders of this client.
    fn feed(&mut self, s: &mut ClientSession) -> Result<bool> {
        let mut symbols: Vec<String> = (0..FED).map(|_| self.symbol()).collect();
        // One order of locks.
        symbols.sort_unstable();
        symbols.dedup();
        for symbol in symbols {
            let factor = self.rng.between(9950, 10_050) as f64 / 1e4;
            let lots = 100 * self.rng.between(1, 60);
            s.run(&format!(
                "UPDATE last_trade SET lt_price = round(lt_price * {factor:.4}, 2), lt_vol = lt_vol + {lots}, lt_dts = CURRENT_TIMESTAMP \
                 WHERE lt_s_symb = '{symbol}'"
            ))?;
            s.run(&format!(
                "INSERT INTO quote SELECT lt_s_symb, lt_dts, round(lt_price * 0.999, 2), round(lt_price * 1.001, 2), {}, {} \
                 FROM last_trade WHERE lt_s_symb = '{symbol}'",
                100 * self.rng.between(1, 60),
                100 * self.rng.between(1, 60)
            ))?;
        }
        for _ in 0..SUBMITTED {
            let Some(order) = self.pending.pop_front() else {
                break;
            };
            s.run(&format!(
                "UPDATE trade SET t_st_id = 'SBMT' WHERE t_id = {}",
                order.id
            ))?;
            write_history(s, order.id, "SBMT")?;
            self.submitted.push_back(order);
        }
        Ok(true)
    }
}

fn price_of(s: &mut ClientSession, symbol: &str) -> Result<f64> {
    let price = s.number(&format!(
        "SELECT lt_price FROM last_trade WHERE lt_s_symb = '{symbol}'"
    ))?;
    price.with_context(|| format!("security {symbol} has no price"))
}

fn write_history(s: &mut ClientSession, id: i64, status: &str) -> Result<()> {
    s.run(&format!(
        "INSERT INTO trade_history VALUES ({id}, CURRENT_TIMESTAMP, '{status}')"
    ))
}

/// Moves the shares; whether there were enough to sell.
fn hold(s: &mut ClientSession, order: &PlacedOrder, price: f64) -> Result<bool> {
    let PlacedOrder {
        account,
        symbol,
        quantity,
        is_sell,
        ..
    } = order;
    if !is_sell {
        s.run(&format!(
            "INSERT INTO holding VALUES ({account}, '{symbol}', CURRENT_TIMESTAMP, {price:.2}, {quantity}) \
             ON CONFLICT (h_ca_id, h_s_symb) DO UPDATE SET h_price = round((1.0 * holding.h_price * holding.h_qty \
             + excluded.h_price * excluded.h_qty) / (holding.h_qty + excluded.h_qty), 2), h_qty = holding.h_qty + excluded.h_qty, \
             h_dts = excluded.h_dts"
        ))?;
        return Ok(true);
    }
    let of = format!("h_ca_id = {account} AND h_s_symb = '{symbol}'");
    let rest = s.number(&format!(
        "UPDATE holding SET h_qty = h_qty - {quantity} WHERE {of} AND h_qty > {quantity} RETURNING h_qty"
    ))?;
    if rest.is_some() {
        return Ok(true);
    }
    let all = s.number(&format!(
        "DELETE FROM holding WHERE {of} AND h_qty = {quantity} RETURNING h_qty"
    ))?;
    Ok(all.is_some())
}
