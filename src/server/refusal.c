/* refusal.c -- see refusal.h. */
#include "server/refusal.h"

#include <stdarg.h>
#include <stdio.h>

static void say(rg_refusal *e, int status, const char *code, const char *param, const char *fmt, va_list args)
{
    *e = (rg_refusal){ .status = status, .code = code };
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->text, sizeof e->text, fmt, args);
}

bool rg_refuse(rg_refusal *e, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(e, status, code, param, fmt, args);
    va_end(args);
    return false;
}

bool rg_refuse_field(rg_refusal *e, const char *param, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(e, 400, "invalid_value", param, fmt, args);
    va_end(args);
    return false;
}

bool rg_refuse_memory(rg_refusal *e)
{
    rg_refuse(e, 503, "out_of_memory", NULL, "There is no memory for this request now.");
    e->retry_after_s = 1;
    return false;
}
