/* request.h -- one request: the mailbox between whoever asked and the engine.
 *
 * One allocation holds the prompt, room for every output id and its log-probabilities, and per sample an atomic count
 * of what is there.  The engine writes behind the count, the reader reads before it: a slow reader only falls behind in
 * its own array.  Two references: the caller's and the engine's; the last one dropped frees it. */
#ifndef RG_ENGINE_REQUEST_H
#define RG_ENGINE_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/sequence.h"
#include "grammar/grammar.h"

/* id -> bytes, so that stop texts can be found where ids are committed.  Borrowed from the tokenizer. */
typedef struct rg_token_bytes {
    const char *data;
    const uint32_t *offset; /* [n + 1]; id's bytes are data[offset[id], offset[id + 1]) */
    const char *first_data; /* the same of an id that a text begins with; NULL: no different */
    const uint32_t *first_offset;
    int32_t n;              /* 0: no tokenizer; texts are empty */
} rg_token_bytes;

typedef struct rg_sample { /* one answer */
    /* Written by the engine, read by the reader below n_ready. */
    int32_t *ids;
    float *logprobs;         /* NULL unless asked for */
    rg_top *tops;            /* n_logprobs each */
    atomic_int n_ready;      /* ids that are there */
    atomic_int finish;       /* rg_finish; set after the last n_ready */
    int32_t n_text_ids;      /* ids whose bytes are part of the text (a stop text cuts the rest), once finished */
    size_t n_text_bytes;     /* bytes of text in all, once finished */
    /* The engine's own. */
    rg_seq *seq;
    rg_grammar_state *grammar; /* where the answer stands in what it must be; NULL: it may be anything */
    int32_t n_output;
    int32_t first_at;        /* output that the text begins with; -1: none yet, or the prompt does */
    int32_t *stop_at;        /* [n_stop] how many bytes of each stop text the text now ends with */
    size_t n_bytes;
    /* The reader's own. */
    int32_t n_read;
    int32_t read_first_at;   /* as first_at */
    size_t n_given;          /* bytes of text given out */
    int32_t *read_stop_at;   /* as stop_at, for the bytes read so far */
    char *pending;           /* bytes not yet whole characters, or that may be the start of a stop text */
    size_t n_pending;
    bool cut;                /* a stop text was met: no more text */
    bool end_given;
} rg_sample;

struct rg_request {
    atomic_int references;
    atomic_bool cancelled;
    pthread_mutex_t lock;    /* guards nothing but the sleep of a reader */
    pthread_cond_t ready;
    atomic_int n_asleep;     /* readers in rg_request_wait: the engine wakes only whom there is */
    rg_params params;        /* pointers into this allocation */
    int32_t *stop_len;       /* [n_stop] */
    int32_t **stop_back;     /* per stop text, the failure links of Knuth, Morris and Pratt */
    char *text;              /* the text of the event last given out */
    uint64_t id;
    const rg_token_bytes *bytes;
    bool prompt_shows;       /* something of the prompt is text: the answers go on from it */
    const int32_t *eos_ids;
    int32_t n_eos;
    int32_t *tokens;         /* prompt; engine's scratch for ids of sample 0 follows per sample (see request.c) */
    rg_sample *samples;
    atomic_int n_cached, n_preempted, n_ended; /* n_ended: samples */
    _Atomic uint64_t submitted_ns, admitted_ns, first_ns, finished_ns; /* 0: not yet */
    struct rg_request *next, *prev; /* the scheduler's queues */
    struct rg_request *line_next;   /* fair.h's */
    uint64_t tenant, salt;          /* hashes: who asks, and whose prefixes it may find */
    uint64_t deadline_ns;           /* 0: none */
    atomic_int uncached;            /* rg_uncached, once admitted */
    int state;               /* the scheduler's */
};

/* Checks params (NaN, ranges, ids within the vocabulary, prompt within max_seq_len) and copies them.  max_tokens is
 * capped to what max_seq_len leaves.  One reference. */
rg_request *rg_request_new(const rg_params *params, int32_t vocab_size, int32_t max_seq_len,
                           const rg_token_bytes *bytes, const int32_t *eos_ids, int32_t n_eos, rg_error *err);
void rg_request_ref(rg_request *r);
void rg_request_unref(rg_request *r);

/* Engine side: one id more for sample i, with its log-probabilities; decides whether the sample ends with it (end
 * token, stop id, stop text, max_tokens) and says so.  The ids of an end are not part of the output. */
rg_finish rg_request_append(rg_request *r, int i, int32_t id, float logprob, const rg_top *top);
void rg_request_end(rg_request *r, int i, rg_finish why);
/* Ids [0, n) of prompt and output of sample i, contiguous: what a recompute prefills. */
const int32_t *rg_request_tokens(const rg_request *r, int i);

/* Reader side, as rg_next and rg_poll say. */
int rg_request_poll(rg_request *r, rg_token *out);
bool rg_request_wait(rg_request *r, rg_token *out);
rg_usage rg_request_used(const rg_request *r);

#endif
