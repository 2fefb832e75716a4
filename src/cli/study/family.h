/* family.h -- the models of `ridge study family`: what they are, how large, and how each is trained and judged.
 *
 * A member is a config.json with letters in place of its sizes.  The series on text has one size for all, and what is
 * left free of each is solved for, so that all have as many parameters; the series on recall (mqar.h) has small models
 * of chosen widths and states.  All are trained by the loop of `ridge train`, each in a folder of its own. */
#ifndef RG_CLI_STUDY_FAMILY_H
#define RG_CLI_STUDY_FAMILY_H

#include "cli/cli.h"
#include "train/settings.h"

typedef struct family_sizes {
    int vocab; /* ids of the texts; where there are masks, one more */
    int dim, layers, heads, kv_heads;
    int free;   /* width of an MLP, or what else has no size of its own */
    int state;  /* numbers that a recurrence keeps for each channel, or features of a head */
    int window; /* positions that a row of a layer with a window sees */
    int every;  /* one in so many layers is of the second kind */
} family_sizes;

typedef struct family_member {
    const char *name, *what; /* what: for a reader */
    /* JSON with ' for ", and letters behind $: V vocab, M mask, N vocab and mask, D dim, L layers, H heads, K kv_heads,
     * E head size, F free, S state, W window, and those of family_members.c. */
    const char *config;
    const char *kinds[2]; /* of layers, for $T */
    family_sizes text;    /* the sizes that are not those of the series */
    char solve;           /* the letter that makes parameters equal: F, D, S; 0: not of the series on text */
} family_member;

extern const family_member family_members[];
extern const int family_n_members;
extern const char family_notes[]; /* their names, for the help */
const family_member *family_find(const char *name); /* NULL: none */

/* The sizes of a member in the series on text, but for what is solved for. */
family_sizes family_text_sizes(const family_member *m, int vocab);
/* The config of a member; ids that begin and end texts, -1: none. */
void family_config(const family_member *m, const family_sizes *s, const int32_t ends[2], rg_buf *to);
/* Set what is free so that there are about so many parameters; *got: how many.  path: a file that it may write. */
bool family_solve(const family_member *m, family_sizes *s, const int32_t ends[2], const char *path, double wanted,
                  double *got, rg_error *err) RG_MUST_CHECK;

/* ---- recall ---- */

/* A model of the series on recall: the sizes of its task are in family_train.c. */
typedef struct family_asked {
    const char *member;
    int dim, knob; /* knob: its state, or its window; 0: it has none */
} family_asked;

extern const family_asked family_recall[];
extern const int family_n_recall;
family_sizes family_recall_sizes(const family_asked *a, int vocab);

/* ---- training ---- */

enum { FAMILY_MOST_PIECES = 24 }; /* batches of held-out text */

/* What a run came to; written to its folder. */
typedef struct family_result {
    int64_t tokens; /* trained on */
    int layers;
    double parameters, position_bytes, sequence_bytes; /* of f32 state */
    double bits_per_byte;                              /* of held-out text */
    double piece[FAMILY_MOST_PIECES];                  /*   and of each piece of it */
    int n_pieces;
    double accuracy, rate; /* of recall, at the best of the learning rates */
    double token_ms;
    double tokens_s; /* of training; NAN: no step was made in this run */
} family_result;

typedef struct family_job {
    const cli_common *common;
    const char *folder;    /* of the study */
    const char *tokenizer; /* a folder */
    const char *const *data;
    int n_data;
    const char *held;
    rg_train_settings settings; /* of the series */
    int32_t save;               /* steps between checkpoints */
    double parameters;          /* of the series on text */
    const char *note;           /* begins what is told of progress */
} family_job;

/* Train a member of either series, or go on where its folder stands.  False and *err, also after Ctrl-C. */
bool family_train_text(const family_job *j, const family_member *m, family_result *r, rg_error *err) RG_MUST_CHECK;
bool family_train_recall(const family_job *j, const family_asked *a, family_result *r, rg_error *err) RG_MUST_CHECK;
/* What an earlier run of the same study came to.  False: there is none. */
bool family_known_text(const family_job *j, const family_member *m, family_result *r);
bool family_known_recall(const family_job *j, const family_asked *a, family_result *r);
/* The folder of a member: "folder/name". */
bool family_folder(const family_job *j, const char *name, char *out, size_t room, rg_error *err) RG_MUST_CHECK;

/* ---- the lecture ---- */

/* A job of each series; `text` or `recall` is false where it was not asked for. */
typedef struct family_study {
    family_job job[2]; /* text, recall */
    bool series[2];
} family_study;

/* Each sentence of the lecture beside what the results say.  tell(arg, ...) gets it, the verdict, and the figures. */
typedef void family_tell(void *arg, const char *sentence, const char *verdict, const char *found);
void family_claims(const family_study *s, family_tell *tell, void *arg);

#endif
