#!/usr/bin/env python3
"""Full backups and restores of one PostgreSQL cluster, by Longshore and by others, side by side.

    bench-postgres.py --longshore target/release/longshore [--scale 210] [--rounds 3] [--work .work/bench-postgres]

Every tool in turn reads the same warm cluster with two processes and writes to the same disk; rounds alternate between
the tools. CPU seconds are those of the tool and its children and of the server's processes, whoever compresses.
`--step` runs one measurement alone, so that a caller can keep the machine quiet around each: --wrap names that caller's
program. Needs PostgreSQL 15 of Debian and, for their rows, pgbackrest and zstd.
"""

import argparse, json, os, pwd, re, resource, shutil, statistics, subprocess, sys, time

BIN = "/usr/lib/postgresql/15/bin"
PORT = "6544"


class Bench:
    def __init__(self, a):
        self.a = a
        self.work = os.path.abspath(a.work)
        self.data = f"{self.work}/data"
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())

    # -- running things

    def command(self, argv):
        switch = [] if os.geteuid() else ["setpriv", f"--reuid={self.user.pw_uid}",
                                          f"--regid={self.user.pw_gid}", "--clear-groups"]
        env = dict(os.environ, HOME=self.work, LC_ALL="C", PGHOST=self.work, PGPORT=PORT, PGUSER="postgres",
                   PGDATABASE="postgres", LONGSHORE_CATALOG="none", TZ="UTC")
        env.pop("LONGSHORE_CONFIG", None)
        return switch + list(argv), env

    def run(self, *argv):
        argv, env = self.command(argv)
        done = subprocess.run(argv, env=env, cwd=self.work, text=True, capture_output=True)
        if done.returncode:
            sys.exit(f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self):
        self.run(f"{BIN}/pg_ctl", "-D", self.data, "-l", f"{self.work}/log", "-w", "start")

    def stop(self):
        self.run(f"{BIN}/pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")

    def psql(self, sql):
        return self.run(f"{BIN}/psql", "-XAtc", sql).strip()

    def server_cpu(self):
        """Seconds that the server and all its children, past and present, have used."""
        pid = open(f"{self.data}/postmaster.pid").readline().strip()
        ticks = 0
        for child in [pid] + subprocess.run(["pgrep", "-P", pid], text=True, capture_output=True).stdout.split():
            fields = open(f"/proc/{child}/stat").read().rsplit(")", 1)[1].split()
            ticks += sum(int(n) for n in (fields[11:15] if child == pid else fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    # -- the tools

    def tools(self):
        url = f"postgres://postgres@/postgres?host={self.work}&port={PORT}"
        longshore = os.path.abspath(self.a.longshore)
        out = f"{self.work}/out"

        def ours(algorithm, level):
            return dict(
                backup=[longshore, "backup", url, "--to", f"{out}/a.bak", "--algorithm", algorithm, "--level", level],
                restore=[longshore, "restore", f"{out}/a.bak", "--to", f"{self.work}/restored"])

        def basebackup(method, tool):
            unpack = f"mkdir -p {self.work}/restored && {tool} -dc {out}/base.tar.* | tar -x -C {self.work}/restored && sync -f {self.work}/restored"
            return dict(
                backup=[f"{BIN}/pg_basebackup", "-Ft", "-X", "fetch", "-c", "fast", f"--compress={method}", "-D", out],
                restore=["sh", "-c", unpack])

        rest = ["pgbackrest", "--stanza=bench", f"--pg1-path={self.data}", f"--pg1-socket-path={self.work}",
                f"--pg1-port={PORT}", f"--repo1-path={out}",
                f"--lock-path={self.work}/lock", "--log-level-file=off"]

        def pgbackrest(kind, level):
            compress = [f"--compress-type={kind}", f"--compress-level={level}"]
            return dict(
                prepare=rest + ["--no-online", "stanza-create"],
                backup=rest + compress + ["--process-max=2", "--repo1-bundle", "--repo1-retention-full=9", "--type=full", "--start-fast", "--no-archive-check", "backup"],
                restore=[w.replace(f"--pg1-path={self.data}", f"--pg1-path={self.work}/restored") for w in rest
                         if "socket" not in w and "port" not in w]
                + ["--process-max=2", "restore"])

        return {
            "longshore ZSTD 1": ours("ZSTD", "1"),
            "longshore QAT_DEFLATE 1": ours("QAT_DEFLATE", "1"),
            "longshore LZ4 1": ours("LZ4", "1"),
            "pgBackRest zst 1": pgbackrest("zst", 1),
            "pgBackRest lz4 1": pgbackrest("lz4", 1),
            "pg_basebackup server-zstd:1": basebackup("server-zstd:1", "zstd"),
            "pg_basebackup server-lz4:1": basebackup("server-lz4:1", "lz4"),
        }

    # -- measurements

    def fresh(self, *names):
        for name in names:
            path = f"{self.work}/{name}"
            shutil.rmtree(path, ignore_errors=True)
            self.run("mkdir", "-p", "-m", "700", path)

    def timed(self, argv):
        server = os.path.exists(f"{self.data}/postmaster.pid")
        subprocess.run(["sync"])
        before, others = resource.getrusage(resource.RUSAGE_CHILDREN), self.server_cpu() if server else 0
        began = time.monotonic()
        self.run(*argv)
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if server:
            cpu += self.server_cpu() - others
        return round(wall, 3), round(cpu, 2)

    def warm(self):
        subprocess.run(["sh", "-c", f"cat $(find {self.data}/base {self.data}/global -type f) > /dev/null"])

    def size(self, name):
        return int(subprocess.run(["du", "-sb", f"{self.work}/{name}"], text=True, capture_output=True).stdout.split()[0])

    def step(self, name):
        """A backup with the server up, and a restore with it down."""
        tool = self.tools()[name]
        self.fresh("out", "restored")
        self.start()
        self.psql("checkpoint")
        self.warm()
        if "prepare" in tool:
            self.stop()
            self.run(*tool["prepare"])
            self.start()
        backup = self.timed(tool["backup"])
        self.stop()
        stored = self.size("out")
        shutil.rmtree(f"{self.work}/restored")
        if "pgbackrest" in tool["restore"]:
            self.fresh("restored")
        restore = self.timed(tool["restore"])
        restored = self.size("restored")
        self.fresh("out", "restored")
        return dict(tool=name, backup_s=backup[0], backup_cpu_s=backup[1], stored=stored, restore_s=restore[0],
                    restore_cpu_s=restore[1], restored=restored)

    def load(self, name):
        """Transactions of four pgbench clients that a backup costs."""
        tool = self.tools()[name]
        self.fresh("out")
        self.start()
        self.warm()
        if "prepare" in tool:
            self.stop()
            self.run(*tool["prepare"])
            self.start()
        argv, env = self.command([f"{BIN}/pgbench", "-n", "-c", "4", "-j", "2", "-T", "45", "-P", "1"])
        bank = subprocess.Popen(argv, env=env, cwd=self.work, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(14.5)
        began = time.monotonic()
        self.run(*tool["backup"])
        wall = time.monotonic() - began
        _, progress = bank.communicate()
        self.stop()
        self.fresh("out")
        tps = [float(t) for t in re.findall(r"progress: [\d.]+ s, ([\d.]+) tps", progress)]
        alone = statistics.median(tps[4:14])
        seconds = range(14, min(len(tps), 15 + int(wall + 1)))
        lost = sum(max(0, alone - tps[i]) for i in seconds)
        return dict(tool=name, wall_s=round(wall, 2), alone_tps=round(alone), lost=round(lost))

    def prepare(self):
        if os.path.exists(f"{self.data}/ready"):
            return
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        os.chown(self.work, self.user.pw_uid, self.user.pw_gid)
        self.run(f"{BIN}/initdb", "-U", "postgres", "-A", "trust", "-k", "-N", "-D", self.data)
        with open(f"{self.data}/postgresql.conf", "a") as conf:
            conf.write(f"shared_buffers=1GB\nmax_wal_size=8GB\nlisten_addresses=''\nunix_socket_directories='{self.work}'\n"
                       f"port={PORT}\nautovacuum=off\nwal_compression=off\n")
        self.start()
        self.run(f"{BIN}/pgbench", "-i", "-q", "-s", str(self.a.scale))
        # Half of it written over once, so that pages are not as pgbench made them.
        self.run(f"{BIN}/pgbench", "-n", "-c", "4", "-T", "30", "-N")
        self.psql("vacuum")
        self.psql("checkpoint")
        self.stop()
        self.run("touch", f"{self.data}/ready")


def alone(a, kind, name):
    argv = a.wrap.split() + [sys.executable, os.path.abspath(__file__), "--longshore", a.longshore, "--work", a.work, kind, name]
    done = subprocess.run(argv, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{name}: {done.stdout}{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(found), flush=True)
    return found


def middle(runs, key):
    values = [run[key] for run in runs]
    return f"{statistics.median(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longshore", default="target/release/longshore")
    parser.add_argument("--work", default=".work/bench-postgres")
    parser.add_argument("--scale", type=int, default=210, help="pgbench's; 210 gives 3.2 GB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wrap", default="", help="a program that runs each measurement")
    parser.add_argument("--only", default="", help="tools whose names contain this")
    parser.add_argument("--no-load", action="store_true", help="leave out the runs under pgbench")
    parser.add_argument("--step", help="one backup and restore with this tool")
    parser.add_argument("--load", help="one backup with this tool under pgbench")
    a = parser.parse_args()
    bench = Bench(a)
    if a.step:
        return print(json.dumps(bench.step(a.step)))
    if a.load:
        return print(json.dumps(bench.load(a.load)))
    bench.prepare()
    names = [n for n in bench.tools() if a.only in n and (not n.startswith("pgBackRest") or shutil.which("pgbackrest"))]
    runs = {name: [] for name in names}
    for _ in range(a.rounds):
        for name in names:
            runs[name].append(alone(a, "--step", name))
    loaded = [] if a.no_load else [name for name in names if "lz4" not in name.lower()]
    loads = {name: alone(a, "--load", name) for name in loaded}
    print(f"\nCluster {bench.size('data') / 1e9:.2f} GB, {os.cpu_count()} CPUs, rounds {a.rounds}; median [min-max]\n")
    print("| tool | backup s | backup CPU-s | stored GB | restore s | restore CPU-s |\n|---|---|---|---|---|---|")
    for name, found in runs.items():
        print(f"| {name} | {middle(found, 'backup_s')} | {middle(found, 'backup_cpu_s')} | "
              f"{statistics.median(r['stored'] for r in found) / 1e9:.3f} | {middle(found, 'restore_s')} | {middle(found, 'restore_cpu_s')} |")
    if loads:
        print("\n| under pgbench, 4 clients | backup s | tps alone | transactions lost |\n|---|---|---|---|")
    for name, found in loads.items():
        print(f"| {name} | {found['wall_s']:.2f} | {found['alone_tps']} | {found['lost']} |")


main()
