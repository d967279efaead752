//! What a caller may say about a buffer: which of its bytes are rows of which table.
//!
//! Invariants
//! - A layout is a hint. A payload gives its plain bytes back with any.
//!
//! Source: `pg_attribute` of PostgreSQL's documentation ("System Catalogs").

/// One attribute of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// `pg_attribute.attlen`: bytes of a value, -1 if each value has its own length, -2 for a string that ends in a
    /// zero byte.
    pub len: i16,
    /// `pg_attribute.attalign` in bytes: 1, 2, 4 or 8.
    pub align: u8,
}

/// How the rows of one table are laid out: one [`Column`] for each attribute number, dropped ones too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    columns: Box<[Column]>,
}

impl Layout {
    /// The most attributes that a table of PostgreSQL has.
    pub const COLUMNS_MAX: usize = 1600;

    /// `None` if there are no columns, or more than [`Layout::COLUMNS_MAX`].
    pub fn new(columns: impl Into<Box<[Column]>>) -> Option<Layout> {
        let columns = columns.into();
        (1..=Layout::COLUMNS_MAX)
            .contains(&columns.len())
            .then_some(Layout { columns })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
}

/// A run of bytes of a buffer that comes from one file. The parts of a buffer cover it, in order.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Bytes.
    pub len: usize,
    /// The layout of the table whose main fork these bytes are.
    pub layout: Option<&'a Layout>,
}
