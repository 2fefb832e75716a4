/* trained.h -- a golden model opened for training, and the loss and gradients of texts. */
#ifndef RG_TEST_TRAINED_H
#define RG_TEST_TRAINED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "support/cases.h"
#include "support/model.h"
#include "train/passes.h"

typedef struct trained {
    rg_checkpoint *ckpt;
    rg_masters *masters;
    rg_pool *pool;
    rg_passes *passes;
} trained;

static inline const rg_backend *trained_backend(void)
{
    rg_error err = { 0 };
    const rg_backend *b = rg_backend_find(test_isa ? test_isa : "auto", &err);

    assert_ok(b, err);
    return b;
}

static inline void trained_open(trained *t, const char *path, int n_threads, int max_tokens)
{
    rg_error err = { 0 };

    t->ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(t->ckpt, err);
    t->masters = rg_masters_open(t->ckpt, trained_backend(), &err);
    assert_ok(t->masters, err);
    t->pool = rg_pool_new(n_threads, &err);
    assert_ok(t->pool, err);
    t->passes =
        rg_passes_new(t->masters, trained_backend(),
                      &(rg_passes_options){ .n_threads = n_threads, .max_tokens = max_tokens, .pool = t->pool }, &err);
    assert_ok(t->passes, err);
}

static inline void trained_close(trained *t)
{
    rg_passes_free(t->passes);
    rg_pool_free(t->pool);
    rg_masters_close(t->masters);
    rg_checkpoint_close(t->ckpt);
}

/* The mean loss; gradients are in the masters unless forward_only. */
static inline double trained_loss(trained *t, const rg_texts *texts, bool forward_only)
{
    const int64_t n = rg_texts_count(texts);
    const rg_cross_entropy c = { .targets = texts->targets, .scale = n ? 1 / (double)n : 0 };
    const rg_loss loss = rg_cross_entropy_of(&c);
    rg_error err = { 0 };
    double sum;

    if (!forward_only)
        rg_masters_clear(t->masters);
    assert_ok(rg_passes_compute(t->passes,
                                &(rg_passes_run){ .texts = texts, .loss = &loss, .forward_only = forward_only }, &sum,
                                &err),
              err);
    if (!forward_only)
        assert_ok(rg_masters_pull(t->masters, &err), err);
    return sum * c.scale;
}

#endif
