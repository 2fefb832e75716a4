/* openapi.c -- GET /openapi.json: a description of every endpoint (OpenAPI 3.1), made from the tables of routes
 * (routes.def), fields (fields.def) and what else is said of endpoints (openapi.def). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "server/core.h"
#include "server/json.h"
#include "server/api/field_letters.h"
#include "server/api/ollama.h"

/* ---- tables ------------------------------------------------------------------------------------------------------ */

typedef struct field {
    const char *name;
    unsigned where;
    kind kind;
    double min, max;
    const char *words;
} field;

static const field fields[] = {
#define FIELD(name, where, kind, member, min, max, words) { #name, where, kind, min, max, words },
#include "server/api/fields.def"
#undef FIELD
};

typedef struct doc {
    rg_endpoint *endpoint;
    const char *tag;
    unsigned fields;
    const char *must, *answer, *summary;
} doc;

static const doc docs[] = {
#define DOC(endpoint, tag, fields, must, answer, summary) { rg_api_##endpoint, tag, fields, must, answer, summary },
#include "server/api/openapi.def"
#undef DOC
};

static const doc *doc_of(const rg_route *r)
{
    static const doc none = { NULL, "Server", 0, "", "", "" };

    for (size_t i = 0; i < RG_LEN(docs); i++)
        if (docs[i].endpoint == r->answer)
            return &docs[i];
    return &none;
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

/* Values as JSON with bars between, and null: each counts as if the field were absent. */
static void write_idle(rg_buf *b, const field *f)
{
    rg_out_open(b, "enum", '[');
    rg_out_null(b, NULL);
    for (const char *w = f->words; w && *w;) {
        size_t n = strcspn(w, "|");
        rg_out_raw(b, NULL, w, n);
        w += n + (w[n] == '|');
    }
    rg_out_close(b, ']');
}

static void write_words(rg_buf *b, const field *f)
{
    rg_out_open(b, "enum", '[');
    rg_out_null(b, NULL);
    for (const char *w = f->words; w && *w;) {
        size_t n = strcspn(w, "|");
        rg_out_string(b, NULL, w, n);
        w += n + (w[n] == '|');
    }
    rg_out_close(b, ']');
}

static void write_range(rg_buf *b, const char *type, double min, double max)
{
    rg_out_open(b, "type", '[');
    rg_out_text(b, NULL, type);
    rg_out_text(b, NULL, "null");
    rg_out_close(b, ']');
    if (max > min && !strcmp(type, "string")) {
        rg_out_int(b, "maxLength", (int64_t)max);
    } else if (max > min) {
        rg_out_real(b, "minimum", min);
        rg_out_real(b, "maximum", max);
    }
}

static const char *type_of(kind k)
{
    return k == BOOL ? "boolean" : k == STR ? "string" : k == NUM ? "number" : "integer";
}

/* Describe a value within the range, or one of the values that ask for nothing. */
static void write_either(rg_buf *b, const field *f)
{
    rg_out_open(b, "anyOf", '[');
    rg_out_open(b, NULL, '{');
    write_idle(b, f);
    rg_out_close(b, '}');
    rg_out_open(b, NULL, '{');
    write_range(b, type_of(f->kind), f->kind == LIMIT ? -1 : f->min, f->max);
    rg_out_close(b, '}');
    rg_out_close(b, ']');
}

static void write_field(rg_buf *b, const field *f)
{
    rg_out_open(b, f->name, '{');
    switch (f->kind) {
    case WORD:
        write_words(b, f);
        break;
    case OFF:
        write_idle(b, f);
        rg_out_text(b, "description", "Known and not supported: these values ask for nothing.");
        break;
    case ANY:
    case OWN:
        break;
    default:
        if (f->words)
            write_either(b, f);
        else
            write_range(b, type_of(f->kind), f->kind == LIMIT ? -1 : f->min, f->max);
    }
    rg_out_close(b, '}');
}

/* Names with blanks between, as a list. */
static void write_names(rg_buf *b, const char *key, const char *names)
{
    if (!*names)
        return;
    rg_out_open(b, key, '[');
    for (const char *s = names; *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        rg_out_string(b, NULL, s, n);
        s += n;
    }
    rg_out_close(b, ']');
}

/* True for the first line of a name: where an endpoint has several, the first counts. */
static bool is_first(size_t i, unsigned where)
{
    for (size_t k = 0; k < i; k++)
        if (fields[k].where & where && !strcmp(fields[k].name, fields[i].name))
            return false;
    return fields[i].where & where;
}

static void write_body(rg_buf *b, const rg_route *r, const doc *d)
{
    if (strcmp(r->method, "POST") != 0)
        return;
    rg_out_open(b, "requestBody", '{');
    rg_out_bool(b, "required", d->fields || *d->must);
    rg_out_open(b, "content", '{');
    rg_out_open(b, r->answer == rg_api_file_new ? "multipart/form-data" : "application/json", '{');
    rg_out_open(b, "schema", '{');
    rg_out_text(b, "type", "object");
    write_names(b, "required", d->must);
    if (d->fields) {
        rg_out_open(b, "properties", '{');
        for (size_t i = 0; i < RG_LEN(fields); i++)
            if (is_first(i, d->fields))
                write_field(b, &fields[i]);
        rg_out_close(b, '}');
    }
    rg_out_close(b, '}');
    rg_out_close(b, '}');
    rg_out_close(b, '}');
    rg_out_close(b, '}');
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void write_content(rg_buf *b, const char *media, const char *type, const char *required)
{
    rg_out_open(b, media, '{');
    rg_out_open(b, "schema", '{');
    if (type)
        rg_out_text(b, "type", type);
    write_names(b, "required", required);
    rg_out_close(b, '}');
    rg_out_close(b, '}');
}

static void write_success(rg_buf *b, const doc *d)
{
    bool list = !strcmp(d->answer, "[]"), text = !strcmp(d->answer, "text");

    rg_out_open(b, "200", '{');
    rg_out_text(b, "description", "Done.");
    rg_out_open(b, "content", '{');
    if (text)
        write_content(b, "*/*", NULL, "");
    else
        write_content(b, "application/json", list ? "array" : *d->answer ? "object" : NULL, list ? "" : d->answer);
    if (d->fields & (C | H | R | M) && !(d->fields & O))
        write_content(b, "text/event-stream", NULL, "");
    if (d->fields & O || d->endpoint == rg_api_ollama_pull)
        write_content(b, rg_ollama.stream_type, NULL, "");
    rg_out_close(b, '}');
    rg_out_close(b, '}');
}

/* Every status that refuses, with the error in the shape of the endpoint. */
static void write_errors(rg_buf *b, const rg_route *r)
{
    char status[16], shape[64];

    snprintf(shape, sizeof shape, "#/components/schemas/%s", r->family->error_schema);
    for (int i = 0, is; (is = rg_error_status(i)) != 0; i++) {
        snprintf(status, sizeof status, "%d", is);
        rg_out_open(b, status, '{');
        rg_out_text(b, "description", "Refused; the message says why.");
        rg_out_open(b, "content", '{');
        rg_out_open(b, "application/json", '{');
        rg_out_open(b, "schema", '{');
        if (is == 503 && r->flags & RG_ROUTE_OPEN)
            rg_out_text(b, "type", "object"); /* not ready, and why */
        else
            rg_out_text(b, "$ref", shape);
        rg_out_close(b, '}');
        rg_out_close(b, '}');
        rg_out_close(b, '}');
        rg_out_close(b, '}');
    }
}

static void write_operation(rg_buf *b, const rg_route *r, int number)
{
    const doc *d = doc_of(r);
    char id[64], method[8];
    size_t n = 0;

    for (; r->method[n] && n + 1 < sizeof method; n++)
        method[n] = (char)tolower((unsigned char)r->method[n]);
    method[n] = 0;
    snprintf(id, sizeof id, "%s_%d", method, number);
    rg_out_open(b, method, '{');
    rg_out_text(b, "operationId", id);
    rg_out_text(b, "summary", d->summary);
    rg_out_open(b, "tags", '[');
    rg_out_text(b, NULL, d->tag);
    rg_out_close(b, ']');
    if (r->flags & RG_ROUTE_OPEN) { /* no key is asked for */
        rg_out_open(b, "security", '[');
        rg_out_close(b, ']');
    }
    if (r->flags & RG_ROUTE_PREFIX) {
        rg_out_open(b, "parameters", '[');
        rg_out_open(b, NULL, '{');
        rg_out_text(b, "name", "id");
        rg_out_text(b, "in", "path");
        rg_out_bool(b, "required", true);
        rg_out_raw(b, "schema", "{\"type\":\"string\",\"minLength\":1}",
                   strlen("{\"type\":\"string\",\"minLength\":1}"));
        rg_out_close(b, '}');
        rg_out_close(b, ']');
    }
    write_body(b, r, d);
    rg_out_open(b, "responses", '{');
    write_success(b, d);
    write_errors(b, r);
    rg_out_close(b, '}');
    rg_out_close(b, '}');
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

static bool same_path(const rg_route *a, const rg_route *b)
{
    return !strcmp(a->path, b->path) && (a->flags & RG_ROUTE_PREFIX) == (b->flags & RG_ROUTE_PREFIX);
}

static void write_paths(rg_buf *b)
{
    char path[128];

    rg_out_open(b, "paths", '{');
    for (int i = 0; i < rg_n_routes; i++) {
        const rg_route *r = &rg_routes[i];
        bool again = false;

        for (int k = 0; k < i && !again; k++)
            again = same_path(&rg_routes[k], r);
        if (again)
            continue;
        snprintf(path, sizeof path, "%s%s", r->path, r->flags & RG_ROUTE_PREFIX ? "{id}" : "");
        rg_out_open(b, path, '{');
        for (int k = i; k < rg_n_routes; k++)
            if (same_path(&rg_routes[k], r))
                write_operation(b, &rg_routes[k], k);
        rg_out_close(b, '}');
    }
    rg_out_close(b, '}');
}

/* The shapes of errors (reply.c), and how a key is given. */
static void write_components(rg_buf *b)
{
    static const char schemas[] =
        "{\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
        "\"required\":[\"message\",\"type\"],\"properties\":{\"message\":{\"type\":\"string\"},\"type\":{\"type\":"
        "\"string\"}}},\"request_id\":{\"type\":\"string\"}}},"
        "\"AnthropicError\":{\"type\":\"object\",\"required\":[\"type\",\"error\"],\"properties\":{\"type\":{\"const\":"
        "\"error\"},\"error\":{\"type\":\"object\",\"required\":[\"type\",\"message\"]}}},"
        "\"OllamaError\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"string\"}}"
        "}}";
    static const char keys[] = "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}";

    rg_out_open(b, "components", '{');
    rg_out_raw(b, "schemas", schemas, sizeof schemas - 1);
    rg_out_raw(b, "securitySchemes", keys, sizeof keys - 1);
    rg_out_close(b, '}');
}

void rg_api_openapi(rg_served *s, rg_exchange *x)
{
    rg_buf out;

    rg_buf_init(&out, (size_t)1 << 24);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "openapi", "3.1.0");
    rg_out_open(&out, "info", '{');
    rg_out_text(&out, "title", "ridge");
    rg_out_text(&out, "version", RG_VERSION);
    rg_out_close(&out, '}');
    if (rg_keys_count(s->server->keys))
        rg_out_raw(&out, "security", "[{\"key\":[]}]", strlen("[{\"key\":[]}]"));
    write_paths(&out);
    write_components(&out);
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}
