"""docs/log.md is written by hand; this says where it and the source differ. usage: log_events.py ROOT

An event is the string behind the level of LAR_LOG (both, where a condition chooses), or a row of the table of the store's
complaints. The page has a row `| `event` | level | `field`, ... | meaning |` for each, with the fields that the source gives.
"""
import pathlib
import re
import sys


def calls(text):
    """The argument text of every LAR_LOG."""
    for match in re.finditer(r"\bLAR_LOG\(", text):
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        yield text[match.end():at - 1]


def events_of_source(root):
    found, complaints = {}, set()
    for path in sorted(p for part in ("base", "gateway", "policies", "store") for p in (root / part).rglob("*.c")):
        text = path.read_text()
        complaints.update(re.findall(r'\[LAR_GRIPE_\w+\] = "([a-z_]+)"', text))
        for call in calls(text):
            fields = set(re.findall(r'LAR_F_\w+\("([a-z_]+)"', call))
            names = re.findall(r'"([a-z_]+)"', call.split("LAR_F_")[0])
            for name in names or ["(complaint)"]:
                found.setdefault(name, set()).update(fields)
    fields = found.pop("(complaint)", set())
    found.update({name: fields for name in complaints})
    return found


def events_of_page(root):
    rows = re.findall(r"^\| `([a-z_]+)` \|[^|]*\|([^|]*)\|", (root / "docs/log.md").read_text(), re.M)
    return {name: set(re.findall(r"`([a-z_]+)`", fields)) for name, fields in rows}


def main():
    root = pathlib.Path(sys.argv[1])
    source, page = events_of_source(root), events_of_page(root)
    wrong = [f"docs/log.md lacks the event {name}" for name in sorted(source.keys() - page.keys())]
    wrong += [f"docs/log.md has the event {name}, the source has not" for name in sorted(page.keys() - source.keys())]
    wrong += [f"docs/log.md: {name}: fields differ by {', '.join(sorted(source[name] ^ page[name]))}"
              for name in sorted(source.keys() & page.keys()) if source[name] != page[name]]
    if len(source) < 10:
        wrong.append("hardly any event was found in the source: the search is broken")
    print("\n".join(wrong) or f"{len(source)} events are as docs/log.md has them")
    return 1 if wrong else 0


sys.exit(main())
