/* qwen.c -- see qwen.h. */
#include "model/arch/qwen.h"

bool finish_qwen_windows(rg_config *c, const rg_checkpoint *ckpt, int first, rg_error *err)
{
    int64_t window = rg_config_is_null(ckpt, "sliding_window") ? 0 : 4096, from = first;
    bool used = false;

    if (c->from_gguf)
        return true;
    if (rg_config_flag(ckpt, "use_sliding_window", &used, err) < 0 ||
        rg_config_int(ckpt, "sliding_window", 0, INT32_MAX, &window, err) < 0 ||
        rg_config_int(ckpt, "max_window_layers", 0, INT32_MAX, &from, err) < 0)
        return false;
    c->window = used ? (int)window : 0;
    if (!finish_windows(c, ckpt, 0, 0, err))
        return false;
    for (int i = 0; i < c->n_layers && i < from && rg_meta_type_of(ckpt, "layer_types") != RG_META_ARRAY; i++)
        c->layer[i].window = 0;
    return true;
}

bool read_sparse_layers(const rg_config *c, const rg_checkpoint *ckpt, bool sparse[], rg_error *err)
{
    int64_t step = 1;
    const int32_t *dense = NULL;
    size_t n_dense = 0;

    if (!c->from_gguf && (rg_config_int(ckpt, "decoder_sparse_step", 1, INT32_MAX, &step, err) < 0 ||
                          rg_meta_ints(ckpt, "mlp_only_layers", &dense, &n_dense, err) < 0))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        sparse[i] = c->routing.n_experts > 0 && (i + 1) % step == 0;
        for (size_t k = 0; k < n_dense; k++)
            sparse[i] = sparse[i] && dense[k] != i;
    }
    return true;
}

bool put_gguf_qwen(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->window)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for windows of this architecture");
    return put_gguf_decoder(c, w, err);
}
