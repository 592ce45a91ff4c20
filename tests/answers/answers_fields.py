#!/usr/bin/env python3
"""Two requests that differ in any field never share an answer: on the real program, with its rules on, in three protocols.

Every value, name and member of a request is changed in turn, then its header fields, then its client. The upstream numbers
its answers; no number may come to two requests.

usage: answers_fields.py LARDER [PART OF A TEST'S NAME]
"""
import copy
import json

from answers_parts import SMALL, Connection, Larder, Upstream, check, config, metric, number_in, run

CHAT = {
    "model": "m", "temperature": 0, "stream": False, "max_tokens": 50, "top_p": 0.5, "n": 1, "seed": 7, "stop": ["a", "b"],
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                     {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "{\"b\": 2}"},
        {"role": "user", "content": "And that?"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "does", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]}}}],
    "tool_choice": "auto", "response_format": {"type": "text"}, "logit_bias": {"5": 1}, "user": "u", "x_unknown": {"deep": [1, None]}}
RESPONSES = {
    "model": "m", "temperature": 0, "store": False, "stream": True, "instructions": "Be brief.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}]},
              {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
              {"type": "function_call_output", "call_id": "c1", "output": "done"}],
    "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "tools": [{"type": "function", "name": "f"}],
    "metadata": {"a": "b"}, "truncation": "auto"}
MESSAGES = {
    "model": "m", "temperature": 0, "max_tokens": 50, "stream": True, "top_k": 3, "stop_sequences": ["x"],
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "What is this?"},
                 {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.5}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "two", "is_error": False}]}],
    "tools": [{"name": "f", "description": "does", "input_schema": {"type": "object", "properties": {}}}],
    "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "metadata": {"user_id": "u"}}
PROTOCOLS = (("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES))


def paths(value, at=()):
    """Of every value in it, but for the whole."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in steps:
        yield at + (name,)
        yield from paths(inner, at + (name,))


def others(value):
    """What could stand in its place."""
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, (int, float)):
        return [value + 1, value + 0.25, str(value)]
    if isinstance(value, str):
        return [value + "z", "z" + value, value.upper() if value.upper() != value else value + "!"]
    if isinstance(value, list):
        return [value + value[-1:], value[:-1], value[::-1] if len(value) > 1 else value * 3]
    if isinstance(value, dict):
        return [dict(value, x_added=1), dict(value, x_added=2), {}]
    return [0, "", False]


def changed(body):
    """Bodies that each differ from it, and from each other, in one place."""
    for path in paths(body):
        holder = body
        for step in path[:-1]:
            holder = holder[step]
        new = others(holder[path[-1]])
        for other in new[:1] if SMALL else new:
            twin = copy.deepcopy(body)
            place = twin
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = other
            yield twin
        for what in ("gone", "renamed"):
            twin = copy.deepcopy(body)
            place = twin
            for step in path[:-1]:
                place = place[step]
            value = place.pop(path[-1])
            if what == "renamed" and isinstance(place, dict):
                place["x_" + path[-1]] = value
            yield twin


HEADERS = ({"anthropic-version": "2023-06-01"}, {"anthropic-version": "2023-06-02"}, {"anthropic-beta": "a"},
           {"anthropic-beta": "a,b"}, {"OpenAI-Beta": "a"}, {"OpenAI-Organization": "o"}, {"OpenAI-Project": "p"},
           {"Accept": "text/event-stream"}, {"Accept-Language": "zh"}, {"Cookie": "a=b"}, {"X-Anything": "1"}, {"X-Anything": "2"},
           {"X-Forwarded-User": "u"}, {"X-Forwarded-User": "v"}, {"X-Forwarded-Email": "u"}, {"X-Forwarded-Access-Token": "t"},
           {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}, {"x-api-key": "three"}, {"api-key": "four"})


class Book:
    """Whose each number is."""

    def __init__(self):
        self.owner = {}
        self.kept = self.refused = 0

    def ask(self, c, body, path, headers):
        data = json.dumps(body).encode()
        status, word, answer = c.ask(data, path, headers)
        if status != 200:   # a body that larder refuses by itself
            check(status == 400, status, answer, data)
            self.refused += 1
            return
        number, _ = number_in(answer)
        who = (path, data, tuple(sorted(headers.items())))
        check(self.owner.setdefault(number, who) == who, "one answer for\n", who, "\nand\n", self.owner[number])
        self.kept += word != "bypass"


def no_two_requests_share(folder):
    answers = "{ttl: 10m, sampled: true, coalesce: true}"
    with Upstream() as up, Larder(folder, config(up, answers, threads=2)) as larder:
        book, c = Book(), Connection(larder)
        for path, body in PROTOCOLS:
            bodies = {json.dumps(b): b for b in [body] + list(changed(body))}
            for turn in range(2):   # the second time many are kept
                for twin in bodies.values():
                    book.ask(c, twin, path, {})
            for headers in HEADERS:
                for turn in range(2):
                    book.ask(c, body, path, headers)
            for tenant in ("a", "b"):   # all of it again, for others
                for twin in list(bodies.values())[::3]:
                    book.ask(c, twin, path, {"Authorization": "Bearer tenant-" + tenant})
        hits = metric(larder, "answers_hits_total")
        print("%d answers, %d requests that could be kept, %d hits, %d refused" % (
            len(book.owner), book.kept, hits, book.refused))
        check(hits > book.kept // 5 and book.kept > len(book.owner) // 2, "this shows nothing")
        check(book.refused < len(book.owner) // 5, "too many were refused", book.refused)


if __name__ == "__main__":
    run([no_two_requests_share])
