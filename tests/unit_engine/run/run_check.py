#!/usr/bin/env python3
"""larder run --ids on a golden model, and what it says when something is wrong.

usage: run_check.py LARDER GOLDEN_MODELS
"""
import array
import json
import os
import shutil
import stat
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


def check_formats(larder, model, folder):
    """Latents in fewer bits: other logits, near by (typically: a choice of experts may flip), and the same ones whatever the number of threads."""
    out = f"{folder}/kv"
    seen = []
    for kv, most in [("f32", 2e-3), ("f16", 0.01), ("bf16", 0.03), ("int8", 0.1), ("fp8", 0.3), ("int8-128", 0.2)]:
        both = []
        for threads in "1", "2":
            code, err = run(larder, "--model", model, "--ids", f"{model}/cases.json", "--logits", out, "--kv", kv,
                            "--threads", threads)
            assert (code, err) == (0, ""), (code, err)
            with open(out, "rb") as handle:
                both.append(handle.read())
        assert both[0] == both[1] and both[0] not in seen, kv
        seen.append(both[0])
        got, wanted = load(out), load(f"{model}/expected.safetensors")
        for name, (_, values) in wanted.items():
            mean = sum(values) / len(values)
            deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
            off = (sum((a - b) ** 2 for a, b in zip(values, got[name][1])) / len(values)) ** 0.5
            assert off < most * deviation, (kv, name, off / deviation)
    os.remove(out)


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
                            ((*whole, "--perplexity", "x"), "--perplexity does nothing with --ids"),
                            ((*whole, "-p", "x"), "--prompt does nothing with --ids"),
                            ((*whole, "--raw"), "--raw does nothing with --ids"),
                            ((*whole, "--temperature", "0"), "--temperature does nothing with --ids"),
                            ((*whole, "--context=9"), "--context does nothing with --ids"),
                            (("--model", model, "--perplexity", "x", "--seed", "1"),
                             "--seed does nothing with --perplexity"),
                            ((*whole, "--threads", "0"), "--threads 0: expected 1 to"),
                            ((*whole, "--activations", "int4"), "expected f32, bf16, int8 or by-type"),
                            ((*whole, "--kv", "fp4"), "--kv 'fp4': no latent is kept in fewer than 8 bits"),
                            ((*whole, "--expert-bytes", "-1"), "--expert-bytes -1: expected a size as 4G or 512M"),
                            ((*whole, "--kv", "f64"), "'f64' is no format; expected one of f32, f16, bf16, int8, fp8, int8-128"),
                            ((*whole, "--kv", "fp8,0=bf16,0-1=f32"), "--kv '0-1=f32': layer 0 was named before")]:
        code, err = run(larder, *arguments)
        assert code == 2 and says in err, (arguments, err)


def check_output_kinds(larder, model, folder):
    """A link keeps pointing at the file that is written; a FIFO or a device gets the bytes and stays what it is."""
    case = '{"cases": [{"name": "a", "ids": [1, 2]}]}'
    target, link, fifo = f"{folder}/target", f"{folder}/link", f"{folder}/fifo"
    with open(target, "wb"):
        os.symlink("target", link)
    assert run(larder, "--model", model, "--ids", "-", "--logits", link, stdin=case) == (0, "")
    assert os.path.islink(link) and load(target)["a.logits"][0] == [1, 320]
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        assert run(larder, "--model", model, "--ids", "-", "--logits", fifo, stdin=case) == (0, "")
        got, _ = reader.communicate(timeout=60)
    with open(target, "rb") as handle:
        assert got == handle.read() and stat.S_ISFIFO(os.stat(fifo).st_mode)


def check_damaged(larder, model, folder):
    """Weights that overflow are an error, not an answer."""
    damaged, out = f"{folder}/damaged", f"{folder}/out"
    shutil.copytree(model, damaged)
    with open(f"{damaged}/model.safetensors", "r+b") as handle:
        handle.seek(-4096, os.SEEK_END)
        handle.write(b"\x7f" * 4096)
    code, err = run(larder, "--model", damaged, "--ids", f"{model}/cases.json", "--logits", out)
    assert code == 1 and "logits are not finite" in err and not os.path.exists(out), (code, err)
    with open(f"{damaged}/config.json", "w", encoding="utf-8") as handle:
        handle.write("{")
    code, err = run(larder, "--model", damaged, "--ids", f"{model}/cases.json", "--logits", out)
    assert code == 1 and f"{damaged}: config.json: the JSON ends" in err, (code, err)
    os.remove(f"{damaged}/config.json")
    os.mkfifo(f"{damaged}/config.json")  # nothing will ever be written to it
    done = subprocess.run([larder, "plan", "--model", damaged], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "regular file" in done.stderr, done.stderr


def check_v32(larder, model, folder):
    """Beyond what larder computes of DeepSeek-V3.2 it says why."""
    v32 = f"{folder}/v32"
    shutil.copytree(model, v32)
    with open(f"{v32}/config.json", encoding="utf-8") as handle:
        config = json.load(handle)
    config.update(model_type="deepseek_v32", max_position_embeddings=4096)
    with open(f"{v32}/config.json", "w", encoding="utf-8") as handle:
        json.dump(config, handle)
    long = json.dumps({"cases": [{"name": "long", "ids": [1] * 2049}]})
    code, err = run(larder, "--model", v32, "--ids", "-", "--logits", f"{folder}/out", stdin=long)
    assert code == 1 and "the model's context is 2048 (larder reads DeepSeek-V3.2 as far as" in err, (code, err)


def main():
    larder, models = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        check_golden(larder, f"{models}/glm-flash-bf16", f"{folder}/logits", "--cpu=reference", "--threads", "1")
        check_golden(larder, f"{models}/glm-flash-bf16", f"{folder}/logits", "--expert-bytes", "100K")
        check_golden(larder, f"{models}/glm-flash-bf16", f"{folder}/logits")
        os.remove(f"{folder}/logits")
        check_formats(larder, f"{models}/glm-flash-bf16", folder)
        check_refusals(larder, f"{models}/glm-flash-bf16", folder)
        check_output_kinds(larder, f"{models}/glm-flash-bf16", folder)
        check_damaged(larder, f"{models}/glm-flash-bf16", folder)
        check_v32(larder, f"{models}/v3-fp8", folder)
    print("larder run: logits of a golden model, greedy ids, formats of latents, and every refusal")


main()
