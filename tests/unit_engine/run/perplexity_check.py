#!/usr/bin/env python3
"""larder run --perplexity on the trained model and on a GGUF with random weights, and what it refuses; a chat.

usage: perplexity_check.py LARDER WRITE_MODEL TRAINED_MODEL
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile


def run(larder, *arguments, stdin=None):
    done = subprocess.run([larder, "run", *arguments], input=stdin, capture_output=True, timeout=300, check=False)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def score(larder, *arguments, stdin=None):
    """(perplexity, tokens)"""
    code, out = run(larder, *arguments, stdin=stdin)
    found = re.fullmatch(r"perplexity ([0-9.]+) on (\d+) tokens, windows of (\d+)\n", out)
    assert code == 0 and found and found.group(3) == "512", (code, out)
    return float(found.group(1)), int(found.group(2))


def check_trained(larder, model):
    """The figures of tests/train/reference.py for one text, by file and by standard input."""
    with open(f"{model}/cases.json", encoding="utf-8") as f:
        told = json.load(f)
    text = next(c["text"] for c in told["cases"] if c["name"] == "text500").encode()
    expected = told["perplexity"][-1]
    value, tokens = score(larder, "--model", model, "--perplexity", "-", stdin=text)
    assert tokens == expected["tokens"] and abs(value / expected["value"] - 1) < 1e-4, (value, tokens, expected)
    rounded, _ = score(larder, "--model", model, "--perplexity=-", "--activations", "int8", stdin=text)
    assert abs(rounded / value - 1) < 0.03, (rounded, value)
    backwards = " ".join(reversed(text.decode().split())).encode()
    worse, _ = score(larder, "--model", model, "--perplexity", "-", stdin=backwards)
    assert worse > 1.5 * value, (worse, value)


def check_chat(larder, model):
    """What it knows by heart, turn after turn, through its own template and sampling at temperature 0."""
    code, out = run(larder, "--model", model, "--temperature", "0", "--activations", "f32",
                    stdin=b"Hello\nWhat is a house?\nWho are you?\n")
    answers = [line for line in out.splitlines() if line]
    assert code == 0 and answers == [
        "Hello! Which word may I explain?",
        "A dwelling that serves as living quarters for one or more families.",
        "I am a very small language model. I explain words."], (code, out)


def check_random(larder, write_model, folder):
    """Random weights know nothing: at best each of the words is as likely as any other. The text spans two windows."""
    path = f"{folder}/random.gguf"
    subprocess.run([write_model, path, "--shape", "tiny-lite", "--type", "Q8_0"], check=True)
    value, tokens = score(larder, "--model", path, "--perplexity", "-", stdin=b"then " * 150)
    assert tokens == 600 and value > 50, (value, tokens)


def check_refusals(larder, model):
    rows = [
        (("--perplexity", "-", "--prompt", "x"), b"a", 2, "--prompt does nothing with --perplexity"),
        (("--perplexity", "-"), b"", 1, "nothing to score"),
        (("--perplexity", "/nowhere/at/all"), b"", 1, "/nowhere/at/all: "),
        (("--perplexity",), b"", 2, "needs a value"),
    ]
    for arguments, stdin, code, says in rows:
        got, out = run(larder, "--model", model, *arguments, stdin=stdin)
        assert got == code and says in out, (arguments, got, out)


def check_damaged(larder, model, folder):
    damaged = f"{folder}/damaged"
    shutil.copytree(model, damaged)
    with open(f"{damaged}/model.safetensors", "r+b") as handle:
        handle.seek(-384, os.SEEK_END)  # the last norm
        handle.write(b"\x7f" * 384)
    code, out = run(larder, "--model", damaged, "--perplexity", "-", stdin=b"some words")
    assert code == 1 and "not finite" in out, (code, out)


def main():
    larder, write_model, model = sys.argv[1:]
    check_trained(larder, model)
    check_refusals(larder, model)
    check_chat(larder, model)
    with tempfile.TemporaryDirectory() as folder:
        check_random(larder, write_model, folder)
        check_damaged(larder, model, folder)
    print("larder run --perplexity: a trained model, a random one, and every refusal")


main()
