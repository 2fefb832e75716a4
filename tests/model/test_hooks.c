/* test_hooks.c -- the hooks of an architecture: one made of Llama's parts, whose stream is twice as wide as its model and
 * holds the model's columns in its second half, gives Llama's logits and hidden states, bit for bit. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/watch/watch.h"

enum { N = 40, MOST = 1 << 16 };

typedef struct seen {
    float *logits, *inputs; /* of all rows; of all rows entering all layers, and the head */
    size_t n_logits, n_inputs;
    int vocab;
} seen;

static const rg_layer_kind *llama_kinds;

static rg_act *second_half(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    (void)l;
    return rg_act_view(f, "second half", x, x->cols / 2, x->cols / 2);
}

static int twice(const rg_config *c)
{
    return 2 * c->dim;
}

/* The first half is what the layers find by its name: the embedding, once more. */
static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    assert_int_equal(l->index, -1);
    rg_act *once_more = rg_act_new(f, "once_more", l->c->dim);

    rg_embed(f, once_more, l->w[W_EMBED_TOKENS], 1.0f);
    rg_embed(f, rg_act_view(f, "first half", x, 0, l->c->dim), l->w[W_EMBED_TOKENS], 2.0f);
    rg_embed(f, second_half(f, l, x), l->w[W_EMBED_TOKENS], 1.0f);
}

static void block(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    assert_int_equal(rg_act_find(f, "once_more")->cols, l->c->dim);
    llama_kinds[0].block(f, l, second_half(f, l, x));
}

static void norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x)
{
    const rg_act *half = rg_act_view(f, "second half", x, x->cols / 2, x->cols / 2);

    rg_rmsnorm(f, y, half, l->w[W_FINAL_NORM], l->c->norm_eps);
}

static void head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h)
{
    rg_linear(f, logits, h, l->w[W_LM_HEAD], NULL);
}

static void see(void *arg, const rg_watched *w)
{
    seen *s = arg;

    for (int r = 0; w->note && r < w->rows; r++) {
        assert_true(s->n_inputs + (size_t)w->cols <= MOST);
        memcpy(s->inputs + s->n_inputs, w->data + (size_t)r * (size_t)w->cols, (size_t)w->cols * sizeof(float));
        s->n_inputs += (size_t)w->cols;
    }
}

static rg_watch watch;

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_watch_init(&watch, inner, see, arg);
}

static void keep(void *arg, int feed, int row, float *logits)
{
    seen *s = arg;

    (void)feed;
    memcpy(s->logits + (size_t)row * (size_t)s->vocab, logits, (size_t)s->vocab * sizeof(float));
}

static void compute(seen *s, const test_model *t)
{
    int32_t ids[N];
    test_rig rig;

    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + 11) % t->m->config.vocab_size;
    *s = (seen){ .logits = calloc(MOST, sizeof(float)), .inputs = calloc(MOST, sizeof(float)),
                 .vocab = t->m->config.vocab_size };
    assert_true(N * s->vocab <= MOST);
    test_rig_open(&rig, t, &(test_rig_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 1, .max_rows = N,
                                                .max_seqs = 1, .max_len = 64, .wrap = wrap, .wrap_arg = s });
    rg_seq *q = rg_seq_new(rig.states, 64, 0, NULL);
    assert_non_null(q);
    assert_true(rg_seq_grow(rig.states, q, N));
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = N }, 1, keep, s);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    rg_watch_fini(&watch);
}

static void hooks_stand_in_for_the_usual(void **state)
{
    static rg_layer_kind kinds[1];
    static rg_arch wide;
    seen want, got;
    test_model t;

    (void)state;
    test_model_open(&t, test_data("llama"), "f32");
    compute(&want, &t);
    llama_kinds = t.m->config.arch->kinds;
    kinds[0] = llama_kinds[0];
    kinds[0].block = block;
    wide = *t.m->config.arch;
    wide.kinds = kinds;
    wide.width = twice;
    wide.embed = embed;
    wide.norm = norm;
    wide.head = head;
    wide.shown = second_half;
    t.m->config.arch = &wide;
    compute(&got, &t);
    assert_memory_equal(got.logits, want.logits, (size_t)(N * want.vocab) * sizeof(float));
    assert_int_equal(got.n_inputs, want.n_inputs);
    assert_memory_equal(got.inputs, want.inputs, want.n_inputs * sizeof(float));
    free(want.logits);
    free(want.inputs);
    free(got.logits);
    free(got.inputs);
    test_model_close(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(hooks_stand_in_for_the_usual) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
