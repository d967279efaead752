#!/usr/bin/env python3
"""Tells what the demo did, as the beginning of a report: `longshore lab compare --after FILE` adds the comparison.

usage: demo-story.py BACKUPS.json RESTORES.json COMMITTED KEPT > story.json

The first two are answers of `longshore history --json`; COMMITTED and KEPT count the rows of the database that stayed in
use and of the restored one.

Method: sizes and times are those of the history; what was judged by other programs is known to have passed, since the demo
ends at the first failure.
Leaves to others: running the steps (demo.sh), and drawing (longshore lab).
"""

import json
import sys


def column(name, unit="", decimals=0):
    return {"name": name, "unit": unit, "decimals": decimals}


def step(name, row, stored, result):
    """A row of the table."""
    mib = row["size_bytes"] / 2**20
    return [name, mib, stored, row["seconds"], mib / max(row["seconds"], 1e-9), result]


def chart(title, label, unit, names, values):
    return {
        "title": title,
        "form": "bar",
        "x": {"label": "", "unit": "", "positions": {"names": names}},
        "y": {"label": label, "unit": unit, "max": None},
        "y_right": None,
        "series": [{"name": title, "axis": "left", "dashed": False, "values": values}],
    }


LIMITS = {
    "cpu": "the CPUs (compression and checksums)",
    "source": "reading the source",
    "devices": "the devices",
    "rate": "a rate that was asked for",
}


def main():
    backups, restores = (json.load(open(name, encoding="utf-8"))["rows"] for name in sys.argv[1:3])
    committed, kept = (int(number) for number in sys.argv[3:5])
    # The newest come first.
    rest, live = backups[0], backups[1]
    rest_back, live_back = restores[0], restores[1]
    packed = [row["compressed_bytes"] / 2**20 for row in (live, rest)]
    stripes = len(live["devices"])
    limit = LIMITS.get(live["limit"], live["limit"])
    rows = [
        step(
            f"Backup in use, {stripes} stripes, {live['algorithm']}",
            live,
            packed[0],
            "valid when read back; gzip -t accepts it",
        ),
        step("Restore of it", live_back, packed[0], f"SQLite: ok; {kept} bookings, sum 0"),
        step(f"Backup at rest, 1 stripe, {rest['algorithm']}", rest, packed[1], ""),
        step("Restore of it", rest_back, packed[1], "every byte as it was (cmp)"),
    ]
    size = live["size_bytes"] / 2**20
    summary = (
        f"A SQLite database of {size:.0f} MiB was backed up to {stripes} stripes in {live['seconds']:.2f} s while another "
        f"process kept committing, read back, and restored in {live_back['seconds']:.2f} s. The copy holds one moment: "
        f"{kept} bookings that add up to 0, of the {committed} in the database that stayed in use."
    )
    names = ["backup in use", "restore", "backup at rest", "restore at rest"]
    story = {
        "title": "Longshore: a database in use, backed up and brought back",
        "summary": summary,
        "platform": [],
        "sections": [
            {
                "heading": "What was done",
                "prose": [
                    "Every booking is two rows that add up to 0, in one transaction. A copy that is not of one moment would "
                    "have half of one.",
                    f"The first backup was limited by {limit}.",
                    "Times are those of the runs, until everything is durable; one run each, on a machine that may have other "
                    "work.",
                ],
                "table": {
                    "columns": [
                        column("Step"),
                        column("Database", "MiB", 1),
                        column("Stored", "MiB", 1),
                        column("Elapsed", "s", 2),
                        column("Throughput", "MiB/s"),
                        column("Result"),
                    ],
                    "row_values": rows,
                },
                "charts": [
                    chart("How long", "Elapsed", "s", names, [row[3] for row in rows]),
                    chart(
                        "How much is stored",
                        "Size",
                        "MiB",
                        ["the database", f"{live['algorithm']} {live['level']}", f"{rest['algorithm']} {rest['level']}"],
                        [size, *packed],
                    ),
                ],
            }
        ],
    }
    json.dump(story, sys.stdout)


if __name__ == "__main__":
    main()
