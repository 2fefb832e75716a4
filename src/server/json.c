/* json.c -- see json.h. */
#include "server/json.h"

#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/mem.h"

char *rg_body_dump(const json_t *v)
{
    return rg_json_dump(v, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The place behind the string that begins at text[at]; n if it does not end. */
static size_t behind_string(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < n ? at + 1 : n;
}

static size_t skip_blank(const char *text, size_t n, size_t at)
{
    while (at < n && strchr(" \t\r\n", text[at]))
        at++;
    return at;
}

/* The string text[0, n), with its quotes, into to. */
static bool read_string(const char *text, size_t n, char *to, size_t room)
{
    json_t *v = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    const char *s = json_string_value(v);
    bool ok = s && json_string_length(v) < room;

    if (ok)
        memcpy(to, s, json_string_length(v) + 1);
    json_decref(v);
    return ok;
}

bool rg_json_member(const char *text, size_t n, const char *key, char *to, size_t room)
{
    size_t depth = 0;
    bool found = false;

    for (size_t at = skip_blank(text, n, 0), end; at < n;) {
        char c = text[at];

        if (c != '"') {
            depth += c == '{' || c == '[';
            depth -= depth && (c == '}' || c == ']');
            at++;
            continue;
        }
        end = behind_string(text, n, at);
        size_t colon = skip_blank(text, n, end), from = skip_blank(text, n, colon + 1);
        bool is_key = depth == 1 && colon < n && text[colon] == ':';

        if (is_key && end - at == strlen(key) + 2 && !memcmp(text + at + 1, key, strlen(key)) && from < n &&
            text[from] == '"') {
            end = behind_string(text, n, from);
            found = read_string(text + from, end - from, to, room);
        }
        at = end;
    }
    return found;
}

json_t *rg_body_parse(const char *text, size_t n, rg_error *err)
{
    json_error_t why = { 0 };
    json_t *v;

    if (!n)
        return rg_fail(err, RG_E_INPUT, "The request has no body: want a JSON object."), NULL;
    v = rg_json_load_within(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY,
                            &(rg_json_limits){ .bytes = rg_json_budget(n, RG_JSON_TIMES_BODY),
                                               .depth = RG_BODY_DEPTH,
                                               .values = RG_BODY_VALUES },
                            &why);
    if (v)
        return v;
    if (rg_json_over_limit(&why))
        return rg_fail(err, RG_E_INPUT, "The JSON body is too large: %s.", why.text), NULL;
    switch (json_error_code(&why)) {
    case json_error_duplicate_key:
        rg_fail(err, RG_E_INPUT, "The JSON body has a key twice in one object (line %d).", why.line);
        break;
    case json_error_numeric_overflow:
        rg_fail(err, RG_E_INPUT, "The JSON body has a number that is too large (line %d).", why.line);
        break;
    case json_error_invalid_utf8:
        rg_fail(err, RG_E_INPUT, "The JSON body is not UTF-8 (line %d).", why.line);
        break;
    case json_error_out_of_memory:
        rg_fail(err, RG_E_MEMORY, "There is no memory for the JSON body.");
        break;
    default:
        rg_fail(err, RG_E_INPUT, "The body is not valid JSON (line %d, column %d).", why.line, why.column);
    }
    return NULL;
}

void rg_out_time(rg_buf *b, const char *key, int64_t s)
{
    time_t t = (time_t)s;
    struct tm utc;
    char text[40] = "1970-01-01T00:00:00Z";

    if (gmtime_r(&t, &utc))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    rg_out_text(b, key, text);
}
