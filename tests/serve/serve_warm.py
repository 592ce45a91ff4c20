#!/usr/bin/env python3
"""Prefixes that are kept warm while the model is idle (engine.keep_warm): the first local answer finds them.

usage: serve_warm.py LARDER [PART OF A TEST'S NAME]
"""
import time

from serve_fallback import Provider
from serve_parts import MODEL, Larder, Missed, ask, check, idle, long_text, metrics, run, scene, until

SYSTEM = long_text(220)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def config(provider, engine=", keep_warm: 2", extra=""):
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nupstreams:\n"
            "  - {name: provider, url: 'http://127.0.0.1:%d', retry: {attempts: 1}, breaker: {open_max: 0}}\n"
            "  - {name: tiny, kind: engine, engine: {model: '%s', queue_wait: 0%s}}\n"
            "routes:\n  - {model: tiny-v3, upstream: tiny}\n  - {upstream: provider, fallback: tiny}\n%s" % (provider.port, MODEL, engine, extra))


def send(larder, question, system=SYSTEM, key=None, **fields):
    body = dict({"model": "m", "temperature": 0, "max_tokens": 3,
                 "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}, **fields)
    return ask(larder, "/v1/chat/completions", body, headers={"Authorization": "Bearer " + key} if key else None)


def from_provider(answer):
    check(answer.status == 200 and answer.headers["x-larder-served-by"] == "provider", answer.status, answer.data)


def cached(answer):
    check(answer.status == 200 and answer.headers["x-larder-served-by"] == "tiny", answer.status, answer.data)
    return answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def warmed(larder, count):
    until(lambda: metrics(larder)["engine_warmed_total"] >= count, "%d warm prefixes" % count)
    return idle(larder)


def the_first_local_answer_finds_its_prefix(folder):
    answers = []
    for keep in (2, 0):
        provider = Provider()
        with Larder(folder, config(provider, ", keep_warm: %d" % keep)) as larder:
            for question in ("One?", "Two?", "Three?"):
                from_provider(send(larder, question))
            m = warmed(larder, 1) if keep else metrics(larder)
            check(m["engine_warm_prefixes"] == (1 if keep else 0), m)
            check(m["engine_warmed_tokens_total"] >= (192 if keep else 0), m)
            provider.mood = "cut"
            answer = send(larder, "And now, what is there to be seen?")
            got = cached(answer)
            check(got >= 192 if keep else got == 0, "cached:", got, "with keep_warm", keep)
            answers.append(answer.text())
            check(SYSTEM[:60] not in larder.log(), "a prompt is in the log")
    check(answers[0] == answers[1], "a warm prefix changed the answer", answers)


def nothing_crosses_tenants(folder):
    import hashlib
    keys = "keys: [{tenant: a, sha256: %s}, {tenant: b, sha256: %s}]\n" % tuple(
        hashlib.sha256(k).hexdigest() for k in (b"key-a", b"key-b"))
    provider = Provider()
    with Larder(folder, config(provider, extra=keys)) as larder:
        for _ in range(2):
            from_provider(send(larder, "One?", key="key-a"))
        warmed(larder, 1)
        provider.mood = "cut"
        check(cached(send(larder, "Two?", key="key-b")) == 0, "another tenant's prefix")
        check(cached(send(larder, "Two?", key="key-a")) >= 192, "the tenant's own")


def the_most_used_stay_and_come_back(folder):
    """Of three prefixes the two most used are warmed; after the model was asked for other things they are again."""
    texts = [word + ". " + SYSTEM for word in ("Alpha", "Beta", "Gamma")]
    provider = Provider()
    engine = ", keep_warm: 2, kv_bytes: 3MiB, sequences: 1"
    with Larder(folder, config(provider, engine)) as larder:
        pages = metrics(larder)["engine_pages"]
        check(8 <= pages <= 64, "the test's idea of the model's pages:", pages)
        for text, times in zip(texts, (3, 1, 2)):
            for i in range(times):
                from_provider(send(larder, "Question %d?" % i, text))
        warmed(larder, 2)
        time.sleep(1)
        check(metrics(larder)["engine_warmed_total"] == 2, "a third one was warmed")
        for i in range(int(pages) // 4):   # other prompts take all pages
            ask(larder, "/v1/completions", {"model": "tiny-v3", "prompt": "%d %s" % (i, long_text(400)),
                                            "max_tokens": 1})
        m = warmed(larder, 4)
        check(m["engine_prefix_evicted_total"] > 0, m)
        provider.mood = "cut"
        check(cached(send(larder, "And now?", texts[0])) >= 192, "the most used")
        check(cached(send(larder, "And now?", texts[2])) >= 192, "the second")


def the_journal_says_what_was_used_before(folder):
    """After a restart one request is enough for a prefix that was used often, though another is used more now."""
    often, seldom = "Alpha. " + SYSTEM, "Beta. " + SYSTEM
    provider = Provider()
    text = config(provider, ", keep_warm: 1", extra="store: {dir: '%s/store'}\n" % folder)
    with Larder(folder, text) as larder:
        for i in range(6):
            from_provider(send(larder, "Question %d?" % i, often))
    with Larder(folder, text) as larder:
        for i in range(3):
            from_provider(send(larder, "Question %d?" % i, seldom))
        warmed(larder, 1)
        from_provider(send(larder, "One?", often))
        warmed(larder, 2)
        provider.mood = "cut"
        check(cached(send(larder, "Two?", often)) >= 192, "what was used before")


def a_request_stops_it(folder):
    """It goes first, whatever is being warmed; what was stopped is warmed later."""
    def play():
        provider = Provider()
        with Larder(folder, config(provider, ", keep_warm: 8")) as larder:
            for i in range(8):
                from_provider(send(larder, "One?", "%d. %s" % (i, long_text(420))))
            until(lambda: metrics(larder)["engine_prefilling"] > 0 or metrics(larder)["engine_warmed_total"] == 8, "work")
            local = ask(larder, "/v1/completions", {"model": "tiny-v3", "prompt": "Once", "max_tokens": 2})
            check(local.status == 200, local.data)
            stopped = metrics(larder)["engine_warm_stopped_total"]
            warmed(larder, 8)
            if not stopped:
                raise Missed

    scene(play)


def what_has_no_prefix_or_is_refused_is_left_alone(folder):
    provider = Provider()
    with Larder(folder, config(provider)) as larder:
        body = {"model": "m", "messages": [{"role": "user", "content": long_text(200)}]}
        from_provider(ask(larder, "/v1/chat/completions", body))                      # no system text
        from_provider(send(larder, "One?", long_text(2000)))                          # more than the context
        from_provider(send(larder, "One?", "Short."))                                 # less than a page
        from_provider(send(larder, "One?", tools=TOOLS, tool_choice="required"))      # what the model cannot
        from_provider(send(larder, "One?", "Another. " + SYSTEM))
        m = warmed(larder, 1)
        check(m["engine_warmed_total"] == 1 and m["engine_warm_prefixes"] <= 4, m)


def a_cold_model_stays_cold(folder):
    provider = Provider()
    with Larder(folder, config(provider, ", keep_warm: 2, start: need")) as larder:
        for _ in range(3):
            from_provider(send(larder, "One?"))
        time.sleep(1.5)
        check("event=engine_open" not in larder.log(), larder.log())
        provider.mood = "cut"
        check(cached(send(larder, "Two?")) == 0, "the answer that loads it")
        from_other = send(larder, "Three?")
        check(cached(from_other) >= 192, from_other.data)


if __name__ == "__main__":
    run([the_first_local_answer_finds_its_prefix, nothing_crosses_tenants, the_most_used_stay_and_come_back,
         the_journal_says_what_was_used_before, a_request_stops_it, what_has_no_prefix_or_is_refused_is_left_alone,
         a_cold_model_stays_cold])
