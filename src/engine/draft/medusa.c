/* medusa.c -- Medusa (Cai et al. 2024): heads on what enters the model's head guess the ids after the next one, each
 * for itself, and a tree of ranks says which of their guesses are drafted together.
 *
 * Nothing is kept of an answer but the guesses made of its last row.  Where the folder has a medusa_choices.json, a
 * list of lists of ranks, that is the tree; else it is the authors'. */
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/draft/draft.h"
#include "engine/draft/static_tree.h"
#include "engine/draw.h"

enum { NODES = 16, CHOICES_BYTES = 1 << 16 };

extern const rg_draft_kind rg_draft_medusa;

typedef struct lane {
    int32_t n_ids; /* of the answer that the guesses go on; 0: there are none */
    rg_head_guesses guesses;
} lane;

typedef struct medusa {
    rg_drafter d; /* first */
    rg_runner *runner;
    rg_sample_scratch *scratch;
    int32_t n_heads, vocab_size, dim, max_rows;
    bool own_noise;
    double step_s;              /* what a step of the heads took, lately */
    rg_static_tree tree;
    lane *lanes;                /* [n_lanes] */
    /* A step of the heads: */
    const rg_draft_seen **at;   /* [max_rows] whose row is which */
    float *features;            /* [max_rows][dim] */
    int32_t *ints;              /* [max_rows] zeros, ones, and 0, 1, 2, ...; and pos: zeros */
    int32_t (*pos)[4];
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
        int32_t n = rg_draw_best(m->scratch, thread, &place, m->own_noise, logits + (size_t)k * (size_t)m->vocab_size,
                                 RG_MEDUSA_RANKS, best);

        l->guesses.n[k] = n;
        for (int32_t r = 0; r < n; r++)
            l->guesses.id[k][r] = best[r].id;
        path[k] = n ? best[0].id : 0;
    }
}

static void compute(medusa *m, int32_t n)
{
    const int32_t *zeros = m->ints, *ones = zeros + m->max_rows, *rising = ones + m->max_rows;
    const rg_span span = { .n_rows = n, .adapter = -1 };
    const rg_batch batch = { .n_rows = n, .n_spans = 1, .spans = &span, .token = zeros, .index = zeros, .kv_end = ones,
                             .pos = (const int32_t(*)[4])m->pos, .n_logits = n, .logit_rows = rising,
                             .features = m->features, .feature_cols = m->dim };

    const uint64_t start = rg_now_ns();

    m->runner->step(m->runner, &batch, &(rg_sink){ .logits = guess, .arg = m });
    const double took_s = rg_seconds(start, rg_now_ns());
    m->step_s = m->step_s > 0 ? 0.9 * m->step_s + 0.1 * took_s : took_s;
}

static void seen(rg_drafter *d, const rg_draft_seen *all, int32_t n)
{
    medusa *m = (medusa *)d;
    int32_t n_rows = 0;

    for (int32_t i = 0; i < n; i++) {
        const rg_draft_seen *s = &all[i];
        int32_t last = s->first_row + s->n_rows - 1;

        m->lanes[s->lane].n_ids = 0;
        if (!s->ends || !rg_draw_prepare(m->scratch, &s->request->samples[s->sample]))
            continue;
        if (s->n_path)
            last = s->first_row + s->n_rows + s->path[s->n_path - 1];
        memcpy(m->features + (size_t)n_rows * (size_t)m->dim, rg_tap_row(d->tap, last),
               (size_t)m->dim * sizeof *m->features);
        m->at[n_rows++] = s;
        if (n_rows == m->max_rows) {
            compute(m, n_rows);
            n_rows = 0;
        }
    }
    if (n_rows)
        compute(m, n_rows);
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
    return m->step_s * ((n + m->max_rows - 1) / m->max_rows);
}

static void close_it(rg_drafter *d)
{
    medusa *m = (medusa *)d;

    rg_sample_scratch_free(m->scratch);
    rg_free(m->lanes);
    rg_free(m->at);
    rg_free(m->features);
    rg_free(m->ints);
    rg_free(m->pos);
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
    m->ints = rg_array(rows, 3 * sizeof *m->ints);
    m->pos = rg_array(rows, sizeof *m->pos);
    if (!m->lanes || !m->at || !m->features || !m->ints || !m->pos)
        return rg_fail_memory(err, (size_t)o->n_lanes * sizeof *m->lanes);
    for (int32_t i = 0; i < o->n_lanes; i++)
        m->lanes[i].n_ids = 0;
    for (int32_t i = 0; i < m->max_rows; i++) {
        m->ints[i] = 0;
        m->ints[m->max_rows + i] = 1;
        m->ints[2 * m->max_rows + i] = i;
        memset(m->pos[i], 0, sizeof m->pos[i]);
    }
    m->scratch = rg_sample_scratch_new(o->runner->n_threads, o->vocab_size, o->max_seq_len, err);
    return m->scratch && read_tree(m, o->path, err);
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    medusa *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->runner = o->runner;
    m->n_heads = o->runner->vocab_size / o->vocab_size;
    m->vocab_size = o->vocab_size;
    m->dim = o->tap->dim;
    m->max_rows = o->runner->max_logits;
    m->own_noise = o->own_noise;
    m->d = (rg_drafter){ .kind = &rg_draft_medusa, .tap = o->tap, .propose = propose, .begin = forget, .seen = seen,
                         .end = end, .cost_s = cost_s, .nodes = nodes, .close = close_it };
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
