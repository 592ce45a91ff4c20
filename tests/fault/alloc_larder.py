#!/usr/bin/env python3
"""larder while its memory runs out: 1 of N allocations of its own code (and of cJSON's) fails, for several N.

    alloc_larder.py LARDER DEMO_UPSTREAM PRELOAD [SECONDS] [--seed N]

No crash, no hang, no wrong byte: a client gets an answer that is right, an error in words, or a closed connection. Once
allocations work again everything does, nothing is left active, buffered or open; SIGTERM ends it with 0, also while
allocations fail. libuv, OpenSSL and libc are spared (preload_alloc.c says why).
"""
import argparse
import http.client
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fault_rig as rig  # noqa: E402

THREADS = 4
ANSWER = "The answer that must come whole, or not at all. " * 200
ODDS = (2, 9, 40, 150)
HANG_S = 20


class Control:
    """The page shared with the preloaded library."""

    def __init__(self, path, seed):
        with open(path, "wb") as f:
            f.write(struct.pack("<IIQQ", 0, seed & 0xffffffff, 0, 0))
        with open(path, "r+b") as f:
            self.page = mmap.mmap(f.fileno(), 24)
        self.path = path

    def set_odds(self, one_in):
        self.page[0:4] = struct.pack("<I", one_in)

    def counts(self):
        return struct.unpack("<QQ", self.page[8:24])


def chat_body(chance, name):
    messages = [{"role": "system", "content": "You are %s. Current time: 2031-04-%02d 10:00:%02d" % (
        name, chance.randrange(1, 28), chance.randrange(60))}]
    for i in range(chance.randrange(4)):
        messages += [{"role": "user", "content": "Question %d" % i}, {"role": "assistant", "content": "Answer %d" % i}]
    messages.append({"role": "user", "content": "x" * chance.choice((10, 10, 300, 300, 3000, 3000, 90000, 1500000))})
    tools = [{"type": "function", "function": {"name": n}} for n in ("a", "b", "c", "d")]
    chance.shuffle(tools)
    return {"model": "m", "messages": messages, "tools": tools, "stream": chance.random() < 0.5}


class Client:
    """One client's requests, one after another, on a connection that is kept as long as it lives."""

    def __init__(self, address, seed):
        self.address, self.chance = address, random.Random(seed)
        self.connection = None
        self.right = self.errors = self.closed = 0

    def request(self):
        """Method, path, body, and what a status of 200 must have brought."""
        kind = self.chance.random()
        if kind < 0.70:
            body = chat_body(self.chance, "client")
            return "POST", "/v1/chat/completions", json.dumps(body), "stream" if body["stream"] else "chat"
        if kind < 0.80:
            body = {"model": "m", "max_tokens": 9, "system": "Be brief.", "stream": self.chance.random() < 0.5,
                    "messages": [{"role": "user", "content": "Hi"}]}
            return "POST", "/v1/messages", json.dumps(body), "messages-stream" if body["stream"] else "messages"
        if kind < 0.90:
            return "GET", "/v1/models", None, "models"
        return "POST", "/v1/chat/completions", '{"model": "m", "messages": [', "error"

    def one(self):
        method, path, body, kind = self.request()
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.address, timeout=HANG_S)
        try:
            self.connection.request(method, path, body)
            r = self.connection.getresponse()
            data = r.read()
        except TimeoutError:
            raise rig.Failed("%s %s (%s) had no end after %d s" % (method, path, kind, HANG_S)) from None
        except (OSError, http.client.HTTPException):
            self.closed += 1
            self.drop()
            return
        if r.will_close:
            self.drop()
        self.look(kind, r.status, data)

    def drop(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def look(self, kind, status, data):
        if status != 200:
            rig.check(status in (400, 500, 502, 503, 504, 413), "status %d: %s", status, data[:300])
            rig.check(not data or "message" in json.loads(data)["error"], "an error without words: %s", data[:300])
            self.errors += 1
            return
        self.right += 1
        if kind == "chat":
            rig.check(json.loads(data)["choices"][0]["message"]["content"] == ANSWER, "a wrong answer: %s", data[:300])
        elif kind == "stream":
            self.look_stream(data, b"data: [DONE]\n\n", lambda e: e["choices"][0]["delta"].get("content") or "")
        elif kind == "messages":
            rig.check(json.loads(data)["content"][0]["text"] == ANSWER, "a wrong answer: %s", data[:300])
        elif kind == "messages-stream":
            self.look_stream(data, b"message_stop", lambda e: e.get("delta", {}).get("text") or "")
        elif kind == "models":
            rig.check("data" in json.loads(data), "a wrong list of models: %s", data[:300])
        else:
            raise rig.Failed("half a body was answered with 200")

    def look_stream(self, data, last, text_of):
        """A stream that ends in order is whole."""
        if last not in data[-200:]:
            rig.check(b'"error"' in data[-2000:], "a stream that ends in order without its end: %s", data[-300:])
            self.right -= 1
            self.errors += 1
            return
        text = ""
        for row in data.split(b"\n"):
            if row.startswith(b"data: {"):
                event = json.loads(row[6:])
                if event.get("choices") != []:
                    text += text_of(event)
        rig.check(text == ANSWER, "a stream with another text: %s", text[:300])


class Round:
    def __init__(self, options, folder, cleanup, upstream):
        self.o, self.folder, self.cleanup = options, folder, cleanup
        self.upstream, self.demo = upstream   # options; the process, if its log can be read
        self.kept = 0

    def start(self, seed):
        control = Control(os.path.join(self.folder, "control"), seed)
        env = {"FAULT_CONTROL": control.path}
        # The library must come before the sanitizer's, or its malloc is never asked.
        env["LD_PRELOAD"] = self.o.preload
        env["ASAN_OPTIONS"] = ("verify_asan_link_order=0:allocator_may_return_null=1:" +
                               os.environ.get("ASAN_OPTIONS", ""))
        larder = self.cleanup.own(rig.Larder(
            self.o.larder, *self.upstream, "--store", os.path.join(self.folder, "store"), "--threads", "2",
            "--log-level", "info", "--log-access", "false", env=env))
        return larder.wait_up(), control

    def play(self, larder, seed, seconds):
        failures, clients = [], [Client(larder.address, "%d %d" % (seed, i)) for i in range(THREADS)]
        limit = time.monotonic() + seconds

        def run(client):
            try:
                while time.monotonic() < limit and not failures:
                    client.one()
            except (rig.Failed, ValueError, KeyError, TypeError) as why:
                failures.append(repr(why))
            client.drop()

        threads = [threading.Thread(target=run, args=(c,)) for c in clients]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        rig.check(not failures, "%s; larder (alive: %s) says:\n%s", failures[:1], larder.alive(), larder.text(60))
        rig.check(larder.alive(), "larder died with %s:\n%s", larder.p.poll(), larder.text(60))
        return clients

    def look_upstream(self):
        """What arrived there is whole, edited or not."""
        for e in self.demo.entries(0)[0] if self.demo else []:
            if e["method"] == "POST":
                messages = json.loads(e["body"])["messages"]
                rig.check(messages[-1]["content"][:1] in "xH", "a body arrived without its question: %s", e["body"][:500])

    def run(self, one_in, seed, seconds):
        larder, control = self.start(seed)
        self.play(larder, seed, 0.3)
        control.set_odds(one_in)
        clients = self.play(larder, seed, seconds)
        for more in range(1, 6):   # a slow build makes few requests
            if control.counts()[1] > 5:
                break
            clients += self.play(larder, seed + 1000 * more, seconds)
        for _ in range(20):   # the admin listener too
            try:
                rig.get(larder.admin, "/metrics")
            except (OSError, http.client.HTTPException):
                pass
        control.set_odds(0)
        calls, failed = control.counts()
        rig.check(failed > 5, "%d of %d allocations failed: this shows nothing", failed, calls)
        after = self.play(larder, seed + 1, 0.5)
        self.look_upstream()
        refused = sum(c.closed for c in after)
        wanted = ("requests_active", "client_connections", "buffered_bytes", "answers_waiting")
        rig.wait_until(lambda: all(larder.metric(n) == 0 for n in wanted), lambda: "1 in %d: not 0: %s" % (
            one_in, {n: larder.metric(n) for n in wanted}))
        rig.check(refused == 0 and sum(c.right for c in after) > 0, "1 in %d: with memory again, %d connections were "
                  "closed; larder's log:\n%s", one_in, refused, larder.text(20))
        self.kept = larder.metric("answers_hits_total") + larder.metric("answers_shared_total")
        control.set_odds(one_in)
        larder.end_well()
        return "1 in %d: %d of %d allocations failed; %d answers right, %d errors, %d connections closed" % (
            one_in, failed, calls, sum(c.right for c in clients), sum(c.errors for c in clients),
            sum(c.closed for c in clients))


def kept_answers(folder, demo):
    """The plain upstream, with a route that keeps answers and lets requests wait for one another."""
    config = os.path.join(folder, "answers.yaml")
    with open(config, "w", encoding="ascii") as f:
        f.write("upstreams:\n  - {name: u, url: '%s', profile: generic}\n"
                "routes:\n  - {upstream: u, answers: {ttl: 1m, sampled: true, coalesce: true}}\n" % demo.url)
    return ["-c", config], demo


def tls_upstream(o, folder, cleanup):
    """Options for an upstream behind TLS; none where no certificate can be made."""
    key, crt = os.path.join(folder, "key.pem"), os.path.join(folder, "crt.pem")
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=fault test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        key, "-out", crt], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        return None
    demo = cleanup.own(rig.Demo(o.demo, "--tls", crt, key, "--answer", ANSWER))
    config = os.path.join(folder, "larder.yaml")
    with open(config, "w", encoding="ascii") as f:
        f.write("upstreams:\n  - {name: u, url: 'https://%s:%d', ca_file: %s, profile: generic}\n" %
                (demo.address + (crt,)))
    return ["-c", config], None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("larder")
    p.add_argument("demo")
    p.add_argument("preload")
    p.add_argument("seconds", nargs="?", type=float, default=2.5)
    p.add_argument("--seed", type=int, default=int(time.time()))
    o = p.parse_args()
    o.larder, o.preload = os.path.abspath(o.larder), os.path.abspath(o.preload)
    with tempfile.TemporaryDirectory() as folder, rig.Cleanup() as cleanup:
        demo = cleanup.own(rig.Demo(o.demo, "--answer", ANSWER, "--log", "200"))
        upstreams = {"plain": (["--upstream", demo.url], demo), "answers": kept_answers(folder, demo),
                     "tls": tls_upstream(o, folder, cleanup)}
        for kind, upstream in upstreams.items():
            if not upstream:
                print("SKIPPED %s: no certificate can be made here" % kind)
                continue
            for i, one_in in enumerate(ODDS):
                try:
                    play = Round(o, folder, cleanup, upstream)
                    print(kind, play.run(one_in, o.seed + i, o.seconds), flush=True)
                    rig.check((play.kept > 0) == (kind == "answers"), "%d answers were kept ones", play.kept)
                except rig.Failed as why:
                    raise rig.Failed("seed %d, %s, 1 in %d: %s" % (o.seed, kind, one_in, why)) from None


if __name__ == "__main__":
    rig.main(main)
