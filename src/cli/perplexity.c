/* perplexity.c -- see perplexity.h. */
#include "cli/perplexity.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* The window that is being scored. */
typedef struct window {
    perplexity *s;
    const int32_t *ids;
    size_t at;         /* where it begins in the text, whose ids follow a BOS if the tokenizer adds one */
    int done, n, skip; /* rows before `skip` are context only */
    double *row_nll;   /* of the rows of one step */
    float *reference;  /* [max_rows][vocab] logits of the same step by the reference; NULL: there is none */
    perplexity_distance *distance; /* [max_rows] */
    uint64_t n_before; /* rows of the windows before it */
} window;

static double log_total(const float *logits, int n, int *best)
{
    double max = -INFINITY, sum = 0;

    for (int k = 0; k < n; k++)
        if ((double)logits[k] > max) {
            max = (double)logits[k];
            *best = k;
        }
    for (int k = 0; k < n; k++)
        sum += exp((double)logits[k] - max);
    return max + log(sum);
}

/* The distance of the distribution of `logits` from that of `from`; both n. */
static perplexity_distance distance_of(const float *from, const float *logits, int n)
{
    int best_p = 0, best_q = 0, top[PERPLEXITY_TOPS], n_top = 0;
    const double log_p = log_total(from, n, &best_p), log_q = log_total(logits, n, &best_q);
    perplexity_distance d = { 0 };

    d.other_best = best_p != best_q;
    for (int k = 0; k < n; k++) {
        const double p = (double)from[k] - log_p;
        int at;

        d.kl += exp(p) * (p - ((double)logits[k] - log_q));
        if (n_top == PERPLEXITY_TOPS && from[k] <= from[top[n_top - 1]])
            continue;
        at = n_top < PERPLEXITY_TOPS ? n_top++ : n_top - 1;
        for (; at > 0 && from[top[at - 1]] < from[k]; at--)
            top[at] = top[at - 1];
        top[at] = k;
    }
    for (int i = 0; i < n_top; i++)
        d.tops += fabs(((double)from[top[i]] - log_p) - ((double)logits[top[i]] - log_q)) / n_top;
    return d;
}

/* The reference's logits of a row are kept until the row itself comes. */
static void keep_reference(void *arg, int i, float *logits)
{
    window *w = arg;
    const size_t vocab = (size_t)w->s->tool->runner->vocab_size;

    memcpy(w->reference + (size_t)i * vocab, logits, vocab * sizeof *logits);
}

/* -log p of the id that follows; in double, so that the sum does not depend on how it was cut. */
static void score(void *arg, int i, float *logits)
{
    window *w = arg;
    int vocab = w->s->tool->runner->vocab_size, next = w->done + i + 1;
    int best;

    if (w->s->row)
        w->s->row(w->s->row_arg, w->n_before + (uint64_t)(w->done + i), logits, vocab);
    w->row_nll[i] = 0;
    w->distance[i] = (perplexity_distance){ 0 };
    if (next >= w->n || next < w->skip)
        return;
    w->row_nll[i] = log_total(logits, vocab, &best) - (double)logits[w->ids[next]];
    if (w->reference)
        w->distance[i] = distance_of(w->reference + (size_t)i * (size_t)vocab, logits, vocab);
}

/* The next m rows of a window, on one of the tools. */
static bool step(window *w, tool *t, rg_seq *q, int m, void (*row)(void *arg, int i, float *logits), rg_error *err)
{
    const tool_span span = { .seq = q, .ids = w->ids + w->done, .n = m, .all_logits = true };

    return tool_step(t, &span, 1, row, w, err) ||
           rg_fail_prefix(err, "the window from id %zu of %s", w->at, w->s->file ? w->s->file : "the text");
}

static void add_up(window *w, int m)
{
    perplexity *s = w->s;

    for (int i = 0; i < m; i++) {
        s->nll += w->row_nll[i];
        s->distance.kl += w->distance[i].kl;
        s->distance.tops += w->distance[i].tops;
        s->distance.other_best += w->distance[i].other_best;
    }
}

static bool score_window(window *w, rg_error *err)
{
    perplexity *s = w->s;
    tool *tools[2] = { s->tool, s->reference };
    rg_seq *q[2] = { NULL, NULL };
    bool ok = true;

    for (int k = 0; k < 2 && ok && tools[k]; k++) {
        q[k] = rg_seq_new(tools[k]->states, w->n, 0, err);
        ok = q[k];
        if (ok)
            q[k]->rope = rg_config_rope(&s->tool->model->config, w->n);
    }
    for (w->done = 0; ok && w->done < w->n;) {
        int m = w->n - w->done < s->tool->max_rows ? w->n - w->done : s->tool->max_rows;

        ok = (!s->reference || step(w, s->reference, q[1], m, keep_reference, err)) &&
             step(w, s->tool, q[0], m, score, err);
        if (ok)
            add_up(w, m);
        w->done += m;
    }
    if (ok)
        s->n_scored += (uint64_t)(w->n - (w->skip > 1 ? w->skip : 1));
    for (int k = 0; k < 2; k++)
        if (q[k])
            rg_seq_free(tools[k]->states, q[k]);
    return ok;
}

bool perplexity_run(perplexity *s, rg_error *err)
{
    bool bos = rg_tokenizer_adds_bos(s->tool->tokenizer);
    int body = s->ctx - (bos ? 1 : 0), step = s->stride ? s->stride : body;
    int32_t *ids = rg_array((size_t)s->ctx, sizeof *ids);
    const size_t rows = (size_t)s->tool->max_rows, vocab = (size_t)s->tool->runner->vocab_size;
    window w = { .s = s, .ids = ids, .n = s->ctx, .row_nll = rg_array(rows, sizeof *w.row_nll),
                 .distance = rg_array(rows, sizeof *w.distance),
                 /* fits: rows of a step, ids of a vocabulary */
                 .reference = s->reference ? rg_array(rows * vocab, sizeof *w.reference) : NULL };
    bool ok = (ids && w.row_nll && w.distance && (w.reference || !s->reference)) ||
              rg_fail_memory(err, rows * vocab * sizeof *w.reference);

    s->distance = (perplexity_distance){ 0 };
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
    rg_free(w.distance);
    rg_free(w.reference);
    if (ok && !s->n_scored)
        return rg_fail(err, RG_E_INPUT, "%s: %zu ids are fewer than one window of %d", s->file, s->n_text, body);
    return ok;
}

bool perplexity_of(const char *path, const cli_common *common, perplexity *s, double *ppl, rg_error *err)
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
    ok = ok && tool_reaches(&t, (size_t)s->ctx, err) && perplexity_run(s, err);
    *ppl = ok ? exp(s->nll / (double)s->n_scored) : NAN;
    tool_close(&t);
    s->tool = NULL;
    return ok;
}
