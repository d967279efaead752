//! The contracts of the door traits as tests. Every implementation runs them: the real file system with and without
//! `openat2`, in sandboxes that refuse newer calls, and the simulated disk. Promises of a single implementation have
//! tests of their own.

mod bytes;
mod claims;
mod faults;
mod host;
mod model;
mod names;
mod power;
mod sandbox;
mod trees;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, Host, OpenHow, SimDisk, Storage, Via};
use longshore_kit::random::noise;

/// An empty directory on some storage.
struct Place {
    storage: Box<dyn Storage>,
    path: PathBuf,
    dir: Arc<dyn Dir>,
    _temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn on_the_host(host: Host) -> Self {
        // The umask that the simulated disk assumes; the user who runs the tests may have another.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let temporary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = temporary.path().canonicalize().unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let dir = host.dir(&path).unwrap();
        Self {
            storage: Box::new(host),
            path,
            dir,
            _temporary: Some(temporary),
        }
    }

    fn simulated() -> Self {
        let disk = SimDisk::new(1);
        let path = PathBuf::from("/some/place");
        let dir = disk.create_dir_all(&path).unwrap();
        Self {
            storage: Box::new(disk),
            path,
            dir,
            _temporary: None,
        }
    }
}

/// Every promise, kept by every implementation.
macro_rules! contract {
    ($($room:ident: $($promise:ident)*;)*) => {
        mod the_host { $($(#[test] fn $promise() {
            crate::$room::$promise(&crate::Place::on_the_host(longshore_io::Host::new()));
        })*)* }
        mod the_host_without_openat2 { $($(#[test] fn $promise() {
            crate::$room::$promise(&crate::Place::on_the_host(longshore_io::Host::without_openat2()));
        })*)* }
        mod the_host_in_a_sandbox { $($(#[test] fn $promise() {
            let keep = || crate::$room::$promise(&crate::Place::on_the_host(longshore_io::Host::new()));
            crate::sandbox::refusing(rustix::io::Errno::PERM, keep);
            crate::sandbox::refusing(rustix::io::Errno::NOSYS, keep);
        })*)* }
        mod the_simulated_disk { $($(#[test] fn $promise() {
            crate::$room::$promise(&crate::Place::simulated());
        })*)* }
    };
}

contract! {
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
        data_is_found_around_holes
        allocating_leaves_the_length_alone
        giving_unwritten_space_back_leaves_what_was_written
        a_punched_range_reads_as_zeros_and_nothing_beside_it
        many_threads_write_one_file_at_once
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
        missing_parents_are_made_and_existing_ones_left_alone
        a_directory_named_by_a_person_may_be_reached_through_links
        a_disk_named_by_a_person_is_written_and_a_directory_is_none
        a_removed_file_stays_readable_for_those_who_have_it_open
        every_change_moves_the_time_of_change
        thousands_of_names_are_listed_once_each
        syncing_and_free_space_are_answered;
}

/// Creates a file with these bytes.
fn put(dir: &dyn Dir, name: impl AsRef<Path>, bytes: &[u8]) -> Arc<dyn File> {
    let file = dir.open(name.as_ref(), OpenHow::CreateNew).unwrap();
    file.write_all_at(bytes, 0, Via::Cache).unwrap();
    file
}

/// All bytes of a file.
fn all(dir: &dyn Dir, name: impl AsRef<Path>) -> Vec<u8> {
    let file = dir.open(name.as_ref(), OpenHow::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_exact_at(&mut bytes, 0, Via::Cache).unwrap();
    bytes
}

/// The system's number of the error that a call gave.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}
