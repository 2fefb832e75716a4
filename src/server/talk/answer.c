/* answer.c -- see answer.h: text, reasoning, and where calls and messages begin.  Calls are in calls.c. */
#include "server/talk/answer.h"

#include <stdio.h>

#include "base/json.h"
#include "server/talk/inner.h"

enum {
    MAX_BLANKS = 64, /* most blanks that are held back until their successor is known */
    MAX_HEAD = 512,
    WORK_CAP = 1 << 30,
};

/* ---- marks ------------------------------------------------------------------------------------------------------- */

bool rg_mark_is_blank(const char *mark)
{
    return !mark[strspn(mark, " \n")];
}

int rg_mark_match(const char *mark, const char *s, size_t n, bool last)
{
    const char *p = mark + strspn(mark, " \n");
    size_t i = 0;

    while (*p) {
        size_t blanks = strspn(p, " \n");
        if (blanks && !p[blanks])
            break;
        if (blanks) {
            for (p += blanks; i < n && rg_is_blank(s[i]); i++)
                ;
            continue;
        }
        if (i == n)
            return last ? RG_MARK_NO : RG_MARK_MAYBE;
        if (s[i] != *p)
            return RG_MARK_NO;
        i++, p++;
    }
    return (int)i;
}

bool rg_mark_is_cut(const rg_answer *a, const char *mark)
{
    static const char replacement[] = "\xEF\xBF\xBD"; /* what a character that is cut shows as */
    size_t n = rg_n_rest(a), k = strlen(replacement);

    if (n >= k && !memcmp(rg_rest(a) + n - k, replacement, k))
        n -= k;
    return a->last && mark && rg_mark_match(mark, rg_rest(a), n, false) == RG_MARK_MAYBE;
}

typedef enum mark_kind { NO_MARK, THINK, THINK_END, SILENT, FORM, HEAD, END } mark_kind;

/* What begins at one place of the text. */
typedef struct found {
    mark_kind kind;
    int n;     /* bytes; RG_MARK_NO, RG_MARK_MAYBE */
    int think; /* which */
    unsigned forms;
} found;

static void try_mark(const rg_answer *a, found *f, const char *mark, mark_kind kind, int which)
{
    int n;

    if (!mark || rg_mark_is_blank(mark))
        return;
    n = rg_mark_match(mark, rg_rest(a) + a->scanned, rg_n_rest(a) - a->scanned, a->last);
    if (n == RG_MARK_MAYBE) {
        *f = (found){ NO_MARK, RG_MARK_MAYBE, 0, 0 };
    } else if (n >= 0 && f->n != RG_MARK_MAYBE && n > f->n) {
        *f = (found){ kind, n, which, kind == FORM ? 1u << which : 0 };
    } else if (n >= 0 && n == f->n && kind == FORM && f->kind == FORM) {
        f->forms |= 1u << which;
    }
}

/* The mark that a form's calls begin with in the middle of a text; NULL: they do not. */
static const char *form_mark(const rg_talk_form *f)
{
    return f->open                                                                        ? f->open
           : f->way == RG_CALL_JSON || f->way == RG_CALL_TAGS || f->way == RG_CALL_QUOTED ? f->item_open
                                                                                          : NULL;
}

/* Blanks are all that there is of the text since the last call, or reasoning. */
static bool is_beginning(const rg_answer *a)
{
    return a->state == RG_S_START || a->drop_blanks;
}

static found find_mark(const rg_answer *a)
{
    const rg_talk *t = a->talk;
    const rg_talk_heads *h = t->heads;
    found f = { NO_MARK, RG_MARK_NO, 0, 0 };

    for (int i = 0; i < RG_TALK_THINKS && t->think[i].open; i++) {
        if (t->thinks_anywhere || (is_beginning(a) && !a->reasoned))
            try_mark(a, &f, t->think[i].open, THINK, i);
        if (is_beginning(a) || t->thinks_anywhere)
            try_mark(a, &f, t->think[i].close, THINK_END, i);
    }
    for (int i = 0; i < RG_TALK_MARKS && t->silent[i]; i++)
        try_mark(a, &f, t->silent[i], SILENT, i);
    for (int i = 0; a->tools && !a->in_text && i < RG_TALK_FORMS; i++)
        if (rg_talk_has_form(&t->forms[i]))
            try_mark(a, &f, form_mark(&t->forms[i]), FORM, i);
    for (int i = 0; h && i < 3 && h->open[i]; i++)
        try_mark(a, &f, h->open[i], HEAD, i);
    for (int i = 0; h && i < 4 && h->end[i]; i++)
        try_mark(a, &f, h->end[i], END, i);
    return f;
}

/* The next place of the text where a mark begins, or may: a->scanned.  NO_MARK: there is none up to there. */
static found scan(rg_answer *a)
{
    for (; a->scanned < rg_n_rest(a); a->scanned++) {
        found f;
        a->work++;
        if (!a->first[(unsigned char)rg_rest(a)[a->scanned]])
            continue;
        f = find_mark(a);
        if (f.n != RG_MARK_NO)
            return f;
    }
    return (found){ NO_MARK, RG_MARK_NO, 0, 0 };
}

static void note_first(rg_answer *a, const char *mark)
{
    if (mark && !rg_mark_is_blank(mark))
        a->first[(unsigned char)mark[strspn(mark, " \n")]] = true;
}

static void note_mark(void *arg, const char *mark)
{
    note_first(arg, mark);
}

/* ---- moving text ------------------------------------------------------------------------------------------------- */

void rg_skip(rg_answer *a, size_t n)
{
    a->at += n;
    a->work += n;
    a->scanned = 0;
}

void rg_skip_blanks(rg_answer *a)
{
    size_t n = 0;

    while (n < rg_n_rest(a) && rg_is_blank(rg_rest(a)[n]))
        n++;
    rg_skip(a, n);
}

void rg_put(rg_answer *a, rg_buf *to, const char *s, size_t n)
{
    if (n && !rg_buf_add(to, s, n))
        a->failed = true;
}

void rg_put_escaped(rg_answer *a, rg_buf *to, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        const char *at = c ? strchr("\"\\\n\r\t\b\f", c) : NULL;
        char short_one[2] = { '\\', at ? "\"\\nrtbf"[at - "\"\\\n\r\t\b\f"] : 0 }, long_one[8];

        if (at) {
            rg_put(a, to, short_one, 2);
        } else if (c < ' ') {
            snprintf(long_one, sizeof long_one, "\\u%04x", c);
            rg_put(a, to, long_one, 6);
        } else {
            rg_put(a, to, s + i, 1);
        }
    }
}

void rg_add_part(rg_answer *a, rg_part_kind kind, size_t from)
{
    if (a->n_parts == a->parts_room) {
        size_t room = a->parts_room ? 2 * a->parts_room : 4;
        rg_talk_part *p = rg_resize_array(a->part, room, sizeof *p);
        if (!p) {
            a->failed = true;
            return;
        }
        a->part = p;
        a->parts_room = room;
    }
    a->part[a->n_parts++] = (rg_talk_part){ .kind = kind, .from = from, .token = a->token };
}

static bool goes_on(const rg_answer *a, rg_part_kind kind)
{
    return a->n_parts && a->part[a->n_parts - 1].kind == kind;
}

static rg_buf *text_of(rg_answer *a, rg_part_kind kind)
{
    return kind == RG_PART_REASONING ? &a->reasoning : &a->content;
}

void rg_put_part(rg_answer *a, rg_part_kind kind, const char *s, size_t n)
{
    rg_buf *to = text_of(a, kind);

    if (!n)
        return;
    if (!goes_on(a, kind))
        rg_add_part(a, kind, to->n);
    rg_put(a, to, s, n);
    if (!a->failed)
        a->part[a->n_parts - 1].n += n;
}

static void move_to(rg_answer *a, rg_part_kind kind, size_t n)
{
    if (n && kind == RG_PART_TEXT)
        a->drop_blanks = false;
    rg_put_part(a, kind, rg_rest(a), n);
    rg_skip(a, n);
}

/* A line between texts of two messages; where something else came between them, it belongs to neither. */
static void separate(rg_answer *a, rg_part_kind kind)
{
    rg_buf *b = text_of(a, kind);

    if (!b->n || rg_is_blank(b->data[b->n - 1]))
        return;
    if (goes_on(a, kind))
        rg_put_part(a, kind, "\n", 1);
    else
        rg_put(a, b, "\n", 1);
}

bool rg_no_call(rg_answer *a)
{
    if (a->at <= a->mark && rg_n_rest(a))
        rg_skip(a, a->mark - a->at + 1);
    if (a->in_thought) {
        rg_put_part(a, RG_PART_REASONING, a->held.data + a->keep, a->at - a->keep);
        a->in_thought = false;
        a->streams = true;
        a->state = RG_S_THINK;
        return true;
    }
    if (!a->last || !a->calls_only) {
        a->drop_blanks &= a->at == a->keep;
        rg_put_part(a, RG_PART_TEXT, a->held.data + a->keep, a->at - a->keep);
    }
    a->state = RG_S_WORDS;
    return true;
}

bool rg_calls_over(rg_answer *a)
{
    a->state = RG_S_WORDS;
    a->drop_blanks = true;
    a->reasoned = false;
    a->list = false;
    return true;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void begin_thought(rg_answer *a, const char *open)
{
    separate(a, RG_PART_REASONING);
    a->think_open = open;
    a->in_message = a->talk->heads != NULL;
    a->reasoned = true;
    a->state = RG_S_THINK;
}

static void begin_calls(rg_answer *a, unsigned forms)
{
    a->forms = forms;
    a->form = NULL;
    a->list = false;
    a->calls_before = a->n_calls;
    a->state = RG_S_ITEM;
}

/* Take the mark that begins after the next blanks, which stay text if it is a call's and there is none. */
static void take_mark(rg_answer *a, size_t blanks, found f)
{
    bool opens = false;

    a->keep = a->at + (a->drop_blanks && !a->in_thought ? blanks : 0);
    rg_skip(a, blanks);
    a->mark = a->at;
    a->in_thought &= f.kind == FORM;
    for (int i = 0; f.kind == FORM && i < RG_TALK_FORMS; i++)
        opens |= f.forms >> i & 1 && a->talk->forms[i].open;
    if (f.kind != FORM || opens)
        rg_skip(a, (size_t)f.n);
    switch (f.kind) {
    case THINK:
        begin_thought(a, a->talk->think[f.think].open);
        break;
    case FORM:
        begin_calls(a, f.forms);
        break;
    case HEAD:
        a->bare_head = false;
        a->state = RG_S_HEAD;
        break;
    case END:
        a->in_text = false;
        /* fall through */
    case THINK_END:
        a->drop_blanks = true;
        a->state = RG_S_WORDS;
        break;
    default:
        break;
    }
}

/* The answer begins like a call without a mark. */
static unsigned bare_forms(const rg_answer *a, char c)
{
    unsigned set = 0;

    for (int i = 0; a->tools && !a->marked && i < RG_TALK_FORMS; i++) {
        const rg_talk_form *f = &a->talk->forms[i];
        if (!rg_talk_has_form(f) || f->open)
            continue;
        if (f->way == RG_CALL_PYTHON ? c == '[' : f->way <= RG_CALL_KEYED && (c == '{' || c == '['))
            set |= 1u << i;
    }
    return set;
}

/* The prompt opened the head of the first message, up to the name of a tool; *wait: more text decides. */
static bool begins_head(rg_answer *a, size_t blanks, bool *wait)
{
    const rg_talk_heads *h = a->talk->heads;
    int n = h && h->to && strchr(h->to, '=') && !a->in_message && blanks < rg_n_rest(a)
                ? rg_mark_match(h->to, rg_rest(a) + blanks, rg_n_rest(a) - blanks, a->last)
                : RG_MARK_NO;

    *wait = n == RG_MARK_MAYBE;
    if (n < 0)
        return *wait;
    a->bare_head = true;
    a->state = RG_S_HEAD;
    return true;
}

static bool turn_start(rg_answer *a)
{
    size_t blanks = 0;
    unsigned bare;
    bool wait;
    found f;

    while (blanks < rg_n_rest(a) && rg_is_blank(rg_rest(a)[blanks]))
        blanks++;
    a->work += blanks + 1;
    if (blanks == rg_n_rest(a) && !a->last && blanks < MAX_BLANKS)
        return false;
    a->scanned = blanks;
    f = blanks < rg_n_rest(a) ? find_mark(a) : (found){ NO_MARK, RG_MARK_NO, 0, 0 };
    if (f.n == RG_MARK_MAYBE)
        return false;
    a->scanned = 0;
    if (f.kind != NO_MARK) {
        take_mark(a, blanks, f);
        return true;
    }
    if (begins_head(a, blanks, &wait))
        return !wait;
    bare = blanks < rg_n_rest(a) ? bare_forms(a, rg_rest(a)[blanks]) : 0;
    a->state = RG_S_WORDS;
    if (bare) {
        a->keep = a->mark = a->at;
        rg_skip(a, blanks);
        begin_calls(a, bare);
    }
    return true;
}

/* The last text.  Where only calls may come, the beginning of a mark is none. */
static void give_last(rg_answer *a)
{
    size_t words = rg_n_rest(a);

    if (a->calls_only) {
        a->last = false;
        a->scanned = 0;
        words = scan(a).n == RG_MARK_MAYBE ? a->scanned : words;
        a->last = true;
    }
    move_to(a, RG_PART_TEXT, words);
    rg_skip(a, rg_n_rest(a));
}

/* Text up to a mark, or what may be one, without the blanks before it where they may belong to the mark. */
static bool turn_words(rg_answer *a)
{
    size_t lead = 0, words, blanks = 0;
    found f;

    while (a->drop_blanks && lead < rg_n_rest(a) && rg_is_blank(rg_rest(a)[lead]))
        lead++;
    if (lead)
        rg_skip(a, lead);
    f = scan(a);
    words = a->scanned;
    if (a->last && f.kind == NO_MARK)
        return give_last(a), false;
    while (blanks < words && blanks < MAX_BLANKS && rg_is_blank(rg_rest(a)[words - 1 - blanks]))
        blanks++;
    if (f.kind == NO_MARK) {
        if (!a->tools && !a->talk->heads && f.n == RG_MARK_NO)
            blanks = 0;
        move_to(a, RG_PART_TEXT, words - blanks);
        a->scanned = f.n == RG_MARK_MAYBE ? 0 : blanks;
        return false;
    }
    if (f.kind == THINK_END || f.kind == SILENT)
        blanks = f.kind == SILENT ? 0 : blanks;
    move_to(a, RG_PART_TEXT, words - blanks);
    take_mark(a, blanks, f);
    return true;
}

/* ---- reasoning --------------------------------------------------------------------------------------------------- */

static void try_end(const rg_answer *a, const char *mark, int *n, bool *keeps, bool kept)
{
    int k = mark ? rg_mark_match(mark, rg_rest(a) + a->scanned, rg_n_rest(a) - a->scanned, a->last) : RG_MARK_NO;

    if (k == RG_MARK_MAYBE)
        *n = k;
    if (*n != RG_MARK_MAYBE && k > *n) {
        *n = k;
        *keeps = kept;
    }
}

/* The bytes of what ends the reasoning here; keeps: it begins something else, and stays. */
static int thought_ends(const rg_answer *a, bool *keeps)
{
    const rg_talk_heads *h = a->in_message ? a->talk->heads : NULL;
    int n = RG_MARK_NO;

    for (int i = 0; !h && i < RG_TALK_THINKS && a->talk->think[i].open; i++)
        if (!a->think_open || !strcmp(a->think_open, a->talk->think[i].open))
            try_end(a, a->talk->think[i].close, &n, keeps, false);
    for (int i = 0; h && i < 4 && h->end[i]; i++)
        try_end(a, h->end[i], &n, keeps, false);
    for (int i = 0; h && i < 3 && h->open[i]; i++)
        try_end(a, h->open[i], &n, keeps, true);
    for (int i = 0; a->talk->call_ends_thought && a->tools && i < RG_TALK_FORMS; i++)
        if (a->talk->forms[i].open)
            try_end(a, a->talk->forms[i].open, &n, keeps, true);
    return n;
}

/* Reasoning ends at its mark.  The blanks around the mark are dropped. */
static bool turn_think(rg_answer *a)
{
    size_t blanks = 0, lead = 0, words;
    int n = RG_MARK_NO;
    bool keeps = false;

    while (lead < rg_n_rest(a) && (!a->reasoning.n || a->reasoning.data[a->reasoning.n - 1] == '\n') &&
           rg_is_blank(rg_rest(a)[lead]) && !a->streams)
        lead++;
    if (lead)
        rg_skip(a, lead);
    for (; a->scanned < rg_n_rest(a); a->scanned++) {
        a->work++;
        if (a->first[(unsigned char)rg_rest(a)[a->scanned]] && (n = thought_ends(a, &keeps)) != RG_MARK_NO)
            break;
    }
    words = a->scanned;
    while ((n >= 0 || !a->last) && blanks < words && blanks < MAX_BLANKS && rg_is_blank(rg_rest(a)[words - 1 - blanks]))
        blanks++;
    a->streams |= words > blanks;
    move_to(a, RG_PART_REASONING, words - blanks);
    if (n < 0) {
        a->scanned = n == RG_MARK_MAYBE ? 0 : blanks;
        return false;
    }
    a->in_thought = keeps && !a->in_message;
    rg_skip(a, a->in_thought ? 0 : blanks + (keeps ? 0 : (size_t)n));
    a->streams = false;
    a->drop_blanks = true;
    a->state = RG_S_START;
    return true;
}

/* ---- messages with heads ----------------------------------------------------------------------------------------- */

/* The tool that a head names; NULL: none. */
static const char *head_name(const rg_talk_heads *h, const char *head, size_t *n)
{
    const char *name = head, *at = head;

    while (h->to && (at = strstr(at, h->to)))
        name = at += strlen(h->to);
    if (h->to && name == head && strchr(h->to, '='))
        return NULL;
    name += strspn(name, " \n");
    if (h->to_prefix && !strncmp(name, h->to_prefix, strlen(h->to_prefix)))
        name += strlen(h->to_prefix);
    *n = strcspn(name, " \n<");
    return *n ? name : NULL;
}

/* Does the head end with one of these words? */
static bool ends_with_any(const char *head, const char *const *words, size_t n)
{
    size_t end = strlen(head);

    while (end && rg_is_blank(head[end - 1]))
        end--;
    for (size_t i = 0; i < n && words[i]; i++) {
        size_t k = strlen(words[i]);
        if (k <= end && !memcmp(head + end - k, words[i], k))
            return true;
    }
    return false;
}

static unsigned all_forms(const rg_answer *a)
{
    unsigned set = 0;

    for (int i = 0; i < RG_TALK_FORMS; i++)
        set |= rg_talk_has_form(&a->talk->forms[i]) ? 1u << i : 0;
    return set;
}

/* What the head of a message says of the text that follows. */
static void read_head(rg_answer *a, const char *head)
{
    const rg_talk_heads *h = a->talk->heads;
    size_t n = 0;
    const char *name = head_name(h, head, &n);

    a->in_message = true;
    a->in_text = ends_with_any(head, h->texts, RG_LEN(h->texts));
    a->think_open = NULL;
    if (h->calls && !a->in_text && a->tools && strstr(head, h->calls) && !(h->thinks && strstr(head, h->thinks))) {
        a->keep = a->mark = a->at;
        begin_calls(a, all_forms(a));
    } else if (name && !h->calls && !(h->says && strlen(h->says) == n && !memcmp(name, h->says, n)) && a->tools) {
        a->committed = false;
        a->form = NULL;
        a->forms = 0;
        a->state = rg_commit(a, name, n, NULL, 0) ? RG_S_ARGS : RG_S_WORDS;
    } else if (h->thinks && strstr(head, h->thinks)) {
        separate(a, RG_PART_REASONING);
        a->reasoned = true;
        a->state = RG_S_THINK;
    } else {
        separate(a, RG_PART_TEXT);
        a->drop_blanks = true;
        a->state = RG_S_WORDS;
    }
}

static bool turn_head(rg_answer *a)
{
    const char *body = a->talk->heads->body;
    bool blank = rg_mark_is_blank(body);
    int n = RG_MARK_NO;
    char head[MAX_HEAD];

    for (; a->scanned < rg_n_rest(a) && a->scanned < MAX_HEAD - 1; a->scanned++) {
        const char *s = rg_rest(a) + a->scanned;
        n = blank ? (*s == '\n' ? 1 : RG_MARK_NO) : rg_mark_match(body, s, rg_n_rest(a) - a->scanned, a->last);
        if (n != RG_MARK_NO)
            break;
    }
    a->work += a->scanned;
    if (n < 0 && !a->last && a->scanned < MAX_HEAD - 1)
        return false;
    if (n < 0 && (a->scanned >= MAX_HEAD - 1 || a->bare_head)) { /* no head */
        a->state = RG_S_WORDS;
        return true;
    }
    if (n < 0) { /* the answer ends within it: it says nothing */
        rg_skip(a, rg_n_rest(a));
        return false;
    }
    memcpy(head, rg_rest(a), a->scanned);
    head[a->scanned] = 0;
    rg_skip(a, a->scanned + (size_t)n);
    read_head(a, head);
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void run(rg_answer *a, bool last)
{
    static rg_turn *const turns[RG_N_STATES] = {
        [RG_S_START] = turn_start,    [RG_S_WORDS] = turn_words,        [RG_S_THINK] = turn_think,
        [RG_S_HEAD] = turn_head,      [RG_S_ITEM] = rg_turn_item,       [RG_S_NAME] = rg_turn_name,
        [RG_S_ID] = rg_turn_id,       [RG_S_REST] = rg_turn_rest,       [RG_S_OBJECT] = rg_turn_object,
        [RG_S_ARGS] = rg_turn_args,   [RG_S_JSON] = rg_turn_json,       [RG_S_TAGS] = rg_turn_tags,
        [RG_S_VALUE] = rg_turn_value, [RG_S_LITERAL] = rg_turn_literal, [RG_S_CODE] = rg_turn_code,
        [RG_S_TAIL] = rg_turn_tail,
    };
    bool pending;
    size_t drop;

    a->last = last;
    while (rg_n_rest(a) && turns[a->state](a))
        ;
    pending = a->state == RG_S_ITEM || a->state == RG_S_NAME || a->state == RG_S_ID || a->state == RG_S_REST ||
              a->state == RG_S_OBJECT;
    if (last && pending && !a->committed && !rg_n_rest(a) && a->at > a->keep)
        rg_no_call(a);
    drop = pending && a->keep < a->at ? a->keep : a->at;
    if (drop) {
        memmove(a->held.data, a->held.data + drop, a->held.n - drop);
        a->held.n -= drop;
        a->at -= drop;
        a->keep = a->keep > drop ? a->keep - drop : 0;
        a->mark = a->mark > drop ? a->mark - drop : 0;
        a->work += a->held.n;
    }
}

void rg_answer_init(rg_answer *a, const rg_talk *talk, const json_t *tools, rg_talk_start start, size_t cap)
{
    *a = (rg_answer){ .talk = talk, .tools = json_array_size(tools) ? tools : NULL };
    rg_buf *const all[] = { &a->reasoning, &a->content, &a->held, &a->key, &a->value, &a->name, &a->literal.word };

    for (size_t i = 0; i < RG_LEN(all); i++)
        rg_buf_init(all[i], cap);
    rg_talk_marks(talk, note_mark, a);
    if (start == RG_START_THINKING)
        begin_thought(a, NULL);
    else if (start == RG_START_HEAD)
        a->state = RG_S_HEAD;
}

void rg_answer_fini(rg_answer *a)
{
    rg_buf *const all[] = { &a->reasoning, &a->content, &a->held, &a->key, &a->value, &a->name, &a->literal.word };

    for (int i = 0; i < a->n_calls; i++)
        rg_buf_fini(&a->call[i].arguments);
    rg_free(a->call);
    rg_free(a->part);
    for (size_t i = 0; i < RG_LEN(all); i++)
        rg_buf_fini(all[i]);
    *a = (rg_answer){ 0 };
}

bool rg_answer_is_reasoning(const rg_answer *a)
{
    return a->state == RG_S_THINK;
}

void rg_answer_feed(rg_answer *a, const char *text, size_t n)
{
    if (!n)
        return;
    if (!rg_buf_add(&a->held, text, n))
        a->failed = true;
    run(a, false);
}

/* An answer that was cut before the name of its call was certain, where no other tool can have been meant. */
static void add_only_call(rg_answer *a)
{
    const json_t *f = json_object_get(json_array_get(a->tools, 0), "function");
    const char *name = json_string_value(json_object_get(f, "name"));

    if (a->calls_only && !a->marked && !a->n_calls && !a->content.n && a->state != RG_S_THINK &&
        json_array_size(a->tools) == 1 && name)
        rg_commit(a, name, strlen(name), NULL, 0);
}

void rg_answer_end(rg_answer *a, const char *text, size_t n)
{
    if (n && !rg_buf_add(&a->held, text, n))
        a->failed = true;
    run(a, true);
    add_only_call(a);
    if (a->state == RG_S_CODE)
        rg_end_code(a);
    if (a->state == RG_S_LITERAL && a->literal.word.n) /* a call that is cut, as far as it goes */
        rg_put(a, &rg_call_now(a)->arguments, a->literal.word.data, a->literal.word.n);
    for (int i = 0; i < a->n_calls; i++) {
        rg_tool_call *c = &a->call[i];
        c->cut |= !c->done;
        if (!c->arguments.n && !c->cut)
            rg_put(a, &c->arguments, "{}", 2);
    }
}
