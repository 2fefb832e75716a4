/* answer.c -- see answer.h.  A finite automaton over the text that is held back: each turn either moves some of it to
 * where it belongs, or waits for more. */
#define _GNU_SOURCE 1 /* memmem */
#include "server/answer.h"

#include <string.h>

#include "base/mem.h"

static const char think[] = "<think>", think_end[] = "</think>";

enum { MAX_BLANKS = 64 }; /* most blanks that are held back until their successor is known */

enum {
    AT_START,  /* only blanks so far */
    WORDS,
    REASONING,
    CALLS,     /* after an opening mark, up to its closing one or the end */
    MAYBE_BARE /* the answer began like JSON: up to the end */
};

void rg_answer_init(rg_answer *a, const json_t *tools, bool reasoning_first, size_t cap)
{
    *a = (rg_answer){ .tools = json_array_size(tools) ? tools : NULL, .state = reasoning_first ? REASONING : AT_START };
    rg_buf_init(&a->reasoning, cap);
    rg_buf_init(&a->content, cap);
    rg_buf_init(&a->held, cap);
}

void rg_answer_fini(rg_answer *a)
{
    for (int i = 0; i < a->n_calls; i++) {
        rg_free(a->call[i].name);
        rg_free(a->call[i].arguments);
    }
    rg_free(a->call);
    rg_buf_fini(&a->reasoning);
    rg_buf_fini(&a->content);
    rg_buf_fini(&a->held);
    *a = (rg_answer){ 0 };
}

bool rg_answer_is_reasoning(const rg_answer *a)
{
    return a->state == REASONING;
}

bool rg_answer_is_call(const rg_answer *a)
{
    return a->state == CALLS;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Drop the first n held bytes. */
static void consume(rg_answer *a, size_t n)
{
    memmove(a->held.data, a->held.data + n, a->held.n - n);
    a->held.n -= n;
    a->work += a->held.n;
    a->scanned = 0;
}

static void move_to(rg_answer *a, rg_buf *to, size_t n)
{
    if (n && !rg_buf_add(to, a->held.data, n))
        a->failed = true;
    consume(a, n);
}

/* How many of the last bytes of s[0, n) could be the beginning of mark. */
static size_t partial(const char *s, size_t n, const char *mark)
{
    size_t most = strlen(mark) - 1;

    for (size_t k = n < most ? n : most; k; k--)
        if (!memcmp(s + n - k, mark, k))
            return k;
    return 0;
}

static bool starts_with(const rg_answer *a, const char *mark)
{
    size_t n = strlen(mark);

    return a->held.n >= n && !memcmp(a->held.data, mark, n);
}

/* Reasoning ends at its mark.  The blanks around the mark are dropped. */
static bool turn_reasoning(rg_answer *a, bool last)
{
    a->work += a->held.n;
    const char *end = memmem(a->held.data, a->held.n, think_end, strlen(think_end));
    size_t n = end ? (size_t)(end - a->held.data) : a->held.n, blanks = 0, lead = 0;

    if (!end && !last)
        n -= partial(a->held.data, n, think_end);
    while (lead < n && !a->reasoning.n && is_space(a->held.data[lead]))
        lead++;
    consume(a, lead);
    n -= lead;
    while ((end || !last) && blanks < n && blanks < MAX_BLANKS && is_space(a->held.data[n - 1 - blanks]))
        blanks++; /* may be the last blanks before the mark */
    move_to(a, &a->reasoning, n - blanks);
    if (!end)
        return false;
    consume(a, blanks + strlen(think_end));
    a->state = AT_START;
    return true;
}

/* The first n bytes of s could be, or are, the beginning of mark. */
static bool may_be(const char *s, size_t n, const char *mark)
{
    size_t most = strlen(mark);

    return !memcmp(s, mark, n < most ? n : most);
}

static bool turn_start(rg_answer *a, bool last)
{
    static const char mistral[] = "[TOOL_CALLS]";
    size_t blanks = 0, n;

    while (blanks < a->held.n && is_space(a->held.data[blanks]))
        blanks++;
    a->work += blanks + 1;
    if (blanks == a->held.n && !last && blanks < MAX_BLANKS)
        return false;
    const char *s = a->held.data + blanks;
    n = a->held.n - blanks;
    if (n && !last && ((n < strlen(think) && may_be(s, n, think)) || (n < strlen(mistral) && may_be(s, n, mistral))))
        return false; /* more text decides what it is */
    if (n >= strlen(think) && may_be(s, n, think) && !a->reasoning.n) {
        consume(a, blanks + strlen(think));
        a->state = REASONING;
    } else if (a->tools && !a->marked && n && (*s == '{' || (*s == '[' && !may_be(s, n, mistral)))) {
        a->state = MAYBE_BARE;
    } else {
        if (a->reasoning.n)
            consume(a, blanks); /* blanks between reasoning and text */
        a->state = WORDS;
    }
    return true;
}

static bool turn_words(rg_answer *a, bool last)
{
    size_t at = a->held.n, keep = 0;
    const rg_tool_mark *mark = NULL;

    for (const rg_tool_mark *m = rg_tool_marks; a->tools && m->open; m++) {
        a->work += at;
        const char *found = memmem(a->held.data, at, m->open, strlen(m->open));
        if (found || (at < a->held.n && starts_with(a, m->open))) {
            at = found ? (size_t)(found - a->held.data) : 0;
            mark = m;
        }
        size_t k = partial(a->held.data, a->held.n, m->open);
        keep = k > keep ? k : keep;
    }
    if (!mark) {
        keep = last ? 0 : keep;
        while (!last && a->tools && keep < a->held.n && keep < MAX_BLANKS &&
               is_space(a->held.data[a->held.n - 1 - keep]))
            keep++; /* blanks before a call are not text */
        move_to(a, &a->content, a->held.n - keep);
        return false;
    }
    size_t words = at;
    while (words && is_space(a->held.data[words - 1]))
        words--;
    move_to(a, &a->content, words);
    consume(a, at - words + strlen(mark->open));
    a->mark = mark;
    a->state = CALLS;
    return true;
}

/* The first n held bytes looked like calls: read them as calls, else they are text. */
static void take_calls(rg_answer *a, size_t n, size_t n_close)
{
    if (a->mark->read(a, a->held.data, n)) {
        consume(a, n + n_close);
        return;
    }
    if (!rg_buf_str(&a->content, a->mark->open))
        a->failed = true;
    move_to(a, &a->content, n + n_close);
}

static bool turn_calls(rg_answer *a, bool last)
{
    const char *close = a->mark->close;
    size_t n_close = close ? strlen(close) : 0, from = a->scanned;
    const char *end = close ? memmem(a->held.data + from, a->held.n - from, close, n_close) : NULL;

    a->work += a->held.n - from;
    a->scanned = a->held.n > n_close ? a->held.n - n_close : 0;
    if (!end && !last)
        return false;
    take_calls(a, end ? (size_t)(end - a->held.data) : a->held.n, end ? n_close : 0);
    a->state = WORDS;
    return true;
}

static bool turn_bare(rg_answer *a, bool last)
{
    if (!last)
        return false;
    if (rg_tools_bare(a, a->held.data, a->held.n))
        consume(a, a->held.n);
    a->state = WORDS;
    return true;
}

static void run(rg_answer *a, bool last)
{
    static bool (*const turn[])(rg_answer *, bool) = {
        [AT_START] = turn_start, [WORDS] = turn_words, [REASONING] = turn_reasoning, [CALLS] = turn_calls,
        [MAYBE_BARE] = turn_bare
    };

    while (a->held.n && turn[a->state](a, last))
        ;
}

void rg_answer_feed(rg_answer *a, const char *text, size_t n)
{
    if (!n)
        return;
    if (!rg_buf_add(&a->held, text, n))
        a->failed = true;
    run(a, false);
}

void rg_answer_end(rg_answer *a)
{
    run(a, true);
}

bool rg_answer_open_call(const rg_answer *a, rg_buf *to)
{
    if (a->state == REASONING)
        return true;
    if (a->state == CALLS && !rg_buf_str(to, a->mark->open))
        return false;
    return !a->held.n || rg_buf_add(to, a->held.data, a->held.n);
}
