/* dict.c -- dictionaries: entries in the order they were put, found by a seeded hash, so that no input is slow. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "text/jinja/internal.h"

enum { SMALL = 8 };

bool jj_hash(jj_ctx *c, jj_value v, uint64_t *out)
{
    int64_t i = v.type == JJ_BOOL ? v.b : v.type == JJ_INT ? v.i : 0;
    uint64_t part;

    switch (v.type) {
    case JJ_STR:
        *out = rg_hash(jj_data(v.s), v.s->n, c->seed);
        return jj_charge(c, v.s->n / 4);
    case JJ_FLOAT: /* a whole float is the same key as the int */
        if (v.f == floor(v.f) && fabs(v.f) < 9e18)
            i = (int64_t)v.f;
        else
            return *out = rg_hash(&v.f, sizeof v.f, c->seed), true;
        /* fall through */
    case JJ_BOOL: case JJ_INT:
        *out = rg_hash(&i, sizeof i, c->seed);
        return true;
    case JJ_TUPLE:
        *out = c->seed;
        if (!jj_enter(c))
            return false;
        for (size_t k = 0; k < v.list->n; k++) {
            if (!jj_step(c, 1) || !jj_hash(c, v.list->item[k], &part))
                return jj_leave(c), false;
            part ^= *out * 0x9e3779b97f4a7c15u;
            *out = rg_hash(&part, sizeof part, c->seed);
        }
        jj_leave(c);
        return true;
    case JJ_LIST: case JJ_DICT: case JJ_SLICE: case JJ_VIEW:
        return false;
    case JJ_UNDEFINED: case JJ_NONE:
        *out = c->seed ^ v.type;
        return true;
    default:
        *out = rg_hash(&v.list, sizeof v.list, c->seed);
        return true;
    }
}

bool jj_new_dict(jj_ctx *c, jj_value *out, bool foreign)
{
    jj_dict *d = jj_alloc(c, sizeof *d);

    if (d)
        *d = (jj_dict){ 0 };
    *out = (jj_value){ .type = JJ_DICT, .foreign = foreign, .dict = d };
    return d;
}

/* The entry with this key; n: none. */
static bool look(jj_ctx *c, const jj_dict *d, jj_value key, uint64_t hash, size_t *at)
{
    bool same = false;

    *at = d->n;
    if (!d->slot) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->entry[i].hash != hash)
                continue;
            if (!jj_equal(c, d->entry[i].key, key, &same))
                return false;
            if (same)
                return *at = i, true;
        }
        return true;
    }
    for (size_t i = hash & (d->n_slots - 1); d->slot[i]; i = (i + 1) & (d->n_slots - 1)) {
        const jj_entry *e = &d->entry[d->slot[i] - 1];
        if (e->hash != hash)
            continue;
        if (!jj_equal(c, e->key, key, &same))
            return false;
        if (same)
            return *at = d->slot[i] - 1, true;
    }
    return true;
}

int jj_dict_get(jj_ctx *c, const jj_dict *d, jj_value key, jj_value *out)
{
    uint64_t hash;
    size_t at;

    if (!jj_hash(c, key, &hash) || !look(c, d, key, hash, &at))
        return -1;
    if (at == d->n)
        return 0;
    *out = d->entry[at].value;
    return 1;
}

static void index_entry(jj_dict *d, size_t at)
{
    size_t i = d->entry[at].hash & (d->n_slots - 1);

    while (d->slot[i])
        i = (i + 1) & (d->n_slots - 1);
    d->slot[i] = (uint32_t)at + 1;
}

static bool make_room(jj_ctx *c, jj_dict *d)
{
    size_t room = d->room ? 2 * d->room : 4;
    jj_entry *entry;

    if (d->n < d->room)
        return true;
    entry = jj_array(c, room, sizeof *entry);
    if (!entry)
        return false;
    if (d->n)
        memcpy(entry, d->entry, d->n * sizeof *entry);
    d->entry = entry;
    d->room = room;
    if (room <= SMALL)
        return true;
    d->n_slots = 2 * room;
    d->slot = jj_array(c, d->n_slots, sizeof *d->slot);
    if (!d->slot)
        return false;
    for (size_t i = 0; i < d->n; i++)
        index_entry(d, i);
    return true;
}

bool jj_dict_put(jj_ctx *c, jj_dict *d, jj_value key, jj_value value)
{
    uint64_t hash;
    size_t at;

    if (!jj_hash(c, key, &hash))
        return jj_fail(c, "unhashable type: '%s'", jj_type_name(key));
    if (!look(c, d, key, hash, &at))
        return false;
    if (at < d->n) {
        d->entry[at].value = value;
        return true;
    }
    if (!make_room(c, d))
        return false;
    d->entry[d->n] = (jj_entry){ key, value, hash };
    if (d->slot)
        index_entry(d, d->n);
    d->n++;
    return true;
}
