/* jinja.c -- see jinja.h: a template's life, and a render's. */
#include "text/jinja.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/jinja/vm.h"

void rg_jinja_free(rg_jinja *j)
{
    if (!j)
        return;
    jj_free_all(&j->c);
    rg_free(j->code);
    rg_free(j->line);
    rg_free(j->constant);
    rg_free(j->name);
    rg_free(j->ref);
    rg_free(j->place);
    rg_free(j->scope);
    rg_free(j->attr);
    rg_free(j->call);
    rg_free(j->macro);
    rg_free(j->def);
    rg_free(j);
}

rg_jinja *rg_jinja_parse(const char *source, size_t n, rg_error *err)
{
    rg_jinja *j;
    bool ok;

    if (n > RG_JINJA_SOURCE_BYTES)
        return rg_fail(err, RG_E_LIMIT, "a chat template of %zu bytes, more than %d", n, RG_JINJA_SOURCE_BYTES), NULL;
    j = rg_zalloc(sizeof *j);
    if (!j)
        return rg_fail_memory(err, sizeof *j), NULL;
    j->c = (jj_ctx){ .line = 1, .err = err, .seed = rg_seed() };
    ok = jj_compile(j, &j->c, source, n);
    j->c.err = NULL;
    if (ok)
        return j;
    rg_jinja_free(j);
    return NULL;
}

static bool start(jj_vm *v, const rg_jinja_input *input)
{
    const rg_jinja *j = v->j;

    v->stack = rg_alloc_tail(0, JJ_STACK, sizeof *v->stack);
    if (!v->stack)
        return jj_no_memory(&v->c, JJ_STACK * sizeof *v->stack);
    if (!jj_new_dict(&v->c, &v->trusted, false) || !jj_new_dict(&v->c, &v->foreign, true) ||
        (input->trusted && !jj_from_json(&v->c, input->trusted, true, &v->trusted)) ||
        (input->foreign && !jj_from_foreign(&v->c, input->foreign, &v->foreign)))
        return false;
    if (v->trusted.type != JJ_DICT || v->foreign.type != JJ_DICT)
        return jj_fail(&v->c, "the variables are not an object");
    v->c.bytes = 0; /* the caller's values do not count against the template's budget */
    v->variable = jj_array(&v->c, j->n_names, sizeof *v->variable);
    v->spare_frame = jj_array(&v->c, j->n_scopes, sizeof(jj_frame *));
    if (!v->variable || !v->spare_frame)
        return false;
    v->frame = jj_frame_new(v, 0, NULL);
    return v->frame;
}

/* Remove what was written. */
static void take_back(rg_text *out, const rg_text *before)
{
    out->bytes.n = before->bytes.n;
    out->bytes.failed = before->bytes.failed;
    if (out->bytes.data)
        out->bytes.data[out->bytes.n] = 0;
    out->n_runs = before->n_runs;
    if (out->n_runs)
        out->run[out->n_runs - 1].end = out->bytes.n;
}

bool rg_jinja_render(const rg_jinja *j, const rg_jinja_input *input, rg_text *out, rg_error *err)
{
    rg_text before = *out;
    jj_vm *v = rg_zalloc(sizeof *v);
    bool ok;

    if (!v)
        return rg_fail_memory(err, sizeof *v);
    v->c = (jj_ctx){ .err = err, .seed = j->c.seed, .now_s = input->now_s, .line = 1 };
    v->j = j;
    v->out = out;
    ok = start(v, input) && jj_vm_run(v);
    if (input->cost)
        *input->cost = (rg_jinja_cost){ .bytes = v->c.bytes, .steps = v->c.steps / JJ_STEP };
    if (!ok)
        take_back(out, &before);
    jj_free_all(&v->c);
    rg_free(v->stack);
    rg_free(v);
    return ok;
}
