/* Tests of config reading: the goldens in all their spellings agree, defaults, refusals by name, unknown keys, hostile
 * values, and every allocation of opening a model failing in turn. */
#include "support/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/arch/dsa.h"
#include "model/arch/mamba.h"
#include "model/arch/s4.h"
#include "model/arch/sights.h"
#include "model/arch/ssd.h"
#include "model/model.h"
#include "support/goldens.h"

/* The golden's config.json with keys replaced by those of `change` (JSON; a key's null removes it), as a checkpoint. */
static rg_checkpoint *changed(const char *name, const char *change)
{
    char dir[512], path[600];
    size_t n;
    rg_error err;
    char *text = rg_file_slurp(test_golden(name, "config.json"), 1 << 20, &n, &err);
    assert_ok(text, err);
    json_t *config = json_loads(text, 0, NULL), *patch = json_loads(change, 0, NULL), *value;
    const char *key;
    void *next;

    rg_free(text);
    assert_non_null(config);
    assert_non_null(patch);
    json_object_foreach_safe(patch, next, key, value) {
        if (json_is_null(value))
            json_object_del(config, key);
        else
            json_object_set(config, key, value);
    }
    text = rg_json_dump(config, 0);
    json_decref(config);
    json_decref(patch);
    snprintf(dir, sizeof dir, "%s/config_cases", RG_BUILD_DIR);
    assert_ok(rg_dir_make(dir, &err), err);
    snprintf(path, sizeof path, "%s/config.json", dir);
    rg_writer *w = rg_writer_open(path, &err);
    assert_ok(w, err);
    assert_ok(rg_writer_write(w, text, strlen(text), &err), err);
    assert_ok(rg_writer_commit(w, &err), err);
    rg_free(text);
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    return c;
}

/* ---- the goldens ---- */

static const struct {
    const char *name;
    size_t at;
} whole[] = {
#define FIELD(f) { #f, offsetof(rg_config, f) }
    FIELD(n_layers),
    FIELD(dim),
    FIELD(vocab_size),
    FIELD(max_seq_len),
    FIELD(n_heads),
    FIELD(n_kv_heads),
    FIELD(head_dim),
    FIELD(n_ropes),
    FIELD(ropes[0].dim),
    FIELD(ropes[1].dim),
    FIELD(window),
    FIELD(ffn_dim),
    FIELD(routing.n_experts),
    FIELD(routing.n_used),
    FIELD(routing.n_groups),
    FIELD(moe_ffn_dim),
    FIELD(n_shared_experts),
    FIELD(n_dense_layers),
#undef FIELD
};

/* True if the format's own converter writes a context of its own, whatever config.json says. */
static bool has_other_context(const char *name)
{
    return !strcmp(name, "hunyuan-dense") || !strcmp(name, "granite-hybrid") || !strncmp(name, "nemotron-h", 10);
}

static void assert_same(const rg_config *a, const rg_config *b, const char *name)
{
    /* GGUF has factors folded into weights: Gemma's query_pre_attn_scalar, all multipliers of Falcon-H1. */
    bool falcon = b->from_gguf && !strcmp(name, "falcon-h1");
    bool folded = falcon || (b->from_gguf && !strncmp(name, "gemma", 5));

    for (size_t i = 0; i < RG_LEN(whole); i++) {
        int x = *(const int *)(const void *)((const char *)a + whole[i].at);
        int y = *(const int *)(const void *)((const char *)b + whole[i].at);
        if (x != y && !(whole[i].at == offsetof(rg_config, max_seq_len) && has_other_context(name) && b->from_gguf))
            fail_msg("%s: %s is %d here and %d there", name, whole[i].name, x, y);
    }
    assert_ptr_equal(a->arch, b->arch);
    assert_true(a->norm_eps == b->norm_eps && a->norm_eps == 1e-3f);
    assert_true(falcon || a->embed_scale == b->embed_scale);
    assert_true(a->logit_softcap == b->logit_softcap && a->attn_softcap == b->attn_softcap);
    assert_true(folded || a->attn_scale == b->attn_scale);
    assert_true((float)a->ropes[0].theta == (float)b->ropes[0].theta && a->ropes[1].theta == b->ropes[1].theta);
    assert_int_equal(a->tie_embeddings, b->tie_embeddings);
    assert_int_equal(a->attn_bias, b->attn_bias);
    assert_int_equal(a->o_bias, b->o_bias);
    assert_int_equal(a->mlp_bias, b->mlp_bias);
    if (!falcon)
        assert_memory_equal(a->own, b->own, sizeof a->own);
    assert_int_equal(a->act, b->act);
    assert_true(a->routing.scale == b->routing.scale && a->routing.renormalize == b->routing.renormalize);
    assert_memory_equal(a->layer, b->layer, sizeof a->layer);
}

static void count_unknown(void *arg, const char *key, rg_meta_type type, bool understood)
{
    (void)type;
    if (!understood)
        print_message("    not understood: %s\n", key);
    *(int *)arg += !understood;
}

static void spellings_agree(void **state)
{
    static const char *const files[] = { "", "config.old.json", "model.gguf" };
    static rg_config c[3];
    rg_error err;

    (void)state;
    for (size_t g = 0; g < RG_LEN(test_goldens); g++) {
        bool first = true;
        for (int i = 0; i < 3; i++) {
            const char *path = test_golden(test_goldens[g], files[i]);
            int unknown = 0;
            if (rg_path_look(path) == RG_PATH_NONE)
                continue;
            rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
            assert_ok(ckpt, err);
            assert_ok(rg_config_read(&c[i], ckpt, &err), err);
            rg_meta_each(ckpt, count_unknown, &unknown);
            assert_int_equal(unknown, 0);
            rg_checkpoint_close(ckpt);
            if (!first)
                assert_same(&c[0], &c[i], test_goldens[g]);
            first = false;
        }
        assert_int_equal(c[0].vocab_size, 320);
    }
}

/* The settings of a language model that is one of several parts. */
static void parts_are_passed_over(void **state)
{
    static const struct {
        const char *golden, *name, *type;
    } cases[] = { { "gemma3", "Gemma3ForConditionalGeneration", "gemma3" },
                  { "llama4", "Llama4ForConditionalGeneration", "llama4" } };
    static rg_config flat, part;
    char change[8192];
    rg_error err;
    size_t n;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char *text = rg_file_slurp(test_golden(cases[i].golden, "config.json"), 1 << 20, &n, &err);
        int unknown = 0;

        assert_ok(text, err);
        snprintf(change, sizeof change,
                 "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"num_hidden_layers\": 99, \"image_token_index\": 300,"
                 " \"vision_config\": {\"hidden_size\": 5}, \"text_config\": %s}",
                 cases[i].name, cases[i].type, text);
        rg_free(text);
        rg_checkpoint *a = changed(cases[i].golden, "{}");
        assert_ok(rg_config_read(&flat, a, &err), err);
        rg_checkpoint *b = changed(cases[i].golden, change);
        assert_ok(rg_config_read(&part, b, &err), err);
        assert_same(&flat, &part, cases[i].golden);
        rg_meta_each(b, count_unknown, &unknown);
        assert_int_equal(unknown, 0);
        rg_checkpoint_close(a);
        rg_checkpoint_close(b);
    }
}

static void embeddings_tell_the_vocabulary(void **state)
{
    static rg_config c;
    rg_error err;
    rg_checkpoint *ckpt = rg_checkpoint_open(test_variant("no-vocab", "gemma3", "config.json", "\"vocab_size\"", "\"vocab\""),
                                             RG_CKPT_DEFAULT, &err);

    (void)state;
    assert_ok(ckpt, err);
    assert_ok(rg_config_read(&c, ckpt, &err), err);
    assert_int_equal(c.vocab_size, 320);
    rg_checkpoint_close(ckpt);
}

static void llama3_scaling_is_read(void **state)
{
    static rg_config c;
    static const float usual[] = { 1.0f, 2.4422593f, 8.0f };
    float factors[8];
    rg_error err;
    rg_checkpoint *ckpt = changed("llama3", "{}");

    (void)state;
    assert_ok(rg_config_read(&c, ckpt, &err), err);
    assert_int_equal(c.ropes[0].type, RG_ROPE_LLAMA3);
    assert_true(c.ropes[0].factor == 8 && c.ropes[0].low_freq_factor == 1 && c.ropes[0].high_freq_factor == 4);
    assert_int_equal(c.ropes[0].original_max_seq_len, 64);
    rg_rope_factors(&c.ropes[0], 0, factors);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(factors[i] - usual[i]) < 1e-5f);
    rg_checkpoint_close(ckpt);
}

/* As in Llama 4 Scout: equal factors, between which there is nothing to blend. */
static void llama3_scaling_may_be_a_step(void **state)
{
    static const char change[] = "{\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000, \"factor\": 16,"
                                 " \"low_freq_factor\": 1, \"high_freq_factor\": 1,"
                                 " \"original_max_position_embeddings\": 8192}}";
    static rg_config c;
    float factors[8];
    rg_error err;
    rg_checkpoint *ckpt = changed("llama3", change);

    (void)state;
    assert_ok(rg_config_read(&c, ckpt, &err), err);
    rg_rope_factors(&c.ropes[0], 0, factors);
    for (int i = 0; i < 8; i++)
        assert_true(factors[i] == (2 * M_PI * pow(5e5, 2.0 * i / c.ropes[0].dim) > 8192 ? 16 : 1));
    rg_checkpoint_close(ckpt);
}

/* yarn of a head of 64, 4 times 1,024 positions: the ramp's ends are whole pairs unless "truncate" is false. */
static void yarn_is_read(void **state)
{
    static const struct {
        const char *change;
        double inv_freq[3]; /* of pairs 6, 10, 17 */
    } cases[] = {
        { "{\"head_dim\": 64, \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4,"
          " \"original_max_position_embeddings\": 1024}}",
          { 0.167568637, 0.0400127481, 0.0023073668 } },
        { "{\"head_dim\": 64, \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4,"
          " \"original_max_position_embeddings\": 1024, \"truncate\": false}}",
          { 0.174015073, 0.0410179671, 0.0022002721 } },
        { "{\"head_dim\": 64, \"max_position_embeddings\": 1024,"
          " \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4}}",
          { 0.167568637, 0.0400127481, 0.0023073668 } },
    };
    static const int pairs[] = { 6, 10, 17 };
    static rg_config c;
    float inv_freq[32], factor;
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_checkpoint *ckpt = changed("llama", cases[i].change);
        assert_ok(rg_config_read(&c, ckpt, &err), err);
        rg_rope_frequencies(&c.ropes[0], 0, NULL, inv_freq, &factor);
        for (int p = 0; p < 3; p++)
            assert_true(fabs((double)inv_freq[pairs[p]] / cases[i].inv_freq[p] - 1) < 1e-6);
        assert_true(fabs((double)factor - (0.1 * log(4) + 1)) < 1e-6);
        rg_checkpoint_close(ckpt);
    }
}

#define ARCH(file) extern const rg_arch rg_arch_##file;
#include "model/arch/archs.def"
#undef ARCH

static void an_unknown_architecture_is_told_all_names(void **state)
{
    static const rg_arch *const all[] = {
#define ARCH(file) &rg_arch_##file,
#include "model/arch/archs.def"
#undef ARCH
    };
    static rg_config c;
    rg_error err;
    rg_checkpoint *ckpt = changed("llama", "{\"architectures\": [\"NobodyForCausalLM\"]}");

    (void)state;
    assert_false(rg_config_read(&c, ckpt, &err));
    for (size_t i = 0; i < RG_LEN(all); i++)
        if (all[i]->hf_name && !strstr(err.text, all[i]->hf_name))
            fail_msg("%s is not in: %s", all[i]->hf_name, err.text);
    rg_checkpoint_close(ckpt);
}

/* Every architecture with yarn takes its own context for the original where none is given. */
static void a_stretched_context_is_the_models_own(void **state)
{
    static const struct {
        const char *golden, *change;
    } cases[] = {
        { "llama", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4}}" },
        { "mixtral", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4}}" },
        { "deepseek-v2", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4}}" },
        { "gemma3", "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000,"
                    " \"factor\": 4}}}" },
    };
    static rg_config c;
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_checkpoint *ckpt = changed(cases[i].golden, cases[i].change);
        assert_ok(rg_config_read(&c, ckpt, &err), err);
        assert_int_equal(c.ropes[0].original_max_seq_len, 4096);
        rg_checkpoint_close(ckpt);
    }
}

/* ---- defaults ---- */

static double field(const rg_config *c, size_t at, rg_key_kind kind)
{
    const void *p = (const char *)c + at;

    switch (kind) {
    case KEY_INT: return *(const int *)p;
    case KEY_FLOAT: return (double)*(const float *)p;
    case KEY_DOUBLE: return *(const double *)p;
    case KEY_BOOL: return *(const bool *)p;
    }
    return 0;
}

#define INT(f) offsetof(rg_config, f), KEY_INT
#define FLOAT(f) offsetof(rg_config, f), KEY_FLOAT
#define DOUBLE(f) offsetof(rg_config, f), KEY_DOUBLE
#define BOOL(f) offsetof(rg_config, f), KEY_BOOL
/* What stands first in llama4.c's settings, and gemma3n.c's settings of a layer. */
typedef struct llama4_settings {
    bool scales_q;
    int period;
} llama4_settings;
typedef struct gemma3n_layer {
    bool cuts_gate;
    float cut;
} gemma3n_layer;
#define LAYER_OWN(i, type, f) offsetof(rg_config, layer[i].own) + offsetof(type, f)
#define OWN(type, f)      RG_OWN_AT(type, f), KEY_INT
#define OWN_BOOL(type, f) RG_OWN_AT(type, f), KEY_BOOL
#define SSD(f)            RG_OWN_AT(ssd_settings, f), KEY_INT
#define SSD_BOOL(f)       RG_OWN_AT(ssd_settings, f), KEY_BOOL
#define SSD_FLOAT(f)      RG_OWN_AT(ssd_settings, f), KEY_FLOAT
static const struct {
    const char *golden, *change;
    size_t at;
    rg_key_kind kind;
    double want;
} defaults[] = {
    { "llama", "{\"num_key_value_heads\": null}", INT(n_kv_heads), 4 },
    { "llama", "{\"head_dim\": null}", INT(head_dim), 16 },
    { "llama", "{\"rms_norm_eps\": null}", FLOAT(norm_eps), 1e-6 },
    { "llama", "{\"tie_word_embeddings\": null}", BOOL(tie_embeddings), 0 },
    { "llama", "{\"max_position_embeddings\": null}", INT(max_seq_len), 2048 },
    { "llama", "{\"rope_parameters\": null}", DOUBLE(ropes[0].theta), 1e4 },
    { "llama", "{\"architectures\": null}", INT(n_heads), 4 },
    { "gemma3", "{\"tie_word_embeddings\": null}", BOOL(tie_embeddings), 1 },
    { "gemma3", "{\"head_dim\": null}", INT(head_dim), 256 },
    { "gemma3", "{\"num_key_value_heads\": null}", INT(n_kv_heads), 4 },
    { "gemma3", "{\"rms_norm_eps\": null}", FLOAT(norm_eps), 1e-6 },
    { "gemma3", "{\"query_pre_attn_scalar\": null}", DOUBLE(attn_scale), 1.0 / 16 },
    { "gemma3", "{\"sliding_window\": null}", INT(window), 4096 },
    { "gemma3", "{\"rope_parameters\": null}", DOUBLE(ropes[0].theta), 1e6 },
    { "gemma3", "{\"rope_parameters\": null}", DOUBLE(ropes[1].theta), 1e4 },
    { "gemma3", "{\"layer_types\": null, \"sliding_window_pattern\": null}", INT(layer[5].window), 0 },
    { "gemma3", "{\"layer_types\": null, \"sliding_window_pattern\": null}", INT(layer[4].window), 12 },
    { "gemma3",
      "{\"num_hidden_layers\": 4, \"sliding_window_pattern\": null, \"layer_types\": [\"sliding_attention\", "
      "\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
      INT(layer[3].rope), 1 },
    { "llama", "{\"rope_parameters\": {\"rope_theta\": 10000, \"partial_rotary_factor\": 0.5}}", INT(ropes[0].dim), 8 },
    /* transformers lets rope_scaling take the place of rope_parameters, but for an empty one. */
    { "llama", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", DOUBLE(ropes[0].factor), 4 },
    { "llama", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", INT(ropes[0].type), RG_ROPE_LINEAR },
    { "llama", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}, \"rope_theta\": 5e5}",
      DOUBLE(ropes[0].theta), 5e5 },
    { "llama3", "{\"rope_scaling\": {}}", INT(ropes[0].type), RG_ROPE_LLAMA3 },
    { "llama3", "{\"rope_scaling\": {\"type\": \"default\"}}", INT(ropes[0].type), RG_ROPE_DEFAULT },
    { "qwen2", "{\"layer_types\": null, \"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 1}",
      INT(layer[0].window), 0 },
    { "qwen2", "{\"layer_types\": null, \"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 1}",
      INT(layer[1].window), 7 },
    { "qwen3-moe", "{\"mlp_only_layers\": [1], \"decoder_sparse_step\": 2}", INT(n_dense_layers), 3 },
    { "gemma2", "{\"attn_logit_softcapping\": null, \"layer_types\": null}", INT(layer[1].window), 0 },
    { "minimax-m2", "{\"rope_parameters\": null}", INT(ropes[0].dim), 16 },
    { "minimax-m2", "{\"rope_parameters\": null, \"rotary_dim\": 6}", INT(ropes[0].dim), 6 },
    { "glm4-moe", "{\"rope_parameters\": null}", INT(ropes[0].dim), 8 },
    { "glm4-moe", "{\"norm_topk_prob\": false}", BOOL(routing.renormalize), 0 },
    { "glm4-moe", "{\"first_k_dense_replace\": 2}", INT(layer[1].kind), 0 },
    { "deepseek-v3", "{\"n_group\": null, \"n_routed_experts\": 16}", INT(routing.n_groups), 8 },
    { "deepseek-v3", "{\"rope_interleave\": false}", BOOL(ropes[0].interleaved), 0 },
    { "deepseek-v3",
      "{\"qk_nope_head_dim\": 8, \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 1, \"mscale_all_dim\": 1}}",
      DOUBLE(attn_scale), 0.25 },
    { "phi-moe", "{\"router_jitter_noise\": null}", FLOAT(routing.jitter), 0.01f },
    { "gpt-oss", "{\"layer_types\": null}", INT(layer[0].window), 12 },
    { "gpt-oss", "{\"layer_types\": null}", INT(layer[1].window), 0 },
    { "gpt-oss", "{\"num_experts_per_tok\": null, \"experts_per_token\": 3}", INT(routing.n_used), 3 },
    { "mistral-swa", "{\"sliding_window\": null}", INT(layer[0].window), 4096 },
    { "smollm3", "{\"no_rope_layers\": null}", INT(layer[3].rope), -1 },
    { "smollm3", "{\"no_rope_layers\": null, \"no_rope_layer_interval\": 3}", INT(layer[2].rope), -1 },
    { "smollm3", "{\"layer_types\": null, \"use_sliding_window\": true, \"sliding_window\": 7}", INT(layer[3].window), 7 },
    { "smollm3", "{\"layer_types\": null, \"use_sliding_window\": true, \"sliding_window\": 7}", INT(layer[2].window), 0 },
    { "exaone4", "{\"sliding_window\": null}", INT(layer[0].window), 4096 },
    { "exaone4", "{\"layer_types\": null, \"sliding_window_pattern\": \"LG\"}", INT(layer[1].rope), -1 },
    { "exaone4", "{\"layer_types\": null, \"sliding_window_pattern\": \"LG\"}", INT(layer[2].window), 12 },
    { "cohere2", "{\"layer_types\": null}", INT(layer[3].rope), -1 },
    { "cohere2", "{\"logit_scale\": null}", FLOAT(logit_scale), 0.0625 },
    { "granite", "{\"attention_multiplier\": null}", DOUBLE(attn_scale), 1 },
    { "olmo3", "{\"layer_types\": null}", INT(layer[7].window), 0 },
    { "olmo3", "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8}}", INT(ropes[0].type), RG_ROPE_YARN },
    { "olmo3", "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8}}", INT(ropes[1].type), RG_ROPE_DEFAULT },
    { "olmo3", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 8, \"rope_theta\": 5e5}}",
      DOUBLE(ropes[1].theta), 5e5 },
    { "hunyuan-dense", "{\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 1.5}}", INT(max_seq_len), 6144 },
    { "gemma2", "{\"final_logit_softcapping\": null}", FLOAT(logit_softcap), 30 },
    { "gemma3n", "{\"intermediate_size\": 40}", INT(ffn_dim), 40 },
    { "gemma3n", "{\"intermediate_size\": [48, 48, 48, 48, 48, 96]}", INT(layer[5].ffn_dim), 96 },
    { "gemma3n", "{\"activation_sparsity_pattern\": null}", INT(ffn_dim), 48 },
    { "gemma3n", "{\"activation_sparsity_pattern\": [0.95, 0, 0, 0, 0, 0.5]}",
      LAYER_OWN(0, gemma3n_layer, cut), KEY_FLOAT, 1.6448535 },
    { "gemma3n", "{\"activation_sparsity_pattern\": [0.95, 0, 0, 0, 0, 0.5]}",
      LAYER_OWN(5, gemma3n_layer, cuts_gate), KEY_BOOL, 1 },
    { "gemma3n", "{\"activation_sparsity_pattern\": null}", LAYER_OWN(0, gemma3n_layer, cuts_gate), KEY_BOOL, 0 },
    { "gemma3n", "{\"num_hidden_layers\": 20, \"num_kv_shared_layers\": null, \"layer_types\": null, \"intermediate_size\": null,"
      " \"activation_sparsity_pattern\": null}", INT(layer[19].kv_layer), 4 },
    { "gemma3n", "{\"num_hidden_layers\": 20, \"num_kv_shared_layers\": null, \"layer_types\": null, \"intermediate_size\": null,"
      " \"activation_sparsity_pattern\": null}", LAYER_OWN(9, gemma3n_layer, cuts_gate), KEY_BOOL, 1 },
    { "gemma4", "{\"num_kv_shared_layers\": null}", INT(layer[5].kv_layer), -1 },
    { "gemma4", "{\"per_layer_config\": null}", INT(ropes[0].dim), 512 },
    { "gemma4", "{\"per_layer_config\": null, \"global_head_dim\": 64}", INT(ropes[0].dim), 64 },
    { "gemma4", "{\"per_layer_config\": {}, \"global_head_dim\": 64}", INT(ropes[0].dim), 16 },
    { "gemma4", "{\"rope_parameters\": null}", INT(ropes[0].type), RG_ROPE_PROPORTIONAL },
    { "gemma4", "{\"rope_parameters\": null}", DOUBLE(ropes[0].part), 0.25 },
    { "gemma4", "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"proportional\"}}}", DOUBLE(ropes[0].part), 1 },
    { "gemma4", "{\"use_double_wide_mlp\": null}", INT(layer[5].ffn_dim), 0 },
    { "gemma4", "{\"layer_types\": null, \"num_kv_shared_layers\": 0, \"per_layer_config\": null}", INT(layer[2].window), 12 },
    { "gemma4", "{\"num_hidden_layers\": 4, \"num_kv_shared_layers\": 0, \"per_layer_config\": null, \"layer_types\":"
      " [\"full_attention\", \"sliding_attention\", \"sliding_attention\", \"sliding_attention\"]}", INT(layer[3].window), 0 },
    { "gemma4", "{\"use_bidirectional_attention\": \"vision\"}", INT(window), 12 },
    { "mixtral", "{\"rms_norm_eps\": null}", FLOAT(norm_eps), 1e-5 },
    { "mixtral", "{\"num_local_experts\": null}", INT(routing.n_experts), 8 },
    { "mixtral", "{\"num_experts_per_tok\": null}", INT(routing.n_used), 2 },
    { "mixtral", "{\"rope_parameters\": null}", DOUBLE(ropes[0].theta), 1e6 },
    { "mixtral", "{\"max_position_embeddings\": null}", INT(max_seq_len), 131072 },
    { "deepseek-v2", "{\"kv_lora_rank\": null}", OWN(mla_settings, kv_lora_rank), 512 },
    { "deepseek-v2", "{\"q_lora_rank\": null}", OWN(mla_settings, q_lora_rank), 1536 },
    { "deepseek-v2", "{\"qk_nope_head_dim\": null}", OWN(mla_settings, nope_dim), 128 },
    { "deepseek-v2", "{\"v_head_dim\": null}", OWN(mla_settings, v_dim), 128 },
    { "deepseek-v2", "{\"first_k_dense_replace\": null}", INT(n_dense_layers), 0 },
    { "deepseek-v2", "{\"n_routed_experts\": null}", INT(routing.n_experts), 64 },
    { "deepseek-v2", "{\"n_shared_experts\": null}", INT(n_shared_experts), 2 },
    { "deepseek-v2", "{\"moe_intermediate_size\": null}", INT(moe_ffn_dim), 1407 },
    { "mamba", "{\"state_size\": null}", OWN(mamba_settings, d_state), 16 },
    { "mamba", "{\"conv_kernel\": null}", OWN(mamba_settings, d_conv), 4 },
    { "mamba", "{\"intermediate_size\": null, \"expand\": null}", OWN(mamba_settings, d_inner), 128 },
    { "mamba", "{\"time_step_rank\": \"auto\"}", OWN(mamba_settings, dt_rank), 4 },
    { "mamba", "{\"layer_norm_epsilon\": null}", FLOAT(norm_eps), 1e-5 },
    { "mamba", "{\"use_conv_bias\": null}", OWN_BOOL(mamba_settings, conv_bias), 1 },
    { "mamba", "{\"tie_word_embeddings\": null}", BOOL(tie_embeddings), 1 },
    { "mamba", "{\"num_hidden_layers\": null, \"n_layer\": 2}", INT(n_layers), 2 },
    { "jamba", "{\"num_key_value_heads\": null, \"num_attention_heads\": 16}", INT(n_kv_heads), 8 },
    { "jamba", "{\"mamba_d_state\": null}", OWN(mamba_settings, d_state), 16 },
    { "jamba", "{\"mamba_dt_rank\": \"auto\"}", OWN(mamba_settings, dt_rank), 4 },
    { "jamba", "{\"attn_layer_period\": null, \"attn_layer_offset\": null}", INT(layer[2].kind), 0 },
    { "jamba", "{\"num_experts\": 1}", INT(layer[1].kind), 0 },
    { "mamba2", "{\"n_groups\": null}", SSD(n_groups), 8 },
    { "mamba2", "{\"n_groups\": 1}", SSD(n_groups), 1 },
    { "mamba2", "{\"head_dim\": null, \"num_heads\": 2}", SSD(head_dim), 64 },
    { "mamba2", "{\"expand\": null, \"intermediate_size\": 96, \"head_dim\": 12}", SSD(head_dim), 12 },
    { "mamba2", "{\"norm_before_gate\": true}", SSD_BOOL(norm_before_gate), 0 },
    { "mamba2", "{\"use_conv_bias\": null}", SSD_BOOL(conv_bias), 1 },
    { "mamba2", "{\"use_bias\": true}", SSD_BOOL(out_bias), 1 },
    { "mamba2", "{\"time_step_limit\": null}", SSD_FLOAT(dt_max), 0 },
    { "mamba2", "{\"time_step_limit\": [0.001, 0.1]}", SSD_FLOAT(dt_max), 0.1 },
    { "mamba2", "{\"time_step_limit\": [0.001, {\"__float__\": \"Infinity\"}]}", SSD_FLOAT(dt_min), 0.001 },
    { "mamba2", "{\"time_step_limit\": [0.001, {\"__float__\": \"Infinity\"}]}", SSD_FLOAT(dt_max), 3.4028234663852886e38 },
    { "granite-hybrid", "{}", INT(layer[2].rope), -1 },
    { "granite-hybrid", "{\"position_embedding_type\": \"rope\"}", INT(layer[2].rope), 0 },
    { "granite-hybrid", "{\"mamba_d_head\": \"auto\", \"mamba_expand\": null}", SSD(head_dim), 16 },
    { "granite-hybrid", "{\"mamba_d_head\": null, \"mamba_n_heads\": 4}", SSD(head_dim), 32 },
    { "granite-hybrid", "{\"mamba_n_groups\": null}", SSD(n_groups), 1 },
    { "granite-hybrid", "{\"num_local_experts\": 0}", INT(ffn_dim), 24 },
    { "granite-hybrid", "{\"num_local_experts\": null}", INT(routing.n_experts), 8 },
    { "granite-hybrid", "{\"shared_intermediate_size\": 0}", INT(n_shared_experts), 0 },
    { "granite-hybrid", "{\"layer_types\": null}", INT(layer[2].kind), 2 },
    { "nemotron-h", "{\"intermediate_size\": [96, 40]}", INT(layer[4].ffn_dim), 40 },
    { "nemotron-h", "{\"intermediate_size\": [40]}", INT(ffn_dim), 40 },
    { "nemotron-h", "{\"mamba_head_dim\": null}", SSD(head_dim), 64 },
    { "nemotron-h", "{\"layer_norm_epsilon\": null, \"rms_norm_eps\": 0.5}", FLOAT(norm_eps), 0.5 },
    { "nemotron-h", "{\"layers_block_type\": null, \"num_hidden_layers\": 2, \"hybrid_override_pattern\": \"*M\"}",
      INT(layer[0].kind), 1 },
    { "nemotron-h", "{\"use_bias\": true, \"mamba_proj_bias\": true}", SSD_BOOL(in_bias), 1 },
    { "nemotron-h-moe", "{\"n_shared_experts\": 0}", INT(n_shared_experts), 0 },
    { "nemotron-h-moe", "{\"norm_topk_prob\": false}", BOOL(routing.renormalize), 0 },
    { "falcon-h1", "{\"mamba_d_ssm\": null}", SSD(head_dim), 16 },
    { "falcon-h1", "{\"mamba_d_ssm\": 96, \"mamba_d_head\": null}", SSD(head_dim), 12 },
    { "falcon-h1", "{\"mamba_rms_norm\": true}", SSD_BOOL(norm_before_gate), 1 },
    { "falcon-h1", "{\"mamba_rms_norm\": true, \"mamba_norm_before_gate\": false}", SSD_BOOL(norm_before_gate), 0 },
    { "falcon-h1", "{\"projectors_bias\": true}", SSD_BOOL(out_bias), 1 },
    { "falcon-h1", "{\"projectors_bias\": true}", SSD_BOOL(in_bias), 0 },
    { "falcon-h1", "{\"ssm_multipliers\": null}", SSD_FLOAT(times[4]), 1 },
    { "falcon-h1", "{\"key_multiplier\": 0.5}", DOUBLE(attn_scale), 0.125 },
    { "lfm2", "{\"block_multiple_of\": null}", INT(ffn_dim), 256 },
    { "lfm2", "{\"block_ffn_dim_multiplier\": 1.5}", INT(ffn_dim), 160 },
    { "lfm2", "{\"block_auto_adjust_ff_dim\": false, \"block_ff_dim\": 200}", INT(ffn_dim), 200 },
    { "lfm2", "{\"layer_types\": null, \"full_attn_idxs\": [1]}", INT(layer[1].kind), 1 },
    { "lfm2", "{\"layer_types\": null, \"full_attn_idxs\": [1]}", INT(layer[2].kind), 0 },
    { "lfm2", "{\"num_hidden_layers\": null}", INT(n_layers), 6 },
    { "lfm2-moe", "{\"num_dense_layers\": 1}", INT(layer[1].kind), 2 },
    { "based", "{\"vocab_size\": 315}", INT(vocab_size), 320 },
    { "based", "{\"rotary_emb_base\": 500}", DOUBLE(ropes[0].theta), 500 },
    { "based", "{\"alt_mixer_2_layers\": [2, 3]}", INT(layer[3].window), 65 },
    { "recurrent-gemma", "{\"num_key_value_heads\": null}", INT(n_kv_heads), 4 },
    { "recurrent-gemma", "{\"block_types\": null}", INT(layer[2].window), 12 },
    { "recurrent-gemma", "{\"hidden_size\": 2560}", DOUBLE(embed_scale), 50.5 },
    { "s4", "{\"n_ssm\": null}", OWN(s4_settings, n_ssm), 1 },
    { "s4", "{\"disc\": null}", OWN_BOOL(s4_settings, bilinear), 1 },
    { "s4d-lin", "{\"disc\": null}", OWN_BOOL(s4_settings, bilinear), 0 },
    { "cla3", "{\"use_cla\": null}", INT(layer[1].kv_layer), -1 },
    { "cla3", "{}", INT(layer[4].kv_layer), 3 },
    { "character-ai", "{}", INT(layer[6].kv_layer), 0 },
    { "cla2", "{\"rope_scaling\": null}", DOUBLE(ropes[0].theta), 1e4 },
    { "cla2-moe", "{\"use_mixed_mlp_moe\": null}", INT(n_shared_experts), 0 },
    { "cla2-moe", "{\"moe_topk\": [1, 1, 1, 1]}", INT(layer[3].kind), 1 },
    { "sparse-streaming", "{}", LAYER_OWN(1, cache_places, last), KEY_INT, 13 },
    { "sparse-patterns", "{}", INT(n_patterns), 6 },
    { "sparse-patterns", "{\"layer_types\": null}", INT(layer[0].pattern), -1 },
    { "llama4", "{\"no_rope_layers\": [], \"layer_types\": null}", INT(layer[2].rope), -1 },
    { "llama4", "{\"no_rope_layers\": null, \"no_rope_layer_interval\": null, \"layer_types\": null}", INT(layer[3].rope), -1 },
    { "llama4", "{\"no_rope_layers\": null, \"no_rope_layer_interval\": null, \"layer_types\": null}", INT(layer[2].pattern), 0 },
    { "llama4", "{\"attention_chunk_size\": 0}", INT(layer[0].pattern), -1 },
    { "llama4", "{\"moe_layers\": null}", INT(layer[3].kind), 1 },
    { "llama4", "{\"moe_layers\": null, \"interleave_moe_layer_step\": null}", INT(layer[0].kind), 1 },
    { "llama4", "{\"attn_temperature_tuning\": 4}", OWN_BOOL(llama4_settings, scales_q), 1 },
    { "llama4", "{\"attn_temperature_tuning\": false}", OWN_BOOL(llama4_settings, scales_q), 0 },
    { "llama4", "{\"floor_scale\": null}", OWN(llama4_settings, period), 8192 },
    { "deepseek-v32", "{\"index_topk\": null}", OWN(dsa_settings, n_chosen), 2048 },
    { "deepseek-v32", "{\"index_n_heads\": null}", OWN(dsa_settings, n_heads), 64 },
    { "deepseek-v32", "{}", BOOL(ropes[1].interleaved), 0 },
    { "deepseek-v32", "{\"mlp_layer_types\": null}", INT(layer[0].kind), 0 },
    { "glm-dsa", "{}", BOOL(ropes[1].interleaved), 1 },
    { "glm-dsa", "{\"indexer_rope_interleave\": false}", BOOL(ropes[1].interleaved), 0 },
    { "glm-dsa", "{\"indexer_types\": null}", INT(layer[3].kind), 1 },
    { "glm-dsa", "{\"indexer_types\": null, \"index_topk_pattern\": \"FFFS\"}", INT(layer[3].kind), 3 },
    { "glm-dsa", "{\"indexer_types\": null, \"index_topk_freq\": 2, \"index_skip_topk_offset\": 2}", INT(layer[2].kind), 3 },
    { "glm-dsa", "{\"indexer_types\": null, \"index_topk_freq\": 2, \"index_skip_topk_offset\": 2}", INT(layer[3].kind), 1 },
};

static void missing_keys_take_defaults(void **state)
{
    static rg_config c;
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(defaults); i++) {
        rg_checkpoint *ckpt = changed(defaults[i].golden, defaults[i].change);
        if (!rg_config_read(&c, ckpt, &err))
            fail_msg("%s %s: %s", defaults[i].golden, defaults[i].change, err.text);
        double got = field(&c, defaults[i].at, defaults[i].kind);
        double want = defaults[i].kind == KEY_FLOAT ? (double)(float)defaults[i].want : defaults[i].want;
        if (got != want)
            fail_msg("%s %s: %g and not %g", defaults[i].golden, defaults[i].change, got, want);
        rg_checkpoint_close(ckpt);
    }
}

/* Dynamic NTK: a variant for every length beyond the context. */
static void dynamic_rope_follows_the_length(void **state)
{
    static rg_config c;
    rg_checkpoint *ckpt =
        changed("llama", "{\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 2, \"rope_theta\": 10000}}");
    rg_error err;

    (void)state;
    assert_ok(rg_config_read(&c, ckpt, &err), err);
    assert_int_equal(c.max_seq_len, 8192);
    assert_int_equal(rg_config_rope(&c, 4096), 0);
    assert_int_equal(rg_config_rope(&c, 4196), 100);
    assert_int_equal(rg_rope_variants(&c.ropes[0]), 1);
    rg_checkpoint_close(ckpt);
}

/* Phi-3's longrope: both lists of factors, one factor on cos and sin, and the length from which on the second counts. */
static void longrope_has_two_variants(void **state)
{
    static rg_config c;
    float inv_freq[6], factor;
    rg_error err;

    (void)state;
    for (int i = 0; i < 2; i++) {
        rg_checkpoint *ckpt = rg_checkpoint_open(test_golden("phi4-mini", i ? "config.old.json" : ""), RG_CKPT_DEFAULT, &err);
        assert_ok(ckpt, err);
        assert_ok(rg_config_read(&c, ckpt, &err), err);
        assert_int_equal(rg_rope_variants(&c.ropes[0]), 2);
        assert_int_equal(rg_config_rope(&c, 1024), 0);
        assert_int_equal(rg_config_rope(&c, 1025), 1);
        for (int v = 0; v < 2; v++) {
            rg_rope_frequencies(&c.ropes[0], v, NULL, inv_freq, &factor);
            assert_true(fabs((double)factor - sqrt(1 + log(4.0) / log(1024.0))) < 1e-6);
            for (int k = 0; k < 6; k++) {
                double by = v ? 2.0 + 0.3 * k : 1.0 + 0.1 * k;
                assert_true(fabs((double)inv_freq[k] * by * pow(1e4, k / 6.0) - 1) < 1e-6);
            }
        }
        rg_checkpoint_close(ckpt);
    }
}

static void an_empty_window_is_none(void **state)
{
    static rg_config c;
    rg_error err;
    rg_checkpoint *ckpt = changed("mixtral", "{}");

    (void)state;
    assert_ok(rg_config_read(&c, ckpt, &err), err); /* "sliding_window": null */
    assert_int_equal(c.window, 0);
    rg_checkpoint_close(ckpt);
}

/* The bytes of a position: K and V of those layers alone that have their own, in groups that grow. */
static void shared_kv_is_kept_once(void **state)
{
    static const struct {
        const char *golden, *change;
        uint64_t bytes; /* sets * K/V heads * (K + V) * bytes of bf16 */
    } cases[] = {
        { "cla2", "{}", 2 * 2 * 32 * 2 },         { "cla2", "{\"use_cla\": false}", 4 * 2 * 32 * 2 },
        { "cla2-moe", "{}", 2 * 2 * 32 * 2 },     { "cla2", "{\"cla_share_factor\": 1}", 4 * 2 * 32 * 2 },
        { "cla3", "{}", 2 * 1 * 32 * 2 },         { "cla3", "{\"kv_source_layers\": [0, 0, 0, 0, 0]}", 1 * 1 * 32 * 2 },
        { "character-ai", "{}", 1 * 1 * 32 * 2 }, { "sparse-streaming", "{}", 0 },
    };
    const rg_model_options o = { .declare_only = true, .declared_type = RG_BF16 };
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_checkpoint *ckpt = changed(cases[i].golden, cases[i].change);
        rg_model *m = rg_model_open(ckpt, &o, &err);

        assert_ok(m, err);
        assert_int_equal(rg_state_bytes_per_position(&m->state), cases[i].bytes);
        rg_model_close(m);
        rg_checkpoint_close(ckpt);
    }
}

/* ---- refusals ---- */

static const struct {
    const char *golden, *change, *named;
} refusals[] = {
#include "config_refusals.def"
};

static void refused_by_name_and_alike(void **state)
{
    const rg_model_options o = { .declare_only = true, .declared_type = RG_BF16 };
    rg_error err[2];

    (void)state;
    for (size_t i = 0; i < RG_LEN(refusals); i++) {
        rg_checkpoint *ckpt = changed(refusals[i].golden, refusals[i].change);
        for (int twice = 0; twice < 2; twice++) {
            rg_model *m = rg_model_open(ckpt, &o, &err[twice]);
            if (m)
                fail_msg("%s %s: taken", refusals[i].golden, refusals[i].change);
        }
        assert_string_equal(err[0].text, err[1].text);
        if (!strstr(err[0].text, refusals[i].named))
            fail_msg("%s %s: '%s' does not name %s", refusals[i].golden, refusals[i].change, err[0].text, refusals[i].named);
        assert_true(err[0].code == RG_E_INPUT || err[0].code == RG_E_UNSUPPORTED);
        rg_checkpoint_close(ckpt);
    }
}

static void nan_is_refused(void **state)
{
    static const char text[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, \"num_attention_heads\": 4, "
                               "\"num_hidden_layers\": 1, \"intermediate_size\": 64, \"vocab_size\": 9, \"rms_norm_eps\": NaN}";
    static rg_config c;
    char path[600];
    rg_error err;

    (void)state;
    rg_checkpoint_close(changed("llama", "{}")); /* makes the folder */
    snprintf(path, sizeof path, "%s/config_cases/config.json", RG_BUILD_DIR);
    rg_writer *w = rg_writer_open(path, &err);
    assert_ok(w, err);
    assert_ok(rg_writer_write(w, text, sizeof text - 1, &err), err);
    assert_ok(rg_writer_commit(w, &err), err);
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(ckpt, err);
    assert_false(rg_config_read(&c, ckpt, &err));
    assert_non_null(strstr(err.text, "rms_norm_eps"));
    rg_checkpoint_close(ckpt);
}

static void note_unknown(void *arg, const char *key, rg_meta_type type, bool understood)
{
    char *out = arg;

    (void)type;
    if (!understood) {
        strncat(out, key, 80);
        strcat(out, ";");
    }
}

static void unknown_keys_are_reported(void **state)
{
    static rg_config c;
    char unknown[400] = "";
    rg_error err;
    rg_checkpoint *ckpt = changed("llama", "{\"zz_new_setting\": 3, \"zz\": {\"inner\": [1, 2]}}");

    (void)state;
    assert_ok(rg_config_read(&c, ckpt, &err), err);
    rg_meta_each(ckpt, note_unknown, unknown);
    assert_non_null(strstr(unknown, "zz_new_setting;"));
    assert_non_null(strstr(unknown, "zz.inner;"));
    assert_null(strstr(unknown, "hidden_size"));
    rg_checkpoint_close(ckpt);
}

/* ---- memory ---- */

typedef struct countdown {
    long left;
} countdown;

static bool allow(void *arg, size_t bytes)
{
    countdown *c = arg;

    (void)bytes;
    return c->left-- != 0;
}

static void opening_survives_every_failed_allocation(void **state)
{
    static const char *const names[] = { "llama", "mamba" };
    const rg_model_options o = { .declared_type = RG_F32 };
    rg_error err;

    (void)state;
    for (size_t g = 0; g < RG_LEN(names); g++) {
        rg_checkpoint *ckpt = rg_checkpoint_open(test_golden(names[g], ""), RG_CKPT_DEFAULT, &err);
        assert_ok(ckpt, err);
        size_t n_live = rg_mem_count().n_live;
        rg_model *m = NULL;
        long n = 0;
        for (; !m; n++) {
            countdown c = { n };
            assert_true(n < 100000);
            rg_mem_set_gate(allow, &c);
            m = rg_model_open(ckpt, &o, &err);
            rg_mem_set_gate(NULL, NULL);
            if (m)
                break;
            assert_int_equal(err.code, RG_E_MEMORY);
            assert_int_equal(rg_mem_count().n_live, n_live);
        }
        assert_true(n > 20);
        rg_model_close(m);
        assert_int_equal(rg_mem_count().n_live, n_live);
        rg_checkpoint_close(ckpt);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_agree),
        cmocka_unit_test(parts_are_passed_over),
        cmocka_unit_test(embeddings_tell_the_vocabulary),
        cmocka_unit_test(llama3_scaling_is_read),
        cmocka_unit_test(llama3_scaling_may_be_a_step),
        cmocka_unit_test(yarn_is_read),
        cmocka_unit_test(a_stretched_context_is_the_models_own),
        cmocka_unit_test(missing_keys_take_defaults),
        cmocka_unit_test(an_unknown_architecture_is_told_all_names),
        cmocka_unit_test(dynamic_rope_follows_the_length), cmocka_unit_test(longrope_has_two_variants),
        cmocka_unit_test(an_empty_window_is_none),
        cmocka_unit_test(shared_kv_is_kept_once),
        cmocka_unit_test(refused_by_name_and_alike),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(unknown_keys_are_reported),
        cmocka_unit_test(opening_survives_every_failed_allocation),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
