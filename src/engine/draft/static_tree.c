/* static_tree.c -- see static_tree.h. */
#include "engine/draft/static_tree.h"

#include <string.h>

#include "base/json.h"

/* mc_sim_7b_63 of the authors: a path's ranks, one digit each. */
static const char *const usual[] = {
    "0", "00", "1", "01", "2", "000", "10", "02", "3", "03", "4", "04", "20", "05", "001", "5", "06", "6", "07",
    "010", "11", "7", "08", "002", "30", "09", "8", "9", "100", "020", "12", "003", "40", "21", "004", "005", "0000",
    "011", "006", "030", "50", "13", "007", "008", "009", "60", "040", "14", "70", "012", "200", "31", "22", "80",
    "050", "15", "101", "021", "90", "060", "0001", "16", "070",
};

void rg_static_tree_usual(rg_static_tree *t)
{
    t->n = (int32_t)RG_LEN(usual);
    for (int32_t i = 0; i < t->n; i++) {
        t->length[i] = (uint8_t)strlen(usual[i]);
        for (int32_t k = 0; k < t->length[i]; k++)
            t->rank[i][k] = (uint8_t)(usual[i][k] - '0');
    }
}

static bool same_path(const rg_static_tree *t, int32_t i, const uint8_t *rank, int32_t n)
{
    return t->length[i] == n && !memcmp(t->rank[i], rank, (size_t)n);
}

static bool has(const rg_static_tree *t, const uint8_t *rank, int32_t n)
{
    for (int32_t i = 0; i < t->n; i++)
        if (same_path(t, i, rank, n))
            return true;
    return n == 0;
}

static bool add_choice(rg_static_tree *t, const json_t *list, const char *name, rg_error *err)
{
    size_t n = json_array_size(list);
    uint8_t *rank = t->rank[t->n];

    if (!json_is_array(list) || n < 1 || n > RG_MEDUSA_HEADS)
        return rg_fail(err, RG_E_INPUT, "%s: choice %d is not a list of 1 to %d ranks", name, (int)t->n,
                       RG_MEDUSA_HEADS);
    for (size_t k = 0; k < n; k++) {
        const json_t *v = json_array_get(list, k);

        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= RG_MEDUSA_RANKS)
            return rg_fail(err, RG_E_INPUT, "%s: choice %d has a rank that is not one of 0 to %d", name, (int)t->n,
                           RG_MEDUSA_RANKS - 1);
        rank[k] = (uint8_t)json_integer_value(v);
    }
    if (has(t, rank, (int32_t)n))
        return rg_fail(err, RG_E_INPUT, "%s: choice %d is there twice", name, (int)t->n);
    if (!has(t, rank, (int32_t)n - 1))
        return rg_fail(err, RG_E_INPUT, "%s: choice %d follows one that does not stand before it", name, (int)t->n);
    t->length[t->n++] = (uint8_t)n;
    return true;
}

bool rg_static_tree_read(rg_static_tree *t, const char *name, const char *json, size_t n, rg_error *err)
{
    json_t *all = rg_json_load_within(json, n, JSON_REJECT_DUPLICATES, &(rg_json_limits){ .bytes = 1 << 20 }, NULL);
    const size_t n_choices = json_array_size(all);
    bool ok = json_is_array(all) && n_choices >= 1 && n_choices <= RG_MAX_DRAFT;

    t->n = 0;
    if (!ok)
        rg_fail(err, RG_E_INPUT, "%s: it is not a JSON list of 1 to %d choices", name, RG_MAX_DRAFT);
    for (size_t i = 0; ok && i < n_choices; i++)
        ok = add_choice(t, json_array_get(all, i), name, err);
    json_decref(all);
    return ok;
}

/* True if choice a stands before b in a draft. */
static bool is_before(const rg_static_tree *t, int32_t a, int32_t b)
{
    return t->length[a] != t->length[b] ? t->length[a] < t->length[b]
                                        : memcmp(t->rank[a], t->rank[b], t->length[a]) < 0;
}

static bool can_draft(const rg_static_tree *t, int32_t i, const rg_head_guesses *g, int32_t depth, bool chain)
{
    if (t->length[i] > depth || t->length[i] > g->n_heads)
        return false;
    for (int32_t k = 0; k < t->length[i]; k++)
        if (t->rank[i][k] >= g->n[k] || (chain && t->rank[i][k]))
            return false;
    return true;
}

void rg_static_tree_draft(const rg_static_tree *t, const rg_head_guesses *g, int32_t depth, int32_t most, bool chain,
                          rg_draft_tree *out)
{
    int32_t chosen[RG_MAX_DRAFT], n = 0;

    for (int32_t i = 0; i < t->n && n < most; i++) {
        int32_t at = n;

        if (!can_draft(t, i, g, depth, chain))
            continue;
        for (n++; at > 0 && is_before(t, i, chosen[at - 1]); at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = i;
    }
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = chosen[k];
        int32_t node = -1;

        for (int32_t d = 0; d < t->length[i]; d++) /* all but the last are there */
            node = rg_draft_add(out, node, g->id[d][t->rank[i][d]]);
    }
}
