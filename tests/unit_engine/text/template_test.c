/* Templates: what each construct prints, what is refused and where, who wrote each byte, and that hostile templates end
 * in a limit. Expected texts are those of Jinja2 3.1 with transformers' settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/text/template.h"

typedef struct sample {
    const char *source, *want;
} sample;

#define VALUES                                                                                                         \
    "{\"n\": null, \"t\": true, \"i\": 7, \"f\": 1.0, \"big\": 123456789012345678901234567890, \"s\": \"a b  c\","     \
    " \"u\": \"h\\u00e9llo \\ud83d\\ude00\", \"l\": [3, 1, 2], \"d\": {\"x\": 1, \"y\": {\"z\": \"q'\\\"\"}},"         \
    " \"m\": [{\"role\": \"user\", \"v\": 2}, {\"role\": \"tool\", \"v\": 1}], \"lone\": \"\\ud800x\"}"

static lar_error render_within(const char *source, const char *json, const lar_template_limits *limits,
                               lar_template_text *out, lar_diag *d) {
    lar_template *t;
    lar_error e = lar_template_parse(lar_slice_cstr(source), &t, d);
    if (e) return e;
    lar_template_values *v = lar_template_values_new(64 << 20);
    assert_non_null(v);
    e = lar_template_set_json(v, "v", lar_slice_cstr(json), d);
    if (!e) e = lar_template_set_text(v, "bos_token", LAR_SLICE("<BOS>"), LAR_TEMPLATE_OWN);
    lar_template_set_now(v, 1933502405);
    if (!e) e = lar_template_render(t, v, limits, out, d);
    lar_template_values_free(v);
    lar_template_free(t);
    return e;
}

static lar_error render_json(const char *source, const char *json, lar_template_text *out, lar_diag *d) {
    return render_within(source, json, NULL, out, d);
}

static void check_all(const sample *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        lar_template_text out = {.span_count = 0};
        lar_diag d = {.text = ""};
        lar_error e = render_json(rows[i].source, VALUES, &out, &d);
        if (e) fail_msg("%s: %s", rows[i].source, d.text);
        if (!lar_slice_eq_cstr(lar_buf_slice(&out.bytes), rows[i].want))
            fail_msg("%s\n gave  [%.*s]\n not   [%s]", rows[i].source, LAR_FMT(lar_buf_slice(&out.bytes)),
                     rows[i].want);
        lar_template_text_release(&out);
    }
}

static void test_expressions(void **state) {
    (void)state;
    static const sample rows[] = {
        {"{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 7 / 2 }}",
         "6 1 -4 2 64 3.5"},
        {"{{ 'a' ~ 1 ~ none ~ true }}", "a1NoneTrue"},
        {"{{ 'a' + 'b' 'c' }} {{ '-' * 3 }} {{ [1] + [2] }}", "abc --- [1, 2]"},
        {"{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ not 1 > 2 }} {{ 1 in [1, 2] }} {{ 'x' not in v.d }} {{ 'b' in 'abc' }}",
         "True True True True False True"},
        {"{{ v.nope }}|{{ v.nope is defined }}|{{ nope is undefined }}|{{ v.n is none }}", "|False|True|True"},
        {"{{ 'yes' if v.t else 'no' }} {{ 'yes' if v.n }}|{{ 1 if false else 2 if false else 3 }}", "yes |3"},
        {"{{ v.n or 'x' }} {{ v.t and 0 }} {{ [] or {} }}", "x 0 {}"},
        {"{{ v.d.y['z'] }} {{ v['l'][0] }} {{ v.l[-1] }} {{ v.l[9] is defined }} {{ (1,) }} {{ (1, 2)[1] }} {{ () }}",
         "q'\" 3 2 False (1,) 2 ()"},
        {"{{ v.l[1:] }} {{ v.l[::-1] }} {{ v.l[:-1] }} {{ 'hello'[1:3] }} {{ v.u[1] }} {{ v.u[-1] }} {{ v.u[::-1] }}",
         "[1, 2] [2, 1, 3] [3, 1] el \xc3\xa9 \xf0\x9f\x98\x80 \xf0\x9f\x98\x80 oll\xc3\xa9h"},
        {"{{ {'a': 1, 'b': [none, true, 1.5, 'x\\n']} }}", "{'a': 1, 'b': [None, True, 1.5, 'x\\n']}"},
        {"{{ \"\\x41\\u00e9\\n\\q\\'\" }}", "A\xc3\xa9\n\\q'"},
        {"{{ v.f }} {{ v.big }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 123456789.125 }} {{ -0.0 }}",
         "1.0 123456789012345678901234567890 1e+16 1000000000000000.0 0.30000000000000004 1e-05 123456789.125 -0.0"},
        {"{{ v.s.split() }} {{ v.s.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }}",
         "['a', 'b', 'c'] ['a', 'b', '', 'c'] ['a', 'b,c'] ['a,b', 'c']"},
        {"[{{ '  x '.strip() }}|{{ '\\n\\nx\\n'.lstrip('\\n') }}|{{ 'xxyx'.rstrip('x') }}|{{ '\\u00a0x\\u3000'.strip() }}]",
         "[x|x\n|xxy|x]"},
        {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'ab'.replace('', '.') }}",
         "True True a-bX .a.b."},
        {"{{ 'h\xc3\xa9llo w\xd0\xb6'.upper() }} {{ '\xc3\x89\xd0\x96'.lower() }} {{ 'it is'.title() }} {{ 'aBC'.capitalize() }}",
         "H\xc3\x89LLO W\xd0\x96 \xc3\xa9\xd0\xb6 It Is Abc"},
        {"{{ 'abcab'.find('c') }} {{ 'abcab'.count('ab') }} {{ 'a\\nb\\r\\n'.splitlines() }} {{ 'abc'.removeprefix('a').removesuffix('c') }}",
         "2 2 ['a', 'b'] b"},
        {"{{ v.d.get('x') }} {{ v.d.get('k', 5) }} {{ v.d.get('k') }} {{ v.d.keys() | list }} {{ v.d.values() | first }}",
         "1 5 None ['x', 'y'] 1"},
        {"{{ range(3) | list }} {{ range(4, 0, -2) | list }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %b') }}",
         "[0, 1, 2] [4, 2] 2031-04-09 12:00:05 Wednesday Apr"},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void test_filters_and_tests(void **state) {
    (void)state;
    static const sample rows[] = {
        {"{{ v.lone | tojson }}{{ v.lone | length }}", "\"\xef\xbf\xbdx\"2"},
        {"{{ v.d | tojson }}", "{\"x\": 1, \"y\": {\"z\": \"q'\\\"\"}}"},
        {"{{ v.d | tojson(indent=2) }}", "{\n  \"x\": 1,\n  \"y\": {\n    \"z\": \"q'\\\"\"\n  }\n}"},
        {"{{ {'b': [], 'a': {}} | tojson(sort_keys=true, indent=4) }}", "{\n    \"a\": {},\n    \"b\": []\n}"},
        {"{{ [v.u, v.f, v.big, v.n, 1] | tojson(separators=(',', ':')) }}",
         "[\"h\xc3\xa9llo \xf0\x9f\x98\x80\",1.0,123456789012345678901234567890,null,1]"},
        {"{{ v.u | tojson(ensure_ascii=true) }} {{ '</a>&\\x01\\t' | tojson }}",
         "\"h\\u00e9llo \\ud83d\\ude00\" \"</a>&\\u0001\\t\""},
        {"{{ v.u | length }} {{ v.l | length }} {{ v.d | count }} {{ nope | length }}", "7 3 2 0"},
        {"{{ nope | default('x') }} {{ '' | default('y', true) }} {{ v.n | d('z') }} {{ 0 | default(5, boolean=True) }}",
         "x y None 5"},
        {"{{ v.l | join(', ') }} {{ v.m | join('-', attribute='role') }} {{ 'abc' | join('.') }}",
         "3, 1, 2 user-tool a.b.c"},
        {"{{ v.l | sort }} {{ v.l | sort(reverse=true) }} {{ v.m | sort(attribute='v') | map(attribute='v') | list }} {{ ['b', 'A'] | sort }}",
         "[1, 2, 3] [3, 2, 1] [1, 2] ['A', 'b']"},
        {"{{ v.m | selectattr('role', 'equalto', 'tool') | list | length }} {{ v.m | rejectattr('v', 'gt', 1) | map(attribute='role') | first }}",
         "1 tool"},
        {"{{ v.l | select('odd') | list }} {{ v.l | reject('in', [3]) | list }} {{ ['a', ''] | select | list }}",
         "[3, 1] [1, 2] ['a']"},
        {"{{ ['a', 'b'] | map('upper') | join }} {{ v.l | first }}{{ v.l | last }} {{ v.l | max }}{{ v.l | min }} {{ v.l | sum }} {{ v.l | reverse | list }}",
         "AB 32 31 6 [2, 1, 3]"},
        {"{{ '  a ' | trim }} {{ 'a-b' | replace('-', '+') }} {{ 'ab' | upper }} {{ 5 | string ~ 'x' }} {{ '12' | int + 1 }} {{ 'x' | int }} {{ '1.5' | float }}",
         "a a+b AB 5x 13 0 1.5"},
        {"{{ [1, 1, 2] | unique | list }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'a': 1} | items | list }} {{ -3 | abs }} {{ 'ab' | list }}",
         "[1, 2] [('a', 2), ('b', 1)] [('a', 1)] 3 ['a', 'b']"},
        {"{{ 'a\\nb\\n\\nc' | indent(2) }}", "a\n  b\n\n  c"},
        {"{{ v.d is mapping }} {{ v.l is iterable }} {{ v.s is string }} {{ v.l is sequence }} {{ v.i is number }} {{ v.t is true }} {{ v.t is boolean }} {{ v.f is float }} {{ v.i is integer }}",
         "True True True True True True True True True"},
        {"{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is in [1] }} {{ v.n is not none }} {{ v.s is not string }}",
         "True True True False True False False"},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void test_statements(void **state) {
    (void)state;
    static const sample rows[] = {
        {"{% if v.n %}a{% elif v.i == 7 %}b{% else %}c{% endif %}", "b"},
        {"{% for x in v.l %}{{ loop.index }}/{{ loop.length }}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
         "1/33,2/31,3/32"},
        {"{% for x in [] %}a{% else %}none{% endfor %}{% for x in nope %}a{% else %}!{% endfor %}", "none!"},
        {"{% for k, w in {'a': 1, 'b': 2}.items() %}{{ k }}={{ w }};{% endfor %}", "a=1;b=2;"},
        {"{% for x in v.l if x > 1 %}{{ x }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
         "3False2 2True3 "},
        {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
         "023"},
        {"{% for x in range(2) %}{% break %}{% else %}empty{% endfor %}.", "empty."},
        {"{% set x = 1 %}{% for y in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21"},
        {"{% for y in [1, 2] %}{{ x }}{% set x = y %}{{ x }} {% endfor %}", "1 2 "},
        {"{% set ns = namespace(a=1, b='') %}{% for y in [1, 2] %}{% set ns.b = ns.b ~ y %}{% endfor %}{{ ns.b }}{{ ns.a }}",
         "121"},
        {"{% set a, b = 1, 2 %}{{ b }}{{ a }}{% set t = 1, 2 %}{{ t }}", "21(1, 2)"},
        {"{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]{% set ns = namespace() %}{% set ns.y %}z{% endset %}{{ ns.y }}",
         "[a1b]z"},
        {"{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, c=5) }}{{ f(b=1, a=0) }}{{ f() }}",
         "122;125;011;22;"},
        {"{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "321"},
        {"{% set g = 'g' %}{% macro f() %}{{ g }}{{ x }}{% endmacro %}{% for x in [1] %}{{ f() }}{% endfor %}", "g"},
        {"{% filter upper %}ab{{ 'c' }}{% endfilter %}{% generation %}x{% endgeneration %}", "ABCx"},
        {"{% set l = [] %}{% set _ = l.append(4) %}{{ l }}{{ l.append(5) }}", "[4]None"},
        {"{% for a in [1, 2] %}{% for b in [3] %}{{ loop.index0 }}{{ a }}{{ b }} {% endfor %}{{ loop.index0 }};{% endfor %}",
         "013 0;023 1;"},
        {"{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}.", "."},
        {"a{# comment {{ x }} #}b{#- c -#} d", "abd"},
        {"{{ {'a': {'b': 1}} }}{{ '}}' }}", "{'a': {'b': 1}}}}"},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void test_white_space(void **state) {
    (void)state;
    static const sample rows[] = {
        {"a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
        {"a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
        {"x {% if true %} b{% endif %} c", "x  b c"},
        {"a\n {{- ' b' -}} \n c", "a bc"},
        {"a \n{%- if true -%}\n b \n{%- endif -%}\n c", "abc"},
        {"  {%+ if true +%}\nb{% endif %}", "  \nb"},
        {"a\n  {# c #}\nb", "a\nb"},
        {"a\r\n{% if true %}\r\nb{% endif %}\r\n\r\n", "a\nb"},
        {"{{ 'a' }}\n{{ 'b' }}\n", "a\nb"},
        {"{{ 1 }}  {% if true %}x{% endif %}", "1  x"},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

/* Refused when parsed: what, and where. */
static void test_refusals(void **state) {
    (void)state;
    static const sample rows[] = {
        {"a\n {{ x | nosuch }}", "line 2, column 9 of the template: the filter 'nosuch' is not supported"},
        {"{% include 'x' %}", "line 1, column 4 of the template: the tag 'include' is not supported"},
        {"{{ x is prime }}", "line 1, column 9 of the template: the test 'prime' is not supported"},
        {"\n\n{{ 'h\xc3\xa9'.encode() }}", "line 3, column 9 of the template: the method 'encode' is not supported"},
        {"{{ cycler(1) }}", "line 1, column 4 of the template: the function 'cycler' is not supported"},
        {"{% for x in y %}{{ loop.cycle }}{% endfor %}",
         "line 1, column 25 of the template: the loop's attribute 'cycle' is not supported"},
        {"{{ 1 < 2 < 3 }}", "a chain of comparisons is not supported"},
        {"{{ f(*a) }}", "'*' is not supported"},
        {"{% if x %}", "line 1, column 7 of the template: this block is never closed"},
        {"{% endfor %}", "endfor without a for"},
        {"{{ 'a }}", "text without its closing quote"},
        {"{{ a ", "an expression without its end }}"},
        {"{# a", "a comment without its end #}"},
        {"{{ a b }}", "}} is missing before 'b'"},
        {"{{ }}", "an expression is missing"},
        {"{{ a ? b }}", "a character that means nothing here: ?"},
        {"{% raw %}{% endraw %}", "the tag 'raw' is not supported"},
        {"{% call f() %}{% endcall %}", "the tag 'call' is not supported"},
        {"{% for x in y recursive %}{% endfor %}", "the word 'recursive' is not supported"},
        {"{% for x in y %}{% macro f() %}{% endmacro %}{% endfor %}", "a macro inside a loop"},
        {"{{ 99999999999999999999 }}", "is too large"},
        {"{{ x | replace('a') }}", "the filter 'replace' with 1 arguments"},
        {"{% macro f(a) %}{{ varargs }}{% endmacro %}", "the name 'varargs' is not supported"},
        {"\xff", "the template is not UTF-8"},
        {"{{ '\\ud800' }}", "an escape in text that is no character"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_template *t;
        lar_diag d = {.text = ""};
        assert_int_equal(lar_template_parse(lar_slice_cstr(rows[i].source), &t, &d), LAR_INVALID);
        assert_null(t);
        if (!strstr(d.text, rows[i].want)) fail_msg("%s: %s", rows[i].source, d.text);
    }
}

static void test_errors_while_rendering(void **state) {
    (void)state;
    static const sample rows[] = {
        {"\n{{ v.nope.x }}", "line 2, column 11 of the template: 'nope' is undefined and has no 'x'"},
        {"{{ v.nope + 'x' }}", "'nope' is undefined and is an operand of +"},
        {"{{ 'a' + 1 }}", "text + an integer"},
        {"{{ raise_exception('no ' + v.s + ' here') }}", "the template refuses this conversation: no ... here"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "an integer outside 64 bits"},
        {"{{ nope | tojson }}", "tojson of the undefined nope"},
        {"{% for a, b in v.l %}{% endfor %}", "cannot be walked through"},
        {"{% for a, b in [[1]] %}{% endfor %}", "1 values for 2 names"},
        {"{{ v.i.upper() }}", "an integer has no such method"},
        {"{{ v.d.items }}", "a method cannot be printed"},
        {"{% set x.y = 1 %}", "'x' is no namespace"},
        {"{{ v.l.append(1) }}", "append to a list that was given"},
        {"{{ 'a' < 1 }}", "text and an integer cannot be ordered"},
        {"{{ strftime_now('%Q') }}", "%Q is not supported"},
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "2 arguments for 'f', which takes 1"},
        {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "the macro has no parameter 'b'"},
        {"{{ [1, 2] | map('nosuch') | list }}", "map with a filter that is not supported"},
        {"{{ v.d | tojson(nosuch=1) }}", "the argument 'nosuch' is not supported here"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_template_text out = {.span_count = 0};
        lar_diag d = {.text = ""};
        assert_int_equal(render_json(rows[i].source, VALUES, &out, &d), LAR_INVALID);
        if (!strstr(d.text, rows[i].want)) fail_msg("%s: %s", rows[i].source, d.text);
        assert_int_equal(out.bytes.len, 0);
        lar_template_text_release(&out);
    }
}

/* Each ends in a limit, soon. */
static void test_hostile(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ range(10000000000) | list }}",
        "{{ 'x' * 10000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{% set ns = namespace(s='x') %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l == [l] }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
        "{% set l = range(300000) | list %}{% for x in l %}{{ l | sort | unique | list | length }}{% endfor %}",
        "{{ 'a' | indent(4000000000) }}{{ 'a\nb' | indent(4000000000) }}",
        "{% set s = 'a' * 16000000 %}{% for x in range(1000000) %}{{ s.replace('a', 'b').split('b') | length }}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for x in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    };
    lar_template_limits limits = LAR_TEMPLATE_LIMITS_DEFAULT;
    limits.steps_max /= 10; /* for sanitizers' sake */
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        lar_template_text out = {.span_count = 0};
        lar_diag d = {.text = ""};
        lar_error e = render_within(sources[i], VALUES, &limits, &out, &d);
        if (e != LAR_LIMIT) fail_msg("%s: %s %s", sources[i], lar_error_name(e), d.text);
        assert_true(strstr(d.text, "line ") != NULL);
        lar_template_text_release(&out);
    }
}

static size_t put(char *at, const char *text) {
    size_t n = strlen(text);
    memcpy(at, text, n);
    return n;
}

static void test_deep_sources(void **state) {
    (void)state;
    static const char *const pieces[][2] = {{"(", ")"},   {"[", "]"},           {"-", ""},   {"not ", ""},
                                            {"{1:", "}"}, {"a if b else ", ""}, {"f(", ")"}, {"a[", "]"}};
    enum { DEPTH = 20000 };
    char *text = malloc(DEPTH * 16 + 64);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        lar_template *t;
        lar_diag d = {.text = ""};
        size_t n = put(text, "{{ ");
        for (int k = 0; k < DEPTH; k++) n += put(text + n, pieces[i][0]);
        n += put(text + n, "1");
        for (int k = 0; k < DEPTH; k++) n += put(text + n, pieces[i][1]);
        n += put(text + n, " }}");
        lar_error e = lar_template_parse(lar_slice_of(text, n), &t, &d);
        bool flat = strcmp(pieces[i][0], "not ") == 0; /* a loop in the parser */
        if (flat != !e) fail_msg("%s...: %s %s", pieces[i][0], lar_error_name(e), d.text);
        lar_template_free(t);
    }
    size_t n = 0;
    for (int k = 0; k < DEPTH; k++) n += put(text + n, "{% if a %}");
    lar_template *t;
    assert_int_equal(lar_template_parse(lar_slice_of(text, n), &t, NULL), LAR_LIMIT);
    free(text);
}

/* 'o' for each byte of the template, 'v' for each of a value; the plain spans say the same. */
static void origins(const lar_template_text *t, char *out) {
    lar_text_span plain[32];
    uint32_t at = 0;
    assert_true(t->span_count <= sizeof plain / sizeof *plain);
    size_t count = lar_template_text_plain(t, plain), marked = 0;
    for (uint32_t i = 0; i < t->span_count; i++)
        while (at < t->spans[i].end) out[at++] = t->spans[i].origin == LAR_TEMPLATE_OWN ? 'o' : 'v';
    out[at] = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = plain[i].start; k < plain[i].end; k++, marked++) assert_int_equal(out[k], 'v');
    for (size_t k = 0; k < at; k++) marked -= out[k] == 'v';
    assert_int_equal(marked, 0);
}

static void test_origins(void **state) {
    (void)state;
    static const struct {
        const char *source, *text, *want;
    } rows[] = {
        {"<u>{{ v }}<e>", "<u>ab|cd<e>", "ooovvvvvooo"},
        {"{{ '<' + v + '>' }}", "<ab|cd>", "ovvvvvo"},
        {"{{ ('<' + v + '>').split('|') | join('|') }}", "<ab|cd>", "ovvovvo"},
        {"{{ ('<' + v)[1:3] }}{{ ('<' + v)[:2] }}", "ab<a", "vvov"},
        {"{{ (' ' + v + ' ') | trim }}", "ab|cd", "vvvvv"},
        {"{{ v.replace('|', '-') }}", "ab-cd", "vvovv"},
        {"{{ ('x' + v) | upper }}", "XAB|CD", "ovvvvv"},
        {"{{ v | tojson }}", "\"ab|cd\"", "vvvvvvv"},
        {"{{ {'k': v} | tojson }}", "{\"k\": \"ab|cd\"}", "oooooovvvvvvvo"},
        {"{{ [v] }}", "['ab|cd']", "ovvvvvvvo"},
        {"{% set x %}<{{ v }}>{% endset %}{{ x }}", "<ab|cd>", "ovvvvvo"},
        {"{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(v) }}", "<ab|cd>", "ovvvvvo"},
        {"{{ bos_token }}{{ v }}", "<BOS>ab|cd", "ooooovvvvv"},
        {"{{ v ~ 1 }}{{ v | length }}", "ab|cd15", "vvvvvoo"},
        {"{% for c in '<' + v %}{{ c }}{% endfor %}", "<ab|cd", "ovvvvv"},
        {"{{ (v + '>') | reverse }}", ">dc|ba", "ovvvvv"},
        {"{{ ('<' + v) | replace('b', '') | indent(1, first=true) }}", " <a|cd", "oovvvv"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_template_text out = {.span_count = 0};
        lar_diag d = {.text = ""};
        char got[64];
        if (render_json(rows[i].source, "\"ab|cd\"", &out, &d)) fail_msg("%s: %s", rows[i].source, d.text);
        assert_true(out.bytes.len < sizeof got);
        origins(&out, got);
        if (!lar_slice_eq_cstr(lar_buf_slice(&out.bytes), rows[i].text) || strcmp(got, rows[i].want) != 0)
            fail_msg("%s: [%.*s] %s", rows[i].source, LAR_FMT(lar_buf_slice(&out.bytes)), got);
        lar_template_text_release(&out);
    }
}

static void test_origins_of_numbers(void **state) {
    (void)state;
    static const char *const sources[] = {"{{ v }}",          "{{ v + 1 }}",  "{{ 2 * v }}",
                                          "{{ v | string }}", "{{ [v][0] }}", "{{ v | tojson }}"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        lar_template_text out = {.span_count = 0};
        lar_diag d = {.text = ""};
        if (render_json(sources[i], "12", &out, &d)) fail_msg("%s: %s", sources[i], d.text);
        assert_int_equal(out.span_count, 1);
        assert_int_equal(out.spans[0].origin, LAR_TEMPLATE_VALUE);
        lar_template_text_release(&out);
    }
}

static void test_messages(void **state) {
    (void)state;
    static const char source[] =
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments.k }}{% endfor %}{% endfor %}";
    static const char json[] =
        "[{\"role\":\"user\",\"content\":\"<|user|>\"},{\"role\":\"pirate\",\"content\":\"user\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"k\\\":\\\"w\\\"}\"}},"
        "{\"function\":{\"arguments\":\"no json\"}}]}]";
    lar_template *t;
    lar_diag d = {.text = ""};
    assert_int_equal(lar_template_parse(LAR_SLICE(source), &t, &d), LAR_OK);
    lar_template_values *v = lar_template_values_new(1 << 20);
    lar_template_text out = {.span_count = 0};
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE(json), LAR_TEMPLATE_ARGUMENTS_OBJECT, &d), LAR_OK);
    assert_int_equal(lar_template_render(t, v, NULL, &out, &d), LAR_OK);
    char got[128];
    origins(&out, got);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&out.bytes), "<|user|><|user|><|pirate|>user<|assistant|>w"));
    assert_string_equal(got, "oooooooovvvvvvvvoovvvvvvoovvvvooooooooooooov");
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE("{}"), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d), LAR_JSON_SHAPE);
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE("[1]"), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d), LAR_JSON_SHAPE);
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE("[{\"content\":1}]"), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d),
                     LAR_JSON_SHAPE);
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE("[{]"), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d), LAR_JSON_SYNTAX);
    assert_int_equal(lar_template_set_text(v, "x", LAR_SLICE("\xff"), LAR_TEMPLATE_OWN), LAR_INVALID);
    lar_template_text_release(&out);
    lar_template_values_free(v);
    lar_template_free(t);
}

static void test_questions(void **state) {
    (void)state;
    static const struct {
        const char *source;
        bool objects;
    } rows[] = {
        {"{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'x' + c.function.arguments }}{% endfor %}{% endfor %}",
         false},
        {"{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
         true},
        {"{% for m in messages %}{% for c in m.tool_calls or [] %}{% for k, w in c.function.arguments.items() %}{{ k }}={{ w }}{% endfor %}{% endfor %}{% endfor %}",
         true},
        {"{% for m in messages %}{{ m.content }}{% endfor %}", false},
    };
    lar_template *t;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(lar_template_parse(lar_slice_cstr(rows[i].source), &t, NULL), LAR_OK);
        assert_int_equal(lar_template_wants_objects(t), rows[i].objects);
        lar_template_free(t);
    }
    assert_int_equal(
        lar_template_parse(LAR_SLICE("{% set thinking = 1 %}{% if tools is defined %}{{ x.y }}{% endif %}"), &t, NULL),
        LAR_OK);
    assert_true(lar_template_reads(t, "tools"));
    assert_false(lar_template_reads(t, "thinking"));
    assert_false(lar_template_reads(t, "y"));
    assert_false(lar_template_reads(t, "nothing"));
    lar_template_free(t);
}

static void test_limits(void **state) {
    (void)state;
    lar_template *t;
    lar_diag d = {.text = ""};
    lar_template_text out = {.span_count = 0};
    lar_template_values *v = lar_template_values_new(1 << 20);
    assert_int_equal(lar_template_parse(LAR_SLICE("{{ 'abcdef' }}"), &t, NULL), LAR_OK);
    lar_template_limits limits = LAR_TEMPLATE_LIMITS_DEFAULT;
    limits.output_bytes_max = 5;
    assert_int_equal(lar_template_render(t, v, &limits, &out, &d), LAR_LIMIT);
    limits = LAR_TEMPLATE_LIMITS_DEFAULT;
    limits.steps_max = 1;
    assert_int_equal(lar_template_render(t, v, &limits, &out, &d), LAR_LIMIT);
    limits = LAR_TEMPLATE_LIMITS_DEFAULT;
    limits.memory_bytes_max = 64;
    assert_int_equal(lar_template_render(t, v, &limits, &out, &d), LAR_LIMIT);
    assert_int_equal(lar_template_render(t, v, NULL, &out, &d), LAR_OK);
    assert_int_equal(out.bytes.len, 6);
    lar_template_free(t);
    lar_template_values_free(v);
    lar_template_text_release(&out);
    v = lar_template_values_new(256);
    assert_int_equal(lar_template_set_json(v, "a", LAR_SLICE("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]"), &d),
                     LAR_LIMIT);
    lar_template_values_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressions), cmocka_unit_test(test_filters_and_tests),
        cmocka_unit_test(test_statements),  cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_errors_while_rendering),
        cmocka_unit_test(test_hostile),     cmocka_unit_test(test_deep_sources),
        cmocka_unit_test(test_origins),     cmocka_unit_test(test_origins_of_numbers),
        cmocka_unit_test(test_messages),    cmocka_unit_test(test_questions),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
