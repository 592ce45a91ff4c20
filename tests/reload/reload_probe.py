#!/usr/bin/env python3
"""Active probes: larder asks by itself whether an upstream whose breaker is open is back. usage: reload_probe.py LARDER [NAME]"""
import http.client
import json
import re

from reload_parts import Answerer, Larder, Upstream, check, run, until


class Ill(Upstream):
    """Answers chats with `chat` and everything else with `health`, and keeps what it was asked."""

    def __init__(self, name):
        self.chat, self.health, self.gets, self.posts = 200, 200, [], 0
        super().__init__(name)
        owner = self

        class Moody(Answerer):
            def send(self, status):
                body = json.dumps({"from": owner.name}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                owner.gets.append((self.path, dict(self.headers)))
                if owner.health == "hang":
                    owner.go.wait(240)
                    return
                self.send(owner.health)

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                owner.posts += 1
                self.send(owner.chat)

        self.server.RequestHandlerClass = Moody


def config(a, b, probe="probe: {path: /health, every: 50ms}", more=""):
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nupstreams:\n"
            "  - {name: a, url: '%s/v1', retry: {attempts: 1}, breaker: {requests: 1, open: 1h, open_max: 1h}, %s%s}\n"
            "  - {name: b, url: '%s'}\nroutes:\n  - {upstream: a, fallback: b}\n" % (a.url, probe, more, b.url))


def upstream(larder, name):
    c = http.client.HTTPConnection("127.0.0.1", larder.admin_port, timeout=240)
    try:
        c.request("GET", "/upstreams")
        return [u for u in json.loads(c.getresponse().read())["upstreams"] if u["name"] == name][0]
    finally:
        c.close()


def fall_ill(larder, a):
    a.chat = 500
    check(larder.ask() == (200, {"from": "b"}), "the fallback")
    check(upstream(larder, "a")["state"] == "open", upstream(larder, "a"))


def a_probe_brings_it_back_without_a_request(folder):
    with Ill("a") as a, Ill("b") as b:
        a.health = 503
        with Larder(folder, config(a, b)) as larder:
            check(larder.ask() == (200, {"from": "a"}), "well at first")
            fall_ill(larder, a)
            posts = a.posts
            until(lambda: len(a.gets) >= 3, "probes")
            for _ in range(3):
                check(larder.ask() == (200, {"from": "b"}), "it is still ill")
            check(a.posts == posts, "a client's request was spent")
            path, fields = a.gets[0]
            check(path == "/v1/health" and fields.get("Connection") == "close", path, fields)
            check("Authorization" not in fields and fields["User-Agent"].startswith("larder/"), fields)
            a.chat = a.health = 200
            until(lambda: upstream(larder, "a")["state"] == "closed", "the end of its illness")
            check(larder.ask() == (200, {"from": "a"}), "the first request afterwards")
            larder.find("event=probe_closed_breaker upstream=a status=200")
            seen = upstream(larder, "a")["probes"]
            check(seen["sent"] >= 4 and 3 <= seen["failed"] < seen["sent"], seen)
            check(larder.metric(r'larder_upstream_probes_total\{upstream="a"\}') == seen["sent"], seen)
            check(larder.metric(r'larder_upstream_probes_failed_total\{upstream="a"\}') == seen["failed"], seen)
            check("probes" not in upstream(larder, "b"), upstream(larder, "b"))
            sent = len(a.gets)
            until(lambda: larder.ask() == (200, {"from": "a"}) and a.posts > posts + 20, "requests while it is well")
            check(len(a.gets) == sent, "a probe of an upstream that is well")


def whoever_lies_is_not_believed_again(folder):
    """A path that answers while chats fail: one request finds that out, and no other is spent for the probes."""
    with Ill("a") as a, Ill("b") as b, Larder(folder, config(a, b)) as larder:
        a.health = 503
        fall_ill(larder, a)
        a.health = 200
        until(lambda: upstream(larder, "a")["state"] == "closed", "the probe's word")
        posts = a.posts
        check(larder.ask() == (200, {"from": "b"}) and a.posts == posts + 1, "the request that found it out")
        sent = upstream(larder, "a")["probes"]["sent"]
        until(lambda: upstream(larder, "a")["probes"]["sent"] > sent + 3, "further probes")
        check(upstream(larder, "a")["state"] == "open", upstream(larder, "a"))
        check(larder.ask() == (200, {"from": "b"}) and a.posts == posts + 1, "a second request was spent")


def answers_and_what_they_say(folder):
    """With the upstream's own key; 401 is a sign of life, 404 says nothing and is told once; no answer in time is a failure."""
    with open(folder + "/a.key", "w", encoding="ascii") as f:
        f.write("sk-own")
    with Ill("a") as a, Ill("b") as b:
        a.health = 404
        probe = "probe: {path: '/v1/models?x=1', every: 50ms, timeout: 100ms}"
        with Larder(folder, config(a, b, probe, ", key_file: a.key")) as larder:
            fall_ill(larder, a)
            until(lambda: len(a.gets) >= 5, "probes")
            path, fields = a.gets[0]
            check(path == "/v1/models?x=1" and fields["Authorization"] == "Bearer sk-own", path, fields)
            check(upstream(larder, "a")["state"] == "open", "404 closed it")
            check(upstream(larder, "a")["probes"]["failed"] == 0, "404 is no failure")
            check(len(re.findall("event=probe_says_nothing", larder.log())) == 1, larder.log())
            check("sk-own" not in larder.log(), "a key in the log")
            a.health = "hang"
            until(lambda: upstream(larder, "a")["probes"]["failed"] >= 2, "late answers")
            a.health = 401
            until(lambda: upstream(larder, "a")["state"] == "closed", "a sign of life")
            a.go.set()


def a_reload_turns_probes_on_and_off(folder):
    off = "probe: {path: ''}"
    with Ill("a") as a, Ill("b") as b:
        a.health = 503
        with Larder(folder, config(a, b, off)) as larder:
            fall_ill(larder, a)
            larder.reload(config(a, b))
            until(lambda: len(a.gets) >= 3, "probes once they are on")
            check("probes" in upstream(larder, "a"), upstream(larder, "a"))
            larder.reload(config(a, b, off))
            until(lambda: "probes" not in upstream(larder, "a"), "the reload")
            a.health = "hang"   # one is under way at the next reload, and at the end
            larder.reload(config(a, b))
            sent = len(a.gets)
            until(lambda: len(a.gets) > sent, "a probe that hangs")
            larder.reload(config(a, b, "probe: {path: /health, every: 60ms}"))
            sent = len(a.gets)
            until(lambda: len(a.gets) > sent, "the next one")
            check(upstream(larder, "a")["state"] == "open", upstream(larder, "a"))


run([a_probe_brings_it_back_without_a_request, whoever_lies_is_not_believed_again, answers_and_what_they_say,
     a_reload_turns_probes_on_and_off])
