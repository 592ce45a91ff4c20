"""What the tests of the drill share: running it, and reading its document and its table.

Nothing is asserted about how long anything takes.
"""
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "reload"))
from reload_parts import REPORT, check, run, until   # noqa: E402,F401
import reload_parts   # noqa: E402

MODEL = os.path.abspath(os.path.join(ROOT, "tests", "models", "tiny-v3"))
LIMIT_S = 500
# Short limits: a drill plays what is under 200 ms as it is. What is held waits longer than they do.
QUICK = "timeouts: {first_byte: 150ms, first_event: 150ms, idle: 150ms}"
HELD = "hold: {time: 10s}, deadline: 100s"


class Drilled:
    """One run of the drill on a configuration file, to its end."""

    def __init__(self, folder, file, *options, env=None):
        self.folder = folder
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LARDER_")}
        clean.update({"DEEPSEEK_API_KEY": "the-operators-deepseek-key", "OPENAI_API_KEY": "the-operators-openai-key",
                      "TMPDIR": folder, "ASAN_OPTIONS": clean.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"})
        clean.update(env or {})
        self.command = [reload_parts.Larder.binary, "drill", "-c", file, *options]
        done = subprocess.run(self.command, cwd=folder, env=clean, capture_output=True, timeout=LIMIT_S, check=False)
        self.code, self.out, self.err = done.returncode, done.stdout.decode(), done.stderr.decode()
        check(not REPORT.search(self.err), "a sanitizer report:\n" + self.err[-6000:])
        check("operators" not in self.out + self.err, "a key is shown")
        left = [name for name in os.listdir(folder) if name.startswith("larder-drill")]
        check(not left, "the drill's folder stays:", left)
        self.json = json.loads(self.out) if "--json" in options and self.out else None

    def scenes(self, **fields):
        return [s for s in self.json["scenes"] if all(s[k] == v for k, v in fields.items())]

    def told(self):
        return "exit %d\n%s%s" % (self.code, self.out[-6000:], self.err[-3000:])

    def holds(self):
        check(self.code == 0 and self.json["failed"] == 0, self.told())
        check(all(s["ok"] for s in self.json["scenes"]) and self.json["held"] == len(self.json["scenes"]) > 0, self.told())

    def fails(self, why, **fields):
        """Visibly: the exit code, the sum, and a scene of these fields with this reason."""
        check(self.code == 4 and self.json["failed"] > 0, self.told())
        failed = [s for s in self.scenes(**fields) if not s["ok"]]
        check(any(re.search(why, s["why"]) for s in failed), "no failed scene says", why, "\n" + self.told())


def drill(folder, text, *options, **more):
    file = os.path.join(folder, "larder.yaml")
    with open(file, "w", encoding="utf-8") as f:
        f.write(text)
    return Drilled(folder, file, *options, **more)
