#!/usr/bin/env python3
"""Goal: say whether one command takes more time than another, and how sure that is.
Method: runs both in turn, A B B A A B ..., after one uncounted run of each; for wall and CPU time (the kernel's account of
each finished process) it prints both medians, the mean of B's difference from A in each pair, and the 95 % interval of
that mean (Student's t). Their output is thrown away.

    scripts/bench-paired.py [-n PAIRS] 'COMMAND A' 'COMMAND B'

Example, software with and without the offload seam asked, source warm:

    scripts/bench-paired.py -n 20 'longshore --catalog none backup app.db --to nul: --offload software' \\
        'longshore --catalog none backup app.db --to nul: --offload auto'
"""
import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time

# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
T = {5: 2.571, 9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001}


def student(degrees):
    """The quantile for the next smaller number of degrees that the table has: never too small an interval."""
    return T[max((d for d in T if d <= degrees), default=5)]


def run(command):
    began = time.monotonic()
    child = subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"exit code {child.returncode}: {command}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=20, metavar="PAIRS", help="counted pairs, 6 or more (20)")
    parser.add_argument("a")
    parser.add_argument("b")
    asked = parser.parse_args()
    pairs = max(asked.n, 6)
    commands = (asked.a, asked.b)
    for command in commands:
        run(command)
    taken = []
    for number in range(pairs):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        times = {which: run(commands[which]) for which in order}
        taken.append((times[0], times[1]))
    print(f"A: {asked.a}\nB: {asked.b}\n{pairs} pairs")
    for at, name in enumerate(("wall", "CPU")):
        a = [pair[0][at] for pair in taken]
        b = [pair[1][at] for pair in taken]
        shares = [100 * (y / x - 1) for x, y in zip(a, b)]
        half = student(pairs - 1) * statistics.stdev(shares) / pairs**0.5
        mean = statistics.mean(shares)
        print(
            f"{name}: A {statistics.median(a):.3f} s ({min(a):.3f}-{max(a):.3f}), "
            f"B {statistics.median(b):.3f} s ({min(b):.3f}-{max(b):.3f}), "
            f"B - A {mean:+.2f} % of A, 95 % interval {mean - half:+.2f} to {mean + half:+.2f} %"
        )


if __name__ == "__main__":
    main()
