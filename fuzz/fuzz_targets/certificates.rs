//! Certificates, files of private keys and slots of certificates: no bytes panic, and what is read is what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_crypt::{Certificate, CertificateSlot, PrivateKey, is_private_key};

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    match kind % 3 {
        0 => {
            if let Ok(read) = Certificate::of_file(bytes) {
                assert_eq!(Certificate::of_der(read.der()).unwrap(), read);
            }
        }
        1 => {
            let _ = is_private_key(bytes);
            let _ = PrivateKey::of_file(bytes, Some(b"a password"));
            if let Ok(key) = PrivateKey::of_file(bytes, None) {
                assert_eq!(PrivateKey::of_pkcs8(key.pkcs8()).unwrap().pkcs8(), key.pkcs8());
            }
        }
        _ => {
            if let Some(slot) = CertificateSlot::of(bytes) {
                assert_eq!(slot.key_id, bytes[2..22]);
            }
        }
    }
});
