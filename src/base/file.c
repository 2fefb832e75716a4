/* file.c -- the file interface over pread and write, with a gate that tests can close.
 *
 * A writer gathers small writes in a buffer; its temporary file lies beside the target so that rename is atomic. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"

#ifndef O_DIRECT
#define O_DIRECT __O_DIRECT /* what glibc calls it where _GNU_SOURCE is not defined */
#endif

enum { READ_MOST = 1 << 30, WRITE_BUFFER = 1 << 16, TEMP_TRIES = 16 };

struct rg_file {
    int fd, direct; /* direct: -1: there is none */
    uint64_t size, time_ns;
    char *path;
};

static bool (*_Atomic gate)(void *arg, const char *operation);
static _Atomic(void *) gate_arg;

/* False and errno = EIO when a test says so. */
static bool allowed(const char *operation)
{
    bool (*ask)(void *arg, const char *operation) = atomic_load(&gate);

    if (!ask || ask(atomic_load(&gate_arg), operation))
        return true;
    errno = EIO;
    return false;
}

void rg_file_set_gate(bool (*allow)(void *arg, const char *operation), void *arg)
{
    atomic_store(&gate, NULL);
    atomic_store(&gate_arg, arg);
    atomic_store(&gate, allow);
}

static bool fail_errno(rg_error *err, const char *what, const char *path)
{
    char text[128];
    int code = errno;

    if (strerror_r(code, text, sizeof text))
        snprintf(text, sizeof text, "error %d", code);
    return rg_fail(err, RG_E_IO, "%s: cannot %s: %s", path, what, text);
}

rg_file *rg_file_open(const char *path, rg_error *err)
{
    rg_file *f = rg_zalloc(sizeof *f);
    struct stat st;

    if (!f)
        return rg_fail_memory(err, sizeof *f), NULL;
    f->fd = f->direct = -1;
    f->path = rg_strdup(path);
    if (!f->path) {
        rg_fail_memory(err, strlen(path) + 1);
        goto fail;
    }
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    f->fd = allowed("open") ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (f->fd < 0 || fstat(f->fd, &st)) {
        fail_errno(err, "open", path);
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        rg_fail(err, RG_E_IO, "%s: not a regular file", path);
        goto fail;
    }
    f->size = (uint64_t)st.st_size;
    f->time_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    return f;

fail:
    rg_file_close(f);
    return NULL;
}

/* The file of this name, if it is the one that f has open; -1: it is another, or cannot be opened so. */
static int open_again(const rg_file *f, const char *name)
{
    struct stat now, then;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);

    if (fd >= 0 && !fstat(fd, &now) && !fstat(f->fd, &then) && now.st_dev == then.st_dev && now.st_ino == then.st_ino)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void rg_file_go_direct(rg_file *f)
{
    char name[64];

    snprintf(name, sizeof name, "/proc/self/fd/%d", f->fd); /* found even after it was renamed or removed */
    f->direct = open_again(f, name);
    if (f->direct < 0)
        f->direct = open_again(f, f->path);
}

rg_file *rg_file_open_direct(const char *path, rg_error *err)
{
    rg_file *f = rg_file_open(path, err);

    if (f)
        rg_file_go_direct(f);
    return f;
}

void rg_file_close(rg_file *f)
{
    if (!f)
        return;
    if (f->direct >= 0)
        close(f->direct);
    if (f->fd >= 0)
        close(f->fd);
    rg_free(f->path);
    rg_free(f);
}

uint64_t rg_file_size(const rg_file *f)
{
    return f->size;
}

uint64_t rg_file_time_ns(const rg_file *f)
{
    return f->time_ns;
}

const char *rg_file_path(const rg_file *f)
{
    return f->path;
}

/* A read of n > 0 bytes; past the system's cache if it may be, and is not refused. */
static ssize_t read_once(const rg_file *f, uint64_t offset, char *to, size_t n)
{
    if (f->direct >= 0 && offset % RG_DIRECT == 0 && n % RG_DIRECT == 0 && (uintptr_t)to % RG_DIRECT == 0) {
        ssize_t r = pread(f->direct, to, n, (off_t)offset);

        if (r >= 0 || errno != EINVAL)
            return r;
    }
    return pread(f->fd, to, n, (off_t)offset);
}

/* Up to n bytes at offset into to; *got < n only at the end of the file. */
static bool read_some(const rg_file *f, uint64_t offset, char *to, size_t n, size_t *got, rg_error *err)
{
    uint64_t end;

    *got = 0;
    if (!rg_add(offset, n, &end) || end > (uint64_t)INT64_MAX)
        return rg_fail(err, RG_E_IO, "%s: read past the largest file offset", f->path);
    if (!allowed("read"))
        return fail_errno(err, "read", f->path);
    while (*got < n) {
        size_t want = n - *got < READ_MOST ? n - *got : READ_MOST;
        ssize_t r = read_once(f, offset + *got, to + *got, want);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return fail_errno(err, "read", f->path);
        if (r == 0)
            return true;
        *got += (size_t)r;
    }
    return true;
}

bool rg_file_read(const rg_file *f, uint64_t offset, void *to, size_t n, rg_error *err)
{
    size_t got;

    if (!read_some(f, offset, to, n, &got, err))
        return false;
    if (got < n)
        return rg_fail(err, RG_E_IO, "%s: the file ends at byte %llu, %zu bytes at %llu were wanted", f->path,
                       (unsigned long long)(offset + got), n, (unsigned long long)offset);
    return true;
}

/* Files of /proc and /sys say that their size is 0, so read until the end whatever the size is. */
char *rg_file_slurp(const char *path, size_t cap, size_t *n, rg_error *err)
{
    rg_file *f = rg_file_open(path, err);
    size_t room, have = 0, got;
    char *data = NULL, *more;

    if (!f)
        return NULL;
    if (f->size > cap || cap > SIZE_MAX / 4) {
        rg_fail(err, RG_E_INPUT, "%s: %llu bytes, more than %zu", path, (unsigned long long)f->size, cap);
        goto fail;
    }
    room = f->size ? (size_t)f->size + 1 : 4096;
    for (;;) {
        more = rg_resize(data, room + 1); /* fits: cap <= SIZE_MAX / 4, and room at most doubles beyond it */
        if (!more) {
            rg_fail_memory(err, room + 1);
            goto fail;
        }
        data = more;
        if (!read_some(f, have, data + have, room - have, &got, err))
            goto fail;
        have += got;
        if (have > cap) {
            rg_fail(err, RG_E_INPUT, "%s: more than %zu bytes", path, cap);
            goto fail;
        }
        if (have < room)
            break;
        room *= 2;
    }
    data[have] = '\0';
    *n = have;
    rg_file_close(f);
    return data;

fail:
    rg_free(data);
    rg_file_close(f);
    return NULL;
}

rg_path_kind rg_path_look(const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return RG_PATH_NONE;
    return S_ISREG(st.st_mode) ? RG_PATH_FILE : S_ISDIR(st.st_mode) ? RG_PATH_DIR : RG_PATH_OTHER;
}

char *rg_path_full(const char *path, rg_error *err)
{
    char *full = allowed("open") ? realpath(path, NULL) : NULL, *ours;

    if (!full)
        return fail_errno(err, "find", path), NULL;
    ours = rg_strdup(full);
    if (!ours)
        rg_fail_memory(err, strlen(full) + 1);
    free(full); /* realpath's own */
    return ours;
}

bool rg_path_join(char *out, size_t room, const char *dir, const char *name)
{
    size_t n_dir = strlen(dir);
    int n;

    if (!*name || *name == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
            return false;
    n = snprintf(out, room, "%s%s%s", dir, n_dir && dir[n_dir - 1] != '/' ? "/" : "", name);
    return n >= 0 && (size_t)n < room;
}

bool rg_dir_make(const char *path, rg_error *err)
{
    if (!allowed("open") || (mkdir(path, 0777) && (errno != EEXIST || rg_path_look(path) != RG_PATH_DIR)))
        return fail_errno(err, "create the directory", path);
    return true;
}

bool rg_dir_list(const char *path, bool (*each)(void *arg, const char *name), void *arg, rg_error *err)
{
    DIR *d = allowed("open") ? opendir(path) : NULL;
    bool on = true;

    if (!d)
        return fail_errno(err, "list the directory", path);
    for (const struct dirent *e; on && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            on = each(arg, e->d_name);
    closedir(d);
    return true;
}

bool rg_path_remove(const char *path)
{
    return allowed("rename") && remove(path) == 0;
}

bool rg_path_facts(const char *path, uint64_t *bytes, uint64_t *time_ns)
{
    struct stat st;

    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return false;
    *bytes = (uint64_t)st.st_size;
    *time_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    return true;
}

bool rg_path_touch(const char *path, uint64_t time_ns)
{
    const struct timespec at = { .tv_sec = (time_t)(time_ns / 1000000000u), .tv_nsec = (long)(time_ns % 1000000000u) };

    return allowed("write") && utimensat(AT_FDCWD, path, (const struct timespec[]){ at, at }, 0) == 0;
}

struct rg_writer {
    int fd;
    uint64_t n_written; /* the buffer's bytes included */
    size_t n_buffered;
    char *path, *temp;
    bool made; /* temp exists */
    char buffer[WRITE_BUFFER];
};

static void writer_free(rg_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->made)
        unlink(w->temp);
    rg_free(w->path);
    rg_free(w->temp);
    rg_free(w);
}

/* O_EXCL with a random name: two writers of one path use different files, and no symbolic link is followed. */
static bool make_temp(rg_writer *w, size_t room)
{
    for (int i = 0; i < TEMP_TRIES; i++) {
        snprintf(w->temp, room, "%s.tmp-%016llx", w->path, (unsigned long long)(rg_seed() + (uint64_t)i));
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (w->fd >= 0)
            return w->made = true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

rg_writer *rg_writer_open(const char *path, rg_error *err)
{
    size_t room = strlen(path) + 32;
    rg_writer *w = rg_alloc(sizeof *w);

    if (!w)
        return rg_fail_memory(err, sizeof *w), NULL;
    memset(w, 0, offsetof(rg_writer, buffer));
    w->fd = -1;
    w->path = rg_strdup(path);
    w->temp = rg_alloc(room);
    if (!w->path || !w->temp) {
        rg_fail_memory(err, room);
        goto fail;
    }
    if (rg_path_look(path) == RG_PATH_DIR || rg_path_look(path) == RG_PATH_OTHER) {
        rg_fail(err, RG_E_IO, "%s: exists and is not a regular file", path);
        goto fail;
    }
    if (!allowed("open") || !make_temp(w, room)) {
        fail_errno(err, "create", path);
        goto fail;
    }
    return w;

fail:
    writer_free(w);
    return NULL;
}

static bool write_all(rg_writer *w, const char *p, size_t n, rg_error *err)
{
    if (!allowed("write"))
        return fail_errno(err, "write", w->path);
    while (n) {
        ssize_t r = write(w->fd, p, n < READ_MOST ? n : READ_MOST);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return fail_errno(err, "write", w->path);
        p += r;
        n -= (size_t)r;
    }
    return true;
}

static bool flush(rg_writer *w, rg_error *err)
{
    size_t n = w->n_buffered;

    w->n_buffered = 0;
    return !n || write_all(w, w->buffer, n, err);
}

bool rg_writer_write(rg_writer *w, const void *p, size_t n, rg_error *err)
{
    if (n > WRITE_BUFFER - w->n_buffered && !flush(w, err))
        return false;
    w->n_written += n;
    if (n >= WRITE_BUFFER)
        return write_all(w, p, n, err);
    if (n)
        memcpy(w->buffer + w->n_buffered, p, n);
    w->n_buffered += n;
    return true;
}

uint64_t rg_writer_tell(const rg_writer *w)
{
    return w->n_written;
}

/* The rename is durable once its directory is. */
static bool sync_directory(const rg_writer *w, rg_error *err)
{
    const char *slash = strrchr(w->path, '/');
    char *dir = slash ? rg_strndup(w->path, slash == w->path ? 1 : (size_t)(slash - w->path)) : rg_strdup(".");
    int fd;
    bool ok;

    if (!dir)
        return rg_fail_memory(err, strlen(w->path));
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: this file system cannot sync directories, which is not an error. */
    ok = fd >= 0 && allowed("sync") && (fsync(fd) == 0 || errno == EINVAL);
    if (!ok)
        fail_errno(err, "sync the directory of", w->path);
    if (fd >= 0)
        close(fd);
    rg_free(dir);
    return ok;
}

static bool commit(rg_writer *w, bool synced, rg_error *err)
{
    bool ok = flush(w, err);

    if (ok && synced && (!allowed("sync") || fsync(w->fd)))
        ok = fail_errno(err, "sync", w->path);
    if (ok) {
        ok = close(w->fd) == 0;
        w->fd = -1;
        if (!ok)
            fail_errno(err, "close", w->path);
    }
    if (ok && (!allowed("rename") || rename(w->temp, w->path)))
        ok = fail_errno(err, "rename a finished file to", w->path);
    if (ok) {
        w->made = false;
        ok = !synced || sync_directory(w, err);
    }
    writer_free(w);
    return ok;
}

bool rg_writer_commit(rg_writer *w, rg_error *err)
{
    return commit(w, true, err);
}

bool rg_writer_commit_unsynced(rg_writer *w, rg_error *err)
{
    return commit(w, false, err);
}

void rg_writer_abort(rg_writer *w)
{
    writer_free(w);
}

bool rg_file_put(const char *path, const void *data, size_t n, rg_error *err)
{
    rg_writer *w = rg_writer_open(path, err);

    if (w && rg_writer_write(w, data, n, err))
        return rg_writer_commit(w, err);
    rg_writer_abort(w);
    return false;
}

bool rg_file_put_in(const char *dir, const char *name, const void *data, size_t n, rg_error *err)
{
    char path[4096];

    return rg_path_join(path, sizeof path, dir, name) ? rg_file_put(path, data, n, err)
                                                      : rg_fail(err, RG_E_INPUT, "%s: the path is too long", dir);
}

/* ---- files that grow --------------------------------------------------------------------------------------------- */

struct rg_appender {
    int fd;
    uint64_t size;
    char *path;
};

rg_appender *rg_appender_open(const char *path, rg_error *err)
{
    rg_appender *a = rg_zalloc(sizeof *a);
    struct stat st;

    if (!a || !(a->path = rg_strdup(path))) {
        rg_free(a);
        return rg_fail_memory(err, strlen(path)), NULL;
    }
    a->fd = allowed("open") ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666) : -1;
    if (a->fd < 0 || fstat(a->fd, &st)) {
        fail_errno(err, "open", path);
    } else if (!S_ISREG(st.st_mode)) {
        rg_fail(err, RG_E_IO, "%s: exists and is not a regular file", path);
    } else if (flock(a->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        rg_fail(err, RG_E_BUSY, "%s: another process is writing it", path);
    } else {
        a->size = (uint64_t)st.st_size;
        return a;
    }
    rg_appender_close(a);
    return NULL;
}

bool rg_appender_cut(rg_appender *a, uint64_t size, rg_error *err)
{
    if (!allowed("write") || ftruncate(a->fd, (off_t)size))
        return fail_errno(err, "cut", a->path);
    a->size = size;
    return true;
}

bool rg_appender_add(rg_appender *a, const void *p, size_t n, rg_error *err)
{
    bool ok = allowed("write");

    for (size_t done = 0; ok && done < n;) {
        ssize_t r = pwrite(a->fd, (const char *)p + done, n - done, (off_t)(a->size + done));

        ok = r >= 0 || errno == EINTR;
        done += r > 0 ? (size_t)r : 0;
    }
    if (!ok) {
        fail_errno(err, "write", a->path);
        (void)!ftruncate(a->fd, (off_t)a->size);
        return false;
    }
    a->size += n;
    return true;
}

bool rg_appender_sync(rg_appender *a, rg_error *err)
{
    return (allowed("sync") && fsync(a->fd) == 0) || fail_errno(err, "sync", a->path);
}

void rg_appender_close(rg_appender *a)
{
    if (!a)
        return;
    if (a->fd >= 0)
        close(a->fd);
    rg_free(a->path);
    rg_free(a);
}
