/* profile.c -- see profile.h. */
#include "measure/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "ops/kv.h"

enum { PATH_ROOM = 4096, KEY_ROOM = 512, NAME_ROOM = 64, FILE_CAP = 1 << 20, CPUINFO_CAP = 1 << 23 };

/* A machine was busy if the rounds differ by more than this share of the median, or if the measuring thread, which
 * always has something to do, ran for less than this share of the time. */
static const double BUSY_SPREAD = 0.15, BUSY_SHARE = 0.9;

enum { LEAST_ROUNDS = 3 }; /* of a machine that was not busy */

/* ---- the key ----------------------------------------------------------------------------------------------------- */

/* The value of the first line that begins with `name`, to its end; false: there is none. */
static bool value_of(const char *text, const char *name, char *out, size_t room)
{
    const char *at = strstr(text, name);

    at = at ? strchr(at, ':') : NULL;
    if (!at)
        return false;
    at += 1 + strspn(at + 1, " \t");
    snprintf(out, room, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

void rg_processor_name(char *out, size_t room)
{
    char maker[NAME_ROOM], part[NAME_ROOM];
    size_t n;
    char *text = rg_file_slurp("/proc/cpuinfo", CPUINFO_CAP, &n, NULL);

    snprintf(out, room, "unknown");
    if (text && !value_of(text, "model name", out, room) && value_of(text, "CPU implementer", maker, sizeof maker) &&
        value_of(text, "CPU part", part, sizeof part))
        snprintf(out, room, "%s %s", maker, part);
    rg_free(text);
}

/* The first lines of the file. */
static void make_key(char out[KEY_ROOM], const rg_backend *backend, int n_threads)
{
    char processor[256];

    rg_processor_name(processor, sizeof processor);
    snprintf(out, KEY_ROOM, "ridge %s\nprocessor %s\ninstructions %s\nthreads %d\n", RG_VERSION, processor,
             backend->name, n_threads);
}

bool rg_profile_path(char *out, size_t room, const char *folder, const rg_backend *backend, int n_threads)
{
    char key[KEY_ROOM], name[NAME_ROOM];

    make_key(key, backend, n_threads);
    snprintf(name, sizeof name, "machine-%016llx.profile", (unsigned long long)rg_xxh64(key, strlen(key), 0));
    return rg_path_join(out, room, folder, name);
}

/* ---- the numbers ------------------------------------------------------------------------------------------------- */

/* Called for each run of numbers; false: stop. */
typedef bool on_numbers(void *arg, const char *name, double *v, int n);

static const char *const recipes[2] = { "fast", "exact" };
static const char *const places[RG_RATE_PLACES] = { "near", "cache", "far" };

static bool each_product_rate(rg_rates *r, on_numbers *fn, void *arg)
{
    char name[NAME_ROOM], second[NAME_ROOM];

    for (int i = 0; i < 2 * RG_LAYOUT_COUNT; i++)
        for (int k = 0; k < RG_RATE_PLACES && i / 2 != RG_LAYOUT_NONE; k++) {
            snprintf(name, sizeof name, "product.%s.%s.%s_s", recipes[i % 2],
                     rg_layout_name((rg_layout)(i / 2)), places[k]);
            if (!fn(arg, name, r->product[i % 2][i / 2].value_s[k], RG_RATE_ROWS))
                return false;
        }
    for (int i = 0; i < 2 * RG_LAYOUT_COUNT; i++) {
        rg_product_rate *p = &r->product[i % 2][i / 2];
        const char *layout = rg_layout_name((rg_layout)(i / 2));
        snprintf(name, sizeof name, "product.%s.%s.out_s", recipes[i % 2], layout);
        snprintf(second, sizeof second, "product.%s.%s.in_s", recipes[i % 2], layout);
        if (i / 2 != RG_LAYOUT_NONE && (!fn(arg, name, p->out_s, RG_RATE_OUTS) || !fn(arg, second, &p->in_s, 1)))
            return false;
    }
    return true;
}

static bool each_rate(rg_rates *r, on_numbers *fn, void *arg)
{
    static const char *const whats[2] = { "kv", "latent" };
    char name[NAME_ROOM], second[NAME_ROOM];

    if (!each_product_rate(r, fn, arg))
        return false;
    for (int i = 0; rg_rate_kv_type(i / 2) < RG_TYPE_COUNT; i++) {
        rg_attention_rate *a = &r->attention[i % 2][rg_rate_kv_type(i / 2)];
        for (int far = 0; far < 2; far++) {
            const char *type = rg_kv_name(rg_rate_kv_type(i / 2)), *place = places[far ? RG_FAR : RG_NEAR];
            snprintf(name, sizeof name, "attention.%s.%s.%s.pair_s", whats[i % 2], type, place);
            snprintf(second, sizeof second, "attention.%s.%s.%s.column_s", whats[i % 2], type, place);
            if (!fn(arg, name, far ? a->far_pair_s : a->pair_s, RG_RATE_QUERIES) ||
                !fn(arg, second, far ? a->far_column_s : a->column_s, RG_RATE_QUERIES))
                return false;
        }
    }
    if (!fn(arg, "first_byte_s", r->first_byte_s, RG_RATE_PLACES) || !fn(arg, "line_s", r->line_s, RG_RATE_PLACES) ||
        !fn(arg, "angle_s", &r->angle_s, 1))
        return false;
    for (int k = 0; k < RG_OP_COUNT; k++) {
        snprintf(name, sizeof name, "op.%s.fixed_s", rg_op_name((rg_op_kind)k));
        snprintf(second, sizeof second, "op.%s.cell_s", rg_op_name((rg_op_kind)k));
        if (!fn(arg, name, &r->fixed_s[k], 1) || !fn(arg, second, &r->cell_s[k], 1))
            return false;
        snprintf(name, sizeof name, "op.%s.shared_s", rg_op_name((rg_op_kind)k));
        if (!fn(arg, name, &r->shared_s[k], 1))
            return false;
    }
    return true;
}

/* All numbers of a profile, in the order of the file. */
static bool each_number(rg_profile *p, on_numbers *fn, void *arg)
{
    return fn(arg, "roof.read_bytes_s", &p->roofs.read_bytes_s, 1) &&
           fn(arg, "roof.f32_ops_s", &p->roofs.f32_ops_s, 1) && fn(arg, "roof.bf16_ops_s", &p->roofs.bf16_ops_s, 1) &&
           fn(arg, "roof.int8_ops_s", &p->roofs.int8_ops_s, 1) &&
           fn(arg, "set_bytes_s", p->rates.set_bytes_s, RG_RATE_SETS) && fn(arg, "step_s", &p->rates.step_s, 1) &&
           each_rate(&p->rates, fn, arg);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool read_numbers(void *arg, const char *name, double *v, int n)
{
    const char **at = arg, *from = *at;
    size_t length = strlen(name);

    if (strncmp(from, name, length) != 0)
        return false;
    from += length;
    for (int i = 0; i < n; i++) {
        char *end;
        if (*from != ' ')
            return false;
        v[i] = strtod(from, &end);
        if (end == from || !isfinite(v[i]) || v[i] < 0)
            return false;
        from = end;
    }
    if (*from != '\n')
        return false;
    *at = from + 1;
    return true;
}

/* Check numbers that costs are divided by. */
static bool has_bandwidth(const rg_profile *p)
{
    for (int i = 0; i < RG_RATE_SETS; i++)
        if (!(p->rates.set_bytes_s[i] > 0))
            return false;
    return p->roofs.read_bytes_s > 0 && p->roofs.f32_ops_s > 0;
}

bool rg_profile_load(rg_profile *out, const char *folder, const rg_backend *backend, int n_threads)
{
    char path[PATH_ROOM], key[KEY_ROOM];
    size_t n;

    memset(out, 0, sizeof *out);
    make_key(key, backend, n_threads);
    bool named = rg_profile_path(path, sizeof path, folder, backend, n_threads);
    char *text = named ? rg_file_slurp(path, FILE_CAP, &n, NULL) : NULL;
    bool ok = text && strlen(text) == n && !strncmp(text, key, strlen(key));
    if (ok) {
        const char *at = text + strlen(key);
        ok = each_number(out, read_numbers, &at) && !strcmp(at, "end\n") && has_bandwidth(out);
    }
    out->roofs.n_threads = n_threads;
    rg_free(text);
    return ok;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool write_numbers(void *arg, const char *name, double *v, int n)
{
    rg_buf *b = arg;

    rg_buf_str(b, name);
    for (int i = 0; i < n; i++)
        rg_buf_printf(b, " %.17g", v[i]);
    return rg_buf_str(b, "\n");
}

static bool make_folder(const char *folder, rg_error *err)
{
    char parent[PATH_ROOM];
    const char *slash = strrchr(folder, '/');

    if (slash && slash > folder && (size_t)(slash - folder) < sizeof parent) {
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - folder), folder);
        if (!rg_dir_make(parent, err))
            return false;
    }
    return rg_dir_make(folder, err);
}

bool rg_profile_save(const rg_profile *p, const char *folder, const rg_backend *backend, rg_error *err)
{
    rg_profile copy = *p; /* as reading and writing share each_number */
    char path[PATH_ROOM], key[KEY_ROOM];
    rg_buf b;

    if (p->busy)
        return rg_fail(err, RG_E_INPUT, "the machine was busy while it was measured");
    if (!rg_profile_path(path, sizeof path, folder, backend, p->roofs.n_threads))
        return rg_fail(err, RG_E_INPUT, "%.200s: the folder's name is too long", folder);
    if (!make_folder(folder, err))
        return false;
    make_key(key, backend, p->roofs.n_threads);
    rg_buf_init(&b, FILE_CAP);
    rg_buf_str(&b, key);
    each_number(&copy, write_numbers, &b);
    rg_buf_str(&b, "end\n");
    bool ok = b.failed ? rg_fail_memory(err, b.n) : rg_file_put(path, b.data, b.n, err);
    rg_buf_fini(&b);
    return ok;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static bool measure_round(rg_profile *p, rg_rounds *rounds, const rg_backend *backend, int n_threads, rg_error *err)
{
    rg_roofs now;

    rg_rounds_begin(rounds);
    if (!rg_roofs_probe(&now, backend, n_threads, 0, err))
        return false;
    p->roofs.n_threads = n_threads;
    p->roofs.read_bytes_s = rg_rounds_median(rounds, now.read_bytes_s);
    p->roofs.f32_ops_s = rg_rounds_median(rounds, now.f32_ops_s);
    p->roofs.bf16_ops_s = rg_rounds_median(rounds, now.bf16_ops_s);
    p->roofs.int8_ops_s = rg_rounds_median(rounds, now.int8_ops_s);
    return rg_rates_measure(&p->rates, rounds, backend, n_threads, err);
}

/* Processor time of this thread so far. */
static double cpu_seconds(void)
{
    struct timespec t = { 0 };

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool rg_profile_measure(rg_profile *out, const rg_backend *backend, int n_threads, double most_s,
                        void (*progress)(void *arg, double done), void *arg, rg_error *err)
{
    rg_rounds *rounds = rg_zalloc(sizeof *rounds);
    rg_profile *before = rg_alloc(sizeof *before);
    bool ok = (rounds && before) || rg_fail_memory(err, sizeof *rounds + sizeof *before), late = false;
    double ran = -cpu_seconds();
    uint64_t t0 = rg_now_ns();

    memset(out, 0, sizeof *out);
    for (int i = 0; ok && i < RG_ROUNDS && !late; i++) {
        if (progress)
            progress(arg, (double)i / RG_ROUNDS);
        rounds->until_ns = t0 + (uint64_t)(1e9 * most_s);
        *before = *out;
        ok = measure_round(out, rounds, backend, n_threads, err);
        late = rg_now_ns() > rounds->until_ns;
        if (ok && rg_rounds_late(rounds)) {
            *out = *before;
            rg_rounds_give_up(rounds);
        }
    }
    if (ok) {
        ran += cpu_seconds();
        out->busy = rounds->n_rounds < LEAST_ROUNDS || rg_rounds_spread(rounds) > BUSY_SPREAD ||
                    ran < BUSY_SHARE * rg_seconds(t0, rg_now_ns());
        ok = has_bandwidth(out) || rg_fail(err, RG_E_INPUT, "this machine's bandwidth could not be measured");
    }
    if (ok && progress)
        progress(arg, 1);
    rg_free(before);
    rg_free(rounds);
    return ok;
}
