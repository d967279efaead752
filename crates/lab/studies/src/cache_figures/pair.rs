//! The figures of any two devices, built-in profiles or calibrated models: where each answers sooner, how long TPC-H's queries take
//! on each, and what policies make of both.
//!
//! Invariants
//! - Times are modelled and the requests of the queries recorded; each heading and each caption says so.
//! - Nothing is set next to the publication here: it had two other devices.
//!
//! Leaves to others: the simulations (`policies.rs`, `map.rs`, `queries.rs`), and measuring a device (`longshore_policy::calibrate`).

use anyhow::Result;
use longshore_policy::model::{Op, Profile, ProfileTrust};

use super::devices::{Devices, FiguresSpec};
use super::map::{self, RatioLine};
use super::policies::policies;
use super::queries;
use crate::report::Report;

/// Two devices, and how they are called in the report.
#[derive(Debug, Clone)]
pub struct PairSpec {
    pub fast: Profile,
    pub slow: Profile,
    pub fast_name: String,
    pub slow_name: String,
}

impl PairSpec {
    fn devices(&self) -> Devices<'_> {
        Devices {
            fast: &self.fast,
            slow: &self.slow,
            fast_name: &self.fast_name,
            slow_name: &self.slow_name,
        }
    }
}

/// Runs all simulations of a pair. Calls `on_step` with one line for each part.
pub fn pair_figures(pair: &PairSpec, spec: &FiguresSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let devices = pair.devices();
    let (of_reads, reads) = map::latencies(spec, &devices, Op::Read);
    on_step("latencies of reads");
    let (mut of_writes, _) = map::latencies(spec, &devices, Op::Write);
    let without = [&pair.fast, &pair.slow].map(writes_as_it_reads);
    let without = [&pair.fast_name, &pair.slow_name]
        .into_iter()
        .zip(without)
        .filter_map(|(name, is)| is.then_some(name.as_str()));
    let without: Vec<&str> = without.collect();
    if !without.is_empty() {
        of_writes.prose.push(format!(
            "No writes were measured of {}: there they take as long as reads.",
            without.join(" and of ")
        ));
    }
    on_step("latencies of writes");
    let (queries, asked) = queries::queries_on(spec, &devices)?;
    on_step("queries");
    let policies = policies(spec, &devices)?;
    on_step("policies");
    let facts = |name: &str, profile: &Profile| {
        let standing = match profile.standing {
            ProfileTrust::Calibrated => "calibrated",
            ProfileTrust::Provisional => "provisional: from data sheets",
        };
        let limits = match profile.byte_credit.or(profile.command_credit) {
            Some(_) => "; with a limit that a burst may exceed, whose credit is used up here",
            None => "",
        };
        (name.to_owned(), format!("{standing}{limits}"))
    };
    Ok(Report {
        title: format!(
            "{} and {}: where each is faster",
            pair.fast_name, pair.slow_name
        ),
        summary: summary(pair, &reads, &queries::told(&asked, &devices)),
        platform: vec![
            ("Devices".to_owned(), "models in virtual time".to_owned()),
            ("Queries".to_owned(), "TPC-H, recorded requests".to_owned()),
            ("Seed".to_owned(), spec.seed.to_string()),
            facts(&pair.fast_name, &pair.fast),
            facts(&pair.slow_name, &pair.slow),
        ],
        sections: vec![of_reads, of_writes, queries, policies],
    })
}

/// Devices within this ratio are alike.
const EVEN: f64 = 1.1;

/// As a file's model has it whose writes were not measured.
fn writes_as_it_reads(profile: &Profile) -> bool {
    Profile::named(profile.name).is_none()
        && profile.write_us == profile.read_us
        && profile.write_link == profile.read_link
        && profile.write_buffer.is_none()
}

fn summary(pair: &PairSpec, reads: &[RatioLine], queries: &str) -> String {
    let cells = reads.iter().flat_map(|(_, ratios)| ratios);
    let (all, fast_wins, slow_wins) = cells.fold((0, 0, 0), |(all, fast, slow), ratio| {
        let [fast_is, slow_is] = [*ratio > EVEN, *ratio < 1.0 / EVEN].map(usize::from);
        (all + 1, fast + fast_is, slow + slow_is)
    });
    let (fast, slow) = (&pair.fast_name, &pair.slow_name);
    format!(
        "Modelled, the queries from recorded requests. {fast} answers reads sooner in {fast_wins} of {all} cells of size and depth, {slow} in {slow_wins}; elsewhere they \
         are within 10 %. {queries} A cache gains where the first is faster; where it is not, a policy that sees sizes and queues sends the request to the other."
    )
}
