//! The machine of a study: the platform table of white papers.
//!
//! Invariants
//! - A fact that cannot be found is left out; no study fails for it.
//! - One short line stands for the machine in a head; all of its parts stand in a table.
//! - Libraries and devices that variables replace are named, so that no headline stands for the machine's own.
//!
//! Leaves to others: reading the facts (`longshore-facts`), and showing them (`report/`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_accel::EngineState;
use longshore_codec::engines;
use longshore_facts::{self as facts, Hardware};
use longshore_pipeline::{RunContext, SourceSpec};

use crate::heat::{SYSFS, sysfs};

/// How long the machine is watched for other work.
const WATCH: Duration = Duration::from_millis(500);

/// Variables that select other libraries or devices than the machine's own.
const OVERRIDES: [&str; 5] = [
    SYSFS,
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
const ACCELERATOR: &str = "Accelerator";
const STORAGE: &str = "Storage of";
/// The rows that describe the machine's parts, without its storage.
const PARTS: [&str; 16] = [
    "Processor",
    "Sockets",
    "Cores per socket",
    "Threads",
    "Hyperthreading",
    "NUMA nodes",
    "Clock",
    "Governor",
    "Turbo",
    "Microcode",
    "Memory",
    "Virtual machine",
    "Model",
    "Kernel",
    ACCELERATOR,
    "Engines",
];

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

/// Name and value, for the head of a report: a short line first, and the parts, which a page shows as a table
/// ([`is_part`]). `dirs` are those of sources and targets. They exist already: the file system of one that does not is left
/// out, because what it will lie on is not known.
pub fn record(context: &RunContext, dirs: &[PathBuf]) -> Vec<(String, String)> {
    let found = Hardware::read(Path::new("/proc"), &sysfs());
    let mut record = parts(&found, &facts::kernel(), facts::cores());
    let mut put = |name: &str, value: String| record.push((name.to_owned(), value));
    for dir in dirs {
        if let Some(storage) = storage(dir) {
            put(&format!("{STORAGE} {}", dir.display()), storage);
        }
    }
    for one in accelerators(context) {
        put(ACCELERATOR, one);
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

/// Whether a row of a record is a part of the machine, for which the short line stands in a head.
pub fn is_part(name: &str) -> bool {
    PARTS.contains(&name) || name.starts_with(STORAGE)
}

/// The machine by its parts. A part that is not known is left out.
fn parts(found: &Hardware, kernel: &str, usable: usize) -> Vec<(String, String)> {
    let cpu = found.cpu.clone().unwrap_or_else(|| "unknown CPU".into());
    let virtual_machine = match found.is_virtual {
        Some(true) => ", virtual machine",
        _ => "",
    };
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let memory = found.memory_bytes.map(gigabytes);
    let cpus = match usable {
        1 => "1 usable CPU".to_owned(),
        n => format!("{n} usable CPUs"),
    };
    let memory_short = memory
        .as_ref()
        .map_or_else(String::new, |m| format!(", {m}"));
    let mut rows = vec![(
        "Machine".to_owned(),
        format!("{cpu}, {cpus}{memory_short}, Linux {kernel}{virtual_machine}"),
    )];
    let mut put = |name: &str, value: Option<String>| {
        rows.extend(value.map(|value| (name.to_owned(), value)));
    };
    let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
    put("Processor", Some(cpu));
    put("Sockets", found.sockets.map(|n| n.to_string()));
    put(
        "Cores per socket",
        found.cores_per_socket.map(|n| n.to_string()),
    );
    put(
        "Threads",
        found
            .threads
            .map(|n| format!("{n}, of which this process can use {usable}")),
    );
    put("Hyperthreading", hyperthreading(found).map(on));
    put("NUMA nodes", found.numa_nodes.map(|n| n.to_string()));
    put("Clock", clock(found));
    put("Governor", found.governor.clone());
    put("Turbo", found.turbo.map(on));
    put("Microcode", found.microcode.clone());
    put(
        "Memory",
        memory.map(|size| match &found.memory_kind {
            Some(kind) => format!("{size} ({kind})"),
            None => size,
        }),
    );
    put(
        "Virtual machine",
        found
            .is_virtual
            .map(|is| if is { "yes" } else { "no" }.to_owned()),
    );
    put("Model", found.model.clone());
    put("Kernel", Some(format!("Linux {kernel}")));
    rows
}

/// Whether cores have more threads than one.
fn hyperthreading(found: &Hardware) -> Option<bool> {
    let cores = found.cores_per_socket? as usize * found.sockets?;
    Some(found.threads? > cores)
}

/// The clock now, and its limits.
fn clock(found: &Hardware) -> Option<String> {
    let one = |name: &str, mhz: Option<u64>| Some(format!("{name} {} MHz", mhz?));
    let known = [
        one("base", found.mhz_base),
        one("maximum", found.mhz_max),
        one("now", found.mhz_now),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The accelerators of a run with their versions, as far as they tell them: a library tells its own once it was tested.
fn accelerators(context: &RunContext) -> Vec<String> {
    let mut found: Vec<String> = context
        .accelerators
        .iter()
        .filter(|one| one.state().0 != EngineState::Absent)
        .map(|one| {
            let health = one.engine().health();
            let part = |name: &str, version: Option<String>| Some(format!("{name} {}", version?));
            let parts = [
                health.hardware,
                part("library", health.library_version),
                part("driver", health.driver_version),
                part("firmware", health.firmware_version),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("{}: {}", one.engine().caps().name, parts.join(", "))
        })
        .collect();
    // One device with an engine for each algorithm.
    found.dedup();
    if found.is_empty() && !context.accelerators.is_empty() {
        found.push("none that can be used".into());
    }
    found
}

/// The machine as a table of hardware has it. A fact that cannot be found is left out.
pub fn hardware(dirs: &[PathBuf]) -> Vec<(&'static str, String)> {
    let rows = parts(
        &Hardware::read(Path::new("/proc"), &sysfs()),
        &facts::kernel(),
        facts::cores(),
    );
    let keys = [
        ("cpu", "Processor"),
        ("sockets", "Sockets"),
        ("cores", "Cores per socket"),
        ("logical", "Threads"),
        ("hyperthreading", "Hyperthreading"),
        ("numa", "NUMA nodes"),
        ("clock", "Clock"),
        ("governor", "Governor"),
        ("turbo", "Turbo"),
        ("microcode", "Microcode"),
        ("memory", "Memory"),
        ("kernel", "Kernel"),
    ];
    let known = keys
        .iter()
        .filter_map(|(key, name)| Some((*key, row(&rows, name)?.to_owned())));
    let mut found: Vec<_> = known.collect();
    let mut drives: Vec<String> = dirs.iter().filter_map(|dir| storage(dir)).collect();
    drives.dedup();
    if !drives.is_empty() {
        found.push(("disk", drives.join("; ")));
    }
    found
}

/// The file system of a directory, with the drives below it where these are known.
fn storage(dir: &Path) -> Option<String> {
    let mount = facts::mount_of(dir).ok()?;
    let (kind, source) = (
        mount.kind.to_string_lossy(),
        mount.source.to_string_lossy().into_owned(),
    );
    let model = facts::drive_model(mount.device);
    let model = model.map_or_else(String::new, |model| format!(" ({model})"));
    // A file system without a device is told by its kind and its source.
    let drives = facts::drives_of(dir).ok();
    let drives = drives.filter(|_| Path::new(&source).starts_with("/dev"));
    let drives: Vec<String> = drives.into_iter().flatten().collect();
    let drives = match drives.as_slice() {
        [] => String::new(),
        [one] => format!(", drive {one}"),
        several => format!(", drives {}", several.join(", ")),
    };
    Some(format!("{kind} on {source}{model}{drives}"))
}

/// The machine's load without this process.
fn others_percent(context: &RunContext) -> Option<f64> {
    let before = facts::cpu_times().ok()?;
    context.clock.sleep(WATCH);
    Some(100.0 * facts::cpu_times().ok()?.busy_share_since(&before))
}

/// The directories of targets and of sources, each once: their file systems and drives belong to a record.
pub fn places<'a>(
    dirs: &[PathBuf],
    sources: impl IntoIterator<Item = &'a SourceSpec>,
) -> Vec<PathBuf> {
    let mut all = dirs.to_vec();
    for source in sources {
        match source {
            SourceSpec::Sqlite(path) => {
                all.extend(path.parent().map(|dir| match dir.as_os_str() {
                    none if none.is_empty() => PathBuf::from("."),
                    _ => dir.to_owned(),
                }))
            }
            SourceSpec::Files(paths) => all.extend(paths.iter().cloned()),
            SourceSpec::Postgres(_) => {}
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|dir| seen.insert(dir.clone()));
    all
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

    /// Directories that stand for `/proc` and `/sys`.
    fn pretended(files: &[(&str, &str)]) -> Hardware {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Hardware::read(&root.path().join("proc"), &root.path().join("sys"))
    }

    #[test]
    fn a_known_machine_has_all_parts_and_one_short_line() {
        let cpu = "sys/devices/system/cpu";
        let one = "model name : Xeon 8490H\nphysical id : 0\ncpu cores : 1\nmicrocode : 0x2b\ncpu MHz : 2900\n\
                   flags : fpu hypervisor\n";
        let found = pretended(&[
            (
                "proc/cpuinfo",
                &format!("processor : 0\n{one}\nprocessor : 1\n{one}"),
            ),
            ("proc/meminfo", "MemTotal: 16777216 kB\n"),
            ("sys/devices/system/node/online", "0\n"),
            (
                &format!("{cpu}/cpu0/cpufreq/scaling_governor"),
                "powersave\n",
            ),
            (&format!("{cpu}/cpu0/cpufreq/cpuinfo_max_freq"), "3500000\n"),
            (&format!("{cpu}/cpufreq/boost"), "1\n"),
            ("sys/class/dmi/id/product_name", "A model\n"),
        ]);
        let rows = parts(&found, "6.1.0", 2);
        let rows: Vec<(&str, &str)> = rows.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let expected = [
            (
                "Machine",
                "Xeon 8490H, 2 usable CPUs, 17.2 GB, Linux 6.1.0, virtual machine",
            ),
            ("Processor", "Xeon 8490H"),
            ("Sockets", "1"),
            ("Cores per socket", "1"),
            ("Threads", "2, of which this process can use 2"),
            ("Hyperthreading", "on"),
            ("NUMA nodes", "1"),
            ("Clock", "maximum 3500 MHz, now 2900 MHz"),
            ("Governor", "powersave"),
            ("Turbo", "on"),
            ("Microcode", "0x2b"),
            ("Memory", "17.2 GB"),
            ("Virtual machine", "yes"),
            ("Model", "A model"),
            ("Kernel", "Linux 6.1.0"),
        ];
        assert_eq!(rows, expected);
        // All of them but the short line belong into the table.
        let heads: Vec<&str> = rows.iter().map(|r| r.0).filter(|n| !is_part(n)).collect();
        assert_eq!(heads, ["Machine"]);
        assert!(is_part("Storage of /a") && !is_part(OTHERS) && !is_part(OVERRIDDEN));
    }

    #[test]
    fn the_file_system_of_a_directory_is_known_only_once_it_exists() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("new");
        assert_eq!(storage(&dir), None);
        std::fs::create_dir(&dir).unwrap();
        let told = storage(&dir).unwrap();
        assert_eq!(storage(root.path()), Some(told.clone()));
        let mount = facts::mount_of(&dir).unwrap();
        let has_device = Path::new(&mount.source).starts_with("/dev");
        assert_eq!(told.contains(", drive"), has_device, "{told}");
        for drive in facts::drives_of(&dir).unwrap() {
            assert!(!has_device || told.contains(&drive), "{told}: {drive}");
        }
        let none = storage(Path::new("/proc")).unwrap();
        assert!(
            none.starts_with("proc on ") && !none.contains("drive"),
            "{none}"
        );
    }

    #[test]
    fn what_a_machine_does_not_tell_is_left_out() {
        let rows = parts(&pretended(&[]), "6.1.0", 1);
        let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Machine", "Processor", "Kernel"]);
        assert_eq!(rows[0].1, "unknown CPU, 1 usable CPU, Linux 6.1.0");
    }
}
