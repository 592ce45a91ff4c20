#!/usr/bin/env python3
"""Replicas of an upstream, and what a reload leaves as it was: the load that is counted, and where conversations are.

usage: reload_replicas.py LARDER [NAME]

A prefix (the system text) has a home among the replicas. Conversations that begin there while it is busy go elsewhere,
and stay where their last answer came from; so a conversation that was sent away once tells staying from going home.
"""
import contextlib
import http.client
import itertools
import json
import threading

from reload_parts import LIMIT_S, Larder, Upstream, check, run, until

NAMES = ("red", "green", "blue")


def config(replicas, slack=25, extra="", threads=1):
    """One thread, where nothing else is meant: another one may take the next request before a load is counted off."""
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: %d\n"
            "upstreams:\n  - {name: up, url: '%s', replicas: '%s', profile: generic, replica_slack: %d, retry: {attempts: 1}}\n%s" % (
                threads, replicas[0].url, " ".join(r.url for r in replicas[1:]), slack, extra))


def ask(larder, prefix, conversation, model="m"):
    """Who answers, or the status if nobody does."""
    body = {"model": model, "messages": [{"role": "system", "content": prefix}, {"role": "user", "content": conversation}]}
    c = http.client.HTTPConnection("127.0.0.1", larder.port, timeout=LIMIT_S)
    with contextlib.closing(c):
        c.request("POST", "/v1/chat/completions", json.dumps(body))
        r = c.getresponse()
        data = json.loads(r.read())
        return data["from"] if r.status == 200 else r.status


def load(larder):
    """Requests under way at all replicas together, as larder counts them."""
    return sum(larder.metric(r'larder_upstream_load\{upstream="%s"\}' % n) for n in ("up", "up/2", "up/3"))


@contextlib.contextmanager
def busy(larder, replicas, prefix):
    """A request under way at the home of a prefix; gives that replica."""
    held = threading.Thread(target=ask, args=(larder, prefix, "held", "held"))
    seen = [len(r.bodies) for r in replicas]
    held.start()
    until(lambda: [len(r.bodies) for r in replicas] != seen, "the held request")
    home = next(r for r, n in zip(replicas, seen) if len(r.bodies) != n)
    try:
        yield home
    finally:
        home.go.set()
        held.join(LIMIT_S)
        home.go.clear()
        until(lambda: load(larder) == 0, "an idle upstream")


def scene(folder, play, threads=1):
    with contextlib.ExitStack() as stack:
        replicas = [stack.enter_context(Upstream(n)) for n in NAMES]
        larder = stack.enter_context(Larder(folder, config(replicas, threads=threads)))
        play(larder, replicas)


def a_busy_replica_is_passed_over(folder):
    def play(larder, replicas):
        home = ask(larder, "prefix", "first")
        for n in range(5):
            check(ask(larder, "prefix", "early %d" % n) == home, "an idle home")
        with busy(larder, replicas, "prefix") as at:
            check(at.name == home, "the held request is not at its prefix' home")
            other = ask(larder, "prefix", "second")
            check(other in NAMES and other != home, "over its share by more than the slack, and asked:", other)
            check(ask(larder, "prefix", "first") == home, "a conversation stays, however busy its replica is")
            larder.reload(config(replicas, slack=10000))
            until(lambda: ask(larder, "prefix", "a slack that allows it") == home, "the new slack")
            larder.reload(config(replicas))
            until(lambda: ask(larder, "prefix", "a slack that does not") != home, "the old slack, and a load that outlived reloads")
        check(ask(larder, "prefix", "third") == home, "a home that is idle again")
        check(ask(larder, "prefix", "second") == other, "a conversation left the replica of its last answer")
    scene(folder, play)


def sent_away(larder, replicas, count):
    """(prefix, conversation) -> replica, of conversations that are not at their prefix' home."""
    at = {}
    for n in range(count):
        prefix = "prefix %d" % n
        with busy(larder, replicas, prefix) as home:
            at[prefix, "guest"] = ask(larder, prefix, "guest")
            check(at[prefix, "guest"] != home.name, "not sent away")
    return at


def conversations_stay_across_a_reload(folder):
    def play(larder, replicas):
        at = sent_away(larder, replicas, 8)
        homes = {("prefix %d" % n, "resident"): None for n in range(24)}
        for prefix, text in homes:
            homes[prefix, text] = ask(larder, prefix, text)
        check(len(set(homes.values())) > 1, "one home for all")
        at.update(homes)
        for extra in ("log: {access: false}\n", "canon: {rules_off: LR001}\n"):
            larder.reload(config(replicas, extra=extra, threads=2))
            moved = [(k, v, who) for k, v in at.items() for who in [ask(larder, *k)] if who != v]
            check(not moved, "moved by a reload:", moved)
    scene(folder, play, threads=2)


def a_replica_that_goes_takes_only_its_own(folder):
    """Whichever of the three it is, and when it comes back: other prefixes are asked for where they are warm."""
    def play(larder, replicas):
        homes = {"prefix %d" % n: ask(larder, "prefix %d" % n, "first") for n in range(24)}
        numbers = itertools.count()

        def settled(fact):
            """The loops take a new configuration over just after the log says so."""
            until(lambda: all(fact(ask(larder, p, "look %d" % next(numbers)), home) for p, home in homes.items()), "new replicas")
        for gone in replicas:
            for prefix, home in homes.items():
                check(ask(larder, prefix, "with " + gone.name) == home, "not at home")
            larder.reload(config([r for r in replicas if r is not gone]))
            settled(lambda who, _: who != gone.name)
            for prefix in (p for p, home in homes.items() if home != gone.name):
                check(ask(larder, prefix, "with " + gone.name) == homes[prefix], "a conversation moved, and", gone.name, "had gone")
                check(ask(larder, prefix, "without " + gone.name) == homes[prefix], "a prefix moved, and", gone.name, "had gone")
            larder.reload(config(replicas))
            settled(lambda who, home: who == home)
    scene(folder, play)


def a_failure_clears_the_stay(folder):
    def play(larder, replicas):
        at = sent_away(larder, replicas, 4)
        for (prefix, text), who in at.items():
            check(ask(larder, prefix, text) == who, "not where it was")
            for r in replicas:
                r.dies = True
            check(ask(larder, prefix, text) == 502, "somebody answered")
            for r in replicas:
                r.dies = False
            home = ask(larder, prefix, "another one")
            check(home != who, "a guest at its own home")
            check(ask(larder, prefix, text) == home, "it failed at", who, "and is asked there again")
    scene(folder, play)


run([a_busy_replica_is_passed_over,
     conversations_stay_across_a_reload,
     a_replica_that_goes_takes_only_its_own,
     a_failure_clears_the_stay])
