//! The result that all encoders return, and the rule for keeping it.

/// The result for one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes of the payload.
    pub len: usize,
    /// Nothing in the payload is compressed: it is the plain bytes in their container.
    pub stored: bool,
}

/// The largest compressed form of `plain_len` bytes that is worth decoding at a restore. Storing
/// restores ten times faster, and that is worth more than 1.6 % of space. (zstd's own rule too.)
pub fn worth(plain_len: usize) -> usize {
    plain_len - (plain_len / 64).max(1)
}
