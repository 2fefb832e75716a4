/* drafting_create.c -- a new network that drafts: its config and the weights that its training begins with. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/arch/draft.h"
#include "train/drafting.h"

/* What a tensor begins as. */
typedef enum begin { RANDOM, SMALL, ONES, HEAD } begin;

typedef struct shape {
    const char *name;
    int rows, cols; /* cols 0: a vector */
    begin begin;
} shape;

enum { MOST = 16, PLACES = 3, WHOLE_NUMBER = 11 }; /* a type of GGUF of 64 bits, which the writer asks for */

static int shapes_of(const rg_config *c, const rg_drafting_shape *s, shape out[MOST])
{
    const bool third = s->kind == RG_DRAFTING_EAGLE3;
    const int dim = c->dim, ffn = s->ffn_dim ? s->ffn_dim : c->ffn_dim, q = c->n_heads * c->head_dim,
              kv = c->n_kv_heads * c->head_dim, in = third ? 2 * dim : dim;
    const shape of_third[] = {
        { "fc.weight", dim, PLACES * dim, RANDOM },
        { "midlayer.self_attn.q_proj.weight", q, in, RANDOM },
        { "midlayer.self_attn.k_proj.weight", kv, in, RANDOM },
        { "midlayer.self_attn.v_proj.weight", kv, in, RANDOM },
        { "midlayer.self_attn.o_proj.weight", dim, q, SMALL },
        { "midlayer.mlp.gate_proj.weight", ffn, dim, RANDOM },
        { "midlayer.mlp.up_proj.weight", ffn, dim, RANDOM },
        { "midlayer.mlp.down_proj.weight", dim, ffn, SMALL },
        { "midlayer.input_layernorm.weight", dim, 0, ONES },
        { "midlayer.hidden_norm.weight", dim, 0, ONES },
        { "midlayer.post_attention_layernorm.weight", dim, 0, ONES },
        { "norm.weight", dim, 0, ONES },
        { "lm_head.weight", s->n_ids, dim, HEAD },
    };
    const shape of_first[] = {
        { "fc.weight", dim, 2 * dim, RANDOM },
        { "layers.0.self_attn.q_proj.weight", q, in, RANDOM },
        { "layers.0.self_attn.k_proj.weight", kv, in, RANDOM },
        { "layers.0.self_attn.v_proj.weight", kv, in, RANDOM },
        { "layers.0.self_attn.o_proj.weight", dim, q, SMALL },
        { "layers.0.mlp.gate_proj.weight", ffn, dim, RANDOM },
        { "layers.0.mlp.up_proj.weight", ffn, dim, RANDOM },
        { "layers.0.mlp.down_proj.weight", dim, ffn, SMALL },
        { "layers.0.post_attention_layernorm.weight", dim, 0, ONES },
    };
    const int n = (int)(third ? RG_LEN(of_third) : RG_LEN(of_first));

    memcpy(out, third ? of_third : of_first, (size_t)n * sizeof *out);
    return n;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* The n ids that stand most often, in rising order; of ids that stand equally often the lowest. */
static int32_t *choose_ids(const rg_drafting_shape *s, int vocab, rg_error *err)
{
    int32_t *ids = rg_array((size_t)s->n_ids, sizeof *ids);
    int64_t least = 0, most = 0;
    int n = 0, spare = 0;

    if (!ids)
        return rg_fail_memory(err, (size_t)s->n_ids * sizeof *ids), NULL;
    for (int i = 0; s->counts && i < vocab; i++)
        most = s->counts[i] > most ? s->counts[i] : most;
    while (s->counts && least < most) { /* the largest count that n_ids ids have at least */
        const int64_t middle = least + (most - least + 1) / 2;

        n = 0;
        for (int i = 0; i < vocab; i++)
            n += s->counts[i] >= middle;
        if (n >= s->n_ids)
            least = middle;
        else
            most = middle - 1;
    }
    n = 0;
    for (int i = 0; s->counts && i < vocab; i++)
        spare += s->counts[i] > least;
    spare = s->n_ids - spare;
    for (int i = 0; i < vocab && n < s->n_ids; i++)
        if (!s->counts || s->counts[i] > least || (s->counts[i] == least && spare-- > 0))
            ids[n++] = i;
    return ids;
}

static bool write_ids(rg_ckpt_writer *w, const int32_t *ids, int n, int vocab, rg_error *err)
{
    int64_t *offset = rg_array((size_t)n, sizeof *offset);
    uint8_t *own = rg_alloc((size_t)vocab);
    bool ok = (offset && own) || rg_fail_memory(err, (size_t)n * sizeof *offset);

    if (ok)
        memset(own, 0, (size_t)vocab);
    for (int i = 0; ok && i < n; i++) {
        offset[i] = ids[i] - i;
        own[ids[i]] = 1;
    }
    ok = ok && rg_ckpt_write(w, offset, (size_t)n * sizeof *offset, err) && rg_ckpt_write(w, own, (size_t)vocab, err);
    rg_free(offset);
    rg_free(own);
    return ok;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static double unit(uint64_t *x)
{
    return (double)(rg_splitmix64(x) >> 11) * 0x1p-53;
}

static void fill(float *to, const shape *s, const rg_model *model, const int32_t *ids, uint64_t seed)
{
    const size_t n = (size_t)s->rows * (size_t)(s->cols ? s->cols : 1);
    const rg_weight *head = model->outer.w[W_LM_HEAD];
    uint64_t x = rg_splitmix64_example(seed, rg_hash(s->name, strlen(s->name), 0));

    for (int r = 0; s->begin == HEAD && r < s->rows; r++)
        head->placed->owner->weight_get(head->placed, 0, ids[r], to + (size_t)r * (size_t)s->cols);
    for (size_t i = 0; s->begin != HEAD && i < n; i++) {
        const double radius = sqrt(-2 * log(1 - unit(&x))), turn = cos(6.283185307179586 * unit(&x));

        to[i] = s->begin == ONES ? 1 : (float)(radius * turn / sqrt(s->cols) * (s->begin == SMALL ? 0.3 : 1));
    }
}

static bool write_tensors(rg_ckpt_writer *w, const rg_model *model, const rg_drafting_shape *s, const int32_t *ids,
                          rg_error *err)
{
    shape all[MOST];
    const int n = shapes_of(&model->config, s, all);
    const bool some = ids && s->n_ids < model->config.vocab_size;
    const int64_t n_ids[] = { s->n_ids }, vocab[] = { model->config.vocab_size };
    bool ok = true;

    for (int i = 0; ok && i < n; i++)
        ok = rg_ckpt_declare(w, all[i].name, RG_F32, all[i].cols ? 2 : 1, (int64_t[]){ all[i].rows, all[i].cols }, err);
    ok = ok && (!some || (rg_ckpt_declare(w, "d2t", RG_I64, 1, n_ids, err) &&
                          rg_ckpt_declare(w, "t2d", RG_BOOL, 1, vocab, err)));
    for (int i = 0; ok && i < n; i++) {
        const size_t values = (size_t)all[i].rows * (size_t)(all[i].cols ? all[i].cols : 1);
        float *to = rg_array(values, sizeof *to);

        ok = to || rg_fail_memory(err, values * sizeof *to);
        if (ok)
            fill(to, &all[i], model, ids, s->seed);
        ok = ok && rg_ckpt_write(w, to, values * sizeof *to, err);
        rg_free(to);
    }
    return ok && (!some || write_ids(w, ids, s->n_ids, model->config.vocab_size, err));
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* The number that an f32 was read from: 1e-5, not 9.99999975e-06. */
static double as_written(float x)
{
    char text[32];
    double v = (double)x;

    snprintf(text, sizeof text, "%.7g", v);
    return sscanf(text, "%lf", &v) == 1 ? v : (double)x;
}

static bool put_config(rg_ckpt_writer *w, const rg_config *c, const rg_drafting_shape *s, rg_error *err)
{
    const bool third = s->kind == RG_DRAFTING_EAGLE3;
    const rg_published_name *name = third ? &rg_eagle3_name : &rg_eagle_name;
    const rg_string archs[] = { { name->architecture, strlen(name->architecture) } };
    const struct {
        const char *key;
        int64_t value;
    } ints[] = {
        { "hidden_size", c->dim },
        { "intermediate_size", s->ffn_dim ? s->ffn_dim : c->ffn_dim },
        { "num_hidden_layers", 1 },
        { "num_attention_heads", c->n_heads },
        { "num_key_value_heads", c->n_kv_heads },
        { "head_dim", c->head_dim },
        { "max_position_embeddings", c->max_seq_len },
        { "vocab_size", c->vocab_size },
        { "draft_vocab_size", s->n_ids },
    };
    bool ok = rg_ckpt_put_strings(w, "architectures", archs, 1, err) &&
              rg_ckpt_put_string(w, "model_type", name->model_type, strlen(name->model_type), err) &&
              rg_ckpt_put_string(w, "hidden_act", "silu", 4, err) &&
              rg_ckpt_put_float(w, "rms_norm_eps", as_written(c->norm_eps), err) &&
              rg_ckpt_put_float(w, "rope_theta", c->n_ropes ? c->ropes[0].theta : 1e4, err);

    for (size_t i = 0; ok && i < RG_LEN(ints) - !third; i++)
        ok = rg_ckpt_put_int(w, ints[i].key, WHOLE_NUMBER, ints[i].value, err);
    return ok;
}

static bool check(const rg_model *m, const rg_drafting_shape *s, rg_error *err)
{
    const rg_config *c = &m->config;
    const rg_weight *head = m->outer.w[W_LM_HEAD];

    if (s->kind == RG_DRAFTING_EAGLE3 && c->n_layers < 3)
        return rg_fail(err, RG_E_UNSUPPORTED, "EAGLE-3 reads three layers, and the model has %d", c->n_layers);
    if (s->n_ids < 1 || s->n_ids > c->vocab_size)
        return rg_fail(err, RG_E_USAGE, "a network that guesses %d ids: the model has %d", s->n_ids, c->vocab_size);
    if (!head || !head->placed || head->cols != c->dim || !c->head_dim || (!s->ffn_dim && !c->ffn_dim))
        return rg_fail(err, RG_E_UNSUPPORTED, "the model has no plain head or layer whose sizes a network could take");
    return true;
}

bool rg_drafting_create(const char *dir, const rg_masters *model, const rg_drafting_shape *s, rg_error *err)
{
    const rg_model *m = rg_masters_model(model);
    int32_t *ids = NULL;
    rg_ckpt_writer *w = NULL;
    bool ok = check(m, s, err);

    if (ok && s->kind == RG_DRAFTING_EAGLE3)
        ids = choose_ids(s, m->config.vocab_size, err), ok = ids;
    w = ok ? rg_hf_create(dir, err) : NULL;
    ok = w && put_config(w, &m->config, s, err) && write_tensors(w, m, s, ids, err);
    rg_free(ids);
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}
