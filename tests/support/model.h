/* model.h -- real models in tests: open one, make runners of it, and compute steps of any shape.
 *
 * A test_model is a checkpoint and its model; a test_rig is one runner of it with the states of its sequences.  A step is
 * a list of feeds (rows of one sequence each: prompt, drafts, a tree of drafts); what the states do with it afterwards is
 * the test's business.  Whatever cannot be opened fails the test. */
#ifndef RG_TEST_MODEL_H
#define RG_TEST_MODEL_H

#include "support/test.h"

#include "engine/sequence.h"
#include "model/model.h"

/* ---- files ---- */

/* A path in a folder of this program's own below the build folder, gone when it exits.  Valid until the next call but
 * three. */
const char *test_scratch(const char *name);
/* The file at from, each `find` in it replaced (NULL: none), as the file at to. */
void test_copy_file(const char *from, const char *to, const char *find, const char *replace);
/* A scratch folder `name` with config (of the golden `model`, changed) as config.json and its weights.  Its path. */
const char *test_variant(const char *name, const char *model, const char *config, const char *find, const char *replace);
/* A scratch folder `name` with the golden `model` and a small WordPiece tokenizer (golden/tokenizers/letters.json), whose
 * classes and separators are those of the golden encoders.  Its path. */
const char *test_with_letters(const char *name, const char *model);

/* A tensor of a safetensors file as f32 or as i32; NULL if there is none.  free() it. */
float *test_floats(const rg_checkpoint *c, const char *name, size_t *n);
int32_t *test_ints(const rg_checkpoint *c, const char *name, size_t *n);

/* Fail, naming `what`, if one of n numbers is off by more than tolerance times the largest |want|, or is NaN. */
void test_close_to(const char *what, const float *got, const float *want, size_t n, float tolerance);

/* ---- models and runners ---- */

typedef struct test_model {
    rg_checkpoint *ckpt;
    rg_model *m;
} test_model;

/* With room for drafts.  backend: the one that is to compute with it, where it does not share the processor's memory. */
void test_model_open(test_model *t, const char *path, const char *kv_type);
void test_model_open_on(test_model *t, const char *path, const char *kv_type, const rg_backend *backend);
void test_model_close(test_model *t);

typedef struct test_rig {
    rg_runner *runner;
    rg_states *states;
    int32_t *ints;          /* of a batch */
    int32_t (*pos)[4];
    const int32_t **lists;
    int32_t *list_room;
} test_rig;

typedef struct test_rig_options {
    const rg_backend *backend;
    int n_threads;
    bool exact, llm_int8;
    float attention_sparsity;
    int max_rows, max_seqs, max_len;
    size_t state_bytes;     /* 0: plenty */
    bool prefixes;
    int n_nodes;            /* as of rg_runner_options, and threads pinned; 0: none */
    const rg_reader *(*wrap)(void *arg, const rg_reader *inner);
    void *wrap_arg;
} test_rig_options;

/* All state memory is filled with NaN at first: what is read before it is written shows. */
void test_rig_open(test_rig *r, const test_model *t, const test_rig_options *o);
void test_rig_close(test_rig *r); /* its sequences are freed first, by whoever made them */

typedef struct test_feed {
    rg_seq *seq;              /* grown to length + n */
    const int32_t *ids;       /* [n] */
    int n, n_draft;
    const int32_t *parent;    /* NULL: a chain; else [n_draft], the draft that each follows, -1: none */
    const bool *unwanted;     /* [n] rows whose logits nobody asks for; NULL: none */
    bool both_ways;           /* every row sees all n */
    int32_t n_seq;            /* positions of the sequence, where rows see more than up to the last of these; 0: not so */
} test_feed;

enum { TEST_MAX_FEEDS = 16 };

typedef void test_row(void *arg, int feed, int row, float *logits);

/* Compute the feeds in one step.  row is called for every wanted row, on any thread. */
void test_rig_step(test_rig *r, const test_feed *feeds, int n_feeds, test_row *row, void *arg);

/* What a model's embedding gives for ids [n], its scale included, as given rows stand for it.  free() it. */
float *test_embedded(const rg_model *m, const int32_t *ids, int32_t n);

/* Logits, [o->max_len, vocabulary], of so many ids of one sequence: `first` rows in a step, then `cut` in each.  free()
 * them. */
float *test_logits(const test_model *t, const test_rig_options *o, int first, int cut);

/* The i-th instruction set that the command line leaves over; NULL past the end. */
const rg_backend *test_backend(int i);
/* The definition in scalar C where there are others, what runs it elsewhere (support/far), and a GPU that is emulated: a reason
 * to compute less. */
bool test_is_slow(const rg_backend *b);

#endif
