//! Goal: the text of [`Storage`], [`Dir`] and [`File`], and of the traits that they are made of ([`DirRead`],
//! [`DirIdentity`], [`DirChange`], [`DirAttributes`], [`DirSync`], [`FileRead`], [`FileWrite`], [`FileAttributes`],
//! [`FileLock`]), as promises about an empty directory.
//! Method: `main.rs` makes each promise a test of each file system; other rooms include this file to hold their doubles
//! to it. The promises that one open file can show are in `alone.rs`, which also runs over files without a directory.
//!
//! [`DirRead`]: longshore_io::DirRead
//! [`DirIdentity`]: longshore_io::DirIdentity
//! [`DirChange`]: longshore_io::DirChange
//! [`DirAttributes`]: longshore_io::DirAttributes
//! [`DirSync`]: longshore_io::DirSync
//! [`FileRead`]: longshore_io::FileRead
//! [`FileWrite`]: longshore_io::FileWrite
//! [`FileAttributes`]: longshore_io::FileAttributes
//! [`FileLock`]: longshore_io::FileLock

pub mod alone;
pub mod bytes;
pub mod names;
pub mod trees;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow, Storage, Via};

use self::alone::Lone;

/// An empty directory on some storage.
pub struct Place {
    pub storage: Arc<dyn Storage>,
    pub path: PathBuf,
    pub dir: Arc<dyn Dir>,
    pub _temporary: Option<tempfile::TempDir>,
}

impl Place {
    /// For a storage that shows the machine's files.
    pub fn in_a(temporary: tempfile::TempDir, storage: Arc<dyn Storage>) -> Place {
        let path = temporary.path().canonicalize().unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Place {
            dir: storage.dir(&path).unwrap(),
            storage,
            path,
            _temporary: Some(temporary),
        }
    }
}

/// Gives every promise to another macro.
macro_rules! promises {
    ($with:ident) => {
        $with! {
            names:
                names_that_leave_the_directory_are_refused_by_every_call
                a_symbolic_link_in_the_middle_leads_nowhere
                a_symbolic_link_at_the_end_is_not_opened
                a_directory_is_not_opened_as_a_file_nor_a_file_as_a_directory
                odd_names_are_names_like_any_other
                superfluous_dots_and_slashes_change_nothing
                a_name_of_255_bytes_is_possible_and_one_more_is_refused
                the_empty_name_is_the_directory_itself;
            bytes:
                what_was_written_is_read_by_every_way_at_every_alignment
                reading_is_short_at_the_end_and_empty_beyond_it
                a_file_is_cut_and_extended_with_zeros
                writing_beyond_the_end_leaves_zeros_between
                a_file_opened_for_reading_is_not_writable
                creating_refuses_an_existing_name_and_opening_a_missing_one
                whatever_is_not_zero_is_told_as_data
                data_is_found_around_holes
                allocating_leaves_the_length_alone
                giving_unwritten_space_back_leaves_what_was_written
                a_zeroed_range_reads_as_zeros_and_nothing_beside_it
                dropping_the_cache_changes_no_byte
                many_threads_write_one_file_at_once
                a_lock_is_given_to_its_holder_again
                a_lock_is_refused_to_others_until_its_holder_is_gone
                offsets_no_file_can_have_are_errors;
            trees:
                directories_are_made_opened_listed_and_removed
                a_rename_replaces_a_file_and_moves_between_directories
                renames_that_make_no_sense_are_refused
                a_hard_link_is_one_more_name_of_the_same_file
                a_file_with_other_names_is_opened_as_one_of_its_own
                a_symbolic_link_keeps_its_target_as_it_is
                attributes_are_set_and_links_are_not_followed
                an_open_file_is_changed_and_given_whatever_has_its_name
                a_directory_is_given_while_it_is_empty
                missing_parents_are_made_and_existing_ones_left_alone
                a_directory_named_by_a_person_may_be_reached_through_links
                a_disk_named_by_a_person_is_written_and_a_directory_is_none
                a_removed_file_stays_readable_for_those_who_have_it_open
                every_change_moves_the_time_of_change
                a_new_file_is_born_later_and_a_renamed_one_keeps_its_birth
                every_name_is_on_the_mount_of_its_directory
                thousands_of_names_are_listed_once_each
                syncing_and_free_space_are_answered;
        }
    };
}

macro_rules! table {
    ($($room:ident: $($promise:ident)*;)*) => {
        &[$($((stringify!($promise), $room::$promise)),*),*]
    };
}

pub type Promise = (&'static str, fn(&Place));

/// Every promise by its name.
pub const PROMISES: &[Promise] = promises!(table);

/// Holds each new place to one promise, and files of a place to those of a lone file.
///
/// # Panics
/// If a place breaks one; the output names it.
pub fn keeps_its_contract(make: &dyn Fn() -> Place) {
    for (name, promise) in PROMISES {
        println!("{name}");
        promise(&make());
    }
    let place = make();
    alone::keeps_its_contract(&|name| Lone {
        file: put(&*place.dir, name, b""),
        synced: Ok(()),
    });
}

/// Creates a file with these bytes.
pub fn put(dir: &dyn Dir, name: impl AsRef<Path>, bytes: &[u8]) -> Arc<dyn File> {
    let file = dir.open(name.as_ref(), OpenHow::CreateNew).unwrap();
    file.write_all_at(bytes, 0, Via::Cache).unwrap();
    file
}

/// All bytes of a file.
pub fn all(dir: &dyn Dir, name: impl AsRef<Path>) -> Vec<u8> {
    let file = dir.open(name.as_ref(), OpenHow::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_exact_at(&mut bytes, 0, Via::Cache).unwrap();
    bytes
}
