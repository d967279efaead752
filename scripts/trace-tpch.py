#!/usr/bin/env python3
"""Records what PostgreSQL reads for each of TPC-H's 22 questions, by `longshore cache trace`.

usage: trace-tpch.py prepare WORK --postgres BIN
       trace-tpch.py record WORK --postgres BIN --plugin SO --longshore PROGRAM --to FILE
              [--traces DIR] [--emulate -/samsung-970pro@8] [--queries 1,13] [--read-ahead 1024]

SO: the plugin that can emulate devices, liblongshore_lab_nbd.so.

Method: the tables of TPC-H at scale 1 (`bench_postgres/tpch.sql`, `tpch/data.sql`), with the indexes of its joins, on nbdkit,
nbdfuse, a loop device and ext4. For each question the file system is mounted and the server started, so that nothing is in a
cache; the planner is told of a fifth of the data as memory, which is what the published machine had; read-ahead is 1 MiB, because a server that scans reads in large pieces. The disk answers as late as the model of its profile
has it, N times slower, so that this machine's own latency counts for little; the CPU is not slower, so reading ahead is less
deep than on a machine of that speed. The page cache is not limited: what is read twice comes from the disk once. Recorded are the requests as the server of the
disk gets them, in their order, each with the number that were in flight, and the CPU time of the process that answers the question.
No question uses more than one process.

FILE has a line for each question: `Q1 CPU_S`, then its requests in their order, `[W]SECTORS[+OTHERS][*COUNT]` each: W before a
write, the length in units of 512 bytes, how many others were in flight if any, and how many such requests there are in a row if
not one. Places and latencies are not in it: places are spread over the device, and latencies are this machine's. `--traces DIR`
keeps everything, for `longshore cache simulate`.

Needs root, FUSE, loop devices and PostgreSQL 15 or later. At the end everything is unmounted and stopped; what `prepare` made stays.

Leaves to others: the meaning of the figures (`longshore lab figure S4.F1`).
"""
import argparse, itertools, os, pathlib, shutil, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from bench_cache.stage import Stage, begin, mounts_of_our_own, serve, sh  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = """
listen_addresses = ''
shared_buffers = 128MB
work_mem = 64MB
effective_cache_size = 512MB
max_wal_size = 4GB
checkpoint_timeout = 1h
autovacuum = off
jit = off
max_parallel_workers_per_gather = 0
effective_io_concurrency = 16
"""
IMAGE_BYTES = 6 << 30


def questions():
    """The text of each, by its name."""
    parts = pathlib.Path(f"{HERE}/tpch/queries.sql").read_text().split("\n-- Q")[1:]
    return {int(part.split(":")[0]): part.split("\n", 1)[1].strip() for part in parts}


def prepare(options):
    os.makedirs(options.work, exist_ok=True)
    os.chmod(options.work, 0o777)
    with Stage(options.work, options.postgres) as stage:
        image = f"{stage.work}/template"
        with open(image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        stage.mount(image, make=True)
        shutil.chown(stage.mnt, "postgres")
        # Text of one byte a character, of which a part is found at once.
        stage.as_user(f"{stage.bin}/initdb", "-U", "postgres", "-A", "trust", "-E", "SQL_ASCII", "--locale=C", "-D", f"{stage.mnt}/data")
        with open(f"{stage.mnt}/data/postgresql.conf", "a") as conf:
            conf.write(SETTINGS)
        stage.start()
        for script in ("bench_postgres/tpch.sql", "tpch/data.sql"):
            sh(f"{stage.bin}/psql", "-Xqv", "ON_ERROR_STOP=1", "-h", stage.work, "-U", "postgres", "-d", "postgres", "-f",
               f"{HERE}/{script}")
        stage.psql("vacuum analyze")
        stage.psql("checkpoint")


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(stage, text):
    """CPU and elapsed seconds of the answer."""
    psql = subprocess.Popen([f"{stage.bin}/psql", "-XAtqv", "ON_ERROR_STOP=1", "-h", stage.work, "-U", "postgres", "-d", "postgres"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(words):
        psql.stdin.write(words + "\n")
        psql.stdin.flush()

    send("select pg_backend_pid();")
    pid = int(psql.stdout.readline())
    before, began = cpu_s(pid), time.monotonic()
    send(text + "\n\\echo that was all")
    rows = 0
    while True:
        line = psql.stdout.readline()
        if not line:
            sys.exit("a question failed: see what psql says")
        if line.strip() == "that was all":
            break
        rows += 1
    took = cpu_s(pid) - before, time.monotonic() - began
    psql.stdin.close()
    psql.wait(60)
    return *took, rows


def runs(path):
    """The requests of a trace in their order: kind, length, how many others were in flight, how many in a row."""
    with open(path) as file:
        next(file)
        # A trace has requests in the order in which they ended.
        lines = sorted((line.rstrip("\n").split(",") for line in file), key=lambda line: float(line[0]))
    ends, found = [], []
    for at, op, _, length, took in lines:
        at = float(at)
        ends = [end for end in ends if end > at]
        if op in "RW" and int(length):
            found.append((op, int(length) // 512, len(ends)))
        ends.append(at + float(took or 0))
    return [(*same, len(list(group))) for same, group in itertools.groupby(found)]


def written(op, length, others, count):
    return ("W" if op == "W" else "") + str(length) + (f"+{others}" if others else "") + (f"*{count}" if count > 1 else "")


def record(options):
    asked = questions()
    chosen = [int(number) for number in options.queries.split(",")] if options.queries else sorted(asked)
    with Stage(options.work, options.postgres) as chain, open(options.to, "x") as out:
        begin(chain)
        # The chain as it is served; mounted and started again for each question.
        serve(chain, options, "bare", settle=False)
        version = None
        for number in chosen:
            with Stage(options.work, options.postgres) as stage, tempfile.TemporaryDirectory() as scratch:
                stage.mount(f"{stage.work}/disk/nbd")
                queue = f"/sys/block/{os.path.basename(stage.loop)}/queue/read_ahead_kb"
                pathlib.Path(queue).write_text(str(options.read_ahead))
                stage.start()
                version = version or stage.psql("show server_version")
                trace = f"{scratch}/trace"
                tracing = stage.spawn(options.longshore, "cache", "trace", f"{stage.work}/socket", "--to", trace, "--seconds", "3600",
                                      end=signal.SIGINT)
                while not os.path.exists(trace):
                    if tracing.poll() is not None:
                        sys.exit(f"no trace: see {stage.work}/log")
                    time.sleep(0.05)
                time.sleep(0.5)
                cpu, elapsed, rows = ask(stage, asked[number])
                stage.undo.pop()()
                all_of = runs(trace)
                print(f"Q{number} {cpu:.2f}", *(written(*run) for run in all_of), file=out)
                out.flush()
                if options.traces:
                    shutil.copy(trace, f"{options.traces}/q{number}.csv")
                count = sum(run[3] for run in all_of)
                total = sum(length * count for op, length, _, count in all_of if op == "R") * 512
                print(f"Q{number}: {rows} rows, {elapsed:.1f} s, CPU {cpu:.1f} s, {count} requests, {total / 1e6:.0f} MB read",
                      flush=True)
        print(f"PostgreSQL {version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "record"])
    parser.add_argument("work")
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--longshore")
    parser.add_argument("--to")
    parser.add_argument("--traces")
    parser.add_argument("--emulate", default="-/samsung-970pro@8")
    parser.add_argument("--queries", default="")
    parser.add_argument("--read-ahead", type=int, default=1024)
    options = parser.parse_args()
    options.postgres = os.path.abspath(options.postgres)
    options.longshore = options.longshore and os.path.abspath(options.longshore)
    mounts_of_our_own()
    {"prepare": prepare, "record": record}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
