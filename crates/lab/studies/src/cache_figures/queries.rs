//! TPC-H's queries with all data on one device: the requests were recorded, the times of the devices are modelled.
//!
//! Invariants
//! - Each heading and each caption says what was recorded and what is modelled.
//! - Any two devices answer the same requests, so a difference is theirs.
//!
//! Leaves to others: the recording (`tpch.rs`), and the devices (`devices.rs`).

use anyhow::Result;
use longshore_policy::model::Profile;

use super::devices::{Devices, FiguresSpec, published};
use super::tpch::{Question, recorded};
use crate::report::{Axis, Chart, Column, Section, Series, Table};

/// Of each query, in a trial run.
const QUICK_REQUESTS: u64 = 2000;
/// The only queries that the publication has faster on the Optane.
const PUBLISHED_ON_OPTANE: [&str; 2] = ["Q13", "Q16"];

/// A query of TPC-H with all data on one device.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub name: String,
    request_count: u64,
    bytes: u64,
    cpu_s: f64,
    /// Seconds of reading, on the fast device and on the slow one.
    io_s: [f64; 2],
    /// Commands after the split at each device's largest.
    commands: [u64; 2],
}

impl Asked {
    /// Reading, then computing: seconds on the fast device and on the slow one.
    fn response_s(&self) -> [f64; 2] {
        self.io_s.map(|io_s| io_s + self.cpu_s)
    }

    /// By how many percent it takes longer on the fast device; below 0: it is faster there.
    pub fn slower_percent(&self) -> f64 {
        let [fast, slow] = self.response_s();
        100.0 * (fast / slow - 1.0)
    }

    /// Commands of the fast device for each of the slow one.
    pub fn commands_ratio(&self) -> f64 {
        self.commands[0] as f64 / self.commands[1].max(1) as f64
    }
}

/// The recorded queries, simulated on both devices.
fn asked(spec: &FiguresSpec, devices: &Devices<'_>) -> Result<Vec<Asked>> {
    let both = [devices.fast, devices.slow];
    let one = |question: Question| {
        let question = match spec.quick {
            true => question.shortened(QUICK_REQUESTS),
            false => question,
        };
        let on = |device: &Profile| question.io_s(device, spec.seed);
        Ok(Asked {
            request_count: question.request_count(),
            bytes: question.bytes(),
            cpu_s: question.cpu_s,
            io_s: [on(both[0])?, on(both[1])?],
            commands: both.map(|device| question.commands(u64::from(device.command_bytes))),
            name: question.name,
        })
    };
    recorded()?.into_iter().map(one).collect()
}

/// The number of queries that are faster on the slow device, and by how much.
pub(super) fn told(asked: &[Asked], devices: &Devices<'_>) -> String {
    let slower = asked.iter().map(Asked::slower_percent);
    let worst = slower.clone().fold(f64::NEG_INFINITY, f64::max);
    let count = slower.filter(|percent| *percent > 0.0).count();
    let (fast, slow) = (devices.fast_name, devices.slow_name);
    let up_to = match count {
        0 => String::new(),
        _ => format!(": there the {fast} takes up to {worst:.0} % longer"),
    };
    format!(
        "Of TPC-H's {} queries, as PostgreSQL reads for them, {count} are faster with all data on the {slow}{up_to}.",
        asked.len()
    )
}

/// The queries on the published devices whose sign is not the published one.
pub(crate) fn signs(asked: &[Asked]) -> String {
    let is_on_optane = |one: &Asked| one.slower_percent() < 0.0;
    let is_published = |one: &Asked| PUBLISHED_ON_OPTANE.contains(&one.name.as_str());
    let names = |of: &dyn Fn(&Asked) -> bool| {
        let names = asked.iter().filter(|one| of(one));
        names.map(|one| one.name.as_str()).collect::<Vec<_>>()
    };
    let ours = names(&is_on_optane);
    let others = names(&|one| is_on_optane(one) != is_published(one));
    format!(
        "Published, {} alone are faster on the Optane; modelled here, {}: the sign {}.",
        PUBLISHED_ON_OPTANE.join(" and "),
        match ours.len() {
            0 => "none is".to_owned(),
            1 => format!("{} is", ours[0]),
            _ => format!("{} are", ours.join(", ")),
        },
        match others.len() {
            0 => "is the published one for all".to_owned(),
            _ => format!("differs for {}", others.join(", ")),
        }
    )
}

/// Each query of TPC-H, in order, with all data on one of the published devices.
pub(crate) fn queries(spec: &FiguresSpec) -> Result<(Section, Vec<Asked>)> {
    let (mut section, asked) = queries_on(spec, &published()?)?;
    section.prose.push(
        "Published: 20 of 22 are faster on the flash, by up to 23 %; 13 and 16 are at most 3 % slower there.".into(),
    );
    Ok((section, asked))
}

/// The same on any two devices.
pub(super) fn queries_on(
    spec: &FiguresSpec,
    devices: &Devices<'_>,
) -> Result<(Section, Vec<Asked>)> {
    let asked = asked(spec, devices)?;
    let section = Section {
        heading: "Queries with all data on one device (requests recorded, times modelled)".into(),
        prose: vec![
            "The requests were recorded below PostgreSQL 15.20 (TPC-H at scale 1, cold, one process, read-ahead of 1 MiB), and so were the \
             CPU times: once, on 29 November 2026, on a virtual machine with two CPUs (AMD EPYC, Zen 4), while other programs ran. How \
             long a device takes for these requests, in their order and with as many in flight as there were, is modelled. Response \
             time is reading, then computing: a server that computes while it reads is faster on both. The recording's disk answered \
             as the model of a Samsung 970 Pro does, eight times slower, and its page cache was not limited: what is read twice came \
             from the disk once."
                .into(),
        ],
        table: Some(table(&asked, devices)),
        charts: charts(&asked, devices),
    };
    Ok((section, asked))
}

fn table(asked: &[Asked], devices: &Devices<'_>) -> Table {
    let (fast, slow) = (devices.fast_name, devices.slow_name);
    let row = |one: &Asked| {
        let [on_fast, on_slow] = one.response_s();
        vec![
            one.name.as_str().into(),
            (one.request_count as f64).into(),
            (one.bytes as f64 / 1e6).into(),
            one.commands_ratio().into(),
            one.cpu_s.into(),
            one.io_s[0].into(),
            one.io_s[1].into(),
            on_fast.into(),
            on_slow.into(),
            one.slower_percent().into(),
        ]
    };
    Table {
        columns: vec![
            Column::text("Query"),
            Column::number("Requests, recorded", "", 0),
            Column::number("Read and written, recorded", "MB", 0),
            Column::number(&format!("Commands, {fast} by {slow}, modelled"), "×", 2),
            Column::number("CPU, recorded", "s", 2),
            Column::number(&format!("I/O on {fast}, modelled"), "s", 2),
            Column::number(&format!("I/O on {slow}, modelled"), "s", 2),
            Column::number(&format!("{fast}, modelled"), "s", 2),
            Column::number(&format!("{slow}, modelled"), "s", 2),
            Column::number(&format!("Slower on {fast}, modelled"), "%", 1),
        ],
        row_values: asked.iter().map(row).collect(),
    }
}

fn charts(asked: &[Asked], devices: &Devices<'_>) -> Vec<Chart> {
    let (fast, slow) = (devices.fast_name, devices.slow_name);
    let chart = |title: &str, y: Axis, series: Vec<Series>| {
        let names = asked.iter().map(|one| one.name.clone()).collect();
        Chart::bars(title, "Query", names, y, series)
    };
    // The names are those of the table's columns.
    let values = |of: &dyn Fn(&Asked) -> f64| asked.iter().map(|one| Some(of(one))).collect();
    vec![
        chart(
            "Response time: reading modelled, computing recorded",
            Axis::new("Response time", "s"),
            vec![
                Series::new(
                    &format!("{fast}, modelled"),
                    values(&|one| one.response_s()[0]),
                ),
                Series::new(
                    &format!("{slow}, modelled"),
                    values(&|one| one.response_s()[1]),
                ),
            ],
        ),
        chart(
            &format!("By how much a query is slower on the {fast} (modelled)"),
            Axis::new("Slower", "%"),
            vec![Series::new(
                &format!("Slower on {fast}, modelled"),
                values(&Asked::slower_percent),
            )],
        ),
        chart(
            &format!("Commands of recorded requests after the modelled split, {fast} by {slow}"),
            Axis::new("Commands", "×"),
            vec![Series::new(
                &format!("Commands, {fast} by {slow}, modelled"),
                values(&Asked::commands_ratio),
            )],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_of(name: &str, io_s: [f64; 2]) -> Asked {
        Asked {
            name: name.into(),
            request_count: 1,
            bytes: 1,
            cpu_s: 1.0,
            io_s,
            commands: [1, 1],
        }
    }

    #[test]
    fn the_headline_names_the_queries_whose_sign_is_not_the_published_one() {
        let of = |optane_wins: &[&str]| {
            let one = |n: usize| {
                let name = format!("Q{n}");
                let wins = optane_wins.contains(&name.as_str());
                asked_of(&name, if wins { [1.0, 2.0] } else { [2.0, 1.0] })
            };
            signs(&(1..=22).map(one).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&["Q13", "Q16"]),
            "Published, Q13 and Q16 alone are faster on the Optane; modelled here, Q13, Q16 are: the sign is the published one for all."
        );
        assert_eq!(
            of(&["Q16", "Q20"]),
            "Published, Q13 and Q16 alone are faster on the Optane; modelled here, Q16, Q20 are: the sign differs for Q13, Q20."
        );
        let none = of(&[]);
        assert!(
            none.contains("modelled here, none is: the sign differs for Q13, Q16."),
            "{none}"
        );
    }

    #[test]
    fn the_queries_are_told_of_the_devices_that_are_asked_for() {
        let published = published().unwrap();
        let devices = Devices {
            fast_name: "a.model",
            slow_name: "b.model",
            ..published
        };
        let all = [asked_of("Q1", [2.0, 1.0]), asked_of("Q2", [1.0, 1.0])];
        assert_eq!(
            told(&all, &devices),
            "Of TPC-H's 2 queries, as PostgreSQL reads for them, 1 are faster with all data on the b.model: there the a.model takes \
             up to 50 % longer."
        );
        let none = told(&all[1..], &devices);
        assert!(
            none.contains("Of TPC-H's 1 queries")
                && none.ends_with("0 are faster with all data on the b.model."),
            "{none}"
        );
    }
}
