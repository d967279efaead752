//! The machine of a study: the platform table of white papers.
//!
//! Invariants
//! - A fact that cannot be found is left out or called unknown; no study fails for it.
//! - Libraries and devices that variables replace are named, so that no headline stands for the machine's own.
//!
//! Leaves to others: reading the facts (`longshore-facts`), and showing them (`report/`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_codec::engines;
use longshore_facts as facts;
use longshore_pipeline::{RunContext, SourceSpec};

/// How long the machine is watched for other work.
const WATCH: Duration = Duration::from_millis(500);

/// Variables that select other libraries or devices than the machine's own.
const OVERRIDES: [&str; 5] = [
    "LONGSHORE_SYSFS",
    "LONGSHORE_QATZIP",
    "LONGSHORE_CUDA",
    "LONGSHORE_NVCOMP",
    "LONGSHORE_ISAL",
];
/// The row of the record that decides about a headline.
pub const OVERRIDDEN: &str = "Overridden";
/// The row of the program's release, to which a program adds the commit that it was built of.
pub const RELEASE: &str = "Longshore";
pub const OTHERS: &str = "CPU of others before";

/// If other programs use more than this share of the machine's CPU, figures must not be quoted.
const BUSY_PERCENT: f64 = 10.0;

/// The value of a row of a record.
pub fn row<'a>(record: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let row = record.iter().find(|(n, _)| n == name);
    row.map(|(_, value)| value.as_str())
}

/// How busy other programs kept the machine, if it was too busy.
pub fn busy_percent(record: &[(String, String)]) -> Option<f64> {
    let percent = row(record, OTHERS)?.strip_suffix(" %")?.parse().ok();
    percent.filter(|percent| *percent > BUSY_PERCENT)
}

/// The overrides that are set, as one line; empty if there are none.
fn overrides(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> String {
    let set = OVERRIDES.iter().filter_map(|name| {
        let value = var(name).filter(|value| !value.is_empty())?;
        Some(format!("{name}={}", value.to_string_lossy()))
    });
    set.collect::<Vec<_>>().join(", ")
}

/// Name and value, for the head of a report.
pub fn record(context: &RunContext, dirs: &[PathBuf]) -> Vec<(String, String)> {
    let mut record = Vec::new();
    let mut put = |name: &str, value: String| record.push((name.to_owned(), value));
    let cores = facts::cores();
    let model = facts::cpu_model().unwrap_or_else(|| "unknown CPU".into());
    put("Processor", format!("{model}, {cores} usable cores"));
    if let Ok(bytes) = facts::memory_bytes() {
        put("Memory", format!("{:.1} GB", bytes as f64 / 1e9));
    }
    put("Kernel", facts::kernel());
    for dir in dirs {
        if let Some(storage) = storage(dir) {
            put(&format!("Storage of {}", dir.display()), storage);
        }
    }
    let found: Vec<_> = engines()
        .into_iter()
        .filter(|e| e.absent.is_none())
        .map(|e| match e.instructions {
            "-" => format!("{} {}", e.name, e.version),
            wide => format!("{} {} ({wide})", e.name, e.version),
        })
        .collect();
    put("Engines", found.join(", "));
    let overrides = overrides(|name| std::env::var_os(name));
    if !overrides.is_empty() {
        put(OVERRIDDEN, overrides);
    }
    put(RELEASE, env!("CARGO_PKG_VERSION").to_owned());
    if let Some(percent) = others_percent(context) {
        put(OTHERS, format!("{percent:.0} %"));
    }
    record
}

/// The machine as a table of hardware has it. A fact that cannot be found is left out.
pub fn hardware(dirs: &[PathBuf]) -> Vec<(&'static str, String)> {
    let mut found = vec![
        (
            "cpu",
            facts::cpu_model().unwrap_or_else(|| "unknown CPU".into()),
        ),
        ("kernel", facts::kernel()),
    ];
    if let Some(layout) = facts::processor_layout() {
        let all = layout
            .cores_per_socket
            .map(|n| n as usize * layout.sockets.max(1));
        found.push(("sockets", layout.sockets.to_string()));
        found.extend(layout.cores_per_socket.map(|n| ("cores", n.to_string())));
        let on = |all: usize| if layout.logical > all { "on" } else { "off" };
        found.extend(all.map(|all| ("hyperthreading", on(all).to_owned())));
        found.push(("logical", layout.logical.to_string()));
        found.extend(layout.microcode.map(|code| ("microcode", code)));
        found.extend(layout.mhz.map(|mhz| ("clock", format!("{mhz} MHz now"))));
    }
    let nodes = facts::numa_nodes();
    found.extend(nodes.map(|n| ("numa", n.to_string())));
    found.extend(facts::governor().map(|governor| ("governor", governor)));
    let memory = facts::memory_bytes().ok();
    found.extend(memory.map(|bytes| ("memory", format!("{:.1} GB", bytes as f64 / 1e9))));
    let drives: Vec<String> = dirs.iter().filter_map(|dir| storage(dir)).collect();
    found.push(("disk", drives.join(", ")));
    found
}

fn storage(dir: &Path) -> Option<String> {
    let mount = facts::mount_of(dir).ok()?;
    let (kind, source) = (
        mount.kind.to_string_lossy(),
        mount.source.to_string_lossy().into_owned(),
    );
    let model = facts::drive_model(mount.device);
    let model = model.map_or_else(String::new, |model| format!(" ({model})"));
    Some(format!("{kind} on {source}{model}"))
}

/// The machine's load without this process.
fn others_percent(context: &RunContext) -> Option<f64> {
    let before = facts::cpu_times().ok()?;
    context.clock.sleep(WATCH);
    Some(100.0 * facts::cpu_times().ok()?.busy_share_since(&before))
}

/// A source as people name it.
pub fn name_of(source: &SourceSpec) -> String {
    match source {
        SourceSpec::Sqlite(path) => format!("sqlite:{}", path.display()),
        SourceSpec::Files(paths) => {
            let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
            format!("files:{}", paths.join(" "))
        }
        SourceSpec::Postgres(server) => server.for_people(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_devices_that_were_overridden_are_named() {
        let set = |name: &str| match name {
            "LONGSHORE_SYSFS" => Some("/tmp/sys".into()),
            "LONGSHORE_ISAL" => Some("off".into()),
            "LONGSHORE_CUDA" => Some("".into()),
            _ => None,
        };
        assert_eq!(
            overrides(set),
            "LONGSHORE_SYSFS=/tmp/sys, LONGSHORE_ISAL=off"
        );
        assert_eq!(overrides(|_| None), "");
    }
}
