/* line.h -- one line of a batch: what it must have, the request within it, and the line that answers it.  The
 * same for batches of the store and for files (file.h). */
#ifndef RG_SERVER_BATCH_LINE_H
#define RG_SERVER_BATCH_LINE_H

#include "server/core.h"
#include "server/json.h"

enum { RG_LINE_TRIES = 10 }; /* of a line whose answer is about the server's state */

/* What is wrong with a line: a code, the member, a sentence. */
typedef void rg_line_fault(void *arg, const char *code, const char *param, const char *message);

/* Check a line, an object, as far as possible without running it.  endpoint: that its url must name; NULL: any that a
 * batch may name. */
void rg_line_check(const json_t *line, const char *endpoint, rg_line_fault *tell, void *arg);

/* Blank lines of a file are no requests. */
bool rg_line_is_blank(const char *s, size_t n);

/* The request of a line as text, into an empty *body.  False: *e; status 0: no memory. */
bool rg_line_body(const json_t *line, rg_buf *body, rg_refusal *e);

/* True if an answer of this status, of a line that was tried so often, is about the server's state and not about the
 * line: then the line runs again, */
bool rg_line_is_passing(const rg_server *s, int status, int n_tries);
/*   after so many nanoseconds. */
uint64_t rg_line_pause_ns(int n_tries);

typedef struct rg_line_answer {
    const char *id;
    const char *custom_id; /* [n_custom_id]; NULL: the line had none */
    size_t n_custom_id;
    int status;
    const rg_buf *body;
    bool anthropic; /* as a result of Anthropic's batches */
} rg_line_answer;

/* One line, with its end, onto an initialised buffer. */
void rg_line_write(rg_buf *out, const rg_line_answer *a);

#endif
