/* file.c -- see file.h. */
#include "server/batch/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/batch/line.h"
#include "server/batch/batches.h"

static const size_t most_line = (size_t)1 << 30; /* bytes of one line */
static const char id_prefix[] = "batch_req_";

typedef enum entry_state { ENTRY_OPEN, ENTRY_TAKEN, ENTRY_ANSWERED } entry_state;

/* A line of IN. */
typedef struct entry {
    uint64_t from;
    size_t n;
    int64_t number;  /* of the line, from 1 */
    char *custom_id; /* owned; NULL: it has none */
    bool again;      /* an earlier line has the same custom_id */
    entry_state state;
} entry;

/* A line that is with the engine, or has come back. */
typedef struct place {
    rg_batch_run *r;
    entry *line;    /* NULL: it is free */
    rg_exchange *x; /* while its endpoint has it; guarded by the lock, as are the next three */
    bool landed;
    int status; /* 0: no answer came */
    rg_buf body;
    bool anthropic;
    int n_tries;
    uint64_t again_ns; /* when it waits to run again: until then; 0: it does not wait */
    char id[48];
} place;

struct rg_batch_run {
    rg_batch_file o;
    rg_file *in;
    rg_appender *out;
    entry *lines;
    size_t n_lines, room;
    rg_dict *by_id; /* custom_id -> index of the first line that has it */
    rg_batch_counts counts;
    place *places;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool news_made, any_landed;
    rg_server *s;
};

/* ---- lines of a file --------------------------------------------------------------------------------------------- */

/* Sees one line without its end; whole: it had one.  False stops. */
typedef bool line_visitor(rg_batch_run *r, const rg_string *text, uint64_t from, bool whole, rg_error *err);

/* The line that begins at `from` into text.  *n: its bytes with its end; 0: the file is over.  False and *err. */
static bool read_line(const rg_file *f, uint64_t from, rg_buf *text, size_t *n, rg_error *err)
{
    enum { PIECE = 1 << 16 };
    uint64_t size = rg_file_size(f);
    char *piece = rg_alloc(PIECE), *end = NULL;
    bool ok = piece || rg_fail_memory(err, PIECE);

    rg_buf_reset(text);
    for (uint64_t at = from; ok && !end && at < size;) {
        size_t want = size - at < PIECE ? (size_t)(size - at) : PIECE;

        ok = rg_file_read(f, at, piece, want, err);
        end = ok ? memchr(piece, '\n', want) : NULL;
        want = end ? (size_t)(end - piece) + 1 : want;
        if (ok && !rg_buf_add(text, piece, want))
            ok = rg_fail(err, RG_E_LIMIT,
                         "%s: the line at byte %" PRIu64 " has more than %zu bytes, or there is no "
                         "memory for it",
                         rg_file_path(f), from, most_line);
        at += want;
    }
    *n = text->n;
    rg_free(piece);
    return ok;
}

static bool each_line(rg_batch_run *r, const rg_file *f, line_visitor *see, rg_error *err)
{
    rg_buf text;
    size_t n = 0;
    bool ok = true;

    rg_buf_init(&text, most_line);
    for (uint64_t from = 0; ok && (ok = read_line(f, from, &text, &n, err)) && n; from += n) {
        bool whole = text.data[n - 1] == '\n';
        const rg_string line = { text.data, n - whole };

        ok = see(r, &line, from, whole, err);
    }
    rg_buf_fini(&text);
    return ok;
}

/* ---- IN ---------------------------------------------------------------------------------------------------------- */

static bool note_custom_id(rg_batch_run *r, entry *e, const json_t *line, rg_error *err)
{
    const json_t *id = json_object_get(line, "custom_id");
    size_t n = json_string_length(id);

    if (!json_is_string(id))
        return true;
    e->custom_id = rg_strndup(json_string_value(id), n);
    if (!e->custom_id)
        return rg_fail_memory(err, n);
    e->again = rg_dict_get(r->by_id, e->custom_id, strlen(e->custom_id)) >= 0;
    return e->again || rg_dict_put(r->by_id, e->custom_id, strlen(e->custom_id), (int)(e - r->lines)) ||
           rg_fail_memory(err, n);
}

static bool add_entry(rg_batch_run *r, const rg_string *text, uint64_t from, bool whole, rg_error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t skip = !from && text->n >= 3 && !memcmp(text->data, mark, 3) ? 3 : 0;
    rg_error why = { 0 };

    (void)whole;
    r->counts.n_lines++; /* of all, blank ones too, until the file is read */
    if (rg_line_is_blank(text->data + skip, text->n - skip))
        return true;
    if (r->n_lines == RG_MAX_LINES)
        return rg_fail(err, RG_E_LIMIT, "%s: more than %d lines: split it", r->o.in, (int)RG_MAX_LINES);
    if (r->n_lines == r->room) {
        size_t room = r->room ? 2 * r->room : 256;
        entry *more = rg_resize_array(r->lines, room, sizeof *more);
        if (!more)
            return rg_fail_memory(err, room * sizeof *more);
        r->lines = more;
        r->room = room;
    }
    entry *e = &r->lines[r->n_lines++];
    *e = (entry){ .from = from + skip, .n = text->n - skip, .number = r->counts.n_lines };
    json_t *v = rg_body_parse(text->data + skip, text->n - skip, &why);
    bool ok = (v || why.code != RG_E_MEMORY || rg_fail_memory(err, text->n)) && note_custom_id(r, e, v, err);
    json_decref(v);
    return ok;
}

/* ---- what OUT has ------------------------------------------------------------------------------------------------ */

/* The line of IN that an answer is for; NULL: none. */
static entry *find_asked(const rg_batch_run *r, const json_t *answer)
{
    const char *id = json_string_value(json_object_get(answer, "id"));
    const char *custom_id = json_string_value(json_object_get(answer, "custom_id"));
    long long number = id && !strncmp(id, id_prefix, strlen(id_prefix)) ? atoll(id + strlen(id_prefix)) : 0;
    size_t low = 0, high = r->n_lines;

    if (!number) { /* Anthropic's results have no ids of their own */
        int at = custom_id ? rg_dict_get(r->by_id, custom_id, strlen(custom_id)) : -1;
        return at >= 0 ? &r->lines[at] : NULL;
    }
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->lines[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    entry *e = low < r->n_lines && r->lines[low].number == number ? &r->lines[low] : NULL;
    bool same = e && (e->custom_id && custom_id ? !strcmp(e->custom_id, custom_id) : e->custom_id == custom_id);
    return same ? e : NULL;
}

static bool has_succeeded(const json_t *answer)
{
    const json_t *status = json_object_get(json_object_get(answer, "response"), "status_code");
    const char *type = json_string_value(json_object_get(json_object_get(answer, "result"), "type"));

    return json_integer_value(status) == 200 || (type && !strcmp(type, "succeeded"));
}

static void count_answer(rg_batch_run *r, entry *e, bool succeeded)
{
    e->state = ENTRY_ANSWERED;
    if (succeeded)
        r->counts.n_done++;
    else
        r->counts.n_failed++;
}

static bool note_answer(rg_batch_run *r, const rg_string *text, uint64_t from, bool whole, rg_error *err)
{
    if (!whole) /* it was being written when the process ended */
        return rg_appender_cut(r->out, from, err);
    if (rg_line_is_blank(text->data, text->n))
        return true;
    json_t *v = rg_body_parse(text->data, text->n, NULL);
    entry *e = v ? find_asked(r, v) : NULL;
    const char *id = json_string_value(json_object_get(v, "custom_id"));
    bool ok = e || rg_fail(err, RG_E_INPUT,
                           "%s: the line at byte %" PRIu64 " (custom_id '%.80s') answers no line of "
                           "%s: name another file for the answers, or use --restart to write this one anew",
                           r->o.out, from, id ? id : "", r->o.in);
    if (e && e->state == ENTRY_OPEN)
        count_answer(r, e, has_succeeded(v));
    json_decref(v);
    return ok;
}

static bool read_answers(rg_batch_run *r, rg_error *err)
{
    r->out = rg_appender_open(r->o.out, err);
    if (!r->out || (r->o.anew && !rg_appender_cut(r->out, 0, err)))
        return false;
    rg_file *f = rg_file_open(r->o.out, err);
    bool ok = f && each_line(r, f, note_answer, err);
    rg_file_close(f);
    r->counts.n_before = r->counts.n_done + r->counts.n_failed;
    return ok;
}

/* ---- one line ---------------------------------------------------------------------------------------------------- */

/* Called on the thread that released the exchange last. */
static void land(void *arg, rg_exchange *x)
{
    place *p = arg;
    rg_batch_run *r = p->r;

    pthread_mutex_lock(&r->lock);
    rg_buf_fini(&p->body);
    p->status = rg_exchange_take(x, &p->body);
    p->x = NULL;
    p->landed = r->any_landed = true;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
}

static void keep_first(void *arg, const char *code, const char *param, const char *message)
{
    rg_refusal *e = arg;

    if (!e->status)
        rg_refuse(e, 400, code, param, "%s", message);
}

/* What is asked: body and *route.  False: *e says what is wrong with the line, or nothing and there is no memory. */
static bool read_request(const rg_batch_run *r, place *p, rg_buf *body, const rg_route **route, rg_refusal *e,
                         rg_error *err)
{
    rg_buf text;
    json_t *v = NULL;
    size_t n;
    rg_error why = { 0 };

    rg_buf_init(&text, most_line);
    bool ok = read_line(r->in, p->line->from, &text, &n, err);
    if (ok && !(v = rg_body_parse(text.data, p->line->n < n ? p->line->n : n, &why)) && why.code == RG_E_MEMORY)
        ok = rg_fail_memory(err, n);
    rg_buf_fini(&text);
    if (ok && !json_is_object(v))
        rg_refuse(e, 400, "invalid_json_line", NULL, "The line is not a JSON object.");
    else if (ok && p->line->again)
        rg_refuse_field(e, "custom_id", "'custom_id' is that of an earlier line.");
    else if (ok)
        rg_line_check(v, NULL, keep_first, e);
    *route = rg_batch_route(json_string_value(json_object_get(v, "url")) ? json_string_value(json_object_get(v, "url"))
                                                                         : "");
    if (ok && !e->status && !rg_line_body(v, body, e) && !e->status)
        ok = rg_fail_memory(err, n);
    json_decref(v);
    return ok;
}

/* Send the line of a place to its endpoint.  A line that is wrong is answered at once. */
static bool start_line(rg_batch_run *r, place *p, rg_error *err)
{
    rg_refusal e = { 0 };
    rg_buf body;
    const rg_route *route = NULL;
    rg_inner_options o = { .id = p->id, .done = land, .arg = p };

    rg_json_watch(); /* what an earlier line lost is nothing to this one */
    rg_buf_init(&body, SIZE_MAX >> 1);
    snprintf(p->id, sizeof p->id, "%s%" PRId64, id_prefix, p->line->number);
    if (!read_request(r, p, &body, &route, &e, err))
        return false;
    p->anthropic = route && !strcmp(route->path, RG_MESSAGES);
    o.note = (rg_exchange_note){ .route = route ? (int)(route - rg_routes) : -1,
                                 .since_ns = rg_now_ns(),
                                 .background = true,
                                 .tenant = -1,
                                 .seed = rg_hash(p->line->custom_id ? p->line->custom_id : "",
                                                 p->line->custom_id ? strlen(p->line->custom_id) : 0,
                                                 (uint64_t)p->line->number) };
    rg_exchange *x = rg_exchange_new(&o, &body);
    if (!x)
        return rg_fail_memory(err, sizeof body);
    p->n_tries++;
    p->again_ns = 0;
    pthread_mutex_lock(&r->lock);
    p->x = x;
    p->landed = false;
    pthread_mutex_unlock(&r->lock);
    if (e.status)
        rg_reply_refusal(r->s->first, x, &e);
    else
        rg_server_answer(r->s, x);
    rg_exchange_release(x);
    return true;
}

static bool keep_answer(rg_batch_run *r, place *p, rg_error *err)
{
    const char *id = p->line->custom_id;
    const rg_line_answer answer = { .id = p->id,
                                    .custom_id = id,
                                    .n_custom_id = id ? strlen(id) : 0,
                                    .status = p->status,
                                    .body = &p->body,
                                    .anthropic = p->anthropic };
    rg_buf out;

    rg_buf_init(&out, (size_t)1 << 31);
    rg_line_write(&out, &answer);
    bool ok = out.failed ? rg_fail_memory(err, out.n) : rg_appender_add(r->out, out.data, out.n, err);
    rg_buf_fini(&out);
    if (!ok)
        return false;
    count_answer(r, p->line, p->status == 200);
    p->line = NULL;
    rg_buf_fini(&p->body);
    if (r->o.progress)
        r->o.progress(r->o.arg, r->counts.n_done + r->counts.n_failed, r->counts.n_lines);
    return true;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool is_landed(place *p)
{
    pthread_mutex_lock(&p->r->lock);
    bool landed = p->landed;
    pthread_mutex_unlock(&p->r->lock);
    return landed;
}

/* Keep what has come, start what is due and what fits.  *n_open: places that are not free afterwards. */
static bool turn(rg_batch_run *r, size_t *next, int32_t *n_open, rg_error *err)
{
    *n_open = 0;
    for (int32_t i = 0; i < r->o.n_at_once; i++) {
        place *p = &r->places[i];

        if (p->line && is_landed(p) && !p->again_ns) {
            if (rg_line_is_passing(r->s, p->status, p->n_tries))
                p->again_ns = rg_now_ns() + rg_line_pause_ns(p->n_tries);
            else if (!keep_answer(r, p, err))
                return false;
        }
        if (p->line && p->again_ns && rg_now_ns() >= p->again_ns && !start_line(r, p, err))
            return false;
        while (!p->line && *next < r->n_lines) {
            entry *e = &r->lines[(*next)++];
            if (e->state != ENTRY_OPEN)
                continue;
            e->state = ENTRY_TAKEN;
            p->line = e;
            p->n_tries = 0;
            if (!start_line(r, p, err))
                return false;
        }
        *n_open += p->line != NULL;
    }
    return true;
}

static void sleep_until_news(rg_batch_run *r, double s)
{
    pthread_mutex_lock(&r->lock);
    if (!r->any_landed)
        rg_cond_wait(&r->news, &r->lock, s);
    r->any_landed = false;
    pthread_mutex_unlock(&r->lock);
}

/* Cancel what runs and wait for it; answers that have come whole are kept. */
static void recall(rg_batch_run *r)
{
    bool any = true;

    while (any) {
        any = false;
        pthread_mutex_lock(&r->lock);
        for (int32_t i = 0; i < r->o.n_at_once; i++)
            if (r->places[i].x) {
                rg_exchange_leave(r->places[i].x);
                any = true;
            }
        pthread_mutex_unlock(&r->lock);
        if (any)
            sleep_until_news(r, 0.1);
    }
    for (int32_t i = 0; i < r->o.n_at_once; i++) {
        place *p = &r->places[i];
        if (p->line && p->landed && p->status == 200)
            (void)!keep_answer(r, p, NULL);
    }
}

bool rg_batch_file_answer(rg_batch_run *r, rg_server *s, rg_error *err)
{
    size_t next = 0;
    int32_t n_open = 1;
    bool ok = true, stopped = false;

    r->s = s;
    while (ok && n_open && !stopped) {
        ok = turn(r, &next, &n_open, err);
        if (ok && n_open)
            sleep_until_news(r, 0.1);
        stopped = r->o.stop && r->o.stop(r->o.arg);
    }
    recall(r);
    return ok && rg_appender_sync(r->out, err);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

rg_batch_run *rg_batch_file_open(const rg_batch_file *o, rg_error *err)
{
    rg_batch_run *r = rg_zalloc(sizeof *r);

    if (!r)
        return rg_fail_memory(err, sizeof *r), NULL;
    r->o = *o;
    pthread_mutex_init(&r->lock, NULL);
    r->news_made = rg_cond_init(&r->news);
    r->by_id = rg_dict_new(1024);
    r->places = rg_array((size_t)o->n_at_once, sizeof *r->places);
    if (!r->news_made || !r->by_id || !r->places) {
        rg_fail_memory(err, (size_t)o->n_at_once * sizeof *r->places);
        goto fail;
    }
    for (int32_t i = 0; i < o->n_at_once; i++)
        r->places[i].r = r;
    r->in = rg_file_open(o->in, err);
    if (!r->in || !each_line(r, r->in, add_entry, err))
        goto fail;
    r->counts.n_lines = (int64_t)r->n_lines;
    if (!r->n_lines) {
        rg_fail(err, RG_E_INPUT, "%s: no request in it", o->in);
        goto fail;
    }
    if (read_answers(r, err))
        return r;

fail:
    rg_batch_file_close(r);
    return NULL;
}

rg_batch_counts rg_batch_file_counts(const rg_batch_run *r)
{
    return r->counts;
}

void rg_batch_file_close(rg_batch_run *r)
{
    if (!r)
        return;
    for (int32_t i = 0; r->places && i < r->o.n_at_once; i++)
        rg_buf_fini(&r->places[i].body);
    for (size_t i = 0; i < r->n_lines; i++)
        rg_free(r->lines[i].custom_id);
    rg_free(r->places);
    rg_free(r->lines);
    rg_dict_free(r->by_id);
    rg_file_close(r->in);
    rg_appender_close(r->out);
    if (r->news_made)
        pthread_cond_destroy(&r->news);
    pthread_mutex_destroy(&r->lock);
    rg_free(r);
}
