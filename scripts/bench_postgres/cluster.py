"""A private PostgreSQL server, its data, and commands run as its user.

Invariants
- The server listens on a socket in the work directory only. Commands of root run as `postgres`, those of anybody else as
  that user, since PostgreSQL does not run as root.
- Every command gets the server's address, and neither the configuration nor the history of the caller's Longshore. A
  command that fails ends the program with what it printed.
- A cluster is made once. Its file `bench-ready` is written last, after a stop; a data directory without it is removed and
  made again.

Leaves to others: measuring (`rows.py`), what is read from the machine (`machine.py`), and the tables' content
(`tpch.sql`, `tpcc.sql`).
"""

import os, pwd, shutil, subprocess, sys

from . import machine

HERE = os.path.dirname(os.path.abspath(__file__))


class Cluster:
    def __init__(self, work, name, binaries, port, segment_mib=16):
        self.work, self.bin, self.port = os.path.abspath(work), binaries, str(port)
        self.data = f"{self.work}/{name}"
        self.name, self.segment_mib = name, segment_mib
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())

    # -- commands

    def command(self, argv, extra=None):
        switch = [] if os.geteuid() else ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}",
                                          "--clear-groups"]
        env = dict(os.environ, HOME=self.work, LC_ALL="C", TZ="UTC", PGHOST=self.work, PGPORT=self.port, PGUSER="postgres",
                   PGDATABASE="postgres", PGDATA=self.data, LONGSHORE_CATALOG="none", **(extra or {}))
        env.pop("LONGSHORE_CONFIG", None)
        return switch + [str(word) for word in argv], env

    def run(self, *argv, extra=None):
        argv, env = self.command(argv, extra)
        done = subprocess.run(argv, env=env, cwd=self.work, text=True, capture_output=True)
        if done.returncode:
            sys.exit(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def psql(self, sql):
        return self.run(f"{self.bin}/psql", "-XAtc", sql).strip()

    def empty(self, *names):
        for name in names:
            path = f"{self.work}/{name}"
            shutil.rmtree(path, ignore_errors=True)
            self.run("mkdir", "-p", "-m", "700", path)

    # -- the server

    def start(self, settings=""):
        """A server left over from an interrupted run is stopped first."""
        if os.path.exists(f"{self.data}/postmaster.pid"):
            self.stop()
        self.run(f"{self.bin}/pg_ctl", "-D", self.data, "-l", f"{self.work}/{self.name}.log", "-w", "-o", settings, "start")

    def stop(self):
        self.run(f"{self.bin}/pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")

    def running(self):
        return os.path.exists(f"{self.data}/postmaster.pid")

    def cpu(self):
        """CPU seconds of the server's processes, past and present; 0 when it is down."""
        if not self.running():
            return 0
        return machine.tree_cpu(open(f"{self.data}/postmaster.pid").readline().strip())

    # -- making it

    def make(self, settings, fill):
        """Makes the cluster unless it is there, complete."""
        ready = f"{self.data}/bench-ready"
        if os.path.exists(ready):
            return
        shutil.rmtree(self.data, ignore_errors=True)
        os.makedirs(self.work, exist_ok=True)
        os.chown(self.work, self.user.pw_uid, self.user.pw_gid)
        self.run(f"{self.bin}/initdb", "-U", "postgres", "-A", "trust", "-k", "-N", "-E", "SQL_ASCII", "--locale=C",
                 f"--wal-segsize={self.segment_mib}", "-D", self.data)
        with open(f"{self.data}/postgresql.conf", "a") as conf:
            conf.write(f"listen_addresses=''\nunix_socket_directories='{self.work}'\nport={self.port}\nautovacuum=off\n{settings}\n")
        self.start()
        fill(self)
        self.psql("checkpoint")
        self.stop()
        self.run("touch", ready)

    def pgbench(self, *words):
        return self.run(f"{self.bin}/pgbench", *words)

    def script(self, name, **variables):
        words = [word for key, value in variables.items() for word in ("-v", f"{key}={value}")]
        text = open(f"{HERE}/{name}").read()
        argv, env = self.command([f"{self.bin}/psql", "-Xq", "-v", "ON_ERROR_STOP=1", *words])
        done = subprocess.run(argv, env=env, cwd=self.work, text=True, input=text, capture_output=True)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")


def databases(scale, warehouses, orders):
    """Fills a cluster with pgbench's, TPC-H's and TPC-C's tables, and changes a part of the rows afterwards."""
    def fill(cluster):
        cluster.pgbench("-i", "-q", "-s", str(scale))
        if orders:
            cluster.script("tpch.sql")
        if warehouses:
            cluster.script("tpcc.sql", warehouses=warehouses)
        # The pages then differ from bulk-loaded ones: old row versions, gaps, hint bits.
        cluster.psql("update pgbench_accounts set abalance = aid::bigint * 7919 % 100000 where aid % 5 = 0")
        if warehouses:
            cluster.psql("update stock set s_quantity = s_quantity - 5, s_ytd = s_ytd + 5 where s_i_id % 11 = 0")
        cluster.psql("vacuum analyze")
    return fill
