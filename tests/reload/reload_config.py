#!/usr/bin/env python3
"""SIGHUP: what is taken over, what is not, and that nothing under way notices. usage: reload_config.py LARDER [NAME]"""
import hashlib
import json
import os

from reload_parts import Larder, Upstream, check, config, run, until

BILLING = "x-anthropic-billing-header: cc_version=2.1.177.01c; cch=36ee5;\nYou help."


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def a_new_upstream_serves_the_next_request_and_a_stream_ends_on_the_old_one(folder):
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder:
        with larder.client() as stream, larder.client() as kept:
            check(kept.ask()[1]["from"] == "a")
            stream.start("held", stream=True)
            got = stream.http.getresponse()
            first = got.read1(65536)
            check(b'"a"' in first, "the stream began with", first)
            larder.reload(config(b))
            larder.now_from("b")
            check(kept.ask()[1]["from"] == "b", "a connection from before still goes to the old upstream")
            a.go.set()
            rest = got.read()
            check(b"middle" in rest and rest.endswith(b"data: [DONE]\n\n"), "the stream ended with", rest)
            check(stream.ask()[1]["from"] == "b", "the stream's connection goes on with the old upstream")
        until(lambda: a.connections == 0, "the end of the connections to the old upstream")


def a_body_under_way_goes_where_its_head_belonged(folder):
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder:
        def half_way():
            until(lambda: larder.metric("larder_requests_active") == 1, "the head to be read")
            larder.reload(config(b))
            larder.now_from("b")

        with larder.client() as c:
            c.start(text="x" * 100000, pause=half_way)
            status, answer = c.answer()
            check(status == 200 and answer["from"] == "a", status, answer)
            check(c.ask()[1]["from"] == "b")
        until(lambda: a.connections == 0, "the end of the connections to the old upstream")


def a_request_that_waits_for_a_connection_still_gets_it(folder):
    one = ", pool: {max: 1}"
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a, "log: {level: debug}\n", one)) as larder:
        # two loops, one connection each: of four requests two wait at least
        clients = [larder.client() for _ in range(4)]
        for c in clients:
            c.start("held")
        until(lambda: larder.metric("larder_requests_active") == 4 and a.bodies, "all requests")
        larder.reload(config(b))
        larder.now_from("b")
        a.go.set()
        for c in clients:
            status, answer = c.answer()
            check(status == 200 and answer["from"] == "a", status, answer)
            c.http.close()
        until(lambda: a.connections == 0, "the end of the connections to the old upstream")


def a_bad_file_changes_nothing_and_its_place_is_named(folder):
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder:
        good = config(b)
        bad = [(good + "lisetn: 127.0.0.1:1\n", "larder.yaml:6:1: unknown name 'lisetn'; did you mean 'listen'?"),
               (good + "limits:\n  fields: 1\n", "larder.yaml:7:11: limits.fields: is out of range"),
               (good + "keys: [{tenant: t, file: absent.key}]\n", "larder.yaml:6:26: keys[0].file"),
               (good + "{", "larder.yaml:"),
               ("", "no upstream"),
               (config(b, more=", ca_file: larder.yaml").replace("http:", "https:"),
                "upstream up: ca_file cannot be read")]
        for text, words in bad:
            said = larder.reload(text, "reload_failed")
            check(words in said, "no", words, "in", said)
            check(larder.ask()[1]["from"] == "a", "a bad file was taken over:", text)
        os.unlink(larder.file)
        check("larder.yaml" in larder.reload(None, "reload_failed"))
        check(larder.ask()[1]["from"] == "a")
        larder.reload(good)
        larder.now_from("b")


def a_changed_client_key_counts_at_once(folder):
    def keys(name):
        return "keys: [{tenant: t, sha256: %s}, {tenant: u, file: u.key}]\n" % sha256(name)

    with open(os.path.join(folder, "u.key"), "w", encoding="ascii") as f:
        f.write("u-first")
    with Upstream("a") as a, Larder(folder, config(a, keys("old"))) as larder, larder.client() as kept:
        check(kept.ask(key="old")[0] == 200)
        check(kept.ask(key="u-first")[0] == 200)
        check(larder.ask(key="new")[0] == 401)
        with open(os.path.join(folder, "u.key"), "w", encoding="ascii") as f:
            f.write("u-second")
        larder.reload(config(a, keys("new")))
        until(lambda: larder.ask(key="new")[0] == 200, "the new key")
        until(lambda: larder.ask(key="old")[0] == 401, "the end of the old key")
        check(kept.ask(key="u-second")[0] == 200, "the key's file was not read")
        check(kept.ask(key="new")[0] == 200)
        check(kept.ask(key="u-first")[0] == 401, "an old key still counts on a connection that used it")
        check(larder.ask()[0] == 401)
        larder.reload(config(a))
        until(lambda: larder.ask()[0] == 200, "no keys any more")


def an_upstream_key_file_is_read_again(folder):
    key = os.path.join(folder, "up.key")
    seen = []

    class Listening(Upstream):
        def saw(self, body):
            super().saw(body)
            seen.append(body)

    with open(key, "w", encoding="ascii") as f:
        f.write("sk-one")
    with Listening("a") as a:
        a.server.RequestHandlerClass = type("Keyed", (a.server.RequestHandlerClass,), {
            "plain": lambda self, body: type(self).__mro__[1].plain(
                self, json.dumps({"from": self.headers.get("Authorization", "")}).encode())})
        text = config(a, more=", key_file: up.key")
        with Larder(folder, text) as larder:
            larder.now_from("Bearer sk-one")
            with open(key, "w", encoding="ascii") as f:
                f.write("sk-two")
            check(larder.ask()[1]["from"] == "Bearer sk-one", "read without being asked")
            larder.reload()
            larder.now_from("Bearer sk-two")
            said = larder.log()
            check("sk-one" not in said and "sk-two" not in said, "a key is in the log")


def what_needs_a_restart_is_named_and_keeps_its_value(folder):
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder:
        changed = config(b, "store: {dir: '%s/store'}\nlog: {format: json}\n" % folder)
        changed = changed.replace("threads: 2", "threads: 3").replace("listen: 127.0.0.1:0\n", "listen: '[::]:1'\n", 1)
        said = larder.reload(changed)
        check('options="threads store.dir log.format listen"' in said, said)
        larder.now_from("b")
        check(not os.path.exists(folder + "/store"), "a store was opened")
        check("threads" in larder.reload(), "it is named as long as it differs")
        check("reload_needs_restart" not in larder.reload(config(b)), "nothing differs any more")


def the_host_check_goes_by_the_listeners_that_are_open(folder):
    with Upstream("a") as a, Larder(folder, config(a)) as larder:
        check(larder.ask(host="evil.example")[0] == 400)
        larder.reload(config(a, "aliases: {x: marker}\n").replace("listen: 127.0.0.1:0\n", "listen: 0.0.0.0:0\n", 1))
        until(lambda: larder.ask("x")[1].get("model") == "marker", "the reload")
        check(larder.ask(host="evil.example")[0] == 400, "an address that is not open yet relaxed the check")
        larder.reload(config(a, "aliases: {x: again}\nhosts: evil.example\n"))
        until(lambda: larder.ask("x")[1].get("model") == "again", "the reload")
        check(larder.ask(host="evil.example")[0] == 200)


def limits_and_routes_hold_from_then_on(folder):
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder:
        check(larder.ask(text="x" * 5000)[0] == 200)
        check(larder.ask(path="/team/v1/chat/completions")[0] == 404)
        extra = "  - {name: other, url: '%s'}\nroutes:\n  - {prefix: /team, upstream: other}\n" % b.url
        larder.reload(config(a, extra + "limits: {body_bytes: 2KiB}\nlog: {access: false}\n"))
        until(lambda: larder.ask(path="/team/v1/chat/completions")[1].get("from") == "b", "the new route")
        check(larder.ask()[1]["from"] == "a")
        check(larder.ask(text="x" * 5000)[0] == 413)
        since = len(larder.lines)
        check(larder.ask()[0] == 200)
        larder.reload(config(a))
        until(lambda: larder.ask(text="x" * 5000)[0] == 200, "the old limit")
        larder.find("event=request ", since)
        check("event=request " not in larder.log(since).split("event=reloaded")[0], "log.access was not taken over")


def rules_that_come_back_see_texts_they_had_not_looked_at(folder):
    """What is remembered of a text must not outlive the rules it was read with."""
    def ask(larder):
        with larder.client() as c:
            body = json.dumps({"model": "m", "messages": [{"role": "system", "content": BILLING},
                                                          {"role": "user", "content": "hi"}]}).encode()
            c.http.request("POST", "/v1/chat/completions", body)
            return c.answer()[0]

    with Upstream("a") as a:
        with Larder(folder, config(a, "canon: {rules_off: [LR001, LR002]}\n").replace("threads: 2", "threads: 1")) as larder:
            for _ in range(3):
                check(ask(larder) == 200 and b"billing" in a.bodies[-1], "an edit by a rule that is off")
            larder.reload(config(a))
            until(lambda: ask(larder) == 200 and b"billing" not in a.bodies[-1], "the rule's edit", 5)
            larder.reload(config(a, "canon: {mode: off}\n"))
            until(lambda: ask(larder) == 200 and b"billing" in a.bodies[-1], "no edit with mode off", 5)
            larder.reload(config(a, "canon: {mode: off}\nroutes: [{upstream: up, canon: on}]\n"))
            until(lambda: ask(larder) == 200 and b"billing" not in a.bodies[-1], "the edit of a route that is on", 5)


run([a_new_upstream_serves_the_next_request_and_a_stream_ends_on_the_old_one,
     a_body_under_way_goes_where_its_head_belonged,
     a_request_that_waits_for_a_connection_still_gets_it,
     a_bad_file_changes_nothing_and_its_place_is_named,
     a_changed_client_key_counts_at_once,
     an_upstream_key_file_is_read_again,
     what_needs_a_restart_is_named_and_keeps_its_value,
     the_host_check_goes_by_the_listeners_that_are_open,
     limits_and_routes_hold_from_then_on,
     rules_that_come_back_see_texts_they_had_not_looked_at])
