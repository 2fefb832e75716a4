/* eval.c -- `ridge eval`: how well a model predicts a text: nats per token, perplexity, bits per byte.
 *
 * Non-overlapping windows of --ctx ids, BOS first if the tokenizer adds one, every position after the first scored, an
 * incomplete last window left out.  With --stride, windows overlap and only the new ids of each are scored.
 * --kl: how far each distribution is from that of exact arithmetic; --exact-part then tells where it comes from.
 * --activations: mean |x| of the inputs of matrices, for quantizers that weight channels by it. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/eval_tasks.h"
#include "cli/perplexity.h"
#include "ops/watch/watch.h"

extern const cli_command cli_eval;

typedef struct job {
    cli_args args;
    const char *file, *kv_type, *activations, *sparsity;
    const char *exact_part; /* parts of names of weights, separated by commas; NULL: none */
    bool kl;
    eval_tasks tasks;
    float attention_sparsity;
    int32_t ctx, stride;
    bool ctx_given;
    uint64_t first_bytes;
    tool tool, exact;        /* exact: of --kl */
    rg_act_stats *stats; /* NULL: not asked for */
    rg_reader in_part;   /* of --exact-part */
    rg_ids text;
    perplexity score;
} job;

/* ---- activations, and products that are exact ---- */

/* True if one of the parts is in the weight's name. */
static bool names(const char *parts, const rg_weight *w)
{
    char part[128];

    for (const char *at = parts, *end; w && *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)(end - at), at);
        if (*part && strstr(w->name, part))
            return true;
    }
    return false;
}

static void run_in_part(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    const job *j = (const job *)(const void *)((const char *)self - offsetof(job, in_part));
    const bool was = f->exact;

    for (int i = 0; i < 3; i++)
        f->exact = f->exact || names(j->exact_part, op->w[i]);
    self->inner->run(self->inner, f, op);
    f->exact = was;
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    job *j = arg;

    if (j->exact_part) {
        j->in_part = (rg_reader){ .run = run_in_part, .inner = inner };
        inner = &j->in_part;
    }
    return j->stats ? rg_act_stats_wrap(j->stats, inner) : inner;
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
    double per_token = j->score.nll / (double)j->score.n_scored;
    double bits_per_byte = per_token * (double)j->text.n / (double)bytes / log(2);

    const double n = (double)j->score.n_scored;
    const perplexity_distance sum = j->score.distance, d = { sum.kl / n, sum.tops / n, sum.other_best / n };

    if (!j->args.common.json) {
        printf("%.6f nats per token, perplexity %.4f, %.4f bits per byte, over %llu tokens of %zu bytes\n", per_token,
               exp(per_token), bits_per_byte, (unsigned long long)j->score.n_scored, bytes);
        if (j->kl)
            printf("from exact arithmetic: KL %.6f nats, the %d likeliest ids' log-probabilities %.4f off, another "
                   "best id at %.2f %% of positions\n", d.kl, PERPLEXITY_TOPS, d.tops, 100 * d.other_best);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_float(out, "nll", per_token);
    cli_json_float(out, "ppl", exp(per_token));
    cli_json_float(out, "bits_per_byte", bits_per_byte);
    cli_json_u64(out, "tokens", j->score.n_scored);
    cli_json_u64(out, "bytes", bytes);
    if (j->kl) {
        cli_json_float(out, "kl", d.kl);
        cli_json_float(out, "top_logprobs_off", d.tops);
        cli_json_float(out, "other_best", d.other_best);
    }
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "eval: standard output cannot be written");
}

static bool work(job *j, rg_error *err)
{
    tool_options o = { .common = &j->args.common, .model = j->args.n_positional ? j->args.positional[0] : NULL,
                       .kv_type = j->kv_type ? j->kv_type : "f32", .sparsity = j->sparsity,
                       .attention_sparsity = j->attention_sparsity,
                       .max_rows = 512, .max_seqs = 1,
                       .max_seq_len = j->ctx,
                       .all_logits = true, .wrap = j->activations || j->exact_part ? wrap : NULL, .wrap_arg = j };
    size_t n;

    if (j->stride > j->ctx - 1)
        return rg_fail(err, RG_E_USAGE, "eval: a stride of %d is not shorter than the context of %d", j->stride,
                       j->ctx);
    j->stats = j->activations ? rg_act_stats_new(err) : NULL;
    if ((j->activations && !j->stats) || !tool_open(&j->tool, &o, err) ||
        (j->kl && !tool_open_exact(&j->exact, &j->tool, &o, err)))
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
    bool ok = rg_tokenizer_encode(j->tool.tokenizer, text, n, RG_ENCODE_NO_SPECIAL, &j->text, err);
    rg_free(text);
    j->score = (perplexity){ .tool = &j->tool, .text = j->text.id, .n_text = j->text.n, .file = j->file, .ctx = j->ctx,
                          .reference = j->kl ? &j->exact : NULL, .stride = j->stride, .quiet = j->args.common.quiet };
    return ok && perplexity_run(&j->score, err) && (!j->activations || write_activations(j, err)) && report(j, n, err);
}

static int run(int argc, char **argv)
{
    static job j = { .ctx = 512 };
    const cli_option options[] = {
        { "--perplexity", CLI_STRING, &j.file, "FILE", "the text to score" },
        { "--tasks", CLI_STRING, &j.tasks.file, "FILE",
          "questions with right answers, a line of JSON each (scripts/lm-eval-tasks makes them of lm-eval's tasks)" },
        { "--no-special", CLI_FLAG, &j.tasks.no_special, NULL, "of --tasks: without the tokenizer's own BOS" },
        { "--ctx", CLI_INT, &j.ctx, "N", "ids of a window (default 512); of --tasks the context", 2, INT32_MAX,
          &j.ctx_given },
        { "--stride", CLI_INT, &j.stride, "N", "overlapping windows that advance by N ids", 1, INT32_MAX },
        { "--first-bytes", CLI_U64, &j.first_bytes, "N", "only the first N bytes of the text" },
        { "--activations", CLI_STRING, &j.activations, "FILE",
          "write mean |x| of each input channel of every matrix as safetensors" },
        { "--kl", CLI_FLAG, &j.kl, NULL,
          "and how far each distribution is from that of exact arithmetic (with --recipe fast; computes both)" },
        { "--exact-part", CLI_STRING, &j.exact_part, "NAME,...",
          "products with weights that have one of these in their names are exact: where --kl comes from" },
        CLI_KV_TYPE_OPTION(j.kv_type, "f32"),
        CLI_SPARSITY_OPTION(j.sparsity),
        CLI_ATTENTION_SPARSITY_OPTION(j.attention_sparsity),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_eval, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.file == !j.tasks.file)
        return cli_usage("eval: one of --perplexity FILE and --tasks FILE is needed; see `ridge eval --help`");
    cli_catch_interrupt();
    j.tasks.args = &j.args;
    j.tasks.engine.kv_type = j.kv_type;
    j.tasks.engine.sparsity = j.sparsity;
    j.tasks.engine.attention_sparsity = j.attention_sparsity;
    j.tasks.engine.ctx = j.ctx_given ? j.ctx : 0;
    bool ok = j.tasks.file ? eval_tasks_run(&j.tasks, &err) : work(&j, &err);
    rg_ids_fini(&j.text);
    tool_close(&j.exact);
    tool_close(&j.tool);
    rg_act_stats_free(j.stats);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_eval = {
    .name = "eval", .arguments = "MODEL --perplexity FILE|--tasks FILE",
    .summary = "perplexity of a text, or answers to questions", .run = run,
    .n_positional = 1, .recipe = "exact",
};
