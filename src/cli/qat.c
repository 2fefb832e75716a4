/* qat.c -- see qat.h. */
#include "cli/qat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "train/init.h"

static const struct {
    const char *name;
    rg_grid_kind kind;
    int bits;
    bool gguf, both; /* both: stages block and end, if nobody says otherwise */
} schemes[] = {
    { "q4_0", RG_GRID_Q4_0, 4, true, false },   { "q8_0", RG_GRID_Q8_0, 8, true, false },
    { "int4", RG_GRID_INT, 4, false, false },   { "int8", RG_GRID_INT, 8, false, false },
    { "int3", RG_GRID_AFFINE, 3, false, true }, { "int2", RG_GRID_AFFINE, 2, false, true },
    { "lsq", RG_GRID_LSQ, 4, false, false },
};

static bool settle_stages(cli_qat *q, bool both, rg_error *err)
{
    const char *stages = q->stages ? q->stages : both ? "block,end" : "end";

    q->block = !strncmp(stages, "block", 5);
    q->end = !strcmp(stages, "end") || !strcmp(stages, "block,end");
    if (!q->end && strcmp(stages, "block"))
        return rg_fail(err, RG_E_USAGE, "shrink: --stages '%.20s' is not one of block, end, block,end", stages);
    if (q->block && q->end && !rg_grid_learns_scale(&q->grid))
        return rg_fail(err, RG_E_USAGE,
                       "shrink: stage end behind stage block trains scales alone, and those of %s follow from the "
                       "weights: take --stages end, or block",
                       q->scheme);
    return true;
}

bool cli_qat_settle(cli_qat *q, rg_error *err)
{
    size_t i = 0;

    if (!q->scheme)
        return rg_fail(err, RG_E_USAGE, "shrink: qat needs --scheme: q4_0, q8_0, int4, int8, int3, int2 or lsq");
    while (i < RG_LEN(schemes) && strcmp(q->scheme, schemes[i].name))
        i++;
    if (i == RG_LEN(schemes))
        return rg_fail(err, RG_E_USAGE,
                       "shrink: --scheme '%.20s' is not one of q4_0, q8_0, int4, int8, int3, int2, lsq", q->scheme);
    q->gguf = schemes[i].gguf;
    q->rate = schemes[i].bits > 4 ? 1e-5 : 3e-4;
    q->grid = (rg_grid){ schemes[i].kind, schemes[i].bits, q->g_group && q->group ? q->group : 32, false };
    if (q->gguf && q->grid.group != 32)
        return rg_fail(err, RG_E_USAGE, "shrink: blocks of %s have 32 columns, not %d", q->scheme, q->group);
    q->coding = (rg_coding){
        .kind = RG_CODE_INT, .bits = q->grid.bits, .sym = q->grid.kind != RG_GRID_AFFINE, .group = q->grid.group
    };
    return settle_stages(q, schemes[i].both, err);
}

/* ---- codes as other methods have them ---------------------------------------------------------------------------- */

/* Codes and scales of the matrix of this name. */
static bool fill(void *arg, const char *name, rg_coded *c)
{
    const rg_qat *q = arg;
    const int i = rg_qat_find(q, name);
    const rg_qat_matrix m = i >= 0 ? rg_qat_at(q, i) : (rg_qat_matrix){ 0 };

    if (!m.code || m.rows != c->rows || m.cols != c->cols || m.groups != c->n_groups)
        return false;
    memcpy(c->q, m.code, (size_t)(m.rows * m.cols));
    memcpy(c->scale, m.scale, (size_t)(m.rows * m.groups) * sizeof *c->scale);
    for (int64_t k = 0; c->zero && !c->sym && k < m.rows * m.groups; k++)
        c->zero[k] = rintf(m.zero[k]);
    return true;
}

static uint64_t number_of(const rg_qat *q)
{
    uint64_t h = 0;

    for (int i = 0; i < rg_qat_count(q); i++) {
        const rg_qat_matrix m = rg_qat_at(q, i);

        h = rg_hash(m.scale, (size_t)(m.rows * m.groups) * sizeof *m.scale, h);
        h = m.code ? rg_hash(m.code, (size_t)(m.rows * m.cols), h) : h;
    }
    return h;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

typedef struct qat_job {
    cli_qat *q;
    const cli_qat_run *run;
    cli_repair r;
    rg_qat *grid;
} qat_job;

static bool make_grid(qat_job *j, rg_error *err)
{
    const double rate = j->r.s.peak, scales = j->q->scale_lr > 0 ? (double)j->q->scale_lr : rate;

    rg_qat_free(j->grid);
    j->grid = rg_qat_new(j->r.masters, &j->q->grid, rate > 0 ? scales / rate : 1, !j->q->block, err);
    return j->grid && rg_masters_push(j->r.masters, err);
}

static bool write_out(const qat_job *j, rg_error *err)
{
    const rg_given_codes codes = { j->grid, number_of(j->grid), fill };
    const bool ok = cli_repair_write(&j->r, j->run->work, err) && j->run->write(j->run->arg, &codes, j->run->work, err);

    cli_heal_remove(j->run->work);
    return ok;
}

static void tell(void *arg, int layer, int step, double loss)
{
    const qat_job *j = arg;
    const int n = rg_masters_model(j->r.masters)->config.n_layers;
    char text[160];

    snprintf(text, sizeof text, "layer %d of %d, step %d of %d, error %.6f", layer + 1, n, step + 1, j->q->block_steps,
             loss);
    cli_progress(j->r.args->common.quiet ? arg : NULL, text, (layer + (double)step / j->q->block_steps) / n);
}

static bool train_blocks(qat_job *j, rg_error *err)
{
    char saved[1300];
    rg_train_settings s = j->r.s;
    const rg_texts texts = { .rows = j->run->n_samples, .length = j->run->ctx, .ids = j->run->ids };

    s.clip = 0;
    if (snprintf(saved, sizeof saved, "%s.layers.safetensors", j->run->work) >= (int)sizeof saved)
        return rg_fail(err, RG_E_USAGE, "%s: the path is too long", j->run->work);
    return rg_qat_train_blocks(j->grid, j->r.masters,
                               &(rg_qat_blocks){ .backend = j->r.backend,
                                                 .pool = j->r.pool,
                                                 .n_threads = j->r.n_threads,
                                                 .texts = &texts,
                                                 .rows = s.rows,
                                                 .steps = j->q->block_steps,
                                                 .rate = s.peak,
                                                 .floor = s.floor,
                                                 .settings = &s,
                                                 .told = tell,
                                                 .told_arg = j,
                                                 .stop = cli_interrupted,
                                                 .saved = saved,
                                                 .save = j->run->h->save ? j->run->h->save : CLI_TRAINING_SAVE,
                                                 .resume = j->run->h->resume },
                               err);
}

/* Weights behind the grid, as the checkpoint has them. */
static bool begin_again(qat_job *j, rg_error *err)
{
    return rg_masters_init_from(j->r.masters, j->r.ckpt, err) && make_grid(j, err);
}

static bool train(qat_job *j, rg_error *err)
{
    if (!begin_again(j, err) || (j->q->block && !train_blocks(j, err)))
        return false;
    if (!j->q->end)
        return rg_masters_push(j->r.masters, err);
    const rg_stand_in stand_in = rg_qat_stand_in(j->grid);

    return rg_masters_push(j->r.masters, err) && cli_repair_train(&j->r, &stand_in, "training", j->run->work, err) &&
           rg_qat_fix_codes(j->grid, err);
}

bool cli_qat_train(cli_qat *q, const cli_qat_run *run, rg_error *err)
{
    qat_job j = { .q = q, .run = run, .r = { .args = run->args, .h = run->h } };
    const uint64_t began = rg_now_ns();
    bool ok = cli_repair_open(&j.r, run->path, err) && cli_repair_teacher(&j.r, run->path, err) && make_grid(&j, err);

    ok = ok && rg_qat_fix_codes(j.grid, err) && write_out(&j, err) && train(&j, err) && write_out(&j, err);
    rg_qat_free(j.grid);
    cli_repair_close(&j.r);
    run->h->seconds = rg_seconds(began, rg_now_ns());
    return ok;
}
