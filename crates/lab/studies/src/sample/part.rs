//! The task of loading one file, for any kind of sample.

/// The part of a sample that one file holds.
pub struct SamplePart {
    pub seed: u64,
    /// Ids of warehouses or customers begin here, so that they are unique over all files.
    pub first_id: i64,
    /// The size of the file, once the units are right.
    pub want_bytes: u64,
    /// Warehouses or customers.
    pub units: f64,
    pub wal: bool,
}
