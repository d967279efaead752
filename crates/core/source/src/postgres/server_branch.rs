//! A server's branch, as its files or a connection show it.

use longshore_pg::{Lineage, Relation};

/// The server's lineage, and the relation of each earlier backup to it.
#[derive(Debug)]
pub struct ServerBranch {
    pub lineage: Lineage,
    /// In the order of the backups given.
    pub relations: Vec<Relation>,
}
