#!/usr/bin/env python3
"""Reads Longshore backups without Longshore.

Written from docs/format.md alone, with nothing but Python's standard library (3.11 or later); for ZSTD
payloads, `compression.zstd` of Python 3.14 or the `zstd` command; to open encrypted sets, the package
`cryptography` (50 or later). It is slow (tens of megabytes are fine) and meant as a second opinion: it
checks every byte that the page says can be checked.

    longshore_reader.py list [KEY]... STRIPE...
    longshore_reader.py facts STRIPE...
    longshore_reader.py verify [KEY]... [--position N] STRIPE...
    longshore_reader.py restore [KEY]... [--position N] [--parent TREE [--parent-root ROOT]] --to DIRECTORY STRIPE...

The stripes may be named in any order. Exit status: 0 all is well, 1 damage (named on standard error),
2 usage. `facts` shows what the set headers say of the sources, one fact a line. `restore` wants a
directory that does not exist or is empty. A differential set is restored with `--parent`, the directory
that its parent was restored to before. Where parity stands for stripes that are lost or damaged, they are rebuilt in
memory and named as degraded; that is no damage of the set. Nothing proves a parity stripe: if one that somebody changed
stands against whole data stripes, leave it out.

KEY opens encrypted sets: `--identity FILE`, identities of age (AGE-SECRET-KEY-1..., AGE-SECRET-KEY-PQ-1...),
or `--passphrase-file FILE`, whose first line is a passphrase, or `--unwrap "ID PROGRAM ARGUMENT..."`, a program that
keeps the key ID. Key objects next to the stripes are looked at where the set itself has no slot for it; `--key-object FILE` names
another one. Without KEY `verify` compares what needs no
key, and says so. An encrypted set is restored to DIRECTORY.unproven, which gets its name when all
families agreed, and is removed if they do not. `verify` and `restore` print the root of such a set; an
encrypted differential set is restored with `--parent-root`, the root that was printed for its parent (64
zeros for one that is not encrypted). With `--signer lssigner1...` a set that none of these signed is damage; a
signature is compared wherever a set is opened, or a signer is named.

This is one file on purpose: in an emergency it is copied, alone, to a machine that has stripes and Python.
Its parts are in the order of a reader's work, each under a line: limits, checksums, payloads, records, page
sums, manifests, ciphers, identities, encrypted sets, stripes, parity, sets, content, commands.

Invariants
- It shares no code with Longshore, and knows only what docs/format.md says.
- Every finding is named and makes the exit status 1; a restore that met one says that its copy is not good.
- A restore writes below its directory only, and never through a symbolic link.
- No byte of a message whose tag does not agree is used, and no name of an encrypted set is given before all
  its families agreed.

Leaves to others: whether it is right itself (check_reader.py), and speed (longshore).
"""

import argparse
import base64
import binascii
import collections
import hashlib
import hmac
import importlib
import io
import os
import re
import shlex
import shutil
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
CHUNK_RAW_MAX = 327_740
INDEX_PARTS_MAX = 24
TRAILER_LEN = 192
BLOCK_FIXED_LEN = 72
SLOTS_MAX = 32
OBJECT_MAX = 65_536
OBJECTS_MAX = 64
FOUND_MAX = 512
NAMES_MAX = 256
COSTLY_MAX = 8
KEYS_PARTS_MAX = 4
PARITY_MAX = 8
ROW_BYTES_MIN = 4_096
ROW_BYTES = 4_194_304
ENCRYPTED = 1 << 0
PARITY_BIT = 1 << 2
DIFFERENTIAL = 1 << 1
LOG = 1 << 2
ATTRIBUTES = 1 << 4
PAGES = 1 << 5
DETACHED = 1 << 6
ATTRIBUTES_MAX = 48 << 10
SUMS = 1 << 3
LINEAGE = 1 << 0
IDENTITY = 1 << 1
ROOT = 1 << 2
LINEAGE_MAX = 4_096
IDENTITY_MAX = 2_563
ROOT_MAX = 2_048
IDENTITY_NAME_MAX = 2_048
KNOWN_MAX = 64

MEDIA, SET, MANIFEST, BLOCK, INDEX, TRAILER, KEYS, PARITY, ROOTS = 1, 2, 3, 4, 5, 6, 9, 10, 11
KINDS = {MEDIA: "Media", SET: "Set", MANIFEST: "Manifest", BLOCK: "Block", INDEX: "Index", TRAILER: "Trailer"}
KINDS |= {KEYS: "Keys", PARITY: "Parity", ROOTS: "Roots"}
GZIP, ZSTD, LZ4 = 1, 2, 3
CONTAINERS = {GZIP: "gzip", ZSTD: "zstd", LZ4: "lz4"}
ALGORITHMS = {1: ("NONE", LZ4), 2: ("MS_XPRESS", LZ4), 3: ("QAT_DEFLATE", GZIP), 4: ("ZSTD", ZSTD), 5: ("LZ4", LZ4), 6: ("PAGES", LZ4)}

GZIP_HEAD = bytes.fromhex("1f8b08040000000000ff")
GZIP_TAIL = bytes.fromhex("03000000000000000000")
SKIPPABLE = bytes.fromhex("5a2a4d18")
LZ4_PREAMBLE = bytes.fromhex("04224d1860408200000000")
SEALED = bytes.fromhex("5c2a4d18")
TAG_LEN = 16
CHECK_LEN = 5
AGE, CERTIFICATE, PASSPHRASE, COMMAND = 1, 2, 3, 4
ARGON_KIB_MAX, ARGON_PASSES_MAX, ARGON_LANES_MAX = 524_288, 6, 16


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


class Taken:
    """Bytes that are used up from their start."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        need(self.at + size <= len(self.data), "a stream of pages has less than they need")
        self.at += size
        return self.data[self.at - size : self.at]

    def ended(self):
        return self.at == len(self.data)


def code_lengths(data):
    """The lengths of a Huffman stream's codes, and where its bits begin."""
    at, half = 1, None

    def nibble():
        nonlocal at, half
        if half is not None:
            value, half = half, None
            return value
        need(at < len(data), "code lengths end early")
        value, half = data[at] & 15, data[at] >> 4
        at += 1
        return value

    need(data, "a Huffman stream is empty")
    count, lengths, last = data[0] + 1, [], 0
    while len(lengths) < count:
        value = nibble()
        if value == 0:
            lengths += [0] * (nibble() + 1)
        elif value == 12:
            need(last, "code lengths begin with a repetition")
            lengths += [last] * (nibble() + 3)
        else:
            need(value <= 11, "a code length is impossible")
            lengths.append(value)
            last = value
    need(len(lengths) == count, "more code lengths than symbols")
    need(not half, "a nibble after the code lengths is not zero")
    return lengths, at


def huffman_bits(data, count, table, bits):
    out, word, known, at = bytearray(count), 0, 0, 0
    for i in range(count):
        while known < bits:
            word = word << 8 | (data[at] if at < len(data) else 0)
            at += 1
            known += 8
        out[i], size = table[word >> known - bits]
        known -= size
        word &= (1 << known) - 1
    need((8 * at - known + 7) // 8 == len(data) and word == 0, "codes do not end where their bits end")
    return out


def huffman_stream(data, plain_len):
    lengths, at = code_lengths(data)
    bits = max(lengths)
    table = []
    for size in range(1, bits + 1):
        for symbol, length in enumerate(lengths):
            if length == size:
                table += [(symbol, size)] * (1 << bits - size)
    need(bits and len(table) == 1 << bits, "code lengths do not fill the code space")
    if plain_len < 256:
        return huffman_bits(data[at:], plain_len, table, bits)
    cursor = Groups(data, 0)
    cursor.at = at
    sizes = [cursor.number() for _ in range(3)]
    sizes.append(len(data) - cursor.at - sum(sizes))
    need(sizes[3] >= 0, "a Huffman stream ends early")
    quarter, out = (plain_len + 3) // 4, bytearray()
    for i, size in enumerate(sizes):
        count = quarter if i < 3 else plain_len - 3 * quarter
        out += huffman_bits(cursor.take(size), count, table, bits)
    return out


class Groups:
    """What follows the method of a PAGES frame."""

    def __init__(self, data, allowed):
        self.data, self.at, self.allowed = data, 0, allowed

    def take(self, size):
        need(self.at + size <= len(self.data), "a PAGES payload ends early")
        self.at += size
        return self.data[self.at - size : self.at]

    def byte(self):
        return self.take(1)[0]

    def number(self):
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Bad("a number has more than four bytes")

    def charge(self, size):
        self.allowed -= size
        need(self.allowed >= 0, "streams are longer than the plain bytes can need")
        return size

    def promised(self):
        return self.charge(self.number())

    # Streams.

    def stream(self):
        mode = self.byte()
        if mode == 5:
            return self.sequences()
        if mode not in (6, 7):
            return self.simple_stream(mode)
        size, coded = self.coded()
        if mode == 6:
            return zstd_frame(coded, size)
        plain = bytearray()
        lz4_block(coded, plain, size)
        need(len(plain) == size, "an LZ4 block does not give its length")
        return plain

    def coded(self):
        size = self.promised()
        need(size, "a coded stream is empty")
        return size, self.take(self.number())

    def simple_stream(self, mode):
        if mode == 0:
            return b""
        if mode == 1:
            return self.take(self.promised())
        if mode == 2:
            size = self.promised()
            return self.take(1) * size
        need(mode in (3, 4), "a stream has a mode that is not known")
        size, coded = self.coded()
        if mode == 3:
            return huffman_stream(coded, size)
        need(coded, "exceptions without their byte")
        plain, place, at = bytearray(coded[:1] * size), 0, 1
        while at < len(coded):
            place += coded[at]
            at += 1
            if coded[at - 1] < 255:
                need(at < len(coded) and place < size, "an exception is outside its stream")
                plain[place] = coded[at]
                at += 1
        return plain

    def sequences(self):
        size = self.promised()
        tokens, lengths, literals, low, high = (Taken(self.simple_stream(self.byte())) for _ in range(5))
        out = bytearray()

        def more(base):
            byte = 255 if base == 15 else 0
            while byte == 255:
                byte = lengths.take(1)[0]
                base += byte
            return base

        need(tokens.data, "sequences without a token")
        while True:
            token = tokens.take(1)[0]
            out += literals.take(more(token >> 4))
            if tokens.ended():
                break
            distance = low.take(1)[0] | high.take(1)[0] << 8
            copy_match(out, 0, distance, more(token & 15) + 4, size)
        streams = (lengths, literals, low, high)
        need(token & 15 == 0 and all(s.ended() for s in streams), "sequences have bytes left")
        need(len(out) == size, "sequences do not give their length")
        return out

    # Columns.

    def planes(self, width):
        planes = [self.stream() for _ in range(width)]
        need(len({len(plane) for plane in planes}) == 1, "planes have different lengths")
        values = bytearray(width * len(planes[0]))
        for i, plane in enumerate(planes):
            values[i::width] = plane
        return values

    def fixed(self, width, most):
        """A column of at most `most` values of `width` bytes, one after the other."""
        form = self.byte()
        values = b""
        if form == 1:
            values = self.stream()
        elif form == 2:
            need(width <= 64, "planes of a column that is too wide")
            lanes = self.number()
            values = self.planes(width)
            for lane in range(width // 4):
                if lanes >> lane & 1:
                    before = 0
                    for at in range(4 * lane, len(values), width):
                        before = before + int.from_bytes(values[at : at + 4], "little") & 0xFFFFFFFF
                        values[at : at + 4] = before.to_bytes(4, "little")
        elif form == 3:
            listed = Taken(self.take(width * self.byte()))
            numbers, others = self.stream(), Taken(self.stream())
            self.charge(width * len(numbers))
            listed = [listed.take(width) for _ in range(len(listed.data) // width)]
            values = b"".join(self.listed(listed, number, others, width) for number in numbers)
            need(others.ended(), "a list has more values than it needs")
        else:
            need(form == 0, "a column has a form that is not known")
        need(len(values) % width == 0, "a column ends within a value")
        need(len(values) <= width * most, "a column has more values than its pages hold")
        return Taken(values)

    @staticmethod
    def listed(values, number, others, size):
        if number == 255:
            return others.take(size)
        need(number < len(values) and len(values[number]) == size, "a value is not in its list")
        return values[number]

    def values(self, most):
        """A column of values with lengths: low bytes, high bytes, values."""
        low, high = self.stream(), self.stream()
        need(len(low) <= most, "a column has more values than there are tuples")
        need(len(low) == len(high), "lengths have lost a half")
        return Taken(low), Taken(high), Taken(self.values_of(low))

    def values_of(self, low):
        form = self.byte()
        values = b""
        if form == 1:
            values = self.stream()
        elif form == 2:
            width = self.byte()
            need(1 <= width <= 8, "values in planes have an impossible width")
            filled = self.planes(width)
            need(len(filled) == width * len(low) and max(low, default=0) <= width, "planes do not fit their lengths")
            values = b"".join(filled[width * i : width * i + size] for i, size in enumerate(low))
        elif form == 3:
            values = [self.take(size) for size in self.take(self.byte())]
            numbers, others = self.stream(), Taken(self.stream())
            need(len(numbers) == len(low), "a list does not fit its lengths")
            self.charge(sum(low))
            values = b"".join(self.listed(values, n, others, size) for n, size in zip(numbers, low))
            need(others.ended(), "a list has more values than it needs")
        else:
            need(form == 0, "a column has a form that is not known")
        return values

    # Groups and pages.

    def group(self, left):
        kind = self.byte()
        if kind == 0:
            need(self.data[self.at : self.at + 1] in (b"\1", b"\6"), "other bytes are neither stored nor a zstd frame")
            plain = self.stream()
            need(plain, "a group has no bytes")
            return plain
        is_sqlite = 41 <= kind <= 48
        need(12 <= kind <= 15 or is_sqlite, "a group has a kind that is not known")
        size, count = 1 << (kind - 32 if is_sqlite else kind), self.number()
        need(0 < count * size <= left, "groups are longer than the plain bytes")
        if is_sqlite:
            return self.sqlite_pages(size, count)
        columns = self.number()
        need(columns <= 128, "a layout has too many columns")
        columns = [(number >> 2, 1 << (number & 3)) for number in (self.number() for _ in range(columns))]
        need(all(width < 1 << 15 for width, _ in columns), "a column is too wide")
        forms = self.stream()
        need(len(forms) == count, "a group has not one form for each page")
        parts = PageParts(self, columns, size * count)
        plain = b"".join(parts.page(form, size) for form in forms)
        need(parts.ended(), "streams have more than their pages need")
        return plain

    def sqlite_pages(self, size, count):
        classes = self.number()
        need(classes <= 64, "a group has too many classes")
        classes = [(self.byte(), self.number()) for _ in range(classes)]
        known = all(kind in (10, 13) and columns <= 126 for kind, columns in classes)
        need(known and sum(columns for _, columns in classes) <= 512, "a class of pages is impossible")
        forms, numbers, plain = self.stream(), Taken(self.stream()), Taken(self.stream())
        need(len(forms) == count, "a group has not one form for each page")
        pages, of_class = [], [[] for _ in classes]
        for form in forms:
            if form & ~24 == 2:
                number = numbers.take(1)[0]
                need(number < len(classes), "a page has no class")
                of_class[number].append((len(pages), form))
                pages.append(None)
            else:
                need(form < 2, "a page has a form that is not known")
                pages.append(bytes(size) if form else plain.take(size))
        need(numbers.ended() and plain.ended(), "streams have more than their pages need")
        for (kind, columns), places in zip(classes, of_class):
            records = SqliteRecords(self, kind, columns, size * count // 4)
            for place, form in places:
                pages[place] = records.page(form, size)
            need(records.ended(), "a class has more than its pages need")
        return b"".join(pages)

    def integers(self, most):
        width = self.byte()
        need(width in (0, 1, 2, 4, 8), "integers have an impossible width")
        values = self.fixed(width, most).data if width else b""
        return [int.from_bytes(values[i : i + width], "little", signed=True) for i in range(0, len(values), width or 1)]

    def reals(self, most):
        """Real numbers, the bits of each."""
        form = self.byte()
        if form == 0:
            return []
        need(form <= 10, "real numbers have a form that is not known")
        if form == 1:
            values = self.fixed(8, most).data
            return [bytes(values[i : i + 8]) for i in range(0, len(values), 8)]
        flags, integers, others, out = self.stream(), self.integers(most), self.fixed(8, most), []
        need(len(flags) <= most, "more real numbers than records")
        for flag in flags:
            need(flag < 2 and (flag or integers), "a real number is missing")
            out.append(bytes(others.take(8)) if flag else struct.pack("<d", integers.pop(0) / 10.0 ** (form - 2)))
        need(not integers and others.ended(), "more real numbers than their stream says")
        return out


class PageParts:
    """Streams and columns of a group, of which pages are put together in order."""

    def __init__(self, groups, columns, size):
        self.columns, self.recent = columns, [bytes(24), bytes(24)]

        def fixed(width):
            return groups.fixed(width, size // (6 if width == 8 else width))

        self.heads = fixed(24)
        self.flags = Taken(groups.stream())
        tuples = len(self.flags.data)
        need(24 * tuples <= size, "more tuples than their pages hold")
        self.headers, self.pointers = fixed(24), fixed(4)
        self.nulls = [Taken(groups.stream()) for _ in range((len(columns) + 7) // 8)]
        self.row_gaps = Taken(groups.stream())
        self.lengths, self.item_heads, self.item_pointers = fixed(2), fixed(8), fixed(4)
        self.firsts, self.steps = fixed(8), fixed(8)
        self.keys = [fixed(8 * (i + 1)) for i in range(8)]
        self.other_keys, self.item_gaps = Taken(groups.stream()), Taken(groups.stream())
        self.plain = Taken(groups.stream())
        self.values = [groups.fixed(width, tuples) if width else groups.values(tuples) for width, _ in columns]

    def ended(self):
        own = (part for part in vars(self).values() if isinstance(part, Taken))
        values = (part for value in self.values for part in (value if isinstance(value, tuple) else (value,)))
        return all(part.ended() for part in (*own, *self.nulls, *self.keys, *values))

    def page(self, form, size):
        if form == 0:
            return self.plain.take(size)
        page = bytearray(size)
        if form == 1:
            return page
        page[:24] = self.heads.take(24)
        lower, upper, special, version = struct.unpack_from("<4H", page, 12)
        ordered = 24 <= lower <= upper <= special <= size
        need(ordered and version == size | 4 and lower % 4 == upper % 8 == special % 8 == 0, "the head of a page is impossible")
        if form == 2:
            page[24:lower] = self.plain.take(lower - 24)
            page[upper:] = self.plain.take(size - upper)
            return page
        page[special:] = self.plain.take(size - special)
        if form & 8:
            page[lower:upper] = self.plain.take(upper - lower)
        form &= ~8
        if form & 7 == 3 and form < 128:
            self.rows(page, (lower, upper), form & 16, form & 32, form & 64)
        else:
            need(form in (4, 5, 20), "a page has a form that is not known")
            self.items(page, (lower, upper, special), form)
        return page

    def tuple(self, index, has_bitmaps):
        flag = self.flags.take(1)[0]
        known, has_bitmap = flag & 3, flag & 4
        need(known < 3 and flag < 8, "a tuple has flags that are not known")
        if known == 2:
            self.recent = [self.headers.take(24), self.recent[0]]
        words = struct.unpack("<3Q", self.recent[1 if known == 1 else 0])
        last = (words[2] ^ index + 1) & 0x0000_FFFE_FFFF_FFFF
        count = words[2] >> 16 & 0x7FF
        need(1 <= count <= len(self.columns), "a tuple has an impossible number of attributes")
        present = (1 << count) - 1
        need(has_bitmaps or not has_bitmap, "a tuple with a bitmap on a page without")
        if has_bitmaps:
            present &= int.from_bytes(b"".join(nulls.take(1) for nulls in self.nulls), "little")
        bitmap = (count + 7) // 8 if has_bitmap else 1
        begin = (23 + bitmap + 7) // 8 * 8
        last |= (1 << 32 if has_bitmap else 0) | begin << 48
        out = bytearray(struct.pack("<3Q", words[0], words[1], last))[:23]
        out += present.to_bytes(16, "little")[:bitmap] if has_bitmap else b"\0"
        out += bytes(begin - len(out))
        for column, (width, align) in enumerate(self.columns):
            if present >> column & 1:
                self.value(out, self.values[column], width, align)
        return out

    @staticmethod
    def value(out, values, width, align):
        if width:
            out += bytes(-len(out) % align)
            out += values.take(width)
            return
        low, high, values = values
        low, high = low.take(1)[0], high.take(1)[0]
        if high >= 128:
            size = low | (high & 63) << 8
            out += bytes(-len(out) % align)
            out += (size + 4 << 2 | (2 if high & 64 else 0)).to_bytes(4, "little")
        else:
            need(high == 0 and low < 127 or high == 64 and low == 17, "a value has an impossible length")
            size = low
            out.append(1 if high else low + 1 << 1 | 1)
        out += values.take(size)

    def rows(self, page, places, has_pointers, has_bitmaps, has_gaps):
        lower, upper = places
        indexes = range((lower - 24) // 4)
        if has_pointers:
            page[24:lower] = self.pointers.take(lower - 24)
            indexes = [i for i in indexes if page_pointer(page, i)[1] == 1]
        below, used = len(page), []
        for index in indexes:
            row = self.tuple(index, has_bitmaps)
            if has_pointers:
                start, _, size = page_pointer(page, index)
                need(size == len(row), "a line pointer has another length than its tuple")
            else:
                below -= (len(row) + 7) // 8 * 8
                start = below
                need(start >= upper, "tuples are longer than their page")
                set_page_pointer(page, index, start, len(row))
            end = start + len(row)
            need(start >= upper and start % 8 == 0 and end <= len(page), "a tuple is outside its page")
            page[start:end] = row
            used.append((start, end))
        need(has_pointers or below == upper, "tuples do not fill their page")
        if not has_gaps:
            return
        for _, end in used:
            filled = (end + 7) // 8 * 8
            page[end:filled] = self.row_gaps.take(filled - end)
        if has_pointers:
            covered = upper
            for start, end in [*sorted(used), (len(page), len(page))]:
                need(covered <= start, "tuples overlap")
                page[covered:start] = self.row_gaps.take(start - covered)
                covered = (end + 7) // 8 * 8

    def items(self, page, places, form):
        lower, upper, special = places
        count = (lower - 24) // 4
        if form == 20:
            page[24:lower] = self.item_pointers.take(lower - 24)
            pointers = [page_pointer(page, i) for i in range(count)]
            used = [(start, size) for start, _, size in pointers if size]
        else:
            need(count, "a page of items has none")
            sizes = struct.unpack(f"<{count}H", self.lengths.take(2 * count))
            used, below = [], special
            for i, size in enumerate(sizes):
                if form == 5 and i == 0:
                    used.append((upper, size))
                    continue
                below -= size
                used.append((below, size))
            need(below - (sizes[0] if form == 5 else 0) == upper, "items do not fill their page")
        for i, (start, size) in enumerate(used):
            need(8 <= size and 0 <= start and start + size <= len(page), "an item is outside its page")
            page[start : start + size] = self.item(size)
            if form != 20:
                set_page_pointer(page, i, start, size)
        if form == 20:
            covered = upper
            for start, size in [*sorted(used), (special, 0)]:
                need(covered <= start, "items overlap")
                page[covered:start] = self.item_gaps.take(start - covered)
                covered = start + size

    def item(self, size):
        head = self.item_heads.take(8)
        high, low, number, info = struct.unpack("<4H", head)
        at, count = high << 16 | low, number & 0xFFF
        if not (info & 0x2000 and number & 0x2000 and count and at >= 8 and at + 6 * count <= size):
            return head + self.key(size - 8)
        out = head + self.key(at - 8)
        address = int.from_bytes(self.firsts.take(8), "little")
        for i in range(count):
            if i:
                address += int.from_bytes(self.steps.take(8), "little")
            out += struct.pack("<3H", address >> 32 & 0xFFFF, address >> 16 & 0xFFFF, address & 0xFFFF)
        return out + self.item_gaps.take(size - len(out))

    def key(self, size):
        return (self.keys[size // 8 - 1] if size in range(8, 65, 8) else self.other_keys).take(size)


class SqliteRecords:
    """Streams of a class, of which its pages are put together in order."""

    def __init__(self, groups, kind, columns, most):
        self.kind, self.rowid = kind, 0
        self.heads, self.pointers, self.gaps = groups.fixed(8, most), groups.fixed(2, most), Taken(groups.stream())
        self.steps = Taken(groups.stream() if kind == 13 else b"")
        self.rowids = groups.fixed(8, most) if kind == 13 else Taken(b"")
        self.columns = [self.column(groups, most) for _ in range(columns)]

    @staticmethod
    def column(groups, most):
        kinds = groups.stream()
        need(len(kinds) <= most, "more records than their pages hold")
        integers, reals = groups.integers(len(kinds)), groups.reals(len(kinds))
        return Taken(kinds), iter(integers), iter(reals), *groups.values(len(kinds))

    def ended(self):
        own = (self.heads, self.pointers, self.gaps, self.steps, self.rowids)
        nothing = object()
        return all(part.ended() for part in own) and all(
            part.ended() if isinstance(part, Taken) else next(part, nothing) is nothing
            for column in self.columns
            for part in column
        )

    def page(self, form, size):
        page = bytearray(size)
        page[:8] = self.heads.take(8)
        kind, _, count, content = struct.unpack_from(">BHHH", page)
        begin = 8 + 2 * count
        need(kind == self.kind and count and begin <= content < size, "the head of a page is impossible")
        if form & 8:
            page[begin:content] = self.gaps.take(content - begin)
        below, used = size, []
        for index in range(count):
            cell = self.cell()
            start = below - len(cell)
            if form & 16:
                start = start - int.from_bytes(self.pointers.take(2), "little") & 0xFFFF
            need(content <= start and start + len(cell) <= size, "a cell is outside its page")
            page[start : start + len(cell)] = cell
            struct.pack_into(">H", page, 8 + 2 * index, start)
            used.append((start, start + len(cell)))
            below = start
        if not form & 16:
            need(below == content, "cells do not fill their page")
            return page
        covered = content
        for start, end in [*sorted(used), (size, size)]:
            need(covered <= start, "cells overlap")
            page[covered:start] = self.gaps.take(start - covered)
            covered = end
        return page

    def cell(self):
        rowid = b""
        if self.kind == 13:
            step = self.steps.take(1)[0]
            self.rowid = int.from_bytes(self.rowids.take(8), "little") if step == 255 else self.rowid + step & (1 << 64) - 1
            rowid = varint(self.rowid)
        serials, body, ended = b"", b"", False
        for kinds, integers, reals, low, high, values in self.columns:
            kind = kinds.take(1)[0]
            need(not ended or kind == 5, "a record goes on after its end")
            if kind == 5:
                ended = True
            elif kind == 0:
                serials += b"\0"
            elif kind == 1 or 17 <= kind <= 22:
                value = next(integers, None)
                need(value is not None, "an integer is missing")
                serial = kind - 16 if kind > 16 else shortest_type(value)
                serials += bytes([serial])
                width = SERIAL_WIDTHS.get(serial, 0)
                body += (value & (1 << 8 * width) - 1).to_bytes(width, "big")
            elif kind == 2:
                value = next(reals, None)
                need(value is not None, "a real number is missing")
                serials += b"\7"
                body += value[::-1]
            else:
                need(kind in (3, 4), "a value has a kind that is not known")
                size = low.take(1)[0] | high.take(1)[0] << 8
                serials += varint(12 + 2 * size + (kind == 3))
                body += values.take(size)
        need(len(serials) < 127, "the header of a record is too long")
        record = bytes([len(serials) + 1]) + serials + body
        return varint(len(record)) + rowid + record


SERIAL_WIDTHS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def shortest_type(value):
    """The serial type of an integer."""
    if value in (0, 1):
        return 8 + value
    return next(serial for serial, width in SERIAL_WIDTHS.items() if -1 << 8 * width - 1 <= value < 1 << 8 * width - 1)


def varint(value):
    """An integer as SQLite writes it."""
    if value >> 56:
        return bytes(value >> shift & 127 | 128 for shift in range(57, 7, -7)) + bytes([value & 255])
    groups = max(1, (value.bit_length() + 6) // 7)
    return bytes(value >> 7 * i & 127 | (128 if i else 0) for i in range(groups - 1, -1, -1))


def page_pointer(page, index):
    """Offset, state and length of a line pointer."""
    (word,) = struct.unpack_from("<I", page, 24 + 4 * index)
    return word & 0x7FFF, word >> 15 & 3, word >> 17


def set_page_pointer(page, index, offset, size):
    struct.pack_into("<I", page, 24 + 4 * index, offset | 1 << 15 | size << 17)


def pages_frame(payload, plain_len):
    need(len(payload) >= 9, "the PAGES frame ends early")
    magic, size = struct.unpack_from("<II", payload)
    need(magic == 0x184D2A5C, "not the frame of PAGES")
    need(size == len(payload) - 8, "the PAGES frame and payload do not end together")
    if payload[8] == 0:
        return payload[9:]
    need(payload[8] == 1, "an unknown method of PAGES")
    groups, out = Groups(bytes(payload[9:]), 6 * plain_len + 65_536), bytearray()
    while len(out) < plain_len:
        out += groups.group(plain_len - len(out))
    need(groups.at == len(groups.data), "bytes behind the last group")
    return bytes(out)


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
    elif algorithm == 6:
        plain = pages_frame(payload, plain_len)
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
    body: bytes
    known: bytes
    media_set: uuid.UUID
    family: int
    family_count: int
    parity_count: int
    container: int
    compressed: int
    generation: int
    encrypted: bool
    name: str

    @staticmethod
    def parse(body):
        f = Fields(body)
        media_set, _family_uuid = f.uuid(), f.uuid()
        family, count, parity, container, compressed = f.u(2), f.u(2), f.u(2), f.u(1), f.u(1)
        _created = f.i(8)
        compatible = f.u(8)
        incompatible = f.u(8)
        features(incompatible, ENCRYPTED | PARITY_BIT)
        encrypted = bool(incompatible & ENCRYPTED)
        generation = f.u(4)
        f.zeros(4)
        name, _description, _software = f.text(512), f.text(1024), f.text(128)
        known = bytes(body[:48]) + bytes(body[56 : f.at])
        f.end(compatible)
        need(parity <= PARITY_MAX and 1 <= count <= FAMILIES_MAX - parity, "an impossible number of families")
        need(1 <= family <= count + parity, "an impossible family number")
        need(bool(incompatible & PARITY_BIT) == (parity > 0), "parity without its feature bit, or the bit without parity")
        need(container in CONTAINERS and compressed in (0, 1), "a field is out of range")
        need(container == ZSTD or not encrypted, "encrypted media in another container than zstd")
        need(family <= count or container == ZSTD, "a parity stripe of another container")
        return Media(
            bytes(body), known, media_set, family, count, parity, container, compressed, generation, encrypted, name
        )


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


def tree_root(data):
    """The attributes of the tree's own directory; without a mode if the set is not of one directory."""
    f = Fields(data)
    kind = f.u(1)
    need(kind <= 1, "a tree root of an unknown kind")
    facts = {}
    if kind:
        facts = {"mode": f.u(4), "uid": f.u(4), "gid": f.u(4), "mtime_ns": f.i(8)}
        need(facts["mode"] <= 0o7777, "a mode is out of range")
        attributes = {}
        while f.at < len(data):
            need(f.u(1) == 6, "no attribute in a tree root")
            name_len, value_len = f.u(1), f.u(4)
            name, value = bytes(f.take(name_len)), bytes(f.take(value_len))
            need(KEPT.fullmatch(name), f"an attribute of a name that is not kept: {name!r}")
            need(all(old < name for old in attributes), "attributes out of order")
            attributes[name] = value
        facts["attribute"] = [f"{shown(name)} = {value.hex()}" for name, value in attributes.items()]
        facts = Facts(facts)
        facts.attributes = attributes
    f.end()
    return facts


class Facts(dict):
    """Facts of a tree root, with its attributes as bytes."""


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
    encrypted: bool
    facts: dict

    @staticmethod
    def parse(body):
        f = Fields(body)
        set_id, position, _start = f.uuid(), f.u(4), f.i(8)
        source_kind, backup_type, algorithm = f.u(1), f.u(1), f.u(1)
        f.zeros(1)
        _level, _zone, buffer_bytes, _page, flags = f.i(2), f.i(2), f.u(4), f.u(4), f.u(4)
        compatible, incompatible = f.u(8), f.u(8)
        features(incompatible, ENCRYPTED | DIFFERENTIAL | LOG | SUMS | ATTRIBUTES | PAGES | DETACHED)
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
            (ROOT, ROOT_MAX, "root", tree_root),
        ):
            if compatible & bit:
                data = f.bytes(limit)
                need(data, f"a {name} without content")
                facts[name] = parse(data)
        f.end(compatible & ~(LINEAGE | IDENTITY | ROOT))
        need(backup_type in (1, 2, 3) and algorithm in ALGORITHMS and flags <= 1, "a field is out of range")
        differential = backup_type == 2
        need(differential == (parent.int != 0), "a parent without a differential set, or the reverse")
        need(bool(incompatible & PAGES) == (algorithm == 6), "PAGES without its feature bit, or the reverse")
        need(incompatible & (ENCRYPTED | DETACHED) != DETACHED, "detached keys of a set that is not encrypted")
        of_type = incompatible & ~(ENCRYPTED | SUMS | ATTRIBUTES | PAGES | DETACHED)
        need(of_type == (0, DIFFERENTIAL, LOG)[backup_type - 1], "a kind of set without its feature bit, or the reverse")
        need(1 <= position <= SETS_MAX and 1 <= buffer_bytes <= PLAIN_MAX, "a field is out of range")
        parent = parent if differential else None
        encrypted = bool(incompatible & ENCRYPTED)
        return SetHeader(
            bytes(body), set_id, position, source_kind, algorithm, buffer_bytes, database, name, parent, sum_key, encrypted, facts
        )

    def container(self):
        return ZSTD if self.encrypted else ALGORITHMS[self.algorithm][1]


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
    salt: bytes
    fixed: bytes
    part: bytes
    manifest_tag: bytes = b""

    @staticmethod
    def parse(body, encrypted=False):
        f = Fields(body)
        header = BlockHeader(
            f.uuid(), f.u(8), f.u(4), f.u(4), f.u(4), f.u(4), f.u(4), f.u(4), f.u(2), f.u(1), bytes(f.take(16)), b"", b""
        )
        f.zeros(5)
        header.fixed, header.part = bytes(body[:32] + body[44:51]), bytes(f.rest())
        plain, stored = header.plain_len, header.stored_len
        more = 8 + TAG_LEN if encrypted else 0
        need(plain <= PLAIN_MAX and header.manifest_len <= MANIFEST_MAX, "a length is beyond its limit")
        need(stored <= plain + plain // 256 + 1024 + more and (plain == 0) == (stored == 0), "an impossible payload length")
        need(any(header.salt) == encrypted, "a salt in a set that is not encrypted, or the reverse")
        need(not encrypted or header.plain_crc == 0, "a checksum of plain bytes outside the Check")
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
    mac: bytes
    root: bytes

    @staticmethod
    def parse(body):
        f = Fields(body)
        trailer = Trailer(
            f.uuid(), f.u(4), f.u(4), f.i(8), *(f.u(8) for _ in range(9)), f.u(4), f.u(4), f.u(8), f.u(4),
            bytes(f.take(32)), bytes(f.take(32)),
        )
        f.zeros(4)
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
            self.root,
        )


# ---------------------------------------------------------------- sums of pages

M64 = (1 << 64) - 1
MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
MERGE = ((3, 12, 2, 5, 14, 1, 15, 0), (11, 4, 10, 13, 9, 6, 8, 7))


def highway(key, data, rounds):
    """The four vectors of HighwayHash after its last rounds."""

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
    for _ in range(rounds):
        update((rot(v0[2]), rot(v0[3]), rot(v0[0]), rot(v0[1])))
    return v0, v1, mul0, mul1


def highway64(key, data):
    """HighwayHash with 64 bits of result."""
    return sum(vector[0] for vector in highway(key, data, 4)) & M64


for length, result in ((1, 0x7EAB43AAC7CDDD78), (2, 0xB8D0569AB0B53D62), (64, 0x75542C5D4CD2A6FF)):
    assert highway64(bytes(range(32)), bytes(range(length))) == result


def check_sums(header, key, entry, plain):
    """Whether a file's sums are those of the pages that the block holds; of each run one page is summed, this is slow."""
    for start, page, sums in entry.sums:
        need(key, "sums in a set without a key")
        end = min(start + page * len(sums), entry.len)
        for offset, length, at in entry.extents:
            first = max(start, -(-offset // page) * page)
            length_here = min(page, entry.len - first)
            if 0 < length_here and first + length_here <= min(end, offset + length):
                found = highway64(key, plain[at + first - offset :][:length_here]) or 1
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


# ---------------------------------------------------------------- ciphers

# Hashes are of the standard library. Ciphers, curves and argon2id are not: they come from the package
# `cryptography`, which is looked for when the first of them is needed.


def primitive(module, name):
    try:
        return getattr(importlib.import_module(f"cryptography.hazmat.primitives.{module}"), name)
    except (ImportError, AttributeError):
        raise SystemExit(f"to open an encrypted set, {name} of Python's package cryptography (50 or later) is needed") from None


def le(number, size):
    return number.to_bytes(size, "little")


def mac(key, *parts):
    return hmac.digest(key, b"".join(parts), "sha256")


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def expand(key, info, size=32):
    """HKDF-Expand."""
    out, last, n = b"", b"", 0
    while len(out) < size:
        n += 1
        last = mac(key, last, info, bytes([n]))
        out += last
    return out[:size]


def unseal(cipher, key, sealed, associated=b"", nonce=bytes(12)):
    """The message of AES-GCM or ChaCha20-Poly1305; None if its tag does not agree."""
    opener = primitive("ciphers.aead", cipher)(key)
    invalid = importlib.import_module("cryptography.exceptions").InvalidTag
    try:
        return opener.decrypt(nonce, bytes(sealed), associated)
    except invalid:
        return None


# ---------------------------------------------------------------- identities

BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
BECH32_STEPS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


def bech32(text):
    """Prefix and bytes of a Bech32 string of any length (BIP 173)."""
    need(text in (text.lower(), text.upper()) and "1" in text, "neither an identity of age nor a signer")
    prefix, _, digits = text.lower().rpartition("1")
    need(all(c in BECH32 for c in digits) and len(digits) >= 6, "neither an identity of age nor a signer")
    values, check = [BECH32.index(c) for c in digits], 1
    for value in [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix] + values:
        top, check = check >> 25, (check & 0x1FFFFFF) << 5 ^ value
        for i, step in enumerate(BECH32_STEPS):
            check ^= step if top >> i & 1 else 0
    need(check == 1, "an identity of age or a signer with a wrong checksum")
    bits = "".join(f"{value:05b}" for value in values[:-6])
    whole = len(bits) // 8 * 8
    need(len(bits) - whole < 5 and "1" not in bits[whole:], "neither an identity of age nor a signer")
    return prefix, bytes(int(bits[at : at + 8], 2) for at in range(0, whole, 8))


def unwrap_x25519(secret, share, body):
    """The file key of an X25519 stanza, if it is for this identity."""
    exchange, public = x25519(secret)
    shared = exchange(share)
    key = expand(mac(share + public, shared), b"age-encryption.org/v1/X25519")
    return unseal("ChaCha20Poly1305", key, body)


def x25519(secret):
    """The exchange with a private key, and its public key."""
    private = primitive("asymmetric.x25519", "X25519PrivateKey").from_private_bytes(secret)
    load = primitive("asymmetric.x25519", "X25519PublicKey").from_public_bytes

    def exchange(share):
        need(len(share) == 32, "a share of X25519 has another length")
        try:
            return private.exchange(load(share))
        except ValueError:
            raise Bad("a share of X25519 of low order") from None

    return exchange, private.public_key().public_bytes_raw()


def unwrap_hybrid(secret, share, body):
    """The file key of an mlkem768x25519 stanza: HPKE (RFC 9180, base mode) with X-Wing, HKDF-SHA256 and ChaCha20-Poly1305."""
    need(len(share) == 1088 + 32, "a share of mlkem768x25519 has another length")
    seed = hashlib.shake_256(secret).digest(96)
    lattice = primitive("asymmetric.mlkem", "MLKEM768PrivateKey").from_seed_bytes(seed[:64])
    exchange, public = x25519(seed[64:])
    both = lattice.decapsulate(share[:1088]) + exchange(share[1088:])
    shared = hashlib.sha3_256(both + share[1088:] + public + rb"\.//^" + b"\\").digest()
    suite = b"HPKE" + bytes.fromhex("647a 0001 0003")

    def extract(salt, label, data):
        return mac(salt, b"HPKE-v1", suite, label, data)

    def labeled(label, size):
        return expand(secret, size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context, size)

    info = extract(b"", b"info_hash", b"age-encryption.org/mlkem768x25519")
    context = b"\0" + extract(b"", b"psk_id_hash", b"") + info
    secret = extract(shared, b"secret", b"")
    return unseal("ChaCha20Poly1305", labeled(b"key", 32), body, b"", labeled(b"base_nonce", 12))


IDENTITIES = {"age-secret-key-": (b"X25519", unwrap_x25519), "age-secret-key-pq-": (b"mlkem768x25519", unwrap_hybrid)}


def base64_of(text):
    """The bytes of canonical Base64 without padding."""
    try:
        data = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise Bad("a file of age with impossible Base64") from None
    need(base64.b64encode(data).rstrip(b"=") == text, "a file of age with impossible Base64")
    return data


def age_header(data):
    """Of a file of age: stanzas (arguments, body), what its header's MAC covers, the MAC, what follows."""
    at = 0

    def line():
        nonlocal at
        end = data.find(b"\n", at)
        need(end >= 0, "a header of age ends early")
        start, at = at, end + 1
        return data[start:end]

    need(line() == b"age-encryption.org/v1", "not a file of age")
    stanzas = []
    while not (first := line()).startswith(b"--- "):
        need(first.startswith(b"-> "), "not a stanza of age")
        body = b""
        while len(more := line()) == 64:
            body += more
        need(len(more) < 64, "a line of age is too long")
        stanzas.append((first[3:].split(b" "), base64_of(body + more)))
    covered = data[: at - len(first) - 1 + 3]
    return stanzas, covered, base64_of(first[4:]), data[at:]


def open_age(data, secrets):
    """The content of a small file of age, if one of the identities opens it."""
    stanzas, covered, found, rest = age_header(data)
    for prefix, secret in secrets:
        kind, unwrap = IDENTITIES[prefix]
        for arguments, body in stanzas:
            if arguments[0] != kind or len(arguments) != 2 or len(body) != 32:
                continue
            file_key = unwrap(secret, base64_of(arguments[1]), body)
            if file_key is None:
                continue
            need(mac(expand(mac(b"", file_key), b"header"), covered) == found, "the MAC of a header of age is wrong")
            need(len(rest) <= 16 + (64 << 10) + TAG_LEN, "a file of age is too long")
            key = expand(mac(rest[:16], file_key), b"payload")
            content = unseal("ChaCha20Poly1305", key, rest[16:], b"", bytes(11) + b"\1")
            need(content is not None, "the tag of a file of age is wrong")
            return content
    return None


def open_passphrase(slot, passphrase):
    """The set key of a passphrase's slot, if the passphrase is the right one."""
    need(len(slot) == 108, "a slot of a passphrase has another length")
    memory, passes, lanes = struct.unpack_from("<III", slot)
    possible = memory <= ARGON_KIB_MAX and 1 <= passes <= ARGON_PASSES_MAX and 1 <= lanes <= ARGON_LANES_MAX
    need(possible and memory >= 8 * lanes, "a slot of a passphrase asks for an impossible amount of work")
    argon = primitive("kdf.argon2", "Argon2id")
    derived = argon(salt=slot[12:28], length=64, iterations=passes, lanes=lanes, memory_cost=memory).derive(passphrase)
    if not hmac.compare_digest(derived[32:], slot[28:60]):
        return None
    key = unseal("AESGCM", derived[:32], slot[60:], slot[:60])
    need(key is not None, "the tag of a passphrase's slot is wrong")
    return key


def open_certificate(slot, private_key):
    """The set key of a certificate's slot, if it is for this private key: RSA-OAEP, SHA-256, an empty label."""
    need(len(slot) >= 42 + 256 and struct.unpack_from("<H", slot)[0] == 1, "a slot of a certificate is wrapped in an unknown way")
    serialization = importlib.import_module("cryptography.hazmat.primitives.serialization")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = private_key.public_key().public_bytes(serialization.Encoding.DER, form)
    if hashlib.sha256(public).digest()[:20] != slot[2:22]:
        return None
    sha256 = importlib.import_module("cryptography.hazmat.primitives.hashes").SHA256
    padding = importlib.import_module("cryptography.hazmat.primitives.asymmetric.padding")
    oaep = padding.OAEP(mgf=padding.MGF1(sha256()), algorithm=sha256(), label=None)
    try:
        return private_key.decrypt(slot[42:], oaep)
    except ValueError:
        raise Bad("a slot of a certificate does not open") from None


def private_key_of(data):
    """The private key in a file of PKCS#8, PEM or DER; None if it is another file."""
    is_pem = b"-----BEGIN PRIVATE KEY-----" in data
    if not is_pem and data[:1] != b"\x30":
        return None
    serialization = importlib.import_module("cryptography.hazmat.primitives.serialization")
    load = serialization.load_pem_private_key if is_pem else serialization.load_der_private_key
    key = load(data, None)
    need(key.key_size >= 2048, "a private key has fewer than 2048 bits")
    return key


def open_command(slot, commands, name):
    """The set key of a slot whose key a program keeps; None if none of the named ones is its."""
    need(len(slot) > 4 and struct.unpack_from("<H", slot)[0] == 1, "a slot of a program's key has another form")
    end = 4 + struct.unpack_from("<H", slot, 2)[0]
    key_id, wrapped = slot[4:end], slot[end:]
    is_id = 1 <= len(key_id) <= 512 and all(0x21 <= byte <= 0x7E for byte in key_id)
    need(is_id and 1 <= len(wrapped) <= 4096, "a slot of a program's key is malformed")
    command = commands.get(key_id.decode())
    if command is None:
        return None
    words = [word.replace("{key}", key_id.decode()).replace("{set}", name) for word in command]
    environment = {**os.environ, "LONGSHORE_KEY_ID": key_id.decode(), "LONGSHORE_SET": name}
    try:
        said = subprocess.run(words, input=wrapped, stdout=subprocess.PIPE, timeout=60, env=environment, check=False)
        need(said.returncode == 0, f"{words[0]} ended with {said.returncode}")
        return base64.b64decode(said.stdout.strip(), validate=True)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise Bad(f"{words[0]}: {error}") from None


class Keyring:
    """The identities, passphrases and programs of the command line."""

    def __init__(self, identity_files, passphrase_files, programs=()):
        self.commands = {words[0]: words[1:] for words in map(shlex.split, programs)}
        need(all(self.commands.values()), "--unwrap wants the id of a key and a program")
        self.secrets, self.passphrases, self.private_keys = [], [], []
        # Where key objects are looked for, and objects that were named.
        self.folders, self.named = [], []
        for path in identity_files:
            with open(path, "rb") as file:
                data = file.read()
            private_key = private_key_of(data)
            if private_key is not None:
                self.private_keys.append(private_key)
                continue
            for line in (line.strip() for line in data.decode().splitlines()):
                if line and not line.startswith("#"):
                    prefix, secret = bech32(line)
                    need(prefix in IDENTITIES and len(secret) == 32, f"{path}: an identity of an unknown kind")
                    self.secrets.append((prefix, secret))
        for path in passphrase_files:
            with open(path, "rb") as file:
                self.passphrases.append(file.readline().rstrip(b"\r\n"))

    def set_key(self, kind, slot, name):
        if kind == COMMAND:
            return open_command(slot, self.commands, name)
        if kind == AGE and self.secrets:
            return open_age(slot, self.secrets)
        if kind == CERTIFICATE:
            found = (open_certificate(slot, private_key) for private_key in self.private_keys)
            return next((key for key in found if key is not None), None)
        if kind == PASSPHRASE:
            found = (open_passphrase(slot, passphrase) for passphrase in self.passphrases)
            return next((key for key in found if key is not None), None)
        return None

    def open(self, keys):
        """The keys of an encrypted set; None if there is nothing to open it with."""
        if not (self.secrets or self.passphrases or self.private_keys or self.commands):
            return None
        why = ["no identity or passphrase opens the set"]
        if not keys.slots:
            why.append(f"its keys are detached, and were looked for in {', '.join(self.folders)} and --key-object")
        opened = self.by_slots(keys, keys.slots, why)
        return opened or self.by_objects(keys, why)

    def by_slots(self, keys, slots, why, is_right=lambda opened: True):
        """The keys from the first slot that has the right set key; None if none has. Adds to `why`."""
        name = str(uuid.UUID(bytes=keys.header[:16]))
        for kind, slot in sorted(slots, key=lambda slot: slot[0] == COMMAND):
            try:
                key = self.set_key(kind, slot, name)
            except Bad as bad:
                why.append(str(bad))
                continue
            if key is not None and len(key) == 32:
                opened = Opened(keys.context, key)
                if hmac.compare_digest(opened.of["commit"], keys.commitment) and is_right(opened):
                    return opened
                why.append("a slot's key is not the one of the commitment, or not that of its object")
        return None

    def has_command(self, slot):
        """Whether it knows the program that keeps a slot's key."""
        ids = (key_id.encode() for key_id in self.commands)
        return any(slot[2:].startswith(le(len(key_id), 2) + key_id) for key_id in ids)

    def by_objects(self, keys, why):
        """The keys from a key object next to the stripes, or from one that was named."""
        objects, costly = [], {PASSPHRASE: COSTLY_MAX, COMMAND: COSTLY_MAX}
        for data in [*self.named, *objects_of(self.folders, keys.header[:16])]:
            try:
                objects.append(KeyObject.parse(data))
            except Bad as bad:
                why.append(str(bad))
        tried = []
        for found in objects[:FOUND_MAX]:
            if (found.set, found.commitment) != (keys.header[:16], keys.commitment):
                continue
            slots = []
            for kind, slot in found.slots:
                if kind == COMMAND and not self.has_command(slot):
                    continue
                costly[kind] = costly.get(kind, SLOTS_MAX * FOUND_MAX) - 1
                slots += [(kind, slot)] if costly[kind] >= 0 else []
            tried.append((found, slots))
        # Programs after everything else.
        for wanted in (lambda slot: slot[0] != COMMAND, lambda slot: slot[0] == COMMAND):
            for found, slots in tried:
                opened = self.by_slots(keys, filter(wanted, slots), why, found.is_by)
                if opened:
                    return opened
        raise Bad(": ".join(why))


# ---------------------------------------------------------------- encrypted sets

LABELS = ("commit", "mac", "meta", "payload", "salt", "hash")


class Opened:
    """The keys of a set, derived from its set key."""

    def __init__(self, context, set_key):
        self.prk, self.set_key = mac(context, set_key), set_key
        self.of = {label: expand(self.prk, b"longshore/1/" + label.encode()) for label in (*LABELS, "object")}

    def of_sums(self, header):
        """The key of page sums, which the header has under a mask."""
        mask = expand(mac(header.set.bytes, self.set_key), b"longshore/1/sums")
        return bytes(a ^ b for a, b in zip(header.sum_key, mask))

    def of_manifest(self, block):
        return expand(self.of["meta"], b"b" + le(block.sequence, 8) + block.salt)

    def of_payload(self, block):
        return expand(self.of["payload"], b"p" + le(block.sequence, 8) + block.salt)

    def of_chunk(self, family, number, salt):
        return expand(self.of["meta"], b"i" + le(family, 2) + le(number, 4) + salt)


@dataclass
class Keys:
    """All Keys records of a set."""

    header: bytes
    bodies: list
    parent_root: bytes
    commitment: bytes
    slots: list
    context: bytes

    @staticmethod
    def parse(header, bodies):
        slots, same = [], []
        for number, body in enumerate(bodies):
            f = Fields(body)
            scheme, digest = f.u(2), f.u(1)
            need(scheme == 1 and digest == 1, f"needs a newer reader: encryption scheme {scheme}, digest {digest}")
            f.zeros(1)
            need(f.u(2) == number and f.u(2) == len(bodies), "a Keys record is missing or repeated")
            same.append((f.take(32), f.take(32)))
            while f.at < len(body):
                kind, size = f.u(2), f.u(2)
                slots.append((kind, bytes(f.take(size))))
        need(same and all(one == same[0] for one in same), "the Keys records of a set differ")
        need(len(slots) <= SLOTS_MAX, "too many slots")
        # Bytes 56 to 63 of the set header are its incompatible features.
        detached = bool(int.from_bytes(header[56:64], "little") & DETACHED)
        need(detached == (not slots), "slots where the set's keys are detached, or none where they are not")
        parts = [b"longshore/1/context", header] + [body[:40] + bytes(32) + body[72:] for body in bodies]
        context = sha256(*(le(len(part), 4) + part for part in parts))
        return Keys(header, bodies, *same[0], slots, context)


@dataclass
class KeyObject:
    """The set key of a set for further recipients."""

    set: bytes
    commitment: bytes
    slots: list
    covered: bytes
    mac: bytes

    @staticmethod
    def parse(data):
        need(len(data) <= OBJECT_MAX, "a key object is too long")
        f = Fields(data)
        need(f.take(6) == b"LSKEYS" and f.u(2) == 1, "a key object is none, or needs a newer reader")
        set_id, commitment, _ = bytes(f.take(16)), bytes(f.take(32)), f.i(8)
        count = f.u(2)
        need(1 <= count <= SLOTS_MAX, "the number of a key object's slots")
        f.take(16 * count)
        slots = [(f.u(2), bytes(f.take(f.u(2)))) for _ in range(count)]
        covered = data[: f.at]
        own = bytes(f.take(32))
        need(f.at == len(data), "a key object goes on after its MAC")
        return KeyObject(set_id, commitment, slots, covered, own)

    def is_by(self, opened):
        """Whether somebody with these keys made it."""
        return hmac.compare_digest(mac(opened.of["object"], self.covered), self.mac)


def objects_of(folders, set_id):
    """The bytes of the set's key objects, by their names, each once."""
    begin, found = f"keys-{set_id.hex()}-", {}
    for folder in folders:
        for name in os.listdir(folder):
            if re.fullmatch(re.escape(begin) + r"[0-9a-f]{16}\.lsk", name):
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    found.setdefault(name, []).append(folder)
    read, good = collections.Counter(), collections.Counter()
    for name in sorted(found):
        # Each place has a share of its own, so that a full one hides nothing of another.
        if all(read[folder] == NAMES_MAX or good[folder] == OBJECTS_MAX for folder in found[name]):
            continue
        read.update(folder for folder in found[name] if read[folder] < NAMES_MAX)
        for folder in found[name]:
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read(OBJECT_MAX + 1)
            if hashlib.sha256(data).hexdigest()[:16] == name[len(begin) : -4]:
                good.update(folder for folder in found[name] if good[folder] < OBJECTS_MAX)
                yield data
                break


class Proof:
    """What one family of an encrypted set proves. It gathers the family's root, and with keys opens messages."""

    def __init__(self, part, opened):
        self.part, self.opened = part, opened
        known = part.stripe.media.known
        self.hash = hashlib.sha256(b"longshore/1/family" + le(len(known), 4) + known)
        self.blocks = self.chunks = 0

    def block(self, block, stored, payload):
        """Manifest (None without keys) and digest of a block."""
        need(len(stored) >= CHECK_LEN + TAG_LEN, "a manifest is too short for its Check and tag")
        block.manifest_tag = stored[-TAG_LEN:]
        need(not payload or len(payload) > 8 + TAG_LEN, "a payload is too short for its tag")
        tag = payload[-TAG_LEN:] if payload else bytes(TAG_LEN)
        digest = sha256(b"longshore/1/block", le(block.sequence, 8), block.salt, block.manifest_tag, tag)
        self.hash.update(b"b" + digest)
        self.blocks += 1
        return self.opened and open_manifest(block, stored, self.opened), digest

    def chunk(self, offset, previous, raw_len, sealed, framed):
        """A compressed index chunk (None without keys); `framed`: all of its bytes in the stripe."""
        need(len(sealed) > 16 + TAG_LEN, "an index chunk is too short for its salt and tag")
        self.hash.update(b"i" + sha256(framed))
        family, number, salt = self.part.stripe.media.family, self.chunks, sealed[:16]
        self.chunks += 1
        if not self.opened:
            return None
        place = struct.pack("<HIQQII", family, number, offset, *previous, raw_len)
        associated = b"i" + self.part.header.set.bytes + place + salt
        packed = unseal("AESGCM", self.opened.of_chunk(family, number, salt), sealed[16:], associated)
        need(packed is not None, "the tag of an index chunk is wrong")
        return packed

    def end(self, roots, claim, trailer, body):
        """Compares the roots, with keys the MAC of the trailer, and with keys or signers the signature."""
        found = self.hash.copy()
        found.update(b"e" + le(self.blocks, 8))
        need(found.digest() == roots[self.part.stripe.media.family - 1], "the root of the family is another")
        totals = body[:32] + body[56:96] + body[112:124]
        root = sha256(
            b"longshore/1/root",
            self.part.keys.context,
            self.part.keys.commitment,
            le(len(totals), 4),
            totals,
            le(len(roots), 4),
            *roots,
        )
        need(root == trailer.root, "the root of the set is another")
        if self.opened:
            need(hmac.compare_digest(mac(self.opened.of["mac"], body[:124], root), trailer.mac), "the MAC of the trailer is wrong")
        if self.opened or SIGNERS:
            self.part.signer = signed_by(b"longshore/1/signature" + sha256(self.part.keys.header) + root, claim)


# The signers of the command line; without any, none is required.
SIGNERS = set()
PRIME = 2**255 - 19
# The second coordinate of the points of order 8; those of smaller order are 0, 1 and -1.
EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


def signed_by(message, claim):
    """The signer of the message; None without a signature that is known, where none is required."""
    if not isinstance(claim, tuple):
        need(not SIGNERS, f"its signature is of kind {claim}" if claim else "it is not signed")
        return None
    signer, signature = claim
    y = int.from_bytes(signer, "little") & (1 << 255) - 1
    need(y < PRIME and y not in (0, 1, PRIME - 1, EIGHTH, PRIME - EIGHTH), "a signer that everybody could sign for")
    public = primitive("asymmetric.ed25519", "Ed25519PublicKey").from_public_bytes(signer)
    invalid = importlib.import_module("cryptography.exceptions").InvalidSignature
    try:
        public.verify(signature, message)
    except invalid:
        raise Bad("its signature is wrong") from None
    need(not SIGNERS or signer in SIGNERS, f"it is signed by {signer.hex()}, who was not named")
    return signer


def open_manifest(block, stored, opened):
    """A manifest without its Check, whose checksum goes to the header."""
    plain = unseal("AESGCM", opened.of_manifest(block), stored, b"m" + block.fixed + block.salt)
    need(plain is not None, f"block {block.sequence}: the tag of its manifest is wrong")
    need(plain[-CHECK_LEN] == 4, f"block {block.sequence}: its manifest has no Check")
    block.plain_crc = int.from_bytes(plain[1 - CHECK_LEN :], "little")
    return plain[:-CHECK_LEN]


def open_payload(block, payload, opened):
    """The decrypted payload of the block's algorithm; b"" if there is none or no key."""
    if not payload:
        return b""
    need(payload[:8] == SEALED + le(len(payload) - 8, 4), "not the frame of an encrypted payload")
    if not opened:
        return b""
    associated = b"p" + block.fixed + block.salt + block.manifest_tag
    plain = unseal("AESGCM", opened.of_payload(block), payload[8:], associated)
    need(plain is not None, "the tag of its payload is wrong")
    return plain


def parse_roots(body, header, families):
    """The roots of all families, and the signature: None, signer and signature, or a kind that is not known."""
    f = Fields(body)
    need(f.uuid() == header.set, "a Roots record of another set")
    need(f.u(2) == families, "a Roots record for another number of families")
    kind = f.u(1)
    if kind > 1:
        f.take(41)
    else:
        f.zeros(9)
        signer = bytes(f.take(32)) if kind else f.zeros(32)
    roots = [bytes(f.take(32)) for _ in range(families)]
    claim = (signer, bytes(f.take(64))) if kind == 1 else kind or None
    f.end(kind > 1)
    return roots, claim


# ---------------------------------------------------------------- stripes


class Stripe:
    def __init__(self, path, rebuilt=None):
        self.path = path
        self.file = open(path, "rb") if rebuilt is None else io.BytesIO(rebuilt)
        self.len = self.file.seek(0, os.SEEK_END)
        self.file.seek(0)
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
                need(header.encrypted == self.media.encrypted, "encrypted and other sets are mixed")
                need(header.container() == self.container, "the algorithm does not belong to the container")
                need((header.algorithm != 1) == bool(self.media.compressed), "NONE and compressed sets are mixed")
                part.header = header
            at = part.read_keys(at)
            while at < self.len:
                here = at
                kind, body, end = self.record(at)
                with self.at(at):
                    need(not part.has_roots or kind == TRAILER, "something stands between the Roots record and the trailer")
                    if kind == BLOCK:
                        end += BlockHeader.parse(body, header.encrypted).stored_len
                    elif kind == ROOTS and header.encrypted:
                        part.has_roots = True
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
        self.keys, self.content_offset, self.has_roots, self.signer = None, None, False, None

    def read_keys(self, at):
        """Reads the Keys records at `at`, which only encrypted sets have; returns where the content begins."""
        bodies, count = [], int(self.header.encrypted)
        while len(bodies) < count:
            here = at
            kind, body, at = self.stripe.record(at)
            with self.stripe.at(here):
                need(kind == KEYS, "a Keys record should stand here")
                bodies.append(bytes(body))
                f = Fields(body)
                f.take(6)
                count = f.u(2)
                need(1 <= count <= KEYS_PARTS_MAX, "an impossible number of Keys records")
        if bodies:
            with self.stripe.at(self.offset):
                self.keys = Keys.parse(self.header.body, bodies)
        self.content_offset = at
        return at

    def seal(self, trailer, offset, end):
        self.trailer, self.trailer_offset, self.end = trailer, offset, end


def open_media(paths):
    """The data stripes of one media set in family order; with parity, rebuilt where they are lost or damaged."""
    stripes, unread = [], []
    for path in paths:
        try:
            stripes.append(Stripe(path))
        except (Damage, OSError) as damage:
            unread.append((path, damage))
    with_parity = [stripe.media for stripe in stripes if stripe.media.parity_count]
    if with_parity:
        return open_with_parity(stripes, [path for path, _ in unread], with_parity[0])
    for _, damage in unread:
        raise damage
    first = stripes[0].media
    for stripe in stripes:
        media = stripe.media
        same = (media.media_set, media.generation, media.family_count)
        if same != (first.media_set, first.generation, first.family_count):
            raise Damage(stripe.path, 0, f"foreign: it belongs to media set {media.media_set} generation {media.generation}")
        if (media.container, media.compressed, media.encrypted) != (first.container, first.compressed, first.encrypted):
            raise Damage(stripe.path, 0, "its media header contradicts another stripe's about container, compression or encryption")
    stripes.sort(key=lambda s: s.media.family)
    for a, b in zip(stripes, stripes[1:]):
        if a.media.family == b.media.family:
            raise Damage(b.path, 0, f"doubled: {a.path} is family {a.media.family}, too")
    missing = set(range(1, first.family_count + 1)) - {s.media.family for s in stripes}
    if missing:
        names = ", ".join(map(str, sorted(missing)))
        raise Damage(stripes[0].path, 0, f"the media set has {first.family_count} families; missing: {names}")
    return stripes


# ---------------------------------------------------------------- parity


def product(a, b):
    result = 0
    while b:
        result ^= a if b & 1 else 0
        a = (a << 1) ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return result


INVERSE = [next((y for y in range(256) if product(x, y) == 1), 0) for x in range(256)]


def factor(parity, data):
    return product(INVERSE[data ^ (255 - parity)], INVERSE[INVERSE[data ^ 255]])


@dataclass
class ParityRow:
    set: uuid.UUID
    row: int
    at: int
    row_bytes: int
    chunk_len: int
    members: list
    chunk_crcs: list

    @staticmethod
    def parse(body):
        f = Fields(body)
        set_id, row, at, row_bytes, chunk_len = f.uuid(), f.u(8), f.u(8), f.u(4), f.u(4)
        data, parity = f.u(2), f.u(2)
        f.zeros(4)
        need(1 <= parity <= PARITY_MAX and 1 <= data <= FAMILIES_MAX - parity, "an impossible number of members")
        members = [(f.u(8), f.u(4), f.u(4)) for _ in range(data)]
        chunk_crcs = [f.u(4) for _ in range(parity)]
        f.end()
        need(ROW_BYTES_MIN <= row_bytes <= ROW_BYTES, "an impossible length of rows")
        need(1 <= chunk_len <= row_bytes and chunk_len == max(m[1] for m in members), "a chunk of another length")
        return ParityRow(set_id, row, at, row_bytes, chunk_len, members, chunk_crcs)


def parity_records(data, counts):
    """The Parity records in the bytes of a stripe, wherever they are: each says where it begins."""
    needle, at, rows = b"LSHR" + bytes([PARITY, 0, 0, 0]), 0, {}
    while (at := data.find(needle, at)) >= 0:
        at += 1
        (body_len, crc) = struct.unpack("<II", data[at + 7 : at + 15]) if at + 15 <= len(data) else (0, 0)
        body = data[at + 15 : at + 15 + body_len]
        try:
            need(body_len <= BODY_MAX and crc32c(body, crc32c(data[at - 1 : at + 11])) == crc, "a checksum")
            row = ParityRow.parse(body)
            need(row.at == at - 9 and (len(row.members), len(row.chunk_crcs)) == counts, "not of this stripe")
        except Bad:
            continue
        rows.setdefault((row.set, row.row), row)
    return rows


def solved(known, wanted, n):
    """The factors by which the rows `known` of the code's matrix add up to the row `wanted`."""
    equations = [[row[column] for row in known] + [wanted[column]] for column in range(n)]
    for pivot in range(n):
        found = next(e for e in range(pivot, n) if equations[e][pivot])
        equations[pivot], equations[found] = equations[found], equations[pivot]
        scale = INVERSE[equations[pivot][pivot]]
        equations[pivot] = [product(value, scale) for value in equations[pivot]]
        for e in range(n):
            times = equations[e][pivot]
            if e != pivot and times:
                equations[e] = [a ^ product(b, times) for a, b in zip(equations[e], equations[pivot])]
    return [equation[n] for equation in equations]


def rebuilt_member(row, wanted, good):
    """A data member of a row, from good members: those of data by their bytes, chunks after them."""
    n = len(row.members)
    sources = sorted(good)[:n]
    line = lambda m: [int(i == m) for i in range(n)] if m < n else [factor(m - n, i) for i in range(n)]
    total = 0
    for source, times in zip(sources, solved([line(m) for m in sources], line(wanted), n)):
        table = bytes(product(times, x) for x in range(256))
        total ^= int.from_bytes(good[source].translate(table), "little")
    return total.to_bytes(row.chunk_len, "little")[: row.members[wanted][1]]


def open_with_parity(stripes, unread, first):
    """Takes every row's good members, and rebuilds the others, stripe by stripe, in memory."""
    n, p = first.family_count, first.parity_count
    files = {}
    for stripe in stripes:
        media = stripe.media
        if (media.media_set, media.generation, media.family_count, media.parity_count) != (
            first.media_set, first.generation, n, p
        ):
            print(f"degraded: {stripe.path} belongs to media set {media.media_set}", file=sys.stderr)
        elif media.family in files:
            raise Damage(stripe.path, 0, f"doubled: family {media.family}")
        else:
            files[media.family] = (stripe.path, open(stripe.path, "rb").read())
    loose = [(path, open(path, "rb").read()) for path in unread if os.path.isfile(path)]
    known = {}
    for _, data in [files[f] for f in sorted(files) if f > n] + loose:
        for (set_id, number), row in parity_records(data, (n, p)).items():
            if all(other.set == set_id for other in known.values()):
                known.setdefault(number, row)
    rows = [known[number] for number in sorted(known)]
    if not rows:
        missing = sorted(set(range(1, n + 1)) - set(files))
        if missing:
            raise Damage(stripes[0].path, 0, f"no parity stripe can be read; missing: {', '.join(map(str, missing))}")
        print("degraded: no parity stripe can be read", file=sys.stderr)
        return [Stripe(files[f][0]) for f in range(1, n + 1)]

    def member(data, row, m):
        """A member's bytes, padded to the chunk's length; None if they are bad."""
        offset, size, crc = row.members[m] if m < n else (
            row.at + 8 + 16 + 48 + 16 * n + 4 * p + 8, row.chunk_len, row.chunk_crcs[m - n]
        )
        found = data[offset : offset + size]
        good = len(found) == size and crc32c(found) == crc
        return found.ljust(row.chunk_len, b"\0") if good else None

    # A stripe whose header cannot be read is known by its rows.
    for path, data in loose:
        for m in range(n + p):
            if m + 1 not in files and any(
                (row.members[m][1] if m < n else 1) and member(data, row, m) is not None for row in rows
            ):
                files[m + 1] = (path, data)
                break
    out = [[] for _ in range(n)]
    ends = [0] * n
    for row in rows:
        good = {f - 1: found for f, (_, data) in files.items() if (found := member(data, row, f - 1)) is not None}
        for m in range(n):
            offset, size, crc = row.members[m]
            gap, ends[m] = offset - ends[m], offset + size
            if gap:
                # The record of a row is lost on all parity stripes: its members must be good by themselves.
                if m + 1 not in files:
                    raise Damage(f"family {m + 1}", offset, "no record tells the rows before this byte")
                out[m].append(files[m + 1][1][offset - gap : offset])
            if m not in good and size:
                name = files[m + 1][0] if m + 1 in files else f"family {m + 1}"
                if len(good) < n:
                    raise Damage(name, offset, f"row {row.row} has more than {p} bad members")
                bytes_here = rebuilt_member(row, m, good)
                if crc32c(bytes_here) != crc:
                    raise Damage(name, offset, f"row {row.row} does not give what was written")
            else:
                bytes_here = good.get(m, b"")[:size]
            out[m].append(bytes_here)
        for m in range(n + p):
            if m not in good and (m >= n or row.members[m][1]):
                name = files[m + 1][0] if m + 1 in files else f"family {m + 1}"
                print(f"degraded: {name} is lost or damaged in row {row.row}", file=sys.stderr)
    return [
        Stripe(files[m + 1][0] if m + 1 in files else f"family {m + 1}", rebuilt=b"".join(out[m])) for m in range(n)
    ]


# ---------------------------------------------------------------- sets


class Row:
    """One position of a media set: each family's part."""

    def __init__(self, position, parts):
        self.position, self.parts = position, parts

    def header(self):
        return next((p.header for p in self.parts if p and p.header), None)

    def keys(self):
        return next((p.keys for p in self.parts if p and p.keys), None)

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
            if part.keys and part.keys.bodies != (self.keys() or part.keys).bodies:
                return "its Keys records contradict each other"
            if part.header and part.header.encrypted and not part.damage and not part.has_roots:
                return f"{part.stripe.path} has no Roots record of it"
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


def blocks(part, opened=None):
    """Yields (header, manifest bytes, payload, payload offset) of one family's part, checking all that one
    stripe can show. `opened`: the keys of an encrypted set; without them its manifests are None."""
    stripe, header = part.stripe, part.header
    if part.content_offset is None:
        raise part.damage
    at, proof, roots = part.content_offset, header.encrypted and Proof(part, opened), None
    manifest, parts, owner = b"", 0, None
    block_at, rows, raw, chunk_place, chain, count = None, [], 0, (0, 0), 0, 0
    while True:
        here = at
        kind, body, at = stripe.record(at)
        with stripe.at(here):
            need(roots is None or kind == TRAILER, "something stands between the Roots record and the trailer")
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
                block = BlockHeader.parse(body, header.encrypted)
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
                seen = (block.sequence, start, at + block.stored_len - start, block.plain_len)
                if proof:
                    manifest, digest = proof.block(block, manifest, payload)
                    rows.append((*seen, digest, manifest))
                    raw += 28 + 32 + block.manifest_len - CHECK_LEN - TAG_LEN
                else:
                    rows.append((*seen, manifest))
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
                    need(part_number + 1 == part_count or len(body) == 24 + 15_876, "an index record is not full")
                    packed += bytes(f.rest())
                    number += 1
                    if number == part_count:
                        break
                    kind, body, at = stripe.record(at)
                need(previous == chunk_place, "the chain of index chunks is broken")
                need(rows, "an index chunk without blocks")
                chunk_place = (here, at - here)
                need(raw_len == raw, "an index chunk has another length than its rows")
                if proof:
                    packed = proof.chunk(here, previous, raw_len, packed, stripe.read(*chunk_place))
                need(packed is None or index_rows(packed, raw_len, proof) == rows, "the index does not match the blocks")
                rows, raw = [], 0
            elif kind == ROOTS and proof:
                need(not rows and parts == 0, "the last index chunk or block is missing")
                roots, claim = parse_roots(body, header, stripe.media.family_count)
            elif kind == TRAILER:
                trailer = Trailer.parse(body)
                need(here == part.trailer_offset, "a trailer in the wrong place")
                need(not rows and parts == 0, "the last index chunk or block is missing")
                need(trailer.blocks_here == count and trailer.chain_crc == chain, "blocks are missing, repeated or exchanged")
                need((trailer.index_offset, trailer.index_len) == chunk_place, "the trailer does not know the index")
                if proof:
                    need(roots is not None, "the Roots record is missing")
                    proof.end(roots, claim, trailer, bytes(body))
                need(proof or not any(trailer.mac + trailer.root), "a root or MAC of a set that is not encrypted")
                return
            else:
                raise Bad(f"a {KINDS[kind]} record inside a set")


def index_rows(packed, raw_len, encrypted):
    inflate = zlib.decompressobj(-15)
    try:
        raw = inflate.decompress(packed, raw_len + 1)
    except zlib.error as error:
        raise Bad(f"an index chunk is damaged: {error}") from None
    need(inflate.eof and not inflate.unused_data and len(raw) == raw_len, "an index chunk has another length")
    f, rows = Fields(raw), []
    while f.at < len(raw):
        sequence, offset, size, plain_len = f.u(8), f.u(8), f.u(4), f.u(4)
        manifest_len = f.u(4)
        digest = (bytes(f.take(32)),) if encrypted else ()
        rows.append((sequence, offset, size, plain_len, *digest, bytes(f.take(manifest_len))))
    return rows


def read_block(header, block, manifest, payload, proof):
    """Plain bytes, entries and marks of a block; None if it is encrypted and there is no key."""
    found = crc32c(payload)
    need(found == block.stored_crc, f"stored bytes have CRC-32C {found:#010x}, not {block.stored_crc:#010x}")
    if header.encrypted:
        payload = open_payload(block, payload, proof)
    if manifest is None:
        return None
    plain = decode(block.algorithm, payload, block.plain_len)
    found = crc32c(plain)
    need(found == block.plain_crc, f"plain bytes have CRC-32C {found:#010x}, not {block.plain_crc:#010x}")
    entries, marks = parse_manifest(manifest, block.plain_len)
    key = proof.of_sums(header) if header.encrypted and header.sum_key else header.sum_key
    for entry in entries:
        check_sums(header, key, entry, plain)
    return plain, entries, marks


def read_set(row, target, note, opened=None):
    """Reads a complete set, gives its content to `target`, and every finding to `note`. Of an encrypted set
    without its keys (`opened`) it compares what needs none, and there is no content."""
    sequences, plain_total, entries_total, files_total = set(), 0, 0, 0
    known, broken, header = {}, False, row.header()
    closed = header and header.encrypted and not opened
    for part in row.parts:
        try:
            for block, manifest, payload, at in blocks(part, opened):
                with part.stripe.at(at):
                    try:
                        content = read_block(header, block, manifest, payload, opened)
                        need(block.sequence not in sequences, f"block {block.sequence} occurs twice")
                    except Bad as bad:
                        raise Bad(f"block {block.sequence}: {bad}") from None
                    sequences.add(block.sequence)
                    plain_total += block.plain_len
                    plain, entries, marks = content or (b"", [], [])
                    for entry in entries:
                        need(header.parent or not entry.based, "a based entry in a set without parent")
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
    if closed:
        entries_total, files_total = totals.entries_total, totals.files_total
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


class Names(Nothing):
    """Keeps what `list` shows of an entry."""

    def __init__(self):
        self.lines = []

    def entry(self, entry, plain):
        if entry.first:
            self.lines.append(f"  {' fdlh'[entry.kind]} {entry.mode:04o} {entry.len:>12} {shown(entry.path)}")


class Tree:
    """Writes below one directory and never through a symbolic link."""

    def __init__(self, root, parent):
        """`parent`: the directory that a differential set's parent was restored to."""
        self.base = parent and os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        self.is_new = not os.path.lexists(root)
        os.makedirs(root, mode=0o700, exist_ok=True)
        if os.listdir(root):
            raise SystemExit(f"{root} is not empty")
        self.root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.made, self.directories, self.symlinks, self.links = set(), {}, {}, []
        self.files, self.marks = {}, []

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
        self.marks.append(f"marked: {shown(path)}: {MARKS[kind]}")

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
        for mark in self.marks:
            print(mark)
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

    def give_root(self, root, facts):
        """Gives the tree's own directory what it had, if it was made here; else it is its owner's alone."""
        if not self.is_new or not facts or not facts.get("root"):
            return
        had = facts["root"]
        try:
            os.chown(root, had["uid"], had["gid"])
        except PermissionError:
            pass
        os.chmod(root, had["mode"] & ~0o077 if ACL in had.attributes else had["mode"])
        for attribute, value in had.attributes.items():
            try:
                os.setxattr(root, attribute, value)
            except OSError as e:
                print(f"not restored: {shown(attribute)} of {root}: {e.strerror}")
        os.utime(root, ns=(had["mtime_ns"], had["mtime_ns"]))


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


def opened_of(row, keyring, note):
    """The keys of an encrypted set, None without an identity; and whether the set can be read on."""
    if not row.keys():
        return None, True
    try:
        return keyring.open(row.keys()), True
    except Bad as bad:
        note(f"backup set {row.position}: {bad}")
        return None, False


def run_list(stripes, keyring, note):
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
        if row.why_incomplete():
            continue
        if header.encrypted:
            list_encrypted(row, keyring, note)
            continue
        for part in row.parts:
            for _, manifest, _, _ in blocks(part):
                with part.stripe.at(part.offset):
                    for entry in parse_manifest_any(manifest):
                        if entry.first:
                            kind = " fdlh"[entry.kind]
                            print(f"  {kind} {entry.mode:04o} {entry.len:>12} {shown(entry.path)}")


def list_encrypted(row, keyring, note):
    """Shows the names of an encrypted set when all of it has been proven."""
    opened, _ = opened_of(row, keyring, note)
    if not opened:
        print("  encrypted: its names are shown with --identity or --passphrase-file")
        return
    names, before = Names(), note.count
    read_set(row, names, note, opened)
    if note.count == before:
        print("\n".join(names.lines))


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
        elif tag == 6:
            name_len = f.u(1)
            f.take(name_len + f.u(4))
        else:
            f.take(1)
            f.take(f.u(2))
    return parse_manifest(manifest, plain)[0]


def check_parent(row, rows, note):
    """Compares the parent's root where the parent is on the same media."""
    parent = next((r for r in rows if r.header() and r.header().set == row.header().parent), None)
    if row.keys() and parent and parent.parts[0].trailer:
        if row.keys().parent_root != parent.parts[0].trailer.root:
            note(f"backup set {row.position}: its parent has another root than the one that it differs from")


def run_verify(stripes, position, keyring, note):
    every = rows = rows_of(stripes)
    if position:
        rows = [row for row in rows if row.position == position]
    if not rows:
        note("there is no such backup set")
    report_rows(rows, note)
    for row in rows:
        if not row.why_incomplete():
            opened, _ = opened_of(row, keyring, note)
            before = note.count
            read_set(row, Nothing(), note, opened)
            check_parent(row, every, note)
            print(f"set {row.position}: {verdict(row, opened, note.count == before)}")


def verdict(row, opened, good):
    if not good:
        return "damaged"
    if not row.keys():
        return "valid"
    root, signer = row.parts[0].trailer.root.hex(), row.parts[0].signer
    by = f", signed by {signer.hex()}" if signer else ""
    if opened:
        return f"valid, encrypted, root {root}{by}"
    return f"encrypted and not opened: checksums, roots and totals agree, tags and MAC were not compared; root {root}{by}"


def run_restore(stripes, options, keyring, note):
    rows = rows_of(stripes)
    wanted = [row for row in rows if row.position == (options.position or len(rows))]
    if not wanted:
        note("there is no such backup set")
        return
    report_rows(wanted, note)
    if note.count:
        return
    row = wanted[0]
    if (row.header().parent is None) != (options.parent is None):
        note("a differential set needs --parent, others do not")
        return
    if row.keys():
        restore_encrypted(row, options, keyring, note)
        return
    if options.parent_root and options.parent_root.strip("0"):
        note("the set is not encrypted, and its parent is: anybody may have written it")
        return
    tree = Tree(options.to, options.parent)
    read_set(row, tree, note)
    tree.finish()
    tree.give_root(options.to, row.header().facts)
    if note.count:
        print(f"{options.to} is not a good copy", file=sys.stderr)


def restore_encrypted(row, options, keyring, note):
    """Restores to a directory of another name, which gets its own when everything agreed."""
    opened, readable = opened_of(row, keyring, note)
    if not opened:
        if readable:
            note("the set is encrypted: it is restored with --identity or --passphrase-file")
        return
    if options.parent and options.parent_root != row.keys().parent_root.hex():
        wanted = "is not the one that the set differs from" if options.parent_root else "is needed, too"
        note(f"--parent-root {wanted}: its parent's UUID alone proves nothing")
        return
    root = options.to.rstrip("/") or "/"
    if os.path.lexists(root) and os.listdir(root):
        raise SystemExit(f"{root} is not empty")
    unproven = f"{root}.unproven"
    tree = Tree(unproven, options.parent)
    try:
        read_set(row, tree, note, opened)
        if not note.count:
            tree.finish()
            os.rename(unproven, root)
            tree.give_root(root, row.header().facts)
            signer = row.parts[0].signer
            by = f", signed by {signer.hex()}" if signer else ""
            print(f"set {row.position}: restored, root {row.parts[0].trailer.root.hex()}{by}")
    finally:
        if os.path.lexists(unproven):
            shutil.rmtree(unproven)
            print(f"nothing was restored to {root}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description="Reads Longshore backups without Longshore.")
    parser.add_argument("command", choices=("list", "facts", "verify", "restore"))
    parser.add_argument("stripes", nargs="+")
    parser.add_argument("--position", type=int, default=0, help="backup set (default: last; verify: all)")
    parser.add_argument("--to", help="directory to restore to")
    parser.add_argument("--parent", help="directory that the parent of a differential set was restored to")
    parser.add_argument("--parent-root", type=str.lower, help="root of that parent; of encrypted differential sets")
    parser.add_argument("--identity", action="append", default=[], help="file with identities of age")
    parser.add_argument("--passphrase-file", action="append", default=[], help="file whose first line is a passphrase")
    parser.add_argument("--unwrap", action="append", default=[], help="id of a key and the program that keeps it")
    parser.add_argument("--key-object", action="append", default=[], help="key object that is not next to the stripes")
    parser.add_argument("--signer", action="append", default=[], help="who must have signed the set: lssigner1...")
    options = parser.parse_args()
    if (options.command == "restore") != (options.to is not None):
        parser.error("restore needs --to, the other commands do not")
    note = Findings()
    try:
        keyring = Keyring(options.identity, options.passphrase_file, options.unwrap)
        keyring.folders = sorted({os.path.dirname(path) or "." for path in options.stripes})
        for path in options.key_object:
            with open(path, "rb") as file:
                keyring.named.append(file.read(OBJECT_MAX + 1))
        for prefix, signer in map(bech32, options.signer):
            need(prefix == "lssigner" and len(signer) == 32, "not a signer")
            SIGNERS.add(signer)
    except (Bad, UnicodeDecodeError) as error:
        parser.error(str(error))
    try:
        stripes = open_media(options.stripes)
        if options.command == "list":
            run_list(stripes, keyring, note)
        elif options.command == "facts":
            run_facts(stripes, note)
        elif options.command == "verify":
            run_verify(stripes, options.position, keyring, note)
        else:
            run_restore(stripes, options, keyring, note)
    except Damage as damage:
        note(str(damage))
    sys.exit(1 if note.count else 0)


if __name__ == "__main__":
    main()
