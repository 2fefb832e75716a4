/* layer_parts.h -- the parts that blocks are written in.
 *
 * A block is the algorithm of one layer: it adds to x [rows, dim] what the layer adds.  It calls parts by name, and
 * operations of the seam (ops.h) where its family does what others do not, so that it reads like its paper.  A part
 * takes the weights of the layer by their roles; what it returns is a new activation, which lives as long as the layer.
 * Parts stop in front of their last matrix, which the block adds to x: o_proj behind attention, down_proj behind an
 * MLP. */
#ifndef RG_MODEL_ARCH_LAYER_PARTS_H
#define RG_MODEL_ARCH_LAYER_PARTS_H

#include "model/arch.h"

/* The norm that the config asks for of x, by the weight of a role; the bias of a LayerNorm has the role behind it.
 * Where the layer has no weight, a LayerNorm without one.  Of norm_into, y may be x. */
rg_act *normed(rg_fwd *f, const rg_layer *l, const rg_act *x, int weight);
void norm_into(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x, int weight);

/* w a + b, [rows, w->rows]. */
rg_act *linear(rg_fwd *f, const char *name, const rg_act *a, const rg_weight *w, const rg_weight *b);
/* x += s * (w a + b). */
void add_scaled(rg_fwd *f, rg_act *x, const rg_act *a, const rg_weight *w, const rg_weight *b, float s);

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim]. */
typedef struct qkv {
    rg_act *q, *k, *v;
} qkv;

/* The products of h; k and v are NULL where the layer has no such matrix, since it reads the K/V of another. */
qkv project(rg_fwd *f, const rg_layer *l, const rg_act *h);
/* RMSNorm of each head of q and k by W_Q_NORM and W_K_NORM, or of their whole rows where the weights are so long. */
void norm_heads(rg_fwd *f, const rg_layer *l, const qkv *p);
/* Rotate q and k by the layer's rope; where it has none, positions are not rotated. */
void rotate(rg_fwd *f, const rg_layer *l, const qkv *p);
/* softmax(attn_scale q . k) v, [rows, n_heads * head_dim], over the keys that each row sees; k and v are kept first. */
rg_act *attention(rg_fwd *f, const rg_layer *l, const qkv *p);
/* The same with other parameters than the layer's, which the first function gives. */
rg_attend_params attend_params(const rg_layer *l);
rg_act *attention_by(rg_fwd *f, const rg_layer *l, const qkv *p, const rg_attend_params *params);
/* For keep: K/V of every position, or of the layer's window; none where it reads another layer's. */
void keep_kv(const rg_config *c, int layer, rg_keep *out);
/* For keep: nothing. */
void keep_nothing(const rg_config *c, int layer, rg_keep *out);

/* ---- the second half --------------------------------------------------------------------------------------------- */

/* act(gate_proj h) * up_proj h, or act(up_proj h) where the layer has no gate: [rows, ffn_dim]. */
rg_act *mlp(rg_fwd *f, const rg_layer *l, const rg_act *h);
/* The same of other matrices and biases, gate and up. */
rg_act *mlp_of(rg_fwd *f, const char *name, const rg_act *h, const rg_weight *const w[2], const rg_weight *const b[2],
               rg_activation act);
/* x += the experts of h where the layer has a router (experts.h), else its MLP, down_proj mlp(h). */
void mlp_or_experts(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h);

#endif
