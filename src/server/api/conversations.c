/* conversations.c -- what clients ask of kept responses (/v1/responses/ID and what is below it), and of
 * conversations (/v1/conversations and their items). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/api/responses.h"

enum { MAX_PAGE = 100, USUAL_PAGE = 20, MAX_ITEMS = 1024, MAX_OUT = 1 << 28 };

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static const char *owner_of(const rg_served *s, rg_exchange *x)
{
    return rg_keys_owner(s->server->keys, rg_exchange_notes(x)->tenant);
}

static void reply_value(rg_served *s, rg_exchange *x, const json_t *v)
{
    rg_buf out;

    rg_buf_init(&out, MAX_OUT);
    rg_out_value(&out, NULL, v);
    rg_reply_json(s, x, &out);
}

static void refuse(rg_served *s, rg_exchange *x, int status, const char *code, const char *param, const char *text)
{
    rg_refusal e;

    rg_refuse(&e, status, code, param, "%s", text);
    rg_reply_refusal(s, x, &e);
}

static void refuse_unknown(rg_served *s, rg_exchange *x)
{
    refuse(s, x, 404, "not_found", NULL,
           "There is no such response, conversation or item: it was not stored, was "
           "deleted, or is too old.");
}

static void reply_deleted(rg_served *s, rg_exchange *x, const char *id, const char *object)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 12);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "id", id);
    rg_out_text(&out, "object", object);
    rg_out_bool(&out, "deleted", true);
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

/* A path below a prefix: an id, and what stands behind it: "", "items", or "items" and another id. */
typedef struct place {
    char id[RG_KEPT_ID], below[32], item[RG_KEPT_ID];
} place;

static bool take_part(const char **s, char *to, size_t room)
{
    size_t n = strcspn(*s, "/");

    if (n >= room)
        return false;
    memcpy(to, *s, n);
    to[n] = 0;
    *s += n + ((*s)[n] == '/');
    return true;
}

static bool read_place(place *p, rg_exchange *x, const char *prefix)
{
    const char *s = rg_exchange_path(x) + strlen(prefix);

    *p = (place){ { 0 }, { 0 }, { 0 } };
    return take_part(&s, p->id, sizeof p->id) && take_part(&s, p->below, sizeof p->below) &&
           take_part(&s, p->item, sizeof p->item) && !*s;
}

/* ---- lists of items ---------------------------------------------------------------------------------------------- */

/* limit of the query; false: it is not one. */
static bool read_limit(rg_exchange *x, long *limit)
{
    const char *given = rg_exchange_query(x, "limit");
    char *end;

    *limit = given ? strtol(given, &end, 10) : USUAL_PAGE;
    return !given || (*given && !*end && *limit >= 1 && *limit <= MAX_PAGE);
}

static void write_page(rg_buf *out, const json_t *items, bool rising, size_t from, long limit)
{
    size_t n = json_array_size(items), shown = 0;
    const json_t *first = NULL, *last = NULL;

    rg_out_open(out, NULL, '{');
    rg_out_text(out, "object", "list");
    rg_out_open(out, "data", '[');
    for (; shown < (size_t)limit && from + shown < n; shown++) {
        last = json_array_get(items, rising ? from + shown : n - 1 - from - shown);
        first = first ? first : last;
        rg_out_value(out, NULL, last);
    }
    rg_out_close(out, ']');
    rg_out_text(out, "first_id", text_of(first, "id"));
    rg_out_text(out, "last_id", text_of(last, "id"));
    rg_out_bool(out, "has_more", from + shown < n);
    rg_out_close(out, '}');
}

/* A page of these items, newest first unless the query's `order` is asc, after the one of `after`. */
static void reply_page(rg_served *s, rg_exchange *x, const json_t *items)
{
    const char *order = rg_exchange_query(x, "order"), *after = rg_exchange_query(x, "after");
    bool rising = order && !strcmp(order, "asc");
    size_t from = 0, n = json_array_size(items);
    rg_buf out;
    long limit;

    if (order && !rising && strcmp(order, "desc") != 0) {
        refuse(s, x, 400, "invalid_value", "order", "'order' must be asc or desc.");
        return;
    }
    if (!read_limit(x, &limit)) {
        refuse(s, x, 400, "invalid_value", "limit", "'limit' must be a number from 1 to 100.");
        return;
    }
    if (after && *after) {
        while (from < n && strcmp(text_of(json_array_get(items, rising ? from : n - 1 - from), "id"), after) != 0)
            from++;
        if (from == n) {
            refuse(s, x, 404, "not_found", "after", "There is no item with the id that 'after' names.");
            return;
        }
        from++;
    }
    rg_buf_init(&out, MAX_OUT);
    write_page(&out, items, rising, from, limit);
    rg_reply_json(s, x, &out);
}

/* ---- responses --------------------------------------------------------------------------------------------------- */

/* A response that was to be made in the background and is not any more has failed: the server ended meanwhile, or had
 * no memory to say how it went. */
static void end_abandoned(json_t *response)
{
    const char *status = text_of(response, "status");

    if (!json_is_true(json_object_get(response, "background")) || !status ||
        (strcmp(status, "queued") != 0 && strcmp(status, "in_progress") != 0))
        return;
    json_object_set_new(response, "status", json_string("failed"));
    json_object_set_new(response, "error",
                        json_pack("{s:s, s:s}", "code", "server_error", "message",
                                  "The server ended before this response was finished."));
}

/* The response that a path names, and what is kept with it; NULL: there is none. */
static json_t *load_response(rg_served *s, rg_exchange *x, const char *id)
{
    const bool runs = rg_background_runs(s, id); /* first: it may end, and is then kept as it ended */
    json_t *v = rg_kept_load(s, owner_of(s, x), id);

    if (!runs)
        end_abandoned(json_object_get(v, "response"));
    return v;
}

void rg_api_response(rg_served *s, rg_exchange *x)
{
    json_t *v = NULL, *all;
    place p;

    if (read_place(&p, x, "/v1/responses/"))
        v = load_response(s, x, p.id);
    if (!json_object_get(v, "response")) {
        refuse_unknown(s, x);
    } else if (!p.below[0]) {
        reply_value(s, x, json_object_get(v, "response"));
    } else if (!strcmp(p.below, "input_items") && !p.item[0]) {
        all = rg_kept_history(s, owner_of(s, x), text_of(v, "previous"));
        all = all ? all : json_array(); /* the earlier ones are gone */
        json_array_extend(all, json_object_get(v, "items"));
        reply_page(s, x, all);
        json_decref(all);
    } else {
        refuse_unknown(s, x);
    }
    json_decref(v);
}

void rg_api_response_delete(rg_served *s, rg_exchange *x)
{
    const char *owner = owner_of(s, x);
    json_t *v = NULL;
    place p;

    if (read_place(&p, x, "/v1/responses/") && !p.below[0])
        v = rg_kept_load(s, owner, p.id);
    if (json_object_get(v, "response") && rg_kept_remove(s->server->kept, owner, p.id))
        reply_deleted(s, x, p.id, "response");
    else
        refuse_unknown(s, x);
    json_decref(v);
}

void rg_api_response_cancel(rg_served *s, rg_exchange *x)
{
    json_t *v = NULL, *response;
    place p;

    if (read_place(&p, x, "/v1/responses/") && !strcmp(p.below, "cancel") && !p.item[0])
        v = load_response(s, x, p.id);
    response = json_object_get(v, "response");
    if (!response)
        refuse_unknown(s, x);
    else if (!json_is_true(json_object_get(response, "background")))
        refuse(s, x, 400, "invalid_value", NULL,
               "Only responses with 'background' can be cancelled: this one has "
               "ended, or ends when its client leaves.");
    else
        rg_background_cancel(s, x, p.id, response);
    json_decref(v);
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

static json_t *new_conversation(const char *id, json_t *metadata)
{
    bool none = !metadata || json_is_null(metadata);

    return json_pack("{s:{s:s, s:s, s:I, s:o}}", "conversation", "id", id, "object", "conversation", "created_at",
                     (json_int_t)rg_wall_s(), "metadata", none ? json_object() : json_incref(metadata));
}

/* The items of a body, with ids; NULL and *e. */
static json_t *read_items(const json_t *body, const char *id, rg_refusal *e)
{
    const json_t *given = json_object_get(body, "items");
    json_t *items;

    if (!json_is_array(given) || json_array_size(given) > MAX_ITEMS)
        return rg_refuse_field(e, "items", "'items' must be a list of at most %d items.", MAX_ITEMS), NULL;
    for (size_t i = 0; i < json_array_size(given); i++)
        if (!json_is_object(json_array_get(given, i)))
            return rg_refuse_field(e, "items", "'items[%zu]' must be an object.", i), NULL;
    items = rg_items_complete(given, id);
    if (!items)
        rg_refuse_memory(e);
    return items;
}

/* A new id, which begins with this word. */
static const char *new_id(char out[64], const char *word)
{
    snprintf(out, 64, "%s_%016llx%016llx", word, (unsigned long long)rg_seed(), (unsigned long long)rg_seed());
    return out;
}

/* Append items to a kept conversation. */
static bool append(rg_served *s, const char *owner, const char *id, const json_t *items, rg_refusal *e)
{
    char *text = rg_body_dump(items);
    rg_buf b;
    bool ok = text || rg_refuse_memory(e);

    rg_buf_init(&b, MAX_OUT);
    if (ok && json_array_size(items)) {
        rg_buf_str(&b, text);
        ok = (!b.failed && rg_conversation_append(s, owner, id, &b)) || rg_refuse_memory(e);
    }
    rg_buf_fini(&b);
    rg_free(text);
    return ok;
}

void rg_api_conversation_new(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    json_t *body = rg_read_object(x, &e), *items = NULL, *v = NULL;
    const json_t *given = json_object_get(body, "items");
    bool ok = body && rg_metadata_check(json_object_get(body, "metadata"), &e);
    char id[64];

    new_id(id, "conv");
    if (ok && given && !json_is_null(given))
        ok = (items = read_items(body, id, &e));
    if (ok) {
        v = new_conversation(id, json_object_get(body, "metadata"));
        ok = (v && rg_kept_store(s, owner_of(s, x), id, v)) || rg_refuse_memory(&e);
    }
    ok = ok && (!items || append(s, owner_of(s, x), id, items, &e));
    if (ok)
        reply_value(s, x, json_object_get(v, "conversation"));
    else
        rg_reply_refusal(s, x, &e);
    json_decref(v);
    json_decref(items);
    json_decref(body);
}

/* The conversation that the path names, and where in it; NULL: refused. */
static json_t *find_conversation(rg_served *s, rg_exchange *x, place *p)
{
    json_t *v = NULL;

    if (read_place(p, x, "/v1/conversations/") && (!p->below[0] || !strcmp(p->below, "items")))
        v = rg_kept_load(s, owner_of(s, x), p->id);
    if (json_object_get(v, "conversation"))
        return v;
    json_decref(v);
    refuse_unknown(s, x);
    return NULL;
}

void rg_api_conversation(rg_served *s, rg_exchange *x)
{
    place p;
    json_t *v = find_conversation(s, x, &p), *all;
    const json_t *item;

    if (!v)
        return;
    if (!p.below[0]) {
        reply_value(s, x, json_object_get(v, "conversation"));
        json_decref(v);
        return;
    }
    all = rg_kept_history(s, owner_of(s, x), text_of(v, "last"));
    item = p.item[0] ? rg_items_find(all, p.item) : NULL;
    if (item)
        reply_value(s, x, item);
    else if (p.item[0] || !all)
        refuse_unknown(s, x);
    else
        reply_page(s, x, all);
    json_decref(all);
    json_decref(v);
}

/* New metadata for a conversation. */
static void update(rg_served *s, rg_exchange *x, json_t *v, const char *id, const json_t *body)
{
    json_t *metadata = json_object_get(body, "metadata"), *conversation = json_object_get(v, "conversation");
    rg_refusal e = { 0 };

    if (!rg_metadata_check(metadata, &e)) {
        rg_reply_refusal(s, x, &e);
        return;
    }
    if (json_is_object(metadata))
        json_object_set(conversation, "metadata", metadata);
    rg_kept_hold(s->server->kept);
    json_t *now = rg_kept_load(s, owner_of(s, x), id);
    bool ok =
        now && json_object_set(now, "conversation", conversation) == 0 && rg_kept_store(s, owner_of(s, x), id, now);
    rg_kept_release(s->server->kept);
    json_decref(now);
    if (ok)
        reply_value(s, x, conversation);
    else
        refuse_unknown(s, x);
}

static void add_items(rg_served *s, rg_exchange *x, const char *id, const json_t *body)
{
    rg_refusal e = { 0 };
    char unique[64];
    json_t *items = read_items(body, new_id(unique, "item"), &e);
    rg_buf out;

    if (items && append(s, owner_of(s, x), id, items, &e)) {
        rg_buf_init(&out, MAX_OUT);
        write_page(&out, items, true, 0, MAX_ITEMS);
        rg_reply_json(s, x, &out);
    } else {
        rg_reply_refusal(s, x, &e);
    }
    json_decref(items);
}

void rg_api_conversation_change(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    json_t *body = rg_read_object(x, &e), *v;
    place p;

    if (!body) {
        rg_reply_refusal(s, x, &e);
        return;
    }
    v = find_conversation(s, x, &p);
    if (v && p.item[0])
        refuse_unknown(s, x);
    else if (v && p.below[0])
        add_items(s, x, p.id, body);
    else if (v)
        update(s, x, v, p.id, body);
    json_decref(v);
    json_decref(body);
}

/* Take an item out of the segment that has it.  False: none has. */
static bool remove_item(rg_served *s, const char *owner, const char *last, const char *item)
{
    char at[RG_KEPT_ID];
    bool found = false;

    snprintf(at, sizeof at, "%s", last ? last : "");
    while (at[0] && !found) {
        json_t *v = rg_kept_load(s, owner, at), *items = json_object_get(v, "items");
        const char *previous = text_of(v, "previous");
        size_t i;
        json_t *one;
        json_array_foreach(items, i, one) if (text_of(one, "id") && !strcmp(text_of(one, "id"), item))
        {
            json_array_remove(items, i);
            found = rg_kept_store(s, owner, at, v);
            break;
        }
        snprintf(at, sizeof at, "%s", previous ? previous : "");
        json_decref(v);
    }
    return found;
}

/* The conversation and its segments. */
static void remove_all(rg_served *s, const char *owner, const char *id, const char *last)
{
    char at[RG_KEPT_ID];

    snprintf(at, sizeof at, "%s", last ? last : "");
    while (at[0]) {
        json_t *v = rg_kept_load(s, owner, at);
        const char *previous = text_of(v, "previous");
        rg_kept_remove(s->server->kept, owner, at);
        snprintf(at, sizeof at, "%s", previous ? previous : "");
        json_decref(v);
    }
    rg_kept_remove(s->server->kept, owner, id);
}

void rg_api_conversation_delete(rg_served *s, rg_exchange *x)
{
    const char *owner = owner_of(s, x);
    place p;
    json_t *v = find_conversation(s, x, &p);

    if (!v)
        return;
    rg_kept_hold(s->server->kept);
    bool one = p.item[0] && remove_item(s, owner, text_of(v, "last"), p.item);
    if (!p.below[0])
        remove_all(s, owner, p.id, text_of(v, "last"));
    rg_kept_release(s->server->kept);
    if (one)
        reply_value(s, x, json_object_get(v, "conversation"));
    else if (!p.below[0])
        reply_deleted(s, x, p.id, "conversation.deleted");
    else
        refuse_unknown(s, x);
    json_decref(v);
}
