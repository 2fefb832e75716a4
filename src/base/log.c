/* log.c -- one line to standard error per call, written in one go so that threads do not mix their lines.  It takes no
 * memory: a line may tell that there is none. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/utf8.h"

enum { LINE = 2048 };

static atomic_int max_level = RG_LOG_WARN;
static atomic_bool as_json;

void rg_log_set_level(rg_level level)
{
    atomic_store(&max_level, (int)level);
}

void rg_log_set_json(bool json)
{
    atomic_store(&as_json, json);
}

bool rg_log_is_json(void)
{
    return atomic_load(&as_json);
}

/* A line in the making: what does not fit is cut, and the end always fits. */
typedef struct line {
    char text[LINE];
    size_t n;
} line;

enum { END_ROOM = 8 };

static void add(line *l, const char *s, size_t n)
{
    if (l->n + n + END_ROOM <= sizeof l->text) {
        memcpy(l->text + l->n, s, n);
        l->n += n;
    }
}

static void add_text(line *l, const char *s)
{
    add(l, s, strlen(s));
}

/* A JSON string; what is not UTF-8 becomes U+FFFD. */
static void add_string(line *l, const char *s)
{
    size_t left = strlen(s);
    uint32_t code;
    char escape[8];

    add_text(l, "\"");
    while (left && l->n + 32 < sizeof l->text) {
        int n = rg_utf8_decode(s, left, &code);

        if (n <= 0) {
            add_text(l, "\xef\xbf\xbd");
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            add(l, (char[]){ '\\', *s }, 2);
        } else if ((unsigned char)*s < ' ') {
            add(l, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)*s));
        } else {
            add(l, s, (size_t)n);
        }
        s += n;
        left -= (size_t)n;
    }
    add_text(l, "\"");
}

static void add_time(line *l)
{
    int64_t ns = rg_wall_ns();
    time_t s = (time_t)(ns / 1000000000);
    struct tm t;
    char text[64];

    gmtime_r(&s, &t);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    n += (size_t)snprintf(text + n, sizeof text - n, ".%03dZ", (int)(ns / 1000000 % 1000));
    add(l, text, n);
}

static void write_json(line *l, rg_level level, const rg_log_field *field, int n, const char *message)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    char number[32];

    add_text(l, "{\"time\": \"");
    add_time(l);
    add_text(l, "\", \"level\": \"");
    add_text(l, names[level]);
    add_text(l, "\"");
    for (int i = 0; i < n; i++) {
        add_text(l, ", ");
        add_string(l, field[i].name);
        add_text(l, ": ");
        if (field[i].text)
            add_string(l, field[i].text);
        else
            add(l, number, (size_t)snprintf(number, sizeof number, "%.10g", field[i].number));
    }
    add_text(l, ", \"message\": "); /* last: it may be long, and cut */
    add_string(l, message);
    l->text[l->n++] = '}';
}

static void write_line(rg_level level, const rg_log_field *field, int n, const char *fmt, va_list args)
{
    static const char *const prefix[] = { "ridge: error: ", "ridge: warning: ", "ridge: ", "ridge: " };
    char message[LINE - 256];
    line l;

    l.n = 0;
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed) ||
        vsnprintf(message, sizeof message, fmt, args) < 0)
        return;
    if (rg_log_is_json()) {
        write_json(&l, level, field, n, message);
    } else {
        add_text(&l, prefix[level]);
        add_text(&l, message);
    }
    l.text[l.n++] = '\n';
    fwrite(l.text, 1, l.n, stderr);
}

void rg_log(rg_level level, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    write_line(level, NULL, 0, fmt, args);
    va_end(args);
}

void rg_log_with(rg_level level, const rg_log_field *field, int n, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    write_line(level, field, n, fmt, args);
    va_end(args);
}
