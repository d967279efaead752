//! Mount points, and what the block devices behind them do.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::strange;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// What is mounted there, such as `/dev/sda1`; any text for file systems without a device.
    pub source: OsString,
    /// Such as `ext4`.
    pub kind: OsString,
    /// Device number: major and minor. Major 0 is no block device.
    pub device: (u32, u32),
}

/// What a block device has done since the machine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    pub reads: u64,
    pub read_bytes: u64,
    /// Summed over all reads, from the request to its completion.
    pub read_time: Duration,
    pub writes: u64,
    pub written_bytes: u64,
    /// Summed over all writes.
    pub write_time: Duration,
    /// Time during which at least one request was under way.
    pub busy: Duration,
}

/// The file system that holds `path`, which must exist; symbolic links are followed.
pub fn mount_of(path: &Path) -> io::Result<Mount> {
    let path = fs::canonicalize(path)?;
    let mounts = fs::read("/proc/self/mountinfo")?;
    mount_holding(&mounts, &path).ok_or_else(|| strange("/proc/self/mountinfo"))
}

fn mount_holding(mountinfo: &[u8], path: &Path) -> Option<Mount> {
    let mounts = mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount);
    // Of mounts at one place the last covers the others, and so does `max_by_key`.
    mounts
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// `36 35 98:0 /root /mount/point options [optional...] - kind source options` (proc(5)).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = unescaped(fields.nth(1)?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    Some(Mount {
        point: point.into(),
        kind: unescaped(rest.next()?),
        source: unescaped(rest.next()?),
        device: (major.parse().ok()?, minor.parse().ok()?),
    })
}

/// Spaces, tabs, newlines and backslashes are written as three octal digits after a backslash.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let digit = |n: usize| {
            after
                .get(n)
                .filter(|d| (b'0'..=b'7').contains(*d))
                .map(|d| u32::from(d - b'0'))
        };
        match (first, digit(0), digit(1), digit(2)) {
            (b'\\', Some(a), Some(b), Some(c)) => {
                bytes.push((a * 64 + b * 8 + c) as u8);
                rest = &after[3..];
            }
            _ => bytes.push(first),
        }
    }
    OsString::from_vec(bytes)
}

/// What the block device of this number has done; `None` when there is none.
pub fn disk_stats(device: (u32, u32)) -> io::Result<Option<DiskStats>> {
    Ok(parse_diskstats(
        &fs::read_to_string("/proc/diskstats")?,
        device,
    ))
}

/// Fields by the kernel's `Documentation/admin-guide/iostats.rst`; a sector is 512 bytes there,
/// whatever the device's own are.
fn parse_diskstats(text: &str, (major, minor): (u32, u32)) -> Option<DiskStats> {
    let ours = |line: &&str| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        fields.next() == Some(Ok(major)) && fields.next() == Some(Ok(minor))
    };
    let fields = text.lines().find(ours)?.split_whitespace().skip(3);
    let numbers: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    let [
        reads,
        _,
        sectors_read,
        read_ms,
        writes,
        _,
        sectors_written,
        write_ms,
        _,
        busy_ms,
        ..,
    ] = numbers[..]
    else {
        return None;
    };
    Some(DiskStats {
        reads,
        read_bytes: sectors_read.saturating_mul(512),
        read_time: Duration::from_millis(read_ms),
        writes,
        written_bytes: sectors_written.saturating_mul(512),
        write_time: Duration::from_millis(write_ms),
        busy: Duration::from_millis(busy_ms),
    })
}

/// What the system knows the block device of this number by, whatever its name is today: the identifiers of the drive,
/// the volume or the image behind it. `None` when it knows none.
pub fn disk_identity(device: (u32, u32)) -> Option<String> {
    identity_below(Path::new("/sys/dev/block"), device)
}

/// Below the directory of a block device (the kernel's `Documentation/ABI`, sysfs-block), the most lasting first: NVMe,
/// SCSI, virtio, device mapper, software RAID, loop.
const IDENTIFIERS: [&str; 7] = [
    "wwid",
    "device/wwid",
    "serial",
    "device/serial",
    "dm/uuid",
    "md/uuid",
    "loop/backing_file",
];

fn identity_below(sys: &Path, (major, minor): (u32, u32)) -> Option<String> {
    let dir = fs::canonicalize(sys.join(format!("{major}:{minor}"))).ok()?;
    let text = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // A partition is known by its disk and its place on it.
    let (disk, place) = match text(dir.join("partition")) {
        Some(_) => (dir.parent()?, text(dir.join("start"))?),
        None => (&*dir, String::new()),
    };
    let known = |name: &&str| Some(format!("{name}={}", text(disk.join(name))?));
    let found = IDENTIFIERS.iter().find_map(known)?;
    Some(format!("{found} {place}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_known_by_its_identifier_and_a_partition_by_its_place_too() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("devices/sda/device/wwid", "naa.5000\n");
        put("devices/sda/sda1/partition", "1\n");
        put("devices/sda/sda1/start", "2048\n");
        put("devices/loop0/loop/backing_file", "/images/a b\n");
        put("devices/ram0/size", "8192\n");
        let sys = dir.path().join("dev");
        fs::create_dir_all(&sys).unwrap();
        for (number, to) in [
            ("8:0", "sda"),
            ("8:1", "sda/sda1"),
            ("7:0", "loop0"),
            ("1:0", "ram0"),
        ] {
            std::os::unix::fs::symlink(dir.path().join("devices").join(to), sys.join(number))
                .unwrap();
        }
        let identity = |device| identity_below(&sys, device);
        assert_eq!(identity((8, 0)).unwrap(), "device/wwid=naa.5000");
        assert_eq!(identity((8, 1)).unwrap(), "device/wwid=naa.5000 2048");
        assert_eq!(identity((7, 0)).unwrap(), "loop/backing_file=/images/a b");
        assert_eq!((identity((1, 0)), identity((9, 9))), (None, None));
    }

    const MOUNTS: &[u8] = b"22 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw\n\
        25 22 0:22 / /proc rw - proc proc rw\n\
        30 22 8:17 / /data rw shared:2 master:3 - xfs /dev/sdb1 rw\n\
        31 30 0:50 /vol /data/with\\040space\\134 rw - btrfs /dev/sdc rw\n\
        32 22 8:33 / /data rw - ext4 /dev/sdd1 rw\n\
        broken line\n";

    #[test]
    fn the_deepest_mount_holds_the_path_and_a_later_one_covers() {
        let device = |path: &str| mount_holding(MOUNTS, Path::new(path)).unwrap().device;
        assert_eq!(device("/"), (8, 1));
        assert_eq!(device("/database"), (8, 1), "a name that only begins alike");
        assert_eq!(device("/data/x"), (8, 33));
        assert_eq!(device("/data/with space\\/file"), (0, 50));
        let btrfs = mount_holding(MOUNTS, Path::new("/data/with space\\")).unwrap();
        assert_eq!(
            (btrfs.kind, btrfs.source),
            ("btrfs".into(), "/dev/sdc".into())
        );
    }

    #[test]
    fn the_numbers_of_one_device_are_taken_and_not_its_neighbours() {
        let text = "   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11\n\
            \x20  8      17 sdb1 100 0 2000 300 40 0 800 90 1 350 390 0 0 0 0 0 0\n\
            \x20 18      17 other 9 9 9 9 9 9 9 9 9 9 9\n";
        let stats = parse_diskstats(text, (8, 17)).unwrap();
        let expected = DiskStats {
            reads: 100,
            read_bytes: 1_024_000,
            read_time: Duration::from_millis(300),
            writes: 40,
            written_bytes: 409_600,
            write_time: Duration::from_millis(90),
            busy: Duration::from_millis(350),
        };
        assert_eq!(stats, expected);
        assert_eq!(parse_diskstats(text, (8, 2)), None);
    }

    #[test]
    fn the_mount_of_the_current_directory_is_found_and_its_device_answers() {
        let here = mount_of(Path::new(".")).unwrap();
        assert!(std::env::current_dir().unwrap().starts_with(&here.point));
        disk_stats(here.device).unwrap();
        assert_eq!(disk_stats((0, 0)).unwrap(), None);
        assert_eq!(mount_of(Path::new("/proc/self")).unwrap().kind, "proc");
        assert!(mount_of(Path::new("/no/such/path")).is_err());
    }
}
