/* state.c -- grouping what the layers keep, and the memory of the groups.
 *
 * Relies on kv.h for the size of a layer's K/V in a block.  Each part starts on a multiple of RG_ALIGN.  Does not know
 * which sequence holds a block. */
#include "model/state.h"

#include <string.h>

#include "base/mem.h"

enum { MAX_SIZE = 1 << 24 }; /* of any one dimension: what is larger is a broken config */

/* A limit of bytes: more than a process can have, and so small that sums of a few do not overflow. */
static const uint64_t MAX_BYTES = (uint64_t)1 << 46;

/* ---- declaring --------------------------------------------------------------------------------------------------- */

/* The group for this kind of keep, made if this is the first; -1: too many groups. */
static int group_of(rg_state_spec *spec, rg_per per, const rg_kept *kept)
{
    for (int g = 0; g < spec->n_groups; g++)
        if (spec->group[g].per == per && rg_kept_same(&spec->group[g].kept, kept))
            return g;
    if (spec->n_groups == RG_MAX_GROUPS)
        return -1;
    spec->group[spec->n_groups] = (rg_group){ .per = per, .kept = *kept };
    return spec->n_groups++;
}

/* Put n times bytes at the end of the group's block. */
static bool place(rg_group *group, size_t n, size_t bytes, size_t *offset)
{
    size_t all;

    if (!rg_mul(n, bytes, &all) || all > MAX_BYTES)
        return false;
    if (!rg_round_up(all, RG_ALIGN, &all))
        return false;
    *offset = group->block_bytes;
    return rg_add(group->block_bytes, all, &group->block_bytes) && group->block_bytes < MAX_BYTES;
}

/* True if the dimensions can be multiplied without overflow. */
static bool kv_is_sane(const rg_kv *kv)
{
    uint64_t bytes = (uint64_t)kv->k_dim + (uint64_t)kv->v_dim;

    if (kv->n_heads < 1 || kv->k_dim < 1 || kv->v_dim < 1 || kv->n_heads > MAX_SIZE ||
        kv->k_dim > MAX_SIZE || kv->v_dim > MAX_SIZE)
        return false;
    if (kv->latent && (kv->n_heads != 1 || kv->v_dim > kv->k_dim))
        return false;
    return rg_mul(bytes, (uint64_t)kv->n_heads, &bytes) && rg_mul(bytes, (uint64_t)RG_BLOCK * 4, &bytes) &&
           bytes < MAX_BYTES;
}

static bool declare_kv(rg_state_spec *spec, rg_kv *kv, const rg_kept *kept, rg_type type)
{
    if (!kv_is_sane(kv))
        return false;
    kv->type = type;
    kv->group = group_of(spec, RG_PER_POSITION, kept);
    if (kv->group < 0 || !place(&spec->group[kv->group], 1, rg_kv_bytes(kv), &kv->offset))
        return false;
    if (!rg_kv_has_open(kv))
        return true;
    const rg_kept own = { .window = 1 }; /* the next row's block: blocks stay or go as a whole */
    const rg_kv open = rg_kv_open(kv);

    kv->open_group = group_of(spec, RG_PER_POSITION, &own);
    return kv->open_group >= 0 && place(&spec->group[kv->open_group], 1, rg_kv_bytes(&open), &kv->open_offset);
}

static bool declare_buffer(rg_state_spec *spec, rg_buffer *b, rg_type kv_type)
{
    bool whole = b->per == RG_PER_SEQUENCE;
    rg_kept kept = { 0 };

    if (!whole)
        rg_kept_add(&kept, &(rg_sight){ .window = b->window });
    RG_ASSERT(whole ? !b->window && !b->values : b->window >= 0 && !b->draft_bytes);
    if (b->values)
        rg_rows_set_type(b, kv_type == RG_Q4_1 ? RG_I8 : kv_type); /* no keys or values: they choose them */
    b->group = group_of(spec, b->per, &kept);
    if (b->group < 0 || !place(&spec->group[b->group], whole ? 1 : RG_BLOCK, b->bytes, &b->offset))
        return false;
    b->max_draft = b->draft_bytes ? spec->max_draft : 0;
    return !b->max_draft || place(&spec->group[b->group], (size_t)b->max_draft, b->draft_bytes, &b->draft_offset);
}

static bool declare_layer(rg_state_spec *spec, rg_keep *k, rg_type type)
{
    RG_ASSERT(k->n_buffers >= 0 && k->n_buffers <= RG_MAX_BUFFERS);
    if (!k->kv.n_heads)
        k->kv = (rg_kv){ .group = -1 };
    else if (!declare_kv(spec, &k->kv, &k->kept, type))
        return false;
    for (int i = 0; i < k->n_buffers; i++)
        if (!declare_buffer(spec, &k->buffer[i], type))
            return false;
    return true;
}

/* What stays of each layer's K/V: what it and the layers that read them see. */
static bool unite_sights(rg_keep *keep, int n_layers, rg_error *err)
{
    for (int i = 0; i < n_layers; i++) {
        int from = keep[i].shared_with;

        RG_ASSERT(from < 0 || !keep[i].kv.n_heads);
        if (from >= i || (from >= 0 && (keep[from].shared_with >= 0 || !keep[from].kv.n_heads)))
            return rg_fail(err, RG_E_UNSUPPORTED, "layer %d shares the K/V of layer %d, which has none before it", i,
                           from);
        keep[i].kept = (rg_kept){ 0 };
        if (from >= 0 || keep[i].kv.n_heads)
            rg_kept_add(&keep[from >= 0 ? from : i].kept, &keep[i].sight);
    }
    return true;
}

bool rg_state_declare(rg_state_spec *spec, rg_keep *keep, int n_layers, rg_type kv_type, int max_draft, rg_error *err)
{
    if (!rg_kv_name(kv_type))
        return rg_fail(err, RG_E_UNSUPPORTED, "K/V type %s is not " RG_KV_NAMES, rg_format_of(kv_type)->name);
    RG_ASSERT(max_draft >= 0 && max_draft <= RG_MAX_DRAFT);
    *spec = (rg_state_spec){ .n_layers = n_layers, .keep = keep, .max_draft = max_draft };
    if (!unite_sights(keep, n_layers, err))
        return false;
    for (int i = 0; i < n_layers; i++) {
        if (!declare_layer(spec, &keep[i], kv_type))
            return rg_fail(err, RG_E_LIMIT, "layer %d: its state is too large, or of a %dth kind", i,
                           RG_MAX_GROUPS + 1);
        if (keep[i].shared_with >= 0)
            keep[i].kv = keep[keep[i].shared_with].kv;
    }
    return true;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

int64_t rg_group_blocks(const rg_group *group, int64_t n)
{
    return group->per == RG_PER_SEQUENCE ? 1 : rg_kept_blocks(&group->kept, n, 1);
}

uint64_t rg_state_bytes_per_position(const rg_state_spec *spec)
{
    uint64_t bytes = 0;

    for (int g = 0; g < spec->n_groups; g++)
        if (rg_group_grows(&spec->group[g]))
            bytes += spec->group[g].block_bytes / RG_BLOCK;
    return bytes;
}

uint64_t rg_state_bytes_per_sequence(const rg_state_spec *spec)
{
    uint64_t bytes = 0;

    for (int g = 0; g < spec->n_groups; g++)
        if (!rg_group_grows(&spec->group[g]))
            bytes += (uint64_t)rg_group_blocks(&spec->group[g], INT64_MAX) * spec->group[g].block_bytes;
    return bytes;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

struct rg_store {
    rg_state_spec spec; /* its arrays are borrowed */
    const rg_backend *backend;
    rg_state_memory *memory;
    int32_t n_blocks[RG_MAX_GROUPS];
    bool (*tell)(void *arg, const rg_store_call *c); /* NULL: nobody */
    void *tell_arg;
};

void rg_store_tell(rg_store *s, bool (*tell)(void *arg, const rg_store_call *c), void *arg)
{
    s->tell = tell;
    s->tell_arg = arg;
}

static bool tell(const rg_store *s, const rg_store_call *c)
{
    return !s->tell || s->tell(s->tell_arg, c);
}

/* List what layers keep in blocks.  A layer that reads another's K/V keeps none. */
static void list_kept(const rg_state_spec *spec, rg_kv *kv, rg_buffer *buffer, rg_state_shape *shape)
{
    shape->kv = kv;
    shape->buffer = buffer;
    for (int i = 0; i < spec->n_layers; i++) {
        const rg_keep *k = &spec->keep[i];

        if (k->kv.group >= 0 && k->shared_with < 0)
            kv[shape->n_kv++] = k->kv;
        for (int b = 0; b < k->n_buffers; b++)
            if (k->buffer[b].per == RG_PER_POSITION)
                buffer[shape->n_buffers++] = k->buffer[b];
    }
}

static bool check_blocks(const rg_state_spec *spec, const int32_t n_blocks[], rg_error *err)
{
    for (int g = 0; g < spec->n_groups; g++) {
        size_t bytes;

        if (n_blocks[g] < 0 || !rg_mul((size_t)n_blocks[g], spec->group[g].block_bytes, &bytes))
            return rg_fail(err, RG_E_LIMIT, "%d blocks of state of %zu bytes are too many", (int)n_blocks[g],
                           spec->group[g].block_bytes);
    }
    return true;
}

static rg_state_memory *memory_new(const rg_store *s, rg_error *err)
{
    const rg_state_spec *spec = s->spec.here ? s->spec.here : &s->spec;
    const size_t n = (size_t)spec->n_layers;
    rg_kv *kv = rg_array(n, sizeof *kv);
    rg_buffer *buffer = rg_array(n, RG_MAX_BUFFERS * sizeof *buffer);
    rg_state_shape shape = { .n_groups = s->spec.n_groups };
    rg_state_memory *m = NULL;

    if (kv && buffer) {
        list_kept(spec, kv, buffer, &shape);
        for (int g = 0; g < shape.n_groups; g++) {
            shape.block_bytes[g] = spec->group[g].block_bytes;
            shape.n_blocks[g] = s->n_blocks[g];
        }
        m = s->backend->state_new(s->backend, &shape, err);
    } else {
        rg_fail_memory(err, n * RG_MAX_BUFFERS * sizeof *buffer);
    }
    rg_free(kv);
    rg_free(buffer);
    return m;
}

rg_store *rg_store_new(const rg_state_spec *spec, const int32_t n_blocks[], const rg_backend *backend, rg_error *err)
{
    if (!check_blocks(spec, n_blocks, err))
        return NULL;
    rg_store *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->spec = *spec;
    s->backend = backend;
    for (int g = 0; g < spec->n_groups; g++)
        s->n_blocks[g] = n_blocks[g];
    s->memory = memory_new(s, err);
    if (s->memory)
        return s;
    rg_free(s);
    return NULL;
}

void rg_store_free(rg_store *s)
{
    if (!s)
        return;
    s->backend->state_free(s->memory);
    rg_free(s);
}

rg_state_memory *rg_store_memory(const rg_store *s)
{
    return s->memory;
}

int32_t rg_store_n_blocks(const rg_store *s, int group)
{
    return s->n_blocks[group];
}

static void check(const rg_store *s, int group, int32_t block)
{
    RG_ASSERT(group >= 0 && group < s->spec.n_groups && block >= 0 && block < s->n_blocks[group]);
}

void rg_store_copy(rg_store *s, int group, int32_t from, int32_t to)
{
    RG_ASSERT(from != to);
    check(s, group, from);
    check(s, group, to);
    (void)tell(s, &(rg_store_call){ .verb = RG_STORE_COPY, .group = group, .block = from, .to_block = to });
    s->backend->state_copy(s->memory, group, from, to);
}

bool rg_store_save(const rg_store *s, int group, int32_t block, void *to)
{
    check(s, group, block);
    const bool kept = tell(s, &(rg_store_call){ .verb = RG_STORE_SAVE, .group = group, .block = block, .save = to });
    s->backend->state_save(s->memory, group, block, to);
    return kept;
}

void rg_store_load(rg_store *s, int group, int32_t block, const void *from)
{
    check(s, group, block);
    (void)tell(s, &(rg_store_call){ .verb = RG_STORE_LOAD, .group = group, .block = block, .load = from });
    s->backend->state_load(s->memory, group, block, from);
}

void rg_store_fill(rg_store *s, int group, int32_t block, int byte)
{
    check(s, group, block);
    (void)tell(s, &(rg_store_call){ .verb = RG_STORE_FILL, .group = group, .block = block, .to = byte });
    s->backend->state_fill(s->memory, group, block, byte);
}

/* All ones is a NaN in f32, f16 and bf16, so in the scales of q8 and q4 too. */
void rg_store_poison(rg_store *s, int group, int32_t block)
{
#ifdef RG_DEBUG
    rg_store_fill(s, group, block, 0xff);
#else
    check(s, group, block);
#endif
}

void rg_store_move(rg_store *s, int group, int32_t from_block, int from, int32_t to_block, int to)
{
    check(s, group, from_block);
    check(s, group, to_block);
    RG_ASSERT(from >= 0 && from < RG_BLOCK && to >= 0 && to < RG_BLOCK);
    RG_ASSERT(s->spec.group[group].per == RG_PER_POSITION);
    (void)tell(s, &(rg_store_call){ .verb = RG_STORE_MOVE, .group = group, .block = from_block, .from = from,
                              .to_block = to_block, .to = to });
    s->backend->state_move(s->memory, group, from_block, from, to_block, to);
}

void rg_store_close_block(rg_store *s, const int32_t *const tables[RG_MAX_GROUPS], int32_t block)
{
    (void)tell(s, &(rg_store_call){ .verb = RG_STORE_CLOSE, .tables = tables, .block = block });
    s->backend->state_close(s->memory, tables, block);
}
