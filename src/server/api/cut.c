/* cut.c -- a conversation that is longer than the context, without its oldest turns; see rg_render_cut in core.h. */
#include <string.h>

#include "server/core.h"

static bool begins_turn(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));

    return role && !strcmp(role, "user");
}

static bool is_instruction(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));

    return role && !strcmp(role, "system");
}

/* A copy without the first n turns; what the system says stays. */
static json_t *without(const json_t *all, size_t n)
{
    json_t *out = json_deep_copy(all), *messages = json_object_get(out, "messages"), *m;
    json_t *kept = json_array();
    size_t i, turns = 0;

    json_array_foreach(messages, i, m)
    {
        turns += begins_turn(m);
        if (turns > n || is_instruction(m))
            json_array_append(kept, m);
    }
    if (!out || json_object_set_new(out, "messages", kept) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static size_t count_turns(const json_t *all)
{
    const json_t *messages = json_object_get(all, "messages");
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(messages); i++)
        n += begins_turn(json_array_get(messages, i));
    return n;
}

/* Render without the first n turns.  Rendering changes a conversation, so it works on a copy. */
static bool try_without(rg_served *s, rg_conversation *talk, const json_t *whole, size_t n, rg_rendered *r,
                        rg_refusal *e)
{
    json_t *copy = without(whole, n);

    if (!copy)
        return rg_refuse_memory(e);
    json_decref(talk->all);
    talk->all = copy;
    return rg_render(s, talk, true, r, e);
}

bool rg_render_cut(rg_served *s, rg_conversation *talk, size_t most, rg_rendered *r, rg_refusal *e)
{
    json_t *whole = json_incref(talk->all);
    size_t low = 0, high = count_turns(whole); /* without `low` turns it is too long, unless low is 0 */
    bool ok = try_without(s, talk, whole, 0, r, e);

    high = high ? high - 1 : 0; /* the last turn stays */
    if (ok && r->n > most && high) {
        while (ok && high - low > 1) {
            size_t middle = low + (high - low) / 2;
            rg_rendered_fini(r);
            ok = try_without(s, talk, whole, middle, r, e);
            if (ok && r->n > most)
                low = middle;
            else
                high = middle;
        }
        rg_rendered_fini(r);
        ok = ok && try_without(s, talk, whole, high, r, e);
        rg_conversation_warn(talk, "the oldest %zu turns were left out: the conversation is longer than the context",
                             high);
    }
    json_decref(whole);
    return ok;
}
