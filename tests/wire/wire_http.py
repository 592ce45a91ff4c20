"""A strict HTTP/1.1 message reader for the runner, and the comparison of a message with what a file expects.

It is written apart from the program under test, so that both would have to make the same mistake. It takes any cut.
"""
import json
import re


class Message:
    def __init__(self):
        self.first = ""
        self.fields = []
        self.body = bytearray()
        self.complete = False
        self.head_done = False
        self.framing = "none"   # none, length, chunked, close
        self.trailers = []
        self.fault = None

    def get(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def status(self):
        m = re.match(r"HTTP/1\.[01] (\d{3})( |$)", self.first)
        return int(m.group(1)) if m else 0


class Reader:
    """Feed it bytes; `message` is the one under way. After `message.complete` call next()."""

    def __init__(self, kind):
        self.kind = kind  # "request" or "response"
        self.data = bytearray()
        self.message = Message()
        self.to_head = False
        self.state = "head"
        self.left = 0

    def next(self):
        self.message = Message()
        self.state = "head"

    def feed(self, data):
        self.data += data
        self.run()

    def run(self):
        while not self.message.fault and not self.message.complete:
            if not getattr(self, "in_" + self.state)():
                return

    def fail(self, why):
        self.message.fault = why
        return False

    def in_head(self):
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            if re.search(rb"(?<!\r)\n", self.data[:65536]):
                return self.fail("bare LF in a head: %r" % bytes(self.data[:200]))
            return False
        rows = bytes(self.data[:end]).split(b"\r\n")
        del self.data[:end + 4]
        self.message.first = rows[0].decode("latin-1")
        for row in rows[1:]:
            m = re.fullmatch(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*", row, re.S)
            if not m or b"\n" in row or b"\r" in row or b"\0" in row:
                return self.fail("bad field line %r" % row)
            self.message.fields.append((m.group(1).decode(), m.group(2).decode("latin-1")))
        self.message.head_done = True
        return self.frame()

    def frame(self):
        m = self.message
        pattern = r"[A-Z]+ \S+ HTTP/1\.[01]" if self.kind == "request" else r"HTTP/1\.[01] \d{3}( .*)?"
        if not re.fullmatch(pattern, m.first):
            return self.fail("bad first line %r" % m.first)
        coding, length = m.get("transfer-encoding"), m.get("content-length")
        if coding and length:
            return self.fail("both Transfer-Encoding and Content-Length")
        if len(coding) > 1 or len(length) > 1 or (coding and coding[0].lower() != "chunked"):
            return self.fail("odd framing fields %r %r" % (coding, length))
        if length and not re.fullmatch(r"\d+", length[0]):
            return self.fail("bad Content-Length %r" % length[0])
        status = m.status()
        if self.kind == "response" and (self.to_head or status < 200 or status in (204, 304)):
            if coding and (status < 200 or status == 204):
                return self.fail("Transfer-Encoding on a %d" % status)
            m.complete = True
        elif coding:
            m.framing, self.state = "chunked", "size"
        elif length:
            m.framing, self.state, self.left = "length", "length", int(length[0])
            m.complete = self.left == 0
        elif self.kind == "response":
            m.framing, self.state = "close", "close"
        else:
            m.complete = True
        return True

    def in_length(self):
        take = min(self.left, len(self.data))
        self.message.body += self.data[:take]
        del self.data[:take]
        self.left -= take
        self.message.complete = self.left == 0
        return self.left == 0

    def in_close(self):
        self.message.body += self.data
        self.data.clear()
        return False

    def line(self):
        end = self.data.find(b"\n")
        if end < 0:
            return None
        row = bytes(self.data[:end + 1])
        del self.data[:end + 1]
        if not row.endswith(b"\r\n"):
            self.fail("chunk line without CR: %r" % row[:80])
            return None
        return row[:-2]

    def in_size(self):
        row = self.line()
        if row is None:
            return False
        if not re.fullmatch(rb"[0-9A-Fa-f]+", row):
            return self.fail("bad chunk size line %r" % row[:80])
        self.left = int(row, 16)
        self.state = "chunk" if self.left else "trailer"
        return True

    def in_chunk(self):
        if len(self.data) < self.left + 2:
            take = max(0, min(self.left, len(self.data)))
            self.message.body += self.data[:take]
            del self.data[:take]
            self.left -= take
            return False
        self.message.body += self.data[:self.left]
        end = bytes(self.data[self.left:self.left + 2])
        del self.data[:self.left + 2]
        if end != b"\r\n":
            return self.fail("chunk data not followed by CRLF: %r" % end)
        self.state = "size"
        return True

    def in_trailer(self):
        row = self.line()
        if row is None:
            return False
        if row == b"":
            self.message.complete = True
        else:
            self.message.trailers.append(row)
        return True

    def eof(self, clean):
        """The peer closed; a body that ends by close is complete if the close was an orderly one."""
        if self.message.head_done and self.message.framing == "close" and clean:
            self.message.complete = True


HOP = ("keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade", "proxy-authenticate", "trailer")


def invariants(m, kind, skip):
    """What must hold for every message that larder writes, whatever the file says."""
    out = []
    if m.fault:
        return [m.fault]
    for name in HOP:
        if m.get(name) and name not in skip:
            out.append("hop-by-hop field %s is forwarded" % name)
    if m.trailers:
        out.append("trailers are forwarded: %r" % m.trailers)
    if kind == "request":
        if len(m.get("host")) != 1:
            out.append("%d Host fields" % len(m.get("host")))
        if m.get("connection") and m.get("connection")[0].lower() not in ("keep-alive", "close"):
            out.append("Connection: %s is forwarded" % m.get("connection"))
        if m.get("expect"):
            out.append("Expect is forwarded")
    elif m.status() >= 200 and "id" not in skip and len(m.get("x-larder-request-id")) != 1:
        out.append("%d x-larder-request-id fields" % len(m.get("x-larder-request-id")))
    return out


def first_line_fits(actual, wanted):
    if re.fullmatch(r"[0-9x]{3}(\|[0-9x]{3})*", wanted):
        m = re.match(r"HTTP/1\.[01] (\d{3})", actual)
        return bool(m) and any(re.fullmatch(w.replace("x", r"\d"), m.group(1)) for w in wanted.split("|"))
    if re.match(r"\d{3} ", wanted):
        return actual == "HTTP/1.1 " + wanted
    if wanted.startswith("/") and wanted.endswith("/") and " " not in wanted:
        return re.fullmatch(wanted[1:-1], actual) is not None
    return actual == wanted


def show(data, limit=600):
    text = bytes(data[:limit]).decode("latin-1")
    text = "".join(c if " " <= c <= "~" else {"\n": "<LF>", "\r": "<CR>"}.get(c, "<x%02X>" % ord(c)) for c in text)
    return text + ("... (%d bytes)" % len(data) if len(data) > limit else "")


def body_difference(actual, wanted):
    at = next((i for i, (a, b) in enumerate(zip(actual, wanted)) if a != b), min(len(actual), len(wanted)))
    frm = max(0, at - 40)
    return ["body differs at byte %d (got %d bytes, expected %d)" % (at, len(actual), len(wanted)),
            "  expected ..." + show(wanted[frm:at + 120]), "  got      ..." + show(actual[frm:at + 120])]


def compare(m, e, exact):
    """Differences between a Message and an Expectation, as lines for people."""
    out = []
    if e.first is not None and not first_line_fits(m.first, e.first):
        out += ["first line: expected %s" % e.first, "  got %s" % m.first]
    for name in dict.fromkeys(n.lower() for n, _, _ in e.fields):
        wanted = [(v, how) for n, v, how in e.fields if n.lower() == name]
        actual = m.get(name)
        if wanted[0][1] == "absent":
            if actual:
                out.append("field %s: expected to be absent, got %r" % (name, actual))
        elif len(wanted) != len(actual) or not all(
                (a == v if how == "equal" else re.fullmatch(v, a)) for a, (v, how) in zip(actual, wanted)):
            out.append("field %s: expected %r, got %r" % (name, [v for v, _ in wanted], actual))
    if exact:
        want = [(n, v) for n, v, how in e.fields if how != "absent"]
        if [n.lower() for n, _ in want] != [n.lower() for n, _ in m.fields]:
            out += ["fields (all, in order): expected %s" % [n for n, _ in want],
                    "  got %s" % [n for n, _ in m.fields]]
    if e.body is not None and bytes(m.body) != e.body:
        out += body_difference(bytes(m.body), e.body)
    for words in e.checks:
        out += check_body(m, words)
    if out:
        head = "\n".join([m.first] + ["%s: %s" % f for f in m.fields])
        out.append("the message was: " + show(head.encode("latin-1")))
        out.append("  body: " + show(m.body))
    return out


def check_body(m, words):
    body = bytes(m.body)
    kind, args = words[0], words[1:]
    if kind == "match" and not re.search(args[0].encode(), body, re.S):
        return ["body does not match /%s/" % args[0]]
    if kind == "no-match" and re.search(args[0].encode(), body, re.S):
        return ["body matches /%s/, which it must not" % args[0]]
    if kind == "empty" and body:
        return ["body is not empty"]
    if kind == "size" and len(body) != int(args[0]):
        return ["body has %d bytes, expected %s" % (len(body), args[0])]
    if kind == "json":
        return check_json(body, args[0], args[1] if len(args) > 1 else None)
    return []


def dig(value, path):
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return None, False
    return value, True


def check_json(body, path, wanted):
    try:
        value, found = dig(json.loads(body), path)
    except ValueError as why:
        return ["body is not JSON: %s" % why]
    if not found:
        return ["body has no %s" % path]
    text = value if isinstance(value, str) else json.dumps(value)
    if wanted is not None and not (re.search(wanted[1:-1], text) if wanted.startswith("/") else text == wanted):
        return ["body %s: expected %s, got %s" % (path, wanted, text)]
    return []
