/* Tests of GGUF files that are sound and say what no model here does: a golden with one key or tensor changed. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is changed of a golden's model.gguf. */
typedef struct change {
    const char *skip;      /* a key left out; NULL: none */
    const char *key;       /* a key put with `value`; NULL: none */
    int64_t value;
    const char *more;      /* the name of one tensor more, of four values; NULL: none */
} change;

static const change *current; /* what is_skipped looks at, which is given nothing of ours */

static bool is_skipped(const char *key)
{
    return (current->skip && !strcmp(key, current->skip)) || (current->key && !strcmp(key, current->key));
}

static void copy_tensors(rg_ckpt_writer *w, const rg_checkpoint *c, const char *more)
{
    static const float four[4] = { 0.5f, -0.5f, 0.25f, 1 };
    const int64_t shape[] = { 4 };
    rg_error err = { 0 };
    int n = rg_checkpoint_n_tensors(c);

    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, &err), err);
    }
    if (more)
        assert_ok(rg_ckpt_declare(w, more, RG_F32, 1, shape, &err), err);
    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        void *raw = malloc(t->bytes);
        assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
        assert_ok(rg_ckpt_write(w, raw, t->bytes, &err), err);
        free(raw);
    }
    if (more)
        assert_ok(rg_ckpt_write(w, four, sizeof four, &err), err);
}

/* The golden's file with this change, opened as `run` does.  NULL: *err. */
static rg_model *open_changed(const char *golden, const change *what, rg_error *err)
{
    char from[64];
    rg_error why = { 0 };
    const char *path = test_scratch("changed.gguf");

    snprintf(from, sizeof from, "%s/model.gguf", golden);
    rg_checkpoint *c = rg_checkpoint_open(test_data(from), RG_CKPT_DEFAULT, &why);
    assert_ok(c, why);
    rg_ckpt_writer *w = rg_gguf_create(path, &why);
    assert_ok(w, why);
    current = what;
    assert_ok(rg_ckpt_put_all(w, c, is_skipped, &why), why);
    if (what->key)
        assert_ok(rg_ckpt_put_int(w, what->key, 4, what->value, &why), why);
    copy_tensors(w, c, what->more);
    rg_checkpoint_close(c);
    assert_ok(rg_ckpt_commit(w, &why), why);

    c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &why);
    assert_ok(c, why);
    rg_model *m = rg_model_open(c, &(rg_model_options){ .n_threads = 1 }, err);
    rg_checkpoint_close(c);
    return m;
}

static void refused(const char *golden, const change *what, const char *about)
{
    rg_error err = { 0 };
    rg_model *m = open_changed(golden, what, &err);

    if (m || !strstr(err.text, about))
        fail_msg("%s: %s", about, m ? "opened" : err.text);
}

static rg_model *opened(const char *golden, const change *what)
{
    rg_error err = { 0 };
    rg_model *m = open_changed(golden, what, &err);

    assert_ok(m, err);
    return m;
}

/* The architecture's name in GGUF stands for models too that score experts in another way, and need a bias for it. */
static void other_routing_is_refused(void **state)
{
    static const char gating[] = "deepseek2.expert_gating_func";
    rg_model *m;

    (void)state;
    refused("deepseek-v2", &(change){ .key = gating, .value = 2 }, "exp_probs_b.bias' is missing");
    refused("deepseek-v2", &(change){ .more = "blk.1.exp_probs_b.bias" }, "blk.1.exp_probs_b.bias");
    refused("deepseek-v2", &(change){ .skip = gating, .more = "blk.1.exp_probs_b.bias" }, "blk.1.exp_probs_b.bias");
    rg_model_close(m = opened("deepseek-v2", &(change){ .key = gating, .value = 1 }));
    m = opened("deepseek-v2", &(change){ .skip = gating });
    assert_int_equal(m->n_unused, 0);
    rg_model_close(m);
}

/* 320 ids.  -1 stands in GGUF without its sign, and means that there is none. */
static void a_begin_is_an_id(void **state)
{
    static const char bos[] = "tokenizer.ggml.bos_token_id";
    rg_model *m;

    (void)state;
    refused("llama", &(change){ .key = bos, .value = 320 }, "the id 320 at which");
    m = opened("llama", &(change){ .key = bos, .value = UINT32_MAX });
    assert_int_equal(m->config.bos_id, -1);
    rg_model_close(m);
}

/* A factor on cos and sin where the rope has no scaling. */
static void a_factor_of_no_scaling_is_refused(void **state)
{
    (void)state;
    refused("llama", &(change){ .key = "llama.rope.scaling.attn_factor", .value = 2 }, "attn_factor is 2");
    rg_model_close(opened("llama", &(change){ .key = "llama.rope.scaling.attn_factor", .value = 1 }));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_routing_is_refused),
        cmocka_unit_test(a_begin_is_an_id),
        cmocka_unit_test(a_factor_of_no_scaling_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
