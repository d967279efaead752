//! Customers with their accounts, and the brokers who serve them.
//!
//! Invariants
//! - The same seed gives the same people.
//! - Every customer has at least one account. Accounts and brokers are written last, with the totals that the trades
//!   leave.
//!
//! Leaves to others: names (`names.rs`), and trades (`trades.rs`).

use anyhow::Result;

use super::super::calendar;
use super::super::part::SamplePart;
use super::super::random::Rng;
use super::super::store::Loader;
use super::ground::money;
use super::names::{self, Home, Person};

/// Accounts of one customer: 1 to this.
const ACCOUNTS_MAX: i64 = 4;

const ACCOUNT_NAMES: [&str; ACCOUNTS_MAX as usize] = [
    "Trading Account",
    "Retirement Account",
    "Savings Account",
    "College Fund",
];

pub struct People {
    pub customers: Vec<Customer>,
    pub accounts: Vec<Account>,
    pub brokers: Vec<Broker>,
    first_id: i64,
}

pub struct Customer {
    pub name: String,
    /// 1 (high fees) to 3.
    pub tier: i64,
    /// Indexes of its accounts: at least one.
    pub accounts: std::ops::Range<usize>,
}

pub struct Account {
    pub id: i64,
    pub customer: usize,
    pub broker: usize,
    pub tax_status: TaxStatus,
    pub balance_cents: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaxStatus {
    /// Gains are not taxed.
    Exempt = 0,
    /// Gains are taxed, later and elsewhere.
    Deferred = 1,
    /// The house withholds tax on gains.
    Withheld = 2,
}

pub struct Broker {
    pub name: String,
    pub trades: i64,
    pub commission_cents: i64,
}

impl People {
    /// Draws all people and loads the customers; accounts and brokers wait for their totals.
    pub fn load_customers(loader: &Loader, part: &SamplePart, count: i64) -> Result<People> {
        let mut rng = Rng::stream(part.seed, "customer", part.first_id as u64);
        let brokers = (0..count / 100 + 2)
            .map(|_| Broker {
                name: Person::draw(&mut rng).full_name(),
                trades: 0,
                commission_cents: 0,
            })
            .collect();
        let mut people = People {
            customers: Vec::new(),
            accounts: Vec::new(),
            brokers,
            first_id: part.first_id,
        };
        let mut table = loader.table("customer", 15)?;
        let mut born = String::new();
        for id in part.first_id..part.first_id + count {
            let (person, home) = (Person::draw(&mut rng), Home::draw(&mut rng));
            let tier = rng.pick(&[1, 2, 2, 2, 3]);
            let (tax_id, phone) = (names::tax_id(&mut rng), names::phone(&mut rng));
            let email = person.email(&mut rng);
            born.clear();
            calendar::push_date(&mut born, rng.between(-14_000, 12_000));
            table.row(&[
                &id,
                &tax_id,
                &"ACTV",
                &person.last,
                &person.first,
                &person.middle,
                &person.gender,
                &tier,
                &born,
                &home.street,
                &home.city,
                &home.state,
                &home.zip,
                &phone,
                &email,
            ])?;
            people.add(&mut rng, id, person.full_name(), tier);
        }
        Ok(people)
    }

    fn add(&mut self, rng: &mut Rng, id: i64, name: String, tier: i64) {
        let first = self.accounts.len();
        for n in 0..rng.between(1, ACCOUNTS_MAX) {
            self.accounts.push(Account {
                id: id * 10 + n,
                customer: self.customers.len(),
                broker: rng.below(self.brokers.len() as u64) as usize,
                tax_status: rng.pick(&[
                    TaxStatus::Exempt,
                    TaxStatus::Deferred,
                    TaxStatus::Withheld,
                ]),
                // Deposits are whole thousands; the cents come from trading.
                balance_cents: rng.between(200, 4_000) * 100_000,
            });
        }
        self.customers.push(Customer {
            name,
            tier,
            accounts: first..self.accounts.len(),
        });
    }

    /// Loads brokers and accounts as the trades have left them.
    pub fn load_accounts(&self, loader: &Loader) -> Result<()> {
        let mut table = loader.table("broker", 5)?;
        for (id, broker) in (self.first_id..).zip(&self.brokers) {
            let commission = money(broker.commission_cents);
            table.row(&[&id, &"ACTV", &broker.name, &broker.trades, &commission])?;
        }
        let mut table = loader.table("customer_account", 6)?;
        for account in &self.accounts {
            let customer = &self.customers[account.customer];
            let name = format!(
                "{} {}",
                customer.name,
                ACCOUNT_NAMES[(account.id % 10) as usize]
            );
            table.row(&[
                &account.id,
                &(self.first_id + account.broker as i64),
                &(self.first_id + account.customer as i64),
                &name,
                &(account.tax_status as i64),
                &money(account.balance_cents),
            ])?;
        }
        Ok(())
    }
}
