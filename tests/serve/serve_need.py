#!/usr/bin/env python3
"""A model that is loaded with the first request that needs it (engine.start: need).

usage: serve_need.py LARDER [PART OF A TEST'S NAME]
"""
import http.client
import json
import os
import shutil
import subprocess
import threading

from serve_parts import LIMIT_S, MODEL, Larder, ask, ask_chat, check, config, idle, long_text, metrics, metrics_by, run, until
from serve_start import serve

NEED = ", start: need"


def admin(larder, path):
    c = http.client.HTTPConnection("127.0.0.1", larder.admin_port, timeout=LIMIT_S)
    try:
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def state(larder):
    numbers = {0: "ready", 1: "cold", 2: "loading", 3: "failed"}
    return numbers[metrics_by(larder, "upstream_engine_state")['{upstream="tiny"}']]


def shown(larder):
    """The line of `larder upstreams`."""
    r = subprocess.run([Larder.binary, "upstreams", "--admin", "127.0.0.1:%d" % larder.admin_port], capture_output=True,
                       timeout=LIMIT_S, check=True)
    return [line.split() for line in r.stdout.decode().splitlines() if line.startswith("tiny ")][0]


def what_needs_no_weight_leaves_it_cold(folder):
    with Larder(folder, config(engine=NEED)) as larder:
        check(admin(larder, "/readyz") == (200, "ready\ntiny: cold\n"), admin(larder, "/readyz"))
        check(shown(larder)[3] == "cold", shown(larder))
        check(ask(larder, "/v1/models").json["data"][0]["max_model_len"] == 512, "the list of models")
        check(ask(larder, "/tokenize", {"model": "tiny-v3", "prompt": "a b"}).json["count"] > 1, "tokens")
        check(ask_chat(larder, long_text(2000)).json["error"]["code"] == "context_length_exceeded", "too long")
        check(ask_chat(larder, temperature=3).status == 400, "a fault of the request")
        check(state(larder) == "cold" and "engine_open" not in larder.log(), "it was loaded:\n" + larder.log())
        check(metrics(larder)["engine_pages"] == 0, "pages of a cold model")


def the_first_request_loads_it_and_all_wait(folder):
    with Larder(folder, config(engine=NEED)) as larder:
        before = larder.status("RssAnon")
        answers = []

        def one(i):
            answers.append(ask_chat(larder, "Once upon a time", max_tokens=5, stream=i % 2 == 1))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check([a.status for a in answers] == [200] * 8, [a.data for a in answers])
        check(len({a.text() for a in answers}) == 1, "different answers", [a.text() for a in answers])
        check(state(larder) == "ready" and shown(larder)[3] == "ready", state(larder))
        check(admin(larder, "/readyz") == (200, "ready\n"), admin(larder, "/readyz"))
        check(larder.log().count("event=engine_open ") == 1, larder.log())
        check(larder.status("RssAnon") > before, "no memory was taken")
        idle(larder)
    with Larder(folder, config()) as larder:   # loaded at start
        check(ask_chat(larder, "Once upon a time", max_tokens=5).text() == answers[0].text(), "another answer")


def a_load_that_fails_is_told_and_tried_again(folder):
    model = os.path.join(folder, "model")
    shutil.copytree(MODEL, model)
    text = config(engine=NEED + ", served_name: tiny-v3").replace(MODEL, model)
    with Larder(folder, text) as larder:
        os.rename(model + "/model.safetensors", model + "/away")
        failed = ask_chat(larder, max_tokens=2)
        check(failed.status == 503 and failed.json["error"]["code"] == "model_failed", failed.data)
        check(1 <= int(failed.headers["Retry-After"]) <= 5, failed.headers)
        check(folder not in failed.data.decode(), "a path in the answer", failed.data)
        larder.find("event=engine_load_failed upstream=tiny")
        status, body = admin(larder, "/readyz")
        check(status == 503 and '{"name":"tiny","state":"failed"' in body, status, body)
        check(shown(larder)[3] == "failed" and state(larder) == "failed", shown(larder))
        os.rename(model + "/away", model + "/model.safetensors")
        again = ask_chat(larder, max_tokens=2)
        check(again.status in (200, 503), again.data)
        until(lambda: ask_chat(larder, max_tokens=2).status == 200, "the model, once the pause is over")
        check(state(larder) == "ready" and admin(larder, "/readyz")[0] == 200, state(larder))
        idle(larder)


def what_cannot_fit_is_refused_at_start_all_the_same(folder):
    for command in ("serve", "check"):
        code, said = serve(folder, config(engine=NEED + ", kv_bytes: 100TiB"), command)
        check(code == 3 and "upstream tiny: the model does not fit" in said, code, said)
    code, said = serve(folder, config(engine=", start: later"))
    check(code == 3 and "engine.start: must be now or need" in said, code, said)


def promises_count_together(folder):
    """Two models that fit alone and not together are refused, though neither takes its memory yet."""
    with Larder(folder, config(engine=NEED)) as larder:   # of the machine, or of the control group
        free = int(larder.find(r"event=engine_planned .*available_bytes=(\d+)").group(1))
    half = ", kv_bytes: %d" % (free * 6 // 10)
    text = config(engine=NEED + half)
    code, said = serve(folder, text, "check")
    check(code == 0, said)
    second = "  - {name: second, kind: engine, engine: {model: '%s', served_name: two, start: need%s}}\n" % (MODEL, half)
    code, said = serve(folder, text.replace("upstreams:\n", "upstreams:\n" + second))
    check(code == 3 and "upstream tiny: the model does not fit" in said, code, said)
    # what is loaded at start is planned first, wherever it stands
    mixed = config(engine="").replace("upstreams:\n", "upstreams:\n" + second.replace(half, ""))
    with open(folder + "/mixed.yaml", "w", encoding="utf-8") as f:
        f.write(mixed)
    told = subprocess.run([Larder.binary, "plan", "--config", folder + "/mixed.yaml", "--json"], capture_output=True,
                          timeout=120, check=False)
    check([u["name"] for u in json.loads(told.stdout)["upstreams"]] == ["tiny", "second"], told.stdout)


if __name__ == "__main__":
    run([what_needs_no_weight_leaves_it_cold, the_first_request_loads_it_and_all_wait,
         a_load_that_fails_is_told_and_tried_again, what_cannot_fit_is_refused_at_start_all_the_same,
         promises_count_together])
