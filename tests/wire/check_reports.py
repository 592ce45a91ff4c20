#!/usr/bin/env python3
"""Checks docs/reports.md: every number once, with a test that exists or a reason, and every test file named.

    check_reports.py SOURCE_FOLDER
"""
import glob
import os
import re
import sys

WANTED = (("H", 49), ("S", 22), ("J", 20), ("U", 13), ("R", 20), ("X", 11), ("C", 11), ("E", 24), ("T", 6))
REASON = re.compile(r"does not apply|later:", re.I)


def main(root):
    with open(os.path.join(root, "docs", "reports.md"), encoding="utf-8") as f:
        text = f.read()
    faults, rows = [], {}
    for number, row in re.findall(r"^\| ([HSJURXCET]-\d\d) \|(.*)$", text, re.M):
        if number in rows:
            faults.append("%s stands there twice" % number)
        rows[number] = row
    for kind, last in WANTED:
        for n in range(1, last + 1):
            number = "%s-%02d" % (kind, n)
            row = rows.get(number)
            if row is None:
                faults.append("%s is missing" % number)
            elif not re.search(r"`tests/[^`]+`", row) and not REASON.search(row):
                faults.append("%s has neither a test nor a reason" % number)
    named = set()
    for path in re.findall(r"`(tests/[^`]+)`", text):
        found = glob.glob(os.path.join(root, path))
        if not found:
            faults.append("%s does not exist" % path)
        named.update(os.path.relpath(p, root) for p in found)
    for path in glob.glob(os.path.join(root, "tests", "wire", "*", "*.wire")):
        path = os.path.relpath(path, root)
        m = re.match(r"([HSJURXC]-\d\d)-", os.path.basename(path))
        if path not in named:
            faults.append("%s is not named in docs/reports.md" % path)
        elif m and os.path.basename(path)[:4] not in rows:
            faults.append("%s has a number that docs/reports.md lacks" % path)
    for fault in sorted(faults):
        print(fault)
    print("%d reports, %d test files named, %d faults" % (len(rows), len(named), len(faults)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
