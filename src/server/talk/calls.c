/* calls.c -- calls of tools as the automaton of answer.c reads them: the name, and what holds the arguments.  A call is
 * committed once its name is certain; until then all of it may still be text. */
#include <ctype.h>
#include <stdio.h>

#include "base/json.h"
#include "base/rng.h"
#include "server/json.h"
#include "server/talk/inner.h"

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A new id: the model's own, or in the form that the family or the chat template demands, or in the usual one. */
static void make_id(const rg_answer *a, rg_tool_call *c, const char *id, size_t n_id)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    int at = a->id_chars ? 0 : snprintf(c->id, RG_CALL_ID, "call_"), end = a->id_chars ? a->id_chars : at + 24;
    uint64_t r = rg_seed();

    if (n_id && n_id < 64 && (!a->id_chars || n_id == (size_t)a->id_chars)) {
        memcpy(c->id, id, n_id);
        c->id[n_id] = 0;
        return;
    }
    if (a->talk->id_prefix) {
        snprintf(c->id, RG_CALL_ID, "%s%s:%d", a->talk->id_prefix, c->name, a->n_earlier + a->n_calls);
        return;
    }
    for (int i = 0; at < end && at + 1 < RG_CALL_ID; at++, i++) {
        r = i % 12 ? r / 36 : rg_seed();
        c->id[at] = digits[r % 36];
    }
    c->id[at] = 0;
}

rg_tool_call *rg_call_now(rg_answer *a)
{
    return &a->call[a->n_calls - 1];
}

static bool grow_calls(rg_answer *a)
{
    int room = a->calls_room ? 2 * a->calls_room : 4;
    rg_tool_call *c = rg_resize_array(a->call, (size_t)room, sizeof *c);

    if (!c)
        return a->failed = true, false;
    a->call = c;
    a->calls_room = room;
    return true;
}

bool rg_commit(rg_answer *a, const char *name, size_t n, const char *id, size_t n_id)
{
    while (n && rg_is_blank(*name))
        name++, n--;
    while (n && rg_is_blank(name[n - 1]))
        n--;
    if (!n || n > RG_CALL_NAME || a->n_calls >= RG_MAX_TOOL_CALLS)
        return false;
    if (a->n_calls == a->calls_room && !grow_calls(a))
        return false;
    rg_tool_call *c = &a->call[a->n_calls];
    *c = (rg_tool_call){ .done = false };
    memcpy(c->name, name, n);
    make_id(a, c, id, n_id);
    rg_buf_init(&c->arguments, a->content.cap);
    rg_add_part(a, RG_PART_CALL, (size_t)a->n_calls);
    a->n_calls++;
    a->committed = true;
    a->in_thought = false;
    return true;
}

const json_t *rg_tool_offered(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function"), *v = json_object_get(f, "name");
        if (json_is_string(v) && json_string_length(v) == n && !memcmp(json_string_value(v), name, n))
            return f;
    }
    return NULL;
}

/* The calls have no mark: only a tool that is offered can be meant. */
static bool may_call(const rg_answer *a, const char *name, size_t n)
{
    return (a->form->open && !a->form->offered) ||
           (a->form->way != RG_CALL_OBJECT && a->form->way != RG_CALL_KEYED && a->form->way != RG_CALL_PYTHON) ||
           rg_tool_offered(a->tools, name, n);
}

static bool runs_code(const rg_answer *a)
{
    return rg_tool_offered(a->tools, "python", 6) || rg_tool_offered(a->tools, "code_interpreter", 16) ||
           rg_tool_offered(a->tools, "ipython", 7);
}

static bool has(const rg_answer *a, int i)
{
    return a->forms >> i & 1;
}

/* What stands here may be source code, too; NULL: it may not. */
static const rg_talk_form *code_form(const rg_answer *a)
{
    for (int i = 0; i < RG_TALK_FORMS; i++)
        if (has(a, i) && a->talk->forms[i].way == RG_CALL_CODE && runs_code(a))
            return &a->talk->forms[i];
    return NULL;
}

static bool commit_named(rg_answer *a, const char *name, size_t n)
{
    static const char call[] = ".call"; /* as Llama calls built-in tools */
    bool python = a->form->way == RG_CALL_PYTHON, offered = rg_tool_offered(a->tools, name, n);
    bool built_in = python && !offered && n > strlen(call) && !memcmp(name + n - strlen(call), call, strlen(call));

    if (python && !offered && !built_in && code_form(a))
        return false; /* a function of the code */
    n -= built_in ? strlen(call) : 0;
    return may_call(a, name, n) && rg_commit(a, name, n, NULL, 0);
}

/* ---- before a call ----------------------------------------------------------------------------------------------- */

/* The longest of the forms' marks that begins here, the closing or the opening ones. */
static int outer_mark(const rg_answer *a, bool opening)
{
    int best = RG_MARK_NO;

    for (int i = 0; i < RG_TALK_FORMS; i++) {
        const rg_talk_form *f = &a->talk->forms[i];
        const char *mark = opening ? f->open : f->close;
        int n = has(a, i) && mark ? rg_mark_match(mark, rg_rest(a), rg_n_rest(a), a->last) : RG_MARK_NO;
        if (n == RG_MARK_MAYBE)
            return n;
        best = n > best ? n : best;
    }
    return best;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* How a call of this form begins here; RG_MARK_NO: it does not. */
static int begins(const rg_answer *a, const rg_talk_form *f)
{
    char c = *rg_rest(a);

    if (f->way == RG_CALL_OBJECT || f->way == RG_CALL_KEYED)
        return c == '{' ? 0 : RG_MARK_NO;
    if (f->way == RG_CALL_CODE)
        return runs_code(a) ? 0 : RG_MARK_NO;
    if (f->item_open && !rg_mark_is_blank(f->item_open))
        return rg_mark_match(f->item_open, rg_rest(a), rg_n_rest(a), a->last);
    return is_word(c) ? 0 : RG_MARK_NO;
}

static bool enter(rg_answer *a, const rg_talk_form *f, int n)
{
    a->form = f;
    rg_skip(a, (size_t)n);
    rg_buf_reset(&a->name);
    rg_buf_reset(&a->value);
    rg_buf_reset(&a->key);
    a->nest = a->phase = 0;
    a->state = f->way == RG_CALL_OBJECT || f->way == RG_CALL_KEYED ? RG_S_OBJECT
               : f->way == RG_CALL_CODE                            ? RG_S_CODE
               : f->name_after                                     ? RG_S_REST
                                                                   : RG_S_NAME;
    if (f->way == RG_CALL_CODE) {
        const char *name = rg_tool_offered(a->tools, "python", 6)              ? "python"
                           : rg_tool_offered(a->tools, "code_interpreter", 16) ? "code_interpreter"
                                                                               : "ipython";
        if (!rg_commit(a, name, strlen(name), NULL, 0))
            return rg_no_call(a);
    }
    return true;
}

/* Brackets of lists, and what stands between calls. */
static void skip_joints(rg_answer *a)
{
    bool lists = false;

    for (int i = 0; i < RG_TALK_FORMS; i++)
        lists |= has(a, i) && (a->talk->forms[i].way <= RG_CALL_KEYED || a->talk->forms[i].way == RG_CALL_PYTHON);
    while (rg_n_rest(a)) {
        char c = *rg_rest(a);
        bool joint = lists && (c == ',' || c == ';') && a->n_calls > a->calls_before;
        bool opens =
            lists && c == '[' && !a->list && outer_mark(a, true) == RG_MARK_NO && outer_mark(a, false) == RG_MARK_NO;
        if (!rg_is_blank(c) && !joint && !opens && (c != ']' || !a->list))
            return;
        a->list = opens || (a->list && c != ']');
        rg_skip(a, 1);
    }
}

/* Nothing that belongs to calls begins here. */
static bool end_items(rg_answer *a)
{
    if (a->n_calls == a->calls_before)
        return rg_no_call(a);
    for (int i = 0; i < RG_TALK_FORMS; i++)
        if (has(a, i) && rg_mark_is_cut(a, a->talk->forms[i].close))
            rg_skip(a, rg_n_rest(a));
    return rg_calls_over(a);
}

bool rg_turn_item(rg_answer *a)
{
    const rg_talk_form *best = NULL;
    int n, longest = RG_MARK_NO;

    a->committed = false;
    skip_joints(a);
    if (a->n_calls > a->calls_before)
        a->keep = a->at;
    if (!rg_n_rest(a))
        return false;
    n = outer_mark(a, false);
    if (n >= 0) {
        rg_skip(a, (size_t)n);
        return end_items(a);
    }
    int again = outer_mark(a, true);
    if (again >= 0) {
        rg_skip(a, (size_t)again);
        return true;
    }
    for (int i = 0; i < RG_TALK_FORMS; i++) {
        int k = has(a, i) ? begins(a, &a->talk->forms[i]) : RG_MARK_NO;
        if (k == RG_MARK_MAYBE)
            n = k;
        if (k > longest) {
            longest = k;
            best = &a->talk->forms[i];
        }
    }
    if (n == RG_MARK_MAYBE || again == RG_MARK_MAYBE)
        return false;
    return best ? enter(a, best, longest) : end_items(a);
}

/* ---- the name ---------------------------------------------------------------------------------------------------- */

typedef enum name_end { AT_SEP, AT_ID, AT_TAIL, AT_BODY, N_ENDS } name_end;

static int ends_with(const rg_answer *a, const char *mark)
{
    return mark && !rg_mark_is_blank(mark)
               ? rg_mark_match(mark, rg_rest(a) + a->scanned, rg_n_rest(a) - a->scanned, a->last)
               : RG_MARK_NO;
}

/* What ends the name here, and its bytes. */
static int name_ends(const rg_answer *a, name_end *what)
{
    const rg_talk_form *f = a->form;
    const char *const marks[N_ENDS] = {
        [AT_SEP] = f->way == RG_CALL_PYTHON ? "(" : f->sep,
        [AT_ID] = f->name_end ? f->name_end : f->id_mark,
        [AT_TAIL] = f->item_close ? f->item_close : f->close,
        [AT_BODY] = f->tags ? f->tags->key_open : "{",
    };
    int best = RG_MARK_NO;
    char c = rg_rest(a)[a->scanned];

    for (int i = 0; i < N_ENDS; i++) {
        int n = f->way == RG_CALL_PYTHON && i != AT_SEP ? RG_MARK_NO : ends_with(a, marks[i]);
        if (n == RG_MARK_MAYBE)
            return n;
        if (n > best) {
            best = n;
            *what = (name_end)i;
        }
    }
    if (best == RG_MARK_NO && f->sep && *f->sep && rg_mark_is_blank(f->sep) && c == '\n') {
        *what = AT_SEP;
        best = 1;
    }
    return best;
}

/* Without a mark before it only a word can be a name. */
static bool is_name(const rg_answer *a, size_t n)
{
    const char *s = rg_rest(a);

    while (n && rg_is_blank(s[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        if (!is_word(s[i]) && !strchr(".-:/", s[i]))
            return false;
    return n > 0;
}

bool rg_turn_name(rg_answer *a)
{
    name_end what = AT_SEP;
    int n = RG_MARK_NO;
    size_t length;

    for (; a->scanned < rg_n_rest(a) && a->scanned <= RG_CALL_NAME; a->scanned++) {
        n = name_ends(a, &what);
        if (n != RG_MARK_NO)
            break;
    }
    length = a->scanned;
    a->work += length;
    if (n < 0 && !a->last && length <= RG_CALL_NAME)
        return false;
    if ((n < 0 || !is_name(a, length)) && code_form(a))
        return enter(a, code_form(a), 0);
    if (n < 0 || !is_name(a, length)) {
        if (n < 0 && a->last)
            rg_skip(a, rg_n_rest(a));
        return n < 0 && a->last ? false : end_items(a);
    }
    if (what == AT_ID) {
        rg_put(a, &a->name, rg_rest(a), length);
        rg_skip(a, length + (size_t)n);
        a->state = RG_S_ID;
        return true;
    }
    if (!commit_named(a, rg_rest(a), length)) {
        if (code_form(a))
            return enter(a, code_form(a), 0);
        rg_skip(a, length);
        return end_items(a);
    }
    rg_skip(a, length + (what == AT_SEP ? (size_t)n : 0));
    a->state = what == AT_TAIL ? RG_S_TAIL : what == AT_SEP && a->form->sep_rest ? RG_S_REST : RG_S_ARGS;
    if (what == AT_TAIL) {
        rg_put(a, &rg_call_now(a)->arguments, "{}", 2);
        rg_call_now(a)->done = true;
    }
    return true;
}

/* The call's id, up to what separates it from the arguments. */
bool rg_turn_id(rg_answer *a)
{
    const char *id, *sep = a->form->sep;
    int n = RG_MARK_NO;
    size_t length;

    for (; a->scanned < rg_n_rest(a) && a->scanned < RG_CALL_ID; a->scanned++)
        if ((n = rg_mark_match(sep, rg_rest(a) + a->scanned, rg_n_rest(a) - a->scanned, a->last)) != RG_MARK_NO)
            break;
    a->work += a->scanned;
    if (n < 0 && !a->last && a->scanned < RG_CALL_ID)
        return false;
    if (n < 0) {
        rg_skip(a, a->scanned);
        return a->last ? false : end_items(a);
    }
    id = rg_rest(a);
    length = a->scanned;
    bool name_first = !a->form->id_mark || a->talk->id_prefix || !strstr(a->form->id_mark, "name");
    bool ok = name_first ? rg_commit(a, a->name.data ? a->name.data : "", a->name.n, id,
                                     a->form->id_mark && !a->talk->id_prefix ? length : 0)
                         : rg_commit(a, id, length, a->name.data ? a->name.data : "", a->name.n);
    rg_skip(a, length + (size_t)n);
    a->state = RG_S_ARGS;
    return ok || end_items(a);
}

/* What stands before the name, or behind it, and means nothing. */
bool rg_turn_rest(rg_answer *a)
{
    const char *s = rg_rest(a), *mark = a->committed ? a->form->sep_rest : a->form->name_after;
    int n = RG_MARK_NO;

    for (; a->scanned < rg_n_rest(a) && (a->committed || a->scanned <= RG_CALL_NAME); a->scanned++)
        if ((n = rg_mark_match(mark, s + a->scanned, rg_n_rest(a) - a->scanned, a->last)) != RG_MARK_NO)
            break;
    a->work += a->scanned;
    if (n < 0 && !a->committed && (a->last || a->scanned > RG_CALL_NAME)) {
        rg_skip(a, a->scanned);
        return !a->last && end_items(a);
    }
    if (n < 0)
        return false;
    rg_skip(a, a->scanned + (size_t)n);
    a->state = a->committed ? RG_S_ARGS : RG_S_NAME;
    return true;
}

/* ---- the arguments ----------------------------------------------------------------------------------------------- */

size_t rg_json_scan_feed(rg_json_scan *j, const char *s, size_t n, bool *done)
{
    *done = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (j->inside) {
            j->inside = j->escaped || c != '"';
            j->escaped = !j->escaped && c == '\\';
            if (!j->inside && !j->depth)
                return *done = true, i + 1;
            continue;
        }
        if (j->scalar && (rg_is_blank(c) || c == ',' || c == '}' || c == ']'))
            return *done = true, i;
        if (c == '"')
            j->inside = true;
        else if (c == '{' || c == '[')
            j->depth++;
        else if ((c == '}' || c == ']') && j->depth && !--j->depth)
            return *done = true, i + 1;
        else if (!j->depth && !rg_is_blank(c))
            j->scalar = true;
        j->begun = true;
    }
    return n;
}

/* The tags of the forms that a call may have, which begin as this one does. */
static const rg_talk_form *tags_form(const rg_answer *a)
{
    if (a->form && a->form->tags)
        return a->form;
    for (int i = 0; a->form && i < RG_TALK_FORMS; i++) {
        const rg_talk_form *f = &a->talk->forms[i];
        if (has(a, i) && f->tags && f->item_open && a->form->item_open && !strcmp(f->item_open, a->form->item_open))
            return f;
    }
    return NULL;
}

/* Which way the arguments go follows from how they begin. */
bool rg_turn_args(rg_answer *a)
{
    const rg_talk_form *tagged = tags_form(a);
    rg_call_way way = a->form ? a->form->way : RG_CALL_JSON;

    if (way != RG_CALL_PYTHON)
        rg_skip_blanks(a);
    if (!rg_n_rest(a))
        return false;
    a->scan = (rg_json_scan){ 0 };
    if (way == RG_CALL_PYTHON || way == RG_CALL_QUOTED) {
        const json_t *f = rg_tool_offered(a->tools, rg_call_now(a)->name, strlen(rg_call_now(a)->name));
        rg_loose_begin(&a->literal, a->form->quote, json_object_get(json_object_get(f, "parameters"), "properties"),
                       way == RG_CALL_PYTHON);
        rg_put(a, &rg_call_now(a)->arguments, "{", way == RG_CALL_PYTHON);
        a->state = RG_S_LITERAL;
    } else if (*rg_rest(a) == '{') {
        a->state = RG_S_JSON;
    } else if (tagged) {
        a->form = tagged;
        a->state = RG_S_TAGS;
    } else if (!a->form && rg_tool_offered(a->tools, rg_call_now(a)->name, strlen(rg_call_now(a)->name))) {
        a->state = RG_S_CODE;
    } else {
        rg_put(a, &rg_call_now(a)->arguments, "{}", 2);
        rg_call_now(a)->done = true;
        a->state = RG_S_TAIL;
    }
    return true;
}

bool rg_turn_json(rg_answer *a)
{
    bool done;
    size_t n = rg_json_scan_feed(&a->scan, rg_rest(a), rg_n_rest(a), &done);

    rg_put(a, &rg_call_now(a)->arguments, rg_rest(a), n);
    rg_skip(a, n);
    if (!done)
        return false;
    rg_call_now(a)->done = true;
    a->state = RG_S_TAIL;
    return true;
}

bool rg_turn_literal(rg_answer *a)
{
    size_t n = rg_loose_feed(a, &a->literal, rg_rest(a), rg_n_rest(a), &rg_call_now(a)->arguments);

    rg_skip(a, n);
    if (!a->literal.done)
        return false;
    rg_call_now(a)->done = true;
    a->state = RG_S_TAIL;
    return true;
}

/* The mark that ends source code here: of its form, or of the message. */
static int code_ends(const rg_answer *a)
{
    const rg_talk_heads *h = a->form ? NULL : a->talk->heads;
    int best = a->form && a->form->close ? ends_with(a, a->form->close) : RG_MARK_NO;

    for (int i = 0; h && i < 3 && h->open[i]; i++) {
        int n = ends_with(a, h->open[i]);
        best = n > best || n == RG_MARK_MAYBE ? n : best;
    }
    for (int i = 0; h && i < 4 && h->end[i]; i++) {
        int n = ends_with(a, h->end[i]);
        best = n > best || n == RG_MARK_MAYBE ? n : best;
    }
    return best;
}

/* Source code becomes the argument "code". */
bool rg_turn_code(rg_answer *a)
{
    rg_buf *to = &rg_call_now(a)->arguments;
    int n = RG_MARK_NO;

    if (!to->n)
        rg_put(a, to, "{\"code\":\"", 9);
    for (; a->scanned < rg_n_rest(a); a->scanned++)
        if (a->first[(unsigned char)rg_rest(a)[a->scanned]] && (n = code_ends(a)) != RG_MARK_NO)
            break;
    a->work += a->scanned;
    rg_put_escaped(a, to, rg_rest(a), a->scanned);
    rg_skip(a, a->scanned);
    if (n < 0)
        return false;
    rg_end_code(a);
    return true;
}

void rg_end_code(rg_answer *a)
{
    rg_put(a, &rg_call_now(a)->arguments, "\"}", 2);
    rg_call_now(a)->done = true;
    a->state = a->form ? RG_S_TAIL : RG_S_WORDS;
}

/* What closes a call. */
bool rg_turn_tail(rg_answer *a)
{
    const char *close = a->form ? a->form->item_close : NULL;
    int n;

    rg_skip_blanks(a);
    if (!rg_n_rest(a))
        return false;
    if (!a->form) {
        a->drop_blanks = true;
        a->state = RG_S_WORDS;
        return true;
    }
    n = close && a->form->way != RG_CALL_OBJECT && a->form->way != RG_CALL_KEYED
            ? rg_mark_match(close, rg_rest(a), rg_n_rest(a), a->last)
            : RG_MARK_NO;
    if (n == RG_MARK_MAYBE)
        return false;
    if (rg_mark_is_cut(a, close))
        n = (int)rg_n_rest(a);
    if (n >= 0)
        rg_skip(a, (size_t)n);
    a->keep = a->at;
    a->state = RG_S_ITEM;
    return a->form->open || a->form->way <= RG_CALL_KEYED || a->form->way == RG_CALL_PYTHON || rg_calls_over(a);
}
