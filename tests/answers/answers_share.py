#!/usr/bin/env python3
"""Many clients at once before kept answers: one request upstream for all who ask the same, and never somebody else's answer.

usage: answers_share.py LARDER [PART OF A TEST'S NAME]
"""
import json
import os
import random
import subprocess
import threading

from answers_parts import HERE, SMALL, Connection, Larder, Upstream, ask, chat, check, config, metric, number_in, quiet, run, \
    together, until

MODEL = os.path.join(HERE, "..", "models", "tiny-v3")
LOOPS = (1, 4)


def fifty_identical_requests_are_one(folder):
    for loops in LOOPS:
        for stream in (False, True):
            with Upstream() as up, Larder(folder, config(up, threads=loops)) as larder:
                up.hold.clear()
                answers, lock = [], threading.Lock()

                def client(_, larder=larder, stream=stream, answers=answers, lock=lock):
                    answer = ask(larder, chat(stream=stream))
                    with lock:
                        answers.append(answer)

                watcher = threading.Thread(target=lambda larder=larder, up=up: (
                    until(lambda: metric(larder, "answers_waiting") == 49, "49 that wait"), up.hold.set()))
                watcher.start()
                together(50, client)
                watcher.join()
                check(up.asked == 1, "the upstream was asked", up.asked, "times")
                check(len({a[2] for a in answers}) == 1 and {a[0] for a in answers} == {200}, answers)
                said = [a[1] for a in answers]
                check(said.count("miss") == 1 and said.count("hit") == 49, said)
                check(metric(larder, "answers_shared_total") == 49 and metric(larder, "answers_misses_total") == 1, "counted")
                status, word, data = ask(larder, chat(stream=stream))
                check((status, word, data) == (200, "hit", answers[0][2]), status, word, data)
                quiet(larder)


def tenants_ask_for_themselves(folder):
    for loops in LOOPS:
        with Upstream() as up, Larder(folder, config(up, threads=loops)) as larder:
            up.hold.clear()
            seen = {}

            def client(number, larder=larder, seen=seen):
                seen[number] = ask(larder, chat(), headers={"Authorization": "Bearer tenant-%d" % (number % 4)})[2]

            watcher = threading.Thread(target=lambda larder=larder, up=up: (
                until(lambda: metric(larder, "answers_waiting") == 36, "36 that wait"), up.hold.set()))
            watcher.start()
            together(40, client)
            watcher.join()
            check(up.asked == 4, "asked", up.asked, "times for 4 tenants")
            for tenant in range(4):
                check(len({seen[n] for n in range(tenant, 40, 4)}) == 1, "two answers of one tenant")
            check(len(set(seen.values())) == 4, "tenants share an answer")


def whoever_leads_may_leave(folder):
    """Each is the one that the others wait for in its turn, and goes."""
    for loops in LOOPS:
        with Upstream() as up, Larder(folder, config(up, threads=loops)) as larder:
            up.hold.clear()
            clients = []
            for n in range(8):
                clients.append(Connection(larder))
                clients[n].send(chat(stream=True))
                if n:
                    until(lambda n=n: metric(larder, "answers_waiting") == n, "%d that wait" % n)
                else:
                    until(lambda: up.asked == 1, "the first one upstream")
            clients[5].reset()   # one that only waits
            until(lambda: metric(larder, "answers_waiting") == 6, "one less")
            for n in range(4):
                clients[n].reset()
                until(lambda n=n: up.asked == n + 2, "the next one upstream")
            up.hold.set()
            answers = [clients[n].receive() for n in (4, 6, 7)]
            check([a[0] for a in answers] == [200] * 3, answers)
            check(len({a[2] for a in answers}) == 1, answers)
            check([a[1] for a in answers] == ["miss", "hit", "hit"], answers)
            check(up.asked == 5, up.asked)
            quiet(larder)


def a_failure_is_one_requests_own(folder):
    """The first and the second are failed; nobody else is, and none waits for more than two."""
    for loops in LOOPS:
        for mood in ("fail", "cut"):
            with Upstream() as up, Larder(folder, config(up, threads=loops)) as larder:
                up.hold.clear()
                up.mood = lambda number, mood=mood: mood if number <= 2 else "well"
                answers = {}

                def client(number, larder=larder, answers=answers):
                    answers[number] = ask(larder, chat())

                watcher = threading.Thread(target=lambda larder=larder, up=up: (
                    until(lambda: metric(larder, "answers_waiting") == 9, "9 that wait"), up.hold.set()))
                watcher.start()
                together(10, client)
                watcher.join()
                good = [a for a in answers.values() if a[0] == 200]
                check(len(good) == 8, mood, answers)
                check(up.asked <= 10, "asked", up.asked)
                quiet(larder)


def markers_stay_with_their_client(folder):
    """Unique and common requests in any order, clients that come anew or leave, an upstream that fails: every answer is one
    that was made for the very body that was sent."""
    rounds = 6 if SMALL else 25
    for loops in LOOPS:
        with Upstream() as up, Larder(folder, config(up, threads=loops)) as larder:
            up.mood = lambda number: {3: "fail", 7: "cut"}.get(number % 11, "well")
            owners, lock = {}, threading.Lock()

            def client(number, larder=larder, owners=owners, lock=lock):
                dice = random.Random("%d %d" % (number, loops))
                c = Connection(larder)
                for turn in range(rounds):
                    common = dice.random() < 0.6
                    text = "common %d" % (turn // 2) if common else "own %d %d" % (number, turn)
                    body = chat(text, stream=dice.random() < 0.5)
                    tenant = "tenant-%d" % (number % 2)
                    try:
                        c.send(body, headers={"Authorization": "Bearer " + tenant})
                        if dice.random() < 0.1:
                            c.reset()
                            c = Connection(larder)
                            continue
                        status, word, data = c.receive()
                    except OSError:
                        c = Connection(larder)
                        continue
                    except Exception:   # a cut answer, pylint: disable=broad-except
                        c.close()
                        c = Connection(larder)
                        continue
                    if status == 200 and (not body["stream"] or data.endswith(b"[DONE]\n\n")):
                        with lock:
                            owners.setdefault(number_in(data), set()).add((text, body["stream"], tenant))
                    check(word in ("hit", "miss"), word)
                    if dice.random() < 0.1:
                        c.close()
                        c = Connection(larder)
                c.close()
            together(24, client)
            for answer, who in owners.items():
                check(len(who) == 1, "one answer for", who, answer)
            check(len(owners) > 20, len(owners))
            quiet(larder)
            check(metric(larder, "answers_hits_total") + metric(larder, "answers_shared_total") > 0, "nothing was shared")


def a_reload_keeps_what_is_kept(folder):
    with Upstream() as up, Larder(folder, config(up, threads=4)) as larder:
        check(ask(larder, chat("kept"))[1] == "miss", "first")
        up.hold.clear()
        clients = [Connection(larder) for _ in range(6)]
        for c in clients:
            c.send(chat("under way"))
        until(lambda: metric(larder, "answers_waiting") == 5, "5 that wait")
        larder.reload()
        up.hold.set()
        answers = [c.receive() for c in clients]
        check(len({a[2] for a in answers}) == 1 and up.asked == 2, "a reload parted them", answers)
        check(ask(larder, chat("kept"))[1] == "hit" and ask(larder, chat("under way"))[1] == "hit", "forgotten")
        larder.reload(config(up, "{ttl: 20m, coalesce: true}", threads=4))
        until(lambda: ask(larder, chat("kept"), headers={"x-larder-cache": "bypass"})[0] == 200, "the new rules")
        until(lambda: ask(larder, chat("other ttl %f" % random.random()))[1] == "miss", "the new rules")
        until(lambda: ask(larder, chat("kept"))[1] == "miss", "another ttl is another route")
        check(metric(larder, "answers_kept") >= 3, "kept")
        larder.reload(config(up, "{ttl: 20m}", threads=4, extra="answers: {bytes: 64KiB, answer_bytes: 1KiB}\n"))
        for n in range(300):
            ask(larder, chat("fill %d" % n))
        check(0 < metric(larder, "answers_bytes") <= 65536, metric(larder, "answers_bytes"))
        check(metric(larder, "answers_evicted_total") > 0, "none made room")
        larder.reload(config(up, "{ttl: 0}", threads=4))
        until(lambda: ask(larder, chat("kept"))[1] is None, "answers off")
        quiet(larder)


def a_model_of_this_process(folder):
    """Its answers are kept and shared as a provider's are."""
    engine = ("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nthreads: 2\n"
              "upstreams:\n  - {name: tiny, kind: engine, engine: {model: '%s', queue_wait: 0}}\n"
              "routes:\n  - {upstream: tiny, answers: {ttl: 10m, coalesce: true}}\n" % MODEL)
    with Larder(folder, engine) as larder:
        body = dict(chat("Once upon a time", max_tokens=60, ignore_eos=True), model="tiny-v3")
        answers = {}

        def client(number):
            answers[number] = ask(larder, dict(body, stream=number % 2 == 1))

        together(20, client)
        for stream in (0, 1):
            check(len({answers[n][2] for n in range(stream, 20, 2)}) == 1, "two answers", answers)
        check(metric(larder, "engine_jobs_total") == 2, metric(larder, "engine_jobs_total"), "jobs")
        check(ask(larder, dict(body, stream=False))[1] == "hit", "not kept")
        quiet(larder)


def nobody_waits_for_a_slow_client(folder):
    """The upstream is read on for the others, as far as an answer may be kept: then they have it, and it has it in its time;
    or it is too large for that, and they ask for themselves."""
    more = "limits: {stream_buffer_bytes: 16KiB}\nanswers: {answer_bytes: 8MiB}\n"
    for loops in LOOPS:
        for mood in ("large", "flood"):
            with Upstream() as up, Larder(folder, config(up, threads=loops, extra=more)) as larder:
                up.hold.clear()
                up.mood = lambda number, mood=mood: mood if number == 1 else "well"
                slow, others = Connection(larder, room=4096), [Connection(larder) for _ in range(3)]
                slow.send(chat(stream=True))
                until(lambda: up.asked == 1, "the first one upstream")
                for n, c in enumerate(others):
                    c.send(chat(stream=True))
                    until(lambda n=n: metric(larder, "answers_waiting") == n + 1, "%d that wait" % (n + 1))
                up.hold.set()
                answers = [c.receive() for c in others]
                word, asked = ("hit", 1) if mood == "large" else ("miss", 4)
                check([a[:2] for a in answers] == [(200, word)] * 3, mood, [a[:2] for a in answers])
                check(up.asked == asked, mood, up.asked)
                if mood == "large":
                    check(len(answers[0][2]) > 7000000 and {a[2] for a in answers} == {answers[0][2]}, "another answer")
                    check(slow.receive() == (200, "miss", answers[0][2]), "another answer for who reads slowly")
                else:
                    slow.reset()
                quiet(larder)


def what_two_have_said_is_nobodys_answer(folder):
    """A stream that broke and that a model of this process went on with is not kept, and not shared."""
    with Upstream() as up:
        text = config(up).replace("routes:", "  - {name: tiny, kind: engine, engine: {model: '%s', queue_wait: 0}}\nroutes:" % MODEL)
        with Larder(folder, text.replace("upstream: up,", "upstream: up, continue: tiny,")) as larder:
            up.hold.clear()
            up.mood = lambda number: "break"
            body = dict(chat("Once upon a time", stream=True, max_tokens=8), model="tiny-v3")
            answers = {}
            watcher = threading.Thread(target=lambda: (
                until(lambda: metric(larder, "answers_waiting") == 2, "2 that wait"), up.hold.set()))
            watcher.start()
            together(3, lambda number: answers.update({number: ask(larder, body)}))
            watcher.join()
            answers[3] = ask(larder, body)
            for a in answers.values():
                check(a[0] == 200 and a[1] == "miss" and a[2].endswith(b"data: [DONE]\n\n"), a)
            check(up.asked == 4 and metric(larder, "answers_stored_total") == 0, up.asked)
            quiet(larder)


def told(*words):
    done = subprocess.run([Larder.binary] + list(words), capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 0, words, done.stderr)
    return done.stdout


def nothing_is_paid_twice(folder):
    """What the statistics make of it: tokens and cost of the first request alone, and the others told apart."""
    store = os.path.join(folder, "store")
    with Upstream() as up, Larder(folder, config(up, extra="store: {dir: '%s'}\n" % store)) as larder:
        body = dict(chat("once"), model="deepseek-chat")
        for n in range(4):
            check(ask(larder, body)[1] == ("hit" if n else "miss"), n)
        check(metric(larder, "prompt_tokens_total") == 100 and metric(larder, "output_tokens_total") == 10, "tokens")
        check(metric(larder, "usage_unknown_total") == 0, "a kept answer is no unknown usage")
    total = json.loads(told("stats", "--store", store, "--json"))
    wanted = {"requests": 4, "known": 1, "unknown": 0, "no_prompt": 0, "kept_answers": 3, "kept_prompt_tokens": 300,
              "kept_output_tokens": 30, "prompt_tokens": 100, "output_tokens": 10, "priced": 1}
    check({k: total["all"][k] for k in wanted} == wanted, total["all"])
    check([(m["name"], m["requests"]) for m in total["models"]] == [("deepseek-chat", 1)], total["models"])
    text = told("stats", "--store", store)
    check("kept      3 requests got a kept answer: 300 prompt and 30 output tokens not asked for again" in text, text)
    check("no prompt" not in text and "unknown for 0" in text, text)
    check(told("tail", "--store", store).count("  kept answer  ") == 3, "tail")
    records = [json.loads(r) for r in told("export", "--store", store).splitlines()]
    check([r["answer_kept"] for r in records] == [False, True, True, True], records)
    check(records[3]["prompt_tokens"] is None and records[3]["raw_prompt_tokens"] == 100, records[3])
    why = json.loads(told("explain", records[3]["request_id"], "--store", store, "--format", "json"))
    check(why["why"] == "kept_answer" and why["donor"] is None, why)
    why = json.loads(told("explain", "last", "--store", store, "--format", "json"))
    check(why["request"]["request_id"] == records[0]["request_id"], why)


if __name__ == "__main__":
    run([fifty_identical_requests_are_one, tenants_ask_for_themselves, whoever_leads_may_leave, a_failure_is_one_requests_own,
         markers_stay_with_their_client, a_reload_keeps_what_is_kept, nobody_waits_for_a_slow_client,
         what_two_have_said_is_nobodys_answer, nothing_is_paid_twice,
         a_model_of_this_process])
