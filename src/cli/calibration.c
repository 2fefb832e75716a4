/* calibration.c -- see calibration.h. */
#include "cli/calibration.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/kbit.h"

enum { DEFAULT_SAMPLES = 64 };

static bool encode(const rg_tokenizer *t, const char *file, rg_ids *ids, rg_error *err)
{
    size_t n;
    char *text = cli_text(NULL, file, &n, err);

    if (!text)
        return false;
    bool ok = rg_tokenizer_encode(t, text, n, RG_ENCODE_NO_SPECIAL, ids, err);
    rg_free(text);
    return ok;
}

static bool keep_rest(calibration *c, const int32_t *ids, size_t n, rg_error *err)
{
    c->rest = rg_array(n, sizeof *c->rest);
    if (!c->rest)
        return rg_fail_memory(err, n * sizeof *c->rest);
    memcpy(c->rest, ids, n * sizeof *ids);
    c->n_rest = n;
    return true;
}

/* Samples are spread evenly over the first n ids. */
static bool cut(calibration *c, const rg_tokenizer *t, const int32_t *ids, size_t n, rg_error *err)
{
    const bool bos = rg_tokenizer_adds_bos(t);
    const size_t body = (size_t)c->ctx - bos, windows = n / body;

    if (!windows || (c->n_samples && windows < (size_t)c->n_samples))
        return rg_fail(err, RG_E_INPUT,
                       "%s: %zu of its ids may be used, which is %zu samples of %d; take a longer text, or lower "
                       "--samples or --ctx",
                       c->path, n, windows, c->ctx);
    if (!c->n_samples)
        c->n_samples = windows < DEFAULT_SAMPLES ? (int32_t)windows : DEFAULT_SAMPLES;
    c->ids = rg_table_new(c->n_samples, c->ctx, sizeof *c->ids);
    if (!c->ids)
        return rg_fail_memory(err, (size_t)c->n_samples * (size_t)c->ctx * sizeof *c->ids);
    for (size_t i = 0; i < (size_t)c->n_samples; i++) {
        int32_t *to = c->ids + i * (size_t)c->ctx;
        if (bos)
            to[0] = rg_tokenizer_bos(t);
        memcpy(to + bos, ids + i * windows / (size_t)c->n_samples * body, body * sizeof *to);
    }
    return true;
}

bool calibration_read(calibration *c, const rg_tokenizer *t, rg_error *err)
{
    rg_ids text = { 0 }, score = { 0 };
    bool ok;

    if (c->file)
        snprintf(c->path, sizeof c->path, "%s", c->file);
    else
        snprintf(c->path, sizeof c->path, "%s/calibration.txt", cli_models_dir);
    ok = encode(t, c->path, &text, err);
    size_t used = c->score ? text.n : text.n - text.n / 8;
    if (ok && c->score && strcmp(c->score, "none"))
        ok = encode(t, c->score, &score, err) && keep_rest(c, score.id, score.n, err);
    else if (ok && !c->score)
        ok = keep_rest(c, text.id + used, text.n - used, err);
    ok = ok && cut(c, t, text.id, used, err);
    rg_ids_fini(&text);
    rg_ids_fini(&score);
    return ok;
}

void calibration_fini(calibration *c)
{
    rg_free(c->ids);
    rg_free(c->rest);
}
