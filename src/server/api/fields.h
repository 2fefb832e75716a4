/* fields.h -- the fields of a request: their types and ranges.
 *
 * fields.def lists the fields that are known.  A known field with a value that is not supported is refused by the
 * field's name.  A field that is not known is counted and ignored, as other servers do.  Texts are borrowed from the
 * body. */
#ifndef RG_SERVER_API_FIELDS_H
#define RG_SERVER_API_FIELDS_H

#include <jansson.h>
#include <math.h>

#include "server/refusal.h"
#include "server/talk/constraint.h"

enum {
    RG_API_COMPLETIONS = 1,
    RG_API_CHAT = 2,
    RG_API_RESPONSES = 4,
    RG_API_MESSAGES = 8,
    RG_API_EMBEDDINGS = 16,
    RG_API_RERANK = 32,
    RG_API_SCORE = 64,
    /* Beside one of the others: its fields, and those of these APIs, which come first. */
    RG_API_OLLAMA = 128,
    RG_API_NATIVE = 256
};

#define RG_NOT_GIVEN INT64_MIN /* of an int; of a real: NAN */
#define RG_UNLIMITED INT32_MAX /* of a limit of tokens */

/* Texts that end a run of DRY. */
typedef struct rg_breaker_list {
    const char **text; /* [n], owned list of borrowed texts; NULL: not given */
    int32_t n;
    json_t *parsed; /* owned: what the texts are borrowed from if they came as a JSON list within a text; or NULL */
} rg_breaker_list;

typedef struct rg_fields {
    const char *remasking, *diffusion_cache; /* of diffusion models, as are steps, block_length, cfg_scale, threshold */
    int64_t steps, block_length;
    double cfg_scale, threshold;
    const char *model, *effort, *verbosity, *tier, *user, *cache_salt, *encoding;
    const char *truncation, *truncation_side, *truncation_direction, *prompt_name;
    int64_t dimensions, top_n, max_tokens, max_completion_tokens, n, top_k, seed, min_tokens, top_logprobs, n_probs;
    int64_t priority, thinking_budget;
    double temperature, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty;
    double dry_multiplier, dry_base, xtc_probability, xtc_threshold, top_n_sigma, dynatemp_range, dynatemp_exponent;
    double mirostat_tau, mirostat_eta;
    int64_t penalty_last_n, dry_allowed_length, dry_penalty_last_n, mirostat;
    rg_breaker_list dry_breakers;
    bool stream, include_usage, usage_always; /* usage_always: in every chunk */
    bool pads;                                /* the events of a stream, with noise */
    bool parallel_tools, generation_prompt, ignore_eos, echo, add_special, include_reasoning, store, cache_prompt;
    int64_t truncate_tokens; /* texts to be embedded or scored are cut to so many tokens; -1: to what the model takes */
    bool truncate;           /* they are cut to what the model takes; false says nothing */
    bool return_documents, use_activation; /* of scores of pairs: their texts too; the sigmoid of the head's score */
    bool post_sampling;                    /* n_probs: probabilities of the distribution that is drawn from */
    bool return_tokens, return_token_ids;
    int64_t max_predict_ms;  /* how long tokens may come after the first one; below 1: no limit */
    int64_t norm;            /* of embeddings: -1 as they are, 0 by the largest, p the p-norm */
    bool return_progress;    /* of a stream: how much of the prompt is computed */
    bool timings_always;     /* llama-server's figures in every chunk of a stream, not the last one alone */
    bool background;         /* the client does not wait for the answer */
    bool skip_prefix;        /* the contrary of cache_prompt, by another name */
    int32_t n_logprobs;      /* as in rg_sampling */
    int64_t prompt_logprobs; /* prompt_logprobs: so many best ids beside each id of the prompt; -1: not wanted */
    int32_t n_prompt_tops;   /* the larger of that and of an echo's number; -1: neither is wanted */
    const char **stop;       /* owned list of borrowed texts */
    int32_t n_stop;
    int32_t *stop_ids;
    int32_t n_stop_ids;
    rg_logit_bias *bias;
    int32_t n_bias;
    rg_constraint constraint;
    int64_t best_of;                     /* RG_NOT_GIVEN: as n */
    const char *best_of_by, *vote_after; /* how the best are chosen: NULL or "logprob", "majority" */
    const char *scorer, *scorer_query;   /* the name of a reranker that values answers, and what they are to fit */
    rg_search_params search;             /* a tree search; simulations 0: none */
    int64_t n_told;                      /* by majority: of n answers so many are told; 0: all are */
    int64_t no_repeat_ngram;
    bool use_beams;
    double length_penalty;
    rg_early_stopping early_stopping;
    int64_t n_unknown; /* fields that the server does not know */
} rg_fields;

/* Read all but the fields that are the endpoint's own; of those, stop lists, logit_bias, DRY's sequence breakers,
 * logprobs, stream_options and whatever constrains the output.  body is an object, from which known fields that ask for
 * nothing are removed: whoever reads it later finds them absent.  On failure too, rg_fields_fini. */
bool rg_fields_read(rg_fields *f, json_t *body, unsigned api, rg_refusal *e);
void rg_fields_fini(rg_fields *f);

/* The sampling that these fields ask for, over the checkpoint's own defaults; a seed is drawn if none is given. */
rg_sampling rg_fields_sampling(const rg_fields *f, const rg_sampling *defaults);

/* The beam search that these fields ask for; n_beams 0: none. */
rg_beam_params rg_fields_beams(const rg_fields *f);

/* How a diffusion model is to fill in the answer. */
rg_diffusion_params rg_fields_diffusion(const rg_fields *f);

/* dry_sequence_breakers at `v`: a list of texts, a text that is such a list in JSON, with its brackets or without, or
 * any other text, which is a breaker.  NULL: not given. */
bool rg_breakers_read(rg_breaker_list *b, const json_t *v, rg_refusal *e);
void rg_breakers_fini(rg_breaker_list *b);

/* s is one of the words that stand between bars. */
bool rg_one_of(const char *words, const char *s);

/* True if metadata is an object of few short strings, as OpenAI's API takes it, null or NULL. */
bool rg_metadata_check(const json_t *metadata, rg_refusal *e);

/* Ids of a list: whole numbers within int32 and not negative.  rg_free *ids. */
bool rg_ids_read(const json_t *list, const char *param, int32_t **ids, size_t *n, rg_refusal *e);

#endif
