/* call.h -- one API request that runs the model: its prompts, the engine's requests, and the answers as they grow.
 *
 * An HTTP thread makes it, fills in prompts and hands it to the pump (rg_call_start); from then on it is the pump's
 * alone.  What the answers look like on the wire is the endpoint's shape: a table of functions that write. */
#ifndef RG_SERVER_CALL_H
#define RG_SERVER_CALL_H

#include "base/rng.h"
#include "server/api/fields.h"
#include "server/talk/conversation.h"
#include "server/core.h"
#include "server/json.h"
#include "server/talk/answer.h"
#include "server/talk/tool_kinds.h"

/* A count of characters in bytes that come in pieces: whole ones, and the bytes of one that is not whole yet. */
typedef struct rg_characters {
    size_t n;
    char part[4];
    uint8_t n_part;
} rg_characters;

typedef struct rg_logprob {
    int32_t id, n_top;
    float logprob;
    size_t top; /* of the choice's tops, the first */
} rg_logprob;

typedef struct rg_kept_id {
    int32_t id;
    size_t end; /* of the answer's text, with this id's */
} rg_kept_id;

typedef struct rg_choice {
    int32_t index;    /* prompt x n + sample */
    rg_buf text;      /* all of it; of a chat, only what logprobs or tokens need */
    rg_answer answer; /* of a chat */
    rg_buf ids;       /* rg_kept_id each, if the shape keeps them */
    rg_buf logprobs;  /* rg_logprob */
    rg_buf tops;      /* rg_top */
    int32_t n_tokens, n_reasoning;
    int32_t n_votes; /* answers that agree with it, itself among them; 0: nobody voted */
    rg_finish finish;
    int32_t stop, stop_id; /* as in rg_token, once it is finished */
    uint64_t last_ns;      /* when its last token came */
    bool news;             /* since the shape last saw it */
    /* What has been sent, for the shapes to keep. */
    size_t sent_ids, sent_text, sent_reasoning, sent_content, sent_logprobs;
    rg_characters offset;             /* of the text up to the next token */
    int sent_calls, n_parts, n_items; /* calls, parts of the answer, and items, that were sent whole */
    size_t sent_arguments;            /* of the next one; */
    bool call_open;                   /*   its beginning was sent */
    bool part_open;                   /* the beginning of the answer's part n_parts was sent, */
    size_t sent_part;                 /*   and so many bytes of it */
    rg_input_scan scan;               /* of the free text of the call that is open, */
    rg_buf input;                     /*   as far as it was sent */
    bool started, ended;
} rg_choice;

typedef struct rg_prompt {
    int32_t *ids;
    size_t n;
    bool ours;                 /* ids from rg_alloc, else from the engine */
    int32_t second, pool_from; /* as in rg_params */
    char *text;                /* for echo; from the engine if it rendered it */
    size_t n_text;
} rg_prompt;

/* What is known beforehand of the answers to a request (hints.h). */
typedef struct rg_hints {
    rg_thinking thinking;
    int32_t *start, *end, *predicted; /* from the engine */
    size_t n_predicted;
} rg_hints;

/* An endpoint that generates: how it reads a request and writes answers.  Streaming: start once, delta of a choice with
 * news, stop once.  Else: whole, once. */
typedef struct rg_shape {
    unsigned api; /* whose fields it knows */
    const char *id_prefix;
    bool is_chat;      /* reasoning and calls are told apart */
    bool embeds;       /* nothing is generated, and an answer comes whole or not at all */
    bool scores;       /* and what is made is the score of the model's head, no embedding */
    bool keeps_ids;    /* the ids of answers are wanted */
    const char *input; /* the field that its prompts come from, for messages */
    /* Bring the body into the names of fields.def, before its fields are read; NULL: it has them.  False and nothing in
     * *e: it has answered by itself. */
    bool (*adapt)(rg_call *c, rg_refusal *e);
    /* The prompts, and what is the endpoint's own.  It may put another shape in c->shape. */
    bool (*read)(rg_call *c, rg_refusal *e);
    const char *object, *chunk;                             /* of completions and chat: what they are called */
    void (*choice)(rg_call *c, rg_choice *ch, rg_buf *out); /* and one of a whole answer */
    void (*ended)(rg_call *c, rg_choice *ch);               /* one has just ended; may be NULL */
    void (*start)(rg_call *c, rg_buf *out);
    void (*delta)(rg_call *c, rg_choice *ch, rg_buf *out);
    void (*stop)(rg_call *c, rg_buf *out);
    void (*progress)(rg_call *c, rg_buf *out); /* how much of the prompt is computed; NULL: not told */
    /* In the middle of a stream; ends it.  NULL: an error as the family has it. */
    void (*fail)(rg_call *c, const rg_refusal *e, rg_buf *out);
    void (*whole)(rg_call *c, rg_buf *out);
} rg_shape;

struct rg_call {
    rg_served *served;
    rg_exchange *x;
    const rg_shape *shape;
    const rg_family *family;
    json_t *body;
    rg_fields f;
    const char *adapter; /* of the engine's, that the model's name asks for; NULL: the model alone */
    json_t *tools;       /* in the form of chat completions; NULL: none */
    json_t *kinds;       /* of those, what is no function to the client: as in rg_conversation; NULL: none */
    char *items;         /* of responses: the request's own, as a list in JSON; NULL: it is not kept */
    json_t *previous, *conversation; /* and what they came after; NULL: nothing, or no memory of it */
    json_t *must;                    /* of those, what every answer has to call one of; NULL: it need not */
    rg_constraint calls;    /* of an answer that may call tools, or else be what f.constraint says; name NULL: none */
    rg_talk_start start_at; /* where answers begin */
    int think;              /* rg_rendered.think */
    bool bound_by_calls;    /* f.constraint is a grammar of calls, */
    bool bound_by_inputs;   /*   which binds only inputs of custom tools: the model may answer with a text */
    int n_earlier;          /* calls of tools in the conversation */
    rg_prompt *prompts;
    int32_t n_prompts, prompts_room;
    rg_request **requests; /* [n_prompts]; the first n_submitted are with the engine, or were */
    int32_t n_submitted;
    rg_sampling sampling; /* of all of them, but for the seed */
    rg_grammar *grammar;  /* NULL: anything */
    rg_choice *choices;
    int32_t n_choices, n_ended;
    char id[48];
    int64_t created_s;
    uint64_t since_ns, first_ns, last_ns;
    uint64_t written_ns; /* when its stream was last written to */
    bool has_streamed;   /* and something of an answer is in it */
    int32_t n_lost;      /* how often the state of its requests was lost (rg_usage), as last seen */
    double deadline_s;
    int32_t max_tokens;
    rg_hints hints;
    rg_served *scorer_served; /* the model that values answers, held; NULL: none does */
    rg_scorer scorer;         /*   as the engine is told */
    int64_t n_dropped_tokens; /* of answers that were drawn and lost a vote */
    bool keeps_ids;           /* the ids of its answers are kept: the shape wants them, or the client */
    rg_buf out;
    int64_t n_prefilled;          /* positions of the prompts, as last told to a client that asked for progress */
    int32_t sequence;             /* of events, for shapes that number them */
    size_t event_at, event_bytes; /* the event that is being written; how long they all are made, if they are */
    rg_rng noise;
    bool failed;      /* no memory for what is to be written */
    bool out_of_time; /* t_max_predict_ms is over: its answers end with what they have */
    rg_call *next;
};

/* All of an endpoint that generates: read the request, start it, or refuse it. */
void rg_call_answer(rg_served *s, rg_exchange *x, const rg_shape *shape);

/* The body is read and its fields checked.  NULL and *e. */
rg_call *rg_call_new(rg_served *s, rg_exchange *x, const rg_shape *shape, rg_refusal *e);
void rg_call_free(rg_call *c); /* NULL is fine; cancels what runs */

/* A prompt more; ids from the engine (or ours: from rg_alloc) are taken, freed on failure too. */
bool rg_call_add_ids(rg_call *c, int32_t *ids, size_t n, bool ours, rg_refusal *e);
void rg_call_drop_prompt(rg_call *c); /* the last one */
/* How texts to be embedded or scored, or their ids, are encoded and cut, by the call's fields. */
bool rg_call_text_options(const rg_call *c, rg_text_options *o, rg_refusal *e);
/* Cut ids that a client gives to be embedded to as many as it asks for; without that they are not cut. */
bool rg_call_cut_ids(const rg_call *c, int32_t *ids, size_t *n, rg_refusal *e);
bool rg_call_add_text(rg_call *c, const char *text, size_t n, rg_refusal *e);
/* The prompts of the shape's input field: a text, texts, ids, or lists of ids. */
bool rg_call_read_prompts(rg_call *c, rg_refusal *e);
/* The body's conversation as the only prompt; its tools are what is offered. */
bool rg_call_read_chat(rg_call *c, rg_conversation_reader *read, rg_refusal *e);

/* For endpoints that only show the prompt of a body's conversation: an object, its members written by `write`. */
void rg_reply_rendered(rg_served *s, rg_exchange *x, rg_conversation_reader *read,
                       void (*write)(rg_buf *out, const rg_rendered *r));

/* Submit and hand over.  On success c is the pump's; on failure still the caller's. */
bool rg_call_start(rg_call *c, rg_refusal *e);

/* Submit as many prompts as one call may have in the engine.  The others follow as earlier ones end.  False and *e: the
 * engine takes no prompt of this call, or one of them never. */
bool rg_call_submit(rg_call *c, rg_refusal *e);

void rg_choice_fini(rg_choice *ch);

/* The pump's: take what came, send what is to be sent.  False: it is over. */
bool rg_call_turn(rg_call *c, uint64_t now_ns);
void rg_call_abort(rg_call *c, const rg_refusal *e); /* end it with this error; rg_call_turn then says false */

/* ---- for shapes (shape.c) ---- */
typedef struct rg_totals {
    int64_t n_prompt, n_cached, n_prefilled, n_output, n_reasoning;
    int64_t n_predicted_accepted;
    const char *uncached; /* why not more of the (first) prompt was cached */
    double queue_s, ttft_s, total_s;
    double steps_s, limit_s; /* as in rg_usage */
} rg_totals;

rg_totals rg_call_totals(const rg_call *c);
const char *rg_call_model(const rg_call *c);                  /* the name of the model, or adapter, that answers */
const char *rg_finish_word(const rg_choice *ch);              /* stop, length; tool_calls where there are */
bool rg_finish_is_cut(const rg_choice *ch);                   /* length */
int rg_choice_n_calls(const rg_call *c, const rg_choice *ch); /* calls to give out: one, if several are not wanted */
const char *rg_call_arguments(const rg_tool_call *t);         /* so far */
/* The call will not go on: it is whole, or its answer has ended. */
const rg_tool_kind *rg_call_kind(const rg_call *c, const rg_tool_call *t); /* of the tool that is called */
bool rg_call_is_over(const rg_choice *ch, const rg_tool_call *t);
/* For answers that are written part by part.  is_given: the part is given out (no more calls than are wanted); is_over:
 * nothing more comes to it.  An answer without any text or call has no part. */
bool rg_part_is_given(const rg_call *c, const rg_choice *ch, const rg_talk_part *p);
bool rg_part_is_over(const rg_choice *ch, const rg_talk_part *p);
bool rg_says_nothing(const rg_answer *a);
/* "usage": of completions and chat. */
void rg_write_usage(rg_buf *b, const rg_call *c);
const rg_logprob *rg_choice_logprob(const rg_choice *ch, size_t i); /* i < ch->logprobs.n / sizeof */
size_t rg_choice_n_logprobs(const rg_choice *ch);
const rg_top *rg_choice_tops(const rg_choice *ch, const rg_logprob *l);
/* Write the i-th log-probability as an object: the token, its bytes, and the likeliest tokens beside it. */
void rg_write_logprob(rg_buf *b, const rg_call *c, const rg_choice *ch, size_t i);
/* "token_ids" of an answer: those that were not sent yet; "prompt_token_ids" of a prompt.  Nothing unless the client
 * asked for them. */
void rg_write_token_ids(rg_buf *b, const rg_call *c, rg_choice *ch);
void rg_write_prompt_ids(rg_buf *b, const rg_call *c, int32_t prompt);
/* "prompt_logprobs" of a prompt that the engine has or had: a list, null where nothing is known of an id, else objects
 * by id: of the prompt's own, and of the best. */
void rg_write_prompt_logprobs(rg_buf *b, const rg_call *c, int32_t prompt);
/* The text of one id, special tokens shown; parts of characters are U+FFFD. */
void rg_write_id(rg_buf *b, const rg_call *c, const char *key, int32_t id);

/* Completions and chat: chunks of a stream around their choices, its end, and a whole answer. */
void rg_chunk_open(rg_buf *b, rg_call *c);
void rg_chunk_close(rg_buf *b, rg_call *c);
/* The same of the first chunk of a chat's choice, which may have the ids of the prompt. */
void rg_chunk_close_first(rg_buf *b, rg_call *c);
/* The same of a chunk that only tells progress: "prompt_progress". */
void rg_chunk_close_progress(rg_buf *b, rg_call *c);
void rg_write_finish(rg_buf *b, const rg_call *c, const rg_choice *ch); /* finish_reason and stop_reason, null while it
                                                                         *   runs */
void rg_chunks_stop(rg_call *c, rg_buf *out);
void rg_chunks_fail(rg_call *c, const rg_refusal *e, rg_buf *out);
void rg_choices_whole(rg_call *c, rg_buf *out);

/* For shapes of embeddings.  read: the texts or ids to be embedded; ended: writes the vector as JSON into the choice's
 * text. */
bool rg_embeddings_read(rg_call *c, rg_refusal *e);
void rg_embeddings_ended(rg_call *c, rg_choice *ch);

/* "prompt_progress": how much of the prompts is computed. */
void rg_write_progress(rg_buf *b, const rg_call *c);

/* If the client asked for it, add noise to the event that began at c->event_at, so that its length tells little about
 * its text. */
void rg_write_noise(rg_buf *b, rg_call *c);

/* Responses and messages: an event whose object begins with its type. */
void rg_typed_event_open(rg_buf *b, const rg_call *c, const char *type);
void rg_typed_event_close(rg_buf *b, const rg_call *c);

#endif
