//! File systems on which a lock is seen by every program that can write to the file.

use std::io;
use std::os::fd::AsFd;

/// Local file systems, by `f_type` (statfs(2), the kernel's `magic.h`, ZFS). Their data has one mount, or several
/// mounts that share the files in memory, so every program sees a lock and a mapping of a file.
///
/// The list names file systems known to be local, not those known to be remote. A remote one that is taken for local
/// loses data; a local one that is missing here can be vouched for by its user. FUSE is not listed, because sshfs,
/// rclone, bindfs and virtiofs all use it.
const LOCAL: [u32; 25] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs: nothing may write to its lower layers while it is mounted
    0xf15f,      // eCryptfs
    0x2405_1905, // UBIFS
    0x72b6,      // JFFS2
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS
    0x4244,      // HFS
    0x482b,      // HFS+
    0x1501_3346, // UDF
    0x9660,      // ISO 9660
    0x7371_7368, // Squashfs
    0xe0f5_e1e2, // EROFS
    0x28cd_3d45, // cramfs
];

pub(super) fn keeps_locks(fd: impl AsFd) -> io::Result<bool> {
    Ok(is_local(rustix::fs::fstatfs(fd)?.f_type as u64))
}

/// Only 32 bits of the field are the type; some kernels sign-extend it.
fn is_local(fs_type: u64) -> bool {
    LOCAL.contains(&(fs_type as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_be_local_are_believed() {
        for local in [0xef53, 0x5846_5342, 0xf2f5_2010, 0xffff_ffff_9123_683e] {
            assert!(is_local(local), "{local:#x}");
        }
        let fuse = 0x6573_5546;
        let virtual_box = 0x786f_4256;
        let nfs = 0x6969;
        let cifs = 0xffff_ffff_ff53_4d42;
        for other in [fuse, virtual_box, nfs, cifs, 0] {
            assert!(!is_local(other), "{other:#x}");
        }
    }
}
