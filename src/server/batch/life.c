/* life.c -- a batch's states from its check to its end; its lines are in lines.c. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/batch/inner.h"

const rg_route *rg_batch_route(const char *endpoint)
{
    static const char *const endpoints[] = { "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                             "/v1/responses", RG_MESSAGES };

    for (size_t i = 0; i < RG_LEN(endpoints); i++)
        for (int k = 0; !strcmp(endpoint, endpoints[i]) && k < rg_n_routes; k++)
            if (!strcmp(rg_routes[k].path, endpoint) && !strcmp(rg_routes[k].method, "POST"))
                return &rg_routes[k];
    return NULL;
}

/* Take up batches that are new since the last call; at first, those that the last process left. */
bool rg_batches_load(rg_batches *b, rg_error *err)
{
    rg_batch_record r;
    rg_stored got;

    while ((got = rg_store_unended(b->st, b->last_key, &r, err)) == RG_STORE_DONE) {
        if (b->n_active == b->active_room) {
            int32_t room = b->active_room ? 2 * b->active_room : 16;
            rg_active *more = rg_resize_array(b->active, (size_t)room, sizeof *more);
            if (!more)
                return rg_fail_memory(err, (size_t)room * sizeof *more);
            b->active = more;
            b->active_room = room;
        }
        rg_active *a = &b->active[b->n_active++];
        *a = (rg_active){ .key = r.key,
                          .input = r.input,
                          .expires_s = r.expires_s,
                          .state = r.state,
                          .route = rg_batch_route(r.endpoint) };
        memcpy(a->id, r.id, sizeof a->id);
        memcpy(a->owner, r.owner, sizeof a->owner);
        b->last_key = r.key;
    }
    rg_store_rest(b->st);
    return got == RG_STORE_NONE;
}

static bool check_batch(rg_batches *b, rg_active *a, rg_error *err)
{
    rg_batch_record r = { .key = a->key, .input = a->input, .endpoint = a->route ? a->route->path : "" };
    rg_buf errors;
    int64_t n_lines;
    bool ok = rg_store_begin(b->st, err);

    if (!ok)
        return false;
    rg_buf_init(&errors, 1 << 20);
    ok = rg_batch_check(b->st, &r, &n_lines, &errors, err) == RG_STORE_DONE;
    bool valid = !errors.n;
    if (!ok || !valid)
        rg_store_rollback(b->st);
    if (ok && !valid) /* none of its lines is kept */
        ok = rg_store_fail_batch(b->st, a->key, errors.data, err) != RG_STORE_FAILED;
    else if (ok)
        ok = rg_store_start_batch(b->st, a->key, n_lines, err) != RG_STORE_FAILED ? rg_store_commit(b->st, err)
                                                                                  : (rg_store_rollback(b->st), false);
    rg_buf_fini(&errors);
    if (ok)
        a->state = valid ? RG_BATCH_IN_PROGRESS : RG_BATCH_FAILED;
    return ok;
}

void rg_line_name(char *out, size_t room, const rg_active *a, int64_t number)
{
    snprintf(out, room, "batch_req_%s_%lld", strchr(a->id, '_') + 1, (long long)number);
}

/* The batch has expired: lines that did not run get an error that says so. */
static bool expire_lines(rg_batches *b, const rg_active *a, rg_error *err)
{
    char id[RG_ID_ROOM + 32];
    rg_stored got;
    rg_line l = { 0 };

    if (a->route && !strcmp(a->route->path, RG_MESSAGES)) /* the store says so when they end */
        return true;
    while ((got = rg_store_next_line(b->st, a->key, l.number, &l, err)) == RG_STORE_DONE) {
        rg_buf out;
        rg_buf_init(&out, 1 << 16);
        rg_line_name(id, sizeof id, a, l.number);
        rg_out_open(&out, NULL, '{');
        rg_out_text(&out, "id", id);
        rg_out_string(&out, "custom_id", l.custom_id, l.n_custom_id);
        rg_out_null(&out, "response");
        rg_out_open(&out, "error", '{');
        rg_out_text(&out, "code", "batch_expired");
        rg_out_text(&out, "message", "The batch's time was over before this request could run.");
        rg_buf_str(&out, "}}\n");
        bool ok = out.failed ? rg_fail_memory(err, out.n)
                             : rg_store_set_answer(b->st, a->key, l.number, RG_LINE_FAILED, out.data, out.n, err) ==
                                   RG_STORE_DONE;
        rg_buf_fini(&out);
        if (!ok)
            return false;
    }
    return got == RG_STORE_NONE;
}

static bool end_batch(rg_batches *b, rg_active *a, rg_batch_state state, rg_error *err)
{
    if (!rg_store_begin(b->st, err))
        return false;
    if ((state == RG_BATCH_EXPIRED && !expire_lines(b, a, err)) ||
        rg_store_end_batch(b->st, a->key, state, err) == RG_STORE_FAILED) {
        rg_store_rollback(b->st);
        return false;
    }
    if (!rg_store_commit(b->st, err))
        return false;
    a->state = state;
    return true;
}

/* Do what is due for a batch, apart from its lines.  False: the store failed. */
static bool advance(rg_batches *b, rg_active *a, rg_error *err)
{
    bool late = a->state != RG_BATCH_CANCELLING && rg_store_now(b->st) >= a->expires_s;
    bool ok = true;

    if (late || a->state == RG_BATCH_CANCELLING) {
        rg_lines_recall(b, a->key);
        ok = a->n_slots || end_batch(b, a, late ? RG_BATCH_EXPIRED : RG_BATCH_CANCELLED, err);
    } else if (a->state == RG_BATCH_VALIDATING) {
        ok = check_batch(b, a, err);
    } else if (a->all_taken && !a->n_slots) {
        ok = end_batch(b, a, RG_BATCH_COMPLETED, err);
    } else {
        return true;
    }
    if (ok && b->stuck_s > 0)
        rg_lines_go_on(b);
    return ok;
}

rg_stored rg_batches_cancel(rg_task *t, int64_t batch, rg_error *err)
{
    rg_batches *b = t->served->server->batches;
    rg_active *a = rg_active_find(b, batch);
    rg_stored done = rg_store_cancel_batch(b->st, batch, err);

    if (done == RG_STORE_DONE && a) {
        a->state = RG_BATCH_CANCELLING;
        rg_lines_recall(b, batch);
    }
    return done;
}

bool rg_batches_advance(rg_batches *b, rg_error *err)
{
    const double tick_s = 10;
    uint64_t now = rg_now_ns();
    bool ok = true;

    if (b->n_active && rg_seconds(b->ticked_ns, now) >= tick_s) {
        ok = rg_store_tick(b->st, err) == RG_STORE_DONE;
        b->ticked_ns = now;
    }

    for (int32_t i = 0; ok && i < b->n_active;) {
        rg_active *a = &b->active[i];
        ok = advance(b, a, err);
        if (a->state < RG_BATCH_COMPLETED) {
            i++;
            continue;
        }
        memmove(a, a + 1, (size_t)(b->n_active - i - 1) * sizeof *a);
        b->n_active--;
    }
    rg_store_rest(b->st);
    return ok;
}

int32_t rg_batches_of(const rg_batches *b, const char *owner)
{
    int32_t n = 0;

    for (int32_t i = 0; i < b->n_active; i++)
        n += !strcmp(b->active[i].owner, owner);
    return n;
}
