#!/usr/bin/env python3
"""larder inspect on made-up models: what it says of good ones in both forms, and of those that lack something.

usage: inspect_check.py LARDER WRITE_MODEL TOKENIZER.json
"""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

LARDER, WRITER, TOKENIZER = sys.argv[1:4]
failures = []


def inspect(*args):
    done = subprocess.run([LARDER, "inspect", *args], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def check(name, condition, found=""):
    if not condition:
        failures.append(name)
        print(f"{name}: {str(found)[-900:]}", file=sys.stderr)


def write(path, *args):
    subprocess.run([WRITER, path, *args, "--layers", "2", "--vocab", "300"], check=True)
    return path


def read_json(path, *args):
    code, out, err = inspect("--json", *args, path)
    try:
        return code, json.loads(out)
    except ValueError:
        check("json of " + path, False, out + err)
        return code, {}


def patch(path, old, new):
    """Changes bytes of a file without moving others."""
    with open(path, "rb") as f:
        data = f.read()
    assert len(old) == len(new) and old in data, old
    with open(path, "wb") as f:
        f.write(data.replace(old, new, 1))


def edit_config(folder, **fields):
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    config.update(fields)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)


def put(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)


def good_folder(box):
    path = write(os.path.join(box, "v3"), "--folder", "--shape", "tiny-v3", "--type", "F8_E4M3")
    code, out, err = inspect(path)
    check("folder runs", code == 0 and not err, out + err)
    for line in ("form          Hugging Face folder, 1 file, ", "architecture  deepseek_v3 (DeepseekV3ForCausalLM)",
                 "tokenizer     none", "template      none", "larder can run it on token ids alone: there is no tokenizer\n"):
        check("folder: " + line, line in out, out)
    code, j = read_json(path)
    check("folder json", code == 0 and j["runs"] and j["refused"] is None and j["lacks"] == [], j)
    check("folder dimensions", j["dimensions"]["num_hidden_layers"] == 2 and j["dimensions"]["q_lora_rank"] == 256, j)
    total = sum(k["tensors"] for k in j["by_kind"].values())
    check("kinds are all", total == j["all"]["tensors"] == sum(t["tensors"] for t in j["by_type"].values()), j)
    check("bytes are all", sum(k["bytes"] for k in j["by_kind"].values()) == j["all"]["bytes"], j)
    check("experts", j["by_kind"]["experts"]["tensors"] == 16 * 3 * 2, j)  # each has its scales
    check("scales are no parameters", j["by_kind"]["experts"]["parameters"] == 16 * 3 * 96 * 256, j)
    check("nothing is other", "other" not in j["by_kind"], j)
    check("no list unless asked", "tensors" not in j, j)
    return path


def texts(path):
    """Tokenizer and template: there, of another kind, refused with the reason."""
    shutil.copy(TOKENIZER, os.path.join(path, "tokenizer.json"))
    put(path, "tokenizer_config.json", json.dumps({"chat_template": "{{ messages }}"}))
    code, out, err = inspect(path)
    check("tokenizer", re.search(r"^tokenizer     BPE, \d+ ids, tokenizer.json$", out, re.M), out)
    check("template", "template      14 bytes of Jinja\n" in out, out)
    check("runs with text", code == 0 and out.endswith("larder can run it\n"), out)
    j = read_json(path)[1]
    check("texts json", j["tokenizer"]["supported"] and j["template"]["text"] == "14 bytes of Jinja", j)
    put(path, "tokenizer_config.json", json.dumps({"chat_template": [{"name": "default", "template": "{% include 'x' %}"}]}))
    code, out, err = inspect(path)
    check("template refused", code == 0 and "template      not supported: " in out and "include" in out, out)
    check("refused json", read_json(path)[1]["template"]["supported"] is False)
    put(path, "chat_template.jinja", "x" * 20)
    check("template of its own", "template      20 bytes of Jinja\n" in inspect(path)[1])
    put(path, "tokenizer.json", "{")
    code, out, err = inspect(path)
    check("broken tokenizer", "tokenizer     not supported: " in out and "it does not read its tokenizer" in out, out)
    os.remove(os.path.join(path, "tokenizer.json"))
    put(path, "tokenizer.model", "abc")
    check("another kind", "tokenizer     not supported: tokenizer.model alone" in inspect(path)[1], inspect(path))
    put(path, "tiktoken.model", "abc")
    check("broken tiktoken", "tokenizer     not supported: tiktoken.model: line 1: " in inspect(path)[1], inspect(path))
    letters = "".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256))
    put(path, "tiktoken.model", letters)
    put(path, "tokenizer_config.json", json.dumps({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {}}))
    check("tiktoken", "tokenizer     BPE, 512 ids, tiktoken.model\n" in inspect(path)[1], inspect(path))


def good_gguf(box):
    path = write(os.path.join(box, "lite.gguf"), "--type", "Q4_K")
    code, out, err = inspect(path, "--tensors")
    check("gguf runs", code == 0 and not err, out + err)
    for line in ("form          GGUF, 1 file, ", "architecture  deepseek2 (made up)",
                 "tokenizer     BPE, 300 ids, deepseek-llm\n", "template      none\n", "larder can run it\n"):
        check("gguf: " + line, line in out, out)
    check("gguf lists", "blk.1.ffn_down_exps.weight" in out and "(8, 256, 96)" in out, out)
    code, j = read_json(path, "--tensors")
    check("gguf json", code == 0 and len(j["tensors"]) == j["all"]["tensors"] and j["runs"], j)
    check("gguf types", set(j["by_type"]) == {"F32", "Q4_K", "Q5_0"}, j)
    names = {t["name"]: t for t in j["tensors"]}
    check("gguf shape", names["blk.0.attn_k_b.weight"]["shape"] == [4, 256, 64], j)
    check("gguf is split", "blk.0.attn_kv_b.weight" not in names, names)
    legacy = write(os.path.join(box, "legacy.gguf"), "--legacy", "--shape", "tiny-v3")
    check("legacy runs", inspect(legacy)[0] == 0, inspect(legacy))
    patch(path, b"made up", b"\x1b[1mup!")
    check("harmless name", "\x1b" not in inspect(path)[1] and "\\x1b[1mup!" in inspect(path)[1], inspect(path)[1])
    patch(path, b"general.name", b"general.nam\xff")
    code, out, err = inspect(path)
    check("odd key", code == 1 and not out and "metadata entry 1" in err, err)


def lacking(box):
    path = write(os.path.join(box, "lacks"), "--folder")
    weights = os.path.join(path, "model.safetensors")
    patch(weights, b"model.layers.1.mlp.experts.3.up_proj.weight", b"model.layers.1.mlp.experts.3.xx_proj.weight")
    code, out, err = inspect(path)
    check("missing", code == 1 and "missing: model.layers.1.mlp.experts.3.up_proj.weight (96, 256)\n" in out, out + err)
    check("missing verdict", "larder cannot run it: 1 tensors are missing" in out, out)
    code, j = read_json(path)
    check("missing json", code == 1 and not j["runs"] and j["lack_count"] == 1 and j["lacks"][0]["found"] is None, j)
    check("of no use", j["by_kind"]["other"]["tensors"] == 1, j)
    edit_config(path, intermediate_size=256)
    check("shape", "wrong shape: model.layers.0.mlp.down_proj.weight: expected (256, 256), found (256, 512)\n"
          in inspect(path)[1], inspect(path))
    edit_config(path, vocab_size=301, hidden_size=128)
    code, out, err = inspect(path)
    check("many", code == 1 and "... and " in out, out)
    edit_config(path, model_type="llama", architectures=["LlamaForCausalLM"])
    code, out, err = inspect(path)
    check("refused", code == 1 and "architecture  llama (LlamaForCausalLM)" in out and "larder cannot run it: " in out, out)
    check("refused json", read_json(path)[1]["refused"], out)
    put(path, "config.json", "{")
    code, out, err = inspect(path)
    check("no config", code == 1 and "larder cannot run it: " in out, out)
    os.truncate(weights, os.path.getsize(weights) - 1)
    code, out, err = inspect(path)
    check("cut", code == 1 and not out and path in err and "model.safetensors: tensor " in err and "cut short" in err, err)
    os.remove(os.path.join(path, "config.json"))
    check("empty folder", "the folder has no config.json" in inspect(path)[2])
    check("no such", "there is no such file" in inspect(os.path.join(box, "absent"))[2])


def usage():
    for args in ([], ["--nonsense", "x"], ["a", "b"]):
        code, out, err = inspect(*args)
        check(f"usage {args}", code == 2 and "usage: larder inspect" in err and not out, err)
    code, out, err = inspect("--help")
    check("help", code == 0 and out.startswith("usage: larder inspect") and not err, out)


def main():
    with tempfile.TemporaryDirectory() as box:
        texts(good_folder(box))
        good_gguf(box)
        lacking(box)
        usage()
    print("inspect:", f"{len(failures)} failed" if failures else "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
