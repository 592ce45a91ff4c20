#!/usr/bin/env python3
"""Streams of a second larder that are cut behind content, and go on at the model of the first.

usage: serve_continue.py LARDER [PART OF A TEST'S NAME]

The second larder serves the same model; between the two stands a cutter, which asks it once for each request, keeps the
bytes of its stream and plays the first of them, as many as the test says, to whoever asks again.
"""
import concurrent.futures
import http.client
import json
import os
import subprocess

from serve_parts import (LIMIT_S, MODEL, SMALL, Answer, Larder, Missed, PlayedUpstream, Raw, chat, check, config, idle, metrics,
                         metrics_by, run, scene)

PROMPTS = ["Once upon a time", "What is a river?", "What does the word light mean?", "Hello", "Tell me about the old man.",
           "Give an example of the word house.", "SQLite \u00e9 \u4f60\u597d"]
if SMALL:
    PROMPTS = PROMPTS[:2]
TOKENS = 24 if SMALL else 64
ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}


def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def said(text="", **delta):
    return event({"id": "far-1", "object": "chat.completion.chunk", "created": 5, "model": "far", "choices": [
        {"index": 0, "delta": dict({"content": text} if text else {}, **delta), "finish_reason": None}]})


class Cutter(PlayedUpstream):
    """Plays streams. `plan` of a request's body says what: bytes, and what comes behind them: "cut", "stand" (nothing, until
    larder leaves) or "end" (a clean end of the body)."""

    def __init__(self):
        self.plans, self.asked = {}, 0
        super().__init__(LIMIT_S)

    def play(self, sock, first, body):
        with self.lock:
            self.asked += 1
            parts, end = self.plans[json.loads(body)["user"]]
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in parts:
            if part:
                sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        if end == "stand":
            while sock.recv(65536):
                pass
        if end == "end":
            sock.sendall(b"0\r\n\r\n")
        return False

    def plan(self, name, parts, end="cut"):
        with self.lock:
            self.plans[name] = (parts if isinstance(parts, list) else [parts], end)


def far_larder(folder):
    os.makedirs(folder + "/far")
    return Larder(folder + "/far", config())


def front(cutter, route="fallback: tiny, continue: engine", engine="", upstream="", extra=""):
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nupstreams:\n"
            "  - {name: far, url: 'http://127.0.0.1:%d', retry: {attempts: 1}, breaker: {open_max: 0}%s}\n"
            "  - {name: tiny, kind: engine, engine: {model: '%s', queue_wait: 0, queue: 1000%s}}\n"
            "routes:\n  - {upstream: far%s}\n%s" % (cutter.port, upstream, MODEL, engine, route and ", " + route, extra))


def post(larder, path, body):
    """As ask(), but an answer that is cut is one, too: then `cut` is true."""
    c = http.client.HTTPConnection("127.0.0.1", larder.port, timeout=LIMIT_S)
    try:
        c.request("POST", path, json.dumps(body).encode())
        r = c.getresponse()
        try:
            data, cut = r.read(), False
        except http.client.IncompleteRead as e:
            data, cut = e.partial, True
        answer = Answer(r, data)
        answer.cut = cut
        return answer
    finally:
        c.close()


def stream(larder, name, text, **fields):
    body = dict(chat(text, stream=True, stream_options={"include_usage": True}, user=name), **fields)
    return post(larder, "/v1/chat/completions", {k: v for k, v in body.items() if v is not None})


def split(data):
    """A stream's events, each with its blank line."""
    return [e + b"\n\n" for e in data.split(b"\n\n") if e]


def choices(chunk):
    return chunk.get("choices") or []   # none in an error


def texts(answer, member="content"):
    return "".join(c["delta"].get(member) or "" for chunk in answer.chunks for c in choices(chunk))


def finish(answer):
    return [c["finish_reason"] for chunk in answer.chunks for c in choices(chunk) if c["finish_reason"]]


def seams(answer):
    return [chunk["larder"] for chunk in answer.chunks if "larder" in chunk]


def check_stitched(answer, whole, why):
    """As one answer of the first upstream, but for the seam."""
    check(answer.status == 200 and not answer.cut, why, answer.data)
    check(texts(answer) == texts(whole), "%s: another text:\n%r\n%r\n%s" % (why, texts(answer), texts(whole), answer.data.decode()))
    check(finish(answer) == finish(whole), why, answer.data)
    check(answer.events[-1] == "[DONE]" and answer.events.count("[DONE]") == 1, why, answer.data)
    check(len(seams(answer)) == 1 and seams(answer)[0]["continued_by"] == "tiny", why, answer.data)
    check(len([1 for chunk in answer.chunks for c in choices(chunk) if c["delta"].get("role")]) == 1, why, answer.data)
    for member in ("id", "object", "created", "model", "system_fingerprint"):
        check(len({json.dumps(chunk.get(member)) for chunk in answer.chunks}) == 1, why, member, answer.data)
    usage, told = answer.chunks[-1]["usage"], whole.chunks[-1]["usage"]
    for member in ("prompt_tokens", "completion_tokens", "total_tokens"):
        check(usage[member] == told[member], why, usage, told)
    parts = usage["larder"]
    check(parts["begun_by"] == "far" and parts["continued_by"] == "tiny", why, usage)
    check(parts["begun"]["completion_tokens"] + parts["continued"]["completion_tokens"] == usage["completion_tokens"], why, usage)
    check(parts["begun"]["completion_tokens"] == seams(answer)[0]["after_tokens"], why, usage)


def check_broken(answer, why):
    """Ends as a broken stream does: an error event, and no end."""
    check(answer.status == 200 and not seams(answer), why, answer.data)
    check("error" in answer.chunks[-1] and "[DONE]" not in answer.events and answer.cut, why, answer.data)


def every_cut_gives_the_same_text(folder):
    jobs = []
    with Cutter() as cutter, far_larder(folder) as far, Larder(folder, front(cutter)) as larder:
        def play(job):
            name, text, fields, whole = job
            check_stitched(stream(larder, name, text, model="as the first calls it", **fields), whole, name)

        for number, text in enumerate(PROMPTS):
            for fields in ({"max_tokens": TOKENS}, {"max_tokens": TOKENS, "stop": ["a", ". "][number % 2:]}, {}):
                whole = stream(far, "", text, **fields)
                events = split(whole.data)
                at = [i for i, chunk in enumerate(whole.chunks) if chunk["choices"] and chunk["choices"][0]["delta"].get("content")]
                for k, last in enumerate(at):
                    name = "%d %s cut after %d" % (number, "max stop" if "stop" in fields else "max" if fields else "all", k + 1)
                    cutter.plan(name, b"".join(events[:last + 1]))
                    jobs.append((name, text, fields, whole))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(play, jobs))
        check(len(jobs) > (40 if SMALL else 200), len(jobs))
        check(cutter.asked == len(jobs), "asked twice", cutter.asked, len(jobs))
        check(metrics_by(larder, "upstream_continued_total")['{upstream="far"}'] == len(jobs), "not counted")
        check(metrics_by(larder, "upstream_failures_total")['{upstream="far",class="broken_late"}'] == len(jobs), "not blamed")
        idle(larder)


def every_byte_of_an_event_is_a_place_to_break(folder):
    with Cutter() as cutter, far_larder(folder) as far, Larder(folder, front(cutter)) as larder:
        whole = stream(far, "", PROMPTS[1], max_tokens=12)
        events = split(whole.data)
        before, event_at_hand = b"".join(events[:4]), events[4]
        for n in range(0, len(event_at_hand) + 1, 7 if SMALL else 1):
            cutter.plan("byte %d" % n, [before, event_at_hand[:n]])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: stream(larder, "byte %d" % n, PROMPTS[1], max_tokens=12),
                                    range(0, len(event_at_hand) + 1, 7 if SMALL else 1)))
        for answer in answers:
            check_stitched(answer, whole, "a cut inside an event")
        idle(larder)


def however_it_breaks(folder):
    with Cutter() as cutter, far_larder(folder) as far, \
            Larder(folder, front(cutter, upstream=", timeouts: {idle: 300ms}", extra="store: {dir: %s/store}\n" % folder)) as larder:
        whole = stream(far, "", PROMPTS[0], max_tokens=16)
        events = split(whole.data)
        error = event({"error": {"message": "overloaded", "type": "server_error"}})
        for name, parts, end in (("stands", b"".join(events[:5]), "stand"), ("ends", b"".join(events[:5]), "end"),
                                 ("error", [b"".join(events[:5]), error], "end"), ("error at once", b"".join(events[:5]) + error, "end"),
                                 ("error in two", [b"".join(events[:5]) + error[:9], error[9:]], "end"),
                                 ("error named", b"".join(events[:5]) + b"event: error\n" + error, "cut")):
            cutter.plan(name, parts, end)
            check_stitched(stream(larder, name, PROMPTS[0], max_tokens=16), whole, name)
        cutter.plan("quiet", b"".join(events[:5]))
        quiet = stream(larder, "quiet", PROMPTS[0], max_tokens=16, stream_options=None)
        check(texts(quiet) == texts(whole) and quiet.events[-1] == "[DONE]", quiet.data)
        check(not any(chunk.get("usage") for chunk in quiet.chunks), "usage that nobody asked for", quiet.data)
        # all was said but [DONE]: nothing is to be gone on with
        end = [i for i, chunk in enumerate(whole.chunks) if chunk["choices"] and chunk["choices"][0]["finish_reason"]][0]
        cutter.plan("said", b"".join(events[:end + 1]))
        done = stream(larder, "said", PROMPTS[0], max_tokens=16)
        check(texts(done) == texts(whole) and not seams(done) and finish(done) == finish(whole), done.data)
        idle(larder)
    out = subprocess.run([Larder.binary, "export", "--store", folder + "/store"], capture_output=True, check=True).stdout.decode()
    records = [json.loads(line) for line in out.splitlines()]
    check(len(records) == 8, out)
    for r in records[:7]:
        check(r["upstream"] == "far" and r["continued_by"] == "tiny" and r["failure"] == "broken_late" and r["target"] == 0, r)
        check(r["attempts"] == 2 and r["ending"] == "complete" and not r["usage_partial"], r)
        check(r["output_tokens"] == whole.chunks[-1]["usage"]["completion_tokens"] and 0 < r["begun_output_tokens"] <= 5, r)
        check(r["prompt_tokens"] == whole.chunks[-1]["usage"]["prompt_tokens"] and r["hit_tokens"] is None, r)
    check(records[7]["continued_by"] == "" and records[7]["begun_output_tokens"] is None, records[7])
    line = subprocess.run([Larder.binary, "tail", "--store", folder + "/store"], capture_output=True, check=True).stdout.decode()
    check("failure broken_late  continued by tiny" in line, line)


def other_tokens_and_stops(folder):
    """What another tokenizer cut where this one would not: the text goes on in the middle of a word, of a stop string."""
    with Cutter() as cutter, far_larder(folder) as far, Larder(folder, front(cutter)) as larder:
        whole = stream(far, "", PROMPTS[1], max_tokens=TOKENS)
        text = texts(whole)
        for n in range(1, len(text), 5 if SMALL else 1):
            cutter.plan("character %d" % n, said(role="assistant") + said(text[:n]))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: stream(larder, "character %d" % n, PROMPTS[1], max_tokens=TOKENS),
                                    range(1, len(text), 5 if SMALL else 1)))
        same = 0
        for answer in answers:
            check(texts(answer)[0] == text[0] and answer.events[-1] == "[DONE]" and len(seams(answer)) == 1, answer.data)
            same += texts(answer) == text
        print("   cut at every character, %d of %d texts are the same" % (same, len(answers)))
        check(same == len(answers), "a word that is cut goes on as another one", same, len(answers))

        stop = text[len(text) // 2:len(text) // 2 + 6]
        at = text.index(stop)
        for n in range(at - 1, at + len(stop)):
            name = "stop after %d" % n
            cutter.plan(name, said(role="assistant") + said(text[:n]))
            answer = stream(larder, name, PROMPTS[1], max_tokens=TOKENS, stop=stop)
            check(finish(answer) == ["stop"] and texts(answer) == text[:max(n, at)], name, repr(text), repr(stop), answer.data)

        cutter.plan("enough", said(role="assistant") + said(text))
        answer = stream(larder, "enough", PROMPTS[1], max_tokens=3)   # counted otherwise there
        check(texts(answer) == text and finish(answer) == ["length"], answer.data)
        idle(larder)


def a_client_may_begin_the_answer(folder):
    """`prefix` and `continue_final_message`: what comes behind the beginning is what would have come without it."""
    with Larder(folder, config()) as larder:
        whole = post(larder, "/v1/chat/completions", chat(PROMPTS[1]))
        text = whole.text()
        for n in range(1, len(text) + 1, 7 if SMALL else 1):
            message = {"role": "assistant", "content": text[:n]}
            body = chat(PROMPTS[1], **({"continue_final_message": True} if n % 2 else {}))
            body["messages"] = body["messages"] + [message if n % 2 else dict(message, prefix=True)]
            answer = post(larder, "/v1/chat/completions", dict(body, stream=n % 3 == 0))
            check(answer.text() == text[n:], n, repr(text), answer.data)
            if n % 3:
                usage = answer.json["usage"]
                check(usage["total_tokens"] >= whole.json["usage"]["total_tokens"] - 3, usage, whole.json["usage"])
                check(usage["prompt_tokens"] > whole.json["usage"]["prompt_tokens"], usage)
        idle(larder)


def what_cannot_go_on(folder):
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    role, word = said(role="assistant"), said("The")
    cases = {
        "a call of a tool": ([role, word, said(tool_calls=[call])], {}),
        "a call of a function": ([role, word, said(function_call={"name": "f", "arguments": "{"})], {}),
        "a refusal": ([role, said(refusal="No")], {}),
        "nothing but a role": ([role], {}),
        "two choices": ([role, word, word.replace(b'"index": 0', b'"index": 1')], {}),
        "two choices to come": ([role, word], {"n": 2}),
        "logprobs": ([role, word.replace(b'"finish_reason"', b'"logprobs": {"content": []}, "finish_reason"')], {"logprobs": True}),
        "JSON": ([role, said("{")], {"response_format": {"type": "json_object"}}),
        "a field that the model does not know": ([role, word], {"tool_choice": "required", "tools": tools}),
        "an image": ([role, word], {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        "reasoning, which this model has not": ([role, said(reasoning_content="Hm"), word], {}),
        "no room": ([role, said("word " * 600)], {"max_tokens": 1000}),
        "a chunk of another form": ([role, word, event({"choices": {}})], {}),
    }
    with Cutter() as cutter, Larder(folder, front(cutter, extra="store: {dir: %s/store}\n" % folder)) as larder:
        for name, (parts, fields) in cases.items():
            cutter.plan(name, parts)
            answer = stream(larder, name, "Hello", **fields)
            if name == "nothing but a role":   # nothing went out yet: an answer of its own
                check(answer.headers["x-larder-served-by"] == "tiny" and not seams(answer), answer.data)
            else:
                check_broken(answer, name)
        cutter.plan("off", [role, word])
        body = {"model": "m", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "x"}], "user": "off"}
        other = post(larder, "/v1/completions", {"model": "m", "prompt": "x", "stream": True, "user": "off"})
        check("[DONE]" not in other.events and not seams(other), other.data)
        cutter.plan("messages", b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
                                b'{"type":"text_delta","text":"a"}}\n\n')
        raw = post(larder, "/v1/messages", dict(body, user="messages"))
        check(b"event: error" in raw.data and b"continued_by" not in raw.data, raw.data)
        check(metrics(larder)["continued_total"] == 0, "continued", metrics(larder))
        idle(larder)
    out = subprocess.run([Larder.binary, "export", "--store", folder + "/store"], capture_output=True, check=True).stdout.decode()
    for r in [json.loads(line) for line in out.splitlines()]:
        check(r["continued_by"] == "" and r["upstream"] in ("far", "tiny"), r)
        check(r["upstream"] == "tiny" or (r["usage_partial"] and r["ending"] == "upstream-failed"), r)
    with Cutter() as cutter, Larder(folder, front(cutter, route="fallback: tiny")) as larder:   # it is off by default
        cutter.plan("off", [role, word])
        check_broken(stream(larder, "off", "Hello"), "off")
    with Cutter() as cutter, Larder(folder, front(cutter, route="continue: tiny", engine=", sequences: 1, queue: 1").replace(
            "queue: 1000, ", "")) as larder:
        cutter.plan("full", [role, word])
        scene(lambda: one_place_is_too_few(larder))
        idle(larder)


def one_place_is_too_few(larder):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: stream(larder, "full", "Hello", ignore_eos=True, max_tokens=200), range(12)))
    broken = [a for a in answers if not seams(a)]
    for a in answers:
        if a in broken:
            check_broken(a, "full")
        else:
            check(finish(a) == ["length"] and a.events[-1] == "[DONE]", a.data)
    if not broken:
        raise Missed


def the_model_is_loaded_for_it(folder):
    with Cutter() as cutter, far_larder(folder) as far, Larder(folder, front(cutter, engine=", start: need")) as larder:
        whole = stream(far, "", PROMPTS[1], max_tokens=20)
        cutter.plan("first", b"".join(split(whole.data)[:6]))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for answer in pool.map(lambda _: stream(larder, "first", PROMPTS[1], max_tokens=20), range(4)):
                check_stitched(answer, whole, "first")
        idle(larder)


def clients_that_leave_and_that_are_slow(folder):
    role, word = said(role="assistant"), said("The")
    with Cutter() as cutter, Larder(folder, front(cutter, engine=", sequences: 2")) as larder:
        cutter.plan("leaves", [role, word])
        body = chat("Hello", stream=True, ignore_eos=True, max_tokens=400, user="leaves")
        for n in range(4 if SMALL else 20):
            client = Raw(larder, "/v1/chat/completions", body)
            client.read_until(b'"continued_by"' if n % 2 else b"The")
            client.close(reset=True)
        idle(larder)
        slow = Raw(larder, "/v1/chat/completions", body, room=4096)
        slow.read_until(b'"continued_by"')
        slow.read_all()
        check(slow.got.count(b"[DONE]") == 1 and slow.got.count(b'"role"') == 1, slow.got[-300:])
        slow.close()
        idle(larder)
        check(metrics(larder)["requests_active"] == 0, metrics(larder))


def the_total_time_holds(folder):
    """Of the upstream that broke: what goes on elsewhere is the same request. What breaks then has no clean end (R-13)."""
    role, word = said(role="assistant"), said("The")
    with Cutter() as cutter, Larder(folder, front(cutter, upstream=", timeouts: {total: 500ms}")) as larder:
        cutter.plan("late", [role, word])

        def play():
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda _: stream(larder, "late", "Hello", ignore_eos=True, max_tokens=450), range(16)))
            for a in answers:
                check(("error" in a.chunks[-1]) != ("[DONE]" in a.events), a.data[-300:])
                check(not finish(a) or "[DONE]" in a.events, a.data[-300:])
            if not [a for a in answers if seams(a) and "error" in a.chunks[-1]]:
                raise Missed

        scene(play)
        idle(larder)


def wrong_configurations_are_told(folder):
    def told(routes, upstreams=""):
        path = folder + "/wrong.yaml"
        with open(path, "w", encoding="utf-8") as f:
            f.write("upstreams:\n  - {name: far, url: 'http://127.0.0.1:9'}\n  - {name: near, url: 'http://127.0.0.1:8'}\n%s"
                    "routes:\n  - {%s}\n" % (upstreams, routes))
        r = subprocess.run([Larder.binary, "check", "-c", path], capture_output=True, check=False)
        return r.returncode, (r.stdout + r.stderr).decode()

    engine = "  - {name: tiny, kind: engine, engine: {model: '%s'}}\n" % MODEL
    for routes, upstreams, words in (
            ("upstream: far, continue: engine", "", "none of the route's fallbacks is an upstream of kind engine"),
            ("upstream: far, fallback: near, continue: engine", engine, "none of the route's fallbacks is an upstream of kind engine"),
            ("upstream: far, continue: near", engine, "'near' is no upstream of kind engine"),
            ("upstream: far, continue: tine", engine, "did you mean 'tiny'?"),
            ("upstream: tiny, continue: tiny", engine, "the route's own upstream is a model of this process")):
        status, text = told(routes, upstreams)
        check(status != 0 and words in text and "continue" in text, routes, status, text)
    for routes in ("upstream: far, continue: tiny", "upstream: far, fallback: 'near tiny', continue: engine"):
        status, text = told(routes, engine)
        check(status == 0, routes, text)


if __name__ == "__main__":
    run([every_cut_gives_the_same_text, every_byte_of_an_event_is_a_place_to_break, however_it_breaks, other_tokens_and_stops,
         a_client_may_begin_the_answer, what_cannot_go_on, the_model_is_loaded_for_it, clients_that_leave_and_that_are_slow,
         the_total_time_holds, wrong_configurations_are_told])
