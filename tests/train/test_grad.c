/* Gradients of whole models against another program's in float64, along random directions of all weights, and the same
 * bits for any number of threads and for documents packed or alone.
 *
 * golden/train/grads.json has, for each model: two rows of 32 ids in documents, the loss, and of every weight's gradient G
 * its norm and r^T G s for two columns s of signs (and signs r): outputs of splitmix64 from state 0, bits 0 and 1 for
 * columns, bit 9 for rows. */
#include "trained.h"
#include "train/passes_inside.h"

#include <math.h>

enum { ROWS = 2, LENGTH = 32, ALL = ROWS * LENGTH };

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double sign_of(uint64_t v, int bit)
{
    return v >> bit & 1 ? 1 : -1;
}

/* norm, and the two numbers. */
static void sketch(const rg_master *m, double out[3])
{
    const size_t cols = (size_t)m->shape[m->n_dims - 1];
    uint64_t of_rows = 0;

    out[0] = out[1] = out[2] = 0;
    for (size_t r = 0; r < m->n / cols; r++) {
        const double by = sign_of(splitmix(&of_rows), 9);
        uint64_t of_cols = 0;

        for (size_t c = 0; c < cols; c++) {
            const double g = (double)m->g[r * cols + c];
            const uint64_t v = splitmix(&of_cols);

            out[0] += g * g;
            out[1] += by * g * sign_of(v, 0);
            out[2] += by * g * sign_of(v, 1);
        }
    }
    out[0] = sqrt(out[0]);
}

typedef struct golden {
    int32_t ids[ALL], document[ALL], targets[ALL];
    rg_texts texts;
} golden;

static void take_golden(golden *g, const json_t *v)
{
    cases_ints(json_object_get(v, "input_ids"), g->ids, ALL);
    cases_ints(json_object_get(v, "document"), g->document, ALL);
    cases_ints(json_object_get(v, "targets"), g->targets, ALL);
    g->texts = (rg_texts){ ROWS, LENGTH, g->ids, g->document, g->targets };
}

static void open_model(trained *t, const char *name, int n_threads, int max_tokens)
{
    trained_open(t, test_data(name), n_threads, max_tokens);
}

static void equals_the_golden(void **state)
{
    json_t *all = cases_load("train/grads.json");
    const char *name, *weight;
    json_t *v, *want;

    (void)state;
    json_object_foreach(all, name, v)
    {
        double most = 0;
        trained t;
        golden g;

        take_golden(&g, v);
        open_model(&t, name, 2, 0);
        const double loss = trained_loss(&t, &g.texts, false), wanted = json_real_value(json_object_get(v, "loss"));
        if (!(fabs(loss - wanted) <= 1e-5 * wanted))
            fail_msg("%s: loss %.9g, not %.9g", name, loss, wanted);
        json_object_foreach(json_object_get(v, "grads"), weight, want) most =
            fmax(most, json_number_value(json_array_get(want, 0)));
        json_object_foreach(json_object_get(v, "grads"), weight, want)
        {
            const rg_master *m = rg_masters_find(t.masters, weight);
            double got[3], norm = json_number_value(json_array_get(want, 0));

            if (!m)
                fail_msg("%s: no weight %s", name, weight);
            sketch(m, got);
            for (size_t i = 0; i < 3; i++)
                if (!(fabs(got[i] - json_number_value(json_array_get(want, i))) <= 2e-4 * fmax(norm, 1e-4 * most)))
                    fail_msg("%s: %s: number %zu is %.9g, not %.9g", name, weight, i, got[i],
                             json_number_value(json_array_get(want, i)));
        }
        trained_close(&t);
    }
    json_decref(all);
}

/* ---- directions -------------------------------------------------------------------------------------------------- */

/* As large as the values of its tensor are. */
static double size_of(const rg_master *m)
{
    double sum = 0;

    for (size_t k = 0; k < m->n; k++)
        sum += (double)m->w[k] * (double)m->w[k];
    return sqrt(sum / (double)m->n);
}

/* The change of the loss that the gradient says for one step along a direction, and the direction itself, [all]. */
static double choose_direction(trained *t, uint64_t seed, float *direction)
{
    rg_rng rng = { .seed = seed };
    double sum = 0;

    for (int i = 0; i < rg_masters_count(t->masters); i++) {
        const rg_master *m = rg_masters_at(t->masters, i);
        const double size = size_of(m);
        for (size_t k = 0; k < m->n; k++) {
            *direction = (float)(size * (double)rg_rng_normal(&rng));
            sum += (double)m->g[k] * (double)*direction++;
        }
    }
    return sum;
}

static double loss_along(trained *t, const rg_texts *texts, const float *direction, double by)
{
    rg_error err = { 0 };
    const float *d = direction;
    double loss;

    for (int turn = 0; turn < 2; turn++, d = direction) {
        for (int i = 0; i < rg_masters_count(t->masters); i++) {
            rg_master *m = rg_masters_at(t->masters, i);
            for (size_t k = 0; k < m->n; k++)
                m->w[k] += (float)((turn ? -by : by) * (double)*d++);
        }
        assert_ok(rg_masters_push(t->masters, &err), err);
        if (!turn)
            loss = trained_loss(t, texts, true);
    }
    return loss;
}

/* The change of the loss along a random direction of all weights is what the gradient says.  Architectures that have no
 * golden gradients: what they are built of is tried together.  Not experts: a step may change which are chosen. */
static void follows_random_directions(void **state)
{
    static const char *const names[] = { "recurrent-gemma",
                                         "retnet",
                                         "lfm2",
                                         "olmo2",
                                         "phi3",
                                         "falcon",
                                         "gpt-neox",
                                         "nemotron-h",
                                         "granite-hybrid",
                                         "sparse-streaming",
                                         "sparse-patterns",
                                         "cohere2",
                                         "exaone4",
                                         "smollm3",
                                         "dream",
                                         "ministral3",
                                         "mistral-swa",
                                         "starcoder2",
                                         "opt",
                                         "nemotron",
                                         "s4-ctilde",
                                         "s4d-inv",
                                         "falcon-mamba",
                                         "cla3",
                                         "sdar-b4",
                                         "llada",
                                         "zamba2",
                                         "gemma3",
                                         "gemma3n",
                                         "rwkv7" };
    rg_error err = { 0 };
    int n_tried = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        int32_t ids[ALL], document[ALL], targets[ALL];
        rg_texts texts = { ROWS, LENGTH, ids, document, targets };
        rg_rng rng = { .seed = test_seed };
        char path[512];
        trained t;

        snprintf(path, sizeof path, "%s/config.json", test_data(names[i]));
        if (rg_path_look(path) == RG_PATH_NONE)
            continue;
        open_model(&t, names[i], 2, 0);
        for (int k = 0; k < ALL; k++) {
            ids[k] = (int32_t)rg_rng_below(&rng, (uint32_t)rg_masters_model(t.masters)->config.vocab_size);
            document[k] = k % LENGTH < 11 ? 0 : k % LENGTH < 12 ? 1 : 2;
        }
        rg_texts_targets(&texts, targets);
        trained_loss(&t, &texts, false);
        float *direction = malloc(sizeof *direction * 4 << 20);
        const double slope = choose_direction(&t, 7, direction), step = 2e-4;
        const double measured =
            (loss_along(&t, &texts, direction, step) - loss_along(&t, &texts, direction, -step)) / (2 * step);
        free(direction);
        if (!(fabs(measured - slope) <= 0.03 * fabs(slope) + 4e-6 / step))
            fail_msg("%s: the gradient says %.6g, the loss %.6g", names[i], slope, measured);
        trained_close(&t);
        n_tried++;
    }
    assert_true(n_tried > 5);
    assert_int_equal(err.code, RG_OK);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static uint64_t hash_of(trained *t)
{
    uint64_t h = 0;

    for (int i = 0; i < rg_masters_count(t->masters); i++) {
        const rg_master *m = rg_masters_at(t->masters, i);
        for (size_t k = 0; k < m->n; k++) {
            uint32_t bits;

            memcpy(&bits, &m->g[k], sizeof bits);
            h = (h ^ bits) * 0x100000001b3u;
        }
    }
    return h;
}

static void has_the_same_bits_for_any_number_of_threads(void **state)
{
    static const char *const names[] = { "llama", "mixtral", "mamba", "mamba2", "deepseek-v2", "qwen35", "s4", "cla2" };
    json_t *all = cases_load("train/grads.json");

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        uint64_t hash[3];
        golden g;

        take_golden(&g, json_object_get(all, names[i]));
        for (int n = 1; n <= 3; n++) {
            trained t;

            open_model(&t, names[i], n, 0);
            trained_loss(&t, &g.texts, false);
            hash[n - 1] = hash_of(&t);
            trained_loss(&t, &g.texts, false); /* layers ran twice before; now their tapes are kept */
            assert_int_equal(hash_of(&t), hash[n - 1]);
            trained_close(&t);
        }
        assert_int_equal(hash[0], hash[1]);
        assert_int_equal(hash[0], hash[2]);
    }
    json_decref(all);
}

/* Each document in a row of its own, and the others' places without a target: the same gradient, but for the order of
 * sums. */
static void treats_packed_documents_as_if_alone(void **state)
{
    static const char *const names[] = { "llama", "gpt2", "mamba", "mamba2", "falcon-h1", "qwen35", "s4d-lin", "gla" };
    json_t *all = cases_load("train/grads.json");

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        static float packed[1 << 20];
        trained t;
        golden g;
        size_t n = 0;
        double worst = 0, most = 0;

        take_golden(&g, json_object_get(all, names[i]));
        open_model(&t, names[i], 2, 0);
        trained_loss(&t, &g.texts, false);
        for (int k = 0; k < rg_masters_count(t.masters); k++) {
            const rg_master *m = rg_masters_at(t.masters, k);
            for (size_t c = 0; c < m->n && n < RG_LEN(packed); c++)
                packed[n++] = m->g[c];
        }
        rg_masters_clear(t.masters);
        for (int from = 0, to; from < ALL; from = to) {
            rg_error err = { 0 };
            double sum;

            for (to = from + 1; to % LENGTH && g.document[to] == g.document[from]; to++)
                ;
            const rg_texts one = { 1, to - from, g.ids + from, NULL, g.targets + from };
            const rg_cross_entropy c = { .targets = one.targets, .scale = 1 / (double)rg_texts_count(&g.texts) };
            const rg_loss loss = rg_cross_entropy_of(&c);
            assert_ok(rg_passes_compute(t.passes, &(rg_passes_run){ .texts = &one, .loss = &loss }, &sum, &err), err);
        }
        rg_error err = { 0 };
        assert_ok(rg_masters_pull(t.masters, &err), err);
        n = 0;
        for (int k = 0; k < rg_masters_count(t.masters); k++) {
            const rg_master *m = rg_masters_at(t.masters, k);
            for (size_t c = 0; c < m->n && n < RG_LEN(packed); c++, n++) {
                worst = fmax(worst, fabs((double)(m->g[c] - packed[n])));
                most = fmax(most, fabs((double)packed[n]));
            }
        }
        if (!(worst <= 1e-5 * most))
            fail_msg("%s: off by %g of %g", names[i], worst, most);
        trained_close(&t);
    }
    json_decref(all);
}

/* A row alone, and texts of one id, which predict nothing. */
static void takes_texts_without_targets(void **state)
{
    int32_t ids[4] = { 5, 6, 7, 8 }, document[4] = { 0, 1, 2, 3 }, targets[4];
    rg_texts texts = { 1, 4, ids, document, targets };
    trained t;

    (void)state;
    open_model(&t, "llama", 1, 0);
    assert_int_equal(rg_texts_targets(&texts, targets), 0);
    assert_true(trained_loss(&t, &texts, false) == 0);
    for (int i = 0; i < rg_masters_count(t.masters); i++)
        for (size_t k = 0; k < rg_masters_at(t.masters, i)->n; k++)
            assert_true(rg_masters_at(t.masters, i)->g[k] == 0);
    trained_close(&t);
}

/* ---- what is counted beforehand ----------------------------------------------------------------------------------- */

static double multiplied; /* operations of products in the host's memory */

static void count_product(const rg_backend *b, const rg_host_product *p)
{
    (void)b;
    multiplied += 2.0 * p->m * p->cols * 16 * p->n_panels;
    trained_backend()->host_multiply(trained_backend(), p);
}

/* The largest layer's tape is as large as counted from the text alone, and the backward multiplies as often: every
 * product with weights twice, and whole blocks of five products for attention. */
static void keeps_and_multiplies_what_is_counted(void **state)
{
    static const char *const names[] = { "llama", "qwen3" };
    enum { N = 2, LENGTH_ = 32 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        int32_t ids[N * LENGTH_], targets[N * LENGTH_];
        rg_texts texts = { N, LENGTH_, ids, NULL, targets };
        rg_span spans[N];
        const rg_batch batch = { .n_rows = N * LENGTH_, .spans = spans, .n_spans = N };
        rg_backend backend = *trained_backend();
        rg_back_count c;
        rg_error err = { 0 };
        rg_fwd f;
        trained t;
        double most = 0;

        for (int k = 0; k < N * LENGTH_; k++)
            ids[k] = 3 + k % 50;
        rg_texts_targets(&texts, targets);
        open_model(&t, names[i], 1, 0);
        const rg_model *m = rg_masters_model(t.masters);
        for (int s = 0; s < N; s++)
            spans[s] = (rg_span){ .first_row = s * LENGTH_, .n_rows = LENGTH_, .adapter = -1 };
        rg_back_count_fwd(&f, &c, &batch);
        rg_act *x = rg_model_embed(m, &f);
        for (int l = 0; l < m->config.n_layers; l++) {
            rg_back_count_reset(&c);
            rg_model_layer(m, &f, l, x);
            most = fmax(most, c.kept_bytes);
        }
        const int mark = rg_act_mark(&f);
        rg_model_logits(m, &f, rg_act_rows(&f, "head_in", N * LENGTH_, x->cols));
        rg_act_release(&f, mark);
        assert_false(c.cannot);
        backend.host_multiply = count_product;
        rg_passes_free(t.passes);
        t.passes = rg_passes_new(t.masters, &backend, &(rg_passes_options){ .n_threads = 1, .pool = t.pool }, &err);
        assert_ok(t.passes, err);
        multiplied = 0;
        trained_loss(&t, &texts, false);
        if (t.passes->bytes_per_row * batch.n_rows != most)
            fail_msg("%s: a tape of %.0f bytes, not %.0f", names[i], t.passes->bytes_per_row * batch.n_rows, most);
        const double attention = c.counter.by_kind[RG_OP_ATTENTION].ops, pairs = LENGTH_ * (LENGTH_ + 1) / 2.0;
        const double want = c.backward_ops - 2.5 * attention + 2.5 * attention / pairs * LENGTH_ * LENGTH_;
        if (!(fabs(multiplied - want) <= 1e-9 * want))
            fail_msg("%s: %.0f operations, not %.0f", names[i], multiplied, want);
        trained_close(&t);
    }
}

/* ---- what cannot be differentiated yet ---------------------------------------------------------------------------- */

static void names_the_operations_without_a_backward(void **state)
{
    /* A gated product is run as its parts; models with deltas, zeros, orders of columns, factors by token type or answers that they
     * soften are not trained. */
    static const char *const without[] = { "sparsify", "permute", "gated", "adapt", "scale_by_type", "keep_type", "soften" };
    size_t n = 0;

    (void)state;
    for (int kind = 0; kind < RG_OP_COUNT; kind++) {
        const rg_op op = { .kind = (rg_op_kind)kind, .routing = &(rg_routing){ .n_experts = 1 } };
        rg_error err = { 0 };

        if (rg_back_can(&op, &err))
            continue;
        assert_true(n < RG_LEN(without));
        assert_string_equal(rg_op_name(op.kind), without[n++]);
        assert_non_null(strstr(err.text, rg_op_name(op.kind)));
    }
    assert_int_equal(n, RG_LEN(without));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_golden),
        cmocka_unit_test(follows_random_directions),
        cmocka_unit_test(has_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(treats_packed_documents_as_if_alone),
        cmocka_unit_test(takes_texts_without_targets),
        cmocka_unit_test(keeps_and_multiplies_what_is_counted),
        cmocka_unit_test(names_the_operations_without_a_backward),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
