//! The drives below a path: who writes to two directories wants to know whether one drive serves both.
//!
//! Invariants
//! - A partition, an encrypted or logical volume and a file behind a loop device are named by the whole drives below
//!   them; of an NVMe drive the controller counts, not its namespaces.
//! - File systems of which the drives cannot be known are told by a name that they share with their like, so that
//!   nobody takes them for several.
//!
//! Leaves to others: what becomes of it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::disk::{Mount, mount_of};
use crate::pci::first_line;

/// Devices are on devices no deeper than this: a file on a logical volume on a mirror on partitions has four.
const DEPTH_MAX: usize = 8;
/// The kernel's block devices, by their numbers.
const BLOCK: &str = "/sys/dev/block";

/// The names of the drives that hold `path`, such as `sda`; for a file system without a block device one name of what
/// holds it, such as `memory` or `nfs server`. `path` must exist; symbolic links are followed.
pub fn drives_of(path: &Path) -> io::Result<BTreeSet<String>> {
    let mut drives = BTreeSet::new();
    collect(path, DEPTH_MAX, &mut drives)?;
    Ok(drives)
}

/// The number of groups of these that share no drive with each other: as many can be written at a time without waiting for one
/// drive.
pub fn groups_apart(of: &[BTreeSet<String>]) -> usize {
    let mut groups: Vec<BTreeSet<String>> = Vec::new();
    for drives in of {
        let mut joined = drives.clone();
        groups.retain(|group| {
            let is_apart = group.is_disjoint(&joined);
            if !is_apart {
                joined.extend(group.iter().cloned());
            }
            is_apart
        });
        groups.push(joined);
    }
    groups.len()
}

fn collect(path: &Path, depth: usize, drives: &mut BTreeSet<String>) -> io::Result<()> {
    let mount = mount_of(path)?;
    let (major, minor) = device_of(&mount);
    if major == 0 {
        drives.insert(name_without_device(&mount));
        return Ok(());
    }
    let device = Path::new(BLOCK).join(format!("{major}:{minor}"));
    match fs::canonicalize(&device) {
        Ok(device) => whole_drives(&device, depth, drives),
        // A container may hide the machine's devices, and two of its numbers may be parts of one drive.
        Err(_) => {
            drives.insert("hidden device".to_owned());
            Ok(())
        }
    }
}

/// The device's number; of Btrfs, whose mounts have none, that of the device that was mounted.
fn device_of(mount: &Mount) -> (u32, u32) {
    if mount.device.0 != 0 {
        return mount.device;
    }
    let source = Path::new(&mount.source);
    match fs::metadata(source) {
        Ok(found) if source.starts_with("/dev") && found.rdev() != 0 => (
            rustix::fs::major(found.rdev()),
            rustix::fs::minor(found.rdev()),
        ),
        _ => (0, 0),
    }
}

/// The drives below a block device; `device` is its directory in sysfs, without symbolic links.
fn whole_drives(device: &Path, depth: usize, drives: &mut BTreeSet<String>) -> io::Result<()> {
    let whole = match device.join("partition").exists() {
        true => device.parent().unwrap_or(device),
        false => device,
    };
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    let below = fs::read_dir(whole.join("slaves")).into_iter().flatten();
    let below: Vec<_> = below.filter_map(Result::ok).collect();
    let file = first_line(&whole.join("loop/backing_file")).ok().flatten();
    if depth > 0 {
        for entry in &below {
            whole_drives(&fs::canonicalize(entry.path())?, depth - 1, drives)?;
        }
        if let Some(file) = &file
            && collect(Path::new(file), depth - 1, drives).is_ok()
        {
            return Ok(());
        }
        if !below.is_empty() {
            return Ok(());
        }
    }
    drives.insert(named(&name));
    Ok(())
}

/// The drive of a whole block device's name.
fn named(name: &str) -> String {
    let is_memory = ["ram", "zram", "pmem"]
        .iter()
        .any(|kind| name.strip_prefix(kind).is_some_and(is_number));
    if is_memory {
        return "memory".to_owned();
    }
    // `nvme0n2` is the second namespace of the controller `nvme0`.
    let controller = name
        .strip_prefix("nvme")
        .and_then(|rest| rest.split_once('n'))
        .filter(|(controller, namespace)| is_number(controller) && is_number(namespace));
    match controller {
        Some((controller, _)) => format!("nvme{controller}"),
        None => name.to_owned(),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A name for what holds a file system without a block device.
fn name_without_device(mount: &Mount) -> String {
    let (kind, source) = (mount.kind.to_string_lossy(), mount.source.to_string_lossy());
    let holder = match &*kind {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => return "memory".to_owned(),
        // A pool's file systems share its drives.
        "zfs" => source.split('/').next().unwrap_or_default(),
        "cifs" | "smb3" => source
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default(),
        // Mounts of one kind may lie on one disk, whatever they are called.
        "overlay" | "fuse" => "",
        _ => source.split(":/").next().unwrap_or_default(),
    };
    format!("{kind} {holder}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// A directory of sysfs, with a disk of two partitions, an NVMe drive, a mirror of both and a volume on the mirror.
    fn devices() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().canonicalize().unwrap();
        for partition in ["sda/sda1", "sda/sda2", "nvme/nvme0/nvme0n1/nvme0n1p3"] {
            fs::create_dir_all(at.join(partition)).unwrap();
            fs::write(at.join(partition).join("partition"), "1\n").unwrap();
        }
        fs::create_dir_all(at.join("nvme/nvme0/nvme0n2")).unwrap();
        for (upper, lower) in [
            ("md0", "sda/sda2"),
            ("md0", "nvme/nvme0/nvme0n1/nvme0n1p3"),
            ("dm-0", "md0"),
        ] {
            let slaves = at.join(upper).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            let lower = at.join(lower);
            symlink(&lower, slaves.join(lower.file_name().unwrap())).unwrap();
        }
        (root, at)
    }

    #[test]
    fn partitions_mirrors_and_volumes_are_named_by_the_drives_below_them() {
        let (_root, at) = devices();
        let of = |device: &str| {
            let mut drives = BTreeSet::new();
            whole_drives(&at.join(device), DEPTH_MAX, &mut drives).unwrap();
            drives
        };
        assert_eq!(of("sda/sda1"), set(&["sda"]));
        assert_eq!(of("sda/sda2"), of("sda/sda1"));
        assert_eq!(of("nvme/nvme0/nvme0n1/nvme0n1p3"), set(&["nvme0"]));
        assert_eq!(of("nvme/nvme0/nvme0n2"), set(&["nvme0"]));
        assert_eq!(of("md0"), set(&["nvme0", "sda"]));
        assert_eq!(of("dm-0"), set(&["nvme0", "sda"]));
        assert_eq!(
            groups_apart(&[of("dm-0"), of("sda/sda1")]),
            1,
            "a volume on the drive"
        );
        // A device that is above itself ends, too.
        symlink(at.join("dm-0"), at.join("md0/slaves/dm-0")).unwrap();
        assert!(of("dm-0").contains("sda"));
    }

    #[test]
    fn groups_that_share_no_drive_are_counted() {
        let apart = [set(&["sda"]), set(&["sdb"]), set(&["sda"]), set(&["sdc"])];
        assert_eq!(groups_apart(&apart), 3);
        let bridged = [set(&["sda"]), set(&["sdb"]), set(&["sda", "sdb"])];
        assert_eq!(groups_apart(&bridged), 1);
        assert_eq!(groups_apart(&[]), 0);
    }

    #[test]
    fn what_has_no_block_device_is_not_taken_for_several_drives() {
        let name = |kind: &str, source: &str| {
            name_without_device(&Mount {
                point: "/".into(),
                source: source.into(),
                kind: kind.into(),
                device: (0, 9),
            })
        };
        assert_eq!(name("tmpfs", "shm"), name("ramfs", "none"));
        assert_eq!(name("overlay", "overlay"), name("overlay", "other"));
        assert_eq!(name("zfs", "tank/a"), name("zfs", "tank/b"));
        assert_eq!(name("nfs4", "host:/a"), name("nfs4", "host:/b"));
        assert_ne!(name("nfs4", "host:/a"), name("nfs4", "other:/a"));
        assert_eq!(name("cifs", "//host/a"), "cifs host");
    }

    #[test]
    fn two_directories_of_one_file_system_are_on_one_drive() {
        let root = tempfile::tempdir().unwrap();
        let dirs = ["a", "b"].map(|name| root.path().join(name));
        let drives = dirs.each_ref().map(|dir| {
            fs::create_dir(dir).unwrap();
            drives_of(dir).unwrap()
        });
        assert!(!drives[0].is_empty());
        assert_eq!(groups_apart(&drives), 1);
        assert_eq!(drives_of(Path::new("/proc")).unwrap(), set(&["proc proc"]));
        assert!(drives_of(Path::new("/no/such/path")).is_err());
    }
}
