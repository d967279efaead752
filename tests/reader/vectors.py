#!/usr/bin/env python3
"""Test vectors of encryption, made from docs/format.md and docs/postgres-wal.md by other code than Longshore's.

    vectors.py             prints them (tests/golden/encryption.json)
    vectors.py FILE        ends with 1 unless FILE has them
    vectors.py --object    prints those of a key object (tests/golden/key-object.json)
    vectors.py --object FILE

All inputs are fixed, so each byte that is encrypted is, too: a writer's salts depend on the messages. Bytes are in
hexadecimal. Longshore's own test opens everything, and makes it again. Needs what longshore_reader.py needs.

Method: what the pages say is computed with Python's cryptography; HighwayHash, Bech32 and age's file are written here.
Not covered: hybrid recipients, and several Keys records.
Leaves to others: comparing them with Longshore (`crates/core/crypt/tests/vectors.rs`).
"""

import base64, hashlib, json, struct, sys

from longshore_reader import BECH32, BECH32_STEPS, LABELS, M64, Keys, expand, highway, le, mac, primitive, sha256

SET_KEY, SET = bytes(range(32)), bytes(range(100, 116))
HEADER = SET + b"the rest of the body of a set header"
IDENTITY, EPHEMERAL, FILE_KEY, PASSPHRASE = bytes(range(50, 82)), bytes(range(90, 122)), bytes(range(16)), b"correct horse"
SIGNING, FURTHER = bytes(range(150, 182)), bytes(range(10, 42))


def highway256(key, data):
    v0, v1, mul0, mul1 = highway(key, data, 10)
    out = []
    for low in (0, 2):
        a0, a1 = ((v0[low + n] + mul0[low + n]) & M64 for n in (0, 1))
        a2, a3 = ((v1[low + n] + mul1[low + n]) & M64 for n in (0, 1))
        a3 &= (1 << 62) - 1
        out += [a0 ^ a2 << 1 ^ a2 << 2, a1 ^ (a3 << 1 | a2 >> 63) ^ (a3 << 2 | a2 >> 62)]
    return struct.pack("<4Q", *(word & M64 for word in out))


# HighwayHash's own test vector for 256 bits of no bytes.
EMPTY = (0xDD44482AC2C874F5, 0xD946017313C7351F, 0xB3AEBECCB98714FF, 0x41DA233145751DF4)
assert highway256(bytes(range(32)), b"") == struct.pack("<4Q", *EMPTY)


def seal(cipher, key, message, associated=b"", nonce=bytes(12)):
    return primitive("ciphers.aead", cipher)(key).encrypt(nonce, message, associated)


def bech32(prefix, data):
    bits = "".join(f"{byte:08b}" for byte in data)
    values = [int(bits[at : at + 5].ljust(5, "0"), 2) for at in range(0, len(bits), 5)]
    check = 1
    for value in [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix] + values + [0] * 6:
        top, check = check >> 25, (check & 0x1FFFFFF) << 5 ^ value
        for i, step in enumerate(BECH32_STEPS):
            check ^= step if top >> i & 1 else 0
    check ^= 1
    values += [check >> 5 * (5 - i) & 31 for i in range(6)]
    return prefix + "1" + "".join(BECH32[value] for value in values)


def age_slot(identity=IDENTITY):
    """A file of age for an identity with the set key in it."""
    kinds = primitive("asymmetric.x25519", "X25519PrivateKey")
    ephemeral, own = kinds.from_private_bytes(EPHEMERAL), kinds.from_private_bytes(identity).public_key()
    share, recipient = ephemeral.public_key().public_bytes_raw(), own.public_bytes_raw()
    wrapping = expand(mac(share + recipient, ephemeral.exchange(own)), b"age-encryption.org/v1/X25519")
    text = lambda data: base64.b64encode(data).rstrip(b"=")
    body = text(seal("ChaCha20Poly1305", wrapping, FILE_KEY))
    head = b"age-encryption.org/v1\n-> X25519 " + text(share) + b"\n" + body + b"\n---"
    head += b" " + text(mac(expand(mac(b"", FILE_KEY), b"header"), head)) + b"\n"
    nonce = bytes(range(16))
    return head + nonce + seal("ChaCha20Poly1305", expand(mac(nonce, FILE_KEY), b"payload"), SET_KEY, b"", bytes(11) + b"\1")


def passphrase_slot():
    start = struct.pack("<III", 1024, 2, 1) + bytes(range(16))
    argon = primitive("kdf.argon2", "Argon2id")
    derived = argon(salt=start[12:], length=64, iterations=2, lanes=1, memory_cost=1024).derive(PASSPHRASE)
    start += derived[32:]
    return start + seal("AESGCM", derived[:32], SET_KEY, start)


def records(commitment):
    slots = [(1, age_slot()), (3, passphrase_slot()), (9, b"of a later version")]
    body = le(1, 2) + b"\1\0" + le(0, 2) + le(1, 2) + bytes(range(200, 232)) + commitment
    return [body + b"".join(le(kind, 2) + le(len(data), 2) + data for kind, data in slots)]


def block(of, sequence, manifest, payload):
    fixed = SET + le(sequence, 8) + bytes(range(15))
    hashes = highway256(of["hash"], manifest) + highway256(of["hash"], payload)
    salt = mac(of["salt"], b"b", fixed, hashes)[:16]
    sealed = seal("AESGCM", expand(of["meta"], b"b" + le(sequence, 8) + salt), manifest, b"m" + fixed + salt)
    tag, sealed_payload = bytes(16), b""
    if payload:
        key = expand(of["payload"], b"p" + le(sequence, 8) + salt)
        sealed_payload = seal("AESGCM", key, payload, b"p" + fixed + salt + sealed[-16:])
        tag = sealed_payload[-16:]
    digest = sha256(b"longshore/1/block", le(sequence, 8), salt, sealed[-16:], tag)
    return dict(sequence=sequence, fixed=fixed, manifest=manifest, payload=payload, salt=salt, sealed_manifest=sealed,
                sealed_payload=sealed_payload, digest=digest)


def chunk(of, number, offset, previous, packed):
    family, raw_len = 3, 999
    place = b"i" + SET + struct.pack("<HIQQII", family, number, offset, *previous, raw_len)
    salt = mac(of["salt"], place, highway256(of["hash"], packed))[:16]
    key = expand(of["meta"], b"i" + le(family, 2) + le(number, 4) + salt)
    return dict(family=family, number=number, offset=offset, previous=list(previous), raw_len=raw_len, packed=packed,
                sealed=salt + seal("AESGCM", key, packed, place + salt))


def piece(of, number, message):
    salt = mac(of["salt"], b"w", le(number, 4), highway256(of["hash"], message))[:16]
    key = expand(of["payload"], b"w" + le(number, 4) + salt)
    return dict(number=number, message=message, sealed=salt + seal("AESGCM", key, message, b"w" + le(number, 4) + salt))


def tags():
    secret, system = bytes(range(7, 39)), 0x0123456789ABCDEF
    of = {label: expand(mac(le(system, 8), secret), b"longshore/1/wal/" + label) for label in (b"id", b"tag", b"hash")}
    name, number, plain = b"000000010000000000000003", 5, b"plain bytes of a block"
    covered = le(len(name), 4) + name + le(number, 4) + le(len(plain), 8) + highway256(of[b"hash"], plain)
    return dict(secret=secret, system=system, name=name.decode(), number=number, plain=plain, id=of[b"id"][:8],
                tag=mac(of[b"tag"], covered)[:16])


def signatures(root, records, end):
    """Of the set, and of a file of WAL with these records and this end; the head's body is that of the set header."""
    own = primitive("asymmetric.ed25519", "Ed25519PrivateKey").from_private_bytes(SIGNING)
    parts = b"".join(le(len(part), 4) + part for part in (HEADER, b"".join(records), end))
    seed, signer = bech32("longshore-signing-key-", SIGNING).upper(), bech32("lssigner", own.public_key().public_bytes_raw())
    return dict(
        key=seed, signer=signer, set=own.sign(b"longshore/1/signature" + sha256(HEADER) + root),
        wal=own.sign(b"longshore/1/wal-signature" + sha256(parts)),
    )


def vectors():
    context = Keys.parse(HEADER, records(bytes(32))).context
    prk = mac(context, SET_KEY)
    of = {label: expand(prk, b"longshore/1/" + label.encode()) for label in LABELS}
    blocks = [block(of, 0, b"a manifest\4\1\2\3\4", b"a payload of one block" * 3), block(of, 7, b"another\4\0\0\0\0", b"")]
    chunks = [chunk(of, 0, 4096, (0, 0), b"packed rows"), chunk(of, 1, 9000, (4096, 70), b"")]
    known, framed = b"the known bytes of a media header", [b"framed chunk 0", b"framed chunk 1"]
    family = hashlib.sha256(b"longshore/1/family" + le(len(known), 4) + known)
    for part in (b"b" + blocks[0]["digest"], b"i" + sha256(framed[0]), b"b" + blocks[1]["digest"], b"i" + sha256(framed[1])):
        family.update(part)
    family.update(b"e" + le(2, 8))
    roots, whole, start = [family.digest(), bytes(range(32))], bytes(range(84)), bytes(range(124))
    root = sha256(b"longshore/1/root", context, of["commit"], le(len(whole), 4), whole, le(2, 4), *roots)
    end = b"the end of a file of WAL before its MAC"
    return dict(
        set_key=SET_KEY, identity=bech32("age-secret-key-", IDENTITY).upper(), passphrase=PASSPHRASE.decode(),
        header=HEADER, records=records(of["commit"]), parent_root=bytes(range(200, 232)), context=context, keys=of,
        sums_mask=expand(mac(SET, SET_KEY), b"longshore/1/sums"), blocks=blocks, chunks=chunks,
        family=dict(known=known, chunks=framed, root=roots[0]),
        trailer=dict(whole=whole, families=roots, root=root, start=start, mac=mac(of["mac"], start, root)),
        wal=dict(pieces=[piece(of, 0, b"\1\2\3\4a payload"), piece(of, 1, b"\0\0\0\0")], end=end, mac=mac(of["mac"], b"w", end)),
        tags=tags(), signatures=signatures(root, records(of["commit"]), end),
    )


def object_vectors():
    """A key object of the set of `vectors`, for a further identity, for a passphrase, and with a slot of a later version."""
    context = Keys.parse(HEADER, records(bytes(32))).context
    prk = mac(context, SET_KEY)
    of = {label: expand(prk, b"longshore/1/" + label.encode()) for label in ("commit", "object", "recipient")}
    public = primitive("asymmetric.x25519", "X25519PrivateKey").from_private_bytes(FURTHER).public_key().public_bytes_raw()
    recipient = bech32("age", public)
    marks = [mac(of["recipient"], recipient.encode())[:16], bytes(16), bytes(16)]
    slots = [(1, age_slot(FURTHER)), (3, passphrase_slot()), (9, b"of a later version")]
    made_us = -1_000_000
    covered = b"LSKEYS" + le(1, 2) + SET + of["commit"] + struct.pack("<qH", made_us, len(slots)) + b"".join(marks)
    covered += b"".join(le(kind, 2) + le(len(data), 2) + data for kind, data in slots)
    whole = covered + mac(of["object"], covered)
    return dict(
        header=HEADER, records=records(of["commit"]), identity=bech32("age-secret-key-", FURTHER).upper(), recipient=recipient,
        passphrase=PASSPHRASE.decode(), keys=of, made_us=made_us, mark=marks[0], object=whole,
        name=f"keys-{SET.hex()}-{sha256(whole).hex()[:16]}.lsk",
    )


def main():
    arguments = sys.argv[1:]
    made = object_vectors if arguments[:1] == ["--object"] else vectors
    arguments = [argument for argument in arguments if argument != "--object"]
    text = json.dumps(made(), indent=1, default=bytes.hex) + "\n"
    if not arguments:
        return print(text, end="")
    with open(arguments[0], encoding="utf-8") as file:
        sys.exit(None if file.read() == text else f"{arguments[0]} has other vectors than this program makes")


if __name__ == "__main__":
    main()
