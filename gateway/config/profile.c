/* What is known of each provider, one row each, and the names of upstreams that need no profile.
 * A profile says how to speak with a provider; how its cache works says the row of that name in policies/provider.c.
 * Called by the configuration loader and the request path; any thread; never blocks; no memory.
 * generic asks for the usage event of streams too, since without it nothing could be counted; a server that refuses the
 * field needs `inject_usage: off`. Anthropic's streams always carry usage and know no such field. */
#include "base/ensure.h"
#include "gateway/config/config.h"
#include "gateway/config/config_parts.h"

static const lar_profile_row rows[LAR_PROFILE_COUNT] = {
    [LAR_PROFILE_GENERIC] = {"generic", LAR_USAGE_BY_SPELLING, true, "authorization"},
    [LAR_PROFILE_DEEPSEEK] = {"deepseek", LAR_USAGE_INCLUDED, true, "authorization"},
    [LAR_PROFILE_OPENAI] = {"openai", LAR_USAGE_INCLUDED, true, "authorization"},
    [LAR_PROFILE_ANTHROPIC] = {"anthropic", LAR_USAGE_BESIDE, false, "x-api-key"},
    [LAR_PROFILE_VLLM] = {"vllm", LAR_USAGE_INCLUDED, true, "authorization"},
    [LAR_PROFILE_LARDER] = {"larder", LAR_USAGE_INCLUDED, true, "authorization"},
};

static const struct {
    const char *host;
    lar_profile profile;
} hosts[] = {
    {"api.deepseek.com", LAR_PROFILE_DEEPSEEK},
    {"api.openai.com", LAR_PROFILE_OPENAI},
    {"api.anthropic.com", LAR_PROFILE_ANTHROPIC},
};

const lar_profile_row *lar_profile_get(lar_profile p) {
    LAR_ASSERT((unsigned)p < LAR_PROFILE_COUNT);
    return &rows[p];
}

const lar_provider *lar_profile_provider(lar_profile p) {
    const lar_provider *found = lar_provider_find(lar_slice_cstr(lar_profile_get(p)->name));
    LAR_ASSERT(found);
    return found;
}

lar_profile lar_profile_of_host(const char *host) {
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        if (lar_slice_ieq(lar_slice_cstr(host), lar_slice_cstr(hosts[i].host))) return hosts[i].profile;
    }
    return LAR_PROFILE_GENERIC;
}

lar_slice lar_upstream_path(const lar_upstream_config *u, lar_slice path) {
    lar_slice base = lar_slice_cstr(u->url.path);
    bool base_v1 = base.len >= 3 && memcmp(base.ptr + base.len - 3, "/v1", 3) == 0;
    if (base_v1 && lar_slice_starts(path, LAR_SLICE("/v1/"))) path = lar_slice_of(path.ptr + 3, path.len - 3);
    return path;
}

lar_error lar_upstream_credential(const lar_upstream_config *u, lar_buf *out) {
    bool bearer = strcmp(lar_profile_get(u->profile)->auth_field, "x-api-key") != 0;
    if (!u->key[0]) return LAR_OK;
    return lar_buf_printf(out, bearer ? "Authorization: Bearer %s\r\n" : "x-api-key: %s\r\n", u->key);
}
