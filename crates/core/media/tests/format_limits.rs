//! Goal: the limits of `docs/format.md` are those of the code.
//! Method: the page's table of limits is read, and compared with the constants.

use std::collections::BTreeMap;

use longshore_io::XATTRS_BYTES_MAX;
use longshore_media::block::{self, MANIFEST_HEAD_LEN};
use longshore_media::header::*;
use longshore_media::parity::{ROW_BYTES, ROW_BYTES_MIN};
use longshore_media::record::{self, Container};
use longshore_media::{index, manifest};

#[path = "support/page.rs"]
mod page;
use page::{number, says, table};

#[test]
fn limits_are_those_of_the_code() {
    let extra = |manifest_len| block::head_len(Container::Zstd, manifest_len) - manifest_len;
    let manifest_record = Container::Zstd.framed_len(0) + MANIFEST_HEAD_LEN;
    let code: BTreeMap<&str, usize> = [
        ("BODY_MAX", record::BODY_MAX),
        ("FAMILIES_MAX", usize::from(FAMILIES_MAX)),
        ("SLOTS_MAX", longshore_crypt::SLOTS_MAX),
        ("OBJECT_MAX", longshore_crypt::OBJECT_MAX),
        ("OBJECTS_MAX", longshore_crypt::OBJECTS_MAX),
        ("FOUND_MAX", longshore_crypt::FOUND_MAX),
        ("NAMES_MAX", longshore_media::device::NAMES_MAX),
        ("COSTLY_MAX", longshore_crypt::COSTLY_MAX),
        ("PARITY_MAX", usize::from(PARITY_MAX)),
        ("ROW_BYTES_MIN", ROW_BYTES_MIN as usize),
        ("ROW_BYTES", ROW_BYTES as usize),
        ("SETS_MAX", SETS_MAX as usize),
        ("PLAIN_MAX", PLAIN_MAX),
        ("MANIFEST_MAX", MANIFEST_MAX),
        ("XATTRS_BYTES_MAX", XATTRS_BYTES_MAX),
        (
            "MANIFEST_PARTS_MAX",
            (extra(MANIFEST_MAX) - extra(0)) / manifest_record,
        ),
        ("PATH_MAX", manifest::PATH_MAX),
        ("CHUNK_RAW", index::CHUNK_RAW),
        ("CHUNK_RAW_MAX", index::CHUNK_RAW_MAX),
        ("INDEX_PARTS_MAX", index::PARTS_MAX),
        ("TRAILER_LEN", TRAILER_LEN),
        ("BLOCK_FIXED_LEN", BLOCK_FIXED_LEN),
    ]
    .into();
    let page: BTreeMap<&str, usize> = table("limits")
        .iter()
        .map(|row| (row[0], number(row[1]).unwrap() as usize))
        .collect();
    assert_eq!(page, code);
    // Limits that the text repeats.
    for words in [
        "bytes of the body, at most 15,900",
        "1 to 4,194,304",
        "bytes of the whole manifest, at most 65,536",
        "after inflating, at most 327,740",
        "records of the chunk, at most 24",
        "when its raw bytes reach 262,144",
        "There are at most 4.",
    ] {
        assert!(says(words), "{words}");
    }
}
