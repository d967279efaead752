//! Goal: every figure that a running cache reports is explained on its page, every explanation is of a figure, and
//! Prometheus can read the figures.
//! Method: the reports of a cache on a simulated disk are compared with `docs/cache-daemon.md`, and read by a parser of
//! Prometheus' text format that is written here from its documentation.
//! Not covered: whether each figure counts the right thing, except for a few sums.

use std::collections::{BTreeMap, BTreeSet};

use longshore_blockcache::CachedBackend;
use longshore_policy::policy::Reason;
use serde_json::Value;

use crate::{LINE, Random, disk, settings, start};

/// A cached backend that has done some of everything.
fn worked() -> CachedBackend {
    let disk = disk(1, 640, 20, 16 << 10);
    let (cached, _) = start(&disk, settings("aware")).unwrap();
    let mut random = Random(1);
    for _ in 0..500 {
        let offset = random.below(600) * LINE as u64;
        match random.below(4) {
            0 => cached.write(&[1; LINE], offset, false).unwrap(),
            _ => cached.read(&mut [0; 2 * LINE], offset).unwrap(),
        }
    }
    cached.flush().unwrap();
    cached
}

/// The names in the first column of the page's table of counters, and the text after it.
fn explained() -> (BTreeSet<String>, String) {
    let page = include_str!("../../../../../docs/cache-daemon.md");
    let section = page.split("## Status and counters").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| {
        let column = row.split(" | ").next().unwrap();
        column.split('`').skip(1).step_by(2).map(str::to_owned)
    });
    (names.collect(), section.to_owned())
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn every_figure_is_explained_and_every_explanation_is_of_a_figure() {
    let cached = worked();
    let (explained, text) = explained();
    let mut told = keys(&serde_json::to_value(cached.status()).unwrap());
    told.append(&mut keys(&serde_json::to_value(cached.counters()).unwrap()));
    assert_eq!(told, explained);
    for reason in Reason::ALL {
        let name = format!("`{}`", reason.name());
        assert!(text.contains(&name), "{name} is not explained");
    }
    // Prometheus' names are derived from these.
    let metrics = families(
        &cached
            .status()
            .prometheus(&cached.counters(), &cached.reasons()),
    );
    for name in metrics.keys() {
        let plain = name.strip_prefix("longshore_cache_").unwrap();
        let plain = plain.strip_suffix("_total").unwrap_or(plain);
        let latency = plain.replace("_seconds", "_latency");
        let known = [plain, &latency].iter().any(|name| told.contains(*name));
        assert!(known || text.contains(&format!("`{name}`")), "{name}");
    }
}

#[derive(Default, Debug)]
struct Family {
    help: bool,
    kind: String,
    /// Suffix and labels, and value, in their order.
    samples: Vec<(String, String, f64)>,
}

/// Reads the text format by the rules of its documentation, without our code.
fn families(text: &str) -> BTreeMap<String, Family> {
    let name_is_right = |name: &str| {
        let first = name.chars().next().unwrap();
        let right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        !first.is_ascii_digit() && name.chars().all(right)
    };
    let mut all: BTreeMap<String, Family> = BTreeMap::new();
    let mut present = String::new();
    assert!(text.ends_with('\n'), "the last line must end");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            let [what, name, rest] = words[..] else {
                panic!("{line:?}");
            };
            assert!(name_is_right(name) && !rest.trim().is_empty(), "{line:?}");
            if name != present {
                assert!(!all.contains_key(name), "{name} is there twice");
            }
            present = name.to_owned();
            let family = all.entry(present.clone()).or_default();
            assert!(family.samples.is_empty(), "{line:?} after its samples");
            match what {
                "HELP" => assert!(!std::mem::replace(&mut family.help, true), "{line:?}"),
                "TYPE" => {
                    assert!(family.kind.is_empty(), "{line:?}");
                    assert!(
                        ["counter", "gauge", "histogram"].contains(&rest),
                        "{line:?}"
                    );
                    family.kind = rest.to_owned();
                }
                _ => panic!("{line:?}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value = match value {
            "+Inf" => f64::INFINITY,
            value => value.parse().unwrap(),
        };
        let (name, labels) = match series.split_once('{') {
            None => (series, ""),
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
        };
        if !labels.is_empty() {
            let (label, text) = labels.split_once('=').unwrap();
            let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
            assert!(name_is_right(label) && !text.unwrap().contains(['"', '\\']));
        }
        let suffix = name
            .strip_prefix(&present)
            .unwrap_or_else(|| panic!("{line:?} is not of {present}"));
        let family = all.get_mut(&present).unwrap();
        let sample = (suffix.to_owned(), labels.to_owned(), value);
        let same = |s: &&(String, String, f64)| (&s.0, &s.1) == (&sample.0, &sample.1);
        assert!(
            !family.samples.iter().any(|s| same(&s)),
            "{line:?} is there twice"
        );
        family.samples.push(sample);
    }
    all
}

#[test]
fn prometheus_gets_its_own_format_and_the_same_figures() {
    let cached = worked();
    let (status, counters) = (cached.status(), cached.counters());
    let families = families(&status.prometheus(&counters, &cached.reasons()));
    for (name, family) in &families {
        assert!(
            family.help && !family.kind.is_empty() && !family.samples.is_empty(),
            "{name}"
        );
        match &*family.kind {
            "counter" => {
                assert!(name.ends_with("_total"), "{name}");
                assert!(
                    family
                        .samples
                        .iter()
                        .all(|(suffix, _, v)| suffix.is_empty() && *v >= 0.0)
                );
            }
            "gauge" => assert_eq!(family.samples.len(), 1, "{name}"),
            _ => {
                let [buckets @ .., sum, count] = &family.samples[..] else {
                    panic!("{name}");
                };
                assert_eq!((&*sum.0, &*count.0), ("_sum", "_count"), "{name}");
                let bound = |labels: &str| {
                    let bound = labels
                        .strip_prefix("le=\"")
                        .unwrap()
                        .strip_suffix('"')
                        .unwrap();
                    match bound {
                        "+Inf" => f64::INFINITY,
                        bound => bound.parse().unwrap(),
                    }
                };
                let of: Vec<(f64, f64)> = buckets
                    .iter()
                    .map(|(suffix, labels, value)| {
                        assert_eq!(suffix, "_bucket", "{name}");
                        (bound(labels), *value)
                    })
                    .collect();
                assert!(of.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}");
                assert_eq!(of.last(), Some(&(f64::INFINITY, count.2)), "{name}");
            }
        }
    }
    let value = |name: &str| families[&format!("longshore_cache_{name}")].samples[0].2;
    assert_eq!(value("held_bytes"), status.held_bytes as f64);
    assert_eq!(value("attached"), 1.0);
    assert_eq!(value("saved_seconds"), status.saved_us / 1e6);
    for (name, _, count) in counters.each() {
        assert_eq!(value(&format!("{name}_total")), count as f64, "{name}");
    }
    let reads = &families["longshore_cache_read_seconds"].samples;
    assert_eq!(reads.last().unwrap().2, counters.reads as f64);
    let decided = &families["longshore_cache_decisions_total"].samples;
    assert_eq!(decided.len(), Reason::ALL.len());
    let decided: f64 = decided.iter().map(|(_, _, count)| count).sum();
    // Each mebibyte of a request is decided by itself. Of these seeded reads, three go over the end of one.
    let divided = 3.0;
    assert_eq!(decided, (counters.reads + counters.writes) as f64 + divided);
}
