/* The fast parser of the span tree, as text that json_sse2.c, json_avx2.c and json_avx512.c include once
 * each, behind what they define for 64 bytes at a time:
 *     MACHINE_TARGET, MACHINE_RUN   the function attribute and the name of the parser
 *     chunk                         64 bytes in registers
 *     chunk_load(p, n)              bytes p[0, min(n, 64)), zeros behind them; n > 0
 *     chunk_marks(c)                where quotes, backslashes, control and non-ASCII bytes are
 *     chunk_escapes / _u / _hex / _blanks(c)   bytes that may follow a backslash; 'u'; hex digits; white space
 *     utf8_check(state, c)          bytes at which UTF-8 is wrong; called for each chunk of a string in order
 *     utf8_skip(state, c)           the same for a chunk that is all ASCII, as are the bytes before it
 * It decides quickly what is right. What is wrong goes to the reference functions of json_scan.h, which
 * find the first wrong byte and say why, so that errors cannot differ.
 * Reads never pass run->end. Not a header in any other sense. */

#define MACHINE static inline MACHINE_TARGET __attribute__((always_inline))

/* Bits of the bytes that are escaped by a backslash before them. A run of backslashes escapes every
 * second byte; *carry is 1 if the last byte of the chunk before was an escaping backslash.
 * The addition carries through whole runs at once (Langdale and Lemire, "Parsing gigabytes of JSON per
 * second", 3.1.1). */
MACHINE uint64_t escaped_bytes(uint64_t backslash, uint64_t *carry) {
    const uint64_t even = 0x5555555555555555u;
    backslash &= ~*carry;
    uint64_t follows = backslash << 1 | *carry;
    uint64_t odd_starts = backslash & ~even & ~follows;
    uint64_t ends;
    *carry = __builtin_add_overflow(odd_starts, backslash, &ends);
    return (even ^ ends << 1) & follows;
}

/* Four hex digits follow each 'u' of an escape; the bits of those that do not. */
MACHINE uint64_t hex_is_bad(chunk c, uint64_t u, uint64_t inside, uint64_t *carry) {
    uint64_t wanted = *carry | u << 1 | u << 2 | u << 3 | u << 4;
    *carry = u >> 63 | u >> 62 | u >> 61 | u >> 60;
    return wanted & inside & ~chunk_hex(c);
}

/* p is behind the opening quote. Returns the closing quote, or NULL if anything is wrong. */
static MACHINE_TARGET __attribute__((noinline)) const unsigned char *scan_long(const unsigned char *p,
                                                                               const unsigned char *end,
                                                                               uint8_t *flags) {
    uint64_t escape_carry = 0, hex_carry = 0, slashes = 0, any_escaped = 0, high = 0;
    utf8_state utf8 = utf8_start();
    for (; p < end; p += 64) {
        chunk c = chunk_load(p, (size_t)(end - p));
        marks m = chunk_marks(c);
        uint64_t quote = m.quote, escaped = 0, bad = 0;
        slashes |= m.backslash;
        if (slashes) { /* once there was one, more will come: a branch that is easy to foresee */
            escaped = escaped_bytes(m.backslash, &escape_carry);
            quote &= ~escaped;
        }
        uint64_t inside = quote ^ (quote - 1); /* up to the closing quote, with it; all where there is none */
        if (slashes) {
            escaped &= inside;
            any_escaped |= escaped;
            bad = escaped & ~chunk_escapes(c);
            uint64_t u = escaped & chunk_u(c);
            if (u | hex_carry) bad |= hex_is_bad(c, u, inside, &hex_carry);
        }
        bad |= m.control & inside;
        high |= m.high;
        if (high) bad |= utf8_check(&utf8, c) & inside;
        else utf8_skip(&utf8, c);
        if (bad) return NULL;
        if (quote) {
            if (any_escaped) *flags |= LAR_JSON_ESCAPED;
            return p + __builtin_ctzll(quote);
        }
    }
    return NULL;
}

/* Names and short values end in their first chunk, with nothing in them that needs a second look. */
MACHINE const unsigned char *scan_string(const unsigned char *p, const unsigned char *end, uint8_t *flags) {
    if (p < end) {
        marks m = chunk_marks(chunk_load(p, (size_t)(end - p)));
        uint64_t inside = m.quote ^ (m.quote - 1);
        if (m.quote && !((m.backslash | m.control | m.high) & inside)) return p + __builtin_ctzll(m.quote);
    }
    return scan_long(p, end, flags);
}

MACHINE const unsigned char *skip_blanks(const unsigned char *p, const unsigned char *end) {
    if (p<end && * p> ' ') return p;
    if (end - p >= 2 && *p == ' ' && p[1] > ' ') return p + 1; /* after ':' and ',' as many writers have it */
    while (p < end) {
        uint64_t other = ~chunk_blanks(chunk_load(p, (size_t)(end - p)));
        if (other) {
            p += __builtin_ctzll(other);
            return p < end ? p : end;
        }
        p += 64;
    }
    return end;
}

MACHINE const unsigned char *skip_digits(const unsigned char *p, const unsigned char *end) {
    while (p < end && (unsigned)(*p - '0') < 10) p++;
    return p;
}

/* Behind the number at p, or NULL if it is none. */
MACHINE const unsigned char *scan_number(const unsigned char *p, const unsigned char *end) {
    const unsigned char *q;
    p += *p == '-';
    q = p < end && *p == '0' ? p + 1 : skip_digits(p, end);
    if (q == p) return NULL;
    p = q;
    if (p < end && *p == '.') {
        q = skip_digits(p + 1, end);
        if (q == p + 1) return NULL;
        p = q;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        q = skip_digits(p, end);
        if (q == p) return NULL;
        p = q;
    }
    return p;
}

MACHINE bool is_word(const unsigned char *p, const unsigned char *end, const char *word, size_t len) {
    return (size_t)(end - p) >= len && memcmp(p, word, len) == 0;
}

MACHINE lar_error add_string(lar_json_run *run, const unsigned char **p, uint8_t flags) {
    const unsigned char *start = *p;
    if (run->count >= run->room) {
        lar_error e = lar_json_grow_nodes(run, start);
        if (e) return e;
    }
    const unsigned char *quote = scan_string(start + 1, run->end, &flags);
    if (quote) {
        *p = quote + 1;
    } else {
        flags &= LAR_JSON_KEY;
        lar_error e = lar_json_scan_string(run, start, p, &flags);
        if (e) return e;
    }
    lar_json_push(run, LAR_JSON_STRING, start, *p)->flags = flags;
    return LAR_OK;
}

MACHINE lar_error add_plain(lar_json_run *run, const unsigned char **p) {
    const unsigned char *start = *p, *behind = NULL;
    lar_json_kind kind = LAR_JSON_NUMBER;
    if (run->count >= run->room) {
        lar_error e = lar_json_grow_nodes(run, start);
        if (e) return e;
    }
    if (*start == 't') {
        kind = LAR_JSON_TRUE;
        if (is_word(start, run->end, "true", 4)) behind = start + 4;
    } else if (*start == 'f') {
        kind = LAR_JSON_FALSE;
        if (is_word(start, run->end, "false", 5)) behind = start + 5;
    } else if (*start == 'n') {
        kind = LAR_JSON_NULL;
        if (is_word(start, run->end, "null", 4)) behind = start + 4;
    } else {
        behind = scan_number(start, run->end);
    }
    if (!behind) {
        lar_error e = lar_json_scan_plain(run, start, &kind, &behind);
        if (e) return e;
    }
    lar_json_push(run, kind, start, behind);
    *p = behind;
    return LAR_OK;
}

MACHINE lar_error open_container(lar_json_run *run, const unsigned char *p, lar_json_kind kind) {
    if (run->depth >= run->deep) {
        lar_error e = lar_json_grow_stack(run, p);
        if (e) return e;
    }
    if (run->count >= run->room) {
        lar_error e = lar_json_grow_nodes(run, p);
        if (e) return e;
    }
    run->j->stack[run->depth] = run->count;
    lar_json_push(run, kind, p, p);
    run->depth++;
    return LAR_OK;
}

/* A dispatcher over the grammar's states, each a label; long because one jump between two states is what
 * makes it fast. `run` is a copy, so that the compiler can keep its fields in registers. */
MACHINE_TARGET lar_error MACHINE_RUN(lar_json_run *out, const unsigned char *p) {
    lar_json_run copy = *out, *run = &copy;
    const unsigned char *const end = run->end;
    lar_json_node *parent = NULL;
    lar_error e;

value:
    p = skip_blanks(p, end);
    if (parent) parent->count++;
    if (p == end) return lar_json_unexpected(run, p, "a value");
    if (*p == '"') {
        e = add_string(run, &p, 0);
        if (e) return e;
        goto next;
    }
    if (*p == '{') {
        e = open_container(run, p, LAR_JSON_OBJECT);
        if (e) return e;
        p = skip_blanks(p + 1, end);
        if (p < end && *p == '}') goto close;
        goto key;
    }
    if (*p == '[') {
        e = open_container(run, p, LAR_JSON_ARRAY);
        if (e) return e;
        p = skip_blanks(p + 1, end);
        if (p < end && *p == ']') goto close;
        goto child;
    }
    e = add_plain(run, &p);
    if (e) return e;

next:
    if (!run->depth) goto done;
    p = skip_blanks(p, end);
    parent = &run->j->nodes[run->j->stack[run->depth - 1]];
    if (parent->kind == LAR_JSON_OBJECT) {
        if (p < end && *p == '}') goto close;
        if (p == end || *p != ',') return lar_json_unexpected(run, p, "',' or '}'");
        p = skip_blanks(p + 1, end);
        goto key;
    }
    if (p < end && *p == ']') goto close;
    if (p == end || *p != ',') return lar_json_unexpected(run, p, "',' or ']'");
    p++;

child:
    parent = &run->j->nodes[run->j->stack[run->depth - 1]];
    goto value;

key:
    if (p == end || *p != '"') return lar_json_unexpected(run, p, "a member's name");
    e = add_string(run, &p, LAR_JSON_KEY);
    if (e) return e;
    p = skip_blanks(p, end);
    if (p == end || *p != ':') return lar_json_unexpected(run, p, "':'");
    p++;
    goto child;

close:
    run->depth--;
    parent = &run->j->nodes[run->j->stack[run->depth]];
    parent->end = (uint32_t)(++p - run->base);
    parent->next = run->count;
    goto next;

done:
    p = skip_blanks(p, end);
    if (p != end) return lar_json_unexpected(run, p, "the end of the body");
    out->count = run->count;
    return LAR_OK;
}
