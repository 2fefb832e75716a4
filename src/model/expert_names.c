/* expert_names.c -- see expert_names.h. */
#include "model/expert_names.h"

#include <stdio.h>
#include <string.h>

enum { GATE, UP, DOWN, NOT_OF_EXPERTS };

/* A way of storing experts: names of gate, up and down within the module that holds the router, too.  '*' stands for an
 * expert's number.  fused: gate and up are one tensor, whose rows are those of gate and then those of up, or, where the
 * architecture's own table says so, by turns. */
typedef struct form {
    const char *name[3];
    bool fused;
} form;

static const form hf_forms[] = {
    { { "experts.*.gate_proj", "experts.*.up_proj", "experts.*.down_proj" }, false },
    { { "experts.*.w1", "experts.*.w3", "experts.*.w2" }, false },
    { { "experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj" }, true },
    { { "experts.gate_proj", "experts.up_proj", "experts.down_proj" }, false },
    { { "experts.w1", "experts.w3", "experts.w2" }, false },
    { { "experts.*.gate_up_proj", "experts.*.gate_up_proj", "experts.*.down_proj" }, true },
    { { "experts.gate_up_projs.*", "experts.gate_up_projs.*", "experts.down_projs.*" }, true },
    { { "switch_mlp.gate_proj", "switch_mlp.up_proj", "switch_mlp.down_proj" }, false },
    { { "input_linear", "input_linear", "output_linear" }, true },
};
static const form gguf_forms[] = {
    { { "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" }, false },
    { { "ffn_gate_up_exps", "ffn_gate_up_exps", "ffn_down_exps" }, true },
    { { "ffn_gate.*", "ffn_up.*", "ffn_down.*" }, false },
};

/* Weights that have other names in other families, and nothing else. */
static const struct {
    int role;
    const char *name[8]; /* within the module, as above; NULL-ended */
} renamed[] = {
    { W_ROUTER, { "gate", "router", "router.layer", "gate.wg", "router.gate", "router.linear", "router.proj" } },
    { W_ROUTER_BIAS, { "gate.bias", "router.bias", "router.linear.bias" } },
    { W_CHOICE_BIAS,
      { "gate.e_score_correction_bias", "e_score_correction_bias", "expert_bias", "gate.expert_bias",
        "experts.e_score_correction_bias", "router.e_score_correction_bias" } },
    { W_SHARED_GATE,
      { "shared_experts.gate_proj", "shared_expert.gate_proj", "shared_mlp.gate_proj", "shared_experts.w1" } },
    { W_SHARED_UP, { "shared_experts.up_proj", "shared_expert.up_proj", "shared_mlp.up_proj", "shared_experts.w3" } },
    { W_SHARED_DOWN,
      { "shared_experts.down_proj", "shared_expert.down_proj", "shared_mlp.down_proj", "shared_experts.w2" } },
    { W_SHARED_ROUTER, { "shared_expert_gate", "shared_experts_gate" } },
};

/* What the module is called. */
static const char *const modules[] = { "mlp", "block_sparse_moe", "feed_forward", "moe", "mixer", "" };

static int place_of(int role)
{
    static const int places[][3] = { { W_GATE_EXPERTS, W_UP_EXPERTS, W_DOWN_EXPERTS },
                                     { W_GATE_EXPERTS_BIAS, W_UP_EXPERTS_BIAS, W_DOWN_EXPERTS_BIAS } };

    for (size_t k = 0; k < RG_LEN(places); k++)
        for (int i = GATE; i <= DOWN; i++)
            if (places[k][i] == role)
                return i;
    return NOT_OF_EXPERTS;
}

static bool is_bias(int role)
{
    return role == W_GATE_EXPERTS_BIAS || role == W_UP_EXPERTS_BIAS || role == W_DOWN_EXPERTS_BIAS;
}

/* The module of the architecture's own name: what stands before "experts", or before the last word. */
static size_t own_module(const char *name)
{
    const char *experts = strstr(name, "experts."), *dot = strrchr(name, '.');
    const char *end = experts ? experts : dot ? dot + 1 : name;

    return end > name ? (size_t)(end - name) - 1 : 0;
}

/* The i-th module to look in, the architecture's own first; false: there are not so many. */
static bool module_at(const rg_weight_source *s, size_t i, char out[RG_OTHER_NAME])
{
    const char *own = s->spec->hf;
    const size_t n = own_module(own);

    if (!i)
        return n < RG_OTHER_NAME && snprintf(out, RG_OTHER_NAME, "%.*s", (int)n, own) >= 0;
    if (own[0] == '/' || i > RG_LEN(modules)) /* a whole name tells where to look */
        return false;
    snprintf(out, RG_OTHER_NAME, "%s", modules[i - 1]);
    return true;
}

/* The tensor of the name within the module (GGUF: NULL), which becomes the source's. */
static const rg_tensor *try_name(rg_weight_source *s, const char *module, const char *name)
{
    char found[RG_WEIGHT_NAME];

    const int n =
        snprintf(s->other, sizeof s->other, "%s%s%s", module ? module : "", module && *module ? "." : "", name);
    const rg_tensor *t = n < (int)sizeof s->other ? rg_weight_source_find(s, 0, found) : NULL;

    if (!t)
        s->other[0] = 0;
    return t;
}

/* Stacked matrices may stand the other way round, which only their shape tells. */
static void settle_turn(rg_weight_source *s, const rg_tensor *t)
{
    const int64_t rows = s->stored_rows, cols = s->cols;

    if (t->file == RG_FILE_COMPOSED || rg_format_of(t->type)->block_len > 1)
        s->transposed = false; /* blocks run along the columns */
    else if (s->experts || t->n_dims != 3 || rows == cols)
        return;
    else if (t->shape[1] == cols && t->shape[2] == rows)
        s->transposed = true;
    else if (t->shape[1] == rows && t->shape[2] == cols)
        s->transposed = false;
}

/* The source becomes that of a tensor of this form. */
static void settle_form(rg_weight_source *s, const form *f, int place, const rg_tensor *t)
{
    const rg_weight_spec *spec = s->spec;
    const bool bias = is_bias(spec->role), gguf = s->c->from_gguf;
    const bool by_turns = !gguf && (spec->row_step == 2 || (bias && spec->load && place != DOWN));
    const int64_t each = spec->shape[1](s->c, s->layer); /* rows of a matrix, or numbers of a bias */
    int64_t n = each;

    s->relaid = true;
    s->load = NULL;
    s->experts = strchr(f->name[place], '*');
    s->n_tensors = s->experts ? (int)spec->shape[0](s->c, s->layer) : 1;
    s->part = f->fused && place != DOWN;
    if (bias && !s->experts) /* all experts' numbers are rows of one value */
        n *= spec->shape[0](s->c, s->layer);
    s->rows = n;
    s->cols = bias ? 1 : spec->shape[2](s->c, s->layer);
    s->stored_rows = s->part ? 2 * n : n;
    s->row_step = s->part && (by_turns || n != each) ? 2 : 1;
    s->row_run = s->part && n != each && !by_turns ? each : 1;
    s->first_row = !s->part || place == GATE ? 0 : by_turns ? 1 : each;
    s->transposed = spec->transposed && !s->experts && !gguf && !bias;
    if (!bias)
        settle_turn(s, t);
}

/* Biases stand beside the matrices: "name.bias", or "name_bias" of stacked ones. */
static const rg_tensor *try_bias(rg_weight_source *s, const char *module, const char *name)
{
    char with[RG_OTHER_NAME];
    const rg_tensor *t = NULL;

    for (int i = 0; !t && i < 2; i++) {
        snprintf(with, sizeof with, "%s%s", name, i ? "_bias" : ".bias");
        t = try_name(s, module, with);
    }
    return t;
}

static bool try_forms(rg_weight_source *s, const form *forms, size_t n, int place, const char *module)
{
    const rg_tensor *t = NULL;

    for (size_t i = 0; !t && i < n; i++) {
        const bool bias = is_bias(s->spec->role);

        s->experts = strchr(forms[i].name[place], '*');
        t = (bias ? try_bias : try_name)(s, module, forms[i].name[place]);
        if (t)
            settle_form(s, &forms[i], place, t);
    }
    return t;
}

static void settle_renamed(rg_weight_source *s)
{
    char module[RG_OTHER_NAME];
    const rg_tensor *t = NULL;

    for (size_t r = 0; r < RG_LEN(renamed); r++)
        for (size_t m = 0; renamed[r].role == s->spec->role && !t && module_at(s, m, module); m++)
            for (size_t i = 0; !t && i < RG_LEN(renamed[r].name) && renamed[r].name[i]; i++)
                t = try_name(s, module, renamed[r].name[i]);
}

void rg_expert_names_settle(rg_weight_source *s)
{
    const int place = place_of(s->spec->role);
    const rg_weight_source own = *s;
    char found[RG_WEIGHT_NAME], module[RG_OTHER_NAME];
    const rg_tensor *t;
    bool done = false;

    if (!s->ckpt || s->spec->derive || !s->name)
        return;
    t = rg_weight_source_find(s, 0, found);
    if (t || !rg_checkpoint_n_tensors(s->ckpt)) {
        if (t && place != NOT_OF_EXPERTS && !s->load && !s->c->from_gguf && rg_spec_dims(s->spec) == 3)
            settle_turn(s, t);
        return;
    }
    if (place == NOT_OF_EXPERTS) {
        if (!s->c->from_gguf && s->spec->hf)
            settle_renamed(s);
    } else if (s->c->from_gguf) {
        done = try_forms(s, gguf_forms, RG_LEN(gguf_forms), place, NULL);
    } else {
        for (size_t m = 0; !done && module_at(s, m, module); m++)
            done = try_forms(s, hf_forms, RG_LEN(hf_forms), place, module);
    }
    if (!s->other[0])
        *s = own;
}
