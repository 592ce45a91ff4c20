#!/usr/bin/env python3
"""A provider that fails, and a model in larder's own process that answers in its place.

usage: serve_fallback.py LARDER [PART OF A TEST'S NAME]
"""
import json
import threading

from serve_parts import LIMIT_S, MODEL, SMALL, Larder, PlayedUpstream, ask, ask_chat, check, idle, run

CLIENTS = 8 if SMALL else 40


class Provider(PlayedUpstream):
    """A chat API whose mood can be changed; "flaps" is another one at each request. `seen` counts requests by the text of
    their first message."""
    MOODS = ("well", "cut", "full", "well", "garbage", "hang", "mute")

    def __init__(self):
        self.mood, self.seen = "well", {}
        super().__init__(LIMIT_S)

    def play(self, sock, first, body):
        request = json.loads(body)
        text = request["messages"][0]["content"]
        with self.lock:
            self.seen[text] = self.seen.get(text, 0) + 1
            mood = self.MOODS[sum(self.seen.values()) % len(self.MOODS)] if self.mood == "flaps" else self.mood
        return self.answer(sock, mood, request.get("stream"))

    @staticmethod
    def answer(sock, mood, stream):
        role = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
        if mood == "cut":
            return False
        if mood == "garbage":
            sock.sendall(b"\x00\x01 this is no HTTP\r\n\r\n")
            return False
        if mood == "hang":
            sock.recv(1)   # until larder gives it up
            return False
        if mood == "full":
            sock.sendall(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}")
            return True
        if mood == "mute" and stream:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"
                         % (len(role), role))
            sock.recv(1)
            return False
        text = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"from the provider"}}]}'
        if stream:
            text = role + b'data: {"choices":[{"index":0,"delta":{"content":"from the provider"}}]}\n\ndata: [DONE]\n\n'
        kind = b"text/event-stream" if stream else b"application/json"
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(text), text))
        return True


def config(provider, more=""):
    return ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\n"
            "upstreams:\n  - {name: provider, url: 'http://127.0.0.1:%d', retry: {attempts: 1}, timeouts: {first_byte: 300ms, "
            "idle: 300ms}%s}\n"
            "  - {name: tiny, kind: engine, engine: {model: '%s', queue_wait: 0, queue: 1000}}\n"
            "routes:\n  - {upstream: provider, fallback: tiny}\n" % (provider.port, more, MODEL))


def check_local(answer):
    check(answer.status == 200, answer.status, answer.data)
    check(answer.headers["x-larder-served-by"] == "tiny", answer.headers)
    check(answer.text() and "provider" not in answer.text(), answer.data)
    if answer.events:
        check(answer.events[-1] == "[DONE]", "no end", answer.data)
        roles = [c for e in answer.chunks for c in e["choices"] if c.get("delta", {}).get("role")]
        check(len(roles) == 1, "a second preamble", answer.data)


def every_failure_is_answered_by_the_model(folder):
    provider = Provider()
    with Larder(folder, config(provider, ", breaker: {open_max: 0}")) as larder:
        for stream in (False, True):
            for mood in ("cut", "garbage", "hang", "full", "mute"):
                if mood == "mute" and not stream:
                    continue
                provider.mood = mood
                check_local(ask_chat(larder, "%s %s" % (mood, stream), max_tokens=8, ignore_eos=True, stream=stream))
        provider.mood = "well"
        back = ask_chat(larder, "well", max_tokens=8)
        check(back.text() == "from the provider" and back.headers["x-larder-served-by"] == "provider", back.data)
        check(max(provider.seen.values()) == 1, "asked twice", provider.seen)
        provider.close()
        idle(larder)
    with Larder(folder, config(provider)) as larder:   # its port refuses now
        check_local(ask_chat(larder, "gone", max_tokens=8, ignore_eos=True, stream=True))
        r = ask(larder, "/v1/messages", {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})
        check(r.status == 502 and r.json["type"] == "error", "the model does not speak this protocol", r.data)
        bad = ask_chat(larder, "x", max_tokens=8, response_format={"type": "json_object"})
        check(bad.status == 400 and bad.json["error"]["param"].startswith("response_format"), bad.data)


def many_clients_while_it_flaps(folder):
    provider, answers, lock = Provider(), [], threading.Lock()
    provider.mood = "flaps"

    def client(number, larder):
        for turn in range(3):
            answer = ask_chat(larder, "client %d turn %d" % (number, turn), max_tokens=4, ignore_eos=True, stream=turn % 2 == 1)
            with lock:
                answers.append(answer)

    with Larder(folder, config(provider, ", breaker: {open: 100ms, open_max: 200ms}")) as larder:
        clients = [threading.Thread(target=client, args=(n, larder)) for n in range(CLIENTS)]
        for c in clients:
            c.start()
        for c in clients:
            c.join(LIMIT_S)
        check(len(answers) == 3 * CLIENTS, "clients that wait", len(answers))
        for a in answers:
            check(a.status == 200 and a.text(), a.status, a.data)
        check(max(provider.seen.values()) == 1, "asked twice", provider.seen)
        check({a.headers["x-larder-served-by"] for a in answers} <= {"provider", "tiny"}, "somebody else")
        m = idle(larder)
        check(m["requests_active"] == 0 and m["fallback_total"] > 0, m)
        provider.mood = "well"
        for _ in range(200):   # within a breaker's period it is asked again
            answer = ask_chat(larder, "again", max_tokens=4)
            if answer.headers["x-larder-served-by"] == "provider":
                break
        check(answer.headers["x-larder-served-by"] == "provider", "the provider is never asked again")
    provider.close()


def conversations_stay_at_their_replica(folder):
    providers = [Provider() for _ in range(3)]
    with Larder(folder, "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\nupstreams:\n"
                "  - {name: p, url: 'http://127.0.0.1:%d', replicas: 'http://127.0.0.1:%d http://127.0.0.1:%d', replica_slack: 10000, "
                "retry: {attempts: 1}}\n" % tuple(p.port for p in providers)) as larder:
        for n in range(24):
            for _ in range(3):
                check(ask_chat(larder, "conversation %d" % n).status == 200, "no answer")
        homes = {}
        for p in providers:
            for text, count in p.seen.items():
                check(count == 3, "a conversation moved", text, count)
                homes[text] = p
        check(len(homes) == 24, homes.keys())
        check(all(p.seen for p in providers) or len({id(p) for p in homes.values()}) > 0, "shares")
        gone = homes["conversation 0"]
        gone.mood = "cut"
        moved = ask_chat(larder, "conversation 0")
        check(moved.status == 200 and moved.text() == "from the provider", moved.data)
        for n in range(24):
            home = homes["conversation %d" % n]
            if home is not gone:
                before = home.seen["conversation %d" % n]
                ask_chat(larder, "conversation %d" % n)
                check(home.seen["conversation %d" % n] == before + 1, "others stay where they are")
    for p in providers:
        p.close()


if __name__ == "__main__":
    run([every_failure_is_answered_by_the_model, many_clients_while_it_flaps, conversations_stay_at_their_replica])
