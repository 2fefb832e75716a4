/* ridge.h -- the public API: open a model, run requests on its engine, take tokens as they come.
 *
 * It stands alone: C17 (or C++), the standard library, nothing else.  Every floor of ridge may include it for the
 * vocabulary it declares (errors, sampling parameters, finish reasons); only src/api implements its functions.
 *
 * Threads.  One engine runs one model on a thread of its own.  Every function may be called from any thread, with two
 * exceptions.  One request is read (rg_next, rg_request_*) by one thread at a time.  Closing does not wait for other
 * threads: end your use of a request before rg_request_close, and close all requests before rg_close.
 *
 * The promise.  The tokens and log-probabilities of a request depend on its own ids, parameters and seed, the
 * checkpoint, the recipe and the K/V type, and on nothing else: not on what runs beside it, how the prompt was cut,
 * whether its prefix was cached, whether it was preempted, or how many threads there are. */
#ifndef RIDGE_H
#define RIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RG_API __attribute__((visibility("default")))
#else
#define RG_API
#endif

/* ---- version ----------------------------------------------------------------------------------------------------- */

/* "x.y.z".  While x is 0: a new z only mends faults, and programs that use this file run unchanged; where a mended
 * fault changes results, CHANGELOG.md says so.  A new y may add, change or remove anything here, also members of
 * structs: read CHANGELOG.md and compile again.  Begin with rg_options_default and rg_sampling_default, so that new
 * members have their defaults.  To check: RG_VERSION when compiling, `pkg-config --modversion ridge` for the installed
 * library. */
#define RG_VERSION "0.1.0"

/* The version of the library that runs, as RG_VERSION is that of this file. */
RG_API const char *rg_version(void);
/* Bytes of a struct of this file as the library was compiled, by its name ("rg_params"); 0: there is no such struct.
 * For programs in other languages, which declare the structs anew: they compare these numbers with their own. */
RG_API size_t rg_size_of(const char *name);

/* ---- errors ---------------------------------------------------------------------------------------------------- */

typedef enum rg_code {
    RG_OK = 0,
    RG_E_INPUT,       /* a file or a request is malformed */
    RG_E_UNSUPPORTED, /* well-formed and understood, but ridge does not support it */
    RG_E_IO,          /* the operating system refused */
    RG_E_MEMORY,      /* an allocation failed */
    RG_E_LIMIT,       /* larger than what this engine was opened for */
    RG_E_BUSY,        /* the queue is full, or the engine is closing: try again later */
    RG_E_USAGE,       /* the call or the command line is wrong */
} rg_code;

/* Owned by the caller; the text is one sentence with the names and numbers needed to correct the fault.  Functions that
 * take an rg_error set it only when they fail.  NULL is allowed: the error is then not reported. */
typedef struct rg_error {
    rg_code code;
    char text[2000];
} rg_error;

/* ---- parameters of a request ------------------------------------------------------------------------------------ */

typedef struct rg_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY bans the id */
} rg_logit_bias;

/* How to choose tokens.  Rules apply in this order: bans, min_tokens and repeated runs (-inf), repetition penalty,
 * frequency and presence penalty, DRY, bias, top-n-sigma, temperature, then the filters min-p, top-k, top-p, typical-p
 * and XTC.  Mirostat, if it is on, replaces top-n-sigma and the filters.  Of the ids that remain, the one with the
 * largest logit / temperature + Gumbel noise is drawn; the noise is keyed by (seed, sample, position, id), of a
 * diffusion model by the evaluation, too.  A member that is 0 is off, unless it says otherwise. */
typedef struct rg_sampling {
    float temperature;        /* 0: greedy (ties to the lowest id), unless dynatemp_range is more than 0 */
    int32_t top_k;            /* 0: no limit */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float typical_p;          /* 1: off */
    float repetition_penalty; /* 1: off */
    float presence_penalty;   /* 0: off */
    float frequency_penalty;  /* 0: off */
    int32_t penalty_last_n;   /* 0: the repetition penalty looks at prompt and output, the other two at the output.
                               *   n > 0: all three look at the last n ids of prompt and output; -1: at all of them */
    uint64_t seed;
    int32_t min_tokens;       /* end tokens are banned until so many ids are generated */
    bool ignore_eos;          /* the model's end tokens do not end an answer */
    int32_t no_repeat_ngram;  /* ids that would complete a run of so many ids that prompt and output have already are
                               *   banned; 0: off */
    int32_t n_logprobs;       /* -1: none; k >= 0: log-probabilities of the chosen id and of the k best */
    bool logprobs_drawn;      /* these are of the distribution that the id is drawn from, after all rules (an id that is
                               *   ruled out has -INFINITY), and not of the raw logits.  Beams keep the raw ones */
    const rg_logit_bias *bias; /* copied by rg_submit */
    int32_t n_bias;
    /* DRY (don't repeat yourself): where the last n ids of prompt and output stand before, too, the id that followed
     * them there loses multiplier * base^(n - allowed_length); n is at least allowed_length, and its run has no
     * sequence breaker. */
    float dry_multiplier;     /* 0: off */
    float dry_base;
    int32_t dry_allowed_length;
    int32_t dry_penalty_last_n; /* DRY looks at the last so many ids; -1: at all; 0: DRY is off */
    const char *const *dry_breakers; /* [n_dry_breakers] texts that end a run, read by rg_submit.  NULL: "\n", ":", "\""
                               *   and "*"; a checkpoint without a tokenizer has none */
    int32_t n_dry_breakers;
    float xtc_probability;    /* the chance that XTC (exclude top choices) is applied to an id; 0: off */
    float xtc_threshold;      /* it drops all ids of at least this probability but the least likely; above 0.5: off */
    float top_n_sigma;        /* ids stay whose logit is at least the largest - so many standard deviations of all
                               *   logits; 0 or less: off */
    float dynatemp_range;     /* the temperature is from temperature - range to temperature + range: */
    float dynatemp_exponent;  /*   the share (entropy / largest entropy)^exponent of the way.  Range 0: off */
    int32_t mirostat;         /* 1 or 2: that version of mirostat; 0: off */
    float mirostat_tau;       /* the surprise of an id that is aimed at, in bits */
    float mirostat_eta;       /* how fast the bound follows */
} rg_sampling;

/* The neutral values, as an initializer: what rg_sampling_default returns. */
#define RG_SAMPLING_NEUTRAL                                                                                            \
    {                                                                                                                  \
        .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .dry_base = 1.75f,    \
        .dry_allowed_length = 2, .dry_penalty_last_n = -1, .xtc_threshold = 0.1f, .dynatemp_exponent = 1,              \
        .mirostat_tau = 5, .mirostat_eta = 0.1f                                                                        \
    }

/* The range of each parameter, both ends allowed: rg_submit, the flags and the server refuse other values. */
#define RG_TEMPERATURE_MIN 0.0
#define RG_TEMPERATURE_MAX 100.0
#define RG_TOP_P_MIN 1e-6 /* only the best id remains */
#define RG_TOP_P_MAX 1.0
#define RG_MIN_P_MIN 0.0
#define RG_MIN_P_MAX 1.0
#define RG_TYPICAL_P_MIN 1e-6
#define RG_TYPICAL_P_MAX 1.0
#define RG_REPETITION_PENALTY_MIN 0.01
#define RG_REPETITION_PENALTY_MAX 100.0
#define RG_PRESENCE_PENALTY_MIN (-2.0)
#define RG_PRESENCE_PENALTY_MAX 2.0
#define RG_FREQUENCY_PENALTY_MIN (-2.0)
#define RG_FREQUENCY_PENALTY_MAX 2.0
#define RG_DRY_MULTIPLIER_MIN 0.0
#define RG_DRY_MULTIPLIER_MAX 100.0
#define RG_DRY_BASE_MIN 1.0
#define RG_DRY_BASE_MAX 100.0
#define RG_DRY_BREAKERS_MAX 64
#define RG_XTC_PROBABILITY_MIN 0.0
#define RG_XTC_PROBABILITY_MAX 1.0
#define RG_XTC_THRESHOLD_MIN 0.0
#define RG_XTC_THRESHOLD_MAX 1.0
#define RG_TOP_N_SIGMA_MIN (-1.0)
#define RG_TOP_N_SIGMA_MAX 100.0
#define RG_DYNATEMP_RANGE_MIN 0.0
#define RG_DYNATEMP_RANGE_MAX 100.0
#define RG_DYNATEMP_EXPONENT_MIN 0.0
#define RG_DYNATEMP_EXPONENT_MAX 100.0
#define RG_MIROSTAT_MAX 2
#define RG_MIROSTAT_TAU_MIN 0.0
#define RG_MIROSTAT_TAU_MAX 100.0
#define RG_MIROSTAT_ETA_MIN 0.0
#define RG_MIROSTAT_ETA_MAX 100.0

/* The neutral values: temperature 1, no filter, no penalty, no log-probabilities, seed 0.  Parameters of rules that are
 * off have their usual values. */
RG_API rg_sampling rg_sampling_default(void);

/* What an answer must be: compiled once, shared by any number of requests. */
typedef struct rg_grammar rg_grammar;
typedef enum rg_grammar_kind {
    RG_GRAMMAR_GBNF,        /* rules, as in GBNF files: "root ::= ..." */
    RG_GRAMMAR_REGEX,       /* the whole answer matches */
    RG_GRAMMAR_CHOICE,      /* a JSON list of texts */
    RG_GRAMMAR_JSON,        /* any JSON object; the source is empty */
    RG_GRAMMAR_JSON_SCHEMA,
    RG_GRAMMAR_LARK,        /* rules and terminals as in Lark's files: "start: ..." */
} rg_grammar_kind;

typedef struct rg_grammar_source {
    rg_grammar_kind kind;
    const char *text; /* [n] */
    size_t n;
    const char *after; /* NULL: the grammar binds the answer from its first byte.  Else (ASCII) the answer is free until
                        *   this text first occurs in it; after the text and at most two line ends the grammar binds.
                        *   "</think>": the model's reasoning is free, and the answer after it is bound */
    const struct rg_grammar_source *other; /* NULL, or a second source: an answer (what follows `after`) is of either
                        *   one.  The second one's own `after` and `other` are not read */
    bool show_marks;   /* special tokens that rg_engine_show names are part of the answer, as their text */
    bool open_objects; /* of JSON schemas: objects that list properties may have others as well, unless the schema says
                        *   that they may not.  False: they have others only where the schema speaks of them */
} rg_grammar_source;

/* How the prompt's hidden states, after the model's final norm, become an embedding.  RG_POOLING_NONE: none is
 * made, and the request generates tokens.  With all others it generates none. */
typedef enum rg_pooling {
    RG_POOLING_NONE = 0,
    RG_POOLING_MODEL, /* as the checkpoint says; if it says nothing: of encoders the mean, of other models the last */
    RG_POOLING_LAST,  /* the hidden state of the last id */
    RG_POOLING_MEAN,  /* the mean over all ids */
    RG_POOLING_CLS,   /* the hidden state of the first id */
    RG_POOLING_MAX,   /* for each dimension the largest number over all ids */
    RG_POOLING_SQRT_MEAN, /* the sum over all ids, divided by the square root of their number */
    RG_POOLING_WEIGHTED_MEAN, /* the mean over all ids, with their positions (from 1) as weights */
} rg_pooling;

/* How a diffusion model fills in an answer.  Members left 0 take what the family's authors publish. */
typedef enum rg_remasking {   /* which masks are filled in first: those whose candidate has */
    RG_REMASKING_DEFAULT,     /* low_confidence */
    RG_REMASKING_CONFIDENCE,  /* "low_confidence": the largest probability; */
    RG_REMASKING_ENTROPY,     /* "entropy": the least entropy of its distribution; */
    RG_REMASKING_MARGIN,      /* "margin": the largest lead over the second; */
    RG_REMASKING_SEQUENTIAL,  /* "sequential": from the left (block diffusion) */
    RG_REMASKING_DYNAMIC,     /* "dynamic": all that reach the threshold, or else low_confidence (block diffusion) */
} rg_remasking;

typedef enum rg_diffusion_cache { RG_CACHE_NONE, RG_CACHE_PREFIX, RG_CACHE_DUAL } rg_diffusion_cache;

/* By the words above ("low_confidence" ...), and by "none", "prefix", "dual"; -1: there is no such word. */
RG_API int rg_remasking_find(const char *word);
RG_API int rg_diffusion_cache_find(const char *word);

/* Fast-dLLM's threshold: the default where neither steps nor a threshold are given. */
#define RG_DIFFUSION_THRESHOLD 0.9f

typedef struct rg_diffusion_params {
    int32_t steps;            /* evaluations for the whole answer, or for each block if the model has blocks of its own;
                               *   0: as generation_config says, else as few as the threshold allows */
    int32_t block;            /* positions of a block, where the model has none of its own; 0: the whole answer */
    rg_remasking remasking;
    float cfg_scale;          /* classifier-free guidance: how far from the answer without the prompt; 0: off */
    float threshold;          /* masks with this confidence or more are filled in at once.  0: off; if steps is 0 too,
                               *   RG_DIFFUSION_THRESHOLD (but not with entropy or sequential, nor where an order is
                               *   named for a model with blocks of its own) */
    rg_diffusion_cache cache; /* Fast-dLLM's approximations: other answers than without.  Off by default */
    bool trace;               /* keep the ids after each evaluation of the model (rg_request_trace) */
} rg_diffusion_params;

/* Beam search: of all answers the likeliest that a search of this width finds.  At every id the n_beams best beginnings
 * go on, by the sum of their ids' log-probabilities; the rules of rg_sampling up to the biases change these first, and
 * temperature, filters and seed have no part in it.  An answer is finished by an end token or a stop id, if it is among
 * the best as many candidates as there are beams, or by its length.  Its score is its sum, divided by its length (the
 * end counts) to the power of length_penalty.  A stop text ends an answer as an end token does; log-probabilities of
 * ids are those before the rules.  Results are told at the end, best first: n_samples of them.  Log-probabilities of
 * the prompt are refused with it. */
typedef enum rg_early_stopping { /* once there are n_beams finished answers, the search ends */
    RG_EARLY_STOPPING_FALSE,     /* "false": when the best beam's score, at its present length, is below all of them; */
    RG_EARLY_STOPPING_TRUE,      /* "true": at once; */
    RG_EARLY_STOPPING_NEVER,     /* "never": when no beam can attain the score of one of them */
} rg_early_stopping;

RG_API int rg_early_stopping_find(const char *word); /* by the words above; -1: there is no such word */

typedef struct rg_beam_params {
    int32_t n_beams;       /* 0: no beam search */
    float length_penalty;  /* above 0 longer answers gain, below 0 they lose; 1 is usual */
    rg_early_stopping early_stopping;
    int32_t n_groups;      /* groups of beams, each with a search of its own (diverse beam search); 0: one */
    float diversity;       /* with groups: taken off an id's log-probability for each beam of an earlier group that goes
                            *   on with it here; scores contain it */
} rg_beam_params;

#define RG_LENGTH_PENALTY_MIN (-10.0)
#define RG_LENGTH_PENALTY_MAX 10.0
#define RG_DIVERSITY_MIN 0.0
#define RG_DIVERSITY_MAX 1000.0
#define RG_BEAMS_MAX 1024

/* Scorers: what best_of and a tree search compare answers by, instead of log-probabilities. */
typedef struct rg_engine rg_engine; /* a model, its tokenizer, and the thread that runs it */
typedef double (*rg_score)(void *arg, const int32_t *ids, const float *logprobs, int32_t n);

typedef struct rg_scorer { /* one of score, reranker and grammar */
    rg_score score;      /* the value of the ids [n] of an answer, or of its beginning, without its end, and of their
                          *   log-probabilities: more is better; NaN and infinity count as the least of all.  Called by
                          *   the reader, in rg_next and rg_poll */
    void *arg;
    rg_engine *reranker; /* a model that scores pairs (rg_info.n_labels), borrowed: the value is its score of */
    const char *query;   /*   this text [n_query], copied, and the answer's */
    size_t n_query;
    rg_grammar *grammar; /* the value is 1 if the whole answer matches this grammar, else the share of ids before the
                          *   first one that does not.  (rg_params.grammar, in contrast, allows no other answers) */
} rg_scorer;

/* Monte Carlo tree search with PUCT (Silver et al., 2017; Rosin, 2011) over the ids of an answer.  A node is an id
 * after its parent's, one of the `width` likeliest.  A simulation goes down from the prompt, at each node to the child
 * with the largest Q + explore * P * sqrt(N) / (1 + n) (P: its probability among its siblings; N, n: visits of node and
 * child; Q: the best value behind the child, between the least and the largest value so far; of a child without visits
 * that of its parent), to an id that was not tried yet, and follows it by the likeliest ids: a rollout,
 * whose ids become nodes too.  `leaves` simulations run in the same steps; each counts as visits of its path while it
 * runs (virtual loss), and none goes where another one goes.  A path whose answers were all seen is not taken again:
 * with enough simulations all answers within the width are seen.  The best n_samples answers are told.  The rules of
 * rg_sampling up to the biases, stop texts and grammars hold as for beams; temperature, filters and seed do not count
 * here.  Paths share their state: all but a rollout's own ids is found in the prefix cache.  Values are those of
 * rg_params.scorer, or the sum of the log-probabilities (after the rules), divided by the length (the end counts) to
 * the power of length_penalty. */
typedef struct rg_search_params {
    int32_t simulations;  /* 0: no tree search; at most so many */
    int32_t leaves;       /* 0: 8 */
    int32_t width;        /* 0: 4 */
    int32_t span;         /* only every span-th id of a path has siblings; 0: 1 */
    int32_t rollout;      /* ids that follow a leaf's before it is valued, as the beginning of an answer; 0: up to the
                           *   answer's end */
    float explore;        /* 0: 1.25; below 0: only what is best so far counts */
    float length_penalty; /* as in rg_beam_params; usually 0 here */
} rg_search_params;

#define RG_SIMULATIONS_MAX (1 << 20)
#define RG_LEAVES_MAX 1024
#define RG_WIDTH_MAX 4096
#define RG_SPAN_MAX 4096
#define RG_EXPLORE_MIN (-1.0)
#define RG_EXPLORE_MAX 1000.0

/* What rg_params.tenant_weight may be. */
#define RG_TENANT_WEIGHT_LEAST 0.001
#define RG_TENANT_WEIGHT_MOST 1000.0

/* Positions [at, at + n) of a prompt whose input is given as rows, as an encoder of pictures or of sound makes them.
 *
 * A row stands for what the embedding gives for an id, the family's scale included (sqrt(dim) in Gemma, the multiplier
 * in Granite), in all families alike: the model does not scale it once more.  Learned positions, token types and norms
 * behind the embedding apply as to any id.  A table read beside the embedding (Gemma 3n, Gemma 4) gives its first row.
 * Rows equal to those of some ids give the answers of these ids, bit for bit, where no rule reads the prompt's ids.
 *
 * At a given row there is no id: rules of sampling that look at the prompt pass it over (to no_repeat_ngram and DRY it
 * ends a run), it shows no text, it has no log-probability, and only drafters without a network that reads ids draft
 * for such a prompt.  It counts as a position everywhere: in limits, in usage and in cached prefixes. */
typedef struct rg_given_rows {
    int32_t at, n;       /* n >= 1 */
    const float *rows;   /* [n][rg_info.given_dim], finite; copied by rg_submit */
    uint8_t hash[16];    /* of all that determines the rows.  Cached prefixes are found by it: rows with equal hashes
                          *   and equal n count as equal, within the tenant and salt.  All 0: rg_submit computes
                          *   SHA-256 of the rows */
} rg_given_rows;

/* A budget for the reasoning that a model writes before its answer: the ids that end it are forced where it is used up.
 * Not for beams and diffusion models. */
typedef struct rg_thinking {
    const int32_t *end;    /* [n_end] ids that end the reasoning, at most 64; copied.  n_end 0: there is no budget */
    int32_t n_end;
    const int32_t *start;  /* [n_start] ids that begin it, likewise; n_start 0: the answer begins within it */
    int32_t n_start;
    int32_t budget;        /* ids of the reasoning, without these marks */
} rg_thinking;

typedef struct rg_params {
    const int32_t *prompt; /* ids, copied by rg_submit; -1 at each position of given rows */
    int32_t n_prompt;      /* >= 1 */
    const rg_given_rows *given; /* [n_given] in rising order, apart from each other; copied */
    int32_t n_given;       /* 0: the prompt is ids alone */
    int32_t max_tokens;    /* output ids at most, >= 1; the context may end an answer earlier.  With prompt_logprobs it
                            *   may be 0, and then the prompt may fill the context */
    int32_t n_samples;     /* >= 1: answers that share the prompt; of a beam search: the best so many, up to n_beams */
    rg_beam_params beam;
    rg_search_params search;
    int32_t best_of;       /* above n_samples: so many answers are drawn, and when all have ended, the n_samples best
                            *   are told, best first: by their mean log-probability, or by */
    const rg_scorer *scorer; /*   this scorer, by which a tree search goes as well; copied; NULL: none */
    rg_sampling sampling;
    const char *const *stop; /* texts that end an answer and are not part of it; copied */
    int32_t n_stop;
    const int32_t *stop_ids; /* ids that end an answer, at most 16,384; copied */
    int32_t n_stop_ids;
    rg_grammar *grammar;     /* what the answer must be; NULL: anything.  The request holds a reference to it */
    bool show_marks;         /* special tokens that rg_engine_show names show their text in the answer; others never */
    rg_thinking thinking;
    const int32_t *predicted; /* [n_predicted] ids that the answer is expected to be mostly made of, copied: drafts for
                              *   it, where the engine drafts.  They change no answer */
    int32_t n_predicted;
    const char *adapter;     /* the name of one of rg_options.adapters; NULL: the model alone */
    const char *tenant;      /* who asks; NULL: no tenant (all requests without one count as one).  Tenants that wait or
                              *   run share sequences, memory and rows, and a tenant that has more than its share
                              *   gives way.  Hashed */
    const char *cache_salt;  /* a cached prefix is found only by its tenant, and with its salt; NULL: none.  Hashed */
    float tenant_weight;     /* the tenant's share beside those of other tenants; 0: 1.  Its latest request's counts */
    bool uncached;           /* the whole prompt is computed: nothing is taken from cached prefixes */
    bool prompt_logprobs;    /* keep log-probabilities of the prompt (rg_request_prompt_logprob); implies uncached */
    int32_t n_prompt_tops;   /*   and of the so many best ids at each position; 0: none */
    bool prompt_logits;      /*   and the logits of every position (rg_request_prompt_logits): n_prompt * vocab_size
                              *   floats */
    int32_t priority;        /* among the requests of one tenant, lower values run first */
    bool background;         /* begins only while no other request waits, in order of arrival, and gets only the rows
                              *   and the memory that other requests leave */
    double deadline_s;       /* so many seconds after rg_submit it ends with what it has; 0: never */
    rg_diffusion_params diffusion; /* of models that fill in masks; max_tokens is then the length of an answer */
    rg_pooling embed;        /* not RG_POOLING_NONE: make an embedding.  Members about answers are ignored, and the
                              *   prompt may fill the context */
    int32_t pool_from;       /*   of the positions from this one on, so that an instruction in front of the text can be
                              *   left out; 0: of all */
    bool score;              /* make scores of the prompt by the model's head (rg_info.n_labels), and no answer */
    int32_t second;          /* where the second text begins, if the prompt is a pair of texts, for models that tell the
                              *   two apart (token types); 0: it is one text */
} rg_params;

typedef enum rg_finish {
    RG_RUNNING = 0,
    RG_FINISH_STOP,      /* an end token, a stop id or a stop text; an embedding, or scores: complete */
    RG_FINISH_LENGTH,    /* max_tokens or the end of the context */
    RG_FINISH_CANCELLED, /* rg_cancel, or the engine was closed */
    RG_FINISH_DEADLINE,  /* deadline_s has passed */
    RG_FINISH_GRAMMAR,   /* the answer cannot continue within its grammar: the grammar is too ambiguous here, values are
                          *   nested too deeply, or a bias bans every allowed id.  Of a beam search: the rules leave
                          *   ids for fewer answers than are to be told */
    RG_FINISH_NO_WEIGHTS, /* experts that it needs could not be read (rg_options.expert_bytes) */
    RG_FINISH_NOT_FINITE, /* the model computed NaN or infinity, so that no id can be drawn and no embedding made: its
                           *   weights are damaged, or too large for the recipe */
    RG_FINISH_LOST,      /* ranks (rg_ranks_start) ended time and again while they computed it */
} rg_finish;

/* ---- model and engine -------------------------------------------------------------------------------------------- */

/* A LoRA adapter: a PEFT folder or a GGUF file, and what requests call it. */
typedef struct rg_adapter_option {
    const char *name, *path;
} rg_adapter_option;

/* What several engines of a process share: one thread that computes the steps of all of them in turns, the threads that
 * a step runs on, and a budget of memory.  Whose turn it is follows from what tenants were given by all engines
 * together, for their weights. */
typedef struct rg_host rg_host;

typedef struct rg_host_options {
    int32_t n_threads;      /* 0: physical cores within the cgroup's quota */
    uint64_t memory_bytes;  /* for weights, state and activations of all engines; 0: no limit */
} rg_host_options;

/* NULL and *err: no memory, or no thread.  Owned by the caller. */
RG_API rg_host *rg_host_open(const rg_host_options *options, rg_error *err); /* NULL: all 0 */
RG_API void rg_host_close(rg_host *host); /* after its engines; NULL is fine */
/* Any thread.  Bytes of its budget that no engine has; UINT64_MAX: it has no limit. */
RG_API uint64_t rg_host_left(rg_host *host);

/* Processes that compute models together: each has a part of the weights and of what sequences remember. */
typedef struct rg_ranks rg_ranks;

/* Start n - 1 processes beside this one (2 to 64 ranks in all), which end with it.  To be called before the process has
 * threads.  NULL and *err: n is out of range, or the system has too little for them.  If one of them ends before
 * rg_ranks_stop, all are started again, open their models again, and engines compute anew what requests had computed
 * (rg_usage.n_lost): the answers are the same.  If that fails, the process ends with a message. */
RG_API rg_ranks *rg_ranks_start(int32_t n, rg_error *err);
RG_API void rg_ranks_stop(rg_ranks *r); /* all engines that they run are closed; NULL is fine */

typedef struct rg_options {
    rg_ranks *ranks;        /* processes that compute the model, each by n_threads threads; borrowed; NULL: none */
    rg_host *host;          /* runs the engine beside others, on its own threads; borrowed.  Opening fails (RG_E_LIMIT)
                             *   if its budget has too little left.  NULL: the engine has a host of its own */
    int32_t n_threads;      /* 0: physical cores within the cgroup's quota.  With a host: not read */
    bool pin;               /* keep each thread on one core */
    bool numa_copies;       /* weights once on each NUMA node, read by the threads that stand there, which are pinned */
    const char *isa;        /* "auto", "ref", "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx", "neon" */
    const char *recipe;     /* "fast", "exact", "llm.int8" (fast, but products with integer weights by LLM.int8()), or
                             *   "round16" (fast, with F16 weights rounded to bf16, which is lossy) */
    const char *sparsity;   /* steps of one row skip the columns of matrices that meet zeros.  "zeros": activations that
                             *   are zero by themselves (ReLU's); or a file that `ridge shrink sparsity` wrote:
                             *   activations below its thresholds count as zero, in every row; NULL: nothing is
                             *   skipped */
    double attention_sparsity; /* each head of a row leaves out blocks of 64 keys whose attention weights are all below
                             *   this threshold, at least 0 and less than 1.  Lossy: of a row's weights, whose sum is 1,
                             *   it leaves out at most the threshold times its number of keys.  0: nothing */
    bool whole_head;        /* compute all logits of every step: a large head is not kept in a coarse copy besides,
                             *   which changes no id, but takes memory and a second or so of opening */
    const char *kv_type;    /* NULL: f32 for F32 weights, else bf16; or "f32", "f16", "bf16", "q8", "q4" */
    int32_t max_seq_len;    /* positions of a sequence; 0: what the model allows.  No memory is reserved for them */
    int32_t max_seqs;       /* sequences that run at once, at most 65,536; 0: 64 */
    int32_t max_batch_rows; /* rows of one step, at most 65,536; 0: 512, and an encoder's prompt alone may have up to
                             *   8192 */
    size_t kv_bytes;        /* memory for the sequences' state; 0: half of what is free when the model is loaded */
    int32_t max_waiting;    /* requests in the queue; 0: 1024.  More are refused as RG_E_BUSY */
    int64_t max_waiting_ids; /* prompt ids in the queue; 0: no limit */
    double max_wait_s;      /* also refuse requests that would wait longer, unless their tenant has less than its share
                             *   of the queue; 0: no limit */
    double step_s;          /* longest time of a step: prompts are cut to fit; 0: no limit */
    double pace;            /* while answers are being generated, the longest time of a step as a multiple of the same
                             *   step without prompts; 0: no limit.  How long steps take is learnt from steps.  If there
                             *   is a limit, opening measures the machine's bandwidth and peak in at most 0.3 s, unless
                             *   a profile has them */
    bool share_prefixes;    /* every tenant finds every cached prefix */
    bool static_batching;   /* no request begins until all that run have finished: for comparing */
    bool no_prefix_cache;
    const char *prefix_folder; /* folder in which cached prefixes are kept as files, so that they are found again after
                             *   a restart, and by other engines of the same model that use it; made if there is none.
                             *   NULL: they are in memory alone */
    uint64_t prefix_bytes;  /* what its files may take; the oldest are removed then; 0: 8 GiB */
    const char *preempt;    /* what becomes of the state of a request that gives way.  "swap": it is copied into
                             *   other memory; "recompute": it is dropped, and computed again; NULL or "auto": the one
                             *   that is expected to be quicker.  Answers are the same */
    const char *pack_cache; /* folder in which packed weights are kept, so that the next opening only reads them; NULL:
                             *   they are not kept */
    const char *draft;      /* how to guess ids ahead, for the model to check several in one step: NULL or "none": not
                             *   at all; "ngram": as the prompt and the answer went on where the same ids stood before;
                             *   the path of a checkpoint: by a smaller model of the same vocabulary; "auto": by the one
                             *   that the checkpoint's folder names in draft.json, if it does, and by "suffix", and in
                             *   each step as deep as is found to be quickest, or not at all; others are in
                             *   docs/SERVE.md.  Answers are the same with any of them */
    const char *verify;     /* when a guess is kept.  NULL or "coupled": if it is the id that is drawn without it;
                             *   "rejection": by chance, so that answers follow the model's distribution, but a seed
                             *   gives the same answer only with the same drafter and max_draft; "typical": if it is
                             *   likely enough (Medusa): answers differ from the model's own.  With these two, rows and
                             *   memory for all drafts are reserved */
    int32_t max_draft;      /* ids guessed at once, at most; 0: as many as the drafter thinks good */
    size_t expert_bytes;    /* memory for the experts of a mixture, which are read from a file of packed weights when
                             *   they are needed (that file lies in pack_cache or, without it, beside the checkpoint;
                             *   it is made if there is none).  0: all experts are in memory */
    const rg_adapter_option *adapters; /* [n_adapters], read while opening; names are unique.  Requests with different
                             *   adapters, and without one, run in the same steps and get the answers that they get
                             *   alone */
    int32_t n_adapters;
    const char *chat_template; /* the chat template for all conversations: one of the checkpoint's by name, or a file;
                             *   NULL: the checkpoint's choice */
    const char *profile_folder; /* where `ridge machine` keeps its profile, read while opening; NULL: none is read */
    void (*progress)(void *arg, const char *what, double done); /* while opening; may be NULL */
    void *progress_arg;
} rg_options;

RG_API rg_options rg_options_default(void);

typedef struct rg_request rg_request; /* one prompt and the answers to it */

/* Open the checkpoint at path (a GGUF file or a Hugging Face directory) and start its engine.  NULL and *err on
 * failure.  Owned by the caller; rg_close cancels what still runs, joins the thread and frees all. */
RG_API rg_engine *rg_open(const char *path, const rg_options *options, rg_error *err);
RG_API void rg_close(rg_engine *engine); /* NULL is fine */

typedef struct rg_info {
    const char *architecture; /* valid until rg_close, as are the other strings */
    const char *isa;
    const char *recipe;
    const char *kv_type;
    double attention_sparsity; /* as rg_options has it; 0: nothing is left out */
    int32_t n_threads, vocab_size, max_seq_len;
    int32_t bos_id;          /* -1: none */
    const int32_t *eos_ids;  /* [n_eos] ids that end an answer */
    int32_t n_eos;
    uint64_t n_parameters, weight_bytes, state_bytes;
    uint64_t position_bytes, sequence_bytes; /* of state: of each position (K/V), and of a sequence, however long */
    bool has_tokenizer;
    bool generates;          /* it writes answers; false: it makes embeddings, and scores if n_labels is not 0 */
    bool is_diffusion;       /* it fills in masks, in any order, instead of continuing a text (rg_diffusion_params) */
    bool is_encoder;         /* its rows see what comes after them, so that it generates nothing.  A prompt is computed
                              *   in one step, and can be no longer than max_whole_rows */
    int32_t max_whole_rows;  /* rows of a step that computes a single prompt whole */
    int32_t n_labels;        /* scores that its head makes of a prompt (a reranker: 1); 0: it has no such head */
    int32_t dim;             /* numbers of a hidden state */
    int32_t given_dim;       /* numbers of a row of rg_given_rows */
    int32_t embed_dim;       /* numbers of an embedding as the checkpoint says */
    int32_t max_embed_ids;   /* ids of a text to be embedded: as the checkpoint says (its max_seq_length), or else the
                              *   context */
    rg_pooling embed;        /* what RG_POOLING_MODEL means for this model (the first of several ways that are put side
                              *   by side); RG_POOLING_NONE: embeddings are refused, */
    const char *embed_refusal; /*   and this says why */
    const int32_t *embed_sizes; /* [n_embed_sizes] the lengths to which its embeddings may be cut.  n_embed_sizes -1: */
    int32_t n_embed_sizes;      /*   any length; 0: the checkpoint does not say */
    rg_sampling sampling;    /* the checkpoint's own defaults (generation_config) */
    int32_t n_unused_tensors; /* tensors of the checkpoint that no weight was made from */
    const char *notes;        /* lines of what a person should know of the checkpoint: settings that are not known and
                               *   are ignored, a head that is used though config.json denies it; "": nothing */
    const char *draft;        /* the kind of drafter, or two, as "model+suffix"; "none": there is none */
    const char *draft_path;   /* of the model that drafts; "": none does */
    int32_t n_adapters;
    uint64_t adapter_bytes;   /* memory of all adapters, besides weight_bytes */
    int32_t call_id_chars;    /* letters and digits of the ids of calls that the chat template demands (ids of another
                               *   form are changed into such where a conversation is rendered); 0: they may be
                               *   anything */
} rg_info;

RG_API rg_info rg_engine_info(const rg_engine *engine);

/* Facts of the checkpoint, for whoever asks what is served.  Texts are valid until rg_close. */
typedef struct rg_card {
    const char *path;          /* that rg_open was given */
    const char *family;        /* the architecture as GGUF calls it ("llama"), or else as config.json does */
    const char *weight_type;   /* the format of most of the weights' bytes: "bf16", "q4_k" */
    const char *chat_template; /* the text of the one in use; "": there is none, or it cannot be used */
    bool is_gguf;              /* a GGUF file; else a Hugging Face folder */
    uint64_t stored_bytes;     /* of the weights, as the files hold them */
    int64_t modified_s;        /* when the file or folder was changed last, in seconds since 1970; 0: not known */
    int32_t context_length;    /* positions that the model was made for */
    int32_t n_layers, ffn_dim, n_heads, n_kv_heads, head_dim;
    int32_t n_experts, n_experts_used; /* 0: there are none */
    double norm_eps, rope_theta;       /* rope_theta 0: positions are not rotated */
    int32_t max_seqs;          /* sequences that this engine runs at once */
} rg_card;

RG_API rg_card rg_engine_card(const rg_engine *engine);

/* The name of the i-th adapter; NULL: there are not so many. */
RG_API const char *rg_engine_adapter(const rg_engine *engine, int32_t i);

enum { RG_DRAFT_PLACES = 127 }; /* the most ids of a draft */

/* What the engine has done since it was opened. */
typedef struct rg_stats {
    uint64_t n_steps, n_rows, n_preempted, n_cached_rows;
    uint64_t n_swapped, n_recomputed; /* states of preempted sequences that were copied out, and that were dropped */
    uint64_t n_updates;      /* of its weights (rg_engine_update_weights) */
    uint64_t n_prompt_rows;  /* prompt ids of admitted requests, cached ones included */
    uint64_t n_output;       /* ids generated */
    uint64_t n_drafts, n_draft_rows, n_draft_accepted; /* drafts that were checked, their ids, and those accepted, */
    uint64_t draft_accepted_at[RG_DRAFT_PLACES]; /*   the latter also by their place on the draft's path */
    double draft_s, undrafted_s; /* with a drafter: seconds of steps without prompts, and what the same ids would have
                                  *   taken at the pace of steps without drafts that were timed; both count only from
                                  *   when enough of these were, and stay 0 where every step has drafts */
    bool draft_paused;       /* "auto" was not drafting in the latest step, since it would have taken longer */
    int32_t n_running, n_waiting;
    int64_t n_waiting_ids;
    uint64_t n_rank_losses;  /* how often ranks ended and were started again; */
    bool ranks_restart;      /*   they are being started now, and no step is computed */
    double queue_fill;       /* queue fill, 0 to 1: at 1 requests are refused */
    uint64_t state_bytes, state_used_bytes; /* all pools; blocks that sequences hold (those only cached not counted) */
    uint64_t state_live_bytes; /* the part of state_used_bytes that positions of sequences have been written into */
    /* With rg_options.prefix_folder: prompts that found more of their prefix in files than in memory, and that found
     * no more; bytes of blocks read and written; files that were damaged, and blocks that could not be written;
     * bytes of all files in the folder when this engine last counted them. */
    uint64_t n_prefix_found, n_prefix_missed, prefix_bytes_read, prefix_bytes_written, n_prefix_damaged,
        n_prefix_failed, prefix_file_bytes;
    double ops;              /* operations of all steps */
    uint64_t bytes_read;     /* weights, K/V and state that the steps read */
    double limit_s;          /* seconds that the steps would have taken at this machine's limits; 0: not measured */
    double last_step_s;
    double busy_s;       /* time spent in steps */
    /* With rg_options.expert_bytes: matrices of experts that steps needed, that were read for them, and that could not
     * be read; bytes read; memory of the cache, a part of rg_info.weight_bytes. */
    uint64_t n_experts_asked, n_experts_read, n_experts_failed, expert_bytes_read, expert_bytes;
} rg_stats;

RG_API rg_stats rg_engine_stats(const rg_engine *engine);

/* Bytes per second that this machine's threads read from where the model's weights lie (a cache that holds them, or
 * memory), corrected by steps that were faster.  If that was not measured while
 * opening (see rg_options.step_s), the call measures it in up to 0.3 s; best while no request runs.  0: no memory to
 * measure with. */
RG_API double rg_engine_bandwidth(const rg_engine *engine);

/* What this machine can do at most with this model: its roofline.  0: it was not measured while opening. */
typedef struct rg_limits {
    double bytes_s; /* bytes read per second, as rg_engine_bandwidth */
    double ops_s;   /* operations per second of products with the weights: a multiplication and an addition are two */
} rg_limits;

RG_API rg_limits rg_engine_limits(const rg_engine *engine);

/* What a decode step of `batch` sequences, each after `context` positions, is expected to take on this machine, by what
 * has been learnt from steps so far; and a prompt of `context` positions alone. */
typedef struct rg_forecast {
    double weight_bytes, kv_bytes, recurrent_bytes; /* memory of the model, and of the batch's sequences */
    double activation_bytes; /* of the largest step */
    double step_s, limit_s;  /* predicted; at the machine's limits */
    double tokens_s;         /* of all sequences together */
    double ttft_s;           /* of the prompt: seconds to its first token */
    const char *bound;       /* what limits the step most: "weights", "kv" or "compute" */
} rg_forecast;

/* False: the machine was not measured while opening, or the shape is out of range. */
RG_API bool rg_engine_forecast(const rg_engine *engine, int32_t batch, int32_t context, rg_forecast *out);

/* Wait until the engine has committed a step later than step number *seen (0 at first), at most timeout_s; *seen
 * becomes the number of the last step.  False: timed out.  With it and rg_poll one thread can serve many requests. */
RG_API bool rg_engine_wait(rg_engine *engine, uint64_t *seen, double timeout_s);

/* Seconds, rounded up, after which a request refused as RG_E_BUSY is likely to be accepted: by how fast the queue
 * drains. */
RG_API int32_t rg_engine_retry_after(const rg_engine *engine);

/* True if a request of this tenant (NULL: of no tenant) would be accepted now.  Takes no lock. */
RG_API bool rg_engine_has_room(const rg_engine *engine, const char *tenant);

/* Replace the weights by those of the checkpoint at path, of the same architecture, settings, shapes and types: the
 * next step of a training, for example.  Waits: requests that are there end first, by the old weights, and later ones
 * begin by the new ones, so that no answer has both; cached prefixes are dropped.  Both sets are in memory for that
 * time.  By one thread at a time.  False and *err: the old weights stay. */
RG_API bool rg_engine_update_weights(rg_engine *engine, const char *path, rg_error *err);

/* Asserts that requests, sequences, blocks and the prefix index agree.  Waits for the end of the step. */
RG_API void rg_engine_check(rg_engine *engine);

/* ---- text -------------------------------------------------------------------------------------------------------- */

typedef enum rg_encode_flags {
    RG_ENCODE_DEFAULT = 0,
    RG_ENCODE_NO_SPECIAL = 1, /* leave out what the tokenizer adds (BOS, EOS) */
    RG_ENCODE_PLAIN = 2,      /* the text is the user's: it cannot produce special tokens */
} rg_encode_flags;

/* Ids of text[0, n).  *ids is the caller's, to be freed with rg_ids_free.  False: no tokenizer, or no memory. */
RG_API bool rg_encode(const rg_engine *engine, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids,
                      rg_error *err);
RG_API void rg_ids_free(int32_t *ids);

/* Ids of two texts of n bytes each, as the tokenizer puts them together for models that compare two.  *second becomes
 * rg_params.second.  False as rg_encode, or the tokenizer's template for pairs is not supported. */
RG_API bool rg_encode_pair(const rg_engine *engine, const char *const text[2], const size_t n[2], unsigned flags,
                           int32_t **ids, size_t *n_ids, int32_t *second, rg_error *err);
/* rg_params.second of ids that were put together elsewhere: behind the first separator, if anything stands there.  0:
 * nothing does, or the model has no separator. */
RG_API int32_t rg_pair_second(const rg_engine *engine, const int32_t *ids, size_t n);

/* How a text, or a pair of texts, becomes the ids of an embedding or of scores. */
typedef struct rg_text_options {
    unsigned flags;     /* rg_encode_flags */
    const char *prompt; /* the name of one of the checkpoint's prompts, which stands in front of a text alone; "":
                         *   none; NULL: its default prompt, if it has one */
    int32_t max_ids;    /* a longer text loses its end, and a pair what is longer of the two, until no more ids are
                         *   left; special tokens around stay.  0: as the checkpoint says (max_seq_length), -1: never */
    bool keep_end;      /* what is lost is the beginning (the tokenizer may say so, too) */
} rg_text_options;

typedef struct rg_text_ids {
    int32_t *ids;      /* [n] the caller's, to be freed with rg_ids_free */
    size_t n;
    int32_t pool_from; /* rg_params.pool_from */
    int32_t second;    /* rg_params.second */
} rg_text_ids;

/* False: no tokenizer, no such prompt, or no memory.  out is set only on success. */
RG_API bool rg_encode_to_embed(const rg_engine *engine, const char *text, size_t n, const rg_text_options *options,
                               rg_text_ids *out, rg_error *err);
RG_API bool rg_encode_pair_to_score(const rg_engine *engine, const char *const text[2], const size_t n[2],
                                    const rg_text_options *options, rg_text_ids *out, rg_error *err);
/* Cut ids [n] that were made elsewhere, in place, likewise.  How many are left. */
RG_API size_t rg_cut_ids(const rg_engine *engine, int32_t *ids, size_t n, const rg_text_options *options);
/* The name of the checkpoint's i-th prompt; NULL: there are not so many.  Valid until rg_close. */
RG_API const char *rg_engine_prompt(const rg_engine *engine, int32_t i);

/* Text of ids, with special tokens unless skip_special; to be freed with rg_text_free.  NULL and *err on failure. */
RG_API char *rg_decode(const rg_engine *engine, const int32_t *ids, size_t n, bool skip_special, size_t *n_text,
                       rg_error *err);
RG_API void rg_text_free(char *text);

/* The bytes of one id as they stand within a text: *n of them, which need not be whole characters.  A special token has
 * none there: its name is given instead, unless skip_special.  Valid until rg_close; "" without a tokenizer. */
RG_API const char *rg_id_bytes(const rg_engine *engine, int32_t id, bool skip_special, size_t *n);

/* The special tokens [n] that answers show as their text where rg_params.show_marks is set: marks that tell the parts
 * of an answer apart.  To be called at most once, before requests and grammars that have show_marks; ids that are no
 * special tokens are left out.  False and *err: no tokenizer, or no memory. */
RG_API bool rg_engine_show(rg_engine *engine, const int32_t *ids, size_t n, rg_error *err);

/* A JSON value, parsed once and then read as often as needed.  NULL and *err: not JSON, or larger than its budget. */
typedef struct rg_json rg_json;
RG_API rg_json *rg_json_new(const char *text, size_t n, rg_error *err);
RG_API void rg_json_close(rg_json *json); /* NULL is fine */

/* Ids of a conversation, rendered by the checkpoint's chat template (or, if it has none, as "role: content" lines).
 * conversation: a list of messages, or an object with "messages", "tools" and extra variables of the template.  The
 * text of messages cannot produce special tokens.  text (may be NULL) gets the rendered text, to be freed with
 * rg_text_free. */
typedef struct rg_chat_options {
    bool no_generation_prompt;
    bool continue_final; /* the last message, a text of the assistant's, stays open: the answer continues it */
} rg_chat_options;
RG_API bool rg_chat_encode(const rg_engine *engine, const rg_json *conversation, const rg_chat_options *options,
                           int32_t **ids, size_t *n_ids, char **text, rg_error *err);
RG_API bool rg_chat_has_template(const rg_engine *engine); /* one that can be used */
/* Why conversations are refused: the chat template cannot be used, for this reason, which names it and the line.  NULL:
 * they are not.  Valid until rg_close. */
RG_API const char *rg_engine_chat_problem(const rg_engine *engine);

/* Compile a grammar.  NULL and *err: malformed, not supported (the keyword is named), or too large. */
RG_API rg_grammar *rg_grammar_new(const rg_engine *engine, const rg_grammar_source *source, rg_error *err);
RG_API void rg_grammar_close(rg_grammar *grammar); /* NULL is fine */

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Hand a request to the engine.  NULL and *err: refused.  A request that is accepted is never refused later: it
 * finishes or is cancelled.  It is the caller's until rg_request_close, which cancels it if it still runs. */
RG_API rg_request *rg_submit(rg_engine *engine, const rg_params *params, rg_error *err);

/* A request that goes on from where another one of this engine stands, which may still run, have ended or be cancelled.
 * Its prompt is the other's prompt, the first n_output ids of the answer that the other tells as `sample` (as many as
 * rg_next or rg_poll gave, or fewer), and then params->prompt [params->n_prompt], which may be none.  Adapter, tenant,
 * salt and given rows are the other's; all else is as params say.  Its ids and log-probabilities are those of
 * rg_submit with the same prompt: only less is computed, as it shares the blocks of state of the other's positions, or
 * finds those in the prefix cache; where they are still being computed, it waits for them.  Models with a state per
 * sequence (Mamba and others) can share only where the other stands, where it ended, or at a snapshot.  To be called by
 * the other's reader; afterwards the other may be closed. */
RG_API rg_request *rg_fork(rg_engine *engine, rg_request *from, int32_t sample, int32_t n_output,
                           const rg_params *params, rg_error *err);

typedef struct rg_top {
    int32_t id;
    float logprob;
} rg_top;

/* One output token, or the end of one sample. */
typedef struct rg_token {
    int32_t sample;     /* 0 .. n_samples - 1 */
    int32_t id;         /* -1: this event has no id, only text that was held back, or the end */
    const char *text;   /* whole UTF-8 characters that are certain from now on; "" without a tokenizer.  Valid until */
    size_t n_text;      /*   the next rg_next on this request */
    float logprob;      /* natural logarithm, of the raw logits; NAN unless asked for */
    const rg_top *top;  /* the n_top best, best first */
    int32_t n_top;
    rg_finish finish;   /* not RG_RUNNING: the last event of this sample */
    int32_t stop;       /* in the last event: index in rg_params.stop of the text that ended the sample; -1: none */
    int32_t stop_id;    /* in the last event: the id of rg_params.stop_ids that ended the sample; -1: none did, or it is
                         *   an end token of the model as well */
} rg_token;

/* Wait for the next event of a request.  False: every sample has ended; there are no more events. */
RG_API bool rg_next(rg_request *request, rg_token *token);

/* The same without waiting.  1: an event; 0: none yet; -1: all samples have ended. */
RG_API int rg_poll(rg_request *request, rg_token *token);

/* Stop a request within one step.  What was generated can still be read; its samples end as RG_FINISH_CANCELLED. */
RG_API void rg_cancel(rg_request *request);

/* Why a prompt's cached prefix ended where it did. */
typedef enum rg_uncached {
    RG_UNCACHED_NOTHING, /* it covers the prompt but for less than a block of 64; the last id is always computed */
    RG_UNCACHED_NEW,     /* what follows was not computed before, within the tenant and salt */
    RG_UNCACHED_GONE,    /* what follows was computed before, and its state has been evicted */
    RG_UNCACHED_OFF,     /* the engine caches no prefixes, or the request takes none */
} rg_uncached;

typedef struct rg_usage {
    int32_t n_prompt, n_cached, n_output; /* n_prompt: positions; n_cached: those found in the prefix cache */
    int32_t n_prefilled;  /* prompt positions whose state is there, the cached ones included; it never falls */
    int32_t n_preempted;
    int32_t n_lost;       /* how often what was computed for it was lost with a rank, and is computed anew */
    int32_t n_steps;      /* steps that generated ids, */
    int32_t n_drafted, n_accepted; /*   in which so many ids of drafts were checked and accepted */
    int32_t n_predicted_accepted;  /*   of these, ids of rg_params.predicted */
    rg_uncached uncached; /* why not more of the prompt was found */
    int64_t n_rows;       /* rows that were computed for it: positions of prompt and answers, drafts, and what was
                           *   computed again */
    /* Of a beam search, after each of its steps: blocks of state that its beams held, and as many as they would have
     * held without sharing; and over the whole search, blocks copied because a beam that shared one wrote into it.  Of
     * a tree search: blocks of its rollouts, those that they share counted once, and each time. */
    uint64_t search_blocks, search_blocks_unshared, search_blocks_copied;
    int32_t n_simulations, n_nodes; /* of a tree search: how many simulations were run, and how many nodes they made */
    int64_t search_positions;       /*   and positions that its rollouts went on from, all together */
    double queue_s, ttft_s, total_s;      /* from rg_submit to the first step, the first token, the end; 0: not yet */
    double paced_s;       /* the pace of generation is n_paced / paced_s: ids after the first, seconds since it; */
    int32_t n_paced;      /*   where many ids come together (diffusion, beams, best_of): all, since the first step */
    double steps_s, limit_s; /* seconds of the steps that computed its rows; and how short the machine's limits allow
                              *   them to be, 0: not measured */
} rg_usage;

RG_API rg_usage rg_request_usage(const rg_request *request);

/* The score by which answers were chosen, best first: of beams as rg_beam_params says, of a tree search its value, of
 * best_of what the scorer says, or the mean log-probability of its ids and its end.  NAN: the sample has not ended, or
 * there is no such answer, or none were chosen. */
RG_API double rg_request_answer_score(const rg_request *request, int32_t sample);

/* The embedding that a request with rg_params.embed has made: *n numbers.  With RG_POOLING_MODEL it went through what
 * the checkpoint has behind the pooling (dense layers, a normalisation); else it is as pooled, not normalised.  Valid
 * until rg_request_close.  NULL before the last event of the request, and if it did not end as RG_FINISH_STOP. */
RG_API const float *rg_request_embedding(const rg_request *request, int32_t *n);

/* The scores that a request with rg_params.score has made, as the head gives them: *n numbers, one for each label.
 * Valid, and NULL, likewise. */
RG_API const float *rg_request_head_scores(const rg_request *request, int32_t *n);

/* The probability of an id of the prompt after the ids before it. */
typedef struct rg_prompt_logprob {
    int32_t id;
    float logprob;     /* natural logarithm, of the raw logits */
    int32_t rank;      /* among all ids by logit, from 1; of equal ones the lower id comes first */
    const rg_top *top; /* the n_top best, best first; valid until rg_request_close */
    int32_t n_top;
} rg_prompt_logprob;

/* Fill *out for the id at this position of the prompt.  False: position 0, no such position, a given row stands there,
 * rg_params.prompt_logprobs was not set, or it is not computed yet.  All are computed before the first event of the
 * request, unless it is cancelled or its deadline passes first; a result never changes. */
RG_API bool rg_request_prompt_logprob(const rg_request *request, int32_t position, rg_prompt_logprob *out);

/* The raw logits of the id that follows this position of the prompt, as the model's head gives them: [*n], one for each
 * id of the vocabulary; valid until rg_request_close.  NULL: no such position, rg_params.prompt_logits was not set, or
 * they are not computed yet.  Those of all positions but the last are computed when prompt log-probabilities are; those
 * of the last, before the first id of the answer, or, with max_tokens 0, the end of the request. */
RG_API const float *rg_request_prompt_logits(const rg_request *request, int32_t position, int32_t *n);

/* The ids of prompt and answer of a sample after the k-th evaluation of a diffusion model; a mask that is left has the
 * mask's id.  *n ids, valid until rg_request_close.  NULL: there is no such evaluation yet, or
 * rg_params.diffusion.trace was not set. */
RG_API const int32_t *rg_request_trace(const rg_request *request, int32_t sample, int32_t k, int32_t *n);

RG_API void rg_request_close(rg_request *request); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
