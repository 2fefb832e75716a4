/* responses_kept.c -- what is kept of responses and conversations (kept.h), and histories made of it.
 *
 * A response is kept as {response, items, previous}: the object that the client got, the items of its own input, and
 * the id of what stands before them.  A conversation is {conversation, last}: its object, and the id of its last
 * segment, which is {items, previous}.  So every turn is kept once, and a history is the way back from one of them. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/api/responses.h"

enum { MAX_TURNS = 4096, MAX_KEPT = 1 << 28 };

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

json_t *rg_kept_load(rg_served *s, const char *owner, const char *id)
{
    size_t n = 0;
    char *text = rg_kept_get(s->server->kept, owner, id, &n);
    json_t *v = text ? rg_json_load(text, n, JSON_ALLOW_NUL, NULL) : NULL;

    rg_free(text);
    return v;
}

bool rg_kept_store(rg_served *s, const char *owner, const char *id, const json_t *v)
{
    char *text = v && !rg_json_lost() ? rg_body_dump(v) : NULL;
    bool ok = text && rg_kept_put(s->server->kept, owner, id, text, strlen(text));

    rg_free(text);
    return ok;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static bool is_message(const json_t *item)
{
    const char *type = text_of(item, "type");

    return !type || !strcmp(type, "message");
}

static const char *id_prefix(const json_t *item)
{
    const char *type = text_of(item, "type");
    const rg_tool_kind *k = type ? rg_tool_kind_of_call(type) : NULL;

    return is_message(item) ? "msg" : k ? k->id : !strcmp(type, "reasoning") ? "rs" : "item";
}

/* A message as the API shows it: with a type, a status, and its content as a list. */
static bool complete_message(json_t *m)
{
    const char *role = text_of(m, "role");
    bool assistant = role && !strcmp(role, "assistant");
    json_t *content = json_object_get(m, "content");

    json_object_set_new(m, "type", json_string("message"));
    json_object_set_new(m, "status", json_string("completed"));
    if (!json_is_string(content))
        return true;
    json_t *part = json_pack("{s:s, s:O}", "type", assistant ? "output_text" : "input_text", "text", content);
    if (part && assistant)
        json_object_set_new(part, "annotations", json_array());
    return part && json_object_set_new(m, "content", json_pack("[o]", part)) == 0;
}

json_t *rg_items_complete(const json_t *input, const char *call)
{
    const char *unique = strchr(call, '_') ? strchr(call, '_') + 1 : call;
    json_t *list =
        json_is_string(input) ? json_pack("[{s:s, s:O}]", "role", "user", "content", input) : json_deep_copy(input);

    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        const char *type = text_of(item, "type");
        char id[RG_KEPT_ID];
        if (!json_is_object(item) || (type && !strcmp(type, "item_reference")))
            continue;
        snprintf(id, sizeof id, "%s_%si%zu", id_prefix(item), unique, i);
        if (!text_of(item, "id"))
            json_object_set_new(item, "id", json_string(id));
        if (is_message(item) && !complete_message(item)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

const json_t *rg_items_find(const json_t *items, const char *id)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        const char *other = text_of(json_array_get(items, i), "id");
        if (other && !strcmp(other, id))
            return json_array_get(items, i);
    }
    return NULL;
}

/* The item that a reference names: ids begin with a word and the id of the response that has them. */
static json_t *referred(const rg_conversation *talk, const json_t *reference)
{
    const char *id = text_of(reference, "id"), *at = id ? strchr(id, '_') : NULL;
    char response[64];
    const json_t *found;
    json_t *v;

    if (!at || strlen(at) < 33)
        return NULL;
    snprintf(response, sizeof response, "resp_%.32s", at + 1);
    v = rg_kept_load(talk->served, talk->owner, response);
    found = rg_items_find(json_object_get(json_object_get(v, "response"), "output"), id);
    found = found ? found : rg_items_find(json_object_get(v, "items"), id);
    json_t *item = found ? json_incref((json_t *)(uintptr_t)found) : NULL;
    json_decref(v);
    return item;
}

/* Put what references name in their place; one that names nothing is left for the reader, which warns. */
static void resolve(rg_conversation *talk, json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        const char *type = text_of(json_array_get(items, i), "type");
        json_t *item = type && !strcmp(type, "item_reference") ? referred(talk, json_array_get(items, i)) : NULL;
        if (item)
            json_array_set_new(items, i, item);
    }
}

/* ---- the way back ------------------------------------------------------------------------------------------------ */

json_t *rg_kept_history(rg_served *s, const char *owner, const char *last)
{
    json_t *turns = json_array(), *all = json_array(), *v;
    const char *at = last;
    bool ok = true;

    while (ok && at && *at && json_array_size(turns) < MAX_TURNS) {
        v = rg_kept_load(s, owner, at);
        ok = v && json_array_append_new(turns, v) == 0;
        at = text_of(v, "previous");
    }
    ok = ok && !(at && *at);
    for (size_t i = json_array_size(turns); ok && i-- > 0;) {
        v = json_array_get(turns, i);
        json_array_extend(all, json_object_get(v, "items"));
        json_array_extend(all, json_object_get(json_object_get(v, "response"), "output"));
    }
    json_decref(turns);
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static bool read_previous(rg_conversation *talk, const char *id, json_t **history, rg_refusal *e)
{
    *history = rg_kept_history(talk->served, talk->owner, id);
    talk->previous = json_string(id);
    return *history || rg_refuse(e, 400, "previous_response_not_found", "previous_response_id",
                                 "The previous response, or one before it, is not here: it was not stored, was "
                                 "deleted, or is too old.");
}

static bool read_kept_conversation(rg_conversation *talk, const json_t *given, json_t **history, rg_refusal *e)
{
    const char *id = json_is_string(given) ? json_string_value(given) : text_of(given, "id");
    json_t *v;

    if (!id)
        return rg_refuse_field(e, "conversation", "'conversation' must be an id, or an object with one.");
    v = rg_kept_load(talk->served, talk->owner, id);
    if (!json_object_get(v, "conversation")) {
        json_decref(v);
        return rg_refuse(e, 400, "conversation_not_found", "conversation", "There is no such conversation.");
    }
    *history = rg_kept_history(talk->served, talk->owner, text_of(v, "last"));
    talk->conversation = json_string(id);
    json_decref(v);
    return *history || rg_refuse(e, 400, "conversation_not_found", "conversation",
                                 "A part of this conversation is not here any more.");
}

json_t *rg_items_with_history(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    const char *previous = text_of(body, "previous_response_id");
    const json_t *conversation = json_object_get(body, "conversation"), *input = json_object_get(body, "input");
    bool given = conversation && !json_is_null(conversation), ok = true;
    json_t *history = NULL, *all;

    if (!json_is_string(input) && !json_is_array(input))
        return rg_refuse_field(e, "input", "'input' must be a string or a list of items."), NULL;
    if (previous && given)
        return rg_refuse_field(e, "conversation", "'conversation' and 'previous_response_id' cannot both be given."),
               NULL;
    if (previous && *previous)
        ok = read_previous(talk, previous, &history, e);
    else if (given)
        ok = read_kept_conversation(talk, conversation, &history, e);
    talk->items = ok ? rg_items_complete(input, talk->id ? talk->id : "") : NULL;
    all = talk->items ? (history ? history : json_array()) : NULL;
    if (!all) {
        json_decref(history);
        return e->status ? NULL : (rg_refuse_memory(e), NULL);
    }
    resolve(talk, talk->items);
    talk->n_history = json_array_size(all);
    json_array_extend(all, talk->items);
    return all;
}

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

bool rg_conversation_append(rg_served *s, const char *owner, const char *id, const rg_buf *items)
{
    json_t *v;
    char segment[64];
    rg_buf b;
    bool ok;

    rg_kept_hold(s->server->kept);
    v = rg_kept_load(s, owner, id);
    ok = json_object_get(v, "conversation");
    snprintf(segment, sizeof segment, "part_%016llx%016llx", (unsigned long long)rg_seed(),
             (unsigned long long)rg_seed());
    rg_buf_init(&b, MAX_KEPT);
    if (ok) {
        rg_out_open(&b, NULL, '{');
        rg_out_raw(&b, "items", items->data, items->n);
        rg_out_text(&b, "previous", text_of(v, "last"));
        rg_out_close(&b, '}');
        ok = !b.failed && rg_kept_put(s->server->kept, owner, segment, b.data, b.n) &&
             json_object_set_new(v, "last", json_string(segment)) == 0 && rg_kept_store(s, owner, id, v);
    }
    if (b.failed)
        rg_json_lose();
    rg_kept_release(s->server->kept);
    rg_buf_fini(&b);
    json_decref(v);
    return ok;
}

/* The items of the request and of the answer, as one list. */
static void write_turn(rg_buf *b, const rg_call *c)
{
    rg_buf output;

    rg_buf_init(&output, MAX_KEPT);
    rg_response_output(&output, c, NULL);
    rg_buf_add(b, c->items, strlen(c->items) - 1); /* without its bracket */
    rg_buf_str(b, strlen(c->items) > 2 && output.n > 2 ? "," : "");
    rg_buf_add(b, output.data + 1, output.n - 1);
    b->failed |= output.failed;
    rg_buf_fini(&output);
}

void rg_response_keep(rg_call *c, bool done, const rg_refusal *e)
{
    const char *owner = rg_keys_owner(c->served->server->keys, rg_exchange_notes(c->x)->tenant);
    rg_buf b;

    if (!c->items)
        return;
    rg_buf_init(&b, MAX_KEPT);
    if (c->conversation && done && !e) {
        write_turn(&b, c);
        if (b.failed)
            rg_json_lose();
        else if (!rg_json_lost())
            rg_conversation_append(c->served, owner, json_string_value(c->conversation), &b);
        rg_buf_reset(&b);
    }
    if (c->f.store) {
        rg_out_open(&b, NULL, '{');
        rg_response_write(&b, c, "response", done, e);
        rg_out_raw(&b, "items", c->items, strlen(c->items));
        rg_out_value(&b, "previous", c->previous);
        rg_out_close(&b, '}');
        if (b.failed)
            rg_json_lose();
        else if (!rg_json_lost())
            rg_kept_put(c->served->server->kept, owner, c->id, b.data, b.n);
    }
    rg_buf_fini(&b);
}
