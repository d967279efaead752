//! Goal: a fault of one file, at home or in a copy, pays no debt and keeps no other file from coming; nothing of the server comes
//! behind another branch's file.
//! Method: simulated disks with hand-made segments, of which single files are damaged, unreadable or another branch's.
//! Not covered: real servers (`wal/owed.rs` of the program).

use std::path::Path;
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_crypt::{Identities, Identity, Keyring, Recipients};
use longshore_io::SimDisk;
use longshore_wal::{Error, StorageForm};

use crate::owing::{MAIN, Three, control, held};
use crate::support::*;

/// Goal: an encrypted file that nobody can open, because the slots of its key are damaged, pays nothing, and a copy gives none.
/// Method: no identity is here, so the file is recognized by tags alone; the slots lie before the first block.
#[test]
fn a_file_whose_slots_are_damaged_pays_nothing_and_does_not_come() {
    let identity = Identity::new_hybrid().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let sealed = StorageForm {
        recipients: Some(Arc::new(recipients)),
        ..form(Algorithm::Zstd)
    };
    let keyring = Arc::new(Keyring::new(Identities::new(vec![identity]), false));
    for (is_home, has_copy, has_file) in [
        (true, true, false),
        (true, false, false),
        (true, false, true),
        (false, true, false),
        (false, true, true),
    ] {
        let case = format!("{is_home} {has_copy} {has_file}");
        let three = Three::new();
        let data = Path::new(WAL).parent().unwrap();
        let path = data.join("global/pg_control");
        three.server.write_file(path, &control()).unwrap();
        let tags = three.pg_wal().tag_key();
        let at = |disk: &SimDisk| archive(disk).unwrap().with_tags(tags.clone());
        three.took(0, 3);
        three.lost(0, 3);
        let out = outgoing(&three.copies[1], name(1, 3), &segment(1, 3, 3));
        if has_copy {
            let copy = at(&three.copies[0]);
            copy.push(&out, &sealed, &*clock()).unwrap();
        }
        let disk = match is_home {
            true => &three.home,
            false => &three.copies[0],
        };
        at(disk).push(&out, &sealed, &*clock()).unwrap();
        let path = stored(disk, name(1, 3));
        let whole = disk.read_file(&path).unwrap();
        let mut bytes = whole.clone();
        bytes[600] ^= 1;
        disk.write_file(&path, &bytes).unwrap();
        if has_file {
            outgoing(&three.server, name(1, 3), &segment(1, 3, 3));
        }
        let settled = three.settle_with(Some(at(&three.home)), &sealed, true);
        if (is_home, has_file) == (false, true) {
            assert!(settled.unsettled.is_none(), "{case}: {settled:?}");
            assert_eq!(three.owed(), [], "{case}");
        } else {
            assert!(
                matches!(
                    settled.unsettled,
                    Some(Error::Damaged { .. } | Error::Lost { .. })
                ),
                "{case}: {settled:?}"
            );
            assert_eq!(three.owed(), [name(1, 3)], "{case}");
            let is_in_the_way = is_home && (has_copy || has_file);
            assert_eq!(three.owed_of(MAIN).is_in_the_way, is_in_the_way, "{case}");
            disk.write_file(&path, &whole).unwrap();
            three.settle_with(Some(at(&three.home)), &sealed, true);
            assert_eq!(three.owed(), [], "{case}");
        }
        let reader = at(&three.home).with_keyring(&keyring);
        reader.verify(name(1, 3)).unwrap();
        assert_eq!(held(&three.home), [1, 2], "{case}: encrypted");
    }
}
