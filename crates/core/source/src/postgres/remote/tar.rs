//! Parses the headers of the tar archives that a server sends.
//!
//! Invariants
//! - The bytes are untrusted: no field is used before the header's checksum matches.
//! - No path leaves its archive: `..` and absolute names are refused. A link's target is kept as it is.
//! - A kind of member other than file, directory and symbolic link is refused, never skipped.
//!
//! Leaves to others: the bytes of members and the order of archives (`archive.rs`).
//!
//! Source: POSIX.1-2017, pax, "ustar Interchange Format"; PostgreSQL 18, `src/port/tar.c` (sizes of 8 GiB and more in
//! base 256).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Headers and padding come in units of this many bytes.
pub(super) const UNIT: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    Dir,
    Symlink { target: PathBuf },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Relative, normal components only.
    pub(super) path: PathBuf,
    pub(super) kind: MemberKind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime_s: i64,
    /// Bytes that follow; 0 unless it is a file.
    pub(super) len: u64,
}

/// Parses a header; `None` is the unit of zeros that ends an archive. The error text says what is wrong.
pub(super) fn parse(unit: &[u8; UNIT]) -> Result<Option<Member>, &'static str> {
    if longshore_io::is_zero(unit) {
        return Ok(None);
    }
    let sum: u64 = unit
        .iter()
        .enumerate()
        .map(|(i, byte)| match i {
            148..156 => u64::from(b' '),
            _ => u64::from(*byte),
        })
        .sum();
    if number(&unit[148..156]) != Some(sum) {
        return Err("a header's checksum is wrong");
    }
    let mut name = text(&unit[345..500]).to_vec();
    if !name.is_empty() {
        name.push(b'/');
    }
    name.extend_from_slice(text(&unit[..100]));
    let path = relative(&name).ok_or("a name is outside of the archive")?;
    let target = text(&unit[157..257]);
    let kind = match unit[156] {
        b'0' | 0 => MemberKind::File,
        b'5' => MemberKind::Dir,
        b'2' => MemberKind::Symlink {
            target: OsStr::from_bytes(target).into(),
        },
        _ => return Err("a member is not a file, a directory or a symbolic link"),
    };
    let field = |range: std::ops::Range<usize>| number(&unit[range]);
    let small = |range| field(range).and_then(|n| u32::try_from(n).ok());
    let len = field(124..136).ok_or("a length is not a number")?;
    Ok(Some(Member {
        mode: small(100..108).ok_or("a mode is not a number")? & 0o7777,
        uid: small(108..116).unwrap_or(0),
        gid: small(116..124).unwrap_or(0),
        mtime_s: field(136..148)
            .and_then(|s| i64::try_from(s).ok())
            .unwrap_or(0),
        len: if kind == MemberKind::File { len } else { 0 },
        kind,
        path,
    }))
}

/// Bytes of padding after `len` bytes of a member.
pub(super) fn padding(len: u64) -> usize {
    (len.wrapping_neg() % UNIT as u64) as usize
}

/// The field up to its first zero byte.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    &field[..end]
}

/// Octal digits or, if the first bit is set, a number in base 256.
fn number(field: &[u8]) -> Option<u64> {
    if let [first @ 0x80..=0xff, rest @ ..] = field {
        let begin = u64::from(first & 0x7f);
        return rest.iter().try_fold(begin, |n, byte| {
            Some(n.checked_mul(256)? | u64::from(*byte))
        });
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0u64, |n, digit| match digit {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn relative(name: &[u8]) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!path.as_os_str().is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &[u8], kind: u8, len: &[u8]) -> [u8; UNIT] {
        let mut unit = [0; UNIT];
        unit[..name.len()].copy_from_slice(name);
        unit[100..108].copy_from_slice(b"0000600\0");
        unit[108..116].copy_from_slice(b"0000145\0");
        unit[116..124].copy_from_slice(b"0000150\0");
        unit[124..124 + len.len()].copy_from_slice(len);
        unit[136..148].copy_from_slice(b"14721473000\0");
        unit[156] = kind;
        unit[257..263].copy_from_slice(b"ustar\0");
        seal(&mut unit);
        unit
    }

    fn seal(unit: &mut [u8; UNIT]) {
        unit[148..156].fill(b' ');
        let sum: u32 = unit.iter().map(|b| u32::from(*b)).sum();
        unit[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    #[test]
    fn members_of_every_kind_and_length_are_read() {
        let member = parse(&header(b"base/1/1259", b'0', b"00000200000\0"));
        let member = member.unwrap().unwrap();
        assert_eq!(member.path, Path::new("base/1/1259"));
        assert_eq!((member.mode, member.uid, member.gid), (0o600, 101, 104));
        assert_eq!((member.len, member.mtime_s), (65_536, 0o14_721_473_000));
        let large = parse(&header(
            b"x",
            b'0',
            &[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1],
        ));
        assert_eq!(large.unwrap().unwrap().len, (2 << 32) + 1);
        let dir = parse(&header(b"./pg_wal/", b'5', b"00000000000\0"))
            .unwrap()
            .unwrap();
        assert_eq!((dir.kind, dir.path), (MemberKind::Dir, "pg_wal".into()));
        assert_eq!(parse(&[0; UNIT]), Ok(None));
        assert_eq!((padding(0), padding(1), padding(512)), (0, 511, 0));
    }

    #[test]
    fn members_that_lead_out_or_are_unsupported_are_refused() {
        for name in [&b"../x"[..], b"/etc/passwd", b"a/../../b", b"", b"."] {
            assert!(parse(&header(name, b'0', b"0")).is_err(), "{name:?}");
        }
        for kind in [b'1', b'3', b'6', b'x', b'L'] {
            assert!(parse(&header(b"a", kind, b"0")).is_err(), "{kind}");
        }
        assert!(parse(&header(b"a", b'0', b"8")).is_err());
        assert!(parse(&header(b"a", b'0', &[0xff; 12])).is_err());
    }

    /// No bytes crash the parser, and every flipped bit is noticed.
    #[test]
    fn a_header_with_a_flipped_bit_is_refused() {
        let whole = header(b"base/1/1259", b'0', b"00000200000\0");
        for at in 0..UNIT * 8 {
            let mut unit = whole;
            unit[at / 8] ^= 1 << (at % 8);
            // The checksum field ends with bytes that have no meaning.
            if !(148 * 8..156 * 8).contains(&at) {
                assert!(parse(&unit).is_err(), "bit {at}");
            }
        }
        let mut random = 1u64;
        for _ in 0..20_000 {
            let mut unit = [0; UNIT];
            for byte in &mut unit {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (random >> 56) as u8;
            }
            seal(&mut unit);
            if let Ok(Some(member)) = parse(&unit) {
                assert!(member.path.is_relative());
            }
        }
    }
}
