/* What a shared server may say: the first byte chooses replies or a value (plain or sealed), the second where the bytes
 * are cut. 1. no byte outside is read (sanitizers), memory stays bounded; 2. the same bytes give the same replies,
 * wherever they are cut; 3. a value that decodes encodes to what decodes to the same; 4. none decodes under a seal. */
#include <string.h>

#include "base/hash.h"
#include "gateway/shared/resp.h"
#include "gateway/shared/shared_value.h"
#include "tests/fuzz/fuzz.h"

static lar_hash add(lar_hash h, lar_slice s) {
    char kind = s.ptr ? 'x' : '-';
    return lar_hash_chain(lar_hash_chain(h, lar_slice_of(&kind, 1)), s.ptr ? s : LAR_SLICE(""));
}

/* Takes all whole replies into the hash. False: damaged. */
static bool take(lar_resp *r, lar_hash *sum) {
    lar_resp_reply reply;
    lar_error e;
    while ((e = lar_resp_next(r, &reply)) == LAR_OK) {
        char kind = (char)reply.kind;
        FUZZ_CHECK(reply.count <= LAR_RESP_ITEMS_MAX && (reply.kind == LAR_RESP_ARRAY || reply.count == 0));
        *sum = add(add(*sum, lar_slice_of(&kind, 1)), reply.text);
        for (uint32_t i = 0; i < reply.count; i++) *sum = add(*sum, reply.items[i]);
    }
    FUZZ_CHECK(e == LAR_NOT_FOUND || e == LAR_INVALID);
    return e == LAR_NOT_FOUND;
}

static lar_hash replies(lar_slice bytes, size_t cut) {
    lar_resp *r = lar_resp_new();
    lar_hash sum = {{0}};
    if (!r) return sum;
    bool sound = lar_resp_feed(r, lar_slice_of(bytes.ptr, cut)) == LAR_OK && take(r, &sum);
    if (sound && lar_resp_feed(r, lar_slice_of(bytes.ptr + cut, bytes.len - cut)) == LAR_OK) sound = take(r, &sum);
    sum = add(sum, sound ? LAR_SLICE("sound") : LAR_SLICE("damaged"));
    lar_resp_free(r);
    return sum;
}

static void value(lar_shared_seal *seal, lar_slice bytes) {
    lar_hash key = {{0}};
    uint64_t stamp = 0, again = 0;
    lar_buf out, copy, other;
    lar_buf_init(&out, 1 << 20);
    lar_buf_init(&copy, 1 << 20);
    lar_buf_init(&other, 1 << 20);
    if (lar_shared_value_decode(seal, &key, bytes, &stamp, &out) == LAR_OK) {
        FUZZ_CHECK(!seal && out.len <= LAR_SHARED_VALUE_BYTES_MAX);
        FUZZ_CHECK(lar_shared_value_encode(seal, &key, stamp, lar_buf_slice(&out), &copy) == LAR_OK);
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&copy), bytes));
    }
    copy.len = 0;
    if (lar_shared_value_encode(seal, &key, 7, bytes, &copy) == LAR_OK) {
        FUZZ_CHECK(lar_shared_value_decode(seal, &key, lar_buf_slice(&copy), &again, &other) == LAR_OK);
        FUZZ_CHECK(again == 7 && lar_slice_eq(lar_buf_slice(&other), bytes));
    }
    lar_buf_release(&out);
    lar_buf_release(&copy);
    lar_buf_release(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    lar_slice bytes = lar_slice_of((const char *)data + 2, size - 2);
    if (data[0] % 3 == 0) {
        lar_hash whole = replies(bytes, bytes.len), cut = replies(bytes, bytes.len ? data[1] % bytes.len : 0);
        FUZZ_CHECK(lar_hash_eq(whole, cut));
        return 0;
    }
    lar_digest key = lar_digest_of(LAR_SLICE("a secret of sixteen bytes"));
    lar_shared_seal *seal = data[0] % 3 == 1 ? NULL : lar_shared_seal_new();
    if (seal) lar_shared_seal_use(seal, &key);
    value(seal, bytes);
    lar_shared_seal_free(seal);
    return 0;
}
