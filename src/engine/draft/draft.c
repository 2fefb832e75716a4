/* draft.c -- trees of drafts, and the table of drafters. */
#include "engine/draft/draft.h"

#include "engine/member.h"

#include <string.h>

#define DRAFTER(name) extern const rg_draft_kind rg_draft_##name;
#include "engine/draft/drafters.def"

static const rg_draft_kind *const kinds[] = {
#define DRAFTER(name) &rg_draft_##name,
#include "engine/draft/drafters.def"
};

const rg_draft_kind *rg_draft_kind_find(const char *name)
{
    for (size_t i = 0; i < RG_LEN(kinds); i++)
        if (!strcmp(kinds[i]->name, name))
            return kinds[i];
    return NULL;
}

const rg_draft_kind *rg_draft_kind_nth(size_t i)
{
    return i < RG_LEN(kinds) ? kinds[i] : NULL;
}

void rg_drafter_close(rg_drafter *d)
{
    if (d)
        d->close(d);
}

bool rg_drafter_step(rg_drafter *d)
{
    rg_sink sink;

    if (!d->member || !d->lay_out(d, &sink))
        return false;
    rg_member_step(d->member, &sink);
    d->take(d);
    return true;
}

int32_t rg_draft_find(const rg_draft_tree *d, int32_t parent, int32_t id)
{
    for (int32_t i = parent + 1; i < d->n; i++)
        if (d->parent[i] == parent && d->id[i] == id && !d->probe[i])
            return i;
    return -1;
}

static int32_t add(rg_draft_tree *d, int32_t parent, int32_t id, bool probe)
{
    RG_ASSERT(rg_is_id(id));
    RG_ASSERT(parent >= -1 && parent < d->n && (probe || parent < 0 || !d->probe[parent]));
    if (d->n == RG_MAX_DRAFT)
        return -1;
    d->id[d->n] = id;
    d->parent[d->n] = parent;
    d->probe[d->n] = probe;
    d->from[d->n] = NULL;
    return d->n++;
}

int32_t rg_draft_add(rg_draft_tree *d, int32_t parent, int32_t id)
{
    int32_t node = rg_draft_find(d, parent, id);

    return node >= 0 ? node : add(d, parent, id, false);
}

int32_t rg_draft_add_probe(rg_draft_tree *d, int32_t parent, int32_t id)
{
    return add(d, parent, id, true);
}

int32_t rg_draft_guesses(const rg_draft_tree *d)
{
    int32_t n = 0;

    for (int32_t i = 0; i < d->n; i++)
        n += !d->probe[i];
    return n;
}

int32_t rg_draft_path(const rg_draft_tree *d, int32_t node, int32_t *path)
{
    int32_t n = 0;

    for (int32_t i = node; i >= 0; i = d->parent[i])
        n++;
    for (int32_t i = node, k = n; i >= 0; i = d->parent[i])
        path[--k] = i;
    return n;
}

void rg_draft_prune(rg_draft_tree *d, const bool *keep)
{
    int32_t to[RG_MAX_DRAFT], n = 0;

    for (int32_t i = 0; i < d->n; i++) {
        int32_t parent = d->parent[i] < 0 ? -1 : to[d->parent[i]];

        to[i] = -1;
        if (!keep[i] || (d->parent[i] >= 0 && parent < 0))
            continue;
        to[i] = n;
        d->id[n] = d->id[i];
        d->probe[n] = d->probe[i];
        d->from[n] = d->from[i];
        d->parent[n++] = parent;
    }
    d->n = n;
}

bool rg_draft_is_chain(const rg_draft_tree *d)
{
    for (int32_t i = 0; i < d->n; i++)
        if (d->parent[i] != i - 1)
            return false;
    return true;
}
