/* batch.h -- a client of /v1/files and /v1/batches, for tests of them. */
#ifndef RG_TEST_BATCH_H
#define RG_TEST_BATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/web.h"

#define TEST_BOUNDARY "----a-line-between"

/* The form that uploads text[0, n) under a name; *n_form its length.  free it. */
static inline char *test_form(const char *purpose, const char *name, const char *text, size_t n, size_t *n_form)
{
    char head[5000];
    static const char tail[] = "\r\n--" TEST_BOUNDARY "--\r\n";
    int k = snprintf(head, sizeof head,
                     "--" TEST_BOUNDARY "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n%s\r\n"
                     "--" TEST_BOUNDARY "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n"
                     "Content-Type: application/octet-stream\r\n\r\n",
                     purpose, name);
    char *form = malloc((size_t)k + n + sizeof tail);

    assert_non_null(form);
    memcpy(form, head, (size_t)k);
    memcpy(form + k, text, n);
    memcpy(form + (size_t)k + n, tail, sizeof tail);
    *n_form = (size_t)k + n + sizeof tail - 1;
    return form;
}

/* POST a form; more: headers besides.  test_reply_free it. */
static inline test_reply test_post_form(int port, const char *more, const char *form, size_t n)
{
    char head[512];
    int fd = test_web_connect(port);
    int k = snprintf(head, sizeof head,
                     "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n"
                     "Content-Type: multipart/form-data; boundary=" TEST_BOUNDARY "\r\n%s\r\n",
                     n, more ? more : "");
    test_web_send(fd, head, (size_t)k);
    test_web_send(fd, form, n);
    test_reply r = test_web_read(fd, 60);
    close(fd);
    return r;
}

/* The id of the file that it has become. */
static inline void test_upload(int port, const char *more, const char *text, char id[64])
{
    size_t n;
    char *form = test_form("batch", "lines.jsonl", text, strlen(text), &n);
    test_reply r = test_post_form(port, more, form, n);

    if (r.status != 200)
        fail_msg("upload: %d %s", r.status, r.body);
    json_t *v = test_reply_json(&r);
    snprintf(id, 64, "%s", json_string_value(json_object_get(v, "id")));
    json_decref(v);
    test_reply_free(&r);
    free(form);
}

static inline json_t *test_ask_json(int port, const char *method, const char *path, const char *more, const char *body,
                                    int want)
{
    test_reply r = test_web_ask(port, method, path, more, body);

    if (r.status != want)
        fail_msg("%s %s: %d %s", method, path, r.status, r.body ? r.body : "");
    json_t *v = test_reply_json(&r);
    test_reply_free(&r);
    return v;
}

static inline json_t *test_batch_new(int port, const char *more, const char *file, const char *endpoint)
{
    char body[256];

    snprintf(body, sizeof body, "{\"input_file_id\":\"%s\",\"endpoint\":\"%s\",\"completion_window\":\"24h\"}", file,
             endpoint);
    return test_ask_json(port, "POST", "/v1/batches", more, body, 200);
}

static inline const char *test_text(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));

    return s ? s : "";
}

static inline long long test_count(const json_t *batch, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(batch, "request_counts"), key));
}

/* Ask until the batch is in this state, within seconds.  json_decref it. */
static inline json_t *test_batch_wait(int port, const char *more, const char *id, const char *state, double seconds)
{
    uint64_t from = rg_now_ns();
    char path[128];

    snprintf(path, sizeof path, "/v1/batches/%s", id);
    for (;;) {
        json_t *v = test_ask_json(port, "GET", path, more, NULL, 200);
        if (!strcmp(test_text(v, "status"), state))
            return v;
        if (rg_seconds(from, rg_now_ns()) > seconds)
            fail_msg("the batch is %s, not %s", test_text(v, "status"), state);
        json_decref(v);
        struct timespec t = { 0, 10000000 };
        nanosleep(&t, NULL);
    }
}

/* The lines of a file, by custom id; fails if one comes twice. */
static inline json_t *test_answers(int port, const char *more, const char *file)
{
    char path[128];
    json_t *all = json_object();

    snprintf(path, sizeof path, "/v1/files/%s/content", file);
    test_reply r = test_web_ask(port, "GET", path, more, NULL);
    assert_int_equal(r.status, 200);
    for (char *line = r.body, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = 0;
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        assert_null(json_object_get(all, test_text(v, "custom_id")));
        json_object_set_new(all, test_text(v, "custom_id"), v);
    }
    test_reply_free(&r);
    return all;
}

/* The text of a completion that a line came to. */
static inline const char *test_answer_text(const json_t *line)
{
    const json_t *body = json_object_get(json_object_get(line, "response"), "body");

    return test_text(json_array_get(json_object_get(body, "choices"), 0), "text");
}

#endif
