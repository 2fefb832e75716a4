/* bpe_repeat.c -- long words that repeat themselves.
 *
 * Whether anything is joined across the border between two pieces of a word's result depends on these two pieces alone.
 * Until the first such join, the text left of the border is joined as it would be by itself, and so is the text right
 * of it; and which of the two pieces at the border grows next depends on the ranks of their own pairs, not on text
 * further away.  So a row of pieces is the result for its text if every two neighbours in it are neighbours in the
 * result for some word.
 *
 * Therefore a word is joined with its long repetitive stretches cut short.  Some of its pieces, which lie between two
 * equal ones and are as long as a number of repetitions, are then written again as often as needed for the text that
 * was left out. */
#include <string.h>

#include "text/bpe_word.h"
#include "text/same.h"

enum {
    LEAST = RG_BPE_REPEAT, /* bytes from which cutting a stretch short is quicker */
    MOST = 16,             /* stretches of a word */
    PERIOD = 64,
    WINDOW = 512, /* bytes that must equal those a period before, for a stretch to begin */
    STRIDE = 1024,
    SAMPLE = 2048,
    KEEP = 2048, /* of a stretch, at least */
};

typedef struct stretch {
    size_t from, to, period; /* in the word: its bytes are as they were a period before, but for the first ones */
    size_t step;             /* a multiple of the period: pieces so long in all can follow themselves; 0: none can */
    size_t left_out;         /* so many steps of it */
    size_t at, end;          /* where it lies in the short word */
    int32_t first, behind;   /* the pieces that are written again, and the one behind them */
} stretch;

/* The period of WINDOW bytes at p, which PERIOD bytes follow; 0: none. */
static size_t find_period(const char *p)
{
    for (size_t q = 1; q <= PERIOD; q++)
        if (!memcmp(p, p + q, sizeof(uint64_t)) && !memcmp(p, p + q, WINDOW))
            return q;
    return 0;
}

static int find_stretches(rg_string word, stretch list[MOST])
{
    int n = 0;

    for (size_t i = 0; n < MOST && i + LEAST <= word.n;) {
        size_t period = find_period(word.data + i), from = i;
        if (!period) {
            i += STRIDE;
            continue;
        }
        i = rg_same_to(word.data, word.n, from, from + period);
        while (((unsigned char)word.data[from] & 0xC0) == 0x80) /* a character's beginning */
            from++;
        if (i >= from + LEAST)
            list[n++] = (stretch){ .from = from, .to = i, .period = period };
    }
    return n;
}

/* True if the pieces before x and y are equal; both lie in one stretch, a number of periods apart. */
static bool same_before(const rg_symbol *v, int32_t x, int32_t y)
{
    const rg_symbol *one = &v[v[x].prev], *two = &v[v[y].prev];

    return one->id == two->id && v[x].from - one->from == v[y].from - two->from;
}

/* Find how long pieces are that can follow themselves, by joining a part of the stretch. */
static bool find_step(const rg_bpe_job *j, rg_string word, stretch *s)
{
    rg_string sample = { word.data + s->from, SAMPLE / s->period * s->period };
    const rg_symbol *v;
    int32_t x, y;

    if (!rg_bpe_join(j, sample))
        return false;
    v = j->w->symbol;
    x = j->w->n ? 0 : -1; /* what is unknown may be left out */
    for (int32_t i = x; i >= 0; i = v[i].next)
        if (!j->b->order && v[i].id == j->b->unk) /* of several unknown characters, perhaps */
            return true;
    while (x >= 0 && v[x].from < SAMPLE / 4)
        x = v[x].next;
    for (y = x < 0 ? -1 : v[x].next; y >= 0 && !s->step; y = v[y].next)
        if ((v[y].from - v[x].from) % s->period == 0 && same_before(v, x, y))
            s->step = v[y].from - v[x].from;
    return true;
}

/* The word with its stretches cut short. */
static bool shorten(rg_string word, stretch *list, int n, rg_buf *out)
{
    size_t done = 0;

    rg_buf_reset(out);
    out->cap = SIZE_MAX / 2;
    for (stretch *s = list; s < list + n; s++) {
        if (!s->step)
            continue;
        s->left_out = (s->to - s->from - KEEP) / s->step;
        s->at = out->n + s->from - done;
        s->end = s->at + s->to - s->from - s->left_out * s->step;
        if (!rg_buf_add(out, word.data + done, s->from + s->end - s->at - done))
            return false;
        done = s->to;
    }
    return rg_buf_add(out, word.data + done, word.n - done);
}

/* In the short word, pieces from *x on of a stretch that are a step long and lie between equal ones; *x moves on. */
static bool find_part(const rg_symbol *v, stretch *s, int32_t *x)
{
    int32_t y;

    while (*x >= 0 && (v[*x].prev < 0 || v[v[*x].prev].from < s->at))
        *x = v[*x].next;
    for (y = *x; *x >= 0; *x = v[*x].next) {
        while (y >= 0 && v[y].from < v[*x].from + s->step)
            y = v[y].next;
        if (y < 0 || v[y].from > s->end)
            return false;
        if (v[y].from == v[*x].from + s->step && same_before(v, *x, y)) {
            s->first = *x;
            s->behind = y;
            return true;
        }
    }
    return false;
}

static bool put_all(const rg_bpe_job *j, const char *text, const stretch *list, int n)
{
    const rg_symbol *v = j->w->symbol;
    const stretch *s = list, *end = list + n;
    size_t before = 0;

    for (int32_t i = 0; i >= 0; i = v[i].next) {
        if (s < end && i == s->behind) {
            if (!rg_ids_again(j->ids, before, s->left_out, j->err))
                return false;
            s++;
        }
        if (s < end && i == s->first)
            before = j->ids->n;
        if (!rg_bpe_put(j, text, &v[i]))
            return false;
    }
    return true;
}

bool rg_bpe_repeats(const rg_bpe_job *j, rg_string word, bool *done)
{
    stretch list[MOST];
    int n = find_stretches(word, list), kept = 0;
    rg_buf *text = &j->w->text;
    int32_t x;

    *done = false;
    for (int i = 0; i < n; i++) {
        if (!find_step(j, word, &list[i]))
            return false;
        if (list[i].step)
            list[kept++] = list[i];
    }
    if (!kept)
        return true;
    if (!shorten(word, list, kept, text))
        return rg_fail_memory(j->err, word.n);
    if (!rg_bpe_join(j, (rg_string){ text->data, text->n }))
        return false;
    x = j->w->n ? 0 : -1;
    for (int i = 0; i < kept; i++)
        if (!find_part(j->w->symbol, &list[i], &x))
            return true;
    *done = true;
    return put_all(j, text->data, list, kept);
}
