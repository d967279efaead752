"""An object store of S3's protocol that holds its objects in memory: the least that a store on the same CPUs can cost.

    held.py [CERTIFICATE KEY]

prints its port. It checks no signature and has one bucket, the first part of each path. GET / answers the bytes that it
holds, DELETE / forgets them. It is for measuring clients: what is in it ends with it.

Invariants
- An object is there after the answer to its PUT or to its upload's completion, whole, and not before.
- A body is read into memory of its own length at once, so the store's work is one copy out of the kernel, and TLS.

Leaves to others: starting it, and what is measured (`store.py`, `rows.py`).
"""

import hashlib, re, socket, ssl, sys, threading, urllib.parse
from email.utils import formatdate
from xml.sax.saxutils import escape

NOT_FOUND = b"<Error><Code>NoSuchKey</Code></Error>"


class Objects:
    """Objects by key: (the parts, their length, headers). Uploads by number: parts by number, headers."""

    def __init__(self):
        self.lock, self.objects, self.uploads, self.count = threading.Lock(), {}, {}, 0

    def put(self, key, parts, kept):
        with self.lock:
            self.count += 1
            tag = hashlib.md5(b"%d" % self.count).hexdigest()
            self.objects[key] = (parts, sum(map(len, parts)), dict(kept, ETag=f'"{tag}"'))
            return f'"{tag}"'

    def begin(self, kept):
        with self.lock:
            self.count += 1
            self.uploads[str(self.count)] = ({}, kept)
            return str(self.count)

    def bytes(self):
        return sum(length for _, length, _ in list(self.objects.values()))


def ranged(parts, first, last):
    """The pieces of `parts` from byte `first` to byte `last`."""
    at = 0
    for part in parts:
        begin, end = max(first - at, 0), min(last + 1 - at, len(part))
        if begin < end:
            yield memoryview(part)[begin:end]
        at += len(part)


class Connection:
    def __init__(self, stream, objects):
        self.stream, self.objects, self.rest = stream, objects, b""

    def serve(self):
        try:
            while self.request():
                pass
        except (OSError, ValueError):
            pass
        finally:
            self.stream.close()

    def head(self):
        while b"\r\n\r\n" not in self.rest:
            more = self.stream.recv(1 << 16)
            if not more:
                return None
            self.rest += more
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        return head.decode("latin-1")

    def body(self, length):
        content = bytearray(length)
        view = memoryview(content)
        done = min(length, len(self.rest))
        view[:done], self.rest = self.rest[:done], self.rest[done:]
        while done < length:
            got = self.stream.recv_into(view[done:])
            if not got:
                raise ValueError("a body was cut")
            done += got
        return content

    def answer(self, status, headers=(), pieces=(), length=None):
        length = sum(map(len, pieces)) if length is None else length
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {length}", f"Date: {formatdate(usegmt=True)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.stream.sendall("\r\n".join(lines + ["", ""]).encode("latin-1"))
        for piece in pieces:
            self.stream.sendall(piece)

    def request(self):
        head = self.head()
        if head is None:
            return False
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        if headers.get("expect"):
            self.stream.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self.body(int(headers.get("content-length", 0)))
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        key = urllib.parse.unquote(url.path)
        kept = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
        getattr(self, f"do_{method.lower()}")(key, query, headers, body, kept)
        return True

    def do_put(self, key, query, headers, body, kept):
        if "partNumber" in query:
            self.objects.uploads[query["uploadId"]][0][int(query["partNumber"])] = body
            return self.answer("200 OK", [("ETag", f'"part-{query["partNumber"]}"')])
        self.answer("200 OK", [("ETag", self.objects.put(key, [body], kept))])

    def do_post(self, key, query, headers, body, kept):
        if "uploads" in query:
            number = self.objects.begin(kept)
            text = f"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>{escape(key)}</Key><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
        else:
            parts, kept = self.objects.uploads.pop(query["uploadId"])
            tag = self.objects.put(key, [parts[number] for number in sorted(parts)], kept)
            text = f"<CompleteMultipartUploadResult><Key>{escape(key)}</Key><ETag>{escape(tag)}</ETag></CompleteMultipartUploadResult>"
        self.answer("200 OK", pieces=[text.encode()])

    def do_delete(self, key, query, headers, body, kept):
        if key == "/":
            self.objects.objects.clear()
        self.objects.objects.pop(key, None)
        self.objects.uploads.pop(query.get("uploadId"), None)
        self.answer("204 No Content")

    def do_head(self, key, query, headers, body, kept):
        self.do_get(key, query, headers, body, kept, is_head=True)

    def do_get(self, key, query, headers, body, kept, is_head=False):
        if key == "/":
            return self.answer("200 OK", pieces=[str(self.objects.bytes()).encode()])
        if key not in self.objects.objects:
            if "list-type" in query or "uploads" in query:
                return self.listing(key, query)
            return self.answer("404 Not Found", length=len(NOT_FOUND), pieces=() if is_head else [NOT_FOUND])
        parts, length, kept = self.objects.objects[key]
        named = [*kept.items(), ("Last-Modified", formatdate(usegmt=True)), ("Accept-Ranges", "bytes")]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        if is_head or not asked:
            return self.answer("200 OK", named, () if is_head else parts, length)
        first, last = int(asked[1]), min(int(asked[2] or length - 1), length - 1)
        named.append(("Content-Range", f"bytes {first}-{last}/{length}"))
        self.answer("206 Partial Content", named, ranged(parts, first, last), last + 1 - first)

    def listing(self, bucket, query):
        if "uploads" in query:
            return self.answer("200 OK", pieces=[b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"])
        prefix = f"{bucket.rstrip('/')}/{query.get('prefix', '')}"
        start = len(bucket.rstrip("/")) + 1
        rows = [f"<Contents><Key>{escape(key[start:])}</Key><Size>{length}</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
                f"<ETag>{escape(kept['ETag'])}</ETag></Contents>"
                for key, (_, length, kept) in sorted(self.objects.objects.items()) if key.startswith(prefix)]
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>"
        self.answer("200 OK", pieces=[text.encode()])


def main():
    context = None
    if sys.argv[1:]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[1:3])
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    objects = Objects()

    def connected(stream):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if context:
                stream = context.wrap_socket(stream, server_side=True)
        except OSError:
            return stream.close()
        Connection(stream, objects).serve()

    while True:
        threading.Thread(target=connected, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
