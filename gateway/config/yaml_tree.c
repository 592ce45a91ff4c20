/* YAML text to a tree, through libyaml's events.
 * Called by the configuration loader; blocks on nothing; one thread.
 * Events and not libyaml's own documents, because the limits must hold while it parses: a file of aliases or of
 * brackets is refused at the first one too many, before it costs anything.
 * Invariants: 1. depth, nodes and members stay within the limits. 2. a map holds no name twice. 3. no message repeats
 * a value. Memory: the caller's arena, libyaml's own while it parses. */
#include "gateway/config/yaml_tree.h"

#include <yaml.h>

typedef struct builder {
    const char *file;
    lar_slice text;
    lar_arena *arena;
    lar_diag *d;
    lar_yaml_node *root;
    lar_yaml_node *open[LAR_YAML_DEPTH_MAX];
    lar_yaml_node *key[LAR_YAML_DEPTH_MAX]; /* the name that waits for its value */
    uint32_t depth, nodes, documents;
} builder;

static lar_error fail(builder *b, const yaml_mark_t *at, const char *what) {
    return lar_fail(LAR_CONFIG, b->d, "%s:%zu:%zu: %s", b->file, at->line + 1, at->column + 1, what);
}

static lar_error has_key(builder *b, const lar_yaml_node *map, const lar_yaml_node *key, const yaml_mark_t *at) {
    for (const lar_yaml_node *n = map->first; n; n = n->next) {
        if (!lar_slice_eq(n->key->text, key->text)) continue;
        char why[120];
        (void)snprintf(why, sizeof why, "this name stands here twice (before: line %u); keep one",
                       (unsigned)n->key->line);
        return fail(b, at, why);
    }
    return LAR_OK;
}

/* Hangs `n` into the open container, or makes it the root. */
static lar_error attach(builder *b, lar_yaml_node *n, const yaml_mark_t *at) {
    if (b->depth == 0) {
        b->root = n;
        return LAR_OK;
    }
    lar_yaml_node *parent = b->open[b->depth - 1];
    lar_yaml_node **key = &b->key[b->depth - 1];
    if (parent->kind == LAR_YAML_MAP && !*key) {
        if (n->kind != LAR_YAML_SCALAR) return fail(b, at, "a name must be plain text, not a list or a map");
        *key = n;
        return has_key(b, parent, n, at);
    }
    if (parent->count == LAR_YAML_MEMBERS_MAX) return fail(b, at, "too many members in one list or map");
    n->key = *key;
    *key = NULL;
    if (parent->last) parent->last->next = n;
    else parent->first = n;
    parent->last = n;
    parent->count++;
    return LAR_OK;
}

static lar_error add(builder *b, lar_yaml_kind kind, const yaml_event_t *ev, lar_slice text, bool quoted) {
    const yaml_mark_t *at = &ev->start_mark;
    if (++b->nodes > LAR_YAML_NODES_MAX) return fail(b, at, "too many values in one file");
    if (kind != LAR_YAML_SCALAR && b->depth == LAR_YAML_DEPTH_MAX) return fail(b, at, "nested too deeply");
    lar_yaml_node *n = lar_arena_zalloc(b->arena, sizeof *n);
    if (!n) return lar_fail(LAR_NO_MEMORY, b->d, "%s: out of memory", b->file);
    n->kind = kind;
    n->quoted = quoted;
    n->line = (uint32_t)at->line + 1;
    n->column = (uint32_t)at->column + 1;
    n->text = lar_arena_copy(b->arena, text);
    if (!n->text.ptr) return lar_fail(LAR_NO_MEMORY, b->d, "%s: out of memory", b->file);
    lar_error e = attach(b, n, at);
    if (e || kind == LAR_YAML_SCALAR) return e;
    b->open[b->depth] = n;
    b->key[b->depth] = NULL;
    b->depth++;
    return LAR_OK;
}

static lar_error plain_only(builder *b, const yaml_event_t *ev, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor) return fail(b, &ev->start_mark, "anchors (&name) are not supported; write the value out");
    if (tag) return fail(b, &ev->start_mark, "tags (!name) are not supported; write the plain value");
    return LAR_OK;
}

static lar_error take(builder *b, const yaml_event_t *ev) {
    lar_error e;
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++b->documents > 1) return fail(b, &ev->start_mark, "only one document in a file");
        return LAR_OK;
    case YAML_ALIAS_EVENT:
        return fail(b, &ev->start_mark,
                    "aliases (*name) are not supported; write the value out, and quote text that begins with *");
    case YAML_SCALAR_EVENT:
        e = plain_only(b, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
        if (e) return e;
        return add(b, LAR_YAML_SCALAR, ev, lar_slice_of((const char *)ev->data.scalar.value, ev->data.scalar.length),
                   ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE);
    case YAML_SEQUENCE_START_EVENT:
        e = plain_only(b, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag);
        return e ? e : add(b, LAR_YAML_LIST, ev, LAR_SLICE(""), false);
    case YAML_MAPPING_START_EVENT:
        e = plain_only(b, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
        return e ? e : add(b, LAR_YAML_MAP, ev, LAR_SLICE(""), false);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: b->depth--; return LAR_OK;
    default: return LAR_OK;
    }
}

/* A tab at the mark, or among the blanks that begin its line: libyaml speaks of tokens and violations then. */
static bool is_tab(lar_slice text, const yaml_mark_t *at) {
    const char *line = text.ptr, *end = text.ptr + text.len;
    for (size_t n = at->line; line && n > 0; n--) {
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    if (!line) return false;
    size_t column = 0;
    bool indent = true;
    for (; line < end && *line != '\n' && column <= at->column; line++) {
        if (*line == '\t' && (indent || column == at->column)) return true;
        indent = indent && *line == ' ';
        column += ((unsigned char)*line & 0xc0) != 0x80;
    }
    return false;
}

static lar_error syntax(builder *b, const yaml_parser_t *p) {
    if (p->error == YAML_MEMORY_ERROR) return lar_fail(LAR_NO_MEMORY, b->d, "%s: out of memory", b->file);
    const char *what = p->problem ? p->problem : "not valid YAML";
    if (p->error == YAML_READER_ERROR)
        return lar_fail(LAR_CONFIG, b->d, "%s: byte %zu: %s", b->file, p->problem_offset + 1, what);
    bool tab = p->error == YAML_SCANNER_ERROR && is_tab(b->text, &p->problem_mark);
    return fail(b, &p->problem_mark, tab ? "a tab cannot indent YAML; use blanks" : what);
}

lar_error lar_yaml_parse(lar_slice text, const char *file, lar_arena *arena, const lar_yaml_node **root, lar_diag *d) {
    builder b = {.file = file, .text = text, .arena = arena, .d = d};
    *root = NULL;
    if (text.len > LAR_YAML_BYTES_MAX)
        return lar_fail(LAR_CONFIG, d, "%s: larger than %u bytes", file, LAR_YAML_BYTES_MAX);
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return lar_fail(LAR_NO_MEMORY, d, "%s: out of memory", file);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
    lar_error e = LAR_OK;
    for (bool more = true; more && !e;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&parser, &ev)) {
            e = syntax(&b, &parser);
            break;
        }
        more = ev.type != YAML_STREAM_END_EVENT;
        e = take(&b, &ev);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    if (!e) *root = b.root;
    return e;
}
