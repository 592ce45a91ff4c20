#!/usr/bin/env python3
"""Two real larders on a real Redis or Valkey server, with everything that may happen to it.

usage: shared_faults.py LARDER DEMO_UPSTREAM REDIS_SERVER

What they share is looked at from outside: a set of tools that one larder has sent in an order goes out in that order
through the other one too (LR003). A larder alone, or cut off, sends each set as it came first to itself.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from fault_rig import Cleanup, Demo, Larder, Process, check, main, wait_until  # noqa: E402  pylint: disable=wrong-import-position

LARDER, DEMO, REDIS = sys.argv[1:4]
PASSWORD = "correct-horse-battery"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server(Process):
    def __init__(self, folder, port, *options):
        super().__init__([REDIS, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder] +
                         (list(options) or ["--port", str(port)]), merged=True)
        wait_until(lambda: self.takes(port), "the server takes no connections")

    @staticmethod
    def takes(port):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    def pause(self):
        os.kill(self.p.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.p.pid, signal.SIGCONT)


def body(names, salt):
    tools = [{"type": "function", "function": {"name": "%s_%s" % (n, salt), "parameters": {}}} for n in names]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": tools}).encode()


class World:
    """A server, the demo upstream, and larders that use both."""

    def __init__(self, clean):
        self.clean, self.seen, self.salt = clean, 0, 0
        self.folder = tempfile.mkdtemp(prefix="larder-shared-")
        clean.folders.append(self.folder)
        self.demo = clean.own(Demo(DEMO))
        self.port = free_port()

    def server(self, *options):
        return self.clean.own(Server(self.folder, self.port, *options))

    def larder(self, *options, url=None, env=None):
        # A long wait: an answer that comes late on a busy machine is no fault. Whoever tests lateness says another.
        full = ["--upstream", self.demo.url, "--threads", "1", "--shared-wait", "1s",
                "--shared-url", url or "redis://127.0.0.1:%d" % self.port]
        return self.clean.own(Larder(LARDER, *(full + list(options)), env=env)).wait_up()

    def send(self, larder, names):
        """The order in which these tools reached the upstream."""
        c = http.client.HTTPConnection(*larder.address, timeout=30)
        c.request("POST", "/v1/chat/completions", body(names, self.salt), {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        c.close()
        check(r.status == 200, "status %d: %s", r.status, data[:300])
        entries, self.seen = self.demo.entries(self.seen)
        check(len(entries) == 1, "the upstream saw %d requests", len(entries))
        got = json.loads(entries[0]["body"])
        return "".join(t["function"]["name"][0] for t in got["tools"])

    def fresh(self):
        """Sets of tools that nobody has seen."""
        self.salt += 1

    def expect(self, larder, names, order, what):
        got = self.send(larder, names)
        check(got == order, "%s: %s went out as %s, not as %s; its log:\n%s", what, names, got, order, larder.text(20))

    def expect_shared(self, a, b, what):
        self.fresh()
        self.expect(a, "xyz", "xyz", what)
        self.expect(b, "zyx", "xyz", what)
        self.expect(a, "yxz", "xyz", what)

    def expect_alone(self, larder, what):
        self.fresh()
        self.expect(larder, "zyx", "zyx", what)
        self.expect(larder, "xyz", "zyx", what)


def up(larder):
    wait_until(lambda: larder.metric("shared_up") == 1, lambda: "not connected:\n" + larder.text(20))


def down(larder):
    wait_until(lambda: larder.metric("shared_up") == 0, "still connected")


def count_lines(larder, event):
    return larder.text().count("event=%s " % event)


def server_comes_and_goes(w):
    """Away at the start, there, killed under way, there again empty: larder answers all the time, and says it once."""
    a, b = w.larder(), w.larder()
    w.expect_alone(a, "before there is a server")
    server = w.server()
    up(a), up(b)
    w.expect_shared(a, b, "the server has come")
    server.kill()
    down(a)
    for _ in range(3):
        w.expect_alone(a, "the server is gone")
    w.fresh()
    w.expect(a, "xyz", "xyz", "put while the server is away")
    check(count_lines(a, "shared_down") == 2 and count_lines(a, "shared_up") == 1, "said too often:\n%s", a.text())
    server = w.server()
    up(a), up(b)
    w.expect(a, "zyx", "xyz", "still known here")
    w.expect(b, "zyx", "xyz", "what the empty server lacks is put again by who knows it")
    w.expect_shared(a, b, "the server is back")
    c = w.larder()
    up(c)
    w.expect(c, "zxy", "xyz", "a larder that has just begun")
    for larder in (a, b, c):
        larder.end_well()
    server.stop()


def server_stands_still(w):
    """Requests go on without an answer of the server, and so do clients that leave meanwhile and the end of larder."""
    server = w.server()
    a, b = w.larder("--shared-wait", "50ms"), w.larder()
    up(a), up(b)
    w.expect_shared(a, b, "at first")
    server.pause()
    w.expect_alone(a, "the server stands still")
    wait_until(lambda: a.metric("shared_late_total") >= 1, "no question was late")
    w.expect_alone(a, "the server still stands still")
    down(a)
    server.go_on()
    up(a), up(b)
    w.expect_shared(a, b, "it goes on")
    server.pause()
    for _ in range(5):  # the client leaves while its request waits for the server
        s = socket.create_connection(b.address)
        data = body("xyz", "left")
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        s.close()
    b.end_well()
    server.go_on()
    a.end_well()


def kept_by_the_store(w):
    """A larder with a store that was away while the other went on learns what it missed."""
    server = w.server()
    a, store = w.larder(), os.path.join(w.folder, "store")
    b = w.larder("--store", store)
    up(a), up(b)
    w.expect_shared(a, b, "at first")
    b.end_well()
    w.fresh()
    w.expect(a, "yzx", "yzx", "while the other is away")
    b = w.larder("--store", store)
    up(b)
    w.expect(b, "xyz", "yzx", "after its restart")
    b.end_well()
    server.kill()
    b = w.larder("--store", store)
    w.expect(b, "zyx", "yzx", "without the server, from its own store")
    b.end_well()
    a.end_well()


def refused(w):
    """A wrong password is said once, without the password; and a right one works, from a file too."""
    server = w.server("--port", str(w.port), "--requirepass", PASSWORD)
    wrong = w.larder("--shared-password-env", "TEST_PASSWORD", env={"TEST_PASSWORD": "not-" + PASSWORD})
    wait_until(lambda: "event=shared_down" in wrong.text(), "nothing is said of a wrong password")
    check("WRONGPASS" in wrong.text(), "the reason is not said:\n%s", wrong.text())
    w.expect_alone(wrong, "with a wrong password")
    check(PASSWORD not in wrong.text(), "the password stands in the log")
    file = os.path.join(w.folder, "password")
    with open(file, "w", encoding="ascii") as f:
        f.write(PASSWORD + "\n")
    a = w.larder("--shared-password-env", "LARDER_REDIS_PASSWORD", env={"LARDER_REDIS_PASSWORD": PASSWORD})
    b = w.larder("--shared-password-file", file, "--threads", "2", url="redis://default@127.0.0.1:%d/0" % w.port)
    up(a)
    wait_until(lambda: b.metric("shared_up") == 2, "not every loop is connected")
    w.expect_shared(a, b, "with a password")
    for larder in (wrong, a, b):
        larder.end_well()
    server.stop()


def with_tls(w):
    """rediss://: the server's certificate is checked."""
    names = [os.path.join(w.folder, n) for n in ("ca.key", "ca.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", names[0], "-out", names[1]],
                   check=True, capture_output=True, timeout=60)
    server = w.server("--port", "0", "--tls-port", str(w.port), "--tls-cert-file", names[1], "--tls-key-file", names[0],
                      "--tls-auth-clients", "no")
    url = "rediss://127.0.0.1:%d" % w.port
    a, b = (w.larder("--shared-ca-file", names[1], url=url) for _ in range(2))
    up(a), up(b)
    w.expect_shared(a, b, "with TLS")
    stranger = w.larder(url=url)
    wait_until(lambda: "event=shared_down" in stranger.text(), "a certificate that nobody vouches for was accepted")
    w.expect_alone(stranger, "without trust in the certificate")
    for larder in (a, b, stranger):
        larder.end_well()
    server.stop()


def run():
    for case in (server_comes_and_goes, server_stands_still, kept_by_the_store, refused, with_tls):
        with Cleanup() as clean:
            case(World(clean))
        print("ok: %s" % case.__name__, flush=True)


main(run)
