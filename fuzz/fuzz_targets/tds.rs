//! TDS: no bytes of a client make the reader of packets, logins, batches or calls panic or allocate what is not there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_tds::{Incoming, PacketKind, Login, PreLogin, Transaction, batch_text, calls};

fuzz_target!(|bytes: &[u8]| {
    let max = 1 << 16;
    let mut incoming = Incoming::new(max);
    for piece in bytes.chunks(61) {
        incoming.push(piece);
        // As a server without room for it does.
        if incoming.held() > 4096 {
            incoming.drop_body();
        }
        while let Ok(Some(message)) = incoming.message() {
            assert!(message.body.len() <= max);
            // Refusals are answers.
            match message.kind {
                PacketKind::PreLogin => drop(PreLogin::parse(&message.body)),
                PacketKind::Login => drop(Login::parse(&message.body)),
                PacketKind::SqlBatch => drop(batch_text(&message.body)),
                PacketKind::Rpc => drop(calls(&message.body)),
                PacketKind::Transaction => drop(Transaction::parse(&message.body)),
                _ => {}
            }
        }
    }
});
