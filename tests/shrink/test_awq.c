/* AWQ against the searches and cuts of its authors' program, on a llama layer whose inputs are the rows of an
 * embedding. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "shrink/awq.h"
#include "shrink/inputs.h"

enum { SAMPLES = 16, CTX = 32, WIDTH = 128 };

/* ---- the layer as a checkpoint ----------------------------------------------------------------------------------- */

static void put_text(const char *dir, const char *name, const char *text)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A tensor of the golden as f16, or ones. */
static void put_tensor(rg_ckpt_writer *w, const rg_checkpoint *c, const char *from, int64_t n, rg_error *err)
{
    const rg_tensor *t = from ? rg_checkpoint_find(c, from) : NULL;
    uint16_t *data = malloc((size_t)n * sizeof *data);

    assert_true(!from || (t && t->type == RG_F16 && rg_tensor_count(t) == n));
    for (int64_t i = 0; i < n; i++)
        data[i] = rg_f32_to_f16(1);
    if (t)
        assert_ok(rg_tensor_read(c, t, 0, data, t->bytes, err), *err);
    assert_ok(rg_ckpt_write(w, data, (size_t)n * sizeof *data, err), *err);
    free(data);
}

static const char *make_model(const rg_checkpoint *c)
{
    static const char *const names[] = { "input_layernorm", "post_attention_layernorm", "self_attn.q_proj",
                                         "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                                         "mlp.up_proj", "mlp.down_proj" };
    const char *dir = test_scratch("awq");
    rg_error err = { 0 };
    char path[600], name[96];
    int64_t shape[2] = { SAMPLES * CTX, WIDTH }, dim = WIDTH;

    assert_ok(rg_dir_make(dir, &err), err);
    put_text(dir, "config.json",
             "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 128, "
             "\"intermediate_size\": 256, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
             "\"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-6, \"vocab_size\": 512, \"tie_word_embeddings\": true, "
             "\"torch_dtype\": \"float16\", \"max_position_embeddings\": 64}");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_declare(w, "model.embed_tokens.weight", RG_F16, 2, shape, &err), err);
    assert_ok(rg_ckpt_declare(w, "model.norm.weight", RG_F16, 1, &dim, &err), err);
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(name, sizeof name, "layer.%s.weight", names[i]);
        const rg_tensor *t = rg_checkpoint_find(c, name);
        snprintf(name, sizeof name, "model.layers.0.%s.weight", names[i]);
        assert_ok(t && rg_ckpt_declare(w, name, RG_F16, t->n_dims, t->shape, &err), err);
    }
    put_tensor(w, c, "x", (int64_t)SAMPLES * CTX * WIDTH, &err);
    put_tensor(w, c, NULL, WIDTH, &err);
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(name, sizeof name, "layer.%s.weight", names[i]);
        put_tensor(w, c, name, rg_tensor_count(rg_checkpoint_find(c, name)), &err);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    return dir;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct world {
    rg_checkpoint *golden, *ckpt;
    rg_stage *stage;
    rg_layer_work l;
} world;

static void add_matrices(world *w, const rg_coding *c)
{
    const rg_weight_set *set = &rg_stage_model(w->stage)->weights;

    w->l.m = calloc(16, sizeof *w->l.m);
    w->l.folded = calloc(16, sizeof *w->l.folded);
    for (int i = 0; i < set->n; i++) {
        const rg_weight *of = &set->all[i];
        if (set->layer[i] != 0 || !of->placed)
            continue;
        rg_matrix *m = &w->l.m[w->l.n++];
        *m = (rg_matrix){ .weight = of, .rows = of->rows, .cols = of->cols, .name = of->name, .coding = *c,
                          .w = rg_array((size_t)(of->rows * of->cols), sizeof(float)),
                          .x = rg_input_of(&w->l, of, 0) };
        rg_stage_get(w->stage, of, 0, m->w);
        assert_non_null(m->x);
    }
}

static void drop_matrices(world *w)
{
    for (int i = 0; i < w->l.n; i++) {
        rg_free(w->l.m[i].w);
        rg_coded_fini(&w->l.m[i].coded);
    }
    for (int i = 0; i < w->l.n_folded; i++)
        rg_free(w->l.folded[i].values);
    free(w->l.m);
    free(w->l.folded);
    w->l.n = w->l.n_folded = 0;
}

static bool reads(const rg_fold *f, const char *end)
{
    return strstr(f->reader[0]->name, end) != NULL;
}

/* Each loss within 1 %, and the one that is chosen too. */
static void compare_search(const rg_awq_search *got, const json_t *want, const char *what)
{
    const json_t *losses = json_object_get(want, "losses");
    double best = json_number_value(json_array_get(losses, (size_t)json_integer_value(json_object_get(want, "best"))));

    assert_int_equal(json_array_size(losses), RG_AWQ_RATIOS);
    for (int i = 0; i < RG_AWQ_RATIOS; i++) {
        double w = json_number_value(json_array_get(losses, (size_t)i));
        if (fabs(got->loss[i] - w) > 0.01 * w)
            fail_msg("%s: loss %d is %g, want %g", what, i, got->loss[i], w);
    }
    assert_true(json_number_value(json_array_get(losses, (size_t)got->best)) <= 1.01 * best);
}

/* What matrices read was one tensor for all that read the same when the goldens were made, and was divided by the scales
 * once for each of them: the cuts here are for such inputs. */
static void divide_again(world *w, const rg_fold *f, const float *s)
{
    rg_input *x = rg_input_of(&w->l, f->reader[0], 0);

    for (int turn = 1; turn < f->n_readers; turn++)
        for (int64_t i = 0; i < x->n_kept * x->cols; i++)
            x->rows[i] /= s[i % x->cols];
}

/* Cuts of a few in a thousand groups may be a step away: two losses are almost alike there. */
static void compare_cuts(const world *w, const rg_matrix *m, const char *key)
{
    const rg_tensor *t = rg_checkpoint_find(w->golden, key);
    rg_error err = { 0 };
    float most[64];
    int off = 0;

    assert_non_null(t);
    const int64_t groups = t->shape[1];
    uint8_t *step = malloc(t->bytes);
    rg_awq_seen seen;
    assert_ok(rg_awq_seen_init(&seen, &m->coding, m->x->rows, m->x->n_kept, m->cols, w->l.pool, &err), err);
    assert_ok(rg_tensor_read(w->golden, t, 0, step, t->bytes, &err), err);
    for (int64_t r = 0; r < m->rows; r++) {
        const float *row = m->w + r * m->cols;
        rg_awq_find_cuts(&m->coding, &seen, row, most);
        for (int64_t g = 0; g < groups; g++) {
            float all = 0;
            for (int64_t k = 0; k < m->cols / groups; k++)
                all = fmaxf(all, fabsf(row[g * (m->cols / groups) + k]));
            off += (int)lroundf((1 - most[g] / all) * 20) != step[r * groups + g];
        }
    }
    if (off > m->rows * groups / 200)
        fail_msg("%s: %d of %d groups are cut elsewhere", key, off, (int)(m->rows * groups));
    free(step);
    rg_awq_seen_fini(&seen);
}

static void run_case(world *w, const json_t *j)
{
    const json_t *operations = json_object_get(j, "operations");
    rg_coding c = { .bits = (int)json_integer_value(json_object_get(j, "w_bit")),
                    .group = json_integer_value(json_object_get(j, "group")) };
    rg_fold folds[RG_MAX_FOLDS];
    rg_awq_search found[4];
    rg_error err = { 0 };
    char key[96];
    int n;

    snprintf(key, sizeof key, "w%d.g%d.input_layernorm.weight", c.bits, (int)c.group);
    if (!rg_checkpoint_find(w->golden, key))
        return; /* not among the goldens that are here */
    if (c.bits == 3 && !test_all())
        return;
    assert_ok(rg_coding_init(&c, &err) && rg_stage_enter(w->stage, 0, &err), err);
    assert_ok(rg_inputs_collect(&w->l, RG_NEED_GRAM | RG_NEED_SPREAD | RG_NEED_ROWS, &err), err);
    add_matrices(w, &c);
    assert_ok(rg_folds_find(rg_stage_model(w->stage), 0, folds, &n, &err), err);
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++) {
        const json_t *want = json_array_get(operations, (size_t)i);
        assert_true(reads(&folds[i], json_string_value(json_object_get(want, "input"))));
        assert_true(strstr(folds[i].before->name, json_string_value(json_object_get(want, "previous"))));
        assert_true(rg_fold_is_possible(&w->l, &folds[i]));
        assert_ok(rg_awq_find_scale(&w->l, &folds[i], &found[i], &err), err);
        snprintf(key, sizeof key, "w%d.g%d.%s", c.bits, (int)c.group, folds[i].reader[0]->name);
        compare_search(&found[i], want, key);
    }
    for (int i = 0; i < n; i++) { /* with the authors' choice, so that what follows can be compared */
        snprintf(key, sizeof key, "w%d.g%d.%s.scales", c.bits, (int)c.group,
                 json_string_value(json_object_get(json_array_get(operations, (size_t)i), "input")));
        size_t n_scales;
        float *scales = test_floats(w->golden, key, &n_scales);
        for (size_t k = 0; k < n_scales; k++)
            if (found[i].best == json_integer_value(json_object_get(json_array_get(operations, (size_t)i), "best")))
                assert_true(fabsf(scales[k] - found[i].scale[k]) <= 2e-3f * fabsf(scales[k]));
        assert_ok(rg_fold_in(&w->l, &folds[i], scales, &err), err);
        divide_again(w, &folds[i], scales);
        free(scales);
        rg_free(found[i].scale);
    }
    for (int i = 0; i < w->l.n; i++) {
        snprintf(key, sizeof key, "w%d.g%d.%s.clip_step", c.bits, (int)c.group,
                 w->l.m[i].name + strlen("model.layers.0."));
        if (rg_checkpoint_find(w->golden, key))
            compare_cuts(w, &w->l.m[i], key);
    }
    drop_matrices(w);
    rg_inputs_free(&w->l);
}

static void searches_are_those_of_the_authors(void **state)
{
    world w = { 0 };
    rg_error err = { 0 };
    rg_shrink_options o = { .n_samples = SAMPLES, .ctx = CTX };
    int32_t ids[SAMPLES * CTX];
    size_t n;

    (void)state;
    w.golden = rg_checkpoint_open(test_data("shrink/awq/layer.safetensors"), RG_CKPT_DEFAULT, &err);
    assert_ok(w.golden, err);
    w.ckpt = rg_checkpoint_open(make_model(w.golden), RG_CKPT_DEFAULT, &err);
    assert_ok(w.ckpt, err);
    for (int i = 0; i < SAMPLES * CTX; i++)
        ids[i] = i;
    const rg_backend *backend = test_backend(0);
    for (int i = 0; test_backend(i); i++)
        backend = test_backend(i);
    w.stage = rg_stage_open(w.ckpt, &(rg_stage_options){ backend, 2, ids, SAMPLES, CTX, false }, &err);
    assert_ok(w.stage, err);
    w.l = (rg_layer_work){ .o = &o, .stage = w.stage, .pool = rg_stage_pool(w.stage),
                     .config = &rg_stage_model(w.stage)->config };
    char *text = rg_file_slurp(test_data("shrink/awq/search.json"), 1 << 20, &n, &err);
    json_t *cases = json_loads(text, 0, NULL);
    for (size_t i = 0; i < json_array_size(cases); i++)
        run_case(&w, json_array_get(cases, i));
    json_decref(cases);
    rg_free(text);
    rg_stage_close(w.stage);
    rg_checkpoint_close(w.ckpt);
    rg_checkpoint_close(w.golden);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(searches_are_those_of_the_authors) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
