/* share.c -- see share.h. */
#include "model/share.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "model/weight_source.h"
#include "ops/count/count.h"

enum {
    MOST_IDS = 1 << 24, /* of a table that is cut: a float holds each */
    NOTES_ROOM = 1 << 16,
};

/* ---- which runs ------------------------------------------------------------------------------------------------- */

/* Which weight reads what this one makes, so that both are cut alike; -1: its own rows or columns say. */
static int partner_of(int role)
{
    switch (role) {
    case W_GATE_PROJ:
    case W_UP_PROJ:
        return W_DOWN_PROJ;
    case W_SHARED_GATE:
    case W_SHARED_UP:
        return W_SHARED_DOWN;
    default:
        return -1;
    }
}

static bool is_of_heads(int role)
{
    return role == W_Q_PROJ || role == W_K_PROJ || role == W_V_PROJ || role == W_O_PROJ;
}

static bool is_of_experts(int role)
{
    return role == W_GATE_EXPERTS || role == W_UP_EXPERTS || role == W_DOWN_EXPERTS;
}

/* The K/V that a layer reads: its own, or those of the layer that it shares K/V with. */
static rg_kv kv_of(const rg_config *c, int layer)
{
    const int from = c->layer[layer].kv_layer >= 0 ? c->layer[layer].kv_layer : layer;
    rg_keep keep = { .shared_with = -1 };

    rg_layer_kind_of(c, from)->keep(c, from, &keep);
    return keep.kv;
}

/* Runs of heads in which a layer's attention is cut: its K/V heads; of latents, which all heads share, each head. */
static int heads_of(const rg_config *c, const rg_kv *kv)
{
    return kv->latent ? c->n_heads : kv->n_heads;
}

/* Equal runs into which `size` rows or columns are cut: no smaller than a block of so many, and for n ranks enough. */
static int64_t units_of(int64_t size, int64_t block, int n)
{
    for (int64_t run = block > 256 ? block : 256; run >= block && run > 0; run /= 2)
        if (size % run == 0 && run % block == 0 && size / run >= n &&
            (size / run >= 4 * n || run / 2 < block || run <= 32))
            return size / run;
    return 0;
}

/* In how many units the ranks have weight i; 0: it stays whole. */
static int64_t weight_units(const rg_weight_set *s, int i, const rg_config *c, int n)
{
    const rg_weight *w = &s->all[i];
    const int role = s->spec[i]->role, layer = s->layer[i];
    const int64_t size = w->split == RG_CUT_COLS ? w->cols : w->rows;
    const int64_t own_block = rg_format_of(w->type)->block_len;

    if (is_of_experts(role))
        return w->n_mats;
    if (w->order && (w->n_mats > 1 || w->split == RG_CUT_COLS))
        return 0;
    const rg_kv kv = layer >= 0 ? kv_of(c, layer) : (rg_kv){ 0 };
    const int heads = heads_of(c, &kv);
    if (w->n_mats > 1)
        return w->n_mats;
    if (heads && (is_of_heads(role) || (kv.latent && role >= W_OWN && size % heads == 0)))
        return size % heads == 0 && (w->split == RG_CUT_ROWS || size / heads % own_block == 0) ? heads : 0;
    if (layer < 0)
        return size > MOST_IDS ? 0 : units_of(size, size % 16 ? 1 : 16, n);
    const rg_weight *reads = partner_of(role) >= 0 ? rg_weights_get(s, partner_of(role), layer) : NULL;
    int64_t block = w->split == RG_CUT_COLS ? own_block : reads ? rg_format_of(reads->type)->block_len : 32;

    block = block < 32 ? 32 : block;
    return units_of(size, size % block ? 1 : block, n);
}

static rg_split split_of(const rg_weight_set *s, int i)
{
    return s->all[i].n_mats > 1 ? RG_CUT_MATS : s->all[i].split;
}

/* This rank's part of weight i. */
static void make_part(rg_weight_set *s, int i, int64_t units, const rg_link *link)
{
    rg_weight *w = &s->all[i];
    rg_weight_part *p = &s->parts[i];
    const rg_split split = split_of(s, i);
    const int64_t size = split == RG_CUT_MATS ? w->n_mats : split == RG_CUT_ROWS ? w->rows : w->cols;
    const int64_t first = rg_rank_first(units, link->rank, link->n) * (size / units);
    const int64_t end = rg_rank_first(units, link->rank + 1, link->n) * (size / units);

    *p = (rg_weight_part){ .split = split, .units = units, .first = first, .n = end - first, .here = *w };
    p->here.part = NULL;
    if (split == RG_CUT_MATS)
        p->here.n_mats = p->n;
    else if (split == RG_CUT_ROWS)
        p->here.rows = p->n;
    else
        p->here.cols = p->n;
    w->part = p;
}

/* ---- the model's text ------------------------------------------------------------------------------------------- */

/* What a declared model's text can have in parts, and how. */
typedef struct finder {
    rg_weight_set *weights;  /* the model's */
    const rg_model *declared;
    const rg_link *link;
    bool *was_recut;         /* [weights] once each, so that it comes to an end */
    rg_state_cut (*state_cut)[RG_MAX_BUFFERS]; /* as of the model */
    int n_changed;
} finder;

static void refuse(void *arg, const rg_weight *w)
{
    finder *found = arg;

    ((rg_weight *)(uintptr_t)w)->part = NULL; /* a declared one's, which is ours */
    found->weights->all[w - found->declared->weights.all].part = NULL;
    found->n_changed++;
}

static bool recut(void *arg, const rg_weight *w, int64_t units)
{
    finder *found = arg;
    const int i = (int)(w - found->declared->weights.all);
    const int64_t block = w->split == RG_CUT_COLS ? rg_format_of(w->type)->block_len : 1;
    const int64_t size = w->split == RG_CUT_COLS ? w->cols : w->rows;

    if (found->was_recut[i] || w->n_mats > 1 || units < found->link->n || size % units || size / units % block)
        return false;
    make_part(found->weights, i, units, found->link);
    found->n_changed++;
    return found->was_recut[i] = true;
}

/* Which of the layers' buffers this is. */
static void place_of(const rg_model *m, const rg_buffer *b, int *layer, int *at)
{
    const size_t bytes = (size_t)((const uint8_t *)b - (const uint8_t *)m->keep);

    *layer = (int)(bytes / sizeof *m->keep);
    *at = (int)(b - m->keep[*layer].buffer);
}

static const rg_buffer *find_state(const void *arg, const rg_buffer *whole, int64_t units, size_t common)
{
    const finder *found = arg;
    int layer, at;

    place_of(found->declared, whole, &layer, &at);
    rg_state_cut *cut = &found->state_cut[layer][at];
    const size_t own = whole->draft_bytes - common;
    if (whole->bytes % (size_t)units || own % (size_t)units || (cut->units && cut->units != units))
        cut->units = -1;
    else
        *cut = (rg_state_cut){ units, common };
    return cut->units > 0 ? whole : NULL;
}

const rg_buffer *rg_share_state_here(const void *model, const rg_buffer *whole, int64_t units, size_t common)
{
    const rg_model *m = model;
    int layer, at;

    (void)common;
    place_of(m, whole, &layer, &at);
    return m->state_cut && m->state_cut[layer][at].units == units ? &m->keep_here[layer].buffer[at] : NULL;
}

/* The text of a step of n rows, through a reader that only counts. */
static bool run_text(const rg_model *m, int n_rows, int n_logits, finder *found, rg_exchanges *out, rg_error *err)
{
    const rg_shard_finder told = { .refuse = refuse, .recut = recut, .arg = found };
    const rg_span span = { .n_rows = n_rows, .adapter = -1 };
    const rg_batch batch = {
        .n_rows = n_rows, .n_spans = 1, .spans = &span, .n_logits = rg_config_has_logits(&m->config) ? n_logits : 0
    };
    rg_fwd *f = rg_alloc(sizeof *f);
    rg_counter counter;
    rg_shard s;

    if (!f)
        return rg_fail_memory(err, sizeof *f);
    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(f, &counter, &batch);
    rg_link alone = *m->link;
    rg_shard_begin(&s, &alone, f);
    s.finder = found ? &told : NULL;
    s.state_here = found ? find_state : rg_share_state_here;
    s.state_arg = found ? (const void *)found : m;
    rg_outputs made = rg_model_text(m, f);
    if (made.logits)
        rg_shard_to_zero(&s, f, made.logits);
    if (out)
        *out = s.exchanged;
    rg_shard_end(&s, f);
    rg_free(f);
    return true;
}

bool rg_share_exchanges(const rg_model *m, int n_rows, int n_logits, rg_exchanges *out, rg_error *err)
{
    *out = (rg_exchanges){ 0 };
    return !m->link || run_text(m, n_rows, n_logits, NULL, out, err);
}

/* Weights that the text needs whole lose their parts, some are cut otherwise; others may then be needed so as well. */
static bool settle(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    const rg_model_options look = { .declare_only = true, .declared_type = o->declared_type, .kv_type = o->kv_type };
    rg_model *d =
        o->random_weights || !ckpt ? rg_model_declare(&m->config, &look, err) : rg_model_open(ckpt, &look, err);
    finder found = { .weights = &m->weights, .declared = d, .link = m->link, .n_changed = 1,
                     .was_recut = rg_array((size_t)m->weights.n, sizeof *found.was_recut),
                     .state_cut = rg_array((size_t)m->config.n_layers, sizeof *found.state_cut) };
    bool ok = d && ((found.was_recut && found.state_cut) || rg_fail_memory(err, (size_t)m->weights.n));

    m->state_cut = found.state_cut;
    if (ok) {
        d->link = m->link;
        ok = rg_share_state(d, err);
        for (int i = 0; ok && i < m->weights.n; i++)
            d->weights.all[i].part = m->weights.all[i].part;
    }
    while (ok && found.n_changed) {
        found.n_changed = 0;
        memset(found.state_cut, 0, (size_t)m->config.n_layers * sizeof *found.state_cut);
        ok = run_text(d, 1, 1, &found, NULL, err);
    }
    rg_model_close(d);
    rg_free(found.was_recut);
    return ok;
}

static bool check(const rg_model_options *o, rg_error *err)
{
    const char *what = o->sparsity       ? "--sparsity"
                       : o->expert_bytes ? "--expert-memory"
                       : o->target       ? "a network that drafts"
                       : o->pack_cache   ? "--pack-cache"
                                         : NULL;

    return !what || rg_fail(err, RG_E_UNSUPPORTED,
                            "%s does not go with --ranks: each rank places its own part of the "
                            "weights",
                            what);
}

bool rg_share_weights(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    rg_weight_set *s = &m->weights;

    m->link = o->link;
    if (!o->link)
        return true;
    if (!check(o, err))
        return false;
    s->parts = rg_array((size_t)s->n, sizeof *s->parts);
    if (!s->parts)
        return rg_fail_memory(err, (size_t)s->n * sizeof *s->parts);
    for (int i = 0; i < s->n; i++) {
        const bool is_vector = rg_spec_is_vector(s->spec[i]);
        const int64_t units = s->all[i].split && !is_vector ? weight_units(s, i, &m->config, o->link->n) : 0;

        if (units >= o->link->n)
            make_part(s, i, units, o->link);
    }
    return settle(m, ckpt, o, err);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static rg_state_cut cut_of_state(const rg_model *m, int layer, int buffer)
{
    const rg_state_cut none = { 0 };

    return m->state_cut && m->state_cut[layer][buffer].units > 0 ? m->state_cut[layer][buffer] : none;
}

/* A rank's part of it. */
static void cut_buffer(rg_buffer *b, rg_state_cut cut, int rank, int n)
{
    const size_t own = (size_t)(rg_rank_first(cut.units, rank + 1, n) - rg_rank_first(cut.units, rank, n));

    if (!cut.units)
        return;
    b->bytes = b->bytes / (size_t)cut.units * own;
    b->draft_bytes = cut.common + (b->draft_bytes - cut.common) / (size_t)cut.units * own;
}

/* What a rank keeps: some heads of the layers that have enough of them, and parts of recurrent states. */
static bool declare_here(const rg_model *m, int rank, rg_keep *keep, rg_state_spec *spec, rg_error *err)
{
    const rg_config *c = &m->config;
    const int n = m->link->n;

    memcpy(keep, m->keep, (size_t)c->n_layers * sizeof *keep);
    for (int i = 0; i < c->n_layers; i++) {
        rg_kv *kv = &keep[i].kv;

        if (keep[i].shared_with >= 0)
            *kv = (rg_kv){ 0 };
        else if (!kv->latent && kv->n_heads >= n)
            kv->n_heads = (int)(rg_rank_first(kv->n_heads, rank + 1, n) - rg_rank_first(kv->n_heads, rank, n));
        for (int b = 0; b < keep[i].n_buffers; b++)
            cut_buffer(&keep[i].buffer[b], cut_of_state(m, i, b), rank, n);
    }
    if (!rg_state_declare(spec, keep, c->n_layers, m->kv_type, m->state.max_draft, err))
        return false;
    spec->sees = m->state.sees;
    RG_ASSERT(spec->n_groups == m->state.n_groups);
    return true;
}

/* A block of the whole has room for each rank's, all of the same size. */
static bool size_blocks(rg_model *m, rg_error *err)
{
    const size_t n = (size_t)m->link->n;
    rg_state_spec spec;

    for (int g = 0; g < m->state.n_groups; g++)
        m->state.group[g].block_bytes = 0;
    for (int rank = 0; rank < m->link->n; rank++) {
        if (!declare_here(m, rank, m->keep_here, &spec, err))
            return false;
        for (int g = 0; g < spec.n_groups; g++)
            if (n * spec.group[g].block_bytes > m->state.group[g].block_bytes)
                m->state.group[g].block_bytes = n * spec.group[g].block_bytes;
    }
    return true;
}

bool rg_share_state(rg_model *m, rg_error *err)
{
    const rg_config *c = &m->config;

    if (!m->link)
        return true;
    m->keep_here = rg_array((size_t)c->n_layers, sizeof *m->keep_here);
    if (!m->keep_here)
        return rg_fail_memory(err, (size_t)c->n_layers * sizeof *m->keep_here);
    if (!size_blocks(m, err) || !declare_here(m, m->link->rank, m->keep_here, &m->state_here, err))
        return false;
    m->state.here = &m->state_here;
    for (int i = 0; i < c->n_layers; i++) {
        rg_kv *kv = &m->keep[i].kv, *here = &m->keep_here[i].kv;

        if (kv->group < 0 || kv->latent || kv->n_heads < m->link->n) {
            /* the whole, where this rank's state has it */
            kv->offset = here->offset;
            kv->open_offset = here->open_offset;
            continue;
        }
        kv->here = here;
        kv->first_here = (int)rg_rank_first(kv->n_heads, m->link->rank, m->link->n);
    }
    for (int i = 0; i < c->n_layers; i++)
        for (int b = 0; b < m->keep[i].n_buffers; b++)
            if (!cut_of_state(m, i, b).units) /* what is cut is found by rg_share_state_here */
                m->keep[i].buffer[b] = m->keep_here[i].buffer[b];
    return true;
}

rg_shared rg_share_count(const rg_model *m)
{
    rg_shared sum = { 0 };
    uint64_t row;

    for (int i = 0; i < m->weights.n; i++) {
        const rg_weight *w = &m->weights.all[i];

        if (rg_spec_is_vector(m->weights.spec[i]) || !rg_row_bytes(w->type, w->cols, &row))
            continue;
        *(w->part ? &sum.split_bytes : &sum.whole_bytes) += (uint64_t)(w->n_mats * w->rows) * row;
    }
    for (int i = 0; i < m->config.n_layers; i++) {
        sum.n_layers_kv += m->keep[i].kv.group >= 0 && m->keep[i].shared_with < 0;
        sum.n_layers_kv_split += m->keep[i].kv.group >= 0 && m->keep[i].shared_with < 0 && m->keep[i].kv.here;
        for (int b = 0; b < m->keep[i].n_buffers; b++)
            if (m->keep[i].buffer[b].per == RG_PER_SEQUENCE)
                *(cut_of_state(m, i, b).units ? &sum.state_split_bytes : &sum.state_whole_bytes) +=
                    m->keep[i].buffer[b].bytes;
    }
    return sum;
}

bool rg_share_note(rg_model *m, rg_error *err)
{
    const rg_shared sum = m->link ? rg_share_count(m) : (rg_shared){ 0 };
    const bool is_whole = sum.whole_bytes * 100 > sum.split_bytes; /* small tables are not worth a word */
    rg_buf b;

    if (!m->notes || (!is_whole && sum.n_layers_kv_split == sum.n_layers_kv && !sum.state_whole_bytes))
        return true;
    rg_buf_init(&b, NOTES_ROOM);
    rg_buf_printf(&b, "%s%s%d ranks: ", m->notes, *m->notes ? "\n" : "", m->link->n);
    const char *and = "";
    if (is_whole) {
        rg_buf_printf(&b, "%.1f of %.1f MB of matrices cannot be split so, and each rank has all of them",
                      (double)sum.whole_bytes / 1e6, (double)(sum.whole_bytes + sum.split_bytes) / 1e6);
        and = "; ";
    }
    if (sum.n_layers_kv_split < sum.n_layers_kv) {
        rg_buf_printf(&b, "%seach rank keeps all K/V of %d of %d layers", and,
                      sum.n_layers_kv - sum.n_layers_kv_split, sum.n_layers_kv);
        and = "; ";
    }
    if (sum.state_whole_bytes)
        rg_buf_printf(&b, "%seach rank keeps all of %.1f of %.1f kB of recurrent state a sequence", and,
                      (double)sum.state_whole_bytes / 1e3,
                      (double)(sum.state_whole_bytes + sum.state_split_bytes) / 1e3);
    char *text = b.failed ? NULL : rg_strdup(b.data);
    rg_buf_fini(&b);
    if (!text)
        return rg_fail_memory(err, NOTES_ROOM);
    rg_free(m->notes);
    m->notes = text;
    return true;
}
