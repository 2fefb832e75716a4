/* Every known key of every family, set to another value: what the model computes changes, or it cannot be opened, or a note
 * names the key.  The keys are those of the architecture's table, of the golden's own config.json, and of known_keys.json
 * (by model_type; "*": of all).  Keys that change nothing by their nature stand in matters_not.def, with the reason. */
#include "support/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/arch.h"
#include "model/notes.h"
#include "support/goldens.h"

enum { N_IDS = 24, MAX_FAILURES = 40 };

static const struct {
    const char *type, *key,
        *why; /* type: a model_type, a golden, or "*"; a key that ends with '*' stands for all that begin so */
} matters_not[] = {
#include "matters_not.def"
};

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* What a model makes of N_IDS ids: hidden states and logits. */
typedef struct outcome {
    float *values;
    size_t n;
    int dim, vocab;
} outcome;

static void take_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    outcome *o = arg;

    (void)thread, (void)i;
    for (int r = 0; r < N_IDS; r++)
        memcpy(o->values + r * o->dim, rows + (size_t)r * stride, (size_t)o->dim * sizeof(float));
}

static void take_logits(void *arg, int thread, int i, float *logits)
{
    outcome *o = arg;

    (void)thread;
    memcpy(o->values + N_IDS * o->dim + i * o->vocab, logits, (size_t)o->vocab * sizeof(float));
}

static void take_scores(void *arg, int thread, int i, const float *scores)
{
    outcome *o = arg;

    (void)thread, (void)i;
    o->values[o->n - 1] = scores[0];
}

static void run_step(const test_model *t, const test_rig *rig, rg_seq *q, outcome *o)
{
    int32_t token[N_IDS], kv_end[N_IDS], at[N_IDS], pos[N_IDS][4] = { { 0 } };
    const rg_config *c = &t->m->config;
    rg_span span = { .adapter = -1 };
    rg_rows whole = { 0, N_IDS }, scored = { 0, c->score_pooling == RG_POOLING_MEAN ? N_IDS : 1 };
    rg_batch b = { .n_rows = N_IDS,
                   .n_spans = 1,
                   .spans = &span,
                   .token = token,
                   .index = at,
                   .kv_end = kv_end,
                   .pos = (const int32_t(*)[4])pos,
                   .n_hidden = 1,
                   .hidden = &whole,
                   .logit_rows = at,
                   .n_logits = c->arch->is_encoder ? 0 : N_IDS,
                   .n_scores = c->n_labels ? 1 : 0,
                   .scores = &scored };

    rg_seq_span(rig->states, q, N_IDS, 0, &span);
    for (int i = 0; i < N_IDS; i++) {
        token[i] = i * 37 % 250;
        at[i] = pos[i][0] = i;
        kv_end[i] = rg_kv_end(rig->runner->sees, i, N_IDS);
    }
    rig->runner->step(rig->runner, &b,
                      &(rg_sink){ .logits = take_logits, .hidden = take_hidden, .scores = take_scores, .arg = o });
}

static outcome compute(const test_model *t)
{
    const rg_config *c = &t->m->config;
    rg_error err = { 0 };
    const test_rig_options how = { .backend = rg_backend_find(test_isa ? test_isa : "auto", &err),
                                   .n_threads = 1,
                                   .max_rows = N_IDS,
                                   .max_seqs = 1,
                                   .max_len = N_IDS,
                                   .state_bytes = 4 << 20 };
    outcome o = { .dim = c->dim, .vocab = c->arch->is_encoder ? 0 : c->vocab_size };
    test_rig rig;

    o.n = (size_t)N_IDS * (size_t)(o.dim + o.vocab) + 1;
    o.values = calloc(o.n, sizeof *o.values);
    assert_non_null(o.values);
    test_rig_open(&rig, t, &how);
    rg_seq *q = rg_seq_new(rig.states, N_IDS, 0, &err);
    assert_ok(q, err);
    if (rig.runner->sees != RG_CAUSAL || c->arch->is_encoder)
        rg_seq_scratch(q);
    assert_true(rg_seq_grow(rig.states, q, N_IDS));
    run_step(t, &rig, q, &o);
    rg_seq_advance(rig.states, q, N_IDS, 0, NULL);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    return o;
}

static bool differ(const outcome *a, const outcome *b)
{
    return a->n != b->n || memcmp(a->values, b->values, a->n * sizeof *a->values) != 0;
}

/* ---- one golden -------------------------------------------------------------------------------------------------- */

typedef struct subject {
    const char *golden;
    json_t *config, *text; /* its config.json; in it the settings of the language model */
    const char *type;      /* its model_type */
    rg_config base;
    outcome usual;
    int n_tried, n_computed;
} subject;

static int n_failures;

static void failed(const subject *s, const char *key, const json_t *value, const char *what)
{
    char *text = value ? rg_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (n_failures++ < MAX_FAILURES || getenv("RIDGE_TEST_ALL"))
        print_error("%s (%s): %s: %s %s\n", s->golden, s->type, key, text ? text : "absent", what);
    rg_free(text);
}

/* The folder of the golden's weights, with its config as it is now. */
static const char *write_variant(const subject *s)
{
    char path[600];
    const char *dir = test_scratch(s->golden);

    if (mkdir(dir, 0755) == 0) {
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        assert_int_equal(symlink(test_golden(s->golden, "model.safetensors"), path), 0);
    }
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(json_dump_file(s->config, path, 0), 0);
    return dir;
}

static test_model open_model(const subject *s, rg_error *err)
{
    test_model t = { .ckpt = rg_checkpoint_open(write_variant(s), RG_CKPT_DEFAULT, err) };

    t.m = t.ckpt ? rg_model_open(t.ckpt, &(rg_model_options){ .kv_type = "f32", .n_threads = 1 }, err) : NULL;
    if (!t.m)
        test_model_close(&t);
    return t;
}

/* The golden's config.json; false: it has none. */
static bool load(subject *s, const char *golden)
{
    *s = (subject){ .golden = golden };
    if (rg_path_look(test_golden(golden, "config.json")) == RG_PATH_NONE)
        return false;
    s->config = json_load_file(test_golden(golden, "config.json"), 0, NULL);
    assert_non_null(s->config);
    s->text = json_object_get(s->config, "text_config");
    s->text = s->text ? s->text : s->config;
    s->type = json_string_value(json_object_get(s->text, "model_type"));
    assert_non_null(s->type);
    return true;
}

static bool begins(subject *s, const char *golden)
{
    rg_error err = { 0 };

    if (!load(s, golden))
        return false;
    test_model t = open_model(s, &err);
    assert_ok(t.m, err);
    s->base = t.m->config;
    s->usual = compute(&t);
    test_model_close(&t);
    return true;
}

static void ends(subject *s)
{
    json_decref(s->config);
    free(s->usual.values);
}

static bool is_harmless(const subject *s, const char *key)
{
    for (size_t i = 0; i < RG_LEN(matters_not); i++) {
        size_t n = strlen(matters_not[i].key);
        bool all = matters_not[i].key[n - 1] == '*';

        if ((!strcmp(matters_not[i].type, "*") || !strcmp(matters_not[i].type, s->type) ||
             !strcmp(matters_not[i].type, s->golden)) &&
            (all ? !strncmp(key, matters_not[i].key, n - 1) : !strcmp(key, matters_not[i].key)))
            return true;
    }
    return false;
}

/* A note that names the key: whole, or its last part in quotes or before a blank. */
static bool names(const char *notes, const char *key)
{
    const char *last = strrchr(key, '.');

    return strstr(notes, last ? last + 1 : key);
}

/* True if the variant that is written now cannot be opened, or a note names the key. */
static bool is_told(const subject *s, const char *key, rg_config *changed)
{
    rg_error err = { 0 };
    rg_checkpoint *ckpt = rg_checkpoint_open(write_variant(s), RG_CKPT_DEFAULT, &err);
    bool yes = !ckpt || !rg_config_read(changed, ckpt, &err);

    if (!yes) {
        char *notes = rg_notes(changed, ckpt, &err);

        yes = names(notes, key);
        rg_free(notes);
    }
    rg_checkpoint_close(ckpt);
    return yes;
}

/* True if it changes what comes out, or says something. */
static bool has_effect(subject *s, const char *key)
{
    static rg_config changed;
    rg_error err = { 0 };

    s->n_tried++;
    if (is_told(s, key, &changed) || changed.max_seq_len != s->base.max_seq_len)
        return true;
    if (!memcmp(&changed, &s->base, sizeof changed))
        return false;
    test_model t = open_model(s, &err);
    if (!t.m)
        return true;
    outcome now = compute(&t);
    bool yes = differ(&now, &s->usual);

    s->n_computed++;
    free(now.values);
    test_model_close(&t);
    return yes;
}

/* ---- other values ------------------------------------------------------------------------------------------------ */

/* Another value of the same kind, by turn 0 smaller and by turn 1 larger; NULL: null, of which nothing is known, or there is
 * no second one. */
static json_t *other_value(const json_t *value, int turn)
{
    json_int_t n = json_integer_value(value);
    json_t *list, *first;

    if (turn && !json_is_number(value))
        return NULL;
    switch (json_typeof(value)) {
    case JSON_TRUE:
    case JSON_FALSE:
        return json_boolean(!json_is_true(value));
    case JSON_INTEGER:
        return json_integer(turn ? 8 * n + 8 : n > 3 && n % 2 == 0 ? n / 2 : n + 1);
    case JSON_REAL:
        return json_real(turn ? json_real_value(value) * 8 : json_real_value(value) * 0.5 + 0.125);
    case JSON_STRING:
        return json_string("other");
    case JSON_ARRAY:
        list = json_deep_copy(value);
        first = json_array_get(list, 0);
        if (json_is_integer(first)) /* a flag, in many lists */
            json_array_set_new(list, 0, json_integer(!json_integer_value(first)));
        else if (first)
            json_array_set_new(list, 0, other_value(first, 0));
        else
            json_array_append_new(list, json_integer(0));
        return list;
    default:
        return NULL;
    }
}

/* True if this value at the key has an effect. */
static bool try_one(subject *s, json_t *object, const char *name, const char *key, json_t *value)
{
    json_t *before = json_incref(json_object_get(object, name));

    json_object_set(object, name, value);
    bool yes = (before && json_equal(before, value)) || has_effect(s, key);

    if (before)
        json_object_set_new(object, name, before);
    else
        json_object_del(object, name);
    return yes;
}

/* Of the key as it is, or of `known` where config.json leaves it out. */
static void try_value(subject *s, json_t *object, const char *name, const char *key, const json_t *known)
{
    const json_t *like = json_object_get(object, name);
    bool yes = false, tried = false;

    if (is_harmless(s, key))
        return;
    for (int turn = 0; turn < 3 && !yes; turn++) {
        json_t *value = turn < 2 ? (like ? other_value(like, turn) : NULL) : json_incref((json_t *)(uintptr_t)known);

        if (value) {
            tried = true;
            yes = try_one(s, object, name, key, value);
        }
        json_decref(value);
    }
    if (tried && !yes)
        failed(s, key, known ? known : like, "and other values change nothing, and nothing is said");
}

/* Each key that the object has, and those of objects in it. */
static void try_own(subject *s, json_t *object, const char *prefix)
{
    json_t *copy = json_deep_copy(object), *value, *inner;
    const char *name;
    char key[160], below[176];

    json_object_foreach(copy, name, value)
    {
        snprintf(key, sizeof key, "%s%s", prefix, name);
        inner = json_object_get(object, name);
        if (json_is_object(value)) {
            snprintf(below, sizeof below, "%s.", key);
            if (!is_harmless(s, key))
                try_own(s, inner, below);
        } else {
            try_value(s, object, name, key, NULL);
        }
    }
    json_decref(copy);
}

static void try_known(subject *s, const json_t *known)
{
    const char *types[] = { s->type, "*" }, *name;
    json_t *value;

    for (size_t i = 0; i < RG_LEN(types); i++) {
        json_object_foreach(json_object_get(known, types[i]), name, value) if (!json_object_get(s->text, name))
            try_value(s, s->text, name, name, value);
    }
}

/* A key of the table is of a known kind, also where config.json leaves it out. */
static void try_table(subject *s)
{
    const rg_arch *a = s->base.arch;

    for (size_t i = 0; i < a->n_keys; i++) {
        const rg_key *k = &a->keys[i];
        double v = k->hf ? rg_config_value(&s->base, k->hf) : 0;

        if (!k->hf || strchr(k->hf, '.') || json_object_get(s->text, k->hf))
            continue;
        json_t *value = k->kind == KEY_BOOL ? json_boolean(v == 0)
                        : k->kind == KEY_INT
                            ? json_integer(v > 3 && fmod(v, 2) == 0 ? (json_int_t)v / 2 : (json_int_t)v + 1)
                            : json_real(v * 0.5 + 0.125);
        try_value(s, s->text, k->hf, k->hf, value);
        json_decref(value);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void every_key_has_an_effect(void **state)
{
    static subject s;
    json_t *known = json_load_file(RG_SOURCE_DIR "/tests/model/known_keys.json", 0, NULL);
    int n_tried = 0, n_computed = 0;

    (void)state;
    assert_non_null(known);
    n_failures = 0;
    for (size_t i = 0; i < RG_LEN(test_goldens); i++) {
        if (!strcmp(test_goldens[i], "gpt-oss-mxfp4") || !begins(&s, test_goldens[i]))
            continue;
        try_own(&s, s.text, "");
        try_table(&s);
        try_known(&s, known);
        n_tried += s.n_tried;
        n_computed += s.n_computed;
        ends(&s);
    }
    json_decref(known);
    print_message("%d values, %d models computed\n", n_tried, n_computed);
    if (n_failures)
        fail_msg("%d values change nothing", n_failures);
}

/* Settings that are followed in one class and not in another, and those of which a note says that they are not. */
static void classes_differ(void **state)
{
    static const struct {
        const char *golden, *change, *note; /* note: what is said, or NULL: nothing */
        size_t at;
        int want;
    } cases[] = {
        { "minimax", "{}", "rotary_dim", offsetof(rg_config, ropes[0].dim), 16 },
        { "minimax", "{\"architectures\": null, \"model_type\": \"minimax_text_01\"}", NULL,
          offsetof(rg_config, ropes[0].dim), 8 },
        { "minimax", "{\"rotary_dim\": 16}", NULL, offsetof(rg_config, ropes[0].dim), 16 },
        { "deepseek-v2", "{\"norm_topk_prob\": true}", "norm_topk_prob", offsetof(rg_config, ropes[0].dim), 8 },
        { "phi4-mini", "{\"original_max_position_embeddings\": 2048}", NULL, offsetof(rg_config, ropes[0].dim), 12 },
    };
    static subject s;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        json_t *change = json_loads(cases[i].change, 0, NULL), *value;
        rg_error err = { 0 };
        const char *key;

        assert_true(load(&s, cases[i].golden));
        json_object_foreach(change, key, value)
        {
            if (json_is_null(value))
                json_object_del(s.text, key);
            else
                json_object_set(s.text, key, value);
        }
        test_model t = open_model(&s, &err);
        assert_ok(t.m, err);
        assert_int_equal(*(const int *)(const void *)((const char *)&t.m->config + cases[i].at), cases[i].want);
        if (cases[i].note ? !strstr(t.m->notes, cases[i].note) : t.m->notes[0] != 0)
            fail_msg("%s %s: the note is '%s'", cases[i].golden, cases[i].change, t.m->notes);
        test_model_close(&t);
        json_decref(change);
        json_decref(s.config);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_an_effect),
        cmocka_unit_test(classes_differ),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
