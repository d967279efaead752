#!/usr/bin/env python3
"""Reads Longshore backups without Longshore.

Written from docs/format.md alone, with nothing but Python's standard library (3.11 or later); for ZSTD
payloads, `compression.zstd` of Python 3.14 or the `zstd` command. It is slow (tens of megabytes are
fine) and meant as a second opinion: it checks every byte that the page says can be checked.

    longshore_reader.py list STRIPE...
    longshore_reader.py facts STRIPE...
    longshore_reader.py verify [--position N] STRIPE...
    longshore_reader.py restore [--position N] [--parent TREE] --to DIRECTORY STRIPE...

The stripes may be named in any order. Exit status: 0 all is well, 1 damage (named on standard error),
2 usage. `facts` shows what the set headers say of the sources, one fact a line. `restore` wants a
directory that does not exist or is empty. A differential set is restored with `--parent`, the directory
that its parent was restored to before.

This is one file on purpose: in an emergency it is copied, alone, to a machine that has stripes and Python.
Its parts are in the order of a reader's work, each under a line: limits, checksums, payloads, records, page
sums, manifests, stripes, sets, content, commands.

Invariants
- It shares no code with Longshore, and knows only what docs/format.md says.
- Every finding is named and makes the exit status 1; a restore that met one says that its copy is not good.
- A restore writes below its directory only, and never through a symbolic link.

Leaves to others: whether it is right itself (check_reader.py), and speed (longshore).
"""

import argparse
import os
import re
import stat
import struct
import subprocess
import sys
import uuid
import zlib
from dataclasses import dataclass, field

# ---------------------------------------------------------------- limits and constants of the page

BODY_MAX = 15_900
FAMILIES_MAX = 64
SETS_MAX = 65_536
PLAIN_MAX = 4_194_304
MANIFEST_MAX = 65_536
MANIFEST_PARTS_MAX = 4
PATH_MAX = 4_095
CHUNK_RAW = 262_144
CHUNK_RAW_MAX = 327_708
INDEX_PARTS_MAX = 24
TRAILER_LEN = 192
BLOCK_FIXED_LEN = 72
DIFFERENTIAL = 1 << 1
LOG = 1 << 2
ATTRIBUTES = 1 << 4
ATTRIBUTES_MAX = 48 << 10
SUMS = 1 << 3
LINEAGE = 1 << 0
IDENTITY = 1 << 1
LINEAGE_MAX = 4_096
IDENTITY_MAX = 2_563
IDENTITY_NAME_MAX = 2_048
KNOWN_MAX = 64

MEDIA, SET, MANIFEST, BLOCK, INDEX, TRAILER = 1, 2, 3, 4, 5, 6
KINDS = {MEDIA: "Media", SET: "Set", MANIFEST: "Manifest", BLOCK: "Block", INDEX: "Index", TRAILER: "Trailer"}
GZIP, ZSTD, LZ4 = 1, 2, 3
CONTAINERS = {GZIP: "gzip", ZSTD: "zstd", LZ4: "lz4"}
ALGORITHMS = {1: ("NONE", LZ4), 2: ("MS_XPRESS", LZ4), 3: ("QAT_DEFLATE", GZIP), 4: ("ZSTD", ZSTD), 5: ("LZ4", LZ4)}

GZIP_HEAD = bytes.fromhex("1f8b08040000000000ff")
GZIP_TAIL = bytes.fromhex("03000000000000000000")
SKIPPABLE = bytes.fromhex("5a2a4d18")
LZ4_PREAMBLE = bytes.fromhex("04224d1860408200000000")


class Damage(Exception):
    """Something is not what the page says it must be."""

    def __init__(self, where, offset, what):
        super().__init__(f"{where}: at byte {offset}: {what}")


class Bad(Exception):
    """The same, before anybody knows where."""


def need(condition, what):
    if not condition:
        raise Bad(what)


# ---------------------------------------------------------------- CRC-32C

# Small inputs go byte by byte through a table. Large ones are one big integer, which is a polynomial
# over GF(2): its first half is multiplied by x^n mod P and added to the second, which is a few shifts
# and XORs of long integers (the reflected order makes "times x" a shift to the right).

POLY = 0x1_1EDC_6F41


def _table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = _table()
_POWERS = {}


def _power_of_x(n):
    """The exponents of x^n mod P, n a power of two."""
    if n not in _POWERS:
        value, reached = 2, 1
        while reached < n:
            product = 0
            for bit in range(32):
                if value >> bit & 1:
                    product ^= value << bit
            for bit in range(63, 31, -1):
                if product >> bit & 1:
                    product ^= POLY << (bit - 32)
            value, reached = product, reached * 2
        _POWERS[n] = [bit for bit in range(32) if value >> bit & 1]
    return _POWERS[n]


def crc32c(data, crc=0):
    register = crc ^ 0xFFFFFFFF
    if len(data) >= 512:
        bits = 8 * len(data)
        message = int.from_bytes(data, "little") ^ register
        while bits > 2048:
            n = 1 << (bits - 1).bit_length() - 1
            head_bits = bits - n
            head = message & ((1 << head_bits) - 1)
            folded_bits = max(n, head_bits + 32)
            folded = (message >> head_bits) << (folded_bits - n)
            for exponent in _power_of_x(n):
                folded ^= head << (folded_bits - head_bits - exponent)
            message, bits = folded, folded_bits
        data, register = message.to_bytes((bits + 7) // 8, "little"), 0
        assert bits % 8 == 0
    table = CRC_TABLE
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


# ---------------------------------------------------------------- payloads


def xxh32(data):
    """XXH32 with seed 0, for less than 16 bytes (LZ4 frame headers are shorter)."""
    p1, p2, p3, p4, p5, mask = 2654435761, 2246822519, 3266489917, 668265263, 374761393, 0xFFFFFFFF
    assert len(data) < 16
    h, at = (p5 + len(data)) & mask, 0
    while at + 4 <= len(data):
        h = (h + int.from_bytes(data[at : at + 4], "little") * p3) & mask
        h = ((h << 17 | h >> 15) & mask) * p4 & mask
        at += 4
    for byte in data[at:]:
        h = (h + byte * p5) & mask
        h = ((h << 11 | h >> 21) & mask) * p1 & mask
    for shift, factor in ((15, p2), (13, p3), (16, 1)):
        h = (h ^ h >> shift) * factor & mask
    return h


def copy_match(out, start, distance, length, limit):
    need(1 <= distance <= len(out) - start, "a match reaches before the start")
    need(len(out) + length <= limit, "it decodes to more than its plain bytes")
    if distance >= length:
        at = len(out) - distance
        out += out[at : at + length]
    else:
        unit = bytes(out[-distance:])
        out += (unit * (length // distance + 1))[:length]


def lz4_block(block, out, limit):
    start, at = len(out), 0

    def more(base):
        nonlocal at
        if base == 15:
            while True:
                need(at < len(block), "an LZ4 block ends early")
                byte = block[at]
                at += 1
                base += byte
                if byte != 255:
                    break
        return base

    while True:
        need(at < len(block), "an LZ4 block ends early")
        token = block[at]
        at += 1
        literals = more(token >> 4)
        need(at + literals <= len(block), "an LZ4 block ends early")
        need(len(out) + literals <= limit, "it decodes to more than its plain bytes")
        out += block[at : at + literals]
        at += literals
        if at == len(block):
            return
        need(at + 2 <= len(block), "an LZ4 block ends early")
        distance = block[at] | block[at + 1] << 8
        at += 2
        copy_match(out, start, distance, more(token & 15) + 4, limit)


def lz4_frame(payload, plain_len, stored_only):
    need(len(payload) >= 15 and payload[:4] == bytes.fromhex("04224d18"), "not an LZ4 frame")
    flags, code = payload[4], payload[5]
    need(flags in (0x68, 0x60), f"LZ4 frame flags {flags:#04x}")
    block_max = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}.get(code)
    need(block_max, f"LZ4 block size code {code:#04x}")
    end = 6
    if flags & 8:
        end = 14
        need(int.from_bytes(payload[6:14], "little") == plain_len, "the LZ4 content size is not the plain length")
    need(payload[end] == xxh32(payload[4:end]) >> 8 & 0xFF, "the LZ4 header checksum is wrong")
    at, out = end + 1, bytearray()
    while True:
        need(at + 4 <= len(payload), "the LZ4 frame ends early")
        (word,) = struct.unpack_from("<I", payload, at)
        at += 4
        if word == 0:
            break
        size = word & 0x7FFFFFFF
        need(0 < size <= block_max and at + size <= len(payload), "an LZ4 block has an impossible length")
        block = payload[at : at + size]
        at += size
        if word >> 31:
            need(len(out) + size <= plain_len, "it decodes to more than its plain bytes")
            out += block
        else:
            need(not stored_only, "a compressed block in a NONE payload")
            lz4_block(block, out, min(plain_len, len(out) + block_max))
    need(at == len(payload), "bytes behind the LZ4 frame")
    return bytes(out)


def xpress_chunk(chunk, plain_len):
    """One LZ77+Huffman chunk of MS-XCA."""
    need(len(chunk) >= 256, "an XPRESS chunk is shorter than its code lengths")
    lengths = []
    for byte in chunk[:256]:
        lengths += (byte & 15, byte >> 4)
    # For every 15-bit prefix: symbol and code length.
    table = []
    for size in range(1, 16):
        for symbol in range(512):
            if lengths[symbol] == size:
                table += [(symbol, size)] * (1 << 15 - size)
    need(len(table) == 1 << 15, "XPRESS code lengths do not use the code space")
    at = 256

    def word():
        nonlocal at
        value = int.from_bytes(chunk[at : at + 2], "little")
        at += 2
        return value

    def number(size):
        nonlocal at
        need(at + size <= len(chunk), "an XPRESS chunk ends early")
        value = int.from_bytes(chunk[at : at + size], "little")
        at += size
        return value

    first = word()
    register, left = first << 16 | word(), 32
    out = bytearray()

    def take(count):
        nonlocal register, left
        value = register >> left - count if count else 0
        register &= (1 << left - count) - 1
        left -= count
        if left < 16:
            register, left = register << 16 | word(), left + 16
        return value

    while len(out) < plain_len:
        need(at <= len(chunk) + 4, "an XPRESS chunk ends early")
        prefix = register >> left - 15
        symbol, size = table[prefix]
        take(size)
        if symbol < 256:
            out.append(symbol)
            continue
        code = symbol - 256
        length, bits = code & 15, code >> 4
        if length == 15:
            extra = number(1)
            length = 15 + extra
            if extra == 255:
                length = number(2) or number(4)
                need(length >= 15, "an XPRESS match length is too short for its form")
        copy_match(out, 0, (1 << bits) + take(bits), length + 3, plain_len)
    ended = at == len(chunk)
    symbol, size = table[register >> left - 15]
    if symbol == 256:
        take(size)
    need(ended or at == len(chunk), "an XPRESS chunk does not end where it should")
    return bytes(out)


def xpress_frame(payload, plain_len):
    count = (plain_len + 65_535) // 65_536
    table_end = 12 + 2 * count
    need(len(payload) >= table_end, "the chunk table ends early")
    magic, size, plain = struct.unpack_from("<III", payload)
    need(magic == 0x184D2A5B, "not the frame of MS_XPRESS")
    need(size == len(payload) - 8, "the MS_XPRESS frame and payload do not end together")
    need(plain == plain_len, "the MS_XPRESS frame is for another plain length")
    out, at = [], table_end
    for i, size in enumerate(struct.unpack_from(f"<{count}H", payload, 12)):
        size += 1
        chunk, at = payload[at : at + size], at + size
        wanted = min(65_536, plain_len - 65_536 * i)
        need(len(chunk) == size and size <= wanted, "a chunk has an impossible length")
        out.append(chunk if size == wanted else xpress_chunk(chunk, wanted))
    need(at == len(payload), "bytes behind the last chunk")
    return b"".join(out)


def gzip_members(payload, plain_len):
    out, at = [], 0
    left = plain_len
    while at < len(payload):
        need(payload[at : at + 10] == GZIP_HEAD, "not a gzip member of ours")
        need(payload[at + 10 : at + 16] == b"\x0c\x00QZ\x08\x00", "a gzip member has no QZ field")
        need(at + 32 <= len(payload), "a gzip member ends early")
        src_len, dest_len = struct.unpack_from("<II", payload, at + 16)
        need(0 < src_len <= left, "gzip members do not add up to the plain length")
        need(at + 32 + dest_len <= len(payload), "a gzip member ends early")
        inflate = zlib.decompressobj(-15)
        try:
            plain = inflate.decompress(payload[at + 24 : at + 24 + dest_len], src_len + 1)
        except zlib.error as error:
            raise Bad(f"deflate data is damaged: {error}") from None
        need(inflate.eof and not inflate.unused_data, "deflate data does not end where it should")
        need(len(plain) == src_len, "a gzip member gives another number of bytes")
        crc, size = struct.unpack_from("<II", payload, at + 24 + dest_len)
        need(crc == zlib.crc32(plain), "a gzip member's CRC-32 is wrong")
        need(size == src_len, "a gzip member's two lengths differ")
        out.append(plain)
        left -= src_len
        at += 32 + dest_len
    return b"".join(out)


def zstd_content_size(frame):
    need(len(frame) >= 6 and frame[:4] == bytes.fromhex("28b52ffd"), "not a zstd frame")
    descriptor = frame[4]
    need(descriptor & 0b1111 == 0, "a zstd frame with checksum, dictionary or reserved bits")
    size_code, single = descriptor >> 6, descriptor >> 5 & 1
    at = 5 if single else 6
    width = (1 if single else 0, 2, 4, 8)[size_code]
    need(width, "a zstd frame without content size")
    need(len(frame) >= at + width, "a zstd frame ends early")
    size = int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)
    at += width
    while True:  # Blocks, to find the frame's end: 3-byte headers.
        need(at + 3 <= len(frame), "a zstd frame ends early")
        header = int.from_bytes(frame[at : at + 3], "little")
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else length)
        if last:
            break
    need(at == len(frame), "a zstd frame and payload do not end together")
    return size


def zstd_frame(payload, plain_len):
    need(zstd_content_size(payload) == plain_len, "the zstd content size is not the plain length")
    try:
        from compression import zstd

        try:
            return zstd.decompress(payload)
        except zstd.ZstdError as error:
            raise Bad(f"zstd: {error}") from None
    except ImportError:
        pass
    run = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True, check=False)
    need(run.returncode == 0, f"zstd: {run.stderr.decode(errors='replace').strip()}")
    return run.stdout


def decode(algorithm, payload, plain_len):
    if plain_len == 0:
        return b""
    if algorithm in (1, 5):
        plain = lz4_frame(payload, plain_len, stored_only=algorithm == 1)
    elif algorithm == 2:
        plain = xpress_frame(payload, plain_len)
    elif algorithm == 3:
        plain = gzip_members(payload, plain_len)
    else:
        plain = zstd_frame(payload, plain_len)
    need(len(plain) == plain_len, f"it decodes to {len(plain)} bytes, not {plain_len}")
    return plain


# ---------------------------------------------------------------- fields and records


class Fields:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        need(self.at + size <= len(self.data), "a record is too short for its fields")
        self.at += size
        return self.data[self.at - size : self.at]

    def u(self, size):
        return int.from_bytes(self.take(size), "little")

    def i(self, size):
        return int.from_bytes(self.take(size), "little", signed=True)

    def uuid(self):
        return uuid.UUID(bytes=bytes(self.take(16)))

    def zeros(self, size):
        need(not any(self.take(size)), "reserved bytes are not zero")

    def text(self, limit):
        size = self.u(2)
        need(size <= limit, "a text is longer than its limit")
        try:
            return bytes(self.take(size)).decode()
        except UnicodeDecodeError:
            raise Bad("a text is not UTF-8") from None

    def bytes(self, limit):
        size = self.u(2)
        need(size <= limit, "a field is longer than its limit")
        return bytes(self.take(size))

    def rest(self):
        return self.take(len(self.data) - self.at)

    def end(self, compatible=0):
        need(compatible or self.at == len(self.data), "bytes behind the last field")


def features(incompatible, known=0):
    need(incompatible & ~known == 0, f"needs a newer reader: incompatible feature bits {incompatible:#x}")


@dataclass
class Media:
    media_set: uuid.UUID
    family: int
    family_count: int
    container: int
    compressed: int
    generation: int
    name: str

    @staticmethod
    def parse(body):
        f = Fields(body)
        media_set, _family_uuid = f.uuid(), f.uuid()
        family, count, parity, container, compressed = f.u(2), f.u(2), f.u(2), f.u(1), f.u(1)
        _created = f.i(8)
        compatible = f.u(8)
        features(f.u(8))
        generation = f.u(4)
        f.zeros(4)
        name, _description, _software = f.text(512), f.text(1024), f.text(128)
        f.end(compatible)
        need(1 <= count <= FAMILIES_MAX and 1 <= family <= count, "an impossible family number")
        need(parity == 0 and container in CONTAINERS and compressed in (0, 1), "a field is out of range")
        return Media(media_set, family, count, container, compressed, generation, name)


def lineage(data):
    """The facts of a lineage, in the order of the page; None if a later version wrote it."""
    f = Fields(data)
    need(len(data) >= 128, "a lineage is too short for its fields")
    facts = {"system": f.u(8), "timeline": f.u(4)}
    flags = f.u(4)
    if flags >> 6:
        return None
    facts |= {"reached": f.u(8), "checkpoint": f.u(8), "next_xid": f.u(8)}
    home, run = f.take(16).hex(), f.take(16).hex()
    if flags >> 2 & 1:
        facts["home"] = home
    facts["in_recovery"] = flags >> 3 & 1
    if flags >> 4 & 1:
        facts["run"] = run
    for name in ("witness_timeline", "witness_len", "witness_start", "witness_page"):
        facts[name] = f.u(8 if name == "witness_start" else 4)
    facts["witness"] = f.take(16).hex()
    way = f.take(16).hex()
    if flags & 1:
        facts |= {"way": way, "older_left_out": flags >> 1 & 1}
    ancestors, known = f.u(2), f.u(2)
    need(ancestors <= KNOWN_MAX and known <= KNOWN_MAX, "a lineage has too many rows")
    facts["ancestor"] = [f"{f.u(4)} left at {f.u(8)}, way {f.take(16).hex()}" for _ in range(ancestors)]
    facts["known"] = [f"{f.uuid()} verdict {f.u(1)}" for _ in range(known)]
    if flags >> 5 & 1:
        facts["before"] = f"{f.u(4)} bytes, {f.take(16).hex()}"
    f.end()
    return facts


def identity(data):
    """The facts of a source identity."""
    f = Fields(data)
    name, count = f.text(IDENTITY_NAME_MAX), f.u(1)
    need(count <= KNOWN_MAX, "a source identity has too many births")
    births = [f.i(8) for _ in range(count)]
    f.end()
    return {"name": name, "birth": births}


@dataclass
class SetHeader:
    body: bytes
    set: uuid.UUID
    position: int
    source_kind: int
    algorithm: int
    buffer_bytes: int
    database: str
    name: str
    parent: uuid.UUID | None
    sum_key: bytes | None
    facts: dict

    @staticmethod
    def parse(body):
        f = Fields(body)
        set_id, position, _start = f.uuid(), f.u(4), f.i(8)
        source_kind, backup_type, algorithm = f.u(1), f.u(1), f.u(1)
        f.zeros(1)
        _level, _zone, buffer_bytes, _page, flags = f.i(2), f.i(2), f.u(4), f.u(4), f.u(4)
        compatible, incompatible = f.u(8), f.u(8)
        features(incompatible, DIFFERENTIAL | LOG | SUMS | ATTRIBUTES)
        _expires = f.i(8)
        parent, _system, _timeline = f.uuid(), f.u(8), f.u(4)
        f.zeros(4)
        _first_lsn = f.u(8)
        database, name, _description = f.text(512), f.text(512), f.text(1024)
        _machine, _user, _origin = f.text(256), f.text(256), f.text(4096)
        sum_key = None
        if incompatible & SUMS:
            sum_key, _server_started = bytes(f.take(32)), f.i(8)
        facts = {"source_kind": source_kind}
        for bit, limit, name, parse in (
            (LINEAGE, LINEAGE_MAX, "lineage", lineage),
            (IDENTITY, IDENTITY_MAX, "identity", identity),
        ):
            if compatible & bit:
                data = f.bytes(limit)
                need(data, f"a {name} without content")
                facts[name] = parse(data)
        f.end(compatible & ~(LINEAGE | IDENTITY))
        need(backup_type in (1, 2, 3) and algorithm in ALGORITHMS and flags <= 1, "a field is out of range")
        differential = backup_type == 2
        need(differential == (parent.int != 0), "a parent without a differential set, or the reverse")
        of_type = incompatible & ~(SUMS | ATTRIBUTES)
        need(of_type == (0, DIFFERENTIAL, LOG)[backup_type - 1], "a kind of set without its feature bit, or the reverse")
        need(1 <= position <= SETS_MAX and 1 <= buffer_bytes <= PLAIN_MAX, "a field is out of range")
        parent = parent if differential else None
        return SetHeader(bytes(body), set_id, position, source_kind, algorithm, buffer_bytes, database, name, parent, sum_key, facts)


@dataclass
class BlockHeader:
    set: uuid.UUID
    sequence: int
    plain_len: int
    stored_len: int
    plain_crc: int
    stored_crc: int
    manifest_crc: int
    manifest_len: int
    manifest_parts: int
    algorithm: int
    part: bytes

    @staticmethod
    def parse(body):
        f = Fields(body)
        header = BlockHeader(
            f.uuid(), f.u(8), f.u(4), f.u(4), f.u(4), f.u(4), f.u(4), f.u(4), f.u(2), f.u(1), b""
        )
        f.zeros(21)
        header.part = bytes(f.rest())
        plain, stored = header.plain_len, header.stored_len
        need(plain <= PLAIN_MAX and header.manifest_len <= MANIFEST_MAX, "a length is beyond its limit")
        need(stored <= plain + plain // 256 + 1024 and (plain == 0) == (stored == 0), "an impossible payload length")
        return header


@dataclass
class Trailer:
    set: uuid.UUID
    position: int
    flags: int
    finish_us: int
    set_offset: int
    previous_trailer: int
    blocks_here: int
    blocks_total: int
    plain_bytes_total: int
    stored_bytes_total: int
    entries_total: int
    files_total: int
    index_offset: int
    index_len: int
    chain_crc: int
    last_lsn: int
    log_timeline: int

    @staticmethod
    def parse(body):
        f = Fields(body)
        trailer = Trailer(
            f.uuid(), f.u(4), f.u(4), f.i(8), *(f.u(8) for _ in range(9)), f.u(4), f.u(4), f.u(8), f.u(4)
        )
        f.zeros(68)
        f.end()
        need(trailer.flags <= 3, "unknown flags")
        return trailer

    def totals(self):
        return (
            self.set,
            self.position,
            self.flags,
            self.finish_us,
            self.last_lsn,
            self.log_timeline,
            self.blocks_total,
            self.plain_bytes_total,
            self.stored_bytes_total,
            self.entries_total,
            self.files_total,
        )


# ---------------------------------------------------------------- sums of pages

M64 = (1 << 64) - 1
MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
MERGE = ((3, 12, 2, 5, 14, 1, 15, 0), (11, 4, 10, 13, 9, 6, 8, 7))


def highway64(key, data):
    """HighwayHash with 64 bits of result."""

    def rot(x):
        return (x << 32 | x >> 32) & M64

    def merge(a, b):
        for i in (0, 2):
            joined = struct.pack("<QQ", a[i], a[i + 1])
            for j in (0, 1):
                taken = int.from_bytes(bytes(joined[n] for n in MERGE[j]), "little")
                b[i + j] = (b[i + j] + taken) & M64

    k = struct.unpack("<4Q", key)
    mul0, mul1 = list(MUL0), list(MUL1)
    v0 = [m ^ x for m, x in zip(MUL0, k)]
    v1 = [m ^ rot(x) for m, x in zip(MUL1, k)]

    def update(x):
        for i in range(4):
            v1[i] = (v1[i] + mul0[i] + x[i]) & M64
            mul0[i] ^= (v1[i] & 0xFFFFFFFF) * (v0[i] >> 32)
            v0[i] = (v0[i] + mul1[i]) & M64
            mul1[i] ^= (v0[i] & 0xFFFFFFFF) * (v1[i] >> 32)
        merge(v1, v0)
        merge(v0, v1)

    rest = len(data) % 32
    for x in struct.iter_unpack("<4Q", data[: len(data) - rest]):
        update(x)
    if rest:
        for i in range(4):
            v0[i] = (v0[i] + (rest << 32) + rest) & M64
            halves = (v1[i] & 0xFFFFFFFF, v1[i] >> 32)
            low, high = ((half << rest | half >> 32 - rest) & 0xFFFFFFFF for half in halves)
            v1[i] = high << 32 | low
        last, few = data[len(data) - rest :], rest % 4
        packet = bytearray(last[: rest - few].ljust(32, b"\0"))
        if rest & 16:
            packet[28:] = last[-4:]
        elif few:
            packet[16:19] = bytes((last[rest - few], last[rest - few + few // 2], last[-1]))
        update(struct.unpack("<4Q", packet))
    for _ in range(4):
        update((rot(v0[2]), rot(v0[3]), rot(v0[0]), rot(v0[1])))
    return (v0[0] + v1[0] + mul0[0] + mul1[0]) & M64


for length, result in ((1, 0x7EAB43AAC7CDDD78), (2, 0xB8D0569AB0B53D62), (64, 0x75542C5D4CD2A6FF)):
    assert highway64(bytes(range(32)), bytes(range(length))) == result


def check_sums(header, entry, plain):
    """Whether a file's sums are those of the pages that the block holds; of each run one page is summed, this is slow."""
    for start, page, sums in entry.sums:
        need(header.sum_key, "sums in a set without a key")
        end = min(start + page * len(sums), entry.len)
        for offset, length, at in entry.extents:
            first = max(start, -(-offset // page) * page)
            length_here = min(page, entry.len - first)
            if 0 < length_here and first + length_here <= min(end, offset + length):
                found = highway64(header.sum_key, plain[at + first - offset :][:length_here]) or 1
                need(found == sums[(first - start) // page], f"page {first // page} of {shown(entry.path)} has another sum")


# ---------------------------------------------------------------- manifests


@dataclass
class Entry:
    path: bytes
    kind: int
    first: bool
    based: bool
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    len: int
    target: bytes
    extents: list = field(default_factory=list)
    attributes: dict = field(default_factory=dict)
    sums: list = field(default_factory=list)


FILE, DIRECTORY, SYMLINK, HARDLINK = 1, 2, 3, 4
KEPT = re.compile(rb"(user|trusted)\.[^\0]+|security\.(capability|selinux)|system\.posix_acl_(access|default)", re.S)
ACL = b"system.posix_acl_access"
MARKS = {1: "changed while it was read", 2: "ended early", 3: "vanished before it was read"}


def shown(path):
    """A path on one line, whatever bytes it has."""
    return repr(path)[2:-1]


def check_path(path):
    need(1 <= len(path) <= PATH_MAX and b"\0" not in path, "a path has an impossible length or a NUL")
    need(all(c not in (b"", b".", b"..") for c in path.split(b"/")), f"a path is not canonical: {path!r}")


def parse_manifest(data, plain_len):
    """Entries, each with its extents [(file offset, length, place in the block)] and sums [(file offset, bytes of a page,
    [sum])], and marks."""
    f, entries, marks, plain, last = Fields(data), [], [], 0, None
    while f.at < len(data):
        tag = f.u(1)
        if tag == 1:
            kind, flags, mode, uid, gid, mtime, size = f.u(1), f.u(2), f.u(4), f.u(4), f.u(4), f.i(8), f.u(8)
            path = bytes(f.take(f.u(2)))
            target = bytes(f.take(f.u(2)))
            check_path(path)
            need(flags <= 3 and mode <= 0o7777 and size < 1 << 63 and 1 <= kind <= 4, "an entry is out of range")
            need((kind >= SYMLINK) == bool(target) and len(target) <= PATH_MAX, "a link without target, or the reverse")
            need(b"\0" not in target, "a link target with a NUL")
            if kind == HARDLINK:
                check_path(target)
            need(kind == FILE or flags < 2, "based, and no file")
            entries.append(Entry(path, kind, bool(flags & 1), bool(flags & 2), mode, uid, gid, mtime, size, target))
        elif tag == 2:
            offset, length = f.u(8), f.u(4)
            need(entries and entries[-1].kind == FILE, "an extent without a file")
            need(length > 0 and offset + length <= entries[-1].len, "an extent outside its file")
            entries[-1].extents.append((offset, length, plain))
            plain += length
        elif tag == 6:
            name_len, value_len = f.u(1), f.u(4)
            name, value = bytes(f.take(name_len)), bytes(f.take(value_len))
            need(entries and last is entries[-1], "an attribute without an entry")
            need(last.first and last.kind != HARDLINK, "an attribute where there can be none")
            need(KEPT.fullmatch(name), f"an attribute of a name that is not kept: {name!r}")
            need(all(old < name for old in last.attributes), "attributes out of order")
            last.attributes[name] = value
            size = sum(6 + len(n) + len(v) for n, v in last.attributes.items())
            need(size <= ATTRIBUTES_MAX, "too many attributes")
            continue
        elif tag == 5:
            offset, page, count = f.u(8), f.u(4), f.u(2)
            need(entries and entries[-1].kind == FILE, "sums without a file")
            need(512 <= page <= 65_536 and page & page - 1 == 0 and offset % page == 0, "sums of impossible pages")
            need(count > 0 and offset + (count - 1) * page < entries[-1].len, "sums outside their file")
            sums = [f.u(8) for _ in range(count)]
            need(all(sums), "a sum of 0")
            entries[-1].sums.append((offset, page, sums))
        elif tag == 3:
            kind = f.u(1)
            path = bytes(f.take(f.u(2)))
            check_path(path)
            need(kind in MARKS, "an unknown mark")
            marks.append((path, kind))
        else:
            raise Bad(f"an unknown item, tag {tag}")
        # Attributes stand directly after their entry.
        last = entries[-1] if tag == 1 else None
    need(plain == plain_len, "extents do not add up to the plain bytes")
    return entries, marks


# ---------------------------------------------------------------- stripes


class Stripe:
    def __init__(self, path):
        self.path = path
        self.file = open(path, "rb")
        self.len = os.fstat(self.file.fileno()).st_size
        start = self.file.read(16)
        if start.startswith(GZIP_HEAD):
            self.container = GZIP
        elif start.startswith(SKIPPABLE):
            self.container = ZSTD
        elif start.startswith(LZ4_PREAMBLE):
            self.container = LZ4
        else:
            raise Damage(path, 0, "the volume is empty" if self.len == 0 else "not a Longshore stripe")
        at = len(LZ4_PREAMBLE) if self.container == LZ4 else 0
        kind, body, self.sets_offset = self.record(at)
        with self.at(at):
            need(kind == MEDIA, "the first record is no media header")
            self.media = Media.parse(body)
            need(self.media.container == self.container, "the media header names another container")

    def at(self, offset):
        """Turns `Bad` inside into `Damage` at this place."""
        stripe = self

        class Place:
            def __enter__(self):
                return self

            def __exit__(self, _type, error, _trace):
                if isinstance(error, Bad):
                    raise Damage(stripe.path, offset, str(error)) from None

        return Place()

    def read(self, offset, size):
        self.file.seek(offset)
        data = self.file.read(size)
        if len(data) < size:
            raise Damage(self.path, offset, f"the stripe ends at byte {self.len}, in the middle of something")
        return data

    def record(self, offset):
        """Kind, body and the offset behind the record at `offset`."""
        with self.at(offset):
            if self.container == GZIP:
                prefix = self.read(offset, 16)
                xlen, size = struct.unpack("<H2xH", prefix[10:])
                need(prefix[:10] == GZIP_HEAD and prefix[12:14] == b"LS", "not the carriage of a record")
                need(xlen == size + 4, "the carriage's lengths differ")
            else:
                prefix = self.read(offset, 8)
                (size,) = struct.unpack("<I", prefix[4:])
                need(prefix[:4] == SKIPPABLE, "not the carriage of a record")
            need(16 <= size <= 16 + BODY_MAX, "a record has an impossible length")
            record = self.read(offset + len(prefix), size)
            end = offset + len(prefix) + size
            if self.container == GZIP:
                need(self.read(end, 10) == GZIP_TAIL, "not the end of a record's carriage")
                end += 10
            magic, kind, zeros, body_len, crc = struct.unpack("<4sB3sII", record[:16])
            need(magic == b"LSHR", "no record magic")
            need(body_len == size - 16, "a record's two lengths differ")
            found = crc32c(record[16:], crc32c(record[:12]))
            need(found == crc, f"record checksum is {found:#010x}, not {crc:#010x}")
            need(zeros == b"\0\0\0" and kind in KINDS, "an unknown kind of record")
            return kind, record[16:], end

    def framed_len(self, body_len):
        return body_len + 16 + (26 if self.container == GZIP else 8)

    def parts(self):
        """What stands at each position: (offset, header or None, its damage, trailer or None, trailer's offset)."""
        parts, at, previous = [], self.sets_offset, 0
        while at < self.len and len(parts) < SETS_MAX:
            part = self.part(at, len(parts) + 1, previous)
            parts.append(part)
            if part.trailer is None:
                break
            previous, at = part.trailer_offset, part.end
        return parts

    def part(self, start, position, previous):
        part = Part(self, start)

        def fits(trailer):
            return (
                trailer.set_offset == start
                and trailer.previous_trailer == previous
                and trailer.position == position
                and (part.header is None or part.header.set == trailer.set)
            )

        at = start
        try:
            kind, body, at = self.record(start)
            with self.at(start):
                need(kind == SET, "a set header should stand here")
                header = SetHeader.parse(body)
                need(header.position == position, f"the set says it is at position {header.position}, not {position}")
                need(ALGORITHMS[header.algorithm][1] == self.container, "the algorithm does not belong to the container")
                need((header.algorithm != 1) == bool(self.media.compressed), "NONE and compressed sets are mixed")
                part.header = header
            while at < self.len:
                here = at
                kind, body, end = self.record(at)
                with self.at(at):
                    if kind == BLOCK:
                        end += BlockHeader.parse(body).stored_len
                    elif kind == TRAILER:
                        trailer = Trailer.parse(body)
                        need(fits(trailer), "a trailer of another set")
                        part.seal(trailer, here, end)
                        return part
                    else:
                        need(kind in (MANIFEST, INDEX), f"a {KINDS[kind]} record inside a set")
                at = end
        except Damage as damage:
            part.damage = damage
        # The set's own trailer may stand behind the damage.
        needle = b"LSHR" + bytes([TRAILER, 0, 0, 0]) + struct.pack("<I", TRAILER_LEN)
        prefix = 16 if self.container == GZIP else 8
        window, base = b"", at
        while base < self.len:
            self.file.seek(base)
            window = self.file.read(1 << 20)
            found = -1
            while (found := window.find(needle, found + 1)) >= 0:
                try:
                    offset = base + found - prefix
                    kind, body, end = self.record(offset)
                    trailer = Trailer.parse(body)
                    if kind == TRAILER and fits(trailer):
                        part.seal(trailer, offset, end)
                        return part
                except (Damage, Bad):
                    pass
            base += max(1, len(window) - len(needle)) if base + len(window) < self.len else len(window)
        return part


class Part:
    def __init__(self, stripe, offset):
        self.stripe, self.offset = stripe, offset
        self.header = self.damage = self.trailer = self.trailer_offset = self.end = None

    def seal(self, trailer, offset, end):
        self.trailer, self.trailer_offset, self.end = trailer, offset, end


def open_media(paths):
    """The stripes of one media set in family order."""
    stripes = [Stripe(path) for path in paths]
    first = stripes[0].media
    for stripe in stripes:
        media = stripe.media
        same = (media.media_set, media.generation, media.family_count)
        if same != (first.media_set, first.generation, first.family_count):
            raise Damage(stripe.path, 0, f"foreign: it belongs to media set {media.media_set} generation {media.generation}")
        if (media.container, media.compressed) != (first.container, first.compressed):
            raise Damage(stripe.path, 0, "its media header contradicts another stripe's about container or compression")
    stripes.sort(key=lambda s: s.media.family)
    for a, b in zip(stripes, stripes[1:]):
        if a.media.family == b.media.family:
            raise Damage(b.path, 0, f"doubled: {a.path} is family {a.media.family}, too")
    missing = set(range(1, first.family_count + 1)) - {s.media.family for s in stripes}
    if missing:
        names = ", ".join(map(str, sorted(missing)))
        raise Damage(stripes[0].path, 0, f"the media set has {first.family_count} families; missing: {names}")
    return stripes


class Row:
    """One position of a media set: each family's part."""

    def __init__(self, position, parts):
        self.position, self.parts = position, parts

    def header(self):
        return next((p.header for p in self.parts if p and p.header), None)

    def why_incomplete(self):
        for part in self.parts:
            if part is None or part.trailer is None:
                where = part.stripe.path if part else "one of its stripes"
                return f"{where} has no trailer of it"
        first = self.parts[0].trailer
        for part in self.parts:
            if part.trailer.totals() != first.totals():
                return "its trailers contradict each other"
            if part.header and part.header.body != (self.header() or part.header).body:
                return "its headers contradict each other"
        if sum(p.trailer.blocks_here for p in self.parts) != first.blocks_total:
            return "its blocks do not add up"
        if sum(p.trailer_offset - p.offset for p in self.parts) != first.stored_bytes_total:
            return "its bytes do not add up"
        return None


def rows_of(stripes):
    columns = [stripe.parts() for stripe in stripes]
    rows = []
    for i in range(max(map(len, columns), default=0)):
        rows.append(Row(i + 1, [c[i] if i < len(c) else None for c in columns]))
    return rows


# ---------------------------------------------------------------- reading a set


def blocks(part):
    """Yields (header, manifest bytes, payload, payload offset) of one family's part, checking all that one
    stripe can show."""
    stripe, header = part.stripe, part.header
    if header is None:
        raise part.damage
    _, _, at = stripe.record(part.offset)
    manifest, parts, owner = b"", 0, None
    block_at, rows, raw, chunk_place, chain, count = None, [], 0, (0, 0), 0, 0
    while True:
        here = at
        kind, body, at = stripe.record(at)
        with stripe.at(here):
            if kind == MANIFEST:
                f = Fields(body)
                of, number = (f.uuid(), f.u(8)), f.u(2)
                f.zeros(2)
                need(number == parts < MANIFEST_PARTS_MAX, "a manifest part is missing or repeated")
                need(owner in (None, of), "a manifest part of another block")
                owner, parts, block_at = of, parts + 1, here if block_at is None else block_at
                manifest += bytes(f.rest())
                need(len(manifest) <= MANIFEST_MAX, "a manifest is too long")
            elif kind == BLOCK:
                block = BlockHeader.parse(body)
                manifest += block.part
                need(owner in (None, (block.set, block.sequence)), "a manifest part of another block")
                need(block.set == header.set, "a block of another set")
                need(block.algorithm == header.algorithm, "a block of another algorithm")
                need(block.plain_len <= header.buffer_bytes, "a block is larger than the set says")
                need(parts == block.manifest_parts, "manifest parts are missing")
                need(len(manifest) == block.manifest_len, "the manifest has another length")
                need(crc32c(manifest) == block.manifest_crc, "the manifest's checksum is wrong")
                expected = max(0, -(-(len(manifest) - (BODY_MAX - BLOCK_FIXED_LEN)) // (BODY_MAX - 28)))
                need(parts == expected, "the manifest is not divided as it should be")
                need(raw < CHUNK_RAW, "an index chunk is missing")
                payload = stripe.read(at, block.stored_len)
                start = here if block_at is None else block_at
                rows.append((block.sequence, start, at + block.stored_len - start, block.plain_len, manifest))
                raw += 28 + len(manifest)
                chain = crc32c(struct.pack("<QI", block.sequence, block.stored_crc), chain)
                count += 1
                payload_at, at = at, at + block.stored_len
                yield block, manifest, payload, payload_at
                manifest, parts, owner, block_at = b"", 0, None, None
            elif kind == INDEX:
                need(parts == 0, "an index chunk in the middle of a block")
                packed, first, number = b"", None, 0
                while True:
                    need(kind == INDEX, "an index chunk is interrupted")
                    f = Fields(body)
                    previous, raw_len, part_number, part_count = (f.u(8), f.u(4)), f.u(4), f.u(2), f.u(2)
                    f.zeros(4)
                    first = first or (previous, raw_len, part_count)
                    need(first == (previous, raw_len, part_count), "records of an index chunk differ")
                    need(part_number == number < part_count <= INDEX_PARTS_MAX, "an index record is missing")
                    need(raw_len <= CHUNK_RAW_MAX, "an index chunk is too long")
                    packed += bytes(f.rest())
                    number += 1
                    if number == part_count:
                        break
                    kind, body, at = stripe.record(at)
                need(previous == chunk_place, "the chain of index chunks is broken")
                chunk_place = (here, at - here)
                need(index_rows(packed, raw_len) == rows, "the index does not match the blocks")
                rows, raw = [], 0
            elif kind == TRAILER:
                trailer = Trailer.parse(body)
                need(here == part.trailer_offset, "a trailer in the wrong place")
                need(not rows and parts == 0, "the last index chunk or block is missing")
                need(trailer.blocks_here == count and trailer.chain_crc == chain, "blocks are missing, repeated or exchanged")
                need((trailer.index_offset, trailer.index_len) == chunk_place, "the trailer does not know the index")
                return
            else:
                raise Bad(f"a {KINDS[kind]} record inside a set")


def index_rows(packed, raw_len):
    inflate = zlib.decompressobj(-15)
    try:
        raw = inflate.decompress(packed, raw_len + 1)
    except zlib.error as error:
        raise Bad(f"an index chunk is damaged: {error}") from None
    need(inflate.eof and not inflate.unused_data and len(raw) == raw_len, "an index chunk has another length")
    f, rows = Fields(raw), []
    while f.at < len(raw):
        sequence, offset, size, plain_len = f.u(8), f.u(8), f.u(4), f.u(4)
        rows.append((sequence, offset, size, plain_len, bytes(f.take(f.u(4)))))
    return rows


def read_set(row, target, note):
    """Reads a complete set, gives its content to `target`, and every finding to `note`."""
    sequences, plain_total, entries_total, files_total = set(), 0, 0, 0
    known, broken = {}, False
    for part in row.parts:
        try:
            for block, manifest, payload, at in blocks(part):
                with part.stripe.at(at):
                    try:
                        found = crc32c(payload)
                        need(found == block.stored_crc, f"stored bytes have CRC-32C {found:#010x}, not {block.stored_crc:#010x}")
                        plain = decode(block.algorithm, payload, block.plain_len)
                        found = crc32c(plain)
                        need(found == block.plain_crc, f"plain bytes have CRC-32C {found:#010x}, not {block.plain_crc:#010x}")
                        entries, marks = parse_manifest(manifest, block.plain_len)
                        for entry in entries:
                            check_sums(row.header(), entry, plain)
                        need(block.sequence not in sequences, f"block {block.sequence} occurs twice")
                    except Bad as bad:
                        raise Bad(f"block {block.sequence}: {bad}") from None
                    sequences.add(block.sequence)
                    plain_total += block.plain_len
                    for entry in entries:
                        need(row.header().parent or not entry.based, "a based entry in a set without parent")
                        remember(known, entry)
                        if entry.first:
                            entries_total += 1
                            files_total += entry.kind == FILE
                        target.entry(entry, plain)
                    for path, kind in marks:
                        target.mark(path, kind)
        except Damage as damage:
            note(str(damage))
            broken = True
    if broken:
        return
    totals = row.parts[0].trailer
    found = (plain_total, entries_total, files_total)
    if found != (totals.plain_bytes_total, totals.entries_total, totals.files_total):
        note(f"set {row.position}: its content does not match its trailer")
    if sequences != set(range(totals.blocks_total)):
        note(f"set {row.position}: blocks are missing")
    for path, entry in known.items():
        if not entry.first:
            note(f"set {row.position}: {path!r} has no first entry")
        end = 0
        for offset, length, _ in sorted(entry.extents):
            if offset < end:
                note(f"set {row.position}: {path!r} is covered twice at byte {offset}")
            end = offset + length


def remember(known, entry):
    """Keeps one Entry per path with all its extents; a second naming must agree with the first."""
    old = known.get(entry.path)
    if old is None:
        known[entry.path] = Entry(**{**vars(entry), "extents": list(entry.extents)})
        return
    need(not (old.first and entry.first), f"{entry.path!r} is named as the first twice")
    same = ("kind", "based", "mode", "uid", "gid", "mtime_ns", "len", "target")
    need(all(getattr(old, a) == getattr(entry, a) for a in same), f"{entry.path!r} is named with different fields")
    old.first |= entry.first
    old.attributes = old.attributes or entry.attributes
    old.extents += entry.extents


# ---------------------------------------------------------------- what to do with the content


class Nothing:
    """Takes everything and keeps nothing: verify."""

    def entry(self, entry, plain):
        pass

    def mark(self, path, kind):
        pass


class Tree:
    """Writes below one directory and never through a symbolic link."""

    def __init__(self, root, parent):
        """`parent`: the directory that a differential set's parent was restored to."""
        self.base = parent and os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        os.makedirs(root, exist_ok=True)
        if os.listdir(root):
            raise SystemExit(f"{root} is not empty")
        self.root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.made, self.directories, self.symlinks, self.links = set(), {}, {}, []
        self.files = {}

    def parent(self, path):
        """An open descriptor of the directory that holds `path`, and the last component."""
        *parents, name = path.split(b"/")
        fd = os.dup(self.root)
        for component in parents:
            try:
                os.mkdir(component, 0o700, dir_fd=fd)
            except FileExistsError:
                pass
            inner = os.open(component, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        return fd, name

    def entry(self, entry, plain):
        if entry.kind == DIRECTORY:
            fd, name = self.parent(entry.path + b"/.")
            os.close(fd)
            self.directories[entry.path] = entry
        elif entry.kind == SYMLINK:
            self.symlinks[entry.path] = entry
        elif entry.kind == HARDLINK:
            self.links.append(entry)
        else:
            self.file(entry, plain)

    def file(self, entry, plain):
        fd, name = self.parent(entry.path)
        how = os.O_WRONLY | os.O_NOFOLLOW
        if entry.path not in self.made:
            how |= os.O_CREAT | os.O_EXCL
            self.made.add(entry.path)
        out = os.open(name, how, 0o600, dir_fd=fd)
        os.close(fd)
        if how & os.O_CREAT:
            if entry.based:
                self.copy(entry, out)
            os.ftruncate(out, entry.len)
            self.files[entry.path] = entry
        if entry.first:
            self.files[entry.path].attributes = entry.attributes
        for offset, length, place in entry.extents:
            os.pwrite(out, plain[place : place + length], offset)
        os.close(out)

    def copy(self, entry, out):
        """What no extent covers is as in the parent, as far as its file is long."""
        fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.base)
        need(stat.S_ISREG(os.fstat(fd).st_mode), f"{entry.path!r} is no file in the parent")
        at = 0
        while at < entry.len and (data := os.pread(fd, min(1 << 20, entry.len - at), at)):
            os.pwrite(out, data, at)
            at += len(data)
        os.close(fd)

    def mark(self, path, kind):
        print(f"marked: {shown(path)}: {MARKS[kind]}")

    def attributes(self, entry):
        fd, name = self.parent(entry.path)
        try:
            os.chown(name, entry.uid, entry.gid, dir_fd=fd, follow_symlinks=False)
        except PermissionError:
            pass
        if entry.kind != SYMLINK:
            # Ours, and no link: made by this run, with O_EXCL or mkdir.
            # Without its access control list it must not give anybody more: its owner alone has rights then.
            os.chmod(name, entry.mode & ~0o077 if ACL in entry.attributes else entry.mode, dir_fd=fd)
        for attribute, value in entry.attributes.items():
            try:
                os.setxattr(b"/proc/self/fd/%d/%s" % (fd, name), attribute, value, follow_symlinks=False)
            except OSError as e:
                print(f"not restored: {shown(attribute)} of {shown(entry.path)}: {e.strerror}")
        os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=fd, follow_symlinks=False)
        os.close(fd)

    def finish(self):
        for entry in self.links:
            there, target = self.parent(entry.target)
            here, name = self.parent(entry.path)
            os.link(target, name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
            os.close(there)
            os.close(here)
        for entry in self.symlinks.values():
            fd, name = self.parent(entry.path)
            os.symlink(entry.target, name, dir_fd=fd)
            os.close(fd)
        for entries in (self.files, self.symlinks):
            for entry in entries.values():
                self.attributes(entry)
        for path in sorted(self.directories, key=lambda p: -p.count(b"/")):
            self.attributes(self.directories[path])
        os.close(self.root)


# ---------------------------------------------------------------- commands


class Findings:
    def __init__(self):
        self.count = 0

    def __call__(self, text):
        self.count += 1
        print(f"damage: {text}", file=sys.stderr)


def report_rows(rows, note):
    for row in rows:
        why = row.why_incomplete()
        if why:
            note(f"backup set {row.position} is incomplete: {why}")
        for part in row.parts:
            if part and part.damage:
                note(str(part.damage))


def run_list(stripes, note):
    media = stripes[0].media
    print(f"media set {media.media_set}, generation {media.generation}, {media.family_count} families, "
          f"{CONTAINERS[media.container]}, name {media.name!r}")
    rows = rows_of(stripes)
    report_rows(rows, note)
    for row in rows:
        header, trailer = row.header(), row.parts[0] and row.parts[0].trailer
        if header is None:
            continue
        state = "incomplete" if row.why_incomplete() else f"{trailer.plain_bytes_total} bytes, {trailer.files_total} files"
        print(f"set {row.position}: {header.database!r}, {ALGORITHMS[header.algorithm][0]}, {state}")
        if not row.why_incomplete():
            for part in row.parts:
                for _, manifest, _, _ in blocks(part):
                    with part.stripe.at(part.offset):
                        for entry in parse_manifest_any(manifest):
                            if entry.first:
                                kind = " fdlh"[entry.kind]
                                print(f"  {kind} {entry.mode:04o} {entry.len:>12} {shown(entry.path)}")


def run_facts(stripes, note):
    rows = rows_of(stripes)
    report_rows(rows, note)
    for row in rows:
        facts = row.header().facts if row.header() else {}
        for name, value in facts.items():
            values = value.items() if isinstance(value, dict) else [("", value)]
            for part, value in values:
                what = f"{name}.{part}" if part else name
                for one in value if isinstance(value, list) else [value]:
                    print(f"set {row.position} {what}: {one}")


def parse_manifest_any(manifest):
    """The entries of a manifest whose block's length does not matter."""
    plain = 0
    f = Fields(manifest)
    while f.at < len(manifest):
        tag = f.u(1)
        if tag == 1:
            f.take(31)
            f.take(f.u(2))
            f.take(f.u(2))
        elif tag == 2:
            f.u(8)
            plain += f.u(4)
        elif tag == 5:
            f.take(12)
            f.take(8 * f.u(2))
        else:
            f.take(1)
            f.take(f.u(2))
    return parse_manifest(manifest, plain)[0]


def run_verify(stripes, position, note):
    rows = rows_of(stripes)
    if position:
        rows = [row for row in rows if row.position == position]
    if not rows:
        note("there is no such backup set")
    report_rows(rows, note)
    for row in rows:
        if not row.why_incomplete():
            before = note.count
            read_set(row, Nothing(), note)
            print(f"set {row.position}: {'valid' if note.count == before else 'damaged'}")


def run_restore(stripes, position, root, parent, note):
    rows = rows_of(stripes)
    wanted = [row for row in rows if row.position == (position or len(rows))]
    if not wanted:
        note("there is no such backup set")
        return
    report_rows(wanted, note)
    if note.count:
        return
    if (wanted[0].header().parent is None) != (parent is None):
        note("a differential set needs --parent, others do not")
        return
    tree = Tree(root, parent)
    read_set(wanted[0], tree, note)
    tree.finish()
    if note.count:
        print(f"{root} is not a good copy", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description="Reads Longshore backups without Longshore.")
    parser.add_argument("command", choices=("list", "facts", "verify", "restore"))
    parser.add_argument("stripes", nargs="+")
    parser.add_argument("--position", type=int, default=0, help="backup set (default: last; verify: all)")
    parser.add_argument("--to", help="directory to restore to")
    parser.add_argument("--parent", help="directory that the parent of a differential set was restored to")
    options = parser.parse_args()
    if (options.command == "restore") != (options.to is not None):
        parser.error("restore needs --to, the other commands do not")
    note = Findings()
    try:
        stripes = open_media(options.stripes)
        if options.command == "list":
            run_list(stripes, note)
        elif options.command == "facts":
            run_facts(stripes, note)
        elif options.command == "verify":
            run_verify(stripes, options.position, note)
        else:
            run_restore(stripes, options.position, options.to, options.parent, note)
    except Damage as damage:
        note(str(damage))
    sys.exit(1 if note.count else 0)


if __name__ == "__main__":
    main()
