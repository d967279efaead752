"""The tools that are compared, each with the settings that are fastest for it on two CPUs, and with its own checks.

Invariants
- All tools back up the same cluster, to `out` or to one bucket, and restore to `restored`.
- Another tool that is not installed is left out, and a line says what is missing. Nothing is installed here.
- A name is used once: it is the tool's key in the record. `options` and `checks` are the report's words for the command
  next to them.

Leaves to others: running the commands (`rows.py`), the object store (`store.py`), and how to install the other tools
(docs/benchmarks-postgres.md).
"""

import os, re, shutil, subprocess
from dataclasses import dataclass, field
from typing import Callable, Optional

from .store import BUCKET, FAR_MS, KEY, SECRET


@dataclass
class Tool:
    name: str
    version: str
    options: str
    """The settings that differ from the tool's defaults, in words for the report."""
    checks: str
    backup: list
    restore: list
    """argv that makes `restored` from `out`; the directory exists and is empty if `into` is set."""
    prepare: list = field(default_factory=list)
    """Run once before a backup, with the server down."""
    environment: dict = field(default_factory=dict)
    archive: Optional[Callable] = None
    """archive_command for a data directory, an archive directory and a scratch directory; None: not compared."""
    archive_prepare: Optional[Callable] = None
    """argv to run before the archive's first segment."""
    distant: Optional[Callable] = None
    distant_prepare: Optional[Callable] = None
    """The same for the object store that is far away."""
    queue: str = ""
    """What pushes there all that waits, where the tool has a process of its own for that."""
    differing: Optional[Callable] = None
    """argv of the backup of this number, from 1, that differs from the one before."""
    again: list = field(default_factory=list)
    """argv of another full backup next to the first and those that differ."""
    restores: dict = field(default_factory=dict)
    """argv that makes `restored` from that one (`full`), and from the newest that differs (`chain`)."""
    into: bool = True
    rows: tuple = ("full", "cold", "load", "wal")


def version_of(argv, pattern=r"v?(\d+(?:\.\d+)+)"):
    text = subprocess.run(argv, text=True, capture_output=True, env=dict(os.environ, LC_ALL="C")).stdout
    found = re.search(pattern, text)
    return found.group(1) if found else "unknown"


def stores(store):
    """The ways by https to the store, with their ports."""
    ways = [("S3, https", "https"), (f"S3, https, {FAR_MS} ms", "far")]
    return [(words, store.ports[way]) for words, way in ways] if store else []


def all_tools(options, cluster, store=None):
    """Every tool that is there, by name, in the order of the tables; and a line for each that is not."""
    tools, missing = {}, []
    work, out, restored = cluster.work, f"{cluster.work}/out", f"{cluster.work}/restored"

    def add(tool):
        tools[tool.name] = tool

    # -- Longshore

    ours = os.path.abspath(options.longshore)
    url = f"postgres://postgres@/postgres?host={work}&port={cluster.port}"
    for algorithm, level in (("QAT_DEFLATE", "1"), ("ZSTD", "LOW"), ("ZSTD", "1"), ("LZ4", "1"), ("PAGES", "LOW")):
        def backup(name, algorithm=algorithm, level=level):
            return [ours, "backup", url, "--to", f"{out}/{name}.bak", "--algorithm", algorithm, "--level", level]

        add(Tool(
            name=f"longshore {algorithm} {level}", version=version_of([ours, "--version"]), options="one stripe, software engines",
            checks="every page; CRC-32C of the plain and of the stored bytes of each block",
            backup=backup("a"), restore=[ours, "restore", f"{out}/a.bak", "--to", restored], into=False,
            differing=lambda number, backup=backup:
                backup("bc"[number - 1]) + ["--incremental", "--base", f"{out}/{'ab'[number - 1]}.bak"],
            again=backup("again"),
            restores=dict(full=[ours, "restore", f"{out}/again.bak", "--to", restored],
                          chain=[ours, "restore", f"{out}/c.bak", "--base", f"{out}/b.bak", "--base", f"{out}/a.bak", "--to", restored]),
            rows=("full",) if (algorithm, level) == ("ZSTD", "1") else ("full", "cold", "load", "wal", "chain"),
            archive=lambda data, archive, scratch, algorithm=algorithm, level=level:
                f"{ours} wal push %p --archive {archive}/log --async --algorithm {algorithm} --level {level}",
            archive_prepare=lambda data, archive, scratch: [ours, "wal", "create", "--archive", f"{archive}/log"]))
    spared = tools["longshore QAT_DEFLATE 1"]
    if store:
        # What archive_command starts by itself.
        far = "env " + " ".join(f"{name}={value}" for name, value in store.environment("distant").items())
        log = f"s3://{BUCKET}/log"
        add(Tool(
            name="longshore LZ4 1, S3, 10 ms", version=spared.version, options="`--async`", checks=spared.checks, backup=[],
            restore=[], rows=("distant",),
            distant=lambda data, archive, scratch: f"{far} {ours} wal push %p --archive {log} --async --algorithm LZ4 --level 1",
            queue=f"{far} {ours} wal push %p --archive {log} --async --algorithm LZ4 --level 1 --only-ahead",
            distant_prepare=lambda data, archive, scratch: [*far.split(), ours, "wal", "create", "--archive", log]))
    share = str(options.max_cpu)
    add(Tool(
        name=f"longshore QAT_DEFLATE 1, --max-cpu {share}", version=spared.version, checks=spared.checks,
        options=f"`--max-cpu {share} --low-io-priority` under `nice -n 19`", restore=[], into=False, rows=("load",),
        backup=["nice", "-n", "19"] + spared.backup + ["--max-cpu", share, "--low-io-priority"]))
    add(Tool(
        name="a checkpoint alone", version="", options="no backup: what every tool's beginning costs", checks="", restore=[],
        rows=("load",), backup=[f"{cluster.bin}/psql", "-Xqc", "checkpoint"]))

    if store:
        places = [("a directory", None)] + [(f"S3, {scheme}", scheme) for scheme in ("http", "https")]
        places += [(f"S3, https, {FAR_MS} ms", "far"), ("S3 in memory, http", "held"), ("S3 in memory, https", "held-tls")]
        # Without compression most is sent, so what sending costs shows best.
        in_memory = [place for place in places if place[1] in (None, "held", "held-tls")]
        algorithms = [("QAT_DEFLATE", ["--level", "1"], places), ("ZSTD", ["--level", "1"], places), ("PAGES", ["--level", "LOW"], places)]
        for algorithm, level, where in [*algorithms, ("NONE", [], in_memory)]:
            for words, scheme in where:
                place = f"s3://bench/{algorithm}.bak" if scheme else f"{out}/a.bak"
                add(Tool(
                    name=f"longshore {' '.join([algorithm, *level[1:]])}, {words}", version=spared.version, checks=spared.checks,
                    rows=("bucket",), options="one stripe, software engines", into=False,
                    environment=store.environment(scheme) if scheme else {},
                    backup=[ours, "backup", url, "--to", place, "--algorithm", algorithm, *level],
                    restore=[ours, "restore", place, "--to", restored]))

    # -- pgBackRest, as many as there are

    for number, path in enumerate(filter(None, options.pgbackrest.split(","))):
        found = shutil.which(path)
        if not found:
            missing.append(f"pgBackRest: no `{path}`")
            continue
        version = version_of([found, "version"])
        for kind in ("zst", "lz4"):
            common = [found, "--lock-path=" + f"{work}/lock", "--log-level-file=off"]
            repository = common + ["--stanza=bench", f"--repo1-path={out}"]
            server = [f"--pg1-path={cluster.data}", f"--pg1-socket-path={work}", f"--pg1-port={cluster.port}"]
            compress = [f"--compress-type={kind}", "--compress-level=1", "--process-max=2"]

            def archived(data, archive, scratch, common=common, compress=compress):
                return " ".join(common + compress + ["--stanza=bench", f"--repo1-path={archive}", f"--pg1-path={data}",
                                                     "--archive-async", f"--spool-path={scratch}", "archive-push", "%p"])

            def stanza(data, archive, scratch, common=common):
                return common + ["--stanza=bench", f"--repo1-path={archive}", f"--pg1-path={data}", "--no-online", "stanza-create"]

            add(Tool(
                name=f"pgBackRest {version} {kind} 1", version=version,
                options="`process-max=2`, `repo1-bundle`, `start-fast`, no archive",
                checks="every page; SHA-1 of each file",
                prepare=repository + server + ["--no-online", "stanza-create"],
                backup=repository + server + compress + ["--repo1-bundle", "--repo1-retention-full=9", "--type=full", "--start-fast",
                                                         "--no-archive-check", "backup"],
                restore=repository + [f"--pg1-path={restored}", "--process-max=2", "restore"],
                archive=archived, archive_prepare=stanza))

            for words, port in stores(store) if kind == "zst" else ():
                repository = common + ["--stanza=bench", "--repo1-type=s3", "--repo1-path=/repo", f"--repo1-s3-bucket={BUCKET}",
                                       "--repo1-s3-region=us-east-1", "--repo1-s3-endpoint=127.0.0.1", "--repo1-s3-uri-style=path",
                                       "--repo1-storage-host=localhost", f"--repo1-storage-port={port}",
                                       f"--repo1-storage-ca-file={store.certificate}"]
                add(Tool(
                    name=f"pgBackRest {version} {kind} 1, {words}", version=version, rows=("bucket",),
                    options="`process-max=2`, `repo1-bundle`, `start-fast`, no archive", checks="every page; SHA-1 of each file",
                    environment=dict(PGBACKREST_REPO1_S3_KEY=KEY, PGBACKREST_REPO1_S3_KEY_SECRET=SECRET),
                    prepare=repository + server + ["--no-online", "stanza-create"],
                    backup=repository + server + compress + ["--repo1-bundle", "--repo1-retention-full=9", "--type=full",
                                                             "--start-fast", "--no-archive-check", "backup"],
                    restore=repository + [f"--pg1-path={restored}", "--process-max=2", "restore"]))

    # -- WAL-G

    walg = shutil.which(options.walg)
    if walg:
        version = version_of([walg, "--version"])
        for name, verify in (("lz4", "false"), ("lz4, verifying", "true")):
            environment = dict(WALG_FILE_PREFIX=out, WALG_COMPRESSION_METHOD="lz4", WALG_UPLOAD_DISK_CONCURRENCY="2",
                               WALG_VERIFY_PAGE_CHECKSUMS=verify)
            add(Tool(
                name=f"WAL-G {name}", version=version,
                options="two readers (`WALG_UPLOAD_DISK_CONCURRENCY=2`)" + (", `WALG_VERIFY_PAGE_CHECKSUMS`" if verify == "true" else ""),
                checks="every page; LZ4 frames" if verify == "true" else "no pages (its default); LZ4 frames",
                backup=[walg, "backup-push", cluster.data], restore=[walg, "backup-fetch", restored, "LATEST"],
                environment=environment, rows=("full",) if verify == "true" else ("full", "cold", "load", "wal"),
                archive=None if verify == "true" else lambda data, archive, scratch:
                    f"env WALG_FILE_PREFIX={archive} WALG_COMPRESSION_METHOD=lz4 {walg} wal-push %p"))
        for words, port in stores(store):
            environment = dict(store.environment("https"), WALG_S3_PREFIX=f"s3://{BUCKET}/walg", WALG_COMPRESSION_METHOD="lz4",
                               AWS_ENDPOINT=f"https://127.0.0.1:{port}", AWS_S3_FORCE_PATH_STYLE="true",
                               WALG_UPLOAD_DISK_CONCURRENCY="2", WALG_S3_CA_CERT_FILE=store.certificate)
            add(Tool(
                name=f"WAL-G lz4, {words}", version=version, options="two readers (`WALG_UPLOAD_DISK_CONCURRENCY=2`)",
                checks="no pages (its default); LZ4 frames", rows=("bucket",), environment=environment,
                backup=[walg, "backup-push", cluster.data], restore=[walg, "backup-fetch", restored, "LATEST"]))
    else:
        missing.append(f"WAL-G: no `{options.walg}`")

    # -- pg_basebackup

    for method, unpacker in (("zstd", "zstd"), ("lz4", "lz4")):
        if not shutil.which(unpacker):
            missing.append(f"pg_basebackup server-{method}: no `{unpacker}` to unpack with")
            continue
        add(Tool(
            name=f"pg_basebackup server-{method}:1", version=version_of([f"{cluster.bin}/pg_basebackup", "--version"]),
            options="tar, `-X fetch`, `--checkpoint=fast`; its server works in one process",
            checks="every page; CRC-32C of each file (manifest)",
            backup=[f"{cluster.bin}/pg_basebackup", "-Ft", "-X", "fetch", "-c", "fast", f"--compress=server-{method}:1", "-D", out],
            rows=("full", "load") if method == "lz4" else ("full",),
            restore=["sh", "-c", f"{unpacker} -dc {out}/base.tar.* | tar -x -C {restored}"]))
    return tools, missing
