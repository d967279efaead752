//! What a caller knows of the bytes that it has compressed: hints, on which nothing depends but speed and size.

/// How one table's rows are laid out: pg_attribute's attlen and attalign for every attribute number, dropped ones too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout(Box<[Column]>);

/// One attribute of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Column {
    /// Above 0: its bytes; -1: a varlena; -2: a C string.
    pub len: i16,
    /// 1, 2, 4 or 8.
    pub align: u8,
}

/// One piece of a buffer: bytes of one file. The parts of a buffer cover it, in order.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub len: usize,
    /// `None`: it is not known.
    pub layout: Option<&'a Layout>,
}

/// PostgreSQL's own limit.
const COLUMNS_MAX: usize = 1_600;

impl Layout {
    /// `None`: there is no column, or more than 1,600.
    pub fn new(columns: impl Into<Box<[Column]>>) -> Option<Layout> {
        let columns = columns.into();
        (1..=COLUMNS_MAX)
            .contains(&columns.len())
            .then_some(Layout(columns))
    }

    pub fn columns(&self) -> &[Column] {
        &self.0
    }
}
