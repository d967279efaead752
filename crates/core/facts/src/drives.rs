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
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::disk::{Mount, mount_of};
use crate::pci::first_line;

/// Devices are on devices no deeper than this: a file on a logical volume on a mirror on partitions has four.
const DEPTH_MAX: usize = 8;

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
    let Some(device) = block_device(Path::new("/sys"), &mount) else {
        drives.insert(match mount.device.0 {
            0 => name_without_device(&mount),
            // A container may hide the machine's devices, and two of its numbers may be parts of one drive.
            _ => "hidden device".to_owned(),
        });
        return Ok(());
    };
    insert_drives(&device, depth, drives);
    Ok(())
}

/// The directory in sysfs of the block device below a file system, without symbolic links. Some file systems, such as btrfs, have
/// numbers of their own and name the device. `sys` is the mount point of sysfs.
pub(super) fn block_device(sys: &Path, mount: &Mount) -> Option<PathBuf> {
    match mount.device {
        (0, _) => {
            let named = Path::new(&mount.source);
            let real = named.starts_with("/dev").then(|| fs::canonicalize(named))?;
            let real = real.ok()?;
            device_of_node(sys, real.file_name()?, number_of(&real))
        }
        number => device_of_number(sys, number),
    }
}

fn device_of_number(sys: &Path, (major, minor): (u32, u32)) -> Option<PathBuf> {
    fs::canonicalize(sys.join("dev/block").join(format!("{major}:{minor}"))).ok()
}

/// The device of a node in `/dev`. Its number counts: where no udev makes the names, as `/dev/mapper/…` in a container or an initial
/// RAM disk, they are not the kernel's.
fn device_of_node(sys: &Path, name: &OsStr, number: Option<(u32, u32)>) -> Option<PathBuf> {
    let by_number = number.and_then(|number| device_of_number(sys, number));
    by_number.or_else(|| fs::canonicalize(sys.join("class/block").join(name)).ok())
}

/// The number of the block device that a node stands for.
fn number_of(node: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(node).ok()?;
    let number = found.rdev();
    let is_block = found.file_type().is_block_device();
    is_block.then(|| (rustix::fs::major(number), rustix::fs::minor(number)))
}

/// The whole devices below a block device, as directories in sysfs: that of a partition, and those of a volume's parts.
pub(super) fn whole_devices(device: &Path) -> BTreeSet<PathBuf> {
    fn walk(device: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
        let whole = match device.join("partition").exists() {
            true => device.parent().unwrap_or(device),
            false => device,
        };
        let parts = fs::read_dir(whole.join("slaves")).into_iter().flatten();
        let parts = parts.filter_map(|part| fs::canonicalize(part.ok()?.path()).ok());
        let parts: Vec<PathBuf> = parts.collect();
        if depth == 0 || parts.is_empty() {
            found.insert(whole.to_owned());
            return;
        }
        parts.iter().for_each(|part| walk(part, depth - 1, found));
    }
    let mut found = BTreeSet::new();
    walk(device, DEPTH_MAX, &mut found);
    found
}

/// The names of the drives below a block device, and below the file behind a loop device.
fn insert_drives(device: &Path, depth: usize, drives: &mut BTreeSet<String>) {
    for whole in whole_devices(device) {
        let file = first_line(&whole.join("loop/backing_file")).ok().flatten();
        let is_followed = file
            .is_some_and(|file| depth > 0 && collect(Path::new(&file), depth - 1, drives).is_ok());
        if !is_followed {
            let name = whole.file_name().unwrap_or_default();
            drives.insert(named(&name.to_string_lossy()));
        }
    }
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
        "nfs" | "nfs4" => {
            let server = source.split(":/").next().unwrap_or_default();
            return format!("nfs {server}");
        }
        // Mounts of one kind may lie on one disk, whatever they are called.
        _ => "",
    };
    format!("{kind} {holder}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
            insert_drives(&at.join(device), DEPTH_MAX, &mut drives);
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

    /// Goal: a node whose name is not the kernel's leads to its device by its number, and to no other one.
    #[test]
    fn a_node_that_no_udev_has_named_is_found_by_its_number() {
        let (_root, at) = devices();
        let sys = at.join("sys");
        for (below, link, device) in [
            ("dev/block", "253:0", "dm-0"),
            ("dev/block", "8:1", "sda/sda1"),
            ("class/block", "dm-0", "dm-0"),
            ("class/block", "sda1", "sda/sda1"),
        ] {
            fs::create_dir_all(sys.join(below)).unwrap();
            symlink(at.join(device), sys.join(below).join(link)).unwrap();
        }
        let found = |name: &str, number| device_of_node(&sys, OsStr::new(name), number);
        let dm = Some(at.join("dm-0"));
        assert_eq!(found("group-volume", Some((253, 0))), dm);
        assert_eq!(found("sda1", Some((253, 0))), dm, "a name that was reused");
        assert_eq!(found("dm-0", None), dm);
        assert_eq!(found("dm-0", Some((7, 7))), dm);
        assert_eq!(found("group-volume", None), None);
        assert_eq!(found("group-volume", Some((7, 7))), None);
        // Other nodes have numbers, too, which are those of other block devices.
        assert_eq!(number_of(Path::new("/dev/null")), None);
        let btrfs = Mount {
            point: "/".into(),
            source: "/dev/null".into(),
            kind: "btrfs".into(),
            device: (0, 9),
        };
        symlink(at.join("sda/sda1"), sys.join("dev/block/1:3")).unwrap();
        assert_eq!(block_device(&sys, &btrfs), None);
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
        assert_eq!(name("nfs4", "host:/a"), name("nfs", "host:/b"));
        assert_ne!(name("nfs4", "host:/a"), name("nfs4", "other:/a"));
        assert_eq!(name("virtiofs", "a"), name("virtiofs", "b"));
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
        assert_eq!(drives_of(Path::new("/proc")).unwrap(), set(&["proc"]));
        assert!(drives_of(Path::new("/no/such/path")).is_err());
    }
}
