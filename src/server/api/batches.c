/* batches.c -- /v1/batches: many requests in a file, answered when there is time. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/api/fields.h"
#include "server/batch/batches.h"

enum { DAY_S = 24 * 3600, USUAL_BATCHES = 20, MOST_BATCHES = 100 };

static const char *const states[RG_N_BATCH_STATES] = {
    [RG_BATCH_VALIDATING] = "validating", [RG_BATCH_IN_PROGRESS] = "in_progress", [RG_BATCH_CANCELLING] = "cancelling",
    [RG_BATCH_COMPLETED] = "completed",   [RG_BATCH_FAILED] = "failed",           [RG_BATCH_EXPIRED] = "expired",
    [RG_BATCH_CANCELLED] = "cancelled",
};

static void write_time(rg_buf *out, const char *key, int64_t at)
{
    if (at)
        rg_out_int(out, key, at);
    else
        rg_out_null(out, key);
}

static void write_json(rg_buf *out, const char *key, const char *json)
{
    rg_out_raw(out, key, json ? json : "null", strlen(json ? json : "null"));
}

static void write_batch(rg_buf *out, const rg_batch_record *b)
{
    int64_t ended = b->since_s[RG_BATCH_COMPLETED] ? b->since_s[RG_BATCH_COMPLETED] : b->since_s[RG_BATCH_EXPIRED];

    rg_out_open(out, NULL, '{');
    rg_out_text(out, "id", b->id);
    rg_out_text(out, "object", "batch");
    rg_out_text(out, "endpoint", b->endpoint);
    write_json(out, "errors", b->errors);
    rg_out_text(out, "input_file_id", b->input_id);
    rg_out_text(out, "completion_window", "24h");
    rg_out_text(out, "status", states[b->state]);
    rg_out_text(out, "output_file_id", b->output_id[0] ? b->output_id : NULL);
    rg_out_text(out, "error_file_id", b->error_id[0] ? b->error_id : NULL);
    rg_out_int(out, "created_at", b->since_s[RG_BATCH_VALIDATING]);
    write_time(out, "in_progress_at", b->since_s[RG_BATCH_IN_PROGRESS]);
    rg_out_int(out, "expires_at", b->expires_at_s);
    write_time(out, "finalizing_at", ended); /* files are there at once: there is nothing to be put together */
    write_time(out, "completed_at", b->since_s[RG_BATCH_COMPLETED]);
    write_time(out, "failed_at", b->since_s[RG_BATCH_FAILED]);
    write_time(out, "expired_at", b->since_s[RG_BATCH_EXPIRED]);
    write_time(out, "cancelling_at", b->since_s[RG_BATCH_CANCELLING]);
    write_time(out, "cancelled_at", b->since_s[RG_BATCH_CANCELLED]);
    rg_out_open(out, "request_counts", '{');
    rg_out_int(out, "total", b->n_lines);
    rg_out_int(out, "completed", b->n_completed);
    rg_out_int(out, "failed", b->n_failed);
    rg_out_close(out, '}');
    write_json(out, "metadata", b->metadata);
    rg_out_close(out, '}');
}

static void reply_batch(rg_task *t, const rg_batch_record *b)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 22);
    write_batch(&out, b);
    rg_reply_json(t->served, t->x, &out);
}

static const rg_refusal unknown = {
    .status = 404, .code = "not_found", .param = "batch_id", .text = "There is no such batch."
};

/* ---- POST /v1/batches -------------------------------------------------------------------------------------------- */

static void keep_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b = { .endpoint = t->endpoint };
    const json_t *metadata = json_object_get(t->body, "metadata");
    char *text = json_is_object(metadata) ? rg_body_dump(metadata) : NULL;
    rg_error err = { 0 };
    rg_refusal no_file;
    rg_stored got = RG_STORE_FAILED;

    if (rg_batches_of(t->served->server->batches, t->owner) >= t->served->server->o.max_batches) {
        rg_refusal many;
        rg_refuse(&many, 429, "too_many_batches", NULL, "%d batches have not ended, and more are not taken.",
                  (int)t->served->server->o.max_batches);
        many.retry_after_s = 60;
        rg_reply_refusal(t->served, t->x, &many);
        rg_free(text);
        return;
    }
    b.metadata = text;
    snprintf(b.owner, sizeof b.owner, "%s", t->owner);
    memcpy(b.input_id, t->id, sizeof b.input_id);
    if (text || !json_is_object(metadata))
        got = rg_store_add_batch(st, &b, "batch", DAY_S, &err);
    else
        rg_fail_memory(&err, 0);
    rg_refuse_field(&no_file, "input_file_id", "There is no such file with the purpose batch.");
    if (got == RG_STORE_DONE)
        reply_batch(t, &b);
    else
        rg_task_fail(t, st, got, &no_file, &err);
    rg_free(text);
}

static bool read_batch(rg_task *t, rg_refusal *e)
{
    const char *input, *endpoint, *window;
    const rg_route *route;

    t->body = rg_read_object(t->x, e);
    if (!t->body)
        return false;
    input = json_string_value(json_object_get(t->body, "input_file_id"));
    endpoint = json_string_value(json_object_get(t->body, "endpoint"));
    window = json_string_value(json_object_get(t->body, "completion_window"));
    route = endpoint ? rg_batch_route(endpoint) : NULL;
    if (!input)
        return rg_refuse_field(e, "input_file_id", "'input_file_id' must be a file's id.");
    if (!route || !strcmp(route->path, RG_MESSAGES)) /* those are batches of Anthropic's */
        return rg_refuse_field(e, "endpoint",
                               "'endpoint' must be one of /v1/chat/completions, /v1/completions, "
                               "/v1/embeddings, /v1/responses.");
    if (!window || strcmp(window, "24h") != 0)
        return rg_refuse_field(e, "completion_window", "'completion_window' must be 24h.");
    const json_t *lasts = json_object_get(t->body, "output_expires_after");
    if (lasts && !json_is_null(lasts))
        return rg_refuse(e, 400, "unsupported_value", "output_expires_after",
                         "'output_expires_after' is not supported.");
    snprintf(t->id, sizeof t->id, "%s", input);
    t->endpoint = route->path;
    return rg_metadata_check(json_object_get(t->body, "metadata"), e);
}

void rg_api_batch_new(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_task *t = rg_task_new(s, x, keep_batch);

    if (t)
        rg_task_end_reading(t, read_batch(t, &e), &e);
}

/* ---- GET /v1/batches --------------------------------------------------------------------------------------------- */

static void list_one(void *arg, const rg_batch_record *b)
{
    rg_listing *l = arg;

    rg_listing_add(l, b->id);
    write_batch(&l->out, b);
}

static void list_batches(rg_task *t, rg_batch_store *st)
{
    rg_listing l;
    rg_error err = { 0 };

    rg_listing_open(&l);
    rg_listing_reply(&l, t, st, rg_store_batches(st, t->owner, &t->page, list_one, &l, &err), &err);
}

void rg_api_batches(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_task *t = rg_task_new(s, x, list_batches);

    if (t)
        rg_task_end_reading(t, rg_task_read_page(t, USUAL_BATCHES, MOST_BATCHES, &e), &e);
}

/* ---- one batch --------------------------------------------------------------------------------------------------- */

static void show_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b;
    rg_error err = { 0 };
    rg_stored got = rg_store_batch(st, t->owner, t->id, &b, &err);

    if (got == RG_STORE_DONE)
        reply_batch(t, &b);
    else
        rg_task_fail(t, st, got, &unknown, &err);
}

static void cancel_batch(rg_task *t, rg_batch_store *st)
{
    rg_batch_record b;
    rg_error err = { 0 };
    rg_refusal e;
    rg_stored got = rg_store_batch(st, t->owner, t->id, &b, &err);

    if (got == RG_STORE_DONE && b.state >= RG_BATCH_COMPLETED) {
        rg_refuse(&e, 409, "batch_ended", NULL, "The batch has ended already: it is %s.", states[b.state]);
        rg_reply_refusal(t->served, t->x, &e);
        return;
    }
    if (got == RG_STORE_DONE)
        got = rg_batches_cancel(t, b.key, &err);
    if (got == RG_STORE_FAILED)
        rg_task_fail(t, st, got, &unknown, &err);
    else
        show_batch(t, st);
}

/* The path is the prefix, an id, and `tail`. */
static void give(rg_served *s, rg_exchange *x, const char *tail, void (*run)(rg_task *t, rg_batch_store *st))
{
    rg_task *t = rg_task_new(s, x, run);

    if (t)
        rg_task_end_reading(t, rg_task_read_id(t, "/v1/batches/", tail), &unknown);
}

void rg_api_batch(rg_served *s, rg_exchange *x)
{
    give(s, x, "", show_batch);
}

void rg_api_batch_cancel(rg_served *s, rg_exchange *x)
{
    give(s, x, "/cancel", cancel_batch);
}
