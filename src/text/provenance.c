/* provenance.c -- see provenance.h. */
#include "text/provenance.h"

#include "base/mem.h"

void rg_text_init(rg_text *t, size_t cap)
{
    *t = (rg_text){ 0 };
    rg_buf_init(&t->bytes, cap);
}

void rg_text_fini(rg_text *t)
{
    rg_buf_fini(&t->bytes);
    rg_free(t->run);
    *t = (rg_text){ 0 };
}

static bool room_for_a_run(rg_text *t)
{
    size_t room = t->runs_room ? 2 * t->runs_room : 16;
    rg_run *run;

    if (t->n_runs < t->runs_room)
        return true;
    run = rg_resize_array(t->run, room, sizeof *run);
    if (!run)
        return false;
    t->run = run;
    t->runs_room = room;
    return true;
}

bool rg_text_add(rg_text *t, const char *s, size_t n, bool trusted)
{
    bool joins = t->n_runs && t->run[t->n_runs - 1].trusted == trusted;

    if (!n)
        return true;
    if ((!joins && !room_for_a_run(t)) || !rg_buf_add(&t->bytes, s, n))
        return false;
    if (joins)
        t->run[t->n_runs - 1].end = t->bytes.n;
    else
        t->run[t->n_runs++] = (rg_run){ t->bytes.n, trusted };
    return true;
}
