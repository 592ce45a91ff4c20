"""The exchange file format: reading `.wire` files and expanding their escapes.

A file becomes an Exchange (options, sections in order). A section's text becomes a Block when it is expanded with the
values of one run: a list of operations, each ("bytes", data) or ("do", [words]). README.md beside this file is the
manual of the format. Raises WireError with file and line on anything it does not know.
"""
import copy
import itertools
import os
import re
import shlex

BODY_MODES = ("plain", "lines", "events")
OPTIONS = ("cuts", "secret", "env", "tls", "listen", "needs", "checks", "refuses", "covers", "over", "shapes")
NAMED = {"CR": b"\r", "LF": b"\n", "CRLF": b"\r\n", "SP": b" ", "TAB": b"\t", "NUL": b"\0", "LT": b"<", "GT": b">",
         "BOM": b"\xef\xbb\xbf", "EMPTY": b""}

# What the short section names stand for: their head, and their body where the section has none.
ASK_HEAD = ["POST %s HTTP/1.1", "Host: <HOST>", "Content-Type: application/json",
            "Authorization: Bearer client-key-000001", "Content-Length: <LEN>", ""]
ASK_BODY = '{"model":"m-<TAG>","messages":[{"role":"user","content":"hi"}]}'
ASK_STREAM_BODY = '{"model":"m-<TAG>","stream":true,"messages":[{"role":"user","content":"hi"}]}'
REPLY_HEAD = ["HTTP/1.1 200 OK", "Content-Type: application/json", "Content-Length: <LEN>", ""]
REPLY_BODY = ('{"id":"c-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
              '{"role":"assistant","content":"hello"},"finish_reason":"stop"}],'
              '"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}')
STREAM_HEAD = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", ""]
CHUNK = ('data: {"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m",'
         '"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}')
STREAM_BODY = [CHUNK % ('{"role":"assistant","content":"hel"}', "null"), CHUNK % ('{"content":"lo"}', "null"),
               CHUNK % ("{}", '"stop"'), "data: [DONE]"]


class WireError(Exception):
    """The file is wrong (not the program under test)."""


class Section:
    def __init__(self, words, line):
        at = words.index("when") if "when" in words else len(words)
        self.words = words[:at]
        self.when = words[at + 1:]   # it is there only in runs over all of these words
        self.line = line
        self.text = []

    def has(self, word):
        return word in self.words

    def value(self, word, default=None):
        """The word after `word`: `within 500` -> "500"."""
        if word in self.words[:-1]:
            return self.words[self.words.index(word) + 1]
        return default

    def lines(self):
        return [t for t in self.text if not t.startswith("%#")]


class Exchange:
    def __init__(self, path, title):
        self.path = path
        self.title = title
        self.options = {}
        self.vary = {}
        self.sections = []

    def option(self, name, default=""):
        return self.options.get(name, [default])[0]

    def dimensions(self):
        """`over: chat messages | plain stream`: [["chat", "messages"], ["plain", "stream"]]."""
        return [part.split() for part in self.option("over").split("|") if part.strip()]

    def narrowed(self, words):
        """What of it is played over these words."""
        if not words:
            return self
        x = copy.copy(self)
        x.sections = [s for s in self.sections if all(set(w.split("|")) & set(words) for w in s.when)]
        return x


class Variant(dict):
    """The values of one run by their names; `words` are those of `over`."""

    def __init__(self, values=(), words=(), said=()):
        super().__init__(values)
        self.words = tuple(words)
        self.label = ", ".join(list(words) + ["%s=%r" % v for v in said])


def variants(x):
    names = list(x.vary)
    for words in itertools.product(*x.dimensions()):
        for values in itertools.product(*(x.vary[n] for n in names)):
            said = list(zip(names, values))
            yield Variant(list(shapes(x, words).items()) + said, words, said)


def shapes(x, words):
    """The values that the file named by `shapes` has for these words: those of each of its blocks whose words are all
    among them, later ones instead of earlier ones."""
    out, mine = {}, False
    if not x.option("shapes"):
        return out
    path = os.path.join(os.path.dirname(x.path), x.option("shapes"))
    with open(path, encoding="utf-8") as f:
        for number, row in enumerate(f.read().split("\n"), 1):
            if row.startswith("=="):
                mine = set(row[2:].split()) <= set(words)
            elif row.strip() and not row.startswith("#"):
                name, colon, value = row.partition(":")
                if not colon or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
                    raise WireError("%s:%d: no `NAME: value`" % (path, number))
                if mine:
                    out[name] = value.strip(" ")
    return out


def read_file(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as f:
        rows = f.read().split("\n")
    x = Exchange(str(path), rows[0].strip())
    current = None
    for number, row in enumerate(rows, 1):
        if row.startswith("--- "):
            current = Section(shlex.split(row[4:]), number)
            x.sections.append(current)
        elif current is not None:
            current.text.append(row)
    for s in x.sections:
        while s.text and s.text[-1] == "":
            s.text.pop()
    for s in x.sections:
        lengthen(s)
    x.sections = unroll(take_options(x))
    if not x.sections:
        raise WireError("%s: no section" % path)
    known = set(sum(x.dimensions(), []))
    for s in x.sections:
        for word in sum((w.split("|") for w in s.when), []):
            if word not in known:
                raise WireError("%s:%d: '%s' is no word of `over`" % (path, s.line, word))
    return x


def lengthen(s):
    """`client asks`, `upstream replies` and `upstream streams` become the sections that they are short for."""
    kind = s.words[1:2]
    if kind == ["asks"]:
        path = s.value("to", "/v1/chat/completions")
        body = s.text or [ASK_STREAM_BODY if s.has("stream") else ASK_BODY]
        s.words[1], s.text = "sends", [ASK_HEAD[0] % path] + ASK_HEAD[1:] + body
    elif kind == ["replies"]:
        s.words[1], s.text = "answers", REPLY_HEAD + (s.text or [REPLY_BODY])
    elif kind == ["streams"]:
        s.words[1], s.text = "answers", STREAM_HEAD + (s.text or STREAM_BODY)
        s.words += ["chunked"] + ([] if body_mode(s) != "plain" or s.has("plain") else ["events"])


def take_options(x):
    rest = []
    for s in x.sections:
        if s.words != ["options"]:
            rest.append(s)
            continue
        for row in s.lines():
            if not row.strip():
                continue
            name, _, value = row.partition(":")
            name = name.strip()
            if name.startswith("vary "):
                x.vary[name[5:].strip()] = [v.strip(" ") for v in value.split(" | ")]
            elif name in OPTIONS:
                x.options.setdefault(name, []).append(value.strip())
            else:
                raise WireError("%s:%d: unknown option '%s'" % (x.path, s.line, name))
    return rest


def unroll(sections):
    """`--- repeat N` ... `--- end` becomes N copies."""
    out, at = [], 0
    while at < len(sections):
        s = sections[at]
        if s.words[0] != "repeat":
            out.append(s)
            at += 1
            continue
        end = next((i for i in range(at, len(sections)) if sections[i].words == ["end"]), None)
        if end is None:
            raise WireError("line %d: repeat without end" % s.line)
        for _ in range(int(s.words[1])):
            out.extend(copy.copy(t) for t in sections[at + 1:end])   # each copy is a section of its own
        at = end + 1
    return out


def expand(text, values):
    """Replaces every <...> escape; returns bytes. `values` maps names to bytes, or to a function of the offset."""
    out, at = [], 0
    while True:
        start = text.find("<", at)
        if start < 0:
            out.append(text[at:].encode("utf-8", "surrogateescape"))
            return b"".join(out)
        out.append(text[at:start].encode("utf-8", "surrogateescape"))
        depth, end = 1, start + 1
        while end < len(text) and depth:
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        if depth:
            raise WireError("'<' without '>': %r" % text[start:start + 40])
        out.append(escape(text[start + 1:end - 1], values))
        at = end


def escape(inner, values):
    if inner in NAMED:
        return NAMED[inner]
    if inner == "|":
        return b"\0CUT\0"  # the region of `cuts: each`; taken out before sending
    if re.fullmatch(r"x( ?[0-9A-Fa-f]{2})+", inner):
        return bytes.fromhex(inner[1:])
    m = re.fullmatch(r"(\d+)\*(.*)", inner, re.S)
    if m:
        return int(m.group(1)) * expand(m.group(2), values)
    m = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)([+-]\d+)?", inner)
    if m and m.group(1) in values:
        value = values[m.group(1)]
        if m.group(2):
            value = str(int(value) + int(m.group(2))).encode()
        return value
    raise WireError("unknown escape <%s>" % inner[:60])


def insert(text, values):
    """Names of values in angle brackets; anything else, as in patterns, stays what it is."""
    return re.sub(r"<([A-Z][A-Z0-9_]*)>", lambda m: values[m.group(1)].decode("utf-8", "surrogateescape")
                  if m.group(1) in values else m.group(0), text)


class Block:
    """An expanded send block: `ops` to perform, `body` as it was before chunk framing."""

    def __init__(self):
        self.ops = []
        self.body = b""

    def wire(self):
        return b"".join(v for k, v in self.ops if k == "bytes").replace(b"\0CUT\0", b"")


def body_mode(section):
    return next((m for m in BODY_MODES if m in section.words), "plain")


def frame_row(row, section, mode, values):
    data = expand(row, values)
    data += {"plain": b"", "lines": b"\n", "events": b"\n\n"}[mode]
    return data


def send_block(section, values):
    """Head lines end in CRLF up to the first empty line; the rest is body (see README)."""
    block, mode, chunked = Block(), body_mode(section), section.has("chunked")
    rows = section.lines()
    head = [] if section.has("raw") else None
    body_from = 0
    if head is None:
        body_from = next((i for i, r in enumerate(rows) if r == ""), len(rows))
    body_ops = []
    for row in rows[body_from if section.has("raw") else body_from + 1:]:
        if row.startswith("%"):
            body_ops.append(("do", shlex.split(row[1:])))
            continue
        data = frame_row(row, section, mode, values)
        if mode == "plain" and not row:
            continue
        block.body += data.replace(b"\0CUT\0", b"")
        if chunked and data:
            bare = len(data.replace(b"\0CUT\0", b""))
            data = b"%x\r\n" % bare + data + b"\r\n"
        body_ops.append(("bytes", data))
    if chunked and not section.has("unfinished"):
        body_ops.append(("bytes", b"0\r\n\r\n"))
    values = dict(values, LEN=str(len(block.body)).encode())
    for row in [] if section.has("raw") else rows[:body_from]:
        if row.startswith("%"):
            block.ops.append(("do", shlex.split(row[1:])))
        else:
            block.ops.append(("bytes", expand(row, values) + b"\r\n"))
    if not section.has("raw") and not (section.has("unfinished") and body_from == len(rows)):
        block.ops.append(("bytes", b"\r\n"))
    block.ops = merge(block.ops + body_ops)
    return block


def merge(ops):
    out = []
    for kind, value in ops:
        if kind == "bytes" and out and out[-1][0] == "bytes":
            out[-1] = ("bytes", out[-1][1] + value)
        else:
            out.append((kind, value))
    return out


class Expectation:
    """An expanded expect block."""

    def __init__(self):
        self.first = None      # first line, text
        self.fields = []       # (name, value, "equal" | "pattern" | "absent")
        self.body = None       # exact bytes, or None
        self.checks = []       # directives [words]


def expect_block(section, values, same_body=None):
    e = Expectation()
    rows = section.lines()
    blank = next((i for i, r in enumerate(rows) if r == ""), len(rows))
    body_rows = [r for r in rows[blank + 1:] if not r.startswith("%")]
    mode = body_mode(section)
    if any(r for r in body_rows):
        e.body = b"".join(frame_row(r, section, mode, values) for r in body_rows if r or mode != "plain")
    e.checks = [[insert(w, values) for w in shlex.split(r[1:])] for r in rows if r.startswith("%")]
    if ["same", "body"] in e.checks:
        e.body = same_body
        e.checks.remove(["same", "body"])
    values = dict(values, LEN=str(len(e.body or b"")).encode())
    for row in rows[:blank]:
        if row.startswith("%"):
            continue
        if row.startswith("<"):   # a whole line from a variant
            row = expand(row, values).decode("utf-8", "surrogateescape")
        is_field = row.startswith("!") or re.match(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:", expand(row, values))
        if e.first is None and not e.fields and not is_field:
            e.first = expand(row, values).decode("latin-1")
        elif row.startswith("!"):
            e.fields.append((row[1:].strip(), "", "absent"))
        else:
            name, _, value = row.partition(":")
            value = value.strip()
            if len(value) > 1 and value[0] == "/" and value[-1] == "/":
                e.fields.append((name.strip(), value[1:-1], "pattern"))
            else:
                e.fields.append((name.strip(), expand(value, values).decode("latin-1"), "equal"))
    return e
