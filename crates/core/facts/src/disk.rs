//! Mount points, and the statistics of their block devices, from /proc and /sys.
//!
//! Invariants
//! - A fact that the system does not give is absent, never 0. A file system without a block device has no statistics.
//! - The deepest mount above a path holds it; of several on one mount point, the last.
//! - A sector in the kernel's statistics is 512 bytes, whatever the device's own is.
//!
//! Leaves to others: files and directories (`longshore-io`), and what the numbers mean.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::pci::first_line;
use super::strange;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// The mounted device, such as `/dev/sda1`; any text for file systems without a device.
    pub source: OsString,
    /// The file system's type, such as `ext4`.
    pub kind: OsString,
    /// Device number: major and minor. Major 0 means that there is no block device.
    pub device: (u32, u32),
}

/// The state of the file system that holds a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    /// Mounted so, or made so by the kernel after an error.
    pub is_read_only: bool,
    /// How many more files this user may make; `None` if the file system has no such limit.
    pub free_files: Option<u64>,
    /// Its size.
    pub total_bytes: u64,
}

/// The state of the file system that holds `path`.
pub fn volume_of(path: &Path) -> io::Result<Volume> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Volume {
        is_read_only: found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
        free_files: (found.f_files > 0).then_some(found.f_favail),
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Whether this user may make names in the directory; the system's error if not.
pub fn may_write(directory: &Path) -> io::Result<()> {
    use rustix::fs::Access;
    Ok(rustix::fs::access(
        directory,
        Access::WRITE_OK | Access::EXEC_OK,
    )?)
}

/// The work of a block device since the machine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    pub reads: u64,
    pub read_bytes: u64,
    /// Sum over all reads, each from its request to its completion.
    pub read_time: Duration,
    pub writes: u64,
    pub written_bytes: u64,
    /// Sum over all writes.
    pub write_time: Duration,
    /// Time during which at least one request was in flight.
    pub busy: Duration,
}

/// The file system that holds `path`. `path` must exist; symbolic links are followed.
pub fn mount_of(path: &Path) -> io::Result<Mount> {
    let path = fs::canonicalize(path)?;
    let mounts = fs::read("/proc/self/mountinfo")?;
    mount_holding(&mounts, &path).ok_or_else(|| strange("/proc/self/mountinfo"))
}

fn mount_holding(mountinfo: &[u8], path: &Path) -> Option<Mount> {
    let mounts = mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount);
    // The last of several mounts on one mount point hides the others; `max_by_key` also returns the last.
    mounts
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// Parses `36 35 98:0 /root /mount/point options [optional...] - kind source options` (proc(5)).
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

/// The kernel writes spaces, tabs, newlines and backslashes as a backslash and three octal digits.
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

/// The model of the drive with this number, by its own name; `None` if it, or the whole drive of a partition, has none.
pub fn drive_model((major, minor): (u32, u32)) -> Option<String> {
    let block = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    let of = |inner: &str| first_line(&block.join(inner)).ok().flatten();
    of("device/model").or_else(|| of("../device/model"))
}

/// The statistics of the block device with this number; `None` if there is no such device.
pub fn disk_stats(device: (u32, u32)) -> io::Result<Option<DiskStats>> {
    Ok(parse_diskstats(
        &fs::read_to_string("/proc/diskstats")?,
        device,
    ))
}

/// The fields are those of the kernel's `Documentation/admin-guide/iostats.rst`; a sector there is 512 bytes, whatever
/// the device's own sector size is.
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

#[cfg(test)]
mod tests {
    use super::*;

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
