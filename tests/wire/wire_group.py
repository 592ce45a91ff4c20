"""One larder process and its fake upstream, shared by the exchanges that want the same configuration.

Also the checks that need the whole process: an orderly end on SIGTERM, no sanitizer report, the journal's records, the
metrics, the log, and that no secret is in any of them or in the store's files.
"""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import wire_http
import wire_play
import wire_text

BASE = """listen: <LISTEN>
threads: 1
admin: {listen: 127.0.0.1:0}
upstreams:
  - name: fake
    url: <UPSTREAM_URL>
    profile: generic
    retry: {attempts: 1}
    breaker: {open_max: 0}
canon: {mode: off}
store: {dir: <STORE>}
"""
START_S = 15


def top_blocks(text):
    """Top-level YAML keys with their text, in order. Enough for files that are ours."""
    out, name = {}, None
    for row in text.split("\n"):
        m = re.match(r"([A-Za-z_]+):", row)
        if m:
            name = m.group(1)
            out[name] = ""
        if name and row.strip():
            out[name] += row + "\n"
    return out


def config_of(x, variant):
    """The whole configuration, escapes not yet expanded but for the variant's names."""
    blocks = top_blocks(BASE)
    for s in x.sections:
        if s.words[0] == "config":
            blocks.update(top_blocks("\n".join(s.lines())))
    text = "".join(blocks.values())
    for name, value in variant.items():
        text = text.replace("<%s>" % name, value)
    return text


def hosts_of(x):
    return "\n".join("\n".join(s.lines()) for s in x.sections if s.words[0] == "hosts")


def group_key(x, variant):
    return (config_of(x, variant), hosts_of(x), tuple(x.options.get("env", [])), x.option("tls"), x.option("listen"))


class Certificates:
    """A throw-away authority and one certificate a name, made by the openssl command."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.ca = os.path.join(folder, "ca.pem")
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                     "-subj", "/CN=wire test authority", "-keyout", self.at("ca.key"), "-out", self.ca)

    def at(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *args):
        subprocess.run(["openssl"] + list(args), check=True, capture_output=True, timeout=30)

    def of(self, name):
        crt, key, ext = self.at(name + ".crt"), self.at(name + ".key"), self.at(name + ".ext")
        if not os.path.exists(crt):
            kind = "IP" if re.fullmatch(r"[0-9.]+|.*:.*", name) else "DNS"
            with open(ext, "w", encoding="ascii") as f:
                f.write("subjectAltName=%s:%s\n" % (kind, name))
            self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                         "-subj", "/CN=" + name, "-keyout", key, "-out", self.at(name + ".csr"))
            self.openssl("x509", "-req", "-in", self.at(name + ".csr"), "-CA", self.ca, "-CAkey", self.at("ca.key"),
                         "-CAcreateserial", "-days", "2", "-extfile", ext, "-out", crt)
        return crt, key

    def context(self, name):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with self.lock:
            c.load_cert_chain(*self.of(name))
        return c


class Tls:
    """`tls: NAME NAME ... [alpn=a,b]`: the first name's certificate is the default, the others go by SNI."""

    def __init__(self, certificates, words):
        self.alpn = next((w[5:].split(",") for w in words if w.startswith("alpn=")), None)
        names = [w for w in words if "=" not in w]
        self.contexts = {n: certificates.context(n) for n in names}
        self.first = self.contexts[names[0]]
        self.local = threading.local()
        for c in self.contexts.values():
            if self.alpn:
                c.set_alpn_protocols(self.alpn)
        self.first.sni_callback = self.choose

    def choose(self, sock, name, _):
        self.local.sni = name
        if name in self.contexts:
            sock.context = self.contexts[name]

    def wrap(self, end):
        self.local.sni = None
        sock = self.first.wrap_socket(end.sock, server_side=True)
        end.sni, end.alpn = self.local.sni, sock.selected_alpn_protocol()
        return sock


class Group:
    def __init__(self, larder, exchange, variant, certificates):
        self.larder, self.x = larder, exchange
        self.config = config_of(exchange, variant)
        self.folder = tempfile.mkdtemp(prefix="larder-wire-")
        self.hosts = hosts_of(exchange)
        self.log, self.log_lock = [], threading.Lock()
        self.runs = []
        self.process = None
        tls = Tls(certificates(), exchange.option("tls").split()) if exchange.option("tls") else None
        family = socket.AF_INET6 if exchange.option("listen") == "ipv6" else socket.AF_INET
        self.upstream = wire_play.Upstream(family, tls)
        self.closed = socket.socket()   # bound, not listening: connecting to it is refused
        self.closed.bind(("127.0.0.1", 0))
        self.values = self.start_values(certificates if tls else None)

    def start_values(self, certificates):
        port = self.upstream.port
        authority = ("[::1]:%d" if self.x.option("listen") == "ipv6" else "127.0.0.1:%d") % port
        listen = "127.0.0.1:0"
        if "level: error" in self.config:   # the line with the port would not be written
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                listen = "127.0.0.1:%d" % s.getsockname()[1]
        v = {"UPSTREAM": authority, "UPORT": str(port), "UPSTREAM_URL": "http://" + authority, "LISTEN": listen,
             "STORE": os.path.join(self.folder, "store"), "FOLDER": self.folder,
             "MODEL": os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "tiny-v3"),
             "CLOSED": "127.0.0.1:%d" % self.closed.getsockname()[1]}
        if certificates:
            v["CA"] = certificates().ca
        return {k: s.encode() for k, s in v.items()}

    def start(self):
        self.launch()
        self.address = self.find_address("listening")
        self.admin = self.find_address("admin_listening", optional=True)
        host = "%s:%d" % self.address
        self.values.update(HOST=host.encode(), PORT=str(self.address[1]).encode())

    def check_refusal(self, pattern):
        """larder must not start with this configuration, must say why, and must not repeat a secret."""
        self.launch()
        try:
            code = self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return ["larder starts with a configuration that it must refuse; its log:\n" + self.log_text()]
        self.log_thread.join(5)
        text, out = self.log_text(), []
        if code <= 0 or "Sanitizer" in text:
            out.append("larder ended with %d; its log:\n%s" % (code, text))
        if not re.search(pattern, text):
            out.append("no /%s/ in its log:\n%s" % (pattern, text))
        for secret in self.x.options.get("secret", []):
            if secret[:12] in text:
                out.append("its log repeats %s:\n%s" % (secret, text))
        return out

    def launch(self):
        config = os.path.join(self.folder, "larder.yaml")
        with open(config, "wb") as f:
            f.write(wire_text.expand(self.config, self.values))
        env = {k: v for k, v in os.environ.items() if not k.startswith("LARDER_") and "proxy" not in k.lower()}
        for row in self.x.options.get("env", []):
            name, _, value = row.partition("=")
            env[name] = wire_text.expand(value, self.values).decode()
        command = [self.larder, "serve", "-c", config]
        if self.hosts:
            self.write_hosts(self.hosts)
            command = ["unshare", "-r", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"',
                       os.path.join(self.folder, "hosts")] + command
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env=env, cwd=self.folder)
        self.log_thread = threading.Thread(target=self.read_log, daemon=True)
        self.log_thread.start()

    def write_hosts(self, text):
        with open(os.path.join(self.folder, "hosts"), "w", encoding="ascii") as f:
            f.write(text.replace("\\n", "\n") + "\n")

    def read_log(self):
        for row in self.process.stderr:
            with self.log_lock:
                self.log.append(row.decode("utf-8", "replace").rstrip("\n"))

    def log_text(self, since=0):
        with self.log_lock:
            return "\n".join(self.log[since:])

    def find_address(self, event, optional=False):
        fixed = self.values["LISTEN"].decode()
        limit = time.monotonic() + (START_S if not optional else 0.3)
        pattern = r'"?event"?[=:]"?%s\b.*"?address"?[=:]"?([^\s",]+)' % event
        while time.monotonic() < limit:
            m = re.search(pattern, self.log_text())
            if m:
                host, _, port = m.group(1).rpartition(":")
                return host.strip("[]"), int(port)
            if event == "listening" and not fixed.endswith(":0"):
                try:
                    port = int(fixed.split(":")[1])
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    return "127.0.0.1", port
                except OSError:
                    pass
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        if optional:
            return None
        raise RuntimeError("larder did not come up (exit %s); its log:\n%s" % (self.process.poll(), self.log_text()))

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def play(self, run):
        """One pass. Returns nothing; run.failures says how it went."""
        time.sleep(0.002)   # journal times are milliseconds: passes must not share one
        run.started_ms = int(time.time() * 1000)
        run.log_from = len(self.log)
        run.group = self
        self.runs.append(run)
        self.upstream.run = run
        ends = {}
        try:
            ends = wire_play.play_client(run, self.address)
        except OSError as why:
            run.fail("client", "cannot connect: %s" % why)
        self.upstream.end_run(run)
        for e in ends.values():
            e.finish()
        run.ended_ms = int(time.time() * 1000)
        self.check_live(run)
        if "alive" in run.skip:
            self.await_end(run)
        elif not self.alive():
            run.fail("larder", "it died (exit %s); end of its log:\n%s" % (
                self.process.poll(), self.log_text()[-3000:]))

    def await_end(self, run):
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            run.fail("larder", "it did not end after SIGTERM")

    def check_live(self, run):
        for s in run.exchange.sections:
            if s.words[0] == "log":
                self.check_text(run, s, lambda: self.log_text(run.log_from), "the log")
            elif s.words[0] == "metrics":
                self.check_text(run, s, self.metrics, "the metrics")
            elif s.words[0] == "upstreams":
                self.check_text(run, s, self.upstreams, "larder upstreams")
            elif s.words[0] == "admin":
                self.check_admin(run, s)
        for secret in self.secrets(run):
            for part in (secret, secret[:12]):
                if part in run.received and "client-secrets" not in run.skip:
                    run.fail("secrets", "the client was sent the secret %s" % secret.decode())
                    break

    def secrets(self, run):
        return [wire_text.expand(s, run.values) for s in run.exchange.options.get("secret", [])]

    def check_text(self, run, section, get, what):
        """Each line a pattern that must be found; `!` before it: must not be."""
        limit = time.monotonic() + 1.5
        for row in [r for r in section.lines() if r.strip()]:
            pattern = wire_text.expand(row.lstrip("!"), dict(run.values)).decode()
            wanted = not row.startswith("!")
            while (re.search(pattern, get(), re.M) is not None) != wanted:
                if time.monotonic() > limit:
                    run.fail("line %d" % section.line, "%s %s /%s/; it is:\n%s" % (
                        what, "lacks" if wanted else "has", pattern, get()[-1500:]))
                    break
                time.sleep(0.01)

    def metrics(self):
        return self.admin_get("/metrics")[1]

    def upstreams(self):
        done = subprocess.run([self.larder, "upstreams", "--admin", "%s:%d" % self.admin], capture_output=True,
                              timeout=20, check=False)
        text = done.stdout if done.returncode == 0 else b"exit %d: %s" % (done.returncode, done.stderr)
        return text.decode("utf-8", "replace")

    def admin_get(self, path):
        if not self.admin:
            return 0, "no admin listener"
        with socket.create_connection(self.admin, timeout=5) as s:
            s.sendall(("GET %s HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n" % ((path,) + self.admin)).encode())
            data = b""
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                data += piece
        m = re.match(rb"HTTP/1\.1 (\d+)", data)
        return (int(m.group(1)) if m else 0), data.decode("utf-8", "replace")

    def check_admin(self, run, section):
        """Lines: PATH STATUS [/pattern/], asked beside N other connections to the admin listener where one says so."""
        others = [socket.create_connection(self.admin, timeout=5) for _ in range(int(section.value("beside") or 0))]
        try:
            for s in others:
                s.sendall((section.value("saying") or "").encode())
            self.ask_admin(run, section)
            limit = time.monotonic() + int(section.value("gone") or 0) / 1000
            for s in others if section.has("gone") else []:
                s.settimeout(max(limit - time.monotonic(), 0.001))
                try:
                    if s.recv(1):
                        run.fail("line %d" % section.line, "admin: an answer on a connection that asked nothing")
                except ConnectionError:
                    pass
                except OSError:
                    run.fail("line %d" % section.line, "admin: idle connections stay open")
                    break
        finally:
            for s in others:
                s.close()

    def ask_admin(self, run, section):
        for row in [r for r in section.lines() if r.strip()]:
            path, status, *pattern = row.split(" ", 2)
            got, text = self.admin_get(path)
            if not wire_http.first_line_fits("HTTP/1.1 %03d" % got, status):
                run.fail("line %d" % section.line, "admin %s: expected %s, got %d: %s" % (
                    path, status, got, text[:300]))
            elif pattern and not re.search(pattern[0].strip("/"), text, re.S):
                run.fail("line %d" % section.line, "admin %s: no %s in: %s" % (path, pattern[0], text[:300]))

    def stop(self):
        """Returns failures of the whole group; adds those of the journal to the runs."""
        out = []
        if self.process is None:
            return out
        last_metrics = self.metrics() if self.alive() and self.any_secret() else ""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                out.append("larder did not end within 15 s of SIGTERM")
            if self.process.wait() != 0:
                out.append("larder ended with %d on SIGTERM; end of its log:\n%s" % (
                    self.process.returncode, self.log_text()[-2000:]))
        self.log_thread.join(5)
        text = self.log_text()
        m = re.search(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:)", text)
        if m:
            out.append("sanitizer report:\n%s" % text[max(0, m.start() - 300):m.start() + 3000])
        self.check_journal()
        self.check_secrets(last_metrics)
        return out

    def close(self):
        self.upstream.close()
        self.closed.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def any_secret(self):
        return any(r.exchange.options.get("secret") for r in self.runs)

    def check_secrets(self, metrics):
        if not self.any_secret():
            return
        places = {"the log": self.log_text().encode(), "the metrics": metrics.encode()}
        for folder, _, names in os.walk(self.values["STORE"].decode()):
            for n in names:
                with open(os.path.join(folder, n), "rb") as f:
                    places["the store's file " + n] = f.read()
        for run in self.runs:
            for secret in self.secrets(run):
                for place, data in places.items():
                    if secret in data or (len(secret) > 20 and secret[:12] in data):
                        run.fail("secrets", "%s holds %s" % (place, secret.decode()))

    def check_journal(self):
        wanting = [r for r in self.runs if any(s.words[0] == "journal" for s in r.exchange.sections)]
        if not wanting:
            return
        done = subprocess.run([self.larder, "export", "--format", "jsonl", "--store", self.values["STORE"].decode()],
                              capture_output=True, timeout=60, check=False)
        records = []
        for row in done.stdout.splitlines():
            try:
                records.append(json.loads(row))
            except ValueError:
                wanting[0].fail("journal", "export wrote a line that is not JSON: %r" % row[:200])
        if done.returncode or not records:
            wanting[0].fail("journal", "larder export: exit %d, %d records, %s" % (
                done.returncode, len(records), done.stderr.decode("utf-8", "replace")[:500]))
            return
        for run in wanting:
            self.check_records(run, [r for r in records if run.started_ms <= record_time(r) <= run.ended_ms])

    def check_records(self, run, records):
        sections = [s for s in run.exchange.sections if s.words[0] == "journal"]
        if len(records) != len(sections):
            run.fail("journal", "expected %d records, found %d: %s" % (len(sections), len(records), records))
            return
        for s, r in zip(sections, records):
            for row in [t for t in s.lines() if t.strip()]:
                path, _, wanted = row.partition(":")
                found, present = lookup(r, path.strip())
                wanted = wanted.strip()
                if not re.match(r"[<>]=? *-?\d|[/]", wanted):   # a comparison or a pattern is taken as it is
                    wanted = wire_text.expand(wanted, run.values).decode()
                if not value_fits(found if present else None, wanted):
                    run.fail("line %d (journal)" % s.line, "%s: expected %s, got %s in %s" % (
                        path, wanted, found, json.dumps(r)))


def record_time(r):
    value = r.get("time_ms", r.get("time"))
    return value if isinstance(value, int) else 0


def lookup(record, path):
    value, found = wire_http.dig(record, path)
    if not found and path in record:
        return record[path], True
    return value, found


def value_fits(value, wanted):
    if wanted == "unknown":
        return value is None or value == "unknown"
    m = re.fullmatch(r"(>=|<=|>|<)\s*(-?\d+)", wanted)
    if m and isinstance(value, (int, float)) and not isinstance(value, bool):
        n = int(m.group(2))
        return {">=": value >= n, "<=": value <= n, ">": value > n, "<": value < n}[m.group(1)]
    if wanted.startswith("/"):
        return re.fullmatch(wanted.strip("/"), json.dumps(value).strip('"')) is not None
    return (value if isinstance(value, str) else json.dumps(value)) == wanted
