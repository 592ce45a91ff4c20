"""What the fault and crash tests share: the real larder, the demo upstream, metrics, the journal, patient checks.

Everything listens on free loopback ports. Programs are ended by their own process ids. A Larder whose log holds a
sanitizer's report, or that ends otherwise than asked, fails the test.
"""
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

START_S = 30
SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|assertion .*failed", re.I)


class Failed(Exception):
    pass


def check(fact, text, *values):
    if not fact:
        raise Failed(text % values if values else text)


def wait_until(get, what, seconds=15.0):
    """Calls get() until it is true; returns its value. Raises with the last value otherwise."""
    limit = time.monotonic() + seconds
    while True:
        value = get()
        if value:
            return value
        if time.monotonic() > limit:
            raise Failed("after %.0f s still not so: %s" % (seconds, what() if callable(what) else what))
        time.sleep(0.02)


def sanitizer_runtime(binary):
    """The shared runtime that must be loaded before a preloaded library, as a list of none or one."""
    done = subprocess.run(["ldd", binary], capture_output=True, text=True, timeout=20, check=False)
    return re.findall(r"=> (\S*(?:lib|clang_rt\.)[at]san\S*)", done.stdout)


def is_sanitized(binary):
    with open(binary, "rb") as f:
        data = f.read()
    return b"__asan_init" in data or b"__tsan_init" in data


class Process:
    """A child whose stderr (and stdout, with `merged`) is collected line by line."""

    def __init__(self, command, env=None, preexec=None, merged=False):
        self.lines, self.lock = [], threading.Lock()
        # pylint: disable-next=subprocess-popen-preexec-fn
        self.p = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=preexec, env=env,
                                  stdout=subprocess.PIPE if merged else subprocess.DEVNULL,
                                  stderr=subprocess.STDOUT if merged else subprocess.PIPE)
        self.stream = self.p.stdout if merged else self.p.stderr
        self.reader = threading.Thread(target=self.collect, daemon=True)
        self.reader.start()

    def collect(self):
        for row in self.stream:
            with self.lock:
                self.lines.append(row.decode("utf-8", "replace").rstrip("\n"))

    def text(self, last=None):
        with self.lock:
            return "\n".join(self.lines[-last:] if last else self.lines)

    def find(self, pattern):
        def look():
            m = re.search(pattern, self.text())
            if m:
                return m
            check(self.p.poll() is None, "it ended with %s before it was up:\n%s", self.p.poll(), self.text())
            return None
        return wait_until(look, lambda: "no /%s/ in:\n%s" % (pattern, self.text()), START_S)

    def alive(self):
        return self.p.poll() is None

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.reader.join(5)

    def stop(self, seconds=20):
        """SIGTERM, a bounded wait; the exit status."""
        if self.alive():
            self.p.send_signal(signal.SIGTERM)
        try:
            self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("it did not end within %d s of SIGTERM; its log:\n%s" % (seconds, self.text(30))) from None
        self.reader.join(5)
        return self.p.returncode


def address_of(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


class Demo(Process):
    def __init__(self, binary, *options):
        super().__init__([binary, "--listen", "127.0.0.1:0"] + list(options), merged=True)
        self.address = address_of(self.find(r"listening on (\S+)").group(1))
        self.url = "http://%s:%d" % self.address

    def entries(self, first):
        """The requests received since number `first`, and the number of the next."""
        status, data = get(self.address, "/__log?from=%d" % first)
        check(status == 200, "the demo upstream's log: status %d", status)
        log = json.loads(data)
        return log["entries"], log["count"]


class Larder(Process):
    """larder serve with these options; `wrap` is a command in front of it, `preload` libraries for it alone."""

    def __init__(self, binary, *options, wrap=(), preload=(), env=None, preexec=None):
        self.binary = binary
        full = dict(os.environ, **(env or {}))
        if preload:
            full["LD_PRELOAD"] = " ".join(sanitizer_runtime(binary) + list(preload))
        command = list(wrap) + [binary, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        super().__init__(command + list(options), env=full, preexec=preexec)

    def wait_up(self):
        self.admin = address_of(self.find(r"event=admin_listening .*?address=(\S+)").group(1))
        self.address = address_of(self.find(r"event=listening .*?address=(\S+)").group(1))
        return self

    def metrics(self):
        status, data = get(self.admin, "/metrics")
        check(status == 200, "/metrics: status %d", status)
        out = {}
        for row in data.decode().splitlines():
            if row and row[0] != "#":
                name, _, value = row.rpartition(" ")
                out[name] = float(value)
        return out

    def metric(self, name):
        return self.metrics()["larder_" + name]

    def fd_count(self):
        return len(os.listdir("/proc/%d/fd" % self.p.pid))

    def limit_file_bytes(self, soft):
        _, hard = resource.prlimit(self.p.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.p.pid, resource.RLIMIT_FSIZE, (soft, hard))

    def end_well(self, seconds=20):
        """It must be alive, end with 0 on SIGTERM, and have nothing to report."""
        check(self.alive(), "larder died with %s; its log:\n%s", self.p.poll(), self.text(40))
        code = self.stop(seconds)
        check(code == 0, "larder ended with %d on SIGTERM; its log:\n%s", code, self.text(60))
        m = SANITIZER.search(self.text())
        check(not m, "a report in larder's log:\n%s", self.text()[max(0, m.start() - 300):][:4000] if m else "")


def get(address, path):
    c = http.client.HTTPConnection(*address, timeout=60) # the log of a slow build on a busy machine
    try:
        c.request("GET", path, headers={"Connection": "close"})
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def export(binary, store):
    """The journal's lines as bytes. A damaged record, or a store that cannot be opened, fails."""
    done = subprocess.run([binary, "export", "--store", store, "--format", "jsonl"], capture_output=True, timeout=120,
                          check=False)
    check(done.returncode == 0 and not done.stderr, "larder export: exit %d, %s", done.returncode,
          done.stderr.decode("utf-8", "replace")[:1000])
    return done.stdout.splitlines()


def records(binary, store):
    return [json.loads(row) for row in export(binary, store)]


def reset(sock):
    """Ends the connection with RST."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    sock.close()


def chat(model, text="Hello", stream=False, pad=0, system=None):
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text + "x" * pad})
    body = {"model": model, "messages": messages}
    if stream:
        body["stream"] = True
    return json.dumps(body).encode()


class Cleanup:
    """Ends every process and removes every folder that was given to it, whatever happens."""

    def __init__(self):
        self.processes, self.folders = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            if p.alive():
                p.kill()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def own(self, process):
        self.processes.append(process)
        return process


def main(run):
    """Runs a test's body; a failure is printed and makes the exit status 1."""
    try:
        run()
    except Failed as why:
        print("FAILED: %s" % why, flush=True)
        sys.exit(1)
