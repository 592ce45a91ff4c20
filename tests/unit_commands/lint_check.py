#!/usr/bin/env python3
"""larder lint as its user sees it: what it finds and does not, exit statuses, formats, mending, what leaves findings out.

usage: lint_check.py LARDER ROOT
"""
import http.client
import json
import os
import random
import re
import shlex
import socket
import stat
import subprocess
import sys
import tempfile
import time

LARDER, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
FAILED = []


def lint(*args, cwd=None, stdin=None, env=None):
    """(exit status, standard output, standard error), as text."""
    e = dict(os.environ, **(env or {}))
    p = subprocess.run([LARDER, "lint", *args], cwd=cwd, input=stdin, capture_output=True, timeout=300, env=e)
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


def check(what, holds, *shown):
    if not holds:
        FAILED.append(what)
        print("FAILED:", what, *[str(s)[:1500] for s in shown])


def findings(*args, **kw):
    rc, out, err = lint("--no-config", "--format", "json", *args, **kw)
    return [(f["rule"], f["state"]) for f in json.loads(out)["findings"]], rc, err


RULES = {line.split()[0] for line in lint("--list-rules")[1].splitlines()}


def write(path, *bodies):
    with open(path, "w", encoding="utf-8") as f:
        for b in bodies:
            f.write((b if isinstance(b, str) else json.dumps(b, ensure_ascii=False)) + "\n")


# -- conversations, and what clients do to them -------------------------------------------------------------


SYSTEM = ("You are the support desk of a shop.\nAnswer from the manual only, in at most three sentences.\n"
          "The manual was printed on 2024-05-15; version 4.9.2031.")
TOOLS = [{"type": "function", "function": {"name": n, "description": "Looks up " + n, "strict": True,
                                           "parameters": {"type": "object", "properties": {"id": {"type": "string"}},
                                                          "required": ["id"]}}}
         for n in ("order", "customer", "stock", "invoice")]


def call(i, arguments):
    return {"role": "assistant", "content": None,
            "tool_calls": [{"id": "call_%d" % i, "type": "function",
                            "function": {"name": "order", "arguments": arguments}}]}


def conversation(calls):
    m = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Where is my order 81734?"}]
    for i in range(calls):
        yield {"model": "deepseek-chat", "messages": json.loads(json.dumps(m)), "tools": json.loads(json.dumps(TOOLS))}
        m += [call(i, '{"id": "81734", "part": %d}' % i), {"role": "tool", "tool_call_id": "call_%d" % i, "content": "on its way"}]


def prepend(text):
    def fn(body, i, rng):
        body["messages"][0]["content"] = text(i, rng) + body["messages"][0]["content"]
    return fn


def append(text):
    def fn(body, i, rng):
        body["messages"][0]["content"] += text(i, rng)
    return fn


def hexes(rng, *lengths):
    return "-".join("".join(rng.choice("0123456789abcdef") for _ in range(n)) for n in lengths)


def shuffled(x, rng):
    if isinstance(x, dict):
        keys = list(x)
        rng.shuffle(keys)
        return {k: shuffled(x[k], rng) for k in keys}
    return [shuffled(v, rng) for v in x] if isinstance(x, list) else x


def tool_order(body, i, rng):
    body["tools"] = body["tools"][i % 4:] + body["tools"][:i % 4]


def schema_keys(body, i, rng):
    for t in body["tools"]:
        f = t["function"]
        t["function"] = dict(reversed(list(f.items()))) if i % 2 else f


def text_form(body, i, rng):
    if i % 2:
        m = body["messages"][0]
        m["content"] = "\ufeff" + m["content"].replace("\n", "\r\n") + "\n"


def arguments(body, i, rng):
    for m in body["messages"]:
        for c in m.get("tool_calls") or []:
            a = json.loads(c["function"]["arguments"])
            c["function"]["arguments"] = json.dumps(a if i % 2 else dict(reversed(list(a.items()))), separators=(",", ":"))


KINDS = [
    ("clock", "LR001", prepend(lambda i, r: "Current time: 2031-04-09T15:%02d:42.118Z\n\n" % i)),
    ("sentence", "LR001", append(lambda i, r: " The current date and time is Wednesday, April 09, 2031, 03:%02d:42 PM." % i)),
    ("chinese clock", "LR001", append(lambda i, r: "\n\n当前时间：2031年4月9日 15时%02d分42秒" % i)),
    ("request id", "LR006", prepend(lambda i, r: "request_id: %s\n" % hexes(r, 8, 4, 4, 4, 12))),
    ("billing header", "LR002", prepend(lambda i, r: "x-acme-billing-header: v=2.1.%d; cch=%s;\n" % (i % 3, hexes(r, 5)))),
    ("tool order", "LR003", tool_order),
    ("schema keys", "LR010", schema_keys),
    ("working directory", "LR009", append(lambda i, r: "\n<env>\nWorking directory: /tmp/job_%s\nToday's date: 2031-04-09\n</env>" % hexes(r, 6))),
    ("counter", "LR008", append(lambda i, r: "\nTurn %d of 80. Remaining budget: %s tokens." % (i + 1, format(200000 - 1371 * i, ",")))),
    ("form", "LR004", text_form),
    ("arguments", "LR011", arguments),
    ("users online", "LR109", append(lambda i, r: "\nActive users: %s" % ", ".join(["bo", "al", "cy"][:1 + i % 3]))),
    ("file list", "LR107", append(lambda i, r: "\nFiles: a.c%s" % "".join(", f%d.c" % k for k in range(i)))),
]


def test_kinds(folder):
    path = os.path.join(folder, "kind.jsonl")
    write(path, *conversation(6))
    got, rc, _ = findings(path)
    check("clean traffic has no finding", got == [] and rc == 0, got)
    for name, rule, fn in KINDS:
        if rule not in RULES:
            print("note: %s is not in this build" % rule)
            continue
        rng = random.Random(3)
        bodies = list(conversation(6))
        for i, b in enumerate(bodies):
            fn(b, i, rng)
        first = 1 if name == "arguments" else 0
        for at in range(first, 5):
            write(path, bodies[at], bodies[at + 1])
            got, rc, _ = findings(path)
            check("%s: confirmed by two calls" % name, (rule, "confirmed") in got and rc == 1, at, got)
            extra = [g for g in got if g[0] != rule]
            check("%s: nothing else is found" % name, not extra, at, got)
        write(path, *bodies)
        got, rc, _ = findings(path)
        check("%s: few findings for many calls" % name, got and set(got) == {(rule, "confirmed")} and len(got) <= 2, got)


def test_one_request(folder):
    path = os.path.join(folder, "one.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"messages": [{"role": "system", "content": "Be careful.\nCurrent time: 2031-04-09 15:15:42"}]}, f, indent=2)
    got, rc, _ = findings(path)
    check("one request is a suspicion", got == [("LR001", "suspect")] and rc == 1, got)
    rc, out, _ = lint("--no-config", "--severity", "warning", path)
    check("--severity leaves it out", rc == 0 and "0 findings" in out, out)
    out = lint("--no-config", path)[1]
    check("the place is named", re.search(r"one\.json:5:\d+: info LR001 volatile_clock \(suspect\) /messages/0/content", out), out)
    with open(path, "w", encoding="utf-8") as f:
        json.dump([{"role": "system", "content": "Current time: 2031-04-09 15:15:42"}, {"role": "user", "content": "x"}], f)
    out = lint("--no-config", path)[1]
    check("a pointer into an array of messages", "/0/content" in out and "/messages" not in out, out)


def test_shapes(folder):
    a = {"messages": [{"role": "system", "content": "Current time: 2031-04-09 15:15:42"}, {"role": "user", "content": "x"}], "model": "m"}
    b = json.loads(json.dumps(a).replace("15:15:42", "15:16:42"))
    wrapped = [("array of requests", json.dumps([a, b]), "/1/messages/0/content"),
               ("batch", "\n".join(json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": x})
                                    for x in (a, b)),
                "/body/messages/0/content"),
               ("pair", "\n".join(json.dumps({"request": x, "response": {"id": "r"}}) for x in (a, b)), "/request/messages/0/content"),
               ("comments", "# a log\n" + json.dumps(a) + "\n\n// more\n" + json.dumps(b), "/messages/0/content")]
    for name, text, pointer in wrapped:
        rc, out, err = lint("--no-config", "-", stdin=text.encode())
        check("%s: found" % name, rc == 1 and "(confirmed) " + pointer + "\n" in out, out, err)


def test_bad_input(folder):
    bad = {"binary": bytes(range(256)) * 40, "empty": b"", "deep": b"[" * 200000, "cut": b'{"messages": [',
           "blank": b"\n\n\n", "no request": b'{"a": 1}', "utf-16": '{"messages": []}'.encode("utf-16"),
           "latin": b'{"messages": [{"role": "user", "content": "\xe9"}]}'}
    for name, data in bad.items():
        rc, out, err = lint("--no-config", "-", stdin=data)
        wanted = 0 if name in ("empty", "blank") else 2
        check("%s: exit status %d" % (name, wanted), rc == wanted and (rc == 0 or "-:1" in err), rc, err)
    good = json.dumps({"messages": [{"role": "system", "content": "Current time: 2031-04-09 15:15:42"}]})
    rc, out, err = lint("--no-config", "-", stdin=("{bad}\n" + good + "\n").encode())
    check("a bad line does not hide the next one", rc == 2 and "LR001" in out and "-:1:2:" in err, out, err)
    for args in (["nothing-there.json"], ["no-match-*.json"], [folder + "/none"], ["--format", "xml", "-"], ["--selekt", "LR001", "-"],
                 ["--select", "LR9", "-"], ["--provider", "deepsek", "-"], ["--explain", "LR00"], [],
                 ["--color", "pink", "-"], ["--baseline"]):
        rc, out, err = lint(*args, stdin=b"")
        check("usage: %s" % args, rc == 2 and err.startswith("larder lint: ") and not out, rc, out, err)
    check("a near name is offered", "did you mean deepseek" in lint("--provider", "deepsek", "-", stdin=b"")[2])
    os.mkdir(folder + "/prompts")
    write(folder + "/prompts/a.md", "You are careful.")
    rc, out, err = lint(folder + "/prompts")
    check("a folder of prompts alone says how they are given", rc == 2 and "'*.md'" in err, out, err)


def test_formats(folder):
    path = os.path.join(folder, "odd,na:me%.jsonl")
    write(path, *[{"messages": [{"role": "system", "content": "X\nCurrent time: 2031-04-09 15:1%d:42\n" % i},
                                {"role": "user", "content": "q"}],
                   "user": "\x1b[31mred\x1b[0m\u202e%d" % i} for i in range(2)])
    rc, out, _ = lint("--no-config", "--format", "github", path)
    lines = out.splitlines()
    check("github: a line a finding", rc == 1 and all(re.match(r"::(notice|warning|error) file=[^:,]+,line=\d+,col=\d+,title=[^:]+::", x) for x in lines), out)
    check("github: the name is escaped", "na%3Ame%25.jsonl" in out and "odd%2C" in out, out)
    for fmt in ("text", "github", "json", "sarif"):
        out = lint("--no-config", "--format", fmt, path)[1]
        check("%s: no control characters" % fmt, not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", out), out)
    sarif = json.loads(lint("--no-config", "--format", "sarif", path)[1])
    r = sarif["runs"][0]["results"][0]
    check("sarif: rule, place, tokens", r["ruleId"] in RULES and r["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
          and r["relatedLocations"], r)
    index = [x["id"] for x in sarif["runs"][0]["tool"]["driver"]["rules"]].index(r["ruleId"])
    check("sarif: ruleIndex", r["ruleIndex"] == index, r)
    check("colours on request only", "\x1b[" in lint("--no-config", "--color", "always", path)[1] and
          "\x1b[" not in lint("--no-config", path)[1])
    f = json.loads(lint("--no-config", "--format", "json", path)[1])
    clock = [x for x in f["findings"] if x["rule"] == "LR001"][0]
    check("json: both values", clock["value"] == "2031-04-09 15:11:42" and clock["before"]["value"] == "2031-04-09 15:10:42", clock)
    check("json: tokens", isinstance(clock["tokens"], int) and clock["tokens"] > 0, clock)


def test_one_long_line(folder):
    """A list on one line: places are counted on from request to request, in lines and in characters."""
    body = {"messages": [{"role": "system", "content": "X é"}, {"role": "user", "content": "hi" * 2000}]}
    last = {"messages": [{"role": "system", "content": "X é. Current time: 2031-04-09 15:15:42"}]}
    for name, indent in (("line.json", None), ("lines.json", 1)):
        path = os.path.join(folder, name)
        text = json.dumps([body] * 1500 + [last], ensure_ascii=False, indent=indent)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        at = text.index("2031-")
        place = "%d:%d:" % (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        rc, out, err = lint("--no-config", path)
        check("%s: the place, in characters" % name, rc == 1 and place in out and "1501 requests" in out, place, out, err)


def test_hostile_files(folder):
    name = os.path.join(folder, "\x1b[31mred\u202e.json")
    with open(name, "w") as f:
        f.write(CLOCK + "{bad}\n")
    for fmt in ("text", "github"):
        rc, out, err = lint("--no-config", "--format", fmt, folder)
        check("%s: a file's name is shown harmless" % fmt,
              rc == 2 and not re.search("[\x1b\u202e]", out + err) and "\\x1b" in err, out, err)
    pipe = os.path.join(folder, "pipe.jsonl")
    os.mkfifo(pipe)
    billing = CLOCK.replace("Be careful", "x-a-billing-header: cch=12;\\nBe careful")
    feed = subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write(sys.argv[2])", pipe, billing])
    rc, out, err = lint("--no-config", "--fix", pipe)
    feed.wait(60)
    check("a pipe is not replaced", rc == 2 and stat.S_ISFIFO(os.stat(pipe).st_mode) and "no regular file" in err, out, err)
    write(folder + "/ok.json", CLOCK.strip())
    rc, out, err = lint("--no-config", "--write-baseline", pipe, folder + "/ok.json")
    check("nor by a baseline", rc == 2 and stat.S_ISFIFO(os.stat(pipe).st_mode) and "no regular file" in err, out, err)
    p = subprocess.run([LARDER, "fingerprint"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, timeout=60)
    check("a full disk is said", p.returncode == 1 and b"could not be written" in p.stderr, p)
    rc, out, err = lint("--no-config", "--fix=print", "-", stdin=b"")
    check("nothing is mended to nothing", (rc, out) == (0, "") and "runtime error" not in err, rc, out, err)
    with open(folder + "/twice.md", "w") as f:
        f.write("Current time: 2031-04-09 15:15:42\n" * 2)
    out = json.loads(lint("--no-config", "--format", "json", folder + "/twice.md")[1])
    check("two places of one request are one request", [f["requests"] for f in out["findings"]] == [1], out)


def test_fix(folder):
    path, link = os.path.join(folder, "fix.jsonl"), os.path.join(folder, "link.jsonl")
    lines = ['# a comment ',
             '{"messages": [{"role": "system", "content": "x-a-billing-header: cch=12;\\nBe careful."}, '
             '{"role": "user", "content": "q \\u00e9"}], "n": 1.50}',
             '', '{"messages":[{"role":"user","content":"no edit"}]}',
             '{"messages": [{"role": "system", "content": "x-a-billing-header: cch=99;\\nBe careful."}, '
             '{"role": "user", "content": "q2"}]}']
    text = "\n".join(lines)  # without a line end at its end
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o640)
    os.symlink(path, link)
    rc, diff, _ = lint("--no-config", "--diff", path)
    check("--diff changes nothing", open(path).read() == text and diff.startswith("--- "), diff)
    rc, printed, _ = lint("--no-config", "--fix=print", path)
    check("--fix=print changes nothing", open(path).read() == text)
    rc, out, err = lint("--no-config", "--fix", link)
    fixed = open(path).read()
    want = text.replace("x-a-billing-header: cch=12;\\n", "").replace("x-a-billing-header: cch=99;\\n", "")
    check("--fix writes what is safe and nothing else", fixed == want == printed, fixed, printed)
    check("a link stays a link, the mode stays", os.path.islink(link) and stat.S_IMODE(os.stat(path).st_mode) == 0o640)
    check("no file is left beside it", sorted(os.listdir(folder)) == sorted(["fix.jsonl", "link.jsonl"]), os.listdir(folder))
    before = os.stat(path).st_mtime_ns
    lint("--no-config", "--fix", path)
    check("nothing to mend: not written", os.stat(path).st_mtime_ns == before)
    with open(path, "w") as f:
        f.write(text)
    lint("--no-config", "--fix", "--ignore", "LR002", path)
    check("--ignore keeps a rule from mending", open(path).read() == text)
    rc, printed, _ = lint("--no-config", "--fix", "-", stdin=text.encode())
    check("standard input is mended to standard output", printed == want, printed)
    md = os.path.join(folder, "p.md")
    with open(md, "wb") as f:
        f.write("x-a-billing-header: cch=12;\nBe careful \"ä\" \\n\tand 你好.\r\n".encode())
    lint("--no-config", "--fix", md)
    check("a prompt is mended", open(md, "rb").read() == "Be careful \"ä\" \\n\tand 你好.\r\n".encode(), open(md, "rb").read())
    conv = os.path.join(folder, "conv.json")
    write(conv, {"messages": [{"role": "system", "content": "x-a-billing-header: cch=12;\nA"},
                              {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    was = open(conv).read()
    lint("--no-config", "--fix", conv)
    check("a conversation is never edited", open(conv).read() == was)
    if os.getuid() != 0:
        os.chmod(folder, 0o500)
        with open(path) as f:
            was = f.read()
        rc, out, err = lint("--no-config", "--fix", path)
        os.chmod(folder, 0o700)
        check("a folder that cannot be written is named", rc == 2 and "cannot write" in err and open(path).read() == was, err)


CLOCK = '{"messages": [{"role": "system", "content": "Be careful.\\nCurrent time: 2031-04-09 15:15:42"}]}\n'


def test_leaving_out(folder):
    os.makedirs(folder + "/sub/deep")
    for name in ("a.jsonl", "sub/b.jsonl", "sub/deep/c.jsonl"):
        with open(os.path.join(folder, name), "w") as f:
            f.write(CLOCK)
    seen = lambda *a: sorted(set(re.findall(r"^(\S+?):\d+:\d+: ", lint(*a, cwd=folder)[1], re.M)))
    check("a folder", seen(".") == ["./a.jsonl", "./sub/b.jsonl", "./sub/deep/c.jsonl"], seen("."))
    check("a pattern", seen("sub/*.jsonl") == ["sub/b.jsonl"], seen("sub/*.jsonl"))
    check("a pattern of folders", seen("**/*.jsonl") == ["a.jsonl", "sub/b.jsonl", "sub/deep/c.jsonl"], seen("**/*.jsonl"))
    with open(folder + "/.larder-lint.yaml", "w") as f:
        f.write('paths:\n  - {glob: "sub/*", ignore: [LR001]}\n')
    check("a path's rules", seen("**/*.jsonl") == ["a.jsonl", "sub/deep/c.jsonl"], seen("**/*.jsonl"))
    with open(folder + "/sub/.larder-lint.yaml", "w") as f:
        f.write("select: [LR1]\n")
    check("the nearest configuration counts", seen("**/*.jsonl") == ["a.jsonl"], seen("**/*.jsonl"))
    check("--no-config", len(seen("--no-config", "**/*.jsonl")) == 3)
    check("--config", seen("--config", "sub/.larder-lint.yaml", "**/*.jsonl") == [])
    for bad, place in (("selekt: [LR001]", ":1:1: no such option; did you mean select?"), ("ignore: [LR777]", ":1:10: no such rule"),
                       ("paths:\n  - {ignore: [LR001]}", ":2:5: glob is missing"), ("severity: loud", ":1:11: info, warning or error"),
                       ("provider: nobody", ":1:11: no such provider"), ("a: [", ":")):
        with open(folder + "/.larder-lint.yaml", "w") as f:
            f.write(bad + "\n")
        rc, out, err = lint("a.jsonl", cwd=folder)
        check("configuration: %s" % bad, rc == 2 and place in err, err)
    os.remove(folder + "/.larder-lint.yaml")
    os.remove(folder + "/sub/.larder-lint.yaml")
    for comment, rc_wanted in (("# larder-ignore LR001 wanted", 0), ("# larder-ignore LR002", 1), ("// larder-ignore", 0),
                               ("# larder-ignore-file volatile_clock", 0)):
        rc, out, _ = lint("--no-config", "-", stdin=(comment + "\n" + CLOCK).encode())
        check("comment %s" % comment, rc == rc_wanted and ("1 ignored" in out) == (rc == 0), out)
    with open(folder + "/p.md", "w") as f:
        f.write("A prompt.\n<!-- larder-ignore LR001 -->\nCurrent time: 2031-04-09 15:15:42\n\nBattery: 80%\n")
    rc, out, _ = lint("--no-config", "p.md", cwd=folder)
    check("a comment in a prompt", "LR001" not in out and "p.md:5:10: info LR109" in out, out)


def test_baseline(folder):
    path, base = folder + "/a.jsonl", folder + "/base.json"
    with open(path, "w") as f:
        f.write(CLOCK)
    rc, out, err = lint("--no-config", "--write-baseline", "base.json", "a.jsonl", cwd=folder)
    check("a baseline is written", rc == 0 and os.path.exists(base), err)
    rc, out, _ = lint("--no-config", "--baseline", "base.json", "a.jsonl", cwd=folder)
    check("old findings are left out", rc == 0 and "1 in the baseline" in out, out)
    with open(path, "w") as f:
        f.write("\n\n\n# moved\n" + CLOCK)
    check("they may move", lint("--no-config", "--baseline", "base.json", "a.jsonl", cwd=folder)[0] == 0)
    with open(path, "w") as f:
        f.write(CLOCK.replace("Be careful.", "Battery: 80%"))
    rc, out, _ = lint("--no-config", "--baseline", "base.json", "a.jsonl", cwd=folder)
    check("a new one fails", rc == 1 and "LR109" in out and "LR001" not in out, out)
    with open(path, "w") as f:
        f.write('{"messages": []}\n')
    rc, out, _ = lint("--no-config", "--baseline", "base.json", "a.jsonl", cwd=folder)
    check("what is gone is counted", rc == 0 and "1 of the baseline gone" in out, out)
    for bad in ("", "{}", "[1]", '{"version": 9, "findings": []}', '{"version": 1, "findings": [{"rule": 1}]}'):
        with open(base, "w") as f:
            f.write(bad)
        check("a bad baseline: %s" % bad, lint("--no-config", "--baseline", "base.json", "a.jsonl", cwd=folder)[0] == 2)


def test_records(folder):
    record = {"seq": 1, "time": "2026-11-29T10:00:00.000Z", "time_ms": 1, "route": "chat", "model": "m", "status": 200,
              "ending": "complete",
              "prompt_tokens": 900, "miss_tokens": 800, "rules_fired": [], "rules_seen": ["LR001"],
              "prefix_hash": "00000000000000aa", "hit_tokens": 100, "turn": 0}
    text = "\n".join(json.dumps(dict(record, seq=i + 1, rules_fired=["LR001"] * (i == 0))) for i in range(3))
    rc, out, err = lint("--no-config", "-", stdin=text.encode())
    check("records of larder", rc == 1 and "found in 3 of 3 requests and edited in 1; 2400 tokens" in out, out, err)
    check("with the way to more", "lint a log of the requests" in out, out)


def test_store(folder):
    with socket.socket() as s, socket.socket() as t:
        s.bind(("127.0.0.1", 0))
        t.bind(("127.0.0.1", 0))
        port, admin = s.getsockname()[1], t.getsockname()[1]
    p = subprocess.Popen([LARDER, "serve", "--listen", "127.0.0.1:%d" % port, "--admin.listen", "127.0.0.1:%d" % admin, "--upstream",
                          "http://127.0.0.1:9", "--store", folder + "/store", "--canon.mode", "report"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "x-a-billing-header: cch=1;\nBe good"},
                                                  {"role": "user", "content": "x"}]})
    for _ in range(200):
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            c.request("POST", "/v1/chat/completions", body)
            c.getresponse().read()
            break
        except OSError:
            time.sleep(0.1)
    p.terminate()
    p.wait(60)
    rc, out, err = lint("--no-config", folder + "/store")
    check("a store", rc == 1 and "records of model m: billing_nonce was found in 1 of 1 requests" in out, out, err)


def test_hook(folder):
    text = open(os.path.join(ROOT, ".pre-commit-hooks.yaml")).read()
    entry = re.search(r"^  entry: (.*)$", text, re.M).group(1)
    files = re.compile(re.search(r"^  files: (.*)$", text, re.M).group(1))
    os.makedirs(folder + "/prompts")
    os.makedirs(folder + "/bin")
    os.symlink(LARDER, folder + "/bin/larder")
    write(folder + "/prompts/a.jsonl", CLOCK.strip(), CLOCK.strip().replace("15:15", "15:16"))
    write(folder + "/prompts/b.md", "Be careful.")
    write(folder + "/package.json", {"name": "x"})
    git = lambda *a: subprocess.run(["git", *a], cwd=folder, check=True, capture_output=True, text=True).stdout
    git("init", "-q")
    git("add", "prompts", "package.json")
    staged = [f for f in git("diff", "--cached", "--name-only").split() if files.search(f)]
    check("the hook's files", staged == ["prompts/a.jsonl", "prompts/b.md"], staged)
    env = dict(os.environ, PATH=folder + "/bin:" + os.environ["PATH"])
    run = lambda names: subprocess.run(shlex.split(entry) + names, cwd=folder, env=env, capture_output=True, text=True)
    p = run(staged)
    check("the hook fails on a finding", p.returncode == 1 and "prompts/a.jsonl:2" in p.stdout, p)
    check("and passes without one", run(["prompts/b.md"]).returncode == 0)


def test_explain(folder):
    for rule in sorted(RULES):
        rc, out, err = lint("--explain", rule.lower(), cwd=folder)
        check("--explain %s" % rule, rc == 0 and out.startswith(rule) and "\nWhy\n" in out and "```" not in out, out, err)


def main():
    tests = [f for n, f in sorted(globals().items()) if n.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    print("%d groups, %d failed checks" % (len(tests), len(FAILED)))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
