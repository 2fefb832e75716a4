/* kept.h -- what a recurrence keeps of a sequence: a buffer in its slot, and the log of its draft rows. */
#ifndef RG_OPS_CPU_KEPT_H
#define RG_OPS_CPU_KEPT_H

#include "ops/cpu/reader.h"

/* A buffer of a span's sequence, and the log of its draft rows, `ld` floats apart (NULL: no drafts can come). */
typedef struct kept {
    float *at, *log;
    size_t ld;
} kept;

static inline kept kept_of(const rg_fwd *f, const rg_buffer *b, const rg_span *s)
{
    const rg_group_memory *memory = &rg_cpu_fwd_of(f)->groups[b->group];
    int32_t slot = s->tables[b->group][0];

    RG_ASSERT(slot >= 0 && s->n_draft <= s->n_rows && s->n_draft <= b->max_draft && s->n_replay <= b->max_draft);
    uint8_t *block = memory->data + (size_t)slot * memory->block_bytes;
    return (kept){ .at = (float *)(void *)(block + b->offset),
                   .log = b->max_draft ? (float *)(void *)(block + b->draft_offset) : NULL,
                   .ld = b->draft_bytes / sizeof(float) };
}

static inline float *logged(const kept *k, int i)
{
    return k->log + (size_t)i * k->ld;
}

#endif
