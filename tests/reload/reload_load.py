#!/usr/bin/env python3
"""Reloads under load: no request is lost, and nothing piles up. usage: reload_load.py LARDER [NAME]"""
import http.client
import json
import os
import random
import signal
import threading
import time

from reload_parts import Larder, Upstream, check, config, run, until

RELOADS = 50
CLIENTS = 4
KEEPS_MB = 48   # what buffers of requests may take; a generation that stayed would cost that after some hundred reloads


def usual(number, upstream, extra=""):
    """Every other configuration has another upstream, other routes and other rules."""
    routes = "routes: [{model: 'm*', upstream: up, canon: %s}]\n" % ("on" if number % 3 else "off")
    rules = "canon: {rules_off: %s}\n" % ("LR001" if number % 2 else "[]")
    return config(upstream, routes + rules + "log: {access: false}\n" + extra)


class Load:
    """Threads that ask until they are told to stop. Every answer must be whole, and from one of the upstreams."""

    def __init__(self, larder):
        self.larder = larder
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.answers = {}
        self.losses = []
        self.threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(CLIENTS)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        for t in self.threads:
            t.join(30)

    def work(self, index):
        dice, client, n = random.Random(index), None, 0
        while not self.done.is_set():
            n += 1
            kind = dice.choice(("short", "stream", "halves", "long"))
            try:
                if client is None:
                    client = self.larder.client()
                source = getattr(self, kind)(client, "m%d-%d" % (index, n), dice)
                with self.lock:
                    self.answers[source] = self.answers.get(source, 0) + 1
                if dice.random() < 0.1:
                    client.http.close()
                    client = None
            except (AssertionError, OSError, ValueError, http.client.HTTPException) as why:
                with self.lock:
                    self.losses.append("%s %d: %s: %s" % (kind, n, type(why).__name__, why))
                return

    def short(self, client, model, _):
        return self.whole(client.ask(model), model)

    def long(self, client, model, dice):
        return self.whole(client.ask(model, text="x" * dice.randrange(1000, 200000)), model)

    def halves(self, client, model, dice):
        client.start(model, text="y" * dice.randrange(100, 50000), pause=lambda: time.sleep(dice.random() / 20))
        return self.whole(client.answer(), model)

    @staticmethod
    def whole(answer, model):
        status, body = answer
        check(status == 200 and body.get("model") == model, status, body)
        return body["from"]

    @staticmethod
    def stream(client, model, _):
        client.start(model, stream=True)
        r = client.http.getresponse()
        words = [json.loads(e[6:])["choices"][0]["delta"]["content"] for e in r.read().decode().split("\n\n")
                 if e.startswith("data: {")]
        check(r.status == 200 and words[1:] == ["middle", "last"], r.status, words)
        return words[0]


def no_request_is_lost_in_fifty_reloads(folder):
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, usual(0, a, "store: {dir: store}\n")) as larder:
        with Load(larder) as load:
            for i in range(RELOADS):
                seen = sum(load.answers.values())
                larder.reload(usual(i + 1, (b, a)[i % 2], "store: {dir: store}\n"))
                until(lambda: load.losses or sum(load.answers.values()) > seen + CLIENTS, "answers")
                if i == 10:
                    early = larder.status("VmRSS")
            late = larder.status("VmRSS")
        check(not load.losses, "\n".join(load.losses), "\nlarder's log:\n" + larder.log()[-3000:])
        check(min(load.answers.get("a", 0), load.answers.get("b", 0)) > RELOADS, load.answers)
        check(late - early < KEEPS_MB * 1024, "resident memory grew from", early, "to", late, "KiB")
        until(lambda: b.connections == 0, "the end of the connections to the upstream that is configured no more")
        print("       %s answers; resident %d KiB after 10 reloads, %d after %d" % (load.answers, early, late, RELOADS))


def signals_in_a_row_are_no_harm(folder):
    """Faster than they can be followed, and some in the middle of a write."""
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, usual(0, a)) as larder, Load(larder) as load:
        for i in range(200):
            larder.write(usual(i, (a, b)[i % 2]))
            os.kill(larder.process.pid, signal.SIGHUP)
        larder.reload(usual(1, b))
        larder.now_from("b")
        load.done.set()
        for t in load.threads:
            t.join(30)
        check(not load.losses, "\n".join(load.losses))


def what_is_replaced_is_freed(folder):
    """Idle: each reload makes pools and a configuration for each loop; none may stay, even with a stream under way."""
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder, larder.client() as c:
        c.start("held", stream=True)
        got = c.http.getresponse()
        check(got.read1(65536))
        big = "aliases: {%s}\n" % ", ".join("alias-%d: model-%d" % (i, i) for i in range(2000))
        for i in range(30):
            larder.reload(config(b, big))
        early = larder.status("VmRSS")
        for i in range(100):
            larder.reload(config(b, big))
        late = larder.status("VmRSS")
        larder.now_from("b")
        a.go.set()
        check(got.read().endswith(b"data: [DONE]\n\n"))
        check(late - early < 8 * 1024, "resident memory grew from", early, "to", late, "KiB in 100 idle reloads")
        print("       resident %d KiB after 30 idle reloads, %d after 130" % (early, late))


def a_reload_and_an_end_at_once(folder):
    for i in range(5):
        with Upstream("a") as a, Larder(folder, config(a)) as larder, larder.client() as c:
            check(c.ask()[0] == 200)
            os.kill(larder.process.pid, signal.SIGHUP)
            os.kill(larder.process.pid, (signal.SIGTERM, signal.SIGHUP)[i % 2])
            os.kill(larder.process.pid, signal.SIGTERM)
            check(larder.process.wait(30) == 0, "larder ended with", larder.process.returncode)


run([no_request_is_lost_in_fifty_reloads,
     signals_in_a_row_are_no_harm,
     what_is_replaced_is_freed,
     a_reload_and_an_end_at_once])
