//! Goal: bytes of any kind make nothing panic and nothing grow beyond the bytes sent, and valid messages survive being
//! split.
//! Method: random bytes, changed logins, and random texts in packets of random lengths.
//! Not covered: encryption, and real clients.

use longshore_tds::{
    Incoming, Login, PacketKind, PreLogin, Procedure, Transaction, Value, batch_text, calls,
};
use proptest::prelude::*;

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// LOGIN7 with its texts in the order of the protocol, and feature extensions.
fn login7(user: &str, password: &str, features: &[u8]) -> Vec<u8> {
    let hidden: Vec<u8> = wide(password)
        .iter()
        .map(|b| b.rotate_left(4) ^ 0xa5)
        .collect();
    let texts = [
        wide("desk"),
        wide(user),
        hidden,
        wide("test"),
        wide("there"),
    ];
    let mut body = vec![0; 36];
    body[4..8].copy_from_slice(&0x7400_0004_u32.to_le_bytes());
    body[8..12].copy_from_slice(&8000_u32.to_le_bytes());
    if !features.is_empty() {
        body[27] |= 0x10;
    }
    let mut at: u16 = 94;
    let mut put = |body: &mut Vec<u8>, bytes: usize, count: usize| {
        body.extend(at.to_le_bytes());
        body.extend((count as u16).to_le_bytes());
        at += bytes as u16;
    };
    for text in &texts {
        put(&mut body, text.len(), text.len() / 2);
    }
    put(&mut body, 4, if features.is_empty() { 0 } else { 4 });
    body.resize(94, 0);
    texts.iter().for_each(|t| body.extend(t));
    let list = body.len() as u32 + 4;
    body.extend(list.to_le_bytes());
    body.extend(features);
    let len = body.len() as u32;
    body[..4].copy_from_slice(&len.to_le_bytes());
    body
}

fn read_all(body: &[u8]) {
    // A refusal is an answer.
    let _answer = PreLogin::parse(body);
    let _answer = Login::parse(body);
    let _answer = batch_text(body);
    let _answer = Transaction::parse(body);
    if let Ok(calls) = calls(body) {
        for call in &calls {
            assert!(call.parameters.len() <= body.len());
            for parameter in &call.parameters {
                match &parameter.value {
                    // One byte of a code page is at most three bytes of UTF-8.
                    Value::Text(text) => assert!(text.len() <= 3 * body.len()),
                    Value::Binary(bytes) => assert!(bytes.len() <= body.len()),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_login_is_read_with_all_it_says() {
    let login = Login::parse(&login7("Ada", "pass ü \u{1f6a2}", &[])).unwrap();
    assert_eq!(
        (
            login.user.as_str(),
            login.password.reveal(),
            login.host.as_str()
        ),
        ("Ada", "pass ü \u{1f6a2}", "desk")
    );
    assert_eq!((login.packet_len, login.has_features), (8000, false));
    assert!(!format!("{login:?}").contains("pass ü"));
    let asks = [0x0a, 1, 0, 0, 0, 1, 0x02, 2, 0, 0, 0, 7, 7, 0xff];
    let login = Login::parse(&login7("Ada", "", &asks)).unwrap();
    assert!(login.has_features && login.federated);
    assert!(Login::parse(&login7("Ada", "", &asks[..13])).is_err());
    let mut old = login7("Ada", "", &[]);
    old[4..8].copy_from_slice(&0x7100_0001_u32.to_le_bytes());
    assert!(Login::parse(&old).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_are_too_strange(body in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_all(&body);
        read_all(&[&[4, 0, 0, 0][..], &body].concat());
        read_all(&[&[4, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0, 0, 0][..], &body].concat());
    }

    #[test]
    fn no_change_to_a_login_is_too_strange(at in 0..200_usize, byte: u8, len in 0..300_usize) {
        let mut body = login7("Ada", "secret", &[0x0a, 1, 0, 0, 0, 1, 0xff]);
        let at = at % body.len();
        body[at] = byte;
        read_all(&body);
        body.truncate(len);
        let short = body.len() as u32;
        if body.len() >= 4 {
            body[..4].copy_from_slice(&short.to_le_bytes());
        }
        read_all(&body);
    }

    #[test]
    fn packets_never_hold_more_than_was_pushed(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        max in 0..2000_usize,
    ) {
        let mut incoming = Incoming::new(max);
        'connection: for piece in &pieces {
            incoming.push(piece);
            loop {
                match incoming.message() {
                    Ok(Some(message)) => prop_assert!(message.body.len() <= max),
                    Ok(None) => break,
                    Err(_) => break 'connection,
                }
            }
        }
    }

    #[test]
    fn messages_come_back_however_they_were_cut(
        text in "\\PC{0,300}",
        packet_len in 1..200_usize,
        read_len in 1..300_usize,
    ) {
        let body = [vec![4, 0, 0, 0], wide(&text)].concat();
        let pieces: Vec<_> = body.chunks(packet_len).collect();
        let mut bytes = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            bytes.extend([1, u8::from(i + 1 == pieces.len())]);
            bytes.extend((piece.len() as u16 + 8).to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(*piece);
        }
        let mut incoming = Incoming::new(body.len());
        let mut found = None;
        for read in bytes.chunks(read_len) {
            incoming.push(read);
            if let Some(message) = incoming.message().unwrap() {
                found = Some(message);
            }
        }
        let message = found.unwrap();
        prop_assert_eq!(message.kind, PacketKind::SqlBatch);
        prop_assert_eq!(batch_text(&message.body).unwrap(), text);
        prop_assert!(!incoming.has_begun());
    }

    #[test]
    fn texts_pass_through_calls(text in "\\PC{0,200}", name in "[a-z]{1,20}") {
        let mut body = vec![4, 0, 0, 0];
        body.extend((name.len() as u16).to_le_bytes());
        body.extend(wide(&name));
        body.extend([0, 0, 0, 0, 0xe7, 0xff, 0xff, 9, 4, 0xd0, 0, 0x34]);
        let bytes = wide(&text);
        body.extend(u64::MAX.wrapping_sub(1).to_le_bytes());
        for piece in bytes.chunks(7) {
            body.extend((piece.len() as u32).to_le_bytes());
            body.extend(piece);
        }
        body.extend(0_u32.to_le_bytes());
        let calls = calls(&body).unwrap();
        prop_assert_eq!(&calls[0].procedure, &Procedure::Named(name));
        prop_assert_eq!(&calls[0].parameters[0].value, &Value::Text(text.into()));
    }
}
