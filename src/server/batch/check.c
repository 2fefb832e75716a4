/* check.c -- checks a batch's input line by line: a line that is not a request fails the whole batch before it
 * runs. */
#include <string.h>

#include "server/batch/line.h"
#include "server/batch/batches.h"

enum { MAX_REQUESTS = 50000, MAX_ERRORS = 100 };

typedef struct check {
    rg_batch_store *st;
    const rg_batch_record *b;
    rg_buf *errors;
    int64_t n_errors, n_requests, number, at; /* number: of the line; at: where in the file it begins */
    rg_error *err;
} check;

/* line 0: none */
static void note(check *c, const char *code, int64_t line, const char *param, const char *message)
{
    if (c->n_errors++ >= MAX_ERRORS)
        return;
    if (c->n_errors == 1) {
        rg_out_open(c->errors, NULL, '{');
        rg_out_text(c->errors, "object", "list");
        rg_out_open(c->errors, "data", '[');
    }
    rg_out_open(c->errors, NULL, '{');
    rg_out_text(c->errors, "code", code);
    if (line)
        rg_out_int(c->errors, "line", line);
    else
        rg_out_null(c->errors, "line");
    rg_out_text(c->errors, "message", message);
    rg_out_text(c->errors, "param", param);
    rg_out_close(c->errors, '}');
}

static void note_fault(void *arg, const char *code, const char *param, const char *message)
{
    check *c = arg;

    note(c, code, c->number, param, message);
}

static bool add_request(check *c, const json_t *v, size_t n)
{
    const json_t *id = json_object_get(v, "custom_id");
    rg_line l = { .number = c->number,
                  .from = c->at,
                  .n = (int64_t)n,
                  .custom_id = json_string_value(id),
                  .n_custom_id = json_string_length(id) };
    rg_stored added = rg_store_add_line(c->st, c->b->key, &l, c->err);

    if (added == RG_STORE_IN_USE)
        note(c, "duplicate_custom_id", c->number, "custom_id", "'custom_id' is that of an earlier line.");
    return added != RG_STORE_FAILED;
}

/* One line, without its end.  False: the store or the memory failed. */
static bool check_line(check *c, const char *s, size_t n)
{
    static const char mark[] = "\xef\xbb\xbf";
    rg_error why = { 0 };
    int64_t before = c->n_errors;
    bool ok = true;

    c->number++;
    if (!c->at && n >= 3 && !memcmp(s, mark, 3)) {
        c->at = 3;
        s += 3;
        n -= 3;
    }
    if (rg_line_is_blank(s, n))
        return true;
    if (++c->n_requests > MAX_REQUESTS || c->number >= RG_MAX_LINES) {
        if (c->n_requests == MAX_REQUESTS + 1)
            note(c, "too_many_requests", c->number, NULL, "A batch has 50000 requests at most.");
        return true;
    }
    json_t *v = rg_body_parse(s, n, &why);
    if (!v && why.code == RG_E_MEMORY)
        return rg_fail_memory(c->err, n);
    if (!json_is_object(v))
        note(c, "invalid_json_line", c->number, NULL, "The line is not a JSON object.");
    else
        rg_line_check(v, c->b->endpoint, note_fault, c);
    if (c->n_errors == before)
        ok = add_request(c, v, n);
    json_decref(v);
    return ok;
}

/* All whole lines of what was read; the rest stays. */
static bool check_lines(check *c, rg_buf *text, size_t scanned)
{
    size_t from = 0;
    char *end;

    while ((end = memchr(text->data + scanned, '\n', text->n - scanned))) {
        size_t n = (size_t)(end - text->data) - from;
        int64_t next = c->at + (int64_t)n + 1;
        if (!check_line(c, text->data + from, n))
            return false;
        c->at = next;
        scanned = from += n + 1;
    }
    memmove(text->data, text->data + from, text->n - from);
    text->n -= from;
    return true;
}

static rg_stored check_file(check *c, const rg_file_record *f, rg_buf *text)
{
    int64_t at = 0;
    rg_stored got;

    for (;;) {
        size_t before = text->n;
        got = rg_store_read(c->st, f, &at, text, c->err);
        if (got != RG_STORE_DONE)
            break;
        if (!check_lines(c, text, before))
            return RG_STORE_FAILED;
    }
    if (got == RG_STORE_NONE && text->n && !check_line(c, text->data, text->n))
        return RG_STORE_FAILED;
    return got == RG_STORE_NONE ? RG_STORE_DONE : got;
}

rg_stored rg_batch_check(rg_batch_store *st, const rg_batch_record *b, int64_t *n_lines, rg_buf *errors, rg_error *err)
{
    check c = { .st = st, .b = b, .errors = errors, .err = err };
    rg_file_record f = { .key = b->input };
    rg_buf text;

    rg_buf_init(&text, (size_t)1 << 40);
    rg_stored got = check_file(&c, &f, &text);
    rg_buf_fini(&text);
    if (got == RG_STORE_DONE && !c.n_requests)
        note(&c, "empty_file", 0, NULL, "There is no request in the input file.");
    if (c.n_errors) {
        rg_out_close(errors, ']');
        rg_out_close(errors, '}');
    }
    *n_lines = c.n_requests;
    return errors->failed ? (rg_fail_memory(err, errors->n), RG_STORE_FAILED) : got;
}
