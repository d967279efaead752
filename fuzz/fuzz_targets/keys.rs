//! Key records, key objects, identities, recipients, signing keys and signers: no bytes panic, and what is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_crypt::{CommandSlot, Identities, KeyObject, Keys, ObjectName, Recipient, Signer, SigningKey};

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let (kind, parts) = input;
    let text = || parts.first().map(|bytes| String::from_utf8_lossy(bytes));
    match kind % 6 {
        0 => {
            let Ok(keys) = Keys::decode(&parts) else {
                return;
            };
            let again = Keys::decode(&keys.encode().unwrap()).unwrap();
            assert_eq!(again, keys);
            for slot in keys.slots.iter().filter_map(|slot| CommandSlot::of(&slot.bytes)) {
                assert!(slot.key_id.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
        1 => {
            let read = text().and_then(|text| Identities::parse(&text).ok());
            for identity in read.iter().flat_map(|identities| identities.list()) {
                let name = identity.recipient().name();
                assert_eq!(name.parse::<Recipient>().unwrap().name(), name);
            }
        }
        2 => {
            if let Some(key) = text().and_then(|text| SigningKey::parse(&text).ok()) {
                assert_eq!(SigningKey::parse(&key.line()).unwrap().signer(), key.signer());
            }
        }
        4 => {
            // Most bytes begin like no object; these begin like one.
            let body = parts.concat();
            for bytes in [body.clone(), [&b"LSKEYS\x01\x00"[..], &body].concat()] {
                if let Ok(object) = KeyObject::decode(&bytes) {
                    assert_eq!(object.encode().unwrap(), bytes);
                    let name = object.name().unwrap();
                    assert!(name.fits(&bytes) && ObjectName::parse(&name.to_string()) == Some(name));
                }
            }
            if let Some(name) = text().and_then(|text| ObjectName::parse(&text).map(|name| (name, text.into_owned()))) {
                assert_eq!(name.0.to_string(), name.1);
            }
        }
        3 => {
            if let Some(signer) = text().and_then(|text| text.parse::<Signer>().ok()) {
                assert_eq!(signer.to_string().parse(), Ok(signer));
            }
        }
        _ => {
            if let Some(recipient) = text().and_then(|text| text.parse::<Recipient>().ok()) {
                assert_eq!(recipient.name().parse::<Recipient>().unwrap().name(), recipient.name());
            }
        }
    }
});
