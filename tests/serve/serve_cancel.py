#!/usr/bin/env python3
"""Clients of a served model that leave, at every moment; a full queue; a stop and a reload in the middle of an answer.

usage: serve_cancel.py LARDER [PART OF A TEST'S NAME]
"""
import json
import random
import signal
import threading

from serve_parts import (SMALL, Larder, Missed, Raw, ask, ask_chat, chat, check, config, idle, long_text, metrics, run, scene,
                         until)

CHAT = "/v1/chat/completions"
LONG = 80 if SMALL else 300   # tokens of an answer that is to last a while
ONE = ", sequences: 1"


def meet(larder, before, **wanted):
    """Waits until the engine's gauges are as wanted, while a request is under way that began after `before`."""
    def look():
        m = metrics(larder)
        if all(m["engine_" + k] == v for k, v in wanted.items()):
            return m
        if m["requests_active"] == 0 and m["requests_total"] > before["requests_total"]:   # which counts those that ended
            raise Missed
        return None
    return until(look, wanted)


def e01_a_client_leaves_in_the_answer(folder):
    with Larder(folder, config(engine=ONE)) as larder:
        def play(stream, reset):
            before = idle(larder)   # also of a scene that was missed
            raw = Raw(larder, CHAT, chat(max_tokens=400, ignore_eos=True, stream=stream))
            if stream:
                raw.read_until(b"data: ")
            meet(larder, before, decoding=1)
            raw.close(reset)
            m = idle(larder)
            made = m["engine_answer_tokens_total"] - before["engine_answer_tokens_total"]
            if made == 400:
                raise Missed
            check(m["requests_cancelled_total"] == before["requests_cancelled_total"] + 1, "larder did not see it go:", m)
            check(0 < made < 400, "the slot was free after", made, "of 400 tokens")
        for stream in (True, False):
            for reset in (True, False):
                scene(lambda s=stream, r=reset: play(s, r))
        check(ask_chat(larder, max_tokens=3).status == 200, "a normal request afterwards")
        idle(larder)


def e02_a_client_leaves_while_its_prompt_is_read(folder):
    """One token of a prompt a step: the prompt is still under way when the client is gone."""
    with Larder(folder, config(engine=ONE + ", pass_tokens: 1")) as larder:
        def play():
            before = idle(larder)   # also of a scene that was missed
            raw = Raw(larder, CHAT, chat("%d " % before["engine_jobs_total"] + long_text(480), max_tokens=5, stream=True))
            meet(larder, before, prefilling=1)
            raw.close(reset=True)
            m = idle(larder)
            if m["engine_answer_tokens_total"] > before["engine_answer_tokens_total"]:
                raise Missed
            check(m["engine_cancelled_total"] == before["engine_cancelled_total"] + 1, m)
        scene(play)
        check(ask_chat(larder, max_tokens=3).status == 200, "a normal request afterwards")
        idle(larder)


def e03_clients_leave_the_queue(folder):
    with Larder(folder, config(engine=ONE)) as larder:
        def play():
            before = idle(larder)   # also of a scene that was missed
            first = Raw(larder, CHAT, chat(max_tokens=LONG, ignore_eos=True, stream=True))
            first.read_until(b"data: ")
            waiting = [Raw(larder, CHAT, chat("B %d" % i, max_tokens=300, ignore_eos=True)) for i in range(2)]
            try:
                meet(larder, before, waiting=2, decoding=1)
            finally:
                for raw in waiting:
                    raw.close(reset=True)
            until(lambda: metrics(larder)["engine_waiting"] == 0, "an empty queue")
            if metrics(larder)["engine_decoding"] == 0:
                raise Missed
            check(ask_chat(larder, "D", max_tokens=3).status == 200, "the one behind them")
            first.read_until(b"[DONE]")
            first.close()
            m = idle(larder)
            check(m["engine_cancelled_total"] == before["engine_cancelled_total"] + 2, m)
            made = m["engine_answer_tokens_total"] - before["engine_answer_tokens_total"]
            check(made <= LONG + 3, "dead clients' requests ran:", made)
        scene(play)


def e04_two_hundred_leave_at_random(folder):
    rng = random.Random(4)
    with Larder(folder, config(engine=", sequences: 4")) as larder:
        for i in range(20 if SMALL else 200):
            raw = Raw(larder, CHAT, chat("%d " % i + long_text(rng.choice((10, 200))), max_tokens=60, ignore_eos=True,
                                         stream=rng.random() < 0.7, n=rng.choice((1, 2)), temperature=1, seed=i))
            how = rng.randrange(4)
            if how:
                raw.sock.settimeout(rng.choice((0.001, 0.01, 0.05)))
                try:
                    for _ in range(how):
                        raw.sock.recv(rng.choice((1, 400)))
                except TimeoutError:
                    pass
            raw.close(reset=rng.random() < 0.5)
        check(ask_chat(larder, max_tokens=3).status == 200, "a normal request afterwards")
        m = idle(larder)
        check(m["engine_jobs_total"] >= 1, m)


def e24_what_an_aborted_request_left_is_read_by_nobody(folder):
    """B after an aborted A has the bits of B on a fresh engine."""
    def answer(larder):
        r = ask_chat(larder, "B: " + long_text(90), max_tokens=8, ignore_eos=True, logprobs=True, top_logprobs=3)
        check(r.status == 200, r.data)
        return json.dumps(r.json["choices"][0])
    with Larder(folder, config(engine=ONE)) as larder:
        fresh = answer(larder)
    rng = random.Random(24)
    with Larder(folder, config(engine=ONE)) as larder:
        for i in range(3 if SMALL else 10):
            raw = Raw(larder, CHAT, chat("A: " + long_text(300), max_tokens=50, ignore_eos=True, stream=True))
            raw.sock.settimeout(rng.choice((0.001, 0.02, 0.1)))
            try:
                raw.sock.recv(2000)
            except TimeoutError:
                pass
            raw.close(reset=True)
            check(answer(larder) == fresh, "B changed after the abort of A, round", i)
        idle(larder)


def a_full_queue_says_when_to_come_back(folder):
    with Larder(folder, config(engine=ONE + ", queue: 1")) as larder:
        def play():
            before = idle(larder)
            first = Raw(larder, CHAT, chat(max_tokens=400, ignore_eos=True, stream=True))
            first.read_until(b"data: ")
            second = Raw(larder, CHAT, chat(max_tokens=2, stream=True))
            meet(larder, before, waiting=1, decoding=1)
            r = ask_chat(larder, max_tokens=2)
            first.close(reset=True)
            check(b"[DONE]" in second.read_until(b"[DONE]"), "the one that waited")
            second.close()
            idle(larder)
            if r.status == 200:
                raise Missed
            check(r.status in (429, 503) and int(r.headers["Retry-After"]) >= 1, r.status, r.headers)
            check(metrics(larder)["engine_refused_total"] == before["engine_refused_total"] + 1, "refused")
        scene(play)


def who_waits_too_long_is_told(folder):
    with Larder(folder, config(engine=ONE + ", queue_wait: 1ms")) as larder:
        def play():
            first = Raw(larder, CHAT, chat(max_tokens=400, ignore_eos=True, stream=True))
            r = None
            if b" 200 " in first.read_until(b"\r\n\r\n"):   # on a busy machine it waits too long itself
                r = ask_chat(larder, max_tokens=2)
            first.close(reset=True)
            idle(larder)
            if not r or r.status == 200:
                raise Missed
            check(r.status in (429, 503), r.status, r.data)
        scene(play)


def a_stop_lets_answers_end(folder):
    with Larder(folder, config(extra="timeouts: {shutdown: 1h}\n")) as larder:
        raw = Raw(larder, CHAT, chat(max_tokens=100, ignore_eos=True, stream=True))
        raw.read_until(b"data: ")
        larder.process.send_signal(signal.SIGTERM)
        check(b"[DONE]" in raw.read_all(), "an answer was cut")
        raw.close()


def a_stop_without_patience_cuts_them(folder):
    with Larder(folder, config(extra="timeouts: {shutdown: 0}\n")) as larder:
        raws = [Raw(larder, CHAT, chat(long_text(n), max_tokens=400, ignore_eos=True, stream=True)) for n in (5, 450, 450)]
        raws[0].read_until(b"data: ")
        larder.process.send_signal(signal.SIGTERM)
        check(b"[DONE]" not in raws[0].read_all(), "an answer came to its end")
        for raw in raws:
            raw.close()


def a_reload_leaves_the_model_alone(folder):
    text = config(extra="limits: {fields: 100}\n")
    with Larder(folder, text) as larder:
        raw = Raw(larder, CHAT, chat(max_tokens=LONG, ignore_eos=True, stream=True))
        raw.read_until(b"data: ")
        said = larder.reload(text.replace("100", "99"))
        check("reload_needs_restart" not in said, said)
        check(ask_chat(larder, max_tokens=2).status == 200, "a request with the new configuration")
        check(b"[DONE]" in raw.read_until(b"[DONE]"), "the stream that began before it")
        raw.close()
        said = larder.reload(config(engine=", sequences: 3"))
        check("reload_needs_restart options=upstreams.engine" in said, said)
        check(ask_chat(larder, max_tokens=2).status == 200, "the model as it was")
        said = larder.reload(config().replace("name: tiny", "name: other"), event="reload_failed")
        check("opened at start only" in said, said)
        said = larder.reload("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\n"
                             "upstreams:\n  - {name: tiny, url: 'http://127.0.0.1:1'}\n")
        check("upstreams.engine" in said, said)
        until(lambda: ask_chat(larder, max_tokens=2).status == 502, "the upstream that took its place")
        larder.reload(config())
        until(lambda: ask_chat(larder, max_tokens=2).status == 200, "the model again")
        idle(larder)


def texts_that_cannot_fit_are_refused_unread(folder):
    """By their bytes: nobody waits until all of it is tokens. Those who leave meanwhile are forgotten."""
    huge = "word " * ((4 if SMALL else 40) << 18)
    with Larder(folder, config()) as larder:
        gone = [Raw(larder, "/tokenize", {"model": "tiny-v3", "prompt": huge}) for _ in range(3)]
        until(lambda: metrics(larder)["requests_active"] == 3, "all of them under way")
        for raw in gone:
            raw.close(reset=True)
        for refused in (ask_chat(larder, huge[:8 << 20]),
                        ask(larder, "/v1/completions", {"model": "tiny-v3", "prompt": huge})):
            check(refused.status == 400 and refused.json["error"]["code"] == "context_length_exceeded", refused.data)
            check("tokens at least; this model's context is 512" in refused.json["error"]["message"], refused.data)
        check(ask_chat(larder, max_tokens=2).status == 200, "the next request")
        idle(larder)


def more_prompts_than_may_wait_are_a_fault(folder):
    with Larder(folder, config(engine=", queue: 3")) as larder:
        body = {"model": "tiny-v3", "prompt": ["a"] * 4, "max_tokens": 2}
        refused = ask(larder, "/v1/completions", body)
        check(refused.status == 400 and "at most 3 in one request" in refused.json["error"]["message"], refused.data)
        whole = ask(larder, "/v1/completions", dict(body, prompt=["a"] * 3))
        check(whole.status == 200 and len(whole.json["choices"]) == 3, whole.data)
        idle(larder)


def slow_readers_get_all_of_it(folder):
    """Who reads nothing for long holds nobody up, and finds the whole answer in the end."""
    with Larder(folder, config(extra="limits: {stream_buffer_bytes: 16KiB}\n")) as larder:
        body = chat(max_tokens=60 if SMALL else 150, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20)
        whole = ask(larder, CHAT, body)
        slow = [Raw(larder, CHAT, body, room=4096) for _ in range(2)]
        until(lambda: metrics(larder)["engine_jobs_total"] == 3, "all of them under way")
        until(lambda: metrics(larder)["engine_decoding"] == 0, "the engine to be done with them")
        for raw in slow:
            threading.Event().wait(0.05)
            got = raw.read_all()
            check(got.count(b"data: ") == len(whole.events), got.count(b"data: "), len(whole.events))
            raw.close()
        idle(larder)


if __name__ == "__main__":
    run([e01_a_client_leaves_in_the_answer, e02_a_client_leaves_while_its_prompt_is_read, e03_clients_leave_the_queue,
         e04_two_hundred_leave_at_random, e24_what_an_aborted_request_left_is_read_by_nobody,
         a_full_queue_says_when_to_come_back, who_waits_too_long_is_told, a_stop_lets_answers_end,
         a_stop_without_patience_cuts_them, a_reload_leaves_the_model_alone, texts_that_cannot_fit_are_refused_unread,
         more_prompts_than_may_wait_are_a_fault, slow_readers_get_all_of_it])
