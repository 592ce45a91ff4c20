#!/usr/bin/env python3
"""tidy.py itself: for each check a sample that must be found and one that must not."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402

HEAD = "/* What it is. */\n"
MARK = "TO" + "DO"
FOLDER = "/wor" + "k/x"


def found(path, text):
    return sorted({name for name, _, _ in tidy.check_file(tidy.File(path, text))})


class Checks(unittest.TestCase):
    SAMPLES = (
        ("long_file", "base/a.c", HEAD + "\n" * 799 + "int x;\n", HEAD + "\n" * 798 + "int x;\n"),
        ("long_function", "base/a.c", HEAD + "static void f(void) {\n" + "    g();\n" * 69 + "}\n",
         HEAD + "static void f(void) {\n" + "    g();\n" * 68 + "}\n"),
        ("many_parameters", "store/a.c",
         HEAD + "static int f(int a, int b, int c, int d, int e, int f) { return 0; }\n",
         HEAD + "static int f(int a, int (*b)(int, int), int c, int d, int e) { return 0; }\n"),
        ("long_line", "base/a.c", HEAD + "x" * 121 + "\n", HEAD + "x" * 120 + "\n"),
        ("blank_ends", "docs/a.md", "a \n", "a\n"),
        ("blank_ends", "docs/a.md", "a", "a\n"),
        ("blank_ends", "docs/a.md", "a\n\n", "a\n"),
        ("tabs", "base/a.c", HEAD + "\tint x;\n", HEAD + "    int x;\n"),
        ("banned_function", "base/a.c", HEAD + "void *p = alloca (3);\n",
         HEAD + "/* alloca(3) */ char *s = \"strcpy(\";\n"),
        ("banned_function", "base/a.c", HEAD + "int n = sprintf(b, f);\n",
         HEAD + "int n = snprintf(b, 3, f) + x.strcpy(1);\n"),
        ("header_comment", "base/a.c", "#include <x.h>\n", HEAD),
        ("header_comment", "base/a.c", "/* a\n" + " * b\n" * 14 + " */\n", "/* a\n" + " * b\n" * 12 + " */\n"),
        ("open_end", "docs/a.md", f"{MARK}: more\n", "TODOS are none\n"),
        ("machine_path", "docs/a.md", f"see {FOLDER}\n", "see /var/lib/larder and x/workflow\n"),
        ("includes", "base/a.c", HEAD + '#include "store/store.h"\n', HEAD + '#include "base/error.h"\n'),
        ("includes", "store/a.c", HEAD + '#include "policies/canon.h"\n', HEAD + '#include "base/error.h"\n'),
        ("includes", "policies/a.h", HEAD + '#include "gateway/config/config.h"\n', None),
        ("includes", "gateway/net/a.c", HEAD + '#include "tests/x.h"\n', HEAD + '#include "store/store.h"\n'),
        ("includes", "gateway/net/a.c", HEAD + "#include <cjson/cJSON.h>\n", None),
        ("exported_name", "base/a.c", HEAD + "int f(void) { return 0; }\n", HEAD + "int lar_a_f(void) { return 0; }\n"),
        ("static_name", "base/a.c", HEAD + "static int lar_f(void) { return 0; }\n",
         HEAD + "static int f(void) { return 0; }\n"),
        ("mutable_global", "base/a.c", HEAD + "static int count;\n", HEAD + "static const int count = 3;\n"),
        ("mutable_global", "base/a.c", HEAD + "static int table[3] = {1};\n",
         HEAD + "static const char *const t[] = {0};\n"),
        ("guard", "base/a.h", HEAD + "int x;\n", HEAD + "#ifndef LARDER_BASE_A_H\n#define LARDER_BASE_A_H\n#endif\n"),
    )

    def test_samples(self):
        for check, path, bad, good in self.SAMPLES:
            self.assertIn(check, found(path, bad), (check, bad[:80]))
            if good is not None:
                self.assertNotIn(check, found(path, good), (check, good[:80]))

    def test_every_check_has_a_sample(self):
        self.assertEqual({c.__name__ for c in tidy.CHECKS}, {s[0] for s in self.SAMPLES})

    def test_a_clean_file(self):
        self.assertEqual(found("base/a.c", HEAD + "static int f(int a) {\n    return a;\n}\n"), [])

    def test_functions_are_found(self):
        text = (HEAD + "#define M(x) { x }\nstruct s { int a; };\nstatic const int t[] = {1, 2};\n"
                "LAR_MUST_USE lar_error lar_a(int a,\n    const char *b) {\n    if (a) {\n        return 1;\n    }\n}\n"
                "_Noreturn void lar_b(void) __attribute__((cold)) { }\n")
        first = next(tidy.functions(tidy.File("base/a.c", text)))
        self.assertEqual(first, ("lar_a", 5, 10, 2, False))

    def test_exempt_list_shrinks(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "base"))
            for name in ("a.c", "b.c"):
                with open(os.path.join(root, "base", name), "w", encoding="utf-8") as f:
                    f.write(HEAD + "\tint x;\n")
            self.assertEqual(len(tidy.check_tree(root, {})), 2)
            self.assertEqual(len(tidy.check_tree(root, {("tabs", "base/a.c"): 1})), 1)
            self.assertEqual(len(tidy.check_tree(root, {("tabs", "base/a.c"): 1, ("tabs", "base/b.c"): 1})), 0)
            self.assertEqual(len(tidy.check_tree(root, {("tabs", "base/a.c"): 2, ("tabs", "base/b.c"): 1})), 1)
            gone = {("tabs", "base/gone.c"): 1, ("tabs", "base/a.c"): 1, ("tabs", "base/b.c"): 1}
            self.assertEqual(len(tidy.check_tree(root, gone)), 1)

    def test_names_are_unique(self):
        names = tidy.same_names(["base/a.c", "store/a.c", "x/CMakeLists.txt", "y/CMakeLists.txt"])
        self.assertEqual(len(list(names)), 1)


if __name__ == "__main__":
    unittest.main()
