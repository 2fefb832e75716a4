/* Tests of heads beside tied embeddings: the file's head is used if it differs, with a warning, and not kept a second time
 * if it does not; in every family that can be tied, and in both kinds of checkpoint. */
#include "support/model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "model/arch.h"
#include "model/convert.h"
#include "model/weight_source.h"
#include "support/goldens.h"

/* ---- variants of goldens ---- */

/* config.json's key of the architecture that says that the head is the embedding; NULL: it has none. */
static const char *tie_key(const rg_config *c)
{
    for (size_t i = 0; i < c->arch->n_keys; i++)
        if (c->arch->keys[i].at == offsetof(rg_config, tie_embeddings))
            return c->arch->keys[i].hf;
    return NULL;
}

/* The name that the weight of a role outside the layers has in this kind of checkpoint; "": none. */
static const char *name_of(const rg_config *c, const rg_checkpoint *ckpt, rg_role role, char out[RG_WEIGHT_NAME + 8])
{
    const rg_tensor *t = NULL;

    out[0] = 0;
    for (const rg_weight_spec *spec = c->arch->weights; spec->shape[0] && !out[0]; spec++) {
        rg_weight_source o = rg_weight_source_of(spec, c, ckpt, -1);

        if (spec->role != (int)role || !o.name)
            continue;
        t = rg_weight_source_find(&o, 0, out);
        if (t)
            snprintf(out, RG_WEIGHT_NAME + 8, "%s", t->name);
        else
            strcat(out, ".weight");
    }
    return out;
}

/* All tensors of `from`, and one more called `more` (unless there is one): the embedding, `same` or with its rows the other
 * way round. */
static void write_tensors(rg_ckpt_writer *w, const rg_checkpoint *from, const rg_tensor *embed, const char *more,
                          bool same)
{
    const int n = rg_checkpoint_n_tensors(from);
    rg_error err = { 0 };

    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(from, i);

        if (strcmp(t->name, more) != 0)
            assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, &err), err);
    }
    assert_ok(rg_ckpt_declare(w, more, embed->type, embed->n_dims, embed->shape, &err), err);
    for (int i = 0; i <= n; i++) {
        const rg_tensor *t = i < n ? rg_checkpoint_tensor(from, i) : embed;
        const size_t row = t->bytes / (size_t)rg_tensor_rows(t);
        char *raw = malloc(t->bytes), *turned = malloc(t->bytes);

        assert_true(raw && turned);
        assert_ok(rg_tensor_read(from, t, 0, raw, t->bytes, &err), err);
        for (size_t at = 0; at < t->bytes; at += row)
            memcpy(turned + at, raw + t->bytes - row - at, row);
        if (i == n || strcmp(t->name, more) != 0)
            assert_ok(rg_ckpt_write(w, i < n || same ? raw : turned, t->bytes, &err), err);
        free(raw);
        free(turned);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
}

/* config.json of the golden with its key set. */
static void write_config(const char *golden, const char *to, const char *key, bool tied)
{
    json_t *config = json_load_file(test_golden(golden, "config.json"), 0, NULL), *text;

    assert_non_null(config);
    text = json_object_get(config, "text_config");
    json_object_set_new(text && json_object_get(text, "hidden_size") ? text : config, key, json_boolean(tied));
    assert_int_equal(json_dump_file(config, to, 0), 0);
    json_decref(config);
}

/* True if each tensor is in a file as it is. */
static bool are_stored(const rg_checkpoint *ckpt)
{
    bool yes = true;

    for (int i = 0; i < rg_checkpoint_n_tensors(ckpt); i++)
        yes = yes && rg_checkpoint_tensor(ckpt, i)->file != RG_FILE_COMPOSED;
    return yes;
}

/* The golden with a head beside its embedding, as a path of its own.  False: it cannot be tied, or has no such file. */
static bool make_variant(const char *golden, bool gguf, bool same, bool tied, char path[512])
{
    static rg_config c;
    char head[RG_WEIGHT_NAME + 8], embed[RG_WEIGHT_NAME + 8], file[600];
    const char *from = test_golden(golden, gguf ? "model.gguf" : "");
    rg_error err = { 0 };

    if (rg_path_look(from) == RG_PATH_NONE)
        return false;
    rg_checkpoint *ckpt = rg_checkpoint_open(from, RG_CKPT_DEFAULT, &err);
    assert_ok(ckpt, err);
    assert_ok(rg_config_read(&c, ckpt, &err), err);
    const char *key = gguf ? "" : tie_key(&c);
    bool ok = key && name_of(&c, ckpt, W_LM_HEAD, head)[0] && !c.arch->is_encoder && are_stored(ckpt);

    if (ok) {
        snprintf(path, 512, "%s", test_scratch(gguf ? "head.gguf" : "head"));
        mkdir(path, 0755);
        snprintf(file, sizeof file, "%s/model.safetensors", path);
        if (gguf)
            remove(path);
        rg_ckpt_writer *w = gguf ? rg_gguf_create(path, &err) : rg_safetensors_create(file, &err);

        assert_ok(w, err);
        if (gguf)
            assert_ok(rg_ckpt_put_all(w, ckpt, NULL, &err), err);
        write_tensors(w, ckpt, rg_checkpoint_find(ckpt, name_of(&c, ckpt, W_EMBED_TOKENS, embed)), head, same);
        snprintf(file, sizeof file, "%s/config.json", path);
        if (!gguf)
            write_config(golden, file, key, tied);
    }
    rg_checkpoint_close(ckpt);
    return ok;
}

/* ---- tests ---- */

/* Row 3 of the head that the model multiplies by is row `want` of its embedding. */
static void assert_row(const char *golden, const rg_model *m, int64_t want)
{
    const rg_weight *head = m->outer.w[W_LM_HEAD], *embed = m->outer.w[W_EMBED_TOKENS];
    float *a = malloc((size_t)head->cols * sizeof *a), *b = malloc((size_t)head->cols * sizeof *b);

    assert_true(a && b);
    head->placed->owner->weight_get(head->placed, 0, 3, a);
    embed->placed->owner->weight_get(embed->placed, 0, want, b);
    if (memcmp(a, b, (size_t)head->cols * sizeof *a) != 0)
        fail_msg("%s: the head is not the one that was expected", golden);
    free(a);
    free(b);
}

static int check(const char *golden, bool gguf, bool same)
{
    char path[512];
    test_model t;

    if (!make_variant(golden, gguf, same, true, path))
        return 0;
    test_model_open(&t, path, NULL);
    const rg_model *m = t.m;
    bool one = m->outer.w[W_LM_HEAD] == m->outer.w[W_EMBED_TOKENS];

    if (one != same || m->config.tie_embeddings != same)
        fail_msg("%s: the head is%s the embedding", golden, one ? "" : " not");
    assert_row(golden, m, same ? 3 : m->config.vocab_size - 4);
    if (m->n_unused || (!same && !gguf) != (strstr(m->notes, "is true, but the file has a head") != NULL))
        fail_msg("%s: %d tensors are not used; notes: %s", golden, m->n_unused, m->notes);
    test_model_close(&t);
    return 1;
}

static void a_head_that_differs_is_used(void **state)
{
    int n[2] = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(test_goldens); i++)
        for (int gguf = 0; gguf < 2; gguf++)
            n[gguf] += check(test_goldens[i], gguf, false);
    assert_true(n[0] > 50 && n[1] > 30);
}

static void a_head_that_does_not_is_the_embedding(void **state)
{
    int n[2] = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(test_goldens); i++)
        for (int gguf = 0; gguf < 2; gguf++)
            n[gguf] += check(test_goldens[i], gguf, true);
    assert_true(n[0] > 50 && n[1] > 30);
}

/* As if config.json said that they are not tied. */
static void logits_are_those_of_the_head(void **state)
{
    enum { LENGTH = 24 };
    rg_error err = { 0 };
    const test_rig_options o = { .backend = rg_backend_find("auto", &err),
                                 .n_threads = 1,
                                 .exact = true,
                                 .max_rows = LENGTH,
                                 .max_seqs = 1,
                                 .max_len = LENGTH };
    float *logits[2];
    char path[512];
    test_model t;
    size_t n = 0;

    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        assert_true(make_variant("llama", false, false, tied, path));
        test_model_open(&t, path, NULL);
        logits[tied] = test_logits(&t, &o, LENGTH, 1);
        n = (size_t)LENGTH * (size_t)t.m->config.vocab_size;
        assert_true((t.m->notes[0] != 0) == tied);
        test_model_close(&t);
    }
    assert_memory_equal(logits[0], logits[1], n * sizeof(float));
    free(logits[0]);
    free(logits[1]);
}

/* A GGUF file whose head is its embedding, written anew. */
static void a_copy_is_not_written(void **state)
{
    rg_error err = { 0 };
    char path[512], to[512];
    rg_convert_report report;

    (void)state;
    for (int same = 0; same < 2; same++) {
        assert_true(make_variant("gemma2", true, same, true, path));
        snprintf(to, sizeof to, "%s", test_scratch("anew.gguf"));
        rg_checkpoint *from = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
        assert_ok(from, err);
        assert_ok(rg_convert(&report, from, to, &(rg_convert_options){ .type = RG_Q8_0, .n_threads = 1 }, &err), err);
        rg_convert_report_fini(&report);
        rg_checkpoint_close(from);
        rg_checkpoint *anew = rg_checkpoint_open(to, RG_CKPT_DEFAULT, &err);
        assert_ok(anew, err);
        assert_true((rg_checkpoint_find(anew, "output.weight") != NULL) == !same);
        rg_checkpoint_close(anew);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_differs_is_used),
        cmocka_unit_test(a_head_that_does_not_is_the_embedding),
        cmocka_unit_test(logits_are_those_of_the_head),
        cmocka_unit_test(a_copy_is_not_written),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
