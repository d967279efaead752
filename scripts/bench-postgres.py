#!/usr/bin/env python3
"""Backups, restores and log archiving of one PostgreSQL cluster, by Longshore and by others, side by side.

    bench-postgres.py [--longshore target/release/longshore] [--work .work/bench-postgres] [--rounds 3]
    bench-postgres.py ... --prepare                        makes the clusters, measures nothing
    bench-postgres.py ... --budget 230 [--rows full,load]  goes on with what lacks rounds, for about 230 s
    bench-postgres.py ... --table                          prints what was recorded
    bench-postgres.py ... --apart --rows bucket            as if the object store were another machine; recorded by itself

Every round is recorded in WORK/record.json; one in which other programs took more than 15 % of what it used itself does
not count and is run again the next time. So a benchmark can be run in pieces, each while the machine is kept quiet.
Rounds alternate between the tools, every other round in reverse order.

Rows: `full` backup and restore, `cold` restores, `load` backup under pgbench, `wal` archiving, `distant` the same to an object
store whose answers come 10 ms late, `bucket` backup to an object
store on this machine and its restore, next to the same to a directory, `chain` incremental backups and their restore (its rounds
come last, as it changes the cluster). docs/benchmarks-postgres.md says what each means and
how to get the other tools. Run it as root: servers run as `postgres`, cold memory needs root.

Invariants
- A round is recorded before the next one begins, and the record is replaced in one step, so an interrupt loses one round.
- Rounds of one row and tool are counted from the record: one that counts is not measured again.

Leaves to others: servers, tools, measurements and tables (`bench_postgres`).
"""

import argparse, atexit, json, os, platform, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from bench_postgres import cluster, machine, report, rows, store, tools  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longshore", default="target/release/longshore")
    parser.add_argument("--pgbackrest", default="pgbackrest", help="programs, separated by commas: versions to compare")
    parser.add_argument("--walg", default="wal-g", help="program")
    parser.add_argument("--versitygw", default=".work/buckets/versitygw", help="program; the object store")
    parser.add_argument("--postgres", default="/usr/lib/postgresql/15/bin", help="directory of the server's programs, 15 or later")
    parser.add_argument("--port", type=int, default=6544, help="this and the next two name the servers' sockets")
    parser.add_argument("--work", default=".work/bench-postgres", help="on the disk to measure; 16 GB")
    parser.add_argument("--scale", type=int, default=70, help="pgbench's; 70 gives 1 GB")
    parser.add_argument("--warehouses", type=int, default=10, help="TPC-C's; 10 give 1 GB")
    parser.add_argument("--no-orders", action="store_true", help="leave out TPC-H's tables, 1.3 GB")
    parser.add_argument("--segments", type=int, default=128, help="of log to archive")
    parser.add_argument("--small-segments", type=int, default=1000, help="of log of 1 MiB to archive to a distant store")
    parser.add_argument("--max-cpu", type=int, default=15, help="of the spared backup, in percent of the machine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default=",".join(report.ORDER))
    parser.add_argument("--tools", default="", help="only those whose names contain one of these, separated by semicolons")
    parser.add_argument("--apart", action="store_true", help="the object store has one CPU for itself, everything else the others")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


class Record:
    """What was measured, kept in a file after every round."""

    def __init__(self, path):
        self.path = path
        self.content = dict(tools={}, runs=[])
        if os.path.exists(path):
            self.content = json.load(open(path))

    def save(self):
        with open(self.path + ".new", "w") as file:
            json.dump(self.content, file, indent=1)
        os.rename(self.path + ".new", self.path)

    def count(self, row, tool):
        """Rounds that count."""
        return sum(run["row"] == row and run["tool"] == tool and not rows.disturbed(run["found"]) for run in self.content["runs"])

    def took(self, row, tool):
        """Seconds that a round is expected to need: the longest so far, or a guess."""
        return max((run["took"] for run in self.content["runs"] if run["row"] == row and run["tool"] == tool), default=45)

    def add(self, row, tool, took, found):
        self.content["runs"].append(dict(row=row, tool=tool, took=round(took, 1), ended=int(time.time()), found=found))
        self.save()


def pending(found, record, wanted, rounds):
    """What is to be measured, round after round; tools in reverse order in every other round. What changes the cluster is last."""
    last = [(number, "chain") for number in range(rounds) if "chain" in wanted]
    first = [(number, row) for number in range(rounds) for row in wanted if row != "chain"]
    for number, row in first + last:
        names = [name for name, tool in found.items() if row in tool.rows and (row != "wal" or tool.archive)]
        for name in names if number % 2 == 0 else reversed(names):
            if record.count(row, name) <= number:
                yield row, name


def main():
    wanted = options()
    main_cluster = cluster.Cluster(wanted.work, "data", wanted.postgres, wanted.port)
    log_cluster = cluster.Cluster(wanted.work, "waldata", wanted.postgres, wanted.port + 1)
    small_cluster = cluster.Cluster(wanted.work, "smalldata", wanted.postgres, wanted.port + 2, segment_mib=1)
    record = Record(f"{main_cluster.work}/record{'-apart' if wanted.apart else ''}.json")
    objects = None
    if not wanted.table:
        common = "shared_buffers=1GB\nmax_wal_size=8GB"
        main_cluster.make(common, cluster.databases(wanted.scale, wanted.warehouses, not wanted.no_orders))
        if "wal" in wanted.rows:
            log_cluster.make(common + "\nwal_keep_size=4GB", rows.segments(wanted.segments))
        if "distant" in wanted.rows:
            small_cluster.make(common + "\nwal_keep_size=4GB", rows.segments(wanted.small_segments))
        if any(row in wanted.rows for row in ("bucket", "distant")) and not wanted.prepare:
            if os.path.exists(wanted.versitygw):
                *own, last = sorted(machine.cpus())
                objects = store.Store(wanted.work, wanted.versitygw, last if wanted.apart else None)
                objects.start()
                if wanted.apart:
                    os.sched_setaffinity(0, own)
                atexit.register(objects.stop)
            else:
                print(f"not compared: object stores: no `{wanted.versitygw}`: make setup", file=sys.stderr)
        found, missing = tools.all_tools(wanted, main_cluster, objects)
        for line in missing:
            print(f"not compared: {line}", file=sys.stderr)
        record.content["tools"].update({name: dict(version=tool.version, options=tool.options, checks=tool.checks)
                                        for name, tool in found.items()})
        record.content["machine"] = dict(processor=machine.processor(), cpus=len(machine.cpus()), kernel=platform.release(),
                                         cluster=machine.size(f"{main_cluster.data}/base"))
        record.save()
    if wanted.prepare:
        return
    if not wanted.table:
        parts = [part for part in wanted.tools.split(";") if part]
        chosen = {name: tool for name, tool in found.items() if not parts or any(part in name for part in parts)}
        measure = rows.Rows(main_cluster, log_cluster, objects, small_cluster)
        ends = time.monotonic() + wanted.budget
        for row, name in list(pending(chosen, record, wanted.rows.split(","), wanted.rounds)):
            began = time.monotonic()
            if began + record.took(row, name) > ends:
                break
            result = getattr(measure, row)(found[name])
            record.add(row, name, time.monotonic() - began, result)
            print("disturbed" if rows.disturbed(result) else "counted", row, name, json.dumps(result), flush=True)
    if wanted.table or wanted.budget == float("inf"):
        seen = record.content["machine"]
        print(f"\n{seen['processor']}, {seen['cpus']} CPUs, kernel {seen['kernel']}; {seen['cluster'] / 1e9:.2f} GB of relations; "
              "median [min-max]\n")
        print(report.Report(record.content).text())


main()
