/* constraint.c -- see constraint.h. */
#include "cli/constraint.h"

#include <string.h>

#include "base/mem.h"

bool cli_constraint_open(const cli_constraint *v, const rg_engine *e, rg_grammar **out, rg_error *err)
{
    static const struct {
        const char *ending;
        rg_grammar_kind kind;
    } known[] = { { ".gbnf", RG_GRAMMAR_GBNF },
                  { ".lark", RG_GRAMMAR_LARK },
                  { ".json", RG_GRAMMAR_JSON_SCHEMA },
                  { ".regex", RG_GRAMMAR_REGEX } };
    const char *dot = v->file ? strrchr(v->file, '.') : NULL;
    rg_grammar_source source = { .open_objects = v->open_objects };
    size_t i = 0;
    char *text;

    *out = NULL;
    if (!v->file)
        return !v->open_objects || rg_fail(err, RG_E_USAGE, "--open-objects says how --grammar FILE.json is read");
    while (i < RG_LEN(known) && (!dot || strcmp(dot, known[i].ending) != 0))
        i++;
    if (i == RG_LEN(known))
        return rg_fail(err, RG_E_USAGE, "--grammar %s: the name must end with .gbnf, .lark, .json or .regex", v->file);
    text = cli_text(NULL, v->file, &source.n, err);
    if (!text)
        return false;
    source.kind = known[i].kind;
    source.text = text;
    if (source.kind == RG_GRAMMAR_REGEX && source.n && text[source.n - 1] == '\n')
        source.n--; /* the end of the file's line */
    *out = rg_grammar_new(e, &source, err);
    rg_free(text);
    return *out != NULL;
}
