/* medusa.c -- Medusa (Cai et al. 2024): heads on what enters the model's head guess the ids after the next one, each
 * for itself, and a tree of ranks says which of their guesses are drafted together.
 *
 * Nothing is kept of an answer but the guesses made of its last row.  Where the folder has a medusa_choices.json, a
 * list of lists of ranks, that is the tree; else it is the authors'. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/draft/draft.h"
#include "engine/draft/static_tree.h"
#include "engine/member.h"

enum { NODES = 16, CHOICES_BYTES = 1 << 16 };

extern const rg_draft_kind rg_draft_medusa;

typedef struct lane {
    int32_t n_ids; /* of the answer that the guesses go on; 0: there are none */
    rg_head_guesses guesses;
} lane;

typedef struct medusa {
    rg_drafter d; /* first */
    rg_member member;           /* keeps nothing: its sequences are not used */
    int32_t n_heads, vocab_size, dim, max_rows;
    bool own_noise;
    rg_static_tree tree;
    lane *lanes;                /* [n_lanes] */
    const rg_draft_seen *seen;  /* [n_seen] whose last rows are wanted, the first n_done are laid out */
    int32_t n_seen, n_done;
    const rg_draft_seen **at;   /* [max_rows] of a step, whose row is which */
    float *features;            /* [max_rows][dim] */
} medusa;

/* One row's guesses: of head k, what may follow when the heads before it were right. */
static void guess(void *arg, int thread, int i, float *logits)
{
    medusa *m = arg;
    const rg_draft_seen *s = m->at[i];
    lane *l = &m->lanes[s->lane];
    int32_t path[RG_MEDUSA_HEADS];

    l->n_ids = s->n_ids;
    l->guesses.n_heads = m->n_heads;
    for (int32_t k = 0; k < m->n_heads; k++) {
        rg_draw_place place = { .request = s->request, .sample = s->sample, .draft = path, .n_draft = k,
                                .guess = true };
        rg_guess best[RG_MEDUSA_RANKS];
        int32_t n = rg_draw_best(m->member.scratch, thread, &place, m->own_noise,
                                 logits + (size_t)k * (size_t)m->vocab_size, RG_MEDUSA_RANKS, best);

        l->guesses.n[k] = n;
        for (int32_t r = 0; r < n; r++)
            l->guesses.id[k][r] = best[r].id;
        path[k] = n ? best[0].id : 0;
    }
}

static void seen(rg_drafter *d, const rg_draft_seen *all, int32_t n)
{
    medusa *m = (medusa *)d;

    m->seen = all;
    m->n_seen = n;
    m->n_done = 0;
}

/* The last row of an answer that goes on, as the n-th of the step.  False: nothing may be drafted for it. */
static bool add_last(medusa *m, const rg_draft_seen *s, int32_t n)
{
    int32_t last = s->first_row + s->n_rows - 1;

    m->lanes[s->lane].n_ids = 0;
    if (!s->ends || !rg_draw_prepare(m->member.scratch, &s->request->samples[s->sample]))
        return false;
    if (s->n_path)
        last = s->first_row + s->n_rows + s->path[s->n_path - 1];
    memcpy(m->features + (size_t)n * (size_t)m->dim, rg_tap_row(m->d.tap, last), (size_t)m->dim * sizeof *m->features);
    m->at[n] = s;
    return true;
}

static bool lay_out(rg_drafter *d, rg_sink *sink)
{
    medusa *m = (medusa *)d;
    rg_batch *b = &m->member.rows.batch;
    int32_t n = 0;

    *sink = (rg_sink){ .logits = guess, .arg = m };
    while (m->n_done < m->n_seen && n < m->max_rows)
        n += add_last(m, &m->seen[m->n_done++], n);
    rg_step_batch_begin(&m->member.rows);
    rg_step_batch_add_apart(&m->member.rows, n);
    b->features = m->features;
    b->feature_cols = m->dim;
    return n > 0;
}

/* The guesses were made as their rows came. */
static void take(rg_drafter *d)
{
    (void)d;
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    medusa *m = (medusa *)d;

    for (int32_t i = 0; i < n; i++) {
        const lane *l = &m->lanes[asks[i].lane];

        if (l->n_ids == asks[i].n_ids)
            rg_static_tree_draft(&m->tree, &l->guesses, asks[i].depth, asks[i].most, asks[i].chain, asks[i].draft);
    }
    return true;
}

static void forget(rg_drafter *d, int32_t lane_number)
{
    ((medusa *)d)->lanes[lane_number].n_ids = 0;
}

static void end(rg_drafter *d, int32_t lane_number, const int32_t *ids, int32_t n_ids, uint64_t scope)
{
    (void)ids, (void)n_ids, (void)scope;
    forget(d, lane_number);
}

static int32_t nodes(const rg_drafter *d, int32_t depth)
{
    const medusa *m = (const medusa *)d;
    int32_t n = 0;

    for (int32_t i = 0; i < m->tree.n; i++)
        n += m->tree.length[i] <= depth;
    return n;
}

static double cost_s(const rg_drafter *d, int32_t n, int32_t depth)
{
    const medusa *m = (const medusa *)d;

    (void)depth;
    return m->member.mean_s * ((n + m->max_rows - 1) / m->max_rows);
}

static void close_it(rg_drafter *d)
{
    medusa *m = (medusa *)d;

    rg_member_fini(&m->member);
    rg_free(m->lanes);
    rg_free(m->at);
    rg_free(m->features);
    rg_free(m);
}

static bool read_tree(medusa *m, const char *folder, rg_error *err)
{
    char path[1024];
    size_t n;

    rg_static_tree_usual(&m->tree);
    if (!rg_path_join(path, sizeof path, folder, "medusa_choices.json") || rg_path_look(path) == RG_PATH_NONE)
        return true;
    char *text = rg_file_slurp(path, CHOICES_BYTES, &n, err);
    bool ok = text && rg_static_tree_read(&m->tree, path, text, n, err);
    rg_free(text);
    return ok;
}

static bool build(medusa *m, const rg_draft_options *o, rg_error *err)
{
    size_t rows = (size_t)m->max_rows, n;

    m->lanes = rg_array((size_t)o->n_lanes, sizeof *m->lanes);
    m->at = rg_array(rows, sizeof *m->at);
    m->features = rg_mul(rows, (size_t)m->dim, &n) ? rg_array(n, sizeof *m->features) : NULL;
    if (!m->lanes || !m->at || !m->features)
        return rg_fail_memory(err, (size_t)o->n_lanes * sizeof *m->lanes);
    for (int32_t i = 0; i < o->n_lanes; i++)
        m->lanes[i].n_ids = 0;
    return rg_member_init(&m->member, o->runner, &(rg_member_options){ .max_seqs = 1, .vocab_size = o->vocab_size,
                                                                       .max_seq_len = o->max_seq_len }, err) &&
           read_tree(m, o->path, err);
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    medusa *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->n_heads = o->runner->vocab_size / o->vocab_size;
    m->vocab_size = o->vocab_size;
    m->dim = o->tap->dim;
    m->max_rows = o->runner->max_logits;
    m->own_noise = o->own_noise;
    m->d = (rg_drafter){ .kind = &rg_draft_medusa, .tap = o->tap, .member = &m->member, .propose = propose,
                         .lay_out = lay_out, .take = take, .begin = forget, .seen = seen, .end = end, .cost_s = cost_s,
                         .nodes = nodes, .close = close_it };
    RG_ASSERT(m->n_heads >= 1 && m->n_heads <= RG_MEDUSA_HEADS);
    if (!build(m, o, err)) {
        close_it(&m->d);
        return NULL;
    }
    if (m->tree.n > o->max_draft)
        m->tree.n = o->max_draft;
    m->d.depth = m->n_heads < o->max_draft ? m->n_heads : o->max_draft;
    return &m->d;
}

const rg_draft_kind rg_draft_medusa = { .name = "medusa", .max_draft = NODES, .has_network = true, .has_heads = true,
                                        .has_path = true, .open = open_it };
