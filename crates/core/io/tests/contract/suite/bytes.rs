//! Goal: the promises about one open file hold for a file with a name, another handle of it sees the same, and holes,
//! modes and locks are as the traits say.
//! Method: promises about an empty directory, which `main.rs` makes tests of each implementation; those of `alone.rs`
//! are held by a new file in it.
//! Not covered: what a power cut leaves (`power.rs`).

use std::io::ErrorKind;
use std::path::Path;

use longshore_io::{File, OpenHow, Via};

use super::alone::{self, WAYS};
use super::{Place, all, put};

/// A promise about one open file, after which another handle reads what the first one does.
fn one_file_keeps(place: &Place, promise: fn(&dyn File)) {
    let file = put(&*place.dir, "file", b"");
    promise(&*file);
    assert_eq!(all(&*place.dir, "file"), alone::content(&*file));
}

pub fn what_was_written_is_read_by_every_way_at_every_alignment(place: &Place) {
    one_file_keeps(
        place,
        alone::what_was_written_is_read_by_every_way_at_every_alignment,
    );
}

pub fn reading_is_short_at_the_end_and_empty_beyond_it(place: &Place) {
    one_file_keeps(
        place,
        alone::reading_is_short_at_the_end_and_empty_beyond_it,
    );
}

pub fn a_file_is_cut_and_extended_with_zeros(place: &Place) {
    one_file_keeps(place, alone::a_file_is_cut_and_extended_with_zeros);
}

pub fn writing_beyond_the_end_leaves_zeros_between(place: &Place) {
    one_file_keeps(place, alone::writing_beyond_the_end_leaves_zeros_between);
}

pub fn whatever_is_not_zero_is_told_as_data(place: &Place) {
    one_file_keeps(place, alone::whatever_is_not_zero_is_told_as_data);
}

pub fn allocating_leaves_the_length_alone(place: &Place) {
    one_file_keeps(place, alone::allocating_leaves_the_length_alone);
}

pub fn giving_unwritten_space_back_leaves_what_was_written(place: &Place) {
    one_file_keeps(
        place,
        alone::giving_unwritten_space_back_leaves_what_was_written,
    );
}

pub fn a_zeroed_range_reads_as_zeros_and_nothing_beside_it(place: &Place) {
    one_file_keeps(
        place,
        alone::a_zeroed_range_reads_as_zeros_and_nothing_beside_it,
    );
}

pub fn dropping_the_cache_changes_no_byte(place: &Place) {
    one_file_keeps(place, alone::dropping_the_cache_changes_no_byte);
}

pub fn many_threads_write_one_file_at_once(place: &Place) {
    one_file_keeps(place, alone::many_threads_write_one_file_at_once);
}

pub fn a_lock_is_given_to_its_holder_again(place: &Place) {
    one_file_keeps(place, alone::a_lock_is_given_to_its_holder_again);
}

pub fn offsets_no_file_can_have_are_errors(place: &Place) {
    one_file_keeps(place, alone::offsets_no_file_can_have_are_errors);
}

pub fn a_file_opened_for_reading_is_not_writable(place: &Place) {
    put(&*place.dir, "file", b"untouched");
    let file = place.dir.open(Path::new("file"), OpenHow::Read).unwrap();
    for via in WAYS {
        assert!(file.write_at(b"x", 0, via).is_err());
    }
    assert!(file.set_len(0).is_err() && file.allocate(0..1 << 20).is_err());
    assert_eq!(all(&*place.dir, "file"), b"untouched");
}

pub fn creating_refuses_an_existing_name_and_opening_a_missing_one(place: &Place) {
    put(&*place.dir, "file", b"untouched");
    let file = Path::new("file");
    assert_eq!(
        place.dir.open(file, OpenHow::CreateNew).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    for how in [OpenHow::Read, OpenHow::ReadWrite] {
        assert_eq!(
            place.dir.open(Path::new("none"), how).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(place.dir.open(file, how).unwrap().stat().unwrap().len, 9);
    }
    assert_eq!(place.dir.stat(file).unwrap().mode, 0o600);
}

pub fn data_is_found_around_holes(place: &Place) {
    const MIB: u64 = 1 << 20;
    let file = put(&*place.dir, "file", b"");
    file.set_len(16 * MIB).unwrap();
    for at in [3 * MIB, 9 * MIB] {
        file.write_all_at(&[7; 4096], at, Via::Cache).unwrap();
    }
    let (mut at, mut data_bytes) = (0, 0);
    while let Some(range) = file.next_data(at).unwrap() {
        data_bytes += range.end - range.start;
        at = range.end;
    }
    assert!(
        (2 * 4096..MIB).contains(&data_bytes),
        "{data_bytes} bytes of data found"
    );
}

pub fn a_lock_is_refused_to_others_until_its_holder_is_gone(place: &Place) {
    let holder = put(&*place.dir, "file", b"");
    let other = place
        .dir
        .open(Path::new("file"), OpenHow::ReadWrite)
        .unwrap();
    assert!(holder.try_lock().unwrap());
    assert!(!other.try_lock().unwrap());
    drop(holder);
    assert!(other.try_lock().unwrap());
}
