"""Plays both ends of an exchange: the client in the caller's thread, the upstream in one thread a connection.

A Run is one pass through one exchange with one way of cutting the bytes. Differences from what the file expects are
collected in Run.failures; nothing here raises for them. Every wait has a limit.
"""
import fcntl
import random
import re
import signal
import socket
import ssl
import struct
import termios
import threading
import time

import wire_http
import wire_text

WAIT_S = 10.0


class Cutter:
    """Sends bytes whole, byte by byte, at random places, or once cut at a given place of a marked region."""

    def __init__(self, how, seed=0):
        self.how = how
        self.random = random.Random(seed)

    def points(self, data, marks):
        n = len(data)
        if self.how == "bytes":
            ends = set(range(1, min(n, 1200))) | set(range(max(1, n - 40), n))
            return sorted(ends)
        if self.how == "random" and n > 1:
            return sorted({self.random.randrange(1, n) for _ in range(self.random.randrange(1, 7))})
        if isinstance(self.how, int) and len(marks) == 2:
            return [marks[0] + self.how]
        return []

    def send(self, sock, data):
        marks, bare = [], data
        while b"\0CUT\0" in bare:
            marks.append(bare.index(b"\0CUT\0"))
            bare = bare.replace(b"\0CUT\0", b"", 1)
        at = 0
        for point in self.points(bare, marks) + [len(bare)]:
            if point <= at:
                continue
            sock.sendall(bare[at:point])
            at = point
            if at < len(bare):
                time.sleep(0.00002 if self.how == "bytes" else 0.0015)


def abort(sock):
    """Close with a reset, once the peer's kernel has all that was sent: a reset throws away what has not left."""
    end = time.monotonic() + 0.3
    while struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0] and time.monotonic() < end:
        time.sleep(0.001)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Run:
    def __init__(self, exchange, values, name, cutters, skip=()):
        self.exchange = exchange
        self.values = values
        self.name = name
        self.client_cut, self.upstream_cut = cutters
        self.failures = []
        self.lock = threading.Lock()
        self.events = {}
        self.turns = []
        self.accepts = []
        self.taken = 0
        self.connections = 0
        self.unfinished = 0
        self.over = False
        self.blocks, self.same = {}, {}
        self.received = bytearray()
        self.skip = set(exchange.option("checks").replace("no-", "").split()) | set(skip)
        self.expand_blocks()
        self.collect_turns()

    def expand_blocks(self):
        """Every send block, and for every expect block the body that the other side sent last before it."""
        last = {"client": b"", "upstream": b""}
        for s in self.exchange.sections:
            if s.words[1:2] in (["sends"], ["answers"]):
                self.blocks[id(s)] = block = wire_text.send_block(s, self.values)
                last[s.words[0]] = last[s.words[0]] + block.body if s.has("raw") else block.body
            elif s.words[1:2] == ["expects"]:
                self.same[id(s)] = last["upstream" if s.words[0] == "client" else "client"]

    def fail(self, where, lines):
        with self.lock:
            for line in lines if isinstance(lines, list) else [lines]:
                self.failures.append("%s: %s" % (where, line) if not line.startswith("  ") else line)

    def event(self, name):
        with self.lock:
            return self.events.setdefault(name, threading.Event())

    def collect_turns(self):
        turn = None
        for s in self.exchange.sections:
            if s.words[0] != "upstream":
                continue
            if s.words[1] in ("expects", "accepts") or turn is None:
                turn = []
                (self.accepts if s.words[1] == "accepts" else self.turns).append(turn)
            turn.append(s)

    def take_turn(self):
        with self.lock:
            if self.taken >= len(self.turns):
                return None, 0
            self.taken += 1
            self.unfinished += 1
            return self.turns[self.taken - 1], self.taken

    def take_accept(self):
        with self.lock:
            self.connections += 1
            return (self.accepts.pop(0) if self.accepts else None), self.connections

    def finish_turn(self):
        with self.lock:
            self.unfinished -= 1


def where(section, run):
    return "line %d (%s)" % (section.line, " ".join(section.words))


class End:
    """What the two sides have in common: a socket, a reader, and the directives."""

    def __init__(self, run, sock, kind, cut):
        self.run, self.sock, self.cut = run, sock, cut
        self.reader = wire_http.Reader(kind)
        self.closed = None   # "eof" or "reset" once the peer has closed
        self.may_close = True   # the last answer, or the file, says so

    def send(self, data):
        try:
            self.cut.send(self.sock, data)
            return True
        except (OSError, ValueError):
            return False   # what follows in the file says whether that was allowed

    def pull(self, limit_s):
        """Takes what has come into the reader. False if nothing came in time or the peer closed."""
        if self.closed:
            return False
        try:
            self.sock.settimeout(max(limit_s, 0.001))
            data = self.sock.recv(262144)
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except (OSError, ValueError):
            self.closed = "reset"
            self.reader.eof(False)
            return False
        finally:
            try:
                self.sock.settimeout(WAIT_S)
            except OSError:
                pass
        if not data:
            self.closed = "eof"
            self.reader.eof(True)
            return False
        if len(self.run.received) < 4000000 and self.reader.kind == "response":
            self.run.received += data
        self.reader.feed(data)
        return True

    def pull_until(self, done, limit_s):
        end = time.monotonic() + limit_s
        while not done():
            if self.closed or time.monotonic() >= end:
                return False
            self.pull(end - time.monotonic())
        return True

    def perform(self, ops, section):
        for kind, value in ops:
            if kind == "bytes":
                if not self.send(value):
                    return False
            elif not self.do(value, section):
                return False
        return True

    def do(self, words, section):
        name = "do_" + wire_text.expand(words[0], self.run.values).decode().replace("-", "_")
        if not hasattr(self, name):
            raise wire_text.WireError("%s line %d: unknown directive %%%s" % (
                self.run.exchange.path, section.line, words[0]))
        return getattr(self, name)(words[1:], section) is not False

    def do_freeze(self, *_):
        """Stops larder (SIGSTOP) until %thaw: what then comes, it finds all at once."""
        self.run.group.process.send_signal(signal.SIGSTOP)

    def do_thaw(self, *_):
        self.run.group.process.send_signal(signal.SIGCONT)

    def do_term(self, *_):
        """SIGTERM: larder is to end what is under way and then itself (with `checks: no-alive`)."""
        self.run.group.process.send_signal(signal.SIGTERM)

    def do_hosts(self, args, _):
        """Another /etc/hosts for larder; needs a `hosts` section."""
        self.run.group.write_hosts(wire_text.expand(args[0], self.run.values).decode())

    def do_until(self, args, section):
        """Waits until a line of larder's metrics matches."""
        end = time.monotonic() + WAIT_S
        pattern = wire_text.insert(args[0], self.run.values)
        while not re.search(pattern, self.run.group.metrics(), re.M):
            if time.monotonic() > end:
                self.run.fail(where(section, self.run), "the metrics never had /%s/" % pattern)
                return False
            time.sleep(0.005)
        return True

    def do_pause(self, args, _):
        time.sleep(int(args[0]) / 1000)

    def do_wait(self, args, section):
        if not self.run.event(args[0]).wait(WAIT_S):
            self.run.fail(where(section, self.run), "waited in vain for '%s'" % args[0])
            return False
        return True

    def do_signal(self, args, _):
        self.run.event(args[0]).set()

    def do_shutdown(self, _, section):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as why:
            self.run.fail(where(section, self.run), "shutdown: %s" % why)

    def do_close(self, *_):
        self.sock.close()
        self.closed = "self"

    def do_reset(self, *_):
        abort(self.sock)
        self.closed = "self"

    def do_gone(self, args, section):
        """The peer must close (either way) in time; bytes before that do not matter."""
        self.may_close = True
        limit = int(args[0]) / 1000 if args else 2.0
        self.pull_until(lambda: False, limit)
        if not self.closed:
            self.run.fail(where(section, self.run), "the connection was not closed within %g s" % limit)
            return False
        return True

    def do_closed(self, args, section):
        """The peer must close without another byte."""
        before = len(self.reader.data) + len(self.reader.message.body)
        ok = self.do_gone(args, section)
        if len(self.reader.data) + len(self.reader.message.body) != before or self.reader.message.head_done:
            self.run.fail(where(section, self.run), "bytes came before the close: " + wire_http.show(self.reader.data))
        return ok

    def do_open(self, args, section):
        """Nothing may come and nothing may close for so long."""
        limit = int(args[0]) / 1000 if args else 0.1
        if self.pull(limit) or self.closed:
            self.run.fail(where(section, self.run), "expected silence for %g s, got %s" % (
                limit, self.closed or wire_http.show(self.reader.data or self.reader.message.body)))

    def do_flood(self, args, section):
        """Sends TEXT again and again up to N bytes, as fast as it is taken."""
        self.pour(int(args[0]), wire_text.expand(args[1], self.run.values), WAIT_S)

    def do_stalls(self, args, section):
        """As flood, but the peer must stop taking bytes before N."""
        sent = self.pour(int(args[0]), wire_text.expand(args[1], self.run.values), 0.5)
        if sent >= int(args[0]):
            self.run.fail(where(section, self.run), "the peer took all %s bytes: it does not push back" % args[0])

    def pour(self, total, text, limit_s):
        piece = text * max(1, 65536 // len(text))
        sent = 0
        self.sock.settimeout(limit_s)
        try:
            while sent < total:
                rest = piece
                while rest:
                    n = self.sock.send(rest)
                    rest = rest[n:]
                    sent += n
        except OSError:
            pass
        return sent


class Client(End):
    def __init__(self, run, address):
        sock = socket.create_connection(address, timeout=WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(run, sock, "response", run.client_cut)
        self.sent_10 = False

    def sends(self, section):
        block = self.run.blocks[id(section)]
        self.sent_10 = b"HTTP/1.0\r\n" in block.wire()[:4096]
        self.perform(block.ops, section)

    def expects(self, section):
        run, at = self.run, where(section, self.run)
        e = wire_text.expect_block(section, run.values, run.same[id(section)])
        started = time.monotonic()
        self.reader.to_head = section.has("head")
        self.reader.run()

        def done():
            while section.has("final") and self.reader.message.complete and self.reader.message.status() < 200:
                self.reader.next()   # an interim answer that may come or not
                self.reader.run()
            return self.reader.message.complete or self.reader.message.fault

        self.pull_until(done, int(section.value("within", WAIT_S * 1000)) / 1000)
        took_ms = (time.monotonic() - started) * 1000
        m, end = self.reader.message, next((c[1] for c in e.checks if c[0] == "end"), "clean")
        if not m.head_done:
            run.fail(at, m.fault or "no answer (%s); bytes so far: %s" % (
                self.closed or "still open", wire_http.show(self.reader.data)))
            return
        if end == "clean" and not m.complete:
            run.fail(at, "the answer did not end (%s, framing %s)" % (
                m.fault or self.closed or "still open", m.framing))
        if end == "cut" and (m.complete or not self.closed):
            run.fail(at, "the answer must be cut visibly, but it %s" % (
                "ended cleanly" if m.complete else "stays open"))
        if end == "honest" and m.complete and m.status() == 200:
            run.fail(at, "a cut answer ended as if it were whole")
        for words in e.checks:
            if words[0] == "not-before" and took_ms < int(words[1]):
                run.fail(at, "answered after %d ms, expected not before %s" % (took_ms, words[1]))
            if words[0] == "framing" and m.framing != words[1]:
                run.fail(at, "framing is %s, expected %s" % (m.framing, words[1]))
        differences = wire_http.compare(m, e, section.has("exact")) + wire_http.invariants(m, "response", run.skip)
        if differences:
            run.fail(at, differences)
        self.may_close = ("close" in ",".join(m.get("connection")).lower() or m.framing == "close" or not m.complete
                          or self.sent_10)
        if not self.closed and not m.fault:
            self.reader.next()
            self.reader.run()
        for words in e.checks:
            if words[0] == "then":
                self.then(words[1], section, m)

    def then(self, what, section, m):
        if what in ("closed", "fin") and not self.may_close:
            self.run.fail(where(section, self.run), "the answer does not say Connection: close")
        if what == "open":
            self.do_open(["60"], section)
        elif what in ("closed", "fin") and not self.closed:
            self.do_closed([], section)
        if what == "fin" and self.closed == "reset":
            self.run.fail(where(section, self.run), "the connection was reset, expected an orderly close")

    def waits_for(self, section):
        text = wire_text.expand(section.words[3], self.run.values)
        seen = lambda: text in bytes(self.reader.message.body) + bytes(self.reader.data)
        if not self.pull_until(seen, int(section.value("within", WAIT_S * 1000)) / 1000):
            self.run.fail(where(section, self.run), "did not come; have %s" % wire_http.show(
                bytes(self.reader.message.body) + bytes(self.reader.data)))

    def finish(self):
        if not self.closed:
            self.pull(0.001)
        rest = bytes(self.reader.data) or self.reader.message.first.encode() + bytes(self.reader.message.body)
        if rest and not self.reader.message.fault and not (self.reader.message.complete or self.closed):
            self.run.fail("at the end", "bytes nobody expected: " + wire_http.show(rest))
        if self.closed in ("eof", "reset") and not self.may_close:
            self.run.fail("at the end", "the connection was closed, but the last answer does not say so")
        try:
            self.sock.close()
        except OSError:
            pass


def play_client(run, address):
    ends = {}
    for s in run.exchange.sections:
        if s.words[0] != "client":
            continue
        number = s.value("on", "1")
        if number not in ends or s.words[1:2] == ["connects"]:
            if number in ends:
                ends[number].finish()
            ends[number] = Client(run, address)
        end = ends[number]
        if s.words[1] == "sends":
            end.sends(s)
        elif s.words[1] == "expects":
            end.expects(s)
        elif s.words[1] == "waits":
            end.waits_for(s)
        elif s.words[1] == "does":
            for row in s.lines():
                if row.startswith("%"):
                    end.do(wire_text.shlex.split(row[1:]), s)
        elif s.words[1] != "connects":
            raise wire_text.WireError("%s:%d: unknown section" % (run.exchange.path, s.line))
    return ends


class UpstreamEnd(End):
    def __init__(self, server, run, sock, number):
        super().__init__(run, sock, "request", run.upstream_cut)
        self.server, self.number = server, number
        self.sni = self.alpn = None

    def serve(self):
        """One connection: turn after turn, until the peer or the script closes it."""
        while not self.closed:
            while not self.reader.message.head_done and not self.closed and not self.reader.message.fault:
                self.pull(30)
            m = self.reader.message
            if self.closed and not m.head_done:
                return
            turn, index = self.run.take_turn()
            if turn is None:
                self.run.fail("upstream", "a request that the file does not expect: %s %s" % (m.first, m.fault or ""))
                self.sock.close()
                return
            try:
                alive = self.play(turn, index)
            finally:
                self.run.event("answered-%d" % index).set()
                self.run.finish_turn()
            if not alive:
                return

    def play(self, turn, index):
        m = self.reader.message
        head_only = turn[0].has("head-only")
        if not head_only:
            self.pull_until(lambda: m.complete or m.fault, WAIT_S)
        self.run.event("request-%d" % index).set()
        if turn[0].words[1] == "expects":
            self.check(turn[0], m, head_only)
            turn = turn[1:]
        for s in turn:
            if not self.step(s):
                return False
        if not m.complete:
            return False
        self.reader.next()
        self.reader.run()
        return True

    def check(self, section, m, head_only):
        run, at = self.run, where(section, self.run)
        e = wire_text.expect_block(section, run.values, run.same[id(section)])
        found = wire_http.compare(m, e, section.has("exact")) + wire_http.invariants(m, "request", run.skip)
        if not m.complete and not head_only:
            found.append("the request did not end (%s)" % (self.closed or "still open"))
        wanted = section.value("connection")
        if wanted and int(wanted) != self.number:
            found.append("came on connection %d, expected on %s" % (self.number, wanted))
        for words in e.checks:
            if words[0] == "sni" and (self.sni or "none") != words[1]:
                found.append("SNI is %s, expected %s" % (self.sni or "none", words[1]))
            if words[0] == "alpn" and (self.alpn or "none") not in words[1:]:
                found.append("ALPN is %s, expected one of %s" % (self.alpn or "none", words[1:]))
        if found:
            run.fail(at, found)

    def step(self, s):
        if s.words[1] == "answers":
            ok = self.perform(self.run.blocks[id(s)].ops, s)
        else:
            ok = all(self.do(wire_text.shlex.split(r[1:]), s) for r in s.lines() if r.startswith("%"))
        return ok and not self.closed

    def do_drain(self, _, section):
        """Reads the rest of the request after `head-only`."""
        m = self.reader.message
        self.pull_until(lambda: m.complete or m.fault, WAIT_S)
        if not m.complete:
            self.run.fail(where(section, self.run), "the request did not end (%s)" % (
                self.closed or m.fault or "still open"))


class Upstream:
    """The fake upstream of one larder process. `run` is whose turns are played now."""

    def __init__(self, family, tls=None):
        self.run = None
        self.tls = tls
        self.ends = []
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self.listener.listen(256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            run = self.run
            if run is None or run.over:
                sock.close()
                continue
            turn, number = run.take_accept()
            end = UpstreamEnd(self, run, sock, number)
            end.thread = threading.Thread(target=self.attend, args=(end, turn), daemon=True)
            self.ends.append(end)
            end.thread.start()

    def attend(self, end, turn):
        try:
            end.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.sock.settimeout(WAIT_S)
            before_tls = turn and turn[0].has("plain")
            if before_tls and not all(end.step(s) for s in turn):
                return
            if self.tls:
                end.sock = self.tls.wrap(end)
            if turn and not before_tls and not all(end.step(s) for s in turn):
                return
            end.serve()
        except (OSError, ValueError, ssl.SSLError):
            pass
        except wire_text.WireError as why:
            end.run.fail("file", str(why))
        finally:
            try:
                end.sock.close()
            except OSError:
                pass

    def end_run(self, run):
        """Waits for the scripts, closes what is open as an upstream does, and says what was left over."""
        end = time.monotonic() + WAIT_S
        missing = lambda: any(not t[0].has("optional") for t in run.turns[run.taken:])
        while time.monotonic() < end and not run.failures and (run.unfinished or missing()):
            time.sleep(0.002)
        if missing():
            run.fail(where(run.turns[run.taken][0], run), "the upstream was not asked")
        elif run.unfinished and not run.failures:
            run.fail("upstream", "the script did not come to its end")
        run.over = True
        ends, self.ends = self.ends, []
        for e in ends:
            try:
                socket.socket.shutdown(e.sock, socket.SHUT_WR)   # under TLS, too: the bytes stay records
            except OSError:
                pass
        for e in ends:
            e.thread.join(1.0)
            if e.thread.is_alive():
                try:
                    e.sock.close()
                except OSError:
                    pass

    def close(self):
        self.listener.close()
