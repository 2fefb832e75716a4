/* write_gguf.c -- a GGUF file of what was made: the converter writes it, and asks here for rows of coded tensors. */
#include <string.h>

#include "base/mem.h"
#include "shrink/packing.h"
#include "shrink/targets.h"

typedef struct giving {
    const rg_targets *p;
    rg_results *r;
    const bool *folded;
    const rg_tensor *t; /* that is in memory */
    rg_coded coded;
    float *values;
} giving;

static bool type_of(void *arg, const rg_tensor *t, rg_type *type)
{
    const giving *g = arg;
    const rg_becomes what = rg_targets_becomes(g->p, t, g->folded);

    *type = RG_F32;
    return what == RG_CODED ? rg_packing_gguf(&g->p->o->coding, type) : what != RG_STAYS;
}

static void drop(giving *g)
{
    rg_coded_fini(&g->coded);
    rg_free(g->values);
    g->values = NULL;
    g->t = NULL;
}

static bool rows_of(void *arg, const rg_tensor *t, int64_t row, uint8_t *to, rg_error *err)
{
    giving *g = arg;
    const int64_t cols = rg_tensor_cols(t);
    rg_type type;

    if (g->t != t) {
        rg_becomes what = rg_targets_becomes(g->p, t, g->folded);
        drop(g);
        if (!rg_targets_result(g->p, g->r, t, &what, &g->coded, &g->values, err))
            return false;
        g->t = t;
    }
    type_of(g, t, &type);
    if (g->values)
        memcpy(to, g->values + row * cols, (size_t)cols * sizeof *g->values);
    else
        rg_packing_blocks(&g->coded, type, row, to);
    return true;
}

bool rg_write_gguf(const rg_targets *p, rg_results *r, const bool *folded, const char *to, uint64_t *bytes,
                   char warning[RG_CONVERT_WARNING], rg_error *err)
{
    giving g = { .p = p, .r = r, .folded = folded };
    const rg_weight *embed = rg_weights_get(p->set, W_EMBED_TOKENS, -1);
    const rg_type plain = embed && (embed->type == RG_F32 || embed->type == RG_BF16) ? embed->type : RG_F16;
    const rg_convert_coded coded = { &g, type_of, rows_of };
    rg_convert_options o = {
        .type = plain, .n_threads = p->o->n_threads, .vocabulary = p->o->vocabulary, .coded = &coded
    };
    rg_convert_report report;
    bool ok = rg_convert(&report, p->from, to, &o, err);

    *bytes = report.bytes;
    memcpy(warning, report.warning, RG_CONVERT_WARNING);
    rg_convert_report_fini(&report);
    drop(&g);
    return ok;
}
