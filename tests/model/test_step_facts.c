/* What a step reads and computes by a model's few facts, against the reader that counts every operation of it. */
#include "worlds.h"

#include "model/step_facts.h"
#include "ops/count/count.h"

enum { MAX_SPANS = 6 };

static void near(double got, double want)
{
    double off = got > want ? got - want : want - got;

    if (!(off <= 1e-9 * want)) {
        print_error("%.17g is not %.17g\n", got, want);
        fail();
    }
}

/* Spans of one row and of many, at the start and far behind it, with logits or without. */
static void compare(const rg_model *m, const rg_step_facts *facts, rg_rng *g)
{
    static const int32_t rows[] = { 1, 1, 2, 7, 64, 333 }, starts[] = { 0, 1, 5, 63, 64, 700, 3000 };
    rg_span spans[MAX_SPANS];
    rg_step_load load = { 0 };
    rg_counter counter;
    rg_fwd *f = malloc(sizeof *f);
    rg_batch b = { .spans = spans, .n_spans = 1 + (int32_t)rg_rng_below(g, MAX_SPANS) };

    for (int i = 0; i < b.n_spans; i++) {
        int32_t n = rows[rg_rng_below(g, RG_LEN(rows))], start = starts[rg_rng_below(g, RG_LEN(starts))];
        int32_t n_logits = (int32_t)rg_rng_below(g, 2);

        spans[i] = (rg_span){ .first_row = b.n_rows, .n_rows = n, .start = start, .adapter = -1 };
        rg_step_load_add(&load, facts, start, n, n_logits);
        b.n_rows += n;
        b.n_logits += n_logits;
    }
    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(f, &counter, &b);
    rg_model_forward(m, f);
    free(f);
    near(rg_step_bytes(facts, &load), counter.total.weight_bytes + counter.total.state_bytes);
    near(rg_step_product_ops(facts, &load) + load.key_ops, counter.total.ops);
}

static void facts_give_what_is_counted(void **state)
{
    static const char *const names[] = { "llama", "mixtral/model.gguf", "gemma3", "deepseek-v2", "mamba/model.gguf",
                                         "cla3", "deepseek-v32", "glm-dsa" };
    rg_rng g = { .seed = test_seed };

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        test_model t;
        rg_step_facts facts;

        test_model_open(&t, test_data(names[i]), i % 2 ? "q8" : NULL);
        rg_step_facts_find(&facts, t.m);
        assert_true(facts.row_ops > 0 && facts.head_bytes > 0);
        for (int k = 0; k < 200; k++)
            compare(t.m, &facts, &g);
        test_model_close(&t);
    }
}

/* K/V that layers share are kept once, and so are keys that few rows read. */
static void what_is_kept_is_kept_once(void **state)
{
    static const struct {
        const char *golden;
        double bytes; /* of 10 blocks in bf16 */
    } cases[] = { { "cla3", 640 * 2 * (16 + 16) * 2 },
                  { "deepseek-v32", 640 * 3 * (40 + 16) * 2 },
                  { "glm-dsa", 640 * (4 * 40 + 2 * 16) * 2 },
                  { "character-ai", (640 + 4 * 128) * (16 + 16) * 2 } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        test_model t;
        rg_step_facts facts;

        test_model_open(&t, test_data(cases[i].golden), "bf16");
        rg_step_facts_find(&facts, t.m);
        near(rg_step_kept_bytes(&facts, 640), cases[i].bytes);
        near(rg_step_kept_bytes(&facts, 0), 0);
        test_model_close(&t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_give_what_is_counted),
        cmocka_unit_test(what_is_kept_is_kept_once),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
