/* Tests of GGUF files that are sound and say what no model here does: a golden with one key or tensor changed. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is changed of a golden's model.gguf. */
typedef struct change {
    const char *skip;      /* a key left out; NULL: none */
    const char *key;       /* a key put with `value`, or with `list` of n; NULL: none */
    int64_t value;
    const int32_t *list;
    size_t n;
    const char *new_key;   /* another key put with `new_value`; NULL: none */
    int64_t new_value;
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
    if (what->list)
        assert_ok(rg_ckpt_put_ints(w, what->key, what->list, what->n, &why), why);
    else if (what->key)
        assert_ok(rg_ckpt_put_int(w, what->key, 4, what->value, &why), why);
    if (what->new_key)
        assert_ok(rg_ckpt_put_int(w, what->new_key, 4, what->new_value, &why), why);
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
static void ends_are_ids(void **state)
{
    static const char eos[] = "tokenizer.ggml.eos_token_id", eot[] = "tokenizer.ggml.eot_token_id",
                      bos[] = "tokenizer.ggml.bos_token_id";
    static const int32_t beyond[] = { 5, 320 };
    rg_model *m;

    (void)state;
    refused("llama", &(change){ .key = eos, .value = 320 }, "the id 320 that ends");
    refused("llama", &(change){ .key = eot, .value = 5000 }, "the id 5000 that ends");
    refused("llama", &(change){ .key = eos, .value = 3000000000 }, "the id 3000000000 that ends");
    refused("llama", &(change){ .key = eos, .list = beyond, .n = 2 }, "the id 320 that ends");
    refused("llama", &(change){ .key = bos, .value = 320 }, "the id 320 at which");
    m = opened("llama", &(change){ .key = eos, .value = 319 });
    assert_int_equal(m->config.n_eos, 1);
    assert_int_equal(m->config.eos_ids[0], 319);
    rg_model_close(m);
    m = opened("llama", &(change){ .key = eos, .value = UINT32_MAX });
    assert_int_equal(m->config.n_eos, 0);
    rg_model_close(m);
    m = opened("llama", &(change){ .key = bos, .value = UINT32_MAX });
    assert_int_equal(m->config.bos_id, -1);
    rg_model_close(m);
}

/* As many as there is room for in one list, and one more in another key. */
static void more_ends_than_there_is_room_for(void **state)
{
    enum { MANY = RG_MAX_EOS + 3 };
    int32_t list[MANY];
    rg_model *m;

    (void)state;
    for (int i = 0; i < MANY; i++)
        list[i] = 200 + i;
    m = opened("llama", &(change){ .key = "tokenizer.ggml.eos_token_id", .list = list, .n = MANY,
                                   .new_key = "tokenizer.ggml.eot_token_id", .new_value = 300 });
    assert_int_equal(m->config.n_eos, RG_MAX_EOS);
    for (int i = 0; i < RG_MAX_EOS; i++)
        assert_int_equal(m->config.eos_ids[i], list[i]);
    rg_model_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_routing_is_refused),
        cmocka_unit_test(ends_are_ids),
        cmocka_unit_test(more_ends_than_there_is_room_for),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
