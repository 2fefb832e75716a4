/* study_parts.c -- what studies share: a model's perplexity, rows of an earlier run, lines of a picture. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/calibration.h"
#include "cli/study.h"

enum { FILE_CAP = 1 << 20 };

const char *study_shipped_text(void)
{
    static char path[1024];

    snprintf(path, sizeof path, "%s/calibration.txt", cli_models_dir);
    return path;
}

/* The ids of the text, by the model's tokenizer; none, where it has none. */
static bool read_text(const char *path, calibration *text, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    rg_tokenizer *t = ckpt ? rg_tokenizer_open(ckpt, err) : NULL;
    bool ok = t ? calibration_read(text, t, err) : ckpt && err->code == RG_OK;

    rg_tokenizer_close(t);
    rg_checkpoint_close(ckpt);
    return ok;
}

bool study_perplexity(const char *model, const cli_common *common, const char *file, int32_t ctx, scoring *s,
                      double *ppl, rg_error *err)
{
    char path[1024];
    calibration text = { .file = file, .ctx = ctx, .score = file, .n_samples = 1 };
    cli_common quiet = *common;

    quiet.quiet = true;
    quiet.recipe = "exact";
    if (!cli_find_model(model, path, sizeof path, err))
        return false;
    bool ok = read_text(path, &text, err);
    s->text = text.rest;
    s->n_text = text.n_rest;
    s->file = text.path;
    s->ctx = ctx;
    s->quiet = true;
    *ppl = -1;
    ok = ok && (!text.rest || scoring_of(path, &quiet, s, ppl, err));
    calibration_fini(&text);
    return ok;
}

/* ---- rows of an earlier run -------------------------------------------------------------------------------------- */

bool study_read_rows(const char *csv, bool resume, const char *header, char **text, rg_error *err)
{
    size_t n;

    *text = NULL;
    if (!resume || !csv || rg_path_look(csv) == RG_PATH_NONE)
        return true;
    *text = rg_file_slurp(csv, FILE_CAP, &n, err);
    if (!*text || !strncmp(*text, header, strlen(header)))
        return *text;
    rg_free(*text);
    *text = NULL;
    return rg_fail(err, RG_E_INPUT, "%s: is no file of this study", csv);
}

const char *study_find_row(const char *text, const char *start)
{
    const char *found = NULL;

    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (!strncmp(line, start, strlen(start)))
            found = line + strlen(start);
    return found;
}

/* ---- a picture --------------------------------------------------------------------------------------------------- */

void study_add_point(rg_curve *lines, char (*names)[80], int *n_lines, const char *name, double x, double y)
{
    int k = 0;

    while (k < *n_lines && strcmp(names[k], name))
        k++;
    if (k == *n_lines) {
        snprintf(names[k], sizeof names[k], "%s", name);
        lines[k] = (rg_curve){ .name = names[k] };
        ++*n_lines;
    }
    if (lines[k].n < RG_LINES_POINTS)
        lines[k].point[lines[k].n++] = (rg_lines_point){ x, y, true };
}
