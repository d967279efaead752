//! The identity of a start of the machine, and of a disk.

use std::fs;
use std::path::{Path, PathBuf};

/// Differs from machine to machine and from start to start of one; `None` where the kernel does not say.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// What the system knows the block device of this number by, whatever its name is today: the identifiers of the drive,
/// the volume or the image behind it. `None` when it knows none.
pub(crate) fn disk_identity(device: (u32, u32)) -> Option<String> {
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
}
