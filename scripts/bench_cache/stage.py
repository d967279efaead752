"""PostgreSQL on a disk that an NBD server emulates: what is mounted and running, and its end.

The chain is nbdkit, nbdfuse, a loop device, ext4, PostgreSQL. Needs root, FUSE and loop devices.

Invariants
- All that a `Stage` began ends with it, in the opposite order.
- What is mounted is seen by this process and its children alone (`mounts_of_our_own`, which comes first).

Leaves to others: what is measured (the scripts that use this).
"""

import ctypes, os, pathlib, pwd, shutil, signal, subprocess, sys, time


def sh(*argv, **how):
    done = subprocess.run([str(word) for word in argv], text=True, capture_output=True, **how)
    if done.returncode:
        raise RuntimeError(f"{argv}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def unmount(path):
    """Processes that were killed may hold it for a while."""
    for last in [False] * 100 + [True]:
        if subprocess.run(["umount", path], capture_output=not last).returncode == 0:
            return
        time.sleep(0.1)


def mounts_of_our_own():
    """Whoever makes a mount namespace while ours is everybody's keeps a copy of our mounts in it, and the disk busy."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns = 0x20000
    if libc.unshare(clone_newns):
        sys.exit(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    sh("mount", "--make-rprivate", "/")


class Stage:
    """What is mounted and running; all of it ends with this."""

    def __init__(self, work, postgres):
        self.work, self.bin = os.path.abspath(work), postgres
        self.mnt = f"{self.work}/mnt"
        self.user = pwd.getpwnam("postgres")
        self.undo = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for step in reversed(self.undo):
            try:
                step()
            except Exception as error:
                print(f"cleaning up: {error}", file=sys.stderr)

    def spawn(self, *argv, user=None, end=signal.SIGTERM, **how):
        become = [] if user is None else ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        log = open(f"{self.work}/log", "a")
        process = subprocess.Popen([*become, *map(str, argv)], stdout=log, stderr=log, cwd=self.work, **how)

        def stop():
            process.send_signal(end)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

        self.undo.append(stop)
        return process

    def mount(self, disk, make=False):
        loop = sh("losetup", "--find", "--show", "--direct-io=on", disk).strip()
        self.loop = loop
        self.undo.append(lambda: sh("losetup", "-d", loop))
        if make:
            sh("mkfs.ext4", "-q", loop)
        os.makedirs(self.mnt, exist_ok=True)
        sh("mount", loop, self.mnt)
        self.undo.append(lambda: unmount(self.mnt))

    def as_user(self, *argv):
        return sh("setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups", *argv)

    def start(self, end=signal.SIGINT):
        self.spawn(f"{self.bin}/postgres", "-D", f"{self.mnt}/data", "-k", self.work, user=self.user, end=end)
        for _ in range(600):
            ready = subprocess.run([f"{self.bin}/pg_isready", "-q", "-h", self.work, "-U", "postgres", "-d", "postgres"])
            if ready.returncode == 0:
                return
            time.sleep(0.1)
        sys.exit("PostgreSQL does not start: see the log")

    def read_ms(self):
        """What reads of the mounted disk took so far, all together."""
        return int(pathlib.Path(f"/sys/block/{os.path.basename(self.loop)}/stat").read_text().split()[3])

    def psql(self, sql):
        return sh(f"{self.bin}/psql", "-XAtqc", sql, "-h", self.work, "-U", "postgres", "-d", "postgres").strip()


def serve(stage, options, server, fresh=True, end=signal.SIGINT, settle=True):
    """The chain from nbdkit to PostgreSQL, which `end` ends. With `fresh`, on a copy of the template and an empty cache; without
    `settle`, nothing is mounted and started on it."""
    work = stage.work
    backend, cache, socket = f"{work}/backend", f"{work}/cache", f"{work}/socket"
    ours = server not in ("bare", "filter")
    plugin = [os.path.abspath(options.plugin), f"backend={backend}", "buffered=true", f"emulate={options.emulate}",
              f"control={socket}.control"]
    filters = []
    if fresh:
        sh("cp", "--sparse=always", f"{work}/template", backend)
    if ours:
        if fresh:
            sh(options.longshore, "cache", "create", cache, "--size", options.cache, "--slot", "16K", "--force")
        pair = options.emulate.split("@")[0]
        plugin += [f"cache={cache}", f"policy={server}"]
        plugin += [] if "-" in pair.split("/") else [f"pair={pair}"]
    if server == "filter":
        filters = ["--filter=cache"]
        plugin += ["cache-on-read=true", f"cache-max-size={options.cache}", "cache=writethrough"]
    for name in (socket, f"{socket}.control"):
        if os.path.exists(name):
            os.unlink(name)
    nbdkit = stage.spawn("nbdkit", "--foreground", "--threads", "2", "--unix", socket, *filters, *plugin,
                         env={**os.environ, "TMPDIR": work})
    while not (os.path.exists(socket) and os.path.exists(f"{socket}.control")):
        if nbdkit.poll() is not None:
            sys.exit(f"nbdkit ended: see {work}/log")
        time.sleep(0.05)
    fuse, disk = f"{work}/disk", f"{work}/disk/nbd"
    os.makedirs(fuse, exist_ok=True)
    # Requests on one connection of nbdfuse wait for each other, and it takes connections in turn, busy or not: there must be
    # many more than the ten requests that libfuse's threads have in flight.
    stage.spawn("nbdfuse", "--connections=128", disk, f"nbd+unix:///?socket={socket}")
    stage.undo[-1] = lambda: unmount(fuse)
    while not (os.path.exists(disk) and os.path.getsize(disk)):
        time.sleep(0.05)
    if settle:
        stage.mount(disk)
        stage.start(end)
    return nbdkit


def begin(stage):
    """Forgets what an earlier run left, and sees to it that this one leaves nothing."""
    open(f"{stage.work}/log", "w").close()
    names = [f"{stage.work}/{name}" for name in ("backend", "cache", "socket", "socket.control", "backend.longshore-guard", "backend.longshore-guard.lock")]
    stage.undo.append(lambda: [os.path.exists(name) and os.unlink(name) for name in names])
    forget_transactions(stage)


def forget_transactions(stage):
    for old in pathlib.Path(stage.work).glob("tx.*"):
        old.unlink()
