//! The fixed records, each from its body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_crypt::StoredSignature;
use longshore_media::block::HeadReader;
use longshore_media::encrypted::Roots;
use longshore_media::{BlockHeader, MediaHeader, SetHeader, SetTrailer};

fuzz_target!(|body: &[u8]| {
    if let Ok(header) = MediaHeader::decode(body) {
        assert_eq!(MediaHeader::decode(&header.encode()), Ok(header));
    }
    if let Ok(header) = SetHeader::decode(body) {
        let _ = SetHeader::decode(&header.encode());
    }
    if let Ok((header, rest)) = BlockHeader::decode(body) {
        assert_eq!([&header.encode()[..], rest].concat(), body);
    }
    if let Ok(trailer) = SetTrailer::decode(body) {
        assert_eq!(trailer.encode()[..], *body);
    }
    if let Ok(roots) = Roots::decode(body)
        && !matches!(roots.claim, StoredSignature::Unknown(_))
    {
        assert_eq!(roots.encode()[..], *body);
    }
    let mut head = HeadReader::default();
    let _ = head.manifest(body);
    let _ = head.block(body);
});
