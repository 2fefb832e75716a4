/* added.c -- see added.h. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/charclass.h"
#include "text/clean.h"

void rg_added_fini(rg_added_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        rg_free(s->tokens[i].text);
    rg_free(s->tokens);
    *s = (rg_added_set){ 0 };
}

bool rg_added_add(rg_added_set *s, const rg_added *token, rg_error *err)
{
    if (!token->n || token->n > RG_ADDED_BYTES)
        return rg_fail(err, RG_E_INPUT, "added token %d has %zu bytes, where 1 to %d are allowed", token->id, token->n,
                       RG_ADDED_BYTES);
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        rg_added *tokens = rg_resize_array(s->tokens, room, sizeof *tokens);
        if (!tokens)
            return rg_fail_memory(err, room * sizeof *tokens);
        s->tokens = tokens;
        s->room = room;
    }
    s->tokens[s->n] = *token;
    s->tokens[s->n].text = rg_strndup(token->text, token->n);
    if (!s->tokens[s->n].text)
        return rg_fail_memory(err, token->n);
    s->n++;
    s->n_special += token->special;
    if (token->n > s->max_bytes)
        s->max_bytes = token->n;
    return true;
}

static int compare_text(const rg_added *a, const rg_added *b)
{
    int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);

    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static int compare(const void *a, const void *b)
{
    const rg_added *x = a, *y = b;
    int c = compare_text(x, y);

    return c ? c : (x->id > y->id) - (x->id < y->id);
}

void rg_added_seal(rg_added_set *s)
{
    size_t kept = 0;

    if (s->n)
        qsort(s->tokens, s->n, sizeof *s->tokens, compare);
    for (size_t i = 0; i < s->n; i++)
        if (!kept || compare_text(&s->tokens[kept - 1], &s->tokens[i]))
            s->tokens[kept++] = s->tokens[i];
        else
            rg_free(s->tokens[i].text);
    s->n = kept;
    for (size_t b = 0, i = 0; b <= 256; b++) {
        while (i < s->n && (unsigned char)s->tokens[i].text[0] < b)
            i++;
        s->first[b] = (uint32_t)i;
    }
}

/* In tokens [from, to), which share their first `depth` bytes: the first one whose next byte is at least b.  A token
 * that ends at depth sorts first. */
static size_t lower(const rg_added_set *s, size_t from, size_t to, size_t depth, int b)
{
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        const rg_added *t = &s->tokens[mid];
        int c = t->n > depth ? (unsigned char)t->text[depth] : -1;
        if (c < b)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* The longest token at p's byte `at`.  A special one is matched only by bytes that are all trusted, and between
 * which nothing foreign was removed. */
static const rg_added *longest_at(const rg_added_set *s, const rg_passage *p, size_t at)
{
    const char *text = p->text + at, *marks = p->marks ? p->marks + at : NULL;
    size_t from = s->first[(unsigned char)text[0]], to = s->first[(unsigned char)text[0] + 1], n = p->n - at;
    const rg_added *best = NULL;
    bool foreign = marks ? marks[0] & RG_FOREIGN : p->foreign;

    for (size_t depth = 1; from < to; depth++) {
        int b;
        if (s->tokens[from].n == depth && !(foreign && s->tokens[from].special))
            best = &s->tokens[from];
        if (depth == n)
            break;
        b = (unsigned char)text[depth];
        foreign |= marks && marks[depth];
        from = lower(s, from, to, depth, b);
        to = lower(s, from, to, depth, b + 1);
    }
    return best;
}

static size_t char_before(const char *text, size_t at)
{
    do
        at--;
    while (at && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static uint32_t code_at(const char *text, size_t at)
{
    return rg_utf8_code(text + at, rg_clean_length(text + at));
}

static bool alone(const char *text, size_t n, size_t from, size_t to)
{
    return (!from || !rg_is_word(code_at(text, char_before(text, from)))) &&
           (to == n || !rg_is_word(code_at(text, to)));
}

/* Where the white space at `at` ends. */
static size_t white_end(const char *text, size_t n, size_t at, rg_search *search)
{
    size_t to = at;

    if (at >= search->white_from && at < search->white_to)
        return search->white_to;
    while (to < n && rg_is_space(code_at(text, to)))
        to += (size_t)rg_clean_length(text + to);
    search->white_from = at;
    search->white_to = to;
    return to;
}

bool rg_added_next(const rg_added_set *s, const rg_passage *p, rg_search *search, rg_found *found)
{
    const char *text = p->text;
    size_t i = search->at, n = p->n;

    while (s->n && i < n) {
        const rg_added *t;
        while (i < n && s->first[(unsigned char)text[i]] == s->first[(unsigned char)text[i] + 1])
            i++;
        if (i == n)
            break;
        t = longest_at(s, p, i);
        if (!t) {
            i++;
            continue;
        }
        search->at = i + t->n; /* a refused match still consumes its text, as in the published library */
        if (t->single_word && !alone(text, n, i, search->at)) {
            i = search->at;
            continue;
        }
        *found = (rg_found){ i, search->at, t };
        if (t->lstrip && found->from < search->taken)
            found->from = search->taken;
        while (t->lstrip && found->from > search->taken && rg_is_space(code_at(text, char_before(text, found->from))))
            found->from = char_before(text, found->from);
        if (t->rstrip)
            found->to = white_end(text, n, found->to, search);
        search->taken = found->to;
        if (found->from < found->to)
            return true;
        i = search->at; /* all text of this match is consumed already */
    }
    return false;
}
