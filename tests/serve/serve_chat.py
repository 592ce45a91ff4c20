#!/usr/bin/env python3
"""Answers of a model in larder's own process, over the wire, through every stage of the proxy.

usage: serve_chat.py LARDER [PART OF A TEST'S NAME]
"""
import json
import os
import re
import subprocess

from serve_parts import MODEL, Larder, ask, ask_chat, chat, check, config, idle, long_text, metrics, metrics_by, run

TEAMS = ("keys:\n  - {tenant: a, env: T_A}\n  - {tenant: b, env: T_B}\n")


def whole_and_streamed_answers_are_the_same(folder):
    with Larder(folder, config()) as larder:
        whole = ask_chat(larder, max_tokens=24, ignore_eos=True)
        check(whole.status == 200, whole.status, whole.data)
        check(whole.json["object"] == "chat.completion" and whole.json["model"] == "tiny-v3", whole.json)
        check(whole.headers["x-larder-request-id"].startswith("lr-"), whole.headers)
        usage = whole.json["usage"]
        check(usage["completion_tokens"] == 24 and usage["prompt_tokens"] + 24 == usage["total_tokens"], usage)
        check(whole.json["choices"][0]["finish_reason"] == "length", whole.json)
        check(whole.text(), "an answer without text")
        streamed = ask_chat(larder, max_tokens=24, ignore_eos=True, stream=True)
        check(streamed.status == 200 and streamed.events[-1] == "[DONE]", streamed.data)
        check(streamed.text() == whole.text(), streamed.text(), "is not", whole.text())
        check(all(not c.get("usage") for c in streamed.chunks), "usage that the client did not ask for")
        asked = ask_chat(larder, max_tokens=24, ignore_eos=True, stream=True, stream_options={"include_usage": True})
        check(asked.chunks[-1]["usage"]["completion_tokens"] == 24, asked.chunks[-1])
        m = idle(larder)
        check(m["engine_jobs_total"] == 3 and m["engine_answer_tokens_total"] == 72, m)
        check(m["output_tokens_total"] == 72, "the journal's side counts", m["output_tokens_total"])
        check(m["engine_page_bytes"] > 0 and m["engine_pages"] == 64, m)


def completions_models_and_tokens(folder):
    with Larder(folder, config()) as larder:
        done = ask(larder, "/v1/completions", {"model": "tiny-v3", "prompt": "Once upon", "max_tokens": 5, "temperature": 0})
        check(done.status == 200 and done.json["object"] == "text_completion" and done.text(), done.data)
        models = ask(larder, "/v1/models")
        check([m["id"] for m in models.json["data"]] == ["tiny-v3"], models.data)
        check(ask(larder, "/v1/models/tiny-v3").json["id"] == "tiny-v3", "one model")
        check(ask(larder, "/v1/models/other").status == 404, "another model")
        head = ask(larder, "/v1/models", method="HEAD")
        check(head.status == 200 and head.data == b"" and int(head.headers["Content-Length"]) == len(models.data), head.headers)
        ids = ask(larder, "/tokenize", {"model": "tiny-v3", "prompt": "Once upon a time"}).json
        check(ids["count"] == len(ids["tokens"]) > 0, ids)
        back = ask(larder, "/detokenize", {"model": "tiny-v3", "tokens": ids["tokens"]}).json
        check("Once upon a time" in back["prompt"], back)
        check(ask(larder, "/tokenize", method="GET").status == 405, "the wrong method")
        idle(larder)


def stats(larder, *more):
    return subprocess.run([Larder.binary, "stats", "--store", larder.folder + "/store", *more], capture_output=True, timeout=60,
                          check=False, text=True)


def stats_tell_of_experts_by_layer(folder):
    """Where the running larder is named, by what its metrics say, with advice; elsewhere not a word."""
    store = "store: {dir: %s/store}\n" % folder
    admin = "127.0.0.1:%d"
    with Larder(folder, config(", expert_bytes: 1MiB", store)) as larder:
        for i in range(4):   # enough for advice on hits and times
            ask_chat(larder, "Question %d" % i, max_tokens=60, ignore_eos=True)
        m = idle(larder)
        told = stats(larder, "--admin", admin % larder.admin_port, "--json")
        check(told.returncode == 0, told.stderr)
        engine, = json.loads(told.stdout)["expert_engines"]
        check(engine["upstream"] == "tiny" and engine["bytes"] == m["engine_expert_bytes"], engine)
        check(engine["hits"] == m["engine_expert_hits_total"] and engine["misses"] == m["engine_expert_misses_total"], engine, m)
        check(engine["stall_us"] <= engine["run_us"] and engine["bytes_read"] == m["engine_expert_read_bytes_total"], engine)
        hits = metrics_by(larder, "engine_expert_layer_hits_total")
        check({'{upstream="tiny",layer="%d"}' % l["layer"]: l["hits"] for l in engine["layers"]} == hits, engine["layers"], hits)
        people = stats(larder, "--admin=" + admin % larder.admin_port).stdout
        check("experts of tiny since its start" in people and people.count("\nadvice    ") == len(engine["advice"]), people)
        for l in engine["layers"]:
            check(re.search(r"^%d +%d +%d +[0-9.]+%%$" % (l["layer"], l["hits"], l["misses"]), people, re.M), people)
        check("experts" not in stats(larder).stdout, "asked without --admin")
        other = stats(larder, "--admin", admin % larder.port)   # the clients' listener
        check(other.returncode == 1 and "no admin listener" in other.stderr, other.stderr)
    with Larder(folder, config("", store)) as larder:
        ask_chat(larder, max_tokens=2)
        idle(larder)
        told = stats(larder, "--admin", admin % larder.admin_port).stdout
        check("no model of that larder has a budget" in told, told)


def experts_in_a_budget_answer_alike(folder):
    with Larder(folder, config()) as larder:
        whole = ask_chat(larder, max_tokens=24, ignore_eos=True)
        check(metrics(larder)["engine_expert_bytes"] == 0, "a budget that nobody set")
    with Larder(folder, config(", expert_bytes: 1MiB")) as larder:
        part = ask_chat(larder, max_tokens=24, ignore_eos=True)
        check(part.text() == whole.text(), part.text(), "is not", whole.text())
        m = metrics(larder)
        check(0 < m["engine_expert_bytes"] <= 1 << 20 and 0 < m["engine_expert_slots"] < m["engine_experts"], m)
        check(m["engine_expert_hits_total"] > 0 and m["engine_expert_misses_total"] > 0, m)
        check(m["engine_expert_read_bytes_total"] > 0 and m["engine_expert_failures_total"] == 0, m)
        layers = metrics_by(larder, "engine_expert_layer_misses_total")
        check(sum(layers.values()) == m["engine_expert_misses_total"] and len(layers) > 1, layers)


def what_it_does_not_answer_is_said(folder):
    with Larder(folder, config()) as larder:
        r = ask(larder, "/v1/messages", {"model": "tiny-v3", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})
        check(r.status == 404 and r.json["type"] == "error" and r.json["error"]["type"] == "not_found_error", r.data)
        check("/v1/chat/completions" in r.json["error"]["message"], r.data)
        for path in ("/v1/responses", "/v1/embeddings"):
            r = ask(larder, path, {"model": "tiny-v3", "input": "x"})
            check(r.status == 404 and "/v1/chat/completions" in r.json["error"]["message"], r.status, r.data)
        for path in ("/v1/files", "/tokenizer"):
            check(ask(larder, path).status == 404, path)
        check(ask(larder, "/v1/chat/completions").status == 405, "GET")


def errors_name_the_field(folder):
    with Larder(folder, config()) as larder:
        rows = (("temperature", "hot"), ("max_tokens", -1), ("n", 1000), ("messages", []), ("top_p", 7),
                ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}))
        for field, value in rows:
            r = ask_chat(larder, **{field: value})
            check(r.status == 400 and field in json.dumps(r.json["error"]), field, r.status, r.data)
        r = ask_chat(larder, model="gpt-4")
        check(r.status == 404 and "tiny-v3" in r.json["error"]["message"], r.data)
        check(ask(larder, "/v1/chat/completions", b"{").status == 400, "broken JSON")
        m = idle(larder)
        check(m["engine_jobs_total"] == 0, "a refused request came to the engine")


def aliases_and_routes_choose_the_model(folder):
    routes = "routes:\n  - {model: 'local-*', upstream: tiny}\naliases: {fast: tiny-v3}\n"
    with Larder(folder, config()) as larder:
        check(ask_chat(larder, model="fast", max_tokens=2).status == 404, "a name that nobody knows")
    with Larder(folder, config(extra="aliases: {fast: tiny-v3}\n")) as larder:
        check(ask_chat(larder, model="fast", max_tokens=2).status == 200, "an alias")
        check(ask(larder, "/tokenize", {"model": "fast", "prompt": "x"}).status == 200, "an alias to tokenize")
    with Larder(folder, config(extra=routes)) as larder:
        check(ask_chat(larder, model="local-7b", max_tokens=2).status == 200, "a route's pattern")
        check(ask_chat(larder, model="fast", max_tokens=2).status == 200, "an alias")


def prefixes_are_kept_for_a_tenant_alone(folder):
    os.environ["T_A"], os.environ["T_B"] = "key-of-a", "key-of-b"
    with Larder(folder, config(extra=TEAMS + "canon: {scope_header: x-user}\n")) as larder:
        text = long_text(200)

        def cached(key, user="u"):
            r = ask_chat(larder, text, max_tokens=4, headers={"Authorization": "Bearer " + key, "x-user": user})
            check(r.status == 200, r.data)
            u = r.json["usage"]
            return u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], u["prompt_cache_hit_tokens"], r.text()
        first, again, other = cached("key-of-a"), cached("key-of-a"), cached("key-of-b")
        check(first[0] > 150 and first[1] == 0, first)
        pages = (first[0] - 1) // 64 * 64
        check(again[1] == again[2] == pages > 0, again)
        check(other[1] == other[2] == 0, "another tenant's prefix was used:", other)
        user = cached("key-of-a", "v")
        check(user[1] == user[2] == 0, "another user's prefix was used:", user)
        check(first[3] == again[3] == other[3], "a kept prefix changed the answer")
        check(ask_chat(larder, text).status == 401, "without a key")
        m = idle(larder)
        check(m["hit_tokens_total"] == pages, m["hit_tokens_total"])


def the_journal_has_it(folder):
    with Larder(folder, config(extra="store: {dir: %s/store}\n" % folder)) as larder:
        check(ask_chat(larder, long_text(150), max_tokens=4).status == 200, "chat")
        check(ask_chat(larder, long_text(150), max_tokens=4, stream=True).status == 200, "chat")
        idle(larder)
    out = subprocess.run([Larder.binary, "stats", "--store", folder + "/store"], capture_output=True, check=True).stdout.decode()
    check("tiny" in out and "tiny-v3" in out, out)
    out = subprocess.run([Larder.binary, "export", "--store", folder + "/store"], capture_output=True, check=True).stdout.decode()
    rows = [json.loads(line) for line in out.splitlines()]
    check(len(rows) == 2 and all(r["upstream"] == "tiny" and r["provider"] == "larder" for r in rows), rows)
    check(rows[0]["hit_tokens"] == 0 and rows[1]["hit_tokens"] >= 64, rows)


def e13_over_long_prompts_are_refused_with_both_numbers(folder):
    """Every slot has the whole of the configured context, however many there are."""
    with Larder(folder, config(engine=", context: 256, sequences: 4")) as larder:
        def tokens(n):
            """A completions prompt of exactly n tokens, as ids."""
            ids = ask(larder, "/tokenize", {"model": "tiny-v3", "prompt": long_text(1000), "add_special_tokens": False})
            return ids.json["tokens"][:n]
        for n, most, status in ((255, 1, 200), (256, 1, 400), (257, 1, 400), (768, 1, 400), (255, 1000, 400), (100, 156, 200)):
            r = ask(larder, "/v1/completions", {"model": "tiny-v3", "prompt": tokens(n), "max_tokens": most, "temperature": 0})
            check(r.status == status, n, most, r.status, r.data)
            if status == 200:
                check(r.json["usage"]["prompt_tokens"] == n, "cut silently:", r.json["usage"])
                continue
            check(r.json["error"]["code"] == "context_length_exceeded", r.data)
            check("256" in r.json["error"]["message"] and str(n) in r.json["error"]["message"], r.data)
        idle(larder)


def e19_what_can_never_fit_is_refused_at_once(folder):
    """Four pages for a context of 512: a request of 300 tokens has no place; a small one behind it runs."""
    with Larder(folder, config(engine=", kv: bf16, kv_bytes: 400KiB, context: 512")) as larder:
        pages = metrics(larder)["engine_pages"]
        check(2 <= pages <= 5, pages)
        r = ask_chat(larder, long_text(400), max_tokens=50)
        check(r.status in (400, 503), r.status, r.data)
        check(ask_chat(larder, max_tokens=5).status == 200, "a small one")
        idle(larder)


def one_flag_serves_a_model(folder):
    class Short(Larder):
        def __init__(self):
            super().__init__(folder, "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 1\n")
    binary = Larder.binary
    script = os.path.join(folder, "larder")
    with open(script, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\nexec '%s' \"$@\" --model '%s'\n" % (binary, MODEL))
    os.chmod(script, 0o755)
    Larder.binary = script
    try:
        with Short() as larder:
            check(ask(larder, "/v1/chat/completions", chat(max_tokens=2)).status == 200, "chat")
    finally:
        Larder.binary = binary


if __name__ == "__main__":
    run([whole_and_streamed_answers_are_the_same, completions_models_and_tokens, experts_in_a_budget_answer_alike,
         stats_tell_of_experts_by_layer, what_it_does_not_answer_is_said, errors_name_the_field,
         aliases_and_routes_choose_the_model, prefixes_are_kept_for_a_tenant_alone, the_journal_has_it,
         e13_over_long_prompts_are_refused_with_both_numbers, e19_what_can_never_fit_is_refused_at_once,
         one_flag_serves_a_model])
