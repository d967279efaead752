#!/usr/bin/env python3
"""Draws the pictures of the documentation: `python3 docs/pictures/draw.py [--check]`.

Standard library only, and the same bytes on every run. Each picture brings its own light ground, so that it is readable
on white and on dark pages. With --check nothing is written: exit code 1 if a picture is not what this program draws.

Invariants
- One function draws one picture, whose name is the file's.
- Every place is a number in the function: nothing is laid out by itself, so a change of one picture changes no other.

Leaves to others: that the files are as drawn (tests/tests/pages.rs runs --check), and the pages that show them.
"""

import sys
from html import escape
from pathlib import Path

INK, SOFT, GROUND = "#1b2733", "#5a6b7b", "#fbfcfd"
# What a box is: something stored, something that computes, a question, a refusal.
FILLS = {"store": "#dcebf7", "work": "#e4f2df", "ask": "#fdf0cf", "stop": "#f9dedb", "plain": "#eef1f4"}
EDGES = {"store": "#3b78a8", "work": "#4d8a3d", "ask": "#b5851b", "stop": "#b4493f", "plain": "#8593a1"}
FONT = "DejaVu Sans, Verdana, Arial, sans-serif"


class Picture:
    def __init__(self, name, title, width, height):
        self.name, self.title, self.width, self.height = name, title, width, height
        self.parts = []

    def text(self, x, y, words, size=13, color=INK, anchor="middle", weight="normal"):
        for number, line in enumerate(words.split("\n")):
            at = y + number * size * 1.35
            self.parts.append(
                f'<text x="{x:g}" y="{at:g}" font-size="{size}" fill="{color}" '
                f'text-anchor="{anchor}" font-weight="{weight}">{escape(line)}</text>'
            )

    def note(self, x, y, words, anchor="middle"):
        self.text(x, y, words, 11.5, SOFT, anchor)

    def box(self, x, y, w, h, kind, head, below=""):
        """A box with a bold first line and smaller lines below it, centred."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" '
            f'fill="{FILLS[kind]}" stroke="{EDGES[kind]}" stroke-width="1.4"/>'
        )
        heads = head.count("\n") + 1
        lines = below.count("\n") + 1 if below else 0
        top = y + (h - heads * 17.5 - lines * 15.5) / 2 + 13.5
        self.text(x + w / 2, top, head, 13, INK, weight="bold")
        if below:
            self.text(x + w / 2, top + heads * 17.5, below, 11.5)

    def frame(self, x, y, w, h, words):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" fill="none" '
            f'stroke="{SOFT}" stroke-width="1" stroke-dasharray="5 4"/>'
        )
        self.note(x + 10, y + 17, words, "start")

    def arrow(self, *points, dashed=False):
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{way}" fill="none" stroke="{INK}" stroke-width="1.5"{dash} marker-end="url(#head)"/>'
        )

    def svg(self):
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" font-family="{FONT}" role="img">',
                f"<title>{escape(self.title)}</title>",
                '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker></defs>',
                f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{GROUND}" stroke="#c9d1d9"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def data():
    """A backup's way from the source to the stripes, and a restore's way back."""
    p = Picture("data", "The way of the data: backup and restore", 980, 480)
    p.text(20, 32, "Backup", 16, anchor="start", weight="bold")
    p.box(20, 80, 140, 90, "store", "source", "PostgreSQL, SQLite\nor files, in use")
    p.box(200, 80, 120, 90, "plain", "feed", "cuts it into jobs\nof one buffer")
    p.frame(360, 50, 290, 150, "workers: one computes for each CPU")
    p.box(374, 80, 262, 38, "work", "read")
    p.box(374, 124, 262, 66, "work", "CRC-32C, compress, CRC-32C", "manifest + header + payload\nin one run of memory")
    p.box(690, 50, 110, 62, "work", "writer 1", "past the cache")
    p.box(690, 138, 110, 62, "work", "writer 2", "past the cache")
    p.box(840, 50, 120, 62, "store", "stripe 1", "family-1.bak")
    p.box(840, 138, 120, 62, "store", "stripe 2", "family-2.bak")
    p.arrow((160, 125), (199, 125))
    p.arrow((320, 125), (359, 125))
    p.arrow((650, 112), (670, 112), (670, 81), (689, 81))
    p.arrow((650, 140), (670, 140), (670, 169), (689, 169))
    p.arrow((800, 81), (839, 81))
    p.arrow((800, 169), (839, 169))
    p.note(700, 224, "each takes the earliest\nblock that waits")
    p.note(960, 224, "data durable on every stripe,\nthen trailers, then names", "end")

    p.parts.append('<line x1="20" y1="262" x2="960" y2="262" stroke="#c9d1d9"/>')
    p.text(20, 292, "Restore", 16, anchor="start", weight="bold")
    p.box(840, 310, 120, 62, "store", "stripe 1", "family-1.bak")
    p.box(840, 398, 120, 62, "store", "stripe 2", "family-2.bak")
    p.box(690, 310, 110, 62, "work", "reader 1", "reads ahead")
    p.box(690, 398, 110, 62, "work", "reader 2", "reads ahead")
    p.frame(360, 310, 290, 150, "workers: one for each CPU")
    p.box(374, 340, 262, 104, "work", "check payload CRC\ndecode\ncheck plain CRC")
    p.box(200, 340, 120, 90, "work", "writers", "threads that\nonly write")
    p.box(20, 322, 140, 46, "plain", "staging", "inside the target")
    p.box(20, 414, 140, 46, "store", "target", "its real names")
    p.arrow((840, 341), (801, 341))
    p.arrow((840, 429), (801, 429))
    p.arrow((690, 341), (670, 341), (670, 372), (651, 372))
    p.arrow((690, 429), (670, 429), (670, 400), (651, 400))
    p.arrow((360, 385), (321, 385))
    p.arrow((200, 372), (180, 372), (180, 345), (161, 345))
    p.arrow((90, 368), (90, 413))
    p.note(80, 388, "sync, then", "end")
    p.note(80, 403, "rename", "end")
    return p


def set_on_stripes():
    """Blocks of one set on three stripes, and what makes the set valid."""
    p = Picture("set", "One backup set on three stripes", 980, 400)
    p.text(20, 32, "One backup set on three stripes (families)", 16, anchor="start", weight="bold")
    rows = [
        ("family 1", ["0", "3", "5", "8"], [0, 1, 2, 3]),
        ("family 2", ["1", "4", "7"], [0, 1, 3]),
        ("family 3", ["2", "6"], [0, 2]),
    ]
    for number, (name, blocks, _) in enumerate(rows):
        y = 62 + number * 78
        p.text(20, y + 28, name, 13, anchor="start", weight="bold")
        p.note(20, y + 44, f"family-{number + 1}.bak", "start")
        x = 112
        p.box(x, y, 92, 52, "plain", "media\nheader")
        x += 98
        p.box(x, y, 82, 52, "plain", "set\nheader")
        x += 88
        for block in blocks:
            p.box(x, y, 92, 52, "store", f"block {block}")
            x += 98
        p.box(x, y, 72, 52, "work", "index")
        x += 78
        p.box(x, y, 82, 52, "ask", "trailer")
        x += 88
        if number == 0:
            p.note(x + 6, y + 24, "the next set\nmay follow", "start")
        else:
            p.note(x + 6, y + 31, "…", "start")
    p.note(112, 306, "A block names the files that its bytes belong to, and never refers to another block. Blocks go to whichever stripe", "start")
    p.note(112, 322, "is ready, so each stripe has gaps in the numbers; all stripes together hold every number once.", "start")
    p.text(112, 354, "Valid when, and only when, every family ends with its trailer and the totals agree.", 13, anchor="start", weight="bold")
    p.note(112, 376, "Trailers are written after the data of all families is durable. Stripes are found by their headers, not by their file names.", "start")
    return p


def recovery():
    """A set, the log after it, and the moment at which recovery ends."""
    p = Picture("recovery", "Recovery to a moment: set, WAL and target", 980, 420)
    p.text(20, 32, "Recovery to a moment", 16, anchor="start", weight="bold")
    p.note(20, 96, "backups", "start")
    p.box(120, 66, 130, 52, "store", "full", "Sunday")
    p.box(330, 66, 130, 52, "store", "differential", "Monday")
    p.box(660, 66, 140, 52, "plain", "full", "complete too late")
    p.arrow((330, 92), (251, 92), dashed=True)
    p.note(290, 83, "parent")
    p.note(20, 184, "WAL archive", "start")
    x = 120
    for number in range(10):
        kind = "store" if 4 <= number <= 7 else "plain"
        p.box(x, 154, 70, 48, kind, f"…{number + 1:02}")
        x += 74
    # The chain starts its replay with the newest set; the target lies in segment 08.
    p.arrow((440, 118), (440, 153))
    p.text(696, 142, "target", 13, EDGES["stop"], weight="bold")
    p.parts.append(f'<line x1="696" y1="148" x2="696" y2="226" stroke="{EDGES["stop"]}" stroke-width="2.4"/>')
    p.parts.append(f'<line x1="440" y1="218" x2="694" y2="218" stroke="{INK}" stroke-width="1.4"/>')
    p.note(567, 236, "replayed by the server")
    p.arrow((120, 256), (900, 256))
    p.note(900, 274, "time, LSN", "end")
    steps = [
        ("1", "choose", "newest set that was\ncomplete before the\ntarget, same branch"),
        ("2", "prove", "every segment to the\ntarget is there, and\nof the same branch"),
        ("3", "restore", "set and chain in one\npass; every byte is\nwritten once"),
        ("4", "replay", "the server gets its\nsegments by\nlongshore wal get"),
        ("5", "open", "at the target, on a\ntimeline of its own"),
    ]
    x = 20
    for number, head, below in steps:
        kind = "ask" if number in "12" else "work"
        p.box(x, 294, 172, 84, kind, f"{number}  {head}", below)
        if number != "5":
            p.arrow((x + 172, 336), (x + 191, 336))
        x += 192
    p.note(20, 402, "Steps 1 and 2 write nothing. A gap before the target, as far as one can be known beforehand, is named and the restore refused.", "start")
    return p


def cache():
    """The two decisions of the cache: where a hit is served, and what is copied into the cache."""
    p = Picture("cache", "The two decisions of the cache", 980, 540)
    p.text(20, 32, "Decision 1: which device serves a read?", 16, anchor="start", weight="bold")
    p.box(20, 104, 120, 56, "plain", "read", "of a client")
    p.box(190, 96, 150, 72, "ask", "in the cache?")
    p.box(450, 56, 230, 76, "ask", "who answers sooner?", "size of the request,\nin flight on each device")
    p.box(790, 56, 170, 60, "store", "cache device", "small, fast")
    p.box(790, 168, 170, 60, "store", "backend", "large, slow")
    p.box(450, 168, 230, 60, "ask", "does another client\nread these bytes?")
    p.arrow((140, 132), (189, 132))
    p.arrow((340, 116), (395, 116), (395, 94), (449, 94))
    p.note(366, 108, "yes")
    p.arrow((340, 150), (395, 150), (395, 198), (449, 198))
    p.note(366, 143, "no")
    p.arrow((680, 82), (789, 82))
    p.note(734, 75, "the cache")
    p.arrow((680, 112), (730, 112), (730, 182), (789, 182))
    p.note(738, 148, "the backend", "start")
    p.arrow((680, 208), (789, 208))
    p.note(734, 225, "no")
    p.arrow((565, 228), (565, 268))
    p.note(575, 250, "yes: it joins that read, and the backend is asked once", "start")
    p.note(960, 32, "with the policy aware", "end")
    p.note(565, 151, "a long read is cut, so that both devices end together")

    p.parts.append('<line x1="20" y1="292" x2="960" y2="292" stroke="#c9d1d9"/>')
    p.text(20, 324, "Decision 2: what is copied into the cache?", 16, anchor="start", weight="bold")
    p.box(20, 370, 150, 72, "plain", "bytes that a read\nmissed or a\nwrite wrote")
    p.box(220, 370, 160, 72, "ask", "does a copy save\nmore than it\ndelays?")
    p.box(430, 370, 160, 72, "ask", "used more often\nthan the slot's\npresent content?")
    p.box(640, 370, 130, 72, "work", "fill", "short queue;\nno client waits")
    p.box(820, 370, 140, 72, "store", "slot", "of the cache device")
    p.box(325, 484, 160, 40, "plain", "not copied")
    p.arrow((170, 406), (219, 406))
    p.arrow((380, 406), (429, 406))
    p.note(404, 399, "yes")
    p.arrow((590, 406), (639, 406))
    p.note(614, 399, "yes")
    p.arrow((770, 406), (819, 406))
    p.arrow((300, 442), (300, 504), (324, 504))
    p.note(292, 470, "no", "end")
    p.arrow((510, 442), (510, 504), (486, 504))
    p.note(518, 470, "no", "start")
    p.arrow((705, 442), (705, 512), (486, 512))
    p.note(713, 478, "the queue is full, or a newer\nwrite to these bytes began", "start")
    p.note(960, 350, "Every write goes to the backend first.", "end")
    return p


def offload():
    """A block's way past an accelerator, and what becomes of it if the accelerator fails."""
    p = Picture("offload", "Who compresses a block", 980, 330)
    p.box(20, 60, 130, 70, "work", "worker", "reads a block,\ncomputes CRCs")
    p.box(200, 60, 160, 70, "ask", "will the device\nfinish it in time?")
    p.box(420, 60, 130, 70, "plain", "lane", "within the\ndevice's budget")
    p.box(610, 60, 140, 70, "work", "device", "one call for\neach batch")
    p.box(420, 190, 330, 70, "ask", "result right?", "lengths, framing, CRC; one in 64 decoded again")
    p.box(820, 60, 140, 70, "stop", "fault, or no\nanswer in time", "suspended, or off")
    p.box(200, 190, 160, 70, "work", "software", "compresses the block")
    p.box(20, 190, 130, 70, "store", "writer", "each block once")
    p.arrow((150, 95), (199, 95))
    p.arrow((360, 95), (419, 95))
    p.note(390, 88, "yes")
    p.arrow((280, 130), (280, 189))
    p.note(272, 164, "no", "end")
    p.arrow((550, 95), (609, 95))
    p.arrow((680, 130), (680, 189))
    p.arrow((750, 95), (819, 95))
    p.arrow((420, 225), (361, 225))
    p.note(390, 218, "no")
    p.arrow((200, 225), (151, 225))
    p.arrow((585, 260), (585, 300), (85, 300), (85, 261))
    p.note(330, 294, "yes")
    p.arrow((890, 130), (890, 316), (280, 316), (280, 261), dashed=True)
    p.note(882, 160, "its blocks", "end")
    p.text(20, 32, "Software can do every block, so a device can only cost time", 16, anchor="start", weight="bold")
    return p


def archive():
    """WAL from a server to its archive, and from there to a restored server."""
    p = Picture("archive", "The way of a WAL segment: archived and fetched", 980, 300)
    p.box(20, 50, 150, 66, "store", "server's pg_wal", "a finished segment")
    p.box(230, 50, 180, 66, "work", "wal push", "archive_command:\none call, one segment")
    p.box(230, 200, 180, 66, "work", "wal receive", "as it is written,\nover a connection")
    p.box(480, 50, 190, 66, "ask", "this cluster, this name,\nfollows what is there?")
    p.box(740, 110, 220, 80, "store", "archive", "one compressed file for each\nsegment; a directory or bucket")
    p.box(480, 200, 190, 66, "work", "wal get", "restore_command:\nchecked, then named")
    p.box(740, 224, 220, 50, "store", "restored server", "replays it")
    p.arrow((170, 83), (229, 83))
    p.arrow((95, 116), (95, 233), (229, 233))
    p.arrow((410, 83), (479, 83))
    p.arrow((410, 220), (440, 220), (440, 100), (479, 100))
    p.arrow((670, 83), (850, 83), (850, 109))
    p.note(700, 76, "compressed, synced, renamed", "start")
    p.arrow((740, 150), (575, 150), (575, 199))
    p.arrow((670, 249), (739, 249))
    p.note(575, 32, "no: exit code 7, and nothing in the archive changes")
    p.arrow((575, 49), (575, 38))
    return p


def states():
    """The states of a backup at a target, from its first byte to its removal."""
    p = Picture("states", "The states of a backup at a target", 980, 290)
    p.box(20, 60, 140, 60, "work", "writing", "lease and lock")
    p.box(240, 60, 160, 60, "store", "complete", "or marked")
    p.box(240, 190, 160, 60, "stop", "INCOMPLETE", "never was a backup")
    p.box(490, 20, 190, 50, "stop", "MISSING", "a stripe is gone; it stays")
    p.box(490, 82, 190, 50, "stop", "DAMAGED", "a header or trailer changed")
    p.box(490, 144, 190, 50, "stop", "BROKEN", "its parent cannot be used")
    p.box(780, 82, 180, 50, "plain", "removing", "LABEL.removing")
    p.box(780, 196, 180, 50, "plain", "gone")
    p.arrow((160, 90), (239, 90))
    p.note(200, 82, "trailers")
    p.arrow((90, 120), (90, 220), (239, 220))
    p.note(100, 212, "it ends without trailers", "start")
    p.arrow((400, 80), (445, 80), (445, 45), (489, 45))
    p.arrow((400, 90), (445, 90), (445, 107), (489, 107))
    p.arrow((400, 100), (445, 100), (445, 169), (489, 169))
    p.arrow((680, 107), (779, 107))
    p.arrow((680, 169), (715, 169), (715, 107), (779, 107))
    p.arrow((400, 220), (730, 220), (730, 120), (779, 120))
    p.note(560, 212, "expire: no rule keeps it, no lease holds it")
    p.arrow((870, 132), (870, 195))
    p.arrow((320, 60), (320, 8), (870, 8), (870, 81))
    p.note(700, 22, "expire", "start")
    return p


def served():
    """A cache at work, from a client's file system to the two devices."""
    p = Picture("served", "A cache at work", 980, 250)
    p.box(20, 80, 150, 80, "plain", "database", "on a file system,\non a loop device or nbd")
    p.box(240, 80, 150, 80, "work", "nbdkit", "serves NBD on\na socket")
    p.box(460, 80, 190, 80, "ask", "longshore's plugin", "who answers sooner?\nwhat is copied?")
    p.box(760, 30, 200, 66, "store", "backend", "large, slow; has every\nacknowledged byte")
    p.box(760, 150, 200, 66, "store", "cache device", "small, fast; may be lost\nat any moment")
    p.box(460, 194, 190, 40, "plain", "cache status, …")
    p.arrow((170, 120), (239, 120))
    p.arrow((390, 120), (459, 120))
    p.arrow((650, 100), (705, 100), (705, 63), (759, 63))
    p.note(750, 50, "every write; some reads", "end")
    p.arrow((650, 140), (705, 140), (705, 183), (759, 183))
    p.note(750, 204, "reads and copies", "end")
    p.arrow((555, 194), (555, 161))
    return p


def main():
    here = Path(__file__).resolve().parent
    stale = []
    for picture in [data(), set_on_stripes(), recovery(), cache(), offload(), archive(), states(), served()]:
        path, svg = here / f"{picture.name}.svg", picture.svg()
        if "--check" not in sys.argv[1:]:
            path.write_text(svg, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != svg:
            stale.append(path.name)
    if stale:
        sys.exit(f"{', '.join(stale)}: not as drawn; run python3 docs/pictures/draw.py")


if __name__ == "__main__":
    main()
