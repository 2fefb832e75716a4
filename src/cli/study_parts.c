/* study_parts.c -- what studies share besides the frame: the text that is scored, and perplexity. */
#include <math.h>
#include <stdio.h>

#include "cli/study.h"

const char *study_text(const study_run *run)
{
    static char path[1024];

    snprintf(path, sizeof path, "%s/calibration.txt", cli_models_dir);
    return run->text ? run->text : path;
}

bool study_read_ids(const char *path, calibration *c, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    rg_tokenizer *t = ckpt ? rg_tokenizer_open(ckpt, err) : NULL;
    bool ok = t ? calibration_read(c, t, err) : ckpt && err->code == RG_OK;

    rg_tokenizer_close(t);
    rg_checkpoint_close(ckpt);
    return ok;
}

bool study_needs_tokenizer(const char *path, rg_error *err)
{
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: the checkpoint has no tokenizer", path);
}

bool study_perplexity(const study_run *run, const study_model *m, scoring *s, double *ppl, rg_error *err)
{
    const char *file = study_text(run);
    calibration text = { .file = file, .ctx = run->ctx, .score = file, .n_samples = 1 };
    cli_common quiet = *run->common;
    char path[1024];

    quiet.quiet = true;
    quiet.recipe = "exact";
    *ppl = NAN;
    if (!cli_find_model(m->given, path, sizeof path, err))
        return false;
    bool ok = study_read_ids(path, &text, err);
    s->text = text.rest;
    s->n_text = text.n_rest;
    s->file = text.path;
    s->ctx = run->ctx;
    s->quiet = true;
    ok = ok && (!text.rest || scoring_of(path, &quiet, s, ppl, err));
    calibration_fini(&text);
    return ok;
}
