#!/usr/bin/env python3
"""What shared memory costs a request: growing conversations, one request after the other, in turns with and without.

  shared_load.py LARDER BENCH_UPSTREAM REDIS_SERVER [--rounds 5] [--conversations 20] [--turns 12]

Prints CSV: one line a way and round. Ways: alone (no shared memory), shared (one larder, nobody else there), turns (two
larders, each request to the other one than the last). The system text holds a clock, so that facts are recalled.
Microseconds as the client sees them; CPU is that of all larders, and of the server, for each request.
"""
import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

TOOLS = [{"type": "function", "function": {"name": "tool_%d" % i, "description": "Does one thing. " * 12,
                                           "parameters": {"type": "object", "properties": {}}}} for i in range(12)]


def cpu_us(pid):
    """Of all its threads, by the scheduler's own account."""
    total = 0
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, thread), encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total // 1000


class Program:
    def __init__(self, command, pattern):
        self.p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.p.stdout:
            m = re.search(pattern, line)
            if m:
                self.found = m.group(1) if m.groups() else ""
                return
        sys.exit("%s did not start" % command[0])

    def end(self):
        self.p.terminate()
        self.p.wait()


class Client:
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.s = socket.create_connection((host, int(port)))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, body):
        head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer a-key\r\n"
                b"Content-Type: application/json\r\n")
        data = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        begin = time.perf_counter_ns()
        self.s.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.s.recv(65536)
        length = int(re.search(rb"(?i)content-length: (\d+)", got).group(1))
        left = length - (len(got) - got.index(b"\r\n\r\n") - 4)
        while left > 0:
            left -= len(self.s.recv(65536))
        took = time.perf_counter_ns() - begin
        if not got.startswith(b"HTTP/1.1 200"):
            sys.exit("answer: %r" % got[:200])
        return took // 1000


def bodies(seed, conversations, turns):
    text = "The quick brown fox jumps over the lazy dog while the rain falls on the plain. " * 6
    for c in range(conversations):
        messages = [{"role": "system", "content": ""}]
        for t in range(turns):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3000 + c * 40 + t))
            messages[0]["content"] = "You are a helpful assistant.\nCurrent time: %s\n%s" % (stamp, text * 4)
            messages.append({"role": "user", "content": "Question %d of %d-%d. %s" % (t, seed, c, text)})
            yield json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
            messages.append({"role": "assistant", "content": "Answer %d. %s" % (t, text)})


def measure(way, number, a, programs, clients):
    larders, server = programs
    before = [sum(cpu_us(p.p.pid) for p in larders), cpu_us(server.p.pid)]
    times = [clients[i % len(clients)].post(b) for i, b in enumerate(bodies(number, a.conversations, a.turns))]
    after = [sum(cpu_us(p.p.pid) for p in larders), cpu_us(server.p.pid)]
    times.sort()
    n = len(times)
    print("%d,%s,%d,%d,%d,%d,%.1f,%.1f" % (number, way, n, times[n // 2], times[n * 99 // 100], times[-1],
                                           (after[0] - before[0]) / n, (after[1] - before[1]) / n), flush=True)


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("larder")
    p.add_argument("upstream")
    p.add_argument("server")
    for name, value in (("--rounds", 5), ("--conversations", 20), ("--turns", 12)):
        p.add_argument(name, type=int, default=value)
    a = p.parse_args()
    folder = tempfile.mkdtemp(prefix="larder-bench-")
    started = []

    def start(command, pattern):
        started.append(Program(command, pattern))
        return started[-1]

    def larder(*options):
        return start([a.larder, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "off", "--log-access", "false", "--threads",
                      "1", "--upstream", "http://" + upstream.found] + list(options), r"event=listening .*?address=(\S+)")

    try:
        upstream = start([a.upstream, "--listen", "127.0.0.1:0"], r"(127\.0\.0\.1:\d+)")
        server = start([a.server, "--port", "0", "--unixsocket", folder + "/s", "--save", "", "--dir", folder], r"[Rr]eady to accept")
        options = ["--shared-url", "unix://" + folder + "/s"]
        ways = {"alone": [larder()], "shared": [larder(*options)], "turns": [larder(*options), larder(*options)]}
        clients = {way: [Client(l.found) for l in larders] for way, larders in ways.items()}
        print("round,way,requests,p50_us,p99_us,max_us,larder_cpu_us,server_cpu_us")
        for number in range(a.rounds * len(ways)):
            way = list(ways)[number % len(ways)]
            measure(way, number, a, (ways[way], server), clients[way])
    finally:
        for program in reversed(started):
            program.end()
        shutil.rmtree(folder, ignore_errors=True)


main()
