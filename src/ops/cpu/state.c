/* state.c -- see state.h. */
#include "ops/cpu/state.h"

#include <string.h>

#include "base/mem.h"

struct rg_state_memory {
    int n_groups, n_kv, n_buffers;
    rg_group_memory group[RG_MAX_GROUPS];
    size_t bytes[RG_MAX_GROUPS];
    rg_kv *kv;
    rg_buffer *buffer;
};

static bool allocate(rg_state_memory *m, const rg_state_shape *shape, rg_error *err)
{
    m->kv = rg_array((size_t)shape->n_kv, sizeof *m->kv);
    m->buffer = rg_array((size_t)shape->n_buffers, sizeof *m->buffer);
    if (!m->kv || !m->buffer)
        return rg_fail_memory(err, sizeof *m);
    for (int g = 0; g < shape->n_groups; g++) {
        if (!rg_mul((size_t)shape->n_blocks[g], shape->block_bytes[g], &m->bytes[g]))
            return rg_fail_memory(err, SIZE_MAX);
        m->group[g] = (rg_group_memory){ rg_region_new(m->bytes[g]), shape->block_bytes[g] };
        if (!m->group[g].data)
            return rg_fail_memory(err, m->bytes[g]);
    }
    return true;
}

rg_state_memory *rg_cpu_state_new(const rg_backend *b, const rg_state_shape *shape, rg_error *err)
{
    rg_state_memory *m = rg_zalloc(sizeof *m);

    (void)b;
    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->n_groups = shape->n_groups;
    if (!allocate(m, shape, err)) {
        rg_cpu_state_free(m);
        return NULL;
    }
    m->n_kv = shape->n_kv;
    m->n_buffers = shape->n_buffers;
    if (m->n_kv)
        memcpy(m->kv, shape->kv, (size_t)m->n_kv * sizeof *m->kv);
    if (m->n_buffers)
        memcpy(m->buffer, shape->buffer, (size_t)m->n_buffers * sizeof *m->buffer);
    return m;
}

void rg_cpu_state_free(rg_state_memory *m)
{
    if (!m)
        return;
    for (int g = 0; g < m->n_groups; g++)
        if (m->group[g].data)
            rg_region_free(m->group[g].data, m->bytes[g]);
    rg_free(m->kv);
    rg_free(m->buffer);
    rg_free(m);
}

const rg_group_memory *rg_cpu_state_groups(const rg_state_memory *m)
{
    return m ? m->group : NULL;
}

static uint8_t *block_at(const rg_state_memory *m, int group, int32_t block)
{
    return m->group[group].data + (size_t)block * m->group[group].block_bytes;
}

void rg_cpu_state_copy(rg_state_memory *m, int group, int32_t from, int32_t to)
{
    memcpy(block_at(m, group, to), block_at(m, group, from), m->group[group].block_bytes);
}

void rg_cpu_state_save(const rg_state_memory *m, int group, int32_t block, void *to)
{
    memcpy(to, block_at(m, group, block), m->group[group].block_bytes);
}

void rg_cpu_state_load(rg_state_memory *m, int group, int32_t block, const void *from)
{
    memcpy(block_at(m, group, block), from, m->group[group].block_bytes);
}

void rg_cpu_state_fill(rg_state_memory *m, int group, int32_t block, int byte)
{
    memset(block_at(m, group, block), byte, m->group[group].block_bytes);
}

/* A closed part is not moved: it is made anew by rg_cpu_state_close. */
void rg_cpu_state_move(rg_state_memory *m, int group, int32_t from_block, int from, int32_t to_block, int to)
{
    uint8_t *source = block_at(m, group, from_block), *target = block_at(m, group, to_block);

    for (int i = 0; i < m->n_kv; i++) {
        const rg_kv kv = rg_kv_open(&m->kv[i]);
        for (int h = 0; kv.group == group && h < kv.n_heads; h++)
            rg_kv_copy(&kv, rg_kv_at(&kv, source + kv.offset, h, from), rg_kv_at(&kv, target + kv.offset, h, to));
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const rg_buffer *rows = &m->buffer[i];
        if (rows->group == group)
            memmove(target + rows->offset + (size_t)to * rows->bytes,
                    source + rows->offset + (size_t)from * rows->bytes, rows->bytes);
    }
}

void rg_cpu_state_close(rg_state_memory *m, const int32_t *const tables[RG_MAX_GROUPS], int32_t block)
{
    for (int i = 0; i < m->n_kv; i++) {
        const rg_kv *kv = &m->kv[i];
        if (rg_kv_has_open(kv))
            rg_kv_close(kv, block_at(m, kv->open_group, tables[kv->open_group][block]) + kv->open_offset,
                        block_at(m, kv->group, tables[kv->group][block]) + kv->offset);
    }
}
