#!/usr/bin/env python3
"""The start of a served model: what larder refuses, and whether it takes the memory that it plans.

usage: serve_start.py LARDER [PART OF A TEST'S NAME]
LARDER_TEST_WRITE_MODEL: the program that writes models with random weights.
"""
import json
import os
import re
import resource
import shutil
import subprocess

from serve_parts import MODEL, SMALL, Larder, ask_chat, check, config, idle, long_text, metrics, run, until


def serve(folder, text, command="serve"):
    """A larder that does not start: (exit code, what it said)."""
    path = os.path.join(folder, "refused.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    r = subprocess.run([Larder.binary, command, "-c", path], capture_output=True, timeout=120, cwd=folder, check=False)
    return r.returncode, r.stderr.decode()


def what_cannot_fit_is_refused_with_the_plan(folder):
    for command in ("serve", "check"):
        code, said = serve(folder, config(engine=", kv_bytes: 100TiB"), command)
        check(code == 3, code, said)
        check("upstream tiny: the model does not fit" in said, said)
        for word in ("weights", "a token", "requests", "scratch", "total", "memory", "missing"):
            check(re.search("^" + word, said, re.M), word, "is not in the plan:\n" + said)


def what_is_wrong_is_named(folder):
    shutil.copytree(MODEL, folder + "/broken")
    os.truncate(folder + "/broken/model.safetensors", 3000000)
    rows = ((", kv: int4", "engine.kv: "), (", context: 513", "engine.context: 513 tokens; the model's own limit is 512"),
            (", context: 1", "engine.context: no prompt with an answer fits into 1 tokens; at least 2"),
            (", kv_bytes: 1KiB", "engine.kv_bytes: 1024 bytes; one page of 64 tokens takes"))
    for engine, text in rows:
        for command in ("serve", "check"):
            code, said = serve(folder, config(engine=engine), command)
            check(code == 3 and "upstream tiny: " in said and text in said, command, engine, code, said)
    for path in ("absent", "broken"):
        code, said = serve(folder, config().replace(MODEL, os.path.join(folder, path)))
        check(code in (1, 3) and "upstream tiny: " in said, path, code, said)
    check(os.path.join(folder, "absent") in serve(folder, config().replace(MODEL, folder + "/absent"))[1], "the path")


def a_model_without_its_text_is_refused(folder):
    """By the check of a configuration as by the start: tokenizer and template are read by both."""
    spoilt = {"none": ("tokenizer.json", None), "odd": ("tokenizer.json", "[]"),
              "template": ("tokenizer_config.json", '{"chat_template": "{% iff x %}"}')}
    for name, (file, text) in spoilt.items():
        model = os.path.join(folder, name)
        shutil.copytree(MODEL, model)
        os.remove(os.path.join(model, file))
        if text is not None:
            with open(os.path.join(model, file), "w", encoding="utf-8") as f:
                f.write(text)
        for command in ("serve", "check"):
            code, said = serve(folder, config().replace(MODEL, model), command)
            check(code == 3 and "upstream tiny: " in said, command, name, code, said)


def a_valid_file_is_checked_without_a_start(folder):
    code, said = serve(folder, config(), "check")
    check(code == 0, said)


def two_models_in_one_process(folder):
    text = config().replace("upstreams:\n", "upstreams:\n  - {name: second, kind: engine, engine: {model: '%s', served_name: two, "
                            "kv: fp8, sequences: 2}}\n" % MODEL)
    text += "routes:\n  - {model: two, upstream: second}\n  - {upstream: tiny}\n"
    with Larder(folder, text) as larder:
        check(ask_chat(larder, model="two", max_tokens=3).json["model"] == "two", "the second")
        check(ask_chat(larder, model="tiny-v3", max_tokens=3).json["model"] == "tiny-v3", "the first")
        m = idle(larder)
        check(m["engine_jobs_total"] == 2, m)
        check(re.search("event=engine_open upstream=second .* kv=fp8", larder.log()), larder.log())


def kept_prefixes_outlive_a_restart(folder):
    text = config(engine=", spill: 64MiB", extra="store: {dir: %s/store}\n" % folder)
    with Larder(folder, text) as larder:
        first = ask_chat(larder, long_text(300), max_tokens=4)
        check(first.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, first.data)
        idle(larder)
    with Larder(folder, text) as larder:
        again = ask_chat(larder, long_text(300), max_tokens=4)
        check(again.json["usage"]["prompt_tokens_details"]["cached_tokens"] >= 192, again.data)
        check(again.text() == first.text(), "another answer after the restart")
        m = idle(larder)
        check(m["engine_prefix_reloaded_total"] >= 3, m)


def what_the_disk_does_not_keep_is_no_spill(folder):
    """Pages are taken at once and written later: those that a full disk then loses count as failed."""
    text = config(engine=", spill: 64MiB, sequences: 1", extra="store: {dir: %s/store}\n" % folder)
    asked = [0]

    def push_out(larder):
        for _ in range(3):
            asked[0] += 1
            check(ask_chat(larder, "%d. %s" % (asked[0], long_text(300)), max_tokens=2).status == 200, "an answer")
        return idle(larder)

    def spilled_and_failed(larder):
        m = metrics(larder)
        return m["engine_prefix_spilled_total"], m["engine_prefix_spill_failed_total"], m["engine_prefix_evicted_total"]

    with Larder(folder, text) as larder:
        hard = resource.prlimit(larder.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(larder.process.pid, resource.RLIMIT_FSIZE, (1, hard))
        check(push_out(larder)["engine_prefix_evicted_total"] > 0, "nothing was evicted")
        until(lambda: spilled_and_failed(larder)[1] == spilled_and_failed(larder)[2], "pages that failed")
        check(spilled_and_failed(larder)[0] == 0, spilled_and_failed(larder))
        resource.prlimit(larder.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        until(lambda: push_out(larder) and spilled_and_failed(larder)[0] > 0, "pages that are kept")
        until(lambda: sum(spilled_and_failed(larder)[:2]) == spilled_and_failed(larder)[2], "a fate for each page")


def random_model(folder):
    writer = os.environ.get("LARDER_TEST_WRITE_MODEL")
    check(writer, "LARDER_TEST_WRITE_MODEL is not set")
    path = os.path.join(folder, "random")
    made = subprocess.run([writer, path, "--folder", "--type", "BF16", "--layers", "4", "--hidden", "512", "--dense-ff", "2048",
                           "--experts", "16", "--expert-ff", "512", "--vocab", "8192", "--context", "4096", "--no-yarn"],
                          capture_output=True, timeout=300, check=False)
    check(made.returncode == 0, made.stderr.decode())
    for part in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(MODEL, part), path)
    return path


def the_plan_is_what_is_reserved(folder):
    """`larder plan` against what the engine says that it took, and against the process's own memory, within 2 %."""
    plain = "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nupstreams:\n  - {url: 'http://127.0.0.1:1'}\n"
    with Larder(folder, plain) as larder:
        without = larder.status("RssAnon")
    path = random_model(folder)
    told = subprocess.run([Larder.binary, "plan", "--model", path, "--context", "4096", "--sequences", "8", "--kv", "bf16",
                           "--json"], capture_output=True, timeout=120, check=True)
    planned = json.loads(told.stdout)["total_bytes"]
    with Larder(folder, config(engine=", context: 4096").replace(MODEL, path)) as larder:
        line = re.search("event=engine_open.*", larder.log()).group()
        took = {k: int(v) for k, v in re.findall(r"(\w+_bytes)=(\d+)", line)}
        total = took["weights_bytes"] + took["kv_bytes"] + took["scratch_bytes"]
        check(abs(planned - total) <= 0.02 * total, planned, took)
        grown = (larder.status("RssAnon") - without) * 1024
        embedding = 8192 * 512 * 2   # read where it lies in the file
        print("planned %d, taken %d, grown by %d beside an embedding of %d" % (planned, total, grown, embedding))
        # scratch is address space until a pass needs it
        most = planned - embedding
        check(SMALL or 0.98 * (most - took["scratch_bytes"]) <= grown <= 1.02 * most, grown, took)


def the_plan_of_a_configuration_is_what_is_reserved(folder):
    """`larder plan --config` against the logs and the metrics of a larder with that configuration, within 2 %: two models,
    one with a number of bytes for keys and values, the other with its experts in a budget."""
    text = config(engine=", kv_bytes: 10MiB, pass_tokens: 100").replace("upstreams:\n", "upstreams:\n  - {name: second, kind: engine, "
                  "engine: {model: '%s', served_name: two, kv: 'fp8,1=bf16', sequences: 3, context: 1000, threads: 1, "
                  "expert_bytes: 20MiB}}\n  - {name: other, url: 'http://127.0.0.1:1'}\n" % random_model(folder))
    text += "routes:\n  - {model: two, upstream: second}\n  - {upstream: tiny}\n"
    with Larder(folder, text) as larder:
        told = subprocess.run([Larder.binary, "plan", "--config", larder.file, "--json"], capture_output=True, timeout=120,
                              check=True)
        plan = json.loads(told.stdout)
        check([u["name"] for u in plan["upstreams"]] == ["second", "tiny"] and plan["models"] == 2 and plan["fits"], told.stdout)
        took = 0
        for upstream in plan["upstreams"]:
            line = re.search("event=engine_open upstream=%s .*" % upstream["name"], larder.log()).group()
            one = {k: int(v) for k, v in re.findall(r"(\w+_bytes)=(\d+)", line)}
            total = one["weights_bytes"] + one["kv_bytes"] + one["scratch_bytes"]
            planned = upstream["plan"]["total_bytes"]
            print("%s: planned %d, taken %d" % (upstream["name"], planned, total))
            check(abs(planned - total) <= 0.02 * total, upstream, one)
            took += total
        check(abs(plan["total_bytes"] - took) <= 0.02 * took, plan["total_bytes"], took)
        m = idle(larder)
        kept = sum(u["plan"]["cache"]["bytes"] for u in plan["upstreams"])
        check(abs(kept - m["engine_page_bytes"]) <= 0.02 * kept, kept, m["engine_page_bytes"])
        check(0 < m["engine_expert_bytes"] <= 20 << 20, m["engine_expert_bytes"])
        people = subprocess.run([Larder.binary, "plan", "--config=" + larder.file], capture_output=True, timeout=120, check=True)
        check(re.search(b"^upstream  second\n.*^upstream  tiny\n.*^all ", people.stdout, re.M | re.S), people.stdout)
    little = subprocess.run([Larder.binary, "plan", "--config", folder + "/larder.yaml", "--memory", "30M"], capture_output=True,
                            timeout=120, check=False)
    check(little.returncode == 1 and b"It does not fit" in little.stdout, little.stdout)


if __name__ == "__main__":
    run([what_cannot_fit_is_refused_with_the_plan, what_is_wrong_is_named, a_model_without_its_text_is_refused,
         a_valid_file_is_checked_without_a_start, two_models_in_one_process, kept_prefixes_outlive_a_restart,
         what_the_disk_does_not_keep_is_no_spill,
         the_plan_is_what_is_reserved, the_plan_of_a_configuration_is_what_is_reserved])
