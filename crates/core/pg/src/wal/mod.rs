//! WAL files: their names, the headers of their pages, and the histories that say how timelines descend from one
//! another.

mod history;
mod made;
mod name;
mod page;
mod records;
pub mod summary;
mod transactions;

pub use history::{
    ForkPoint, HISTORY_LEN_MAX, History, NotHistory, history_lines, is_same_history, restore_name,
    restored_from, restored_sets,
};
pub(crate) use history::{fork_of, restored};
pub use made::MadeTablespace;
pub use name::WalName;
pub use page::{NotWal, PAGE_HEADER_LEN, SegmentHeader, WAL_MAGICS, is_page_at, page_timeline};
pub use records::{NotRecords, Records, WalRecord, segments, segments_in};
pub use transactions::{
    EPOCH_US, Ends, end_of_transaction, ends_from, first_end_within, latest_end, latest_end_within,
    opened,
};
