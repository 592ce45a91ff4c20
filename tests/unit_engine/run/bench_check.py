#!/usr/bin/env python3
"""larder bench-model on a golden model: the form of its reports, and what it says when something is wrong. No figure of
it is judged.

usage: bench_check.py LARDER GOLDEN_MODELS
"""
import csv
import subprocess
import sys


def bench(larder, *arguments):
    done = subprocess.run([larder, "bench-model", *arguments], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def check_reports(larder, model):
    short = ("--model", model, "--prompt", "20", "--decode=3", "--rounds", "2", "--threads", "2")
    code, out, err = bench(larder, *short, "--csv")
    assert (code, err) == (0, ""), (code, err)
    rows = list(csv.DictReader(out.splitlines()))
    assert [r["round"] for r in rows] == ["1", "2", "median"], out
    for row in rows:
        assert all(float(row[name]) > 0 for name in row if name not in ("round", "share")), out
    code, out, err = bench(larder, *short, "--cpu", "scalar", "--kv", "fp8")
    assert code == 0 and "scalar kernels, 2 threads" in out and len(out.splitlines()) == 5, out
    assert "latents in fp8\n" in out, out
    code, out, err = bench(larder, *short, "--expert-bytes", "200K")
    assert code == 0 and "\n[experts: 0." in out and "% of " in out and " read at " in out, (out, err)
    code, out, err = bench(larder, *short, "--expert-bytes", "1G")
    assert code == 0 and "[experts:" not in out, (out, err)


def check_refusals(larder, model):
    for arguments, says in [((), "--model is missing"), (("--modell", "x"), "did you mean --model?"),
                            (("--model", model, "--rounds", "0"), "--rounds 0: expected 1 to 99"),
                            (("--model", model, "--decode", "x"), "--decode x: expected 1 to"),
                            (("--model", model, "--threads", "999"), "--threads 999: expected 1 to 256"),
                            (("--model", model, "--expert-bytes", "4X"), "--expert-bytes 4X: expected a size as 4G")]:
        code, out, err = bench(larder, *arguments)
        assert (code, out) == (2, "") and says in err, (arguments, err)
    code, out, err = bench(larder, "--model", model, "--expert-bytes", "100")
    assert (code, out) == (1, "") and "100 bytes for experts: at least " in err, err
    code, out, err = bench(larder, "--model", "no-such-model")
    assert (code, out) == (1, "") and "no-such-model" in err, err
    code, out, err = bench(larder, "--model", model, "--prompt", "5000")
    assert (code, out) == (1, "") and "the model's context is 4096" in err, err


def main():
    larder, models = sys.argv[1:]
    check_reports(larder, f"{models}/v2lite-bf16")
    check_refusals(larder, f"{models}/v2lite-bf16")
    print("larder bench-model: reports in both forms, and every refusal")


main()
