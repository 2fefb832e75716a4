/* qwen.c -- see qwen.h. */
#include "model/arch/qwen.h"

bool finish_qwen_windows(rg_config *c, const rg_checkpoint *ckpt, int first, rg_error *err)
{
    struct windows {
        bool used;
        int size, from;
    } w;
    const rg_key rows[] = {
        { offsetof(struct windows, used), KEY_BOOL, "use_sliding_window", NULL, 0 },
        { offsetof(struct windows, size), KEY_INT, "sliding_window", NULL, 4096, .null = NULL_IS_ZERO },
        { offsetof(struct windows, from), KEY_INT, "max_window_layers", NULL, first },
    };

    if (c->from_gguf)
        return true;
    if (!rg_config_keys(&w, ckpt, rows, RG_LEN(rows), err))
        return false;
    c->window = w.used ? w.size : 0;
    if (!finish_windows(c, ckpt, 0, 0, err))
        return false;
    for (int i = 0; i < c->n_layers && i < w.from && rg_meta_type_of(ckpt, "layer_types") != RG_META_ARRAY; i++)
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
        return no_gguf_key(err, "windows");
    return put_gguf_decoder(c, w, err);
}
