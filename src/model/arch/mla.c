/* mla.c -- see mla.h: multi-head latent attention (DeepSeek-V2, 2024), absorbed.
 *
 * What is kept per position is the normalised latent and one rotated key, shared by all heads; q is carried into the
 * latent space by k_b (per head, [kv_lora_rank, nope_dim]) and the result out of it by v_b (per head, [v_dim,
 * kv_lora_rank]).  Hugging Face and older GGUF files store both as one kv_b [heads * (nope + v), rank]. */
#include "model/arch/mla.h"

/* The norms inside the attention keep this eps whatever the config says, as DeepSeek's own code does. */
static const float latent_eps = 1e-6f;

static const mla_settings *mla_of(const rg_config *c)
{
    return RG_OWN(c, mla_settings);
}

SIZE(Q_RANK, mla_of(c)->q_lora_rank)
SIZE(KV_RANK, mla_of(c)->kv_lora_rank)
SIZE(KV_A_DIM, (int64_t)mla_of(c)->kv_lora_rank + mla_of(c)->rope_dim)
SIZE(NOPE_DIM, mla_of(c)->nope_dim)
SIZE(V_DIM, mla_of(c)->v_dim)
SIZE(MLA_Q_DIM, (int64_t)c->n_heads * (mla_of(c)->nope_dim + mla_of(c)->rope_dim))
SIZE(MLA_KV_B_DIM, (int64_t)c->n_heads * (mla_of(c)->nope_dim + mla_of(c)->v_dim))
SIZE(MLA_O_DIM, (int64_t)c->n_heads * mla_of(c)->v_dim)

static int rope_heads(const mla_settings *m)
{
    return m->rope_heads > 1 ? m->rope_heads : 1;
}

/* GGUF has the length of whole keys, of the heads or, in older files, under the names of the absorbed form. */
static bool read_gguf_heads(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const absorbed[] = { "attention.key_length", "attention.value_length",
                                            "attention.head_count_kv" };
    mla_settings *m = RG_OWN_EDIT(c, mla_settings);
    int64_t k_dim = 0, v_dim = 128;
    char key[128];
    bool pre_split = rg_meta_type_of(ckpt, rg_gguf_key(ckpt, "attention.key_length_mla", key)) != RG_META_NONE;
    const char *k = pre_split ? "attention.key_length_mla" : "attention.key_length";
    const char *v = pre_split ? "attention.value_length_mla" : "attention.value_length";

    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, k, key), 1, INT32_MAX / 4, &k_dim, err) < 0 ||
        rg_meta_int(ckpt, rg_gguf_key(ckpt, v, key), 1, INT32_MAX / 4, &v_dim, err) < 0)
        return false;
    m->nope_dim = (int)k_dim - m->rope_dim;
    m->v_dim = (int)v_dim;
    for (size_t i = 0; i < RG_LEN(absorbed); i++)
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, absorbed[i], key));
    return true;
}

bool finish_mla(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const mla_settings *m = mla_of(c);

    if (c->from_gguf && !read_gguf_heads(c, ckpt, err))
        return false;
    int64_t head = (int64_t)m->kv_lora_rank + m->rope_dim + m->nope_dim + m->v_dim; /* < 2^33 */
    int64_t widest = head > INT32_MAX / 4 ? head : c->n_heads * head;
    if (c->n_heads < 1 || m->nope_dim < 1 || m->kv_lora_rank < 1 || m->rope_dim < 2 ||
        m->rope_dim % (2 * rope_heads(m)) ||
        widest > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT, "%s: %d heads, latent %d, head sizes %d + %d: out of range",
                       rg_checkpoint_path(ckpt), c->n_heads, m->kv_lora_rank, m->nope_dim, m->rope_dim);
    /* Each head has keys of its own. */
    return c->from_gguf || require_number(ckpt, "num_key_value_heads", c->n_heads, err);
}

bool finish_mla_rope(rg_config *c, const rg_checkpoint *ckpt, bool interleaved, rg_error *err)
{
    const mla_settings *m = mla_of(c);
    rg_rope_config *r = &c->ropes[0];

    c->n_ropes = 1;
    r->dim = m->rope_dim / rope_heads(m);
    r->interleaved = interleaved;
    if (!rg_rope_read(r, ckpt, NULL, 1e4, err))
        return false;
    double mscale = r->type == RG_ROPE_YARN ? rg_yarn_mscale(r->factor, r->mscale_all_dim) : 1;
    c->attn_scale = mscale * mscale / __builtin_sqrt((double)(m->nope_dim + m->rope_dim));
    return true;
}

WHEN(when_q_rank, mla_of(c)->q_lora_rank > 0)
WHEN(when_latent_norm, !mla_of(c)->plain)
WHEN(when_q_a_bias, mla_of(c)->q_lora_rank > 0 && c->attn_bias)
WHEN(when_no_q_rank, mla_of(c)->q_lora_rank == 0)

/* From kv_b [heads * (nope + v), rank]: k_b[h] = the transpose of its first nope rows, v_b[h] = its last v rows. */
void load_k_b(const rg_config *c, const float *src, float *dst, int64_t n)
{
    int64_t rank = mla_of(c)->kv_lora_rank, nope = mla_of(c)->nope_dim, v = mla_of(c)->v_dim;

    for (int64_t i = 0; i < n; i++) {
        int64_t h = i / (rank * nope), r = i / nope % rank, d = i % nope;
        dst[i] = src[(h * (nope + v) + d) * rank + r];
    }
}

void load_v_b(const rg_config *c, const float *src, float *dst, int64_t n)
{
    int64_t rank = mla_of(c)->kv_lora_rank, nope = mla_of(c)->nope_dim, v = mla_of(c)->v_dim;

    for (int64_t i = 0; i < n; i++) {
        int64_t h = i / (v * rank), d = i / rank % v, r = i % rank;
        dst[i] = src[(h * (nope + v) + nope + d) * rank + r];
    }
}

bool put_gguf_mla(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const mla_settings *m = mla_of(c);

    /* The first two describe the absorbed form, which has one K/V head; the others the heads themselves. */
    return put_gguf_int(c, w, "attention.head_count_kv", 1, err) &&
           put_gguf_int(c, w, "attention.key_length", (int64_t)m->kv_lora_rank + m->rope_dim, err) &&
           put_gguf_int(c, w, "attention.value_length", m->kv_lora_rank, err) &&
           put_gguf_int(c, w, "attention.key_length_mla", (int64_t)m->nope_dim + m->rope_dim, err) &&
           put_gguf_int(c, w, "attention.value_length_mla", m->v_dim, err);
}

void keep_latent(const rg_config *c, int layer, rg_keep *out)
{
    const mla_settings *m = mla_of(c);

    (void)layer;
    *out = (rg_keep){ .kv = { .n_heads = 1, .k_dim = m->kv_lora_rank + m->rope_dim, .v_dim = m->kv_lora_rank,
                              .latent = true },
                      .shared_with = -1 };
}

rg_act *latent_query(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    if (!l->w[W_Q_A_PROJ])
        return NULL;
    rg_act *q_a = rg_act_new(f, "q_a", mla_of(l->c)->q_lora_rank);

    rg_linear(f, q_a, h, l->w[W_Q_A_PROJ], l->w[W_Q_A_BIAS]);
    rg_rmsnorm(f, q_a, q_a, l->w[W_Q_A_NORM], latent_eps);
    return q_a;
}

rg_act *latent_attention_from(rg_fwd *f, const rg_layer *l, const rg_act *h, const rg_act *q_a, const rg_act *chosen)
{
    const rg_config *c = l->c;
    const mla_settings *m = mla_of(c);
    int q_head = m->nope_dim + m->rope_dim, n = c->n_heads;
    rg_act *q = rg_act_new(f, "q", n * q_head), *kv_a = rg_act_new(f, "kv_a", m->kv_lora_rank + m->rope_dim);

    if (q_a)
        rg_linear(f, q, q_a, l->w[W_Q_B_PROJ], NULL);
    else
        rg_linear(f, q, h, l->w[W_Q_PROJ], NULL);
    rg_linear(f, kv_a, h, l->w[W_KV_A_PROJ], l->w[W_KV_A_BIAS]);
    rg_act *latent = rg_act_view(f, "kv_latent", kv_a, 0, m->kv_lora_rank);
    rg_act *k_rope = rg_act_view(f, "k_rope", kv_a, m->kv_lora_rank, m->rope_dim);
    if (l->w[W_KV_A_NORM])
        rg_rmsnorm(f, latent, latent, l->w[W_KV_A_NORM], latent_eps);
    for (int i = 0, each = m->rope_dim / rope_heads(m); l->rope && i < rope_heads(m); i++) {
        rg_rotate(f, q, l->rope, q_head, m->nope_dim + i * each);
        rg_rotate(f, k_rope, l->rope, m->rope_dim, i * each);
    }
    rg_kv_store(f, l->kv, latent, k_rope);

    rg_act *q_latent = rg_act_new(f, "q_latent", n * m->kv_lora_rank),
           *o = rg_act_new(f, "o_latent", n * m->kv_lora_rank);
    rg_act *a = rg_act_new(f, "attn", n * m->v_dim);
    rg_linear_heads(f, q_latent, q, l->w[W_K_B_PROJ], q_head);
    rg_mla_attention(f, o, q_latent, q, l->kv,
                     &(rg_attend_params){ .n_heads = n, .scale = (float)c->attn_scale, .sight = l->sight,
                                          .chosen = chosen });
    rg_linear_heads(f, a, o, l->w[W_V_B_PROJ], m->kv_lora_rank);
    return a;
}

rg_act *latent_attention(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    return latent_attention_from(f, l, h, latent_query(f, l, h), NULL);
}
