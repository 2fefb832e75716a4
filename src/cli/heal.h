/* heal.h -- a shrunken model repaired: it learns from the whole one (Minitron, Muralidharan et al. 2024), beside the
 * whole one that is trained on for as many ids, so that ordinary training does not count as repair. */
#ifndef RG_CLI_HEAL_H
#define RG_CLI_HEAL_H

#include "cli/training.h"
#include "train/distill.h"

typedef struct cli_heal {
    const char *text; /* the file that is learnt from; NULL: nothing is repaired */
    cli_train_settings flags;
    bool alone;   /* the whole model is not trained on */
    bool resume;  /* from the checkpoints of a run that was stopped */
    int32_t save; /* steps from one checkpoint to the next; 0: CLI_TRAINING_SAVE */
    bool outputs; /* layers' outputs count: layers were left out */
    rg_train_settings s;
    double loss, seconds; /* of the last step; of the repair */
    int64_t tokens;
} cli_heal;

#define CLI_HEAL_OPTIONS(v)                                                                                            \
    { "--heal", CLI_STRING, &(v).text, "FILE", "repair: the smaller model learns from the whole one on this text" },   \
    { "--no-control", CLI_FLAG, &(v).alone, NULL, "repair: do not train the whole model on as many ids as well" },     \
    { "--resume", CLI_FLAG, &(v).resume, NULL, "repair, qat: go on from the checkpoints of a run that was stopped" },  \
    { "--save", CLI_INT, &(v).save, "N", "repair, qat: steps between checkpoints (default: 100)", 1, 1e9 },            \
    CLI_TRAIN_SETTINGS((v).flags)

/* Settings of the repair: 200 steps of 8 x 256, the rate rising for 10 steps, no decay; changed by flags. */
bool cli_heal_settings(cli_heal *h, const cli_args *args, double rate, rg_error *err) RG_MUST_CHECK;
/* The model at dir learns from the one at `whole`, by forward KL, and is written in its place. */
bool cli_heal_run(cli_heal *h, const cli_args *args, const char *dir, const char *whole, rg_error *err) RG_MUST_CHECK;
/* A copy of the model at `whole`, trained on by cross-entropy with the same batches, in dir. */
bool cli_heal_control(cli_heal *h, const cli_args *args, const char *dir, const char *whole,
                      rg_error *err) RG_MUST_CHECK;
/* The share of a loss, in bits, that was won back: of perplexities. */
double cli_heal_share(double whole, double before, double after);
/* Remove a folder of files. */
void cli_heal_remove(const char *dir);

/* Checkpoints of a run lie beside what it makes: DST.repair.safetensors, DST.control.safetensors and
 * DST.training.safetensors, of qat's layers DST.training.layers.safetensors, until all of it is done.  True if one is
 * there; remove them. */
bool cli_heal_is_begun(const char *dst);
void cli_heal_forget(const char *dst);

/* ---- its parts ---- */

/* A model that is trained, and the one that it learns from, if any. */
typedef struct cli_repair {
    const cli_args *args;
    cli_heal *h;
    rg_train_settings s;
    rg_pool *pool;
    const rg_backend *backend;
    int n_threads;
    rg_checkpoint *ckpt, *from;
    rg_masters *masters;
    rg_tokenizer *tokens;
    rg_feed *feed;
    rg_teacher *teacher;
    rg_distill *distill;
    rg_training *run;
    char saved[1200]; /* the checkpoint */
} cli_repair;

bool cli_repair_open(cli_repair *r, const char *path, rg_error *err) RG_MUST_CHECK;
bool cli_repair_teacher(cli_repair *r, const char *whole, rg_error *err) RG_MUST_CHECK;
/* All steps, from the checkpoint beside `beside` on if there is one and the run is resumed; what: for progress. */
bool cli_repair_train(cli_repair *r, const rg_stand_in *stand_in, const char *what, const char *beside,
                      rg_error *err) RG_MUST_CHECK;
/* Weights of a plain type as the model's own are. */
bool cli_repair_write(const cli_repair *r, const char *dir, rg_error *err) RG_MUST_CHECK;
void cli_repair_close(cli_repair *r);

#endif
