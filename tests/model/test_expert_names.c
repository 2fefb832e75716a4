/* test_expert_names.c -- experts one by one or stacked, gate and up apart or in one tensor, turned or not, under the names
 * of other families: the same bits from every golden with experts; and GGUF's ways, old and new. */
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert.h"

enum { ROWS = 24, MAX_LAYERS = 12, MAX_EXPERTS = 16 };

/* ---- what a model gives ------------------------------------------------------------------------------------------ */

static float *logits_of(const char *path, size_t *n)
{
    const test_rig_options o = {
        .backend = test_backend(0), .n_threads = 1, .exact = true, .max_rows = ROWS, .max_seqs = 1, .max_len = ROWS
    };
    test_model m;

    test_model_open(&m, path, "f32");
    *n = (size_t)ROWS * (size_t)m.m->config.vocab_size;
    assert_int_equal(m.m->n_unused, 0);
    float *out = test_logits(&m, &o, ROWS, ROWS);
    test_model_close(&m);
    return out;
}

static void same_logits(const char *model, const char *form, const char *path, const float *want, size_t n_want)
{
    size_t n;
    float *got = logits_of(path, &n);

    if (n != n_want || memcmp(got, want, n * sizeof *want) != 0)
        fail_msg("%s, %s: other logits", model, form);
    free(got);
}

/* ---- a layer's experts, as matrices ------------------------------------------------------------------------------ */

typedef struct experts {
    int n; /* of them; 0: the layer has none */
    int64_t dim, ffn;
    size_t size; /* bytes of a value */
    rg_type type;
    bool has_gate, by_turns;
    uint8_t *w[3]; /* gate and up [n][ffn][dim], down [n][dim][ffn] */
    uint8_t *b[3]; /* [n][ffn] twice, [n][dim]; NULL: no biases */
} experts;

/* How the golden has them. */
typedef struct golden {
    const char *model, *layer, *module; /* names of layers begin with layer, a number and '.' */
    const char *names[3];               /* of gate, up and down; '*': the expert's number; gate NULL: there is none */
    bool fused, turned, by_turns;
} golden;

static const golden goldens[] = {
    { "mixtral", "model.layers.", "block_sparse_moe", { "experts.*.w1", "experts.*.w3", "experts.*.w2" } },
    { "minimax-m2", "model.layers.", "block_sparse_moe", { "experts.*.w1", "experts.*.w3", "experts.*.w2" } },
    { "minimax", "model.layers.", "block_sparse_moe", { "experts.*.w1", "experts.*.w3", "experts.*.w2" } },
    { "phi-moe", "model.layers.", "block_sparse_moe", { "experts.*.w1", "experts.*.w3", "experts.*.w2" } },
    { "kimi-linear", "model.layers.", "block_sparse_moe", { "experts.*.w1", "experts.*.w3", "experts.*.w2" } },
    { "lfm2-moe", "model.layers.", "feed_forward", { "experts.*.w1", "experts.*.w3", "experts.*.w2" } },
#define PROJ                                                                                                           \
    {                                                                                                                  \
        "experts.*.gate_proj", "experts.*.up_proj", "experts.*.down_proj"                                              \
    }
    { "qwen3-moe", "model.layers.", "mlp", PROJ },
    { "qwen3-next", "model.layers.", "mlp", PROJ },
    { "deepseek-v2", "model.layers.", "mlp", PROJ },
    { "deepseek-v3", "model.layers.", "mlp", PROJ },
    { "deepseek-v32", "model.layers.", "mlp", PROJ },
    { "glm-dsa", "model.layers.", "mlp", PROJ },
    { "glm4-moe", "model.layers.", "mlp", PROJ },
    { "cla2-moe", "model.layers.", "mlp", PROJ },
    { "jamba", "model.layers.", "feed_forward", PROJ },
    { "nemotron-h-moe", "backbone.layers.", "mixer", { NULL, "experts.*.up_proj", "experts.*.down_proj" } },
#define FUSED { "experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj" }, .fused = true
    { "qwen35-moe", "model.language_model.layers.", "mlp", FUSED },
    { "gemma4-moe", "model.language_model.layers.", "", FUSED },
    { "llama4", "model.layers.", "feed_forward", FUSED, .turned = true },
    { "gpt-oss", "model.layers.", "mlp", FUSED, .turned = true, .by_turns = true },
    { "granite-hybrid",
      "model.layers.",
      "block_sparse_moe",
      { "input_linear", "input_linear", "output_linear" },
      .fused = true },
};

static test_tensor *named(test_tensors *s, const golden *g, int layer, const char *name, int expert, const char *end)
{
    char full[192], number[16] = "";
    const char *star = strchr(name, '*');

    if (star)
        snprintf(number, sizeof number, "%d", expert);
    snprintf(full, sizeof full, "%s%d.%s%s%.*s%s%s%s", g->layer, layer, g->module, g->module[0] ? "." : "",
             star ? (int)(star - name) : (int)strlen(name), name, number, star ? star + 1 : "", end);
    return test_tensors_find(s, full);
}

static test_tensor *with_weight(test_tensors *s, const golden *g, int layer, const char *name, int expert)
{
    test_tensor *t = named(s, g, layer, name, expert, ".weight");

    return t ? t : named(s, g, layer, name, expert, "");
}

/* Row r, column k of one matrix of a tensor that may be turned. */
static const uint8_t *value(const test_tensor *t, bool turned, int64_t rows, int64_t cols, int64_t mat, int64_t r,
                            int64_t k, size_t size)
{
    return t->data + (size_t)(mat * rows * cols + (turned ? k * rows + r : r * cols + k)) * size;
}

static int count(test_tensors *s, const golden *g, int layer)
{
    const test_tensor *t = with_weight(s, g, layer, g->names[2], 0);
    int n = 0;

    if (t && !strchr(g->names[2], '*'))
        return (int)t->shape[0];
    while (t && with_weight(s, g, layer, g->names[2], n))
        n++;
    return n;
}

static void take_biases(experts *x, test_tensors *s, const golden *g, int layer)
{
    test_tensor *gate_up = named(s, g, layer, "experts.gate_up_proj_bias", 0, ""), *down;

    if (!gate_up)
        return;
    down = named(s, g, layer, "experts.down_proj_bias", 0, "");
    for (int i = 0; i < 2; i++) {
        x->b[i] = malloc((size_t)(x->n * x->ffn) * x->size);
        for (int64_t k = 0; k < x->n * x->ffn; k++) /* by turns */
            memcpy(x->b[i] + (size_t)k * x->size, gate_up->data + (size_t)(2 * k + i) * x->size, x->size);
    }
    x->b[2] = malloc(down->bytes);
    memcpy(x->b[2], down->data, down->bytes);
    gate_up->name[0] = down->name[0] = 0;
}

/* Take the experts of a layer out of the checkpoint. */
static experts take(test_tensors *s, const golden *g, int layer)
{
    experts x = { .n = count(s, g, layer), .has_gate = g->names[0], .by_turns = g->by_turns };

    if (!x.n)
        return x;
    const test_tensor *down = with_weight(s, g, layer, g->names[2], 0);
    const bool stacked = !strchr(g->names[2], '*');
    x.type = down->type;
    x.size = (size_t)rg_format_of(x.type)->block_bytes;
    x.dim = down->shape[stacked + g->turned];
    x.ffn = down->shape[stacked + !g->turned];
    for (int i = x.has_gate ? 0 : 1; i < 3; i++) {
        const int64_t rows = i < 2 ? x.ffn : x.dim, cols = i < 2 ? x.dim : x.ffn,
                      all = g->fused && i < 2 ? 2 * rows : rows;

        x.w[i] = malloc((size_t)(x.n * rows * cols) * x.size);
        for (int e = 0; e < x.n; e++) {
            const test_tensor *t = with_weight(s, g, layer, g->names[i], e);

            assert_non_null(t);
            for (int64_t r = 0; r < rows; r++) {
                const int64_t at = !(g->fused && i < 2) ? r : g->by_turns ? 2 * r + i : r + i * rows;
                for (int64_t k = 0; k < cols; k++)
                    memcpy(x.w[i] + (size_t)((e * rows + r) * cols + k) * x.size,
                           value(t, g->turned, all, cols, stacked ? e : 0, at, k, x.size), x.size);
            }
        }
    }
    take_biases(&x, s, g, layer);
    for (int i = x.has_gate ? 0 : 1; i < 3; i++)
        for (int e = 0; e < x.n; e++) {
            test_tensor *t = with_weight(s, g, layer, g->names[i], e);
            if (t)
                t->name[0] = 0;
        }
    return x;
}

/* ---- in another form --------------------------------------------------------------------------------------------- */

typedef struct form {
    const char *what, *names[3];
    bool fused, turned;
    const char *end; /* of names of tensors */
} form;

static const form forms[] = {
    { "one by one", { "experts.*.gate_proj", "experts.*.up_proj", "experts.*.down_proj" }, .end = ".weight" },
    { "w1, w2, w3", { "experts.*.w1", "experts.*.w3", "experts.*.w2" }, .end = ".weight" },
    { "fused", { "experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj" }, .fused = true, .end = "" },
    { "turned",
      { "experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj" },
      .fused = true,
      .turned = true,
      .end = "" },
    { "stacked", { "experts.gate_proj", "experts.up_proj", "experts.down_proj" }, .end = "" },
    { "stacked with .weight", { "experts.gate_proj", "experts.up_proj", "experts.down_proj" }, .end = ".weight" },
    { "fused one by one",
      { "experts.*.gate_up_proj", "experts.*.gate_up_proj", "experts.*.down_proj" },
      .fused = true,
      .end = ".weight" },
    { "lists",
      { "experts.gate_up_projs.*", "experts.gate_up_projs.*", "experts.down_projs.*" },
      .fused = true,
      .end = ".weight" },
    { "switch", { "switch_mlp.gate_proj", "switch_mlp.up_proj", "switch_mlp.down_proj" }, .end = ".weight" },
    { "linear", { "input_linear", "input_linear", "output_linear" }, .fused = true, .end = ".weight" },
};

static test_tensor *add(test_tensors *s, const golden *g, int layer, const char *module, const char *name, int expert,
                        const char *end, rg_type type, int n_dims, const int64_t *shape)
{
    char full[192], number[16] = "";
    const char *star = strchr(name, '*');

    if (star)
        snprintf(number, sizeof number, "%d", expert);
    snprintf(full, sizeof full, "%s%d.%s%s%.*s%s%s%s", g->layer, layer, module, module[0] ? "." : "",
             star ? (int)(star - name) : (int)strlen(name), name, number, star ? star + 1 : "", end);
    return test_tensors_add(s, full, type, n_dims, shape);
}

/* Tensor i of the form (gate or up of a fused one: both). */
static void put_matrices(test_tensors *s, const golden *g, int layer, const char *module, const experts *x,
                         const form *f, int i)
{
    const bool stacked = !strchr(f->names[i], '*'), both = f->fused && i < 2;
    const int64_t each = i < 2 ? x->ffn : x->dim, cols = i < 2 ? x->dim : x->ffn, rows = both ? 2 * each : each;
    const int64_t sides[3] = { x->n, f->turned ? cols : rows, f->turned ? rows : cols };
    test_tensor *t = NULL;

    for (int e = 0; e < x->n; e++) {
        if (!stacked || !t)
            t = add(s, g, layer, module, f->names[i], e, f->end, x->type, stacked ? 3 : 2, stacked ? sides : sides + 1);
        for (int64_t r = 0; r < rows; r++) {
            const int which = !both ? i : x->by_turns ? (int)(r % 2) : (int)(r / each);
            const int64_t from = !both ? r : x->by_turns ? r / 2 : r % each;
            for (int64_t k = 0; k < cols; k++)
                memcpy((uint8_t *)(uintptr_t)value(t, f->turned, rows, cols, stacked ? e : 0, r, k, x->size),
                       x->w[which] + (size_t)((e * each + from) * cols + k) * x->size, x->size);
        }
    }
}

/* Biases beside the matrices: "_bias" of those without an end, else ".bias". */
static void put_biases(test_tensors *s, const golden *g, int layer, const char *module, const experts *x, const form *f,
                       int i)
{
    const bool stacked = !strchr(f->names[i], '*'), both = f->fused && i < 2;
    const int64_t each = i < 2 ? x->ffn : x->dim, n = both ? 2 * each : each, sides[2] = { x->n, n };
    test_tensor *t = NULL;

    for (int e = 0; x->b[i] && e < x->n; e++) {
        if (!stacked || !t)
            t = add(s, g, layer, module, f->names[i], e, f->end[0] ? ".bias" : "_bias", x->type, stacked ? 2 : 1,
                    stacked ? sides : sides + 1);
        for (int64_t r = 0; r < n; r++) {
            const int which = !both ? i : x->by_turns ? (int)(r % 2) : (int)(r / each);
            const int64_t from = !both ? r : x->by_turns ? r / 2 : r % each;
            memcpy(t->data + (size_t)((stacked ? e * n : 0) + r) * x->size,
                   x->b[which] + (size_t)(e * each + from) * x->size, x->size);
        }
    }
}

static bool fits(const golden *g, const experts *x, const form *f)
{
    if (!x->n)
        return true;
    if (f->fused && !x->has_gate)
        return false;
    /* Of squares nothing tells whether they are turned, but what the family does. */
    return f->turned == g->turned || (2 * x->ffn != x->dim && x->ffn != x->dim) || strchr(f->names[2], '*');
}

static void rewrite(const golden *g, const form *f, const char *module, const float *want, size_t n_want)
{
    const char *folder = test_variant("experts", g->model, "config.json", NULL, NULL);
    test_tensors *s = test_tensors_read(g->model);
    bool all_fit = true;

    for (int layer = 0; layer < MAX_LAYERS; layer++) {
        experts x = take(s, g, layer);

        all_fit = all_fit && fits(g, &x, f);
        for (int i = x.has_gate ? 0 : 1; x.n && all_fit && i < 3; i++) {
            if (f->fused && i == 1)
                continue;
            put_matrices(s, g, layer, module, &x, f, i);
            put_biases(s, g, layer, module, &x, f, i);
        }
        for (int i = 0; i < 3; i++) {
            free(x.w[i]);
            free(x.b[i]);
        }
    }
    if (all_fit) {
        test_tensors_write(s, folder);
        same_logits(g->model, f->what, folder, want, n_want);
    }
    test_tensors_free(s);
}

static void every_form_of_every_family(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(goldens); i++) {
        size_t n;
        float *want = logits_of(test_data(goldens[i].model), &n);

        for (size_t f = 0; f < RG_LEN(forms); f++)
            rewrite(&goldens[i], &forms[f], goldens[i].module, want, n);
        free(want);
    }
}

/* The whole module, with its router, under another family's name. */
static void under_other_modules(void **state)
{
    static const struct {
        const char *model, *from, *to, *router, *other_router;
    } cases[] = {
        { "mixtral", "block_sparse_moe.", "mlp.", "gate.", "router." },
        { "qwen3-moe", "mlp.experts", "block_sparse_moe.experts", "", "" },
        { "minimax-m2", "block_sparse_moe.", "mlp.", "e_score_correction_bias", "gate.e_score_correction_bias" },
        { "jamba", "feed_forward.router", "mlp.gate", "", "" },
        { "deepseek-v3", "mlp.shared_experts", "mlp.shared_expert", "", "" },
        { "gpt-oss", "mlp.router.", "mlp.router.linear.", "", "" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t n;
        float *want = logits_of(test_data(cases[i].model), &n);
        const char *folder = test_variant("modules", cases[i].model, "config.json", NULL, NULL);
        test_tensors *s = test_tensors_read(cases[i].model);
        int renamed = 0;

        for (int layer = 0; layer < MAX_LAYERS; layer++) {
            char from[160], to[160];

            snprintf(from, sizeof from, "model.layers.%d.%s%s", layer, cases[i].from, cases[i].router);
            snprintf(to, sizeof to, "model.layers.%d.%s%s", layer, cases[i].to, cases[i].other_router);
            renamed += test_tensors_rename(s, from, to);
            snprintf(from, sizeof from, "model.layers.%d.%sexperts", layer, cases[i].from);
            snprintf(to, sizeof to, "model.layers.%d.%sexperts", layer, cases[i].to);
            renamed += test_tensors_rename(s, from, to);
        }
        assert_true(renamed > 0);
        test_tensors_write(s, folder);
        test_tensors_free(s);
        same_logits(cases[i].model, cases[i].to, folder, want, n);
        free(want);
    }
}

/* A folder in one form becomes the GGUF file that it becomes in the other. */
static void as_gguf(void **state)
{
    static const struct {
        const char *model, *form;
    } cases[] = { { "deepseek-v2", "fused" },  { "qwen35-moe", "one by one" }, { "gemma4-moe", "one by one" },
                  { "gpt-oss", "one by one" }, { "gpt-oss", "lists" },         { "mixtral", "turned" } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const rg_convert_options o = { .type = RG_F32, .n_threads = 1 };
        const char *folder = test_scratch("experts"), *file = test_scratch("experts.gguf");
        const golden *g = goldens;
        const form *f = forms;
        rg_convert_report r;
        rg_error err = { 0 };
        size_t n, n_got;

        while (strcmp(g->model, cases[i].model))
            g++;
        while (strcmp(f->what, cases[i].form))
            f++;
        float *want = logits_of(test_data(g->model), &n);
        rewrite(g, f, g->module, want, n);
        rg_checkpoint *c = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        assert_ok(rg_convert(&r, c, file, &o, &err), err);
        rg_convert_report_fini(&r);
        rg_checkpoint_close(c);
        float *got = logits_of(file, &n_got);
        assert_int_equal(n_got, n);
        test_close_to(g->model, got, want, n, 1e-4f);
        free(got);
        free(want);
    }
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

/* The stacked tensor of a role in a layer, cut into its experts' or joined with another. */
static test_tensor *of_gguf(test_tensors *s, int layer, const char *role)
{
    char name[96];

    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, role);
    return test_tensors_find(s, name);
}

static void cut_up(test_tensors *s, int layer, const char *role, const char *each)
{
    test_tensor *t = of_gguf(s, layer, role);
    char name[96];

    for (int e = 0; t && e < t->shape[0]; e++) {
        snprintf(name, sizeof name, "blk.%d.%s.%d.weight", layer, each, e);
        test_tensor *one = test_tensors_add(s, name, t->type, 2, t->shape + 1);
        memcpy(one->data, t->data + (size_t)e * one->bytes, one->bytes);
    }
    if (t)
        t->name[0] = 0;
}

static void join(test_tensors *s, int layer)
{
    test_tensor *gate = of_gguf(s, layer, "ffn_gate_exps"), *up = of_gguf(s, layer, "ffn_up_exps");
    char name[96];

    if (!gate)
        return;
    snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps.weight", layer);
    test_tensor *both = test_tensors_add(s, name, gate->type, 3,
                                         (const int64_t[]){ gate->shape[0], 2 * gate->shape[1], gate->shape[2] });
    const size_t one = gate->bytes / (size_t)gate->shape[0];
    for (int64_t e = 0; e < gate->shape[0]; e++) {
        memcpy(both->data + 2 * (size_t)e * one, gate->data + (size_t)e * one, one);
        memcpy(both->data + (2 * (size_t)e + 1) * one, up->data + (size_t)e * one, one);
    }
    gate->name[0] = up->name[0] = 0;
}

static void split(test_tensors *s, int layer)
{
    test_tensor *both = of_gguf(s, layer, "ffn_gate_up_exps");

    for (int i = 0; both && i < 2; i++) {
        char name[96];

        snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, i ? "up" : "gate");
        test_tensor *t = test_tensors_add(s, name, both->type, 3,
                                          (const int64_t[]){ both->shape[0], both->shape[1] / 2, both->shape[2] });
        const size_t one = t->bytes / (size_t)t->shape[0];
        for (int64_t e = 0; e < t->shape[0]; e++)
            memcpy(t->data + (size_t)e * one, both->data + (2 * (size_t)e + (size_t)i) * one, one);
    }
    if (both)
        both->name[0] = 0;
}

static void forms_of_gguf(void **state)
{
    static const char *const models[] = { "mixtral", "deepseek-v2", "gemma4-moe", "minimax-m2" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        for (int way = 0; way < 2; way++) {
            char path[96];
            size_t n;

            snprintf(path, sizeof path, "%s/model.gguf", models[i]);
            const char *like = test_data(path), *to = test_scratch("forms.gguf");
            float *want = logits_of(like, &n);
            test_tensors *s = test_tensors_open(like);
            for (int layer = 0; layer < MAX_LAYERS; layer++) {
                const bool fused = of_gguf(s, layer, "ffn_gate_up_exps");

                if (fused)
                    split(s, layer);
                if (way == 0 && !fused)
                    join(s, layer);
                if (way == 1) {
                    cut_up(s, layer, "ffn_gate_exps", "ffn_gate");
                    cut_up(s, layer, "ffn_up_exps", "ffn_up");
                    cut_up(s, layer, "ffn_down_exps", "ffn_down");
                }
            }
            test_tensors_write_gguf(s, like, to);
            test_tensors_free(s);
            same_logits(models[i], way ? "one by one" : "joined or split", to, want, n);
            free(want);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_every_family),
        cmocka_unit_test(under_other_modules),
        cmocka_unit_test(as_gguf),
        cmocka_unit_test(forms_of_gguf),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
