#!/usr/bin/env python3
"""Runs exchange files (`*.wire`) against the real larder binary.

    run_wire.py LARDER [FOLDER or FILE]... [-k PATTERN] [-j JOBS] [--seed N] [--cuts MODES] [-v]

Exchanges with the same configuration share one process; processes run side by side in threads. Each exchange is played
whole and with its bytes cut in several ways. Exit 0: all passed (skipped ones are named), 1: failures, 2: bad file.
"""
import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import wire_group
import wire_play
import wire_text

SHARE = 20
HERE = os.path.dirname(os.path.abspath(__file__))
print_lock = threading.Lock()


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("larder")
    p.add_argument("paths", nargs="*")
    p.add_argument("-k", default="*", metavar="PATTERN", help="only files whose name matches (shell pattern or part)")
    p.add_argument("-j", type=int, default=3)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--cuts", default="", help="whole, bytes, random, each: only these ways of cutting")
    p.add_argument("--skip", default="", help="leave out checks that hold for every message: id, or a field name")
    p.add_argument("-v", action="store_true")
    return p.parse_args()


def find_files(paths, pattern):
    out = []
    for path in paths or [HERE]:
        if os.path.isfile(path):
            out.append(path)
        for folder, _, names in os.walk(path):
            out += [os.path.join(folder, n) for n in sorted(names) if n.endswith(".wire")]
    keep = pattern if "*" in pattern else "*" + pattern + "*"
    return [p for p in out if fnmatch.fnmatch(os.path.basename(p), keep)]


def have_namespaces():
    if not shutil.which("unshare"):
        return False
    done = subprocess.run(["unshare", "-r", "-m", "sh", "-c", "mount --bind /dev/null /etc/hosts"],
                          capture_output=True, timeout=20, check=False)
    return done.returncode == 0


def have_ipv6():
    import socket
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


CAN = {"namespaces": have_namespaces, "ipv6": have_ipv6, "openssl": lambda: shutil.which("openssl") is not None}
can_memory = {}


def missing_need(x):
    needs = set(x.option("needs").split())
    if wire_group.hosts_of(x):
        needs.add("namespaces")
    if x.option("listen") == "ipv6":
        needs.add("ipv6")
    if x.option("tls"):
        needs.add("openssl")
    for n in sorted(needs):
        if n not in can_memory:
            can_memory[n] = CAN[n]()
        if not can_memory[n]:
            return n
    return None


def cut_modes(x, words, only):
    """Pairs of ways of cutting: the client's bytes, the upstream's. Of several `cuts` the first that is for these words."""
    wanted = "both"
    for row in reversed(x.options.get("cuts", [])):
        how, _, when = row.partition(" when ")
        if all(set(w.split("|")) & set(words) for w in when.split()):
            wanted = how.strip()
    modes = [("whole", "whole")]
    if wanted == "both" or wanted == "client":
        modes.append(("bytes", "whole"))
    if wanted == "both" or wanted == "upstream":
        modes.append(("whole", "bytes"))
    if wanted == "both":
        modes += [("random", "random")]
    if wanted.startswith("each"):
        modes += [("whole", i) for i in range(int(wanted.split()[1]))] + [("whole", "bytes")]
    if only:
        kinds = only.split(",")
        modes = [m for m in modes if all((k if isinstance(k, str) else "each") in kinds + ["whole"] for k in m)
                 and ("whole" in kinds or m != ("whole", "whole"))]
    return modes


class Suite:
    def __init__(self, options):
        self.options = options
        self.seed = options.seed if options.seed is not None else int(time.time())
        self.results = {}   # path -> list of failed runs as text
        self.skipped = {}
        self.run_count = 0
        self.lock = threading.Lock()
        self.certificates_made = None
        self.folder = tempfile.mkdtemp(prefix="larder-wire-ca-")

    def certificates(self):
        with self.lock:
            if self.certificates_made is None:
                self.certificates_made = wire_group.Certificates(self.folder)
            return self.certificates_made

    def groups(self, files):
        out = {}
        for path in files:
            x = wire_text.read_file(path)
            self.results[path] = []
            need = missing_need(x)
            if need:
                self.skipped[path] = need
                continue
            for variant in wire_text.variants(x):
                item = x.narrowed(variant.words), variant
                out.setdefault(wire_group.group_key(*item), []).append(item)
        # Shares of a bounded size, so that all threads have work to the end.
        return [items[at:at + SHARE] for items in out.values() for at in range(0, len(items), SHARE)]

    def play_group(self, items):
        groups, runs = [], []

        def living():
            if not groups or not groups[-1].alive():
                groups.append(wire_group.Group(self.options.larder, *items[0], self.certificates))
                groups[-1].start()
            return groups[-1]

        for x, variant in items:
            try:
                if x.option("refuses"):
                    self.play_refusal(x, variant)
                    continue
                for client, upstream in cut_modes(x, variant.words, self.options.cuts):
                    runs.append(self.play_once(x, variant, (client, upstream), living()))
            except (RuntimeError, OSError, subprocess.SubprocessError, wire_text.WireError) as why:
                self.results[x.path].append("%s: %s" % (type(why).__name__, why))
        self.collect(runs, groups)

    def play_refusal(self, x, variant):
        group = wire_group.Group(self.options.larder, x, variant, self.certificates)
        self.run_count += 1
        self.results[x.path] += ["with %s: %s" % (variant.label, t) for t in group.check_refusal(x.option("refuses"))]
        group.close()

    def play_once(self, x, variant, cuts, group):
        client, upstream = cuts
        with self.lock:
            self.run_count += 1
            number = self.run_count
        values = dict(group.values, TAG=b"%06d" % number)
        for name, text in variant.items():
            values[name] = wire_text.expand(text, values)
        label = "cuts client=%s upstream=%s" % (client, upstream)
        if variant.label:
            label += " with " + variant.label
        cutters = wire_play.Cutter(client, self.seed), wire_play.Cutter(upstream, self.seed + 1)
        run = wire_play.Run(x, values, label, cutters, self.options.skip.split(","))
        began = time.monotonic()
        group.play(run)
        if self.options.v:
            with print_lock:
                print("  %-50s %s %.0f ms%s" % (os.path.basename(x.path), label, (time.monotonic() - began) * 1000,
                                               " FAILED" if run.failures else ""), flush=True)
        return run

    def collect(self, runs, groups):
        for g in groups:
            for text in g.stop():
                names = sorted({os.path.basename(r.exchange.path) for r in g.runs})
                self.results[g.x.path].append("the process that played %s: %s" % (", ".join(names), text))
        for r in runs:
            if r.failures:
                self.results[r.exchange.path].append("%s\n      " % r.name + "\n      ".join(r.failures))
        for g in groups:
            g.close()

    def report(self, seconds):
        failed = {p: f for p, f in self.results.items() if f}
        for path, failures in failed.items():
            print("\nFAILED %s: %s" % (os.path.relpath(path, HERE), wire_text.read_file(path).title))
            for text in failures[:3]:
                print("    " + text)
            if len(failures) > 3:
                print("    ... and %d more runs" % (len(failures) - 3))
        for path, need in self.skipped.items():
            print("SKIPPED %s: this machine has no %s" % (os.path.relpath(path, HERE), need))
        print("%d exchanges, %d runs, %d failed, %d skipped, seed %d, %.1f s" % (
            len(self.results), self.run_count, len(failed), len(self.skipped), self.seed, seconds))
        return 1 if failed else 0


def main():
    options = arguments()
    options.larder = os.path.abspath(options.larder)
    files = find_files(options.paths, options.k)
    if not files:
        print("no file matches")
        return 2
    suite, began = Suite(options), time.monotonic()
    try:
        groups = suite.groups(files)
        with ThreadPoolExecutor(options.j) as pool:
            for done in [pool.submit(suite.play_group, g) for g in groups]:
                done.result()
    except wire_text.WireError as why:
        print("bad file: %s" % why)
        return 2
    finally:
        shutil.rmtree(suite.folder, ignore_errors=True)
    return suite.report(time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
