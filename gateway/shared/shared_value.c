/* Values for the shared server and back.
 *   plain:  [1][stamp 8][checksum 16][value]            checksum: XXH3-128 of key, stamp and value
 *   sealed: [2][stamp 8][nonce 12][value, encrypted][tag 16]   AES-256-GCM; key and stamp are authenticated with it
 * Called by shared_link.c on a loop thread; never blocks. Invariants: 1. what does not decode counts as absent.
 * 2. the key is part of what is checked: a value that was moved to another key does not decode. 3. every nonce is
 * random (96 bits, NIST SP 800-38D 8.2.2). Integers are little-endian. Memory: the caller's buffers. */
#include "gateway/shared/shared_value.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/ensure.h"

enum { PLAIN = 1, SEALED = 2, STAMP_BYTES = 8, CHECK_BYTES = 16, NONCE_BYTES = 12, TAG_BYTES = 16, AAD_BYTES = 24 };

struct lar_shared_seal {
    EVP_CIPHER_CTX *in, *out;
    lar_digest key;
    bool used;
};

static void put_stamp(uint8_t out[STAMP_BYTES], uint64_t v) {
    for (int i = 0; i < STAMP_BYTES; i++) out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_stamp(const char *in) {
    uint64_t v = 0;
    for (int i = STAMP_BYTES - 1; i >= 0; i--) v = v << 8 | (uint8_t)in[i];
    return v;
}

lar_digest lar_shared_seal_key(const lar_digest *secret, const lar_digest *scope) {
    uint8_t all[96];
    lar_digest label = lar_digest_of(LAR_SLICE("larder shared value 1"));
    memcpy(all, label.bytes, 32);
    memcpy(all + 32, secret->bytes, 32);
    memcpy(all + 64, scope->bytes, 32);
    lar_digest key = lar_digest_of(lar_slice_of((const char *)all, sizeof all));
    explicit_bzero(all, sizeof all);
    return key;
}

lar_shared_seal *lar_shared_seal_new(void) {
    lar_shared_seal *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->in = EVP_CIPHER_CTX_new();
    s->out = EVP_CIPHER_CTX_new();
    lar_digest none = {{0}};
    bool ok = s->in && s->out && EVP_EncryptInit_ex(s->out, EVP_aes_256_gcm(), NULL, none.bytes, NULL) == 1 &&
              EVP_DecryptInit_ex(s->in, EVP_aes_256_gcm(), NULL, none.bytes, NULL) == 1;
    if (ok) return s;
    lar_shared_seal_free(s);
    return NULL;
}

void lar_shared_seal_use(lar_shared_seal *s, const lar_digest *key) {
    if (s->used && lar_digest_eq(&s->key, key)) return;
    s->key = *key;
    s->used = true;
    /* the cipher and its memory are there already: nothing is left that could fail */
    LAR_ASSERT(EVP_EncryptInit_ex(s->out, NULL, NULL, key->bytes, NULL) == 1);
    LAR_ASSERT(EVP_DecryptInit_ex(s->in, NULL, NULL, key->bytes, NULL) == 1);
}

void lar_shared_seal_free(lar_shared_seal *s) {
    if (!s) return;
    EVP_CIPHER_CTX_free(s->in);
    EVP_CIPHER_CTX_free(s->out);
    explicit_bzero(&s->key, sizeof s->key);
    free(s);
}

static lar_hash checksum(const lar_hash *key, const uint8_t stamp[STAMP_BYTES], lar_slice value) {
    return lar_hash_chain(lar_hash_chain(*key, lar_slice_of((const char *)stamp, STAMP_BYTES)), value);
}

static void authenticated(const lar_hash *key, const uint8_t stamp[STAMP_BYTES], uint8_t out[AAD_BYTES]) {
    memcpy(out, key->bytes, 16);
    memcpy(out + 16, stamp, STAMP_BYTES);
}

static lar_error seal(lar_shared_seal *s, const uint8_t *aad, lar_slice value, uint8_t *to) {
    int n = 0, end = 0;
    uint8_t *nonce = to, *text = to + NONCE_BYTES;
    if (getrandom(nonce, NONCE_BYTES, 0) != NONCE_BYTES) return LAR_IO;
    bool ok = EVP_EncryptInit_ex(s->out, NULL, NULL, NULL, nonce) == 1 &&
              EVP_EncryptUpdate(s->out, NULL, &n, aad, AAD_BYTES) == 1 &&
              EVP_EncryptUpdate(s->out, text, &n, (const uint8_t *)value.ptr, (int)value.len) == 1 &&
              EVP_EncryptFinal_ex(s->out, text + n, &end) == 1 &&
              EVP_CIPHER_CTX_ctrl(s->out, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, text + value.len) == 1;
    return ok ? LAR_OK : LAR_NO_MEMORY;
}

static lar_error open_sealed(lar_shared_seal *s, const uint8_t *aad, lar_slice bytes, lar_buf *value) {
    if (bytes.len < NONCE_BYTES + TAG_BYTES) return LAR_CORRUPT;
    size_t len = bytes.len - NONCE_BYTES - TAG_BYTES;
    if (len > LAR_SHARED_VALUE_BYTES_MAX) return LAR_CORRUPT;
    lar_error e = lar_buf_reserve(value, len + 1);
    if (e) return e;
    const uint8_t *nonce = (const uint8_t *)bytes.ptr, *text = nonce + NONCE_BYTES;
    uint8_t tag[TAG_BYTES], *to = (uint8_t *)value->ptr + value->len;
    memcpy(tag, text + len, TAG_BYTES);
    int n = 0, end = 0;
    bool ok = EVP_DecryptInit_ex(s->in, NULL, NULL, NULL, nonce) == 1 &&
              EVP_DecryptUpdate(s->in, NULL, &n, aad, AAD_BYTES) == 1 &&
              EVP_DecryptUpdate(s->in, to, &n, text, (int)len) == 1 &&
              EVP_CIPHER_CTX_ctrl(s->in, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1 &&
              EVP_DecryptFinal_ex(s->in, to + n, &end) == 1;
    if (!ok) return LAR_CORRUPT;
    value->len += len;
    return LAR_OK;
}

lar_error lar_shared_value_encode(lar_shared_seal *s, const lar_hash *key, uint64_t stamp, lar_slice value,
                                  lar_buf *to) {
    if (value.len > LAR_SHARED_VALUE_BYTES_MAX) return LAR_LIMIT;
    lar_error e = lar_buf_reserve(to, LAR_SHARED_HEAD_BYTES_MAX + value.len);
    if (e) return e;
    uint8_t *p = (uint8_t *)to->ptr + to->len, aad[AAD_BYTES];
    p[0] = s ? SEALED : PLAIN;
    put_stamp(p + 1, stamp);
    if (s) {
        authenticated(key, p + 1, aad);
        e = seal(s, aad, value, p + 1 + STAMP_BYTES);
        if (!e) to->len += 1 + STAMP_BYTES + NONCE_BYTES + value.len + TAG_BYTES;
        return e;
    }
    lar_hash sum = checksum(key, p + 1, value);
    memcpy(p + 1 + STAMP_BYTES, sum.bytes, CHECK_BYTES);
    to->len += 1 + STAMP_BYTES + CHECK_BYTES;
    return lar_buf_add_slice(to, value);
}

lar_error lar_shared_value_decode(lar_shared_seal *s, const lar_hash *key, lar_slice bytes, uint64_t *stamp,
                                  lar_buf *value) {
    if (bytes.len < 1 + STAMP_BYTES) return LAR_CORRUPT;
    uint8_t version = (uint8_t)bytes.ptr[0], raw[STAMP_BYTES], aad[AAD_BYTES];
    if (version == 0 || version > SEALED) return LAR_VERSION;
    if ((version == SEALED) != (s != NULL)) return LAR_CORRUPT;
    *stamp = get_stamp(bytes.ptr + 1);
    memcpy(raw, bytes.ptr + 1, STAMP_BYTES);
    lar_slice rest = lar_slice_of(bytes.ptr + 1 + STAMP_BYTES, bytes.len - 1 - STAMP_BYTES);
    if (s) {
        authenticated(key, raw, aad);
        return open_sealed(s, aad, rest, value);
    }
    if (rest.len < CHECK_BYTES || rest.len - CHECK_BYTES > LAR_SHARED_VALUE_BYTES_MAX) return LAR_CORRUPT;
    lar_slice text = lar_slice_of(rest.ptr + CHECK_BYTES, rest.len - CHECK_BYTES);
    lar_hash sum = checksum(key, raw, text);
    if (memcmp(sum.bytes, rest.ptr, CHECK_BYTES) != 0) return LAR_CORRUPT;
    return lar_buf_add_slice(value, text);
}
