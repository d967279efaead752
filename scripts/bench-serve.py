#!/usr/bin/env python3
"""Goal: what the server costs: from connecting to the first row, memory of an idle session, time added to a backup.
Method: starts `longshore serve` over a scratch directory. A login is timed from the socket to the row of SELECT 1, with
and without TLS, the first after a start (which pays for the slow hash) apart. Idle sessions are counted by the server's
resident memory before and after so many of them. A backup to NUL is run through both doors, a `longshore serve` and a
`longshore sql` that is fed from a pipe, both of which live through all of it, in blocks of A B B A and B A A B. Its
seconds are those of message 3014, which the program measures itself; its CPU time is what the clock of each process
went on by. Clients, and the start of a process, are in neither. A pair is a run of each, and gives one ratio.

    scripts/bench-serve.py [--longshore PROGRAM] [--database FILE] [-n PAIRS]

The client is made of Python's own modules, after MS-TDS; its part is in the times.
"""
import argparse
import os
import re
import socket
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
T = {9: 2.262, 14: 2.145, 19: 2.093, 24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001}
PASSWORD = "bench"


class Client:
    def __init__(self, port, tls):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = None
        self.send(0x12, bytes([1, 0, 6, 0, 1, 0xFF, 1 if tls else 2]))
        self.message()
        if tls:
            self.shake()
        self.send(0x10, login7("bench", PASSWORD))
        assert "Changed database".encode("utf-16-le") in self.message()

    def shake(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    self.send(0x12, outgoing.read())
                incoming.write(self.message())
        if outgoing.pending:
            self.send(0x12, outgoing.read())
        self.tls, self.incoming, self.outgoing = tls, incoming, outgoing

    def send(self, kind, body):
        packet = bytes([kind, 1]) + (len(body) + 8).to_bytes(2, "big") + bytes([0, 0, 1, 0]) + body
        if self.tls:
            self.tls.write(packet)
            packet = self.outgoing.read()
        self.socket.sendall(packet)

    def read(self, count):
        out = b""
        while len(out) < count:
            if self.tls:
                try:
                    out += self.tls.read(count - len(out))
                    continue
                except ssl.SSLWantReadError:
                    self.incoming.write(self.socket.recv(65536))
            else:
                piece = self.socket.recv(count - len(out))
                assert piece, "the server has gone"
                out += piece
        return out

    def message(self):
        body = b""
        while True:
            header = self.read(8)
            body += self.read(int.from_bytes(header[2:4], "big") - 8)
            if header[1] & 1:
                return body

    def batch(self, text):
        self.send(1, bytes([4, 0, 0, 0]) + text.encode("utf-16-le"))
        return self.message()


def login7(user, password):
    hidden = bytes(((b << 4 | b >> 4) & 0xFF) ^ 0xA5 for b in password.encode("utf-16-le"))
    fields = [b"", user.encode("utf-16-le"), hidden] + [b""] * 6
    body = bytearray(36)
    body[4:8] = (0x74000004).to_bytes(4, "little")
    at = 94
    for field in fields:
        body += at.to_bytes(2, "little") + (len(field) // 2).to_bytes(2, "little")
        at += len(field)
    body += bytes(94 - len(body)) + b"".join(fields)
    body[:4] = len(body).to_bytes(4, "little")
    return bytes(body)


def resident_kb(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def spread(values):
    ordered = sorted(values)
    return f"median {statistics.median(ordered):.2f}, {ordered[0]:.2f} to {ordered[-1]:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longshore", default="target/release/longshore")
    parser.add_argument("--database", help="a SQLite database; one of 256 MiB is made without it")
    parser.add_argument("-n", "--pairs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        database = options.database or os.path.join(scratch, "bench.db")
        if not options.database:
            make(database)
        program = os.path.abspath(options.longshore)
        env = dict(os.environ, LONGSHORE_CATALOG=f"{scratch}/catalog.db", LONGSHORE_LOGIN_PASSWORD=PASSWORD)
        env.pop("LONGSHORE_CONFIG", None)
        common = {"env": env, "cwd": scratch, "check": True, "stdout": subprocess.DEVNULL}
        subprocess.run([program, "serve", "--add-login", "bench"], **common)
        source = ["--database", f"bench={os.path.abspath(database)}"]
        server = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1:0", *source],
            env=env, cwd=scratch, stderr=subprocess.PIPE, text=True,
        )
        try:
            line = server.stderr.readline()
            port = int(line.rsplit(":", 1)[1])
            measure(program, source, env, scratch, server.pid, port, options.pairs)
        finally:
            server.terminate()
            server.wait()


def make(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE noise (a BLOB, b TEXT)")
    for i in range(2048):
        db.execute("INSERT INTO noise VALUES (?, ?)", (os.urandom(65536), f"ware {i} " * 8192))
    db.commit()
    db.close()


def measure(program, source, env, scratch, pid, port, pairs):
    def login_ms(tls):
        began = time.monotonic()
        client = Client(port, tls)
        client.batch("SELECT 1")
        return (time.monotonic() - began) * 1000, client

    print(f"login to first row, first after the start: {login_ms(False)[0]:.1f} ms")
    for tls in (False, True):
        times = [login_ms(tls)[0] for _ in range(101)]
        print(f"login to first row, {'TLS' if tls else 'plain'}, ms: {spread(times[1:])}")
    for tls in (False, True):
        before = resident_kb(pid)
        clients = [login_ms(tls)[1] for _ in range(150)]
        print(f"idle session, {'TLS' if tls else 'plain'}: {(resident_kb(pid) - before) / 150:.1f} KiB")
        del clients
        time.sleep(1)
    statement = "BACKUP DATABASE bench TO DISK = 'NUL' WITH COMPRESSION, COPY_ONLY, STATS = 1"
    client = Client(port, True)

    def seconds(text):
        return float(re.search(r"pages in ([0-9.]+) seconds", text)[1])

    def through_serve():
        said = client.batch(statement)
        # A text may begin at any byte of the answer.
        at = said.index("pages in ".encode("utf-16-le"))
        return seconds(said[at : at + 80].decode("utf-16-le", "ignore"))

    sql = subprocess.Popen(
        [program, "sql", *source], env=env, cwd=scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def through_sql():
        sql.stdin.write(f"{statement}\nGO\n")
        sql.stdin.flush()
        while line := sql.stdout.readline():
            if "pages in " in line:
                return seconds(line)
        raise SystemExit("longshore sql has ended")

    def timed(run, process):
        before = cpu_s(process)
        wall = run()
        # The work that a run leaves, such as its line in the history, counts as its own.
        time.sleep(0.05)
        return wall, cpu_s(process) - before

    doors = {through_sql: sql.pid, through_serve: pid}
    for run, process in doors.items():
        timed(run, process)
    took = {run: [] for run in doors}
    for i in range(pairs):
        # A B, B A, B A, A B, ...: an even drift affects both equally.
        order = list(doors) if i % 4 in (0, 3) else list(doors)[::-1]
        for run in order:
            took[run].append(timed(run, doors[run]))
    sql.stdin.close()
    sql.wait()
    for at, what in enumerate(("seconds", "CPU seconds")):
        plain = [t[at] for t in took[through_sql]]
        served = [t[at] for t in took[through_serve]]
        print(f"backup to NUL through `longshore sql`, {what}: {spread(plain)}")
        mean, half = interval([(s / p - 1) * 100 for s, p in zip(served, plain)])
        print(f"through the server, {what}, {pairs} pairs: {mean:+.2f} % ± {half:.2f} (95 %)")


def cpu_s(pid):
    """User and system time of a process, threads that have ended too, to the nanosecond: its clock_getcpuclockid."""
    return time.clock_gettime(~pid << 3 | 2)


def interval(differences):
    quantile = T[max((d for d in T if d <= len(differences) - 1), default=9)]
    half = quantile * statistics.stdev(differences) / len(differences) ** 0.5
    return statistics.mean(differences), half


main()
