/* sequence.h -- the one versioned state of a sequence, and its verbs.
 *
 * A sequence's state is a table of blocks per group, valid for positions [0, length): [0, committed) are final, and
 * the rest are drafts.  The verbs hide the layouts: K/V is cut by lowering the length, a window releases what no
 * later row can see, a recurrent state stands at `committed` and replays the drafts that are accepted.  fork shares
 * everything and copies on the first write.  All or nothing: a verb that gets no memory changes nothing and returns
 * false, and the scheduler preempts a request.  Not thread-safe: the engine thread calls them, between steps. */
#ifndef RG_ENGINE_SEQUENCE_H
#define RG_ENGINE_SEQUENCE_H

#include "engine/contents.h"
#include "engine/prefix.h"

typedef struct rg_states rg_states; /* pools, store and prefix index of one engine */

/* n_blocks per group as the store was made.  use_prefixes false: nothing is ever shared across requests. */
rg_states *rg_states_new(const rg_state_spec *spec, rg_store *store, bool use_prefixes, rg_error *err);
void rg_states_free(rg_states *s);
void rg_states_forget(rg_states *s); /* every cached prefix; no sequence holds blocks */
void rg_states_check(const rg_states *s); /* asserts that sequences, pools and index agree */

typedef struct rg_seq {
    int32_t committed, length;  /* committed <= length */
    int32_t n_replay;           /* accepted drafts that a recurrent state has yet to fold in */
    uint64_t salt;
    rg_block_name scope;        /* the salt, as files of prefixes have it */
    int32_t rope;               /* the variant of ropes that rotated its K; salt must differ between variants */
    int32_t adapter;            /* the number of the adapter of its rows; salt must differ between adapters; -1: none */
    int32_t *table[RG_MAX_GROUPS]; /* [max_blocks], or [1] of state per sequence; -1: released or not there */
    int32_t n_blocks;           /* blocks of positions in use */
    int32_t max_blocks;
    int32_t n_published;        /* leading blocks that are in the prefix index */
    bool scratch;               /* nothing is kept from one step to the next; committed = length = 0 */
    int32_t scratch_from;       /* the first position that its next step computes */
    rg_node *tail;              /* the index node of block n_published - 1, pinned; NULL */
    void *swapped;              /* its blocks' bytes while swapped out; NULL */
    size_t swapped_bytes;
    uint64_t n_copied;          /* shared blocks that it had to copy before writing into them, since the caller
                                 *   set it to 0 or it was released */
    struct rg_seq *next, *prev; /* all of the states' sequences */
} rg_seq;

/* An empty sequence of at most max_len positions.  Takes no blocks. */
rg_seq *rg_seq_new(rg_states *s, int32_t max_len, uint64_t salt, rg_error *err);
void rg_seq_free(rg_states *s, rg_seq *q); /* releases; NULL is fine */

/* As rg_contents_number.  Where no prefix is ever looked for, nothing is numbered. */
uint64_t rg_states_number(rg_states *s, const rg_given_rows *given, int32_t n, int32_t *prompt);

/* Start from the longest cached prefix of tokens[0, n) under salt.  A block whose beginning alone is used is
 * copied.  Returns the number of positions found (committed = length = that); *uncached (may be NULL) says why not
 * more. */
int32_t rg_seq_match(rg_states *s, rg_seq *q, const int32_t *tokens, int32_t n, rg_uncached *uncached);
/* Make room to write positions [length, upto): new blocks, and copies of what is shared. */
bool rg_seq_grow(rg_states *s, rg_seq *q, int32_t upto);
/* After a step that computed rows [length, length + n_rows), the last n_draft of them drafts.  Sets length; commits the
 * others.  Where nothing is kept per sequence, drafts may follow drafts: then all n_rows are some.  tokens: the
 * sequence's ids from 0, so that full blocks can be published (NULL: publish nothing). */
void rg_seq_advance(rg_states *s, rg_seq *q, int32_t n_rows, int32_t n_draft, const int32_t *tokens);
/* Accept the first n drafts and forget the rest: committed += n, length = committed.  A tree's accepted path: slots[i]
 * is where its i-th row was put (NULL: in place). */
void rg_seq_commit(rg_states *s, rg_seq *q, int32_t n, const int32_t *slots, const int32_t *tokens);
/* Forget positions from p on: committed <= p <= length.  Further back: release and match again. */
void rg_seq_rollback(rg_states *s, rg_seq *q, int32_t p);
/* An independent continuation of q as committed (drafts are not taken along). */
bool rg_seq_fork(rg_states *s, const rg_seq *q, rg_seq *to);
/* The most of q's first `most` positions that another sequence can share: all, or up to a block's end where q has
 * released what a row behind them sees; where a state is kept per sequence, all that q has or none. */
int32_t rg_seq_shareable(const rg_states *s, const rg_seq *q, int32_t most);
/* An independent continuation of q's first p positions, p as rg_seq_shareable says. */
bool rg_seq_fork_at(rg_states *s, const rg_seq *q, int32_t p, rg_seq *to);
/* Keep a snapshot of recurrent groups at `committed` in the prefix index; within a block, with a copy of its beginning.
 * False: no room, or it is there. */
bool rg_seq_snapshot(rg_states *s, rg_seq *q, const int32_t *tokens);
/* Release all blocks: committed = length = 0.  tokens (may be NULL): the sequence's ids, so that the prefix index gets
 * what was committed beyond the last full block as well. */
void rg_seq_release(rg_states *s, rg_seq *q, const int32_t *tokens);
/* Out to plain memory and back, committed part only.  False: no memory, or the state is gone with a rank (out), or no
 * blocks (in); nothing changed. */
bool rg_seq_swap_out(rg_states *s, rg_seq *q);
bool rg_seq_swap_in(rg_states *s, rg_seq *q);

/* Make an empty sequence a scratch one until it is released.  Each of its steps computes [0, n) again in place (grow to
 * n, span and advance by n, no drafts), and a row sees what its kv_end says.  No position is ever committed, published
 * or matched, no window slides, and state per sequence starts fresh in every step. */
void rg_seq_scratch(rg_seq *q);

/* The next steps of a scratch sequence compute from position `from` on; what earlier steps wrote elsewhere stays, and
 * is seen.  Only where nothing is kept per sequence. */
void rg_seq_scratch_from(rg_states *s, rg_seq *q, int32_t from);

/* True if drafts can only be chains: a recurrent state takes them one after the other. */
bool rg_states_keep_chains(const rg_states *s);

/* Fill the state's part of a span that computes rows [length, length + n_rows). */
void rg_seq_span(const rg_states *s, const rg_seq *q, int32_t n_rows, int32_t n_draft, rg_span *span);

/* Sequences that are forks of one: n of them, which share the blocks of the first `shared` positions. */
typedef struct rg_forks {
    int32_t n, shared;
} rg_forks;

/* The largest share of all blocks that forks of so many positions need at most; over 1: they never fit. */
double rg_states_share(const rg_states *s, int32_t n_positions, rg_forks forks);
/* True if q and all its forks can be grown to `upto` positions now. */
bool rg_states_has_room(const rg_states *s, const rg_seq *q, int32_t upto, rg_forks forks);
/* Add q's blocks to two sums: those that no sequence counted before holds, and all.  Afterwards each sequence is
 * uncounted. */
void rg_states_count(rg_states *s, const rg_seq *q, uint64_t *held, uint64_t *all);
void rg_states_uncount(rg_states *s, const rg_seq *q);
/* The most positions that a scratch sequence can have: one step of at most max_rows computes them all, and no window
 * releases any.  The caller refuses longer ones. */
int32_t rg_states_most_scratch(const rg_states *s, int32_t max_rows);
/* Bytes of all pools; of the blocks that sequences hold (not those that only the prefix index keeps); and of these,
 * what positions were written into. */
void rg_states_bytes(const rg_states *s, uint64_t *all, uint64_t *held, uint64_t *live);
/* Where a prompt's span should end so that a snapshot can be kept: the first wanted position > from, or n. */
int32_t rg_states_next_stop(const rg_states *s, int32_t from, int32_t n);

#endif
