"""A way between this machine and a network namespace on it that takes its time and loses packets: the kernel's own TCP on both
ends meets real loss.

    way.py NAMESPACE [ONE_WAY_MS [LOSS [CONGESTION]]]

makes the namespace, with 10.77.0.2 in it and 10.77.0.1 outside, prints `ready`, and carries packets until it is ended: each
arrives ONE_WAY_MS later, and LOSS is the share that never does, in both directions. CONGESTION names the kernel's algorithm for these connections; the default
is the machine's. When it ends, it prints how many packets
it carried and how many it lost, and removes the namespace. Needs root and /dev/net/tun.

Invariants
- Packets of one direction keep their order. Nothing limits their rate but this program, which takes some 10 us for each.

Leaves to others: the server in the namespace, and what runs over the way (`bench-loss.py`).
"""

import collections, fcntl, os, random, select, signal, struct, subprocess, sys, time

HERE, THERE = "10.77.0.1", "10.77.0.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_MAX = 65536


def interface(name):
    """A new interface: what the kernel sends there is read from it, and what is written to it the kernel receives."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def run(*words):
    subprocess.run(words, check=True)


def carry(ends, latency_s, loss):
    """Until SIGTERM. Returns the packets that arrived, and those that were lost."""
    chance, carried, lost, ended = random.Random(1), 0, 0, []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting = collections.deque()
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    while not ended:
        wait_ms = max(0, (waiting[0][0] - time.monotonic()) * 1000) if waiting else 1000
        for end, _ in poll.poll(wait_ms):
            try:
                while True:
                    packet = os.read(end, PACKET_MAX)
                    if chance.random() < loss:
                        lost += 1
                    else:
                        waiting.append((time.monotonic() + latency_s, other[end], packet))
            except BlockingIOError:
                pass
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, end, packet = waiting.popleft()
            try:
                os.write(end, packet)
                carried += 1
            except OSError:
                lost += 1
    return carried, lost


def main():
    namespace = sys.argv[1]
    one_way_ms, loss, congestion = (sys.argv[2:] + ["10", "0", ""][len(sys.argv) - 2:])[:3]
    ends = interface("way-here"), interface("way-there")
    run("ip", "netns", "add", namespace)
    try:
        run("ip", "link", "set", "way-there", "netns", namespace)
        run("ip", "addr", "add", f"{HERE}/30", "dev", "way-here")
        run("ip", "link", "set", "way-here", "up")
        inside = ("ip", "netns", "exec", namespace, "ip")
        run(*inside, "addr", "add", f"{THERE}/30", "dev", "way-there")
        for name in ("way-there", "lo"):
            run(*inside, "link", "set", name, "up")
        if congestion:
            for words, device in (((), "way-here"), (inside[:-1], "way-there")):
                run(*words, "ip", "route", "replace", "10.77.0.0/30", "dev", device, "congctl", congestion)
        print("ready", flush=True)
        carried, lost = carry(ends, float(one_way_ms) / 1000, float(loss))
        print(f"{carried} packets arrived, {lost} were lost", flush=True)
    finally:
        run("ip", "netns", "del", namespace)


if __name__ == "__main__":
    main()
