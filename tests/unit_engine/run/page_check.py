#!/usr/bin/env python3
"""What docs/howto/run-a-model.md shows of larder run is what it prints.

usage: page_check.py LARDER ROOT [--write]     --write puts the present output into the page
"""
import re
import shlex
import subprocess
import sys

EXAMPLE = re.compile(r"^    \$ larder (.*)\n((?:    (?!\$ ).*\n)*)", re.M)


def main():
    larder, root = sys.argv[1:3]
    path = f"{root}/docs/howto/run-a-model.md"
    with open(path, encoding="utf-8") as handle:
        page = handle.read()
    wrong = []

    def example(m):
        done = subprocess.run([larder, *shlex.split(m.group(1))], cwd=root, capture_output=True, text=True, timeout=120)
        now = "".join(f"    {line}\n" for line in (done.stdout + done.stderr).splitlines())
        if now != m.group(2):
            wrong.append(f"larder {m.group(1)}\nthe page shows:\n{m.group(2)}now it prints:\n{now}")
        return f"    $ larder {m.group(1)}\n{now}"

    new, count = EXAMPLE.subn(example, page)
    assert count, "the page has no example"
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(new)
    elif wrong:
        sys.exit("\n".join(wrong))
    print(f"{count} example(s) of the page")


main()
