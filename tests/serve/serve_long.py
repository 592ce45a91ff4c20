#!/usr/bin/env python3
"""A long prompt beside a stream: the stream's tokens come on, one in each step, while the prompt is computed in pieces.

usage: serve_long.py LARDER [PART OF A TEST'S NAME]
LARDER_TEST_WRITE_MODEL: the program that writes models with random weights.
LARDER_TEST_LONG_PROMPT: tokens of the prompt (4000). With 30000 the times that are printed are worth a look: what the
client saw and what the scheduler did, by quarters of the prompt, since a token costs more the more are before it.
"""
import json
import os
import random
import shutil
import socket
import subprocess
import threading
import time

from serve_parts import LIMIT_S, MODEL, SMALL, Larder, Raw, ask, check, config, idle, metrics, run, until

TOKENS = int(os.environ.get("LARDER_TEST_LONG_PROMPT", "600" if SMALL else "4000"))
GAP_MS = 100
PIECE = 512   # most tokens of a step
VOCAB = 2048
SHAPE = ("--layers", "2", "--dense-layers", "1", "--hidden", "64", "--heads", "2", "--kv-rank", "64", "--nope", "16",
         "--rope", "16", "--v-dim", "16", "--dense-ff", "64", "--experts", "4", "--expert-ff", "32", "--experts-used", "2",
         "--shared", "1", "--groups", "1", "--groups-used", "1", "--vocab", str(VOCAB), "--context", "65536", "--no-yarn")


def model(folder):
    """Random weights, as few as answer 30,000 tokens within a minute or two."""
    writer = os.environ.get("LARDER_TEST_WRITE_MODEL")
    check(writer, "LARDER_TEST_WRITE_MODEL is not set")
    path = os.path.join(folder, "random")
    made = subprocess.run([writer, path, "--folder", "--type", "BF16", *SHAPE], capture_output=True, timeout=300, check=False)
    check(made.returncode == 0, made.stderr.decode())
    for part in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(MODEL, part), path)
    return path


def prompt(seed, tokens):
    return random.Random(seed).choices(range(10, VOCAB), k=tokens)


class Stream(threading.Thread):
    """Answers without an end; when each of its tokens came."""

    def __init__(self, larder):
        super().__init__(daemon=True)
        self.raw = Raw(larder, "/v1/completions", {"model": "random", "prompt": prompt(1, 20), "stream": True, "temperature": 0,
                                                   "max_tokens": 60000, "ignore_eos": True, "logprobs": 0})
        self.times, self.over = [], None
        self.start()

    def run(self):
        rest = b""
        try:
            while True:
                part = self.raw.sock.recv(65536)
                now = time.monotonic()
                if not part:
                    raise ConnectionError("the stream ended")
                *events, rest = (rest + part).split(b"\n\n")
                for event in events:
                    at = event.find(b"data: {")
                    if at < 0:
                        continue
                    choices = json.loads(event[at + 6:]).get("choices")
                    told = choices and (choices[0].get("logprobs") or {}).get("tokens") or []
                    self.times += [now] * len(told)
        except (OSError, ValueError) as why:
            self.over = why

    def close(self):
        self.raw.sock.shutdown(socket.SHUT_RDWR)
        self.join(LIMIT_S)
        self.raw.close()


class Watch(threading.Thread):
    """What the scheduler has done, again and again, while the prompt is computed."""

    def __init__(self, larder):
        super().__init__(daemon=True)
        self.larder, self.seen, self.done = larder, [], threading.Event()
        self.start()

    def run(self):
        while not self.done.wait(0.2):
            m = metrics(self.larder)
            self.seen.append((m["engine_steps_total"], m["engine_step_microseconds_total"], m["engine_gap_microseconds_max"]))

    def quarters(self):
        """Mean milliseconds of a step, and the longest gap so far, in each quarter of the time."""
        out = []
        for i in range(4):
            a, b = (self.seen[int(k * (len(self.seen) - 1) / 4)] for k in (i, i + 1))
            out.append("%.0f/%.0f" % ((b[1] - a[1]) / max(1, b[0] - a[0]) / 1000, b[2] / 1000))
        return " ".join(out)


def gaps_ms(times, begin, end):
    inside = [t for t in times if begin <= t <= end]
    return [1000 * (b - a) for a, b in zip(inside, inside[1:])]


def a_long_prompt_stops_no_stream(folder):
    text = config(engine=", sequences: 2, context: %d, gap: %dms, kv_bytes: 96MiB, nice: 0" % (60100, GAP_MS)).replace(MODEL, model(folder))
    with Larder(folder, text) as larder:
        stream = Stream(larder)
        until(lambda: len(stream.times) > 200 or stream.over, "a stream")
        alone = gaps_ms(stream.times, 0, time.monotonic())
        before, watch, begin = metrics(larder), Watch(larder), time.monotonic()
        long = ask(larder, "/v1/completions", {"model": "random", "prompt": prompt(2, TOKENS), "max_tokens": 1}, timeout=3600)
        end, after = time.monotonic(), metrics(larder)
        watch.done.set()
        watch.join()
        check(long.status == 200 and long.json["usage"]["prompt_tokens"] == TOKENS, long.data)
        check(not stream.over, "the stream ended:", stream.over)
        stream.close()
        steps = after["engine_steps_total"] - before["engine_steps_total"]
        told = after["engine_answer_tokens_total"] - before["engine_answer_tokens_total"]
        # Each step of the prompt was one of the stream as well, and each brought the stream a token.
        check(steps >= TOKENS / PIECE, steps, "steps for", TOKENS, "tokens")
        check(told >= steps, told, "tokens in", steps, "steps")
        seen = gaps_ms(stream.times, begin, end)
        check(len(seen) >= TOKENS / PIECE, len(seen), "tokens came while the prompt was computed")
        # Over hundreds of steps a busy machine evens out: on average they keep to the gap, with room for its noise.
        mean = (after["engine_step_microseconds_total"] - before["engine_step_microseconds_total"]) / steps / 1000
        check(TOKENS < 10000 or mean <= 1.5 * GAP_MS, "a step takes %.0f ms" % mean)
        print("%d tokens in %.1f s and %d steps beside a stream, gap %d ms: its tokens' longest gap was %.0f ms by the scheduler, "
              "%.0f ms at the client (mean %.0f; before: longest %.0f, mean %.1f); mean step/longest gap by quarters of the time, "
              "ms: %s" % (TOKENS, end - begin, steps, GAP_MS, after["engine_gap_microseconds_max"] / 1000, max(seen),
                          sum(seen) / len(seen), max(alone), sum(alone) / len(alone), watch.quarters() if watch.seen else "-"))
        idle(larder)


if __name__ == "__main__":
    run([a_long_prompt_stops_no_stream])
