#!/usr/bin/env python3
"""larder kv-check on the trained model: its figures against those computed here from the logits of larder run --ids; on
the same model with one value of one layer's latents made huge, which fp8 cannot keep; and what it refuses.

usage: kv_check.py LARDER TRAINED_MODEL
"""
import array
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

TOKENS = 120  # in one pass of the absorbed form, in both commands
BYTES = {"f32": 2880, "f16": 1440, "bf16": 1440, "int8": 840, "fp8": 820, "int8-128": 810}


def run(*arguments, stdin=None):
    done = subprocess.run(arguments, input=stdin, capture_output=True, timeout=500, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def check(larder, model, *arguments, stdin):
    code, out, err = run(larder, "kv-check", "--model", model, "--text", "-", *arguments, "--json", "--threads", "1",
                         stdin=stdin)
    assert code == 0 and not err, (code, err)
    return json.loads(out)


def tensors(path):
    """{name: list of rows}"""
    with open(path, "rb") as handle:
        data = handle.read()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, told in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in told["data_offsets"])
        values = array.array("f" if told["dtype"] == "F32" else "i")
        values.frombytes(data[begin:end])
        width = told["shape"][-1]
        out[name] = [values[at:at + width] for at in range(0, len(values), width)]
    return out


def log_softmax(row):
    most = max(row)
    total = math.log(sum(math.exp(v - most) for v in row)) + most
    return [v - total for v in row]


def by_hand(larder, model, folder, ids, kv):
    """(log-probabilities of every token, greedy ids)"""
    cases = {"cases": [{"name": "text", "ids": ids, "positions": list(range(len(ids)))},
                       {"name": "answer", "ids": ids[:33], "continuation": [0] * 128}]}
    with open(f"{folder}/cases.json", "w", encoding="utf-8") as handle:
        json.dump(cases, handle)
    code, _, err = run(larder, "run", "--model", model, "--ids", f"{folder}/cases.json", "--logits", f"{folder}/logits",
                       "--kv", kv, "--threads", "1")
    assert code == 0, err
    found = tensors(f"{folder}/logits")
    return [log_softmax(row) for row in found["text.logits"]], list(found["answer.continuation"][0])


def expected(base, other, ids):
    n = len(ids) - 1
    loss = -sum(other[i][ids[i + 1]] for i in range(n)) / n
    more = [base[i][ids[i + 1]] - other[i][ids[i + 1]] for i in range(n)]
    mean = sum(more) / n
    kl = sum(math.exp(p) * (p - q) for i in range(n) for p, q in zip(base[i], other[i])) / n
    same = sum(base[i].index(max(base[i])) == other[i].index(max(other[i])) for i in range(n)) / n
    error = math.exp(mean) * math.sqrt(sum((m - mean) ** 2 for m in more)) / n
    return {"perplexity": math.exp(loss), "perplexity_change_percent": 100 * math.expm1(mean), "kl_nats": kl,
            "same_top_share": same, "change_error_percent": 100 * error}


def check_figures(larder, model, folder):
    with open(f"{model}/cases.json", encoding="utf-8") as handle:
        case = next(c for c in json.load(handle)["cases"] if c["name"] == "text500")
    ids, text = case["ids"][:TOKENS + 1], case["text"].encode()
    told = check(larder, model, "--kv", "bf16,fp8,0=f32,fp8", "--tokens", str(TOKENS), stdin=text)
    assert told["tokens"] == TOKENS and told["window"] == 512 and len(told["layers"]) == 5, told
    base, answer = by_hand(larder, model, folder, ids, "bf16")
    assert [f["kv"] for f in told["formats"]] == ["bf16", "fp8,0=f32", "fp8"]
    for f in told["formats"]:
        other, continued = by_hand(larder, model, folder, ids, f["kv"])
        for name, value in expected(base, other, ids).items():
            assert math.isclose(f[name], value, rel_tol=1e-4, abs_tol=1e-7), (f["kv"], name, f[name], value)
        n = told["greedy_tokens"]
        differs = next((i for i in range(n) if answer[i] != continued[i]), None)
        assert n > 0 and f["greedy_differs_at"] == differs, (f, differs)
    same, mix, fp8 = told["formats"]
    assert same["kl_nats"] == 0 and same["perplexity_change_percent"] == 0 and same["same_top_share"] == 1, same
    assert fp8["bytes_per_token"] == 820 and mix["bytes_per_token"] == 4 * 164 + 576, told
    # One layer alone: what another way of writing the same formats gives.
    alone = check(larder, model, "--kv", "bf16,3=fp8", "--tokens", str(TOKENS), stdin=text)["formats"][0]
    assert alone["kl_nats"] == told["layers"][3]["kl_nats"] > 0, (alone, told["layers"])
    return text


def check_trained(larder, model, text):
    """All formats, and what they are allowed to cost this model."""
    told = check(larder, model, "--window", "128", "--tokens", "200", stdin=text)
    by_name = {f["kv"]: f for f in told["formats"]}
    assert {name: f["bytes_per_token"] for name, f in by_name.items()} == BYTES, by_name
    assert abs(by_name["int8"]["perplexity_change_percent"]) < 0.5, by_name["int8"]
    assert abs(by_name["fp8"]["perplexity_change_percent"]) < 1, by_name["fp8"]
    assert by_name["fp8"]["kl_nats"] > by_name["int8"]["kl_nats"] > 0
    assert told["advice"]["kv"] == "fp8" and told["advice"]["layers_at_16_bits"] == []
    assert told["advice"]["text"].startswith("fp8 as it is: ") and "within 1 %: fine" in told["advice"]["text"]
    few = ("--window=128", "--tokens=60", "--kv=fp8,int8-128")
    told = check(larder, model, *few, stdin=text)
    code, out, err = run(larder, "kv-check", "--model", model, "--text=-", *few, "--threads=1", stdin=text)
    assert code == 0 and not err, err
    for f in told["formats"]:
        name = f["kv"]
        row = re.search(rf"^{name} +(\d+) +([\d.]+) +([-+][\d.]+) % \+- ([\d.]+) +([\d.]+) +([\d.]+) %  \w", out, re.M)
        assert row and float(row.group(2)) == round(f["perplexity"], 3), (name, out)
    layers = [int(n) for n in re.findall(r"^ +(\d) +[\d.]+ +[-+]", out, re.M)]
    assert layers == sorted(range(5), key=lambda i: -told["layers"][i]["kl_nats"]), out
    assert out.rstrip().endswith(told["advice"]["text"]), out


def scaled(data, begin, count, step, power):
    """Multiplies every step-th of `count` BF16 numbers by 2^power: their exponents."""
    for at in range(begin, begin + 2 * count, 2 * step):
        bits = struct.unpack_from("<H", data, at)[0]
        exponent = bits >> 7 & 0xFF
        if exponent + power > 0:
            struct.pack_into("<H", data, at, bits & 0x807F | (exponent + power) << 7)
        else:
            struct.pack_into("<H", data, at, 0)


def check_outlier(larder, model, folder, text):
    """The first value of layer 2's latents times 2^40, and what reads it divided by as much: the same model, but fp8's
    scale leaves nothing of the other values. Keeping this layer at 16 bits mends it, and no other does."""
    broken = f"{folder}/outlier"
    shutil.copytree(model, broken)
    with open(f"{broken}/model.safetensors", "rb") as handle:
        data = bytearray(handle.read())
    size = struct.unpack("<Q", data[:8])[0]
    told = json.loads(data[8:8 + size])
    for name, step, power in [("kv_a_layernorm", 1 << 20, 40), ("kv_b_proj", 128, -40)]:
        tensor = told[f"model.layers.2.self_attn.{name}.weight"]
        assert tensor["dtype"] == "BF16" and tensor["shape"][-1] == 128, tensor
        begin, end = tensor["data_offsets"]
        scaled(data, 8 + size + begin, (end - begin) // 2, step, power)
    with open(f"{broken}/model.safetensors", "wb") as handle:
        handle.write(data)
    few = ("--window", "128", "--tokens", "120", "--kv", "fp8,f32")
    now, before = (check(larder, m, *few, stdin=text) for m in (broken, model))
    fp8, f32 = now["formats"]
    assert math.isclose(f32["perplexity"], before["formats"][1]["perplexity"], rel_tol=1e-3), (now, before)
    assert fp8["perplexity_change_percent"] > 1 and fp8["kl_nats"] > 20 * before["formats"][0]["kl_nats"], now
    assert max(now["layers"], key=lambda f: f["kl_nats"])["layer"] == 2, now["layers"]
    advice = now["advice"]
    assert advice["kv"] == "fp8,2=bf16" and advice["layers_at_16_bits"] == [2], advice
    assert advice["perplexity_change_percent"] <= 1 and advice["bytes_per_token"] == 4 * 164 + 288, advice
    assert "over 1 %. fp8,2=bf16: " in advice["text"] and "1 of 5 layers at 16 bits" in advice["text"], advice
    loose = check(larder, broken, *few, "--limit", "100000", stdin=text)["advice"]
    assert loose["kv"] == "fp8" and "within 100000 %: fine" in loose["text"], loose


def check_refusals(larder, model, folder):
    whole = ("--model", model, "--text", "-")
    rows = [
        ((), 2, "--model is missing"),
        (("--model", model), 2, "--text is missing"),
        ((*whole, "--jsno"), 2, "did you mean --json?"),
        ((*whole, "--json=1"), 2, "--json takes no value"),
        ((*whole, "--tokens"), 2, "--tokens needs a value"),
        ((*whole, "--tokens", "1"), 2, "--tokens 1: expected 2 or more"),
        ((*whole, "--window", "1"), 2, "--window 1: expected 2 or more"),
        ((*whole, "--window", "513"), 1, "--window 513: the model's context is 512"),
        ((*whole, "--window", "2"), 1, "a window of 2 tokens is too short"),
        ((*whole, "--limit", "-1"), 2, "--limit -1: expected per cent, 0 or more"),
        ((*whole, "--limit", "nan"), 2, "--limit nan: expected per cent, 0 or more"),
        ((*whole, "--kv", "bf16,q4_0"), 2, "--kv 'q4_0': no latent is kept in fewer than 8 bits"),
        ((*whole, "--kv", "bf16,,fp8"), 2, "--kv '': '' is no format"),
        ((*whole, "--kv", "fp8,5=bf16"), 1, "'5=bf16': there is no layer 5"),
        ((*whole, "--kv", ",".join(["fp8"] * 33)), 2, "more than 32 formats"),
        ((*whole, "--activations", "int4"), 2, "--activations int4: expected f32"),
        (("--model", "/nowhere/at/all", "--text", "-"), 1, "/nowhere/at/all: "),
        (("--model", model, "--text", "/nowhere/at/all"), 1, "/nowhere/at/all: "),
    ]
    for arguments, code, says in rows:
        got, out, err = run(larder, "kv-check", *arguments, stdin=b"some words")
        assert got == code and says in err and not out, (arguments, got, err)
    code, out, _ = run(larder, "kv-check", "--help")
    assert code == 0 and out.startswith("usage: larder kv-check"), out
    code, _, err = run(larder, "kv-check", *whole, stdin=b"")
    assert code == 1 and "nothing to score" in err, err
    damaged = f"{folder}/damaged"
    shutil.copytree(model, damaged)
    with open(f"{damaged}/model.safetensors", "r+b") as handle:
        handle.seek(-384, os.SEEK_END)  # the last norm
        handle.write(b"\x7f" * 384)
    code, _, err = run(larder, "kv-check", "--model", damaged, "--text", "-", stdin=b"some words")
    assert code == 1 and "not finite" in err, err


def main():
    larder, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        check_refusals(larder, model, folder)
        text = check_figures(larder, model, folder)
        check_trained(larder, model, text)
        check_outlier(larder, model, folder, text)
    print("larder kv-check: figures, advice, and every refusal")


main()
