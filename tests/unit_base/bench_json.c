/* How long lar_json_parse takes, by kind and size of body and by instruction set: CSV on stdout, best and
 * median of many runs in microseconds. Never a test: machines differ. One thread; blocks on nothing.
 * Memory: one body and one tree, used again and again, as a loop of the gateway does. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json_scan.h"

enum { RUNS = 400, BODY_MAX = 2 << 20 };

static void add(lar_buf *b, const char *text) {
    if (lar_buf_add_slice(b, lar_slice_cstr(text))) abort();
}

static void close_at(lar_buf *b, size_t size, const char *tail) {
    while (b->len + strlen(tail) < size) add(b, " ");
    add(b, tail);
}

static void long_messages(lar_buf *b, size_t size, const char *line, size_t message_bytes) {
    add(b, "{\"model\":\"deepseek-chat\",\"stream\":true,\"messages\":[");
    for (int turn = 0; b->len + message_bytes + 200 < size; turn++) {
        add(b, turn ? ",{\"role\":\"" : "{\"role\":\"");
        add(b, turn % 2 ? "assistant" : "user");
        add(b, "\",\"content\":\"");
        size_t from = b->len;
        while (b->len - from < message_bytes) add(b, line);
        add(b, "\"}");
    }
    close_at(b, size, "]}");
}

static void english(lar_buf *b, size_t size) {
    long_messages(b, size,
                  "The quick brown fox jumps over the lazy dog, and then it writes a line of prose that ends here.\\n",
                  4096);
}
static void chinese(lar_buf *b, size_t size) {
    long_messages(b, size, "今天天气很好,我们去公园散步,然后讨论一下缓存的设计 (prefix cache)。\\n", 4096);
}
static void code(lar_buf *b, size_t size) {
    long_messages(b, size, "    if (strcmp(a, \\\"x\\\\n\\\") == 0) {\\n\\t\\treturn \\\"y\\\";\\n    }\\n", 4096);
}
static void ascii_only(lar_buf *b, size_t size) {
    long_messages(b, size, "\\u4eca\\u5929\\u5929\\u6c14\\u5f88\\u597d cache \\u7684\\u8bbe\\u8ba1\\n", 4096);
}
static void tools(lar_buf *b, size_t size) {
    add(b, "{\"model\":\"m\",\"tools\":[");
    for (int i = 0; b->len + 700 < size; i++) {
        add(b, i ? ", " : "");
        add(b,
            "{\"type\": \"function\", \"function\": {\"name\": \"read_file\", \"description\": \"Reads a file from the disk "
            "and returns its lines.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": "
            "\"string\", \"description\": \"Where it is\"}, \"offset\": {\"type\": \"integer\", \"minimum\": 0}, \"limit\": "
            "{\"type\": \"integer\", \"default\": 2000, \"maximum\": 10000}}, \"required\": [\"path\"], "
            "\"additionalProperties\": false}, \"strict\": true}}");
    }
    close_at(b, size, "]}");
}
static void numbers(lar_buf *b, size_t size) {
    add(b, "{\"embedding\":[0");
    while (b->len + 100 < size) add(b, ",-0.01234567,0.5,1.25e-05");
    close_at(b, size, "]}");
}
static void pretty(lar_buf *b, size_t size) {
    add(b, "{\"items\":[0");
    while (b->len + 200 < size)
        add(b, ",\n            {\n                \"name\": \"value\",\n                \"n\": 12\n            }");
    close_at(b, size, "]}");
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(lar_json *j, const char *kind, lar_slice body) {
    static const char *const names[] = {"scalar", "sse2", "avx2", "avx512"};
    for (int isa = 0; isa <= (int)lar_json_isa_best(); isa++) {
        uint64_t took[RUNS];
        lar_diag d;
        for (int i = 0; i < RUNS; i++) {
            uint64_t from = lar_clock_mono_ns();
            if (lar_json_parse_isa((lar_json_isa)isa, j, body, NULL, &d)) {
                (void)fprintf(stderr, "%s: %s\n", kind, d.text);
                exit(1);
            }
            took[i] = lar_clock_mono_ns() - from;
        }
        qsort(took, RUNS, sizeof took[0], by_value);
        (void)printf("%s,%zu,%u,%s,%.2f,%.2f\n", kind, body.len, j->count, names[isa], (double)took[0] / 1000,
                     (double)took[RUNS / 2] / 1000);
    }
}

int main(void) {
    static const struct {
        const char *name;
        void (*fill)(lar_buf *b, size_t size);
    } kinds[] = {{"english", english}, {"chinese", chinese}, {"code", code},    {"ascii_escapes", ascii_only},
                 {"tools", tools},     {"numbers", numbers}, {"pretty", pretty}};
    static const size_t sizes[] = {16 << 10, 256 << 10, 1 << 20};
    lar_json j;
    lar_buf body;
    lar_json_init(&j);
    lar_buf_init(&body, BODY_MAX);
    (void)printf("kind,bytes,nodes,parser,best_us,median_us\n");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            lar_buf_reset(&body, BODY_MAX);
            kinds[k].fill(&body, sizes[s]);
            measure(&j, kinds[k].name, lar_buf_slice(&body));
        }
    }
    lar_buf_release(&body);
    lar_json_release(&j);
    return 0;
}
