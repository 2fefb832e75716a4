/* study.h -- `ridge study NAME`: what several models do side by side.
 *
 * A study is a file with one record, and a line in study.c: its options, the columns of its table, how the rows of a
 * model are named, how one is measured, and what of it is drawn.  The frame (frame.c) does the rest, alike for
 * all: options that all have, the loop over rows, the files, what is printed, and going on from an earlier run.
 *
 * kbit.c is the one to begin with. */
#ifndef RG_CLI_STUDY_STUDY_H
#define RG_CLI_STUDY_STUDY_H

#include "cli/calibration.h"
#include "cli/perplexity.h"
#include "plan/lines.h"

enum { STUDY_MOST_COLUMNS = 16, STUDY_MOST_ROWS = 4096, STUDY_TEXT_KEY = 88 };

/* What the values of a column are: texts, whole numbers, numbers, or 0 and 1. */
typedef enum study_kind { STUDY_TEXT, STUDY_INT, STUDY_REAL, STUDY_BOOL } study_kind;

typedef union study_value {
    const char *text; /* alive until the study ends */
    double number;    /* NAN: there is none, and an empty field, null in JSON */
} study_value;

/* A column of the CSV, in its order.  JSON and the printed table have those that a name is given for there. */
typedef struct study_column {
    const char *csv;
    study_kind kind;
    bool key;                 /* with the other keys it says which row this is; not of STUDY_REAL */
    const char *format;       /* of STUDY_REAL in the CSV: printing what was read gives the same text */
    const char *no_yes[2];    /* of STUDY_BOOL in CSV and table */
    const char *json;
    double json_scale;        /* numbers are multiplied by it there; 0: 1 */
    const char *head;         /* in the table, */
    int width, digits;        /*   digits behind the point, */
    double scale;             /*   numbers are multiplied by it; 0: 1, */
    const char *unit;         /*   and followed by it; NULL: nothing */
} study_column;

/* Columns of studies of rounding (kbit, salient), by the numbers that they give them. */
#define STUDY_COLUMN_MODEL { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 24 }
#define STUDY_COLUMN_PPL                                                                                               \
    { "ppl", STUDY_REAL, .format = "%.17g", .json = "ppl", .head = "perplexity", .width = 12, .digits = 4 }
#define STUDY_ROUNDING_COLUMNS                                                                                         \
    [MODEL] = STUDY_COLUMN_MODEL,                                                                                      \
    [BITS] = { "bits", STUDY_INT, .key = true, .json = "bits", .head = "bits", .width = 4 },                           \
    [GROUP] = { "group", STUDY_INT, .key = true },                                                                     \
    [TEXT] = { "text", STUDY_TEXT, .key = true },                                                                      \
    [CTX] = { "ctx", STUDY_INT, .key = true },                                                                         \
    [TOTAL_BITS] = { "total_bits", STUDY_REAL, .format = "%.0f", .json = "total_bits", .head = "bits in all",          \
                     .width = 14 },                                                                                    \
    [PPL] = STUDY_COLUMN_PPL

typedef struct study_model {
    const char *given; /* on the command line */
    char name[64];     /* study_name of it */
} study_model;

/* What a command line asked for: for the functions of a study to read. */
typedef struct study_run {
    const cli_common *common;
    const char *text; /* --perplexity; NULL: not given */
    int32_t ctx;      /* ids in a window of it */
    struct study_frame *frame;
} study_run;

typedef struct study_picture study_picture;

typedef struct study {
    cli_command command;         /* "study NAME"; run is not used */
    const char *where;           /* where models for it are, said if none is given; NULL: nothing */
    const char *text;            /* help of --perplexity; NULL: no text is scored, and there is no --ctx either */
    const cli_option *options;   /* its own; ends with a NULL name.  Lists are freed by the frame. */
    const study_column *columns; /* [n_columns]; the first names the model */
    int n_columns;
    const rg_lines_page *page; /* of --svg: its title, note, charts and axes */
    /* Check the options, and give those that were not given their values.  NULL: nothing to do. */
    bool (*settle)(const study_run *run, rg_error *err);
    /* Call study_add_model for each model, where the command line names none; NULL: it names them. */
    bool (*list)(const study_run *run, rg_error *err);
    /* Call study_add_row for each row of a model, and set its keys. */
    bool (*plan)(const study_run *run, const study_model *m, rg_error *err);
    /* Set what is no key in v [n_columns].  Rows of a model come one after another.  After Ctrl-C what is set, and an
     * error, is thrown away: the next run makes the row. */
    bool (*measure)(const study_run *run, const study_model *m, study_value *v, rg_error *err);
    /* Call study_point for each point that a row is drawn as. */
    void (*draw)(study_picture *p, const study_model *m, const study_value *v);
    /* What all rows together say, after the table, or, out not NULL, as members of the JSON; NULL: nothing. */
    void (*conclude)(const study_run *run, cli_json *out);
    void (*close)(void); /* what measure kept open; NULL: nothing */
    /* Another study of the same name, whose table is a different one: with this option, which both have.  NULL: none */
    const char *other_option;
    const struct study *other;
} study;

/* The parts of a record that have the same name in every study's file. */
#define STUDY_PARTS                                                                                                    \
    .options = options, .columns = columns, .n_columns = N_COLUMNS, .page = &page, .plan = plan, .measure = measure,   \
    .draw = draw

/* The command of a study: its exit status. */
int study_main(const study *what, int argc, char **argv);

/* A model of a study that lists its own; the name is borrowed.  False and *err: there are too many. */
bool study_add_model(const study_run *run, const char *name, rg_error *err);

/* A row of the model, whose numbers are NAN and whose texts are empty.  NULL and *err: there are too many. */
study_value *study_add_row(const study_run *run, const study_model *m, rg_error *err);

/* A point of the line "model, kind" (kind NULL: "model") in a chart of the page.  Axes are logarithmic: what is not
 * above 0 is not drawn. */
void study_point(study_picture *p, int chart, const char *model, const char *kind, rg_lines_point at);

/* The name of a model's file without folders and ending, or of its folder, which a config.json is called by; into out,
 * which is returned. */
const char *study_name(const char *path, char out[64]);

/* ---- what studies share besides: parts.c ---- */

/* The file that is scored: what was given, or the shipped calibration text. */
const char *study_text(const study_run *run);
/* What rows are known by that depend on study_text: its name and a hash of its bytes; calibrated: and of those of the
 * shipped calibration text, which the study reads besides.  Of no file the hash is of nothing: a model without a
 * tokenizer needs no text.  False and *err: a file cannot be read. */
bool study_text_key(const study_run *run, bool calibrated, char key[STUDY_TEXT_KEY], rg_error *err);
/* The ids of c's texts by the tokenizer of the model at a path.  True, and none: it has no tokenizer. */
bool study_read_ids(const char *path, calibration *c, rg_error *err);
/* Prompts of a study: n of n_ids each. */
typedef struct study_prompt_shape {
    int32_t n, n_ids, vocab_size;
    uint64_t seed; /* of the random prompts */
} study_prompt_shape;

/* Beginnings of stretches of study_text, or drawn ids where the model at the path has no tokenizer; out [n][n_ids]. */
bool study_prompts(const study_run *run, const char *path, const study_prompt_shape *z, int32_t *out, rg_error *err);
/* Perplexity of study_text for a model, by exact arithmetic.  s: what is done to the model, and the type of its K/V.
 * NAN, and no error: the model has no tokenizer, so there is no text for it. */
bool study_perplexity(const study_run *run, const study_model *m, perplexity *s, double *ppl, rg_error *err);
/* The refusal where a text is needed. */
bool study_needs_tokenizer(const char *path, rg_error *err);

#endif
