/* thread.c -- see thread.h. */
#include "base/thread.h"

#include <stddef.h>

bool rg_thread_start(pthread_t *id, void *(*fn)(void *arg), void *arg)
{
    pthread_attr_t attr;
    size_t bytes = 0;
    bool ok;

    if (pthread_attr_init(&attr))
        return false;
    ok = !pthread_attr_getstacksize(&attr, &bytes) &&
         (bytes >= RG_THREAD_STACK || !pthread_attr_setstacksize(&attr, RG_THREAD_STACK)) &&
         !pthread_create(id, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return ok;
}
