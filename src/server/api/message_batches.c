/* message_batches.c -- /v1/messages/batches: batches as Anthropic has them, whose requests come within the body and
 * whose answers are read as one list of results.
 *
 * The requests become a file of lines as OpenAI's batches have it (batches.h), so that there is one way in which
 * batches run. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/batch/batches.h"

enum { DAY_S = 24 * 3600, USUAL_BATCHES = 20, MOST_BATCHES = 1000, MAX_REQUESTS = 50000, MAX_CUSTOM_ID = 64 };

static const char purpose[] = "message_batch", prefix[] = "/v1/messages/batches/";

static const rg_refusal unknown = { .status = 404, .code = "not_found", .text = "There is no such batch." };

/* ---- the object -------------------------------------------------------------------------------------------------- */

static bool has_ended(const rg_batch_record *b)
{
    return b->state >= RG_BATCH_COMPLETED;
}

static int64_t ended_s(const rg_batch_record *b)
{
    int64_t s = 0;

    for (int i = RG_BATCH_COMPLETED; i < RG_N_BATCH_STATES; i++)
        s = b->since_s[i] > s ? b->since_s[i] : s;
    return s;
}

static void write_time(rg_buf *out, const char *key, int64_t at)
{
    if (at)
        rg_out_time(out, key, at);
    else
        rg_out_null(out, key);
}

/* Counted only when all is over, as Anthropic has it. */
static void write_counts(rg_buf *out, const rg_batch_record *b)
{
    bool over = has_ended(b);
    int64_t left = b->n_lines - b->n_completed - b->n_failed;

    rg_out_open(out, "request_counts", '{');
    rg_out_int(out, "processing", over ? 0 : b->n_lines);
    rg_out_int(out, "succeeded", over ? b->n_completed : 0);
    rg_out_int(out, "errored", over ? b->n_failed : 0);
    rg_out_int(out, "canceled", b->state == RG_BATCH_CANCELLED ? left : 0);
    rg_out_int(out, "expired", b->state == RG_BATCH_EXPIRED ? left : 0);
    rg_out_close(out, '}');
}

static void write_batch(rg_buf *out, const rg_batch_record *b, const rg_served *s)
{
    const char *status = has_ended(b) ? "ended" : b->state == RG_BATCH_CANCELLING ? "canceling" : "in_progress";
    char url[400];

    rg_out_open(out, NULL, '{');
    rg_out_text(out, "id", b->id);
    rg_out_text(out, "type", "message_batch");
    rg_out_text(out, "processing_status", status);
    write_counts(out, b);
    rg_out_time(out, "created_at", b->since_s[RG_BATCH_VALIDATING]);
    rg_out_time(out, "expires_at", b->expires_at_s);
    write_time(out, "ended_at", ended_s(b));
    write_time(out, "cancel_initiated_at", b->since_s[RG_BATCH_CANCELLING]);
    rg_out_null(out, "archived_at");
    snprintf(url, sizeof url, "%.300s%s%s/results", rg_server_url(s->server), prefix, b->id);
    rg_out_text(out, "results_url", has_ended(b) ? url : NULL);
    rg_out_close(out, '}');
}

static void reply_batch(rg_task *t, const rg_batch_record *b)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 16);
    write_batch(&out, b, t->served);
    rg_reply_json(t->served, t->x, &out);
}

/* ---- POST -------------------------------------------------------------------------------------------------------- */

static bool is_custom_id(const json_t *v)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);

    return s && n && n <= MAX_CUSTOM_ID && strspn(s, letters) == n;
}

/* Every request has an id of its own and an object; other members are its endpoint's to check. */
static bool check_requests(const json_t *list, rg_refusal *e)
{
    size_t n = json_array_size(list);
    rg_dict *seen;
    bool ok = true;

    if (!n || n > MAX_REQUESTS)
        return rg_refuse_field(e, "requests", "'requests' must be a list of 1 to %d requests.", MAX_REQUESTS);
    seen = rg_dict_new(n);
    if (!seen)
        return rg_refuse_memory(e);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *r = json_array_get(list, i), *id = json_object_get(r, "custom_id");
        if (!is_custom_id(id))
            ok = rg_refuse_field(e, "requests", "'requests[%zu].custom_id' must have 1 to 64 letters, digits, _ or -.",
                                 i);
        else if (!json_is_object(json_object_get(r, "params")))
            ok = rg_refuse_field(e, "requests", "'requests[%zu].params' must be an object.", i);
        else if (rg_dict_get(seen, json_string_value(id), json_string_length(id)) >= 0)
            ok = rg_refuse_field(e, "requests", "'requests[%zu].custom_id' is that of an earlier request.", i);
        else
            ok = rg_dict_put(seen, json_string_value(id), json_string_length(id), 1) || rg_refuse_memory(e);
    }
    rg_dict_free(seen);
    return ok;
}

static void write_line(rg_buf *out, const json_t *request)
{
    json_t *params = json_copy(json_object_get(request, "params"));

    json_object_del(params, "stream"); /* a result is a whole message */
    rg_out_open(out, NULL, '{');
    rg_out_value(out, "custom_id", json_object_get(request, "custom_id"));
    rg_out_text(out, "method", "POST");
    rg_out_text(out, "url", RG_MESSAGES);
    rg_out_value(out, "body", params);
    rg_buf_str(out, "}\n");
    json_decref(params);
}

/* The requests as a file, and the batch over it, in one transaction. */
static rg_stored add(rg_task *t, rg_batch_store *st, rg_batch_record *b, rg_error *err)
{
    const json_t *list = json_object_get(t->body, "requests");
    rg_file_record f = { .name = "requests.jsonl", .n_name = strlen("requests.jsonl"), .purpose = purpose };
    rg_stored got;
    rg_buf lines;

    rg_buf_init(&lines, (size_t)1 << 31);
    for (size_t i = 0; i < json_array_size(list); i++)
        write_line(&lines, json_array_get(list, i));
    if (lines.failed || rg_json_lost()) {
        rg_buf_fini(&lines);
        return rg_fail_memory(err, 0), RG_STORE_FAILED;
    }
    if (!rg_store_begin(st, err)) {
        rg_buf_fini(&lines);
        return RG_STORE_FAILED;
    }
    got = rg_store_add_file(st, t->owner, &f, lines.data, lines.n, err);
    rg_buf_fini(&lines);
    if (got == RG_STORE_DONE) {
        memcpy(b->input_id, f.id, sizeof b->input_id);
        got = rg_store_add_batch(st, b, purpose, DAY_S, err);
    }
    if (got == RG_STORE_DONE)
        return rg_store_commit(st, err) ? got : RG_STORE_FAILED;
    rg_store_rollback(st);
    return got;
}

static void keep_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b = { .endpoint = RG_MESSAGES };
    rg_error err = { 0 };
    rg_stored got;

    if (rg_batches_of(t->served->server->batches, t->owner) >= t->served->server->o.max_batches) {
        rg_refusal many;
        rg_refuse(&many, 429, "too_many_batches", NULL, "%d batches have not ended, and more are not taken.",
                  (int)t->served->server->o.max_batches);
        many.retry_after_s = 60;
        rg_reply_refusal(t->served, t->x, &many);
        return;
    }
    snprintf(b.owner, sizeof b.owner, "%s", t->owner);
    got = add(t, st, &b, &err);
    b.n_lines = (int64_t)json_array_size(json_object_get(t->body, "requests"));
    if (got == RG_STORE_DONE)
        reply_batch(t, &b);
    else
        rg_task_fail(t, st, got, &unknown, &err);
}

void rg_api_message_batch_new(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_task *t = rg_task_new(s, x, keep_batch);

    if (!t)
        return;
    t->body = rg_read_object(x, &e);
    rg_task_end_reading(t, t->body && check_requests(json_object_get(t->body, "requests"), &e), &e);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

typedef struct listing {
    rg_listing l;
    const rg_served *s;
} listing;

static void list_one(void *arg, const rg_batch_record *b)
{
    listing *list = arg;

    rg_listing_add(&list->l, b->id);
    write_batch(&list->l.out, b, list->s);
}

static void list_batches(rg_task *t, rg_batch_store *st)
{
    listing list = { .s = t->served };
    rg_error err = { 0 };

    rg_listing_open(&list.l);
    rg_listing_reply(&list.l, t, st, rg_store_batches(st, t->owner, &t->page, list_one, &list, &err), &err);
}

void rg_api_message_batches(rg_served *s, rg_exchange *x)
{
    const char *after = rg_exchange_query(x, "after_id"), *before = rg_exchange_query(x, "before_id");
    rg_task *t = rg_task_new(s, x, list_batches);
    rg_refusal e = { 0 };

    if (!t)
        return;
    bool ok = rg_task_read_page(t, USUAL_BATCHES, MOST_BATCHES, &e);
    t->page.purpose = RG_MESSAGES;
    t->page.rising = before && *before; /* newer ones, from that one on */
    snprintf(t->page.after, sizeof t->page.after, "%s", before && *before ? before : after ? after : "");
    rg_task_end_reading(t, ok, &e);
}

/* ---- one batch --------------------------------------------------------------------------------------------------- */

/* The batch of the task, if it is one of messages. */
static rg_stored find(rg_task *t, rg_batch_store *st, rg_batch_record *b, rg_error *err)
{
    rg_stored got = rg_store_batch(st, t->owner, t->id, b, err);

    return got == RG_STORE_DONE && strcmp(b->endpoint, RG_MESSAGES) != 0 ? RG_STORE_NONE : got;
}

static void show_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b;
    rg_error err = { 0 };
    rg_stored got = find(t, st, &b, &err);

    if (got == RG_STORE_DONE)
        reply_batch(t, &b);
    else
        rg_task_fail(t, st, got, &unknown, &err);
}

static void refuse_unended(rg_task *t)
{
    rg_refusal e;

    rg_refuse(&e, 400, "batch_not_ended", NULL, "The batch has not ended: wait for it, or cancel it.");
    rg_reply_refusal(t->served, t->x, &e);
}

static void send_results(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b;
    rg_error err = { 0 };
    rg_stored got = find(t, st, &b, &err);

    if (got != RG_STORE_DONE)
        rg_task_fail(t, st, got, &unknown, &err);
    else if (!has_ended(&b))
        refuse_unended(t);
    else
        rg_batches_send(t, &(rg_file_record){ .batch = b.key });
}

static void cancel_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b;
    rg_error err = { 0 };
    rg_stored got = find(t, st, &b, &err);

    if (got == RG_STORE_DONE && !has_ended(&b))
        got = rg_batches_cancel(t, b.key, &err);
    if (got == RG_STORE_FAILED)
        rg_task_fail(t, st, got, &unknown, &err);
    else
        show_batch(t, st);
}

static void delete_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b;
    rg_error err = { 0 };
    rg_stored got = find(t, st, &b, &err);
    rg_buf out;

    if (got == RG_STORE_DONE) {
        rg_store_rest(st);
        got = rg_store_remove_batch(st, t->owner, t->id, &err);
    }
    if (got == RG_STORE_IN_USE) {
        refuse_unended(t);
    } else if (got != RG_STORE_DONE) {
        rg_task_fail(t, st, got, &unknown, &err);
    } else {
        rg_buf_init(&out, 1 << 12);
        rg_out_open(&out, NULL, '{');
        rg_out_text(&out, "id", t->id);
        rg_out_text(&out, "type", "message_batch_deleted");
        rg_out_close(&out, '}');
        rg_reply_json(t->served, t->x, &out);
    }
}

static void give(rg_served *s, rg_exchange *x, const char *tail, void (*run)(rg_task *t, rg_batch_store *st))
{
    rg_task *t = rg_task_new(s, x, run);

    if (t)
        rg_task_end_reading(t, rg_task_read_id(t, prefix, tail), &unknown);
}

void rg_api_message_batch(rg_served *s, rg_exchange *x)
{
    rg_task *t = rg_task_new(s, x, show_batch);

    if (!t)
        return;
    bool results = rg_task_read_id(t, prefix, "/results");
    if (results)
        t->run = send_results;
    rg_task_end_reading(t, results || rg_task_read_id(t, prefix, ""), &unknown);
}

void rg_api_message_batch_cancel(rg_served *s, rg_exchange *x)
{
    give(s, x, "/cancel", cancel_batch);
}

void rg_api_message_batch_delete(rg_served *s, rg_exchange *x)
{
    give(s, x, "", delete_batch);
}
