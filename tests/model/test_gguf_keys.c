/* Every key of the model in GGUF's metadata, set to another value: the config that is read changes, or it is refused, or a
 * note names the key.  The keys are the golden's own, and those of known_gguf_keys.def.  (That what a config says changes
 * what is computed, is test_keys'.)  Keys that change nothing by their nature stand in gguf_matters_not.def. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/arch.h"
#include "model/notes.h"
#include "support/goldens.h"

static const struct {
    const char *golden, *key, *why; /* golden: a folder, or "*" */
} matters_not[] = {
    { "", "", "" },
#include "gguf_matters_not.def"
};

static const struct {
    const char *key;
    rg_key_kind kind;
    double value;
} known[] = {
#define KNOWN(key, kind, value) { key, kind, value },
#include "known_gguf_keys.def"
#undef KNOWN
};

/* The build has it called in the place of fsync. */
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

/* ---- one golden -------------------------------------------------------------------------------------------------- */

typedef struct subject {
    const char *golden;
    char prefix[64]; /* "<architecture>." */
    const rg_checkpoint *from;
    rg_config base;
    int n_tried, n_failed;
} subject;

/* What is written in place of a key. */
typedef struct other {
    const char *key;
    rg_meta_type type;
    double value;
    const char *text;
    const int32_t *ints;
    const uint8_t *bools;
    size_t n;
} other;

static const char *skipped;

static bool is_skipped(const char *key)
{
    return skipped && !strcmp(key, skipped);
}

static bool put(rg_ckpt_writer *w, const other *o, rg_error *err)
{
    enum { U32 = 4 };

    switch (o->type) {
    case RG_META_INT:
        return rg_ckpt_put_int(w, o->key, U32, (int64_t)o->value, err);
    case RG_META_FLOAT:
        return rg_ckpt_put_float(w, o->key, o->value, err);
    case RG_META_BOOL:
        return rg_ckpt_put_bool(w, o->key, o->value != 0, err);
    case RG_META_STRING:
        return rg_ckpt_put_string(w, o->key, o->text, strlen(o->text), err);
    default:
        return o->bools ? rg_ckpt_put_bools(w, o->key, o->bools, o->n, err)
                        : rg_ckpt_put_ints(w, o->key, o->ints, o->n, err);
    }
}

/* The golden's metadata alone, with another value (NULL: as it is), read.  notes: rg_free them. */
static bool read_variant(const subject *s, const other *o, rg_config *c, char **notes)
{
    const char *path = test_scratch("keys.gguf");
    rg_error err = { 0 };
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    char vocab[96];

    *notes = NULL;
    assert_ok(w, err);
    skipped = o ? o->key : NULL;
    assert_ok(rg_ckpt_put_all(w, s->from, is_skipped, &err), err);
    if (o)
        assert_ok(put(w, o, &err), err);
    snprintf(vocab, sizeof vocab, "%svocab_size", s->prefix); /* which the embedding tells otherwise */
    if (rg_meta_type_of(s->from, vocab) == RG_META_NONE && (!o || strcmp(o->key, vocab) != 0))
        assert_ok(put(w, &(other){ .key = vocab, .type = RG_META_INT, .value = 320 }, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(ckpt, err);
    bool ok = rg_config_read(c, ckpt, &err);

    *notes = ok ? rg_notes(c, ckpt, &err) : NULL;
    if (!o && !ok)
        print_message("%s: %s\n", s->golden, err.text);
    rg_checkpoint_close(ckpt);
    return ok;
}

static bool has_effect(subject *s, const other *o)
{
    static rg_config changed;
    char *notes;
    bool yes = !read_variant(s, o, &changed, &notes);

    s->n_tried++;
    yes = yes || strstr(notes, o->key) || memcmp(&changed, &s->base, sizeof changed) != 0;
    rg_free(notes);
    return yes;
}

static bool is_harmless(const subject *s, const char *key)
{
    for (size_t i = 0; i < RG_LEN(matters_not); i++)
        if ((!strcmp(matters_not[i].golden, "*") || !strcmp(matters_not[i].golden, s->golden)) &&
            !strcmp(matters_not[i].key, key))
            return true;
    return false;
}

static void tell(subject *s, const char *key)
{
    s->n_failed++;
    print_error("%s: %s: another value changes nothing, and nothing is said\n", s->golden, key);
}

/* ---- other values ------------------------------------------------------------------------------------------------ */

/* A smaller number, and a larger one. */
static bool try_number(subject *s, const char *key, rg_meta_type type, double v)
{
    double smaller = type == RG_META_FLOAT ? v * 0.5 + 0.125 : v > 3 && fmod(v, 2) == 0 ? v / 2 : v + 1;

    return has_effect(s, &(other){ .key = key, .type = type, .value = smaller }) ||
           has_effect(s, &(other){ .key = key, .type = type, .value = type == RG_META_FLOAT ? 8 * v : 8 * v + 8 });
}

/* Of a list, its first entry. */
static bool try_list(subject *s, const char *key)
{
    char first[200];
    const int32_t *given;
    bool flags, yes;
    rg_error err = { 0 };
    size_t n = 0;

    snprintf(first, sizeof first, "%s.0", key);
    flags = rg_meta_type_of(s->from, first) == RG_META_BOOL;
    if (!flags && rg_meta_type_of(s->from, first) != RG_META_INT)
        return true; /* texts and reals: no golden has any */
    assert_int_equal(rg_meta_ints(s->from, key, &given, &n, &err), 1);
    int32_t *ints = calloc(n, sizeof *ints);
    uint8_t *bools = calloc(n, 1);

    assert_true(ints && bools);
    memcpy(ints, given, n * sizeof *ints);
    for (size_t i = 0; i < n; i++)
        bools[i] = given[i] != 0;
    ints[0] = !ints[0];
    bools[0] = !bools[0];
    yes = has_effect(
        s, &(other){ .key = key, .type = RG_META_ARRAY, .ints = ints, .bools = flags ? bools : NULL, .n = n });
    free(ints);
    free(bools);
    return yes;
}

static void visit(void *arg, const char *key, rg_meta_type type, bool understood)
{
    subject *s = arg;
    double value = 0;
    bool yes = true;

    (void)understood;
    if (strncmp(key, s->prefix, strlen(s->prefix)) != 0 || is_harmless(s, key + strlen(s->prefix)))
        return;
    if (type == RG_META_INT || type == RG_META_FLOAT)
        yes = rg_meta_float(s->from, key, &value, NULL) == 1 && try_number(s, key, type, value);
    else if (type == RG_META_BOOL)
        yes = rg_meta_bool(s->from, key, &yes, NULL) == 1 &&
              has_effect(s, &(other){ .key = key, .type = type, .value = !yes });
    else if (type == RG_META_STRING)
        yes = has_effect(s, &(other){ .key = key, .type = type, .text = "other" });
    else if (type == RG_META_ARRAY)
        yes = try_list(s, key);
    if (!yes)
        tell(s, key);
}

static void try_known(subject *s)
{
    static const rg_meta_type types[] = { RG_META_INT, RG_META_FLOAT, RG_META_FLOAT, RG_META_BOOL };
    char key[160];

    for (size_t i = 0; i < RG_LEN(known); i++) {
        snprintf(key, sizeof key, "%s%s", s->prefix, known[i].key);
        if (rg_meta_type_of(s->from, key) == RG_META_NONE && !is_harmless(s, known[i].key) &&
            !has_effect(s, &(other){ .key = key, .type = types[known[i].kind], .value = known[i].value }))
            tell(s, key);
    }
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void every_key_has_an_effect(void **state)
{
    int n_tried = 0, n_failed = 0, n_files = 0;
    static subject s;
    char *notes;

    (void)state;
    for (size_t i = 0; i < RG_LEN(test_goldens); i++) {
        rg_error err = { 0 };
        char name[128];

        if (rg_path_look(test_golden(test_goldens[i], "model.gguf")) == RG_PATH_NONE)
            continue;
        rg_checkpoint *ckpt = rg_checkpoint_open(test_golden(test_goldens[i], "model.gguf"), RG_CKPT_DEFAULT, &err);
        assert_ok(ckpt, err);
        s = (subject){ .golden = test_goldens[i], .from = ckpt };
        snprintf(s.prefix, sizeof s.prefix, "%s", rg_gguf_key(ckpt, "", name));
        assert_true(read_variant(&s, NULL, &s.base, &notes));
        rg_free(notes);
        rg_meta_each(ckpt, visit, &s);
        try_known(&s);
        rg_checkpoint_close(ckpt);
        n_tried += s.n_tried;
        n_failed += s.n_failed;
        n_files++;
    }
    print_message("%d values in %d files\n", n_tried, n_files);
    assert_true(n_files > 30 && n_failed == 0);
}

/* As other engines read it. */
static void a_factor_alone_is_linear(void **state)
{
    static const char *const keys[] = { "llama.rope.scaling.factor", "llama.rope.scale_linear" };
    static rg_config c;
    rg_error err = { 0 };
    rg_checkpoint *ckpt = rg_checkpoint_open(test_golden("llama", "model.gguf"), RG_CKPT_DEFAULT, &err);
    const subject s = { .golden = "llama", .prefix = "llama.", .from = ckpt };
    char *notes;

    (void)state;
    assert_ok(ckpt, err);
    for (size_t i = 0; i < RG_LEN(keys); i++) {
        assert_true(read_variant(&s, &(other){ .key = keys[i], .type = RG_META_FLOAT, .value = 4 }, &c, &notes));
        assert_int_equal(c.ropes[0].type, RG_ROPE_LINEAR);
        assert_true(c.ropes[0].factor == 4);
        rg_free(notes);
    }
    rg_checkpoint_close(ckpt);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_an_effect),
        cmocka_unit_test(a_factor_alone_is_linear),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
