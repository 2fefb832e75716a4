/* request.h -- one request: the mailbox between whoever asked and the engine.
 *
 * One allocation holds the prompt, room for every output id and its log-probabilities, and for those of the prompt (or
 * for the embedding, or the head's scores), and per sample an atomic count of what is there.  The engine writes behind
 * the count, the reader reads before it: a slow reader only falls behind in its own array.  Two references: the
 * caller's and the engine's; the last one dropped frees it. */
#ifndef RG_ENGINE_REQUEST_H
#define RG_ENGINE_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/spell.h"
#include "engine/admission.h"
#include "engine/beam.h"
#include "engine/breakers.h"
#include "engine/fill.h"
#include "engine/sequence.h"
#include "engine/stops.h"
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
    rg_pooling score_pooling; /*   and of which rows (rg_config) */
    int32_t max_rows, max_logits; /* of a step, where a prompt or an answer is computed whole: its rows are never cut */
    int32_t max_draft; /* nodes of a draft at most; 0: answers are not drafted for */
    int32_t adapter;   /* which of the model's adapters it asks for, counted from 1; 0: none */
    rg_breakers *breakers; /* DRY's, NULL: none; the request holds a reference */
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
    rg_fill *fill;           /* of a diffusion model; NULL: ids are drawn one after the other */
    rg_grammar_state *grammar; /* where the answer stands in its grammar; NULL: it may be anything */
    int32_t n_output;
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

typedef struct rg_score { /* of an id of the prompt, as in rg_prompt_logprob */
    float logprob;
    int32_t rank;
} rg_score;

struct rg_request {
    atomic_int references;
    atomic_bool cancelled;
    bool no_weights;         /* the engine's own: a step could not read experts for it */
    atomic_bool not_finite;  /* the engine's own: set while a step runs, by any of its threads */
    pthread_mutex_t lock;    /* only for the sleep of a reader */
    pthread_cond_t ready;
    atomic_int n_asleep;     /* readers in rg_request_wait: the engine wakes them only if there are any */
    rg_params params;        /* pointers into this allocation; those of stop texts are in stops */
    rg_stop *stops;          /* [n_stop] */
    char *text;              /* the text of the event last given out */
    uint64_t id;
    const rg_spelling *spelling;
    bool prompt_shows;       /* some of the prompt is text, so answers continue a text */
    const int32_t *eos_ids;
    int32_t n_eos;
    rg_breakers *breakers;   /* of DRY; NULL: none */
    int32_t *tokens;         /* prompt and output of each sample in turn, contiguous */
    size_t row;              /* ids of one sample in it */
    rg_sample *samples;      /* [n_branches] */
    int32_t n_branches;      /* samples that are written: params.n_samples, best_of, or all beams */
    int32_t n_ending;        /* samples that end, and the request with them: all that are written, but of beams those
                              *   told */
    int32_t *best;           /* [n_branches] the reader's own: samples, best first, once all have ended; NULL: they are
                              *   told as they come */
    bool is_chosen;          /* the reader's own: best is there */
    rg_beams *beams;         /* the search that writes them; NULL: each is written by itself */
    rg_beam_ids *places;     /* [n_branches] of a search, the ids of each place: those of its sample */
    int32_t *stop_scratch;   /* [n_stop] of a search, where a candidate's text stands in each stop text */
    _Atomic uint64_t beam_blocks, beam_blocks_unshared, beam_blocks_copied; /* as in rg_usage */
    int32_t max_draft;
    atomic_int n_drafted, n_accepted, n_steps; /* ids of drafts, those accepted, and steps that drew ids */
    int32_t dim;
    rg_pooling poolings[RG_MAX_POOLINGS];
    int n_poolings;
    float *embedding;        /* [n_poolings][dim], once finished; NULL unless it is asked for */
    double *pool_sum;        /* [n_poolings][dim] of the rows pooled so far */
    int32_t n_pooled;
    const rg_embedding *made_by; /* the reader's own, as the next: what becomes of the pooled states, */
    const rg_dense *dense;
    float *finish_scratch;   /*   room for it (NULL: nothing does), */
    const float *finished;   /*   and what was made; NULL: not yet */
    float *labels;           /* [n_labels] the head's scores, once finished; NULL unless they are asked for */
    int32_t n_labels;
    rg_pooling score_pooling;
    bool is_whole;           /* its rows see rows after them: one step computes the prompt, on a scratch sequence */
    rg_score *scores;        /* [n_prompt], nothing in the first; NULL: not asked for */
    rg_top *score_tops;      /* [n_prompt][n_prompt_tops] */
    atomic_int n_scored;     /* leading ids of the prompt that have their score or need none; the first never needs
                              *   one */
    int32_t n_scoring;       /* the engine's own: the same after the step that is being computed */
    atomic_int n_cached, n_preempted, n_ended; /* n_ended: samples */
    atomic_int n_prefilled;  /* as in rg_usage */
    _Atomic uint64_t submitted_ns, admitted_ns, first_ns, finished_ns; /* 0: not yet */
    _Atomic uint64_t steps_ns, limit_ns; /* as in rg_usage */
    uint64_t last_step;      /* the number of the latest step that is counted in these */
    struct rg_request *next, *prev; /* the scheduler's queues */
    struct rg_request *queue_next;   /* in its queue of fair.h */
    uint64_t tenant, salt;          /* hashes: who asks, and whose prefixes it may find */
    double weight;                  /* of the tenant */
    int32_t adapter;                /* the number of its adapter, -1: none; part of salt */
    int32_t rope;                   /* the variant of ropes, by how long it may become; part of salt */
    int32_t state_part;             /* the most state that it may need, in parts of RG_ADMISSION_ALL_STATE */
    uint64_t deadline_ns;           /* 0: none */
    atomic_int uncached;            /* rg_uncached, once admitted */
    int state;               /* the scheduler's: in which of its lists; */
    bool was_ahead;          /*   whether it was taken on its tenant's burst credit; */
    struct rg_share *share;  /*   what its tenant holds, NULL: it is of the background; */
    int64_t n_prompt_left;   /*   rows that its samples lacked before they draw, when the step began; */
    uint64_t planned_in;     /*   the step in which its prompts were planned last; */
    bool gave_all;           /*   whether it gave way as the only one of its tenant; */
    int32_t n_claims, n_passed; /* how often others gave up state for it, and were let in while it waited for some */
};

/* Checks params (NaN, ranges, ids within the vocabulary, prompt within max_seq_len) and copies them.  max_tokens is
 * capped to what max_seq_len leaves; an embedding has none, and one sample.  One reference. */
rg_request *rg_request_new(const rg_params *params, const rg_request_model *model, rg_error *err);
void rg_request_ref(rg_request *r);
rg_applicant rg_request_applicant(const rg_request *r); /* for admission */
/* Whose work the request may find: a hash of its tenant (unless tenants share what they have) and of its salt. */
static inline uint64_t rg_request_scope(const rg_request *r, bool tenants_share)
{
    const uint64_t spread = 0x9e3779b97f4a7c15u; /* a tenant whose salt is its own name is still itself */

    return r->salt ^ (tenants_share ? 0 : r->tenant * spread);
}
uint64_t rg_tenant_hash(const char *tenant); /* NULL: nobody in particular */
void rg_request_unref(rg_request *r);

/* Ids [0, n) of prompt and output of sample i, contiguous: what a recompute prefills. */
const int32_t *rg_request_tokens(const rg_request *r, int i);

/* True if id is one of ids [n]. */
static inline bool rg_ids_have(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static inline bool rg_request_embeds(const rg_request *r)
{
    return r->params.embed != RG_POOLING_NONE;
}

static inline bool rg_request_is_scored(const rg_request *r)
{
    return r->labels;
}

/* True if it generates ids.  If not, it ends once its prompt is computed. */
static inline bool rg_request_draws(const rg_request *r)
{
    return r->params.max_tokens > 0;
}

/* Positions whose state one sample needs at most: the last id drawn needs none.  Guidance needs them twice. */
static inline int32_t rg_request_positions(const rg_request *r)
{
    const rg_fill *f = r->samples[0].fill;

    if (f)
        return f->d.n * (1 + rg_fill_is_guided(f));
    return r->params.n_prompt + r->params.max_tokens - rg_request_draws(r);
}

/* How many of the first n positions may come from a cached prefix.  Pooling over all rows or the first needs these rows
 * computed.  A score needs the row before its id, so after a preemption only rows whose scores are known may be
 * cached. */
static inline int32_t rg_request_cacheable(const rg_request *r, int32_t n)
{
    const bool of_many = r->n_poolings > 1 || r->poolings[0] != RG_POOLING_LAST;

    if (r->is_whole || r->params.uncached || (r->params.embed != RG_POOLING_NONE && of_many))
        return 0;
    if (!r->scores || r->n_scoring == r->params.n_prompt)
        return n;
    return r->n_scoring > 1 ? r->n_scoring : 0;
}

/* Where the best ids beside the next one go, or beside the one after a node of the answer's draft; NULL: they are not
 * wanted. */
rg_top *rg_request_tops(const rg_request *r, int i, int32_t node);

/* ---- answers (mailbox.c) ---- */

/* Engine side: one id more for sample i, with its log-probabilities; decides whether the sample ends with it (end
 * token, stop id, stop text, max_tokens) and says so.  The ids of an end are not part of the output. */
rg_finish rg_request_append(rg_request *r, int i, int32_t id, float logprob, const rg_top *top);
void rg_request_end(rg_request *r, int i, rg_finish why);
/* Of a beam search, in the engine's thread.  True if the ids of this place and `id` contain a stop text (request: an
 * rg_request; as rg_beams.stops); this place's text becomes that of another one, before it gets an id; the text of a
 * place that has got its next id. */
bool rg_request_would_stop(void *request, int32_t place, int32_t id);
void rg_request_take_text(rg_request *r, int place, int from);
void rg_request_follow_text(rg_request *r, int place);
/* The search is over, or is ended as it stands because of `why`: its best answers, for the reader. */
void rg_request_tell(rg_request *r, rg_finish why);

/* Reader side, as rg_next and rg_poll say. */
int rg_request_poll(rg_request *r, rg_token *out);
bool rg_request_wait(rg_request *r, rg_token *out);
/* The sample that is told as number k; NULL: there is none yet. */
rg_sample *rg_request_told(rg_request *r, int k);
double rg_sample_mean_logprob(const rg_sample *s);
rg_usage rg_request_used(const rg_request *r);
/* So many of its positions, prompt and answer, have their state by now.  The engine's own. */
void rg_request_note_prefilled(rg_request *r, int32_t n);

/* ---- embeddings (embed.c), engine side ---- */

/* The rows of a span (n prompt rows from position start) whose hidden states are wanted, counted from the span's
 * first. */
rg_rows rg_request_rows_to_pool(const rg_request *r, int32_t start, int32_t n);
/* The hidden states of so wanted rows, [dim] each, `stride` floats apart, the first at position start. */
void rg_request_pool(rg_request *r, int32_t start, int32_t n, const float *rows, size_t stride);
/* All rows are pooled: finish the embedding and end the request; numbers that are not finite end it as such. */
void rg_request_embedded(rg_request *r);

/* ---- scores of the model's head (embed.c), engine side ---- */

/* The rows of a prompt whose mean hidden state the head scores. */
rg_rows rg_request_rows_for_head(const rg_request *r);
/* A step's scores [n_labels] of it; and after the step, end the request: as not finite if they are not. */
void rg_request_take_labels(rg_request *r, const float *scores);
void rg_request_scored(rg_request *r);

/* ---- scores: log-probabilities of the prompt's own ids (score.c) ---- */

/* Engine side.  The rows of a span (n rows from position start) whose logits score ids without a score yet, counted
 * from the span's first.  The row at a position scores the id after it. */
rg_rows rg_request_rows_to_score(const rg_request *r, int32_t start, int32_t n);
/* The coming step computes them, so no other span of it shall; */
void rg_request_begin_scores(rg_request *r, int32_t start, int32_t n);
/* it has, and the reader may see them. */
void rg_request_publish_scores(rg_request *r);

/* Reader side, as rg_request_prompt_logprob. */
bool rg_request_score(const rg_request *r, int32_t position, rg_prompt_logprob *out);

#endif
