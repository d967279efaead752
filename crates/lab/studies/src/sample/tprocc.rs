//! The order-entry sample: TPC-C's nine tables, filled by the rules of its clause 4.3.3.1.
//!
//! Warehouses are the unit of size. If the size requires a part of one, the last warehouse has fewer customers per
//! district and stocks fewer items; below one warehouse the item table shrinks as well.
//!
//! Tables are loaded one after another in key order, as in a bulk load. Their a-strings are uniformly random letters
//! and digits, as the clause demands: they make up most of the bytes and cannot shrink below 6 bits per character, so
//! this sample compresses poorly (1.6 : 1 with gzip). The stock-trading sample is the one that resembles real data.
//!
//! Invariants
//! - At every size these hold: the consistency conditions of clause 3.3.2, one order per customer, the newest 30 % of
//!   the orders undelivered.
//!
//! Leaves to others: writing the file (`store.rs`), and random numbers (`random.rs`).
//!
//! Source: TPC Benchmark C, revision 5.11. Times that it takes from the clock count from a fixed date here.

use anyhow::Result;

use super::calendar::{self, MS_PER_DAY};
use super::part::SamplePart;
use super::random::Rng;
use super::store::{LoadResult, Loader, SampleLocation};

const ITEMS: u64 = 100_000;
const DISTRICTS: i64 = 10;
const CUSTOMERS_PER_DISTRICT: u64 = 3_000;
/// Percentage of orders that were delivered before the load: 2,100 of 3,000.
const DELIVERED_PERCENT: i64 = 70;
/// Each customer has paid once.
const PAID_PER_CUSTOMER: i64 = 10;

/// Bytes of an empty database: the schema and one page for each table and index.
const EMPTY_BYTES: f64 = 60e3;
/// Bytes of the full item table, which a database holds once.
const ITEM_BYTES: f64 = 7.99e6;
/// Bytes of a full warehouse with its indexes.
const WAREHOUSE_BYTES: f64 = 81.9e6;

/// 1 January 2024, the date of the population.
const POPULATION_MS: i64 = 19_723 * MS_PER_DAY;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

pub(super) const SCHEMA: &str = "
CREATE TABLE item (
  i_id INTEGER PRIMARY KEY, i_im_id INTEGER NOT NULL, i_name VARCHAR(24) NOT NULL,
  i_price NUMERIC(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL);
CREATE TABLE warehouse (
  w_id INTEGER PRIMARY KEY, w_name VARCHAR(10) NOT NULL, w_street_1 VARCHAR(20) NOT NULL,
  w_street_2 VARCHAR(20) NOT NULL, w_city VARCHAR(20) NOT NULL, w_state CHAR(2) NOT NULL,
  w_zip CHAR(9) NOT NULL, w_tax NUMERIC(4,4) NOT NULL, w_ytd NUMERIC(12,2) NOT NULL);
CREATE TABLE district (
  d_id INTEGER NOT NULL, d_w_id INTEGER NOT NULL REFERENCES warehouse, d_name VARCHAR(10) NOT NULL,
  d_street_1 VARCHAR(20) NOT NULL, d_street_2 VARCHAR(20) NOT NULL, d_city VARCHAR(20) NOT NULL,
  d_state CHAR(2) NOT NULL, d_zip CHAR(9) NOT NULL, d_tax NUMERIC(4,4) NOT NULL,
  d_ytd NUMERIC(12,2) NOT NULL, d_next_o_id INTEGER NOT NULL);
CREATE TABLE customer (
  c_id INTEGER NOT NULL, c_d_id INTEGER NOT NULL, c_w_id INTEGER NOT NULL,
  c_first VARCHAR(16) NOT NULL, c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL,
  c_street_1 VARCHAR(20) NOT NULL, c_street_2 VARCHAR(20) NOT NULL, c_city VARCHAR(20) NOT NULL,
  c_state CHAR(2) NOT NULL, c_zip CHAR(9) NOT NULL, c_phone CHAR(16) NOT NULL,
  c_since DATETIME NOT NULL, c_credit CHAR(2) NOT NULL, c_credit_lim NUMERIC(12,2) NOT NULL,
  c_discount NUMERIC(4,4) NOT NULL, c_balance NUMERIC(12,2) NOT NULL,
  c_ytd_payment NUMERIC(12,2) NOT NULL, c_payment_cnt INTEGER NOT NULL,
  c_delivery_cnt INTEGER NOT NULL, c_data VARCHAR(500) NOT NULL,
  FOREIGN KEY (c_w_id, c_d_id) REFERENCES district (d_w_id, d_id));
CREATE TABLE history (
  h_c_id INTEGER NOT NULL, h_c_d_id INTEGER NOT NULL, h_c_w_id INTEGER NOT NULL,
  h_d_id INTEGER NOT NULL, h_w_id INTEGER NOT NULL, h_date DATETIME NOT NULL,
  h_amount NUMERIC(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL,
  FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer (c_w_id, c_d_id, c_id),
  FOREIGN KEY (h_w_id, h_d_id) REFERENCES district (d_w_id, d_id));
CREATE TABLE stock (
  s_i_id INTEGER NOT NULL REFERENCES item, s_w_id INTEGER NOT NULL REFERENCES warehouse,
  s_quantity INTEGER NOT NULL,
  s_dist_01 CHAR(24) NOT NULL, s_dist_02 CHAR(24) NOT NULL, s_dist_03 CHAR(24) NOT NULL,
  s_dist_04 CHAR(24) NOT NULL, s_dist_05 CHAR(24) NOT NULL, s_dist_06 CHAR(24) NOT NULL,
  s_dist_07 CHAR(24) NOT NULL, s_dist_08 CHAR(24) NOT NULL, s_dist_09 CHAR(24) NOT NULL,
  s_dist_10 CHAR(24) NOT NULL,
  s_ytd INTEGER NOT NULL, s_order_cnt INTEGER NOT NULL, s_remote_cnt INTEGER NOT NULL,
  s_data VARCHAR(50) NOT NULL);
CREATE TABLE orders (
  o_id INTEGER NOT NULL, o_d_id INTEGER NOT NULL, o_w_id INTEGER NOT NULL,
  o_c_id INTEGER NOT NULL, o_entry_d DATETIME NOT NULL, o_carrier_id INTEGER,
  o_ol_cnt INTEGER NOT NULL, o_all_local INTEGER NOT NULL,
  FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer (c_w_id, c_d_id, c_id));
CREATE TABLE new_order (
  no_o_id INTEGER NOT NULL, no_d_id INTEGER NOT NULL, no_w_id INTEGER NOT NULL,
  FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES orders (o_w_id, o_d_id, o_id));
CREATE TABLE order_line (
  ol_o_id INTEGER NOT NULL, ol_d_id INTEGER NOT NULL, ol_w_id INTEGER NOT NULL,
  ol_number INTEGER NOT NULL, ol_i_id INTEGER NOT NULL, ol_supply_w_id INTEGER NOT NULL,
  ol_delivery_d DATETIME, ol_quantity INTEGER NOT NULL, ol_amount NUMERIC(6,2) NOT NULL,
  ol_dist_info CHAR(24) NOT NULL,
  FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES orders (o_w_id, o_d_id, o_id),
  FOREIGN KEY (ol_supply_w_id, ol_i_id) REFERENCES stock (s_w_id, s_i_id));
";

pub(super) const INDEXES: [&str; 8] = [
    "CREATE UNIQUE INDEX district_key ON district (d_w_id, d_id)",
    "CREATE UNIQUE INDEX customer_key ON customer (c_w_id, c_d_id, c_id)",
    "CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE UNIQUE INDEX stock_key ON stock (s_w_id, s_i_id)",
    "CREATE UNIQUE INDEX orders_key ON orders (o_w_id, o_d_id, o_id)",
    "CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
    "CREATE UNIQUE INDEX new_order_key ON new_order (no_w_id, no_d_id, no_o_id)",
    "CREATE UNIQUE INDEX order_line_key ON order_line (ol_w_id, ol_d_id, ol_o_id, ol_number)",
];

/// Warehouses that fill about `bytes`.
pub fn units(bytes: f64) -> f64 {
    let bytes = (bytes - EMPTY_BYTES).max(0.0);
    let below_one = bytes / (WAREHOUSE_BYTES + ITEM_BYTES);
    if below_one < 1.0 {
        below_one
    } else {
        (bytes - ITEM_BYTES) / WAREHOUSE_BYTES
    }
}

/// Bytes of so many whole warehouses: a little less, since more would begin a further one.
pub fn bytes(warehouses: u32) -> u64 {
    (EMPTY_BYTES + ITEM_BYTES + f64::from(warehouses) * WAREHOUSE_BYTES) as u64 - 1
}

/// The number of whole warehouses of which this is the size, as [`bytes`] has it; `None`: it is another size.
pub fn whole(want_bytes: u64) -> Option<u32> {
    let count = (want_bytes as f64 - EMPTY_BYTES - ITEM_BYTES) / WAREHOUSE_BYTES;
    let count = count.round() as u32;
    (count >= 1 && bytes(count) == want_bytes).then_some(count)
}

/// Bytes by which the file grows for each further warehouse, at `units` of them.
pub fn bytes_per_unit(units: f64) -> f64 {
    if units < 1.0 {
        WAREHOUSE_BYTES + ITEM_BYTES
    } else {
        WAREHOUSE_BYTES
    }
}

/// One warehouse, perhaps a partial one.
struct Warehouse {
    id: i64,
    customers_per_district: i64,
    items: i64,
}

impl Warehouse {
    /// Districts and customers in key order.
    fn customers(&self) -> impl Iterator<Item = (i64, i64)> {
        (1..=DISTRICTS).flat_map(|d| (1..=self.customers_per_district).map(move |c| (d, c)))
    }

    /// When the load reached row `n` of a district: 2 ms per row, so that dates advance.
    fn loaded_ms(&self, district: i64, n: i64) -> i64 {
        let districts_before = self.id * DISTRICTS + district;
        POPULATION_MS + (districts_before * CUSTOMERS_PER_DISTRICT as i64 + n) * 2
    }
}

fn warehouses(part: &SamplePart) -> Vec<Warehouse> {
    let share_of = |whole: u64, share: f64| ((whole as f64 * share).round() as i64).max(1);
    let count = part.units.ceil().max(1.0) as i64;
    (0..count)
        .map(|n| {
            let share = (part.units - n as f64).clamp(0.0, 1.0);
            Warehouse {
                id: part.first_id + n,
                customers_per_district: share_of(CUSTOMERS_PER_DISTRICT, share),
                items: share_of(ITEMS, share),
            }
        })
        .collect()
}

/// Loads the warehouses of `part` and returns how many ids they used.
pub fn load(
    place: &SampleLocation,
    part: &SamplePart,
    on_progress: &dyn Fn(&'static str, u64),
) -> Result<(LoadResult, i64)> {
    let loader = Loader::create(place, SCHEMA, on_progress)?;
    let warehouses = warehouses(part);
    items(&loader, part.seed, &warehouses)?;
    districts(&loader, part.seed, &warehouses)?;
    customers(&loader, part.seed, &warehouses)?;
    history(&loader, part.seed, &warehouses)?;
    stock(&loader, part.seed, &warehouses)?;
    orders(&loader, part.seed, &warehouses)?;
    order_lines(&loader, part.seed, &warehouses)?;
    Ok((loader.finish(&INDEXES, part.wal)?, warehouses.len() as i64))
}

/// The same items in every database of a sample, limited to those that its warehouses stock.
fn items(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let mut rng = Rng::stream(seed, "item", 0);
    let mut table = loader.table("item", 5)?;
    let (mut name, mut data) = (String::new(), String::new());
    let count = warehouses.iter().map(|w| w.items).max().unwrap_or(0);
    for id in 1..=count {
        rng.a_string(&mut name, 14, 24);
        let (image, price) = (rng.between(1, 10_000), rng.between(100, 10_000));
        brand_data(&mut rng, &mut data);
        table.row(&[&id, &image, &name, &money(price), &data])?;
    }
    Ok(())
}

/// Warehouses, then their districts.
fn districts(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let (mut name, mut at) = (String::new(), Address::default());
    let mut table = loader.table("warehouse", 9)?;
    for warehouse in warehouses {
        let mut rng = Rng::stream(seed, "warehouse", warehouse.id as u64);
        rng.a_string(&mut name, 6, 10);
        at.draw(&mut rng);
        let tax = ten_thousandths(rng.between(0, 2_000));
        let ytd = warehouse.customers_per_district * DISTRICTS * PAID_PER_CUSTOMER;
        table.row(&[
            &warehouse.id,
            &name,
            &at.street_1,
            &at.street_2,
            &at.city,
            &at.state,
            &at.zip,
            &tax,
            &ytd,
        ])?;
    }
    let mut table = loader.table("district", 11)?;
    for warehouse in warehouses {
        let mut rng = Rng::stream(seed, "district", warehouse.id as u64);
        for district in 1..=DISTRICTS {
            rng.a_string(&mut name, 6, 10);
            at.draw(&mut rng);
            let tax = ten_thousandths(rng.between(0, 2_000));
            let ytd = warehouse.customers_per_district * PAID_PER_CUSTOMER;
            let next_order = warehouse.customers_per_district + 1;
            table.row(&[
                &district,
                &warehouse.id,
                &name,
                &at.street_1,
                &at.street_2,
                &at.city,
                &at.state,
                &at.zip,
                &tax,
                &ytd,
                &next_order,
            ])?;
        }
    }
    Ok(())
}

fn customers(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let c_last = Rng::stream(seed, "c_last", 0).between(0, 255);
    let mut table = loader.table("customer", 21)?;
    let (mut first, mut last, mut phone) = (String::new(), String::new(), String::new());
    let (mut since, mut data, mut at) = (String::new(), String::new(), Address::default());
    for warehouse in warehouses {
        let mut rng = Rng::stream(seed, "customer", warehouse.id as u64);
        for (district, customer) in warehouse.customers() {
            let name = match customer {
                // Every last name occurs, so that each can be queried.
                1..=1000 => customer - 1,
                _ => rng.nurand(255, 0, 999, c_last),
            };
            last_name(&mut last, name);
            rng.a_string(&mut first, 8, 16);
            at.draw(&mut rng);
            rng.n_string(&mut phone, 16);
            calendar::seconds(&mut since, warehouse.loaded_ms(district, customer));
            let credit = if rng.chance(10) { "BC" } else { "GC" };
            let discount = ten_thousandths(rng.between(0, 5_000));
            rng.a_string(&mut data, 300, 500);
            table.row(&[
                &customer,
                &district,
                &warehouse.id,
                &first,
                &"OE",
                &last,
                &at.street_1,
                &at.street_2,
                &at.city,
                &at.state,
                &at.zip,
                &phone,
                &since,
                &credit,
                &50_000,
                &discount,
                &-10,
                &PAID_PER_CUSTOMER,
                &1,
                &0,
                &data,
            ])?;
        }
    }
    Ok(())
}

/// One payment of each customer.
fn history(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let mut table = loader.table("history", 8)?;
    let (mut date, mut data) = (String::new(), String::new());
    for warehouse in warehouses {
        let mut rng = Rng::stream(seed, "history", warehouse.id as u64);
        let id = warehouse.id;
        for (district, customer) in warehouse.customers() {
            calendar::seconds(&mut date, warehouse.loaded_ms(district, customer));
            rng.a_string(&mut data, 12, 24);
            let amount = PAID_PER_CUSTOMER;
            table.row(&[
                &customer, &district, &id, &district, &id, &date, &amount, &data,
            ])?;
        }
    }
    Ok(())
}

fn stock(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let mut table = loader.table("stock", 17)?;
    let mut dist: [String; DISTRICTS as usize] = Default::default();
    let mut data = String::new();
    for warehouse in warehouses {
        let mut rng = Rng::stream(seed, "stock", warehouse.id as u64);
        for item in 1..=warehouse.items {
            let quantity = rng.between(10, 100);
            for text in &mut dist {
                rng.a_string(text, 24, 24);
            }
            brand_data(&mut rng, &mut data);
            let [d1, d2, d3, d4, d5, d6, d7, d8, d9, d10] = &dist;
            table.row(&[
                &item,
                &warehouse.id,
                &quantity,
                d1,
                d2,
                d3,
                d4,
                d5,
                d6,
                d7,
                d8,
                d9,
                d10,
                &0,
                &0,
                &0,
                &data,
            ])?;
        }
    }
    Ok(())
}

/// One order, as its row and its lines both need it.
struct Order {
    id: i64,
    customer: i64,
    lines: i64,
    /// `None` until delivered.
    carrier: Option<i64>,
}

/// The orders of a district: drawn when they are loaded, and again for their lines.
fn draw_orders(seed: u64, warehouse: &Warehouse, district: i64) -> Vec<Order> {
    let mut rng = Rng::stream(seed, "orders", (warehouse.id * DISTRICTS + district) as u64);
    let count = warehouse.customers_per_district;
    let mut customers: Vec<i64> = (1..=count).collect();
    for last in (1..customers.len()).rev() {
        customers.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let delivered = count * DELIVERED_PERCENT / 100;
    (1..)
        .zip(customers)
        .map(|(id, customer)| {
            let carrier = rng.between(1, 10);
            let lines = rng.between(5, 15);
            Order {
                id,
                customer,
                lines,
                carrier: (id <= delivered).then_some(carrier),
            }
        })
        .collect()
}

/// Orders, then the ones that are still new.
fn orders(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let mut date = String::new();
    let mut table = loader.table("orders", 8)?;
    for (warehouse, district) in all_districts(warehouses) {
        for order in draw_orders(seed, warehouse, district) {
            calendar::seconds(&mut date, warehouse.loaded_ms(district, order.id));
            table.row(&[
                &order.id,
                &district,
                &warehouse.id,
                &order.customer,
                &date,
                &order.carrier,
                &order.lines,
                &1,
            ])?;
        }
    }
    let mut table = loader.table("new_order", 3)?;
    for (warehouse, district) in all_districts(warehouses) {
        for order in draw_orders(seed, warehouse, district) {
            if order.carrier.is_none() {
                table.row(&[&order.id, &district, &warehouse.id])?;
            }
        }
    }
    Ok(())
}

fn order_lines(loader: &Loader, seed: u64, warehouses: &[Warehouse]) -> Result<()> {
    let mut table = loader.table("order_line", 10)?;
    let (mut date, mut dist) = (String::new(), String::new());
    for (warehouse, district) in all_districts(warehouses) {
        let id = warehouse.id;
        let mut rng = Rng::stream(seed, "order_line", (id * DISTRICTS + district) as u64);
        for order in draw_orders(seed, warehouse, district) {
            calendar::seconds(&mut date, warehouse.loaded_ms(district, order.id));
            let delivery = order.carrier.map(|_| date.as_str());
            for number in 1..=order.lines {
                let item = rng.between(1, warehouse.items);
                let open = rng.between(1, 999_999);
                let amount = money(if delivery.is_some() { 0 } else { open });
                rng.a_string(&mut dist, 24, 24);
                table.row(&[
                    &order.id, &district, &id, &number, &item, &id, &delivery, &5, &amount, &dist,
                ])?;
            }
        }
    }
    Ok(())
}

fn all_districts(warehouses: &[Warehouse]) -> impl Iterator<Item = (&Warehouse, i64)> {
    warehouses
        .iter()
        .flat_map(|w| (1..=DISTRICTS).map(move |district| (w, district)))
}

#[derive(Default)]
struct Address {
    street_1: String,
    street_2: String,
    city: String,
    state: String,
    zip: String,
}

impl Address {
    /// A new random address (clauses 4.3.2.2 and 4.3.2.7).
    fn draw(&mut self, rng: &mut Rng) {
        rng.a_string(&mut self.street_1, 10, 20);
        rng.a_string(&mut self.street_2, 10, 20);
        rng.a_string(&mut self.city, 10, 20);
        self.state.clear();
        for _ in 0..2 {
            self.state.push(char::from(b'A' + rng.below(26) as u8));
        }
        rng.n_string(&mut self.zip, 4);
        self.zip.push_str("11111");
    }
}

/// I_DATA and S_DATA: one in ten says ORIGINAL somewhere.
fn brand_data(rng: &mut Rng, data: &mut String) {
    const MARK: &str = "ORIGINAL";
    rng.a_string(data, 26, 50);
    if rng.chance(10) {
        let at = rng.below((data.len() - MARK.len() + 1) as u64) as usize;
        data.replace_range(at..at + MARK.len(), MARK);
    }
}

/// Replaces `out` by last name `number` (0 to 999) of clause 4.3.2.3.
fn last_name(out: &mut String, number: i64) {
    out.clear();
    for place in [100, 10, 1] {
        out.push_str(SYLLABLES[(number / place % 10) as usize]);
    }
}

fn money(cents: i64) -> f64 {
    cents as f64 / 100.0
}

fn ten_thousandths(n: i64) -> f64 {
    n as f64 / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The warehouses that are loaded for the size of so many.
    fn made_for(count: u32) -> Vec<Warehouse> {
        let want_bytes = bytes(count);
        warehouses(&SamplePart {
            seed: 1,
            first_id: 1,
            want_bytes,
            units: units(want_bytes as f64),
            wal: false,
        })
    }

    /// Rows and bytes of a row as clause 1.2.1 of the benchmark has them, of one warehouse: warehouse, district, customer, history,
    /// order, new-order, order-line, stock.
    const OF_ONE: [(u64, u64); 8] = [
        (1, 89),
        (10, 95),
        (30_000, 655),
        (30_000, 46),
        (30_000, 24),
        (9_000, 8),
        (300_000, 54),
        (100_000, 306),
    ];
    /// Items, which a database has once.
    const ITEM_ROWS: (u64, u64) = (100_000, 82);

    /// Goal: `--warehouses` makes the database that the benchmark describes, of about its size.
    #[test]
    fn one_two_and_ten_warehouses_have_the_benchmarks_rows_and_about_its_bytes() {
        for count in [1, 2, 10] {
            let made = made_for(count);
            assert_eq!(whole(bytes(count)), Some(count));
            assert_eq!((whole(bytes(count) + 1), whole(24 << 20)), (None, None));
            let of = |n: usize| OF_ONE[n].0 * u64::from(count);
            let sum = |rows: &dyn Fn(&Warehouse) -> u64| made.iter().map(rows).sum::<u64>();
            assert_eq!(made.len() as u64, of(0));
            assert_eq!(all_districts(&made).count() as u64, of(1));
            // Each customer has paid once, so the history has as many rows.
            assert_eq!(sum(&|w| w.customers().count() as u64), of(2));
            assert_eq!(of(2), of(3));
            let orders: Vec<Order> = all_districts(&made)
                .flat_map(|(warehouse, district)| draw_orders(1, warehouse, district))
                .collect();
            assert_eq!(orders.len() as u64, of(4));
            let is_new = |order: &&Order| order.carrier.is_none();
            assert_eq!(orders.iter().filter(is_new).count() as u64, of(5));
            let lines: i64 = orders.iter().map(|order| order.lines).sum();
            let share = lines as f64 / of(6) as f64;
            assert!(
                (0.99..1.01).contains(&share),
                "5 to 15 lines, 10 on average: {share}"
            );
            assert_eq!(sum(&|w| w.items as u64), of(7));
            assert!(made.iter().all(|w| w.items as u64 == ITEM_ROWS.0));
            // SQLite's pages and the indexes come on top of the rows.
            let rows = OF_ONE.iter().map(|(rows, row)| rows * row).sum::<u64>() * u64::from(count);
            let over = bytes(count) as f64 / (rows + ITEM_ROWS.0 * ITEM_ROWS.1) as f64;
            assert!((1.1..1.3).contains(&over), "{count}: {over}");
        }
    }

    #[test]
    fn the_bytes_of_whole_warehouses_make_as_many_and_all_are_full() {
        for count in [1, 2, 7, 100, 5000] {
            let made = made_for(count);
            assert_eq!(made.len(), count as usize);
            let full = |w: &Warehouse| (w.customers_per_district, w.items) == (3000, 100_000);
            assert!(made.iter().all(full), "{count}");
        }
    }
}
