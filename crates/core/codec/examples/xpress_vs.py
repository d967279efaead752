#!/usr/bin/env python3
"""MS_XPRESS against its peers: speed and ratio on a file, in chunks of 64 KiB, on one thread.

usage: xpress_vs.py FILE [--mib 32] [--rounds 5] [--binary target/release/examples/xpress_vs]

Contenders are our levels 1 to 3, wimlib's XPRESS (the same format) and Microsoft's XPRESS9 (another
format; PyPI package xpress9, which has one level).

Method: in each round every contender compresses and
restores the same chunks once, so that what disturbs the machine disturbs all. Chunks are taken
evenly from the file. Times are processor time of the thread. A peer that is not installed is named
under "missing". Prints JSON; MB are 10^6 bytes. Build first:

    cargo build --release -p longshore-codec --example xpress_vs

Leaves to others: our own levels and their times (`xpress_vs.rs`), and what the figures mean (docs/benchmarks.md).
"""

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time

CHUNK = 65536
WIMLIB_LEVELS = (10, 20, 30, 50, 60, 100)


def sample(path, mib):
    """`mib` MiB of whole chunks, evenly from the file."""
    total = os.path.getsize(path) // CHUNK
    wanted = min(total, mib * 16)
    chunks = []
    with open(path, "rb") as file:
        for index in range(wanted):
            file.seek(index * total // wanted * CHUNK)
            chunks.append(file.read(CHUNK))
    return chunks


class Ours:
    """A child process that does a level for each line."""

    def __init__(self, binary, path):
        self.child = subprocess.Popen(
            [binary, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, level):
        self.child.stdin.write(f"{level}\n")
        self.child.stdin.flush()
        answer = json.loads(self.child.stdout.readline())
        return answer["stored_bytes"], answer["compress_s"], answer["decompress_s"]


def timed(chunks, fresh):
    """`fresh` returns a pair of functions, which is asked for anew for each chunk, untimed: one that
    compresses, or returns None for what does not shrink, and one that restores."""
    size = 0
    compress_s = decompress_s = 0.0
    for chunk in chunks:
        compress, restore = fresh()
        start = time.thread_time()
        stored = compress(chunk)
        compress_s += time.thread_time() - start
        if stored is None:
            size += len(chunk)
            continue
        size += len(stored)
        start = time.thread_time()
        restored = restore(stored)
        decompress_s += time.thread_time() - start
        if restored != chunk:
            raise SystemExit("what was compressed does not come back")
    return size, compress_s, decompress_s


def wimlib(chunks):
    """Level to a function that runs it."""
    library = ctypes.CDLL("libwim.so.15")
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.wimlib_create_compressor.argtypes = (ctypes.c_int, size, ctypes.c_uint, pointer)
    library.wimlib_create_decompressor.argtypes = (ctypes.c_int, size, pointer)
    library.wimlib_compress.argtypes = (ctypes.c_char_p, size, pointer, size, pointer)
    library.wimlib_compress.restype = size
    library.wimlib_decompress.argtypes = (ctypes.c_char_p, size, pointer, size, pointer)
    out = (ctypes.c_char * CHUNK)()
    decompressor = ctypes.c_void_p()
    library.wimlib_create_decompressor(1, CHUNK, ctypes.byref(decompressor))

    def restore(stored):
        if library.wimlib_decompress(stored, len(stored), out, CHUNK, decompressor) != 0:
            raise SystemExit("wimlib cannot read what it wrote")
        return out.raw

    def run(level):
        compressor = ctypes.c_void_p()
        library.wimlib_create_compressor(1, CHUNK, level, ctypes.byref(compressor))

        def compress(chunk):
            length = library.wimlib_compress(chunk, CHUNK, out, CHUNK - 1, compressor)
            return ctypes.string_at(out, length) if length else None

        result = timed(chunks, lambda: (compress, restore))
        library.wimlib_free_compressor(compressor)
        return result

    library.wimlib_free_compressor.argtypes = (pointer,)
    return {level: lambda level=level: run(level) for level in WIMLIB_LEVELS}


def xpress9(chunks):
    import xpress9 as module

    def fresh():
        # A codec refers to what it compressed before; only new ones make chunks independent.
        encoder, decoder = module.Xpress9(), module.Xpress9()

        def compress(chunk):
            stored = encoder.compress(chunk, 2 * CHUNK)
            return stored if len(stored) < CHUNK else None

        return compress, lambda stored: decoder.decompress(stored, CHUNK)

    return lambda: timed(chunks, fresh)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("file")
    arguments.add_argument("--mib", type=int, default=32)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--binary", default="target/release/examples/xpress_vs")
    options = arguments.parse_args()

    chunks = sample(options.file, options.mib)
    if not chunks:
        raise SystemExit(f"{options.file} has no chunk of 64 KiB")
    missing = []
    with tempfile.NamedTemporaryFile() as sampled:
        sampled.write(b"".join(chunks))
        sampled.flush()
        ours = Ours(options.binary, sampled.name)
        contenders = {f"ours {n}": lambda n=n: ours.run(n) for n in (1, 2, 3)}
        try:
            contenders |= {f"wimlib {n}": run for n, run in wimlib(chunks).items()}
        except OSError:
            missing.append("libwim.so.15 (Debian package libwim15)")
        try:
            contenders["xpress9"] = xpress9(chunks)
        except ImportError:
            missing.append("xpress9 (pip package xpress9)")
        runs = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, run in contenders.items():
                runs[name].append(run())
        ours.child.stdin.close()
        ours.child.wait()

    plain_mb = len(chunks) * CHUNK / 1e6

    def speed(seconds):
        rates = [plain_mb / s for s in seconds]
        return {
            "median": round(statistics.median(rates), 1),
            "min": round(min(rates), 1),
            "max": round(max(rates), 1),
        }

    report = {
        "file": os.path.basename(options.file),
        "mb": round(plain_mb, 1),
        "rounds": options.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}",
        "missing": missing,
        "contenders": [
            {
                "name": name,
                "ratio": round(plain_mb * 1e6 / results[0][0], 3),
                "compress_mb_per_s": speed([r[1] for r in results]),
                "decompress_mb_per_s": speed([r[2] for r in results]),
            }
            for name, results in runs.items()
        ],
    }
    print(json.dumps(report, indent=2))


main()
