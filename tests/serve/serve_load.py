#!/usr/bin/env python3
"""Many clients of a served model at once, loops that go on answering meanwhile, and nothing left behind in the end.

usage: serve_load.py LARDER [PART OF A TEST'S NAME]
LARDER_TEST_REQUESTS: how many short requests the last test makes (200).
"""
import http.client
import json
import os
import threading

from serve_parts import (LIMIT_S, SMALL, Larder, Missed, Raw, ask, ask_chat, chat, check, config, idle, long_text, metrics, run,
                         scene, until)

CHAT = "/v1/chat/completions"


def together(count, work):
    """Runs work(i) on `count` threads; their results in order."""
    results, errors = [None] * count, []

    def one(i):
        try:
            results[i] = work(i)
        except Exception as e:   # told below, by the main thread
            errors.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not errors, errors)
    return results


def fifty_clients_at_once(folder):
    """Four sequences and a queue of eight: the others are told to come back, and those that are served add up."""
    count = 12 if SMALL else 50
    with Larder(folder, config(engine=", sequences: 4, queue: 8")) as larder:
        def work(i):
            return ask_chat(larder, "Client %d: %s" % (i, long_text(30)), max_tokens=8, ignore_eos=True, stream=i % 2 == 1,
                            stream_options={"include_usage": True} if i % 2 else None)
        answers = together(count, work)
        served = [a for a in answers if a.status == 200]
        refused = [a for a in answers if a.status in (429, 503)]
        check(len(served) + len(refused) == count, [a.status for a in answers])
        check(len(served) >= 8, len(served), "were served")
        check(all(int(a.headers["Retry-After"]) >= 1 for a in refused), "a refusal without Retry-After")
        usages = [a.json["usage"] if a.json else a.chunks[-1]["usage"] for a in served]
        m = idle(larder)
        check(sum(u["completion_tokens"] for u in usages) == m["engine_answer_tokens_total"] == 8 * len(served), m)
        check(sum(u["prompt_tokens"] for u in usages) == m["engine_prompt_tokens_total"], m)
        check(m["engine_jobs_total"] == len(served), m)


def everybody_gets_the_answer_of_one_alone(folder):
    with Larder(folder, config(engine=", sequences: 8")) as larder:
        def work(i):
            r = ask_chat(larder, "Story %d. %s" % (i % 4, long_text(20 + i)), max_tokens=10, ignore_eos=True, seed=i, temperature=0.8)
            check(r.status == 200, r.data)
            return r.text()
        alone = [work(i) for i in range(8)]
        check(together(8, work) == alone, "company changed an answer")
        idle(larder)


def a_prompt_of_many_is_computed_once(folder):
    """The same prompt from all at once, with answers of their own: what one has computed of it the others take over."""
    with Larder(folder, config(engine=", sequences: 6")) as larder:
        def work(i):
            r = ask_chat(larder, long_text(250), max_tokens=4, ignore_eos=True, seed=i, temperature=1)
            check(r.status == 200, r.data)
            return r.json["usage"]
        usages = together(6, work)
        tokens = usages[0]["prompt_tokens"]
        cached = sorted(u["prompt_cache_hit_tokens"] for u in usages)
        check(cached == [0] + 5 * [(tokens - 1) // 64 * 64], tokens, cached)
        check(idle(larder)["engine_cached_tokens_total"] == sum(cached), cached)


def loops_answer_while_the_model_computes(folder):
    """Each loop's thread goes on: models and health are answered while answers are under way, not behind them."""
    with Larder(folder, config(engine=", sequences: 4, threads: 2")) as larder:
        def play():
            busy = [Raw(larder, CHAT, chat("%d" % i, max_tokens=400, ignore_eos=True, stream=True)) for i in range(4)]
            for raw in busy:
                raw.read_until(b"data: ")
            admin = http.client.HTTPConnection("127.0.0.1", larder.admin_port, timeout=LIMIT_S)
            admin.request("GET", "/healthz")
            check(admin.getresponse().read() == b"ok\n", "/healthz")
            admin.close()
            for _ in range(10):
                check(ask(larder, "/v1/models").status == 200, "/v1/models")
                check(ask(larder, "/tokenize", {"model": "tiny-v3", "prompt": "x"}).status == 200, "/tokenize")
            answering = metrics(larder)["engine_decoding"]
            for raw in busy:
                raw.close(reset=True)
            idle(larder)
            if not answering:
                raise Missed
        scene(play)


def nothing_grows_with_requests(folder):
    """Memory, descriptors, pages and threads after many short requests are what they were after a few."""
    count = int(os.environ.get("LARDER_TEST_REQUESTS", "40" if SMALL else "200"))
    with Larder(folder, config(engine=", sequences: 4, queue: 64", extra="log: {access: false}\n")) as larder:
        def descriptors():
            return len(os.listdir("/proc/%d/fd" % larder.process.pid))

        def quiet(few):
            """Descriptors, threads and memory, once no more than `few` descriptors are open: what asks for metrics has some."""
            until(lambda: metrics(larder)["client_connections"] == 0, "closed connections")
            idle(larder)
            until(lambda: descriptors() <= few, "as few descriptors as before, which were %d" % few)
            return descriptors(), larder.status("Threads"), larder.status("VmRSS")

        def some(n):
            def work(i):
                c = http.client.HTTPConnection("127.0.0.1", larder.port, timeout=LIMIT_S)
                for k in range(n // 4):
                    body = chat("Hello %d" % (k % 50), max_tokens=1, stream=k % 2 == 0)
                    c.request("POST", CHAT, json.dumps(body))
                    r = c.getresponse()
                    check(r.read() and r.status == 200, r.status)
                c.close()
            together(4, work)
        some(max(200, count // 10) if count >= 1000 else count)   # pages of prefixes, spare exchanges, arenas of malloc
        before = quiet(1 << 20)
        some(count)
        after = quiet(before[0])
        check(after[1] == before[1], "threads:", before, after)
        check(after[2] <= before[2] + 4096 or SMALL, "memory grew from", before[2], "to", after[2], "KiB over", count, "requests")


if __name__ == "__main__":
    run([fifty_clients_at_once, everybody_gets_the_answer_of_one_alone, a_prompt_of_many_is_computed_once,
         loops_answer_while_the_model_computes,
         nothing_grows_with_requests])
