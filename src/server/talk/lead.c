/* lead.c -- what may come before the part of an answer that a grammar binds: reasoning, and the opening of a text; see
 * force.h. */
#include "server/json.h"
#include "server/talk/force.h"
#include "server/talk/inner.h"

enum { MAX_GRAMMAR = 4 << 20, MAX_THOUGHTS = 16 };

/* What is left of a head's beginning where the prompt has opened the head. */
static const char *opened(const rg_talk_heads *h, const char *s)
{
    const char *rest = s;

    for (size_t i = 0; i < RG_LEN(h->open) && h->open[i]; i++)
        for (const char *at = s; (at = strstr(at, h->open[i])); at += strlen(h->open[i]))
            rest = at + strlen(h->open[i]) > rest ? at + strlen(h->open[i]) : rest;
    return rest;
}

/* Between the end of reasoning and the next message. */
static void write_next(rg_buf *b, const rg_talk *t)
{
    const char *again = t->heads->again, *close = t->think[0].close;

    rg_gbnf_literal(b, again + (!strncmp(again, close, strlen(close)) ? strlen(close) : 0));
}

void rg_gbnf_thoughts(rg_buf *b, const rg_talk *t, bool thinks)
{
    rg_buf_str(b, "\nthoughts ::=");
    if (!thinks || !t->think[0].open) {
        rg_buf_str(b, " \"\"");
        return;
    }
    rg_buf_str(b, " (");
    rg_gbnf_literal(b, t->think[0].open);
    rg_gbnf_until(b, t->think[0].close);
    write_next(b, t);
    rg_buf_printf(b, " ){0,%d}", MAX_THOUGHTS);
}

void rg_gbnf_head(rg_buf *b, const rg_talk *t, rg_talk_start start, bool thinks, const char *open)
{
    const rg_talk_heads *h = t->heads;

    if (start == RG_START_THINKING) {
        rg_gbnf_until(b, t->think[0].close);
        write_next(b, t);
    } else if (start == RG_START_HEAD) {
        rg_buf_str(b, " (");
        rg_buf_str(b, *opened(h, open) ? "" : " \"\"");
        rg_gbnf_literal(b, opened(h, open));
        if (thinks && t->think[0].open) {
            rg_buf_str(b, " |");
            rg_gbnf_literal(b, opened(h, t->think[0].open));
            rg_gbnf_until(b, t->think[0].close);
            write_next(b, t);
            rg_buf_str(b, " thoughts");
            rg_gbnf_literal(b, open);
        }
        rg_buf_str(b, " )");
        return;
    }
    rg_buf_str(b, " thoughts");
    rg_gbnf_literal(b, open);
}

void rg_gbnf_thought(rg_buf *b, const rg_talk *t, rg_talk_start start, int think, bool thinks)
{
    bool any = false;

    if (start == RG_START_THINKING) {
        rg_gbnf_until(b, t->think[think].close);
        rg_buf_str(b, " \"\\n\"{0,2}");
        return;
    }
    if (!thinks || !t->think[0].open)
        return;
    rg_buf_str(b, " (");
    for (int i = 0; i < RG_TALK_THINKS && t->think[i].open; i++) {
        if (i && !strcmp(t->think[i].open, t->think[i - 1].open))
            continue;
        rg_buf_str(b, any ? " |" : "");
        rg_gbnf_literal(b, t->think[i].open);
        rg_gbnf_until(b, t->think[i].close);
        rg_buf_str(b, " \"\\n\"{0,2}");
        any = true;
    }
    rg_buf_str(b, " )?");
}

bool rg_force_lead(const rg_talk *t, rg_talk_start start, int think, bool thinks, const rg_constraint *c,
                   rg_constraint *led, rg_refusal *e)
{
    static const char *const syntax[] = {
        [RG_GRAMMAR_GBNF] = "gbnf", [RG_GRAMMAR_REGEX] = "regex", [RG_GRAMMAR_CHOICE] = "choice",
        [RG_GRAMMAR_JSON] = "json", [RG_GRAMMAR_LARK] = "lark",   [RG_GRAMMAR_JSON_SCHEMA] = "json_schema"
    };
    json_t *v;
    char *source;
    rg_buf b;

    *led = (rg_constraint){ 0 };
    thinks &= think >= 0 && t->think[0].open;
    if ((t->heads && think < 0) || (start == RG_START_PLAIN && !thinks && !t->say[0]))
        return true;
    v = json_pack("{s:s, s:o}", "syntax", syntax[c->kind], "definition",
                  json_stringn_nocheck(c->text ? c->text : "", c->n));
    source = v ? rg_body_dump(v) : NULL;
    json_decref(v);
    rg_buf_init(&b, MAX_GRAMMAR);
    rg_buf_str(&b, "root ::=");
    if (t->heads)
        rg_gbnf_head(&b, t, start, thinks, t->heads->say);
    else
        rg_gbnf_thought(&b, t, start, think, thinks);
    if (t->say[0]) {
        rg_buf_str(&b, " (");
        rg_gbnf_literal(&b, t->say[0]);
        rg_buf_str(&b, " )?");
    }
    rg_buf_printf(&b, " %%grammar %s", source ? source : "{}");
    if (t->say[0]) {
        rg_buf_str(&b, " (");
        rg_gbnf_literal(&b, t->say[1]);
        rg_buf_str(&b, " )?");
    }
    if (t->heads)
        rg_gbnf_thoughts(&b, t, thinks);
    rg_buf_str(&b, "\n");
    if (!source || b.failed) {
        const bool over = source && b.over;
        rg_buf_fini(&b);
        rg_free(source);
        return over ? rg_refuse_field(e, c->name, "'%s' is too large.", c->name) : rg_refuse_memory(e);
    }
    rg_free(source);
    *led = (rg_constraint){ c->name, RG_GRAMMAR_GBNF, b.data, b.n, c->open_objects };
    return true;
}
