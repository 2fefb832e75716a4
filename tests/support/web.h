/* web.h -- a small HTTP client of raw sockets, for tests of a server that must survive whatever is sent. */
#ifndef RG_TEST_WEB_H
#define RG_TEST_WEB_H

#include <jansson.h>

#include "support/test.h"

typedef struct test_reply {
    int status;      /* 0: closed without an answer */
    char *head;      /* status line and headers, NUL-terminated */
    char *body;      /* chunks put together, NUL-terminated */
    size_t n_body;
    bool closed;     /* the server closed, or said that it would */
} test_reply;

void test_reply_free(test_reply *r);
/* A header's value, copied into a buffer of the function; NULL: none. */
const char *test_reply_header(const test_reply *r, const char *name);
/* The body as JSON; fails the test if it is none.  json_decref it. */
json_t *test_reply_json(const test_reply *r);

int test_web_connect(int port); /* a socket; fails the test if it cannot */
int test_web_connect_slow(int port, int window); /* with room for so many bytes that nobody has read */
/* Send all; false: the other side closed. */
bool test_web_send(int fd, const void *data, size_t n);
/* One answer, within timeout_s. */
test_reply test_web_read(int fd, double timeout_s);
/* Up to n bytes of whatever comes within timeout_s; 0: closed; -1: nothing. */
long test_web_some(int fd, char *to, size_t n, double timeout_s);

/* A whole exchange on a connection of its own.  headers (may be NULL): "Name: value\r\n" each; body NULL: none. */
test_reply test_web_ask(int port, const char *method, const char *path, const char *headers, const char *body);
/* The same, and its JSON; fails the test unless the status is want. */
json_t *test_web_json(int port, const char *path, const char *body, int want);
int test_web_status(int port, const char *path, const char *body); /* POST, or GET if body is NULL */

/* What stands at a path such as "choices.0.text"; NULL: nothing. */
const json_t *test_json_at(const json_t *v, const char *path);
/* The text there; fails the test if there is none. */
const char *test_json_text(const json_t *v, const char *path);

#endif
