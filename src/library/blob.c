/* blob.c -- see blob.h. */
#include "library/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sha1.h"
#include "base/sha256.h"
#include "library/fetch.h"

enum { PATH_ROOM = RG_LIBRARY_PATH + 128, CHUNK = 1 << 20, RETRIES = 6 };

static uint64_t size_at(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static void paths_of(const char *blobs, const rg_blob *b, char whole[PATH_ROOM], char part[PATH_ROOM])
{
    snprintf(whole, PATH_ROOM, "%s%s", blobs, b->hash);
    snprintf(part, PATH_ROOM, "%s%s.incomplete", blobs, b->hash);
}

uint64_t rg_blob_bytes_there(const char *blobs, const rg_blob *b)
{
    char whole[PATH_ROOM], part[PATH_ROOM];
    uint64_t n;

    paths_of(blobs, b, whole, part);
    n = size_at(whole) == b->size ? b->size : size_at(part);
    return n < b->size ? n : b->size;
}

/* ---- its hash ---- */

/* Both kinds, as one. */
typedef struct hashing {
    bool is_sha256;
    rg_sha256_state sha256;
    rg_sha1_state sha1;
} hashing;

static void hash_begin(hashing *h, const rg_blob *b)
{
    char head[64];

    h->is_sha256 = b->is_sha256;
    rg_sha256_init(&h->sha256);
    rg_sha1_init(&h->sha1);
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)b->size);
    rg_sha1_add(&h->sha1, head, (size_t)n + 1); /* git's header ends with a NUL */
}

static void hash_add(hashing *h, const void *p, size_t n)
{
    if (h->is_sha256)
        rg_sha256_add(&h->sha256, p, n);
    else
        rg_sha1_add(&h->sha1, p, n);
}

static bool hash_is(hashing *h, const char *wanted)
{
    uint8_t out[32];
    char hex[72] = "";
    int n = h->is_sha256 ? 32 : 20;

    if (h->is_sha256)
        rg_sha256_end(&h->sha256, out);
    else
        rg_sha1_end(&h->sha1, out);
    for (int i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
    return !strcmp(hex, wanted);
}

/* ---- fetching ---- */

typedef struct telling {
    const rg_blob_options *o;
    const char *what;
} telling;

static bool tell(void *arg, uint64_t bytes)
{
    const telling *t = arg;
    const rg_pull_options *p = t->o->pull;
    double of = t->o->total ? (double)t->o->total : 1, done = (double)(t->o->before + bytes) / of;

    if (p->progress)
        p->progress(p->arg, t->what, done > 1 ? 1 : done);
    return !p->stop || !p->stop();
}

/* The file has the size and the hash.  False with *err untouched: it has not. */
static bool check(int fd, const rg_blob *b, const rg_pull_options *o, bool *right, rg_error *err)
{
    char *chunk = rg_alloc(CHUNK);
    hashing h;
    uint64_t at = 0;
    ssize_t n = 1;

    if (!chunk)
        return rg_fail_memory(err, CHUNK);
    hash_begin(&h, b);
    while (n > 0 && !(o->stop && o->stop())) {
        n = pread(fd, chunk, CHUNK, (off_t)at);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            hash_add(&h, chunk, (size_t)n), at += (size_t)n;
        if (o->progress && b->size > CHUNK)
            o->progress(o->arg, "checking", (double)at / (double)b->size);
    }
    rg_free(chunk);
    if (n < 0)
        return rg_fail(err, RG_E_IO, "%s: what was fetched cannot be read: %s", b->name, strerror(errno));
    *right = n == 0 && at == b->size && hash_is(&h, b->hash);
    return n == 0 || rg_fail(err, RG_E_IO, "stopped; the same command goes on from here");
}

/* Fetch the rest, or all where what there is turns out wrong. */
static bool fill(const rg_blob_options *o, const char *url, int fd, const rg_blob *b, rg_error *err)
{
    telling t = { o, b->name };
    rg_fetch_options fetch = { .token = o->pull->token, .progress = tell, .arg = &t, .retries = RETRIES,
                               .pause_s = o->pull->pause_s };
    struct stat st;
    uint64_t have = !fstat(fd, &st) ? (uint64_t)st.st_size : 0;
    bool right = false;
    long status = 0;

    for (int tries = 0; tries < 2; tries++) {
        bool resumed = have > 0 && have < b->size;

        if (have != b->size || tries) {
            if ((!resumed || tries) && ftruncate(fd, 0))
                return rg_fail(err, RG_E_IO, "%s: %s", b->name, strerror(errno));
            if (b->size && !rg_fetch_file(url, &fetch, fd, resumed && !tries ? have : 0, b->size, &status, err))
                return status == 401 || status == 403 || status == 404
                           ? rg_fail(err, RG_E_IO, "%s: the server answers %ld%s", url, status,
                                     status == 404 ? ""
                                                   : ": the file needs a token (HF_TOKEN) of somebody who may read it")
                           : false;
        }
        if (!check(fd, b, o->pull, &right, err))
            return false;
        if (right)
            return true;
        if (!resumed && have != b->size)
            break; /* all of it came just now: the same would come again */
    }
    if (ftruncate(fd, 0)) /* nothing to go on from */
        return rg_fail(err, RG_E_IO, "%s: %s", b->name, strerror(errno));
    return rg_fail(err, RG_E_INPUT, "%s: what came has not the hash %.16s... that the hub tells: it is not kept",
                   b->name, b->hash);
}

bool rg_blob_get(const rg_blob_options *o, const char *url, const char *blobs, const rg_blob *b, int *n_fetched,
                 rg_error *err)
{
    char whole[PATH_ROOM], part[PATH_ROOM];
    struct stat st;
    int fd;
    bool ok;

    paths_of(blobs, b, whole, part);
    if (!stat(whole, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == b->size)
        return true;
    fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return rg_fail(err, RG_E_IO, "%s: %s", part, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        close(fd);
        return rg_fail(err, RG_E_BUSY, "%s: another process fetches it just now", b->name);
    }
    ++*n_fetched;
    ok = fill(o, url, fd, b, err);
    if (ok && (fsync(fd) || rename(part, whole)))
        ok = rg_fail(err, RG_E_IO, "%s: %s", whole, strerror(errno));
    if (!ok && !fstat(fd, &st) && !st.st_size)
        unlink(part);
    close(fd);
    return ok;
}
