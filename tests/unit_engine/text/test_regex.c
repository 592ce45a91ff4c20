/* Regular expressions of tokenizers: what they match, what is refused, and that a hostile text or pattern ends soon.
 * tests/fuzz/fuzz_regex.c holds them against a backtracking witness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "engine/text/pretoken.h"

/* Matches in brackets, what lies between as it is: "a[bb]c". */
static void mark_matches(const lar_regex *r, lar_slice text, lar_buf *out) {
    lar_regex_memo memo = {.work_max = UINT64_MAX};
    lar_regex_range found;
    size_t at = 0;
    out->len = 0;
    while (lar_regex_find(r, text.ptr, (lar_regex_range){at, text.len}, &memo, &found)) {
        assert_int_equal(lar_buf_printf(out, "%.*s[%.*s]", (int)(found.first - at), text.ptr + at,
                                        (int)(found.end - found.first), text.ptr + found.first),
                         LAR_OK);
        at = found.end;
    }
    assert_int_equal(lar_buf_add(out, text.ptr + at, text.len - at), LAR_OK);
}

#define SHORT_WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

static const struct {
    const char *pattern, *text, *marked;
} matches[] = {
    {"a", "banana", "b[a]n[a]n[a]"},
    {"a|ab", "ab", "[a]b"}, /* the first alternative, not the longest */
    {"ab|a", "ab", "[ab]"},
    {"(a|ab)(c|bcd)(d*)", "abcd", "[abcd]"},
    {"(?:a+b?)+c", "aabac aab", "[aabac] aab"},
    {"a{2}", "aaaaa", "[aa][aa]a"},
    {"a{2,}", "aaaaa a", "[aaaaa] a"},
    {"a{2,3}", "aaaaaaa", "[aaa][aaa]a"},
    {"xa?y", "xy xay xaay", "[xy] [xay] xaay"},
    {"(?:ab){2}c*", "ababccab", "[ababcc]ab"},
    {"[^a-c]+", "abcdefcab", "abc[def]cab"},
    {"[]a]+", "a]b", "[a]]b"},
    {"[a\\-z]+", "a-bz", "[a-]b[z]"},
    {"[a-]+", "-ab", "[-a]b"},
    {"[a-z&&[^m-p]]+", "lmnopq", "[l]mnop[q]"},
    {"[a-z&&[^aeiou]&&[a-m]]+", "abcdefz", "a[bcd]e[f]z"},
    {"[ab[0-4]]+", "a3c5b", "[a3]c5[b]"},
    {".+", "ab\ncd", "[ab]\n[cd]"},
    {"\\x41\\x{1F600}\\u4E2D", "A\xF0\x9F\x98\x80\xE4\xB8\xAD", "[A\xF0\x9F\x98\x80\xE4\xB8\xAD]"},
    {"\\p{Lu}\\p{Ll}+", "Abc ABC", "[Abc] ABC"},
    {"\\p{^L}+", "ab12cd", "ab[12]cd"},
    {"\\P{L}+", "ab12cd", "ab[12]cd"},
    {"\\p{Han}+", "a\xE4\xB8\xAD\xE6\x96\x87z", "a[\xE4\xB8\xAD\xE6\x96\x87]z"},
    {"\\d+", "12\xD9\xA3x\xC2\xB2", "[12\xD9\xA3]x\xC2\xB2"},                               /* Nd: no superscript */
    {"\\s+", "a\xC2\x85\xE3\x80\x80z\xEF\xBB\xBF", "a[\xC2\x85\xE3\x80\x80]z\xEF\xBB\xBF"}, /* NEL, not the BOM */
    {"\\s+(?!\\S)", "a   b  ", "a[  ] b[  ]"},
    {"\\s+(?=b)", "  a  b", "  a[  ]b"},
    {"\\s+$", "  a  ", "  a[  ]"},
    {"a+$", "aa\naab", "[aa]\naab"},
    {"b(?=c)|b", "bcb", "[b]c[b]"},
    {SHORT_WORDS, "it'S 'Re 'LL 'x", "it['S] ['Re] ['LL] 'x"},
    {SHORT_WORDS, "it'\xC5\xBF", "it['\xC5\xBF]"}, /* the long s folds to s */
    {"(?i:k)", "kK\xE2\x84\xAA", "[k][K][\xE2\x84\xAA]"},
    {"a(?i:b)c", "abc aBc aBC", "[abc] [aBc] aBC"},
    {"[^x]", "\x80x\xE4\xB8", "[\x80]x[\xE4][\xB8]"}, /* a stray byte is a character */
    {"\\p{L}|\\p{M}|\\p{N}|\\p{P}|\\p{S}|\\p{Z}", "\xFF\xC0\x80", "\xFF\xC0\x80"},
};

static void first_alternatives_and_classes(void **state) {
    (void)state;
    lar_buf marked;
    lar_buf_init(&marked, 4096);
    for (size_t i = 0; i < sizeof matches / sizeof *matches; i++) {
        lar_regex *r = NULL;
        lar_diag d = {0};
        lar_error e = lar_regex_new(lar_slice_cstr(matches[i].pattern), &r, &d);
        if (e) print_error("%s: %s\n", matches[i].pattern, d.text);
        assert_int_equal(e, LAR_OK);
        mark_matches(r, lar_slice_cstr(matches[i].text), &marked);
        bool same = lar_slice_eq_cstr(lar_buf_slice(&marked), matches[i].marked);
        if (!same) print_error("%s gives %.*s\n", matches[i].pattern, LAR_FMT(lar_buf_slice(&marked)));
        assert_true(same);
        lar_regex_free(r);
    }
    lar_buf_release(&marked);
}

static const struct {
    const char *pattern, *says;
    uint64_t at;
} refused[] = {
    {"", "it can match nothing", 0},
    {"a*", "it can match nothing", 0},
    {"a|", "it can match nothing", 0},
    {"$", "it can match nothing", 0},
    {"a**", "lazy and possessive", 2},
    {"ab+?", "lazy and possessive", 3},
    {"a++", "lazy and possessive", 2},
    {"*a", "a quantifier without something", 0},
    {"a|+", "a quantifier without something", 2},
    {"(a?)+b", "what it repeats can match nothing", 4},
    {"a{2", "{ is not followed", 1},
    {"a{,3}", "{ is not followed", 1},
    {"a{3,2}", "a repetition's bounds", 1},
    {"a{0}", "a repetition's bounds", 1},
    {"a{1,257}", "a repetition's bounds", 1},
    {"a{4294967297}", "a repetition's bounds", 1},
    {"x(ab", "a ( without its )", 1},
    {"ab)", "a ) without its (", 2},
    {"(?<=a)b", "this kind of group", 0},
    {"a(?>b)", "this kind of group", 1},
    {"(?<name>b)", "this kind of group", 0},
    {"(?-i:b)", "this kind of group", 0},
    {"a(?!bc)", "a look-ahead holds one character", 1},
    {"a(?!)", "a look-ahead holds one character", 1},
    {"a(?=", "a look-ahead holds one character", 1},
    {"(?i:\xC3\xA9)", "in (?i:..) only characters of ASCII", 4},
    {"(?i:\\p{L})", "in (?i:..) only characters of ASCII", 4},
    {"^a", "^ is not supported", 0},
    {"a\\", "it ends in a backslash", 1},
    {"\\bword", "this escape is not supported", 0},
    {"\\w+", "this escape is not supported", 0},
    {"(a)\\1", "this escape is not supported", 3},
    {"\\pL", "\\p stands without {name}", 0},
    {"\\p{L", "\\p{ is not closed", 0},
    {"\\p{Greek}", "this property is not supported", 0},
    {"\\p{}", "this property is not supported", 0},
    {"\\x{110000}", "a character's number", 0},
    {"\\x4", "a character's number", 0},
    {"\\u12", "a character's number", 0},
    {"\\x{}", "a character's number", 0},
    {"a[b", "a class is not closed", 1},
    {"[", "a class is not closed", 0},
    {"[^", "a class is not closed", 0},
    {"[b-a]", "a range ends before it begins", 1},
    {"[\\s-z]", "a range begins with a set", 1},
    {"[a-\\s]", "a range ends before it begins, or in a set", 1},
    {"[a-[b]]", "a range ends in a class", 1},
    {"[a&&]", "a class or an operand of && is empty", 4},
    {"[&&a]", "an operand of && is empty", 1},
    {"[[:alpha:]]", "a class of POSIX", 1},
    {"[[[[[[[[[a]]]]]]]]]", "classes are nested too deeply", 8},
    {"((((((((((((((((a))))))))))))))))", "groups are nested too deeply", 15},
    {"a\xE4", "it is not valid UTF-8", 1},
    {"[\x80]", "it is not valid UTF-8", 1},
};

static void what_is_not_understood_is_refused_with_its_place(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        lar_regex *r = NULL;
        lar_diag d = {0};
        lar_error e = lar_regex_new(lar_slice_cstr(refused[i].pattern), &r, &d);
        if (e != LAR_INVALID || !strstr(d.text, refused[i].says) || d.offset != refused[i].at)
            print_error("%s: %s at %llu\n", refused[i].pattern, d.text, (unsigned long long)d.offset);
        assert_int_equal(e, LAR_INVALID);
        assert_non_null(strstr(d.text, refused[i].says));
        assert_int_equal(d.offset, refused[i].at);
    }
}

/* Patterns that ask for too much memory or time, each by another way. */
static void patterns_too_large_end_soon(void **state) {
    (void)state;
    static const char *const large[] = {"((((a{250}){250}){250}){250})", "(?:a|b)*a(?:a|b){12}", "(?:[ab]{200}|c){12}"};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        lar_regex *r = NULL;
        lar_diag d = {0};
        lar_error e = lar_regex_new(lar_slice_cstr(large[i]), &r, &d);
        if (e != LAR_LIMIT) print_error("%s\n", large[i]);
        assert_int_equal(e, LAR_LIMIT);
        assert_true(d.text[0] != 0);
    }
    lar_buf classes;
    lar_buf_init(&classes, 8192);
    for (int i = 0; i < 70; i++) assert_int_equal(lar_buf_printf(&classes, "[a\\x{%x}]", 0x1000 + i), LAR_OK);
    lar_regex *r = NULL;
    assert_int_equal(lar_regex_new(lar_buf_slice(&classes), &r, NULL), LAR_LIMIT);
    classes.len = 0;
    for (int i = 0; i < 4100; i++) assert_int_equal(lar_buf_add(&classes, "a", 1), LAR_OK);
    assert_int_equal(lar_regex_new(lar_buf_slice(&classes), &r, NULL), LAR_LIMIT);
    lar_buf_release(&classes);
}

/* Without the memo each of these looks at the rest of the run from every place of it. */
static void long_runs_are_looked_at_once(void **state) {
    (void)state;
    enum { LONG = 1 << 20 };
    static const char *const patterns[] = {"\\s+$", "\\s*x", "\\s+(?=y)", "b|\\s+c|\\s+\\sd"};
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, ' ', LONG);
    text[LONG - 1] = 'a';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lar_regex *r = NULL;
        lar_regex_memo memo = {.work_max = 8ull * LONG};
        lar_regex_range found;
        assert_int_equal(lar_regex_new(lar_slice_cstr(patterns[i]), &r, NULL), LAR_OK);
        assert_false(lar_regex_find(r, text, (lar_regex_range){0, LONG}, &memo, &found));
        if (memo.work > memo.work_max) print_error("%s\n", patterns[i]);
        assert_true(memo.work <= memo.work_max);
        lar_regex_free(r);
    }
    free(text);
}

/* A pattern that no tokenizer has can still be slow: the walk ends with an error instead. */
static void a_walk_has_a_limit(void **state) {
    (void)state;
    enum { LONG = 1 << 18 };
    lar_pretoken steps = {0};
    lar_pieces walk;
    lar_slice piece;
    bool more = true;
    char *text = malloc(LONG);
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++) text[i] = i % 2 ? 'a' : 'b';
    assert_int_equal(lar_pretoken_add(&steps, LAR_SLICE("a|b|(?:ab)+c|(?:ba)+c"), NULL), LAR_OK);
    lar_pieces_init(&walk, &steps, lar_slice_of(text, LONG), 0, LONG);
    lar_error e = LAR_OK;
    size_t pieces = 0;
    while (!(e = lar_pieces_next(&walk, &piece, &more)) && more) pieces++;
    assert_int_equal(e, LAR_OK); /* the first alternative ends the run at once */
    assert_int_equal(pieces, LONG);
    lar_pretoken_release(&steps);
    assert_int_equal(lar_pretoken_add(&steps, LAR_SLICE("(?:ab)+c|(?:ba)+c|a|b"), NULL), LAR_OK);
    lar_pieces_init(&walk, &steps, lar_slice_of(text, LONG), 0, LONG);
    while (!(e = lar_pieces_next(&walk, &piece, &more)) && more) {}
    assert_int_equal(e, LAR_LIMIT);
    lar_pretoken_release(&steps);
    free(text);
}

/* -- pieces -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *family, *text, *pieces;
} families[] = {
    {"deepseek-v3", "Hello world, it's 1234567 \xE4\xB8\x96\xE7\x95\x8C!\n\n  x",
     "Hello| world|,| it|'s| |123|456|7| |\xE4\xB8\x96\xE7\x95\x8C|!\n\n| | x"},
    {"joyai-llm", "a_b 12", "a|_b| |12"},
    {"deepseek-llm", "Hello world, 1234 \xE4\xB8\xAD\n x  ", "Hello| world|,| |1|2|3|4| |\xE4\xB8\xAD|\n| x|  "},
    {"deepseek-coder", "int x=42; \xE4\xB8\xAD\r\n", "int| x|=|4|2|;| |\xE4\xB8\xAD|\r|\n"},
    {"glm4", "I'LL don't 12345 \xE4\xB8\xAD\xE6\x96\x87\xEF\xBC\x81\n",
     "I|'LL| don|'t| |123|45| \xE4\xB8\xAD\xE6\x96\x87|\xEF\xBC\x81\n"},
    {"kimi-k2",
     "HelloWORLD's \xE4\xB8\xAD\xE6\x96\x87"
     "abc 1234",
     "Hello|WORLD's| |\xE4\xB8\xAD\xE6\x96\x87|abc| |123|4"},
};

static void families_cut_as_their_models_were_trained(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        lar_pretoken steps = {0};
        lar_pieces walk;
        lar_slice piece, text = lar_slice_cstr(families[i].text);
        lar_buf out;
        bool more;
        lar_buf_init(&out, 1024);
        assert_int_equal(lar_pretoken_add_family(&steps, lar_slice_cstr(families[i].family), NULL), LAR_OK);
        lar_pieces_init(&walk, &steps, text, 0, text.len);
        while (!lar_pieces_next(&walk, &piece, &more) && more)
            assert_int_equal(lar_buf_printf(&out, "%s%.*s", out.len ? "|" : "", LAR_FMT(piece)), LAR_OK);
        bool same = lar_slice_eq_cstr(lar_buf_slice(&out), families[i].pieces);
        if (!same) print_error("%s cuts %.*s\n", families[i].family, LAR_FMT(lar_buf_slice(&out)));
        assert_true(same);
        lar_buf_release(&out);
        lar_pretoken_release(&steps);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_alternatives_and_classes),
        cmocka_unit_test(what_is_not_understood_is_refused_with_its_place),
        cmocka_unit_test(patterns_too_large_end_soon),
        cmocka_unit_test(long_runs_are_looked_at_once),
        cmocka_unit_test(a_walk_has_a_limit),
        cmocka_unit_test(families_cut_as_their_models_were_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
