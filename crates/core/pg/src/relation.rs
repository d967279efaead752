//! Names of relation files: `16384`, `16384_vm.2`, `t3_16390_fsm`.
//!
//! Invariants
//! - A name is read only if PostgreSQL could have written it: numbers without leading zeros, no number 0 of a file.
//! - Any other name is no relation file, and that is no error.
//!
//! Leaves to others: in which directories relation files are, and which of them are backed up (`longshore-source`).
//!
//! Source: PostgreSQL 18, `src/backend/storage/file/reinit.c`, `src/common/relpath.c`.

/// A fork of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fork {
    Main,
    FreeSpaceMap,
    VisibilityMap,
    /// The content of an unlogged relation after a crash.
    Init,
}

/// One file of one fork of a relation: a relation segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RelationFile {
    pub filenode: u32,
    pub fork: Fork,
    /// Counts the files of a fork, each of 1 GiB unless the server was built otherwise: 0 is the one without a number.
    pub number: u32,
    /// Belongs to one session and is removed with it.
    pub is_temporary: bool,
}

impl RelationFile {
    /// `None` for every other name.
    pub fn parse(name: &str) -> Option<RelationFile> {
        let (name, segment) = match name.split_once('.') {
            // Segment 0 has no number, and no number begins with 0.
            Some((name, segment)) => (name, Some(segment).and_then(number).filter(|n| *n > 0)?),
            None => (name, 0),
        };
        let (name, is_temporary) = match name.strip_prefix('t') {
            Some(rest) => {
                let (backend, name) = rest.split_once('_')?;
                digits(backend)?;
                (name, true)
            }
            None => (name, false),
        };
        let (filenode, fork) = match name.split_once('_') {
            None => (name, Fork::Main),
            Some((filenode, "fsm")) => (filenode, Fork::FreeSpaceMap),
            Some((filenode, "vm")) => (filenode, Fork::VisibilityMap),
            Some((filenode, "init")) => (filenode, Fork::Init),
            Some(_) => return None,
        };
        Some(RelationFile {
            filenode: number(filenode)?,
            fork,
            number: segment,
            is_temporary,
        })
    }
}

fn digits(text: &str) -> Option<&str> {
    let fits = !text.is_empty() && text.len() <= 10 && text.bytes().all(|b| b.is_ascii_digit());
    fits.then_some(text)
}

/// A number as PostgreSQL prints it: not 0, no leading zeros.
fn number(text: &str) -> Option<u32> {
    digits(text).filter(|t| !t.starts_with('0'))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_filenode_fork_segment_and_whose() {
        let of = |name| {
            let file = RelationFile::parse(name).unwrap();
            (file.filenode, file.fork, file.number, file.is_temporary)
        };
        assert_eq!(of("1259"), (1259, Fork::Main, 0, false));
        assert_eq!(of("16384.12"), (16384, Fork::Main, 12, false));
        assert_eq!(of("16384_fsm"), (16384, Fork::FreeSpaceMap, 0, false));
        assert_eq!(
            of("4294967295_vm.1"),
            (u32::MAX, Fork::VisibilityMap, 1, false)
        );
        assert_eq!(of("7_init"), (7, Fork::Init, 0, false));
        assert_eq!(of("t3_16390"), (16390, Fork::Main, 0, true));
        assert_eq!(of("t0_16390_fsm.2"), (16390, Fork::FreeSpaceMap, 2, true));
    }

    #[test]
    fn other_names_are_not_relations() {
        for name in [
            "",
            "PG_VERSION",
            "pg_filenode.map",
            "pg_internal.init",
            "16384_",
            "16384_main",
            "16384.",
            "16384.0",
            "16384.01",
            "16384.1.2",
            "016384",
            "t_16384",
            "tx_1",
            "t3",
            "t3_",
            "-1",
            "+1",
            "1 ",
            "4294967296",
            "16384_vm_fsm",
            "pgsql_tmp1",
        ] {
            assert_eq!(RelationFile::parse(name), None, "{name}");
        }
    }
}
