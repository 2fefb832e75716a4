/* state.c -- grouping what the layers keep, and the memory of the groups.
 *
 * Relies on ops.h for the size of one layer's part of a block.  Each part starts on a multiple of RG_ALIGN.  Knows
 * nothing of who holds a block. */
#include "model/state.h"

#include <string.h>

#include "base/mem.h"

enum { MAX_SIZE = 1 << 24 }; /* of any one dimension: what is larger is a broken config */

/* Bytes, and never more than a process can have, so that sums of a few do not overflow. */
static const uint64_t MAX_BYTES = (uint64_t)1 << 46;

/* The group for layers that keep this, made if it is the first; -1: too many. */
static int group_of(rg_state_spec *spec, rg_keep_kind kind, int window)
{
    for (int g = 0; g < spec->n_groups; g++)
        if (spec->group[g].kind == kind && spec->group[g].window == window)
            return g;
    if (spec->n_groups == RG_MAX_GROUPS)
        return -1;
    spec->group[spec->n_groups] = (rg_group){ .kind = kind, .window = window };
    return spec->n_groups++;
}

/* Are the dimensions what one can multiply?  *bytes is then an upper bound of a block's part. */
static bool sizes_are_sane(const rg_keep *k, uint64_t *bytes)
{
    uint64_t a, b;

    if (k->kind == RG_KEEP_RECURRENT) {
        if (k->d_inner < 1 || k->d_state < 1 || k->d_conv < 1 || k->d_inner > MAX_SIZE || k->d_state > MAX_SIZE ||
            k->d_conv > MAX_SIZE)
            return false;
        a = (uint64_t)k->d_state + (uint64_t)k->d_conv + 3 * RG_MAX_DRAFT;
        b = (uint64_t)k->d_inner + RG_MAX_DRAFT;
        return rg_mul(a, b, bytes) && rg_mul(*bytes, (uint64_t)8, bytes) && *bytes < MAX_BYTES;
    }
    if (k->n_heads < 1 || k->k_dim < 1 || k->v_dim < 1 || k->window < 0 || k->n_heads > MAX_SIZE ||
        k->k_dim > MAX_SIZE || k->v_dim > MAX_SIZE)
        return false;
    if (k->kind == RG_KEEP_LATENT && (k->n_heads != 1 || k->v_dim > k->k_dim))
        return false;
    a = (uint64_t)k->k_dim + (uint64_t)k->v_dim;
    return rg_mul(a, (uint64_t)k->n_heads, bytes) && rg_mul(*bytes, (uint64_t)RG_BLOCK * 4, bytes) &&
           *bytes < MAX_BYTES;
}

/* Give the layer's part its place at the end of its group's block. */
static bool place(rg_group *group, size_t bytes, size_t *offset)
{
    size_t whole;

    *offset = group->block_bytes;
    group->n_layers++;
    return rg_round_up(bytes, RG_ALIGN, &whole) && rg_add(group->block_bytes, whole, &group->block_bytes) &&
           group->block_bytes < MAX_BYTES;
}

static bool declare_layer(rg_state_spec *spec, const rg_keep *k, rg_type type, rg_kv *kv, rg_recurrent *rec)
{
    uint64_t bound;
    int g;

    if (k->kind == RG_KEEP_NOTHING)
        return true;
    if (!sizes_are_sane(k, &bound))
        return false;
    g = group_of(spec, k->kind, k->kind == RG_KEEP_RECURRENT ? 0 : k->window);
    if (g < 0)
        return false;
    if (k->kind == RG_KEEP_RECURRENT) {
        *rec = (rg_recurrent){ .group = g, .d_inner = k->d_inner, .d_state = k->d_state, .d_conv = k->d_conv };
        return place(&spec->group[g], rg_recurrent_bytes(rec), &rec->offset);
    }
    *kv = (rg_kv){ .group = g,
                   .type = type,
                   .n_heads = k->n_heads,
                   .k_dim = k->k_dim,
                   .v_dim = k->v_dim,
                   .window = k->window,
                   .latent = k->kind == RG_KEEP_LATENT };
    return place(&spec->group[g], rg_kv_bytes(kv), &kv->offset);
}

bool rg_state_declare(rg_state_spec *spec, const rg_keep *keep, int n_layers, rg_type kv_type, rg_kv *kv,
                      rg_recurrent *recurrent, rg_error *err)
{
    if (!rg_kv_name(kv_type))
        return rg_fail(err, RG_E_UNSUPPORTED, "K/V type %s is not f32, f16, bf16 or q8", rg_format_of(kv_type)->name);
    *spec = (rg_state_spec){ .n_layers = n_layers, .kv = kv, .recurrent = recurrent };
    for (int i = 0; i < n_layers; i++) {
        int shared = keep[i].shared_with;

        kv[i] = (rg_kv){ .group = -1 };
        recurrent[i] = (rg_recurrent){ .group = -1 };
        if (shared >= 0) {
            if (shared >= i || kv[shared].group < 0)
                return rg_fail(err, RG_E_UNSUPPORTED, "layer %d shares the K/V of layer %d, which has none before it",
                               i, shared);
            kv[i] = kv[shared];
        } else if (!declare_layer(spec, &keep[i], kv_type, &kv[i], &recurrent[i])) {
            return rg_fail(err, RG_E_LIMIT, "layer %d: its state is too large, or of a %dth kind", i,
                           RG_MAX_GROUPS + 1);
        }
    }
    return true;
}

uint64_t rg_state_bytes_per_position(const rg_state_spec *spec)
{
    uint64_t bytes = 0;

    for (int g = 0; g < spec->n_groups; g++)
        if (spec->group[g].kind != RG_KEEP_RECURRENT && !spec->group[g].window)
            bytes += spec->group[g].block_bytes / RG_BLOCK;
    return bytes;
}

/* A window of W positions touches at most (W + 62) / 64 + 1 blocks, and the block being entered is one more. */
uint64_t rg_state_bytes_per_sequence(const rg_state_spec *spec)
{
    uint64_t bytes = 0;

    for (int g = 0; g < spec->n_groups; g++) {
        const rg_group *group = &spec->group[g];

        if (group->kind == RG_KEEP_RECURRENT)
            bytes += group->block_bytes;
        else if (group->window)
            bytes += (((uint64_t)group->window + RG_BLOCK - 2) / RG_BLOCK + 2) * group->block_bytes;
    }
    return bytes;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

struct rg_store {
    rg_state_spec spec; /* its arrays are borrowed */
    rg_group_memory memory[RG_MAX_GROUPS];
    int32_t n_blocks[RG_MAX_GROUPS];
    size_t region_bytes[RG_MAX_GROUPS];
};

rg_store *rg_store_new(const rg_state_spec *spec, const int32_t n_blocks[], rg_error *err)
{
    rg_store *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->spec = *spec;
    for (int g = 0; g < spec->n_groups; g++) {
        size_t bytes;

        if (n_blocks[g] < 0 || !rg_mul((size_t)n_blocks[g], spec->group[g].block_bytes, &bytes)) {
            rg_fail(err, RG_E_LIMIT, "%d blocks of state of %zu bytes are too many", (int)n_blocks[g],
                    spec->group[g].block_bytes);
            goto fail;
        }
        s->memory[g].data = rg_region_new(bytes);
        if (!s->memory[g].data) {
            rg_fail_memory(err, bytes);
            goto fail;
        }
        s->memory[g].block_bytes = spec->group[g].block_bytes;
        s->region_bytes[g] = bytes;
        s->n_blocks[g] = n_blocks[g];
    }
    return s;

fail:
    rg_store_free(s);
    return NULL;
}

void rg_store_free(rg_store *s)
{
    if (!s)
        return;
    for (int g = 0; g < s->spec.n_groups; g++)
        rg_region_free(s->memory[g].data, s->region_bytes[g]);
    rg_free(s);
}

const rg_group_memory *rg_store_groups(const rg_store *s)
{
    return s->memory;
}

int32_t rg_store_n_blocks(const rg_store *s, int group)
{
    return s->n_blocks[group];
}

static uint8_t *block_at(const rg_store *s, int group, int32_t block)
{
    RG_ASSERT(group >= 0 && group < s->spec.n_groups && block >= 0 && block < s->n_blocks[group]);
    return s->memory[group].data + (size_t)block * s->memory[group].block_bytes;
}

void rg_store_clear(rg_store *s, int group, int32_t block)
{
    memset(block_at(s, group, block), 0, s->memory[group].block_bytes);
}

void rg_store_copy(rg_store *s, int group, int32_t from, int32_t to)
{
    RG_ASSERT(from != to);
    memcpy(block_at(s, group, to), block_at(s, group, from), s->memory[group].block_bytes);
}

void rg_store_save(const rg_store *s, int group, int32_t block, void *to)
{
    memcpy(to, block_at(s, group, block), s->memory[group].block_bytes);
}

void rg_store_load(rg_store *s, int group, int32_t block, const void *from)
{
    memcpy(block_at(s, group, block), from, s->memory[group].block_bytes);
}

/* All ones is a NaN in f32, f16 and bf16, so in q8's scales too. */
void rg_store_poison(rg_store *s, int group, int32_t block)
{
#ifdef RG_DEBUG
    memset(block_at(s, group, block), 0xff, s->memory[group].block_bytes);
#else
    (void)block_at(s, group, block);
#endif
}

void rg_store_move(rg_store *s, int group, int32_t from_block, int from, int32_t to_block, int to)
{
    uint8_t *source = block_at(s, group, from_block), *target = block_at(s, group, to_block);

    RG_ASSERT(from >= 0 && from < RG_BLOCK && to >= 0 && to < RG_BLOCK);
    RG_ASSERT(s->spec.group[group].kind != RG_KEEP_RECURRENT);
    /* A layer that shares another's K/V moves it once more, which changes nothing. */
    for (int i = 0; i < s->spec.n_layers; i++) {
        const rg_kv *kv = &s->spec.kv[i];

        for (int h = 0; kv->group == group && h < kv->n_heads; h++)
            rg_kv_copy(kv, rg_kv_at(kv, source + kv->offset, h, from), rg_kv_at(kv, target + kv->offset, h, to));
    }
}
