#!/usr/bin/env python3
"""Goal: the recipes for Patroni and for repmgr in docs/recipes.md work as they stand on the page.
Method: the blocks are read out of the page and run with real servers on this machine: etcd, Patroni in a venv of its
own, repmgr, PostgreSQL. Only data directories, ports, the identity and names of databases and hosts are exchanged.
The servers judge: Patroni's log names the method that made a replica, its REST API the leader, pg_stat_replication who
streams.
Not covered: nodes on several machines, tablespaces, repmgrd, other stores than etcd, pg_rewind, a systemd that evaluates
ExecCondition (its command is run), and the other recipes of the page.

    scripts/test-recipes.py LONGSHORE WORK

Needs root, since servers run as the user postgres, who must be able to enter WORK. All servers end with the script; logs
and data stay in WORK/run until the next run.
"""
import atexit
import contextlib
import glob
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "recipes.md")
USER = "postgres"
DATA = "/var/lib/postgresql/15/main"
PATIENCE = 240
MODULES = ["patroni[etcd3]==4.1.5", "psycopg[binary]"]
ROWS = 10000
# How commands and servers run.
AS_USER = {"user": USER, "group": USER, "extra_groups": [], "stdin": subprocess.DEVNULL}


class Failed(Exception):
    pass


def step(text):
    print(f"test-recipes: {text}", flush=True)


def wait(what, is_so, seconds=PATIENCE):
    """Asks until the answer is not empty, and returns it."""
    until = time.monotonic() + seconds
    while not (answer := is_so()):
        if time.monotonic() > until:
            raise Failed(f"after {seconds} seconds still not: {what}")
        time.sleep(0.5)
    return answer


def free_ports(count):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


def as_user(words):
    """Whether a command succeeds as the servers' user."""
    try:
        return subprocess.run(words, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              **AS_USER).returncode == 0
    except PermissionError:
        return False


class Page:
    """The page, and its blocks and commands by the words before them."""

    def __init__(self, path):
        self.path = os.path.relpath(path)
        with open(path, encoding="utf-8") as file:
            self.text = file.read()

    def section(self, title):
        found = re.search(rf"^## {title}\n(.*?)^## ", self.text, re.M | re.S)
        if not found:
            raise Failed(f"{self.path} has no section {title}")
        return found[1]

    def after(self, title, lead, pattern, what):
        section = self.section(title)
        found = re.search(pattern, section[section.find(lead):], re.M | re.S) if lead in section else None
        if not found:
            raise Failed(f"{self.path}, {title}: no {what} after '{lead}'")
        return found[1]

    def block(self, title, lead):
        return self.after(title, lead, r"^```\w*\n(.*?)^```", "block")

    def code(self, title, lead):
        return self.after(title, lead, r"`([^`]+)`", "command")


def with_names(text, names):
    """The text with other names. Each must be there: the page may not lose one unnoticed."""
    for old, new in names.items():
        if old not in text:
            raise Failed(f"the block of the page has no '{old}':\n{text}")
        text = text.replace(old, new)
    return text


def indented(text, by):
    return "".join(" " * by + line for line in text.splitlines(keepends=True))


class Machine:
    """The programs, and everything that runs."""

    def __init__(self, longshore, work):
        self.work = os.path.abspath(work)
        self.run = os.path.join(self.work, "run")
        self.bin = newest_server_with_repmgr()
        self.running = []
        self.prepare(longshore)
        self.env = {
            "PATH": f"{self.run}/bin:{self.bin}:{self.work}/venv/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{self.run}/home", "LC_ALL": "C.UTF-8",
        }

    def prepare(self, longshore):
        if glob.glob(f"{self.run}/**/postmaster.pid", recursive=True):
            self.stop_servers()
        shutil.rmtree(self.run, ignore_errors=True)
        for name in ["", "bin", "home"]:
            self.directory(name)
        shutil.copy(longshore, f"{self.run}/bin/longshore")
        os.chmod(f"{self.run}/bin/longshore", 0o755)
        if not as_user(["test", "-x", f"{self.run}/bin/longshore"]):
            raise Failed(f"the user {USER} cannot enter {self.run}: name another WORK")

    def directory(self, name, mode=0o755):
        path = os.path.join(self.run, name)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        shutil.chown(path, USER, USER)
        return path

    def write(self, name, text):
        path = os.path.join(self.run, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        shutil.chown(path, USER, USER)
        return path

    def start(self, name, words, env=None):
        log = open(f"{self.run}/{name}.log", "ab")
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.run, env={**self.env, **(env or {})},
                                   start_new_session=True, **AS_USER)
        self.running.append(process)
        return process

    def stop(self, process):
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill(process)
        self.running.remove(process)

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def call(self, words, env=None, codes=(0,)):
        """Runs a command as the servers' user, and returns what it said."""
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.run, env={**self.env, **(env or {})},
                              timeout=PATIENCE, **AS_USER)
        with open(f"{self.run}/commands.log", "a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(words)}\n{done.stdout}{done.stderr}[{done.returncode}]\n")
        if codes is not None and done.returncode not in codes:
            raise Failed(f"{shlex.join(words)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def sql(self, port, text, codes=(0,)):
        return self.call(["psql", "-XqAt", "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-d", "postgres", "-c", text],
                         codes=codes)

    def stop_servers(self):
        for file in glob.glob(f"{self.run}/**/postmaster.pid", recursive=True):
            as_user([f"{self.bin}/pg_ctl", "-s", "-D", os.path.dirname(file), "-m", "immediate", "stop"])

    def end(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # The latest first: Patroni stops its server while etcd is still there.
        for process in reversed(list(self.running)):
            self.stop(process)
        self.stop_servers()


class Site:
    """One longshore.toml with its target, as all nodes of a cluster have it."""

    def __init__(self, machine, name):
        self.machine, self.name = machine, name
        self.target = machine.directory(f"{name}-backup", 0o700)
        self.databases = ["main"]
        self.encryption = ""
        self.write()

    def write(self):
        text = "".join(f'[database.{each}]\nurl = "postgres:///postgres"\ntarget = "disk"\nretention = "month"\n\n'
                       f"[database.{each}.wal]\n\n" for each in self.databases)
        text += f'[target.disk]\ndirectories = ["{self.target}"]\n\n[retention.month]\nkeep_full = 4\n{self.encryption}'
        self.file = self.machine.write(f"{self.name}.toml", text)
        self.env = {"LONGSHORE_CONFIG": self.file}

    def at(self, port):
        """The environment on a node. With a machine each, all nodes could have the same url, that of a socket."""
        url = f"postgres://{USER}@127.0.0.1:{port}/postgres"
        return {**self.env, **{f"LONGSHORE_DATABASE_{each.upper()}_URL": url for each in self.databases}}

    def longshore(self, *words, port=1, codes=(0,)):
        return self.machine.call(["longshore", *words], env=self.at(port), codes=codes)

    def backups(self, database="main"):
        return sorted(os.listdir(f"{self.target}/{database}"))


class Node:
    """A Patroni with its server."""

    def __init__(self, test, scope, name, bootstrap="", database="main"):
        self.test, self.machine, self.site = test, test.machine, test.site
        self.scope, self.name = scope, name
        self.data = os.path.join(self.machine.directory(name), "data")
        self.port, self.rest = free_ports(2)
        self.configure(bootstrap, database)
        self.process = None

    def configure(self, bootstrap, database):
        names = {DATA: self.data, "--database main": f"--database {database}"}
        replicas = with_names(self.test.page.block("Patroni", "**New replicas from a backup**"), names)
        self.yml = self.machine.write(f"{self.name}.yml", f"""scope: {self.scope}
name: {self.name}
restapi:
  listen: 127.0.0.1:{self.rest}
  connect_address: 127.0.0.1:{self.rest}
etcd3:
  host: 127.0.0.1:{self.test.etcd}
{bootstrap}{replicas}  listen: 127.0.0.1:{self.port}
  connect_address: 127.0.0.1:{self.port}
  bin_dir: {self.machine.bin}
  pgpass: {self.machine.run}/{self.name}/pgpass
  authentication:
    superuser:
      username: {USER}
    replication:
      username: replicator
  parameters:
    unix_socket_directories: ''
  pg_hba:
  - local all all trust
  - host all all 127.0.0.1/32 trust
  - host replication all 127.0.0.1/32 trust
""")

    def start(self):
        self.process = self.machine.start(self.name, ["patroni", self.yml], env=self.site.env)
        return self

    def stop(self):
        self.machine.stop(self.process)

    def lose(self):
        """The node is gone at once, with its server."""
        self.machine.kill(self.process)
        self.machine.running.remove(self.process)
        self.machine.call(["pg_ctl", "-s", "-D", self.data, "-m", "immediate", "stop"])

    def log(self):
        with open(f"{self.machine.run}/{self.name}.log", encoding="utf-8") as file:
            return file.read()

    def answers(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}/{path}", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def leads(self):
        """Waits until Patroni calls it the primary, and then until its server is promoted."""
        wait(f"{self.name} leads", lambda: self.answers("primary") or self.ended())
        question = "select pg_is_in_recovery()"
        wait(f"{self.name} is promoted", lambda: self.machine.sql(self.port, question, codes=None) == "f")

    def ended(self):
        if self.process.poll() is not None:
            raise Failed(f"Patroni of {self.name} has ended: {self.machine.run}/{self.name}.log")

    def patronictl(self, *words):
        return self.machine.call(["patronictl", "-c", self.yml, *words])

    def sql(self, text):
        return self.machine.sql(self.port, text)

    def follows(self, leader):
        wait(f"{self.name} streams from {leader.name}", lambda: leader.sql(streaming(self.name)) == "1")
        wait(f"Patroni calls {self.name} a replica", lambda: self.answers("replica"))

    def has(self, rows):
        count = lambda: self.machine.sql(self.port, "select count(*) from t", codes=None)
        wait(f"{self.name} has {rows} rows", lambda: count() == str(rows))

    def made_by(self, method, before=0):
        made = re.findall(r"replica has been created using (\w+)", self.log()[before:])
        if made != [method]:
            log = f"{self.machine.run}/{self.name}.log"
            raise Failed(f"Patroni says that {self.name} was made by {made}, not by {method}: {log}")


class Patroni:
    """The recipe for Patroni."""

    def __init__(self, machine, page):
        self.machine, self.page = machine, page
        self.site = Site(machine, "patroni")
        self.etcd = None

    def all(self):
        self.store()
        first = self.bootstrap()
        second = self.replica(first)
        self.condition(first, second)
        self.reinit(first, second)
        self.switchover(first, second)
        self.without_archive(first, second)
        self.copy(first)
        self.encrypted(first)
        self.from_backup(first, second)

    def store(self):
        client, peer = free_ports(2)
        self.etcd = client
        own, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        data = self.machine.directory("etcd", 0o700)
        self.machine.start("etcd-server", [
            "etcd", "--name", "one", "--data-dir", data, "--listen-client-urls", own, "--advertise-client-urls", own,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"one={peers}"])
        wait("etcd answers", lambda: "true" in answer(f"{own}/health"))

    def settings(self, database="main"):
        block = self.page.block("Patroni", "**Archiving and standbys.**")
        return with_names(block, {"--database main": f"--database {database}"})

    def dcs(self, more=""):
        return "bootstrap:\n  dcs:\n    loop_wait: 2\n    ttl: 30\n    retry_timeout: 10\n" + indented(more, 4)

    def bootstrap(self):
        node = Node(self, "first", "node1", self.dcs() + "  initdb:\n  - data-checksums\n").start()
        node.leads()
        self.site.longshore("wal", "create", "--database", "main")
        settings = self.machine.write("settings.yml", self.settings())
        node.patronictl("edit-config", "first", "--apply", settings, "--force")
        wait("Patroni wants a restart", lambda: "pending_restart" in node.answers("patroni"))
        node.patronictl("restart", "first", "--force")
        wait("archive_mode is on", lambda: self.machine.sql(node.port, "show archive_mode", codes=None) == "on")
        node.leads()
        node.sql(f"create table t as select generate_series(1, {ROWS}) g")
        step("Patroni: the first node archives by the page's settings")
        self.cron(node)
        if len(self.site.backups()) < 2:
            raise Failed(f"no backup was made: {self.site.backups()}")
        return node

    def cron(self, node, codes=(0,)):
        line = with_names(self.page.code("Patroni", "For cron:"), {"127.0.0.1:8008": f"127.0.0.1:{node.rest}"})
        self.machine.call(["sh", "-c", line], env=self.site.at(node.port), codes=codes)

    def replica(self, first):
        second = Node(self, "first", "node2").start()
        second.follows(first)
        second.has(ROWS)
        second.made_by("longshore")
        if "method longshore_delta: " not in second.log():
            raise Failed("longshore_delta was not tried first, or took an empty directory")
        step("Patroni: a replica came by longshore, after longshore_delta had refused the empty directory, and streams")
        return second

    def condition(self, leader, replica):
        unit = self.page.block("Patroni", "**Backups from the leader.**")
        command = re.search(r"^ExecCondition=(.*)$", unit, re.M)[1]
        for node, codes in [(leader, (0,)), (replica, (22,))]:
            asked = with_names(command, {"127.0.0.1:8008": f"127.0.0.1:{node.rest}"})
            self.machine.call(asked.split(), codes=codes)
        before = self.site.backups()
        self.cron(replica, codes=(22,))
        if self.site.backups() != before:
            raise Failed("cron's line made a backup on a replica")
        step("Patroni: units and cron make backups on the leader alone")

    def reinit(self, leader, replica):
        leader.sql(f"insert into t select generate_series(1, {ROWS})")
        before = len(replica.log())
        leader.patronictl("reinit", "first", replica.name, "--force")
        wait("the replica is made again", lambda: "replica has been created" in replica.log()[before:])
        replica.made_by("longshore_delta", before)
        replica.follows(leader)
        replica.has(2 * ROWS)
        step("Patroni: a reinit repairs the data directory by longshore_delta")

    def archives(self, node):
        """Waits until the node has archived a segment, and returns its timeline."""
        segment = node.sql("select pg_walfile_name(pg_switch_wal()) from pg_create_restore_point('archived')")
        last = "select coalesce(last_archived_wal, '') from pg_stat_archiver"
        wait(f"{segment} is archived", lambda: node.sql(last) >= segment)
        return int(segment[:8], 16)

    def switchover(self, old, new):
        old.patronictl("switchover", "first", "--leader", old.name, "--candidate", new.name, "--force")
        new.leads()
        old.follows(new)
        new.sql(f"insert into t select generate_series(1, {ROWS})")
        old.has(3 * ROWS)
        timeline = self.archives(new)
        if timeline < 2:
            raise Failed("the new leader archives on the old timeline")
        self.site.longshore("backup", "main", "--verify", port=new.port)
        step(f"Patroni: after a switchover the new leader archives timeline {timeline}; a full backup works")

    def without_archive(self, replica, leader):
        """The archive's disk is away: a standby starts, and is promoted."""
        os.rename(self.site.target, self.site.target + "-away")
        replica.patronictl("restart", "first", replica.name, "--force")
        replica.follows(leader)
        leader.lose()
        replica.leads()
        replica.has(3 * ROWS)
        os.rename(self.site.target + "-away", self.site.target)
        timeline = self.archives(replica)
        self.site.longshore("backup", "main", "--verify", port=replica.port)
        leader.start()
        leader.follows(replica)
        leader.has(3 * ROWS)
        step(f"Patroni: without the archive's disk a standby restarted and was promoted; timeline {timeline} is archived")

    def restored(self, scope, name, database, more=""):
        """A node of a new scope, whose cluster comes from the backup."""
        data = os.path.join(self.machine.run, name, "data")
        block = with_names(self.page.block("Patroni", "**A cluster from a backup**"), {DATA: data + more})
        node = Node(self, scope, name, self.dcs(self.settings(database)) + block.split("\n", 1)[1], database).start()
        node.leads()
        return node

    def copy(self, leader):
        """The cluster of the backup still runs: a copy of a moment, with a name and an archive of its own."""
        leader.sql("create table mark as select 'before' as at")
        moment = leader.sql("select clock_timestamp() + interval '1s' from pg_sleep(1)")
        leader.sql("select pg_sleep(3)")
        leader.sql(f"update mark set at = 'after'; insert into t select generate_series(1, {ROWS})")
        self.archives(leader)
        self.site.databases = ["main", "copy"]
        self.site.write()
        self.site.longshore("wal", "create", "--database", "copy")
        option = with_names(self.page.code("Patroni", "To end at a moment, append"), {"2027-01-31 06:00:00+01": moment})
        node = self.restored("copy", "copy1", "copy", " " + option)
        node.has(3 * ROWS)
        if node.sql("select at from mark") != "before":
            raise Failed("the copy is of another moment")
        replica = Node(self, "copy", "copy2", database="copy").start()
        replica.follows(node)
        replica.made_by("basebackup")
        self.opened(node, "copy", (0,))
        replica.stop()
        node.stop()
        step("Patroni: a cluster of a moment from the backup, with an archive of its own; its replica came by basebackup")

    def opened(self, node, database, codes):
        """The cluster archives, has no settings of the restore left, and a full backup works."""
        self.archives(node)
        left = node.sql("select string_agg(name, ' ') from pg_file_settings where name ~ '^recovery_target'")
        if left:
            raise Failed(f"settings of the restore are left: {left}")
        self.site.longshore("backup", database, "--verify", port=node.port, codes=codes)

    def encrypted(self, leader):
        """The next backups are encrypted: without an identity replicas come by basebackup, with one from the backup."""
        identity = f"{self.machine.run}/home/identity"
        recipient = self.site.longshore("key", "new", identity).split()[-1]
        names = {"age1pq1…": recipient, "/etc/longshore/identity": identity}
        block = with_names(self.page.block("Patroni", "**Encrypted backups**"), names)
        self.site.encryption = "\n" + re.sub(r"identities.*\n", "", block)
        self.site.write()
        leader.sql(f"insert into t select generate_series(1, {ROWS})")
        self.archives(leader)
        self.site.longshore("backup", "main", "--verify", port=leader.port)
        blind = Node(self, "first", "blind").start()
        blind.follows(leader)
        blind.made_by("basebackup")
        blind.stop()
        self.site.encryption = "\n" + block
        self.site.write()
        seeing = Node(self, "first", "seeing").start()
        seeing.follows(leader)
        seeing.has(5 * ROWS)
        seeing.made_by("longshore")
        seeing.stop()
        step("Patroni: from an encrypted backup a replica came by longshore with identities, by basebackup without")

    def from_backup(self, leader, replica):
        """All is lost but the backup, which is encrypted, and the archive, which has more WAL than a server keeps."""
        for _ in range(12):
            leader.sql("insert into t values (0)")
            leader.sql("select pg_switch_wal()")
        self.archives(leader)
        # The leader last: otherwise the other one would be promoted meanwhile.
        replica.stop()
        leader.stop()
        node = self.restored("second", "again", "main")
        node.has(5 * ROWS + 12)
        self.opened(node, "main", (5,))
        self.site.longshore("check", "main", "--archive-wait", "0", port=node.port)
        node.stop()
        step("Patroni: a cluster from the encrypted backup goes on in its archive; its first backup follows the restored one")


def streaming(name):
    return f"select count(*) from pg_stat_replication where application_name = '{name}' and state = 'streaming'"


def answer(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as got:
            return got.read().decode()
    except (urllib.error.URLError, OSError):
        return ""


class Repmgr:
    """The recipe for repmgr: a primary and a standby, whose ports come from PGPORT, since a backup has the primary's
    postgresql.conf."""

    def __init__(self, machine, page):
        self.machine, self.page = machine, page
        self.site = Site(machine, "repmgr")
        self.ports = free_ports(2)

    def all(self):
        self.primary()
        self.standby()
        self.judge()

    def env(self, number):
        return {**self.site.at(self.ports[number]), "PGPORT": str(self.ports[number])}

    def data(self, number):
        return f"{self.machine.run}/repmgr{number + 1}/data"

    def configuration(self, number):
        line = self.page.block("repmgr", "A standby from a backup")
        return self.machine.write(f"repmgr{number + 1}.conf", f"""node_id={number + 1}
node_name='repmgr{number + 1}'
conninfo='host=127.0.0.1 port={self.ports[number]} user=repmgr dbname=repmgr connect_timeout=10'
data_directory='{self.data(number)}'
pg_bindir='{self.machine.bin}'
log_level=NOTICE
{line}""")

    def primary(self):
        call, env, data = self.machine.call, self.env(0), self.data(0)
        self.machine.directory("repmgr1")
        call(["initdb", "-k", "-A", "trust", "-D", data])
        with open(f"{data}/postgresql.conf", "a", encoding="utf-8") as file:
            file.write("listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\narchive_mode = on\n"
                       "archive_command = 'longshore wal push %p --database main'\n")
        call(["pg_ctl", "-s", "-w", "-D", data, "-l", f"{data}.log", "start"], env=env)
        self.site.longshore("wal", "create", "--database", "main")
        for text in ["create role repmgr superuser login", "create database repmgr owner repmgr",
                     f"create table t as select generate_series(1, {ROWS}) g"]:
            self.machine.sql(self.ports[0], text)
        call(["repmgr", "-f", self.configuration(0), "primary", "register"], env=env)
        self.site.longshore("backup", "main", "--verify", port=self.ports[0])
        self.machine.sql(self.ports[0], f"insert into t select generate_series(1, {ROWS})")
        step("repmgr: the primary is registered, archives and has a backup")

    def standby(self):
        self.machine.directory("repmgr2")
        names = {DATA: self.data(1), "/etc/repmgr.conf": self.configuration(1),
                 "-h db1": f"-h 127.0.0.1 -p {self.ports[0]}"}
        block = with_names(self.page.block("repmgr", "As `postgres` on the new standby"), names)
        script = self.machine.write("repmgr.sh", f"set -e\n{block}")
        # The server keeps the standard output of pg_ctl, so it is a file.
        said = f"{self.machine.run}/repmgr-block.log"
        self.machine.call(["sh", "-c", f"sh {script} >{said} 2>&1 || {{ cat {said}; exit 1; }}"], env=self.env(1))
        step("repmgr: the page's commands made a standby from the backup")

    def judge(self):
        self.machine.sql(self.ports[0], f"insert into t select generate_series(1, {ROWS})")
        count = lambda: self.machine.sql(self.ports[1], "select count(*) from t")
        wait("the standby has the rows", lambda: count() == str(3 * ROWS))
        wait("the standby streams", lambda: self.machine.sql(self.ports[0], streaming("repmgr2")) == "1")
        shown = self.machine.call(["repmgr", "-f", f"{self.machine.run}/repmgr2.conf", "cluster", "show"], env=self.env(1))
        for number, role in enumerate(["primary", "standby"], 1):
            if not re.search(rf"\| repmgr{number} +\| {role} +\| +\*? ?running ", shown):
                raise Failed(f"cluster show:\n{shown}")
        restore = self.machine.sql(self.ports[1], "show restore_command")
        line = re.search(r"'(.*)'", self.page.block("repmgr", "A standby from a backup"))[1]
        if restore != line:
            raise Failed(f"the standby's restore_command is {restore}")
        step("repmgr: cluster show lists both as running, and rows arrive")


def newest_server_with_repmgr():
    found = [os.path.dirname(path) for path in glob.glob("/usr/lib/postgresql/*/bin/repmgr")]
    return max(found, key=lambda path: float(path.split("/")[4]), default=None)


def missing():
    """The packages of the distribution that are not there."""
    programs = {"etcd": "etcd-server", "curl": "curl"}
    packages = [package for program, package in programs.items() if not shutil.which(program)]
    if not newest_server_with_repmgr():
        majors = sorted((path.split("/")[4] for path in glob.glob("/usr/lib/postgresql/*/bin/postgres")), key=float)
        packages.append(f"postgresql-{majors[-1] if majors else 15}-repmgr")
    return packages


def install_patroni(work):
    venv = os.path.join(work, "venv")
    if os.path.exists(f"{venv}/bin/patroni"):
        return
    step("Patroni, by pip")
    # A Python in a closed home cannot be run by the servers' user.
    for python in [sys.executable, "/usr/bin/python3"]:
        subprocess.run([python, "-m", "venv", "--clear", venv], check=True)
        if as_user([f"{venv}/bin/python3", "-c", ""]):
            break
    subprocess.run([f"{venv}/bin/pip", "install", "-q", "--disable-pip-version-check", *MODULES], check=True)


def versions(machine):
    said = {name: machine.call(words) for name, words in {
        "Patroni": ["patroni", "--version"], "etcd": ["etcd", "--version"], "repmgr": ["repmgr", "--version"],
        "PostgreSQL": ["postgres", "--version"], "Longshore": ["longshore", "--version"]}.items()}
    return ", ".join(f"{name} {re.search(r'[0-9]+[.][0-9.]+', text)[0]}" for name, text in said.items())


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: scripts/test-recipes.py LONGSHORE WORK")
    if os.geteuid() != 0:
        sys.exit("test-recipes: only root can start servers as another user: sudo make test-recipes")
    if packages := missing():
        sys.exit(f"test-recipes: programs are missing: apt-get install {' '.join(packages)}")
    os.umask(0o022)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    os.makedirs(sys.argv[2], exist_ok=True)
    try:
        machine = Machine(sys.argv[1], sys.argv[2])
        atexit.register(machine.end)
        install_patroni(machine.work)
        page = Page(PAGE)
        step(versions(machine))
        Patroni(machine, page).all()
        Repmgr(machine, page).all()
    except (Failed, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"test-recipes: FAIL: {error}")
    step(f"passed: Patroni and repmgr by the page, in {time.monotonic() - begun:.0f} seconds")


if __name__ == "__main__":
    main()
