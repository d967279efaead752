#!/usr/bin/env python3
"""Goal: what the server costs: from connecting to the first row, memory of an idle session, time added to a backup.
Method: starts `longshore serve` over a scratch directory. A login is timed from the socket to the row of SELECT 1, with
and without TLS, the first after a start (which pays for the slow hash) apart. Idle sessions are counted by the server's
resident memory before and after so many of them. A backup to NUL is run through both doors in turn, A B B A ...; its
seconds are those of message 3014, which the server measures itself, so that clients and processes do not count.

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
    statement = "BACKUP DATABASE bench TO DISK = 'NUL' WITH COMPRESSION, STATS = 1"
    client = Client(port, True)

    def seconds(text):
        return float(re.search(r"pages in ([0-9.]+) seconds", text)[1])

    def through_serve():
        said = client.batch(statement)
        # Texts begin at any byte of the answer.
        at = said.index("pages in ".encode("utf-16-le"))
        return seconds(said[at : at + 80].decode("utf-16-le", "ignore"))

    def through_sql():
        done = subprocess.run([program, "sql", *source, "-Q", statement], env=env, cwd=scratch, capture_output=True, text=True)
        return seconds(done.stdout)

    through_sql(), through_serve()
    differences, plain = [], []
    for i in range(pairs):
        order = [through_sql, through_serve] if i % 2 == 0 else [through_serve, through_sql]
        took = {run: run() for run in order}
        plain.append(took[through_sql])
        differences.append((took[through_serve] / took[through_sql] - 1) * 100)
    mean = statistics.mean(differences)
    quantile = T[max((d for d in T if d <= pairs - 1), default=9)]
    half = quantile * statistics.stdev(differences) / len(differences) ** 0.5
    print(f"backup to NUL through `longshore sql`, s: {spread(plain)}")
    print(f"through the server, {pairs} pairs: {mean:+.2f} % ± {half:.2f} (95 %)")


main()
