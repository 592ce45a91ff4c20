#!/usr/bin/env python3
"""larder on a full disk: clients notice nothing, errors are counted, journal and memory go on once there is room.

    full_disk.py LARDER DEMO_UPSTREAM

Four ways of being full: the store's own size limit, a limit on file sizes (EFBIG, with and without its signal ignored
by whoever started larder), a small tmpfs filled by a foreign file (ENOSPC; skipped, visibly, where no namespace can be
made), and a disk that is full at the start.
"""
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fault_rig as rig  # noqa: E402

THREADS = 4


def send(larder, name, count):
    """`count` chats from several clients; every one must be answered whole. Each has a model and a text of its own,
    so that roll-ups and memory grow as well as the journal."""
    failures = []

    def client(thread):
        c = http.client.HTTPConnection(*larder.address, timeout=30)
        for n in range(count // THREADS):
            model = "%s-%d-%d" % (name, thread, n)
            body = rig.chat(model, "Question of " + model, system="You are %s. Current time: 2031-04-09 07:%02d:%02d" %
                            (model, n // 60 % 60, n % 60))
            try:
                c.request("POST", "/v1/chat/completions", body)
                r = c.getresponse()
                answer = json.loads(r.read())
                if r.status != 200 or "choices" not in answer:
                    failures.append("%s: %d %s" % (model, r.status, answer))
            except (OSError, http.client.HTTPException, ValueError) as why:
                failures.append("%s: %r" % (model, why))
                return
        c.close()

    threads = [threading.Thread(target=client, args=(t,)) for t in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rig.check(not failures, "while %s: %d requests failed: %s; larder's log:\n%s", name, len(failures), failures[:2],
              larder.text(15))


class Bench:
    def __init__(self, larder, demo, cleanup):
        self.binary, self.demo, self.cleanup = larder, demo, cleanup
        self.folder = tempfile.mkdtemp(prefix="larder-full-")
        cleanup.folders.append(self.folder)

    def start(self, store, *options, **more):
        larder = self.cleanup.own(rig.Larder(self.binary, "--upstream", self.demo.url, "--store", store, "--log-access",
                                             "false", *options, **more))
        return larder.wait_up()

    def settled(self, larder, name, at_least):
        """Waits until the counter is there; what it was otherwise is in the message."""
        last = {}

        def enough():
            last.update(larder.metrics())
            return last["larder_" + name] >= at_least
        rig.wait_until(enough, lambda: "%s %.0f, wanted %.0f; larder's log:\n%s" % (
            name, last["larder_" + name], at_least, larder.text(10)))
        return last

    def models(self, store):
        return {r["model"] for r in rig.records(self.binary, store)}

    def small_store(self):
        """The oldest go first; nothing is an error."""
        store = os.path.join(self.folder, "small")
        larder = self.start(store, "--store-bytes", "1MiB")
        for part in ("a", "b", "c"):
            send(larder, part, 3000)
        m = self.settled(larder, "journal_records_total", 9000)
        rig.check(m["larder_store_evicted_total"] > 0, "9000 records in 1 MiB, and nothing was evicted")
        rig.check(m["larder_store_errors_total"] == 0, "%d errors in a store with a size limit: %s",
                  m["larder_store_errors_total"], larder.text(10))
        larder.end_well()
        size = sum(os.path.getsize(os.path.join(store, n)) for n in os.listdir(store) if n.endswith("data.mdb"))
        rig.check(size <= 1 << 20, "a store of 1 MiB has %d bytes", size)
        kept = rig.records(self.binary, store)
        rig.check(kept[-1]["model"].startswith("c-") and kept[-1]["seq"] == 9000, "the newest record is %s", kept[-1])
        numbers = [r["seq"] for r in kept]
        rig.check(numbers == list(range(numbers[0], 9001)), "records between the oldest and the newest are missing")
        return "1 MiB store: 9000 requests, %d newest kept, %d removed, 0 errors" % (
            len(kept), m["larder_store_evicted_total"])

    def file_limit(self, how):
        """EFBIG at the store's present size, then no limit."""
        store = os.path.join(self.folder, how)
        action = signal.SIG_IGN if how == "ignored" else signal.SIG_DFL
        larder = self.start(store, preexec=lambda: signal.signal(signal.SIGXFSZ, action))
        send(larder, "before", 200)
        self.settled(larder, "journal_records_total", 200)
        larder.limit_file_bytes(max(os.path.getsize(os.path.join(store, n)) for n in os.listdir(store)))
        figures = self.full_and_free(larder, lambda: larder.limit_file_bytes(resource.RLIM_INFINITY))
        larder.end_well()
        self.check_kept(store)
        return "file size limit, SIGXFSZ %s: %s" % (how, figures)

    def full_and_free(self, larder, free):
        """Load until errors are counted, more load; then room, and everything is journalled again."""
        limit = time.monotonic() + 15
        while larder.metric("store_errors_total") == 0:
            send(larder, "full", 400)
            rig.check(time.monotonic() < limit, "the disk is full and no error was counted; larder's log:\n%s",
                      larder.text(10))
        send(larder, "still-full", 400)
        free()
        time.sleep(1.2)   # a store that could not write may wait a second before it tries again
        before = larder.metrics()["larder_journal_records_total"]   # what waited for room is in it by now
        send(larder, "after", 200)
        after = self.settled(larder, "journal_records_total", before + 200)
        rig.check(after["larder_requests_active"] == 0, "requests hang")
        return "%d errors, %d records dropped, 200 of 200 recorded with room again" % (
            after["larder_store_errors_total"], after["larder_journal_dropped_total"])

    def check_kept(self, store):
        models = self.models(store)
        for name in ("before", "after"):
            for t in range(THREADS):
                for n in range(200 // THREADS):
                    rig.check("%s-%d-%d" % (name, t, n) in models, "%s-%d-%d has no record", name, t, n)

    def tmpfs(self):
        folder = os.path.join(self.folder, "mount")
        os.mkdir(folder)
        mount = ["unshare", "-r", "-m", "sh", "-c", 'mount -t tmpfs -o size=6m none "$0" && exec "$@"', folder]
        if subprocess.run(mount + ["true"], capture_output=True, timeout=20, check=False).returncode:
            return "SKIPPED tmpfs: no namespace can be made here"
        larder = self.start(os.path.join(folder, "store"), wrap=mount)
        inside = "/proc/%d/root%s" % (larder.p.pid, folder)
        send(larder, "before", 200)
        self.settled(larder, "journal_records_total", 200)
        ballast = os.path.join(inside, "ballast")
        with open(ballast, "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 4096)
            except OSError:
                pass
        figures = self.full_and_free(larder, lambda: os.unlink(ballast))
        inside_store = os.path.join(inside, "store")   # it is gone with larder, so it is read before
        rig.wait_until(lambda: sum(m.startswith("after-") for m in self.models(inside_store)) == 200,
                       "the records of requests after there was room")
        self.check_kept(inside_store)
        larder.end_well()
        return "tmpfs of 6 MiB: " + figures

    def full_at_start(self):
        """It may refuse to start, in words, or serve without a journal; it must not die of it."""
        store = os.path.join(self.folder, "none")
        larder = self.cleanup.own(rig.Larder(
            self.binary, "--upstream", self.demo.url, "--store", store,
            preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))))
        code = larder.p.wait(rig.START_S)
        larder.reader.join(5)
        rig.check(code > 0 and not rig.SANITIZER.search(larder.text()) and "store" in larder.text(),
                  "larder on a full disk ended with %d: %s", code, larder.text())
        return "full at the start: exit %d, '%s'" % (code, larder.text(1)[:100])


def main():
    with rig.Cleanup() as cleanup:
        bench = Bench(os.path.abspath(sys.argv[1]), cleanup.own(rig.Demo(sys.argv[2])), cleanup)
        for part in (bench.small_store, lambda: bench.file_limit("ignored"), lambda: bench.file_limit("default"),
                     bench.tmpfs, bench.full_at_start):
            print(part(), flush=True)


if __name__ == "__main__":
    rig.main(main)
