//! TPC-C-like transactions: the five kinds in their mix, on the database of the sample `tprocc`.
//!
//! Written from the specification's clauses 2.4 to 2.8, and no run of the benchmark: no keying times, one terminal
//! serves any warehouse, and results are not checked. Figures made with it are not tpmC.
//!
//! Invariants
//! - Rows are locked in one order, so that clients wait for each other and rarely end each other's transactions.
//!
//! Leaves to others: sessions (`session.rs`), and when a transaction begins and ends (`terminals.rs`).

use anyhow::{Context, Result};

use super::session::ClientSession;
use crate::sample::random::Rng;

const DISTRICTS: i64 = 10;
/// TPC-C's syllables of last names.
const NAMES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// The size of the database, as far as transactions need it.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    warehouses: i64,
    /// In each district of the smallest warehouse.
    customers: i64,
    items: i64,
}

impl Scale {
    pub fn of(session: &mut ClientSession) -> Result<Scale> {
        let mut number = |sql: &str| -> Result<i64> {
            let found = session
                .number(sql)
                .context("not the database of a sample `tprocc`")?;
            Ok(found.unwrap_or(0.0).max(1.0) as i64)
        };
        Ok(Scale {
            warehouses: number("SELECT max(w_id) FROM warehouse")?,
            customers: number(
                "SELECT min(m) FROM (SELECT max(c_id) AS m FROM customer GROUP BY c_w_id) AS t",
            )?,
            items: number(
                "SELECT min(m) FROM (SELECT max(s_i_id) AS m FROM stock GROUP BY s_w_id) AS t",
            )?,
        })
    }
}

/// One client's stream of transactions.
pub struct OrderTerminal {
    rng: Rng,
    scale: Scale,
}

impl OrderTerminal {
    pub fn new(seed: u64, scale: Scale) -> OrderTerminal {
        OrderTerminal {
            rng: Rng::stream(seed, "terminal", 0),
            scale,
        }
    }

    /// The kind of the next transaction.
    pub fn draw(&mut self) -> usize {
        match self.rng.below(100) {
            0..45 => 0,
            45..88 => 1,
            88..92 => 2,
            92..96 => 3,
            _ => 4,
        }
    }

    /// Runs a transaction of this kind, which has begun. Returns whether it is to be committed.
    pub fn transact(&mut self, kind: usize, session: &mut ClientSession) -> Result<bool> {
        match kind {
            0 => self.new_order(session),
            1 => self.payment(session),
            2 => self.order_status(session),
            3 => self.delivery(session),
            _ => self.stock_level(session),
        }
    }

    fn warehouse(&mut self) -> i64 {
        self.rng.between(1, self.scale.warehouses)
    }

    fn customer(&mut self) -> i64 {
        let customer = self.rng.nurand(1023, 1, 3000, 259);
        (customer - 1) % self.scale.customers + 1
    }

    fn item(&mut self) -> i64 {
        let item = self.rng.nurand(8191, 1, 100_000, 7911);
        (item - 1) % self.scale.items + 1
    }

    /// Clause 2.4: one in a hundred is rolled back.
    fn new_order(&mut self, s: &mut ClientSession) -> Result<bool> {
        let (w, d, c) = (
            self.warehouse(),
            self.rng.between(1, DISTRICTS),
            self.customer(),
        );
        let mut items: Vec<i64> = (0..self.rng.between(5, 15)).map(|_| self.item()).collect();
        // One order of locks.
        items.sort_unstable();
        let Some(next) = s.number(&format!(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = {w} AND d_id = {d} RETURNING d_next_o_id - 1"
        ))? else {
            return Ok(false);
        };
        let order = next as i64;
        s.word(&format!(
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = {w} AND c_w_id = {w} \
             AND c_d_id = {d} AND c_id = {c}"
        ))?;
        let lines = items.len();
        s.run(&format!(
            "INSERT INTO orders VALUES ({order}, {d}, {w}, {c}, CURRENT_TIMESTAMP, NULL, {lines}, 1)"
        ))?;
        s.run(&format!("INSERT INTO new_order VALUES ({order}, {d}, {w})"))?;
        for (n, item) in items.iter().enumerate() {
            let quantity = self.rng.between(1, 10);
            let price = s.number(&format!("SELECT i_price FROM item WHERE i_id = {item}"))?;
            let info = s.word(&format!(
                "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= {quantity} + 10 THEN s_quantity - {quantity} \
                 ELSE s_quantity - {quantity} + 91 END, s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1 \
                 WHERE s_w_id = {w} AND s_i_id = {item} RETURNING s_dist_{d:02}"
            ))?;
            let amount = price.unwrap_or(1.0) * quantity as f64;
            s.run(&format!(
                "INSERT INTO order_line VALUES ({order}, {d}, {w}, {}, {item}, {w}, NULL, {quantity}, {amount:.2}, '{}')",
                n + 1,
                info.unwrap_or_default().replace('\'', "''")
            ))?;
        }
        Ok(!self.rng.chance(1))
    }

    /// Clause 2.5: six of ten customers are chosen by name.
    fn payment(&mut self, s: &mut ClientSession) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.between(1, DISTRICTS));
        let amount = self.rng.between(100, 500_000) as f64 / 100.0;
        s.run(&format!(
            "UPDATE warehouse SET w_ytd = w_ytd + {amount} WHERE w_id = {w}"
        ))?;
        s.run(&format!(
            "UPDATE district SET d_ytd = d_ytd + {amount} WHERE d_w_id = {w} AND d_id = {d}"
        ))?;
        let c = self.chosen(s, w, d)?;
        s.run(&format!(
            "UPDATE customer SET c_balance = c_balance - {amount}, c_ytd_payment = c_ytd_payment + {amount}, \
             c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        ))?;
        s.run(&format!(
            "INSERT INTO history VALUES ({c}, {d}, {w}, {d}, {w}, CURRENT_TIMESTAMP, {amount}, 'payment')"
        ))?;
        Ok(true)
    }

    /// A customer by name, or by number.
    fn chosen(&mut self, s: &mut ClientSession, w: i64, d: i64) -> Result<i64> {
        if !self.rng.chance(60) {
            return Ok(self.customer());
        }
        let n = self.rng.nurand(255, 0, 999, 173);
        let last: String = [n / 100, n / 10 % 10, n % 10]
            .iter()
            .map(|n| NAMES[*n as usize])
            .collect();
        let of = format!("FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = '{last}'");
        let count = s.number(&format!("SELECT count(*) {of}"))?.unwrap_or(0.0) as i64;
        // The middle one of those that have the name.
        let middle = (count + 1) / 2 - 1;
        let found = match count {
            0 => None,
            _ => s.number(&format!(
                "SELECT c_id {of} ORDER BY c_first LIMIT 1 OFFSET {middle}"
            ))?,
        };
        Ok(found.map_or_else(|| self.customer(), |c| c as i64))
    }

    /// Clause 2.6.
    fn order_status(&mut self, s: &mut ClientSession) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.between(1, DISTRICTS));
        let c = self.chosen(s, w, d)?;
        let order = s.number(&format!(
            "SELECT o_id FROM orders WHERE o_w_id = {w} AND o_d_id = {d} AND o_c_id = {c} ORDER BY o_id DESC LIMIT 1"
        ))?;
        if let Some(order) = order {
            s.word(&format!(
                "SELECT count(*), sum(ol_amount) FROM order_line WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}"
            ))?;
        }
        Ok(true)
    }

    /// Clause 2.7: the oldest order of each district.
    fn delivery(&mut self, s: &mut ClientSession) -> Result<bool> {
        let w = self.warehouse();
        let carrier = self.rng.between(1, 10);
        for d in 1..=DISTRICTS {
            let oldest =
                format!("SELECT min(no_o_id) FROM new_order WHERE no_w_id = {w} AND no_d_id = {d}");
            let Some(order) = s.number(&oldest)? else {
                continue;
            };
            s.run(&format!(
                "DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {order}"
            ))?;
            let of_order = format!("o_w_id = {w} AND o_d_id = {d} AND o_id = {order}");
            let customer = s.number(&format!(
                "UPDATE orders SET o_carrier_id = {carrier} WHERE {of_order} RETURNING o_c_id"
            ))?;
            let of_lines = format!("ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}");
            s.run(&format!(
                "UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE {of_lines}"
            ))?;
            let sum = s.number(&format!(
                "SELECT sum(ol_amount) FROM order_line WHERE {of_lines}"
            ))?;
            if let Some(c) = customer {
                s.run(&format!(
                    "UPDATE customer SET c_balance = c_balance + {:.2}, c_delivery_cnt = c_delivery_cnt + 1 \
                     WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}",
                    sum.unwrap_or(0.0)
                ))?;
            }
        }
        Ok(true)
    }

    /// Clause 2.8: items of the last 20 orders that run short.
    fn stock_level(&mut self, s: &mut ClientSession) -> Result<bool> {
        let (w, d) = (self.warehouse(), self.rng.between(1, DISTRICTS));
        let threshold = self.rng.between(10, 20);
        let next = s.number(&format!(
            "SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}"
        ))?;
        let next = next.unwrap_or(1.0) as i64;
        s.word(&format!(
            "SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = {w} AND ol_d_id = {d} \
             AND ol_o_id < {next} AND ol_o_id >= {} AND s_w_id = {w} AND s_i_id = ol_i_id AND s_quantity < {threshold}",
            next - 20
        ))?;
        Ok(true)
    }
}
