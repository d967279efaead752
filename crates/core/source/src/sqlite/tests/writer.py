"""Programs that use a SQLite database while it is backed up, one per process.

Usage: writer.py ROLE DATABASE [ARGUMENT]. A role that goes on for ever ends when its input ends.
Prints one line when it is ready, and what it found out after that.

Goal: backups meet every state in which a program can have a SQLite database: reading, writing, locked, vacuumed, killed.
Method: a role is a function of this file, with the arguments of the command line. Transfers keep the sum of all
balances, so a reader sees whether a state is one that was committed.
Not covered: this file tests nothing; `stage.rs` starts it.
"""
import ctypes
import fcntl
import os
import random
import signal
import sqlite3
import sys
import threading
import time

ACCOUNTS = 500


def connect(path, timeout=20.0):
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def until_told():
    """Yields until our input ends."""
    ended = threading.Event()

    def wait():
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.is_set():
        yield


def say(text):
    print(text, flush=True)


def create(path, page_bytes, journal_mode, vacuum="none"):
    db = connect(path)
    db.execute(f"PRAGMA page_size={page_bytes}")
    db.execute(f"PRAGMA auto_vacuum={vacuum}")
    db.execute(f"PRAGMA journal_mode={journal_mode}")
    db.execute("BEGIN")
    db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, pad TEXT)")
    db.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY, note TEXT)")
    db.execute("CREATE INDEX by_note ON ledger (note)")
    for i in range(ACCOUNTS):
        db.execute("INSERT INTO account VALUES (?, 1000, ?)", (i, str(i) * random.randint(1, 500)))
    db.execute("COMMIT")
    db.close()
    say("created")


def transfer(path):
    say("ready")
    say(f"commits {transfers(path, until_told())}")


def dying(path):
    """Writers that are killed at any moment, one after the other."""
    say("ready")
    parent = os.getpid()
    count = 0
    for _ in until_told():
        child = os.fork()
        if child == 0:
            transfers(path, while_child_of(parent), cache_pages=5)
            os._exit(0)
        time.sleep(random.uniform(0.002, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        count += 1
    say(f"killed {count}")


def while_child_of(parent):
    while os.getppid() == parent:
        yield


def transfers(path, turns, cache_pages=2000):
    """Moves money, so that the sum stays, and keeps a ledger that grows and shrinks."""
    db = connect(path)
    db.execute("PRAGMA wal_autocheckpoint=20")
    # A transaction that does not fit writes before it commits.
    db.execute(f"PRAGMA cache_size={cache_pages}")
    rng = random.Random(os.getpid())
    commits = 0
    for _ in turns:
        try:
            db.execute("BEGIN IMMEDIATE")
            for _ in range(rng.randint(1, 20)):
                a, b, n = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randint(1, 9)
                db.execute("UPDATE account SET balance=balance-? WHERE id=?", (n, a))
                db.execute("UPDATE account SET balance=balance+? WHERE id=?", (n, b))
            note = "x" * rng.randint(1, 3000)
            db.execute("INSERT INTO ledger (note) VALUES (?)", (note,))
            if rng.random() < 0.3:
                db.execute("DELETE FROM ledger WHERE id % 7 = ?", (rng.randrange(7),))
            db.execute("COMMIT")
            commits += 1
        except sqlite3.OperationalError:
            if db.in_transaction:
                db.execute("ROLLBACK")
    return commits


def checkpoint(path, mode):
    db = connect(path, 0.05)
    say("ready")
    count = 0
    for _ in until_told():
        try:
            busy, _, _ = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            count += busy == 0
        except sqlite3.OperationalError:
            pass
    say(f"checkpoints {count}")


def vacuum(path):
    db = connect(path)
    say("ready")
    count = 0
    for _ in until_told():
        try:
            db.execute("VACUUM")
            count += 1
        except sqlite3.OperationalError:
            pass
        time.sleep(0.02)
    say(f"vacuums {count}")


def idle(path):
    """Keeps the database open with commits in its log."""
    db = connect(path)
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute("UPDATE account SET balance=balance+1 WHERE id=1")
    db.execute("UPDATE account SET balance=balance-1 WHERE id=2")
    say("ready")
    for _ in until_told():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_transaction(path):
    """Writes more than fits its cache, so that pages of an open transaction reach the files."""
    db = connect(path)
    db.execute("PRAGMA cache_size=5")
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE account SET balance=balance+1000000, pad=pad || 'unfinished'")
    db.execute("CREATE TABLE unfinished AS SELECT * FROM account")
    os.kill(os.getpid(), signal.SIGKILL)


def cut(_, cache_pages, journal_mode, synchronous):
    """For each number and database it is told: one transaction, killed at that system call, in the middle of a write."""
    say("ready")
    for line in sys.stdin:
        at, path = line.split()
        child = os.fork()
        if child == 0:
            cut_transaction(path, int(at), cache_pages, journal_mode, synchronous)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say("survived" if status == 0 else f"signal {os.WTERMSIG(status)}")


def cut_transaction(path, at, cache_pages, journal_mode, synchronous):
    db = connect(path)
    db.execute(f"PRAGMA journal_mode={journal_mode}")
    db.execute(f"PRAGMA synchronous={synchronous}")
    db.execute(f"PRAGMA cache_size={cache_pages}")
    db.execute("SELECT count(*) FROM account").fetchone()
    ctypes.CDLL(None).cut_after(at)
    db.execute("BEGIN IMMEDIATE")
    for id in (3, 77, 250, 251, 499):
        db.execute("UPDATE account SET balance=balance+1, pad=pad || 'cut' WHERE id=?", (id,))
    db.execute("INSERT INTO ledger (note) VALUES (?)", ("y" * 5000,))
    db.execute("DELETE FROM account WHERE id BETWEEN 100 AND 103")
    db.execute("COMMIT")


def die_in_commit_of_two(path, other):
    """A transaction over two databases, killed after both were written and before it ends."""
    db = connect(path)
    db.execute("ATTACH ? AS other", (other,))
    ctypes.CDLL(None).cut_at_unlink()
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE main.account SET balance=balance+1")
    db.execute("UPDATE other.account SET balance=balance+1")
    db.execute("COMMIT")
    say("survived")


def read(path, commits):
    """Holds a read transaction; commits a little first, so that its mark differs from others'."""
    db = connect(path)
    db.execute("PRAGMA wal_autocheckpoint=0")
    for _ in range(int(commits)):
        db.execute("UPDATE account SET balance=balance+1 WHERE id=1")
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM account").fetchone()
    say("ready")
    for _ in until_told():
        time.sleep(0.01)


def steps(path):
    """Runs each line it is told and says the first row."""
    db = connect(path)
    db.execute("PRAGMA wal_autocheckpoint=0")
    say("ready")
    for line in sys.stdin:
        say(db.execute(line).fetchone())


def exclusive(path):
    db = connect(path)
    db.execute("BEGIN EXCLUSIVE")
    say("ready")
    for _ in until_told():
        time.sleep(0.01)
    db.execute("ROLLBACK")


def lock_exclusively(path):
    """The bytes that SQLite locks for an EXCLUSIVE lock (os_unix.c), without SQLite."""
    file = open(path, "r+b")
    fcntl.lockf(file, fcntl.LOCK_EX, 510, 0x40000002)
    say("ready")
    for _ in until_told():
        time.sleep(0.01)


def impatient(path, sql):
    once(path, sql, 0)


def once(path, sql, timeout=20.0):
    """One statement, and how long it took."""
    db = connect(path, timeout)
    say("ready")
    start = time.monotonic()
    try:
        row = db.execute(sql).fetchone()
    except sqlite3.OperationalError as e:
        row = e
    say(f"{time.monotonic() - start:.3f} {row}")


def dump(path):
    """What is in a database, by a SQLite that is not the one under test."""
    db = connect(path)
    (check,) = db.execute("PRAGMA integrity_check").fetchone()
    (total,) = db.execute("SELECT sum(balance) FROM account").fetchone()
    say(f"{check} {total}")


globals()[sys.argv[1]](*sys.argv[2:])
