"""Renders the templates and conversations of a file of oracle.mjs with Jinja2, set up as transformers does.

usage: jinja_oracle.py IN.json OUT.json
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """The tag that marks an assistant's text for training: it prints what is in it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    @staticmethod
    def body(caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(text):
    raise jinja2.exceptions.TemplateError(text)


def render(template, values):
    try:
        return template.render(**values)
    except Exception:  # whatever it is: the template does not work on these values
        return None


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = datetime.datetime(2031, 4, 9, 12).strftime
    with open(sys.argv[1], encoding="utf-8") as f:
        data = json.load(f)
    for entry in data["templates"]:
        template = environment.from_string(entry["source"])
        entry["want"] = [render(template, values) for values in data["conversations"]]
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        json.dump(data, f)


main()
