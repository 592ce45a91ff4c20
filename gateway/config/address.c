/* Addresses from text: upstream URLs (RFC 3986) and listen addresses.
 * Called by the configuration loader; any thread; never blocks: no name is looked up here.
 * Stricter than RFC 3986 where readers differ (numeric hosts like 127.1, dot segments, empty ports), since what is
 * checked here and what is connected to must be the same thing.
 * Invariants: 1. a parsed host is an IP literal, or a name of letters, digits, '-' and '_' that no resolver takes for
 * an address. 2. no message repeats the text: a URL may hold a password or a key. Memory: the caller's arena. */
#include <arpa/inet.h>

#include "gateway/config/config.h"
#include "gateway/config/option_value.h"

enum { URL_BYTES_MAX = 2048, HOST_BYTES_MAX = 253, LABEL_BYTES_MAX = 63 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static size_t find(lar_slice s, char c) {
    const char *p = s.len ? memchr(s.ptr, c, s.len) : NULL;
    return p ? (size_t)(p - s.ptr) : s.len;
}

static lar_slice from(lar_slice s, size_t n) { return lar_slice_of(s.ptr + n, s.len - n); }

static lar_error parse_port(lar_slice text, uint64_t least, uint16_t *out, lar_diag *d) {
    uint64_t v = 0;
    if (lar_value_number(text, &v, NULL) || v > 65535 || v < least)
        return lar_fail(LAR_INVALID, d, "the port must be a number from %u to 65535", (unsigned)least);
    *out = (uint16_t)v;
    return LAR_OK;
}

static bool is_ip(lar_slice text, int family) {
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (text.len == 0 || text.len >= sizeof copy || find(text, 0) != text.len) return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    return inet_pton(family, copy, &address) == 1;
}

static lar_slice lower(lar_arena *arena, lar_slice s) {
    char *p = lar_arena_alloc(arena, s.len + 1);
    if (!p) return (lar_slice){NULL, 0};
    for (size_t i = 0; i < s.len; i++) p[i] = s.ptr[i] >= 'A' && s.ptr[i] <= 'Z' ? (char)(s.ptr[i] + 32) : s.ptr[i];
    p[s.len] = 0;
    return lar_slice_of(p, s.len);
}

static lar_error check_label(lar_slice label, lar_diag *d) {
    if (label.len == 0)
        return lar_fail(LAR_INVALID, d, "the host name has an empty part (two dots, or a dot at an end)");
    if (label.len > LABEL_BYTES_MAX)
        return lar_fail(LAR_INVALID, d, "a part of the host name is over %d characters", LABEL_BYTES_MAX);
    for (size_t i = 0; i < label.len; i++) {
        char c = label.ptr[i];
        if (!is_letter(c) && !is_digit(c) && c != '-' && c != '_')
            return lar_fail(
                LAR_INVALID, d,
                "the host name holds a character that is not allowed (international names go in their xn-- form)");
    }
    return LAR_OK;
}

/* A name, or an IPv4 literal. */
static lar_error check_host(lar_slice host, bool *ip, lar_diag *d) {
    *ip = is_ip(host, AF_INET);
    if (*ip) return LAR_OK;
    if (host.len == 0) return lar_fail(LAR_INVALID, d, "the host is missing");
    if (host.len > HOST_BYTES_MAX)
        return lar_fail(LAR_INVALID, d, "the host name is over %d characters", HOST_BYTES_MAX);
    lar_slice rest = host, label = host;
    for (bool more = true; more;) {
        size_t dot = find(rest, '.');
        more = dot < rest.len;
        label = lar_slice_of(rest.ptr, dot);
        lar_error e = check_label(label, d);
        if (e) return e;
        if (more) rest = from(rest, dot + 1);
    }
    /* Resolvers take 127.1, 2130706433 and 0x7f.1 for addresses: a name never ends in a number (WHATWG URL 3.5). */
    bool number = true;
    for (size_t i = 0; i < label.len && number; i++) number = is_digit(label.ptr[i]);
    if (label.len > 1 && label.ptr[0] == '0' && (label.ptr[1] == 'x' || label.ptr[1] == 'X')) number = true;
    if (number) return lar_fail(LAR_INVALID, d, "the host is neither a name nor a whole IPv4 address like 192.0.2.1");
    return LAR_OK;
}

typedef struct host_port {
    lar_slice host, port; /* port.ptr NULL: none was given */
    bool brackets;
} host_port;

static lar_error split_authority(lar_slice text, host_port *out, lar_diag *d) {
    *out = (host_port){.host = text};
    if (text.len && text.ptr[0] == '[') {
        size_t end = find(text, ']');
        if (end == text.len) return lar_fail(LAR_INVALID, d, "the ] of the IPv6 address is missing");
        out->host = lar_slice_of(text.ptr + 1, end - 1);
        out->brackets = true;
        if (!is_ip(out->host, AF_INET6))
            return lar_fail(LAR_INVALID, d, "what stands between [ and ] is no IPv6 address (zones are not supported)");
        text = from(text, end + 1);
        if (text.len == 0) return LAR_OK;
        if (text.ptr[0] != ':') return lar_fail(LAR_INVALID, d, "only a colon and the port may stand behind ]");
        out->port = from(text, 1);
        return LAR_OK;
    }
    size_t colon = find(text, ':');
    if (colon == text.len) return LAR_OK;
    out->host = lar_slice_of(text.ptr, colon);
    out->port = from(text, colon + 1);
    if (find(out->port, ':') < out->port.len)
        return lar_fail(LAR_INVALID, d, "an IPv6 address goes in brackets, as in [::1]:8080");
    return LAR_OK;
}

static lar_error take_scheme(lar_slice *text, bool *tls, lar_diag *d) {
    static const char missing[] = "must begin with https:// or http://";
    size_t colon = find(*text, ':');
    if (text->len < colon + 3 || memcmp(text->ptr + colon, "://", 3) != 0)
        return lar_fail(LAR_INVALID, d, "%s", missing);
    lar_slice scheme = lar_slice_of(text->ptr, colon);
    *tls = lar_slice_ieq(scheme, LAR_SLICE("https"));
    if (!*tls && !lar_slice_ieq(scheme, LAR_SLICE("http")))
        return lar_fail(LAR_INVALID, d, "%s; other schemes are not spoken", missing);
    *text = from(*text, colon + 3);
    return LAR_OK;
}

static bool is_path_char(char c) { return is_letter(c) || is_digit(c) || (c && strchr("/-._~!$&'()*+,;=:@%", c)); }

static bool is_dots(lar_slice segment) { return lar_slice_eq_cstr(segment, ".") || lar_slice_eq_cstr(segment, ".."); }

static lar_error check_path(lar_slice path, lar_diag *d) {
    for (size_t i = 0; i < path.len; i++) {
        if (!is_path_char(path.ptr[i]))
            return lar_fail(LAR_INVALID, d, "the path holds a character that is not allowed");
        if (path.ptr[i] != '%') continue;
        if (path.len - i < 3 || !is_hex(path.ptr[i + 1]) || !is_hex(path.ptr[i + 2]))
            return lar_fail(LAR_INVALID, d, "a %% in the path is not followed by two hex digits");
    }
    for (lar_slice rest = path; rest.len;) {
        rest = from(rest, 1); /* the slash */
        size_t end = find(rest, '/');
        lar_slice segment = lar_slice_of(rest.ptr, end);
        if (segment.len == 0 || is_dots(segment))
            return lar_fail(LAR_INVALID, d, "the path holds // or a . or .. segment");
        rest = from(rest, end);
    }
    return LAR_OK;
}

/* People paste the address of an endpoint; joined with a request's path it would hit nothing. */
static lar_error refuse_endpoint(lar_slice path, lar_diag *d) {
    static const char *const endpoints[] = {"/chat/completions", "/completions", "/responses",
                                            "/messages",         "/embeddings",  "/models"};
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        lar_slice end = lar_slice_cstr(endpoints[i]);
        if (path.len >= end.len && lar_slice_eq(from(path, path.len - end.len), end))
            return lar_fail(LAR_INVALID, d, "is the address of an endpoint; write the part before %s", endpoints[i]);
    }
    return LAR_OK;
}

static lar_error fill(const host_port *hp, lar_slice path, lar_arena *arena, lar_url *out, lar_diag *d) {
    lar_slice host = lower(arena, hp->host), kept = lar_arena_copy(arena, path);
    if (!host.ptr || !kept.ptr) return lar_fail(LAR_NO_MEMORY, d, "out of memory");
    const char *open = hp->brackets ? "[" : "", *close = hp->brackets ? "]" : "";
    bool usual = out->port == (out->tls ? 443 : 80);
    lar_slice authority = usual ? lar_arena_printf(arena, "%s%s%s", open, host.ptr, close)
                                : lar_arena_printf(arena, "%s%s%s:%u", open, host.ptr, close, (unsigned)out->port);
    if (!authority.ptr) return lar_fail(LAR_NO_MEMORY, d, "out of memory");
    out->host = host.ptr;
    out->path = kept.ptr;
    out->authority = authority.ptr;
    return LAR_OK;
}

lar_error lar_url_parse(lar_slice text, lar_arena *arena, lar_url *out, lar_diag *d) {
    *out = (lar_url){.host = "", .path = "", .authority = ""};
    if (text.len == 0) return lar_fail(LAR_INVALID, d, "is missing");
    if (text.len > URL_BYTES_MAX) return lar_fail(LAR_INVALID, d, "is longer than %d bytes", URL_BYTES_MAX);
    lar_error e = take_scheme(&text, &out->tls, d);
    if (e) return e;
    if (find(text, '?') < text.len)
        return lar_fail(LAR_INVALID, d, "must not have a query (?...); keys go into key_env or key_file");
    if (find(text, '#') < text.len) return lar_fail(LAR_INVALID, d, "must not have a fragment (#...)");
    if (find(text, '\\') < text.len) return lar_fail(LAR_INVALID, d, "must not hold a backslash");
    size_t slash = find(text, '/');
    lar_slice authority = lar_slice_of(text.ptr, slash), path = from(text, slash);
    if (find(authority, '@') < authority.len)
        return lar_fail(LAR_INVALID, d, "must not hold a user or password; keys go into key_env or key_file");
    host_port hp;
    e = split_authority(authority, &hp, d);
    if (e) return e;
    out->host_is_ip = hp.brackets;
    if (!hp.brackets) e = check_host(hp.host, &out->host_is_ip, d);
    if (e) return e;
    out->port = out->tls ? 443 : 80;
    if (hp.port.ptr) e = parse_port(hp.port, 1, &out->port, d);
    if (e) return e;
    while (path.len && path.ptr[path.len - 1] == '/') path.len--;
    e = check_path(path, d);
    if (!e) e = refuse_endpoint(path, d);
    return e ? e : fill(&hp, path, arena, out, d);
}

lar_error lar_listen_parse(lar_slice text, lar_arena *arena, lar_listen_config *out, lar_diag *d) {
    *out = (lar_listen_config){.text = "", .host = ""};
    host_port hp;
    lar_error e = split_authority(text, &hp, d);
    if (e) return e;
    if (lar_slice_ieq(hp.host, LAR_SLICE("localhost"))) hp.host = LAR_SLICE("127.0.0.1");
    if (!hp.brackets && !is_ip(hp.host, AF_INET))
        return lar_fail(
            LAR_INVALID, d,
            "must be an address and a port, as in 127.0.0.1:8080, 0.0.0.0:8080 (all IPv4) or [::]:8080 (all)");
    if (!hp.port.ptr) return lar_fail(LAR_INVALID, d, "the port is missing, as in 127.0.0.1:8080");
    e = parse_port(hp.port, 0, &out->port, d);
    if (e) return e;
    lar_slice copy = lar_arena_copy(arena, text), host = lar_arena_copy(arena, hp.host);
    if (!copy.ptr || !host.ptr) return lar_fail(LAR_NO_MEMORY, d, "out of memory");
    out->text = copy.ptr;
    out->host = host.ptr;
    return LAR_OK;
}

/* -- the shared memory's server --------------------------------------------------------------------------------- */

enum { DB_MAX = 65535, SOCKET_PATH_BYTES_MAX = 107, USER_BYTES_MAX = 64 };

static lar_error parse_db(lar_slice text, uint32_t *out, lar_diag *d) {
    uint64_t v = 0;
    if (text.len && (lar_value_number(text, &v, NULL) || v > DB_MAX))
        return lar_fail(LAR_INVALID, d, "the database must be a number, as in redis://localhost:6379/0");
    *out = (uint32_t)v;
    return LAR_OK;
}

static lar_error parse_socket(lar_slice rest, lar_arena *arena, lar_shared_url *out, lar_diag *d) {
    size_t query = find(rest, '?');
    lar_slice path = lar_slice_of(rest.ptr, query), db = from(rest, query);
    if (path.len < 2 || path.ptr[0] != '/')
        return lar_fail(LAR_INVALID, d, "needs the whole path of the socket, as in unix:///run/redis/redis.sock");
    if (path.len > SOCKET_PATH_BYTES_MAX)
        return lar_fail(LAR_INVALID, d, "a socket's path has at most %d bytes", SOCKET_PATH_BYTES_MAX);
    if (db.len && !lar_slice_starts(db, LAR_SLICE("?db=")))
        return lar_fail(LAR_INVALID, d, "only ?db=N may stand behind the path of the socket");
    lar_error e = parse_db(db.len ? from(db, 4) : db, &out->db, d);
    if (e) return e;
    out->socket = out->text = lar_arena_copy(arena, path).ptr;
    return out->socket ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "out of memory");
}

/* user@ in front; a password there would stand in files and lists of processes. */
static lar_error take_user(lar_slice *authority, lar_arena *arena, lar_shared_url *out, lar_diag *d) {
    size_t at = find(*authority, '@');
    if (at == authority->len) return LAR_OK;
    lar_slice user = lar_slice_of(authority->ptr, at);
    if (find(user, ':') < user.len || find(from(*authority, at + 1), '@') < authority->len - at - 1)
        return lar_fail(LAR_INVALID, d,
                        "must not hold a password; it goes into shared.password_env or shared.password_file");
    if (user.len == 0 || user.len > USER_BYTES_MAX)
        return lar_fail(LAR_INVALID, d, "the user in front of @ must have 1 to %d characters", USER_BYTES_MAX);
    out->user = lar_arena_copy(arena, user).ptr;
    *authority = from(*authority, at + 1);
    return out->user ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "out of memory");
}

lar_error lar_shared_url_parse(lar_slice text, lar_arena *arena, lar_shared_url *out, lar_diag *d) {
    *out = (lar_shared_url){.socket = "", .host = "", .user = "", .text = "", .port = 6379};
    if (text.len > URL_BYTES_MAX) return lar_fail(LAR_INVALID, d, "is longer than %d bytes", URL_BYTES_MAX);
    if (lar_slice_starts_i(text, LAR_SLICE("unix://"))) return parse_socket(from(text, 7), arena, out, d);
    out->tls = lar_slice_starts_i(text, LAR_SLICE("rediss://"));
    if (!out->tls && !lar_slice_starts_i(text, LAR_SLICE("redis://")))
        return lar_fail(LAR_INVALID, d, "must begin with redis://, rediss:// (TLS) or unix:///");
    lar_slice rest = from(text, out->tls ? 9 : 8);
    size_t slash = find(rest, '/');
    lar_slice authority = lar_slice_of(rest.ptr, slash), db = from(rest, slash);
    host_port hp;
    lar_error e = parse_db(db.len ? from(db, 1) : db, &out->db, d);
    if (!e) e = take_user(&authority, arena, out, d);
    if (!e) e = split_authority(authority, &hp, d);
    if (e) return e;
    out->host_is_ip = hp.brackets;
    if (!hp.brackets) e = check_host(hp.host, &out->host_is_ip, d);
    if (!e && hp.port.ptr) e = parse_port(hp.port, 1, &out->port, d);
    if (e) return e;
    lar_slice host = lower(arena, hp.host);
    out->host = host.ptr;
    out->text =
        host.ptr ? lar_arena_printf(arena, hp.brackets ? "[%s]:%u" : "%s:%u", host.ptr, (unsigned)out->port).ptr : NULL;
    return out->text ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "out of memory");
}
