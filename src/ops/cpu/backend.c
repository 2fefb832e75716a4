/* backend.c -- this processor's back ends: one for each of its instruction sets (cpu.c). */
#include "ops/backend.h"

#include <pthread.h>

#include "base/mem.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/lane.h"
#include "ops/cpu/state.h"
#include "ops/cpu/weights.h"

enum { MOST = 8 };

static const rg_cpu *cpu_of(const rg_backend *b)
{
    return b->kernels;
}

static bool is_fast(const rg_backend *b, rg_type weights)
{
    return cpu_of(b)->fast[rg_format_of(weights)->layout] != RG_EXACT;
}

/* Arithmetic for an instruction set that has none of its own: what the compiler makes of plain C. */
static double plain_work(double n)
{
    float lane[16] = { 0 };

    for (double done = 0; done < n; done += 16) {
        for (int i = 0; i < 16; i++)
            lane[i] = lane[i] * 0.5f + 1.0f;
        __asm__ volatile("" : : "r"(lane) : "memory"); /* so that it is not left out */
    }
    return n;
}

static double work(const rg_backend *b, rg_arithmetic kind, double n)
{
    const rg_cpu *k = cpu_of(b);

    switch (kind) {
    case RG_ARITHMETIC_F32:
        return k->peak_f32 ? k->peak_f32(n) : plain_work(n);
    case RG_ARITHMETIC_BF16:
        return k->peak_bf16 ? k->peak_bf16(n) : 0;
    case RG_ARITHMETIC_INT8:
        return k->peak_int8 ? k->peak_int8(n) : 0;
    case RG_ARITHMETIC_COUNT:
        break;
    }
    return 0;
}

static uint64_t stream(const rg_backend *b, const void *p, size_t n)
{
    return cpu_of(b)->stream(p, n);
}

static void host_multiply(const rg_backend *b, const rg_host_product *p)
{
    if (!p->rounded) {
        cpu_of(b)->matrices(p);
        return;
    }
    cpu_of(b)->product[RG_BF16_ROUNDED][RG_LAYOUT_F32](&(rg_product){
        .panel = (const uint8_t *)p->panels, .panel_bytes = p->panel_floats * sizeof *p->panels,
        .n_panels = p->n_panels, .cols = p->cols, .m = p->m, .h = p->rounded, .ldx = p->ldx, .y = p->y,
        .ldy = p->ldy });
}

static void host_round(const rg_backend *b, uint16_t *to, const float *x, size_t n)
{
    cpu_of(b)->store(to, NULL, RG_BF16, 1, x, (int)n);
}

static void host_activate(const rg_backend *b, rg_activation act, float *y, const float *x, size_t n)
{
    const size_t most = 1 << 20;

    for (size_t i = 0; i < n; i += most)
        cpu_of(b)->act[act](y + i, x + i, (int)(n - i < most ? n - i : most));
}

static const rg_loops *host_loops(const rg_backend *b)
{
    return cpu_of(b)->loops;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rg_backend backends[MOST];
static int n_backends;

static void build(void)
{
    for (const rg_cpu *k; (k = rg_cpu_nth(n_backends));) {
        RG_ASSERT(n_backends < MOST);
        backends[n_backends++] = (rg_backend){ .name = k->isa,
                                               .kernels = k,
                                               .reads_host = true,
                                               .is_fast = is_fast,
                                               .state_new = rg_cpu_state_new,
                                               .state_free = rg_cpu_state_free,
                                               .state_copy = rg_cpu_state_copy,
                                               .state_save = rg_cpu_state_save,
                                               .state_load = rg_cpu_state_load,
                                               .state_fill = rg_cpu_state_fill,
                                               .state_move = rg_cpu_state_move,
                                               .state_close = rg_cpu_state_close,
                                               .measure = rg_cpu_measure,
                                               .open = rg_cpu_lane_open,
                                               .close = rg_cpu_lane_close,
                                               .submit = rg_cpu_lane_submit,
                                               .wait = rg_cpu_lane_wait,
                                               .host_multiply = host_multiply,
                                               .host_round = host_round,
                                               .host_activate = host_activate,
                                               .host_loops = host_loops,
                                               .work = work,
                                               .stream = stream,
                                               .activations = rg_cpu_lane_activations };
        rg_cpu_add_weights(&backends[n_backends - 1]);
    }
}

/* As backends.def wants it. */
const rg_backend *rg_cpu_backend(int i);
const rg_backend *rg_cpu_backend(int i)
{
    pthread_once(&once, build);
    return i >= 0 && i < n_backends ? &backends[i] : NULL;
}
