#!/usr/bin/env python3
"""Style as a test: reads the tree and names every place that breaks a rule.

usage: tidy.py ROOT [--print-exempt]

One check is one function: it takes a File and yields (line, text). CHECKS is the table of them.
exempt.txt, beside this file, lists how many findings of a check a file may still have. The list only
shrinks: a file with fewer findings than its entry allows fails too, until the entry is corrected.
"""
import os
import re
import subprocess
import sys

LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 5
COLUMNS_MAX = 120
SCRIPT_COLUMNS_MAX = 140
HEADER_LINES_MAX = 14

# Text that would lose more by being cut than its line gains: a message, a row of test data, an address.
LONG_LITERAL = re.compile(r'"(?:\\.|[^"\\]){60,}"|https?://\S{40,}')

CODE = (".c", ".h")
TEXT = CODE + (".def", ".py", ".sh", ".cmake", ".md", ".yaml", ".yml", ".service", ".js", ".mjs", ".ts")
# Recorded bytes: inputs of fuzzers, messages on the wire, answers. Their form is their content.
DATA = re.compile(r"^(tests/fuzz/(corpus|dict)/|tests/[^/]+/(corpus|data|cases|models)/|.*package-lock\.json$)")
PRODUCT = ("base/", "policies/", "store/", "engine/", "gateway/")
BANNED = {
    "sprintf": "snprintf", "vsprintf": "vsnprintf", "strcpy": "lar_arena_copy or memcpy with a length",
    "strcat": "lar_buf", "strncat": "lar_buf", "strncpy": "memcpy with a length", "stpcpy": "memcpy with a length",
    "gets": "fgets", "atoi": "lar_value_number", "atol": "lar_value_number", "atof": "lar_json_double",
    "strtok": "lar_slice", "strtok_r": "lar_slice", "alloca": "lar_arena_alloc", "system": "no shell",
    "popen": "no shell",
    "tmpnam": "mkstemp", "rand": "a source that is passed in", "setjmp": "errors", "longjmp": "errors",
}
# cJSON copies and re-prints what it reads; bodies on their way must go through base/json.h. Model files are no bodies.
CJSON_ALLOWED = re.compile(r"^(tests/|engine/(files|text|model|plan)/|gateway/(commands|config|drill|local|main)/|gateway/request/(reply|admin)\.c$)")


class File:
    """A file of the tree: path from the root, text, lines, and (for C) the text without comments and strings."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.is_code = path.endswith(CODE)
        self.is_product = path.startswith(PRODUCT)
        self.bare = strip(text) if self.is_code else text


def strip(text):
    """C without comments, strings and character constants: blanks in their place, line ends kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def matching_paren(text, close):
    """Index of the '(' that belongs to the ')' at `close`; -1 if there is none."""
    depth = 0
    for i in range(close, -1, -1):
        depth += {")": 1, "(": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


def split_parameters(text):
    depth, count = 0, 0
    for c in text:
        depth += {"(": 1, ")": -1}.get(c, 0)
        count += c == "," and depth == 0
    return 0 if text.strip() in ("", "void") else count + 1


def functions(f):
    """(name, first line, last line, parameters, is static) of every function defined in the file."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), f.bare, flags=re.M)
    depth, begin, start, head = 0, 0, None, ""
    for i, c in enumerate(text):
        if c == "{":
            if depth == 0:
                head = text[begin:i].rstrip()
                start = begin if head.endswith(")") else None
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                if start is not None:
                    found = describe(head)
                    if found:
                        first = line_of(text, start + len(head) - len(head.lstrip()))
                        yield found[0], first, line_of(text, i), found[1], is_static(head)
                begin = i + 1
        elif c == ";" and depth == 0:
            begin = i + 1


def is_static(head):
    """Static by word, or by a macro of the file's own (KERNEL, MACHINE): a name in capitals in front or as name."""
    words = re.findall(r"\b\w+\b", head[:head.find("(")])
    return "static" in words or any(re.fullmatch(r"[A-Z][A-Z0-9_]+", w) and not w.startswith("LAR_") for w in words)


def describe(head):
    opening = matching_paren(head, len(head) - 1)
    name = re.search(r"([A-Za-z_]\w*)\s*$", head[:opening]) if opening > 0 else None
    return (name.group(1), split_parameters(head[opening + 1:-1])) if name else None


# -- the checks ---------------------------------------------------------------------------------------


def long_file(f):
    if f.is_code and len(f.lines) - 1 > LINES_MAX:
        yield LINES_MAX, f"{len(f.lines) - 1} lines; at most {LINES_MAX}"


def long_function(f):
    if not (f.is_code and f.is_product):
        return
    for name, first, last, _, _ in functions(f):
        if last - first + 1 > FUNCTION_LINES_MAX:
            yield first, f"{name} has {last - first + 1} lines; at most {FUNCTION_LINES_MAX}"


def many_parameters(f):
    if not (f.is_code and f.is_product):
        return
    for name, first, _, count, _ in functions(f):
        if count > PARAMETERS_MAX:
            yield first, f"{name} has {count} parameters; at most {PARAMETERS_MAX}, else a struct"


def long_line(f):
    # Tables read best as one row a line; prose, sample files and generated pages follow their own form.
    if not f.path.endswith(CODE + (".py", ".sh", ".cmake")):
        return
    most = COLUMNS_MAX if f.path.endswith(CODE) else SCRIPT_COLUMNS_MAX
    for i, line in enumerate(f.lines, 1):
        if len(line) > most and not LONG_LITERAL.search(line):
            yield i, f"{len(line)} columns; at most {most}"


def blank_ends(f):
    for i, line in enumerate(f.lines, 1):
        if line != line.rstrip():
            yield i, "white space at the end of the line"
    if f.text and not f.text.endswith("\n"):
        yield len(f.lines), "no line end at the end of the file"
    if f.text.endswith("\n\n"):
        yield len(f.lines), "empty lines at the end of the file"


def tabs(f):
    if f.is_code:
        for i, line in enumerate(f.lines, 1):
            if "\t" in line:
                yield i, "a tab; indent with blanks"


def banned_function(f):
    if not f.is_code:
        return
    for m in re.finditer(r"(?<![\w.>])(\w+)\s*\(", f.bare):
        if m.group(1) in BANNED and not (f.path.startswith("tests/") and m.group(1) in ("setjmp", "longjmp")):
            yield line_of(f.bare, m.start()), f"{m.group(1)} is banned; use {BANNED[m.group(1)]}"


def header_comment(f):
    if not f.path.endswith(CODE):
        return
    if not f.text.startswith("/*"):
        yield 1, "the file does not begin with a comment saying what it is"
    elif f.path.endswith(".c"):
        lines = f.text[:f.text.find("*/")].count("\n") + 1
        if lines > HEADER_LINES_MAX:
            yield 1, f"the comment at the top has {lines} lines; at most {HEADER_LINES_MAX}"


def open_end(f):
    words = "TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"
    for i, line in enumerate(f.lines, 1):
        for word in words:
            if re.search(rf"\b{word}\b", line):
                yield i, f"{word}: finish it, or describe the limit in words"


def machine_path(f):
    pattern = re.compile(r"(?<![\w.])/(?:" + "wor" + "k|ro" + "ot|ho" + "me/[a-z]|Us" + r"ers)/|\.\./" + "sha" + "red/")
    for i, line in enumerate(f.lines, 1):
        if pattern.search(line):
            yield i, "a path of one machine"


def includes(f):
    if not f.is_code:
        return
    allowed = {"base": ("base/",), "policies": ("base/", "policies/"), "store": ("base/", "store/"),
               "engine": ("base/", "engine/")}
    folder = f.path.split("/")[0]
    for i, line in enumerate(f.lines, 1):
        m = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
        if not m:
            continue
        target = m.group(1)
        inside = target.startswith(PRODUCT + ("tests/",))
        if inside and folder in allowed and not target.startswith(allowed[folder]):
            yield i, f"{folder} must not include {target}"
        if f.is_product and target.startswith("tests/"):
            yield i, "the product must not include tests"
        if re.search(r"cJSON\.h$", target) and not CJSON_ALLOWED.match(f.path):
            yield i, "cJSON is for tests, reports and what larder writes itself; read bodies with base/json.h"


def exported_name(f):
    if not (f.is_product and f.path.endswith(".c")):
        return
    for name, first, _, _, static in functions(f):
        if not static and name != "main" and not name.startswith("lar_"):
            yield first, f"{name} is exported; name it lar_<module>_<verb> or make it static"


def static_name(f):
    if not (f.is_product and f.path.endswith(".c")):
        return
    for name, first, _, _, static in functions(f):
        if static and name.startswith("lar_"):
            yield first, f"{name} is static; the prefix lar_ is for exported names"


def mutable_global(f):
    if not (f.is_product and f.path.endswith(".c")):
        return
    pattern = r"^static (?!const\b|inline\b|_Noreturn\b)([^;{}()=]+?)(?:\[[^\]]*\])*\s*(?:=[^;]*)?;"
    for m in re.finditer(pattern, f.bare, re.M):
        if "const " not in m.group(1):
            yield line_of(f.bare, m.start()), f"a global variable that can change: {m.group(1).split()[-1]}"


def guard(f):
    if f.path.endswith(".h") and f.is_product and not re.search(r"^#ifndef LARDER_\w+_H\n#define ", f.text, re.M):
        yield 1, "no include guard named LARDER_<...>_H"


CHECKS = (long_file, long_function, many_parameters, long_line, blank_ends, tabs, banned_function, header_comment,
          open_end, machine_path, includes, exported_name, static_name, mutable_global, guard)


def same_names(paths):
    """Two files with one name are told apart by nobody who reads an error message."""
    seen = {}
    for path in paths:
        name = os.path.basename(path)
        if not path.endswith(CODE + (".def",)):
            continue
        if name in seen:
            yield path, 1, f"there is {seen[name]} already; names are unique in the tree"
        seen.setdefault(name, path)


# -- the run ------------------------------------------------------------------------------------------


def list_files(root):
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=True).stdout.decode()
        paths = [p for p in out.split("\0") if p]
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, dirs, names in os.walk(root):
            dirs[:] = [d for d in dirs if d not in (".git", "build", "node_modules", "__pycache__")]
            paths += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(p for p in set(paths) if os.path.isfile(os.path.join(root, p)))


def is_text(path):
    return (path.endswith(TEXT) or os.path.basename(path) == "CMakeLists.txt") and not DATA.match(path)


def read_exempt(path):
    """{(check, file): allowed findings} from lines "check file count"; '#' begins a comment."""
    allowed = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            words = line.split("#")[0].split()
            if words:
                allowed[(words[0], words[1])] = int(words[2])
    return allowed


def check_file(f):
    return [(check.__name__, line, text) for check in CHECKS for line, text in check(f)]


def check_tree(root, exempt):
    findings, used, paths = [], {}, list_files(root)
    for path in filter(is_text, paths):
        with open(os.path.join(root, path), encoding="utf-8") as handle:
            f = File(path, handle.read())
        by_check = {}
        for name, line, text in check_file(f):
            by_check.setdefault(name, []).append((line, text))
        for name, places in by_check.items():
            used[(name, path)] = len(places)
            if len(places) > exempt.get((name, path), 0):
                findings += [f"{path}:{line}: {text} [{name}]" for line, text in places]
    findings += [f"{path}:{line}: {text} [same_names]" for path, line, text in same_names(paths)]
    for (name, path), count in exempt.items():
        if used.get((name, path), 0) < count:
            now = used.get((name, path), 0)
            findings.append(f"exempt.txt: {name} {path} has {now}, not {count}: correct the entry")
    return findings


def print_exempt(root):
    """The entries that would let the tree pass as it is, for a rule that is new."""
    counts = {}
    for line in check_tree(root, {}):
        m = re.match(r"(\S+?):\d+: .*\[(\w+)\]$", line)
        if m and m.group(2) != "same_names":
            counts[(m.group(2), m.group(1))] = counts.get((m.group(2), m.group(1)), 0) + 1
    for (name, path), count in sorted(counts.items()):
        print(name, path, count)


def main():
    if len(sys.argv) == 3 and sys.argv[2] == "--print-exempt":
        print_exempt(sys.argv[1])
        return 0
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.abspath(__file__))
    findings = check_tree(sys.argv[1], read_exempt(os.path.join(here, "exempt.txt")))
    for line in findings:
        print(line)
    print(f"{len(findings)} finding(s)" if findings else "the tree is tidy")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
