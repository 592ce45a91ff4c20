/* TLS over memory BIOs. Called by stream.c; calls OpenSSL. Contexts are shared between threads (OpenSSL's own
 * reference counts; the kept session behind a mutex), connections belong to one loop thread. Never blocks:
 * certificate files are read only in lar_tls_*_new, at start and on reload, off the loop.
 * Why memory BIOs: the loop owns the sockets, so TLS must not. Not here: sockets, timeouts. */
#include "gateway/net/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"

struct lar_tls_context {
    SSL_CTX *ctx;
    atomic_int refs;
    bool client, host_is_ip;
    char *host;
    pthread_mutex_t lock; /* guards `session` */
    SSL_SESSION *session;
};

struct lar_tls {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    lar_tls_context *context;
};

static const unsigned char alpn_http11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

static lar_error ssl_fail(lar_error e, lar_diag *d, const char *what) {
    char text[160] = "unknown reason";
    unsigned long code = ERR_peek_last_error();
    if (code) ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return lar_fail(e, d, "%s: %s", what, text);
}

/* The newest session of an upstream is offered by the next connection (RFC 8446 2.2). */
static int keep_session(SSL *ssl, SSL_SESSION *session) {
    lar_tls *t = SSL_get_app_data(ssl);
    if (!t) return 0;
    lar_tls_context *c = t->context;
    (void)pthread_mutex_lock(&c->lock);
    SSL_SESSION_free(c->session);
    c->session = session;
    (void)pthread_mutex_unlock(&c->lock);
    return 1;
}

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned int in_len, void *arg) {
    (void)ssl, (void)arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, alpn_http11, sizeof alpn_http11, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Nobody can be asked: without this OpenSSL would wait at the terminal, on a reload too. */
static int no_passphrase(char *buf, int size, int rwflag, void *arg) {
    (void)buf, (void)size, (void)rwflag, (void)arg;
    return -1;
}

static lar_tls_context *context_new(const SSL_METHOD *method) {
    lar_tls_context *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    atomic_init(&c->refs, 1);
    LAR_ASSERT(pthread_mutex_init(&c->lock, NULL) == 0);
    c->ctx = SSL_CTX_new(method);
    if (!c->ctx || !SSL_CTX_set_min_proto_version(c->ctx, TLS1_2_VERSION)) {
        lar_tls_context_unref(c);
        return NULL;
    }
    SSL_CTX_set_mode(c->ctx,
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_default_passwd_cb(c->ctx, no_passphrase);
    SSL_CTX_set_options(c->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    return c;
}

lar_error lar_tls_client_new(const char *host, bool host_is_ip, const char *ca_file, lar_tls_context **out,
                             lar_diag *d) {
    *out = NULL;
    lar_tls_context *c = context_new(TLS_client_method());
    if (!c) return ssl_fail(LAR_NO_MEMORY, d, "TLS context");
    c->client = true;
    c->host_is_ip = host_is_ip;
    c->host = strdup(host);
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(c->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c->ctx, keep_session);
    lar_error e = LAR_OK;
    if (!c->host || SSL_CTX_set_alpn_protos(c->ctx, alpn_http11, sizeof alpn_http11) != 0) {
        e = ssl_fail(LAR_NO_MEMORY, d, "TLS context");
    } else if (ca_file && ca_file[0]) {
        if (!SSL_CTX_load_verify_locations(c->ctx, ca_file, NULL))
            e = ssl_fail(LAR_CONFIG, d, "ca_file cannot be read as PEM certificates");
    } else if (!SSL_CTX_set_default_verify_paths(c->ctx)) {
        e = ssl_fail(LAR_CONFIG, d, "the system's certificates cannot be read");
    }
    if (e) {
        lar_tls_context_unref(c);
        return e;
    }
    *out = c;
    return LAR_OK;
}

lar_error lar_tls_server_new(const char *cert_file, const char *key_file, lar_tls_context **out, lar_diag *d) {
    *out = NULL;
    lar_tls_context *c = context_new(TLS_server_method());
    if (!c) return ssl_fail(LAR_NO_MEMORY, d, "TLS context");
    lar_error e = LAR_OK;
    SSL_CTX_set_alpn_select_cb(c->ctx, choose_alpn, NULL);
    if (SSL_CTX_use_certificate_chain_file(c->ctx, cert_file) != 1)
        e = ssl_fail(LAR_CONFIG, d, "tls.cert cannot be read as a PEM chain");
    else if (SSL_CTX_use_PrivateKey_file(c->ctx, key_file, SSL_FILETYPE_PEM) != 1)
        e = ssl_fail(LAR_CONFIG, d, "tls.key cannot be read as a PEM private key without a passphrase");
    else if (SSL_CTX_check_private_key(c->ctx) != 1) e = ssl_fail(LAR_CONFIG, d, "tls.key does not belong to tls.cert");
    if (e) {
        lar_tls_context_unref(c);
        return e;
    }
    *out = c;
    return LAR_OK;
}

lar_tls_context *lar_tls_context_ref(lar_tls_context *c) {
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void lar_tls_context_unref(lar_tls_context *c) {
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    SSL_SESSION_free(c->session);
    SSL_CTX_free(c->ctx);
    (void)pthread_mutex_destroy(&c->lock);
    free(c->host);
    free(c);
}

static bool prepare_client(lar_tls *t, lar_tls_context *c) {
    SSL_set_connect_state(t->ssl);
    if (c->host_is_ip) {
        if (!X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), c->host)) return false;
    } else if (!SSL_set_tlsext_host_name(t->ssl, c->host) || !SSL_set1_host(t->ssl, c->host)) {
        return false;
    }
    (void)pthread_mutex_lock(&c->lock);
    SSL_SESSION *session = c->session;
    if (session) SSL_SESSION_up_ref(session);
    (void)pthread_mutex_unlock(&c->lock);
    if (session) {
        (void)SSL_set_session(t->ssl, session); /* a session that no longer fits only costs a full handshake */
        SSL_SESSION_free(session);
    }
    return true;
}

lar_tls *lar_tls_new(lar_tls_context *c) {
    lar_tls *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->context = lar_tls_context_ref(c);
    t->ssl = SSL_new(c->ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        BIO_free(t->in);
        BIO_free(t->out);
        SSL_free(t->ssl);
        lar_tls_context_unref(c);
        free(t);
        return NULL;
    }
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_app_data(t->ssl, t);
    if (c->client) {
        if (!prepare_client(t, c)) {
            lar_tls_free(t);
            return NULL;
        }
    } else {
        SSL_set_accept_state(t->ssl);
    }
    return t;
}

void lar_tls_free(lar_tls *t) {
    if (!t) return;
    SSL_free(t->ssl);
    lar_tls_context_unref(t->context);
    free(t);
}

lar_error lar_tls_feed(lar_tls *t, lar_slice cipher) {
    while (cipher.len) {
        int part = cipher.len > 1 << 30 ? 1 << 30 : (int)cipher.len;
        int n = BIO_write(t->in, cipher.ptr, part);
        if (n <= 0) return LAR_NO_MEMORY;
        cipher.ptr += n;
        cipher.len -= (size_t)n;
    }
    return LAR_OK;
}

lar_error lar_tls_handshake(lar_tls *t, lar_diag *d) {
    ERR_clear_error();
    int r = SSL_do_handshake(t->ssl);
    if (r == 1) return LAR_OK;
    int why = SSL_get_error(t->ssl, r);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return LAR_OK;
    long verify = SSL_get_verify_result(t->ssl);
    if (verify != X509_V_OK) {
        ERR_clear_error();
        return lar_fail(LAR_UPSTREAM_TLS, d, "the certificate was not accepted: %s",
                        X509_verify_cert_error_string(verify));
    }
    return ssl_fail(LAR_UPSTREAM_TLS, d, "TLS handshake");
}

bool lar_tls_ready(const lar_tls *t) { return SSL_is_init_finished(t->ssl); }

lar_error lar_tls_read(lar_tls *t, char *buf, size_t cap, size_t *got, bool *closed) {
    *got = 0;
    *closed = false;
    ERR_clear_error();
    int r = SSL_read(t->ssl, buf, cap > 1 << 30 ? 1 << 30 : (int)cap);
    if (r > 0) {
        *got = (size_t)r;
        return LAR_OK;
    }
    int why = SSL_get_error(t->ssl, r);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return LAR_OK;
    if (why == SSL_ERROR_ZERO_RETURN) {
        *closed = true;
        return LAR_OK;
    }
    ERR_clear_error();
    return LAR_UPSTREAM_TLS;
}

lar_error lar_tls_write(lar_tls *t, lar_slice plain) {
    while (plain.len) {
        ERR_clear_error();
        int part = plain.len > 1 << 30 ? 1 << 30 : (int)plain.len;
        int r = SSL_write(t->ssl, plain.ptr, part);
        if (r <= 0) {
            ERR_clear_error();
            return LAR_UPSTREAM_TLS; /* a memory BIO takes everything: this is a broken session */
        }
        plain.ptr += r;
        plain.len -= (size_t)r;
    }
    return LAR_OK;
}

void lar_tls_shutdown(lar_tls *t) {
    if (!SSL_is_init_finished(t->ssl)) return;
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
}

lar_slice lar_tls_output(lar_tls *t) {
    char *p = NULL;
    long n = BIO_get_mem_data(t->out, &p);
    return lar_slice_of(p, n > 0 ? (size_t)n : 0);
}

void lar_tls_consume(lar_tls *t) { (void)BIO_reset(t->out); }
