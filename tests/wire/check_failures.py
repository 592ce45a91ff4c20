#!/usr/bin/env python3
"""Checks that each class of failure at each moment has a wire, over every protocol, plain and streamed, or a reason.

    check_failures.py SOURCE_FOLDER [-v]

Classes come from gateway/health/failure.def, moments and reasons from tests/wire/failures/cells.txt, the rest from what
the wires of that folder say they cover and are played over. -v prints the matrix.
"""
import glob
import os
import re
import sys

import wire_text

PROTOCOLS = {"chat", "messages", "responses"}
MODES = {"plain", "stream"}
TARGETS = {"alone", "chain"}


def classes(root):
    with open(os.path.join(root, "gateway", "health", "failure.def"), encoding="utf-8") as f:
        names = re.findall(r'^LAR_FAILURE\(\w+, "(\w+)"', f.read(), re.M)
    return [n for n in names if n != "none"]


def read_cells(path, faults):
    """Moments in order, and the reason of each (class, moment, mode) that cannot have a wire."""
    moments, reasons = [], {}
    with open(path, encoding="utf-8") as f:
        for number, row in enumerate(f, 1):
            name, _, text = row.strip().partition(":")
            words = name.split()
            if not words or row.startswith("#"):
                continue
            if not text.strip() or len(words) not in (2, 3):
                faults.append("%s:%d: neither a moment nor a cell with a reason" % (path, number))
            elif words[0] == "moment":
                moments.append(words[1])
            else:
                for mode in words[2:] or sorted(MODES):
                    reasons[(words[0], words[1], mode)] = text.strip()
    return moments, reasons


def read_wires(folder, faults):
    """(class, moment, mode) -> names of the files that cover it."""
    covered = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.wire"))):
        x, name = wire_text.read_file(path), os.path.basename(path)
        words = set(sum(x.dimensions(), []))
        for wanted, what in ((PROTOCOLS, "protocols"), (TARGETS, "targets")):
            if not wanted <= words:
                faults.append("%s is not played over all %s: %s" % (name, what, ", ".join(sorted(wanted - words))))
        for part in ("client", "upstream", "journal"):
            says = [s for s in x.sections if s.words[0] == part and (part == "journal" or s.words[1] == "expects")]
            if not says:
                faults.append("%s says nothing of what %s sees" % (name, part))
        if not x.options.get("covers"):
            faults.append("%s does not say what it covers" % name)
        for cell in x.options.get("covers", []):
            for mode in MODES & words:
                covered.setdefault(tuple(cell.split()) + (mode,), []).append(name)
    return covered


def main(root, verbose):
    folder, faults = os.path.join(root, "tests", "wire", "failures"), []
    moments, reasons = read_cells(os.path.join(folder, "cells.txt"), faults)
    covered = read_wires(folder, faults)
    cells = [(c, m, mode) for c in classes(root) for m in moments for mode in sorted(MODES)]
    for cell in cells:
        if cell in reasons and cell in covered:
            faults.append("%s has a reason against it and is covered by %s" % (" ".join(cell), covered[cell]))
        elif cell not in reasons and cell not in covered:
            faults.append("%s has neither a wire nor a reason" % " ".join(cell))
        if verbose:
            print("%-12s %-15s %-7s %s" % (cell + (", ".join(covered.get(cell, [])) or "- " + reasons.get(cell, "?"),)))
    for cell in sorted((set(reasons) | set(covered)) - set(cells)):
        faults.append("%s is no cell: unknown class, moment or mode" % " ".join(cell))
    for fault in faults:
        print(fault)
    print("%d cells, %d with a wire, %d that cannot be, %d faults" % (
        len(cells), len(set(cells) & set(covered)), len(set(cells) & set(reasons)), len(faults)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "-v" in sys.argv[2:]))
