/* model.c -- see model.h. */
#define _GNU_SOURCE
#include "support/model.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "ops/cpu/pack.h"

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char scratch_dir[256];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_scratch(void)
{
    nftw(scratch_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *test_scratch(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    char *out = path[turn++ % 4];

    if (!scratch_dir[0]) {
        snprintf(scratch_dir, sizeof scratch_dir, "%s/test-XXXXXX", RG_BUILD_DIR);
        assert_non_null(mkdtemp(scratch_dir));
        atexit(remove_scratch);
    }
    snprintf(out, sizeof path[0], "%s/%s", scratch_dir, name);
    return out;
}

void test_copy_file(const char *from, const char *to, const char *find, const char *replace)
{
    rg_error err = { 0 };
    size_t n = 0;
    char *data = rg_file_slurp(from, (size_t)1 << 30, &n, &err), *rest = data, *at;
    FILE *f = fopen(to, "wb");

    assert_ok(data, err);
    assert_non_null(f);
    while (find && (at = memmem(rest, (size_t)(data + n - rest), find, strlen(find)))) {
        fwrite(rest, 1, (size_t)(at - rest), f);
        fputs(replace, f);
        rest = at + strlen(find);
    }
    assert_true(!find || rest > data);
    fwrite(rest, 1, (size_t)(data + n - rest), f);
    assert_int_equal(fclose(f), 0);
    rg_free(data);
}

const char *test_variant(const char *name, const char *model, const char *config, const char *find, const char *replace)
{
    char to[600], from[600];
    const char *dir = test_scratch(name);

    mkdir(dir, 0755);
    snprintf(from, sizeof from, "%s/%s/%s", RG_TEST_DATA, model, config);
    snprintf(to, sizeof to, "%s/config.json", dir);
    test_copy_file(from, to, find, replace);
    snprintf(from, sizeof from, "%s/%s/model.safetensors", RG_TEST_DATA, model);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    test_copy_file(from, to, NULL, NULL);
    return dir;
}

const char *test_with_letters(const char *name, const char *model)
{
    char from[600], to[600];
    const char *dir = test_variant(name, model, "config.json", NULL, NULL);

    snprintf(from, sizeof from, "%s/tokenizers/letters.json", RG_TEST_DATA);
    snprintf(to, sizeof to, "%s/tokenizer.json", dir);
    test_copy_file(from, to, NULL, NULL);
    return dir;
}

static void *tensor_data(const rg_checkpoint *c, const char *name, rg_type type, size_t *n)
{
    const rg_tensor *t = rg_checkpoint_find(c, name);
    rg_error err = { 0 };

    if (!t)
        return NULL;
    assert_int_equal(t->type, type);
    void *data = malloc(t->bytes + 1);
    assert_non_null(data);
    assert_ok(rg_tensor_read(c, t, 0, data, t->bytes, &err), err);
    if (n)
        *n = t->bytes / 4;
    return data;
}

float *test_floats(const rg_checkpoint *c, const char *name, size_t *n)
{
    return tensor_data(c, name, RG_F32, n);
}

int32_t *test_ints(const rg_checkpoint *c, const char *name, size_t *n)
{
    return tensor_data(c, name, RG_I32, n);
}

void test_close_to(const char *what, const float *got, const float *want, size_t n, float tolerance)
{
    float most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        float d = fabsf(got[i] - want[i]);

        most = fmaxf(most, fabsf(want[i]));
        off = d > off || isnan(d) ? d : off;
        if (isnan(d))
            break;
    }
    if (!(off <= tolerance * most))
        fail_msg("%s: off by %g where %g is the largest", what, (double)off, (double)most);
}

/* ---- models and runners ------------------------------------------------------------------------------------------ */

const rg_backend *test_backend(int i)
{
    for (int k = 0; rg_backend_nth(k); k++)
        if ((!test_isa || !strcmp(test_isa, rg_backend_nth(k)->name)) && i-- == 0)
            return rg_backend_nth(k);
    return NULL;
}

bool test_is_slow(const rg_backend *b)
{
    return (b == rg_backend_nth(0) && rg_backend_nth(1)) || !strcmp(b->name, "far") || !strcmp(b->name, "cuda");
}

void test_model_open(test_model *t, const char *path, const char *kv_type)
{
    test_model_open_on(t, path, kv_type, NULL);
}

void test_model_open_on(test_model *t, const char *path, const char *kv_type, const rg_backend *backend)
{
    const rg_model_options o = { .kv_type = kv_type, .max_draft = RG_MAX_DRAFT, .backend = backend };
    rg_error err = { 0 };

    t->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(t->ckpt, &o, &err);
    assert_ok(t->m, err);
}

void test_model_close(test_model *t)
{
    rg_model_close(t->m);
    rg_checkpoint_close(t->ckpt);
    *t = (test_model){ 0 };
}

static void poison(const test_rig *r)
{
    for (int g = 0; g < r->runner->spec->n_groups; g++)
        for (int32_t b = 0; b < rg_store_n_blocks(r->runner->store, g); b++)
            rg_store_fill(r->runner->store, g, b, 0xff);
}

void test_rig_open(test_rig *r, const test_model *t, const test_rig_options *o)
{
    rg_error err = { 0 };
    size_t rows = (size_t)o->max_rows;
    rg_runner_options ro = { .backend = o->backend, .n_threads = o->n_threads, .exact = o->exact, .llm_int8 = o->llm_int8,
                             .attention_sparsity = o->attention_sparsity, .max_rows = o->max_rows,
                             .max_logits = o->max_rows, .max_seqs = o->max_seqs, .max_seq_len = o->max_len,
                             .state_bytes = o->state_bytes ? o->state_bytes : (size_t)256 << 20, .pin = o->n_nodes > 0,
                             .n_nodes = o->n_nodes, .wrap = o->wrap, .wrap_arg = o->wrap_arg };

    r->runner = rg_model_runner_new(t->m, &ro, &err);
    assert_ok(r->runner, err);
    poison(r);
    r->states = rg_states_new(r->runner->spec, r->runner->store, o->prefixes, &err);
    assert_ok(r->states, err);
    r->ints = calloc(5 * rows, sizeof *r->ints);
    r->pos = calloc(rows, sizeof *r->pos);
    r->lists = calloc(rows, sizeof *r->lists);
    r->list_room = calloc(rows * (RG_MAX_DRAFT + 1), sizeof *r->list_room);
    assert_true(r->ints && r->pos && r->lists && r->list_room);
}

void test_rig_close(test_rig *r)
{
    rg_states_free(r->states);
    rg_model_runner_free(r->runner);
    free(r->ints);
    free(r->pos);
    free(r->lists);
    free(r->list_room);
    *r = (test_rig){ 0 };
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct building {
    test_rig *r;
    rg_batch b;
    int32_t *token, *index, *kv_end, *logit_rows, *slot;
    bool trees;
} building;

/* One row: its place in the sequence, where it is put, and, in a tree, the slots that it goes through. */
static void add_row(building *k, const test_feed *f, int i)
{
    int first = f->seq->scratch ? f->seq->scratch_from : f->seq->length, end = f->n_seq ? f->n_seq : first + f->n;
    int row = k->b.n_rows++, draft = i - (f->n - f->n_draft), at = first + i, slot = at, depth = 0;

    k->r->lists[row] = NULL;
    if (f->parent && draft >= 0) {
        int32_t *list = k->r->list_room + (size_t)row * (RG_MAX_DRAFT + 1);

        for (int d = draft; d >= 0; d = f->parent[d])
            depth++;
        for (int d = draft, j = depth; d >= 0; d = f->parent[d])
            list[--j] = f->seq->length + f->n - f->n_draft + d;
        at = f->seq->length + f->n - f->n_draft + depth - 1;
        k->r->lists[row] = list;
        k->trees = true;
    }
    k->token[row] = f->ids[i];
    k->index[row] = k->r->pos[row][0] = at;
    k->kv_end[row] = rg_kv_end(f->both_ways ? RG_SEES_ALL : k->r->runner->sees, at, end);
    k->slot[row] = slot;
    if (!f->unwanted || !f->unwanted[i])
        k->logit_rows[k->b.n_logits++] = row;
}

typedef struct answer {
    const test_feed *feeds;
    const int32_t *logit_rows;
    test_row *row;
    void *arg;
} answer;

static void take_row(void *arg, int thread, int i, float *logits)
{
    (void)thread;
    const answer *a = arg;
    int row = a->logit_rows[i], f = 0;

    while (row >= a->feeds[f].n)
        row -= a->feeds[f++].n;
    a->row(a->arg, f, row, logits);
}

void test_rig_step(test_rig *r, const test_feed *feeds, int n_feeds, test_row *row, void *arg)
{
    size_t rows = (size_t)r->runner->max_rows;
    rg_span spans[TEST_MAX_FEEDS];
    building k = { .r = r, .token = r->ints, .index = r->ints + rows, .kv_end = r->ints + 2 * rows,
                   .logit_rows = r->ints + 3 * rows, .slot = r->ints + 4 * rows };

    assert_in_range(n_feeds, 1, TEST_MAX_FEEDS);
    for (int s = 0; s < n_feeds; s++) {
        int first = k.b.n_rows;

        assert_true(first + feeds[s].n <= r->runner->max_rows);
        spans[s] = (rg_span){ .first_row = first };
        rg_seq_span(r->states, feeds[s].seq, feeds[s].n, feeds[s].n_draft, &spans[s]);
        for (int i = 0; i < feeds[s].n; i++)
            add_row(&k, &feeds[s], i);
    }
    k.b.n_spans = n_feeds;
    k.b.spans = spans;
    k.b.token = k.token;
    k.b.index = k.index;
    k.b.kv_end = k.kv_end;
    k.b.pos = (const int32_t(*)[4])r->pos;
    k.b.logit_rows = k.logit_rows;
    k.b.slot = k.trees ? k.slot : NULL;
    k.b.ancestors = k.trees ? r->lists : NULL;
    r->runner->step(r->runner, &k.b, &(rg_sink){ .logits = take_row, .arg = &(answer){ feeds, k.logit_rows, row, arg } });
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

typedef struct kept {
    float *logits;
    int vocab, at; /* row 0 of the step is row `at` */
} kept;

static void keep(void *arg, int feed, int row, float *logits)
{
    const kept *k = arg;

    (void)feed;
    memcpy(k->logits + (size_t)(k->at + row) * (size_t)k->vocab, logits, (size_t)k->vocab * sizeof *logits);
}

float *test_logits(const test_model *t, const test_rig_options *o, int first, int cut)
{
    kept k = { .vocab = t->m->config.vocab_size };
    int32_t *ids = malloc((size_t)o->max_len * sizeof *ids);
    rg_error err = { 0 };
    test_rig rig;

    k.logits = malloc((size_t)o->max_len * (size_t)k.vocab * sizeof *k.logits);
    for (int i = 0; i < o->max_len; i++)
        ids[i] = i * 37 % 250;
    test_rig_open(&rig, t, o);
    rg_seq *q = rg_seq_new(rig.states, o->max_len, 0, &err);
    assert_ok(q, err);
    for (int n; k.at < o->max_len; k.at += n) {
        n = k.at ? cut : first;
        n = n < o->max_len - k.at ? n : o->max_len - k.at;
        assert_true(rg_seq_grow(rig.states, q, k.at + n));
        test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids + k.at, .n = n }, 1, keep, &k);
        rg_seq_advance(rig.states, q, n, 0, NULL);
    }
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    free(ids);
    return k.logits;
}

float *test_embedded(const rg_model *m, const int32_t *ids, int32_t n)
{
    const rg_weight *table = m->outer.w[W_EMBED_TOKENS];
    const float scale = (float)m->config.embed_scale;
    float *rows = malloc((size_t)n * (size_t)table->cols * sizeof *rows);

    assert_non_null(rows);
    for (int32_t i = 0; i < n; i++) {
        float *row = rows + (size_t)i * (size_t)table->cols;

        table->placed->owner->weight_get(table->placed, 0, ids[i], row);
        for (int64_t k = 0; k < table->cols && scale != 1; k++)
            row[k] *= scale;
    }
    return rows;
}
