/* config.h -- the facts of a model, read from config.json or from GGUF's metadata by one table of keys.
 *
 * What a config says is understood or refused by name: a missing key that has a default gets it, a known key with a
 * setting that is not supported is an error, an unknown key is reported by `inspect`.  Everything later (weights,
 * state, counting, planning) follows from this struct alone. */
#ifndef RG_MODEL_CONFIG_H
#define RG_MODEL_CONFIG_H

#include "model/diffusion.h"
#include "model/embedding.h"
#include "model/rope.h"
#include "ops/ops.h"

typedef struct rg_arch rg_arch;

enum {
    RG_MAX_LAYERS = 1024,
    RG_MAX_ROPES = 2,
    RG_MAX_LAYER_PATTERNS = 8,
    RG_MAX_PLACES = 8,
    RG_MAX_NOT_FOLLOWED = 4,
    RG_OWN_BYTES = 256, /* of the settings that one architecture alone has */
    RG_LAYER_OWN_BYTES = 8, /* the same, of each layer */
};

/* Settings of one layer, besides the weights and the block of its kind. */
typedef struct rg_layer_config {
    int kind;     /* of its architecture's kinds of layer */
    int rope;     /* of the config's ropes; -1: positions are not rotated */
    int window;   /* keys that a row sees, itself included; 0: all before it */
    bool around;  /* and as many after it, where rows see what comes after them */
    int pattern;  /* of the config's patterns; -1: none */
    int kv_layer; /* an earlier layer whose K/V this one reads instead of keeping any; -1: its own */
    int ffn_dim;  /* of its MLP, where it is not the config's; 0: the config's */
    /* Settings of layers of its architecture alone: a struct of that file (see RG_LAYER_OWN). */
    _Alignas(4) unsigned char own[RG_LAYER_OWN_BYTES];
} rg_layer_config;

/* What a network that drafts reads of each row of its target: rows of the target's dim columns, side by side. */
typedef struct rg_feature_places {
    int n;                    /* 0: the model is no such network */
    int layer[RG_MAX_PLACES]; /* whose input each is; RG_HEAD_INPUT: what enters the head, after the final norm */
} rg_feature_places;

enum { RG_HEAD_INPUT = -1 };

typedef struct rg_config rg_config;
struct rg_config {
    const rg_arch *arch;
    const rg_config *target;    /* of the model that this network drafts for, borrowed; NULL: it is a model by itself */
    rg_feature_places places;
    int n_modules;              /* that predict further tokens, which a GGUF file written from it gets */
    int first_layer;            /* number of its first layer among the names of tensors */
    bool from_gguf;
    int n_layers, dim, vocab_size, max_seq_len;
    float norm_eps;
    bool layer_norm;            /* norms are LayerNorm, else RMSNorm */
    int n_positions;            /* that have an embedding of their own, so that no sequence can be longer; 0: none */
    bool tie_embeddings;
    const char *not_followed[RG_MAX_NOT_FOLLOWED]; /* keys that ask for what is not done, on purpose; NULL: no more */
    bool head_differs;          /* config.json says that they are tied, but the file's head differs and is used */
    bool headless;              /* the checkpoint has neither a head nor an embedding tied to one: no logits */
    double embed_scale;         /* the embedding is multiplied by it */
    float logit_scale;          /* logits are multiplied by it, before the cap */
    float logit_softcap;        /* 0: none */

    int n_heads, n_kv_heads, head_dim;
    double attn_scale;          /* of q . k */
    float attn_softcap;         /* 0: none */
    bool attn_bias, o_bias, mlp_bias;
    int n_ropes;
    rg_rope_config ropes[RG_MAX_ROPES];
    bool rope_factors;          /* the checkpoint brings a factor per frequency (GGUF's rope_freqs) */
    int window;                 /* of the layers that have one */
    int n_patterns;
    rg_patterns patterns[RG_MAX_LAYER_PATTERNS]; /* of layers that see neither all nor a window */
    rg_layer_config layer[RG_MAX_LAYERS];
    int sees;                   /* how far rows see: RG_CAUSAL, RG_SEES_ALL, or the positions of a block (batch.h) */

    int ffn_dim;
    rg_activation act;

    rg_routing routing;         /* n_experts 0: dense */
    int moe_ffn_dim, n_shared_experts, n_dense_layers;
    int shared_ffn_dim;         /* of all shared experts; 0: n_shared_experts * moe_ffn_dim */

    int32_t bos_id;
    int32_t sep_id;             /* of a pair of texts the second begins behind the first of this id; -1: not known */
    int n_labels;               /* scores that a head makes of a whole sequence (a reranker: 1); 0: there is none */
    rg_pooling score_pooling;   /* of what they are made: RG_POOLING_CLS or RG_POOLING_MEAN */
    rg_diffusion diffusion;
    rg_sampling sampling;       /* generation_config's */
    rg_embedding embedding;

    /* Settings of this architecture alone: a struct of its own file (see RG_OWN). */
    _Alignas(8) unsigned char own[RG_OWN_BYTES];
};

/* The architecture's own settings, as its type; and where a key's value lies among them (rg_key.at). */
#define RG_OWN(c, type)        ((const type *)(const void *)(c)->own)
#define RG_OWN_EDIT(c, type)   ((type *)(void *)(c)->own)
#define RG_OWN_AT(type, field) (offsetof(rg_config, own) + offsetof(type, field))
/* Those of a layer. */
#define RG_LAYER_OWN(c, i, type)      ((const type *)(const void *)(c)->layer[i].own)
#define RG_LAYER_OWN_EDIT(c, i, type) ((type *)(void *)(c)->layer[i].own)

/* One setting: where it goes, what it is called in both kinds of checkpoint (NULL: not there), what is meant where the
 * key is missing, and what where it is null.  Every setting has one row, in its architecture's table or in one that
 * a function reads into a struct of its own. */
typedef enum rg_key_kind { KEY_INT, KEY_FLOAT, KEY_DOUBLE, KEY_BOOL } rg_key_kind;

/* What null means, which config.json alone has: 0 where that is the default, false of a boolean, else an error.  Of
 * some it is 0, which means "none", though the default is another; of some nothing, as if the key were missing. */
typedef enum rg_null { NULL_AS_DEFAULT, NULL_IS_ZERO, NULL_IS_MISSING } rg_null;

typedef struct rg_key {
    size_t at; /* offsetof(rg_config, field), or RG_OWN_AT(struct, field) */
    rg_key_kind kind;
    const char *hf;
    const char *gguf; /* after "<architecture>." */
    double fallback;  /* NAN: the key is required */
    const char *hf_too[2]; /* other spellings of config.json's key, taken where that is absent; NULL: none */
    rg_null null;
    bool zero_in_gguf; /* a GGUF file without the key means 0 */
    int least, most;   /* of KEY_INT; most 0: INT32_MAX */
} rg_key;

#define RG_REQUIRED __builtin_nan("")

/* How a checkpoint asks to be sampled from: generation_config.json's keys, and those of GGUF. */
#define RG_SAMPLING_KEYS "general.sampling."

typedef struct rg_sampling_key {
    const char *hf, *gguf; /* hf NULL: generation_config.json has none */
    size_t at;             /* offsetof(rg_sampling, field) */
    int32_t least;         /* of an int32_t, lower ones are none; INT32_MIN: the field is a float */
} rg_sampling_key;

enum { RG_N_SAMPLING_KEYS = 12 };
extern const rg_sampling_key rg_sampling_keys[RG_N_SAMPLING_KEYS];

/* The whole config of a checkpoint; finds the architecture.  *c is plain data. */
bool rg_config_read(rg_config *c, const rg_checkpoint *ckpt, rg_error *err) RG_MUST_CHECK;

/* The config of a network that drafts for a model with the config `target`, which stays where it is: from the network's
 * own checkpoint, or (mtp) from the model's. */
bool rg_config_read_draft(rg_config *c, const rg_checkpoint *ckpt, const rg_config *target, bool mtp,
                          rg_error *err) RG_MUST_CHECK;

/* False: it gives hidden states alone. */
bool rg_config_has_logits(const rg_config *c);
/* False: it writes no answers, since its rows see what comes after them, or it has no logits. */
bool rg_config_generates(const rg_config *c);
/* A tensor of a Hugging Face checkpoint by its whole name, or without the name of the class that holds it ("model."),
 * as the class without a head is stored; NULL: there is none. */
const rg_tensor *rg_config_tensor(const rg_config *c, const rg_checkpoint *ckpt, const char *name);
/* What stands behind the class's own name in a tensor's; NULL: it does not begin so. */
const char *rg_config_rootless(const rg_config *c, const char *name);

/* What the architecture is called in the kind of checkpoint that the config is from. */
const char *rg_config_name(const rg_config *c);
/* What the rows of a layer see.  Borrows the config's patterns. */
rg_sight rg_config_sight(const rg_config *c, int layer);

/* For architectures.  Read a table of keys into the config, or into a struct whose members the rows name. */
bool rg_config_keys(void *into, const rg_checkpoint *ckpt, const rg_key *keys, size_t n, rg_error *err) RG_MUST_CHECK;
const rg_key *rg_config_common_keys(size_t *n); /* those of every architecture */
/* The name of a GGUF key: "<architecture>.<suffix>" in a buffer of the caller's. */
const char *rg_gguf_key(const rg_checkpoint *ckpt, const char *suffix, char out[128]);
/* The value that a key of the architecture's table has in c, as a number; NAN: the table has no key of that name (in
 * either spelling). */
double rg_config_value(const rg_config *c, const char *name);
/* The string at a key must be one of a NULL-ended list; *which is its number, or -1 if absent. */
bool rg_config_choice(const rg_checkpoint *ckpt, const char *key, const char *const *choices, int *which, rg_error *err)
    RG_MUST_CHECK;
/* The variant of its ropes that a sequence of at most so many positions takes; of all ropes the first that has any. */
int32_t rg_config_rope(const rg_config *c, int32_t length);

#endif
