#!/usr/bin/env python3
"""Checks that longshore_reader.py decodes PAGES payloads: `check_pages.py [--all-forms] [--large-forms] DIRECTORY`.

Goal: what docs/format.md says of PAGES suffices to decode what the program makes.
Method: the directory has payloads (`NAME.payload`) and their plain bytes (`NAME.plain`, or a line `LENGTH SHA256 NAME`
in `sums`). With --all-forms each mode, form of a column and form of a page must be in some payload. Of each payload a few bits are changed,
too: the reader may then find damage, or other bytes, and nothing else.
Not covered: sets (crates/longshore/tests).
"""

import hashlib
import os
import sys

import longshore_reader as reader

SEEN = set()


def watch(owner, name, what):
    """Notes in SEEN the byte that a method reads first."""
    original = getattr(owner, name)

    def watched(self, *arguments):
        if self.at < len(self.data):
            SEEN.add((what, self.data[self.at]))
        return original(self, *arguments)

    setattr(owner, name, watched)


def watch_all():
    watch(reader.Groups, "stream", "stream")
    watch(reader.Groups, "fixed", "column of one width")
    watch(reader.Groups, "values_of", "column of lengths")
    watch(reader.Groups, "group", "group")
    original = reader.PageParts.page

    def page(self, form, size):
        SEEN.add(("page", form & 7))
        SEEN.update(("kept", bit) for bit in (8, 16, 32, 64) if form & bit)
        return original(self, form, size)

    reader.PageParts.page = page
    watch(reader.Groups, "integers", "integers")
    watch(reader.Groups, "reals", "real numbers")
    of_records = reader.SqliteRecords.page

    def records_page(self, form, size):
        SEEN.update(("records", bit) for bit in (0, 8, 16) if form & bit == bit)
        SEEN.add(("type", self.kind))
        SEEN.update(("kind", kind) for column in self.columns for kind in column[0].data)
        return of_records(self, form, size)

    reader.SqliteRecords.page = records_page


def all_forms():
    known = {"stream": range(8), "column of one width": range(4), "column of lengths": range(4), "page": range(6)}
    known |= {"kept": (8, 16, 32, 64), "group": (0, 12, 13, 14, 15, *range(41, 47)), "records": (0, 8, 16), "type": (10, 13)}
    known |= {"integers": (0, 1, 2, 4, 8), "real numbers": (0, 1, 4), "kind": range(6)}
    return {(what, number) for what, numbers in known.items() for number in numbers}


# Forms that only many and large pages have.
LARGE_FORMS = {("group", 47), ("group", 48), ("kind", 17), ("kind", 18)}


def check(directory, name, size, sha256):
    with open(os.path.join(directory, name + ".payload"), "rb") as file:
        payload = file.read()
    plain = reader.decode(6, payload, size)
    assert hashlib.sha256(plain).hexdigest() == sha256, name
    for at in range(9, len(payload), max(1, len(payload) // 5)):
        damaged = bytearray(payload)
        damaged[at] ^= 1 << at % 8
        try:
            reader.decode(6, bytes(damaged), size)
        except reader.Bad:
            pass


def listed(directory):
    sums = os.path.join(directory, "sums")
    if os.path.exists(sums):
        with open(sums, encoding="utf-8") as file:
            for line in file:
                size, sha256, name = line.split()
                yield name, int(size), sha256
        return
    for name in sorted(os.listdir(directory)):
        if name.endswith(".plain"):
            with open(os.path.join(directory, name), "rb") as file:
                plain = file.read()
            yield name.removesuffix(".plain"), len(plain), hashlib.sha256(plain).hexdigest()


def main(arguments):
    wanted = all_forms() if "--all-forms" in arguments else set()
    if "--large-forms" in arguments:
        wanted |= LARGE_FORMS
    [directory] = [argument for argument in arguments if not argument.startswith("--")]
    watch_all()
    count = 0
    for name, size, sha256 in listed(directory):
        check(directory, name, size, sha256)
        count += 1
    assert count, "no payloads"
    missing = wanted - SEEN
    assert not missing, f"in no payload: {sorted(missing)}"
    print(f"{count} payloads, without {sorted((all_forms() | LARGE_FORMS) - SEEN)}")


if __name__ == "__main__":
    main(sys.argv[1:])
