//! Goal: `docs/postgres-wal.md` and the code agree about the archive's files.
//! Method: encoders are given values that occur only once; the bytes at each documented offset must be that value.

use longshore_codec::Algorithm;
use longshore_crypt::Signer;
use longshore_wal::object::{
    BLOCKS_MAX, END_FIXED_LEN, End, HEAD_FIXED_LEN, Head, MAC_LEN, PLAIN_MAX, PlainMark, ROW_LEN,
    Row, SEALED_BLOCKS_MAX, SEALED_END_FIXED_LEN, SEALED_ROW_LEN, SIGNED_BLOCKS_MAX, SealedHead,
    WholeMark,
};

use super::support::name;

const PAGE: &str = include_str!("../../../../../docs/postgres-wal.md");

/// The cells of a table.
fn table(title: &str) -> Vec<Vec<&'static str>> {
    let heading = format!("\n### Table: {title}\n");
    let (_, rest) = PAGE.split_once(heading.as_str()).unwrap();
    rest.lines()
        .skip_while(|l| !l.starts_with('|'))
        .take_while(|l| l.starts_with('|'))
        .skip(2)
        .map(|l| l.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Checks the fixed fields of a table, which follow each other without a gap; returns where they end.
fn check(title: &str, bytes: &[u8], expected: &[(&str, u64)]) -> usize {
    let mut end = 0;
    let rows = table(title);
    let fixed: Vec<_> = rows.iter().filter(|r| r[1] != "n").collect();
    assert_eq!(fixed.len(), expected.len(), "{title}");
    for (row, (name, value)) in fixed.iter().zip(expected) {
        let (offset, size): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert_eq!((offset, row[2]), (end, *name), "{title}");
        let mut field = [0; 8];
        field[..size].copy_from_slice(&bytes[offset..offset + size]);
        assert_eq!(u64::from_le_bytes(field), *value, "{title}: {name}");
        end = offset + size;
    }
    end
}

fn head() -> Head {
    Head {
        system: 0x0102_0304_0506_0708,
        plain_len: 0x1112_1314,
        block_bytes: 0x0031_3233,
        segment_bytes: 0x4142_4344,
        magic: 0x5152,
        algorithm: Algorithm::Zstd,
        unfinished: true,
        name: name(1, 3),
        sealed: None,
    }
}

#[test]
fn the_head_is_laid_out_as_the_page_says() {
    let head = head();
    let expected = [
        ("incompatible", 0),
        ("system", head.system),
        ("plain_len", head.plain_len.into()),
        ("block_bytes", head.block_bytes.into()),
        ("segment_bytes", head.segment_bytes.into()),
        ("magic", head.magic.into()),
        ("algorithm", Algorithm::Zstd as u64),
        ("flags", 1),
    ];
    let bytes = head.encode();
    assert_eq!(check("wal head", &bytes, &expected), HEAD_FIXED_LEN);
    let name = head.name.to_string();
    assert_eq!(
        bytes[HEAD_FIXED_LEN..][..2],
        (name.len() as u16).to_le_bytes()
    );
    assert_eq!(&bytes[HEAD_FIXED_LEN + 2..], name.as_bytes());
}

#[test]
fn the_end_and_its_rows_are_laid_out_as_the_page_says() {
    let row = Row {
        stored_len: 0x2122_2324,
        plain: PlainMark::Crc(0x3132_3334),
        stored_crc: 0x4142_4344,
    };
    let end = End {
        head_crc: 0x0102_0304,
        whole: WholeMark::Crc(0x1112_1314),
        rows: vec![row; 2],
    };
    let bytes = end.encode();
    let fixed = [("head_crc", 0x0102_0304), ("plain_crc", 0x1112_1314)];
    assert_eq!(check("wal end", &bytes, &fixed), END_FIXED_LEN);
    let fields = [
        ("stored_len", row.stored_len.into()),
        ("plain_crc", 0x3132_3334),
        ("stored_crc", row.stored_crc.into()),
    ];
    assert_eq!(
        check("wal row", &bytes[END_FIXED_LEN + ROW_LEN..], &fields),
        ROW_LEN
    );
}

/// Fields of more than eight bytes are checked by their offsets.
#[test]
fn an_encrypted_file_is_laid_out_as_the_page_says() {
    let sealed = SealedHead {
        keys_len: 0x6162_6364,
        history: [0x71; 32],
        signer: None,
    };
    let head = Head {
        sealed: Some(sealed),
        ..head()
    };
    let bytes = head.encode();
    assert_eq!(bytes[..8], 1u64.to_le_bytes());
    let fields: Vec<_> = table("encrypted wal head")
        .iter()
        .map(|r| (r[1], r[2]))
        .collect();
    assert_eq!(fields, [("4", "keys_len"), ("32", "history")]);
    let tail = &bytes[bytes.len() - 36..];
    assert_eq!(tail[..4], sealed.keys_len.to_le_bytes());
    assert_eq!(tail[4..], sealed.history);

    let row = Row {
        stored_len: 0x2122_2324,
        plain: PlainMark::Tag([0x31; 16]),
        stored_crc: 0x4142_4344,
    };
    let end = End {
        head_crc: 0x0102_0304,
        whole: WholeMark::Sealed {
            tags: [0x51; 8],
            mac: [0x61; 32],
            signature: None,
        },
        rows: vec![row; 2],
    };
    let bytes = end.encode();
    let sizes =
        |title: &str| -> Vec<(&str, &str)> { table(title).iter().map(|r| (r[1], r[2])).collect() };
    let fixed = [
        ("4", "head_crc"),
        ("8", "tags_id"),
        ("n", "rows"),
        ("32", "mac"),
    ];
    assert_eq!(sizes("encrypted wal end"), fixed);
    let fields = [("4", "stored_len"), ("4", "stored_crc"), ("16", "tag")];
    assert_eq!(sizes("encrypted wal row"), fields);
    assert_eq!(bytes[..4], end.head_crc.to_le_bytes());
    assert_eq!(bytes[4..SEALED_END_FIXED_LEN], [0x51; 8]);
    let second = &bytes[SEALED_END_FIXED_LEN + SEALED_ROW_LEN..][..SEALED_ROW_LEN];
    assert_eq!(second[..4], row.stored_len.to_le_bytes());
    assert_eq!(second[4..8], row.stored_crc.to_le_bytes());
    assert_eq!(second[8..], [0x31; 16]);
    assert_eq!(bytes[bytes.len() - MAC_LEN..], [0x61; 32]);
    assert_eq!(end.authenticated(), bytes[..bytes.len() - MAC_LEN]);
    assert!(PAGE.contains(&format!("at most {SEALED_BLOCKS_MAX} blocks")));

    let signed = Head {
        sealed: Some(SealedHead {
            signer: Some(Signer::from_bytes([0x81; 32])),
            ..sealed
        }),
        ..head
    };
    let bytes = signed.encode();
    assert_eq!(bytes[..8], 5u64.to_le_bytes());
    assert_eq!(bytes[bytes.len() - 32..], [0x81; 32]);
    assert_eq!(sizes("signed wal head"), [("32", "signer")]);
    let whole = WholeMark::Sealed {
        tags: [0x51; 8],
        mac: [0x61; 32],
        signature: Some([0x91; 64]),
    };
    let signed = End { whole, ..end };
    let bytes = signed.encode();
    assert_eq!(sizes("signed wal end"), [("64", "signature")]);
    assert_eq!(bytes[bytes.len() - 64..], [0x91; 64]);
    assert_eq!(signed.signed(), bytes[..bytes.len() - 64]);
    assert_eq!(signed.authenticated(), bytes[..bytes.len() - 96]);
    assert!(PAGE.contains(&format!("at most {SIGNED_BLOCKS_MAX} if it is signed")));
}

#[test]
fn the_limits_are_those_of_the_page() {
    let written = |n: u64| {
        let digits = n.to_string();
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
        let groups: Vec<_> = groups
            .iter()
            .map(|g| std::str::from_utf8(g).unwrap())
            .collect();
        groups.join(",")
    };
    assert!(PAGE.contains(&format!("at most {}", written(PLAIN_MAX.into()))));
    assert!(PAGE.contains(&format!("at most {}.", written(BLOCKS_MAX as u64))));
    assert!(PAGE.contains(&format!(
        "1 to {}",
        written(longshore_codec::PLAIN_LEN_MAX as u64)
    )));
}
