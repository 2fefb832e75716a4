/* system_calls.c -- the calls of the C library that can fail for want of room, rights or a sound disk, as ridge makes
 * them: in a program that is linked with --wrap each asks failing.h first.  A write that fails has written half of its
 * bytes before, as on a disk that fills up. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failing.h"

#define WRAPPED(result, name, ...)                                                                                     \
    result __real_##name(__VA_ARGS__);                                                                                 \
    result __wrap_##name(__VA_ARGS__);                                                                                 \
    result __wrap_##name(__VA_ARGS__)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return test_system_call_allowed(EMFILE) ? __real_open(path, flags, mode) : -1;
}

WRAPPED(int, accept4, int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    return test_system_call_allowed(EMFILE) ? __real_accept4(fd, from, n, flags) : -1;
}

WRAPPED(int, epoll_ctl, int fd, int what, int of, struct epoll_event *event)
{
    return test_system_call_allowed(ENOMEM) ? __real_epoll_ctl(fd, what, of, event) : -1;
}

WRAPPED(ssize_t, pread, int fd, void *to, size_t n, off_t at)
{
    return test_system_call_allowed(EIO) ? __real_pread(fd, to, n, at) : -1;
}

WRAPPED(ssize_t, write, int fd, const void *p, size_t n)
{
    if (test_system_call_allowed(ENOSPC))
        return __real_write(fd, p, n);
    (void)!__real_write(fd, p, n / 2);
    errno = ENOSPC;
    return -1;
}

WRAPPED(ssize_t, pwrite, int fd, const void *p, size_t n, off_t at)
{
    if (test_system_call_allowed(ENOSPC))
        return __real_pwrite(fd, p, n, at);
    (void)!__real_pwrite(fd, p, n / 2, at);
    errno = ENOSPC;
    return -1;
}

/* What a test writes need not outlive a crash of the machine. */
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return test_system_call_allowed(EIO) ? 0 : -1;
}

WRAPPED(int, ftruncate, int fd, off_t size)
{
    return test_system_call_allowed(EIO) ? __real_ftruncate(fd, size) : -1;
}

WRAPPED(int, rename, const char *from, const char *to)
{
    return test_system_call_allowed(ENOSPC) ? __real_rename(from, to) : -1;
}

WRAPPED(int, mkdir, const char *path, mode_t mode)
{
    return test_system_call_allowed(ENOSPC) ? __real_mkdir(path, mode) : -1;
}

WRAPPED(DIR *, opendir, const char *path)
{
    return test_system_call_allowed(EMFILE) ? __real_opendir(path) : NULL;
}

WRAPPED(FILE *, fopen, const char *path, const char *mode)
{
    return test_system_call_allowed(EMFILE) ? __real_fopen(path, mode) : NULL;
}

WRAPPED(size_t, fread, void *to, size_t size, size_t n, FILE *f)
{
    return test_system_call_allowed(EIO) ? __real_fread(to, size, n, f) : 0;
}

WRAPPED(size_t, fwrite, const void *p, size_t size, size_t n, FILE *f)
{
    return f == stderr || test_system_call_allowed(ENOSPC) ? __real_fwrite(p, size, n, f) : 0;
}

WRAPPED(int, fflush, FILE *f)
{
    return f == stdout || test_system_call_allowed(ENOSPC) ? __real_fflush(f) : EOF;
}

WRAPPED(void *, mmap, void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return test_system_call_allowed(ENOMEM) ? __real_mmap(at, n, protection, flags, fd, offset) : MAP_FAILED;
}

WRAPPED(int, pthread_create, pthread_t *id, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
    return test_system_call_allowed(EAGAIN) ? __real_pthread_create(id, attr, main, arg) : EAGAIN;
}
