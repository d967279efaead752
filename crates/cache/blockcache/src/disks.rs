//! The disks on which a file or a block device lies, as Linux shows them in `/sys` and `/proc/self/mountinfo`.
//!
//! A *fatal* disk of a place is one whose failure alone makes the place fail: the disk of a partition, each disk below a
//! volume, all disks that each copy of a mirror has in common.
//!
//! Invariants
//! - A disk is named by its directory in `/sys`, whatever names lead to it.
//! - Nothing is an error: where the system tells nothing (a network's file system, a container's overlay), no disk is found.
//! - Work is bounded: devices below devices are followed [`DEPTH_MAX`] times.
//!
//! Leaves to others: what must not lie together (`open.rs`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use longshore_io::{FileKind, OpenHow, Storage, Via};

/// Loops on files on volumes on partitions: far more than anybody builds.
const DEPTH_MAX: u32 = 12;
/// The longest file of the system that is read.
const TEXT_MAX: usize = 1 << 20;

pub(crate) type Disks = BTreeSet<PathBuf>;

/// The fatal disks of what is at `path`: a block device, or a file or directory on one.
pub(crate) fn fatal(storage: &dyn Storage, path: &Path) -> Disks {
    System(storage).below(path, DEPTH_MAX)
}

/// The file behind a loop device; `None` for anything else, and if the system does not tell.
pub(crate) fn backing_file(storage: &dyn Storage, device: &Path) -> Option<PathBuf> {
    let system = System(storage);
    let device = storage.canonical(device).ok()?;
    system.backing_file(&system.node(&device)?)
}

struct System<'a>(&'a dyn Storage);

impl System<'_> {
    fn below(&self, path: &Path, depth: u32) -> Disks {
        let found = || {
            let path = self.0.canonical(path).ok()?;
            let is_file = match self.0.stat(&path) {
                Ok(found) => matches!(found.kind, FileKind::File | FileKind::Dir),
                // A file that is not there yet will be made there.
                Err(_) => true,
            };
            let device = if is_file { self.mounted(&path)? } else { path };
            Some(self.leaves(&self.node(&device)?, depth))
        };
        found().unwrap_or_default()
    }

    /// The directory of a block device.
    fn node(&self, device: &Path) -> Option<PathBuf> {
        let name = device.file_name()?;
        self.0
            .canonical(&Path::new("/sys/class/block").join(name))
            .ok()
    }

    /// The device whose file system is mounted where a path is.
    fn mounted(&self, path: &Path) -> Option<PathBuf> {
        let text = self.text(Path::new("/proc/self/mountinfo"))?;
        let mut best: Option<(usize, PathBuf)> = None;
        for line in text.lines() {
            let (mount, rest) = line.split_once(" - ")?;
            let point = unescaped(mount.split(' ').nth(4)?);
            let source = unescaped(rest.split(' ').nth(1)?);
            let len = point.components().count();
            // A later mount at the same place hides the earlier one.
            if path.starts_with(&point) && best.as_ref().is_none_or(|(most, _)| len >= *most) {
                best = Some((len, source));
            }
        }
        let source = best?.1;
        source
            .starts_with("/dev")
            .then(|| self.0.canonical(&source).ok())?
    }

    fn leaves(&self, node: &Path, depth: u32) -> Disks {
        let Some(depth) = depth.checked_sub(1) else {
            return Disks::new();
        };
        if self.text(&node.join("partition")).is_some() {
            return node
                .parent()
                .map_or_else(Disks::new, |disk| self.leaves(disk, depth));
        }
        if let Some(file) = self.backing_file(node) {
            return self.below(&file, depth);
        }
        let slaves = self.slaves(node);
        if slaves.is_empty() {
            return Disks::from([node.to_owned()]);
        }
        let parts = slaves.iter().map(|slave| self.leaves(slave, depth));
        let level = self.text(&node.join("md/level")).unwrap_or_default();
        let is_redundant = ["raid1", "raid4", "raid5", "raid6", "raid10"].contains(&level.trim());
        let all = |a: Disks, b: Disks| match is_redundant {
            true => &a & &b,
            false => &a | &b,
        };
        parts.reduce(all).unwrap_or_default()
    }

    fn slaves(&self, node: &Path) -> Vec<PathBuf> {
        let listed = self.0.dir(&node.join("slaves")).and_then(|dir| dir.list());
        let names = listed.into_iter().flatten().flatten();
        names
            .filter_map(|name| self.node(Path::new(&name)))
            .collect()
    }

    fn backing_file(&self, node: &Path) -> Option<PathBuf> {
        let text = self.text(&node.join("loop/backing_file"))?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    fn text(&self, path: &Path) -> Option<String> {
        let (dir, name) = (path.parent()?, path.file_name()?);
        let file = self
            .0
            .dir(dir)
            .ok()?
            .open(Path::new(name), OpenHow::Read)
            .ok()?;
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        while text.len() < TEXT_MAX {
            match file
                .read_full_at(&mut part, text.len() as u64, Via::Cache)
                .ok()?
            {
                0 => break,
                len => text.extend(&part[..len]),
            }
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

/// A path as `mountinfo` writes it: spaces and the like are `\` and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use longshore_io::SimDisk;

    use super::*;

    fn put(disk: &SimDisk, path: &str, text: &str) {
        disk.create_dir_all(Path::new(path).parent().unwrap())
            .unwrap();
        disk.write_file(path, text.as_bytes()).unwrap();
    }

    /// A machine with two disks of two partitions each, a mirror of the first ones, a volume over the second ones, and a
    /// loop device on a file in the volume.
    fn machine() -> SimDisk {
        let disk = SimDisk::new(1);
        let class = disk.create_dir_all(Path::new("/sys/class/block")).unwrap();
        for name in [
            "sda", "sdb", "sda/sda1", "sda/sda2", "sdb/sdb1", "sdb/sdb2", "md0", "dm-0", "loop0",
        ] {
            put(&disk, &format!("/sys/devices/{name}/size"), "1");
            let last = Path::new(name).file_name().unwrap();
            let to = Path::new("/sys/devices").join(name);
            class.symlink(&to, Path::new(last)).unwrap();
            put(&disk, &format!("/dev/{}", last.to_str().unwrap()), "");
            if name.contains('/') {
                put(&disk, &format!("/sys/devices/{name}/partition"), "1\n");
            }
        }
        for (of, slave) in [
            ("md0", "sda1"),
            ("md0", "sdb1"),
            ("dm-0", "sda2"),
            ("dm-0", "sdb2"),
        ] {
            put(
                &disk,
                &format!("/sys/devices/{of}/slaves/{slave}/size"),
                "1",
            );
        }
        put(&disk, "/sys/devices/md0/md/level", "raid1\n");
        put(
            &disk,
            "/sys/devices/loop0/loop/backing_file",
            "/vol ume/image\n",
        );
        put(&disk, "/vol ume/image", "");
        put(&disk, "/part/file", "");
        put(&disk, "/net/file", "");
        let mounts = [
            "1 0 9:0 / / rw shared:1 - ext4 /dev/md0 rw",
            "2 1 0:50 / /part rw - tmpfs tmpfs rw",
            "3 1 8:1 / /part rw - btrfs /dev/sda1 rw",
            "4 1 253:0 / /vol\\040ume rw - xfs /dev/dm-0 rw",
            "5 1 7:0 / /loop rw - ext4 /dev/loop0 rw",
            "6 1 0:51 / /net rw - nfs server:/x rw",
        ];
        put(&disk, "/proc/self/mountinfo", &mounts.join("\n"));
        put(&disk, "/loop/file", "");
        disk
    }

    #[test]
    fn the_disks_that_can_end_a_place_are_found_below_everything_between() {
        let disk = machine();
        let found = |path: &str| {
            let found = fatal(&disk, Path::new(path));
            let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            found.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(found("/part/file"), ["sda"]);
        assert_eq!(found("/part"), ["sda"]);
        assert_eq!(found("/vol ume/image"), ["sda", "sdb"]);
        assert_eq!(found("/loop/file"), ["sda", "sdb"]);
        assert_eq!(found("/sys"), [""; 0], "one of a mirror's disks may fail");
        assert_eq!(found("/net/file"), [""; 0]);
        assert_eq!(found("/nowhere/at/all"), [""; 0]);
    }

    #[test]
    fn a_path_with_spaces_and_strange_signs_is_read() {
        assert_eq!(unescaped("/a\\040b\\134"), Path::new("/a b\\"));
        assert_eq!(unescaped("/a\\9"), Path::new("/a\\9"));
    }
}
