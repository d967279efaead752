#!/usr/bin/env python3
"""Goal: say what encryption costs, what parity stripes cost, how fast a restore is without two of its stripes, and how a
database that encrypts itself is backed up.
Method: commands in turn, A B B A A B ..., after one uncounted run of each; wall and CPU time of each finished process by the
kernel's account; bytes by the lengths of the stripes. What is restored is compared with the source byte by byte.

    scripts/bench-sealed.py --longshore PROGRAM [--work DIR] [--size SIZE] [-n PAIRS] [--rows NAME[,NAME...]]
        [--algorithms NAME[,NAME...]]

All files are in DIR (/dev/shm/longshore-sealed): in memory, so that a disk hides no cost. Four times SIZE is needed.
The rows: encryption, parity, restore, data. `data` needs Python's `cryptography`: the pages of a database, each encrypted with
AES-256 in counter mode, stand for a database that encrypts itself.
"""
import argparse
import filecmp
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ALGORITHMS = ("QAT_DEFLATE", "ZSTD", "NONE")
DATA, PARITY = 8, 2
PAGE = 4096
# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
T = {5: 2.571, 9: 2.262, 14: 2.145, 19: 2.093, 29: 2.045}


class Bench:
    def __init__(self, asked):
        self.program, self.work, self.pairs = asked.longshore, asked.work, max(asked.n, 6)
        self.algorithms = asked.algorithms.split(",")
        self.source = self.work / "source.db"
        self.stripes = self.work / "stripes"
        self.identity = self.work / "identity"
        self.work.mkdir(parents=True, exist_ok=True)
        self.call("lab", "sample", "tprocc", str(self.source), "--size", asked.size)
        if not self.identity.exists():
            self.call("key", "new", str(self.identity))
        told = self.call("key", "recipient", str(self.identity)).split()
        self.recipient = next(word for word in told if word.startswith("age1"))
        self.len = self.source.stat().st_size

    def call(self, *words):
        done = subprocess.run([self.program, "--catalog", "none", *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"exit code {done.returncode}: {' '.join(words)}\n{done.stderr}")
        return done.stdout

    def timed(self, words, ends=(0,)):
        began = time.monotonic()
        command = [self.program, "--catalog", "none", "--quiet", *words]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in ends:
            sys.exit(f"exit code {child.returncode}: {' '.join(words)}")
        return time.monotonic() - began, used.ru_utime + used.ru_stime

    def emptied(self):
        shutil.rmtree(self.stripes, ignore_errors=True)
        self.stripes.mkdir()

    def backup(self, *words, source=None, count=1):
        """Wall and CPU seconds, and the bytes of the stripes."""
        self.emptied()
        to = [word for n in range(1, count + 1) for word in ("--to", str(self.stripes / f"{n}.lsm"))]
        wall, cpu = self.timed(["backup", str(source or self.source), *to, *words])
        return wall, cpu, sum(file.stat().st_size for file in self.stripes.iterdir())

    def in_turn(self, a, b):
        a(), b()
        taken = []
        for number in range(self.pairs):
            order = ((0, a), (1, b)) if number % 2 == 0 else ((1, b), (0, a))
            results = {which: do() for which, do in order}
            taken.append((results[0], results[1]))
        return taken

    def encryption(self):
        title("Encryption", ["algorithm", "stored GB", "plain s", "encrypted s", "CPU-s for each GB stored", "wall", "CPU"])
        for algorithm in self.algorithms:
            taken = self.in_turn(
                lambda: self.backup("--algorithm", algorithm),
                lambda: self.backup("--algorithm", algorithm, "--encrypt-to", self.recipient),
            )
            stored = taken[0][1][2] / 1e9
            more = [(b[1] - a[1]) / stored for a, b in taken]
            row(algorithm, f"{stored:.3f}", spread([a[0] for a, _ in taken]), spread([b[0] for _, b in taken]),
                mean(more), shares(taken, 0), shares(taken, 1))

    def parity(self):
        title(f"Parity, {DATA} + {PARITY} stripes beside {DATA}",
              ["algorithm", "data GB", "without s", "with s", "CPU-s for each GB of data", "bytes", "wall", "CPU"])
        for algorithm in self.algorithms:
            taken = self.in_turn(
                lambda: self.backup("--algorithm", algorithm, count=DATA),
                lambda: self.backup("--algorithm", algorithm, "--parity", str(PARITY), count=DATA + PARITY),
            )
            stored = taken[0][0][2] / 1e9
            more = [(b[1] - a[1]) / stored for a, b in taken]
            size = [100 * (b[2] / a[2] - 1) for a, b in taken]
            row(algorithm, f"{stored:.3f}", spread([a[0] for a, _ in taken]), spread([b[0] for _, b in taken]),
                mean(more), f"+{statistics.median(size):.1f} %", shares(taken, 0), shares(taken, 1))

    def restore(self):
        title(f"Restore of {DATA} + {PARITY} stripes, whole and without {PARITY}",
              ["algorithm", "whole s", "without s", "share of the whole one's speed", "CPU"])
        to = self.work / "restored"
        for algorithm in self.algorithms:
            self.backup("--algorithm", algorithm, "--parity", str(PARITY), count=DATA + PARITY)
            all_of_them = sorted(str(file) for file in self.stripes.iterdir())
            lost = {str(self.stripes / f"{n}.lsm") for n in range(1, PARITY + 1)}
            some = [file for file in all_of_them if file not in lost]

            def one(stripes):
                shutil.rmtree(to, ignore_errors=True)
                # 5 says that the set is DEGRADED.
                taken = self.timed(["restore", *stripes, "--to", str(to)], (5,) if len(stripes) < DATA + PARITY else (0,))
                files = [file for file in to.rglob("*") if file.is_file()]
                if len(files) != 1 or not filecmp.cmp(files[0], self.source, shallow=False):
                    sys.exit("what was restored is not the source")
                return taken

            taken = self.in_turn(lambda: one(all_of_them), lambda: one(some))
            speed = [a[0] / b[0] for a, b in taken]
            row(algorithm, spread([a[0] for a, _ in taken]), spread([b[0] for _, b in taken]), spread(speed),
                shares(taken, 1))
            shutil.rmtree(to, ignore_errors=True)

    def data(self):
        title("A database that encrypts itself", ["algorithm", "data", "backup s", "CPU s", "stored, share of the source"])
        sealed = self.work / "sealed.db"
        seal(self.source, sealed)
        for algorithm in self.algorithms:
            taken = self.in_turn(
                lambda: self.backup("--algorithm", algorithm),
                lambda: self.backup("--algorithm", algorithm, source=f"files:{sealed}"),
            )
            for which, name in enumerate(("plain", "encrypted pages")):
                one = [pair[which] for pair in taken]
                row(algorithm, name, spread([o[0] for o in one]), spread([o[1] for o in one]),
                    f"{100 * one[0][2] / self.len:.1f} %")
        sealed.unlink()


def seal(source, to):
    """Encrypts each page under a key, with its number as the counter's beginning."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = bytes(range(32))
    with open(source, "rb") as pages, open(to, "wb") as out:
        number = 0
        while page := pages.read(PAGE):
            cipher = Cipher(algorithms.AES(key), modes.CTR(number.to_bytes(8, "big") + bytes(8)))
            out.write(cipher.encryptor().update(page))
            number += 1


def title(text, columns):
    print(f"\n**{text}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def spread(values):
    return f"{statistics.median(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


def mean(values, unit=""):
    """The mean with its 95 % interval."""
    half = interval(values)
    return f"{statistics.mean(values):.3f} ± {half:.3f}{unit}"


def shares(taken, at):
    values = [100 * (pair[1][at] / pair[0][at] - 1) for pair in taken]
    return f"{statistics.mean(values):+.1f} ± {interval(values):.1f} %"


def interval(values):
    degrees = len(values) - 1
    quantile = T[max((d for d in T if d <= degrees), default=5)]
    return quantile * statistics.stdev(values) / len(values) ** 0.5


def main():
    rows = ("encryption", "parity", "restore", "data")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longshore", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--work", default=pathlib.Path("/dev/shm/longshore-sealed"), type=pathlib.Path)
    parser.add_argument("--size", default="1G")
    parser.add_argument("-n", type=int, default=20, metavar="PAIRS", help="counted pairs, 6 or more (20)")
    parser.add_argument("--rows", default=",".join(rows))
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    asked = parser.parse_args()
    wanted = asked.rows.split(",")
    if unknown := [name for name in wanted if name not in rows]:
        sys.exit(f"no rows {', '.join(unknown)}; there are {', '.join(rows)}")
    bench = Bench(asked)
    print(f"{bench.pairs} pairs, a source of {bench.len / 1e9:.3f} GB, {os.cpu_count()} CPUs")
    for name in wanted:
        getattr(bench, name)()
    shutil.rmtree(bench.work)


if __name__ == "__main__":
    main()
