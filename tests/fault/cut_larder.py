#!/usr/bin/env python3
"""larder between clients and an upstream that both cut connections anywhere.

    cut_larder.py LARDER [EXCHANGES] [--seed N]

Clients send chats whole or cut (FIN or RST after any number of bytes, of the head or of the body), read the answer whole
or cut, keep connections or not. The upstream answers whole, or cuts after any number of bytes: of the request, of the
head, of the body, in a stream, plain, with and without a length. Afterwards nothing may be left: no active request, no
connection, no buffered byte, no descriptor; the journal has one record for every request with a complete head. Answers
that end in order are those that the upstream sent. A request in order, to an upstream in order, is always answered.
"""
import argparse
import functools
import json
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fault_rig as rig  # noqa: E402

CLIENTS = 12
HANG_S = 20
TEXTS = 20


def event_of(text, finish=None):
    return "data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {"content": text}, "finish_reason": finish}]}) + "\n\n"


def stream_of(words):
    usage = {"prompt_tokens": 9, "completion_tokens": len(words), "prompt_tokens_details": {"cached_tokens": 4}}
    return ("".join(event_of(w) for w in words) + event_of("", "stop") + "data: " + json.dumps(
        {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}) + "\n\ndata: [DONE]\n\n")


class Server:
    """The upstream. What it does with a request stands in the request's model: `KIND-CUT-HOW-LENGTH-N`."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.address = self.listener.getsockname()
        self.heads = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.guarded, args=(sock,), daemon=True).start()

    def guarded(self, sock):
        try:
            while self.serve(sock):
                pass
        except OSError:
            pass
        sock.close()

    def serve(self, sock):
        """One request; whether another may come."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))
        model = ""
        while len(body) < length:
            model = model_of(body)
            if model.startswith("early"):   # an upstream that goes before it has read the request
                end(sock, model.split("-")[2])
                return False
            piece = sock.recv(65536)
            if not piece:
                return False
            body += piece
        return self.answer(sock, model_of(body) or "whole-0-fin-chunked-3")

    def answer(self, sock, model):
        kind, cut, how, framing, n = model.split("-")[:5]
        if kind == "early":
            end(sock, how)
            return False
        data = answer_bytes(framing, int(n))
        if kind == "whole":
            send_in_pieces(sock, data, random.Random(model))
            return framing != "close"
        send_in_pieces(sock, data[:int(cut) % len(data)], random.Random(model))
        end(sock, how)
        return False


def end(sock, how):
    if how == "rst":
        rig.reset(sock)
    else:
        sock.shutdown(socket.SHUT_WR)
        sock.close()


def model_of(body):
    m = re.search(rb'"model": "([^"]+)"', body)
    return m.group(1).decode() if m else ""


def words_of(n):
    return ["word%d " % i for i in range(n)]


@functools.lru_cache
def plain_body(n):
    return json.dumps({"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
                       "message": {"role": "assistant", "content": "".join(words_of(n))}}],
                       "usage": {"prompt_tokens": 9, "completion_tokens": n}})


def answer_bytes(framing, n):
    """framing: stream (chunked events), chunked, length, close (until the end of the connection)."""
    if framing == "stream":
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        return (head + chunked(stream_of(words_of(n)), 37)).encode()
    body = plain_body(n)
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    if framing == "length":
        return (head + "Content-Length: %d\r\n\r\n" % len(body) + body).encode()
    if framing == "chunked":
        return (head + "Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 91)).encode()
    return (head + "Connection: close\r\n\r\n" + body).encode()


def chunked(text, size):
    return "".join("%x\r\n%s\r\n" % (len(text[i:i + size]), text[i:i + size])
                   for i in range(0, len(text), size)) + "0\r\n\r\n"


def send_in_pieces(sock, data, chance):
    at = 0
    while at < len(data):
        n = chance.choice((1, 7, 100, 5000, 100000))
        sock.sendall(data[at:at + n])
        at += n
        if chance.random() < 0.05:
            time.sleep(0.001)


class Plan:
    """One exchange: what the client does, and (in the model's name) what the upstream does."""

    def __init__(self, chance):
        r = chance.random
        self.framing = chance.choice(("stream", "stream", "chunked", "length", "close"))
        self.words = chance.choice((1, 3, 50, 50, 3000))
        if r() < 0.06 and self.framing != "stream":
            self.words = 40000   # more than larder holds back of an answer
        kind = "early" if r() < 0.05 else "cut" if r() < 0.4 else "whole"
        self.upstream_in_order = kind == "whole"
        cut = chance.choice((chance.randrange(200), chance.randrange(1 << 20)))
        self.model = "%s-%d-%s-%s-%d" % (kind, cut, chance.choice(("rst", "fin")), self.framing, self.words)
        pad = chance.choice((0, 100, 3000, 200000))
        self.body = rig.chat(self.model, "Hello", stream=self.framing == "stream", pad=pad)
        self.old = r() < 0.15   # HTTP/1.0: its answer may end with the connection
        self.keep = not self.old and r() < 0.6
        self.head = ("POST /v1/chat/completions HTTP/1.%d\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%s"
                     "Content-Length: %d\r\n\r\n" % (not self.old, "" if self.keep else "Connection: close\r\n",
                                                     len(self.body))).encode()
        self.data = self.head + self.body
        act = r()
        self.send = len(self.data) if act > 0.2 else chance.randrange(len(self.data)) if act > 0.05 else chance.randrange(
            len(self.head) + 20)
        self.read = None if r() < 0.7 else chance.choice((0, chance.randrange(300), chance.randrange(1 << 17)))
        self.how = chance.choice(("rst", "fin"))

    def text(self):
        return "%s%s (body of %d bytes), %d of %d bytes sent, reads %s, ends with %s" % (
            "HTTP/1.0: " if self.old else "", self.model, len(self.body), self.send, len(self.data), self.read, self.how)

    def head_is_complete(self):
        return self.send >= len(self.head)

    def may_be_short(self):
        """The upstream's answer ends with its connection, and that ended in order: nobody can see a cut."""
        return self.framing == "close" and "-fin-" in self.model

    def in_order(self):
        return self.upstream_in_order and self.send == len(self.data) and self.read is None


class Answer:
    """Reads one answer from a socket, as its framing says."""

    def __init__(self, sock):
        self.sock, self.data = sock, b""

    def fill(self):
        piece = self.sock.recv(65536)
        self.data += piece
        return bool(piece)

    def take(self):
        """(status, body, whole, may go on); whole: it ended in order."""
        while b"\r\n\r\n" not in self.data:
            if not self.fill():
                return 0, self.data, False, False
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status < 200:
            return self.take()
        close = re.search(rb"(?i)\nconnection: *close", head) is not None
        m = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
        if m:
            while len(self.data) < int(m.group(1)):
                if not self.fill():
                    return status, self.data, False, False
            return status, self.data, True, not close
        if re.search(rb"(?i)\ntransfer-encoding: *chunked", head):
            body, whole = self.dechunk()
            return status, body, whole, not close
        while self.fill():   # a reset is no end in order
            pass
        return status, self.data, True, False

    def line(self):
        while b"\r\n" not in self.data:
            if not self.fill():
                return None
        row, _, self.data = self.data.partition(b"\r\n")
        return row

    def dechunk(self):
        body = b""
        while True:
            row = self.line()
            if row is None:
                return body, False
            size = int(row, 16)
            while len(self.data) < size + 2:
                if not self.fill():
                    return body, False
            body += self.data[:size]
            self.data = self.data[size + 2:]
            if size == 0:
                return body, True


class Client:
    def __init__(self, address, chance, count):
        self.address, self.chance, self.count = address, chance, count
        self.sock = None
        self.heads = self.whole = self.errors = self.cut = self.left = 0

    def run(self):
        for _ in range(self.count):
            plan = Plan(self.chance)
            try:
                self.one(plan)
            except TimeoutError:
                raise rig.Failed("no end after %d s: %s" % (HANG_S, plan.text())) from None
            except ConnectionError as why:
                rig.check(not plan.in_order(), "a request in order met %r: %s", why, plan.text())
                self.cut += 1
                self.drop()
        self.drop()

    def drop(self):
        if self.sock:
            self.sock.close()
        self.sock = None

    def one(self, plan):
        if self.sock is None:
            self.sock = socket.create_connection(self.address, timeout=HANG_S)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if plan.head_is_complete():
            self.heads += 1
        # Cut by larder while it is still sent: an early answer may wait all the same.
        try:
            send_in_pieces(self.sock, plan.data[:plan.send], self.chance)
        except ConnectionError:
            rig.check(not plan.in_order(), "larder cut a request in order: %s", plan.text())
        if plan.send < len(plan.data):
            self.leave(plan)
            return
        if plan.read is not None:
            self.read_some(plan.read)
            self.leave(plan)
            return
        status, body, whole, more = Answer(self.sock).take()
        self.look(plan, status, body, whole)
        if not (whole and more and plan.keep):
            self.drop()

    def read_some(self, count):
        """At most so many bytes; fewer where no more come for a moment."""
        self.sock.settimeout(0.02)
        while count > 0:
            try:
                piece = self.sock.recv(min(count, 65536))
            except TimeoutError:
                return
            if not piece:
                return
            count -= len(piece)

    def leave(self, plan):
        end(self.sock, plan.how)
        self.sock = None
        self.left += 1

    def look(self, plan, status, body, whole):
        if plan.upstream_in_order:
            rig.check(status == 200 and whole, "upstream in order, answer %d, whole: %s: %r", status, whole, body[-300:])
        if not whole:
            self.cut += 1
        elif status != 200:
            rig.check(status in (502, 504) and "message" in json.loads(body)["error"], "status %d: %r", status, body)
            self.errors += 1
        elif plan.framing == "stream":
            wanted = stream_of(words_of(plan.words)).encode().replace(usage_event(plan.words), b"")
            # cut behind the last word: larder may end it, everything was said
            if plan.old and not plan.upstream_in_order and b'"upstream_cut"' in body[-200:]:
                self.cut += 1   # it says so itself
                return
            rig.check(body == wanted or wanted.startswith(body) and b'"stop"' in body, "another stream: %s: %r",
                      plan.text(), body[-500:])
            self.whole += 1
        else:
            rig.check(body == plain_body(plan.words).encode() or
                      plan.may_be_short() and plain_body(plan.words).encode().startswith(body),
                      "another answer: %s: %r", plan.text(), body[-300:])
            self.whole += 1


def usage_event(n):
    return [e for e in stream_of(words_of(n)).encode().split(b"\n\n") if b'"usage"' in e][0] + b"\n\n"


CONFIG = """listen: 127.0.0.1:0
threads: 2
admin: {listen: 127.0.0.1:0}
log: {access: false, level: info}
upstreams:
  - {name: u, url: 'http://%s:%d', profile: openai, pool: {idle: 300ms}}
store: {dir: %s}
"""


def play(larder, seed, count):
    clients = [Client(larder.address, random.Random("%d %d" % (seed, i)), count // CLIENTS) for i in range(CLIENTS)]
    failures = []

    def run(client):
        try:
            client.run()
        except (rig.Failed, ValueError, OSError) as why:
            failures.append("%s" % why if isinstance(why, rig.Failed) else repr(why))

    threads = [threading.Thread(target=run, args=(c,)) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rig.check(not failures, "%s\nlarder (alive: %s) says:\n%s", failures[:2], larder.alive(), larder.text(20))
    return clients


def main():
    p = argparse.ArgumentParser()
    p.add_argument("larder")
    p.add_argument("exchanges", nargs="?", type=int, default=2000)
    p.add_argument("--seed", type=int, default=int(time.time()))
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder, rig.Cleanup() as cleanup:
        server = Server()
        config, store = os.path.join(folder, "larder.yaml"), os.path.join(folder, "store")
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG % (server.address + (store,)))
        larder = cleanup.own(rig.Larder(os.path.abspath(o.larder), "-c", config)).wait_up()
        try:
            play_all(o, larder, store)
        except rig.Failed as why:
            raise rig.Failed("seed %d: %s" % (o.seed, why)) from None


def play_all(o, larder, store):
    zero = ("requests_active", "client_connections", "buffered_bytes", "upstream_connections")

    def nothing_left():
        return all(larder.metric(n) == 0 for n in zero)

    warm = play(larder, o.seed + 1, CLIENTS * 2)   # threads and tables that stay are made now
    rig.wait_until(nothing_left, "nothing left after the first exchanges")
    fds = larder.fd_count()
    clients = play(larder, o.seed, o.exchanges)
    rig.wait_until(nothing_left, lambda: "nothing left: %s" % {n: larder.metric(n) for n in zero})
    rig.wait_until(lambda: larder.fd_count() <= fds, lambda: "%d descriptors, %d before" % (larder.fd_count(), fds))
    heads = sum(c.heads for c in warm + clients)
    total = larder.metric("requests_total")
    larder.end_well()
    kept = rig.records(larder.binary, store)
    rig.check(len(kept) == total == heads, "%d complete heads were sent, %d requests counted, %d records", heads, total,
              len(kept))
    endings = {}
    for r in kept:
        endings[r["ending"]] = endings.get(r["ending"], 0) + 1
    print("seed %d: %d heads, as many records: %s; %d answers whole, %d errors, %d cut, %d left by the client; "
          "%d descriptors before and after" % (o.seed, heads, endings, sum(c.whole for c in clients),
                                               sum(c.errors for c in clients), sum(c.cut for c in clients),
                                               sum(c.left for c in clients), fds))


if __name__ == "__main__":
    rig.main(main)
