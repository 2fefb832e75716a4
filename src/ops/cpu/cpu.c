/* cpu.c -- which instruction sets this machine has, and their tables.
 *
 * The only file outside their folders that names them.  Each table is the one before it with what is faster here on
 * top; all are built once, at the first question, and never change.  An instruction set counts only if the operating
 * system saves its registers too. */
#include <pthread.h>
#include <string.h>

#include "ops/cpu/amx/init.h"
#include "ops/cpu/avx2/init.h"
#include "ops/cpu/avx512/init.h"
#include "ops/cpu/neon/init.h"
#include "ops/cpu/ref/init.h"

enum { MAX_ISAS = 4 };

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
    AMX_TILE = 1 << 24, /* cpuid 7, edx */
    AMX_INT8 = 1 << 25,
    OSXSAVE = 1 << 27, /* cpuid 1, ecx */
    F16C = 1 << 29,
    XCR0_TILES = 3 << 17,
    REQUEST_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM: tile registers are large, so Linux wants to be asked */
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

static bool has_amx(void)
{
    unsigned a, b, c, d, low, high;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (AMX_TILE | AMX_INT8)) != (AMX_TILE | AMX_INT8))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & XCR0_TILES) == XCR0_TILES && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void build(void)
{
    __builtin_cpu_init();
    add_table(rg_cpu_init_ref);
    if (!has_avx2())
        return;
    add_table(rg_cpu_init_avx2);
    if (!has_avx512())
        return;
    add_table(rg_cpu_init_avx512);
    if (has_amx())
        add_table(rg_cpu_init_amx);
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

static bool is_known(const char *isa)
{
    static const char *const names[] = { "ref", "avx2", "avx512", "amx", "neon" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (!strcmp(isa, names[i]))
            return true;
    return false;
}

const rg_cpu *rg_cpu_find(const char *isa, rg_error *err)
{
    const rg_cpu *k = NULL;
    const bool best = !strcmp(isa, "auto");

    for (int i = 0; rg_cpu_nth(i); i++)
        if (best || !strcmp(isa, rg_cpu_nth(i)->isa))
            k = rg_cpu_nth(i);
    if (!k && is_known(isa))
        rg_fail(err, RG_E_UNSUPPORTED, "this machine does not have the instruction set '%s'", isa);
    else if (!k)
        rg_fail(err, RG_E_USAGE, "instruction set '%s' is not one of auto, ref, avx2, avx512, amx, neon", isa);
    return k;
}
