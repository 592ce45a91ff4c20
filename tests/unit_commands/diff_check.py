#!/usr/bin/env python3
"""larder diff as its user sees it: where two requests part, why, and what would mend it.

usage: diff_check.py LARDER
"""
import json
import os
import subprocess
import sys
import tempfile


class Failed(Exception):
    pass


def check(good, what):
    if not good:
        raise Failed(what)


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},
         {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {}}}}]


def chat(system, user="Hello", tools=None, **more):
    body = {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}], **more}
    if tools:
        body["tools"] = tools
    return body


LONG = "Answer with care. " * 120


class Larder:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def file(self, name, *records):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.writelines((r if isinstance(r, str) else json.dumps(r, ensure_ascii=False)) + "\n" for r in records)
        return path

    def run(self, *args, code, stdin=None):
        p = subprocess.run([self.path, "diff", *args], capture_output=True, text=True, input=stdin, timeout=60)
        check(p.returncode == code, "%s: exit code %d, wanted %d\n%s%s" % (args, p.returncode, code, p.stdout, p.stderr))
        return p.stdout, p.stderr

    def compare(self, a, b, *args, code=1):
        a, b = self.file("a.json", a), self.file("b.json", b)
        text, _ = self.run(*args, a, b, code=code)
        return json.loads(self.run("--format", "json", *args, a, b, code=code)[0]), text


def places(larder):
    d, text = larder.compare(chat("one two three"), chat("one two four"))
    check(d["difference"] == "text" and d["a"]["pointer"] == d["b"]["pointer"] == "/messages/0/content", d)
    check(d["offset"] == len("<|system|>one two ") and d["shared_tokens"] == 10, d)
    check(d["a"]["text"].startswith("three<|end|>") and d["b"]["text"].startswith("four<|end|>"), d)
    check(d["a"]["before"].endswith("one two "), d)
    line = open(os.path.join(larder.folder, "a.json"), encoding="utf-8").read()
    check(d["a"]["line"] == 1 and d["a"]["column"] == line.index("three") + 1, d)
    for word in ("part at byte 18", "segment 1 of 2 (system)", "a.json:1:", ">>> three", ">>> four"):
        check(word in text, "%r is not in:\n%s" % (word, text))
    # where the tools stand decides what comes first
    a, b = chat("sys A", tools=TOOLS), chat("sys B", tools=TOOLS[:1])
    check(larder.compare(a, b)[0]["a"]["where"] == "tools", "openai prints tools first")
    d, _ = larder.compare(a, b, "--provider", "deepseek")
    check(d["a"]["where"] == "segment 1 of 2 (system)", d)
    # control characters never reach a terminal
    _, text = larder.compare(chat("x\u001b[31m\nA"), chat("x\u001b[31m\nB"))
    check("\x1b" not in text and "\\x1b[31m\\x0a" in text, text)
    d, _ = larder.compare(chat("中文甲"), chat("中文乙"))
    check(d["a"]["text"][0] == "甲" and d["b"]["text"][0] == "乙", d)


def same(larder):
    a = chat("s", tools=TOOLS, temperature=1)
    path = larder.file("pretty.json", json.dumps(dict(reversed(list(a.items())), temperature=0), indent=2, ensure_ascii=True))
    d, _ = larder.run("--format", "json", larder.file("a.json", a), path, code=0)
    check(json.loads(d)["difference"] == "same", d)
    check("The same prompt" in larder.run(path, path, code=0)[0], "the same prompt")


def kinds(larder):
    d, text = larder.compare(chat("s"), chat("s", model="n"))
    check(d["difference"] == "apart" and d["member"] == "model" and d["shared_tokens"] == 0, d)
    check('/model differs: "m" and "n"' in text, text)
    check(larder.compare(chat("s"), chat("s", user_id="u"))[0]["member"] == "user_id", "user_id")
    grown = chat("s")
    grown["messages"] = grown["messages"] + [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    d, text = larder.compare(chat("s"), grown)
    check(d["difference"] == "grown" and d["a"]["pointer"] is None and d["b"]["pointer"] == "/messages/2", d)
    check("B goes on where A ends" in text, text)
    check("A goes on where B ends" in larder.compare(grown, chat("s"))[1], "the other way")


def mended(larder):
    header = "x-acme-billing-header: v=1; cch=%s;\n"
    clock = "Current time: 2031-04-09T07:%s:42Z\n" + LONG
    cases = [("LR001", "datetime", chat(clock % "15"), chat(clock % "16")),
             ("LR002", None, chat(header % "0af3c" + LONG), chat(header % "9b21e" + LONG)),
             ("LR003", None, chat(LONG, tools=TOOLS), chat(LONG, tools=TOOLS[::-1])),
             ("LR004", None, chat(LONG + "\nEnd"), chat("\ufeff" + LONG + "\r\nEnd"))]
    for rule, name, a, b in cases:
        d, text = larder.compare(a, b)
        check(d["mended_by"] == [rule] and d["class"] == name, "%s: %s" % (rule, d))
        check(d["mended_shared_tokens"] > d["shared_tokens"] + 400, d)
        check("mended by  " + rule in text, text)
    d, text = larder.compare(chat(LONG, "one question"), chat(LONG, "another question"))
    check(d["mended_by"] == [] and d["class"] is None and "mended by  no rule" in text, d)
    said = [dict(chat(LONG), messages=chat(LONG)["messages"] + [{"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": a}}]}]) for a in ('{"a":1}', '{"a": 1}')]
    d, text = larder.compare(*said)
    check(d["in_model_output"] and "LR011 model_output, if the model's answer went through" in text, text)
    d, _ = larder.compare(chat(LONG * 4, "one"), chat(LONG * 4, "two"))
    check(d["hit_tokens"] == d["shared_tokens"] // 128 * 128 >= 1024, d)


def arguments(larder):
    log = larder.file("log.jsonl", chat("one"), "{bad", chat("two"), {"seq": 1, "hit_tokens": 1, "prefix_hash": "0"})
    d = json.loads(larder.run("--format=json", log + ":1", log + ":3", code=1)[0])
    check(d["a"]["record_line"] == 1 and d["b"]["record_line"] == 3 and d["b"]["line"] == 3, d)
    text, _ = larder.run("-", log + ":3", code=1, stdin=json.dumps(chat("one")))
    check("A  -:1, chat" in text, text)
    odd = larder.file("odd:7", chat("one"))  # a file of that whole name
    larder.run(odd, odd, code=0)
    claude = larder.file("claude.json", {"model": "claude-opus-5", "system": "s", "messages": [{"role": "user", "content": "u"}]})
    check('"provider":\t"anthropic"' in larder.run("--format=json", claude, claude, code=0)[0], "anthropic's messages")
    for args, word in (((log, log + ":1"), "holds more than one request"), ((log + ":2", log + ":1"), "log.jsonl:2: "),
                       ((log + ":9", log + ":1"), "no request begins at line 9"), ((log + ":4", log + ":1"), "numbers and no text"),
                       (("-", "-"), "only one"), ((log,), "two requests"), ((log, log, log), "two requests"), ((), "two requests"),
                       (("/nowhere", log), "cannot be opened"), ((claude, log + ":1"), "--protocol says what both are"),
                       (("--provider", "x", log, log), "no such provider"), (("--what", log, log), "unknown option"),
                       (("--format", "x", log, log), "text or json"), (("--provider",), "needs a value")):
        _, err = larder.run(*args, code=2)
        check(word in err, "%s: %r is not in %s" % (args, word, err))
    check("usage: larder diff" in larder.run("--help", code=0)[0], "--help")


def main():
    with tempfile.TemporaryDirectory() as folder:
        larder = Larder(sys.argv[1], folder)
        for part in (places, same, kinds, mended, arguments):
            try:
                part(larder)
            except Failed as e:
                print("FAILED: %s: %s" % (part.__name__, e))
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
