"""Object stores on this machine, as the bucket rows use them, by http and by https: versitygw over a directory, and one that
holds its objects in memory."""

import http.client, os, shutil, socket, ssl, subprocess, sys, time

from . import machine

BUCKET, KEY, SECRET = "bench", "bench-key", "bench-secret"
LATENCY_MS = 10
FAR_MS = 20


class Store:
    """`scripts/setup.sh` installs versitygw. The store writes to the disk that the cluster and the restore use, too."""

    def __init__(self, work, binary, cpu=None):
        """`cpu`: the one on which all of its programs run."""
        self.on = ["taskset", "--cpu-list", str(cpu)] if cpu is not None else []
        self.work, self.root, self.binary = os.path.abspath(work), f"{os.path.abspath(work)}/store", os.path.abspath(binary)
        self.certificate, self.key = f"{self.work}/store.pem", f"{self.work}/store.key"
        self.bucket, self.ports = BUCKET, {}
        self.servers = []

    def url(self, scheme):
        """`distant` is the way by http on which requests take LATENCY_MS longer, `far` the one by https with FAR_MS; `held` and
        `held-tls` are the store in memory."""
        protocol = dict(distant="http", far="https", held="http", **{"held-tls": "https"}).get(scheme, scheme)
        return f"{protocol}://127.0.0.1:{self.ports[scheme]}"

    def environment(self, scheme):
        """For programs that take AWS's variables."""
        return dict(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1", AWS_ENDPOINT_URL=self.url(scheme),
                    AWS_CA_BUNDLE=self.certificate, LONGSHORE_ALLOW_HTTP="1")

    def start(self):
        os.makedirs(f"{self.root}/{BUCKET}", exist_ok=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                        "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
                        "-keyout", self.key, "-out", self.certificate],
                       check=True, capture_output=True)
        os.chmod(self.certificate, 0o644)
        for scheme, options in (("http", []), ("https", ["--cert", self.certificate, "--key", self.key])):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.ports[scheme] = probe.getsockname()[1]
            log = open(f"{self.work}/store-{scheme}.log", "w")
            self.servers.append(subprocess.Popen(
                [*self.on, self.binary, "--port", f"127.0.0.1:{self.ports[scheme]}", *options, "posix", self.root], stdout=log, stderr=log,
                env=dict(os.environ, ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET)))
        for name, program, options in (("distant", "distance.py", [str(self.ports["http"]), str(LATENCY_MS)]),
                                       ("far", "distance.py", [str(self.ports["https"]), str(FAR_MS)]),
                                       ("held", "held.py", []), ("held-tls", "held.py", [self.certificate, self.key])):
            path = f"{os.path.dirname(os.path.abspath(__file__))}/{program}"
            server = subprocess.Popen([*self.on, sys.executable, path, *options], stdout=subprocess.PIPE, text=True)
            self.servers.append(server)
            self.ports[name] = int(server.stdout.readline())
        for port in self.ports.values():
            for _ in range(200):
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                raise SystemExit(f"versitygw does not start: see {self.work}/store-http.log and store-https.log")

    def stop(self):
        for server in self.servers:
            server.terminate()
            server.wait()

    def cpu(self):
        return sum(machine.tree_cpu(server.pid) for server in self.servers)

    def ask_held(self, scheme, method):
        """What the store in memory answers about all that it holds."""
        server = ("127.0.0.1", self.ports[scheme])
        context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPConnection(*server) if scheme == "held" else http.client.HTTPSConnection(*server, context=context)
        connection.request(method, "/")
        answer = connection.getresponse().read()
        connection.close()
        return answer

    def size(self):
        return machine.size(f"{self.root}/{BUCKET}") + sum(int(self.ask_held(scheme, "GET")) for scheme in ("held", "held-tls"))

    def read(self):
        machine.read(f"{self.root}/{BUCKET}")

    def empty(self):
        for name in os.listdir(f"{self.root}/{BUCKET}"):
            path = f"{self.root}/{BUCKET}/{name}"
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for scheme in ("held", "held-tls"):
            self.ask_held(scheme, "DELETE")
