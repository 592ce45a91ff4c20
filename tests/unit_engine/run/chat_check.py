#!/usr/bin/env python3
"""larder run with text: a made-up model with a small tokenizer and a template of its own.

usage: chat_check.py LARDER WRITE_MODEL TOKENIZER_JSON GOLDEN_MODELS
"""
import array
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile

TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<｜User｜>' if m.role == 'user' else m.role + ': ' }}{{ m.content }}"
            "{% endfor %}{% if add_generation_prompt %}A:{% endif %}")


class Model:
    def __init__(self, larder, folder):
        self.larder, self.folder = larder, folder

    def write(self, name, value):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as handle:
            json.dump(value, handle)

    def run(self, *arguments, stdin=""):
        done = subprocess.run([self.larder, "run", "--model", self.folder, *arguments], input=stdin.encode(),
                              capture_output=True, timeout=300)
        return done.returncode, done.stdout, done.stderr.decode()

    def says(self, *arguments, stdin=""):
        code, out, err = self.run(*arguments, stdin=stdin)
        assert (code, err) == (0, ""), (arguments, code, err)
        out.decode()  # whole characters only
        return out


def greedy_ids(model, ids, count):
    """The continuation of ids, by way of --ids."""
    path = os.path.join(model.folder, "logits")
    cases = json.dumps({"cases": [{"name": "a", "ids": ids, "continuation": [0] * count}]})
    model.says("--ids", "-", "--logits", path, stdin=cases)
    with open(path, "rb") as handle:
        data = handle.read()
    n = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + n])["a.continuation"]["data_offsets"]
    return list(array.array("i", data[8 + n + begin:8 + n + end]))


def check_sampling(model):
    say = ("-p", "hello", "--max-tokens", "12")
    assert model.says(*say, "--seed", "3") == model.says(*say, "--seed", "3")
    assert len({model.says(*say, "--seed", str(s)) for s in range(4)}) > 1
    greedy = model.says(*say, "--temperature", "0")
    assert greedy == model.says(*say, "--temperature", "0", "--seed", "9")
    assert greedy == model.says(*say, "--top-k", "1") == model.says(*say, "--top-p", "0.000001")
    long = ("-p", "hello", "--max-tokens", "60", "--temperature", "5", "--seed", "1")
    for penalty in ("--repetition-penalty", "0.01"), ("--frequency-penalty", "-2"), ("--presence-penalty", "-2"):
        assert model.says(*long) != model.says(*long, *penalty), penalty  # each asks for what was said before
    model.write("generation_config.json", {"do_sample": False})
    assert greedy == model.says(*say)
    os.remove(os.path.join(model.folder, "generation_config.json"))


def check_ends(model, tokenizer):
    """The answer stops at an end token, and is what --ids gives, decoded."""
    with open(tokenizer, encoding="utf-8") as handle:
        vocab = json.load(handle)["model"]["vocab"]
    for letter in "abcdefgh":
        ids = greedy_ids(model, [vocab[letter]], 8)
        at = next((i for i in range(2, 8) if ids[i] not in ids[:i]), None)
        if at is None:
            continue
        raw = ("--raw", "-p", letter, "--temperature", "0", "--max-tokens")
        whole, short = model.says(*raw, "8"), model.says(*raw, str(at))
        model.write("generation_config.json", {"eos_token_id": [511, ids[at]]})
        assert model.says(*raw, "8") == short and whole.startswith(short[:-1].rstrip(b"\xef\xbf\xbd")), (whole, short)
        os.remove(os.path.join(model.folder, "generation_config.json"))
        return
    raise AssertionError("no continuation with a token of its own")


def check_prefixes(model):
    """Lines that begin alike share what was computed; their answers are those of one line alone."""
    lines = ["the same beginning, one", "the same beginning, two", "the same", "another", "another"]
    raw = ("--raw", "--temperature", "0", "--max-tokens", "6")
    together = model.says(*raw, stdin="".join(line + "\n" for line in lines))
    assert together == b"".join(model.says(*raw, "-p", line) for line in lines)


def check_template(model):
    """What a user writes is text: the marks of the template in it are other tokens than the template's own."""
    greedy = ("--temperature", "0", "--max-tokens", "6")
    code, _, err = model.run("-p", "x" * 3000, "--context", "64")
    assert code == 1 and "the context is 64" in err, err
    assert model.says("-p", "a", *greedy) != model.says("-p", "a", "--system", "b", *greedy)
    two = model.says(*greedy, stdin="one\n\ntwo\n")
    assert two.startswith(model.says(*greedy, "-p", "one")), two


def check_terminal(model):
    """At a terminal: what was loaded, a prompt for each turn, what each cost. None of it is on standard output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([model.larder, "run", "--model", model.folder, "--max-tokens", "4", "--temperature", "0"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs) as child:
        os.close(theirs)
        out, _ = child.communicate(b"one\n", timeout=300)
    told = b""
    try:
        while part := os.read(ours, 4096):
            told += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert out == model.says("-p", "one", "--max-tokens", "4", "--temperature", "0"), out
    for text in (b"3 of 3 layers", b"[deepseek_v3, 3 layers, context 4096", b"MiB of which", b"> ", b"tokens read"):
        assert text in told, (text, told)


def check_streams(model):
    """What cannot be written or read is said, with nothing of another cause."""
    command = [model.larder, "run", "--model", model.folder, "--max-tokens", "4"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*command, "-p", "a"], stdout=full, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 1 and b"the answer could not be written" in done.stderr, done
    folder = os.open(model.folder, os.O_RDONLY)
    done = subprocess.run(command, stdin=folder, capture_output=True, timeout=300)
    os.close(folder)
    assert done.returncode == 1 and b"standard input could not be read" in done.stderr, done


def check_refusals(model, golden):
    for arguments, says in [(("-p", "a", "--temperature", "-1"), "temperature is -1"),
                            (("-p", "a", "--temperature", "x"), "expected a number"),
                            (("-p", "a", "--top-p", "0"), "top_p is 0"), (("-p", "a", "--seed", "-1"), "--seed"),
                            (("-p", "a", "--top-k", "1.5"), "--top-k"), (("-p", "a", "--max-tokens", "0"), "expected 1"),
                            (("-p", "a", "--ids", "x"), "--logits is missing"), (("-p",), "needs a value"),
                            (("--raw", "--system", "s", "-p", "a"), "no template"),
                            (("-p", "a", "--threads", "0"), "--threads")]:
        code, out, err = model.run(*arguments)
        assert (code, out) == (2, b"") and says in err, (arguments, code, err)
    code, _, err = model.run("-p", "a", "--context", "100000")
    assert code == 1 and "--context 100000: expected 1 to 4096" in err, err
    code, _, err = model.run("-p", "")
    assert code == 0, err  # the template has words of its own
    code, _, err = model.run("--raw", "-p", "")
    assert code == 1 and "nothing to answer" in err, err
    code, _, err = Model(model.larder, golden).run("-p", "a")
    assert code == 1 and "tokenizer.json" in err, err
    model.write("tokenizer_config.json", {"bos_token": "<|begin|>", "eos_token": "<|end|>"})
    code, _, err = model.run("-p", "a")
    assert code == 1 and "no chat template; --raw" in err, err
    model.write("tokenizer_config.json", {"chat_template": "{{ strftime_now('%Y') ~ messages[0].content }}"})
    code, _, err = model.run("-p", "a", "--max-tokens", "1")
    assert code == 0, err  # templates may ask for the day
    model.write("tokenizer_config.json", {"chat_template": "{% include 'x' %}"})
    code, _, err = model.run("-p", "a")
    assert code == 1 and "include" in err, err


def main():
    larder, write_model, tokenizer, models = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([write_model, folder, "--folder", "--shape", "tiny-v3", "--type", "BF16", "--vocab", "512"],
                       check=True, capture_output=True)
        shutil.copy(tokenizer, os.path.join(folder, "tokenizer.json"))
        model = Model(larder, folder)
        model.write("tokenizer_config.json", {"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": TEMPLATE})
        check_sampling(model)
        check_ends(model, tokenizer)
        check_prefixes(model)
        check_template(model)
        check_terminal(model)
        check_streams(model)
        check_refusals(model, f"{models}/v3-fp8")
    print("larder run with text: sampling, ends, shared prefixes, template, refusals")


main()
