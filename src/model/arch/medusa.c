/* medusa.c -- Medusa heads (Cai et al. 2024): head k reads what enters the model's head, h, and gives logits of the id
 * k + 1 places after the model's own next one: head(h + silu(W h + b)).
 *
 * A head is a layer here, and x holds the logits of all heads side by side: each layer writes its own columns. */
#include <stdio.h>

#include "model/arch/draft.h"

enum { W_BLOCK = W_OWN, W_BLOCK_BIAS, MAX_HEADS = 16 };

static void block(rg_fwd *f, const rg_layer *l,
                  rg_act *x) /* x [rows, heads * vocab], whose columns of this head it writes */
{
    const int dim = l->c->target->dim, vocab = l->c->target->vocab_size;
    rg_act *h = rg_act_new(f, "features", dim), *logits = rg_act_view(f, "head_logits", x, l->index * vocab, vocab);

    rg_read_features(f, h);
    rg_act *y = linear(f, "block", h, l->w[W_BLOCK], l->w[W_BLOCK_BIAS]);
    rg_activate(f, y, y, RG_SILU);
    rg_add_to(f, y, h); /* h + silu(W h + b): [rows, dim] */
    rg_linear(f, logits, y, l->w[W_LM_HEAD], NULL);
}

/* The authors' names, and vLLM's. */
static const char block_name[] = "0.linear", block_else[] = "/medusa_heads.blocks.#.layers.0";
static const char first_block[] = "0.0.linear", first_block_else[] = "medusa_heads.blocks.0.layers.0";

static bool claims(const rg_checkpoint *ckpt)
{
    return has_weight(ckpt, first_block) || has_weight(ckpt, first_block_else);
}

static int count_heads(const rg_checkpoint *ckpt)
{
    char name[2][64];
    int n = 0;

    for (;; n++) {
        snprintf(name[0], sizeof name[0], "%d.0.linear", n);
        snprintf(name[1], sizeof name[1], "medusa_heads.blocks.%d.layers.0", n);
        if (!has_weight(ckpt, name[0]) && !has_weight(ckpt, name[1]))
            return n;
    }
}

/* One layer in a block, and the whole vocabulary in its order. */
static bool require_plain(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const depths[] = { "medusa_num_layers", "num_hidden_layers", NULL };
    int64_t vocab = c->target->vocab_size;

    for (int i = 0; depths[i]; i++)
        if (!require_number(ckpt, depths[i], 1, err))
            return false;
    if (has_weight(ckpt, "0.1.linear") || has_weight(ckpt, "medusa_heads.blocks.0.layers.1"))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: heads of more than one layer are not supported",
                       rg_checkpoint_path(ckpt));
    if (rg_config_int(ckpt, "truncated_vocab_size", 1, INT32_MAX, &vocab, err) < 0)
        return false;
    if (vocab != c->target->vocab_size || rg_checkpoint_find(ckpt, "token_map"))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: heads of a part of the vocabulary (%lld of %d ids) are not "
                       "supported", rg_checkpoint_path(ckpt), (long long)vocab, c->target->vocab_size);
    return require_target(c, ckpt, false, false, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_tensor *block = rg_checkpoint_find(ckpt, "0.0.linear.weight");
    int64_t width;

    if (!block)
        block = rg_checkpoint_find(ckpt, "medusa_heads.blocks.0.layers.0.weight");
    c->n_layers = count_heads(ckpt);
    if (c->n_layers > MAX_HEADS)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %d Medusa heads; at most %d are supported", rg_checkpoint_path(ckpt),
                       c->n_layers, MAX_HEADS);
    if (block->n_dims != 2 || block->shape[0] != c->target->dim)
        return rg_fail(err, RG_E_INPUT, "%s: Medusa heads of width %lld cannot draft for a model of width %d",
                       rg_checkpoint_path(ckpt), (long long)(block->n_dims == 2 ? block->shape[0] : 0), c->target->dim);
    if (!rg_mul((int64_t)c->n_layers, (int64_t)c->target->vocab_size, &width) || width > INT32_MAX / 64)
        return rg_fail(err, RG_E_LIMIT, "%s: %d heads of %d ids are too large", rg_checkpoint_path(ckpt), c->n_layers,
                       c->target->vocab_size);
    c->dim = c->vocab_size = (int)width;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = -1;
    c->places = (rg_feature_places){ 1, { RG_HEAD_INPUT } };
    return require_plain(c, ckpt, err);
}

static SIZE(TARGET_DIM, c->target->dim)
static SIZE(TARGET_VOCAB, c->target->vocab_size)

static const rg_weight_spec weights[] = { { 0 } };
static const rg_weight_spec head_weights[] = {
    { W_BLOCK, block_name, NULL, { TARGET_DIM, TARGET_DIM }, .hf_else = block_else },
    { W_BLOCK_BIAS, "0.linear.bias", NULL, { TARGET_DIM }, .hf_else = "/medusa_heads.blocks.#.layers.0.bias",
      .optional = true },
    { W_LM_HEAD, "1", NULL, { TARGET_VOCAB, TARGET_DIM }, .hf_else = "/medusa_heads.lm_heads.#" },
    { 0 },
};

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    (void)c, (void)layer;
    *out = (rg_keep){ .shared_with = -1 };
}

static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    (void)f, (void)l, (void)x;
}

static void head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h)
{
    (void)l;
    rg_activate(f, logits, h, RG_IDENTITY);
}

const rg_arch rg_network_medusa = {
    .hf_name = "Medusa heads", .claims = claims, .hf_prefix = "", .finish = finish, .weights = weights,
    RG_KIND(head_weights, keep, block), .embed = embed, .norm = norm_none, .head = head,
};
