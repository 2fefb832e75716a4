/* line.c -- see line.h. */
#include "server/batch/line.h"

#include <string.h>

#include "server/batch/batches.h"

enum { MAX_CUSTOM_ID = 1024 };

void rg_line_check(const json_t *line, const char *endpoint, rg_line_fault *tell, void *arg)
{
    const json_t *id = json_object_get(line, "custom_id");
    const char *method = json_string_value(json_object_get(line, "method"));
    const char *url = json_string_value(json_object_get(line, "url"));

    if (!json_is_string(id) || !json_string_length(id) || json_string_length(id) > MAX_CUSTOM_ID)
        tell(arg, "invalid_custom_id", "custom_id", "'custom_id' must be a string of 1 to 1024 bytes.");
    if (!method || strcmp(method, "POST") != 0)
        tell(arg, "invalid_method", "method", "'method' must be POST.");
    if (endpoint && (!url || strcmp(url, endpoint) != 0))
        tell(arg, "invalid_url", "url", "'url' must be the endpoint of the batch.");
    else if (!endpoint && (!url || !rg_batch_route(url)))
        tell(arg, "invalid_url", "url", "'url' must be an endpoint that batches can name, as /v1/chat/completions.");
    if (!json_is_object(json_object_get(line, "body")))
        tell(arg, "missing_required_parameter", "body", "'body' must be an object.");
}

bool rg_line_is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", s[i]) || !s[i])
            return false;
    return true;
}

bool rg_line_body(const json_t *line, rg_buf *body, rg_refusal *e)
{
    const json_t *request = json_object_get(line, "body");

    if (!request)
        return rg_refuse(e, 400, "invalid_line", NULL, "The line is no request.");
    if (json_is_true(json_object_get(request, "stream")))
        return rg_refuse_field(e, "stream", "A request of a batch cannot be streamed.");
    char *s = rg_body_dump(request);
    if (s)
        *body = (rg_buf){ .data = s, .n = strlen(s), .room = strlen(s) + 1, .cap = SIZE_MAX >> 1 };
    return s != NULL;
}

bool rg_line_is_passing(const rg_server *s, int status, int n_tries)
{
    if (status == 200 || (status >= 400 && status < 500 && status != 429))
        return false;
    return !rg_server_takes_work(s) || status == 429 || n_tries < RG_LINE_TRIES;
}

uint64_t rg_line_pause_ns(int n_tries)
{
    return (uint64_t)250000000 << (n_tries < 7 ? n_tries : 7);
}

static void write_id(rg_buf *out, const rg_line_answer *a)
{
    if (a->custom_id)
        rg_out_string(out, "custom_id", a->custom_id, a->n_custom_id);
    else
        rg_out_null(out, "custom_id");
}

static void write_body(rg_buf *out, const char *key, const rg_buf *body)
{
    rg_out_raw(out, key, body->n ? body->data : "null", body->n ? body->n : 4);
}

static void write_result(rg_buf *out, const rg_line_answer *a)
{
    bool ok = a->status == 200;

    rg_out_open(out, NULL, '{');
    write_id(out, a);
    rg_out_open(out, "result", '{');
    rg_out_text(out, "type", ok ? "succeeded" : "errored");
    write_body(out, ok ? "message" : "error", a->body);
    rg_out_close(out, '}');
    rg_buf_str(out, "}\n");
}

void rg_line_write(rg_buf *out, const rg_line_answer *a)
{
    if (a->anthropic) {
        write_result(out, a);
        return;
    }
    rg_out_open(out, NULL, '{');
    rg_out_text(out, "id", a->id);
    write_id(out, a);
    rg_out_open(out, "response", '{');
    rg_out_int(out, "status_code", a->status);
    rg_out_text(out, "request_id", a->id);
    write_body(out, "body", a->body);
    rg_out_close(out, '}');
    rg_out_null(out, "error");
    rg_buf_str(out, "}\n");
}
