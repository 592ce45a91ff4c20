#!/usr/bin/env python3
"""larder replay against a second implementation of the caches, and as its user sees it.

usage: replay_check.py LARDER CORPUS

The rules of three providers are written here once more, in another language and in another way: a cache keeps the
token lists themselves, and asks how much of them a prompt shares. Traffic is made from the conversations of
CORPUS/*.jsonl, clean and with the habits that break prefixes; both must count the same hits.
"""
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

PIECES = re.compile(r"[A-Za-z]{1,5}|\d{1,3}|[\u4e00-\u9fff]|\s+|.", re.S)
TOLERANCE = 0.02   # of the hit rate; what is promised
EXACT = 0.0005     # what is expected

# The clean conversations: prompt tokens and hits, recorded once from an independent reference program.
RECORDED = {"deepseek": (183782, 164224), "openai": (183782, 154368), "vllm": (183782, 161392)}


# -- the reference ------------------------------------------------------------------------------------


def content_text(content):
    if isinstance(content, list):
        return "".join(p["text"] if "text" in p else json.dumps(p, ensure_ascii=False) for p in content)
    return content or ""


def message_text(m):
    parts = ["<|", m["role"], "|>"]
    if m.get("reasoning_content"):
        parts += ["<think>", m["reasoning_content"], "</think>"]
    parts.append(content_text(m.get("content")))
    for c in m.get("tool_calls") or []:
        parts += ["<|call|>", c["id"], " ", c["function"]["name"], " ", c["function"]["arguments"]]
    if m.get("tool_call_id"):
        parts += ["<|for|>", m["tool_call_id"]]
    return "".join(parts) + "<|end|>"


def prompt_text(body, tools_first):
    tools = "<|tools|>" + json.dumps(body["tools"], ensure_ascii=False) if body.get("tools") else ""
    messages = body["messages"]
    head = 0
    while head < len(messages) and messages[head]["role"] in ("system", "developer"):
        head += 1
    system = "".join(message_text(m) for m in messages[:head])
    rest = "".join(message_text(m) for m in messages[head:])
    return (tools + system if tools_first else system + tools) + rest


def shared(a, b):
    n = 0
    for x, y in zip(a, b):
        if x != y:
            break
        n += 1
    return n


class Blocks:
    """vLLM: whole blocks of 16, and never the whole prompt."""
    name, tools_first = "vllm", True

    def __init__(self):
        self.prompts = []

    def hit(self, tokens, whole):
        best = max((min(shared(p, tokens), len(p) // 16 * 16) for p in self.prompts), default=0)
        self.prompts.append(tokens)
        return min(best // 16, (len(tokens) - 1) // 16) * 16


class Steps:
    """OpenAI: at least 1024, then steps of 128."""
    name, tools_first = "openai", True

    def __init__(self):
        self.prompts = []

    def hit(self, tokens, whole):
        best = max((shared(p, tokens) for p in self.prompts), default=0)
        self.prompts.append(tokens)
        best = min(best, len(tokens) - 1)
        return 0 if best < 1024 else 1024 + (best - 1024) // 128 * 128


class Units:
    """DeepSeek: a stored unit must fit whole; units end at input, answer, common prefixes and every 2048 tokens."""
    name, tools_first = "deepseek", False

    def __init__(self):
        self.prompts, self.units = [], []

    def hit(self, tokens, whole):
        best = max((len(u) for u in self.units if tokens[:len(u)] == u), default=0)
        common = max((shared(p, tokens) for p in self.prompts), default=0)
        self.units += [tokens[:k] for k in [common, len(tokens)] + list(range(2048, len(tokens), 2048)) if k]
        if whole:
            self.units.append(whole)
        self.prompts.append(tokens)
        return best // 128 * 128


def reference(calls):
    sums = {}
    for rule in (Blocks(), Steps(), Units()):
        prompt = hit = 0
        for body, answer in calls:
            text = prompt_text(body, rule.tools_first)
            tokens = PIECES.findall(text)
            hit += rule.hit(tokens, tokens + PIECES.findall(message_text(answer)))
            prompt += len(tokens)
        sums[rule.name] = (prompt, hit)
    return sums


# -- traffic ------------------------------------------------------------------------------------------


def calls_of(conversations):
    for v in conversations:
        for i, m in enumerate(v["messages"]):
            if m["role"] == "assistant" and any(x["role"] == "user" for x in v["messages"][:i]):
                body = {"model": v["model"], "messages": v["messages"][:i]}
                if v.get("tools"):
                    body["tools"] = v["tools"]
                yield json.loads(json.dumps(body)), m


def clock(body, n, rng):
    body["messages"][0]["content"] = "Time: 2031-04-09T%02d:%02d:%02dZ\n" % (n // 60 % 24, n % 60, rng.randrange(60)) + \
        body["messages"][0]["content"]


def clock_behind(body, n, rng):
    body["messages"][0]["content"] += "\n当前时间：2031年4月9日 %02d时%02d分%02d秒" % (n // 60 % 24, n % 60, rng.randrange(60))


def shuffled_tools(body, n, rng):
    rng.shuffle(body.get("tools", []))


def other_line_ends(body, n, rng):
    if n % 3:
        body["messages"][0]["content"] = "\ufeff" + body["messages"][0]["content"].replace("\n", "\r\n") + " \n"


def billing(body, n, rng):
    body["messages"][0]["content"] = "x-acme-billing-header: v=1.2.%d; cch=%05x;\n" % (n % 3, rng.getrandbits(20)) + \
        body["messages"][0]["content"]


def printed_anew(body, n, rng):
    for m in body["messages"]:
        for c in m.get("tool_calls") or []:
            arguments = json.loads(c["function"]["arguments"])
            c["function"]["arguments"] = json.dumps(arguments, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)


KINDS = [None, clock, clock_behind, shuffled_tools, other_line_ends, billing, printed_anew]


# -- the program --------------------------------------------------------------------------------------


class Failed(Exception):
    pass


def check(good, what):
    if not good:
        raise Failed(what)


class Larder:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def file(self, name, lines):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.writelines((x if isinstance(x, str) else json.dumps(x, ensure_ascii=False)) + "\n" for x in lines)
        return path

    def run(self, *args, code=0, stdin=None):
        p = subprocess.run([self.path, "replay", *args], capture_output=True, text=True, input=stdin, timeout=300)
        check(p.returncode == code, "%s: exit code %d, wanted %d\n%s%s" % (args, p.returncode, code, p.stdout, p.stderr))
        return p.stdout, p.stderr

    def json(self, *args, **more):
        return json.loads(self.run("--format", "json", *args, **more)[0])


def provider(report, name):
    return [p for p in report["providers"] if p["provider"] == name][0]


def agreement(larder, conversations):
    for kind in KINDS:
        rng, calls = random.Random(7), list(calls_of(conversations))
        for n, (body, _) in enumerate(calls):
            if kind:
                kind(body, n, rng)
        name = kind.__name__ if kind else "clean"
        log = larder.file(name + ".jsonl",
                          [{"request": b, "response": {"choices": [{"message": a}]}} for b, a in calls])
        got, want = larder.json("--no-by-rule", log), reference(calls)
        check(got["requests"] == len(calls) == got["answers"], "%s: not all requests" % name)
        for who, (prompt, hit) in want.items():
            raw = provider(got, who)["raw"]
            off = abs(raw["hit_tokens"] / raw["prompt_tokens"] - hit / prompt)
            print("%-16s %-9s reference %5.1f%%  replay %5.1f%%  with larder %5.1f%%" % (
                name, who, 100 * hit / prompt, 100 * raw["hit_rate"], 100 * provider(got, who)["with_larder"]["hit_rate"]))
            check(raw["prompt_tokens"] == prompt, "%s, %s: %d tokens, wanted %d" % (name, who, raw["prompt_tokens"], prompt))
            check(off <= EXACT <= TOLERANCE, "%s, %s: the hit rate is %.2f points off" % (name, who, 100 * off))
            if not kind:
                check((prompt, hit) == RECORDED[who], "%s: %s, recorded was %s" % (who, (prompt, hit), RECORDED[who]))
                check(provider(got, who)["with_larder"] == raw, "%s: clean traffic changed" % who)
            else:
                check(provider(got, who)["with_larder"]["hit_rate"] > raw["hit_rate"] + 0.02, "%s, %s: nothing won" % (name, who))


def forms(larder, files, conversations):
    """Conversations as such, on standard input, and as requests with answers are the same traffic."""
    pairs = [{"request": b, "response": {"choices": [{"message": a}]}} for b, a in calls_of(conversations)]
    one = larder.json("--no-by-rule", *files)
    two = larder.json("--no-by-rule", larder.file("pairs.jsonl", pairs))
    three = larder.json("-", stdin="".join(open(f, encoding="utf-8").read() for f in files))
    document = os.path.join(larder.folder, "document.json")
    with open(document, "w", encoding="utf-8") as f:
        json.dump(pairs, f, indent=2)
    check(one["providers"] == two["providers"] == three["providers"], "the same traffic in other forms counts otherwise")
    check(larder.json("--no-by-rule", document)["providers"] == one["providers"], "a document counts otherwise")
    check("priced" in one and one["priced"] == one["requests"], "the model of the corpus has a price")
    check(sum(t["raw"]["requests"] for t in provider(one, "openai")["turns"]) == one["requests"], "turns do not add up")


def by_rule(larder, conversations):
    rng, calls = random.Random(3), list(calls_of(conversations))
    for n, (body, _) in enumerate(calls):
        clock(body, n, rng)
        shuffled_tools(body, n, rng)
    log = larder.file("two_rules.jsonl", [b for b, _ in calls])
    report = larder.json(log)
    rules = {r["rule"]: r for r in report["rules"]}
    check({"LR001", "LR003"} <= set(rules), "rules: %s" % sorted(rules))
    whole = provider(report, "openai")["with_larder"]["hit_rate"]
    for r in ("LR001", "LR003"):
        check(rules[r]["hit_rate_without"]["openai"] < whole - 0.02, "%s contributes nothing" % r)
        off = larder.json("--rules-off", r, "--no-by-rule", log)
        check(provider(off, "openai")["with_larder"]["hit_rate"] == rules[r]["hit_rate_without"]["openai"], r)
    text, _ = larder.run(log)
    for word in ("LR001 volatile_clock", "With openai's cache larder would save $", "an estimate"):
        check(word in text, "%r is not in the report:\n%s" % (word, text))


def anthropic(larder):
    text = "Read this. " * 600
    mark = {"cache_control": {"type": "ephemeral"}}

    def body(n, marked):
        return {"model": "claude-sonnet-4-6", "system": [dict({"type": "text", "text": text}, **(mark if marked else {}))],
                "messages": [{"role": "user", "content": "question %d" % n}]}

    def timed(seconds):
        return [{"request": body(n, True), "timestamp": 1933485342 + n * seconds} for n in range(4)]

    marked = provider(larder.json(larder.file("m.jsonl", timed(60))), "anthropic")
    check(0.70 < marked["raw"]["hit_rate"] < 0.76, "three of four are read: %s" % marked["raw"])
    check(marked["raw"]["write_tokens"] > 1000, "the first one is written")
    late = provider(larder.json(larder.file("late.jsonl", timed(301))), "anthropic")
    check(late["raw"]["hit_tokens"] == 0, "entries live five minutes: %s" % late["raw"])
    check(provider(larder.json("--no-ttl", larder.file("late.jsonl", timed(301))), "anthropic")["raw"]["hit_tokens"] > 0, "no-ttl")
    bare = larder.file("bare.jsonl", [body(1, False)] * 3)
    check(provider(larder.json(bare), "anthropic")["raw"]["hit_tokens"] == 0, "without a mark nothing is read")
    check(provider(larder.json("--auto-marker", bare), "anthropic")["raw"]["hit_tokens"] > 0, "auto-marker")
    placed = provider(larder.json("--rules-on", "LR014", "--no-by-rule", bare), "anthropic")
    check(placed["raw"]["hit_tokens"] == 0 < placed["with_larder"]["hit_tokens"], "LR014 places marks: %s" % placed)
    two = larder.json("--provider", "anthropic", "--provider", "moonshot", "--price-as", "claude-opus-5", bare)
    check([p["provider"] for p in two["providers"]] == ["anthropic", "moonshot"], "chosen providers")


def recorded(larder):
    export = {"seq": 1, "prompt_tokens": 1000, "hit_tokens": 250, "prefix_hash": "0", "model": "m"}
    path = larder.file("export.jsonl", [export, dict(export, seq=2, hit_tokens=None)])
    text, _ = larder.run(path)
    for word in ("cannot be simulated", "25.0% of 1000 prompt tokens", "1 unknown"):
        check(word in text, "%r is not in:\n%s" % (word, text))
    check(larder.json(path)["exported"]["hit_rate"] == 0.25, "exported")
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 40}}
    pair = {"request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]}, "response": {"choices": [], "usage": usage}}
    check(larder.json(larder.file("usage.jsonl", [pair]))["reported"]["hit_rate"] == 0.4, "reported")


def errors(larder):
    good = {"messages": [{"role": "user", "content": "hi"}]}
    bad = larder.file("bad.jsonl", [good, '{"messages":[1}', {"messages": [], "model": "a", "x": 1}, good])
    _, err = larder.run(bad, code=1)
    check("bad.jsonl:2:15: " in err and "--skip-bad" in err, err)
    text, err = larder.run("--skip-bad", bad)
    check("bad.jsonl:2:15: " in err and "1 records could not be read" in text, text)
    twice = larder.file("twice.jsonl", ['{"messages":[{"role":"user","content":"x"}],"messages":[]}'])
    _, err = larder.run(twice, code=1)
    check("twice.jsonl:1: " in err and "stands in the body twice" in err, err)
    _, err = larder.run(larder.file("empty.jsonl", []), code=1)
    check("no request was found" in err, err)
    for args, word in (((), "which files?"), (("--provider", "opnai", "x"), "did you mean 'openai'"),
                       (("--what", "x"), "unknown option"), (("--ttl", "0", "x"), "over 0"),
                       (("--rules-on", "LR102", "x"), "larder rules"), (("--format",), "needs a value"),
                       (("--price-as", "nobody", "x"), "no price"), (("--protocol", "smtp", "x"), "chat, messages"),
                       (("/nowhere/x.jsonl",), "cannot be opened"), (("--format=xml", "x"), "text or json"),
                       (("--as", "y", "x"), "conversations")):
        _, err = larder.run(*args, code=2)
        check(word in err, "%s: %r is not in %s" % (args, word, err))
    check("usage: larder replay" in larder.run("--help")[0], "--help")
    check("openrouter" in larder.run("--provider", "help")[0], "--provider help")


def main():
    files = sorted(glob.glob(sys.argv[2] + "/*.jsonl"))
    conversations = [json.loads(line) for f in files for line in open(f, encoding="utf-8")]
    with tempfile.TemporaryDirectory() as folder:
        larder = Larder(sys.argv[1], folder)
        try:
            agreement(larder, conversations)
            forms(larder, files, conversations)
            by_rule(larder, conversations)
            anthropic(larder)
            recorded(larder)
            errors(larder)
        except Failed as e:
            print("FAILED:", e)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
