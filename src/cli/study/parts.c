/* parts.c -- what studies share besides the frame: the text that is scored, and perplexity. */
#include <math.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/study/study.h"

static const char *calibration_text(void)
{
    static char path[1024];

    snprintf(path, sizeof path, "%s/calibration.txt", cli_models_dir);
    return path;
}

const char *study_text(const study_run *run)
{
    return run->text ? run->text : calibration_text();
}

/* *hash becomes that of a file's bytes behind what was hashed before; of no file it stays what it is. */
static bool hash_file(const char *path, uint64_t *hash, rg_error *err)
{
    char *text;
    size_t n;

    if (rg_path_look(path) != RG_PATH_FILE)
        return true;
    text = cli_text(NULL, path, &n, err);
    *hash = text ? rg_xxh64(text, n, *hash) : 0;
    rg_free(text);
    return text;
}

bool study_text_key(const study_run *run, bool calibrated, char key[STUDY_TEXT_KEY], rg_error *err)
{
    char name[64];
    uint64_t hash = 0;

    if ((calibrated && !hash_file(calibration_text(), &hash, err)) || !hash_file(study_text(run), &hash, err))
        return false;
    snprintf(key, STUDY_TEXT_KEY, "%s %016" PRIx64, study_name(study_text(run), name), hash);
    return true;
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

bool study_perplexity(const study_run *run, const study_model *m, perplexity *s, double *ppl, rg_error *err)
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
    ok = ok && (!text.rest || perplexity_of(path, &quiet, s, ppl, err));
    calibration_fini(&text);
    return ok;
}

bool study_prompts(const study_run *run, const char *path, const study_prompt_shape *z, int32_t *out, rg_error *err)
{
    calibration text = { .file = study_text(run), .ctx = z->n_ids, .score = study_text(run), .n_samples = 1 };
    const size_t n = (size_t)z->n * (size_t)z->n_ids;
    rg_rng rng = { .seed = z->seed };
    bool ok = study_read_ids(path, &text, err);

    for (size_t i = 0; ok && i < n; i++) {
        const size_t stretch = text.rest ? text.n_rest / (size_t)z->n : 0;
        const size_t k = i / (size_t)z->n_ids * stretch + i % (size_t)z->n_ids;

        out[i] = text.rest && k < text.n_rest ? text.rest[k]
                                              : 1 + (int32_t)rg_rng_below(&rng, (uint32_t)z->vocab_size / 2);
    }
    calibration_fini(&text);
    return ok;
}
