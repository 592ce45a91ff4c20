#!/usr/bin/env python3
"""The wire tests once more, with larder's sockets taking and bringing few bytes at a time, or none for now.

    short_larder.py LARDER PRELOAD large DEMO_UPSTREAM
    short_larder.py LARDER PRELOAD RUN_WIRE [ARGUMENT OF run_wire.py]...

Bodies, streams, heads and records must be what the exchanges say, however the bytes come (preload_socket.c). `large`:
bodies and answers of a megabyte, plain and streamed, from several clients at once, compared byte for byte.
"""
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fault_rig as rig  # noqa: E402


CLIENTS = 4
ROUNDS = 3


def ask(address, direct, name, failures):
    """Large requests on one connection; each answer through larder is the direct one but for its number and time."""
    c = http.client.HTTPConnection(*address, timeout=60)
    d = http.client.HTTPConnection(*direct, timeout=60)
    for n in range(ROUNDS):
        for stream in (False, True):
            body = rig.chat("%s-%d-%s" % (name, n, stream), "Hello", stream=stream, pad=700000 + 31337 * n)
            answers = []
            for connection in (c, d):
                connection.request("POST", "/v1/chat/completions", body)
                r = connection.getresponse()
                answers.append((r.status, bare(r.read())))
            if answers[0] != answers[1]:
                failures.append("%s %d: %d bytes with %d, directly %d with %d" % (
                    name, n, len(answers[0][1]), answers[0][0], len(answers[1][1]), answers[1][0]))


def bare(data):
    return re.sub(rb'"(id|created|system_fingerprint)":("[^"]*"|\d+)', b"", re.sub(rb'"usage":\{.*?\}\}', b"", data))


def large(larder, preload, demo_binary, seed):
    with rig.Cleanup() as cleanup:
        demo = cleanup.own(rig.Demo(demo_binary, "--answer-bytes", "900000", "--events", "3000", "--rule", "openai"))
        through = cleanup.own(rig.Larder(larder, "--upstream", demo.url, "--profile", "generic", "--canon", "off",
                                         "--threads", "2", preload=[preload], env={"FAULT_SEED": str(seed)})).wait_up()
        failures = []
        threads = [threading.Thread(target=ask, args=(through.address, demo.address, "c%d" % i, failures))
                   for i in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        rig.check(not failures, "seed %d: %s", seed, failures[:3])
        arrived = {}
        for e in demo.entries(0)[0]:
            # larder asks for the usage of a stream
            body = re.sub(r', ?"stream_options": ?\{"include_usage": ?true\}', "", e["body"])
            arrived.setdefault(json.loads(body)["model"], []).append(body)
        rig.check(len(arrived) == CLIENTS * ROUNDS * 2, "%d requests arrived", len(arrived))
        for name, bodies in arrived.items():
            rig.check(len(bodies) == 2 and bodies[0] == bodies[1], "%s arrived in another form: ...%s, ...%s", name,
                      bodies[0][-200:], bodies[-1][-200:])
        through.end_well()
        print("%d bodies and answers of about a megabyte, none changed" % (CLIENTS * ROUNDS * 2))


def main():
    larder, preload, run_wire = (os.path.abspath(p) for p in sys.argv[1:4])
    seed = int(os.environ.get("FAULT_SEED", time.time()))
    if sys.argv[3] == "large":
        large(larder, preload, sys.argv[4], seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        wrapper = os.path.join(folder, "larder")
        with open(wrapper, "w", encoding="ascii") as f:
            f.write('#!/bin/sh\nFAULT_SEED=%d LD_PRELOAD="%s" exec "%s" "$@"\n' % (
                seed, " ".join(rig.sanitizer_runtime(larder) + [preload]), larder))
        os.chmod(wrapper, 0o755)
        done = subprocess.run([sys.executable, "-B", run_wire, wrapper] + sys.argv[4:], check=False)
    rig.check(done.returncode == 0, "run_wire.py: exit %d with FAULT_SEED=%d", done.returncode, seed)


if __name__ == "__main__":
    rig.main(main)
