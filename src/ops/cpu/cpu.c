/* cpu.c -- which instruction sets this machine has, and their tables.
 *
 * The only file outside their folders that names them.  Each table is the one before it with what is faster here on
 * top; all are built once, at the first question, and never change.  An instruction set counts only if the operating
 * system saves its registers too. */
#include <pthread.h>
#include <string.h>

#include "base/rng.h"
#include "ops/cpu/amx/init.h"
#include "ops/cpu/avx2/init.h"
#include "ops/cpu/avx512/init.h"
#include "ops/cpu/neon/init.h"
#include "ops/cpu/ref/init.h"

enum { MAX_ISAS = 6 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rg_cpu tables[MAX_ISAS]; /* best last */
static int n_tables;

/* A further table: the last one, and init on top. */
static void add_table(void (*init)(rg_cpu *k))
{
    if (n_tables)
        tables[n_tables] = tables[n_tables - 1];
    init(&tables[n_tables++]);
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    AVX_VNNI = 1 << 4, /* cpuid 7.1, eax */
    AVX512_BF16 = 1 << 5,
    AMX_BF16 = 1 << 22, /* cpuid 7, edx */
    AMX_TILE = 1 << 24,
    AMX_INT8 = 1 << 25,
    OSXSAVE = 1 << 27, /* cpuid 1, ecx */
    F16C = 1 << 29,
    XCR0_TILES = 3 << 17,
    REQUEST_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM: tile registers are large, so Linux requires a request */
    TILE_DATA = 18,
};

static bool has_avx2(void)
{
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & F16C);
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* VBMI, and GFNI too, which all but the first of these processors have. */
static bool has_vbmi(void)
{
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
}

/* A bit of cpuid 7.1, eax. */
static bool has_later(unsigned bit)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit);
}

static bool has_amx(void)
{
    const unsigned need = AMX_TILE | AMX_INT8 | AMX_BF16;
    unsigned a, b, c, d, low, high;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & need) != need)
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & XCR0_TILES) == XCR0_TILES && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void random_bf16(rg_rng *rng, uint16_t *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = rg_f32_to_bf16(rg_rng_normal(rng) * scale);
}

static void random_f8(rg_rng *rng, rg_step_f8 *step, size_t n)
{
    for (; n--; step++)
        for (int i = 0; i < RG_PANEL; i++) {
            step->d[i] = rg_rng_normal(rng);
            for (int k = 0; k < 128; k++) /* no NaN, whose bits are free */
                step->q[k][i] = (uint8_t)(rg_rng_below(rng, 0x7f) | rg_rng_below(rng, 2) << 7);
        }
}

/* A few products of a bf16 recipe are those of the reference.  One panel of three (of BF16) and every other row have
 * values so small that sums are subnormal. */
static bool is_as_in_ref(const rg_cpu *k, rg_recipe recipe, rg_layout layout)
{
    enum { ROWS = 17, PANELS = 3, COLS = 256, LD = 16 * PANELS, STEPS = COLS / 128 };
    static uint16_t bf16[PANELS][COLS * 16], x[ROWS][COLS]; /* static: used once, and too large for the stack of the */
    static rg_step_f8 f8[PANELS][STEPS];                    /* first caller */
    static float f32[PANELS][COLS * 16], want[ROWS * LD], got[ROWS * LD];
    const bool of_f8 = layout == RG_LAYOUT_F8, of_f32 = layout == RG_LAYOUT_F32;
    rg_product p = { .panel = of_f8    ? (const uint8_t *)f8
                              : of_f32 ? (const uint8_t *)f32
                                       : (const uint8_t *)bf16,
                     .panel_bytes = of_f8    ? sizeof f8[0]
                                    : of_f32 ? sizeof f32[0]
                                             : sizeof bf16[0],
                     .n_panels = PANELS, .cols = COLS, .h = x[0], .ldx = COLS, .ldy = LD };
    rg_rng rng = { .seed = 1 };
    bool same = true;

    for (int i = 0; i < PANELS; i++)
        random_bf16(&rng, bf16[i], COLS * 16, i == 1 ? 0x1p-64f : 1.0f);
    for (int i = 0; i < PANELS; i++)
        for (int c = 0; c < COLS * 16; c++)
            f32[i][c] = rg_rng_normal(&rng) * (c % 5 ? 1.0f : 0x1p-64f);
    for (int i = 0; i < ROWS; i++)
        random_bf16(&rng, x[i], COLS, i % 2 ? 1.0f : 0x1p-64f);
    random_f8(&rng, f8[0], PANELS * STEPS);
    for (p.m = ROWS; p.m > 0; p.m -= ROWS - 1) { /* many rows, and one */
        p.y = want;
        tables[0].product[recipe][layout](&p);
        p.y = got;
        k->product[recipe][layout](&p);
        same = same && !memcmp(got, want, sizeof got);
    }
    return same;
}

/* A further table, if products of the bf16 recipe that it brings are those of the reference: manuals do not define the
 * order of a sum.  Otherwise the table is without that recipe, and returned is false. */
static bool add_bf16_table(void (*init)(rg_cpu *k), rg_recipe recipe)
{
    const struct { rg_recipe recipe; rg_layout layout; } of[] = { { recipe, RG_LAYOUT_BF16 }, { recipe, RG_LAYOUT_F8 },
                                                                  { RG_BF16_ROUNDED, RG_LAYOUT_F32 } };
    rg_cpu *k = &tables[n_tables];
    bool same = true;

    add_table(init);
    for (size_t i = 0; i < RG_LEN(of); i++)
        same = same && is_as_in_ref(k, of[i].recipe, of[i].layout);
    if (same)
        return true;
    k->peak_bf16 = k[-1].peak_bf16;
    for (size_t i = 0; i < RG_LEN(of); i++) {
        k->fast[of[i].layout] = k[-1].fast[of[i].layout];
        k->product[of[i].recipe][of[i].layout] = k[-1].product[of[i].recipe][of[i].layout];
    }
    return false;
}

static void build(void)
{
    bool pairs;

    __builtin_cpu_init();
    add_table(rg_cpu_init_ref);
    if (!has_avx2())
        return;
    add_table(rg_cpu_init_avx2);
    if (has_later(AVX_VNNI))
        add_table(rg_cpu_init_avx_vnni);
    if (!has_avx512())
        return;
    add_table(rg_cpu_init_avx512);
    pairs = has_later(AVX512_BF16) && add_bf16_table(rg_cpu_init_avx512_bf16, RG_BF16_PAIRS);
    if (has_vbmi()) {
        rg_cpu_add_avx512_vbmi(&tables[n_tables - 1]);
        if (pairs)
            rg_cpu_add_avx512_pairs_f8(&tables[n_tables - 1]);
    }
    if (has_vbmi() && has_amx())
        add_bf16_table(rg_cpu_init_amx, RG_BF16_TILES);
    for (int i = 0; i < n_tables; i++) /* Zen 5, measured; a Zen 4 has no AVX-VNNI */
        tables[i].fetch_to_l1 = __builtin_cpu_is("amd") && has_later(AVX_VNNI);
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

enum { DOTPROD = 1 << 20 }; /* HWCAP_ASIMDDP */

static void build(void)
{
    add_table(rg_cpu_init_ref);
    add_table(getauxval(AT_HWCAP) & DOTPROD ? rg_cpu_init_neon_dotprod : rg_cpu_init_neon);
}

#else

static void build(void)
{
    add_table(rg_cpu_init_ref);
}

#endif

const rg_cpu *rg_cpu_nth(int i)
{
    pthread_once(&once, build);
    return i >= 0 && i < n_tables ? &tables[i] : NULL;
}

/* As ops/backends.def wants it: a name that other machines may have. */
bool rg_cpu_backend_is_known(const char *name);
bool rg_cpu_backend_is_known(const char *name)
{
    static const char *const names[] = { "ref", "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx", "neon" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}
