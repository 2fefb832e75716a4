/* multipart.c -- see multipart.h.  Every byte is read a fixed number of times. */
#define _GNU_SOURCE 1 /* memmem */
#include "server/http/multipart.h"

#include <string.h>
#include <strings.h>

enum { MAX_BOUNDARY = 200, MAX_HEADERS = 8192 };

/* The value of parameter `name` in the header text s[0, n), escapes and all.  NULL: none. */
static char *find_parameter(char *s, size_t n, const char *name, size_t *n_value)
{
    size_t len = strlen(name), i = 0;

    while (i < n) {
        while (i < n && s[i] != ';' && s[i] != '"')
            i++;
        if (i < n && s[i] == '"') { /* a quoted value of another parameter */
            for (i++; i < n && s[i] != '"'; i++)
                i += s[i] == '\\';
            i++;
            continue;
        }
        for (i++; i < n && (s[i] == ' ' || s[i] == '\t'); i++)
            ;
        if (i + len >= n || strncasecmp(s + i, name, len) != 0 || s[i + len] != '=')
            continue;
        char *from = s + i + len + 1, *to = from, *end = s + n;
        if (from < end && *from == '"') {
            for (to = ++from; to < end && *to != '"'; to++)
                to += *to == '\\' && to + 1 < end;
        } else {
            while (to < end && *to != ';' && *to != ' ' && *to != '\t')
                to++;
        }
        *n_value = (size_t)(to - from);
        return from;
    }
    return NULL;
}

/* In place; the length that is left. */
static size_t unescape(char *s, size_t n)
{
    size_t to = 0;

    for (size_t i = 0; i < n; i++) {
        i += s[i] == '\\' && i + 1 < n && (s[i + 1] == '"' || s[i + 1] == '\\');
        s[to++] = s[i];
    }
    return to;
}

/* The part's headers s[0, n): its names.  False: it has none. */
static bool read_headers(char *s, size_t n, rg_part *p)
{
    static const char wanted[] = "content-disposition:";
    char *end = s + n;

    for (char *line = s, *next; line < end; line = next) {
        char *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
        next = stop ? stop + 2 : end;
        stop = stop ? stop : end;
        if ((size_t)(stop - line) < strlen(wanted) || strncasecmp(line, wanted, strlen(wanted)) != 0)
            continue;
        size_t length = (size_t)(stop - line);
        char *filename = find_parameter(line, length, "filename", &p->n_filename);
        char *name = find_parameter(line, length, "name", &p->n_name);
        p->n_filename = filename ? unescape(filename, p->n_filename) : 0;
        p->n_name = name ? unescape(name, p->n_name) : 0;
        p->filename = filename;
        p->name = name;
        return name != NULL;
    }
    return false;
}

/* "--boundary", from the type's header; its length, 0: none. */
static size_t read_boundary(const char *type, char out[MAX_BOUNDARY + 2])
{
    static const char wanted[] = "multipart/form-data";
    char copy[512];
    size_t n = strlen(type), n_value = 0;

    if (n >= sizeof copy || strncasecmp(type, wanted, strlen(wanted)) != 0)
        return 0;
    memcpy(copy, type, n + 1);
    char *value = find_parameter(copy, n, "boundary", &n_value);
    if (!value || !n_value || n_value > MAX_BOUNDARY)
        return 0;
    memcpy(out, "--", 2);
    memcpy(out + 2, value, n_value);
    return 2 + unescape(out + 2, n_value);
}

int rg_multipart_read(const char *content_type, char *body, size_t n, rg_part part[RG_MULTIPART_MOST])
{
    char mark[4 + MAX_BOUNDARY] = "\r\n"; /* then the boundary */
    size_t n_mark = read_boundary(content_type ? content_type : "", mark + 2);
    char *end = body + n, *at;
    int count = 0;

    if (!n_mark)
        return -1;
    at = n >= n_mark && !memcmp(body, mark + 2, n_mark) ? body : memmem(body, n, mark, n_mark + 2);
    if (!at)
        return -1;
    at += at == body ? n_mark : n_mark + 2;
    for (;;) {
        if (end - at >= 2 && !memcmp(at, "--", 2))
            return count;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (end - at < 2 || memcmp(at, "\r\n", 2) != 0 || count == RG_MULTIPART_MOST)
            return -1;
        char *headers = at + 2;
        size_t left = (size_t)(end - at);
        char *blank = memmem(at, left < MAX_HEADERS ? left : (size_t)MAX_HEADERS, "\r\n\r\n", 4);
        char *data = blank ? blank + 4 : NULL;
        char *stop = data ? memmem(blank + 2, (size_t)(end - blank - 2), mark, n_mark + 2) : NULL;
        rg_part *p = &part[count++];
        *p = (rg_part){ 0 };
        if (!stop || blank < headers || !read_headers(headers, (size_t)(blank - headers), p))
            return -1;
        p->data = data;
        p->n = stop >= data ? (size_t)(stop - data) : 0; /* an empty part may share its line end with the boundary */
        at = stop + 2 + n_mark;
    }
}

const rg_part *rg_multipart_find(const rg_part *part, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (part[i].n_name == strlen(name) && !memcmp(part[i].name, name, part[i].n_name))
            return &part[i];
    return NULL;
}
