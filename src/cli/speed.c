/* speed.c -- see speed.h. */
#include "cli/speed.h"

#include <string.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/mem.h"
#include "base/rng.h"

bool speed_init(speed *s, tool *t, rg_error *err)
{
    rg_rng rng = { .seed = 1 };

    memset(s, 0, sizeof *s);
    s->tool = t;
    s->ids = rg_array(SPEED_ROWS + SPEED_SEQS, sizeof *s->ids);
    if (!s->ids)
        return rg_fail_memory(err, (SPEED_ROWS + SPEED_SEQS) * sizeof *s->ids);
    for (int i = 0; i < SPEED_ROWS + SPEED_SEQS; i++)
        s->ids[i] = (int32_t)rg_rng_below(&rng, (uint32_t)t->model->config.vocab_size);
    return true;
}

void speed_fini(speed *s)
{
    rg_free(s->ids);
    s->ids = NULL;
}

/* Small values in the state of [from, to): pages that were never written would all map to one page, which stays in the
 * cache. */
static void fill(speed *s, const rg_seq *q, int from, int to)
{
    const rg_state_spec *spec = &s->tool->model->state;
    rg_span span = { 0 };

    rg_seq_span(s->tool->states, q, 0, 0, &span);
    for (int g = 0; g < spec->n_groups; g++)
        for (int b = from / RG_BLOCK; b * RG_BLOCK < (spec->group[g].per == RG_PER_SEQUENCE ? 1 : to); b++)
            if (span.tables[g][b] >= 0)
                rg_store_fill(s->tool->runner->store, g, span.tables[g][b], 0x3c);
}

/* Get memory for the positions up to `upto` of a sequence, SPEED_ROWS at a time at most: as the sequence advances, a
 * window frees the positions behind it. */
static bool grow(speed *s, rg_seq *q, int upto, rg_error *err)
{
    if (!rg_seq_grow(s->tool->states, q, upto))
        return rg_fail(err, RG_E_LIMIT, "no room for the state of %d positions", upto);
    fill(s, q, q->length, upto);
    return true;
}

/* A sequence that holds `context` positions that were not computed. */
static bool pretend(speed *s, rg_seq *q, int context, rg_error *err)
{
    while (q->length < context) {
        int n = context - q->length < SPEED_ROWS ? context - q->length : SPEED_ROWS;
        if (!grow(s, q, q->length + n, err))
            return false;
        rg_seq_advance(s->tool->states, q, n, 0, NULL);
    }
    return true;
}

/* The first n spans as one step: the part-th of such. */
static bool step(speed *s, int n, int part, double *seconds, rg_error *err)
{
    uint64_t t0 = rg_now_ns();

    if (s->timer && part >= 0)
        rg_timer_begin(s->timer, part);
    bool ok = tool_step(s->tool, s->spans, n, NULL, NULL, err);
    *seconds = rg_seconds(t0, rg_now_ns());
    if (s->timer && part >= 0)
        rg_timer_end(s->timer);
    return ok;
}

static void close_seqs(speed *s, int n)
{
    for (int i = 0; i < n; i++) {
        rg_seq_free(s->tool->states, s->seqs[i]);
        s->seqs[i] = NULL;
    }
}

static bool open_seqs(speed *s, int n, int context, int len, rg_error *err)
{
    for (int i = 0; i < n; i++) {
        s->seqs[i] = rg_seq_new(s->tool->states, len, 0, err);
        if (!s->seqs[i] || !pretend(s, s->seqs[i], context, err)) {
            close_seqs(s, i + 1);
            return false;
        }
        s->seqs[i]->adapter = s->tool->model->adapters.n - 1; /* the only one there can be, or none */
    }
    return true;
}

bool speed_prefill(speed *s, int n, int context, double *seconds, rg_error *err)
{
    bool ok = open_seqs(s, 1, context, context + n, err);

    if (!ok)
        return false;
    *seconds = 0;
    for (int done = 0; ok && done < n; done += SPEED_ROWS) {
        int m = n - done < SPEED_ROWS ? n - done : SPEED_ROWS;
        double one = 0;
        s->spans[0] = (tool_span){ .seq = s->seqs[0], .ids = s->ids, .n = m };
        ok = grow(s, s->seqs[0], s->seqs[0]->length + m, err) && step(s, 1, done / SPEED_ROWS, &one, err);
        *seconds += one;
    }
    close_seqs(s, 1);
    return ok;
}

bool speed_decode(speed *s, int batch, int context, int n, double *seconds, double *step_s, rg_error *err)
{
    double *steps = rg_array((size_t)n, sizeof *steps);
    bool ok = steps || rg_fail_memory(err, (size_t)n * sizeof *steps);

    if (!ok || !open_seqs(s, batch, context, context + n + 1, err)) {
        rg_free(steps);
        return false;
    }
    *seconds = 0;
    for (int t = -1; ok && t < n; t++) { /* the first one warms up */
        double one = 0;
        for (int i = 0; ok && i < batch; i++) {
            s->spans[i] = (tool_span){ .seq = s->seqs[i], .ids = s->ids + (i + t + 1) % SPEED_SEQS, .n = 1 };
            if ((t + 1) % SPEED_ROWS == 0)
                ok = grow(s, s->seqs[i], context + t + 1 + (n - t < SPEED_ROWS ? n - t : SPEED_ROWS), err);
        }
        ok = ok && step(s, batch, t < 0 ? -1 : 0, &one, err);
        if (t >= 0)
            *seconds += steps[t] = one;
    }
    if (ok && step_s)
        *step_s = rg_quantile(steps, n, 0.5);
    close_seqs(s, batch);
    rg_free(steps);
    return ok;
}

bool speed_after(speed *s, const int32_t *ids, int n_prompt, int n, double *step_s, rg_error *err)
{
    const int most = s->tool->max_rows < SPEED_ROWS ? s->tool->max_rows : SPEED_ROWS;
    double *steps = rg_array((size_t)n, sizeof *steps), one;
    rg_seq *q = steps ? rg_seq_new(s->tool->states, n_prompt + n, 0, err) : NULL;
    bool ok = q || (!steps && rg_fail_memory(err, (size_t)n * sizeof *steps));

    if (ok)
        q->rope = rg_config_rope(&s->tool->model->config, n_prompt + n);
    for (int done = 0, rows; ok && done < n_prompt; done += rows) {
        rows = n_prompt - done < most ? n_prompt - done : most;
        s->spans[0] = (tool_span){ .seq = q, .ids = ids + done, .n = rows };
        ok = step(s, 1, -1, &one, err);
    }
    for (int i = 0; ok && i < n; i++) {
        s->spans[0] = (tool_span){ .seq = q, .ids = ids + n_prompt + i, .n = 1 };
        ok = step(s, 1, 0, &steps[i], err);
    }
    if (ok)
        *step_s = rg_quantile(steps, n, 0.5);
    if (q)
        rg_seq_free(s->tool->states, q);
    rg_free(steps);
    return ok;
}

bool speed_takes(const speed *s, const rg_step_shape *shape)
{
    return (int64_t)shape->n_seqs * shape->n_rows <= s->tool->max_rows &&
           (int64_t)shape->n_seqs * shape->n_logits <= s->tool->runner->max_logits && shape->n_seqs <= SPEED_SEQS;
}

bool speed_evaluate(speed *s, const rg_step_shape *shape, double *seconds, rg_error *err)
{
    const int n = shape->n_seqs, rows = shape->n_rows, context = (int)shape->n_seq - rows;
    int32_t *ids = rg_array((size_t)rows, sizeof *ids);
    bool ok = ids || rg_fail_memory(err, (size_t)rows * sizeof *ids);

    for (int i = 0; ok && i < rows; i++)
        ids[i] = s->ids[i % (SPEED_ROWS + SPEED_SEQS)];
    for (int pass = -1; ok && pass < 1; pass++) {
        ok = open_seqs(s, n, context, (int)shape->n_seq, err);
        for (int i = 0; ok && i < n; i++)
            s->spans[i] = (tool_span){ .seq = s->seqs[i], .ids = ids, .n = rows, .n_logits = shape->n_logits };
        if (ok) {
            ok = step(s, n, pass, seconds, err);
            close_seqs(s, n);
        }
    }
    rg_free(ids);
    return ok;
}

bool speed_without_cache(speed *s, int n, int context, double *seconds, rg_error *err)
{
    *seconds = 0;
    for (int i = 0; i < n && !cli_interrupted(); i++) {
        double one;
        if (!speed_prefill(s, context + i + 1, 0, &one, err))
            return false;
        *seconds += one;
    }
    return true;
}
