#!/usr/bin/env python3
"""Many streams at once while their provider dies, hangs, flaps, refuses or talks nonsense, and a model behind it.

usage: serve_storm.py LARDER [PART OF A TEST'S NAME]
LARDER_TEST_REQUESTS: how many streams in all. LARDER_TEST_CLIENTS: how many at once.

Each request has a number in its body. The provider counts how often it read each of them whole; every client must see one
end, within the deadline of the route, and the journal must have one record of each. How soon answers begin once their
failure is certain is printed and not judged: that is the machine's.
"""
import collections
import json
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time

from serve_parts import LIMIT_S, MODEL, SMALL, Larder, PlayedUpstream, chat, check, idle, metrics, metrics_by, run, until

CLIENTS = int(os.environ.get("LARDER_TEST_CLIENTS", "16" if SMALL else "50"))
REQUESTS = int(os.environ.get("LARDER_TEST_REQUESTS", "160" if SMALL else "500"))
DEADLINE_S = 60 if SMALL or REQUESTS > 5000 else 20
LATE_S = 30   # beyond the deadline a client on a busy machine may take this long to notice its answer
FIRST_BYTE_S = 1.0
BREAKER_S = 1.0
WORDS = ["one", " two", " three", " four", " five"]
PHASES = ("dies", "hangs", "flaps", "refuses", "garbles")
WORD = re.compile(rb'"content": ?"[^"]')
ROLE = {"role": "assistant", "content": ""}


def event(delta, finish=None):
    return b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()


def port_of_its_own():
    """Below the ports that the kernel gives to connections: a dead provider's port must not become a client's."""
    dice = random.Random(os.getpid())
    while True:
        port = dice.randrange(15000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Provider(PlayedUpstream):
    """A chat API whose mood can be changed, and that can die and come back. `seen` counts the requests that it read whole
    by their number; `failed` says since when the failure of one was certain for who looks at it from outside."""

    def __init__(self):   # listens where it can come back to
        self.port, self.mood, self.limit_s = port_of_its_own(), "well", LIMIT_S
        self.lock, self.sockets = threading.Lock(), set()
        self.seen, self.failed = collections.Counter(), {}
        self.live()

    def live(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=1024)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def die(self):
        """The port refuses, and everything that is open is reset."""
        listener, self.listener = self.listener, None
        listener.shutdown(socket.SHUT_RDWR)   # wakes the thread that accepts
        listener.close()
        with self.lock:
            sockets = list(self.sockets)
        for s in sockets:
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.shutdown(socket.SHUT_RD)   # wakes its thread, which closes it
            except OSError:
                pass

    def attend(self, sock):
        with self.lock:
            self.sockets.add(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            super().attend(sock)
        finally:
            with self.lock:
                self.sockets.discard(sock)

    def play(self, sock, first, body):
        listener = self.listener
        number = int(json.loads(body)["messages"][0]["content"].split()[1])
        with self.lock:
            self.seen[number] += 1
        return listener is not None and self.answer(sock, self.mood, number, listener)

    def fails(self, number, after_s=0.0):
        with self.lock:
            self.failed[number] = time.monotonic() + after_s

    def answer(self, sock, mood, number, listener):
        if mood == "hangs":
            self.fails(number, FIRST_BYTE_S)
            sock.recv(1)   # until larder gives it up
            return False
        if mood == "refuses":
            self.fails(number)
            sock.sendall(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}")
            return True
        if mood == "garbles":
            self.fails(number)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            sock.sendall((b"\x00\x01 this is no HTTP\r\n\r\n", head + b"zz\r\n\xff\xfe\r\n",
                          head + b"10\r\ndata: {\"choi\xff\xff\xff\r\n0\r\n\r\n")[number % 3])
            return False
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if mood == "drips":   # signs of life and no content, until larder gives it up
            sock.sendall(b"%x\r\n%s\r\n" % (len(event(ROLE)), event(ROLE)))
            while True:
                sock.sendall(b"8\r\n: ping\n\n\r\n")
                time.sleep(0.02)
        events = [event(ROLE)] + [event({"content": w}) for w in WORDS] + [event({}, "stop"), b"data: [DONE]\n\n"]
        for e in events:
            if listener is not self.listener:
                self.fails(number)
                return False
            sock.sendall(b"%x\r\n%s\r\n" % (len(e), e))
            time.sleep(0.005)
        sock.sendall(b"0\r\n\r\n")
        return True


class Stream:
    """One request, and all that its client sees of the answer. Framing is read here: libraries take a cut for an end."""

    def __init__(self, larder, number):
        self.number, self.error, self.finished, self.text, self.dones = number, None, False, "", 0
        self.sent, self.first = time.monotonic(), None
        body = json.dumps(chat("request %d" % number, stream=True, max_tokens=4, ignore_eos=True)).encode()
        with socket.create_connection(("127.0.0.1", larder.port), timeout=LIMIT_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            head, body, self.clean = self.receive(sock)
        self.ended = time.monotonic()
        rows = head.decode().split("\r\n")
        fields = dict(row.split(": ", 1) for row in rows[1:])
        self.status = int(rows[0].split()[1])
        self.by, self.failure = fields.get("x-larder-served-by"), fields.get("x-larder-failure")
        if self.status == 200:
            for row in body.decode().split("\n\n"):
                self.take(row)
        else:
            self.error = json.loads(body)["error"]["code"]

    def receive(self, sock):
        """Head, body, and whether it ended as its framing says."""
        data, head, end = b"", None, None
        while True:
            part = sock.recv(65536)
            data += part
            if head is None and b"\r\n\r\n" in data:
                head, data = data.split(b"\r\n\r\n", 1)
                m = re.search(rb"\r\nContent-Length: (\d+)", head)
                end = int(m.group(1)) if m else None
            if self.first is None and head and WORD.search(data):
                self.first = time.monotonic()
            if head and end is not None and len(data) >= end:
                return head, data, True
            if head and end is None and data.endswith(b"0\r\n\r\n"):
                return head, self.joined(data), True
            if not part:
                check(head, "request", self.number, "got no answer")
                return head, self.joined(data), False

    @staticmethod
    def joined(data):
        """The body that chunks make; of a cut one what there is."""
        out = b""
        while b"\r\n" in data:
            size, data = data.split(b"\r\n", 1)
            out += data[:int(size, 16)]
            data = data[int(size, 16) + 2:]
        return out

    def take(self, row):
        if row == "data: [DONE]":
            self.dones += 1
        elif row.startswith("data: "):
            data = json.loads(row[6:])
            if "error" in data:
                self.error = data["error"]["code"]
            for choice in data.get("choices", []):
                self.text += choice["delta"].get("content") or ""
                self.finished |= choice["finish_reason"] is not None

    def judge(self, may_break, deadline_s=DEADLINE_S):
        what = (self.number, self.status, self.by, self.failure, self.error, self.dones, self.text)
        waited = (self.first or self.ended) - self.sent
        check(waited < deadline_s + LATE_S, "waited for %d s:" % waited, *what)
        if self.status != 200:   # what a deadline leaves
            check(self.status == 504 and self.error == "upstream_timeout" and waited > deadline_s * 0.9, "refused:", *what)
        elif self.error:
            check(may_break and self.by == "provider" and self.text and not self.dones and not self.clean, "a bad break:", *what)
            check("".join(WORDS).startswith(self.text), "odd text:", *what)
        else:
            # a provider that dies between the reason to finish and [DONE] has said all there was to say
            check(self.clean and self.finished and self.text, "no end:", *what)
            check(self.dones == 1 or (may_break and self.by == "provider" and self.dones == 0), "no last event:", *what)
            check(self.by == "tiny" or self.text == "".join(WORDS), "odd text:", *what)
        return self


class Storm:
    def __init__(self, larder, provider):
        self.larder, self.provider = larder, provider
        self.lock, self.number, self.streams = threading.Lock(), 0, []

    def ask(self, may_break=False, deadline_s=DEADLINE_S):
        with self.lock:
            self.number += 1
            number = self.number
        s = Stream(self.larder, number).judge(may_break, deadline_s)
        with self.lock:
            self.streams.append(s)
        return s

    def phase(self, mood, count):
        """`count` streams, CLIENTS at once, in which the provider does what `mood` says."""
        p, left, errors = self.provider, [count], []
        over = threading.Event()
        began, before = time.monotonic(), len(self.streams)
        flapping = threading.Thread(target=self.flap, args=(over,))
        p.mood = mood if mood in ("hangs", "refuses", "garbles") else "well"

        def client():
            try:
                while True:
                    with self.lock:
                        left[0] -= 1
                        if left[0] < 0 and (mood != "flaps" or over.flaps >= 3):
                            return
                        if mood == "dies" and left[0] == count // 2 and p.listener:
                            p.die()
                    self.ask(may_break=mood in ("dies", "flaps"))
            except Exception as e:   # told below, by the main thread
                errors.append(e)
        over.flaps = 0
        if mood == "flaps":
            flapping.start()
        threads = [threading.Thread(target=client) for _ in range(min(CLIENTS, count))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        over.set()
        if mood == "flaps":
            flapping.join()
        check(not errors, errors[:3])
        print("       " + self.told(mood, self.streams[before:], time.monotonic() - began), flush=True)
        p.mood = "well"
        if not p.listener:
            p.live()

    def flap(self, over):
        while not over.wait(1.0):
            over.flaps += 1
            if self.provider.listener:
                self.provider.die()
            else:
                self.provider.live()

    def delays(self, streams):
        """From when a failure was certain to the first word from the model, in ms, sorted."""
        return sorted(1000 * (s.first - max(s.sent, self.provider.failed.get(s.number, s.sent)))
                      for s in streams if s.by == "tiny" and s.first)

    def told(self, mood, streams, took_s):
        ms = self.delays(streams)
        by = collections.Counter(s.by if s.status == 200 and not s.error else s.error for s in streams)
        text = "%-8s %5d streams in %5.1f s: %s" % (mood, len(streams), took_s, dict(sorted(by.items(), key=str)))
        if ms:
            text += "; the model's answers began after %.0f ms (p50), %.0f (p95), %.0f (most)" % (
                ms[len(ms) // 2], ms[len(ms) * 95 // 100], ms[-1])
        return text

    def recovers(self):
        """Once the breaker has waited for its time one request goes to the provider, and with its end all do."""
        state = metrics_by(self.larder, "upstream_state")['{upstream="provider"}']
        wait_s = metrics_by(self.larder, "upstream_wait_seconds")['{upstream="provider"}']
        check(wait_s <= 2 * BREAKER_S, "rests for longer than it may:", wait_s)
        time.sleep(wait_s + 0.01)
        first = self.ask()
        check(first.by == "provider", "not asked again after its rest; it was in state", state, first.by, first.failure)
        for _ in range(5):
            more = self.ask()
            check(more.by == "provider", "not asked after a good answer; it was in state", state, more.by, more.failure)


def config(provider, folder):
    """Without rules: what they remember of each conversation is memory that grows to its limit."""
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nlog: {access: false}\n"
            "upstreams:\n  - {name: provider, url: 'http://127.0.0.1:%d', retry: {attempts: 3, backoff: 10ms, budget: 100}, "
            "pool: {idle: 500ms}, timeouts: {first_byte: %dms, idle: 5s}, breaker: {open: %dms, open_max: %dms, window: 2s}}\n"
            "  - {name: tiny, kind: engine, engine: {model: '%s', queue_wait: 0, queue: 10000, sequences: 16}}\n"
            "canon: {mode: off}\nroutes:\n  - {upstream: provider, fallback: tiny, deadline: %ds}\nstore: {dir: '%s/store'}\n" % (
                provider.port, FIRST_BYTE_S * 1000, BREAKER_S * 1000, 2 * BREAKER_S * 1000, MODEL, DEADLINE_S, folder))


def check_journal(larder, folder, streams):
    done = subprocess.run([larder.binary, "export", "--format", "jsonl", "--store", os.path.join(folder, "store")],
                          capture_output=True, timeout=LIMIT_S, check=True)
    records = [json.loads(row) for row in done.stdout.splitlines()]
    check(len(records) == len(streams), "records of", len(records), "requests, but", len(streams), "were made")
    ends = collections.Counter((r["ending"], r["upstream"] if r["ending"] == "complete" else "-") for r in records)
    want = collections.Counter(("complete", s.by) if not s.error else ("upstream-failed", "-") for s in streams)
    check(ends == want, "the journal:", ends, "the clients:", want)
    # a third one only behind a pooled connection that had died, and a new one that was refused
    odd = [r for r in records if r["attempts"] > 2 and (r["attempts"] > 3 or r["failure"] != "not_sent")]
    check(not odd, "asked too often:", odd[:3])
    partial = [r for r in records if r["usage_partial"] != (r["ending"] != "complete" and r["status"] == 200)]
    check(not partial, "usage of broken answers is partial, that of others is not:", partial[:3])


def quiet(larder, descriptors=1 << 20):
    """Nothing is open, held or counted any more; gives what is left, of the process itself: the store's pages, which the
    kernel keeps of its file, are not counted."""
    def still():
        m = metrics(larder)
        return not any(m[n] for n in ("requests_active", "buffered_bytes", "client_connections", "upstream_connections"))
    until(still, "closed connections and empty buffers")
    loads = metrics_by(larder, "upstream_load")
    check(not any(loads.values()), "requests that are counted and gone:", loads)
    files = "/proc/%d/fd" % larder.process.pid
    until(lambda: len(os.listdir(files)) <= descriptors, "as few descriptors as before, which were %d" % descriptors)
    return len(os.listdir(files)), larder.status("Threads"), larder.status("RssAnon")


def nobody_waits_beyond_the_deadline(folder):
    """One provider says nothing, the next one gives signs of life for as long as one listens."""
    deadline_s, mute, drip = 1.5, Provider(), Provider()
    mute.mood, drip.mood = "hangs", "drips"
    text = ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nlog: {access: false}\nupstreams:\n"
            "  - {name: mute, url: 'http://127.0.0.1:%d', timeouts: {first_byte: 500ms}, breaker: {open_max: 0}}\n"
            "  - {name: drip, url: 'http://127.0.0.1:%d', breaker: {open_max: 0}}\n"
            "  - {name: spare, url: 'http://127.0.0.1:%d/spare', breaker: {open_max: 0}}\n"
            "routes:\n  - {upstream: mute, fallback: 'drip spare', deadline: %dms}\n" % (
                mute.port, drip.port, drip.port, deadline_s * 1000))
    with Larder(folder, text) as larder:
        storm, errors = Storm(larder, mute), []

        def client():
            try:
                s = storm.ask(deadline_s=deadline_s)
                check(s.status == 504 and s.failure == "failed" and s.by == "drip", s.number, s.status, s.failure, s.by, s.error)
            except Exception as e:   # told below, by the main thread
                errors.append(e)
        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check(not errors, errors[:3])
        check(max(mute.seen.values()) == 1 == max(drip.seen.values()), "executed twice", mute.seen, drip.seen)
        check(len(mute.seen) == len(drip.seen) == CLIENTS, len(mute.seen), len(drip.seen), "were asked")
        waited = sorted(s.ended - s.sent for s in storm.streams)
        print("       %d streams, each given up after %.2f to %.2f s of %.1f" % (len(waited), waited[0], waited[-1], deadline_s))
        quiet(larder)
    mute.die()
    drip.die()


def many_streams_through_every_failure(folder):
    provider = Provider()
    with Larder(folder, config(provider, folder)) as larder:
        storm = Storm(larder, provider)
        for mood in ("refuses", "garbles", "hangs"):   # one at a time, and the model is warm afterwards
            provider.mood = mood
            before = len(storm.streams)
            for _ in range(4 if SMALL else 8):
                storm.ask()
            print("       alone: " + storm.told(mood, storm.streams[before:], 0).split(" in ")[0] +
                  ": answers began after %s ms" % [round(ms) for ms in storm.delays(storm.streams[before:])])
            provider.mood = "well"
            storm.recovers()
        rounds = max(1, REQUESTS // (len(PHASES) * CLIENTS * 2)) if REQUESTS >= 1000 else 1
        size = REQUESTS // (len(PHASES) * rounds)
        first = None
        for n in range(rounds):
            for mood in PHASES:
                storm.phase(mood, size)
                storm.recovers()
            idle(larder)
            now = quiet(larder, first[0] if first else 1 << 20)
            # the first half fills pages of prefixes, spare exchanges, arenas of malloc
            first = now if n <= rounds // 2 or first is None else first
            print("       %d streams so far; descriptors, threads, KiB of its own: %s" % (len(storm.streams), now), flush=True)
        check(now[1] == first[1], "threads grew from", first, "to", now)
        check(now[2] <= first[2] + 4096 or SMALL, "memory grew from", first[2], "to", now[2], "KiB")
        check(max(provider.seen.values()) == 1, "executed twice:", [n for n, c in provider.seen.items() if c > 1])
        check(len({s.by for s in storm.streams if not s.error}) == 2, "only one of them answered")
    check_journal(larder, folder, storm.streams)


if __name__ == "__main__":
    run([nobody_waits_beyond_the_deadline, many_streams_through_every_failure])
