/* What a step costs, counted by the reader that computes nothing, against closed forms of each architecture; and what a
 * step shows to the readers that look on. */
#include "worlds.h"

#include "measure/cost.h"
#include "model/arch/mamba.h"
#include "model/arch/mla.h"
#include "ops/watch/watch.h"

#define MLA(c)   RG_OWN(c, mla_settings)
#define MAMBA(c) RG_OWN(c, mamba_settings)

enum { MAX_COUNTED = 4096 };

typedef struct counted {
    test_model t;
    const rg_config *c;
    rg_counter counter;
    rg_counted *list;
    double n, seqs, rows, start; /* n: rows in all */
    double size;                 /* bytes of a stored weight */
} counted;

/* Every last row's logits are wanted. */
static void count(counted *k, int seqs, int rows, int start)
{
    rg_span *spans = calloc((size_t)seqs, sizeof *spans);
    rg_batch batch = { .n_rows = seqs * rows, .n_spans = seqs, .spans = spans, .n_logits = seqs };
    rg_fwd f;

    for (int i = 0; i < seqs; i++)
        spans[i] = (rg_span){ .first_row = i * rows, .n_rows = rows, .start = start, .adapter = -1 };
    k->n = (double)seqs * rows;
    k->seqs = seqs;
    k->rows = rows;
    k->start = start;
    rg_counter_init(&k->counter, k->list, MAX_COUNTED);
    rg_count_fwd(&f, &k->counter, &batch);
    rg_model_forward(k->t.m, &f);
    free(spans);
}

static double linear_ops(const counted *k)
{
    const rg_count *by = k->counter.by_kind;

    return by[RG_OP_LINEAR].ops + by[RG_OP_LINEAR_HEADS].ops + by[RG_OP_GATED].ops;
}

/* Keys that the rows of a step see, all together, in a layer with this window. */
static double keys_seen(const counted *k, int window)
{
    double sum = 0;

    for (double p = k->start; p < k->start + k->rows; p++)
        sum += window && p + 1 > window ? window : p + 1;
    return k->seqs * sum;
}

/* The same with all keys of the blocks in which a row sees any. */
static double whole_blocks_seen(const counted *k, int window)
{
    int64_t sum = 0;

    for (int64_t p = (int64_t)k->start; p < (int64_t)(k->start + k->rows); p++)
        sum += p / RG_BLOCK + 1 - (window && p + 1 > window ? p + 1 - window : 0) / RG_BLOCK;
    return k->seqs * (double)(sum * RG_BLOCK);
}

/* Positions of K/V that a step reads in such a layer: from the first that its first row sees. */
static double keys_read(const counted *k, int window)
{
    double first = window && k->start + 1 > window ? k->start + 1 - window : 0;

    return k->seqs * (k->start + k->rows - first);
}

static void near(double got, double want)
{
    double off = got > want ? got - want : want - got;

    if (!(off <= 1e-12 * want)) {
        print_error("%.17g is not %.17g\n", got, want);
        fail();
    }
}

/* Of q4, bytes of a position in 4 bits: runs of 20 bytes, of a channel of K two for a block. */
static double row_of_q4(const rg_config *c, bool mla)
{
    if (mla)
        return 20 * ((MLA(c)->kv_lora_rank + 31) / 32 + (MLA(c)->rope_dim + 31) / 32);
    return c->n_kv_heads * (c->head_dim * 40.0 / 64 + 20 * ((c->head_dim + 31) / 32));
}

/* And what a step reads: blocks before its last row's in 4 bits, those that rows of it stand in as f32. */
static double read_of_q4(const counted *k, int window, double row, double row_f32)
{
    double end = k->start + k->rows, sum = 0;

    for (int j = (int)(end - keys_read(k, window) / k->seqs); j < (int)end; j++)
        sum += (j / 64 < (int)(end - 1) / 64 ? row : 0) + (j / 64 >= (int)k->start / 64 ? row_f32 : 0);
    return k->seqs * sum;
}

/* All of K/V attention: per layer 2 (k + v) heads keys, and the bytes of what is read and of what is stored. */
static void check_attention(const counted *k, rg_op_kind kind)
{
    const rg_config *c = k->c;
    double ops = 0, read = 0, stored = 0, whole = 0, counted_whole = 0, counted_lines = 0;
    bool mla = kind == RG_OP_MLA_ATTENTION;
    double key = mla ? MLA(c)->kv_lora_rank + MLA(c)->rope_dim : c->head_dim,
           value = mla ? MLA(c)->kv_lora_rank : c->head_dim;
    double row = mla ? key : c->n_kv_heads * (key + value);

    if (k->t.m->kv_type == RG_I8) /* and two bytes for every 32 values and what is left over */
        row += mla ? 2 * ((MLA(c)->kv_lora_rank + 31) / 32 + (MLA(c)->rope_dim + 31) / 32)
                   : 4 * c->n_kv_heads * ((c->head_dim + 31) / 32);
    else
        row *= k->t.m->kv_type == RG_F32 || k->t.m->kv_type == RG_Q4_1 ? 4 : 2;
    const bool q4 = k->t.m->kv_type == RG_Q4_1;
    for (int i = 0; i < c->n_layers; i++) {
        int window = c->layer[i].window;
        ops += 2 * (key + value) * c->n_heads * keys_seen(k, window);
        whole += c->n_heads * whole_blocks_seen(k, window);
        read += q4 ? read_of_q4(k, window, row_of_q4(c, mla), row) : row * keys_read(k, window);
        stored += q4 ? (2 * row + row_of_q4(c, mla)) * k->n : row * k->n; /* and once more when its block is closed */
    }
    for (int i = 0; i < k->counter.n_ops; i++) {
        counted_whole += k->list[i].kind == kind ? k->list[i].whole : 0;
        counted_lines += k->list[i].lines;
    }
    near(counted_whole, whole);
    int blocks = ((int)(k->start + k->rows) - 1) / 64 - (int)k->start / 64 + 1; /* that a sequence stores to */
    near(counted_lines, mla ? 0 : c->n_layers * k->seqs * blocks * c->n_kv_heads * c->head_dim);
    near(k->counter.by_kind[kind].ops, ops);
    near(k->counter.by_kind[kind].state_bytes, read);
    near(k->counter.by_kind[RG_OP_KV_STORE].state_bytes, stored);
}

/* Products per row outside the experts, as the papers have them; the head's come on top, per sequence. */
static double products_llama(const rg_config *c)
{
    double d = c->dim, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;

    return c->n_layers * (2 * d * q + 2 * d * kv + 3 * d * c->ffn_dim);
}

static double products_mixtral(const rg_config *c)
{
    return products_llama(c) + c->n_layers * (double)c->dim * c->routing.n_experts; /* ffn_dim is 0: the router alone */
}

static double products_deepseek(const rg_config *c)
{
    double d = c->dim, h = c->n_heads, r = MLA(c)->kv_lora_rank, moe = c->n_layers - c->n_dense_layers;
    double attention = d * h * (MLA(c)->nope_dim + MLA(c)->rope_dim) + d * (r + MLA(c)->rope_dim) +
                       h * r * MLA(c)->nope_dim + h * r * MLA(c)->v_dim + h * MLA(c)->v_dim * d;

    return c->n_layers * attention + c->n_dense_layers * 3 * d * c->ffn_dim +
           moe * (d * c->routing.n_experts + 3 * d * c->n_shared_experts * c->moe_ffn_dim);
}

static double products_mamba(const rg_config *c)
{
    double d = c->dim, inner = MAMBA(c)->d_inner;

    return c->n_layers * (d * 2 * inner + inner * (MAMBA(c)->dt_rank + 2 * MAMBA(c)->d_state) +
                          MAMBA(c)->dt_rank * inner + inner * d);
}

static void check_linears(const counted *k, double products)
{
    const rg_count *by = k->counter.by_kind;
    double head = (double)k->c->dim * k->c->vocab_size;

    near(linear_ops(k), 2 * (k->n * products + k->seqs * head));
    near(by[RG_OP_LINEAR].weight_bytes + by[RG_OP_LINEAR_HEADS].weight_bytes + by[RG_OP_GATED].weight_bytes,
         (products + head) * k->size);
    near(by[RG_OP_EMBED].weight_bytes, k->n * k->c->dim * k->size);
}

/* Values of a row that products add to: to the stream what attention or the recurrence gives, and the feed-forward where
 * it is no mixture; and dt's bias. */
static double added(const rg_config *c)
{
    int mixtures = c->routing.n_experts ? c->n_layers - c->n_dense_layers : 0;
    double d = c->dim, layers = c->n_layers - (c->n_shared_experts ? 0 : mixtures);

    if (!strcmp(c->arch->gguf_name, "gemma3")) /* which norms both before they are added */
        return 0;
    return !c->n_heads ? c->n_layers * (d + MAMBA(c)->d_inner) : d * (c->n_layers + layers);
}

static void check_added(const counted *k)
{
    double cells = 0;

    for (int i = 0; i < k->counter.n_ops; i++)
        cells += k->counter.list[i].kind == RG_OP_LINEAR ? k->counter.list[i].cells : 0;
    near(cells, k->n * added(k->c));
}

static void check_experts(const counted *k)
{
    const rg_config *c = k->c;
    double layers = c->n_layers - c->n_dense_layers, e = c->routing.n_experts, share = 1, each = 3.0 * c->dim * c->moe_ffn_dim;

    for (double i = 0; i < k->n; i++)
        share *= 1 - c->routing.n_used / e;
    near(k->counter.by_kind[RG_OP_MOE].ops, layers * 2 * k->n * c->routing.n_used * each);
    near(k->counter.by_kind[RG_OP_MOE].weight_bytes, layers * e * (1 - share) * each * k->size);
}

static void check_recurrence(const counted *k)
{
    const rg_config *c = k->c;
    double state = (double)MAMBA(c)->d_inner * MAMBA(c)->d_state,
           tail = (double)MAMBA(c)->d_inner * (MAMBA(c)->d_conv - 1);

    near(k->counter.by_kind[RG_OP_SCAN].ops, c->n_layers * 6 * k->n * state);
    near(k->counter.by_kind[RG_OP_SCAN].state_bytes, c->n_layers * 2 * k->seqs * state * 4);
    near(k->counter.by_kind[RG_OP_CONV].ops, c->n_layers * 2 * k->n * MAMBA(c)->d_inner * MAMBA(c)->d_conv);
    near(k->counter.by_kind[RG_OP_CONV].state_bytes, c->n_layers * 2 * k->seqs * tail * 4);
}

/* The total is the sum of the kinds, and of the list. */
static void check_sums(const counted *k)
{
    rg_count kinds = { 0 }, list = { 0 };

    assert_in_range(k->counter.n_ops, 1, MAX_COUNTED);
    for (int i = 0; i < RG_OP_COUNT; i++) {
        kinds.ops += k->counter.by_kind[i].ops;
        kinds.weight_bytes += k->counter.by_kind[i].weight_bytes;
        kinds.state_bytes += k->counter.by_kind[i].state_bytes;
    }
    for (int i = 0; i < k->counter.n_ops; i++) {
        list.ops += k->list[i].count.ops;
        list.weight_bytes += k->list[i].count.weight_bytes;
        list.state_bytes += k->list[i].count.state_bytes;
    }
    near(k->counter.total.ops, kinds.ops);
    near(k->counter.total.weight_bytes, kinds.weight_bytes);
    near(k->counter.total.state_bytes, kinds.state_bytes);
    near(k->counter.total.ops, list.ops);
    near(k->counter.total.weight_bytes, list.weight_bytes);
    near(k->counter.total.state_bytes, list.state_bytes);
}

/* More rows, more sequences, a longer past: never faster at the roofs. */
static void check_seconds(counted *k)
{
    const rg_machine m = { .roofs = { .read_bytes_s = 1e10, .f32_ops_s = 1e11, .int8_ops_s = 4e11 } };
    double last;

    for (int what = 0; what < 3; what++) {
        last = 0;
        for (int i = 1; i < 200; i += 13) {
            count(k, what == 0 ? i : 2, what == 1 ? i : 3, what == 2 ? i * 17 : 5);
            rg_cost exact, fast;
            rg_cost_list(&m, k->counter.list, k->counter.n_ops, true, &exact);
            rg_cost_list(&m, k->counter.list, k->counter.n_ops, false, &fast);
            assert_true(exact.seconds >= last && fast.seconds <= exact.seconds);
            assert_true(exact.limit_s * (1 + 1e-12) >= k->counter.total.ops / m.roofs.f32_ops_s);
            last = exact.seconds;
        }
    }
}

/* What binds products is the peak of the arithmetic that their recipe has on the machine. */
static void peaks_follow_recipes(void **state)
{
    const rg_roofs tiles = { .f32_ops_s = 1, .bf16_ops_s = 16, .int8_ops_s = 32 }, plain = { .f32_ops_s = 1 };

    (void)state;
    near(rg_roofs_peak(&tiles, RG_BF16, false), 16);
    near(rg_roofs_peak(&tiles, RG_FP8, false), 16);
    near(rg_roofs_peak(&tiles, RG_Q4_K, false), 32);
    near(rg_roofs_peak(&tiles, RG_F16, false), 1);
    near(rg_roofs_peak(&tiles, RG_F32, false), 1);
    near(rg_roofs_peak(&tiles, RG_BF16, true), 1);
    near(rg_roofs_peak(&tiles, RG_Q4_K, true), 1);
    near(rg_roofs_peak(&plain, RG_BF16, false), 1);
    near(rg_roofs_peak(&plain, RG_FP8, false), 1);
    near(rg_roofs_peak(&plain, RG_Q8_0, false), 1);
}

static void counts_are(const char *name, double (*products)(const rg_config *c), rg_op_kind attention, double size)
{
    static const int steps[][3] = { { 1, 1, 0 }, { 1, 1, 100 }, { 3, 1, 11 }, { 1, 40, 0 }, { 2, 7, 9 }, { 5, 33, 2000 },
                                  { 2, 40, 50 } };
    counted k = { .size = size };

    k.list = calloc(MAX_COUNTED, sizeof *k.list);
    for (int kv = 0; kv < 4; kv++) {
        test_model_open(&k.t, test_data(name), (const char *[]){ "f32", "bf16", "q8", "q4" }[kv]);
        k.c = &k.t.m->config;
        for (size_t i = 0; i < RG_LEN(steps); i++) {
            count(&k, steps[i][0], steps[i][1], steps[i][2]);
            check_sums(&k);
            check_linears(&k, products(k.c));
            check_added(&k);
            if (attention != RG_OP_COUNT)
                check_attention(&k, attention);
            if (k.c->routing.n_experts)
                check_experts(&k);
            if (!k.c->n_heads)
                check_recurrence(&k);
        }
        check_seconds(&k);
        test_model_close(&k.t);
    }
    free(k.list);
}

static void counts_equal_closed_forms(void **state)
{
    (void)state;
    counts_are("llama", products_llama, RG_OP_ATTENTION, 4);
    counts_are("gemma3", products_llama, RG_OP_ATTENTION, 2);
    counts_are("mixtral", products_mixtral, RG_OP_ATTENTION, 2);
    counts_are("deepseek-v2", products_deepseek, RG_OP_MLA_ATTENTION, 2);
    counts_are("mamba", products_mamba, RG_OP_COUNT, 4);
}

/* Values that products read and make, angles of rotations, and first blocks of keys; all but the head see all rows. */
static void shapes_are_counted(void **state)
{
    static const int steps[][3] = { { 1, 1, 0 }, { 3, 1, 100 }, { 2, 40, 50 } };
    counted k = { .list = calloc(MAX_COUNTED, sizeof *k.list) };

    (void)state;
    test_model_open(&k.t, test_data("llama"), "bf16");
    const rg_config *c = &k.t.m->config;
    const double q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    for (size_t i = 0; i < RG_LEN(steps); i++) {
        double ins = 0, outs = 0, angles = 0, first_bytes = 0;
        count(&k, steps[i][0], steps[i][1], steps[i][2]);
        for (int o = 0; o < k.counter.n_ops; o++) {
            ins += k.list[o].ins;
            outs += k.list[o].outs;
            angles += k.list[o].angles;
            first_bytes += k.list[o].first_bytes;
            assert_int_equal(k.list[o].n_rows, o + 3 < k.counter.n_ops ? k.n : k.seqs); /* gather, norm, head */
        }
        near(ins, c->n_layers * k.n * (2.0 * c->dim + q + c->ffn_dim) + k.seqs * c->dim);
        near(outs, c->n_layers * k.n * (q + 2 * kv + 2.0 * c->dim + 2.0 * c->ffn_dim) + k.seqs * c->vocab_size);
        near(angles, k.n * c->head_dim / 2);
        near(first_bytes, c->n_layers * k.seqs * RG_BLOCK * 2 * kv * 2);
    }
    test_model_close(&k.t);
    free(k.list);
}

/* One row reads every matrix but the embedding once, as the file holds it. */
static void weights_count_as_stored(void **state)
{
    counted k = { .list = calloc(MAX_COUNTED, sizeof *k.list) };
    double bytes = 0;

    (void)state;
    test_model_open(&k.t, world_wide(false), NULL);
    k.c = &k.t.m->config;
    count(&k, 1, 1, 0);
    for (int i = 0; i < rg_checkpoint_n_tensors(k.t.ckpt); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(k.t.ckpt, i);
        bool embedding = strstr(t->name, "token_embd");
        bytes += (double)t->bytes / (embedding ? WIDE_VOCAB : 1);
    }
    near(k.counter.total.weight_bytes, bytes);
    test_model_close(&k.t);
    free(k.list);
}

/* ---- looking on -------------------------------------------------------------------------------------------------- */

enum { N_IDS = 48, CUT = 29 };

typedef struct onlooker {
    rg_watch watch;
    rg_act_stats *stats;
    int n_layers, dim, vocab, first, n_rows;
    int n_notes, n_named;
    float *hidden;      /* [n_layers + 1][N_IDS][dim] */
    float *logits;      /* [N_IDS][vocab] */
    const char *name;   /* sums of this one: */
    int layer;
    double sum[1024];
    uint64_t n_summed, n_routed[8]; /* by expert, in that layer */
    bool logits_seen;
} onlooker;

static void see(void *arg, const rg_watched *w)
{
    onlooker *o = arg;
    int layer = w->layer < 0 ? o->n_layers : w->layer;

    assert_true(w->rows == o->n_rows && w->cols > 0);
    if (w->note) {
        o->n_notes++;
        for (int r = 0; r < w->rows; r++)
            memcpy(o->hidden + ((size_t)layer * N_IDS + (size_t)(o->first + r)) * (size_t)o->dim,
                   w->data + (size_t)r * (size_t)w->cols, (size_t)o->dim * sizeof(float));
        return;
    }
    o->n_named++;
    for (int r = 0; r < w->rows && w->layer < 0 && !strcmp(w->name, "logits"); r++) {
        memcpy(o->logits + (size_t)(o->first + r) * (size_t)o->vocab, w->data + (size_t)r * (size_t)w->cols,
               (size_t)o->vocab * sizeof(float));
        o->logits_seen = true;
    }
    if (w->layer == o->layer && !strcmp(w->name, o->name)) {
        o->n_summed += (uint64_t)w->rows;
        for (int r = 0; r < w->rows; r++)
            for (int i = 0; i < w->cols; i++)
                o->sum[i] += __builtin_fabs((double)w->data[(size_t)r * (size_t)w->cols + (size_t)i]);
    }
    for (int r = 0; r < w->rows && w->layer == o->layer && w->kind == RG_OP_ROUTE; r++)
        for (int i = 0; i < w->cols / 2; i++) {
            int32_t expert;
            memcpy(&expert, w->data + (size_t)r * (size_t)w->cols + (size_t)i, sizeof expert);
            assert_in_range(expert, 0, RG_LEN(o->n_routed) - 1);
            o->n_routed[expert]++;
        }
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    onlooker *o = arg;

    return rg_act_stats_wrap(o->stats, rg_watch_init(&o->watch, inner, see, o));
}

static void same_logits(void *arg, int feed, int row, float *logits)
{
    onlooker *o = arg;

    (void)feed;
    if (memcmp(logits, o->logits + (size_t)(o->first + row) * (size_t)o->vocab, (size_t)o->vocab * sizeof *logits))
        o->logits_seen = false;
}

/* The last of that name: a tensor that two matrices are made from stands there twice. */
static const rg_act_stat *stat_of(const onlooker *o, const char *name, rg_act_stat *out)
{
    for (int i = rg_act_stats_count(o->stats) - 1; i >= 0; i--) {
        *out = rg_act_stats_at(o->stats, i);
        if (!strcmp(out->name, name))
            return out;
    }
    print_error("nothing was seen that '%s' reads\n", name);
    fail();
    return NULL;
}

static void two_steps(onlooker *o, test_rig *rig, const int32_t *ids)
{
    rg_error err = { 0 };
    rg_seq *q = rg_seq_new(rig->states, N_IDS, 0, &err);

    assert_ok(q, err);
    for (int step = 0; step < 2; step++) {
        o->first = step ? CUT : 0;
        o->n_rows = step ? N_IDS - CUT : CUT;
        o->n_notes = o->n_named = 0;
        assert_true(rg_seq_grow(rig->states, q, o->first + o->n_rows));
        test_rig_step(rig, &(test_feed){ .seq = q, .ids = ids + o->first, .n = o->n_rows }, 1, same_logits, o);
        rg_seq_advance(rig->states, q, o->n_rows, 0, NULL);
        assert_int_equal(o->n_notes, o->n_layers + 1);
        assert_true(o->logits_seen && o->n_named > 4 * o->n_layers);
    }
    rg_seq_free(rig->states, q);
}

static void hidden_states_are_the_goldens(const onlooker *o, const rg_checkpoint *golden)
{
    char tensor[32];

    for (int i = 0; i <= o->n_layers; i++) {
        size_t n;
        float most = 0, off = 0, *got = o->hidden + (size_t)i * N_IDS * (size_t)o->dim;
        snprintf(tensor, sizeof tensor, "hidden.%d", i);
        float *want = test_floats(golden, tensor, &n);
        assert_int_equal(n, N_IDS * (size_t)o->dim);
        for (size_t j = 0; j < n; j++) {
            most = __builtin_fmaxf(most, __builtin_fabsf(want[j]));
            off = __builtin_fmaxf(off, __builtin_fabsf(got[j] - want[j]));
        }
        assert_true(off <= 3e-4f * most && most > 0);
        free(want);
    }
}

/* Heads have channels of their own; experts see the rows that were routed to them, so that each row counts n_used
 * times. */
static void statistics_are_those_seen(const onlooker *o, const char *read_by, const rg_routing *routing)
{
    rg_act_stat stat;
    const rg_act_stat *s = stat_of(o, read_by, &stat);
    bool experts = s->n_mats > 1 && s->n_mats == routing->n_experts;

    assert_true(rg_act_stats_complete(o->stats));
    assert_int_equal(o->n_summed, N_IDS);
    for (int m = 0; m < s->n_mats; m++)
        assert_int_equal(s->n_rows[m], experts ? o->n_routed[m] : N_IDS);
    for (int i = 0; i < s->n_channels; i++) {
        double sum = 0;
        for (int m = 0; m < s->n_mats; m++) {
            double one = s->sum[(size_t)m * (size_t)s->n_channels + (size_t)i];
            assert_true(experts || one == o->sum[m * s->n_channels + i]);
            sum += one;
        }
        assert_true(sum > 0);
        assert_true(!experts || __builtin_fabs(sum / (routing->n_used * o->sum[i]) - 1) < 1e-12);
    }
}

/* A run of a golden's prompt in two steps.  `name` in `layer` is what the weight `read_by` reads. */
static void look_on(const char *model, const char *name, int layer, const char *read_by)
{
    char file[64];
    rg_error err = { 0 };
    test_model t;
    test_rig rig;
    onlooker *o = calloc(1, sizeof *o);

    snprintf(file, sizeof file, "%s/golden.safetensors", model);
    rg_checkpoint *golden = rg_checkpoint_open(test_data(file), RG_CKPT_DEFAULT, &err);
    assert_ok(golden, err);
    int32_t *ids = test_ints(golden, "input_ids", NULL);
    test_model_open(&t, test_data(model), "f32");
    o->n_layers = t.m->config.n_layers;
    o->dim = t.m->config.dim;
    o->vocab = t.m->config.vocab_size;
    o->name = name;
    o->layer = layer;
    o->hidden = calloc((size_t)(o->n_layers + 1) * N_IDS * (size_t)o->dim, sizeof(float));
    o->logits = calloc((size_t)N_IDS * (size_t)o->vocab, sizeof(float));
    o->stats = rg_act_stats_new(&err);
    assert_ok(o->stats, err);
    test_rig_open(&rig, &t,
                  &(test_rig_options){ .backend = rg_backend_find("auto", NULL),
                                       .n_threads = 2,
                                       .exact = true,
                                       .max_rows = N_IDS,
                                       .max_seqs = 1,
                                       .max_len = N_IDS,
                                       .wrap = wrap,
                                       .wrap_arg = o });
    two_steps(o, &rig, ids);
    hidden_states_are_the_goldens(o, golden);
    statistics_are_those_seen(o, read_by, &t.m->config.routing);
    test_rig_close(&rig);
    rg_watch_fini(&o->watch);
    test_model_close(&t);
    rg_act_stats_free(o->stats);
    rg_checkpoint_close(golden);
    free(ids);
    free(o->hidden);
    free(o->logits);
    free(o);
}

static void intermediates_and_statistics_are_the_steps_own(void **state)
{
    (void)state;
    look_on("llama", "attn_norm", 1, "model.layers.1.self_attn.k_proj");
    look_on("llama", "ffn", 2, "model.layers.2.mlp.down_proj");
    look_on("gemma3", "ffn_norm", 6, "model.layers.6.mlp.gate_proj");
    look_on("mixtral", "attn", 0, "model.layers.0.self_attn.o_proj");
    look_on("mixtral", "ffn_norm", 1, "model.layers.1.block_sparse_moe.experts.0.w3");
    look_on("deepseek-v2", "o_latent", 1, "model.layers.1.self_attn.kv_b_proj");
    look_on("deepseek-v2", "attn", 2, "model.layers.2.self_attn.o_proj");
    look_on("mamba", "scan", 1, "backbone.layers.1.mixer.out_proj");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_follow_recipes),
        cmocka_unit_test(counts_equal_closed_forms),
        cmocka_unit_test(shapes_are_counted),
        cmocka_unit_test(weights_count_as_stored),
        cmocka_unit_test(intermediates_and_statistics_are_the_steps_own),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
