/* patched.h -- sound folders of files, changed as a fuzzer says: the way past checks that random bytes fail at once.
 *
 * The data's first byte chooses one of the folders.  Each patch behind it is a file's number, what is done, a place, a count,
 * and perhaps bytes.  The length of a safetensors header follows what was put in or taken out of it, unless the patch says
 * otherwise.  Paths of folders are from the root of the sources on, where a fuzzer is run. */
#ifndef RG_FUZZ_PATCHED_H
#define RG_FUZZ_PATCHED_H

#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

enum { PATCHED_FILES = 4, PATCHED_MOST = 1 << 20 };

typedef struct patched_folder {
    const char *path;
    const char *file[PATCHED_FILES]; /* those that are changed; the others are not there */
} patched_folder;

typedef struct patched_file {
    uint8_t *data;
    size_t n;
} patched_file;

static inline patched_file patched_read(const char *folder, const char *name)
{
    char path[600];
    patched_file p = { malloc(2 * PATCHED_MOST), 0 };

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f || !p.data) {
        fprintf(stderr, "%s: cannot be read: run fuzzers from the root of the sources\n", path);
        exit(1);
    }
    p.n = fread(p.data, 1, PATCHED_MOST, f);
    fclose(f);
    return p;
}

/* The header's length after n bytes more (or less) at a place within it. */
static inline void patched_fix(patched_file *p, size_t at, long more)
{
    uint64_t n;

    memcpy(&n, p->data, sizeof n);
    if (p->n > 8 && at >= 8 && at - 8 < n && (long)n + more > 0) {
        n = (uint64_t)((long)n + more);
        memcpy(p->data, &n, sizeof n);
    }
}

/* Apply one patch from d[0, n); how many bytes it took. */
static inline size_t patched_apply(patched_file *files, int n_files, const uint8_t *d, size_t n, bool is_safetensors[])
{
    enum { REPLACE, INSERT, DELETE, CUT };

    if (n < 5)
        return n;
    const int which = d[0] % n_files, what = d[1] & 3;
    patched_file *p = &files[which];
    size_t place = (size_t)d[2] | (size_t)d[3] << 8, count = d[4], took = 5;
    const size_t at = !p->n ? 0 : d[1] & 4 ? place * p->n >> 16 : place % p->n;

    if (what == REPLACE || what == INSERT) {
        count = count < n - took ? count : n - took;
        if (what == INSERT && p->n + count < 2 * PATCHED_MOST) {
            memmove(p->data + at + count, p->data + at, p->n - at);
            p->n += count;
        } else if (count > p->n - at) {
            count = p->n - at;
        }
        memcpy(p->data + at, d + took, count);
        took += count;
    } else if (what == DELETE) {
        count = count < p->n - at ? count : p->n - at;
        memmove(p->data + at, p->data + at + count, p->n - at - count);
        p->n -= count;
    } else {
        p->n = at;
    }
    if (is_safetensors[which] && !(d[1] & 8) && (what == INSERT || what == DELETE))
        patched_fix(p, at, what == INSERT ? (long)count : -(long)count);
    return took;
}

static inline void patched_write(const char *dir, const char *name, const patched_file *p)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p->data, 1, p->n, f) != p->n || fclose(f))
        abort();
}

/* A folder of this process: the one of `all` that the data names, changed as it says.  Its number goes to *which. */
static inline const char *patched(const patched_folder *all, int n_all, const uint8_t *data, size_t n, int *which)
{
    static char dir[] = "/tmp/ridge-fuzz-XXXXXX";
    static bool made;
    patched_file files[PATCHED_FILES];
    bool is_safetensors[PATCHED_FILES];
    int n_files = 0;
    size_t at = 1;

    if (!made && !mkdtemp(dir))
        abort();
    made = true;
    *which = n ? data[0] % n_all : 0;
    const patched_folder *of = &all[*which];
    for (; n_files < PATCHED_FILES && of->file[n_files]; n_files++) {
        files[n_files] = patched_read(of->path, of->file[n_files]);
        is_safetensors[n_files] = strstr(of->file[n_files], ".safetensors") && !strstr(of->file[n_files], ".json");
    }
    while (at < n)
        at += patched_apply(files, n_files, data + at, n - at, is_safetensors);
    for (int k = 0; k < n_all; k++)
        for (int i = 0; i < PATCHED_FILES && all[k].file[i]; i++) {
            char old[600];
            snprintf(old, sizeof old, "%s/%s", dir, all[k].file[i]);
            unlink(old);
        }
    for (int i = 0; i < n_files; i++) {
        patched_write(dir, of->file[i], &files[i]);
        free(files[i].data);
    }
    return dir;
}

#endif
