/* state.c -- see state.h. */
#include "ops/cuda/state.h"

#include <string.h>

#include "base/mem.h"

/* What a handle of rg_state_memory is here. */
typedef struct cuda_state {
    int n_groups, n_kv;
    rg_cuda_group group[RG_MAX_GROUPS];
    rg_kv *kv;
    uint8_t *room; /* of the host, for two blocks */
} cuda_state;

static cuda_state *behind(const rg_state_memory *m)
{
    return (cuda_state *)(uintptr_t)m;
}

static const rg_cuda *gpu(void)
{
    return rg_cuda_device(NULL);
}

static void state_free(rg_state_memory *handle)
{
    cuda_state *m = behind(handle);

    if (!m)
        return;
    for (int g = 0; g < m->n_groups; g++)
        rg_cuda_free(gpu(), m->group[g].data);
    rg_free(m->kv);
    rg_free(m->room);
    rg_free(m);
}

static bool allocate(cuda_state *m, const rg_state_shape *shape, rg_error *err)
{
    const rg_cuda *c = rg_cuda_device(err);
    size_t most = 1;

    for (int g = 0; c && g < shape->n_groups; g++) {
        size_t bytes;

        if (!rg_mul((size_t)shape->n_blocks[g], shape->block_bytes[g], &bytes))
            return rg_fail_memory(err, SIZE_MAX);
        m->group[g].block_bytes = shape->block_bytes[g];
        if (!(m->group[g].data = rg_cuda_alloc(c, bytes, err)))
            return false;
        most = shape->block_bytes[g] > most ? shape->block_bytes[g] : most;
    }
    m->kv = rg_array((size_t)shape->n_kv, sizeof *m->kv);
    m->room = rg_array(2, most);
    return c && ((m->kv && m->room) || rg_fail_memory(err, 2 * most)); /* fits: rg_array has checked it */
}

static rg_state_memory *state_new(const rg_backend *b, const rg_state_shape *shape, rg_error *err)
{
    cuda_state *m = rg_zalloc(sizeof *m);

    (void)b;
    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->n_groups = shape->n_groups;
    m->n_kv = shape->n_kv;
    if (!allocate(m, shape, err)) {
        state_free((rg_state_memory *)m);
        return NULL;
    }
    if (m->n_kv)
        memcpy(m->kv, shape->kv, (size_t)m->n_kv * sizeof *m->kv);
    for (int i = 0; i < m->n_kv; i++)
        m->group[m->kv[i].group].per_position = true;
    return (rg_state_memory *)m;
}

int rg_cuda_state_groups(const rg_state_memory *handle, const rg_cuda_group **groups)
{
    const cuda_state *m = behind(handle);

    *groups = m ? m->group : NULL;
    return m ? m->n_groups : 0;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint8_t *block_at(const rg_state_memory *handle, int group, int32_t block)
{
    const cuda_state *m = behind(handle);

    return m->group[group].data + (size_t)block * m->group[group].block_bytes;
}

static size_t block_bytes_of(const rg_state_memory *handle, int group)
{
    return behind(handle)->group[group].block_bytes;
}

static void state_copy(rg_state_memory *m, int group, int32_t from, int32_t to)
{
    const rg_cuda *c = gpu();

    rg_cuda_enter(c);
    rg_cuda_check(c, c->call.cuMemcpyDtoD_v2((uintptr_t)block_at(m, group, to), (uintptr_t)block_at(m, group, from),
                                             block_bytes_of(m, group)), "copying state");
}

static void state_save(const rg_state_memory *m, int group, int32_t block, void *to)
{
    rg_cuda_download(gpu(), to, block_at(m, group, block), block_bytes_of(m, group));
}

static void state_load(rg_state_memory *m, int group, int32_t block, const void *from)
{
    rg_cuda_upload(gpu(), block_at(m, group, block), from, block_bytes_of(m, group));
}

static void state_fill(rg_state_memory *m, int group, int32_t block, int byte)
{
    const rg_cuda *c = gpu();

    rg_cuda_enter(c);
    rg_cuda_check(c, c->call.cuMemsetD8_v2((uintptr_t)block_at(m, group, block), (unsigned char)byte,
                                           block_bytes_of(m, group)), "filling state");
}

/* By way of the host: it happens where a draft was accepted beside its place, seldom. */
static void state_move(rg_state_memory *m, int group, int32_t from_block, int from, int32_t to_block, int to)
{
    const cuda_state *s = behind(m);
    const size_t bytes = block_bytes_of(m, group);
    uint8_t *source = s->room, *target = from_block == to_block ? source : s->room + bytes;

    state_save(m, group, from_block, source);
    if (target != source)
        state_save(m, group, to_block, target);
    for (int i = 0; i < s->n_kv; i++) {
        const rg_kv *kv = &s->kv[i];
        for (int h = 0; kv->group == group && h < kv->n_heads; h++)
            rg_kv_copy(kv, rg_kv_at(kv, source + kv->offset, h, from), rg_kv_at(kv, target + kv->offset, h, to));
    }
    state_load(m, group, to_block, target);
}

/* K/V in 4 bits is refused. */
static void state_close(rg_state_memory *m, const int32_t *const tables[RG_MAX_GROUPS], int32_t block)
{
    (void)m, (void)tables, (void)block;
}

void rg_cuda_add_state(rg_backend *b)
{
    b->state_new = state_new;
    b->state_free = state_free;
    b->state_copy = state_copy;
    b->state_save = state_save;
    b->state_load = state_load;
    b->state_fill = state_fill;
    b->state_move = state_move;
    b->state_close = state_close;
}
