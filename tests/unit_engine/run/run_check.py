#!/usr/bin/env python3
"""larder run --ids on a golden model, and what it says when something is wrong.

usage: run_check.py LARDER GOLDEN_MODELS
"""
import array
import json
import os
import struct
import subprocess
import sys
import tempfile

TOLERANCE = 2e-3  # of the logits' standard deviation; tests/golden/README.md


def load(path):
    with open(path, "rb") as handle:
        data = handle.read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = t["shape"], array.array("i" if t["dtype"] == "I32" else "f", data[8 + n + begin:8 + n + end])
    return out


def run(larder, *arguments, stdin=None):
    done = subprocess.run([larder, "run", *arguments], input=stdin, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def check_golden(larder, model, out, *options):
    code, err = run(larder, "--model", model, "--ids", f"{model}/cases.json", "--logits", out, *options)
    assert (code, err) == (0, ""), (code, err)
    got, wanted = load(out), load(f"{model}/expected.safetensors")
    for name, (shape, values) in wanted.items():
        mean = sum(values) / len(values)
        deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
        off = max(abs(a - b) for a, b in zip(values, got[name][1]))
        assert got[name][0] == shape and off < TOLERANCE * deviation, (name, off / deviation)
    with open(f"{model}/cases.json", encoding="utf-8") as handle:
        greedy = next(c for c in json.load(handle)["cases"] if "continuation" in c)
    assert list(got["greedy.continuation"][1]) == greedy["continuation"]
    assert max(abs(a - b) for a, b in zip(got["greedy.margin"][1], greedy["margin"])) < 1e-3


def check_refusals(larder, model, folder):
    out = f"{folder}/out"
    rows = [
        (['{"cases": [{"name": "a", "ids": [1, 99999]}]}'], "case a: token id 99999; the vocabulary ends at 319"),
        (['{"cases": [{"name": "a", "ids": []}]}'], "the case has no ids (at byte 11)"),
        (['{"cases": [{"name": "a", "ids": [1], "positions": [1]}]}'], "position 1 of 1 tokens"),
        (['{"cases": [{"name": "a", "ids": [1, 2], "positions": [1, 0]}]}'], "positions that do not ascend"),
        (['{"cases": [{"ids": [1]}]}'], "the case has no name"),
        (['{"cases": [{"name": "a", "ids": [-1]}]}'], "expected a token id"),
        (['{"cases": [{"name": "a", "ids": [1]}, {"name": "a", "ids": [1]}]}'], "two cases have one name"),
        (['{"cases": []}'], "a list of cases"),
        (["[1, 2"], "expected"),
    ]
    for (text,), says in rows:
        code, err = run(larder, "--model", model, "--ids", "-", "--logits", out, stdin=text)
        assert code == 1 and says in err, (text, code, err)
        assert not os.path.exists(out) and not os.path.exists(out + ".new"), text
    long = json.dumps({"cases": [{"name": "long", "ids": [1] * 4097}]})
    code, err = run(larder, "--model", model, "--ids", "-", "--logits", out, stdin=long)
    assert code == 1 and "4097 tokens; the model's context is 4096" in err, err
    code, err = run(larder, "--model", folder, "--ids", f"{model}/cases.json", "--logits", out)
    assert code == 1 and folder in err and "config.json" in err, err
    code, err = run(larder, "--model", model, "--ids", f"{model}/cases.json", "--logits", f"{folder}/no/out")
    assert code == 1 and "No such file" in err, err
    whole = ("--model", model, "--ids", f"{model}/cases.json", "--logits", out)
    code, err = run(larder, *whole, "--cpu", "mmx")
    assert code == 1 and "no path 'mmx'; choose auto" in err, err
    for arguments, says in [((), "--model is missing"), (("--modle", "x"), "did you mean --model?"),
                            (("--model",), "needs a value"), (("--model", model, "--logits", "x"), "--ids is missing"),
                            (("--model", model, "--ids", "x"), "--logits is missing"),
                            ((*whole, "--threads", "0"), "--threads 0: expected 1 to"),
                            ((*whole, "--activations", "int4"), "expected f32, bf16, int8 or by-type")]:
        code, err = run(larder, *arguments)
        assert code == 2 and says in err, (arguments, err)


def main():
    larder, models = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        check_golden(larder, f"{models}/glm-flash-bf16", f"{folder}/logits", "--cpu=reference", "--threads", "1")
        check_golden(larder, f"{models}/glm-flash-bf16", f"{folder}/logits")
        os.remove(f"{folder}/logits")
        check_refusals(larder, f"{models}/glm-flash-bf16", folder)
    print("larder run: logits of a golden model, greedy ids, and every refusal")


main()
