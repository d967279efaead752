#!/usr/bin/env python3
"""Compares hits of the cache with nbdkit's own file plugin and cache filter: requests/s, and CPU seconds of each server.

usage: bench-cache.py PLUGIN DIRECTORY [--seconds 5] [--rounds 3] [--direct] [--create PROGRAM]

All files are on one disk and read the same way (through the page cache, or past it with --direct); all content is
held. fio reads 4 KiB at random; rounds alternate between the servers, medians are printed. Needs nbdkit, fio, nbdcopy.
"""
import argparse, json, os, pathlib, shutil, signal, statistics, subprocess, sys, time

MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Server:
    def __init__(self, work, name, arguments):
        self.name, self.socket = name, f"{work}/{name}.sock"
        command = ["nbdkit", "--foreground", "--threads", "16", "--unix", self.socket, *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(200):
            if os.path.exists(self.socket):
                break
            time.sleep(0.05)
        self.uri = f"nbd+unix:///?socket={self.socket}"

    def warm(self):
        for _ in range(2):
            subprocess.run(["nbdcopy", self.uri, "null:"], check=True)

    def measure(self, depth, seconds):
        before = cpu_seconds(self.process.pid)
        fio = ["fio", "--name=hits", "--ioengine=nbd", "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based",
               f"--runtime={seconds}", "--size=128M", "--output-format=json", f"--uri={self.uri}"]
        told = subprocess.run(fio, check=True, capture_output=True, text=True).stdout
        read = json.loads(told[told.index("{"):])["jobs"][0]["read"]
        cpu = cpu_seconds(self.process.pid) - before
        return read["iops"], cpu / read["total_ios"] * 1e6

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plugin")
    parser.add_argument("work")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--create", default="longshore", help="the program that makes the cache")
    options = parser.parse_args()
    work = os.path.abspath(options.work)
    os.makedirs(work, exist_ok=True)
    servers = []
    try:
        backend, cache = f"{work}/backend", f"{work}/cache"
        with open(backend, "wb") as file:
            for _ in range(128):
                file.write(os.urandom(MIB))
        subprocess.run([options.create, "cache", "create", cache, "--size", "200M", "--slot", "16K"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "LONGSHORE_CATALOG": "none"})
        os.environ["TMPDIR"] = work
        plain = [f"file={backend}"] + (["cache=none"] if options.direct else [])
        servers = [
            Server(work, "file", ["file", *plain]),
            Server(work, "cache-filter", ["--filter=cache", "file", *plain, "cache-on-read=true"]),
            Server(work, "longshore", [os.path.abspath(options.plugin), f"backend={backend}", f"cache={cache}",
                                       "policy=none", f"buffered={'false' if options.direct else 'true'}"]),
        ]
        for server in servers:
            server.warm()
        print(f"{'server':14} {'depth':>5} {'IOPS':>8} {'spread':>13} {'server CPU us/request':>22}")
        for depth in [1, 16]:
            found = {server.name: [] for server in servers}
            for _ in range(options.rounds):
                for server in servers:
                    found[server.name].append(server.measure(depth, options.seconds))
            for name, rounds in found.items():
                rates = sorted(rate for rate, _ in rounds)
                cpu = statistics.median(cpu for _, cpu in rounds)
                spread = f"{rates[0]:.0f}-{rates[-1]:.0f}"
                print(f"{name:14} {depth:5} {statistics.median(rates):8.0f} {spread:>13} {cpu:22.1f}")
    finally:
        for server in servers:
            server.end()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
