/* scoring.c -- see scoring.h. */
#include "cli/scoring.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* The window that is being scored. */
typedef struct window {
    scoring *s;
    const int32_t *ids;
    size_t at;         /* where it begins in the text, whose ids follow a BOS if the tokenizer adds one */
    int done, n, skip; /* rows before `skip` are context only */
    double *row_nll;   /* of the rows of one step */
    uint64_t n_before; /* rows of the windows before it */
} window;

/* -log p of the id that follows; in double, so that the sum does not depend on how it was cut. */
static void score(void *arg, int i, float *logits)
{
    window *w = arg;
    int vocab = w->s->tool->runner->vocab_size, next = w->done + i + 1;
    double max = -INFINITY, sum = 0;

    if (w->s->row)
        w->s->row(w->s->row_arg, w->n_before + (uint64_t)(w->done + i), logits, vocab);
    w->row_nll[i] = 0;
    if (next >= w->n || next < w->skip)
        return;
    for (int k = 0; k < vocab; k++)
        max = (double)logits[k] > max ? (double)logits[k] : max;
    for (int k = 0; k < vocab; k++)
        sum += exp((double)logits[k] - max);
    w->row_nll[i] = max + log(sum) - (double)logits[w->ids[next]];
}

static bool score_window(window *w, rg_error *err)
{
    scoring *s = w->s;
    rg_seq *q = rg_seq_new(s->tool->states, w->n, 0, err);

    if (!q)
        return false;
    q->rope = rg_config_rope(&s->tool->model->config, w->n);
    for (w->done = 0; w->done < w->n;) {
        int m = w->n - w->done < s->tool->max_rows ? w->n - w->done : s->tool->max_rows;
        tool_span span = { .seq = q, .ids = w->ids + w->done, .n = m, .all_logits = true };
        if (!tool_step(s->tool, &span, 1, score, w, err)) {
            rg_seq_free(s->tool->states, q);
            return rg_fail_prefix(err, "the window from id %zu of %s", w->at, s->file ? s->file : "the text");
        }
        for (int i = 0; i < m; i++)
            s->nll += w->row_nll[i];
        w->done += m;
    }
    s->n_scored += (uint64_t)(w->n - (w->skip > 1 ? w->skip : 1));
    rg_seq_free(s->tool->states, q);
    return true;
}

bool scoring_run(scoring *s, rg_error *err)
{
    bool bos = rg_tokenizer_adds_bos(s->tool->tokenizer);
    int body = s->ctx - (bos ? 1 : 0), step = s->stride ? s->stride : body;
    int32_t *ids = rg_array((size_t)s->ctx, sizeof *ids);
    window w = { .s = s, .ids = ids, .n = s->ctx, .row_nll = rg_array((size_t)s->tool->max_rows, sizeof *w.row_nll) };
    bool ok = (ids && w.row_nll) || rg_fail_memory(err, (size_t)s->ctx * sizeof *ids);

    s->nll = 0;
    s->n_scored = 0;
    for (size_t at = 0; ok && at + (size_t)body <= s->n_text; at += (size_t)step) {
        cli_progress(s->quiet ? s : NULL, "scoring", (double)at / (double)s->n_text);
        if (cli_interrupted())
            break;
        if (bos)
            ids[0] = rg_tokenizer_bos(s->tool->tokenizer);
        memcpy(ids + bos, s->text + at, (size_t)body * sizeof *ids);
        w.at = at;
        w.skip = at && s->stride ? s->ctx - step : 1;
        ok = score_window(&w, err);
        w.n_before += (uint64_t)w.n;
    }
    cli_progress(s->quiet ? s : NULL, "scoring", 1);
    rg_free(ids);
    rg_free(w.row_nll);
    if (ok && !s->n_scored)
        return rg_fail(err, RG_E_INPUT, "%s: %zu ids are fewer than one window of %d", s->file, s->n_text, body);
    return ok;
}

bool scoring_of(const char *path, const cli_common *common, scoring *s, double *ppl, rg_error *err)
{
    tool t = { 0 };
    const tool_options o = { .common = common,
                             .model = path,
                             .kv_type = s->kv_type ? s->kv_type : "f32",
                             .max_rows = 512,
                             .max_seqs = 1,
                             .max_seq_len = s->ctx,
                             .all_logits = true };
    bool ok = tool_open(&t, &o, err);

    if (ok && !t.tokenizer)
        ok = rg_fail(err, RG_E_UNSUPPORTED, "%s: the checkpoint has no tokenizer", path);
    s->tool = &t;
    ok = ok && (!s->change || s->change(s->change_arg, t.model, err));
    ok = ok && tool_reaches(&t, (size_t)s->ctx, err) && scoring_run(s, err);
    *ppl = ok ? exp(s->nll / (double)s->n_scored) : NAN;
    tool_close(&t);
    s->tool = NULL;
    return ok;
}
