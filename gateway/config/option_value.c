/* Parsers of single values: numbers, durations, sizes, booleans, choices, text.
 * Called by the option rows; any thread; never blocks; no memory.
 * Durations need a unit and sizes know only powers of 1024 with their own names, because a bare 30 and a "64k" mean
 * one thing to one reader and another to the next.
 * Invariants: 1. no product or sum overflows. 2. a message never repeats the text: it may be a credential that was
 * written in the wrong place. */
#include "gateway/config/option_value.h"

typedef struct unit_row {
    const char *name;
    uint64_t factor;
} unit_row;

static const unit_row durations[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
static const unit_row sizes[] = {
    {"", 1}, {"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}};

static size_t digits(lar_slice text) {
    size_t n = 0;
    while (n < text.len && text.ptr[n] >= '0' && text.ptr[n] <= '9') n++;
    return n;
}

lar_error lar_value_number(lar_slice text, uint64_t *out, lar_diag *d) {
    if (text.len == 0) return lar_fail(LAR_INVALID, d, "a number is missing");
    if (digits(text) != text.len) return lar_fail(LAR_INVALID, d, "is not a whole number in decimal digits");
    if (text.len > 1 && text.ptr[0] == '0') return lar_fail(LAR_INVALID, d, "has a leading zero; numbers are decimal");
    uint64_t v = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint64_t digit = (uint64_t)(text.ptr[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) return lar_fail(LAR_INVALID, d, "is too large a number");
        v = v * 10 + digit;
    }
    *out = v;
    return LAR_OK;
}

lar_error lar_value_bool(lar_slice text, bool *out, lar_diag *d) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        if (lar_slice_ieq(text, lar_slice_cstr(words[i]))) {
            *out = i % 2 == 1;
            return LAR_OK;
        }
    }
    return lar_fail(LAR_INVALID, d, "must be true or false");
}

static lar_error scaled(lar_slice text, const unit_row *units, size_t unit_count, uint64_t *out, lar_diag *d) {
    size_t n = digits(text);
    lar_error e = lar_value_number(lar_slice_of(text.ptr, n), out, d);
    if (e) return e;
    lar_slice unit = lar_slice_trim(lar_slice_of(text.ptr + n, text.len - n));
    for (size_t i = 0; i < unit_count; i++) {
        if (!lar_slice_eq_cstr(unit, units[i].name)) continue;
        if (*out > UINT64_MAX / units[i].factor) return lar_fail(LAR_INVALID, d, "is too large a number");
        *out *= units[i].factor;
        return LAR_OK;
    }
    return LAR_NOT_FOUND;
}

lar_error lar_value_ms(lar_slice text, uint64_t *out, lar_diag *d) {
    lar_error e = scaled(text, durations, sizeof durations / sizeof *durations, out, d);
    if (e == LAR_NOT_FOUND && lar_slice_eq_cstr(text, "0")) return LAR_OK;
    if (e == LAR_NOT_FOUND) return lar_fail(LAR_INVALID, d, "needs a unit: ms, s, m, h or d, as in 250ms, 30s, 5m");
    return e;
}

lar_error lar_value_bytes(lar_slice text, uint64_t *out, lar_diag *d) {
    lar_error e = scaled(text, sizes, sizeof sizes / sizeof *sizes, out, d);
    if (e == LAR_NOT_FOUND)
        return lar_fail(LAR_INVALID, d, "has an unknown unit; write plain bytes, KiB, MiB, GiB or TiB, as in 64KiB");
    return e;
}

lar_error lar_value_enum(lar_slice text, const char *const *names, uint32_t *out, lar_diag *d) {
    for (uint32_t i = 0; names[i]; i++) {
        if (!lar_slice_ieq(text, lar_slice_cstr(names[i]))) continue;
        *out = i;
        return LAR_OK;
    }
    char list[160] = "";
    size_t used = 0;
    for (uint32_t i = 0; names[i]; i++) {
        const char *before = i == 0 ? "" : names[i + 1] ? ", " : " or ";
        lar_slice parts[] = {lar_slice_cstr(before), lar_slice_cstr(names[i])};
        for (unsigned p = 0; p < 2 && used + parts[p].len < sizeof list; p++) {
            memcpy(list + used, parts[p].ptr, parts[p].len);
            used += parts[p].len;
        }
        list[used < sizeof list ? used : sizeof list - 1] = 0;
    }
    return lar_fail(LAR_INVALID, d, "must be %s", list);
}

lar_error lar_value_text(lar_slice text, lar_diag *d) {
    if (text.len > LAR_OPTION_TEXT_MAX) return lar_fail(LAR_INVALID, d, "is longer than %d bytes", LAR_OPTION_TEXT_MAX);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 || c == 0x7f)
            return lar_fail(LAR_INVALID, d, "holds a control character (byte %zu, value %u)", i + 1, (unsigned)c);
    }
    return LAR_OK;
}
