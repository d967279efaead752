#!/usr/bin/env python3
"""PostgreSQL on a cached disk whose devices are emulated: what a backup does to it, and what other caches make of it.

usage: bench-cache-postgres.py prepare WORK --postgres BIN [--scale 8]
       bench-cache-postgres.py run WORK SERVER --postgres BIN --plugin SO --longshore PROGRAM
              [--emulate FAST/SLOW@N] [--cache 48M] [--seconds 15] [--warm 90] [--load backup|scans|none]
              [--clients 8]
       bench-cache-postgres.py kill WORK --postgres BIN --plugin SO --longshore PROGRAM [--rounds 3]

SO: the plugin that can emulate devices, liblongshore_lab_nbd.so.

SERVER: a policy of the cache (aware, none, ...), `bare` (no cache), or `filter` (nbdkit's own cache filter).

Method: the chain is nbdkit, nbdfuse, a loop device, ext4, PostgreSQL with debug_io_direct=data, so that each page that its
shared buffers lack is read from the disk. Clients of pgbench (eight), four selects to one update, rows drawn by Zipf's
law and scattered over the table; commits are not waited for, because the cache makes no write quicker. After `before`
comes a checkpoint, a phase of its own, then `during`: a physical backup reads everything (`backup`), or two sequential
scans run all the time (`scans`); then `after`. Devices answer as late as the model of their profile has it, N times
slower; times are divided by N. The cache filter keeps its copies in a file that is not emulated: its hits cost
nothing. `host` is what this machine adds: the plugin's own lateness, and what loop device, FUSE and NBD take besides,
as shares of the time that reads take; beyond 10 % together the run fails.

`kill` ends the server with SIGKILL while pgbench inserts, starts all of it again on the same disk and cache, and counts:
no client may have been told of more rows than are there, and nothing that is held may differ from the backend.

Needs root, FUSE, loop devices and PostgreSQL 16 or later. At the end everything is unmounted and stopped, and the disk
and the cache are removed; what `prepare` made stays, and so do the log and the transactions' times.

Leaves to others: the cache and the emulated devices (the plugin), and what the figures mean (docs/cache-daemon.md).
"""
import argparse, json, os, pathlib, shutil, signal, statistics, subprocess, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from bench_cache.stage import Stage, begin, forget_transactions, mounts_of_our_own, serve, sh  # noqa: E402

SELECT = """\\set r random_zipfian(1, 100000 * :scale, 1.1)
\\set aid permute(:r, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
"""
UPDATE = """\\set r random_zipfian(1, 100000 * :scale, 1.1)
\\set aid permute(:r, 100000 * :scale)
\\set delta random(-5000, 5000)
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
"""
SETTINGS = """
listen_addresses = ''
shared_buffers = 16MB
debug_io_direct = data
checkpoint_timeout = 1h
max_wal_size = 4GB
autovacuum = off
jit = off
max_parallel_workers_per_gather = 0
"""


def prepare(options):
    os.makedirs(options.work, exist_ok=True)
    os.chmod(options.work, 0o777)
    with Stage(options.work, options.postgres) as stage:
        image = f"{stage.work}/template"
        with open(image, "wb") as file:
            file.truncate((options.scale * 24 + 400) << 20)
        stage.mount(image, make=True)
        shutil.chown(stage.mnt, "postgres")
        stage.as_user(f"{stage.bin}/initdb", "-U", "postgres", "-A", "trust", "-D", f"{stage.mnt}/data")
        with open(f"{stage.mnt}/data/postgresql.conf", "a") as conf:
            conf.write(SETTINGS)
        stage.start()
        sh(f"{stage.bin}/pgbench", "-q", "-i", "-s", options.scale, "-h", stage.work, "-U", "postgres", "-d", "postgres")
        stage.psql("vacuum analyze")
        stage.psql("checkpoint")


class Watch(threading.Thread):
    """Samples what single requests met: those of 16 KiB and less are the database's, larger ones are scans."""

    def __init__(self, ask):
        super().__init__(daemon=True)
        self.ask, self.seen, self.ended = ask, {}, threading.Event()

    def run(self):
        while not self.ended.wait(0.5):
            try:
                lines = json.loads(self.ask("why", "--last", "4096", "--json"))["lines"]
            except (ValueError, KeyError, RuntimeError, subprocess.SubprocessError):
                continue
            now = time.time()
            for line in lines:
                if line["asked"] == "read":
                    key = (line["at_ns"], line["offset"])
                    self.seen.setdefault(key, (now, line["len"], line["held_bytes"], line["fast_bytes"]))

    def shares(self, start, end):
        told = {}
        for name, fits in [("small", lambda n: n <= 16384), ("large", lambda n: n > 16384)]:
            there = [(n, held, fast) for at, n, held, fast in self.seen.values() if start <= at < end and fits(n)]
            total = sum(n for n, _, _ in there) or 1
            told[name] = (len(there), 100 * sum(h for _, h, _ in there) / total, 100 * sum(f for _, _, f in there) / total)
        return told


def transactions(stage):
    """When each ended, and how long it took in us."""
    for path in pathlib.Path(stage.work).glob("tx.*"):
        for line in path.read_text().splitlines():
            fields = line.split()
            if len(fields) >= 6:
                yield int(fields[4]) + int(fields[5]) / 1e6, int(fields[2]), int(fields[3])


def kill(options):
    options.emulate = "-/-@1"
    with Stage(options.work, options.postgres) as outer:
        begin(outer)
        acknowledged = 0
        script = f"{outer.work}/insert.sql"
        pathlib.Path(script).write_text("INSERT INTO told VALUES (:client_id);\n")
        for number in range(options.rounds + 1):
            with Stage(options.work, options.postgres) as stage:
                server = ["none", "aware", "balance"][number % 3]
                nbdkit = serve(stage, options, server, fresh=number == 0)
                stage.psql("create table if not exists told (client int)")
                before = int(stage.psql("select count(*) from told"))
                if before < acknowledged:
                    sys.exit(f"{acknowledged} rows were acknowledged, {before} are there")
                verified = json.loads(sh(options.longshore, "cache", "verify", f"{stage.work}/socket", "--json"))
                status = json.loads(sh(options.longshore, "cache", "status", f"{stage.work}/socket", "--json"))
                print(f"  start {number + 1}, {server}: {acknowledged} rows acknowledged, {before} there; "
                      f"{verified['compared']} lines compared, {verified['differing']} differ; "
                      f"{status['cache_state']['durable_bytes'] >> 20} MiB durable, {status['counters']['damaged_reads']} damaged")
                if verified["differing"]:
                    sys.exit("a line that is held differs from the backend")
                if number == options.rounds:
                    break
                forget_transactions(stage)
                bench = stage.spawn(f"{stage.bin}/pgbench", "-n", "-c", "8", "-j", "2", "-T", 600, "-l", "--log-prefix=tx",
                                    "-h", stage.work, "-U", "postgres", "-d", "postgres", "-f", script)
                stage.undo[-1] = lambda: bench.wait(60)
                time.sleep(options.seconds)
                nbdkit.kill()
                # Its disk is gone: PostgreSQL fails, and pgbench with it.
                nbdkit.wait()
                time.sleep(2)
                subprocess.run(["setpriv", f"--reuid={stage.user.pw_uid}", "kill", "-9", pathlib.Path(
                    f"{stage.mnt}/data/postmaster.pid").read_text().split()[0]])
                bench.terminate()
                bench.wait(60)
                acknowledged = before + sum(1 for _ in transactions(stage))
        print(f"{options.rounds} kills: no acknowledged row was lost")


def scans(stage, seconds):
    """Two clients that scan the table all the time."""
    script = "set enable_indexscan=off; set enable_bitmapscan=off; set synchronize_seqscans=off"
    there = [subprocess.Popen([f"{stage.bin}/psql", "-Xq", "-h", stage.work, "-U", "postgres", "-d", "postgres", "-c", script,
                               *["-c", "select sum(abalance) from pgbench_accounts"] * 1000],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    time.sleep(seconds)
    for scan in there:
        scan.kill()
        scan.wait()


def backup(stage, options):
    source = f"postgres:///postgres?host={stage.work}&user=postgres"
    begun = subprocess.Popen([options.longshore, "backup", source, "--to", "nul:"], cwd=stage.work, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env={**os.environ, "LONGSHORE_CATALOG": "none"})
    try:
        told, _ = begun.communicate(timeout=600)
    except BaseException:
        begun.kill()
        begun.wait()
        raise
    if begun.returncode:
        sys.exit(told)


def run(options):
    stretch = int(options.emulate.split("@")[1])
    with Stage(options.work, options.postgres) as stage:
        work = stage.work
        begin(stage)
        socket = f"{work}/socket"
        ours = options.server not in ("bare", "filter")
        # The data is not needed: PostgreSQL need not write it at the end.
        serve(stage, options, options.server, end=signal.SIGQUIT)
        scripts = []
        for name, text, weight in [("select", SELECT, 4), ("update", UPDATE, 1)]:
            pathlib.Path(f"{work}/{name}.sql").write_text(text)
            scripts += ["-f", f"{work}/{name}.sql@{weight}"]
        bench = stage.spawn(f"{stage.bin}/pgbench", "-n", "-c", options.clients, "-j", "2", "-T", 86400, "-l", "--log-prefix=tx",
                            "-s", options.scale, "-h", work, "-U", "postgres", "-d", "postgres", *scripts,
                            env={**os.environ, "PGOPTIONS": "-c synchronous_commit=off"})
        stage.undo[-1] = lambda: (bench.kill(), bench.wait())

        def ask(*words):
            return sh(options.longshore, "cache", words[0], socket, *words[1:], timeout=20)

        def counters():
            return json.loads(ask("status", "--json"))["counters"]

        watch = Watch(ask) if ours else None
        if watch:
            watch.start()
        time.sleep(options.warm)
        seen = (stage.read_ms(), counters()["read_latency"]["sum_us"])
        phases = []

        def phase(name, what):
            start = time.time()
            what()
            phases.append((name, start, time.time()))

        phase("before", lambda: time.sleep(options.seconds))
        if options.load != "none":
            # A backup begins with a checkpoint, too, which then has little to write.
            phase("checkp.", lambda: stage.psql("checkpoint"))
            phase("during", (lambda: backup(stage, options)) if options.load == "backup"
                  else (lambda: scans(stage, options.seconds)))
            phase("after", lambda: time.sleep(options.seconds))
        if bench.poll() is not None:
            sys.exit(f"pgbench ended: see {work}/log")
        counted = counters()
        through_chain = stage.read_ms() - seen[0]
        in_engine = (counted["read_latency"]["sum_us"] - seen[1]) * stretch / 1000
        if watch:
            watch.ended.set()
            watch.join()
        all_of = sorted(transactions(stage))
        print(f"{options.server}, {options.emulate}, cache {options.cache}, scale {options.scale}, "
              f"{options.clients} clients, load {options.load}; times divided by {stretch}")
        print("  phase       s    tx/s   mean us   p99 us   select mean    p99   "
              + ("small reads: n, held %, fast %    large reads" if watch else ""))
        for name, start, end in phases:
            both = sorted(us for at, us, _ in all_of if start <= at < end)
            selects = sorted(us for at, us, script in all_of if start <= at < end and script == 0)
            if not selects:
                print(f"  {name:7} no transaction")
                continue
            rate = len(both) / (end - start) * stretch
            mean, p99 = (lambda took: statistics.mean(took) / stretch), (lambda took: took[int(len(took) * 0.99)] / stretch)
            shares = watch.shares(start, end) if watch else {}
            told = "   ".join(f"{n:6d} {held:5.1f} {fast:5.1f}" for n, held, fast in shares.values())
            print(f"  {name:7} {end - start:5.1f} {rate:7.0f}  {mean(both):8.0f} {p99(both):8.0f}      {mean(selects):8.0f} "
                  f"{p99(selects):6.0f}   {told}")
        if watch:
            print("  " + ", ".join(f"{name} {counted[name]}" for name in
                                   ["hits", "read_runs", "fills", "fills_dropped", "fills_refused", "damaged"]))
    late = [line for line in open(f"{work}/log") if "host_percent" in line]
    if not late:
        sys.exit("no word of the emulator's lateness")
    late = float(late[-1].split("host_percent=")[1].split()[0].strip('"'))
    # The filter's own hits and waits cannot be separated from the path to it.
    chain = 100 * max(through_chain - in_engine, 0) / max(through_chain, 1) if options.server != "filter" else 0
    way = f", {chain:.1f} % of the time of reads in loop device, FUSE and NBD" if options.server != "filter" else ""
    print(f"  host: {late:.1f} % of the emulated devices' time{way}")
    if late + chain > 10:
        sys.exit("the host took more than a tenth: stretch further (--emulate FAST/SLOW@N)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run", "kill"])
    parser.add_argument("work")
    parser.add_argument("server", nargs="?", default="aware")
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--longshore")
    parser.add_argument("--emulate", default="ec2-local-nvme/ebs-gp3-max@20")
    parser.add_argument("--cache", default="48M")
    parser.add_argument("--scale", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--warm", type=int, default=90)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", choices=["backup", "scans", "none"], default="backup")
    options = parser.parse_args()
    options.postgres = os.path.abspath(options.postgres)
    options.longshore = options.longshore and os.path.abspath(options.longshore)
    mounts_of_our_own()
    {"prepare": prepare, "run": run, "kill": kill}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
