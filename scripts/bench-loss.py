#!/usr/bin/env python3
"""Goal: what real packet loss on the way to an object store costs a backup and its restore, and that neither fails.
Method: versitygw runs in a network namespace of its own. The packets between it and the program go through
`bench_postgres/way.py`, which delays each and drops some, so the kernel's TCP on both ends retransmits. A SQLite database is
backed up to two stripes, restored and compared byte by byte, in turn without the way, with the delay, and with the loss.

    scripts/bench-loss.py [--longshore PROGRAM] [--mib N] [--latency-ms N] [--loss SHARE] [--congestion NAME]... [-n ROUNDS]

Half of each row is random, so half of the database's bytes are sent. The store, the way and the program use the same CPUs.
Run it as root; it needs what `make setup` installs.
"""
import argparse
import os
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = os.path.abspath(os.path.join(HERE, "..", ".work"))
NAMESPACE = "longshore-far"
KEY, SECRET, BUCKET, PORT = "bench-key", "bench-secret", "bench", 7070


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longshore", default=os.path.join(HERE, "..", "target/release/longshore"))
    parser.add_argument("--mib", type=int, default=128, help="size of the database")
    parser.add_argument("--latency-ms", type=float, default=20, help="for a packet and its answer")
    parser.add_argument("--loss", type=float, default=0.01, help="share of the packets")
    parser.add_argument("--congestion", action="append", help="the kernel's algorithm where packets are lost; default: cubic")
    parser.add_argument("-n", "--rounds", type=int, default=3)
    return parser.parse_args()


def database(path, mib):
    connection = sqlite3.connect(path)
    connection.execute("create table t (a blob)")
    rows = mib * 256
    connection.executemany("insert into t values (?)", ((os.urandom(1900) + bytes(1900),) for _ in range(rows)))
    connection.commit()
    connection.close()


class Way:
    """A store at the end of a way. Without a way it is on the loopback."""

    def __init__(self, work, latency_ms=None, loss=0.0, congestion="cubic"):
        self.carrier, where, address = None, [], "127.0.0.1"
        if latency_ms is not None:
            program = os.path.join(HERE, "bench_postgres", "way.py")
            argv = [sys.executable, program, NAMESPACE, str(latency_ms / 2), str(loss), congestion]
            self.carrier = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            if self.carrier.stdout.readline() != "ready\n":
                raise SystemExit("the way cannot be made: is this root, and is /dev/net/tun there?")
            where, address = ["ip", "netns", "exec", NAMESPACE], "10.77.0.2"
        root = f"{work}/store"
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(f"{root}/{BUCKET}")
        log = open(f"{work}/store.log", "w")
        self.store = subprocess.Popen([*where, f"{WORK}/buckets/versitygw", "--port", f"{address}:{PORT}", "posix", root],
                                      stdout=log, stderr=log, env=dict(os.environ, ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET))
        self.endpoint = f"http://{address}:{PORT}"
        for _ in range(100):
            try:
                return socket.create_connection((address, PORT), 5).close()
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"versitygw does not start: see {work}/store.log")

    def end(self):
        """What the way says of its packets."""
        self.store.terminate()
        self.store.wait()
        if self.carrier is None:
            return ""
        self.carrier.send_signal(signal.SIGTERM)
        return self.carrier.communicate()[0].strip()


def timed(argv, environment, cwd):
    began = time.monotonic()
    done = subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr}")
    return took


def main():
    wanted = options()
    program, work = os.path.abspath(wanted.longshore), f"{WORK}/bench-loss"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    database(f"{work}/app.db", wanted.mib)
    delay = f"{wanted.latency_ms:g} ms"
    ways = {"none": {}, delay: dict(latency_ms=wanted.latency_ms)}
    for congestion in wanted.congestion or ["cubic"]:
        name = f"{delay}, {wanted.loss:.1%} lost, {congestion}"
        ways[name] = dict(latency_ms=wanted.latency_ms, loss=wanted.loss, congestion=congestion)
    found = {name: [] for name in ways}
    stripes = [f"s3://{BUCKET}/{n}.bak" for n in (1, 2)]
    for _ in range(wanted.rounds):
        for name, settings in ways.items():
            way = Way(work, **settings)
            environment = dict(os.environ, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1",
                               AWS_ENDPOINT_URL=way.endpoint, LONGSHORE_ALLOW_HTTP="1", NO_PROXY="*")
            common = ["--catalog", "none", "--quiet"]
            to = [word for stripe in stripes for word in ("--to", stripe)]
            backup = timed([program, "backup", "app.db", *to, *common], environment, work)
            restore = timed([program, "restore", *stripes, "--to", "restored", *common], environment, work)
            subprocess.run(["cmp", f"{work}/app.db", f"{work}/restored/app.db"], check=True)
            shutil.rmtree(f"{work}/restored")
            said = way.end()
            found[name].append((backup, restore))
            print(f"{name}: backup {backup:.2f} s, restore {restore:.2f} s; {said}", flush=True)
    print("| way | backup s | restore s |\n|---|---|---|")
    for name, rounds in found.items():
        shown = [f"{statistics.median(one):.2f} [{min(one):.2f}-{max(one):.2f}]" for one in zip(*rounds)]
        print(f"| {name} | {shown[0]} | {shown[1]} |")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
