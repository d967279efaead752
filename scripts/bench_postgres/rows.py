"""The measurements: each row takes a tool and returns the figures of one round.

Method: each first backup begins in the same state: an empty repository, a server after a checkpoint with its data in the
page cache, and free memory filled with clean cache. A timed backup or restore ends when the file system is synced,
whether the tool synced it or not; under load, and for archiving, it ends when the tool or the archiver is done. CPU
seconds are counted for tool and server together, for the whole machine, and for other programs; a round in which those
took more than 0.5 s and 15 % of the tool's own together is disturbed. `wal` and `distant` count only the machine's CPU
seconds, so their rounds are never disturbed. Nothing of a round is left for the next one.

Leaves to others: the server (`cluster.py`), the tools' commands (`tools.py`), the object store (`store.py`), and which
rounds are made and recorded (`bench-postgres.py`).
"""

import json, os, re, resource, statistics, subprocess, time

from . import machine

BEFORE, AFTER = 11, 9
"""Seconds of pgbench alone before and after a backup."""


class Meter:
    """Counts CPU seconds from its creation on: of the tool, its children and the server; of the kernel's threads; of the object
    store, if one runs; of all others."""

    def __init__(self, cluster, store=None):
        self.cluster, self.store = cluster, store
        self.began = self.now()

    def now(self):
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (children.ru_utime + children.ru_stime + self.cluster.cpu(), machine.kernel(), machine.busy(),
                self.store.cpu() if self.store else 0)

    def read(self):
        own, kernel, whole, store = (now - began for now, began in zip(self.now(), self.began))
        found = dict(cpu=round(own, 2), machine=round(whole, 2), others=round(whole - own - kernel - store, 2))
        return dict(found, store=round(store, 2)) if self.store else found


def disturbed(found):
    """Whether other programs took so much of the machine that a round says little."""
    parts = [part for value in found.values() for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)]
    parts = parts or [found]
    return any(part.get("others", 0) > 0.5 + 0.15 * part["cpu"] for part in parts if "cpu" in part)


class Rows:
    def __init__(self, cluster, archive, store=None, small=None):
        self.cluster, self.archive, self.store, self.small = cluster, archive, store, small
        self.work = cluster.work
        self.turn = True

    def timed(self, argv, durable, extra=None):
        """Wall seconds until all is durable, CPU seconds of tool and server, and those of the whole machine.

        Every tool is followed by a sync of the file system, which costs those nothing that have synced themselves.
        """
        subprocess.run(["sync"], check=True)
        meter, began = Meter(self.cluster, self.store), time.monotonic()
        self.cluster.run(*argv, extra=extra)
        subprocess.run(["sync", "-f", durable], check=True)
        wall = time.monotonic() - began
        return dict(s=round(wall, 3), **meter.read())

    def ready(self, tool):
        """A server with its data in the page cache, an empty repository, free memory filled."""
        self.cluster.empty("out", "restored")
        if tool.prepare:
            self.cluster.run(*tool.prepare, extra=tool.environment)
        self.cluster.start()
        self.cluster.psql("checkpoint")
        machine.fill_memory(f"{self.work}/holes")
        for name in ("base", "global"):
            machine.read(f"{self.cluster.data}/{name}")

    def restore(self, tool):
        self.cluster.empty("restored")
        if not tool.into:
            os.rmdir(f"{self.work}/restored")
        return self.timed(tool.restore, self.work, tool.environment)

    def full(self, tool):
        """A backup of the warm cluster, and a restore of the cached backup."""
        self.ready(tool)
        backup = self.timed(tool.backup, f"{self.work}/out", tool.environment)
        self.cluster.stop()
        machine.fill_memory(f"{self.work}/holes")
        machine.read(f"{self.work}/out")
        restore = self.restore(tool)
        found = dict(backup=backup, restore=restore, stored=machine.size(f"{self.work}/out"),
                     restored=machine.size(f"{self.work}/restored"))
        self.cluster.empty("out", "restored")
        return found

    def cold(self, tool):
        """Restores of a backup that is not cached: with memory filled, and with memory handed back to the host."""
        self.ready(tool)
        self.cluster.run(*tool.backup, extra=tool.environment)
        self.cluster.stop()
        machine.fill_memory(f"{self.work}/holes")
        machine.forget(f"{self.work}/out")
        found = dict(cache=self.restore(tool))
        self.cluster.empty("restored")
        if machine.cold_memory():
            found["memory"] = self.restore(tool)
        self.cluster.empty("out", "restored")
        return found

    def chain(self, tool):
        """Two backups, each of what differs from the one before; the restores of all of them and of a full one."""
        self.ready(tool)
        self.cluster.run(*tool.backup, extra=tool.environment)
        found = dict(incremental=[])
        for number in (1, 2):
            # Every tenth page of the largest table here and there, and where the new versions of their rows go.
            self.cluster.psql(f"update pgbench_accounts set abalance = abalance + 1 where aid / 61 % 10 = {number}")
            self.cluster.psql("vacuum pgbench_accounts")
            self.cluster.psql("checkpoint")
            machine.read(f"{self.cluster.data}/base")
            before = machine.size(f"{self.work}/out")
            done = self.timed(tool.differing(number), f"{self.work}/out", tool.environment)
            found["incremental"].append(dict(stored=machine.size(f"{self.work}/out") - before, **done))
        before = machine.size(f"{self.work}/out")
        found["backup"] = self.timed(tool.again, f"{self.work}/out", tool.environment)
        found["stored"] = machine.size(f"{self.work}/out") - before
        self.cluster.stop()
        # The order alternates: the disk may be busier after one of them.
        order = ["full", "chain"] if self.turn else ["chain", "full"]
        self.turn = not self.turn
        for name in order:
            machine.fill_memory(f"{self.work}/holes")
            machine.read(f"{self.work}/out")
            self.cluster.empty("restored")
            os.rmdir(f"{self.work}/restored")
            found[name] = self.timed(tool.restores[name], self.work, tool.environment)
        self.cluster.empty("out", "restored")
        return found

    def bucket(self, tool):
        """A backup of the warm cluster to an object store on this machine, and its restore, next to the same to a directory."""
        self.store.empty()
        self.ready(tool)
        backup = self.timed(tool.backup, self.work, tool.environment)
        self.cluster.stop()
        stored = self.store.size() + machine.size(f"{self.work}/out")
        machine.fill_memory(f"{self.work}/holes")
        self.store.read()
        machine.read(f"{self.work}/out")
        found = dict(backup=backup, restore=self.restore(tool), stored=stored, restored=machine.size(f"{self.work}/restored"))
        self.cluster.empty("out", "restored")
        self.store.empty()
        return found

    def load(self, tool):
        """What a backup costs four pgbench clients, paired with the seconds before and after it."""
        self.ready(tool)
        argv, env = self.cluster.command([f"{self.cluster.bin}/pgbench", "-n", "-c", "4", "-j", "2", "-T", "600", "-P", "1"])
        progress = open(f"{self.work}/progress", "w+")
        meter = Meter(self.cluster)
        bank = subprocess.Popen(argv, env=env, cwd=self.work, stdout=subprocess.DEVNULL, stderr=progress)
        try:
            started = time.monotonic()
            time.sleep(BEFORE)
            began = time.monotonic() - started
            self.cluster.run(*tool.backup, extra=tool.environment)
            ended = time.monotonic() - started
            time.sleep(AFTER)
        finally:
            bank.terminate()
            bank.wait()
            used = meter.read()
            self.cluster.stop()
        self.cluster.empty("out")
        progress.seek(0)
        rate = [float(tps) for tps in re.findall(r"progress: [\d.]+ s, ([\d.]+) tps", progress.read())]
        before = statistics.median(rate[3:int(began)])
        after = statistics.median(rate[int(ended) + 2:])
        alone = (before + after) / 2
        during = rate[int(began):int(ended) + 1]
        return dict(wall=round(ended - began, 2), before=round(before), after=round(after),
                    during=round(statistics.mean(during)), lost=round(sum(alone - tps for tps in during)),
                    drop=round(100 * (1 - statistics.mean(during) / alone), 1), **used)

    def wal(self, tool):
        """Segments per second of the server's own archiver, over the same waiting segments for each tool."""
        return self.archived(tool, self.archive, tool.archive, tool.archive_prepare, f"{self.work}/log")

    def distant(self, tool):
        """The same with segments of 1 MiB, to an object store whose answers come 10 ms late."""
        found = self.archived(tool, self.small, tool.distant, tool.distant_prepare, f"{self.store.root}/{self.store.bucket}")
        return dict(found, queue=self.queued(tool)) if tool.queue else found

    def queued(self, tool):
        """Segments per second of the look-ahead alone, without the server's call for each segment."""
        cluster, names = self.small, self.waiting(self.small, tool.distant_prepare)
        # The first segment makes the archive its cluster's.
        cluster.run("sh", "-c", tool.distant(cluster.data, "", "").replace(" --async", "").replace("%p", f"{cluster.data}/pg_wal/{names[0]}"))
        began = time.monotonic()
        cluster.run("sh", "-c", tool.queue.replace("%p", f"{cluster.data}/pg_wal/{names[0]}"))
        return round(len(names) / (time.monotonic() - began), 1)

    def waiting(self, cluster, prepare):
        """An empty archive, and segments that wait for it; their names."""
        status = f"{cluster.data}/pg_wal/archive_status"
        names = json.load(open(f"{cluster.data}/bench-segments"))
        cluster.empty("log", "scratch")
        if self.store:
            self.store.empty()
        if prepare:
            cluster.run(*prepare(cluster.data, f"{self.work}/log", f"{self.work}/scratch"))
        for name in os.listdir(status):
            os.unlink(f"{status}/{name}")
        cluster.run("touch", *(f"{status}/{name}.ready" for name in names))
        subprocess.run(["rm", "-rf", f"{cluster.data}/pg_wal/longshore"], check=True)
        return names

    def archived(self, tool, cluster, archive, prepare, place):
        status, names = f"{cluster.data}/pg_wal/archive_status", self.waiting(cluster, prepare)
        cluster.run("truncate", "-s", "0", f"{cluster.data}/postgresql.auto.conf")
        cluster.start("-c archive_mode=on")
        machine.fill_memory(f"{self.work}/holes")
        machine.read(f"{cluster.data}/pg_wal")
        command = archive(cluster.data, f"{self.work}/log", f"{self.work}/scratch")
        cluster.psql("alter system set archive_command = '%s'" % command.replace("'", "''"))
        whole, began, store = machine.busy(), time.monotonic(), self.store.cpu() if self.store else 0
        cluster.psql("select pg_reload_conf()")
        while any(os.path.exists(f"{status}/{name}.ready") for name in reversed(names)):
            time.sleep(0.01)
            if time.monotonic() - began > 120:
                raise SystemExit(f"{tool.name}: the archiver did not finish, see {cluster.work}/{cluster.name}.log")
        wall, cpu = time.monotonic() - began, machine.busy() - whole
        store = (self.store.cpu() if self.store else 0) - store
        cluster.psql("alter system reset archive_command")
        cluster.stop()
        stored = machine.size(place)
        cluster.empty("log", "scratch")
        return dict(s=round(wall, 3), rate=round(len(names) / wall, 1), machine=round(cpu, 2), store=round(store, 2), stored=stored)


def segments(count):
    """Fills a cluster and leaves `count` segments of pgbench's log waiting in it."""
    def fill(cluster):
        cluster.pgbench("-i", "-q", "-s", "30")
        cluster.stop()
        cluster.start("-c archive_mode=on -c archive_command=")
        status = f"{cluster.data}/pg_wal/archive_status"
        for name in os.listdir(status):
            os.unlink(f"{status}/{name}")
        cluster.psql("checkpoint")

        def waiting():
            return sorted(name[:-6] for name in os.listdir(status) if name.endswith(".ready") and len(name) == 30)
        while len(waiting()) < count:
            cluster.pgbench("-n", "-c", "4", "-j", "2", "-T", "5")
        with open(f"{cluster.data}/bench-segments", "w") as file:
            json.dump(waiting()[:count], file)
        cluster.stop()
        cluster.start()
    return fill
