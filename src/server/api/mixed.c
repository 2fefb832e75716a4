/* mixed.c -- see mixed.h. */
#include "server/api/mixed.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { MOST_BYTES = 1 << 28 };

void rg_mixed_init(rg_mixed *p)
{
    rg_buf_init(&p->ids, MOST_BYTES);
}

void rg_mixed_fini(rg_mixed *p)
{
    rg_buf_fini(&p->ids);
}

size_t rg_mixed_n(const rg_mixed *p)
{
    return p->ids.n / sizeof(int32_t);
}

bool rg_mixed_add(rg_mixed *p, const int32_t *ids, size_t n, rg_refusal *e)
{
    return rg_buf_add(&p->ids, ids, n * sizeof *ids) || rg_refuse_memory(e);
}

bool rg_mixed_text(rg_mixed *p, const rg_served *s, const char *text, size_t n, unsigned flags, rg_refusal *e)
{
    rg_error err = { 0 };
    int32_t *ids = NULL;
    size_t n_ids = 0;

    if (!rg_encode(s->engine, text, n, flags, &ids, &n_ids, &err))
        return rg_refuse_engine((rg_served *)(uintptr_t)s, e, &err), false;
    bool ok = rg_mixed_add(p, ids, n_ids, e);
    rg_ids_free(ids);
    return ok;
}

bool rg_mixed_begin(rg_mixed *p, const rg_served *s, rg_refusal *e)
{
    rg_error err = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;

    if (!rg_encode(s->engine, "", 0, RG_ENCODE_DEFAULT, &ids, &n, &err))
        return rg_refuse_engine((rg_served *)(uintptr_t)s, e, &err), false;
    bool ok = !n || ids[0] != s->info.bos_id || rg_mixed_add(p, ids, 1, e);
    rg_ids_free(ids);
    return ok;
}

bool rg_mixed_list(rg_mixed *p, const rg_served *s, const json_t *list, const char *param, bool special, rg_refusal *e)
{
    bool ok = true;

    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        int64_t id;

        if (json_is_string(v)) {
            unsigned flags = special && !i ? RG_ENCODE_DEFAULT : RG_ENCODE_NO_SPECIAL;
            ok = rg_mixed_text(p, s, json_string_value(v), json_string_length(v), flags, e);
        } else if (rg_json_whole(v, &id) && id >= 0 && id < s->info.vocab_size) {
            int32_t one = (int32_t)id;
            ok = rg_mixed_add(p, &one, 1, e);
        } else {
            ok = rg_refuse_field(e, param, "'%s' must hold ids of the vocabulary, which has %d, and texts.", param,
                                 (int)s->info.vocab_size);
        }
    }
    return ok;
}

bool rg_mixed_take(rg_mixed *p, rg_call *c, rg_refusal *e)
{
    size_t n = rg_mixed_n(p);
    int32_t *ids = rg_array(n, sizeof *ids);

    if (!ids)
        return rg_refuse_memory(e);
    if (n)
        memcpy(ids, p->ids.data, n * sizeof *ids);
    if (rg_call_cut_ids(c, ids, &n, e))
        return rg_call_add_ids(c, ids, n, true, e);
    rg_free(ids);
    return false;
}
