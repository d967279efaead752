"""The record as Markdown tables.

Invariants
- Only the record is read.
- A round that was disturbed is in no table, and a table without rounds is left out.
- A figure is the median of the rounds, with the least and the largest if there are several; of stored bytes only the
  median is shown. Tools are in the order of the record.

Leaves to others: which rounds are made (`bench-postgres.py`) and which are disturbed (`rows.py`), and what the figures
mean (docs/benchmarks-postgres.md).
"""

import statistics

from .rows import disturbed

ORDER = ("full", "cold", "load", "wal", "distant", "bucket", "chain")


def spread(values, digits=2):
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
                     + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


class Report:
    def __init__(self, record):
        self.record = record

    def rounds(self, row):
        """The rounds of a row, by tool in the order of the tools."""
        found = {}
        for name in self.record["tools"]:
            runs = [run["found"] for run in self.record["runs"] if run["row"] == row and run["tool"] == name
                    and not disturbed(run["found"])]
            if runs:
                found[name] = runs
        return found

    def text(self):
        parts = [self.tools(), self.full(), self.cold(), self.load(), self.wal(), self.distant(), self.bucket(), self.chain()]
        return "\n\n".join(part for part in parts if part)

    def tools(self):
        rows = [(name, tool["version"] or "–", tool["options"] or "–", tool["checks"] or "–") for name, tool in self.record["tools"].items()]
        return table(("tool", "version", "settings", "checks while it backs up"), rows)

    def full(self):
        rows = []
        for name, runs in self.rounds("full").items():
            def figures(part, key):
                return spread([run[part][key] for run in runs])
            rows.append((name, figures("backup", "s"), figures("backup", "cpu"), figures("backup", "machine"),
                         f"{statistics.median(run['stored'] for run in runs) / 1e9:.3f}",
                         figures("restore", "s"), figures("restore", "cpu"), figures("restore", "machine"), len(runs)))
        return rows and table(("tool", "backup s", "CPU-s", "machine CPU-s", "stored GB", "restore s", "CPU-s", "machine CPU-s",
                               "rounds"), rows)

    def cold(self):
        rows = []
        for name, runs in self.rounds("cold").items():
            cells = [name]
            for part in ("cache", "memory"):
                some = [run[part] for run in runs if part in run]
                cells += [spread([one["s"] for one in some]), spread([one["machine"] for one in some])] if some else ["–", "–"]
            rows.append((*cells, len(runs)))
        return rows and table(("restore", "cold cache s", "machine CPU-s", "cold memory s", "machine CPU-s", "rounds"), rows)

    def load(self):
        rows = []
        for name, runs in self.rounds("load").items():
            rows.append((name, spread([run["wall"] for run in runs]), spread([(run["before"] + run["after"]) / 2 for run in runs], 0),
                         spread([run["during"] for run in runs], 0), spread([run["drop"] for run in runs], 0) + " %",
                         spread([run["lost"] for run in runs], 0), len(runs)))
        return rows and table(("under pgbench, 4 clients", "backup s", "TPS before and after", "TPS during", "drop",
                               "transactions lost", "rounds"), rows)

    def wal(self):
        rows = []
        for name, runs in self.rounds("wal").items():
            rows.append((name, spread([run["rate"] for run in runs], 1), spread([run["machine"] for run in runs]),
                         f"{statistics.median(run['stored'] for run in runs) / 1e6:.0f}", len(runs)))
        return rows and table(("log, by the server's archiver", "segments/s", "machine CPU-s", "stored MB", "rounds"), rows)

    def distant(self):
        rows = []
        for name, runs in self.rounds("distant").items():
            queue = spread([run["queue"] for run in runs], 1) if all("queue" in run for run in runs) else "–"
            rows.append((name, spread([run["rate"] for run in runs], 1), queue, spread([run["machine"] for run in runs]),
                         spread([run["store"] for run in runs]), f"{statistics.median(run['stored'] for run in runs) / 1e6:.0f}", len(runs)))
        return rows and table(("log in segments of 1 MiB, to a store 10 ms away", "by the server's archiver, segments/s",
                               "the queue alone, segments/s", "machine CPU-s", "of these the store's and the way's", "stored MB", "rounds"), rows)

    def bucket(self):
        """Of Longshore also the time beside the same backup to a directory, and the CPU time beyond it for each GB stored."""
        rows, all_runs = [], self.rounds("bucket")
        for name, runs in all_runs.items():
            stored = statistics.median(run["stored"] for run in runs) / 1e9
            local = all_runs.get(name.split(",")[0] + ", a directory") if name.startswith("longshore") else None
            cells = [name]
            for part in ("backup", "restore"):
                cells += [spread([run[part][key] for run in runs]) for key in ("s", "cpu", "store")]
                if not local or local is runs:
                    cells += ["–", "–"]
                    continue
                ratio, more = [statistics.median(run[part]["s"] for run in one) for one in (runs, local)], []
                for run, other in zip(runs, local):
                    more.append((run[part]["cpu"] - other[part]["cpu"]) / stored)
                cells += [f"{ratio[0] / ratio[1]:.2f}", spread(more)]
            rows.append((*cells, f"{stored:.3f}", len(runs)))
        of_part = ("CPU-s", "the store's CPU-s", "times a directory's s", "CPU-s more for each GB stored")
        return rows and table(("object store on this machine", "backup s", *of_part, "restore s", *of_part, "stored GB", "rounds"), rows)

    def chain(self):
        rows = []
        for name, runs in self.rounds("chain").items():
            each = [one for run in runs for one in run["incremental"]]
            cells = [spread([one["s"] for one in each]), f"{statistics.median(one['stored'] for one in each) / 1e9:.3f}",
                     spread([run["backup"]["s"] for run in runs]), f"{statistics.median(run['stored'] for run in runs) / 1e9:.3f}"]
            for part in ("full", "chain"):
                cells += [spread([run[part][key] for run in runs]) for key in ("s", "cpu")]
            rows.append((name, *cells, len(runs)))
        return rows and table(("chain of three", "incremental s", "stored GB", "full s", "stored GB", "restore of the full s", "CPU-s",
                               "restore of the chain s", "CPU-s", "rounds"), rows)
