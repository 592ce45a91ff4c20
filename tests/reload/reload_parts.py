"""What the reload tests share: a scripted upstream, a larder process, a client, and a runner for the tests of one file.

Every wait has a limit; ports are free ones of 127.0.0.1. A test is a function that takes a folder of its own; it fails by
an exception. What a test starts it ends in `with` blocks; a larder that does not end with 0 on SIGTERM, or writes a
sanitizer report, fails the test it belongs to.
"""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT_S = 20
REPORT = re.compile(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:)")
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'


def check(fact, *words):
    if not fact:
        raise AssertionError(" ".join(str(w) for w in words))


def until(fact, what, limit_s=LIMIT_S):
    """Waits for fact() to be true; returns what it returned."""
    end = time.monotonic() + limit_s
    while True:
        value = fact()
        if value:
            return value
        check(time.monotonic() < end, "in vain, for %d s, waited for:" % limit_s, what)
        time.sleep(0.01)


class Answerer(BaseHTTPRequestHandler):
    """Says which upstream it is. A model named held... is answered once the upstream's `go` is set."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.owner.count(1)

    def finish(self):
        self.server.owner.count(-1)
        with contextlib.suppress(OSError):
            super().finish()

    def plain(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.plain(json.dumps({"from": self.server.owner.name}).encode())

    def do_POST(self):
        up = self.server.owner
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = json.loads(body)
        up.saw(body)
        if up.dies:   # with the request read, and no byte of an answer
            self.close_connection = True
            return
        held = asked["model"].startswith("held")
        if not asked.get("stream"):
            if held:
                up.go.wait(LIMIT_S)
            self.plain(json.dumps({"from": up.name, "bytes": len(body), "model": asked["model"]}).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, word in enumerate((up.name, "middle", "last")):
            self.chunk(EVENT % word.encode())
            if held and i == 0:
                up.go.wait(LIMIT_S)
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass   # a connection that larder closed


class Upstream:
    def __init__(self, name):
        self.name = name
        self.go = threading.Event()
        self.lock = threading.Lock()
        self.dies = False
        self.connections = 0
        self.bodies = []
        self.server = Server(("127.0.0.1", 0), Answerer)
        self.server.owner = self
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def count(self, n):
        with self.lock:
            self.connections += n

    def saw(self, body):
        with self.lock:
            self.bodies = self.bodies[-99:] + [body]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go.set()
        self.server.shutdown()
        self.server.server_close()


class Larder:
    """A larder process with its configuration file, started and ended by `with`."""
    binary = None

    def __init__(self, folder, text, **options):
        self.folder = folder
        self.file = os.path.join(folder, "larder.yaml")
        self.options = options
        self.lines = []
        self.lock = threading.Lock()
        self.process = None
        self.write(text)

    def write(self, text):
        with open(self.file + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(self.file + ".new", self.file)

    def __enter__(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LARDER_")}
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
        self.process = subprocess.Popen([self.binary, "serve", "-c", self.file], stdin=subprocess.DEVNULL, cwd=self.folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        self.port = int(self.find(r"event=listening address=\S+:(\d+)").group(1))
        self.admin_port = int(self.find(r"event=admin_listening address=\S+:(\d+)").group(1))
        return self

    def __exit__(self, kind, *_):
        try:
            code = self.stop()
            if kind is None:
                check(code == 0, "larder ended with", code, "; its log:\n" + self.log()[-4000:])
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join(5)
            report = REPORT.search(self.log())
            if report:
                print("larder's log:\n" + self.log()[-6000:])
            check(not report, "a sanitizer report")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def read_log(self):
        for row in self.process.stderr:
            with self.lock:
                self.lines.append(row.decode("utf-8", "replace").rstrip("\n"))

    def log(self, since=0):
        with self.lock:
            return "\n".join(self.lines[since:])

    def find(self, pattern, since=0):
        def look():
            check(self.process.poll() is None, "larder ended:\n" + self.log()[-3000:])
            return re.search(pattern, self.log(since))
        return until(look, "%s in the log:\n%s" % (pattern, self.log(since)[-3000:]))

    def reload(self, text=None, event="reloaded"):
        """SIGHUP, and the log lines from then on, up to the one that tells how it went."""
        if text is not None:
            self.write(text)
        since = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        self.find(r"event=(reloaded|reload_failed)\b", since)
        said = self.log(since)
        check("event=%s" % event in said, "expected", event, "but the log says:\n" + said)
        return said

    def client(self, **options):
        return Client(self.port, **options)

    def ask(self, model="m", **options):
        """One request on a connection of its own: (status, answer)."""
        with self.client(tls=self.options.get("tls", False)) as c:
            return c.ask(model, **options)

    def now_from(self, name, **options):
        """The loops take a new configuration over just after the log says so."""
        until(lambda: self.ask(**options)[1].get("from") == name, "answers from upstream " + name)

    def metric(self, name):
        c = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=LIMIT_S)
        with contextlib.closing(c):
            c.request("GET", "/metrics")
            text = c.getresponse().read().decode()
        return float(re.search(r"^%s (\S+)$" % name, text, re.M).group(1))

    def status(self, name):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as f:
            return int(re.search(r"^%s:\s+(\d+)" % name, f.read(), re.M).group(1))


class Client:
    """One connection to larder."""

    def __init__(self, port, tls=False):
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.http = http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=context)
        else:
            self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        self.http.connect()
        self.http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.http.auto_open = 0   # a connection that larder closes is an error, not a reason for another one

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def certificate(self):
        return self.http.sock.getpeercert(binary_form=True)

    def start(self, model="m", stream=False, key=None, path="/v1/chat/completions", host=None, text="hello", pause=None):
        """Sends a request; `pause` is called with half of the body sent."""
        body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}).encode()
        self.http.putrequest("POST", path, skip_host=host is not None)
        if host:
            self.http.putheader("Host", host)
        if key:
            self.http.putheader("Authorization", "Bearer " + key)
        self.http.putheader("Content-Length", str(len(body)))
        self.http.endheaders()
        half = len(body) // 2 if pause else 0
        if pause:
            self.http.send(body[:half])
            pause()
        self.http.send(body[half:])

    def answer(self):
        r = self.http.getresponse()
        data = r.read()
        return r.status, json.loads(data)

    def ask(self, model="m", **options):
        self.start(model, **options)
        return self.answer()


def config(upstream, extra="", more=""):
    """A configuration with one upstream; `more` are further members of the upstream."""
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\n"
            "upstreams:\n  - {name: up, url: '%s', profile: generic%s}\n%s" % (upstream.url, more, extra))


def run(tests):
    """The program: LARDER [PART OF A NAME]. Exit 0: all passed; 1: failures; 77: nothing could be run."""
    if len(sys.argv) < 2:
        sys.exit("usage: %s LARDER [PART OF A TEST'S NAME]" % sys.argv[0])
    Larder.binary = os.path.abspath(sys.argv[1])
    chosen = [t for t in tests if len(sys.argv) < 3 or sys.argv[2] in t.__name__]
    failed = []
    for test in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="larder-reload-") as folder:
            try:
                test(folder)
                word = "ok"
            except Exception:   # whatever it is, the next test runs
                traceback.print_exc(file=sys.stdout)
                failed.append(test.__name__)
                word = "FAILED"
        print("%-6s %s (%.1f s)" % (word, test.__name__, time.monotonic() - began), flush=True)
    print("%d tests, %d failed" % (len(chosen), len(failed)))
    sys.exit(1 if failed or not chosen else 0)
