#!/usr/bin/env python3
"""The drill passes on the sample configurations and on chains that are right, and reaches nothing outside.

usage: drill_samples.py LARDER [PART OF A TEST'S NAME]
"""
import os
import signal
import socket
import subprocess
import threading

from drill_parts import HELD, MODEL, QUICK, ROOT, Drilled, check, drill, reload_parts, run

DEPLOY = os.path.join(ROOT, "deploy")


def the_sample(folder):
    d = Drilled(folder, os.path.abspath(os.path.join(DEPLOY, "larder.example.yaml")), "--json")
    d.holds()
    check(d.json["no_fallback"] > 0, "one upstream has no fallback, and that is said")
    hang = d.scenes(scenario="hang")
    check(all(s["status"] == 504 and s["why"] == "no fallback: the client sees 504" for s in hang), hang)
    check(hang[0]["wait"]["configured_ms"] == 600000 and hang[0]["wait"]["played_ms"] < 5000, hang)
    strict = Drilled(folder, os.path.abspath(os.path.join(DEPLOY, "larder.example.yaml")), "--json", "--require-fallback",
                     "--scenario", "closed")
    strict.fails("no fallback: the client sees 502", scenario="closed")


def the_sample_of_a_chain(folder):
    with open(os.path.join(DEPLOY, "larder.fallback.yaml"), encoding="utf-8") as f:
        text = f.read()
    check("./models/lite" in text, "the sample's model")
    d = drill(folder, text.replace("./models/lite", MODEL), "--json")
    d.holds()
    check(d.json["no_fallback"] == 0, d.told())
    for s in d.scenes(scenario="fallback"):
        check(s["answered_by"] == s["fallback"], s)
    check({s["fallback"] for s in d.scenes(scenario="fallback")} == {"openai", "local"}, d.told())
    check(all(s["answered_by"] == "local" and s["bytes_wrong"] is None for s in d.scenes(scenario="all-down")), d.told())
    for s in d.json["scenes"]:
        check(s["bytes_wrong"] in (0, None), s)
    check(all(s["tokens_lost"] == 1 for s in d.scenes(scenario="stream-cut-in-event")), d.told())
    check(not os.path.exists(os.path.join(folder, "larder-data")), "the operator's store was touched")
    without = drill(folder, text, "--json", "--without-engine")
    without.holds()
    check(any("--without-engine" in n for n in without.json["notes"]), without.told())
    check("local" not in {s["answered_by"] for s in without.json["scenes"]}, without.told())


def every_endpoint_with_replicas(folder):
    d = drill(folder, "upstreams:\n"
              "  - {name: one, url: 'http://192.0.2.1/v1', replicas: 'http://192.0.2.2/v1 http://192.0.2.3/v1', %s}\n"
              "  - {name: two, url: 'http://192.0.2.4', %s}\n"
              "routes:\n  - {prefix: /a, upstream: one, fallback: 'two=other', %s}\n"
              "  - {model: 'm-*', upstream: two, fallback: one, %s}\n" % (QUICK, QUICK, HELD, HELD),
              "--json", "--endpoint", "chat,messages,responses")
    d.holds()
    check({s["endpoint"] for s in d.json["scenes"]} == {"/v1/chat/completions", "/v1/messages", "/v1/responses"}, d.told())
    check(len(d.scenes(scenario="replica-down")) == 6, "one route begins with replicas")
    check({s["failure"] for s in d.scenes(scenario="down-for-long")} == {"crowded"}, d.told())
    late = d.scenes(scenario="end-missing", stream=True)
    check(len(late) == 6 and all(s["tokens_lost"] == 0 for s in late), late)


def a_stream_that_goes_on(folder):
    text = ("upstreams:\n  - {name: one, url: 'http://192.0.2.1', %s}\n  - {name: m, kind: engine, engine: {model: '%s'}}\n"
            "routes:\n  - {upstream: one, fallback: m, continue: engine, %s}\n" % (QUICK, MODEL, HELD))
    d = drill(folder, text, "--json")
    d.holds()
    late = [s for s in d.json["scenes"] if s["moment"] == "after content"]
    check(len(late) == 4 and all("gone on with" in s["why"] and s["answered_by"] == "one" for s in late), late)
    check(not any("gone on with" in s["why"] for s in d.scenes(scenario="tool-call-cut")), d.told())
    alone = drill(folder, text, "--json", "--without-engine")
    alone.holds()
    check(not any("gone on with" in s["why"] for s in alone.json["scenes"]), alone.told())


def a_model_alone(folder):
    d = drill(folder, "upstreams:\n  - {name: m, kind: engine, engine: {model: '%s'}}\n" % MODEL, "--json")
    d.holds()
    check(all(s["scenario"] == "well" and s["answered_by"] == "m" for s in d.json["scenes"]), d.told())
    none = drill(folder, "upstreams:\n  - {name: m, kind: engine, engine: {model: /nowhere}}\n", "--without-engine")
    check(none.code == 2 and "nothing to play" in none.err, none.told())


def nobody_outside_is_asked(folder):
    """The configured upstream and the shared memory listen here, and hear nothing; keys stay at home."""
    heard, listeners = [], []

    def listen():
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        s.listen(16)
        listeners.append(s)

        def accept():
            try:
                while True:
                    heard.append(s.accept())
            except OSError:
                pass
        threading.Thread(target=accept, daemon=True).start()
        return s.getsockname()[1]

    up, redis, taken = listen(), listen(), listen()
    d = drill(folder, "listen: 127.0.0.1:%d\nadmin: {listen: 127.0.0.1:%d}\nshared: {url: 'redis://127.0.0.1:%d'}\n"
              "keys: [{tenant: t, env: OPENAI_API_KEY}]\n"
              "upstreams:\n  - {name: u, url: 'http://127.0.0.1:%d', key_env: DEEPSEEK_API_KEY, %s}\n"
              % (taken, taken + 1 if taken < 65535 else taken - 1, redis, up, QUICK), "--json")
    d.holds()
    check(not heard, "somebody outside of the drill was asked", heard)
    for s in listeners:
        s.shutdown(socket.SHUT_RDWR)
        s.close()


def an_interrupted_drill_cleans_up(folder):
    file = os.path.join(folder, "larder.yaml")
    with open(file, "w", encoding="utf-8") as f:
        f.write("upstreams: [{name: u, url: 'http://192.0.2.1'}]\nstore: {dir: ./data}\n")
    p = subprocess.Popen([reload_parts.Larder.binary, "drill", "-c", file], cwd=folder, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=dict(os.environ, TMPDIR=folder))
    for row in p.stdout:
        if b" closed " in row:   # the next scenes wait for seconds
            break
    check(any(n.startswith("larder-drill") for n in os.listdir(folder)), "a store of its own")
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=reload_parts.LIMIT_S * 5)
    check(p.returncode == 1 and b"interrupted" in err, p.returncode, err)
    check(not [n for n in os.listdir(folder) if n.startswith("larder-drill") or n == "data"], os.listdir(folder))


def the_table(folder):
    d = drill(folder, "upstreams: [{name: u, url: 'http://192.0.2.1', %s}]\n" % QUICK, "--scenario", "closed")
    check(d.code == 0, d.told())
    check("all        chat      closed" in d.out and "no fallback: the client sees 502" in d.out, d.out)
    check("2 scenes held (in 2 of them nobody answers in place of the upstream), 0 FAILED" in d.out, d.out)


def options_that_name_nothing(folder):
    text = "upstreams: [{name: u, url: 'http://192.0.2.1'}]\n"
    for options, words in ((("--scenario", "closedd"), "no scenario 'closedd'"), (("--route", "7"), "no route '7'"),
                           (("--endpoint", "chats"), "no endpoint to drill 'chats'"), (("--endpoint",), "a value is missing"),
                           (("--prompt-bytes", "17000000"), "not a number of bytes"),
                           (("--jsonn",), "no such option")):
        d = drill(folder, text, *options)
        check(d.code == 2 and words in d.err and not d.out, words, d.told())


if __name__ == "__main__":
    run([the_sample, the_sample_of_a_chain, every_endpoint_with_replicas, a_stream_that_goes_on, a_model_alone, nobody_outside_is_asked,
         an_interrupted_drill_cleans_up, the_table, options_that_name_nothing])
