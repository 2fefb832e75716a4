/* log.c -- one line to standard error per call, written in one go so that threads do not mix their lines. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int max_level = RG_LOG_WARN;

void rg_log_set_level(rg_level level)
{
    atomic_store(&max_level, (int)level);
}

void rg_log(rg_level level, const char *fmt, ...)
{
    static const char *const prefix[] = { "ridge: error: ", "ridge: warning: ", "ridge: ", "ridge: " };
    char line[1024];
    va_list args;
    int n, m;

    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    n = snprintf(line, sizeof line, "%s", prefix[level]);
    va_start(args, fmt);
    m = vsnprintf(line + n, sizeof line - 1 - (size_t)n, fmt, args);
    va_end(args);
    if (m < 0)
        return;
    n += m;
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2; /* cut */
    line[n++] = '\n';
    fwrite(line, 1, (size_t)n, stderr);
}
