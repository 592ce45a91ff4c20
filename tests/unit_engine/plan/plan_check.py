"""The page on `larder plan` shows what it prints: every command on it is run, and its output compared.

usage: plan_check.py LARDER ROOT [--write]     --write puts the present output into the page
"""
import json
import re
import shlex
import subprocess
import sys
import tempfile

PAGE = "docs/howto/plan-memory.md"
# A command, indented, and all lines behind it that are indented or empty.
EXAMPLE = re.compile(r"^    \$ larder (.*)\n((?:(?:    (?!\$ ).*)?\n)*)", re.M)


def run(larder, root, arguments):
    done = subprocess.run([larder] + arguments, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def indented(text):
    return "".join(("    " + line).rstrip() + "\n" for line in text.rstrip("\n").split("\n")) + "\n"


def check_page(larder, root, write):
    with open(f"{root}/{PAGE}", encoding="utf-8") as f:
        page = f.read()
    wrong = []

    def compare(m):
        now = indented(run(larder, root, shlex.split(m.group(1)))[1])
        if now.rstrip() != m.group(2).rstrip():
            wrong.append(f"larder {m.group(1)}\nthe page shows:\n{m.group(2)}now it prints:\n{now}")
        return f"    $ larder {m.group(1)}\n{now}"

    new, count = EXAMPLE.subn(compare, page)
    if write:
        with open(f"{root}/{PAGE}", "w", encoding="utf-8") as f:
            f.write(new)
        return 0
    print("\n".join(wrong) or f"{count} examples as the page shows them")
    return 1 if wrong or count < 5 else 0


# Options, what they end with, and what must be in the output.
CASES = (
    ("plan", 2, "which model?"),
    ("plan --layers 4", 1, "neither heads and their size"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --context", 2, "--context needs a value"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --context 0", 2, "a whole number from 1 to 1073741824"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --context 2000M", 2, "a whole number from 1 to 1073741824"),
    ("plan --layers 5000 --kv-heads 2", 2, "a whole number from 1 to 4096"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --memory 64X", 2, "a size as 64G or 512M"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --memory 1G --reserve 2G", 1, "nothing is left of the memory"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --kv q4", 2, "--kv 'q4': no latent is kept in fewer than 8 bits"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --kv f8", 2, "expected one of f32, f16, bf16, int8, fp8, int8-128"),
    ("plan --layers 4 --rank 64 --rope 8 --kv fp8,4=bf16", 1, "--kv '4=bf16': there is no layer 4"),
    ("plan --layers 4 --rank 64 --rope 8 --kv fp8,0=bf16 --memory 4G", 0,
     "a token   396         bytes: 4 layers in fp8,0=bf16, pages of 64 tokens"),
    ("plan --layers 2 --rank 64 --rope 8 --kv fp8,0-1=bf16 --memory 4G", 0,
     "a token   288         bytes: 2 layers x 144, bf16 (bfloat16), pages of 64 tokens"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --rope 8", 2, "--kv-heads is of attention by heads, --rope of latent"),
    ("plan --layers 4 --rank 64 --rope 8 --value-dim 64", 2, "--value-dim is of attention by heads, --rank of latent"),
    ("plan --model tests/models/tiny-v3 --head-dim 64", 1, "--head-dim changes nothing: the model has latent attention"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --weights q9", 2, "iq4_xs"),
    ("plan --layers 4 --kv-heads 2 --head-dim 64 --preset huge", 2, "long, short or agents"),
    ("plan --sequence 4", 2, "did you mean --sequences?"),
    ("plan tests", 2, "'tests' stands behind no option"),
    ("plan --config nowhere.yaml", 3, "nowhere.yaml"),
    ("plan --config nowhere.yaml --kv fp8", 2, "with --config only --memory and --json"),
    ("plan --model nowhere", 1, "larder: nowhere: "),
    ("plan --model README.md", 1, "README.md: expected a value at byte 0"),
    ("plan --help", 0, "usage: larder plan"),
)


def check_cases(larder, root):
    wrong = 0
    for command, code, text in CASES:
        got, out = run(larder, root, shlex.split(command))
        if got != code or text not in out:
            print(f"larder {command}\nended with {got}, not {code}, or without '{text}':\n{out}")
            wrong += 1
    return wrong


def check_json(larder, root):
    """JSON and table tell the same; sizes with units mean what they say."""
    one = "plan --layers 48 --rank 512 --rope 64 --sequences 8 --parameters 15.7B --weights q4_k --memory 64GiB --json"
    code, out = run(larder, root, one.split())
    told = json.loads(out)
    want = {"memory_bytes": 64 << 30, "verdict": "fits", "missing_bytes": 0}
    want_cache = {"bytes_per_token": 55296, "request_bytes": 432 << 20, "bytes": 3456 << 20, "sequences": 8}
    ok = code == 0 and all(told[k] == v for k, v in want.items())
    ok = ok and all(told["cache"][k] == v for k, v in want_cache.items())
    ok = ok and told["weights"]["bytes"] == 15_700_000_000 // 256 * 144 and told["left_bytes"] > 0
    code, out = run(larder, root, one.replace("64GiB", "6g").split())
    told = json.loads(out)
    ok = ok and code == 1 and told["verdict"] == "over" and told["missing_bytes"] > 0
    ok = ok and any(c["options"] == "--memory 16G" for c in told["changes"])
    if not ok:
        print("the JSON is not as expected:\n" + out)
    return 0 if ok else 1


def check_folder(larder, root):
    """A folder without its weights is planned by its config.json, and says so."""
    config = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        found = [run(larder, root, ["plan", "--model", path, "--memory", "64G", "--json"])[1]
                 for path in (folder, f"{folder}/config.json")]
    told = [json.loads(text) for text in found]
    ok = all(t["weights"]["bytes"] > 15e9 and t["cache"]["bytes_per_token"] == 131072 for t in told)
    ok = ok and "estimated from config.json" in "".join(told[0]["notes"]) and not told[1]["notes"]
    if not ok:
        print("a folder of config.json alone:\n" + "\n".join(found))
    return 0 if ok else 1


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    larder, root = sys.argv[1:3]
    if check_page(larder, root, len(sys.argv) == 4):
        return 1
    return 1 if check_cases(larder, root) + check_json(larder, root) + check_folder(larder, root) else 0


if __name__ == "__main__":
    sys.exit(main())
