/* lines.c -- the lines of batches that have not ended: which one runs when, and where its answer goes.
 *
 * A line gets a slot, is sent to its endpoint, is answered, and leaves the slot when its answer is in the store.  Only
 * memory knows which lines have a slot: after a kill, those without an answer run again, from the same seed.  Owners
 * take turns; of one owner, the oldest batch goes first. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/batch/line.h"
#include "server/batch/inner.h"

enum { MAX_STUCK_S = 30 };

/* ---- owners: a key's hash, since the store outlives the list of keys --------------------------------------------- */

const char *rg_owner_of(const rg_batches *b, int tenant)
{
    return b->owners[tenant >= 0 && tenant < b->n_owners ? tenant : 0];
}

/* -1: a key that is no longer accepted; its batches wait. */
static int32_t find_owner(const rg_batches *b, const char *owner)
{
    for (int32_t i = 0; i < b->n_owners; i++)
        if (!strcmp(b->owners[i], owner))
            return i;
    return -1;
}

bool rg_lines_open(rg_batches *b, rg_error *err)
{
    const int32_t n_keys = rg_keys_count(b->s->keys);

    b->n_slots = b->s->o.batch_lines;
    b->n_owners = n_keys > 0 ? n_keys : 1;
    b->owners = rg_array((size_t)b->n_owners, sizeof *b->owners);
    b->slots = rg_array((size_t)b->n_slots, sizeof *b->slots);
    if (!b->owners || !b->slots)
        return rg_fail_memory(err, (size_t)b->n_slots * sizeof *b->slots);
    for (int32_t i = 0; i < n_keys; i++)
        snprintf(b->owners[i], sizeof b->owners[i], "%s", rg_keys_owner(b->s->keys, i));
    for (int32_t i = 0; i < b->n_slots; i++)
        b->slots[i].b = b;
    return true;
}

void rg_lines_close(rg_batches *b)
{
    for (int32_t i = 0; b->slots && i < b->n_slots; i++) {
        rg_buf_fini(&b->slots[i].body);
        rg_buf_fini(&b->slots[i].custom_id);
    }
    rg_free(b->owners);
    rg_free(b->slots);
    rg_free(b->active);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static rg_slot_state state_of(const rg_slot *slot)
{
    pthread_mutex_lock(&slot->b->lock);
    rg_slot_state state = slot->state;
    pthread_mutex_unlock(&slot->b->lock);
    return state;
}

/* Called on the thread that released the exchange last. */
static void land(void *arg, rg_exchange *x)
{
    rg_slot *slot = arg;
    rg_batches *b = slot->b;

    pthread_mutex_lock(&b->lock);
    rg_buf_fini(&slot->body);
    slot->status = rg_exchange_take(x, &slot->body);
    slot->x = NULL;
    slot->state = RG_SLOT_ANSWERED;
    b->answered = true;
    pthread_cond_signal(&b->news);
    pthread_mutex_unlock(&b->lock);
}

rg_active *rg_active_find(rg_batches *b, int64_t key)
{
    for (int32_t i = 0; i < b->n_active; i++)
        if (b->active[i].key == key)
            return &b->active[i];
    return NULL;
}

/* Free the slot; a line without an answer in the store will be taken up again. */
static void free_slot(rg_batches *b, rg_slot *slot, bool kept)
{
    rg_active *a = rg_active_find(b, slot->batch);

    rg_buf_fini(&slot->body);
    rg_buf_fini(&slot->custom_id);
    a->n_slots--;
    if (!kept) {
        a->all_taken = false;
        a->after = slot->number - 1 < a->after ? slot->number - 1 : a->after;
    }
    pthread_mutex_lock(&b->lock);
    slot->state = RG_SLOT_FREE;
    pthread_mutex_unlock(&b->lock);
}

void rg_lines_recall(rg_batches *b, int64_t batch)
{
    for (int32_t i = 0; i < b->n_slots; i++) {
        rg_slot *slot = &b->slots[i];
        if (batch && slot->batch != batch)
            continue;
        pthread_mutex_lock(&b->lock);
        bool waits = slot->state == RG_SLOT_WAITING;
        if (slot->state == RG_SLOT_RUNNING && slot->x)
            rg_exchange_leave(slot->x);
        pthread_mutex_unlock(&b->lock);
        if (waits)
            free_slot(b, slot, false);
    }
}

/* The store failed (a full disk, for example): no line begins for a while, and then it is tried again. */
static void get_stuck(rg_batches *b, const rg_error *err)
{
    if (!b->stuck_s)
        rg_log(RG_LOG_ERROR, "serve: batches stop for now: %s", err->text);
    b->stuck_s = b->stuck_s > 0 ? 2 * b->stuck_s : 1;
    b->stuck_s = b->stuck_s < MAX_STUCK_S ? b->stuck_s : MAX_STUCK_S;
    b->stuck_until_ns = rg_now_ns() + (uint64_t)(b->stuck_s * 1e9);
}

void rg_lines_go_on(rg_batches *b)
{
    if (b->stuck_s > 0)
        rg_log(RG_LOG_WARN, "serve: batches go on");
    b->stuck_s = 0;
    b->stuck_until_ns = 0;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Write the answer as a line of the output or error file. */
static void write_answer(rg_buf *out, const rg_slot *slot)
{
    const rg_active *a = rg_active_find(slot->b, slot->batch);
    const rg_line_answer answer = { .id = slot->id,
                                    .custom_id = slot->custom_id.data,
                                    .n_custom_id = slot->custom_id.n,
                                    .status = slot->status,
                                    .body = &slot->body,
                                    .anthropic = a && a->route && !strcmp(a->route->path, RG_MESSAGES) };

    rg_buf_init(out, (size_t)1 << 31);
    rg_line_write(out, &answer);
}

static bool keep_answer(rg_batches *b, const rg_slot *slot, rg_error *err)
{
    rg_buf line;
    rg_stored set;

    write_answer(&line, slot);
    if (line.failed) {
        rg_fail_memory(err, line.n);
        set = RG_STORE_FAILED;
    } else {
        set = rg_store_set_answer(b->st, slot->batch, slot->number,
                                  slot->status == 200 ? RG_LINE_COMPLETED : RG_LINE_FAILED, line.data, line.n, err);
    }
    rg_buf_fini(&line);
    return set != RG_STORE_FAILED;
}

static void set_state(rg_slot *slot, rg_slot_state state)
{
    pthread_mutex_lock(&slot->b->lock);
    slot->state = state;
    pthread_mutex_unlock(&slot->b->lock);
}

/* For each line that was answered decide: store the answer, or run the line again. */
static void sort_answered(rg_batches *b)
{
    for (int32_t i = 0; i < b->n_slots; i++) {
        rg_slot *slot = &b->slots[i];
        if (state_of(slot) != RG_SLOT_ANSWERED)
            continue;
        bool passing = slot->status && rg_line_is_passing(b->s, slot->status, slot->n_tries);
        if (!slot->status || (passing && !rg_server_takes_work(b->s))) {
            free_slot(b, slot, false); /* it was cancelled, or the server is ending */
        } else if (passing) {
            slot->again_ns = rg_now_ns() + rg_line_pause_ns(slot->n_tries);
            set_state(slot, RG_SLOT_WAITING);
        } else {
            set_state(slot, RG_SLOT_STORING);
        }
    }
}

/* Store the answers in one transaction.  False: the store failed, and the lines stay in their slots. */
static bool keep_answers(rg_batches *b, rg_error *err)
{
    bool any = false, ok = true;

    for (int32_t i = 0; i < b->n_slots; i++)
        any |= state_of(&b->slots[i]) == RG_SLOT_STORING;
    if (!any)
        return true;
    if (!rg_store_begin(b->st, err))
        return false;
    for (int32_t i = 0; ok && i < b->n_slots; i++)
        ok = state_of(&b->slots[i]) != RG_SLOT_STORING || keep_answer(b, &b->slots[i], err);
    if (!ok)
        rg_store_rollback(b->st);
    if (!ok || !rg_store_commit(b->st, err))
        return false;
    for (int32_t i = 0; i < b->n_slots; i++)
        if (state_of(&b->slots[i]) == RG_SLOT_STORING) {
            rg_count(b->s->first->metrics, b->slots[i].status == 200 ? RG_C_LINES_DONE : RG_C_LINES_FAILED, 1);
            free_slot(b, &b->slots[i], true);
        }
    rg_lines_go_on(b);
    return true;
}

/* ---- taking up lines --------------------------------------------------------------------------------------------- */

/* Where a line begins. */
typedef enum line_place {
    NOT_NOW,
    BEHIND,  /* behind all other requests */
    IN_TURN, /* in its turn among them */
} line_place;

/* Where a line may begin now: behind others one for each slot while no other request runs, one while some run.  While
 * some wait none does, but one in its turn after every RG_LINE_EVERY requests: who asks without end does not stop the
 * batches of others. */
static line_place may_begin(rg_batches *b)
{
    int32_t n_running = 0, n_in_turn = 0;

    for (int32_t i = 0; i < b->n_slots; i++)
        if (state_of(&b->slots[i]) == RG_SLOT_RUNNING) {
            n_running++;
            n_in_turn += b->slots[i].in_turn || b->slots[i].recalled;
        }
    if (!rg_server_takes_work(b->s))
        return NOT_NOW;
    if (rg_server_in_flight(b->s) <= n_running)
        return n_running < b->n_slots ? BEHIND : NOT_NOW;
    if (!rg_server_n_waiting(b->s))
        return n_running < 1 ? BEHIND : NOT_NOW;
    return !n_in_turn && b->s->n_calls - b->n_calls >= RG_LINE_EVERY ? IN_TURN : NOT_NOW;
}

/* A line that began behind others, and is stopped by those who came since, gives its slot back to begin in its turn.
 * False: there is none. */
static bool recall_one(rg_batches *b)
{
    for (int32_t i = 0; i < b->n_slots; i++) {
        rg_slot *slot = &b->slots[i];
        pthread_mutex_lock(&b->lock);
        bool is_behind = slot->state == RG_SLOT_RUNNING && slot->x && !slot->in_turn;
        if (is_behind)
            rg_exchange_leave(slot->x);
        pthread_mutex_unlock(&b->lock);
        slot->recalled |= is_behind;
        if (is_behind)
            return true;
    }
    return false;
}

/* The body of the request on a line, as text in *body.  False: *e, or nothing but *err if the store failed. */
static bool read_request(rg_batches *b, const rg_slot *slot, int64_t input, rg_buf *body, rg_refusal *e, rg_error *err)
{
    rg_buf text;
    rg_stored got;
    json_t *v = NULL;

    rg_buf_init(&text, (size_t)1 << 40);
    got = rg_store_read_range(b->st, input, slot->from, slot->n, &text, err);
    if (got == RG_STORE_DONE)
        v = rg_body_parse(text.data, text.n, err);
    rg_buf_fini(&text);
    if (got != RG_STORE_FAILED && (v || err->code != RG_E_MEMORY) && !rg_line_body(v, body, e) && !e->status)
        rg_fail_memory(err, slot->n > 0 ? (size_t)slot->n : 0);
    json_decref(v);
    return body->data != NULL;
}

/* Send the slot's line to its endpoint.  False: the store or the memory failed. */
static bool start_line(rg_batches *b, rg_slot *slot, const rg_active *a, line_place place, rg_error *err)
{
    rg_refusal e = { 0 };
    rg_buf body = { 0 };
    rg_inner_options o = { .id = slot->id, .done = land, .arg = slot };

    rg_json_watch(); /* what an earlier line lost is nothing to this one */
    rg_buf_init(&body, SIZE_MAX >> 1);
    if (!read_request(b, slot, a->input, &body, &e, err) && !e.status)
        return false;
    o.note = (rg_exchange_note){ .route = (int)(a->route - rg_routes),
                                 .since_ns = rg_now_ns(),
                                 .background = true,
                                 .in_turn = place == IN_TURN,
                                 .seed = rg_hash(a->id, strlen(a->id), (uint64_t)slot->number),
                                 .tenant = *a->owner ? find_owner(b, a->owner) : -1 };
    rg_exchange *x = rg_exchange_new(&o, &body);
    if (!x)
        return rg_fail_memory(err, body.n);
    slot->n_tries++;
    b->n_calls = b->s->n_calls;
    slot->in_turn = place == IN_TURN;
    slot->recalled = false;
    pthread_mutex_lock(&b->lock);
    slot->x = x;
    slot->state = RG_SLOT_RUNNING;
    pthread_mutex_unlock(&b->lock);
    if (e.status)
        rg_reply_refusal(b->s->first, x, &e);
    else
        rg_server_answer(b->s, x);
    rg_exchange_release(x);
    return true;
}

static bool is_taken(const rg_batches *b, int64_t batch, int64_t number)
{
    for (int32_t i = 0; i < b->n_slots; i++)
        if (b->slots[i].batch == batch && b->slots[i].number == number && state_of(&b->slots[i]) != RG_SLOT_FREE)
            return true;
    return false;
}

/* A batch's next line into a free slot.  NONE: there is none. */
static rg_stored take_line(rg_batches *b, rg_active *a, rg_slot *slot, rg_error *err)
{
    rg_line l;
    rg_stored got;

    do {
        got = rg_store_next_line(b->st, a->key, a->after, &l, err);
        if (got == RG_STORE_NONE)
            a->all_taken = true;
        if (got != RG_STORE_DONE)
            return got;
        a->after = l.number;
    } while (is_taken(b, a->key, l.number));
    rg_buf_init(&slot->custom_id, 1 << 16);
    if (!rg_buf_add(&slot->custom_id, l.custom_id, l.n_custom_id)) {
        a->after = l.number - 1;
        return rg_fail_memory(err, l.n_custom_id), RG_STORE_FAILED;
    }
    slot->batch = a->key;
    slot->number = l.number;
    slot->from = l.from;
    slot->n = l.n;
    slot->n_tries = 0;
    rg_line_name(slot->id, sizeof slot->id, a, l.number);
    a->n_slots++;
    set_state(slot, RG_SLOT_WAITING);
    return RG_STORE_DONE;
}

/* The next batch: the oldest one with lines left, of the owner who has waited longest. */
static rg_active *next_batch(rg_batches *b)
{
    rg_active *best = NULL;

    for (int32_t i = 0; i < b->n_active; i++) {
        rg_active *a = &b->active[i];
        if (a->state == RG_BATCH_IN_PROGRESS && !a->all_taken && a->route && find_owner(b, a->owner) >= 0 &&
            (!best || a->turn < best->turn))
            best = a;
    }
    return best;
}

static void give_turn(rg_batches *b, const char *owner)
{
    b->turn++;
    for (int32_t i = 0; i < b->n_active; i++)
        if (!strcmp(b->active[i].owner, owner))
            b->active[i].turn = b->turn;
}

/* Run lines that wait in their slots again, if it is time. */
static bool start_again(rg_batches *b, rg_error *err)
{
    for (int32_t i = 0; i < b->n_slots; i++) {
        rg_slot *slot = &b->slots[i];
        if (state_of(slot) != RG_SLOT_WAITING || (slot->n_tries && rg_now_ns() < slot->again_ns))
            continue;
        const line_place place = may_begin(b);
        if (place == NOT_NOW)
            return true;
        if (!start_line(b, slot, rg_active_find(b, slot->batch), place, err))
            return false;
    }
    return true;
}

/* False: the store failed. */
static bool take_up(rg_batches *b, rg_error *err)
{
    bool ok = (may_begin(b) == IN_TURN && recall_one(b)) || start_again(b, err);
    line_place place;

    for (int32_t i = 0; ok && i < b->n_slots && (place = may_begin(b)) != NOT_NOW;) {
        rg_slot *slot = &b->slots[i];
        rg_active *a = next_batch(b);
        if (!a)
            break;
        if (state_of(slot) != RG_SLOT_FREE) {
            i++;
            continue;
        }
        rg_stored got = take_line(b, a, slot, err);
        ok = got != RG_STORE_FAILED;
        if (got != RG_STORE_DONE)
            continue;
        give_turn(b, a->owner);
        ok = start_line(b, slot, a, place, err);
    }
    rg_store_rest(b->st);
    return ok;
}

/* ---- the turn ---------------------------------------------------------------------------------------------------- */

bool rg_lines_turn(rg_batches *b)
{
    rg_error err = { 0 };

    if (!rg_server_takes_work(b->s))
        rg_lines_recall(b, 0);
    sort_answered(b);
    if (rg_now_ns() < b->stuck_until_ns)
        return false;
    if (!rg_batches_load(b, &err) || !keep_answers(b, &err) || !rg_batches_advance(b, &err) || !take_up(b, &err)) {
        get_stuck(b, &err);
        return false;
    }
    bool wanting = false, room = false;
    int32_t n_running = 0;
    for (int32_t i = 0; i < b->n_slots; i++) {
        n_running += state_of(&b->slots[i]) == RG_SLOT_RUNNING;
        wanting |= state_of(&b->slots[i]) == RG_SLOT_WAITING;
        room |= state_of(&b->slots[i]) == RG_SLOT_FREE;
    }
    wanting |= room && next_batch(b);
    rg_gauge(b->s->first->metrics, RG_G_BATCHES, b->n_active);
    rg_gauge(b->s->first->metrics, RG_G_LINES, n_running);
    for (int32_t i = 0; i < b->n_active; i++)
        wanting |= b->active[i].all_taken && !b->active[i].n_slots; /* to be ended */
    return wanting;
}
