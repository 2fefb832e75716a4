/* regex.c -- see regex.h. */
#define _GNU_SOURCE /* memmem */
#include "text/regex.h"

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/clean.h"
#include "text/same.h"

enum {
    PATTERN_CAP = 1 << 16,
    STEPS_FREE = 1 << 12, /* of backtracking in one match */
    STEPS_BASE = 1 << 22, /* beyond that in all matches of one text, and so many more per byte of it */
    STEPS_PER_BYTE = 64,
    HEAP_CAP_KIB = 64 << 10,
    JIT_STACK_START = 32 << 10,
    JIT_STACK_CAP = 4 << 20,
    AHEAD = 64, /* bytes that a match in a round may look at */
    RUN = 256,  /* and of a text in which rounds are looked for */
};

struct rg_regex {
    pcre2_code *code;
    bool compiled; /* to machine code */
    bool forward;  /* it never looks at what is before the place where a search begins */
    char *literal;
    size_t n_literal;
};

struct rg_matcher {
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    uint32_t steps; /* the limit that the context has */
    uint64_t left;  /* steps that all matches may still cost */
    uint64_t calls;
};

static void *get(size_t n, void *arg)
{
    (void)arg;
    return rg_alloc(n);
}

static void give(void *p, void *arg)
{
    (void)arg;
    rg_free(p);
}

/* ---- Oniguruma's dialect into PCRE2's ---- */

/* What the letters mean there, as the inside of a character class. */
static const struct {
    char letter;
    const char *inside;
} classes[] = {
    { 's', "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}" },
    { 'w', "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" }, /* and, but for within a class, six signs of Latin-1 */
    { 'd', "\\p{Nd}" },
    { 'h', "0-9a-fA-F" },
};

typedef struct rewrite {
    const char *p, *end;
    rg_buf out;
    size_t atom;     /* where in out the last atom starts */
    size_t open[64]; /* where the groups around start */
    int depth;
    bool in_class, lines; /* lines: it asks where a line begins */
    pcre2_compile_context *context;
} rewrite;

/* "\p{Name}" of n bytes at p: for a script, later versions of PCRE2 take in what only may be written in it, unless told
 * otherwise.  True: it is one, and was written so. */
static bool rewrite_script(rewrite *w, size_t n)
{
    char text[64];
    int length = snprintf(text, sizeof text, "\\%c{sc:%.*s}", w->p[1], (int)n - 4, w->p + 3), why;
    pcre2_code *code;
    size_t where;

    if (n < 7 || length >= (int)sizeof text || w->p[3] == '^')
        return false;
    code = pcre2_compile((PCRE2_SPTR)text, (size_t)length, PCRE2_UTF, &why, &where, w->context);
    if (code)
        rg_buf_str(&w->out, text);
    pcre2_code_free(code);
    return code;
}

/* One escape, at the backslash. */
static void rewrite_escape(rewrite *w)
{
    char letter = w->p[1], lower = (char)(letter | 32);
    size_t n = 2;

    for (size_t i = 0; i < RG_LEN(classes); i++) {
        bool negated = letter != lower;
        if (classes[i].letter != lower || (negated && w->in_class))
            continue;
        rg_buf_printf(&w->out, w->in_class ? "%s%s%s" : "[%s%s%s", negated ? "^" : "", classes[i].inside,
                      w->in_class ? "" : lower == 'w' ? "\\xb2\\xb3\\xb9\\xbc-\\xbe]" : "]");
        w->p += 2;
        return;
    }
    if ((letter == 'p' || letter == 'P' || letter == 'x') && w->end - w->p > 2 && w->p[2] == '{') {
        const char *close = memchr(w->p, '}', (size_t)(w->end - w->p));
        n = close ? (size_t)(close + 1 - w->p) : 2;
        if (letter != 'x' && rewrite_script(w, n)) {
            w->p += n;
            return;
        }
    } else {
        n = 1 + (size_t)rg_clean_length(w->p + 1);
    }
    if ((size_t)(w->end - w->p) < n)
        n = (size_t)(w->end - w->p);
    rg_buf_add(&w->out, w->p, n);
    w->p += n;
}

/* A class by name inside a class, at its bracket. */
static bool rewrite_posix(rewrite *w)
{
    static const struct {
        const char *name, *inside;
    } names[] = {
        { "[:alpha:]", "\\p{Alphabetic}" }, { "[:alnum:]", "\\p{Alphabetic}\\p{Nd}" },
        { "[:digit:]", "\\p{Nd}" },         { "[:punct:]", "\\p{P}\\p{S}" },
        { "[:upper:]", "\\p{Uppercase}" },  { "[:lower:]", "\\p{Lowercase}" },
        { "[:xdigit:]", "0-9a-fA-F" },      { "[:space:]", "\\x09-\\x0d\\x85\\p{Z}" },
    };

    for (size_t i = 0; i < RG_LEN(names); i++) {
        size_t n = strlen(names[i].name);
        if ((size_t)(w->end - w->p) >= n && !memcmp(w->p, names[i].name, n)) {
            rg_buf_str(&w->out, names[i].inside);
            w->p += n;
            return true;
        }
    }
    return false;
}

/* The length of "{2}", "{2,}", "{,3}" or "{2,3}" at p, or 0. */
static size_t interval(const char *p, const char *end)
{
    const char *q = p + 1;
    int digits = 0;

    while (q < end && ((*q >= '0' && *q <= '9') || *q == ',')) {
        digits += *q != ',';
        q++;
    }
    return q < end && *q == '}' && digits ? (size_t)(q + 1 - p) : 0;
}

/* There, "x{1,3}+" is x{1,3} repeated; here it would be possessive. */
static bool rewrite_interval(rewrite *w, size_t n)
{
    char tail[64];
    size_t from = w->atom, n_atom = w->out.n - from;
    char *atom = rg_strndup(w->out.data + from, n_atom);

    if (!atom || n >= sizeof tail) {
        w->out.failed |= !atom;
        return rg_free(atom), false;
    }
    memcpy(tail, w->p, n);
    w->out.n = from;
    rg_buf_str(&w->out, "(?:");
    rg_buf_add(&w->out, atom, n_atom);
    rg_buf_add(&w->out, tail, n);
    rg_buf_str(&w->out, ")+");
    rg_free(atom);
    w->p += n + 1;
    return true;
}

/* "(?m:" lets the dot match newlines there, and "^" match at lines here. */
static bool has_dotall(const char *p, const char *end)
{
    if (end - p < 3 || p[1] != '?')
        return false;
    for (p += 2; p < end && strchr("imx-", *p); p++)
        if (*p == 'm')
            return true;
    return false;
}

static bool rewrite_one(rewrite *w)
{
    size_t n;

    if (w->in_class) {
        if (*w->p == '\\' && w->end - w->p > 1)
            return rewrite_escape(w), true;
        if (*w->p == ']')
            w->in_class = false;
        if (*w->p == '[' && w->end - w->p > 2 && w->p[1] == ':')
            return rewrite_posix(w);
        /* The other brackets inside a class are unions, and this is an intersection. */
        if (*w->p == '[' || (*w->p == '&' && w->end - w->p > 1 && w->p[1] == '&'))
            return false;
        rg_buf_add(&w->out, w->p++, 1);
        return true;
    }
    n = *w->p == '{' ? interval(w->p, w->end) : 0;
    if (n && w->p + n < w->end && w->p[n] == '+')
        return rewrite_interval(w, n);
    if (n || strchr("*+?", *w->p)) {
        rg_buf_add(&w->out, w->p, n ? n : 1);
        w->p += n ? n : 1;
        return true;
    }
    w->atom = w->out.n;
    if (*w->p == '\\' && w->end - w->p > 1)
        return rewrite_escape(w), true;
    if (*w->p == '(') {
        if (w->depth == (int)RG_LEN(w->open) || has_dotall(w->p, w->end))
            return false;
        w->open[w->depth++] = w->out.n;
    } else if (*w->p == ')' && w->depth) {
        w->atom = w->open[--w->depth];
    }
    w->lines |= *w->p == '^';
    n = (size_t)rg_clean_length(w->p);
    if (*w->p == '[') {
        w->in_class = true;
        n += (size_t)(w->end - w->p > 1 && w->p[1] == '^');
        n += (size_t)((size_t)(w->end - w->p) > n && w->p[n] == ']'); /* a bracket that comes first is itself */
    }
    rg_buf_add(&w->out, w->p, n);
    w->p += n;
    return true;
}

/* ---- compiling ---- */

static rg_regex *compile(const char *pattern, size_t n, uint32_t options, pcre2_compile_context *context, rg_error *err)
{
    rg_regex *r = rg_zalloc(sizeof *r);
    int why = 0;
    size_t where = 0;
    uint32_t back = 1;

    if (!r) {
        rg_fail_memory(err, n);
        return NULL;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 50);
    r->code = pcre2_compile((PCRE2_SPTR)pattern, n, options | PCRE2_UTF | PCRE2_NO_UTF_CHECK, &why, &where, context);
    if (!r->code) {
        if (why == PCRE2_ERROR_HEAP_FAILED)
            rg_fail_memory(err, n);
        else
            rg_fail(err, RG_E_UNSUPPORTED,
                    "a regular expression is not one that ridge can compile (PCRE2 error %d at byte "
                    "%zu of its rewritten form)",
                    why, where);
        rg_regex_free(r);
        return NULL;
    }
    r->compiled = !pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without it, matching is only slower */
    pcre2_pattern_info(r->code, PCRE2_INFO_MAXLOOKBEHIND, &back);
    r->forward = !back;
    return r;
}

rg_regex *rg_regex_new(const char *pattern, size_t n, rg_error *err)
{
    rewrite w = { .p = pattern, .end = pattern + n };
    pcre2_general_context *general;
    rg_regex *r = NULL;
    bool ok = true;

    rg_buf_init(&w.out, 64 * PATTERN_CAP);
    if (n > PATTERN_CAP)
        return rg_fail(err, RG_E_UNSUPPORTED, "a regular expression of %zu bytes, more than %d", n, PATTERN_CAP), NULL;
    if (!rg_utf8_valid(pattern, n))
        return rg_fail(err, RG_E_INPUT, "a regular expression is not UTF-8"), NULL;
    general = pcre2_general_context_create(get, give, NULL);
    w.context = general ? pcre2_compile_context_create(general) : NULL;
    if (!w.context) {
        pcre2_general_context_free(general);
        return rg_fail_memory(err, n), NULL;
    }
    while (ok && w.p < w.end)
        ok = rewrite_one(&w);
    if (w.out.failed)
        rg_fail_memory(err, n);
    else if (!ok)
        rg_fail(err, RG_E_UNSUPPORTED, "a regular expression uses a class or nesting that ridge does not support");
    else
        r = compile(w.out.data ? w.out.data : "", w.out.n, PCRE2_UCP | PCRE2_MULTILINE, w.context, err);
    if (r)
        r->forward &= !w.lines;
    pcre2_compile_context_free(w.context);
    pcre2_general_context_free(general);
    rg_buf_fini(&w.out);
    return r;
}

rg_regex *rg_regex_literal(const char *text, size_t n, rg_error *err)
{
    rg_regex *r;

    if (!n || !rg_utf8_valid(text, n))
        return rg_fail(err, RG_E_INPUT, "a pattern is empty or not UTF-8"), NULL;
    r = rg_zalloc(sizeof *r);
    if (!r || !(r->literal = rg_strndup(text, n)))
        return rg_free(r), rg_fail_memory(err, n), NULL;
    r->n_literal = n;
    r->forward = true;
    return r;
}

void rg_regex_free(rg_regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    rg_free(r->literal);
    rg_free(r);
}

/* ---- matching ---- */

rg_matcher *rg_matcher_new(size_t n, rg_error *err)
{
    rg_matcher *m = rg_zalloc(sizeof *m);

    if (m && (m->general = pcre2_general_context_create(get, give, NULL)) &&
        (m->context = pcre2_match_context_create(m->general)) && (m->data = pcre2_match_data_create(1, m->general))) {
        pcre2_set_heap_limit(m->context, HEAP_CAP_KIB);
        m->left = STEPS_BASE + (uint64_t)STEPS_PER_BYTE * n;
        return m;
    }
    rg_matcher_free(m);
    rg_fail_memory(err, sizeof *m);
    return NULL;
}

void rg_matcher_free(rg_matcher *m)
{
    if (!m)
        return;
    pcre2_jit_stack_free(m->stack);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_general_context_free(m->general);
    rg_free(m);
}

uint64_t rg_matcher_calls(const rg_matcher *m)
{
    return m->calls;
}

static int run(const rg_regex *r, rg_matcher *m, const char *text, size_t n, size_t at)
{
    return r->compiled ? pcre2_jit_match(r->code, (PCRE2_SPTR)text, n, at, 0, m->data, m->context)
                       : pcre2_match(r->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
}

/* One match within a limit of steps.  Steps beyond the first few are charged to the budget of the whole text, so that a
 * pattern that looks far ahead from every character ends too. */
static int match(const rg_regex *r, rg_matcher *m, const char *text, size_t n, size_t at)
{
    uint32_t steps = STEPS_FREE;
    int got;

    for (;; steps *= 4) {
        if (m->steps != steps)
            pcre2_set_match_limit(m->context, m->steps = steps);
        got = run(r, m, text, n, at);
        if (got == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
            /* Compiled patterns start on 32 KiB of the thread's own stack: almost always enough. */
            m->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_CAP, m->general);
            if (!m->stack)
                return PCRE2_ERROR_NOMEMORY;
            pcre2_jit_stack_assign(m->context, NULL, m->stack);
            got = run(r, m, text, n, at);
        }
        if (got != PCRE2_ERROR_MATCHLIMIT || m->left <= 4 * (uint64_t)steps || steps > UINT32_MAX / 4)
            return got;
        m->left -= 4 * (uint64_t)steps;
    }
}

/* The next match that does not start before the walk's place, which moves past it. */
static int next_at(const rg_regex *r, rg_matcher *m, const char *text, size_t n, rg_walk *walk, rg_extent *found,
                   rg_error *err)
{
    size_t *at = &walk->at;
    const size_t *ends;
    int got;

    if (*at > n)
        return 0;
    m->calls++;
    if (r->literal) {
        bool here = n - *at >= r->n_literal && !memcmp(text + *at, r->literal, r->n_literal);
        const char *p = here ? text + *at : memmem(text + *at, n - *at, r->literal, r->n_literal);
        if (!p)
            return 0;
        *found = (rg_extent){ (size_t)(p - text), (size_t)(p - text) + r->n_literal };
        *at = found->to;
        return 1;
    }
    got = match(r, m, text, n, *at);
    if (got == PCRE2_ERROR_NOMATCH)
        return 0;
    if (got == PCRE2_ERROR_NOMEMORY)
        return rg_fail_memory(err, 0), -1;
    if (got < 0)
        return rg_fail(err, RG_E_LIMIT,
                       "a regular expression of the tokenizer takes too long on this text (PCRE2 error %d)", got),
               -1;
    ends = pcre2_get_ovector_pointer(m->data);
    if (ends[0] < *at || ends[1] < ends[0]) /* \K and look-behind can say such things */
        return rg_fail(err, RG_E_UNSUPPORTED, "a regular expression of the tokenizer matches backwards"), -1;
    *found = (rg_extent){ ends[0], ends[1] };
    *at = ends[1];
    if (ends[0] == ends[1])
        *at += ends[1] < n ? (size_t)rg_clean_length(text + ends[1]) : 1;
    return 1;
}

/* ---- texts that say the same again and again ---- */

/* The first match in p[0, n), if nothing that comes after can change it. */
static bool match_ahead(const rg_regex *r, rg_matcher *m, const char *p, size_t n, rg_extent *found)
{
    const size_t *ends = pcre2_get_ovector_pointer(m->data);
    const char *literal = r->literal ? memmem(p, n, r->literal, r->n_literal) : NULL;

    m->calls++;
    if (literal)
        *found = (rg_extent){ (size_t)(literal - p), (size_t)(literal - p) + r->n_literal };
    if (r->literal)
        return literal;
    if (pcre2_match(r->code, (PCRE2_SPTR)p, n, 0, PCRE2_NO_UTF_CHECK | PCRE2_PARTIAL_HARD, m->data, m->context) < 0)
        return false;
    *found = (rg_extent){ ends[0], ends[1] };
    return ends[1] != n;
}

/* Find the matches of one round, from the walk's place to a period on; no match is empty.  A match that is found in
 * the next few bytes without a look at what comes after them is found wherever they stand. */
static bool match_round(const rg_regex *r, rg_matcher *m, const char *text, rg_walk *walk)
{
    size_t at = walk->at, end = at + walk->period;

    pcre2_set_match_limit(m->context, m->steps = STEPS_FREE);
    for (walk->n_round = walk->turn = 0; at < end && walk->n_round < RG_ROUND; walk->n_round++) {
        size_t n = AHEAD;
        rg_extent s = { 0 };
        while (((unsigned char)text[at + n] & 0xC0) == 0x80)
            n--;
        if (!match_ahead(r, m, text + at, n, &s) || s.from >= s.to)
            break;
        walk->round[walk->n_round] = (rg_extent){ at + s.from, at + s.to };
        at += s.to;
    }
    if (at != end)
        walk->n_round = 0;
    return walk->n_round;
}

/* After a match that is not empty: true if the text from here on repeats the text before the last few matches. */
static void find_round(const rg_regex *r, rg_matcher *m, const char *text, size_t n, rg_walk *walk)
{
    size_t at = walk->at;

    for (int k = 0; k < RG_ROUND && at > walk->end[k] && n - at >= RUN; k++) {
        if (memcmp(text + walk->end[k], text + at, sizeof(uint64_t)))
            continue;
        walk->until = rg_same_to(text, n, walk->end[k], at);
        walk->period = at - walk->end[k];
        if (walk->until - at < RUN || walk->until - at < walk->period + AHEAD + 4)
            continue;
        if (!match_round(r, m, text, walk))
            walk->barren = walk->until;
        return;
    }
}

static int next_of_round(rg_walk *walk, rg_extent *found)
{
    rg_extent *s = &walk->round[walk->turn];

    *found = *s;
    s->from += walk->period;
    s->to += walk->period;
    walk->turn = walk->turn + 1 < walk->n_round ? walk->turn + 1 : 0;
    walk->at = walk->done = found->to;
    return 1;
}

int rg_regex_next(const rg_regex *r, rg_matcher *m, const char *text, size_t n, rg_walk *walk, rg_extent *found,
                  rg_error *err)
{
    size_t before = walk->at;
    int got;

    if (walk->n_round && walk->at + AHEAD <= walk->until)
        return next_of_round(walk, found);
    do
        got = next_at(r, m, text, n, walk, found, err);
    while (got > 0 && walk->matched && found->to == walk->done);
    if (got <= 0)
        return got;
    walk->done = found->to;
    walk->matched = true;
    if (walk->n_round) { /* the ends are of before the rounds */
        walk->n_round = 0;
        memset(walk->end, 0xFF, sizeof walk->end);
    }
    memmove(walk->end + 1, walk->end, sizeof walk->end - sizeof *walk->end);
    walk->end[0] = before;
    if (r->forward && found->from < found->to && walk->at >= walk->barren)
        find_round(r, m, text, n, walk);
    return got;
}
