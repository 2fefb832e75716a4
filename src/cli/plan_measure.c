/* plan_measure.c -- `ridge plan --measure`: the model is run at the points that were predicted.  All points are run one
 * after the other, in several rounds, so that a disturbance spoils only one round; the median counts. */
#include <string.h>

#include "base/mem.h"
#include "base/quantile.h"
#include "cli/plan.h"

enum { LEAST_STEPS = 5, MOST_STEPS = 64 };

/* Seconds of decoding at one point in one round, about. */
static const double DECODE_S = 0.3;

bool plan_check_measure(const plan_job *j, rg_error *err)
{
    bool here = false;

    for (int i = 0; i < j->n_machines; i++)
        here |= !strcmp(j->machine[i].name, "here");
    if (!here || j->chips > 1 || j->subject.method != RG_PLAN_COUNTED)
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs the model here: it needs --machine here, a single chip "
                                        "and the method counted");
    if (j->dtype && rg_checkpoint_n_tensors(j->ckpt))
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs the weights as they are: leave --dtype out");
    if (cli_ints_most(&j->batch, 1) > SPEED_ROWS)
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs batches of up to %d", SPEED_ROWS);
    if (cli_ints_most(&j->seq, 1) > j->model->config.max_seq_len)
        return rg_fail(err, RG_E_USAGE, "plan: --measure of %d positions: the model has %d", cli_ints_most(&j->seq, 1),
                       j->model->config.max_seq_len);
    return true;
}

/* Some steps; the last one is at the position that was predicted. */
static bool measure_decode(plan_job *j, const rg_plan_row *r, double *step_s, rg_error *err)
{
    if (rg_plan_fills(j->model)) {
        const rg_step_shape shape = rg_plan_step(&j->subject, r->batch, r->seq);
        if (!speed_takes(&j->speed, &shape))
            return true; /* more logits than are kept at once */
        return speed_evaluate(&j->speed, &shape, step_s, err);
    }
    double all, steps = DECODE_S / r->latency_s;
    int n = steps < LEAST_STEPS ? LEAST_STEPS : steps > MOST_STEPS ? MOST_STEPS : (int)steps;
    int context = (int)r->seq - 1 - n;

    return speed_decode(&j->speed, (int)r->batch, context > 0 ? context : 0, n, &all, step_s, err);
}

/* The mean over rounds of what the operations of the first row took. */
static void keep_ops(plan_job *j, bool prefill, int round)
{
    for (int i = 0; j->timer && i < j->ops.n; i++) {
        rg_plan_op *o = &j->ops.op[i];
        if (o->prefill == prefill)
            o->measured_s += (rg_timer_seconds(j->timer, o->kind, o->name) - o->measured_s) / (round + 1);
    }
    if (j->timer)
        rg_timer_reset(j->timer);
}

static bool is_here(const rg_plan_row *r)
{
    return !strcmp(r->machine->name, "here");
}

/* Rows that fit; a prompt once for each length, with its first batch.  tries: [row][decode, prefill][round]. */
static bool measure_round(plan_job *j, int round, double *tries, rg_error *err)
{
    void *quiet = j->args.common.quiet || j->args.common.json ? j : NULL;

    for (int i = 0; i < j->n_rows && !cli_interrupted(); i++) {
        const rg_plan_row *r = &j->rows[i];
        double *decode = tries + 2 * i * j->rounds + round, *prefill = decode + j->rounds;
        bool first = !i || r[-1].seq != r->seq || r[-1].machine != r->machine;

        cli_progress(quiet, "measuring the model", ((double)i / j->n_rows + round) / j->rounds);
        if (!is_here(r) || !r->fits)
            continue;
        if (!measure_decode(j, r, decode, err))
            return false;
        if (!i)
            keep_ops(j, false, round);
        if (first && !rg_plan_fills(j->model) && !speed_prefill(&j->speed, (int)r->seq, 0, prefill, err))
            return false;
        if (!i)
            keep_ops(j, true, round);
    }
    return true;
}

/* The median of the rounds that were measured (after an interrupt not all are); 0: none was. */
static double median(double *tries, int n)
{
    int kept = 0;

    for (int i = 0; i < n; i++)
        if (tries[i] > 0)
            tries[kept++] = tries[i];
    return kept ? rg_quantile(tries, kept, 0.5) : 0;
}

static bool measure_rounds(plan_job *j, double *tries, rg_error *err)
{
    for (int round = 0; round < j->rounds && !cli_interrupted(); round++)
        if (!measure_round(j, round, tries, err))
            return false;
    for (int i = 0; i < j->n_rows; i++) {
        j->measured[i].decode_s = median(tries + 2 * i * j->rounds, j->rounds);
        j->measured[i].prefill_s = median(tries + (2 * i + 1) * j->rounds, j->rounds);
    }
    return true;
}

static const rg_reader *time_ops(void *arg, const rg_reader *inner)
{
    const plan_job *j = arg;

    return rg_timer_wrap(j->timer, inner);
}

bool plan_measure(plan_job *j, rg_error *err)
{
    tool_options o = { .common = &j->args.common, .model = j->args.n_positional ? j->args.positional[0] : NULL,
                       .kv_type = j->kv_type, .max_rows = SPEED_ROWS,
                       .random = !rg_checkpoint_n_tensors(j->ckpt), .declared_type = j->weight_type,
                       .max_seq_len = cli_ints_most(&j->seq, 1) + MOST_STEPS + 1 };

    for (int i = 0; i < j->n_rows; i++) {
        if (!is_here(&j->rows[i]) || !j->rows[i].fits)
            continue;
        const rg_step_shape shape = rg_plan_step(&j->subject, j->rows[i].batch, j->rows[i].seq);
        o.max_seqs = o.max_seqs > shape.n_seqs ? o.max_seqs : shape.n_seqs;
        o.filled_rows = o.filled_rows > shape.n_seqs * shape.n_rows ? o.filled_rows : shape.n_seqs * shape.n_rows;
    }
    if (o.max_seqs < 1)
        return rg_fail(err, RG_E_LIMIT, "plan: --measure: no batch fits into this machine's memory");
    if (j->show_ops) { /* timing operations takes a hundredth of a small model's step */
        j->timer = rg_timer_new(j->profile.roofs.n_threads, err);
        if (!j->timer)
            return false;
        o.wrap = time_ops;
        o.wrap_arg = j;
    }
    if (!tool_open(&j->tool, &o, err) || !speed_init(&j->speed, &j->tool, err))
        return false;
    j->speed.timer = j->timer;
    size_t n = 2 * (size_t)j->n_rows * (size_t)j->rounds;
    double *tries = rg_array(n, sizeof *tries);
    bool ok = tries ? measure_rounds(j, tries, err) : rg_fail_memory(err, n * sizeof *tries);
    rg_free(tries);
    cli_progress(j->args.common.quiet || j->args.common.json ? j : NULL, "measuring the model", 1);
    return ok;
}
