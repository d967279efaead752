//! The limits that held, in words.
//!
//! Invariants
//! - Rounds that do not agree are called mixed, with how many had which limit; no round stands for the others.
//! - A sentence names every backup that it is about. Where no limit is known there is none: a verdict is not shown.
//!
//! Leaves to others: finding the limit of a run (`longshore-pipeline`).

use longshore_pipeline::Limit;

/// The limit of a backup's rounds; `None`: there were none.
pub fn of_rounds(limits: impl IntoIterator<Item = Limit>) -> Option<String> {
    let mut counted: Vec<(Limit, usize)> = Vec::new();
    for limit in limits {
        match counted.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, count)) => *count += 1,
            None => counted.push((limit, 1)),
        }
    }
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match counted.as_slice() {
        [] => None,
        [(limit, _)] => Some(limit.text().to_owned()),
        several => {
            let each = several.iter().map(|(limit, count)| {
                let text = limit.text();
                let short = text.split(" (").next().unwrap_or(text);
                format!("{short} in {count}")
            });
            Some(format!("mixed: {}", each.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// One sentence for backups of these labels and limits; `None`: there are none.
pub fn sentence(held: &[(String, String)]) -> Option<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (label, limit) in held {
        match groups.iter_mut().find(|(known, _)| known == limit) {
            Some((_, labels)) => labels.push(label),
            None => groups.push((limit, vec![label])),
        }
    }
    match groups.as_slice() {
        [] => None,
        [(limit, labels)] if labels.len() > 1 => {
            Some(format!("Which limit held: everywhere {limit}."))
        }
        several => {
            let each = several.iter().map(|(limit, labels)| {
                let labels: Vec<String> = labels.iter().map(|l| format!("\"{l}\"")).collect();
                format!("{limit} at {}", labels.join(", "))
            });
            let each: Vec<String> = each.collect();
            Some(format!("Which limit held: {}.", each.join("; ")))
        }
    }
}

/// The limits along a curve over BUFFERCOUNT: `the source (reading) at 1 to 4, the CPUs at 8 to 64`. Places are sorted
/// here.
pub fn along(mut places: Vec<(usize, String)>) -> String {
    places.sort_by_key(|(buffers, _)| *buffers);
    let mut runs: Vec<(String, usize, usize)> = Vec::new();
    for (buffers, limit) in places {
        match runs.last_mut() {
            Some((known, _, to)) if *known == limit => *to = buffers,
            _ => runs.push((limit, buffers, buffers)),
        }
    }
    let run = |(limit, from, to): &(String, usize, usize)| match from == to {
        true => format!("{limit} at {from}"),
        false => format!("{limit} at {from} to {to}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

/// One sentence for curves over BUFFERCOUNT, each with its name and the limits at its places; `None`: no limit is known.
pub fn over_curves(curves: &[(String, Vec<(usize, String)>)]) -> Option<String> {
    let mut all = curves.iter().flat_map(|(_, places)| places);
    let (_, limit) = all.next()?;
    if all.all(|(_, other)| other == limit) {
        return Some(format!(
            "Which limit held at which BUFFERCOUNT: everywhere {limit}."
        ));
    }
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    // A curve without a measurement has no limit to name.
    for (name, places) in curves.iter().filter(|(_, places)| !places.is_empty()) {
        let told = along(places.clone());
        match groups.iter_mut().find(|(known, _)| *known == told) {
            Some((_, names)) => names.push(name),
            None => groups.push((told, vec![name])),
        }
    }
    let group = |(told, names): &(String, Vec<&str>)| format!("{}: {told}", names.join(" / "));
    let groups: Vec<String> = groups.iter().map(group).collect();
    Some(format!(
        "Which limit held at which BUFFERCOUNT: {}.",
        groups.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_disagree_are_mixed_and_the_last_one_does_not_decide() {
        use Limit::{Cpu, Source, Target};
        assert_eq!(of_rounds([]), None);
        assert_eq!(
            of_rounds([Target, Target]).as_deref(),
            Some("the target (writing)")
        );
        assert_eq!(
            of_rounds([Cpu, Source, Cpu]).as_deref(),
            Some("mixed: the CPUs in 2, the source in 1")
        );
    }

    #[test]
    fn a_sentence_names_every_backup_once() {
        let pair = |label: &str, limit: &str| (label.to_owned(), limit.to_owned());
        let held = [
            pair("1 device", "the target"),
            pair("4 devices, 4 volumes", "the CPUs"),
            pair("4 devices, 1 volume", "the target"),
        ];
        assert_eq!(
            sentence(&held).unwrap(),
            "Which limit held: the target at \"1 device\", \"4 devices, 1 volume\"; the CPUs at \"4 devices, 4 volumes\"."
        );
        let same = [pair("a", "the CPUs"), pair("b", "the CPUs")];
        assert_eq!(
            sentence(&same).unwrap(),
            "Which limit held: everywhere the CPUs."
        );
        assert_eq!(sentence(&[]), None);
    }

    #[test]
    fn a_curve_is_told_in_runs_of_one_limit() {
        let place = |n: usize, limit: &str| (n, limit.to_owned());
        let places = vec![
            place(8, "the CPUs"),
            place(1, "the source"),
            place(4, "the source"),
            place(64, "the CPUs"),
            place(70, "the target"),
        ];
        assert_eq!(
            along(places),
            "the source at 1 to 4, the CPUs at 8 to 64, the target at 70"
        );
    }

    #[test]
    fn curves_with_the_same_limits_are_told_together() {
        let curve = |name: &str, places: &[(usize, &str)]| {
            let places = places.iter().map(|(n, limit)| (*n, (*limit).to_owned()));
            (name.to_owned(), places.collect::<Vec<_>>())
        };
        let rising = [(1, "the source"), (8, "the CPUs")];
        let curves = [
            curve("to NUL with 1 MiB", &rising),
            curve("to one file with 1 MiB", &[(1, "the target")]),
            curve("to NUL with 4 MiB", &rising),
        ];
        assert_eq!(
            over_curves(&curves).unwrap(),
            "Which limit held at which BUFFERCOUNT: to NUL with 1 MiB / to NUL with 4 MiB: the source at 1, the CPUs at 8; \
             to one file with 1 MiB: the target at 1."
        );
        let same = [
            curve("a", &[(1, "the CPUs"), (2, "the CPUs")]),
            curve("b", &[(1, "the CPUs")]),
        ];
        assert_eq!(
            over_curves(&same).unwrap(),
            "Which limit held at which BUFFERCOUNT: everywhere the CPUs."
        );
    }

    #[test]
    fn without_a_limit_no_verdict_is_shown_and_a_curve_without_one_is_not_named() {
        let curve = |name: &str, places: &[(usize, String)]| (name.to_owned(), places.to_vec());
        assert_eq!(over_curves(&[]), None);
        assert_eq!(over_curves(&[curve("a", &[]), curve("b", &[])]), None);
        let limits = [(1, "the source".to_owned()), (8, "the CPUs".to_owned())];
        assert_eq!(
            over_curves(&[curve("a", &[]), curve("b", &limits)]).unwrap(),
            "Which limit held at which BUFFERCOUNT: b: the source at 1, the CPUs at 8."
        );
    }
}
