/* eval.c -- `ridge eval`: how well a model predicts a text: nats per token, perplexity, bits per byte.
 *
 * Non-overlapping windows of --ctx ids, BOS first if the tokenizer adds one, every position after the first scored, an
 * incomplete last window left out.  With --stride, windows overlap and only the new ids of each are scored.
 * --activations: mean |x| of the inputs of matrices, for quantizers that weight channels by it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/tool.h"
#include "ops/watch/watch.h"

extern const cli_command cli_eval;

typedef struct job {
    cli_args args;
    const char *file, *kv_type, *activations;
    int32_t ctx, stride;
    uint64_t first_bytes;
    tool tool;
    rg_act_stats *stats; /* NULL: not asked for */
    rg_ids text;
    /* Of the window being scored: */
    const int32_t *ids;
    int done, n, skip; /* rows before `skip` are context only */
    double *row_nll;   /* [n] of the rows of one step */
    double nll;
    uint64_t n_scored;
} job;

/* -log p of the id that follows; in double, so that the sum does not depend on how it was cut. */
static void score(void *arg, int i, float *logits)
{
    job *j = arg;
    int vocab = j->tool.runner->vocab_size, next = j->done + i + 1;
    double max = -INFINITY, sum = 0;

    j->row_nll[i] = 0;
    if (next >= j->n || next < j->skip)
        return;
    for (int k = 0; k < vocab; k++)
        max = (double)logits[k] > max ? (double)logits[k] : max;
    for (int k = 0; k < vocab; k++)
        sum += exp((double)logits[k] - max);
    j->row_nll[i] = max + log(sum) - (double)logits[j->ids[next]];
}

static bool window(job *j, const int32_t *ids, int n, int skip, rg_error *err)
{
    rg_seq *q = rg_seq_new(j->tool.states, n, 0, err);

    if (!q)
        return false;
    q->rope = rg_config_rope(&j->tool.model->config, n);
    j->ids = ids;
    j->n = n;
    j->skip = skip;
    for (j->done = 0; j->done < n;) {
        int m = n - j->done < j->tool.max_rows ? n - j->done : j->tool.max_rows;
        tool_span span = { .seq = q, .ids = ids + j->done, .n = m, .all_logits = true };
        if (!tool_step(&j->tool, &span, 1, score, j, err)) {
            rg_seq_free(j->tool.states, q);
            return false;
        }
        for (int i = 0; i < m; i++)
            j->nll += j->row_nll[i];
        j->done += m;
    }
    j->n_scored += (uint64_t)(n - (skip > 1 ? skip : 1));
    rg_seq_free(j->tool.states, q);
    return true;
}

/* Windows hold the BOS, if there is one, and ctx - 1 ids of the text, or ctx of them. */
static bool windows(job *j, rg_error *err)
{
    bool bos = rg_tokenizer_adds_bos(j->tool.tokenizer);
    int body = j->ctx - (bos ? 1 : 0), step = j->stride ? j->stride : body;
    int32_t *ids = rg_array((size_t)j->ctx, sizeof *ids);
    bool ok = ids || rg_fail_memory(err, (size_t)j->ctx * sizeof *ids);

    for (size_t at = 0; ok && at + (size_t)body <= j->text.n; at += (size_t)step) {
        cli_progress(j->args.common.quiet ? j : NULL, "scoring", (double)at / (double)j->text.n);
        if (cli_interrupted())
            break;
        if (bos)
            ids[0] = rg_tokenizer_bos(j->tool.tokenizer);
        for (int i = 0; i < body; i++)
            ids[i + bos] = j->text.id[at + (size_t)i];
        ok = window(j, ids, j->ctx, at && j->stride ? j->ctx - step : 1, err);
    }
    cli_progress(j->args.common.quiet ? j : NULL, "scoring", 1);
    rg_free(ids);
    if (ok && !j->n_scored)
        return rg_fail(err, RG_E_INPUT, "%s: %zu ids are fewer than one window of %d", j->file, j->text.n, body);
    return ok;
}

/* ---- activations ---- */

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_act_stats_wrap(arg, inner);
}

static bool write_means(rg_ckpt_writer *w, const rg_act_stat *s, rg_error *err)
{
    size_t n = (size_t)s->n_channels;
    float *mean = rg_array(n, sizeof *mean);
    bool ok = mean || rg_fail_memory(err, n * sizeof *mean);

    for (int m = 0; ok && m < s->n_mats; m++) {
        double rows = s->n_rows[m] ? (double)s->n_rows[m] : 1; /* an expert that no row was routed to: zeros */
        for (size_t k = 0; k < n; k++)
            mean[k] = (float)(s->sum[(size_t)m * n + k] / rows);
        ok = rg_ckpt_write(w, mean, n * sizeof *mean, err);
    }
    rg_free(mean);
    return ok;
}

/* The second matrix made from one tensor (latent attention's kv_b) has ".2" behind its name. */
static void name_of(const rg_act_stats *all, int i, char out[160])
{
    const char *name = rg_act_stats_at(all, i).name;
    int turn = 1;

    for (int k = 0; k < i; k++)
        turn += !strcmp(rg_act_stats_at(all, k).name, name);
    if (turn > 1)
        snprintf(out, 160, "%s.%d", name, turn);
    else
        snprintf(out, 160, "%s", name);
}

/* Mean |x| of every channel that a matrix reads, by the matrix's name: [columns], or of stacked ones [matrices,
 * columns]. */
static bool write_activations(const job *j, rg_error *err)
{
    if (!rg_act_stats_complete(j->stats))
        return rg_fail_memory(err, 0);
    rg_ckpt_writer *w = rg_safetensors_create(j->activations, err);
    bool ok = w;

    for (int i = 0; ok && i < rg_act_stats_count(j->stats); i++) {
        rg_act_stat s = rg_act_stats_at(j->stats, i);
        int64_t shape[2] = { s.n_mats, s.n_channels };
        bool stacked = s.n_mats > 1;
        char name[160];
        name_of(j->stats, i, name);
        ok = rg_ckpt_declare(w, name, RG_F32, stacked ? 2 : 1, stacked ? shape : shape + 1, err);
    }
    for (int i = 0; ok && i < rg_act_stats_count(j->stats); i++) {
        rg_act_stat s = rg_act_stats_at(j->stats, i);
        ok = write_means(w, &s, err);
    }
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}

/* ---- in and out ---- */

static bool report(const job *j, size_t bytes, rg_error *err)
{
    double per_token = j->nll / (double)j->n_scored;
    double bits_per_byte = per_token * (double)j->text.n / (double)bytes / log(2);

    if (!j->args.common.json) {
        printf("%.6f nats per token, perplexity %.4f, %.4f bits per byte, over %llu tokens of %zu bytes\n", per_token,
               exp(per_token), bits_per_byte, (unsigned long long)j->n_scored, bytes);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_float(out, "nll", per_token);
    cli_json_float(out, "ppl", exp(per_token));
    cli_json_float(out, "bits_per_byte", bits_per_byte);
    cli_json_u64(out, "tokens", j->n_scored);
    cli_json_u64(out, "bytes", bytes);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "eval: standard output cannot be written");
}

static bool work(job *j, rg_error *err)
{
    tool_options o = { .common = &j->args.common, .model = j->args.n_positional ? j->args.positional[0] : NULL,
                       .kv_type = j->kv_type ? j->kv_type : "f32", .max_rows = 512, .max_seqs = 1,
                       .max_seq_len = j->ctx,
                       .all_logits = true, .wrap = j->activations ? wrap : NULL };
    size_t n;

    if (j->stride > j->ctx - 1)
        return rg_fail(err, RG_E_USAGE, "eval: a stride of %d is not shorter than the context of %d", j->stride,
                       j->ctx);
    o.wrap_arg = j->stats = j->activations ? rg_act_stats_new(err) : NULL;
    if ((j->activations && !j->stats) || !tool_open(&j->tool, &o, err))
        return false;
    if (!tool_reaches(&j->tool, (size_t)j->ctx, err))
        return false;
    if (!j->tool.tokenizer)
        return rg_fail(err, RG_E_UNSUPPORTED, "eval: the checkpoint has no tokenizer");
    char *text = cli_text(NULL, j->file, &n, err);
    if (!text)
        return false;
    if (j->first_bytes && j->first_bytes < n)
        n = (size_t)j->first_bytes;
    j->row_nll = rg_array((size_t)j->tool.max_rows, sizeof *j->row_nll);
    bool ok = j->row_nll || rg_fail_memory(err, (size_t)j->tool.max_rows * sizeof *j->row_nll);
    ok = ok && rg_tokenizer_encode(j->tool.tokenizer, text, n, RG_ENCODE_NO_SPECIAL, &j->text, err);
    rg_free(text);
    return ok && windows(j, err) && (!j->activations || write_activations(j, err)) && report(j, n, err);
}

static int run(int argc, char **argv)
{
    static job j = { .ctx = 512 };
    const cli_option options[] = {
        { "--perplexity", CLI_STRING, &j.file, "FILE", "the text to score" },
        { "--ctx", CLI_INT, &j.ctx, "N", "ids of a window (default 512)", 2, INT32_MAX },
        { "--stride", CLI_INT, &j.stride, "N", "overlapping windows that advance by N ids", 1, INT32_MAX },
        { "--first-bytes", CLI_U64, &j.first_bytes, "N", "only the first N bytes of the text" },
        { "--activations", CLI_STRING, &j.activations, "FILE",
          "write mean |x| of each input channel of every matrix as safetensors" },
        CLI_KV_TYPE_OPTION(j.kv_type, "f32"),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_eval, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.file)
        return cli_usage("eval: --perplexity FILE is needed; see `ridge eval --help`");
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    rg_free(j.row_nll);
    rg_ids_fini(&j.text);
    tool_close(&j.tool);
    rg_act_stats_free(j.stats);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_eval = {
    .name = "eval", .arguments = "MODEL --perplexity FILE", .summary = "perplexity of a text", .run = run,
    .n_positional = 1, .recipe = "exact",
};
