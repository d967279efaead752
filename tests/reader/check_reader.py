#!/usr/bin/env python3
"""Checks longshore_reader.py itself: `check_reader.py [--identity FILE] [STRIPE...]`.

Goal: the reader computes CRC-32C and XXH32 as published, reads the example of docs/format.md as that page
explains it, and finds damage wherever it is in a stripe.
Method: a slow CRC-32C of another form and published values are the oracles. Of the stripes named on the
command line, a bit of every byte is changed in turn, and the end is cut off at every 7th byte. An encrypted
set is opened with the identity, if one is named.
Not covered: that the reader restores the right content (crates/longshore/tests/golden.rs).
"""

import os
import sys
import tempfile

import longshore_reader as reader

HERE = os.path.dirname(os.path.abspath(__file__))


def slow_crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check_crc():
    assert reader.crc32c(b"123456789") == 0xE3069283
    assert reader.crc32c(b"") == 0
    data = bytes((n * n >> 3) & 0xFF for n in range(9000))
    for size in (1, 3, 4, 5, 31, 511, 512, 513, 1023, 1024, 4097, 9000):
        assert reader.crc32c(data[:size]) == slow_crc32c(data[:size]), size
        head = size // 3
        assert reader.crc32c(data[head:size], slow_crc32c(data[:head])) == slow_crc32c(data[:size]), size


def check_xxh32():
    # Published values for seed 0.
    assert reader.xxh32(b"") == 0x02CC5D05
    assert reader.xxh32(b"a") == 0x550D7456
    assert reader.xxh32(b"abc") == 0x32D153FF
    # The empty frame of the page carries its own.
    assert reader.xxh32(bytes([0x60, 0x40])) >> 8 & 0xFF == reader.LZ4_PREAMBLE[6]


def check_example():
    with open(os.path.join(HERE, "../../docs/format.md"), encoding="utf-8") as page:
        text = page.read().split("```hex\n")[1].split("```")[0]
    example = bytes.fromhex("".join(line[6:] for line in text.splitlines()))
    with tempfile.NamedTemporaryFile() as file:
        file.write(example)
        file.flush()
        stripe = reader.Stripe.__new__(reader.Stripe)
        stripe.path, stripe.container, stripe.len = file.name, reader.GZIP, len(example)
        stripe.file = open(file.name, "rb")
        kind, body, end = stripe.record(0)
        stripe.file.close()
    assert (kind, end) == (reader.BLOCK, len(example))
    block = reader.BlockHeader.parse(body)
    assert str(block.set) == "00112233-4455-6677-8899-aabbccddeeff"
    assert (block.sequence, block.plain_len, block.manifest_crc) == (7, 0, slow_crc32c(block.part))
    entries, marks = reader.parse_manifest(block.part, 0)
    assert marks == [] and len(entries) == 1
    entry = entries[0]
    assert (entry.path, entry.kind, entry.first, entry.mode) == (b"a", reader.FILE, True, 0o644)
    assert (entry.uid, entry.gid, entry.mtime_ns, entry.len) == (1000, 1000, 1_000_000_000, 0)


def check_ciphers():
    # RFC 5869, A.1, and the two ends of BIP 173's examples.
    prk = reader.mac(bytes(range(13)), bytes([0x0B] * 22))
    assert prk.hex() == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"
    okm = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert reader.expand(prk, bytes(range(0xF0, 0xFA)), 42).hex() == okm
    assert reader.bech32("A12UEL5L") == ("a", b"")
    try:
        reader.bech32("A12UEL5M")
        raise AssertionError("a wrong checksum of Bech32 is not noticed")
    except reader.Bad:
        pass


def findings(paths, keyring):
    found = []
    try:
        stripes = reader.open_media(paths)
        rows = reader.rows_of(stripes)
        for row in rows:
            if row.why_incomplete():
                found.append(row.why_incomplete())
            else:
                opened, _ = reader.opened_of(row, keyring, found.append)
                reader.read_set(row, reader.Nothing(), found.append, opened)
            found += [p.damage for p in row.parts if p and p.damage]
    except reader.Damage as damage:
        found.append(damage)
    return found


def check_every_byte(paths, keyring):
    """One bit of every byte, a different one each time, and every 7th truncation."""
    assert not findings(paths, keyring), findings(paths, keyring)
    with tempfile.TemporaryDirectory() as directory:
        changed = os.path.join(directory, "changed")
        for n, path in enumerate(paths):
            with open(path, "rb") as file:
                whole = file.read()
            given = [*paths[:n], changed, *paths[n + 1 :]]

            def noticed(data, what):
                with open(changed, "wb") as file:
                    file.write(data)
                assert findings(given, keyring), f"{path}: {what} is not noticed"

            for at in range(len(whole)):
                flipped = bytearray(whole)
                flipped[at] ^= 1 << at * 5 % 8
                noticed(flipped, f"a flipped bit in byte {at}")
            for size in range(0, len(whole), 7):
                noticed(whole[:size], f"the end at byte {size}")
            noticed(whole + b"\0", "a byte behind the end")


if __name__ == "__main__":
    check_crc()
    check_xxh32()
    check_example()
    check_ciphers()
    given = sys.argv[1:]
    identities = [given[1]] if given[:1] == ["--identity"] else []
    given = given[2 * len(identities) :]
    if given:
        check_every_byte(given, reader.Keyring(identities, []))
    print("ok")
