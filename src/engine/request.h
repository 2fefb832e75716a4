/* request.h -- one request: the mailbox between whoever asked and the engine.
 *
 * One allocation holds the prompt, room for every output id and its log-probabilities, the part of its kind of work
 * (work/work.h), and per sample an atomic count of what is there.  The engine writes behind
 * the count, the reader reads before it: a slow reader only falls behind in its own array.  Two references: the
 * caller's and the engine's; the last one dropped frees it. */
#ifndef RG_ENGINE_REQUEST_H
#define RG_ENGINE_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/spell.h"
#include "engine/admission.h"
#include "engine/breakers.h"
#include "engine/sequence.h"
#include "engine/stops.h"
#include "engine/thinking.h"
#include "grammar/grammar.h"
#include "model/config.h"
#include "model/dense.h"

/* What every request needs of the model; the pointers stay valid as long as any request. */
typedef struct rg_request_model {
    int32_t vocab_size, max_seq_len, dim;
    const rg_spelling *spelling; /* NULL: texts are empty */
    const int32_t *eos_ids;
    int32_t n_eos;
    const rg_config *config; /* whose ropes may have variants; NULL: they have none */
    int32_t sees;      /* how far rows see, as rg_runner.sees */
    const rg_diffusion *diffusion; /* NULL: ids are drawn one after the other */
    bool headless;     /* it has no logits, and writes no answers */
    bool whole;        /* rows see rows after them: a prompt, if its answer is not filled in, is computed in one step */
    const rg_embedding *embedding; /* what RG_POOLING_MODEL means; NULL: that is refused */
    const rg_dense *dense;         /* and the weights of its steps */
    int32_t n_labels;  /* scores that the model's head makes of a prompt; 0: it has none */
    rg_pooling score_pooling; /*   and the rows that it reads (rg_config) */
    int32_t max_rows, max_logits; /* of a step, where a prompt or an answer is computed whole: its rows are never cut */
    int32_t max_draft; /* nodes of a draft at most; 0: answers are not drafted for */
    int32_t given_dim; /* numbers of a given row; 0: prompts are ids alone */
    int32_t adapter;   /* which of the model's adapters it asks for, counted from 1; 0: none */
    uint64_t adapter_identity; /* a number that stands for its weights, where prefixes are kept in files */
    rg_breakers *breakers; /* DRY's, NULL: none; the request holds a reference */
    struct rg_request *forks; /* the request whose state it goes on from, tenant and salt with it; NULL: none */
} rg_request_model;

typedef struct rg_sample { /* one answer */
    /* Written by the engine, read by the reader below n_ready. */
    int32_t *ids;
    float *logprobs;         /* NULL unless asked for */
    rg_top *tops;            /* n_logprobs each, of max_tokens ids and then of max_draft nodes of a draft */
    atomic_int n_ready;      /* ids that are there */
    atomic_int finish;       /* rg_finish; set after the last n_ready */
    int32_t stop_id;         /* the stop id that ended it, once finished; -1: none did */
    /* The engine's own. */
    rg_seq *seq;
    rg_seq *beside;          /* a second sequence, computed beside the first, if its work has two; else NULL */
    rg_grammar_state *grammar; /* where the answer stands in its grammar; NULL: it may be anything */
    int32_t n_output;
    rg_thought thought;      /* where its reasoning stands, of a request with a budget for it */
    float mu;                /* mirostat's bound at the next id: it follows from the ids so far, as they were drawn */
    double sum_logprobs;     /* of all ids drawn, n_drawn of them, the end with them; if logprobs are asked for */
    int32_t n_drawn;
    int32_t lane;            /* its place among the answers that are drafted for; see speculation.h */
    rg_speller speller;      /* of what is certain of its text */
    int32_t *stop_at;        /* [n_stop] places of the stop-text matcher in that text */
    int32_t *try_stop_at;    /* [n_stop] scratch: the same if the answer ended here */
    /* The reader's own. */
    int32_t n_read;
    rg_speller read_speller; /* as speller, of the ids read so far */
    int32_t *read_stop_at;   /* and as stop_at */
    int32_t stop;            /* the stop text that ended the text; -1: none yet */
    char *pending;           /* bytes that are not whole characters yet, or that may begin a stop text */
    size_t n_pending;
    bool end_given;
} rg_sample;

typedef struct rg_id_logprob { /* of an id of the prompt, as in rg_prompt_logprob */
    float logprob;
    int32_t rank;
} rg_id_logprob;

typedef struct rg_work rg_work; /* work/work.h */

typedef struct rg_mailbox { /* the reader's */
    pthread_mutex_t lock;    /* only for its sleep */
    pthread_cond_t ready;
    atomic_int n_asleep;     /* readers in rg_request_wait: the engine wakes them only if there are any */
    char *text;              /* the text of the event last given out */
} rg_mailbox;

typedef struct rg_request_texts { /* what ids show, and which of them end an answer */
    const rg_spelling *spelling;
    bool prompt_shows;       /* some of the prompt is text, so answers continue a text */
    rg_stop *stops;          /* [n_stop] */
    const int32_t *eos_ids;
    int32_t n_eos;
    rg_breakers *breakers;   /* of DRY; NULL: none */
} rg_request_texts;

typedef struct rg_request_owner { /* who asks, and whose state it may find */
    uint64_t tenant, salt;   /* hashes */
    rg_block_name scopes[2]; /* the salt, as files of prefixes have it, with the tenant; [1]: tenants share them */
    uint64_t own_salt;       /* the part of salt that the client chose */
    double weight;           /* of the tenant */
    int32_t adapter;         /* the number of its adapter, -1: none; part of salt */
    int32_t rope;            /* the variant of ropes, by how long it may become; part of salt */
    uint64_t deadline_ns;    /* 0: none */
} rg_request_owner;

typedef struct rg_request_counts { /* for rg_usage; any thread may read them */
    atomic_int n_predicted_accepted; /* of n_accepted, those of the request's own predicted text */
    atomic_int n_drafted, n_accepted, n_steps; /* ids of drafts, those accepted, and steps that drew ids */
    atomic_int n_cached, n_preempted, n_ended; /* n_ended: samples */
    atomic_int n_lost;       /* how often its state was lost with ranks */
    atomic_int n_prefilled;
    atomic_int uncached;     /* rg_uncached, once admitted */
    _Atomic uint64_t submitted_ns, admitted_ns, first_ns, finished_ns; /* 0: not yet */
    _Atomic uint64_t steps_ns, limit_ns;
    _Atomic int64_t n_rows;  /* computed for it */
    uint64_t last_step;      /* the number of the latest step that is counted in these */
} rg_request_counts;

typedef struct rg_request_turn { /* the scheduler's own */
    struct rg_request *next, *prev; /* in its list, */
    int state;               /*   and in which; */
    bool is_restoring;       /* its prefix is on its way from files, */
    bool is_restored;        /*   or was looked for there; */
    struct rg_request *queue_next; /* in its queue of fair.h; */
    struct rg_share *share;  /* what its tenant holds, NULL: it is of the background; */
    int32_t state_part;      /* the most state that it may need, in parts of RG_ADMISSION_ALL_STATE; */
    bool was_ahead;          /* whether it was taken on its tenant's burst credit; */
    int64_t n_prompt_left;   /* rows that its samples lacked before they draw, when the step began; */
    uint64_t planned_in;     /* the step in which its prompts were planned last; */
    bool gave_all;           /* whether it gave way as the only one of its tenant; */
    int32_t n_claims, n_passed; /* how often others gave up state for it, and were let in while it waited for some */
} rg_request_turn;

struct rg_request {
    atomic_int references;
    atomic_bool cancelled;
    bool no_weights;         /* the engine's own: a step could not read experts for it */
    atomic_bool not_finite;  /* the engine's own: set while a step runs, by any of its threads */
    uint64_t id;
    rg_params params;        /* pointers into this allocation; those of stop texts are in stops */
    int32_t given_dim;       /* numbers of a row of params.given */
    const rg_work *work;     /* what kind it is of, */
    void *part;              /*   and that kind's own */
    struct rg_request *forks; /* the request whose state it shares once it begins, with a reference; then NULL */
    rg_sample *samples;      /* [n_branches] */
    int32_t *tokens;         /* prompt and output of each sample in turn, contiguous; of given rows, their numbers */
    size_t row;              /* ids of one sample in it */
    int32_t n_branches;      /* samples that are written */
    int32_t n_ending;        /* samples that end (all, or the told ones); the request ends with the last of them */
    int32_t n_seqs;          /* sequences of a sample, 2 if one is computed beside the other */
    bool is_scratch;         /* they keep nothing from step to step */
    bool in_bulk;            /* its ids are given out many at a time, so that their pace counts from its first step */
    bool sees_ahead;         /* its rows see rows after them: what it gives is never computed row by row */
    bool is_valued;          /* its answers are compared by values that the reader gives (rg_work.to_value) */
    struct rg_scoring *scoring; /*   by this, the reader's own; NULL otherwise */
    struct rg_loop *loop;    /* that has it */
    atomic_bool is_held;     /* it has left the scheduler until the reader has given values; */
    atomic_bool is_closed;   /*   which it will not do any more */
    bool is_told;            /* the samples now hold the ids that are told, not the ids that their state was made of */
    int32_t max_draft;       /* nodes of a draft; 0: it is not drafted for */
    rg_mailbox mail;
    rg_request_texts texts;
    rg_request_owner who;
    rg_request_counts counts;
    rg_request_turn turn;
};
/* Checks params (NaN, ranges, ids within the vocabulary, prompt within max_seq_len; the rest by its kind of work) and
 * copies them.  max_tokens is
 * capped to what max_seq_len leaves; an embedding has none, and one sample.  One reference. */
rg_request *rg_request_new(const rg_params *params, const rg_request_model *model, rg_error *err);
void rg_request_ref(rg_request *r);
rg_applicant rg_request_applicant(const rg_request *r); /* for admission */
/* Whose work the request may find: a hash of its tenant (unless tenants share what they have) and of its salt. */
static inline uint64_t rg_request_scope(const rg_request *r, bool tenants_share)
{
    const uint64_t spread = 0x9e3779b97f4a7c15u; /* a tenant whose salt is its own name is still itself */

    return r->who.salt ^ (tenants_share ? 0 : r->who.tenant * spread);
}
uint64_t rg_tenant_hash(const char *tenant); /* NULL: nobody in particular */
void rg_request_unref(rg_request *r);

/* Give its given rows their numbers, once, before anything looks for its prefix.  The engine's own. */
void rg_request_number(rg_request *r, rg_states *states);
/* The ids of a fork: the prompt of `from`, the first n_output ids of what it tells as number `told`, and ids [n]; -1
 * where rows are given.  To be called by its reader.  *n_all ids, the caller's.  NULL and *err. */
int32_t *rg_request_fork_ids(rg_request *from, int32_t told, int32_t n_output, const int32_t *ids, int32_t n,
                             int32_t *n_all, rg_error *err);
/* It has begun, or will not: the request that it forks is let go.  The engine's own. */
void rg_request_forked(rg_request *r);
/* Ids [0, n) of prompt and output of sample i, contiguous: what a recompute prefills; of given rows, their numbers. */
const int32_t *rg_request_tokens(const rg_request *r, int i);

/* True if id is one of ids [n]. */
static inline bool rg_ids_have(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* True if it generates ids.  If not, it ends once its prompt is computed. */
static inline bool rg_request_draws(const rg_request *r)
{
    return r->params.max_tokens > 0;
}

/* True until it has ended. */
static inline bool rg_sample_is_live(const rg_sample *a)
{
    return atomic_load_explicit(&a->finish, memory_order_relaxed) == RG_RUNNING;
}

/* True if it has neither a state nor any output: it may fork from another sample that has no output either. */
static inline bool rg_sample_is_unstarted(const rg_sample *a)
{
    return rg_sample_is_live(a) && !a->seq && !a->n_output;
}

/* ---- making one: for kinds of work ---- */

/* False and *err: stop texts or stop ids that do not go. */
bool rg_request_check_stops(const rg_params *p, int32_t vocab_size, rg_error *err);
/* Ids of an answer: as many as are asked for, or as the context has room for. */
int32_t rg_request_tokens_left(const rg_params *p, const rg_request_model *m);

/* Where the best ids beside the next one go, or beside the one after a node of the answer's draft; NULL: they are not
 * wanted. */
rg_top *rg_request_tops(const rg_request *r, int i, int32_t node);

/* ---- answers (mailbox.c) ---- */

/* Engine side: one id more for sample i, with its log-probabilities; decides whether the sample ends with it (end
 * token, stop id, stop text, max_tokens) and says so.  The ids of an end are not part of the output. */
rg_finish rg_request_append(rg_request *r, int i, int32_t id, float logprob, const rg_top *top);
void rg_request_end(rg_request *r, int i, rg_finish why);
/* For kinds of work that give out answers in a way of their own.  Sample s ends; the first end counts. */
void rg_request_finish(rg_request *r, rg_sample *s, rg_finish why);
/* The reader looks at what there is. */
void rg_request_wake(rg_request *r);
/* Take the text of sample i's ids so far; true if it has a stop text. */
bool rg_request_meets_stop(rg_request *r, int i);
/* True if it would have one with the id that stands behind them.  scratch: [n_stop]. */
bool rg_request_would_stop(const rg_request *r, int i, int32_t *scratch);

/* Reader side, as rg_next and rg_poll say. */
int rg_request_poll(rg_request *r, rg_token *out);
int rg_request_wait(rg_request *r, rg_token *out); /* as poll, but 0 only where the reader is to give values first */
/* The sample that is told as number k; NULL: there is none yet. */
rg_sample *rg_request_told(rg_request *r, int k);
rg_usage rg_request_used(const rg_request *r);
/* So many of its positions, prompt and answer, have their state by now.  The engine's own. */
void rg_request_note_prefilled(rg_request *r, int32_t n);

#endif
