//! The codec of PAGES: pages of PostgreSQL and SQLite made from a seed and changed by the input, with any layouts, come back;
//! and their payloads, changed by the input, are decoded or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longshore_codec::{
    Algorithm, Column, Compressor, Decompressor, Layout, Level, Part, payload_bound,
};
use longshore_kit::pages::Buffer;
use longshore_kit::{Random, cells};

/// The next bytes of the input; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let len = self.0.len().min(N);
        let (now, rest) = self.0.split_at(len);
        bytes[..len].copy_from_slice(now);
        self.0 = rest;
        bytes
    }

    fn place(&mut self, end: usize) -> usize {
        u16::from_le_bytes(self.take()) as usize % end
    }
}

fn set_len(payload: &mut [u8]) {
    let follow = (payload.len() - 8) as u32;
    payload[4..8].copy_from_slice(&follow.to_le_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let [what, level, changes] = input.take();
    if what % 4 == 0 {
        // Any bytes behind a valid head.
        let plain_len = input.place(1 << 16);
        let mut payload = [&[0x5c, 0x2a, 0x4d, 0x18, 0, 0, 0, 0, 1][..], input.0].concat();
        set_len(&mut payload);
        let mut plain = vec![0; plain_len];
        let _ = Decompressor::new().decompress(Algorithm::Pages, &payload, &mut plain);
        return;
    }
    let seed = u32::from_le_bytes(input.take());
    let most = 1 + input.place(1 << 15);
    let mut random = Random(seed.into());
    let mut buffer = match what & 4 {
        0 => Buffer::new(&mut random, most),
        _ => cells::buffer(&mut random, most),
    };
    if what % 4 < 3 {
        for _ in 0..changes % 32 {
            let at = input.place(buffer.bytes.len());
            let [byte] = input.take();
            buffer.bytes[at] = byte;
        }
        for _ in 0..changes / 32 {
            let at = input.place(buffer.parts.len());
            if let (_, Some(attributes)) = &mut buffer.parts[at] {
                let at = input.place(attributes.len());
                attributes[at] = (i16::from_le_bytes(input.take()), 1 << (input.place(4)));
            }
        }
    }
    let layouts: Vec<Option<Layout>> = buffer
        .parts
        .iter()
        .map(|(_, attributes)| {
            let columns = attributes.as_ref()?.iter().map(|(len, align)| Column {
                len: *len,
                align: *align,
            });
            Layout::new(columns.collect::<Vec<_>>())
        })
        .collect();
    let parts: Vec<Part<'_>> = buffer
        .parts
        .iter()
        .zip(&layouts)
        .map(|((len, _), layout)| Part {
            len: *len,
            layout: layout.as_ref(),
        })
        .collect();
    let level = [Level::Low, Level::Medium, Level::High][usize::from(level) % 3];
    let plain = &buffer.bytes;
    let mut out = vec![0; payload_bound(Algorithm::Pages, plain.len())];
    let encoded = Compressor::new(Algorithm::Pages, level)
        .unwrap()
        .compress_parts(plain, &parts, &mut out);
    out.truncate(encoded.len);
    let mut back = vec![0x5a; plain.len()];
    let mut decompressor = Decompressor::new();
    decompressor
        .decompress(Algorithm::Pages, &out, &mut back)
        .expect("what was encoded is decoded");
    assert!(back == *plain, "other bytes come back");
    if what % 4 == 3 {
        for _ in 0..1 + changes % 8 {
            let at = 9 + input.place((out.len() - 9).max(1));
            let [how, byte] = input.take();
            match how % 4 {
                _ if at >= out.len() => {}
                0 => out[at] = byte,
                1 => drop(out.remove(at)),
                2 => out.insert(at, byte),
                _ => out.truncate(at),
            }
        }
        set_len(&mut out);
        let _ = decompressor.decompress(Algorithm::Pages, &out, &mut back);
    }
});
