/* samples.c -- see samples.h.  The index of keys is in memory: 24 bytes a row. */
#include "train/samples.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"

enum { VERSION = 1, SMALL_BITS = 17, MOST_PAYLOAD = 1 << 30 };

typedef struct header {
    char magic[8];
    uint32_t version, entry_bytes;
    rg_samples_kind kind;
} header;

typedef struct record_head {
    uint64_t key, hash; /* hash: of the payload */
    uint32_t n, bytes;  /* positions; of the payload */
} record_head;

typedef struct place {
    uint64_t key;
    int64_t at; /* of the record; 0: the place is free */
} place;

struct rg_samples {
    FILE *file;
    char *path;
    header h;
    place *index; /* [room] */
    size_t room, n;
    int64_t end, positions;
    uint8_t *payload;
    size_t payload_room;
};

static bool fail(const rg_samples *s, const char *what, rg_error *err)
{
    return rg_fail(err, RG_E_IO, "%s: it cannot be %s: %s", s->path, what, errno ? strerror(errno) : "it is too short");
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

static place *find(const rg_samples *s, uint64_t key)
{
    size_t i = key & (s->room - 1);

    while (s->index[i].at && s->index[i].key != key)
        i = (i + 1) & (s->room - 1);
    return &s->index[i];
}

static bool note(rg_samples *s, uint64_t key, int64_t at, rg_error *err)
{
    if (2 * (s->n + 1) > s->room) {
        const place *old = s->index;
        const size_t n = s->room, twice = n ? 2 * n : 1024; /* fits: so many rows are in the file */
        place *more = rg_array(twice, sizeof *more);

        if (!more)
            return rg_fail_memory(err, twice * sizeof *more);
        s->index = more;
        s->room = twice;
        for (size_t i = 0; i < n; i++)
            if (old[i].at)
                *find(s, old[i].key) = old[i];
        rg_free((void *)(uintptr_t)old);
    }
    place *p = find(s, key);
    s->n += !p->at;
    *p = (place){ key, at };
    return true;
}

static bool make_room(rg_samples *s, size_t bytes, rg_error *err)
{
    uint8_t *more = bytes > s->payload_room ? rg_resize_array(s->payload, bytes, 1) : s->payload;

    if (!more)
        return rg_fail_memory(err, bytes);
    s->payload = more;
    s->payload_room = bytes > s->payload_room ? bytes : s->payload_room;
    return true;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* 1: a whole record at s->end; 0: none, or the rest of one; -1: *err. */
static int read_record(rg_samples *s, record_head *r, rg_error *err)
{
    if (fseeko(s->file, s->end, SEEK_SET))
        return fail(s, "read", err), -1;
    if (fread(r, sizeof *r, 1, s->file) != 1 || r->bytes > MOST_PAYLOAD)
        return 0;
    if (!make_room(s, r->bytes, err))
        return -1;
    return fread(s->payload, 1, r->bytes, s->file) == r->bytes && rg_hash(s->payload, r->bytes, r->key) == r->hash;
}

static bool read_records(rg_samples *s, rg_error *err)
{
    record_head r;
    int got;

    s->end = sizeof s->h;
    while ((got = read_record(s, &r, err)) == 1) {
        if (!note(s, r.key, s->end, err))
            return false;
        s->end += (int64_t)sizeof r + r.bytes;
        s->positions += r.n;
    }
    if (got == 0 && ftruncate(fileno(s->file), s->end))
        return fail(s, "cut", err);
    return got == 0;
}

static bool read_header(rg_samples *s, rg_error *err)
{
    header h;
    const size_t n = fread(&h, 1, sizeof h, s->file);

    if (n == 0 && !ferror(s->file)) { /* a new file */
        rewind(s->file);
        return (fwrite(&s->h, sizeof s->h, 1, s->file) == 1 && !fflush(s->file)) || fail(s, "written", err);
    }
    if (n != sizeof h || memcmp(h.magic, s->h.magic, sizeof h.magic) || h.version != VERSION)
        return rg_fail(err, RG_E_INPUT, "%s: it is no file of drawn ids", s->path);
    if (memcmp(&h, &s->h, sizeof h))
        return rg_fail(err, RG_E_INPUT,
                       "%s: it has %d draws of seed %llu from a vocabulary of %d%s: give another file for this run",
                       s->path, h.kind.draws, (unsigned long long)h.kind.seed, h.kind.vocab_size,
                       h.kind.teacher == s->h.kind.teacher ? "" : ", by another teacher");
    return true;
}

rg_samples *rg_samples_open(const char *path, const rg_samples_kind *kind, rg_error *err)
{
    rg_samples *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    memset(&s->h, 0, sizeof s->h);
    memcpy(s->h.magic, "RGDRAWN", 8);
    s->h.version = VERSION;
    s->h.entry_bytes = kind->vocab_size <= 1 << SMALL_BITS ? 3 : 4;
    s->h.kind = *kind;
    s->path = rg_strdup(path);
    s->file = s->path ? fopen(path, "r+b") : NULL;
    if (s->path && !s->file && errno == ENOENT)
        s->file = fopen(path, "w+b");
    if (!s->path)
        rg_fail_memory(err, strlen(path));
    else if (!s->file)
        fail(s, "opened", err);
    else if (read_header(s, err) && read_records(s, err))
        return s;
    rg_samples_close(s);
    return NULL;
}

void rg_samples_close(rg_samples *s)
{
    if (!s)
        return;
    if (s->file)
        fclose(s->file);
    rg_free(s->index);
    rg_free(s->payload);
    rg_free(s->path);
    rg_free(s);
}

uint64_t rg_samples_bytes(const rg_samples *s)
{
    return (uint64_t)s->end;
}

int64_t rg_samples_positions(const rg_samples *s)
{
    return s->positions;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static bool decode(const rg_samples *s, size_t bytes, int n, rg_draws *out, int32_t *id, int32_t *count)
{
    const uint32_t each = s->h.entry_bytes;
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        const int k = at < bytes ? s->payload[at++] : 0;

        if (k < 1 || k > s->h.kind.draws || at + (size_t)k * each > bytes)
            return false;
        out[i] = (rg_draws){ id, count, k };
        for (int e = 0; e < k; e++, at += each) {
            uint32_t v = 0;

            for (uint32_t b = 0; b < each; b++)
                v |= (uint32_t)s->payload[at + b] << 8 * b;
            *id++ = (int32_t)(v >> 7);
            *count++ = (int32_t)(v & 127);
            if (id[-1] >= s->h.kind.vocab_size || !count[-1])
                return false;
        }
    }
    return at == bytes;
}

int rg_samples_get(rg_samples *s, uint64_t key, int n, rg_draws *out, int32_t *id, int32_t *count, rg_error *err)
{
    const place *p = s->room ? find(s, key) : NULL;
    record_head r;

    if (!p || !p->at)
        return 0;
    errno = 0;
    if (fseeko(s->file, p->at, SEEK_SET) || fread(&r, sizeof r, 1, s->file) != 1 || r.key != key ||
        r.bytes > MOST_PAYLOAD || !make_room(s, r.bytes, err) || fread(s->payload, 1, r.bytes, s->file) != r.bytes)
        return fail(s, "read", err), -1;
    if (r.n != (uint32_t)n || !decode(s, r.bytes, n, out, id, count))
        return rg_fail(err, RG_E_INPUT, "%s: a record is damaged", s->path), -1;
    return 1;
}

bool rg_samples_put(rg_samples *s, uint64_t key, int n, const rg_draws *draws, rg_error *err)
{
    const uint32_t each = s->h.entry_bytes;
    record_head r = { .key = key, .n = (uint32_t)n };
    size_t at = 0, bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += 1 + (size_t)draws[i].n * each;
    if (bytes > MOST_PAYLOAD)
        return rg_fail(err, RG_E_INPUT, "%s: a row of %d ids is too long to be kept", s->path, n);
    if (!make_room(s, bytes, err))
        return false;
    for (int i = 0; i < n; i++) {
        s->payload[at++] = (uint8_t)draws[i].n;
        for (int e = 0; e < draws[i].n; e++) {
            const uint32_t v = (uint32_t)draws[i].id[e] << 7 | (uint32_t)draws[i].count[e];

            for (uint32_t b = 0; b < each; b++)
                s->payload[at++] = (uint8_t)(v >> 8 * b);
        }
    }
    r.bytes = (uint32_t)bytes;
    r.hash = rg_hash(s->payload, bytes, key);
    errno = 0;
    if (fseeko(s->file, s->end, SEEK_SET) || fwrite(&r, sizeof r, 1, s->file) != 1 ||
        fwrite(s->payload, 1, bytes, s->file) != bytes || fflush(s->file))
        return fail(s, "written", err);
    const int64_t where = s->end;
    s->end += (int64_t)(sizeof r + bytes);
    s->positions += n;
    return note(s, key, where, err);
}
