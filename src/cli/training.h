/* training.h -- what commands that train share: settings by flags and a file, data, the run with its checkpoints, and
 * what is written. */
#ifndef RG_CLI_TRAINING_H
#define RG_CLI_TRAINING_H

#include "cli/cli.h"
#include "cli/curve.h"
#include "train/training.h"

/* ---- settings ---- */

typedef struct cli_train_settings {
    const char *file, *schedule, *precision;
    cli_strings beta;
    int32_t steps, accumulate, batch, length, warmup;
    float lr, floor, decay, clip, eps, init_std;
    uint64_t seed;
    /* Which were given. */
    bool g_steps, g_accumulate, g_batch, g_length, g_warmup, g_lr, g_floor, g_decay, g_clip, g_eps, g_init, g_seed;
} cli_train_settings;

#define CLI_TRAIN_SETTINGS(v)                                                                                          \
    { "--settings", CLI_STRING, &(v).file, "FILE", "settings as JSON; flags change them" },                            \
    { "--steps", CLI_INT, &(v).steps, "N", "updates (default: 1000)", 1, 1e9, &(v).g_steps },                          \
    { "--batch", CLI_INT, &(v).batch, "N", "rows of a micro-batch (default: 16)", 1, 1 << 20, &(v).g_batch },          \
    { "--accumulate", CLI_INT, &(v).accumulate, "N", "micro-batches of a step (default: 1)", 1, 1 << 20,               \
      &(v).g_accumulate },                                                                                             \
    { "--length", CLI_INT, &(v).length, "N", "ids of a row (default: 256)", 2, 1 << 24, &(v).g_length },               \
    { "--lr", CLI_FLOAT, &(v).lr, "RATE", "the highest learning rate (default: 0.001)", 0, 100, &(v).g_lr },           \
    { "--warmup", CLI_INT, &(v).warmup, "N", "steps in which it rises (default: 50)", 0, 1e9, &(v).g_warmup },         \
    { "--floor", CLI_FLOAT, &(v).floor, "SHARE", "of it that is left at the end (default: 0.1)", 0, 1, &(v).g_floor }, \
    { "--schedule", CLI_STRING, &(v).schedule, "NAME", "how it falls: cosine (default), linear, constant, wsd" },      \
    { "--precision", CLI_STRING, &(v).precision, "NAME", "of products: f32 (the default), or bf16 with sums in f32" }, \
    { "--weight-decay", CLI_FLOAT, &(v).decay, "X", "of matrices (default: 0.1)", 0, 100, &(v).g_decay },              \
    { "--beta", CLI_STRINGS, &(v).beta, "A,B", "of AdamW's moments (default: 0.9,0.95)" },                             \
    { "--eps", CLI_FLOAT, &(v).eps, "X", "of AdamW (default: 1e-8)", 0, 1, &(v).g_eps },                               \
    { "--clip", CLI_FLOAT, &(v).clip, "NORM", "of all gradients; 0: none (default: 1)", 0, 1e9, &(v).g_clip },         \
    { "--seed", CLI_U64, &(v).seed, "N", "of new weights, of draws and of the order of documents (default: 0)", 0, 0,  \
      &(v).g_seed }

/* *s has the command's defaults; the file's settings and then the flags change them. */
bool cli_train_settings_take(const cli_train_settings *v, const cli_args *args, rg_train_settings *s,
                             rg_error *err) RG_MUST_CHECK;

/* The files of a tokenizer, a folder or a file, go to another folder. */
bool cli_tokenizer_copy(const char *tokenizer, const char *dir, rg_error *err) RG_MUST_CHECK;

/* ---- a run ---- */

typedef struct cli_training {
    cli_args *args;
    /* Flags. */
    cli_train_settings flags;
    cli_strings data;
    const char *batches, *init, *out, *tokenizer, *log, *svg, *type, *pack;
    bool resume;
    int32_t save;
    /* What was made of them. */
    rg_train_settings s;
    rg_type as;
    int32_t last; /* the step at which the run ends */
    char path[1024], saved[1200];
    const rg_backend *backend;
    int n_threads;
    rg_pool *pool;
    rg_checkpoint *ckpt;
    bool from_scratch;
    rg_masters *masters;
    rg_masters *trained; /* what the run trains; NULL: masters */
    rg_tokenizer *tokens;
    rg_feed *feed;
    rg_training *run;
    cli_curve curve;
} cli_training;

enum { CLI_TRAINING_SAVE = 100 };

#define CLI_TRAINING_OPTIONS(v)                                                                                        \
    { "--data", CLI_STRINGS, &(v).data, "FILE", "documents: .txt, .jsonl or ids in .safetensors; repeatable" },        \
    { "--batches", CLI_STRING, &(v).batches, "FILE", "exact batches: ids [step, micro, rows, n], targets, document" }, \
    { "-o", CLI_STRING, &(v).out, "DIR", "where the model, or the adapter, and checkpoints of the run are written" },  \
    CLI_TRAIN_SETTINGS((v).flags),                                                                                     \
    { "--init", CLI_STRING, &(v).init, "FILE", "weights to begin with: a safetensors file or a folder" },              \
    { "--init-std", CLI_FLOAT, &(v).flags.init_std, "X", "deviation of new weights (default: 0.02)", 0, 10,            \
      &(v).flags.g_init },                                                                                             \
    { "--tokenizer", CLI_STRING, &(v).tokenizer, "PATH", "tokenizer.json or a folder (default: the model's)" },        \
    { "--pack", CLI_STRING, &(v).pack, "HOW", "documents of a row: apart (the default), or joined to one text" },      \
    { "--resume", CLI_FLAG, &(v).resume, NULL, "go on from the last checkpoint in DIR" },                              \
    { "--save", CLI_INT, &(v).save, "N", "steps from one checkpoint to the next (default: 100)", 1, 1e9 },             \
    { "--type", CLI_STRING, &(v).type, "TYPE", "of the written weights: f32 (the default), bf16, f16" },               \
    { "--log", CLI_STRING, &(v).log, "FILE", "step,loss,grad_norm,lr,tokens_s of every step, as CSV" },                \
    { "--svg", CLI_STRING, &(v).svg, "FILE", "the loss as a picture" }

/* Flags are checked, and the model of args->positional[0] is opened, with the weights that the run begins with. */
bool cli_training_open(cli_training *t, rg_error *err) RG_MUST_CHECK;
/* The data. */
bool cli_training_feed(cli_training *t, rg_error *err) RG_MUST_CHECK;
/* The run, as it begins or where its checkpoint stands; stand_in and objective may be NULL. */
bool cli_training_begin(cli_training *t, const rg_stand_in *stand_in, const rg_objective *objective,
                        rg_error *err) RG_MUST_CHECK;
bool cli_training_run(cli_training *t, rg_error *err) RG_MUST_CHECK; /* steps until the last one */
/* The trained model with its tokenizer, and the picture. */
bool cli_training_write(const cli_training *t, rg_error *err) RG_MUST_CHECK;
bool cli_training_picture(const cli_training *t, rg_error *err) RG_MUST_CHECK;
/* "steps": [...], within an object that is open. */
void cli_training_json(const cli_training *t, cli_json *out);
/* The loss of the last step; NAN: there was none. */
double cli_training_loss(const cli_training *t);
void cli_training_close(cli_training *t);

#endif
