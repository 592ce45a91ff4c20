#!/usr/bin/env python3
"""The drill fails, and says why, where a fallback is wrong.

usage: drill_mistakes.py LARDER [PART OF A TEST'S NAME]
"""
from drill_parts import HELD, MODEL, QUICK, check, drill, run

DEEPSEEK = "{name: deepseek, url: 'https://api.deepseek.com', key_env: DEEPSEEK_API_KEY, %s}" % QUICK
OPENAI = "{name: openai, url: 'https://api.openai.com', key_env: OPENAI_API_KEY, %s}" % QUICK
ANTHROPIC = "{name: anthropic, url: 'https://api.anthropic.com', key_env: OPENAI_API_KEY, %s}" % QUICK
ENGINE = "{name: local, kind: engine, engine: {model: '%s'%%s}}" % MODEL


def chain(first, second, fallback, route=HELD):
    return "upstreams:\n  - %s\n  - %s\nroutes:\n  - {upstream: %s, fallback: '%s', %s}\n" % (
        first, second, first.split(",")[0].split(" ")[1], fallback, route)


def the_right_one_passes(folder):
    """What the mistakes below are changes of."""
    drill(folder, chain(DEEPSEEK, OPENAI, "openai=gpt-4o-mini"), "--json").holds()


def a_fallback_that_cannot_speak_the_protocol(folder):
    d = drill(folder, chain(ANTHROPIC, ENGINE % "", "local"), "--json")
    d.fails(r"local never answers /v1/messages: a model of this process answers POST /v1/chat", scenario="fallback")
    d = drill(folder, chain(ANTHROPIC, OPENAI, "openai=gpt-4o-mini"), "--json", "--scenario", "closed")
    d.fails(r"openai answered 404 \(a provider of profile openai has no /v1/messages\)", scenario="closed")


def a_fallback_without_a_model_of_its_own(folder):
    d = drill(folder, chain(DEEPSEEK, OPENAI, "openai"), "--json", "--scenario", "fallback")
    d.fails(r"openai is asked for a model that it does not have.*write openai=MODEL", scenario="fallback")


def a_fallback_without_a_key(folder):
    text = chain(DEEPSEEK, OPENAI, "openai=gpt-4o-mini").replace(", key_env: DEEPSEEK_API_KEY", "").replace(
        ", key_env: OPENAI_API_KEY", "")
    d = drill(folder, text, "--json", "--scenario", "fallback")
    d.fails(r"openai gets the client's credential, which is another provider's: give it a key_env", scenario="fallback")
    text = chain(DEEPSEEK, OPENAI, "openai=gpt-4o-mini").replace(", key_env: OPENAI_API_KEY", "")
    d = drill(folder, "keys: [{tenant: t, env: OPENAI_API_KEY}]\n" + text, "--json", "--scenario", "fallback")
    d.fails(r"openai gets no credential: give it a key_env", scenario="fallback")
    d = drill(folder, chain(DEEPSEEK, OPENAI.replace("OPENAI_API_KEY", "NO_SUCH_KEY"), "openai=gpt-4o-mini"))
    check(d.code == 3 and "is not set" in d.err, d.told())


def a_url_that_is_an_endpoint(folder):
    d = drill(folder, chain(DEEPSEEK, OPENAI.replace("openai.com", "openai.com/v1/chat/completions"), "openai=gpt-4o-mini"))
    check(d.code == 3 and "is the address of an endpoint" in d.err, d.told())


def a_deadline_that_is_over_first(folder):
    text = chain(DEEPSEEK.replace("150ms", "600s"), OPENAI, "openai=gpt-4o-mini", "deadline: 60s, hold: {time: 700s}")
    d = drill(folder, text, "--json", "--scenario", "hang")
    d.fails(r"deadline \(60s\) ends before timeouts.first_byte of deepseek \(600s\)", scenario="hang", stream=False)
    check(all(s["status"] == 504 for s in d.scenes(scenario="hang")), d.told())
    drill(folder, text.replace("deadline: 60s", "deadline: 660s"), "--json", "--scenario", "hang").holds()
    text = "upstreams:\n  - %s\nroutes:\n  - {upstream: deepseek, deadline: 40ms}\n" % DEEPSEEK
    drill(folder, text, "--json", "--scenario", "429-short").fails(
        r"deadline \(40ms\) is over before the upstream may be asked again", scenario="429-short")


def heads_that_are_not_held(folder):
    first = DEEPSEEK.replace("150ms", "5s")
    d = drill(folder, chain(first, OPENAI, "openai=gpt-4o-mini", "hold: {time: 1s}"), "--json")
    d.fails(r"hold.time \(1s\) ends before timeouts.idle of deepseek \(5s\)", scenario="stream-stalls-at-role")
    d.fails(r"hold.time \(1s\) ends before timeouts.first_event of deepseek \(5s\)", scenario="stream-silent")
    check(d.json["failed"] == 2, "the rest holds", d.told())
    d = drill(folder, chain(DEEPSEEK, OPENAI, "openai=gpt-4o-mini", "hold: {time: 0}"), "--json", "--scenario",
              "stream-cut-at-role")
    d.fails("hold.time is 0", scenario="stream-cut-at-role")
    d = drill(folder, chain(DEEPSEEK, OPENAI, "openai=gpt-4o-mini", "hold: {bytes: 0}"), "--json", "--scenario",
              "stream-cut-at-role")
    d.fails("hold.bytes is 0", scenario="stream-cut-at-role")


def a_breaker_that_never_opens(folder):
    for option, words in (("open_max: 0", "breaker.open_max of deepseek is 0"), ("failures: 0", "breaker.failures of deepseek is 0")):
        text = chain(DEEPSEEK.replace(QUICK, QUICK + ", breaker: {%s}" % option), OPENAI, "openai=gpt-4o-mini")
        drill(folder, text, "--json", "--scenario", "down-for-long").fails(words, scenario="down-for-long")
    text = chain(DEEPSEEK.replace(QUICK, QUICK + ", breaker: {requests: 1000}"), OPENAI, "openai=gpt-4o-mini")
    d = drill(folder, text, "--json", "--scenario", "503")
    d.holds()
    check(any("not drilled as down-for-long" in n for n in d.json["notes"]), d.told())


def a_model_that_is_too_small_or_not_there(folder):
    text = chain(DEEPSEEK, ENGINE % ", context: 64", "local")
    drill(folder, text, "--json", "--scenario", "fallback").holds()
    d = drill(folder, text, "--json", "--scenario", "fallback", "--prompt-bytes", "2000")
    d.fails(r"local must answer; .* answered 400 \(.*context", scenario="fallback")
    d = drill(folder, chain(DEEPSEEK, ENGINE.replace(MODEL, MODEL + "-gone") % "", "local"))
    check(d.code != 0 and "local" in d.err and not d.out, d.told())


def a_route_that_another_one_takes(folder):
    text = chain(DEEPSEEK, OPENAI, "openai=gpt-4o-mini") + "  - {model: 'deepseek-*', upstream: openai}\n"
    d = drill(folder, text, "--json", "--scenario", "well", "--request-model", "deepseek-chat")
    check(any("routes[1] does not get a request for model 'deepseek-chat': routes[0] takes it" in n for n in d.json["notes"]),
          d.told())


if __name__ == "__main__":
    run([the_right_one_passes, a_fallback_that_cannot_speak_the_protocol, a_fallback_without_a_model_of_its_own,
         a_fallback_without_a_key, a_url_that_is_an_endpoint, a_deadline_that_is_over_first, heads_that_are_not_held,
         a_breaker_that_never_opens, a_model_that_is_too_small_or_not_there, a_route_that_another_one_takes])
