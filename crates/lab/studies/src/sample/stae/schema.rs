//! Tables, indexes and the few rows that never change, all as SQL text.
//!
//! Invariants
//! - The text is the same for all sizes and seeds.
//! - Indexes are made after the rows are loaded (`store.rs`).
//!
//! Leaves to others: the rows that depend on the seed (`people.rs`, `market.rs`).

use anyhow::Result;

use super::super::store::Loader;
use super::kinds::TRADE_TYPES;

pub const TABLES: &str = "
CREATE TABLE exchange (
  ex_id VARCHAR(6) NOT NULL, ex_name VARCHAR(100) NOT NULL, ex_open INTEGER NOT NULL,
  ex_close INTEGER NOT NULL, ex_desc VARCHAR(150) NOT NULL);
CREATE TABLE industry (
  in_id CHAR(2) NOT NULL, in_name VARCHAR(50) NOT NULL, in_sector VARCHAR(30) NOT NULL);
CREATE TABLE status_type (st_id CHAR(4) NOT NULL, st_name VARCHAR(10) NOT NULL);
CREATE TABLE trade_type (
  tt_id CHAR(3) NOT NULL, tt_name VARCHAR(12) NOT NULL, tt_is_sell BOOLEAN NOT NULL,
  tt_is_mrkt BOOLEAN NOT NULL);
CREATE TABLE broker (
  b_id INTEGER PRIMARY KEY, b_st_id CHAR(4) NOT NULL REFERENCES status_type (st_id),
  b_name VARCHAR(49) NOT NULL, b_num_trades INTEGER NOT NULL, b_comm_total NUMERIC(12,2) NOT NULL);
CREATE TABLE customer (
  c_id INTEGER PRIMARY KEY, c_tax_id VARCHAR(20) NOT NULL,
  c_st_id CHAR(4) NOT NULL REFERENCES status_type (st_id), c_l_name VARCHAR(25) NOT NULL,
  c_f_name VARCHAR(20) NOT NULL, c_m_name CHAR(1), c_gndr CHAR(1), c_tier INTEGER NOT NULL,
  c_dob DATE NOT NULL, c_street VARCHAR(80) NOT NULL, c_city VARCHAR(80) NOT NULL,
  c_state CHAR(2) NOT NULL, c_zip CHAR(5) NOT NULL, c_phone VARCHAR(20) NOT NULL,
  c_email VARCHAR(50) NOT NULL);
CREATE TABLE customer_account (
  ca_id INTEGER PRIMARY KEY, ca_b_id INTEGER NOT NULL REFERENCES broker,
  ca_c_id INTEGER NOT NULL REFERENCES customer, ca_name VARCHAR(50) NOT NULL,
  ca_tax_st INTEGER NOT NULL, ca_bal NUMERIC(12,2) NOT NULL);
CREATE TABLE company (
  co_id INTEGER PRIMARY KEY, co_name VARCHAR(60) NOT NULL,
  co_in_id CHAR(2) NOT NULL REFERENCES industry (in_id), co_sp_rate CHAR(4) NOT NULL,
  co_ceo VARCHAR(46) NOT NULL, co_city VARCHAR(80) NOT NULL, co_state CHAR(2) NOT NULL,
  co_open_date DATE NOT NULL, co_desc TEXT NOT NULL);
CREATE TABLE security (
  s_symb VARCHAR(15) NOT NULL, s_issue CHAR(6) NOT NULL,
  s_st_id CHAR(4) NOT NULL REFERENCES status_type (st_id), s_name VARCHAR(70) NOT NULL,
  s_ex_id VARCHAR(6) NOT NULL REFERENCES exchange (ex_id),
  s_co_id INTEGER NOT NULL REFERENCES company, s_num_out INTEGER NOT NULL,
  s_start_date DATE NOT NULL, s_52wk_high NUMERIC(8,2) NOT NULL,
  s_52wk_low NUMERIC(8,2) NOT NULL, s_dividend NUMERIC(10,2) NOT NULL);
CREATE TABLE daily_market (
  dm_date DATE NOT NULL, dm_s_symb VARCHAR(15) NOT NULL REFERENCES security (s_symb),
  dm_close NUMERIC(8,2) NOT NULL, dm_high NUMERIC(8,2) NOT NULL, dm_low NUMERIC(8,2) NOT NULL,
  dm_vol INTEGER NOT NULL);
CREATE TABLE last_trade (
  lt_s_symb VARCHAR(15) NOT NULL REFERENCES security (s_symb), lt_dts DATETIME NOT NULL,
  lt_price NUMERIC(8,2) NOT NULL, lt_open_price NUMERIC(8,2) NOT NULL, lt_vol INTEGER NOT NULL);
CREATE TABLE quote (
  q_s_symb VARCHAR(15) NOT NULL REFERENCES security (s_symb), q_dts DATETIME NOT NULL,
  q_bid NUMERIC(8,2) NOT NULL, q_ask NUMERIC(8,2) NOT NULL, q_bid_size INTEGER NOT NULL,
  q_ask_size INTEGER NOT NULL);
CREATE TABLE trade (
  t_id INTEGER PRIMARY KEY, t_dts DATETIME NOT NULL,
  t_st_id CHAR(4) NOT NULL REFERENCES status_type (st_id),
  t_tt_id CHAR(3) NOT NULL REFERENCES trade_type (tt_id), t_is_cash BOOLEAN NOT NULL,
  t_s_symb VARCHAR(15) NOT NULL REFERENCES security (s_symb), t_qty INTEGER NOT NULL,
  t_bid_price NUMERIC(8,2) NOT NULL, t_ca_id INTEGER NOT NULL REFERENCES customer_account,
  t_exec_name VARCHAR(49) NOT NULL, t_trade_price NUMERIC(8,2), t_chrg NUMERIC(10,2) NOT NULL,
  t_comm NUMERIC(10,2) NOT NULL, t_tax NUMERIC(10,2) NOT NULL);
CREATE TABLE trade_history (
  th_t_id INTEGER NOT NULL REFERENCES trade, th_dts DATETIME NOT NULL,
  th_st_id CHAR(4) NOT NULL REFERENCES status_type (st_id));
CREATE TABLE settlement (
  se_t_id INTEGER PRIMARY KEY REFERENCES trade, se_cash_type VARCHAR(40) NOT NULL,
  se_cash_due_date DATE NOT NULL, se_amt NUMERIC(10,2) NOT NULL);
CREATE TABLE cash_transaction (
  ct_t_id INTEGER PRIMARY KEY REFERENCES trade, ct_dts DATETIME NOT NULL,
  ct_amt NUMERIC(10,2) NOT NULL, ct_name VARCHAR(100) NOT NULL);
CREATE TABLE holding (
  h_ca_id INTEGER NOT NULL REFERENCES customer_account,
  h_s_symb VARCHAR(15) NOT NULL REFERENCES security (s_symb), h_dts DATETIME NOT NULL,
  h_price NUMERIC(8,2) NOT NULL, h_qty INTEGER NOT NULL);
";

pub const INDEXES: [&str; 14] = [
    "CREATE UNIQUE INDEX exchange_key ON exchange (ex_id)",
    "CREATE UNIQUE INDEX industry_key ON industry (in_id)",
    "CREATE UNIQUE INDEX status_type_key ON status_type (st_id)",
    "CREATE UNIQUE INDEX trade_type_key ON trade_type (tt_id)",
    "CREATE UNIQUE INDEX security_key ON security (s_symb)",
    "CREATE UNIQUE INDEX last_trade_key ON last_trade (lt_s_symb)",
    "CREATE INDEX customer_tax ON customer (c_tax_id)",
    "CREATE INDEX account_customer ON customer_account (ca_c_id)",
    "CREATE UNIQUE INDEX daily_market_key ON daily_market (dm_s_symb, dm_date)",
    "CREATE UNIQUE INDEX holding_key ON holding (h_ca_id, h_s_symb)",
    "CREATE INDEX quote_time ON quote (q_s_symb, q_dts)",
    "CREATE UNIQUE INDEX trade_history_key ON trade_history (th_t_id, th_st_id)",
    "CREATE INDEX trade_account ON trade (t_ca_id, t_dts)",
    "CREATE INDEX trade_security ON trade (t_s_symb, t_dts)",
];

pub const EXCHANGES: [(&str, &str, &str); 4] = [
    (
        "NYSE",
        "New York Stock Exchange",
        "Auction market for listed stocks",
    ),
    (
        "NASDAQ",
        "National Market System",
        "Electronic market with competing dealers",
    ),
    (
        "AMEX",
        "American Stock Exchange",
        "Auction market for smaller companies",
    ),
    (
        "PCX",
        "Pacific Exchange",
        "Regional exchange of the West Coast",
    ),
];

pub const INDUSTRIES: [(&str, &str, &str); 16] = [
    ("AD", "Aerospace and Defense", "Capital Goods"),
    ("AI", "Airlines", "Transportation"),
    ("BK", "Regional Banks", "Financial"),
    ("BT", "Biotechnology and Drugs", "Healthcare"),
    ("CH", "Chemical Manufacturing", "Basic Materials"),
    ("CS", "Computer Services", "Technology"),
    ("EL", "Electric Utilities", "Utilities"),
    ("FP", "Food Processing", "Consumer Non-Cyclical"),
    ("IN", "Insurance", "Financial"),
    ("ME", "Medical Equipment", "Healthcare"),
    ("OG", "Oil and Gas Operations", "Energy"),
    ("RE", "Real Estate Operations", "Services"),
    ("RT", "Retail", "Services"),
    ("SC", "Semiconductors", "Technology"),
    ("SW", "Software and Programming", "Technology"),
    ("TR", "Trucking", "Transportation"),
];

pub const STATUS_TYPES: [(&str, &str); 5] = [
    ("ACTV", "Active"),
    ("CMPT", "Completed"),
    ("CNCL", "Canceled"),
    ("PNDG", "Pending"),
    ("SBMT", "Submitted"),
];

/// Loads the tables whose rows never change.
pub fn load_reference(loader: &Loader) -> Result<()> {
    let mut table = loader.table("exchange", 5)?;
    for (id, name, text) in EXCHANGES {
        table.row(&[&id, &name, &930, &1600, &text])?;
    }
    let mut table = loader.table("industry", 3)?;
    for (id, name, sector) in INDUSTRIES {
        table.row(&[&id, &name, &sector])?;
    }
    let mut table = loader.table("status_type", 2)?;
    for (id, name) in STATUS_TYPES {
        table.row(&[&id, &name])?;
    }
    let mut table = loader.table("trade_type", 4)?;
    for kind in &TRADE_TYPES {
        table.row(&[&kind.id, &kind.name, &kind.is_sell, &kind.is_market])?;
    }
    Ok(())
}
