/* test_choose.c -- the keys that an indexer chooses, against their definition, however its rows are cut and drafted.
 *
 * Numbers are small integers, so that scores are exact and many are equal; in q8 all of them are multiplied by the same
 * number. */
#include "tree.h"
#include "world.h"

#include "ops/count/count.h"

enum { MAX_KEYS = 3000, BLOCKS = (MAX_KEYS + 2 * RG_BLOCK) / RG_BLOCK, N_CHOSEN_MAX = 300 };

typedef struct sequence {
    int n, n_heads, k_dim, n_chosen;
    rg_type type;
    float *q, *weights, *k; /* by place */
    rg_buffer keys;
    int32_t table[BLOCKS];
    float *chosen; /* by place, filled by steps */
} sequence;

static const sequence shapes[] = {
    { .n = 300, .n_heads = 4, .k_dim = 8, .n_chosen = 7, .type = RG_F32 },
    { .n = 200, .n_heads = 1, .k_dim = 17, .n_chosen = 1, .type = RG_I8 },
    { .n = 260, .n_heads = 3, .k_dim = 40, .n_chosen = 250, .type = RG_I8 },
    { .n = 2200, .n_heads = 2, .k_dim = 4, .n_chosen = 64, .type = RG_BF16 },
};

static const rg_reader_sizes sizes = { .max_rows = 2500, .max_cols = 64, .max_heads = 64, .max_head_dim = 32,
                                       .max_keys = MAX_KEYS };

/* A step of some rows of it: place[i] is whose numbers row i takes. */
typedef struct step {
    sequence *s;
    const int *place;
    int n_rows;
    float *chosen;
} step;

static rg_act *rows_of(rg_fwd *f, const step *t, const float *from, int cols)
{
    return world_rows(f, from, t->place, t->n_rows, cols);
}

static void text(rg_fwd *f, void *arg)
{
    const step *t = arg;
    sequence *s = t->s;
    rg_act *chosen = rg_act_new(f, "chosen", s->n_chosen);

    rg_rows_store(f, &s->keys, rows_of(f, t, s->k, s->k_dim));
    rg_choose_keys(f, chosen, rows_of(f, t, s->q, s->n_heads * s->k_dim), rows_of(f, t, s->weights, s->n_heads), &s->keys);
    act_out(f, chosen, t->chosen);
}

static float *integers(rg_rng *rng, int n, int from, int to)
{
    float *x = rg_array((size_t)n, sizeof *x);

    for (int i = 0; i < n; i++)
        x[i] = (float)(from + (int)rg_rng_below(rng, (uint32_t)(to - from + 1)));
    return x;
}

static void sequence_init(sequence *s, rg_rng *rng, world *w)
{
    size_t block_bytes;

    s->q = integers(rng, s->n * s->n_heads * s->k_dim, -1, 1);
    s->weights = integers(rng, s->n * s->n_heads, -1, 2);
    s->k = integers(rng, s->n * s->k_dim, -1, 1);
    s->chosen = rg_array((size_t)(s->n * s->n_chosen), sizeof *s->chosen);
    s->keys = rg_rows_of("keys", s->k_dim);
    rg_rows_set_type(&s->keys, s->type);
    s->keys.group = 1;
    s->keys.offset = 64;
    block_bytes = s->keys.offset + RG_BLOCK * s->keys.bytes;
    for (int i = 0; i < BLOCKS; i++)
        s->table[i] = (i * 7 + 3) % BLOCKS;
    w->groups[1] = (rg_group_memory){ .data = rg_alloc(block_bytes * BLOCKS), .block_bytes = block_bytes };
    memset(w->groups[1].data, 0xff, block_bytes * BLOCKS); /* NaN, until something is stored */
}

static void sequence_fini(sequence *s, world *w)
{
    rg_free(s->q);
    rg_free(s->weights);
    rg_free(s->k);
    rg_free(s->chosen);
    rg_free(w->groups[1].data);
}

/* Places [start, start + n) as one causal span. */
static void run_span(world *w, sequence *s, int start, int n)
{
    static int32_t index[MAX_KEYS], end[MAX_KEYS], pos[MAX_KEYS][4];
    static int place[MAX_KEYS];
    rg_span span = { .n_rows = n, .start = start, .tables = { NULL, s->table } };
    rg_batch b = { .n_rows = n, .n_spans = 1, .spans = &span, .index = index, .pos = (const int32_t(*)[4])pos, .kv_end = end };

    for (int i = 0; i < n; i++) {
        place[i] = index[i] = start + i;
        end[i] = start + i + 1;
    }
    world_step(w, &b, text, &(step){ s, place, n, s->chosen + (size_t)start * (size_t)s->n_chosen });
}

static double score(const sequence *s, int i, int j)
{
    double sum = 0;

    for (int h = 0; h < s->n_heads; h++) {
        double d = 0;

        for (int k = 0; k < s->k_dim; k++)
            d += (double)s->q[(i * s->n_heads + h) * s->k_dim + k] * (double)s->k[j * s->k_dim + k];
        sum += (double)s->weights[i * s->n_heads + h] * fmax(d, 0);
    }
    return sum;
}

/* Chosen are as many as there may be, rising; and a key is if fewer than that score better, or as well at a lower place. */
static void check_row(const sequence *s, int i, const float *row)
{
    static double scores[MAX_KEYS];
    int32_t last = -1, place, n = 0;

    for (int j = 0; j <= i; j++)
        scores[j] = score(s, i, j);
    for (; n < s->n_chosen; n++) {
        int better = 0;

        memcpy(&place, row + n, sizeof place);
        if (place == INT32_MAX)
            break;
        assert_true(place > last && place <= i);
        last = place;
        for (int j = 0; j <= i; j++)
            better += scores[j] > scores[place] || (scores[j] == scores[place] && j < place);
        assert_true(better < s->n_chosen);
    }
    assert_int_equal(n, i + 1 < s->n_chosen ? i + 1 : s->n_chosen);
    for (; n < s->n_chosen; n++) {
        memcpy(&place, row + n, sizeof place);
        assert_int_equal(place, INT32_MAX);
    }
}

/* In two spans, one row at a time at the end: few rows share segments among threads. */
static void is_the_definition(void **state)
{
    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (size_t c = 0; c < RG_LEN(shapes); c++) {
            sequence s = shapes[c];
            rg_rng rng = { .seed = test_seed + c };
            int at = 0;
            world w;

            world_init(&w, world_cpu(isa), 2, &sizes);
            sequence_init(&s, &rng, &w);
            for (int n; at < s.n; at += n) {
                n = at == 0 ? s.n / 2 : at < s.n - 9 ? s.n - 9 - at : 1 + at % 2;
                n = n < s.n - at ? n : s.n - at;
                run_span(&w, &s, at, n);
            }
            for (int i = 0; i < s.n; i += i < s.n - 12 ? 1 + s.n / 100 : 1)
                check_row(&s, i, s.chosen + (size_t)i * (size_t)s.n_chosen);
            sequence_fini(&s, &w);
            world_fini(&w);
        }
}

/* A root row and a tree of drafts behind it: every draft gives what it gives at the end of its own chain. */
static void trees_equal_chains(void **state)
{
    enum { CHOSEN = 64 };

    (void)state;
    for (size_t c = 0; c < 3; c++)
        for (int start = 40; start < 67; start += 13) {
            sequence s = shapes[c];
            rg_rng rng = { .seed = test_seed + c };
            const rg_span tables = { .tables = { NULL, s.table } };
            float chosen[TREE_ROWS * N_CHOSEN_MAX], alone[TREE_ROWS * N_CHOSEN_MAX];
            tree all, one;
            world w;

            s.n_chosen = s.n_chosen > CHOSEN ? 30 : s.n_chosen;
            world_init(&w, rg_cpu_nth(0), 2, &sizes);
            sequence_init(&s, &rng, &w);
            run_span(&w, &s, 0, start);
            tree_init(&all, start, &tables);
            world_step(&w, &all.batch, text, &(step){ &s, all.place, all.n, chosen });
            for (int i = 0; i < TREE_ROWS; i++) {
                tree_chain(&one, i, start, &tables);
                world_step(&w, &one.batch, text, &(step){ &s, one.place, one.n, alone });
                assert_memory_equal(chosen + i * s.n_chosen, alone + (one.n - 1) * s.n_chosen, (size_t)s.n_chosen * sizeof(float));
            }
            sequence_fini(&s, &w);
            world_fini(&w);
        }
}

/* Scores of all keys, and the keys' bytes; attention reads the chosen alone. */
static void all_keys_are_counted(void **state)
{
    const rg_kv kv = { .type = RG_F32, .n_heads = 1, .k_dim = 12, .v_dim = 8, .latent = true };
    const rg_buffer keys = rg_rows_of("keys", 6);
    rg_span span = { .n_rows = 2, .start = 70 };
    rg_batch b = { .n_rows = 2, .n_spans = 1, .spans = &span };
    rg_counter counter;
    rg_fwd f;

    (void)state;
    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(&f, &counter, &b);
    rg_act *chosen = rg_act_new(&f, "chosen", 5);
    rg_rows_store(&f, &keys, rg_act_new(&f, "k", 6));
    rg_choose_keys(&f, chosen, rg_act_new(&f, "q", 18), rg_act_new(&f, "weights", 3), &keys);
    rg_mla_attention(&f, rg_act_new(&f, "y", 16), rg_act_new(&f, "ql", 16), rg_act_new(&f, "qr", 8), &kv,
                     &(rg_attend_params){ .n_heads = 2, .sight = &rg_sight_all, .chosen = chosen });
    assert_true(counter.by_kind[RG_OP_ROWS_STORE].state_bytes == 2 * 24);
    assert_true(counter.by_kind[RG_OP_CHOOSE_KEYS].ops == (71 + 72) * 3 * (2 * 6 + 3));
    assert_true(counter.by_kind[RG_OP_CHOOSE_KEYS].state_bytes == 72 * 24);
    assert_true(counter.by_kind[RG_OP_MLA_ATTENTION].ops == 2 * 5 * 2 * 2 * (12 + 8));
    assert_true(counter.by_kind[RG_OP_MLA_ATTENTION].state_bytes == (5 + 1) * 12 * 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_definition),
        cmocka_unit_test(trees_equal_chains),
        cmocka_unit_test(all_keys_are_counted),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("choose", tests, NULL, NULL);
}
