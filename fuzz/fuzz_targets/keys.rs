//! Key records, identities and recipients: no bytes panic, and what is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_crypt::{Identities, Keys, Recipient};

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let (kind, parts) = input;
    let text = || parts.first().map(|bytes| String::from_utf8_lossy(bytes));
    match kind % 3 {
        0 => {
            let Ok(keys) = Keys::decode(&parts) else {
                return;
            };
            let again = Keys::decode(&keys.encode().unwrap()).unwrap();
            assert_eq!(again, keys);
        }
        1 => {
            let read = text().and_then(|text| Identities::parse(&text).ok());
            for identity in read.iter().flat_map(|identities| identities.list()) {
                let name = identity.recipient().name();
                assert_eq!(name.parse::<Recipient>().unwrap().name(), name);
            }
        }
        _ => {
            if let Some(recipient) = text().and_then(|text| text.parse::<Recipient>().ok()) {
                assert_eq!(recipient.name().parse::<Recipient>().unwrap().name(), recipient.name());
            }
        }
    }
});
