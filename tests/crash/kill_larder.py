#!/usr/bin/env python3
"""Kills larder under load, again and again, and looks at what is left in its store.

    kill_larder.py LARDER DEMO_UPSTREAM [RUNS] [--seed N] [-v]

Each run starts larder on the same store, asks it from several clients at once, and ends it with SIGKILL at a random
moment (some runs during its start, some after SIGTERM, while it ends). Then, with `larder export`:
- the store opens; no record is damaged; numbers have no gap; every record of an earlier run has the bytes it had;
- every request whose answer was complete longer ago than the commit interval and a margin has one record, no other
  has more than one; each record is the one of its request (model, bytes, tokens). The margin is 0.4 s for the disk,
  and as long as one of larder's threads was kept from a processor in this run (the kernel counts that);
- `larder stats` counts as many requests as the journal has.
Then the next larder on this store is asked what the last one knew: a clock that was moved is moved, tools go in their
first order, texts in their first form, an old user message has its old block: the new body must begin with all of the
old one's bytes. That a larder without memory fails this is checked too.
"""
import argparse
import hashlib
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
import fault_rig as rig  # noqa: E402

COMMIT_S = 0.010   # the default of store.commit
MARGIN_S = 0.400   # for a busy disk
THREADS = 4
CHECKED_AGAIN = 3


class Conversation:
    """One chat whose client is sloppy in every way that recall makes good: clock, tool order, line ends."""

    def __init__(self, name, chance):
        self.name, self.chance = name, chance
        self.messages, self.turn, self.clock = [], 0, chance.randrange(10 ** 6)
        self.sent = None      # the body that went upstream last
        self.confirmed = 0.0  # when its answer was complete

    def next_body(self):
        self.turn += 1
        self.clock += self.chance.randrange(1, 9000)
        tools = [{"type": "function", "function": {"name": "%s_%s" % (n, self.name.replace("-", "_"))}}
                 for n in ("read", "write", "search", "fetch")]
        if self.turn > 1:
            self.chance.shuffle(tools)
        end = "\n" if self.turn % 2 else "\r\n"
        system = "You are the agent %s.%sCurrent time: %s%sBe brief." % (
            self.name, end, time.strftime("2031-04-%d %H:%M:%S", time.gmtime(self.clock)), end)
        self.messages.append({"role": "user", "content": "Question %d." % self.turn})
        return json.dumps({"model": self.name, "tools": tools,
                           "messages": [{"role": "system", "content": system}] + self.messages}).encode()

    def answered(self, data):
        self.messages.append(json.loads(data)["choices"][0]["message"])
        self.confirmed = time.monotonic()


class Asked:
    """One request of the load: what its record must say."""

    def __init__(self, model, body):
        self.model, self.request_bytes, self.done, self.usage, self.response_bytes = model, len(body), None, None, None


def ask(connection, body):
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    r = connection.getresponse()
    return r.status, r.read()


class Killer:
    def __init__(self, options, demo, store):
        self.o, self.demo, self.store = options, demo, store
        self.chance = random.Random(options.seed)
        self.asked = {}            # model -> Asked
        self.conversations = []
        self.lines, self.digest = 0, hashlib.sha256()
        self.worst_lost_s = self.worst_allowed_s = 0.0
        self.allowed_s = COMMIT_S + MARGIN_S
        self.recalled = self.complete = self.lost = self.held = 0
        self.memory_lost = 0

    def start(self, store=None):
        return rig.Larder(self.o.larder, "--upstream", self.demo.url, "--store", store or self.store,
                          "--profile", "deepseek", "--log-access", "false")

    # -- recall ---------------------------------------------------------------------------------------------------

    def turn(self, larder, conversation):
        """One more turn; returns the body that arrived upstream."""
        _, first = self.demo.entries(1 << 40)
        c = http.client.HTTPConnection(*larder.address, timeout=30)
        status, data = ask(c, conversation.next_body())
        c.close()
        rig.check(status == 200, "a turn of %s was answered with %d: %s", conversation.name, status, data[:300])
        entries, _ = self.demo.entries(first)
        mine = [e["body"] for e in entries if json.loads(e["body"])["model"] == conversation.name]
        rig.check(len(mine) == 1, "%d requests of %s arrived upstream", len(mine), conversation.name)
        conversation.answered(data)
        return mine[0]

    def remembers(self, larder, conversation):
        """Whether the next turn goes on from the very bytes of the last one."""
        before = conversation.sent
        conversation.sent = self.turn(larder, conversation)
        return conversation.sent.startswith(before[:before.rindex("]")])

    def check_recall(self, larder, kill_time):
        """Those of the last run that were confirmed early enough, and some older ones."""
        sure = [c for c in self.conversations if c.confirmed < kill_time - self.allowed_s]
        unsure = [c for c in self.conversations if c not in sure]
        for c in unsure:   # these may be forgotten; then they are of no more use
            if self.remembers(larder, c):
                continue
            self.memory_lost += 1
            self.conversations.remove(c)
        picked = sure[-2:] + self.chance.sample(sure[:-2], min(CHECKED_AGAIN, len(sure[:-2])))
        for c in picked:
            before = c.sent
            rig.check(self.remembers(larder, c), "recall memory of %s is lost; before:\n%s\nnow:\n%s", c.name, before,
                      c.sent)
            self.recalled += 1

    def new_conversation(self, larder, run):
        c = Conversation("talk-%d" % run, random.Random(self.chance.random()))
        self.turn(larder, c)             # shows its clock for the first time
        c.sent = self.turn(larder, c)    # shows that it changes: moved from here on
        rig.check("runtime-context" in c.sent, "the clock of %s was not moved: %s", c.name, c.sent)
        self.conversations.append(c)

    def check_control(self):
        """A larder that remembers nothing must fail the check, or it would show nothing."""
        if not self.conversations:
            return
        with tempfile.TemporaryDirectory() as empty:
            larder = self.start(empty).wait_up()
            try:
                fresh = self.conversations[-1]
                rig.check(not self.remembers(larder, fresh), "a larder without memory passes the check of recall")
                larder.end_well()
            finally:
                if larder.alive():
                    larder.kill()

    # -- load -----------------------------------------------------------------------------------------------------

    def load(self, address, run, thread, stop):
        chance = random.Random("%d %d %d" % (self.o.seed, run, thread))
        c = http.client.HTTPConnection(*address, timeout=30)
        n = 0
        while not stop.is_set():
            n += 1
            model = "m-%d-%d-%d" % (run, thread, n)
            system = "You are agent %d of run %d. Current time: %s" % (
                thread, run, time.strftime("2032-%m-%d %H:%M:%S", time.gmtime(n * 77777)))
            body = rig.chat(model, "Question", stream=chance.random() < 0.4, pad=chance.randrange(4000), system=system)
            asked = self.asked[model] = Asked(model, body)
            try:
                status, data = ask(c, body)
            except (OSError, http.client.HTTPException):
                return   # killed
            done = time.monotonic()
            if status == 503 and stop.is_set():
                return   # larder ends
            asked.done = done
            rig.check(status == 200, "%s was answered with %d: %s", model, status, data[:300])
            asked.response_bytes = len(data)
            if data.startswith(b"{"):
                asked.usage = json.loads(data)["usage"]

    def guarded_load(self, *args):
        try:
            self.load(*args)
        except rig.Failed as why:
            self.failures.append(str(why))

    # -- what is left -----------------------------------------------------------------------------------------------

    def rows(self):
        """The journal's lines; none where the very first larder was killed before it had made its store."""
        try:
            return rig.export(self.o.larder, self.store)
        except rig.Failed as why:
            if self.lines or "no store in" not in str(why):
                raise
            return []

    def check_lines(self, run, kill_time):
        rows = self.rows()
        rig.check(len(rows) >= self.lines, "run %d: %d records where %d were", run, len(rows), self.lines)
        old = hashlib.sha256()
        for row in rows[:self.lines]:
            old.update(row)
        rig.check(old.digest() == self.digest.digest(), "run %d: records of an earlier run are not what they were", run)
        seen = set()
        for i, row in enumerate(rows[self.lines:], self.lines + 1):
            self.digest.update(row)
            self.check_record(json.loads(row), i, seen)
        self.lines = len(rows)
        for asked in [a for a in self.asked.values() if a.done]:
            self.complete += 1
            if asked.model not in seen:
                self.lost += 1
                age = kill_time - asked.done
                self.worst_lost_s = max(self.worst_lost_s, age)
                rig.check(age < self.allowed_s, "run %d: %s was complete %.0f ms before the kill and has no record; "
                          "allowed were %.0f ms", run, asked.model, age * 1000, self.allowed_s * 1000)
            elif kill_time - asked.done > self.allowed_s:
                self.held += 1
        self.asked = {}

    def check_record(self, r, seq, seen):
        rig.check(r["seq"] == seq, "record %s has the number %d, not %d", r["model"], r["seq"], seq)
        if r["model"].startswith("talk-"):
            return
        if not r["model"] and r["ending"] == "shutdown":
            return   # a head that came behind SIGTERM: refused before its body told the model
        asked = self.asked.get(r["model"])
        rig.check(asked is not None, "a record of a request that this run did not make: %s", r)
        rig.check(r["model"] not in seen, "two records of %s", r["model"])
        seen.add(r["model"])
        rig.check(r["request_bytes"] == asked.request_bytes, "%s: %d bytes were sent: %s", asked.model,
                  asked.request_bytes, r)
        if asked.done is None:
            return
        rig.check(r["status"] == 200 and r["ending"] == "complete", "%s was complete: %s", asked.model, r)
        if asked.usage:
            rig.check(r["response_bytes"] == asked.response_bytes, "%s: %d bytes came: %s", asked.model,
                      asked.response_bytes, r)
            for ours, theirs in (("prompt_tokens", "prompt_tokens"), ("hit_tokens", "prompt_cache_hit_tokens"),
                                 ("output_tokens", "completion_tokens")):
                rig.check(r[ours] == asked.usage[theirs], "%s: %s: %s, not %d", asked.model, ours, r,
                          asked.usage[theirs])

    def check_sums(self, run):
        if not self.lines:
            return
        done = subprocess.run([self.o.larder, "stats", "--store", self.store, "--json"], capture_output=True,
                              timeout=60, check=False)
        rig.check(done.returncode == 0, "larder stats: exit %d: %s", done.returncode, done.stderr[:500])
        requests = json.loads(done.stdout)["all"]["requests"]
        rig.check(requests == self.lines, "run %d: stats count %d requests, the journal has %d", run, requests,
                  self.lines)

    # -- one run --------------------------------------------------------------------------------------------------

    def kept_waiting(self, larder):
        """Per thread, the seconds that it was ready to run and was not let."""
        out = {}
        folder = "/proc/%d/task" % larder.p.pid
        for task in os.listdir(folder):
            try:
                with open(os.path.join(folder, task, "schedstat"), encoding="ascii") as f:
                    out[task] = int(f.read().split()[1]) / 1e9
            except (OSError, IndexError):
                pass   # a kernel that does not count it
        return out

    def strike(self, larder, how):
        """Returns the moment just before the signal that nothing survives; after SIGTERM new requests are refused."""
        if how == "ending":
            larder.p.terminate()
            time.sleep(self.chance.random() * 0.02)
        moment = time.monotonic()
        larder.kill()
        return moment

    def run(self, number, kill_time):
        how = self.chance.choices(("load", "start", "ending"), (8, 1, 1))[0]
        larder = self.start()
        try:
            if how == "start":
                time.sleep(self.chance.random() * 0.05)
                larder.kill()
                self.check_lines(number, time.monotonic())
                return kill_time, how
            larder.wait_up()
            self.check_recall(larder, kill_time)
            waited = self.kept_waiting(larder)
            self.new_conversation(larder, number)
            self.failures, stop = [], threading.Event()
            threads = [threading.Thread(target=self.guarded_load, args=(larder.address, number, t, stop))
                       for t in range(THREADS)]
            for t in threads:
                t.start()
            time.sleep(0.1 + self.chance.random() * 1.5)
            if how == "ending":
                stop.set()
                time.sleep(0.001)
            now = self.kept_waiting(larder)
            self.allowed_s = COMMIT_S + MARGIN_S + max((now[t] - waited.get(t, 0.0) for t in now), default=0.0)
            self.worst_allowed_s = max(self.worst_allowed_s, self.allowed_s)
            moment = self.strike(larder, how)
            stop.set()
            for t in threads:
                t.join()
            rig.check(not self.failures, "%s", self.failures[:1])
            self.check_lines(number, moment)
            if number % 10 == 0:
                self.check_sums(number)
            return moment, how
        finally:
            if larder.alive():
                larder.kill()
            m = rig.SANITIZER.search(larder.text())
            rig.check(not m, "a report in larder's log:\n%s", larder.text())

    def all_runs(self):
        kill_time = 0.0
        for number in range(1, self.o.runs + 1):
            kill_time, how = self.run(number, kill_time)
            if self.o.v:
                print("run %d (%s): %d records" % (number, how, self.lines), flush=True)
        larder = self.start().wait_up()
        try:
            self.check_recall(larder, kill_time)
            larder.end_well()
        finally:
            if larder.alive():
                larder.kill()
        self.check_control()
        print("%d kills, seed %d: %d answers complete, %d records, none damaged or twice; %d answers older than the "
              "margin (at most %.0f ms), all recorded; %d answers without a record, the oldest %.0f ms before its kill; "
              "recall held %d times, %d of the last moments forgotten" % (
                  self.o.runs, self.o.seed, self.complete, self.lines, self.held, self.worst_allowed_s * 1000,
                  self.lost, self.worst_lost_s * 1000, self.recalled, self.memory_lost))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("larder")
    p.add_argument("demo")
    p.add_argument("runs", nargs="?", type=int, default=12)
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("-v", action="store_true")
    o = p.parse_args()
    o.larder = os.path.abspath(o.larder)
    with tempfile.TemporaryDirectory() as folder, rig.Cleanup() as cleanup:
        demo = cleanup.own(rig.Demo(o.demo))
        try:
            Killer(o, demo, os.path.join(folder, "store")).all_runs()
        except rig.Failed as why:
            raise rig.Failed("seed %d: %s" % (o.seed, why)) from None


if __name__ == "__main__":
    rig.main(main)
