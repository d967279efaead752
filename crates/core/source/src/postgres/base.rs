//! The names of relation files, as a base and the server have them.

use std::path::Path;

use longshore_pg::Fork;

use super::rules;

/// One file of a relation's fork, of 1 GiB unless the server was built otherwise, independent of its directory's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RelationSegment {
    /// The tablespace's OID.
    pub(super) space: u32,
    /// The database's OID; 0 for shared relations.
    pub(super) database: u32,
    pub(super) filenode: u32,
    pub(super) number: u32,
}

impl RelationSegment {
    /// The relation file at `path` of a backup, and the fork it belongs to. `None` for other files.
    pub(super) fn of(path: &Path) -> Option<(RelationSegment, Fork)> {
        let (space, database) = rules::place(path.parent()?)?;
        let file = rules::relation(path.file_name()?.as_ref())?;
        let relation = RelationSegment {
            space,
            database,
            filenode: file.filenode,
            number: file.number,
        };
        (!file.is_temporary).then_some((relation, file.fork))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relations_have_segments() {
        let of = |path: &str| RelationSegment::of(Path::new(path));
        let relation = |space, database, number| RelationSegment {
            space,
            database,
            filenode: 16384,
            number,
        };
        let main = |relation| Some((relation, Fork::Main));
        assert_eq!(of("base/5/16384"), main(relation(1663, 5, 0)));
        assert_eq!(of("base/5/16384.1"), main(relation(1663, 5, 1)));
        assert_eq!(of("global/16384"), main(relation(1664, 0, 0)));
        let far = "pg_tblspc/77/PG_15_202209061/5/16384";
        assert_eq!(of(far), main(relation(77, 5, 0)));
        let map = Some((relation(1663, 5, 0), Fork::VisibilityMap));
        assert_eq!(of("base/5/16384_vm"), map);
        for path in ["base/5/t3_16384", "pg_xact/0000", "base/5/PG_VERSION", "x"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
