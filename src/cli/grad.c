/* grad.c -- `ridge grad`: the loss of a batch, and its gradient by every weight, to compare with other programs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "train/batches.h"
#include "train/passes.h"

extern const cli_command cli_grad;

typedef struct job {
    cli_args args;
    const char *out;
    const rg_backend *backend;
    rg_checkpoint *ckpt;
    rg_masters *masters;
    rg_pool *pool;
    rg_passes *passes;
    rg_exact_batches batches;
    rg_texts texts;
    double *nll, loss;
    float *hidden; /* [n_layers + 1][positions][dim]: gradients of what enters each layer, and the head */
    int n_layers, dim;
} job;

static void see(void *arg, int layer, int64_t first, const rg_mat *grad)
{
    job *j = arg;
    const size_t dim = (size_t)j->dim, all = (size_t)j->texts.rows * (size_t)j->texts.length;
    float *to = j->hidden + ((size_t)(layer < 0 ? j->n_layers : layer) * all + (size_t)first) * dim;

    for (int r = 0; r < grad->rows && grad->cols == j->dim; r++)
        memcpy(to + (size_t)r * dim, grad->at + (size_t)r * grad->ld, dim * sizeof *to);
}

static bool open_all(job *j, rg_error *err)
{
    const int n_threads = j->args.common.threads ? j->args.common.threads : rg_cores();
    char path[1024];

    j->backend = rg_backend_find(j->args.common.isa, err);
    if (!j->backend || !cli_find_model(j->args.positional[0], path, sizeof path, err) ||
        !rg_exact_batches_read(&j->batches, j->args.positional[1], err))
        return false;
    j->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    j->masters = j->ckpt ? rg_masters_open(j->ckpt, j->backend, err) : NULL;
    j->pool = j->masters ? rg_pool_new(n_threads, err) : NULL;
    if (!j->pool)
        return false;
    j->passes =
        rg_passes_new(j->masters, j->backend, &(rg_passes_options){ .n_threads = n_threads, .pool = j->pool }, err);
    return j->passes;
}

/* All batches of the file as rows of one. */
static bool take_texts(job *j, rg_error *err)
{
    const rg_config *c = &rg_masters_model(j->masters)->config;
    const int64_t rows = j->batches.steps * j->batches.micro * j->batches.rows, n = rows * j->batches.length;

    if (rows > INT32_MAX)
        return rg_fail(err, RG_E_LIMIT, "grad: %lld rows are too many", (long long)rows);
    j->texts = (rg_texts){ .rows = (int)rows,
                           .length = (int)j->batches.length,
                           .ids = j->batches.ids,
                           .document = j->batches.document,
                           .targets = j->batches.targets };
    if (!j->batches.targets) {
        j->batches.targets = rg_array((size_t)n, sizeof *j->batches.targets);
        if (!j->batches.targets)
            return rg_fail_memory(err, (size_t)n * sizeof *j->batches.targets);
        rg_texts_targets(&j->texts, j->batches.targets);
        j->texts.targets = j->batches.targets;
    }
    for (int64_t i = 0; i < n; i++)
        if (j->texts.targets[i] != RG_NO_TARGET && (j->texts.targets[i] < 0 || j->texts.targets[i] >= c->vocab_size))
            return rg_fail(err, RG_E_INPUT, "grad: target %d is not in the vocabulary of %d, and not %d",
                           j->texts.targets[i], c->vocab_size, RG_NO_TARGET);
    j->n_layers = c->n_layers;
    /* fits: a config's layers and dimensions are limited */
    const size_t per_position = (size_t)(c->n_layers + 1) * (size_t)c->dim * sizeof *j->hidden;
    j->dim = c->dim;
    j->nll = rg_array((size_t)n, sizeof *j->nll);
    j->hidden = rg_array((size_t)n, per_position);
    return (j->nll && j->hidden) || rg_fail_memory(err, (size_t)n * (size_t)c->dim * sizeof *j->hidden);
}

static bool compute(job *j, rg_error *err)
{
    const int64_t n = rg_texts_count(&j->texts);
    const rg_cross_entropy c = { .targets = j->texts.targets, .scale = n ? 1 / (double)n : 0 };
    const rg_loss loss = rg_cross_entropy_of(&c);
    double sum;

    rg_masters_clear(j->masters);
    if (!rg_passes_compute(
            j->passes, &(rg_passes_run){ .texts = &j->texts, .loss = &loss, .nll = j->nll, .see = see, .see_arg = j },
            &sum, err))
        return false;
    j->loss = sum * c.scale;
    return rg_masters_pull(j->masters, err);
}

static bool write_out(const job *j, rg_error *err)
{
    const int64_t one[] = { 1 }, n[] = { j->texts.rows, j->texts.length };
    const int64_t rows[] = { j->texts.rows, j->texts.length, j->dim };
    const size_t all = (size_t)(n[0] * n[1]);
    rg_ckpt_writer *w = rg_safetensors_create(j->out, err);
    char name[640];
    bool ok = w && rg_ckpt_declare(w, "loss", RG_F64, 1, one, err) && rg_ckpt_declare(w, "nll", RG_F64, 2, n, err);

    for (int i = 0; ok && i <= j->n_layers; i++) {
        snprintf(name, sizeof name, "dhidden.%d", i);
        ok = rg_ckpt_declare(w, name, RG_F32, 3, rows, err);
    }
    for (int i = 0; ok && i < rg_masters_count(j->masters); i++) {
        const rg_master *m = rg_masters_at(j->masters, i);

        snprintf(name, sizeof name, "grad.%s", m->name);
        ok = rg_ckpt_declare(w, name, RG_F32, m->n_dims, m->shape, err);
    }
    ok = ok && rg_ckpt_write(w, &j->loss, sizeof j->loss, err) && rg_ckpt_write(w, j->nll, all * sizeof *j->nll, err);
    for (size_t i = 0; ok && i <= (size_t)j->n_layers; i++)
        ok = rg_ckpt_write(w, j->hidden + i * all * (size_t)j->dim, all * (size_t)j->dim * sizeof *j->hidden, err);
    for (int i = 0; ok && i < rg_masters_count(j->masters); i++) {
        const rg_master *m = rg_masters_at(j->masters, i);

        ok = rg_ckpt_write(w, m->g, m->n * sizeof *m->g, err);
    }
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}

static bool report(const job *j, rg_error *err)
{
    double squares = 0;

    for (int i = 0; i < rg_masters_count(j->masters); i++) {
        const rg_master *m = rg_masters_at(j->masters, i);
        for (size_t k = 0; k < m->n; k++)
            squares += (double)m->g[k] * (double)m->g[k];
    }
    if (!j->args.common.json) {
        printf("loss %.9g over %lld targets, norm of the gradient %.9g\n", j->loss,
               (long long)rg_texts_count(&j->texts), __builtin_sqrt(squares));
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_float(out, "loss", j->loss);
    cli_json_float(out, "grad_norm", __builtin_sqrt(squares));
    cli_json_int(out, "targets", rg_texts_count(&j->texts));
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "grad: standard output cannot be written");
}

static int run(int argc, char **argv)
{
    static job j;
    const cli_option options[] = {
        { "-o", CLI_STRING, &j.out, "FILE", "write loss, nll, grad.NAME and dhidden.N as safetensors" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_grad, options, argc, argv);
    if (status >= 0)
        return status;
    if (j.args.n_positional < 2)
        return cli_usage("grad: MODEL and BATCH are needed; see `ridge grad --help`");
    bool ok = open_all(&j, &err) && take_texts(&j, &err) && compute(&j, &err) && (!j.out || write_out(&j, &err)) &&
              report(&j, &err);
    rg_passes_free(j.passes);
    rg_pool_free(j.pool);
    rg_masters_close(j.masters);
    rg_checkpoint_close(j.ckpt);
    rg_exact_batches_fini(&j.batches);
    rg_free(j.nll);
    rg_free(j.hidden);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_grad = {
    .name = "grad",
    .arguments = "MODEL BATCH.safetensors -o FILE",
    .summary = "the loss of a batch and its gradients, to a safetensors file",
    .notes = "BATCH holds input_ids [rows, n]; document [rows, n], where neighbours with the same number are one text\n"
             "(without it a row is one); targets [rows, n], -100 where nothing is predicted (without it the next id).",
    .run = run,
    .n_positional = 2,
    .recipe = "exact",
};
