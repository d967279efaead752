#!/usr/bin/env python3
"""Reads one encrypted file of a WAL archive; written from docs/postgres-wal.md ("Encrypted objects") alone.

    longshore_wal_reader.py FILE --identity IDENTITY [--signer SIGNER]... > SEGMENT

Needs what longshore_reader.py needs, whose keys and codecs it takes.

Invariants
- The plain bytes are written only if every checksum, every tag, the MAC and the signature agree, if there is one.
- With a signer, a file that none of those named has signed is refused.

Leaves to others: the archive around the file, and its tags, which need the cluster's secret.
"""

import argparse, hmac, sys

from longshore_reader import (
    SIGNERS, Bad, Fields, Keyring, Keys, bech32, crc32c, decode, expand, le, mac, need, sha256, signed_by, unseal
)

WAL, WAL_END, KEYS = 7, 8, 9
RECORD, FRAME = bytes.fromhex("5a2a4d18"), bytes.fromhex("5c2a4d18")


def record(data, at, kind):
    """The body of a record in a zstd container, and where it ends."""
    need(data[at : at + 4] == RECORD, "no record where one should be")
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    framed = data[at + 8 : at + 8 + size]
    need(len(framed) == size >= 16 and framed[:4] == b"LSHR" and framed[4] == kind, "another record, or none")
    need(framed[5:8] == bytes(3) and framed[8:12] == le(size - 16, 4), "a record's head is wrong")
    need(framed[12:16] == le(crc32c(framed[:12] + framed[16:]), 4), "a record's checksum is wrong")
    return framed[16:], at + 8 + size


def read(data, keyring):
    head, at = record(data, 0, WAL)
    f = Fields(head)
    features = f.u(8)
    need(features & 1 and features < 8, "not an encrypted file of this version")
    f.u(8)
    plain_len, block_bytes = f.u(4), f.u(4)
    f.u(4), f.u(2)
    algorithm, _ = f.u(1), f.u(1)
    need(bool(features & 2) == (algorithm == 6), "PAGES without its feature bit, or the reverse")
    f.take(f.u(2))
    keys_len = f.u(4)
    f.take(32)
    signer = bytes(f.take(32)) if features & 4 else None
    need(f.at == len(head) and block_bytes, "the head has other fields")
    bodies, keys_at, end = [], at, at + keys_len
    while at < end:
        body, at = record(data, at, KEYS)
        bodies.append(body)
    need(at == end, "the Keys records have another length")
    keys = Keys.parse(head, bodies)
    need(keys.parent_root == bytes(32), "a file has no parent")
    opened = keyring.open(keys)
    need(opened, "no identity is named")

    count = -(-plain_len // block_bytes)
    rows_at = len(data) - 24 * count - 32 - (64 if signer else 0)
    body, after = record(data, rows_at - 8 - 16 - 12, WAL_END)
    need(after == len(data), "bytes follow the end")
    need(body[:4] == le(crc32c(head), 4), "the end is of another head")
    if signer:
        body, signature = body[:-64], bytes(body[-64:])
        parts = b"".join(le(len(part), 4) + bytes(part) for part in (head, data[keys_at:end], body))
        signed_by(b"longshore/1/wal-signature" + sha256(parts), (signer, signature))
    need(signer or not SIGNERS, "it is not signed")
    need(hmac.compare_digest(mac(opened.of["mac"], b"w", body[:-32]), body[-32:]), "the MAC of the end is wrong")
    plain = b""
    for number in range(count):
        row = body[12 + 24 * number :][:24]
        size = int.from_bytes(row[:4], "little")
        stored, at = data[at : at + size], at + size
        need(len(stored) == size >= 44 and row[4:8] == le(crc32c(stored), 4), f"block {number}: its checksum is wrong")
        need(stored[:8] == FRAME + le(size - 8, 4), f"block {number}: not the frame of an encrypted block")
        salt = stored[8:24]
        key = expand(opened.of["payload"], b"w" + le(number, 4) + salt)
        message = unseal("AESGCM", key, stored[24:], b"w" + le(number, 4) + salt)
        need(message is not None, f"block {number}: its tag is wrong")
        length = min(block_bytes, plain_len - number * block_bytes)
        block = decode(algorithm, message[4:], length)
        need(message[:4] == le(crc32c(block), 4), f"block {number}: the checksum of its plain bytes is wrong")
        plain += block
    need(at == rows_at - 8 - 16 - 12, "bytes stand between the blocks and the end")
    return plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("file")
    parser.add_argument("--identity", action="append", required=True)
    parser.add_argument("--signer", action="append", default=[], help="who must have signed it: lssigner1...")
    options = parser.parse_args()
    with open(options.file, "rb") as file:
        data = file.read()
    try:
        SIGNERS.update(bech32(signer)[1] for signer in options.signer)
        plain = read(data, Keyring(options.identity, []))
    except Bad as bad:
        sys.exit(f"{options.file}: {bad}")
    sys.stdout.buffer.write(plain)


if __name__ == "__main__":
    main()
