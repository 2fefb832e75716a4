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

/* A further table, if a few products of its bf16 recipe are those of the reference: manuals do not define the order of
 * a sum.  Otherwise the table is without that recipe, and returned is false.  One panel of three and every other row
 * have values so small that sums are subnormal. */
static bool add_bf16_table(void (*init)(rg_cpu *k), rg_recipe recipe)
{
    enum { ROWS = 17, PANELS = 3, COLS = 96, LD = 16 * PANELS };
    static uint16_t w[PANELS][COLS * 16], x[ROWS][COLS]; /* static: used once, and too large for the stack of the first
                                                          *   caller */
    static float want[ROWS * LD], got[ROWS * LD];
    rg_product p = { .panel = (const uint8_t *)w, .panel_bytes = sizeof w[0], .n_panels = PANELS, .cols = COLS,
                     .h = x[0], .ldx = COLS, .ldy = LD };
    rg_cpu *k = &tables[n_tables];
    rg_rng rng = { .seed = 1 };
    bool same = true;

    add_table(init);
    for (int i = 0; i < PANELS; i++)
        random_bf16(&rng, w[i], COLS * 16, i == 1 ? 0x1p-64f : 1.0f);
    for (int i = 0; i < ROWS; i++)
        random_bf16(&rng, x[i], COLS, i % 2 ? 1.0f : 0x1p-64f);
    for (p.m = ROWS; p.m > 0; p.m -= ROWS - 1) { /* many rows, and one */
        p.y = want;
        tables[0].product[recipe][RG_LAYOUT_BF16](&p);
        p.y = got;
        k->product[recipe][RG_LAYOUT_BF16](&p);
        same = same && !memcmp(got, want, sizeof got);
    }
    if (same)
        return true;
    k->peak_bf16 = k[-1].peak_bf16;
    k->fast[RG_LAYOUT_BF16] = k[-1].fast[RG_LAYOUT_BF16];
    k->product[recipe][RG_LAYOUT_BF16] = k[-1].product[recipe][RG_LAYOUT_BF16];
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
    if (__builtin_cpu_supports("avx512vbmi")) {
        rg_cpu_add_avx512_vbmi(&tables[n_tables - 1]);
        if (pairs)
            rg_cpu_add_avx512_pairs_f8(&tables[n_tables - 1]);
    }
    if (has_amx())
        add_bf16_table(rg_cpu_init_amx, RG_BF16_TILES);
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
