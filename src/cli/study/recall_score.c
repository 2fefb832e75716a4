/* recall_score.c -- see recall_score.h. */
#include "cli/study/recall_score.h"

#include <math.h>

#include "base/mem.h"

typedef struct recall_test {
    tool *tool;
    rg_mqar what;
    int32_t *ids, *targets, *scratch; /* [length], [length], [vocab_size + length] */
    int vocab, n_done;                /* of the model; rows of the example at hand in earlier steps */
    uint64_t n_asked, n_right;
} recall_test;

static void judge(void *arg, int i, float *logits)
{
    recall_test *a = arg;
    int32_t target = a->targets[a->n_done + i], best = 0;

    if (target == RG_MQAR_UNSCORED)
        return;
    for (int32_t k = 1; k < a->vocab; k++)
        best = logits[k] > logits[best] ? k : best;
    a->n_asked++;
    a->n_right += best == target;
}

static bool ask_example(recall_test *a, rg_error *err)
{
    tool *t = a->tool;
    rg_seq *q = rg_seq_new(t->states, a->what.length, 0, err);
    bool ok = q;

    for (a->n_done = 0; ok && a->n_done < a->what.length;) {
        int rest = a->what.length - a->n_done, n = rest < t->max_rows ? rest : t->max_rows;
        tool_span span = { .seq = q, .ids = a->ids + a->n_done, .n = n, .all_logits = true };

        ok = tool_step(t, &span, 1, judge, a, err);
        a->n_done += n;
    }
    rg_seq_free(t->states, q);
    return ok;
}

/* Room for an example. */
static bool make_room(recall_test *a, rg_error *err)
{
    size_t n = (size_t)a->what.length, n_all = (size_t)a->what.vocab_size;

    for (int i = 0; i < 3; i++)
        if (!rg_add(n_all, n, &n_all))
            return rg_fail_memory(err, SIZE_MAX);
    a->ids = rg_array(n_all, sizeof *a->ids);
    if (!a->ids)
        return rg_fail_memory(err, n_all * sizeof *a->ids);
    a->targets = a->ids + n;
    a->scratch = a->targets + n;
    return true;
}

static bool ask_all(recall_test *a, const char *model, int32_t n, rg_error *err)
{
    const rg_config *c = &a->tool->model->config;

    a->vocab = c->vocab_size;
    a->what.vocab_size = a->what.vocab_size ? a->what.vocab_size : a->vocab;
    if (a->what.vocab_size > a->vocab || a->what.length > c->max_seq_len)
        return rg_fail(err, RG_E_USAGE, "study: %s has a vocabulary of %d and a context of %d, too small for %d and %d",
                       model, a->vocab, c->max_seq_len, a->what.vocab_size, a->what.length);
    if (!rg_mqar_check(&a->what, err) || !make_room(a, err))
        return false;
    for (int32_t e = 0; e < n && !cli_interrupted(); e++) {
        rg_mqar_example(&a->what, (uint64_t)e, a->ids, a->targets, a->scratch);
        if (!ask_example(a, err))
            return false;
    }
    return true;
}

bool recall_score(const tool_options *o, const recall_task *what, double *accuracy, rg_error *err)
{
    tool t = { 0 };
    tool_options with = *o;
    recall_test a = { .tool = &t, .what = what->text };

    *accuracy = NAN;
    if (!what->examples)
        return true;
    with.all_logits = true;
    with.max_seqs = 1;
    with.max_seq_len = what->text.length;
    bool ok = tool_open(&t, &with, err) && ask_all(&a, o->model, what->examples, err);
    tool_close(&t);
    rg_free(a.ids);
    if (a.n_asked)
        *accuracy = (double)a.n_right / (double)a.n_asked;
    return ok;
}
