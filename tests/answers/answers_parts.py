"""What the tests of kept answers share: an upstream that counts what it is asked, and a larder before it.

Each answer of the upstream has a number of its own, and the digest of the body that it answers: whoever gets a number that
was made for another body was given somebody else's answer.
"""
import contextlib
import hashlib
import http.client
import json
import os
import socket
import struct
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reload"))
import reload_parts   # noqa: E402
from played_upstream import PlayedUpstream   # noqa: E402
from reload_parts import Larder, check, run   # noqa: E402,F401

LIMIT_S = reload_parts.LIMIT_S = 120
SMALL = os.environ.get("LARDER_TEST_SMALL") == "1"


def until(fact, what):
    return reload_parts.until(fact, what, LIMIT_S)


reload_parts.until.__defaults__ = (LIMIT_S,)


class Upstream(PlayedUpstream):
    """Answers chat, responses and messages. While `hold` is clear it keeps its answers back; `mood(number)` may return "cut",
    "break", "large", "flood" or "fail" in place of "well"."""

    def __init__(self):
        self.asked, self.bodies = 0, {}
        self.hold = threading.Event()
        self.hold.set()
        self.mood = lambda number: "well"
        super().__init__(LIMIT_S)
        self.url = "http://127.0.0.1:%d" % self.port

    def close(self):
        self.hold.set()
        super().close()

    def play(self, sock, first, body):
        with self.lock:
            self.asked += 1
            number = self.asked
            self.bodies[hashlib.sha256(body).hexdigest()] = self.bodies.get(hashlib.sha256(body).hexdigest(), 0) + 1
        self.hold.wait(LIMIT_S)
        mood = self.mood(number)
        if mood == "fail":
            sock.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}")
            return True
        stream = json.loads(body).get("stream") is True
        if mood in ("large", "flood"):   # seven megabytes, or as much as is taken and no end
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            event = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"a" * 70000)
            with contextlib.suppress(OSError):
                for _ in range(100 if mood == "large" else 10000):
                    sock.sendall(event)
                sock.sendall(b"data: [DONE]\n\n")
            return False
        text, kind = self.text(first, stream, {"n": number, "sha": hashlib.sha256(body).hexdigest()})
        if mood == "break":   # behind content
            event = b'data: {"choices":[{"index":0,"delta":{"content":"Once"}}]}\n\n'
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                         b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(event), event))
            return False
        if mood == "cut":
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(text), text[:-9]))
            return False
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(text), text))
        return True

    @staticmethod
    def text(first, stream, what):
        said = json.dumps(what)
        if "/messages" in first:
            whole = {"type": "message", "content": [{"type": "text", "text": said}], "stop_reason": "end_turn"}
            events = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": said}},
                      {"type": "message_stop"}]
        elif "/responses" in first:
            whole = {"object": "response", "status": "completed", "output": [{"type": "message", "text": said}]}
            events = [{"type": "response.output_text.delta", "delta": said},
                      {"type": "response.completed", "response": {"status": "completed"}}]
        else:
            whole = {"choices": [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}],
                     "usage": {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}}}
            events = [{"choices": [{"index": 0, "delta": {"content": said}, "finish_reason": "stop"}]}]
        if not stream:
            return json.dumps(whole).encode(), b"application/json"
        text = b"".join(b"data: %s\n\n" % json.dumps(e).encode() for e in events)
        return text + (b"data: [DONE]\n\n" if "choices" in whole else b""), b"text/event-stream"


def number_in(data):
    """The upstream's number, and the digest of the body that it saw."""
    text = data.decode().replace("\\", "")
    at = text.index('{"n":')
    said = json.loads(text[at:text.index("}", at) + 1])
    return said["n"], said["sha"]


def config(upstream, answers="{ttl: 10m, coalesce: true}", threads=1, extra=""):
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: %d\n"
            "upstreams:\n  - {name: up, url: '%s', profile: generic, retry: {attempts: 1}, breaker: {open_max: 0}}\n"
            "routes:\n  - {upstream: up, answers: %s}\n%s" % (threads, upstream.url, answers, extra))


def chat(text="hello", **fields):
    return dict({"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}]}, **fields)


class Connection:
    """A client whose end is under control."""

    def __init__(self, larder, room=None):
        self.http = http.client.HTTPConnection("127.0.0.1", larder.port, timeout=LIMIT_S)
        if room:   # of the kernel for what was not read yet
            self.http.sock = socket.socket()
            self.http.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            self.http.sock.settimeout(LIMIT_S)
            self.http.sock.connect(("127.0.0.1", larder.port))

    def send(self, body, path="/v1/chat/completions", headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.http.request("POST", path, data, dict({"Content-Type": "application/json"}, **(headers or {})))

    def receive(self):
        """(status, x-larder-cache, body)"""
        r = self.http.getresponse()
        return r.status, r.headers.get("x-larder-cache"), r.read()

    def ask(self, body, path="/v1/chat/completions", headers=None):
        self.send(body, path, headers)
        return self.receive()

    def reset(self):
        self.http.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.http.close()

    def close(self):
        self.http.close()


def ask(larder, body, path="/v1/chat/completions", headers=None):
    c = Connection(larder)
    try:
        return c.ask(body, path, headers)
    finally:
        c.close()


def metric(larder, name):
    return int(larder.metric("larder_" + name))


def quiet(larder):
    """Nobody waits, and no memory of requests is held."""
    names = ("requests_active", "answers_waiting", "buffered_bytes")
    until(lambda: all(metric(larder, n) == 0 for n in names), "no request under way")


def together(count, play):
    """play(number) in so many threads; what they raise is raised."""
    failed = []

    def one(number):
        try:
            play(number)
        except Exception as why:   # pylint: disable=broad-except
            failed.append(why)
    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT_S)
    check(not any(t.is_alive() for t in threads), "a client that waits")
    if failed:
        raise failed[0]
