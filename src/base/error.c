/* error.c -- filling in an rg_error, and the report of a failed assertion. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local void (*report_fn)(void *arg);
static _Thread_local void *report_arg;

bool rg_fail(rg_error *err, rg_code code, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return false;
    err->code = code;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return false;
}

bool rg_fail_memory(rg_error *err, size_t bytes)
{
    return rg_fail(err, RG_E_MEMORY, "out of memory (%zu bytes wanted)", bytes);
}

bool rg_fail_prefix(rg_error *err, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list args;
    int n;

    if (!err)
        return false;
    va_start(args, fmt);
    n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0)
        n = 0;
    for (const char *p = ": "; *p && (size_t)n < sizeof text - 1; p++)
        text[n++] = *p;
    for (const char *p = err->text; *p && (size_t)n < sizeof text - 1; p++)
        text[n++] = *p;
    text[(size_t)n < sizeof text ? (size_t)n : sizeof text - 1] = '\0';
    memcpy(err->text, text, sizeof text);
    return false;
}

void rg_assert_report(void (*report)(void *arg), void *arg)
{
    report_fn = report;
    report_arg = arg;
}

void rg_assert_failed(const char *file, int line, const char *what)
{
    void (*report)(void *arg) = report_fn;

    fprintf(stderr, "ridge %s: bug: %s:%d: %s\n", RG_VERSION, file, line, what);
    report_fn = NULL; /* an assertion inside the report must not call the report again */
    if (report)
        report(report_arg);
    abort();
}
