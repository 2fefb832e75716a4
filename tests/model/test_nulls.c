/* Tests of null in config.json: of each key it is refused by name, or means what modelling code makes of it (nulls.h); never
 * what a missing key means, unless it asks for nothing. */
#include "support/model.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/arch.h"
#include "model/nulls.h"
#include "support/goldens.h"

/* A golden's config.json; in it the settings of the language model. */
typedef struct subject {
    const char *golden;
    json_t *config, *text;
} subject;

/* False: it has none. */
static bool load(subject *s, const char *golden)
{
    *s = (subject){ .golden = golden };
    if (rg_path_look(test_golden(golden, "config.json")) == RG_PATH_NONE)
        return false;
    s->config = json_load_file(test_golden(golden, "config.json"), 0, NULL);
    assert_non_null(s->config);
    s->text = json_object_get(s->config, "text_config");
    s->text = s->text ? s->text : s->config;
    return true;
}

static const char *write_variant(const subject *s)
{
    const char *path = test_scratch("config.json");

    assert_int_equal(json_dump_file(s->config, path, 0), 0);
    return path;
}

/* What stands first in llama4.c's settings. */
typedef struct llama4_settings {
    bool scales_q;
} llama4_settings;

#define INT(f)   offsetof(rg_config, f), KEY_INT
#define FLOAT(f) offsetof(rg_config, f), KEY_FLOAT
#define BOOL(f)  offsetof(rg_config, f), KEY_BOOL
#define REFUSED  0, KEY_INT, -1
static const struct {
    const char *golden, *key; /* "object.key": of an object */
    size_t at;
    rg_key_kind kind;
    double want; /* -1 of REFUSED: the error names the key */
} nulls[] = {
    { "gemma2", "attn_logit_softcapping", FLOAT(attn_softcap), 0 },
    { "gemma2", "final_logit_softcapping", FLOAT(logit_softcap), 0 },
    { "gemma2", "sliding_window", INT(layer[0].window), 0 },
    { "gemma2", "head_dim", REFUSED },
    { "gemma2", "query_pre_attn_scalar", REFUSED },
    { "gemma2", "hidden_activation", REFUSED },
    { "gemma2", "attention_bias", BOOL(attn_bias), 0 },
    { "gemma2", "use_bidirectional_attention", INT(sees), RG_CAUSAL },
    { "gemma2", "layer_types", INT(layer[1].window), 0 },
    { "gemma3n", "final_logit_softcapping", FLOAT(logit_softcap), 0 },
    { "gemma4", "final_logit_softcapping", FLOAT(logit_softcap), 0 },
    { "recurrent-gemma", "logits_soft_cap", FLOAT(logit_softcap), 0 },
    { "recurrent-gemma", "partial_rotary_factor", INT(ropes[0].dim), 8 }, /* rope_parameters has another */
    { "llama", "num_key_value_heads", INT(n_kv_heads), 4 },
    { "llama", "head_dim", INT(head_dim), 16 },
    { "llama", "rms_norm_eps", REFUSED },
    { "llama", "rope_theta", INT(n_layers), 3 }, /* rope_parameters has it */
    { "llama", "rope_parameters.rope_theta", REFUSED },
    { "llama", "rope_scaling", INT(ropes[0].type), RG_ROPE_DEFAULT },
    { "llama", "hidden_act", REFUSED },
    { "llama", "max_position_embeddings", REFUSED },
    { "llama", "intermediate_size", REFUSED },
    { "llama", "mlp_bias", BOOL(mlp_bias), 0 },
    { "llama", "pad_token_id", INT(n_layers), 3 },
    { "llama3", "rope_parameters.factor", REFUSED },
    { "llama3", "rope_parameters.low_freq_factor", REFUSED },
    { "mixtral", "num_key_value_heads", INT(n_kv_heads), 4 },
    { "mixtral", "num_local_experts", REFUSED },
    { "mistral-swa", "sliding_window", INT(layer[0].window), 0 },
    { "qwen2", "sliding_window", INT(layer[0].window), 0 },
    { "qwen3", "head_dim", REFUSED },
    { "exaone4", "sliding_window", INT(layer[0].window), 0 },
    { "cohere2", "logit_scale", REFUSED },
    { "glm4-moe", "partial_rotary_factor", INT(ropes[0].dim), 8 }, /* rope_parameters has another */
    { "deepseek-v3", "norm_topk_prob", BOOL(routing.renormalize), 0 },
    { "deepseek-v3", "n_group", REFUSED },
    { "deepseek-v2", "n_group", INT(routing.n_groups), 0 },
    { "deepseek-v2", "v_head_dim", REFUSED },
    { "deepseek-v2", "topk_method", REFUSED },
    { "falcon-h1", "key_multiplier", REFUSED },
    { "falcon-h1", "mamba_d_ssm", INT(n_layers), 3 },
    { "granite", "residual_multiplier", REFUSED },
    { "granite-hybrid", "position_embedding_type", INT(layer[2].rope), -1 },
    { "llama4", "attention_chunk_size", INT(layer[0].pattern), -1 },
    { "llama4", "attn_temperature_tuning", RG_OWN_AT(llama4_settings, scales_q), KEY_BOOL, 0 },
    { "gpt2", "n_inner", INT(ffn_dim), 256 },
    { "gpt2", "scale_attn_weights", BOOL(layer_norm), 1 },
    { "gpt-neox", "rotary_pct", REFUSED },
    { "opt", "do_layer_norm_before", INT(n_layers), 3 },
    { "mamba2", "use_conv_bias", INT(n_layers), 3 },
    { "phi3", "sliding_window", INT(layer[0].window), 0 },
    { "phi-moe", "router_jitter_noise", REFUSED },
    { "cohere2", "use_qk_norm", BOOL(layer_norm), 1 },
};

static double value_at(const rg_config *c, size_t at, rg_key_kind kind)
{
    const void *p = (const char *)c + at;

    return kind == KEY_INT ? *(const int *)p : kind == KEY_FLOAT ? (double)*(const float *)p : *(const bool *)p;
}

/* Sets a key of the config, or one of an object in it, to null. */
static void set_null(const subject *s, const char *key)
{
    const char *dot = strchr(key, '.');
    char object[80];

    snprintf(object, sizeof object, "%.*s", dot ? (int)(dot - key) : 0, key);
    json_object_set_new(dot ? json_object_get(s->text, object) : s->text, dot ? dot + 1 : key, json_null());
}

static void null_is_no_missing_key(void **state)
{
    static subject s;
    static rg_config c;

    (void)state;
    for (size_t i = 0; i < RG_LEN(nulls); i++) {
        rg_error err = { 0 };

        load(&s, nulls[i].golden);
        set_null(&s, nulls[i].key);
        rg_checkpoint *ckpt = rg_checkpoint_open(write_variant(&s), RG_CKPT_DEFAULT, &err);
        assert_ok(ckpt, err);
        bool read = rg_config_read(&c, ckpt, &err);

        if (nulls[i].want == -1 && !nulls[i].at && (read || !strstr(err.text, nulls[i].key)))
            fail_msg("%s: %s null: %s", nulls[i].golden, nulls[i].key, read ? "taken" : err.text);
        else if ((nulls[i].want != -1 || nulls[i].at) && !read)
            fail_msg("%s: %s null: %s", nulls[i].golden, nulls[i].key, err.text);
        else if (read && value_at(&c, nulls[i].at, nulls[i].kind) != nulls[i].want)
            fail_msg("%s: %s null: %g and not %g", nulls[i].golden, nulls[i].key,
                     value_at(&c, nulls[i].at, nulls[i].kind), nulls[i].want);
        rg_checkpoint_close(ckpt);
        json_decref(s.config);
    }
}

/* Of every key of every table: what comes out is what 0 or false gives, or the error names the key. */
static void null_is_zero_or_refused(void **state)
{
    static subject s;
    static rg_config c;

    (void)state;
    for (size_t g = 0; g < RG_LEN(test_goldens); g++) {
        rg_error err = { 0 };

        if (!load(&s, test_goldens[g]))
            continue;
        rg_checkpoint *usual = rg_checkpoint_open(write_variant(&s), RG_CKPT_DEFAULT, &err);
        assert_ok(usual, err);
        const rg_arch *a = rg_arch_find(usual, &err);
        rg_checkpoint_close(usual);
        for (size_t i = 0; i < a->n_keys; i++) {
            const char *key = a->keys[i].hf;

            if (!key || strchr(key, '.') || json_is_null(json_object_get(s.text, key)))
                continue;
            json_t *before = json_deep_copy(s.text);
            for (size_t k = 0; k < RG_LEN(a->keys[i].hf_too) && a->keys[i].hf_too[k]; k++)
                json_object_del(s.text, a->keys[i].hf_too[k]);
            set_null(&s, key);
            rg_checkpoint *ckpt = rg_checkpoint_open(write_variant(&s), RG_CKPT_DEFAULT, &err);
            assert_ok(ckpt, err);
            if (!rg_config_read(&c, ckpt, &err)) {
                if (!rg_null_is_zero(&a->keys[i]) && !strstr(err.text, key))
                    fail_msg("%s: %s null: %s", s.golden, key, err.text);
            } else if (!rg_null_is_zero(&a->keys[i])) {
                fail_msg("%s: %s null: taken", s.golden, key);
            }
            rg_checkpoint_close(ckpt);
            json_object_clear(s.text);
            json_object_update(s.text, before);
            json_decref(before);
        }
        json_decref(s.config);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_no_missing_key),
        cmocka_unit_test(null_is_zero_or_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
