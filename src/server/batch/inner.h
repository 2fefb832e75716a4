/* inner.h -- what batches.c (tasks, downloads, the thread), life.c (batches) and lines.c (their
 * lines) share. */
#ifndef RG_SERVER_BATCH_INNER_H
#define RG_SERVER_BATCH_INNER_H

#include "server/batch/batches.h"

typedef struct rg_download rg_download;

typedef enum rg_slot_state {
    RG_SLOT_FREE,
    RG_SLOT_RUNNING, /* its endpoint has it; releasing the exchange ends this state, the thread ends all others */
    RG_SLOT_ANSWERED,
    RG_SLOT_STORING, /* its answer is to be stored */
    RG_SLOT_WAITING, /* to run again */
} rg_slot_state;

/* A line that runs, or has run and is not in the store yet. */
typedef struct rg_slot {
    rg_batches *b;
    rg_slot_state state; /* with x, status and body: guarded by the lock */
    rg_exchange *x;      /* while it runs */
    int status;          /* of the answer; 0: none came */
    rg_buf body;
    int64_t batch, number, from, n;
    char id[RG_ID_ROOM + 32];
    rg_buf custom_id;
    int n_tries;
    bool in_turn;  /* while it runs: among other requests, and not behind them */
    bool recalled; /* likewise: it is to begin anew in its turn */
    uint64_t again_ns; /* when it waits: until then */
} rg_slot;

/* A batch that has not ended. */
typedef struct rg_active {
    int64_t key, input, expires_s, after; /* after: lines up to it have been taken up */
    char id[RG_ID_ROOM], owner[RG_OWNER_ROOM];
    const rg_route *route;
    rg_batch_state state;
    bool all_taken;
    int32_t n_slots;
    uint64_t turn; /* when a line of its owner's was last taken up */
} rg_active;

struct rg_batches {
    rg_server *s;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool news_made;
    rg_task *tasks, **tasks_end; /* up to the next blank line: guarded by the lock */
    int32_t n_tasks;
    bool closing, answered;

    /* The thread's own. */
    rg_batch_store *st;
    rg_download *downloads;
    char (*owners)[RG_OWNER_ROOM]; /* of the keys, by their index; of a server without: one, "" */
    int32_t n_owners;
    rg_slot *slots;
    int32_t n_slots;
    rg_active *active;
    int32_t n_active, active_room;
    int64_t last_key;                         /* of the batches that were seen */
    uint64_t n_calls;                         /* of the server, when a line was last begun */
    uint64_t turn, stuck_until_ns, ticked_ns; /* ticked: the store was told the time */
    double stuck_s;
};

const char *rg_owner_of(const rg_batches *b, int tenant);
bool rg_lines_open(rg_batches *b, rg_error *err);
void rg_lines_close(rg_batches *b);
/* Store the answers that have come, end batches that are over, begin the lines that there is room for.  True: call it
 * again soon. */
bool rg_lines_turn(rg_batches *b);

/* ---- between the two ---- */

rg_active *rg_active_find(rg_batches *b, int64_t key);
void rg_lines_recall(rg_batches *b, int64_t batch); /* cancel the running lines of a batch (0: of all) */
void rg_lines_go_on(rg_batches *b);                 /* the store takes things again */
void rg_line_name(char *out, size_t room, const rg_active *a, int64_t number);
bool rg_batches_load(rg_batches *b, rg_error *err);
bool rg_batches_advance(rg_batches *b, rg_error *err); /* do what is due for every batch; false: the store failed */

#endif
