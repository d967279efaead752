#!/usr/bin/env python3
"""Describes a restored tree, one line a name: kind, mode, time (ns), length, CRC-32C, SHA-256, names of the
file, path; of a symbolic link also its target. What a kind does not have is `-`."""

import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../reader"))
from longshore_reader import crc32c


def shown(path):
    """Printable ASCII; other bytes escaped."""
    escapes = {0x5C: "\\\\", 0x27: "\\'", 0x22: '\\"', 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
    return "".join(escapes.get(b) or (chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}") for b in path)


def describe(root):
    lines = []
    for base, directories, names in os.walk(os.fsencode(root)):
        for name in directories + names:
            path = os.path.join(base, name)
            at = os.lstat(path)
            short = shown(os.path.relpath(path, os.fsencode(root)))
            mode, time = f"{at.st_mode & 0o7777:04o}", at.st_mtime_ns
            if os.path.islink(path):
                lines.append(f"l - {time} - - - - {short} -> {shown(os.readlink(path))}")
            elif os.path.isdir(path):
                lines.append(f"d {mode} {time} - - - - {short}")
            else:
                with open(path, "rb") as file:
                    data = file.read()
                sums = f"{crc32c(data):08x} {hashlib.sha256(data).hexdigest()}"
                lines.append(f"f {mode} {time} {len(data)} {sums} {at.st_nlink} {short}")
    return sorted(lines, key=lambda line: line.split(" ", 7)[7])


if __name__ == "__main__":
    print("\n".join(describe(sys.argv[1])))
