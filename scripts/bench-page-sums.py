#!/usr/bin/env python3
"""What the page sums of a full PostgreSQL backup cost, in CPU seconds for a GB.

    bench-page-sums.py LONGSHORE CONNECTION [--files COPY] [--rounds 7]

Every full backup of a cluster makes the sums; no option leaves them out. So `perf` samples each backup to nul:, and the
share of the samples in the hash is the share of the sums. With --files, a copy of the stopped cluster's directory is
backed up in turn as plain files, which have neither sums nor page verification: the difference is a cross-check.
Prints medians with their ranges. Needs a cluster that fits the page cache; the first round is not counted.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

HASH, VERIFY = "highway::", "longshore_pg::page::"


def backup(longshore, source, algorithm):
    """CPU seconds for a GB: of all, of the sums, of the pages' own checksums."""
    with tempfile.NamedTemporaryFile() as samples:
        ran = subprocess.run(
            ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", samples.name, longshore, "--json",
             "backup", source, "--to", "nul:", "--database", "sums", "-a", algorithm],
            env=dict(os.environ, LONGSHORE_CATALOG="none"), stdout=subprocess.PIPE, check=True)
        report = subprocess.run(
            ["perf", "report", "-i", samples.name, "--stdio", "--no-children", "-g", "none", "-F", "overhead,symbol"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    each = json.loads(ran.stdout)["cpu_s_per_gb"]
    rows = [line.split("%", 1) for line in report.splitlines() if "%" in line and not line.startswith("#")]

    def of(symbol):
        return each * sum(float(share) for share, name in rows if symbol in name) / 100

    return each, of(HASH), of(VERIFY)


def shown(values):
    return f"{statistics.median(values):.3f} [{min(values):.3f}-{max(values):.3f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("longshore")
    parser.add_argument("connection")
    parser.add_argument("--files", metavar="COPY")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    sources = {"cluster": given.connection}
    if given.files:
        sources["files"] = "files:" + given.files
    cells = [(source, algorithm) for algorithm in ("NONE", "LZ4", "QAT_DEFLATE") for source in sources]
    found = {cell: [] for cell in cells}
    for number in range(given.rounds + 1):
        for source, algorithm in cells:
            taken = backup(given.longshore, sources[source], algorithm)
            if number:
                found[source, algorithm].append(taken)
    print("| backup to nul: | CPU-s/GB | of it page sums | of it page verification |\n|---|---|---|---|")
    for (source, algorithm), runs in found.items():
        print(f"| {source}, {algorithm} | " + " | ".join(shown(column) for column in zip(*runs)) + " |")


main()
