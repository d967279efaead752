#!/usr/bin/env python3
"""Makes one of the trees that the golden stripes hold: make_tree.py 1|2|3 DIRECTORY.

Kept so that anybody can see what the stripes of v1 must restore to. The stripes themselves are never made
again: README.md says how they came to be.
"""

import os
import sys

MTIME = 1_700_000_000_123_456_789


def text(size, seed):
    """Words that compress, from a small generator that will be the same in any language."""
    words = [b"harbour", b"crane", b"ship", b"ballast", b"quay", b"berth", b"tide", b"17", b"0x2a", b"\n"]
    state, out = seed, bytearray()
    while len(out) < size:
        state = (state * 1103515245 + 12345) % (1 << 31)
        out += words[(state >> 16) % len(words)] + b" "
    return bytes(out[:size])


def make(number, root):
    root = os.fsencode(root)
    entries = []

    def put(name, data, mode=0o640):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        entries.append(path)

    os.makedirs(root)
    if number in (1, 3):
        put(b"a", b"the smallest file of all\n")
        put(b"empty", b"", 0o400)
        put(b"d/text", text(3000, 1))
        put(b"d/a name with spaces", text(500, 2), 0o755)
        put(b"d/new\nline", b"odd\n")
        put(b"d/not utf-8 \xff\xfe", b"odd, too\n")
        put("d/schön".encode(), b"utf-8\n")
        # NONE does not shrink it.
        if number == 1:
            put(b"big", text(4_000, 3) * 17 + bytes(70_000) + text(4_000, 4) * 8)
        path = os.path.join(root, b"sparse")
        with open(path, "wb") as file:
            file.seek(1 << 20)
            file.write(b"behind a hole")
            file.truncate((2 << 20) + 1)
        os.chmod(path, 0o600)
        entries.append(path)
        os.link(os.path.join(root, b"d/text"), os.path.join(root, b"hard"))
        os.symlink(b"../nowhere/\xff", os.path.join(root, b"dangling"))
        os.symlink(b"d/text", os.path.join(root, b"link"))
        os.makedirs(os.path.join(root, b"empty directory"))
    else:
        put(b"a", b"the smallest file, changed\n")
        put(b"d/text", text(2500, 5))
        os.symlink(b"a", os.path.join(root, b"link"))
    for path in entries:
        os.utime(path, ns=(MTIME, MTIME))
    for base, directories, names in os.walk(root, topdown=False):
        for name in names:
            path = os.path.join(base, name)
            if os.path.islink(path):
                os.utime(path, ns=(MTIME, MTIME), follow_symlinks=False)
        os.chmod(base, 0o750)
        os.utime(base, ns=(MTIME, MTIME))


if __name__ == "__main__":
    make(int(sys.argv[1]), sys.argv[2])
