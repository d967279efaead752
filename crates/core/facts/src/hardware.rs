//! The parts of a machine, as far as the kernel tells: processors, clocks, memory, and whether it is virtual.
//!
//! Invariants
//! - A fact that the kernel does not tell this user is absent, never guessed. Only root reads the firmware's table, so
//!   others may lack the kind of memory.
//! - Nothing is changed, and no program is run.
//!
//! Leaves to others: times of processors (`machine.rs`), drives (`disk.rs`), and how a record is written (the studies).
//!
//! Source: Linux, `Documentation/admin-guide/pm`, `Documentation/ABI/testing/sysfs-devices-system-cpu` and
//! `sysfs-devices-edac`; DMTF, DSP0134 (SMBIOS), structure 17.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use super::machine::kib_of;
use super::pci::{first_line, small_text};

/// The longest firmware table that is read.
const TABLE_LEN_MAX: u64 = 1 << 20;
/// The structure of a memory device, and where it has its figures.
const MEMORY_DEVICE: u8 = 17;
const SIZE_AT: usize = 0x0c;
const KIND_AT: usize = 0x12;
const LARGE_SIZE_AT: usize = 0x1c;
const SPEED_AT: usize = 0x20;

/// The parts of a machine. A fact that is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The processor's name for itself.
    pub cpu: Option<String>,
    pub sockets: Option<usize>,
    pub cores_per_socket: Option<u32>,
    /// Processors that the kernel schedules on: with hyperthreading more than cores.
    pub threads: Option<usize>,
    pub numa_nodes: Option<usize>,
    /// The clock of the first processor at the moment.
    pub mhz_now: Option<u64>,
    pub mhz_base: Option<u64>,
    pub mhz_max: Option<u64>,
    /// Of the first processor's clock.
    pub governor: Option<String>,
    /// Whether clocks above the base are allowed.
    pub turbo: Option<bool>,
    pub microcode: Option<String>,
    pub memory_bytes: Option<u64>,
    /// Such as `16 × 64 GB DDR5-4800`.
    pub memory_kind: Option<String>,
    pub is_virtual: Option<bool>,
    /// The machine's maker and model; of a virtual one mostly those of its hypervisor.
    pub model: Option<String>,
}

impl Hardware {
    /// Reads the facts. `proc` and `sys` are the mount points of procfs and sysfs: `/proc` and `/sys`.
    pub fn read(proc: &Path, sys: &Path) -> Hardware {
        let cpuinfo = small_parts(&proc.join("cpuinfo"));
        let first = |key: &str| values(&cpuinfo, key).next().map(str::to_owned);
        let number = |path: &str| first_line(&sys.join(path)).ok()??.parse::<u64>().ok();
        let line = |path: &str| first_line(&sys.join(path)).ok().flatten();
        let threads = values(&cpuinfo, "processor").count();
        let mut sockets: Vec<&str> = values(&cpuinfo, "physical id").collect();
        sockets.sort_unstable();
        sockets.dedup();
        let khz =
            |name: &str| Some(number(&format!("devices/system/cpu/cpu0/cpufreq/{name}"))? / 1000);
        let meminfo = small_text(&proc.join("meminfo")).unwrap_or_default();
        let flags = first("flags").or_else(|| first("Features"));
        let hypervisor = line("hypervisor/type");
        let vendor = line("class/dmi/id/sys_vendor");
        let product = line("class/dmi/id/product_name");
        Hardware {
            cpu: first("model name").filter(|name| !name.is_empty()),
            sockets: (!sockets.is_empty()).then_some(sockets.len()),
            cores_per_socket: first("cpu cores").and_then(|n| n.parse().ok()),
            threads: (threads > 0).then_some(threads),
            numa_nodes: line("devices/system/node/online").and_then(|list| count_ranges(&list)),
            mhz_now: first("cpu MHz").and_then(|mhz| Some(mhz.parse::<f64>().ok()?.round() as u64)),
            mhz_base: khz("base_frequency"),
            mhz_max: khz("cpuinfo_max_freq"),
            governor: line("devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            turbo: number("devices/system/cpu/intel_pstate/no_turbo")
                .map(|off| off == 0)
                .or_else(|| Some(number("devices/system/cpu/cpufreq/boost")? == 1)),
            microcode: first("microcode"),
            memory_bytes: kib_of(&meminfo, "MemTotal"),
            memory_kind: memory_kind(sys),
            is_virtual: match (&hypervisor, flags) {
                (Some(_), _) => Some(true),
                // Processors of ARM have no such flag.
                (None, Some(flags)) if first("flags").is_some() => {
                    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
                }
                _ => None,
            },
            model: match (vendor, product) {
                (Some(vendor), Some(product)) if !product.starts_with(&vendor) => {
                    Some(format!("{vendor} {product}"))
                }
                (vendor, product) => product.or(vendor).or(hypervisor),
            },
        }
    }
}

/// A file that may be longer than the small ones: of a machine with hundreds of processors.
fn small_parts(path: &Path) -> String {
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|f| f.take(TABLE_LEN_MAX).read_to_end(&mut text));
    read.map_or_else(
        |_| String::new(),
        |_| String::from_utf8_lossy(&text).into_owned(),
    )
}

/// The values of a key of `/proc/cpuinfo`, one for each processor.
fn values<'a>(cpuinfo: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    pairs
        .filter(move |(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

/// The numbers in a list such as `0-3,8`.
fn count_ranges(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(|range| count(range.trim())).sum()
}

/// The modules of the memory: from the firmware's table, else from the memory controller's driver, which anybody reads.
fn memory_kind(sys: &Path) -> Option<String> {
    let mut table = Vec::new();
    let read = fs::File::open(sys.join("firmware/dmi/tables/DMI"))
        .and_then(|file| file.take(TABLE_LEN_MAX).read_to_end(&mut table));
    let mut modules: BTreeMap<String, usize> = BTreeMap::new();
    if read.is_ok() {
        for module in memory_devices(&table) {
            *modules.entry(module).or_default() += 1;
        }
    }
    if modules.is_empty() {
        for module in controller_modules(sys) {
            *modules.entry(module).or_default() += 1;
        }
    }
    let told = modules
        .iter()
        .map(|(kind, count)| format!("{count} × {kind}"));
    let told = told.collect::<Vec<_>>().join(", ");
    (!told.is_empty()).then_some(told)
}

/// The modules that a memory controller's driver shows.
fn controller_modules(sys: &Path) -> Vec<String> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let controllers = entries(&sys.join("devices/system/edac/mc"));
    let parts = controllers.flat_map(|controller| entries(&controller.path()));
    parts
        .filter_map(|part| {
            let of = |name: &str| first_line(&part.path().join(name)).ok().flatten();
            let mebibytes: u64 = of("size").or_else(|| of("dimm_size"))?.parse().ok()?;
            let kind = of("dimm_mem_type")?;
            (mebibytes > 0).then(|| format!("{} {kind}", gigabytes(mebibytes)))
        })
        .collect()
}

/// Modules have powers of two, which their makers call GB.
fn gigabytes(mebibytes: u64) -> String {
    match mebibytes % 1024 {
        0 => format!("{} GB", mebibytes / 1024),
        _ => format!("{mebibytes} MB"),
    }
}

/// The memory devices of a firmware's table whose kind is known.
fn memory_devices(table: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = table;
    while let [kind, len, ..] = *rest {
        let Some((fields, after)) = rest.split_at_checked(usize::from(len)) else {
            break;
        };
        // Shorter than its own head: the table is broken.
        if fields.len() < 4 {
            break;
        }
        if kind == MEMORY_DEVICE {
            found.extend(memory_device(fields));
        }
        // Texts follow, each ended by a zero byte, all by one more.
        let Some(end) = after.windows(2).position(|two| two == [0, 0]) else {
            break;
        };
        rest = &after[end + 2..];
    }
    found
}

fn memory_device(fields: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u16::from_le_bytes([*fields.get(at)?, *fields.get(at + 1)?]));
    let kind = match fields.get(KIND_AT)? {
        0x18 => "DDR3",
        0x1a => "DDR4",
        0x1e => "LPDDR4",
        0x20 => "HBM",
        0x21 => "HBM2",
        0x22 => "DDR5",
        0x23 => "LPDDR5",
        // Others are of older machines, or of virtual ones, whose memory is of no kind.
        _ => return None,
    };
    let mebibytes = match word(SIZE_AT)? {
        // No module, or one of unknown size.
        0 | 0xffff => return None,
        0x7fff => {
            let (low, high) = (word(LARGE_SIZE_AT)?, word(LARGE_SIZE_AT + 2)?);
            u64::from(low) | (u64::from(high & 0x7fff) << 16)
        }
        kibibytes if kibibytes & 0x8000 != 0 => u64::from(kibibytes & 0x7fff) / 1024,
        mebibytes => mebibytes.into(),
    };
    let speed = word(SPEED_AT).filter(|speed| !matches!(speed, 0 | 0xffff));
    let speed = speed.map_or_else(String::new, |speed| format!("-{speed}"));
    Some(format!("{} {kind}{speed}", gigabytes(mebibytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories that stand for `/proc` and `/sys`.
    fn pretended(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn read(root: &tempfile::TempDir) -> Hardware {
        Hardware::read(&root.path().join("proc"), &root.path().join("sys"))
    }

    fn processor(number: u32, socket: u32, flags: &str) -> String {
        format!(
            "processor\t: {number}\nmodel name\t: Xeon 8490H\ncpu MHz\t\t: 2899.6\nmicrocode\t: 0x2b\n\
             physical id\t: {socket}\ncpu cores\t: 60\nflags\t\t: fpu {flags}\n\n"
        )
    }

    #[test]
    fn a_server_with_two_sockets_is_described() {
        let cpuinfo: String = (0..4).map(|n| processor(n, n / 2, "avx2")).collect();
        let root = pretended(&[
            ("proc/cpuinfo", &cpuinfo),
            ("proc/meminfo", "MemTotal:       1048576 kB\n"),
            ("sys/devices/system/node/online", "0-2,8\n"),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/base_frequency",
                "1900000\n",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
                "3500000\n",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "performance\n",
            ),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
            ("sys/class/dmi/id/sys_vendor", "Intel\n"),
            ("sys/class/dmi/id/product_name", "Eagle Stream\n"),
            (
                "sys/devices/system/edac/mc/mc0/dimm0/dimm_mem_type",
                "Registered-DDR5\n",
            ),
            ("sys/devices/system/edac/mc/mc0/dimm0/size", "65536\n"),
            (
                "sys/devices/system/edac/mc/mc0/dimm1/dimm_mem_type",
                "Registered-DDR5\n",
            ),
            ("sys/devices/system/edac/mc/mc0/dimm1/size", "65536\n"),
            (
                "sys/devices/system/edac/mc/mc0/dimm2/dimm_mem_type",
                "Empty\n",
            ),
            ("sys/devices/system/edac/mc/mc0/dimm2/size", "0\n"),
        ]);
        let expected = Hardware {
            cpu: Some("Xeon 8490H".into()),
            sockets: Some(2),
            cores_per_socket: Some(60),
            threads: Some(4),
            numa_nodes: Some(4),
            mhz_now: Some(2900),
            mhz_base: Some(1900),
            mhz_max: Some(3500),
            governor: Some("performance".into()),
            turbo: Some(true),
            microcode: Some("0x2b".into()),
            memory_bytes: Some(1 << 30),
            memory_kind: Some("2 × 64 GB Registered-DDR5".into()),
            is_virtual: Some(false),
            model: Some("Intel Eagle Stream".into()),
        };
        assert_eq!(read(&root), expected);
    }

    #[test]
    fn a_virtual_machine_is_one_and_a_machine_that_tells_nothing_has_no_facts() {
        let cpuinfo = processor(0, 0, "hypervisor avx2");
        let root = pretended(&[
            ("proc/cpuinfo", &cpuinfo),
            ("sys/devices/system/cpu/cpufreq/boost", "0\n"),
            ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
            ("sys/class/dmi/id/product_name", "Amazon EC2 m7i.large\n"),
        ]);
        let found = read(&root);
        assert_eq!((found.is_virtual, found.turbo), (Some(true), Some(false)));
        assert_eq!(found.model.as_deref(), Some("Amazon EC2 m7i.large"));
        assert_eq!((found.memory_bytes, found.memory_kind), (None, None));
        assert_eq!(read(&pretended(&[])), Hardware::default());
        // A processor of ARM has other names for all of it.
        let arm = pretended(&[("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n")]);
        let (found, expected) = (read(&arm), (Some(1), None, None));
        assert_eq!((found.threads, found.sockets, found.is_virtual), expected);
    }

    /// One structure: its fields with numbers in place, and its texts.
    fn structure(kind: u8, len: usize, words: &[(usize, u16)]) -> Vec<u8> {
        let mut bytes = vec![0; len];
        (bytes[0], bytes[1]) = (kind, len as u8);
        for (at, word) in words {
            bytes[*at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(b"DIMM 0\0maker\0\0");
        bytes
    }

    #[test]
    fn modules_are_read_from_the_firmwares_table_and_a_broken_table_ends_early() {
        let module = |size, kind, speed| {
            let words = [(SIZE_AT, size), (KIND_AT, kind), (SPEED_AT, speed)];
            structure(MEMORY_DEVICE, 0x28, &words)
        };
        let mut large = module(0x7fff, 0x22, 4800);
        large[LARGE_SIZE_AT..LARGE_SIZE_AT + 4].copy_from_slice(&65_536_u32.to_le_bytes());
        let table = [
            structure(0, 24, &[]),
            module(16_384, 0x1a, 3200),
            // No module, one of a virtual machine, one without a speed.
            module(0, 0x1a, 3200),
            module(16_384, 0x07, 0),
            module(16_384, 0x1a, 0),
            large,
        ]
        .concat();
        let found = ["16 GB DDR4-3200", "16 GB DDR4", "64 GB DDR5-4800"];
        assert_eq!(memory_devices(&table), found);
        for cut in 0..table.len() {
            assert!(
                found.starts_with(
                    &memory_devices(&table[..cut])
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                )
            );
        }
        assert_eq!(memory_devices(&[17, 0, 0, 0, 0, 0]), [""; 0]);
    }

    #[test]
    fn ranges_are_counted() {
        assert_eq!(count_ranges("0-3,8"), Some(5));
        assert_eq!(count_ranges("3-0"), None);
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let found = Hardware::read(Path::new("/proc"), Path::new("/sys"));
        assert!(found.threads.is_some_and(|n| n >= 1), "{found:?}");
        assert!(found.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }
}
