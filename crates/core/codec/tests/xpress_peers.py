"""Other implementations of MS-XCA LZ77+Huffman read our chunks, and write some for us to read.

usage: xpress_peers.py DIRECTORY

DIRECTORY holds pairs NAME.plain and NAME.LEVEL.chunk. Each chunk is read by wimlib, and by
dissect.util where it can (see below). Then wimlib compresses each NAME.plain at several levels to
NAME.LEVEL.wimlib; what does not shrink gives no file. The last line printed is "read N by wimlib,
M by dissect.util, wrote K". A missing tool is one line and exit status 3, a difference one line
and exit status 1.

Goal: our chunks and those of others are one format, in both directions.
Method: wimlib is called as a library, dissect.util as a module; each answer is compared with NAME.plain.
Not covered: reading what wimlib wrote, which `xpress_peers.rs` does.
"""

import ctypes
import pathlib
import sys

XPRESS = 1
CHUNK_BYTES_MAX = 65536
WIMLIB_LEVELS = (10, 20, 50, 80)


def missing(what, package):
    print(f"missing: {what} (install {package})")
    sys.exit(3)


try:
    from dissect.util.compression import lzxpress_huffman
except ImportError:
    missing("the Python module dissect.util", "pip package dissect.util, or set LONGSHORE_PYTHON")

try:
    WIMLIB = ctypes.CDLL("libwim.so.15")
except OSError:
    missing("libwim.so.15", "Debian package libwim15")

SIZE, POINTER = ctypes.c_size_t, ctypes.c_void_p
OUT = ctypes.POINTER(POINTER)
WIMLIB.wimlib_create_compressor.argtypes = (ctypes.c_int, SIZE, ctypes.c_uint, OUT)
WIMLIB.wimlib_create_decompressor.argtypes = (ctypes.c_int, SIZE, OUT)
WIMLIB.wimlib_compress.argtypes = (ctypes.c_char_p, SIZE, ctypes.c_char_p, SIZE, POINTER)
WIMLIB.wimlib_compress.restype = SIZE
WIMLIB.wimlib_decompress.argtypes = (ctypes.c_char_p, SIZE, ctypes.c_char_p, SIZE, POINTER)


def created(create, *arguments):
    handle = POINTER()
    status = create(XPRESS, CHUNK_BYTES_MAX, *arguments, ctypes.byref(handle))
    if status != 0:
        sys.exit(f"wimlib refuses with {status}")
    return handle


def by_wimlib(chunk, plain_len, decompressor):
    out = ctypes.create_string_buffer(plain_len)
    if WIMLIB.wimlib_decompress(chunk, len(chunk), out, plain_len, decompressor) != 0:
        return None
    return out.raw


def by_dissect(chunk):
    """Reads a chunk of 65536 bytes.

    dissect.util knows neither the content's length nor the end symbol. It goes on to another chunk
    after 65536 bytes, so shorter ones are not for it; and it stops where the input ends, with the
    last bits unread. Hence the chunk twice: the first one is read to its end. The last word may be
    there for the end symbol only; then the second chunk must stand in its place.
    """
    for body in (chunk, chunk[:-2]):
        try:
            return lzxpress_huffman.decompress(body * 2)[:CHUNK_BYTES_MAX]
        except (ValueError, LookupError, AttributeError, TypeError):
            continue  # what it says to a chunk that begins in the wrong place
    return None


def main(directory):
    read = by_both = wrote = 0
    decompressor = created(WIMLIB.wimlib_create_decompressor)
    compressors = {
        level: created(WIMLIB.wimlib_create_compressor, level) for level in WIMLIB_LEVELS
    }
    for path in sorted(directory.glob("*.plain")):
        plain = path.read_bytes()
        for chunk_path in sorted(directory.glob(f"{path.stem}.*.chunk")):
            chunk = chunk_path.read_bytes()
            if by_wimlib(chunk, len(plain), decompressor) != plain:
                sys.exit(f"{chunk_path.name}: wimlib reads something else")
            read += 1
            if len(plain) == CHUNK_BYTES_MAX:
                if by_dissect(chunk) != plain:
                    sys.exit(f"{chunk_path.name}: dissect.util reads something else")
                by_both += 1
        for level, compressor in compressors.items():
            out = ctypes.create_string_buffer(len(plain))
            size = WIMLIB.wimlib_compress(plain, len(plain), out, len(plain) - 1, compressor)
            if size:
                path.with_suffix(f".{level}.wimlib").write_bytes(out.raw[:size])
                wrote += 1
    print(f"read {read} by wimlib, {by_both} by dissect.util, wrote {wrote}")


main(pathlib.Path(sys.argv[1]))
