/* durable_file.c -- see durable_file.h. */
#include "engine/durable_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

enum {
    PATH_ROOM = 4096,
    PIECE = 1 << 15, /* of a file that is compared */
    MAX_DEPTH = 999999999,
    ABOUT_S = 900,      /* times that differ by less count as the same */
    ABANDONED_S = 3600, /* what has no final name after so long is of a writer that was killed */
};

static const uint64_t S = 1000000000;

/* In front of a block.  Its own hash is the last, of all before it. */
typedef struct head {
    char magic[8];
    rg_block_name name;
    uint32_t group, version;
    uint64_t bytes, block_hash, hash;
} head;

static const char magic[8] = "ridge-kv";

enum { VERSION = 1 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void put_hex(char *to, const uint8_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(to + 2 * i, 3, "%02x", from[i]);
}

/* The folder of the file, too: the path up to `cut`. */
static bool path_of(char path[PATH_ROOM], size_t *cut, const char *folder, const rg_block_place *at)
{
    char hex[2 * sizeof at->name.hash + 1];

    put_hex(hex, at->name.hash, sizeof at->name.hash);
    int n = snprintf(path, PATH_ROOM, "%s/%.2s/%s-%d.kv", folder, hex, hex + 2, at->group);
    *cut = strlen(folder) + 3;
    return n > 0 && n < PATH_ROOM;
}

/* What a name in a folder of files is. */
typedef enum kind { KIND_OTHER, KIND_BLOCK, KIND_TEMPORARY } kind;

static size_t n_hex(const char *s)
{
    return strspn(s, "0123456789abcdef");
}

static kind kind_of(const char *name)
{
    enum { HEX = 2 * (sizeof(rg_block_name) - 1) };
    const char *end = name + HEX;

    if (n_hex(name) != HEX || *end++ != '-')
        return KIND_OTHER;
    size_t digits = strspn(end, "0123456789");
    end += digits;
    if (!digits || strncmp(end, ".kv", 3))
        return KIND_OTHER;
    end += 3;
    return !*end ? KIND_BLOCK : !strncmp(end, ".tmp-", 5) ? KIND_TEMPORARY : KIND_OTHER;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static void make_young(const char *path, int32_t depth)
{
    const uint64_t below = depth < MAX_DEPTH ? (uint64_t)(MAX_DEPTH - depth) : 0;

    (void)rg_path_touch(path, (uint64_t)rg_wall_s() * S + below); /* else it goes earlier than it might */
}

static head head_of(const rg_block_place *at, const void *block, size_t bytes)
{
    head h = { .name = at->name, .group = (uint32_t)at->group, .version = VERSION, .bytes = bytes };

    memcpy(h.magic, magic, sizeof magic);
    h.block_hash = rg_hash_pieces(block, bytes);
    h.hash = rg_hash(&h, offsetof(head, hash), 0);
    return h;
}

bool rg_block_folder_open(const char *folder, rg_error *err)
{
    char path[PATH_ROOM];

    if (strlen(folder) + 64 > PATH_ROOM)
        return rg_fail(err, RG_E_INPUT, "%.80s...: the path is too long", folder);
    if (!rg_dir_make(folder, err))
        return false;
    snprintf(path, sizeof path, "%s/writable", folder);
    rg_writer *w = rg_writer_open(path, err);
    rg_writer_abort(w);
    return w;
}

bool rg_block_file_exists(const char *folder, const rg_block_place *at)
{
    char path[PATH_ROOM];
    size_t cut;

    return path_of(path, &cut, folder, at) && rg_path_look(path) == RG_PATH_FILE;
}

static bool read_whole(const rg_file *f, const rg_block_place *at, void *to, size_t bytes)
{
    head found, want;

    if (rg_file_size(f) != sizeof found + bytes || !rg_file_read(f, 0, &found, sizeof found, NULL) ||
        !rg_file_read(f, sizeof found, to, bytes, NULL))
        return false;
    want = head_of(at, to, bytes);
    return !memcmp(&found, &want, sizeof found);
}

rg_block_read rg_block_file_read(const char *folder, const rg_block_place *at, void *to, size_t bytes)
{
    char path[PATH_ROOM];
    size_t cut;
    rg_file *f = path_of(path, &cut, folder, at) ? rg_file_open(path, NULL) : NULL;

    if (!f)
        return RG_BLOCK_NONE;
    bool ok = read_whole(f, at, to, bytes);
    rg_file_close(f);
    if (ok)
        make_young(path, at->depth);
    else
        (void)rg_path_remove(path); /* else its next reader says so again */
    return ok ? RG_BLOCK_READ : RG_BLOCK_DAMAGED;
}

/* True if a file is there and has just this. */
static bool is_written(const char *path, const head *h, const uint8_t *block, size_t bytes)
{
    rg_file *f = rg_path_look(path) == RG_PATH_FILE ? rg_file_open(path, NULL) : NULL;
    uint8_t piece[PIECE];
    bool same = f && rg_file_size(f) == sizeof *h + bytes && rg_file_read(f, 0, piece, sizeof *h, NULL) &&
                !memcmp(piece, h, sizeof *h);

    for (size_t done = 0; same && done < bytes; done += PIECE) {
        const size_t n = bytes - done < PIECE ? bytes - done : PIECE;

        same = rg_file_read(f, sizeof *h + done, piece, n, NULL) && !memcmp(piece, block + done, n);
    }
    rg_file_close(f);
    return same;
}

static bool write_new(const char *path, const head *h, const void *block, size_t bytes, rg_error *err)
{
    rg_writer *w = rg_writer_open(path, err);

    if (!w)
        return false;
    if (rg_writer_write(w, h, sizeof *h, err) && rg_writer_write(w, block, bytes, err))
        return rg_writer_commit_unsynced(w, err);
    rg_writer_abort(w);
    return false;
}

bool rg_block_file_write(const char *folder, const rg_block_place *at, const void *block, size_t bytes,
                         uint64_t *written, rg_error *err)
{
    const head h = head_of(at, block, bytes);
    char path[PATH_ROOM];
    size_t cut;

    *written = 0;
    if (!path_of(path, &cut, folder, at))
        return rg_fail(err, RG_E_INPUT, "%.80s...: the path is too long", folder);
    if (!is_written(path, &h, block, bytes)) {
        path[cut] = '\0';
        if (!rg_dir_make(path, err))
            return false;
        path[cut] = '/';
        if (!write_new(path, &h, block, bytes, err))
            return false;
        *written = sizeof(head) + bytes;
    }
    make_young(path, at->depth);
    return true;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

typedef struct listed {
    uint64_t bytes, time_ns;
    char path[48]; /* below the folder */
} listed;

typedef struct listing {
    const char *folder;
    char sub[3];
    listed *all;
    size_t n, room;
    uint64_t bytes, now_ns;
} listing;

/* A file that finds no place in the list is counted all the same, and stays. */
static void list(listing *l, const listed *what)
{
    l->bytes += what->bytes;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 1024;
        listed *more = rg_resize_array(l->all, room, sizeof *more);

        if (!more)
            return;
        l->all = more;
        l->room = room;
    }
    l->all[l->n++] = *what;
}

static bool list_file(void *arg, const char *name)
{
    listing *l = arg;
    kind k = kind_of(name);
    char path[PATH_ROOM];
    listed what;

    if (k == KIND_OTHER || snprintf(path, sizeof path, "%s/%s/%s", l->folder, l->sub, name) >= (int)sizeof path ||
        !rg_path_facts(path, &what.bytes, &what.time_ns))
        return true;
    if (k == KIND_TEMPORARY && what.time_ns + ABANDONED_S * S < l->now_ns)
        (void)rg_path_remove(path);
    if (k != KIND_BLOCK)
        return true;
    snprintf(what.path, sizeof what.path, "%s/%.40s", l->sub, name);
    list(l, &what);
    return true;
}

static bool list_folder(void *arg, const char *name)
{
    listing *l = arg;
    char path[PATH_ROOM];

    if (n_hex(name) != 2 || name[2])
        return true;
    snprintf(path, sizeof path, "%s/%s", l->folder, name);
    memcpy(l->sub, name, sizeof l->sub);
    (void)!rg_dir_list(path, list_file, l, NULL); /* one that cannot be read counts as empty */
    return true;
}

/* Which goes first: of about the same time the deeper, which has less below its second. */
static int goes_first(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    const uint64_t x_about = x->time_ns / (ABOUT_S * S), y_about = y->time_ns / (ABOUT_S * S);

    if (x_about != y_about)
        return x_about < y_about ? -1 : 1;
    const uint64_t x_below = x->time_ns % S, y_below = y->time_ns % S;
    return x_below < y_below ? -1 : x_below > y_below;
}

uint64_t rg_block_folder_trim(const char *folder, uint64_t most, uint64_t kept)
{
    listing l = { .folder = folder, .now_ns = (uint64_t)rg_wall_ns() };
    char path[PATH_ROOM];

    (void)!rg_dir_list(folder, list_folder, &l, NULL);
    if (l.bytes <= most)
        kept = most;
    else
        qsort(l.all, l.n, sizeof *l.all, goes_first);
    for (size_t i = 0; i < l.n && l.bytes > kept; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, l.all[i].path);
        if (rg_path_remove(path) || rg_path_look(path) == RG_PATH_NONE)
            l.bytes -= l.all[i].bytes;
    }
    rg_free(l.all);
    return l.bytes;
}
