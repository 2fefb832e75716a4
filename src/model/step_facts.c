/* step_facts.c -- see step_facts.h. */
#include "model/step_facts.h"

#include <math.h>

#include "model/model.h"
#include "ops/count/count.h"

/* ---- the facts of a model ---- */

enum { OP_NS = 2000 }; /* time for all threads to begin and end an operation */

typedef struct fact_run { /* a counting run of one row */
    const rg_model *m;
    rg_step_facts *facts;
    double values[RG_TYPE_COUNT]; /* of the weights of products, by type */
} fact_run;

static void add_keys(rg_step_facts *f, int32_t window, double bytes, const rg_count *one_key)
{
    int i = 0;

    while (i < f->n_keys && f->keys[i].window != window)
        i++;
    RG_ASSERT(i < RG_MAX_GROUPS);
    f->n_keys += i == f->n_keys;
    f->keys[i].window = window;
    f->keys[i].bytes += bytes;
    f->keys[i].ops += one_key->ops;
}

/* One operation of the first row of a sequence, which sees one key: itself. */
static void note_op(void *arg, const rg_counted *op)
{
    fact_run *run = arg;
    rg_step_facts *f = run->facts;

    f->fixed_s += OP_NS * 1e-9;
    for (int i = 0; i < 3; i++)
        run->values[op->w[i].type] += op->w[i].values;
    switch (op->kind) {
    case RG_OP_ATTENTION:
    case RG_OP_MLA_ATTENTION: add_keys(f, op->most_keys, op->key_bytes, &op->count); return;
    case RG_OP_CHOOSE_KEYS: add_keys(f, 0, op->count.state_bytes, &op->count); return;
    case RG_OP_EMBED:
    case RG_OP_EMBED_TYPES:
    case RG_OP_EMBED_POSITIONS: f->row_bytes += op->count.weight_bytes; break;
    case RG_OP_MOE:
        f->n_experts = run->m->config.routing.n_experts;
        f->n_experts_used = run->m->config.routing.n_used;
        f->expert_bytes += op->count.weight_bytes * f->n_experts / f->n_experts_used; /* a row reads those it uses */
        break;
    default: f->weight_bytes += op->count.weight_bytes;
    }
    if (op->kind == RG_OP_KV_STORE || op->kind == RG_OP_ROWS_STORE)
        f->row_bytes += op->count.state_bytes;
    else
        f->sequence_bytes += op->count.state_bytes;
    f->row_ops += op->count.ops;
}

/* The counts of a row whose logits are wanted, or not. */
static rg_count count_row(const rg_model *m, fact_run *run, int n_logits)
{
    const int32_t zero = 0;
    rg_span span = { .n_rows = 1, .adapter = -1 };
    rg_batch batch = { .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = n_logits, .logit_rows = &zero };
    rg_counter counter;
    rg_fwd f;

    rg_counter_init(&counter, NULL, 0);
    counter.each = run ? note_op : NULL;
    counter.arg = run;
    rg_count_fwd(&f, &counter, &batch);
    rg_model_forward(m, &f);
    return counter.total;
}

void rg_step_facts_find(rg_step_facts *facts, const rg_model *m)
{
    fact_run run = { .m = m, .facts = facts };
    rg_count body, all;

    *facts = (rg_step_facts){ 0 };
    body = count_row(m, &run, 0);
    all = count_row(m, NULL, rg_config_has_logits(&m->config));
    facts->head_bytes = all.weight_bytes - body.weight_bytes;
    facts->head_ops = all.ops - body.ops;
    facts->n_kept = m->state.n_groups;
    for (int g = 0; g < m->state.n_groups; g++)
        facts->kept[g] = m->state.group[g];
    for (int i = 0; i < RG_TYPE_COUNT; i++)
        if (run.values[i] > run.values[facts->type])
            facts->type = (rg_type)i;
}

/* ---- what a step does ---- */

static double least(double a, double b)
{
    return a < b ? a : b;
}

void rg_step_load_add(rg_step_load *load, const rg_step_facts *facts, int64_t start, int32_t n_rows, int32_t n_logits)
{
    double n = n_rows, before = (double)start;

    for (int i = 0; i < facts->n_keys; i++) {
        const rg_key_facts *k = &facts->keys[i];
        /* The first rows see all before them, the others a whole window. */
        double growing = k->window ? least(n, fmax(k->window - before, 0)) : n;
        double pairs = growing * (before + 1) + growing * (growing - 1) / 2 + (n - growing) * k->window;

        load->key_bytes += k->bytes * (n + (k->window ? least(before, k->window - 1) : before));
        load->key_ops += k->ops * pairs;
    }
    load->n_rows += n_rows;
    load->n_logits += n_logits;
    load->n_sequences++;
}

/* Rows choose experts independently: of E experts, n rows are expected to use E (1 - (1 - k / E)^n). */
static double share_of_experts(const rg_step_facts *facts, int32_t n_rows)
{
    return facts->n_experts ? 1 - pow(1 - (double)facts->n_experts_used / facts->n_experts, n_rows) : 0;
}

double rg_step_bytes(const rg_step_facts *facts, const rg_step_load *load)
{
    return facts->weight_bytes + facts->expert_bytes * share_of_experts(facts, load->n_rows) +
           (load->n_logits ? facts->head_bytes : 0) + facts->row_bytes * load->n_rows +
           facts->sequence_bytes * load->n_sequences + load->key_bytes;
}

double rg_step_product_ops(const rg_step_facts *facts, const rg_step_load *load)
{
    return facts->row_ops * load->n_rows + facts->head_ops * load->n_logits;
}

double rg_step_kept_bytes(const rg_step_facts *facts, int64_t n)
{
    double bytes = 0;

    for (int g = 0; g < facts->n_kept; g++)
        bytes += (double)rg_group_blocks(&facts->kept[g], n) * (double)facts->kept[g].block_bytes;
    return bytes;
}
