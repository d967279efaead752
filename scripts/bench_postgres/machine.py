"""What is read from and done to the machine: CPU time, memory, page cache.

Invariants
- CPU times are seconds. `busy` counts the CPUs that this program may run on; `kernel` counts all CPUs. A process that
  ends while it is counted is left out.
- Nothing fills a disk: `fill_memory` reads a file of holes.
- Only `cold_memory` needs root, and says so by its answer.

Leaves to others: when caches are filled and emptied (`rows.py`), and the servers' processes (`cluster.py`, `store.py`).
"""

import os, random, subprocess, time

TICKS = os.sysconf("SC_CLK_TCK")


def cpus():
    """The CPUs that this program, and what it starts, may run on."""
    return os.sched_getaffinity(0)


def busy():
    """CPU seconds that all processes and the kernel have used since boot, of our CPUs."""
    ticks = 0
    for line in open("/proc/stat"):
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cpus():
            user, nice, system, _, _, irq, softirq = (int(n) for n in fields[:7])
            ticks += user + nice + system + irq + softirq
    return ticks / TICKS


def kernel():
    """CPU seconds of the kernel's own threads, which write back what was written through the page cache. On all CPUs:
    where a thread ran is not told."""
    ticks = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[1] == "2":
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def tree_cpu(pid):
    """CPU seconds of a process, its children, and all that they waited for."""
    children = subprocess.run(["pgrep", "-P", str(pid)], text=True, capture_output=True).stdout.split()
    ticks = 0
    for process in [str(pid)] + children:
        try:
            fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            continue
        ticks += sum(int(n) for n in fields[11:15])
    return ticks / TICKS


def files(root):
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def size(root):
    return sum(os.path.getsize(path) for path in files(root))


def read(root):
    """Brings files into the page cache."""
    for path in files(root):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def forget(root):
    """Drops files from the page cache."""
    subprocess.run(["sync", "-f", root], check=True)
    for path in files(root):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def free_memory():
    return int(next(line for line in open("/proc/meminfo") if line.startswith("MemFree:")).split()[1]) * 1024


def fill_memory(sparse, leave=600 << 20):
    """Fills free memory with clean page cache, from a file of holes.

    On a virtual machine memory that was handed back to the host costs its first use several times what it costs later,
    and flatters tools that write past the page cache.
    """
    with open(sparse, "ab+", buffering=0) as file:
        end = 256 << 30
        file.truncate(end)
        # Read-ahead requests large pieces of memory; the kernel evicts for them rather than use free memory.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        step = 64 << 10
        block = bytearray(step)
        # Data read by an earlier call is mostly still cached: this call continues elsewhere.
        place = random.randrange(end // step) * step
        for _ in range(end // step):
            if free_memory() <= leave:
                break
            for _ in range(64):
                os.preadv(file.fileno(), [block], place)
                place = (place + step) % end


def cold_memory():
    """Empties the page cache and gives the kernel time to hand free memory back to the host. False: needs root."""
    subprocess.run(["sync"], check=True)
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except PermissionError:
        return False
    time.sleep(6)
    return True


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"
