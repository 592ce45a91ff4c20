"""What the tests of a served model share: a larder with an upstream of kind engine, clients, and what its metrics say.

The model is the trained one of tests/models/tiny-v3: 512 tokens of context, quick enough for thousands of answers. Every
wait has a limit; nothing is asserted about how long things take.
"""
import http.client
import json
import os
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reload"))
import reload_parts   # noqa: E402
from played_upstream import PlayedUpstream   # noqa: E402,F401
from reload_parts import Larder, check, run   # noqa: E402,F401

LIMIT_S = reload_parts.LIMIT_S = 240   # a model on a busy machine, built for debugging, takes its time

MODEL = os.path.join(HERE, "..", "models", "tiny-v3")
WORDS = "The old man walked down to the river and looked at the water for a long time before he said anything. "
# Under sanitizers the same tests run with fewer repetitions.
SMALL = os.environ.get("LARDER_TEST_SMALL") == "1"


def until(fact, what):
    return reload_parts.until(fact, what, LIMIT_S)


reload_parts.until.__defaults__ = (LIMIT_S,)   # also where a larder waits for its log


class Missed(Exception):
    """An answer was over before the moment that a test is about."""


def scene(play):
    """Plays it again where the moment was missed: how fast a model and a client are is nobody's promise."""
    for _ in range(30):
        try:
            return play()
        except Missed:
            continue
    raise AssertionError("the moment was never met")


def config(engine="", extra="", upstream=""):
    """One engine; `engine` are further members of its map, `upstream` of the upstream, `extra` further lines. Who waits for
    the engine waits as long as it takes, unless queue_wait is given."""
    if "queue_wait" not in engine:
        engine += ", queue_wait: 0"
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\n"
            "upstreams:\n  - {name: tiny, kind: engine%s, engine: {model: '%s'%s}}\n%s" % (upstream, MODEL, engine, extra))


def long_text(tokens):
    """Text of about so many tokens; the model's words are about 1.3 tokens each."""
    words = (WORDS * (tokens // 10 + 1)).split()
    return " ".join(words[:int(tokens / 1.35)])


def chat(text="Once upon a time", **fields):
    return dict({"model": "tiny-v3", "messages": [{"role": "user", "content": text}], "temperature": 0}, **fields)


class Answer:
    def __init__(self, response, data):
        self.status = response.status
        self.headers = response.headers
        self.data = data
        self.json = json.loads(data) if response.headers.get("Content-Type", "").startswith("application/json") and data else None
        self.events = []
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            self.events = [e[len("data: "):] for e in data.decode().split("\n\n") if e.startswith("data: ")]
        self.chunks = [json.loads(e) for e in self.events if e != "[DONE]"]

    def text(self):
        """What the model said, streamed or whole, of choice 0."""
        if self.json:
            choice = self.json["choices"][0]
            return choice["message"]["content"] if "message" in choice else choice["text"]
        out = []
        for chunk in self.chunks:
            for choice in chunk["choices"]:
                if choice["index"] == 0:
                    out.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
        return "".join(out)


def ask(larder, path, body=None, method=None, headers=None, timeout=LIMIT_S):
    c = http.client.HTTPConnection("127.0.0.1", larder.port, timeout=timeout)
    try:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        c.request(method or ("GET" if data is None else "POST"), path, data, dict(headers or {}))
        r = c.getresponse()
        return Answer(r, r.read())
    finally:
        c.close()


def ask_chat(larder, *args, headers=None, **fields):
    return ask(larder, "/v1/chat/completions", chat(*args, **fields), headers=headers)


class Raw:
    """A connection whose end is under control: what was sent, when it closes, and how."""

    def __init__(self, larder, path, body, room=None):
        data = json.dumps(body).encode()
        self.sock = socket.socket()
        if room:   # of the kernel for what was not read yet
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(("127.0.0.1", larder.port))
        self.sock.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        self.got = b""

    def read_until(self, mark):
        while mark not in self.got:
            part = self.sock.recv(65536)
            check(part, "closed before %r; got %r" % (mark, self.got[-300:]))
            self.got += part
        return self.got

    def read_all(self):
        """To the end of the body of a chunked answer, or of the connection."""
        while b"\r\n0\r\n\r\n" not in self.got:
            part = self.sock.recv(65536)
            if not part:
                break
            self.got += part
        return self.got

    def close(self, reset=False):
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def metric_lines(larder):
    c = http.client.HTTPConnection("127.0.0.1", larder.admin_port, timeout=LIMIT_S)
    try:
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
    finally:
        c.close()
    return [line[len("larder_"):].rsplit(" ", 1) for line in text.split("\n") if line.startswith("larder_")]


def metrics(larder):
    return {name: float(value) for name, value in metric_lines(larder) if "{" not in name}


def metrics_by(larder, wanted):
    """Of one metric with labels: each of its lines by what stands in braces."""
    return {name[len(wanted):]: float(value) for name, value in metric_lines(larder) if name.startswith(wanted + "{")}


def idle(larder):
    """Waits until the engine has nothing to do; then every page that is held is one of a kept prefix."""
    def quiet():
        m = metrics(larder)
        busy = m["engine_waiting"] + m["engine_prefilling"] + m["engine_decoding"] + m["requests_active"]
        return m if busy == 0 and m["buffered_bytes"] == 0 else None
    m = until(quiet, "an idle engine")
    check(m["engine_pages_held"] == m["engine_prefix_pages"], "pages are lost:", m)
    check(m["engine_prefix_pages_idle"] == m["engine_prefix_pages"], "prefixes have holders:", m)
    return m
