/* shortcut.h -- what makes a model smaller or quicker, each by a name, alone or several together: for `ridge study
 * shortcuts`.
 *
 * Each is of a kind; of a kind a set has one at most.  Some make another model (in a folder, kept until it is removed),
 * the others are options with which a model is opened. */
#ifndef RG_CLI_STUDY_SHORTCUT_H
#define RG_CLI_STUDY_SHORTCUT_H

#include "cli/heal.h"
#include "cli/tool.h"

typedef enum shortcut_kind {
    SHORTCUT_PRUNED,    /* layers left out for good, and healed */
    SHORTCUT_WEIGHTS,   /* in fewer bits: the name of a GGUF type */
    SHORTCUT_KV,        /* the type of K/V */
    SHORTCUT_INPUTS,    /* of matrices: a share that counts as zero */
    SHORTCUT_ATTENTION, /* --attention-sparsity */
    SHORTCUT_SELF,      /* model/self.h: a window, layers passed over */
    SHORTCUT_DRAFT,     /* --draft: lossless */
    SHORTCUT_KINDS
} shortcut_kind;

typedef struct shortcut {
    const char *name; /* as the table has it */
    shortcut_kind kind;
    const char *value;
    double number;
    bool quick;  /* tried without --full */
    bool joins;  /* combined with others without --full, and in threes with it */
} shortcut;

/* The i-th; NULL past the end.  Rising kinds. */
const shortcut *shortcuts_nth(size_t i);
/* True if the two can be combined. */
bool shortcuts_go(const shortcut *a, const shortcut *b);

/* One shortcut of each kind, or NULL. */
typedef struct shortcut_set {
    const shortcut *of[SHORTCUT_KINDS];
} shortcut_set;

/* "weights q4_0 + K/V q8"; "as it is" of none. */
void shortcuts_name(const shortcut_set *s, char *name, size_t room);

/* What models are made with, borrowed. */
typedef struct shortcut_shop {
    const cli_args *args;
    const char *dir;       /* where they are made; it exists */
    const char *path;      /* of the whole model */
    const int32_t *ids;    /* [n_samples, ctx] of calibration text */
    int n_samples, ctx;
    const char *heal_text; /* a file */
    int heal_steps;
} shortcut_shop;

enum { SHORTCUT_PATH = 1200 };

/* The model of a set, made unless it was before, and the file of its thresholds ("": none).  False and *err: it cannot
 * be made, as RG_E_UNSUPPORTED or RG_E_USAGE says why. */
bool shortcuts_make(const shortcut_shop *shop, const shortcut_set *s, char path[SHORTCUT_PATH],
                    char thresholds[SHORTCUT_PATH], rg_error *err) RG_MUST_CHECK;
/* Remove what was made, and the folder. */
void shortcuts_remove(const char *dir);

#endif
