/* thread.h -- threads with a stack that is large enough, whatever the limit that the program was started under. */
#ifndef RG_BASE_THREAD_H
#define RG_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

enum { RG_THREAD_STACK = 1 << 20 }; /* bytes, at least; only touched pages take memory */

/* Start fn(arg) on a thread, to be joined.  False: the system has no thread to give. */
bool rg_thread_start(pthread_t *id, void *(*fn)(void *arg), void *arg);

/* Tell the core that this thread waits for a word of memory to change. */
static inline void rg_thread_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
