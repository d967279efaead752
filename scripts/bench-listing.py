#!/usr/bin/env python3
"""Goal: how long `longshore info` takes over many backups in an object store, near and 20 ms away.
Method: a small SQLite database is backed up to directories, and the stripes are put into versitygw on this machine, one
prefix for each directory, so that no backup waits for a list of the others. `info` then runs over loopback, and then
over the way of `bench_postgres/distance.py`. The requests are those that `--verbose` prints. The store and the way work
on the same CPUs as the program.

    scripts/bench-listing.py [--longshore PROGRAM]... [--sets N] [--prefixes N] [--latency-ms N] [-n ROUNDS]

With several programs, each runs over the same backups. Needs what `make setup` installs.
"""
import argparse
import json
import os
import re
import resource
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = os.path.join(HERE, "..", ".work")
UPLOAD = """
import json, sys, boto3
from concurrent.futures import ThreadPoolExecutor
store = boto3.client("s3", endpoint_url=sys.argv[1])
put = lambda pair: store.put_object(Bucket="bench", Key=pair[1], Body=open(pair[0], "rb").read())
list(ThreadPoolExecutor(4).map(put, json.load(sys.stdin)))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("versitygw does not start")


def made(program, work, sets, prefixes):
    """The stripes of so many backups, with their names in the bucket."""
    database = sqlite3.connect(f"{work}/app.db")
    database.execute("create table t(a)")
    database.executemany("insert into t values (?)", [(os.urandom(4000),) for _ in range(30)])
    database.commit()
    directories = [f"{work}/d{n}" for n in range(prefixes)]
    for directory in directories:
        os.mkdir(directory)
    with open(f"{work}/longshore.toml", "w") as config:
        config.write(f"[database.sales]\nurl = \"sqlite:{work}/app.db\"\ntarget = \"store\"\n"
                     f"[target.local]\ndirectories = {json.dumps(directories)}\n"
                     f"[target.store]\nbuckets = {json.dumps([f's3://bench/p{n}' for n in range(prefixes)])}\n")
    pairs = []
    for _ in range(sets):
        subprocess.run([program, "--quiet", "--catalog", "none", "--config", f"{work}/longshore.toml", "backup", "sales",
                        "--target", "local", "--algorithm", "none"], check=True, stdout=subprocess.DEVNULL)
        for n, directory in enumerate(directories):
            label, = (name for name in os.listdir(f"{directory}/sales") if not name.startswith("."))
            os.makedirs(f"{work}/all/{n}", exist_ok=True)
            shutil.move(f"{directory}/sales/{label}", f"{work}/all/{n}/{label}")
            name = f"family-{n + 1}.bak"
            pairs.append((f"{work}/all/{n}/{label}/{name}", f"p{n}/sales/{label}/{name}"))
    return pairs


def timed(program, work, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    ran = subprocess.run([program, "--verbose", "--catalog", "none", "--config", f"{work}/longshore.toml", "info", "sales"],
                         check=True, capture_output=True, text=True, env=environment)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    requests = int(re.search(r"(\d+) requests", ran.stderr).group(1))
    shown = int(re.search(r"in all\s+(\d+) backups", ran.stdout).group(1))
    return seconds, cpu, requests, shown


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--longshore", action="append")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--prefixes", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("-n", type=int, default=3)
    options = parser.parse_args()
    programs = [os.path.abspath(path) for path in options.longshore or ["target/release/longshore"]]
    work, port, running = tempfile.mkdtemp(), free_port(), []
    try:
        os.makedirs(f"{work}/store/bench")
        environment = dict(os.environ, HOME=work, AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench-secret",
                           AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", LONGSHORE_ALLOW_HTTP="1")
        running.append(subprocess.Popen(
            [f"{WORK}/buckets/versitygw", "--port", f"127.0.0.1:{port}", "posix", f"{work}/store"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, ROOT_ACCESS_KEY="bench", ROOT_SECRET_KEY="bench-secret")))
        wait_for(port)
        way = subprocess.Popen([sys.executable, f"{HERE}/bench_postgres/distance.py", str(port), str(options.latency_ms)],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        running.append(way)
        ports = dict(near=port, far=int(way.stdout.readline()))
        pairs = made(programs[0], work, options.sets, options.prefixes)
        subprocess.run([f"{WORK}/venv/bin/python3", "-c", UPLOAD, f"http://127.0.0.1:{port}"], input=json.dumps(pairs),
                       check=True, text=True, env=environment)
        print(f"{len(pairs)} stripes of {os.path.getsize(pairs[0][0])} bytes, {options.latency_ms:g} ms, load {os.getloadavg()[0]:.1f}")
        for program in programs:
            for name in ("near", "far"):
                there = dict(environment, AWS_ENDPOINT_URL=f"http://127.0.0.1:{ports[name]}")
                runs = [timed(program, work, there) for _ in range(options.n)]
                seconds, cpu = ([run[i] for run in runs] for i in (0, 1))
                assert {run[3] for run in runs} == {options.sets}
                print(f"{program} {name}: {statistics.median(seconds):.2f} s [{min(seconds):.2f}-{max(seconds):.2f}], "
                      f"{statistics.median(cpu):.2f} CPU-s, {runs[0][2]} requests")
    finally:
        for process in running:
            process.terminate()
            process.wait()
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
